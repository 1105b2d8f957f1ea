//! Memory and requests: stamps the caller's requests with the clock and passes them to the engine, whose
//! methods of the same names hold the documentation.

use rerail_core::endpoint::{
    AtomicRequest, CancelError, DeregisterError, FlushRequest, Found, GetRequest, PeerError, PutRequest, RecvRequest,
    Selector, SendRequest, Stats, Window,
};
use rerail_core::ids::{CounterId, MessageId, OpId, PeerId, WindowId};
use rerail_core::mem::{RegionId, Seg};

use super::{MemoryError, RequestError, Transport, WindowError, now};

impl Transport {
    /// Allocates a region of `bytes` zeroed bytes, page aligned: [`Engine::alloc`](super::Engine::alloc).
    ///
    /// # Errors
    /// As there.
    pub fn alloc(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        self.engine.alloc(bytes)
    }

    /// As [`alloc`](Self::alloc), of memory that peers on this host may map:
    /// [`Engine::alloc_shared`](super::Engine::alloc_shared).
    ///
    /// # Errors
    /// As there.
    pub fn alloc_shared(&mut self, bytes: usize) -> Result<RegionId, MemoryError> {
        self.engine.alloc_shared(bytes)
    }

    /// Gives a region back: [`Engine::free`](super::Engine::free).
    ///
    /// # Errors
    /// As there.
    pub fn free(&mut self, region: RegionId) -> Result<(), MemoryError> {
        self.engine.free(region)
    }

    /// The bytes of an allocated region: [`Engine::bytes`](super::Engine::bytes).
    pub fn bytes(&self, region: RegionId) -> Option<&[u8]> {
        self.engine.bytes(region)
    }

