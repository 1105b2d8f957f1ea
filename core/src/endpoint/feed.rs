//! Feed: subchannels that come up or go down, and timers that expire.

use super::timer::Timer;
use super::{Endpoint, RailEvent, RailFault};
use crate::ids::{PeerId, RailId};
use crate::log;
use crate::peer::ChannelState;
use crate::rel::ack::AckVerdict;
use crate::time::Time;

impl Endpoint<'_> {
    /// A subchannel came up or went down.
    pub fn handle_rail_event(&mut self, now: Time, event: RailEvent) {
        match event {
            RailEvent::Up { peer, rail } => self.subchannel_up(now, peer, rail),
            RailEvent::Reset { rail } => self.rail_reset(rail),
            RailEvent::Back { rail } => self.rail_back(now, rail),
            RailEvent::NoRemoteAccess { peer, rail } => self.remote_access_denied(peer, rail),
            RailEvent::Queued { peer, .. } => self.dial_queued(now, peer),
            RailEvent::Down { peer, rail, fault } => {
                if usize::from(rail.0) >= self.paths.rails.len() {
                    return;
                }
                let Some(channel) = self.t.channel_of(peer) else { return };
                if self.channel(channel).is_over() {
                    self.late_connect_gone(now, channel, rail);
                    return;
                }
                self.subchannel_down(now, channel, rail, fault);
            }
        }
    }

    fn subchannel_up(&mut self, now: Time, peer: PeerId, rail: RailId) {
        let known = self.t.peers.get(peer.0 as usize).is_some_and(|slot| slot.rails >> (rail.0 & 63) & 1 == 1);
        if !known || usize::from(rail.0) >= self.paths.rails.len() {
            self.refuse_subchannel(peer, rail);
            return;
        }
        let gone = self.t.peers[peer.0 as usize].gone;
        let channel = match self.t.channel_of(peer) {
            Some(channel) => Some(channel),
            None if gone => self.open_over(now, peer), // G-10
            None => self.open_channel(now, peer),      // L-1
        };
        let Some(channel) = channel else {
            self.make_room(now);
            return self.refuse_subchannel(peer, rail);
        };
        if self.channel(channel).is_over() {
            return self.late_connect(now, channel, rail);
        }
        log::debug!("peer {}: rail {} up", peer.0, rail.0);
        if self.channel(channel).state() == ChannelState::Parked {
            // Not freed yet, and the peer goes on already (K-5).
            self.channel_mut(channel).work.is_replaced(rail);
            self.reopen(now, channel);
        }
        let was_up = self.sub_mut(channel, rail).is_up();
        let verdict = self.sub_mut(channel, rail).link.up();
        if verdict.lost {
            self.sub_mut(channel, rail).history.down(now, RailFault::Closed, true);
            self.lose(channel, rail);
            self.request_fences(channel);
        } else if was_up {
            self.paths.forget(channel, rail);
            self.sub_mut(channel, rail).clear();
        }
        let is_after_park = self.channel(channel).state() == ChannelState::Parking;
        let sub = self.sub_mut(channel, rail);
        sub.is_after_park = is_after_park;
        let (connect_pending, slot) = (!sub.connect_sent, self.channel_mut(channel));
        slot.work.up(rail, connect_pending);
        self.sub_mut(channel, rail).last_received = now;
        self.paths.begin_path(channel, rail);
        self.take_in(channel, rail);
        self.refresh(channel, rail);
        if was_up {
            self.end_parked(now, channel, rail);
        }
        // K-6: a peer without room accepts connections, and closes them.
        self.dial_queued(now, peer);
        self.watch_rails(now, channel);
        self.activate(channel);
    }

    fn refuse_subchannel(&mut self, peer: PeerId, rail: RailId) {
        self.stats.stale_dropped += 1;
        // Full: the subchannel stays idle, and the core refuses its packets one by one.
        let _ = self.refused.push_back((peer, rail));
        self.has_rare_actions = true;
        self.hot.may_have_work = true;
    }

    /// The time of [`next_timeout`](Self::next_timeout) has come. Too early a call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        self.latest = now;
        while let Some((id, due)) = self.t.timers.pop_due(now) {
            let (channel, timer) = Timer::named(id);
            if self.t.channels.key_at(channel).is_none() {
                continue;
            }
            self.fold_line(channel);
            self.channel_mut(channel).express_budget.close();
            match timer {
                Timer::Ack => self.ack_timed_out(now, channel),
                Timer::Connect => self.connect_timed_out(now, channel, due),
                Timer::Silence => self.watch(now, channel),
                Timer::Sample => self.sample_timed_out(channel),
                Timer::Redial => self.redial(now, channel),
                Timer::Watch => self.check_rails(now, channel),
            }
        }
        if now >= self.keepalive_at {
            self.keep_alive(now);
        }
    }

    /// An acknowledgment may have waited for the maximum time, unless a packet has carried it.
    fn ack_timed_out(&mut self, now: Time, channel: u32) {
        let policy = self.ack_policy;
        match self.channel_mut(channel).ack.timed_out(&policy, now) {
            Some(AckVerdict::Now) => self.activate(channel),
            Some(AckVerdict::By(at)) => self.t.set_timer(channel, Timer::Ack, at),
            None => {}
        }
    }

    /// No connection of a channel has come up in time: the peer is given up. If the channel is over, the core
    /// stops dialling to send BYE (G-10).
    fn connect_timed_out(&mut self, now: Time, channel: u32, due: Time) {
        if self.channel(channel).is_over() {
            self.end_late_calls(channel);
        } else if self.channel(channel).state() == ChannelState::Parked {
            self.reopen(now, channel); // K-3
        } else {
            self.path_timeout(now, channel, due);
        }
    }
}
