//! Quirks of rails.

use serde::{Deserialize, Serialize};

use super::Span;

/// What all rails of a simulation (but the loopback) do, though well-behaved ones don't: see
/// [`Quirky`](crate::rails::Quirky). Endpoints must bear it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuirkSpec {
    /// Every report of a post that is over comes once more, so much later at most, by seed; 0: it doesn't.
    pub repeats: Span,
    /// Memory stays registered under its key until it is unmapped or a subchannel of the rail ends.
    pub pinned: bool,
    /// Neither bandwidth nor latency is announced: an endpoint that uses them must measure.
    pub unreported_rates: bool,
}

impl QuirkSpec {
    /// Whether there are any.
    pub fn are_any(&self) -> bool {
        self.repeats.0 > 0 || self.pinned || self.unreported_rates
    }
}
