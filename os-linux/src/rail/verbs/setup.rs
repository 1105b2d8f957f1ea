//! Setting connections up: requests, replies, refusals, and repetitions without an answer. Rules V-4 to V-7,
//! V-13, V-15.
//!
//! ```text
//! caller                                called
//!   REQUEST { terms, nonce }         ->          queue pair to RTR
//!                     RTR, RTS       <-  REPLY { terms, nonce, answers }
//!   READY { nonce, answers }         ->          RTS
//! ```
//!
//! A side that waits repeats its message: the caller until the reply comes, the called until READY comes (a
//! repeated reply is answered with READY again, however long the caller's side is established). Both nonces
//! are signed in REPLY and READY, so each side has proof that the other is there now. Only a request can be a
//! recorded one: it costs a queue pair for `handshake_timeout`, and nothing is reported for it.

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::Nanos;
use rerail_verbs::contract::Device;

use super::link::{Ends, Link, Phase};
use super::peers::NO_LINK;
use super::wire::{Left, NONCE_BYTES, Nonce, Reason, Setup, SetupKind, SetupParameters};
use super::xrc::{Halves, How};
use super::{Report, VerbsRail, codes};
use crate::auth::keep;
use crate::rail::Sink;
use crate::rail::reports::deliver;

/// Starts the transcripts that nonces are made of.
const NONCE_LABEL: &[u8] = b"rerail verbs nonce 1";
/// The shortest pause between repetitions: a peer polls only now and then.
const RESEND_MIN: Nanos = Nanos::from_micros(20);

impl<D: Device> VerbsRail<D> {
    /// Calls a peer, unless it is connected or about to be.
    pub(super) fn dial(&mut self, peer: PeerId) {
        if let Err(fault) = self.try_dial(peer) {
            self.reports.push_back(Report::Down(peer, fault));
        }
    }

    fn try_dial(&mut self, peer: PeerId) -> Result<(), RailFault> {
        let known = self.peers.get(peer).ok_or(RailFault::Refused)?;
        if let Some(link) = self.links.get_mut(known.link) {
            match link.phase {
                Phase::Calling | Phase::Called => link.dial_pending = true,
                Phase::Up | Phase::Failing(Some(_)) => {}
                Phase::Closing | Phase::Failing(None) => link.again = true,
            }
            return Ok(());
        }
        self.recheck_port();
        if self.broken || self.outage.is_some() {
            let code = if self.broken { codes::BROKEN } else { codes::PORT_DOWN };
            return Err(RailFault::Device { code });
        }
        // V-18: the next try would keep this process as long as the last one did.
        if let Some(fault) = self.address_vector(peer).and_then(|address_vector| self.blocked_by(&address_vector)) {
            return Err(fault);
        }
        self.attempts += 1;
        let attempt = self.attempts;
        let index = self.begin(peer)?;
        let Some(link) = self.links.get_mut(index) else { unreachable!("made above") };
        (link.attempt, link.dial_pending) = (attempt, true);
        self.call(index);
        Ok(())
    }

    /// A link, with RC its queue pair too; the caller sets its message.
    fn begin(&mut self, peer: PeerId) -> Result<u32, RailFault> {
        let ends = match self.options.xrc {
            None => Ends::Rc(self.make_qp()?, self.fresh_psn()),
            Some(_) => Ends::Xrc(Halves::default()),
        };
        let nonce = self.fresh_nonce();
        let mut link = Link::new(peer, ends, nonce, SetupKind::Request(SetupParameters::default()));
        link.deadline = self.now + self.options.handshake_timeout;
        link.quiet.max = self.quiet_per_link();
        link.pause = self.first_pause();
        (link.first_pause, link.began) = (link.pause, self.now);
        let due = (self.now + link.pause).min(link.deadline);
        let index = self.links.insert(link);
        self.links.set_timer(index, Some(due));
        if let Some(&Ends::Rc(qp, _)) = self.links.get(index).map(|link| &link.ends) {
            self.note_number(qp.number, index);
            self.by_name.insert(qp.id, index);
        }
        if let Some(entry) = self.peers.get_mut(peer) {
            entry.link = index;
        }
        Ok(index)
    }

    /// Only for messages that are no recorded ones, or of attempts newer than all others: a recorded address
    /// may be outdated.
    fn follow(&mut self, from: PeerId, setup: &Setup) {
        self.peers.follow(from, &setup.at, self.port.address.ethernet);
        if let Some(address_vector) = self.address_vector(from) {
            self.received_from(&address_vector);
        }
    }

