//! Memory that a process offers its peers to map (L-18 to L-20), without the system: the number of a list, a
//! reader's place in it, which files may be mapped, and which copies count.
//!
//! Invariants: a list of other ranges has another number; a reader takes as mapped what one list holds, never
//! parts of two; a copy counts only if the list's number was the owner's before it and after it.

use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::fence;

/// The most ranges in a list.
pub const OFFERS_MAX: usize = 64;

/// Names an owner's list of ranges: another number after each change (L-18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListNumber {
    changes: u64,
}

impl ListNumber {
    /// The list has changed. Rings are to get the number before a range has another use.
    pub const fn change(&mut self) {
        self.changes += 1;
    }

    /// What is written to rings: 0 for a list of no ranges.
    pub const fn of_ring(self, ranges: usize) -> u64 {
        if ranges == 0 { 0 } else { self.changes }
    }

    /// What is written to answers.
    pub const fn of_answer(self) -> u64 {
        self.changes
    }
}

/// A range of a process's memory, by its own addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferedRange {
    /// Its first byte.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
}

impl OfferedRange {
    /// How far behind the first byte `from` is, if `bytes` bytes from there on are in the range.
    #[inline]
    pub const fn offset_of(&self, from: u64, bytes: usize) -> Option<usize> {
        match from.checked_sub(self.start) {
            Some(before) if before <= self.bytes && bytes as u64 <= self.bytes - before => Some(before as usize),
            _ => None,
        }
    }
}

/// What the system reports of the file of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// It is ordinary memory.
    pub is_memory: bool,
    /// It can't become shorter.
    pub keeps_its_bytes: bool,
    /// What it guarantees stays so.
    pub is_sealed: bool,
    /// Its length.
    pub bytes: u64,
    /// Bytes that are allocated to it.
    pub allocated: u64,
}

impl FileFacts {
    /// Whether so many bytes of it may be mapped (L-20). Else its owner could end this process by a signal:
    /// by memory that is cut, or that can't be had when it is read first.
    pub const fn may_be_mapped(&self, bytes: u64) -> bool {
        let is_kept = self.keeps_its_bytes && self.is_sealed;
        self.is_memory && is_kept && self.bytes >= bytes && self.allocated >= bytes
    }
}

/// An answer (L-19).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListAnswer {
    /// Of the list as it is now.
    pub number: u64,
    /// No bytes: the list has no range of that index.
    pub range: OfferedRange,
    /// Ranges of the list behind this one.
    pub left: u32,
    /// A descriptor has come along.
    pub has_file: bool,
}

/// What to do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What came before is of another list.
    pub is_first: bool,
    /// The file may be mapped, as far as the budget goes.
    pub is_wanted: bool,
    /// The list is whole: it replaces the one before.
    pub is_last: bool,
}

/// Where a reader is in the list of its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not in it.
    #[default]
    Away,
    /// The range of this index is to be requested.
    Due(u32),
    /// It was requested.
    Requested(u32),
}

/// A reader's place in the list of its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListReader {
    /// The list whose ranges are mapped; 0: none.
    number: u64,
    /// The list that is coming, and how many ranges of it are to come.
    coming: u64,
    left: u32,
    state: State,
    /// The list that was requested last.
    requested: u64,
}

impl ListReader {
    /// Something is to be read, and the ring has this number: the list is requested where it is a new one.
    pub fn meet(&mut self, number: u64) {
        if number != 0 && number != self.requested && self.state == State::Away {
            (self.requested, self.state) = (number, State::Due(0));
        }
    }

    /// The index of the range that is to be requested.
    pub const fn due(&self) -> Option<u32> {
        match self.state {
            State::Due(index) => Some(index),
            _ => None,
        }
    }

    /// It was requested.
    pub fn request(&mut self) {
        if let State::Due(index) = self.state {
            self.state = State::Requested(index);
        }
    }

    /// Whether an answer is due.
    pub const fn is_due(&self) -> bool {
        matches!(self.state, State::Requested(_))
    }

    /// Takes an answer, whose descriptor may have been lost, for lack of room in this process. `None`: an
    /// honest peer does not send it.
    pub fn take(&mut self, answer: &ListAnswer, is_lost: bool) -> Option<Taken> {
        let State::Requested(index) = self.state else { return None };
        let ListAnswer { number, range, left, has_file } = *answer;
        if (range.bytes != 0) != (has_file || is_lost) || (range.bytes == 0 && left != 0) {
            return None;
        }
        let is_first = index == 0;
        if is_first {
            (self.coming, self.left) = (number, left);
        } else if number != self.coming {
            // It has changed meanwhile.
            self.state = State::Due(0);
            return Some(Taken { is_first, is_wanted: false, is_last: false });
        } else if self.left.checked_sub(1) != Some(left) {
            return None;
        }
        if left as usize >= OFFERS_MAX {
            return None;
        }
        self.left = left;
        let is_last = left == 0;
        if is_last {
            (self.number, self.requested, self.state) = (number, number, State::Away);
        } else {
            self.state = State::Due(index + 1);
        }
        Some(Taken { is_first, is_wanted: has_file, is_last })
    }

    /// Whether what is mapped is of the list that has this number.
    #[inline]
    pub const fn is_of(&self, number: u64) -> bool {
        number != 0 && number == self.number
    }

