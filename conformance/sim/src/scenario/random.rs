//! Faults that a seed draws.

use serde::{Deserialize, Serialize};

use super::{Scenario, Span};
use crate::rng::Rng;
use crate::world::fault::{Fault, FaultAt, KINDS, Kind, Target, Way};
use crate::world::place::Place;

/// So many faults per second of virtual time, of these kinds, at places that the seed draws, until the safety phase ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomFaults {
    /// On the average.
    pub per_second: u32,
    /// Which; a kind that the world has no place for is left out. Empty: every kind that devices bear and menus
    /// have ([`Kind::is_in_menus`]).
    #[serde(default)]
    pub kinds: Vec<Kind>,
    /// How long a fault lasts at most.
    #[serde(default = "lasts_default")]
    pub lasts_max: Span,
    /// They begin here.
    #[serde(default)]
    pub from: Span,
    /// No more begin here; absent: when the safety phase ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Span>,
}

fn lasts_default() -> Span {
    Span::from_millis(2)
}

/// More faults than this are of no use to anybody.
const FAULTS_MAX: usize = 100_000;

impl RandomFaults {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.per_second == 0 || self.per_second > 1_000_000 {
            return Err(format!("random.per_second = {}: 1 to 1000000 are possible", self.per_second));
        }
        if self.lasts_max.0 == 0 {
            return Err("random.lasts_max = \"0ns\": a fault takes time".into());
        }
        Ok(())
    }

    /// All faults of a stream of numbers.
    pub(super) fn draw(&self, scenario: &Scenario, rng: &mut Rng) -> Vec<FaultAt> {
        let bearable = || KINDS.into_iter().filter(|kind| kind.is_in_menus() && !kind.needs_recovery());
        let kinds: Vec<Kind> = if self.kinds.is_empty() { bearable().collect() } else { self.kinds.clone() };
        let end = self.until.unwrap_or(scenario.limits.safety).min(scenario.limits.safety);
        let mean_ns = 1_000_000_000 / u64::from(self.per_second).max(1);
        let mut faults = Vec::new();
        let mut at = self.from.0;
        while faults.len() < FAULTS_MAX {
            // Uniform gaps around the mean: the rate is kept, and nothing needs a logarithm.
            at = at.saturating_add(rng.within(1, 2 * mean_ns));
            if at >= end.0 {
                break;
            }
            let Some(kind) = rng.pick(&kinds).copied() else { break };
            let Some(place) = place(scenario, kind.target(), rng) else { continue };
            let mut fault = Fault::new(kind, place);
            if kind == Kind::LinkDown {
                fault.way = *rng.pick(&[Way::Both, Way::Tx, Way::Rx]).unwrap_or(&Way::Both);
            }
            if let Some(usual) = kind.amount() {
                fault.amount = rng.within(kind.amount_min().max(1), 2 * usual);
            }
            let until = kind.lasts().then(|| Span(at.saturating_add(rng.within(1, self.lasts_max.0))));
            faults.push(FaultAt { at: Span(at), fault, until });
        }
        faults
    }
}

/// Any place of a sort.
fn place(scenario: &Scenario, target: Target, rng: &mut Rng) -> Option<Place> {
    let hcas = scenario.hcas();
    let rank = rng.below(scenario.size().into()) as u32;
    let host = scenario.host_of(rank);
    let hca = rng.below(hcas.len() as u64) as u32;
    let port = rng.below(hcas.get(hca as usize)?.ports.into()) as u32;
    let subnet = rng.below(scenario.subnet_count().into()) as u32;
    let planes = scenario.subnets.get(subnet as usize).map_or(1, |subnet| subnet.planes.len());
    let plane = rng.below(planes as u64) as u32;
    Some(match target {
        Target::Rank => Place::Rank(rank),
        Target::RankOrAll if rng.one_in(4) => Place::World,
        Target::RankOrAll => Place::Rank(rank),
        Target::RankHca => Place::RankHca { rank, hca },
        Target::Hca => Place::Hca { host, hca },
        Target::Port => Place::Port { host, hca, port },
        Target::Plane => Place::Plane { subnet, plane },
        Target::Subnet => Place::Subnet(subnet),
    })
}
