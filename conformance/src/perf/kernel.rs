//! The measuring loops, between two ranks that call them at the same time with the same arguments.
//!
//! Only the first of the pair measures; what it returns is the result. Receives are posted before the other
//! side may send, as in an application with a known communication pattern. A peer that is lost ends a loop
//! with `PeerGone`.

use std::collections::VecDeque;
use std::time::Instant;

use rerail_core::endpoint::{GetRequest, Level, PutRequest, RecvRequest, Remote, Selector, SendRequest, TagMatch};
use rerail_core::ids::PeerId;
use rerail_core::mem::{RegionId, Seg};

use crate::exchange::pattern::{self, Difference, Key};
use crate::session::{Session, SessionError, Ticket};

/// Tag of measured messages.
const DATA: u64 = 1 << 40;
/// Tag of the words by which the two keep in step.
const STEP: u64 = 1 << 41;
/// Receives of a ping-pong that stand at any time.
const AHEAD: u64 = 2;

/// The two ends of a measurement, seen from one of them. Both may be the same rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The rank that measures (and sends, where data goes one way).
    pub first: u32,
    /// The other one.
    pub second: u32,
}

impl Pair {
    /// The other one of the two.
    pub fn other(&self, rank: u32) -> u32 {
        if rank == self.first { self.second } else { self.first }
    }
}

/// Memory for messages, and how they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Where messages come from.
    pub outgoing: RegionId,
    /// Where messages go.
    pub incoming: RegionId,
    /// Bytes of each.
    pub bytes: u64,
    /// Compare every byte.
    pub verify: bool,
}

impl Buffers {
    /// Allocates both, such that the other side may map them (and write the latter) or not, and writes to
    /// both: pages that were never written are all the same one, which no application's memory is.
    pub fn allocate(session: &mut Session, bytes: u64, mapped: bool) -> Result<Buffers, SessionError> {
        let (outgoing, incoming) = match mapped {
            true => (session.alloc_shared(bytes)?, session.alloc_window(bytes)?),
            false => (session.alloc(bytes)?, session.alloc(bytes)?),
        };
        let key = window_key(session.rank());
        for region in [outgoing, incoming] {
            pattern::fill(&key, 0, session.bytes_mut(Seg::new(region, 0, bytes)));
        }
        Ok(Buffers { outgoing, incoming, bytes, verify: false })
    }
}

/// Why a measurement has no result.
#[derive(Debug)]
pub enum KernelError {
    /// The peer is lost.
    PeerGone,
    /// A message differs from what was sent.
    Different(Difference),
    /// The session failed.
    Session(SessionError),
}

impl From<SessionError> for KernelError {
    fn from(error: SessionError) -> Self {
        KernelError::Session(error)
    }
}

/// A measurement between this rank and another.
pub struct Kernel<'s> {
    pub(super) session: &'s mut Session,
    pair: Pair,
    buffers: Buffers,
}

impl<'s> Kernel<'s> {
    /// This rank must be one of the pair.
    pub fn new(session: &'s mut Session, pair: Pair, buffers: Buffers) -> Self {
        Kernel { session, pair, buffers }
    }

    fn first(&self) -> bool {
        self.session.rank() == self.pair.first
    }

    pub(super) fn peer(&self) -> u32 {
        if self.first() { self.pair.second } else { self.pair.first }
    }

    fn alone(&self) -> bool {
        self.pair.first == self.pair.second
    }

    /// The memory of message `number`: in turn where there is room for several.
    fn place(&self, region: RegionId, bytes: u64, number: u64) -> Seg {
        let stride = bytes.next_multiple_of(64).max(64);
        let places = (self.buffers.bytes / stride).max(1);
        Seg::new(region, number % places * stride, bytes)
    }

    fn key(&self, source: u32, target: u32, number: u64) -> Key {
        Key { seed: 0, source, target, tag: DATA, number }
    }

    fn send(&mut self, bytes: u64, number: u64) -> Result<Ticket, KernelError> {
        self.send_from(bytes, number, number)
    }

    /// Sends message `number` from memory `slot`.
    pub(super) fn send_from(&mut self, bytes: u64, slot: u64, number: u64) -> Result<Ticket, KernelError> {
        let seg = self.place(self.buffers.outgoing, bytes, slot);
        if self.buffers.verify {
            let key = self.key(self.session.rank(), self.peer(), number);
            pattern::fill(&key, 0, self.session.bytes_mut(seg));
        }
        let peer = PeerId(self.peer());
        Ok(self.session.send(SendRequest { tag: Some(DATA), ..SendRequest::new(peer, &[seg]) })?)
    }

