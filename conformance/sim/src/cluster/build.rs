//! A scenario becomes hosts, wires, rails and engines.

use std::fmt;

use rerail_core::ids::PeerId;
use rerail_core::time::Time;
use rerail_linux::driver::{AddressRecord, Opening, StartError, VirtualTime};
use rerail_linux::rail::Rail;
use rerail_linux::rail::loopback::Loopback;

use super::fault::Kind;
use super::wakes::Wakes;
use super::wires::Wires;
use super::{AdminNet, Cluster, Engine, Phase, RankState, Report, Workload};
use crate::cover::Witness;
use crate::rails::{Gate, Liar, Quirky};
use crate::rng::Rng;
use crate::scenario::{RailSpec, Scenario};
use crate::trace::{Tap, Trace};

/// Why no simulation can be made of a scenario.
#[derive(Debug)]
pub enum BuildError {
    /// A value is not possible; the sentence names it.
    Scenario(String),
    /// A rank could not start.
    Start {
        /// The rank.
        rank: u32,
        /// Why.
        error: StartError,
    },
    /// A rank's rail could not be opened.
    Rail {
        /// The rank.
        rank: u32,
        /// The rail's place in `rails`.
        rail: usize,
        /// Why.
        why: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Scenario(why) => f.write_str(why),
            BuildError::Start { rank, error } => write!(f, "rank {rank}: {error}"),
            BuildError::Rail { rank, rail, why } => write!(f, "rank {rank}, rails[{rail}]: {why}"),
        }
    }
}

impl std::error::Error for BuildError {}

