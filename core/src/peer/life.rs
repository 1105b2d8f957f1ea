//! The life of a channel: its states, and which may follow which. `channel.table` is the whole table.

use crate::api::event::Loss;

/// State of a channel. Only [`Channel::enter`](super::Channel::enter) changes it, as `channel.table` allows.
/// No input causes an illegal transition, so one is our bug: debug builds panic, others refuse it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChannelState {
    /// No subchannel is up yet, or the negotiated parameters of the peer are unknown.
    #[default]
    Connecting,
    /// Packets flow.
    Open,
    /// This side has promised to send nothing more on these connections, or is about to (K-2).
    Parking,
    /// Both sides have: the connections are being closed, then the slot is freed (K-3).
    Parked,
    /// The caller closes the channel: the core sends BYE when everything is acknowledged.
    Closing,
    /// BYE has been handed to every subchannel.
    Leaving,
    /// Closed; the slot is freed when nothing refers to it.
    Over(Ending),
}

impl ChannelState {
    /// Whether another state may follow.
    pub(super) const fn may_enter(self, to: ChannelState) -> bool {
        use ChannelState::{Closing, Connecting, Leaving, Open, Over, Parked, Parking};
        match self {
            Connecting => matches!(to, Open | Closing | Over(_)),
            Open => matches!(to, Parking | Closing | Over(_)),
            Parking => matches!(to, Open | Parked | Over(_)),
            Parked => matches!(to, Open | Over(_)),
            Closing => matches!(to, Leaving | Over(_)),
            Leaving => matches!(to, Over(_)),
            Over(_) => false,
        }
    }
}

/// How a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By BYE of either side.
    Closed,
    /// By a failure.
    Lost(Loss),
}

#[cfg(test)]
mod tests {
    use super::super::Channel;
    use super::*;
    use crate::ids::PeerId;
    use crate::rel::credit::Grants;
    use crate::seq::Seq;
    use crate::time::Time;
    use std::fmt::Write;
    use std::format;
    use std::string::String;

    const EVERY_STATE: [ChannelState; 7] = [
        ChannelState::Connecting,
        ChannelState::Open,
        ChannelState::Parking,
        ChannelState::Parked,
        ChannelState::Closing,
        ChannelState::Leaving,
        ChannelState::Over(Ending::Closed),
    ];

    /// G-4 to G-10: `enter` obeys the whole table.
    #[test]
    fn the_table() {
        let mut table = String::new();
        for state in EVERY_STATE {
            let after: String =
                EVERY_STATE.into_iter().filter(|&to| state.may_enter(to)).map(|to| format!(" {to:?}")).collect();
            let line = format!("{:<13}{after}", format!("{state:?}"));
            let _ = writeln!(table, "{}", line.trim_end());
        }
        assert_eq!(table, include_str!("channel.table"), "\n{table}");
    }

    /// Transitions missing from the table are refused, with a panic where assertions are on.
    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "a channel goes from Over(Closed) to Open"))]
    fn an_illegal_change_is_refused() {
        let mut channel = Channel::new(PeerId(0), Seq(0), Grants::new(Seq(0), 1, 1), Time(0));
        let over = ChannelState::Over(Ending::Closed);
        channel.enter(over);
        assert_eq!(channel.state(), over);
        channel.enter(ChannelState::Open);
        assert_eq!(channel.state(), over);
    }
}
