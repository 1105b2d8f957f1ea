//! Raw memory of the simulated rails: that of rings, copies between packets and the places that engines name,
//! and regions whole, for checkers that look at what is in use.
//!
//! Safety argument of the file: a ring's memory is allocated here, zeroed, aligned as the ring requires, and
//! lives as long as either end ([`Rc`]); it is touched through its one consumer and its one producer only,
//! which the pair of ends made by [`pair`] are. Pieces are those of the driver's seam: readable until a post
//! is over, writable while a placement is open; all ranks of a simulation live in one thread, and none refers
//! to its memory while an engine is driven.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use rerail_core::mem::RegionId;
use rerail_core::shm::{
    AttachError, Consumer, Front, LINE_BYTES, ListedWindow, Mapped, Producer, PushError, RingConfig, RingError,
    WindowList, ring_bytes,
};
use rerail_core::wire::Short;
use rerail_linux::rail::Piece;

use crate::cluster::Engine;

/// A rank's region, in use or not.
pub fn region(engine: &Engine, region: RegionId) -> Option<&[u8]> {
    let bytes = engine.pointer(region).ok()?;
    // SAFETY: mapped until the region is freed, for which this borrow must have ended. Simulated devices run
    // in this thread, as engines do: never while a checker or an app looks at memory.
    Some(unsafe { &*bytes })
}

/// As [`region`], for writing.
pub fn region_mut(engine: &mut Engine, region: RegionId) -> Option<&mut [u8]> {
    let bytes = engine.pointer(region).ok()?;
    // SAFETY: as in `region`; the engine is borrowed mutably, and regions don't overlap.
    Some(unsafe { &mut *bytes })
}

/// The memory of one ring, and what lies before it so that it is aligned. Zeroed memory of little alignment
/// comes fresh from the system, page by page when it is touched; with more alignment it would be written
/// here.
#[derive(Debug)]
struct RingMemory {
    start: NonNull<u8>,
    layout: Layout,
    /// Where the ring is.
    base: NonNull<u8>,
    len: usize,
}

impl RingMemory {
    /// Zeroed memory for a ring; `None` where its size is beyond the address space.
    fn new(config: RingConfig) -> Option<Rc<Self>> {
        let len = ring_bytes(config)?;
        let layout = Layout::from_size_align(len.checked_add(LINE_BYTES)?, align_of::<u64>()).ok()?;
        // SAFETY: the size is at least LINE_BYTES, so not 0.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: `align_offset` to LINE_BYTES is below LINE_BYTES, which is how much longer than the ring
        // the memory is.
        let base = unsafe { start.add(start.align_offset(LINE_BYTES)) };
        Some(Rc::new(RingMemory { start, layout, base, len }))
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; both ends hold the memory by `Rc` and are gone.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The end of a ring from which a rank receives.
#[derive(Debug)]
pub(super) struct Inbound {
    // Dropped in this order.
    ring: Consumer<Mapped>,
    memory: Rc<RingMemory>,
}

/// The end of a ring into which a rank sends.
#[derive(Debug)]
pub(super) struct Outbound {
    // Dropped in this order.
    ring: Producer<Mapped>,
    _memory: Rc<RingMemory>,
}

/// Both ends of a new ring.
pub(super) fn pair(config: RingConfig) -> Result<(Inbound, Outbound), AttachError> {
    config.check()?;
    let memory = RingMemory::new(config).ok_or(AttachError::TooSmall { needed: usize::MAX, given: 0 })?;
    let (base, len) = (memory.base, memory.len);
    // SAFETY: the memory is `len` bytes, zeroed, and lives as long as the ends, which are its only users.
    let consumer = unsafe { Consumer::create(base, len, config) }?;
    // SAFETY: as above; this is the one producer.
    let producer = unsafe { Producer::attach(base, len, config) }?;
    Ok((Inbound { ring: consumer, memory: memory.clone() }, Outbound { ring: producer, _memory: memory }))
}

impl Inbound {
    /// The oldest message.
    pub(super) fn front(&mut self) -> Result<Option<Front<'_, Mapped>>, RingError> {
        self.ring.front()
    }

    /// See [`Consumer::claims`].
    pub(super) fn claims(&self) -> &AtomicU64 {
        self.ring.claims()
    }

    /// See [`Consumer::offer`].
    pub(super) fn offer(&self) -> u64 {
        self.ring.offer()
    }

    /// See [`Consumer::window`].
    pub(super) fn window(&self, key: u64) -> Option<(u64, ListedWindow)> {
        self.ring.window(key)
    }

    /// See [`Consumer::windows`].
    pub(super) fn windows(&self) -> u64 {
        self.ring.windows()
    }

    /// See [`Consumer::putting`].
    pub(super) fn putting(&self) -> u64 {
        self.ring.putting()
    }

    /// See [`Consumer::must_ring`].
    pub(super) fn must_ring(&mut self) -> bool {
        self.ring.must_ring()
    }

    /// See [`Consumer::arm`].
    pub(super) fn arm(&mut self) -> bool {
        self.ring.arm()
    }

    /// See [`Consumer::disarm`].
    pub(super) fn disarm(&mut self) {
        self.ring.disarm();
    }

    /// Bytes of memory.
    pub(super) fn len(&self) -> usize {
        self.memory.len
    }
}

impl Outbound {
    /// Appends a packet.
    pub(super) fn push(&mut self, header: &[u8], payload: &[Piece]) -> Result<(), PushError> {
        // SAFETY: the pieces of a post can be read until its completion is reported (the contract of
        // `Outgoing`).
        unsafe { self.ring.push(header, payload.iter().map(|piece| (piece.start.cast_const(), piece.len))) }
    }

