//! Planted bugs: wrong beliefs that an endpoint can be made to hold, so that whoever checks endpoints can prove that the
//! checks find them. Only with feature `planted` (and in this crate's own tests); without it every site below is the
//! constant `false` or nothing at all, and the endpoint is what it would be without this file.
//!
//! A site asks [`Endpoint::planted`], or calls one of the hooks of `planted/live.rs`, which stand empty in
//! `planted/absent.rs`. An endpoint with a bug may misbehave as it likes and may fail its own debug assertions (that
//! counts as found); it stays safe code.

#[cfg(not(any(test, feature = "planted")))]
mod absent;
#[cfg(any(test, feature = "planted"))]
mod live;

#[cfg(any(test, feature = "planted"))]
pub(super) use live::Plants;

use super::op::{Op, OpKind, Phase};

/// A wrong belief about transports over several rails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(not(any(test, feature = "planted")), allow(dead_code, reason = "some are named by live hooks only"))]
pub enum Planted {
    /// "Packets come in the order of their numbers": one with a lower PSN than the highest seen of its lane is taken for
    /// a duplicate and dropped. Wrong as soon as rails overtake each other. Seen by liveness: what was dropped is never
    /// acknowledged, its request never ends; or by the check of MPI's order of matching, because what comes behind it
    /// does arrive.
    HighWater,
    /// "What is posted first arrives first, and a FIN is only a formality": the FIN of each part of a rendezvous by put
    /// goes out before the part's writes. Seen by the check of payloads at completion, by the canary in released
    /// buffers, or as a remote access to memory that is not registered any more.
    FinBeforeData,
    /// "The rail is done, so the peer has it": sends (of any level, eager or by put) and one-sided puts complete when
    /// the rail reports their posts done, not when the peer has acknowledged. Seen by the check that what completed as
    /// acknowledged, placed or put is there at the peer, at the latest when a rail fails after its report.
    CompletionOnCqe,
    /// "A rail that I see dead is dead": when a rail fails, everything unfinished on it is sent again over another one at
    /// once, without the peer's word that its end is dead too (F-3). Seen as a ghost write: a late remote write of the
    /// dead rail lands in a buffer that the application has back.
    ReplayUnfenced,
    /// "A posted acknowledgment has been posted": each 7th explicit acknowledgment of an endpoint is believed to be out
    /// and is not, and duplicates are not acknowledged again. Seen by liveness where no other packet follows that would
    /// carry it, and by the check for leaks where the request was told before; an endpoint that probes silent peers ([`Config::probe_after`](crate::config::Config)) heals it.
    AckForgotten,
    /// "Shares always add up": the last stripe of a large transfer ends 64 bytes short. Seen by the check of payloads
    /// (put), or by liveness (data segments, get), or by the check of MPI's order of matching, because what comes behind a
    /// message that never ends is over before it.
    WeightsDontSum,
    /// "An index is a name": posts reported by rails and operations named by peers are looked up by index alone, so that
    /// a late or repeated one names what took the slot since. Seen by the checks of payloads and of untouched buffers where
    /// rails report late or twice.
    NoGeneration,
    /// "Rails keep order among each other": messages are matched as they arrive, whatever their PSN. Seen by the check
    /// of MPI's order of matching.
    ArrivalOrder,
    /// "The latest news first": of the messages that wait, a receive gets the newest one that fits instead of the
    /// oldest. Seen by the check of MPI's order of matching.
    NewestFirst,
    /// "The peer will find room": messages go out without looking at the credits. Seen as a peer that is lost for a
    /// broken rule in a world without a fault.
    CreditIgnored,
    /// "Somebody else gives it back": the place of a retained copy stays taken when the peer has acknowledged it. Seen by
    /// the check for leaks ([`Endpoint::usage`](super::Endpoint::usage)) alone: everything goes on without copies.
    RetainedKept,
    /// "Who wants to talk will call": a connection that has failed is not opened again (F-8). Seen as a living peer that is
    /// given up.
    RedialNever,
    /// "A FIN that came has come": the FINs that a receiver has counted when RESUME comes count for the next round too (F-7).
    /// Seen by the check of payloads at completion, as soon as writes of the new round land behind the count's end.
    ResumeKeepsFins,
    /// "A FIN is a FIN": those of any round count (F-7). Seen as the one before.
    FinOfAnyRound,
    /// "Its header came, so it has come": the number of a packet whose payload died on its way stays claimed, so that the
    /// copy is a duplicate (F-6). Seen by liveness: the request waits for bytes that nobody sends any more.
    VoidNotUnclaimed,
    /// "Who asks again wants it again": a copy of an atomic is performed too (S-4, R-7). Seen by the check of cells.
    AtomicAgain,
    /// "What is posted needs no copy any more": a retained copy's place is given back when the rail is done with it, though
    /// it may have to go out again. Seen by the check of payloads when it does.
    RetainedEarly,
    /// "Who has all of it has everything": once a message's FIN is here, nothing that was lost of it goes out again, not even
    /// a RESUME, whose number the peer then never gets (F-7). Seen by liveness, a window further on.
    ResumeSkipped,
}

#[cfg(any(test, feature = "planted"))]
impl Planted {
    /// All of them.
    pub const ALL: [Planted; 18] = [
        Planted::HighWater,
        Planted::FinBeforeData,
        Planted::CompletionOnCqe,
        Planted::ReplayUnfenced,
        Planted::AckForgotten,
        Planted::WeightsDontSum,
        Planted::NoGeneration,
        Planted::ArrivalOrder,
        Planted::NewestFirst,
        Planted::CreditIgnored,
        Planted::RetainedKept,
        Planted::RedialNever,
        Planted::ResumeKeepsFins,
        Planted::FinOfAnyRound,
        Planted::VoidNotUnclaimed,
        Planted::AtomicAgain,
        Planted::RetainedEarly,
        Planted::ResumeSkipped,
    ];

    /// Its name, for command lines and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Planted::HighWater => "high-water",
            Planted::FinBeforeData => "fin-before-data",
            Planted::CompletionOnCqe => "completion-on-cqe",
            Planted::ReplayUnfenced => "replay-unfenced",
            Planted::AckForgotten => "ack-forgotten",
            Planted::WeightsDontSum => "weights-dont-sum",
            Planted::NoGeneration => "no-generation",
            Planted::ArrivalOrder => "arrival-order",
            Planted::NewestFirst => "newest-first",
            Planted::CreditIgnored => "credit-ignored",
            Planted::RetainedKept => "retained-kept",
            Planted::RedialNever => "redial-never",
            Planted::ResumeKeepsFins => "resume-keeps-fins",
            Planted::FinOfAnyRound => "fin-of-any-round",
            Planted::VoidNotUnclaimed => "void-not-unclaimed",
            Planted::AtomicAgain => "atomic-again",
            Planted::RetainedEarly => "retained-early",
            Planted::ResumeSkipped => "resume-skipped",
        }
    }
}

impl Op {
    /// [`Planted::CompletionOnCqe`]: whether rails are through with all of it.
    pub(super) fn is_posted(&self) -> bool {
        let waits = match self.kind {
            OpKind::Send => matches!(self.phase, Phase::EagerSent | Phase::Writing),
            kind => kind == OpKind::Put,
        };
        waits && self.all_sent && self.posts == 0
    }
}
