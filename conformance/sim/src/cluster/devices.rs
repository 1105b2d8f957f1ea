//! The fabric of software HCAs in a simulation: laid out, opened by ranks, and made to fail.

use rerail_core::time::{Nanos, Time};
use rerail_verbs::Gid;
use rerail_verbs::contract::CreateError;

use super::fault::{Fault, Kind};
use super::place::Place;
use super::topology::{Ground, NOTICED_AFTER, Plan, direction, is_of_wires};
use crate::hca::{self, Fabric, HcaOptions, Objects, SharedFabric, SimDevice};
use crate::net::{self, BusId, BusModel, HcaId, HcaModel, HostId, LinkModel, PortId, SubnetId, SubnetModel};
use crate::rng::Rng;
use crate::scenario::{HcaSpec, Placement, Scenario, preset};
use crate::trace::Trace;

/// Frames of a dead queue pair arrive so late where no time is set.
const LATE_WRITE_NS: u64 = 2_000_000;

/// All software HCAs.
pub(super) struct Devices {
    fabric: SharedFabric,
    plan: Plan,
    placement: Placement,
    /// Which queue pair a fault hits.
    rng: Rng,
    /// Addresses given out to renumbered ports.
    renumbered: u16,
    /// Ranks woken; reused.
    woken: Vec<u32>,
}

impl Ground for Fabric {
    fn host(&mut self) -> HostId {
        self.add_host()
    }

    fn bus(&mut self, host: HostId, model: BusModel) -> BusId {
        self.add_bus(host, model)
    }

    fn hca(&mut self, bus: BusId, model: HcaModel, spec: &HcaSpec, name: String) -> HcaId {
        let mut options = HcaOptions { name, cost: spec.cost.host_cost(), ..HcaOptions::default() };
        if let Some(limits) = spec.limits.or(preset(&spec.device).map(|preset| preset.limits)) {
            let own = |limit: u32, usual: u32| if limit == 0 { usual } else { limit };
            options.limits.qps = own(limits.queue_pairs, options.limits.qps);
            options.limits.mrs = own(limits.memory_regions, options.limits.mrs);
            options.limits.cq_depth = own(limits.completion_entries, options.limits.cq_depth);
            options.mtu_bytes = limits.mtu;
        }
        let hca = self.add_hca(bus, model, options);
        self.net_mut().set_memory_rate(hca, spec.numa.bytes_per_second);
        hca
    }

    fn subnet(&mut self, model: &SubnetModel) -> SubnetId {
        self.add_subnet(model)
    }

    fn port(&mut self, hca: HcaId, subnet: SubnetId, link: LinkModel, base_lid: u16, lmc: u8) -> PortId {
        self.add_port(hca, subnet, link, base_lid, lmc)
    }
}

impl Devices {
    /// The HCAs of a scenario that are used.
    pub(super) fn build(scenario: &Scenario, seed: u64, wanted: &[bool], trace: &Trace) -> Self {
        let mut fabric = Fabric::new(seed, trace.clone());
        let plan = Plan::lay_out(scenario, &mut fabric, wanted);
        plan.apply(fabric.net_mut());
        plan.load(scenario, fabric.net_mut());
        Devices {
            fabric: fabric.shared(),
            plan,
            placement: scenario.placement(),
            rng: Rng::new(seed, "devices"),
            renumbered: 0,
            woken: Vec::new(),
        }
    }

    /// Opens an HCA of its host for a rank.
    pub(super) fn open(&self, rank: u32, hca: u32) -> Result<SimDevice, String> {
        let id = self.hca_of(rank, hca).ok_or("there is no such HCA")?;
        SimDevice::open(&self.fabric, id, rank).map_err(|error| error.to_string())
    }

    /// The way to open it again.
    pub(super) fn opener(&self, rank: u32, hca: u32) -> impl FnMut() -> Result<SimDevice, CreateError> + use<> {
        let (fabric, id) = (self.fabric.clone(), self.hca_of(rank, hca));
        move || SimDevice::open(&fabric, id.ok_or(CreateError::DeviceGone)?, rank)
    }

    fn hca_of(&self, rank: u32, hca: u32) -> Option<HcaId> {
        self.plan.hcas.get(&(self.placement.host_of(rank), hca)).copied()
    }

    /// When something happens next.
    pub(super) fn next_event(&self) -> Option<Time> {
        self.fabric.borrow().next_event()
    }

