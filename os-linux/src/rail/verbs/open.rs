//! Opening the rail: makes the objects that exist once, in order of dependency.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use rerail_core::ids::PeerId;
use rerail_core::time::Time;
use rerail_verbs::contract::{
    CqId, CqInit, CreateError, Device, ModifyError, PdId, Qp, QpCaps, QpChange, QpInit, QpKind, QpState, Srq, SrqInit,
    XrcSrqInit, XrcdFile, XrcdId,
};
use rerail_verbs::{Gid, Moderation, Port, PortState};

use super::address::Address;
use super::blocked_paths::BlockedPaths;
use super::datagrams::Datagrams;
use super::link::Links;
use super::options::{DATAGRAM_SENDS, INLINE_BYTES_MAX, SGES_MAX, VerbsError, VerbsOptions, XrcOptions, within};
use super::outage::{self, gid_of};
use super::partition::{self, Partition};
use super::peers::Peers;
use super::receive::Receives;
use super::registry::Registry;
use super::revive::{Held, Revival};
use super::send::{QUIET_MAX, Works};
use super::slab::Slab;
use super::srq::QUEUES_MAX;
use super::xrc::Initiators;
use super::{NO_NUMBER, Scratch, VerbsRail};
use crate::auth::{Credentials, Secret};
use crate::rail::RailCounters;

/// Starts the transcript that the datagrams' queue key is made of (V-1).
const QKEY_LABEL: &[u8] = b"rerail verbs queue key 1";
/// Starts the transcript that the name of an XRC domain is made of (V-14).
const DOMAIN_LABEL: &[u8] = b"rerail verbs XRC domain 1";

/// Of Ethernet's priorities (IEEE 802.1Q), which service levels are there.
const PRIORITY_MAX: u8 = 7;

/// The identity of this process.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its key, and the job's secret.
    pub credentials: Credentials,
    /// The job's number.
    pub job: u64,
    /// This process's rank.
    pub me: PeerId,
    /// The secret for all nonces of this rail: fresh random bytes, never used for another rail or process.
    pub secret: Secret,
}

/// The objects made once.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    pub pd: PdId,
    pub cq: CqId,
    /// In the order of [`Layout::queues`](super::options::Layout); by RC there is one.
    pub srqs: heapless::Vec<Srq, QUEUES_MAX>,
    /// XRC: the domain that these are in.
    pub domain: Option<XrcdId>,
    /// For datagrams.
    pub ud: Qp,
}

/// The port, and the device's limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortFacts {
    pub number: u8,
    /// Index of the GID in its address.
    pub gid_index: u8,
    pub partition: Partition,
    pub address: Address,
    /// Largest packet payload in bytes.
    pub mtu: u16,
    pub bytes_per_second: u64,
    pub sges: usize,
    pub inline_bytes: usize,
    pub reads_served: u8,
    pub reads_open: u8,
    pub qkey: u32,
    /// Sends that make no completion, for which the completion queue has room.
    pub quiet: u32,
    /// Most requests of a send queue.
    pub send_depth_max: u32,
}

