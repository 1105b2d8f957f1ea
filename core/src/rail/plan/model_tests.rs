//! Models fed by a small simulated rail: a server that works off its queue at a rate which tests change, polled at
//! moments which tests choose.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec as List;

const MB: u64 = 1_000_000;
const SEGMENT: u64 = 64 << 10;

fn rate(bytes_per_second: u64) -> Rate {
    Rate::from_bytes_per_second(bytes_per_second)
}

/// Off by how much, in permille of the truth.
fn off(model: Rate, truth: Rate) -> u64 {
    permille(model.0.abs_diff(truth.0), truth.0)
}

/// A rail: posts are served one after the other, each arrives a latency after it was served.
struct Server {
    rate: Rate,
    latency_ns: u64,
    free_ns: u64,
    queue: VecDeque<(u64, u64)>,
}

impl Server {
    fn new(rate: Rate, latency_ns: u64) -> Server {
        Server { rate, latency_ns, free_ns: 0, queue: VecDeque::new() }
    }

    fn post(&mut self, path: &mut PathModel, now_ns: u64, bytes: u64) {
        self.free_ns = self.free_ns.max(now_ns) + self.rate.time_ns(bytes);
        self.queue.push_back((self.free_ns + self.latency_ns, bytes));
        path.posted(Time(now_ns), bytes);
    }

    /// What has completed by `now_ns`.
    fn poll(&mut self, now_ns: u64) -> List<u64> {
        let done = self.queue.iter().take_while(|(at, _)| *at <= now_ns).count();
        self.queue.drain(..done).map(|(_, bytes)| bytes).collect()
    }
}

/// Keeps `depth` segments posted for `completions`, polling every `poll_ns`. Returns the time at the end.
fn stream(
    server: &mut Server,
    path: &mut PathModel,
    start_ns: u64,
    poll_ns: u64,
    depth: usize,
    completions: u32,
) -> u64 {
    let (mut now_ns, mut left) = (start_ns, completions);
    while left > 0 {
        while server.queue.len() < depth {
            server.post(path, now_ns, SEGMENT);
        }
        now_ns += poll_ns;
        for bytes in server.poll(now_ns) {
            path.completed(Time(now_ns), bytes, Finding { late_ns: poll_ns as u32, shared: false });
            left = left.saturating_sub(1);
        }
    }
    now_ns
}

#[test]
fn records_stay_small() {
    assert_eq!(size_of::<PathModel>(), 36);
    assert_eq!(size_of::<GroupModel>(), 24);
    assert_eq!(size_of::<ProbeBudget>(), 8);
}

proptest! {
    /// A saturated rail is measured to within 4 % however it is polled, up to once in two segments.
    #[test]
    fn a_busy_rail_is_measured(
        bytes_per_second in 20 * MB..20_000 * MB, latency_ns in 500u64..50_000, polls in 1u64..40, depth in 4usize..16,
    ) {
        let truth = rate(bytes_per_second);
        let mut server = Server::new(truth, latency_ns);
        let mut path = PathModel::new(rate(1_000 * MB), 0);
        let poll_ns = (truth.time_ns(SEGMENT) * polls / 20).max(16);
        // Deep enough that the latency is covered.
        let depth = depth + (2 * latency_ns + 2 * poll_ns).div_ceil(truth.time_ns(SEGMENT)) as usize;
        stream(&mut server, &mut path, 1_000, poll_ns, depth, 1_000);
        let seen = path.rate().bytes_per_second();
        prop_assert!(off(path.rate(), truth) <= 40, "{seen} for {bytes_per_second}");
    }

    /// Whatever is reported, in whatever order: no panic, and never a rate of zero once one is known.
    #[test]
    fn estimates_never_reach_zero(
        steps in proptest::collection::vec((0u8..4, 0u64..1 << 34, any::<u64>(), any::<u32>(), any::<bool>()), 0..200),
    ) {
        let (mut path, mut group, mut now) = (PathModel::new(Rate(1), 0), GroupModel::default(), 0u64);
        for (step, dt, bytes, late_ns, shared) in steps {
            now += dt;
            match step {
                0 => path.posted(Time(now), bytes),
                1 => path.down(),
                2 => group.busy(Time(now), late_ns % 4),
                _ => {
                    path.completed(Time(now), bytes, Finding { late_ns, shared });
                    group.completed(Time(now), bytes, bytes);
                }
            }
            prop_assert!(path.rate() != Rate::NONE && path.rate_at(Time(now)) != Rate::NONE);
        }
    }

    /// Small noise doesn't reach the planner: its rate changes seldom, and stays within 3 % of the truth.
    #[test]
    fn noise_is_held_back(samples in proptest::collection::vec(-20i64..=20, 400)) {
        let truth = 10_000_000i64;
        let mut estimate = Estimate::default();
        estimate.observe(Sample { least: Rate(truth as u32), most: Rate(truth as u32) });
        let mut changes = 0;
        for permille in samples {
            let value = Rate((truth + truth * permille / 1000) as u32);
            changes += u32::from(estimate.observe(Sample { least: value, most: value }) != Change::None);
        }
        prop_assert!(changes <= 1);
        prop_assert!(off(estimate.rate(), Rate(truth as u32)) <= 30);
    }
}

