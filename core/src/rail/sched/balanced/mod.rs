//! `balanced`, by path estimates: a packet takes the rail that is predicted to deliver it first (P-9), and a
//! message is cut so that all parts end together (P-8; the planner in `rail/plan`). The endpoint holds the
//! estimates (`paths/estimates.rs`) and calls these:
//!
//! | file | question |
//! |---|---|
//! | `bottleneck` | which rails hold each other up (P-14)? |
//! | `explore` | when does a rail get something that a plan leaves out (P-11)? |
//! | `rebalance` | which rail takes over from which (P-10)? |
//! | `steady` | is the last cut still good enough (P-11)? |
//! | `worth` | which parts are worth registering memory for (P-15)? |

pub(crate) mod bottleneck;
pub(crate) mod explore;
pub(crate) mod rebalance;
pub(crate) mod steady;
pub(crate) mod worth;

use super::{Aggregates, Candidates, Costs, Properties, Scheduler, Turn, View, strategy};
use crate::ids::RailId;
use crate::rail::rails_of;

/// No rail is given less than this as a part of a message.
pub const PART_BYTES_MIN: u64 = 4 * 1024;

/// Cost of one more part beside its bytes: posts, doorbells, a FIN; in nanoseconds.
pub(crate) const CHUNK_NS: u32 = 1_000;

/// So few bytes move in no time, whatever the rail.
pub(crate) const NEAR_BYTES_MAX: u64 = 64;

/// The default.
pub(super) struct Balanced;

impl Scheduler for Balanced {
    fn properties(&self) -> Properties {
        Properties { estimates: true, aggregates: Aggregates::WhileBusy, ..Properties::default() }
    }

    fn pick(&self, view: &View<'_>, _: &mut Turn) -> Option<RailId> {
        earliest(view.rails, || view.lowest_latency, view.delivery_ns)
    }

    fn aggregate_len(&self, costs: &Costs, lens: &[u32]) -> usize {
        strategy::Aggregate.aggregate_len(costs, lens)
    }

    fn cut_bytes_min(&self) -> u64 {
        2 * PART_BYTES_MIN
    }
}

/// The rail that delivers a packet earliest (P-9); `None`: wait for room. `lowest_latency` as in
/// [`View::lowest_latency`], `delivery_ns` as in [`View::delivery_ns`].
#[inline(always)]
pub(crate) fn earliest(
    rails: Candidates,
    lowest_latency: impl FnOnce() -> Option<RailId>,
    delivery_ns: impl Fn(RailId) -> u64,
) -> Option<RailId> {
    let rails = rails.up & rails.room;
    if rails.is_power_of_two() {
        return Some(RailId(rails.trailing_zeros() as u8));
    }
    if let Some(lowest_latency) = lowest_latency() {
        return Some(lowest_latency);
    }
    let (mut earliest, mut best) = (u64::MAX, None);
    for rail in rails_of(rails) {
        let ends = delivery_ns(rail);
        if ends < earliest {
            (earliest, best) = (ends, Some(rail));
        }
    }
    best
}

#[cfg(test)]
mod tests;
