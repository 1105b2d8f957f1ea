//! How links end that share queue pairs with others. Rule V-16.
//!
//! A link that ends for a fault, or is aborted, ends its target too, at once: pending requests of the peer no
//! longer reach memory here (F-2). That breaks the peer's initiator, and so all of the peer's links with this
//! node. An initiator that breaks ends every link that uses it; each is reported by itself. But these links'
//! *targets* belong to working initiators of the peers, and others use them: so each peer is notified, lets
//! its own requests complete, and confirms that. Only without that confirmation the target is given up, too.
//! So a fault costs all links of two processes with each other's nodes, and no more.
//!
//! A link that the core or the peer has finished with harms no other: once all of its requests are back it
//! gives its names up. An initiator or target is destroyed with its last user.
//!
//! The sender's end in a REFUSAL (`Left`) distinguishes these cases.

use rerail_core::endpoint::RailFault;
use rerail_core::time::{Nanos, Time};
use rerail_verbs::contract::{Device, ModifyError, QpChange, QpState};

use super::super::link::{Link, Phase};
use super::super::wire::{Left, Reason, SetupKind};
use super::super::{VerbsRail, codes};
use super::{Inward, State};

/// Messages that had come to a target are in memory and in its queue by then: no event reports them for its
/// kind (a last-WQE event belongs to queue pairs that were made with their shared receive queue), and
/// acknowledged messages need not be in memory.
const DRAIN_TIME: Nanos = Nanos::from_micros(200);
/// Repetitions of a set-up message before the wait for a peer's confirmation ends, and the minimum for that
/// wait: a peer polls only now and then, and giving up its target costs all of its links with this node.
const LEFT_PAUSES: u64 = 4;
const LEFT_MIN: Nanos = Nanos::from_millis(4);

/// Why a link ends, as far as its queue pairs are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum How {
    /// For a fault of its own, or at once.
    Hard,
    /// Its initiator is broken.
    Broken,
    /// This side has finished, and the peer never sent: its requests may be pending.
    NoReport,
    /// The peer reported its end over, in this state; or both sides have finished.
    PeerLeft(Left),
}

impl How {
    /// Both sides have finished.
    pub const THROUGH: How = How::PeerLeft(Left { drained: true, target_dead: false });
}

impl<D: Device> VerbsRail<D> {
    /// A link of two halves ends, from [`Phase::Called`] or a later one.
    pub(in super::super) fn end_halves(&mut self, index: u32, before: Phase, how: How) {
        let Some(link) = self.links.get(index) else { return };
        let (open, out) = (link.open, link.initiator());
        let up = before != Phase::Called;
        let must_kill = match how {
            How::Hard => up,
            How::Broken | How::NoReport => false,
            How::PeerLeft(left) => up && !left.drained,
        };
        let inward = match how {
            _ if must_kill => self.kill_target(index),
            How::Broken | How::NoReport if up => Inward::Open,
            _ => Inward::Draining(self.now + DRAIN_TIME),
        };
        let sends_nothing = match how {
            How::Hard => open > 0,
            How::Broken => true,
            How::NoReport => false,
            How::PeerLeft(left) => left.target_dead,
        };
        if sends_nothing {
            // The fault of this link, as bytes that are no packet, is none of the others'.
            self.break_initiator(out, RailFault::Device { code: codes::SHARED });
        }
        let works = out.and_then(|out| self.initiators.get(out)).is_some_and(|it| it.state != State::Broken);
        let (now, pause) = (self.now, self.first_pause());
        let (deadline, timeout) = (now + self.options.drain_time, now + self.left_pause());
        if let Some(link) = self.links.get_mut(index) {
            (link.deadline, link.pause) = (deadline, pause);
            if let Some(halves) = link.halves_mut() {
                (halves.inward, halves.timeout) = (inward, timeout);
            }
        }
        // Open requests may still succeed, and then the peer receives a better report.
        if !(works && open > 0) {
            self.queue_left(index, Left { drained: works, target_dead: must_kill });
        }
        let due = inward.over_at().unwrap_or_else(|| self.left_due(index));
        self.links.set_timer(index, Some(due.min(deadline)));
        self.failing.push(index);
    }

    /// The wait for a peer's report, from the time of our own.
    fn left_pause(&self) -> Nanos {
        let pauses = Nanos(self.options.resend_first.0.saturating_mul(LEFT_PAUSES));
        pauses.max(LEFT_MIN).min(Nanos(self.options.drain_time.0 / 2))
    }

    /// When to repeat the report of a failing link whose peer's report is missing: soon if it was not sent
    /// yet, otherwise seldom, as other links may have messages, too.
    fn left_due(&self, index: u32) -> Time {
        let Some((link, halves)) = self.links.get(index).and_then(|link| Some((link, link.halves()?))) else {
            return self.now;
        };
        let half = Nanos(halves.timeout.0.saturating_sub(self.now.0) / 2);
        let pause = if halves.is_left_sent { half.max(link.pause) } else { link.pause };
        (self.now + pause).min(halves.timeout)
    }

