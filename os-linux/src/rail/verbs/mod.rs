//! The verbs rail: a reliable connection per peer over any device of the contract (`rerail_verbs::contract`), the software
//! HCA of the simulator as well as libibverbs.
//!
//! Packets are sends into receives of one shared queue, copied once on either side. Writes and reads are RDMA between
//! registered memory. Connections are set up by datagrams that prove the job's key (rules V-1 to V-6, `setup`). A queue
//! pair that has failed is never used again.
//!
//! | file | holds |
//! |---|---|
//! | `options` | sizes, knobs, and why a rail can't be opened |
//! | `wire` | the datagram of the set-up |
//! | `setup` | connecting |
//! | `link` | one connection |
//! | `flow` | posting, completions, events |
//! | `slab` | registered buffers, and the only raw memory |
//!
//! Invariants: completions that may wait at once fit the completion queue, so that it can't overflow: every receive
//! buffer, every post of every connection, every datagram. No clock, no system call, no thread.

mod flow;
mod link;
mod options;
mod setup;
mod slab;

mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;

use rerail_core::endpoint::{PostStatus, RailFault};
use rerail_core::ids::{PeerId, PostId};
use rerail_core::rail::{Caps, RailFacts};
use rerail_core::time::Time;
use rerail_verbs::contract::{
    Access, AddressVector, AhId, Completion, CqId, CqInit, Device, GlobalRoute, MrId, PdId, Qp, QpCaps, QpChange,
    QpInit, QpKind, QpState, RecvRequest, Srq, SrqInit,
};
use rerail_verbs::{Gid, LinkLayer, PortState};

use super::{AddressError, MemoryKey, Outgoing, Piece, Rail, RailCounters, Sink};
use crate::auth::JobKey;
use link::{Link, Stage};
use slab::{Addresses, Slab};
use wire::CALL_BYTES;

pub use options::{VerbsError, VerbsOptions};

/// Bytes before a received datagram (InfiniBand specification, 11.4.1.2: the global route header's place).
const GRH_BYTES: u64 = 40;

/// Datagrams that may be waiting to be read, and to be sent.
const DATAGRAMS: u32 = 64;

/// The queue key of all rails' datagrams. It is no secret: calls are sealed.
const QKEY: u32 = 0x5252_0001;

/// Where a peer's rail is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    lid: u16,
    qp: u32,
    gid: Gid,
}

/// A rail over a port of a device.
pub struct VerbsRail<D: Device> {
    device: D,
    options: VerbsOptions,
    key: JobKey,
    job: u64,
    rank: PeerId,
    facts: RailFacts,
    mtu: u16,
    own: Address,
    ethernet: bool,
    pd: PdId,
    cq: CqId,
    srq: Srq,
    /// For calls.
    ud: Qp,
    receives: Slab,
    datagrams_in: Slab,
    datagrams_out: Slab,
    datagrams_free: Vec<u32>,
    addresses: Addresses,
    /// By rank: where its rail is.
    peers: Vec<Option<Address>>,
    handles: BTreeMap<u32, AhId>,
    links: BTreeMap<u32, Link>,
    /// By number of the queue pair: the peer's rank.
    by_qp: BTreeMap<u32, u32>,
    /// Memory that peers may reach, by its key.
    registered: BTreeMap<u64, MrId>,
    /// Calls made so far: no two have the same nonce.
    calls: u64,
    /// What is to be told at the next poll.
    downs: VecDeque<(PeerId, RailFault)>,
    failed: VecDeque<PostId>,
    completions: Vec<Completion>,
    pieces: Vec<Piece>,
    /// The device has failed for good.
    dead: bool,
    counters: RailCounters,
}

