//! Rebalancing: a rail that has run out of its part of a transfer takes over the end of the part that will be
//! through last (P-10). However wrong the plan was, the rails end within a segment of each other.
//!
//! Only unposted bytes can move. A part stays one range, so a rail takes over only when its own part is
//! complete.

use super::{CHUNK_NS, PART_BYTES_MIN};
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::rate::{Rate, scale};
use crate::rail::sched::CUT_ALIGN;

/// The state of a transfer's rails.
pub(crate) trait Parts {
    /// Bytes of the part that was cut for a rail which are not posted yet.
    fn left(&self, rail: RailId) -> u64;

    /// The measured rate of a rail; [`Rate::NONE`]: not measured.
    fn rate(&self, rail: RailId) -> Rate;

    /// The rate of a rail that is to take over.
    fn rate_of_helper(&self, rail: RailId) -> Rate;

    /// When the peer will have all that a rail has, and `bytes` more, at some rate; in nanoseconds from now.
    fn through_ns(&self, rail: RailId, rate: Rate, bytes: u64) -> u64;

    /// Expected cost of registering `bytes` of the transfer with a rail that has carried nothing of it yet
    /// (P-15).
    fn registering_ns(&self, rail: RailId, bytes: u64) -> u64;

    /// The smallest part that a rail is given.
    fn part_bytes_min(&self, rail: RailId) -> u64;
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rebalance {
    /// Nothing, now or later: parts only get shorter, and no rail will have anything to give.
    Never,
    /// Nothing now.
    NotNow,
    /// The last `bytes` of the part of `from` go to `to`.
    Take { from: RailId, to: RailId, bytes: u64 },
}

/// Of the rails of `helpers` one that has nothing left of its part takes over from one of `pending`, where
/// that pays more than [`CHUNK_NS`].
#[inline(always)]
pub(crate) fn rebalance(parts: &impl Parts, pending: u64, helpers: u64) -> Rebalance {
    let free = rails_of(helpers).filter(|rail| parts.left(*rail) == 0).fold(0u64, |mask, rail| mask | 1 << rail.0);
    if free == 0 {
        return Rebalance::NotNow;
    }
    // Which rail will complete last?
    let mut last: Option<(u64, RailId, u64)> = None;
    for rail in rails_of(pending) {
        let rest = parts.left(rail);
        if rest < PART_BYTES_MIN {
            continue;
        }
        let ends = parts.through_ns(rail, parts.rate(rail), rest);
        if last.is_none_or(|(latest, ..)| ends > latest) {
            last = Some((ends, rail, rest));
        }
    }
    let Some((latest, from, rest)) = last else { return Rebalance::Never };
    let mut best: Option<(u64, RailId, Rate)> = None;
    for rail in rails_of(free) {
        let rate = parts.rate_of_helper(rail);
        if rate == Rate::NONE {
            continue;
        }
        let beside = u64::from(CHUNK_NS) + parts.registering_ns(rail, rest / 2);
        let ends = parts.through_ns(rail, rate, 0).saturating_add(beside);
        if ends < latest && best.is_none_or(|(earliest, ..)| ends < earliest) {
            best = Some((ends, rail, rate));
        }
    }
    let Some((earliest, to, helper_rate)) = best else { return Rebalance::NotNow };
    let rate = parts.rate(from);
    let bytes = if rate == Rate::NONE {
        // No completion for it yet: half of the rest is a fair guess.
        rest / 2
    } else {
        // Both end together: the one has moved in its time what the other has not.
        let both = u64::from(rate.0) + u64::from(helper_rate.0);
        scale(rate.bytes_in(latest - earliest), helper_rate.0.into(), both).min(rest)
    };
    let bytes = bytes & !(CUT_ALIGN - 1);
    if bytes >= parts.part_bytes_min(to) { Rebalance::Take { from, to, bytes } } else { Rebalance::NotNow }
}
