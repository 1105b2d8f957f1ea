//! Greedy balancing (newmadeleine-2007, 3.2): "each time a NIC becomes idle, the strategy code is invoked and
//! simply sends the first available segment (if any) on the corresponding network".

use super::PROPERTIES;
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::sched::{Nic, Properties, Scheduler, Stripe, Turn, View, Whole};

/// The first that waits goes, whole, over the NIC that has the least to do.
pub(in crate::rail::sched) struct Greedy;

impl Scheduler for Greedy {
    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn pick(&self, view: &View<'_>, _: &mut Turn) -> Option<RailId> {
        idlest(view.idle, view.nic)
    }

    fn cut(&self, whole: &Whole<'_>, stripes: &mut [Stripe]) {
        if let Some(rail) = idlest(whole.rails, whole.nic) {
            stripes[rail.index()] = Stripe { next: 0, end: whole.bytes };
        }
    }
}

/// The NIC of a mask that has the least to do.
fn idlest(mask: u64, nic: &dyn Fn(RailId) -> Nic) -> Option<RailId> {
    rails_of(mask).min_by_key(|&rail| nic(rail).posts)
}
