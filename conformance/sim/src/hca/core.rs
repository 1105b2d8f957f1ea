//! An HCA as a whole: its tables, which process may name what, events, and what has to be done at the end of
//! every entry.

use std::collections::{BTreeSet, VecDeque};

use rerail_core::time::Time;
use rerail_verbs::contract::{AsyncEvent, CqId, CreateError, Kind, Limits, QpId};
use rerail_verbs::{Gid, Offers};

use super::body::Body;
use super::fault::{HcaFaults, PortFaults};
use super::object::{Context, Cq, Domain, DomainName, Handle, MrEntry, Pd, QpName, SharedQueue};
use super::processor::{HostCost, Processors};
use super::qp::Qp;
use super::slab::{NAMES_MAX, Slab, generation_of, slot_of};
use crate::net::{Frame, HcaId, Net, PortId};
use crate::trace::{Subject, Trace};

/// What an HCA is made with, beside its place and speed in the net.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HcaOptions {
    /// Its name; devices show it.
    pub name: String,
    /// What it can do. `ports` is counted from the ports added; numbers of objects are cut to about a
    /// million.
    pub limits: Limits,
    /// What it offers beside: registration on demand, whose pages come in at no cost in time, and moderation.
    pub offers: Offers,
    /// Largest payload of one packet on its ports: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu_bytes: u16,
    /// Entries of each port's table of GIDs; the first holds the port's own.
    pub gids: u8,
    /// Partition keys of each port, as [`Fault::Pkeys`](super::Fault::Pkeys) has them.
    pub pkeys: Vec<u16>,
    /// What it costs the processors of processes.
    pub cost: HostCost,
}

impl Default for HcaOptions {
    /// An HCA of 2008 with everything it may have.
    fn default() -> Self {
        HcaOptions {
            name: "sim".into(),
            limits: Limits {
                ports: 0,
                qps: 65_000,
                queue_depth: 16_384,
                sges: 30,
                cqs: 65_408,
                cq_depth: 4_194_303,
                mrs: 524_272,
                mr_bytes: 1 << 40,
                pds: 32_764,
                srqs: 65_472,
                srq_depth: 16_383,
                ahs: 65_536,
                reads_served: 16,
                reads_open: 16,
                inline_bytes: 912,
                atomics: true,
                xrc: true,
                iova: true,
            },
            offers: Offers::WHOLE,
            mtu_bytes: 2048,
            gids: 4,
            pkeys: vec![0xffff],
            cost: HostCost::default(),
        }
    }
}

/// What an entry into an HCA works with.
pub(super) struct Cx<'a> {
    pub net: &'a mut Net<Body>,
    /// Owners to which something became visible.
    pub woken: &'a mut BTreeSet<u32>,
    pub processors: &'a mut Processors,
    pub now: Time,
    pub trace: &'a Trace,
}

/// An HCA.
#[derive(Debug)]
pub(super) struct Hca {
    pub id: HcaId,
    pub name: String,
    pub limits: Limits,
    pub offers: Offers,
    pub mtu_bytes: u16,
    pub cost: HostCost,
    pub ports: Vec<HcaPort>,
    pub contexts: Slab<Context>,
    pub pds: Slab<Pd>,
    pub mrs: Slab<MrEntry>,
    pub cqs: Slab<Cq>,
    pub qps: Slab<Box<Qp>>,
    pub qp_names: Slab<QpName>,
    pub srqs: Slab<SharedQueue>,
    pub handles: Slab<Handle>,
    pub domains: Slab<Domain>,
    pub domain_names: Slab<DomainName>,
    pub faults: HcaFaults,
    /// Completion queues that overflowed in this entry: their queue pairs fail at its end.
    pub overflowed: Vec<u32>,
    /// Ports whose ring got work in this entry.
    pub rung: BTreeSet<u8>,
    gids: u8,
    pkeys: Vec<u16>,
    /// What the last registration took of its process.
    pub registration_ns: u64,
    /// What the last address took of its process.
    pub address_ns: u64,
    /// Addresses that were looked for: those of handles and of queue pairs.
    pub searches: u64,
    /// The limit of queue pairs that it was made with; faults lower it for a time.
    qps_max: u32,
}

/// A port of an HCA.
#[derive(Debug)]
pub(super) struct HcaPort {
    pub id: PortId,
    pub gids: Vec<Gid>,
    /// Partition keys.
    pub pkeys: Vec<u16>,
    /// As the port itself has noticed.
    pub active: bool,
    /// Queue pairs with something to send, in their turn.
    pub ring: VecDeque<u32>,
    /// A frame that the net had no room for.
    pub stalled: Option<Frame<Body>>,
    pub faults: PortFaults,
}

impl Hca {
    pub fn new(id: HcaId, options: HcaOptions) -> Hca {
        let mut limits = options.limits;
        limits.ports = 0;
        let mut counts =
            [&mut limits.qps, &mut limits.cqs, &mut limits.mrs, &mut limits.pds, &mut limits.srqs, &mut limits.ahs];
        counts.iter_mut().for_each(|count| **count = (**count).min(NAMES_MAX));
        Hca {
            id,
            name: options.name,
            qps_max: limits.qps,
            limits,
            offers: options.offers,
            mtu_bytes: options.mtu_bytes,
            cost: options.cost,
            ports: Vec::new(),
            contexts: Slab::default(),
            pds: Slab::default(),
            mrs: Slab::default(),
            cqs: Slab::default(),
            qps: Slab::default(),
            qp_names: Slab::default(),
            srqs: Slab::default(),
            handles: Slab::default(),
            domains: Slab::default(),
            domain_names: Slab::default(),
            faults: HcaFaults::default(),
            overflowed: Vec::new(),
            rung: BTreeSet::new(),
            gids: options.gids.max(1),
            pkeys: options.pkeys,
            registration_ns: 0,
            address_ns: 0,
            searches: 0,
        }
    }

