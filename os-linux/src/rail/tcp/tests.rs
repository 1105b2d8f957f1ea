//! TCP rails of several processes inside one, over loopback, each with a sink that checks its calls.
//!
//! Nothing here waits for time to pass: the hosts are polled, and where no rail has work it sleeps on the
//! rails' descriptors, until the test's condition holds or the bound on rounds is reached. Deadlines are met
//! by passing a later `now`.

mod hostile;
mod links;
mod outage;
mod placing;
mod recover;
mod traffic;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

use rerail_core::endpoint::{Arrival, Span};
use rerail_core::ids::{Key as CoreKey, PlaceId, PostId};
use rerail_core::wire::handshake::{ANSWER_BYTES, OPENING_BYTES, RULING_BYTES, Transport, Verdict};
use rerail_core::wire::{Body, Common, Data, Repr};
use rustix::event::{PollFd, PollFlags};

use super::*;
use crate::auth::testing::{credentials, meet};
use crate::auth::{Attempts, AuthError, Call, Dialler, Step};
use crate::rail::Piece;
use crate::random::random;

const JOB: u64 = 0xB0B;
/// The first dial of a pair.
const FIRST: Attempts = Attempts { attempt: 1, answers: 0 };
/// Far more rounds than any test needs.
const ROUNDS_MAX: usize = 20_000;

fn options() -> TcpOptions {
    TcpOptions::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

/// With so little room in the system that a large packet fills it.
fn small() -> TcpOptions {
    TcpOptions { send_buffer_bytes: Some(8192), receive_buffer_bytes: Some(8192), ..options() }
}

/// A packet: a DATA header with `number`, and its payload.
fn header(source: PeerId, number: u64, payload_bytes: usize) -> Vec<u8> {
    let common = Common { source: source.0, payload_bytes: payload_bytes as u32, ..Common::default() };
    let body = Body::Data(Data { operation: number, offset: 0 });
    Repr { common, body }.emit_vec().unwrap().to_vec()
}

fn number_of(header: &[u8]) -> u64 {
    match Repr::parse(header).unwrap().body {
        Body::Data(data) => data.operation,
        other => panic!("not sent by these tests: {other:?}"),
    }
}

/// Bytes that differ from packet to packet and from place to place.
fn payload(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u64 ^ (at as u64 >> 8) ^ number.wrapping_mul(37)) as u8).collect()
}

/// The sink's treatment of a packet.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// Takes up to so many bytes, in pieces of so many.
    Take {
        bytes: usize,
        piece_bytes: usize,
    },
    /// Takes so many bytes in one piece, then reports the placement aborted.
    Aborted {
        after: u64,
    },
    Discard,
    Close,
}

const TAKE_ALL: Plan = Plan::Take { bytes: usize::MAX, piece_bytes: usize::MAX };

#[derive(Debug)]
struct Placement {
    peer: PeerId,
    number: u64,
    memory: Vec<u8>,
    plan: Plan,
}

/// A sink that records its calls and rejects illegal ones.
#[derive(Debug)]
struct Recorder {
    plan: fn(u64) -> Plan,
    open: HashMap<u32, Placement>,
    places: u32,
    /// Headers seen, by their numbers.
    seen: Vec<(PeerId, u64)>,
    /// Whole packets: sender, number, bytes.
    taken: Vec<(PeerId, u64, Vec<u8>)>,
    completed: Vec<(PostId, PostStatus)>,
    up: Vec<PeerId>,
    down: Vec<(PeerId, RailFault)>,
    standing: Vec<PeerId>,
    backs: u64,
    queued: Vec<PeerId>,
}

impl Recorder {
    fn new() -> Self {
        Recorder {
            plan: |_| TAKE_ALL,
            open: HashMap::new(),
            places: 0,
            seen: Vec::new(),
            taken: Vec::new(),
            completed: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
            standing: Vec::new(),
            backs: 0,
            queued: Vec::new(),
        }
    }
}

