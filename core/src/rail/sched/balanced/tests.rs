//! What `balanced` decides, without an endpoint.

use super::rebalance::{Parts, Rebalance, rebalance};
use super::*;
use crate::api::config::RAILS_MAX;
use crate::rail::plan::split::{Plan, RailState, cut};
use crate::rail::rate::Rate;
use crate::rail::sched::Stripe;
use crate::time::{Nanos, Time};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const MB: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

fn rate(megabytes: u64) -> Rate {
    Rate::from_bytes_per_second(megabytes * MB)
}

fn state(megabytes: u64) -> RailState {
    let rate = rate(megabytes);
    RailState {
        rate,
        contended_rate: rate,
        latency_ns: 1_000,
        backlog_bytes: 0,
        chunk_ns: CHUNK_NS,
        chunk_bytes_min: 4096,
    }
}

/// P-9: of the rails with room the one that delivers first, of equals the first; with one rail no estimate is
/// used.
#[test]
fn a_packet_takes_the_rail_that_delivers_it_first() {
    let times = [30, 20, 10, 10];
    let pick = |up, room, lowest_latency| {
        earliest(Candidates { up, room }, || lowest_latency, |rail| times[usize::from(rail.0)])
    };
    assert_eq!(pick(0b1111, 0b1111, None), Some(RailId(2)));
    assert_eq!(pick(0b1111, 0b1011, None), Some(RailId(3)));
    assert_eq!(pick(0b0011, 0b1111, None), Some(RailId(1)));
    assert_eq!(pick(0b0001, 0b1111, Some(RailId(3))), Some(RailId(0)));
    assert_eq!(pick(0b1111, 0b1111, Some(RailId(1))), Some(RailId(1)));
    assert_eq!(pick(0b1111, 0, None), None);
}

/// P-14: a penalty follows by half, at once if it is over half more; the best rail has none; it fades to zero
/// without measurements.
#[test]
fn contention_penalty_follows_the_measured_times() {
    let bytes = MIB;
    let alone = rate(1000).time_ns(bytes);
    let whole = bottleneck::reached(rate(1000), bytes, 0, alone);
    let third = bottleneck::reached(rate(1000), bytes, 0, alone * 3 / 2);
    assert_eq!(bottleneck::follow(0, whole, whole), 0);
    let once = bottleneck::follow(0, third, whole);
    assert!(once.abs_diff(1024 / 6) <= 1, "{once}");
    assert!(bottleneck::follow(once, third, whole).abs_diff(1024 / 4) <= 2);
    assert_eq!(bottleneck::follow(once, whole, whole), once / 2);
    let stopped = bottleneck::reached(rate(1000), bytes, 0, alone * 100);
    assert!(bottleneck::follow(0, stopped, whole) > 1000);
    let mut penalty = 512;
    for _ in 0..600 {
        penalty = bottleneck::fade(penalty);
    }
    assert_eq!(penalty, 0);
    assert_eq!(bottleneck::contended_rate(rate(1000), 512).0, rate(1000).0 / 2);
    assert_eq!(bottleneck::beside_others(rate(1000), 512).0, rate(1000).0 / 2);
    assert_eq!(bottleneck::beside_others(rate(1000), 1000), rate(1000));
}

/// P-11: tries cost at most one part in 128 of the messages' time, and no more than 50 ms at once.
#[test]
fn time_for_tries_is_saved_up() {
    assert_eq!(explore::save(10, 128_000), 1_010);
    assert_eq!(explore::save(49_999_999, u64::MAX), 50_000_000);
    assert!(
        !explore::is_stale(Time(1_999_999), Time(1_000_000)) && explore::is_stale(Time(2_000_000), Time(1_000_000))
    );
    assert_eq!((1..=64).filter(|count| explore::is_turn(*count)).count(), 4);
    assert_eq!(explore::part_bytes(false, 0), 4096);
    assert_eq!(explore::part_bytes(false, 4096), 8192);
    assert_eq!(explore::part_bytes(true, 4096), 256 * 1024);
}

fn planned(bytes: u64, rails: &[RailState]) -> Plan {
    let mut plan = Plan::default();
    assert!(cut(bytes, (1 << rails.len()) - 1, rails, &mut plan));
    plan
}

/// P-11: the try is the end of the largest part, if this stays the larger one.
#[test]
fn a_try_gets_the_end_of_the_largest_part() {
    let plan = planned(MIB, &[state(1000), state(3000)]);
    let mut stripes = vec![Stripe::default(); 3];
    for chunk in &plan.chunks {
        stripes[usize::from(chunk.rail)] = Stripe { next: chunk.from, end: chunk.from + chunk.bytes };
    }
    let before = stripes.clone();
    assert!(!explore::give_part(stripes[1].end - stripes[1].next, RailId(2), &plan, &mut stripes));
    assert_eq!(stripes, before);
    assert!(explore::give_part(4096, RailId(2), &plan, &mut stripes));
    assert_eq!(stripes[2], Stripe { next: MIB - 4096, end: MIB });
    assert_eq!((stripes[0], stripes[1].end), (before[0], MIB - 4096));
}

