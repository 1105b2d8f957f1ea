//! A transfer is cut: one stripe for each rail that carries it, by the policy of its class, when a rail is to
//! be fed (P-4). Which rails these are, `bulk` says; how cutting goes, the policies do.

use super::balanced::Load;
use super::channel::Shortage;
use super::measure::Part;
use super::op::Phase;
use super::{Endpoint, MessageClass};
use crate::config::RAILS_MAX;
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::sched::{Properties, Stripe, Whole, of};
use crate::time::Time;

/// A transfer that is cut: one stripe for each rail, in a table of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StripeSet {
    /// Rails that have bytes or a FIN of it still to carry.
    pub pending: u64,
    /// Rails that it was cut for.
    pub planned: u64,
    /// Rails that may take over from others (P-10); none, where the policy's cut stands.
    pub helpers: u64,
    /// Cut by path estimates: how its parts end is learned from (P-14).
    pub is_estimated: bool,
    /// Parts that another rail carries than the one that they were cut for: bit per part.
    pub moved: u64,
    /// What the times of the parts tell has been told.
    pub is_concluded: bool,
}

impl Endpoint<'_> {
    /// Cuts a transfer over the rails of `mask`; `false`: no room for the stripes.
    pub(super) fn cut(&mut self, now: Time, channel: u32, op: u32, class: MessageClass, mask: u64) -> bool {
        let (granted, phase) = (self.t.ops.at(op).granted, self.t.ops.at(op).phase());
        let load = Load { bytes: granted, is_read: phase == Phase::Reading };
        let Ok(set) = self.t.stripe_sets.insert(StripeSet::default()) else {
            self.wait_for(channel, Shortage::Stripes);
            return false;
        };
        let set = set.index;
        let mut stripes = [Stripe::default(); RAILS_MAX];
        let stripes = &mut stripes[..self.rails.len()];
        self.follow_registering();
        let weights = self.stripe(now, channel, class, load, mask, stripes);
        self.t.stripes_of(set)[..stripes.len()].copy_from_slice(stripes);
        for (rail, part) in (0..).zip(self.t.parts_of(set)) {
            *part = Part::of(RailId(rail), 0, 0);
        }
        let mut used = 0;
        for (rail, stripe) in stripes.iter().enumerate() {
            let bytes = stripe.end - stripe.next;
            if bytes > 0 {
                used |= 1 << rail;
                let weight = weights.map_or(0, |weights| weights[rail]);
                self.t.parts_of(set)[rail] = Part::of(RailId(rail as u8), bytes, weight);
            }
        }
        let is_estimated = self.policies.cut(class).estimates;
        let helpers = if is_estimated { mask } else { 0 };
        *self.t.stripe_sets.at_mut(set) =
            StripeSet { pending: used, planned: used, helpers, is_estimated, ..StripeSet::default() };
        for rail in rails_of(used) {
            let stripe = self.t.stripes_of(set)[usize::from(rail.0)];
            self.t.sub(channel, rail).path.planned += stripe.end - stripe.next;
        }
        let slot = self.t.ops.at_mut(op);
        slot.stripes = set;
        slot.fins_due = if slot.phase() == Phase::Writing { used } else { 0 };
        true
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
                let path = &mut self.t.sub(channel, rail).path;
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
    pub(super) fn weights(&self, channel: u32, class: MessageClass, mask: u64) -> [u32; RAILS_MAX] {
        let mut weights = self.policies.shares();
        if self.policies.cut(class).follows_times {
            for rail in rails_of(mask) {
                let weight = self.t.subs[self.t.sub_index(channel, rail)].path.weight;
                if weight > 0 {
                    weights[usize::from(rail.0)] = weight;
                }
            }
        }
        weights
    }

    /// Cuts `bytes` over rails of a mask as the policy of a class does: by what is set and what rails do now,
    /// and by no plan.
    pub(super) fn stripe_plainly(
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