impl<D: Device> VerbsRail<D> {
    /// A rail over one port of a device. It takes the device: only the rail may destroy objects made with it.
    ///
    /// # Errors
    /// See [`VerbsError`]; the device is dropped then.
    pub fn open(mut device: D, port: u8, options: VerbsOptions, identity: Identity) -> Result<Self, VerbsError> {
        let layout = options.layout();
        let qkey = identity.credentials.job().sign([QKEY_LABEL, &identity.job.to_le_bytes(), &[]]);
        // A key with the top bit set would stand for the sending queue pair's own (InfiniBand specification,
        // 10.2.5).
        let qkey = u32::from_le_bytes([qkey[0], qkey[1], qkey[2], qkey[3]]) & 0x7FFF_FFFF;
        options.check(&device.limits())?;
        let mut slab = Slab::new(layout.bytes).ok_or(VerbsError::Memory { bytes: layout.bytes })?;
        let Made { objects, mut port, registry, usable } = make(&mut device, port, &options, (&mut slab, qkey), None)?;
        port.address.domain = options.xrc.map(|xrc| domain_name(&identity, &port.address.gid, &xrc));
        if !usable {
            let state = device.port(port.number).map_or(PortState::Down, |port| port.state);
            return Err(match state {
                PortState::Active if !port.address.ethernet && port.address.lid == u16::from(options.path) => {
                    VerbsError::NoLid { port: port.number }
                }
                PortState::Active => VerbsError::NoGid { port: port.number },
                state => VerbsError::Port { port: port.number, state },
            });
        }
        let mut rail = VerbsRail {
            peers: Peers::new(options.peers, port.address.global),
            blocked_paths: BlockedPaths::default(),
            works: Works::new(options.sends, port.quiet),
            receives: Receives::new(&layout.queues),
            datagrams: Datagrams::new(options.datagrams),
            links: Links::default(),
            initiators: Initiators::default(),
            by_number: HashMap::default(),
            last_number: NO_NUMBER,
            by_name: HashMap::new(),
            due_links: VecDeque::new(),
            to_feed: VecDeque::new(),
            closing: Vec::new(),
            failing: Vec::new(),
            closings: 0,
            reports: VecDeque::new(),
            taken: Vec::new(),
            polls: 0,
            batch: Vec::new(),
            unfinished: false,
            idle_until: Time(0),
            pieces: Vec::new(),
            scratch: Scratch::new(),
            attempts: 1,
            nonces: 0,
            round_trip: None,
            outage: None,
            port_checked_at: None,
            announced: port.address,
            broken: false,
            revival: Revival::never(),
            counters: RailCounters::default(),
            now: Time(0),
            options,
            identity,
            port,
            layout,
            objects,
            registry,
            device: Held::new(device),
            slab,
        };
        rail.start_up()?;
        tracing::debug!(rail = %rail.options.name, buffers = ?rail.options.receive_buffers(), "receive buffers: bytes, count");
        Ok(rail)
    }

    /// Initialises objects that were just made.
    pub(super) fn start_up(&mut self) -> Result<(), VerbsError> {
        self.start_datagrams()?;
        self.refill_datagrams()?;
        Ok(self.refill(true)?)
    }

    /// The queue pair for datagrams, from RESET to RTS.
    pub(super) fn start_datagrams(&mut self) -> Result<(), ModifyError> {
        let ud = self.objects.ud.id;
        let init = QpChange {
            pkey_index: Some(self.port.partition.index),
            port: Some(self.port.number),
            qkey: Some(self.port.qkey),
            ..QpChange::to(QpState::Init)
        };
        self.device.modify_qp(ud, &init)?;
        self.device.modify_qp(ud, &QpChange::to(QpState::Rtr))?;
        self.device.modify_qp(ud, &QpChange { send_psn: Some(0), ..QpChange::to(QpState::Rts) })
    }
}

/// The result of [`make`], and whether the port can be used now.
pub(super) struct Made {
    pub objects: Objects,
    pub port: PortFacts,
    pub registry: Registry,
    pub usable: bool,
}

