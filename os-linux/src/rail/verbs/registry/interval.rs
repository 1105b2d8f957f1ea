//! Intervals of memory in a list in which none lies in another, so that both starts and ends go up.

use super::NONE;
use crate::rail::Piece;

/// Memory by its addresses, and the place of its registration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub start: usize,
    pub end: usize,
    pub place: u32,
}

impl Interval {
    pub fn of(memory: Piece) -> Self {
        let start = memory.start.addr();
        Interval { start, end: start.saturating_add(memory.len), place: NONE }
    }

    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn covers(&self, other: Interval) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    pub fn overlaps(&self, other: Interval) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// The place of the interval that covers another. Of those that start before it, the last one ends last.
pub(super) fn find(list: &[Interval], wanted: Interval) -> Option<u32> {
    let after = list.partition_point(|interval| interval.start <= wanted.start);
    let last = list.get(after.checked_sub(1)?)?;
    last.covers(wanted).then_some(last.place)
}

/// Which intervals have bytes in common with another.
pub(super) fn overlapping(list: &[Interval], wanted: Interval) -> std::ops::Range<usize> {
    let first = list.partition_point(|interval| interval.end <= wanted.start);
    let end = list.partition_point(|interval| interval.start < wanted.end);
    first..end.max(first)
}
