//! Splitting with an adaptive threshold (newmadeleine-2007, 3.4): a large message is cut so that its parts
//! take equally long on their NICs, by their sampled bandwidths, each part large enough not to be moved by
//! the processor. Over the NICs that are idle now; where only one is, over that one.

use super::{Greedy, PROPERTIES};
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::rate::Rate;
use crate::rail::sched::striping::cut;
use crate::rail::sched::{CUT_ALIGN, Properties, Scheduler, Stripe, Turn, View, Whole};

/// Large messages cut, small ones as [`Greedy`].
pub(in crate::rail::sched) struct Split;

impl Scheduler for Split {
    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn pick(&self, view: &View<'_>, turn: &mut Turn) -> Option<RailId> {
        Greedy.pick(view, turn)
    }

    fn cut(&self, whole: &Whole<'_>, stripes: &mut [Stripe]) {
        let &Whole { bytes, rails, nic, .. } = whole;
        // While one bandwidth is unknown, all count as equal.
        let known = rails_of(rails).all(|rail| nic(rail).rate != Rate::NONE);
        let weight = |rail: usize| if known { u64::from(nic(RailId(rail as u8)).rate.0) } else { 1 };
        let mut mask = rails;
        // The one with the smallest part drops out first; the others share its part.
        while mask.count_ones() > 1 {
            let sum: u64 = rails_of(mask).map(|rail| weight(rail.0.into())).sum();
            let Some(least) = rails_of(mask).min_by_key(|rail| weight(rail.0.into())) else { break };
            let share = u128::from(bytes) * u128::from(weight(least.0.into())) / u128::from(sum.max(1));
            // Cuts are aligned, so a part may be that much smaller.
            let threshold = rails_of(mask).map(|rail| u64::from(nic(rail).pio_bytes_max) + CUT_ALIGN).max();
            if share > threshold.unwrap_or(0).into() {
                break;
            }
            mask &= !(1 << least.0);
        }
        cut(bytes, mask, weight, stripes);
    }
}
