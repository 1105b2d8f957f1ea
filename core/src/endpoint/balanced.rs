//! How `balanced` cuts: so that all parts end together, by what is believed of each rail (P-8; `beliefs`, and
//! the planner in `rail/plan`), and as the last message was cut as long as that is about as good (P-11). From
//! how the parts end follows which rails hold each other up (P-14). What turns out otherwise on the way,
//! `recut` mends (P-10).
//!
//! As long as nothing is known of one of the rails, messages are cut evenly, and re-cut as the parts are seen
//! to move.

use super::measure::{Change, Why, has_bounds};
use super::path::Path;
use super::{Endpoint, Registration};
use crate::config::RAILS_MAX;
use crate::ids::RailId;
use crate::rail::plan::split::{Plan, RailState};
use crate::rail::rails_of;
use crate::rail::rate::{Rate, scale};
use crate::rail::sched::balanced::PART_BYTES_MIN;
use crate::rail::sched::striping::weighted;
use crate::rail::sched::{CUT_ALIGN, Stripe};
use crate::rail::weights::WEIGHT_TOTAL;
use crate::time::Time;

/// What one more part costs beside its bytes: posts, doorbells, a FIN; in nanoseconds.
pub(super) const CHUNK_NS: u32 = 1_000;

/// A part that tries a rail: as little as says how fast it is at least (P-1).
const TRY_BYTES: u64 = 4 * 1024;

/// The same on rails that take bytes before they move them: what they buffer says nothing.
const TRY_BYTES_BUFFERED: u64 = 256 * 1024;

/// Parts in which the rate of a rail together with others is reckoned against its rate alone.
const WHOLE: u64 = 1 << 10;

/// More rails than four that share a bottleneck are rare: what a rail lacks more than this is not put down to
/// others.
const LACKS_MAX: u16 = (WHOLE * 3 / 4) as u16;

/// A cut is kept as long as it is predicted to end no later than the best one by so much, in hundredths
/// (P-11).
const KEEP_PERCENT: u64 = 2;

/// What is to be moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Its length in bytes.
    pub bytes: u64,
    /// It lies with the peer and has to be asked for (remote reads).
    pub is_read: bool,
}

impl Load {
    /// How often something crosses until the first byte is here.
    const fn ways(self) -> u32 {
        1 + self.is_read as u32
    }
}

