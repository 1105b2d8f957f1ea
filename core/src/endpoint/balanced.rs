//! The `balanced` policy: cuts a message so that all its parts end together, by what is known of each rail (`rail/plan`).
//!
//! Rails that were never measured come first: as long as there is one, messages are cut evenly.

use super::Endpoint;
use super::room::rails_of;
use crate::config::RAILS_MAX;
use crate::ids::RailId;
use crate::rail::plan::groups::Forest;
use crate::rail::plan::split::{Ask, Plan, RailState, Shared, cut};
use crate::rail::rate::Rate;
use crate::rail::sched::{Candidates, STRIPE_BYTES_MIN, Stripe};

/// What one more part costs beside its bytes: posts, doorbells, a FIN; in nanoseconds.
const CHUNK_NS: u32 = 1_000;

/// The latency of a rail that was never seen alone, in nanoseconds.
const LATENCY_NS: u32 = 5_000;

impl Endpoint<'_> {
    /// Of some rails the one that delivers `bytes` soonest (P-8); `None`: wait for it to have room.
    pub(super) fn soonest(&self, channel: u32, bytes: u64, rails: Candidates) -> Option<RailId> {
        let mut best = None;
        for rail in rails_of(rails.up) {
            let path = &self.t.subs[self.t.sub_index(channel, rail)].path;
            let known = path.rate != Rate::NONE;
            let on_it = path.backlog + bytes;
            let moving = if known { path.rate.time_ns(on_it) } else { 0 };
            let ends = moving.saturating_add(if path.latency == 0 { LATENCY_NS } else { path.latency }.into());
            if best.is_none_or(|(soonest, _)| ends < soonest) {
                best = Some((ends, rail));
            }
        }
        best.map(|(_, rail)| rail).filter(|rail| rails.room >> rail.0 & 1 == 1)
    }

    /// Cuts `bytes` over rails of a mask into the stripes of a set, which are empty (P-8). `false`: not enough is known.
    pub(super) fn balance(&mut self, channel: u32, bytes: u64, mask: u64, set: u32) -> bool {
        let mut rails = [RailState::default(); RAILS_MAX];
        for rail in rails_of(mask) {
            let path = &self.t.subs[self.t.sub_index(channel, rail)].path;
            if path.rate == Rate::NONE {
                return false;
            }
            rails[usize::from(rail.0)] = RailState {
                rate: path.rate,
                latency_ns: if path.latency == 0 { LATENCY_NS } else { path.latency },
                backlog_bytes: path.backlog + path.planned,
                chunk_ns: CHUNK_NS,
                register_ns_per_mib: 0,
                chunk_bytes_min: STRIPE_BYTES_MIN as u32,
            };
        }
        let ask = Ask { bytes, eligible: mask, ..Ask::default() };
        let (forest, mut plan) = (Forest::new(&[]), Plan::default());
        if !cut(&ask, &rails[..self.rails.len()], Shared { forest: &forest, capacities: &[] }, &mut plan) {
            return false;
        }
        let stripes = self.t.stripes_of(set);
        for chunk in &plan.chunks {
            stripes[usize::from(chunk.rail)] = Stripe { next: chunk.from, end: chunk.from + chunk.bytes };
        }
        true
    }
}
