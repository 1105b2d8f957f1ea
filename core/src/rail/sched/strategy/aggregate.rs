//! Aggregation of small messages (newmadeleine-2007, 3.3): those that wait go together in one packet over the
//! NIC of the lowest latency, large ones go greedily.

use super::{Greedy, PROPERTIES};
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::sched::{Costs, Properties, Scheduler, Stripe, Turn, View, Whole};

/// Small messages together, large ones as [`Greedy`].
pub(in crate::rail::sched) struct Aggregate;

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
