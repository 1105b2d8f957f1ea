//! How the rails to a peer fare: which stand, which are being opened again, how often each has failed and
//! come back. For people and reports; nothing is decided by it.

use super::{Endpoint, RailFault};
use crate::ids::{PeerId, RailId};
use crate::rel::link::State;
use crate::time::Time;

/// What a rail to a peer is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RailState {
    /// No connection was asked for.
    #[default]
    Idle,
    /// A connection is being opened, or stands and the peer's CONNECT has not come.
    Opening,
    /// It carries packets.
    Up,
    /// It has failed and waits to be opened again.
    Down {
        /// When that will be.
        redial_at: Time,
    },
}

/// How a rail to a peer has fared since the channel was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailHealth {
    /// What it is doing now.
    pub state: RailState,
    /// Since when it has been up, or since when it has not; `Time(0)`: it never was up.
    pub since: Time,
    /// Connections that were up and failed.
    pub failures: u32,
    /// How often it came back: connections that were up, but for the first.
    pub returns: u32,
    /// Connections that could not be had, or failed before they were up.
    pub refusals: u32,
    /// What the last of these or of the failures was reported as, or ended for.
    pub fault: Option<RailFault>,
}

/// What is kept of it for a subchannel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    since: Time,
    ups: u32,
    failures: u32,
    refusals: u32,
    /// Connections that failed, whether they had carried packets or not, since one carried packets last.
    in_a_row: u32,
    fault: Option<RailFault>,
}

impl History {
    /// It carries packets from now on.
    pub(super) fn up(&mut self, now: Time) {
        self.ups = self.ups.saturating_add(1);
        self.in_a_row = 0;
        self.since = now;
    }

    /// A connection has failed; `was_up`: it had carried packets.
    pub(super) fn down(&mut self, now: Time, fault: RailFault, was_up: bool) {
        let count = if was_up { &mut self.failures } else { &mut self.refusals };
        *count = count.saturating_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.fault = Some(fault);
        if was_up {
            self.since = now;
        }
    }

    /// Connections that failed since one became ready last, that one included.
    pub(super) const fn failed_in_a_row(&self) -> u32 {
        self.in_a_row
    }
}

impl Endpoint<'_> {
    /// How `rail` fares on the way to `peer`; `None`: no channel to it is open, or there is no such rail.
    pub fn rail_health(&self, peer: PeerId, rail: RailId) -> Option<RailHealth> {
        if usize::from(rail.0) >= self.rails.len() {
            return None;
        }
        let channel = self.t.channel_of(peer)?;
        let sub = &self.t.subs[self.t.sub_index(channel, rail)];
        let slot = self.t.channels.at(channel);
        let state = match sub.link.state() {
            _ if sub.is_ready() => RailState::Up,
            State::Down if slot.redials >> rail.0 & 1 == 1 => RailState::Down { redial_at: sub.redial_at },
            State::Down if slot.dial_pending >> rail.0 & 1 == 0 => RailState::Idle,
            _ => RailState::Opening,
        };
        let History { since, ups, failures, refusals, fault, .. } = sub.history;
        Some(RailHealth { state, since, failures, returns: ups.saturating_sub(1), refusals, fault })
    }
}
