//! Extended reliable connections (xrc-2008, IV and V; InfiniBand specification, annex A14). Rules V-14 to
//! V-16.
//!
//! ```text
//!            node of A                                  node of B and C: one XRC domain
//!   A: initiator ------------------------------------> target  -- by number --> B's shared receive queues
//!                                                              \- by number --> C's shared receive queues
//! ```
//!
//! A process has one initiator for each node that it communicates with, whatever the number of processes
//! there (the paper's SXRC with on-demand set-up, V.B): the first process called there makes the target, each
//! other one opens the same target by its number, which keeps it while any of them lives. So a target stands
//! for one sender, and a completion's queue pair number identifies the sender. The other direction goes over
//! the peer's own initiator; the one set-up exchange of a pair establishes both.
//!
//! While a node's first target is pending, other calls to that node wait for it ([`XrcOptions::wait`]), so
//! that processes that all call each other at once end up with one initiator per node. A process that has
//! waited for too long makes an initiator of its own: a process that does not answer blocks no other
//! permanently. A called process waits for its own call to the caller's node only if its rank is above the
//! caller's. This leaves few cycles of calls that wait for each other: those in which a lower rank's call
//! wins a crossing (V-5) while it waits itself. They end with the wait.
//!
//! How connections end that share queue pairs is in `ends`.
//!
//! [`XrcOptions::wait`]: super::XrcOptions::wait

mod ends;

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::{Nanos, Time};
use rerail_verbs::contract::{AddressVector, Device, Qp, QpChange, QpId, QpInit, QpKind, QpState};

use super::link::{Ends, Link, Phase};
use super::wire::{Left, Reason, SetupKind, SetupParameters, Srq, Srqs, XrcParameters};
use super::{VerbsRail, codes};

pub(super) use ends::How;

/// PSN of a target's first packet: it sends answers only, and these take the numbers of their requests.
const TARGET_PSN: u32 = 0;

/// The ends of a link here.
#[derive(Debug, Default)]
pub(super) struct Halves {
    /// The initiator to the peer; `None`: the link waits for one.
    pub out: Option<u32>,
    /// The target that the peer sends to; this process's name for it.
    pub into: Option<Qp>,
    /// The peer's shared receive queues, and its port's MTU in bytes.
    pub srqs: Srqs,
    pub mtu: u16,
    /// Of a link that ends: whether something can come from the peer still.
    pub inward: Inward,
    /// Of a link that ends: so long its requests may take to come back well.
    pub timeout: Time,
    /// Of a link that ends: its report for the peer; `is_left_sent`: whether that was sent.
    pub left_report: Option<Left>,
    pub is_left_sent: bool,
}

/// Whether something can come over a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Inward {
    /// It can.
    #[default]
    Open,
    /// The peer has reported that all of its messages were acknowledged. Messages are in the target's queue
    /// at that time.
    Draining(Time),
    /// The same, as the target is dead.
    Dead(Time),
}

impl Inward {
    /// When everything has come that can.
    fn over_at(self) -> Option<Time> {
        match self {
            Inward::Open => None,
            Inward::Draining(at) | Inward::Dead(at) => Some(at),
        }
    }
}

/// The initiators of this process. Their numbers are used again.
#[derive(Debug, Default)]
pub(super) struct Initiators {
    slots: Vec<Option<Initiator>>,
}

/// A queue pair that sends to the processes of one node.
#[derive(Debug)]
struct Initiator {
    qp: Qp,
    node: u32,
    /// The first PSN that it sends.
    psn: u32,
    state: State,
    began: Time,
    /// Links that use it.
    links: u32,
    /// The queue pair exists.
    is_made: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A target was requested.
    Calling,
    /// Connected to the target of that number.
    Live { target: u32 },
    /// The same, closed to further links: a process could not open its target.
    Alone { target: u32 },
    /// In error, and so are all links that use it.
    Broken,
}

