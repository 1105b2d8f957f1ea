//! Memory that a process offers its peers to map, and what a peer has mapped of it (L-18 to L-20): a large
//! message out of such memory is then one copy by the receiver's processor, without a system call.
//!
//! The owner keeps a numbered list of its offers and writes the number into every ring that it sends into.
//! The first read of a peer that finds a new number requests the list, piece by piece, by
//! datagrams on the connection's socket; each answer brings a descriptor. Until all are here, and whenever a
//! mapping does not hold what is to be read, reads are made as from any other memory.
//!
//! Numbers, the order of a list, and what may be mapped are in `rerail_core::shm`; here are descriptors and
//! mappings.
//!
//! Invariants: an owner writes another number, or 0, before it gives offered memory back and before an end of
//! a subchannel lets its users have it again (F-2). Memory is mapped only if the kernel guarantees that its
//! file keeps its length (pages of a file that is not sealed against writing may be taken away, and count
//! anew for who touches them); its bytes go to payload and nowhere else. Of a peer there are no more than
//! [`OFFERS_MAX`] mappings and the bytes that the options allow, and one descriptor on its way. Mappings of
//! an old list are given up at the next look at the sockets. A file that is not sealed against it is mapped
//! for writing, and written by direct puts alone (`access`).
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rerail_core::endpoint::RailFault;
use rerail_core::shm::{FileFacts, ListAnswer, ListNumber, ListReader, OFFERS_MAX, OfferedRange};
use rustix::fs::{self, SealFlags};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::segment::{Inbound, is_ordinary_memory};
use super::socket;
use crate::rail::Piece;

/// The first byte of a question (L-19).
pub const LIST_REQUEST: u8 = b'?';

/// Requests one piece of the list (L-19).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct ListRequest {
    /// [`LIST_REQUEST`].
    pub kind: u8,
    /// Which piece, from 0 on.
    pub piece: U32,
}

impl ListRequest {
    /// Which piece a datagram requests; `None`: it is no question.
    pub fn piece_of(bytes: &[u8]) -> Option<u32> {
        let list_request = Self::read_from_bytes(bytes).ok()?;
        (list_request.kind == LIST_REQUEST).then_some(list_request.piece.get())
    }
}

/// The answer (L-19): a piece of memory, whose descriptor comes along; or, with a length of 0 and without
/// one, that there is none of that number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Answer {
    /// Of the list as it is now.
    pub number: U64,
    /// Where it starts in its owner's memory.
    pub start: U64,
    pub bytes: U64,
    /// Pieces of the list after this one.
    pub left: U32,
    pub zero: U32,
}

/// A piece of memory that is offered.
#[derive(Debug)]
struct Offer {
    memory: Piece,
    file: OwnedFd,
    /// Peers may map it for writing.
    is_writable: bool,
}

/// Whether a file with these seals may be mapped for writing.
fn is_writable(seals: SealFlags) -> bool {
    !seals.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE)
}

/// The offers of a process.
#[derive(Debug, Default)]
pub struct Offers {
    list: Vec<Offer>,
    number: ListNumber,
}

impl Offers {
    /// What is written to rings: another number for each list, 0 for an empty one.
    pub fn number(&self) -> u64 {
        self.number.of_ring(self.list.len())
    }

    /// One more; `false`: there are too many.
    pub fn add(&mut self, memory: Piece, file: OwnedFd, is_writable: bool) -> bool {
        if self.list.len() >= OFFERS_MAX {
            return false;
        }
        self.list.push(Offer { memory, file, is_writable });
        self.number.change();
        true
    }

    /// Withdraws a piece; whether it was offered. Rings are to get the new number.
    pub fn withdraw(&mut self, memory: Piece) -> bool {
        let before = self.list.len();
        self.list.retain(|offer| (offer.memory.start, offer.memory.len) != (memory.start, memory.len));
        let is_changed = self.list.len() != before;
        if is_changed {
            self.number.change();
        }
        is_changed
    }

    /// Whether a piece lies in one that is offered, and, if so, whether peers may map that for writing.
    pub fn find(&self, memory: Piece) -> Option<bool> {
        let holds = |offer: &&Offer| {
            let (start, len) = (offer.memory.start.addr() as u64, offer.memory.len as u64);
            OfferedRange { start, bytes: len }.offset_of(memory.start.addr() as u64, memory.len).is_some()
        };
        self.list.iter().find(holds).map(|offer| offer.is_writable)
    }

    /// Sends a piece of the list; `false`: not now.
    pub fn answer(&self, socket: &OwnedFd, piece: u32) -> bool {
        let mut answer = Answer { number: self.number.of_answer().into(), ..Answer::new_zeroed() };
        let offer = self.list.get(piece as usize);
        if let Some(offer) = offer {
            answer.start = (offer.memory.start.addr() as u64).into();
            answer.bytes = (offer.memory.len as u64).into();
            answer.left = (self.list.len() as u32 - 1 - piece).into();
        }
        let sent = socket::send(socket, answer.as_bytes(), offer.map(|offer| offer.file.as_fd()));
        // Else the connection is at its end, which is found by reading.
        !sent.is_err_and(|errno| !matches!(errno, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN))
    }
}

