//! One subchannel as a path: bytes in flight, rate, latency, and how they are learnt from posts and their
//! completions (P-1; what for and within which limits: `measure`).

use crate::rail::rate::Rate;
use crate::rail::sched::STRIPE_BYTES_MIN;
use crate::time::{Nanos, Time};

/// A busy interval is a sample of the rate once so many bytes were moved in it.
const SAMPLE_BYTES_MIN: u64 = 32 * 1024;

/// On TCP the kernel sends in bursts - one packet of its own is up to 64 KiB, a shaper lets a hundred pass at
/// once - and a sample has to have several.
const SAMPLE_BYTES_BURSTS: u64 = 256 * 1024;

/// And but for the first it has to last so long, in nanoseconds, that a burst at either end, and a poll that
/// comes a millisecond late, are no great part of it.
const SAMPLE_NS_BURSTS: u64 = 8_000_000;

/// And once they were so many on average for each post: small packets cost their number, not their bytes.
const POST_BYTES_MIN: u64 = 4 * 1024;

/// Of 1024 short messages in a row so many are measured.
const MEASURED: u16 = 32;
const TURN: u16 = 1024;

/// Short messages that may be taken at once before they are counted.
const CALM: u8 = u8::MAX;

/// What so few bytes take to move is no great part of a latency.
const SMALL_BYTES_MAX: u64 = 1024;

/// A busy interval of small packets is a sample of what a packet costs once there were so many of them.
const SAMPLE_POSTS_MIN: u32 = 16;

/// Upper limit of a packet's cost beside its bytes, in nanoseconds; more is caused by the driver.
const POST_NS_MAX: u64 = 1_000_000;

/// First bytes given to a rail without measurements.
const FIRST_BYTES: u64 = 64 * 1024;

/// Assumed ns per byte of a rail that must be fed far ahead, before it is measured.
const FIRST_NS_PER_BYTE: u64 = 8;

/// A sample further than a quarter off is out of line; after so many in a row on one side the rate has
/// changed.
const OUT_OF_LINE_MAX: i8 = 3;

/// What a sample counts in the average: one part of 2^3.
const SAMPLE_SHIFT: u32 = 3;

/// Why a weight or a rate of a rail was last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The rate was measured for the first time. `from` and `to` are bytes per second.
    Measured,
    /// Several samples in a row were more than a quarter off on the same side: a change and no scatter.
    /// `from` and `to` are bytes per second.
    Jump,
    /// The times of a message's stripes moved the weight (P-7). `from` and `to` are weights.
    Stripes,
    /// Weights were set. `from` and `to` are weights.
    Set,
    /// A message was cut otherwise than the one before, by the rails' estimates (P-8). `from` and `to` are
    /// weights.
    Planned,
}

/// Estimates of one subchannel as a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    /// Posts with the rail.
    pub in_flight: u16,
    /// Payload bytes posted and not completed.
    pub backlog: u64,
    /// Payload bytes of transfers that are cut and not posted yet.
    pub planned: u64,
    /// The first post since the rail was idle, and the bytes completed since then.
    busy_since: Time,
    busy_bytes: u64,
    /// The busy interval began with the completion at this time.
    since: Time,
    /// The last completion.
    pub last: Time,
    /// The least that was left after a completion of it.
    least: u64,
    /// Bytes and posts completed in the busy interval.
    bytes: u64,
    posts: u32,
    /// [`Rate::NONE`]: not measured.
    pub rate: Rate,
    /// In nanoseconds, at most so much; 0: not measured.
    pub latency: u32,
    /// What a small post costs the rail beside its bytes, in nanoseconds; 0: not measured.
    pub post_ns: u32,
    /// The adaptive weight; 0: not begun.
    pub weight: u32,
    /// What 64 KiB take by the rate that is estimated of it, in nanoseconds; and its latency, 0: to be tried.
    ns_per_64k: u32,
    pub planning_latency: u32,
    /// By how much it is slower while others carry parts of the same message, in parts of 1024 of its rate
    /// (P-14).
    pub contention: u16,
    /// Its share of the last message that `balanced` cut; 0: none.
    pub share: u32,
    /// Samples in a row out of line, negative below.
    streak: i8,
    /// A busy interval is open.
    is_open: bool,
    /// Short messages completed since anything else was, in turns: the first of each turn are measured.
    pub(super) turn: u16,
    /// While there is no post and no interval is open: one more than the short messages that may be taken at
    /// once before anything has to be looked at. Otherwise 0.
    calm: u8,
    /// Short messages posted, and their bytes, that the rail's figures do not contain yet; `calm` counts
    /// those that were taken at once.
    shorts: u16,
    pub(super) short_bytes: u32,
    /// The peer's memory can't be reached over it, whatever the rail's capabilities.
    pub no_remote_access: bool,
}

