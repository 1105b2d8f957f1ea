//! Put rendezvous after a failure (F-7). A completion does not prove that memory was written (resilient-2010,
//! III.B); a FIN that arrived behind the writes does. So when a connection dies, all writes of a message over
//! it without an acknowledged FIN are unconfirmed. The sender writes them again over other rails in a new
//! *retry epoch* (round): it requests the epoch with RESUME; the receiver discards the FINs counted so far
//! and answers with a CTS of that epoch. From then on only FINs of that epoch count. The number of a lost FIN
//! carries the RESUME instead, so one of the two takes effect, whichever arrived.
//!
//! Every rail with unconfirmed writes sends a FIN in the new epoch behind them, even if it has nothing to
//! rewrite: once the receiver has all FINs, no write can land late.

use super::Endpoint;
use super::tables::KeySet;
use crate::ids::RailId;
use crate::op::{Control, Op, Packet, PartFin, Phase, Queue, What};
use crate::paths::{Part, StripeSet};
use crate::rail::rails_of;
use crate::rail::sched::Stripe;
use crate::store::NONE;
use crate::wire::Cts;

/// Flag beside the retry epoch in the `offset` of a RESUME: it has the number of a lost FIN.
pub(super) const IN_PLACE_OF_FIN: u64 = 1 << 16;