    pub(super) fn recv(&mut self, bytes: u64, slot: u64) -> Result<Ticket, KernelError> {
        let seg = self.place(self.buffers.incoming, bytes, slot);
        let from = self.peer_with(DATA);
        Ok(self.session.recv(RecvRequest::new(from, &[seg]))?)
    }

    fn check(&self, bytes: u64, number: u64) -> Result<(), KernelError> {
        self.check_at(bytes, number, number)
    }

    /// Compares message `number` in memory `slot` with what was sent, where verification is on.
    pub(super) fn check_at(&self, bytes: u64, slot: u64, number: u64) -> Result<(), KernelError> {
        if self.buffers.verify {
            let key = self.key(self.peer(), self.session.rank(), number);
            let seg = self.place(self.buffers.incoming, bytes, slot);
            if let Some(difference) = pattern::compare(&key, 0, self.session.bytes(seg)) {
                return Err(KernelError::Different(difference));
            }
        }
        Ok(())
    }

    fn peer_with(&self, tag: u64) -> Selector {
        Selector { source: Some(PeerId(self.peer())), tag: TagMatch::Tagged { tag, ignore: 0 } }
    }

    pub(super) fn wait(&mut self, ticket: Ticket) -> Result<(), KernelError> {
        self.session.wait(ticket)?.map(drop).map_err(|_| KernelError::PeerGone)
    }

    fn wait_all(&mut self, tickets: Vec<Ticket>) -> Result<(), KernelError> {
        tickets.into_iter().try_for_each(|ticket| self.wait(ticket))
    }

    /// Sends an empty message to the other side.
    fn send_step(&mut self) -> Result<(), KernelError> {
        let word = SendRequest { tag: Some(STEP), ..SendRequest::new(PeerId(self.peer()), &[]) };
        let ticket = self.session.inject(word, &[])?;
        self.wait(ticket)
    }

    /// Waits for the other side's word.
    fn listen(&mut self) -> Result<(), KernelError> {
        let ticket = self.session.recv(RecvRequest::new(self.peer_with(STEP), &[]))?;
        self.wait(ticket)
    }

    /// Both are here.
    pub(super) fn meet(&mut self) -> Result<(), KernelError> {
        if self.alone() {
            return Ok(());
        }
        self.send_step()?;
        self.listen()
    }

    /// Half round trips of messages, in nanoseconds (to itself: the whole way of a message). Receives stand
    /// two ahead, so that none has to be posted between a message and its answer.
    pub fn ping_pong(&mut self, bytes: u64, warmup: u64, iterations: u64) -> Result<Vec<u64>, KernelError> {
        let mut samples = Vec::with_capacity(if self.first() { iterations as usize } else { 0 });
        let total = warmup + iterations;
        let mut receives = VecDeque::with_capacity(AHEAD as usize + 1);
        for number in 0..AHEAD.min(total) {
            receives.push_back(self.recv(bytes, number)?);
        }
        self.meet()?;
        for number in 0..total {
            let Some(receive) = receives.pop_front() else { unreachable!("one is posted for each that is over") };
            if self.first() {
                let start = Instant::now();
                let send = self.send(bytes, number)?;
                self.wait(receive)?;
                let elapsed = start.elapsed().as_nanos() as u64;
                self.wait(send)?;
                self.check(bytes, number)?;
                if number >= warmup {
                    samples.push(if self.alone() { elapsed } else { elapsed / 2 });
                }
                if number + AHEAD < total {
                    receives.push_back(self.recv(bytes, number + AHEAD)?);
                }
            } else {
                self.wait(receive)?;
                self.check(bytes, number)?;
                let send = self.send(bytes, number)?;
                // On its way before anything else is done.
                self.session.poll();
                if number + AHEAD < total {
                    receives.push_back(self.recv(bytes, number + AHEAD)?);
                }
                self.wait(send)?;
            }
        }
        Ok(samples)
    }

