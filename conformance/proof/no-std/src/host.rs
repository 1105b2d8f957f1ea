//! A host: an endpoint, the memory it names, and the little that a shim does for it.

use core::fmt;
use core::mem::MaybeUninit;

use heapless::Vec;
use rerail_core::config::{Config, ConfigError};
use rerail_core::endpoint::{
    Action, Arrival, AtomicAction, Completion, Endpoint, Event, Loss, OpError, PostKind, PostStatus, RailEvent, Span,
    StartError,
};
use rerail_core::ids::{Cookie, PeerId, PlaceId, RailId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::rail::{Caps, RailFacts, RailKind};
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::{AtomicKind, AtomicType};

use crate::wire::{Link, PIECES_MAX, POSTS_MAX, Packet, RAILS};

/// Bytes for an endpoint's state; more than the configuration below needs.
pub const STATE_BYTES: usize = 512 * 1024;
/// Bytes for an endpoint's payload pool; more than the configuration below needs.
pub const POOL_BYTES: usize = 256 * 1024;
/// Bytes of the application's memory on each host.
pub const USER_BYTES: usize = 256 * 1024;
/// The application's memory.
pub const USER: RegionId = RegionId(0);

/// All memory of one host.
#[repr(align(64))]
pub struct Memory {
    state: Aligned<[MaybeUninit<u8>; STATE_BYTES]>,
    pool: [u8; POOL_BYTES],
    user: [u8; USER_BYTES],
}

#[repr(align(64))]
struct Aligned<T>(T);

impl Memory {
    /// Zero, so that it takes no room in the program's file.
    pub const fn new() -> Self {
        Memory { state: Aligned([MaybeUninit::zeroed(); STATE_BYTES]), pool: [0; POOL_BYTES], user: [0; USER_BYTES] }
    }
}

/// Why the exchange failed.
pub enum Failure {
    /// The configuration is refused.
    Config(ConfigError),
    /// The static memory of this program is smaller than the configuration needs.
    Memory { state: usize, pool: u64 },
    /// The endpoint refuses to start.
    Start(StartError),
    /// A request was refused.
    Refused(&'static str),
    /// A request failed.
    Failed(Cookie, OpError),
    /// A peer was lost.
    Lost(PeerId, Loss),
    /// A peer left.
    Left(PeerId),
    /// The core requested what no rail of this program has announced.
    RequestedBy(&'static str),
    /// The core requested memory that is not there.
    Outside(Seg),
    /// Bytes differ from what was sent.
    Bytes { what: &'static str, at: usize },
    /// A number differs.
    Number { what: &'static str, got: u64, wanted: u64 },
    /// Nothing moves, and not everything is done.
    Stuck { done: u32, submitted: u32 },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Config(error) => write!(f, "{error:?}"),
            Failure::Memory { state, pool } => write!(f, "needs {state} bytes of state and {pool} of pool"),
            Failure::Start(error) => write!(f, "the endpoint does not start: {error:?}"),
            Failure::Refused(what) => write!(f, "{what} was refused"),
            Failure::Failed(Cookie(tag), error) => write!(f, "request {tag} failed: {error:?}"),
            Failure::Lost(PeerId(peer), why) => write!(f, "peer {peer} was lost: {why:?}"),
            Failure::Left(PeerId(peer)) => write!(f, "peer {peer} left"),
            Failure::RequestedBy(what) => write!(f, "the core requested {what}"),
            Failure::Outside(seg) => write!(f, "the core named memory that is not there: {seg:?}"),
            Failure::Bytes { what, at } => write!(f, "{what}: byte {at} is wrong"),
            Failure::Number { what, got, wanted } => write!(f, "{what}: {got} instead of {wanted}"),
            Failure::Stuck { done, submitted } => write!(f, "nothing moves, {done} of {submitted} requests are done"),
        }
    }
}

/// A small configuration for two hosts; the proof is about memory that is there from the start.
pub fn config(rank: PeerId) -> Config {
    Config {
        rails_max: RAILS as u8,
        operations_max: 32,
        packets_max: 64,
        window: 64,
        unexpected_per_peer: 16,
        blocks_per_peer: 16,
        block_bytes: 1024,
        eager_bytes_max: 4096,
        retained_max: 8,
        requests_per_peer: 4,
        bulk_max: 4,
        windows_max: 4,
        counters_max: 2,
        match_buckets: 16,
        ack_packets: 8,
        ..Config::new(rank, 2)
    }
}

const FACTS: RailFacts = RailFacts {
    kind: RailKind::Sim,
    caps: Caps { write: false, read: false, registration: false, lossless: false },
    eager_bytes_max: 4096,
    segment_bytes_max: 8192,
    posts_max: POSTS_MAX as u16,
    bytes_per_second: 1_000_000_000,
    ..RailFacts::UNKNOWN
};

/// The memory that actions name.
pub struct Payload<'m> {
    pool: &'m mut [u8],
    /// The application's memory.
    pub user: &'m mut [u8],
}

impl Payload<'_> {
    fn piece(&mut self, seg: Seg) -> Result<&mut [u8], Failure> {
        let region = match seg.at.region {
            RegionId::POOL => &mut *self.pool,
            USER => &mut *self.user,
            _ => return Err(Failure::Outside(seg)),
        };
        let end = seg.at.offset.checked_add(seg.len).ok_or(Failure::Outside(seg))?;
        region.get_mut(seg.at.offset as usize..end as usize).ok_or(Failure::Outside(seg))
    }
}

/// One host.
pub struct Host<'m> {
    /// Its endpoint.
    pub endpoint: Endpoint<'m>,
    /// Its memory.
    pub payload: Payload<'m>,
    /// Requests that ended well.
    pub done: u32,
    /// The value that the last atomic found.
    pub old: u64,
    rank: usize,
}