    /// The PSN of the first packet that a queue pair sends.
    pub(super) fn fresh_psn(&mut self) -> u32 {
        let [a, b, c, ..] = self.fresh_nonce();
        u32::from_le_bytes([a, b, c, 0])
    }

    /// Unpredictable without the secret, and never the same twice (V-3).
    pub(super) fn fresh_nonce(&mut self) -> Nonce {
        self.nonces += 1;
        self.identity.secret.sign([NONCE_LABEL, &self.nonces.to_le_bytes(), &[]])
    }

    /// Handles a message that its sender has signed.
    pub(super) fn handle_setup(&mut self, setup: &Setup, sink: &mut dyn Sink) {
        let from = PeerId(setup.from);
        if setup.job != self.identity.job || setup.to != self.identity.me.0 {
            return;
        }
        let Some(known) = self.peers.get(from).copied() else { return };
        let misled = (setup.rail != self.options.index).then_some(Reason::Rail);
        match (setup.kind, misled) {
            (SetupKind::Refusal { answers, reason, left }, None) => {
                let its = self.links.get(known.link).is_some_and(|link| link.nonce == answers);
                let index = match its {
                    true => Some(known.link),
                    // A link that ends may be detached by now, and wait for this (V-16).
                    false if self.options.xrc.is_some() => {
                        self.links.find(|link| link.peer == from && link.nonce == answers)
                    }
                    false => None,
                };
                if let Some(index) = index {
                    self.handle_refusal(index, answers, reason, left);
                }
            }
            (SetupKind::Refusal { .. }, Some(_)) => {}
            (_, Some(reason)) => self.refuse(from, setup.nonce, reason),
            (SetupKind::Request(parameters), None) => self.handle_request(from, setup, &parameters),
            (SetupKind::Reply { parameters, answers }, None) => {
                self.handle_reply(from, setup, &parameters, answers, sink)
            }
            (SetupKind::Ready { answers, target }, None) => self.handle_ready(from, setup, (answers, target), sink),
        }
    }

    fn refuse(&mut self, peer: PeerId, answers: Nonce, reason: Reason) {
        tracing::debug!(rail = %self.options.name, peer = peer.0, ?reason, "connection refused");
        let attempt = self.attempts;
        let link = self.peers.get(peer).map(|known| known.link);
        let refusal = SetupKind::Refusal { answers, reason, left: Left::default() };
        let _ = self.send_setup((peer, link), attempt, [0; NONCE_BYTES], refusal);
    }

    /// Why two ends can't be connected.
    fn mismatch(&self, theirs: &SetupParameters) -> Option<Reason> {
        if theirs.message_bytes != self.options.message_bytes() {
            Some(Reason::Sizes)
        } else if theirs.xrc.is_some() != self.options.xrc.is_some() {
            Some(Reason::Transport) // V-14
        } else {
            None
        }
    }

