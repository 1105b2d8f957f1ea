//! One rank of an exchange: memory, the loop over rounds, and how outcomes are judged.
//!
//! The rounds are implemented in `two_sided`, `matching` and `one_sided`. Invariants: every rank passes the
//! same barriers in the same order, whatever was lost or wrong; a message counts as verified only after its
//! envelope, every byte of its payload and the guard behind it were compared.

use rerail_core::endpoint::{Level, OpError, RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::PeerId;
use rerail_core::mem::{RegionId, Seg};

use super::pattern::{self, Key};
use super::plan::{Kind, Round, Transfer};
use super::verify::{Problem, Tally, describe};
use crate::session::{Outcome, Session, SessionError, Ticket};

/// Bytes behind every buffer that nothing may write to.
pub(super) const GUARD_BYTES: u64 = 64;
/// Its value.
pub(super) const GUARD: u8 = 0xa5;
/// Alignment of buffers, so that no two share a cache line.
const ALIGN: u64 = 64;
/// A multi-receive's buffer, in messages of the round's largest size.
pub const MULTI_MESSAGES: u64 = 8;

/// When a rank ends its own life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfKill {
    /// Which rank.
    pub rank: u32,
    /// After so many rounds, in the middle of the next.
    pub after_round: u64,
}

/// One rank.
pub struct Worker {
    pub(super) session: Session,
    pub(super) tally: Tally,
    pub(super) seed: u64,
    /// Ordinary memory, and such as peers on the host map: in turn, round by round.
    sources: [RegionId; 2],
    pub(super) outgoing: RegionId,
    pub(super) incoming: RegionId,
    pub(super) round: Round,
    index: u64,
    self_kill: Option<SelfKill>,
}

/// Where a message is, or belongs.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The message.
    pub transfer: Transfer,
    /// Its memory.
    pub seg: Seg,
}

impl Worker {
    /// A rank that will run `plan`.
    pub fn new(
        mut session: Session,
        plan: &[Round],
        seed: u64,
        self_kill: Option<SelfKill>,
    ) -> Result<Worker, SessionError> {
        let ranks = session.size();
        let need = memory_max(plan, ranks);
        let sources = [session.alloc(need)?, session.alloc_shared(need)?];
        let incoming = session.alloc(need)?;
        let round = Round { kind: Kind::Posted, bytes: 0, count: 0, shift: None };
        let tally = Tally::default();
        Ok(Worker { session, tally, seed, sources, outgoing: sources[0], incoming, round, index: 0, self_kill })
    }

    /// Runs the rounds; calls `before` with each round before it starts.
    pub fn run(&mut self, plan: &[Round], mut before: impl FnMut(u64, &Round)) -> Result<(), SessionError> {
        for (index, round) in (0..).zip(plan) {
            before(index, round);
            tracing::debug!(index, ?round, "round");
            self.index = index;
            self.outgoing = self.sources[(index % 2) as usize];
            self.round = round.clone();
            match round.kind {
                Kind::Posted
                | Kind::Unexpected
                | Kind::Ordered
                | Kind::Wildcard
                | Kind::Untagged
                | Kind::Segments
                | Kind::Scattered
                | Kind::Inject => self.two_sided()?,
                Kind::MultiReceive => self.multi_receive()?,
                Kind::Truncation => self.truncation()?,
                Kind::Claim => self.claim()?,
                Kind::Cancel => self.cancel()?,
                Kind::Put => self.put()?,
                Kind::Get => self.get()?,
                Kind::Refusal => self.refusal()?,
                Kind::FetchAdd => self.fetch_add()?,
                Kind::CompareSwap => self.compare_swap()?,
            }
        }
        // All sends of the last round have been received.
        self.barrier()?;
        let repeated = self.session.repeated();
        if repeated > 0 {
            let me = self.me();
            let none = Transfer { source: me, target: me, number: 0, bytes: 0 };
            self.wrong(&none, format!("{repeated} events came for requests that were over"));
        }
        Ok(())
    }

    /// This rank.
    pub(super) fn me(&self) -> u32 {
        self.session.rank()
    }

    /// The round's tag; its low 16 bits are the round's to use.
    pub(super) fn tag(&self) -> u64 {
        (self.index + 1) << 16
    }

    /// A number that only this round of this run and this rank have: the key of its window.
    pub(super) fn window_key(&self, rank: u32) -> u64 {
        pattern::mix(pattern::mix(self.seed ^ self.tag()) ^ u64::from(rank))
    }

    pub(super) fn key(&self, transfer: &Transfer) -> Key {
        let Transfer { source, target, number, .. } = *transfer;
        Key { seed: self.seed, source, target, tag: self.tag(), number }
    }

