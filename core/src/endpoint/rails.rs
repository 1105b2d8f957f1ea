//! Rails as callers see them: policies and weights, the measured performance of a rail, and why a message
//! would use which rail. Also the health of the rails to a peer: which are up, which are being redialled, and
//! how often each has failed and recovered.

use super::{ClassPolicy, CopyBy, Endpoint, Explanation, MessageClass, Policy, RailFault, RailStats, Registration};
use crate::ids::{PeerId, RailId};
use crate::peer::History;
use crate::rel::link::State;
use crate::time::{Nanos, Time};

/// State of a rail to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RailState {
    /// No connection was requested.
    #[default]
    Idle,
    /// A connection is being opened, or is up without the peer's CONNECT.
    Opening,
    /// It carries packets.
    Up,
    /// It has failed and waits for its redial.
    Down {
        /// Time of the redial.
        redial_at: Time,
    },
}

/// Health of a rail to a peer since the channel was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailHealth {
    /// Its current state.
    pub state: RailState,
    /// Since when it has been up or down; `Time(0)`: it was never up.
    pub since: Time,
    /// Connections that were up and failed.
    pub failures: u32,
    /// Number of recoveries: connections that were up, except the first.
    pub returns: u32,
    /// Connections that were refused, or failed before they were up.
    pub refusals: u32,
    /// The fault that the rail reported last, or for which the core ended the connection.
    pub fault: Option<RailFault>,
}

impl Endpoint<'_> {
    /// The current policy for the messages of a class.
    pub fn class_policy(&self, class: MessageClass) -> ClassPolicy {
        self.paths.class_policy(class)
    }

    /// From now on `policy` decides for messages of a class (P-5). Fields that it leaves unset stay.
    pub fn set_policy(&mut self, class: MessageClass, policy: Policy) {
        self.paths.set_policy(class, policy);
        self.close_express_budgets();
    }

    /// Sets the rails that may carry messages of a class (`eligible`, bit per rail), and how many of them
    /// each message uses at most (`rails_used`, 0 counts as 1; P-6).
    pub fn set_rails(&mut self, class: MessageClass, eligible: u64, rails_used: u8) {
        self.paths.set_rails(class, eligible, rails_used);
        self.close_express_budgets();
    }

    /// Each channel chooses its rails anew.
    fn close_express_budgets(&mut self) {
        let mut walk = self.t.channels.walk();
        while let Some(channel) = self.t.channels.step(&mut walk) {
            self.channel_mut(channel).express_budget.close();
            self.close_line(channel);
        }
    }

    /// Sets the weights of rails, relative to each other; rails beyond the slice's end get 0. Adaptive
    /// weights restart.
    pub fn set_weights(&mut self, now: Time, weights: &[u16]) {
        self.paths.set_weights(now, weights);
    }

    /// Sets alpha of equation 4, in parts of [`ALPHA_ONE`](crate::config::ALPHA_ONE); more counts as 1.
    pub fn set_alpha(&mut self, alpha: u16) {
        self.paths.set_alpha(alpha);
    }

    /// The counters and measurements of a rail; `None` where there is no such rail.
    pub fn rail_stats(&self, rail: RailId) -> Option<RailStats> {
        self.paths.rail_stats(rail)
    }

    /// A rail had to register `bytes` of memory, which took `took`. Memory that was registered before is not
    /// reported: it costs nothing.
    pub fn handle_registration_cost(&mut self, rail: RailId, what: Registration, bytes: u64, took: Nanos) {
        self.paths.note_registration_cost(rail, what, bytes, took);
    }

    /// Explains the current plan for a message of `bytes` to `peer`. For [`MessageClass::Small`] the class
    /// follows from the size: a message too large for eager is explained as [`MessageClass::Large`]. The peer
    /// may still choose otherwise: the capabilities of its rails decide which side moves a large message.
    /// `None`: no channel to it is open.
    pub fn explain(&self, now: Time, peer: PeerId, class: MessageClass, bytes: u64) -> Option<Explanation> {
        let channel = self.t.channel_of(peer)?;
        let peers = self.channel(channel).peer_parameters?.eager_bytes_max;
        self.paths.explain(now, channel, class, bytes, (self.config.eager_bytes_max, peers))
    }

    /// How a message of this size from a peer would be copied, where there is a choice, and the measured time
    /// of each method in nanoseconds (0: not measured): by a read, by packets.
    pub fn copying(&self, peer: PeerId, bytes: u64) -> Option<(CopyBy, [u64; 2])> {
        self.paths.copying(self.t.channel_of(peer)?, bytes)
    }

    /// The health of `rail` to `peer`; `None`: no channel to it is open, or there is no such rail.
    pub fn rail_health(&self, peer: PeerId, rail: RailId) -> Option<RailHealth> {
        if usize::from(rail.0) >= self.paths.rails.len() {
            return None;
        }
        let channel = self.t.channel_of(peer)?;
        let sub = self.sub(channel, rail);
        let slot = self.channel(channel);
        let state = match sub.link.state() {
            _ if sub.is_ready() => RailState::Up,
            State::Down if slot.work.redials().contains(rail) => RailState::Down { redial_at: sub.redial_at },
            State::Down if !slot.work.dials(rail) => RailState::Idle,
            _ => RailState::Opening,
        };
        let History { since, ups, failures, refusals, fault, .. } = sub.history;
        Some(RailHealth { state, since, failures, returns: ups.saturating_sub(1), refusals, fault })
    }
}
