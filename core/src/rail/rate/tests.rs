//! Estimates against a path that is simulated post by post.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// A path of `rate` bytes per tick and a latency, kept filled up to `window` posts at each poll.
struct Path {
    rate: u64,
    latency: u64,
    window: usize,
    bytes: u32,
    /// Posts under way: when each can be noticed.
    under_way: VecDeque<u64>,
    free: u64,
    polled: u64,
    now: u64,
}

/// Where time begins, so that ticks wrap within a test.
const ORIGIN: u64 = u32::MAX as u64 - 5_000;

fn tick(at: u64) -> Tick {
    Tick(at as u32)
}

fn per_tick(bytes: u64) -> Rate {
    Rate::new(bytes, Nanos(16))
}

impl Path {
    fn new(rate: u64, latency: u64, window: usize, bytes: u32) -> Self {
        Path { rate, latency, window, bytes, under_way: VecDeque::new(), free: 0, polled: ORIGIN, now: ORIGIN }
    }

    /// A round of the driver: what can be noticed, then as many posts as there is room for, at most `posts`.
    fn round(&mut self, estimate: &mut PathRate, posts: usize) {
        while self.under_way.front().is_some_and(|end| *end <= self.now) {
            self.under_way.pop_front();
            estimate.completed(tick(self.polled), tick(self.now), self.bytes);
        }
        self.polled = self.now;
        for _ in 0..posts.min(self.window - self.under_way.len()) {
            self.free = self.free.max(self.now) + u64::from(self.bytes).div_ceil(self.rate);
            self.under_way.push_back(self.free + self.latency);
            estimate.posted(tick(self.now), self.bytes);
        }
        assert_eq!(estimate.backlog(), self.under_way.len() as u64 * u64::from(self.bytes));
    }

    /// Whether the estimate is within `percent` of the truth.
    fn is_known(&self, estimate: &PathRate, percent: u64) -> bool {
        let (is, truth) = (u64::from(estimate.rate().0), u64::from(per_tick(self.rate).0));
        is.abs_diff(truth) * 100 <= truth * percent
    }
}

fn known(rate: u64) -> PathRate {
    PathRate { change: Change::First, ..PathRate::new(per_tick(rate), Nanos(0)) }
}

