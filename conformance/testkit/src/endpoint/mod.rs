//! A small simulation for tests and fuzzing: endpoints in one process, rails that are queues, a random
//! scheduler that delays, splits and reorders whatever the contract lets a rail delay, split and reorder, and
//! memory that is checked.
//!
//! Rails read payloads as late as they may (just before they report completion), so memory that is released
//! too early shows as wrong bytes.

mod aimed;
mod connections;
mod garbage;
mod registrations;
mod shorts;

pub use garbage::run;
pub use shorts::{counting_shorts, run_shorts};

use std::collections::VecDeque;

use registrations::Registrations;
use rerail_core::config::Config;
use rerail_core::endpoint::*;
use rerail_core::ids::*;
use rerail_core::mem::{RegionId, Seg};
use rerail_core::rail::{Caps, RailFacts, RailKind};
use rerail_core::time::Time;
use rerail_core::wire::{AtomicKind, Kind, Short};

pub use crate::region::Region;

/// A generator of numbers that a seed decides (xorshift64*).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Something that a rail has taken and not finished.
struct Posted {
    id: PostId,
    kind: PostKind,
    header: Vec<u8>,
    payload: Vec<Seg>,
}

/// A packet on the way.
struct Flying {
    header: Vec<u8>,
    payload: Vec<u8>,
    /// Bytes of the payload in place, once a placement is open.
    placing: Option<(PlaceId, u64)>,
    skip: bool,
    /// A remote write instead: where to.
    write: Option<Seg>,
    /// A short message instead.
    short: Option<Short>,
}

/// The reports after a batch of actions: none of them may reach the endpoint before.
enum Answer {
    Up(PeerId, RailId),
    Abort(PeerId, RailId),
    Close(PeerId, RailId),
    Atomic(OpId, u64),
}

#[derive(Default)]
struct Link {
    /// This end is up.
    up: bool,
    /// The connection that it is an end of.
    connection: u64,
    posted: VecDeque<Posted>,
    flying: VecDeque<Flying>,
    /// Completions that the rail has not reported yet.
    finished: Vec<PostId>,
    /// Completions that it has reported and will report once more at some time.
    repeats: Vec<PostId>,
}

/// One process.
pub struct Node<'m> {
    /// Its endpoint.
    pub endpoint: Endpoint<'m>,
    /// Its memory by region; the last one is the payload pool.
    pub memory: Vec<Vec<u8>>,
    /// Events not looked at.
    pub events: VecDeque<Event>,
}

impl Node<'_> {
    fn bytes(&mut self, region: RegionId) -> &mut Vec<u8> {
        let last = self.memory.len() - 1;
        let index = if region == RegionId::POOL { last } else { region.0 as usize };
        &mut self.memory[index]
    }

    /// A placement is complete.
    pub fn placed(&mut self, now: Time, id: PlaceId) {
        let Some(pool) = self.memory.last() else { return };
        self.endpoint.handle_placed(now, id, &|at, bytes| {
            assert_eq!(at.region, RegionId::POOL, "the core reads bytes that are not its own");
            bytes.copy_from_slice(&pool[at.offset as usize..][..bytes.len()]);
        });
    }

    /// The bytes of some memory.
    pub fn read(&mut self, segs: &[Seg]) -> Vec<u8> {
        let mut out = Vec::new();
        for seg in segs {
            let (start, end) = (seg.at.offset as usize, (seg.at.offset + seg.len) as usize);
            out.extend_from_slice(&self.bytes(seg.at.region)[start..end]);
        }
        out
    }

    /// Writes into some memory.
    pub fn write(&mut self, segs: &[Seg], mut data: &[u8]) {
        for seg in segs {
            let (now, later) = data.split_at(data.len().min(seg.len as usize));
            let start = seg.at.offset as usize;
            self.bytes(seg.at.region)[start..start + now.len()].copy_from_slice(now);
            data = later;
        }
        assert!(data.is_empty(), "the place is smaller than what was to go there");
    }
}

