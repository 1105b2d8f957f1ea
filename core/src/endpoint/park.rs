//! More peers than channels: an idle channel is parked by agreement of both sides, and goes on when either
//! has something to send (K-1 to K-6).
//!
//! A side that needs the slot of an idle channel requests it, and from then on sends nothing that is
//! sequenced. A peer that is idle too agrees, and sends nothing sequenced either; one that is not declines.
//! The side that requested then ends the connections, and both keep only numbers
//! ([`Parked`](crate::peer::Parked)). A request can be withdrawn as long as it is not answered.
//!
//! Exactly-once needs no agreement: to the peer, a side that has parked is one whose connections have failed
//! (F-1 to F-5), since its numbers go on. So a step that is lost, crossed or late does no harm. Agreement
//! keeps the peer from dialling again, and is what empties a lossless rail: what is in a ring is not kept by
//! its sender, and a ring is ended by a side that has read the peer's last packet, its agreement.

use super::packets::{Actions, STEP};
use super::tables::{Peer, channel_active, channel_waits};
use super::timer::Timer;
use super::{Endpoint, RailFault};
use crate::api::action::Span;
use crate::api::config::Config;
use crate::ids::{PeerId, RailId};
use crate::log;
use crate::op::{Control, MessageState, MessageUse, OpKind, Phase, Queue};
use crate::peer::{ChannelState, Ending, Held, ORDERED, Outcome, Parked, Shortage, Sub, UNORDERED};
use crate::rail::rails_of;
use crate::rel::link::State;
use crate::store::NONE;
use crate::store::list::By;
use crate::time::{Nanos, Time};
use crate::wire::{self, Body, ParkStep};

/// A peer that does not answer PARK for so long may compute: another channel is tried.
const PATIENCE: Nanos = Nanos::from_micros(1_000);

/// One channel in this many may wait for an answer to PARK at once.
const TOGETHER: u32 = 16;

