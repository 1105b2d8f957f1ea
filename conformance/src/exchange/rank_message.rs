//! A rank's message to the launcher while it runs: one line of JSON behind a mark on its standard output. All
//! other lines are the report, for people or programs.

use serde::{Deserialize, Serialize};

/// What such a line starts with.
const MARK: &str = "@rerail ";
/// Set by the launcher for its ranks.
pub const LISTENING: &str = "RERAIL_LAUNCHER_LISTENS";

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankMessage {
    /// A round begins.
    Round {
        /// Rounds that are done.
        done: u64,
        /// Rounds in all.
        total: u64,
        /// What comes.
        what: String,
    },
    /// A peer is lost.
    Lost {
        /// Its rank.
        rank: u32,
        /// The rank and the reason, as text.
        text: String,
    },
}

impl RankMessage {
    /// The line.
    pub fn line(&self) -> String {
        // Plain data of this crate's own: serialisation can't fail.
        format!("{MARK}{}", serde_json::to_string(self).unwrap_or_default())
    }

    /// From a line; `None`: it is none.
    pub fn parse(line: &str) -> Option<RankMessage> {
        serde_json::from_str(line.strip_prefix(MARK)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_messages_round_trip_and_other_lines_are_ignored() {
        let rank_message = RankMessage::Lost { rank: 3, text: "rail shm: gone\n\"x\"".to_owned() };
        assert!(!rank_message.line().contains('\n'));
        assert_eq!(RankMessage::parse(&rank_message.line()), Some(rank_message));
        assert_eq!(RankMessage::parse("path  messages"), None);
        assert_eq!(RankMessage::parse("@rerail {}"), None);
    }
}
