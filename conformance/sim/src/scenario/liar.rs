//! Ranks and rails that do what well-behaved ones don't.

use serde::{Deserialize, Serialize};

use super::{Scenario, Span};
use crate::cluster::fault::{Fault, FaultAt, Kind};
use crate::cluster::place::Place;
use crate::rails::Lie;

/// A member of the job whose packets are not always true: see [`Liar`](crate::rails::Liar). What it sends is
/// well-formed, and the ids in it are those that it has learnt. Its process is killed in the end, so what its
/// peers still have of it must come back then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiarSpec {
    /// Which.
    pub rank: u32,
    /// From when on it lies.
    pub from: Span,
    /// When its process is killed; not later than `limits.safety`.
    pub until: Span,
    /// So many of a thousand packets of its own are altered.
    pub altered_per_thousand: u32,
    /// So many of a thousand packets that it sends or receives are followed by a forged one.
    pub forged_per_thousand: u32,
    /// What it lies about.
    pub lies: Vec<Lie>,
}

impl LiarSpec {
    /// The end of its process.
    pub(super) fn end(&self) -> FaultAt {
        FaultAt { at: self.until, fault: Fault::new(Kind::Kill, Place::Rank(self.rank)), until: None }
    }

    /// With one half of its sorts of lies, or the other; `None`: there is but one.
    pub(crate) fn fewer_lies(&self, half: usize) -> Option<LiarSpec> {
        let lies = self.lies.chunks(self.lies.len().div_ceil(2).max(1)).nth(half)?.to_vec();
        (lies.len() < self.lies.len()).then(|| LiarSpec { lies, ..self.clone() })
    }

    pub(super) fn check(&self, scenario: &Scenario) -> Result<(), String> {
        let (size, safety) = (scenario.size(), scenario.limits.safety);
        if self.rank >= size {
            return Err(format!("liar.rank = {}: there are {size} ranks", self.rank));
        }
        if self.until > safety || self.from > self.until {
            let (from, until) = (self.from, self.until);
            return Err(format!(
                "liar.from = \"{from}\", liar.until = \"{until}\": they end with limits.safety = \"{safety}\""
            ));
        }
        for (key, value) in
            [("altered_per_thousand", self.altered_per_thousand), ("forged_per_thousand", self.forged_per_thousand)]
        {
            if value > 1000 {
                return Err(format!("liar.{key} = {value} is out of range: at most 1000"));
            }
        }
        if scenario.workload.name != "random" {
            let name = &scenario.workload.name;
            return Err(format!("liar: only the checkers of the workload \"random\" support liars, not \"{name}\""));
        }
        Ok(())
    }
}

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