    /// The immediate data: enough to identify the message if it is the wrong one.
    pub(super) fn immediate(transfer: &Transfer) -> u64 {
        u64::from(transfer.source) << 48 | u64::from(transfer.target) << 32 | transfer.number
    }

    /// All levels of completion in turn.
    pub(super) fn level(transfer: &Transfer) -> Level {
        match transfer.number % 3 {
            0 => Level::Reusable,
            1 => Level::Acknowledged,
            _ => Level::Placed,
        }
    }

    pub(super) fn barrier(&mut self) -> Result<(), SessionError> {
        let verified = self.tally.messages();
        self.session.barrier(verified).map(drop)
    }

    /// Ends this process if that was requested: called in the middle of each round.
    pub(super) fn may_die(&self) {
        if self.self_kill == Some(SelfKill { rank: self.me(), after_round: self.index }) {
            // Comes back only if the signal can't be sent, which the launcher then reports as a rank that
            // lived on.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }

    // ---- memory

    /// What this rank sends in this round, each message with its own memory.
    pub(super) fn outbound(&self) -> Vec<Slot> {
        let targets = self.round.targets(self.me(), self.session.size());
        self.slots(self.outgoing, targets.into_iter().map(|target| (self.me(), target)))
    }

    /// What this rank receives in this round, each message with its own memory.
    pub(super) fn inbound(&self) -> Vec<Slot> {
        let sources = self.round.sources(self.me(), self.session.size());
        self.slots(self.incoming, sources.into_iter().map(|source| (source, self.me())))
    }

    fn slots(&self, region: RegionId, pairs: impl Iterator<Item = (u32, u32)>) -> Vec<Slot> {
        let mut offset = 0;
        let transfers = pairs.flat_map(|(source, target)| self.round.transfers(source, target));
        transfers
            .map(|transfer| {
                let seg = Seg::new(region, offset, transfer.bytes);
                // A receive from any source must fit every message of the round.
                offset += slot_bytes(transfer.bytes.max(if self.round.kind == Kind::Wildcard {
                    self.round.bytes
                } else {
                    0
                }));
                Slot { transfer, seg }
            })
            .collect()
    }

    /// Writes a message's payload to its memory.
    pub(super) fn fill(&mut self, slot: &Slot) {
        let key = self.key(&slot.transfer);
        pattern::fill(&key, 0, self.session.bytes_mut(slot.seg));
    }

    /// Writes the guard behind a buffer.
    pub(super) fn guard(&mut self, seg: Seg) {
        self.session.bytes_mut(guard_of(seg)).fill(GUARD);
    }

    // ---- requests

    /// Sends a filled message with the round's tag.
    pub(super) fn send(&mut self, slot: &Slot) -> Result<Ticket, SessionError> {
        let transfer = &slot.transfer;
        self.session.send(SendRequest {
            tag: Some(self.tag()),
            immediate: Some(Self::immediate(transfer)),
            level: Self::level(transfer),
            ..SendRequest::new(PeerId(transfer.target), &[slot.seg])
        })
    }

    /// Posts a receive for the round's tag from the message's source.
    pub(super) fn recv(&mut self, transfer: &Transfer, seg: Seg) -> Result<Ticket, SessionError> {
        self.guard(seg);
        let from = self.exactly(transfer.source);
        self.session.recv(RecvRequest::new(from, &[seg]))
    }

    /// Messages of this round from one rank.
    pub(super) fn exactly(&self, source: u32) -> Selector {
        Selector { source: Some(PeerId(source)), tag: TagMatch::Tagged { tag: self.tag(), ignore: 0 } }
    }

    // ---- judgement

    /// Notes a problem with a transfer.
    pub(super) fn wrong(&mut self, transfer: &Transfer, what: String) {
        let me = self.me();
        let peer = if transfer.source == me { transfer.target } else { transfer.source };
        let path = self.session.path(peer);
        let Transfer { number, bytes, .. } = *transfer;
        self.tally.wrong(Problem { rank: me, peer, path, kind: self.round.kind, bytes, number, what });
    }

    /// Notes a transfer that is as it should be.
    pub(super) fn verified(&mut self, transfer: &Transfer) {
        let peer = if transfer.source == self.me() { transfer.target } else { transfer.source };
        let path = self.session.path(peer);
        self.tally.verified(self.round.kind, path, transfer.bytes);
    }

    /// Judges an error: the known loss of a peer is not counted against this check.
    pub(super) fn judge_error(&mut self, transfer: &Transfer, error: &OpError) {
        match error {
            OpError::PeerLost { peer, .. } | OpError::PeerClosed { peer } if !self.session.is_here(peer.0) => {
                self.tally.cut_short += 1;
            }
            error => self.wrong(transfer, format!("ended with an error: {}", describe_error(error))),
        }
    }

    /// Waits for requests that carry no data to this rank.
    pub(super) fn wait_all(&mut self, tickets: Vec<(Transfer, Ticket)>) -> Result<(), SessionError> {
        for (transfer, ticket) in tickets {
            match self.session.wait(ticket)? {
                Ok(_) => {}
                Err(error) => self.judge_error(&transfer, &error),
            }
        }
        Ok(())
    }

    /// Judges a received message: envelope, payload, guard.
    pub(super) fn judge(&mut self, slot: &Slot, tag: Option<u64>, outcome: &Outcome) {
        match outcome {
            Err(error) => self.judge_error(&slot.transfer, error),
            Ok(done) => {
                let Transfer { source, bytes, .. } = slot.transfer;
                let wanted = (bytes, PeerId(source), tag, Some(Self::immediate(&slot.transfer)));
                let found = (done.bytes, done.peer, done.tag, done.immediate);
                if found != wanted {
                    let text = |(bytes, peer, tag, immediate): (u64, PeerId, Option<u64>, Option<u64>)| {
                        format!("{bytes} B from rank {} with tag {tag:x?} and immediate {immediate:x?}", peer.0)
                    };
                    return self.wrong(&slot.transfer, format!("{} came, not {}", text(found), text(wanted)));
                }
                self.judge_bytes(slot);
            }
        }
    }

    /// Judges bytes that are in place: payload and guard.
    pub(super) fn judge_bytes(&mut self, slot: &Slot) {
        let key = self.key(&slot.transfer);
        match pattern::compare(&key, 0, self.session.bytes(slot.seg)) {
            Some(difference) => self.wrong(&slot.transfer, describe(&difference)),
            None if !self.guard_is_whole(slot.seg) => self.wrong(&slot.transfer, beyond()),
            None => self.verified(&slot.transfer),
        }
    }

    /// Whether nothing wrote behind a buffer.
    pub(super) fn guard_is_whole(&self, seg: Seg) -> bool {
        self.session.bytes(guard_of(seg)).iter().all(|&byte| byte == GUARD)
    }
}

/// An error of a request, for people.
pub fn describe_error(error: &OpError) -> String {
    match error {
        OpError::Truncated { sent, capacity, peer, .. } => {
            format!("{sent} B of rank {} were cut off at the {capacity} B of the buffer", peer.0)
        }
        OpError::Cancelled => "cancelled".to_owned(),
        OpError::PeerLost { peer, .. } => format!("rank {} is lost", peer.0),
        OpError::PeerClosed { peer } => format!("rank {} has left", peer.0),
        OpError::Refused { peer, why } => format!("rank {} refused it ({why})", peer.0),
        OpError::Registration { rail } => format!("rail {} could not register the memory", rail.0),
    }
}

/// How a request ended, for people.
pub fn describe_outcome(outcome: &Outcome) -> String {
    match outcome {
        Ok(done) => format!("well, with {} B of rank {} at {}", done.bytes, done.peer.0, done.offset),
        Err(error) => format!("with an error: {}", describe_error(error)),
    }
}

/// The message about a damaged guard.
pub fn beyond() -> String {
    format!("bytes were written beyond the end of the buffer (into the {GUARD_BYTES} behind it)")
}

fn guard_of(seg: Seg) -> Seg {
    Seg::new(seg.at.region, seg.at.offset + seg.len, GUARD_BYTES)
}

/// A buffer, its guard, and what rounds it up.
pub fn slot_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGN) + GUARD_BYTES
}

/// The buffer of a multi-receive, which is never empty.
pub fn multi_bytes(round: &Round) -> u64 {
    MULTI_MESSAGES * round.bytes.max(1)
}

/// What one rank needs for one direction of any of the rounds.
pub fn memory_max(plan: &[Round], ranks: u32) -> u64 {
    plan.iter().map(|round| memory_bytes(round, ranks)).max().unwrap_or(0)
}

/// What one rank needs at most for one direction of a round.
fn memory_bytes(round: &Round, ranks: u32) -> u64 {
    let pairs = if round.shift.is_some() { 1 } else { u64::from(ranks) };
    let slots: u64 = (0..round.count).map(|_| slot_bytes(round.bytes)).sum();
    let multi = if round.kind == Kind::MultiReceive { slot_bytes(multi_bytes(round)) } else { 0 };
    pairs * slots.max(multi) + slot_bytes(ALIGN)
}