impl Path {
    /// A post of `len` bytes was handed over; `is_idle`: the only one. Returns whether the rate has changed.
    #[inline]
    pub(super) fn posted(&mut self, now: Time, len: u64, is_idle: bool) -> bool {
        let mut has_changed = false;
        if is_idle {
            if self.is_open && now > self.last {
                has_changed = self.close();
            }
            (self.busy_since, self.busy_bytes) = (now, 0);
        }
        self.backlog += len;
        has_changed
    }

    /// An interval was left open in case that more came at once. Usually too short for a sample, it still
    /// shows a rail that is faster than estimated, where it was more than a burst.
    #[cold]
    fn close(&mut self) -> bool {
        let before = self.rate;
        self.is_open = false;
        if self.last > self.since && self.bytes >= 2 * SAMPLE_BYTES_BURSTS {
            let rate = Rate::of(self.bytes, (self.last - self.since).0);
            if rate > self.rate {
                self.sample(rate);
            }
        }
        self.rate != before
    }

    /// A short message completed; returns whether it is not measured but only counted: most are, as long as
    /// there is nothing but short messages.
    #[inline(always)]
    pub(super) const fn passes(&mut self) -> bool {
        self.turn = (self.turn + 1) % TURN;
        self.turn >= MEASURED
    }

    /// A post of a short message is made and over at once, while there is no other and no interval is open:
    /// nothing else changes. `false`: it may be otherwise, and nothing has happened.
    #[inline(always)]
    pub(super) fn takes_calmly(&mut self, now: Time, len: u32) -> bool {
        let is_calm = self.calm > 1;
        if is_calm {
            self.calm -= 1;
            self.short_bytes += len;
            self.last = now;
        }
        is_calm
    }

    /// A short message was posted.
    #[inline(always)]
    pub(super) const fn add_short(&mut self, len: u32) {
        self.shorts += 1;
        self.short_bytes += len;
    }

    /// The next short messages may be taken at once, if nothing else is to be looked at.
    pub(super) const fn calm_down(&mut self) {
        self.stir();
        if self.in_flight == 0 && !self.is_open {
            self.calm = CALM;
        }
    }

    /// There is a post, or will be.
    #[inline(always)]
    pub(super) const fn stir(&mut self) {
        if self.calm > 0 {
            self.shorts += (CALM - self.calm) as u16;
            self.calm = 0;
        }
    }

    /// Short messages, and their bytes, that the rail's figures do not contain yet.
    pub(super) const fn shorts(&self) -> (u16, u32) {
        let calm = if self.calm > 0 { CALM - self.calm } else { 0 };
        (self.shorts + calm as u16, self.short_bytes)
    }

    /// The rail's figures contain them from now on.
    pub(super) const fn clear_shorts(&mut self) {
        self.stir();
        (self.shorts, self.short_bytes) = (0, 0);
    }

    /// A post of `len` bytes completed and is not measured: no interval goes on over it.
    #[inline(always)]
    pub(super) fn passed(&mut self, now: Time, len: u64) {
        self.backlog = self.backlog.saturating_sub(len);
        self.busy_bytes += len;
        self.is_open = false;
        self.last = now;
    }

