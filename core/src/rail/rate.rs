//! How fast a rail delivers to one peer, in integers.
//!
//! A path's rate is measured by what it does anyway: bytes whose completion was noticed, over the time in which the path
//! had work without a break. What makes such measurements wrong is that completions are noticed late (multirail-2004, 4.5:
//! "we can only obtain an upper bound of the actual finish time") and that a path which had nothing to do looks slow. So
//! a sample is one of three, and only moves the estimate in the direction in which it is true:
//!
//! | sample | when | may |
//! |---|---|---|
//! | exact | the path had enough to do before and still has: late polling then only shifts bytes from one sample to the next | raise and lower |
//! | at least | it ran low, or had just begun: some of the time it did nothing | raise |
//! | at most | it ran dry, but had been looked at earlier, and wasn't done then | lower |
//!
//! "Enough to do" is the idea of BBR's delivery rate samples (draft-cheng-iccrg-delivery-rate-estimation, "application
//! limited"): more than what fits on the way at the estimated rate.
//!
//! Samples are smoothed; three in a row that lie far off on one side are a change, and taken at once.

use crate::time::{Nanos, Time};

/// log2 of the nanoseconds that a rate counts bytes in.
const SPAN_LOG2: u32 = 20;

/// Completions in an exact sample, at least: what was partly under way when the sample began and ended is less than one of
/// them.
const COMPLETIONS_MIN: u8 = 4;

/// Odd samples in a row that make a change; the state holds all but the last.
const ODD_MAX: usize = 3;

/// Bytes per 2^20 ns (about a millisecond): 1 MB/s is 1,049. From 1 kB/s (0.95, rounded to 1) to 4 TB/s.
///
/// 0 is "unknown". Everything saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Rate(pub u32);

/// Time in units of 16 ns that wraps after 68.7 s: what a post remembers in 4 bytes.
///
/// Two of them may be compared as long as less than that lies between. What is under way longer counts as shorter than
/// it was; long before that a silent peer is given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick(pub u32);

/// Why an estimate is what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Change {
    /// Nothing was measured yet.
    #[default]
    Unmeasured,
    /// The first sample.
    First,
    /// Samples around the estimate, smoothed.
    Drift,
    /// Three samples in a row more than a quarter above or below it.
    Jump,
}

/// The delivery rate of one subchannel.
///
/// The order of calls is that of the driver's loop: in a round, first what is noticed ([`completed`](Self::completed)),
/// then what is posted ([`posted`](Self::posted)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRate {
    rate: Rate,
    /// Time on the way, in ticks; `u32::MAX` less one at most. 0: unknown.
    latency: u32,
    /// Bytes posted and not noticed as complete.
    backlog: u32,
    /// Start of the sample.
    since: Tick,
    /// The last completion in it.
    until: Tick,
    /// The latest moment at which the path was looked at and work was still under way.
    unfinished_at: Tick,
    /// Bytes completed in it.
    done: u32,
    /// Odd samples so far, the last [`ODD_MAX`] less one, all on one side.
    odd: [u32; ODD_MAX - 1],
    odd_count: u8,
    /// Completions in the sample, saturating.
    completions: u8,
    /// The sample began when the path had nothing or too little to do.
    began_low: bool,
    /// More was posted in the sample after the path had run low: there may have been a break.
    broken: bool,
    /// A batch of completions is noticed, and not yet looked at as a whole.
    open: bool,
    change: Change,
}

enum Sample {
    Exact(Rate),
    AtLeast(Rate),
    AtMost(Rate),
}

impl Rate {
    /// `bytes` in `span`; of a span of 0, as of 1 ns. Rounded to nearest, but never to 0, unless there are no bytes.
    pub fn new(bytes: u64, span: Nanos) -> Self {
        let span = u128::from(span.0.max(1));
        let rate = ((u128::from(bytes) << SPAN_LOG2) + span / 2) / span;
        Rate(u32::try_from(rate).unwrap_or(u32::MAX).max((bytes > 0).into()))
    }

