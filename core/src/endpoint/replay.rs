//! What a dead connection leaves (F-5 to F-7): packets that may or may not have arrived, reads that never
//! complete, unconfirmed writes, and placements in progress here. Once both ends are dead, it is replayed
//! (F-3, F-5): packets keep their numbers, so the peer's window drops duplicates; reads are repeated for
//! their missing bytes.

use super::packets::{Actions, Step};
use super::retry_epoch::IN_PLACE_OF_FIN;
use super::{Endpoint, Level};
use crate::api::action::{PostKind, Span, SpanOf};
use crate::ids::{PostId, RailId};
use crate::op::{Op, OpKind, Packet, PartFin, Phase, ShortRecord, What, record_of};
use crate::paths::Stamp;
use crate::peer::{ORDERED, Shortage, UNORDERED};
use crate::rail::rails_of;
use crate::seq::Seq;
use crate::store::NONE;
use crate::time::Time;
use crate::wire::{self, Body, Common, Cts, Data, Fence, Fin, MessageHead, Resume, Rts};

impl Endpoint<'_> {
    /// The next item to replay; called only while the channel is `replaying`.
    #[cold]
    pub(super) fn pump_replay(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let replay = self.channel(channel).replay;
        for lane in [ORDERED, UNORDERED] {
            if replay.has_lane(lane) && self.replay_packet(now, channel, lane, out) == Step::Sent {
                return Step::Sent;
            }
        }
        if replay.has_reads() {
            return self.replay_read(now, channel, out);
        }
        Step::Idle
    }

    /// The next packet of a lane.
    fn replay_packet(&mut self, now: Time, channel: u32, lane: usize, out: &mut Actions) -> Step {
        loop {
            let (slot, slots) = self.t.sent(channel, lane);
            let from = slot.replay.position(lane, slot.sent[lane].oldest());
            let Some((psn, handle)) = slot.sent[lane].next_held(slots, from) else {
                slot.replay.end(lane);
                return Step::Idle;
            };
            slot.replay.set_position(lane, psn.next());
            let (is_lost, on) = match record_of(handle) {
                Some(index) => {
                    let record = self.t.retention.record(index);
                    (record.is_lost(), record.rail)
                }
                None => (self.packet(handle).lost, self.packet(handle).rail),
            };
            if !is_lost || self.is_fenced_off(channel, RailId(on)) || !self.is_needed(handle) {
                continue;
            }
            let room = self.paths.peer(channel).rooms.room;
            if room == 0 {
                self.channel_mut(channel).replay.set_position(lane, psn);
                return Step::Idle;
            }
            let rail = self.paths.idlest(channel, room);
            self.replay(now, channel, (lane, rail, psn, handle), out);
            return Step::Sent;
        }
    }

    /// Whether the peer needs a lost packet, which becomes shorter where it needs no more of it.
    fn is_needed(&mut self, handle: u32) -> bool {
        if record_of(handle).is_some() {
            return true;
        }
        let packet = *self.packet(handle);
        if self.has_fin(packet.op) {
            // The peer needs no more of it, as its FIN states; the caller owns the memory again.
            match packet.what {
                // FIN does not prove that the peer received this number: the bytes may have been none, or
                // unneeded.
                What::Data => self.packet_mut(handle).len = 0,
                What::PartFin | What::Resume => {}
                // FIN was the answer to this.
                _ => {
                    self.packet_mut(handle).lost = false;
                    return false;
                }
            }
        }
        true
    }

    /// Whether the peer's FIN has ended a send.
    fn has_fin(&self, op: u32) -> bool {
        let op = self.op(op);
        op.kind() == OpKind::Send && op.fin_seen
    }

    fn replay(
        &mut self,
        now: Time,
        channel: u32,
        (lane, rail, psn, handle): (usize, RailId, Seq, u32),
        out: &mut Actions,
    ) {
        // Under a new id: a late report of the lost post matches nothing.
        let (id, body, payload) = match record_of(handle) {
            Some(index) => {
                let (body, payload) = self.rebuild_short(index);
                (self.t.retention.record_mut(index).post(index, rail.0, now), body, payload)
            }
            None => {
                let (body, payload) = self.rebuild(handle);
                let Some(id) = self.rename(now, channel, (lane, rail, psn, handle), &body) else { return };
                (id, body, payload)
            }
        };
        let common = self.common(channel, rail, psn.0, payload.len() as u32, true);
        self.paths.note_posted(now, channel, rail, payload.len());
        self.watch_rails(now, channel);
        self.stats.packets_sent += 1;
        self.stats.replayed += 1;
        self.push_packet(channel, rail, id, &common, &body, payload, out);
    }

    /// A lost packet gets another slot, and is with `rail` under its id.
    fn rename(
        &mut self,
        now: Time,
        channel: u32,
        (lane, rail, psn, index): (usize, RailId, Seq, u32),
        body: &Body,
    ) -> Option<PostId> {
        let mut packet = *self.packet(index);
        if packet.what == What::PartFin && matches!(body, Body::Resume(_)) {
            // From now on its acknowledgment does not show which of the two the peer received.
            packet.what = What::Resume;
            packet.offset = u64::from(self.t.ops.at(packet.op).epoch.wrapping_add(1)) | IN_PLACE_OF_FIN;
        }
        (packet.rail, packet.posted, packet.lost, packet.stamp) = (rail.0, true, false, Stamp::of(now));
        self.t.packets.remove_at(index);
        let key = self.t.packets.insert(packet);
        debug_assert!(key.is_some(), "a slot has just come free");
        let key = key?;
        let (slot, slots) = self.t.sent(channel, lane);
        let is_renamed = slot.sent[lane].rename(slots, psn, key.index);
        debug_assert!(is_renamed, "it is held");
        self.each_in_packet(packet.op, |slot| slot.posts += 1);
        Some(PostId(key))
    }

    /// Rebuilds a packet from the current state of its operation. That state may be newer than the lost
    /// packet; where the two differ, the peer has received the packet.
    fn rebuild(&mut self, index: u32) -> (Body, Span) {
        let packet = *self.packet(index);
        let Packet { op, len, offset, .. } = packet;
        let operation = self.t.op_id(op).0.to_bits();
        let slot = self.op(op);
        let &Op { remote, remote_offset, granted, epoch, .. } = slot;
        let ours = self.keys_to_send(packet.channel, if slot.keys_are_ours() { slot.keys } else { NONE });
        let want_placed = slot.level == Level::Placed;
        let head = MessageHead { tag: slot.tag, immediate: slot.immediate, want_placed, operation };
        let body = match packet.what {
            What::Eager => Body::Eager(head),
            What::Aggregate => {
                let (mut count, mut at) = (0, op);
                while at != NONE {
                    (count, at) = (count + 1, self.op(at).next_in_packet);
                }
                let payload = match slot.retained {
                    NONE => Span::EMPTY,
                    place => Span { of: SpanOf::At(self.t.retention.at(place)), offset: 0, len: len.into() },
                };
                return (Body::Aggregate { count }, payload);
            }
            What::Rts => Body::Rts(Rts { head, message_bytes: slot.len, keys: ours }),
            What::Cts => {
                Body::Cts(Cts { operation: remote, target: operation, granted_bytes: granted, epoch, keys: ours })
            }
            What::PartFin => {
                let PartFin { part, epoch: of } = PartFin::unpack(offset);
                if of == epoch && slot.unconfirmed >> part.0 & 1 == 1 {
                    Body::Resume(Resume { target: remote, epoch: epoch.wrapping_add(1) }) // F-7
                } else {
                    let count = slot.fins_expected.max(1);
                    Body::Fin(Fin {
                        operation: remote,
                        count,
                        refused: None,
                        want_placed: self.config.recovery,
                        epoch: of,
                        placed_bytes: granted,
                    })
                }
            }
            What::Resume => Body::Resume(Resume { target: remote, epoch: offset as u16 }),
            What::Data => Body::Data(Data { operation: remote, offset }),
            What::Put => {
                let offset = remote_offset.wrapping_add(offset);
                Body::Put(wire::Put { window: remote, offset, operation })
            }
            What::PutImmediate => Body::PutImmediate(self.put_immediate_of(op)),
            What::Get => Body::Get(wire::Get { window: remote, offset: remote_offset, bytes: slot.len, operation }),
            What::Atomic => Body::Atomic(self.atomic_of(op)),
            What::AtomicReply => Body::AtomicReply(wire::AtomicReply { operation: remote, old: slot.old }),
            What::Fin | What::Write | What::Read => Body::Fin(Fin {
                operation: remote,
                count: 1,
                refused: slot.refusal,
                want_placed: false,
                epoch: 0,
                placed_bytes: granted,
            }),
        };
        let payload = match packet.what {
            What::Eager | What::Data | What::Put | What::PutImmediate => self.payload(op, offset, len.into()),
            _ => Span::EMPTY,
        };
        (body, payload)
    }

    /// Repeats the next read whose rail has died over another rail with a key; if there is none, the message
    /// is requested anew.
    fn replay_read(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let mut waits = false;
        let mut walk = self.t.packets.walk();
        let is_lost_read = |packet: &Packet| packet.channel == channel && packet.lost && packet.what == What::Read;
        while let Some(index) = self.t.packets.step_to(&mut walk, is_lost_read) {
            let packet = *self.packet(index);
            let keys = self.t.ops.at(packet.op).keys;
            let able = self.paths.ready_with(channel, |caps| caps.read);
            let able = if keys == NONE { 0 } else { self.with_keys(channel, keys, able) };
            if able == 0 {
                if self.paths.ready(channel) != 0 && self.t.ops.at(packet.op).posts == 0 {
                    self.restart_read(packet.op);
                    return Step::Sent;
                }
                waits = true;
                continue;
            }
            let room = able & self.paths.peer(channel).rooms.room;
            if room == 0 {
                waits = true;
                continue;
            }
            let rail = self.paths.idlest(channel, room);
            let from = self.key_for(channel, keys, rail).unwrap_or_default();
            let from = wire::RemoteKey { address: from.address.wrapping_add(packet.offset), ..from };
            let payload = self.payload(packet.op, packet.offset, packet.len.into());
            self.t.packets.remove_at(index);
            let extent_bytes = packet.len.into();
            self.transfer(now, channel, rail, packet.op, PostKind::Read { from }, (payload, extent_bytes), out);
            self.stats.replayed += 1;
            return Step::Sent;
        }
        if !waits {
            self.channel_mut(channel).replay.end_reads();
        }
        Step::Idle
    }

    /// The connection of a ready subchannel is dead at this end. Nothing is resent before the fence
    /// ([`release_lost`](Self::release_lost)) except reads: they write only here.
    pub(super) fn lose(&mut self, channel: u32, rail: RailId) {
        // When a device fails, most of its connections are idle: do not scan the tables for these.
        let place = self.sub_mut(channel, rail).place;
        let had_packets = self.paths.path(channel, rail).in_flight > 0
            || self.channel(channel).sent.iter().any(|lane| !lane.is_empty());
        self.abort_placement(channel, rail);
        if had_packets {
            self.lose_packets(channel, rail);
        }
        self.mark_unconfirmed_writes(channel, rail);
        if !self.t.key_sets.is_empty() {
            self.forget_keys(channel, rail);
        }
        self.paths.forget(channel, rail);
        self.sub_mut(channel, rail).clear();
        self.refresh(channel, rail);
        let slot = self.channel_mut(channel);
        slot.work.lost(rail);
        if slot.ring == Some(rail) {
            slot.ring = None;
        }
        // Acknowledgments and limits that were in flight.
        slot.ack.make_due();
        slot.replay.begin_reads();
        slot.express_budget.close();
        if had_packets || place.is_some() {
            let mut ops = self.t.ops_of(channel);
            while let Some(op) = self.t.next_of(&mut ops) {
                self.complete_if_done(op);
            }
        }
        self.activate(channel);
    }

    /// Every post on the connection is over, and its outcome at the peer is unknown.
    fn lose_packets(&mut self, channel: u32, rail: RailId) {
        self.each_short(channel, Some(rail), ShortRecord::lose);
        let mut walk = self.t.packets.walk();
        let is_on = |packet: &Packet| packet.channel == channel && packet.rail == rail.0 && !packet.lost;
        while let Some(index) = self.t.packets.step_to(&mut walk, is_on) {
            let packet = *self.packet(index);
            if packet.posted {
                self.each_in_packet(packet.op, |slot| slot.posts -= 1);
            }
            if packet.unacked || packet.what == What::Read {
                let slot = self.packet_mut(index);
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
            let slot = self.op(op);
            if slot.kind() != OpKind::Send || slot.phase() != Phase::Writing || slot.fin_seen {
                continue;
            }
            let unconfirmed = self.parts_of_rail(op, rail) & self.unconfirmed(op);
            if unconfirmed == 0 {
                continue;
            }
            let epoch = self.op(op).epoch;
            let resumed = self.lost_fins(op, epoch) & unconfirmed;
            let slot = self.op_mut(op);
            slot.unconfirmed |= unconfirmed;
            // The number of a lost FIN will carry RESUME: one of the two takes effect, whichever arrived.
            slot.resume_due |= unconfirmed & !resumed != 0;
        }
    }

    /// Parts of an operation whose FIN of this retry epoch may or may not have arrived.
    fn lost_fins(&self, op: u32, epoch: u16) -> u64 {
        let packets = self.t.packets.indices().map(|index| self.packet(index));
        packets
            .filter(|packet| packet.op == op && packet.lost && packet.what == What::PartFin)
            .map(|packet| PartFin::unpack(packet.offset))
            .filter(|fin| fin.epoch == epoch)
            .fold(0, |mask, fin| mask | 1 << fin.part.0)
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
                let Some(handle) = slot.sent[lane].get(slots, psn) else { continue };
                if let Some(index) = record_of(handle) {
                    self.t.retention.record_mut(index).find();
                    continue;
                }
                let index = handle;
                self.packet_mut(index).lost = false;
                let packet = *self.packet(index);
                self.confirm(&packet);
            }
        }
    }

    /// Both ends of a dead connection are dead: its packets may be replayed.
    pub(super) fn release_lost(&mut self, channel: u32) {
        for lane in [ORDERED, UNORDERED] {
            let slot = self.channel_mut(channel);
            slot.replay.begin(lane, slot.sent[lane].oldest());
            slot.express_budget.stop_sending();
        }
        self.resume_unconfirmed(channel);
        self.activate(channel);
    }
}