    /// Appends a short message; whether the peer must be woken.
    ///
    /// # Safety
    /// `from` can be read for `short.len` bytes.
    pub(super) unsafe fn push_short(&mut self, short: &Short, from: *const u8) -> Result<bool, PushError> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.ring.push_short(short, from) }
    }

    /// Appends a note.
    pub(super) fn push_note(&mut self, note: &[u8]) -> Result<(), PushError> {
        self.ring.push_note(note)
    }

    /// See [`Producer::claims`].
    pub(super) fn claims(&self) -> &AtomicU64 {
        self.ring.claims()
    }

    /// See [`Producer::offer`].
    pub(super) fn offer(&mut self, number: u64) {
        self.ring.offer(number);
    }

    /// See [`Producer::list_windows`].
    pub(super) fn list_windows(&mut self, list: &WindowList) {
        self.ring.list_windows(list, true);
    }

    /// See [`Producer::begin_put`].
    pub(super) fn begin_put(&mut self, number: u64) {
        self.ring.begin_put(number);
    }

    /// See [`Producer::end_put`].
    pub(super) fn end_put(&mut self) {
        self.ring.end_put();
    }

    /// See [`Producer::must_ring`].
    pub(super) fn must_ring(&mut self) -> bool {
        self.ring.must_ring()
    }

    /// See [`Producer::arm`].
    pub(super) fn arm(&mut self) -> bool {
        self.ring.arm()
    }

    /// See [`Producer::disarm`].
    pub(super) fn disarm(&mut self) {
        self.ring.disarm();
    }
}

/// Copies up to the piece's length from a message, from its payload byte `from` on; returns how many bytes.
pub(super) fn copy_out(front: &Front<'_, Mapped>, from: u32, piece: Piece) -> usize {
    // SAFETY: pieces that a sink names can be written for their length (its contract).
    unsafe { front.copy_to(from, piece.start, piece.len) }
}

/// Copies between pieces of a rank that makes an access and as many bytes of a window (L-26).
///
/// # Safety
/// The pieces can be read, those of a get written.
pub(super) unsafe fn copy_window(window: Piece, pieces: &[Piece], is_put: bool) {
    let mut at = window.start;
    for piece in pieces {
        let (source, target) = if is_put { (piece.start, at) } else { (at, piece.start) };
        // SAFETY: the window's memory is offered and not withdrawn, so it is its owner's; the pieces are the
        // caller's, as long as the window together. A rank puts to others only, whose memory is different.
        unsafe { std::ptr::copy_nonoverlapping(source.cast_const(), target, piece.len) };
        at = at.wrapping_add(piece.len);
    }
}

/// Copies units of a joint copy, of the target's length.
pub(super) fn copy_claimed(source: Piece, target: Piece) {
    // SAFETY: the source is registered and of this length (`Grants::find`); the target is part of a read
    // that is not over: its reader copies, or has left the gate open, which it closes before (F-2). No two
    // ranks share memory, so these are different bytes.
    unsafe { std::ptr::copy_nonoverlapping(source.start.cast_const(), target.start, target.len) };
}

/// Copies what a rank has granted, or offers, into the pieces of a read, as far as it goes, and takes what is
/// filled off them.
pub(super) fn copy_granted(source: Piece, pieces: &mut VecDeque<Piece>) {
    let mut done = 0;
    while done < source.len
        && let Some(piece) = pieces.front_mut()
    {
        let len = piece.len.min(source.len - done);
        // SAFETY: the source is registered, so it can be read until it is deregistered (the contract of
        // `Rail::register`), or offered and not withdrawn (that of `Rail::offer`), or made here. The
        // pieces are those of a read that is not over. A rank that sends to itself does so by no ring, and no
        // two ranks share memory, so these are different bytes.
        unsafe { std::ptr::copy_nonoverlapping(source.start.wrapping_add(done).cast_const(), piece.start, len) };
        done += len;
        *piece = Piece { start: piece.start.wrapping_add(len), len: piece.len - len };
        if piece.len == 0 {
            pieces.pop_front();
        }
    }
}

/// Appends the bytes of a post's payload to `bytes`.
pub(super) fn gather(payload: &[Piece], bytes: &mut Vec<u8>) {
    for piece in payload.iter().filter(|piece| piece.len > 0) {
        // SAFETY: the pieces of a post can be read until its completion is reported (the contract of
        // `Outgoing`), and they are not written meanwhile.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.start, piece.len) });
    }
}

/// Copies bytes into a place, as far as it reaches; returns how many.
pub(super) fn scatter(bytes: &[u8], place: &[Piece]) -> usize {
    let mut done = 0;
    for piece in place {
        let rest = &bytes[done..];
        let len = rest.len().min(piece.len);
        if len > 0 {
            // SAFETY: `len` bytes of both can be used: the slice's by its length, the piece's by the sink's
            // contract; a packet's bytes are not part of any region.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), piece.start, len) };
        }
        done += len;
    }
    done
}
