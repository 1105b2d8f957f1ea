//! The best that a fixed split can do, found by search: every message cut alike, or, where messages are too
//! small to be cut, so many of them to each rail.
//!
//! The model is that of [`Lines`]: a part is one aggregate that costs its posts and its bytes; announcements
//! travel by the rail that brings them earliest. It shares no code with the planner of the core. The search
//! is coordinate descent: as long as it helps, a step's worth of bytes moves from one rail to another, from
//! one to all others or from all others to one, and steps get finer. It starts from every rail alone, from
//! the rates, and from what would finish together on all rails, on all but the slowest, and so on, by the
//! rates that rails have alone and by those that they have while all are busy. Messages of a stream are tried
//! both ways: all cut alike, and each whole on one rail.
//!
//! It is a bound for what splits and chooses, and for nothing else: a contender that puts several small
//! messages into one packet saves posts, and may be better.

use super::case::{Case, Pattern};
use super::lines::{Aggregate, Lines, line};
use super::set::{EAGER_BYTES, RailSet, SEGMENT_BYTES, Sort};

/// What headers come to, about.
const HEADER_BYTES: u64 = 40;

/// Parts into which a message is divided by the search.
const UNITS: u64 = 4096;

/// Of a case the least time, in the unit of [`Played::ns`](super::case::Played::ns), and the units of each
/// rail that it takes; `None` where there is no model: changing load, both ways at once.
pub fn optimum(case: &Case) -> Option<Optimum> {
    if !case.set.changes.is_empty() || case.pattern == Pattern::BothWays {
        return None;
    }
    let messages = if case.pattern == Pattern::Stream { case.measured } else { 1 };
    let is_eager = case.bytes <= EAGER_BYTES.into();
    let lines = Lines::new(&case.set);
    let model = |is_cut| {
        let units = if is_cut { UNITS } else { messages };
        Model { set: &case.set, bytes: case.bytes, messages, is_eager, is_cut, units, lines: &lines }
    };
    let whole = model(false);
    let (mut ns, mut units) = whole.search();
    if !is_eager {
        (ns, units) = model(true).search().min((ns, units));
    }
    Some(Optimum { ns: (ns + whole.announced_ns()) as f64, units })
}

/// The best fixed split.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// The time that it takes, in nanoseconds.
    pub ns: f64,
    /// What each rail gets of it, in parts of their sum.
    pub units: Vec<u64>,
}

struct Model<'a> {
    set: &'a RailSet,
    bytes: u64,
    messages: u64,
    is_eager: bool,
    /// Each message is cut in proportion to the units; else it goes whole, and units are messages.
    is_cut: bool,
    units: u64,
    lines: &'a Lines,
}

