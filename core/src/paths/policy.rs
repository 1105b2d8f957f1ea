//! Which policy decides for which messages, and on which rails (rules P-5 to P-7). Policies and their
//! settings may be changed at any time; what is cut already stays as it is.

use core::cmp::Reverse;

use super::Paths;
use super::measure::Change;
use super::path::Why;
use crate::api::config::{ALPHA_ONE, Config, Policy, RAILS_MAX};
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::rate::Rate;
use crate::rail::sched::{Candidates, Nic, Properties, Turn, View, of};
use crate::rail::weights::{StripeTime, WEIGHT_TOTAL, apportion, follow};
use crate::time::Time;

/// Messages that a policy is chosen for. Control packets (CTS, FIN, answers) are no class: they keep no order
/// and take the first rail that has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageClass {
    /// Messages that are sent eagerly, and the announcements of the others. Their striping policy is never
    /// used.
    Small,
    /// Payload of announced messages.
    Large,
    /// One-sided requests and their payload, answers to peers' gets included.
    OneSided,
}

impl MessageClass {
    /// All of them.
    pub const ALL: [MessageClass; 3] = [MessageClass::Small, MessageClass::Large, MessageClass::OneSided];

    /// Its name in settings and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            MessageClass::Small => "small",
            MessageClass::Large => "large",
            MessageClass::OneSided => "one-sided",
        }
    }
}

/// What is to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Its length in bytes.
    pub bytes: u64,
    /// It is in the peer's memory and is requested from there (remote reads).
    pub is_read: bool,
}

impl Load {
    /// How often something crosses until the first byte is here.
    #[inline]
    pub(super) const fn directions(self) -> u32 {
        1 + self.is_read as u32
    }
}

/// How the messages of one class find their rails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassPolicy {
    /// Rail choice for what is not cut: one of [`Policy::RAIL_CHOICES`].
    pub multiplex: Policy,
    /// Cutting of large messages: one of [`Policy::STRIPINGS`].
    pub striping: Policy,
    /// Rails that may carry it, bit per rail (P-6).
    pub eligible: u64,
    /// How many of them carry it at most (P-6).
    pub rails_used: u8,
}

/// The policies of a class and their properties: read when they are set, not for each message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    policy: ClassPolicy,
    /// Of the one that chooses rails.
    pub choice: Properties,
    /// Of the one that cuts.
    pub cut: Properties,
    /// The smallest payload that is cut (P-5).
    pub cut_bytes_min: u64,
}

impl Class {
    fn new(policy: ClassPolicy) -> Self {
        let (choice, cut) = (of(policy.multiplex), of(policy.striping));
        let cut_bytes_min = cut.cut_bytes_min();
        Class { policy, choice: choice.properties(), cut: cut.properties(), cut_bytes_min }
    }

    /// Whether all rails may carry its messages, all of a mask among them.
    #[inline(always)]
    pub(crate) fn is_open_to_all(&self, mask: u64) -> bool {
        self.policy.eligible & mask == mask && usize::from(self.policy.rails_used) >= RAILS_MAX
    }
}

/// Policies and settings as they are now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policies {
    classes: [Class; 3],
    weights: [u16; RAILS_MAX],
    /// The same, scaled to sum to the total: the start of adaptive weights.
    shares: [u32; RAILS_MAX],
    alpha: u16,
    window_messages: u16,
    bind: u8,
    /// How fast copies are made.
    pub(crate) copy: Rate,
}

impl Policies {
    /// How small messages choose a rail.
    pub(crate) const fn small(&self) -> Policy {
        self.class(MessageClass::Small).policy.multiplex
    }

    /// The properties of that policy.
    pub(crate) const fn of_small(&self) -> &Properties {
        &self.class(MessageClass::Small).choice
    }

    pub(crate) fn new(config: &Config, rails: usize) -> Self {
        let class = ClassPolicy {
            multiplex: config.multiplex,
            striping: config.striping,
            eligible: config.rails_eligible,
            rails_used: config.rails_used,
        };
        Policies {
            classes: [Class::new(class); 3],
            weights: config.weights,
            shares: shares(&config.weights, rails),
            alpha: config.alpha,
            window_messages: config.window_messages,
            bind: config.bind,
            copy: Rate::from_bytes_per_second(config.copy_bytes_per_second),
        }
    }
}

impl Policies {
    /// The smallest payload of a class that is cut (P-5).
    pub(crate) const fn cut_bytes_min(&self, class: MessageClass) -> u64 {
        self.class(class).cut_bytes_min
    }

    /// The properties of a class's policies.
    pub(crate) const fn class(&self, class: MessageClass) -> &Class {
        &self.classes[class as usize]
    }

