//! Hosts, buses, HCAs, subnets and ports of a scenario, laid out on a net.
//!
//! Verbs and streams run over nets of their own (the fabric's and the pipes'), which have the same subnets;
//! an HCA is on the one that its rails need. So a network card does not share its host's bus with an HCA.

use std::collections::BTreeMap;

use rerail_core::time::{Nanos, Time};

use super::fault::{Fault, Kind, Way};
use super::place::Place;
use crate::net::{
    BusId, BusModel, Direction, HcaId, HcaModel, HostId, LinkModel, Net, PlaneModel, PortId, SubnetId, SubnetModel,
};
use crate::scenario::{BusSpec, HcaSpec, LoadSpec, RailSpec, Scenario, SubnetSpec, preset};

/// From a link's change until the port notices.
pub(super) const NOTICED_AFTER: Nanos = Nanos(1_000_000);
/// A link that blinks is down for no longer: retries bear that.
const BLINK_NS: u64 = 1_000_000;
/// Bytes of a phantom frame.
const LOAD_FRAME_BYTES: u32 = 2048;

/// What a scenario can be laid out on.
pub(super) trait Ground {
    fn host(&mut self) -> HostId;
    fn bus(&mut self, host: HostId, model: BusModel) -> BusId;
    fn hca(&mut self, bus: BusId, model: HcaModel, spec: &HcaSpec, name: String) -> HcaId;
    fn subnet(&mut self, model: &SubnetModel) -> SubnetId;
    fn port(&mut self, hca: HcaId, subnet: SubnetId, link: LinkModel, base_lid: u16, lmc: u8) -> PortId;
}

impl<B> Ground for Net<B> {
    fn host(&mut self) -> HostId {
        self.add_host()
    }

    fn bus(&mut self, host: HostId, model: BusModel) -> BusId {
        self.add_bus(host, model)
    }

    fn hca(&mut self, bus: BusId, model: HcaModel, spec: &HcaSpec, _name: String) -> HcaId {
        let hca = self.add_hca(bus, model);
        self.set_memory_rate(hca, spec.numa.bytes_per_second);
        hca
    }

    fn subnet(&mut self, model: &SubnetModel) -> SubnetId {
        self.add_subnet(model)
    }

    fn port(&mut self, hca: HcaId, subnet: SubnetId, link: LinkModel, base_lid: u16, lmc: u8) -> PortId {
        self.add_port(hca, subnet, link, base_lid, lmc)
    }
}

/// Where a scenario's places are on a net.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// By host and HCA within it.
    pub(super) hcas: BTreeMap<(u32, u32), HcaId>,
    /// By host, HCA and port.
    pub(super) ports: BTreeMap<(u32, u32, u32), PortId>,
    subnets: Vec<SubnetId>,
    /// Ways through each subnet.
    planes: Vec<usize>,
    /// Jitter of each port that is no fault.
    jitter: BTreeMap<PortId, Nanos>,
    /// Bytes per second of each port's link, as it is without faults.
    rates: BTreeMap<PortId, u64>,
    /// By host and bus.
    buses: BTreeMap<(u32, u32), BusId>,
    /// Phantom traffic without an end ends here.
    end: Time,
}

/// Whether HCAs of the scenario carry streams; `Err`: one is to carry both.
pub(super) fn carries_streams(scenario: &Scenario) -> Result<Vec<bool>, String> {
    let (mut streams, mut verbs) = (vec![false; scenario.hcas().len()], vec![false; scenario.hcas().len()]);
    for rail in scenario.rails() {
        match rail {
            RailSpec::Shm {} => {}
            RailSpec::Hca { hca, .. } => verbs[hca as usize] = true,
            RailSpec::Stream { hca, .. } => streams[hca as usize] = true,
        }
    }
    match streams.iter().zip(&verbs).position(|(streams, verbs)| *streams && *verbs) {
        Some(both) => Err(format!("rails: hcas[{both}] is to carry verbs and streams; list an HCA for each")),
        None => Ok(streams),
    }
}

