//! Payload memory and the core's state: the driver's only raw memory.
//!
//! Regions are named by number and reached through raw pointers only, because this process, devices and
//! (through the shm rail) other processes read and write them while requests are under way. This process does
//! so only while the transport is driven, which needs it borrowed mutably. Devices and other processes do so
//! at any time, but only to memory of requests that are not over: a peer gets keys and addresses with a
//! rendezvous only, F-2 ends its access before the completion, and windows are served by this process, but
//! for windows of memory that peers of the host may write (`alloc_window`, L-26). So a reference exists only
//! while the transport is borrowed, and only to bytes of no such request (a shared one: of none that writes)
//! and no such window. A peer that keeps a key or a mapping and writes later breaks the protocol; over verbs
//! and to such memory it can.
//!
//! Invariants: every range handed to a rail lies inside a region; a region is unmapped only when the core
//! names it in no request and in no window; an id of a freed region names nothing.
#![allow(unsafe_code)]

mod atomics;
mod state;

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::ops::Deref;
use std::os::fd::OwnedFd;

use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::wire::{AtomicKind, AtomicType};
use rustix::fs::{self, FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::rail::Piece;
pub(crate) use state::Core;

/// Bits of a region's id that count how often its slot has been used.
const GENERATION_BITS: u32 = 12;
/// Bits of a region's id that hold its slot.
const INDEX_BITS: u32 = 32 - GENERATION_BITS;
/// Most regions at once. The last index stays free, so that no id equals `RegionId::POOL`.
const REGIONS_MAX: usize = (1 << INDEX_BITS) - 1;

/// Why memory can't be had, named or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// No such region, or not any more.
    #[error("region {:#x} does not exist: it was never allocated here, or it has been freed", .0.0)]
    Unknown(RegionId),
    /// The range reaches beyond the region's end.
    #[error("{len} bytes at offset {offset} reach beyond the end of region {:#x}, which has {region_bytes} bytes",
                .region.0)]
    OutOfBounds {
        /// The region.
        region: RegionId,
        /// Where the range starts, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: u64,
        /// Bytes of the region.
        region_bytes: u64,
    },
    /// A request that is not over, or a window, uses memory of the region that is to be freed or lent.
    #[error("memory of region {:#x} is in use: wait for the completion of the requests that name it (to free the \
         region, deregister its windows, too), or access it by `read`, `write` or `pointer`",
                .0.0)]
    InUse(RegionId),
    /// The memory is the caller's own.
    #[error("region {:#x} was adopted: its memory is reached by the pointer that was given", .0.0)]
    Adopted(RegionId),
    /// A region of no bytes, or one that wraps around the end of the address space.
    #[error("a region can't have {bytes} bytes: give at least 1, inside the address space")]
    BadLength {
        /// The requested bytes.
        bytes: usize,
    },
    /// As many regions as can be named exist already.
    #[error("{max} regions exist already: free some first")]
    TooManyRegions {
        /// The limit.
        max: usize,
    },
    /// The system has no memory for it.
    #[error("the system gave no {bytes} bytes of memory ({errno}): allocate less, or raise the limit")]
    System {
        /// The requested bytes.
        bytes: usize,
        /// The system's reason.
        errno: Errno,
    },
}

/// A mapping of memory that this process alone can write to: page aligned, zeroed, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: mapped memory belongs to the process, not to a thread, and the mapping is its only owner.
unsafe impl Send for Mapping {}

impl Mapping {
    /// So many bytes, at least one. Pages never written take no memory.
    pub(crate) fn new(bytes: usize) -> Result<Self, MemoryError> {
        // A mapping can't be empty; an empty pool or state takes one page.
        let len = bytes.max(1);
        if isize::try_from(len).is_err() {
            return Err(MemoryError::BadLength { bytes });
        }
        // SAFETY: no address is requested, so no existing mapping is touched.
        let mapped =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let start = mapped.map_err(|errno| MemoryError::System { bytes, errno })?;
        match NonNull::new(start.cast::<u8>()) {
            Some(start) => Ok(Mapping { start, len }),
            None => Err(MemoryError::System { bytes, errno: Errno::NOMEM }),
        }
    }