proptest! {
    #[test]
    fn rates_convert_there_and_back(bytes in 1u64..1 << 44, ns in 1u64..1 << 40) {
        let rate = Rate::new(bytes, Nanos(ns));
        let exact = (u128::from(bytes) << 20) / u128::from(ns);
        prop_assert!(u128::from(rate.0).abs_diff(exact) <= 1 || exact > u128::from(u32::MAX));
        // Time is rounded up, bytes down: the time of some bytes is enough for them, and a ns less is not.
        let time = rate.time_of(bytes).unwrap();
        prop_assert!(rate.bytes_in(time) >= bytes);
        prop_assert!(time.0 == 0 || rate.bytes_in(Nanos(time.0 - 1)) < bytes);
        // A unit of the rate is 954 bytes per second.
        let per_second = rate.to_bytes_per_second();
        prop_assert!(Rate::from_bytes_per_second(per_second).0.abs_diff(rate.0) <= 1);
    }

    /// Nothing that is fed panics or leaves its bounds.
    #[test]
    fn any_input_is_survived(
        start in any::<u32>(),
        latency in any::<u64>(),
        calls in prop::collection::vec((0u8..5, any::<u32>(), any::<u32>(), any::<u32>()), 0..200),
    ) {
        let mut path = PathRate::new(Rate(start), Nanos(latency));
        for (call, one, other, bytes) in calls {
            match call {
                0 => path.posted(Tick(one), bytes),
                1 => path.abandoned(),
                2 => path.completed(Tick(one), Tick(other), bytes >> 16),
                _ => path.completed(Tick(one), Tick(other), bytes),
            }
        }
    }

    /// A path that always has enough to do is known within a fifth, from no or a wrong belief, however irregular the polls
    /// are: as long as they come before it runs dry.
    #[test]
    fn a_busy_path_is_known(
        rate in 1u64..2000,
        believed in 0u64..4000,
        pauses in prop::collection::vec(1u64..=8, 1..60),
    ) {
        let bytes = 64 * 1024;
        let mut path = Path::new(rate, 0, 16, bytes);
        let mut estimate = PathRate::new(per_tick(believed), Nanos(0));
        let post = u64::from(bytes).div_ceil(rate);
        for pause in pauses.iter().cycle().take(400) {
            path.round(&mut estimate, 16);
            // In eighths of what a post takes, and now and then as many posts.
            path.now += if *pause == 8 { post * 8 } else { (post * pause).div_ceil(8) };
        }
        prop_assert!(path.is_known(&estimate, 20), "{:?} for {}", estimate, per_tick(rate).0);
    }

    /// Late polls never lower an estimate, however dry the path runs meanwhile, and never raise it above the truth. That's
    /// cases 2 and 3 of multirail-2004, 4.5, which mislead equation 4.
    #[test]
    fn late_polls_do_no_harm(
        rate in 1u64..2000,
        rounds in prop::collection::vec((1u64..1_000_000, 0usize..8), 1..100),
        latency in 0u64..1000,
    ) {
        let mut path = Path::new(rate, latency, 8, 64 * 1024);
        let mut estimate = known(rate);
        estimate.set_latency(Nanos(latency * 16));
        let post = (64 * 1024u64).div_ceil(rate);
        for (pause, posts) in rounds {
            path.round(&mut estimate, posts);
            // Never sooner than all is done: each sample runs dry, and nobody looked in between.
            path.now += latency + 8 * post + pause;
        }
        prop_assert!(path.is_known(&estimate, 1), "{:?} for {}", estimate, per_tick(rate).0);
    }

    /// A path that is only used for a post now and then is known too, if its latency is and somebody looks: what isn't done
    /// yet bounds the rate from above, what is done from below.
    #[test]
    fn single_posts_are_enough(rate in 10u64..2000, factor in 2u64..10, slower in any::<bool>(), latency in 1u64..50) {
        let mut path = Path::new(rate, latency, 1, 1 << 20);
        let mut estimate = known(if slower { rate * factor } else { (rate / factor).max(1) });
        estimate.set_latency(Nanos(latency * 16));
        let poll = ((1 << 20) / rate / 50).max(1);
        for _ in 0..3000 {
            path.round(&mut estimate, 1);
            path.now += poll;
        }
        // A poll is a fiftieth, the latency up to a tenth of what a post takes at the highest rate.
        prop_assert!(path.is_known(&estimate, 20), "{:?} for {}", estimate, per_tick(rate).0);
    }
}

/// A rail slows down ten-fold and recovers: three samples, twelve posts, and it is known; and it says why.
#[test]
fn a_jump_is_taken_at_once() {
    let mut path = Path::new(1000, 0, 8, 64_000);
    let mut estimate = PathRate::new(Rate(0), Nanos(0));
    for rate in [1000, 100, 1000] {
        path.rate = rate;
        let mut jumped = rate == 1000 && estimate.change() == Change::Unmeasured;
        // What is queued still goes at the old rate: 8 posts; then three samples of four completions, the first of
        // which may have begun before.
        for _ in 0..8 + 4 + 12 {
            path.round(&mut estimate, 8);
            jumped |= estimate.change() == Change::Jump;
            path.now = *path.under_way.front().unwrap();
        }
        assert!(jumped, "{estimate:?}");
        assert!(path.is_known(&estimate, 2), "{estimate:?} for {rate}");
        estimate.change = Change::Drift;
    }
}

