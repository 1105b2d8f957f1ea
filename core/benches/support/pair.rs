//! Two endpoints that hand each other packets directly: what a message costs in the core, without any rail, system call
//! or allocation. Every report that a rail would make is made: arrival, placement, completion.
//!
//! The clock is a number that each drive moves on by [`STEP`], so acknowledgments fall due as they do in a busy job.

use rerail_core::config::Config;
use rerail_core::endpoint::harness::Region;
use rerail_core::endpoint::{
    Action, Arrival, Endpoint, Event, PostStatus, RailEvent, Recv, Selector, Send, Span, TagMatch,
};
use rerail_core::ids::{PeerId, PostId, RailId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::rail::{Caps, RailFacts, RailKind};
use rerail_core::time::{Nanos, Time};

/// Bytes of each side's buffer; the longest message.
pub const BUFFER_BYTES: usize = 8192;
/// Time between two drives.
const STEP: Nanos = Nanos(200);
/// The region of the buffer.
const BUFFER: RegionId = RegionId(0);
const TAG: u64 = 7;

/// The configuration of both sides: one peer beside oneself.
pub fn config(rank: u32) -> Config {
    Config::new(PeerId(rank), 2)
}

/// A rail that loses nothing (so payloads go straight from the sender's buffer), or one that may.
pub fn facts(lossless: bool) -> RailFacts {
    RailFacts {
        kind: if lossless { RailKind::Shm } else { RailKind::Tcp },
        caps: Caps { lossless, ..Caps::default() },
        eager_bytes_max: BUFFER_BYTES as u32,
        segment_bytes_max: BUFFER_BYTES as u32,
        posts_max: 64,
        bytes_per_second: 0,
        ..RailFacts::UNKNOWN
    }
}

/// Room for the state of both sides.
pub struct Regions([Region; 2]);

impl Regions {
    /// Room for [`config`].
    #[allow(clippy::new_without_default, reason = "allocates; and seen by more than one target")]
    pub fn new() -> Regions {
        Regions([0, 1].map(|rank| Region::of(&config(rank))))
    }
}

struct Side<'m> {
    endpoint: Endpoint<'m>,
    buffer: Vec<u8>,
    pool: Vec<u8>,
    completed: u64,
}

/// Two connected endpoints.
pub struct Pair<'m> {
    sides: [Side<'m>; 2],
    now: Time,
    actions: heapless::Vec<Action, 16>,
    over: heapless::Vec<PostId, 16>,
    /// Payload on the way.
    wire: Vec<u8>,
}

