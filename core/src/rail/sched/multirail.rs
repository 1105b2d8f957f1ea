//! The policies of multirail-2004, 4.4: rail choice by the machines of [`multiplex`], cuts by [`striping`].

use super::{Properties, Scheduler, Stripe, Turn, View, Whole, multiplex, striping};
use crate::ids::RailId;

/// All on one rail, even while it is busy: that is what keeps messages in order.
pub(super) struct Binding;

impl Scheduler for Binding {
    fn properties(&self) -> Properties {
        Properties { is_bound: true, ..Properties::default() }
    }

    fn pick(&self, view: &View<'_>, _: &mut Turn) -> Option<RailId> {
        multiplex::Binding::to(view.bind).pick(view.rails)
    }
}

/// One rail after the other.
pub(super) struct RoundRobin;

impl Scheduler for RoundRobin {
    fn pick(&self, view: &View<'_>, turn: &mut Turn) -> Option<RailId> {
        turn.robin.pick(view.rails)
    }
}

/// As many messages of each round as a rail's weight.
pub(super) struct WeightedRoundRobin;

impl Scheduler for WeightedRoundRobin {
    fn pick(&self, view: &View<'_>, turn: &mut Turn) -> Option<RailId> {
        turn.weighted.pick(view.rails, view.weights)
    }
}

/// A window of messages on one rail, then on the next.
pub(super) struct WindowRoundRobin;

impl Scheduler for WindowRoundRobin {
    fn pick(&self, view: &View<'_>, turn: &mut Turn) -> Option<RailId> {
        turn.window.pick(view.rails, view.window_messages)
    }
}

/// Equal parts: what [`Scheduler::cut`] is by itself.
pub(super) struct Even;

impl Scheduler for Even {}

/// Parts in proportion to the weights that are set.
pub(super) struct Weighted;

impl Scheduler for Weighted {
    fn cut(&self, whole: &Whole<'_>, stripes: &mut [Stripe]) {
        striping::weighted(whole.bytes, whole.rails, whole.weights, stripes);
    }
}

/// Parts in proportion to weights that follow the times of the stripes (4.5, equation 4).
pub(super) struct Adaptive;

impl Scheduler for Adaptive {
    fn properties(&self) -> Properties {
        Properties { follows_times: true, ..Properties::default() }
    }

    fn cut(&self, whole: &Whole<'_>, stripes: &mut [Stripe]) {
        Weighted.cut(whole, stripes);
    }
}
