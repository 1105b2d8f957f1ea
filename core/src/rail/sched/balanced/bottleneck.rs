//! Contending rails (P-14): the contention penalty of a rail while others carry parts of the same message,
//! learned from how the parts end.

use crate::rail::rate::{Rate, scale};

/// Parts in which the rate of a rail together with others is reckoned against its rate alone.
const WHOLE: u64 = 1 << 10;

/// More than four rails that share a bottleneck are rare: a penalty above this is not attributed to
/// contention.
const CONTENTION_MAX: u16 = (WHOLE * 3 / 4) as u16;

/// The rate of a rail while others move parts of the same message, given its contention penalty in parts of
/// [`WHOLE`]; above 0, where its rate is.
pub(crate) fn contended_rate(rate: Rate, penalty: u16) -> Rate {
    let left = u64::from(rate.0) * (WHOLE - u64::from(penalty)) / WHOLE;
    Rate((left as u32).max(rate.0.min(1)))
}

/// The rate of a busy rail beside others. A penalty above [`CONTENTION_MAX`] may also mean that the rail has
/// become slow, which is measured when it has more to do than one post.
pub(crate) fn beside_others(rate: Rate, penalty: u16) -> Rate {
    if penalty > CONTENTION_MAX { rate } else { contended_rate(rate, penalty) }
}

/// What a rail reached of the rate that it has alone with a part that took so long, in parts of [`WHOLE`]
/// squared; at least 1.
pub(crate) fn reached(rate: Rate, bytes: u64, latency_ns: u32, took_ns: u64) -> u64 {
    let moving = took_ns - u64::from(latency_ns).min(took_ns / 2);
    scale(rate.time_ns(bytes), WHOLE * WHOLE, moving.max(1)).max(1)
}

/// The new penalty of a rail that reached so much with its part, where the best one reached `most`. A delay
/// of all parts is ignored: completions may have been noticed late.
pub(crate) fn follow(penalty: u16, reached: u64, most: u64) -> u16 {
    let seen = WHOLE - scale(reached, WHOLE, most).min(WHOLE);
    // A rail that has all but stopped is not waited for again.
    let is_jump = seen > u64::from(penalty) + WHOLE / 2;
    let penalty = if is_jump { seen } else { (u64::from(penalty) + seen) / 2 };
    penalty.min(WHOLE - 1) as u16
}

/// The new penalty of a rail without a part: there is no measurement, so the old one fades.
pub(crate) const fn fade(penalty: u16) -> u16 {
    penalty - penalty.div_ceil(64)
}
