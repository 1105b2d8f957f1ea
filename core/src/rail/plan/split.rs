//! The finishing-together split: cuts a message so that its parts, each on its own rail, are all done at the same and
//! earliest moment, and says whether that pays against the best rail alone.
//!
//! # The fluid model
//!
//! A rail first drains the bytes already queued on it, then waits its latency and the cost of one more chunk, then moves
//! the chunk at its rate (lessened by what registering the memory costs). Rails of a group with a known capacity share
//! it in proportion to their rates whenever together they could move more. The message is done when the last part is.
//! Which rails take part follows from that: a rail that would only begin when the others are done, or that could not
//! move its smallest chunk by then, gets nothing.
//!
//! # How it is solved
//!
//! Where no group is in the way, rails sorted by the moment at which they can have moved their smallest chunk enter one
//! after the other, until those that have entered are done before the next would enter: a closed form and one pass, and
//! the optimum. Where the number of chunks is limited (by a knob, or because the message has too few smallest chunks),
//! the best set is found by Newton's steps from the best single rail: the time decreases with each, at most
//! `ROUNDS_MAX` of them. Where a group is in the way, `fluid` plays the model from event to event, first with all rails,
//! then leaving out those that can be missed best; that is near the optimum, not proven to be it.
//!
//! Invariants: chunks are disjoint, in the rails' order, sum to the message, none is shorter than its rail's smallest;
//! all cuts lie on the alignment asked for; the prediction is never later than the best single rail's.
//!
//! Source: multirail-2004 4.4 (weighted striping by path bandwidth), newmadeleine-2007 3.4 (chunks above the
//! programmed-I/O range); backlog, start-up costs, groups and weights of zero go past both.

use super::fluid::{self, Fluid};
use super::groups::Forest;
use super::{RAILS_MAX, rails_of};
use crate::rail::rate::{self, Rate};
use heapless::Vec;

/// What is believed of one rail of a channel at the moment of planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailState {
    /// What it moves while alone. [`Rate::NONE`]: the rail is left out.
    pub rate: Rate,
    /// From the first byte's post to its arrival on an idle rail, in ns.
    pub latency_ns: u32,
    /// Bytes queued on the rail before this message that have not arrived.
    pub backlog_bytes: u64,
    /// Fixed cost of one more chunk: post, doorbell, the fixed part of a registration; in ns.
    pub chunk_ns: u32,
    /// Cost of registering the memory of the chunk with this rail, in ns per MiB; 0: cached, or nothing to register.
    pub register_ns_per_mib: u32,
    /// The smallest chunk worth cutting for this rail, in bytes: at least one above the programmed-I/O range.
    pub chunk_bytes_min: u32,
}

/// What is to be cut, and under which conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Length of the message, in bytes.
    pub bytes: u64,
    /// Bit per rail: may be used.
    pub eligible: u64,
    /// At most so many rails at once; zero counts as one.
    pub rails_used_max: u8,
    /// All cuts are multiples of it, in bytes; a power of two (anything else is rounded up to one).
    pub align: u32,
    /// A split must be predicted to end earlier than the best single rail by this share of the latter's time, in
    /// thousandths.
    pub margin_permille: u16,
    /// And by so many ns.
    pub margin_ns: u32,
}

impl Default for Ask {
    /// An empty message over all rails; cuts on cache lines; split where it pays 3 % and 0.5 us.
    fn default() -> Self {
        Ask { bytes: 0, eligible: u64::MAX, rails_used_max: 64, align: 64, margin_permille: 30, margin_ns: 500 }
    }
}

/// Bottlenecks that rails share, and what they carry.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    /// Which rails share what.
    pub forest: &'a Forest,
    /// By the index of a group: what it moves at most. [`Rate::NONE`], or past the end: never in the way.
    pub capacities: &'a [Rate],
}

/// One part of the message on one rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The rail.
    pub rail: u8,
    /// Where it begins in the message, in bytes.
    pub from: u64,
    /// Its length, in bytes.
    pub bytes: u64,
}

