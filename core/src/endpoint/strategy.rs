//! NewMadeleine's engine (newmadeleine-2007, 2; rule P-13): what is submitted piles up in the queues of its
//! channel while NICs are busy; when one is idle, a strategy (`rail/sched/strategy`) decides from what is
//! there.
//!
//! Idle is a rail as far as one peer is concerned: it has fewer than `nic_depth` posts to that peer, and
//! nothing that is cut waits for it. Posts to other peers don't count; they show in what is measured of the
//! rail.

use super::packets::Actions;
use super::policy::Choice;
use super::pump::Step;
use super::{Endpoint, MessageClass};
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::sched::{Candidates, Costs, Gathers, Nic, of};
use crate::time::Time;
use crate::wire::aggregate::RECORD_BYTES;

impl Endpoint<'_> {
    /// Of the rails of a mask those that are idle.
    pub(super) fn idle(&self, channel: u32, mask: u64) -> u64 {
        let is_idle = |&rail: &RailId| {
            let sub = &self.t.subs[self.t.sub_index(channel, rail)];
            sub.posts < self.config.nic_depth && sub.path.planned == 0
        };
        rails_of(mask).filter(is_idle).fold(0, |idle, rail| idle | 1 << rail.0)
    }

    /// What is known of a rail: what was measured, else what its facts say.
    pub(super) fn nic(&self, channel: u32, rail: RailId) -> Nic {
        let sub = &self.t.subs[self.t.sub_index(channel, rail)];
        let facts = &self.rails[usize::from(rail.0)];
        Nic {
            posts: sub.posts,
            latency_ns: self.estimated_latency(channel, rail),
            rate: self.estimated_rate(channel, rail),
            pio_bytes_max: facts.pio_bytes_max,
        }
    }

    /// Whether the policy of small messages is asked how many of them go together over a rail; else each goes
    /// alone.
    #[inline]
    pub(super) fn gathers(&self, channel: u32, rail: RailId) -> bool {
        match self.policies.of_small().gathers {
            Gathers::Never => false,
            Gathers::Always => true,
            Gathers::WhileBusy => self.is_busy(channel, rail), // P-9
        }
    }

    /// Sends the messages at the front of a channel's queue in one packet over `rail`, where the policy
    /// wants more than one in it. The caller has asked `may_send`.
    pub(super) fn gather(&mut self, now: Time, channel: u32, rail: RailId, out: &mut Actions) -> Step {
        let lens = self.front(channel, rail, self.config.aggregate_bytes_max, out);
        let count = of(self.policies.small()).together(&self.costs(rail), &lens);
        if count < 2 {
            return Step::Idle;
        }
        let bytes = lens[..count].iter().map(|len| u64::from(*len) + RECORD_BYTES as u64).sum();
        let rail = self.earliest_together(now, channel, rail, bytes);
        self.send_aggregate(now, channel, rail, count, out);
        Step::Sent
    }

    /// The rail for a packet of several messages: by path estimates the one that delivers all of it earliest,
    /// which need not be `rail`, the one that the first of them was for (P-9).
    fn earliest_together(&self, now: Time, channel: u32, rail: RailId, bytes: u64) -> RailId {
        if !self.policies.of_small().estimates {
            return rail;
        }
        let Candidates { up, room } = self.candidates(channel);
        let class = MessageClass::Small;
        let rails = Candidates { up: self.usable(channel, class, up), room };
        let earliest = self.earliest(&Choice { now, channel, class, bytes, rails });
        earliest.filter(|other| bytes <= self.eager_bytes_max(channel, *other).into()).unwrap_or(rail)
    }

    /// Whether a rail has as many posts of a channel as keep it busy.
    fn is_busy(&self, channel: u32, rail: RailId) -> bool {
        self.t.subs[self.t.sub_index(channel, rail)].posts >= self.config.nic_depth
    }

    /// What going together costs and saves on a rail: the receiver copies every message once more, and so
    /// does the sender where a message that goes alone leaves from its own buffer.
    fn costs(&self, rail: RailId) -> Costs {
        let lossless = self.rails[usize::from(rail.0)].caps.lossless;
        Costs { packet: self.config.packet_cost, copy: self.policies.copy, copies: 1 + u32::from(lossless) }
    }
}
