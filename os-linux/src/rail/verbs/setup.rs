//! Setting connections up: requests, replies, refusals, and what is said again when nobody answers. Rules V-4 to V-7, V-13.
//!
//! ```text
//! caller                                called
//!   REQUEST { terms, nonce }         ->          queue pair to RTR
//!                     RTR, RTS       <-  REPLY { terms, nonce, answers }
//!   READY { nonce, answers }         ->          RTS
//! ```
//!
//! Who waits says its message again: the caller until the reply comes, the called until READY comes (a repeated reply is
//! answered with READY again, however long the caller's side stands). Both nonces are signed in REPLY and READY, so each
//! side knows that the other is there now. Only a request can be a recorded one: it costs a queue pair for
//! `handshake_timeout`, and nothing is reported for it.

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::Nanos;
use rerail_core::wire::handshake::NONCE_BYTES;
use rerail_verbs::contract::Device;

use super::link::{Link, Phase};
use super::peers::NO_LINK;
use super::wire::{Nonce, Reason, Setup, SetupKind, Terms};
use super::{Report, VerbsRail, codes, deliver};
use crate::auth::keep;
use crate::rail::Sink;

/// Starts the transcripts that nonces are made of.
const NONCE_LABEL: &[u8] = b"rerail verbs nonce 1";
/// No message is said again sooner: a peer looks only now and then.
const RESEND_MIN: Nanos = Nanos::from_micros(20);

impl<D: Device> VerbsRail<D> {
    /// Calls a peer, unless it is connected or about to be.
    pub(super) fn dial(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get(peer) else {
            self.reports.push_back(Report::Down(peer, RailFault::Refused));
            return;
        };
        if let Some(link) = self.links.get_mut(known.link) {
            match link.phase {
                Phase::Calling | Phase::Called => link.wanted = true,
                Phase::Up | Phase::Failing(Some(_)) => {}
                Phase::Closing | Phase::Failing(None) => link.again = true,
            }
            return;
        }
        self.look_at_port();
        if self.broken || self.outage.is_some() {
            let code = if self.broken { codes::BROKEN } else { codes::PORT_DOWN };
            self.reports.push_back(Report::Down(peer, RailFault::Device { code }));
            return;
        }
        self.attempts += 1;
        let attempt = self.attempts;
        match self.begin(peer) {
            Ok(index) => {
                let Some(link) = self.links.get_mut(index) else { unreachable!("made above") };
                (link.attempt, link.wanted) = (attempt, true);
                self.say(index);
            }
            Err(fault) => self.reports.push_back(Report::Down(peer, fault)),
        }
    }

    /// A link with a queue pair and a request to say.
    fn begin(&mut self, peer: PeerId) -> Result<u32, RailFault> {
        let qp = self.make_qp()?;
        let nonce = self.fresh_nonce();
        let [a, b, c, ..] = self.fresh_nonce();
        let psn = u32::from_le_bytes([a, b, c, 0]);
        let mut link = Link::new(peer, qp, nonce, psn, SetupKind::Request(self.terms(qp.number, psn)));
        link.deadline = self.now + self.options.handshake_timeout;
        link.pause = self.first_pause();
        (link.first_pause, link.began) = (link.pause, self.now);
        let due = (self.now + link.pause).min(link.deadline);
        let index = self.links.insert(link);
        self.links.set_timer(index, Some(due));
        self.by_number.insert(qp.number, index);
        self.by_name.insert(qp.id, index);
        if let Some(entry) = self.peers.get_mut(peer) {
            entry.link = index;
        }
        Ok(index)
    }

    /// Only of messages that are no recorded ones, or of attempts that are newer than all others: where a peer was once
    /// is not where it is.
    fn follow(&mut self, from: PeerId, setup: &Setup) {
        self.peers.follow(from, &setup.at, self.port.address.ethernet);
    }

    fn terms(&self, qp: u32, psn: u32) -> Terms {
        Terms {
            qp,
            psn,
            mtu: self.port.mtu,
            reads_served: self.port.reads_served,
            message_bytes: self.options.message_bytes(),
        }
    }

    /// Random to everybody who does not know the secret, and never the same twice (V-3).
    fn fresh_nonce(&mut self) -> Nonce {
        self.nonces += 1;
        self.identity.secret.sign([NONCE_LABEL, &self.nonces.to_le_bytes(), &[]])
    }

