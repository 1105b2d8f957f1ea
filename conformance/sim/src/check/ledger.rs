//! The ledger: what apps submitted, and what was reported to them. Checkers read nothing else but memory.
//!
//! One ledger serves all ranks of a simulation; every entry gets a stamp, so that "before" is known between
//! ranks too. What is wrong on the face of it (a completion of what is over, wrong bytes) is found as it is
//! entered; what only the whole story shows, by the checkers at the end ([`judge`](super::judge::judge)).

use std::collections::{BTreeMap, BTreeSet};

use rerail_core::endpoint::{Completion, Done, Level, Loss, Notify, OpError, RequestKind, Selector};
use rerail_core::mem::Seg;
use rerail_core::time::Time;
use rerail_core::wire::Refusal;

use super::cells::{Cells, Operation};
use super::claims::{Claim, Probe};
use super::identity::{Content, Name};
use super::notices::Notice;
use super::slots::Slots;
use super::verdict::{Corruption, Damage, Duplicated, PeerLoss, RequestFacts, Verdict};

/// A point in the story: its stamp, unlike that of every other entry and growing, and the virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Number of the entry.
    pub stamp: u64,
    /// When.
    pub at: Time,
}

/// What a rank requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submission {
    /// A message.
    Send {
        /// Its name.
        name: Name,
        /// Its length in bytes.
        len: u64,
        /// Its tag.
        tag: Option<u64>,
        /// Whether its name travels as immediate data.
        immediate: bool,
        /// When it counts as complete.
        level: Level,
    },
    /// A buffer for a message.
    Receive {
        /// Which it takes.
        from: Selector,
        /// For a claimed message: what is known of it ([`Ledger::claimed`]).
        claimed: Option<Claim>,
    },
    /// A buffer for messages.
    Multi {
        /// Which it takes.
        from: Selector,
        /// It is given back when fewer bytes are free.
        min: u64,
    },
    /// Bytes into a slot of a window: the whole slot, unless the access is bad.
    Put {
        /// Whose window.
        target: u32,
        /// Which slot.
        slot: u32,
        /// What.
        content: Content,
        /// Whether the content's seed travels as immediate data.
        immediate: bool,
        /// Why it must be refused, if it must.
        bad: Option<Refusal>,
    },
    /// Bytes out of a slot of a window.
    Get {
        /// Whose window.
        target: u32,
        /// Which slot.
        slot: u32,
        /// From where in the slot.
        offset: u64,
        /// Why it must be refused, if it must.
        bad: Option<Refusal>,
    },
    /// An atomic.
    Atomic {
        /// Whose window.
        target: u32,
        /// Which cell.
        cell: u32,
        /// What is done to it.
        operation: Operation,
        /// Why it must be refused, if it must.
        bad: Option<Refusal>,
    },
    /// An access to a window that may be withdrawn at any time.
    Temporary {
        /// Whose window.
        target: u32,
    },
    /// Waits for the one-sided requests submitted before.
    Flush {
        /// The rank that it flushes.
        target: u32,
    },
}

impl Submission {
    /// For people.
    pub const fn word(&self) -> &'static str {
        match self {
            Submission::Send { .. } => "send",
            Submission::Receive { claimed: None, .. } => "receive",
            Submission::Receive { .. } => "receive of a claimed message",
            Submission::Multi { .. } => "multi-receive",
            Submission::Put { .. } => "put",
            Submission::Get { .. } => "get",
            Submission::Atomic { .. } => "atomic",
            Submission::Temporary { .. } => "access to a temporary window",
            Submission::Flush { .. } => "flush",
        }
    }

    /// The peer that the request is bound to.
    pub fn peer(&self) -> Option<u32> {
        match *self {
            Submission::Send { name, .. } => Some(name.destination()),
            Submission::Receive { claimed: Some(claim), .. } => Some(claim.source),
            Submission::Receive { from, .. } | Submission::Multi { from, .. } => from.source.map(|peer| peer.0),
            Submission::Put { target, .. }
            | Submission::Get { target, .. }
            | Submission::Atomic { target, .. }
            | Submission::Temporary { target }
            | Submission::Flush { target } => Some(target),
        }
    }

    /// What its completions must be about; `None`: one of several.
    pub const fn kind(&self) -> Option<RequestKind> {
        Some(match self {
            Submission::Send { .. } => RequestKind::Send,
            Submission::Receive { .. } => RequestKind::Recv,
            Submission::Multi { .. } => RequestKind::MultiRecv,
            Submission::Put { .. } => RequestKind::Put,
            Submission::Get { .. } => RequestKind::Get,
            Submission::Atomic { .. } => RequestKind::Atomic,
            Submission::Flush { .. } => RequestKind::Flush,
            Submission::Temporary { .. } => return None,
        })
    }

    pub(super) const fn bad(&self) -> Option<Refusal> {
        match *self {
            Submission::Put { bad, .. } | Submission::Get { bad, .. } | Submission::Atomic { bad, .. } => bad,
            _ => None,
        }
    }
}