/// Ten-fold slower: seen within four segments of the slow rate; and back within a few of the fast one.
#[test]
fn a_tenfold_slowdown_is_seen_and_so_is_its_end() {
    let (fast, slow) = (rate(1_000 * MB), rate(100 * MB));
    let mut server = Server::new(fast, 2_000);
    let mut path = PathModel::new(Rate::NONE, 0);
    let mut now = stream(&mut server, &mut path, 0, 1_000, 4, 50);
    assert!(off(path.rate(), fast) <= 20, "{:?}", path.rate());
    for (next, limit) in [(slow, 4 + 5), (fast, 4 + 5)] {
        server.rate = next;
        // Four segments are still on their way at the old rate.
        now = stream(&mut server, &mut path, now, 1_000, 4, limit);
        assert!(off(path.rate(), next) <= 50, "{} for {}", path.rate().bytes_per_second(), next.bytes_per_second());
    }
}

/// One outlier, and two, change nothing; a third on the same side does.
#[test]
fn outliers_are_not_a_change() {
    let at = |rate: u32| Sample { least: Rate(rate), most: Rate(rate) };
    let mut estimate = Estimate::default();
    assert_eq!(estimate.observe(at(1_000_000)), Change::First);
    for sample in [100_000, 90_000, 5_000_000, 100_000, 1_000_000, 100_000, 90_000] {
        assert_eq!(estimate.observe(at(sample)), Change::None);
        assert_eq!(estimate.rate(), Rate(1_000_000));
    }
    assert_eq!(estimate.observe(at(100_000)), Change::Jump);
    assert!(off(estimate.rate(), Rate(100_000)) <= 5, "the nearer of the last two: {:?}", estimate.rate());
}

/// Multirail-2004 4.5, cases 2 and 3, and worse: a completion found very late says nothing false. The same completion
/// found at once, thrice, does say something.
#[test]
fn late_polls_do_not_mislead() {
    let truth = rate(1_000 * MB);
    for (late_ns, lowered) in [(2_000_000, false), (0, true)] {
        let mut path = PathModel::new(truth, 5_000);
        path.observe(Sample { least: truth, most: truth });
        for message in 0..10u64 {
            let now_ns = message * 10_000_000;
            path.posted(Time(now_ns), 1 << 20);
            // Done after 1.05 ms, found after 3 ms.
            path.completed(Time(now_ns + 3_000_000), 1 << 20, Finding { late_ns, shared: false });
        }
        assert_eq!(path.rate() < truth, lowered, "late by up to {late_ns} ns");
    }
}

/// A rail that isn't up gets no posts, or loses them: neither is a measurement. Silence is seen by planners, not learnt.
#[test]
fn a_rail_that_is_not_up_is_not_slow() {
    let assumed = rate(1_000 * MB);
    let mut path = PathModel::new(assumed, 5_000);
    assert_eq!(path.rate_at(Time(1 << 34)), assumed);
    path.posted(Time(1 << 34), SEGMENT);
    let later = Time((1 << 34) + 100_000_000);
    assert!(path.rate_at(later) < rate(MB), "100 ms of silence over 64 KiB");
    assert_eq!(path.rate(), assumed);
    path.down();
    assert_eq!((path.rate_at(later), path.backlog_bytes()), (assumed, 0));
    assert_eq!(path.completed(later, SEGMENT, Finding::default()), Change::None);
    assert_eq!(path.rate(), assumed);
}

/// Small posts on an idle rail give its latency: down at once, up slowly; and say nothing about its bandwidth.
#[test]
fn small_posts_give_the_latency() {
    let truth = rate(1_000 * MB);
    let mut path = PathModel::new(truth, 0);
    let ping = |path: &mut PathModel, at: u64, ns: u64| {
        path.posted(Time(at), 8);
        path.completed(Time(at + ns), 8, Finding::default());
    };
    ping(&mut path, 0, 9_600);
    ping(&mut path, 1_000_000, 4_800);
    assert!(path.latency_ns().abs_diff(4_800) <= 32, "{}", path.latency_ns());
    ping(&mut path, 2_000_000, 9_600);
    assert!((4_900..5_300).contains(&path.latency_ns()), "{}", path.latency_ns());
    (0..200).for_each(|i| ping(&mut path, 3_000_000 + i * 100_000, 9_600));
    assert!(path.latency_ns() > 9_400, "{}", path.latency_ns());
    assert_eq!(path.rate(), truth);
}