/// A peer's memory, mapped here.
#[derive(Debug)]
struct Map {
    /// By the owner's addresses.
    range: OfferedRange,
    base: NonNull<u8>,
    len: usize,
    is_writable: bool,
}

// SAFETY: memory of the process; any thread may read or unmap it.
unsafe impl Send for Map {}

impl Map {
    /// Maps a range; `None`: its file is not what may be mapped (L-20), or the system can't.
    fn new(range: OfferedRange, file: &OwnedFd) -> Option<Self> {
        let len = usize::try_from(range.bytes).ok().filter(|len| (1..=isize::MAX as usize).contains(len))?;
        let (facts, is_writable) = facts_of(file).ok()?;
        if !facts.may_be_mapped(range.bytes) {
            return None;
        }
        let rights = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use by Rust.
        let base = unsafe { mm::mmap(std::ptr::null_mut(), len, rights, MapFlags::SHARED, file, 0) }.ok()?;
        Some(Map { range, base: NonNull::new(base.cast())?, len, is_writable })
    }

    /// Where so many bytes at `from` are.
    fn place(&self, from: u64, bytes: usize) -> Option<*const u8> {
        let offset = self.range.offset_of(from, bytes)?;
        Some(self.base.as_ptr().wrapping_add(offset).cast_const())
    }
}

