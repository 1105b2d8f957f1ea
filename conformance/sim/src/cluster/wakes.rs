//! When ranks wake: each at one moment at most.
//!
//! A rank's moment is moved and called off again and again: whatever becomes visible to it comes before the
//! deadline that it would have slept until. So this is a binary heap that stores where each rank is in it. A
//! heap that can only be added to would keep each deadline that something came before, and these are seconds
//! away: it grew with events, not with ranks.
//!
//! Order: by moment, then by rank.

use rerail_core::time::Time;

/// Not in the heap.
const AWAY: u32 = u32::MAX;

/// The moments of all ranks.
#[derive(Debug)]
pub(super) struct Wakes {
    /// A binary heap: no rank comes before the one above.
    heap: Vec<(Time, u32)>,
    /// By rank: its place in the heap, or [`AWAY`].
    places: Vec<u32>,
}

impl Wakes {
    /// So many ranks, none of which wakes.
    pub(super) fn new(ranks: usize) -> Self {
        Wakes { heap: Vec::with_capacity(ranks), places: vec![AWAY; ranks] }
    }

    /// When a rank wakes, if it does.
    pub(super) fn of(&self, rank: u32) -> Option<Time> {
        let place = *self.places.get(rank as usize)?;
        self.heap.get(place as usize).map(|(at, _)| *at)
    }

    /// The rank that wakes first, and when.
    pub(super) fn first(&self) -> Option<(Time, u32)> {
        self.heap.first().copied()
    }

    /// A rank wakes then, and not when it would have before. The rank is one of those that there are.
    pub(super) fn set(&mut self, rank: u32, at: Time) {
        match self.places[rank as usize] {
            AWAY => {
                self.heap.push((at, rank));
                self.rise(self.heap.len() - 1);
            }
            place => self.put(place as usize, (at, rank)),
        }
    }

    /// A rank does not wake any more.
    pub(super) fn clear(&mut self, rank: u32) {
        let place = std::mem::replace(&mut self.places[rank as usize], AWAY);
        if place == AWAY {
            return;
        }
        // The last one takes its place.
        let last = self.heap.pop().expect("the heap is not empty");
        if last.1 != rank {
            self.put(place as usize, last);
        }
    }

    /// Puts an entry into a place whose own is gone, and from there to where it belongs.
    fn put(&mut self, place: usize, entry: (Time, u32)) {
        self.heap[place] = entry;
        let place = self.rise(place);
        self.sink(place);
    }

    /// Moves an entry up to where it belongs; that place comes back.
    fn rise(&mut self, mut place: usize) -> usize {
        let entry = self.heap[place];
        while place > 0 && entry < self.heap[(place - 1) / 2] {
            self.place_entry(place, self.heap[(place - 1) / 2]);
            place = (place - 1) / 2;
        }
        self.place_entry(place, entry);
        place
    }

    /// Moves an entry down to where it belongs.
    fn sink(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let left = 2 * place + 1;
            let Some(mut least) = self.heap.get(left).copied() else { break };
            let mut below = left;
            if let Some(right) = self.heap.get(left + 1).copied().filter(|right| *right < least) {
                (least, below) = (right, left + 1);
            }
            if entry < least {
                break;
            }
            self.place_entry(place, least);
            place = below;
        }
        self.place_entry(place, entry);
    }

    fn place_entry(&mut self, place: usize, entry: (Time, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rng::Rng;

    #[test]
    fn wakes_are_those_of_a_sorted_set() {
        const RANKS: u32 = 40;
        let (mut wakes, mut model) = (Wakes::new(RANKS as usize), BTreeSet::new());
        let mut rng = Rng::new(1, "wakes");
        for _ in 0..20_000 {
            let rank = rng.below(RANKS.into()) as u32;
            model.retain(|(_, other)| *other != rank);
            // More often set than cleared, and often to equal moments.
            if rng.below(3) > 0 {
                let at = Time(rng.below(60));
                wakes.set(rank, at);
                model.insert((at, rank));
            } else {
                wakes.clear(rank);
            }
            assert_eq!(wakes.first(), model.first().copied());
            for rank in 0..RANKS {
                assert_eq!(wakes.of(rank), model.iter().find(|(_, other)| *other == rank).map(|(at, _)| *at));
            }
        }
        while let Some(first) = model.pop_first() {
            assert_eq!(wakes.first(), Some(first));
            wakes.clear(first.1);
        }
        assert_eq!(wakes.first(), None);
    }
}