    /// One more port; its GID is made of its number in the net.
    pub fn add_port(&mut self, id: PortId) {
        self.limits.ports += 1;
        let mut gids = vec![Gid([0; 16]); usize::from(self.gids)];
        gids[0] = link_local(0x0002_c903_0000_0000 | u64::from(id.0));
        self.ports.push(HcaPort {
            id,
            gids,
            pkeys: self.pkeys.clone(),
            active: true,
            ring: VecDeque::new(),
            stalled: None,
            faults: PortFaults::default(),
        });
    }

    /// A port by its number, from 1 on.
    pub fn port(&self, number: u8) -> Result<&HcaPort, CreateError> {
        let found = usize::from(number).checked_sub(1).and_then(|index| self.ports.get(index));
        found.ok_or(CreateError::OutOfRange {
            what: Kind::Port,
            value: number.into(),
            min: 1,
            max: self.ports.len() as u64,
        })
    }

    /// The queue pair behind a process's name.
    pub fn qp_named(&self, context: u32, id: QpId) -> Option<u32> {
        self.qp_names.get(id.0).filter(|name| name.context == context).map(|name| name.qp)
    }

    /// The queue pair of that number.
    pub fn qp_numbered(&self, number: u32) -> Option<u32> {
        let slot = (number & ((1 << self.number_bits()) - 1)).checked_sub(RESERVED_QPS)?;
        let name = self.qps.name_at(slot)?;
        self.qps.get(name).filter(|qp| qp.number == number).map(|_| name)
    }

    /// The number of the queue pair of that name: its slot, and above it as much of its generation as there
    /// is room for, so that what comes late for a destroyed one finds none.
    pub fn number_of_qp(&self, name: u32) -> u32 {
        (generation_of(name) << self.number_bits() | (slot_of(name) + RESERVED_QPS)) & 0xff_ffff
    }

    fn number_bits(&self) -> u32 {
        if self.qps_max < 0xff00 { 16 } else { 20 }
    }

    /// Notifies a process.
    pub fn event(&mut self, cx: &mut Cx<'_>, context: u32, event: AsyncEvent) {
        if let Some(context) = self.contexts.get_mut(context) {
            context.events.push_back(event);
            cx.woken.insert(context.owner);
        }
        if cx.trace.is_on() {
            cx.trace.note(cx.now, Subject::Device(self.id.0), format_args!("event {event:?}"));
        }
    }

    /// Notifies all processes.
    pub fn event_to_all(&mut self, cx: &mut Cx<'_>, event: AsyncEvent) {
        for context in self.contexts.names(|context| !context.gone) {
            self.event(cx, context, event);
        }
    }

    /// Notifies the processes that have a queue pair, each by its own name.
    pub fn qp_event(&mut self, cx: &mut Cx<'_>, qp: u32, event: impl Fn(QpId) -> AsyncEvent) {
        let names = self.qps.get(qp).map(|qp| qp.names.clone()).unwrap_or_default();
        for name in names {
            let Some(context) = self.qp_names.get(name).map(|name| name.context) else { continue };
            self.event(cx, context, event(QpId(name)));
        }
    }

    /// Ends an entry: what overflowed fails its queue pairs, ports that were rung send.
    pub fn process_due(&mut self, cx: &mut Cx<'_>) {
        loop {
            if let Some(cq) = self.overflowed.pop() {
                self.fail_users_of(cx, cq);
            } else if let Some(port) = self.rung.pop_first() {
                self.serve(cx, port);
            } else {
                return;
            }
        }
    }

    /// A process is gone.
    pub fn close(&mut self, context: u32) {
        self.clear(context);
        self.contexts.remove(context);
    }

    /// All objects of a process go; what other processes hold by names of their own stays.
    pub fn clear(&mut self, context: u32) {
        for name in self.qp_names.names(|name| name.context == context) {
            let _ = self.destroy_qp(context, QpId(name));
        }
        for srq in self.srqs.names(|srq| srq.context == context) {
            self.remove_srq(srq);
        }
        for cq in self.cqs.names(|cq| cq.context == context) {
            self.cqs.remove(cq);
        }
        for name in self.domain_names.names(|name| name.context == context) {
            self.remove_domain_name(name);
        }
        for mr in self.mrs.names(|mr| mr.context == context) {
            self.remove_mr(mr);
        }
        for handle in self.handles.names(|handle| handle.context == context) {
            self.handles.remove(handle);
        }
        for pd in self.pds.names(|pd| pd.context == context) {
            self.pds.remove(pd);
        }
    }

    /// A completion queue by its name, if the process has it.
    pub fn cq_of(&mut self, context: u32, cq: CqId) -> Option<&mut Cq> {
        self.cqs.get_mut(cq.0).filter(|found| found.context == context)
    }
}

/// Queue pairs 0 and 1 are those of management.
const RESERVED_QPS: u32 = 2;

/// The GID of a port that has just its own number: prefix `fe80::/64`.
fn link_local(guid: u64) -> Gid {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..].copy_from_slice(&guid.to_be_bytes());
    Gid(gid)
}

/// The error for a name that names nothing.
pub(super) const fn unknown(what: Kind, name: u32) -> CreateError {
    CreateError::Unknown { what, name }
}
