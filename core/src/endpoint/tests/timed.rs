//! Two endpoints over rails that take time: what is seen of rails, and how work is spread over them.
//!
//! A rail is a line in each direction: posts one after the other at its bandwidth, then its latency. The
//! rails do not touch payloads; other tests check that these arrive whole.

use super::*;
use crate::rail::rails_of;

/// A rail's bandwidth in bytes per second, and its latency one way.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) bytes_per_second: u64,
    pub(super) latency: u64,
}

enum Happens {
    Completed(usize, PostId),
    Arrives(usize, RailId, Vec<u8>),
    Registered(usize, OpId, RailId),
}

/// A post as a rail got it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub(super) at: u64,
    pub(super) rank: usize,
    pub(super) rail: usize,
    pub(super) len: u64,
    /// What the rail has to do since.
    pub(super) backlog: u64,
}

pub(super) struct Timed<'m> {
    pub(super) endpoints: Vec<Endpoint<'m>>,
    pub(super) lines: Vec<Line>,
    /// Completions are noticed at multiples of this.
    pub(super) poll: u64,
    free_at: Vec<[u64; 2]>,
    happens: BTreeMap<(u64, u64), Happens>,
    count: u64,
    pub(super) now: u64,
    /// When requests were over: rank, cookie, time.
    pub(super) over: Vec<(usize, u64, u64)>,
    pub(super) posts: Vec<Logged>,
    /// The most transfers that were cut at once.
    pub(super) sets_most: u32,
    /// What registering costs, by rail, in nanoseconds: each time, and for each page. Nothing by default.
    pub(super) registering: Vec<(u64, u64)>,
    /// Memory stays registered: what a rail has registered once costs nothing any more.
    pub(super) keeps: bool,
    registered: BTreeSet<(usize, RailId)>,
    /// Registrations that were made.
    pub(super) made: Vec<RailId>,
    /// A processor registers with one rail after the other.
    processor_free: [u64; 2],
    /// Rails that become others, and when.
    pub(super) changes: BTreeMap<u64, (usize, Line)>,
}

impl<'m> Timed<'m> {
    pub(super) fn new(regions: &'m mut [Region], config: &Config, rails: &[RailFacts], lines: &[Line]) -> Self {
        Timed::over(regions, config, rails, lines, u64::MAX >> (64 - rails.len()))
    }

    /// Two endpoints that reach each other over the rails of a mask alone.
    pub(super) fn over(
        regions: &'m mut [Region],
        config: &Config,
        rails: &[RailFacts],
        lines: &[Line],
        reached: u64,
    ) -> Self {
        let mut endpoints = Vec::new();
        for (rank, region) in regions.iter_mut().enumerate() {
            let config = Config { rank: PeerId(rank as u32), ..*config };
            let mut endpoint = Endpoint::new(config, rails, region.take(&config), Time(0)).unwrap();
            endpoint.add_peer(PeerId(1 - rank as u32), reached).unwrap();
            for rail in rails_of(reached) {
                let event = RailEvent::Up { peer: PeerId(1 - rank as u32), rail };
                endpoint.handle_rail_event(Time(0), event);
            }
            endpoints.push(endpoint);
        }
        let mut timed = Timed {
            endpoints,
            lines: lines.to_vec(),
            poll: 1,
            free_at: vec![[0; 2]; lines.len()],
            happens: BTreeMap::new(),
            count: 0,
            now: 0,
            over: Vec::new(),
            posts: Vec::new(),
            sets_most: 0,
            registering: vec![(0, 0); lines.len()],
            keeps: true,
            registered: BTreeSet::new(),
            made: Vec::new(),
            processor_free: [0; 2],
            changes: BTreeMap::new(),
        };
        timed.run();
        timed.posts.clear();
        timed
    }

    fn happens(&mut self, at: u64, what: Happens) {
        self.count += 1;
        self.happens.insert((at.next_multiple_of(self.poll), self.count), what);
    }

