//! Which of a sender's numbered messages have come: each must come once, and in the order of numbers.

use std::collections::BTreeSet;

/// The messages of one sender, by number.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// All numbers below have come.
    next: u64,
    /// Those that have come beyond.
    beyond: BTreeSet<u64>,
    /// One above the highest that has come.
    end: u64,
    /// Messages that came, duplicates included.
    pub taken: u64,
    /// Messages that had come before.
    pub duplicated: u64,
    /// Messages that came behind one with a higher number.
    pub late: u64,
}

impl Ledger {
    /// Message `number` is in the next receive, by the order in which receives were posted. Returns the
    /// problem, if there is one.
    pub fn take(&mut self, number: u64) -> Option<String> {
        self.taken += 1;
        if number < self.next || !self.beyond.insert(number) {
            self.duplicated += 1;
            return Some(format!("message {number} came twice"));
        }
        let end = self.end;
        self.end = end.max(number.saturating_add(1));
        while self.beyond.remove(&self.next) {
            self.next += 1;
        }
        if number < end {
            self.late += 1;
            return Some(format!("message {number} came behind message {}", end - 1));
        }
        None
    }

    /// How many of `sent` messages have not come.
    pub fn missing(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.next) - self.beyond.range(self.next.min(sent)..sent).count() as u64
    }

    /// The first of `sent` messages that has not come.
    pub fn first_missing(&self, sent: u64) -> Option<u64> {
        (self.next < sent).then_some(self.next)
    }

    /// How many have come that were never sent.
    pub fn invented(&self, sent: u64) -> u64 {
        self.next.saturating_sub(sent) + self.beyond.range(sent..).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u64]) -> Ledger {
        let mut ledger = Ledger::default();
        numbers.iter().for_each(|&number| drop(ledger.take(number)));
        ledger
    }

    fn found(numbers: &[u64], sent: u64) -> (u64, u64, u64, u64) {
        let ledger = of(numbers);
        (ledger.missing(sent), ledger.duplicated, ledger.late, ledger.invented(sent))
    }

    #[test]
    fn each_fault_is_found_and_no_other() {
        assert_eq!(found(&[0, 1, 2, 3], 4), (0, 0, 0, 0));
        assert_eq!(found(&[0, 2, 3], 4), (1, 0, 0, 0), "lost");
        assert_eq!(found(&[], 4), (4, 0, 0, 0), "all lost");
        assert_eq!(found(&[0, 1, 2], 4), (1, 0, 0, 0), "the last one lost");
        assert_eq!(found(&[0, 1, 1, 2, 3], 4), (0, 1, 0, 0), "duplicated");
        assert_eq!(found(&[0, 3, 1, 3, 2], 4), (0, 1, 2, 0), "late, and one duplicated that came early");
        assert_eq!(found(&[0, 1, 2, 3, 4], 4), (0, 0, 0, 1), "invented");
        assert_eq!(found(&[0, 9, 1, 2, 3], 4), (0, 0, 3, 1), "invented, and too early");
        assert_eq!(of(&[0, 2]).first_missing(4), Some(1));
        assert_eq!(of(&[0, 1]).first_missing(2), None);
    }
}
