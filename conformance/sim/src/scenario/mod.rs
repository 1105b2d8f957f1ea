//! What a simulation is made of, as data.
//!
//! A [`Scenario`] is a TOML file or made in code; every key has a default, so that a simulation of two hosts
//! with an HCA each takes five lines:
//!
//! ```
//! let scenario = rerail_sim::scenario::Scenario::parse("doc.toml", r#"
//! hosts = 2
//! device = "connectx"
//! [workload]
//! name = "ping-pong"
//! parameters = { rounds = 10 }
//! "#)?;
//! assert_eq!(scenario.hcas().len(), 1);
//! # Ok::<(), rerail_sim::scenario::ScenarioError>(())
//! ```
//!
//! Unknown keys and values out of range are errors that name file, key and value. [`Scenario::schedule`]
//! makes the faults of a seed explicit, so that a shrinker can leave some out; [`Scenario::to_toml`] writes
//! what [`Scenario::parse`] reads.

mod check;
mod cost;
mod device;
mod liar;
mod load;
mod placement;
mod polling;
mod random;
mod set;
mod settings;
mod span;
#[cfg(test)]
mod tests;

use std::fmt;

use rerail_core::config::Config;
use rerail_core::ids::PeerId;
use rerail_core::rail::sched::multiplex::Binding;
use rerail_linux::rail::shm::RingReads;
use serde::{Deserialize, Serialize};

use crate::cluster::fault::FaultAt;
use crate::net::HcaModel;
use crate::rails::{MapModel, ReadModel};
use crate::rng::Rng;

pub use cost::{CostSpec, NumaSpec};
pub use device::{DeviceLimits, PRESETS, Preset, preset};
pub use liar::{LiarSpec, QuirkSpec};
pub use load::{LoadSpec, LoadStep};
pub(crate) use placement::Placement;
pub use polling::{CopySpec, MapSpec, ProgressSpec};
pub use random::RandomFaults;
pub use settings::CoreSettings;
pub use span::{Span, SpanError};

/// A simulation as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// One line for people.
    pub about: String,
    /// Hosts.
    pub hosts: u32,
    /// Processes on each.
    pub ranks_per_host: u32,
    /// Rank r runs on host r mod hosts, not on r / ranks_per_host.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub scattered: bool,
    /// The device of every host by preset, where `hcas` is empty.
    pub device: String,
    /// Rails of every rank, in order, behind the loopback. Empty: every port of every HCA, and shared memory
    /// before them where there are several ranks on a host.
    pub rails: Vec<RailSpec>,
    /// Draw tables so small that everything runs full.
    pub squeeze: bool,
    /// Each rank draws settings and numbers of its own, at the edges of what is legal.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uneven: bool,
    /// What a processor takes.
    pub cpu: CpuSpec,
    /// I/O buses of each host. Empty: one for each HCA, as in its preset.
    pub buses: Vec<BusSpec>,
    /// HCAs of each host.
    pub hcas: Vec<HcaSpec>,
    /// Subnets, which join ports of all hosts. Empty: one for each port number of a host.
    pub subnets: Vec<SubnetSpec>,
    /// Shared memory between ranks of a host.
    pub shm: ShmSpec,
    /// Rails over HCAs.
    pub verbs: VerbsSpec,
    /// What rails do though well-behaved ones don't.
    pub quirks: QuirkSpec,
    /// The administrative network.
    pub admin: AdminSpec,
    /// The core's settings.
    pub config: CoreSettings,
    /// Faults at their moments.
    pub faults: Vec<FaultAt>,
    /// Faults that the seed draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<RandomFaults>,
    /// A rank that lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liar: Option<LiarSpec>,
    /// What others do to links and buses meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LoadSpec>,
    /// What the ranks do.
    pub workload: WorkloadSpec,
    /// How long things may take.
    pub limits: Limits,
}

/// A rail of every rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RailSpec {
    /// Rings in shared memory, to ranks of the same host.
    Shm {},
    /// Verbs over a port of a software HCA.
    Hca {
        /// The HCA, counted within the host.
        #[serde(default)]
        hca: u32,
        /// Its port, counted from 0.
        #[serde(default)]
        port: u32,
        /// Which of the port's paths, below two to the power of the HCA's `lmc`: they choose the subnet's
        /// planes.
        #[serde(default, skip_serializing_if = "is_zero")]
        path: u8,
    },
    /// A stream per peer, like TCP, over a port.
    Stream {
        /// The HCA (or network card), counted within the host.
        #[serde(default)]
        hca: u32,
        /// Its port, counted from 0.
        #[serde(default)]
        port: u32,
    },
}

