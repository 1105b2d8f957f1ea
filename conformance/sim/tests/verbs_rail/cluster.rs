//! Hosts with one HCA each at a switch, a verbs rail on each, and sinks that complain about what must not be.

use std::collections::{BTreeMap, BTreeSet};

use rerail_core::endpoint::{Arrival, PostKind, PostStatus, RailFault, Span};
use rerail_core::ids::{Key, PeerId, PlaceId, PostId};
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::{Body, Common, Data, RemoteKey, Repr};
use rerail_linux::auth::{Credentials, PeerKey, Secret};
use rerail_linux::rail::verbs::{Identity, OnDemandUse, VerbsOptions, VerbsRail, XrcOptions};
use rerail_linux::rail::{MemoryKey, Outgoing, Piece, Rail, Sink};
use rerail_sim::hca::{Fabric, Fault, HcaOptions, SharedFabric, SimDevice};
use rerail_sim::net::{BusModel, HcaId, HcaModel, LinkModel, PlaneModel, PortId, SubnetModel};
use rerail_sim::trace::Trace;
use rerail_verbs::Moderation;

pub const JOB: u64 = 0xB0B;
/// Queue pairs of one end of a connection that shares them with none: with XRC, an initiator and a target.
pub const END: u32 = if crate::XRC { 2 } else { 1 };
/// The file by which processes of a host find their XRC domain.
pub const FILE: XrcOptions = XrcOptions { sizes: crate::SIZES, ..XrcOptions::new(7, [1, 7]) };
/// Far more rounds than any test needs.
const ROUNDS_MAX: usize = 200_000;

/// Of a rank, in the job of this secret.
pub fn credentials(rank: u32, job: Secret) -> Credentials {
    Credentials::new([rank as u8 + 1; 32], job)
}

/// Sizes small enough that their bounds are felt.
pub fn options(peers: u32) -> VerbsOptions {
    VerbsOptions {
        eager_bytes_max: 1024,
        segment_bytes: 4096,
        posts_max: 8,
        sends: 6,
        receives: 12,
        datagrams: 8,
        // 4.096 us * 2^8, three times: a dead peer shows after a few milliseconds.
        ack_timeout: 8,
        retry_count: 3,
        rnr_timer: 1,
        handshake_timeout: Nanos::from_millis(200),
        resend_first: Nanos::from_micros(100),
        resend_max: Nanos::from_millis(5),
        drain_time: Nanos::from_millis(20),
        xrc: crate::XRC.then_some(FILE),
        on_demand: if crate::ON_DEMAND { OnDemandUse::Always } else { OnDemandUse::Never },
        moderation: if crate::ON_DEMAND { Moderation { count: 4, period_us: 20 } } else { Moderation::NONE },
        ..VerbsOptions::new(peers, 0)
    }
}

/// A packet: a DATA header with `number`, and its payload.
fn header(source: PeerId, number: u64, payload_bytes: usize) -> Vec<u8> {
    let common = Common { source: source.0, payload_bytes: payload_bytes as u32, ..Common::default() };
    let body = Body::Data(Data { operation: number, offset: 0 });
    Repr { common, body }.emit_vec().unwrap().to_vec()
}

/// Bytes that differ from packet to packet and from place to place.
pub fn payload(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u64 ^ (at as u64 >> 8) ^ number.wrapping_mul(37)) as u8).collect()
}

/// A sink that keeps what is reported to it.
#[derive(Default)]
pub struct Recorder {
    open: BTreeMap<u32, (PeerId, u64, Vec<u8>)>,
    places: u32,
    /// Whole packets: source, number, bytes.
    pub taken: Vec<(PeerId, u64, Vec<u8>)>,
    pub completed: Vec<(PostId, PostStatus)>,
    pub up: Vec<PeerId>,
    pub down: Vec<(PeerId, RailFault)>,
    pub standing: Vec<PeerId>,
    pub resets: usize,
    pub moves: usize,
    pub backs: usize,
    /// The packet with this number is answered with `Close`.
    pub close_at: Option<u64>,
}

