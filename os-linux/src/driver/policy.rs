//! Policies and explanations at run time: the core's methods of the same names, for rails by the numbers of
//! [`rails`](Transport::rails). Messages cut already stay as they are.

use std::time::Duration;

use rerail_core::endpoint::{Explanation, MessageClass, Policy};
use rerail_core::ids::{PeerId, RailId};

use super::{Clock, Transport};

impl<C: Clock> Transport<C> {
    /// From now on `policy` decides for messages of a class:
    /// [`Endpoint::set_policy`](rerail_core::endpoint::Endpoint::set_policy).
    pub fn set_policy(&mut self, class: MessageClass, policy: Policy) {
        self.engine.core.set_policy(class, policy);
    }

    /// From now on the rails of `eligible` may carry messages of a class, bit per rail, and `rails_used` of
    /// them do at most: [`Endpoint::set_rails`](rerail_core::endpoint::Endpoint::set_rails).
    pub fn set_rails(&mut self, class: MessageClass, eligible: u64, rails_used: u8) {
        self.engine.core.set_rails(class, eligible, rails_used);
    }

    /// From now on these are the weights of rails, from rail 0 on:
    /// [`Endpoint::set_weights`](rerail_core::endpoint::Endpoint::set_weights).
    pub fn set_weights(&mut self, weights: &[u16]) {
        self.engine.core.set_weights(self.clock.now(), weights);
    }

    /// Equation 4's alpha from now on: [`Endpoint::set_alpha`](rerail_core::endpoint::Endpoint::set_alpha).
    pub fn set_alpha(&mut self, alpha: u16) {
        self.engine.core.set_alpha(alpha);
    }

    /// For so long [`progress`](Transport::progress) may look at shared memory only, while no other rail has
    /// work: 8 us at start. Zero: each call looks at everything; `Duration::MAX`: only
    /// [`round`](Self::round) does, and timers wait for that.
    pub fn set_round_period(&mut self, period: Duration) {
        self.round_timer.set_period(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The plan for a message of `bytes` to `peer` now:
    /// [`Endpoint::explain`](rerail_core::endpoint::Endpoint::explain).
    pub fn explain(&self, peer: PeerId, class: MessageClass, bytes: u64) -> Option<Explanation> {
        self.engine.core.explain(self.clock.now(), peer, class, bytes)
    }

    /// For people: how a rail treats `peer` in ways that its facts don't show, and why.
    pub fn remark(&self, peer: PeerId, rail: RailId) -> Option<String> {
        self.engine.rails.get(rail)?.remark(peer)
    }
}
