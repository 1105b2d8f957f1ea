//! What is believed of a rail, and of what rails share, from measurements of the traffic itself.
//!
//! [`PathModel`] (one per subchannel) turns posts and completions into samples and samples into a rate and a latency.
//! [`GroupModel`] (one per bottleneck) does so for what several busy rails move together. [`ProbeBudget`] (one per
//! channel) says when a rail that gets no traffic may be given some, so that its model doesn't grow old.
//!
//! A sample is an interval of rates, not a number: a completion that was found late proves that the rail was at least so
//! fast, and at most so much faster. An estimate inside the interval is confirmed and stays; one outside moves to its
//! nearer end. Late polling (multirail-2004 4.5, its three cases) therefore can't move an estimate in the wrong direction.
//!
//! Invariants: an estimate is never zero once it is known, whatever happens; nothing is learnt from a rail to which
//! nothing was posted, nor from one that went down; what a planner sees ([`PathModel::rate`]) changes by steps of 2 % or
//! more. Stamps are 32 bits of 16 ns and wrap after 68 s: a rail unused for longer may look younger than it is, which
//! delays a probe and does no other harm.
//!
//! Source: multirail-2004 4.5 (bandwidth from completions); newmadeleine-2007 3.4 (sampling). The rule that a delivery
//! rate counts only over an interval in which the sender never ran dry is that of BBR's rate samples
//! (draft-cheng-iccrg-delivery-rate-estimation, section 2).

use super::rate::{self, Rate};
use crate::time::Time;

/// A completion of fewer bytes says nothing about bandwidth, only about latency.
pub const RATE_BYTES_MIN: u64 = 4 << 10;

/// Intervals shorter than this, in ns, wait for more completions: stamps have 16 ns.
const INTERVAL_NS_MIN: u64 = 2_000;

/// And than so many times the uncertainty of their ends.
const LATE_SHARE: u64 = 32;

/// A sample further off than this, in permille of the estimate, is a sign of change; below, it is smoothed.
const ODD_PERMILLE: u64 = 250;

/// So many odd samples in a row, all on one side, are a change.
pub const STREAK: u8 = 3;

/// What planners see follows the estimate when that is further off than this, in permille.
const HYSTERESIS_PERMILLE: u64 = 20;

/// Samples are smoothed by an eighth.
const SMOOTH_SHIFT: u32 = 3;

/// What a sample did to the rate that planners see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    #[default]
    None,
    /// First knowledge of the rail.
    First,
    /// It followed a slow drift past the hysteresis.
    Drift,
    /// It jumped: several samples in a row said so.
    Jump,
}

/// Bounds of a rate that one observation proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// At least this.
    pub least: Rate,
    /// At most this; the largest rate: no bound.
    pub most: Rate,
}

impl Sample {
    /// Exactly `bytes` in `ns`.
    pub fn exact(bytes: u64, ns: u64) -> Sample {
        let rate = Rate::of(bytes, ns);
        Sample { least: rate, most: rate }
    }

    /// At least `bytes` in `ns`: the rail may have been idle for a part of it, or hindered by others.
    pub fn at_least(bytes: u64, ns: u64) -> Sample {
        Sample { most: Rate(u32::MAX), ..Sample::exact(bytes, ns) }
    }
}

/// An estimate of a rate: smoothed, quick to follow a change, with hysteresis towards those who read it. 12 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    estimate: Rate,
    shown: Rate,
    /// The odd sample before the newest, relative to the estimate, in 1024ths.
    odd: u16,
    /// Odd samples in a row: positive above, negative below.
    streak: i8,
    /// Not assumed: at least one sample was taken.
    measured: bool,
}

impl Estimate {
    /// An assumption, to be replaced by the first sample; [`Rate::NONE`] where nothing is known.
    pub const fn assumed(rate: Rate) -> Estimate {
        Estimate { estimate: rate, shown: rate, odd: 0, streak: 0, measured: false }
    }

    /// What planners see.
    pub const fn rate(&self) -> Rate {
        self.shown
    }

    /// Whether any sample was taken.
    pub const fn is_measured(&self) -> bool {
        self.measured
    }

