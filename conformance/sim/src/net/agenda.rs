//! Time inside the fabric: picoseconds, rates, the heap of moments, and queues of which only the head is in
//! the heap.
//!
//! Invariants: moments are taken in the order (time, sequence number), and sequence numbers are given in the
//! order in which things were decided, so equal inputs give equal orders. A [`Chain`]'s dues never fall, so
//! its head is its first; the others wait outside the heap, and the heap has an entry per busy server instead
//! of one per frame.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use rerail_core::time::Time;

use super::Outcome;

/// Picoseconds since the origin, or a span of them. 2^64 of them are 213 days.
pub(super) type Ps = u64;

/// Picoseconds of a nanosecond.
const PS_PER_NS: u64 = 1_000;

/// "None", in an index.
pub(super) const NONE: u32 = u32::MAX;

/// Nanoseconds as picoseconds.
pub(super) fn ps(ns: u64) -> Ps {
    ns.saturating_mul(PS_PER_NS)
}

/// The first nanosecond that isn't before this.
pub(super) fn time(at: Ps) -> Time {
    Time(at.div_ceil(PS_PER_NS))
}

/// A data rate: picoseconds per byte, with 20 bits of fraction (off by less than 1e-6 up to 100 GB/s).
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    ps_per_byte_q20: u64,
}

impl Rate {
    pub fn new(bytes_per_second: u64) -> Self {
        let q20 = (1_000_000_000_000u64 << 20).checked_div(bytes_per_second);
        Rate { ps_per_byte_q20: q20.unwrap_or(0) }
    }

    pub fn is_limited(self) -> bool {
        self.ps_per_byte_q20 != 0
    }

    /// How long so many bytes take.
    pub fn span(self, bytes: u32) -> Ps {
        ((u128::from(bytes) * u128::from(self.ps_per_byte_q20)) >> 20) as u64
    }
}

/// What is to be done at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A bus has finished what it served (bus x 2 + server).
    Bus(u32),
    /// The frame at the head of a port's engine chain reaches the link.
    Uplink(u32),
    /// The head of a frame on a port's uplink has passed the switch's input.
    Ingress(u32),
    /// A frame has crossed a plane.
    Plane(u32),
    /// A frame on a port's downlink is complete.
    Downlink(u32),
    /// A frame has passed a port's receive engine.
    Arrived(u32),
    /// A timer (slot).
    Timer(u32),
    /// A gate's hold may be over.
    Release(u32),
    /// A port looks at its link.
    Detect(u32),
    /// A background load's window opens, or its next frame is due.
    Flow(u32),
}

/// An entry of the heap.
#[derive(Clone, Copy, Debug)]
struct Entry {
    due: Ps,
    sequence: u64,
    event: Event,
}

impl Ord for Entry {
    /// Reversed, for a heap that gives its greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.sequence).cmp(&(self.due, self.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// A frame, a write or a timer under way.
#[derive(Debug)]
pub(super) struct Slot<B> {
    /// When it has passed the chain it is in.
    pub due: Ps,
    /// Its place among equal dues.
    pub sequence: u64,
    /// The next in its queue.
    pub next: u32,
    /// Sending port; of a write: the port that requested it.
    pub from: u32,
    /// Receiving port; `NONE`: no such LID.
    pub to: u32,
    /// Plane, by its index in the fabric.
    pub plane: u32,
    /// Background load it belongs to; `NONE`: a real frame.
    pub flow: u32,
    /// Life of the link or plane it is on: another number means that it was cut.
    pub epoch: u32,
    /// Payload and transport headers; of a write: its bytes.
    pub wire_bytes: u32,
    /// To be read over the bus.
    pub read_bytes: u32,
    /// Bytes of the receiver's buffer that are taken for it.
    pub credit: u32,
    /// Destination LID.
    pub dlid: u16,
    pub control: bool,
    pub first: bool,
    pub corrupt: bool,
    /// `None`: a phantom, or a free slot.
    pub body: Option<B>,
}

impl<B> Slot<B> {
    /// One with nothing but a body, for timers and writes.
    pub fn plain(body: Option<B>) -> Self {
        Slot {
            due: 0,
            sequence: 0,
            next: NONE,
            from: NONE,
            to: NONE,
            plane: NONE,
            flow: NONE,
            epoch: 0,
            wire_bytes: 0,
            read_bytes: 0,
            credit: 0,
            dlid: 0,
            control: false,
            first: false,
            corrupt: false,
            body,
        }
    }
}

/// A first-in first-out queue of slots, linked through them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    head: u32,
    last: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Chain { head: NONE, last: NONE }
    }
}

impl Chain {
    pub fn is_empty(self) -> bool {
        self.head == NONE
    }

    /// The first slot; `NONE` where there is none.
    pub fn head(self) -> u32 {
        self.head
    }
}

