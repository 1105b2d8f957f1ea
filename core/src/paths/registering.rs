//! The rails for which registering memory pays (P-15), as `rail/sched/balanced/worth.rs` decides.
//!
//! A rail that reads or writes the peer's memory has to pin and map it first, on both sides: here by a key
//! that is sent to the peer, there for the posts. Pinning costs a part for each registration and a part for
//! each page, on the processor, one rail after the other; a rail keeps what it has registered, so a buffer
//! that is used again costs nothing (multirail-2004, 4.2). So two things are measured: for each rail what a
//! registration costs that it has to make (`registration`), and, for all rails together, how much of the
//! memory they had to register. The latter depends on the program, not on the rail: otherwise a rail left out
//! because buffers were always new would never be measured at zero cost.
//!
//! Invariants: integers alone; the state of a rail is bounded, whatever is registered. Where registering has
//! no cost (TCP, shared memory, a rail that never registered), no rail is left out and nothing is computed.

use super::Paths;
use super::policy::{Load, MessageClass};
use super::registration::{Registration, step};
use crate::api::config::RAILS_MAX;
use crate::ids::RailId;
use crate::rail::plan::split::{Plan, RailState, cut};
use crate::rail::rails_of;
use crate::rail::rate::{Rate, scale};
use crate::rail::sched::balanced::worth::{is_cheap, worth};
use crate::time::Nanos;

/// All of the requested memory had to be registered; shares are in parts of this.
const ALL: u64 = 1 << 10;

/// How much of the memory that was to be registered for something was not registered before.
#[derive(Clone, Copy, Debug)]
struct NewShare {
    requested: u64,
    missed: u64,
    /// In parts of [`ALL`].
    share: u64,
}

impl NewShare {
    /// The share, including registrations since the last call.
    fn share(&mut self) -> u64 {
        if self.requested > 0 {
            let seen = scale(self.missed, ALL, self.requested).min(ALL);
            *self = NewShare { requested: 0, missed: 0, share: step(self.share, seen) };
        }
        self.share
    }
}

/// The registration state that all rails share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registering {
    new_shares: [NewShare; Registration::COUNT],
    /// Rails that were seen to cost something: bit per rail.
    costly_rails: u64,
    /// The rail after the last one that was explored though it does not pay.
    explored: u8,
}

impl Default for Registering {
    fn default() -> Self {
        // Until it is seen otherwise, memory is new.
        let new_shares = NewShare { requested: 0, missed: 0, share: ALL };
        Registering { new_shares: [new_shares; Registration::COUNT], costly_rails: 0, explored: 0 }
    }
}

/// The rails that are worth a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    /// They: bit per rail.
    pub requested: u64,
    /// Those that would have a part if registering cost nothing.
    pub unprofitable: u64,
    /// When the message is predicted to be complete, registrations aside; in nanoseconds.
    pub finish_ns: u64,
}

/// What a message's registrations would cost.
struct RegistrationPlan {
    what: Registration,
    /// All of it is registered with every rail, as a key names it all; else each rail registers its part.
    whole: Option<u64>,
}

