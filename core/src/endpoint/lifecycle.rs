//! Ends of channels: by BYE, by loss of the peer, or by a rule that the peer violated (G-8); what is in
//! progress ends with them.
//!
//! Also late connects: connections of a channel that is over at this side. A peer that has not received BYE,
//! or was not notified that it was given up, makes them; or this process makes them to such a peer after one
//! of its rails has moved. CONNECT and BYE are sent on each (G-10). Rails that cannot send BYE: G-7.

use super::packets::{Actions, STEP};
use super::tables::{Peer, channel_waits, op_queue, op_rma};
use super::timer::Timer;
use super::{Endpoint, Loss, LossReason, OpError, ProtocolError};
use crate::api::action::Span;
use crate::ids::{PeerId, RailId};
use crate::log;
use crate::op::{Message, MessageState, MessageUse, OpKind, Phase, Queue, ShortRecord};
use crate::peer::{ChannelState, Ending, PlaceTo, Shortage};
use crate::rail::rails_of;
use crate::rail::set::RailSet;
use crate::rel::link::{Link, State};
use crate::store::NONE;
use crate::store::list::By;
use crate::time::{Nanos, Time};
use crate::wire::{Body, Repr};

impl Endpoint<'_> {
    /// The peer violated a rule (G-8).
    pub(super) fn offend(&mut self, now: Time, channel: u32, error: ProtocolError) {
        self.stats.malformed_dropped += 1;
        self.give_up(now, channel, LossReason::Protocol(error));
    }

    /// The peer is lost: records the attempts, and ends its channel (F-9).
    #[cold]
    pub(super) fn give_up(&mut self, now: Time, channel: u32, reason: LossReason) {
        let slot = self.channel(channel);
        let keeps_rules = !matches!(reason, LossReason::Protocol(_));
        if keeps_rules && slot.state() == ChannelState::Closing && slot.is_quiet() && slot.ops == 0 {
            // No request needs it any more (G-7).
            return self.end_channel(channel, Ending::Closed);
        }
        let time = match slot.silence.outage() {
            // No CONNECT from it ever arrived: since its channel was opened.
            _ if slot.peer_parameters.is_none() => now - slot.silence.last_received,
            Some(outage) => now - outage.since,
            None => Nanos(0),
        };
        let rails = self.t.peers[slot.peer.0 as usize].rails;
        let subs = self.t.subs_of(channel);
        let failed = rails_of(rails).map(|rail| subs[usize::from(rail.0)].history.failed_in_a_row());
        let loss = Loss::new(reason, rails, time, failed);
        self.end_channel(channel, Ending::Lost(loss));
    }

    /// Ends a channel: everything bound to its peer completes with an error, everything else continues.
    pub(super) fn end_channel(&mut self, channel: u32, ending: Ending) {
        if self.channel(channel).is_over() {
            return;
        }
        self.close_line(channel);
        let peer = self.channel(channel).peer;
        match ending {
            Ending::Closed => log::debug!("peer {}: channel closed", peer.0),
            Ending::Lost(why) => log::warn!("peer {}: lost, {}", peer.0, why),
        }
        let error = match ending {
            Ending::Closed => OpError::PeerClosed { peer },
            Ending::Lost(why) => OpError::PeerLost { peer, why },
        };
        let slot = &mut self.t.peers[peer.0 as usize];
        (slot.gone, slot.is_met) = (true, false);
        self.end_sample(channel);
        for timer in [Timer::Ack, Timer::Connect, Timer::Silence, Timer::Redial, Timer::Watch] {
            self.t.cancel_timer(channel, timer);
        }
        let slot = self.channel_mut(channel);
        slot.enter(ChannelState::Over(ending));
        slot.work.end();
        slot.replay.cancel();
        self.paths.close_rooms(channel);
        self.queue_channel_event(channel);
        for rail in 0..self.paths.rails.len() {
            self.paths.forget(channel, RailId(rail as u8));
            let sub = self.t.sub(channel, RailId(rail as u8));
            let open = sub.link.state() != State::Down;
            let place = sub.place;
            sub.reset();
            let work = &mut self.channel_mut(channel).work;
            match ending {
                // What the peer has under way must not reach memory that its owner has back (F-2).
                Ending::Lost(_) if open => work.abort(RailId(rail as u8)),
                Ending::Closed if open => work.disconnect(RailId(rail as u8)),
                _ => {}
            }
            // The other placements end with their operations and messages.
            if let Some(PlaceTo::Window { window, .. }) = place.map(|place| place.to) {
                self.t.windows.at_mut(window).users -= 1;
            }
        }
        for shortage in [Shortage::Packets, Shortage::Stripes] {
            let mut links = By(&mut self.t.channels, channel_waits(shortage));
            self.waiting[shortage as usize].unlink(&mut links, channel);
        }
        self.end_packets(channel);
        self.end_receives_of(peer, error);
        self.end_operations(channel, error);
        self.end_messages(channel);
        // The next waiting channel may use the entries that it held, or was woken for and does not use.
        self.wake(Shortage::Packets);
        self.wake(Shortage::Stripes);
        self.activate(channel);
    }

    fn end_packets(&mut self, channel: u32) {
        self.each_short(channel, None, ShortRecord::end);
        // Each of the others belongs to an operation.
        if self.channel(channel).ops == 0 {
            return;
        }
        let mut walk = self.t.packets.walk();
        while let Some(index) = self.t.packets.step_to(&mut walk, |packet| packet.channel == channel) {
            self.t.packets.remove_at(index);
        }
    }

    /// Ends the receives that only `peer` could have served.
    pub(super) fn end_receives_of(&mut self, peer: PeerId, error: OpError) {
        let mut walk = self.t.matcher.posted.walk();
        while let Some((key, mut op)) = self.t.matcher.posted.next_of(peer, &mut walk) {
            if op == NONE {
                let Some(promoted) = self.promote(key) else { continue };
                op = promoted;
            } else {
                self.t.matcher.posted.unpost(key);
            }
            if self.op(op).kind() == OpKind::MultiRecv {
                let slot = self.op_mut(op);
                slot.error = Some(error);
                slot.enter(Phase::Closing);
                if slot.children > 0 {
                    continue;
                }
            }
            self.complete(op, Some(error));
            self.release(op);
        }
    }

    fn end_operations(&mut self, channel: u32, error: OpError) {
        let mut ops = self.t.ops_of(channel);
        while let Some(op) = self.t.next_of(&mut ops) {
            let slot = self.op_mut(op);
            slot.unacked = 0;
            slot.posts = 0;
            slot.places = 0;
            slot.registering = 0;
            slot.to_register = 0;
            match slot.queued {
                Queue::Control | Queue::Ordered | Queue::Requests | Queue::Bulk => self.t.dequeue(op),
                Queue::None => {}
                Queue::Atomics => {
                    self.op_mut(op).queued = Queue::None;
                    self.atomics.unlink(&mut By(&mut self.t.ops, op_queue), op);
                }
                // Its message has arrived completely: it will be received.
                Queue::Copies => {
                    self.op_mut(op).needs_fin = false;
                    continue;
                }
            }
            if self.op(op).serves() {
                self.unuse_window(op);
            }
            if self.op(op).kind() == OpKind::RefusePut {
                let list = &mut self.t.channels.at_mut(channel).requests.refusals;
                list.unlink(&mut By(&mut self.t.ops, op_rma), op);
            }
            self.complete(op, Some(error));
            if self.op(op).event.is_linked() && self.op(op).serves() {
                // A put of the peer, all of it in place: its event holds the channel.
                continue;
            }
            self.t.unbind_op(op);
            self.release(op);
        }
    }

    /// Frees a peer's messages that can't be received any more; complete messages in order stay (G-10).
    fn end_messages(&mut self, channel: u32) {
        let (slot, slots) = self.t.reorder(channel);
        slot.reorder.drain(slots, |_, _| {});
        let mut walk = self.t.messages.walk();
        while self.channel(channel).messages > 0
            && let Some(index) = self.t.messages.step(&mut walk)
        {
            let message = self.message(index);
            if message.channel != channel {
                continue;
            }
            let complete = message.state == MessageState::Stored && !message.rendezvous;
            if !complete || message.used == MessageUse::Early {
                if message.used == MessageUse::Unexpected {
                    let key = message.unexpected;
                    self.t.matcher.unexpected.take(key);
                }
                self.free_message(index);
            }
        }
    }

    /// Frees messages of a closed peer whose channel is parked: those that can't be received any more (G-10),
    /// or all without a receive.
    pub(super) fn drop_parked(&mut self, peer: PeerId, all: bool) {
        let mut walk = self.t.messages.walk();
        while self.t.parked[peer.0 as usize].held().messages > 0
            && let Some(index) = self.t.messages.step(&mut walk)
        {
            let message = self.message(index);
            let is_dropped = message.rendezvous || all && message.used != MessageUse::Received;
            if message.parked_peer() != Some(peer) || !is_dropped {
                continue;
            }
            if message.used == MessageUse::Unexpected {
                let key = message.unexpected;
                self.t.matcher.unexpected.take(key);
            }
            self.free_message(index);
        }
    }

    /// Frees the messages of a channel that is over and that have no receive.
    pub(super) fn drop_messages(&mut self, channel: u32) {
        let mut walk = self.t.messages.walk();
        while let Some(index) = self.t.messages.step(&mut walk) {
            let &Message { channel: of, used, unexpected, .. } = self.message(index);
            if of == channel && used == MessageUse::Unexpected {
                self.t.matcher.unexpected.take(unexpected);
                self.free_message(index);
            }
        }
    }

    /// Ends the sample of a channel's rail: the answer arrived, the sample timed out, or the channel is over.
    pub(super) fn end_sample(&mut self, channel: u32) {
        if self.paths.end_sample(channel) {
            self.t.cancel_timer(channel, Timer::Sample);
            self.activate(channel);
        }
    }

    pub(super) fn set_redial_timer(&mut self, channel: u32) {
        let redials = self.channel(channel).work.redials();
        let subs = self.t.subs_of(channel);
        let first = redials.iter().map(|rail| subs[usize::from(rail.0)].redial_at).min();
        match first {
            Some(at) => self.t.set_timer(channel, Timer::Redial, at),
            None => self.t.cancel_timer(channel, Timer::Redial),
        }
    }
}

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
    /// Opens a closed channel of a peer that has no other state, to send it BYE.
    pub(super) fn open_over(&mut self, now: Time, peer: PeerId) -> Option<u32> {
        let channel = self.open_channel(now, peer)?;
        self.t.cancel_timer(channel, Timer::Connect);
        let slot = self.channel_mut(channel);
        slot.enter(ChannelState::Over(Ending::Closed));
        slot.work.cancel_dials();
        Some(channel)
    }

    /// Ends a channel that is left. `unnotified`: the peer may not have received BYE.
    pub(super) fn end_left(&mut self, now: Time, channel: u32, unnotified: bool) {
        let peer = self.channel(channel).peer;
        self.end_channel(channel, Ending::Closed);
        self.t.peers[peer.0 as usize].unnotified = unnotified;
        self.call_unnotified(now, peer, self.moved);
    }

    /// Connects to a peer that may not have received BYE, from the new address of a rail of this process:
    /// otherwise the peer would dial the old one forever (G-10).
    pub(super) fn call_unnotified(&mut self, now: Time, peer: PeerId, moved: RailSet) {
        let Peer { rails, gone, unnotified, .. } = self.t.peers[peer.0 as usize];
        if !gone || !unnotified || RailSet(rails).both(moved).is_empty() {
            return;
        }
        let Some(channel) = self.t.channel_of(peer).or_else(|| self.open_over(now, peer)) else { return };
        let slot = self.channel_mut(channel);
        slot.work.dial_late(RailSet(rails).both(moved));
        self.t.set_timer(channel, Timer::Connect, now + self.config.connect_timeout);
        self.activate(channel);
    }

    /// A connection of a peer whose channel is over.
    pub(super) fn late_connect(&mut self, now: Time, channel: u32, rail: RailId) {
        self.stats.stale_dropped += 1;
        let first = self.first_number(self.channel(channel).peer).0;
        let shutdowns = self.stats.stale_dropped as u32 & (SHUTDOWNS / 2 - 1);
        let sub = self.sub_mut(channel, rail);
        sub.reset();
        // The earlier numbers are forgotten, and the peer expects a new one (F-1).
        sub.link = Link::numbered_from(first.wrapping_add(SHUTDOWNS | shutdowns));
        sub.link.up();
        self.channel_mut(channel).work.late_connect(rail);
        self.sub_mut(channel, rail).last_received = now;
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
    pub(super) fn check_late_connects(&mut self, now: Time, channel: u32) {
        let timeout = self.late_timeout();
        let mut next = None;
        for rail in self.channel(channel).work.late().iter() {
            let sub = self.sub_mut(channel, rail);
            let due = sub.last_received + timeout;
            if !sub.is_up() {
                // The rail ends a connection that it could not open.
                continue;
            }
            if now < due {
                next = next.into_iter().chain([due]).min();
                continue;
            }
            self.abort_late_connect(now, channel, rail);
        }
        if let Some(next) = next {
            self.t.set_timer(channel, Timer::Watch, next);
        }
    }

    /// Aborts a connection that cannot send BYE. It is redialled if the peer still needs BYE.
    fn abort_late_connect(&mut self, now: Time, channel: u32, rail: RailId) {
        let is_bye_due = self.needs_bye(channel, rail);
        self.forget_late_connect(channel, rail);
        let slot = self.channel_mut(channel);
        if is_bye_due {
            slot.work.abort(rail);
            self.call_later(now, channel, rail);
        } else {
            slot.work.disconnect(rail);
        }
    }

    /// Of its packets only CONNECT counts.
    #[cold]
    pub(super) fn arrive_late(&mut self, now: Time, channel: u32, rail: RailId, header: &[u8]) {
        let Ok(Repr { body: Body::Connect(connect), .. }) = Repr::parse(header) else { return };
        if self.sub_mut(channel, rail).link.connect(connect.connection).abort {
            // The number is invalid: no connection has it.
            return self.abort_late_connect(now, channel, rail);
        }
        self.refresh(channel, rail);
        self.activate(channel);
    }

    /// A connection of a channel that is over has failed, or could not be made.
    pub(super) fn late_connect_gone(&mut self, now: Time, channel: u32, rail: RailId) {
        let was_open = self.sub_mut(channel, rail).link.state() != State::Down;
        self.forget_late_connect(channel, rail);
        if was_open && self.needs_bye(channel, rail) {
            self.call_later(now, channel, rail);
        }
    }

    /// Whether the peer may not have received BYE, and would dial the rail's old address.
    fn needs_bye(&self, channel: u32, rail: RailId) -> bool {
        let peer = self.channel(channel).peer;
        self.t.peers[peer.0 as usize].unnotified && self.moved.contains(rail)
    }

    fn call_later(&mut self, now: Time, channel: u32, rail: RailId) {
        self.channel_mut(channel).work.dial_later(rail);
        self.sub_mut(channel, rail).redial_at = now + self.config.redial_max;
        self.set_redial_timer(channel);
    }

    fn forget_late_connect(&mut self, channel: u32, rail: RailId) {
        self.channel_mut(channel).work.late_ended(rail);
        self.sub_mut(channel, rail).reset();
        self.refresh(channel, rail);
        self.activate(channel);
    }

    /// Stops connecting to a peer that has received BYE or is unreachable. Connections that are up last for
    /// their usual time.
    pub(super) fn end_late_calls(&mut self, channel: u32) {
        let slot = self.channel_mut(channel);
        slot.work.cancel_dials();
        let (peer, late) = (slot.peer, slot.work.late());
        self.t.peers[peer.0 as usize].unnotified = false;
        for rail in late.iter() {
            if !self.sub_mut(channel, rail).is_up() {
                self.dismiss(channel, rail);
            }
        }
        self.activate(channel);
    }

    fn dismiss(&mut self, channel: u32, rail: RailId) {
        self.forget_late_connect(channel, rail);
        self.channel_mut(channel).work.disconnect(rail);
    }

    /// Sends BYE on late connects, and closes each once it is sent.
    pub(super) fn pump_late_connects(&mut self, now: Time, channel: u32, out: &mut Actions) {
        for rail in self.channel(channel).work.late().iter() {
            if out.len() + STEP > out.capacity() {
                return self.activate(channel);
            }
            let sub = self.sub(channel, rail);
            if sub.link.state() != State::Ready || !sub.connect_sent || sub.frame_posted {
                continue;
            }
            if sub.bye_sent {
                self.end_late_calls(channel);
                self.dismiss(channel, rail);
            } else if self.send_frame(now, channel, rail, Body::Bye, Span::EMPTY, out) {
                self.sub_mut(channel, rail).bye_sent = true;
            }
        }
    }
}