    fn handle_request(&mut self, from: PeerId, setup: &Setup, parameters: &SetupParameters) {
        let Some(&known) = self.peers.get(from) else { return };
        let index = known.link;
        let link = self.links.get_mut(index);
        if setup.attempt <= known.seen {
            // V-6: a repetition, or one from long ago.
            if link.is_some_and(|link| link.phase == Phase::Called && link.theirs == Some(setup.nonce)) {
                self.queue_message(index);
            }
            return;
        }
        let phase = link.map(|link| link.phase);
        self.follow(from, setup);
        match phase {
            None => {}
            // V-5: ours wins; they give theirs up when our request arrives.
            Some(Phase::Calling) if keep(true, self.identity.me, from) => return,
            Some(Phase::Calling) => {}
            // Their side of our link no longer exists. They will repeat the request.
            Some(Phase::Called | Phase::Up | Phase::Closing) => {
                // Where they call by the same initiator, all was acknowledged that it has sent (V-16).
                let through = parameters.xrc.map(|xrc| xrc.through);
                let target = self.links.halves(index).and_then(|halves| halves.into);
                let drained = target.is_some_and(|qp| Some(qp.number) == through);
                return self.end(index, Some(RailFault::Closed), How::PeerLeft(Left { drained, target_dead: false }));
            }
            Some(Phase::Failing(_)) => return,
        }
        if let Some(reason) = self.mismatch(parameters) {
            return self.refuse(from, setup.nonce, reason);
        }
        let is_new = known.link == NO_LINK;
        let begun = if is_new { self.begin(from) } else { Ok(known.link) };
        let Ok(index) = begun else { return self.refuse(from, setup.nonce, Reason::Full) };
        let waited = !is_new && self.links.get(index).is_some_and(|link| link.initiator().is_none());
        // Of two processes that could wait for each other's calls, the higher rank does.
        let refused = match self.attach(index, self.identity.me > from) {
            Ok(true) => self.take_target(index, parameters).err(),
            // They will repeat it, and then an answer is possible (V-15).
            Ok(false) if is_new => return self.fail(index, None),
            Ok(false) => return,
            Err(_) => Some(Reason::Full),
        };
        if let Some(reason) = refused {
            self.refuse(from, setup.nonce, reason);
            if is_new {
                self.fail(index, None);
            } else if waited && parameters.xrc.is_some() {
                // Its message was not set before.
                self.call(index);
            }
            return;
        }
        if let Some(entry) = self.peers.get_mut(from) {
            entry.seen = setup.attempt;
        }
        let Some(link) = self.links.get(index) else { unreachable!("found or made above") };
        if let Ends::Rc(qp, _) = link.ends
            && let Err(fault) = self.ready_to_receive(qp, from, parameters)
        {
            self.refuse(from, setup.nonce, Reason::Full);
            return self.fail(index, Some(fault));
        }
        let Some(link) = self.links.get_mut(index) else { unreachable!("found or made above") };
        (link.phase, link.theirs, link.attempt) = (Phase::Called, Some(setup.nonce), 0);
        (link.deadline, link.reads_served) = (self.now + self.options.handshake_timeout, parameters.reads_served);
        self.queue_reply(index, setup.nonce);
    }

    /// Answers a request, now and in repetitions.
    pub(super) fn queue_reply(&mut self, index: u32, answers: Nonce) {
        let Some(link) = self.links.get(index) else { return };
        let due_message = SetupKind::Reply { parameters: self.parameters_of(link), answers };
        let pause = self.first_pause();
        let due = (self.now + pause).min(link.deadline);
        if let Some(link) = self.links.get_mut(index) {
            (link.due_message, link.pause) = (due_message, pause);
        }
        self.links.set_timer(index, Some(due));
        self.queue_message(index);
    }

    fn handle_reply(
        &mut self,
        from: PeerId,
        setup: &Setup,
        parameters: &SetupParameters,
        answers: Nonce,
        sink: &mut dyn Sink,
    ) {
        let Some(&known) = self.peers.get(from) else { return };
        let index = known.link;
        let Some(link) = self.links.get_mut(index).filter(|link| link.nonce == answers) else {
            return self.refuse(from, setup.nonce, Reason::Over);
        };
        match link.phase {
            Phase::Calling => {}
            // They have not received READY.
            Phase::Up | Phase::Closing if link.theirs == Some(setup.nonce) => return self.queue_message(index),
            _ => return,
        }
        (link.theirs, link.reads_served) = (Some(setup.nonce), parameters.reads_served);
        if link.pause == link.first_pause {
            // Sent once, answered once.
            let took = self.now - link.began;
            self.round_trip = Some(self.round_trip.map_or(took, |least| least.min(took)));
        }
        if let Some(entry) = self.peers.get_mut(from) {
            // Requests that they gave up for this connection are over (V-6).
            entry.seen = entry.seen.max(setup.attempt);
        }
        self.follow(from, setup);
        if let Some(reason) = self.mismatch(parameters) {
            self.refuse(from, setup.nonce, reason);
            return self.fail(index, Some(RailFault::Refused));
        }
        if let Err(reason) = self.take_target(index, parameters) {
            // They answer with another target then, and we continue to call.
            self.refuse(from, setup.nonce, reason);
            return if reason != Reason::Target {
                self.fail(index, Some(RailFault::Refused))
            };
        }
        let Some(link) = self.links.get(index) else { return };
        let ready = match link.ends {
            Ends::Rc(qp, psn) => self
                .ready_to_receive(qp, from, parameters)
                .and_then(|()| self.ready_to_send(qp, psn, parameters.reads_served)),
            Ends::Xrc(_) => self.connect_initiator(index, parameters.xrc.map_or(0, |xrc| xrc.target)),
        };
        if let Err(fault) = ready {
            return self.fail(index, Some(fault));
        }
        if let Some(link) = self.links.get_mut(index) {
            let target = link.halves().and_then(|halves| halves.into).map_or(0, |qp| qp.number);
            link.due_message = SetupKind::Ready { answers: setup.nonce, target };
        }
        self.queue_message(index);
        self.report_up(index, sink);
    }

