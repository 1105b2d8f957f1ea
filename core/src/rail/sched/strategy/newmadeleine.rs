//! All together (newmadeleine-2007, 3.4, the end): "massively aggregate the small messages, to favor the
//! sending of the resulting message over Quadrics [the NIC of the lowest latency], to split the large ones
//! following some previously processing ratios when both NICs are available and if not, to send them over the
//! first free one".

use super::{Aggregate, PROPERTIES, Split};
use crate::ids::RailId;
use crate::rail::sched::{Costs, Properties, Scheduler, Stripe, Turn, View, Whole};

/// Small messages as [`Aggregate`], large ones as [`Split`].
pub(in crate::rail::sched) struct NewMadeleine;

impl Scheduler for NewMadeleine {
    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn pick(&self, view: &View<'_>, turn: &mut Turn) -> Option<RailId> {
        Aggregate.pick(view, turn)
    }

    fn aggregate_len(&self, costs: &Costs, lens: &[u32]) -> usize {
        Aggregate.aggregate_len(costs, lens)
    }

    fn cut(&self, whole: &Whole<'_>, stripes: &mut [Stripe]) {
        Split.cut(whole, stripes);
    }
}
