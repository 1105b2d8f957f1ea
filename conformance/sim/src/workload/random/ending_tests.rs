//! Each figure can be wrong, and is seen to be.

use rerail_core::endpoint::InUse;

use super::*;

const DEVICES: u32 = 2;
const RC: Made = Made { shared_queues: 1, domains: 0 };

fn holds() -> Option<Holds> {
    let rails = RailUsage { registrations: 5, handles: 1, ..RailUsage::default() };
    Some(Holds { rails, pairs: QueuePairs { least: 3, most: 3 } })
}

fn differ(expected: &Objects, found: &Objects) -> Vec<String> {
    let mut all = Facts::new();
    compare(&mut all, 4, expected, found);
    all.into_iter().filter(|(_, expected, found)| expected != found).map(|(what, ..)| what).collect()
}

#[test]
fn every_kind_of_leaked_object_is_detected() {
    let right = expected(&RC, (DEVICES, 5), holds());
    assert_eq!((right.mrs, right.qps, right.ahs), (7, 5, 1));
    assert!(differ(&right, &right).is_empty());
    type Add = fn(&mut Objects);
    let more: [(&str, Add); 8] = [
        ("devices", |it| it.contexts += 1),
        ("protection domains", |it| it.pds += 1),
        ("memory regions", |it| it.mrs += 1),
        ("completion queues", |it| it.cqs += 1),
        ("queue pairs", |it| it.qps += 1),
        ("shared receive queues", |it| it.srqs += 1),
        ("address handles", |it| it.ahs += 1),
        ("XRC domains", |it| it.xrcds += 1),
    ];
    for (what, add) in more {
        let mut found = right;
        add(&mut found);
        let expected_now = expected(&RC, (DEVICES, found.qps), holds());
        assert_eq!(differ(&expected_now, &found), [format!("rank 4: {what}")]);
        // What rails report as held and is not there is wrong too.
        assert_eq!(differ(&found, &right), [format!("rank 4: {what}")]);
        let mut one = Objects::default();
        add(&mut one);
        assert_eq!(differ(&expected(&RC, (1, 1), None), &one), [format!("rank 4: {what}")], "of a killed process");
    }
}

/// By XRC the scenario and the subchannels decide how much there may be, and not the rail.
#[test]
fn leaked_xrc_objects_are_detected() {
    let of = |sizes: Option<&[u32]>, segment_bytes| {
        let srq_sizes = sizes.map(<[u32]>::to_vec);
        Made::of(&VerbsSpec { xrc: true, srq_sizes, segment_bytes, eager_bytes_max: 64, ..VerbsSpec::default() })
    };
    let queues = [(None, 16_384, 7), (None, 1024, 4), (Some(&[][..]), 1024, 1), (Some(&[300, 400]), 1024, 3)];
    for (sizes, segment_bytes, count) in queues {
        assert_eq!(of(sizes, segment_bytes).shared_queues, count, "{sizes:?}");
    }
    assert_eq!(Made::of(&VerbsSpec::default()).shared_queues, 1);
    // Peers on three nodes: a target each, and three to five initiators.
    let hosts = [0, 1, 1, 4, 4];
    assert_eq!(QueuePairs::for_peers(false, &hosts), QueuePairs { least: 5, most: 5 });
    let pairs = QueuePairs::for_peers(true, &hosts);
    assert_eq!(pairs, QueuePairs { least: 8, most: 10 });
    let rails = RailUsage::default();
    for (there, wanted) in [(8, 9), (9, 9), (10, 10), (11, 11), (12, 11)] {
        let right = expected(&of(None, 16_384), (1, there), Some(Holds { rails, pairs }));
        assert_eq!((right.qps, right.srqs, right.xrcds), (wanted, 7, 1), "{there} queue pairs");
    }
}

#[test]
fn the_worst_moment_counts() {
    let mut watch = Watch::default();
    let mut usage = Usage::default();
    for used in [1, 4, 2] {
        usage.packets = InUse { used, capacity: 3 };
        watch.tables(0, &usage);
    }
    watch.note(None, "messages held", 5, 9);
    watch.note(None, "messages held", 3, 2);
    watch.note(None, "messages held", 6, 9);
    let over: Facts =
        watch.bounds(FaultLevel::Quiet, 0).into_iter().filter(|(_, reached, bound)| reached > bound).collect();
    assert_eq!(over, [("all ranks: messages held".to_owned(), 3, 2), ("rank 0: packets".to_owned(), 4, 3)]);
}

#[test]
fn every_count_that_is_wrong_shows() {
    let right = Stats { packets_sent: 10, packets_received: 10, unexpected: 2, ..Stats::default() };
    let over = |stats: Stats, fault_level| {
        let facts = statistics(&[(0, right), (1, stats)], |_| 2, fault_level, true);
        facts.into_iter().filter(|(_, reached, bound)| reached > bound).map(|(what, ..)| what).collect::<Vec<_>>()
    };
    assert!(over(right, FaultLevel::Quiet).is_empty());
    let unexpected = Stats { unexpected: 3, ..right };
    assert_eq!(over(unexpected, FaultLevel::Rough), ["rank 1: messages before their receive"]);
    let malformed = Stats { malformed_dropped: 1, ..right };
    assert_eq!(over(malformed, FaultLevel::Rough), ["rank 1: malformed packets"]);
    let twice = Stats { duplicates_dropped: 1, ..right };
    assert_eq!(over(twice, FaultLevel::Quiet), ["rank 1: packets that came twice"]);
    assert!(over(twice, FaultLevel::Rough).is_empty(), "a message sent again over another rail comes twice, rightly");
    let fewer = Stats { packets_received: 9, ..right };
    assert_eq!(over(fewer, FaultLevel::Quiet), ["packets sent, of those received"]);
    let more = Stats { packets_received: 11, ..right };
    assert_eq!(over(more, FaultLevel::Quiet), ["packets received, of those sent"]);
    assert!(over(more, FaultLevel::Rough).is_empty());
}
