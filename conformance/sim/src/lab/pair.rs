//! Two real endpoints in a loop of virtual time, over the [`Lines`] of a set.
//!
//! Processors cost nothing and notice everything at once; no payloads are touched but those of aggregates,
//! whose heads are read. A packet or write takes its line, and after the latency it is there; after the
//! latency once more its sender's completion is reported, as on verbs. A read sends its request first, which
//! takes the latency, then takes the line that comes back. Registrations are answered at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem::MaybeUninit;

use rerail_core::config::Config;
use rerail_core::endpoint::{
    Action, Arrival, Endpoint, Event, Explanation, MessageClass, Post, PostKind, PostStatus, RailEvent, RailStats,
    RecvRequest, Selector, SendRequest,
};
use rerail_core::ids::{Cookie, PeerId, PostId, RailId};
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::store::arena::REGION_ALIGN;
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::{Body, RemoteKey, Repr};

use super::lines::{Aggregate, Lines, line};
use super::set::{EAGER_BYTES, RailSet};

/// A timer that far ahead watches over something that has long happened.
const FAR_NS: u64 = 1_000_000_000;

/// Tables large enough for rails to be what limits, and small enough to be carved thousands of times.
pub fn config(rails: usize) -> Config {
    Config {
        peers_max: 2,
        channels_max: 2,
        rails_max: rails as u8,
        operations_max: 256,
        segments_max: 1,
        packets_max: 2048,
        window: 1024,
        unexpected_per_peer: 128,
        blocks_per_peer: 1024,
        eager_bytes_max: EAGER_BYTES,
        retained_max: 256,
        requests_per_peer: 1,
        bulk_max: 64,
        windows_max: 1,
        counters_max: 1,
        match_buckets: 16,
        ack_delay: Nanos::from_micros(50),
        ..Config::new(PeerId(0), 2)
    }
}

/// Memory for an endpoint's state.
pub struct Region {
    memory: Vec<MaybeUninit<u8>>,
    bytes: usize,
}

impl Region {
    /// Memory for the endpoints of [`config`], which is valid.
    pub fn of(config: &Config) -> Region {
        let bytes = config.memory_bytes().expect("the lab's configuration is valid");
        Region { memory: vec![MaybeUninit::uninit(); bytes + REGION_ALIGN], bytes }
    }

    fn aligned(&mut self) -> &mut [MaybeUninit<u8>] {
        let start = self.memory.as_ptr().addr().wrapping_neg() % REGION_ALIGN;
        &mut self.memory[start..start + self.bytes]
    }
}

/// Something under way.
#[derive(Debug)]
struct Parked {
    rank: usize,
    rail: RailId,
    kind: Kind,
    id: PostId,
    header: heapless::Vec<u8, { rerail_core::wire::HEADER_BYTES_MAX }>,
    bytes: u64,
    /// Several messages in one packet: where they lie in the sender's pool.
    packed_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Packet,
    Write,
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// A read's request is with the peer.
    Requested(u32),
    /// A packet is there.
    Arrives(u32),
    /// Its completion is reported to the poster.
    Completes(u32),
    /// A rail's capacity changes, to so many bytes per second.
    Changes(usize, u64),
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// At which rank.
    pub rank: usize,
    /// It was a receive.
    pub is_receive: bool,
    /// When, in nanoseconds.
    pub at: u64,
}

/// Payload that a rail got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// When, in nanoseconds.
    pub at: u64,
    /// When its completion was reported to the poster; 0: not yet.
    pub through: u64,
    /// By which rank.
    pub rank: usize,
    /// The rail.
    pub rail: usize,
    /// Bytes of it.
    pub bytes: u64,
    /// The slot that it is parked in.
    token: u32,
}

/// Two endpoints and their rails.
pub struct Pair<'m> {
    endpoints: [Endpoint<'m>; 2],
    lines: Lines,
    /// Their payload pools, for the heads of messages that go together.
    pools: [Vec<u8>; 2],
    latencies: Vec<u64>,
    posts_ns: Vec<u64>,
    parked: Vec<Option<Parked>>,
    free: Vec<u32>,
    happens: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    count: u64,
    now: u64,
    /// Payload bytes that were posted, by rail.
    carried: Vec<u64>,
    over: Vec<Over>,
    /// Payload that rails got, where a caller requested that.
    log: Option<Vec<Posted>>,
    /// Requests that failed, and how: none should.
    failed: Option<String>,
}

