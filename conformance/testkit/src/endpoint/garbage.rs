//! The fuzz body: garbage between real traffic.

use super::{Cluster, Flying, GET, PUT, Region, TCP, aimed};
use rerail_core::config::{Config, Policy};
use rerail_core::endpoint::*;
use rerail_core::ids::*;
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::time::Time;
use rerail_core::wire::aggregate::RecordHead;
use rerail_core::wire::{self, AtomicKind, AtomicType, Body};

/// Fuzz body: a live pair of endpoints, with traffic of every kind under way, is fed arbitrary packets,
/// completions, placements, answers and rail events between its own. Nothing may panic, and no memory outside
/// the buffers and windows that were handed in may be written; rank 1, which the garbage is aimed at, may
/// give its peers up.
pub fn run(data: &[u8]) {
    let config = Config {
        operations_max: 64,
        packets_max: 32,
        window: 64,
        channels_max: 3,
        unexpected_per_peer: 8,
        blocks_per_peer: 8,
        block_bytes: 64,
        eager_bytes_max: 300,
        retained_max: 4,
        requests_per_peer: 2,
        bulk_max: 4,
        rails_max: 3,
        match_buckets: 4,
        windows_max: 2,
        counters_max: 1,
        ack_packets: 4,
        // Half of all inputs have honest messages go together.
        multiplex: if data.len().is_multiple_of(2) { Policy::Binding } else { Policy::Aggregate },
        ..Config::new(PeerId(0), 3)
    };
    let mut regions = [Region::of(&config), Region::of(&config), Region::of(&config)];
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP, PUT, GET], &[70_000], 1);
    cluster.honest = false;
    let mut input = Input(data);
    for rank in 0..3 {
        let window = Window::new(
            MemRef { region: RegionId(0), offset: 60_000 },
            5000,
            Access { read: true, write: true, atomic: true },
            7,
        );
        cluster.nodes[rank].endpoint.expose(&window).expect("room");
    }
    while !input.0.is_empty() {
        fuzz_step(&mut cluster, &mut input);
    }
    // Memory that was never handed to the endpoint is as it was: behind the window, and between buffers.
    for node in &cluster.nodes {
        assert!(node.memory[0][65_000..].iter().all(|&b| b == 0), "written behind the window");
        assert!(node.memory[0][50_000..60_000].iter().all(|&b| b == 0), "written before the window");
    }
}

pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(len.min(self.0.len()));
        self.0 = later;
        now
    }

    fn id(&mut self) -> Key {
        // Mostly ids that could be alive.
        Key { index: (self.byte() % 64).into(), generation: 1 + u32::from(self.byte() % 4) }
    }
}

fn fuzz_step(cluster: &mut Cluster<'_>, input: &mut Input<'_>) {
    let what = input.byte();
    let rank = usize::from(what >> 4) % 3;
    let peer = PeerId((input.byte() % 3).into());
    let now = Time(cluster.now);
    cluster.now += u64::from(input.byte()) * 50_000;
    let at = u64::from(input.byte()) * 64;
    let len = u64::from(input.byte()) * 80;
    let segments = [Seg::new(RegionId(0), at, len)];
    let to = Remote { peer, window: 7, offset: at / 2 };
    let cookie = Cookie(u64::from(what));
    let endpoint = &mut cluster.nodes[rank].endpoint;
    match what & 15 {
        0 | 1 => {
            let level = [Level::Reusable, Level::Acknowledged, Level::Placed][usize::from(input.byte() % 3)];
            let tag = (what & 1 == 0).then_some(at % 3);
            let _ = endpoint.send(now, &SendRequest { tag, level, cookie, ..SendRequest::new(peer, &segments) });
        }
        2 | 3 => {
            let tag = if what & 1 == 0 { TagMatch::Tagged { tag: at % 3, ignore: 1 } } else { TagMatch::Untagged };
            let from = Selector { source: (at & 64 == 0).then_some(peer), tag };
            let multi = (len & 1 == 0 && len > 0).then_some(len / 4 + 1);
            let _ = endpoint.recv(now, &RecvRequest { multi, cookie, ..RecvRequest::new(from, &segments) });
        }
        4 => drop(endpoint.put(now, &PutRequest { cookie, ..PutRequest::new(to, &segments) })),
        5 => drop(endpoint.get(now, &GetRequest { cookie, ..GetRequest::new(to, &segments) })),
        6 => {
            let at = Remote { offset: at, ..to };
            let _ = endpoint.atomic(
                now,
                &AtomicRequest { cookie, ..AtomicRequest::new(at, AtomicKind::Add, AtomicType::U64, len) },
            );
        }
        7 => {
            let _ = endpoint.flush(now, &FlushRequest { cookie, ..FlushRequest::new(peer) });
            let _ = endpoint.cancel(OpId(input.id()));
        }
        // A packet made of a real one's parts, or of arbitrary bytes, for rank 1.
        8..=10 => fuzz_packet(cluster, input),
        // One with true numbers.
        11 => aimed::packet(cluster, input),
        12 => {
            let id = input.id();
            match input.byte() % 5 {
                0 => endpoint.handle_completion(now, PostId(id), PostStatus::Failed),
                1 => endpoint.handle_atomic(OpId(id), 5),
                2 => cluster.nodes[rank].placed(now, PlaceId(Key { index: id.index + 1000, ..id })),
                3 => endpoint.handle_registered(OpId(id), RailId(input.byte()), Err(RailFault::Corrupt)),
                _ => endpoint.handle_timeout(now),
            }
        }
        13 if what >= 0xE0 => {
            let rail = RailId(input.byte() % 3);
            cluster.cut(rank, peer.0 as usize, rail, RailFault::TimedOut, true);
        }
        // An end breaks, and the other one is notified later, by its rail or by its peer.
        13 if what >= 0x80 => {
            let rail = RailId(input.byte() % 3);
            cluster.break_end(rank, peer.0 as usize, rail, RailFault::TimedOut);
        }
        14 if what >= 0xE0 => drop(endpoint.close_peer(peer)),
        14 if what >= 0x80 => {
            let rail = RailId(input.byte() % 3);
            cluster.notice(rank, peer.0 as usize, rail);
        }
        15 if what >= 0xC0 => {
            for rank in 0..3 {
                cluster.nodes[rank].endpoint.handle_timeout(now);
                cluster.act(rank);
            }
        }
        _ => {
            for _ in 0..8 {
                for rank in 0..3 {
                    cluster.act(rank);
                }
                let (from, to) = (cluster.rng.below(3) as usize, cluster.rng.below(3) as usize);
                let rail = cluster.rng.below(3) as usize;
                cluster.step_link(from, to, rail);
            }
        }
    }
}

