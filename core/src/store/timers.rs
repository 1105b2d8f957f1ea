//! Deadlines of a fixed set of timers: a binary heap with the position of each timer, so that a timer is set,
//! moved and cancelled in O(log n) and there is never a stale entry.

use super::arena::{Arena, ArenaError};
use super::list::NONE;
use crate::time::Time;

/// Up to `capacity` running timers, named 0 to `capacity - 1`.
pub struct Timers<'m> {
    heap: &'m mut [u32],
    place: &'m mut [u32],
    at: &'m mut [Time],
    len: usize,
    /// The earliest deadline: checked far more often than changed.
    first: Time,
}

/// Later than all deadlines.
const NEVER: Time = Time(u64::MAX);

impl<'m> Timers<'m> {
    /// No timer running.
    pub fn carve(arena: &mut Arena<'m>, capacity: u32) -> Result<Self, ArenaError> {
        let n = capacity as usize;
        let (heap, place, at) = (arena.take(n, NONE)?, arena.take(n, NONE)?, arena.take(n, Time(0))?);
        Ok(Timers { heap, place, at, len: 0, first: NEVER })
    }

    /// Sets timer `id` to `at`, whether it ran or not.
    #[inline]
    pub fn set(&mut self, id: u32, at: Time) {
        self.at[id as usize] = at;
        match self.place[id as usize] {
            NONE => {
                let last = self.len;
                self.len += 1;
                self.up(last, id);
            }
            place => self.place_entry(place as usize, id),
        }
        self.find_first();
    }

    fn find_first(&mut self) {
        self.first = if self.len > 0 { self.at[self.heap[0] as usize] } else { NEVER };
    }

    /// Stops timer `id`, if it runs.
    #[inline(always)]
    pub fn cancel(&mut self, id: u32) {
        let place = self.place[id as usize];
        if place != NONE {
            self.take_out(id, place as usize);
        }
    }

    #[inline(never)]
    fn take_out(&mut self, id: u32, place: usize) {
        self.len -= 1;
        self.place[id as usize] = NONE;
        if place < self.len {
            let moved = self.heap[self.len];
            self.place_entry(place, moved);
        }
        self.find_first();
    }

    /// How many run.
    pub const fn len(&self) -> u32 {
        self.len as u32
    }

    /// Whether none runs.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether timer `id` runs.
    #[inline(always)]
    pub fn is_set(&self, id: u32) -> bool {
        self.place[id as usize] != NONE
    }

    /// The earliest deadline.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        (self.len > 0).then_some(self.first)
    }

    /// Whether one is due.
    #[inline(always)]
    pub fn is_due(&self, now: Time) -> bool {
        self.first <= now
    }

    /// Takes one timer that is due, the earliest first, and returns when it was due.
    pub fn pop_due(&mut self, now: Time) -> Option<(u32, Time)> {
        let due = self.next().filter(|&due| due <= now)?;
        let id = self.heap[0];
        self.cancel(id);
        Some((id, due))
    }

    fn key(&self, id: u32) -> (Time, u32) {
        (self.at[id as usize], id)
    }

    fn put(&mut self, place: usize, id: u32) {
        self.heap[place] = id;
        self.place[id as usize] = place as u32;
    }

    /// Puts a timer where it belongs, above or below a place that is free.
    fn place_entry(&mut self, place: usize, id: u32) {
        if place > 0 && self.key(id) < self.key(self.heap[(place - 1) / 2]) {
            self.up(place, id);
        } else {
            self.down(place, id);
        }
    }

    /// Puts a timer at a free place or above it: those that are due later come down.
    fn up(&mut self, mut place: usize, id: u32) {
        let key = self.key(id);
        while place > 0 {
            let above = self.heap[(place - 1) / 2];
            if self.key(above) < key {
                break;
            }
            self.put(place, above);
            place = (place - 1) / 2;
        }
        self.put(place, id);
    }

    /// Puts a timer at a free place or below it: those that are due earlier come up.
    fn down(&mut self, mut place: usize, id: u32) {
        let key = self.key(id);
        loop {
            let mut child = 2 * place + 1;
            if child >= self.len {
                break;
            }
            let mut below = self.heap[child];
            if child + 1 < self.len && self.key(self.heap[child + 1]) < self.key(below) {
                child += 1;
                below = self.heap[child];
            }
            if key < self.key(below) {
                break;
            }
            self.put(place, below);
            place = child;
        }
        self.put(place, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::MaybeUninit;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[repr(align(64))]
    struct Aligned([MaybeUninit<u8>; 1024]);

    proptest! {
        /// Timers fire in the order of a sorted map, ties by number.
        #[test]
        fn behaves_like_a_sorted_map(steps in proptest::collection::vec((0u8..3, 0u32..8, 0u64..50), 0..200)) {
            let mut region = Aligned([MaybeUninit::uninit(); 1024]);
            let mut timers = Timers::carve(&mut Arena::new(&mut region.0).unwrap(), 8).unwrap();
            let mut oracle: BTreeMap<u32, u64> = BTreeMap::new();
            for (what, id, at) in steps {
                match what {
                    0 => { timers.set(id, Time(at)); oracle.insert(id, at); }
                    1 => { timers.cancel(id); oracle.remove(&id); }
                    _ => {
                        let due = oracle.iter().map(|(&i, &t)| (t, i)).min().filter(|&(t, _)| t <= at);
                        prop_assert_eq!(timers.pop_due(Time(at)), due.map(|(due, i)| (i, Time(due))));
                        if let Some((_, i)) = due { oracle.remove(&i); }
                    }
                }
                prop_assert_eq!(timers.next(), oracle.values().min().map(|&t| Time(t)));
                for id in 0..8 { prop_assert_eq!(timers.is_set(id), oracle.contains_key(&id)); }
            }
        }
    }
}