/// For numbers that stand for the usual case.
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// The same of sizes.
fn is_none(bytes: &u32) -> bool {
    *bytes == 0
}

/// The same of costs.
fn is_free(cost: &u64) -> bool {
    *cost == 0
}

/// What the processor of a rank takes for things, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CpuSpec {
    /// From something being visible until a polling process sees it.
    pub poll_ns: u64,
    /// A round, whatever happens in it.
    pub round_ns: u64,
    /// Each thing that happens in a round (packet, completion, action).
    pub thing_ns: u64,
    /// Each event that the application takes, with what it does about it.
    pub event_ns: u64,
    /// Bytes per second of copies in memory; 0: they cost nothing.
    pub copy_bytes_per_second: u64,
    /// Of every thousand wake-ups so many are late, by seed (a process that computes, or was scheduled out).
    pub slow_polls_per_thousand: u32,
    /// How late such a wake-up is at most.
    pub slow_poll_max: Span,
    /// How rails take turns in being polled.
    #[serde(skip_serializing_if = "ProgressSpec::is_timed")]
    pub progress: ProgressSpec,
}

/// An I/O bus: see [`BusModel`](crate::net::BusModel). What is absent is as in the preset of the bus's first
/// HCA.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BusSpec {
    /// Bytes per second; 0: without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Added to every frame fetched from memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_ns_per_frame: Option<u64>,
    /// Added to every frame written to memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_ns_per_frame: Option<u64>,
    /// Reads and writes share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_duplex: Option<bool>,
}

/// An HCA of each host: a preset, and what is different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HcaSpec {
    /// The preset.
    pub device: String,
    /// The bus that it sits on, where the scenario lists buses.
    pub bus: u32,
    /// How many ports.
    pub ports: u32,
    /// The subnet of each port; empty: port n of all HCAs of a host, counted through, is on subnet n.
    pub subnets: Vec<u32>,
    /// A port has 2^lmc LIDs.
    pub lmc: u8,
    /// Bytes per second of its engine, both directions together; 0: without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Engine time per message sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_message_tx: Option<u64>,
    /// Engine time per message received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_message_rx: Option<u64>,
    /// From doorbell to wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_tx_ns: Option<u64>,
    /// From wire to completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_rx_ns: Option<u64>,
    /// Data bytes per second of a link, each way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_bytes_per_second: Option<u64>,
    /// From one end of a link to the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_latency_ns: Option<u64>,
    /// Bytes that a link adds to each frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_header_bytes: Option<u32>,
    /// Limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<DeviceLimits>,
    /// What it costs processors.
    #[serde(skip_serializing_if = "CostSpec::is_none")]
    pub cost: CostSpec,
    /// How far it is from the processes.
    #[serde(skip_serializing_if = "NumaSpec::is_near")]
    pub numa: NumaSpec,
}

impl HcaSpec {
    /// What it takes for a message beside its bytes, in nanoseconds, at both ends together: as its
    /// rails announce it.
    pub fn latency_ns(&self) -> u32 {
        let preset = preset(&self.device).map(|preset| &preset.hca);
        let known = |own: Option<u64>, of: fn(&HcaModel) -> u64| own.or(preset.map(of)).unwrap_or(0);
        let ends = [
            known(self.latency_tx_ns, |hca| hca.latency_tx_ns),
            known(self.latency_rx_ns, |hca| hca.latency_rx_ns),
            known(self.ns_per_message_tx, |hca| hca.ns_per_message_tx),
            known(self.ns_per_message_rx, |hca| hca.ns_per_message_rx),
            self.numa.latency_ns.saturating_mul(2),
        ];
        u32::try_from(ends.into_iter().fold(0, u64::saturating_add)).unwrap_or(u32::MAX)
    }
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubnetSpec {
    /// From any port to any other.
    pub latency_ns: u64,
    /// Ways through it; the low `lmc` bits of a LID choose one.
    pub planes: Vec<PlaneSpec>,
    /// Frames take up to so much longer, each differently.
    pub jitter_ns: u64,
}

/// A way through a subnet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlaneSpec {
    /// Added to the subnet's latency.
    pub latency_ns: u64,
    /// Bytes per second of the trunk that all its traffic shares; 0: without limit.
    pub bytes_per_second: u64,
}