/// A message in a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which.
    pub name: Name,
    /// Its number among the messages of a multi-receive.
    pub index: u32,
    /// Where in the buffer.
    pub offset: u64,
    /// Bytes in the buffer.
    pub bytes: u64,
    /// When it was reported.
    pub reported: Moment,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The request.
    pub submission: Submission,
    /// Its memory, in pieces.
    pub memory: Vec<Seg>,
    /// How it is reported.
    pub notify: Notify,
    /// When it was submitted.
    pub submitted: Moment,
    /// When the caller took it back, successfully.
    pub cancelled: Option<Moment>,
    /// Receives: what came.
    pub parts: Vec<Part>,
    /// Multi-receives: the peers of messages that failed with them. No event reports the parts of the buffer
    /// that these took.
    pub failed_parts: Vec<u32>,
    /// Their numbers.
    pub failed_indexes: Vec<u32>,
    /// How it ended.
    pub ended: Option<(Moment, Result<Done, OpError>)>,
}

impl Request {
    /// Bytes of its memory.
    pub fn len(&self) -> u64 {
        self.memory.iter().map(|seg| seg.len).sum()
    }

    /// Whether it has no memory, or none of a byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its good end is reported by an event.
    pub const fn has_report(&self) -> bool {
        matches!(self.notify, Notify::Event | Notify::Both(_))
    }

    /// Whether it ended because its peer was given up or closed.
    pub const fn failed_with_peer(&self) -> bool {
        matches!(self.ended, Some((_, Err(OpError::PeerLost { .. } | OpError::PeerClosed { .. }))))
    }
}

/// A message that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its name.
    pub name: Name,
    /// Its length in bytes.
    pub len: u64,
    /// Its tag.
    pub tag: Option<u64>,
    /// Whether its name travels as immediate data.
    pub immediate: bool,
    /// When it counts as complete.
    pub level: Level,
    /// The sender's request.
    pub request: u32,
    /// When it was submitted.
    pub sent: Moment,
    /// When its sender took it back.
    pub taken_back: Option<Moment>,
    /// The receiver's request that got it.
    pub receipt: Option<u32>,
}

/// One rank's entries.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// Its requests, in the order of submission.
    pub requests: Vec<Request>,
    /// What its probes found.
    pub probes: Vec<Probe>,
    /// Peers that it gave up.
    pub losses: Vec<PeerLoss>,
    /// Peers that closed in good order.
    pub closed: Vec<u32>,
    /// Peers that were connected.
    pub met: Vec<u32>,
    /// When the process was killed.
    pub killed: Option<Time>,
    /// Requests that are not over.
    pub(super) open: u32,
    /// The counter that puts with immediate data count on, too, and how many were reported.
    pub(super) notices: Option<(u16, u64)>,
}

/// Something that can be checked only with another rank's memory at hand, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The message must be in its receiver's buffer.
    Placed(Name),
    /// This put must be in the window.
    Put {
        /// Whose.
        rank: u32,
        /// Which of the rank's requests.
        request: u32,
    },
    /// Nothing that was replaced may be in the slot again: another put into it begins.
    Slot {
        /// Whose window.
        target: u32,
        /// Which slot.
        slot: u32,
    },
}

/// What an entry came to, for the app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// The rank's request.
    pub request: u32,
    /// It is over: its memory is the app's again.
    pub over: bool,
    /// It ended well, or with a truncated message.
    pub well: bool,
    /// Receives: what came.
    pub name: Option<Name>,
}

