//! Late connects: connections of a channel that is over at this side. A peer that has not received BYE, or
//! does not know that it was given up, makes them; or this process makes them to such a peer after one of its
//! rails has moved. CONNECT and BYE are sent on each (G-10). Also handles rails that cannot send BYE (G-7).

use super::action::Span;
use super::channel::{Channel, ChannelState, Ending};
use super::packets::Actions;
use super::pump::STEP;
use super::tables::Peer;
use super::timer::Timer;
use super::{Endpoint, RailFault};
use crate::ids::{PeerId, RailId};
use crate::rail::rails_of;
use crate::rel::link::{Link, State};
use crate::time::{Nanos, Time};
use crate::wire::{Body, Repr};

/// Offset of the numbers of shutdown-only connections from the first number of their side: no channel makes
/// that many others.
const SHUTDOWNS: u32 = 1 << 30;

/// Whether a connection serves only a shutdown, by its number and the first number of its side (G-10).
pub(super) const fn is_shutdown(first: u32, connection: u32) -> bool {
    matches!(connection.wrapping_sub(first), SHUTDOWNS..=0x7FFF_FFFF)
}

/// Lifetime of a late connection on which nothing arrives, in multiples of the longest redial pause.
const CALLS_FOR: u64 = 10;

impl Endpoint<'_> {
    /// Rails that cannot send BYE or the frames before it (G-7). While the peer has received BYE on another
    /// rail, such a rail gets the stall timeout (F-11); otherwise the longer timeout of a sole rail.
    pub(super) fn look_at_goodbyes(&mut self, now: Time, channel: u32) {
        let ready = self.paths.peer(channel).rooms.ready;
        let is_out = rails_of(ready).any(|rail| {
            let sub = &self.t.subs[self.t.sub_index(channel, rail)];
            sub.bye_sent && !sub.frame_posted
        });
        let is_said = is_out || self.t.channels.at(channel).bye_received;
        let lone_max = self.config.stall_lone;
        for rail in rails_of(ready) {
            let sub = *self.t.sub(channel, rail);
            let deadline = if is_said { self.transit_deadline(channel, rail) } else { lone_max };
            if !sub.frame_posted || deadline.0 == 0 {
                continue;
            }
            let (generation, since) = sub.frame_seen;
            if generation != sub.frame_generation {
                self.t.sub(channel, rail).frame_seen = (sub.frame_generation, now);
            } else if now - since >= deadline {
                self.abort(now, channel, rail, RailFault::TimedOut);
                if self.t.channels.key_at(channel).is_none() || self.t.channels.at(channel).is_over() {
                    return;
                }
            }
        }
        self.t.set_timer(channel, Timer::Watch, now + self.config.stall_min);
    }

    /// Opens a closed channel of a peer that has no other state, to send it BYE.
    pub(super) fn open_over(&mut self, now: Time, peer: PeerId) -> Option<u32> {
        let channel = self.open_channel(now, peer)?;
        self.t.cancel_timer(channel, Timer::Connect);
        let slot = self.t.channels.at_mut(channel);
        slot.enter(ChannelState::Over(Ending::Closed));
        slot.dial_pending = 0;
        Some(channel)
    }

    /// Ends a channel that is left. `unnotified`: the peer may not have received BYE.
    pub(super) fn end_left(&mut self, now: Time, channel: u32, unnotified: bool) {
        let peer = self.t.channels.at(channel).peer;
        self.end_channel(channel, Ending::Closed);
        self.t.peers[peer.0 as usize].unnotified = unnotified;
        self.call_unnotified(now, peer, self.moved);
    }

    /// Connects to a peer that may not have received BYE, from the new address of a rail of this process:
    /// otherwise the peer would dial the old one forever (G-10).
    pub(super) fn call_unnotified(&mut self, now: Time, peer: PeerId, moved: u64) {
        let Peer { rails, gone, unnotified, .. } = self.t.peers[peer.0 as usize];
        if !gone || !unnotified || rails & moved == 0 {
            return;
        }
        let Some(channel) = self.t.channel_of(peer).or_else(|| self.open_over(now, peer)) else { return };
        let slot = self.t.channels.at_mut(channel);
        slot.dial_pending |= rails & moved & !slot.callers;
        self.t.set_timer(channel, Timer::Connect, now + self.config.connect_timeout);
        self.activate(channel);
    }

    /// A connection of a peer whose channel is over.
    pub(super) fn late_connect(&mut self, now: Time, channel: u32, rail: RailId) {
        self.stats.stale_dropped += 1;
        let first = self.config.first_number;
        let shutdowns = self.stats.stale_dropped as u32 & (SHUTDOWNS / 2 - 1);
        let sub = self.t.sub(channel, rail);
        sub.reset();
        // The earlier numbers are forgotten, and the peer expects a new one (F-1).
        sub.link = Link::numbered_from(first.wrapping_add(SHUTDOWNS | shutdowns));
        sub.link.up();
        let slot = self.t.channels.at_mut(channel);
        let bit = 1 << rail.0;
        (slot.callers, slot.connect_pending) = (slot.callers | bit, slot.connect_pending | bit);
        (slot.close_pending, slot.abort_pending) = (slot.close_pending & !bit, slot.abort_pending & !bit);
        // No dial is needed: CONNECT is sent on this connection.
        (slot.dial_pending, slot.redials) = (slot.dial_pending & !bit, slot.redials & !bit);
        self.t.sub(channel, rail).last_received = now;
        self.refresh(channel, rail);
        if !self.t.has_timer(channel, Timer::Watch) {
            self.t.set_timer(channel, Timer::Watch, now + self.late_timeout());
        }
        self.activate(channel);
    }

    fn late_timeout(&self) -> Nanos {
        Nanos(self.config.redial_max.0.saturating_mul(CALLS_FOR)).min(self.config.connect_timeout)
    }

    /// Late connections on which the peer's CONNECT does not arrive, or BYE cannot be sent: each is aborted
    /// on its own (F-11), and redialled as after a failure, independently of the others.
    pub(super) fn look_at_late_connects(&mut self, now: Time, channel: u32) {
        let timeout = self.late_timeout();
        let mut next = None;
        for rail in rails_of(self.t.channels.at(channel).callers) {
            let sub = self.t.sub(channel, rail);
            let due = sub.last_received + timeout;
            if !sub.is_up() {
                // The rail ends a connection that it could not open.
                continue;
            }
            if now < due {
                next = next.into_iter().chain([due]).min();
                continue;
            }
            self.hang_up(now, channel, rail);
        }
        if let Some(next) = next {
            self.t.set_timer(channel, Timer::Watch, next);
        }
    }

    /// Aborts a connection that cannot send BYE. It is redialled if the peer still needs BYE.
    fn hang_up(&mut self, now: Time, channel: u32, rail: RailId) {
        let is_owed = self.is_bye_owed(channel, rail);
        self.forget_late_connect(channel, rail);
        let slot = self.t.channels.at_mut(channel);
        if is_owed {
            slot.abort_pending |= 1 << rail.0;
            self.call_later(now, channel, rail);
        } else {
            slot.close_pending |= 1 << rail.0;
        }
    }

    /// Of its packets only CONNECT counts.
    #[cold]
    pub(super) fn arrive_late(&mut self, now: Time, channel: u32, rail: RailId, header: &[u8]) {
        let Ok(Repr { body: Body::Connect(connect), .. }) = Repr::parse(header) else { return };
        if self.t.sub(channel, rail).link.connect(connect.connection).abort {
            // The number is invalid: no connection has it.
            return self.hang_up(now, channel, rail);
        }
        self.refresh(channel, rail);
        self.activate(channel);
    }

    /// A connection of a channel that is over has failed, or could not be made.
    pub(super) fn late_connect_gone(&mut self, now: Time, channel: u32, rail: RailId) {
        let was_open = self.t.sub(channel, rail).link.state() != State::Down;
        self.forget_late_connect(channel, rail);
        if was_open && self.is_bye_owed(channel, rail) {
            self.call_later(now, channel, rail);
        }
    }

    /// Whether the peer may not have received BYE, and would dial the rail's old address.
    fn is_bye_owed(&self, channel: u32, rail: RailId) -> bool {
        let peer = self.t.channels.at(channel).peer;
        self.t.peers[peer.0 as usize].unnotified && self.moved >> rail.0 & 1 == 1
    }

    fn call_later(&mut self, now: Time, channel: u32, rail: RailId) {
        self.t.channels.at_mut(channel).redials |= 1 << rail.0;
        self.t.sub(channel, rail).redial_at = now + self.config.redial_max;
        self.set_redial_timer(channel);
    }

    fn forget_late_connect(&mut self, channel: u32, rail: RailId) {
        let slot = self.t.channels.at_mut(channel);
        let bit = 1u64 << rail.0;
        (slot.callers, slot.connect_pending, slot.close_pending) =
            (slot.callers & !bit, slot.connect_pending & !bit, slot.close_pending & !bit);
        self.t.sub(channel, rail).reset();
        self.refresh(channel, rail);
        self.activate(channel);
    }

    /// Stops connecting to a peer that has received BYE or is unreachable. Connections that are up last for
    /// their usual time.
    pub(super) fn end_late_calls(&mut self, channel: u32) {
        let slot = self.t.channels.at_mut(channel);
        (slot.dial_pending, slot.redials) = (0, 0);
        let &Channel { peer, callers, .. } = self.t.channels.at(channel);
        self.t.peers[peer.0 as usize].unnotified = false;
        for rail in rails_of(callers) {
            if !self.t.sub(channel, rail).is_up() {
                self.dismiss(channel, rail);
            }
        }
        self.activate(channel);
    }

    fn dismiss(&mut self, channel: u32, rail: RailId) {
        self.forget_late_connect(channel, rail);
        self.t.channels.at_mut(channel).close_pending |= 1 << rail.0;
    }

    /// Sends BYE on late connects, and closes each once it is sent.
    pub(super) fn pump_late_connects(&mut self, now: Time, channel: u32, out: &mut Actions) {
        for rail in rails_of(self.t.channels.at(channel).callers) {
            if out.len() + STEP > out.capacity() {
                return self.activate(channel);
            }
            let sub = *self.t.sub(channel, rail);
            if sub.link.state() != State::Ready || !sub.connect_sent || sub.frame_posted {
                continue;
            }
            if sub.bye_sent {
                self.end_late_calls(channel);
                self.dismiss(channel, rail);
            } else if self.send_frame(now, channel, rail, Body::Bye, Span::EMPTY, out) {
                self.t.sub(channel, rail).bye_sent = true;
            }
        }
    }
}
