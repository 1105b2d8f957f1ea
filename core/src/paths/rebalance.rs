//! Late rebalances (P-10): what the policy (`rail/sched/balanced/rebalance.rs`) moves from one part of a
//! transfer to another.
//!
//! Remote writes end with one FIN on each rail used, and every FIN carries their number: so a rail that
//! has sent its FIN has left, and an unplanned one may join only before the first FIN is sent.

use super::StripeSet;
use super::measure::Part;
use super::{Path, Paths, Registration};
use crate::ids::RailId;
use crate::rail::rate::Rate;
use crate::rail::sched::balanced::rebalance::{Parts, Rebalance, rebalance};
use crate::rail::sched::{CUT_ALIGN, Stripe};
use crate::time::Time;

/// A transfer's rails, as the policy sees them.
struct Moving<'p, 'm> {
    paths: &'p Paths<'m>,
    now: Time,
    channel: u32,
    /// Its stripe set.
    set: u32,
    /// Rails that it was cut for.
    planned: u64,
}

impl Moving<'_, '_> {
    fn path(&self, rail: RailId) -> &Path {
        self.paths.path(self.channel, rail)
    }
}

impl Parts for Moving<'_, '_> {
    #[inline(always)]
    fn left(&self, rail: RailId) -> u64 {
        let Stripe { next, end } = self.paths.stripes_of(self.set)[rail.index()];
        end.saturating_sub(next)
    }

    #[inline(always)]
    fn rate(&self, rail: RailId) -> Rate {
        self.path(rail).rate
    }

    /// A rail that works on its planned part counts at the planned rate: else bytes taken from contending
    /// rails would go back to them at once.
    #[inline(always)]
    fn rate_of_helper(&self, rail: RailId) -> Rate {
        let path = self.path(rail);
        if self.planned >> rail.0 & 1 == 1 { path.rate_beside_others() } else { path.rate }
    }

    #[inline(always)]
    fn through_ns(&self, rail: RailId, rate: Rate, bytes: u64) -> u64 {
        let moving = rate.time_ns(self.path(rail).remaining(self.now, rate) + bytes);
        moving.saturating_add(self.paths.estimated_latency(self.channel, rail).into())
    }

    #[inline(always)]
    fn registering_ns(&self, rail: RailId, bytes: u64) -> u64 {
        let is_new = self.paths.parts_of(self.set)[rail.index()].bytes == 0;
        if is_new { self.paths.registering_ns(rail, Registration::Own, bytes) } else { 0 }
    }

    fn part_bytes_min(&self, rail: RailId) -> u64 {
        self.paths.part_bytes_min(self.channel, rail)
    }
}

/// The end of a rail's part of a transfer is to become another one's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakeOver {
    pub giver: RailId,
    pub taker: RailId,
    pub bytes: u64,
}

impl Paths<'_> {
    /// Of the rails of `able`, one that is to be fed and has completed its part takes over from another,
    /// where the policy finds that this pays.
    pub(crate) fn rebalance(&mut self, now: Time, channel: u32, set: u32, able: u64) -> Option<TakeOver> {
        let feed = self.peer(channel).rooms.feed;
        let &StripeSet { pending, planned, helpers, .. } = self.stripe_sets.at(set);
        let helpers = helpers & feed & able;
        if helpers == 0 {
            return None;
        }
        match rebalance(&Moving { paths: self, now, channel, set, planned }, pending, helpers) {
            Rebalance::Never => {
                self.stripe_sets.at_mut(set).helpers = 0;
                None
            }
            Rebalance::NotNow => None,
            Rebalance::Take { from: giver, to: taker, bytes } => Some(TakeOver { giver, taker, bytes }),
        }
    }

    /// The last bytes of the giver's part become the taker's. `has_fin_due`: the giver's rail has a FIN to
    /// carry even where nothing else is left of its part.
    pub(crate) fn take_over(&mut self, channel: u32, set: u32, by: &TakeOver, has_fin_due: bool) {
        let &TakeOver { giver, taker, bytes } = by;
        let stripes = self.stripes_of_mut(set);
        let end = stripes[giver.index()].end;
        let cut = end - bytes;
        // The beginning of a part lies on a multiple of the alignment, and so does its end, but for the
        // message's.
        let cut = cut.next_multiple_of(CUT_ALIGN).min(end);
        stripes[giver.index()].end = cut;
        let is_empty = stripes[giver.index()].next >= cut;
        stripes[taker.index()] = Stripe { next: cut, end };
        let bytes = end - cut;
        let parts = self.parts_of_mut(set);
        parts[giver.index()].bytes -= bytes;
        let mine = &mut parts[taker.index()];
        if mine.bytes == 0 {
            let written = mine.written;
            *mine = Part::of(taker, bytes, 0);
            mine.written = written;
        } else {
            mine.bytes += bytes;
        }
        let given = self.path_mut(channel, giver);
        given.planned = given.planned.saturating_sub(bytes);
        self.path_mut(channel, taker).planned += bytes;
        self.peer_mut(channel).is_steady = false;
        let StripeSet { pending, is_rebalanced, .. } = self.stripe_sets.at_mut(set);
        *is_rebalanced = true;
        *pending |= 1 << taker.0;
        if is_empty && !has_fin_due {
            *pending &= !(1 << giver.0);
        }
    }
}
