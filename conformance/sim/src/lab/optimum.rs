//! The best that a fixed split can do, found by search: every message cut alike, or, where messages are too small to be
//! cut, so many of them to each rail.
//!
//! The model is that of [`Lines`]: a part is one parcel that costs its posts and its bytes; announcements travel by the
//! rail that brings them soonest. It shares no code with the planner of the core. The search is coordinate descent: as
//! long as it helps, a step's worth of bytes moves from one rail to another, and steps get finer. It starts from every
//! rail alone, from the rates, and from what finishes together on all rails, on all but the slowest, and so on.
//!
//! It is a bound in spirit and not in law: policies that decide anew for each message, or on the way, may be better where
//! bytes don't divide; by how much is in the report.

use rerail_core::rail::sched::STRIPE_BYTES_MIN;

use super::case::{Case, Pattern};
use super::lines::{Lines, Parcel, line};
use super::set::{EAGER_BYTES, RailSet, SEGMENT_BYTES, Sort};

/// What headers come to, about.
const HEADER_BYTES: u64 = 40;

/// Parts into which a message is divided by the search.
const UNITS: u64 = 4096;

/// Of a case the least time, in the unit of [`Played::ns`](super::case::Played::ns), and the units of each rail that it
/// takes; `None` where there is no model: changing load, both ways at once.
pub fn optimum(case: &Case) -> Option<Optimum> {
    if !case.set.changes.is_empty() || case.pattern == Pattern::BothWays {
        return None;
    }
    let messages = if case.pattern == Pattern::Stream { case.measured } else { 1 };
    let is_eager = case.bytes <= EAGER_BYTES.into();
    let model = Model {
        set: &case.set,
        bytes: case.bytes,
        messages,
        is_eager,
        // What is not cut goes whole.
        units: if case.bytes < 2 * STRIPE_BYTES_MIN { messages } else { UNITS },
        lines: Lines::new(&case.set),
    };
    let (ns, units) = model.search();
    Some(Optimum { ns: (ns + model.announced_ns()) as f64, units })
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
    units: u64,
    lines: Lines,
}

impl Model<'_> {
    /// The time until payload may move.
    fn announced_ns(&self) -> u64 {
        if self.is_eager {
            return 0;
        }
        let rails = self.set.rails.iter();
        let soonest =
            rails.map(|rail| rail.post_ns + HEADER_BYTES * 1_000_000_000 / rail.bytes_per_second + rail.latency_ns);
        soonest.min().unwrap_or(0) * if self.set.sort == Sort::Read { 1 } else { 2 }
    }

    /// The time before a rail's line is taken.
    fn lead_ns(&self, rail: usize) -> u64 {
        if self.set.sort == Sort::Read && !self.is_eager { self.set.rails[rail].latency_ns } else { 0 }
    }

    /// What a rail has to do.
    fn parcel(&self, rail: usize, units: u64) -> Parcel {
        let total = u128::from(self.bytes) * u128::from(self.messages);
        let bytes = (total * u128::from(units) / u128::from(self.units)) as u64;
        let whole = self.units == self.messages;
        // Each message brings its part of it.
        let each = if whole { self.bytes } else { bytes.div_ceil(self.messages) };
        let parts = if whole { units } else { self.messages };
        let posts = parts * each.div_ceil(SEGMENT_BYTES.into()).max(1);
        let with_headers = self.is_eager || self.set.sort == Sort::Data;
        let fins = if self.set.sort == Sort::Write && !self.is_eager { parts } else { 0 };
        let headers = if with_headers { posts } else { fins };
        Parcel {
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
                let Parcel { fixed_ns, bytes, .. } = self.parcel(rail, units[rail]);
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
                    if let Some(parcel) = lines.pop(which) {
                        last = last.max(at + self.set.rails[parcel.token as usize].latency_ns);
                    }
                }
                (_, Some(&(lead, rail))) => {
                    coming.pop();
                    lines.push(lead, line(rail, 0), self.parcel(rail, units[rail]));
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
        let rate = |rail: usize| u128::from(self.set.rails[rail].bytes_per_second);
        let mut rails: Vec<usize> = (0..count).collect();
        rails.sort_unstable_by_key(|&rail| std::cmp::Reverse(rate(rail)));
        starts.push(self.share(&(0..count).map(rate).collect::<Vec<_>>()));
        for used in 2..=count {
            // At what time could these have moved all of it?
            let room = |at: u64, rail: usize| {
                let fixed = self.lead_ns(rail) + self.set.rails[rail].latency_ns + self.parcel(rail, 1).fixed_ns;
                u128::from(at.saturating_sub(fixed)) * rate(rail)
            };
            let work = u128::from(self.bytes) * u128::from(self.messages) * 1_000_000_000;
            let (mut early, mut late) = (0u64, 1u64 << 62);
            while early < late {
                let middle = early + (late - early) / 2;
                let moved: u128 = rails[..used].iter().map(|&rail| room(middle, rail)).sum();
                if moved >= work { late = middle } else { early = middle + 1 }
            }
            let parts: Vec<u128> =
                (0..count).map(|rail| if rails[..used].contains(&rail) { room(late, rail) } else { 0 }).collect();
            starts.push(self.share(&parts));
        }
        starts
    }

    /// All units, in proportion.
    fn share(&self, parts: &[u128]) -> Vec<u64> {
        let sum: u128 = parts.iter().sum::<u128>().max(1);
        let mut given = (0, 0);
        let mut share = |part: &u128| {
            given.0 += part;
            let until = (given.0 / (sum >> 40).max(1) * u128::from(self.units) / (sum / (sum >> 40).max(1))) as u64;
            let until = until.min(self.units);
            let units = until - given.1;
            given.1 = until;
            units
        };
        let mut units: Vec<u64> = parts.iter().map(&mut share).collect();
        let missing = self.units - units.iter().sum::<u64>();
        if let Some(most) = units.iter_mut().max() {
            *most += missing;
        }
        units
    }

    /// Goes downhill from here; the time at the bottom.
    fn descend(&self, units: &mut [u64]) -> u64 {
        let mut best = self.time(units);
        let mut step = (self.units / 4).max(1);
        loop {
            let mut found = false;
            for from in 0..units.len() {
                for to in 0..units.len() {
                    let moved = step.min(units[from]);
                    if from == to || moved == 0 {
                        continue;
                    }
                    units[from] -= moved;
                    units[to] += moved;
                    let ns = self.time(units);
                    if ns < best {
                        best = ns;
                        found = true;
                    } else {
                        units[from] += moved;
                        units[to] -= moved;
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
}