impl<'m> Host<'m> {
    /// Starts an endpoint in `memory`.
    pub fn new(rank: usize, memory: &'m mut Memory, now: Time) -> Result<Self, Failure> {
        let config = config(PeerId(rank as u32));
        let state = config.memory_bytes().map_err(Failure::Config)?;
        let pool = config.pool_bytes().map_err(Failure::Config)?;
        if state > STATE_BYTES || pool > POOL_BYTES as u64 {
            return Err(Failure::Memory { state, pool });
        }
        let region = &mut memory.state.0[..state];
        let mut endpoint = Endpoint::new(config, &[FACTS; RAILS], region, now).map_err(Failure::Start)?;
        let peer = PeerId(1 - rank as u32);
        endpoint.add_peer(peer, (1 << RAILS) - 1).map_err(|_| Failure::Refused("add_peer"))?;
        let payload = Payload { pool: &mut memory.pool, user: &mut memory.user };
        Ok(Host { endpoint, payload, done: 0, old: 0, rank })
    }

    fn placed(&mut self, now: Time, id: PlaceId) {
        let pool = &self.payload.pool;
        self.endpoint.handle_placed(now, id, &|at, bytes| {
            // Outside the pool there is nothing to see: the packet is then found to be bad.
            let start = at.offset as usize;
            if let Some(there) = pool.get(start..start.saturating_add(bytes.len())) {
                bytes.copy_from_slice(there);
            }
        });
    }

    fn pieces(&self, span: Span) -> Result<Vec<Seg, PIECES_MAX>, Failure> {
        let mut pieces = Vec::new();
        for seg in self.endpoint.segments(span) {
            pieces.push(seg).map_err(Failure::Outside)?;
        }
        Ok(pieces)
    }
}

