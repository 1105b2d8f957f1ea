//! The unacknowledged packets of a lane: each packet's handle (an index of the endpoint's packet table) is
//! held until the peer acknowledges the packet (resilient-2010, IV.A), so that it can be sent again on
//! another rail.
//!
//! Invariants: `oldest <= acked <= next`, and `next - oldest` is at most the window. Numbers from `oldest` to
//! `next` have a place each; the place is [`NONE`] once the handle was given back, by selective
//! acknowledgment or by [`pop_acked`](SentWindow::pop_acked). Each handle is given back exactly once.

use super::Seq;
use crate::store::NONE;

/// The peer acknowledges a packet that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packet {} is acknowledged, but {} was not sent yet", .named.0, .next.0)]
pub struct AckError {
    /// The number named: a cumulative acknowledgment, or the highest one of a selective acknowledgment.
    pub named: Seq,
    /// The number that the next packet will have.
    pub next: Seq,
}

/// The sending side of one lane. The methods take its storage: as many `u32` as the window has packets,
/// [`NONE`] at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentWindow {
    oldest: Seq,
    acked: Seq,
    next: Seq,
}

impl SentWindow {
    /// Nothing sent; the first number is 0.
    pub const fn new() -> Self {
        SentWindow::starting_at(Seq(0))
    }

    /// Nothing sent; the first number is `first`.
    pub const fn starting_at(first: Seq) -> Self {
        SentWindow { oldest: first, acked: first, next: first }
    }

    /// The oldest number that takes up room.
    pub const fn oldest(&self) -> Seq {
        self.oldest
    }

    /// The cumulative acknowledgment in force: the first number that the peer may not have.
    pub const fn acked(&self) -> Seq {
        self.acked
    }

    /// The number that the next packet will have.
    pub const fn next(&self) -> Seq {
        self.next
    }

    /// How many numbers take up room, those acknowledged selectively included.
    pub const fn len(&self) -> u32 {
        self.next.distance_from(self.oldest)
    }

    /// Whether no number takes up room.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether one more packet fits a window of `window`: if so, the next [`push`](Self::push) succeeds.
    pub const fn has_room(&self, window: u32) -> bool {
        self.len() < window
    }

    /// Numbers a packet and holds its `handle` (not [`NONE`]); hands it back where the window is full.
    pub fn push(&mut self, slots: &mut [u32], handle: u32) -> Result<Seq, u32> {
        debug_assert_ne!(handle, NONE, "NONE means an empty place");
        let window = slots.len() as u32;
        if !self.has_room(window) {
            return Err(handle);
        }
        let seq = self.next;
        slots[place(window, seq)] = handle;
        self.next = seq.next();
        Ok(seq)
    }

    /// As [`push`](Self::push), for a caller that has checked for room and puts the handle into the place of
    /// the number.
    #[inline(always)]
    pub const fn number(&mut self) -> Seq {
        let seq = self.next;
        self.next = seq.next();
        seq
    }

    /// The peer has everything before `cumulative`. Returns how many numbers are newly acknowledged;
    /// take their handles with [`pop_acked`](Self::pop_acked). An acknowledgment that is out of date
    /// acknowledges none.
    pub fn ack(&mut self, cumulative: Seq) -> Result<u32, AckError> {
        let newly_acked = cumulative.distance_from(self.acked);
        if newly_acked <= self.next.distance_from(self.acked) {
            self.acked = cumulative;
            Ok(newly_acked)
        } else if cumulative.is_before(self.acked) {
            Ok(0)
        } else {
            Err(AckError { named: cumulative, next: self.next })
        }
    }

    /// Gives back the oldest handle that is acknowledged cumulatively, and its room.
    pub fn pop_acked(&mut self, slots: &mut [u32]) -> Option<(Seq, u32)> {
        let window = slots.len() as u32;
        while self.oldest != self.acked {
            let seq = self.oldest;
            self.oldest = seq.next();
            let handle = core::mem::replace(&mut slots[place(window, seq)], NONE);
            if handle != NONE {
                return Some((seq, handle));
            }
        }
        None
    }

    /// Gives back the oldest handles that are acknowledged cumulatively and numbered before `end`, and their
    /// room, as long as `take` takes them. Of a number whose handle was given back before, `take` gets
    /// [`NONE`]. What the places hold of numbers before the oldest is not looked at any more.
    #[inline(always)]
    pub fn pop_while(&mut self, slots: &[u32], end: Seq, mut take: impl FnMut(u32) -> bool) {
        let mask = slots.len() as u32 - 1;
        let mut oldest = self.oldest;
        let is_before = end.distance_from(oldest) < self.acked.distance_from(oldest);
        let end = if is_before { end } else { self.acked };
        while oldest != end {
            let Some(&handle) = slots.get((oldest.0 & mask) as usize) else { break };
            if !take(handle) {
                break;
            }
            oldest = oldest.next();
        }
        self.oldest = oldest;
    }

    /// Gives back the room of all numbers that are acknowledged cumulatively. Returns the first and the last
    /// handle and how many there are; `None`: none. The caller has checked that none was given back before.
    pub fn pop_run(&mut self, slots: &[u32]) -> Option<(u32, u32, u32)> {
        let mask = slots.len() as u32 - 1;
        let count = self.acked.distance_from(self.oldest);
        let last = Seq(self.acked.0.wrapping_sub(1));
        let (first, last) = (self.oldest.0 & mask, last.0 & mask);
        let run = (count > 0).then(|| Some((*slots.get(first as usize)?, *slots.get(last as usize)?, count)))??;
        self.oldest = self.acked;
        Some(run)
    }