/// One hostile packet from rank 0 or 2 to rank 1.
fn fuzz_packet(cluster: &mut Cluster<'_>, input: &mut Input<'_>) {
    let from = if input.byte() & 1 == 0 { 0u32 } else { 2 };
    let rail = RailId(input.byte() % 3);
    let mode = input.byte();
    let mut records = Vec::new();
    let mut header = if mode & 1 == 0 {
        let samples = crate::wire::samples();
        let (_, mut repr) = samples[usize::from(input.byte()) % samples.len()].clone();
        repr.common.source = from;
        repr.common.psn = repr.body.lane().map_or(0, |_| input.byte().into());
        (repr.common.ack_ordered, repr.common.ack_unordered) = (0, 0);
        match &mut repr.body {
            Body::Aggregate { count } => {
                *count = u16::from(input.byte() % 6);
                for _ in 0..*count {
                    let len = input.byte() % 64;
                    let head = RecordHead { bytes: len.into(), ..RecordHead::default() };
                    records.extend(head.emit());
                    records.resize(records.len() + usize::from(len), 0x5A);
                }
                // Half of them are bad in one byte, or one too long.
                if let Some(byte) = records.get_mut(2 * usize::from(input.byte())) {
                    *byte ^= input.byte();
                }
                records.resize(records.len() + usize::from(input.byte() == 1), 0);
                repr.common.payload_bytes = records.len() as u32;
            }
            Body::Cts(body) => body.operation = input.id().to_bits(),
            Body::Fin(body) => body.operation = input.id().to_bits(),
            Body::Data(body) => (body.operation, body.offset) = (input.id().to_bits(), input.byte().into()),
            Body::Put(body) => (body.window, body.offset) = (7, u64::from(input.byte()) * 20),
            Body::PutImmediate(body) => {
                let bytes = if input.byte() & 1 == 0 { repr.common.payload_bytes } else { input.byte().into() };
                (body.window, body.offset, body.bytes) = (7, u64::from(input.byte()) * 20, bytes.into());
            }
            Body::Get(body) => (body.window, body.bytes) = (7, u64::from(input.byte()) * 20),
            Body::Atomic(body) => (body.window, body.offset) = (7, u64::from(input.byte()) * 20),
            _ => {}
        }
        repr.emit_vec().map(|header| header.to_vec()).unwrap_or_default()
    } else {
        input.take(64).to_vec()
    };
    if mode & 2 != 0
        && let Some(byte) = header.get_mut(usize::from(input.byte()))
    {
        *byte ^= input.byte();
    }
    let bytes = wire::payload_len(&header) as usize;
    let mut payload = vec![0x5A; bytes.min(1 << 20)];
    let known = records.len().min(payload.len());
    payload[..known].copy_from_slice(&records[..known]);
    let flying = Flying { header, payload, placing: None, skip: false, write: None, short: None };
    if bytes <= 1 << 20 {
        hand_in(cluster, (from as usize, rail), flying, mode & 4 == 0);
    }
}

/// Hands a packet to rank 1; not `all`: only a part of its payload, for now.
pub(super) fn hand_in(cluster: &mut Cluster<'_>, (from, rail): (usize, RailId), flying: Flying, all: bool) {
    // One packet of a subchannel at a time: that is the rails' part, and no peer can change it.
    let rail = rail.0.into();
    if cluster.link(from, 1, rail).flying.front().is_some_and(|flying| flying.placing.is_some())
        && let Some(flying) = cluster.link(from, 1, rail).flying.pop_front()
    {
        cluster.deliver(from, 1, rail, flying, true);
    }
    if let Some(rest) = cluster.deliver(from, 1, rail, flying, all) {
        cluster.link(from, 1, rail).flying.push_front(rest);
    }
}
