//! Subchannels that fail and recover: notification of the peer, redials, and when a peer is given up (rules
//! F-1 to F-4, F-8 to F-10; resilient-2010, IV.B). The machine of each subchannel is
//! [`Link`](crate::rel::link::Link). `replay` and `retry_epoch` send again what a dead connection left.
//!
//! Rails that move: a device that was reopened, a port with another LID or GID (F-12). If only one end has
//! moved, it dials, and its connection carries the new address. If both have moved, neither can reach the
//! other: so the new address is sent over every other subchannel that is up, and over each that comes up
//! later, since the original address was published once, before the start. Only rails interpret addresses;
//! this module stores and sends them.

use super::packets::{Actions, STEP};
use super::timer::Timer;
use super::{Endpoint, LossReason, RailFault, SetAddressError};
use crate::api::action::{Arrival, Span};
use crate::ids::{PeerId, RailId};
use crate::log;
use crate::peer::{ChannelState, Ending, Outage, Outcome, Sub};
use crate::rail::rails_of;
use crate::rail::rate::Rate;
use crate::rail::set::RailSet;
use crate::rel::link::{Link, Pair, State, Verdict};
use crate::time::{Nanos, Time};
use crate::wire::{Address, AddressText, Body, Common, Fence};

/// A returning rail starts with this fraction of its former estimated rate.
const RETURNS_WITH: u32 = 8;

