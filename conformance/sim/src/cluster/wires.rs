//! Everything between ranks, as the loop sees it: rings, devices and pipes, each with its faults.

use std::cell::RefCell;
use std::rc::Rc;

use rerail_core::ids::PeerId;
use rerail_core::rail::Place as Sharing;
use rerail_core::time::Time;
use rerail_linux::auth::{Credentials, Secret};
use rerail_linux::rail::Rail;
use rerail_linux::rail::verbs::{Identity, SrqSizes, VerbsOptions, VerbsRail, XrcOptions};

use super::devices::{Devices, is_of_devices};
use super::fault::{Fault, Kind};
use super::place::Place;
use super::topology::{Plan, carries_streams, is_of_wires};
use crate::hca::Objects;
use crate::net::Net;
use crate::rails::{JointCounts, MapCounts, PipeNet, SharedPipes, ShmHub, StreamRail};
use crate::scenario::{NumaSpec, Placement, RailSpec, Scenario, VerbsSpec, preset};
use crate::trace::Trace;

/// The file by which the ranks of a host find their XRC domain on each of its HCAs.
const XRC: XrcOptions = XrcOptions::new(1, [1, 1]);

/// Rings and wires.
pub(super) struct Wires {
    shm: ShmHub,
    devices: Devices,
    pipes: SharedPipes,
    /// Where places are on the net of the pipes.
    plan: Plan,
    seed: u64,
    placement: Placement,
    verbs: VerbsSpec,
}

impl Wires {
    /// How rails over HCAs were made.
    pub(super) fn verbs(&self) -> &VerbsSpec {
        &self.verbs
    }

    /// The host of a rank.
    pub(super) fn host_of(&self, rank: u32) -> u32 {
        self.placement.host_of(rank)
    }

    /// Those of a scenario.
    pub(super) fn build(scenario: &Scenario, seed: u64, trace: &Trace) -> Result<Self, String> {
        let hosts = (0..scenario.size()).map(|rank| scenario.host_of(rank)).collect();
        let shm = ShmHub::new(hosts, scenario.ring(), scenario.shm.posts_max, scenario.shm.latency_ns);
        if let Some(reads) = scenario.shm.reads() {
            shm.set_reads(reads, seed);
        }
        if let Some(maps) = scenario.shm.maps() {
            shm.set_maps(maps, seed);
        }
        shm.set_copies(scenario.shm.copies, scenario.shm.ring_reads);
        let streams = carries_streams(scenario)?;
        let verbs: Vec<bool> = streams.iter().map(|streams| !streams).collect();
        let devices = Devices::build(scenario, seed, &verbs, trace);
        let mut net = Net::new(seed);
        let plan = Plan::lay_out(scenario, &mut net, &streams);
        plan.apply(&mut net);
        plan.load(scenario, &mut net);
        Ok(Wires {
            shm,
            devices,
            pipes: Rc::new(RefCell::new(PipeNet::over(net))),
            plan,
            seed,
            placement: scenario.placement(),
            verbs: scenario.verbs.clone(),
        })
    }

    /// The `nth` rail of its kind of a rank.
    pub(super) fn rail(
        &mut self,
        scenario: &Scenario,
        rank: u32,
        nth: u8,
        spec: &RailSpec,
    ) -> Result<Box<dyn Rail>, String> {
        match spec {
            RailSpec::Shm {} => Ok(Box::new(self.shm.rail(rank))),
            RailSpec::Hca { hca, port, path } => self.verbs_rail(scenario, rank, nth, (*hca, *port, *path)),
            RailSpec::Stream { hca, port } => {
                let place = (scenario.host_of(rank), *hca, *port);
                let id = self.plan.ports.get(&place).ok_or("there is no such port")?;
                self.pipes.borrow_mut().listen(nth, rank, *id);
                let preset = scenario.hcas().get(*hca as usize).and_then(|hca| preset(&hca.device));
                let rate = preset.map_or(0, |preset| preset.link.bytes_per_second);
                Ok(Box::new(StreamRail::new(self.pipes.clone(), nth, rank, rate)))
            }
        }
    }

    fn verbs_rail(
        &mut self,
        scenario: &Scenario,
        rank: u32,
        nth: u8,
        (hca, port, path): (u32, u32, u8),
    ) -> Result<Box<dyn Rail>, String> {
        let device = self.devices.open(rank, hca)?;
        let spec = &scenario.verbs;
        let known = scenario.hcas().get(hca as usize).cloned().unwrap_or_default();
        let (place, numa_distance) = at(scenario, hca, port);
        let sizes = spec.srq_sizes.as_ref().map(|sizes| SrqSizes::new(sizes).ok_or("verbs.srq_sizes: too many"));
        let sizes = sizes.transpose()?;
        let options = VerbsOptions {
            name: format!("verbs{nth}"),
            eager_bytes_max: spec.eager_bytes_max,
            segment_bytes: spec.segment_bytes,
            posts_max: spec.posts_max,
            sends: spec.sends,
            receives: spec.receives,
            datagrams: spec.datagrams,
            inline_bytes: spec.inline_bytes,
            latency_ns: known.latency_ns(),
            pio_bytes_max: known.cost.pio_bytes_max,
            write: spec.write,
            read: spec.read,
            registrations_max: spec.registrations_max,
            registrations_bytes: spec.registrations_bytes,
            registrations_writable: spec.registrations_writable,
            xrc: spec.xrc.then_some(XrcOptions { sizes, ..XRC }),
            path,
            place,
            numa_distance,
            handshake_timeout: spec.handshake_timeout.nanos(),
            ack_timeout: spec.ack_timeout,
            retry_count: spec.retry_count,
            ..VerbsOptions::new(scenario.size(), nth)
        };
        // There are no secrets here; the rail only requires that no two be equal.
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(&rank.to_le_bytes());
        secret[4] = nth;
        secret[5..13].copy_from_slice(&self.seed.to_le_bytes());
        // One for all rails of a process. The first bits of a private key do not count.
        let mut private = [7; 32];
        private[8..12].copy_from_slice(&rank.to_le_bytes());
        let credentials = Credentials::new(private, Secret::new([7; 32]));
        let identity = Identity { credentials, job: self.seed, me: PeerId(rank), secret: Secret::new(secret) };
        let rail = VerbsRail::open(device, port as u8 + 1, options, identity).map_err(|error| error.to_string())?;
        Ok(Box::new(rail.reopen_with(Box::new(self.devices.opener(rank, hca)))))
    }

