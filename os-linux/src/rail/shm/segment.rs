//! Ring memory: anonymous, sealed, mapped; and the two ends of a ring on it.
//!
//! The consumer creates the memory. So a process pays for its own receive capacity, and its reads are from
//! pages that it allocated itself (on its own NUMA node, where it touches them first). The side that parses
//! bytes does not depend on another process for the memory's size. (shiba-2005, 2.2, has the sender create
//! it.) The producer gets the descriptor over an authenticated socket, and maps it only if the kernel
//! guarantees that the memory can't shrink any more: a peer that truncates it later can't kill us with a
//! SIGBUS. Nothing has a name; all of it vanishes with its last user.
//!
//! Safety argument of the file: a mapping lives as long as its [`Segment`], which lies beside the ring end
//! that uses it and is dropped after it; it is reached through that end only.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rerail_core::shm::{
    AttachError, Consumer, Front, Inline, ListedWindow, Mapped, PUTTING_AT, Producer, PushError, RingConfig, RingError,
    WindowList, ring_bytes,
};
use rerail_core::wire::Short;
use rustix::fs::{self, FallocateFlags, FileType, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use super::barrier;
use crate::rail::Piece;

/// Seals that memory must have before it is mapped (L-10).
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The file system of ordinary anonymous memory files (`linux/magic.h`).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Why a segment can't be made or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// The system refused.
    System(Errno),
    /// The descriptor is no regular file, so no memory.
    NotMemory,
    /// The memory is not sealed as it must be.
    Unsealed,
    /// The memory has not the size that the agreed ring takes.
    Size {
        /// Bytes that the ring takes.
        needed: u64,
        /// Bytes that are there.
        given: u64,
    },
    /// The ring in it is not the one agreed.
    Ring(AttachError),
}

impl From<Errno> for SegmentError {
    fn from(errno: Errno) -> Self {
        SegmentError::System(errno)
    }
}

impl From<AttachError> for SegmentError {
    fn from(error: AttachError) -> Self {
        SegmentError::Ring(error)
    }
}

/// A mapping.
#[derive(Debug)]
struct Segment {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: memory of the process; any thread may use or unmap it.
unsafe impl Send for Segment {}
// SAFETY: what several users of one access are words of a ring, atomically.
unsafe impl Sync for Segment {}

impl Segment {
    fn map(memory: BorrowedFd<'_>, len: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use by Rust.
        let base = unsafe { mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, memory, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Segment { base, len })
    }

