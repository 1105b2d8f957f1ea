//! The strategies of NewMadeleine's engine (newmadeleine-2007, 2 and 3): each is called when a NIC is idle,
//! and gets what is pending by then.
//!
//! From the NICs of one channel and the pending messages, a strategy chooses the next packet's NIC, how many
//! small messages are aggregated in it, and how a large message is cut.

mod aggregate;
mod greedy;
mod newmadeleine;
mod split;

pub(super) use aggregate::Aggregate;
pub(super) use greedy::Greedy;
pub(super) use newmadeleine::NewMadeleine;
pub(super) use split::Split;

use super::{Aggregates, Properties};

/// What all strategies have in common.
const PROPERTIES: Properties = Properties {
    is_bound: false,
    waits_for_idle: true,
    estimates: false,
    follows_times: false,
    aggregates: Aggregates::Always,
};

#[cfg(test)]
mod tests;
