//! Memory and requests: what the caller hands in.
//!
//! Every request is checked against the regions before the core receives it, so that later, when its memory
//! is resolved, every piece lies in bounds. The core keeps the memory of a request named until the request is
//! over and no rail needs it any more; `free` checks with the core.
#![allow(unsafe_code)]

use std::os::fd::AsFd;

use rerail_core::endpoint::{
    AtomicRequest, CancelError, DeregisterError, FlushRequest, Found, GetRequest, PeerError, PutRequest, RecvRequest,
    Selector, SendRequest, Stats, SubmitError, Window,
};
use rerail_core::ids::{CounterId, MessageId, OpId, PeerId, WindowId};
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::time::Time;

use super::drive::resolve;
use super::engine::Engine;
use super::{Clock, MemoryError, RequestError, Transport, WindowError};
use crate::memory::{Core, Memory};
use crate::rail::Piece;

/// The alignment of regions that atomics work on: the core checks the offsets of values in a region, and this
/// makes their addresses follow.
const REGION_ALIGN: u64 = 8;

impl<C: Clock> Transport<C> {
    /// Allocates a region of `bytes` zeroed bytes, page aligned.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`] for 0 bytes, [`MemoryError::System`] where the system refuses.
    pub fn alloc(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        self.engine.memory.alloc(bytes)
    }

    /// As [`alloc`](Self::alloc), of memory that peers on this host may map (L-18): they copy large messages
    /// out of it themselves, about three times as fast as by the system, and get from a window in it without
    /// this process (L-26). For buffers that live long.
    /// A peer that has it mapped can read all of it at any time, as long as it keeps the mapping; after
    /// `fork`, a child shares it instead of getting a copy. The first 64 such regions are offered to peers,
    /// further ones are as those of `alloc`. All of its memory is taken at once.
    ///
    /// # Errors
    /// As `alloc`; and [`MemoryError::System`] where the system has no files that can be sealed so (Linux
    /// before 5.1).
    pub fn alloc_shared(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        self.alloc_offered(bytes, false)
    }

    /// As [`alloc_shared`](Self::alloc_shared), of memory that peers on this host may also write: they put
    /// into a window in it without this process (L-26), too. It is shared with them in full: what a peer
    /// that breaks the rules does, it may do to all of this region, at any time; also take its pages away,
    /// which then count anew, against the memory limit of who touches them. While such a window stands, its
    /// bytes are not lent: use [`read`](Self::read), [`write`](Self::write) or
    /// [`pointer`](Self::pointer).
    ///
    /// # Errors
    /// As `alloc_shared`.
    pub fn alloc_window(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        self.alloc_offered(bytes, true)
    }

    fn alloc_offered(&mut self, bytes: usize, is_writable: bool) -> Result<RegionId, MemoryError> {
        let (region, file) = self.engine.memory.alloc_shared(bytes, is_writable)?;
        let memory = self.engine.memory.whole(region)?;
        self.engine.rails.iter_mut().for_each(|(_, rail)| rail.offer(memory, file.as_fd(), is_writable));
        Ok(region)
    }

    /// Gives a region back: an allocated one is unmapped, an adopted one is the caller's alone again.
    ///
    /// # Errors
    /// [`MemoryError::InUse`] while a window or a request that is not over names it, or a rail is not through
    /// with it yet; nothing happens then. Drive the transport and try again.
    pub fn free(&mut self, region: RegionId) -> Result<(), MemoryError> {
        self.engine.memory.check(&Seg::new(region, 0, 0))?;
        if self.engine.core.uses_region(region) {
            return Err(MemoryError::InUse(region));
        }
        let memory = self.engine.memory.whole(region)?;
        let is_adopted = self.engine.memory.is_adopted(region);
        for (_, rail) in self.engine.rails.iter_mut() {
            match is_adopted {
                false => rail.forget(memory),
                true => rail.adopt(memory, true),
            }
        }
        self.engine.memory.remove(region)
    }