    /// As [`new`](Self::new), of a file that other processes can map, for reading only unless `is_writable`.
    fn shared(bytes: usize, is_writable: bool) -> Result<(Self, OwnedFd), MemoryError> {
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(MemoryError::BadLength { bytes });
        }
        let system = |errno| MemoryError::System { bytes, errno };
        let file =
            fs::memfd_create("rerail-memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(system)?;
        fs::ftruncate(&file, bytes as u64).map_err(system)?;
        fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(system)?;
        // Later, memory that can't be had would be a signal, here and at peers.
        while let Err(errno) = fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64) {
            if errno != Errno::INTR {
                return Err(system(errno));
            }
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is requested, so no existing mapping is touched.
        let mapped = unsafe { mmap(ptr::null_mut(), bytes, rights, MapFlags::SHARED, &file, 0) }.map_err(system)?;
        let start = NonNull::new(mapped.cast::<u8>()).ok_or(system(Errno::NOMEM))?;
        let mapping = Mapping { start, len: bytes };
        // Unless writable, no other process can write to it through the file from here on.
        let write = if is_writable { SealFlags::empty() } else { SealFlags::FUTURE_WRITE };
        fs::fcntl_add_seals(&file, write | SealFlags::SEAL).map_err(system)?;
        Ok((mapping, file))
    }

    /// All of it.
    pub(crate) const fn whole(&self) -> Piece {
        Piece { start: self.start.as_ptr(), len: self.len }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this range, nothing else unmaps it, and the mapping's holder ensures
        // that no pointer into it is used any more (see the file's invariants).
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping failed: {unmapped:?}");
    }
}

/// Where a region's bytes come from.
enum Origin {
    /// Allocated here: dropped with the region.
    Owned(#[expect(dead_code, reason = "held for its Drop")] Mapping),
    /// The caller's, as `adopt` demands.
    Adopted,
}

/// The place of a region; a line of its own, as it is looked at for every message.
#[repr(align(64))]
struct Slot(Region);

impl Deref for Slot {
    type Target = Region;

    #[inline(always)]
    fn deref(&self) -> &Region {
        &self.0
    }
}

/// A region, or none.
struct Region {
    start: *mut u8,
    len: usize,
    /// Its id; the next one, with [`UNUSED`], while there is no region.
    id: u64,
    origin: Option<Origin>,
    /// Peers may map it for writing.
    is_peer_writable: bool,
}

// SAFETY: memory belongs to the process, not to a thread, and `adopt`'s contract covers adopted memory.
unsafe impl Send for Region {}

/// No id has this bit.
const UNUSED: u64 = 1 << u32::BITS;

/// All memory that the core may name: the regions and the payload pool.
// In this order: what each message reads comes first.
#[repr(C)]
pub(crate) struct Memory {
    slots: Vec<Slot>,
    free: Vec<u32>,
    pool: Region,
}

impl Memory {
    /// Bytes from its start that each message reads.
    pub(crate) const HOT_BYTES: usize = size_of::<Vec<Slot>>();

    /// No regions, and a pool of so many bytes.
    pub(crate) fn new(pool_bytes: usize) -> Result<Self, MemoryError> {
        let mapping = Mapping::new(pool_bytes)?;
        let pool = Region {
            start: mapping.start.as_ptr(),
            len: pool_bytes,
            id: UNUSED,
            origin: Some(Origin::Owned(mapping)),
            is_peer_writable: false,
        };
        Ok(Memory { slots: Vec::new(), free: Vec::new(), pool })
    }

