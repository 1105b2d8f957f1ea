//! The guarantees between endpoints, whatever rails do in between. Tests read: set up, submit, run the
//! simulation, check.

use std::collections::{BTreeMap, HashMap};

use rerail_core::config::Config;
use rerail_core::endpoint::*;
use rerail_core::ids::*;
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::rail::RailFacts;
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::{AtomicKind, AtomicType};
use rerail_testkit::endpoint::*;

mod aggregates;
mod assumptions;
mod corners;
mod hostile;
mod lanes;
mod one_sided;
mod peers;
mod programs;
mod random;
mod tables;
mod two_sided;

const HEAP: RegionId = RegionId(0);

fn small() -> Config {
    Config {
        operations_max: 256,
        packets_max: 128,
        window: 64,
        channels_max: 4,
        unexpected_per_peer: 32,
        blocks_per_peer: 64,
        block_bytes: 64,
        eager_bytes_max: 1000,
        retained_max: 16,
        requests_per_peer: 4,
        bulk_max: 8,
        rails_max: 4,
        match_buckets: 64,
        redial_min: Nanos(100_000),
        redial_max: Nanos(1_000_000),
        stall_min: Nanos(0),
        sampling_time_max: Nanos(0),
        windows_max: 4,
        counters_max: 4,
        ack_packets: 8,
        ..Config::new(PeerId(0), 4)
    }
}

fn regions(config: &Config, count: usize) -> Vec<Region> {
    (0..count).map(|_| Region::of(config)).collect()
}

fn seg(offset: u64, len: u64) -> [Seg; 1] {
    [Seg::new(HEAP, offset, len)]
}

fn tagged(source: Option<u32>, tag: u64) -> Selector {
    Selector { source: source.map(PeerId), tag: TagMatch::Tagged { tag, ignore: 0 } }
}

fn fill(cluster: &mut Cluster<'_>, rank: usize, offset: u64, len: u64, salt: u8) {
    for i in 0..len {
        cluster.nodes[rank].memory[0][(offset + i) as usize] = (i as u8).wrapping_mul(31).wrapping_add(salt);
    }
}

fn assert_filled(cluster: &Cluster<'_>, rank: usize, offset: u64, len: u64, salt: u8) {
    for i in 0..len {
        let byte = cluster.nodes[rank].memory[0][(offset + i) as usize];
        assert_eq!(byte, (i as u8).wrapping_mul(31).wrapping_add(salt), "byte {i} of {len} at {offset}, rank {rank}");
    }
}

/// The completions so far by cookie, errors and all; other events are left out.
fn completions(cluster: &mut Cluster<'_>, rank: usize) -> BTreeMap<u64, Result<Done, OpError>> {
    let mut out = BTreeMap::new();
    for event in cluster.nodes[rank].events.drain(..) {
        if let Event::Completed(completion) = event {
            assert!(out.insert(completion.cookie.0, completion.result).is_none(), "reported twice: {completion:?}");
        }
    }
    out
}

const ALL_RAILS: [&[RailFacts]; 7] =
    [&[TCP], &[SHM], &[COPY], &[TCP, TCP], &[PUT, PUT], &[GET, TCP], &[SHM, PUT, GET, TCP]];

/// No operation is open, of the caller or for a peer.
fn is_idle(endpoint: &Endpoint<'_>) -> bool {
    endpoint.operations().next().is_none() && endpoint.usage().operations.used == 0
}

/// Whether no channel has a slot.
fn has_no_channel(endpoint: &Endpoint<'_>) -> bool {
    endpoint.usage().channels.used == 0
}