    /// Whether a copy out of what is mapped, made after [`is_of`](Self::is_of), counts (L-20). `number` reads
    /// the ring.
    #[inline]
    pub fn counts(&self, number: impl FnOnce() -> u64) -> bool {
        // What was copied was there before the number is read.
        fence(Acquire);
        self.is_of(number())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn another_list_has_another_number() {
        let mut number = ListNumber::default();
        assert_eq!((number.of_ring(0), number.of_answer()), (0, 0));
        number.change();
        assert_eq!((number.of_ring(1), number.of_ring(0), number.of_answer()), (1, 0, 1));
        number.change();
        assert_eq!((number.of_ring(2), number.of_answer()), (2, 2));
    }

    #[test]
    fn a_range_holds_what_ends_inside_it() {
        let range = OfferedRange { start: 1000, bytes: 100 };
        assert_eq!(range.offset_of(1000, 100), Some(0));
        assert_eq!(range.offset_of(1099, 1), Some(99));
        assert_eq!(range.offset_of(1100, 0), Some(100));
        for (from, bytes) in [(999, 1), (999, 101), (1000, 101), (1099, 2), (1100, 1), (u64::MAX, 1), (0, usize::MAX)] {
            assert_eq!(range.offset_of(from, bytes), None, "{bytes} at {from}");
        }
    }

    /// L-20
    #[test]
    fn only_files_that_stay_as_they_are_may_be_mapped() {
        let good = FileFacts { is_memory: true, keeps_its_bytes: true, is_sealed: true, bytes: 4096, allocated: 4096 };
        assert!(good.may_be_mapped(4096) && good.may_be_mapped(4095) && !good.may_be_mapped(4097));
        for bad in [
            FileFacts { is_memory: false, ..good },
            FileFacts { keeps_its_bytes: false, ..good },
            FileFacts { is_sealed: false, ..good },
            FileFacts { bytes: 4095, ..good },
            FileFacts { allocated: 4095, ..good },
        ] {
            assert!(!bad.may_be_mapped(4096), "{bad:?}");
        }
    }

    fn answer(number: u64, left: u32) -> ListAnswer {
        ListAnswer { number, range: OfferedRange { start: 4096, bytes: 4096 }, left, has_file: true }
    }

    /// A reader that has requested the first range.
    fn reader(number: u64) -> ListReader {
        let mut reader = ListReader::default();
        reader.meet(number);
        assert_eq!(reader.due(), Some(0));
        reader.request();
        assert!(reader.is_due());
        reader
    }

    /// L-19
    #[test]
    fn a_list_comes_range_by_range() {
        let mut reader = reader(7);
        let taken = |is_first, is_last| Some(Taken { is_first, is_wanted: true, is_last });
        assert_eq!(reader.take(&answer(7, 2), false), taken(true, false));
        assert_eq!((reader.due(), reader.is_due(), reader.is_of(7)), (Some(1), false, false));
        reader.request();
        assert_eq!(reader.take(&answer(7, 1), false), taken(false, false));
        reader.request();
        assert_eq!(reader.take(&answer(7, 0), false), taken(false, true));
        assert_eq!((reader.due(), reader.is_of(7), reader.is_of(8), reader.is_of(0)), (None, true, false, false));
        assert!(reader.counts(|| 7) && !reader.counts(|| 8) && !reader.counts(|| 0));
        // It is not requested again, another one is.
        reader.meet(7);
        reader.meet(0);
        assert_eq!(reader.due(), None);
        reader.meet(8);
        assert_eq!(reader.due(), Some(0));
        assert!(reader.is_of(7), "until the other one is here");
        reader.meet(9);
        reader.request();
        assert_eq!(reader.take(&answer(9, 0), false), taken(true, true));
        assert!(reader.is_of(9));
    }

    /// L-19
    #[test]
    fn a_list_that_changes_begins_again() {
        let mut reader = reader(7);
        reader.take(&answer(7, 2), false).unwrap();
        reader.request();
        let again = Taken { is_first: false, is_wanted: false, is_last: false };
        assert_eq!(reader.take(&answer(8, 0), false), Some(again));
        assert_eq!((reader.due(), reader.is_of(8)), (Some(0), false));
        reader.request();
        assert_eq!(reader.take(&answer(8, 0), false), Some(Taken { is_first: true, is_wanted: true, is_last: true }));
        assert!(reader.is_of(8));
    }

    /// A list that has become empty: its number in the ring is 0, in the answer another one.
    #[test]
    fn an_empty_list_ends_the_requests() {
        let mut reader = reader(7);
        let none = ListAnswer { number: 8, ..ListAnswer::default() };
        assert_eq!(reader.take(&none, false), Some(Taken { is_first: true, is_wanted: false, is_last: true }));
        reader.meet(0);
        assert_eq!((reader.due(), reader.is_of(0)), (None, false));
    }

    /// L-19
    #[test]
    fn answers_that_no_honest_peer_sends_are_refused() {
        let good = answer(7, 1);
        let no_file = ListAnswer { has_file: false, ..good };
        let no_range = ListAnswer { range: OfferedRange::default(), ..good };
        for wrong in [
            no_file,
            no_range,
            ListAnswer { left: 0, ..no_range },
            ListAnswer { has_file: false, ..no_range },
            ListAnswer { left: OFFERS_MAX as u32, ..good },
        ] {
            assert_eq!(reader(7).take(&wrong, false), None, "{wrong:?}");
        }
        // A descriptor that was lost costs its range alone.
        let lost = Taken { is_first: true, is_wanted: false, is_last: false };
        assert_eq!(reader(7).take(&no_file, true), Some(lost));
        let most = answer(7, OFFERS_MAX as u32 - 1);
        assert!(reader(7).take(&most, false).is_some());
        let mut reader = reader(7);
        reader.take(&answer(7, 2), false).unwrap();
        assert_eq!(reader.take(&answer(7, 1), false), None, "nothing is due");
        reader.request();
        for left in [0, 2, 3] {
            assert_eq!(reader.clone().take(&answer(7, left), false), None, "{left} after 2");
        }
        assert_eq!(ListReader::default().take(&good, false), None);
    }
}
