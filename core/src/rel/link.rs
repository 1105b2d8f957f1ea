//! One end of one subchannel over its life: connections that come and go, and the fence between them (rules
//! F-1 to F-4).
//!
//! What was in flight on a failed connection may be sent again only when *both* ends of it are known to be
//! dead: else a late write of the dead connection could land in memory that was returned to its owner, or a
//! payload could still be in flight to the place of the copy (resilient-2010, IV.B, goes no further than to
//! reconnect first). A rail's report that a subchannel is down covers this end only. The peer reports its
//! end: by FENCE over another subchannel, or by CONNECT over a new connection of this one, which it opens
//! only after it has given up the one before.
//!
//! The machine is a table over [`State`], whether a fence is needed, and [`Event`]; numbers only decide which
//! event a packet is. It is printed whole by the test below and drawn in `ARCHITECTURE.md`.
//! `conformance/proof/recovery` runs two of them against each other through every interleaving.

/// Whether a connection is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// There is none.
    #[default]
    Down,
    /// One is being opened.
    Connecting,
    /// A connection is up; the peer's CONNECT has not come on it.
    Up,
    /// A connection is up and both ends have the negotiated parameters.
    Ready,
}

/// What happens to a subchannel, as far as the table cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// The owner opens it.
    Dial,
    /// The rail has a connection.
    Up,
    /// The rail has it no more, or could not have it: this end is dead.
    Down,
    /// The owner ends it: this end is dead when that is done.
    Abort,
    /// The peer's CONNECT has come on it.
    Connect,
    /// A CONNECT has come on it that is older than one that came before: the peer has left this connection
    /// already.
    ConnectOfOld,
    /// The peer's end is dead: of the connection that is up, or would be but for this end.
    Fence,
    /// The peer's end is dead: of the connection with leftovers that wait.
    FenceOfLost,
    /// The peer's end is dead: of a connection that is not waited for.
    FenceOfOld,
}

/// What follows from an [`Event`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// The rail must end this end at once.
    pub abort: bool,
    /// What was in flight on the connection is lost.
    pub lost: bool,
    /// Both ends of the connection that was lost are dead: its leftovers may be sent again.
    pub safe: bool,
    /// The peer may be notified that this end is dead.
    pub answer: bool,
}

/// The connection in a peer's packet: the peer's number of it, and ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// This side's number.
    pub mine: u32,
    /// The peer's number; 0: its CONNECT has not come.
    pub yours: u32,
}

/// One end of one subchannel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    state: State,
    /// The newest connection.
    pair: Pair,
    /// The newest connection by the peer's numbers; 0: no CONNECT has come yet.
    newest_theirs: u32,
    /// The connection with leftovers that wait for the peer's fence.
    lost: Option<Pair>,
}

impl State {
    /// The next state and the verdict for an event. `needs_fence`: leftovers wait for a fence. The second
    /// value is whether they do afterwards.
    ///
    /// Invariant: in [`State::Ready`] no fence is needed.
    pub const fn after(self, needs_fence: bool, event: Event) -> (State, bool, Verdict) {
        const NOTHING: Verdict = Verdict { abort: false, lost: false, safe: false, answer: false };
        const LOST: Verdict = Verdict { lost: true, ..NOTHING };
        const SAFE: Verdict = Verdict { safe: true, ..NOTHING };
        const ANSWER: Verdict = Verdict { answer: true, ..NOTHING };
        match (self, event) {
            (State::Down, Event::Dial) => (State::Connecting, needs_fence, NOTHING),
            (_, Event::Dial) => (self, needs_fence, NOTHING),
            (State::Down | State::Connecting | State::Up, Event::Up) => (State::Up, needs_fence, NOTHING),
            // The rail has a new connection and did not report the loss of the old one.
            (State::Ready, Event::Up) => (State::Up, true, LOST),
            (State::Ready, Event::Down) => (State::Down, true, LOST),
            (_, Event::Down) => (State::Down, needs_fence, NOTHING),
            (State::Ready, Event::Abort) => (State::Down, true, Verdict { abort: true, ..LOST }),
            (State::Down, Event::Abort) => (State::Down, needs_fence, NOTHING),
            (_, Event::Abort) => (State::Down, needs_fence, Verdict { abort: true, ..NOTHING }),
            // F-3: a peer that sends CONNECT again has given up the connection before.
            (State::Up, Event::Connect) => (State::Ready, false, if needs_fence { SAFE } else { NOTHING }),
            // A rail may report late a connection that both ends have left for another. The peer's end of
            // that other one may live, and its leftovers would wait.
            (State::Up, Event::ConnectOfOld) => (State::Down, needs_fence, Verdict { abort: true, ..NOTHING }),
            (_, Event::Connect | Event::ConnectOfOld) => (self, needs_fence, NOTHING),
            (State::Ready, Event::Fence) => {
                (State::Down, false, Verdict { abort: true, lost: true, safe: true, answer: true })
            }
            (State::Up, Event::Fence) => (State::Down, needs_fence, Verdict { abort: true, ..ANSWER }),
            (_, Event::Fence | Event::FenceOfOld) => (self, needs_fence, ANSWER),
            (_, Event::FenceOfLost) => (self, false, Verdict { safe: true, ..ANSWER }),
        }
    }
}