    /// The properties of the one that cuts its large messages.
    pub(crate) const fn cut(&self, class: MessageClass) -> &Properties {
        &self.class(class).cut
    }

    /// The configured weights, scaled to sum to the total.
    pub(crate) const fn shares(&self) -> [u32; RAILS_MAX] {
        self.shares
    }

    /// That of one rail.
    pub(crate) fn share(&self, rail: RailId) -> u32 {
        self.shares[rail.index()]
    }
}

/// Weights of `rails` rails that sum to the total.
fn shares(weights: &[u16; RAILS_MAX], rails: usize) -> [u32; RAILS_MAX] {
    let mut shares = [0; RAILS_MAX];
    let parts = weights.map(u128::from);
    let rails = rails.min(RAILS_MAX);
    apportion(WEIGHT_TOTAL, &parts[..rails], &mut shares[..rails]);
    shares
}

/// A packet that a rail is to be chosen for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub now: Time,
    pub channel: u32,
    pub class: MessageClass,
    /// Of its payload.
    pub bytes: u64,
    /// Those that there are.
    pub rails: Candidates,
}

impl Paths<'_> {
    /// How the messages of a class find their rails at the moment.
    pub(crate) fn class_policy(&self, class: MessageClass) -> ClassPolicy {
        self.policies.classes[class as usize].policy
    }

    /// From now on `policy` decides for messages of a class (P-5). What it does not decide stays.
    pub(crate) fn set_policy(&mut self, class: MessageClass, policy: Policy) {
        let class = &mut self.policies.classes[class as usize];
        let ClassPolicy { multiplex, striping, .. } = class.policy;
        *class = Class::new(ClassPolicy {
            multiplex: if policy.chooses_rails() { policy } else { multiplex },
            striping: if policy.cuts() { policy } else { striping },
            ..class.policy
        });
    }

    /// From now on the rails of `eligible` may carry messages of a class, bit per rail, and `rails_used` of
    /// them do at most (0 counts as 1; P-6).
    pub(crate) fn set_rails(&mut self, class: MessageClass, eligible: u64, rails_used: u8) {
        let class = &mut self.policies.classes[class as usize].policy;
        (class.eligible, class.rails_used) = (eligible, rails_used.max(1));
    }

    /// From now on these are the weights of rails, relative to each other; those beyond the slice's end are
    /// 0. Adaptive weights begin anew.
    pub(crate) fn set_weights(&mut self, now: Time, weights: &[u16]) {
        self.policies.weights = core::array::from_fn(|rail| weights.get(rail).copied().unwrap_or(0));
        self.policies.shares = shares(&self.policies.weights, self.rails.len());
        for path in self.paths.iter_mut() {
            path.weight = 0;
        }
        for (figures, &share) in self.figures.iter_mut().zip(&self.policies.shares) {
            let (from, to) = (figures.weight.into(), share.into());
            figures.weight = share;
            figures.changed = Some(Change { at: now, why: Why::Set, from, to });
        }
    }

    /// Equation 4's alpha from now on, in parts of [`ALPHA_ONE`]; more counts as 1.
    pub(crate) fn set_alpha(&mut self, alpha: u16) {
        self.policies.alpha = alpha.min(ALPHA_ONE);
    }

    /// Of the rails of a mask those that may carry messages of a class (P-6).
    pub(crate) fn eligible(&self, class: MessageClass, mask: u64) -> u64 {
        let eligible = mask & self.policies.classes[class as usize].policy.eligible;
        // Better over another rail than not at all.
        if eligible == 0 { mask } else { eligible }
    }

    /// Of the rails of a mask those that carry messages of a class (P-6).
    pub(crate) fn usable(&self, channel: u32, class: MessageClass, mask: u64) -> u64 {
        let rails_used = self.policies.classes[class as usize].policy.rails_used;
        self.fastest(channel, self.eligible(class, mask), rails_used.into())
    }

    /// `count` rails of a mask: those that are estimated to be the fastest together, of equals the first. One
    /// that shares a bottleneck with chosen rails counts for its part of the rate that it has alone: so of
    /// two HCAs with two ports each, two rails are a port of either.
    pub(crate) fn fastest(&self, channel: u32, mask: u64, count: u32) -> u64 {
        // As many as there can be, without counting them.
        if count >= RAILS_MAX as u32 || mask.count_ones() <= count {
            return mask;
        }
        let mut taken = 0u64;
        for _ in 0..count {
            let worth = |rail: &RailId| {
                let group = self.groups.innermost(rail.0.into());
                let rate = self.estimated_rate(channel, *rail).0 / (1 + (group & taken).count_ones());
                (rate, Reverse(rail.0))
            };
            let Some(best) = rails_of(mask & !taken).max_by_key(worth) else { break };
            taken |= 1 << best.0;
        }
        taken
    }

    /// A choice among the rails that carry its class (P-6).
    #[inline]
    fn within_usable(&self, choice: Choice) -> Choice {
        let up = self.usable(choice.channel, choice.class, choice.rails.up);
        Choice { rails: Candidates { up, ..choice.rails }, ..choice }
    }

    /// The rail for a packet; `None`: wait for room (P-5).
    pub(crate) fn multiplex(&mut self, choice: Choice) -> Option<RailId> {
        let Choice { channel, class, .. } = choice;
        if self.policies.class(class).choice.estimates {
            let choice = self.within_usable(choice);
            let rail = self.earliest(&choice)?;
            let is_only = choice.rails.up.is_power_of_two();
            return Some(if is_only { rail } else { self.maybe_explore(&choice, rail) });
        }
        let mut turn = self.peer(channel).turns[class as usize];
        let rail = self.pick(choice, &mut turn)?;
        self.peer_mut(channel).turns[class as usize] = turn;
        Some(rail)
    }

    /// [`multiplex`](Self::multiplex), with a turn of the caller's.
    pub(crate) fn pick(&self, choice: Choice, turn: &mut Turn) -> Option<RailId> {
        let choice = self.within_usable(choice);
        let Choice { channel, class, rails, .. } = choice;
        let class = self.policies.class(class);
        let idle = if class.choice.waits_for_idle { self.idle(channel, rails.up & rails.room) } else { 0 };
        let lowest_latency = if class.choice.estimates { self.lowest_latency_of(&choice) } else { None };
        let view = View {
            idle,
            lowest_latency,
            nic: &|rail| self.nic(channel, rail),
            delivery_ns: &|rail| self.delivers_at(&choice, rail),
            ..self.view(rails)
        };
        of(class.policy.multiplex).pick(&view, turn)
    }

    /// The view of a policy that needs no path estimates.
    fn view(&self, rails: Candidates) -> View<'_> {
        View {
            rails,
            idle: 0,
            lowest_latency: None,
            nic: &|_| Nic::default(),
            delivery_ns: &|_| 0,
            bind: RailId(self.policies.bind),
            weights: &self.policies.weights,
            window_messages: self.policies.window_messages,
        }
    }

    /// Of the rails of a mask those over which a large message of a class is cut.
    pub(crate) fn striped(&self, channel: u32, class: MessageClass, mask: u64) -> u64 {
        let usable = self.usable(channel, class, mask);
        let class = self.policies.class(class);
        if class.cut.is_bound {
            let view = self.view(Candidates { up: usable, room: usable });
            let bound = of(class.policy.striping).pick(&view, &mut Turn::default());
            return bound.map_or(0, |rail| 1 << rail.0);
        }
        if class.cut.waits_for_idle { self.idle(channel, usable) } else { usable }
    }

    /// The stripes of a message are complete: updates their rails' weights (P-7).
    pub(crate) fn reweigh(&mut self, channel: u32, set: u32) {
        let mut times = heapless::Vec::<_, RAILS_MAX>::new();
        let mut used = 0;
        for (part, rail) in self.parts_of(set).iter().zip((0..self.rails.len() as u8).map(RailId)) {
            let weight = self.path(channel, rail).weight;
            // Weights were set anew in between, or another policy has cut.
            if part.weight == 0 || weight == 0 {
                continue;
            }
            // One place a rail.
            let _ = times.push(StripeTime { cut: part.weight, weight, nanos: part.time().0 });
            used |= 1 << rail.0;
        }
        let count = times.len();
        if count < 2 {
            return;
        }
        let mut weights = [0; RAILS_MAX];
        follow(&times, self.policies.alpha, &mut weights[..count]);
        for (rail, (&weight, time)) in rails_of(used).zip(weights.iter().zip(&times)) {
            self.path_mut(channel, rail).weight = weight;
            let part = self.parts_of(set)[rail.index()];
            let figures = &mut self.figures[rail.index()];
            figures.weight = weight;
            // Small steps are normal and not reported.
            if weight.abs_diff(time.weight) > time.weight / 32 {
                let (from, to) = (time.weight.into(), weight.into());
                figures.changed = Some(Change { at: part.ended, why: Why::Stripes, from, to });
            }
        }
    }

    /// The weights that rails begin with, into the figures.
    pub(crate) fn begin_weights(&mut self) {
        for (figures, &share) in self.figures.iter_mut().zip(&self.policies.shares) {
            figures.weight = share;
        }
    }
}