    fn post(&mut self, rank: usize, post: &Post) {
        let rail = usize::from(post.rail.0);
        let Line { bytes_per_second, latency } = self.lines[rail];
        let len = post.payload.len();
        let backlog = self.endpoints[rank].rail_stats(post.rail).unwrap().backlog;
        self.posts.push(Logged { at: self.now, rank, rail, len, backlog });
        self.sets_most = self.sets_most.max(self.endpoints[rank].usage().stripe_sets.used);
        let bytes = len + post.header.len() as u64;
        let from_rank = rank ^ usize::from(matches!(post.kind, PostKind::Read { .. }));
        let end = self.now.max(self.free_at[rail][from_rank]) + (bytes * 1_000_000_000).div_ceil(bytes_per_second);
        self.free_at[rail][from_rank] = end;
        self.happens(end + latency, Happens::Completed(rank, post.id));
        if post.kind == PostKind::Send {
            self.happens(end + latency, Happens::Arrives(1 - rank, post.rail, post.header.to_vec()));
        }
    }

    /// How long it takes to register so much memory.
    fn register(&mut self, rank: usize, rail: RailId, bytes: u64, write: bool) -> u64 {
        if !self.registered.insert((rank, rail)) && self.keeps {
            return 0;
        }
        let (each, page) = self.registering[usize::from(rail.0)];
        let took = each + bytes.div_ceil(4096) * page;
        let what = if write { Registration::Writable } else { Registration::Readable };
        self.endpoints[rank].handle_registration_cost(rail, what, bytes, Nanos(took));
        self.made.push(rail);
        took
    }

    fn act(&mut self, rank: usize) {
        let mut actions = heapless::Vec::new();
        while self.endpoints[rank].poll_actions(Time(self.now), &mut actions) > 0 {
            for action in actions.drain(..) {
                match action {
                    Action::Post(post) => self.post(rank, &post),
                    Action::Register { operation, rail, memory, write } => {
                        let took = self.register(rank, rail, memory.len(), write);
                        let from = self.processor_free[rank].max(self.now);
                        self.processor_free[rank] = from + took;
                        self.happens(from + took, Happens::Registered(rank, operation, rail));
                    }
                    _ => {}
                }
            }
        }
        while let Some(event) = self.endpoints[rank].poll_event() {
            if let Event::Completed(completion) = event {
                completion.result.unwrap();
                self.over.push((rank, completion.cookie.0, self.now));
            }
        }
    }

    /// Until nothing happens any more.
    pub(super) fn run(&mut self) {
        loop {
            for rank in 0..2 {
                self.act(rank);
            }
            let timeouts = self.endpoints.iter().filter_map(|endpoint| endpoint.next_timeout());
            // The watch over the set-up is not waited for.
            let due = timeouts.map(|at| at.0).filter(|&at| at < self.now + 1_000_000_000).min();
            let next = self.happens.first_key_value().map(|(&(at, _), _)| at);
            let Some(next) = next.into_iter().chain(due).min() else { return };
            self.now = next;
            while let Some(change) = self.changes.first_entry().filter(|change| *change.key() <= next) {
                let (rail, line) = change.remove();
                self.lines[rail] = line;
            }
            for endpoint in &mut self.endpoints {
                endpoint.handle_timeout(Time(next));
            }
            while let Some(entry) = self.happens.first_entry().filter(|entry| entry.key().0 <= next) {
                match entry.remove() {
                    Happens::Completed(rank, id) => {
                        self.endpoints[rank].handle_completion(Time(next), id, PostStatus::Done);
                    }
                    Happens::Registered(rank, operation, rail) => {
                        let key = Ok(crate::wire::RemoteKey { rail: 0, connection: 0, key: 1, address: 2 });
                        self.endpoints[rank].handle_registered(operation, rail, key);
                    }
                    Happens::Arrives(rank, rail, header) => {
                        let peer = PeerId(1 - rank as u32);
                        if let Arrival::Place { id, .. } =
                            self.endpoints[rank].handle_arrival(Time(next), peer, rail, &header)
                        {
                            self.endpoints[rank].handle_placed(Time(next), id, &|_, _| {});
                        }
                    }
                }
            }
        }
    }