    /// Lets everything happen that happens until `now`.
    pub(super) fn advance(&mut self, now: Time) {
        self.fabric.borrow_mut().advance(now);
    }

    /// Ranks to which something has become visible.
    pub(super) fn take_woken(&mut self, woken: &mut Vec<(u32, Time)>) {
        let fabric = &mut *self.fabric.borrow_mut();
        fabric.take_woken(&mut self.woken);
        let now = fabric.now();
        woken.extend(self.woken.drain(..).map(|rank| (rank, now)));
    }

    /// Nanoseconds of its processor that a rank has spent on its devices since the last call.
    pub(super) fn take_spent_ns(&mut self, rank: u32) -> u64 {
        self.fabric.borrow_mut().take_spent_ns(rank)
    }

    /// Events so far.
    pub(super) fn events(&self) -> u64 {
        self.fabric.borrow().net().stats().events
    }

    /// Objects of all processes on all HCAs.
    pub(super) fn objects(&self) -> usize {
        let fabric = self.fabric.borrow();
        let objects = (0..fabric.hca_count()).map(|hca| fabric.objects(HcaId(hca)));
        objects.map(|it| (it.pds + it.mrs + it.cqs + it.qps + it.srqs + it.ahs + it.xrcds) as usize).sum()
    }

    /// Objects of one process on all HCAs.
    pub(super) fn objects_of(&self, rank: u32) -> Objects {
        self.fabric.borrow().objects_of(rank)
    }

    /// A process is gone, and its devices with it.
    pub(super) fn kill(&mut self, rank: u32) {
        self.fabric.borrow_mut().kill_owner(rank);
    }