// SAFETY: `place` returns memory that this recorder owns, without other references until `placed`.
unsafe impl Sink for Recorder {
    fn arrival(&mut self, peer: PeerId, header: &[u8]) -> Arrival {
        assert!(self.standing.contains(&peer), "a packet from {peer:?}, which is not up");
        assert!(self.open.values().all(|p| p.peer != peer), "one packet of a subchannel at a time");
        let repr = Repr::parse(header).unwrap();
        let (number, bytes) = (number_of(header), repr.common.payload_bytes as usize);
        self.seen.push((peer, number));
        let plan = (self.plan)(number);
        let memory = match plan {
            Plan::Take { bytes: most, .. } => vec![0; bytes.min(most)],
            Plan::Aborted { .. } => vec![0; bytes],
            Plan::Discard => return Arrival::Discard,
            Plan::Close => return Arrival::Close,
        };
        if bytes == 0 {
            self.taken.push((peer, number, memory));
            return Arrival::Done;
        }
        self.places += 1;
        self.open.insert(self.places, Placement { peer, number, memory, plan });
        Arrival::Place { id: PlaceId(CoreKey { index: self.places, generation: 1 }), memory: Span::EMPTY }
    }

    fn place(&mut self, id: PlaceId, from: u64, pieces: &mut Vec<Piece>) -> bool {
        assert!(pieces.is_empty());
        let placement = self.open.get_mut(&id.0.index).expect("an open placement");
        let piece_bytes = match placement.plan {
            Plan::Aborted { after } if from >= after => {
                self.open.remove(&id.0.index);
                return false;
            }
            Plan::Aborted { after } => {
                let part = &mut placement.memory[from as usize..after as usize];
                pieces.push(Piece { start: part.as_mut_ptr(), len: part.len() });
                return true;
            }
            Plan::Take { piece_bytes, .. } => piece_bytes,
            other => panic!("{other:?} has no place"),
        };
        for part in placement.memory[from as usize..].chunks_mut(piece_bytes) {
            pieces.push(Piece { start: part.as_mut_ptr(), len: part.len() });
        }
        true
    }

    fn placed(&mut self, id: PlaceId) {
        let Placement { peer, number, memory, .. } = self.open.remove(&id.0.index).expect("an open placement");
        self.taken.push((peer, number, memory));
    }

    fn completed(&mut self, id: PostId, status: PostStatus) {
        self.completed.push((id, status));
    }

    fn up(&mut self, peer: PeerId) {
        assert!(!self.standing.contains(&peer), "{peer:?} is up already");
        self.standing.push(peer);
        self.up.push(peer);
    }

    fn down(&mut self, peer: PeerId, fault: RailFault) {
        self.open.retain(|_, placement| placement.peer != peer);
        self.standing.retain(|&standing| standing != peer);
        self.down.push((peer, fault));
    }

    fn queued(&mut self, peer: PeerId) {
        self.queued.push(peer);
    }

    fn reset(&mut self) {}

    fn moved(&mut self) {}

    fn back(&mut self) {
        self.backs += 1;
    }
}

/// A process of the job with one rail.
#[derive(Debug)]
struct Host {
    rail: TcpRail,
    me: PeerId,
    sink: Recorder,
    /// Payloads of posts, kept until the test ends.
    memory: Vec<Vec<u8>>,
    posts: u32,
}

impl Host {
    fn new(rank: u32, options: TcpOptions) -> Self {
        let me = PeerId(rank);
        let rail = TcpRail::open(options, credentials(me.0), JOB, me).unwrap();
        Host { rail, me, sink: Recorder::new(), memory: Vec::new(), posts: 0 }
    }

    /// Posts packet `number` with a payload cut into pieces of `piece_bytes`, a batch of its own.
    fn send(&mut self, to: PeerId, number: u64, bytes: usize, piece_bytes: usize) -> PostId {
        let id = self.post(to, number, bytes, piece_bytes);
        self.rail.push();
        id
    }

    /// The same, as a part of a batch.
    fn post(&mut self, to: PeerId, number: u64, bytes: usize, piece_bytes: usize) -> PostId {
        self.posts += 1;
        let id = PostId(CoreKey { index: self.posts, generation: 7 });
        let mut memory = payload(number, bytes);
        let pieces: Vec<Piece> =
            memory.chunks_mut(piece_bytes).map(|p| Piece { start: p.as_mut_ptr(), len: p.len() }).collect();
        let header = header(self.me, number, bytes);
        let (kind, header) = (PostKind::Send, &header[..]);
        // SAFETY: `self.memory` keeps the payload until the rail is gone.
        unsafe { self.rail.post(Outgoing { id, peer: to, kind, header, payload: &pieces, extent: 0 }) };
        self.memory.push(memory);
        id
    }