/// What apps submitted, and what was reported to them.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    stamps: u64,
    pub(super) books: Vec<Book>,
    pub(super) messages: BTreeMap<(u32, u32), Vec<Message>>,
    pub(super) slots: Slots,
    pub(super) cells: Cells,
    /// Puts with immediate data, by these.
    pub(super) notices: BTreeMap<u64, Notice>,
    /// Ranks and their requests that wait for those before.
    pub(super) fences: BTreeSet<(u32, u32)>,
    pub(super) findings: Vec<Verdict>,
    pub(super) due: Vec<Due>,
    /// Messages that were entered as received.
    received: u64,
    /// A rank that lies.
    pub(super) liar: Option<u32>,
}

impl Ledger {
    /// An empty one for `ranks` ranks.
    pub fn new(ranks: u32) -> Self {
        Ledger { books: vec![Book::default(); ranks as usize], ..Ledger::default() }
    }

    /// A rank's entries.
    pub fn book(&self, rank: u32) -> &Book {
        &self.books[rank as usize]
    }

    /// Slots of windows.
    pub fn slots(&mut self) -> &mut Slots {
        &mut self.slots
    }

    /// Cells of windows.
    pub fn cells(&mut self) -> &mut Cells {
        &mut self.cells
    }

    /// A message, if there is one of this name.
    pub fn message(&self, name: Name) -> Option<&Message> {
        self.messages.get(&(name.source(), name.destination()))?.get(name.serial() as usize)
    }

    pub(super) fn message_mut(&mut self, name: Name) -> Option<&mut Message> {
        self.messages.get_mut(&(name.source(), name.destination()))?.get_mut(name.serial() as usize)
    }

    /// The name of the next message from `source` to `destination`.
    pub fn next_name(&self, source: u32, destination: u32) -> Name {
        let sent = self.messages.get(&(source, destination)).map_or(0, Vec::len);
        Name::new(source, destination, sent as u32)
    }

    /// The number that the rank's next request will have: its cookie.
    pub fn next_request(&self, rank: u32) -> u32 {
        self.books[rank as usize].requests.len() as u32
    }

    /// Messages received so far, over all ranks.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether something is wrong already: the rest of the run can be spared.
    pub fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Enters something wrong that an app saw.
    pub fn find(&mut self, finding: Verdict) {
        if self.is_about_liar(&finding) {
            return;
        }
        self.findings.push(finding);
    }

    pub(super) fn corrupt(&mut self, rank: u32, at: Time, damage: Damage) {
        self.find(Verdict::Corruption(Corruption { rank, at, damage }));
    }

    pub(super) fn moment(&mut self, at: Time) -> Moment {
        self.stamps += 1;
        Moment { stamp: self.stamps, at }
    }

    /// Enters a request that the endpoint has just accepted; gives its number.
    pub fn submitted(&mut self, rank: u32, at: Time, submission: Submission, memory: &[Seg], notify: Notify) -> u32 {
        let request = self.next_request(rank);
        let now = self.moment(at);
        match submission {
            Submission::Send { name, len, tag, immediate, level } => {
                let pair = self.messages.entry((name.source(), name.destination())).or_default();
                debug_assert_eq!(pair.len() as u32, name.serial(), "names are given in order");
                let (taken_back, receipt) = (None, None);
                pair.push(Message { name, len, tag, immediate, level, request, sent: now, taken_back, receipt });
            }
            Submission::Put { target, slot, content, immediate, bad: None } => {
                if immediate {
                    let bytes = memory.iter().map(|seg| seg.len).sum();
                    self.announce(content.0, (rank, request), target, bytes);
                }
                self.slots.put(target, slot, content, (rank, request), now.stamp);
                self.due.push(Due::Slot { target, slot });
            }
            Submission::Atomic { target, cell, operation, bad: None } => {
                self.cells.requested(target, cell, (rank, request), operation)
            }
            _ => {}
        }
        let book = &mut self.books[rank as usize];
        book.open += 1;
        book.requests.push(Request {
            submission,
            memory: memory.to_vec(),
            notify,
            submitted: now,
            cancelled: None,
            parts: Vec::new(),
            failed_parts: Vec::new(),
            failed_indexes: Vec::new(),
            ended: None,
        });
        request
    }