/// The best rail alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Single {
    /// The rail.
    pub rail: u8,
    /// When it would be done with the whole message, in ns from now.
    pub finish_ns: u64,
}

/// Why a plan has the shape it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// Several rails: it pays.
    Split,
    /// One rail: no other is eligible, known, or allowed.
    #[default]
    OneRail,
    /// One rail: no second would be given a chunk.
    NoSecondChunk,
    /// One rail: the best split is predicted to gain less than the margin.
    BelowMargin,
}

/// A message cut, and the prediction behind it.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The parts, in the order of the rails and of the message. One where it isn't split.
    pub chunks: Vec<Chunk, RAILS_MAX>,
    /// When the last part is predicted to be done, in ns from now.
    pub finish_ns: u64,
    /// The best rail alone.
    pub single: Single,
    /// When the best split would have been done, if one was found; in ns from now. Kept where the guard refuses it.
    pub split_ns: Option<u64>,
    /// Why.
    pub reason: Reason,
}

/// When `rail` would be done with `bytes`, alone and with no group in the way; in ns from now, saturating.
pub fn finish_ns(rail: &RailState, bytes: u64) -> u64 {
    start_ns(rail).saturating_add(effective(rail).time_ns(bytes))
}

/// The rail of `eligible` that delivers `bytes` soonest, with no group in the way; the lowest of equals. `None` where
/// no eligible rail has a rate. For small messages: no division for rails without backlog but the one of their rate.
pub fn best_single(rails: &[RailState], eligible: u64, bytes: u64) -> Option<Single> {
    known(rails, eligible)
        .map(|(rail, state)| Single { rail: rail as u8, finish_ns: finish_ns(state, bytes) })
        .min_by_key(|single| (single.finish_ns, single.rail))
}

/// Cuts a message by the fluid model into `plan`, whose former content is dropped. `rails[rail]` is the state of a rail;
/// eligible rails past its end don't exist. Returns false, with the plan empty, where no eligible rail has a rate.
pub fn cut(ask: &Ask, rails: &[RailState], shared: Shared<'_>, plan: &mut Plan) -> bool {
    plan.chunks.clear();
    (plan.finish_ns, plan.single, plan.split_ns, plan.reason) = (0, Single::default(), None, Reason::OneRail);
    let fluid = Fluid::new(rails, shared, ask.eligible);
    let single = match &fluid {
        None => best_single(rails, ask.eligible, ask.bytes),
        Some(fluid) => best_single_shared(ask, rails, fluid),
    };
    let Some(single) = single else { return false };
    plan.single = single;
    plan.finish_ns = single.finish_ns;
    let lines = lines(ask, rails);
    if lines.len() > 1 && ask.rails_used_max > 1 {
        plan.split_ns = match fluid {
            None => together(ask, lines, single, &mut plan.chunks),
            Some(fluid) => together_shared(ask, &lines, single, &fluid, &mut plan.chunks),
        };
        let margin_ns = rate::scale(single.finish_ns, ask.margin_permille.into(), 1000).max(ask.margin_ns.into());
        plan.reason = match plan.split_ns {
            None => Reason::NoSecondChunk,
            Some(split_ns) if split_ns.saturating_add(margin_ns) > single.finish_ns => Reason::BelowMargin,
            Some(split_ns) => {
                plan.finish_ns = split_ns;
                plan.reason = Reason::Split;
                return true;
            }
        };
    }
    plan.chunks.clear();
    // Sixty-four places, one taken.
    let _ = plan.chunks.push(Chunk { rail: single.rail, from: 0, bytes: ask.bytes });
    true
}

/// Steps towards the best set of a limited number of rails. Each strictly shortens the time; two or three are usual.
const ROUNDS_MAX: usize = 8;

/// A rail as the solver sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) rail: u8,
    /// With registration in it.
    rate: Rate,
    /// When its chunk begins to arrive, in ns, if no group is in the way.
    start_ns: u64,
    /// When its smallest chunk can have arrived.
    entry_ns: u64,
    /// The smallest chunk, a multiple of the alignment.
    min: u64,
    /// The chunk.
    pub(super) bytes: u64,
}