    /// Takes a message of somebody who knows the job's key.
    pub(super) fn handle_setup(&mut self, setup: &Setup, sink: &mut dyn Sink) {
        let from = PeerId(setup.from);
        if setup.job != self.identity.job || from == self.identity.me {
            return;
        }
        if let SetupKind::Refusal { answers, reason: Reason::Rank } = setup.kind {
            // Of one that was never called: at the address of the peer lives somebody else.
            if let Some(index) = self.links.find(|link| link.nonce == answers) {
                self.handle_refusal(index, answers);
            }
            return;
        }
        let Some(known) = self.peers.get(from).copied() else { return };
        let misled = if setup.to != self.identity.me.0 {
            Some(Reason::Rank)
        } else if setup.rail != self.options.index {
            Some(Reason::Rail)
        } else {
            None
        };
        match (setup.kind, misled) {
            (SetupKind::Refusal { answers, .. }, None) => self.handle_refusal(known.link, answers),
            (SetupKind::Refusal { .. }, Some(_)) => {}
            (_, Some(reason)) => self.refuse(from, setup.nonce, reason),
            (SetupKind::Request(terms), None) => self.handle_request(from, setup, &terms),
            (SetupKind::Reply { terms, answers }, None) => self.handle_reply(from, setup, &terms, answers, sink),
            (SetupKind::Ready { answers }, None) => self.handle_ready(from, setup, answers, sink),
        }
    }

    fn refuse(&mut self, peer: PeerId, answers: Nonce, reason: Reason) {
        tracing::debug!(rail = %self.options.name, peer = peer.0, ?reason, "connection refused");
        let attempt = self.attempts;
        self.send_setup(peer, attempt, [0; NONCE_BYTES], SetupKind::Refusal { answers, reason });
    }

    fn handle_request(&mut self, from: PeerId, setup: &Setup, terms: &Terms) {
        let Some(&known) = self.peers.get(from) else { return };
        let index = known.link;
        let link = self.links.get_mut(index);
        if setup.attempt <= known.seen {
            // V-6: a repetition, or one from long ago.
            if link.is_some_and(|link| link.phase == Phase::Called && link.theirs == Some(setup.nonce)) {
                self.say(index);
            }
            return;
        }
        let phase = link.map(|link| link.phase);
        self.follow(from, setup);
        match phase {
            None => {}
            // V-5: ours wins, theirs is given up when they hear of it.
            Some(Phase::Calling) if keep(true, self.identity.me, from) => return,
            Some(Phase::Calling) => {}
            // Their side of what we have is no more. They will say it again.
            Some(Phase::Called | Phase::Up | Phase::Closing) => return self.fail(index, Some(RailFault::Closed)),
            Some(Phase::Failing(_)) => return,
        }
        if terms.message_bytes != self.options.message_bytes() {
            return self.refuse(from, setup.nonce, Reason::Sizes);
        }
        let begun = if known.link == NO_LINK { self.begin(from) } else { Ok(known.link) };
        let Ok(index) = begun else { return self.refuse(from, setup.nonce, Reason::Full) };
        if let Some(entry) = self.peers.get_mut(from) {
            entry.seen = setup.attempt;
        }
        let Some(link) = self.links.get(index) else { unreachable!("found or made above") };
        let (qp, psn) = (link.qp, link.psn);
        if let Err(fault) = self.ready_to_receive(qp, from, terms) {
            self.refuse(from, setup.nonce, Reason::Full);
            return self.fail(index, Some(fault));
        }
        let says = SetupKind::Reply { terms: self.terms(qp.number, psn), answers: setup.nonce };
        let (deadline, pause) = (self.now + self.options.handshake_timeout, self.first_pause());
        let due = (self.now + pause).min(deadline);
        let Some(link) = self.links.get_mut(index) else { unreachable!("found or made above") };
        (link.phase, link.theirs, link.says, link.attempt) = (Phase::Called, Some(setup.nonce), says, 0);
        (link.deadline, link.pause, link.reads_served) = (deadline, pause, terms.reads_served);
        self.links.set_timer(index, Some(due));
        self.say(index);
    }

