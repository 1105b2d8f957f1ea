//! What is estimated of a rail towards a peer (P-1, P-12): its rate, its latency, the smallest part that
//! pays; and the values derived from them for each small packet (P-9), computed on a new measurement instead
//! of on each use.
//!
//! In order of preference: the rate measured towards this peer, the rate measured towards another one, the
//! rate in its facts.

use super::Paths;
use super::measure::has_bounds;
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::rate::Rate;
use crate::rail::sched::STRIPE_BYTES_MIN;
use crate::rail::sched::balanced::PART_BYTES_MIN;

/// The latency of a rail that was never seen alone, in nanoseconds, on a device that is near.
pub(crate) const LATENCY_NS: u32 = 5_000;

/// The kernel's distance of what is near.
const NEAR: u32 = 10;

/// Assumed rate of an unmeasured rail where other rails are measured, in bytes per second.
const UNKNOWN_BYTES_PER_SECOND: u64 = 100_000_000;

impl Paths<'_> {
    /// The rate that is estimated of a rail towards a peer.
    pub(crate) fn estimated_rate(&self, channel: u32, rail: RailId) -> Rate {
        let measured = self.path(channel, rail).rate;
        if measured != Rate::NONE {
            return measured;
        }
        let figures = &self.figures[rail.index()];
        let sampled = figures.sampled.map_or(0, |sampled| sampled.bytes_per_second);
        let declared = self.rails[rail.index()].bytes_per_second;
        let known = [figures.bytes_per_second, sampled, declared].into_iter().find(|rate| *rate > 0);
        Rate::from_bytes_per_second(known.unwrap_or(0))
    }

    /// The latency that is estimated of a rail towards a peer, in nanoseconds.
    pub(crate) fn estimated_latency(&self, channel: u32, rail: RailId) -> u32 {
        let measured = self.path(channel, rail).latency;
        let facts = &self.rails[rail.index()];
        let distance = u32::from(facts.numa_distance);
        let sampled = self.figures[rail.index()].sampled;
        let sampled = sampled.map_or(0, |sampled| u32::try_from(sampled.latency.0).unwrap_or(u32::MAX));
        match (measured, sampled) {
            (0, 0) if facts.latency_ns > 0 => facts.latency_ns,
            (0, 0) => LATENCY_NS * distance.max(NEAR) / NEAR,
            (0, known) | (known, 0) => known,
            // Completions may have come back from the peer: the smaller value is nearer to the truth.
            (measured, sampled) => measured.min(sampled),
        }
    }

    /// The smallest part that a rail is given (P-8): what it moves in the time that it takes to get there, so
    /// that no part costs more for being one than for its bytes; and none that the processor would move.
    pub(crate) fn part_bytes_min(&self, channel: u32, rail: RailId) -> u64 {
        let planning_latency =
            self.estimated_rate(channel, rail).bytes_in(self.estimated_latency(channel, rail).into());
        let programmed = u64::from(self.rails[rail.index()].pio_bytes_max) + 1;
        planning_latency.clamp(PART_BYTES_MIN, STRIPE_BYTES_MIN).max(programmed)
    }

    /// A rail has a new measurement: computes the values that each packet needs.
    pub(crate) fn learn_latency(&mut self, channel: u32, rail: RailId) {
        let rate = match self.estimated_rate(channel, rail) {
            Rate::NONE => Rate::from_bytes_per_second(UNKNOWN_BYTES_PER_SECOND),
            rate => rate,
        };
        let latency = self.estimated_latency(channel, rail);
        let is_sampled = self.figures[rail.index()].sampled.is_some();
        let may_be_sampled = !is_sampled && has_bounds(&self.rails[rail.index()]);
        let path = self.path_mut(channel, rail);
        path.set_ns_per_64k(rate);
        path.planning_latency = if path.latency == 0 && may_be_sampled { 0 } else { latency.max(1) };
        self.find_lowest_latency(channel);
        if self.peer(channel).fins_pending > 0 {
            // How much it is fed goes by its latency then (P-3).
            self.refresh_load(channel, rail);
        }
    }

    /// A rail's latency has changed, or the set of ready rails. Rails that are not ready are excluded: the
    /// latency of one that never came up reads as that of a rail to explore, which is lower than all.
    pub(crate) fn find_lowest_latency(&mut self, channel: u32) {
        let planning_latency = |rail: &RailId| self.path(channel, *rail).planning_latency;
        let lowest_latency = rails_of(self.ready(channel)).min_by_key(planning_latency).unwrap_or_default();
        self.peer_mut(channel).lowest_latency = lowest_latency.0;
    }
}