/// Rings between ranks of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShmSpec {
    /// Cells of a ring, one ring each way of a pair: a power of two.
    pub cells: u32,
    /// Slots of a ring for what is longer than a cell.
    pub slots: u32,
    /// Payload bytes of a slot; a multiple of 16.
    pub slot_bytes: u32,
    /// Posts that may be outstanding per peer.
    pub posts_max: u16,
    /// From a post until the other side can see it.
    pub latency_ns: u64,
    /// Nanoseconds of every poll of the rings, whether or not anything has come.
    #[serde(skip_serializing_if = "is_free")]
    pub poll_ns: u64,
    /// What copies into rings and out of them take.
    #[serde(skip_serializing_if = "CopySpec::is_free")]
    pub copies: CopySpec,
    /// Which packets of a large message one poll takes out of a peer's ring.
    #[serde(with = "polling::ring_reads", skip_serializing_if = "polling::ring_reads::is_burst")]
    pub ring_reads: RingReads,
    /// Whether ranks read each other's memory.
    pub read: bool,
    /// Bytes that are read in one poll.
    pub read_portion: u32,
    /// How fast they are read; 0: at once.
    pub read_bytes_per_second: u64,
    /// One pair in so many is denied access to each other's memory; 0: none.
    pub denied_one_in: u64,
    /// One read in so many finds that its key opens nothing; 0: none.
    pub refused_one_in: u64,
    /// Bytes of a unit of reads that both ranks copy, where a piece has four or more (L-21); 0: none is.
    #[serde(skip_serializing_if = "is_none")]
    pub joint_unit: u32,
    /// Which memory ranks map of each other.
    #[serde(skip_serializing_if = "MapSpec::is_none")]
    pub maps: MapSpec,
    /// Ranks of a host use other rails beside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub others_beside: bool,
}

impl ShmSpec {
    /// How ranks map each other's memory; `None`: they don't.
    pub fn maps(&self) -> Option<MapModel> {
        (self.read && !self.maps.is_none()).then(|| self.maps.model())
    }

    /// How ranks read; `None`: they don't.
    pub fn reads(&self) -> Option<ReadModel> {
        self.read.then_some(ReadModel {
            portion: self.read_portion.max(1),
            bytes_per_second: self.read_bytes_per_second,
            denied_one_in: self.denied_one_in,
            refused_one_in: self.refused_one_in,
            joint_unit: self.joint_unit,
        })
    }
}

/// Rails over HCAs: `rerail_linux::rail::verbs::VerbsOptions` of the same names, small, for there are many
/// ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerbsSpec {
    /// Largest eager payload in bytes.
    pub eager_bytes_max: u32,
    /// Largest payload in bytes of one packet, one write and one read.
    pub segment_bytes: u32,
    /// Posts that may be outstanding per peer.
    pub posts_max: u16,
    /// Requests that may be with the device at once, over all peers.
    pub sends: u16,
    /// Buffers of the shared receive queue, over all peers; by XRC their memory, which several queues share.
    pub receives: u16,
    /// By XRC: sizes of receive buffers beside those for the longest packet, in bytes, ascending; absent: as
    /// rails have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srq_sizes: Option<Vec<u32>>,
    /// Receives for datagrams of connection set-up.
    pub datagrams: u16,
    /// Messages up to so many bytes go inline.
    pub inline_bytes: u16,
    /// Peers' memory can be written.
    pub write: bool,
    /// Peers' memory can be read.
    pub read: bool,
    /// Registrations of payload memory at once, those kept for later included.
    pub registrations_max: u32,
    /// Bytes in all of these.
    pub registrations_bytes: u64,
    /// Keep what peers can write to, too.
    pub registrations_writable: bool,
    /// Connect by XRC: ranks of one host share what leads there.
    pub xrc: bool,
    /// A connection that does not stand after this time is given up.
    pub handshake_timeout: Span,
    /// Time to wait for an acknowledgment: 4.096 us times 2 to this power.
    pub ack_timeout: u8,
    /// How often a packet is sent again: 0 to 7.
    pub retry_count: u8,
}