impl<'m> Pair<'m> {
    /// Connects two endpoints over one rail.
    pub fn connect(regions: &'m mut Regions, lossless: bool) -> Pair<'m> {
        let mut rank = 0;
        let sides = regions.0.each_mut().map(|region| {
            let config = config(rank);
            let facts = [facts(lossless)];
            let mut endpoint = Endpoint::new(config, &facts, region.for_test(&config), Time(0)).expect("starts");
            endpoint.add_peer(PeerId(1 - rank), 1).expect("the other side");
            rank += 1;
            let pool = vec![0; config.pool_bytes().expect("valid") as usize];
            Side { endpoint, buffer: vec![0; BUFFER_BYTES], pool, completed: 0 }
        });
        let (actions, over) = (heapless::Vec::new(), heapless::Vec::new());
        let mut pair = Pair { sides, now: Time(1), actions, over, wire: Vec::with_capacity(BUFFER_BYTES) };
        pair.one_way(0, 8);
        pair.one_way(1, 8);
        pair
    }

    /// One message of `bytes` bytes from side `from`, received before it is sent, until both sides were told.
    pub fn one_way(&mut self, from: usize, bytes: u64) {
        let wanted = [0, 1].map(|side: usize| self.sides[side].completed + 1);
        self.recv(1 - from, bytes);
        self.send(from, bytes);
        while (0..2).any(|side| self.sides[side].completed < wanted[side]) {
            self.drive(from);
            self.drive(1 - from);
        }
    }

    /// There and back.
    pub fn round_trip(&mut self, bytes: u64) {
        self.one_way(0, bytes);
        self.one_way(1, bytes);
    }

    /// Posts a receive.
    pub fn recv(&mut self, side: usize, bytes: u64) {
        let from = Selector { source: Some(PeerId(1 - side as u32)), tag: TagMatch::Tagged { tag: TAG, ignore: 0 } };
        let segments = [Seg::new(BUFFER, 0, bytes)];
        let recv = Recv { from, segments: &segments, ..Recv::default() };
        self.sides[side].endpoint.recv(self.now, &recv).expect("there is room");
    }

    /// Submits a send.
    pub fn send(&mut self, side: usize, bytes: u64) {
        let segments = [Seg::new(BUFFER, 0, bytes)];
        let send = Send { peer: PeerId(1 - side as u32), tag: Some(TAG), segments: &segments, ..Send::default() };
        self.sides[side].endpoint.send(self.now, &send).expect("there is room");
    }

    /// One round of side `me`: what it wants done is done, and what is over is told.
    pub fn drive(&mut self, me: usize) {
        self.now = self.now + STEP;
        let now = self.now;
        let [first, second] = &mut self.sides;
        let (here, there) = if me == 0 { (first, second) } else { (second, first) };
        if here.endpoint.next_timeout().is_some_and(|due| due <= now) {
            here.endpoint.handle_timeout(now);
        }
        loop {
            self.actions.clear();
            if here.endpoint.poll_actions(now, &mut self.actions) == 0 {
                break;
            }
            let mut came_up = false;
            for action in &self.actions {
                match action {
                    Action::Post(post) => {
                        self.wire.clear();
                        here.gather(post.payload, &mut self.wire);
                        there.take(now, PeerId(me as u32), post.rail, &post.header, &self.wire);
                        self.over.push(post.id).expect("no longer than the batch");
                    }
                    Action::Copy { from, to } => here.copy(*from, *to, &mut self.wire),
                    Action::Pack { head, from, to } => here.pack(head, *from, *to, &mut self.wire),
                    Action::Connect { .. } => came_up = true,
                    other => unreachable!("nobody asked for {other:?}"),
                }
            }
            for id in &self.over {
                here.endpoint.handle_completion(now, *id, PostStatus::Done);
            }
            self.over.clear();
            if came_up {
                // Before anything arrives here, or there.
                for (side, peer) in [(&mut *here, 1 - me), (&mut *there, me)] {
                    let up = RailEvent::Up { peer: PeerId(peer as u32), rail: RailId(0) };
                    side.endpoint.handle_rail_event(now, up);
                }
            }
        }
        here.tell();
    }
}

impl Side<'_> {
    fn gather(&self, span: Span, into: &mut Vec<u8>) {
        for seg in self.endpoint.segments(span) {
            let memory = if seg.at.region == RegionId::POOL { &self.pool } else { &self.buffer };
            into.extend_from_slice(&memory[seg.at.offset as usize..][..seg.len as usize]);
        }
    }

    fn scatter(&mut self, mut from: &[u8], span: Span) {
        for seg in self.endpoint.segments(span) {
            let memory = if seg.at.region == RegionId::POOL { &mut self.pool } else { &mut self.buffer };
            let (now, later) = from.split_at(seg.len as usize);
            memory[seg.at.offset as usize..][..now.len()].copy_from_slice(now);
            from = later;
        }
    }

    fn copy(&mut self, from: Span, to: Span, scratch: &mut Vec<u8>) {
        scratch.clear();
        self.gather(from, scratch);
        self.scatter(scratch, to);
    }

    fn pack(&mut self, head: &[u8], from: Span, to: Span, scratch: &mut Vec<u8>) {
        scratch.clear();
        scratch.extend_from_slice(head);
        self.gather(from, scratch);
        self.scatter(scratch, to);
    }

    /// A packet arrives, whole.
    fn take(&mut self, now: Time, peer: PeerId, rail: RailId, header: &[u8], payload: &[u8]) {
        match self.endpoint.handle_arrival(now, peer, rail, header) {
            Arrival::Place { id, memory } => {
                self.scatter(&payload[..memory.len() as usize], memory);
                let pool = &self.pool;
                self.endpoint.handle_placed(now, id, &|at, bytes| {
                    bytes.copy_from_slice(&pool[at.offset as usize..][..bytes.len()]);
                });
            }
            Arrival::Done | Arrival::Discard => {}
            Arrival::Close => unreachable!("both sides are honest"),
        }
    }

    fn tell(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::Completed(completion) = event {
                completion.result.expect("nothing fails here");
                self.completed += 1;
            }
        }
    }
}
