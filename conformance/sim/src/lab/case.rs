//! A case: a set of rails, a size, a pattern; and what a policy makes of it.

use rerail_core::config::{Config, Policy, RAILS_MAX};
use rerail_core::endpoint::{Endpoint, Explanation, MessageClass, RailStats};
use rerail_core::rail::sched::{STRIPE_BYTES_MIN, of};
use rerail_core::time::Time;
use serde::Serialize;

use super::pair::{Pair, Posted, Region, config};
use super::set::RailSet;
use crate::rng::Rng;

/// How messages follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// The next one is submitted when both ends have completed the one before.
    OneByOne,
    /// All at once; where the load changes, as many as a window has, and another one for each that has come.
    Stream,
    /// The same from both ends.
    BothWays,
}

impl Pattern {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Pattern::OneByOne => "one by one",
            Pattern::Stream => "stream",
            Pattern::BothWays => "both ways",
        }
    }
}

/// Messages of one size over one set.
#[derive(Clone, Debug)]
pub struct Case {
    /// The rails.
    pub set: RailSet,
    /// Bytes of a message.
    pub bytes: u64,
    /// How they follow each other.
    pub pattern: Pattern,
    /// Messages before those that are measured.
    pub warm_up: u64,
    /// Messages that are measured; of both ways as many each way.
    pub measured: u64,
    /// Messages of a stream that are under way at once.
    pub window: u64,
}

/// The sizes of a set: one from each of these ranges, in bytes. So that the ends occur, they are drawn more
/// often.
const SIZES: [(u64, u64); 8] = [
    (1, 64),
    (65, 2048),
    (2049, 8 << 10),
    ((8 << 10) + 1, 32 << 10),
    ((32 << 10) + 1, 256 << 10),
    ((256 << 10) + 1, 2 << 20),
    ((2 << 20) + 1, 16 << 20),
    ((16 << 20) + 1, 64 << 20),
];

/// The cases of a seed.
pub fn cases(seed: u64) -> Vec<Case> {
    let set = RailSet::drawn(seed);
    let rng = &mut Rng::new(seed, "lab cases");
    let changes = !set.changes.is_empty();
    let case = |(low, high): (u64, u64)| {
        let bytes = match rng.below(4) {
            0 => low,
            1 => high,
            _ => {
                let octaves = u64::from(high.ilog2() - low.ilog2());
                let octave = low << rng.below(octaves.max(1));
                (octave + rng.below(octave)).min(high)
            }
        };
        let pattern = *rng
            .pick(&[Pattern::OneByOne, Pattern::OneByOne, Pattern::Stream, Pattern::BothWays])
            .unwrap_or(&Pattern::Stream);
        let (warm_up, measured) = match (bytes, pattern) {
            (..=65_536, Pattern::OneByOne) => (12, 24),
            (..=65_536, _) => (64, 64),
            (..=2_097_152, _) => (12, 16),
            (..=16_777_216, _) => (6, 12),
            _ => (4, 6),
        };
        let measured = if changes { measured * 2 } else { measured };
        let window = if changes { (measured / 4).clamp(4, 32) } else { measured };
        Case { set: set.clone(), bytes, pattern, warm_up, measured, window }
    };
    SIZES.into_iter().map(case).collect()
}

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Contender {
    /// Everything on one rail.
    Single(u8),
    /// A policy of the core.
    #[serde(serialize_with = "named")]
    Policy(Policy),
}

fn named<S: serde::Serializer>(policy: &Policy, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(policy.name())
}

impl std::fmt::Display for Contender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Contender::Single(rail) => write!(f, "rail {rail} alone"),
            Contender::Policy(policy) => f.write_str(policy.name()),
        }
    }
}

/// What a contender made of a case.
#[derive(Clone, Debug)]
pub struct Played {
    /// One by one: of a message on average. Else: of all of them. In nanoseconds.
    pub ns: f64,
    /// Payload bytes of measured messages by rail.
    pub carried: Vec<u64>,
    /// What each rank has measured of each rail, at the end.
    pub stats: [Vec<RailStats>; 2],
    /// Ends of parts that other rails took over.
    pub rebalances: u64,
    /// What rank 0 would do with one more such message, were it to move it.
    pub explained: Option<Explanation>,
    /// Payload that rails got of the last message, in the lab's time; one by one only.
    pub posts: Vec<Posted>,
    /// When each measured message was received, since they began; in nanoseconds. One by one: how long each
    /// took.
    pub messages: Vec<u64>,
}

impl Case {
    /// All contenders that decide on messages of this size.
    pub fn contenders(&self) -> Vec<Contender> {
        let singles = (0..self.set.rails.len() as u8).map(Contender::Single);
        let cuts = self.bytes >= 2 * STRIPE_BYTES_MIN;
        // Each rail alone contends by itself.
        let is_bound = |policy: &Policy| of(*policy).properties().is_bound;
        let is_contender =
            |policy: &Policy| !is_bound(policy) && if cuts { policy.cuts() } else { policy.chooses_rails() };
        singles.chain(Policy::ALL.into_iter().filter(is_contender).map(Contender::Policy)).collect()
    }

    /// The rail of the lowest latency: what policies that only cut send announcements by.
    fn lowest_latency(&self) -> u8 {
        let rails = (0..).zip(&self.set.rails);
        rails.min_by_key(|(_, rail)| rail.latency_ns + rail.post_ns).map_or(0, |(index, _)| index)
    }

