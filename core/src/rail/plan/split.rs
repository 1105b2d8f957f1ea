//! The finishing-together split: cuts a message so that its parts, each on its own rail, are all done at the
//! same and earliest moment, and decides whether that pays against the best rail alone.
//!
//! # The fluid model
//!
//! A rail first drains the bytes already queued on it, then waits its latency and the cost of one more chunk,
//! then moves the chunk at its rate: alone at one, beside others at another that is lower where they were
//! seen to hold each other up (rule P-14). The message is done when the last part is. Which rails take part
//! follows from that: a rail that would only begin when the others are done, or that could not move its
//! smallest chunk by then, gets no chunk.
//!
//! # How it is solved
//!
//! Rails sorted by the moment at which they can have moved their smallest chunk enter one after the other,
//! until those that have entered are done before the next would enter: a closed form and one pass, and the
//! optimum. Where the message has too few smallest chunks for them all, the best set is found by Newton's
//! steps from the best single rail: the time decreases with each, at most `ROUNDS_MAX` of them.
//!
//! Invariants: chunks are disjoint, in the rails' order, sum to the message, none is shorter than its rail's
//! smallest; all cuts lie on multiples of 64 bytes; the prediction is never later than the best single
//! rail's.
//!
//! Source: multirail-2004 4.4 (weighted striping by path bandwidth), newmadeleine-2007 3.4 (chunks above the
//! programmed-I/O range); backlog, start-up costs and weights of zero go past both.

use super::RAILS_MAX;
use crate::rail::rails_of;
use crate::rail::rate::{self, Rate};
use heapless::Vec;

/// The cut positions are multiples of this, so that no cache line is written from two rails.
pub(crate) const CUT_ALIGN: u64 = 64;

/// Estimates of one rail of a channel at the moment of planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailState {
    /// What it moves while alone. [`Rate::NONE`]: the rail is left out.
    pub rate: Rate,
    /// Its rate while others carry parts of the same message: at most [`rate`](Self::rate), and above 0.
    pub contended_rate: Rate,
    /// From the first byte's post to its arrival on an idle rail, in ns.
    pub latency_ns: u32,
    /// Bytes queued on the rail before this message that have not arrived.
    pub backlog_bytes: u64,
    /// Fixed cost of one more chunk: post, doorbell; in ns.
    pub chunk_ns: u32,
    /// The smallest chunk worth cutting for this rail, in bytes: at least one above the programmed-I/O range.
    pub chunk_bytes_min: u32,
}

impl RailState {
    /// When it would be done with `bytes` if it carried them alone; in ns from now, saturating.
    pub fn alone_ns(&self, bytes: u64) -> u64 {
        done_ns(self.start_ns(self.rate), self.rate, bytes)
    }

    /// When it would be done with `bytes` while others carry other parts of the message; in ns from now,
    /// saturating.
    pub fn contended_ns(&self, bytes: u64) -> u64 {
        done_ns(self.start_ns(self.contended_rate), self.contended_rate, bytes)
    }

    /// When a chunk begins to arrive, at a rate; in ns from now.
    fn start_ns(&self, rate: Rate) -> u64 {
        let drained_ns = if self.backlog_bytes == 0 { 0 } else { rate.time_ns(self.backlog_bytes) };
        drained_ns.saturating_add(u64::from(self.latency_ns) + u64::from(self.chunk_ns))
    }
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
    /// One rail: no other is eligible or known, or the message is shorter than their smallest chunks.
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
    /// When the best split would have been done, if one was found; in ns from now. Kept where the guard
    /// refuses it.
    pub split_ns: Option<u64>,
    /// Why.
    pub reason: Reason,
    /// Rails that would have had a part but for costs beside moving it: bit per rail. Set by the caller; a
    /// cut has none.
    pub unprofitable: u64,
}

/// The rail of `eligible` that delivers `bytes` earliest, alone; the lowest of equals. `None` where no
/// eligible rail has a rate.
fn best_single(rails: &[RailState], eligible: u64, bytes: u64) -> Option<Single> {
    known(rails, eligible)
        .map(|(rail, state)| Single { rail: rail as u8, finish_ns: state.alone_ns(bytes) })
        .min_by_key(|single| (single.finish_ns, single.rail))
}

