//! Ends: of a link, and of the rail.
//!
//! A link that fails or completes goes to the error state first, so that the device gives everything back:
//! its requests as flushed completions, its receive buffers, and last an event. Only then the queue pair is
//! destroyed and the end is reported to the core (L-5): messages that had arrived whole were delivered
//! before, and no payload memory is in use any more (V-9; InfiniBand specification, 10.3.1 and 11.6.3.3, last
//! WQE reached). The wait for the device ends after `drain_time`. A failed queue pair is never used again.

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_verbs::contract::{Device, ModifyError, PostReason, QpChange, QpState};

use super::link::{Ends, Link, Phase};
use super::peers::NO_LINK;
use super::wire::{Left, Reason, SetupKind};
use super::xrc::How;
use super::{Report, VerbsRail, codes};

impl<D: Device> VerbsRail<D> {
    /// Ends a link. A fault is reported to the core if the link was up or its connect pending; the first
    /// fault counts.
    pub(super) fn fail(&mut self, index: u32, fault: Option<RailFault>) {
        self.end(index, fault, How::Hard);
    }

    /// Ends a link; `how` matters where it shares queue pairs (V-16).
    pub(super) fn end(&mut self, index: u32, fault: Option<RailFault>, how: How) {
        self.mark_dirty();
        let Some(link) = self.links.get_mut(index) else { return };
        let (reported, before) = (link.has_started(), link.phase);
        if matches!(before, Phase::Failing(_)) {
            return;
        }
        let had_messages = before != Phase::Calling;
        self.closings -= usize::from(link.phase == Phase::Closing);
        link.phase = Phase::Failing(fault.filter(|_| reported));
        let is_silent = link.phase == Phase::Failing(None) && !link.again;
        link.waiting.clear();
        link.pieces.clear();
        link.is_send_due = false;
        let (peer, nonce, theirs, is_up_reported) = (link.peer, link.nonce, link.theirs, link.is_up_reported);
        let rc = if let Ends::Rc(qp, _) = link.ends { Some(qp) } else { None };
        if let Some(fault) = fault {
            tracing::debug!(rail = %self.options.name, peer = peer.0, ?fault, "connection over");
        }
        if !is_up_reported {
            self.release_held(index, None);
        }
        let Some(qp) = rc else {
            if had_messages {
                self.end_halves(index, before, how);
            } else {
                self.finish(index); // nothing was sent, so nothing is in flight
            }
            return if is_silent {
                self.detach(index)
            };
        };
        if is_silent {
            self.detach(index);
        }
        if let Some(answers) = theirs {
            // A hint only: a peer that does not receive it notices at its next send (V-7).
            let attempt = self.attempts;
            let kind = SetupKind::Refusal { answers, reason: Reason::Over, left: Left::default() };
            let _ = self.send_setup((peer, Some(index)), attempt, nonce, kind);
        }
        match self.device.modify_qp(qp.id, &QpChange::to(QpState::Error)) {
            Ok(()) if had_messages => {
                self.links.set_timer(index, Some(self.now + self.options.drain_time));
                self.failing.push(index);
            }
            Err(ModifyError::DeviceGone) => self.broken = true,
            // Nothing of it is in flight.
            _ => self.finish(index),
        }
    }

    /// Destroys the failed queue pairs that have given everything back.
    pub(super) fn finish_failed(&mut self) -> usize {
        let mut finished = 0;
        while let Some(index) = self.failing.pop() {
            let link = self.links.get(index).filter(|link| matches!(link.phase, Phase::Failing(_)));
            if link.is_some_and(|link| link.open == 0 && self.is_inward_drained(link)) && self.is_left_reported(index) {
                self.finish(index);
                finished += 1;
            }
        }
        finished
    }

    /// Destroys a link's queue pair and forgets the link.
    pub(super) fn finish(&mut self, index: u32) {
        let Some(link) = self.links.get(index) else { return };
        if let Ends::Rc(qp, _) = link.ends {
            if let Err(why) = self.device.destroy_qp(qp.id) {
                tracing::warn!(rail = %self.options.name, %why, "queue pair not destroyed");
            }
            self.forget_number(qp.number);
            self.by_name.remove(&qp.id);
        }
        self.give_halves_up(index);
        self.drop_works(index);
        self.drop_quiet(index);
        self.registry.fence(&mut *self.device);
        self.release_held(index, None);
        let Some(link) = self.links.remove(index) else { return };
        if let Some((handle, _)) = link.handle {
            self.drop_handle(handle);
        }
        if let Some(entry) = self.peers.get_mut(link.peer).filter(|entry| entry.link == index) {
            entry.link = NO_LINK;
        }
        match link.phase {
            Phase::Failing(Some(fault)) => self.reports.push_back(Report::Down(link.peer, fault)),
            Phase::Closing => self.closings -= 1,
            _ => {}
        }
        if link.again && !self.broken {
            self.dial(link.peer);
        }
    }