    /// Reports the state of this end to the peer. A hint only (V-7); it is repeated where it could
    /// not be sent.
    fn queue_left(&mut self, index: u32, left: Left) {
        let Some(link) = self.links.get(index) else { return };
        let (peer, nonce, Some(answers)) = (link.peer, link.nonce, link.theirs) else { return };
        let attempt = self.attempts;
        let refusal = SetupKind::Refusal { answers, reason: Reason::Over, left };
        let is_out = self.send_setup((peer, Some(index)), attempt, nonce, refusal).unwrap_or(false);
        let timeout = self.now + self.left_pause();
        let Some(halves) = self.links.halves_mut(index) else { return };
        if is_out && !halves.is_left_sent {
            halves.timeout = halves.timeout.max(timeout);
        }
        halves.is_left_sent = is_out || halves.is_left_sent && halves.left_report == Some(left);
        halves.left_report = Some(left);
    }

    /// The same once more.
    fn repeat_left(&mut self, index: u32) {
        let left = self.links.halves(index).and_then(|halves| halves.left_report);
        if let Some(left) = left {
            self.queue_left(index, left);
        }
    }

    /// Whether a failing link without pending work has reported its end to the peer, which it does here; if
    /// not, call again. Where the report can't be sent, or not in time, it is omitted.
    pub(in super::super) fn is_left_reported(&mut self, index: u32) -> bool {
        let Some((link, halves)) = self.links.get(index).and_then(|link| Some((link, link.halves()?))) else {
            return true;
        };
        let deadline = link.deadline;
        if halves.is_left_sent || link.theirs.is_none() || self.broken || self.outage.is_some() || self.now >= deadline
        {
            return true;
        }
        let left = halves.left_report.unwrap_or(Left { drained: self.is_drained(link), target_dead: false });
        self.queue_left(index, left);
        let is_left_sent = self.links.halves(index).is_none_or(|halves| halves.is_left_sent);
        if !is_left_sent {
            let due = (self.now + self.first_pause()).min(deadline);
            self.links.set_timer(index, Some(due));
        }
        is_left_sent
    }

    /// Whether all messages that a link sent were acknowledged. Requests returned by an initiator in error
    /// need not have been.
    fn is_drained(&self, link: &Link) -> bool {
        let breaks = |out| self.initiators.get(out).is_some_and(|it| it.state == State::Broken);
        link.open == 0 && !link.initiator().is_some_and(breaks)
    }

    /// Whether messages of a failing link, ours or the peer's, could be taken for messages of the next link
    /// to that peer: it may get the same initiator, and the same target.
    pub(in super::super) fn shares_successor(&self, link: &Link) -> bool {
        let Some(halves) = link.halves() else { return false };
        let is_target_dead = halves.into.is_none() || matches!(halves.inward, Inward::Dead(_));
        let breaks = |out| self.initiators.get(out).is_none_or(|it| it.state == State::Broken);
        !is_target_dead || link.open > 0 && !halves.out.is_none_or(breaks)
    }

    /// Nothing more comes over a link's target.
    fn kill_target(&mut self, index: u32) -> Inward {
        let target = self.links.halves(index).and_then(|halves| halves.into);
        if let Some(target) = target {
            let killed = self.device.modify_qp(target.id, &QpChange::to(QpState::Error));
            self.broken |= killed == Err(ModifyError::DeviceGone);
        }
        Inward::Dead(self.now + DRAIN_TIME)
    }

    /// An initiator has failed, or must: all links that use it end. Of a link without one, nothing happens.
    pub(in super::super) fn break_initiator(&mut self, out: Option<u32>, fault: RailFault) {
        let Some((out, it)) = out.and_then(|out| Some((out, self.initiators.get_mut(out)?))) else { return };
        if std::mem::replace(&mut it.state, State::Broken) == State::Broken {
            return;
        }
        let qp = it.qp.id;
        self.mark_dirty();
        tracing::debug!(rail = %self.options.name, ?fault, "initiator broken");
        let changed = self.device.modify_qp(qp, &QpChange::to(QpState::Error));
        self.broken |= changed == Err(ModifyError::DeviceGone);
        for index in self.links.numbers() {
            if self.links.get(index).is_some_and(|link| link.initiator() == Some(out)) {
                self.end(index, Some(fault), How::Broken);
            }
        }
    }

    /// Before all links end: none of their initiators is used by a new one.
    pub(in super::super) fn break_initiators(&mut self, fault: RailFault) {
        for out in 0..self.initiators.slots.len() as u32 {
            self.break_initiator(Some(out), fault);
        }
    }

    /// The device is gone: its queue pairs are inactive, and peers are not notified.
    pub(in super::super) fn forget_initiators(&mut self) {
        self.initiators.slots.iter_mut().flatten().for_each(|it| it.state = State::Broken);
    }