type Lines = Vec<Line, RAILS_MAX>;

impl Line {
    /// What it can have moved at `at_ns`, or nothing if that is less than its smallest chunk.
    fn moved(&self, at_ns: u64) -> u64 {
        match self.rate.bytes_in(at_ns.saturating_sub(self.start_ns)) {
            bytes if bytes >= self.min => bytes,
            _ => 0,
        }
    }
}

/// The rails of `eligible` that exist and have a rate.
fn known(rails: &[RailState], eligible: u64) -> impl Iterator<Item = (usize, &RailState)> {
    let state = |rail| rails.get(rail).filter(|state: &&RailState| state.rate != Rate::NONE).map(|state| (rail, state));
    rails_of(eligible).filter_map(state)
}

/// The candidates of a split: those whose smallest chunk the message has room for.
fn lines(ask: &Ask, rails: &[RailState]) -> Lines {
    let align = align(ask);
    let line = |(rail, state): (usize, &RailState)| {
        let min = u64::from(state.chunk_bytes_min.max(1)).next_multiple_of(align);
        let (rate, start_ns) = (effective(state), start_ns(state));
        let entry_ns = start_ns.saturating_add(rate.time_ns(min));
        Line { rail: rail as u8, rate, start_ns, entry_ns, min, bytes: 0 }
    };
    known(rails, ask.eligible).map(line).filter(|line| line.min <= ask.bytes).collect()
}

fn align(ask: &Ask) -> u64 {
    u64::from(ask.align).next_power_of_two()
}

fn start_ns(rail: &RailState) -> u64 {
    let drained_ns = if rail.backlog_bytes == 0 { 0 } else { rail.rate.time_ns(rail.backlog_bytes) };
    drained_ns.saturating_add(fluid::wait_ns(rail))
}

/// The rate of a chunk whose memory is registered as it goes: `1 / (1/rate + registration)`.
pub(super) fn effective(rail: &RailState) -> Rate {
    if rail.register_ns_per_mib == 0 {
        return rail.rate;
    }
    // Registration per byte relative to transfer per byte is rate * register / 2^44; kept to 30 bits.
    let relative = (u64::from(rail.rate.0) * u64::from(rail.register_ns_per_mib)) >> 14;
    Rate(rate::scale(rail.rate.0.into(), 1 << 30, (1 << 30) + relative).max(1) as u32)
}

/// The optimum where no group is in the way; `None` if one rail is.
fn together(ask: &Ask, mut lines: Lines, single: Single, chunks: &mut Vec<Chunk, RAILS_MAX>) -> Option<u64> {
    let mut best_ns = enter(&mut lines, ask.bytes);
    let mut used = lines.iter().take_while(|line| line.entry_ns <= best_ns).count();
    let least: u64 = lines[..used].iter().map(|line| line.min).fold(0, u64::saturating_add);
    if used > ask.rails_used_max.into() || least > ask.bytes {
        best_ns = single.finish_ns;
        let all = lines.clone();
        for round in 0..ROUNDS_MAX {
            let mut set = choose(&all, ask, best_ns);
            let at_ns = enter(&mut set, ask.bytes);
            if set.is_empty() || (round > 0 && at_ns >= best_ns) {
                break;
            }
            best_ns = at_ns;
            used = set.iter().take_while(|line| line.entry_ns <= best_ns).count();
            lines = set;
        }
    }
    lines.truncate(used);
    if lines.len() < 2 {
        return None;
    }
    for line in &mut lines {
        line.bytes = line.moved(best_ns);
    }
    apportion(&mut lines, ask, chunks);
    let end = |line: &Line| line.start_ns.saturating_add(line.rate.time_ns(line.bytes));
    lines.iter().map(end).max()
}