// SAFETY: `place` answers with memory that this recorder owns and no other code refers to until `placed`.
unsafe impl Sink for Recorder {
    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival {
        assert!(self.standing.contains(&peer), "a packet from {peer:?}, which is not up");
        let repr = Repr::parse(header).unwrap();
        let Body::Data(Data { operation: number, .. }) = repr.body else { panic!("not sent by these tests") };
        if self.close_at == Some(number) {
            return Arrival::Close;
        }
        let memory = vec![0; repr.common.payload_bytes as usize];
        if memory.is_empty() {
            self.taken.push((peer, number, memory));
            return Arrival::Done;
        }
        self.places += 1;
        self.open.insert(self.places, (peer, number, memory));
        Arrival::Place { id: PlaceId(Key { index: self.places, generation: 1 }), memory: Span::EMPTY }
    }

    fn place(&mut self, id: PlaceId, from: u64, pieces: &mut Vec<Piece>) -> bool {
        let (_, _, memory) = self.open.get_mut(&id.0.index).expect("an open placement");
        // In pieces of odd lengths.
        pieces.extend(memory[from as usize..].chunks_mut(1001).map(|p| Piece { start: p.as_mut_ptr(), len: p.len() }));
        true
    }

    fn placed(&mut self, id: PlaceId) {
        self.taken.push(self.open.remove(&id.0.index).expect("an open placement"));
    }

    fn completed(&mut self, id: PostId, status: PostStatus) {
        assert!(!self.completed.iter().any(|(done, _)| *done == id), "{id:?} is complete twice");
        self.completed.push((id, status));
    }

    fn up(&mut self, peer: PeerId) {
        assert!(!self.standing.contains(&peer), "{peer:?} is up already");
        self.standing.push(peer);
        self.up.push(peer);
    }

    fn down(&mut self, peer: PeerId, fault: RailFault) {
        self.standing.retain(|&standing| standing != peer);
        self.down.push((peer, fault));
    }

    fn reset(&mut self) {
        assert!(self.standing.is_empty(), "every subchannel is down before");
        self.resets += 1;
    }

    fn moved(&mut self) {
        self.moves += 1;
    }

    fn back(&mut self) {
        self.backs += 1;
    }
}

/// A process of the job.
pub struct Host {
    pub rail: VerbsRail<SimDevice>,
    pub me: PeerId,
    pub sink: Recorder,
    pub hca: HcaId,
    pub port: PortId,
    /// Payloads of posts, kept until the test ends.
    memory: Vec<Vec<u8>>,
    posts: u32,
}

impl Host {
    /// Registers memory that the test keeps for as long as it drives the rails.
    pub fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        // SAFETY: simulated devices reach memory only while they are driven, and until then it is there.
        unsafe { self.rail.register(memory, write) }
    }

    fn post(&mut self, to: PeerId, kind: PostKind, header: &[u8], mut memory: Vec<u8>, piece_bytes: usize) -> PostId {
        self.posts += 1;
        let id = PostId(Key { index: self.posts, generation: 7 });
        let pieces: Vec<Piece> =
            memory.chunks_mut(piece_bytes).map(|p| Piece { start: p.as_mut_ptr(), len: p.len() }).collect();
        // SAFETY: `self.memory` keeps the payload until the rail is gone.
        unsafe { self.rail.post(Outgoing { id, peer: to, kind, header, payload: &pieces, extent: 0 }) };
        self.memory.push(memory);
        id
    }

    /// Posts packet `number` with a payload cut into pieces of `piece_bytes`.
    pub fn send(&mut self, to: PeerId, number: u64, bytes: usize, piece_bytes: usize) -> PostId {
        let header = header(self.me, number, bytes);
        self.post(to, PostKind::Send, &header, payload(number, bytes), piece_bytes)
    }

    /// Posts bytes that are no packet.
    pub fn send_raw(&mut self, to: PeerId, bytes: &[u8]) -> PostId {
        self.post(to, PostKind::Send, bytes, Vec::new(), 1)
    }

    pub fn write(&mut self, to: PeerId, key: MemoryKey, number: u64, bytes: usize, piece_bytes: usize) -> PostId {
        let to_key = RemoteKey { rail: 0, connection: 0, key: key.key, address: key.address };
        self.post(to, PostKind::Write { to: to_key }, &[], payload(number, bytes), piece_bytes)
    }

    /// The place in `read_bytes` of what is read.
    pub fn read(&mut self, from: PeerId, key: MemoryKey, bytes: usize, piece_bytes: usize) -> (PostId, usize) {
        let from_key = RemoteKey { rail: 0, connection: 0, key: key.key, address: key.address };
        let id = self.post(from, PostKind::Read { from: from_key }, &[], vec![0; bytes], piece_bytes);
        (id, self.memory.len() - 1)
    }

    /// The memory of the post that was made as number `at`.
    pub fn post_memory(&self, at: usize) -> &[u8] {
        &self.memory[at]
    }

    /// The numbers of whole packets from `peer`, each checked to the last byte.
    pub fn numbers_from(&self, peer: PeerId) -> Vec<u64> {
        let from_peer = self.sink.taken.iter().filter(|taken| taken.0 == peer);
        from_peer
            .map(|(_, number, bytes)| {
                assert!(*bytes == payload(*number, bytes.len()), "packet {number} from {peer:?} is damaged");
                *number
            })
            .collect()
    }

    pub fn is_done(&self, id: PostId) -> bool {
        self.sink.completed.contains(&(id, PostStatus::Done))
    }
}