    /// A fault happens.
    pub(super) fn begin(&mut self, now: Time, fault: &Fault, until: Option<Time>) {
        if is_of_wires(fault.kind) {
            return self.plan.begin(self.fabric.borrow_mut().net_mut(), now, fault, until);
        }
        match fault.place {
            Place::RankHca { rank, hca } => {
                if let Some(id) = self.hca_of(rank, hca) {
                    self.begin_at_hca(now, fault, (rank, id), until);
                }
            }
            Place::Hca { host, hca } => {
                if let (Kind::DeviceFatal, Some(hca)) = (fault.kind, self.plan.hcas.get(&(host, hca)).copied()) {
                    let reload_after = until.map(|until| until - now);
                    self.inject(&hca::Fault::Kill { hca, reload_after });
                }
            }
            Place::Port { .. } => {
                let Some(port) = self.plan.port_at(fault.place) else { return };
                match fault.kind {
                    Kind::Renumber => self.renumber(port),
                    Kind::PortEvents => {
                        let delay = (fault.amount > 0).then_some(Nanos(fault.amount));
                        self.inject(&hca::Fault::PortEvents { port, delay });
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Faults of a process's use of an HCA. Limits are the HCA's, so they hit other processes of the host
    /// too.
    fn begin_at_hca(&mut self, now: Time, fault: &Fault, (rank, hca): (u32, HcaId), until: Option<Time>) {
        let limit = |qps, mrs, cqs, registered_bytes| hca::Fault::Limit { hca, qps, mrs, cqs, registered_bytes };
        match fault.kind {
            Kind::RegistrationFails => self.inject(&limit(None, None, None, Some(0))),
            Kind::OutOfQps => self.inject(&limit(Some(0), None, None, None)),
            Kind::OutOfMrs => self.inject(&limit(None, Some(0), None, None)),
            Kind::OutOfMemory => self.inject(&limit(Some(0), Some(0), Some(0), Some(0))),
            Kind::CqOverflow => self.inject(&hca::Fault::ClampCqs { hca, depth: Some(1) }),
            kind => {
                let pairs = self.fabric.borrow().queue_pairs_of(hca, rank);
                let Some(qp) = self.rng.pick(&pairs).copied() else { return };
                let count = u32::try_from(fault.amount).unwrap_or(u32::MAX);
                match kind {
                    Kind::AckLost => self.inject(&hca::Fault::LoseAcks { hca, qp, count }),
                    // Carried out, and never reported. A request that is skipped while those behind it go on
                    // would be a reliable connection out of order, which no transport above could bear.
                    Kind::NeverCompletes => self.inject(&hca::Fault::LoseCompletions { hca, qp, id: None, count }),
                    Kind::RetryExceeded => self.inject(&hca::Fault::ExceedRetries { hca, qp }),
                    Kind::QpError => self.inject(&hca::Fault::BreakQp { hca, qp }),
                    Kind::LateWrite => {
                        let until = until.unwrap_or(Time(now.0.saturating_add(LATE_WRITE_NS)));
                        for port in self.plan.ports_of(hca) {
                            let place = net::Place::From(port);
                            self.fabric.borrow_mut().net_mut().hold_at(place, until);
                        }
                        self.inject(&hca::Fault::BreakQp { hca, qp });
                    }
                    _ => {}
                }
            }
        }
    }

    /// A port's link goes down and, when the fault is over, comes up with other addresses.
    fn renumber(&mut self, port: PortId) {
        self.renumbered += 1;
        let (lmc, gid) = {
            let fabric = self.fabric.borrow();
            let mut gid = [0; 16];
            gid[..2].copy_from_slice(&[0xfe, 0x80]);
            // Unlike any that ports are made with.
            gid[8..].copy_from_slice(&(0xee00_0000_0000_0000 | u64::from(self.renumbered)).to_be_bytes());
            (fabric.net().lid(port).1, gid)
        };
        let direction = net::Direction::Both;
        self.inject(&hca::Fault::Link { port, direction, up: false, noticed_after: Some(NOTICED_AFTER) });
        // From the top of the unicast LIDs downwards, in blocks as large as the port's own.
        let block = (0xC000u16 >> lmc).saturating_sub(self.renumbered);
        let subnet = self.fabric.borrow().net().subnet_of(port);
        let lid = block << lmc;
        let free = self.fabric.borrow().net().check_lids(subnet, lid, lmc).is_ok();
        self.inject(&hca::Fault::Readdress { port, lid: Some(lid).filter(|_| free), gid: Some(Gid(gid)) });
    }

    /// A fault is over.
    pub(super) fn end(&mut self, now: Time, fault: &Fault) {
        if is_of_wires(fault.kind) {
            return self.plan.end(self.fabric.borrow_mut().net_mut(), now, fault);
        }
        match (fault.kind, fault.place) {
            (Kind::Renumber, _) => {
                if let Some(port) = self.plan.port_at(fault.place) {
                    let direction = direction(fault.way);
                    self.inject(&hca::Fault::Link { port, direction, up: true, noticed_after: Some(NOTICED_AFTER) });
                }
            }
            (Kind::PortEvents, _) => {
                if let Some(port) = self.plan.port_at(fault.place) {
                    self.inject(&hca::Fault::PortEvents { port, delay: Some(Nanos(0)) });
                }
            }
            (_, Place::RankHca { rank, hca }) => {
                if let Some(hca) = self.hca_of(rank, hca) {
                    self.restore(hca);
                }
            }
            _ => {}
        }
    }

    /// An HCA has its own limits again.
    fn restore(&mut self, hca: HcaId) {
        let all = Some(u32::MAX);
        self.inject(&hca::Fault::Limit { hca, qps: all, mrs: all, cqs: all, registered_bytes: Some(u64::MAX) });
        self.inject(&hca::Fault::ClampCqs { hca, depth: None });
    }

    /// All faults are over. What is broken for good (a device that never reloads) stays so.
    pub(super) fn heal(&mut self, now: Time) {
        self.plan.heal(self.fabric.borrow_mut().net_mut(), now);
        let hcas: Vec<HcaId> = self.plan.hcas.values().copied().collect();
        hcas.into_iter().for_each(|hca| self.restore(hca));
        let ports: Vec<PortId> = self.plan.ports.values().copied().collect();
        ports.into_iter().for_each(|port| self.inject(&hca::Fault::PortEvents { port, delay: Some(Nanos(0)) }));
    }

    fn inject(&self, fault: &hca::Fault) {
        self.fabric.borrow_mut().inject(fault);
    }
}

/// Whether a fault happens to devices.
pub(super) const fn is_of_devices(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::RegistrationFails
            | Kind::Renumber
            | Kind::PortEvents
            | Kind::AckLost
            | Kind::NeverCompletes
            | Kind::RetryExceeded
            | Kind::QpError
            | Kind::DeviceFatal
            | Kind::OutOfQps
            | Kind::OutOfMrs
            | Kind::OutOfMemory
            | Kind::CqOverflow
            | Kind::LateWrite
    )
}
