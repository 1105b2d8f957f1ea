//! Rendezvous: the choice of variant, and its messages (resilient-2010, IV.A.2; rules ).
//!
//! The receiver chooses when it has matched: *get* where a common rail can read the sender's memory, else
//! *put* where its own memory can be written, else *data segments*.

use super::tables::{KeySet, op_queue};
use super::{Endpoint, MessageClass, OpError, RailFault, Registration};
use crate::ids::{OpId, PeerId, RailId};
use crate::op::{Control, Op, OpKind, Phase, Queue, What};
use crate::store::NONE;
use crate::store::list::By;
use crate::time::Time;
use crate::wire::{Cts, Fin, KEYS_MAX, RemoteKey, Resume};

impl Endpoint<'_> {
    /// A receive has its RTS: `keys` is the set of the source buffer's keys, or [`NONE`].
    pub(super) fn begin_rendezvous(&mut self, now: Time, op: u32, keys: u32) {
        let channel = self.op(op).channel;
        let readable = match keys {
            NONE => 0,
            keys => {
                let mask = self.paths.ready_with(channel, |caps| caps.read);
                self.with_keys(channel, keys, mask)
            }
        };
        let (is_to_be_read, measured) = self.paths.is_to_be_read(now, channel, self.op(op).granted, readable);
        if let Some(measured) = measured {
            self.op_mut(op).measured = measured;
        }
        self.begin_transfer(op, keys, is_to_be_read);
    }

    /// The receiver's answer to an RTS.
    fn begin_transfer(&mut self, op: u32, keys: u32, is_to_be_read: bool) {
        let &Op { channel, segments, .. } = self.op(op);
        // A key names one contiguous piece.
        let writable = if segments == 1 { self.paths.ready_with(channel, |caps| caps.write) } else { 0 };
        let writable = self.paths.eligible(MessageClass::Large, writable);
        let slot = self.op_mut(op);
        slot.needs_fin = true;
        if slot.granted == 0 {
            // Nothing fits: the FIN alone completes it.
            slot.enter(Phase::Data);
            self.drop_key_set(keys, false);
            self.complete_if_done(op);
        } else if is_to_be_read {
            slot.enter(Phase::Reading);
            slot.keys = keys;
            self.t.enqueue(op, Queue::Bulk);
            self.activate(channel);
        } else {
            self.drop_key_set(keys, false);
            let bytes = self.op(op).granted;
            let keyed = self.paths.fastest(channel, writable, KEYS_MAX as u32);
            let keyed = self.paths.rails_to_register(channel, (Registration::Writable, bytes), keyed); // P-15
            let set = if writable == 0 { None } else { self.t.key_sets.insert(KeySet::default()) };
            let slot = self.op_mut(op);
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
    fn answer_resume(&mut self, op: u32) {
        let &Op { channel, keys: set, stage, .. } = self.op(op);
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
        let requested = if keyed & writable == 0 { self.paths.fastest(channel, writable, room as u32) } else { 0 };
        if requested == 0 {
            return self.send_control(op, Control::Cts);
        }
        let slot = self.op_mut(op);
        slot.enter(Phase::Registering);
        slot.to_register = requested;
        self.send_control(op, Control::Register);
    }

    /// A rail has registered an operation's memory, or could not. Late answers are dropped.
    pub fn handle_registered(&mut self, operation: OpId, rail: RailId, key: Result<RemoteKey, RailFault>) {
        let requested = |op: &&mut Op| u32::from(rail.0) < u64::BITS && op.registering >> rail.0 & 1 == 1;
        let Some(slot) = self.t.ops.get_mut(operation.0).filter(requested) else {
            // Its operation is complete: the registration is not needed any more.
            self.stats.stale_dropped += 1;
            if let Ok(key) = key {
                // A batch limits the requests, so no more of them are late at once.
                let _ = self.late_keys.push_back((rail, RemoteKey { rail: rail.0, ..key }));
                self.has_rare_actions = true;
                self.hot.may_have_work = true;
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
            slot.needs_fin = is_keyless;
            // Without recovery the sender completes when its own writes complete.
            let is_fin_pending = slot.needs_fin || self.config.recovery;
            self.set_fins_pending(op, is_fin_pending);
            self.send_control(op, Control::Cts);
        }
    }

    /// The receiver has matched our message.
    pub(super) fn arrive_cts(&mut self, channel: u32, cts: &Cts) {
        let written = self.t.find_op(cts.operation).filter(|&op| {
            let slot = self.op(op);
            slot.channel == channel && slot.kind() == OpKind::Send && slot.phase() == Phase::Writing && !slot.fin_seen
        });
        if let Some(op) = written {
            if cts.epoch == self.op(op).epoch.wrapping_add(1) {
                self.begin_epoch(channel, op, cts); // F-7
            } else {
                self.stats.stale_dropped += 1;
            }
            return;
        }
        let Some(op) = self.find_own(channel, cts.operation, OpKind::Send, Phase::Waiting) else { return };
        self.drop_keys(op);
        let writable = self.paths.ready_with(channel, |caps| caps.write);
        let slot = self.op_mut(op);
        slot.granted = cts.granted_bytes.min(slot.len);
        slot.remote = cts.target;
        slot.epoch = cts.epoch;
        let mut keys = NONE;
        if !cts.keys.is_empty()
            && let Some(set) = self.t.key_sets.insert(KeySet::of(&cts.keys))
        {
            if self.with_keys(channel, set.index, writable) != 0 {
                keys = set.index;
            } else {
                self.t.key_sets.remove(set);
            }
        }
        let slot = self.op_mut(op);
        slot.keys = keys;
        slot.enter(if keys == NONE { Phase::Data } else { Phase::Writing });
        self.t.enqueue(op, Queue::Bulk);
        self.activate(channel);
    }

    /// The end of a transfer, or a refusal.
    pub(super) fn arrive_fin(&mut self, channel: u32, fin: &Fin) {
        let Some(op) = self.t.find_op(fin.operation).filter(|&op| self.op(op).channel == channel) else {
            self.stats.stale_dropped += 1;
            return;
        };
        let slot = self.op_mut(op);
        // An injected message is complete for the caller before the peer has received it.
        if slot.completed && (slot.kind() != OpKind::Send || slot.fin_seen) {
            self.stats.stale_dropped += 1;
            return;
        }
        self.activate(channel);
        let slot = self.op_mut(op);
        if let Some(why) = fin.refused {
            let error = OpError::Refused { peer: slot.peer, why };
            match slot.kind() {
                // The rest need not be sent; the last acknowledgment completes it.
                OpKind::Put => {
                    slot.error = Some(error);
                    slot.all_sent = true;
                    slot.fin_seen = slot.phase() == Phase::Waiting;
                    if slot.queued == Queue::Bulk {
                        self.t.dequeue(op);
                        self.drop_stripes(op);
                    }
                    self.complete_if_done(op);
                }
                OpKind::Get | OpKind::Atomic if slot.phase() != Phase::Queued => {
                    // Complete when no placement into the buffer is in progress any more.
                    slot.error = Some(error);
                    slot.fin_seen = true;
                    slot.moved = slot.granted;
                    self.complete_if_done(op);
                }
                //
                OpKind::Send if slot.phase() == Phase::Waiting => {
                    slot.error = Some(error);
                    slot.fin_seen = true;
                    self.drop_keys(op);
                    self.complete_if_done(op);
                }
                _ => self.stats.stale_dropped += 1,
            }
            return;
        }
        let slot = self.op_mut(op);
        match (slot.kind(), slot.phase()) {
            (OpKind::Put, Phase::Waiting) => slot.fin_seen = true,
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
                if slot.epoch == fin.epoch && slot.control == Control::None =>
            {
                slot.fins = slot.fins.saturating_add(1);
                slot.fins_expected = fin.count;
                // Acknowledgments prove that FINs arrived, not that they counted (F-7).
                slot.needs_fin = fin.want_placed;
            }
            _ => self.stats.stale_dropped += 1,
        }
        self.complete_if_done(op);
    }

    /// A live operation of ours that the peer of `channel` may name.
    pub(super) fn find_own(&mut self, channel: u32, id: u64, kind: OpKind, phase: Phase) -> Option<u32> {
        let found = self.t.find_op(id).filter(|&op| {
            let slot = self.op(op);
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

    /// The sender of a message that is being written requests a new epoch.
    pub(super) fn arrive_resume(&mut self, channel: u32, resume: &Resume) {
        let Some(op) = self.t.find_op(resume.target).filter(|&op| {
            let slot = self.op(op);
            let is_newer = (resume.epoch.wrapping_sub(slot.epoch) as i16) > 0;
            // Or it is registering memory for the epoch before.
            let is_written = matches!(slot.phase(), Phase::Written | Phase::Registering);
            let waits = matches!(slot.kind(), OpKind::Recv | OpKind::Part) && is_written;
            slot.channel == channel && waits && is_newer && !slot.completed
        }) else {
            // It has all FINs, and its own is in flight; or it has begun the epoch already.
            self.stats.stale_dropped += 1;
            return;
        };
        let slot = self.op_mut(op);
        slot.epoch = resume.epoch;
        (slot.fins, slot.fins_expected) = (0, 0);
        if slot.queued == Queue::None {
            self.answer_resume(op);
        }
    }

    /// A message that was being read can't be read any more: all of it is sent by put or data segments (X-4,
    ///
    pub(super) fn restart_read(&mut self, op: u32) {
        let mut walk = self.t.packets.walk();
        while let Some(index) = self.t.packets.step(&mut walk) {
            let packet = self.packet(index);
            if packet.op == op && packet.what == What::Read && packet.lost {
                self.t.packets.remove_at(index);
            }
        }
        let slot = self.op(op);
        debug_assert!(slot.phase() == Phase::Reading && slot.kind() != OpKind::Send && slot.posts == 0);
        if slot.queued == Queue::Bulk {
            self.t.dequeue(op);
        }
        self.drop_stripes(op);
        let keys = core::mem::replace(&mut self.op_mut(op).keys, NONE);
        self.drop_key_set(keys, false);
        let slot = self.op_mut(op);
        (slot.cursor, slot.moved, slot.single, slot.all_sent) = (0, 0, None, false);
        self.begin_transfer(op, NONE, false);
    }

    /// A subchannel can't access its peer's memory: messages that were to be read over it use another method
    ///
    pub(super) fn remote_access_denied(&mut self, peer: PeerId, rail: RailId) {
        let known = usize::from(rail.0) < self.paths.rails.len();
        let Some(channel) = self.t.channel_of(peer).filter(|_| known) else { return };
        let sub = self.sub_mut(channel, rail);
        let theirs = sub.peer_rail;
        self.paths.path_mut(channel, rail).no_remote_access = true;
        let list = self.channel(channel).queues.bulk;
        let mut op = list.head();
        while op != NONE {
            let keys = self.op(op).keys;
            if keys != NONE {
                self.t.key_sets.at_mut(keys).forget(theirs);
            }
            op = list.next(&mut By(&mut self.t.ops, op_queue), op);
        }
        self.activate(channel);
    }
}