    /// Takes a sample in.
    pub fn observe(&mut self, sample: Sample) -> Change {
        if !self.measured {
            return self.first(sample);
        }
        let target = self.estimate.0.clamp(sample.least.0.min(sample.most.0), sample.most.0.max(sample.least.0)).max(1);
        let off_permille = permille(target.abs_diff(self.estimate.0), self.estimate.0);
        let side = if target > self.estimate.0 { 1 } else { -1 };
        if off_permille <= ODD_PERMILLE {
            self.streak = 0;
            let (old, new) = (i64::from(self.estimate.0), i64::from(target));
            // Rounded away from the old value, so that small rates move at all.
            let step = (new - old + i64::from(side) * ((1 << SMOOTH_SHIFT) - 1)) / (1 << SMOOTH_SHIFT);
            self.estimate = Rate((old + if new == old { 0 } else { step }) as u32);
            return self.show(Change::Drift);
        }
        self.streak = if self.streak.signum() == side { self.streak + side } else { side };
        let before = rate::scale(self.estimate.0.into(), self.odd.into(), 1024).clamp(1, u32::MAX.into()) as u32;
        self.odd = rate::scale(target.into(), 1024, self.estimate.0.into()).min(u16::MAX.into()) as u16;
        if self.streak.unsigned_abs() < STREAK {
            return Change::None;
        }
        // The nearer of the last two: the first of a streak may straddle the change, the last may be an outlier.
        let nearer = if side > 0 { target.min(before) } else { target.max(before) };
        self.estimate = Rate(nearer);
        self.streak = 0;
        self.show(Change::Jump)
    }

    /// The first sample that bounds the rate from both sides replaces an assumption by its middle; one that bounds it
    /// from below only raises it.
    fn first(&mut self, sample: Sample) -> Change {
        let two_sided = sample.most != Rate(u32::MAX);
        let middle = Rate(sample.least.0.midpoint(sample.most.0));
        let known = if two_sided { middle } else { self.estimate.max(sample.least) };
        self.measured = two_sided;
        let change = if self.shown == known { Change::None } else { Change::First };
        (self.estimate, self.shown) = (known, known);
        change
    }

    fn show(&mut self, change: Change) -> Change {
        if permille(self.estimate.0.abs_diff(self.shown.0), self.shown.0) <= HYSTERESIS_PERMILLE {
            return Change::None;
        }
        self.shown = self.estimate;
        change
    }
}

/// `part` of `whole`, in permille; a whole of zero counts as one.
fn permille(part: u32, whole: u32) -> u64 {
    u64::from(part) * 1000 / u64::from(whole.max(1))
}

/// The model of one rail to one peer.
///
/// Feed every post and every completion; a run of completions that were found at one moment carries the same `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathModel {
    rate: Estimate,
    latency_ns: u32,
    /// Bytes posted and not completed; saturates, and then reads as "long".
    backlog: u32,
    /// Bytes completed after `since`, up to `last`.
    done: u32,
    /// The beginning of the interval under measurement; the post, while nothing has completed.
    since: Stamp,
    /// The latest completion; it ages the model too.
    last: Stamp,
    phase: Phase,
}

/// What is under measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing is posted.
    #[default]
    Idle,
    /// One post, made on an idle rail, is out.
    Lone,
    /// Posts are out, none has completed since the rail was idle.
    Starting,
    /// The rail has been busy without a break from `since` to `last`.
    Busy,
}

/// How a completion was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// Upper bound for how long the completion lay there before it was seen: the time since the rail was polled before,
    /// in ns.
    pub late_ns: u32,
    /// What rails share explains what they move ([`GroupModel::explains`]): then samples of one rail bound its rate from
    /// below only.
    pub shared: bool,
}

impl PathModel {
    /// A path about which only `rate` (from facts, or from sampling) and `latency_ns` are assumed; zero: not known.
    pub const fn new(rate: Rate, latency_ns: u32) -> PathModel {
        PathModel {
            rate: Estimate::assumed(rate),
            latency_ns,
            backlog: 0,
            done: 0,
            since: Stamp(0),
            last: Stamp(0),
            phase: Phase::Idle,
        }
    }