/// All of it.
pub struct Cluster {
    pub fabric: SharedFabric,
    pub hosts: Vec<Host>,
    pub now: Time,
}

impl Cluster {
    /// Hosts of ranks 0, 1, ... with rails of these options that have each other's addresses.
    pub fn new(options: impl IntoIterator<Item = VerbsOptions>) -> Self {
        Self::with(options, |_| Secret::new([0x42; 32]), HcaOptions::default())
    }

    pub fn with(
        options: impl IntoIterator<Item = VerbsOptions>,
        key: impl Fn(u32) -> Secret,
        hca_options: HcaOptions,
    ) -> Self {
        Self::on_nodes(1, options, key, hca_options)
    }

    /// The same, with so many processes on each host, which share its HCA.
    pub fn on_nodes(
        per_node: usize,
        options: impl IntoIterator<Item = VerbsOptions>,
        key: impl Fn(u32) -> Secret,
        hca_options: HcaOptions,
    ) -> Self {
        let mut fabric = Fabric::new(1, Trace::off());
        let plane = PlaneModel { latency_ns: 0, bytes_per_second: 0 };
        let subnet = fabric.add_subnet(&SubnetModel { latency_ns: 200, planes: vec![plane] });
        let options: Vec<VerbsOptions> = options.into_iter().collect();
        // Every other device registers memory under its own address alone, as those of libibverbs do.
        let options_of = |node: usize| {
            let mut options = hca_options.clone();
            options.limits.iova = node.is_multiple_of(2);
            options
        };
        let nodes: Vec<(HcaId, PortId)> = (0..options.len().div_ceil(per_node))
            .map(|node| {
                let host = fabric.add_host();
                let bus = BusModel { bytes_per_second: 1_000_000_000, ..BusModel::default() };
                let bus = fabric.add_bus(host, bus);
                let hca = fabric.add_hca(bus, HcaModel::default(), options_of(node));
                (hca, fabric.add_port(hca, subnet, LinkModel::default(), 16 + node as u16, 0))
            })
            .collect();
        let fabric = fabric.shared();
        let hosts = options.into_iter().enumerate().map(|(rank, options)| {
            let (hca, port) = nodes[rank / per_node];
            let device = SimDevice::open(&fabric, hca, rank as u32).unwrap();
            let me = PeerId(rank as u32);
            let (credentials, secret) = (credentials(me.0, key(me.0)), Secret::new([rank as u8 + 1; 32]));
            let identity = Identity { credentials, job: JOB, me, secret };
            let rail = VerbsRail::open(device, 1, options, identity).unwrap();
            Host { rail, me, sink: Recorder::default(), hca, port, memory: Vec::new(), posts: 0 }
        });
        let hosts = hosts.collect();
        let mut cluster = Cluster { fabric, hosts, now: Time(1_000) };
        cluster.fabric.borrow_mut().advance(cluster.now);
        let addresses: Vec<String> = cluster.hosts.iter().map(|host| host.rail.address()).collect();
        for host in &mut cluster.hosts {
            for (rank, address) in addresses.iter().enumerate() {
                let peer = PeerId(rank as u32);
                assert_eq!(host.rail.add_peer(peer, address), Ok(peer != host.me));
                host.rail.trust(peer, &PeerKey::Whole(credentials(peer.0, Secret::new([0; 32])).public()));
            }
        }
        cluster
    }

