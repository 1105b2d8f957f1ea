//! What rails are seen to do: bytes under way, rates, latencies, the time that each stripe of a message took.
//!
//! Everything comes from posts and their completions, with the driver's time as argument. A driver may notice a
//! completion late, so times between a post and its completion are upper bounds. What is exact all the same is a *busy
//! interval*: from one completion to a later one, the rail having had something to do after either, it moved just the
//! bytes that completed in between (P-1). Only such intervals lower a measured rate; what is seen of a rail that ran
//! dry is a lower bound and can only raise it.
//!
//! What a completion stands for is the rail's affair: the peer's device has the bytes (InfiniBand), or the kernel has
//! taken or sent them (TCP). The latter says nothing about a rate as long as the kernel has room, so such rails are
//! measured in busy intervals alone, which go on where a rail that is through gets more in the same round: the kernel has
//! about a millisecond's bytes below (P-1).

use super::op::Packet;
use super::room::is_light;
use super::{Endpoint, PostStatus, Sampled};
use crate::ids::RailId;
use crate::rail::rate::Rate;
use crate::rail::sched::STRIPE_BYTES_MIN;
use crate::rail::{RailFacts, RailKind};
use crate::store::NONE;
use crate::time::{Nanos, Time};

/// A busy interval is a sample of the rate once so many bytes were moved in it.
const SAMPLE_BYTES_MIN: u64 = 32 * 1024;

/// On TCP the kernel sends in bursts - one packet of its own is up to 64 KiB, a shaper lets a hundred pass at once - and a
/// sample has to have several.
const SAMPLE_BYTES_BURSTS: u64 = 256 * 1024;

/// And but for the first it has to last so long, in nanoseconds, that a burst at either end, and a poll that comes a
/// millisecond late, are no great part of it.
const SAMPLE_NS_BURSTS: u64 = 8_000_000;

/// And once they were so many on average for each post: small packets cost their number, not their bytes.
const POST_BYTES_MIN: u64 = 4 * 1024;

/// What so few bytes take to move is no great part of a latency.
const SMALL_BYTES_MAX: u64 = 1024;

/// A busy interval of small packets is a sample of what a packet costs once there were so many of them.
const SAMPLE_POSTS_MIN: u32 = 16;

/// No packet costs more beside its bytes, in nanoseconds; more is the driver's doing.
const POST_NS_MAX: u64 = 1_000_000;

/// A rail of which nothing is known is given so many bytes to begin with.
const FIRST_BYTES: u64 = 64 * 1024;

/// One that wants to be fed far ahead, as if it moved a byte in so many nanoseconds.
const FIRST_NS_PER_BYTE: u64 = 8;

/// A sample further than a quarter off is out of line; after so many in a row on one side the rate has changed.
const OUT_OF_LINE_MAX: i8 = 3;

/// What a sample counts in the average: one part of 2^3.
const SAMPLE_SHIFT: u32 = 3;

/// Why a weight or a rate of a rail was last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The rate was measured for the first time. `from` and `to` are bytes per second.
    Measured,
    /// Several samples in a row were more than a quarter off on the same side: a change and no scatter. `from` and `to`
    /// are bytes per second.
    Jump,
    /// The times of a message's stripes moved the weight (P-7). `from` and `to` are weights.
    Stripes,
    /// Weights were set. `from` and `to` are weights.
    Set,
    /// A message was cut otherwise than the one before, by what is known of the rails (P-8). `from` and `to` are weights.
    Planned,
}

/// A change of a rail's weight or rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Time,
    /// Why, and in which unit the values are.
    pub why: Why,
    /// The value before.
    pub from: u64,
    /// The value since.
    pub to: u64,
}