/// The administrative network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminSpec {
    /// From sender to receiver.
    pub latency: Span,
}

/// What the ranks do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub parameters: toml::Table,
}

/// How long things may take, in virtual time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The safety phase, in which faults happen, ends by then (or when every app is done and no fault is
    /// left).
    pub safety: Span,
    /// So long after everything healed, everything submitted must have completed.
    pub convergence: Span,
    /// Quiet at the end, in which the engines come to rest.
    pub rest: Span,
    /// How often checkers look at the simulation meanwhile.
    pub inspection_period: Span,
    /// More events than this are taken for a simulation that does not end; 0: no limit.
    pub events_max: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            about: String::new(),
            hosts: 2,
            ranks_per_host: 1,
            scattered: false,
            device: "ideal".into(),
            rails: Vec::new(),
            squeeze: false,
            uneven: false,
            cpu: CpuSpec::default(),
            buses: Vec::new(),
            hcas: Vec::new(),
            subnets: Vec::new(),
            shm: ShmSpec::default(),
            verbs: VerbsSpec::default(),
            quirks: QuirkSpec::default(),
            admin: AdminSpec::default(),
            config: CoreSettings::default(),
            faults: Vec::new(),
            random: None,
            liar: None,
            loads: Vec::new(),
            workload: WorkloadSpec::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for CpuSpec {
    fn default() -> Self {
        CpuSpec {
            poll_ns: 50,
            round_ns: 20,
            thing_ns: 30,
            event_ns: 30,
            copy_bytes_per_second: 0,
            slow_polls_per_thousand: 0,
            slow_poll_max: Span::from_micros(200),
            progress: ProgressSpec::Timed,
        }
    }
}

impl Default for HcaSpec {
    fn default() -> Self {
        HcaSpec {
            device: "ideal".into(),
            bus: 0,
            ports: 1,
            subnets: Vec::new(),
            lmc: 0,
            bytes_per_second: None,
            ns_per_message_tx: None,
            ns_per_message_rx: None,
            latency_tx_ns: None,
            latency_rx_ns: None,
            link_bytes_per_second: None,
            link_latency_ns: None,
            link_header_bytes: None,
            limits: None,
            cost: CostSpec::default(),
            numa: NumaSpec::default(),
        }
    }
}

impl Default for SubnetSpec {
    fn default() -> Self {
        SubnetSpec { latency_ns: 200, planes: vec![PlaneSpec::default()], jitter_ns: 0 }
    }
}

impl Default for ShmSpec {
    fn default() -> Self {
        ShmSpec {
            cells: 16,
            slots: 16,
            slot_bytes: 4096,
            posts_max: 16,
            latency_ns: 100,
            poll_ns: 0,
            copies: CopySpec::default(),
            ring_reads: RingReads::Burst,
            read: false,
            read_portion: 64 * 1024,
            read_bytes_per_second: 8_000_000_000,
            denied_one_in: 0,
            refused_one_in: 0,
            joint_unit: 0,
            maps: MapSpec::default(),
            others_beside: false,
        }
    }
}

impl Default for VerbsSpec {
    fn default() -> Self {
        VerbsSpec {
            eager_bytes_max: 8192,
            segment_bytes: 16 * 1024,
            posts_max: 16,
            sends: 32,
            receives: 64,
            srq_sizes: None,
            datagrams: 32,
            inline_bytes: 256,
            write: true,
            read: true,
            registrations_max: 1024,
            registrations_bytes: 4 << 30,
            registrations_writable: false,
            xrc: false,
            handshake_timeout: Span::from_millis(10_000),
            ack_timeout: 10,
            retry_count: 7,
        }
    }
}

impl Default for AdminSpec {
    fn default() -> Self {
        AdminSpec { latency: Span::from_micros(100) }
    }
}

impl Default for WorkloadSpec {
    fn default() -> Self {
        WorkloadSpec { name: "ping-pong".into(), parameters: toml::Table::new() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            safety: Span::from_millis(1_000),
            convergence: Span::from_millis(30_000),
            rest: Span::from_millis(100),
            inspection_period: Span::from_millis(1),
            events_max: 0,
        }
    }
}

