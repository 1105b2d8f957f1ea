//! Applications of xrc-2008's tables: 64 processes, each with the peers that it has there.
//!
//! Names are `nas-is`, `nas-cg`, `nas-mg`, `nas-lu`, `nas-ft`, `nas-sp`, `nas-bt`, `nas-ep`, `namd-apoa1`,
//! `namd-flatpase`, `namd-jac2000`, `namd-er-gre`. In every round each process exchanges a message with each
//! of its peers.
//!
//! | parameter | usual | what |
//! |---|---|---|
//! | `rounds` | 1 | rounds |
//! | `bytes` | typical of the application | bytes of a message |
//! | `ahead` | 8; 2 of large messages | exchanges that a process may have under way |

use super::exchange::{AHEAD_MAX, BYTES_MAX, EXCHANGE, ROUNDS_MAX};
use super::graph::{Application, SIZE};
use super::plain::WHOLE_MAX;
use super::steps::{Programme, Step, StepParameters, Steps};
use super::{Parameters, WorkloadError, need_operations};
use crate::scenario::Scenario;

/// The workload of an application.
pub(super) fn application(
    application: &Application,
    scenario: &Scenario,
    seed: u64,
    parameters: &mut Parameters,
) -> Result<Steps, WorkloadError> {
    if scenario.size() != SIZE {
        let why = format!(
            "workload.name = \"{}\" is known for {SIZE} ranks, and hosts x ranks_per_host are {}",
            application.name,
            scenario.size()
        );
        return Err(WorkloadError { why });
    }
    need_operations(scenario, seed, EXCHANGE)?;
    let bytes = parameters.number("bytes", application.bytes, 1, BYTES_MAX)?;
    let ahead = if bytes > WHOLE_MAX { 2 } else { 8 };
    let ahead = parameters.number("ahead", ahead, 1, AHEAD_MAX)?;
    let rounds = parameters.number("rounds", 1, 1, ROUNDS_MAX)?;
    let mut peers = application.peers();
    // Rank a xor rank b differs for all peers of a rank: ordered by it, all meet their peers in one order.
    (0..).zip(&mut peers).for_each(|(rank, peers)| peers.sort_unstable_by_key(|peer| peer ^ rank));
    Ok(Steps::new(Graph { peers, rounds }, StepParameters { bytes, ahead, close: false, every: None }))
}

/// Rounds over the edges of a graph.
struct Graph {
    peers: Vec<Vec<u32>>,
    rounds: u64,
}

impl Programme for Graph {
    fn steps(&self, rank: u32) -> u64 {
        self.rounds * self.peers[rank as usize].len() as u64
    }

    fn step(&self, rank: u32, index: u64) -> Step {
        let peers = &self.peers[rank as usize];
        let (round, at) = (index / peers.len() as u64, (index % peers.len() as u64) as usize);
        Step { to: Some(peers[at]), from: Some(peers[at]), serial: round as u32, after_all: at == 0 }
    }
}