impl Endpoint<'_> {
    /// A rail has lost its connection to a peer, or could not open one.
    pub(super) fn subchannel_down(&mut self, now: Time, channel: u32, rail: RailId, fault: RailFault) {
        let sub = self.sub_mut(channel, rail);
        if sub.link.state() == State::Down {
            // This end aborted it, and the rail's report came late.
            return;
        }
        let verdict = sub.link.down();
        self.down(now, channel, rail, fault, verdict);
    }

    /// Handles the death of this end of a connection, reported by the rail or decided by the core.
    fn down(&mut self, now: Time, channel: u32, rail: RailId, fault: RailFault, verdict: Verdict) {
        log::warn!("peer {}: rail {} down, {}", self.channel(channel).peer.0, rail.0, fault);
        if self.channel(channel).state() == ChannelState::Leaving {
            // Everything of ours is acknowledged; the peer closed first.
            self.abort_placement(channel, rail);
            self.paths.forget(channel, rail);
            let Sub { bye_sent, frame_posted, .. } = *self.sub_mut(channel, rail);
            self.channel_mut(channel).bye_received |= bye_sent;
            self.sub_mut(channel, rail).clear();
            self.refresh(channel, rail);
            if self.t.subs_of(channel).iter().all(|sub| !sub.is_up()) {
                self.end_left(now, channel, frame_posted || !bye_sent);
            }
            return self.activate_if_alive(channel);
        }
        if self.channel(channel).bye_early && self.paths.lossy >> rail.0 & 1 == 0 {
            return self.end_channel(channel, Ending::Closed); // G-7
        }
        // A peer that breaks the protocol does not park.
        if self.channel(channel).state() == ChannelState::Parking && fault != RailFault::Corrupt {
            let outcome = self.parking_ended(channel, rail);
            if outcome == Outcome::Opens {
                self.stop_parking(channel);
                // Planned below.
                self.channel_mut(channel).work.cancel_dial(rail);
            } else {
                // The peer may have ended it (K-3). Nothing is under way on the others; if the channel is not
                // parked after all, they are dialled again then.
                if verdict.lost {
                    self.lose(channel, rail);
                    // A channel that is being parked reads nothing.
                    self.channel_mut(channel).replay.end_reads();
                } else {
                    self.paths.forget(channel, rail);
                    self.sub_mut(channel, rail).clear();
                    self.refresh(channel, rail);
                }
                self.conclude(now, channel, outcome);
                return self.activate(channel);
            }
        }
        self.sub_mut(channel, rail).history.down(now, fault, verdict.lost);
        if verdict.lost {
            // Shared memory fails with the peer's process or on invalid data from the peer; packets on such a
            // rail were not kept.
            let lossless = self.paths.facts(rail).caps.lossless;
            if lossless || fault == RailFault::Corrupt || !self.config.recovery {
                return self.give_up(now, channel, LossReason::RailFailed { rail, fault });
            }
            self.lose(channel, rail);
        } else {
            self.paths.forget(channel, rail);
            self.sub_mut(channel, rail).clear();
            self.channel_mut(channel).work.down(rail);
            self.refresh(channel, rail);
        }
        // If the peer sent a FENCE, its leftovers are replayed once the arrivals are recorded
        // (`arrive_fence`).
        self.request_fences(channel);
        self.plan_redial(now, channel, rail, fault);
    }

    fn activate_if_alive(&mut self, channel: u32) {
        if self.t.channels.key_at(channel).is_some() {
            self.activate(channel);
        }
    }

    /// Sends a FENCE to the peer (again) for every connection with waiting leftovers: the last one may have
    /// been lost with its connection (F-3).
    pub(super) fn request_fences(&mut self, channel: u32) {
        let waiting = (0u8..).zip(self.t.subs_of(channel)).filter(|(_, sub)| sub.link.waits_for().is_some());
        let requested = waiting.fold(0, |mask, (rail, _)| mask | 1 << rail);
        let fences = &mut self.channel_mut(channel).work.fences;
        *fences = fences.with(RailSet(requested));
        self.activate(channel);
    }

    /// Plans the redial of a subchannel, or gives the peer up (F-8, F-9).
    fn plan_redial(&mut self, now: Time, channel: u32, rail: RailId, fault: RailFault) {
        let (min, max) = (self.config.redial_min, self.config.redial_max);
        let sub = self.sub_mut(channel, rail);
        if now - sub.ready_at >= max && sub.ready_at > Time(0) {
            sub.failures = 0;
            sub.is_back_used = false;
        }
        // A connection that was up for a while is redialled at once: the failure may be short.
        let pause = match sub.failures {
            0 => Nanos(0),
            failures => Nanos(min.0.saturating_mul(1 << (failures - 1))).min(max),
        };
        sub.failures = (sub.failures + 1).min(u64::BITS as u8);
        sub.ready_at = Time(0);
        sub.redial_at = now + pause;
        let failures = sub.failures;
        let slot = self.channel_mut(channel);
        log::debug!("peer {}: rail {} again in {} us, failure {}", slot.peer.0, rail.0, pause.0 / 1000, failures);
        if pause == Nanos(0) {
            slot.work.dial_now(rail);
        } else {
            slot.work.dial_later(rail);
        }
        // A ready one with a pending CONNECT has ended that time already.
        if !self.t.subs_of(channel).iter().any(|sub| sub.link.state() == State::Ready) {
            self.mark_no_path(now, channel, rail, fault);
        }
        if self.is_gone_for_good(channel, rail, fault) {
            return self.give_up(now, channel, LossReason::RailFailed { rail, fault });
        }
        self.set_redial_timer(channel);
        self.activate(channel);
    }

    /// No rail is ready: `recovery_timeout` starts at the first call.
    fn mark_no_path(&mut self, now: Time, channel: u32, rail: RailId, fault: RailFault) {
        let slot = self.channel_mut(channel);
        let is_first = slot.silence.outage_begins(now, rail, fault);
        // Before the peer's parameters are known, `connect_timeout` runs (G-4).
        if is_first && slot.peer_parameters.is_some() && self.config.recovery_timeout.0 > 0 {
            self.t.set_timer(channel, Timer::Connect, now + self.config.recovery_timeout);
        }
    }

    /// Whether a fault makes further attempts useless: no process listens at the peer's address any more, or,
    /// before the first packet, its identity is wrong; and no other connection is up or being made (F-9,
    /// G-4).
    fn is_gone_for_good(&mut self, channel: u32, rail: RailId, fault: RailFault) -> bool {
        let slot = self.channel_mut(channel);
        let is_known = slot.peer_parameters.is_some();
        if !(fault == RailFault::Gone || !is_known && fault == RailFault::Unauthenticated) {
            return false;
        }
        if !is_known {
            slot.work.cancel_dial(rail);
        }
        let is_last = is_known || !slot.work.will_dial();
        let others = self.t.subs_of(channel).iter().any(|sub| match sub.link.state() {
            State::Up | State::Ready => true,
            State::Connecting => !is_known,
            State::Down => false,
        });
        is_last && !others
    }

    /// Redials subchannels whose pause is over.
    pub(super) fn redial(&mut self, now: Time, channel: u32) {
        let slot = self.channel(channel);
        if slot.state() == ChannelState::Leaving {
            return;
        }
        for rail in slot.work.redials().iter() {
            let sub = self.sub_mut(channel, rail);
            if sub.redial_at <= now {
                let is_down = sub.link.state() == State::Down;
                self.channel_mut(channel).work.redial_due(rail, is_down);
            }
        }
        self.set_redial_timer(channel);
        self.activate(channel);
    }

    /// A rail that is back skips its pause: once, or whenever no other rail leads to the peer (F-8).
    pub(super) fn rail_back(&mut self, now: Time, rail: RailId) {
        if usize::from(rail.0) >= self.paths.rails.len() {
            return;
        }
        let mut walk = self.t.channels.walk();
        while let Some(channel) = self.t.channels.step(&mut walk) {
            let slot = self.channel(channel);
            let is_paused = slot.work.redials().contains(rail) && !slot.is_over();
            let has_no_path = self.paths.ready(channel) == 0;
            let sub = self.sub_mut(channel, rail);
            if is_paused && (has_no_path || !sub.is_back_used) {
                sub.is_back_used = true;
                sub.redial_at = sub.redial_at.min(now);
                self.redial(now, channel);
            }
        }
    }

    /// The peer's process exists, and has not answered a dial: its time begins anew (F-9).
    pub(super) fn dial_queued(&mut self, now: Time, peer: PeerId) {
        let Some(channel) = self.t.channel_of(peer) else { return };
        let slot = self.channel(channel);
        if slot.state() == ChannelState::Closing && slot.is_quiet() && slot.ops == 0 {
            // No request needs it: it may end without BYE (G-7).
            return;
        }
        if !slot.is_over() && self.t.has_timer(channel, Timer::Connect) {
            let timeout = self.path_timeout_of(channel);
            self.t.set_timer(channel, Timer::Connect, now + timeout);
        }
    }

    /// How long a peer may be without a usable path, or unmet.
    fn path_timeout_of(&self, channel: u32) -> Nanos {
        let is_met = self.channel(channel).peer_parameters.is_some();
        if is_met { self.config.recovery_timeout } else { self.config.connect_timeout }
    }

    /// No rail has been ready for the maximum time: the peer is given up (F-9). If this process was suspended
    /// when the time ended, and so unreachable, the time is extended once by its delay.
    pub(super) fn path_timeout(&mut self, now: Time, channel: u32, due: Time) {
        let timeout = self.path_timeout_of(channel);
        let slot = self.t.channels.at_mut(channel);
        let late = now - due;
        if late > self.config.redial_max && slot.silence.put_off() {
            return self.t.set_timer(channel, Timer::Connect, now + late.min(timeout));
        }
        let why = match slot.silence.outage() {
            Some(Outage { rail, fault, .. }) => LossReason::Unreachable { rail, fault },
            None => LossReason::ConnectTimeout, // G-4
        };
        if self.t.subs_of(channel).iter().any(|sub| sub.link.state() == State::Up) {
            // Both processes have opened it, and the rail would report an end: the peer computes.
            return self.t.set_timer(channel, Timer::Connect, now + timeout);
        }
        let peer = self.channel(channel).peer;
        let mut posted = self.t.matcher.posted.walk();
        let is_awaited = self.t.matcher.posted.next_of(peer, &mut posted).is_some();
        if self.are_channels_short() && !is_awaited && self.park_alone(channel) {
            return;
        }
        self.give_up(now, channel, why);
    }

    /// Whether a subchannel has its first connection since its channel was opened, or none yet.
    fn is_first_connection(&mut self, channel: u32, rail: RailId) -> bool {
        let before = self.channel(channel).park.first_connection;
        let mine = self.sub_mut(channel, rail).link.pair().mine;
        mine == before || mine == Link::number_after(before)
    }

    /// A returning rail gets little load at first, and more as it proves to carry it (F-8).
    pub(super) fn take_in(&mut self, channel: u32, rail: RailId) {
        if self.is_first_connection(channel, rail) {
            return;
        }
        let rate = self.paths.estimated_rate(channel, rail);
        let path = self.paths.path_mut(channel, rail);
        path.weight = 1;
        if rate != Rate::NONE {
            path.rate = Rate((rate.0 / RETURNS_WITH).max(1));
        }
        self.paths.learn_latency(channel, rail);
    }

    /// A connection is ready at this end: the peer's CONNECT has arrived on it.
    pub(super) fn subchannel_ready(&mut self, now: Time, channel: u32, rail: RailId, verdict: Verdict) {
        let sub = self.sub_mut(channel, rail);
        sub.ready_at = now;
        sub.history.up(now);
        self.expect_signs(now);
        self.announce_addresses(channel, rail);
        let slot = self.channel_mut(channel);
        if slot.silence.outage_ends() {
            self.t.cancel_timer(channel, Timer::Connect);
        }
        if verdict.safe {
            self.release_lost(channel);
        }
        if !self.is_first_connection(channel, rail) {
            // The last credits and acknowledgments may have been lost (A-1, C-4).
            self.channel_mut(channel).ack.make_due();
            self.request_fences(channel);
        }
    }

    /// A rail has reported late the end of a connection that the peer has replaced (F-3).
    pub(super) fn leave_old(&mut self, now: Time, channel: u32, rail: RailId, verdict: Verdict) {
        self.channel_mut(channel).work.abort(rail);
        self.down(now, channel, rail, RailFault::Closed, verdict);
    }

    /// The peer's end of a connection is dead (F-3, F-4).
    pub(super) fn arrive_fence(&mut self, now: Time, channel: u32, common: &Common, fence: &Fence) {
        let rail = RailId(fence.peer_rail);
        if usize::from(rail.0) >= self.paths.rails.len() {
            self.stats.stale_dropped += 1;
            return;
        }
        let of = Pair { mine: fence.peer_connection, yours: fence.connection };
        let sub = self.sub_mut(channel, rail);
        let verdict = sub.link.fence(of);
        if verdict.abort {
            self.channel_mut(channel).work.abort(rail);
            self.down(now, channel, rail, RailFault::Closed, verdict);
            if matches!(self.channel(channel).state(), ChannelState::Over(_) | ChannelState::Parked) {
                return;
            }
        }
        self.note_beyond(channel, common, fence);
        if verdict.safe {
            self.release_lost(channel);
        }
        if verdict.answer && !fence.answer {
            let sub = self.sub_mut(channel, rail);
            sub.answer = Some(of);
            if sub.link.state() != State::Ready {
                sub.peer_rail = fence.rail;
            }
            self.channel_mut(channel).work.fences.insert(rail);
        }
        self.activate(channel);
    }

    /// Aborts a connection that is of no further use.
    pub(super) fn abort(&mut self, now: Time, channel: u32, rail: RailId, fault: RailFault) {
        let verdict = self.sub_mut(channel, rail).link.abort();
        if verdict.abort {
            self.channel_mut(channel).work.abort(rail);
            self.down(now, channel, rail, fault, verdict);
        }
    }

    /// Requests that the peer ends its ends of dead connections, and announces ours, over any that is up.
    pub(super) fn pump_fences(&mut self, now: Time, channel: u32, out: &mut Actions) {
        let (fences, rooms) = (self.channel(channel).work.fences, self.paths.peer(channel).rooms);
        for rail in fences.iter() {
            let sub = self.sub(channel, rail);
            let peer_rail = sub.peer_rail;
            let (of, answer) = match (sub.answer, sub.link.waits_for()) {
                (Some(of), _) => (of, true),
                (None, Some(of)) => (of, false),
                (None, None) => {
                    self.channel_mut(channel).work.fences.remove(rail);
                    continue;
                }
            };
            let (ordered_beyond, unordered_beyond) = self.beyond(channel);
            let (connection, peer_connection) = (of.mine, of.yours);
            let fence = Fence {
                rail: rail.0,
                peer_rail,
                connection,
                peer_connection,
                ordered_beyond,
                unordered_beyond,
                answer,
            };
            let mut is_sent = false;
            for by in rails_of(rooms.ready) {
                if out.len() + STEP > out.capacity() {
                    return self.activate(channel);
                }
                if self.send_frame(now, channel, by, Body::Fence(fence), Span::EMPTY, out) {
                    is_sent = true;
                    break;
                }
            }
            if !is_sent {
                // It is checked again when a frame is complete.
                return;
            }
            let sub = self.sub_mut(channel, rail);
            sub.answer = sub.answer.filter(|_| !answer);
            let again = answer && sub.link.waits_for().is_some();
            if !again {
                self.channel_mut(channel).work.fences.remove(rail);
            }
        }
    }

    /// Packets received beyond the cumulative acknowledgment of each lane.
    pub(super) fn beyond(&mut self, channel: u32) -> (u64, u64) {
        let window = self.config.window;
        let (slot, bits) = self.t.received(channel, 0);
        let ordered = slot.received[0].beyond(bits, window);
        let (slot, bits) = self.t.received(channel, 1);
        (ordered, slot.received[1].beyond(bits, window))
    }

    /// A connection is ready: from now on the silence of its peer is checked.
    pub(super) fn expect_signs(&mut self, now: Time) {
        let keepalive = self.config.keepalive;
        if keepalive.0 > 0 {
            self.keepalive_at = self.keepalive_at.min((now + keepalive).max(self.keepalive_from));
        }
    }
}

