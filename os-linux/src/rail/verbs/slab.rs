//! Buffers of the rail's own, registered with the device, and copies between them and payload memory: the rail's only
//! raw memory.
//!
//! Invariants: a slab is deregistered before it is freed (its owner destroys the queue pairs that use it first), and the
//! device runs only while the rail isn't: no reference to a slab's bytes outlives a call.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use rerail_verbs::contract::{Access, Device, Mr, PdId, RegisterError, Sge};

use crate::memory::copy_pieces;
use crate::rail::Piece;

/// Slots of equal size in registered memory.
#[derive(Debug)]
pub struct Slab {
    start: NonNull<u8>,
    layout: Layout,
    slot_bytes: u64,
    mr: Mr,
    iova: u64,
}

impl Slab {
    /// `slots` slots of `slot_bytes`, registered for local use under `iova` (or their own address).
    pub fn new<D: Device + ?Sized>(
        device: &mut D,
        pd: PdId,
        (slots, slot_bytes): (u64, u64),
        addresses: &mut Addresses,
    ) -> Result<Self, RegisterError> {
        let bytes = slots.saturating_mul(slot_bytes).max(64);
        let layout = usize::try_from(bytes).ok().and_then(|bytes| Layout::from_size_align(bytes, 4096).ok());
        let layout = layout.ok_or(RegisterError::Length { bytes, max: isize::MAX as u64 })?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        let iova = addresses.take(start.as_ptr(), bytes);
        // SAFETY: the allocation lives until `free`, which deregisters first; nobody holds references to it while the
        // device runs.
        match unsafe { device.register(pd, start.as_ptr(), bytes, iova, Access::LOCAL) } {
            Ok(mr) => Ok(Slab { start, layout, slot_bytes, mr, iova }),
            Err(error) => {
                // SAFETY: allocated above with this layout, and not registered.
                unsafe { dealloc(start.as_ptr(), layout) };
                Err(error)
            }
        }
    }

    /// Ends the registration and frees the memory. Where the device refuses to let go, the memory is kept for ever
    /// rather than handed to somebody else.
    pub fn free<D: Device + ?Sized>(self, device: &mut D) {
        if device.deregister(self.mr.id).is_ok() {
            // SAFETY: allocated in `new` with this layout; the registration has ended.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }

    /// The first `bytes` bytes of a slot, for a work request.
    pub fn sge(&self, slot: u32, bytes: u64) -> Sge {
        let bytes = bytes.min(self.slot_bytes) as u32;
        Sge { address: self.iova + u64::from(slot) * self.slot_bytes, len: bytes, lkey: self.mr.lkey }
    }

    /// A range of a slot; empty where it is not inside.
    fn piece(&self, slot: u32, from: u64, bytes: u64) -> Piece {
        let start = u64::from(slot) * self.slot_bytes + from;
        let inside = from.checked_add(bytes).is_some_and(|end| end <= self.slot_bytes)
            && start + bytes <= self.layout.size() as u64;
        // SAFETY: `start` is inside the allocation where `inside` holds; else the offset is 0.
        let at = unsafe { self.start.as_ptr().add(if inside { start as usize } else { 0 }) };
        Piece { start: at, len: if inside { bytes as usize } else { 0 } }
    }

    /// Copies a header and payload into a slot; how many bytes fitted.
    pub fn fill(&self, slot: u32, header: &[u8], payload: &[Piece]) -> u64 {
        let head = Piece { start: header.as_ptr().cast_mut(), len: header.len() };
        // SAFETY: the slot's range is inside the slab, the header is borrowed, and the payload is valid by the promise of
        // `Outgoing`; none of them overlaps the slab but itself.
        let head_bytes = unsafe { copy_pieces(&[head], &[self.piece(slot, 0, self.slot_bytes)]) } as u64;
        // SAFETY: as above.
        head_bytes
            + unsafe { copy_pieces(payload, &[self.piece(slot, head_bytes, self.slot_bytes - head_bytes)]) } as u64
    }

    /// Copies bytes of a slot, from `from` on, into `out`; how many there were.
    pub fn read(&self, slot: u32, from: u64, out: &mut [u8]) -> usize {
        let bytes = (out.len() as u64).min(self.slot_bytes.saturating_sub(from));
        let target = Piece { start: out.as_mut_ptr(), len: out.len() };
        // SAFETY: the slot's range is inside the slab; `out` is borrowed for writing.
        unsafe { copy_pieces(&[self.piece(slot, from, bytes)], &[target]) }
    }

    /// Copies `bytes` bytes of a slot, from `from` on, into memory that the sink has named; how many fitted.
    pub fn scatter(&self, slot: u32, from: u64, bytes: u64, to: &[Piece]) -> usize {
        // SAFETY: the slot's range is inside the slab; the pieces are valid until the next call into the sink, by the
        // promise of `Sink::place`.
        unsafe { copy_pieces(&[self.piece(slot, from, bytes)], to) }
    }
}

/// Registers memory of requests, whose owner keeps it valid until the registration ends: by the promise of `Outgoing`
/// for the memory of posts, and of `Rail::register` for that which peers reach.
pub fn register<D: Device + ?Sized>(
    device: &mut D,
    pd: PdId,
    piece: Piece,
    access: Access,
    addresses: &mut Addresses,
) -> Result<(Mr, u64), RegisterError> {
    let iova = addresses.take(piece.start, piece.len as u64);
    // SAFETY: see above; the core names no memory that a request of its caller does not hold.
    unsafe { device.register(pd, piece.start, piece.len as u64, iova, access) }.map(|mr| (mr, iova))
}

/// Addresses that memory is registered under: of the rail's own choice where the device allows it, so that nothing on
/// the wire tells where in a process something lies.
#[derive(Debug)]
pub struct Addresses {
    /// `None`: the memory's own.
    next: Option<u64>,
}

impl Addresses {
    /// Own ones, or the memory's.
    pub fn new(own: bool) -> Self {
        Addresses { next: own.then_some(1 << 32) }
    }

    fn take(&mut self, start: *mut u8, bytes: u64) -> u64 {
        match &mut self.next {
            Some(next) => {
                // A page between two ranges: what runs over one's end hits nothing. Alignment within 8 bytes stays, for
                // atomics.
                let address = *next + start.addr() as u64 % 8;
                *next = (*next + bytes).next_multiple_of(4096) + 4096;
                address
            }
            None => start.addr() as u64,
        }
    }
}
