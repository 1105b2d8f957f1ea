//! resilient-2010: what reliability costs while nothing fails (figures 4 and 5, table I), and how long
//! recovery takes when something does (VI.D).
//!
//! With reliability on (`config.recovery`, as an endpoint begins) copies of eager messages are kept until
//! acknowledged and a put rendezvous waits for the receiver's word (IV.A); off, a rail's completion is taken
//! for delivery and the first connection that fails ends the peer. The paper's text gives no points of its
//! curves: sizes and windows are ours.
//!
//! | file | holds |
//! |---|---|
//! | `micro` | figure 4: latency and bandwidth |
//! | `nas` | figure 5 and table I: the communication pairs of the NAS kernels, in what time and with how much
//! memory |
//! | `history` | one recovery, read from a trace |
//! | `recovery` | VI.D: times of recoveries; a picture of one |

mod history;
mod micro;
mod nas;
mod recovery;

use super::{Claim, Effort, Figure, FigureError, Lab, Relation};
use crate::scenario::{RailSpec, Scenario};

const FILE: &str = "resilient-2010.toml";
const TEXT: &str = include_str!("../../../scenarios/resilient-2010.toml");

/// Figures 4 and 5, table I, recovery times.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figures(lab: &mut Lab<'_>, effort: Effort) -> Result<Vec<Figure>, FigureError> {
    let mut figures = micro::figures(lab, effort)?;
    figures.extend(nas::figures(lab, effort)?);
    figures.extend(recovery::figures(lab, effort)?);
    Ok(figures)
}

/// The testbed without faults: so many nodes of so many processes, over so many ports of each node's HCA.
fn testbed(hosts: u32, ranks_per_host: u32, ports: u32) -> Result<Scenario, FigureError> {
    let mut scenario = Scenario::parse(FILE, TEXT)?;
    (scenario.hosts, scenario.ranks_per_host) = (hosts, ranks_per_host);
    scenario.faults.clear();
    scenario.rails = (0..ports).map(|port| RailSpec::Hca { hca: 0, port, path: 0 }).collect();
    if ranks_per_host > 1 {
        scenario.rails.insert(0, RailSpec::Shm {});
    }
    Ok(scenario)
}

/// How large messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rendezvous {
    /// Written by the sender.
    Put,
    /// Read by the receiver.
    Get,
}

impl Rendezvous {
    /// The paper's names with reliability off and on: `existing` and `resilient` (VI.A).
    const fn names(self) -> [&'static str; 2] {
        match self {
            Rendezvous::Put => ["RPut", "RPut-Rel"],
            Rendezvous::Get => ["RGet", "RGet-Rel"],
        }
    }
}

/// The paper's four configurations, in its order: RPut, RPut-Rel, RGet, RGet-Rel.
const CONFIGURATIONS: [(Rendezvous, bool); 4] =
    [(Rendezvous::Put, false), (Rendezvous::Put, true), (Rendezvous::Get, false), (Rendezvous::Get, true)];

/// Sets of keys that an endpoint has: enough for all messages that it announces and all that are announced to
/// it, of both sides' windows and of as many neighbours as a process exchanges with at a time. A message that
/// finds no set goes by another variant: with the 16 that simulated endpoints have by default, "RGet"
/// is a mixture of reads, writes and data packets that wait for each other, and how much of each there is
/// depends on which side comes a moment earlier.
const KEY_SETS: u32 = 256;

/// Sets one of them, and returns its name.
fn configure(scenario: &mut Scenario, (rendezvous, reliable): (Rendezvous, bool)) -> &'static str {
    scenario.verbs.read = rendezvous == Rendezvous::Get;
    scenario.config.recovery = Some(reliable);
    scenario.config.bulk_max = Some(KEY_SETS);
    rendezvous.names()[usize::from(reliable)]
}

fn at_most(name: impl Into<String>, expected: f64, measured: f64, unit: &'static str) -> Claim {
    Claim { name: name.into(), expected, relation: Relation::AtMost, tolerance: 0.0, measured, unit }
}

/// The greatest of some numbers; NaN where there is none, of which no claim holds.
fn greatest(numbers: impl Iterator<Item = f64>) -> f64 {
    let (count, most) = numbers.fold((0, f64::NEG_INFINITY), |(count, most), number| (count + 1, most.max(number)));
    if count == 0 { f64::NAN } else { most }
}