    /// Messages of `len` bytes from rank 0 to rank 1, `window` at once, all the way; how long they took.
    pub(super) fn stream(&mut self, count: u64, window: u64, len: u64) -> u64 {
        let mut took = 0;
        let mut left = count;
        while left > 0 {
            for cookie in 0..window.min(left) {
                self.recv(cookie, len);
                self.send(cookie, len);
            }
            left -= window.min(left);
            // The last acknowledgments take their time.
            let start = self.now;
            self.run();
            took += self.over.last().map_or(0, |&(.., at)| at) - start;
        }
        took
    }

    pub(super) fn send(&mut self, cookie: u64, len: u64) {
        let send = SendRequest { cookie: Cookie(cookie), segments: &seg(0, len), ..SendRequest::new(PeerId(1), &[]) };
        self.endpoints[0].send(Time(self.now), &send).unwrap();
    }

    pub(super) fn recv(&mut self, cookie: u64, len: u64) {
        let recv = RecvRequest {
            cookie: Cookie(cookie),
            segments: &seg(0, len),
            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
        };
        self.endpoints[1].recv(Time(self.now), &recv).unwrap();
    }

    /// Payload bytes that each rail got since the log was cleared.
    pub(super) fn carried(&self) -> Vec<u64> {
        let sum = |rail| self.posts.iter().filter(|post| post.rail == rail).map(|post| post.len).sum();
        (0..self.lines.len()).map(sum).collect()
    }
}

pub(super) const MB: u64 = 1_000_000;

/// A rail of `rate` MB/s.
pub(super) fn line(rate: u64) -> Line {
    Line { bytes_per_second: rate * MB, latency: 2_000 }
}

/// Rails of the sorts that move large messages by data segments, writes and reads.
pub(super) fn sorts() -> [RailFacts; 3] {
    let wide = RailFacts { segment_bytes_max: 16 * 1024, posts_max: 16, ..TCP };
    let sim = |caps| RailFacts { caps, kind: crate::rail::RailKind::Sim, ..wide };
    [sim(TCP.caps), sim(PUT.caps), sim(GET.caps)]
}

/// P-1, P-2: each rail's rate and the times of stripes come out as the rails are, whatever moves the message
/// and however late completions are noticed; and what each carried is counted.
#[test]
fn rails_are_measured() {
    for facts in sorts() {
        for poll in [1, 5_000, 50_000] {
            let config = Config { striping: Policy::Even, ..small() };
            let mut regions = regions(&config, 2);
            let mut timed = Timed::new(&mut regions, &config, &[facts; 2], &[line(800), line(200)]);
            timed.poll = poll;
            timed.stream(8, 1, 4 << 20);
            // Reads are posted by the receiver.
            let mover = usize::from(facts.caps.read);
            for (rail, rate) in [(0, 800 * MB), (1, 200 * MB)] {
                let stats = timed.endpoints[mover].rail_stats(RailId(rail)).unwrap();
                let off = stats.bytes_per_second.abs_diff(rate);
                assert!(off * 20 < rate, "rail {rail}, polls of {poll}: {stats:?}");
                assert_eq!((stats.backlog, stats.messages >= 8), (0, true), "{stats:?}");
                let carried: u64 =
                    timed.posts.iter().filter(|p| (p.rank, p.rail) == (mover, rail.into())).map(|p| p.len).sum();
                assert_eq!(stats.bytes, carried);
                assert_eq!(stats.stripe_bytes, 2 << 20);
                let time = stats.stripe_bytes * 1_000_000_000 / rate;
                assert!(stats.stripe_time.0.abs_diff(time) <= 2 * poll + time / 100, "{stats:?}, not {time}");
            }
            let stats = timed.endpoints[mover].rail_stats(RailId(0)).unwrap();
            assert!(matches!(stats.changed, Some(Change { why: Why::Measured, from: 0, .. })), "{stats:?}");
            assert_eq!(timed.endpoints[0].rail_stats(RailId(2)), None);
        }
    }
}

