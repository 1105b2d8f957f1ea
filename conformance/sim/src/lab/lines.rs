//! The physics: rails as lines, one each way, and what they share.
//!
//! A line is a server in order of arrival: an aggregate costs it a fixed time first, then its bytes at the
//! line's rate. Lines that share a bottleneck share its rate while they are busy, in equal parts; what a line
//! cannot use of its part, being slower, goes to the others (max-min fairness, what arbitration by turns
//! comes to). A line holds its part also while it pays the fixed cost of an aggregate.
//!
//! Invariants: integers only, bytes times 10^9 as the unit of work, so that a rate in bytes per second moves
//! whole units per nanosecond and nothing is lost to rounding but the last fraction of a nanosecond of each
//! aggregate; equal calls give equal times.

use std::collections::VecDeque;

use super::set::{Bottleneck, RailSet};

/// Units of work of a byte.
const BYTE: u64 = 1_000_000_000;

/// Something that a line has to move.
#[derive(Clone, Copy, Debug)]
pub struct Aggregate {
    /// What it costs before its bytes, in nanoseconds.
    pub fixed_ns: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The caller's name for it.
    pub token: u32,
}

#[derive(Clone, Debug, Default)]
struct Line {
    /// What it could move alone.
    capacity: u64,
    /// What it moves.
    rate: u64,
    /// The first is being moved.
    aggregates: VecDeque<Aggregate>,
    /// What was left of the first at `since`.
    fixed_left: u64,
    work_left: u64,
    since: u64,
    /// When the first is complete, at this rate.
    ends: u64,
}

/// Where to find a line: both ways of rail `n` are `2 n` and `2 n + 1`.
pub const fn line(rail: usize, way: usize) -> usize {
    2 * rail + way
}

/// All lines between two processes.
#[derive(Clone, Debug)]
pub struct Lines {
    lines: Vec<Line>,
    /// Lines by bit, and the rate that they share.
    shared: Vec<(u64, u64)>,
    /// Lines that share something.
    sharing: u64,
    /// Lines that have something to do.
    busy: u64,
}

impl Line {
    /// What was done until now is done.
    fn advance_to(&mut self, now: u64) {
        let passed = now - self.since;
        let fixed = passed.min(self.fixed_left);
        self.fixed_left -= fixed;
        self.work_left = self.work_left.saturating_sub((passed - fixed).saturating_mul(self.rate));
        self.since = now;
    }

    /// When the first will be complete.
    fn plan(&mut self) {
        self.ends = self.since + self.fixed_left + self.work_left.div_ceil(self.rate.max(1));
    }

    fn begin(&mut self, now: u64) {
        let Some(first) = self.aggregates.front() else { return };
        (self.fixed_left, self.work_left, self.since) = (first.fixed_ns, first.bytes * BYTE, now);
        self.plan();
    }
}

impl Lines {
    /// The lines of a set.
    pub fn new(set: &RailSet) -> Lines {
        let of = |rate| Line { capacity: rate, rate, ..Line::default() };
        let lines = set.rails.iter().flat_map(|rail| [of(rail.bytes_per_second), of(rail.bytes_per_second)]).collect();
        let mut shared = Vec::new();
        for &Bottleneck { rails, bytes_per_second, half_duplex, .. } in &set.shared {
            let ways = |way| {
                (0..set.rails.len()).filter(|n| rails >> n & 1 == 1).fold(0, |mask, n| mask | 1u64 << line(n, way))
            };
            if half_duplex {
                shared.push((ways(0) | ways(1), bytes_per_second));
            } else {
                shared.extend([(ways(0), bytes_per_second), (ways(1), bytes_per_second)]);
            }
        }
        let sharing = shared.iter().fold(0, |mask, (lines, _)| mask | lines);
        Lines { lines, shared, sharing, busy: 0 }
    }

    /// A line gets one more aggregate, now.
    pub fn push(&mut self, now: u64, line: usize, aggregate: Aggregate) {
        let this = &mut self.lines[line];
        this.aggregates.push_back(aggregate);
        if this.aggregates.len() == 1 {
            this.begin(now);
            self.busy |= 1 << line;
            self.share(now, line);
        }
    }

    /// What each rail moves one way while all are busy that way and none the other, in bytes per second.
    pub fn rates_all_busy(&self, way: usize) -> Vec<u64> {
        let mut lines = self.clone();
        let rails = 0..self.lines.len() / 2;
        for rail in rails.clone() {
            lines.push(0, line(rail, way), Aggregate { fixed_ns: 0, bytes: 1 << 30, token: 0 });
        }
        rails.map(|rail| lines.lines[line(rail, way)].rate).collect()
    }

    /// When the next aggregate is complete, and on which line.
    pub fn next(&self) -> Option<(u64, usize)> {
        bits(self.busy).map(|line| (self.lines[line].ends, line)).min()
    }

    /// The first aggregate of a line is complete, at the time that [`next`](Self::next) returned.
    pub fn pop(&mut self, line: usize) -> Option<Aggregate> {
        let this = &mut self.lines[line];
        let now = this.ends;
        let aggregate = this.aggregates.pop_front()?;
        this.begin(now);
        if this.aggregates.is_empty() {
            self.busy &= !(1 << line);
            self.share(now, line);
        }
        Some(aggregate)
    }

    /// From now on a line moves at most so much alone, in bytes per second.
    pub fn set_capacity(&mut self, now: u64, line: usize, bytes_per_second: u64) {
        let this = &mut self.lines[line];
        this.capacity = bytes_per_second.max(1);
        if self.sharing >> line & 1 == 1 {
            self.share(now, line);
        } else if self.busy >> line & 1 == 1 {
            this.advance_to(now);
            this.rate = this.capacity;
            this.plan();
        } else {
            this.rate = this.capacity;
        }
    }

    /// Something has changed on a line: all that share something with it may move at other rates.
    fn share(&mut self, now: u64, line: usize) {
        if self.sharing >> line & 1 == 0 {
            return;
        }
        let mut open = self.busy & self.sharing;
        let mut room = [0; 8];
        for (room, (_, rate)) in room.iter_mut().zip(&self.shared) {
            *room = *rate;
        }
        while open != 0 {
            let (mut least, mut which) = (u64::MAX, open);
            for line in bits(open) {
                if self.lines[line].capacity < least {
                    (least, which) = (self.lines[line].capacity, 1 << line);
                }
            }
            for (&(lines, _), room) in self.shared.iter().zip(&room) {
                let sharers = u64::from((lines & open).count_ones());
                if let Some(part) = room.checked_div(sharers)
                    && part < least
                {
                    (least, which) = (part, lines & open);
                }
            }
            open &= !which;
            for line in bits(which) {
                for (room, (lines, _)) in room.iter_mut().zip(&self.shared) {
                    *room = room.saturating_sub(if lines >> line & 1 == 1 { least } else { 0 });
                }
                let this = &mut self.lines[line];
                if this.rate != least.max(1) {
                    this.advance_to(now);
                    this.rate = least.max(1);
                    this.plan();
                }
            }
        }
    }
}

/// The bits of a mask, in order.
pub fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        bit
    })
}