/// What the system guarantees of a file, and whether peers may map it for writing.
fn facts_of(file: &OwnedFd) -> Result<(FileFacts, bool), Errno> {
    let (seals, stat) = (fs::fcntl_get_seals(file)?, fs::fstat(file)?);
    let facts = FileFacts {
        is_memory: is_ordinary_memory(file).is_ok(),
        keeps_its_bytes: seals.contains(SealFlags::SHRINK),
        is_sealed: seals.contains(SealFlags::SEAL),
        bytes: stat.st_size as u64,
        allocated: (stat.st_blocks as u64).saturating_mul(512),
    };
    Ok((facts, is_writable(seals)))
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and pointers into it are used only while it is borrowed. It can't fail
        // for a range that `mmap` gave.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// A window of the peer's, as this side can reach it.
#[derive(Clone, Copy, Debug)]
pub struct MappedWindow {
    /// The peer's list of windows that holds it.
    pub number: u64,
    key: u64,
    base: NonNull<u8>,
    bytes: u64,
    /// All of it is mapped here, and may be copied out of,
    pub gets: bool,
    /// or into.
    pub puts: bool,
    /// It is not mapped; where it lies in the peer's memory, if it may be read there.
    pub reads_at: Option<u64>,
}

// SAFETY: memory of the process; any thread may access it.
unsafe impl Send for MappedWindow {}

impl MappedWindow {
    /// Where its byte `offset` is, if it is mapped; `None`: so many bytes from there on are not in it.
    #[inline(always)]
    pub fn place(&self, offset: u64, bytes: usize) -> Option<*mut u8> {
        let is_inside = offset <= self.bytes && bytes as u64 <= self.bytes - offset;
        is_inside.then(|| self.base.as_ptr().wrapping_add(offset as usize))
    }
}

/// What is mapped of one peer's memory.
#[derive(Debug)]
pub struct Maps {
    /// The window that was accessed last; of no other maps than `maps`.
    window: Option<Box<MappedWindow>>,
    /// The place of a window that is none of these maps any more: a running transport allocates nothing.
    spare: Option<Box<MappedWindow>>,
    reader: ListReader,
    maps: Vec<Map>,
    /// Of the list that is coming.
    coming: Vec<Map>,
    /// Bytes that may be mapped.
    bytes_max: u64,
}

impl Maps {
    /// None yet, and never more than so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        let (maps, coming, reader) = (Vec::new(), Vec::new(), ListReader::default());
        Maps { window: None, spare: None, reader, maps, coming, bytes_max }
    }

    /// Pieces that are mapped.
    #[cfg(test)]
    pub const fn len(&self) -> usize {
        self.maps.len()
    }

    /// Whether an answer, with a descriptor, is due.
    pub const fn is_due(&self) -> bool {
        self.reader.is_due()
    }

    /// Something is to be read, and the ring has this number: the list is requested where it is a new one.
    pub fn request_list(&mut self, number: u64) {
        if self.bytes_max > 0 {
            self.reader.meet(number);
        }
    }

    /// The ring has this number: mappings of another list are given up.
    pub fn follow(&mut self, number: u64) {
        if !self.reader.is_of(number) {
            self.forget_window();
            self.maps.clear();
        }
    }

    /// Sends a question that is due; whether it was sent.
    pub fn request(&mut self, socket: &OwnedFd) -> bool {
        let Some(piece) = self.reader.due() else { return false };
        let list_request = ListRequest { kind: LIST_REQUEST, piece: piece.into() };
        let is_sent = socket::send(socket, list_request.as_bytes(), None).is_ok();
        if is_sent {
            self.reader.request();
        }
        is_sent
    }

    /// As [`take`](Self::take), of a datagram.
    pub fn take_bytes(&mut self, bytes: &[u8], file: Option<OwnedFd>, is_lost: bool) -> Result<(), RailFault> {
        match Answer::read_from_bytes(bytes) {
            Ok(answer) if self.take(&answer, file, is_lost) => Ok(()),
            _ => Err(RailFault::Corrupt),
        }
    }

    /// Takes an answer; `false`: it is none that an honest peer sends. Its descriptor may have been lost, for
    /// lack of room in this process.
    pub fn take(&mut self, answer: &Answer, file: Option<OwnedFd>, is_lost: bool) -> bool {
        let range = OfferedRange { start: answer.start.get(), bytes: answer.bytes.get() };
        let listed =
            ListAnswer { number: answer.number.get(), range, left: answer.left.get(), has_file: file.is_some() };
        let Some(taken) = self.reader.take(&listed, is_lost).filter(|_| answer.zero.get() == 0) else { return false };
        if taken.is_first {
            self.coming.clear();
        }
        let mapped: u64 = self.coming.iter().map(|map| map.len as u64).sum();
        if let Some(file) = file.filter(|_| taken.is_wanted)
            && mapped.saturating_add(range.bytes) <= self.bytes_max
        {
            self.coming.extend(Map::new(range, &file));
        }
        if taken.is_last {
            self.forget_window();
            self.maps = std::mem::take(&mut self.coming);
        }
        true
    }

    /// The peer's window of this key, if it is listed (L-25), and known whether it is mapped. Both numbers
    /// are read in the ring.
    #[inline(always)]
    pub fn window(&mut self, inbound: &Inbound, key: u64) -> Option<&MappedWindow> {
        let number = inbound.windows();
        if self.window.as_ref().is_none_or(|window| window.key != key || window.number != number) {
            self.find_window(inbound, key)?;
        }
        self.window.as_deref()
    }

    #[cold]
    #[inline(never)]
    fn find_window(&mut self, inbound: &Inbound, key: u64) -> Option<()> {
        let (number, listed) = inbound.window(key)?;
        // Read behind the number of the windows: memory of theirs was offered before.
        let offer = inbound.offer();
        self.request_list(offer);
        let is_listed = self.reader.is_of(offer);
        if offer != 0 && self.bytes_max > 0 && !is_listed {
            return None;
        }
        let bytes = usize::try_from(listed.range.bytes).ok()?;
        let mut maps = self.maps.iter().filter(|_| is_listed);
        let found = maps.find_map(|map| Some((map.place(listed.range.start, bytes)?, map.is_writable)));
        let mut window = MappedWindow {
            number,
            key,
            base: NonNull::dangling(),
            bytes: listed.range.bytes,
            gets: false,
            puts: false,
            reads_at: None,
        };
        match found {
            Some((base, is_writable)) => {
                window.base = NonNull::new(base.cast_mut())?;
                (window.gets, window.puts) = (listed.gets, listed.puts && is_writable);
            }
            None => window.reads_at = listed.gets.then_some(listed.range.start),
        }
        self.forget_window();
        self.window = match self.spare.take() {
            Some(mut place) => {
                *place = window;
                Some(place)
            }
            None => Some(Box::new(window)),
        };
        Some(())
    }

    fn forget_window(&mut self) {
        if let Some(window) = self.window.take() {
            self.spare = Some(window);
        }
    }

    /// Whether there is a question to send.
    pub const fn must_ask(&self) -> bool {
        self.reader.due().is_some()
    }

    /// Where so many bytes at `from` are mapped.
    fn place(&self, from: u64, bytes: usize) -> Option<*const u8> {
        self.maps.iter().find_map(|map| map.place(from, bytes))
    }

    /// Whether so many bytes at `from` are mapped.
    pub fn has(&self, from: u64, bytes: usize) -> bool {
        self.place(from, bytes).is_some()
    }

    /// L-20. Fills the pieces with the bytes at `from` of the owner's memory; `false`: they are not mapped,
    /// or `number`, which reads the ring, returns another list's number, after which they must not be read.
    /// The pieces have any bytes then.
    ///
    /// # Safety
    /// The pieces can be written.
    pub unsafe fn read(&self, number: impl Fn() -> u64, from: u64, pieces: &[Piece]) -> bool {
        if self.maps.is_empty() || !self.reader.is_of(number()) {
            return false;
        }
        let wanted: usize = pieces.iter().map(|piece| piece.len).sum();
        let Some(mut at) = self.place(from, wanted) else { return false };
        for piece in pieces {
            // SAFETY: `wanted` bytes are mapped from the first `at` on, which is the sum of the lengths; the
            // piece can be written for its length (the caller's promise), and a mapping of a peer's memory
            // that no other code here uses does not overlap with it. Its bytes may change meanwhile, by
            // another process; the copy then yields other bytes of payload, and no more.
            unsafe { std::ptr::copy_nonoverlapping(at, piece.start, piece.len) };
            at = at.wrapping_add(piece.len);
        }
        self.reader.counts(number)
    }
}
