//! The `balanced` policy (P-8 to P-11): small messages go to the rail that delivers them soonest, large ones are cut so
//! that all parts end together, by what is known of each rail (`rail/plan`), and re-cut on the way (`recut`).
//!
//! What is known of a rail, best first: what it was measured at towards this peer, what it was measured at towards
//! another one, what its facts say. As long as nothing is known of one of them, messages are cut evenly, and re-cut as
//! the parts are seen to move.

use super::Endpoint;
use super::MessageClass;
use super::measure::has_bounds;
use super::room::rails_of;
use crate::config::RAILS_MAX;
use crate::ids::RailId;
use crate::rail::plan::split::{Plan, RailState, cut};
use crate::rail::rate::{Rate, scale};
use crate::rail::sched::{CUT_ALIGN, Candidates, STRIPE_BYTES_MIN, Stripe};
use crate::rail::weights::WEIGHT_TOTAL;
use crate::time::{Nanos, Time};

/// What one more part costs beside its bytes: posts, doorbells, a FIN; in nanoseconds.
pub(super) const CHUNK_NS: u32 = 1_000;

/// The latency of a rail that was never seen alone, in nanoseconds, on a device that is near.
const LATENCY_NS: u32 = 5_000;

/// So few bytes move in no time, whatever the rail.
const NEAR_BYTES_MAX: u64 = 64;

/// The kernel's distance of what is near.
const NEAR: u32 = 10;

/// No rail is given less than this as a part of a message.
pub(super) const PART_BYTES_MIN: u64 = 4 * 1024;

/// What a rail is taken to move of which nothing is known, where others are known, in bytes per second.
const UNKNOWN_BYTES_PER_SECOND: u64 = 100_000_000;

/// A rail that a plan leaves out is tried again when it was last seen so long ago.
const STALE: Nanos = Nanos::from_millis(1);

/// Trying costs at most one part in 2^7 of the time of the messages that were cut.
const TRY_SHIFT: u32 = 7;

/// Of so many packets that are not cut, one may be such a try.
const TRY_EVERY: u16 = 16;

/// What may be saved up for one try, in nanoseconds.
const CREDIT_MAX: u32 = 50_000_000;

/// A part that tries a rail: as little as says how fast it is at least (P-1).
const TRY_BYTES: u64 = 4 * 1024;

/// The same on rails that take bytes before they move them: what they buffer says nothing.
const TRY_BYTES_BUFFERED: u64 = 256 * 1024;

/// Parts in which the rate of a rail together with others is reckoned against its rate alone.
const WHOLE: u64 = 1 << 10;