/// Cookies of receives have this bit.
const RECEIVE: u64 = 1 << 63;

impl<'m> Pair<'m> {
    /// Two endpoints that are connected on all rails; `policy` sets up each.
    pub fn new(
        regions: &'m mut [Region; 2],
        config: &Config,
        set: &RailSet,
        mut policy: impl FnMut(&mut Endpoint<'_>),
    ) -> Pair<'m> {
        let facts = set.facts();
        let mut rank = 0;
        let endpoints = regions.each_mut().map(|region| {
            let config = Config { rank: PeerId(rank), ..*config };
            let peer = PeerId(1 - rank);
            let mut endpoint = Endpoint::new(config, &facts, region.aligned(), Time(0))
                .expect("the region is made for the configuration");
            endpoint
                .add_peer(peer, u64::MAX >> (64 - facts.len()))
                .expect("there are two peers, and this is the other");
            policy(&mut endpoint);
            for rail in 0..facts.len() as u8 {
                endpoint.handle_rail_event(Time(0), RailEvent::Up { peer, rail: RailId(rail) });
            }
            rank += 1;
            endpoint
        });
        let mut pair = Pair {
            endpoints,
            lines: Lines::new(set),
            pools: [(); 2].map(|()| vec![0; config.pool_bytes().expect("the lab's configuration is valid") as usize]),
            latencies: set.rails.iter().map(|rail| rail.latency_ns).collect(),
            posts_ns: set.rails.iter().map(|rail| rail.post_ns).collect(),
            parked: Vec::new(),
            free: Vec::new(),
            happens: BinaryHeap::new(),
            count: 0,
            now: 0,
            carried: vec![0; set.rails.len()],
            over: Vec::new(),
            log: None,
            failed: None,
        };
        pair.act(0);
        pair.act(1);
        while pair.step() {}
        pair.carried.fill(0);
        pair
    }

    /// Now, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Payload bytes that were posted on each rail since this was last called.
    pub fn take_carried(&mut self) -> Vec<u64> {
        let fresh = vec![0; self.carried.len()];
        std::mem::replace(&mut self.carried, fresh)
    }

    /// Payload that rails got since this was last called; from now on it is kept.
    pub fn take_log(&mut self) -> Vec<Posted> {
        self.log.replace(Vec::new()).unwrap_or_default()
    }

    /// Requests that are over since this was last called.
    pub fn take_over(&mut self) -> Vec<Over> {
        std::mem::take(&mut self.over)
    }

    /// Why something failed that should not.
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// What an endpoint has measured of a rail.
    pub fn stats(&self, rank: usize, rail: usize) -> RailStats {
        self.endpoints[rank].rail_stats(RailId(rail as u8)).unwrap_or_default()
    }

    /// What rank 0 would do now with a message of `bytes`.
    pub fn explain(&self, bytes: u64) -> Option<Explanation> {
        self.endpoints[0].explain(Time(self.now), PeerId(1), MessageClass::Small, bytes)
    }

    /// Ends of parts that other rails took over, at either end.
    pub fn rebalances(&self) -> u64 {
        self.endpoints.iter().map(|endpoint| endpoint.stats().rebalances).sum()
    }

    /// A rail moves at most so much from `at` on, in bytes per second; `at` in nanoseconds, not in the past.
    pub fn change(&mut self, at: u64, rail: usize, bytes_per_second: u64) {
        self.put(at.max(self.now), Happens::Changes(rail, bytes_per_second));
    }

    /// A message of `bytes` from a rank to the other, which has a receive for it.
    pub fn submit(&mut self, from: usize, bytes: u64) {
        let segments = [Seg::new(RegionId(0), 0, bytes)];
        let recv = RecvRequest { cookie: Cookie(RECEIVE), ..RecvRequest::new(Selector::ANY_UNTAGGED, &segments) };
        let send = SendRequest::new(PeerId(1 - from as u32), &segments);
        let received = self.endpoints[1 - from].recv(Time(self.now), &recv).map(|_| ());
        let sent = self.endpoints[from].send(Time(self.now), &send).map(|_| ());
        if let Err(error) = received.and(sent) {
            self.failed.get_or_insert_with(|| format!("a message of {bytes} bytes: {error:?}"));
        }
    }

