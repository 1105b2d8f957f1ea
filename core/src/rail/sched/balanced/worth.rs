//! Rails with parts that are worth registering memory for (P-15).

use crate::ids::RailId;
use crate::rail::plan::split::{Chunk, Plan, RailState, cut};
use crate::rail::rate::scale;

/// A rail that the plan leaves out still provides a key where this costs no more than one part in 2^6 of the
/// message's time: the side that moves the message may have better estimates.
const CHEAP_SHIFT: u32 = 6;

/// A rail less has to gain one part in 2^6 of the time.
const GAIN_SHIFT: u32 = 6;

/// Costs are compared in parts of this for each byte.
const PER_BYTE: u64 = 1 << 20;

/// The rails of a mask with parts that are worth their registrations, and the plan over them. Starting from
/// the best cut, the rail with the highest registration cost per byte is left out as long as the message
/// completes earlier without it, registrations included. `cost` returns a rail's cost of registering a part
/// of so many bytes, in nanoseconds. `None`: the estimates don't suffice.
pub(crate) fn worth(
    bytes: u64,
    mut mask: u64,
    states: &[RailState],
    cost: impl Fn(RailId, u64) -> u64,
    plan: &mut Plan,
) -> Option<u64> {
    if !cut(bytes, mask, states, plan) {
        return None;
    }
    let candidates = mask;
    let used = |plan: &Plan| plan.chunks.iter().fold(0u64, |used, chunk| used | 1 << chunk.rail);
    let cost = |chunk: &Chunk| cost(RailId(chunk.rail), chunk.bytes);
    let total = |plan: &Plan| plan.chunks.iter().map(cost).fold(plan.finish_ns, u64::saturating_add);
    let mut takes_ns = total(plan);
    let mut other = Plan::default();
    while plan.chunks.len() > 1 {
        let dearness = |chunk: &&Chunk| scale(cost(chunk), PER_BYTE, chunk.bytes.max(1));
        let Some(dearest) = plan.chunks.iter().max_by_key(dearness) else { break };
        if cost(dearest) == 0 {
            break;
        }
        let without = mask & !(1 << dearest.rail);
        if !cut(bytes, without, states, &mut other) {
            break;
        }
        let then_ns = total(&other);
        if then_ns.saturating_add(takes_ns >> GAIN_SHIFT) >= takes_ns {
            break;
        }
        takes_ns = then_ns;
        mask = without;
        core::mem::swap(plan, &mut other);
    }
    plan.unprofitable = candidates & !mask;
    Some(used(plan))
}

/// Whether a registration costs so little of a message's time that the rail provides a key anyway.
pub(crate) const fn is_cheap(cost_ns: u64, finish_ns: u64) -> bool {
    cost_ns <= finish_ns >> CHEAP_SHIFT
}