    /// From bytes per second; 0 is unknown, as in [`RailFacts`](super::RailFacts).
    pub fn from_bytes_per_second(bytes: u64) -> Self {
        Rate::new(bytes, Nanos::from_millis(1000))
    }

    /// In bytes per second, as [`RailFacts`](super::RailFacts) have it.
    pub fn to_bytes_per_second(self) -> u64 {
        (u64::from(self.0) * 1_000_000_000) >> SPAN_LOG2
    }

    /// Bytes that pass in `span`, rounded down, saturating.
    pub fn bytes_in(self, span: Nanos) -> u64 {
        let bytes = (u128::from(self.0) * u128::from(span.0)) >> SPAN_LOG2;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Time that `bytes` take, rounded up, saturating; `None` if the rate is unknown.
    pub fn time_of(self, bytes: u64) -> Option<Nanos> {
        let rate = u64::from(self.0);
        if rate == 0 {
            return None;
        }
        // What fits is divided in 64 bits; more than 16 TiB isn't on any path that counts.
        let ns = match bytes.checked_mul(1 << SPAN_LOG2) {
            Some(scaled) => scaled.div_ceil(rate),
            None => (u128::from(bytes) << SPAN_LOG2).div_ceil(rate.into()).try_into().unwrap_or(u64::MAX),
        };
        Some(Nanos(ns))
    }
}

impl Tick {
    /// The tick of a point in time.
    pub fn at(time: Time) -> Self {
        Tick((time.0 >> 4) as u32)
    }

    /// The span from an earlier tick to this one, in steps of 16 ns.
    pub fn since(self, earlier: Tick) -> Nanos {
        Nanos(u64::from(self.ticks_since(earlier)) << 4)
    }