    /// A post of `len` bytes, which took `took` or less, completed; `is_busy`: others are in flight. Returns
    /// whether the rate was measured, and why it changed, if that is worth reporting. `pipe`: a completion's
    /// time beside the bytes, which are then no longer with the rail but in flight; in nanoseconds.
    pub(super) fn completed(
        &mut self,
        now: Time,
        len: u64,
        took: Nanos,
        is_busy: bool,
        pipe: Option<u32>,
    ) -> Option<(Why, Rate)> {
        let has_bounds = pipe.is_some();
        self.turn = 0;
        self.backlog = self.backlog.saturating_sub(len);
        self.busy_bytes += len;
        let mut reported = None;
        let least = if has_bounds { SAMPLE_BYTES_MIN } else { SAMPLE_BYTES_BURSTS };
        let lasts = has_bounds || self.rate == Rate::NONE || (self.last - self.since).0 >= SAMPLE_NS_BURSTS;
        let whole = lasts && self.bytes >= least && self.bytes >= u64::from(self.posts) * POST_BYTES_MIN;
        if self.is_open && now > self.last && self.last > self.since && whole {
            // Nothing at `last` can come any more, and the rail was busy before and after.
            let rate = Rate::of(self.bytes, (self.last - self.since).0);
            // Where all that was left may have been in flight, the rail itself may have been idle.
            let was_busy = rate.bytes_in(pipe.unwrap_or(0).into()) <= self.least;
            if was_busy || rate > self.rate {
                reported = self.sample(rate);
            }
            (self.since, self.bytes, self.posts, self.least) = (self.last, 0, 0, u64::MAX);
        }
        let many = self.posts >= SAMPLE_POSTS_MIN && self.bytes < u64::from(self.posts) * POST_BYTES_MIN;
        if self.is_open && now > self.last && self.last > self.since && many {
            self.sample_post((self.last - self.since).0);
            (self.since, self.bytes, self.posts, self.least) = (self.last, 0, 0, u64::MAX);
        }
        if self.is_open && now > self.since {
            self.bytes += len;
            self.posts += 1;
            self.least = self.least.min(self.backlog);
        }
        // Completed posts of such a rail are still in the kernel: it stays busy if more comes at once.
        let goes_on = is_busy || !has_bounds;
        if goes_on && !self.is_open {
            *self = Path { is_open: true, since: now, bytes: 0, posts: 0, least: u64::MAX, ..*self };
        }
        // The first since the rail was idle: nothing was ahead of it. A small one is a measurement whatever
        // followed it; a large one only alone, as its rate may have changed.
        let is_informative = len <= SMALL_BYTES_MAX || !is_busy && self.rate != Rate::NONE;
        if has_bounds && is_informative && self.busy_bytes == len {
            let moving = if self.rate == Rate::NONE { 0 } else { self.rate.time_ns(len) };
            let rest = took.0.saturating_sub(moving);
            let rest = u32::try_from(rest).unwrap_or(u32::MAX).max(1);
            self.latency = if self.latency == 0 { rest } else { self.latency.min(rest) };
        }
        if !is_busy {
            self.is_open &= goes_on;
            // To begin with, the smallest stripe is enough: else messages cut in two of these would never
            // teach what cuts them. Later a certain measurement counts, however few bytes it has.
            let least = if self.rate == Rate::NONE { STRIPE_BYTES_MIN } else { POST_BYTES_MIN };
            if has_bounds && self.busy_bytes >= least && now > self.busy_since {
                // The last byte has moved when the way back begins; no more than half of the time is taken
                // for that.
                let took = (now - self.busy_since).0;
                let rate = Rate::of(self.busy_bytes, took - u64::from(self.latency).min(took / 2));
                if rate > self.rate {
                    reported = self.raise(rate).or(reported);
                }
            }
        }
        self.last = now;
        reported
    }

    /// When something was last received over it, or it got work after it was idle.
    pub(crate) fn last_received(&self) -> Time {
        self.last.max(self.busy_since)
    }

    /// The rate that [`transfer_ns`](Self::transfer_ns) reckons with.
    pub(crate) fn set_ns_per_64k(&mut self, rate: Rate) {
        self.ns_per_64k = u32::try_from(rate.time_ns(1 << 16)).unwrap_or(u32::MAX);
    }

    /// What so many bytes take, in nanoseconds; 2 GiB are the most.
    pub(crate) fn transfer_ns(&self, bytes: u64) -> u64 {
        (bytes.min(1 << 31) * u64::from(self.ns_per_64k)) >> 16
    }

    /// Estimated bytes still queued on it: what has not completed, less what its rate has moved since
    /// something was last received. Completions come late: moved bytes may not be reported yet.
    pub(crate) fn remaining(&self, now: Time, rate: Rate) -> u64 {
        if self.backlog == 0 {
            return 0;
        }
        self.backlog.saturating_sub(rate.bytes_in((now - self.last_received()).0))
    }

