//! What a run came to, with the facts that a person needs to look further.

use rerail_core::endpoint::{Loss, OpError, RequestKind};
use rerail_core::time::Time;

use super::identity::{Difference, Name};
use super::memory::Scar;

/// What a run came to. Of several findings the gravest is reported: they stand here in the order of
/// [`exit_code`], except that a run that got [`Stuck`] is not checked for leaks.
///
/// [`exit_code`]: Self::exit_code
/// [`Stuck`]: Self::Stuck
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was done, and done right.
    Clean,
    /// The simulation can't be built as it is described.
    Impossible(String),
    /// A rank panicked, or the simulation could not go on.
    Crash(Crash),
    /// Something that was promised never happened.
    Lost(Lost),
    /// Something happened twice.
    Duplicated(Duplicated),
    /// A message went to a receive that had no right to it.
    Order(Disorder),
    /// Bytes are not what they should be.
    Corruption(Corruption),
    /// Something was not given back, or grew over its bound.
    Leak(Leak),
    /// Something waits for ever, or longer than it may.
    Stuck(Stuck),
}

impl Verdict {
    /// The exit code of this verdict: 0 clean, 20 crash, 21 lost, 22 duplicated, 23 order, 24
    /// corruption, 25 leak, 26 stuck. (1 and 2 are left to errors of use, 101 to a panic of the tool itself.)
    pub const fn exit_code(&self) -> u8 {
        match self {
            Verdict::Clean => 0,
            Verdict::Impossible(_) => 2,
            Verdict::Crash(_) => 20,
            Verdict::Lost(_) => 21,
            Verdict::Duplicated(_) => 22,
            Verdict::Order(_) => 23,
            Verdict::Corruption(_) => 24,
            Verdict::Leak(_) => 25,
            Verdict::Stuck(_) => 26,
        }
    }

    /// One word, as in tables.
    pub const fn word(&self) -> &'static str {
        match self {
            Verdict::Clean => "clean",
            Verdict::Impossible(_) => "impossible",
            Verdict::Crash(_) => "crash",
            Verdict::Lost(_) => "lost",
            Verdict::Duplicated(_) => "duplicated",
            Verdict::Order(_) => "order",
            Verdict::Corruption(_) => "corruption",
            Verdict::Leak(_) => "leak",
            Verdict::Stuck(_) => "stuck",
        }
    }

    /// Whether nothing is wrong.
    pub const fn is_good(&self) -> bool {
        matches!(self, Verdict::Clean)
    }
}

/// A peer that a rank gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLoss {
    /// The rank that gave up.
    pub rank: u32,
    /// The peer.
    pub peer: u32,
    /// The reason that the endpoint reports.
    pub why: Loss,
    /// When.
    pub at: Time,
    /// How many of its requests ended with that.
    pub requests: u32,
}

/// A run that could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Whose; `None`: the simulation's.
    pub rank: Option<u32>,
    /// When.
    pub at: Time,
    /// The panic's message.
    pub message: String,
}

/// A request, for people: what it is and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// Whose.
    pub rank: u32,
    /// Its number among the rank's requests.
    pub request: u32,
    /// "send", "receive", ...
    pub kind: &'static str,
    /// The other side, where it is known.
    pub peer: Option<u32>,
    /// The message, where it is known.
    pub name: Option<Name>,
    /// When it was submitted.
    pub since: Time,
}

/// Something that was promised never happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// A message was sent and never received, and a receive waits for it or would have.
    Message {
        /// Which.
        name: Name,
        /// When it was submitted.
        sent: Time,
        /// When its completion was reported, if it was.
        completed: Option<Time>,
    },
    /// A message was acknowledged (level Acknowledged or Placed) before its sender was given up, and never
    /// came.
    Acknowledged {
        /// Which.
        name: Name,
        /// When its completion was reported.
        completed: Time,
    },
    /// A request's outcome was never reported, although what it requested was done.
    Completion(RequestFacts),
    /// A counter that requests count on shows less than were done.
    Counted {
        /// Whose.
        rank: u32,
        /// What it shows.
        counted: u64,
        /// How many were done.
        done: u64,
    },
    /// An atomic was answered and not performed.
    Atomic(CellFacts),
    /// A put was completed, or flushed, and is not in the window.
    Put {
        /// The put.
        put: RequestFacts,
        /// The rank whose window it is.
        target: u32,
        /// What is there.
        difference: Difference,
    },
    /// A put was completed, or flushed, and its target not notified.
    Notice {
        /// The put.
        put: RequestFacts,
        /// The rank whose window it is.
        target: u32,
    },
    /// A peer was given up that lived and could be reached.
    Peer(PeerLoss),
}

