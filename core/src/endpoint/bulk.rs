//! Payload on its way: a transfer is planned over rails once, then moved segment by segment as rails have room.

use super::action::{PostKind, Span};
use super::channel::Shortage;
use super::measure::Part;
use super::op::{OpKind, Phase};
use super::packets::Actions;
use super::pump::Step;
use super::tables::op_queue;
use super::{Endpoint, Planted};
use crate::ids::RailId;
use crate::rail::sched::{Class, STRIPE_BYTES_MIN, Scheduler, Stripe};
use crate::store::NONE;
use crate::store::list::By;
use crate::time::Time;
use crate::wire::{self, Body, Data, Fin, Lane};

impl Endpoint<'_> {
    /// One segment of payload, of the first transfer that can move.
    pub(super) fn pump_bulk(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let mut op = self.t.channels.at(channel).bulk.head();
        while op != NONE {
            let list = self.t.channels.at(channel).bulk;
            let next = list.next(&mut By(&mut self.t.ops, op_queue), op);
            if self.advance(now, channel, op, out) == Step::Sent {
                if self.t.ops.at(op).all_sent {
                    self.t.dequeue(op);
                    self.settle(op);
                }
                return Step::Sent;
            }
            op = next;
        }
        Step::Idle
    }

    /// Moves one segment of a transfer, if a rail that carries a part of it has room.
    fn advance(&mut self, now: Time, channel: u32, op: u32, out: &mut Actions) -> Step {
        let slot = *self.t.ops.at(op);
        let packets = slot.phase == Phase::Data;
        if self.t.packets.room() == 0 {
            self.wait_for(channel, Shortage::Packets);
            return Step::Idle;
        }
        if packets && !self.may_send(channel, Lane::Unordered) {
            return Step::Idle;
        }
        if slot.cursor == 0 && self.must_wait_to_serve(channel, &slot) {
            return Step::Idle;
        }
        if !self.plan(channel, op) {
            return Step::Idle;
        }
        let slot = *self.t.ops.at(op);
        if let Some(rail) = slot.single {
            let mut stripe = Stripe { next: slot.cursor, end: slot.granted };
            return self.move_part(now, channel, op, rail, &mut stripe, out);
        }
        for index in 0..self.rails.len() as u8 {
            let mut stripe = self.t.stripes_of(slot.stripes)[usize::from(index)];
            let fin_due = slot.fins_due >> index & 1 == 1;
            if stripe.next >= stripe.end && !fin_due {
                continue;
            }
            let step = self.move_part(now, channel, op, RailId(index), &mut stripe, out);
            if step == Step::Sent {
                self.t.stripes_of(slot.stripes)[usize::from(index)] = stripe;
                return Step::Sent;
            }
        }
        Step::Idle
    }

    /// Decides which rails carry a transfer, once; `false`: not possible at the moment.
    fn plan(&mut self, channel: u32, op: u32) -> bool {
        let slot = *self.t.ops.at(op);
        if slot.single.is_some() || slot.stripes != NONE {
            return true;
        }
        let mask = match slot.phase {
            Phase::Writing => {
                let mask = self.ready_with(channel, |caps| caps.write);
                self.with_keys(channel, slot.keys, mask)
            }
            Phase::Reading => {
                let mask = self.ready_with(channel, |caps| caps.read);
                self.with_keys(channel, slot.keys, mask)
            }
            _ => self.ready(channel),
        };
        if mask == 0 {
            return false;
        }
        if mask.count_ones() == 1 || slot.granted < 2 * STRIPE_BYTES_MIN {
            let mut rails = self.candidates(channel);
            rails.up &= mask;
            let turn = &mut self.t.channels.at_mut(channel).turn;
            let Some(rail) = self.policy.multiplex(turn, Class::Message, rails) else { return false };
            let slot = self.t.ops.at_mut(op);
            slot.single = Some(rail);
            slot.fins_due = if slot.phase == Phase::Writing { 1 << rail.0 } else { 0 };
        } else {
            let Ok(set) = self.t.stripe_sets.insert(()) else {
                self.wait_for(channel, Shortage::Stripes);
                return false;
            };
            let stripes = self.t.stripes_of(set.index);
            stripes.fill(Stripe::default());
            self.policy.stripe(slot.granted, mask, stripes);
            let used = self.t.stripes_of(set.index).iter().enumerate();
            let used = used.fold(0u64, |used, (rail, stripe)| used | u64::from(stripe.end > stripe.next) << rail);
            if used.count_ones() > 1 && self.planted(Planted::WeightsDontSum) {
                // As if they were with a rail already.
                self.t.stripes_of(set.index)[used.ilog2() as usize].end -= 64;
                self.t.ops.at_mut(op).cursor = 64;
            }
            for rail in 0..self.rails.len() {
                let stripe = self.t.stripes_of(set.index)[rail];
                self.t.parts_of(set.index)[rail] = Part::of(stripe.end - stripe.next);
            }
            let slot = self.t.ops.at_mut(op);
            slot.stripes = set.index;
            slot.fins_due = if slot.phase == Phase::Writing { used } else { 0 };
        }
        let slot = self.t.ops.at_mut(op);
        slot.fins_expected = slot.fins_due.count_ones() as u16;
        self.begin_serving(channel, op);
        true
    }

    /// Moves the next segment of the part that was planned for rail `part`, or its FIN.
    fn move_part(
        &mut self,
        now: Time,
        channel: u32,
        op: u32,
        part: RailId,
        stripe: &mut Stripe,
        out: &mut Actions,
    ) -> Step {
        let rail = self.carrier(channel, part); // planted: ReplayUnfenced
        if !self.t.sub(channel, rail).is_ready() || !self.has_room(channel, rail) {
            return Step::Idle;
        }
        let slot = *self.t.ops.at(op);
        let facts = self.rails[usize::from(rail.0)];
        let offset = stripe.next;
        let fin_first = slot.fins_due >> part.0 & 1 == 1 && self.planted(Planted::FinBeforeData);
        let len = if fin_first { 0 } else { (stripe.end - stripe.next).min(facts.segment_bytes_max.into()) };
        let payload = self.payload(op, offset, len);
        let key = |key: Option<wire::RemoteKey>| {
            let key = key.unwrap_or_default();
            wire::RemoteKey { address: key.address.wrapping_add(offset), ..key }
        };
        let is_last = slot.cursor + len >= slot.granted;
        match slot.phase {
            Phase::Writing if len > 0 => {
                let to = key(self.key_for(channel, slot.keys, rail));
                self.transfer(now, channel, rail, op, PostKind::Write { to }, payload, out);
            }
            Phase::Reading => {
                //
                let from = key(self.key_for(channel, slot.keys, rail));
                self.transfer(now, channel, rail, op, PostKind::Read { from }, payload, out);
            }
            Phase::Writing => {
                // All of this rail's part is written: its FIN follows on the same subchannel.
                if !self.may_send(channel, Lane::Unordered) {
                    return Step::Idle;
                }
                let fin = Fin {
                    operation: slot.remote,
                    count: slot.fins_expected,
                    refused: None,
                    placed_bytes: slot.granted,
                };
                self.t.ops.at_mut(op).fins_due &= !(1 << part.0);
                self.transmit(now, channel, rail, op, Body::Fin(fin), Span::EMPTY, true, out);
            }
            _ if slot.kind == OpKind::Put => {
                //
                let operation = self.t.op_id(op).0.to_bits();
                let put = wire::Put { window: slot.remote, offset: slot.remote_offset.wrapping_add(offset), operation };
                self.transmit(now, channel, rail, op, Body::Put(put), payload, is_last, out);
            }
            _ => {
                let data = Data { operation: slot.remote, offset };
                self.transmit(now, channel, rail, op, Body::Data(data), payload, is_last && slot.serves(), out);
            }
        }
        if len > 0 {
            self.note_moved(now, op, part);
        }
        stripe.next += len;
        let slot = self.t.ops.at_mut(op);
        slot.cursor += len;
        slot.all_sent = slot.cursor >= slot.granted && slot.fins_due == 0;
        Step::Sent
    }
}
