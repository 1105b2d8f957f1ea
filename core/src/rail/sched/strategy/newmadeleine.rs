//! All together (newmadeleine-2007, 3.4, the end): "massively aggregate the small messages, to favor the
//! sending of the resulting message over Quadrics [the NIC of the lowest latency], to split the large ones
//! following some previously processing ratios when both NICs are available and if not, to send them over the
//! first free one".

use super::aggregate::Aggregate;
use super::split::Split;
use super::{Costs, Nics, Optimizer};
use crate::ids::RailId;
use crate::rail::sched::Stripe;

/// Small messages as [`Aggregate`], large ones as [`Split`].
pub(super) struct NewMadeleine;

impl Optimizer for NewMadeleine {
    fn pick(&self, nics: &Nics<'_>) -> Option<RailId> {
        Aggregate.pick(nics)
    }

    fn together(&self, costs: &Costs, lens: &[u32]) -> usize {
        Aggregate.together(costs, lens)
    }

    fn cut(&self, bytes: u64, nics: &Nics<'_>, stripes: &mut [Stripe]) {
        Split.cut(bytes, nics, stripes);
    }
}
