//! Rails that hold each other up (P-14): what a rail lacks of its own rate while others carry parts of the
//! same message, learned from how the parts end.

use crate::rail::rate::{Rate, scale};

/// Parts in which the rate of a rail together with others is reckoned against its rate alone.
const WHOLE: u64 = 1 << 10;

/// More rails than four that share a bottleneck are rare: what a rail lacks more than this is not put down to
/// others.
const CONTENTION_MAX: u16 = (WHOLE * 3 / 4) as u16;

/// What a rail of a rate moves while others move parts of the same message, where it was seen to lack so much
/// of it then, in parts of [`WHOLE`]; something, where it moves anything.
pub(crate) fn together(rate: Rate, lacks: u16) -> Rate {
    let left = u64::from(rate.0) * (WHOLE - u64::from(lacks)) / WHOLE;
    Rate((left as u32).max(rate.0.min(1)))
}

/// The rate of a busy rail beside others. One that lacks more than [`CONTENTION_MAX`] may as well have become
/// slow, which is measured when it has more to do than one post.
pub(crate) fn beside_others(rate: Rate, lacks: u16) -> Rate {
    if lacks > CONTENTION_MAX { rate } else { together(rate, lacks) }
}

/// What a rail reached of the rate that it has alone with a part that took so long, in parts of [`WHOLE`]
/// squared; at least 1.
pub(crate) fn reached(rate: Rate, bytes: u64, latency_ns: u32, took_ns: u64) -> u64 {
    let moving = took_ns - u64::from(latency_ns).min(took_ns / 2);
    scale(rate.time_ns(bytes), WHOLE * WHOLE, moving.max(1)).max(1)
}

/// What a rail lacks from now on that reached so much with its part, where the best one reached `most`. What
/// all took longer is no news: completions may have been noticed late.
pub(crate) fn follow(lacks: u16, reached: u64, most: u64) -> u16 {
    let seen = WHOLE - scale(reached, WHOLE, most).min(WHOLE);
    // A rail that has all but stopped is not waited for again.
    let is_jump = seen > u64::from(lacks) + WHOLE / 2;
    let lacks = if is_jump { seen } else { (u64::from(lacks) + seen) / 2 };
    lacks.min(WHOLE - 1) as u16
}

/// What a rail lacks from now on that had no part: nothing is seen of it, so what was seen fades.
pub(crate) const fn fade(lacks: u16) -> u16 {
    lacks - lacks.div_ceil(64)
}