/// Carries out the actions of the host's endpoint, until there are none. Returns whether there was something.
pub fn drive(hosts: &mut [Host<'_>; 2], at: usize, links: &mut [Link; RAILS], now: Time) -> Result<bool, Failure> {
    let mut any = false;
    let mut actions: Vec<Action, 16> = Vec::new();
    loop {
        actions.clear();
        if hosts[at].endpoint.poll_actions(now, &mut actions) == 0 {
            return Ok(any);
        }
        any = true;
        // Answers wait until the batch is carried out: spans of it are good until the next call that feeds.
        let mut came_up: Vec<RailId, 16> = Vec::new();
        let mut atomics: Vec<(AtomicAction, u64), 16> = Vec::new();
        for action in &actions {
            match action {
                Action::Connect { rail, .. } => came_up.push(*rail).map_err(|_| Failure::RequestedBy("connects"))?,
                Action::Abort { .. } => return Err(Failure::RequestedBy("abort")),
                Action::Disconnect { .. } => return Err(Failure::RequestedBy("disconnect")),
                Action::Copy { from, to } => copy_within(&mut hosts[at], &[], *from, *to)?,
                Action::Pack { head, from, to } => copy_within(&mut hosts[at], head, *from, *to)?,
                Action::Post(post) => {
                    if post.kind != PostKind::Send {
                        return Err(Failure::RequestedBy("write or read"));
                    }
                    let packet =
                        Packet { id: post.id, header: post.header.clone(), payload: hosts[at].pieces(post.payload)? };
                    let link = &mut links[usize::from(post.rail.0)];
                    link.queues[at]
                        .push_back(packet)
                        .map_err(|_| Failure::RequestedBy("more posts than the rail takes"))?;
                }
                Action::Atomic(atomic) => {
                    let old = fetch_add(&mut hosts[at].payload, atomic)?;
                    atomics.push((*atomic, old)).map_err(|_| Failure::RequestedBy("atomics"))?;
                }
                Action::Register { .. } | Action::Deregister { .. } => {
                    return Err(Failure::RequestedBy("registration"));
                }
            }
        }
        for (atomic, old) in &atomics {
            hosts[at].endpoint.handle_atomic(atomic.operation, *old);
        }
        for rail in came_up {
            let link = &mut links[usize::from(rail.0)];
            if !core::mem::replace(&mut link.up, true) {
                for (rank, host) in hosts.iter_mut().enumerate() {
                    let peer = PeerId(1 - rank as u32);
                    host.endpoint.handle_rail_event(now, RailEvent::Up { peer, rail });
                }
            }
        }
    }
}

/// Delivers the oldest packet from host `from` on `rail`. Returns whether there was one.
pub fn deliver(
    hosts: &mut [Host<'_>; 2],
    from: usize,
    rail: usize,
    links: &mut [Link; RAILS],
    now: Time,
) -> Result<bool, Failure> {
    let Some(packet) = links[rail].queues[from].pop_front() else { return Ok(false) };
    let [first, second] = hosts;
    let (sender, receiver) = if from == 0 { (first, second) } else { (second, first) };
    let peer = PeerId(sender.rank as u32);
    match receiver.endpoint.handle_arrival(now, peer, RailId(rail as u8), &packet.header) {
        Arrival::Done | Arrival::Discard | Arrival::Address { .. } => {}
        Arrival::Place { id, memory } => {
            let to = receiver.pieces(memory)?;
            links[rail].payload_bytes[from] += memory.len();
            copy_across(&mut sender.payload, &packet.payload, &mut receiver.payload, &to)?;
            receiver.placed(now, id);
        }
        Arrival::Close => return Err(Failure::RequestedBy("close")),
    }
    sender.endpoint.handle_completion(now, packet.id, PostStatus::Done);
    Ok(true)
}

/// Takes the host's events.
pub fn events(host: &mut Host<'_>) -> Result<bool, Failure> {
    let mut any = false;
    while let Some(event) = host.endpoint.poll_event() {
        any = true;
        match event {
            Event::Completed(Completion { result: Ok(done), .. }) => {
                host.done += 1;
                host.old = done.old;
            }
            Event::Completed(Completion { cookie, result: Err(why), .. }) => return Err(Failure::Failed(cookie, why)),
            Event::PeerUp { .. } | Event::Written(_) => {}
            Event::PeerClosed { peer } => return Err(Failure::Left(peer)),
            Event::PeerLost { peer, why } => return Err(Failure::Lost(peer, why)),
        }
    }
    Ok(any)
}

/// When the hosts must be woken at the latest.
pub fn next_timeout(hosts: &[Host<'_>; 2]) -> Option<Time> {
    hosts.iter().filter_map(|host| host.endpoint.next_timeout()).min()
}

/// A step of virtual time.
pub const STEP: Nanos = Nanos(1_000);

/// Writes `head` to the start of `to`, which lies in its first piece, and copies `from` behind it.
fn copy_within(host: &mut Host<'_>, head: &[u8], from: Span, to: Span) -> Result<(), Failure> {
    let (from, mut to) = (host.pieces(from)?, host.pieces(to)?);
    if let Some(first) = to.first_mut().filter(|_| !head.is_empty()) {
        let len = head.len() as u64;
        host.payload.piece(Seg::new(first.at.region, first.at.offset, len))?.copy_from_slice(head);
        *first = Seg::new(first.at.region, first.at.offset + len, first.len.saturating_sub(len));
    }
    let mut chunk = [0u8; 256];
    walk(&from, &to, |from, to| {
        // Through a buffer, for both may lie in one region.
        let mut at = 0;
        while at < from.len {
            let len = (from.len - at).min(chunk.len() as u64);
            let part = |seg: Seg| Seg::new(seg.at.region, seg.at.offset + at, len);
            let bytes = &mut chunk[..len as usize];
            bytes.copy_from_slice(host.payload.piece(part(from))?);
            host.payload.piece(part(to))?.copy_from_slice(bytes);
            at += len;
        }
        Ok(())
    })
}

fn copy_across(sender: &mut Payload<'_>, from: &[Seg], receiver: &mut Payload<'_>, to: &[Seg]) -> Result<(), Failure> {
    walk(from, to, |from, to| {
        receiver.piece(to)?.copy_from_slice(sender.piece(from)?);
        Ok(())
    })
}

/// Cuts two lists of pieces at each other's borders and hands over pairs of equal length, until one list
/// ends.
fn walk(from: &[Seg], to: &[Seg], mut pair: impl FnMut(Seg, Seg) -> Result<(), Failure>) -> Result<(), Failure> {
    let (mut from, mut to) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut target) = (from.next(), to.next());
    while let (Some(s), Some(t)) = (source, target) {
        let len = s.len.min(t.len);
        pair(Seg { len, ..s }, Seg { len, ..t })?;
        let behind = |seg: Seg| Seg::new(seg.at.region, seg.at.offset + len, seg.len - len);
        source = if s.len > len { Some(behind(s)) } else { from.next() };
        target = if t.len > len { Some(behind(t)) } else { to.next() };
    }
    Ok(())
}

fn fetch_add(payload: &mut Payload<'_>, atomic: &AtomicAction) -> Result<u64, Failure> {
    if (atomic.kind, atomic.data_type) != (AtomicKind::Add, AtomicType::U64) {
        return Err(Failure::RequestedBy("another atomic than a 64-bit add"));
    }
    let seg = Seg { at: atomic.at, len: 8 };
    let bytes = payload.piece(seg)?;
    let old = u64::from_ne_bytes(bytes.try_into().map_err(|_| Failure::Outside(seg))?);
    bytes.copy_from_slice(&old.wrapping_add(atomic.operand).to_ne_bytes());
    Ok(old)
}