impl Paths<'_> {
    /// A rail had to register `bytes` of memory, and was busy with it for `took`. Memory that was registered
    /// before is not reported: it costs nothing.
    pub(crate) fn note_registration_cost(&mut self, rail: RailId, what: Registration, bytes: u64, took: Nanos) {
        if rail.index() >= self.rails.len() {
            return;
        }
        self.figures[rail.index()].registering.learn(bytes, took);
        self.registering.costly_rails |= u64::from(took.0 > 0) << rail.0;
        let new_shares = &mut self.registering.new_shares[what as usize];
        new_shares.missed = new_shares.missed.saturating_add(bytes);
    }

    /// A rail is to register so much memory.
    pub(crate) fn note_registering(&mut self, what: Registration, bytes: u64) {
        let new_shares = &mut self.registering.new_shares[what as usize];
        new_shares.requested = new_shares.requested.saturating_add(bytes);
    }

    /// What came since the last message was cut counts from now on.
    pub(crate) fn follow_registering(&mut self) {
        self.registering.new_shares[Registration::Own as usize].share();
    }

    /// Expected cost of registering so much memory with a rail now, in nanoseconds: the cost of a
    /// registration, times how often one was needed.
    pub(crate) fn registering_ns(&self, rail: RailId, what: Registration, bytes: u64) -> u64 {
        if self.registering.costly_rails >> rail.0 & 1 == 0 {
            return 0;
        }
        let share = { self.registering.new_shares[what as usize] }.share();
        scale(self.figures[rail.index()].registering.time(bytes).0, share, ALL)
    }

    /// The rails of a mask that are to register a message's memory for the peer: with `balanced` those with a
    /// part that would pay for that, and at times another one. How the message will be cut is decided by the
    /// peer: this uses the estimates of this side, without the rails' queued work, which is of the other
    /// direction.
    pub(crate) fn rails_to_register(&mut self, channel: u32, (what, bytes): (Registration, u64), mask: u64) -> u64 {
        self.registering.new_shares[what as usize].share();
        let Some(worth) = self.worth_keys(channel, (what, bytes), mask) else { return mask };
        let Keys { requested, finish_ns, .. } = worth;
        let left_out = mask & !requested;
        if left_out == 0 {
            return requested;
        }
        let credit = self.save_for_exploration(channel, finish_ns);
        let turned = rails_of(left_out).find(|rail| rail.0 >= self.registering.explored);
        let Some(rail) = turned.or_else(|| rails_of(left_out).next()) else { return requested };
        let cost = self.registering_ns(rail, what, bytes);
        if cost > credit {
            return requested;
        }
        self.registering.explored = rail.0 + 1;
        self.peer_mut(channel).exploration_ns -= cost as u32;
        requested | 1 << rail.0
    }

    /// [`rails_to_register`](Self::rails_to_register) without side effects and without exploration; `None`:
    /// all of them.
    pub(crate) fn worth_keys(&self, channel: u32, (what, bytes): (Registration, u64), mask: u64) -> Option<Keys> {
        let estimates = self.policies.cut(MessageClass::Large).estimates;
        if !estimates || self.registering.costly_rails & mask == 0 || mask.is_power_of_two() || mask == 0 {
            return None;
        }
        let load = Load { bytes, is_read: what == Registration::Readable };
        let mut states = [RailState::default(); RAILS_MAX];
        for rail in rails_of(mask) {
            states[rail.index()] = self.idle_state_of(channel, load, rail);
            if states[rail.index()].rate == Rate::NONE {
                return None;
            }
        }
        let (mut plan, rails) = (Plan::default(), self.rails.len());
        let registration_plan = RegistrationPlan { what, whole: Some(bytes) };
        let striped = self.usable(channel, MessageClass::Large, mask);
        let worth = self.worth(bytes, striped, &states[..rails], &registration_plan, &mut plan)?;
        let cheap = |rail: &RailId| is_cheap(self.registering_ns(*rail, what, bytes), plan.finish_ns);
        let requested = rails_of(mask).filter(cheap).fold(worth, |mask, rail| mask | 1 << rail.0);
        Some(Keys { requested, unprofitable: plan.unprofitable & !requested, finish_ns: plan.finish_ns })
    }

    /// Of the rails of a mask those over which a message is worth cutting, where each registers its part for
    /// itself, and the plan over them.
    pub(crate) fn plan_parts(&self, bytes: u64, mask: u64, states: &[RailState], plan: &mut Plan) -> bool {
        if self.registering.costly_rails & mask == 0 {
            return cut(bytes, mask, states, plan);
        }
        let registration_plan = RegistrationPlan { what: Registration::Own, whole: None };
        self.worth(bytes, mask, states, &registration_plan, plan).is_some()
    }

    /// The rails of a mask with parts that are worth their registrations, and the plan over them; `None`: the
    /// estimates don't suffice.
    fn worth(
        &self,
        bytes: u64,
        mask: u64,
        states: &[RailState],
        registration_plan: &RegistrationPlan,
        plan: &mut Plan,
    ) -> Option<u64> {
        let cost =
            |rail, part| self.registering_ns(rail, registration_plan.what, registration_plan.whole.unwrap_or(part));
        worth(bytes, mask, states, cost, plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buffers that are used again show within some messages, and so do new ones.
    #[test]
    fn reused_buffers_have_no_registration_cost() {
        let mut new_shares = Registering::default().new_shares[0];
        for _ in 0..30 {
            new_shares.requested += 1 << 20;
            new_shares.share();
        }
        assert_eq!(new_shares.share(), 0);
        for _ in 0..30 {
            (new_shares.requested, new_shares.missed) =
                (new_shares.requested + (1 << 20), new_shares.missed + (1 << 20));
            new_shares.share();
        }
        assert_eq!(new_shares.share(), ALL);
    }
}