/// What was counted and measured of a rail, over all peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailStats {
    /// Packets, writes and reads handed to it, unsequenced packets included.
    pub packets: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Messages of which it carried a part.
    pub messages: u64,
    /// Its weight: of all rails they sum to 65,536. Adaptive ones are those of the peer that used it last.
    pub weight: u32,
    /// Payload bytes posted and not completed.
    pub backlog: u64,
    /// Bytes per second that it was last measured to move, to whichever peer; 0: not measured.
    pub bytes_per_second: u64,
    /// The least time from the post of a lone packet to its completion that was not the payload's; `Nanos(0)`: not
    /// measured.
    pub latency: Nanos,
    /// Bytes of the last stripe that it carried to the end.
    pub stripe_bytes: u64,
    /// The time that this stripe took (P-2).
    pub stripe_time: Nanos,
    /// What it answered when it was asked, at start (P-12); `None`: it was not, or did not.
    pub sampled: Option<Sampled>,
    /// The last change of its weight or rate.
    pub changed: Option<Change>,
}

/// What is known of one subchannel as a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
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
    /// What 64 KiB take by the rate that is believed of it, in nanoseconds; and its latency, 0: to be tried.
    pace: u32,
    pub way: u32,
    /// By how much it is slower while others carry parts of the same message, in parts of 1024 of its rate (P-14).
    pub lacks: u16,
    /// Its share of the last message that `balanced` cut; 0: none.
    pub share: u32,
    /// Samples in a row out of line, negative below.
    streak: i8,
    /// A busy interval is open.
    is_open: bool,
}

/// One stripe's way: what it takes to know its time when the message is through (multirail-2004, 4.5).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// Bytes as cut; 0: no part of this message.
    pub bytes: u64,
    /// Its first post.
    posted: Time,
    is_posted: bool,
    /// The rail began with it.
    begun: Time,
    /// Its last completion so far.
    pub ended: Time,
    /// The rail's weight when it was cut; 0: nothing follows from its time.
    pub weight: u32,
    /// A segment of it is completed.
    has_begun: bool,
}

impl Part {
    /// A stripe of so many bytes, cut by a weight, not begun.
    pub(crate) fn of(bytes: u64, weight: u32) -> Part {
        Part { bytes, weight: if bytes > 0 { weight } else { 0 }, ..Part::default() }
    }

    /// A segment of it completed; before that, the rail's last completion was at `before`.
    fn completed(&mut self, now: Time, before: Time) {
        if !core::mem::replace(&mut self.has_begun, true) {
            self.begun = self.posted.max(before);
        }
        self.ended = now;
    }

    /// The rail had nothing else to do when it got it.
    pub(crate) fn began_idle(&self) -> bool {
        self.is_posted && self.begun == self.posted
    }

    /// How long the rail worked on it (P-2).
    pub(crate) fn time(&self) -> Nanos {
        self.ended - self.begun
    }
}

impl Path {
    /// A post of `len` bytes was handed over; `is_idle`: the only one. Says whether the rate has changed.
    fn posted(&mut self, now: Time, len: u64, is_idle: bool) -> bool {
        let before = self.rate;
        if is_idle && now > self.last {
            // It was left open in case that more came at once. Too short for a sample as a rule, it still tells of a rail
            // that is faster than believed, where it was more than a burst.
            let is_faster = self.is_open && self.last > self.since && self.bytes >= 2 * SAMPLE_BYTES_BURSTS;
            let rate = Rate::of(self.bytes, (self.last - self.since).0);
            if is_faster && rate > self.rate {
                self.sample(rate);
            }
            self.is_open = false;
        }
        if is_idle {
            (self.busy_since, self.busy_bytes) = (now, 0);
        }
        self.backlog += len;
        self.rate != before
    }