impl Link {
    /// The number of the connection after one with `number`: 0 means none.
    pub const fn number_after(number: u32) -> u32 {
        let next = number.wrapping_add(1);
        if next == 0 { 1 } else { next }
    }

    /// An end that gives its next connection the number after `number`.
    pub fn numbered_from(number: u32) -> Link {
        Link { pair: Pair { mine: number, yours: 0 }, ..Link::default() }
    }

    /// Whether a connection is up.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The newest connection.
    pub const fn pair(&self) -> Pair {
        self.pair
    }

    /// Whether the peer's CONNECT has come on any connection yet.
    pub const fn was_met(&self) -> bool {
        self.newest_theirs != 0
    }

    /// The connection that the peer must report dead before its leftovers are sent again.
    pub const fn waits_for(&self) -> Option<Pair> {
        self.lost
    }

    /// The owner opens the subchannel.
    pub fn dial(&mut self) -> Verdict {
        self.on(Event::Dial)
    }

    /// The rail has a connection, which gets the next number.
    pub fn up(&mut self) -> Verdict {
        let verdict = self.on(Event::Up);
        self.pair = Pair { mine: Self::number_after(self.pair.mine), yours: 0 };
        verdict
    }

    /// The rail has no connection (any more).
    pub fn down(&mut self) -> Verdict {
        self.on(Event::Down)
    }

    /// The owner ends the connection. The caller sees that the rail does, before anything else.
    pub fn abort(&mut self) -> Verdict {
        self.on(Event::Abort)
    }

    /// The peer's CONNECT has come, and numbers the connection `yours`. A peer's numbers only grow; they are
    /// serial numbers, as those of packets are, and never 0.
    pub fn connect(&mut self, yours: u32) -> Verdict {
        if !matches!(self.state, State::Up) {
            return self.on(Event::Connect);
        }
        let is_newer = !self.was_met() || matches!(yours.wrapping_sub(self.newest_theirs), 1..=0x7FFF_FFFF);
        if yours == 0 || !is_newer {
            return self.on(Event::ConnectOfOld);
        }
        (self.pair.yours, self.newest_theirs) = (yours, yours);
        self.on(Event::Connect)
    }

    /// The peer reports that its end of connection `of` is dead. An impossible report is ignored.
    pub fn fence(&mut self, of: Pair) -> Verdict {
        let event = if self.lost == Some(of) {
            Event::FenceOfLost
        } else if of.mine == self.pair.mine {
            if matches!(self.state, State::Ready) && of.yours != self.pair.yours {
                return Verdict::default();
            }
            Event::Fence
        } else if of.mine.wrapping_sub(self.pair.mine) > u32::MAX / 2 {
            Event::FenceOfOld
        } else {
            return Verdict::default();
        };
        self.on(event)
    }

