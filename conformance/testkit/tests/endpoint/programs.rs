//! Random programs: everything that can be submitted, by every rank to every rank, itself included, over all
//! sets of rails, with tables so small that they fill up; in one variant a peer is cut off at a random
//! moment. `programs/oracle.rs` states what must hold, independently of the endpoint.
//!
//! A buffer is filled with a canary as soon as its request is complete, so that any later access shows: as
//! wrong bytes on the other side, or as a broken canary at the end.

mod oracle;
mod steps;

use super::*;
use oracle::{Message, Receive};
use rerail_core::config::Policy;
use steps::Step;

/// What a buffer holds once its request is over.
const CANARY: u8 = 0xEE;
/// A rank's memory: counters, then bytes that peers get, then bytes that they put, then buffers.
const COUNTERS: u64 = 4;
const GETS: (u64, u64) = (64, 8192);
const PUTS: (u64, u64) = (GETS.0 + GETS.1, 150_000);
const BUFFERS: (u64, u64) = (PUTS.0 + PUTS.1, 600_000);
const KEY: u64 = 77;

/// The operation submitted under a cookie.
#[derive(Clone, Debug)]
enum What {
    Send { to: usize, name: u64 },
    Recv { receive: usize },
    Multi { receive: usize },
    Put { to: usize, at: u64, bad: bool },
    Get { from: usize, at: u64, bad: bool },
    Atomic { to: usize, counter: u64 },
    Flush { before: Vec<usize> },
}

#[derive(Clone, Debug)]
struct Submitted {
    id: OpId,
    what: What,
    peer: Option<usize>,
    segments: Vec<Seg>,
    notify: Notify,
    /// How it ended; a multi-receive: how its last event went.
    ended: Option<Result<Done, OpError>>,
    cancelled: bool,
}

struct Program<'m> {
    seed: u64,
    cluster: Cluster<'m>,
    rng: Rng,
    ranks: usize,
    rails: usize,
    facts: Vec<RailFacts>,
    config: Config,
    steps: Vec<Vec<Step>>,
    submitted: Vec<Vec<Submitted>>,
    /// By sender and receiver, in the order of submission.
    messages: Vec<Vec<Vec<Message>>>,
    /// By receiver, in the order of posting.
    receives: Vec<Vec<Receive>>,
    claims: Vec<Vec<(MessageId, usize)>>,
    buffers_at: Vec<u64>,
    puts_at: Vec<u64>,
    /// Ends of requests that also count.
    counted: Vec<u64>,
    /// Old values of atomics by target and counter.
    olds: HashMap<(usize, u64), Vec<u64>>,
    cut: Vec<(usize, usize)>,
    /// Rank, peer, whether by loss.
    ends: Vec<(usize, usize, bool)>,
    /// Buffers that are the program's again.
    canaries: Vec<(usize, Seg)>,
    /// Tables that were in use at some time: bit per table of [`Usage::tables`].
    seen: u32,
    /// The only rail that fails; `None`: any.
    breaks: Option<RailId>,
    /// Comes to rest now and then between its steps.
    pauses: bool,
}

fn config(rng: &mut Rng) -> Config {
    let eager_bytes_max = [0, 64, 1000, 1000][rng.below(4) as usize];
    let aggregated = Policy::Aggregate;
    let pick = |rng: &mut Rng, small: u64, large: u64| if rng.one_in(2) { small } else { 1 + rng.below(large) };
    Config {
        multiplex: if rng.one_in(3) { aggregated } else { Policy::RAIL_CHOICES[rng.below(9) as usize] },
        striping: Policy::STRIPINGS[rng.below(9) as usize],
        operations_max: 1 + pick(rng, 1, 40) as u32,
        packets_max: 1 + pick(rng, 1, 40) as u32,
        requests_per_peer: pick(rng, 1, 4) as u16,
        bulk_max: pick(rng, 1, 6) as u32,
        unexpected_per_peer: pick(rng, 1, 20) as u16,
        retained_max: pick(rng, 1, 6) as u32 - 1,
        blocks_per_peer: (eager_bytes_max as u64).div_ceil(64).max(1) as u16 + rng.below(20) as u16,
        eager_bytes_max,
        ack_packets: 1 + rng.below(32) as u16,
        counters_max: 1,
        sampling_time_max: Nanos(rng.below(2) * 5_000_000),
        nic_depth: 1 + rng.below(3) as u16,
        copy_bytes_per_second: if rng.one_in(4) { 100_000_000 } else { 0 },
        keepalive: Nanos(rng.below(2) * (20_000_000 + rng.below(20_000_000))),
        ..small()
    }
}

