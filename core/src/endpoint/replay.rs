//! Replay of lost traffic, once both ends of its connection are dead (F-3, F-5): packets keep their numbers,
//! so the peer's window drops duplicates; reads are repeated for their missing bytes.

use super::action::{PostKind, Span, SpanOf};
use super::channel::{ORDERED, REPLAY_READS, UNORDERED};
use super::op::{Op, OpKind, Packet, PartFin, Phase, Queue, What};
use super::packets::Actions;
use super::pump::Step;
use super::tables::op_queue;
use super::{Endpoint, Level};
use crate::ids::{PeerId, PostId, RailId};
use crate::paths::{Part, Stamp};
use crate::rail::rails_of;
use crate::seq::Seq;
use crate::store::NONE;
use crate::store::list::By;
use crate::time::Time;
use crate::wire::{self, Body, Cts, Data, Fin, MessageHead, Resume, Rts};

/// Flag beside the retry epoch in the `offset` of a RESUME: it has the number of a lost FIN.
pub(super) const IN_PLACE_OF_FIN: u64 = 1 << 16;

impl Endpoint<'_> {
    /// The next item to replay; called only while the channel is `replaying`.
    #[cold]
    pub(super) fn pump_replay(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let replaying = self.t.channels.at(channel).replaying;
        for lane in [ORDERED, UNORDERED] {
            if replaying >> lane & 1 == 1 && self.replay_packet(now, channel, lane, out) == Step::Sent {
                return Step::Sent;
            }
        }
        if replaying & REPLAY_READS != 0 {
            return self.replay_read(now, channel, out);
        }
        Step::Idle
    }

    /// The next packet of a lane.
    fn replay_packet(&mut self, now: Time, channel: u32, lane: usize, out: &mut Actions) -> Step {
        loop {
            let (slot, slots) = self.t.sent(channel, lane);
            let from = slot.replay_at[lane];
            // Packets acknowledged since then have left the window.
            let from = if from.is_before(slot.sent[lane].oldest()) { slot.sent[lane].oldest() } else { from };
            let Some((psn, index)) = slot.sent[lane].next_held(slots, from) else {
                slot.replaying &= !(1 << lane);
                return Step::Idle;
            };
            slot.replay_at[lane] = psn.next();
            let packet = *self.t.packets.at(index);
            if !packet.lost || self.is_fenced_off(channel, RailId(packet.rail)) {
                continue;
            }
            let op = self.t.ops.at(packet.op);
            if op.kind() == OpKind::Send && op.fin_seen {
                // The peer needs no more of it, as its FIN states; the caller owns the memory again.
                match packet.what {
                    // FIN does not prove that the peer received this number: the bytes may have been none, or
                    // unneeded.
                    What::Data => self.t.packets.at_mut(index).len = 0,
                    What::PartFin | What::Resume => {}
                    // FIN was the answer to this.
                    _ => {
                        self.t.packets.at_mut(index).lost = false;
                        continue;
                    }
                }
            }
            let room = self.paths.peer(channel).rooms.room;
            if room == 0 {
                self.t.channels.at_mut(channel).replay_at[lane] = psn;
                return Step::Idle;
            }
            let rail = self.paths.idlest(channel, room);
            self.replay(now, channel, (lane, rail, psn, index), out);
            return Step::Sent;
        }
    }

    /// Whether the leftovers of a rail's last connection wait for the peer's FENCE.
    pub(super) fn is_fenced_off(&self, channel: u32, rail: RailId) -> bool {
        self.t.subs[self.t.sub_index(channel, rail)].link.waits_for().is_some()
    }

    fn replay(
        &mut self,
        now: Time,
        channel: u32,
        (lane, rail, psn, index): (usize, RailId, Seq, u32),
        out: &mut Actions,
    ) {
        let Some(key) = self.t.packets.key_at(index) else { return };
        let (body, payload) = self.rebuild(index);
        let mut packet = *self.t.packets.at(index);
        if packet.what == What::PartFin && matches!(body, Body::Resume(_)) {
            // From now on its acknowledgment does not show which of the two the peer received.
            packet.what = What::Resume;
            packet.offset = u64::from(self.t.ops.at(packet.op).round.wrapping_add(1)) | IN_PLACE_OF_FIN;
        }
        (packet.rail, packet.posted, packet.lost, packet.stamp) = (rail.0, true, false, Stamp::of(now));
        // Under a new id: a late report of the lost post matches nothing.
        self.t.packets.remove(key);
        let Ok(key) = self.t.packets.insert(packet) else {
            debug_assert!(false, "a slot has just come free");
            return;
        };
        let (slot, slots) = self.t.sent(channel, lane);
        let is_renamed = slot.sent[lane].rename(slots, psn, key.index);
        debug_assert!(is_renamed, "it is held");
        self.each_in_packet(packet.op, |slot| slot.posts += 1);
        let common = self.common(channel, psn.0, packet.len, true);
        self.paths.note_posted(now, channel, rail, packet.len.into());
        self.watch_rails(now, channel);
        self.stats.packets_sent += 1;
        self.stats.replayed += 1;
        self.push_packet(channel, rail, PostId(key), &common, &body, payload, out);
    }

    /// Rebuilds a packet from the current state of its operation. That state may be newer than the lost
    /// packet; where the two differ, the peer has received the packet.
    fn rebuild(&mut self, index: u32) -> (Body, Span) {
        let packet = *self.t.packets.at(index);
        let Packet { op, len, offset, .. } = packet;
        let operation = self.t.op_id(op).0.to_bits();
        let slot = *self.t.ops.at(op);
        let Op { remote, remote_offset, granted, round, .. } = slot;
        let ours = self.keys_to_tell(packet.channel, if slot.keys_are_ours() { slot.keys } else { NONE });
        let want_placed = slot.level == Level::Placed;
        let head = MessageHead { tag: slot.tag, immediate: slot.immediate, want_placed, operation };
        let body = match packet.what {
            What::Eager => Body::Eager(head),
            What::Aggregate => {
                let (mut count, mut at) = (0, op);
                while at != NONE {
                    (count, at) = (count + 1, self.t.ops.at(at).together);
                }
                let payload = match slot.retained {
                    NONE => Span::EMPTY,
                    place => Span { of: SpanOf::At(self.t.retention.at(place)), offset: 0, len: len.into() },
                };
                return (Body::Aggregate { count }, payload);
            }
            What::Rts => Body::Rts(Rts { head, message_bytes: slot.len, keys: ours }),
            What::Cts => {
                Body::Cts(Cts { operation: remote, target: operation, granted_bytes: granted, round, keys: ours })
            }
            What::PartFin => {
                let PartFin { part, round: of } = PartFin::unpack(offset);
                if of == round && slot.unconfirmed >> part.0 & 1 == 1 {
                    Body::Resume(Resume { target: remote, round: round.wrapping_add(1) }) // F-7
                } else {
                    let count = slot.fins_expected.max(1);
                    Body::Fin(Fin {
                        operation: remote,
                        count,
                        refused: None,
                        want_placed: self.config.recovery,
                        round: of,
                        placed_bytes: granted,
                    })
                }
            }
            What::Resume => Body::Resume(Resume { target: remote, round: offset as u16 }),
            What::Data => Body::Data(Data { operation: remote, offset }),
            What::Put => {
                let offset = remote_offset.wrapping_add(offset);
                Body::Put(wire::Put { window: remote, offset, operation })
            }
            What::Get => Body::Get(wire::Get { window: remote, offset: remote_offset, bytes: slot.len, operation }),
            What::Atomic => Body::Atomic(self.atomic_of(op)),
            What::AtomicReply => Body::AtomicReply(wire::AtomicReply { operation: remote, old: slot.old }),
            What::Fin | What::Write | What::Read => Body::Fin(Fin {
                operation: remote,
                count: 1,
                refused: slot.refusal,
                want_placed: false,
                round: 0,
                placed_bytes: granted,
            }),
        };
        let payload = match packet.what {
            What::Eager | What::Data | What::Put => self.payload(op, offset, len.into()),
            _ => Span::EMPTY,
        };
        (body, payload)
    }

    /// Repeats the next read whose rail has died over another rail with a key; if there is none, the message
    /// is requested anew.
    fn replay_read(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let mut waits = false;
        let mut walk = self.t.packets.walk();
        while let Some(index) = self.t.packets.step(&mut walk) {
            let packet = *self.t.packets.at(index);
            if packet.channel != channel || !packet.lost || packet.what != What::Read {
                continue;
            }
            let keys = self.t.ops.at(packet.op).keys;
            let able = self.paths.ready_with(channel, |caps| caps.read);
            let able = if keys == NONE { 0 } else { self.with_keys(channel, keys, able) };
            if able == 0 {
                if self.paths.ready(channel) != 0 && self.t.ops.at(packet.op).posts == 0 {
                    self.ask_anew(packet.op);
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
            self.t.channels.at_mut(channel).replaying &= !REPLAY_READS;
        }
        Step::Idle
    }

    /// A read has failed on an invalid key: the rail counts as a rail without a key for this message.
    pub(super) fn key_is_invalid(&mut self, packet: &Packet) {
        let rail = self.t.sub(packet.channel, RailId(packet.rail)).peer_rail;
        let keys = self.t.ops.at(packet.op).keys;
        if keys != NONE {
            self.t.key_sets.at_mut(keys).forget(rail);
        }
        self.close_line(packet.channel);
        self.t.channels.at_mut(packet.channel).replaying |= REPLAY_READS;
        self.activate(packet.channel);
    }

    /// A subchannel can't access its peer's memory: messages that were to be read over it use another method
    ///
    pub(super) fn remote_access_denied(&mut self, peer: PeerId, rail: RailId) {
        let known = usize::from(rail.0) < self.paths.rails.len();
        let Some(channel) = self.t.channel_of(peer).filter(|_| known) else { return };
        let sub = self.t.sub(channel, rail);
        let theirs = sub.peer_rail;
        self.paths.path_mut(channel, rail).no_remote_access = true;
        let list = self.t.channels.at(channel).bulk;
        let mut op = list.head();
        while op != NONE {
            let keys = self.t.ops.at(op).keys;
            if keys != NONE {
                self.t.key_sets.at_mut(keys).forget(theirs);
            }
            op = list.next(&mut By(&mut self.t.ops, op_queue), op);
        }
        self.activate(channel);
    }

    /// A message that was being read can't be read any more: all of it is sent by put or data segments (X-4,
    ///
    pub(super) fn ask_anew(&mut self, op: u32) {
        let mut walk = self.t.packets.walk();
        while let Some(index) = self.t.packets.step(&mut walk) {
            let packet = self.t.packets.at(index);
            if packet.op == op && packet.what == What::Read && packet.lost {
                self.t.packets.remove_at(index);
            }
        }
        let slot = self.t.ops.at(op);
        debug_assert!(slot.phase() == Phase::Reading && slot.kind() != OpKind::Send && slot.posts == 0);
        if slot.queued == Queue::Bulk {
            self.t.dequeue(op);
        }
        self.drop_stripes(op);
        let keys = core::mem::replace(&mut self.t.ops.at_mut(op).keys, NONE);
        self.drop_key_set(keys, false);
        let slot = self.t.ops.at_mut(op);
        (slot.cursor, slot.moved, slot.single, slot.all_sent) = (0, 0, None, false);
        self.begin_transfer(op, NONE, false);
    }

    /// Moves parts of transfers whose rail is gone to rails that are up.
    pub(super) fn move_orphans(&mut self, channel: u32, op: u32) {
        let slot = *self.t.ops.at(op);
        let ready = self.paths.ready(channel);
        let able = match slot.phase() {
            Phase::Writing => self.paths.ready_with(channel, |caps| caps.write),
            Phase::Reading => self.paths.ready_with(channel, |caps| caps.read),
            _ => ready,
        };
        let keyed = if slot.keys == NONE { able } else { self.with_keys(channel, slot.keys, able) };
        let is_keyless = keyed == 0 && slot.keys != NONE;
        // A FIN alone needs no key.
        let fit = |rest: bool| if rest || slot.phase() != Phase::Writing { keyed } else { ready };
        if let Some(rail) = slot.single {
            let able = fit(slot.cursor < slot.granted);
            if able >> rail.0 & 1 == 1 || slot.unconfirmed != 0 {
                return;
            }
            if able != 0 {
                // Its written bytes are separate: their FIN goes behind them.
                if slot.phase() == Phase::Writing && self.unconfirmed(op) & ready != 0 {
                    return self.ask_for_keys(channel, op);
                }
                let other = self.paths.idlest(channel, able);
                let slot = self.t.ops.at_mut(op);
                slot.single = Some(other);
                if slot.fins_due != 0 {
                    slot.fins_due = 1 << other.0;
                }
            } else if is_keyless {
                self.ask_for_keys(channel, op);
            }
            return;
        }
        let set = slot.stripes;
        let pending = self.paths.stripe_sets.at(set).pending;
        for part in rails_of(pending & !slot.unconfirmed) {
            let Part { carrier, written, .. } = self.paths.parts_of(set)[usize::from(part.0)];
            let stripe = self.paths.stripes_of(set)[usize::from(part.0)];
            let able = fit(stripe.next < stripe.end);
            if able >> carrier & 1 == 1 {
                continue;
            }
            if able != 0 && !(written.is_some() && ready >> carrier & 1 == 1) {
                let other = self.paths.idlest(channel, able);
                self.paths.parts_of_mut(set)[usize::from(part.0)].carrier = other.0;
                let set = self.paths.stripe_sets.at_mut(set);
                set.moved |= 1 << part.0;
                set.helpers = 0;
            } else if is_keyless || able != 0 {
                return self.ask_for_keys(channel, op);
            }
        }
    }
}