    /// Enters that the endpoint let the rank take a request back.
    pub fn cancelled(&mut self, rank: u32, at: Time, request: u32) {
        let now = self.moment(at);
        let entry = &mut self.books[rank as usize].requests[request as usize];
        entry.cancelled = Some(now);
        match entry.submission {
            Submission::Send { name, .. } => {
                if let Some(message) = self.message_mut(name) {
                    message.taken_back = Some(now);
                }
            }
            Submission::Put { target, slot, content, .. } => {
                self.renounce(content.0);
                self.slots.withdraw(target, slot, (rank, request));
            }
            Submission::Atomic { target, cell, .. } => self.cells.withdraw(target, cell, (rank, request)),
            _ => {}
        }
    }

    /// Enters a completion. `memory`: the bytes of the request's memory, its pieces one after the other, as
    /// they are now.
    pub fn reported(&mut self, rank: u32, at: Time, completion: &Completion, memory: &[u8]) -> Reported {
        let now = self.moment(at);
        let Some(request) = u32::try_from(completion.cookie.0).ok().filter(|request| self.is_open(rank, *request))
        else {
            let request = completion.cookie.0;
            self.find(Verdict::Duplicated(Duplicated::Completion { rank, request, at }));
            return Reported { request: u32::MAX, ..Reported::default() };
        };
        let entry = &mut self.books[rank as usize].requests[request as usize];
        let is_multi = matches!(entry.submission, Submission::Multi { .. });
        if completion.last {
            entry.ended = Some((now, completion.result));
        }
        let entry = entry.clone();
        if entry.submission.kind().is_some_and(|kind| kind != completion.kind) {
            self.corrupt(rank, at, Damage::Kind { request, kind: completion.kind });
        }
        if completion.last {
            self.books[rank as usize].open -= 1;
        } else if !is_multi {
            self.find(Verdict::Duplicated(Duplicated::Completion { rank, request: request.into(), at }));
        }
        let well = match completion.result {
            Ok(_) | Err(OpError::Truncated { .. }) => true,
            Err(error) => {
                if !self.is_of_liar(rank, &entry, completion) {
                    self.check_error(rank, at, request, &entry, error);
                }
                false
            }
        };
        let mut reported = Reported { request, over: completion.last, well, name: None };
        if self.is_of_liar(rank, &entry, completion) {
            return reported;
        }
        if well {
            self.check_fence(rank, at, request);
        }
        if well && entry.cancelled.is_some() && !is_multi {
            self.find(Verdict::Duplicated(Duplicated::Completion { rank, request: request.into(), at }));
        }
        match entry.submission {
            Submission::Receive { .. } | Submission::Multi { .. } => {
                reported.name = self.came(rank, now, request, &entry, completion, memory);
                if reported.over {
                    self.check_parts(rank, at, request, memory);
                }
            }
            _ if !well => {}
            _ if entry.submission.bad().is_some() => {
                self.corrupt(rank, at, Damage::Refusal { request, refused: false });
            }
            Submission::Send { name, level, .. } => {
                self.check_source(rank, at, request, Content::from(name), memory);
                if level == Level::Placed {
                    self.due.push(Due::Placed(name));
                }
            }
            Submission::Put { target, slot, content, .. } => {
                self.check_source(rank, at, request, content, memory);
                self.slots.done(target, slot, (rank, request), now.stamp);
                self.check_notice(content.0);
                self.due.push(Due::Put { rank, request });
            }
            Submission::Get { target, slot, offset, .. } => {
                let between = entry.submitted.stamp..now.stamp;
                if let Some((byte, found)) = self.slots.first_impossible(target, slot, offset, memory, between) {
                    self.corrupt(rank, at, Damage::Got { request, target, slot, at: byte, found });
                }
            }
            Submission::Atomic { target, cell, .. } => {
                if let Ok(done) = completion.result {
                    self.cells.answered(target, cell, (rank, request), done.old);
                }
            }
            Submission::Temporary { .. } => {}
            Submission::Flush { target } => self.flushed(rank, request, target, now.stamp),
        }
        reported
    }

    fn is_open(&self, rank: u32, request: u32) -> bool {
        let entry = self.books[rank as usize].requests.get(request as usize);
        entry.is_some_and(|entry| entry.ended.is_none())
    }

    fn check_source(&mut self, rank: u32, at: Time, request: u32, content: Content, memory: &[u8]) {
        if let Some(difference) = content.first_difference(0, memory) {
            self.corrupt(rank, at, Damage::Source { request, difference });
        }
    }

