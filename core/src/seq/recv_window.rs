//! Which packets of a lane have come: the window that makes delivery exactly once (rules S-4 to S-7).
//!
//! A window and not a high-water mark, because a send that ended without a completion may still have arrived,
//! and the copy that follows it on another rail overtakes and is overtaken (resilient-2010, IV.B). Each
//! number is in one of three states: *open*, *claimed* (a packet arrived and its payload is being placed; a
//! second copy is a duplicate) and *received* (placed; may be acknowledged). A rail that dies while it places
//! gives the claim back.
//!
//! Invariants: every number before `expected` is received, `expected` itself is not; numbers from `expected +
//! window` on are open; received implies claimed. Storage: one bit for claimed, then one for received, for
//! each place.

use super::Seq;

const WORD: u32 = u64::BITS;

/// The classification of a packet's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Not seen before; it is claimed from here on.
    New,
    /// Claimed or received already: drop this copy.
    Duplicate,
    /// Past the window's end: an honest peer doesn't send it yet.
    Beyond,
}

/// The receiving side of one lane. The methods take its storage, [`words(window)`](Self::words) words that
/// are zero at the start, and the window in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvWindow {
    expected: Seq,
}

impl RecvWindow {
    /// Words of storage that a window of `window` packets takes.
    pub const fn words(window: u32) -> usize {
        2 * (window / WORD) as usize
    }

    /// Nothing received; the first number is 0.
    pub const fn new() -> Self {
        RecvWindow::starting_at(Seq(0))
    }

    /// Nothing received; the first number is `first`.
    pub const fn starting_at(first: Seq) -> Self {
        RecvWindow { expected: first }
    }

    /// The cumulative acknowledgment: the first number that is not received.
    pub const fn expected(&self) -> Seq {
        self.expected
    }

    /// A packet numbered `seq` has arrived. Any number is fine.
    pub fn claim(&mut self, bits: &mut [u64], window: u32, seq: Seq) -> Claim {
        if seq.is_before(self.expected) {
            return Claim::Duplicate;
        }
        if !self.holds(window, seq) {
            return Claim::Beyond;
        }
        let (claimed, _) = planes(bits, window);
        let (word, bit) = place(window, seq);
        if claimed[word] & bit != 0 {
            return Claim::Duplicate;
        }
        claimed[word] |= bit;
        Claim::New
    }

    /// The payload of `seq`, which was claimed, is placed. Returns by how many numbers the cumulative
    /// acknowledgment advanced. A number that is not claimed, or received already, changes nothing.
    #[inline]
    pub fn received(&mut self, bits: &mut [u64], window: u32, seq: Seq) -> u32 {
        if !self.holds(window, seq) {
            return 0;
        }
        let (claimed, received) = planes(bits, window);
        let (word, bit) = place(window, seq);
        if claimed[word] & bit == 0 {
            return 0;
        }
        if seq != self.expected {
            received[word] |= bit;
            return 0;
        }
        let (next, next_bit) = place(window, seq.next());
        if received[next] & next_bit == 0 {
            // In order, and nothing waits behind it: so most come.
            claimed[word] &= !bit;
            self.expected = seq.next();
            return 1;
        }
        received[word] |= bit;
        self.advance(claimed, received, window)
    }

    /// The claim on `seq` is given back: its payload was not placed, and the next copy is new. Returns
    /// whether there was such a claim; a number that is received stays so.
    pub fn unclaim(&mut self, bits: &mut [u64], window: u32, seq: Seq) -> bool {
        if !self.holds(window, seq) {
            return false;
        }
        let (claimed, received) = planes(bits, window);
        let (word, bit) = place(window, seq);
        let pending = claimed[word] & !received[word] & bit != 0;
        if pending {
            claimed[word] &= !bit;
        }
        pending
    }

    /// The selective acknowledgment for [`expected`](Self::expected): bit i is set where number
    /// `expected + 1 + i` is received.
    pub fn beyond(&self, bits: &[u64], window: u32) -> u64 {
        debug_assert!(super::window_is_valid(window) && bits.len() == Self::words(window));
        let received = &bits[bits.len() / 2..];
        let at = self.expected.next().0 & (window - 1);
        let (word, shift) = ((at / WORD) as usize, at % WORD);
        let low = received[word] >> shift;
        if shift == 0 {
            return low;
        }
        // In a window of one word this comes round to `expected` itself; its bit is never set.
        low | received[(word + 1) % received.len()] << (WORD - shift)
    }

    /// So many packets came in order and whole; no number is claimed.
    pub fn skip(&mut self, packets: u32) {
        self.expected = self.expected.add(packets);
    }

    /// Whether `seq` has a place in the window.
    const fn holds(&self, window: u32, seq: Seq) -> bool {
        seq.distance_from(self.expected) < window
    }

