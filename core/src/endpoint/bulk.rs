//! Payload transfers. A transfer is cut over rails once, when an eligible rail is idle (P-4), then moved
//! segment by segment, on all its rails in turn (P-3).

use super::packets::{Actions, STEP, Step};
use super::tables::op_queue;
use super::{Endpoint, MessageClass, Registration};
use crate::api::action::PostKind;
use crate::ids::RailId;
use crate::op::{Op, OpKind, Phase, Queue};
use crate::paths::{Choice, Load, Part, StripeSet, TakeOver};
use crate::peer::Shortage;
use crate::rail::rails_of;
use crate::rail::rate::Rate;
use crate::rail::sched::{CUT_ALIGN, Candidates, STRIPE_BYTES_MIN, Stripe};
use crate::store::NONE;
use crate::store::list::By;
use crate::time::Time;
use crate::wire::{self, Body, Data, Lane};

/// First segment size of a part that may still move, on a rail without an estimate.
const SEGMENT_BYTES_FIRST: u64 = 32 * 1024;

impl Endpoint<'_> {
    /// Segments of payload, of the first transfer that can move.
    pub(super) fn pump_bulk(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let slot = self.channel(channel);
        let mut op = slot.queues.bulk.head();
        if op == NONE || self.paths.peer(channel).rooms.feed == 0 {
            return Step::Idle;
        }
        if self.t.packets.room() == 0 {
            self.wait_for(channel, Shortage::Packets);
            return Step::Idle;
        }
        let list = slot.queues.bulk;
        while op != NONE {
            let next = list.next(&mut By(&mut self.t.ops, op_queue), op);
            if self.advance(now, channel, op, out) == Step::Sent {
                if self.op(op).all_sent {
                    self.t.dequeue(op);
                    self.complete_if_done(op);
                }
                return Step::Sent;
            }
            op = next;
        }
        Step::Idle
    }

    /// Moves segments of a transfer, while a rail that carries a part of it has room.
    fn advance(&mut self, now: Time, channel: u32, op: u32, out: &mut Actions) -> Step {
        let slot = self.op(op);
        if slot.phase() == Phase::Data && !self.may_send(channel, Lane::Unordered) {
            return Step::Idle;
        }
        let slot = self.op(op);
        if slot.cursor == 0 && self.must_wait_to_serve(channel, slot) {
            return Step::Idle;
        }
        if !self.plan(now, channel, op) {
            return Step::Idle;
        }
        if self.has_orphans(channel, op) {
            self.move_orphans(channel, op);
            if self.op(op).queued != Queue::Bulk {
                return Step::Sent;
            }
        }
        let mut step = Step::Idle;
        while self.advance_once(now, channel, op, out) == Step::Sent {
            step = Step::Sent;
            // Nothing that precedes a transfer comes up meanwhile.
            let has_room = out.len() + STEP <= out.capacity() && self.t.packets.room() > 0;
            if self.op(op).all_sent || !has_room || !self.has_window(channel, Lane::Unordered) {
                break;
            }
        }
        step
    }

    /// Moves one segment.
    #[inline]
    fn advance_once(&mut self, now: Time, channel: u32, op: u32, out: &mut Actions) -> Step {
        let slot = self.op(op);
        let is_data = slot.phase() == Phase::Data;
        let &Op { single, stripes: set, cursor, granted, .. } = slot;
        let feed = self.paths.peer(channel).rooms.feed;
        if let Some(rail) = single {
            let mut stripe = Stripe { next: cursor, end: granted };
            let is_fed = feed >> rail.0 & 1 == 1;
            return if is_fed { self.move_part(now, channel, op, (rail, rail), &mut stripe, out) } else { Step::Idle };
        }
        let &StripeSet { pending, helpers, .. } = self.paths.stripe_sets.at(set);
        // Whose part is complete; a rail with a pending FIN may take over, too.
        let free = if is_data { helpers & !pending } else { helpers };
        if free & feed != 0 {
            self.rebalance(now, channel, op, set); // P-10
        }
        let &StripeSet { pending, moved, .. } = self.paths.stripe_sets.at(set);
        // Parts that other rails have taken over are tried in turn.
        let mut parts = if moved == 0 { feed & pending } else { pending };
        while parts != 0 {
            let (part, rail) = if moved == 0 {
                let part = self.paths.idlest(channel, parts);
                (part, part)
            } else {
                let part = RailId(parts.trailing_zeros() as u8);
                (part, self.carrier(op, part))
            };
            let mut stripe = self.paths.stripes_of(set)[part.index()];
            let is_fed = feed >> rail.0 & 1 == 1;
            if is_fed && self.move_part(now, channel, op, (part, rail), &mut stripe, out) == Step::Sent {
                self.part_moved(op, part, stripe);
                return Step::Sent;
            }
            parts &= !(1 << part.0);
        }
        Step::Idle
    }

    /// A rail has taken a segment of a part, or its FIN.
    fn part_moved(&mut self, op: u32, part: RailId, stripe: Stripe) {
        let &Op { stripes: set, fins_due, .. } = self.op(op);
        self.paths.stripes_of_mut(set)[usize::from(part.0)] = stripe;
        let is_through = stripe.next >= stripe.end && fins_due >> part.0 & 1 == 0;
        let slot = self.paths.stripe_sets.at_mut(set);
        slot.pending &= !(u64::from(is_through) << part.0);
        self.op_mut(op).all_sent = slot.pending == 0;
    }

    /// Decides once which rails carry a transfer; `false`: not possible now, or too early.
    fn plan(&mut self, now: Time, channel: u32, op: u32) -> bool {
        let &Op { stage, single, stripes, keys, granted, .. } = self.op(op);
        if single.is_some() || stripes != NONE {
            return true;
        }
        let mask = match stage.phase() {
            Phase::Writing => self.paths.ready_with(channel, |caps| caps.write),
            Phase::Reading => self.paths.ready_with(channel, |caps| caps.read),
            _ => self.paths.ready(channel),
        };
        let feed = self.paths.peer(channel).rooms.feed;
        // P-4
        if mask & feed == 0 && mask != 0 {
            return false;
        }
        let mask = if keys == NONE { mask } else { self.with_keys(channel, keys, mask) };
        if mask == 0 && keys != NONE {
            self.request_keys(channel, op);
            return false;
        }
        if mask & feed == 0 {
            return false;
        }
        let class = self.op(op).class();
        if granted > 0 && self.paths.policies.cut(class).waits_for_idle {
            // Cut or not: the idle rails that it keeps busy are recorded.
            let idle = self.paths.striped(channel, class, mask & feed);
            return idle != 0 && self.cut(now, channel, op, class, idle) && self.planned(channel, op);
        }
        let striped = if granted < self.paths.policies.cut_bytes_min(class) {
            0
        } else {
            self.paths.striped(channel, class, mask)
        };
        if striped.count_ones() < 2 {
            // On the rail that striping binds to, or on the one whose turn it is.
            let up = if striped == 0 { mask } else { striped };
            let rails = Candidates { up, room: feed };
            let choice = Choice { now, channel, class, bytes: granted, rails };
            let Some(rail) = self.paths.multiplex(choice) else { return false };
            let slot = self.op_mut(op);
            slot.single = Some(rail);
            slot.fins_due = if slot.phase() == Phase::Writing { 1 << rail.0 } else { 0 };
        } else if striped & feed == 0 || !self.cut(now, channel, op, class, striped) {
            return false;
        }
        self.planned(channel, op)
    }

    /// No rail that is up has a key of a transfer: requests the message in another way.
    fn request_keys(&mut self, channel: u32, op: u32) {
        let slot = self.op(op);
        // For unconfirmed writes, the new epoch brings keys anyway, unless the peer had the FIN.
        let is_epoch_requested = slot.unconfirmed != 0 && !slot.fin_or_resume;
        if self.paths.ready(channel) == 0 || is_epoch_requested || slot.posts > 0 {
            return;
        }
        match slot.phase() {
            Phase::Writing => self.request_epoch(op),
            Phase::Reading => self.restart_read(op),
            _ => {}
        }
    }

    /// Cuts a transfer over the rails of `mask`; `false`: no room for the stripes.
    fn cut(&mut self, now: Time, channel: u32, op: u32, class: MessageClass, mask: u64) -> bool {
        let (bytes, phase) = (self.op(op).granted, self.op(op).phase());
        let load = Load { bytes, is_read: phase == Phase::Reading };
        let Some((set, used)) = self.paths.cut(now, channel, class, load, mask) else {
            self.wait_for(channel, Shortage::Stripes);
            return false;
        };
        let slot = self.op_mut(op);
        slot.stripes = set;
        slot.fins_due = if phase == Phase::Writing { used } else { 0 };
        true
    }

    /// Lets one of a transfer's rails take over work from another, if that is faster. Remote writes end with
    /// one FIN on each rail used, and every FIN carries the number of FINs: so a rail whose FIN was
    /// sent takes no more, and an unplanned rail may join only before the first FIN.
    fn rebalance(&mut self, now: Time, channel: u32, op: u32, set: u32) {
        let slot = self.op(op);
        let fins_out = u32::from(slot.fins_expected) > slot.fins_due.count_ones();
        let able = if slot.phase() == Phase::Writing && fins_out { slot.fins_due } else { u64::MAX };
        if let Some(by) = self.paths.rebalance(now, channel, set, able) {
            self.take_over(channel, op, &by);
        }
    }

    /// Applies a takeover: another rail now carries a part of a transfer, and so its FIN.
    pub(super) fn take_over(&mut self, channel: u32, op: u32, by: &TakeOver) {
        let slot = self.t.ops.at_mut(op);
        self.paths.take_over(channel, slot.stripes, by, slot.fins_due >> by.giver.0 & 1 == 1);
        let taker = 1 << by.taker.0;
        if slot.phase() == Phase::Writing && slot.fins_due & taker == 0 {
            slot.fins_due |= taker;
            slot.fins_expected += 1;
        }
        self.stats.rebalances += 1;
    }

    /// The rails of a transfer are decided.
    fn planned(&mut self, channel: u32, op: u32) -> bool {
        let slot = self.op_mut(op);
        slot.fins_expected = slot.fins_due.count_ones() as u16;
        self.begin_serving(channel, op);
        true
    }

    /// The next segment of a part with `left` bytes. If parts may still move (P-10), about half of the bytes
    /// that its rail is fed at a time, and little while its rate is unknown; as long as none had to move, of
    /// all that it is fed, and the last one is not shorter.
    fn segment_len(&self, channel: u32, (phase, set): (Phase, u32), rail: RailId, left: u64) -> u64 {
        let facts = self.paths.facts(rail);
        let slot = self.channel(channel);
        let segment_bytes_max = match phase {
            Phase::Writing | Phase::Reading => facts.transfer_bytes_max().min(slot.limits.transfer_bytes_max),
            _ if facts.caps.lossless => facts.segment_bytes_max,
            _ => facts.segment_bytes_max.min(slot.limits.segment_bytes_max),
        };
        let segment_bytes_max = segment_bytes_max.into();
        if set == NONE || self.paths.stripe_sets.at(set).helpers == 0 {
            return left.min(segment_bytes_max);
        }
        let Rate(rate) = self.paths.path(channel, rail).rate;
        let feed = self.paths.feed_time(channel, rail, facts).0;
        if self.paths.peer(channel).is_steady && rate > 0 {
            let most = Rate(rate).bytes_in(feed + feed / 4).max(STRIPE_BYTES_MIN).min(segment_bytes_max);
            return left
                .div_ceil(left.div_ceil(most).max(1))
                .next_multiple_of(CUT_ALIGN)
                .min(left)
                .min(segment_bytes_max);
        }
        let fed = match rate {
            0 => SEGMENT_BYTES_FIRST,
            _ => Rate(rate).bytes_in(feed / 2) & !(CUT_ALIGN - 1),
        };
        left.min(fed.max(STRIPE_BYTES_MIN)).min(segment_bytes_max)
    }

    /// Whether a part of a transfer may have no usable rail left.
    fn has_orphans(&mut self, channel: u32, op: u32) -> bool {
        let ready = self.paths.ready(channel);
        let &Op { single, stripes: set, keys, .. } = self.op(op);
        if keys != NONE && self.t.key_sets.at(keys).is_incomplete() {
            return true;
        }
        if let Some(rail) = single {
            return ready >> rail.0 & 1 == 0;
        }
        let &StripeSet { pending, moved, .. } = self.paths.stripe_sets.at(set);
        if moved == 0 {
            return pending & !ready != 0;
        }
        rails_of(pending).any(|part| ready >> self.carrier(op, part).0 & 1 == 0)
    }

    /// The rail that carries a part.
    fn carrier(&mut self, op: u32, part: RailId) -> RailId {
        match self.op(op).stripes {
            NONE => part,
            set => RailId(self.paths.parts_of(set)[usize::from(part.0)].carrier),
        }
    }

    /// Moves the next segment of the part planned for rail `part` over the rail that carries it, or its FIN.
    fn move_part(
        &mut self,
        now: Time,
        channel: u32,
        op: u32,
        (part, rail): (RailId, RailId),
        stripe: &mut Stripe,
        out: &mut Actions,
    ) -> Step {
        let slot = self.op(op);
        let (kind, phase) = (slot.kind(), slot.phase());
        let &Op { keys, remote, granted, fins_due, unconfirmed, cursor, stripes: set, .. } = slot;
        if unconfirmed >> part.0 & 1 == 1 {
            return Step::Idle; // F-7
        }
        let (serves, remote_offset) = (slot.serves(), slot.remote_offset);
        let offset = stripe.next;
        let rest = stripe.end - stripe.next;
        let len = self.segment_len(channel, (phase, set), part, rest);
        debug_assert!(len > 0 || granted == 0 || fins_due >> part.0 & 1 == 1, "nothing is left of this part");
        let payload = self.payload(op, offset, len);
        let key = |key: wire::RemoteKey| wire::RemoteKey { address: key.address.wrapping_add(offset), ..key };
        let is_last = cursor + len >= granted;
        match phase {
            Phase::Writing if len > 0 => {
                let Some(to) = self.key_for(channel, keys, rail).map(key) else { return Step::Idle };
                self.transfer(now, channel, rail, op, PostKind::Write { to }, (payload, rest), out);
            }
            Phase::Reading => {
                //
                let Some(from) = self.key_for(channel, keys, rail).map(key) else { return Step::Idle };
                self.transfer(now, channel, rail, op, PostKind::Read { from }, (payload, rest), out);
            }
            Phase::Writing => {
                // All of this rail's part is written: its FIN follows on the same subchannel.
                if !self.may_send(channel, Lane::Unordered) {
                    return Step::Idle;
                }
                self.op_mut(op).fins_due &= !(1 << part.0);
                self.transmit_part_fin(now, channel, rail, op, part, out);
            }
            _ if kind == OpKind::Put => {
                //
                let operation = self.t.op_id(op).0.to_bits();
                let put = wire::Put { window: remote, offset: remote_offset.wrapping_add(offset), operation };
                self.transmit(now, channel, rail, op, &Body::Put(put), payload, is_last, out);
            }
            _ => {
                let data = Data { operation: remote, offset };
                self.transmit(now, channel, rail, op, &Body::Data(data), payload, is_last && serves, out);
            }
        }
        if len > 0 {
            if matches!(phase, Phase::Writing | Phase::Reading) {
                self.paths.note_registering(Registration::Own, len);
            }
            self.paths.note_moved(now, set, cursor == 0, part);
            if set != NONE {
                if phase == Phase::Writing {
                    self.paths.parts_of_mut(set)[usize::from(part.0)].writes(offset, len);
                }
                let path = self.paths.path_mut(channel, part);
                path.planned = path.planned.saturating_sub(len);
            }
        }
        stripe.next += len;
        let slot = self.op_mut(op);
        slot.cursor = (slot.cursor + len).min(granted);
        slot.all_sent = slot.stripes == NONE && slot.cursor >= granted && slot.fins_due == 0;
        Step::Sent
    }

    /// Moves parts of transfers whose rail is gone to rails that are up.
    fn move_orphans(&mut self, channel: u32, op: u32) {
        let &Op { stage, keys, single, stripes: set, cursor, granted, unconfirmed, .. } = self.op(op);
        let (phase, ready) = (stage.phase(), self.paths.ready(channel));
        let able = match phase {
            Phase::Writing => self.paths.ready_with(channel, |caps| caps.write),
            Phase::Reading => self.paths.ready_with(channel, |caps| caps.read),
            _ => ready,
        };
        let keyed = if keys == NONE { able } else { self.with_keys(channel, keys, able) };
        let is_keyless = keyed == 0 && keys != NONE;
        // A FIN alone needs no key.
        let fit = |rest: bool| if rest || phase != Phase::Writing { keyed } else { ready };
        if let Some(rail) = single {
            let able = fit(cursor < granted);
            if able >> rail.0 & 1 == 1 || unconfirmed != 0 {
                return;
            }
            if able != 0 {
                // Its written bytes are separate: their FIN goes behind them.
                if phase == Phase::Writing && self.unconfirmed(op) & ready != 0 {
                    return self.request_keys(channel, op);
                }
                let other = self.paths.idlest(channel, able);
                let slot = self.op_mut(op);
                slot.single = Some(other);
                if slot.fins_due != 0 {
                    slot.fins_due = 1 << other.0;
                }
            } else if is_keyless {
                self.request_keys(channel, op);
            }
            return;
        }
        let pending = self.paths.stripe_sets.at(set).pending;
        for part in rails_of(pending & !unconfirmed) {
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
                return self.request_keys(channel, op);
            }
        }
    }
}