    /// The same, with rails that open their devices again.
    pub fn reviving(mut self) -> Self {
        let fabric = &self.fabric;
        let revived = self.hosts.into_iter().map(|host| {
            let (fabric, hca, rank) = (fabric.clone(), host.hca, host.me.0);
            Host { rail: host.rail.reopen_with(Box::new(move || SimDevice::open(&fabric, hca, rank))), ..host }
        });
        self.hosts = revived.collect();
        self
    }

    /// Two hosts with equal options.
    pub fn pair(options: &VerbsOptions) -> Self {
        Self::new([options.clone(), options.clone()])
    }

    /// Two hosts that are connected.
    pub fn connected(options: &VerbsOptions) -> Self {
        let mut cluster = Self::pair(options);
        cluster.connect(0, 1);
        cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
        cluster
    }

    pub fn inject(&self, fault: Fault) {
        self.fabric.borrow_mut().inject(&fault);
    }

    pub fn connect(&mut self, from: usize, to: u32) {
        let now = self.now;
        self.hosts[from].rail.connect(now, PeerId(to));
    }

    pub fn is_up(&self, host: usize, peer: u32) -> bool {
        self.hosts[host].sink.standing.contains(&PeerId(peer))
    }

    /// Polls the rails; where nothing happens, goes to the time when something will; `false`: never.
    pub fn step(&mut self, polled: impl Fn(usize) -> bool) -> bool {
        let mut happened = 0;
        let mut next = self.fabric.borrow().next_event();
        for (index, host) in self.hosts.iter_mut().enumerate().filter(|(index, _)| polled(*index)) {
            let _ = index;
            happened += host.rail.poll(self.now, &mut host.sink);
            next = next.into_iter().chain(host.rail.next_timeout()).min();
        }
        if happened > 0 {
            return true;
        }
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        self.fabric.borrow_mut().advance(self.now);
        true
    }

    /// Steps until something has come true; panics where it does not.
    pub fn until(&mut self, come_true: impl Fn(&Cluster) -> bool) {
        self.until_polling(|_| true, come_true);
    }

    pub fn until_polling(&mut self, polled: impl Fn(usize) -> bool, come_true: impl Fn(&Cluster) -> bool) {
        for _ in 0..ROUNDS_MAX {
            if come_true(self) {
                return;
            }
            if !self.step(&polled) {
                // One more look: the last step may have reported it.
                assert!(come_true(self), "nothing will ever happen, at {:?}: {:?}", self.now, self.states());
                return;
            }
        }
        panic!("not true after {ROUNDS_MAX} rounds, at {:?}: {:?}", self.now, self.states());
    }

    /// Steps until nothing is to happen any more.
    pub fn run_until_idle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.step(|_| true) {
                return;
            }
        }
        panic!("something happens for ever: {:?}", self.states());
    }

    fn states(&self) -> Vec<String> {
        let state = |host: &Host| format!("up {:?} down {:?} {:?}", host.sink.up, host.sink.down, host.rail);
        self.hosts.iter().map(state).collect()
    }

    /// Queue pairs of all HCAs.
    pub fn qps(&self) -> u32 {
        let fabric = self.fabric.borrow();
        let hcas: BTreeSet<HcaId> = self.hosts.iter().map(|host| host.hca).collect();
        hcas.into_iter().map(|hca| fabric.objects(hca).qps).sum()
    }
}

/// Draws numbers below a bound, decided by a seed (xorshift).
pub fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    }
}