/// Makes everything on a device that was just opened, for the first time or again; `before` are the
/// registrations of an earlier life. The device is to be dropped where this fails.
pub(super) fn make(
    device: &mut impl Device,
    port: u8,
    options: &VerbsOptions,
    (slab, qkey): (&mut Slab, u32),
    before: Option<(&Registry, (u8, Gid))>,
) -> Result<Made, VerbsError> {
    let limits = device.limits();
    options.check(&limits)?;
    let offers = device.offers();
    let on_demand = options.is_on_demand(device.name(), &offers)?;
    let made = |what| move |why| VerbsError::Create { what, why };
    let attributes = device.port(port).map_err(made("port"))?;
    within("path", options.path.into(), 0, (1 << attributes.lmc) - 1)?;
    let ethernet = Address::is_ethernet(attributes.link_layer);
    if ethernet {
        within("service_level", options.service_level.into(), 0, PRIORITY_MAX.into())?;
    }
    let partition = partition::choose(device, &attributes, options.pkey)?;
    let known = before.map(|(_, gid)| gid);
    let (gid_index, gid) = gid_of(device, &attributes, options.gid_index, known).map_err(made("GID"))?;
    let pd = device.alloc_pd().map_err(made("protection domain"))?;
    let layout = options.layout();
    // They make no completions unless they fail.
    let quiet = QUIET_MAX.min(limits.cq_depth - layout.cq_depth);
    let cq = device.create_cq(&CqInit { depth: layout.cq_depth + quiet }).map_err(made("completion queue"))?;
    if options.moderation != Moderation::NONE {
        let moderated = device.moderate_cq(cq, options.moderation);
        let (device, most) = (device.name(), offers.moderation);
        moderated.map_err(|why| VerbsError::Moderation { device: device.to_owned(), most, why })?;
    }
    let mut srq = SrqInit { depth: 0, sges: 1, xrc: None };
    if let Some(XrcOptions { file, .. }) = options.xrc {
        if !limits.xrc {
            return Err(VerbsError::NoXrc { device: device.name().to_owned() });
        }
        let file = XrcdFile::Shared { file, create: true, exclusive: false };
        let domain = device.open_xrcd(file).map_err(made("XRC domain"))?;
        srq.xrc = Some(XrcSrqInit { domain, cq });
    }
    let domain = srq.xrc.map(|xrc| xrc.domain);
    let srqs = layout.queues.iter().map(|queue| device.create_srq(pd, &SrqInit { depth: queue.count, ..srq }));
    let srqs = srqs.collect::<Result<_, _>>().map_err(made("shared receive queue"))?;
    let ud = datagram_qp(device, options, pd, cq).map_err(|why| match why {
        CreateError::System { code: libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT } => {
            VerbsError::MissingFeature { what: "datagram queue pairs" }
        }
        why => VerbsError::Create { what: "queue pair for datagrams", why },
    })?;
    let mut registry = match before {
        Some((before, _)) => before.renewed(pd, limits.iova),
        None => Registry::new(pd, limits.iova, options.registry_bounds()),
    };
    registry.set_on_demand(on_demand);
    let base = registry.address(0, layout.bytes);
    slab.register(device, pd, base)?;
    let address = Address {
        ethernet,
        global: attributes.needs_global,
        lid: attributes.lid | u16::from(options.path), // V-10
        lmc: attributes.lmc,
        qp: ud.number,
        gid,
        domain: None,
    };
    let port = PortFacts {
        number: port,
        gid_index,
        partition,
        address,
        mtu: attributes.mtu_bytes.unwrap_or(256),
        bytes_per_second: bytes_per_second(&attributes),
        sges: SGES_MAX.min(limits.sges as usize).max(1),
        inline_bytes: INLINE_BYTES_MAX.min(limits.inline_bytes as usize).min(options.inline_bytes.into()),
        reads_served: limits.reads_served.min(options.reads),
        reads_open: limits.reads_open.min(options.reads),
        quiet,
        send_depth_max: limits.queue_depth,
        qkey,
    };
    Ok(Made {
        objects: Objects { pd, cq, srqs, domain, ud },
        port,
        registry,
        usable: outage::is_usable(&attributes, &gid),
    })
}

/// The peers' name for this node's XRC domain (V-14): processes that have opened the same file of the
/// same host, over the same port, have the same name for it, and no others; the name reveals nothing
/// about the file.
fn domain_name(identity: &Identity, gid: &Gid, xrc: &XrcOptions) -> u64 {
    let mut place = [0; 32];
    place[..16].copy_from_slice(&gid.0);
    place[16..24].copy_from_slice(&xrc.file_id[0].to_le_bytes());
    place[24..].copy_from_slice(&xrc.file_id[1].to_le_bytes());
    let name = identity.credentials.job().sign([DOMAIN_LABEL, &identity.job.to_le_bytes(), &place]);
    name[..8].iter().fold(0, |name, byte| name << 8 | u64::from(*byte))
}

fn datagram_qp(device: &mut impl Device, options: &VerbsOptions, pd: PdId, cq: CqId) -> Result<Qp, CreateError> {
    let (send_depth, recv_depth) = (DATAGRAM_SENDS, options.datagrams.into());
    let caps = QpCaps { send_depth, recv_depth, send_sges: 1, recv_sges: 1, inline_bytes: 0 };
    let (pd, cq) = (Some(pd), Some(cq));
    device.create_qp(&QpInit { pd, send_cq: cq, recv_cq: cq, caps, ..QpInit::of(QpKind::Ud) })
}

/// A port's bandwidth in one direction; 0: unknown. Links up to QDR spend a fifth on their line code
/// (8b/10b), later ones 2 bits of 66.
fn bytes_per_second(port: &Port) -> u64 {
    let Some(mbit) = port.mbit_per_second() else { return 0 };
    let bits = u64::from(mbit) * 1_000_000;
    let data =
        if port.lane_mbit_per_second.is_some_and(|lane| lane <= 10_000) { bits / 10 * 8 } else { bits / 66 * 64 };
    data / 8
}

impl<D: Device> fmt::Debug for VerbsRail<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("VerbsRail");
        shown.field("name", &self.options.name).field("me", &self.identity.me).field("port", &self.port);
        shown.field("links", &self.links).field("counters", &self.counters).finish_non_exhaustive()
    }
}