impl Plan {
    /// Lays out the HCAs chosen by `wanted`, on all hosts, with all subnets.
    pub(super) fn lay_out(scenario: &Scenario, ground: &mut impl Ground, wanted: &[bool]) -> Plan {
        let mut plan = Plan { end: scenario.limits.safety.time(), ..Plan::default() };
        let subnet = |index: u32| scenario.subnets.get(index as usize).cloned().unwrap_or_default();
        for index in 0..scenario.subnet_count() {
            let SubnetSpec { latency_ns, planes, .. } = subnet(index);
            plan.planes.push(planes.len());
            let plane = |plane: crate::scenario::PlaneSpec| PlaneModel {
                latency_ns: plane.latency_ns,
                bytes_per_second: plane.bytes_per_second,
            };
            let planes = planes.into_iter().map(plane).collect();
            plan.subnets.push(ground.subnet(&SubnetModel { latency_ns, planes }));
        }
        let hcas = scenario.hcas();
        let lmc = hcas.iter().map(|hca| hca.lmc).max().unwrap_or(0);
        // Blocks of 2^lmc LIDs per subnet; LID 0 is none (InfiniBand Architecture Specification, 4.1.3).
        let mut lids = vec![1u16; plan.subnets.len()];
        for host in 0..scenario.hosts {
            let host_id = ground.host();
            for (index, spec) in (0..).zip(&hcas).filter(|(index, _)| wanted[*index as usize]) {
                let Some(preset) = preset(&spec.device) else { continue };
                // Without buses in the scenario each HCA has one of its own.
                let bus = if scenario.buses.is_empty() { index } else { spec.bus };
                let bus = *plan.buses.entry((host, bus)).or_insert_with(|| {
                    ground.bus(host_id, bus_model(scenario.buses.get(spec.bus as usize), preset.bus))
                });
                let hca = ground.hca(bus, hca_model(spec, preset.hca), spec, format!("host{host}.hca{index}"));
                plan.hcas.insert((host, index), hca);
                for port in 0..spec.ports {
                    let on = scenario.subnet_of(index as usize, port) as usize;
                    let base_lid = lids[on] << lmc;
                    lids[on] += 1;
                    let link = link_model(spec, preset.link);
                    let id = ground.port(hca, plan.subnets[on], link, base_lid, spec.lmc);
                    plan.ports.insert((host, index, port), id);
                    plan.rates.insert(id, link.bytes_per_second);
                    let jitter = Nanos(subnet(on as u32).jitter_ns);
                    if jitter.0 > 0 {
                        plan.jitter.insert(id, jitter);
                    }
                }
            }
        }
        plan
    }

    /// Sets the programmes of a scenario's loads going, as far as their places are on this net.
    pub(super) fn load<B>(&self, scenario: &Scenario, net: &mut Net<B>) {
        for LoadSpec { at, to, frame_bytes, steps } in &scenario.loads {
            let steps = |whole| steps.iter().map(|step| (step.at.time(), step.rate(whole))).collect::<Vec<_>>();
            match *at {
                Place::Bus { host, bus } => {
                    if let Some(id) = self.buses.get(&(host, bus)) {
                        net.load_bus(*id, &steps(scenario.bus_rate(bus)));
                    }
                }
                at => {
                    let Some(from) = self.port_at(at) else { continue };
                    let to = to.map_or_else(|| self.neighbour_of(net, from), |to| self.port_at(to));
                    let whole = self.rates.get(&from).copied().unwrap_or(0);
                    if let Some(to) = to {
                        net.add_load(from, net.lid(to).0, *frame_bytes, &steps(whole), self.end);
                    }
                }
            }
        }
    }

    /// Another port of a port's subnet: the next one, or the first after the last. Itself where it is alone.
    fn neighbour_of<B>(&self, net: &Net<B>, port: PortId) -> Option<PortId> {
        let there = self.ports.values().filter(|other| net.subnet_of(**other) == net.subnet_of(port));
        there.clone().find(|other| **other > port).or(there.clone().next()).copied()
    }

    /// Gives every port the jitter of its subnet.
    pub(super) fn apply<B>(&self, net: &mut Net<B>) {
        self.jitter.iter().for_each(|(port, max)| net.set_jitter(*port, *max));
    }

    /// The port of a place on this net.
    pub(super) fn port_at(&self, place: Place) -> Option<PortId> {
        let Place::Port { host, hca, port } = place else { return None };
        self.ports.get(&(host, hca, port)).copied()
    }

    /// The ports of an HCA.
    pub(super) fn ports_of(&self, hca: HcaId) -> Vec<PortId> {
        let own = |key: &(u32, u32, u32)| self.hcas.get(&(key.0, key.1)) == Some(&hca);
        self.ports.iter().filter(|(key, _)| own(key)).map(|(_, port)| *port).collect()
    }

    /// A fault of wires happens.
    pub(super) fn begin<B>(&self, net: &mut Net<B>, now: Time, fault: &Fault, until: Option<Time>) {
        match fault.place {
            Place::Subnet(subnet) => self.set_switch(net, subnet, false),
            Place::Plane { subnet, plane } => net.set_plane(self.subnets[subnet as usize], plane as usize, false),
            _ => {}
        }
        let Some(port) = self.port_at(fault.place) else { return };
        match fault.kind {
            Kind::Jitter => net.set_jitter(port, Nanos(fault.amount)),
            Kind::Hold => net.hold(port, until.unwrap_or(Time(u64::MAX))),
            Kind::Lose => net.lose_next(port, u32::try_from(fault.amount).unwrap_or(u32::MAX)),
            Kind::Corrupt => net.corrupt_next(port, u32::try_from(fault.amount).unwrap_or(u32::MAX)),
            Kind::Load => {
                // Any receiver will do.
                if let Some(to) = self.neighbour_of(net, port) {
                    let dlid = net.lid(to).0;
                    net.add_background(port, dlid, LOAD_FRAME_BYTES, &[(now, until.unwrap_or(self.end))]);
                }
            }
            Kind::Slow => {
                let rate = self.rates.get(&port).map_or(1, |rate| rate / fault.amount.max(1));
                net.set_link_rate(now, port, rate.max(1));
            }
            Kind::Blink => net.set_link(now, port, Direction::Both, false, None),
            Kind::LinkDown => net.set_link(now, port, direction(fault.way), false, Some(NOTICED_AFTER)),
            _ => {}
        }
    }

