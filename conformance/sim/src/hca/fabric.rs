//! The fabric: the net with all its HCAs, stepped by the time.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use rerail_core::time::Time;

use super::body::{Alarm, Body, Header, Landing, Load, Packet, Place, Timer};
use super::core::{Cx, Hca, HcaOptions};
use super::modify::are_one_partition;
use super::processor::Processors;
use super::qp::Qp;
use crate::net::{
    BusId, BusModel, HcaId, HcaModel, HostId, LinkModel, LostAt, Net, Outcome, PortId, SubnetId, SubnetModel,
};
use crate::trace::{Subject, Trace};

/// A fabric that devices and the simulation's loop share.
pub type SharedFabric = Rc<RefCell<Fabric>>;

/// A net and its HCAs. Built once, part by part; then [`advance`](Self::advance) lets time pass, and
/// [`take_woken`](Self::take_woken) returns whose devices have something new.
pub struct Fabric {
    net: Net<Body>,
    hcas: Vec<Hca>,
    /// By port of the net: HCA and number of the port there.
    places: Vec<(HcaId, u8)>,
    woken: BTreeSet<u32>,
    processors: Processors,
    now: Time,
    pub(super) trace: Trace,
}

/// Objects of an HCA, of all processes together: for checkers of leaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Open devices.
    pub contexts: u32,
    /// Protection domains.
    pub pds: u32,
    /// Registrations.
    pub mrs: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Address handles.
    pub ahs: u32,
    /// XRC domains.
    pub xrcds: u32,
    /// Bytes registered.
    pub registered_bytes: u64,
}

impl Fabric {
    /// Nothing yet. The seed decides jitter and random loss on the wires.
    pub fn new(seed: u64, trace: Trace) -> Fabric {
        Fabric {
            net: Net::new(seed),
            hcas: Vec::new(),
            places: Vec::new(),
            woken: BTreeSet::new(),
            processors: Processors::default(),
            now: Time(0),
            trace,
        }
    }

    /// For devices and a loop to share.
    pub fn shared(self) -> SharedFabric {
        Rc::new(RefCell::new(self))
    }

    /// One more host.
    pub fn add_host(&mut self) -> HostId {
        self.net.add_host()
    }

    /// One more bus of a host.
    pub fn add_bus(&mut self, host: HostId, model: BusModel) -> BusId {
        self.net.add_bus(host, model)
    }

    /// One more subnet; see [`Net::add_subnet`].
    pub fn add_subnet(&mut self, model: &SubnetModel) -> SubnetId {
        self.net.add_subnet(model)
    }

    /// One more HCA on a bus.
    pub fn add_hca(&mut self, bus: BusId, model: HcaModel, options: HcaOptions) -> HcaId {
        let id = self.net.add_hca(bus, model);
        debug_assert_eq!(id.0 as usize, self.hcas.len(), "HCAs are added here alone");
        self.hcas.push(Hca::new(id, options));
        id
    }

    /// One more port of an HCA: the next number there. See [`Net::add_port`].
    pub fn add_port(&mut self, hca: HcaId, subnet: SubnetId, link: LinkModel, base_lid: u16, lmc: u8) -> PortId {
        let port = self.net.add_port(hca, subnet, link, base_lid, lmc);
        let owner = &mut self.hcas[hca.0 as usize];
        owner.add_port(port);
        self.places.push((hca, owner.ports.len() as u8));
        port
    }

    /// The wires: for what they count, for background load.
    pub fn net(&self) -> &Net<Body> {
        &self.net
    }

    /// The wires. HCAs and ports are added by the fabric's own methods.
    pub fn net_mut(&mut self) -> &mut Net<Body> {
        &mut self.net
    }

    /// The time: that of the last [`advance`](Self::advance).
    pub fn now(&self) -> Time {
        self.now
    }

    /// The HCA of a port, and the port's number there.
    pub fn place(&self, port: PortId) -> (HcaId, u8) {
        self.places[port.0 as usize]
    }

    /// When the next thing happens.
    pub fn next_event(&self) -> Option<Time> {
        self.net.next_event()
    }

