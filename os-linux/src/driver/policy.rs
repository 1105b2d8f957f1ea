//! Policies and explanations at run time: the core's methods of the same names, for rails by the numbers of
//! [`rails`](Transport::rails). Messages cut already stay as they are.

use rerail_core::endpoint::{ClassPolicy, Explanation, MessageClass, Policy, RailHealth};
use rerail_core::ids::{PeerId, RailId};
use rerail_core::time::Time;

use super::{Engine, EngineOpening, Transport, now};

impl EngineOpening {
    /// [`Engine::set_policy`], before the first request.
    pub fn set_policy(&mut self, class: MessageClass, policy: Policy) {
        self.engine.set_policy(class, policy);
    }
}

impl Engine {
    /// How the messages of a class find their rails at the moment.
    pub fn class_policy(&self, class: MessageClass) -> ClassPolicy {
        self.core.class_policy(class)
    }

    /// From now on `policy` decides for messages of a class:
    /// [`Endpoint::set_policy`](rerail_core::endpoint::Endpoint::set_policy).
    pub fn set_policy(&mut self, class: MessageClass, policy: Policy) {
        self.core.set_policy(class, policy);
    }

    /// From now on the rails of `eligible` may carry messages of a class, bit per rail, and `rails_used` of
    /// them do at most: [`Endpoint::set_rails`](rerail_core::endpoint::Endpoint::set_rails).
    pub fn set_rails(&mut self, class: MessageClass, eligible: u64, rails_used: u8) {
        self.core.set_rails(class, eligible, rails_used);
    }

    /// From now on these are the weights of rails, from rail 0 on:
    /// [`Endpoint::set_weights`](rerail_core::endpoint::Endpoint::set_weights).
    pub fn set_weights(&mut self, now: Time, weights: &[u16]) {
        self.core.set_weights(now, weights);
    }

    /// Equation 4's alpha from now on: [`Endpoint::set_alpha`](rerail_core::endpoint::Endpoint::set_alpha).
    pub fn set_alpha(&mut self, alpha: u16) {
        self.core.set_alpha(alpha);
    }
}

impl Transport {
    /// [`Engine::class_policy`].
    pub fn class_policy(&self, class: MessageClass) -> ClassPolicy {
        self.engine.class_policy(class)
    }

    /// The plan for a message of `bytes` to `peer` now:
    /// [`Endpoint::explain`](rerail_core::endpoint::Endpoint::explain).
    pub fn explain(&self, peer: PeerId, class: MessageClass, bytes: u64) -> Option<Explanation> {
        self.engine.endpoint().explain(super::now(), peer, class, bytes)
    }

    /// For people: how a rail treats `peer` in ways that its facts don't show, and why.
    pub fn remark(&self, peer: PeerId, rail: RailId) -> Option<String> {
        self.engine.rails.get(rail)?.remark(peer)
    }

    /// The health of a rail on the path to `peer`:
    /// [`Endpoint::rail_health`](rerail_core::endpoint::Endpoint::rail_health).
    pub fn rail_health(&self, peer: PeerId, rail: RailId) -> Option<RailHealth> {
        self.engine.endpoint().rail_health(peer, rail)
    }

    /// [`Engine::set_policy`].
    pub fn set_policy(&mut self, class: MessageClass, policy: Policy) {
        self.engine.set_policy(class, policy);
    }

    /// [`Engine::set_rails`].
    pub fn set_rails(&mut self, class: MessageClass, eligible: u64, rails_used: u8) {
        self.engine.set_rails(class, eligible, rails_used);
    }

    /// [`Engine::set_weights`], now.
    pub fn set_weights(&mut self, weights: &[u16]) {
        self.engine.set_weights(now(), weights);
    }

    /// [`Engine::set_alpha`].
    pub fn set_alpha(&mut self, alpha: u16) {
        self.engine.set_alpha(alpha);
    }
}
