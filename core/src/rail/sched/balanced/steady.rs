//! Cuts that stay as they are (P-11): parts of messages from the same buffer begin where they began before,
//! and its registrations stay useful.

use crate::api::config::RAILS_MAX;
use crate::ids::RailId;
use crate::rail::plan::split::{Plan, RailState};
use crate::rail::sched::Stripe;
use crate::rail::sched::striping::weighted;
use crate::rail::weights::WEIGHT_TOTAL;

/// A cut is kept as long as it is predicted to end no later than the best one by so much, in hundredths.
const KEEP_PERCENT: u64 = 2;

/// Cuts a message of `bytes` as the last one was cut, where that is as good as the new plan to within
/// [`KEEP_PERCENT`]; `false`: it is not, and `stripes` are as before. `rail` gives the share of a rail in the
/// last cut, and its state.
#[inline]
pub(crate) fn keep(bytes: u64, plan: &Plan, rail: impl Fn(RailId) -> (u32, RailState), stripes: &mut [Stripe]) -> bool {
    let mut shares = [0; RAILS_MAX];
    let mut sum = 0;
    let mut latest = 0;
    for chunk in &plan.chunks {
        let (share, state) = rail(RailId(chunk.rail));
        if share == 0 || state.backlog_bytes > 0 {
            return false;
        }
        let part = (u128::from(bytes) * u128::from(share) / u128::from(WEIGHT_TOTAL)) as u64;
        if part < state.chunk_bytes_min.into() {
            return false;
        }
        latest = state.contended_ns(part).max(latest);
        shares[usize::from(chunk.rail)] = share;
        sum += share;
    }
    if plan.chunks.len() < 2 || sum != WEIGHT_TOTAL || latest > plan.finish_ns + plan.finish_ns / 100 * KEEP_PERCENT {
        return false;
    }
    let mask = plan.chunks.iter().fold(0, |mask, chunk| mask | 1 << chunk.rail);
    weighted(bytes, mask, &shares, stripes);
    true
}

/// The shares of rails in a plan for `bytes`, rail by rail. By running sums, so that all together are the
/// total.
#[inline]
pub(crate) fn shares(bytes: u64, plan: &Plan, rails: u8) -> impl Iterator<Item = (RailId, u32)> {
    let (mut at, mut given) = (0, 0);
    (0..rails).map(move |rail| {
        let share = plan.chunks.iter().find(|chunk| chunk.rail == rail).map_or(0, |chunk| {
            at += chunk.bytes;
            let until = (u128::from(at) * u128::from(WEIGHT_TOTAL) / u128::from(bytes.max(1))) as u32;
            until - core::mem::replace(&mut given, until)
        });
        (RailId(rail), share)
    })
}
