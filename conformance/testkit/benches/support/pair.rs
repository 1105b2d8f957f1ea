//! Two endpoints that hand each other packets directly: what a message costs in the core, without any rail,
//! system call or allocation. Every report that a rail would make is made: arrival, placement, completion.
//!
//! The clock is a number that each drive moves on by [`STEP`], so acknowledgments fall due as they do in a
//! busy job. Rails move [`BYTES_PER_MICROSECOND`], so a post completes later than it was made and policies
//! get measurements; where nothing else is pending, the clock moves to the next completion.
//!
//! All calls of a side to its endpoint go through functions of [`at_first`] or [`at_second`], which a
//! profiler can distinguish: their inclusive cost is what the core spends on that side, and nothing else.

use std::collections::VecDeque;
use std::hint::black_box;

use rerail_core::config::Config;
use rerail_core::endpoint::{
    Action, Arrival, AtOnce, Endpoint, Event, MessageClass, Peek, Policy, PostStatus, RailEvent, RecvRequest, Selector,
    SendRequest, ShortArrival, ShortPost, Span, TagMatch,
};
use rerail_core::ids::{PeerId, PlaceId, PostId, RailId};
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::rail::{Caps, RailFacts, RailKind};
use rerail_core::time::{Nanos, Time};
use rerail_testkit::region::Region;

/// Bytes of each side's buffer; the longest message.
pub const BUFFER_BYTES: usize = 1 << 20;
/// The longest message that goes eagerly.
const EAGER_BYTES: u32 = 8192;
/// The longest packet on a rail that may lose something: as the shim's TCP rails cut.
const SEGMENT_BYTES: u32 = 256 << 10;
/// What a rail moves: 1 GB/s.
const BYTES_PER_MICROSECOND: u64 = 1000;
/// Of so many small messages so many are reported one by one.
const SMALL_TURN: u32 = 1024;
const SMALL_REPORTED: u32 = 32;
/// Time between two drives.
const STEP: Nanos = Nanos(200);
/// The region of the buffer.
const BUFFER: RegionId = RegionId(0);
const TAG: u64 = 7;

/// The configuration of both sides: one peer beside the rank itself.
pub fn config(rank: u32) -> Config {
    Config::new(PeerId(rank), 2)
}