    /// The bytes of an allocated region, for writing: [`Engine::bytes_mut`](super::Engine::bytes_mut).
    pub fn bytes_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.engine.bytes_mut(region)
    }

    /// Takes `len` bytes of the caller's memory at `start` as a region:
    /// [`Engine::adopt`](super::Engine::adopt).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The promise demanded there, with this transport for the engine.
    pub unsafe fn adopt(&mut self, start: *mut u8, len: usize) -> Result<RegionId, MemoryError> {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.engine.adopt(start, len) }
    }

    /// Takes all of this process's memory as one region: offsets in it are addresses, as
    /// [`Seg::at_address`] makes them.
    ///
    /// # Errors
    /// [`MemoryError::TooManyRegions`].
    ///
    /// # Safety
    /// The promise of [`Engine::adopt`](super::Engine::adopt), for every part that a request or window names.
    pub unsafe fn adopt_address_space(&mut self) -> Result<RegionId, MemoryError> {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.engine.adopt(std::ptr::null_mut(), usize::MAX) }
    }

    /// Ends the rails' registrations of memory about to be unmapped:
    /// [`Engine::invalidate`](super::Engine::invalidate).
    ///
    /// # Errors
    /// As there.
    pub fn invalidate(&mut self, part: &Seg) -> Result<(), MemoryError> {
        self.engine.invalidate(part)
    }

    /// Sends a message: [`Engine::send`](super::Engine::send).
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, send: &SendRequest<'_>) -> Result<OpId, RequestError> {
        if let Some(operation) = self.engine.send_short(send) {
            return Ok(operation);
        }
        let now = now();
        let operation = self.engine.send_whole(now, send)?;
        self.submitted(now, send.peer);
        Ok(operation)
    }

    /// Sends `payload` as a message, copied at once: [`Engine::inject`](super::Engine::inject).
    ///
    /// # Errors
    /// As there.
    pub fn inject(&mut self, send: &SendRequest<'_>, payload: &[u8]) -> Result<OpId, RequestError> {
        let now = now();
        let operation = self.engine.inject(now, send, payload)?;
        self.submitted(now, send.peer);
        Ok(operation)
    }

    /// Posts a buffer for a message: [`Engine::recv`](super::Engine::recv).
    ///
    /// # Errors
    /// As there.
    pub fn recv(&mut self, recv: &RecvRequest<'_>) -> Result<OpId, RequestError> {
        if let Some(operation) = self.engine.recv_short(recv) {
            return Ok(operation);
        }
        self.pace.force();
        self.engine.recv_whole(now(), recv)
    }

    /// The oldest message that has arrived without a receive and matches:
    /// [`Engine::probe`](super::Engine::probe).
    pub fn probe(&self, selector: &Selector) -> Option<Found> {
        self.engine.probe(selector)
    }

    /// As [`probe`](Self::probe), but takes the message out of matching:
    /// [`Engine::claim`](super::Engine::claim).
    pub fn claim(&mut self, selector: &Selector) -> Option<(MessageId, Found)> {
        self.engine.claim(selector)
    }

    /// Receives a claimed message: [`Engine::recv_claimed`](super::Engine::recv_claimed).
    ///
    /// # Errors
    /// As there.
    pub fn recv_claimed(&mut self, message: MessageId, recv: &RecvRequest<'_>) -> Result<OpId, RequestError> {
        self.pace.force();
        self.engine.recv_claimed(now(), message, recv)
    }

    /// Takes a request back: [`Engine::cancel`](super::Engine::cancel).
    ///
    /// # Errors
    /// As there.
    pub fn cancel(&mut self, operation: OpId) -> Result<(), CancelError> {
        self.pace.force();
        self.engine.cancel(now(), operation)
    }

    /// Writes local segments into a peer's window: [`Engine::put`](super::Engine::put).
    ///
    /// # Errors
    /// As there.
    pub fn put(&mut self, put: &PutRequest<'_>) -> Result<OpId, RequestError> {
        let now = now();
        let operation = self.engine.put(now, put)?;
        self.submitted(now, put.to.peer);
        Ok(operation)
    }

    /// Reads a peer's window into local segments: [`Engine::get`](super::Engine::get).
    ///
    /// # Errors
    /// As there.
    pub fn get(&mut self, get: &GetRequest<'_>) -> Result<OpId, RequestError> {
        let now = now();
        let operation = self.engine.get(now, get)?;
        self.submitted(now, get.from.peer);
        Ok(operation)
    }

    /// Changes one value in a peer's window atomically: [`Engine::atomic`](super::Engine::atomic).
    ///
    /// # Errors
    /// As there.
    pub fn atomic(&mut self, atomic: &AtomicRequest) -> Result<OpId, RequestError> {
        let now = now();
        let operation = self.engine.atomic(now, atomic)?;
        self.submitted(now, atomic.at.peer);
        Ok(operation)
    }

    /// Completes when every put, get and atomic submitted to the peer before it is done at the peer:
    /// [`Engine::flush`](super::Engine::flush).
    ///
    /// # Errors
    /// As there.
    pub fn flush(&mut self, flush: &FlushRequest) -> Result<OpId, RequestError> {
        self.pace.force();
        self.engine.flush(now(), flush)
    }

    /// Exposes memory to the one-sided requests of peers that have the window's key:
    /// [`Engine::expose`](super::Engine::expose).
    ///
    /// # Errors
    /// As there.
    pub fn expose(&mut self, window: &Window) -> Result<WindowId, WindowError> {
        self.engine.expose(window)
    }

    /// Ends the exposure of a window: [`Engine::deregister`](super::Engine::deregister).
    ///
    /// # Errors
    /// As there.
    pub fn deregister(&mut self, window: WindowId) -> Result<(), DeregisterError> {
        self.engine.deregister(window)
    }

    /// A completion counter: [`Engine::counter`](super::Engine::counter).
    pub fn counter(&self, counter: CounterId) -> Option<u64> {
        self.engine.counter(counter)
    }

    /// The core's counters since the start: [`Engine::stats`](super::Engine::stats).
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Closes a peer once all requests submitted to it are acknowledged:
    /// [`Engine::close_peer`](super::Engine::close_peer).
    ///
    /// # Errors
    /// As there.
    pub fn close_peer(&mut self, peer: PeerId) -> Result<(), PeerError> {
        self.pace.force();
        self.engine.close_peer(peer)
    }
}