    /// The numbers of whole packets from `peer`, each checked to the last byte.
    fn numbers_from(&self, peer: PeerId) -> Vec<u64> {
        let from_peer = self.sink.taken.iter().filter(|taken| taken.0 == peer);
        from_peer
            .map(|(_, number, bytes)| {
                assert!(*bytes == payload(*number, bytes.len()), "packet {number} from {peer:?} is damaged");
                *number
            })
            .collect()
    }
}

/// Several hosts and the time.
#[derive(Debug)]
struct Cluster {
    hosts: Vec<Host>,
    now: Time,
}

impl Cluster {
    /// Hosts of ranks 0, 1, ... with each other's addresses.
    fn new(options: impl IntoIterator<Item = TcpOptions>) -> Self {
        let hosts = options.into_iter().enumerate().map(|(rank, options)| Host::new(rank as u32, options));
        let mut cluster = Cluster { hosts: hosts.collect(), now: Time(1_000) };
        let addresses: Vec<String> = cluster.hosts.iter().map(|host| host.rail.address()).collect();
        for host in &mut cluster.hosts {
            for (rank, address) in addresses.iter().enumerate() {
                match host.me == PeerId(rank as u32) {
                    true => assert_eq!(host.rail.add_peer(host.me, address), Ok(false), "itself"),
                    false => meet(&mut host.rail, rank as u32, address),
                }
            }
        }
        cluster
    }

    /// Two connected hosts.
    fn pair() -> Self {
        let mut cluster = Cluster::new([options(), options()]);
        cluster.join(0, 1);
        cluster
    }

    fn join(&mut self, a: usize, b: usize) {
        let (peer_a, peer_b) = (self.hosts[a].me, self.hosts[b].me);
        self.hosts[a].rail.connect(self.now, peer_b);
        self.until(|hosts| hosts[a].sink.standing.contains(&peer_b) && hosts[b].sink.standing.contains(&peer_a));
    }

    fn poll(&mut self) -> usize {
        let now = self.now;
        self.hosts.iter_mut().map(|host| host.rail.poll(now, &mut host.sink)).sum()
    }

    /// Polls all hosts; where none has work, sleeps on their descriptors for a moment at most, so that events
    /// that descriptors do not show (a raw socket's side) are seen, too.
    fn round(&mut self) {
        if self.poll() == 0 && self.hosts.iter_mut().all(|host| host.rail.arm()) {
            let mut fds: Vec<PollFd<'_>> = self
                .hosts
                .iter()
                .filter_map(|h| h.rail.wait_fd())
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let moment = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            rustix::event::poll(&mut fds, Some(&moment)).unwrap();
            self.hosts.iter_mut().for_each(|host| host.rail.disarm());
        }
    }

    fn until(&mut self, mut holds: impl FnMut(&[Host]) -> bool) {
        for _ in 0..ROUNDS_MAX {
            if holds(&self.hosts) {
                return;
            }
            self.round();
        }
        panic!(
            "never came true: {:#?}",
            self.hosts.iter().map(|h| (&h.rail, &h.sink.up, &h.sink.down)).collect::<Vec<_>>()
        );
    }

    /// A packet each way between hosts `a` and `b`.
    fn ping(&mut self, a: usize, b: usize, number: u64) {
        let (peer_a, peer_b) = (self.hosts[a].me, self.hosts[b].me);
        self.hosts[a].send(peer_b, number, 100, 100);
        self.hosts[b].send(peer_a, number, 20_000, 20_000);
        let taken = |host: &Host, from| host.sink.taken.iter().any(|t| t.0 == from && t.1 == number);
        self.until(|hosts| taken(&hosts[a], peer_b) && taken(&hosts[b], peer_a));
    }
}

/// A TCP connection without a rail behind it.
struct Raw {
    stream: TcpStream,
}