    /// True rates as weights: the slowest rail of 1:50 keeps one message of a cycle.
    fn weights(&self) -> [u16; RAILS_MAX] {
        let best = self.set.rails.iter().map(|rail| rail.bytes_per_second).max().unwrap_or(1).max(1);
        let fine = if self.bytes >= 2 * STRIPE_BYTES_MIN { 20_000 } else { 50 };
        let mut weights = [0; RAILS_MAX];
        for (weight, rail) in weights.iter_mut().zip(&self.set.rails) {
            *weight = ((rail.bytes_per_second * fine + best / 2) / best).max(1) as u16;
        }
        weights
    }

    /// Plays it.
    ///
    /// # Errors
    /// What went wrong, in words: a request that failed, or one that never ended.
    pub fn play(&self, contender: Contender, regions: &mut [Region; 2]) -> Result<Played, String> {
        let bind = match contender {
            Contender::Single(rail) => rail,
            Contender::Policy(_) => self.lowest_latency(),
        };
        let config = Config {
            multiplex: Policy::Binding,
            striping: Policy::Binding,
            bind,
            weights: self.weights(),
            ..config(self.set.rails.len())
        };
        let set_up = |endpoint: &mut Endpoint<'_>| {
            if let Contender::Policy(policy) = contender {
                endpoint.set_policy(MessageClass::Small, policy);
                endpoint.set_policy(MessageClass::Large, policy);
                endpoint.set_weights(Time(0), &config.weights);
            }
        };
        let mut pair = Pair::new(regions, &config, &self.set, set_up);
        let played = match self.pattern {
            Pattern::OneByOne => self.one_by_one(&mut pair),
            Pattern::Stream => self.stream(&mut pair, 1),
            Pattern::BothWays => self.stream(&mut pair, 2),
        };
        let (ns, messages) = played.map_err(|why| format!("{contender}: {why}"))?;
        let posts = pair.take_log();
        let carried = pair.take_carried();
        let stats = [0, 1].map(|rank| (0..self.set.rails.len()).map(|rail| pair.stats(rank, rail)).collect());
        let explained = pair.explain(self.bytes);
        Ok(Played { ns, carried, stats, rebalances: pair.rebalances(), explained, messages, posts })
    }

    /// The changes that come with a measured message which is submitted now.
    fn load(&self, pair: &mut Pair<'_>, message: u64) {
        let best_ns = self.bytes.saturating_mul(1_000_000_000) / self.set.sum().max(1);
        for change in self.set.changes.iter().filter(|change| change.message == message) {
            let rate = self.set.rails[change.rail].bytes_per_second / 1000 * change.permille;
            pair.change(pair.now() + best_ns * change.after_permille / 1000, change.rail, rate);
        }
    }

    /// Messages one by one: the time of one on average, and of each.
    fn one_by_one(&self, pair: &mut Pair<'_>) -> Result<(f64, Vec<u64>), String> {
        let mut took = Vec::new();
        for message in 0..self.warm_up + self.measured {
            let start = pair.now();
            if message == self.warm_up {
                pair.take_carried();
            }
            if let Some(measured) = message.checked_sub(self.warm_up) {
                self.load(pair, measured);
            }
            if message + 1 == self.warm_up + self.measured {
                pair.take_log();
            }
            pair.submit(0, self.bytes);
            pair.go();
            let mut open = 2;
            while open > 0 {
                for over in pair.take_over() {
                    open -= 1;
                    if over.is_receive && message >= self.warm_up {
                        took.push(over.at - start);
                    }
                }
                if open > 0 {
                    go_on(pair)?;
                }
            }
        }
        let sum: u64 = took.iter().sum();
        Ok((sum as f64 / took.len().max(1) as f64, took))
    }

    /// Messages from `ways` ends: the time of all, and when each came.
    fn stream(&self, pair: &mut Pair<'_>, ways: usize) -> Result<(f64, Vec<u64>), String> {
        // Twice, so that the second is met by what the first has taught.
        for _ in 0..2 {
            self.run(pair, ways, self.warm_up, self.window, false)?;
            wait_until_idle(pair)?;
        }
        pair.take_carried();
        let start = pair.now();
        let came = self.run(pair, ways, self.measured, self.window, true)?;
        let end = came.last().copied().unwrap_or(start);
        Ok(((end - start) as f64, came.into_iter().map(|at| at - start).collect()))
    }

    /// `count` messages from each end, `window` at once: when each was received.
    fn run(
        &self,
        pair: &mut Pair<'_>,
        ways: usize,
        count: u64,
        window: u64,
        is_measured: bool,
    ) -> Result<Vec<u64>, String> {
        let mut submitted = [0; 2];
        let mut came = Vec::new();
        let mut open = [0u64; 2];
        loop {
            for from in 0..ways {
                while submitted[from] < count && open[from] < window {
                    if is_measured && from == 0 {
                        self.load(pair, submitted[from]);
                    }
                    pair.submit(from, self.bytes);
                    submitted[from] += 1;
                    open[from] += 1;
                }
            }
            pair.go();
            loop {
                let over = pair.take_over();
                let received = over.iter().filter(|over| over.is_receive);
                let mut fresh = false;
                for over in received {
                    came.push(over.at);
                    open[1 - over.rank] -= 1;
                    fresh |= submitted[1 - over.rank] < count;
                }
                if came.len() as u64 == count * ways as u64 {
                    return Ok(came);
                }
                if fresh {
                    break;
                }
                go_on(pair)?;
            }
        }
    }
}

fn go_on(pair: &mut Pair<'_>) -> Result<(), String> {
    if let Some(why) = pair.failure() {
        return Err(why.to_owned());
    }
    if pair.step() { Ok(()) } else { Err("a message never comes".to_owned()) }
}

/// Until nothing moves any more.
fn wait_until_idle(pair: &mut Pair<'_>) -> Result<(), String> {
    while pair.step() {}
    pair.take_over();
    pair.failure().map_or(Ok(()), |why| Err(why.to_owned()))
}
