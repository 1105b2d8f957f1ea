//! [`Planted::ReplayUnfenced`]: goes on over the other rails when one fails, without asking the peer.
//!
//! Packets go out again with their numbers, so the peer's window sorts out those that it has. Remote writes have no
//! numbers: each part of a message whose FIN is not acknowledged is written again whole, and its FIN follows on the same
//! rail; parts keep the name of the rail that they were planned for, so the count of FINs stays right. What is missing
//! is the fence, and that is the bug: the dead rail may still write.

use super::super::action::Action;
use super::super::channel::{PlaceTo, Shortage, UNORDERED};
use super::super::op::{OpKind, Phase, Queue, What};
use super::super::packets::Actions;
use super::super::pump::Step;
use super::super::{Endpoint, Post};
use super::Planted;
use crate::ids::{Key, PostId, RailId};
use crate::store::NONE;
use crate::time::Time;
use crate::wire::{Body, Repr};

impl Endpoint<'_> {
    /// The rail that carries what was planned for rail `part`.
    pub(in super::super) fn carrier(&mut self, channel: u32, part: RailId) -> RailId {
        let stands = self.t.sub(channel, part).is_ready();
        if stands || !self.planted(Planted::ReplayUnfenced) {
            return part;
        }
        let writes = self.rails[usize::from(part.0)].caps.write;
        let alike = self.ready_with(channel, |caps| caps.write || !writes);
        let mask = if alike == 0 { self.ready(channel) } else { alike };
        if mask == 0 { part } else { RailId(mask.trailing_zeros() as u8) }
    }

    /// Of the parts that are not through, those whose carrier is to be fed.
    pub(in super::super) fn parts_to_feed(&mut self, channel: u32, pending: u64) -> u64 {
        let feed = self.t.channels.at(channel).rooms.feed;
        if !self.planted(Planted::ReplayUnfenced) {
            return feed & pending;
        }
        (0..64)
            .filter(|part| pending >> part & 1 == 1 && feed >> self.carrier(channel, RailId(*part)).0 & 1 == 1)
            .fold(0, |parts, part| parts | 1 << part)
    }

    /// A rail of a channel has failed. `false`: the bug is not planted, or doesn't know how to go on.
    pub(in super::super) fn replay_unfenced(&mut self, channel: u32, dead: RailId) -> bool {
        if !self.planted(Planted::ReplayUnfenced) {
            return false;
        }
        let peer = self.t.channels.at(channel).peer;
        let others = self.t.peers[peer.0 as usize].rails & !(1 << dead.0);
        let place = self.t.sub(channel, dead).place;
        let ordered = place.is_some_and(|place| place.lane != UNORDERED);
        let reads = self.packets_on(channel, dead).any(|(_, what)| what == What::Read);
        let first = RailId(others.trailing_zeros() as u8 & 63);
        if others == 0 || self.ready(channel) & others != others || ordered || reads || !self.has_keys(channel, first) {
            return false;
        }
        if let Some(place) = place {
            let window = self.config.window;
            let (slot, bits) = self.t.received(channel, UNORDERED);
            slot.received[UNORDERED].unclaim(bits, window, place.psn);
            match place.to {
                PlaceTo::Op(op) => self.t.ops.at_mut(op).places -= 1,
                PlaceTo::Window { window, .. } => self.t.windows.at_mut(window).users -= 1,
                PlaceTo::Message(_) => {}
            }
        }
        self.forget_backlog(channel, dead);
        self.t.sub(channel, dead).reset();
        self.refresh(channel, dead);
        let fins = self.take_packets(channel, dead);
        for op in 0..self.t.ops.capacity() {
            if self.t.ops.key_at(op).is_none() || self.t.ops.at(op).channel != channel {
                continue;
            }
            let slot = self.t.ops.at(op);
            if slot.kind == OpKind::Send && slot.phase == Phase::Writing {
                let unsure = slot.fins_due >> dead.0 & 1 == 1 || fins.contains(&op);
                if unsure {
                    self.rewrite(op, dead);
                }
            }
            self.settle(op);
        }
        // The last acknowledgment may have been on that rail.
        self.t.channels.at_mut(channel).ack.make_due();
        self.activate(channel);
        true
    }

    /// Packets, writes and reads on one rail.
    fn packets_on(&self, channel: u32, rail: RailId) -> impl Iterator<Item = (Key, What)> {
        (0..self.t.packets.capacity()).filter_map(move |index| {
            let key = self.t.packets.key_at(index)?;
            let packet = self.t.packets.at(index);
            (packet.channel == channel && packet.rail == rail.0).then_some((key, packet.what))
        })
    }

    /// Whether every message that is being written could be written over `rail`.
    fn has_keys(&mut self, channel: u32, rail: RailId) -> bool {
        (0..self.t.ops.capacity()).all(|op| {
            let Some(slot) = self.t.ops.key_at(op).map(|_| *self.t.ops.at(op)) else { return true };
            let writes = slot.channel == channel && slot.kind == OpKind::Send && slot.phase == Phase::Writing;
            !writes || slot.keys == NONE || self.key_for(channel, slot.keys, rail).is_some()
        })
    }

    /// Takes what the dead rail had: packets to be sent again, the rest to be forgotten. Says which operations have a FIN
    /// among them.
    fn take_packets(&mut self, channel: u32, dead: RailId) -> std::vec::Vec<u32> {
        let mut fins = std::vec::Vec::new();
        let taken: std::vec::Vec<_> = self.packets_on(channel, dead).collect();
        for (key, _) in taken {
            let packet = *self.t.packets.at(key.index);
            if packet.posted {
                self.t.ops.at_mut(packet.op).posts -= 1;
            }
            let slot = self.t.packets.at_mut(key.index);
            slot.posted = false;
            if !packet.unacked {
                self.t.packets.remove(key);
                continue;
            }
            let sent = self.plants.sent.get(&key.index).filter(|post| post.id.0 == key);
            let repr = sent.and_then(|post| Repr::parse(&post.header).ok());
            if matches!(repr, Some(Repr { body: Body::Fin(_), .. })) {
                fins.push(packet.op);
            }
            self.plants.again.push_back((channel, key));
        }
        self.wake(Shortage::Packets);
        fins
    }

    /// Takes back all of the part of a message that was planned for a rail, to write it again.
    fn rewrite(&mut self, op: u32, dead: RailId) {
        let slot = *self.t.ops.at(op);
        if slot.single.is_none() && slot.stripes != NONE {
            let stripes = self.t.stripes_of(slot.stripes);
            // Parts follow each other in the order of their rails.
            let start = stripes[..usize::from(dead.0)].iter().map(|stripe| stripe.end).max().unwrap_or(0);
            let part = &mut stripes[usize::from(dead.0)];
            let handed_over = part.next.saturating_sub(start);
            part.next = start;
            self.t.ops.at_mut(op).cursor -= handed_over;
            self.t.stripe_sets.at_mut(slot.stripes).pending |= 1 << dead.0;
        } else if slot.single == Some(dead) {
            self.t.ops.at_mut(op).cursor = 0;
        } else {
            return;
        }
        self.t.ops.at_mut(op).all_sent = false;
        if slot.queued == Queue::None {
            self.t.enqueue(op, Queue::Bulk);
        }
    }

    /// Whether packets of a channel wait to be sent again.
    pub(in super::super) fn has_replays(&self, channel: u32) -> bool {
        self.plants.again.iter().any(|&(of, _)| of == channel)
    }

    /// Sends one packet of a dead rail again, as it was.
    pub(in super::super) fn pump_replay(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        for at in 0..self.plants.again.len() {
            let (of, key) = self.plants.again[at];
            if of != channel {
                continue;
            }
            let Some(packet) = self.t.packets.get(key).copied().filter(|packet| packet.unacked) else {
                self.plants.again.remove(at);
                return Step::Sent;
            };
            let slot = self.t.ops.at(packet.op);
            // A FIN follows what it stands for.
            let waits = slot.phase == Phase::Writing && !slot.all_sent;
            let rail = self.carrier(channel, RailId(packet.rail));
            if waits || !self.t.sub(channel, rail).is_ready() || !self.has_room(channel, rail) {
                continue;
            }
            self.plants.again.remove(at);
            let Some(post) = self.plants.sent.get(&key.index).cloned() else { return Step::Sent };
            let slot = self.t.packets.at_mut(key.index);
            slot.rail = rail.0;
            slot.posted = true;
            self.t.ops.at_mut(packet.op).posts += 1;
            self.note_posted(now, channel, rail, packet.len);
            self.stats.packets_sent += 1;
            let _ = out.push(Action::Post(Post { id: PostId(key), rail, ..post }));
            return Step::Sent;
        }
        Step::Idle
    }
}
