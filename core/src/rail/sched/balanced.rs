//! `balanced`, by path estimates: a packet takes the rail that is predicted to deliver it first (P-9). What is
//! estimated, the endpoint knows (`endpoint/beliefs.rs`).

use super::{Candidates, Costs, Gathers, Properties, Scheduler, Turn, View, strategy};
use crate::ids::RailId;
use crate::rail::rails_of;

/// No rail is given less than this as a part of a message.
pub const PART_BYTES_MIN: u64 = 4 * 1024;

/// The default.
pub(super) struct Balanced;

impl Scheduler for Balanced {
    fn properties(&self) -> Properties {
        Properties { estimates: true, gathers: Gathers::WhileBusy, ..Properties::default() }
    }

    fn pick(&self, view: &View<'_>, _: &mut Turn) -> Option<RailId> {
        soonest(view.rails, || view.nearest, view.delivery_ns)
    }

    fn together(&self, costs: &Costs, lens: &[u32]) -> usize {
        strategy::Aggregate.together(costs, lens)
    }

    fn cut_bytes_min(&self) -> u64 {
        2 * PART_BYTES_MIN
    }
}

/// The rail that delivers a packet soonest (P-9); `None`: wait for room. `nearest` as in [`View::nearest`],
/// `delivery_ns` as in [`View::delivery_ns`].
#[inline(always)]
pub fn soonest(
    rails: Candidates,
    nearest: impl FnOnce() -> Option<RailId>,
    delivery_ns: impl Fn(RailId) -> u64,
) -> Option<RailId> {
    let rails = rails.up & rails.room;
    if rails.is_power_of_two() {
        return Some(RailId(rails.trailing_zeros() as u8));
    }
    if let Some(nearest) = nearest() {
        return Some(nearest);
    }
    let (mut soonest, mut best) = (u64::MAX, None);
    for rail in rails_of(rails) {
        let ends = delivery_ns(rail);
        if ends < soonest {
            (soonest, best) = (ends, Some(rail));
        }
    }
    best
}