/// All of it.
pub struct Cluster<'m> {
    /// The processes, by rank.
    pub nodes: Vec<Node<'m>>,
    /// By from, to, rail.
    links: Vec<Link>,
    rails: usize,
    /// Of each rail.
    posts_max: Vec<u16>,
    /// The clock in nanoseconds.
    pub now: u64,
    /// The scheduler's dice.
    pub rng: Rng,
    /// Decides what goes at once: with numbers of its own, so that all else stays the same.
    coin: Rng,
    /// Whether rails report only what is true.
    pub honest: bool,
    /// Whether subchannels are cut: then pending work may name memory that is gone.
    pub faulty: bool,
    /// One connection in so many is refused; 0: none.
    pub refuse_one_in: u64,
    /// Remote writes of dead ends stay on their way.
    pub hold_late_writes: bool,
    /// Connections made so far, of all rails.
    pub connections: u64,
    registrations: Registrations,
    /// Messages that went the express path, and those for which a rail had no room.
    pub shorts: (u64, u64),
    /// Messages that were sent at once over a rail that can lose, and received so.
    pub at_once: (u64, u64),
    /// Receives that were over at once.
    pub waited: u64,
    /// Actions carried out.
    pub actions: u64,
    /// Actions by sort: copies (into aggregates too), sends, writes, reads, atomics, registrations.
    pub counts: [u64; 6],
}

/// Facts of a rail like TCP.
pub const TCP: RailFacts = RailFacts {
    kind: RailKind::Tcp,
    caps: Caps { write: false, read: false, registration: false, lossless: false },
    eager_bytes_max: 1000,
    segment_bytes_max: 5000,
    posts_max: 4,
    bytes_per_second: 0,
    ..RailFacts::UNKNOWN
};

/// Facts of a rail like shared memory.
pub const SHM: RailFacts = RailFacts {
    short_bytes_max: 900,
    kind: RailKind::Shm,
    caps: Caps { lossless: true, ..TCP.caps },
    segment_bytes_max: 1500,
    ..TCP
};

/// As [`SHM`], where processes may read each other's memory.
pub const COPY: RailFacts = RailFacts { caps: Caps { read: true, ..SHM.caps }, transfer_bytes_max: 40_000, ..SHM };

/// Facts of a rail that writes remote memory.
pub const PUT: RailFacts =
    RailFacts { kind: RailKind::Sim, caps: Caps { write: true, registration: true, ..TCP.caps }, ..TCP };

/// Facts of a rail that reads remote memory.
pub const GET: RailFacts =
    RailFacts { kind: RailKind::Sim, caps: Caps { read: true, registration: true, ..TCP.caps }, ..TCP };

