//! What came of it: an account for each side, for people and for programs.

use serde::{Deserialize, Serialize};

use super::super::rails::{RailLine, render};
use crate::exit::{Exit, Failure};
use crate::output::{Align, Table, bad, bold, bytes, good, json, write_stdout};
use crate::session::{Path, Session};

use super::PROBLEMS_KEPT;

/// A time in which nothing was completed: no send, receive or one-sided operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Its begin, in nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// Its length.
    pub ms: u64,
}

/// One side's account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    rank: u32,
    pub(super) seconds: f64,
    /// Messages sent, and messages received, with their bytes.
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) bytes: u64,
    /// Puts that were read back, additions that this side made, and those of the other side that were found
    /// here.
    pub(super) puts: u64,
    pub(super) adds: u64,
    pub(super) added_here: u64,
    /// Of messages received or read back: how many never came, came twice, came late in order, or differ from
    /// the original.
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) late: u64,
    pub(super) different: u64,
    /// The first of these, in words.
    problems: Vec<String>,
    /// Packets and reads that this side sent again, and packets that it had got before and dropped.
    replayed: u64,
    dropped_again: u64,
    pub(super) longest_pause_ms: u64,
    pub(super) pauses: Vec<Pause>,
    rails: Vec<RailLine>,
}

impl Side {
    /// An empty one.
    pub(super) fn of(rank: u32) -> Side {
        Side { rank, ..Side::default() }
    }

    /// Something is wrong: counts it, and keeps the words of the first ones.
    pub(super) fn wrong(&mut self, count: impl Fn(&mut Side) -> &mut u64, what: String) {
        *count(self) += 1;
        if self.problems.len() < PROBLEMS_KEPT {
            self.problems.push(what);
        }
    }

    /// Takes what the transport counted.
    pub(super) fn close(&mut self, session: &Session, rails: Vec<RailLine>) {
        let stats = session.transport().stats();
        self.duplicated += session.repeated();
        (self.replayed, self.dropped_again, self.rails) = (stats.replayed, stats.duplicates_dropped, rails);
    }

    fn is_good(&self) -> bool {
        self.lost + self.duplicated + self.late + self.different == 0
    }
}

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mixed {
    /// The way.
    pub path: Path,
    /// Bytes of messages, of which one is drawn for each.
    pub sizes: Vec<u64>,
    /// Messages under way, each way.
    pub window: u64,
    /// For how long messages were sent.
    pub seconds: u64,
    /// When it started, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// That of the side which printed first.
    pub sides: [Side; 2],
}

impl Mixed {
    /// As JSON, or as a table.
    pub fn print(&self, as_json: bool) -> Result<(), Failure> {
        if as_json { json(self) } else { write_stdout(&self.render()) }
    }

    /// Whether all that was sent came once, in order and as it was.
    pub fn verdict(&self) -> Exit {
        if self.is_good() { Exit::Ok } else { Exit::Verification }
    }

    fn is_good(&self) -> bool {
        let [one, other] = &self.sides;
        let adds = one.adds == other.added_here && other.adds == one.added_here;
        adds && one.is_good() && other.is_good()
    }

    fn render(&self) -> String {
        let mut table = Table::new(&[
            ("rank", Align::Left),
            ("sent", Align::Right),
            ("received", Align::Right),
            ("bytes", Align::Right),
            ("puts read back", Align::Right),
            ("additions", Align::Right),
            ("sent again", Align::Right),
            ("dropped again", Align::Right),
            ("longest pause ms", Align::Right),
        ]);
        for side in &self.sides {
            table.row([
                side.rank.to_string(),
                side.sent.to_string(),
                side.received.to_string(),
                bytes(side.bytes),
                side.puts.to_string(),
                side.adds.to_string(),
                side.replayed.to_string(),
                side.dropped_again.to_string(),
                side.longest_pause_ms.to_string(),
            ]);
        }
        let title =
            format!("mixed sizes both ways over {} for {} s, {} under way", self.path, self.seconds, self.window);
        let mut lines = vec![bold(&title), table.render()];
        for side in &self.sides {
            lines.push(format!("\nrails as rank {} sees them", side.rank));
            lines.push(render(&side.rails));
        }
        lines.push(String::new());
        for side in &self.sides {
            lines.extend(side.problems.iter().map(|what| format!("rank {}: {what}", side.rank)));
        }
        let sum = |of: fn(&Side) -> u64| self.sides.iter().map(of).sum::<u64>();
        let (lost, duplicated) = (sum(|side| side.lost), sum(|side| side.duplicated));
        let (late, different) = (sum(|side| side.late), sum(|side| side.different));
        for (one, other) in [(0, 1), (1, 0)] {
            let (made, found) = (self.sides[one].adds, self.sides[other].added_here);
            if made != found {
                lines.push(format!("{made} additions were made at rank {}, which has {found}", self.sides[other].rank));
            }
        }
        lines.push(if self.is_good() {
            format!("{} nothing lost, duplicated, out of order or different", good("OK"))
        } else {
            format!("{} {lost} lost, {duplicated} duplicated, {late} out of order, {different} different", bad("WRONG"))
        });
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(sides: [Side; 2]) -> Mixed {
        Mixed { path: Path::Tcp, sizes: vec![8], window: 1, seconds: 1, started_unix_ns: 0, sides }
    }

    #[test]
    fn every_kind_of_fault_is_reported_and_fails_the_run() {
        let good = || Side { adds: 3, added_here: 3, ..Side::of(0) };
        assert_eq!(mixed([good(), good()]).verdict(), Exit::Ok);
        let counts: [fn(&mut Side) -> &mut u64; 5] = [
            |side| &mut side.lost,
            |side| &mut side.duplicated,
            |side| &mut side.late,
            |side| &mut side.different,
            |side| &mut side.added_here,
        ];
        for count in counts {
            let mut side = good();
            side.wrong(count, "what is wrong".to_owned());
            let result = mixed([good(), side]);
            assert_eq!(result.verdict(), Exit::Verification);
            let text = result.render();
            assert!(text.contains("what is wrong") && text.contains("WRONG"), "{text}");
        }
    }
}