impl<'m> Program<'m> {
    fn new(seed: u64, regions: &'m mut [Region], config: Config, rails: &[RailFacts], mut rng: Rng) -> Program<'m> {
        let ranks = regions.len();
        let rails: Vec<_> = rails
            .iter()
            .map(|facts| RailFacts {
                eager_bytes_max: [50, 1000][rng.below(2) as usize],
                posts_max: 2 + rng.below(3) as u16,
                ..*facts
            })
            .collect();
        // Each side's own; half of them wrap before long.
        let first_number = |rank: usize| {
            let numbers = &mut Rng::new(seed << 8 | rank as u64);
            let behind = numbers.below(60) as u32;
            if numbers.one_in(2) { numbers.draw() as u32 } else { behind.wrapping_neg() }
        };
        let memory = [(BUFFERS.0 + BUFFERS.1) as usize];
        let mut cluster = Cluster::numbered(regions, &config, &rails, &memory, seed, first_number);
        for (rank, node) in cluster.nodes.iter_mut().enumerate() {
            let access = Access { read: true, write: true, atomic: true };
            let at = MemRef { region: HEAP, offset: 0 };
            node.endpoint.expose(&Window::new(at, BUFFERS.0, access, KEY)).unwrap();
            for i in 0..GETS.1 {
                node.memory[0][(GETS.0 + i) as usize] = oracle::byte(rank as u64, i);
            }
        }
        Program {
            seed,
            cluster,
            rng,
            ranks,
            rails: rails.len(),
            facts: rails,
            config,
            steps: vec![Vec::new(); ranks],
            submitted: vec![Vec::new(); ranks],
            messages: vec![vec![Vec::new(); ranks]; ranks],
            receives: vec![Vec::new(); ranks],
            claims: vec![Vec::new(); ranks],
            buffers_at: vec![BUFFERS.0; ranks],
            puts_at: vec![PUTS.0; ranks],
            counted: vec![0; ranks],
            olds: HashMap::new(),
            cut: Vec::new(),
            ends: Vec::new(),
            canaries: Vec::new(),
            seen: 0,
            breaks: None,
            pauses: false,
        }
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a, b)) || self.cut.contains(&(b, a))
    }

    fn memory(&mut self, rank: usize, at: u64, len: u64) -> &mut [u8] {
        &mut self.cluster.nodes[rank].memory[0][at as usize..(at + len) as usize]
    }

    fn release(&mut self, rank: usize, segments: &[Seg]) {
        for seg in segments {
            self.memory(rank, seg.at.offset, seg.len).fill(CANARY);
            self.canaries.push((rank, *seg));
        }
    }

    /// One round: time goes on, one rank acts, some links move; whether anything moved.
    fn turn(&mut self) -> bool {
        self.cluster.now += self.rng.below(2000);
        let now = Time(self.cluster.now);
        let rank = self.rng.below(self.ranks as u64) as usize;
        let mut moved = false;
        if self.cluster.nodes[rank].endpoint.next_timeout().is_some_and(|at| at <= now) || self.rng.one_in(20) {
            self.cluster.nodes[rank].endpoint.handle_timeout(now);
        }
        self.check_tables(rank);
        let before = self.cluster.actions;
        self.cluster.act(rank);
        moved |= before != self.cluster.actions;
        while let Some(event) = self.cluster.nodes[rank].events.pop_front() {
            moved = true;
            self.reported(rank, event);
        }
        if self.cluster.faulty && self.rng.one_in(20) {
            let (near, far) = (self.rng.below(self.ranks as u64) as usize, self.rng.below(self.ranks as u64) as usize);
            let rail = RailId(self.rng.below(self.rails as u64) as u8);
            self.cluster.notice(near, far, rail);
        }
        for _ in 0..self.rng.below(6 * self.ranks as u64) {
            let (from, to) = (self.rng.below(self.ranks as u64) as usize, self.rng.below(self.ranks as u64) as usize);
            let rail = self.rng.below(self.rails as u64) as usize;
            moved |= self.cluster.step_link(from, to, rail);
        }
        moved
    }

    /// No table holds more than it can.
    fn check_tables(&mut self, rank: usize) {
        for (bit, (name, table)) in self.cluster.nodes[rank].endpoint.usage().tables().into_iter().enumerate() {
            if table.used > table.capacity {
                self.fail(&format!("rank {rank}: {name}: {table:?}"));
            }
            self.seen |= u32::from(table.used > 0) << bit;
        }
    }

    /// Until nothing moves.
    fn rest(&mut self) {
        let mut idle = 0;
        for _ in 0..300_000 {
            idle = if self.turn() { 0 } else { idle + 1 };
            if idle > 20 * self.ranks && !self.cluster.links_are_idle() {
                continue;
            }
            if idle > 20 * self.ranks {
                let next = self.cluster.nodes.iter().filter_map(|node| node.endpoint.next_obligation()).min();
                match next.filter(|at| at.0 < self.cluster.now + 5_000_000) {
                    Some(at) => self.cluster.now = self.cluster.now.max(at.0),
                    None => return,
                }
                idle = 0;
            }
        }
        self.fail("the simulated cluster does not come to rest");
    }

    fn fail(&self, why: &str) -> ! {
        for node in &self.cluster.nodes {
            std::eprintln!("{:?}", node.endpoint);
        }
        panic!("seed {}: {why}", self.seed)
    }

    /// Runs the steps in any order of ranks, and cuts a peer off in between where `faults`.
    fn run(&mut self, faults: bool) {
        let mut moments = Vec::new();
        if faults {
            let count = 1 + self.rng.below(5);
            moments = (0..count).map(|_| self.rng.below(60 * self.ranks as u64)).collect();
            moments.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut round = 0;
        let mut stuck = 0;
        while stuck < 300 && self.steps.iter().any(|steps| !steps.is_empty()) {
            round += 1;
            while moments.pop_if(|at| *at <= round).is_some() {
                self.fault();
            }
            stuck += 1;
            let rank = self.rng.below(self.ranks as u64) as usize;
            if self.rng.one_in(2) && self.attempt(rank) {
                stuck = 0;
            }
            for _ in 0..self.rng.below(4) {
                self.turn();
            }
            if self.pauses && self.rng.one_in(6) {
                self.rest();
            }
        }
        for _ in moments {
            self.fault();
        }
        self.cluster.refuse_one_in = 0;
    }

    fn fault(&mut self) {
        self.cluster.faulty = true;
        self.cluster.refuse_one_in = 3;
        let (near, far) = (self.rng.below(self.ranks as u64) as usize, self.rng.below(self.ranks as u64) as usize);
        let any = RailId(self.rng.below(self.rails as u64) as u8);
        let rail = self.breaks.unwrap_or(any);
        if near != far && !self.facts[usize::from(rail.0)].caps.lossless {
            // That loses or duplicates no message (section F).
            return self.cluster.break_end(near, far, rail, RailFault::TimedOut);
        }
        self.cut.push((near, far));
        self.cluster.cut(near, far, rail, RailFault::TimedOut, true);
    }

    /// Receives the remaining messages, until all are complete.
    fn drain(&mut self) {
        if self.config.keepalive.0 > 0 {
            // Quiet for so long that every peer is probed.
            self.rest();
            self.cluster.now += self.config.keepalive.0;
        }
        for _ in 0..200 {
            for rank in 0..self.ranks {
                self.cancel_receives(rank);
            }
            self.rest();
            let mut over = true;
            for rank in 0..self.ranks {
                self.steps[rank]
                    .retain(|step| !matches!(step, Step::Recv { .. } | Step::Multi { .. } | Step::Claim { .. }));
                while self.attempt(rank) {
                    over = false;
                }
                while let Some((message, receive)) = self.claims[rank].pop() {
                    over = false;
                    if !self.receive_claimed(rank, message, receive) {
                        break;
                    }
                }
                let over_here = self.drain_messages(rank) && self.steps[rank].is_empty();
                over &= over_here;
            }
            self.rest();
            over &= self.submitted.iter().flatten().all(|op| op.ended.is_some() || oracle::is_mute(op));
            if over {
                return;
            }
        }
        for (rank, ops) in self.submitted.iter().enumerate() {
            for op in ops.iter().filter(|op| op.ended.is_none() && !oracle::is_mute(op)) {
                std::eprintln!("rank {rank}: {op:?}");
            }
            std::eprintln!("steps {:?} claims {:?}", self.steps[rank], self.claims[rank]);
        }
        self.fail("it does not converge");
    }

    /// Shuts down every peer in order, and checks for leaks.
    fn finish(&mut self) {
        self.check_matching();
        self.check_atomics();
        self.check_leaks();
        for rank in 0..self.ranks {
            for peer in 0..self.ranks {
                self.cluster.nodes[rank].endpoint.close_peer(PeerId(peer as u32)).unwrap();
            }
        }
        self.rest();
        self.check_end();
    }
}