impl Endpoint<'_> {
    /// Whether the channel of a peer is parked: known, with nothing outstanding and without connections.
    pub fn is_parked(&self, peer: PeerId) -> bool {
        self.t.parked.get(peer.0 as usize).is_some_and(Parked::is_some)
    }

    /// Parks the channel of a peer now, if it is idle and the peer agrees; the next request of either side
    /// opens it again. Channels are parked without this when they are short. Returns whether PARK is sent.
    pub fn park(&mut self, now: Time, peer: PeerId) -> bool {
        let Some(channel) = self.t.channel_of(peer) else { return false };
        self.fold_line(channel);
        let is_open = self.channel(channel).state() == ChannelState::Open;
        let is_idle = is_open && !self.has_declined(now, channel) && self.may_park(channel);
        if is_idle {
            let slot = self.channel_mut(channel);
            let mark = slot.mark();
            slot.park.look(mark);
            self.begin_parking(now, channel);
        }
        is_idle
    }

    /// Whether there are more peers than channels.
    pub(super) fn are_channels_short(&self) -> bool {
        (self.t.channels.capacity() as usize) < self.t.peers.len()
    }

    /// Whether a request may open one more channel. If all channels waited for peers that have no room
    /// either, no process could accept a call (K-6).
    pub(super) fn may_call(&self) -> bool {
        let channels = self.t.channels.capacity();
        if !self.are_channels_short() {
            return true;
        }
        let left_free = (channels / 4).max(1);
        // The process itself is never parked.
        let waits = |&channel: &u32| self.paths.ready(channel) == 0 || self.channel(channel).peer == self.config.rank;
        let waiting = self.t.channels.indices().filter(waits).count() as u32;
        waiting < channels - left_free || self.t.channels.is_empty()
    }

    /// A request or a caller finds no channel: begins to park the one that was not used for longest (K-1).
    #[cold]
    pub(super) fn make_room(&mut self, now: Time) {
        let mut waiting = 0;
        let mut found = None;
        let mut walk = self.t.channels.walk();
        while let Some(channel) = self.t.channels.step(&mut walk) {
            let slot = self.channel(channel);
            match slot.state() {
                ChannelState::Parked => waiting += u32::from(slot.work.is_closing()),
                ChannelState::Parking => waiting += u32::from(now - slot.park.since < PATIENCE),
                ChannelState::Open => {
                    self.fold_line(channel);
                    if self.park_alone(channel) {
                        return;
                    }
                    // A send that waits keeps the slot.
                    if self.channel(channel).ops > 0 || self.has_declined(now, channel) {
                        continue;
                    }
                    let slot = self.channel_mut(channel);
                    // The express path records no time, but numbers.
                    let mark = slot.mark();
                    let is_used = slot.park.look(mark);
                    let rank = (is_used, slot.silence.last_received);
                    if found.is_none_or(|(least, _)| rank < least) && self.may_park(channel) {
                        found = Some((rank, channel));
                    }
                }
                _ => {}
            }
        }
        let waiting_max = (self.t.channels.capacity() / TOGETHER).max(1);
        if let Some((_, channel)) = found.filter(|_| waiting < waiting_max) {
            self.begin_parking(now, channel);
        }
    }

    fn begin_parking(&mut self, now: Time, channel: u32) {
        self.enter_parking(channel);
        self.channel_mut(channel).park.ask(now);
        self.activate(channel);
    }

    fn enter_parking(&mut self, channel: u32) {
        self.close_line(channel);
        self.end_sample(channel);
        let slot = self.channel_mut(channel);
        slot.enter(ChannelState::Parking);
        slot.park.clear();
        self.t.subs_of(channel).iter_mut().for_each(|sub| sub.is_after_park = false);
    }

    /// Whether a peer has declined lately, and nothing has moved since (K-1). It may wait for a rail that is
    /// stuck, which shows only while nothing moves on it: requests without end would hide that (F-13).
    fn has_declined(&self, now: Time, channel: u32) -> bool {
        let slot = self.channel(channel);
        let most = Nanos(self.config.stall_max.0.saturating_mul(2)).max(PATIENCE);
        slot.park.is_declined(slot.mark(), now, [PATIENCE, most])
    }

    /// Whether a channel is idle, so that its slot and connections may be given back (K-1).
    fn may_park(&mut self, channel: u32) -> bool {
        let slot = self.channel(channel);
        let ready = self.paths.ready(channel);
        // What a second lossless rail has could be behind the PARK on the first.
        let is_ready = ready != 0 && (ready & !self.paths.lossy).count_ones() <= 1;
        let is_settled = slot.work.fences.is_empty() && !slot.park.is_pending();
        let are_settled = |subs: &[crate::peer::Sub]| {
            subs.iter().all(|sub| match sub.link.state() {
                State::Ready => sub.connect_sent,
                State::Up => false,
                // What was dialled in vain before may never come up.
                state => {
                    let is_final = state == State::Down || sub.failures > 0;
                    is_final && sub.link.waits_for().is_none() && sub.answer.is_none()
                }
            })
        };
        is_ready && is_settled && are_settled(self.t.subs_of(channel)) && self.is_idle(channel)
    }

    /// Parks a channel that is idle and has no connection (K-3): no connection can carry PARK, and the peer
    /// may have parked and be without a channel for this side. Returns whether it does.
    pub(super) fn park_alone(&mut self, channel: u32) -> bool {
        let slot = self.channel(channel);
        // A peer that a send waits for is lost where it can't be reached (F-9).
        let is_open = slot.state() == ChannelState::Open && slot.ops == 0;
        let parks = is_open && self.t.subs_of(channel).iter().all(|sub| !sub.is_up()) && self.is_idle(channel);
        if parks {
            self.enter_parking(channel);
            self.channel_mut(channel).park.is_alone = true;
            self.close_parked(channel);
        }
        parks
    }

    /// Whether the channel of another process has nothing outstanding, and nothing to report.
    fn is_idle(&mut self, channel: u32) -> bool {
        let slot = self.channel(channel);
        let is_bare = slot.peer != self.config.rank && slot.peer_parameters.is_some() && !slot.event.is_linked();
        is_bare && self.has_nothing(channel)
    }

    /// Whether nothing of a channel is outstanding but messages that wait for receives, on either side.
    fn has_nothing(&mut self, channel: u32) -> bool {
        let slot = self.channel(channel);
        let requests = &slot.requests;
        let is_idle = slot.shorts == 0
            && slot.is_quiet()
            && self.have_no_receive(channel)
            && self.wait_for_receives(channel)
            && !(requests.is_waiting() || requests.is_refusing() || requests.is_unconfirmed)
            && requests.admitted() | requests.serving == 0
            && requests.refusals.is_empty()
            && !slot.replay.is_pending()
            && slot.replay.aborted_placements == 0
            && slot.reorder.is_empty()
            && slot.reorder.esn() == slot.received[ORDERED].expected();
        is_idle
            && self.t.subs_of(channel).iter().all(|sub| sub.place.is_none())
            && [ORDERED, UNORDERED].iter().all(|&lane| self.t.received(channel, lane).1.iter().all(|&word| word == 0))
    }

    /// Whether all messages of a channel are here without a receive, and few enough to be kept for it.
    fn have_no_receive(&self, channel: u32) -> bool {
        let slot = self.channel(channel);
        let mut left = slot.messages;
        if left == 0 {
            return true;
        }
        let mut held = self.t.held;
        held.add(Held { messages: left, blocks: slot.grants.blocks_held() });
        if held.shares(self.config.unexpected_per_peer, self.config.blocks_per_peer) > self.config.channels_max / 2 {
            return false;
        }
        let mut walk = self.t.messages.walk();
        while left > 0
            && let Some(index) = self.t.messages.step(&mut walk)
        {
            let message = self.message(index);
            if message.channel == channel {
                if message.state != MessageState::Stored || message.used != MessageUse::Unexpected {
                    return false;
                }
                left -= 1;
            }
        }
        true
    }

    /// Whether all operations of a channel are sends whose peer has the announcement, and no receive for it.
    fn wait_for_receives(&self, channel: u32) -> bool {
        let mut ops = self.t.ops_of(channel);
        while let Some(op) = self.t.next_of(&mut ops) {
            let slot = self.op(op);
            let waits = slot.kind() == OpKind::Send && slot.phase() == Phase::Waiting && !slot.completed;
            if !waits || slot.queued != Queue::None || slot.unacked | slot.posts != 0 || slot.control != Control::None {
                return false;
            }
        }
        true
    }

    /// A step of the peer (K-2).
    pub(super) fn arrive_park(&mut self, now: Time, channel: u32, rail: RailId, park: wire::Park) {
        let state = self.channel(channel).state();
        if park.step == ParkStep::Request {
            if !self.channel(channel).park.is_new(park.request) {
                self.stats.stale_dropped += 1;
                return;
            }
            self.fold_line(channel);
            let agrees = match state {
                ChannelState::Open => self.may_park(channel),
                ChannelState::Parking => self.has_nothing(channel),
                ChannelState::Leaving => return,
                _ => false,
            };
            if agrees && state == ChannelState::Open {
                self.enter_parking(channel);
            }
            let outcome = self.channel_mut(channel).park.requested(rail, park.request, agrees);
            if state == ChannelState::Parking {
                self.conclude(now, channel, outcome);
            }
        } else if state == ChannelState::Parking {
            let outcome = self.channel_mut(channel).park.concluded(rail, park);
            self.conclude(now, channel, outcome);
        } else {
            self.stats.stale_dropped += 1;
        }
        self.activate(channel);
    }

    /// What has become of the agreement. With a connection that came up since the channel is not parked: it
    /// may be that of a peer that has parked and goes on, and may have brought something (K-5).
    pub(super) fn conclude(&mut self, now: Time, channel: u32, outcome: Outcome) {
        let is_newer = |sub: &Sub| sub.is_after_park && sub.is_up();
        match outcome {
            Outcome::Waits => {}
            Outcome::Opens => self.stop_parking(channel),
            Outcome::Parks if !self.t.subs_of(channel).iter().any(is_newer) => self.close_parked(channel),
            Outcome::Parks => {
                // The peer has agreed, and has to be notified.
                let slot = self.channel_mut(channel);
                slot.ack.make_due();
                let outcome = slot.park.withdraw();
                if outcome == Outcome::Opens && self.paths.ready(channel) == 0 {
                    self.reopen(now, channel);
                } else if outcome == Outcome::Opens {
                    self.stop_parking(channel);
                }
            }
        }
    }

    /// The channel is open as before (K-4).
    pub(super) fn stop_parking(&mut self, channel: u32) {
        let peer = self.channel(channel).peer;
        let Peer { gone, rails, .. } = self.t.peers[peer.0 as usize];
        let slot = self.channel_mut(channel);
        slot.enter(ChannelState::Open);
        slot.park.clear();
        if gone {
            // It was closed meanwhile.
            slot.enter(ChannelState::Closing);
        }
        for rail in rails_of(rails) {
            let is_down = self.sub_mut(channel, rail).link.state() == State::Down;
            let work = &mut self.channel_mut(channel).work;
            if is_down && !work.redials().contains(rail) {
                work.dial_now(rail);
            }
        }
        self.activate(channel);
    }

    /// A CONNECT of the peer. If it has parked since the last one, it has ended all connections that it had,
    /// and sends nothing on them any more: here they are ended too. A request to park that is not answered is
    /// withdrawn, as the channel changes (K-5). Returns whether it has parked.
    pub(super) fn connect_parked(&mut self, now: Time, channel: u32, rail: RailId, times: u8) -> bool {
        let park = &mut self.channel_mut(channel).park;
        park.is_resumed = false;
        let has_parked = park.has_parked(times);
        for other in (0..self.paths.rails.len() as u8).map(RailId).filter(|&other| has_parked && other != rail) {
            let link = &mut self.sub_mut(channel, other).link;
            if link.state() == State::Ready {
                link.abort();
                self.lose(channel, other);
                let work = &mut self.channel_mut(channel).work;
                work.abort(other);
                work.dial_now(other);
                self.end_parked(now, channel, other);
            }
        }
        if self.channel(channel).state() == ChannelState::Parking {
            let outcome = self.channel_mut(channel).park.withdraw();
            self.conclude(now, channel, outcome);
        }
        has_parked
    }

    /// A connection of a channel that is being parked has ended, or was replaced.
    pub(super) fn end_parked(&mut self, now: Time, channel: u32, rail: RailId) {
        if self.channel(channel).state() == ChannelState::Parking {
            let outcome = self.parking_ended(channel, rail);
            self.conclude(now, channel, outcome);
        }
    }

    /// What follows from the end of a connection of a channel that is being parked.
    pub(super) fn parking_ended(&mut self, channel: u32, rail: RailId) -> Outcome {
        let lossy = self.paths.lossy;
        let mut subs = (0u8..).zip(self.t.subs_of(channel).iter());
        let has_ring = subs.any(|(other, sub)| other != rail.0 && lossy >> other & 1 == 0 && sub.is_up());
        self.channel_mut(channel).park.ended(rail, has_ring)
    }

    /// Sends the steps of this side. Its own request it withdraws as soon as it has something to send.
    pub(super) fn pump_parking(&mut self, now: Time, channel: u32, out: &mut Actions) {
        let is_gone = self.t.peers[self.channel(channel).peer.0 as usize].gone;
        if self.channel(channel).park.is_asking() && (is_gone || !self.has_nothing(channel)) {
            let outcome = self.channel_mut(channel).park.withdraw();
            self.conclude(now, channel, outcome);
        }
        while let Some((rail, park)) = self.channel(channel).park.next() {
            let ready = self.paths.ready(channel);
            // Nothing of a request can get lost on a lossless rail. The others belong to a connection: if
            // that ends, the peer sees it as well.
            let lossless = ready & !self.paths.lossy;
            let rails = match rail {
                Some(rail) => ready & 1 << rail.0,
                None if lossless == 0 => ready,
                None => lossless,
            };
            let mut sent = None;
            for rail in rails_of(rails) {
                if out.len() + STEP > out.capacity() {
                    return self.activate(channel);
                }
                if self.send_frame(now, channel, rail, Body::Park(park), Span::EMPTY, out) {
                    sent = Some(rail);
                    break;
                }
            }
            if rails != 0 && sent.is_none() {
                // The frames that they have come first.
                return;
            }
            let outcome = self.channel_mut(channel).park.posted(sent);
            self.conclude(now, channel, outcome);
        }
    }

    /// Both sides send nothing more: ends this side of all connections (K-3).
    fn close_parked(&mut self, channel: u32) {
        let is_idle = self.has_nothing(channel);
        self.end_sample(channel);
        for rail in (0..self.paths.rails.len() as u8).map(RailId) {
            let posts = self.paths.path(channel, rail).in_flight;
            let sub = self.sub_mut(channel, rail);
            // What arrives late must not find memory that has another use (F-2).
            let is_used = posts > 0 || sub.place.is_some();
            let is_open = sub.link.state() != State::Down;
            let verdict = sub.link.abort();
            if verdict.lost {
                self.lose(channel, rail);
            } else {
                self.paths.forget(channel, rail);
                self.sub_mut(channel, rail).clear();
                self.refresh(channel, rail);
            }
            let work = &mut self.channel_mut(channel).work;
            if is_open && is_used {
                work.abort(rail);
            } else if is_open {
                work.disconnect(rail);
            }
        }
        for timer in [Timer::Ack, Timer::Connect, Timer::Silence, Timer::Sample, Timer::Redial, Timer::Watch] {
            self.t.cancel_timer(channel, timer);
        }
        let slot = self.channel_mut(channel);
        slot.work.park();
        if is_idle {
            slot.replay.cancel();
        }
        slot.enter(ChannelState::Parked);
        self.activate(channel);
    }

    /// The connections of a parked channel are closed: its slot is freed, unless there is something to send
    /// by now.
    pub(super) fn finish_parking(&mut self, now: Time, channel: u32) {
        if self.channel(channel).work.is_closing() {
            return;
        }
        let peer = self.channel(channel).peer;
        let has_nothing = self.has_nothing(channel);
        let (is_gone, is_needed) = (self.t.peers[peer.0 as usize].gone, self.channel(channel).ops > 0);
        if has_nothing && is_needed && !is_gone {
            // The peer connects when it has a receive. If it does not, this side looks whether it lives.
            if !self.t.has_timer(channel, Timer::Connect) {
                let Config { recovery_timeout, connect_timeout, .. } = self.config;
                let timeout = if recovery_timeout.0 > 0 { recovery_timeout } else { connect_timeout };
                self.t.set_timer(channel, Timer::Connect, now + timeout);
            }
            return;
        }
        if has_nothing && is_gone && !is_needed {
            return self.end_channel(channel, Ending::Closed);
        }
        let has_nothing = has_nothing && !is_needed;
        let mines = self.t.subs_of(channel).iter().map(|sub| sub.link.pair().mine);
        // Serial numbers (F-1).
        let newest = mines.reduce(|a, b| if b.wrapping_sub(a) <= u32::MAX / 2 { b } else { a }).unwrap_or_default();
        let first = self.first_number(peer);
        let parked = Parked::of(self.channel(channel), first, newest).filter(|_| has_nothing);
        let Some(parked) = parked else { return self.reopen(now, channel) };
        log::debug!("peer {}: channel parked", peer.0);
        self.park_messages(channel);
        self.t.held.add(parked.held());
        self.t.parked[peer.0 as usize] = parked;
        self.stats.parked += 1;
        for shortage in [Shortage::Packets, Shortage::Stripes] {
            let mut links = By(&mut self.t.channels, channel_waits(shortage));
            self.waiting[shortage as usize].unlink(&mut links, channel);
        }
        let mut links = By(&mut self.t.channels, channel_active);
        self.hot.active.unlink(&mut links, channel);
        if let Some(key) = self.t.channels.key_at(channel) {
            self.t.channels.remove(key);
        }
        let slot = &mut self.t.peers[peer.0 as usize];
        (slot.channel, slot.is_met) = (NONE, false);
        // The next waiting channel may have been woken for this one's sake.
        self.wake(Shortage::Packets);
        self.wake(Shortage::Stripes);
    }

    /// Something is to be sent, or the peer has connected again, before the slot was freed (K-4): as after a
    /// failure of all connections.
    pub(super) fn reopen(&mut self, now: Time, channel: u32) {
        self.stop_parking(channel);
        let slot = self.channel_mut(channel);
        slot.silence.outage_begins(now, RailId(0), RailFault::Closed);
        slot.ack.make_due();
        if self.config.recovery_timeout.0 > 0 {
            self.t.set_timer(channel, Timer::Connect, now + self.config.recovery_timeout);
        } else {
            self.t.cancel_timer(channel, Timer::Connect);
        }
    }
}