    /// Maps a region of `bytes` zeroed bytes.
    pub(crate) fn alloc(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::BadLength { bytes });
        }
        let mapping = Mapping::new(bytes)?;
        self.insert(mapping.start.as_ptr(), bytes, Origin::Owned(mapping))
    }

    /// Maps a region of `bytes` zeroed bytes that other processes can map, by the file, for reading, and for
    /// writing if `is_writable`.
    pub(crate) fn alloc_shared(&mut self, bytes: usize, is_writable: bool) -> Result<(RegionId, OwnedFd), MemoryError> {
        let (mapping, file) = Mapping::shared(bytes, is_writable)?;
        let region = self.insert(mapping.start.as_ptr(), bytes, Origin::Owned(mapping))?;
        self.slots[(region.0 & REGIONS_MAX as u32) as usize].0.is_peer_writable = is_writable;
        Ok((region, file))
    }

    /// Whether peers may map a region for writing.
    pub(crate) fn is_peer_writable(&self, id: RegionId) -> bool {
        self.region(id).is_ok_and(|region| region.is_peer_writable)
    }

    /// Takes the caller's memory as a region.
    ///
    /// # Safety
    /// Every range of it named in a request or window must stay mapped, writable where it is written, and
    /// without other references in this process, until the request is over or the window is deregistered.
    pub(crate) unsafe fn adopt(&mut self, start: *mut u8, len: usize) -> Result<RegionId, MemoryError> {
        if len == 0 || start.addr().checked_add(len).is_none() {
            return Err(MemoryError::BadLength { bytes: len });
        }
        // What lies above has no name: that bit marks an address as one.
        let len = len.min((MemRef::BY_ADDRESS as usize).saturating_sub(start.addr()));
        if len == 0 {
            return Err(MemoryError::BadLength { bytes: len });
        }
        self.insert(start, len, Origin::Adopted)
    }

    fn insert(&mut self, start: *mut u8, len: usize, origin: Origin) -> Result<RegionId, MemoryError> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < REGIONS_MAX => {
                let index = self.slots.len() as u32;
                let id = u64::from(index) | UNUSED;
                self.slots.push(Slot(Region { start, len: 0, id, origin: None, is_peer_writable: false }));
                index
            }
            None => return Err(MemoryError::TooManyRegions { max: REGIONS_MAX }),
        };
        let Slot(slot) = &mut self.slots[index as usize];
        // Without `UNUSED`.
        let id = slot.id as u32;
        *slot = Region { start, len, id: id.into(), origin: Some(origin), is_peer_writable: false };
        Ok(RegionId(id))
    }

    /// Forgets a region; an owned one is unmapped. The caller has made sure that the core names it nowhere.
    pub(crate) fn remove(&mut self, id: RegionId) -> Result<(), MemoryError> {
        self.region(id)?;
        let index = id.0 & REGIONS_MAX as u32;
        let Slot(slot) = &mut self.slots[index as usize];
        (slot.len, slot.origin) = (0, None);
        // The same index, one generation on, which wraps.
        slot.id = u64::from(id.0.wrapping_add(1 << INDEX_BITS)) | UNUSED;
        self.free.push(index);
        Ok(())
    }

    #[inline]
    fn region(&self, id: RegionId) -> Result<&Region, MemoryError> {
        if id == RegionId::POOL {
            return Ok(&self.pool);
        }
        let slot = self.slots.get((id.0 & REGIONS_MAX as u32) as usize);
        slot.map(Deref::deref).filter(|slot| slot.id == id.0.into()).ok_or(MemoryError::Unknown(id))
    }

    /// Whether a region is the caller's own memory.
    pub(crate) fn is_adopted(&self, id: RegionId) -> bool {
        self.region(id).is_ok_and(|region| matches!(region.origin, Some(Origin::Adopted)))
    }

    /// All of a region.
    pub(crate) fn whole(&self, id: RegionId) -> Result<Piece, MemoryError> {
        let region = self.region(id)?;
        Ok(Piece { start: region.start, len: region.len })
    }

    /// Whether a caller may name this piece: it lies in a region that is not the pool.
    pub(crate) fn check(&self, seg: &Seg) -> Result<(), MemoryError> {
        let Seg { at: MemRef { region, offset }, len } = *seg;
        if region == RegionId::POOL {
            return Err(MemoryError::Unknown(region));
        }
        if offset & MemRef::BY_ADDRESS != 0 {
            // Only the driver itself sets this bit.
            let region_bytes = self.region(region)?.len as u64;
            return Err(MemoryError::OutOfBounds { region, offset, len, region_bytes });
        }
        self.resolve(seg).map(drop)
    }

    /// Where a piece starts that a caller names. `None`: it lies in no region of the caller's.
    #[inline(always)]
    pub(crate) fn start_of(&self, seg: &Seg) -> Option<*mut u8> {
        let RegionId(id) = seg.at.region;
        let region = self.slots.get((id & REGIONS_MAX as u32) as usize)?;
        let end = seg.at.offset.checked_add(seg.len)?;
        if region.id != id.into() || end > region.len as u64 {
            return None;
        }
        Some(region.start.wrapping_add(seg.at.offset as usize))
    }

    /// Another name for what `start`, which [`start_of`](Self::start_of) has found, is the first byte of: by
    /// it [`start_of_named`](Self::start_of_named) finds that in no table.
    #[inline(always)]
    pub(crate) fn by_address(region: RegionId, start: *mut u8) -> MemRef {
        MemRef::by_address(region, start.expose_provenance() as u64)
    }

    /// As [`start_of`](Self::start_of), of a piece that the core names in a posted receive: it was checked
    /// when that was posted, and [`remove`](Self::remove) is not called for a region that is named. `None`:
    /// it lies in the pool.
    #[inline(always)]
    pub(crate) fn start_of_named(&self, seg: &Seg) -> Option<*mut u8> {
        debug_assert!(self.resolve(seg).is_ok(), "the core named memory that does not exist: {seg:?}");
        if let Some(address) = seg.at.address() {
            return Some(at_address(address));
        }
        let region = self.slots.get((seg.at.region.0 & REGIONS_MAX as u32) as usize)?;
        Some(region.start.wrapping_add(seg.at.offset as usize))
    }

    /// Where a piece of the pool starts.
    #[inline(always)]
    pub(crate) fn start_in_pool(&self, seg: &Seg) -> Option<*mut u8> {
        debug_assert_eq!(seg.at.region, RegionId::POOL);
        let end = seg.at.offset.checked_add(seg.len)?;
        if end > self.pool.len as u64 { None } else { Some(self.pool.start.wrapping_add(seg.at.offset as usize)) }
    }

    /// The address range of a piece.
    #[inline]
    pub(crate) fn resolve(&self, seg: &Seg) -> Result<Piece, MemoryError> {
        let region = self.region(seg.at.region)?;
        let mut offset = seg.at.offset;
        if let Some(address) = seg.at.address() {
            // Below its start is far beyond its end.
            offset = address.wrapping_sub(region.start.addr() as u64);
        }
        let end = offset.checked_add(seg.len);
        if end.is_none_or(|end| end > region.len as u64) {
            return Err(MemoryError::OutOfBounds {
                region: seg.at.region,
                offset,
                len: seg.len,
                region_bytes: region.len as u64,
            });
        }
        // In bounds, so both fit a usize. Wrapping: an adopted region need not be one allocation.
        Ok(Piece { start: region.start.wrapping_add(offset as usize), len: seg.len as usize })
    }

    /// Appends the address range of a piece that the core names. `false`: it lies in no region. Requests and
    /// windows are checked when they come in, so that this would be an error of the core.
    #[inline]
    pub(crate) fn resolve_into(&self, seg: &Seg, pieces: &mut Vec<Piece>) -> bool {
        match self.resolve(seg) {
            Ok(piece) => pieces.push(piece),
            Err(error) => {
                debug_assert!(false, "the core named memory that does not exist: {error}");
                return false;
            }
        }
        true
    }

    /// Bytes of an owned region.
    ///
    /// # Safety
    /// While they are borrowed, nothing writes to them.
    pub(crate) unsafe fn bytes(&self, part: &Seg) -> Result<&[u8], MemoryError> {
        let Piece { start, len } = self.owned(part)?;
        // SAFETY: mapped and initialised (zeroed), and so they stay while `self` is borrowed; nothing writes
        // to them, as the caller promises.
        Ok(unsafe { core::slice::from_raw_parts(start, len) })
    }

    /// As [`bytes`](Self::bytes), for writing.
    ///
    /// # Safety
    /// While they are borrowed, nothing else reads them or writes to them.
    pub(crate) unsafe fn bytes_mut(&mut self, part: &Seg) -> Result<&mut [u8], MemoryError> {
        let Piece { start, len } = self.owned(part)?;
        // SAFETY: as in `bytes`; `self` is borrowed mutably, and regions don't overlap, being mappings.
        Ok(unsafe { core::slice::from_raw_parts_mut(start, len) })
    }

    /// All of a region, as a part of it.
    pub(crate) fn all_of(&self, id: RegionId) -> Result<Seg, MemoryError> {
        Ok(Seg::new(id, 0, self.region(id)?.len as u64))
    }

    /// Where a part of an owned region lies.
    pub(crate) fn owned(&self, part: &Seg) -> Result<Piece, MemoryError> {
        self.check(part)?;
        let id = part.at.region;
        match self.region(id)?.origin {
            Some(Origin::Owned(_)) => self.resolve(part),
            _ => Err(MemoryError::Adopted(id)),
        }
    }

    /// Whether two pieces that lie in regions have a byte in common.
    pub(crate) fn overlap(&self, one: &Piece, other: &Seg) -> bool {
        let Ok(other) = self.resolve(other) else { return false };
        let (one_at, other_at) = (one.start.addr(), other.start.addr());
        one_at < other_at + other.len && other_at < one_at + one.len
    }

    /// Copies bytes of an owned region out; others may write to them meanwhile.
    pub(crate) fn read(&self, at: MemRef, into: &mut [u8]) -> Result<(), MemoryError> {
        let Piece { start, .. } = self.owned(&Seg { at, len: into.len() as u64 })?;
        for (index, byte) in into.iter_mut().enumerate() {
            // SAFETY: inside the region, which stays mapped while `self` is borrowed; an atomic access is no
            // data race with those of devices and other processes, and no reference to bytes in use exists.
            *byte = unsafe { AtomicU8::from_ptr(start.add(index)) }.load(Relaxed);
        }
        Ok(())
    }

    /// Copies bytes into an owned region; others may read or write there meanwhile.
    pub(crate) fn write(&mut self, at: MemRef, from: &[u8]) -> Result<(), MemoryError> {
        let Piece { start, .. } = self.owned(&Seg { at, len: from.len() as u64 })?;
        for (index, byte) in from.iter().enumerate() {
            // SAFETY: as in `read`; `self` is borrowed mutably, so no reference to the region exists at all.
            unsafe { AtomicU8::from_ptr(start.add(index)) }.store(*byte, Relaxed);
        }
        Ok(())
    }

    /// Copies between two lists of pieces of this memory, as many bytes as both have. Returns how many.
    pub(crate) fn copy(&self, from: &[Piece], to: &[Piece]) -> usize {
        // SAFETY: the driver passes pieces that `resolve` has made, so they lie in mapped regions; no
        // references to their bytes exist, because the driver runs with the transport borrowed mutably.
        unsafe { copy_pieces(from, to) }
    }

    /// Copies a caller's bytes into pieces of this memory. Returns how many fitted.
    pub(crate) fn fill(&self, from: &[u8], to: &[Piece]) -> usize {
        let from = Piece { start: from.as_ptr().cast_mut(), len: from.len() };
        // SAFETY: as in `copy`; the source is only read and is borrowed by the caller for the call.
        unsafe { copy_pieces(&[from], to) }
    }

    /// Copies bytes of this memory out; `false` where they lie in no region.
    pub(crate) fn peek(&self, at: MemRef, into: &mut [u8]) -> bool {
        let Ok(from) = self.resolve(&Seg { at, len: into.len() as u64 }) else { return false };
        let to = Piece { start: into.as_mut_ptr(), len: into.len() };
        // SAFETY: as in `copy`; the destination is borrowed by the caller for the call.
        unsafe { copy_pieces(&[from], &[to]) == into.len() }
    }

    /// Performs an atomic on a value of this memory and returns the value before; `None` where the place is
    /// outside its region or misaligned, or where kind and type don't go together.
    pub(crate) fn atomic(
        &self,
        at: MemRef,
        kind: AtomicKind,
        data_type: AtomicType,
        operand: u64,
        compare: u64,
    ) -> Option<u64> {
        let len = atomics::bytes_of(data_type);
        let piece = self.resolve(&Seg { at, len: len as u64 }).ok()?;
        if piece.start.addr() % len != 0 {
            return None;
        }
        // SAFETY: `piece` lies in a mapped region for `len` bytes and is aligned for the type. Other accesses
        // in this process at the same time are none, or atomic (other transports that have adopted the same
        // memory).
        unsafe { atomics::perform(piece.start, kind, data_type, operand, compare) }
    }
}