    /// A post of `len` bytes, which took `took` or less, completed; `is_busy`: others are under way. Says whether the
    /// rate was measured, and why it is another one now, if that is worth telling. `pipe`: what a completion takes beside
    /// the bytes, which are then no longer with the rail but on their way; in nanoseconds.
    fn completed(&mut self, now: Time, len: u64, took: Nanos, is_busy: bool, pipe: Option<u32>) -> Option<(Why, Rate)> {
        let has_bounds = pipe.is_some();
        self.backlog = self.backlog.saturating_sub(len);
        self.busy_bytes += len;
        let mut told = None;
        let least = if has_bounds { SAMPLE_BYTES_MIN } else { SAMPLE_BYTES_BURSTS };
        let lasts = has_bounds || self.rate == Rate::NONE || (self.last - self.since).0 >= SAMPLE_NS_BURSTS;
        let whole = lasts && self.bytes >= least && self.bytes >= u64::from(self.posts) * POST_BYTES_MIN;
        if self.is_open && now > self.last && self.last > self.since && whole {
            // Nothing at `last` can come any more, and the rail was busy before and after.
            let rate = Rate::of(self.bytes, (self.last - self.since).0);
            // Where all that was left may have been on its way, the rail itself may have had nothing to do.
            let was_busy = rate.bytes_in(pipe.unwrap_or(0).into()) <= self.least;
            if was_busy || rate > self.rate {
                told = self.sample(rate);
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
        // What such a rail is through with is still on its way to the wire: it stays busy if more comes at once.
        let goes_on = is_busy || !has_bounds;
        if goes_on && !self.is_open {
            *self = Path { is_open: true, since: now, bytes: 0, posts: 0, least: u64::MAX, ..*self };
        }
        if !is_busy {
            self.is_open &= goes_on;
            // To begin with, the smallest stripe is enough: else messages cut in two of these would never teach what cuts
            // them. Later what is certain is certain, however little it was.
            let least = if self.rate == Rate::NONE { STRIPE_BYTES_MIN } else { POST_BYTES_MIN };
            if has_bounds && self.busy_bytes >= least && now > self.busy_since {
                // The last byte has moved when the way back begins; no more than half of the time is taken for that.
                let took = (now - self.busy_since).0;
                let rate = Rate::of(self.busy_bytes, took - u64::from(self.latency).min(took / 2));
                if rate > self.rate {
                    told = self.raise(rate).or(told);
                }
            }
            if has_bounds && (self.rate != Rate::NONE || len <= SMALL_BYTES_MAX) && self.busy_bytes == len {
                // Alone from post to completion.
                let moving = if self.rate == Rate::NONE { 0 } else { self.rate.time_ns(len) };
                let rest = took.0.saturating_sub(moving);
                let rest = u32::try_from(rest).unwrap_or(u32::MAX).max(1);
                self.latency = if self.latency == 0 { rest } else { self.latency.min(rest) };
            }
        }
        self.last = now;
        told
    }

    /// When it was last heard of, or given something after it had nothing.
    pub(crate) fn heard(&self) -> Time {
        self.last.max(self.busy_since)
    }

    /// The rate that [`pace_ns`](Self::pace_ns) reckons with.
    pub(crate) fn set_pace(&mut self, rate: Rate) {
        self.pace = u32::try_from(rate.time_ns(1 << 16)).unwrap_or(u32::MAX);
    }

    /// What so many bytes take, in nanoseconds; 2 GiB are the most.
    pub(crate) fn pace_ns(&self, bytes: u64) -> u64 {
        (bytes.min(1 << 31) * u64::from(self.pace)) >> 16
    }

    /// Bytes that are believed to lie on it still: what has not completed, but for what its rate has moved since it was
    /// last heard of. Completions come late: what was moved may not be told yet.
    pub(crate) fn remaining(&self, now: Time, rate: Rate) -> u64 {
        if self.backlog == 0 {
            return 0;
        }
        self.backlog.saturating_sub(rate.bytes_in((now - self.heard()).0))
    }

    /// Whether it will be through with what it has in less than `time`; where its rate is not known, whether that is
    /// little.
    pub(crate) fn lasts_less_than(&self, time: Nanos) -> bool {
        match self.rate {
            Rate::NONE => self.backlog < FIRST_BYTES.max(time.0 / FIRST_NS_PER_BYTE),
            rate => rate.time_ns(self.backlog) < time.0,
        }
    }

    /// Whether it is through with what it has before another one is; both rates count only where both are known.
    pub(crate) fn is_through_before(&self, other: &Path) -> bool {
        let known = self.rate != Rate::NONE && other.rate != Rate::NONE;
        let (mine, its) = if known { (self.rate.0, other.rate.0) } else { (1, 1) };
        u128::from(self.backlog) * u128::from(its) < u128::from(other.backlog) * u128::from(mine)
    }

    /// Takes a busy interval of many small posts into what each of them costs beside its bytes.
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

/// Time in ticks of 16 ns; wraps after 68 s.
pub(super) const fn tick(now: Time) -> u32 {
    (now.0 >> 4) as u32
}

/// Whether the time from a post to its completion says something about a rail that has little to do: on TCP it does not.
pub(super) fn has_bounds(facts: &RailFacts) -> bool {
    facts.kind != RailKind::Tcp
}

impl Endpoint<'_> {
    /// What was counted and measured of a rail; `None` where there is no such rail.
    pub fn rail_stats(&self, rail: RailId) -> Option<RailStats> {
        self.t.figures.get(usize::from(rail.0)).filter(|_| usize::from(rail.0) < self.rails.len()).copied()
    }

    /// A rail has got a packet, write or read of `len` bytes.
    pub(super) fn note_posted(&mut self, now: Time, channel: u32, rail: RailId, len: u64) {
        let sub = self.t.sub(channel, rail);
        let is_faster = sub.path.posted(now, len, sub.posts == 0);
        sub.posts += 1;
        let is_light = is_light(sub, &self.rails[usize::from(rail.0)]);
        let figures = &mut self.t.figures[usize::from(rail.0)];
        figures.packets += 1;
        figures.bytes += len;
        figures.backlog += len;
        if !is_light {
            self.refresh(channel, rail);
        }
        if is_faster {
            self.learn_way(channel, rail);
        }
    }

    /// A segment of an operation's payload has been handed to a rail.
    pub(super) fn note_moved(&mut self, now: Time, op: u32, rail: RailId) {
        let slot = self.t.ops.at(op);
        let (set, first) = (slot.stripes, slot.cursor == 0);
        let first = if set == NONE {
            first
        } else {
            let part = &mut self.t.parts_of(set)[usize::from(rail.0)];
            let first = !core::mem::replace(&mut part.is_posted, true);
            if first {
                part.posted = now;
            }
            first
        };
        self.t.figures[usize::from(rail.0)].messages += u64::from(first);
    }

    /// A rail is through with it.
    pub(super) fn note_completed(&mut self, now: Time, packet: &Packet, status: PostStatus) {
        let rail = RailId(packet.rail);
        let facts = &self.rails[usize::from(packet.rail)];
        let has_bounds = has_bounds(facts);
        let sub = self.t.sub(packet.channel, rail);
        let was_light = is_light(sub, facts);
        sub.posts = sub.posts.saturating_sub(1);
        let (is_busy, before) = (sub.posts > 0, sub.path.last);
        if status == PostStatus::Failed {
            sub.path.backlog = sub.path.backlog.saturating_sub(packet.len);
            let figures = &mut self.t.figures[usize::from(rail.0)];
            figures.backlog = figures.backlog.saturating_sub(packet.len);
            self.refresh(packet.channel, rail);
            return;
        }
        let known = (sub.path.rate, sub.path.latency);
        let took = Nanos(u64::from(tick(now).wrapping_sub(packet.stamp)) << 4);
        // Before it was ever seen alone, what an empty packet took there and back.
        let asked = || self.t.figures[usize::from(rail.0)].sampled.map_or(0, |seen| seen.latency.0 as u32 * 2);
        let pipe = has_bounds.then(|| if known.1 > 0 { known.1 } else { asked() });
        let path = &mut self.t.sub(packet.channel, rail).path;
        let told = path.completed(now, packet.len, took, is_busy, pipe);
        let (rate, latency) = (path.rate, path.latency);
        let figures = &mut self.t.figures[usize::from(rail.0)];
        figures.backlog = figures.backlog.saturating_sub(packet.len);
        if known != (rate, latency) {
            (figures.latency, figures.bytes_per_second) = (Nanos(latency.into()), rate.bytes_per_second());
            if let Some((why, from)) = told {
                let (from, to) = (from.bytes_per_second(), rate.bytes_per_second());
                figures.changed = Some(Change { at: now, why, from, to });
            }
            self.learn_way(packet.channel, rail);
        }
        if !was_light {
            self.refresh(packet.channel, rail);
        }
        let set = self.t.ops.at(packet.op).stripes;
        if set != NONE && packet.len > 0 {
            let part = &mut self.t.parts_of(set)[usize::from(rail.0)];
            if part.bytes > 0 {
                part.completed(now, before);
            }
        }
    }

    /// Where an operation's stripes are all through, their times are known, and the set is given back.
    pub(super) fn conclude(&mut self, op: u32) {
        let slot = self.t.ops.at(op);
        let set = slot.stripes;
        if set == NONE || !slot.all_sent || slot.posts > 0 {
            return;
        }
        let channel = slot.channel;
        self.reweigh(channel, set);
        if self.t.stripe_sets.at(set).is_balanced {
            self.learn_together(channel, set);
        }
        for rail in 0..self.rails.len() {
            let part = self.t.parts_of(set)[rail];
            if part.bytes > 0 {
                let figures = &mut self.t.figures[rail];
                (figures.stripe_bytes, figures.stripe_time) = (part.bytes, part.time());
            }
        }
        if !self.planted(super::Planted::ReplayUnfenced) {
            self.drop_stripes(op);
        }
    }

    /// A subchannel's posts are void: they are not under way any more.
    pub(super) fn forget_backlog(&mut self, channel: u32, rail: RailId) {
        let backlog = core::mem::take(&mut self.t.sub(channel, rail).path.backlog);
        let figures = &mut self.t.figures[usize::from(rail.0)];
        figures.backlog = figures.backlog.saturating_sub(backlog);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 16 * 1024;

    /// Completes `count` posts of a rail that is given them all at 0 and takes `each` ns for one; noticed at multiples of
    /// `poll`.
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

    /// P-1: a rate is measured right whatever the moments of polling, as long as the rail stays busy in between.
    #[test]
    fn late_polls_do_not_lower_the_rate() {
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

    /// P-1: what is seen of a rail that ran dry never lowers its rate, however late it is noticed.
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

    /// P-1: a kernel that takes all it has at once every other millisecond is measured right where it gets more at once, and
    /// not at all where it waits for more.
    #[test]
    fn bursts_make_a_rate_where_more_comes_at_once() {
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

    /// P-1: a TCP rail that was slow and is fast again shows it in stretches that are too short for a sample: it is through
    /// with each before the next one comes.
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
        for _ in 0..4 {
            now = stretch(&mut path, now, 3, 2_000_000);
        }
        let fast = Rate::of(SEGMENT, 2_000_000);
        assert!(path.rate.0.abs_diff(fast.0) * 10 < fast.0, "{:?} for {fast:?}", path.rate);
    }

    /// A rail that slows down ten-fold is known for it after a few samples, and so is one that recovers.
    #[test]
    fn jumps_are_followed_at_once() {
        let mut path = Path::default();
        let now = run(&mut path, 0, 100, 10_000, 1);
        let now = run(&mut path, now, 16, 100_000, 1);
        assert!(path.rate.0.abs_diff(Rate::of(LEN, 100_000).0) < path.rate.0 / 50, "{:?}", path.rate);
        run(&mut path, now, 16, 10_000, 1);
        assert!(path.rate.0.abs_diff(Rate::of(LEN, 10_000).0) < path.rate.0 / 50, "{:?}", path.rate);
    }

    /// P-1: a rail that is through with everything at each poll is not taken for slow for ever.
    #[test]
    fn bounds_raise_a_rate_that_is_too_low() {
        let mut path = Path::default();
        let mut now = run(&mut path, 0, 100, 100_000, 1);
        for _ in 0..10 {
            now = run(&mut path, now, 2, 10_000, 50_000);
        }
        assert!(path.rate >= Rate::of(2 * LEN, 60_000), "{:?}", path.rate);
    }

    /// P-2: a stripe's time begins when the rail is through with what was posted before.
    #[test]
    fn a_stripe_does_not_pay_for_those_before_it() {
        let mut part = Part { bytes: LEN, posted: Time(100), ..Part::default() };
        part.completed(Time(900), Time(500));
        part.completed(Time(1300), Time(900));
        assert_eq!(part.time(), Nanos(800));
        let mut alone = Part { bytes: LEN, posted: Time(100), ..Part::default() };
        alone.completed(Time(900), Time(50));
        assert_eq!(alone.time(), Nanos(800));
    }
}