    /// A fault of wires is over.
    pub(super) fn end<B>(&self, net: &mut Net<B>, now: Time, fault: &Fault) {
        match fault.place {
            Place::Subnet(subnet) => self.set_switch(net, subnet, true),
            Place::Plane { subnet, plane } => net.set_plane(self.subnets[subnet as usize], plane as usize, true),
            _ => {}
        }
        let Some(port) = self.port_at(fault.place) else { return };
        match fault.kind {
            Kind::Jitter => net.set_jitter(port, self.jitter.get(&port).copied().unwrap_or(Nanos(0))),
            Kind::Hold => net.hold(port, now),
            Kind::Slow => self.restore_rate(net, now, port),
            Kind::Blink => net.set_link(now, port, Direction::Both, true, None),
            Kind::LinkDown => net.set_link(now, port, direction(fault.way), true, Some(NOTICED_AFTER)),
            _ => {}
        }
    }

    /// All faults of wires are over, and all loads.
    pub(super) fn heal<B>(&self, net: &mut Net<B>, now: Time) {
        for (subnet, planes) in (0..).zip(&self.planes) {
            self.set_switch(net, subnet, true);
            (0..*planes).for_each(|plane| net.set_plane(self.subnets[subnet as usize], plane, true));
        }
        for port in self.ports.values() {
            net.heal(now, *port, Some(NOTICED_AFTER));
            self.restore_rate(net, now, *port);
        }
        net.end_loads();
        self.apply(net);
    }

    /// A port's link is as fast as it was laid out.
    fn restore_rate<B>(&self, net: &mut Net<B>, now: Time, port: PortId) {
        if let Some(rate) = self.rates.get(&port).filter(|rate| **rate != net.link(port).bytes_per_second) {
            net.set_link_rate(now, port, *rate);
        }
    }

    fn set_switch<B>(&self, net: &mut Net<B>, subnet: u32, up: bool) {
        let subnet = self.subnets[subnet as usize];
        net.set_switch(subnet, up);
        for port in self.ports.values().filter(|port| net.subnet_of(**port) == subnet).copied().collect::<Vec<_>>() {
            net.notice(port, NOTICED_AFTER);
        }
    }
}

/// When a fault that must be short is over.
pub(super) fn ends_at(fault: &Fault, now: Time, until: Option<Time>) -> Option<Time> {
    let short = (fault.kind == Kind::Blink).then(|| Time(now.0.saturating_add(BLINK_NS)));
    until.into_iter().chain(short).min()
}

/// Whether a fault happens to wires alone.
pub(super) const fn is_of_wires(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Jitter
            | Kind::Hold
            | Kind::Lose
            | Kind::Corrupt
            | Kind::Load
            | Kind::Slow
            | Kind::Blink
            | Kind::LinkDown
            | Kind::PlaneDown
            | Kind::SwitchDown
    )
}

pub(super) fn direction(way: Way) -> Direction {
    match way {
        Way::Both => Direction::Both,
        Way::Tx => Direction::Tx,
        Way::Rx => Direction::Rx,
    }
}

fn bus_model(spec: Option<&BusSpec>, preset: BusModel) -> BusModel {
    let Some(spec) = spec else { return preset };
    BusModel {
        bytes_per_second: spec.bytes_per_second.unwrap_or(preset.bytes_per_second),
        read_ns_per_frame: spec.read_ns_per_frame.unwrap_or(preset.read_ns_per_frame),
        write_ns_per_frame: spec.write_ns_per_frame.unwrap_or(preset.write_ns_per_frame),
        half_duplex: spec.half_duplex.unwrap_or(preset.half_duplex),
    }
}

fn hca_model(spec: &HcaSpec, preset: HcaModel) -> HcaModel {
    HcaModel {
        bytes_per_second: spec.bytes_per_second.unwrap_or(preset.bytes_per_second),
        ns_per_message_tx: spec.ns_per_message_tx.unwrap_or(preset.ns_per_message_tx),
        ns_per_message_rx: spec.ns_per_message_rx.unwrap_or(preset.ns_per_message_rx),
        latency_tx_ns: spec.latency_tx_ns.unwrap_or(preset.latency_tx_ns).saturating_add(spec.numa.latency_ns),
        latency_rx_ns: spec.latency_rx_ns.unwrap_or(preset.latency_rx_ns).saturating_add(spec.numa.latency_ns),
    }
}

fn link_model(spec: &HcaSpec, preset: LinkModel) -> LinkModel {
    LinkModel {
        bytes_per_second: spec.link_bytes_per_second.filter(|rate| *rate > 0).unwrap_or(preset.bytes_per_second),
        header_bytes: spec.link_header_bytes.unwrap_or(preset.header_bytes),
        latency_ns: spec.link_latency_ns.unwrap_or(preset.latency_ns),
    }
}
