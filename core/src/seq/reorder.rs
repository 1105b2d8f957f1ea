//! The out-of-order queue of a virtual channel (multirail-2004, 5.2): packets with a number (PSN) other than
//! the expected one (ESN) wait here until it is their turn (rule S-8).
//!
//! The paper requires enqueue, dequeue and search to be fast even where rails differ much; here each is O(1),
//! since a packet waits in the place that its number names. Invariants: waiting numbers lie in `esn .. esn +
//! window`; `len` is the number of places that are not [`NONE`].

use super::Seq;
use crate::store::NONE;

/// Why a packet can't wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReorderError {
    /// It was processed already.
    #[error("packet {} was processed already, {} is expected", .seq.0, .esn.0)]
    Old {
        /// Its number.
        seq: Seq,
        /// The number expected.
        esn: Seq,
    },
    /// It lies past the window's end.
    #[error("packet {} is past the window of {window} that begins with {}", .seq.0, .esn.0)]
    Beyond {
        /// Its number.
        seq: Seq,
        /// The number expected.
        esn: Seq,
        /// Numbers that the window holds.
        window: u32,
    },
    /// One of this number waits already.
    #[error("a packet {} waits already, as {value}", .seq.0)]
    Occupied {
        /// Its number.
        seq: Seq,
        /// What waits there.
        value: u32,
    },
}

/// The queue. The methods take its storage: as many `u32` as the window has packets, [`NONE`] at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reorder {
    next: Seq,
    len: u32,
}

impl Reorder {
    /// Nothing waits; the first number expected is 0.
    pub const fn new() -> Self {
        Reorder::starting_at(Seq(0))
    }

    /// Nothing waits; the first number expected is `first`.
    pub const fn starting_at(first: Seq) -> Self {
        Reorder { next: first, len: 0 }
    }

    /// The number expected next (ESN).
    pub const fn esn(&self) -> Seq {
        self.next
    }

    /// How many wait.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether none waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lets `value` (an index, not [`NONE`]) wait for the turn of `seq`.
    pub fn enqueue(&mut self, slots: &mut [u32], seq: Seq, value: u32) -> Result<(), ReorderError> {
        debug_assert_ne!(value, NONE, "NONE means an empty place");
        let esn = self.next;
        if seq.is_before(esn) {
            return Err(ReorderError::Old { seq, esn });
        }
        let window = slots.len() as u32;
        if seq.distance_from(esn) >= window {
            return Err(ReorderError::Beyond { seq, esn, window });
        }
        let slot = &mut slots[place(window, seq)];
        if *slot != NONE {
            return Err(ReorderError::Occupied { seq, value: *slot });
        }
        *slot = value;
        self.len += 1;
        Ok(())
    }

    /// Takes the next packet in order, if it is here; the next number is expected from then on.
    pub fn dequeue(&mut self, slots: &mut [u32]) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let slot = &mut slots[place(slots.len() as u32, self.next)];
        if *slot == NONE {
            return None;
        }
        let value = core::mem::replace(slot, NONE);
        self.len -= 1;
        self.next = self.next.next();
        Some(value)
    }

    /// What waits under `seq`.
    pub fn search(&self, slots: &[u32], seq: Seq) -> Option<u32> {
        let window = slots.len() as u32;
        if seq.distance_from(self.next) >= window {
            return None;
        }
        Some(slots[place(window, seq)]).filter(|&value| value != NONE)
    }

    /// The expected packet came in order and was processed without waiting here: expects the next number.
    /// Nothing may wait under the present one; dequeue first.
    pub fn advance(&mut self, slots: &[u32]) {
        debug_assert_eq!(self.search(slots, self.next), None, "{:?} waits in the queue", self.next);
        self.next = self.next.next();
    }

    /// As [`advance`](Self::advance), for so many; nothing waits at all.
    pub fn skip(&mut self, packets: u32) {
        debug_assert!(self.is_empty(), "{} wait in the queue", self.len);
        self.next = self.next.add(packets);
    }

    /// Takes out all that wait, in order of their numbers (the peer is lost). The number expected stays.
    pub fn drain(&mut self, slots: &mut [u32], mut visit: impl FnMut(Seq, u32)) {
        let window = slots.len() as u32;
        let mut seq = self.next;
        while self.len > 0 {
            let value = core::mem::replace(&mut slots[place(window, seq)], NONE);
            if value != NONE {
                self.len -= 1;
                visit(seq, value);
            }
            seq = seq.next();
        }
    }
}

/// Where a number waits.
fn place(window: u32, seq: Seq) -> usize {
    debug_assert!(super::window_is_valid(window));
    (seq.0 & (window - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// S-8
    #[test]
    fn reorder_queue_returns_packets_in_order() {
        let mut slots = vec![NONE; 64];
        let mut queue = Reorder::starting_at(Seq(u32::MAX));
        for ahead in [2, 1, 5, 0] {
            queue.enqueue(&mut slots, Seq(u32::MAX).add(ahead), 100 + ahead).unwrap();
        }
        let out: Vec<u32> = core::iter::from_fn(|| queue.dequeue(&mut slots)).collect();
        assert_eq!(out, [100, 101, 102]);
        assert_eq!((queue.esn(), queue.len()), (Seq(2), 1));
        queue.advance(&slots);
        queue.advance(&slots);
        assert_eq!(queue.dequeue(&mut slots), Some(105));
    }

    #[test]
    fn unacceptable_reorder_entry_is_refused_with_the_reason() {
        let mut slots = vec![NONE; 64];
        let mut queue = Reorder::starting_at(Seq(10));
        let esn = Seq(10);
        queue.enqueue(&mut slots, Seq(12), 7).unwrap();
        let mut refused = |seq| queue.enqueue(&mut slots, seq, 8).unwrap_err();
        assert_eq!(refused(Seq(9)), ReorderError::Old { seq: Seq(9), esn });
        assert_eq!(refused(Seq(74)), ReorderError::Beyond { seq: Seq(74), esn, window: 64 });
        assert_eq!(refused(Seq(12)), ReorderError::Occupied { seq: Seq(12), value: 7 });
        assert_eq!(queue.search(&slots, Seq(12)), Some(7));
        assert_eq!(queue.search(&slots, Seq(12 + 64)), None, "same place, another number");
    }

    #[test]
    fn drain_hands_out_everything_once() {
        let mut slots = vec![NONE; 64];
        let mut queue = Reorder::starting_at(Seq(60));
        for seq in [123, 61, 64] {
            queue.enqueue(&mut slots, Seq(seq), seq).unwrap();
        }
        let mut seen = vec![];
        queue.drain(&mut slots, |seq, value| seen.push((seq.0, value)));
        assert_eq!(seen, [(61, 61), (64, 64), (123, 123)]);
        assert!(queue.is_empty() && slots.iter().all(|&slot| slot == NONE));
        assert_eq!(queue.esn(), Seq(60));
    }
}
