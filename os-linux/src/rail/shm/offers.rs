//! Memory that a process offers its peers to map, and what a peer has mapped of it (L-18 to L-20): a large
//! message out of such memory is then one copy by the receiver's processor, without a system call.
//!
//! The owner keeps a numbered list of its offers and writes the number into every ring that it sends into.
//! The first read of a peer that finds a number it does not know asks for the list, by a datagram on the
//! connection's socket; the answer is one datagram for each piece of memory, with its descriptor. Until then,
//! and whenever a mapping does not hold what is to be read, reads are made as from any other memory.
//!
//! Invariants: an owner writes another number, or 0, before it gives offered memory back and before an end of
//! a subchannel lets its users have it again (F-2); a copy out of a mapping counts only if the number, read
//! behind it, is still the list's. Memory is mapped only for reading, and only if the kernel guarantees that
//! it can't shrink; its bytes go to payload and nowhere else. A peer gets no more than [`OFFERS_MAX`]
//! mappings and the bytes that the options allow.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

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

/// The byte that asks for the list (L-19).
pub const ASK: u8 = b'?';

/// The answer (L-19): one piece of memory, whose descriptor comes along; or, with a length of 0 and without
/// one, that there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Answer {
    /// Of the list.
    pub number: U64,
    /// Where it starts in its owner's memory.
    pub start: U64,
    pub bytes: U64,
    /// Pieces of the list still to come.
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
    /// What rings say of it: another number for each list, 0 for an empty one.
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

    /// Withdraws what overlaps with `memory`; whether there was any. Rings are to get the new number.
    pub fn withdraw(&mut self, memory: Piece) -> bool {
        let before = self.list.len();
        let end = |piece: Piece| piece.start.addr().saturating_add(piece.len);
        self.list.retain(|offer| end(offer.memory) <= memory.start.addr() || end(memory) <= offer.memory.start.addr());
        let is_changed = self.list.len() != before;
        self.changes += u64::from(is_changed);
        is_changed
    }

    /// Sends the list from `sent` on. `true`: all of it is sent. What the socket does not take now is for the
    /// next call; a list that has changed is sent again from its beginning.
    pub fn answer(&self, socket: &OwnedFd, sent: &mut Sent) -> bool {
        if sent.number != self.changes {
            *sent = Sent { number: self.changes, pieces: 0 };
        }
        if self.list.is_empty() {
            let answer = Answer { number: self.changes.into(), ..Answer::new_zeroed() };
            return !is_later(socket::send(socket, answer.as_bytes(), None));
        }
        while let Some(offer) = self.list.get(sent.pieces) {
            let answer = Answer {
                number: self.changes.into(),
                start: (offer.memory.start.addr() as u64).into(),
                bytes: (offer.memory.len as u64).into(),
                left: (self.list.len() as u32 - 1 - sent.pieces as u32).into(),
                zero: 0.into(),
            };
            if is_later(socket::send(socket, answer.as_bytes(), Some(offer.file.as_fd()))) {
                return false;
            }
            sent.pieces += 1;
        }
        true
    }
}

/// The socket takes no more at the moment; other errors are its end, which is found by reading.
fn is_later(sent: Result<(), Errno>) -> bool {
    matches!(sent, Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::TOOMANYREFS))
}

/// How far the answer to one peer is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    number: u64,
    pieces: usize,
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
        // Else a peer could end this process by a signal.
        let is_safe = is_ordinary_memory(file).is_ok()
            && fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
            && fs::fstat(file).is_ok_and(|stat| stat.st_size as u64 >= bytes);
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

/// What is mapped of one peer's memory.
#[derive(Debug)]
pub struct Maps {
    /// The number of the list that `maps` are of.
    number: u64,
    maps: Vec<Map>,
    /// The list that is coming, and the number of its pieces that are here.
    coming: Vec<Map>,
    coming_number: u64,
    /// The number of the list that was asked for last, and whether it is still to come.
    asked: u64,
    is_asking: bool,
    /// Bytes that may be mapped.
    bytes_max: u64,
}

impl Maps {
    /// None yet, and never more than so many bytes.
    pub const fn new(bytes_max: u64) -> Self {
        Maps {
            number: 0,
            maps: Vec::new(),
            coming: Vec::new(),
            coming_number: 0,
            asked: 0,
            is_asking: false,
            bytes_max,
        }
    }

    /// Pieces that are mapped.
    #[cfg(test)]
    pub const fn len(&self) -> usize {
        self.maps.len()
    }

    /// Whether answers, with descriptors, are due.
    pub const fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// The number that a ring says: whether to ask for its list.
    pub const fn must_ask(&self, number: u64) -> bool {
        number != 0 && number != self.asked && !self.is_asking && self.bytes_max > 0
    }

    /// The list was asked for.
    pub const fn ask(&mut self, number: u64) {
        (self.asked, self.is_asking) = (number, true);
    }

    /// Takes an answer; `false`: it is none that an honest peer sends. Its descriptor may have been lost, for
    /// lack of room in this process.
    pub fn take(&mut self, answer: &Answer, file: Option<OwnedFd>, is_lost: bool) -> bool {
        let (number, bytes) = (answer.number.get(), answer.bytes.get());
        let is_due = self.is_asking && answer.zero.get() == 0 && (bytes == 0) == (file.is_none() && !is_lost);
        if !is_due || (bytes == 0 && answer.left.get() != 0) || answer.left.get() as usize >= OFFERS_MAX {
            return false;
        }
        if number != self.coming_number {
            self.coming.clear();
            self.coming_number = number;
        }
        if self.coming.len() >= OFFERS_MAX {
            return false;
        }
        let mapped: u64 = self.coming.iter().map(|map| map.len as u64).sum();
        if let Some(file) = file
            && mapped.saturating_add(bytes) <= self.bytes_max
        {
            self.coming.extend(Map::new(answer.start.get(), bytes, &file));
        }
        if answer.left.get() == 0 {
            self.number = number;
            self.maps = std::mem::take(&mut self.coming);
            self.coming_number = 0;
            (self.asked, self.is_asking) = (number, false);
        }
        true
    }

    /// L-20. Fills the pieces with the bytes at `from` of the owner's memory; `false`: they are not mapped,
    /// or `number`, which reads what the ring says, finds that they were not to be read any more. The
    /// pieces have any bytes then.
    ///
    /// # Safety
    /// The pieces can be written.
    pub unsafe fn read(&self, number: impl FnOnce() -> u64, from: u64, pieces: &[Piece]) -> bool {
        if self.maps.is_empty() {
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
            // that nobody else here knows does not overlap with it. Its bytes may change meanwhile, by
            // another process; the copy then yields other bytes of payload, and no more.
            unsafe { std::ptr::copy_nonoverlapping(at, piece.start, piece.len) };
            at = at.wrapping_add(piece.len);
        }
        // What was copied was there before the number is read.
        fence(Ordering::Acquire);
        number() == self.number
    }
}