/// A cell that atomics work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellFacts {
    /// The rank whose window holds it.
    pub target: u32,
    /// Its number.
    pub cell: u32,
    /// What it should hold, by the answers.
    pub expected: u64,
    /// What it holds, or what it held by an answer.
    pub found: u64,
}

/// Something happened twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Duplicated {
    /// A message was received twice.
    Message {
        /// Which.
        name: Name,
        /// The rank's request that had it first.
        first: u32,
        /// The one that had it again.
        second: u32,
        /// When.
        at: Time,
    },
    /// A message that its sender had taken back came all the same.
    Cancelled {
        /// Which.
        name: Name,
        /// When.
        at: Time,
    },
    /// A request's outcome was reported twice, or the outcome of a request that there never was.
    Completion {
        /// Whose.
        rank: u32,
        /// Its number.
        request: u64,
        /// When.
        at: Time,
    },
    /// A target was notified of a put twice.
    Notice {
        /// The put.
        put: RequestFacts,
        /// The rank whose window it is.
        target: u32,
        /// When.
        at: Time,
    },
    /// A counter that requests count on shows more than were done.
    Counted {
        /// Whose.
        rank: u32,
        /// What it shows.
        counted: u64,
        /// How many were done.
        done: u64,
    },
    /// An atomic was performed twice, or two were answered with one old value.
    Atomic(CellFacts),
}

/// A message went to a receive that had no right to it. Receives are named by their rank's request numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disorder {
    /// The receive does not take such messages.
    NotTaken {
        /// The receive.
        receive: u32,
        /// What it got.
        name: Name,
    },
    /// The receive got a message although an older one of the same sender, which it also takes, was not
    /// matched yet (M-1).
    Overtaken {
        /// The receive.
        receive: u32,
        /// What it got.
        name: Name,
        /// What it should have got.
        older: Name,
    },
    /// The message went to a receive although one that was posted before, and takes it too, was still free
    /// (M-1).
    PassedBy {
        /// The receive that should have got it.
        receive: u32,
        /// The one that did, by its rank's request number; a probe that found it free, for `None`.
        younger: Option<u32>,
        /// The message.
        name: Name,
    },
    /// No order of matching explains what these receives got, though each pair of them could be explained.
    Impossible {
        /// One of them.
        receive: u32,
        /// What it got.
        name: Name,
    },
    /// Messages of a multi-receive are not numbered from 0 on without gaps (M-9).
    Index {
        /// The receive.
        receive: u32,
        /// The message.
        name: Name,
        /// Its number.
        index: u32,
        /// What it should be.
        expected: u32,
    },
    /// Messages of a multi-receive don't lie back to back, or one was put where less than the minimum was
    /// free.
    Offset {
        /// The receive.
        receive: u32,
        /// The message.
        name: Option<Name>,
        /// Where it lies.
        offset: u64,
        /// Where it should.
        expected: u64,
    },
    /// What receives of one selector got of one sender is not the same in another run of the same programme,
    /// or not in the order of sending.
    Differs {
        /// The receiving rank.
        receiver: u32,
        /// The sender.
        sender: u32,
        /// Where in the order.
        at: u32,
        /// The message that came there with the express path.
        with: Option<u32>,
        /// The one that came without.
        without: Option<u32>,
    },
}

/// Bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// In whose memory.
    pub rank: u32,
    /// When it was seen.
    pub at: Time,
    /// What is wrong.
    pub damage: Damage,
}