impl<'m> Cluster<'m> {
    /// `regions.len()` processes that reach each other, and themselves, over all `rails`. `memory` gives each
    /// its regions' sizes.
    pub fn new(
        regions: &'m mut [Region],
        config: &Config,
        rails: &[RailFacts],
        memory: &[usize],
        seed: u64,
    ) -> Cluster<'m> {
        Self::numbered(regions, config, rails, memory, seed, |_| config.first_number)
    }

    /// As [`new`](Self::new), each process with a `first_number` of its own.
    pub fn numbered(
        regions: &'m mut [Region],
        config: &Config,
        rails: &[RailFacts],
        memory: &[usize],
        seed: u64,
        first_number: impl Fn(usize) -> u32,
    ) -> Cluster<'m> {
        let count = regions.len();
        let mut nodes = Vec::new();
        for (rank, region) in regions.iter_mut().enumerate() {
            let config = Config { rank: PeerId(rank as u32), first_number: first_number(rank), ..*config };
            let region = region.take(&config);
            let mut endpoint = Endpoint::new(config, rails, region, Time(0)).expect("starts");
            for peer in 0..count {
                endpoint.add_peer(PeerId(peer as u32), u64::MAX >> (64 - rails.len())).expect("a peer");
            }
            let mut memory: Vec<Vec<u8>> = memory.iter().map(|&len| vec![0; len]).collect();
            memory.push(vec![0; config.pool_bytes().expect("valid") as usize]);
            nodes.push(Node { endpoint, memory, events: VecDeque::new() });
        }
        let links = (0..count * count * rails.len()).map(|_| Link::default()).collect();
        Cluster {
            nodes,
            links,
            rails: rails.len(),
            posts_max: rails.iter().map(|facts| facts.posts_max).collect(),
            now: 0,
            rng: Rng::new(seed),
            coin: Rng::new(!seed),
            honest: true,
            faulty: false,
            refuse_one_in: 0,
            hold_late_writes: false,
            connections: 0,
            registrations: Registrations::default(),
            shorts: (0, 0),
            at_once: (0, 0),
            waited: 0,
            actions: 0,
            counts: [0; 6],
        }
    }

    fn link(&mut self, from: usize, to: usize, rail: usize) -> &mut Link {
        let index = (from * self.nodes.len() + to) * self.rails + rail;
        &mut self.links[index]
    }

    /// Carries out all actions of an endpoint, and collects its events.
    pub fn act(&mut self, rank: usize) {
        let mut actions = heapless::Vec::new();
        while self.nodes[rank].endpoint.poll_actions(Time(self.now), &mut actions) > 0 {
            let mut answers = Vec::new();
            for action in actions.drain(..) {
                self.actions += 1;
                self.carry_out(rank, action, &mut answers);
            }
            for answer in answers {
                self.answer(rank, answer);
            }
        }
        self.answer_registrations(rank);
        while let Some(event) = self.nodes[rank].endpoint.poll_event() {
            self.nodes[rank].events.push_back(event);
        }
    }

    fn answer(&mut self, rank: usize, answer: Answer) {
        match answer {
            Answer::Up(peer, rail) => self.connect(rank, peer.0 as usize, rail),
            Answer::Abort(peer, rail) => self.kill(rank, peer.0 as usize, rail),
            Answer::Close(peer, rail) => self.cut(rank, peer.0 as usize, rail, RailFault::Closed, false),
            Answer::Atomic(operation, old) => self.nodes[rank].endpoint.handle_atomic(operation, old),
        }
    }

    fn carry_out(&mut self, rank: usize, action: Action, answers: &mut Vec<Answer>) {
        match action {
            Action::Connect { peer, rail } => answers.push(Answer::Up(peer, rail)),
            Action::Disconnect { peer, rail } => {
                // A connection dialled in the same batch is not up before it is carried out, and is never
                // reported.
                answers.retain(|answer| !matches!(answer, Answer::Up(to, by) if (*to, *by) == (peer, rail)));
                answers.push(Answer::Close(peer, rail));
            }
            Action::Abort { peer, rail } => answers.push(Answer::Abort(peer, rail)),
            Action::Copy { from, to } => {
                self.counts[0] += 1;
                assert_eq!(from.len(), to.len());
                let node = &mut self.nodes[rank];
                let from: Vec<_> = node.endpoint.segments(from).collect();
                let to: Vec<_> = node.endpoint.segments(to).collect();
                let data = node.read(&from);
                node.write(&to, &data);
            }
            Action::Pack { head, from, to } => {
                self.counts[0] += 1;
                assert_eq!(head.len() as u64 + from.len(), to.len());
                let node = &mut self.nodes[rank];
                let from: Vec<_> = node.endpoint.segments(from).collect();
                let to: Vec<_> = node.endpoint.segments(to).collect();
                let data = [&head[..], &node.read(&from)].concat();
                node.write(&to, &data);
            }
            Action::Post(post) => {
                self.counts[match post.kind {
                    PostKind::Send => 1,
                    PostKind::Write { .. } => 2,
                    PostKind::Read { .. } => 3,
                }] += 1;
                let payload: Vec<_> = self.nodes[rank].endpoint.segments(post.payload).collect();
                assert_eq!(payload.iter().map(|s| s.len).sum::<u64>(), post.payload.len());
                let link = self.link(rank, post.peer.0 as usize, post.rail.0.into());
                assert!(link.up, "posted on a subchannel that is down");
                link.posted.push_back(Posted { id: post.id, kind: post.kind, header: post.header.to_vec(), payload });
                let posts_max = self.posts_max[usize::from(post.rail.0)];
                let link = self.link(rank, post.peer.0 as usize, post.rail.0.into());
                let open = link.posted.len() + link.finished.len();
                assert!(open <= posts_max.into() || !self.honest, "more posts than the rail takes: L-4");
            }
            Action::Atomic(atomic) => {
                self.counts[4] += 1;
                let node = &mut self.nodes[rank];
                let at = Seg { at: atomic.at, len: 8 };
                let old = u64::from_le_bytes(node.read(&[at]).try_into().expect("8 bytes"));
                let new = match atomic.kind {
                    AtomicKind::Add => old.wrapping_add(atomic.operand),
                    AtomicKind::Swap => atomic.operand,
                    AtomicKind::CompareSwap if old == atomic.compare => atomic.operand,
                    _ => old,
                };
                node.write(&[at], &new.to_le_bytes());
                answers.push(Answer::Atomic(atomic.operation, old));
            }
            Action::Register { operation, rail, memory, write } => {
                self.counts[5] += 1;
                let node = &mut self.nodes[rank];
                let seg = node.endpoint.segments(memory).next().expect("memory to register");
                assert_eq!(seg.len, memory.len(), "a key names one contiguous piece");
                self.registrations.request(rank, operation, rail, (seg, write));
            }
            Action::Deregister { rail, key } => {
                let known = self.registrations.forget(rank, rail, key);
                assert!(known || !self.honest, "deregistered what was not registered");
            }
        }
    }

    /// Sends a message, the express path where that is open.
    pub fn send(&mut self, rank: usize, send: &SendRequest<'_>) -> Result<OpId, SubmitError> {
        let now = Time(self.now);
        let seg = match send.segments {
            [] => Some(Seg::default()),
            [seg] => Some(*seg),
            _ => None,
        };
        if let Some(seg) = seg
            && let Some((rail, short, id)) = send_short(&mut self.nodes[rank].endpoint, send, seg.len)
        {
            // Rings are full now and then; what waits for room is not overtaken (L-2).
            let is_full = self.rng.one_in(6);
            let link = self.link(rank, send.peer.0 as usize, rail.0.into());
            if link.up && link.posted.is_empty() && !is_full {
                let payload = if seg.len == 0 { Vec::new() } else { self.nodes[rank].read(&[seg]) };
                let short = Some(short);
                let flying = Flying { header: Vec::new(), payload, placing: None, skip: false, write: None, short };
                self.link(rank, send.peer.0 as usize, rail.0.into()).flying.push_back(flying);
                self.shorts.0 += 1;
                return Ok(id);
            }
            self.nodes[rank].endpoint.unsend_short(send, short);
            self.shorts.1 += 1;
        }
        if let Some(seg) = seg
            && self.coin.one_in(2)
        {
            let mut sent = AtOnce::default();
            if self.nodes[rank].endpoint.send_at_once(now, send, seg.len, &mut sent) {
                self.post_at_once(rank, send.peer, seg, &sent);
                return Ok(sent.operation);
            }
        }
        self.nodes[rank].endpoint.send(now, send)
    }

    /// Copies a message that goes at once, and hands it to its rail.
    fn post_at_once(&mut self, rank: usize, peer: PeerId, from: Seg, sent: &AtOnce) {
        self.counts[1] += 1;
        self.at_once.0 += 1;
        let mut payload = Vec::new();
        if from.len > 0 {
            let node = &mut self.nodes[rank];
            let bytes = node.read(&[from]);
            let to = Seg { at: sent.retained, len: from.len };
            node.write(&[to], &bytes);
            payload.push(to);
        }
        let is_taken = self.coin.one_in(2);
        let posts_max = self.posts_max[usize::from(sent.rail.0)];
        let now = Time(self.now);
        let link = self.link(rank, peer.0 as usize, sent.rail.0.into());
        assert!(link.up, "posted on a subchannel that is down");
        // It is on its way at once, where nothing is before it, and nothing is reported.
        if is_taken && link.posted.is_empty() {
            let payload = self.nodes[rank].read(&payload);
            let (header, placing, skip, write, short) = (sent.header.to_vec(), None, false, None, None);
            let flying = Flying { header, payload, placing, skip, write, short };
            let (to, rail) = (peer.0 as usize, sent.rail.0.into());
            if self.is_whole(rank, to, rail) {
                self.link(rank, to, rail).flying.push_back(flying);
            }
            return self.nodes[rank].endpoint.posted_at_once(now, sent, from.len, true);
        }
        link.posted.push_back(Posted { id: sent.id, kind: PostKind::Send, header: sent.header.to_vec(), payload });
        let open = link.posted.len() + link.finished.len();
        assert!(open <= posts_max.into() || !self.honest, "more posts than the rail takes: L-4");
        self.nodes[rank].endpoint.posted_at_once(now, sent, from.len, false);
    }

    /// Posts a receive, which may be over at once; half of those that could do without an operation do.
    pub fn recv(&mut self, rank: usize, recv: &RecvRequest<'_>) -> Result<OpId, SubmitError> {
        let now = Time(self.now);
        let node = &mut self.nodes[rank];
        if let Some(ShortReceived { operation, from }) = node.endpoint.recv_waiting(recv) {
            let bytes = node.read(&[from]);
            node.write(&[Seg { len: from.len, ..recv.segments[0] }], &bytes);
            self.waited += 1;
            return Ok(operation);
        }
        if self.rng.one_in(2)
            && let Some(id) = node.endpoint.recv_short(recv)
        {
            return Ok(id);
        }
        node.endpoint.recv(now, recv)
    }

    /// Takes a subchannel down; `is_reported`: notifies the near end too.
    pub fn cut(&mut self, near: usize, far: usize, rail: RailId, fault: RailFault, is_reported: bool) {
        let now = Time(self.now);
        for (from, to) in [(near, far), (far, near)] {
            let link = self.link(from, to, rail.0.into());
            let up = std::mem::take(&mut link.up);
            link.posted.clear();
            link.finished.clear();
            // Packets sent before an orderly close still arrive; a fault drops them.
            if is_reported {
                link.flying.clear();
            }
            if up && (from == far || is_reported) {
                let event = RailEvent::Down { peer: PeerId(to as u32), rail, fault };
                while let Some(flying) = self.link(to, from, rail.0.into()).flying.pop_front() {
                    self.deliver(to, from, rail.0.into(), flying, true);
                }
                self.nodes[from].endpoint.handle_rail_event(now, event);
            }
        }
    }

    /// One event on one link: a post is sent, a completion is reported, a packet or a part of one arrives.
    pub fn step_link(&mut self, from: usize, to: usize, rail: usize) -> bool {
        let choice = self.rng.below(3);
        let link = self.link(from, to, rail);
        match choice {
            0 if !link.posted.is_empty() => {
                let posted = link.posted.pop_front().expect("not empty");
                let len = posted.payload.iter().map(|s| s.len).sum();
                match posted.kind {
                    PostKind::Send => {
                        let payload = self.nodes[from].read(&posted.payload);
                        let flying = Flying {
                            header: posted.header,
                            payload,
                            placing: None,
                            skip: false,
                            write: None,
                            short: None,
                        };
                        if self.is_whole(from, to, rail) {
                            self.link(from, to, rail).flying.push_back(flying);
                        }
                    }
                    // Writes and reads overtake no packet behind them: they take effect at once.
                    PostKind::Write { to: key } => {
                        let data = self.nodes[from].read(&posted.payload);
                        if self.is_whole(from, to, rail)
                            && let Some(seg) = self.remote_seg(to, rail, key, len)
                        {
                            self.nodes[to].write(&[seg], &data);
                        }
                    }
                    PostKind::Read { from: key } => {
                        if !self.is_whole(from, to, rail) {
                            // It will never be over, but for this end's end.
                            return true;
                        }
                        if let Some(seg) = self.remote_seg(to, rail, key, len) {
                            let data = self.nodes[to].read(&[seg]);
                            self.nodes[from].write(&posted.payload, &data);
                        }
                    }
                }
                self.link(from, to, rail).finished.push(posted.id);
            }
            1 if !link.finished.is_empty() => {
                let id = link.finished.remove(0);
                self.nodes[from].endpoint.handle_completion(Time(self.now), id, PostStatus::Done);
                // Reported twice, at once or later: the second one must find nothing.
                let repeat = match self.rng.below(8) {
                    0 => Some(id),
                    1 | 2 => {
                        self.link(from, to, rail).repeats.push(id);
                        None
                    }
                    3 | 4 => self.link(from, to, rail).repeats.pop(),
                    _ => None,
                };
                if let Some(id) = repeat {
                    self.nodes[from].endpoint.handle_completion(Time(self.now), id, PostStatus::Done);
                }
            }
            2 if self.hold_late_writes
                && self.link(from, to, rail).flying.front().is_some_and(|flying| flying.write.is_some()) =>
            {
                return false;
            }
            2 if !self.link(from, to, rail).flying.is_empty() => {
                let link = self.link(from, to, rail);
                let flying = link.flying.pop_front().expect("not empty");
                let all = self.rng.one_in(2);
                if let Some(rest) = self.deliver(from, to, rail, flying, all) {
                    self.link(from, to, rail).flying.push_front(rest);
                }
            }
            _ => return false,
        }
        true
    }

    /// The rail takes and finishes its oldest post, and the packet vanishes; `false`: there was none.
    pub fn finish_posts(&mut self, from: usize, to: usize, rail: usize) -> bool {
        let Some(posted) = self.link(from, to, rail).posted.pop_front() else { return false };
        self.nodes[from].endpoint.handle_completion(Time(self.now), posted.id, PostStatus::Done);
        true
    }

    /// Remote writes that a rail has not carried out.
    pub fn pending_writes(&mut self, from: usize, to: usize, rail: usize) -> usize {
        let link = self.link(from, to, rail);
        let is_write = |kind: PostKind| matches!(kind, PostKind::Write { .. });
        let posted = link.posted.iter().filter(|posted| is_write(posted.kind)).count();
        posted + link.flying.iter().filter(|flying| flying.write.is_some()).count()
    }

    /// Delivers a packet, or a part of its payload; returns what is left of it.
    fn deliver(&mut self, from: usize, to: usize, rail: usize, mut flying: Flying, all: bool) -> Option<Flying> {
        let now = Time(self.now);
        if let Some(seg) = flying.write {
            // A write that was on its way when its sender's end died.
            if self.link(to, from, rail).up {
                self.nodes[to].write(&[seg], &flying.payload);
            }
            return None;
        }
        let node = &mut self.nodes[to];
        if flying.placing.is_none() && !flying.skip {
            let (peer, rail) = (PeerId(from as u32), RailId(rail as u8));
            let is_eager = flying.header.get(1) == Some(&(Kind::Eager as u8));
            if is_eager && self.coin.one_in(2) {
                match node.endpoint.arrive_at_once(now, peer, rail, &flying.header) {
                    ShortArrival::At(at) => {
                        self.at_once.1 += 1;
                        node.write(&[Seg { at, len: flying.payload.len() as u64 }], &flying.payload);
                        return None;
                    }
                    ShortArrival::Done => {
                        assert_eq!(flying.payload.len(), 0, "a payload without a place");
                        return None;
                    }
                    ShortArrival::Slow => {}
                }
            }
            let arrival = match flying.short {
                None => node.endpoint.handle_arrival(now, peer, rail, &flying.header),
                Some(short) => match node.endpoint.arrive_short(peer, rail, &short) {
                    ShortArrival::Done => return None,
                    ShortArrival::At(at) => {
                        let seg = Seg { at, len: flying.payload.len() as u64 };
                        node.write(&[seg], &flying.payload);
                        return None;
                    }
                    ShortArrival::Slow => node.endpoint.handle_short(now, peer, rail, &short),
                },
            };
            match arrival {
                Arrival::Done | Arrival::Discard | Arrival::Address { .. } | Arrival::Close => return None,
                Arrival::Place { id, .. } => flying.placing = Some((id, 0)),
            }
        }
        let (id, at) = flying.placing?;
        // Between the parts of a payload anything may happen to its place.
        let memory = node.endpoint.place_memory(id)?;
        let until = if all { memory.len() } else { at + self.rng.below(memory.len() - at + 1) };
        let node = &mut self.nodes[to];
        let segs: Vec<_> = node.endpoint.segments(memory.behind(at)).collect();
        node.write(&segs, &flying.payload[at as usize..until as usize]);
        if until < memory.len() {
            flying.placing = Some((id, until));
            return Some(flying);
        }
        node.placed(now, id);
        if self.rng.one_in(10) {
            self.nodes[to].placed(now, id);
        }
        None
    }

    /// Runs the simulation until nothing moves and no timer is near; panics where it never comes to rest.
    pub fn run_until_idle(&mut self) {
        let count = self.nodes.len();
        let mut idle = 0;
        for _ in 0..5_000_000u64 {
            self.now += self.rng.below(2000);
            let rank = self.rng.below(count as u64) as usize;
            if self.nodes[rank].endpoint.next_timeout().is_some_and(|at| at.0 <= self.now) {
                self.nodes[rank].endpoint.handle_timeout(Time(self.now));
            }
            let before = self.actions;
            self.act(rank);
            let mut moved = self.actions != before;
            for _ in 0..4 {
                let (from, to) = (self.rng.below(count as u64) as usize, self.rng.below(count as u64) as usize);
                let rail = self.rng.below(self.rails as u64) as usize;
                moved |= self.step_link(from, to, rail);
            }
            idle = if moved { 0 } else { idle + 1 };
            if idle > 200 * count && self.at_rest() {
                return;
            }
        }
        panic!("the simulated cluster does not come to rest");
    }

    /// Whether no rail has anything left to do, and every registration is answered.
    pub fn links_are_idle(&self) -> bool {
        let idle = |link: &Link| link.posted.is_empty() && link.flying.is_empty() && link.finished.is_empty();
        self.links.iter().all(idle) && self.registrations.are_answered()
    }

    fn at_rest(&self) -> bool {
        // An acknowledgment that is due soon is still to come.
        let soon = Time(self.now + 5_000_000);
        self.links_are_idle() && self.nodes.iter().all(|n| n.endpoint.next_obligation().is_none_or(|at| at > soon))
    }
}

/// [`Endpoint::send_short`], tried once more where the way can be opened.
fn send_short(endpoint: &mut Endpoint<'_>, send: &SendRequest<'_>, len: u64) -> Option<(RailId, Short, OpId)> {
    let sent = endpoint.send_short(send, len);
    if sent.is_none() && endpoint.open_short(send.peer) { endpoint.send_short(send, len) } else { sent }
}
