//! Late rebalances (P-10): what the policy (`rail/sched/balanced/rebalance.rs`) moves from one part of a
//! transfer to another.
//!
//! Remote writes end with one FIN on each rail used, and every FIN says how many there are: so a rail
//! whose FIN is out has left, and one that was not planned may join only as long as none is out.

use super::measure::Part;
use super::op::Phase;
use super::path::Path;
use super::{Endpoint, Registration};
use crate::ids::RailId;
use crate::rail::rate::Rate;
use crate::rail::sched::balanced::rebalance::{Parts, Rebalance, rebalance};
use crate::rail::sched::{CUT_ALIGN, Stripe};
use crate::time::Time;

/// A transfer's rails, as the policy asks about them.
struct Moving<'e, 'm> {
    endpoint: &'e Endpoint<'m>,
    now: Time,
    channel: u32,
    /// Where its stripes and parts begin.
    base: usize,
    /// Rails that it was cut for.
    planned: u64,
}

impl Moving<'_, '_> {
    fn path(&self, rail: RailId) -> &Path {
        &self.endpoint.t.subs[self.endpoint.t.sub_index(self.channel, rail)].path
    }
}

impl Parts for Moving<'_, '_> {
    #[inline(always)]
    fn left(&self, rail: RailId) -> u64 {
        let Stripe { next, end } = self.endpoint.t.stripes[self.base + usize::from(rail.0)];
        end.saturating_sub(next)
    }

    #[inline(always)]
    fn rate(&self, rail: RailId) -> Rate {
        self.path(rail).rate
    }

    /// A rail that works on the part that the plan gave it is as fast as the plan reckoned: else what was
    /// taken from rails that hold each other up would go back to them at once.
    #[inline(always)]
    fn rate_of_helper(&self, rail: RailId) -> Rate {
        let path = self.path(rail);
        if self.planned >> rail.0 & 1 == 1 { path.rate_beside_others() } else { path.rate }
    }

    #[inline(always)]
    fn through_ns(&self, rail: RailId, rate: Rate, bytes: u64) -> u64 {
        let moving = rate.time_ns(self.path(rail).remaining(self.now, rate) + bytes);
        moving.saturating_add(self.endpoint.estimated_latency(self.channel, rail).into())
    }

    #[inline(always)]
    fn registering_ns(&self, rail: RailId, bytes: u64) -> u64 {
        let is_new = self.endpoint.t.parts[self.base + usize::from(rail.0)].bytes == 0;
        if is_new { self.endpoint.registering_ns(rail, Registration::Own, bytes) } else { 0 }
    }

    fn part_bytes_min(&self, rail: RailId) -> u64 {
        self.endpoint.part_bytes_min(self.channel, rail)
    }
}

impl Endpoint<'_> {
    /// Of the rails that may carry more of a transfer one that is to be fed and has nothing left of its part
    /// takes over from another, where the policy finds that this pays.
    pub(super) fn rebalance(&mut self, now: Time, channel: u32, op: u32) {
        let slot = self.t.ops.at(op);
        let (set, writing) = (slot.stripes, slot.phase() == Phase::Writing);
        let fins_out = u32::from(slot.fins_expected) > slot.fins_due.count_ones();
        let fins_due = slot.fins_due;
        let feed = self.t.channels.at(channel).rooms.feed;
        let stripes = self.t.stripe_sets.at(set);
        let (pending, planned) = (stripes.pending, stripes.planned);
        let mut helpers = stripes.helpers & feed;
        if writing && fins_out {
            helpers &= fins_due;
        }
        if helpers == 0 {
            return;
        }
        let base = self.t.stripes_at(set);
        match rebalance(&Moving { endpoint: self, now, channel, base, planned }, pending, helpers) {
            Rebalance::Never => self.t.stripe_sets.at_mut(set).helpers = 0,
            Rebalance::NotNow => {}
            Rebalance::Take { from, to, bytes } => self.take_over(channel, op, from, to, bytes),
        }
    }

    /// The last `bytes` of `giver`'s part become `taker`'s.
    pub(super) fn take_over(&mut self, channel: u32, op: u32, giver: RailId, taker: RailId, bytes: u64) {
        let set = self.t.ops.at(op).stripes;
        let stripes = self.t.stripes_of(set);
        let end = stripes[usize::from(giver.0)].end;
        let cut = end - bytes;
        // The beginning of a part lies on a multiple of the alignment, and so does its end, but for the
        // message's.
        let cut = cut.next_multiple_of(CUT_ALIGN).min(end);
        stripes[usize::from(giver.0)].end = cut;
        let is_empty = stripes[usize::from(giver.0)].next >= cut;
        stripes[usize::from(taker.0)] = Stripe { next: cut, end };
        let bytes = end - cut;
        let parts = self.t.parts_of(set);
        parts[usize::from(giver.0)].bytes -= bytes;
        let mine = &mut parts[usize::from(taker.0)];
        if mine.bytes == 0 {
            let written = mine.written;
            *mine = Part::of(taker, bytes, 0);
            mine.written = written;
        } else {
            mine.bytes += bytes;
        }
        let given = &mut self.t.sub(channel, giver).path;
        given.planned = given.planned.saturating_sub(bytes);
        self.t.sub(channel, taker).path.planned += bytes;
        self.t.stripe_sets.at_mut(set).pending |= 1 << taker.0;
        let slot = self.t.ops.at_mut(op);
        if is_empty && slot.fins_due >> giver.0 & 1 == 0 {
            self.t.stripe_sets.at_mut(set).pending &= !(1 << giver.0);
        }
        let slot = self.t.ops.at_mut(op);
        if slot.phase() == Phase::Writing && slot.fins_due >> taker.0 & 1 == 0 {
            slot.fins_due |= 1 << taker.0;
            slot.fins_expected += 1;
        }
        self.stats.rebalances += 1;
    }
}