    /// What the path moves, for planning; [`Rate::NONE`] only where nothing was assumed and nothing measured.
    pub const fn rate(&self) -> Rate {
        self.rate.rate()
    }

    /// Whether the rate was measured, not assumed.
    pub const fn is_measured(&self) -> bool {
        self.rate.is_measured()
    }

    /// From post to completion of an empty chunk on the idle path, in ns; zero: not known.
    pub const fn latency_ns(&self) -> u32 {
        self.latency_ns
    }

    /// Bytes posted and not completed.
    pub const fn backlog_bytes(&self) -> u64 {
        self.backlog as u64
    }

    /// [`rate`](Self::rate), lessened where the silence of a busy path already disproves it: everything queued should
    /// have completed twice over. Nothing is learnt from that; the next completion tells.
    pub fn rate_at(&self, now: Time) -> Rate {
        if self.phase == Phase::Idle {
            return self.rate();
        }
        let began = if self.phase == Phase::Busy { self.last } else { self.since };
        let silent_ns = began.until(now);
        let due_ns = self.rate().time_ns(self.backlog.into()).saturating_add(self.latency_ns.into());
        if silent_ns / 2 <= due_ns { self.rate() } else { self.rate().min(Rate::of(self.backlog.into(), silent_ns)) }
    }

    /// How long ago the path last proved anything, in ns (modulo 68 s).
    pub fn age_ns(&self, now: Time) -> u64 {
        self.last.until(now)
    }