    fn handle_reply(&mut self, from: PeerId, setup: &Setup, terms: &Terms, answers: Nonce, sink: &mut dyn Sink) {
        let Some(&known) = self.peers.get(from) else { return };
        let index = known.link;
        let Some(link) = self.links.get_mut(index).filter(|link| link.nonce == answers) else {
            return self.refuse(from, setup.nonce, Reason::Over);
        };
        match link.phase {
            Phase::Calling => {}
            // They have not heard READY.
            Phase::Up | Phase::Closing if link.theirs == Some(setup.nonce) => return self.say(index),
            _ => return,
        }
        link.theirs = Some(setup.nonce);
        let (qp, psn) = (link.qp, link.psn);
        if link.pause == link.first_pause {
            // Said once, answered once.
            let took = self.now - link.began;
            self.round_trip = Some(self.round_trip.map_or(took, |least| least.min(took)));
        }
        if let Some(entry) = self.peers.get_mut(from) {
            // Requests that they gave up for this connection are over (V-6).
            entry.seen = entry.seen.max(setup.attempt);
        }
        self.follow(from, setup);
        if terms.message_bytes != self.options.message_bytes() {
            self.refuse(from, setup.nonce, Reason::Sizes);
            return self.fail(index, Some(RailFault::Refused));
        }
        let ready =
            self.ready_to_receive(qp, from, terms).and_then(|()| self.ready_to_send(qp, psn, terms.reads_served));
        if let Err(fault) = ready {
            return self.fail(index, Some(fault));
        }
        if let Some(link) = self.links.get_mut(index) {
            link.says = SetupKind::Ready { answers: setup.nonce };
        }
        self.say(index);
        self.stand(index, sink);
    }

    fn handle_ready(&mut self, from: PeerId, setup: &Setup, answers: Nonce, sink: &mut dyn Sink) {
        let Some(&known) = self.peers.get(from) else { return };
        let index = known.link;
        let it = |link: &&mut Link| link.nonce == answers && link.theirs == Some(setup.nonce);
        let Some(link) = self.links.get_mut(index).filter(it) else {
            return self.refuse(from, setup.nonce, Reason::Over);
        };
        if link.phase != Phase::Called {
            return;
        }
        link.heard = true;
        link.is_saying = false;
        let (qp, psn, reads_served) = (link.qp, link.psn, link.reads_served);
        self.follow(from, setup);
        match self.ready_to_send(qp, psn, reads_served) {
            Ok(()) => self.stand(index, sink),
            Err(fault) => self.fail(index, Some(fault)),
        }
    }

    /// Both sides are authentic, and the peer can receive.
    fn stand(&mut self, index: u32, sink: &mut dyn Sink) {
        self.links.set_timer(index, None);
        let Some(link) = self.links.get_mut(index) else { return };
        (link.phase, link.stands) = (Phase::Up, true);
        tracing::debug!(rail = %self.options.name, peer = link.peer.0, "connected");
        self.reports.push_back(Report::Up(link.peer));
        deliver(&mut self.reports, sink);
        self.release_held(index, Some(sink));
    }

    fn handle_refusal(&mut self, index: u32, answers: Nonce) {
        let Some(link) = self.links.get_mut(index).filter(|link| link.nonce == answers) else { return };
        match link.phase {
            Phase::Calling | Phase::Called => self.fail(index, Some(RailFault::Refused)),
            Phase::Up => self.fail(index, Some(RailFault::Closed)), // V-7
            // There is nobody any more who would want to hear.
            Phase::Closing => {
                link.heard = true;
                self.closing.push(index);
            }
            Phase::Failing(_) => {}
        }
    }

    /// When to say a message again for the first time: after four round trips, as long as one was seen; one that is lost
    /// costs no more than that (V-4).
    fn first_pause(&self) -> Nanos {
        let round_trip = self.round_trip.map_or(self.options.resend_first, |seen| Nanos(seen.0.saturating_mul(4)));
        round_trip.max(RESEND_MIN).min(self.options.resend_first)
    }

    /// A link's timer has gone off.
    pub(super) fn time_out(&mut self, index: u32) {
        let now = self.now;
        let Some(link) = self.links.get_mut(index) else { return };
        match link.phase {
            Phase::Calling | Phase::Called if now < link.deadline => {
                link.pause = Nanos(link.pause.0.saturating_mul(2)).min(self.options.resend_max);
                let due = (now + link.pause).min(link.deadline);
                self.links.set_timer(index, Some(due));
                self.say(index);
            }
            Phase::Calling | Phase::Called => self.fail(index, Some(RailFault::TimedOut)),
            Phase::Closing => self.fail(index, None),
            Phase::Failing(_) => self.finish(index),
            Phase::Up => self.links.set_timer(index, None),
        }
    }
}
