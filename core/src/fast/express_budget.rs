//! The express path of a channel over rails that can lose: how many messages may go, and come, before the
//! tables are checked.
//!
//! Unlike on a [`Line`](super::Line) nothing is counted here instead of there: recovery and acknowledgments
//! need the tables as they are. Only the checks are saved, and timers that run anyway.

use crate::ids::RailId;
use crate::store::NONE;
use crate::wire::News;

/// The last numbers of the ordered lane, if all of them are short messages that no rail has and nothing has
/// happened to, and the retained copy of each follows that of the one before: they are acknowledged at once,
/// however many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first of them.
    pub from: u32,
    /// The place that follows the last one, unless places have been given back since; [`NONE`]: there are no
    /// such numbers.
    pub follower: u32,
}

impl Default for Run {
    fn default() -> Run {
        Run { from: 0, follower: NONE }
    }
}

impl Run {
    /// Its first number; `None`: there is none.
    pub(crate) const fn begin(&self) -> Option<u32> {
        if self.follower == NONE { None } else { Some(self.from) }
    }

    /// Something happens to one of them, or the next number is not one of these.
    pub(crate) const fn end(&mut self) {
        self.follower = NONE;
    }
}

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
    /// The same, while the only rail has as many posts as it may.
    held: u16,
    pub go_bytes: u32,
    /// Messages of at most one block that may come: the last of them may make an acknowledgment due, or our
    /// limits.
    pub quiet: u16,
    /// Nothing but the count of `quiet` ends it.
    is_counted: bool,
    /// The rails on which they may, a bit each, and their acknowledgments and limits: others bring news.
    quiet_on: u64,
    seen: News,
    /// How their rail is found.
    pub by: By,
    /// Where the channel's slots of the sent window begin in their table.
    pub sent_from: u32,
    pub run: Run,
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
        self.stop_sending();
        self.stop_receiving();
    }

    /// Another packet goes before the next message, or that must wait.
    pub(crate) const fn stop_sending(&mut self) {
        (self.go, self.held) = (0, 0);
        self.run.end();
    }

    /// The only rail has as many posts as it may.
    pub(crate) const fn hold(&mut self) {
        (self.go, self.held) = (0, self.go);
    }

    /// One of these posts is over.
    #[inline(always)]
    pub(crate) const fn resume(&mut self) {
        if self.held > 0 {
            (self.go, self.held) = (self.held, 0);
        }
    }

    /// Opens it for as many messages as [counted](Self::count_anew); their rails are still to be
    /// [added](Self::add_rail).
    pub(crate) const fn open_receiving(&mut self) {
        (self.is_counted, self.quiet_on) = (true, 0);
    }

    /// Whether messages may come until something is due.
    pub(crate) const fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// An acknowledgment and our limits have gone: so many may come from now on, unless something else
    /// prevents it.
    pub(crate) const fn count_anew(&mut self, quiet: u32) {
        let quiet = if quiet < TURN as u32 { quiet as u16 } else { TURN };
        self.quiet = if self.is_counted { quiet } else { 0 };
    }

    /// Messages may come on a rail, too, and those with this news need not be looked at.
    pub(crate) const fn add_rail(&mut self, rail: RailId, seen: News) {
        self.quiet_on |= 1 << rail.0;
        self.seen = seen;
    }

    /// Whether a message with this news needs nothing but its receive.
    #[inline(always)]
    pub(crate) fn passes_quietly(&self, rail: RailId, news: News) -> bool {
        self.quiet > 0 && self.quiet_on >> (rail.0 % 64) & 1 == 1 && self.seen == news
    }

    /// The state of receiving has changed since `quiet` was counted.
    pub(crate) const fn stop_receiving(&mut self) {
        (self.quiet, self.is_counted) = (0, false);
    }

    /// One goes: of `go`, if it is `OPEN`.
    #[inline(always)]
    pub(crate) const fn passes<const OPEN: bool>(&mut self) {
        self.go = if OPEN { self.go - 1 } else { self.go.saturating_sub(1) };
    }

    /// Opens it for `go` messages of at most `go_bytes` bytes.
    pub(crate) const fn open_sending(&mut self, go: u16, go_bytes: u32, by: By) {
        (self.go, self.held, self.go_bytes, self.by) = (go, 0, go_bytes, by);
    }
}