impl Initiators {
    fn get(&self, number: u32) -> Option<&Initiator> {
        self.slots.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Initiator> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    /// How many queue pairs they are.
    pub fn len(&self) -> u32 {
        self.slots.iter().flatten().filter(|it| it.is_made).count() as u32
    }

    fn insert(&mut self, initiator: Initiator) -> u32 {
        let free = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[free] = Some(initiator);
        free as u32
    }

    /// The queue pair that a link's requests go to; no device has one of this name where there is none.
    pub fn qp_of(&self, halves: &Halves) -> QpId {
        halves.out.and_then(|out| self.get(out)).map_or(QpId(u32::MAX), |it| it.qp.id)
    }

    /// The one that a queue pair is.
    pub fn find(&self, qp: QpId) -> Option<u32> {
        let is_it = |slot: &Option<Initiator>| slot.as_ref().is_some_and(|it| it.is_made && it.qp.id == qp);
        self.slots.iter().position(is_it).map(|number| number as u32)
    }
}

impl<D: Device> VerbsRail<D> {
    /// This side's parameters, as far as known.
    pub(super) fn parameters_of(&self, link: &Link) -> SetupParameters {
        let mut parameters = SetupParameters {
            mtu: self.port.mtu,
            reads_served: self.port.reads_served,
            message_bytes: self.options.message_bytes(),
            ..SetupParameters::default()
        };
        match &link.ends {
            Ends::Rc(qp, psn) => (parameters.qp, parameters.psn) = (qp.number, *psn),
            Ends::Xrc(halves) => {
                let target = halves.into.map_or(0, |qp| qp.number);
                let mut xrc = XrcParameters { srqs: self.srqs(), through: 0, target };
                if let Some(it) = halves.out.and_then(|out| self.initiators.get(out)) {
                    (parameters.qp, parameters.psn) = (it.qp.number, it.psn);
                    if let State::Live { target } | State::Alone { target } = it.state {
                        xrc.through = target;
                    }
                }
                parameters.xrc = Some(xrc);
            }
        }
        parameters
    }

    /// The shared receive queues of this side (V-17).
    fn srqs(&self) -> Srqs {
        let mut srqs = Srqs::default();
        let numbers = self.objects.srqs.iter().map(|srq| srq.number.unwrap_or(0));
        for (at, (queue, number)) in self.layout.queues.iter().zip(numbers).enumerate() {
            match srqs.smaller.get_mut(at).filter(|_| at + 1 < self.layout.queues.len()) {
                Some(smaller) => *smaller = Srq { number, bytes: queue.bytes },
                None => srqs.whole = number,
            }
        }
        srqs
    }

    /// Gives a link its initiator: the one for the peer's node, or a new one. `false`: one is pending, and a
    /// patient caller should wait for it. Nothing to do for RC.
    pub(super) fn attach(&mut self, index: u32, may_wait: bool) -> Result<bool, RailFault> {
        let (Some(options), Some(link)) = (self.options.xrc, self.links.get(index)) else { return Ok(true) };
        if link.initiator().is_some() {
            return Ok(true);
        }
        let node = self.peers.node(link.peer).ok_or(RailFault::Refused)?;
        // A waiting link must have time left for a call of its own.
        let wait = options.wait.min(Nanos(self.options.handshake_timeout.0 / 8));
        let (mut found, mut oldest) = (None, None::<Time>);
        for (number, it) in self.initiators.slots.iter().enumerate() {
            let Some(it) = it.as_ref().filter(|it| it.node == node) else { continue };
            match it.state {
                State::Live { .. } if found.is_none() => found = Some(number as u32),
                State::Calling => oldest = Some(oldest.map_or(it.began, |began| began.min(it.began))),
                _ => {}
            }
        }
        // Where the first call to a node got no answer in time, the later ones do not wait either.
        let waits = may_wait && oldest.is_some_and(|began| began + wait > self.now);
        if let Some(out) = found.filter(|out| !self.is_working(*out)) {
            // Its event is pending.
            self.break_initiator(Some(out), RailFault::Device { code: codes::SHARED });
            return self.attach(index, may_wait);
        }
        let out = match found {
            Some(out) => out,
            None if waits => return Ok(false),
            None => {
                let qp = self.make_initiator()?;
                let psn = self.fresh_psn();
                let (state, began) = (State::Calling, self.now);
                self.initiators.insert(Initiator { qp, node, psn, state, began, links: 0, is_made: true })
            }
        };
        if let Some(it) = self.initiators.get_mut(out) {
            it.links += 1;
        }
        if let Some(halves) = self.links.halves_mut(index) {
            halves.out = Some(out);
        }
        Ok(true)
    }

