//! A rail that shows an [`Observer`](super::Observer) what goes over it, and is otherwise the rail inside.

use std::cell::RefCell;
use std::rc::Rc;

use rerail_core::endpoint::{Arrival, PostKind, PostStatus, RailFault};
use rerail_core::ids::{PeerId, PostId};
use rerail_core::time::Time;
use rerail_core::wire::Short;
use rerail_linux::rail::{MemoryKey, Outgoing, Piece, Rail, ShortPlace, Sink};

use super::Path;
use super::observer::{Observer, Sub};
use crate::rails::forward::{forward, forward_sink};

/// The wrapper.
pub struct Witness {
    inner: Box<dyn Rail>,
    observer: Rc<RefCell<Observer>>,
    rank: u32,
    rail: u8,
}

impl Witness {
    /// Around rail number `rail` of a rank.
    pub fn around(inner: Box<dyn Rail>, observer: Rc<RefCell<Observer>>, rank: u32, rail: u8) -> Box<dyn Rail> {
        Box::new(Witness { inner, observer, rank, rail })
    }

    fn sub(&self, peer: PeerId) -> Sub {
        Sub { rank: self.rank, peer: peer.0, rail: self.rail }
    }
}

impl Rail for Witness {
    forward!(access, add_peer, facts, connect, deregister, forget, next_timeout);

    fn disconnect(&mut self, peer: PeerId) {
        self.observer.borrow_mut().ended(self.sub(peer));
        self.inner.disconnect(peer);
    }

    fn abort(&mut self, peer: PeerId) {
        self.observer.borrow_mut().ended(self.sub(peer));
        self.inner.abort(peer);
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        if outgoing.kind == PostKind::Send {
            self.observer.borrow_mut().posted(self.sub(outgoing.peer), outgoing.header);
        }
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.inner.post(outgoing) }
    }

    unsafe fn post_small(&mut self, outgoing: Outgoing<'_>) -> bool {
        self.observer.borrow_mut().posted(self.sub(outgoing.peer), outgoing.header);
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.inner.post_small(outgoing) }
    }

    unsafe fn post_short(&mut self, peer: PeerId, short: &Short, payload: *const u8) -> bool {
        // SAFETY: the caller's promise is the one demanded.
        let is_out = unsafe { self.inner.post_short(peer, short, payload) };
        if !is_out {
            self.observer.borrow_mut().note(Path::ShortFindsNoRoom);
        }
        is_out
    }

    unsafe fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        // SAFETY: the caller's promise is the one demanded.
        let key = unsafe { self.inner.register(memory, write) };
        if key.is_err() {
            self.observer.borrow_mut().note(Path::RegistrationFails);
        }
        key
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        let Witness { inner, observer, rank, rail } = self;
        inner.poll(now, &mut WitnessSink { sink, observer, rank: *rank, rail: *rail, now })
    }
}

struct WitnessSink<'a> {
    sink: &'a mut dyn Sink,
    observer: &'a RefCell<Observer>,
    rank: u32,
    rail: u8,
    now: Time,
}

impl WitnessSink<'_> {
    fn sub(&self, peer: PeerId) -> Sub {
        Sub { rank: self.rank, peer: peer.0, rail: self.rail }
    }
}

// SAFETY: every answer is that of the sink inside.
unsafe impl Sink for WitnessSink<'_> {
    forward_sink!(placed, no_remote_access, registered, back);

    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival {
        self.observer.borrow_mut().arrived(self.sub(peer), header);
        self.sink.arrival(peer, header)
    }

    fn whole(&mut self, peer: PeerId, header: &[u8]) -> ShortPlace {
        let place = self.sink.whole(peer, header);
        if !matches!(place, ShortPlace::Packet) {
            self.observer.borrow_mut().arrived(self.sub(peer), header);
        }
        place
    }

    fn short(&mut self, peer: PeerId, short: &Short) -> ShortPlace {
        let place = self.sink.short(peer, short);
        let mut observer = self.observer.borrow_mut();
        match place {
            ShortPlace::Packet => observer.note(Path::ShortLeavesTheWay),
            ShortPlace::Copy(_) | ShortPlace::Done => observer.short(self.sub(peer)),
        }
        place
    }

    fn completed(&mut self, id: PostId, status: PostStatus) {
        if status == PostStatus::NoAccess {
            self.observer.borrow_mut().note(Path::ReadOpensNothing);
        }
        self.sink.completed(id, status);
    }

    fn up(&mut self, peer: PeerId) {
        self.observer.borrow_mut().up(self.sub(peer));
        self.sink.up(peer);
    }

    fn down(&mut self, peer: PeerId, fault: RailFault) {
        self.observer.borrow_mut().down(self.sub(peer), self.now);
        self.sink.down(peer, fault);
    }

    fn reset(&mut self) {
        self.observer.borrow_mut().note(Path::DeviceReset);
        self.sink.reset();
    }

    fn moved(&mut self) {
        self.observer.borrow_mut().note(Path::RailMoved);
        self.sink.moved();
    }
}
