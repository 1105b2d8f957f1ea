//! The fuzz body of the short way: any header into the express arrival, between real traffic over rails that
//! carry short messages.

use super::{Cluster, Flying, Region, SHM, TCP};
use rerail_core::config::{Config, Policy};
use rerail_core::endpoint::*;
use rerail_core::ids::*;
use rerail_core::mem::{RegionId, Seg};
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::{Counts, Short};

/// Bytes that requests name: no write may reach what lies behind them.
const NAMED: u64 = 16_384;
/// Requests of a rank that may never be over.
const OTHERS_MAX: u32 = 12;
/// Bytes of the region.
const MEMORY: usize = 20_480;

/// Fuzz body: three endpoints with messages on the express path. Rank 1 gets any header from a peer in the
/// place of rank 2, most of them near to the expected one. Nothing may panic, in debug builds lines agree
/// with their tables, memory that no request names stays as it is, and ranks 0 and 1, which are honest, keep
/// each other, with messages that all arrive.
pub fn run_shorts(data: &[u8]) {
    counting_shorts(data);
}

/// As [`run_shorts`]: hostile headers, short messages from honest ranks, and messages that rank 1 received
/// the express path.
pub fn counting_shorts(data: &[u8]) -> [u64; 3] {
    let mut input = Input(data);
    let shape = input.byte();
    let config = Config {
        operations_max: 2 * OTHERS_MAX + u32::from(shape & 15),
        packets_max: 16,
        window: 64,
        unexpected_per_peer: 1 + u16::from(shape >> 4 & 7),
        blocks_per_peer: 4,
        block_bytes: 256,
        eager_bytes_max: 900,
        retained_max: 2,
        requests_per_peer: 1,
        bulk_max: 2,
        rails_max: 2,
        match_buckets: 2,
        windows_max: 0,
        counters_max: 1,
        ack_packets: 1 + u16::from(shape & 1),
        ack_delay: Nanos(1_000),
        multiplex: Policy::Balanced,
        ..Config::new(PeerId(0), 3)
    };
    let rails = if shape & 128 == 0 { &[SHM][..] } else { &[SHM, TCP][..] };
    let mut regions = [Region::of(&config), Region::of(&config), Region::of(&config)];
    let mut cluster = Cluster::new(&mut regions, &config, rails, &[MEMORY], 1);
    let mut due = Due::default();
    begin(&mut cluster, &mut due);
    cluster.honest = false;
    while !input.0.is_empty() {
        step(&mut cluster, &mut input, &mut due);
    }
    finish(&mut cluster, &mut due);
    for node in &cluster.nodes {
        assert!(node.memory[0][NAMED as usize..].iter().all(|&byte| byte == 0), "written where no request is");
    }
    [due.hostile, cluster.shorts.0, cluster.nodes[1].endpoint.stats().short_received]
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}

/// Pending messages from rank 0 to rank 1, by tag [`HONEST`]: those sent, and those that came.
#[derive(Default)]
struct Due {
    sent: u64,
    received: u64,
    posted: u64,
    /// Headers that rank 2's memory held for rank 1.
    hostile: u64,
    /// Other requests of each rank.
    others: [u32; 3],
}

/// The tag of messages from rank 0 to rank 1, which carry their number as immediate data.
const HONEST: u64 = 1 << 40;
/// The cookie of their receives.
const RECEIVE: Cookie = Cookie(1 << 40);

fn step(cluster: &mut Cluster<'_>, input: &mut Input<'_>, due: &mut Due) {
    let what = input.byte();
    cluster.now += u64::from(what) * 50;
    // Unreceived messages must not use up what rank 1 grants rank 0.
    let (rank, peer) = [(0, 2), (1, 0), (1, 2), (2, 1)][usize::from(what >> 6)];
    let len = u64::from(input.byte()) * 4 % 901;
    let tag = u64::from(input.byte() % 4);
    let segments = [Seg::new(RegionId(0), tag * 2048, len)];
    let cookie = Cookie(tag);
    match what & 7 {
        0 | 1 if due.others[rank] == OTHERS_MAX => go_on(cluster, due),
        0 => {
            due.others[rank] += 1;
            let immediate = (len & 8 != 0).then_some(tag);
            let tag = (tag != 3).then_some(tag);
            let send = SendRequest { tag, immediate, cookie, ..SendRequest::new(PeerId(peer), &segments) };
            let _ = cluster.send(rank, &send);
        }
        1 => {
            due.others[rank] += 1;
            let from = Selector {
                source: (len & 4 == 0).then_some(PeerId(peer)),
                tag: if tag == 3 { TagMatch::Untagged } else { TagMatch::Tagged { tag, ignore: len >> 3 & 1 } },
            };
            receive(cluster, rank, &RecvRequest { cookie, ..RecvRequest::new(from, &segments) });
        }
        2 => send_honest(cluster, due),
        3 => receive_honest(cluster, due),
        4 | 5 => hostile(cluster, input, due),
        _ => go_on(cluster, due),
    }
}

/// As a driver posts a receive.
fn receive(cluster: &mut Cluster<'_>, rank: usize, recv: &RecvRequest<'_>) -> bool {
    let (now, endpoint) = (Time(cluster.now), &mut cluster.nodes[rank].endpoint);
    endpoint.recv_short(recv).is_some() || endpoint.recv(now, recv).is_ok()
}