/// P-11: the shares of a cut sum to the total, and cut the next message alike while nothing has changed by
/// more than 2 %.
#[test]
fn split_is_reused_while_it_remains_nearly_optimal() {
    let rails = [state(1000), state(3000)];
    let plan = planned(MIB, &rails);
    let shares: Vec<u32> = steady::shares(MIB, &plan, 2).map(|(_, share)| share).collect();
    assert_eq!(shares.iter().sum::<u32>(), 65_536);
    let keep = |rails: &[RailState; 2], shares: &[u32]| {
        let plan = planned(2 * MIB, rails);
        let mut stripes = vec![Stripe::default(); RAILS_MAX];
        let last = |rail: RailId| (shares[usize::from(rail.0)], rails[usize::from(rail.0)]);
        steady::keep(2 * MIB, &plan, last, &mut stripes).then(|| stripes[0].end)
    };
    let first = keep(&rails, &shares).expect("nothing has changed");
    assert!(first.abs_diff(2 * plan.chunks[0].bytes) <= 128);
    assert_eq!(keep(&[state(1010), state(3000)], &shares), Some(first));
    assert_eq!(keep(&[state(1500), state(3000)], &shares), None);
    assert_eq!(keep(&rails, &[0, 65_536]), None);
    assert_eq!(keep(&[RailState { backlog_bytes: 1, ..rails[0] }, rails[1]], &shares), None);
}

/// P-15: a rail is left out while the message completes earlier without its registration; the plan over the
/// others covers all of it, and names the rails left out.
#[test]
fn rail_that_does_not_repay_its_registration_is_excluded() {
    let rails = [state(1000), state(1000), state(1000)];
    let plan_of = |costs: [u64; 3]| {
        let mut plan = Plan::default();
        let used = worth::worth(MIB, 0b111, &rails, |rail, _| costs[usize::from(rail.0)], &mut plan);
        assert_eq!(plan.chunks.iter().map(|chunk| chunk.bytes).sum::<u64>(), MIB);
        (used.unwrap(), plan.unprofitable)
    };
    assert_eq!(plan_of([0; 3]), (0b111, 0));
    assert_eq!(plan_of([1_000; 3]), (0b111, 0));
    assert_eq!(plan_of([0, 10_000_000, 0]), (0b101, 0b010));
    assert_eq!(plan_of([0, 10_000_000, 20_000_000]), (0b001, 0b110));
    let unknown = [state(1000), RailState::default()];
    assert_eq!(worth::worth(MIB, 0b10, &unknown, |_, _| 0, &mut Plan::default()), None);
    assert!(worth::is_cheap(100, 6_400) && !worth::is_cheap(101, 6_400));
}

/// Rails with the remaining bytes of their parts, and their rates.
struct Line(Vec<(u64, Rate)>);

impl Parts for Line {
    fn left(&self, rail: RailId) -> u64 {
        self.0[usize::from(rail.0)].0
    }

    fn rate(&self, rail: RailId) -> Rate {
        self.0[usize::from(rail.0)].1
    }

    fn rate_of_helper(&self, rail: RailId) -> Rate {
        self.rate(rail)
    }

    fn through_ns(&self, _: RailId, rate: Rate, bytes: u64) -> u64 {
        rate.time_ns(bytes).saturating_add(Nanos::from_micros(1).0)
    }

    fn registering_ns(&self, _: RailId, _: u64) -> u64 {
        0
    }

    fn part_bytes_min(&self, _: RailId) -> u64 {
        PART_BYTES_MIN
    }
}

/// P-10: the part that ends last gives so much that both end together; half of it, where its rail was not
/// measured; nothing where that is less than a minimal part; and never again where nothing is left.
#[test]
fn a_rail_that_is_through_takes_over_from_the_last() {
    let plan_of = |rails: &[(u64, u64)], helpers| {
        let line =
            rails.iter().map(|&(left, megabytes)| (left, if megabytes == 0 { Rate::NONE } else { rate(megabytes) }));
        rebalance(&Line(line.collect()), (1 << rails.len()) - 1, helpers)
    };
    let take = |from, bytes| Rebalance::Take { from: RailId(from), to: RailId(0), bytes };
    let Rebalance::Take { from: RailId(2), to: RailId(0), bytes } = plan_of(&[(0, 1000), (MIB, 1000), (MIB, 500)], 1)
    else {
        panic!("the slow one gives")
    };
    // In the time that it saves the other one, less the cost of a part.
    assert!((MIB * 2 / 3 - 2_000..=MIB * 2 / 3).contains(&bytes), "{bytes}");
    assert_eq!(plan_of(&[(0, 1000), (MIB, 0)], 1), take(1, MIB / 2));
    assert_eq!(plan_of(&[(1, 1000), (MIB, 1000)], 1), Rebalance::NotNow);
    assert_eq!(plan_of(&[(0, 0), (MIB, 1000)], 1), Rebalance::NotNow);
    assert_eq!(plan_of(&[(0, 1000), (PART_BYTES_MIN, 1000)], 1), Rebalance::NotNow);
    assert_eq!(plan_of(&[(0, 1000), (PART_BYTES_MIN - 1, 1000)], 1), Rebalance::Never);
}

proptest! {
    /// P-10: what moves was left of the part, is aligned, and large enough.
    #[test]
    fn rebalance_moves_no_more_than_the_remaining_bytes(
        rails in proptest::collection::vec((prop_oneof![Just(0), 0..1u64 << 40], 0u64..100_000), 2..9), helpers in 0u64..512,
    ) {
        let helpers = helpers & ((1 << rails.len()) - 1);
        let line = Line(rails.iter().map(|&(left, megabytes)| (left, rate(megabytes))).collect());
        if let Rebalance::Take { from, to, bytes } = rebalance(&line, (1 << rails.len()) - 1, helpers) {
            prop_assert!(bytes <= line.left(from) && bytes >= PART_BYTES_MIN && bytes.is_multiple_of(64));
            prop_assert!(line.left(to) == 0 && helpers >> to.0 & 1 == 1 && from != to);
        }
    }
}
