//! Measurements of rails: bytes in flight, rates, latencies, the time that each stripe of a message took.
//!
//! Everything comes from posts and their completions, with the driver's time as argument. A driver may notice
//! a completion late, so times between a post and its completion are upper bounds. What is exact all the same
//! is a *busy interval*: from one completion to a later one, the rail having had something to do after
//! either, it moved just the bytes that completed in between (P-1). Only such intervals lower a measured
//! rate; what is seen of a rail that ran dry is a lower bound and can only raise it.
//!
//! The meaning of a completion depends on the rail: the peer's device has the bytes (InfiniBand), or the
//! kernel has taken or sent them (TCP). The latter does not measure a rate as long as the kernel has room, so
//! such rails are measured in busy intervals alone. An interval continues where an idle rail gets more in the
//! same round: the kernel holds about a millisecond's bytes (P-1).

use super::path::Why;
use super::room::is_light;
use super::{Path, Paths, RegistrationCost};
use crate::api::config::RAILS_MAX;
use crate::api::feed::PostStatus;
use crate::ids::RailId;
use crate::rail::rate::Rate;
use crate::rail::{RailFacts, RailKind};
use crate::store::NONE;
use crate::time::{Nanos, Time};

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

/// Counters and measurements of a rail, over all peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailStats {
    /// Packets, writes and reads handed to it, unsequenced packets included.
    pub packets: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Messages with a part on this rail.
    pub messages: u64,
    /// Its weight: of all rails they sum to 65,536. Adaptive ones are those of the peer that used it last.
    pub weight: u32,
    /// Payload bytes posted and not completed.
    pub backlog: u64,
    /// Bytes per second that it was last measured to move, to whichever peer; 0: not measured.
    pub bytes_per_second: u64,
    /// The least time from the post of a lone packet to its completion that was not the payload's;
    /// `Nanos(0)`: not measured.
    pub latency: Nanos,
    /// Bytes of the last stripe that it carried to the end.
    pub stripe_bytes: u64,
    /// The time that this stripe took (P-2).
    pub stripe_time: Nanos,
    /// The result of its sampling at start (P-12); `None`: it was not sampled, or did not answer.
    pub sampled: Option<Sampled>,
    /// What registering memory with it was measured to cost (P-15).
    pub registering: RegistrationCost,
    /// The last change of its weight or rate.
    pub changed: Option<Change>,
}

/// One stripe of a transfer: the data to compute its time when the message is complete (multirail-2004, 4.5).
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
    /// The rail's weight when it was cut; 0: its time is not used.
    pub weight: u32,
    /// A segment of it is completed.
    has_begun: bool,
    /// The rail that carries it: the one that it was cut for, or, once that has failed, another.
    pub carrier: u8,
    /// Range of its remote writes that no acknowledged FIN covers (F-7).
    pub written: Option<(u64, u64)>,
}

impl Part {
    /// A stripe of so many bytes for a rail, cut by a weight, not begun.
    pub(crate) fn of(rail: RailId, bytes: u64, weight: u32) -> Part {
        Part { bytes, weight: if bytes > 0 { weight } else { 0 }, carrier: rail.0, ..Part::default() }
    }

    /// Remote writes of `len` bytes at `offset` are sent.
    pub(crate) fn writes(&mut self, offset: u64, len: u64) {
        let (low, high) = self.written.unwrap_or((offset, offset));
        self.written = Some((low.min(offset), high.max(offset + len)));
    }

    /// A segment of it completed; before that, the rail's last completion was at `before`.
    fn completed(&mut self, now: Time, before: Time) {
        if !core::mem::replace(&mut self.has_begun, true) {
            self.begun = self.posted.max(before);
        }
        self.ended = now;
    }

    /// The rail was idle when it got it.
    pub(crate) fn began_idle(&self) -> bool {
        self.is_posted && self.begun == self.posted
    }

    /// How long the rail worked on it (P-2).
    pub(crate) fn time(&self) -> Nanos {
        self.ended - self.begun
    }
}

/// A time in ticks of 16 ns, 48 bits of them: a time older than 52 days looks younger. Packed, because that
/// is the room that a packet's slot leaves.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(2))]
pub(crate) struct Stamp {
    low: u32,
    high: u16,
}

impl Stamp {
    /// The tick of a moment.
    pub(crate) const fn of(at: Time) -> Stamp {
        let ticks = at.0 >> 4;
        Stamp { low: ticks as u32, high: (ticks >> 32) as u16 }
    }

    /// The time from then until `now`, in whole ticks.
    pub(crate) const fn age(self, now: Time) -> Nanos {
        let then = self.low as u64 | (self.high as u64) << 32;
        Nanos((now.0 >> 4).wrapping_sub(then) << 16 >> 12)
    }
}

/// Whether the time from a post to its completion measures a rail that has little work: not on TCP.
pub(crate) fn has_bounds(facts: &RailFacts) -> bool {
    facts.kind != RailKind::Tcp
}