/// A cut is kept as long as it is predicted to end no later than the best one by so much, in hundredths (P-11).
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
    /// The rate that is believed of a rail towards a peer.
    pub(super) fn believed_rate(&self, channel: u32, rail: RailId) -> Rate {
        let measured = self.t.subs[self.t.sub_index(channel, rail)].path.rate;
        if measured != Rate::NONE {
            return measured;
        }
        let figures = &self.t.figures[usize::from(rail.0)];
        let sampled = figures.sampled.map_or(0, |sampled| sampled.bytes_per_second);
        let declared = self.rails[usize::from(rail.0)].bytes_per_second;
        let known = [figures.bytes_per_second, sampled, declared].into_iter().find(|rate| *rate > 0);
        Rate::from_bytes_per_second(known.unwrap_or(0))
    }

    /// The latency that is believed of a rail towards a peer, in nanoseconds.
    pub(super) fn believed_latency(&self, channel: u32, rail: RailId) -> u32 {
        let measured = self.t.subs[self.t.sub_index(channel, rail)].path.latency;
        let facts = &self.rails[usize::from(rail.0)];
        let distance = u32::from(facts.numa_distance);
        let sampled = self.t.figures[usize::from(rail.0)].sampled;
        let sampled = sampled.map_or(0, |sampled| u32::try_from(sampled.latency.0).unwrap_or(u32::MAX));
        match (measured, sampled) {
            (0, 0) if facts.latency_ns > 0 => facts.latency_ns,
            (0, 0) => LATENCY_NS * distance.max(NEAR) / NEAR,
            (0, known) | (known, 0) => known,
            // Completions may have come back from the peer: whichever says less is nearer to the truth.
            (measured, sampled) => measured.min(sampled),
        }
    }

    /// What is believed of a rail at the moment, for the planner.
    fn state_of(&self, now: Time, channel: u32, load: Load, rail: RailId) -> RailState {
        let path = &self.t.subs[self.t.sub_index(channel, rail)].path;
        let rate = self.believed_rate(channel, rail);
        let latency_ns = self.believed_latency(channel, rail).saturating_mul(load.ways());
        RailState {
            rate,
            together: together(rate, path.lacks),
            latency_ns,
            backlog_bytes: path.remaining(now, rate) + path.planned,
            chunk_ns: CHUNK_NS,
            chunk_bytes_min: self.part_bytes_min(channel, rail) as u32,
        }
    }

    /// The smallest part that a rail is given (P-8): what it moves in the time that it takes to get there, so that no part
    /// costs more for being one than for its bytes; and none that the processor would move.
    pub(super) fn part_bytes_min(&self, channel: u32, rail: RailId) -> u64 {
        let way = self.believed_rate(channel, rail).bytes_in(self.believed_latency(channel, rail).into());
        let programmed = u64::from(self.rails[usize::from(rail.0)].pio_bytes_max) + 1;
        way.clamp(PART_BYTES_MIN, STRIPE_BYTES_MIN).max(programmed)
    }

    /// Of some rails the one that delivers `bytes` soonest (P-9); `None`: wait for it to have room.
    pub(super) fn soonest(
        &self,
        now: Time,
        channel: u32,
        class: MessageClass,
        bytes: u64,
        rails: Candidates,
    ) -> Option<RailId> {
        let rails = rails.up & rails.room;
        if rails.is_power_of_two() {
            return Some(RailId(rails.trailing_zeros() as u8));
        }
        // The nearest one, while it has nothing to do and bytes don't count: what nearly all small messages come to.
        let nearest = self.t.channels.at(channel).nearest;
        if bytes <= NEAR_BYTES_MAX
            && rails >> nearest & 1 == 1
            && self.t.subs[self.t.sub_index(channel, RailId(nearest))].posts == 0
        {
            return Some(RailId(nearest));
        }
        let (mut soonest, mut best) = (u64::MAX, None);
        for rail in rails_of(rails) {
            let ends = self.delivers_at(now, channel, class, bytes, rail);
            if ends < soonest {
                (soonest, best) = (ends, Some(rail));
            }
        }
        best
    }

    /// When a rail is predicted to deliver `bytes` that it gets now, in nanoseconds from now. Asked for each small packet and
    /// rail: it reckons with what [`Endpoint::learn_way`] has left in the path, and divides nothing.
    fn delivers_at(&self, now: Time, channel: u32, class: MessageClass, bytes: u64, rail: RailId) -> u64 {
        let sub = &self.t.subs[self.t.sub_index(channel, rail)];
        let path = &sub.path;
        // What is cut and not posted yet goes before other payload, and behind small messages.
        let planned = if class == MessageClass::Small { 0 } else { path.planned };
        let mut ahead = 0;
        if sub.posts > 0 {
            // It has worked on this since it was last heard of.
            ahead = path.pace_ns(path.backlog).saturating_sub((now - path.heard()).0);
            if ahead > 0 {
                ahead += u64::from(sub.posts) * u64::from(path.post_ns);
            }
        }
        // Nothing tells how near a rail is but trying it once.
        let way = if path.way == 0 && sub.posts > 0 { LATENCY_NS } else { path.way };
        ahead + path.pace_ns(planned + bytes) + u64::from(way)
    }

    /// Something is known of a rail that was not: what is asked for each packet is reckoned out.
    pub(super) fn learn_way(&mut self, channel: u32, rail: RailId) {
        let rate = match self.believed_rate(channel, rail) {
            Rate::NONE => Rate::from_bytes_per_second(UNKNOWN_BYTES_PER_SECOND),
            rate => rate,
        };
        let latency = self.believed_latency(channel, rail);
        let is_asked = self.t.figures[usize::from(rail.0)].sampled.is_some();
        let can_be_tried = !is_asked && has_bounds(&self.rails[usize::from(rail.0)]);
        let path = &mut self.t.sub(channel, rail).path;
        path.set_pace(rate);
        path.way = if path.latency == 0 && can_be_tried { 0 } else { latency.max(1) };
        self.find_nearest(channel);
    }

    /// A rail's way has changed, or which rails are ready. Those that are not have no say: the way of one that never came
    /// up reads as that of one to be tried, which is nearer than all.
    pub(super) fn find_nearest(&mut self, channel: u32) {
        let way = |rail: &RailId| self.t.subs[self.t.sub_index(channel, *rail)].path.way;
        let nearest = rails_of(self.ready(channel)).min_by_key(way).unwrap_or_default();
        self.t.channels.at_mut(channel).nearest = nearest.0;
    }

    /// Of each [`TRY_EVERY`] packets one may take another rail than the soonest, `rail`: one that was not heard of for a
    /// while, where the time that this may cost was saved up (P-11).
    #[inline]
    pub(super) fn try_instead(
        &mut self,
        now: Time,
        channel: u32,
        class: MessageClass,
        bytes: u64,
        rails: Candidates,
        rail: RailId,
    ) -> RailId {
        let slot = self.t.channels.at_mut(channel);
        slot.untried = slot.untried.wrapping_add(1);
        if slot.untried.is_multiple_of(TRY_EVERY) {
            self.try_another(now, channel, class, bytes, rails, rail)
        } else {
            rail
        }
    }

    #[cold]
    fn try_another(
        &mut self,
        now: Time,
        channel: u32,
        class: MessageClass,
        bytes: u64,
        rails: Candidates,
        rail: RailId,
    ) -> RailId {
        let ends = self.delivers_at(now, channel, class, bytes, rail);
        let slot = self.t.channels.at_mut(channel);
        let saved = (ends.saturating_mul(TRY_EVERY.into()) >> TRY_SHIFT).min(CREDIT_MAX.into()) as u32;
        slot.try_ns = (slot.try_ns + saved).min(CREDIT_MAX);
        let credit = u64::from(slot.try_ns);
        let others = rails.up & rails.room & !(1 << rail.0);
        let Some(other) = self.longest_unheard(now, channel, others) else { return rail };
        let cost = self.delivers_at(now, channel, class, bytes, other).saturating_sub(ends);
        if cost > credit {
            return rail;
        }
        self.t.channels.at_mut(channel).try_ns -= cost as u32;
        other
    }

    /// Of the rails of a mask that are idle and were not heard of for a while, the one of which this is longest ago.
    fn longest_unheard(&self, now: Time, channel: u32, mask: u64) -> Option<RailId> {
        let path = |rail: RailId| &self.t.subs[self.t.sub_index(channel, rail)];
        let is_stale = |rail: &RailId| {
            let sub = path(*rail);
            sub.posts == 0 && sub.path.planned == 0 && now - sub.path.last >= STALE
        };
        rails_of(mask).filter(is_stale).min_by_key(|rail| (path(*rail).path.last, rail.0))
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
        cut(load.bytes, mask, &rails[..self.rails.len()], plan)
    }

    /// The parts of a message that `balanced` cut are through. Rails that took longer for theirs than the others, by what is
    /// known of each, share a bottleneck: with each other, or with somebody unseen. Their rates together with others
    /// follow (P-14). What all took longer is no news: completions may have been noticed late.
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

    /// Cuts as the last message was cut, where that is as good as the new plan to within [`KEEP_PERCENT`]: so that parts of
    /// messages from the same buffer begin where they began before, and what is registered of it stays of use (P-11).
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
        crate::rail::sched::striping::weighted(bytes, mask, &shares, stripes);
        true
    }

    /// Remembers how a message was cut.
    fn note_cut(&mut self, now: Time, channel: u32, bytes: u64, plan: &Plan) {
        use super::measure::{Change, Why};
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

    /// Gives a rail that the plan leaves out a small part, where it was not seen for a while and the time that this may
    /// cost was saved up (P-11): so a rail that has recovered is found again.
    fn try_again(&mut self, now: Time, channel: u32, mask: u64, plan: &Plan, stripes: &mut [Stripe]) {
        let saved = (plan.finish_ns >> TRY_SHIFT).min(CREDIT_MAX.into()) as u32;
        let slot = self.t.channels.at_mut(channel);
        slot.try_ns = (slot.try_ns + saved).min(CREDIT_MAX);
        let credit = u64::from(slot.try_ns);
        let used = plan.chunks.iter().fold(0u64, |used, chunk| used | 1 << chunk.rail);
        let left_out = mask & !used;
        if left_out == 0 {
            return;
        }
        let Some(rail) = self.longest_unheard(now, channel, left_out) else { return };
        let facts = &self.rails[usize::from(rail.0)];
        let bytes = if has_bounds(facts) { TRY_BYTES } else { TRY_BYTES_BUFFERED };
        let bytes = bytes.max(u64::from(facts.pio_bytes_max + 1).next_multiple_of(TRY_BYTES));
        let beside = u64::from(self.believed_latency(channel, rail)) + u64::from(CHUNK_NS);
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

/// What a rail of a rate moves while others move parts of the same message, where it was seen to lack so much of it then,
/// in parts of [`WHOLE`]; something, where it moves anything.
fn together(rate: Rate, lacks: u16) -> Rate {
    let left = u64::from(rate.0) * (WHOLE - u64::from(lacks)) / WHOLE;
    Rate((left as u32).max(rate.0.min(1)))
}