impl Endpoint<'_> {
    /// Sets the new address of a rail of this process: every peer that it reaches is notified, now and
    /// whenever a subchannel to it comes up. Setting the same address again has no effect.
    ///
    /// # Errors
    /// [`SetAddressError`]; nothing has happened then.
    pub fn set_address(&mut self, rail: RailId, text: &[u8]) -> Result<(), SetAddressError> {
        if usize::from(rail.0) >= self.paths.rails.len() {
            return Err(SetAddressError::NoSuchRail(rail));
        }
        let text = AddressText::new(text)?;
        let known = &mut self.t.addresses[usize::from(rail.0)];
        if *known == text {
            return Ok(());
        }
        *known = text;
        self.moved.insert(rail);
        let moved = RailSet::of(rail);
        for peer in 0..self.t.peers.len() as u32 {
            self.call_unnotified(self.latest, PeerId(peer), moved);
        }
        let mut walk = self.t.channels.walk();
        while let Some(channel) = self.t.channels.step(&mut walk) {
            if self.channel(channel).is_over() {
                continue;
            }
            for by in (0..self.paths.rails.len() as u8).map(RailId) {
                // If the peer's CONNECT is pending, its arrival triggers the updates.
                if self.sub_mut(channel, by).link.state() == State::Ready {
                    self.queue_addresses(channel, by, moved);
                }
            }
        }
        Ok(())
    }

    /// A subchannel is up again: announces the moves since the start over it.
    fn announce_addresses(&mut self, channel: u32, by: RailId) {
        if !self.moved.is_empty() {
            self.queue_addresses(channel, by, self.moved);
        }
    }

    /// Marks address updates as pending. A rail that is up does not announce itself: the peer has its
    /// address.
    fn queue_addresses(&mut self, channel: u32, by: RailId, moved: RailSet) {
        let reached = RailSet(self.t.peers[self.channel(channel).peer.0 as usize].rails);
        let sub = self.sub_mut(channel, by);
        sub.unannounced = sub.unannounced.with(moved.both(reached).without(RailSet::of(by)));
        if !sub.unannounced.is_empty() {
            self.channel_mut(channel).work.addresses.insert(by);
            self.activate(channel);
        }
    }

    /// Sends one address after the other over each subchannel, behind its current unsequenced frame (L-3).
    pub(super) fn pump_addresses(&mut self, now: Time, channel: u32, out: &mut Actions) {
        if self.channel(channel).state() == ChannelState::Leaving {
            // Nothing follows BYE (G-7).
            return;
        }
        for by in self.channel(channel).work.addresses.iter() {
            let sub = self.sub_mut(channel, by);
            let (unannounced, is_ready) = (sub.unannounced, sub.is_ready());
            let Some(rail) = unannounced.iter().next() else {
                // The connection ended before everything was announced.
                self.channel_mut(channel).work.addresses.remove(by);
                continue;
            };
            if out.len() + STEP > out.capacity() {
                return self.activate(channel);
            }
            let text = self.t.addresses[usize::from(rail.0)];
            let body = Body::Address(Address { rail: rail.0, text });
            if is_ready && self.send_frame(now, channel, by, body, Span::EMPTY, out) {
                let sub = self.sub_mut(channel, by);
                sub.unannounced.remove(rail);
                if sub.unannounced.is_empty() {
                    self.channel_mut(channel).work.addresses.remove(by);
                }
            }
            // Otherwise it is checked again when the frame is complete or the connection is up.
        }
    }

    /// The peer announces the address of one of its rails.
    pub(super) fn arrive_address(&mut self, now: Time, channel: u32, address: &Address) -> Arrival {
        let meets = |(_, sub): &(u8, &Sub)| sub.link.was_met() && sub.peer_rail == address.rail;
        let found = (0..self.paths.rails.len() as u8).zip(self.t.subs_of(channel).iter()).find(meets);
        let Some(rail) = found.map(|(rail, _)| RailId(rail)) else {
            self.stats.stale_dropped += 1;
            return Arrival::Done;
        };
        let waits = self.channel(channel).work.redials().contains(rail);
        let sub = self.sub_mut(channel, rail);
        if waits && sub.link.state() == State::Down && now < sub.redial_at {
            sub.redial_at = now;
            self.set_redial_timer(channel);
        }
        Arrival::Address { rail }
    }
}