impl<D: Device> VerbsRail<D> {
    /// A rail over `options.port` of a device.
    ///
    /// # Errors
    /// See [`VerbsError`].
    pub fn open(mut device: D, options: VerbsOptions, key: JobKey, job: u64, rank: PeerId) -> Result<Self, VerbsError> {
        fn failed(what: &'static str) -> impl Fn(rerail_verbs::contract::CreateError) -> VerbsError {
            move |why| VerbsError::Create { what, why }
        }
        let port = device.port(options.port).map_err(failed("port"))?;
        if port.state != PortState::Active {
            return Err(VerbsError::PortDown { port: options.port });
        }
        let limits = device.limits();
        let slot_bytes = options.slot_bytes();
        let posts = u64::from(options.connections_max) * u64::from(options.posts_max);
        let needed = posts + u64::from(options.receives) + 2 * u64::from(DATAGRAMS);
        if needed > u64::from(limits.cq_depth) {
            return Err(VerbsError::TooDeep { needed, limit: limits.cq_depth });
        }
        let pd = device.alloc_pd().map_err(failed("protection domain"))?;
        let cq = device.create_cq(&CqInit { depth: needed as u32 }).map_err(failed("completion queue"))?;
        let srq = SrqInit { depth: options.receives, sges: 1, xrc: None };
        let srq = device.create_srq(pd, &srq).map_err(failed("shared receive queue"))?;
        let caps = QpCaps { send_depth: DATAGRAMS, recv_depth: DATAGRAMS, send_sges: 1, recv_sges: 1, inline_bytes: 0 };
        let ud = QpInit {
            kind: QpKind::Ud,
            pd: Some(pd),
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            domain: None,
            caps,
            signal_all: true,
        };
        let ud = device.create_qp(&ud).map_err(failed("queue pair for datagrams"))?;
        let init =
            QpChange { pkey_index: Some(0), port: Some(options.port), qkey: Some(QKEY), ..QpChange::to(QpState::Init) };
        let rts = QpChange { send_psn: Some(0), ..QpChange::to(QpState::Rts) };
        for change in [init, QpChange::to(QpState::Rtr), rts] {
            device.modify_qp(ud.id, &change).map_err(VerbsError::Modify)?;
        }
        let mut addresses = Addresses::new(limits.iova);
        let mut slab = |device: &mut D, slots: u32, bytes| {
            Slab::new(device, pd, (slots.into(), bytes), &mut addresses).map_err(VerbsError::Register)
        };
        let receives = slab(&mut device, options.receives, slot_bytes)?;
        let datagrams_in = slab(&mut device, DATAGRAMS, GRH_BYTES + CALL_BYTES as u64)?;
        let datagrams_out = slab(&mut device, DATAGRAMS, CALL_BYTES as u64)?;
        let gid = device.gid(options.port, options.gid_index).map_err(failed("GID"))?;
        let path_bits = u16::from(options.path) & ((1 << port.lmc) - 1);
        let lid = if port.lid == 0 { 0 } else { port.lid | path_bits };
        let facts = RailFacts {
            kind: options.kind,
            caps: Caps { write: options.write, read: options.read, registration: true, lossless: false },
            eager_bytes_max: options.eager_bytes_max,
            segment_bytes_max: options.segment_bytes_max,
            posts_max: options.posts_max,
            // Line code taken off as up to QDR (8/10), which is the least.
            bytes_per_second: u64::from(port.mbit_per_second().unwrap_or(0)) * 100_000,
        };
        let mut rail = VerbsRail {
            mtu: port.mtu_bytes.unwrap_or(1024),
            own: Address { lid, qp: ud.number, gid },
            ethernet: port.link_layer == LinkLayer::Ethernet || port.lid == 0,
            peers: vec![None; options.peers as usize],
            datagrams_free: (0..DATAGRAMS).rev().collect(),
            options,
            device,
            key,
            job,
            rank,
            facts,
            pd,
            cq,
            srq,
            ud,
            receives,
            datagrams_in,
            datagrams_out,
            addresses,
            handles: BTreeMap::new(),
            links: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            registered: BTreeMap::new(),
            calls: 0,
            downs: VecDeque::new(),
            failed: VecDeque::new(),
            completions: Vec::new(),
            pieces: Vec::new(),
            dead: false,
            counters: RailCounters::default(),
        };
        for slot in 0..DATAGRAMS {
            rail.post_datagram_receive(slot).map_err(VerbsError::Post)?;
        }
        for slot in 0..rail.options.receives {
            rail.post_receive(slot).map_err(VerbsError::Post)?;
        }
        Ok(rail)
    }

    fn post_receive(&mut self, slot: u32) -> Result<(), rerail_verbs::contract::PostError> {
        let sge = self.receives.sge(slot, self.options.slot_bytes());
        let request = RecvRequest { id: flow::id_of(flow::Work::Receive, 0, slot), sges: &[sge] };
        self.device.post_srq_recv(self.srq.id, &[request])
    }

    fn post_datagram_receive(&mut self, slot: u32) -> Result<(), rerail_verbs::contract::PostError> {
        let sge = self.datagrams_in.sge(slot, GRH_BYTES + CALL_BYTES as u64);
        let request = RecvRequest { id: flow::id_of(flow::Work::DatagramIn, 0, slot), sges: &[sge] };
        self.device.post_recv(self.ud.id, &[request])
    }

    /// How to reach a peer's port.
    fn vector_to(&self, address: Address) -> AddressVector {
        let route = GlobalRoute { dgid: address.gid, source_index: self.options.gid_index, hop_limit: 64 };
        AddressVector {
            port: self.options.port,
            dlid: address.lid,
            source_path_bits: self.options.path,
            service_level: 0,
            global: self.ethernet.then_some(route),
        }
    }

    /// The device, to look at.
    pub fn device(&self) -> &D {
        &self.device
    }
}

