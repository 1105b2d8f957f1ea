//! Cuts by path estimates (P-8): passes the estimates (`estimates`) to the planner (`rail/plan`) and the
//! policy (`rail/sched/balanced`), and stores their results: how the last message was cut (P-11), and, from
//! how the parts end, which rails contend (P-14). `rebalance` corrects a cut while it is under way (P-10).
//!
//! While the rate of one of the rails is unknown, messages are cut evenly, and rebalanced as the parts
//! progress.

use super::measure::{Change, has_bounds};
use super::path::Why;
use super::policy::Load;
use super::{Path, Paths, Registration};
use crate::api::config::RAILS_MAX;
use crate::ids::RailId;
use crate::rail::plan::split::{Plan, RailState};
use crate::rail::rails_of;
use crate::rail::rate::Rate;
use crate::rail::sched::Stripe;
use crate::rail::sched::balanced::bottleneck::{self, beside_others, contended_rate};
use crate::rail::sched::balanced::{CHUNK_NS, PART_BYTES_MIN, explore, steady};
use crate::time::Time;

impl Paths<'_> {
    /// The current estimates of a rail, for the planner.
    pub(crate) fn state_of(&self, now: Time, channel: u32, load: Load, rail: RailId) -> RailState {
        let path = self.path(channel, rail);
        let state = self.idle_state_of(channel, load, rail);
        RailState { backlog_bytes: path.remaining(now, state.rate) + path.planned, ..state }
    }

    /// The estimates of a rail without any load.
    pub(crate) fn idle_state_of(&self, channel: u32, load: Load, rail: RailId) -> RailState {
        let path = self.path(channel, rail);
        let rate = self.estimated_rate(channel, rail);
        let latency_ns = self.estimated_latency(channel, rail).saturating_mul(load.directions());
        RailState {
            rate,
            contended_rate: contended_rate(rate, path.contention),
            latency_ns,
            backlog_bytes: 0,
            chunk_ns: CHUNK_NS,
            chunk_bytes_min: self.part_bytes_min(channel, rail) as u32,
        }
    }

    /// What a rail is estimated to move while others carry parts of the same message.
    pub(crate) fn estimated_contended_rate(&self, channel: u32, rail: RailId) -> Rate {
        contended_rate(self.estimated_rate(channel, rail), self.path(channel, rail).contention)
    }

    /// Plans a message over rails of a mask (P-8), and puts their states into `states`, by rail. `false`: the
    /// estimates don't suffice.
    pub(crate) fn plan_balanced(
        &self,
        now: Time,
        channel: u32,
        load: Load,
        mask: u64,
        states: &mut [RailState],
        plan: &mut Plan,
    ) -> bool {
        for rail in rails_of(mask) {
            let state = self.state_of(now, channel, load, rail);
            if state.rate == Rate::NONE {
                return false;
            }
            states[rail.index()] = state;
        }
        self.plan_parts(load.bytes, mask, &states[..self.rails.len()], plan)
    }

    /// The parts of a message that `balanced` cut are complete. Rails that took longer for theirs than the
    /// others, relative to their estimates, share a bottleneck: with each other, or with undeclared traffic.
    /// Updates their rates under contention (P-14).
    pub(crate) fn learn_contention(&mut self, channel: u32, set: u32) {
        let mut seen = heapless::Vec::<_, RAILS_MAX>::new();
        for (part, rail) in self.parts_of(set).iter().zip((0..self.rails.len() as u8).map(RailId)) {
            let path = self.path(channel, rail);
            if part.bytes < PART_BYTES_MIN || !part.began_idle() || path.rate == Rate::NONE {
                continue;
            }
            let latency = self.estimated_latency(channel, rail);
            // One place a rail.
            let _ = seen.push((rail, bottleneck::reached(path.rate, part.bytes, latency, part.time().0)));
        }
        if seen.len() < 2 {
            return;
        }
        let most = seen.iter().map(|&(_, reached)| reached).max().unwrap_or(0);
        for &(rail, reached) in &seen {
            let path = self.path_mut(channel, rail);
            path.contention = bottleneck::follow(path.contention, reached, most);
        }
    }

    /// Cuts a message over rails of a mask into `stripes`, which are empty. `false`: the estimates don't
    /// suffice.
    pub(crate) fn balance(&mut self, now: Time, channel: u32, load: Load, mask: u64, stripes: &mut [Stripe]) -> bool {
        let mut plan = Plan::default();
        // Back in its place when they are used.
        let states = core::mem::take(&mut self.states);
        let is_planned = self.plan_balanced(now, channel, load, mask, states, &mut plan);
        let is_kept = is_planned && self.cut_by_plan(channel, load.bytes, states, &plan, stripes);
        self.states = states;
        if !is_planned {
            return false;
        }
        if !is_kept {
            self.note_cut(now, channel, load.bytes, &plan);
        }
        self.plan_exploration(now, channel, mask, &plan, stripes);
        true
    }

    /// Cuts as planned, or as the last message was cut; `true`: the latter (P-11).
    pub(crate) fn cut_by_plan(
        &self,
        channel: u32,
        bytes: u64,
        states: &[RailState],
        plan: &Plan,
        stripes: &mut [Stripe],
    ) -> bool {
        let last = |rail: RailId| (self.path(channel, rail).share, states[rail.index()]);
        let keep = steady::keep(bytes, plan, last, stripes);
        if !keep {
            for chunk in &plan.chunks {
                stripes[usize::from(chunk.rail)] = Stripe { next: chunk.from, end: chunk.from + chunk.bytes };
            }
        }
        keep
    }

    /// Remembers how a message was cut.
    fn note_cut(&mut self, now: Time, channel: u32, bytes: u64, plan: &Plan) {
        for (rail, share) in steady::shares(bytes, plan, self.rails.len() as u8) {
            let path = self.path_mut(channel, rail);
            path.share = share;
            if share == 0 {
                path.contention = bottleneck::fade(path.contention);
            }
            let figures = &mut self.figures[rail.index()];
            let before = core::mem::replace(&mut figures.weight, share);
            if share.abs_diff(before) > before / 32 {
                let (from, to) = (before.into(), share.into());
                figures.changed = Some(Change { at: now, why: Why::Planned, from, to });
            }
        }
    }

    /// Gives a rail that the plan leaves out a small part, where it was unused for a while and the
    /// exploration budget covers the cost (P-11). This detects rails that have recovered.
    fn plan_exploration(&mut self, now: Time, channel: u32, mask: u64, plan: &Plan, stripes: &mut [Stripe]) {
        let credit = self.save_for_exploration(channel, plan.finish_ns);
        let used = plan.chunks.iter().fold(0u64, |used, chunk| used | 1 << chunk.rail);
        let left_out = mask & !used;
        if left_out == 0 {
            return;
        }
        let Some(rail) = self.longest_silence(now, channel, left_out) else { return };
        let facts = &self.rails[rail.index()];
        let bytes = explore::part_bytes(!has_bounds(facts), facts.pio_bytes_max);
        let registering = self.registering_ns(rail, Registration::Own, bytes);
        let beside = u64::from(self.estimated_latency(channel, rail)) + u64::from(CHUNK_NS) + registering;
        let ends = self.estimated_rate(channel, rail).time_ns(bytes).saturating_add(beside);
        let cost = ends.saturating_sub(plan.finish_ns);
        if cost <= credit && explore::give_part(bytes, rail, plan, stripes) {
            self.peer_mut(channel).exploration_ns -= cost as u32;
        }
    }
}

impl Path {
    /// The measured rate, [`Rate::NONE`] where there is none; while it is busy, less its contention penalty
    /// while others carry parts of the same message (P-14). A rail that has completed its part has shown its
    /// own rate.
    pub(crate) fn rate_beside_others(&self) -> Rate {
        if self.backlog == 0 { self.rate } else { beside_others(self.rate, self.contention) }
    }
}
