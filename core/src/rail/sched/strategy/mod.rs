//! The strategies of NewMadeleine's engine (newmadeleine-2007, 2 and 3): each is asked when a NIC is idle,
//! and sees what has piled up until then.
//!
//! A strategy is a unit without state: from the NICs of one channel and what waits, it says over which one
//! the next packet goes, how many small messages go in it, and how a large message is cut. It sends nothing.
//! A new one is a file here, a row in [`of`], and a name in [`config::Strategy`](crate::config::Strategy).

mod aggregate;
mod greedy;
mod newmadeleine;
mod split;

use super::Stripe;
use crate::config::Strategy;
use crate::ids::RailId;
use crate::rail::rate::Rate;
use crate::time::Nanos;

/// One NIC, as it is known to one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    /// Packets, writes and reads to this peer that are with it.
    pub posts: u16,
    /// What a packet takes beside its bytes, in nanoseconds: measured, or believed by its facts.
    pub latency_ns: u32,
    /// Its bandwidth, sampled or measured; [`Rate::NONE`]: not known.
    pub rate: Rate,
    /// Payloads up to so many bytes are moved by the processor.
    pub pio_bytes_max: u32,
}

/// The NICs of one channel at the moment. The masks have a bit per rail.
#[derive(Clone, Copy)]
pub struct Nics<'a> {
    /// Stand, and may carry the message.
    pub up: u64,
    /// Those of them that are idle: nothing that is cut waits for them, and they have fewer posts than the
    /// knob `nic_depth` says.
    pub idle: u64,
    /// The facts of one that is up.
    pub nic: &'a dyn Fn(RailId) -> Nic,
}

/// What packets and copies cost, so that they can be weighed against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// What one packet more costs both sides.
    pub packet: Nanos,
    /// How fast a processor copies; [`Rate::NONE`]: copies cost nothing.
    pub copy: Rate,
    /// How often a byte is copied that goes in a packet with others, and is not where it goes alone.
    pub copies: u32,
}

/// What a strategy decides.
pub trait Optimizer: Sync {
    /// The NIC for the next packet; `None`: wait until another is idle.
    fn pick(&self, nics: &Nics<'_>) -> Option<RailId>;

    /// How many of the small messages that wait go in one packet, from the first on; at least 1. `lens` are
    /// their bytes, as many as fit.
    fn together(&self, costs: &Costs, lens: &[u32]) -> usize {
        let _ = (costs, lens);
        1
    }

    /// Cuts a large message over idle NICs, of which there is at least one: fills `stripes[rail]`, which are
    /// empty before.
    fn cut(&self, bytes: u64, nics: &Nics<'_>, stripes: &mut [Stripe]);
}

/// The unit of a name.
pub fn of(strategy: Strategy) -> &'static dyn Optimizer {
    match strategy {
        Strategy::Greedy => &greedy::Greedy,
        Strategy::Aggregate => &aggregate::Aggregate,
        Strategy::Split => &split::Split,
        Strategy::NewMadeleine => &newmadeleine::NewMadeleine,
    }
}

#[cfg(test)]
mod tests;
