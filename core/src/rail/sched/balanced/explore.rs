//! Rails that a plan leaves out get something now and then, in time that was saved up for it (P-11): so a
//! rail that has recovered is found again.

use crate::ids::RailId;
use crate::rail::plan::split::Plan;
use crate::rail::sched::{CUT_ALIGN, Stripe};
use crate::time::{Nanos, Time};

/// A rail that a plan leaves out is tried again when it was last seen so long ago.
const STALE: Nanos = Nanos::from_millis(1);

/// Trying costs at most one part in 2^7 of the time of the messages that were cut.
const EXPLORE_SHIFT: u32 = 7;

/// Of so many packets that are not cut, one may be such a try.
pub(crate) const EXPLORE_EVERY: u16 = 16;

/// What may be saved up for one try, in nanoseconds.
const CREDIT_MAX: u32 = 50_000_000;

/// An exploring part: the least that gives a lower bound of the rate (P-1).
const EXPLORE_BYTES: u64 = 4 * 1024;

/// The same on rails that take bytes before they move them: what they buffer is no measurement.
const EXPLORE_BYTES_BUFFERED: u64 = 256 * 1024;

/// Whether a packet may explore, by the number of packets since the last that did.
#[inline(always)]
pub(crate) const fn is_turn(since_explored: u16) -> bool {
    since_explored.is_multiple_of(EXPLORE_EVERY)
}

/// The exploration budget saved with the part of `time_ns` that exploration may cost, in nanoseconds.
pub(crate) fn save(saved: u32, time_ns: u64) -> u32 {
    let more = (time_ns >> EXPLORE_SHIFT).min(CREDIT_MAX.into()) as u32;
    (saved + more).min(CREDIT_MAX)
}

/// Whether nothing was received for a while from a rail, last at `last`.
pub(crate) fn is_stale(now: Time, last: Time) -> bool {
    now - last >= STALE
}

/// The bytes of a part that tries a rail: more than the processor would move.
pub(crate) fn part_bytes(is_buffered: bool, pio_bytes_max: u32) -> u64 {
    let bytes = if is_buffered { EXPLORE_BYTES_BUFFERED } else { EXPLORE_BYTES };
    bytes.max(u64::from(pio_bytes_max + 1).next_multiple_of(EXPLORE_BYTES))
}

/// Gives a rail that the plan leaves out the end of the largest part, where this is large enough to go on
/// being one; `false`: it is not.
pub(crate) fn give_part(bytes: u64, rail: RailId, plan: &Plan, stripes: &mut [Stripe]) -> bool {
    let Some(chunk) = plan.chunks.iter().max_by_key(|chunk| chunk.bytes) else { return false };
    let Stripe { next, end } = stripes[usize::from(chunk.rail)];
    if end - next < 4 * bytes {
        return false;
    }
    let from = (end - bytes) & !(CUT_ALIGN - 1);
    stripes[usize::from(chunk.rail)].end = from;
    stripes[rail.index()] = Stripe { next: from, end };
    true
}
