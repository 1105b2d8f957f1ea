//! The communication scheduler (multirail-2004, 4.1 and 4.4): which rail carries a small packet
//! (multiplexing), and how a large message is cut (striping).
//!
//! A policy gets a view of the rails of one channel and decides; it sends nothing. The endpoint chooses the
//! policy for each decision (`paths/policy.rs`): it uses a policy's methods and properties, and never its
//! identity. A new policy is an implementation of [`Scheduler`] here, a row in [`of`], and a row in the table
//! of names (`config/policy.rs`).
//!
//! | file | policies |
//! |---|---|
//! | `multirail` | those of multirail-2004, by the machines of `multiplex` and the cuts of `striping` |
//! | `strategy/` | the strategies of newmadeleine-2007, which see what waits |
//! | `balanced` | the default: by path estimates |

pub mod balanced;
pub mod multiplex;
mod multirail;
mod strategy;
pub mod striping;

use crate::api::config::Policy;
use crate::ids::RailId;
pub(crate) use crate::rail::plan::split::CUT_ALIGN;
use crate::rail::rate::Rate;
use crate::time::Nanos;

/// No part of a message is cut smaller than this; below it a packet's own cost outweighs the second rail.
pub const STRIPE_BYTES_MIN: u64 = 16 * 1024;

/// The rails of one channel at the moment.
#[derive(Clone, Copy, Debug)]
pub struct Candidates {
    /// Bit per rail: the subchannel is up.
    pub up: u64,
    /// Bit per rail: and takes a post now.
    pub room: u64,
}

/// One part of a message on one rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stripe {
    /// The next byte to send.
    pub next: u64,
    /// The first byte that belongs to another stripe.
    pub end: u64,
}

/// One NIC, as one channel sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    /// Packets, writes and reads to this peer that are with it.
    pub posts: u16,
    /// A packet's time beside its bytes, in nanoseconds: measured, or estimated by its facts.
    pub latency_ns: u32,
    /// Its bandwidth, sampled or measured; [`Rate::NONE`]: not known.
    pub rate: Rate,
    /// Payloads up to so many bytes are moved by the processor.
    pub pio_bytes_max: u32,
}

/// What a policy sees when it chooses a rail for a packet. The masks have a bit per rail.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The rails that may carry it.
    pub rails: Candidates,
    /// Those of them that are idle: no part of a transfer waits for them, and they have fewer posts than
    /// `Config::nic_depth`. Set for policies that wait for idle rails, else empty.
    pub idle: u64,
    /// The rail of the lowest latency, where it is idle and the packet so short that no other delivers it
    /// sooner. Set for policies that go by estimates.
    pub lowest_latency: Option<RailId>,
    /// The NIC of a rail that is up.
    pub nic: &'a dyn Fn(RailId) -> Nic,
    /// When a rail that is up is predicted to deliver the packet, in nanoseconds from now.
    pub delivery_ns: &'a dyn Fn(RailId) -> u64,
    /// `Config::bind`.
    pub bind: RailId,
    /// The setting `weights`.
    pub weights: &'a [u16],
    /// `Config::window_messages`.
    pub window_messages: u16,
}

/// A large message that is to be cut.
#[derive(Clone, Copy)]
pub struct Whole<'a> {
    /// Its length.
    pub bytes: u64,
    /// The rails to cut it over, bit per rail, at least one; of policies that wait for idle rails, idle ones.
    pub rails: u64,
    /// Weight by rail: as set, or as they have become where the policy's weights follow stripe times.
    pub weights: &'a [u32],
    /// The NIC of a rail.
    pub nic: &'a dyn Fn(RailId) -> Nic,
}

/// What packets and copies cost, so that they can be weighed against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// What one packet more costs both sides.
    pub packet: Nanos,
    /// How fast a processor copies; [`Rate::NONE`]: copies cost nothing.
    pub copy: Rate,
    /// How much more often a byte is copied when it is aggregated than when it is sent alone.
    pub copies: u32,
}

/// The turn in one class of one channel, by each policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    robin: multiplex::RoundRobin,
    weighted: multiplex::WeightedRoundRobin,
    window: multiplex::WindowRoundRobin,
}

/// When a policy decides how many small messages to aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregates {
    /// Never: each goes alone.
    #[default]
    Never,
    /// For every packet: it looks at messages before these go anywhere.
    Always,
    /// While the rail is busy, as a packet has to wait for it anyway.
    WhileBusy,
}

/// What the endpoint does otherwise for some policies, read when a policy is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// It keeps to one rail, which it picks: large messages stay whole.
    pub is_bound: bool,
    /// It is called when a rail is idle, and decides about what is pending by then (P-13).
    pub waits_for_idle: bool,
    /// It goes by path estimates: plans cuts (P-8), rebalances them (P-10), weighs registrations (P-15), and
    /// tries rails that it left out (P-11).
    pub estimates: bool,
    /// The weights that it cuts by follow the times of stripes (P-7).
    pub follows_times: bool,
    /// When small messages go together.
    pub aggregates: Aggregates,
}

/// What a policy decides. Without state: turns and estimates are its caller's.
#[allow(unused_variables, reason = "defaults need no arguments")]
pub trait Scheduler: Sync {
    /// What the endpoint does otherwise for it.
    fn properties(&self) -> Properties {
        Properties::default()
    }

    /// The rail for a packet; `None`: wait for room, or until another is idle. Not called for policies that
    /// only cut; they would take the first with room.
    fn pick(&self, view: &View<'_>, turn: &mut Turn) -> Option<RailId> {
        crate::rail::rails_of(view.rails.up & view.rails.room).next()
    }

    /// How many of the small messages that wait go in one packet, from the first on; at least 1. `lens` are
    /// their bytes, as many as fit.
    fn aggregate_len(&self, costs: &Costs, lens: &[u32]) -> usize {
        1
    }

    /// The smallest payload that is cut.
    fn cut_bytes_min(&self) -> u64 {
        2 * STRIPE_BYTES_MIN
    }

    /// Cuts a large message: fills `stripes[rail]`, which are empty before. Not called for policies that only
    /// choose rails; they would cut evenly.
    fn cut(&self, whole: &Whole<'_>, stripes: &mut [Stripe]) {
        striping::even(whole.bytes, whole.rails, stripes);
    }
}

/// The scheduler of a name.
pub fn of(policy: Policy) -> &'static dyn Scheduler {
    match policy {
        Policy::Binding => &multirail::Binding,
        Policy::RoundRobin => &multirail::RoundRobin,
        Policy::WeightedRoundRobin => &multirail::WeightedRoundRobin,
        Policy::WindowRoundRobin => &multirail::WindowRoundRobin,
        Policy::Even => &multirail::Even,
        Policy::Weighted => &multirail::Weighted,
        Policy::Adaptive => &multirail::Adaptive,
        Policy::Balanced => &balanced::Balanced,
        Policy::Greedy => &strategy::Greedy,
        Policy::Aggregate => &strategy::Aggregate,
        Policy::Split => &strategy::Split,
        Policy::NewMadeleine => &strategy::NewMadeleine,
    }
}