    /// Whether it will complete its work in less than `time`; where its rate is unknown, whether the work is
    /// small.
    pub(crate) fn lasts_less_than(&self, time: Nanos) -> bool {
        match self.rate {
            Rate::NONE => self.backlog < FIRST_BYTES.max(time.0 / FIRST_NS_PER_BYTE),
            rate => rate.time_ns(self.backlog) < time.0,
        }
    }

    /// Whether it completes its work before another one does; rates count only where both are known.
    pub(crate) fn is_through_before(&self, other: &Path) -> bool {
        let known = self.rate != Rate::NONE && other.rate != Rate::NONE;
        let (mine, its) = if known { (self.rate.0, other.rate.0) } else { (1, 1) };
        u128::from(self.backlog) * u128::from(its) < u128::from(other.backlog) * u128::from(mine)
    }

    /// Updates the cost of a post beside its bytes from a busy interval of many small posts.
    fn sample_post(&mut self, took_ns: u64) {
        let moving = if self.rate == Rate::NONE { 0 } else { self.rate.time_ns(self.bytes) };
        let sample = (took_ns.saturating_sub(moving) / u64::from(self.posts)).min(POST_NS_MAX);
        let step = (sample as i64 - i64::from(self.post_ns)) >> if self.post_ns == 0 { 0 } else { SAMPLE_SHIFT };
        self.post_ns = (i64::from(self.post_ns) + step).max(1) as u32;
    }

    /// The rail was seen to be at least so fast.
    fn raise(&mut self, least: Rate) -> Option<(Why, Rate)> {
        let before = core::mem::replace(&mut self.rate, least);
        self.streak = 0;
        let why = if before == Rate::NONE { Why::Measured } else { Why::Jump };
        (before == Rate::NONE || least.0 - before.0 > before.0 / 4).then_some((why, before))
    }

