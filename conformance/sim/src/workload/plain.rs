//! What workloads with a fixed programme have in common: payloads that follow from names, requests that are
//! open, and what was seen wrong.
//!
//! Such a workload has every message beforehand: its sender, its receiver, its time and its contents. So a
//! receive names its sender and its tag, and has one right outcome. All apps of a simulation share a
//! [`Common`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use rerail_core::endpoint::{Completion, Done, Event, Loss, OpError, RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::{Cookie, PeerId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::time::{Nanos, Time};
use rerail_linux::driver::RequestError;

use crate::check::{BLANK, Content, Corruption, Crash, Damage, Difference, Duplicated, Lost, Name, PeerLoss};
use crate::check::{RequestFacts, Stuck, Verdict};
use crate::cluster::{Cluster, Cx, Ended};
use crate::rails;

/// Payloads up to so many bytes are written and compared whole.
pub(super) const WHOLE_MAX: u64 = 64 * 1024;

/// Of larger ones so many bytes are, ...
const SAMPLE: usize = 64;

/// ... as often as this, and at the end.
const SAMPLE_EVERY: usize = 4096;

/// Tables that are full are tried again after so long.
pub(super) const AGAIN: Nanos = Nanos::from_micros(20);

/// What all apps of a simulation share.
#[derive(Clone, Default)]
pub(super) struct Common(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    /// Requests that are not over, by rank and cookie.
    open: BTreeMap<(u32, u64), RequestFacts>,
    /// The gravest of what was seen.
    wrong: Option<Verdict>,
    losses: Vec<PeerLoss>,
    /// A message that is spoilt on purpose.
    spoilt: Option<Name>,
}

/// A message of the programme, as either side sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// Its name: it travels as immediate data; its serial number is the tag.
    pub(super) name: Name,
    /// What its payload follows from: its own name, or one that several messages from one buffer share.
    pub(super) content: Name,
    /// Its length.
    pub(super) bytes: u64,
    /// Where it lies here.
    pub(super) region: RegionId,
    /// Bytes into the region.
    pub(super) offset: u64,
}

impl Message {
    /// A request with its receiver; [`send`](Plain::send) sets the rest.
    pub(super) fn request(&self) -> SendRequest<'static> {
        SendRequest::new(PeerId(self.name.destination()), &[])
    }

    fn segment(&self) -> Seg {
        Seg::new(self.region, self.offset, self.bytes)
    }

    fn range(&self) -> Range<usize> {
        self.offset as usize..(self.offset + self.bytes) as usize
    }
}

/// The parts of a payload that are written and compared.
fn samples(len: usize) -> impl Iterator<Item = Range<usize>> {
    let whole = len as u64 <= WHOLE_MAX;
    let (every, sample) = if whole { (len.max(1), len) } else { (SAMPLE_EVERY, SAMPLE) };
    let end = (!whole).then(|| len - SAMPLE..len);
    (0..len).step_by(every).map(move |at| at..(at + sample).min(len)).chain(end)
}

/// Where bytes differ first from a payload, as far as it is written.
pub(super) fn difference(content: Name, bytes: &[u8]) -> Option<Difference> {
    let differs = |range: Range<usize>| {
        let at = range.start as u64;
        let difference = Content::from(content).first_difference(at, &bytes[range]);
        difference.map(|difference| Difference { at: at + difference.at, ..difference })
    };
    samples(bytes.len()).find_map(differs)
}

/// What became of a request to submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submitted {
    /// It is open.
    Open,
    /// A table is full: try again later.
    Full,
    /// It will never be: the peer is gone, or something is wrong, which has been noted.
    Never,
}

impl Common {
    /// From now on that message is sent with its last byte wrong.
    #[cfg(test)]
    pub(super) fn spoil(&self, name: Name) {
        self.0.borrow_mut().spoilt = Some(name);
    }

