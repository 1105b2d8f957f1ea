//! Checks and problems: counts by kind and path, and each problem with the facts to find its cause.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::pattern::Difference;
use super::plan::Kind;
use crate::session::Path;

/// Problems that are kept with all their facts; beyond it they are only counted.
const PROBLEMS_KEPT: usize = 64;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Where it was seen.
    pub rank: u32,
    /// The other side.
    pub peer: u32,
    /// The way between them.
    pub path: Path,
    /// The check.
    pub kind: Kind,
    /// Bytes of the message or transfer.
    pub bytes: u64,
    /// Its number in its round.
    pub number: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { rank, peer, path, kind, bytes, number, what } = self;
        write!(f, "rank {rank}, peer {peer} over {path}: {} of {bytes} B, number {number}: {what}", kind.name())
    }
}

/// Describes how bytes differ.
pub fn describe(difference: &Difference) -> String {
    let Difference { offset, wanted, found, bytes } = difference;
    format!("byte {offset} is {found:#04x}, was sent as {wanted:#04x}; {bytes} bytes differ")
}

/// How much went over a path or through a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Messages and one-sided transfers.
    pub messages: u64,
    /// Their payload bytes, each of them compared.
    pub bytes: u64,
    /// Problems.
    pub problems: u64,
}

impl Count {
    /// Adds another count.
    pub fn add(&mut self, other: &Count) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.problems += other.problems;
    }
}

/// All counts of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// By what was checked.
    pub checks: BTreeMap<Kind, Count>,
    /// By the way taken.
    pub paths: BTreeMap<Path, Count>,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// All problems.
    pub problems_total: u64,
    /// Operations that ended because a peer was lost.
    pub cut_short: u64,
}

impl Tally {
    /// A message or transfer was verified.
    pub fn verified(&mut self, kind: Kind, path: Path, bytes: u64) {
        let one = Count { messages: 1, bytes, problems: 0 };
        self.checks.entry(kind).or_default().add(&one);
        self.paths.entry(path).or_default().add(&one);
    }

    /// Something is wrong.
    pub fn wrong(&mut self, problem: Problem) {
        let one = Count { messages: 0, bytes: 0, problems: 1 };
        self.checks.entry(problem.kind).or_default().add(&one);
        self.paths.entry(problem.path).or_default().add(&one);
        self.problems_total += 1;
        if self.problems.len() < PROBLEMS_KEPT {
            self.problems.push(problem);
        }
    }

    /// Adds another rank's counts.
    pub fn merge(&mut self, other: &Tally) {
        for (kind, count) in &other.checks {
            self.checks.entry(*kind).or_default().add(count);
        }
        for (path, count) in &other.paths {
            self.paths.entry(*path).or_default().add(count);
        }
        let room = PROBLEMS_KEPT.saturating_sub(self.problems.len());
        self.problems.extend(other.problems.iter().take(room).cloned());
        self.problems_total += other.problems_total;
        self.cut_short += other.cut_short;
    }

    /// Messages and transfers verified.
    pub fn messages(&self) -> u64 {
        self.paths.values().map(|count| count.messages).sum()
    }

    /// Bytes verified.
    pub fn bytes(&self) -> u64 {
        self.paths.values().map(|count| count.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(number: u64) -> Problem {
        let what = describe(&Difference { offset: 4096, wanted: 0x34, found: 0x02, bytes: 17 });
        Problem { rank: 1, peer: 3, path: Path::Tcp, kind: Kind::Put, bytes: 65_536, number, what }
    }

    #[test]
    fn verification_error_names_rank_peer_and_offset() {
        assert_eq!(
            problem(2).to_string(),
            "rank 1, peer 3 over tcp: put of 65536 B, number 2: byte 4096 is 0x02, was sent as 0x34; 17 bytes differ"
        );
    }

    #[test]
    fn counts_of_ranks_add_up_and_many_problems_are_only_counted() {
        let mut one = Tally::default();
        one.verified(Kind::Put, Path::Tcp, 10);
        one.verified(Kind::Get, Path::Loop, 5);
        let mut other = Tally::default();
        other.verified(Kind::Put, Path::Shm, 7);
        (0..100).for_each(|number| other.wrong(problem(number)));
        one.merge(&other);
        assert_eq!(one.checks[&Kind::Put], Count { messages: 2, bytes: 17, problems: 100 });
        assert_eq!((one.messages(), one.bytes()), (3, 22));
        assert_eq!((one.problems.len(), one.problems_total), (PROBLEMS_KEPT, 100));
    }
}
