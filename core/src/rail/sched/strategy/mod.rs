//! The strategies of NewMadeleine's engine (newmadeleine-2007, 2 and 3): each is asked when a NIC is idle,
//! and sees what has piled up until then.
//!
//! From the NICs of one channel and what waits, a strategy says over which one the next packet goes, how many
//! small messages go in it, and how a large message is cut.

mod aggregate;
mod greedy;
mod newmadeleine;
mod split;

pub(super) use aggregate::Aggregate;
pub(super) use greedy::Greedy;
pub(super) use newmadeleine::NewMadeleine;
pub(super) use split::Split;

use super::{Gathers, Properties};

/// What all strategies have in common.
const PROPERTIES: Properties = Properties {
    is_bound: false,
    waits_for_idle: true,
    estimates: false,
    follows_times: false,
    gathers: Gathers::Always,
};

#[cfg(test)]
mod tests;