/// Two rails on one bus, driven as the endpoint would: segments of both share `bus`; the sum of what they complete is
/// its rate, in the proportion of `rates`.
struct Bus {
    paths: List<PathModel>,
    group: GroupModel,
    now_ns: u64,
}

impl Bus {
    fn joint(&mut self, rates: [u64; 2], rounds: u64) {
        let finding = |group: &GroupModel| Finding { late_ns: 0, shared: group.explains() };
        self.paths.iter_mut().for_each(|path| path.posted(Time(self.now_ns), 1 << 30));
        self.group.busy(Time(self.now_ns), 2);
        for _ in 0..rounds {
            self.now_ns += 50_000;
            for (path, rate) in self.paths.iter_mut().zip(rates) {
                let bytes = rate * 50_000 / 1_000_000_000;
                path.completed(Time(self.now_ns), bytes, finding(&self.group));
            }
            let alone = self.paths.iter().map(|path| u64::from(path.rate().0)).sum();
            self.group.completed(Time(self.now_ns), rates.iter().sum::<u64>() * 50_000 / 1_000_000_000, alone);
        }
        self.paths.iter_mut().for_each(PathModel::down);
        self.group.busy(Time(self.now_ns), 0);
    }
}

fn two_on_a_bus() -> Bus {
    let path = |_| {
        let mut path = PathModel::new(Rate::NONE, 5_000);
        path.observe(Sample { least: rate(1_000 * MB), most: rate(1_000 * MB) });
        path
    };
    Bus { paths: (0..2).map(path).collect(), group: GroupModel::default(), now_ns: 1_000 }
}

/// 1000 + 1000 MB/s alone, 1500 together: the bus is found, and the rails' own rates are not spoilt by it.
#[test]
fn a_shared_bottleneck_is_found() {
    let mut bus = two_on_a_bus();
    bus.joint([750 * MB, 750 * MB], 40);
    assert!(off(bus.group.capacity(), rate(1_500 * MB)) <= 20, "{:?}", bus.group);
    assert!(bus.paths.iter().all(|path| path.rate() == rate(1_000 * MB)), "{:?}", bus.paths);
}

/// Rails that share nothing are not tied together.
#[test]
fn independent_rails_stay_independent() {
    let mut bus = two_on_a_bus();
    bus.joint([1_000 * MB, 990 * MB], 40);
    assert_eq!(bus.group.capacity(), Rate::NONE);
    assert!(!bus.group.explains());
}

/// One of two rails on a known bus slows down ten-fold: the rail is blamed, not the bus.
#[test]
fn a_slow_rail_is_not_hidden_by_its_group() {
    let mut bus = two_on_a_bus();
    bus.joint([750 * MB, 750 * MB], 40);
    bus.joint([1_000 * MB, 100 * MB], 40);
    assert!(off(bus.paths[0].rate(), rate(1_000 * MB)) <= 20, "{:?}", bus.paths);
    assert!(off(bus.paths[1].rate(), rate(100 * MB)) <= 20, "{:?}", bus.paths);
    assert_eq!(bus.group.capacity(), Rate::NONE);
    // And when it is fast again, both are known again.
    bus.joint([750 * MB, 750 * MB], 40);
    let sum: u64 = bus.paths.iter().map(|path| path.rate().bytes_per_second()).sum();
    assert!(sum >= 1_450 * MB, "{:?}", bus.paths);
}

/// Probes get 1 % of what moves, go to the rail that has been silent for longest, and not before it is stale.
#[test]
fn probes_are_rationed() {
    let mut budget = ProbeBudget::default();
    let mut paths = vec![PathModel::new(rate(MB), 0); 3];
    for (rail, at) in [(0usize, 3_000_000u64), (1, 1_000_000), (2, 2_000_000)] {
        paths[rail].posted(Time(at), 8);
        paths[rail].completed(Time(at + 1_000), 8, Finding::default());
    }
    let now = Time(10_000_000);
    budget.moved(100 * SEGMENT - 1);
    assert_eq!(budget.due(now, &paths, 0b111, 5_000_000, SEGMENT), None, "one byte short");
    budget.moved(1);
    assert_eq!(budget.due(now, &paths, 0b111, 20_000_000, SEGMENT), None, "none is that old");
    assert_eq!(budget.due(now, &paths, 0b101, 5_000_000, SEGMENT), Some(2));
    assert_eq!(budget.due(now, &paths, 0b111, 5_000_000, SEGMENT), None, "spent");
    (0..10_000).for_each(|_| budget.moved(1 << 30));
    let probes = (0..10_000).filter(|_| budget.take(SEGMENT)).count() as u64;
    assert_eq!(probes, PROBE_BYTES_MAX / SEGMENT);
}