/// A lossless rail (so payloads go straight from the sender's buffer), or a lossy one: packets alone, no
/// remote memory, and a completion means that the bytes were moved.
pub fn facts(lossless: bool) -> RailFacts {
    RailFacts {
        kind: if lossless { RailKind::Shm } else { RailKind::Verbs },
        caps: Caps { lossless, ..Caps::default() },
        eager_bytes_max: EAGER_BYTES,
        segment_bytes_max: if lossless { EAGER_BYTES } else { SEGMENT_BYTES },
        posts_max: if lossless { 64 } else { 32 },
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

/// The calls of one side to its endpoint, as a driver makes them. None is inlined, and no other side's are
/// the same code, so a profiler distinguishes the sides from each other and from what is around them.
macro_rules! calls {
    ($side:ident, $number:literal) => {
        mod $side {
            use super::*;

            #[inline(never)]
            pub fn post(endpoint: &mut Endpoint<'_>, now: Time, recv: &RecvRequest<'_>, at: MemRef) {
                black_box($number);
                if !matches!(endpoint.post_short(recv, at), ShortPost::Posted(_)) {
                    endpoint.recv(now, recv).expect("there is room");
                }
            }

            #[inline(never)]
            pub fn send_at_once(
                endpoint: &mut Endpoint<'_>,
                now: Time,
                send: &SendRequest<'_>,
                bytes: u64,
                out: &mut AtOnce,
            ) -> bool {
                black_box($number);
                endpoint.send_at_once(now, send, bytes, out)
            }

            #[inline(never)]
            pub fn posted(endpoint: &mut Endpoint<'_>, now: Time, sent: &AtOnce, bytes: u64, is_over: bool) {
                black_box($number);
                endpoint.posted_at_once(now, sent, bytes, is_over);
            }

            #[inline(never)]
            pub fn send(endpoint: &mut Endpoint<'_>, now: Time, send: &SendRequest<'_>) {
                black_box($number);
                endpoint.send(now, send).expect("there is room");
            }

            #[inline(never)]
            pub fn timeout(endpoint: &mut Endpoint<'_>, now: Time) {
                black_box($number);
                endpoint.handle_timeout(now);
            }

            #[inline(never)]
            pub fn act(endpoint: &mut Endpoint<'_>, now: Time, actions: &mut heapless::Vec<Action, 16>) -> bool {
                black_box($number);
                endpoint.has_actions() && endpoint.poll_actions(now, actions) > 0
            }

            #[inline(never)]
            pub fn look(endpoint: &mut Endpoint<'_>, now: Time, actions: &mut heapless::Vec<Action, 16>) {
                black_box($number);
                assert_eq!(endpoint.poll_actions(now, actions), 0);
            }

            #[inline(never)]
            pub fn may_have_work(endpoint: &mut Endpoint<'_>, now: Time) -> bool {
                black_box($number);
                endpoint.may_have_work(now)
            }

            #[inline(never)]
            pub fn up(endpoint: &mut Endpoint<'_>, now: Time, event: RailEvent) {
                black_box($number);
                endpoint.handle_rail_event(now, event);
            }

            #[inline(never)]
            pub fn completion(endpoint: &mut Endpoint<'_>, now: Time, id: PostId) {
                black_box($number);
                endpoint.handle_completion(now, id, PostStatus::Done);
            }

            #[inline(never)]
            pub fn arrive_at_once(
                endpoint: &mut Endpoint<'_>,
                now: Time,
                from: (PeerId, RailId),
                header: &[u8],
            ) -> ShortArrival {
                black_box($number);
                endpoint.arrive_at_once(now, from.0, from.1, header)
            }

            #[inline(never)]
            pub fn arrival(endpoint: &mut Endpoint<'_>, now: Time, from: (PeerId, RailId), header: &[u8]) -> Arrival {
                black_box($number);
                endpoint.handle_arrival(now, from.0, from.1, header)
            }

            #[inline(never)]
            pub fn placed(endpoint: &mut Endpoint<'_>, now: Time, id: PlaceId, peek: Peek<'_>) {
                black_box($number);
                endpoint.handle_placed(now, id, peek);
            }

            #[inline(never)]
            pub fn shorts(endpoint: &mut Endpoint<'_>) -> u64 {
                black_box($number);
                endpoint.poll_shorts().len() as u64
            }

            #[inline(never)]
            pub fn event(endpoint: &mut Endpoint<'_>) -> Option<Event> {
                black_box($number);
                endpoint.poll_event()
            }
        }
    };
}

calls!(at_first, 1);
calls!(at_second, 2);
// Until costs are counted: connecting and the first messages.
calls!(uncounted, 0);

/// Calls the function of a side.
macro_rules! run {
    ($side:expr, $call:ident($($argument:expr),*)) => {{
        let side = &mut *$side;
        match (side.counted, side.me) {
            (false, _) => uncounted::$call(&mut side.endpoint, $($argument),*),
            (true, 0) => at_first::$call(&mut side.endpoint, $($argument),*),
            (true, _) => at_second::$call(&mut side.endpoint, $($argument),*),
        }
    }};
}

/// Where memory lies in its region: the buffer begins at address 0.
fn offset(at: MemRef) -> usize {
    at.address().unwrap_or(at.offset) as usize
}

struct Side<'m> {
    me: usize,
    /// Its calls go through [`at_first`] or [`at_second`].
    counted: bool,
    endpoint: Endpoint<'m>,
    buffer: Vec<u8>,
    pool: Vec<u8>,
    completed: u64,
    /// The pending work of each rail, in order, and the time of its completion.
    rails: Vec<VecDeque<(Time, PostId)>>,
    /// Small messages so far.
    small: u32,
}

/// Two connected endpoints.
pub struct Pair<'m> {
    sides: [Side<'m>; 2],
    now: Time,
    actions: heapless::Vec<Action, 16>,
    /// The message that was sent at its submission.
    sent: AtOnce,
    /// Payload on the way.
    wire: Vec<u8>,
}

impl<'m> Pair<'m> {
    /// Connects two endpoints over `rails` rails. `policy`: for all classes of messages; `None`: the default.
    /// `recovery`: of [`Config`].
    pub fn connect(
        regions: &'m mut Regions,
        lossless: bool,
        rails: usize,
        policy: Option<Policy>,
        recovery: bool,
    ) -> Pair<'m> {
        let mut rank = 0;
        let sides = regions.0.each_mut().map(|region| {
            let config = Config { recovery, ..config(rank) };
            let facts = vec![facts(lossless); rails];
            let mut endpoint = Endpoint::new(config, &facts, region.take(&config), Time(0)).expect("starts");
            let mask = u64::MAX >> (64 - rails);
            endpoint.add_peer(PeerId(1 - rank), mask).expect("the other side");
            if let Some(policy) = policy {
                MessageClass::ALL.into_iter().for_each(|class| endpoint.set_policy(class, policy));
            }
            let me = rank as usize;
            rank += 1;
            let pool = vec![0; config.pool_bytes().expect("valid") as usize];
            let rails = (0..rails).map(|_| VecDeque::with_capacity(64)).collect();
            Side { me, counted: false, endpoint, buffer: vec![0; BUFFER_BYTES], pool, completed: 0, rails, small: 0 }
        });
        let mut pair = Pair {
            sides,
            now: Time(1),
            actions: heapless::Vec::new(),
            sent: AtOnce::default(),
            wire: Vec::with_capacity(BUFFER_BYTES),
        };
        pair.one_way(0, 8);
        pair.one_way(1, 8);
        pair
    }

    /// From now on a profiler can separate the cost of each side.
    #[allow(dead_code, reason = "seen by more than one target")]
    pub fn count(&mut self) {
        self.sides.iter_mut().for_each(|side| side.counted = true);
    }

    /// One message of `bytes` bytes from side `from`, received before it is sent, until both sides have their
    /// completions.
    pub fn one_way(&mut self, from: usize, bytes: u64) {
        let wanted = [0, 1].map(|side: usize| self.sides[side].completed + 1);
        self.recv(1 - from, bytes);
        self.send(from, bytes);
        while (0..2).any(|side| self.sides[side].completed < wanted[side]) {
            let done = self.drive(from) | self.drive(1 - from);
            if !done {
                self.skip();
            }
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
        let recv = RecvRequest::new(from, &segments);
        let now = self.now;
        // The driver names memory by its address; here the buffer begins at address 0.
        run!(&mut self.sides[side], post(now, &recv, MemRef::by_address(BUFFER, 0)));
    }

    /// Submits a send, as the driver does.
    pub fn send(&mut self, side: usize, bytes: u64) {
        let segments = [Seg::new(BUFFER, 0, bytes)];
        let send = SendRequest { tag: Some(TAG), ..SendRequest::new(PeerId(1 - side as u32), &segments) };
        let now = self.now;
        let [first, second] = &mut self.sides;
        let (here, there) = if side == 0 { (first, second) } else { (second, first) };
        let sent = &mut self.sent;
        // As rails do that copy it: they report some, so that those are measured.
        let is_taken = here.small % SMALL_TURN >= SMALL_REPORTED;
        if !run!(here, send_at_once(now, &send, bytes, sent)) {
            return run!(here, send(now, &send));
        }
        run!(here, posted(now, sent, bytes, is_taken));
        here.small += 1;
        let at = sent.retained.offset as usize;
        here.pool[at..][..bytes as usize].copy_from_slice(&here.buffer[..bytes as usize]);
        self.wire.clear();
        self.wire.extend_from_slice(&here.pool[at..][..bytes as usize]);
        if !is_taken {
            here.post(now, sent.rail, sent.id, sent.header.len() as u64 + bytes);
        }
        there.take(now, PeerId(side as u32), sent.rail, &sent.header, &self.wire);
    }

    /// Nothing is pending now: moves the clock to the next completion, if there is one.
    fn skip(&mut self) {
        let due = self.sides.iter().flat_map(|side| &side.rails).filter_map(|rail| rail.front().map(|&(due, _)| due));
        if let Some(due) = due.min() {
            self.now = self.now.max(due);
        }
    }

    /// One round of side `me`: reports completions, carries out actions, and reports these. Returns whether
    /// there was anything.
    pub fn drive(&mut self, me: usize) -> bool {
        self.now = self.now + STEP;
        let now = self.now;
        let [first, second] = &mut self.sides;
        let (here, there) = if me == 0 { (first, second) } else { (second, first) };
        let done = here.complete(now);
        if here.endpoint.next_timeout().is_some_and(|due| due <= now) {
            run!(here, timeout(now));
        }
        here.completed += run!(here, shorts());
        if !run!(here, may_have_work(now)) {
            return done;
        }
        let mut has_work = false;
        while run!(here, act(now, &mut self.actions)) {
            has_work = true;
            for action in &self.actions {
                match action {
                    Action::Post(post) => {
                        self.wire.clear();
                        here.gather(post.payload, &mut self.wire);
                        there.take(now, PeerId(me as u32), post.rail, &post.header, &self.wire);
                        here.post(now, post.rail, post.id, (post.header.len() + self.wire.len()) as u64);
                    }
                    Action::Copy { from, to } => here.copy(*from, *to, &mut self.wire),
                    // Before anything arrives here, or there.
                    Action::Connect { rail, .. } => {
                        here.comes_up(now, *rail);
                        there.comes_up(now, *rail);
                    }
                    Action::Pack { head, from, to } => here.pack(head, *from, *to, &mut self.wire),
                    other => unreachable!("no request leads to {other:?}"),
                }
            }
        }
        has_work |= here.report_completions();
        if !has_work {
            // There was none: from now on that is one comparison.
            run!(here, look(now, &mut self.actions));
        }
        done | has_work
    }
}

impl<'m> Side<'m> {
    /// A subchannel is there, unless it was already.
    fn comes_up(&mut self, now: Time, rail: RailId) {
        let peer = PeerId(1 - self.me as u32);
        run!(self, up(now, RailEvent::Up { peer, rail }));
    }

    /// A rail gets a post of so many bytes, header included.
    fn post(&mut self, now: Time, rail: RailId, id: PostId, bytes: u64) {
        let rail = &mut self.rails[usize::from(rail.0)];
        let begins = rail.back().map_or(now, |&(free, _)| free.max(now));
        rail.push_back((begins + Nanos(bytes * 1000 / BYTES_PER_MICROSECOND), id));
    }

    /// Reports what rails have completed.
    fn complete(&mut self, now: Time) -> bool {
        let mut done = false;
        for rail in 0..self.rails.len() {
            while let Some(&(_, id)) = self.rails[rail].front().filter(|(due, _)| *due <= now) {
                self.rails[rail].pop_front();
                run!(self, completion(now, id));
                done = true;
            }
        }
        done
    }

    fn gather(&self, span: Span, into: &mut Vec<u8>) {
        for seg in self.endpoint.segments(span) {
            let memory = if seg.at.region == RegionId::POOL { &self.pool } else { &self.buffer };
            into.extend_from_slice(&memory[offset(seg.at)..][..seg.len as usize]);
        }
    }

    fn scatter(&mut self, mut from: &[u8], span: Span) {
        for seg in self.endpoint.segments(span) {
            let memory = if seg.at.region == RegionId::POOL { &mut self.pool } else { &mut self.buffer };
            let (now, later) = from.split_at(seg.len as usize);
            memory[offset(seg.at)..][..now.len()].copy_from_slice(now);
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
        if payload.len() <= EAGER_BYTES as usize {
            match run!(self, arrive_at_once(now, (peer, rail), header)) {
                ShortArrival::At(at) => {
                    return self.buffer[offset(at)..][..payload.len()].copy_from_slice(payload);
                }
                ShortArrival::Done => return,
                ShortArrival::Slow => {}
            }
        }
        match run!(self, arrival(now, (peer, rail), header)) {
            Arrival::Place { id, memory } => {
                self.scatter(&payload[..memory.len() as usize], memory);
                let pool = std::mem::take(&mut self.pool);
                let peek = |at: MemRef, bytes: &mut [u8]| {
                    bytes.copy_from_slice(&pool[at.offset as usize..][..bytes.len()]);
                };
                run!(self, placed(now, id, &peek));
                self.pool = pool;
            }
            Arrival::Done | Arrival::Discard | Arrival::Address { .. } => {}
            Arrival::Close => unreachable!("both sides are honest"),
        }
    }

    /// Returns whether there was an event.
    fn report_completions(&mut self) -> bool {
        let mut has_events = false;
        while let Some(event) = run!(self, event()) {
            has_events = true;
            if let Event::Completed(completion) = event {
                completion.result.expect("nothing fails here");
                self.completed += 1;
            }
        }
        has_events
    }
}