    /// `bytes` were posted.
    pub fn posted(&mut self, now: Time, bytes: u64) {
        self.phase = match self.phase {
            Phase::Idle => {
                (self.since, self.done) = (Stamp::at(now), 0);
                Phase::Lone
            }
            Phase::Lone => Phase::Starting,
            phase => phase,
        };
        self.backlog = self.backlog.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// `bytes` of what was posted completed. A completion without a post is nobody's, and ignored.
    pub fn completed(&mut self, now: Time, bytes: u64, finding: Finding) -> Change {
        if self.phase == Phase::Idle {
            return Change::None;
        }
        let stamp = Stamp::at(now);
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        let change = match self.phase {
            Phase::Lone => self.lone(now, bytes, finding),
            Phase::Busy if stamp != self.last => self.round(finding),
            _ => Change::None,
        };
        self.backlog = self.backlog.saturating_sub(len);
        if self.phase != Phase::Busy || bytes < RATE_BYTES_MIN {
            // Measuring begins here: before it lies the latency, or a packet whose cost isn't that of its bytes.
            (self.phase, self.since, self.done) = (Phase::Busy, stamp, 0);
        } else if stamp != self.since {
            self.done = self.done.saturating_add(len);
        }
        self.last = stamp;
        if self.backlog > 0 {
            return change;
        }
        self.phase = Phase::Idle;
        let busy_ns = self.since.until(now);
        if u64::from(self.done) >= RATE_BYTES_MIN && busy_ns >= INTERVAL_NS_MIN {
            // It ran dry somewhere before `now`, at most `late_ns` before.
            return later(change, self.bounded(self.done.into(), busy_ns, finding));
        }
        change
    }

    /// The subchannel is gone: what was posted will not complete. The estimates stay, for when it stands again.
    pub fn down(&mut self) {
        (self.phase, self.backlog, self.done) = (Phase::Idle, 0, 0);
    }

    /// A measurement from outside (sampling at start, a probe's answer).
    pub fn observe(&mut self, sample: Sample) -> Change {
        self.rate.observe(sample)
    }

    /// A latency from outside, in ns, which may be late by `late_ns`.
    pub fn observe_latency(&mut self, ns: u64, late_ns: u32) {
        let most = u32::try_from(ns).unwrap_or(u32::MAX).max(1);
        let least = most.saturating_sub(late_ns).max(1);
        let known = self.latency_ns;
        self.latency_ns = match known {
            0 => most,
            // Down at once (nothing arrives too early), up slowly (anything may be late).
            _ if most < known => most,
            _ if least > known => known + (least - known).div_ceil(16),
            _ => known,
        };
    }

    /// A round of completions is over and the path is still busy: the rail worked all the time, and only the two ends
    /// of the interval are uncertain, by what each was found late. Long intervals make that small.
    fn round(&mut self, finding: Finding) -> Change {
        let (busy_ns, done) = (self.since.to(self.last), u64::from(self.done));
        let late_ns = u64::from(finding.late_ns);
        if busy_ns < INTERVAL_NS_MIN.max(LATE_SHARE * late_ns) || done < RATE_BYTES_MIN {
            return Change::None;
        }
        (self.since, self.done) = (self.last, 0);
        let most = if finding.shared { Rate(u32::MAX) } else { Rate::of(done, busy_ns - late_ns) };
        self.rate.observe(Sample { least: Rate::of(done, busy_ns + late_ns), most })
    }

    /// The only post of an idle path: latency if it is small, bandwidth if it is large against the latency.
    fn lone(&mut self, now: Time, bytes: u64, finding: Finding) -> Change {
        let took_ns = self.since.until(now);
        if bytes < RATE_BYTES_MIN {
            let moving_ns = if self.rate() == Rate::NONE { 0 } else { self.rate().time_ns(bytes) };
            self.observe_latency(took_ns.saturating_sub(moving_ns), finding.late_ns);
            return Change::None;
        }
        let moving_ns = took_ns.saturating_sub(self.latency_ns.into());
        if self.latency_ns == 0 || moving_ns < u64::from(self.latency_ns) {
            // How much of it was latency isn't known well enough for more than a lower bound.
            return self.rate.observe(Sample::at_least(bytes, took_ns));
        }
        self.bounded(bytes, moving_ns, finding)
    }

    /// `bytes` in `ns`, of which the last `late_ns` may have been idle.
    fn bounded(&mut self, bytes: u64, ns: u64, finding: Finding) -> Change {
        let least = Rate::of(bytes, ns);
        let most = match ns.saturating_sub(finding.late_ns.into()) {
            0 => Rate(u32::MAX),
            _ if finding.shared => Rate(u32::MAX),
            ns => Rate::of(bytes, ns),
        };
        self.rate.observe(Sample { least, most })
    }
}

/// The later of two changes, unless it is none.
fn later(first: Change, second: Change) -> Change {
    if second == Change::None { first } else { second }
}

/// What the rails of a group move together. 24 bytes.
///
/// While at least two are busy, windows of joint traffic are measured. The group is in the way if that is less than 95 %
/// of what its rails move one by one; what it carries is then the most that was seen. It explains what single rails move
/// only as long as it moves that: if it moves less, the cause may be a rail, and the rails' own samples count again. So
/// a capacity is never lowered by more than a drift; where the group itself has become slower, its rails' estimates sink
/// until they add up to what it moves, and it is no longer in the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupModel {
    joint: Estimate,
    since: Stamp,
    /// Bytes that all members completed after `since`.
    done: u32,
    /// Windows in a row that were below the sum; up to [`STREAK`].
    below: u8,
    /// Joint phases and windows since the beginning; up to [`STREAK`]. Before, nothing is known of the group.
    seen: u8,
    /// Measuring.
    open: bool,
    /// The last window moved less than the group can.
    slack: bool,
}

/// A window of joint traffic is at least this long, in ns, and `WINDOW_BYTES_MIN` large.
const WINDOW_NS_MIN: u64 = 10_000;

/// See [`WINDOW_NS_MIN`].
const WINDOW_BYTES_MIN: u32 = 64 << 10;

/// Less than this, in permille of the sum of its rails' rates, and a group is in the way; less, in permille of its
/// capacity, and it isn't the group that is in the way.
const LIMIT_PERMILLE: u64 = 950;

impl GroupModel {
    /// What the group carries at most; [`Rate::NONE`]: it was not seen to be in the way.
    pub fn capacity(&self) -> Rate {
        if self.limits() { self.joint.rate() } else { Rate::NONE }
    }

    /// Whether samples of single members bound their rates from below only: the group is in the way and moves what it
    /// can, or nothing is known of it yet.
    pub fn explains(&self) -> bool {
        self.open && (self.seen < STREAK || (self.limits() && !self.slack))
    }

