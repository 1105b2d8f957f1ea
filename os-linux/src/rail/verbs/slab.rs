//! The rail's memory: one slab of buffers, registered once; copies between it and payload memory; and the
//! call that registers payload memory. The only file of the rail with raw memory in it.
//!
//! Why this is sound: here no Rust references to bytes of the slab or of payload ever exist, everything is
//! copied by pointer; `VerbsRail` drops its device before its slab; and the driver guarantees payload memory
//! (`Outgoing::payload`, `Sink::place`, `Rail::register`): the rail ends every registration before that
//! guarantee ends.
#![allow(unsafe_code)]

use rerail_core::wire::HEADER_BYTES_MAX;
use rerail_verbs::contract::{Access, Device, Mr, PdId, RegisterError, Sge};

use crate::memory::{Mapping, copy_pieces};
use crate::rail::Piece;
use crate::rail::shm::copy_short;

/// Most headers have no more bytes; buffers lie at multiples of it.
const FRONT_BYTES: usize = 64;

/// Buffers in one piece of zeroed memory, which starts on a page.
#[derive(Debug)]
pub(super) struct Slab {
    memory: Mapping,
    /// Its address for the device, and its key; both 0 before it is registered.
    base: u64,
    lkey: u32,
}

impl Slab {
    /// So many bytes, at least one; `None`: there is no memory.
    pub fn new(bytes: u64) -> Option<Self> {
        let memory = Mapping::new(usize::try_from(bytes).ok()?).ok()?;
        Some(Slab { memory, base: 0, lkey: 0 })
    }

    /// Registers all of it for local use. The device must be dropped before the slab.
    pub fn register(&mut self, device: &mut impl Device, pd: PdId, iova: Option<u64>) -> Result<(), RegisterError> {
        let Piece { start, len } = self.memory.whole();
        let base = iova.unwrap_or(start.addr() as u64);
        // SAFETY: the memory is the slab's own and lives longer than the device (see above); no references to
        // it exist.
        let mr = unsafe { device.register(pd, start, len as u64, base, Access::LOCAL) }?;
        (self.base, self.lkey) = (base, mr.lkey);
        Ok(())
    }

    /// A range as requests name it.
    pub fn sge(&self, at: u64, len: u32) -> Sge {
        debug_assert!(at + u64::from(len) <= self.memory.whole().len as u64);
        // SAFETY: the range is inside the slab, which is registered until its device is gone.
        unsafe { Sge::new(self.base + at, len, self.lkey) }
    }

    /// The memory of a range; panics where it is not all inside.
    #[inline]
    fn range(&self, at: u64, len: usize) -> Piece {
        let (at, whole) = (at as usize, self.memory.whole());
        assert!(at <= whole.len && len <= whole.len - at, "a range outside of the slab");
        Piece { start: whole.start.wrapping_add(at), len }
    }

    /// Copies bytes in.
    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        let to = self.range(at, bytes.len());
        let from = Piece { start: bytes.as_ptr().cast_mut(), len: bytes.len() };
        // SAFETY: `from` is a borrowed slice, only read; `to` lies in the slab.
        unsafe { copy_pieces(&[from], &[to]) };
    }

    /// Copies bytes out.
    pub fn get(&self, at: u64, into: &mut [u8]) {
        let from = self.range(at, into.len());
        let to = Piece { start: into.as_mut_ptr(), len: into.len() };
        // SAFETY: `to` is a slice borrowed for writing; `from` lies in the slab, all of which is initialised.
        unsafe { copy_pieces(&[from], &[to]) };
    }

    /// Copies the first bytes of a message out, `bytes` of it at most, as many as there is room for. Buffers
    /// have at least as many as [`FRONT_BYTES`]: where that is enough, so many are copied.
    #[inline]
    pub fn get_front(&self, at: u64, bytes: usize, into: &mut [u8; HEADER_BYTES_MAX]) {
        if bytes > FRONT_BYTES {
            return self.get(at, &mut into[..bytes.min(HEADER_BYTES_MAX)]);
        }
        let from = self.range(at, FRONT_BYTES);
        // SAFETY: `from` lies in the slab, all of which is initialised; `into` is longer.
        unsafe { into.as_mut_ptr().cast::<[u8; FRONT_BYTES]>().write(from.start.cast::<[u8; FRONT_BYTES]>().read()) };
    }

    /// Copies a short payload out to where the sink takes it.
    #[inline]
    pub fn copy_out(&self, at: u64, len: usize, to: *mut u8) {
        let from = self.range(at, len);
        // SAFETY: as in `scatter`.
        unsafe { copy_short(from.start, to, len) };
    }

    /// Copies payload in, up to `most` bytes; returns how many.
    pub fn gather(&mut self, at: u64, most: usize, payload: &[Piece]) -> usize {
        let to = self.range(at, most);
        // SAFETY: `to` lies in the slab; the driver keeps the memory of a post's payload valid while it hands
        // the post over and until it is complete (`Outgoing::payload`).
        unsafe { copy_pieces(payload, &[to]) }
    }

    /// Copies `len` bytes out into payload memory, as many as it has room for; returns how many.
    pub fn scatter(&self, at: u64, len: usize, payload: &[Piece]) -> usize {
        let from = self.range(at, len);
        // SAFETY: `from` lies in the slab; the pieces are those of a read that is not complete
        // (`Outgoing::payload`), or were filled in by the sink just now (`Sink::place`).
        unsafe { copy_pieces(&[from], payload) }
    }
}