    /// When something happens next.
    pub(super) fn next_event(&self) -> Option<Time> {
        self.pipes.borrow().next_event().into_iter().chain(self.devices.next_event()).min()
    }

    /// Sets the time of what no driver sets it for: a rank is about to act.
    pub(super) fn set_now(&mut self, now: Time) {
        self.shm.set_now(now);
        self.advance(now);
    }

    /// Lets everything happen that happens until `now`.
    pub(super) fn advance(&mut self, now: Time) {
        self.devices.advance(now);
        self.pipes.borrow_mut().advance(now);
    }

    /// Ranks to which something becomes visible, and when.
    pub(super) fn take_woken(&mut self, woken: &mut Vec<(u32, Time)>) {
        self.shm.take_woken(woken);
        self.devices.take_woken(woken);
        self.pipes.borrow_mut().take_woken(woken);
    }

    /// Nanoseconds of its processor that a rank has spent on its devices, and on reading memory, since the
    /// last call.
    pub(super) fn take_spent_ns(&mut self, rank: u32) -> u64 {
        self.devices.take_spent_ns(rank) + self.shm.take_spent_ns(rank)
    }

    /// Events on the wires so far.
    pub(super) fn events(&self) -> u64 {
        self.devices.events() + self.pipes.borrow().net().stats().events
    }

    /// Whether ranks map each other's memory.
    pub(super) fn is_mapped(&self) -> bool {
        self.shm.is_mapped()
    }

    /// What became of mapped memory.
    pub(super) fn map_counts(&self) -> MapCounts {
        self.shm.map_counts()
    }

    /// What became of joint copies.
    pub(super) fn joint_counts(&self) -> JointCounts {
        self.shm.joint_counts()
    }

    /// Bytes of ring memory of all pairs.
    pub(super) fn ring_bytes(&self) -> u64 {
        self.shm.ring_bytes()
    }

    /// Objects of all devices.
    pub(super) fn objects(&self) -> usize {
        self.devices.objects()
    }

    /// Objects of one process on all devices.
    pub(super) fn objects_of(&self, rank: u32) -> Objects {
        self.devices.objects_of(rank)
    }

    /// A process is gone: its devices, pipes and rings with it.
    pub(super) fn kill(&mut self, rank: u32) {
        self.shm.kill(rank);
        self.devices.kill(rank);
        self.pipes.borrow_mut().kill(rank);
    }

    /// A fault of wires or devices happens.
    pub(super) fn begin(&mut self, now: Time, fault: &Fault, until: Option<Time>) {
        self.devices.begin(now, fault, until);
        let pipes = &mut *self.pipes.borrow_mut();
        match (fault.kind, fault.place) {
            (Kind::StreamReset, Place::Port { host, hca, port }) => {
                if let Some(port) = self.plan.ports.get(&(host, hca, port)) {
                    pipes.reset(*port);
                }
            }
            _ => self.plan.begin(pipes.net_mut(), now, fault, until),
        }
    }

    /// It is over.
    pub(super) fn end(&mut self, now: Time, fault: &Fault) {
        self.devices.end(now, fault);
        self.plan.end(self.pipes.borrow_mut().net_mut(), now, fault);
    }

    /// All faults are over.
    pub(super) fn heal(&mut self, now: Time) {
        self.devices.heal(now);
        self.plan.heal(self.pipes.borrow_mut().net_mut(), now);
    }
}

/// Whether a fault of wires or devices can be simulated.
pub(super) fn knows(kind: Kind) -> bool {
    is_of_wires(kind) || is_of_devices(kind) || kind == Kind::StreamReset
}

/// What a port shares with others of its host, and how far it is from the ranks, as a kernel would report: 10
/// is near.
fn at(scenario: &Scenario, hca: u32, port: u32) -> (Sharing, u8) {
    let number = |index: u32| index as u16 + 1;
    let spec = scenario.hcas().get(hca as usize).cloned().unwrap_or_default();
    // Where no buses are listed, every HCA has its own.
    let bus = if scenario.buses.is_empty() { 0 } else { number(spec.bus) };
    (Sharing { port: number(port), hca: number(hca), bus }, if spec.numa == NumaSpec::default() { 10 } else { 20 })
}