    /// Moves `expected` over all that is received, a word at a time, and frees the places.
    fn advance(&mut self, claimed: &mut [u64], received: &mut [u64], window: u32) -> u32 {
        let before = self.expected;
        loop {
            let at = self.expected.0 & (window - 1);
            let (word, shift) = ((at / WORD) as usize, at % WORD);
            // The shift brings in zeros from above, so the run ends at the word's end at the latest.
            let run = (received[word] >> shift).trailing_ones();
            let mask = if run == WORD { u64::MAX } else { ((1 << run) - 1) << shift };
            received[word] &= !mask;
            claimed[word] &= !mask;
            self.expected = self.expected.add(run);
            if run < WORD - shift {
                return self.expected.distance_from(before);
            }
        }
    }
}

/// The storage as claimed bits and received bits.
fn planes(bits: &mut [u64], window: u32) -> (&mut [u64], &mut [u64]) {
    debug_assert!(super::window_is_valid(window) && bits.len() == RecvWindow::words(window));
    bits.split_at_mut(bits.len() / 2)
}

/// Word and bit of a number.
const fn place(window: u32, seq: Seq) -> (usize, u64) {
    let at = seq.0 & (window - 1);
    ((at / WORD) as usize, 1 << (at % WORD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// S-4, S-5
    #[test]
    fn late_copy_is_a_duplicate_and_early_copy_is_kept() {
        let mut bits = vec![0; RecvWindow::words(64)];
        let mut window = RecvWindow::new();
        for seq in [2, 1].map(Seq) {
            assert_eq!(window.claim(&mut bits, 64, seq), Claim::New);
            assert_eq!(window.received(&mut bits, 64, seq), 0);
        }
        assert_eq!((window.expected(), window.beyond(&bits, 64)), (Seq(0), 0b11));
        assert_eq!(window.claim(&mut bits, 64, Seq(0)), Claim::New);
        assert_eq!(window.received(&mut bits, 64, Seq(0)), 3);
        assert_eq!((window.expected(), window.beyond(&bits, 64)), (Seq(3), 0));
        for seq in 0..3 {
            assert_eq!(window.claim(&mut bits, 64, Seq(seq)), Claim::Duplicate);
        }
        assert_eq!(bits, [0, 0], "a place that the window has left is free");
    }

    /// S-7
    #[test]
    fn a_claim_is_not_a_receipt_and_can_be_given_back() {
        let mut bits = vec![0; RecvWindow::words(64)];
        let mut window = RecvWindow::new();
        assert_eq!(window.claim(&mut bits, 64, Seq(0)), Claim::New);
        assert_eq!(window.claim(&mut bits, 64, Seq(0)), Claim::Duplicate);
        assert_eq!(window.expected(), Seq(0));
        assert!(window.unclaim(&mut bits, 64, Seq(0)));
        assert!(!window.unclaim(&mut bits, 64, Seq(0)));
        assert_eq!(window.received(&mut bits, 64, Seq(0)), 0, "not claimed: nothing happens");
        assert_eq!(window.claim(&mut bits, 64, Seq(0)), Claim::New);
        assert_eq!(window.received(&mut bits, 64, Seq(0)), 1);
        assert!(!window.unclaim(&mut bits, 64, Seq(0)), "received stays received");
    }

    #[test]
    fn the_whole_window_moves_at_once_across_the_wrap() {
        for window in [64, 128, 32_768] {
            let first = Seq(u32::MAX - window / 2 + 7);
            let mut bits = vec![0; RecvWindow::words(window)];
            let mut recv = RecvWindow::starting_at(first);
            for ahead in (0..window).rev() {
                assert_eq!(recv.claim(&mut bits, window, first.add(ahead)), Claim::New);
                let moved = recv.received(&mut bits, window, first.add(ahead));
                assert_eq!(moved, if ahead == 0 { window } else { 0 });
            }
            assert_eq!(recv.expected(), first.add(window));
            assert!(bits.iter().all(|&word| word == 0));
        }
    }

    /// S-6
    #[test]
    fn numbers_past_the_window_are_refused() {
        let mut bits = vec![0; RecvWindow::words(64)];
        let mut window = RecvWindow::new();
        assert_eq!(window.claim(&mut bits, 64, Seq(63)), Claim::New);
        assert_eq!(window.claim(&mut bits, 64, Seq(64)), Claim::Beyond);
        assert_eq!(window.claim(&mut bits, 64, Seq(1 << 31)), Claim::Beyond);
        assert_eq!(window.claim(&mut bits, 64, Seq(u32::MAX)), Claim::Duplicate);
        assert_eq!(window.received(&mut bits, 64, Seq(64)), 0, "64 must not be taken for 0");
        assert_eq!(window.expected(), Seq(0));
    }
}