/// Copies payload to a local buffer, up to its length; returns how many bytes.
pub(super) fn collect(payload: &[Piece], into: &mut [u8]) -> usize {
    let to = Piece { start: into.as_mut_ptr(), len: into.len() };
    // SAFETY: as in `Slab::gather`; `to` is a slice borrowed for writing.
    unsafe { copy_pieces(payload, &[to]) }
}

/// Copies a header, and one piece of payload behind it, to a local buffer that has room for both.
#[inline(always)]
pub(super) fn collect_short(header: &[u8], payload: Piece, into: &mut [u8]) {
    let (front, rest) = into.split_at_mut(header.len());
    let rest = &mut rest[..payload.len];
    // SAFETY: `front` is as long as the header, `rest` as long as the payload, which can be read as in
    // `Slab::gather`; both are borrowed for writing.
    unsafe {
        copy_header(header.as_ptr(), front.as_mut_ptr(), header.len());
        copy_short(payload.start, rest.as_mut_ptr(), payload.len);
    }
}

/// Copies a header: most have this length or a few bytes more.
///
/// # Safety
/// `from` can be read and `to` written for `len` bytes; they don't overlap.
#[inline(always)]
unsafe fn copy_header(from: *const u8, to: *mut u8, len: usize) {
    const PART: usize = 32;
    if (PART..=2 * PART).contains(&len) {
        // SAFETY: the first and the last part of it, which overlap in a shorter one.
        unsafe {
            to.cast::<[u8; PART]>().write_unaligned(from.cast::<[u8; PART]>().read_unaligned());
            let last = len - PART;
            to.add(last).cast::<[u8; PART]>().write_unaligned(from.add(last).cast::<[u8; PART]>().read_unaligned());
        }
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
}

/// Registers payload memory. The caller ends the registration before the driver's guarantee for the memory
/// ends.
pub(super) fn register(
    device: &mut impl Device,
    pd: PdId,
    memory: Piece,
    iova: u64,
    access: Access,
) -> Result<Mr, RegisterError> {
    // SAFETY: the memory is the payload of a post that is not complete, or was given to `Rail::register`:
    // valid until the registry deregisters it. While a request is not over, which is as long as peers or the
    // device access its memory, the driver lends no reference to what they write, no mutable one to what they
    // read.
    unsafe { device.register(pd, memory.start, memory.len as u64, iova, access) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_in_and_out() {
        let mut slab = Slab::new(256).unwrap();
        let mut payload = *b"hello rails";
        let piece = Piece { start: payload.as_mut_ptr(), len: payload.len() };
        assert_eq!(slab.gather(100, 5, &[piece]), 5);
        slab.put(105, b"!");
        let mut out = [0; 8];
        slab.get(99, &mut out);
        assert_eq!(&out, b"\0hello!\0");
        let (left, right) = payload.split_at_mut(2);
        let pieces = [left, right].map(|part| Piece { start: part.as_mut_ptr(), len: part.len().min(2) });
        assert_eq!(slab.scatter(103, 3, &pieces), 3);
        assert_eq!(&payload, b"lo!lo rails");
    }

    #[test]
    #[should_panic(expected = "outside of the slab")]
    fn nothing_is_read_behind_the_end() {
        Slab::new(64).unwrap().get(60, &mut [0; 5]);
    }
}