fn send_honest(cluster: &mut Cluster<'_>, due: &mut Due) {
    let segments = [Seg::new(RegionId(0), 12_288, due.sent % 600)];
    let (tag, immediate) = (Some(HONEST), Some(due.sent));
    let send = SendRequest { tag, immediate, notify: Notify::Silent, ..SendRequest::new(PeerId(1), &segments) };
    due.sent += u64::from(cluster.send(0, &send).is_ok());
}

fn receive_honest(cluster: &mut Cluster<'_>, due: &mut Due) {
    if due.posted > due.received {
        return;
    }
    let segments = [Seg::new(RegionId(0), 14_336, 600)];
    let from = Selector { source: Some(PeerId(0)), tag: TagMatch::Tagged { tag: HONEST, ignore: 0 } };
    let recv = RecvRequest { cookie: RECEIVE, ..RecvRequest::new(from, &segments) };
    due.posted += u64::from(receive(cluster, 1, &recv));
}

/// A header that rank 2's memory holds, for rank 1: any bytes, or near to what an honest rank 2 would write.
fn hostile(cluster: &mut Cluster<'_>, input: &mut Input<'_>, due: &mut Due) {
    let sort = input.byte();
    // What the ring lets through: no other flags, and nothing longer than the rail takes.
    let flags = input.byte() & Short::FLAGS;
    let len = if sort & 1 == 0 { input.half() % 901 } else { u16::from(input.byte()) };
    let any = u64::from(input.half()) << 48 | u64::from(input.half());
    let tag = if sort & 2 == 0 { u64::from(input.byte() % 4) } else { any };
    let near = expected(&mut cluster.nodes[1].endpoint, PeerId(2));
    let psn = match sort >> 2 & 3 {
        0 | 1 => near,
        2 => near.wrapping_add_signed((input.byte() as i8).into()),
        _ => u32::from(input.half()) << 16 | u32::from(input.half()),
    };
    let message_limit = if sort & 16 == 0 { u16::from(input.byte()) } else { input.half() };
    let block_limit = if sort & 32 == 0 { u16::from(input.byte()) } else { input.half() };
    let short = Short {
        counts: Counts::new(psn, message_limit, block_limit),
        tag: if flags & Short::TAGGED != 0 { tag } else { 0 },
        immediate: if flags & Short::IMMEDIATE != 0 { any } else { 0 },
        len,
        flags,
    };
    let payload = vec![0x5A; len.into()];
    let flying = Flying { header: vec![], payload, placing: None, skip: false, write: None, short: Some(short) };
    // A rail reports nothing of a connection that is down.
    if cluster.link(1, 2, 0).up {
        due.hostile += 1;
        super::garbage::hand_in(cluster, (2, RailId(0)), flying, sort & 64 == 0);
    }
}

/// The PSN that is due from a peer.
fn expected(endpoint: &mut Endpoint<'_>, peer: PeerId) -> u32 {
    endpoint.channel_info(peer).map_or(0, |channel| channel.ordered.expected.0)
}

/// All ranks and links for a while; what came is looked at.
fn go_on(cluster: &mut Cluster<'_>, due: &mut Due) {
    for _ in 0..8 {
        cluster.now += 500;
        for rank in 0..3 {
            cluster.nodes[rank].endpoint.handle_timeout(Time(cluster.now));
            cluster.act(rank);
        }
        let (from, to) = (cluster.rng.below(3) as usize, cluster.rng.below(3) as usize);
        cluster.step_link(from, to, 0);
        if cluster.rng.one_in(4) {
            cluster.step_link(0, 1, 0);
            cluster.step_link(1, 0, 0);
        }
        if cluster.rails > 1 {
            cluster.step_link(from, to, 1);
        }
    }
    check_due(cluster, due);
}

fn check_due(cluster: &mut Cluster<'_>, due: &mut Due) {
    for rank in 0..3 {
        cluster.act(rank);
        while let Some(event) = cluster.nodes[rank].events.pop_front() {
            match event {
                Event::Completed(Completion { cookie: RECEIVE, result, .. }) if rank == 1 => {
                    let done = result.expect("an honest message");
                    // The order of sending, each once.
                    assert_eq!((done.peer, done.immediate), (PeerId(0), Some(due.received)));
                    assert_eq!(done.bytes, due.received % 600);
                    due.received += 1;
                }
                Event::PeerLost { peer, why } => {
                    assert!(rank == 2 || peer == PeerId(2), "rank {rank} lost rank {}: {why}", peer.0);
                }
                _ => {}
            }
        }
    }
}

/// One message each way between 0 and 1, and 2 and 1: connections stand, lines can be opened.
fn begin(cluster: &mut Cluster<'_>, due: &mut Due) {
    send_honest(cluster, due);
    receive_honest(cluster, due);
    for (from, to) in [(1, 0), (1, 2), (2, 1)] {
        let segments = [Seg::new(RegionId(0), 0, 8)];
        let selector = Selector { source: Some(PeerId(from as u32)), tag: TagMatch::Untagged };
        receive(cluster, to, &RecvRequest::new(selector, &segments));
        let send = SendRequest::new(PeerId(to as u32), &segments);
        cluster.send(from, &send).expect("room");
    }
    cluster.run_until_idle();
    check_due(cluster, due);
}

/// Whatever rank 2 did: the messages of rank 0 to rank 1 arrive.
fn finish(cluster: &mut Cluster<'_>, due: &mut Due) {
    for _ in 0..200_000 {
        if due.received == due.sent {
            return;
        }
        receive_honest(cluster, due);
        cluster.now += 20_000;
        go_on(cluster, due);
    }
    panic!("{} of {} messages came", due.received, due.sent);
}
