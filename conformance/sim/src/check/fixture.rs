//! Ledgers made by hand, for the checkers' tests: each call is one line of a story, a nanosecond after the
//! one before.

use rerail_core::endpoint::{
    Completion, Done, Found, Level, Loss, LossReason, Notify, OpError, RailFault, RequestKind, Selector, TagMatch,
};
use rerail_core::ids::{Cookie, OpId, PeerId, RailId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::time::{Nanos, Time};

use super::*;

pub(super) struct Fixture {
    pub(super) ledger: Ledger,
    pub(super) now: u64,
}

pub(super) const fn tagged(source: Option<u32>, tag: u64, ignore: u64) -> Selector {
    let source = match source {
        Some(rank) => Some(PeerId(rank)),
        None => None,
    };
    Selector { source, tag: TagMatch::Tagged { tag, ignore } }
}

pub(super) fn why() -> Loss {
    Loss::new(LossReason::RailFailed { rail: RailId(0), fault: RailFault::TimedOut }, 1, Nanos(0), [1])
}

impl Fixture {
    pub(super) fn new(ranks: u32) -> Self {
        Fixture { ledger: Ledger::new(ranks), now: 0 }
    }

    pub(super) fn time(&mut self) -> Time {
        self.now += 1;
        Time(self.now)
    }

    pub(super) fn submission(&mut self, rank: u32, submission: Submission, len: u64) -> u32 {
        let at = self.time();
        self.ledger.submitted(rank, at, submission, &[Seg::new(RegionId(0), 0, len)], Notify::Event)
    }

    pub(super) fn send_at(&mut self, from: u32, to: u32, tag: Option<u64>, len: u64, level: Level) -> (Name, u32) {
        let name = self.ledger.next_name(from, to);
        (name, self.submission(from, Submission::Send { name, len, tag, immediate: true, level }, len))
    }

    pub(super) fn send(&mut self, from: u32, to: u32, tag: u64) -> Name {
        let (name, request) = self.send_at(from, to, Some(tag), 16, Level::Reusable);
        self.sent(from, request, name, 16);
        name
    }

    /// A message of 16 bytes whose name travels in its payload alone.
    pub(super) fn send_unnamed(&mut self, from: u32, to: u32, tag: u64) -> Name {
        let name = self.ledger.next_name(from, to);
        let submission = Submission::Send { name, len: 16, tag: Some(tag), immediate: false, level: Level::Reusable };
        let request = self.submission(from, submission, 16);
        self.sent(from, request, name, 16);
        name
    }

    pub(super) fn sent(&mut self, rank: u32, request: u32, name: Name, len: usize) {
        let mut payload = vec![0; len];
        Content::from(name).fill(0, &mut payload);
        self.report(rank, request, Ok(Done::of(PeerId(0))), &payload);
    }

    pub(super) fn recv(&mut self, rank: u32, from: Selector) -> u32 {
        self.submission(rank, Submission::Receive { from, claimed: None }, 16)
    }

    pub(super) fn multi(&mut self, rank: u32, from: Selector, len: u64, min: u64) -> u32 {
        self.submission(rank, Submission::Multi { from, min }, len)
    }

    pub(super) fn report(&mut self, rank: u32, request: u32, result: Result<Done, OpError>, memory: &[u8]) -> Reported {
        self.report_at(rank, request, 0, result, memory)
    }

    /// As [`report`](Self::report), of the message `index` of a multi-receive.
    pub(super) fn report_at(
        &mut self,
        rank: u32,
        request: u32,
        index: u32,
        result: Result<Done, OpError>,
        memory: &[u8],
    ) -> Reported {
        let at = self.time();
        let completion = self.completion(rank, request, result, true, index);
        self.ledger.reported(rank, at, &completion, memory)
    }

    /// Of the kind of the request.
    pub(super) fn completion(
        &self,
        rank: u32,
        request: u32,
        result: Result<Done, OpError>,
        last: bool,
        index: u32,
    ) -> Completion {
        let known = self.ledger.book(rank).requests.get(request as usize);
        let kind = known.and_then(|entry| entry.submission.kind()).unwrap_or(RequestKind::Send);
        Completion { operation: OpId::default(), cookie: Cookie(request.into()), kind, result, last, index }
    }

    pub(super) fn done(&self, name: Name) -> Done {
        let message = *self.ledger.message(name).unwrap();
        let peer = PeerId(name.source());
        let immediate = message.immediate.then_some(name.to_bits());
        Done { bytes: message.len, tag: message.tag, immediate, ..Done::of(peer) }
    }

    /// A receive of 16 bytes gets a message of as many, well.
    pub(super) fn got(&mut self, request: u32, name: Name) {
        let mut memory = [BLANK; 16];
        Content::from(name).fill(0, &mut memory);
        self.report(name.destination(), request, Ok(self.done(name)), &memory);
    }

    /// A message in a multi-receive buffer, numbered as its events come.
    pub(super) fn part(&mut self, request: u32, name: Name, offset: u64, last: bool) {
        let reported = self.ledger.book(name.destination()).requests[request as usize].parts.len();
        self.numbered(request, name, reported as u32, offset, last);
    }

    /// A message in a multi-receive buffer.
    pub(super) fn numbered(&mut self, request: u32, name: Name, index: u32, offset: u64, last: bool) {
        let at = self.time();
        let rank = name.destination();
        let done = Done { offset, released: last, ..self.done(name) };
        let mut memory = vec![BLANK; self.ledger.book(rank).requests[request as usize].len() as usize];
        for part in self.ledger.book(rank).requests[request as usize].parts.clone() {
            Content::from(part.name).fill(0, &mut memory[part.offset as usize..(part.offset + part.bytes) as usize]);
        }
        Content::from(name).fill(0, &mut memory[offset as usize..(offset + done.bytes) as usize]);
        let completion = self.completion(rank, request, Ok(done), last, index);
        self.ledger.reported(rank, at, &completion, &memory);
    }

    /// Something is reported for a message in a multi-receive buffer that goes on.
    pub(super) fn report_part(&mut self, rank: u32, request: u32, result: Result<Done, OpError>, memory: &[u8]) {
        let at = self.time();
        let entry = &self.ledger.book(rank).requests[request as usize];
        let index = (entry.parts.len() + entry.failed_parts.len()) as u32;
        let completion = self.completion(rank, request, result, false, index);
        self.ledger.reported(rank, at, &completion, memory);
    }

    pub(super) fn cancel(&mut self, rank: u32, request: u32) {
        let at = self.time();
        self.ledger.cancelled(rank, at, request);
        self.report(rank, request, Err(OpError::Cancelled), &[BLANK; 16]);
    }

    pub(super) fn probe(&mut self, rank: u32, from: Selector, name: Name) {
        let at = self.time();
        let found = self.found(name);
        assert!(self.ledger.probed(rank, at, from, &found));
    }

    /// What probes and claims show of a message.
    pub(super) fn found(&self, name: Name) -> Found {
        let Done { peer, tag, immediate, bytes, .. } = self.done(name);
        Found { peer, tag, immediate, bytes }
    }

    pub(super) fn claimed(&mut self, rank: u32, name: Name) -> Option<Claim> {
        let at = self.time();
        let found = self.found(name);
        self.ledger.claimed(rank, at, &found)
    }

    pub(super) fn claim(&mut self, rank: u32, from: Selector, name: Name) -> u32 {
        let claimed = self.claimed(rank, name);
        self.submission(rank, Submission::Receive { from, claimed }, 16)
    }

    pub(super) fn ending(&self) -> Ending {
        Ending {
            at: Time(self.now),
            converged: true,
            quiet: true,
            crash: None,
            cuts: Vec::new(),
            hidden: Vec::new(),
            tables: Vec::new(),
            objects: Vec::new(),
            bounds: Vec::new(),
            counters: Vec::new(),
            timeout: Timeouts { wait_ns: 1000, others: 1 },
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        judge(&self.ledger, &self.ending(), &NoMemory)
    }
}