    /// Takes a sample into the rate.
    fn sample(&mut self, sample: Rate) -> Option<(Why, Rate)> {
        let before = self.rate;
        let side = if sample > before { 1 } else { -1 };
        if before == Rate::NONE {
            self.rate = sample;
            return Some((Why::Measured, before));
        }
        if sample.0.abs_diff(before.0) <= before.0 / 4 {
            self.streak = 0;
        } else {
            self.streak = if self.streak.signum() == side { self.streak + side } else { side };
            if self.streak.abs() >= OUT_OF_LINE_MAX {
                self.streak = 0;
                self.rate = sample;
                return Some((Why::Jump, before));
            }
        }
        let step = (i64::from(sample.0) - i64::from(before.0)) >> SAMPLE_SHIFT;
        // Between both, so it fits.
        self.rate = Rate((i64::from(before.0) + step).max(1) as u32);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 16 * 1024;

    /// Completes `count` posts of a rail that is given them all at 0 and takes `each` ns for one; noticed at
    /// multiples of `poll`.
    fn run(path: &mut Path, start: u64, count: u64, each: u64, poll: u64) -> u64 {
        for n in 0..count {
            path.posted(Time(start), LEN, n == 0);
        }
        let mut now = start;
        for n in 1..=count {
            now = (start + n * each).next_multiple_of(poll);
            path.completed(Time(now), LEN, Nanos(now - start), n < count, Some(0));
        }
        now
    }

    /// P-1: a rate is measured right whatever the moments of polling, as long as the rail stays busy in
    /// between.
    #[test]
    fn late_polls_do_not_lower_the_rate_estimate() {
        let true_rate = Rate::of(LEN, 10_000);
        for poll in [1, 7_000, 10_000, 35_000, 90_000] {
            let mut path = Path::default();
            run(&mut path, 5, 100, 10_000, poll);
            let off = path.rate.0.abs_diff(true_rate.0);
            // A poll may fall just before or after a completion: one of at least as many as a poll finds.
            assert!(off * 4 <= true_rate.0, "polls of {poll}: {:?} for {true_rate:?}", path.rate);
            assert_eq!(path.backlog, 0);
        }
    }

    /// P-1: a measurement of a rail that ran dry never lowers its rate, however late it is noticed.
    #[test]
    fn a_rail_that_ran_dry_is_not_slow() {
        let mut path = Path::default();
        let now = run(&mut path, 0, 100, 10_000, 1);
        let rate = path.rate;
        for n in 1..50 {
            path.posted(Time(now + n * 1_000_000 - 900_000), LEN, true);
            path.completed(Time(now + n * 1_000_000), LEN, Nanos(900_000), false, Some(0));
            assert_eq!(path.rate, rate);
        }
        assert!(path.latency > 0);
    }

    /// P-1: a kernel that takes all it has at once every other millisecond is measured right where it gets
    /// more at once, and is not measured where it waits for more.
    #[test]
    fn rate_is_measured_from_saturated_bursts_only() {
        let (mut path, mut now) = (Path::default(), 5);
        let burst = |path: &mut Path, now: u64, pause: u64| {
            for n in 0..4 {
                path.posted(Time(now), LEN, n == 0);
            }
            let then = now + 2_000_000;
            for n in 1..=4 {
                path.completed(Time(then), LEN, Nanos(2_000_000), n < 4, None);
            }
            then + pause
        };
        for _ in 0..40 {
            now = burst(&mut path, now, 100_000);
        }
        assert_eq!(path.rate, Rate::NONE);
        for _ in 0..40 {
            now = burst(&mut path, now, 0);
        }
        let true_rate = Rate::of(4 * LEN, 2_000_000);
        assert!(path.rate.0.abs_diff(true_rate.0) * 10 <= true_rate.0, "{:?} for {true_rate:?}", path.rate);
        let rate = path.rate;
        for _ in 0..40 {
            now = burst(&mut path, now, 5_000_000);
        }
        assert_eq!(path.rate, rate);
    }

    /// P-1: a TCP rail that was slow and is fast again shows it in intervals that are too short for a sample:
    /// it completes each before the next one comes.
    #[test]
    fn short_stretches_raise_the_rate_of_a_rail_that_has_recovered() {
        const SEGMENT: u64 = 256 * 1024;
        let stretch = |path: &mut Path, start: u64, posts: u64, each: u64| {
            for n in 0..posts {
                path.posted(Time(start), SEGMENT, n == 0);
            }
            for n in 1..=posts {
                path.completed(Time(start + n * each), SEGMENT, Nanos(n * each), n < posts, None);
            }
            start + posts * each + 1_000_000
        };
        let mut path = Path::default();
        let mut now = stretch(&mut path, 5, 40, 20_000_000);
        let slow = Rate::of(SEGMENT, 20_000_000);
        assert!(path.rate.0.abs_diff(slow.0) * 50 < slow.0, "{:?}", path.rate);
        // Two segments may be one burst, which is no measurement.
        let before = path.rate;
        for _ in 0..4 {
            now = stretch(&mut path, now, 2, 2_000_000);
        }
        assert_eq!(path.rate, before);
        for _ in 0..4 {
            now = stretch(&mut path, now, 3, 2_000_000);
        }
        let fast = Rate::of(SEGMENT, 2_000_000);
        assert!(path.rate.0.abs_diff(fast.0) * 10 < fast.0, "{:?} for {fast:?}", path.rate);
    }

    /// The estimate of a rail that slows down ten-fold, or recovers, follows after a few samples.
    #[test]
    fn jumps_are_followed_at_once() {
        let mut path = Path::default();
        let now = run(&mut path, 0, 100, 10_000, 1);
        let now = run(&mut path, now, 16, 100_000, 1);
        assert!(path.rate.0.abs_diff(Rate::of(LEN, 100_000).0) < path.rate.0 / 50, "{:?}", path.rate);
        run(&mut path, now, 16, 10_000, 1);
        assert!(path.rate.0.abs_diff(Rate::of(LEN, 10_000).0) < path.rate.0 / 50, "{:?}", path.rate);
    }

    /// P-1: a rail that completes everything at each poll is not estimated slow for ever.
    #[test]
    fn bounds_raise_a_rate_that_is_too_low() {
        let mut path = Path::default();
        let mut now = run(&mut path, 0, 100, 100_000, 1);
        for _ in 0..10 {
            now = run(&mut path, now, 2, 10_000, 50_000);
        }
        assert!(path.rate >= Rate::of(2 * LEN, 60_000), "{:?}", path.rate);
    }
}