/// Sorts lines by entry and returns the earliest moment at which those that have entered by then have moved `bytes`.
fn enter(lines: &mut Lines, bytes: u64) -> u64 {
    lines.sort_unstable_by_key(|line| (line.entry_ns, line.rail));
    let (mut rates, mut rate_starts) = (0u64, 0u128);
    for index in 0..lines.len() {
        let line = &lines[index];
        rates += u64::from(line.rate.0);
        rate_starts += u128::from(line.rate.0) * u128::from(line.start_ns);
        // A line enters with its smallest chunk at once, which may be more than is left: then that is the moment.
        let at_ns = rate::meeting_ns(bytes, rates, rate_starts).max(line.entry_ns);
        if lines.get(index + 1).is_none_or(|next| at_ns < next.entry_ns) {
            return at_ns;
        }
    }
    u64::MAX
}

/// The rails that move most by `at_ns`, as many as allowed.
fn choose(all: &Lines, ask: &Ask, at_ns: u64) -> Lines {
    let mut by_bytes = all.clone();
    by_bytes.iter_mut().for_each(|line| line.bytes = line.moved(at_ns));
    by_bytes.sort_unstable_by_key(|line| (core::cmp::Reverse(line.bytes), line.rail));
    let (mut set, mut least) = (Lines::new(), 0u64);
    for line in by_bytes.iter().filter(|line| line.bytes > 0) {
        if set.len() < ask.rails_used_max.into() && least.saturating_add(line.min) <= ask.bytes {
            least += line.min;
            let _ = set.push(*line);
        }
    }
    set
}

/// Turns what lines could move into chunks: no less than the smallest, no more than the message, cuts aligned.
fn apportion(lines: &mut Lines, ask: &Ask, chunks: &mut Vec<Chunk, RAILS_MAX>) {
    lines.sort_unstable_by_key(|line| line.rail);
    let (mut sum, mut least) = (0u64, 0u64);
    for line in lines.iter_mut() {
        line.bytes = line.bytes.max(line.min);
        sum = sum.saturating_add(line.bytes);
        least = least.saturating_add(line.min);
    }
    if sum.abs_diff(ask.bytes) > lines.len() as u64 {
        // Above the smallest chunks all shrink (or grow, by a rounding) alike.
        let (spare, rest) = (sum - least, ask.bytes.saturating_sub(least));
        lines.iter_mut().for_each(|line| line.bytes = line.min + rate::scale(line.bytes - line.min, rest, spare));
    }
    // Cuts at the exact running sums, rounded down: no chunk is off by more than one unit, and none falls below its
    // smallest, which is a whole number of units.
    let unit = align(ask) - 1;
    let (mut exact, mut from) = (0u64, 0u64);
    let last = lines.len().saturating_sub(1);
    chunks.clear();
    for (index, line) in lines.iter_mut().enumerate() {
        exact = exact.saturating_add(line.bytes).min(ask.bytes);
        let end = if index == last { ask.bytes } else { exact & !unit };
        line.bytes = end - from;
        let _ = chunks.push(Chunk { rail: line.rail, from, bytes: line.bytes });
        from = end;
    }
}

/// [`best_single`] with groups: the model is played only for rails that could still win.
fn best_single_shared(ask: &Ask, rails: &[RailState], fluid: &Fluid<'_>) -> Option<Single> {
    let bound = |(rail, _): (usize, &RailState)| (fluid.bound_ns(rail, ask.bytes), rail as u8);
    let mut bounds: Vec<(u64, u8), RAILS_MAX> = known(rails, ask.eligible).map(bound).collect();
    bounds.sort_unstable();
    let mut best: Option<Single> = None;
    for (bound_ns, rail) in bounds {
        if best.is_some_and(|best| best.finish_ns <= bound_ns) {
            break;
        }
        let finish_ns = fluid.finish_ns(&[Chunk { rail, from: 0, bytes: ask.bytes }]);
        if best.is_none_or(|best| finish_ns < best.finish_ns) {
            best = Some(Single { rail, finish_ns });
        }
    }
    best
}