/// One simulation from a seed; `faults`: a subchannel is cut. Returns which tables were in use at some time.
fn program(seed: u64, faults: bool) -> u32 {
    let mut rng = Rng::new(seed ^ 0x5EED_0000);
    let config = config(&mut rng);
    let config = Config { stall_min: Nanos(if faults { 4_000_000 } else { 0 }), ..config };
    let ranks = 1 + rng.below(3) as usize;
    let mut regions = regions(&config, ranks);
    let rails = ALL_RAILS[rng.below(ALL_RAILS.len() as u64) as usize];
    let mut program = Program::new(seed, &mut regions, config, rails, rng);
    program.write_steps();
    program.run(faults);
    program.drain();
    program.finish();
    program.seen
}

fn cases(default: u64) -> u64 {
    std::env::var("RERAIL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// So many seeds; `RERAIL_SEED` names one to run alone.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let one = std::env::var("RERAIL_SEED").ok().and_then(|seed| seed.parse().ok());
    one.map_or(0..count, |seed: u64| seed..seed + 1)
}

/// Runs simulations and names the seeds of those that fail.
fn clusters(count: u64, faults: bool) {
    let seeds = seeds(count);
    let fails = |&seed: &u64| std::panic::catch_unwind(|| program(seed, faults)).is_err();
    let failed: Vec<_> = seeds.filter(fails).take(5).collect();
    assert!(failed.is_empty(), "seeds {failed:?} fail (faults: {faults}); RERAIL_SEED=n runs one alone");
}

/// Every request of a program happens once, in order, whole; no memory is accessed afterwards, nothing leaks.
/// `RERAIL_CASES` sets the number of simulations.
#[test]
fn random_programs() {
    clusters(cases(150), false);
}

/// As above, with a subchannel cut at a random moment: what is bound to that peer ends once, the rest
/// continues.
#[test]
fn random_programs_with_faults() {
    clusters(cases(150), true);
}

/// The same programs over a rail that carries short messages, with the express path and without: the oracle
/// holds either way, and each road of a short message is taken. In half of them a second rail breaks and
/// comes up again in mid-stream.
#[test]
fn random_programs_use_and_leave_the_express_path() {
    let [mut sent, mut refused, mut received, mut slow, mut waited, mut renewed] = [0; 6];
    let seeds = seeds(cases(150));
    for seed in seeds.clone() {
        let two = seed % 2 == 1;
        let rails = if two { &[SHM, TCP][..] } else { &[SHM] };
        for express in [true, false] {
            let mut rng = Rng::new(seed ^ 0x5407_0000);
            let few = rng.one_in(3);
            let config = Config {
                express,
                multiplex: Policy::Balanced,
                eager_bytes_max: 1000,
                blocks_per_peer: 16 + rng.below(if few { 2 } else { 40 }) as u16,
                operations_max: 4 + rng.below(40) as u32,
                unexpected_per_peer: 1 + rng.below(if few { 3 } else { 40 }) as u16,
                ..config(&mut rng)
            };
            let ranks = 1 + rng.below(3) as usize;
            let mut regions = regions(&config, ranks);
            let mut program = Program::new(seed, &mut regions, config, rails, rng);
            (program.breaks, program.pauses) = (two.then_some(RailId(1)), true);
            // Long enough for many messages once connections are up.
            (0..4).for_each(|_| program.write_steps());
            // Mostly messages of the express path, with other steps in between.
            let rng = &mut Rng::new(seed ^ 0x5408_0000);
            for step in program.steps.iter_mut().flatten() {
                if let Step::Put { to, .. } | Step::Atomic { to, .. } | Step::Flush { to } = *step
                    && !rng.one_in(4)
                {
                    let (tag, len) = ((!rng.one_in(4)).then(|| rng.below(4)), rng.below(900));
                    *step = Step::Send { to, tag, len, level: Level::Reusable, notify: Notify::Event, inject: false };
                }
                match step {
                    Step::Send { len, level, notify, .. } if *len < 1000 => {
                        *level = if *len % 3 == 2 { *level } else { Level::Reusable };
                        *notify = if *notify == Notify::Silent { Notify::Silent } else { Notify::Event };
                        *len = (*len).min(900);
                    }
                    Step::Recv { notify, .. } => *notify = Notify::Event,
                    _ => {}
                }
            }
            let before = program.cluster.connections;
            program.run(two || seed % 4 == 2);
            program.drain();
            program.finish();
            renewed += if two { program.cluster.connections - before } else { 0 };
            let stats = program.cluster.nodes.iter().map(|node| node.endpoint.stats());
            let (out, into) = stats.fold((0, 0), |sum, s| (sum.0 + s.short_sent, sum.1 + s.short_received));
            assert!(express || (out, into, program.cluster.shorts, program.cluster.waited) == (0, 0, (0, 0), 0));
            sent += program.cluster.shorts.0;
            refused += program.cluster.shorts.1;
            received += into;
            // What comes at once over the second rail counts as received, too.
            slow += program.cluster.shorts.0.saturating_sub(into);
            waited += program.cluster.waited;
        }
    }
    let all = [sent, refused, received, slow, waited, renewed];
    let names = "sent, refused, received, received by packet, found waiting, second rails renewed";
    println!("{names}: {all:?}");
    assert!(seeds.end - seeds.start == 1 || all.iter().all(|&count| count > 20), "{names}: {all:?}");
}

/// The same programs over rails that can lose, with faults: small messages go at once, are received at once,
/// and are sent again; with the express path switched off, none is.
#[test]
fn programs_send_at_once_over_rails_that_can_lose() {
    let [mut sent, mut received, mut replayed] = [0; 3];
    for seed in 0..cases(100) {
        for express in [true, false] {
            let mut rng = Rng::new(seed ^ 0x0A7_0000);
            let config = Config {
                express,
                stall_min: Nanos(4_000_000),
                multiplex: Policy::Balanced,
                eager_bytes_max: 1000,
                packets_max: 128,
                retained_max: 32,
                operations_max: 40 + rng.below(40) as u32,
                unexpected_per_peer: 20 + rng.below(40) as u16,
                blocks_per_peer: 64,
                ..config(&mut rng)
            };
            let ranks = 1 + rng.below(3) as usize;
            let mut regions = regions(&config, ranks);
            let rails = [&[TCP][..], &[TCP, TCP], &[PUT, TCP]][rng.below(3) as usize];
            let mut program = Program::new(seed, &mut regions, config, rails, rng);
            program.write_steps();
            for step in program.steps.iter_mut().flatten() {
                if let Step::Send { len, level, notify, .. } = step {
                    *level = Level::Reusable;
                    *notify = if *notify == Notify::Silent { Notify::Silent } else { Notify::Event };
                    *len = (*len).min(900);
                }
                if let Step::Recv { notify, .. } = step {
                    *notify = Notify::Event;
                }
            }
            program.run(true);
            program.drain();
            program.finish();
            let nodes = program.cluster.nodes.iter();
            replayed += nodes.map(|node| node.endpoint.stats().replayed).sum::<u64>();
            assert!(express || program.cluster.at_once == (0, 0));
            sent += program.cluster.at_once.0;
            received += program.cluster.at_once.1;
        }
    }
    assert!(sent > 150 && received > 15 && replayed > 200, "sent {sent}, received {received}, replayed {replayed}");
}

/// Usage covers every table: each is in use at some time (and, by the checks of every program, free in the
/// end). `limits.rs` tests what programs free before it can be observed.
#[test]
fn every_table_is_in_use_at_some_time() {
    let names = Usage::default().tables().map(|(name, _)| name);
    let elsewhere = |name| name == "late_registrations" || name == "refused";
    let mut seen = (0..names.len()).filter(|&bit| elsewhere(names[bit])).fold(0u32, |seen, bit| seen | 1 << bit);
    for seed in 0..400 {
        seen |= program(seed, seed % 2 == 0);
        if seen.count_ones() as usize == names.len() {
            return;
        }
    }
    let never: Vec<_> = (0..names.len()).filter(|bit| seen >> bit & 1 == 0).map(|bit| names[bit]).collect();
    panic!("never in use: {never:?}");
}