/// One wild sample moves the estimate by a thirty-second, three of both sides don't look like a change.
#[test]
fn outliers_are_no_change() {
    let mut path = known(1000);
    let before = path.rate().0;
    path.learn(Sample::Exact(Rate(before * 50)));
    assert!(path.rate().0 > before && path.rate().0 <= before + before / 32);
    for wild in [before / 50, before * 50, before / 50, before * 50, before / 50] {
        path.learn(Sample::Exact(Rate(wild)));
    }
    assert_eq!(path.change(), Change::Drift);
    assert!(path.rate().0.abs_diff(before) <= before / 16, "{path:?}");
}

/// What was believed from the facts of a rail gives way to the first exact sample.
#[test]
fn the_first_measurement_replaces_belief() {
    let mut path = PathRate::new(per_tick(5000), Nanos(0));
    assert_eq!(path.change(), Change::Unmeasured);
    path.learn(Sample::AtLeast(per_tick(10)));
    assert_eq!(path.rate(), per_tick(5000), "at least 10 is no news");
    path.learn(Sample::Exact(per_tick(10)));
    assert_eq!((path.rate(), path.change()), (per_tick(10), Change::First));
}

/// A path that had too little to do to fill its latency looks slow and isn't.
#[test]
fn a_path_that_runs_low_is_not_slow() {
    let (rate, latency) = (1000, 640);
    // One post of 64 ticks and 640 ticks of latency at a time: a tenth of what the path can, but never dry.
    let mut path = Path::new(rate, latency, 2, 64_000);
    let mut estimate = known(rate);
    estimate.set_latency(Nanos(latency * 16));
    for _ in 0..100 {
        path.round(&mut estimate, 2);
        path.now = *path.under_way.front().unwrap();
    }
    assert_eq!(estimate.rate(), per_tick(rate));
}

/// A sample that begins while little is under way contains a break, even if it ends in plenty.
#[test]
fn a_break_at_the_beginning_is_not_slowness() {
    let mut path = known(1000);
    path.set_latency(Nanos(640 * 16));
    (0..12).for_each(|_| path.posted(tick(0), 64_000));
    (0..11).for_each(|_| path.completed(tick(0), tick(1000), 64_000));
    // One post is left: the path stands idle until these come.
    (0..20).for_each(|_| path.posted(tick(1000), 64_000));
    (0..5).for_each(|_| path.completed(tick(1000), tick(3000), 64_000));
    path.posted(tick(3000), 64_000);
    assert_eq!(path.rate(), per_tick(1000));
}

/// What is posted late in a sample can't have been done early in it: that it wasn't done yet says nothing of the rate.
#[test]
fn a_break_in_between_is_not_slowness() {
    let (mut path, mut busy) = (known(1000), known(1000));
    for (path, second) in [(&mut path, 600), (&mut busy, 0)] {
        path.set_latency(Nanos(640 * 16));
        path.posted(tick(0), 64_000);
        path.posted(tick(second), 64_000);
        (0..2).for_each(|_| path.completed(tick(1290), tick(1300), 64_000));
    }
    assert_eq!(path.rate(), per_tick(1000));
    assert!(busy.rate() < per_tick(1000), "both posted at once would have been done: it is slower");
}

#[test]
fn unknown_and_endless_rates_saturate() {
    assert_eq!(Rate(0).time_of(1), None);
    assert_eq!(Rate::new(0, Nanos(5)), Rate(0));
    assert_eq!(Rate::new(1, Nanos(u64::MAX)), Rate(1), "some is never none");
    assert_eq!(Rate::new(u64::MAX, Nanos(0)), Rate(u32::MAX));
    assert_eq!(Rate(1).time_of(u64::MAX), Some(Nanos(u64::MAX)));
    assert_eq!(Rate(u32::MAX).bytes_in(Nanos(u64::MAX)), u64::MAX);
    assert_eq!(Rate::from_bytes_per_second(1_000_000), Rate(1049));
}

/// One per rail and channel.
#[test]
fn a_path_is_small() {
    assert_eq!(size_of::<PathRate>(), 44);
}