/// Why text is no scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file, as it was named.
    pub file: String,
    /// Key, value, and what is wrong.
    pub why: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.why.trim_end())
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads a scenario; `file` is for messages.
    ///
    /// # Errors
    /// [`ScenarioError`], which names file, key and value.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let failed = |why: String| ScenarioError { file: file.to_owned(), why };
        let scenario: Scenario = toml::from_str(text).map_err(|error| failed(error.to_string()))?;
        scenario.check().map_err(failed)?;
        Ok(scenario)
    }

    /// The scenario as a file.
    ///
    /// # Errors
    /// Where a value can't be written, which is a number beyond 2^63.
    pub fn to_toml(&self) -> Result<String, ScenarioError> {
        toml::to_string(self).map_err(|error| ScenarioError { file: "scenario".into(), why: error.to_string() })
    }

    /// Ranks of the job.
    pub fn size(&self) -> u32 {
        self.hosts.saturating_mul(self.ranks_per_host)
    }

    /// HCAs of each host, those that stand for `device` among them.
    pub fn hcas(&self) -> Vec<HcaSpec> {
        match self.hcas.is_empty() {
            true => vec![HcaSpec { device: self.device.clone(), ..HcaSpec::default() }],
            false => self.hcas.clone(),
        }
    }

    /// Rails of each rank behind the loopback, those that are meant where none are listed among them.
    pub fn rails(&self) -> Vec<RailSpec> {
        if !self.rails.is_empty() {
            return self.rails.clone();
        }
        let shm = (self.ranks_per_host > 1).then_some(RailSpec::Shm {});
        let ports = self.hcas().into_iter().zip(0..).flat_map(|(spec, hca)| {
            let stream = spec.device.starts_with("ethernet");
            (0..spec.ports).map(move |port| match stream {
                true => RailSpec::Stream { hca, port },
                false => RailSpec::Hca { hca, port, path: 0 },
            })
        });
        shm.into_iter().chain(ports).collect()
    }

    /// The faults of a seed: those at fixed moments and those that are drawn, by moment.
    pub fn schedule(&self, seed: u64) -> Vec<FaultAt> {
        let mut faults = self.faults.clone();
        if let Some(random) = &self.random {
            faults.extend(random.draw(self, &mut Rng::new(seed, "faults")));
        }
        // The shrinker makes all of these explicit; this one it can't leave out.
        let end = self.liar.as_ref().map(LiarSpec::end);
        faults.extend(end.filter(|end| !faults.contains(end)));
        faults.sort_by_key(|fault| fault.at);
        faults
    }

    /// The core's configuration of a rank: small tables, for there are many ranks, then what the scenario
    /// sets.
    pub fn core_config(&self, rank: u32, seed: u64) -> Config {
        let size = self.size();
        let mut config = Config {
            rails_max: self.rails().len() as u8 + 1,
            channels_max: size.min(64),
            operations_max: 256,
            packets_max: 256,
            window: 64,
            ack_packets: 16,
            unexpected_per_peer: 32,
            blocks_per_peer: 32,
            retained_max: 64,
            requests_per_peer: 4,
            bulk_max: 16,
            windows_max: 16,
            counters_max: 8,
            match_buckets: 64,
            ..Config::new(PeerId(rank), size)
        };
        if self.squeeze {
            settings::squeeze(&mut config, &mut Rng::new(seed, &format!("squeeze of rank {rank}")));
        }
        if self.uneven {
            settings::uneven(&mut config, &mut Rng::new(seed, &format!("knobs of rank {rank}")));
            config.express = !Rng::new(seed, &format!("short way of rank {rank}")).one_in(6);
            if Rng::new(seed, "numbers").one_in(4) {
                // As between processes without a job (S-11).
                config.number = Some(Rng::new(seed, &format!("number of rank {rank}")).draw() as u32 & !(1 << 31));
            }
        }
        self.config.apply(&mut config);
        if self.config.bind_by_local_rank == Some(true) {
            // Rail 0 is the loopback.
            let is_network = |rail: &RailSpec| !matches!(rail, RailSpec::Shm {});
            let mask = |mask: u64, (rail, index): (&RailSpec, u32)| mask | u64::from(is_network(rail)) << index;
            let network = self.rails().iter().zip(1..).fold(0, mask);
            config.bind = Binding::by_local_rank(self.placement().local_rank_of(rank), network).rail().0;
        }
        config
    }
}