impl Model<'_> {
    /// The time until payload may move.
    fn announced_ns(&self) -> u64 {
        if self.is_eager {
            return 0;
        }
        let rails = self.set.rails.iter();
        let earliest =
            rails.map(|rail| rail.post_ns + HEADER_BYTES * 1_000_000_000 / rail.bytes_per_second + rail.latency_ns);
        earliest.min().unwrap_or(0) * if self.set.sort == Sort::Read { 1 } else { 2 }
    }

    /// The time before a rail's line is taken.
    fn lead_ns(&self, rail: usize) -> u64 {
        if self.set.sort == Sort::Read && !self.is_eager { self.set.rails[rail].latency_ns } else { 0 }
    }

    /// What a rail has to do.
    fn aggregate(&self, rail: usize, units: u64) -> Aggregate {
        let total = u128::from(self.bytes) * u128::from(self.messages);
        let bytes = (total * u128::from(units) / u128::from(self.units)) as u64;
        // Each message brings its part of it.
        let each = if self.is_cut { bytes.div_ceil(self.messages) } else { self.bytes };
        let parts = if self.is_cut { self.messages } else { units };
        let posts = parts * each.div_ceil(SEGMENT_BYTES.into()).max(1);
        let with_headers = self.is_eager || self.set.sort == Sort::Data;
        let fins = if self.set.sort == Sort::Write && !self.is_eager { parts } else { 0 };
        let headers = if with_headers { posts } else { fins };
        Aggregate {
            fixed_ns: (posts + fins) * self.set.rails[rail].post_ns,
            bytes: bytes + headers * HEADER_BYTES,
            token: rail as u32,
        }
    }

    /// When the last part is there.
    fn time(&self, units: &[u64]) -> u64 {
        let used = || (0..units.len()).filter(|&rail| units[rail] > 0);
        if self.set.shared.is_empty() {
            let end = |rail: usize| {
                let Aggregate { fixed_ns, bytes, .. } = self.aggregate(rail, units[rail]);
                let rate = self.set.rails[rail].bytes_per_second;
                let moving = (u128::from(bytes) * 1_000_000_000).div_ceil(rate.into()) as u64;
                self.lead_ns(rail) + fixed_ns + moving + self.set.rails[rail].latency_ns
            };
            return used().map(end).max().unwrap_or(u64::MAX);
        }
        let mut lines = self.lines.clone();
        let mut coming: Vec<(u64, usize)> = used().map(|rail| (self.lead_ns(rail), rail)).collect();
        coming.sort_unstable_by(|a, b| b.cmp(a));
        let mut last = 0;
        loop {
            let moved = lines.next();
            match (moved, coming.last()) {
                (None, None) => return last,
                (Some((at, which)), next) if next.is_none_or(|&(lead, _)| at <= lead) => {
                    if let Some(aggregate) = lines.pop(which) {
                        last = last.max(at + self.set.rails[aggregate.token as usize].latency_ns);
                    }
                }
                (_, Some(&(lead, rail))) => {
                    coming.pop();
                    lines.push(lead, line(rail, 0), self.aggregate(rail, units[rail]));
                }
                (Some(_), None) => return u64::MAX,
            }
        }
    }

    fn search(&self) -> (u64, Vec<u64>) {
        let starts = self.starts();
        let mut best: Option<(u64, Vec<u64>)> = None;
        for mut units in starts {
            let ns = self.descend(&mut units);
            if best.as_ref().is_none_or(|(least, _)| ns < *least) {
                best = Some((ns, units));
            }
        }
        best.unwrap_or((u64::MAX, Vec::new()))
    }

    fn starts(&self) -> Vec<Vec<u64>> {
        let count = self.set.rails.len();
        let alone = |rail| (0..count).map(|other| if other == rail { self.units } else { 0 }).collect();
        let mut starts: Vec<Vec<u64>> = (0..count).map(alone).collect();
        let rates: Vec<u64> = self.set.rails.iter().map(|rail| rail.bytes_per_second).collect();
        let busy = self.lines.rates_all_busy(0);
        for rates in if rates == busy { vec![rates] } else { vec![rates, busy] } {
            starts.push(self.share(&rates.iter().copied().map(u128::from).collect::<Vec<_>>()));
            let mut rails: Vec<usize> = (0..count).collect();
            rails.sort_unstable_by_key(|&rail| std::cmp::Reverse(rates[rail]));
            starts.extend((2..=count).map(|used| self.balanced_shares(&rails[..used], &rates)));
        }
        starts
    }

    /// What some rails would have moved at the moment at which they are all through.
    fn balanced_shares(&self, rails: &[usize], rates: &[u64]) -> Vec<u64> {
        let room = |at: u64, rail: usize| {
            let fixed = self.lead_ns(rail) + self.set.rails[rail].latency_ns + self.aggregate(rail, 1).fixed_ns;
            u128::from(at.saturating_sub(fixed)) * u128::from(rates[rail])
        };
        let work = u128::from(self.bytes) * u128::from(self.messages) * 1_000_000_000;
        let (mut early, mut late) = (0u64, 1u64 << 62);
        while early < late {
            let middle = early + (late - early) / 2;
            let moved: u128 = rails.iter().map(|&rail| room(middle, rail)).sum();
            if moved >= work { late = middle } else { early = middle + 1 }
        }
        let parts = (0..rates.len()).map(|rail| if rails.contains(&rail) { room(late, rail) } else { 0 });
        self.share(&parts.collect::<Vec<_>>())
    }

    /// All units, in proportion.
    fn share(&self, parts: &[u128]) -> Vec<u64> {
        let shift = parts.iter().sum::<u128>().checked_ilog2().map_or(0, |log| log.saturating_sub(60));
        let parts: Vec<u128> = parts.iter().map(|part| part >> shift).collect();
        let sum = parts.iter().sum::<u128>().max(1);
        let (mut part, mut given) = (0, 0);
        let until = |next: &u128| {
            part += next;
            let until = (part * u128::from(self.units) / sum) as u64;
            until - std::mem::replace(&mut given, until)
        };
        parts.iter().map(until).collect()
    }

    /// Goes downhill from here; the time at the bottom.
    fn descend(&self, units: &mut Vec<u64>) -> u64 {
        let mut best = self.time(units);
        let mut step = (self.units / 4).max(1);
        loop {
            let mut found = false;
            for from in 0..units.len() {
                for to in 0..units.len() {
                    let moved = step.min(units[from]);
                    if from == to {
                        // From one to all that carry something, and the other way about.
                        found |= self.try_out(self.spread(units, from, moved, true), units, &mut best);
                        found |= self.try_out(self.spread(units, from, step, false), units, &mut best);
                    } else if moved > 0 {
                        let mut next = units.clone();
                        next[from] -= moved;
                        next[to] += moved;
                        found |= self.try_out(next, units, &mut best);
                    }
                }
            }
            if !found {
                if step == 1 {
                    return best;
                }
                step = (step / 4).max(1);
            }
        }
    }

    /// Goes there if it is better.
    fn try_out(&self, next: Vec<u64>, units: &mut Vec<u64>, best: &mut u64) -> bool {
        let ns = self.time(&next);
        let is_better = ns < *best;
        if is_better {
            (*units, *best) = (next, ns);
        }
        is_better
    }

    /// Units of one rail to the others in proportion to what they carry (`is_given`), or of them to it.
    fn spread(&self, units: &[u64], one: usize, moved: u64, is_given: bool) -> Vec<u64> {
        let others = self.units - units[one];
        let mut next = units.to_vec();
        let moved = if is_given { moved } else { moved.min(others) };
        if others == 0 || moved == 0 {
            return next;
        }
        let (mut part, mut given) = (0, 0);
        for (_, units) in next.iter_mut().enumerate().filter(|(other, _)| *other != one) {
            part += *units;
            let until = (u128::from(part) * u128::from(moved)).div_ceil(others.into()) as u64;
            let share = until - std::mem::replace(&mut given, until);
            let share = if is_given { share } else { share.min(*units) };
            *units = if is_given { *units + share } else { *units - share };
        }
        next[one] = self.units
            - next.iter().enumerate().filter(|(other, _)| *other != one).map(|(_, units)| units).sum::<u64>();
        next
    }
}

/// The least time over all splits of a message into so many equal pieces: an oracle for few rails.
#[cfg(test)]
pub fn by_grid(case: &Case, pieces: u64) -> u64 {
    let lines = Lines::new(&case.set);
    let model = Model {
        set: &case.set,
        bytes: case.bytes,
        messages: 1,
        is_eager: false,
        is_cut: true,
        units: pieces,
        lines: &lines,
    };
    fn all(model: &Model<'_>, units: &mut Vec<u64>, left: u64) -> u64 {
        if units.len() + 1 == model.set.rails.len() {
            units.push(left);
            let ns = model.time(units);
            units.pop();
            return ns;
        }
        let with = |taken| {
            units.push(taken);
            let ns = all(model, units, left - taken);
            units.pop();
            ns
        };
        (0..=left).map(with).min().unwrap_or(u64::MAX)
    }
    all(&model, &mut Vec::new(), pieces) + model.announced_ns()
}