    /// The set of busy members has changed, and is of this size now. Measuring goes on only while it is two or more.
    pub fn busy(&mut self, now: Time, members: u32) {
        if self.open {
            // Phases too short for a window must not keep the group unknown for ever.
            self.seen = self.seen.saturating_add(1).min(STREAK);
        }
        self.open = members >= 2;
        (self.since, self.done) = (Stamp::at(now), 0);
    }

    /// Members completed `bytes`. `alone` is the sum of the rates of the members that are busy, in units of [`Rate`].
    pub fn completed(&mut self, now: Time, bytes: u64, alone: u64) -> Change {
        if !self.open {
            return Change::None;
        }
        let (window_ns, len) = (self.since.until(now), u32::try_from(bytes).unwrap_or(u32::MAX));
        if window_ns < WINDOW_NS_MIN || self.done < WINDOW_BYTES_MIN {
            self.done = self.done.saturating_add(len);
            return Change::None;
        }
        // The round that begins at `now` belongs to the next window.
        let sample = Sample::exact(self.done.into(), window_ns);
        (self.since, self.done) = (Stamp::at(now), len);
        self.seen = self.seen.saturating_add(1).min(STREAK);
        self.window(sample, alone)
    }

    fn limits(&self) -> bool {
        self.below >= STREAK
    }

    fn window(&mut self, sample: Sample, alone: u64) -> Change {
        let joint = u64::from(sample.least.0);
        if joint * 1000 >= alone.saturating_mul(LIMIT_PERMILLE) {
            // It carries all that its members have.
            let change = if self.limits() { Change::Jump } else { Change::None };
            (self.below, self.slack, self.joint) = (0, false, Estimate::default());
            return change;
        }
        if !self.limits() {
            // The most of the first windows, then it counts.
            self.joint = Estimate::assumed(self.joint.rate().max(sample.least));
            self.below += 1;
            return if self.limits() { Change::First } else { Change::None };
        }
        self.slack = joint * 1000 < u64::from(self.joint.rate().0) * LIMIT_PERMILLE;
        if self.slack { Change::None } else { self.joint.observe(sample) }
    }
}

/// Says when a rail without traffic may be probed: probes get 1 % of what moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeBudget {
    /// Bytes earned, in hundredths.
    hundredths: u64,
}

/// What may be saved up, in bytes: after a long time without need, not more than this is probed at once.
pub const PROBE_BYTES_MAX: u64 = 4 << 20;

impl ProbeBudget {
    /// `bytes` were moved for their own sake.
    pub fn moved(&mut self, bytes: u64) {
        self.hundredths = self.hundredths.saturating_add(bytes).min(PROBE_BYTES_MAX * 100);
    }

    /// Takes `bytes` for a probe, if that much is there.
    pub fn take(&mut self, bytes: u64) -> bool {
        let left = bytes.checked_mul(100).and_then(|cost| self.hundredths.checked_sub(cost));
        self.hundredths = left.unwrap_or(self.hundredths);
        left.is_some()
    }

    /// The rail of `idle` to probe next, with a chunk of `bytes`: the one that has proved nothing for longest, if that is
    /// more than `stale_ns`, and the budget allows. Takes the budget.
    pub fn due(&mut self, now: Time, paths: &[PathModel], idle: u64, stale_ns: u64, bytes: u64) -> Option<u8> {
        let age = |rail: usize| paths.get(rail).map(|path| (path.age_ns(now), core::cmp::Reverse(rail)));
        let (age_ns, rail) = super::rails_of(idle).filter_map(age).max()?;
        (age_ns > stale_ns && self.take(bytes)).then_some(rail.0 as u8)
    }
}

/// A moment, in units of 16 ns, modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp(u32);

impl Stamp {
    fn at(now: Time) -> Stamp {
        Stamp((now.0 >> 4) as u32)
    }

    /// From this one to a later one, in ns.
    fn to(self, later: Stamp) -> u64 {
        u64::from(later.0.wrapping_sub(self.0)) << 4
    }

    fn until(self, now: Time) -> u64 {
        self.to(Stamp::at(now))
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