    fn check_error(&mut self, rank: u32, at: Time, request: u32, entry: &Request, error: OpError) {
        let fair = match error {
            OpError::Cancelled => entry.cancelled.is_some(),
            OpError::Refused { why, peer } => {
                let bound = entry.submission.peer() == Some(peer.0);
                if matches!(entry.submission, Submission::Temporary { .. }) && bound && why == Refusal::NoWindow {
                    return;
                }
                if entry.submission.bad().is_none()
                    && bound
                    && matches!(
                        entry.submission,
                        Submission::Put { .. } | Submission::Get { .. } | Submission::Atomic { .. }
                    )
                {
                    return self.corrupt(rank, at, Damage::Refusal { request, refused: true });
                }
                bound && entry.submission.bad() == Some(why)
            }
            OpError::PeerLost { peer, .. } | OpError::PeerClosed { peer } => {
                entry.submission.peer().is_none_or(|bound| bound == peer.0)
            }
            OpError::Truncated { .. } => {
                matches!(entry.submission, Submission::Receive { .. } | Submission::Multi { .. })
            }
            OpError::Registration { .. } => false,
        };
        if !fair {
            self.corrupt(rank, at, Damage::Error { request, error });
        }
    }

    /// A flush is over: puts before it are in the window, those included that are not reported.
    fn flushed(&mut self, rank: u32, flush: u32, target: u32, stamp: u64) {
        for request in 0..flush {
            let entry = &self.books[rank as usize].requests[request as usize];
            let Submission::Put { target: to, slot, bad: None, .. } = entry.submission else { continue };
            let done = entry.ended.is_none_or(|(_, result)| result.is_ok());
            if to == target && entry.cancelled.is_none() && done {
                if !entry.has_report() {
                    self.slots.done(target, slot, (rank, request), stamp);
                }
                self.due.push(Due::Put { rank, request });
            }
        }
    }

    /// Enters that a rank gave a peer up.
    pub fn peer_lost(&mut self, rank: u32, at: Time, peer: u32, why: Loss) {
        self.books[rank as usize].losses.push(PeerLoss { rank, peer, why, at, requests: 0 });
    }

    /// Enters that a peer is connected.
    pub fn peer_up(&mut self, rank: u32, peer: u32) {
        self.books[rank as usize].met.push(peer);
    }

    /// Whether either ever knew itself connected to the other.
    pub fn have_met(&self, one: u32, other: u32) -> bool {
        self.book(one).met.contains(&other) || self.book(other).met.contains(&one)
    }

    /// Enters that a peer closed in good order.
    pub fn peer_closed(&mut self, rank: u32, peer: u32) {
        self.books[rank as usize].closed.push(peer);
    }

    /// Enters that a rank's process was killed: nothing more is expected of it.
    pub fn killed(&mut self, rank: u32, at: Time) {
        self.books[rank as usize].killed.get_or_insert(at);
    }

    /// Whether either has given the other up, or one was killed.
    pub fn is_parted(&self, one: u32, other: u32) -> bool {
        let gave_up = |rank: u32, peer: u32| {
            let book = &self.books[rank as usize];
            book.killed.is_some() || book.losses.iter().any(|loss| loss.peer == peer)
        };
        gave_up(one, other) || gave_up(other, one)
    }

    /// Whether either has closed the other in good order.
    pub(super) fn is_closed(&self, one: u32, other: u32) -> bool {
        self.book(one).closed.contains(&other) || self.book(other).closed.contains(&one)
    }

    /// Whether there is something to check now, by [`judge_due`](Self::judge_due).
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(super) fn take_due(&mut self) -> Vec<Due> {
        std::mem::take(&mut self.due)
    }

    pub(super) fn count_received(&mut self) {
        self.received += 1;
    }

    /// A request, for people.
    pub fn facts(&self, rank: u32, request: u32) -> RequestFacts {
        let entry = &self.books[rank as usize].requests[request as usize];
        let name = match entry.submission {
            Submission::Send { name, .. } => Some(name),
            Submission::Receive { claimed, .. } => claimed.and_then(|claim| claim.name),
            _ => None,
        };
        RequestFacts {
            rank,
            request,
            kind: entry.submission.word(),
            peer: entry.submission.peer(),
            name,
            since: entry.submitted.at,
        }
    }
}