    /// Something is wrong. Of several the gravest is kept, of equals the first.
    pub(super) fn found(&self, wrong: Verdict) {
        let mut state = self.0.borrow_mut();
        if state.wrong.as_ref().is_none_or(|known| wrong.exit_code() < known.exit_code()) {
            state.wrong = Some(wrong);
        }
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_well(&self) -> bool {
        self.0.borrow().wrong.is_none()
    }

    /// A rank could not go on.
    pub(super) fn crash(&self, cx: &Cx<'_>, message: String) {
        self.found(Verdict::Crash(Crash { rank: Some(cx.rank), at: cx.now, message }));
    }

    /// Memory of a rank; `None` has been noted.
    pub(super) fn alloc(&self, cx: &mut Cx<'_>, bytes: u64) -> Option<RegionId> {
        let region = cx.alloc(bytes.max(1) as usize);
        if let Err(error) = &region {
            self.crash(cx, format!("{bytes} bytes of memory: {error}"));
        }
        region.ok()
    }

    /// Writes the payload of a message that will be sent.
    pub(super) fn fill(&self, cx: &mut Cx<'_>, message: &Message) {
        let spoilt = self.0.borrow().spoilt == Some(message.name);
        let bytes = rails::region_mut(cx.engine, message.region).and_then(|bytes| bytes.get_mut(message.range()));
        let Some(bytes) = bytes else { return };
        for range in samples(bytes.len()) {
            Content::from(message.content).fill(range.start as u64, &mut bytes[range]);
        }
        if let Some(last) = bytes.last_mut().filter(|_| spoilt) {
            *last ^= 0x55;
        }
    }

    /// Clears the place of a message that will be received, so that what does not come is seen.
    pub(super) fn clear(&self, cx: &mut Cx<'_>, message: &Message) {
        let bytes = rails::region_mut(cx.engine, message.region).and_then(|bytes| bytes.get_mut(message.range()));
        let Some(bytes) = bytes else { return };
        samples(bytes.len()).for_each(|range| bytes[range].fill(BLANK));
    }

    /// Sends a message.
    pub(super) fn send(&self, cx: &mut Cx<'_>, message: &Message, cookie: u64, send: SendRequest<'_>) -> Submitted {
        let segments = [message.segment()];
        let peer = message.name.destination();
        let send = SendRequest {
            peer: PeerId(peer),
            tag: Some(message.name.serial().into()),
            immediate: Some(message.name.to_bits()),
            segments: &segments,
            cookie: Cookie(cookie),
            ..send
        };
        let result = cx.engine.send(&send).map(drop);
        self.submitted(cx, "send", peer, message.name, cookie, result)
    }

    /// Posts the receive of a message.
    pub(super) fn receive(&self, cx: &mut Cx<'_>, message: &Message, cookie: u64) -> Submitted {
        let segments = [message.segment()];
        let peer = message.name.source();
        let tag = TagMatch::Tagged { tag: message.name.serial().into(), ignore: 0 };
        let from = Selector { source: Some(PeerId(peer)), tag };
        let recv = RecvRequest { cookie: Cookie(cookie), ..RecvRequest::new(from, &segments) };
        let result = cx.engine.recv(&recv).map(drop);
        self.submitted(cx, "receive", peer, message.name, cookie, result)
    }

    /// Notes a request that was submitted, or reports why it was not.
    pub(super) fn submitted(
        &self,
        cx: &mut Cx<'_>,
        kind: &'static str,
        peer: u32,
        name: Name,
        cookie: u64,
        result: Result<(), RequestError>,
    ) -> Submitted {
        let request = RequestFacts {
            rank: cx.rank,
            request: cookie as u32,
            kind,
            peer: Some(peer),
            name: Some(name),
            since: cx.now,
        };
        match result {
            Ok(()) => {
                self.0.borrow_mut().open.insert((cx.rank, cookie), request);
                Submitted::Open
            }
            Err(error) if error.is_full() => {
                cx.wake_at(cx.now + AGAIN);
                Submitted::Full
            }
            Err(_) if self.has_lost(cx.rank, peer) => Submitted::Never,
            Err(error) => {
                self.crash(cx, format!("{request}: {error}"));
                Submitted::Never
            }
        }
    }

    /// Whether a rank has lost a peer.
    pub(super) fn has_lost(&self, rank: u32, peer: u32) -> bool {
        self.0.borrow().losses.iter().any(|loss| (loss.rank, loss.peer) == (rank, peer))
    }

    /// A request is over: what it came to, where that is well. A failure is noted here.
    pub(super) fn over(&self, cx: &Cx<'_>, completion: &Completion) -> Option<Done> {
        let key = (cx.rank, completion.cookie.0);
        let request = self.0.borrow_mut().open.remove(&key);
        let Some(request) = request else {
            let request = completion.cookie.0;
            self.found(Verdict::Duplicated(Duplicated::Completion { rank: cx.rank, request, at: cx.now }));
            return None;
        };
        match completion.result {
            Ok(done) => Some(done),
            Err(OpError::PeerLost { peer, why }) => {
                self.lost(cx, peer.0, why, 1);
                None
            }
            Err(error) => {
                let damage = Damage::Error { request: request.request, error };
                self.found(Verdict::Corruption(Corruption { rank: cx.rank, at: cx.now, damage }));
                None
            }
        }
    }

    /// A peer is lost.
    fn lost(&self, cx: &Cx<'_>, peer: u32, why: Loss, requests: u32) {
        let losses = &mut self.0.borrow_mut().losses;
        match losses.iter_mut().find(|loss| (loss.rank, loss.peer) == (cx.rank, peer)) {
            Some(loss) => loss.requests += requests,
            None => losses.push(PeerLoss { rank: cx.rank, peer, why, at: cx.now, requests }),
        }
    }

    /// Takes an event: its completion, if it is one. `closing`: peers may send BYE.
    pub(super) fn event(&self, cx: &Cx<'_>, event: Event, closing: bool) -> Option<Completion> {
        match event {
            Event::Completed(completion) => return Some(completion),
            Event::PeerLost { peer, why } => self.lost(cx, peer.0, why, 0),
            Event::PeerClosed { peer } if !closing => {
                self.crash(cx, format!("rank {} shut down before its time", peer.0));
            }
            Event::PeerClosed { .. } | Event::PeerUp { .. } | Event::Written(_) => {}
        }
        None
    }

    /// Compares a received message with the one that was to come.
    pub(super) fn check(&self, cx: &Cx<'_>, message: &Message, receive: u64, done: &Done) {
        let (receive, name) = (receive as u32, message.name);
        let wrong = |damage| self.found(Verdict::Corruption(Corruption { rank: cx.rank, at: cx.now, damage }));
        let envelope = |field| wrong(Damage::Envelope { name, receive, field });
        if done.peer.0 != name.source() {
            envelope("source");
        } else if done.tag != Some(name.serial().into()) {
            envelope("tag");
        } else if done.immediate != Some(name.to_bits()) {
            envelope("immediate");
        } else if done.bytes != message.bytes {
            envelope("length");
        } else if let Some(difference) = self.difference(cx, message) {
            wrong(Damage::Message { name, receive, difference });
        }
    }

    /// Compares memory with what a request was to bring there.
    pub(super) fn compare(&self, cx: &Cx<'_>, message: &Message, request: u32) {
        if let Some(difference) = self.difference(cx, message) {
            let damage = Damage::Message { name: message.name, receive: request, difference };
            self.found(Verdict::Corruption(Corruption { rank: cx.rank, at: cx.now, damage }));
        }
    }

    fn difference(&self, cx: &Cx<'_>, message: &Message) -> Option<Difference> {
        let bytes =
            rails::region(cx.engine, message.region).and_then(|bytes| bytes.get(message.range())).unwrap_or_default();
        difference(message.content, bytes)
    }

    /// What a run came to.
    pub(super) fn verdict(&self, cluster: &Cluster, ended: &Ended) -> Verdict {
        let state = self.0.borrow();
        if let Some(wrong) = &state.wrong {
            return wrong.clone();
        }
        // Such a workload needs all its ranks for what it exchanges.
        if let Some(loss) = state.losses.first() {
            return Verdict::Lost(Lost::Peer(*loss));
        }
        match ended {
            Ended::Done | Ended::Stopped => leftover(cluster).unwrap_or(Verdict::Clean),
            Ended::Stuck { .. } | Ended::TooManyEvents { .. } => {
                let mut requests: Vec<_> = state.open.values().copied().collect();
                let count = requests.len();
                requests.sort_by_key(|request| request.since);
                requests.truncate(Stuck::SHOWN_MAX);
                Verdict::Stuck(Stuck::Waiting { at: cluster.now(), requests, count })
            }
        }
    }
}

/// Every message has its receive, so one that lies unreceived at the end came twice, or was never sent.
fn leftover(cluster: &Cluster) -> Option<Verdict> {
    let view = cluster.view();
    let any = [TagMatch::Tagged { tag: 0, ignore: u64::MAX }, TagMatch::Untagged];
    let found = (0..view.size()).filter(|rank| view.is_alive(*rank)).find_map(|rank| {
        let found = |tag: &TagMatch| view.engine(rank)?.probe(&Selector { source: None, tag: *tag });
        any.iter().find_map(found).map(|found| (rank, found))
    });
    found.map(|(rank, found)| {
        let damage = Damage::UnknownMessage {
            receive: 0,
            name: found.immediate.map(Name::from_bits),
            peer: found.peer.0,
            bytes: found.bytes,
        };
        Verdict::Corruption(Corruption { rank, at: cluster.now(), damage })
    })
}

/// Virtual time between two moments, in nanoseconds.
pub(super) fn span_ns(from: Time, to: Time) -> u64 {
    to.0.saturating_sub(from.0)
}
