//! The strategies of NewMadeleine's engine (newmadeleine-2007, 2 and 3): each is called when a NIC is idle,
//! and gets what is pending by then.
//!
//! From the NICs of one channel and the pending messages, a strategy chooses the next packet's NIC, how many
//! small messages are aggregated in it, and how a large message is cut.

use super::striping::cut;
use super::{Aggregates, CUT_ALIGN, Costs, Nic, Properties, Scheduler, Stripe, Turn, View, Whole};
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::rate::Rate;

/// What all strategies have in common.
const PROPERTIES: Properties = Properties {
    is_bound: false,
    waits_for_idle: true,
    estimates: false,
    follows_times: false,
    aggregates: Aggregates::Always,
};

/// Greedy balancing (3.2): "each time a NIC becomes idle, the strategy code is invoked and simply sends the
/// first available segment (if any) on the corresponding network". The first that waits goes, whole, over the
/// NIC that has the least to do.
pub(super) struct Greedy;

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

/// Aggregation (3.3): small messages that wait go in one packet over the NIC of the lowest latency, large
/// ones as by [`Greedy`].
pub(super) struct Aggregate;

impl Scheduler for Aggregate {
    fn properties(&self) -> Properties {
        PROPERTIES
    }

    /// The NIC of the lowest latency, and no other: while it is busy, messages pile up that go together.
    fn pick(&self, view: &View<'_>, _: &mut Turn) -> Option<RailId> {
        let latency = |&rail: &RailId| (view.nic)(rail).latency_ns;
        rails_of(view.rails.up).min_by_key(latency).filter(|rail| view.idle >> rail.0 & 1 == 1)
    }

    /// As many as save most: each more saves a packet and costs the copies of all.
    fn aggregate_len(&self, costs: &Costs, lens: &[u32]) -> usize {
        let (mut best, mut most, mut bytes) = (1, 0, 0);
        for (index, &len) in lens.iter().enumerate() {
            bytes += u64::from(len) * u64::from(costs.copies);
            let saved = costs.packet.0 * index as u64;
            let copied = if costs.copy.0 == 0 { 0 } else { costs.copy.time_ns(bytes) };
            let gain = saved.saturating_sub(copied);
            if gain > most {
                (best, most) = (index + 1, gain);
            }
        }
        best
    }

    fn cut(&self, whole: &Whole<'_>, stripes: &mut [Stripe]) {
        Greedy.cut(whole, stripes);
    }
}

/// Splitting with an adaptive threshold (3.4): a large message is cut over the NICs that are idle, so that
/// its parts take equally long by their sampled bandwidths, each part large enough not to be moved by the
/// processor; small ones go as by [`Greedy`].
pub(super) struct Split;

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

/// Aggregation and splitting (3.4, the end): "massively aggregate the small messages, to favor the sending of
/// the resulting message over Quadrics [the NIC of the lowest latency], to split the large ones following
/// some previously processing ratios when both NICs are available and if not, to send them over the first
/// free one".
pub(super) struct NewMadeleine;

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

#[cfg(test)]
mod tests;