    /// Ends the rails' registrations of a part of a region, which no request or window that is not over may
    /// name. With the setting `verbs_keep_adopted`, rails keep registrations of adopted memory for the next
    /// request from there: call this before such memory is unmapped or mapped again, else that request would
    /// move the memory that was there before.
    ///
    /// # Errors
    /// [`MemoryError`] where the segment is not in a region; nothing happens then.
    pub fn invalidate(&mut self, part: &Seg) -> Result<(), MemoryError> {
        self.engine.memory.check(part)?;
        let memory = self.engine.memory.resolve(part)?;
        self.engine.rails.iter_mut().for_each(|(_, rail)| rail.forget(memory));
        Ok(())
    }

    /// The bytes of an allocated region: [`part`](Self::part) of all of it.
    ///
    /// # Errors
    /// As there.
    pub fn bytes(&self, region: RegionId) -> Result<&[u8], MemoryError> {
        self.part(&self.engine.memory.all_of(region)?)
    }

    /// As [`bytes`](Self::bytes), for writing: [`part_mut`](Self::part_mut) of all of it.
    ///
    /// # Errors
    /// As there.
    pub fn bytes_mut(&mut self, region: RegionId) -> Result<&mut [u8], MemoryError> {
        self.part_mut(&self.engine.memory.all_of(region)?)
    }

    /// Bytes of an allocated region that no request may be writing to: a device or another process may do so
    /// at any time. Windows may be looked at, as peers' requests are served only while this transport is
    /// driven, but for those that allow puts in memory of [`alloc_window`](Self::alloc_window). Scans the
    /// requests that are not over.
    ///
    /// # Errors
    /// [`MemoryError::InUse`] while a receive, a get or such a window names one of the bytes; [`MemoryError`]
    /// where they are not in an allocated region.
    pub fn part(&self, part: &Seg) -> Result<&[u8], MemoryError> {
        let Engine { core, memory, .. } = &self.engine;
        let piece = memory.owned(part)?;
        if core.is_written_to(|used| memory.overlap(&piece, used)) || is_exposed(core, memory, part) {
            return Err(MemoryError::InUse(part.at.region));
        }
        // SAFETY: no receive or get that is not over names the bytes, so no device and no other process
        // writes to them; this process does so only while it is driven, for which this borrow has ended.
        unsafe { memory.bytes(part) }
    }

    /// As [`part`](Self::part), for writing.
    ///
    /// # Errors
    /// As there; [`MemoryError::InUse`] while any request that is not over names one of the bytes.
    pub fn part_mut(&mut self, part: &Seg) -> Result<&mut [u8], MemoryError> {
        let Engine { core, memory, .. } = &mut self.engine;
        let piece = memory.owned(part)?;
        if core.is_used(|used| memory.overlap(&piece, used)) || is_exposed(core, memory, part) {
            return Err(MemoryError::InUse(part.at.region));
        }
        // SAFETY: as in `part`; and no request names them to be read.
        unsafe { memory.bytes_mut(part) }
    }

    /// Copies bytes of an allocated region out, whether in use or not: one by one, so that what is being
    /// written may come in part.
    ///
    /// # Errors
    /// [`MemoryError`] where they are not in an allocated region.
    pub fn read(&self, at: MemRef, into: &mut [u8]) -> Result<(), MemoryError> {
        self.engine.memory.read(at, into)
    }

    /// Copies bytes into an allocated region, whether in use or not; as [`read`](Self::read).
    ///
    /// # Errors
    /// As there.
    pub fn write(&mut self, at: MemRef, from: &[u8]) -> Result<(), MemoryError> {
        self.engine.memory.write(at, from)
    }

    /// Where an allocated region lies, until it is freed. Access memory in use by atomic or volatile
    /// operations only, and make no reference to it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn pointer(&self, region: RegionId) -> Result<*mut [u8], MemoryError> {
        let Piece { start, len } = self.engine.memory.owned(&self.engine.memory.all_of(region)?)?;
        Ok(std::ptr::slice_from_raw_parts_mut(start, len))
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
    /// From the moment that a request or window names a part of the region until the request is
    /// over (its completion was reported) or the window is deregistered, or the transport is dropped, that
    /// part must be mapped, readable, and writable where peers or receives write to it; no Rust reference
    /// to it may be used while the transport is driven; other threads may access it while it is the target
    /// of atomics only by atomics, and otherwise not at all. With the setting `verbs_keep_adopted`, memory
    /// that a request or window has named is unmapped, or mapped again, only when
    /// [`invalidate`](Self::invalidate) or [`free`](Self::free) was called for it.
    pub unsafe fn adopt(&mut self, start: *mut u8, len: usize) -> Result<RegionId, MemoryError> {
        // SAFETY: the caller's promise is the one demanded.
        let region = unsafe { self.engine.memory.adopt(start, len) }?;
        let memory = self.engine.memory.whole(region)?;
        self.engine.rails.iter_mut().for_each(|(_, rail)| rail.adopt(memory, false));
        Ok(region)
    }

