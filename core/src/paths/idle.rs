//! The view of rails that the strategies of newmadeleine-2007, 2 get (P-13).
//!
//! A rail is idle towards a peer while it has fewer than `nic_depth` posts to that peer and no part of a
//! transfer waits for it. Posts to other peers don't count; they show in what is measured of the rail.

use super::Paths;
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::sched::{Aggregates, Costs, Nic};

impl Paths<'_> {
    /// Of the rails of a mask those that are idle.
    pub(crate) fn idle(&self, channel: u32, mask: u64) -> u64 {
        let is_idle = |&rail: &RailId| !self.is_busy(channel, rail) && self.path(channel, rail).planned == 0;
        rails_of(mask).filter(is_idle).fold(0, |idle, rail| idle | 1 << rail.0)
    }

    /// Whether a rail has as many posts of a channel as keep it busy.
    fn is_busy(&self, channel: u32, rail: RailId) -> bool {
        self.path(channel, rail).in_flight >= self.settings.nic_depth
    }

    /// Rate and latency of a rail: measured, else from its facts.
    pub(crate) fn nic(&self, channel: u32, rail: RailId) -> Nic {
        Nic {
            posts: self.path(channel, rail).in_flight,
            latency_ns: self.estimated_latency(channel, rail),
            rate: self.estimated_rate(channel, rail),
            pio_bytes_max: self.facts(rail).pio_bytes_max,
        }
    }

    /// Whether the policy of small messages chooses how many of them are aggregated over a rail; else each is
    /// sent alone. `more`: the first was held for others to follow (P-16).
    #[inline]
    pub(crate) fn aggregates(&self, channel: u32, rail: RailId, more: bool) -> bool {
        match self.policies.of_small().aggregates {
            Aggregates::Never => false,
            Aggregates::Always => true,
            Aggregates::WhileBusy => more || self.is_busy(channel, rail), // P-9
        }
    }

    /// What going together costs and saves on a rail: the receiver copies every message once more, and so
    /// does the sender where a message that goes alone leaves from its own buffer.
    pub(crate) fn costs(&self, rail: RailId) -> Costs {
        let lossless = self.facts(rail).caps.lossless;
        Costs { packet: self.settings.packet_cost, copy: self.policies.copy, copies: 1 + u32::from(lossless) }
    }
}
