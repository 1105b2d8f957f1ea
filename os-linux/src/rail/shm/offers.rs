//! Memory that a process offers its peers to map, and what a peer has mapped of it (L-18 to L-20): a large
//! message out of such memory is then one copy by the receiver's processor, without a system call.
//!
//! The owner keeps a numbered list of its offers and writes the number into every ring that it sends into.
//! The first read of a peer that finds a new number requests the list, piece by piece, by
//! datagrams on the connection's socket; each answer brings a descriptor. Until all are here, and whenever a
//! mapping does not hold what is to be read, reads are made as from any other memory.
//!
//! Invariants: an owner writes another number, or 0, before it gives offered memory back and before an end
//! of a subchannel lets its users have it again (F-2); a copy out of a mapping counts only if the number,
//! read after it, is still the list's. Memory is mapped for reading only, and only if the kernel guarantees
//! that all of it is there and stays; its bytes go to payload and nowhere else. Of a peer there are no more
//! than [`OFFERS_MAX`] mappings and the bytes that the options allow, and one descriptor on its way.
//! Mappings of an old list are given up at the next look at the sockets.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use rerail_core::endpoint::RailFault;
use rustix::fs::{self, SealFlags};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::segment::is_ordinary_memory;
use super::socket;
use crate::rail::Piece;

/// The most pieces of memory in a list. More are not offered.
pub const OFFERS_MAX: usize = 64;

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
}

/// The offers of a process.
#[derive(Debug, Default)]
pub struct Offers {
    list: Vec<Offer>,
    /// Counts the changes of the list.
    changes: u64,
}

impl Offers {
    /// What is written to rings: another number for each list, 0 for an empty one.
    pub fn number(&self) -> u64 {
        if self.list.is_empty() { 0 } else { self.changes }
    }

    /// One more; `false`: there are too many.
    pub fn add(&mut self, memory: Piece, file: OwnedFd) -> bool {
        if self.list.len() >= OFFERS_MAX {
            return false;
        }
        self.list.push(Offer { memory, file });
        self.changes += 1;
        true
    }

    /// Withdraws a piece; whether it was offered. Rings are to get the new number.
    pub fn withdraw(&mut self, memory: Piece) -> bool {
        let before = self.list.len();
        self.list.retain(|offer| (offer.memory.start, offer.memory.len) != (memory.start, memory.len));
        let is_changed = self.list.len() != before;
        self.changes += u64::from(is_changed);
        is_changed
    }

