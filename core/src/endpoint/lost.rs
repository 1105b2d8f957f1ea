//! State after a dead connection (F-5 to F-7): packets that may or may not have arrived, reads that never
//! complete, unconfirmed writes, and placements in progress here.

use super::Endpoint;
use super::channel::{ORDERED, PlaceTo, REPLAY_READS, Shortage, UNORDERED};
use super::op::{MessageState, OpKind, PartFin, Phase, What};
use super::tables::key_set_link;
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::seq::Seq;
use crate::store::NONE;
use crate::wire::{Common, Fence};

impl Endpoint<'_> {
    /// The connection of a ready subchannel is dead at this end. Nothing is resent before the fence
    /// ([`release_lost`](Self::release_lost)) except reads: they write only here.
    pub(super) fn lose(&mut self, channel: u32, rail: RailId) {
        // When a device fails, most of its connections are idle: do not scan the tables for these.
        let place = self.t.sub(channel, rail).place;
        let had_packets = self.paths.path(channel, rail).under_way > 0
            || self.t.channels.at(channel).sent.iter().any(|lane| !lane.is_empty());
        self.abort_placement(channel, rail);
        if had_packets {
            self.lose_packets(channel, rail);
        }
        self.mark_unconfirmed_writes(channel, rail);
        if !self.t.key_sets.is_empty() {
            self.forget_keys(channel, rail);
        }
        self.paths.forget(channel, rail);
        self.t.sub(channel, rail).clear();
        self.refresh(channel, rail);
        let slot = self.t.channels.at_mut(channel);
        slot.connect_pending &= !(1 << rail.0);
        slot.probe_answers &= !(1 << rail.0); // G-6
        // Acknowledgments and limits that were in flight.
        slot.ack.make_due();
        slot.replaying |= REPLAY_READS;
        if had_packets || place.is_some() {
            let mut ops = self.t.ops_of(channel);
            while let Some(op) = self.t.next_of(&mut ops) {
                self.settle(op);
            }
        }
        self.activate(channel);
    }

    /// The payload that was being placed is not there: its number is open again. A message whose header
    /// already took effect (it has met its receive or has its blocks) waits for the copy (F-6).
    pub(super) fn abort_placement(&mut self, channel: u32, rail: RailId) {
        let Some(place) = self.t.sub(channel, rail).place.take() else { return };
        let window = self.config.window;
        let (slot, bits) = self.t.received(channel, place.lane);
        slot.received[place.lane].unclaim(bits, window, place.psn);
        let is_aborted = place.lane == ORDERED;
        match place.to {
            PlaceTo::Op(op) => {
                let slot = self.t.ops.at_mut(op);
                slot.places -= 1;
                slot.aborted = is_aborted.then_some(place.psn);
            }
            PlaceTo::Message(message) => self.t.messages.at_mut(message).aborted = Some(place.psn),
            PlaceTo::Window { window, .. } => self.t.windows.at_mut(window).users -= 1,
        }
        self.t.channels.at_mut(channel).aborted_placements += u16::from(is_aborted);
    }

    /// Returns what waits for the copy of ordered packet `psn`, if anything does, and its bytes.
    pub(super) fn take_aborted(&mut self, channel: u32, psn: Seq) -> Option<(PlaceTo, u64)> {
        if self.t.channels.at(channel).aborted_placements == 0 {
            return None;
        }
        let waits = |at: u32, aborted: Option<Seq>| at == channel && aborted == Some(psn);
        let message = self.t.messages.indices().find(|&index| {
            let message = self.t.messages.at(index);
            waits(message.channel, message.aborted)
        });
        let found = if let Some(message) = message {
            let slot = self.t.messages.at_mut(message);
            slot.aborted = None;
            let bytes = (slot.state != MessageState::Sealed).then_some(slot.len);
            Some((PlaceTo::Message(message), bytes.unwrap_or(u64::from(slot.block_count))))
        } else {
            let op = self.t.ops.indices().find(|&op| {
                let slot = self.t.ops.at(op);
                waits(slot.channel, slot.aborted)
            })?;
            let slot = self.t.ops.at_mut(op);
            slot.aborted = None;
            slot.places += 1;
            Some((PlaceTo::Op(op), slot.granted))
        };
        self.t.channels.at_mut(channel).aborted_placements -= 1;
        found
    }

    /// Every post on the connection is over, and its outcome at the peer is unknown.
    fn lose_packets(&mut self, channel: u32, rail: RailId) {
        let mut walk = self.t.packets.walk();
        while let Some(index) = self.t.packets.step(&mut walk) {
            let packet = *self.t.packets.at(index);
            if packet.channel != channel || packet.rail != rail.0 || packet.lost {
                continue;
            }
            if packet.posted {
                self.each_in_packet(packet.op, |slot| slot.posts -= 1);
            }
            if packet.unacked || packet.what == What::Read {
                let slot = self.t.packets.at_mut(index);
                slot.posted = false;
                slot.lost = true;
            } else {
                // The peer has it; or it is a write, which its part tracks.
                self.t.packets.remove_at(index);
            }
        }
        self.wake(Shortage::Packets);
    }

    /// Messages that were being written over the connection: data without an acknowledged FIN is unconfirmed
    /// (F-7).
    fn mark_unconfirmed_writes(&mut self, channel: u32, rail: RailId) {
        let mut ops = self.t.ops_of(channel);
        while let Some(op) = self.t.next_of(&mut ops) {
            let slot = self.t.ops.at(op);
            if slot.kind() != OpKind::Send || slot.phase() != Phase::Writing || slot.fin_seen {
                continue;
            }
            let unconfirmed = self.parts_of_rail(op, rail) & self.unconfirmed(op);
            if unconfirmed == 0 {
                continue;
            }
            let round = self.t.ops.at(op).round;
            let said = self.lost_fins(op, round) & unconfirmed;
            let slot = self.t.ops.at_mut(op);
            slot.unconfirmed |= unconfirmed;
            // The number of a lost FIN will carry RESUME: one of the two takes effect, whichever arrived.
            slot.resume_due |= unconfirmed & !said != 0;
        }
    }

    /// Parts of an operation whose FIN of this retry epoch may or may not have arrived.
    fn lost_fins(&self, op: u32, round: u16) -> u64 {
        let packets = self.t.packets.indices().map(|index| self.t.packets.at(index));
        packets
            .filter(|packet| packet.op == op && packet.lost && packet.what == What::PartFin)
            .map(|packet| PartFin::unpack(packet.offset))
            .filter(|fin| fin.round == round)
            .fold(0, |mask, fin| mask | 1 << fin.part.0)
    }

    /// Keys that the peer gave for a rail are invalid once its connection is dead: the next ones may differ
    /// (F-7).
    fn forget_keys(&mut self, channel: u32, rail: RailId) {
        let peer_rail = self.t.sub(channel, rail).peer_rail;
        let mut ops = self.t.ops_of(channel);
        while let Some(op) = self.t.next_of(&mut ops) {
            let slot = self.t.ops.at(op);
            if slot.keys != NONE && !slot.keys_are_ours() {
                self.t.key_sets.at_mut(slot.keys).forget(peer_rail);
            }
        }
        if self.t.channels.at(channel).messages == 0 {
            return;
        }
        let mut walk = self.t.messages.walk();
        while let Some(index) = self.t.messages.step(&mut walk) {
            let message = self.t.messages.at(index);
            if message.channel == channel && message.keys != NONE {
                self.t.key_sets.at_mut(message.keys).forget(peer_rail);
            }
        }
    }

    /// The device behind a rail has lost its registrations: their keys are not sent any more, and none is
    /// deregistered.
    pub(super) fn rail_reset(&mut self, rail: RailId) {
        let mut walk = self.t.ops.walk();
        while let Some(op) = self.t.ops.step(&mut walk) {
            let slot = self.t.ops.at(op);
            if slot.keys != NONE && slot.keys_are_ours() {
                self.t.key_sets.at_mut(slot.keys).forget(rail.0);
            }
        }
        // Registrations about to be deregistered: the reset device may have given the same key to others.
        let mut walk = self.t.key_sets.walk();
        while let Some(set) = self.t.key_sets.step(&mut walk) {
            if key_set_link(&mut self.t.key_sets, set).is_linked() {
                self.t.key_sets.at_mut(set).forget(rail.0);
            }
        }
        for _ in 0..self.late_keys.len() {
            if let Some(late) = self.late_keys.pop_front().filter(|(of, _)| *of != rail) {
                let _ = self.late_keys.push_back(late);
            }
        }
    }

    /// Selective acknowledgments in a FENCE: packets that the peer has need no replay.
    pub(super) fn note_beyond(&mut self, channel: u32, common: &Common, fence: &Fence) {
        let lanes = [
            (ORDERED, common.ack_ordered, fence.ordered_beyond),
            (UNORDERED, common.ack_unordered, fence.unordered_beyond),
        ];
        for (lane, acked, beyond) in lanes {
            for bit in rails_of(beyond) {
                let psn = Seq(acked).add(1 + u32::from(bit.0));
                let (slot, slots) = self.t.sent(channel, lane);
                let Some(index) = slot.sent[lane].get(slots, psn) else { continue };
                self.t.packets.at_mut(index).lost = false;
                let packet = *self.t.packets.at(index);
                self.confirm(&packet);
            }
        }
    }

    /// Both ends of a dead connection are dead: its packets may be replayed.
    pub(super) fn release_lost(&mut self, channel: u32) {
        for lane in [ORDERED, UNORDERED] {
            let slot = self.t.channels.at_mut(channel);
            slot.replay_at[lane] = slot.sent[lane].oldest();
            slot.replaying |= 1 << lane;
        }
        self.resume_unconfirmed(channel);
        self.activate(channel);
    }
}