    fn ticks_since(self, earlier: Tick) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl PathRate {
    /// A path of which nothing is measured, believed to have `rate` ([`Rate`] 0: unknown). `latency` is the time from the
    /// end of the last byte's sending until its completion can be noticed; 0: unknown, which means that a path counts as
    /// busy until it has nothing to do at all, and that nothing is ever measured "at most".
    pub fn new(rate: Rate, latency: Nanos) -> Self {
        PathRate { rate, latency: ticks(latency), ..PathRate::default() }
    }

    /// A better value for the latency; as in [`new`](Self::new).
    pub fn set_latency(&mut self, latency: Nanos) {
        self.latency = ticks(latency);
    }

    /// The estimate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Why it is what it is.
    pub fn change(&self) -> Change {
        self.change
    }

    /// Bytes posted and not noticed as complete; at most `u32::MAX`.
    pub fn backlog(&self) -> u64 {
        self.backlog.into()
    }

    /// `bytes` are posted at `now`.
    pub fn posted(&mut self, now: Tick, bytes: u32) {
        if self.open {
            self.close();
        }
        if self.backlog == 0 {
            self.begin(now, true);
        } else if now != self.since && self.is_low() {
            self.broken = true;
        }
        self.backlog = self.backlog.saturating_add(bytes);
    }

    /// `bytes` are noticed at `now` to be complete. `looked_at` is the latest earlier moment at which completions were
    /// asked for, and this one wasn't there; where there was none, or nobody knows, that of the post.
    ///
    /// Completions of the same `now` are one batch; it counts when something else happens.
    pub fn completed(&mut self, looked_at: Tick, now: Tick, bytes: u32) {
        if self.open && self.until != now {
            self.close();
        }
        if self.backlog == 0 {
            // Nobody posted that: without a beginning there is no time.
            return;
        }
        // A moment before the sample's beginning says nothing in it.
        if looked_at.ticks_since(self.since) <= now.ticks_since(self.since) {
            self.unfinished_at = looked_at;
        }
        self.done = self.done.saturating_add(bytes);
        self.backlog = self.backlog.saturating_sub(bytes);
        self.completions = self.completions.saturating_add(1);
        self.until = now;
        self.open = true;
        if self.backlog == 0 {
            self.close();
        }
    }

    /// Everything under way is lost or taken back: no sample comes of it.
    pub fn abandoned(&mut self) {
        self.backlog = 0;
        self.open = false;
        self.forget_odd();
    }

    /// A batch of completions is whole: is the sample?
    fn close(&mut self) {
        self.open = false;
        let (low, dry) = (self.is_low(), self.backlog == 0);
        let span = self.until.since(self.since);
        if span.0 == 0 || self.done == 0 {
            return;
        }
        if !low && self.completions < COMPLETIONS_MIN {
            return;
        }
        let measured = Rate::new(self.done.into(), span);
        if !low && !self.began_low {
            self.learn(Sample::Exact(measured));
        } else {
            self.learn(Sample::AtLeast(measured));
            if dry && !self.broken && self.latency > 0 {
                let working = self.unfinished_at.ticks_since(self.since).saturating_sub(self.latency);
                if working > 0 {
                    self.learn(Sample::AtMost(Rate::new(self.done.into(), Nanos(u64::from(working) << 4))));
                }
            }
        }
        self.begin(self.until, low);
    }

    fn begin(&mut self, now: Tick, low: bool) {
        (self.since, self.until, self.unfinished_at) = (now, now, now);
        (self.done, self.completions, self.broken, self.began_low) = (0, 0, false, low);
    }

    /// So little is under way that all of it may have left, and the path may stand idle.
    fn is_low(&self) -> bool {
        u64::from(self.backlog) <= self.rate.bytes_in(Nanos(u64::from(self.latency) << 4))
    }

    fn learn(&mut self, sample: Sample) {
        let (Sample::Exact(it) | Sample::AtLeast(it) | Sample::AtMost(it)) = sample;
        let counts = match sample {
            Sample::Exact(_) => true,
            Sample::AtLeast(_) => self.rate.0 == 0 || it > self.rate,
            Sample::AtMost(_) => self.rate.0 != 0 && it < self.rate,
        };
        if !counts {
            return;
        }
        if self.rate.0 == 0 || self.change == Change::Unmeasured && matches!(sample, Sample::Exact(_)) {
            (self.rate, self.change) = (it, Change::First);
            return self.forget_odd();
        }
        let quarter = self.rate.0 / 4;
        let near = it.0.clamp(self.rate.0 - quarter, self.rate.0.saturating_add(quarter));
        if near == it.0 {
            self.forget_odd();
        } else if self.is_jump(it.0) {
            return;
        }
        // An odd sample counts as the nearest that isn't: one alone can't do much, and many of both sides still average.
        let step = (i64::from(near) - i64::from(self.rate.0)) / 8;
        self.rate = Rate((i64::from(self.rate.0) + step) as u32);
        self.change = Change::Drift;
    }

    /// Takes the median, if this is the last of enough odd samples on one side; else remembers it.
    fn is_jump(&mut self, odd: u32) -> bool {
        let count = usize::from(self.odd_count);
        let above = odd > self.rate.0;
        if self.odd[..count].iter().any(|earlier| (*earlier > self.rate.0) != above) {
            self.forget_odd();
        }
        let count = usize::from(self.odd_count);
        if let Some(free) = self.odd.get_mut(count) {
            *free = odd;
            self.odd_count += 1;
            return false;
        }
        let [first, second] = self.odd;
        let median = first.max(second).min(first.min(second).max(odd));
        (self.rate, self.change) = (Rate(median), Change::Jump);
        self.forget_odd();
        true
    }

    fn forget_odd(&mut self) {
        self.odd_count = 0;
    }
}

/// In ticks, rounded up, so that what is known doesn't become unknown.
fn ticks(span: Nanos) -> u32 {
    span.0.div_ceil(16).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