    /// The handle held for `seq`.
    pub fn get(&self, slots: &[u32], seq: Seq) -> Option<u32> {
        if !self.holds(seq) {
            return None;
        }
        Some(slots[place(slots.len() as u32, seq)]).filter(|&handle| handle != NONE)
    }

    /// Holds another handle for `seq`, which is sent again under a new name; `false`: none is held for it.
    pub fn rename(&mut self, slots: &mut [u32], seq: Seq, handle: u32) -> bool {
        let is_held = self.get(slots, seq).is_some();
        if is_held {
            slots[place(slots.len() as u32, seq)] = handle;
        }
        is_held
    }

    /// The first handle held at or after `from`, in order of numbers: to walk all that may have to go out
    /// again, start at [`oldest`](Self::oldest) and go on at the number after the one found. A number that
    /// takes up no room ends the walk.
    pub fn next_held(&self, slots: &[u32], from: Seq) -> Option<(Seq, u32)> {
        let mut seq = from;
        while self.holds(seq) {
            if let Some(handle) = self.get(slots, seq) {
                return Some((seq, handle));
            }
            seq = seq.next();
        }
        None
    }

    /// Gives back all handles, in order of their numbers (the peer is lost). Nothing takes up room from then
    /// on; the next number stays.
    pub fn drain(&mut self, slots: &mut [u32], mut visit: impl FnMut(Seq, u32)) {
        self.acked = self.next;
        while let Some((seq, handle)) = self.pop_acked(slots) {
            visit(seq, handle);
        }
    }

    /// So many packets were sent and count as acknowledged, on a lossless rail. The window is empty.
    pub fn skip(&mut self, packets: u32) {
        debug_assert!(self.is_empty(), "{} packets are not acknowledged", self.len());
        self.next = self.next.add(packets);
        (self.acked, self.oldest) = (self.next, self.next);
    }

    /// Whether `seq` takes up room.
    const fn holds(&self, seq: Seq) -> bool {
        seq.distance_from(self.oldest) < self.len()
    }
}

/// Where a number's handle is held.
fn place(window: u32, seq: Seq) -> usize {
    debug_assert!(super::window_is_valid(window));
    (seq.0 & (window - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn sent(first: Seq, count: u32) -> (SentWindow, Vec<u32>) {
        let mut slots = vec![NONE; 64];
        let mut window = SentWindow::starting_at(first);
        for handle in 0..count {
            assert_eq!(window.push(&mut slots, handle), Ok(first.add(handle)));
        }
        (window, slots)
    }

    #[test]
    fn a_full_window_hands_the_packet_back_until_acknowledgments_are_taken() {
        let (mut window, mut slots) = sent(Seq(u32::MAX - 10), 64);
        assert!(!window.has_room(64));
        assert_eq!(window.push(&mut slots, 99), Err(99));
        assert_eq!(window.ack(Seq(0)), Ok(11));
        assert_eq!(window.push(&mut slots, 99), Err(99), "the room is in use until the handle is taken");
        for handle in 0..11 {
            assert_eq!(window.pop_acked(&mut slots), Some((Seq(u32::MAX - 10).add(handle), handle)));
        }
        assert_eq!(window.pop_acked(&mut slots), None);
        assert_eq!((window.oldest(), window.len()), (Seq(0), 53));
        assert_eq!(window.push(&mut slots, 99), Ok(Seq(53)));
    }

    /// A run ends where acknowledgments end, and handles before it are taken one by one.
    #[test]
    fn a_run_is_taken_at_once() {
        let (mut window, slots) = sent(Seq(u32::MAX - 2), 8);
        assert_eq!(window.pop_run(&slots), None);
        window.ack(Seq(4)).unwrap();
        let mut taken = Vec::new();
        window.pop_while(&slots, Seq(u32::MAX), |handle| {
            taken.push(handle);
            true
        });
        assert_eq!((taken, window.oldest()), (vec![0, 1], Seq(u32::MAX)));
        assert_eq!((window.pop_run(&slots), window.oldest()), (Some((2, 6, 5)), Seq(4)));
        assert_eq!((window.pop_run(&slots), window.len()), (None, 1));
        window.ack(Seq(5)).unwrap();
        assert_eq!(window.pop_run(&slots), Some((7, 7, 1)));
    }

    ///
    #[test]
    fn acknowledgments_are_checked() {
        let (mut window, _) = sent(Seq(5), 3);
        assert_eq!(window.ack(Seq(9)), Err(AckError { named: Seq(9), next: Seq(8) }));
        assert_eq!(window.ack(Seq(7)), Ok(2));
        assert_eq!(window.ack(Seq(6)), Ok(0), "out of date");
        assert_eq!(window.acked(), Seq(7));
        assert_eq!(
            window.ack(Seq(7u32.wrapping_add(1 << 31))),
            Err(AckError { named: Seq(0x8000_0007), next: Seq(8) })
        );
        assert_eq!(window.ack(Seq(8)), Ok(1));
    }

    #[test]
    fn retransmitted_packet_gets_a_new_handle() {
        let (mut window, mut slots) = sent(Seq(0), 3);
        assert!(window.rename(&mut slots, Seq(1), 9));
        assert!(!window.rename(&mut slots, Seq(3), 9));
        assert!(!window.rename(&mut slots, Seq(64), 9), "same place, another number");
        window.ack(Seq(3)).unwrap();
        let popped: Vec<u32> = core::iter::from_fn(|| window.pop_acked(&mut slots)).map(|(_, handle)| handle).collect();
        assert_eq!(popped, [0, 9, 2]);
        assert!(!window.rename(&mut slots, Seq(1), 8));
    }
}