/// A split near the optimum where groups are in the way; `None` if one rail is best.
///
/// More rails never lengthen the relaxed time (rails share what there is, and nobody waits), so the search starts from
/// all and leaves out one after the other, until smallest chunks and the number of rails are kept.
fn together_shared(
    ask: &Ask,
    candidates: &Lines,
    single: Single,
    fluid: &Fluid<'_>,
    chunks: &mut Vec<Chunk, RAILS_MAX>,
) -> Option<u64> {
    let all: Lines = candidates.iter().filter(|line| line.moved(single.finish_ns) > 0).copied().collect();
    let mut set = all.clone();
    let smallest = set.iter().map(|line| line.min).min().unwrap_or(1);
    let used_max = u64::from(ask.rails_used_max).min(ask.bytes / smallest) as usize;
    let mut best_ns = u64::MAX;
    let mut trial = Vec::new();
    // Each round ends the search or leaves out a rail.
    for _ in 0..RAILS_MAX {
        // What is relaxed bounds what is allowed: with fewer rails it only gets later.
        if set.len() < 2 {
            break;
        }
        if set.len() == used_max && all.len() > used_max && all.len() <= SWAP_RAILS_MAX {
            swap(&mut set, &all, ask.bytes, fluid);
        }
        if fluid.together(&mut set, ask.bytes) >= best_ns {
            break;
        }
        let least = set.iter().map(|line| line.min).fold(0, u64::saturating_add);
        if set.len() <= used_max && least <= ask.bytes {
            let mut raised = set.clone();
            apportion(&mut raised, ask, &mut trial);
            let finish_ns = fluid.finish_ns(&trial);
            if finish_ns < best_ns {
                best_ns = finish_ns;
                core::mem::swap(chunks, &mut trial);
            }
        }
        if !leave_out(&mut set, ask, used_max, fluid) {
            break;
        }
    }
    (best_ns != u64::MAX).then_some(best_ns)
}

/// Leaves out what can be missed best; false where nothing has to be left out. Many rails too many go in bulk, by what
/// they move; of a few, those that matter least are each tried.
fn leave_out(set: &mut Lines, ask: &Ask, used_max: usize, fluid: &Fluid<'_>) -> bool {
    let too_many = set.len() > used_max;
    if !too_many && set.iter().all(|line| line.bytes >= line.min) {
        return false;
    }
    let worth = |line: &Line| if too_many { line.bytes } else { rate::scale(line.bytes, 1 << 16, line.min) };
    set.sort_unstable_by_key(|line| (core::cmp::Reverse(worth(line)), line.rail));
    let excess = set.len().saturating_sub(used_max);
    if excess > BULK {
        set.truncate(set.len() - excess / 4);
        return true;
    }
    let without = |index: usize| {
        let mut rest = set.clone();
        rest.swap_remove(index);
        (fluid.together(&mut rest, ask.bytes), index)
    };
    let tried = (0..set.len()).rev().take(TRIED);
    if let Some((_, index)) = tried.map(without).min() {
        set.swap_remove(index);
    }
    true
}

/// Mends what leaving out greedily got wrong: takes a rail from outside for one of the set wherever the set gains.
fn swap(set: &mut Lines, all: &Lines, bytes: u64, fluid: &Fluid<'_>) {
    let mut at_ns = fluid.together(set, bytes);
    for outsider in all {
        if set.iter().any(|line| line.rail == outsider.rail) {
            continue;
        }
        for place in 0..set.len() {
            let mut other = set.clone();
            other[place] = *outsider;
            let other_ns = fluid.together(&mut other, bytes);
            if other_ns < at_ns {
                (*set, at_ns) = (other, other_ns);
                break;
            }
        }
    }
}

/// Rails among which swaps are tried: with more it would cost too much.
const SWAP_RAILS_MAX: usize = 8;

/// Rails too many from which they are left out a quarter at a time.
const BULK: usize = 8;

/// Rails that are each tried before one is left out.
const TRIED: usize = 3;

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
