//! Tests of one endpoint, by its tables and packet by packet: the test acts as the peer (`lone`), or rails
//! are lines with a rate (`timed`). `conformance/testkit` tests the guarantees between endpoints over any
//! rails.

use core::mem::MaybeUninit;
use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

use super::*;
use crate::ids::*;
use crate::mem::{MemRef, RegionId, Seg};
use crate::rail::{Caps, RailFacts, RailKind};
use crate::store::arena::REGION_ALIGN;
use crate::time::Nanos;
use crate::wire::Short;
use crate::wire::{AtomicKind, AtomicType};

mod aborted_placements;
mod addresses;
mod aggregates;
mod assumptions;
mod at_once;
mod balanced;
mod completions;
mod computing;
mod counts;
mod deadlines;
mod details;
mod ended;
mod epoch_parts;
mod fenced;
mod fences;
mod frames;
mod given_up;
mod hostile;
mod immediate;
mod keys;
mod late_connects;
mod late_ends;
mod late_matches;
mod leftovers;
mod limits;
mod lone;
mod moved;
mod news;
mod numbers;
mod packets;
mod parked;
mod parked_ends;
mod parked_messages;
mod policies;
mod recovery;
mod redials;
mod registering;
mod rendezvous;
mod replay;
mod retry_epochs;
mod rules;
mod short;
mod short_edges;
mod single_puts;
mod strategies;
mod timed;
mod torn_down;
mod unequal;
mod unknown_peers;
mod untrue;

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

/// Room for an endpoint's state.
struct Region(Vec<MaybeUninit<u8>>);

impl Region {
    fn of(config: &Config) -> Self {
        Region(vec![MaybeUninit::uninit(); config.memory_bytes().unwrap() + REGION_ALIGN])
    }

    fn take(&mut self, config: &Config) -> &mut [MaybeUninit<u8>] {
        let start = self.0.as_ptr().addr().wrapping_neg() % REGION_ALIGN;
        &mut self.0[start..start + config.memory_bytes().unwrap()]
    }
}

/// Facts of a rail like TCP.
const TCP: RailFacts = RailFacts {
    kind: RailKind::Tcp,
    caps: Caps { write: false, read: false, registration: false, lossless: false },
    eager_bytes_max: 1000,
    segment_bytes_max: 5000,
    posts_max: 4,
    bytes_per_second: 0,
    ..RailFacts::UNKNOWN
};

/// Facts of a rail like shared memory.
const SHM: RailFacts = RailFacts {
    short_bytes_max: 900,
    kind: RailKind::Shm,
    caps: Caps { lossless: true, ..TCP.caps },
    segment_bytes_max: 1500,
    ..TCP
};

/// As [`SHM`], where processes may read each other's memory.
const COPY: RailFacts = RailFacts { caps: Caps { read: true, ..SHM.caps }, transfer_bytes_max: 40_000, ..SHM };

/// Facts of a rail that writes remote memory.
const PUT: RailFacts =
    RailFacts { kind: RailKind::Sim, caps: Caps { write: true, registration: true, ..TCP.caps }, ..TCP };

/// Facts of a rail that reads remote memory.
const GET: RailFacts =
    RailFacts { kind: RailKind::Sim, caps: Caps { read: true, registration: true, ..TCP.caps }, ..TCP };

/// [`Endpoint::send_short`], retried once if the path can be opened.
fn send_short(endpoint: &mut Endpoint<'_>, send: &SendRequest<'_>, len: u64) -> Option<(RailId, Short, OpId)> {
    let sent = endpoint.send_short(send, len);
    if sent.is_none() && endpoint.open_short(send.peer) { endpoint.send_short(send, len) } else { sent }
}