/// Cuts a message of `bytes` by the fluid model into `plan`, and drops its former content. `eligible` has a
/// bit for each rail that may be used, `rails[rail]` is the state of a rail; eligible rails past its end
/// don't exist. Returns false, with the plan empty, where no eligible rail has a rate.
pub fn cut(bytes: u64, eligible: u64, rails: &[RailState], plan: &mut Plan) -> bool {
    plan.chunks.clear();
    (plan.finish_ns, plan.single, plan.split_ns, plan.reason) = (0, Single::default(), None, Reason::OneRail);
    plan.unprofitable = 0;
    let Some(single) = best_single(rails, eligible, bytes) else { return false };
    plan.single = single;
    plan.finish_ns = single.finish_ns;
    let mut lines = lines(bytes, eligible, rails);
    if lines.len() > 1 {
        plan.split_ns = contended_rate(bytes, &mut lines, &mut plan.chunks);
        let margin_ns = rate::scale(single.finish_ns, MARGIN_PERMILLE, 1000).max(MARGIN_NS);
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
    let _ = plan.chunks.push(Chunk { rail: single.rail, from: 0, bytes });
    true
}

/// A split must be predicted to end earlier than the best single rail by this share of the latter's time, in
/// thousandths (rule P-8).
const MARGIN_PERMILLE: u64 = 30;

/// And by so many ns.
const MARGIN_NS: u64 = 500;

/// Steps towards the best set of a limited number of rails. Each strictly shortens the time; two or three are
/// usual.
const ROUNDS_MAX: usize = 8;

/// A rail as the solver sees it.
#[derive(Clone, Copy, Debug)]
struct Line {
    rail: u8,
    /// Beside others.
    rate: Rate,
    /// When its chunk begins to arrive, in ns.
    start_ns: u64,
    /// When its smallest chunk can have arrived.
    entry_ns: u64,
    /// The smallest chunk, a multiple of the alignment.
    min: u64,
    /// The chunk.
    bytes: u64,
}

type Lines = Vec<Line, RAILS_MAX>;

impl Line {
    /// The bytes that it can have moved at `at_ns`, or 0 if that is less than its smallest chunk.
    fn moved(&self, at_ns: u64) -> u64 {
        match self.rate.bytes_in(at_ns.saturating_sub(self.start_ns)) {
            bytes if bytes >= self.min => bytes,
            _ => 0,
        }
    }

    /// When it would be done with `bytes`.
    fn done_ns(&self, bytes: u64) -> u64 {
        done_ns(self.start_ns, self.rate, bytes)
    }
}

/// When `bytes` that begin to arrive at `start_ns` have arrived.
fn done_ns(start_ns: u64, rate: Rate, bytes: u64) -> u64 {
    start_ns.saturating_add(rate.time_ns(bytes))
}

/// The rails of `eligible` that exist and have a rate.
fn known(rails: &[RailState], eligible: u64) -> impl Iterator<Item = (usize, &RailState)> {
    let state = |rail| rails.get(rail).filter(|state: &&RailState| state.rate != Rate::NONE).map(|state| (rail, state));
    rails_of(eligible).map(|rail| rail.index()).filter_map(state)
}

/// The candidates of a split: rails with a smallest chunk that fits into the message.
// Inlined: its result is large.
#[inline(always)]
fn lines(bytes: u64, eligible: u64, rails: &[RailState]) -> Lines {
    let line = |(rail, state): (usize, &RailState)| {
        let min = u64::from(state.chunk_bytes_min.max(1)).next_multiple_of(CUT_ALIGN);
        let start_ns = state.start_ns(state.contended_rate);
        let entry_ns = done_ns(start_ns, state.contended_rate, min);
        Line { rail: rail as u8, rate: state.contended_rate, start_ns, entry_ns, min, bytes: 0 }
    };
    let takes_part = |line: &Line| line.min <= bytes && line.rate != Rate::NONE;
    known(rails, eligible).map(line).filter(takes_part).collect()
}

/// The optimum; `None` if one rail is.
fn contended_rate(bytes: u64, lines: &mut Lines, chunks: &mut Vec<Chunk, RAILS_MAX>) -> Option<u64> {
    let mut best_ns = enter(lines, bytes);
    let mut used = lines.iter().take_while(|line| line.entry_ns <= best_ns).count();
    let least: u64 = lines[..used].iter().map(|line| line.min).fold(0, u64::saturating_add);
    if least > bytes {
        // By the rates beside others: else possibly no rail has moved a smallest chunk by then.
        best_ns = lines.iter().map(|line| line.done_ns(bytes)).min()?;
        let all = lines.clone();
        for round in 0..ROUNDS_MAX {
            let mut set = choose(&all, bytes, best_ns);
            let at_ns = enter(&mut set, bytes);
            if set.is_empty() || (round > 0 && at_ns >= best_ns) {
                break;
            }
            best_ns = at_ns;
            used = set.iter().take_while(|line| line.entry_ns <= best_ns).count();
            *lines = set;
        }
    }
    lines.truncate(used);
    if lines.len() < 2 {
        return None;
    }
    for line in lines.iter_mut() {
        line.bytes = line.moved(best_ns);
    }
    apportion(lines, bytes, chunks);
    lines.iter().map(|line| line.done_ns(line.bytes)).max()
}

/// Sorts lines by entry and returns the earliest moment at which those that have entered by then have moved
/// `bytes`.
fn enter(lines: &mut Lines, bytes: u64) -> u64 {
    lines.sort_unstable_by_key(|line| (line.entry_ns, line.rail));
    let (mut rates, mut rate_starts) = (0u64, 0u128);
    for index in 0..lines.len() {
        let line = &lines[index];
        rates += u64::from(line.rate.0);
        rate_starts += u128::from(line.rate.0) * u128::from(line.start_ns);
        // A line enters with its smallest chunk at once, which may be more than is left: then that is the
        // moment.
        let at_ns = rate::meeting_ns(bytes, rates, rate_starts).max(line.entry_ns);
        if lines.get(index + 1).is_none_or(|next| at_ns < next.entry_ns) {
            return at_ns;
        }
    }
    u64::MAX
}

/// The rails that together move most by `at_ns`, no more than the message has smallest chunks for. Of many,
/// as nearly as taking those that move most each, or for their smallest chunk, gets.
fn choose(all: &Lines, bytes: u64, at_ns: u64) -> Lines {
    let mut lines = all.clone();
    lines.iter_mut().for_each(|line| line.bytes = line.moved(at_ns));
    lines.retain(|line| line.bytes > 0);
    lines.sort_unstable_by_key(|line| (core::cmp::Reverse(line.bytes), line.rail));
    let set = if lines.len() <= EXACT_MAX { best_set(&lines, bytes) } else { good_set(&mut lines, bytes) };
    lines.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1).map(|(_, line)| *line).collect()
}

