//! Faults that a seed draws.

use serde::{Deserialize, Serialize};

use super::{RailSpec, Scenario, Span};
use crate::cluster::fault::{Fault, FaultAt, KINDS, Kind, Target, Way};
use crate::cluster::place::Place;
use crate::rng::Rng;

/// So many faults per second of virtual time, of these kinds, at places that the seed draws, until the safety
/// phase ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomFaults {
    /// On the average.
    pub per_second: u32,
    /// Which; a kind that the scenario has no place for is left out. Empty: every kind that devices bear and
    /// menus have ([`Kind::is_in_menus`]).
    #[serde(default)]
    pub kinds: Vec<Kind>,
    /// How long a fault lasts at most.
    #[serde(default = "lasts_default")]
    pub lasts_max: Span,
    /// Of every hundred faults so many are followed by another one before long, while what the first has
    /// broken is being mended: the same again, the same at the other end, or another one at the same place.
    /// At most 90.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub echoes_per_hundred: u32,
    /// They begin here.
    #[serde(default)]
    pub from: Span,
    /// No more begin here; absent: when the safety phase ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Span>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn lasts_default() -> Span {
    Span::from_millis(2)
}

/// More faults than this are of no use.
const FAULTS_MAX: usize = 100_000;
/// An echo comes within so many nanoseconds: a few round trips, a redial, the reload of a device.
const ECHO_NS: u64 = 300_000;

impl RandomFaults {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.per_second == 0 || self.per_second > 1_000_000 {
            return Err(format!("random.per_second = {}: 1 to 1000000 are possible", self.per_second));
        }
        if self.lasts_max.0 == 0 {
            return Err("random.lasts_max = \"0ns\": a fault takes time".into());
        }
        if self.echoes_per_hundred > 90 {
            let echoes = self.echoes_per_hundred;
            return Err(format!("random.echoes_per_hundred = {echoes}: 0 to 90 are possible"));
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
        let mut echo_of: Option<Fault> = None;
        while faults.len() < FAULTS_MAX {
            // Uniform gaps around the mean: the rate is kept, and nothing needs a logarithm.
            let gap_max = if echo_of.is_some() { ECHO_NS.min(2 * mean_ns) } else { 2 * mean_ns };
            at = at.saturating_add(rng.within(1, gap_max));
            if at >= end.0 {
                break;
            }
            let Some((kind, place)) = next(scenario, echo_of.take(), &kinds, rng) else { continue };
            if !leaves_a_way(scenario, kind, place) {
                continue;
            }
            let mut fault = Fault::new(kind, place);
            if kind == Kind::LinkDown {
                fault.way = *rng.pick(&[Way::Both, Way::Tx, Way::Rx]).unwrap_or(&Way::Both);
            }
            if let Some(usual) = kind.amount() {
                fault.amount = rng.within(kind.amount_min().max(1), 2 * usual);
            }
            let until = kind.lasts().then(|| Span(at.saturating_add(rng.within(1, self.lasts_max.0))));
            faults.push(FaultAt { at: Span(at), fault, until });
            if self.echoes_per_hundred > 0 && rng.below(100) < u64::from(self.echoes_per_hundred) {
                echo_of = Some(fault);
            }
        }
        faults
    }
}

/// What comes next, and where; `None`: nothing there.
fn next(scenario: &Scenario, echo_of: Option<Fault>, kinds: &[Kind], rng: &mut Rng) -> Option<(Kind, Place)> {
    if let Some(before) = echo_of {
        let same = before.kind;
        return match rng.below(3) {
            0 => Some((same, before.place)),
            1 => Some((same, elsewhere(scenario, before.place, rng))),
            _ => {
                let fit: Vec<Kind> = kinds.iter().copied().filter(|kind| kind.target() == same.target()).collect();
                rng.pick(&fit).map(|kind| (*kind, before.place))
            }
        };
    }
    let kind = rng.pick(kinds).copied()?;
    Some((kind, place(scenario, kind.target(), rng)?))
}

/// The like of a place at another host or rank.
fn elsewhere(scenario: &Scenario, place: Place, rng: &mut Rng) -> Place {
    let (hosts, ranks) = (scenario.hosts, scenario.size());
    let mut other = |of: u32, count: u32| match count {
        0 | 1 => of,
        _ => (of + 1 + rng.below(u64::from(count) - 1) as u32) % count,
    };
    match place {
        Place::Rank(rank) => Place::Rank(other(rank, ranks)),
        Place::RankHca { rank, hca } => Place::RankHca { rank: other(rank, ranks), hca },
        Place::Hca { host, hca } => Place::Hca { host: other(host, hosts), hca },
        Place::Port { host, hca, port } => Place::Port { host: other(host, hosts), hca, port },
        place => place,
    }
}

impl Scenario {
    /// Whether, by the listed faults, two ends can still find each other.
    pub fn leaves_ways(&self) -> bool {
        self.faults.iter().all(|at| leaves_a_way(self, at.fault.kind, at.fault.place))
    }

    /// Whether a stream leads anywhere: it stays where it is, and reports what moves.
    pub fn has_stream(&self) -> bool {
        self.rails().iter().any(|rail| matches!(rail, RailSpec::Stream { .. }))
    }
}

/// Whether two ends can still find each other. A device that was loaded anew and a port that was renumbered
/// are somewhere else than before, and only they themselves can report it: where both ends of all that leads
/// from one to the other move at once, and no other network stands, neither can reach the other to report it.
/// So, without streams, only the first host moves, and its device is only loaded anew if its ranks have
/// shared memory, or are one.
fn leaves_a_way(scenario: &Scenario, kind: Kind, place: Place) -> bool {
    let host = match place {
        _ if !kind.moves() => return true,
        Place::Hca { host, .. } | Place::Port { host, .. } => host,
        Place::RankHca { rank, .. } => scenario.host_of(rank),
        _ => return true,
    };
    if scenario.has_stream() {
        return true;
    }
    let is_shared = scenario.rails().iter().any(|rail| matches!(rail, RailSpec::Shm {}));
    let has_common_path = scenario.ranks_per_host == 1 || is_shared;
    host == 0 && (has_common_path || kind == Kind::Renumber)
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
        Target::RankOrAll if rng.one_in(4) => Place::Cluster,
        Target::RankOrAll => Place::Rank(rank),
        Target::RankHca => Place::RankHca { rank, hca },
        Target::Hca => Place::Hca { host, hca },
        Target::Port => Place::Port { host, hca, port },
        Target::Plane => Place::Plane { subnet, plane },
        Target::Subnet => Place::Subnet(subnet),
    })
}