impl<D: Device> Rail for VerbsRail<D> {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn facts(&self) -> RailFacts {
        self.facts
    }

    fn address(&self) -> String {
        let Address { lid, qp, gid } = self.own;
        let gid: String = gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{lid:x}/{qp:x}/{gid}")
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        let bad = |why| AddressError { address: address.to_owned(), why };
        let parsed = parse_address(address).ok_or_else(|| bad("not of the form LID/QP/GID, in hexadecimal"))?;
        match self.peers.get_mut(peer.0 as usize) {
            Some(slot) => *slot = Some(parsed),
            None => return Err(bad("its rank is not in the job")),
        }
        Ok(true)
    }

    fn connect(&mut self, now: Time, peer: PeerId) {
        self.call_peer(now, peer);
    }

    fn disconnect(&mut self, peer: PeerId) {
        let Some(link) = self.links.get_mut(&peer.0) else { return };
        link.told = false;
        // A transfer uses the payload's own memory, which must be free when this returns; and without packets under way
        // nothing has to be waited for but what the peer is still sending.
        let transfers = link.posts.iter().any(|posted| matches!(posted, link::Posted::Transfer(..)));
        if link.stage != Stage::Up || transfers || self.dead {
            self.drop_link(peer);
        } else {
            // The next poll knows the time.
            link.stage = Stage::Closing { until: Time(0) };
        }
    }

    fn post(&mut self, outgoing: Outgoing<'_>) {
        let (peer, id) = (outgoing.peer, outgoing.id);
        if let Err(fault) = self.try_post(&outgoing) {
            match fault {
                Some(fault) => self.fail(peer, fault),
                // Not of this peer's making: this post alone fails.
                None => self.failed.push_back(id),
            }
        }
    }

    fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        let access = Access { local_write: write, remote_write: write, remote_read: !write, remote_atomic: false };
        match slab::register(&mut self.device, self.pd, memory, access, &mut self.addresses) {
            Ok((mr, address)) => {
                self.registered.insert(mr.rkey.into(), mr.id);
                Ok(MemoryKey { key: mr.rkey.into(), address })
            }
            Err(error) => Err(RailFault::Device { code: flow::code_of_registration(&error) }),
        }
    }

    fn deregister(&mut self, key: MemoryKey) {
        if let Some(mr) = self.registered.remove(&key.key) {
            // A device that has failed has no registration left to end.
            let _ = self.device.deregister(mr);
        }
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        let done = self.take_completions(now, sink) + self.take_events() + self.run_timers(now);
        done + self.report(sink)
    }

    fn next_timeout(&self) -> Option<Time> {
        if !self.downs.is_empty() || !self.failed.is_empty() {
            return Some(Time(0));
        }
        self.links.values().filter_map(Link::next_timeout).min()
    }

    fn is_closing(&self) -> bool {
        self.links.values().any(|link| matches!(link.stage, Stage::Closing { .. }))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.wait_fd()
    }

    fn arm(&mut self) -> bool {
        // A completion between the last poll and this request makes an event none the less, because the rail polls once
        // more after it has asked: by the caller's next round.
        self.dead || self.device.request_notify(self.cq, false).is_ok()
    }

    fn disarm(&mut self) {
        while self.device.cq_event().is_some() {}
    }

    fn counters(&self) -> RailCounters {
        self.counters
    }
}

impl<D: Device> VerbsRail<D> {
    /// Tells what was found out since.
    fn report(&mut self, sink: &mut dyn Sink) -> usize {
        let count = self.downs.len() + self.failed.len();
        while let Some(id) = self.failed.pop_front() {
            sink.completed(id, PostStatus::Failed);
        }
        while let Some((peer, fault)) = self.downs.pop_front() {
            sink.down(peer, fault);
        }
        count
    }
}

impl<D: Device> Drop for VerbsRail<D> {
    fn drop(&mut self) {
        for (_, link) in std::mem::take(&mut self.links) {
            link.destroy(&mut self.device);
        }
        for (_, mr) in std::mem::take(&mut self.registered) {
            let _ = self.device.deregister(mr);
        }
        // What the slabs hold is deregistered with the device, which goes before them... by being told here.
        let _ = self.device.destroy_qp(self.ud.id);
        let _ = self.device.destroy_srq(self.srq.id);
    }
}

fn parse_address(text: &str) -> Option<Address> {
    let mut parts = text.split('/');
    let (lid, qp, gid) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || gid.len() != 32 || !gid.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&gid[2 * index..2 * index + 2], 16).ok()?;
    }
    let qp = u32::from_str_radix(qp, 16).ok().filter(|qp| qp >> 24 == 0)?;
    Some(Address { lid: u16::from_str_radix(lid, 16).ok()?, qp, gid: Gid(bytes) })
}
