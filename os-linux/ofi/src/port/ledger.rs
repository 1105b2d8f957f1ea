//! Requests under way, and where their completions go.

use std::collections::VecDeque;
use std::ffi::c_int;

use rerail_core::endpoint::{Completion, Done, Event, Loss, OpError, Written};
use rerail_core::ids::{Cookie, OpId, PeerId};

use super::names::Names;
use crate::abi::*;
use crate::memory::Target;

/// The cookie of requests that complete without an event.
pub const SILENT: Cookie = Cookie(u64::MAX);

/// Things by number; a number is free for the next one when its thing is gone.
pub struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Takes a thing in.
    #[inline]
    pub fn insert(&mut self, thing: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.slots[number as usize] = Some(thing);
            return number;
        }
        self.slots.push(Some(thing));
        (self.slots.len() - 1) as u32
    }

    /// Gives a thing out.
    #[inline]
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let thing = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(thing)
    }

    /// Looks at a thing.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number as usize)?.as_ref()
    }

    /// Looks at a thing, to change it.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }

    /// Drops all.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
    }
}

/// A queue that an endpoint is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Its number.
    pub queue: u32,
    /// Only requests with `FI_COMPLETION` make one.
    pub selective: bool,
}

/// What an endpoint is bound to and was opened with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Endpoint {
    /// Its address vector.
    pub vector: Option<u32>,
    /// Receives may name a source.
    pub directed: bool,
    /// Where sends and one-sided requests complete.
    pub tx: Option<Bound>,
    /// Where receives complete.
    pub rx: Option<Bound>,
    /// Counter of sends.
    pub sends: Option<u32>,
    /// Counter of receives.
    pub receives: Option<u32>,
    /// Counter of reads and fetching atomics.
    pub reads: Option<u32>,
    /// Counter of writes and other atomics.
    pub writes: Option<u32>,
    /// Flags of sending calls that take none.
    pub tx_flags: u64,
    /// Flags of receiving calls that take none.
    pub rx_flags: u64,
    /// A multi-receive with less room is released.
    pub multi_bytes_min: u64,
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An outgoing message.
    Send,
    /// A buffer for one message.
    Recv,
    /// A buffer for several.
    Multi,
    /// A read, or an atomic that returns the previous value.
    Read,
    /// A write, or another atomic.
    Write,
}

/// A request under way.
pub struct Record {
    /// The caller's.
    pub context: u64,
    /// Flags of its completion.
    pub flags: u64,
    /// Its endpoint.
    pub endpoint: u32,
    /// Its kind.
    pub what: What,
    /// Whether success makes a completion.
    pub needs_event: bool,
    /// The transport's id of it; `None`: not submitted yet.
    pub operation: Option<OpId>,
    /// Where its buffer starts.
    pub address: u64,
    /// A message of a multi-receive has failed.
    pub failed: bool,
    /// A copy of what the caller has injected: the transport may read it until the request is complete.
    #[allow(dead_code, reason = "held for the transport, which has its address")]
    pub copy: Option<Box<[u8]>>,
    /// Where the values before an atomic go.
    pub old: Option<Target>,
    /// Of an atomic on several values: how many requests of the transport are not complete, beside one.
    pub others: u32,
    /// Why one of these failed, the first that did.
    pub error: c_int,
}

impl Record {
    /// A request without a completion on success.
    pub fn new(endpoint: u32, what: What, context: u64, flags: u64) -> Record {
        Record {
            context,
            flags,
            endpoint,
            what,
            needs_event: false,
            operation: None,
            address: 0,
            failed: false,
            copy: None,
            old: None,
            others: 0,
            error: 0,
        }
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The caller's.
    pub context: u64,
    /// What it was.
    pub flags: u64,
    /// Bytes.
    pub len: u64,
    /// Where in a multi-receive.
    pub address: u64,
    /// Immediate data.
    pub data: u64,
    /// The tag.
    pub tag: u64,
    /// The sender's number in the endpoint's vector.
    pub source: u64,
    /// Bytes that found no room.
    pub missing: u64,
    /// 0, or why it failed.
    pub error: c_int,
}

impl Entry {
    /// One that went well, of nothing.
    pub const fn new(context: u64, flags: u64) -> Entry {
        let source = FI_ADDR_UNSPEC;
        Entry { context, flags, len: 0, address: 0, data: 0, tag: 0, source, missing: 0, error: 0 }
    }
}

/// A completion queue.
#[derive(Default)]
pub struct Queue {
    /// Completions in order.
    pub entries: VecDeque<Entry>,
}

/// A counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests that went well.
    pub done: u64,
    /// Requests that failed.
    pub failed: u64,
}

/// All requests and queues of a domain.
#[derive(Default)]
pub struct Ledger {
    /// Requests under way.
    pub records: Slab<Record>,
    /// Endpoints.
    pub endpoints: Slab<Endpoint>,
    /// Completion queues.
    pub queues: Slab<Queue>,
    /// Counters.
    pub counts: Slab<Count>,
    /// Receives that the transport holds.
    pub receives: u32,
    /// Other requests that it holds, without silent ones.
    pub others: u32,
}

impl Ledger {
    /// Where completions of an endpoint's sort of request go.
    fn bound(&self, endpoint: u32, what: What) -> Option<(&Endpoint, Option<Bound>)> {
        let endpoint = self.endpoints.get(endpoint)?;
        let bound = if matches!(what, What::Recv | What::Multi) { endpoint.rx } else { endpoint.tx };
        Some((endpoint, bound))
    }

    /// How many requests of a sort the transport holds: receives, or all others.
    fn held(&mut self, what: What) -> &mut u32 {
        if matches!(what, What::Recv | What::Multi) { &mut self.receives } else { &mut self.others }
    }

