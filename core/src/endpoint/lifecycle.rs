//! Life of channels: opened at first use or by a peer's connection, closed by BYE, ended by loss.

use super::channel::{Channel, ChannelState, Ending, ORDERED, PlaceTo, Shortage, UNORDERED};
use super::op::{MessageState, OpKind, Phase, Queue};
use super::tables::{channel_active, channel_event, channel_waits, op_queue, op_rma};
use super::timer::Timer;
use super::{Endpoint, Loss, LossReason, OpError, ProtocolError};
use crate::fast::Line;
use crate::ids::{PeerId, RailId};
use crate::log;
use crate::rail::rails_of;
use crate::rel::credit::Grants;
use crate::rel::link::{Link, State};
use crate::seq::Seq;
use crate::store::NONE;
use crate::store::list::By;
use crate::time::{Nanos, Time};

impl Endpoint<'_> {
    /// Opens a channel to an idle peer, whichever side dials first: a peer that connects on one rail is
    /// dialled on the others (L-1).
    pub(super) fn open_channel(&mut self, now: Time, peer: PeerId) -> Option<u32> {
        let first = Seq(self.config.first_number);
        let grants = Grants::new(first, self.config.unexpected_per_peer, self.config.blocks_per_peer);
        let rails = self.t.peers[peer.0 as usize].rails;
        let mut channel = Channel::new(peer, first, grants, now);
        channel.dial_pending = rails;
        for rail in rails_of(rails) {
            let facts = &self.paths.rails[usize::from(rail.0)];
            channel.eager_bytes_max = channel.eager_bytes_max.min(facts.eager_bytes_max);
            channel.segment_bytes_max = channel.segment_bytes_max.min(facts.segment_bytes_max);
            if facts.caps.write || facts.caps.read {
                channel.transfer_bytes_max = channel.transfer_bytes_max.min(facts.transfer_bytes_max());
            }
        }
        let index = self.t.channels.insert(channel).ok()?.index;
        let slot = &mut self.t.peers[peer.0 as usize];
        (slot.channel, slot.is_met) = (index, !slot.gone);
        for lane in [ORDERED, UNORDERED] {
            self.t.sent(index, lane).1.fill(NONE);
            self.t.received(index, lane).1.fill(0);
        }
        self.t.reorder(index).1.fill(NONE);
        self.t.lines[index as usize] = Line::of(peer);
        self.paths.begin_peer(index);
        for sub in self.t.subs_of(index) {
            sub.reset();
            sub.link = Link::numbered_from(first.0);
        }
        log::debug!("peer {}: channel opened, rails {:x}", peer.0, rails);
        self.t.set_timer(index, Timer::Connect, now + self.config.connect_timeout);
        self.activate(index);
        Some(index)
    }

    /// Puts a channel on the list of those with something to send.
    pub(super) fn activate(&mut self, channel: u32) {
        let mut links = By(&mut self.t.channels, channel_active);
        if !crate::store::Links::link(&mut links, channel).is_linked() {
            self.hot.active.push_back(&mut links, channel);
        }
    }

    /// A channel has found a shared table full: it waits until an entry comes free.
    pub(super) fn wait_for(&mut self, channel: u32, shortage: Shortage) {
        if !self.t.channels.at(channel).waits[shortage as usize].is_linked() {
            let mut links = By(&mut self.t.channels, channel_waits(shortage));
            self.waiting[shortage as usize].push_back(&mut links, channel);
        }
    }

    /// An entry of a shared table may have come free: the channel that has waited longest gets its turn. It
    /// wakes the next one if it leaves entries unused.
    #[inline]
    pub(super) fn wake(&mut self, shortage: Shortage) {
        if !self.waiting[shortage as usize].is_empty() {
            self.wake_next(shortage);
        }
    }

    #[cold]
    fn wake_next(&mut self, shortage: Shortage) {
        let free = match shortage {
            Shortage::Packets => self.t.packets.room(),
            Shortage::Stripes => self.paths.stripe_sets.room(),
        };
        if free == 0 {
            return;
        }
        let mut links = By(&mut self.t.channels, channel_waits(shortage));
        if let Some(channel) = self.waiting[shortage as usize].pop_front(&mut links) {
            self.activate(channel);
        }
    }

    pub(super) fn tell_channel(&mut self, channel: u32) {
        let mut links = By(&mut self.t.channels, channel_event);
        if !crate::store::Links::link(&mut links, channel).is_linked() {
            self.channel_events.push_back(&mut links, channel);
        }
    }

    /// The peer violated a rule (G-8).
    pub(super) fn offend(&mut self, now: Time, channel: u32, error: ProtocolError) {
        self.stats.malformed_dropped += 1;
        self.give_up(now, channel, LossReason::Protocol(error));
    }

    /// The peer is lost: records the attempts, and ends its channel (F-9).
    #[cold]
    pub(super) fn give_up(&mut self, now: Time, channel: u32, reason: LossReason) {
        let slot = self.t.channels.at(channel);
        if slot.state() == ChannelState::Closing && slot.terms.is_none() && slot.ops == 0 {
            // It was never reached, and no request needs it any more (G-7).
            return self.end_channel(channel, Ending::Closed);
        }
        let time = match slot.no_path {
            // No CONNECT from it ever arrived: since its channel was opened.
            _ if slot.terms.is_none() => now - slot.last_received,
            Some(no_path) => now - no_path.since,
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
        if self.t.channels.at(channel).is_over() {
            return;
        }
        self.close_line(channel);
        let peer = self.t.channels.at(channel).peer;
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
        let slot = self.t.channels.at_mut(channel);
        slot.enter(ChannelState::Over(ending));
        slot.dial_pending = 0;
        slot.connect_pending = 0;
        (slot.redials, slot.fences, slot.questions, slot.replaying, slot.aborted_placements) = (0, 0, 0, 0, 0);
        self.paths.close_rooms(channel);
        self.tell_channel(channel);
        for rail in 0..self.paths.rails.len() {
            self.paths.forget(channel, RailId(rail as u8));
            let sub = self.t.sub(channel, RailId(rail as u8));
            let open = sub.link.state() != State::Down;
            let place = sub.place;
            sub.reset();
            if open {
                self.t.channels.at_mut(channel).close_pending |= 1 << rail;
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
        // Each belongs to an operation.
        if self.t.channels.at(channel).ops == 0 {
            return;
        }
        let mut walk = self.t.packets.walk();
        while let Some(index) = self.t.packets.step(&mut walk) {
            if self.t.packets.at(index).channel == channel {
                self.t.packets.remove_at(index);
            }
        }
    }

    /// Ends the receives that only `peer` could have served.
    pub(super) fn end_receives_of(&mut self, peer: PeerId, error: OpError) {
        let mut walk = self.t.matcher.posted_walk();
        while let Some((key, mut op)) = self.t.matcher.next_posted_of(peer, &mut walk) {
            if op == NONE {
                let Some(promoted) = self.promote(key) else { continue };
                op = promoted;
            } else {
                self.t.matcher.unpost(key);
            }
            if self.t.ops.at(op).kind() == OpKind::MultiRecv {
                let slot = self.t.ops.at_mut(op);
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
            let slot = self.t.ops.at_mut(op);
            slot.unacked = 0;
            slot.posts = 0;
            slot.places = 0;
            slot.registering = 0;
            slot.to_register = 0;
            match slot.queued {
                Queue::Control | Queue::Ordered | Queue::Requests | Queue::Bulk => self.t.dequeue(op),
                Queue::None => {}
                Queue::Atomics => {
                    self.t.ops.at_mut(op).queued = Queue::None;
                    self.atomics.unlink(&mut By(&mut self.t.ops, op_queue), op);
                }
                // Its message has arrived completely: it will be received.
                Queue::Copies => {
                    self.t.ops.at_mut(op).fin_wanted = false;
                    continue;
                }
            }
            if self.t.ops.at(op).serves() {
                self.unuse_window(op);
            }
            if self.t.ops.at(op).kind() == OpKind::RefusePut {
                let list = &mut self.t.channels.at_mut(channel).refusals;
                list.unlink(&mut By(&mut self.t.ops, op_rma), op);
            }
            self.complete(op, Some(error));
            self.t.unbind_op(op);
            self.release(op);
        }
    }

    /// Frees a peer's messages that can't be received any more; complete messages in order stay (G-10).
    fn end_messages(&mut self, channel: u32) {
        let (slot, slots) = self.t.reorder(channel);
        slot.reorder.drain(slots, |_, _| {});
        let mut walk = self.t.messages.walk();
        while self.t.channels.at(channel).messages > 0
            && let Some(index) = self.t.messages.step(&mut walk)
        {
            let message = self.t.messages.at(index);
            if message.channel != channel {
                continue;
            }
            let complete = message.state == MessageState::Stored && !message.rendezvous;
            let in_order = message.matchable || message.claimed || message.recv != NONE;
            if !(complete && in_order) {
                if message.matchable {
                    self.t.matcher.take_unexpected(message.unexpected);
                }
                self.free_message(index);
            }
        }
    }

    /// Frees a channel's slot once it is over, reported, disconnected and nothing refers to it.
    #[inline]
    pub(super) fn free_channel_if_idle(&mut self, channel: u32) {
        // A slot that is free already belonged to a channel that was over.
        if self.t.channels.last_at(channel).is_over() {
            self.free_over_channel_if_idle(channel);
        }
    }

    fn free_over_channel_if_idle(&mut self, channel: u32) {
        let Some(key) = self.t.channels.key_at(channel) else { return };
        let slot = self.t.channels.at(channel);
        let connections = slot.close_pending | slot.callers | slot.abort_pending | slot.dial_pending | slot.redials;
        if slot.event.is_linked() || connections != 0 || slot.messages > 0 {
            return;
        }
        debug_assert_eq!(slot.ops, 0, "operations of a channel that is freed");
        let peer = slot.peer;
        for timer in [Timer::Connect, Timer::Redial, Timer::Watch] {
            self.t.cancel_timer(channel, timer);
        }
        let mut links = By(&mut self.t.channels, channel_active);
        self.hot.active.unlink(&mut links, channel);
        self.t.channels.remove(key);
        let slot = &mut self.t.peers[peer.0 as usize];
        (slot.channel, slot.is_met) = (NONE, false);
    }
}