impl Raw {
    fn to(host: &Host) -> Self {
        Raw::from(TcpStream::connect(host.rail.local).unwrap())
    }

    fn from(stream: TcpStream) -> Self {
        stream.set_nonblocking(true).unwrap();
        Raw { stream }
    }

    /// Accepts from a non-blocking listener while the hosts are polled.
    fn accept(listener: &TcpListener, cluster: &mut Cluster) -> Self {
        let mut stream = None;
        cluster.until(|_| {
            stream = stream.take().or_else(|| listener.accept().ok());
            stream.is_some()
        });
        Raw::from(stream.unwrap().0)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads `count` bytes, or up to the end of the stream.
    fn read(&mut self, cluster: &mut Cluster, count: usize) -> Vec<u8> {
        let (mut bytes, mut over) = (Vec::new(), false);
        cluster.until(|_| {
            let mut part = vec![0; count - bytes.len()];
            match self.stream.read(&mut part) {
                Ok(0) => over = true,
                Ok(n) => bytes.extend_from_slice(&part[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => over = true,
                Err(error) => panic!("{error}"),
            }
            over || bytes.len() == count
        });
        bytes
    }

    /// Whether the other side closes without another byte.
    fn is_closed(&mut self, cluster: &mut Cluster) -> bool {
        self.read(cluster, 1).is_empty()
    }

    /// Shakes hands as `from` with the host of rank `to`; returns all that was written, and the outcome.
    fn call(&mut self, cluster: &mut Cluster, from: u32, to: u32) -> (Vec<u8>, Result<Step, AuthError>) {
        self.call_as(cluster, (from, to), FIRST)
    }

    /// The same, as which dial.
    fn call_as(
        &mut self,
        cluster: &mut Cluster,
        (from, to): (u32, u32),
        attempts: Attempts,
    ) -> (Vec<u8>, Result<Step, AuthError>) {
        let call = Call { transport: Transport::Tcp, job: JOB, from: PeerId(from), to: PeerId(to), rail: 0, attempts };
        let (mut dialler, hello) =
            Dialler::new(&credentials(from), call, credentials(to).public().fingerprint(), random().unwrap());
        self.write(hello.bytes());
        let challenge = self.read(cluster, ANSWER_BYTES);
        let proof = match dialler.handle(&challenge) {
            Ok(Step::Send(proof)) => proof,
            other => return (hello.bytes().to_vec(), other),
        };
        self.write(proof.bytes());
        let verdict = self.read(cluster, RULING_BYTES);
        ([hello.bytes(), proof.bytes()].concat(), dialler.handle(&verdict))
    }

    /// An established raw connection: host `to` takes it for the peer `from`.
    fn authenticated(cluster: &mut Cluster, from: u32, to: usize) -> Self {
        let mut raw = Raw::to(&cluster.hosts[to]);
        let rank = cluster.hosts[to].me;
        // Any address will do: this peer is never dialled.
        meet(&mut cluster.hosts[to].rail, from, "127.0.0.1:9");
        let (_, outcome) = raw.call(cluster, from, rank.0);
        assert!(matches!(outcome, Ok(Step::Authenticated { .. })), "{outcome:?}");
        cluster.until(|hosts| hosts[to].sink.standing.contains(&PeerId(from)));
        raw
    }

    /// Answers a host's dial as the acceptor of rank `me`, with `verdict`.
    fn answer(&mut self, cluster: &mut Cluster, me: u32, verdict: Verdict) {
        use crate::auth::{Acceptor, Station};
        let station = Station { transport: Transport::Tcp, job: JOB, me: PeerId(me), rail: 0 };
        let mut acceptor = Acceptor::new(credentials(me), station, random().unwrap());
        let hello = self.read(cluster, acceptor.expects());
        let Ok(Step::Send(challenge)) = acceptor.handle(&hello) else { panic!("an honest hello") };
        self.write(challenge.bytes());
        let proof = self.read(cluster, acceptor.expects());
        assert!(matches!(acceptor.handle(&proof), Ok(Step::Authenticated { .. })));
        self.write(acceptor.ruling(verdict).unwrap().bytes());
    }
}

/// A listener that is no rail, and its address.
fn raw_listener() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}