impl Cluster {
    /// The simulation of a scenario and a seed, with the workload's apps on its ranks.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(
        scenario: &Scenario,
        seed: u64,
        workload: &mut dyn Workload,
        trace: Trace,
    ) -> Result<Cluster, BuildError> {
        scenario.check().map_err(BuildError::Scenario)?;
        let size = scenario.size();
        let faults = scenario.schedule(seed);
        if let Some(at) = faults.iter().find(|at| !Cluster::knows(at.fault.kind)) {
            return Err(BuildError::Scenario(format!("the fault \"{}\" is not simulated", at.fault.kind)));
        }
        let gated = faults.iter().any(|at| at.fault.kind == Kind::Lag);
        let mut wires = Wires::build(scenario, seed, &trace).map_err(BuildError::Scenario)?;
        let liar = scenario.liar.as_ref().map(|spec| Liar::of(spec, seed));
        let specs = scenario.rails();
        let mut openings = Vec::with_capacity(size as usize);
        let mut report = Report { ranks: size, ..Report::default() };
        for index in 0..size {
            let config = scenario.core_config(index, seed);
            report.state_bytes = report.state_bytes.max(config.memory_bytes().unwrap_or(0) as u64);
            report.pool_bytes = report.pool_bytes.max(config.pool_bytes().unwrap_or(0));
            let mut gates = Vec::new();
            let mut rails: Vec<Box<dyn Rail>> = vec![Box::new(Loopback::new(PeerId(index)))];
            for (at, spec) in specs.iter().enumerate() {
                let kind = std::mem::discriminant(spec);
                let nth = specs[..at].iter().filter(|other| std::mem::discriminant(*other) == kind).count() as u8;
                let rail = wires.rail(scenario, index, nth, spec);
                let mut rail = rail.map_err(|why| BuildError::Rail { rank: index, rail: at, why })?;
                if scenario.quirks.are_any() {
                    rail = Quirky::around(rail, &scenario.quirks, seed, index);
                }
                if gated {
                    let gate;
                    (rail, gate) = Gate::before(rail);
                    gates.push(gate);
                }
                // What a liar makes up is no path that the transport took.
                if let Some(observer) = trace.observer().filter(|_| liar.is_none()) {
                    // Rail 0 is the loopback.
                    rail = Witness::around(rail, observer, index, at as u8 + 1);
                }
                let rail = Tap::around(rail, &trace, index);
                // Outside: the trace shows what went out.
                rails.push(match &liar {
                    Some(liar) => Liar::wrap(liar, rail, index, rails.len()),
                    None => rail,
                });
            }
            let host = format!("host{}", scenario.host_of(index));
            let mut opening = Opening::with_clock(config, host, rails, VirtualTime::default())
                .map_err(|error| BuildError::Start { rank: index, error })?;
            opening.set_others_beside_shm(scenario.shm.others_beside);
            scenario.config.class_policies().for_each(|(class, policy)| opening.set_policy(class, policy));
            openings.push((opening, gates));
        }
        let address_records: Vec<String> =
            openings.iter().map(|(opening, _)| opening.address_record().to_owned()).collect();
        let mut ranks = Vec::with_capacity(size as usize);
        for (peer, address_record) in (0..).zip(&address_records) {
            let failed = |rank, error| BuildError::Start { rank, error };
            let address_record = AddressRecord::parse(address_record)
                .map_err(|error| failed(peer, StartError::AddressRecord { peer: PeerId(peer), error }))?;
            for (index, (opening, _)) in (0..).zip(&mut openings) {
                opening.learn_parsed(PeerId(peer), &address_record).map_err(|error| failed(index, error))?;
            }
        }
        for (index, (opening, gates)) in (0..).zip(openings) {
            let mut engine = opening.join().map_err(|error| BuildError::Start { rank: index, error })?;
            engine.set_progress(scenario.cpu.progress.policy());
            ranks.push(RankState {
                engine,
                app: workload.app(index, size),
                rng: Rng::new(seed, &format!("rank {index}")),
                alive: true,
                done: false,
                paused_until: Time(0),
                busy_until: Time(0),
                idle_turns: 0,
                app_wake: None,
                is_reporting: false,
                copied: 0,
                gates,
                datagrams: Vec::new(),
            });
        }
        let first_addresses = ranks.iter().map(|rank| addresses_of(&rank.engine)).collect();
        let mut cluster = Cluster {
            undone: ranks.len(),
            wakes: Wakes::new(ranks.len()),
            ranks,
            wires,
            admin: AdminNet::new(scenario.admin.latency.0),
            queue: Default::default(),
            sequence: 0,
            now: Time(0),
            phase: Phase::Safety,
            cpu: scenario.cpu.clone(),
            poll_ns: [scenario.shm.poll_ns, poll_others_ns(scenario)],
            limits: scenario.limits.clone(),
            active: vec![false; faults.len()],
            begun: vec![false; faults.len()],
            faults,
            ways: specs,
            first_addresses,
            faults_left: 0,
            rng: Rng::new(seed, "world"),
            trace,
            events: 0,
            healed: None,
            woken: Vec::new(),
            killed: Vec::new(),
            report,
        };
        cluster.plan();
        Ok(cluster)
    }

    pub(super) fn finish_report(&mut self) {
        self.report.virtual_ns = self.now.0;
        self.report.events = self.events + self.wires.events();
        self.report.ring_bytes = self.wires.ring_bytes();
        self.report.joint = self.wires.joint_counts();
        self.report.mapped = self.wires.map_counts();
        for rank in &self.ranks {
            self.report.packets += rank.engine.stats().packets_sent;
            self.report.rail_bytes += rank.engine.rails().map(|rail| rail.counters.bytes_sent).sum::<u64>();
        }
    }
}

/// Where a rank is, on each of its rails but the loopback.
pub(super) fn addresses_of(engine: &Engine) -> Vec<String> {
    engine.rails().skip(1).map(|rail| rail.address.to_owned()).collect()
}

/// What a rank's polls of its rails but shared memory take beside the round itself.
fn poll_others_ns(scenario: &Scenario) -> u64 {
    let hcas = scenario.hcas();
    let poll_ns = |rail: RailSpec| match rail {
        RailSpec::Shm {} => 0,
        RailSpec::Hca { hca, .. } | RailSpec::Stream { hca, .. } => hcas[hca as usize].cost.poll_ns,
    };
    scenario.rails().into_iter().map(poll_ns).fold(0, u64::saturating_add)
}