/// P-3: all rails of a plan start together, and none has more ahead of it than lasts for `feed_time`.
#[test]
fn rails_are_fed_in_turn_and_by_time() {
    for facts in sorts() {
        let config = Config { window: 128, ..small() };
        let mut regions = regions(&config, 2);
        let facts = RailFacts { posts_max: 64, ..facts };
        let mut timed = Timed::new(&mut regions, &config, &[facts; 3], &[line(800), line(400), line(50)]);
        timed.stream(1, 1, 3 << 20);
        let payload = timed.posts.iter().filter(|post| post.len >= 4096);
        let order: Vec<_> = payload.map(|post| (post.at, post.rail)).take(9).collect();
        let start = order[0].0;
        let turns: Vec<_> = (0..9).map(|n| (start, n % 3)).collect();
        assert_eq!(order, turns);
        timed.posts.clear();
        timed.stream(6, 6, 3 << 20);
        for post in timed.posts.iter().filter(|post| post.len >= 4096) {
            let rate = timed.lines[post.rail].bytes_per_second;
            let lasts = post.backlog * 1_000_000_000 / rate;
            let last = 16 * 1024 * 1_000_000_000 / rate;
            assert!(lasts <= (config.feed_time.0 * 9 / 8).max(last) + last, "{post:?} lasts for {lasts} ns");
        }
    }
}

/// P-3: while the peer waits for a FIN, the rail that it goes on has a fifth of `feed_time` ahead of it.
#[test]
fn a_fin_waits_behind_little() {
    for facts in sorts().into_iter().filter(|facts| !facts.caps.read) {
        let config = Config { window: 128, ..small() };
        let mut regions = regions(&config, 2);
        let facts = RailFacts { posts_max: 64, ..facts };
        let mut timed = Timed::new(&mut regions, &config, &[facts], &[line(800)]);
        timed.stream(2, 1, 3 << 20);
        timed.posts.clear();
        let lasts_longest = |timed: &mut Timed<'_>| {
            let posts = timed.posts.drain(..).filter(|post| post.rank == 0 && post.len >= 4096);
            posts.map(|post| post.backlog * 1_000_000_000 / (800 * MB)).max().unwrap()
        };
        let one_way = {
            timed.stream(1, 1, 3 << 20);
            lasts_longest(&mut timed)
        };
        let recv = RecvRequest {
            cookie: Cookie(9),
            segments: &seg(0, 1 << 20),
            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
        };
        timed.endpoints[0].recv(Time(timed.now), &recv).unwrap();
        let send = SendRequest { cookie: Cookie(9), segments: &seg(0, 1 << 20), ..SendRequest::new(PeerId(0), &[]) };
        timed.endpoints[1].send(Time(timed.now), &send).unwrap();
        // Until the first of both is complete, each waits for the other's FIN.
        timed.stream(1, 1, 1 << 20);
        let both_ways = lasts_longest(&mut timed);
        let one_post = 16 * 1024 * 1_000_000_000 / (800 * MB);
        assert!(one_way > config.feed_time.0 * 3 / 4, "{one_way} ns");
        assert!(both_ways <= config.feed_time.0 / 5 + 2 * one_post, "{both_ways} ns");
    }
}

/// P-4: a transfer is cut when a rail would otherwise have nothing to do, not when it is ready to go.
#[test]
fn transfer_is_divided_only_when_a_rail_becomes_idle() {
    for facts in sorts() {
        let config = small();
        let mut regions = regions(&config, 2);
        let mut timed = Timed::new(&mut regions, &config, &[facts; 2], &[line(400), line(400)]);
        timed.stream(7, 7, 1 << 20);
        assert!((1..=3).contains(&timed.sets_most), "{} transfers of 7 were cut at once", timed.sets_most);
        assert_eq!(timed.over.len(), 14);
    }
}