    /// Has the system find the pages that a ring begins with; `false`: it can't do so for some pages of a
    /// mapping.
    fn begin(&self, config: RingConfig) -> Result<bool, Errno> {
        // SAFETY: a ring's first bytes are mapped.
        match unsafe { find_pages(self.base, config.first_bytes()) } {
            Ok(()) => Ok(true),
            Err(Errno::INVAL | Errno::NOSYS) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and its users are gone. It can't fail for a range that `mmap` gave.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// The end of a ring from which this process receives.
#[derive(Debug)]
pub struct Inbound {
    // Dropped in this order.
    ring: Consumer<Mapped>,
    segment: Arc<Segment>,
}

/// The announcement of puts by the peer of a ring (L-26), which may outlive the ring's end.
#[derive(Debug)]
pub struct Announcement(Arc<Segment>);

impl Announcement {
    /// See [`Consumer::putting`].
    pub fn number(&self) -> u64 {
        // SAFETY: a word of a ring's layout, so inside the mapping and aligned; it is accessed atomically
        // only.
        unsafe { AtomicU64::from_ptr(self.0.base.as_ptr().add(PUTTING_AT).cast()) }.load(Ordering::Acquire)
    }
}

impl Inbound {
    /// Makes the memory and its ring; the descriptor is for the producer.
    pub fn create(config: RingConfig) -> Result<(Self, OwnedFd), SegmentError> {
        config.check().map_err(AttachError::Config)?;
        let len = ring_bytes(config).ok_or(Errno::NOMEM)?;
        let memory = fs::memfd_create("rerail-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        fs::ftruncate(&memory, len as u64)?;
        fs::fcntl_add_seals(&memory, SEALS)?;
        let segment = Segment::map(memory.as_fd(), len)?;
        let sparse = segment.begin(config)?;
        if !sparse {
            reserve(&memory, len as u64)?;
        }
        // SAFETY: the mapping is `len` bytes, readable and writable, fresh (so zero) and only used by this
        // ring; it is dropped after the ring.
        let mut ring = unsafe { Consumer::create(segment.base, segment.len, config) }?;
        if sparse {
            ring.populate_by(populate);
        }
        Ok((Inbound { ring, segment: Arc::new(segment) }, memory))
    }

    /// Both sides use the barrier of the system instead of a fence for each message (L-13).
    pub fn use_barrier(&mut self) {
        self.ring.use_heavy_fence(barrier::heavy_fence);
    }

    /// See [`Consumer::has_message`].
    #[inline]
    pub fn has_message(&self) -> bool {
        self.ring.has_message()
    }

    /// See [`Consumer::front_word`].
    #[inline(always)]
    pub fn front_word(&self) -> Option<u64> {
        self.ring.front_word()
    }

    /// See [`Consumer::is_quiet`].
    #[inline]
    pub fn is_quiet(&mut self) -> bool {
        self.ring.is_quiet()
    }

    /// See [`Consumer::front_short`].
    #[inline(always)]
    pub fn front_short(&mut self, first: u64) -> Option<(Short, *const u8)> {
        self.ring.front_short(first)
    }

    /// See [`Consumer::front_inline`].
    #[inline(always)]
    pub fn front_inline(&self, first: u64) -> Option<Inline<'_, Mapped>> {
        self.ring.front_inline(first)
    }

    /// See [`Consumer::pass_short`].
    #[inline(always)]
    pub fn pass_short(&mut self) -> bool {
        self.ring.pass_short()
    }

    /// See [`Consumer::release_short`].
    #[inline(always)]
    pub fn release_short(&mut self) -> bool {
        self.ring.release_short()
    }

    /// The oldest message.
    pub fn front(&mut self) -> Result<Option<Front<'_, Mapped>>, RingError> {
        self.ring.front()
    }

    /// See [`Consumer::must_ring`].
    #[inline]
    pub fn must_ring(&mut self) -> bool {
        self.ring.must_ring()
    }

    /// See [`Consumer::offer`].
    pub fn offer(&self) -> u64 {
        self.ring.offer()
    }

    /// See [`Consumer::windows`].
    #[inline(always)]
    pub fn windows(&self) -> u64 {
        self.ring.windows()
    }

    /// See [`Consumer::window`].
    pub fn window(&self, key: u64) -> Option<(u64, ListedWindow)> {
        self.ring.window(key)
    }

    /// See [`Consumer::putting`].
    pub fn putting(&self) -> u64 {
        self.ring.putting()
    }

    /// What [`putting`](Self::putting) reads, beyond this end's life.
    pub fn announcement(&self) -> Announcement {
        Announcement(self.segment.clone())
    }

    /// See [`Consumer::claims`].
    pub fn claims(&self) -> &AtomicU64 {
        self.ring.claims()
    }

    /// See [`Consumer::raise`].
    pub fn raise(&mut self) {
        self.ring.raise();
    }

    /// See [`Consumer::is_empty`].
    pub fn is_empty(&mut self) -> bool {
        self.ring.is_empty()
    }

    /// See [`Consumer::disarm`].
    pub fn disarm(&mut self) {
        self.ring.disarm();
    }

    /// Bytes of memory.
    pub fn len(&self) -> usize {
        self.segment.len
    }
}

/// Has the system allocate all pages now, and returns its failure: later it could only raise a signal. Where
/// the system can allocate some pages of a mapping (Linux 5.14), both sides do so for pages they are about to
/// touch for the first time, so that a peer with little traffic costs little.
fn reserve(memory: &OwnedFd, len: u64) -> Result<(), Errno> {
    loop {
        match fs::fallocate(memory, FallocateFlags::empty(), 0, len) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            reserved => return reserved,
        }
    }
}

/// See [`Populate`](rerail_core::shm::Populate).
///
/// # Safety
/// The bytes are mapped, and may be written.
unsafe fn populate(start: NonNull<u8>, len: usize) -> bool {
    // SAFETY: the caller's promise is the same.
    unsafe { find_pages(start, len) }.is_ok()
}

/// Has the system find the pages of some bytes, for writing.
///
/// # Safety
/// The bytes are mapped, and may be written.
unsafe fn find_pages(start: NonNull<u8>, len: usize) -> Result<(), Errno> {
    let before = start.addr().get() % page_size();
    // SAFETY: the pages of mapped bytes are mapped, and so nothing but their tables changes.
    let first = unsafe { start.as_ptr().sub(before) };
    loop {
        // SAFETY: as above.
        match unsafe { mm::madvise(first.cast(), before + len, Advice::LinuxPopulateWrite) } {
            Err(Errno::INTR) => {}
            found => return found,
        }
    }
}

/// Whether it is memory of ordinary pages: those of another size the system could take back, and a fault on
/// them would raise a signal.
pub fn is_ordinary_memory(file: &OwnedFd) -> Result<(), SegmentError> {
    if fs::fstatfs(file)?.f_type as u64 == TMPFS_MAGIC { Ok(()) } else { Err(SegmentError::NotMemory) }
}

/// Bytes of a page.
pub(super) fn page_size() -> usize {
    // SAFETY: it reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096).max(1)
}

/// Copies up to the piece's length from a message, from its payload byte `from` on; returns how many bytes.
pub fn copy_to(front: &Front<'_, Mapped>, from: u32, piece: Piece) -> usize {
    // SAFETY: pieces that a sink names can be written for their length (its contract).
    unsafe { front.copy_to(from, piece.start, piece.len) }
}

/// Copies the payload of a short message: the smallest ones by a machine word.
///
/// # Safety
/// `from` can be read and `to` written for `len` bytes; they don't overlap.
#[inline(always)]
pub(crate) unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: both have 8 bytes then.
    unsafe {
        if len == 8 {
            to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
        } else {
            std::ptr::copy_nonoverlapping(from, to, len);
        }
    }
}

/// The bytes of a post's payload, copied.
pub fn gather(payload: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.iter().map(|piece| piece.len).sum());
    for piece in payload.iter().filter(|piece| piece.len > 0) {
        // SAFETY: the pieces of a post can be read until its completion is reported (the contract of
        // `Outgoing`), and are not written meanwhile.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.start, piece.len) });
    }
    bytes
}

