//! The fluid model of [`super::split`], played from event to event, for rails whose common capacity is in the way.
//!
//! Between two events (a backlog drained, a wait over, a chunk done) all rates are constant: each group passes on what
//! its rails ask for, or its capacity in proportion. Each event ends one phase of one rail, and a rail has three, so the
//! game ends after at most three events per rail.

use super::groups::{Forest, GROUPS_MAX};
use super::split::{Chunk, Line, RailState, Shared, effective};
use super::{RAILS_MAX, rails_of};
use crate::rail::rate::{self, Rate};
use heapless::Vec;

/// The model with all it needs to know.
pub(super) struct Fluid<'a> {
    rails: &'a [RailState],
    forest: &'a Forest,
    capacities: &'a [Rate],
    /// Bit per rail: has a backlog that takes part of a capacity.
    backlogged: u64,
}

impl<'a> Fluid<'a> {
    /// `None` where no capacity can be in the way, whatever rails of `eligible` carry.
    pub(super) fn new(rails: &'a [RailState], shared: Shared<'a>, eligible: u64) -> Option<Fluid<'a>> {
        let Shared { forest, capacities } = shared;
        if capacities.iter().all(|capacity| *capacity == Rate::NONE) {
            return None;
        }
        let backlog = |(rail, state): (usize, &RailState)| u64::from(state.backlog_bytes > 0) << rail;
        let backlogged = rails.iter().take(RAILS_MAX).enumerate().map(backlog).fold(0, |mask, bit| mask | bit);
        let in_the_way = |(group, capacity): (&super::groups::Group, &Rate)| {
            let members = rails_of(group.rails & (eligible | backlogged)).filter_map(|rail| rails.get(rail));
            let sum: u64 = members.map(|state| u64::from(state.rate.0)).sum();
            *capacity != Rate::NONE && sum > capacity.0.into()
        };
        let binds = forest.groups().iter().zip(capacities).any(in_the_way);
        binds.then_some(Fluid { rails, forest, capacities, backlogged })
    }

    /// When all `chunks` are done, in ns.
    pub(super) fn finish_ns(&self, chunks: &[Chunk]) -> u64 {
        let mut flows = self.flows(chunks.iter().map(|chunk| (chunk.rail, chunk.bytes)));
        self.play(&mut flows, None)
    }

    /// When the rails of `lines` have moved `bytes`, all being busy to the end; and what each has moved by then.
    pub(super) fn together(&self, lines: &mut [Line], bytes: u64) -> u64 {
        let mut flows = self.flows(lines.iter().map(|line| (line.rail, u64::MAX)));
        let at_ns = self.play(&mut flows, Some(bytes));
        for line in lines {
            line.bytes = flows.iter().find(|flow| flow.rail == line.rail).map_or(0, |flow| u64::MAX - flow.chunk);
        }
        at_ns
    }

    /// No chunk of `bytes` on `rail` ends earlier, in ns.
    pub(super) fn bound_ns(&self, rail: usize, bytes: u64) -> u64 {
        let Some(state) = self.rails.get(rail) else { return u64::MAX };
        let limit = self.forest.around(rail).filter_map(|group| self.capacity(group)).min().unwrap_or(Rate(u32::MAX));
        let drained_ns = state.rate.min(limit).time_ns(state.backlog_bytes);
        drained_ns.saturating_add(wait_ns(state)).saturating_add(effective(state).min(limit).time_ns(bytes))
    }

    fn capacity(&self, group: usize) -> Option<Rate> {
        self.capacities.get(group).copied().filter(|capacity| *capacity != Rate::NONE)
    }

    /// The rails with something to do: chunks, or a backlog alone.
    fn flows(&self, chunks: impl Iterator<Item = (u8, u64)>) -> Vec<Flow, RAILS_MAX> {
        let (mut flows, mut others) = (Vec::new(), self.backlogged);
        for (rail, chunk) in chunks {
            let Some(state) = self.rails.get(usize::from(rail)) else { continue };
            others &= !(1u64 << (rail & 63));
            let (backlog, wait_ns) = (state.backlog_bytes, wait_ns(state));
            let _ = flows.push(Flow { rail, backlog, wait_ns, chunk, drain: state.rate, send: effective(state) });
        }
        for rail in rails_of(others) {
            let (backlog, drain) = (self.rails[rail].backlog_bytes, self.rails[rail].rate);
            let _ = flows.push(Flow { rail: rail as u8, backlog, wait_ns: 0, chunk: 0, drain, send: drain });
        }
        flows
    }

    /// Plays until all chunks are done, or `until` bytes of them have moved.
    fn play(&self, flows: &mut [Flow], until: Option<u64>) -> u64 {
        let (mut now_ns, mut moved) = (0u64, 0u64);
        let mut rates = [0u64; RAILS_MAX];
        for _ in 0..=3 * flows.len() {
            self.share(flows, &mut rates);
            let next = flows.iter().zip(&rates).filter_map(|(flow, rate)| flow.ends_in_ns(*rate)).min();
            let together: u64 = flows.iter().zip(&rates).filter(|(flow, _)| flow.sends()).map(|(_, rate)| rate).sum();
            let rest_ns = until.filter(|_| together > 0).map(|until| rate::time_ns(together, until - moved));
            let Some(step_ns) = next.into_iter().chain(rest_ns).min() else { break };
            for (flow, rate) in flows.iter_mut().zip(&rates) {
                moved = moved.saturating_add(flow.pass(*rate, step_ns));
            }
            now_ns = now_ns.saturating_add(step_ns);
            let done = match until {
                Some(until) => rest_ns == Some(step_ns) || moved >= until,
                None => flows.iter().all(|flow| flow.chunk == 0),
            };
            if done {
                break;
            }
        }
        now_ns
    }

    /// What each flow moves now, in units of [`Rate`].
    fn share(&self, flows: &[Flow], rates: &mut [u64; RAILS_MAX]) {
        let groups = self.forest.groups();
        // What rails ask of each group; then, in 32-bit fractions, how much of it they get from it and all around it.
        let mut asked = [0u64; GROUPS_MAX];
        for flow in flows {
            if let Some(group) = self.forest.innermost(flow.rail.into()) {
                asked[group] += u64::from(flow.wants().0);
            }
        }
        let mut share = [ONE; GROUPS_MAX];
        for (index, group) in groups.iter().enumerate() {
            let passed = self.capacity(index).map_or(asked[index], |capacity| asked[index].min(capacity.0.into()));
            if passed < asked[index] {
                share[index] = (passed << 32) / asked[index];
            }
            if let Some(parent) = group.parent {
                asked[usize::from(parent)] += passed;
            }
        }
        for (index, group) in groups.iter().enumerate().rev() {
            if let Some(parent) = group.parent {
                share[index] = (share[index] * share[usize::from(parent)]) >> 32;
            }
        }
        for (flow, rate) in flows.iter().zip(rates) {
            let share = self.forest.innermost(flow.rail.into()).map_or(ONE, |group| share[group]);
            // What moves at all never stands still, or the game would not end.
            *rate = ((u64::from(flow.wants().0) * share) >> 32).max(flow.wants().0.min(1).into());
        }
    }
}