    /// Both endpoints do what there is to do after [`submit`](Self::submit).
    pub fn go(&mut self) {
        self.act(0);
        self.act(1);
    }

    /// Goes on to the next moment at which something happens; `false`: nothing ever will.
    pub fn step(&mut self) -> bool {
        let timeout = |endpoint: &Endpoint<'_>| endpoint.next_timeout().map(|at| at.0.max(self.now));
        let due = self.endpoints.each_ref().map(timeout);
        let due_at = due.iter().flatten().copied().min().filter(|&at| at < self.now + FAR_NS);
        let moved = self.lines.next();
        let next = self.happens.peek().map(|Reverse((at, ..))| *at);
        let Some(now) = due_at.into_iter().chain(next).chain(moved.map(|(at, _)| at)).min() else { return false };
        self.now = now;
        let mut touched = [false; 2];
        for rank in 0..2 {
            if due[rank].is_some_and(|at| at <= now) {
                self.endpoints[rank].handle_timeout(Time(now));
                touched[rank] = true;
            }
        }
        while let Some((_, line)) = self.lines.next().filter(|(at, _)| *at <= now) {
            if let Some(aggregate) = self.lines.pop(line) {
                self.moved(aggregate.token);
            }
        }
        while let Some(Reverse((_, _, what))) = self.happens.peek().filter(|Reverse((at, ..))| *at <= now).copied() {
            self.happens.pop();
            if let Some(rank) = self.happen(what) {
                touched[rank] = true;
            }
        }
        for rank in (0..2).filter(|&rank| touched[rank]) {
            self.act(rank);
        }
        true
    }

    fn put(&mut self, at: u64, what: Happens) {
        self.count += 1;
        self.happens.push(Reverse((at, self.count, what)));
    }

    /// An aggregate has left its line.
    fn moved(&mut self, token: u32) {
        let Some(parked) = &self.parked[token as usize] else { return };
        let latency = self.latencies[usize::from(parked.rail.0)];
        match parked.kind {
            Kind::Packet => self.put(self.now + latency, Happens::Arrives(token)),
            Kind::Write => self.put(self.now + 2 * latency, Happens::Completes(token)),
            Kind::Read => self.put(self.now + latency, Happens::Completes(token)),
        }
    }

    /// Something happens; the endpoint that it touches.
    fn happen(&mut self, what: Happens) -> Option<usize> {
        let now = Time(self.now);
        match what {
            Happens::Requested(token) => {
                let parked = self.parked[token as usize].as_ref()?;
                let (rail, rank, bytes) = (usize::from(parked.rail.0), parked.rank, parked.bytes);
                // Asking costs the line back nothing, and the answer all of it.
                let aggregate = Aggregate { fixed_ns: self.posts_ns[rail], bytes, token };
                self.lines.push(self.now, line(rail, 1 - rank), aggregate);
                None
            }
            Happens::Arrives(token) => {
                let parked = self.parked[token as usize].as_ref()?;
                let (rank, rail, latency) = (1 - parked.rank, parked.rail, self.latencies[usize::from(parked.rail.0)]);
                let peer = PeerId(parked.rank as u32);
                match self.endpoints[rank].handle_arrival(now, peer, rail, &parked.header) {
                    Arrival::Place { id, memory } => {
                        if let Some(from) = parked.packed_at {
                            let (pools, endpoint) = (&mut self.pools, &self.endpoints[rank]);
                            let mut at = from as usize;
                            for piece in endpoint.segments(memory) {
                                let (to, len) = (piece.at.offset as usize, piece.len as usize);
                                let bytes = pools[1 - rank][at..at + len].to_vec();
                                pools[rank][to..to + len].copy_from_slice(&bytes);
                                at += len;
                            }
                        }
                        let pool = &self.pools[rank];
                        let peek = |at: MemRef, bytes: &mut [u8]| {
                            bytes.copy_from_slice(&pool[at.offset as usize..][..bytes.len()]);
                        };
                        self.endpoints[rank].handle_placed(now, id, &peek);
                    }
                    Arrival::Done | Arrival::Discard | Arrival::Address { .. } => {}
                    Arrival::Close => {
                        self.failed.get_or_insert_with(|| format!("rank {rank} closes {rail:?}"));
                    }
                }
                self.put(self.now + latency, Happens::Completes(token));
                Some(rank)
            }
            Happens::Completes(token) => {
                let parked = self.parked[token as usize].take()?;
                self.free.push(token);
                let of = |posted: &&mut Posted| posted.token == token && posted.through == 0;
                if let Some(posted) = self.log.iter_mut().flatten().rev().find(of) {
                    posted.through = self.now;
                }
                self.endpoints[parked.rank].handle_completion(now, parked.id, PostStatus::Done);
                Some(parked.rank)
            }
            Happens::Changes(rail, rate) => {
                self.lines.set_capacity(self.now, line(rail, 0), rate);
                self.lines.set_capacity(self.now, line(rail, 1), rate);
                None
            }
        }
    }