    fn handle_ready(&mut self, from: PeerId, setup: &Setup, (answers, target): (Nonce, u32), sink: &mut dyn Sink) {
        let Some(&known) = self.peers.get(from) else { return };
        let index = known.link;
        let it = |link: &&mut Link| link.nonce == answers && link.theirs == Some(setup.nonce);
        let Some(link) = self.links.get_mut(index).filter(it) else {
            return self.refuse(from, setup.nonce, Reason::Over);
        };
        if link.phase != Phase::Called {
            return;
        }
        link.confirmed = true;
        link.is_send_due = false;
        let reads_served = link.reads_served;
        self.follow(from, setup);
        let Some(link) = self.links.get(index) else { return };
        let ready = match link.ends {
            Ends::Rc(qp, psn) => self.ready_to_send(qp, psn, reads_served),
            Ends::Xrc(_) => self.connect_initiator(index, target),
        };
        match ready {
            Ok(()) => self.report_up(index, sink),
            Err(fault) => self.fail(index, Some(fault)),
        }
    }

    /// Both sides are authentic, and the peer can receive.
    fn report_up(&mut self, index: u32, sink: &mut dyn Sink) {
        self.links.set_timer(index, None);
        let Some(link) = self.links.get_mut(index) else { return };
        (link.phase, link.is_up_reported) = (Phase::Up, true);
        tracing::debug!(rail = %self.options.name, peer = link.peer.0, "connected");
        self.reports.push_back(Report::Up(link.peer));
        self.give_handle_back(index);
        deliver(&mut self.reports, sink);
        self.release_held(index, Some(sink));
    }

    fn handle_refusal(&mut self, index: u32, answers: Nonce, reason: Reason, left: Left) {
        let Some(link) = self.links.get_mut(index).filter(|link| link.nonce == answers) else { return };
        match link.phase {
            Phase::Calling | Phase::Called if reason == Reason::Target => self.go_alone(index), // V-15
            Phase::Calling | Phase::Called => self.fail(index, Some(RailFault::Refused)),
            // About a message that another one has answered since.
            Phase::Up | Phase::Closing if reason == Reason::Target => {}
            Phase::Up => self.end(index, Some(RailFault::Closed), How::PeerLeft(left)), // V-7
            Phase::Closing if link.halves().is_some() && !left.drained => self.end(index, None, How::PeerLeft(left)),
            Phase::Closing if left.target_dead => self.end(index, None, How::PeerLeft(left)),
            // No report is expected any more.
            Phase::Closing => {
                link.confirmed = true;
                self.closing.push(index);
            }
            Phase::Failing(_) => self.handle_left(index, left),
        }
    }

    /// The time of a message's first repetition: after four round trips, if one was measured; a lost message
    /// costs no more than that (V-4).
    pub(super) fn first_pause(&self) -> Nanos {
        let round_trip = self.round_trip.map_or(self.options.resend_first, |seen| Nanos(seen.0.saturating_mul(4)));
        round_trip.max(RESEND_MIN).min(self.options.resend_first)
    }

    /// A link's timer has gone off.
    pub(super) fn time_out(&mut self, index: u32) {
        let now = self.now;
        let Some(link) = self.links.get_mut(index) else { return };
        match link.phase {
            Phase::Calling if now < link.deadline && link.halves().is_some_and(|halves| halves.out.is_none()) => {
                self.call(index); // V-15
            }
            Phase::Calling | Phase::Called if now < link.deadline => {
                link.pause = Nanos(link.pause.0.saturating_mul(2)).min(self.options.resend_max);
                let due = (now + link.pause).min(link.deadline);
                self.links.set_timer(index, Some(due));
                self.queue_message(index);
            }
            Phase::Calling | Phase::Called => self.fail(index, Some(RailFault::TimedOut)),
            Phase::Closing if link.open == 0 && link.waiting.is_empty() => {
                let how = if link.confirmed { How::THROUGH } else { How::NoReport };
                self.end(index, None, how);
            }
            Phase::Closing => self.fail(index, None),
            Phase::Failing(_) if link.halves().is_some() => self.press_on(index),
            Phase::Failing(_) => self.finish(index),
            Phase::Up => self.links.set_timer(index, None),
        }
    }
}