impl Endpoint<'_> {
    /// What is believed of a rail at the moment, for the planner.
    pub(super) fn state_of(&self, now: Time, channel: u32, load: Load, rail: RailId) -> RailState {
        let path = &self.t.subs[self.t.sub_index(channel, rail)].path;
        let state = self.idle_state_of(channel, load, rail);
        RailState { backlog_bytes: path.remaining(now, state.rate) + path.planned, ..state }
    }

    /// What is believed of a rail when nothing lies on it.
    pub(super) fn idle_state_of(&self, channel: u32, load: Load, rail: RailId) -> RailState {
        let path = &self.t.subs[self.t.sub_index(channel, rail)].path;
        let rate = self.believed_rate(channel, rail);
        let latency_ns = self.believed_latency(channel, rail).saturating_mul(load.ways());
        RailState {
            rate,
            together: together(rate, path.lacks),
            latency_ns,
            backlog_bytes: 0,
            chunk_ns: CHUNK_NS,
            chunk_bytes_min: self.part_bytes_min(channel, rail) as u32,
        }
    }

    /// What a rail is believed to move while others carry parts of the same message.
    pub(super) fn together_rate(&self, channel: u32, rail: RailId) -> Rate {
        together(self.believed_rate(channel, rail), self.t.subs[self.t.sub_index(channel, rail)].path.lacks)
    }

    /// Plans a message over rails of a mask (P-8). `false`: not enough is known.
    pub(super) fn plan_balanced(&self, now: Time, channel: u32, load: Load, mask: u64, plan: &mut Plan) -> bool {
        let mut rails = [RailState::default(); RAILS_MAX];
        for rail in rails_of(mask) {
            let state = self.state_of(now, channel, load, rail);
            if state.rate == Rate::NONE {
                return false;
            }
            rails[usize::from(rail.0)] = state;
        }
        self.plan_parts(load.bytes, mask, &rails[..self.rails.len()], plan)
    }

    /// The parts of a message that `balanced` cut are through. Rails that took longer for theirs than the
    /// others, by what is known of each, share a bottleneck: with each other, or with somebody unseen. Their
    /// rates together with others follow (P-14). What all took longer is no news: completions may have been
    /// noticed late.
    pub(super) fn learn_together(&mut self, channel: u32, set: u32) {
        let mut seen = [0u64; RAILS_MAX];
        let mut most = 0;
        let mut count = 0;
        for (rail, seen) in (0..self.rails.len() as u8).map(RailId).zip(&mut seen) {
            let part = self.t.parts_of(set)[usize::from(rail.0)];
            let latency = self.believed_latency(channel, rail);
            let path = &self.t.subs[self.t.sub_index(channel, rail)].path;
            if part.bytes < PART_BYTES_MIN || !part.began_idle() || path.rate == Rate::NONE {
                continue;
            }
            let took = part.time().0;
            let moving = took - u64::from(latency).min(took / 2);
            // Of what it moves alone, in parts of WHOLE squared.
            let reached = scale(path.rate.time_ns(part.bytes), WHOLE * WHOLE, moving.max(1)).max(1);
            *seen = reached;
            most = most.max(reached);
            count += 1;
        }
        if count < 2 {
            return;
        }
        for (index, reached) in seen.iter().enumerate().filter(|(_, reached)| **reached > 0) {
            let path = &mut self.t.sub(channel, RailId(index as u8)).path;
            let lacks = WHOLE - scale(*reached, WHOLE, most).min(WHOLE);
            // A rail that has all but stopped is not waited for again.
            let is_jump = lacks > u64::from(path.lacks) + WHOLE / 2;
            let lacks = if is_jump { lacks } else { (u64::from(path.lacks) + lacks) / 2 };
            path.lacks = lacks.min(WHOLE - 1) as u16;
        }
    }

    /// Cuts a message over rails of a mask into `stripes`, which are empty. `false`: not enough is known.
    pub(super) fn balance(&mut self, now: Time, channel: u32, load: Load, mask: u64, stripes: &mut [Stripe]) -> bool {
        let mut plan = Plan::default();
        if !self.plan_balanced(now, channel, load, mask, &mut plan) {
            return false;
        }
        if !self.cut_by_plan(now, channel, load, &plan, stripes) {
            self.note_cut(now, channel, load.bytes, &plan);
        }
        self.try_again(now, channel, mask, &plan, stripes);
        true
    }

    /// Cuts as planned, or as the last message was cut; `true`: the latter.
    pub(super) fn cut_by_plan(&self, now: Time, channel: u32, load: Load, plan: &Plan, stripes: &mut [Stripe]) -> bool {
        let keep = self.keep_cut(now, channel, load, plan, stripes);
        if !keep {
            for chunk in &plan.chunks {
                stripes[usize::from(chunk.rail)] = Stripe { next: chunk.from, end: chunk.from + chunk.bytes };
            }
        }
        keep
    }

    /// Cuts as the last message was cut, where that is as good as the new plan to within [`KEEP_PERCENT`]: so
    /// that parts of messages from the same buffer begin where they began before, and what is registered of
    /// it stays of use (P-11).
    fn keep_cut(&self, now: Time, channel: u32, load: Load, plan: &Plan, stripes: &mut [Stripe]) -> bool {
        let bytes = load.bytes;
        let mut shares = [0; RAILS_MAX];
        let mut sum = 0;
        let mut latest = 0;
        for chunk in &plan.chunks {
            let rail = RailId(chunk.rail);
            let path = &self.t.subs[self.t.sub_index(channel, rail)].path;
            let state = self.state_of(now, channel, load, rail);
            if path.share == 0 || state.backlog_bytes > 0 {
                return false;
            }
            let part = (u128::from(bytes) * u128::from(path.share) / u128::from(WEIGHT_TOTAL)) as u64;
            if part < state.chunk_bytes_min.into() {
                return false;
            }
            latest = state.together_ns(part).max(latest);
            shares[usize::from(rail.0)] = path.share;
            sum += path.share;
        }
        if plan.chunks.len() < 2 || sum != WEIGHT_TOTAL || latest > plan.finish_ns + plan.finish_ns / 100 * KEEP_PERCENT
        {
            return false;
        }
        let mask = plan.chunks.iter().fold(0, |mask, chunk| mask | 1 << chunk.rail);
        weighted(bytes, mask, &shares, stripes);
        true
    }

    /// Remembers how a message was cut.
    fn note_cut(&mut self, now: Time, channel: u32, bytes: u64, plan: &Plan) {
        let mut given = 0;
        let mut at = 0;
        for rail in 0..self.rails.len() as u8 {
            let share = match plan.chunks.iter().find(|chunk| chunk.rail == rail) {
                // By running sums, so that all together are the total.
                Some(chunk) => {
                    at += chunk.bytes;
                    let until = (u128::from(at) * u128::from(WEIGHT_TOTAL) / u128::from(bytes.max(1))) as u32;
                    until - core::mem::replace(&mut given, until)
                }
                None => 0,
            };
            let path = &mut self.t.sub(channel, RailId(rail)).path;
            path.share = share;
            if share == 0 {
                // Nothing is seen of it, so what was seen fades.
                path.lacks -= path.lacks.div_ceil(64);
            }
            let figures = &mut self.t.figures[usize::from(rail)];
            let before = core::mem::replace(&mut figures.weight, share);
            if share.abs_diff(before) > before / 32 {
                let (from, to) = (before.into(), share.into());
                figures.changed = Some(Change { at: now, why: Why::Planned, from, to });
            }
        }
    }

    /// Gives a rail that the plan leaves out a small part, where it was not seen for a while and the time
    /// that this may cost was saved up (P-11): so a rail that has recovered is found again.
    fn try_again(&mut self, now: Time, channel: u32, mask: u64, plan: &Plan, stripes: &mut [Stripe]) {
        let credit = self.save_for_tries(channel, plan.finish_ns);
        let used = plan.chunks.iter().fold(0u64, |used, chunk| used | 1 << chunk.rail);
        let left_out = mask & !used;
        if left_out == 0 {
            return;
        }
        let Some(rail) = self.longest_unheard(now, channel, left_out) else { return };
        let facts = &self.rails[usize::from(rail.0)];
        let bytes = if has_bounds(facts) { TRY_BYTES } else { TRY_BYTES_BUFFERED };
        let bytes = bytes.max(u64::from(facts.pio_bytes_max + 1).next_multiple_of(TRY_BYTES));
        let registering = self.registering_ns(rail, Registration::Own, bytes);
        let beside = u64::from(self.believed_latency(channel, rail)) + u64::from(CHUNK_NS) + registering;
        let ends = self.believed_rate(channel, rail).time_ns(bytes).saturating_add(beside);
        let cost = ends.saturating_sub(plan.finish_ns);
        // The end of the largest part, if it is large enough to go on being one.
        let Some(chunk) = plan.chunks.iter().max_by_key(|chunk| chunk.bytes) else { return };
        let Stripe { next, end } = stripes[usize::from(chunk.rail)];
        if cost > credit || end - next < 4 * bytes {
            return;
        }
        self.t.channels.at_mut(channel).try_ns -= cost as u32;
        let from = (end - bytes) & !(CUT_ALIGN - 1);
        stripes[usize::from(chunk.rail)].end = from;
        stripes[usize::from(rail.0)] = Stripe { next: from, end };
    }
}

impl Path {
    /// The rate that it was measured at, [`Rate::NONE`] where it was not; while it is busy, less what it
    /// lacks while others carry parts of the same message (P-14): one that is through with its part has shown
    /// what it can do. One that lacks more than [`LACKS_MAX`] may as well have become slow, which is measured
    /// when it has more to do than one post.
    pub(super) fn rate_beside_others(&self) -> Rate {
        if self.backlog == 0 || self.lacks > LACKS_MAX { self.rate } else { together(self.rate, self.lacks) }
    }
}

/// What a rail of a rate moves while others move parts of the same message, where it was seen to lack so much
/// of it then, in parts of [`WHOLE`]; something, where it moves anything.
fn together(rate: Rate, lacks: u16) -> Rate {
    let left = u64::from(rate.0) * (WHOLE - u64::from(lacks)) / WHOLE;
    Rate((left as u32).max(rate.0.min(1)))
}