/// The results of a rail's probes (P-12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Half the time that an empty packet takes there and back.
    pub latency: Nanos,
    /// Bytes per second between the smaller and the larger payload; 0: the larger took no longer.
    pub bytes_per_second: u64,
}

/// A post that a rail has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    pub channel: u32,
    pub rail: RailId,
    /// Bytes of its payload.
    pub len: u64,
    /// When it was posted.
    pub posted: Stamp,
    /// The stripe set of its operation, or [`NONE`].
    pub set: u32,
}

impl Paths<'_> {
    /// Counters and measurements of a rail; `None` where there is no such rail.
    pub(crate) fn rail_stats(&self, rail: RailId) -> Option<RailStats> {
        let figures = self.figures.get(rail.index()).filter(|_| rail.index() < self.rails.len())?;
        let paths = self.paths.iter().skip(rail.index()).step_by(self.rails_max);
        let sum = |of: fn(&Path) -> u64| paths.clone().map(of).sum::<u64>();
        let shorts = sum(|path| path.shorts().0.into());
        Some(RailStats {
            packets: figures.packets + shorts,
            messages: figures.messages + shorts,
            bytes: figures.bytes + sum(|path| path.shorts().1.into()),
            backlog: sum(|path| path.backlog),
            ..*figures
        })
    }

    /// Adds the short messages on a path to the figures of its rail.
    pub(super) fn count_shorts(&mut self, channel: u32, rail: RailId) {
        let path = self.path_mut(channel, rail);
        let (shorts, bytes) = path.shorts();
        path.clear_shorts();
        let figures = &mut self.figures[rail.index()];
        figures.packets += u64::from(shorts);
        figures.messages += u64::from(shorts);
        figures.bytes += u64::from(bytes);
    }

    /// A rail has got a packet, write or read of `len` bytes.
    pub(crate) fn note_posted(&mut self, now: Time, channel: u32, rail: RailId, len: u64) {
        let at = self.index(channel, rail);
        let path = &mut self.paths[at];
        path.stir();
        let is_faster = path.posted(now, len, path.in_flight == 0);
        path.in_flight += 1;
        let is_light = is_light(path, &self.rails[rail.index()]);
        let figures = &mut self.figures[rail.index()];
        figures.packets += 1;
        figures.bytes += len;
        if !is_light {
            self.refresh_load(channel, rail);
        }
        if is_faster {
            self.learn_latency(channel, rail);
        }
    }

    /// A segment of an operation's payload has been handed to a rail: of the stripe set `set`, or, where it
    /// has none, the first of all or not.
    pub(crate) fn note_moved(&mut self, now: Time, set: u32, is_first: bool, rail: RailId) {
        let is_first = if set == NONE {
            is_first
        } else {
            let part = &mut self.parts_of_mut(set)[rail.index()];
            let is_first = !core::mem::replace(&mut part.is_posted, true);
            if is_first {
                part.posted = now;
            }
            is_first
        };
        self.figures[rail.index()].messages += u64::from(is_first);
    }

    /// A rail has completed a post; `is_done`: successfully.
    #[inline(always)]
    pub(crate) fn note_completed(&mut self, now: Time, completed: &Completed, is_done: bool) {
        let &Completed { channel, rail, len, posted, set } = completed;
        let facts = &self.rails[rail.index()];
        let has_bounds = has_bounds(facts);
        let at = self.index(channel, rail);
        let path = &mut self.paths[at];
        let was_light = is_light(path, facts);
        path.in_flight = path.in_flight.saturating_sub(1);
        let figures = &mut self.figures[rail.index()];
        if !is_done {
            path.backlog = path.backlog.saturating_sub(len);
            return self.refresh_load(channel, rail);
        }
        let (is_busy, before) = (path.in_flight > 0, path.last);
        let known = (path.rate, path.latency);
        let took = posted.age(now);
        // Before it was ever seen alone, what an empty packet took there and back.
        let sampled_pipe = || figures.sampled.map_or(0, |seen| seen.latency.0 as u32 * 2);
        let pipe = has_bounds.then(|| if known.1 > 0 { known.1 } else { sampled_pipe() });
        let rate_change = path.completed(now, len, took, is_busy, pipe);
        let (rate, latency) = (path.rate, path.latency);
        if known != (rate, latency) {
            (figures.latency, figures.bytes_per_second) = (Nanos(latency.into()), rate.bytes_per_second());
            if let Some((why, from)) = rate_change {
                let (from, to) = (from.bytes_per_second(), rate.bytes_per_second());
                figures.changed = Some(Change { at: now, why, from, to });
            }
            self.learn_latency(channel, rail);
        }
        if !was_light {
            self.refresh_load(channel, rail);
        }
        if set != NONE && len > 0 {
            let part = &mut self.parts_of_mut(set)[rail.index()];
            if part.bytes > 0 {
                part.completed(now, before);
            }
        }
    }

    /// Posts of a small message's rail, if there are fewer than `depth`.
    #[inline(always)]
    pub(crate) fn has_fewer_posts(&self, channel: u32, rail: RailId, depth: u16) -> bool {
        self.paths.get(self.index(channel, rail)).is_some_and(|path| path.in_flight < depth)
    }

    /// As [`note_posted`](Self::note_posted) and [`note_moved`](Self::note_moved), of a whole short message.
    #[inline(always)]
    pub(crate) fn note_short_posted(&mut self, now: Time, channel: u32, rail: RailId, len: u32) {
        let at = self.index(channel, rail);
        let Some(path) = self.paths.get_mut(at) else { return };
        path.stir();
        let is_faster = path.posted(now, len.into(), path.in_flight == 0);
        path.in_flight += 1;
        path.add_short(len);
        if path.in_flight >= self.light[rail.index() % RAILS_MAX] {
            self.refresh_load(channel, rail);
        }
        if is_faster {
            self.learn_latency(channel, rail);
        }
    }

    /// A short message whose post is over when it is made.
    #[inline(always)]
    pub(crate) fn note_short_taken(&mut self, now: Time, channel: u32, rail: RailId, len: u32) {
        let at = self.index(channel, rail);
        let Some(path) = self.paths.get_mut(at) else { return };
        if !path.takes_calmly(now, len) {
            self.take_short(now, channel, rail, len);
        }
    }

    #[inline(never)]
    fn take_short(&mut self, now: Time, channel: u32, rail: RailId, len: u32) {
        self.count_shorts(channel, rail);
        self.note_short_posted(now, channel, rail, len);
        self.pass(now, channel, rail, len);
        let path = self.path_mut(channel, rail);
        // Where a rail does not report the ends of most, it is measured by those that it does report.
        path.turn = 0;
        path.calm_down();
    }

    /// As [`note_completed`](Self::note_completed), of a short message: not all of them are measured.
    #[inline(always)]
    pub(crate) fn note_short_completed(
        &mut self,
        now: Time,
        (channel, rail): (u32, RailId),
        len: u32,
        posted: Time,
        status: PostStatus,
    ) {
        let at = self.index(channel, rail);
        let Some(path) = self.paths.get_mut(at) else { return };
        // Where a rail does not report the ends of most, it is measured by those that it does report.
        let is_taken = status == PostStatus::Taken;
        path.turn = if is_taken { 0 } else { path.turn };
        let (is_passed, is_done) = (is_taken || path.passes(), status != PostStatus::Failed);
        if !is_done || !is_passed {
            let posted = Stamp::of(posted);
            return self.measure_short(now, &Completed { channel, rail, len: len.into(), posted, set: NONE }, is_done);
        }
        self.pass(now, channel, rail, len);
    }

    /// A post of a short message is over that is not measured.
    #[inline(always)]
    fn pass(&mut self, now: Time, channel: u32, rail: RailId, len: u32) {
        let at = self.index(channel, rail);
        let Some(path) = self.paths.get_mut(at) else { return };
        let was_light = path.in_flight < self.light[rail.index() % RAILS_MAX];
        path.in_flight = path.in_flight.saturating_sub(1);
        path.passed(now, len.into());
        if !was_light {
            self.refresh_load(channel, rail);
        }
    }

    #[inline(never)]
    fn measure_short(&mut self, now: Time, completed: &Completed, is_done: bool) {
        let &Completed { channel, rail, .. } = completed;
        let turn = self.path(channel, rail).turn;
        self.count_shorts(channel, rail);
        self.note_completed(now, completed, is_done);
        self.path_mut(channel, rail).turn = turn;
    }

    /// The stripes of a set are all complete: weights and estimates are updated from their times.
    pub(crate) fn finish_stripes(&mut self, channel: u32, set: u32) {
        self.stripe_sets.at_mut(set).is_finished = true;
        self.reweigh(channel, set);
        if self.stripe_sets.at(set).is_estimated {
            self.peer_mut(channel).is_steady = !self.stripe_sets.at(set).is_rebalanced;
            self.learn_contention(channel, set);
        }
        let row = self.row(set);
        for (part, figures) in self.parts[row].iter().zip(&mut *self.figures).filter(|(part, _)| part.bytes > 0) {
            (figures.stripe_bytes, figures.stripe_time) = (part.bytes, part.time());
        }
    }

    /// Whether any rail has posts.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn has_posts(&self) -> bool {
        self.paths.iter().any(|path| path.in_flight > 0)
    }

    /// A rail has answered its sampling (P-12): the path begins with the sampled rate, which later
    /// measurements lower or raise (P-1).
    pub(crate) fn begin_path(&mut self, channel: u32, rail: RailId) {
        if let Some(sampled) = self.figures[rail.index()].sampled {
            let path = self.path_mut(channel, rail);
            if path.rate == Rate::NONE && sampled.bytes_per_second > 0 {
                path.rate = Rate::from_bytes_per_second(sampled.bytes_per_second);
                // Its pending work may last longer than estimated.
                self.refresh_load(channel, rail);
            }
        }
        self.learn_latency(channel, rail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 16 * 1024;

    /// P-2: a stripe's time begins when the rail has completed what was posted before.
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