    /// A link without further reports releases its peer for the next link, however long its queue pair takes
    /// to give everything back; not where the next link's messages would come by the same queue pairs (V-16).
    fn detach(&mut self, index: u32) {
        let Some(link) = self.links.get(index).filter(|link| !self.shares_successor(link)) else { return };
        let peer = link.peer;
        if let Some(entry) = self.peers.get_mut(peer).filter(|entry| entry.link == index) {
            entry.link = NO_LINK;
        }
    }

    /// The link to a peer that the core has finished with: nothing of it is reported, and its messages are
    /// ignored.
    fn silence(&mut self, peer: PeerId) -> Option<(u32, &mut Link)> {
        self.reports.retain(|report| report.peer() != peer);
        self.taken.retain(|(to, _)| *to != peer);
        let index = self.peers.get(peer)?.link;
        let link = self.links.get_mut(index)?;
        (link.dial_pending, link.again, link.ignores_messages) = (false, false, true);
        Some((index, link))
    }

    /// Ends a link at once (F-2, L-15): its queue pair receives and sends nothing any more, and its
    /// completions are ignored.
    pub(super) fn cut(&mut self, peer: PeerId) {
        let Some((index, link)) = self.silence(peer) else { return };
        if let Phase::Failing(fault) = &mut link.phase {
            *fault = None;
        }
        self.forget_targets(index);
        self.detach(index);
        self.stop(index);
    }

    /// The core has finished with a peer.
    pub(super) fn leave(&mut self, peer: PeerId) {
        let Some((index, link)) = self.silence(peer) else { return };
        match &mut link.phase {
            Phase::Calling | Phase::Called => return self.fail(index, None),
            Phase::Failing(fault) => {
                *fault = None;
                self.detach(index);
            }
            Phase::Up => {
                // Waiting posts with payload can't be copied anywhere; after BYE there are none.
                let keep = link.waiting.iter().position(|waiting| waiting.pieces > 0).unwrap_or(link.waiting.len());
                link.waiting.truncate(keep);
                link.pieces.clear();
                link.phase = Phase::Closing;
                self.closings += 1;
                self.links.set_timer(index, Some(self.now + self.options.drain_time));
                self.closing.push(index);
            }
            Phase::Closing => return,
        }
        self.forget_targets(index);
        if self.uses_payload(index) {
            self.stop(index);
        }
    }

    /// Ends all use of payload memory by a link, now.
    fn stop(&mut self, index: u32) {
        self.fail(index, None);
        self.shut(index);
        self.reclaim();
        if self.broken {
            self.give_up();
        } else if self.uses_payload(index) {
            // The device takes its time. Without the queue pair it can't go on; a receive buffer that a
            // message was just coming into is lost with it.
            self.finish(index);
        }
    }

    /// Ends the disconnected links whose last posts have been received, by a peer that has confirmed the
    /// connection (V-9).
    pub(super) fn finish_closing(&mut self) -> usize {
        let mut finished = 0;
        while let Some(index) = self.closing.pop() {
            let link = self.links.get(index).filter(|link| link.phase == Phase::Closing);
            if link.is_some_and(|link| link.open == 0 && link.waiting.is_empty() && link.confirmed) {
                self.end(index, None, How::THROUGH);
                finished += 1;
            }
        }
        finished
    }

    /// Ends all links for one reason.
    pub(super) fn fail_all(&mut self, fault: RailFault) {
        self.break_initiators(fault);
        for index in self.links.numbers() {
            self.fail(index, Some(fault));
            self.shut(index);
        }
    }

    /// The device is broken: every link is down, and it is closed, permanently or until it is opened again.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
        if !self.device.is_open() {
            return;
        }
        self.forget_initiators();
        for index in self.links.numbers() {
            let Some(link) = self.links.get_mut(index) else { continue };
            if link.has_started() {
                link.phase = Phase::Failing(Some(RailFault::Device { code: codes::BROKEN }));
            }
            self.finish(index);
        }
        self.registry.clear(&mut *self.device);
        self.close_device();
        self.batch.clear();
        self.due_links.clear();
        self.to_feed.clear();
        self.failing.clear();
        self.closing.clear();
        self.unfinished = false;
    }

    /// A refused receive: the device is gone, or does not keep the contract.
    pub(super) fn note_refused(&mut self, why: &rerail_verbs::contract::PostError) {
        if why.why != PostReason::DeviceGone {
            tracing::warn!(rail = %self.options.name, %why, "receives not posted");
        }
        self.broken = true;
    }
}
