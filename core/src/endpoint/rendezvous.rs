//! Rendezvous: the choice of variant, and its messages (resilient-2010, IV.A.2; rules ).
//!
//! The receiver chooses when it has matched: *get* where a common rail can read the sender's memory, else
//! *put* where its own memory can be written, else *data segments*.

use super::op::{Control, Op, OpKind, Phase, Queue};
use super::tables::KeySet;
use super::{Endpoint, MessageClass, OpError, RailFault, Registration};
use crate::ids::{OpId, RailId};
use crate::store::NONE;
use crate::time::Time;
use crate::wire::{Cts, Fin, KEYS_MAX, RemoteKey, RemoteKeys};

impl Endpoint<'_> {
    /// The key of a set for our rail `rail` and its current connection: a key may arrive late over
    /// another rail, when the peer's device has given the same key to other memory (F-7).
    pub(super) fn key_for(&mut self, channel: u32, set: u32, rail: RailId) -> Option<RemoteKey> {
        let sub = self.t.sub(channel, rail);
        let (rail, connection) = (sub.peer_rail, sub.link.pair().yours as u16);
        let keys = self.t.key_sets.at(set).as_slice().iter();
        keys.copied().find(|key| key.rail == rail && key.connection == connection)
    }

    /// The keys of our memory to send to the peer: each with the current connection of its rail.
    pub(super) fn keys_to_tell(&self, channel: u32, set: u32) -> RemoteKeys {
        if set == NONE {
            return RemoteKeys::new();
        }
        let mut keys = self.t.key_sets.at(set).to_vec();
        for key in &mut keys {
            let sub = &self.t.subs[self.t.sub_index(channel, RailId(key.rail))];
            key.connection = sub.link.pair().mine as u16;
        }
        keys
    }

    /// Rails of `mask` for which the set has a key.
    pub(super) fn with_keys(&mut self, channel: u32, set: u32, mask: u64) -> u64 {
        let mut found = 0;
        for rail in 0..self.paths.rails.len() as u8 {
            if mask >> rail & 1 == 1 && self.key_for(channel, set, RailId(rail)).is_some() {
                found |= 1 << rail;
            }
        }
        found
    }

    /// A receive has its RTS: `keys` is the set of the source buffer's keys, or [`NONE`].
    pub(super) fn begin_rendezvous(&mut self, now: Time, op: u32, keys: u32) {
        let channel = self.t.ops.at(op).channel;
        let readable = match keys {
            NONE => 0,
            keys => {
                let mask = self.paths.ready_with(channel, |caps| caps.read);
                self.with_keys(channel, keys, mask)
            }
        };
        let (is_to_be_read, measured) = self.paths.is_to_be_read(now, channel, self.t.ops.at(op).granted, readable);
        if let Some(measured) = measured {
            self.t.ops.at_mut(op).measured = measured;
        }
        self.begin_transfer(op, keys, is_to_be_read);
    }

    /// The pending FIN of an operation begins or ends (P-3).
    pub(super) fn set_fins_pending(&mut self, op: u32, owes: bool) {
        if owes && !self.paths.policies.cut(MessageClass::Large).estimates {
            return;
        }
        let slot = self.t.ops.at_mut(op);
        if core::mem::replace(&mut slot.fin_pending, owes) != owes {
            self.paths.set_fin_pending(slot.channel, owes);
        }
    }

    /// The receiver's answer to an RTS.
    pub(super) fn begin_transfer(&mut self, op: u32, keys: u32, is_to_be_read: bool) {
        let slot = *self.t.ops.at(op);
        let channel = slot.channel;
        // A key names one contiguous piece.
        let contiguous = slot.segments == 1;
        let writable = if contiguous { self.paths.ready_with(channel, |caps| caps.write) } else { 0 };
        let writable = self.paths.eligible(MessageClass::Large, writable);
        let slot = self.t.ops.at_mut(op);
        slot.fin_wanted = true;
        if slot.granted == 0 {
            // Nothing fits: the FIN alone completes it.
            slot.enter(Phase::Data);
            self.drop_key_set(keys, false);
            self.settle(op);
        } else if is_to_be_read {
            slot.enter(Phase::Reading);
            slot.keys = keys;
            self.t.enqueue(op, Queue::Bulk);
            self.activate(channel);
        } else {
            self.drop_key_set(keys, false);
            let bytes = self.t.ops.at(op).granted;
            let keyed = self.paths.fastest(channel, writable, KEYS_MAX as u32);
            let keyed = self.paths.asked_for_keys(channel, (Registration::Writable, bytes), keyed); // P-15
            let set = if writable == 0 { None } else { self.t.key_sets.insert(KeySet::default()).ok() };
            let slot = self.t.ops.at_mut(op);
            if let Some(set) = set {
                slot.enter(Phase::Registering);
                slot.keys = set.index;
                slot.to_register = keyed;
                self.send_control(op, Control::Register);
            } else {
                slot.enter(Phase::Data);
                self.set_fins_pending(op, true);
                self.send_control(op, Control::Cts);
            }
        }
    }

    /// Begins a new retry epoch of a message that is being written (F-7): with the existing keys, if a rail
    /// that is up has one of them; otherwise requests others, including those that the plan had left out
    /// (P-15).
    pub(super) fn answer_round(&mut self, op: u32) {
        let &Op { channel, keys: set, stage, .. } = self.t.ops.at(op);
        if stage.phase() == Phase::Registering {
            return; // The CTS of the newest round follows.
        }
        let writable = self.paths.ready_with(channel, |caps| caps.write);
        let writable = self.paths.eligible(MessageClass::Large, writable);
        let (mut keyed, mut room) = (0u64, 0);
        if set != NONE {
            let keys = self.t.key_sets.at(set).as_slice();
            keyed = keys.iter().fold(0, |mask, key| mask | 1 << key.rail);
            room = KEYS_MAX - keys.len();
        }
        let asked = if keyed & writable == 0 { self.paths.fastest(channel, writable, room as u32) } else { 0 };
        if asked == 0 {
            return self.send_control(op, Control::Cts);
        }
        let slot = self.t.ops.at_mut(op);
        slot.enter(Phase::Registering);
        slot.to_register = asked;
        self.send_control(op, Control::Register);
    }

    /// A rail has registered an operation's memory, or could not. Late answers are dropped.
    pub fn handle_registered(&mut self, operation: OpId, rail: RailId, key: Result<RemoteKey, RailFault>) {
        let asked = |op: &&mut Op| u32::from(rail.0) < u64::BITS && op.registering >> rail.0 & 1 == 1;
        let Some(slot) = self.t.ops.get_mut(operation.0).filter(asked) else {
            // Its operation is complete: the registration is not needed any more.
            self.stats.stale_dropped += 1;
            if let Ok(key) = key {
                // A batch limits the requests, so no more of them are late at once.
                let _ = self.late_keys.push_back((rail, RemoteKey { rail: rail.0, ..key }));
            }
            return;
        };
        let op = operation.0.index;
        slot.registering &= !(1 << rail.0);
        let (set, done, channel) = (slot.keys, slot.registering == 0 && slot.to_register == 0, slot.channel);
        if let (Ok(key), true) = (key, set != NONE) {
            self.t.key_sets.at_mut(set).push(RemoteKey { rail: rail.0, ..key });
        }
        if !done {
            return;
        }
        let slot = self.t.ops.at_mut(op);
        if slot.kind() == OpKind::Send {
            slot.enter(Phase::Queued);
            self.activate(channel);
        } else {
            let is_keyless = self.t.key_sets.at(set).as_slice().is_empty();
            slot.enter(if is_keyless { Phase::Data } else { Phase::Written });
            slot.fin_wanted = is_keyless;
            // Without recovery the sender completes when its own writes complete.
            let owes = slot.fin_wanted || self.config.recovery;
            self.set_fins_pending(op, owes);
            self.send_control(op, Control::Cts);
        }
    }

    /// The receiver has matched our message.
    pub(super) fn arrive_cts(&mut self, channel: u32, cts: &Cts) {
        let written = self.t.find_op(cts.operation).filter(|&op| {
            let slot = self.t.ops.at(op);
            slot.channel == channel && slot.kind() == OpKind::Send && slot.phase() == Phase::Writing && !slot.fin_seen
        });
        if let Some(op) = written {
            if cts.round == self.t.ops.at(op).round.wrapping_add(1) {
                self.begin_round(channel, op, cts); // F-7
            } else {
                self.stats.stale_dropped += 1;
            }
            return;
        }
        let Some(op) = self.find_own(channel, cts.operation, OpKind::Send, Phase::Waiting) else { return };
        self.drop_keys(op);
        let writable = self.paths.ready_with(channel, |caps| caps.write);
        let slot = self.t.ops.at_mut(op);
        slot.granted = cts.granted_bytes.min(slot.len);
        slot.remote = cts.target;
        slot.round = cts.round;
        let mut keys = NONE;
        if !cts.keys.is_empty()
            && let Ok(set) = self.t.key_sets.insert(KeySet::of(&cts.keys))
        {
            if self.with_keys(channel, set.index, writable) != 0 {
                keys = set.index;
            } else {
                self.t.key_sets.remove(set);
            }
        }
        let slot = self.t.ops.at_mut(op);
        slot.keys = keys;
        slot.enter(if keys == NONE { Phase::Data } else { Phase::Writing });
        self.t.enqueue(op, Queue::Bulk);
        self.activate(channel);
    }

    /// The end of a transfer, or a refusal.
    pub(super) fn arrive_fin(&mut self, channel: u32, fin: &Fin) {
        let Some(op) = self.t.find_op(fin.operation).filter(|&op| self.t.ops.at(op).channel == channel) else {
            self.stats.stale_dropped += 1;
            return;
        };
        let slot = self.t.ops.at_mut(op);
        // An injected message is complete for the caller before the peer has received it.
        if slot.completed && (slot.kind() != OpKind::Send || slot.fin_seen) {
            self.stats.stale_dropped += 1;
            return;
        }
        self.activate(channel);
        let slot = self.t.ops.at_mut(op);
        if let Some(why) = fin.refused {
            let error = OpError::Refused { peer: slot.peer, why };
            match slot.kind() {
                // The rest need not be sent; the last acknowledgment completes it.
                OpKind::Put => {
                    slot.error = Some(error);
                    slot.all_sent = true;
                    if slot.queued == Queue::Bulk {
                        self.t.dequeue(op);
                        self.drop_stripes(op);
                    }
                    self.settle(op);
                }
                OpKind::Get | OpKind::Atomic if slot.phase() != Phase::Queued => {
                    // Complete when no placement into the buffer is in progress any more.
                    slot.error = Some(error);
                    slot.fin_seen = true;
                    slot.moved = slot.granted;
                    self.settle(op);
                }
                //
                OpKind::Send if slot.phase() == Phase::Waiting => {
                    slot.error = Some(error);
                    slot.fin_seen = true;
                    self.drop_keys(op);
                    self.settle(op);
                }
                _ => self.stats.stale_dropped += 1,
            }
            return;
        }
        let slot = self.t.ops.at_mut(op);
        match (slot.kind(), slot.phase()) {
            (OpKind::Send, Phase::Waiting | Phase::Data | Phase::Writing | Phase::EagerSent) => {
                slot.fin_seen = true;
                slot.moved = fin.placed_bytes.min(slot.len);
                // A FIN before all is sent means that the receiver needs no more.
                if slot.queued == Queue::Bulk {
                    slot.all_sent = true;
                    self.t.dequeue(op);
                    self.drop_stripes(op);
                }
                self.drop_keys(op);
            }
            (OpKind::Recv | OpKind::Part, Phase::Written)
                if slot.round == fin.round && slot.control == Control::None =>
            {
                slot.fins = slot.fins.saturating_add(1);
                slot.fins_expected = fin.count;
                // Acknowledgments prove that FINs arrived, not that they counted (F-7).
                slot.fin_wanted = fin.want_placed;
            }
            _ => self.stats.stale_dropped += 1,
        }
        self.settle(op);
    }

    /// A live operation of ours that the peer of `channel` may name.
    pub(super) fn find_own(&mut self, channel: u32, id: u64, kind: OpKind, phase: Phase) -> Option<u32> {
        let found = self.t.find_op(id).filter(|&op| {
            let slot = self.t.ops.at(op);
            // Not `completed`: an injected message is complete for the caller before the peer has received
            // it.
            let through = slot.fin_seen || slot.error.is_some();
            slot.channel == channel && slot.kind() == kind && slot.phase() == phase && !through
        });
        if found.is_none() {
            self.stats.stale_dropped += 1;
        }
        found
    }
}