/// The whole, as a 32-bit fraction; one unit less than it would be, so that products of two fit 64 bits.
const ONE: u64 = u32::MAX as u64;

/// What a chunk waits for on a rail whose backlog is drained.
pub(super) fn wait_ns(rail: &RailState) -> u64 {
    u64::from(rail.latency_ns) + u64::from(rail.chunk_ns)
}

/// A rail in the game: what is left of its three phases, which follow one another.
struct Flow {
    rail: u8,
    backlog: u64,
    wait_ns: u64,
    chunk: u64,
    /// The rate of the backlog.
    drain: Rate,
    /// The rate of the chunk.
    send: Rate,
}

impl Flow {
    fn sends(&self) -> bool {
        self.backlog == 0 && self.wait_ns == 0 && self.chunk > 0
    }

    fn wants(&self) -> Rate {
        match self {
            Flow { backlog: 1.., drain, .. } => *drain,
            Flow { wait_ns: 0, chunk: 1.., send, .. } => *send,
            _ => Rate::NONE,
        }
    }

    /// When the phase ends at `rate`; `None`: nothing is left, or its end is not foreseen.
    fn ends_in_ns(&self, rate: u64) -> Option<u64> {
        match self {
            Flow { backlog: 1.., .. } => Some(rate::time_ns(rate, self.backlog)),
            Flow { wait_ns: 1.., chunk: 1.., .. } => Some(self.wait_ns),
            Flow { chunk: 1..=MESSAGE_MAX, .. } => Some(rate::time_ns(rate, self.chunk)),
            _ => None,
        }
    }

    /// Lets `ns` pass; the bytes of the chunk that moved.
    fn pass(&mut self, rate: u64, ns: u64) -> u64 {
        if self.backlog > 0 {
            self.backlog = self.backlog.saturating_sub(rate::bytes_in(rate, ns));
            return 0;
        }
        if self.wait_ns > 0 {
            self.wait_ns = self.wait_ns.saturating_sub(ns);
            return 0;
        }
        let bytes = rate::bytes_in(rate, ns).min(self.chunk);
        self.chunk -= bytes;
        bytes
    }
}

/// Chunks above it stand for "as much as you can".
const MESSAGE_MAX: u64 = u64::MAX / 2;
