//! A rail that for a while takes nothing in: reordering between rails.
//!
//! While the gate is closed nothing arrives and nothing completes; posts go out. That is a process whose one
//! completion queue is looked at less often than another, and what a network with one slow rail looks like
//! from its end.

use std::cell::Cell;
use std::rc::Rc;

use rerail_core::time::Time;
use rerail_linux::rail::{Rail, Sink};

use super::forward::forward;

/// A rail behind a gate.
pub struct Gate {
    inner: Box<dyn Rail>,
    closed_until: GateHandle,
    /// The last time that the driver passed.
    now: Time,
}

/// What opens and closes a gate.
#[derive(Clone, Debug, Default)]
pub struct GateHandle(Rc<Cell<Time>>);

impl GateHandle {
    /// Nothing passes until then.
    pub fn close_until(&self, until: Time) {
        self.0.set(self.0.get().max(until));
    }

    /// Everything passes.
    pub fn open(&self) {
        self.0.set(Time(0));
    }
}

impl Gate {
    /// The rail behind an open gate.
    pub fn before(inner: Box<dyn Rail>) -> (Box<dyn Rail>, GateHandle) {
        let handle = GateHandle::default();
        (Box::new(Gate { inner, closed_until: handle.clone(), now: Time(0) }), handle)
    }
}

impl Rail for Gate {
    forward!(
        access, add_peer, facts, connect, disconnect, abort, post, post_short, post_small, register, deregister, forget
    );

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.now = now;
        match self.closed_until.0.get() > now {
            true => 0,
            false => self.inner.poll(now, sink),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let closed_until = self.closed_until.0.get();
        let inner = self.inner.next_timeout();
        match closed_until > self.now {
            // For ever: the code that opens it wakes the rank.
            true if closed_until == Time(u64::MAX) => None,
            true => Some(inner.map_or(closed_until, |at| at.max(closed_until))),
            false => inner,
        }
    }
}