    /// Whether an established initiator still works, as the device reports it.
    fn is_working(&self, out: u32) -> bool {
        let it = self.initiators.get(out);
        it.is_some_and(|it| self.device.query_qp(it.qp.id).is_ok_and(|info| info.state == QpState::Rts))
    }

    /// Makes the end by which a peer's messages come, or opens the one that there is. The reason to refuse,
    /// where that can't be.
    pub(super) fn take_target(&mut self, index: u32, theirs: &SetupParameters) -> Result<(), Reason> {
        let Some(xrc) = theirs.xrc else { return Ok(()) };
        let Some(peer) = self.links.get(index).map(|link| link.peer) else { return Err(Reason::Over) };
        let qp = match xrc.through {
            0 => self.make_target(peer, theirs).map_err(|_| Reason::Full)?,
            number => self.open_target(peer, number, theirs.qp).ok_or(Reason::Target)?,
        };
        if let Some(halves) = self.links.halves_mut(index) {
            (halves.into, halves.srqs, halves.mtu) = (Some(qp), xrc.srqs, theirs.mtu);
        }
        self.note_number(qp.number, index);
        self.by_name.insert(qp.id, index);
        Ok(())
    }

    /// Another process's target, if it is the one that a sender's initiator is connected to, and works. Queue
    /// pair numbers are unique per device: the sender is identified by its port, too.
    fn open_target(&mut self, peer: PeerId, number: u32, sender: u32) -> Option<Qp> {
        let holder = self.by_number.get(&number).and_then(|index| self.links.get(*index));
        if holder.is_some_and(|link| link.peer != peer && !matches!(link.phase, Phase::Failing(_))) {
            return None;
        }
        let address_vector = self.address_vector(peer)?;
        let qp = self.device.open_qp(self.objects.domain?, number).ok()?;
        let is_it = self.device.query_qp(qp.id).is_ok_and(|info| {
            let works = matches!(info.state, QpState::Rtr | QpState::Rts);
            let leads_there = info.attributes.address.is_none_or(|address| is_same_port(&address, &address_vector));
            works && leads_there && info.attributes.destination == Some(sender)
        });
        if !is_it {
            let _ = self.device.destroy_qp(qp.id);
        }
        is_it.then_some(qp)
    }

    /// An initiator in INIT, deep enough for all requests of the rail: it can't be full.
    fn make_initiator(&mut self) -> Result<Qp, RailFault> {
        let (pd, send_cq) = (Some(self.objects.pd), Some(self.objects.cq));
        let caps = self.sender_caps(self.options.sends);
        self.make(&QpInit { pd, send_cq, caps, ..QpInit::of(QpKind::XrcInitiator) })
    }

    /// A target that receives from a sender's initiator.
    fn make_target(&mut self, peer: PeerId, theirs: &SetupParameters) -> Result<Qp, RailFault> {
        let qp = self.make(&QpInit { domain: self.objects.domain, ..QpInit::of(QpKind::XrcTarget) })?;
        let ready = self.ready_to_receive(qp, peer, theirs).and_then(|()| {
            let (timeout, send_psn) = (Some(self.options.ack_timeout), Some(TARGET_PSN));
            self.modify(qp, &QpChange { timeout, send_psn, ..QpChange::to(QpState::Rts) })
        });
        if ready.is_err() {
            let _ = self.device.destroy_qp(qp.id);
        }
        ready.map(|()| qp)
    }

