//! Explanations: which rails would carry a message of some size to a peer right now, and why. The same
//! planner, without side effects.

use super::policy::{Choice, Load};
use super::{MessageClass, Paths, Registration};
use crate::api::config::{Policy, RAILS_MAX};
use crate::ids::RailId;
use crate::rail::plan::split::{Plan, RailState, Reason};
use crate::rail::sched::{Candidates, Stripe, of};
use crate::time::{Nanos, Time};
use crate::wire::KEYS_MAX;

/// How a message would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// With its header, in one packet.
    Eager,
    /// Announced, then all of it on one rail.
    Whole,
    /// Announced, then in parts.
    Cut,
}

/// Why a rail carries its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It carries all or a part.
    Carries,
    /// Its subchannel is not up.
    NotUp,
    /// It may not carry the class (P-6).
    NotEligible,
    /// Others can write or read the peer's memory and it can't, or a packet has no room for its key (W-9).
    NoRemoteAccess,
    /// It is not among the rails used (P-6), or another one was bound to.
    NotUsed,
    /// It is another rail's turn, or another one delivers sooner.
    AnotherRail,
    /// Its part would be smaller than a part may be, or not be complete before the others.
    PartTooSmall,
    /// Parts on several rails would gain too little against one rail alone (P-8).
    CuttingDoesNotPay,
    /// Its part would gain less than registering the memory with it is expected to cost (P-15).
    RegistrationDoesNotPay,
}

/// One rail's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The rail.
    pub rail: RailId,
    /// Bytes that it would carry.
    pub bytes: u64,
    /// Bytes that lie on it, or are planned for it.
    pub backlog: u64,
    /// Estimated bytes per second; 0: unknown.
    pub bytes_per_second: u64,
    /// The same while other rails carry parts of the message: less, where they were seen to hold each other
    /// up (P-14).
    pub contended_rate: u64,
    /// The latency that is reckoned with: measured, or else declared or assumed.
    pub latency: Nanos,
    /// When its part would be delivered, from now; of a rail without a part: when all of the message would
    /// be. `None`: the policy predicts nothing.
    pub finish: Option<Nanos>,
    /// What registering memory for it with this rail is expected to cost this side (P-15): all of the message
    /// where the peer moves it, else the rail's part, or all, where it has none. Zero where there is no
    /// measurement.
    pub registering: Nanos,
    /// Why.
    pub verdict: Verdict,
}

/// What would become of a message.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Eager, whole, or cut.
    pub route: Route,
    /// The rule that one rail was chosen by, where the message goes on one.
    pub multiplex: Policy,
    /// The rule that it was cut by.
    pub striping: Policy,
    /// Predicted time of its completion, from now; `None`: the policy predicts nothing.
    pub finish: Option<Nanos>,
    /// The best rail alone, and when it would be complete.
    pub alone: Option<(RailId, Nanos)>,
    /// When the best cut would complete, where one was found. It is used where it beats one rail alone by 3 %
    /// and by 500 ns (P-8).
    pub cut: Option<Nanos>,
    /// Cut in the shares of the message before, which are as good as new ones to within 2 % (P-11).
    pub kept: bool,
    /// All rails of the endpoint.
    pub shares: heapless::Vec<Share, RAILS_MAX>,
}