    /// Sends a piece of the list; `false`: not now.
    pub fn answer(&self, socket: &OwnedFd, piece: u32) -> bool {
        let mut answer = Answer { number: self.changes.into(), ..Answer::new_zeroed() };
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
    /// The owner's address.
    start: u64,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: memory of the process; any thread may read or unmap it.
unsafe impl Send for Map {}

impl Map {
    /// Maps memory of `bytes` bytes; `None`: it is not what may be mapped (L-20), or the system can't.
    fn new(start: u64, bytes: u64, file: &OwnedFd) -> Option<Self> {
        let len = usize::try_from(bytes).ok().filter(|len| (1..=isize::MAX as usize).contains(len))?;
        // Else a peer could end this process by a signal: memory that is cut, or that can't be had when it is
        // read first.
        let seals = SealFlags::SHRINK | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        let is_all_there = |stat: fs::Stat| stat.st_size as u64 >= bytes && stat.st_blocks as u64 * 512 >= bytes;
        let is_safe = is_ordinary_memory(file).is_ok()
            && fs::fcntl_get_seals(file).is_ok_and(|found| found.contains(seals))
            && fs::fstat(file).is_ok_and(is_all_there);
        if !is_safe {
            return None;
        }
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use by Rust.
        let base = unsafe { mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }.ok()?;
        Some(Map { start, base: NonNull::new(base.cast())?, len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and pointers into it are used only while it is borrowed. It can't fail
        // for a range that `mmap` gave.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// Where a reader is in a peer's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListState {
    /// Not in it.
    No,
    /// This piece is to be requested.
    RequestDue(u32),
    /// It was requested.
    Requested(u32),
}

/// What is mapped of one peer's memory.
#[derive(Debug)]
pub struct Maps {
    /// The number of the list that `maps` are of.
    number: u64,
    maps: Vec<Map>,
    /// The list that is coming: its number, its pieces so far, and how many are to come.
    coming_number: u64,
    coming: Vec<Map>,
    left: u32,
    list_state: ListState,
    /// The number of the list that was requested last.
    list_requested: u64,
    /// Bytes that may be mapped.
    bytes_max: u64,
}

impl Maps {
    /// None yet, and never more than so many bytes.
    pub const fn new(bytes_max: u64) -> Self {
        Maps {
            number: 0,
            maps: Vec::new(),
            coming_number: 0,
            coming: Vec::new(),
            left: 0,
            list_state: ListState::No,
            list_requested: 0,
            bytes_max,
        }
    }

    /// Pieces that are mapped.
    #[cfg(test)]
    pub const fn len(&self) -> usize {
        self.maps.len()
    }

    /// Whether an answer, with a descriptor, is due.
    pub const fn is_due(&self) -> bool {
        matches!(self.list_state, ListState::Requested(_))
    }

    /// Something is to be read, and the ring has this number: the list is requested where it is a new one.
    pub fn request_list(&mut self, number: u64) {
        if number != 0 && number != self.list_requested && self.list_state == ListState::No && self.bytes_max > 0 {
            (self.list_requested, self.list_state) = (number, ListState::RequestDue(0));
        }
    }

    /// The ring has this number: mappings of another list are given up.
    pub fn follow(&mut self, number: u64) {
        if number != self.number {
            self.maps.clear();
        }
    }

    /// Sends a question that is due; whether it was sent.
    pub fn request(&mut self, socket: &OwnedFd) -> bool {
        let ListState::RequestDue(piece) = self.list_state else { return false };
        let list_request = ListRequest { kind: LIST_REQUEST, piece: piece.into() };
        let is_sent = socket::send(socket, list_request.as_bytes(), None).is_ok();
        if is_sent {
            self.list_state = ListState::Requested(piece);
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
        let ListState::Requested(piece) = self.list_state else { return false };
        let (number, bytes, left) = (answer.number.get(), answer.bytes.get(), answer.left.get());
        let has_file = file.is_some() || is_lost;
        if answer.zero.get() != 0 || (bytes != 0) != has_file || (bytes == 0 && left != 0) {
            return false;
        }
        if piece == 0 {
            self.coming.clear();
            (self.coming_number, self.left) = (number, left);
        } else if number != self.coming_number {
            // It has changed meanwhile.
            self.list_state = ListState::RequestDue(0);
            return true;
        } else if self.left.checked_sub(1) != Some(left) {
            return false;
        }
        if left as usize >= OFFERS_MAX {
            return false;
        }
        self.left = left;
        let mapped: u64 = self.coming.iter().map(|map| map.len as u64).sum();
        if let Some(file) = file
            && mapped.saturating_add(bytes) <= self.bytes_max
        {
            self.coming.extend(Map::new(answer.start.get(), bytes, &file));
        }
        self.list_state = ListState::RequestDue(piece + 1);
        if left == 0 {
            self.maps = std::mem::take(&mut self.coming);
            (self.number, self.list_requested, self.list_state) = (number, number, ListState::No);
        }
        true
    }

    /// Whether so many bytes at `from` are mapped.
    pub fn has(&self, from: u64, bytes: usize) -> bool {
        self.maps.iter().any(|map| {
            let before = from.checked_sub(map.start).and_then(|before| usize::try_from(before).ok());
            before.is_some_and(|before| before <= map.len && bytes <= map.len - before)
        })
    }

    /// L-20. Fills the pieces with the bytes at `from` of the owner's memory; `false`: they are not mapped,
    /// or `number`, which reads the ring, returns another list's number, after which they must not be read.
    /// The pieces have any bytes then.
    ///
    /// # Safety
    /// The pieces can be written.
    pub unsafe fn read(&self, number: impl Fn() -> u64, from: u64, pieces: &[Piece]) -> bool {
        if self.maps.is_empty() || number() != self.number {
            return false;
        }
        let wanted: usize = pieces.iter().map(|piece| piece.len).sum();
        let at = self.maps.iter().find_map(|map| {
            let before = usize::try_from(from.checked_sub(map.start)?).ok()?;
            (before <= map.len && wanted <= map.len - before).then(|| map.base.as_ptr().wrapping_add(before))
        });
        let Some(mut at) = at else { return false };
        for piece in pieces {
            // SAFETY: `wanted` bytes are mapped from the first `at` on, which is the sum of the lengths; the
            // piece can be written for its length (the caller's promise), and a mapping of a peer's memory
            // that no other code here uses does not overlap with it. Its bytes may change meanwhile, by
            // another process; the copy then yields other bytes of payload, and no more.
            unsafe { std::ptr::copy_nonoverlapping(at, piece.start, piece.len) };
            at = at.wrapping_add(piece.len);
        }
        // What was copied was there before the number is read.
        fence(Ordering::Acquire);
        number() == self.number
    }
}
