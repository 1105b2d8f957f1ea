//! Memory and requests: what the caller hands in.
//!
//! Every request is checked against the regions before the core receives it, so that later, when its memory
//! is resolved, every piece lies in bounds. The core keeps the memory of a request named until the request is
//! over and no rail needs it any more; `free` checks with the core.
#![allow(unsafe_code)]

use std::os::fd::AsFd;

use rerail_core::endpoint::{
    AtomicRequest, CancelError, DeregisterError, FlushRequest, Found, GetRequest, PeerError, PutRequest, RecvRequest,
    Selector, SendRequest, ShortPost, ShortReceived, Stats, Waiting, Window,
};
use rerail_core::ids::{CounterId, MessageId, OpId, PeerId, WindowId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::shm::fits_inline;
use rerail_core::time::Time;

use super::drive::resolve;
use super::{Engine, MemoryError, RequestError, WindowError};
use crate::memory::Memory;
use crate::rail::shm::copy_short;

/// The alignment of the address of a window that allows atomics: the core checks offsets within the window
/// for the type's alignment, and this makes the addresses follow.
const ATOMIC_WINDOW_ALIGN: usize = 8;

impl Engine {
    /// Allocates a region of `bytes` zeroed bytes, page aligned.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`] for 0 bytes, [`MemoryError::System`] where the system refuses.
    pub fn alloc(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        self.memory.alloc(bytes)
    }

    /// As [`alloc`](Self::alloc), of memory that peers on this host may map (L-18): they copy large messages
    /// and gets out of it themselves, about three times as fast as by the system. For buffers that live long.
    /// A peer that has it mapped can read all of it at any time, as long as it keeps the mapping; after
    /// `fork`, a child shares it instead of getting a copy. The first 64 such regions are offered to peers,
    /// further ones are as those of `alloc`. All of its memory is taken at once.
    ///
    /// # Errors
    /// As `alloc`; and [`MemoryError::System`] where the system has no files that can be sealed so (Linux
    /// before 5.1).
    pub fn alloc_shared(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        let (region, file) = self.memory.alloc_shared(bytes)?;
        let memory = self.memory.whole(region)?;
        self.rails.iter_mut().for_each(|(_, rail)| rail.offer(memory, file.as_fd()));
        Ok(region)
    }

    /// Gives a region back: an allocated one is unmapped, an adopted one is the caller's alone again.
    ///
    /// # Errors
    /// [`MemoryError::InUse`] while a window or a request that is not over names it, or a rail is not through
    /// with it yet; nothing happens then. Drive the engine and try again.
    pub fn free(&mut self, region: RegionId) -> Result<(), MemoryError> {
        self.memory.check(&Seg::new(region, 0, 0))?;
        if self.core.uses_region(region) {
            return Err(MemoryError::InUse(region));
        }
        let memory = self.memory.whole(region)?;
        self.rails.iter_mut().for_each(|(_, rail)| rail.forget(memory));
        self.memory.remove(region)
    }

    /// Ends the rails' registrations of a part of an adopted region. Call it when that memory is about to be
    /// unmapped or mapped again, or has been. Rails register what requests name and keep it for the next
    /// request from there: without this call, that request would move the memory that was there before.
    /// Requests and windows that are not over must not name the part.
    ///
    /// # Errors
    /// [`MemoryError`] where the segment is not in a region; nothing happens then.
    pub fn invalidate(&mut self, part: &Seg) -> Result<(), MemoryError> {
        self.memory.check(part)?;
        let memory = self.memory.resolve(part)?;
        self.rails.iter_mut().for_each(|(_, rail)| rail.forget(memory));
        Ok(())
    }

    /// The bytes of an allocated region. `None`: there is no such region, or it was adopted (the caller has
    /// its own way to that memory).
    pub fn bytes(&self, region: RegionId) -> Option<&[u8]> {
        self.memory.bytes(region)
    }

    /// As [`bytes`](Self::bytes), for writing.
    pub fn bytes_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.memory.bytes_mut(region)
    }

    /// Takes `len` bytes of the caller's memory at `start` as a region, without touching it. The region may
    /// be larger than what is mapped (even the whole address space, with a null `start` and offsets as
    /// addresses): the promise below concerns only what is named.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`] for 0 bytes, for ranges that wrap around, and for such as begin at 2^53 or
    /// above; what a range has there can't be named by requests.
    ///
    /// # Safety
    /// From the moment that a request or window names a part of the region until the request is over (its
    /// completion was reported) or the window is deregistered, or the engine is dropped, that part must be
    /// mapped, readable, and writable where peers or receives write to it; no Rust reference to it may be
    /// used while the engine is driven; other threads may access it while it is the target of atomics only by
    /// atomics, and otherwise not at all. Memory that a request or window has named is unmapped, or mapped
    /// again, only when [`invalidate`](Self::invalidate) or [`free`](Self::free) was called for it.
    pub unsafe fn adopt(&mut self, start: *mut u8, len: usize) -> Result<RegionId, MemoryError> {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.memory.adopt(start, len) }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`RequestError::Memory`] where a segment is not in a region, [`RequestError::Submit`] where the core
    /// refuses; nothing happened then.
    #[inline(always)]
    pub fn send(&mut self, now: Time, send: &SendRequest<'_>) -> Result<OpId, RequestError> {
        if let Some(operation) = self.send_short(send) {
            return Ok(operation);
        }
        self.send_whole(now, send)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn send_whole(&mut self, now: Time, send: &SendRequest<'_>) -> Result<OpId, RequestError> {
        self.check(send.segments)?;
        let operation = self.core.send(now, send)?;
        self.met.insert(send.peer);
        Ok(operation)
    }

    /// Sends a message that nothing is special about, if its rail has room: it is with the peer then, and
    /// complete. `None`: nothing has happened, and there may be an error to find.
    #[inline(always)]
    pub(super) fn send_short(&mut self, send: &SendRequest<'_>) -> Option<OpId> {
        self.try_inline(send).or_else(|| self.send_short_slowly(send))
    }

    /// As [`try_short`](Self::try_short), for a message whose payload lies in its cell and takes one block at
    /// most: without a call, so that few instructions do it.
    #[inline(always)]
    fn try_inline(&mut self, send: &SendRequest<'_>) -> Option<OpId> {
        let (from, len) = match send.segments {
            // A message that does not fit into a cell takes another path: so this is checked first.
            [seg] if !fits_inline(seg.len, send.immediate.is_some()) => return None,
            [seg] => (self.memory.start_of(seg)?.cast_const(), seg.len),
            [] => (std::ptr::null(), 0),
            _ => return None,
        };
        // The core opens its express path for this rail only, if there is one.
        let rail = self.rails.shm.as_mut()?;
        let link = rail.inline_link(send.peer)?;
        let (at, short, operation) = self.core.send_next(link.line, send, len)?;
        debug_assert_eq!(at, self.rails.shm_id, "a peer that is reached over another ring only has no link here");
        // SAFETY: as in `try_short`; and the payload fits into a cell, of which the link has just reported
        // one free.
        unsafe { link.post_inline(&short, from) };
        Some(operation)
    }

    /// The cases that [`try_inline`](Self::try_inline) leaves out: the payload lies in the annex, the short
    /// path is closed, its credits are used up, or the type of its rail is not known.
    #[cold]
    #[inline(never)]
    fn send_short_slowly(&mut self, send: &SendRequest<'_>) -> Option<OpId> {
        match self.try_short(send) {
            None => self.send_short_anew(send),
            sent => sent,
        }
    }

    #[inline(always)]
    fn try_short(&mut self, send: &SendRequest<'_>) -> Option<OpId> {
        let rail = self.rails.shm.as_mut()?;
        let (from, len) = sole_piece(&self.memory, send.segments)?;
        let link = rail.short_link(send.peer, len, send.immediate.is_some())?;
        let (at, short, operation) = self.core.send_short_on(link.line, send, len)?;
        debug_assert_eq!(at, self.rails.shm_id, "a peer that is reached over another ring only has no link here");
        // SAFETY: the link has just reported that there is room, the core's message is as long as the piece,
        // and that was resolved within its region, or is empty; no references to the bytes of a region exist
        // while the transport is borrowed mutably.
        unsafe { link.post_short(&short, from) };
        Some(operation)
    }

    /// Opens the short path if possible. Also serves rails whose type is not known: simulated shared memory.
    #[cold]
    #[inline(never)]
    fn send_short_anew(&mut self, send: &SendRequest<'_>) -> Option<OpId> {
        if self.quick_rails == 0 {
            return None;
        }
        if self.rails.shm.is_some() {
            if !self.core.open_short(send.peer) {
                return None;
            }
            let line = self.core.line_of(send.peer);
            self.rails.shm.as_mut()?.set_line(send.peer, line);
            return self.try_short(send);
        }
        let (from, len) = sole_piece(&self.memory, send.segments)?;
        let (rail, short, operation) = match self.core.send_short(send, len) {
            Some(sent) => sent,
            None if self.core.open_short(send.peer) => self.core.send_short(send, len)?,
            None => return None,
        };
        let is_out = match self.rails.get_mut(rail) {
            // SAFETY: as in `try_short`.
            Some((_, rail)) => unsafe { rail.post_short(send.peer, &short, from) },
            None => false,
        };
        if is_out {
            return Some(operation);
        }
        self.core.unsend_short(send, short);
        None
    }

    /// Posts a receive that nothing is special about. `None`: nothing has happened, and there may be an error
    /// to find.
    #[inline(always)]
    pub(super) fn recv_short(&mut self, recv: &RecvRequest<'_>) -> Option<OpId> {
        let [seg] = recv.segments else { return None };
        let to = self.memory.start_of(seg)?;
        match self.core.post_short(recv, Memory::by_address(seg.at.region, to)) {
            ShortPost::Posted(operation) => Some(operation),
            ShortPost::Waits(found) => self.take_waiting(recv, to, found),
            ShortPost::Slow => None,
        }
    }

    /// Receives a message that arrived before this receive was posted, whose memory starts at `to`.
    #[inline(never)]
    fn take_waiting(&mut self, recv: &RecvRequest<'_>, to: *mut u8, found: Waiting) -> Option<OpId> {
        let ShortReceived { operation, from } = self.core.take_waiting(recv, found)?;
        if let Some(start) = self.memory.start_in_pool(&from) {
            // SAFETY: the message was resolved within the pool, and is at most as long as the receive's
            // piece, which the caller resolved within its region; a piece of a region does not overlap the
            // pool. No references to the bytes of either exist while the transport is borrowed mutably.
            unsafe { copy_short(start, to, from.len as usize) };
        }
        Some(operation)
    }

    /// Sends `payload` as a message, copied at once: the caller's buffer is free when this returns. At most
    /// `Config::eager_bytes_max` bytes.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`RequestError::InjectSegments`] where `send` names segments too.
    pub fn inject(&mut self, now: Time, send: &SendRequest<'_>, payload: &[u8]) -> Result<OpId, RequestError> {
        if !send.segments.is_empty() {
            return Err(RequestError::InjectSegments { given: send.segments.len() });
        }
        let (operation, place) = self.core.inject(now, send, payload.len() as u64)?;
        resolve(&self.core, &self.memory, place, &mut self.scratch.target);
        let copied = self.memory.fill(payload, &self.scratch.target);
        debug_assert_eq!(copied, payload.len(), "the core gave an injected payload too little room");
        self.met.insert(send.peer);
        Ok(operation)
    }

    /// Posts a buffer for a message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[inline(always)]
    pub fn recv(&mut self, now: Time, recv: &RecvRequest<'_>) -> Result<OpId, RequestError> {
        if let Some(operation) = self.recv_short(recv) {
            return Ok(operation);
        }
        self.recv_whole(now, recv)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn recv_whole(&mut self, now: Time, recv: &RecvRequest<'_>) -> Result<OpId, RequestError> {
        self.check(recv.segments)?;
        Ok(self.core.recv(now, recv)?)
    }

    /// The oldest message that has arrived without a receive and matches; it stays where it is.
    pub fn probe(&self, selector: &Selector) -> Option<Found> {
        self.core.probe(selector)
    }

    /// As [`probe`](Self::probe), but takes the message out of matching: only
    /// [`recv_claimed`](Self::recv_claimed) receives it.
    pub fn claim(&mut self, selector: &Selector) -> Option<(MessageId, Found)> {
        self.core.claim(selector)
    }

    /// Receives a claimed message; the selector of `recv` does not matter.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn recv_claimed(
        &mut self,
        now: Time,
        message: MessageId,
        recv: &RecvRequest<'_>,
    ) -> Result<OpId, RequestError> {
        self.check(recv.segments)?;
        Ok(self.core.recv_claimed(now, message, recv)?)
    }

    /// Cancels a request. If that succeeds, its completion is `Cancelled`.
    ///
    /// # Errors
    /// [`CancelError::TooLate`] where it will complete by itself, [`CancelError::Unknown`] where it is over.
    pub fn cancel(&mut self, now: Time, operation: OpId) -> Result<(), CancelError> {
        self.core.cancel(operation)?;
        if self.registrations() > 0 {
            // The request may have been registered before its turn came. Once its completion is reported, its
            // memory is the caller's, to unmap for example, and no rail may hold it then.
            self.carry_out(now);
        }
        Ok(())
    }

    /// Writes local segments into a peer's window.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn put(&mut self, now: Time, put: &PutRequest<'_>) -> Result<OpId, RequestError> {
        self.check(put.segments)?;
        let operation = self.core.put(now, put)?;
        self.met.insert(put.to.peer);
        Ok(operation)
    }

    /// Reads a peer's window into local segments.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn get(&mut self, now: Time, get: &GetRequest<'_>) -> Result<OpId, RequestError> {
        self.check(get.segments)?;
        let operation = self.core.get(now, get)?;
        self.met.insert(get.from.peer);
        Ok(operation)
    }

    /// Changes one value in a peer's window atomically; its completion brings the value before.
    ///
    /// # Errors
    /// [`RequestError::Submit`] where the core refuses.
    pub fn atomic(&mut self, now: Time, atomic: &AtomicRequest) -> Result<OpId, RequestError> {
        let operation = self.core.atomic(now, atomic)?;
        self.met.insert(atomic.at.peer);
        Ok(operation)
    }

    /// Completes when every put, get and atomic submitted to the peer before it is done at the peer.
    ///
    /// # Errors
    /// [`RequestError::Submit`] where the core refuses.
    pub fn flush(&mut self, now: Time, flush: &FlushRequest) -> Result<OpId, RequestError> {
        let operation = self.core.flush(now, flush)?;
        self.met.insert(flush.peer);
        Ok(operation)
    }

    /// Exposes memory to the one-sided requests of peers that have the window's key.
    ///
    /// # Errors
    /// [`WindowError::Memory`] where it is not in a region, [`WindowError::Misaligned`] where atomics are
    /// allowed and the window does not start on a multiple of 8 bytes, [`WindowError::Expose`] where the core
    /// refuses.
    pub fn expose(&mut self, window: &Window) -> Result<WindowId, WindowError> {
        let seg = Seg { at: window.at, len: window.len };
        self.memory.check(&seg)?;
        let address = self.memory.resolve(&seg)?.start.addr();
        if window.access.atomic && address % ATOMIC_WINDOW_ALIGN != 0 {
            return Err(WindowError::Misaligned { address, align: ATOMIC_WINDOW_ALIGN });
        }
        Ok(self.core.expose(window)?)
    }

    /// Ends the exposure of a window; later requests of peers for it are refused.
    ///
    /// # Errors
    /// [`DeregisterError::Busy`] while a peer's request is being served from it: drive the engine and try
    /// again.
    pub fn deregister(&mut self, window: WindowId) -> Result<(), DeregisterError> {
        self.core.deregister(window)
    }

    /// A completion counter; `None`: there is no such counter (`Config::counters_max`).
    pub fn counter(&self, counter: CounterId) -> Option<u64> {
        self.core.counter(counter)
    }

    /// The core's counters since the start.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Closes a peer once all requests submitted to it are acknowledged; `Event::PeerClosed` follows.
    ///
    /// # Errors
    /// [`PeerError::Unknown`], [`PeerError::OutOfRange`].
    pub fn close_peer(&mut self, peer: PeerId) -> Result<(), PeerError> {
        self.core.close_peer(peer)
    }

    fn check(&self, segments: &[Seg]) -> Result<(), MemoryError> {
        segments.iter().try_for_each(|seg| self.memory.check(seg))
    }
}

/// Where a payload of one piece is, or of none.
#[inline(always)]
fn sole_piece(memory: &Memory, segments: &[Seg]) -> Option<(*const u8, u64)> {
    match segments {
        [seg] => Some((memory.start_of(seg)?.cast_const(), seg.len)),
        [] => Some((std::ptr::null(), 0)),
        _ => None,
    }
}