/// What is wrong with bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A received message.
    Message {
        /// Which.
        name: Name,
        /// The receive.
        receive: u32,
        /// Where.
        difference: Difference,
    },
    /// A message that was not sent, by its name, sender or length.
    UnknownMessage {
        /// The receive.
        receive: u32,
        /// Its name, if it is one.
        name: Option<Name>,
        /// The sender that the completion names.
        peer: u32,
        /// Bytes that the completion names.
        bytes: u64,
    },
    /// Tag, immediate data, length or sender of a received message are not those that were sent.
    Envelope {
        /// Which.
        name: Name,
        /// The receive.
        receive: u32,
        /// "tag", "immediate", "length", "source".
        field: &'static str,
    },
    /// Bytes of a receive buffer behind the message.
    Behind {
        /// The receive.
        receive: u32,
        /// Where.
        difference: Difference,
    },
    /// A send or put buffer that the transport changed.
    Source {
        /// The request.
        request: u32,
        /// Where.
        difference: Difference,
    },
    /// A send of level Placed is complete and its payload is not in the receiver's buffer.
    NotPlaced {
        /// Which.
        name: Name,
    },
    /// A get brought what the window never held in that time.
    Got {
        /// The get.
        request: u32,
        /// The rank whose window it is.
        target: u32,
        /// The slot.
        slot: u32,
        /// Bytes into the slot.
        at: u64,
        /// What came.
        found: u8,
    },
    /// A window holds what it cannot hold after all that was put.
    Window {
        /// The slot.
        slot: u32,
        /// Bytes into the slot.
        at: u64,
        /// What is there.
        found: u8,
    },
    /// A window that may not be written was, or one was written outside of its slots.
    Protected(Difference),
    /// An access that should have been refused was not, or one that is allowed was.
    Refusal {
        /// The request.
        request: u32,
        /// Whether it was refused.
        refused: bool,
    },
    /// A rank was notified of a put that no peer made so.
    Notice {
        /// The peer named.
        peer: u32,
        /// Bytes named.
        bytes: u64,
        /// The immediate data.
        immediate: u64,
    },
    /// A request with a fence was complete before an earlier one.
    Fence {
        /// The request.
        request: u32,
        /// The earlier one.
        earlier: u32,
    },
    /// A completion is about another kind of request.
    Kind {
        /// The request.
        request: u32,
        /// What it is about.
        kind: RequestKind,
    },
    /// A request ended with an error that nothing explains.
    Error {
        /// The request.
        request: u32,
        /// The error.
        error: OpError,
    },
    /// Memory outside of every buffer under way was written: past an end, or late.
    LateWrite(Scar),
}

/// Something was not given back, or grew over its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leak {
    /// Entries of a rank's tables.
    Table {
        /// Whose.
        rank: u32,
        /// Which, as in `Usage::tables`.
        table: &'static str,
        /// Entries left in use.
        used: u32,
    },
    /// Objects of a device.
    Objects {
        /// Which: "hca 3: queue pairs".
        what: String,
        /// How many should be left.
        before: u64,
        /// How many there are.
        after: u64,
    },
    /// Something that is bounded by configuration was larger.
    Bound {
        /// What.
        what: String,
        /// The largest seen.
        reached: u64,
        /// The bound.
        bound: u64,
    },
}

/// Something waits for ever, or longer than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Not everything was over in time.
    Waiting {
        /// When the time was over.
        at: Time,
        /// Requests that are not over, oldest first; at most [`Self::SHOWN_MAX`].
        requests: Vec<RequestFacts>,
        /// How many there are.
        count: usize,
    },
    /// A request waited longer than it may while others of its kind, submitted later, went through.
    WaitingTooLong {
        /// Which.
        request: RequestFacts,
        /// How long, in nanoseconds.
        waited_ns: u64,
        /// How many others of its kind were submitted later and done earlier.
        overtaken_by: usize,
    },
}

impl Stuck {
    /// Requests that are listed.
    pub const SHOWN_MAX: usize = 20;
}