    /// Seconds for `windows` windows of `window` messages: one way, or both ways at once.
    pub fn stream(&mut self, load: &Load, both_ways: bool) -> Result<f64, KernelError> {
        let Load { bytes, window, warmup, windows } = *load;
        let sends = self.first() || both_ways;
        let receives = !self.first() || both_ways || self.alone();
        let mut start = Instant::now();
        for round in 0..warmup + windows {
            let numbers = round * window..(round + 1) * window;
            let mut posted = Vec::new();
            if receives {
                for number in numbers.clone() {
                    posted.push(self.recv(bytes, number)?);
                }
            }
            // The receives of this window stand, and so do the other side's.
            self.meet()?;
            if round == warmup {
                start = Instant::now();
            }
            let mut sent = Vec::new();
            if sends {
                for number in numbers.clone() {
                    sent.push(self.send(bytes, number)?);
                }
            }
            self.wait_all(posted)?;
            self.wait_all(sent)?;
            if receives {
                // Places are used again within a window where memory is short: then only the last use can be
                // checked.
                let places = self.buffers.bytes / bytes.next_multiple_of(64).max(64);
                let first = numbers.end.saturating_sub(places.max(1)).max(numbers.start);
                for number in first..numbers.end {
                    self.check(bytes, number)?;
                }
            }
        }
        // Everything has arrived at the other side.
        self.meet()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Nanoseconds from a put to its placement, or from a get to its data. `window`: the peer's.
    pub fn access(&mut self, op: Access, bytes: u64, count: (u64, u64)) -> Result<Vec<u64>, KernelError> {
        let (warmup, iterations) = count;
        self.meet()?;
        if !self.first() {
            self.listen()?;
            return Ok(Vec::new());
        }
        let mut samples = Vec::with_capacity(iterations as usize);
        for number in 0..warmup + iterations {
            let start = Instant::now();
            let ticket = self.start_access(op, bytes, number, Level::Placed)?;
            self.wait(ticket)?;
            if number >= warmup {
                samples.push(start.elapsed().as_nanos() as u64);
            }
            self.check_get(op, bytes, number)?;
        }
        self.send_step_unless_alone()?;
        Ok(samples)
    }

    /// Seconds for windows of puts (with a flush per window) or gets.
    pub fn access_stream(&mut self, op: Access, load: &Load) -> Result<f64, KernelError> {
        let Load { bytes, window, warmup, windows } = *load;
        self.meet()?;
        if !self.first() {
            self.listen()?;
            return Ok(0.0);
        }
        let mut start = Instant::now();
        for round in 0..warmup + windows {
            if round == warmup {
                start = Instant::now();
            }
            let mut tickets = Vec::with_capacity(window as usize);
            for number in round * window..(round + 1) * window {
                tickets.push(self.start_access(op, bytes, number, Level::Reusable)?);
            }
            self.wait_all(tickets)?;
            if op.put {
                let flush = self.session.flush(PeerId(self.peer()))?;
                self.wait(flush)?;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.send_step_unless_alone()?;
        Ok(seconds)
    }

    fn send_step_unless_alone(&mut self) -> Result<(), KernelError> {
        if self.alone() {
            return Ok(());
        }
        self.send_step()
    }

    fn start_access(&mut self, op: Access, bytes: u64, number: u64, level: Level) -> Result<Ticket, KernelError> {
        let here = if op.put { self.buffers.outgoing } else { self.buffers.incoming };
        let seg = self.place(here, bytes, number);
        let remote = Remote { peer: PeerId(self.peer()), window: op.window, offset: seg.at.offset };
        let segments = [seg];
        Ok(if op.put {
            self.session.put(PutRequest { level, ..PutRequest::new(remote, &segments) })?
        } else {
            self.session.get(GetRequest::new(remote, &segments))?
        })
    }

    /// A got message is a part of the window, which [`expose`](super::run) has filled from one key.
    fn check_get(&self, op: Access, bytes: u64, number: u64) -> Result<(), KernelError> {
        if op.put || !self.buffers.verify {
            return Ok(());
        }
        let seg = self.place(self.buffers.incoming, bytes, number);
        let key = window_key(self.peer());
        match pattern::compare(&key, seg.at.offset, self.session.bytes(seg)) {
            Some(difference) => Err(KernelError::Different(difference)),
            None => Ok(()),
        }
    }
}

/// What a window's owner fills it with.
pub fn window_key(owner: u32) -> Key {
    Key { seed: 0, source: owner, target: owner, tag: STEP, number: 0 }
}

/// A one-sided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Put; else get.
    pub put: bool,
    /// The key of the peer's window, as large as the buffers.
    pub window: u64,
}

/// How much a stream moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes of a message.
    pub bytes: u64,
    /// Messages of a window.
    pub window: u64,
    /// Windows before measuring.
    pub warmup: u64,
    /// Windows that are measured.
    pub windows: u64,
}

impl Load {
    /// Messages that are measured.
    pub fn messages(&self) -> u64 {
        self.window * self.windows
    }
}