    /// Lets everything happen that happens until `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some((at, outcome)) = self.net.step(now) {
            self.now = self.now.max(at);
            self.process(outcome);
        }
        self.now = self.now.max(now);
    }

    /// Appends the owners of devices to which something became visible since the last call: completions,
    /// events. In ascending order, each once.
    pub fn take_woken(&mut self, out: &mut Vec<u32>) {
        while let Some(owner) = self.woken.pop_first() {
            out.push(owner);
        }
    }

    /// Nanoseconds of its processor that a process has spent on HCAs since the last call; the code that runs
    /// the process lets it do nothing else meanwhile. See [`HostCost`](super::HostCost).
    pub fn take_spent_ns(&mut self, owner: u32) -> u64 {
        self.processors.take_spent_ns(owner)
    }

    /// How often an HCA has looked for the way to a port: for a handle, or to connect a queue pair.
    pub fn searches(&self, hca: HcaId) -> u64 {
        self.hcas[hca.0 as usize].searches
    }

    /// What an HCA holds.
    pub fn objects(&self, hca: HcaId) -> Objects {
        let hca = &self.hcas[hca.0 as usize];
        Objects {
            contexts: hca.contexts.len(),
            pds: hca.pds.len(),
            mrs: hca.mrs.len(),
            cqs: hca.cqs.len(),
            qps: hca.qps.len(),
            srqs: hca.srqs.len(),
            ahs: hca.handles.len(),
            xrcds: hca.domains.len(),
            registered_bytes: hca.faults.pinned_bytes,
        }
    }

    /// Runs an entry into an HCA, and ends it.
    pub(super) fn on_hca<T>(&mut self, hca: HcaId, run: impl FnOnce(&mut Hca, &mut Cx<'_>) -> T) -> T {
        let Fabric { net, woken, processors, trace, .. } = self;
        let mut cx = Cx { net, woken, processors, now: self.now, trace };
        let hca = &mut self.hcas[hca.0 as usize];
        let result = run(hca, &mut cx);
        hca.process_due(&mut cx);
        result
    }

    pub(super) fn on_port(&mut self, port: PortId, run: impl FnOnce(&mut Hca, &mut Cx<'_>, u8)) {
        let (hca, number) = self.place(port);
        self.on_hca(hca, |hca, cx| run(hca, cx, number));
    }

    /// Runs an entry for the queue pair of that number, if there is one.
    pub(super) fn on_qp(&mut self, hca: HcaId, qp: u32, run: impl FnOnce(&mut Hca, &mut Cx<'_>, u32)) {
        self.on_hca(hca, |hca, cx| {
            if let Some(qp) = hca.qp_numbered(qp) {
                run(hca, cx, qp);
            }
        });
    }

    /// How many HCAs there are.
    pub fn hca_count(&self) -> u32 {
        self.hcas.len() as u32
    }

    /// An HCA without an entry.
    pub(super) fn hca(&self, hca: HcaId) -> &Hca {
        &self.hcas[hca.0 as usize]
    }

    fn process(&mut self, outcome: Outcome<Body>) {
        match outcome {
            Outcome::Arrived { port, dlid, corrupt, body: Body::Ib(packet) } => {
                self.arrived(port, dlid, corrupt, *packet);
            }
            Outcome::Written { port, body: Body::Landing(landing) } => self.written(port, &landing),
            Outcome::Room(port) => self.on_port(port, |hca, _, number| {
                hca.rung.insert(number);
            }),
            Outcome::LinkState { port, up } => self.on_port(port, |hca, cx, number| hca.link_state(cx, number, up)),
            Outcome::Timer(Body::Timer(Timer { hca, what })) => self.on_hca(HcaId(hca), |hca, cx| match what {
                Alarm::Qp { qp, life } => hca.on_alarm(cx, qp, life),
                Alarm::Cq { cq, round } => hca.on_cq_alarm(cx, cq, round),
                Alarm::PortEvent { port, up } => hca.port_event(cx, port, up),
                Alarm::Reload { failure } => hca.reload(failure),
            }),
            Outcome::Lost { from, body, why } => self.lost(from, &body, why),
            Outcome::Arrived { .. } | Outcome::Written { .. } | Outcome::Timer(_) => {}
        }
    }

    fn arrived(&mut self, port: PortId, dlid: u16, corrupt: bool, packet: Packet) {
        let now = self.now;
        let (base, lmc) = self.net.lid(port);
        // A frame for a LID that the port had is not for it any more; a checksum detects wrong bytes.
        let addressed = dlid & !((1 << lmc) - 1) == base;
        if self.trace.is_on() {
            let Packet { head: Header { source_qp, destination, psn, .. }, load } = &packet;
            let note = if corrupt { " corrupt" } else { "" };
            let what = format_args!("qp {destination:#x} <- qp {source_qp:#x} psn {psn} {}{note}", load.name());
            self.trace.note(now, Subject::Port(port.0), what);
        }
        self.on_port(port, |hca, cx, number| {
            if hca.faults.down || corrupt || !addressed {
                return;
            }
            let Packet { head, load } = packet;
            let Some(qp) = hca.qp_numbered(head.destination) else { return };
            let is_for_it = |qp: &Qp| qp.port() == number && are_one_partition(hca.pkey_of(qp), head.pkey);
            if !hca.qps.get(qp).is_some_and(|qp| is_for_it(qp)) {
                return;
            }
            match load {
                Load::Request(request) => hca.on_request(cx, qp, head.psn, request),
                Load::Datagram(load) => hca.on_datagram(cx, qp, &head, load),
                Load::Ack(code) => hca.on_ack(cx, qp, head.psn, code),
                response => hca.on_response(cx, qp, head.psn, response),
            }
        });
    }

    fn written(&mut self, port: PortId, landing: &Landing) {
        self.on_port(port, |hca, cx, _| match landing.place {
            Place::Response { .. } => hca.response_landed(cx, landing),
            Place::Receive { .. } | Place::Write { .. } => hca.request_landed(cx, landing),
        });
    }

    fn lost(&mut self, from: PortId, body: &Body, why: LostAt) {
        if let (true, Body::Ib(packet)) = (self.trace.is_on(), body) {
            let Packet { head: Header { source_qp, destination, psn, .. }, load } = &**packet;
            let what = format_args!("qp {source_qp:#x} -> qp {destination:#x} psn {psn} {} lost: {why:?}", load.name());
            self.trace.note(self.now, Subject::Port(from.0), what);
        }
    }
}
