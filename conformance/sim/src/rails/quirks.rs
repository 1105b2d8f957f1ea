//! A rail that does what the contract of rails allows and well-behaved rails don't, to bring to light what
//! relies on it.
//!
//! * Repeats: every post is reported over once more, later. Endpoints must recognise late reports by the
//!   generation in the post's id.
//! * Pinned: what was registered stays registered, with its key, until the memory goes or a subchannel of the
//!   rail ends: a pin-down cache, as MPI libraries have. Keys that were given back don't fence then, so late
//!   writes of a subchannel whose death only its other end has detected do land: the ghost write of the
//!   design, section 3. The rail still fences by what it can: when this end takes a subchannel down, no key
//!   that was given back stays.
//! * Without rates (`unreported_rates`): the rail announces neither bandwidth nor latency. A rail needn't,
//!   and 0 means that it doesn't.

use std::collections::BTreeMap;

use rerail_core::endpoint::{Arrival, PostStatus, RailFault};
use rerail_core::ids::{PeerId, PostId};
use rerail_core::rail::RailFacts;
use rerail_core::time::Time;
use rerail_linux::rail::{MemoryKey, Piece, Rail, ShortPlace, Sink};

use super::forward::{forward, forward_sink};
use crate::rng::Rng;
use crate::scenario::QuirkSpec;

/// A rail with quirks.
pub struct Quirky {
    inner: Box<dyn Rail>,
    quirks: QuirkSpec,
    rng: Rng,
    /// Reports to be repeated, by the moment and the order of their first coming.
    repeats: BTreeMap<(Time, u64), (PostId, PostStatus)>,
    reports: u64,
    /// By address, bytes and whether peers may write.
    pinned: BTreeMap<(usize, usize, bool), Pin>,
    /// A subchannel has ended: nothing is kept any more.
    ended: bool,
}

/// A registration.
struct Pin {
    key: MemoryKey,
    /// How often it was registered and not given back.
    users: u32,
}

impl Quirky {
    /// The rail, with quirks; `seed` and the rank decide when reports are repeated.
    pub fn around(inner: Box<dyn Rail>, quirks: &QuirkSpec, seed: u64, rank: u32) -> Box<dyn Rail> {
        let rng = Rng::new(seed, &format!("quirks of rank {rank}, {}", inner.name()));
        let (repeats, pinned) = (BTreeMap::new(), BTreeMap::new());
        let (quirks, reports, ended) = (quirks.clone(), 0, false);
        Box::new(Quirky { inner, quirks, rng, repeats, reports, pinned, ended })
    }

    /// Ends what is not used, now and from now on.
    fn end_pins(&mut self) {
        self.ended = true;
        let inner = &mut self.inner;
        self.pinned.retain(|_, pin| {
            if pin.users == 0 {
                inner.deregister(pin.key);
            }
            pin.users > 0
        });
    }
}

/// Hands everything on, and remembers reports.
struct RecordingSink<'a> {
    sink: &'a mut dyn Sink,
    completions: Vec<(PostId, PostStatus)>,
    down: bool,
    reset: bool,
}

// SAFETY: every answer is that of the sink inside.
unsafe impl Sink for RecordingSink<'_> {
    forward_sink!(placed, short, up, no_remote_access, registered, moved, back);

    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival {
        self.sink.arrival(peer, header)
    }

    fn whole(&mut self, peer: PeerId, header: &[u8]) -> ShortPlace {
        self.sink.whole(peer, header)
    }

    fn completed(&mut self, id: PostId, status: PostStatus) {
        self.completions.push((id, status));
        self.sink.completed(id, status);
    }

    fn down(&mut self, peer: PeerId, fault: RailFault) {
        self.down = true;
        self.sink.down(peer, fault);
    }

    fn reset(&mut self) {
        self.reset = true;
        self.sink.reset();
    }
}

impl Rail for Quirky {
    forward!(access, add_peer, connect, post, post_short, post_small);

    fn facts(&self) -> RailFacts {
        let facts = self.inner.facts();
        if self.quirks.unreported_rates { RailFacts { bytes_per_second: 0, latency_ns: 0, ..facts } } else { facts }
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.inner.disconnect(peer);
        self.end_pins();
    }

    fn abort(&mut self, peer: PeerId) {
        self.inner.abort(peer);
        self.end_pins();
    }

    unsafe fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        if !self.quirks.pinned {
            // SAFETY: the caller's promise is the one demanded.
            return unsafe { self.inner.register(memory, write) };
        }
        let name = (memory.start.addr(), memory.len, write);
        if let Some(pin) = self.pinned.get_mut(&name) {
            pin.users += 1;
            return Ok(pin.key);
        }
        // SAFETY: the caller's promise holds until `forget`, and `forget` ends what is kept beyond
        // `deregister`.
        let key = unsafe { self.inner.register(memory, write) }?;
        self.pinned.insert(name, Pin { key, users: 1 });
        Ok(key)
    }

    fn deregister(&mut self, key: MemoryKey) {
        match self.pinned.values_mut().find(|pin| pin.key == key) {
            Some(pin) => pin.users = pin.users.saturating_sub(1),
            None => self.inner.deregister(key),
        }
        if self.ended {
            self.end_pins();
        }
    }

    fn forget(&mut self, memory: Piece) {
        let (start, end) = (memory.start.addr(), memory.start.addr().saturating_add(memory.len));
        self.pinned.retain(|&(at, len, _), _| at >= end || at.saturating_add(len) <= start);
        self.inner.forget(memory);
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        let mut done = 0;
        while let Some(repeat) = self.repeats.first_entry().filter(|repeat| repeat.key().0 <= now) {
            let (id, status) = repeat.remove();
            sink.completed(id, status);
            done += 1;
        }
        let mut sink_record = RecordingSink { sink, completions: Vec::new(), down: false, reset: false };
        done += self.inner.poll(now, &mut sink_record);
        let RecordingSink { completions, down, reset, .. } = sink_record;
        if reset {
            // The device has forgotten them.
            self.pinned.clear();
        }
        if down {
            self.end_pins();
        }
        if self.quirks.repeats.0 > 0 {
            for report in completions {
                self.reports += 1;
                let at = Time(now.0 + self.rng.within(1, self.quirks.repeats.0));
                self.repeats.insert((at, self.reports), report);
            }
        }
        done
    }

    fn next_timeout(&self) -> Option<Time> {
        let repeat = self.repeats.keys().next().map(|(at, _)| *at);
        repeat.into_iter().chain(self.inner.next_timeout()).min()
    }
}