impl Paths<'_> {
    /// Explains a message of `bytes` to a channel's peer at this moment. `eager_bytes_max`: the most that is
    /// sent eagerly, by our settings and by the peer's. `None`: no rail is ready.
    pub(crate) fn explain(
        &self,
        now: Time,
        channel: u32,
        class: MessageClass,
        bytes: u64,
        eager_bytes_max: (u32, u32),
    ) -> Option<Explanation> {
        let ready = self.ready(channel);
        let mut turn = self.peer(channel).turns[class as usize];
        let mut explanation = Explanation {
            route: Route::Eager,
            multiplex: self.class_policy(class).multiplex,
            striping: self.class_policy(class).striping,
            finish: None,
            alone: None,
            cut: None,
            kept: false,
            shares: heapless::Vec::new(),
        };
        let mut stripes = [Stripe::default(); RAILS_MAX];
        if class == MessageClass::Small {
            let rails = Candidates { up: ready, room: ready };
            let (own, peers) = eager_bytes_max;
            let here = if bytes <= own.into() { bytes } else { 0 };
            let rail = self.pick(Choice { now, channel, class, bytes: here, rails }, &mut turn)?;
            if bytes > own.min(peers).min(self.facts(rail).eager_bytes_max).into() {
                return self.explain(now, channel, MessageClass::Large, bytes, eager_bytes_max);
            }
            stripes[rail.index()] = Stripe { next: 0, end: bytes };
            self.set_shares(channel, class, ready, &stripes, &Plan::default(), &mut explanation);
            self.set_carrier(rail, &mut explanation);
            self.set_delivery(&Choice { now, channel, class, bytes, rails }, &mut explanation);
            return Some(explanation);
        }
        let (mask, able) = self.movers(channel, class);
        let striped = if bytes < self.policies.cut_bytes_min(class) { 0 } else { self.striped(channel, class, mask) };
        let mut plan = Plan::default();
        let mut carrier = None;
        // The peer moves every message that it can read; it gets keys of the rails that are worth their
        // registration.
        let is_read = class == MessageClass::Large && self.ready_with(channel, |caps| caps.read) != 0;
        let keys = (Registration::Readable, bytes);
        let worth = self.worth_keys(channel, keys, mask).filter(|_| is_read);
        let (requested, unprofitable) = worth.map_or((mask, 0), |worth| (worth.requested, worth.unprofitable));
        let striped = striped & requested;
        let policies = *self.policies.class(class);
        if policies.cut.waits_for_idle {
            let idle = self.idle(channel, self.usable(channel, class, mask));
            self.stripe_plainly(channel, class, bytes, idle, &[], &mut stripes[..self.rails.len()]);
        } else if striped.count_ones() < 2 {
            let up = if striped == 0 { mask } else { striped };
            let rails = Candidates { up, room: up };
            let rail = self.pick(Choice { now, channel, class, bytes, rails }, &mut turn)?;
            stripes[rail.index()] = Stripe { next: 0, end: bytes };
            carrier = Some(rail);
        } else {
            let load = Load { bytes, is_read };
            let mut states = [RailState::default(); RAILS_MAX];
            if policies.cut.estimates && self.plan_balanced(now, channel, load, striped, &mut states, &mut plan) {
                explanation.kept = self.cut_by_plan(channel, bytes, &states, &plan, &mut stripes);
                explanation.finish = Some(Nanos(plan.finish_ns));
                explanation.alone = Some((RailId(plan.single.rail), Nanos(plan.single.finish_ns)));
                explanation.cut = plan.split_ns.map(Nanos);
            } else {
                let weights = self.weights(channel, class, striped);
                let stripes = &mut stripes[..self.rails.len()];
                self.stripe_plainly(channel, class, bytes, striped, &weights, stripes);
            }
        }
        self.set_shares(channel, class, able, &stripes, &plan, &mut explanation);
        if let Some(rail) = carrier {
            self.set_carrier(rail, &mut explanation);
            let rails = Candidates { up: mask, room: mask };
            self.set_delivery(&Choice { now, channel, class, bytes, rails }, &mut explanation);
        } else if explanation.finish.is_some() {
            self.set_ends(now, channel, Load { bytes, is_read }, striped, &mut explanation);
        }
        self.set_registering(class, bytes, (is_read, unprofitable | plan.unprofitable), &mut explanation);
        let parts = explanation.shares.iter().filter(|share| share.bytes > 0).count();
        explanation.route = if parts > 1 { Route::Cut } else { Route::Whole };
        Some(explanation)
    }

    /// Rails that could move payload of a class, were we to move it, and those that stand and are eligible.
    fn movers(&self, channel: u32, class: MessageClass) -> (u64, u64) {
        let ready = self.ready(channel);
        let readable = self.ready_with(channel, |caps| caps.read);
        let writable = self.ready_with(channel, |caps| caps.write);
        // One-sided operations go as packets on every rail.
        let able = match (class, readable, writable) {
            (MessageClass::OneSided, ..) | (_, 0, 0) => return (ready, ready),
            (_, 0, writable) => writable,
            (_, readable, _) => readable,
        };
        let keyed = self.fastest(channel, self.eligible(class, able), KEYS_MAX as u32);
        (keyed, able)
    }

    /// Fills in all rails.
    fn set_shares(
        &self,
        channel: u32,
        class: MessageClass,
        able: u64,
        stripes: &[Stripe],
        plan: &Plan,
        to: &mut Explanation,
    ) {
        let ready = self.ready(channel);
        let eligible = self.eligible(class, ready);
        let usable = self.usable(channel, class, ready);
        for rail in (0..self.rails.len() as u8).map(RailId) {
            let has = |mask: u64| mask >> rail.0 & 1 == 1;
            let Stripe { next, end } = stripes[rail.index()];
            let path = self.path(channel, rail);
            let verdict = match () {
                () if end > next => Verdict::Carries,
                () if !has(ready) => Verdict::NotUp,
                () if !has(eligible) => Verdict::NotEligible,
                () if !has(able) => Verdict::NoRemoteAccess,
                () if plan.reason == Reason::BelowMargin => Verdict::CuttingDoesNotPay,
                () if !has(usable) => Verdict::NotUsed,
                () => Verdict::PartTooSmall,
            };
            // As many as there are rails.
            let _ = to.shares.push(Share {
                rail,
                bytes: end - next,
                backlog: path.backlog + path.planned,
                bytes_per_second: self.estimated_rate(channel, rail).bytes_per_second(),
                contended_rate: self.estimated_contended_rate(channel, rail).bytes_per_second(),
                latency: Nanos(self.estimated_latency(channel, rail).into()),
                finish: None,
                registering: Nanos(0),
                verdict,
            });
        }
    }

    /// When rails of a choice would deliver a message that one of them carries, where that decides (P-9).
    fn set_delivery(&self, choice: &Choice, to: &mut Explanation) {
        if !of(to.multiplex).properties().estimates {
            return;
        }
        for share in to.shares.iter_mut().filter(|share| choice.rails.up >> share.rail.0 & 1 == 1) {
            share.finish = Some(Nanos(self.delivers_at(choice, share.rail)));
        }
    }

    /// When rails of a mask, over which a message was planned, would be done: each with its part.
    fn set_ends(&self, now: Time, channel: u32, load: Load, mask: u64, to: &mut Explanation) {
        let is_cut = to.shares.iter().filter(|share| share.bytes > 0).count() > 1;
        for share in to.shares.iter_mut().filter(|share| mask >> share.rail.0 & 1 == 1) {
            let state = self.state_of(now, channel, load, share.rail);
            let ns = match share.bytes {
                part if part > 0 && is_cut => state.contended_ns(part),
                _ => state.alone_ns(load.bytes),
            };
            share.finish = Some(Nanos(ns));
        }
    }

    /// The cost of registering where rails read or write the peer's memory, and the rails left out because of
    /// it.
    fn set_registering(
        &self,
        class: MessageClass,
        bytes: u64,
        (is_read, unprofitable): (bool, u64),
        to: &mut Explanation,
    ) {
        if class == MessageClass::OneSided {
            return;
        }
        for share in &mut to.shares {
            let bit = 1 << share.rail.0;
            let (what, len) = match share.bytes {
                _ if is_read => (Registration::Readable, bytes),
                0 => (Registration::Own, bytes),
                part => (Registration::Own, part),
            };
            share.registering = Nanos(self.registering_ns(share.rail, what, len));
            if share.bytes == 0 && unprofitable & bit != 0 {
                share.verdict = Verdict::RegistrationDoesNotPay;
            }
        }
    }

    /// One rail carries all bytes, if any.
    fn set_carrier(&self, rail: RailId, to: &mut Explanation) {
        for share in &mut to.shares {
            if share.rail == rail {
                share.verdict = Verdict::Carries;
            } else if matches!(share.verdict, Verdict::PartTooSmall | Verdict::NotUsed) {
                let bound = [to.multiplex, to.striping].into_iter().any(|policy| of(policy).properties().is_bound);
                share.verdict = if bound { Verdict::NotUsed } else { Verdict::AnotherRail };
            }
        }
    }
}