    /// Connects a link's initiator to the target that the peer has made for it, unless it is connected
    /// already.
    pub(super) fn connect_initiator(&mut self, index: u32, target: u32) -> Result<(), RailFault> {
        let Some(link) = self.links.get(index) else { return Ok(()) };
        let (peer, Some(out), Some(halves)) = (link.peer, link.initiator(), link.halves()) else { return Ok(()) };
        let (mtu, reads_served) = (halves.mtu, link.reads_served);
        let Some(it) = self.initiators.get(out).filter(|it| it.state == State::Calling) else { return Ok(()) };
        let (qp, psn) = (it.qp, it.psn);
        let change = self.reached(peer, mtu, target, TARGET_PSN)?;
        self.modify(qp, &change)?;
        self.ready_to_send(qp, psn, reads_served)?;
        if let Some(it) = self.initiators.get_mut(out) {
            it.state = State::Live { target };
            let node = it.node;
            self.wake(node);
        }
        Ok(())
    }

    /// An initiator that links to a node have waited for is there, or will never be.
    fn wake(&mut self, node: u32) {
        if self.broken {
            return;
        }
        for index in self.links.numbers() {
            let Some(link) = self.links.get(index) else { continue };
            let waits = link.phase == Phase::Calling && link.halves().is_some_and(|halves| halves.out.is_none());
            if waits && self.peers.node(link.peer) == Some(node) {
                self.call(index);
            }
        }
    }

    /// Begins to call, once there is something to send by.
    pub(super) fn call(&mut self, index: u32) {
        let attached = self.attach(index, true);
        let pause = self.first_pause();
        let Some(link) = self.links.get(index) else { return };
        let due = (self.now + pause).min(link.deadline);
        match attached {
            Ok(true) => {
                let due_message = SetupKind::Request(self.parameters_of(link));
                if let Some(link) = self.links.get_mut(index) {
                    (link.due_message, link.began, link.pause, link.first_pause) =
                        (due_message, self.now, pause, pause);
                }
                self.links.set_timer(index, Some(due));
                self.queue_message(index);
            }
            Ok(false) => self.links.set_timer(index, Some(due)),
            Err(fault) => self.fail(index, Some(fault)),
        }
    }

    /// The peer can't open the target that our initiator is connected to: the link gets an initiator of its
    /// own, and the other one is closed to further links.
    pub(super) fn go_alone(&mut self, index: u32) {
        let Some(link) = self.links.get(index) else { return };
        let Some(out) = link.initiator() else { return };
        let Some(it) = self.initiators.get_mut(out) else { return };
        let (State::Live { target } | State::Alone { target }) = it.state else { return };
        it.state = State::Alone { target };
        let peer = link.peer.0;
        tracing::debug!(rail = %self.options.name, peer, target, "the peer has no such target");
        if let Some(halves) = self.links.halves_mut(index) {
            halves.out = None;
        }
        self.release(out);
        match self.links.get(index).map(|link| (link.phase, link.due_message)) {
            Some((Phase::Calling, _)) => self.call(index),
            Some((Phase::Called, SetupKind::Reply { answers, .. })) => match self.attach(index, false) {
                Ok(_) => self.queue_reply(index, answers),
                Err(fault) => self.fail(index, Some(fault)),
            },
            _ => {}
        }
    }
}

/// Whether two ways lead to one port: that of a GID where both have one, that of a LID otherwise.
fn is_same_port(a: &AddressVector, b: &AddressVector) -> bool {
    match (a.global, b.global) {
        (Some(a), Some(b)) => a.dgid == b.dgid,
        _ => a.dlid == b.dlid,
    }
}
