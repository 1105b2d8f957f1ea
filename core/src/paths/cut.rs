//! A transfer is cut when a rail is to be fed (P-4): one stripe for each rail that carries it, by the policy
//! of its class. `bulk` chooses the rails; the policies cut.

use super::measure::Part;
use super::policy::Load;
use super::{MessageClass, Paths};
use crate::api::config::RAILS_MAX;
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::sched::{Properties, Stripe, Whole, of};
use crate::store::NONE;
use crate::time::Time;

/// A transfer that is cut: one stripe for each rail, in a table of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StripeSet {
    /// Rails that have bytes or a FIN of it still to carry.
    pub pending: u64,
    /// Rails that it was cut for.
    pub planned: u64,
    /// Rails that may take over from others (P-10); none where the policy's cut stays.
    pub helpers: u64,
    /// Cut by path estimates: how its parts end is learned from (P-14).
    pub is_estimated: bool,
    /// Parts that another rail carries than the one that they were cut for: bit per part.
    pub moved: u64,
    /// The weights and estimates have been updated from the times of its parts.
    pub is_finished: bool,
    /// A rail has taken over from another (P-10).
    pub is_rebalanced: bool,
}

impl Paths<'_> {
    /// A transfer is complete: its remaining bytes are dropped from the path loads, and its set is free.
    pub(crate) fn drop_set(&mut self, channel: u32, set: u32) {
        if channel != NONE {
            // The remaining bytes of a transfer that is aborted.
            for rail in rails_of(self.stripe_sets.at(set).pending) {
                let stripe = self.stripes_of(set)[rail.index()];
                let path = self.path_mut(channel, rail);
                path.planned = path.planned.saturating_sub(stripe.end.saturating_sub(stripe.next));
            }
        }
        if let Some(key) = self.stripe_sets.key_at(set) {
            self.stripe_sets.remove(key);
        }
    }

    /// Cuts a transfer over the rails of `mask`, and returns its stripe set and the rails that have a part;
    /// `None`: there is no room for the stripes.
    pub(crate) fn cut(
        &mut self,
        now: Time,
        channel: u32,
        class: MessageClass,
        load: Load,
        mask: u64,
    ) -> Option<(u32, u64)> {
        let set = self.stripe_sets.insert(StripeSet::default())?.index;
        self.follow_registering();
        let (row, rails) = (self.row(set), self.rails.len());
        // Back in the table when they are cut.
        let all = core::mem::take(&mut self.stripes);
        let stripes = &mut all[row][..rails];
        stripes.fill(Stripe::default());
        let weights = self.stripe(now, channel, class, load, mask, stripes);
        self.stripes = all;
        let mut used: u64 = 0;
        for rail in (0..rails as u8).map(RailId) {
            let Stripe { next, end } = self.stripes_of(set)[rail.index()];
            let bytes = end - next;
            let weight = weights.as_ref().map_or(0, |weights| weights[rail.index()]);
            self.parts_of_mut(set)[rail.index()] = Part::of(rail, bytes, weight);
            self.path_mut(channel, rail).planned += bytes;
            used |= u64::from(bytes > 0) << rail.0;
        }
        let is_estimated = self.policies.cut(class).estimates;
        let helpers = if is_estimated { mask } else { 0 };
        *self.stripe_sets.at_mut(set) =
            StripeSet { pending: used, planned: used, helpers, is_estimated, ..StripeSet::default() };
        Some((set, used))
    }

    /// Cuts a message over the rails of a mask into `stripes`, which are empty (P-5). Gives the weights,
    /// where the times of the stripes are to change them.
    fn stripe(
        &mut self,
        now: Time,
        channel: u32,
        class: MessageClass,
        load: Load,
        mask: u64,
        stripes: &mut [Stripe],
    ) -> Option<[u32; RAILS_MAX]> {
        let &Properties { estimates, follows_times, .. } = self.policies.cut(class);
        if estimates && self.balance(now, channel, load, mask, stripes) {
            return None;
        }
        if follows_times {
            for rail in rails_of(mask) {
                let share = self.policies.share(rail);
                let path = self.path_mut(channel, rail);
                if path.weight == 0 {
                    // Weight 0 would never be measured (multirail-2004, 4.5).
                    path.weight = share.max(1);
                }
            }
        }
        let weights = self.weights(channel, class, mask);
        self.stripe_plainly(channel, class, load.bytes, mask, &weights, stripes);
        follows_times.then_some(weights)
    }

    /// The weights by which a class is cut at the moment.
    pub(crate) fn weights(&self, channel: u32, class: MessageClass, mask: u64) -> [u32; RAILS_MAX] {
        let mut weights = self.policies.shares();
        if self.policies.cut(class).follows_times {
            for rail in rails_of(mask) {
                let weight = self.path(channel, rail).weight;
                if weight > 0 {
                    weights[rail.index()] = weight;
                }
            }
        }
        weights
    }

    /// Cuts `bytes` over rails of a mask as the policy of a class does: from settings and the rails' present
    /// state, without a plan.
    pub(crate) fn stripe_plainly(
        &self,
        channel: u32,
        class: MessageClass,
        bytes: u64,
        mask: u64,
        weights: &[u32],
        stripes: &mut [Stripe],
    ) {
        let whole = Whole { bytes, rails: mask, weights, nic: &|rail| self.nic(channel, rail) };
        of(self.class_policy(class).striping).cut(&whole, stripes);
    }
}
