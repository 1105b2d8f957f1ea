//! Late re-cuts: a rail that has run out of its part of a transfer takes over the end of the part that will
//! be through last (P-10). However wrong the plan was, the rails end within a segment of each other.
//!
//! Only what was not posted yet can move. A part stays one range, so a rail takes over only when it has
//! nothing left of its own. Remote writes end with one FIN on each rail used, and every FIN says how many
//! there are: so a rail whose FIN is out has left, and one that was not planned may join only as long
//! as none is out.

use super::balanced::CHUNK_NS;
use super::measure::Part;
use super::op::Phase;
use super::{Endpoint, Registration};
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::rate::{Rate, scale};
use crate::rail::sched::balanced::PART_BYTES_MIN;
use crate::rail::sched::{CUT_ALIGN, Stripe};
use crate::time::Time;

impl Endpoint<'_> {
    /// When the peer will have all that a rail has, and `bytes` more, at some rate; in nanoseconds from now.
    fn through_ns(&self, now: Time, channel: u32, rail: RailId, (rate, bytes): (Rate, u64)) -> u64 {
        let path = &self.t.subs[self.t.sub_index(channel, rail)].path;
        let moving = rate.time_ns(path.remaining(now, rate) + bytes);
        moving.saturating_add(self.believed_latency(channel, rail).into())
    }

    /// Of the rails that may carry more of a transfer one that is to be fed and has nothing left of its part
    /// takes over from another, where that pays more than [`CHUNK_NS`].
    pub(super) fn recut(&mut self, now: Time, channel: u32, op: u32) {
        let slot = self.t.ops.at(op);
        let (set, writing) = (slot.stripes, slot.phase() == Phase::Writing);
        let fins_out = u32::from(slot.fins_expected) > slot.fins_due.count_ones();
        let fins_due = slot.fins_due;
        let feed = self.t.channels.at(channel).rooms.feed;
        let mut helpers = self.t.stripe_sets.at(set).helpers & feed;
        if writing && fins_out {
            helpers &= fins_due;
        }
        for rail in rails_of(helpers) {
            let Stripe { next, end } = self.t.stripes_of(set)[usize::from(rail.0)];
            if next < end {
                helpers &= !(1 << rail.0);
            }
        }
        if helpers == 0 {
            return;
        }
        // Who will be through last?
        let mut last: Option<(u64, RailId, u64)> = None;
        let mut left = false;
        for rail in rails_of(self.t.stripe_sets.at(set).pending) {
            let Stripe { next, end } = self.t.stripes_of(set)[usize::from(rail.0)];
            let rest = end - next;
            if rest < PART_BYTES_MIN {
                continue;
            }
            left = true;
            let rate = self.t.sub(channel, rail).path.rate;
            let ends = self.through_ns(now, channel, rail, (rate, rest));
            if last.is_none_or(|(latest, ..)| ends > latest) {
                last = Some((ends, rail, rest));
            }
        }
        if !left {
            // Parts only get shorter: nobody will have anything to give.
            self.t.stripe_sets.at_mut(set).helpers = 0;
        }
        let Some((latest, victim, rest)) = last else { return };
        let rate = self.t.sub(channel, victim).path.rate;
        let planned = self.t.stripe_sets.at(set).planned;
        let mut best: Option<(u64, RailId, Rate)> = None;
        for rail in rails_of(helpers) {
            // A rail that works on the part that the plan gave it is as fast as the plan reckoned: else what
            // was taken from rails that hold each other up would go back to them at once.
            let path = &self.t.sub(channel, rail).path;
            let rate = if planned >> rail.0 & 1 == 1 { path.rate_beside_others() } else { path.rate };
            if rate == Rate::NONE {
                continue;
            }
            // A rail that has carried nothing of it would have to register its part (P-15).
            let is_new = self.t.parts_of(set)[usize::from(rail.0)].bytes == 0;
            let registering = if is_new { self.registering_ns(rail, Registration::Own, rest / 2) } else { 0 };
            let ends = self.through_ns(now, channel, rail, (rate, 0)).saturating_add(u64::from(CHUNK_NS) + registering);
            if ends < latest && best.is_none_or(|(soonest, ..)| ends < soonest) {
                best = Some((ends, rail, rate));
            }
        }
        let Some((soonest, thief, thief_rate)) = best else { return };
        let bytes = if rate == Rate::NONE {
            // Nothing of it has come through yet: half of what is left is a fair guess.
            rest / 2
        } else {
            // Both end together: the thief has moved in its time what the victim has not.
            let both = u64::from(rate.0) + u64::from(thief_rate.0);
            scale(rate.bytes_in(latest - soonest), thief_rate.0.into(), both).min(rest)
        };
        let bytes = bytes & !(CUT_ALIGN - 1);
        if bytes >= self.part_bytes_min(channel, thief) {
            self.take_over(channel, op, victim, thief, bytes);
        }
    }

    /// The last `bytes` of `victim`'s part become `thief`'s.
    pub(super) fn take_over(&mut self, channel: u32, op: u32, victim: RailId, thief: RailId, bytes: u64) {
        let set = self.t.ops.at(op).stripes;
        let stripes = self.t.stripes_of(set);
        let end = stripes[usize::from(victim.0)].end;
        let cut = end - bytes;
        // The beginning of a part lies on a multiple of the alignment, and so does its end, but for the
        // message's.
        let cut = cut.next_multiple_of(CUT_ALIGN).min(end);
        stripes[usize::from(victim.0)].end = cut;
        let is_empty = stripes[usize::from(victim.0)].next >= cut;
        stripes[usize::from(thief.0)] = Stripe { next: cut, end };
        let bytes = end - cut;
        let parts = self.t.parts_of(set);
        parts[usize::from(victim.0)].bytes -= bytes;
        let mine = &mut parts[usize::from(thief.0)];
        if mine.bytes == 0 {
            let written = mine.written;
            *mine = Part::of(thief, bytes, 0);
            mine.written = written;
        } else {
            mine.bytes += bytes;
        }
        let given = &mut self.t.sub(channel, victim).path;
        given.planned = given.planned.saturating_sub(bytes);
        self.t.sub(channel, thief).path.planned += bytes;
        self.t.stripe_sets.at_mut(set).pending |= 1 << thief.0;
        let slot = self.t.ops.at_mut(op);
        if is_empty && slot.fins_due >> victim.0 & 1 == 0 {
            self.t.stripe_sets.at_mut(set).pending &= !(1 << victim.0);
        }
        let slot = self.t.ops.at_mut(op);
        if slot.phase() == Phase::Writing && slot.fins_due >> thief.0 & 1 == 0 {
            slot.fins_due |= 1 << thief.0;
            slot.fins_expected += 1;
        }
        self.stats.recuts += 1;
    }
}
