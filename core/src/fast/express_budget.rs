//! The express path of a channel over rails that can lose: how many messages may go, and come, before the
//! tables are checked.
//!
//! Unlike on a [`Line`](super::Line) nothing is counted here instead of there: recovery and acknowledgments
//! need the tables as they are. Only the checks are saved, and timers that run anyway.

use crate::ids::RailId;

/// Messages for which a budget is opened at once: then the tables are checked again.
pub(crate) const TURN: u16 = 128;

/// What the express path needs of a channel beside its tables.
///
/// `go` and `quiet` cover every reason to look at the tables: code that causes one calls
/// [`close`](Self::close), [`stop_sending`](Self::stop_sending) or [`stop_receiving`](Self::stop_receiving),
/// and the next message that finds 0 opens it again, where nothing prevents it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpressBudget {
    /// Messages of at most `go_bytes` bytes, one block each, that may be numbered.
    pub go: u16,
    pub go_bytes: u32,
    /// Messages of at most one block that may come until an acknowledgment is due, or our limits are.
    pub quiet: u16,
    /// How their rail is found.
    pub by: By,
}

/// How the rail of a message is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    /// The policy chooses each time.
    #[default]
    Choice,
    /// It is the only one, as long as it has fewer than so many posts.
    Only(RailId, u16),
    /// It is the one of the lowest latency, as long as that is idle, and no other is due to be tried.
    Latency,
}

impl ExpressBudget {
    /// The next message of either direction needs the tables.
    pub(crate) const fn close(&mut self) {
        self.go = 0;
        self.quiet = 0;
    }

    /// Another packet goes before the next message, or that must wait.
    pub(crate) const fn stop_sending(&mut self) {
        self.go = 0;
    }

    /// The state of receiving has changed since `quiet` was counted.
    pub(crate) const fn stop_receiving(&mut self) {
        self.quiet = 0;
    }

    /// One of `go` goes, if there is one.
    #[inline(always)]
    pub(crate) const fn passes(&mut self) {
        self.go = self.go.saturating_sub(1);
    }
}