/// The clock, the heap, the slots, and what is to be reported.
#[derive(Debug)]
pub(super) struct Agenda<B> {
    /// The moment that is being dealt with.
    pub clock: Ps,
    /// Outcomes of this moment, not reported yet.
    pub reported: VecDeque<Outcome<B>>,
    heap: BinaryHeap<Entry>,
    /// Timers, which can't be called off: most of them are of queue pairs that have long gone on. They stay
    /// in their own heap until they are due, so that what happens all the time passes through a heap that is
    /// as small as the fabric.
    timers: BinaryHeap<Entry>,
    sequence: u64,
    slots: Vec<Slot<B>>,
    free: u32,
    used: u32,
    waiting_max: usize,
}

impl<B> Agenda<B> {
    pub fn new() -> Self {
        Agenda {
            clock: 0,
            reported: VecDeque::new(),
            heap: BinaryHeap::new(),
            timers: BinaryHeap::new(),
            sequence: 0,
            slots: Vec::new(),
            free: NONE,
            used: 0,
            waiting_max: 0,
        }
    }

    /// Takes the caller's time, in whole nanoseconds. Within the nanosecond that was reported for the clock's
    /// moment the clock stays, so that a caller that answers at once loses nothing to rounding.
    pub fn enter(&mut self, now: Time) {
        let now = ps(now.0);
        if now >= self.clock.saturating_add(PS_PER_NS) {
            self.clock = now;
        }
    }

    pub fn slot(&self, index: u32) -> &Slot<B> {
        &self.slots[index as usize]
    }

    pub fn slot_mut(&mut self, index: u32) -> &mut Slot<B> {
        &mut self.slots[index as usize]
    }

    /// Most moments in the heaps at once.
    pub fn waiting_max(&self) -> usize {
        self.waiting_max
    }

    /// Slots in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    pub fn take_slot(&mut self, slot: Slot<B>) -> u32 {
        self.used += 1;
        if self.free == NONE {
            let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 frames are under way");
            self.slots.push(slot);
            return index;
        }
        let index = self.free;
        self.free = self.slots[index as usize].next;
        self.slots[index as usize] = slot;
        index
    }

    pub fn free_slot(&mut self, index: u32) -> Option<B> {
        self.used -= 1;
        let free = self.free;
        self.free = index;
        let slot = self.slot_mut(index);
        slot.next = free;
        slot.body.take()
    }

    /// Puts an event into the heap, not before the clock.
    pub fn schedule(&mut self, due: Ps, event: Event) {
        let sequence = self.sequence;
        self.sequence += 1;
        let heap = if matches!(event, Event::Timer(_)) { &mut self.timers } else { &mut self.heap };
        heap.push(Entry { due: due.max(self.clock), sequence, event });
        self.count_waiting();
    }

    fn count_waiting(&mut self) {
        self.waiting_max = self.waiting_max.max(self.heap.len() + self.timers.len());
    }

    /// The next event, if it is due by then; the clock is at it.
    pub fn take(&mut self, until: Ps) -> Option<Event> {
        // Greater is earlier.
        let from_timers = self.timers.peek() > self.heap.peek();
        let heap = if from_timers { &mut self.timers } else { &mut self.heap };
        if heap.peek()?.due > until {
            return None;
        }
        let entry = heap.pop()?;
        self.clock = self.clock.max(entry.due);
        Some(entry.event)
    }

    /// Nothing happens until then: it is then now, unless that is the end of time.
    pub fn pass(&mut self, until: Time) {
        if until.0 < Ps::MAX / PS_PER_NS {
            self.clock = self.clock.max(ps(until.0));
        }
    }

    /// When the next event is due.
    pub fn next_due(&self) -> Option<Ps> {
        self.heap.peek().max(self.timers.peek()).map(|entry| entry.due)
    }

    /// Appends to a queue that waits for no moment.
    pub fn append(&mut self, chain: &mut Chain, index: u32) {
        self.slot_mut(index).next = NONE;
        match chain.last {
            NONE => chain.head = index,
            last => self.slot_mut(last).next = index,
        }
        chain.last = index;
    }

    /// Takes the first of a queue.
    pub fn remove(&mut self, chain: &mut Chain) -> Option<u32> {
        let index = chain.head;
        if index == NONE {
            return None;
        }
        chain.head = self.slot(index).next;
        if chain.head == NONE {
            chain.last = NONE;
        }
        Some(index)
    }

    /// Appends to a chain whose head fires `event` when it is due. Not before the one ahead: the actual due
    /// comes back.
    pub fn chain(&mut self, chain: &mut Chain, event: Event, index: u32, due: Ps) -> Ps {
        let ahead = if chain.last == NONE { self.clock } else { self.slot(chain.last).due };
        let due = due.max(ahead);
        let sequence = self.sequence;
        self.sequence += 1;
        let slot = self.slot_mut(index);
        (slot.due, slot.sequence) = (due, sequence);
        if chain.is_empty() {
            self.heap.push(Entry { due, sequence, event });
            self.count_waiting();
        }
        self.append(chain, index);
        due
    }

    /// Takes the head of a chain, whose event has fired; the next one's goes into the heap.
    pub fn unchain(&mut self, chain: &mut Chain, event: Event) -> u32 {
        let index = self.remove(chain).expect("a chain's event fires while it has a head");
        if !chain.is_empty() {
            let next = self.slot(chain.head);
            self.heap.push(Entry { due: next.due, sequence: next.sequence, event });
        }
        index
    }
}