    /// Handles a peer's report on its end, for a link that ends here too.
    pub(in super::super) fn handle_left(&mut self, index: u32, left: Left) {
        let Some(halves) = self.links.halves(index) else { return };
        if halves.inward == Inward::Open {
            let inward = if left.drained { Inward::Draining(self.now + DRAIN_TIME) } else { self.kill_target(index) };
            self.set_inward(index, inward);
        }
        self.failing.push(index);
    }

    /// Whatever a failing link waits for: from now on nothing reaches memory by it.
    pub(in super::super) fn shut(&mut self, index: u32) {
        let failing = self.links.get(index).filter(|link| matches!(link.phase, Phase::Failing(_)));
        if failing.and_then(Link::halves).is_some_and(|halves| halves.inward == Inward::Open) {
            let inward = self.kill_target(index);
            self.set_inward(index, inward);
            self.queue_left(index, Left { drained: false, target_dead: true });
        }
    }

    fn set_inward(&mut self, index: u32, inward: Inward) {
        let Some(link) = self.links.get_mut(index) else { return };
        let deadline = link.deadline;
        if let Some(halves) = link.halves_mut() {
            halves.inward = inward;
        }
        let due = inward.over_at().map_or(deadline, |at| at.min(deadline));
        self.links.set_timer(index, Some(due));
    }

    /// Whether a failing link's target has given everything back.
    pub(in super::super) fn is_inward_drained(&self, link: &Link) -> bool {
        let over_at = link.halves().map(|halves| halves.inward.over_at());
        over_at.map_or(link.last_receive, |at| at.is_some_and(|at| self.now >= at))
    }

    /// A failing link's timer has gone off.
    pub(in super::super) fn press_on(&mut self, index: u32) {
        let Some(link) = self.links.get(index) else { return };
        if self.now >= link.deadline {
            self.shut(index);
            return self.finish(index);
        }
        let (mut due, open, out) = (link.deadline, link.open, link.initiator());
        let Some(halves) = link.halves() else { return };
        let (inward, timeout) = (halves.inward, halves.timeout);
        if inward == Inward::Open && self.now < timeout {
            self.repeat_left(index);
            let due = self.left_due(index).min(due);
            self.links.set_timer(index, Some(due));
            self.failing.push(index);
            return;
        }
        if inward == Inward::Open {
            return self.shut(index);
        }
        if open > 0 && self.now < timeout {
            due = due.min(timeout);
        } else if open > 0 {
            // The peer may have been the last one with their target open: it will not answer them.
            self.break_initiator(out, RailFault::Device { code: codes::SHARED });
        }
        self.links.set_timer(index, Some(due));
        self.failing.push(index);
    }

    /// A link that is destroyed gives up its halves: its requests first, if the device has not given them
    /// back.
    pub(in super::super) fn give_halves_up(&mut self, index: u32) {
        let Some(link) = self.links.get(index) else { return };
        let (open, out, Some(halves)) = (link.open, link.initiator(), link.halves()) else { return };
        let (into, is_left_sent, is_called, drained) =
            (halves.into, halves.is_left_sent, link.theirs.is_some(), self.is_drained(link));
        if open > 0 {
            self.break_initiator(out, RailFault::Device { code: codes::SHARED });
            self.destroy_initiator(out);
        }
        if is_called && !is_left_sent && !self.broken {
            self.queue_left(index, Left { drained, target_dead: false });
        }
        if let Some(target) = into {
            if self.by_number.get(&target.number) == Some(&index) {
                self.forget_number(target.number);
            }
            self.by_name.remove(&target.id);
            if let Err(why) = self.device.destroy_qp(target.id) {
                tracing::warn!(rail = %self.options.name, %why, "target not given up");
            }
        }
        if let Some(halves) = self.links.halves_mut(index) {
            (halves.out, halves.into) = (None, None);
        }
        if let Some(out) = out {
            self.release(out);
        }
    }

    /// Destroys a broken initiator under the links that use it: their requests are over.
    fn destroy_initiator(&mut self, out: Option<u32>) {
        let Some((out, it)) = out.and_then(|out| Some((out, self.initiators.get_mut(out)?))) else { return };
        if !std::mem::replace(&mut it.is_made, false) {
            return;
        }
        let qp = it.qp.id;
        if let Err(why) = self.device.destroy_qp(qp) {
            tracing::warn!(rail = %self.options.name, %why, "initiator not destroyed");
        }
        for index in self.links.numbers() {
            if self.links.get(index).is_some_and(|link| link.initiator() == Some(out)) {
                self.drop_works(index);
                if let Some(link) = self.links.get_mut(index) {
                    link.open = 0;
                }
                self.failing.push(index);
            }
        }
    }

    /// A link stops using an initiator; the last user destroys it.
    pub(super) fn release(&mut self, out: u32) {
        let Some(it) = self.initiators.get_mut(out) else { return };
        it.links -= 1;
        if it.links > 0 {
            return;
        }
        self.destroy_initiator(Some(out));
        let gone = self.initiators.slots.get_mut(out as usize).and_then(Option::take);
        if let Some(it) = gone.filter(|it| it.state == State::Calling) {
            self.wake(it.node);
        }
    }
}