/// So many rails are tried in all sets.
const EXACT_MAX: usize = 8;

/// The set that moves most, of those for whose smallest chunks the message has room: bit per line.
fn best_set(lines: &Lines, bytes: u64) -> u64 {
    let mut sums = [(0u64, 0u64); 1 << EXACT_MAX];
    let mut best = (0, 0);
    for set in 1usize..1 << lines.len() {
        let (line, (least, moved)) = (&lines[set.trailing_zeros() as usize], sums[set & (set - 1)]);
        let (least, moved) = (least.saturating_add(line.min), moved.saturating_add(line.bytes));
        sums[set] = (least, moved);
        if least <= bytes {
            best = best.max((moved, set as u64));
        }
    }
    best.1
}

/// One that moves much: of those that move most each, or for their smallest chunk, the first that fit. The
/// order of `lines` becomes its.
fn good_set(lines: &mut Lines, bytes: u64) -> u64 {
    let fill = |lines: &Lines| {
        let (mut moved, mut set, mut least) = (0u64, 0u64, 0u64);
        for (index, line) in lines.iter().enumerate() {
            if least.saturating_add(line.min) <= bytes {
                least += line.min;
                moved = moved.saturating_add(line.bytes);
                set |= 1 << index;
            }
        }
        (moved, set)
    };
    let by_bytes = (lines.clone(), fill(lines));
    lines.sort_unstable_by_key(|line| (core::cmp::Reverse(line.bytes / line.min), line.rail));
    let by_density = fill(lines);
    if by_density.0 > by_bytes.1.0 {
        return by_density.1;
    }
    *lines = by_bytes.0;
    by_bytes.1.1
}

/// Turns what lines could move into chunks: no less than the smallest, no more than the message, cuts
/// aligned.
fn apportion(lines: &mut Lines, bytes: u64, chunks: &mut Vec<Chunk, RAILS_MAX>) {
    lines.sort_unstable_by_key(|line| line.rail);
    let (mut sum, mut least) = (0u64, 0u64);
    for line in lines.iter_mut() {
        line.bytes = line.bytes.max(line.min);
        sum = sum.saturating_add(line.bytes);
        least = least.saturating_add(line.min);
    }
    if sum.abs_diff(bytes) > lines.len() as u64 {
        // Above the smallest chunks all shrink (or grow, by a rounding) alike.
        let (spare, rest) = (sum - least, bytes.saturating_sub(least));
        lines.iter_mut().for_each(|line| line.bytes = line.min + rate::scale(line.bytes - line.min, rest, spare));
    }
    // Cuts at the exact running sums, rounded down: no chunk is off by more than one unit, and none falls
    // below its smallest, which is a whole number of units.
    let (mut exact, mut from) = (0u64, 0u64);
    let last = lines.len().saturating_sub(1);
    chunks.clear();
    for (index, line) in lines.iter_mut().enumerate() {
        exact = exact.saturating_add(line.bytes).min(bytes);
        let end = if index == last { bytes } else { exact & !(CUT_ALIGN - 1) };
        line.bytes = end - from;
        let _ = chunks.push(Chunk { rail: line.rail, from, bytes: line.bytes });
        from = end;
    }
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