    /// Takes all of this process's memory as one region: offsets in it are addresses, as
    /// [`Seg::at_address`] makes them.
    ///
    /// # Errors
    /// [`MemoryError::TooManyRegions`].
    ///
    /// # Safety
    /// The promise of [`adopt`](Self::adopt), for every part that a request or window names.
    pub unsafe fn adopt_address_space(&mut self) -> Result<RegionId, MemoryError> {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.adopt(std::ptr::null_mut(), usize::MAX) }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`RequestError::Memory`] where a segment is not in a region, [`RequestError::Submit`] where the core
    /// refuses; nothing happened then.
    #[inline(always)]
    pub fn send(&mut self, send: &SendRequest<'_>) -> Result<OpId, RequestError> {
        match self.engine.send_inline(send) {
            Some(operation) => Ok(operation),
            None => {
                // Chosen here: a function that has two ways saves registers for both.
                let way = if self.engine.quick_rails == 0 { Self::send_whole } else { Self::send_otherwise };
                way(self, send)
            }
        }
    }

    #[inline(never)]
    fn send_otherwise(&mut self, send: &SendRequest<'_>) -> Result<OpId, RequestError> {
        match self.engine.send_short(send) {
            Some(operation) => Ok(operation),
            None => self.send_whole(send),
        }
    }

    #[cold]
    #[inline(never)]
    fn send_whole(&mut self, send: &SendRequest<'_>) -> Result<OpId, RequestError> {
        let now = self.clock.now();
        // It looks at the memory, too.
        let operation = match self.engine.send_at_once(now, send) {
            Some(operation) => operation,
            None => {
                self.check(send.segments)?;
                self.engine.core.send(now, send)?
            }
        };
        self.submitted(now, send.peer, send.more);
        Ok(operation)
    }

    /// Sends `payload` as a message, copied at once: the caller's buffer is free when this returns. At most
    /// `Config::eager_bytes_max` bytes.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`RequestError::InjectSegments`] where `send` names segments too.
    pub fn inject(&mut self, send: &SendRequest<'_>, payload: &[u8]) -> Result<OpId, RequestError> {
        if !send.segments.is_empty() {
            return Err(RequestError::InjectSegments { given: send.segments.len() });
        }
        if let Some(operation) = self.engine.inject_short(send, payload) {
            return Ok(operation);
        }
        let Engine { core, memory, scratch, .. } = &mut self.engine;
        let now = self.clock.now();
        let (operation, place) = core.inject(now, send, payload.len() as u64)?;
        resolve(core, memory, place, &mut scratch.target);
        let copied = memory.fill(payload, &scratch.target);
        debug_assert_eq!(copied, payload.len(), "the core gave an injected payload too little room");
        self.submitted(now, send.peer, send.more);
        Ok(operation)
    }

    /// Posts a buffer for a message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[inline(always)]
    pub fn recv(&mut self, recv: &RecvRequest<'_>) -> Result<OpId, RequestError> {
        match self.engine.recv_short(recv) {
            Some(operation) => Ok(operation),
            None => self.recv_otherwise(recv),
        }
    }

    #[inline(never)]
    fn recv_otherwise(&mut self, recv: &RecvRequest<'_>) -> Result<OpId, RequestError> {
        match self.engine.recv_beside_waiting(recv) {
            Some(operation) => Ok(operation),
            None => self.recv_whole(recv),
        }
    }

    #[cold]
    #[inline(never)]
    fn recv_whole(&mut self, recv: &RecvRequest<'_>) -> Result<OpId, RequestError> {
        self.check(recv.segments)?;
        self.round_timer.force();
        Ok(self.engine.core.recv(self.clock.now(), recv)?)
    }

    /// The oldest message that has arrived without a receive and matches; it stays where it is.
    pub fn probe(&self, selector: &Selector) -> Option<Found> {
        self.engine.core.probe(selector)
    }

    /// As [`probe`](Self::probe), but takes the message out of matching: only
    /// [`recv_claimed`](Self::recv_claimed) receives it.
    pub fn claim(&mut self, selector: &Selector) -> Option<(MessageId, Found)> {
        self.engine.core.claim(selector)
    }

    /// Receives a claimed message; the selector of `recv` does not matter.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn recv_claimed(&mut self, message: MessageId, recv: &RecvRequest<'_>) -> Result<OpId, RequestError> {
        self.check(recv.segments)?;
        self.round_timer.force();
        Ok(self.engine.core.recv_claimed(self.clock.now(), message, recv)?)
    }

    /// Cancels a request. If that succeeds, its completion is `Cancelled`.
    ///
    /// # Errors
    /// [`CancelError::TooLate`] where it will complete by itself, [`CancelError::Unknown`] where it is over.
    pub fn cancel(&mut self, operation: OpId) -> Result<(), CancelError> {
        self.round_timer.force();
        self.engine.core.cancel(operation)?;
        if self.registrations() > 0 {
            // The request may have been registered before its turn came. Once its completion is reported, its
            // memory is the caller's, to unmap for example, and no rail may hold it then.
            self.engine.carry_out(self.clock.now());
        }
        Ok(())
    }

    /// Writes local segments into a peer's window.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn put(&mut self, put: &PutRequest<'_>) -> Result<OpId, RequestError> {
        if self.engine.put_directly(put) {
            self.spin.idle_rounds = 0;
            return Ok(self.engine.core.direct_id(true));
        }
        self.submit(put.to.peer, put.segments, |core, now| core.put(now, put))
    }

    /// Writes `payload` into a peer's window, copied at once: the caller's buffer is free when this returns.
    /// At most `Config::eager_bytes_max` bytes. It is complete as any put.
    ///
    /// # Errors
    /// As [`inject`](Self::inject).
    pub fn inject_put(&mut self, put: &PutRequest<'_>, payload: &[u8]) -> Result<OpId, RequestError> {
        if !put.segments.is_empty() {
            return Err(RequestError::InjectSegments { given: put.segments.len() });
        }
        if self.engine.inject_directly(put, payload) {
            return Ok(self.engine.core.direct_id(true));
        }
        let Engine { core, memory, scratch, .. } = &mut self.engine;
        let now = self.clock.now();
        let (operation, place) = core.inject_put(now, put, payload.len() as u64)?;
        resolve(core, memory, place, &mut scratch.target);
        let copied = memory.fill(payload, &scratch.target);
        debug_assert_eq!(copied, payload.len(), "the core gave an injected payload too little room");
        self.submitted(now, put.to.peer, false);
        Ok(operation)
    }

    /// Reads a peer's window into local segments.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn get(&mut self, get: &GetRequest<'_>) -> Result<OpId, RequestError> {
        if self.engine.get_directly(get) {
            self.spin.idle_rounds = 0;
            return Ok(self.engine.core.direct_id(false));
        }
        self.submit(get.from.peer, get.segments, |core, now| core.get(now, get))
    }

    /// Changes one value in a peer's window atomically; its completion brings the value before.
    ///
    /// # Errors
    /// [`RequestError::Submit`] where the core refuses.
    pub fn atomic(&mut self, atomic: &AtomicRequest) -> Result<OpId, RequestError> {
        self.submit(atomic.at.peer, &[], |core, now| core.atomic(now, atomic))
    }

    /// Completes when every put, get and atomic submitted to the peer before it is done at the peer.
    ///
    /// # Errors
    /// [`RequestError::Submit`] where the core refuses.
    pub fn flush(&mut self, flush: &FlushRequest) -> Result<OpId, RequestError> {
        self.submit(flush.peer, &[], |core, now| core.flush(now, flush))
    }

    /// Exposes memory to the one-sided requests of peers that have the window's key. Peers on this host may
    /// get from it at any time, not only while this transport is driven.
    ///
    /// # Errors
    /// [`WindowError::Memory`] where it is not in a region, [`WindowError::Misaligned`] where atomics are
    /// allowed and its region does not start on a multiple of 8 bytes, [`WindowError::Expose`] where the core
    /// refuses.
    pub fn expose(&mut self, window: &Window) -> Result<WindowId, WindowError> {
        let seg = Seg { at: window.at, len: window.len };
        self.engine.memory.check(&seg)?;
        let address = self.engine.memory.resolve(&seg)?.start.addr();
        if window.access.atomic && !(address as u64 ^ window.at.offset).is_multiple_of(REGION_ALIGN) {
            return Err(WindowError::Misaligned { address, align: REGION_ALIGN as usize });
        }
        let id = self.engine.core.expose(window)?;
        let memory = self.engine.memory.resolve(&seg)?;
        self.engine.rails.iter_mut().for_each(|(_, rail)| rail.expose(window.key, memory, window.access));
        Ok(id)
    }

    /// Ends the exposure of a window; later requests of peers for it are refused.
    ///
    /// # Errors
    /// [`DeregisterError::Busy`] while a peer's request is being served from it, or a peer on this host is
    /// putting into it by itself: drive the transport and try again.
    pub fn deregister(&mut self, window: WindowId) -> Result<(), DeregisterError> {
        let key = self.engine.core.releasable(window)?;
        let mut is_over = true;
        self.engine.rails.iter_mut().for_each(|(_, rail)| is_over &= rail.withdraw(key));
        if is_over { self.engine.core.deregister(window) } else { Err(DeregisterError::Busy) }
    }

    /// A completion counter; `None`: there is no such counter (`Config::counters_max`).
    pub fn counter(&self, counter: CounterId) -> Option<u64> {
        self.engine.core.counter(counter)
    }

    /// The core's counters since the start.
    pub fn stats(&self) -> Stats {
        self.engine.core.stats()
    }

    /// Closes a peer once all requests submitted to it are acknowledged; `Event::PeerClosed` follows.
    ///
    /// # Errors
    /// [`PeerError::Unknown`], [`PeerError::OutOfRange`].
    pub fn close_peer(&mut self, peer: PeerId) -> Result<(), PeerError> {
        self.round_timer.force();
        self.engine.core.close_peer(peer)
    }

    /// Gives back the connections to a peer with which nothing is under way, if it agrees; the next request
    /// of either side connects again. Idle peers are parked without this when channels are short (the setting
    /// `channels`). Returns whether PARK is sent.
    pub fn park(&mut self, peer: PeerId) -> bool {
        self.round_timer.force();
        let now = self.clock.now();
        self.engine.core.park(now, peer)
    }

    /// Checks the memory of a request to a peer, and passes it to the core.
    fn submit(
        &mut self,
        peer: PeerId,
        segments: &[Seg],
        request: impl FnOnce(&mut Core, Time) -> Result<OpId, SubmitError>,
    ) -> Result<OpId, RequestError> {
        self.check(segments)?;
        let now = self.clock.now();
        let operation = request(&mut self.engine.core, now)?;
        self.submitted(now, peer, false);
        Ok(operation)
    }

    /// A request was submitted that can't take the express path. It is sent at once, unless its rail is busy,
    /// or `more` follow (P-16): a ring is busy only while it has no room, other rails until they report what
    /// they have. Requests that collect until the rail is free are sent together
    /// (newmadeleine-2007, 2). The next round sends it in any case.
    fn submitted(&mut self, now: Time, peer: PeerId, more: bool) {
        self.engine.met.insert(peer);
        if C::POSTS_AT_ONCE && !more && self.engine.is_free(now, peer) {
            self.engine.carry_out(now);
        }
        self.round_timer.busy(now);
    }

    fn check(&self, segments: &[Seg]) -> Result<(), MemoryError> {
        segments.iter().try_for_each(|seg| self.engine.memory.check(seg))
    }
}

/// Whether peers may be writing to a part of a region at any time (L-26).
fn is_exposed(core: &Core, memory: &Memory, part: &Seg) -> bool {
    let Ok(piece) = memory.resolve(part) else { return false };
    memory.is_peer_writable(part.at.region) && core.is_exposed_to_puts(|window| memory.overlap(&piece, window))
}