/// Copies from the pieces of one list to those of the other, in order, as many bytes as both have. Returns
/// how many.
///
/// # Safety
/// Every piece must be valid for reads (`from`) or writes (`to`) of its length, and no reference to those
/// bytes may be in use. The lists may overlap piece by piece.
#[inline]
pub(crate) unsafe fn copy_pieces(from: &[Piece], to: &[Piece]) -> usize {
    if let ([source], [target]) = (from, to) {
        // The usual case.
        let len = source.len.min(target.len);
        // SAFETY: both pieces are valid for at least `len` bytes by this function's contract; `copy` allows
        // overlap.
        unsafe { ptr::copy(source.start, target.start, len) };
        return len;
    }
    // SAFETY: the caller's promise.
    unsafe { copy_lists(from, to) }
}

/// [`copy_pieces`] for any lists.
///
/// # Safety
/// As there.
unsafe fn copy_lists(from: &[Piece], to: &[Piece]) -> usize {
    let (mut from, mut to) = (from.iter().copied(), to.iter().copied());
    let empty = Piece { start: ptr::null_mut(), len: 0 };
    let (mut source, mut target) = (empty, empty);
    let mut copied = 0;
    loop {
        while source.len == 0 {
            match from.next() {
                Some(piece) => source = piece,
                None => return copied,
            }
        }
        while target.len == 0 {
            match to.next() {
                Some(piece) => target = piece,
                None => return copied,
            }
        }
        let len = source.len.min(target.len);
        // SAFETY: both pieces are valid for at least `len` bytes by this function's contract; `copy` allows
        // overlap.
        unsafe { ptr::copy(source.start, target.start, len) };
        source = Piece { start: source.start.wrapping_add(len), len: source.len - len };
        target = Piece { start: target.start.wrapping_add(len), len: target.len - len };
        copied += len;
    }
}

/// The address named by [`Memory::by_address`].
#[inline(always)]
pub(crate) fn at_address(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// A mapping in the core's form of its region.
fn region_of(mapping: &Mapping) -> *mut [MaybeUninit<u8>] {
    ptr::slice_from_raw_parts_mut(mapping.start.as_ptr().cast(), mapping.len)
}

#[cfg(test)]
mod tests;