    /// The transport has taken a request.
    pub fn taken(&mut self, number: u32, operation: OpId) {
        let Some(record) = self.records.get_mut(number) else { return };
        record.operation = Some(operation);
        let (what, others) = (record.what, record.others);
        *self.held(what) += 1 + others;
    }

    /// Adds a completion to an endpoint's queue.
    pub fn push(&mut self, endpoint: u32, what: What, entry: Entry) {
        let queue = self.bound(endpoint, what).and_then(|(_, bound)| bound).map(|bound| bound.queue);
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.entries.push_back(entry);
        }
    }

    /// Counts a request that is over.
    fn count(&mut self, endpoint: u32, what: What, well: bool) {
        let Some(endpoint) = self.endpoints.get(endpoint) else { return };
        let counter = match what {
            What::Send => endpoint.sends,
            What::Recv | What::Multi => endpoint.receives,
            What::Read => endpoint.reads,
            What::Write => endpoint.writes,
        };
        if let Some(count) = counter.and_then(|counter| self.counts.get_mut(counter)) {
            if well { count.done += 1 } else { count.failed += 1 }
        }
    }

    /// Takes an event of the transport; gives a peer that is lost, to be reported.
    #[inline]
    pub fn deliver(&mut self, event: Event, names: &Names) -> Option<(PeerId, Loss)> {
        match event {
            Event::Completed(completion) => {
                if completion.cookie != SILENT {
                    self.complete(&completion, names);
                }
                None
            }
            Event::PeerLost { peer, why } => Some((peer, why)),
            Event::Written(written) => {
                self.written(&written, names);
                None
            }
            Event::PeerUp { .. } | Event::PeerClosed { .. } => None,
        }
    }

    /// A peer has written with immediate data. Memory belongs to the domain: its first endpoint with a
    /// receive queue gets the completion.
    #[cold]
    fn written(&mut self, written: &Written, names: &Names) {
        let first = self.endpoints.iter().find(|(_, endpoint)| endpoint.rx.is_some());
        let Some((number, vector)) = first.map(|(number, endpoint)| (number, endpoint.vector)) else { return };
        let entry = Entry {
            len: written.bytes,
            data: written.immediate,
            source: names.number_of(vector, written.peer),
            ..Entry::new(0, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)
        };
        self.push(number, What::Recv, entry);
    }

    #[inline]
    fn complete(&mut self, completion: &Completion, names: &Names) {
        let number = completion.cookie.0 as u32;
        let Some(record) = self.records.get_mut(number) else { return };
        let mut entry = Entry::new(record.context, record.flags);
        let (endpoint, what, needs_event) = (record.endpoint, record.what, record.needs_event);
        let mut message = what != What::Multi;
        match completion.result {
            Ok(done) => {
                entry.len = done.bytes;
                match what {
                    What::Recv => {}
                    What::Multi => {
                        // Where the last message has failed, the release has an event of its own.
                        message = !(record.failed && completion.last && done.bytes == 0 && done.offset == 0);
                        entry.address = record.address + done.offset;
                        if !message {
                            (entry.flags, entry.address) = (0, record.address);
                        }
                        if completion.last {
                            entry.flags |= FI_MULTI_RECV;
                        }
                    }
                    What::Read | What::Write => {
                        if let Some(target) = &record.old {
                            target.store((completion.cookie.0 >> 32) as usize, done.old);
                        }
                    }
                    What::Send => {}
                }
                if matches!(what, What::Recv | What::Multi) && message {
                    let vector = self.endpoints.get(endpoint).and_then(|endpoint| endpoint.vector);
                    receive(&mut entry, &done, names.number_of(vector, done.peer));
                }
            }
            Err(error) => {
                record.failed = true;
                entry.error = errno(&error);
                if completion.last && what == What::Multi {
                    entry.flags |= FI_MULTI_RECV;
                }
                if let OpError::Truncated { sent, capacity, peer, tag, immediate } = error {
                    let vector = self.endpoints.get(endpoint).and_then(|endpoint| endpoint.vector);
                    (entry.len, entry.missing) = (capacity, sent.saturating_sub(capacity));
                    let done = Done { tag, immediate, ..Done::of(peer) };
                    receive(&mut entry, &done, names.number_of(vector, peer));
                }
                message = true;
            }
        }
        if record.others > 0 {
            record.others -= 1;
            record.error = if record.error == 0 { entry.error } else { record.error };
            *self.held(what) -= 1;
            return;
        }
        if record.error != 0 {
            entry.error = record.error;
        }
        if completion.last {
            self.records.remove(number);
            *self.held(what) -= 1;
        }
        if message {
            self.count(endpoint, what, entry.error == 0);
        }
        if needs_event || entry.error != 0 || entry.flags & FI_MULTI_RECV != 0 {
            self.push(endpoint, what, entry);
        }
    }
}

/// The completion flags of a received message.
#[inline]
fn receive(entry: &mut Entry, done: &Done, source: u64) {
    entry.tag = done.tag.unwrap_or(0);
    entry.source = source;
    if let Some(data) = done.immediate {
        entry.flags |= FI_REMOTE_CQ_DATA;
        entry.data = data;
    }
}

fn errno(error: &OpError) -> c_int {
    match error {
        OpError::Truncated { .. } => FI_ETRUNC,
        OpError::Cancelled => FI_ECANCELED,
        OpError::PeerLost { .. } => FI_ECONNRESET,
        OpError::PeerClosed { .. } => FI_ESHUTDOWN,
        OpError::Refused { .. } => FI_EACCES,
        OpError::Registration { .. } => FI_EIO,
    }
}
