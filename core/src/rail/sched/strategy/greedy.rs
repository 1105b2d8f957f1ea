//! Greedy balancing (newmadeleine-2007, 3.2): "each time a NIC becomes idle, the strategy code is invoked and
//! simply sends the first available segment (if any) on the corresponding network".

use super::{Nics, Optimizer};
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::sched::Stripe;

/// The first that waits goes, whole, over the NIC that has the least to do.
pub(super) struct Greedy;

impl Optimizer for Greedy {
    fn pick(&self, nics: &Nics<'_>) -> Option<RailId> {
        rails_of(nics.idle).min_by_key(|&rail| (nics.nic)(rail).posts)
    }

    fn cut(&self, bytes: u64, nics: &Nics<'_>, stripes: &mut [Stripe]) {
        if let Some(rail) = self.pick(nics) {
            stripes[usize::from(rail.0)] = Stripe { next: 0, end: bytes };
        }
    }
}