impl Endpoint<'_> {
    /// Parts of a transfer on a rail: bit per part.
    pub(super) fn parts_of_rail(&mut self, op: u32, rail: RailId) -> u64 {
        let &Op { single, stripes, .. } = self.op(op);
        match (single, stripes) {
            (Some(part), _) => u64::from(part == rail) << part.0,
            (None, NONE) => 0,
            (None, set) => {
                let parts = (0u8..).zip(self.paths.parts_of(set));
                parts.filter(|(_, part)| part.carrier == rail.0).fold(0, |mask, (part, _)| mask | 1 << part)
            }
        }
    }

    /// Parts with writes without an acknowledged FIN.
    pub(super) fn unconfirmed(&mut self, op: u32) -> u64 {
        let &Op { single, stripes, cursor, .. } = self.op(op);
        match (single, stripes) {
            (Some(part), _) => u64::from(cursor > 0) << part.0,
            (None, NONE) => 0,
            (None, set) => {
                let parts = (0u8..).zip(self.paths.parts_of(set));
                parts.filter(|(_, part)| part.written.is_some()).fold(0, |mask, (part, _)| mask | 1 << part)
            }
        }
    }

    /// The peer has a packet. If it is a part's FIN, the writes before it are in place.
    pub(super) fn confirm(&mut self, packet: &Packet) {
        if packet.what == What::Resume && packet.offset & IN_PLACE_OF_FIN != 0 {
            let slot = self.t.ops.at_mut(packet.op);
            // If the peer has the RESUME, its CTS is in flight; if the FIN, parts that no rail can continue
            // wait for this.
            if slot.phase() == Phase::Writing && slot.epoch.wrapping_add(1) == packet.offset as u16 {
                slot.fin_or_resume = true;
                self.activate(packet.channel);
            }
            return;
        }
        if packet.what != What::PartFin {
            return;
        }
        let PartFin { part, epoch } = PartFin::unpack(packet.offset);
        let slot = self.t.ops.at_mut(packet.op);
        if slot.epoch != epoch {
            return;
        }
        slot.unconfirmed &= !(1 << part.0);
        let set = slot.stripes;
        if set != NONE {
            self.paths.parts_of_mut(set)[usize::from(part.0)].written = None;
        }
    }

    /// Requests new retry epochs for a channel's messages with unconfirmed writes, where their rails are dead
    /// at both ends.
    pub(super) fn resume_unconfirmed(&mut self, channel: u32) {
        let mut ops = self.t.ops_of(channel);
        while let Some(op) = self.t.next_of(&mut ops) {
            let slot = self.op(op);
            let waits = slot.resume_due && slot.phase() == Phase::Writing && !slot.fin_seen;
            if waits && !self.are_unconfirmed_fenced_off(op) {
                self.request_epoch(op);
            }
        }
    }

    /// Whether an unconfirmed part was written over a connection whose peer end may be alive.
    fn are_unconfirmed_fenced_off(&mut self, op: u32) -> bool {
        let &Op { channel, unconfirmed, single, stripes, .. } = self.op(op);
        rails_of(unconfirmed).any(|part| {
            let carrier = match (single, stripes) {
                (Some(rail), _) => rail,
                (None, NONE) => return false,
                (None, set) => RailId(self.paths.parts_of(set)[usize::from(part.0)].carrier),
            };
            self.is_fenced_off(channel, carrier)
        })
    }

    /// Sends RESUME; nothing more is written until the CTS of the new epoch arrives.
    pub(super) fn request_epoch(&mut self, op: u32) {
        let slot = self.op_mut(op);
        (slot.resume_due, slot.fin_or_resume) = (false, false);
        if slot.queued == Queue::Bulk {
            self.t.dequeue(op);
        }
        if self.op(op).queued == Queue::None {
            self.send_control(op, Control::Resume);
        }
    }

    /// The receiver has begun a new epoch.
    pub(super) fn begin_epoch(&mut self, channel: u32, op: u32, cts: &Cts) {
        let fenced_off = self.are_unconfirmed_fenced_off(op);
        let keys = core::mem::replace(&mut self.op_mut(op).keys, NONE);
        self.drop_key_set(keys, false);
        if !cts.keys.is_empty()
            && let Some(set) = self.t.key_sets.insert(KeySet::with_gaps(&cts.keys))
        {
            self.op_mut(op).keys = set.index;
        }
        let keys = self.op(op).keys;
        let writable = self.paths.ready_with(channel, |caps| caps.write);
        let able = if keys == NONE { 0 } else { self.with_keys(channel, keys, writable) };
        let slot = self.op_mut(op);
        slot.epoch = cts.epoch;
        (slot.all_sent, slot.fin_or_resume) = (false, false);
        let &mut Op { single, stripes, unconfirmed, cursor, queued, .. } = slot;
        if queued == Queue::Control {
            // Another failure requested one meanwhile: this epoch answers it.
            self.t.dequeue(op);
            self.op_mut(op).control = Control::None;
        }
        if fenced_off {
            // Another connection has died, and its writes may still land: request the next epoch.
            let slot = self.op_mut(op);
            slot.resume_due = true;
            return;
        }
        if able == 0 {
            self.drop_stripes(op);
            let slot = self.op_mut(op);
            slot.enter(Phase::Data);
            (slot.single, slot.cursor, slot.unconfirmed) = (None, 0, 0);
            (slot.fins_due, slot.fins_expected) = (0, 0);
        } else if let Some(rail) = single {
            let slot = self.op_mut(op);
            if unconfirmed != 0 || cursor == 0 {
                (slot.single, slot.cursor, slot.unconfirmed) = (None, 0, 0);
                (slot.fins_due, slot.fins_expected) = (0, 0);
            } else {
                (slot.fins_due, slot.fins_expected) = (1 << rail.0, 1);
                if able >> rail.0 & 1 == 0 {
                    self.part_of_single(channel, op, rail);
                }
            }
        } else if stripes != NONE {
            self.open_parts(op, stripes);
        }
        if able != 0 && self.op(op).stripes != NONE {
            self.reassign_rests(channel, op, able);
        }
        self.drop_keys_if_unused(op);
        let slot = self.op_mut(op);
        if slot.queued != Queue::Bulk {
            self.t.enqueue(op, Queue::Bulk);
        }
        self.activate(channel);
    }

    fn drop_keys_if_unused(&mut self, op: u32) {
        if self.op(op).phase() == Phase::Data {
            let keys = core::mem::replace(&mut self.op_mut(op).keys, NONE);
            self.drop_key_set(keys, false);
        }
    }

    /// Converts a message whose only rail can't write any more to parts, if a stripe set is free: otherwise
    /// the next epoch may find one.
    fn part_of_single(&mut self, channel: u32, op: u32, rail: RailId) {
        let &Op { cursor, granted, .. } = self.op(op);
        if cursor >= granted {
            return;
        }
        let bit = 1 << rail.0;
        let slot = StripeSet { pending: bit, planned: bit, ..StripeSet::default() };
        let Some(set) = self.paths.stripe_sets.insert(slot) else { return };
        self.paths.stripes_of_mut(set.index).fill(Stripe::default());
        for (rail, part) in (0u8..).zip(self.paths.parts_of_mut(set.index)) {
            *part = Part::of(RailId(rail), 0, 0);
        }
        let index = usize::from(rail.0);
        self.paths.stripes_of_mut(set.index)[index] = Stripe { next: cursor, end: granted };
        let part = &mut self.paths.parts_of_mut(set.index)[index];
        (part.bytes, part.written) = (granted, Some((0, cursor)));
        self.paths.path_mut(channel, rail).planned += granted - cursor;
        let slot = self.op_mut(op);
        (slot.single, slot.stripes) = (None, set.index);
    }

    /// Moves the rest of a part whose rail has written and can't write any more to another rail. The FIN of
    /// its writes still uses the old rail: only a FIN behind its own writes confirms them, so the rest
    /// becomes a part of the new rail.
    fn reassign_rests(&mut self, channel: u32, op: u32, able: u64) {
        let set = self.op(op).stripes;
        for giver in rails_of(self.paths.stripe_sets.at(set).pending) {
            let Part { carrier, written, .. } = self.paths.parts_of(set)[usize::from(giver.0)];
            let rest = self.paths.stripes_of(set)[usize::from(giver.0)];
            if written.is_none() || rest.next >= rest.end || able >> carrier & 1 == 1 {
                continue;
            }
            // Another rail's part must not be extended.
            let pending = self.paths.stripe_sets.at(set).pending;
            let parts = self.paths.parts_of(set);
            let is_own = |rail: &RailId| parts[usize::from(rail.0)].carrier == rail.0 || pending >> rail.0 & 1 == 0;
            let takers = rails_of(able).filter(is_own).fold(0, |mask, rail| mask | 1 << rail.0);
            if takers == 0 {
                continue;
            }
            let taker = self.paths.idlest(channel, takers);
            let index = usize::from(taker.0);
            let own = self.paths.stripes_of(set)[index];
            // The bytes between the two are written twice: same data, same place.
            let joined = match own.next < own.end {
                true => Stripe { next: own.next.min(rest.next), end: own.end.max(rest.end) },
                false => rest,
            };
            let more = (joined.end - joined.next) - own.end.saturating_sub(own.next);
            self.paths.stripes_of_mut(set)[index] = joined;
            self.paths.stripes_of_mut(set)[usize::from(giver.0)].next = rest.end;
            let part = &mut self.paths.parts_of_mut(set)[index];
            (part.bytes, part.carrier) = (part.bytes + more, taker.0);
            let given = self.paths.path_mut(channel, giver);
            given.planned = given.planned.saturating_sub(rest.end - rest.next);
            self.paths.path_mut(channel, taker).planned += more;
            let slot = self.paths.stripe_sets.at_mut(set);
            slot.pending |= 1 << taker.0;
            slot.moved &= !(1 << taker.0);
            let slot = self.op_mut(op);
            slot.fins_due |= 1 << taker.0;
            // No FIN of this epoch was sent.
            slot.fins_expected = slot.fins_due.count_ones() as u16;
        }
    }

    /// Marks unconfirmed data for rewriting; every part with writes to confirm gets a pending FIN.
    fn open_parts(&mut self, op: u32, set: u32) {
        let unconfirmed = self.op(op).unconfirmed;
        let (mut fins_due, mut pending) = (0u64, 0u64);
        for part in 0..self.paths.rails.len() {
            let mut stripe = self.paths.stripes_of(set)[part];
            let written = self.paths.parts_of(set)[part].written;
            if unconfirmed >> part & 1 == 1
                && let Some((low, high)) = written
            {
                // Bytes of other parts may lie in between: same data, same place. After a takeover the rest
                // may lie before the written bytes (P-10).
                let low = if stripe.next < stripe.end { low.min(stripe.next) } else { low };
                (stripe.next, stripe.end) = (low, stripe.end.max(high));
                self.paths.stripes_of_mut(set)[part] = stripe;
                self.paths.parts_of_mut(set)[part].written = None;
            }
            let written = self.paths.parts_of(set)[part].written;
            if stripe.next < stripe.end || written.is_some() {
                fins_due |= 1 << part;
                pending |= 1 << part;
            }
        }
        if fins_due == 0 {
            // Everything was confirmed meanwhile; the receiver has restarted its count all the same.
            fins_due = 1;
            pending = 1;
        }
        let slot = self.paths.stripe_sets.at_mut(set);
        (slot.pending, slot.helpers) = (pending, 0);
        let slot = self.op_mut(op);
        slot.unconfirmed = 0;
        (slot.fins_due, slot.fins_expected) = (fins_due, fins_due.count_ones() as u16);
    }

    /// Whether the leftovers of a rail's last connection wait for the peer's FENCE.
    pub(super) fn is_fenced_off(&self, channel: u32, rail: RailId) -> bool {
        self.sub(channel, rail).link.waits_for().is_some()
    }
}
