//! Memory and requests: what the caller hands in, stamped with the clock and given to the engine.

use rerail_core::endpoint::{
    Atomic, CancelError, ConcealError, Flush, Found, Get, PeerError, Put, Recv, Selector, Send, Stats, Window,
};
use rerail_core::ids::{CounterId, MessageId, OpId, PeerId, WindowId};
use rerail_core::mem::RegionId;

use super::{MemoryError, RequestError, Transport, WindowError, now};

impl Transport {
    /// Allocates a region of `bytes` zeroed bytes, page aligned.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`] for 0 bytes, [`MemoryError::System`] where the system refuses.
    pub fn alloc(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        self.engine.alloc(bytes)
    }

    /// Gives a region back: an allocated one is unmapped, an adopted one is the caller's alone again.
    ///
    /// # Errors
    /// [`MemoryError::InUse`] while a window or a request that is not over names it, or a rail is not through with it
    /// yet; nothing happens then. Drive the transport and try again.
    pub fn free(&mut self, region: RegionId) -> Result<(), MemoryError> {
        self.engine.free(region)
    }

    /// The bytes of an allocated region. `None`: there is no such region, or it was adopted (the caller has its own
    /// way to that memory).
    pub fn bytes(&self, region: RegionId) -> Option<&[u8]> {
        self.engine.bytes(region)
    }

    /// As [`bytes`](Self::bytes), for writing.
    pub fn bytes_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.engine.bytes_mut(region)
    }

    /// Takes `len` bytes of the caller's memory at `start` as a region, without touching it. The region may be larger
    /// than what is mapped (even the whole address space, with a null `start` and offsets as addresses): the promise
    /// below concerns only what is named.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`] for 0 bytes and for ranges that wrap around.
    ///
    /// # Safety
    /// From the moment that a request or window names a part of the region until the request is over (its completion
    /// was told) or the window is concealed, or the transport is dropped, that part must be mapped, readable, and
    /// writable where peers or receives write to it; no Rust reference to it may be used while the transport is driven;
    /// other threads may access it while it is the target of atomics only by atomics, and otherwise not at all.
    pub unsafe fn adopt(&mut self, start: *mut u8, len: usize) -> Result<RegionId, MemoryError> {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.engine.adopt(start, len) }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`RequestError::Memory`] where a segment is not in a region, [`RequestError::Submit`] where the core refuses;
    /// nothing happened then.
    pub fn send(&mut self, send: &Send<'_>) -> Result<OpId, RequestError> {
        self.engine.send(now(), send)
    }

    /// Sends `payload` as a message, copied at once: the caller's buffer is free when this returns. At most
    /// `Config::eager_bytes_max` bytes.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`RequestError::InjectSegments`] where `send` names segments too.
    pub fn inject(&mut self, send: &Send<'_>, payload: &[u8]) -> Result<OpId, RequestError> {
        self.engine.inject(now(), send, payload)
    }

    /// Posts a buffer for a message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn recv(&mut self, recv: &Recv<'_>) -> Result<OpId, RequestError> {
        self.engine.recv(now(), recv)
    }

    /// The oldest message that has arrived without a receive and matches; it stays where it is.
    pub fn probe(&self, selector: &Selector) -> Option<Found> {
        self.engine.probe(selector)
    }

    /// As [`probe`](Self::probe), but takes the message out of matching: only [`recv_claimed`](Self::recv_claimed)
    /// receives it.
    pub fn claim(&mut self, selector: &Selector) -> Option<(MessageId, Found)> {
        self.engine.claim(selector)
    }

    /// Receives a claimed message; the selector of `recv` does not matter.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn recv_claimed(&mut self, message: MessageId, recv: &Recv<'_>) -> Result<OpId, RequestError> {
        self.engine.recv_claimed(now(), message, recv)
    }

    /// Takes a request back. If that succeeds, its completion says `Cancelled`.
    ///
    /// # Errors
    /// [`CancelError::TooLate`] where it will complete by itself, [`CancelError::Unknown`] where it is over.
    pub fn cancel(&mut self, operation: OpId) -> Result<(), CancelError> {
        self.engine.cancel(now(), operation)
    }

    /// Writes local segments into a peer's window.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn put(&mut self, put: &Put<'_>) -> Result<OpId, RequestError> {
        self.engine.put(now(), put)
    }

    /// Reads a peer's window into local segments.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn get(&mut self, get: &Get<'_>) -> Result<OpId, RequestError> {
        self.engine.get(now(), get)
    }

    /// Changes one value in a peer's window atomically; its completion brings the value before.
    ///
    /// # Errors
    /// [`RequestError::Submit`] where the core refuses.
    pub fn atomic(&mut self, atomic: &Atomic) -> Result<OpId, RequestError> {
        self.engine.atomic(now(), atomic)
    }

    /// Completes when every put, get and atomic submitted to the peer before it is done at the peer.
    ///
    /// # Errors
    /// [`RequestError::Submit`] where the core refuses.
    pub fn flush(&mut self, flush: &Flush) -> Result<OpId, RequestError> {
        self.engine.flush(now(), flush)
    }

    /// Exposes memory to the one-sided requests of peers that know the window's key.
    ///
    /// # Errors
    /// [`WindowError::Memory`] where it is not in a region, [`WindowError::Misaligned`] where atomics are allowed and
    /// the window does not start on a multiple of 8 bytes, [`WindowError::Expose`] where the core refuses.
    pub fn expose(&mut self, window: &Window) -> Result<WindowId, WindowError> {
        self.engine.expose(window)
    }

    /// Ends the exposure of a window; later requests of peers for it are refused.
    ///
    /// # Errors
    /// [`ConcealError::Busy`] while a peer's request is being served from it: drive the transport and try again.
    pub fn conceal(&mut self, window: WindowId) -> Result<(), ConcealError> {
        self.engine.conceal(window)
    }

    /// A completion counter; `None`: there is no such counter (`Config::counters_max`).
    pub fn counter(&self, counter: CounterId) -> Option<u64> {
        self.engine.counter(counter)
    }

    /// What the core counted since the start.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Says goodbye to a peer once all that was submitted to it is acknowledged; `Event::PeerClosed` follows.
    ///
    /// # Errors
    /// [`PeerError::Unknown`], [`PeerError::OutOfRange`].
    pub fn close_peer(&mut self, peer: PeerId) -> Result<(), PeerError> {
        self.engine.close_peer(now(), peer)
    }
}
