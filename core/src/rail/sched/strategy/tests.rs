//! What strategies decide, without an endpoint.

use crate::api::config::Policy;
use crate::ids::RailId;
use crate::rail::rate::Rate;
use crate::rail::sched::{Candidates, Costs, Nic, Stripe, Turn, View, Whole, of};
use crate::time::Nanos;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// Myri-10G and Quadrics (newmadeleine-2007, 3.1), with posts.
fn paper(posts: [u16; 2]) -> [Nic; 2] {
    let nic = |posts, latency_ns, megabytes: u64| Nic {
        posts,
        latency_ns,
        rate: Rate::from_bytes_per_second(megabytes * 1_000_000),
        pio_bytes_max: 8192,
    };
    [nic(posts[0], 2_800, 1200), nic(posts[1], 1_700, 850)]
}

const STRATEGIES: [Policy; 4] = [Policy::Greedy, Policy::Aggregate, Policy::Split, Policy::NewMadeleine];

fn pick(strategy: Policy, nics: &[Nic], idle: u64) -> Option<RailId> {
    let up = (1 << nics.len()) - 1;
    let view = View {
        rails: Candidates { up, room: up },
        idle,
        lowest_latency: None,
        nic: &|rail| nics[usize::from(rail.0)],
        delivery_ns: &|_| 0,
        bind: RailId(0),
        weights: &[],
        window_messages: 1,
    };
    of(strategy).pick(&view, &mut Turn::default())
}

fn cut(strategy: Policy, nics: &[Nic], idle: u64, bytes: u64) -> Vec<u64> {
    let mut stripes = vec![Stripe::default(); nics.len()];
    let whole = Whole { bytes, rails: idle, weights: &[], nic: &|rail| nics[usize::from(rail.0)] };
    of(strategy).cut(&whole, &mut stripes);
    stripes.iter().map(|stripe| stripe.end - stripe.next).collect()
}

/// Which NIC carries the next packet: the idlest, or the one of the lowest latency and no other.
#[test]
fn picks() {
    let pick = |strategy, posts, idle| pick(strategy, &paper(posts), idle).map(|rail| rail.0);
    for greedy in [Policy::Greedy, Policy::Split] {
        assert_eq!(pick(greedy, [0, 0], 0b11), Some(0));
        assert_eq!(pick(greedy, [1, 0], 0b11), Some(1));
        assert_eq!(pick(greedy, [1, 2], 0b01), Some(0));
        assert_eq!(pick(greedy, [2, 2], 0), None);
    }
    for lowest in [Policy::Aggregate, Policy::NewMadeleine] {
        assert_eq!(pick(lowest, [0, 1], 0b11), Some(1));
        assert_eq!(pick(lowest, [0, 2], 0b01), None);
    }
}

/// Messages go together as long as a packet saved is worth more than the copies.
#[test]
fn copies_are_weighed_against_packets() {
    let copy = Rate::from_bytes_per_second(1_000_000_000);
    let costs = Costs { packet: Nanos(1_000), copy, copies: 1 };
    let aggregate_len = |costs, lens: &[u32]| of(Policy::NewMadeleine).aggregate_len(&costs, lens);
    assert_eq!(aggregate_len(costs, &[]), 1);
    assert_eq!(aggregate_len(costs, &[8]), 1);
    assert_eq!(aggregate_len(costs, &[8; 15]), 15);
    assert_eq!(aggregate_len(costs, &[400, 400, 400]), 3);
    // 1,000 bytes cost as much as a packet.
    assert_eq!(aggregate_len(costs, &[600, 600]), 1);
    assert_eq!(aggregate_len(Costs { copies: 2, ..costs }, &[300, 300]), 1);
    assert_eq!(aggregate_len(Costs { copies: 0, ..costs }, &[9000, 9000]), 2);
    assert_eq!(aggregate_len(Costs { copy: Rate::NONE, ..costs }, &[9000, 9000]), 2);
    // The large one in the middle would spoil it.
    assert_eq!(aggregate_len(costs, &[8, 8, 4000, 8]), 2);
    assert_eq!(of(Policy::Greedy).aggregate_len(&costs, &[8, 8]), 1);
}

/// newmadeleine-2007, 3.2 and 3.4: greedy gives all to the first free one; split goes by the rates, above
/// programmed I/O.
#[test]
fn cuts() {
    let nics = paper([0, 0]);
    assert_eq!(cut(Policy::Greedy, &nics, 0b11, 1 << 20), [1 << 20, 0]);
    assert_eq!(cut(Policy::Aggregate, &nics, 0b10, 1 << 20), [0, 1 << 20]);
    for split in [Policy::Split, Policy::NewMadeleine] {
        let parts = cut(split, &nics, 0b11, 2_050_000);
        assert!(parts[0].abs_diff(1_200_000) < 128 && parts[0] + parts[1] == 2_050_000, "{parts:?}");
        assert_eq!(cut(split, &nics, 0b10, 1 << 20), [0, 1 << 20]);
        // 850/2050 of 16 KiB would be moved by the processor, of 32 KiB it is not.
        assert_eq!(cut(split, &nics, 0b11, 16 * 1024), [16 * 1024, 0]);
        assert!(cut(split, &nics, 0b11, 32 * 1024)[1] > 8192);
    }
}

proptest! {
    /// Whatever the NICs: the parts cover the message once, lie on idle NICs, and none of several is moved by
    /// the processor.
    #[test]
    fn parts_cover_the_message(
        bytes in 1u64..1 << 32, idle in 1u64..16, rates in proptest::collection::vec(0u32..1 << 24, 4), pio in 0u32..20_000,
    ) {
        let nics: Vec<Nic> =
            rates.iter().map(|&rate| Nic { rate: Rate(rate), pio_bytes_max: pio, ..Nic::default() }).collect();
        for strategy in STRATEGIES {
            let parts = cut(strategy, &nics, idle, bytes);
            prop_assert_eq!(parts.iter().sum::<u64>(), bytes);
            prop_assert!((0..4).all(|rail| parts[rail] == 0 || idle >> rail & 1 == 1));
            let used = parts.iter().filter(|&&part| part > 0).count();
            prop_assert!(used == 1 || parts.iter().all(|&part| part == 0 || part > pio.into()), "{:?}", parts);
        }
    }
}