    fn on(&mut self, event: Event) -> Verdict {
        let pair = self.pair;
        let (state, needs_fence, verdict) = self.state.after(self.lost.is_some(), event);
        debug_assert!(!(needs_fence && matches!(state, State::Ready)), "{self:?} {event:?}");
        self.state = state;
        if !needs_fence {
            self.lost = None;
        } else if verdict.lost {
            self.lost = Some(pair);
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::string::String;

    const STATES: [State; 4] = [State::Down, State::Connecting, State::Up, State::Ready];
    const EVENTS: [Event; 9] = [
        Event::Dial,
        Event::Up,
        Event::Down,
        Event::Abort,
        Event::Connect,
        Event::ConnectOfOld,
        Event::Fence,
        Event::FenceOfLost,
        Event::FenceOfOld,
    ];

    /// F-1 to F-4: the whole machine. What changes here changes the protocol.
    #[test]
    fn the_table() {
        let mut table = String::new();
        for state in STATES {
            for needs_fence in [false, true] {
                if needs_fence && state == State::Ready {
                    continue;
                }
                for event in EVENTS {
                    if event == Event::FenceOfLost && !needs_fence {
                        continue;
                    }
                    let (next, still, verdict) = state.after(needs_fence, event);
                    let mark = |needs_fence| if needs_fence { "+fence" } else { "" };
                    let _ = write!(
                        table,
                        "{:<17} {:<12} -> {:<17}",
                        std::format!("{state:?}{}", mark(needs_fence)),
                        std::format!("{event:?}"),
                        std::format!("{next:?}{}", mark(still))
                    );
                    let Verdict { abort, lost, safe, answer } = verdict;
                    for (does, what) in [(abort, "abort"), (lost, "lost"), (safe, "safe"), (answer, "answer")] {
                        if does {
                            let _ = write!(table, " {what}");
                        }
                    }
                    while table.ends_with(' ') {
                        table.pop();
                    }
                    table.push('\n');
                }
            }
        }
        assert_eq!(table, include_str!("link.table"), "\n{table}");
    }

    /// F-3: the leftovers of a connection wait for the peer's word about that very connection.
    #[test]
    fn only_a_fence_of_the_lost_connection_is_accepted() {
        let mut link = Link::default();
        link.dial();
        link.up();
        link.connect(7);
        assert!(link.down().lost);
        let lost = Pair { mine: 1, yours: 7 };
        assert_eq!(link.waits_for(), Some(lost));
        assert!(!link.fence(Pair { mine: 1, yours: 6 }).safe);
        assert!(!link.fence(Pair { mine: 0, yours: 7 }).safe);
        assert_eq!(link.fence(Pair { mine: 2, yours: 7 }), Verdict::default());
        link.dial();
        link.up();
        assert_eq!(link.waits_for(), Some(lost));
        let mut early = link;
        assert!(early.fence(lost).safe, "the word may come while the next connection is on its way");
        assert_eq!(early.waits_for(), None);
        assert!(link.connect(8).safe, "or be the next connection's CONNECT");
        assert_eq!((link.state(), link.waits_for()), (State::Ready, None));
    }

    /// F-4: an end that is notified of the other end's death ends its own, and answers.
    #[test]
    fn an_end_follows_the_other() {
        let mut link = Link::default();
        link.up();
        link.connect(3);
        let of = Pair { mine: 1, yours: 3 };
        let all = Verdict { abort: true, lost: true, safe: true, answer: true };
        assert_eq!(link.fence(of), all);
        assert_eq!(link.fence(of), Verdict { answer: true, ..Verdict::default() }, "queried again, answered again");
        link.up();
        assert_eq!(link.fence(of), Verdict { answer: true, ..Verdict::default() }, "the new connection stays");
        assert_eq!(link.state(), State::Up);
    }

    /// F-1: numbers are serial numbers, and 0 means none.
    #[test]
    fn numbers_wrap() {
        let mut link = Link::numbered_from(u32::MAX - 1);
        link.up();
        assert_eq!((link.pair().mine, link.connect(u32::MAX)), (u32::MAX, Verdict::default()));
        assert!(link.down().lost);
        link.up();
        assert_eq!((link.pair().mine, link.connect(0)), (1, Verdict { abort: true, ..Verdict::default() }));
        link.up();
        assert!(link.connect(1).safe, "after the greatest number comes 1");
        let mut other = Link::default();
        other.up();
        other.connect(1 << 31 | 5);
        assert_eq!((other.state(), other.was_met()), (State::Ready, true), "the first number may be any");
    }

    /// F-3: the CONNECT of a connection that the peer has left does not count for the next one.
    #[test]
    fn late_connect_does_not_count_for_the_next_connection() {
        let mut link = Link::default();
        link.up();
        link.connect(2);
        assert!(
            link.up().lost,
            "the report is of another connection, which the peer made before and left for the one above"
        );
        let lost = Pair { mine: 1, yours: 2 };
        assert_eq!(link.connect(1), Verdict { abort: true, ..Verdict::default() });
        assert_eq!((link.state(), link.waits_for()), (State::Down, Some(lost)));
        link.up();
        assert!(link.connect(3).safe);
    }

    /// F-1: connections are numbered as they come up; the peer's number is its CONNECT's, and 0 before that.
    #[test]
    fn new_connection_has_no_peer_number_before_the_connect() {
        let mut link = Link::numbered_from(9);
        assert_eq!(link.pair(), Pair { mine: 9, yours: 0 });
        link.up();
        assert_eq!(link.pair(), Pair { mine: 10, yours: 0 });
        link.connect(4);
        assert_eq!(link.pair(), Pair { mine: 10, yours: 4 });
        link.up();
        assert_eq!(link.pair(), Pair { mine: 11, yours: 0 });
    }

    /// A CONNECT belongs to the connection that is up and has had none; others change nothing.
    #[test]
    fn a_connect_that_no_connection_waits_for_changes_nothing() {
        let mut link = Link::default();
        let unchanged = |link: &mut Link, state| {
            let before = *link;
            assert_eq!((link.state(), link.connect(8)), (state, Verdict::default()));
            assert_eq!(*link, before);
        };
        unchanged(&mut link, State::Down);
        link.dial();
        unchanged(&mut link, State::Connecting);
        link.up();
        link.connect(7);
        unchanged(&mut link, State::Ready);
        link.down();
        unchanged(&mut link, State::Down);
    }
}
