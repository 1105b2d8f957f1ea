//! Which rails a call of [`progress`](super::Transport::progress) polls, by the policies of shiba-2005, 2.3.1
//! and 2.3.2. They stand beside [`Progress::Timed`], which needs no state of its own (`round_timer`).
//!
//! The paper has two kinds of rails, shared memory and InfiniBand; here they are the rails that small
//! messages go over (shared memory, and a process with itself) and all others.

use rerail_core::time::Time;

use super::clock::Clock;
use super::{Transport, VirtualTime};
use crate::settings::Progress;

/// Polls of both kinds together in a loop of [`Progress::Adaptive`], once a packet has come. The paper gives
/// no number.
const LOOP: u32 = 10;
/// Those of the kind that packets came by, where they came by one alone.
const MORE: u32 = 8;

/// The rails that are polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Shared,
    Others,
    SharedThenOthers,
    OthersThenShared,
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) progress: Progress,
    /// Polls of a loop: of shared memory, then of the others; 0: once each.
    shared: u32,
    others: u32,
    /// Polls of this loop.
    at: u32,
    /// What has come in it: by shared memory, by others.
    came: [bool; 2],
    /// The others had work last.
    others_first: bool,
}

impl Turns {
    pub(super) fn of(progress: Progress) -> Self {
        Turns { progress, ..Turns::default() }
    }

    /// Whose turn it is now.
    pub(super) fn turn(&self) -> Turn {
        match (self.progress, self.others_first) {
            (Progress::Adaptive, _) if self.at < self.shared.max(1) => Turn::Shared,
            (Progress::Adaptive, _) => Turn::Others,
            (_, true) => Turn::OthersThenShared,
            (_, false) => Turn::SharedThenOthers,
        }
    }

    /// Turns until all have been polled, however many of them are over.
    fn of_all(&self) -> u64 {
        match self.progress {
            Progress::Adaptive => u64::from(self.shared.max(1) + self.others.max(1)),
            Progress::Timed | Progress::Toggle => 1,
        }
    }

    /// The turn is over, which brought so many things by shared memory and by the others.
    pub(super) fn over(&mut self, shared: usize, others: usize) {
        if self.progress != Progress::Adaptive {
            self.others_first = match (shared > 0, others > 0) {
                (true, true) => !self.others_first,
                (false, false) => self.others_first,
                (_, others) => others,
            };
            return;
        }
        self.came = [self.came[0] | (shared > 0), self.came[1] | (others > 0)];
        self.at += 1;
        if self.at < self.shared.max(1) + self.others.max(1) {
            return;
        }
        match self.came {
            [true, true] => (self.shared, self.others) = (LOOP / 2, LOOP / 2),
            [true, false] => (self.shared, self.others) = (MORE, LOOP - MORE),
            [false, true] => (self.shared, self.others) = (LOOP - MORE, MORE),
            [false, false] => {}
        }
        (self.at, self.came) = (0, [false; 2]);
    }
}

impl<C: Clock> Transport<C> {
    /// From now on rails take turns in this way.
    pub fn set_progress(&mut self, progress: Progress) {
        self.turns = Turns::of(progress);
        // A round that looks at shared memory alone is no part of the others.
        self.round_timer.set_always_whole(progress != Progress::Timed);
    }

    /// A round of the rails whose turn it is.
    pub(super) fn round_in_turn(&mut self, now: Time) -> usize {
        if self.turns.progress == Progress::Timed {
            return self.engine.round(now);
        }
        let [shared, others, rest] = self.engine.round_of(now, self.turns.turn());
        self.turns.over(shared, others);
        shared + others + rest
    }
}

impl Transport<VirtualTime> {
    /// As [`round`](Self::round), of the rails whose turn it is by [`set_progress`](Self::set_progress).
    pub fn take_turn(&mut self) -> usize {
        self.round_in_turn(self.clock.0)
    }

    /// Whether the next [turn](Self::take_turn) polls shared memory, and whether it polls other rails.
    pub fn polls(&self) -> [bool; 2] {
        let turn = self.turns.turn();
        [turn != Turn::Others, turn != Turn::Shared]
    }

    /// Turns in which every rail is polled at least once.
    pub fn turns_of_all(&self) -> u64 {
        self.turns.of_all()
    }

    /// Passes over so many turns, as if nothing had come in them.
    pub fn pass_turns(&mut self, count: u64) {
        for _ in 0..count % self.turns.of_all() {
            self.turns.over(0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays so many turns, in which `work` returns how much there is of each kind; returns how often each
    /// was polled.
    fn play(turns: &mut Turns, count: u32, work: impl Fn(u32) -> [usize; 2]) -> [u32; 2] {
        let mut polled = [0; 2];
        for number in 0..count {
            let [shared, others] = work(number);
            let turn = turns.turn();
            let is_polled = [turn != Turn::Others, turn != Turn::Shared];
            polled = std::array::from_fn(|kind| polled[kind] + u32::from(is_polled[kind]));
            turns.over(if is_polled[0] { shared } else { 0 }, if is_polled[1] { others } else { 0 });
        }
        polled
    }

    /// 2.3.1
    #[test]
    fn adaptive_gives_the_kind_that_brings_packets_most_turns() {
        let mut turns = Turns::of(Progress::Adaptive);
        assert_eq!(play(&mut turns, 10, |_| [0, 0]), [5, 5], "in turn while nothing comes");
        assert_eq!(play(&mut turns, 2, |_| [1, 0]), [1, 1]);
        assert_eq!(play(&mut turns, 100, |_| [1, 0]), [80, 20]);
        assert_eq!(play(&mut turns, 100, |_| [0, 0]), [80, 20], "as it was, until something comes");
        assert_eq!(play(&mut turns, 10, |_| [0, 1]), [8, 2]);
        assert_eq!(play(&mut turns, 100, |_| [0, 1]), [20, 80]);
        assert_eq!(play(&mut turns, 10, |_| [1, 1]), [2, 8]);
        assert_eq!(play(&mut turns, 100, |_| [1, 1]), [50, 50], "half each");
    }

    #[test]
    fn turns_pass_without_work_in_a_circle() {
        let mut turns = Turns::of(Progress::Adaptive);
        assert_eq!(turns.of_all(), 2);
        play(&mut turns, 2, |_| [1, 0]);
        assert_eq!(turns.of_all(), 10);
        play(&mut turns, 3, |_| [0, 0]);
        let before = format!("{turns:?}");
        assert_eq!(play(&mut turns, 10, |_| [0, 0]), [8, 2]);
        assert_eq!(format!("{turns:?}"), before);
        assert_eq!([Progress::Toggle, Progress::Timed].map(|progress| Turns::of(progress).of_all()), [1, 1]);
    }

    /// 2.3.2
    #[test]
    fn toggle_begins_with_the_kind_that_had_work() {
        let mut turns = Turns::of(Progress::Toggle);
        assert_eq!(play(&mut turns, 7, |_| [0, 0]), [7, 7], "both, always");
        assert_eq!(turns.turn(), Turn::SharedThenOthers);
        turns.over(0, 1);
        assert_eq!(turns.turn(), Turn::OthersThenShared);
        turns.over(0, 0);
        assert_eq!(turns.turn(), Turn::OthersThenShared);
        turns.over(3, 0);
        assert_eq!(turns.turn(), Turn::SharedThenOthers);
        turns.over(1, 1);
        assert_eq!(turns.turn(), Turn::OthersThenShared, "after work of both in turn");
    }
}