    /// An endpoint does what there is to do, and reports what there is to report.
    fn act(&mut self, rank: usize) {
        let mut actions = heapless::Vec::new();
        while self.endpoints[rank].poll_actions(Time(self.now), &mut actions) > 0 {
            for action in actions.drain(..) {
                match action {
                    Action::Post(post) => self.post(rank, post),
                    Action::Register { operation, rail, .. } => {
                        let key = Ok(RemoteKey { rail: 0, connection: 0, key: 1, address: 0 });
                        self.endpoints[rank].handle_registered(operation, rail, key);
                    }
                    Action::Pack { head, to, .. } => {
                        let mut at = 0;
                        for piece in self.endpoints[rank].segments(to) {
                            let len = (piece.len as usize).min(head.len() - at);
                            self.pools[rank][piece.at.offset as usize..][..len].copy_from_slice(&head[at..at + len]);
                            at += len;
                        }
                    }
                    _ => {}
                }
            }
        }
        while let Some(event) = self.endpoints[rank].poll_event() {
            match event {
                Event::Completed(completion) => {
                    if let Err(error) = completion.result {
                        self.failed.get_or_insert_with(|| format!("rank {rank}: {error:?}"));
                    }
                    let is_receive = completion.cookie.0 & RECEIVE != 0;
                    self.over.push(Over { rank, is_receive, at: self.now });
                }
                Event::PeerUp { .. } => {}
                other => {
                    self.failed.get_or_insert_with(|| format!("rank {rank}: {other:?}"));
                }
            }
        }
    }

    /// A rail gets something.
    fn post(&mut self, rank: usize, post: Post) {
        let rail = usize::from(post.rail.0);
        let kind = match post.kind {
            PostKind::Send => Kind::Packet,
            PostKind::Write { .. } => Kind::Write,
            PostKind::Read { .. } => Kind::Read,
        };
        let bytes = post.payload.len() + post.header.len() as u64;
        self.carried[rail] += post.payload.len();
        let packed =
            kind == Kind::Packet && matches!(Repr::parse(&post.header), Ok(Repr { body: Body::Aggregate { .. }, .. }));
        let first = self.endpoints[rank].segments(post.payload).next();
        let packed_at = first.filter(|_| packed).map(|piece| piece.at.offset);
        let parked = Some(Parked { rank, rail: post.rail, kind, id: post.id, header: post.header, bytes, packed_at });
        let token = match self.free.pop() {
            Some(token) => {
                self.parked[token as usize] = parked;
                token
            }
            None => {
                self.parked.push(parked);
                self.parked.len() as u32 - 1
            }
        };
        let (at, payload) = (self.now, post.payload.len());
        if let Some(log) = self.log.as_mut() {
            log.push(Posted { at, through: 0, rank, rail, bytes: payload, token });
        }
        match kind {
            Kind::Read => self.put(self.now + self.latencies[rail], Happens::Requested(token)),
            Kind::Packet | Kind::Write => {
                let aggregate = Aggregate { fixed_ns: self.posts_ns[rail], bytes, token };
                self.lines.push(self.now, line(rail, rank), aggregate);
            }
        }
    }
}