/// The end of a ring into which this process sends.
#[derive(Debug)]
pub struct Outbound {
    // Dropped in this order.
    ring: Producer<Mapped>,
    _segment: Segment,
}

impl Outbound {
    /// Maps memory handed over by a peer, after checking that it matches the agreement and stays so.
    pub fn open(memory: OwnedFd, config: RingConfig) -> Result<Self, SegmentError> {
        config.check().map_err(AttachError::Config)?;
        let len = ring_bytes(config).ok_or(Errno::NOMEM)?;
        let stat = fs::fstat(&memory)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(SegmentError::NotMemory);
        }
        // Only memory files support seals; any other regular file fails here.
        let seals = fs::fcntl_get_seals(&memory).map_err(|_| SegmentError::NotMemory)?;
        if !seals.contains(SEALS) {
            return Err(SegmentError::Unsealed);
        }
        is_ordinary_memory(&memory)?;
        let given = stat.st_size as u64;
        if given != len as u64 {
            return Err(SegmentError::Size { needed: len as u64, given });
        }
        let segment = Segment::map(memory.as_fd(), len)?;
        let sparse = segment.begin(config)?;
        // SAFETY: the mapping is `len` bytes, readable and writable and stays so: the kernel has it sealed at
        // this size. It is only used by this ring and dropped after it.
        let mut ring = unsafe { Producer::attach(segment.base, segment.len, config) }?;
        if sparse {
            ring.populate_by(populate);
        }
        Ok(Outbound { ring, _segment: segment })
    }

    /// Both sides use the barrier of the system instead of a fence for each message (L-13).
    pub fn use_barrier(&mut self) {
        self.ring.use_heavy_fence(barrier::heavy_fence);
    }

    /// See [`Producer::is_drained`].
    pub fn is_drained(&self) -> bool {
        self.ring.is_drained()
    }

    /// See [`Producer::has_cell`].
    #[inline(always)]
    pub fn has_cell(&self) -> bool {
        self.ring.has_cell()
    }

    /// See [`Producer::begin_inline`].
    #[inline(always)]
    pub fn begin_inline(&self, short: &Short) {
        self.ring.begin_inline(short);
    }

    /// Appends the message of [`begin_inline`](Self::begin_inline); `true`: the peer must be woken.
    ///
    /// # Safety
    /// As [`Producer::finish_inline`].
    #[inline(always)]
    pub unsafe fn finish_inline(&mut self, len: u16, flags: u8, from: *const u8) -> bool {
        // SAFETY: the caller's promise is the same.
        unsafe { self.ring.finish_inline(len, flags, from) }
    }

    /// See [`Producer::expect_more`].
    #[inline(always)]
    pub fn expect_more(&self) {
        self.ring.expect_more();
    }

    /// See [`Producer::expect_one`].
    #[inline(always)]
    pub fn expect_one(&self) {
        self.ring.expect_one();
    }

    /// See [`Producer::has_short_room`].
    #[inline(always)]
    pub fn has_short_room(&mut self, len: u64, immediate: bool) -> bool {
        self.ring.has_short_room(len, immediate)
    }

    /// Appends a short message; `true`: the peer must be woken.
    ///
    /// # Safety
    /// As [`Producer::put_short`].
    #[inline(always)]
    pub unsafe fn put_short(&mut self, short: &Short, from: *const u8) -> bool {
        // SAFETY: the caller's promise is the same.
        unsafe { self.ring.put_short(short, from) }
    }

    /// Appends a packet.
    pub fn push(&mut self, header: &[u8], payload: &[Piece]) -> Result<(), PushError> {
        // SAFETY: the pieces of a post can be read until its completion is reported (the contract of
        // `Outgoing`).
        unsafe { self.ring.push(header, payload.iter().map(|piece| (piece.start.cast_const(), piece.len))) }
    }

    /// See [`Producer::must_ring`].
    #[inline]
    pub fn must_ring(&mut self) -> bool {
        self.ring.must_ring()
    }

    /// See [`Producer::offer`]. What is written to the memory of the list before comes behind it.
    pub fn offer(&mut self, number: u64) {
        self.ring.offer(number);
        fence(Ordering::SeqCst);
    }

    /// See [`Producer::list_windows`].
    pub fn list_windows(&mut self, list: &WindowList, puts: bool) {
        self.ring.list_windows(list, puts);
        fence(Ordering::SeqCst);
    }

    /// See [`Producer::begin_put`].
    #[inline(always)]
    pub fn begin_put(&mut self, number: u64) {
        self.ring.begin_put(number);
    }

    /// See [`Producer::end_put`].
    #[inline(always)]
    pub fn end_put(&mut self) {
        self.ring.end_put();
    }

    /// See [`Producer::push_note`].
    pub fn push_note(&mut self, note: &[u8]) -> Result<(), PushError> {
        self.ring.push_note(note)
    }

    /// See [`Producer::claims`].
    pub fn claims(&self) -> &AtomicU64 {
        self.ring.claims()
    }

    /// See [`Producer::raise`].
    pub fn raise(&mut self) {
        self.ring.raise();
    }

    /// See [`Producer::is_full`].
    pub fn is_full(&mut self) -> bool {
        self.ring.is_full()
    }

    /// See [`Producer::disarm`].
    pub fn disarm(&mut self) {
        self.ring.disarm();
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        // Memory that the peer may be reading by a mapping is about to go back (F-2).
        self.offer(0);
        self.list_windows(&WindowList::default(), false);
    }
}

#[cfg(test)]
impl Inbound {
    /// The mapping, for tests that play the dishonest peer.
    pub fn raw(&self) -> (NonNull<u8>, usize) {
        (self.segment.base, self.segment.len)
    }
}

#[cfg(test)]
impl Outbound {
    /// The mapping, for tests that play the dishonest peer.
    pub fn raw(&self) -> (NonNull<u8>, usize) {
        (self._segment.base, self._segment.len)
    }
}
