//! Several messages in one packet: how they aggregate, the outcome of each, and invalid aggregates of a peer.

use super::lone::Lone;
use super::*;
use crate::api::config::Policy;
use crate::wire::aggregate::RecordHead;
use crate::wire::{Body, Fin, MessageHead, Repr};

pub(super) fn aggregating() -> Config {
    Config { multiplex: Policy::Aggregate, nic_depth: 1, ..small() }
}

/// A record: the head of a message, and its bytes, which are all `immediate`.
pub(super) fn record(immediate: u64, bytes: u32) -> Vec<u8> {
    let head = MessageHead { immediate: Some(immediate), operation: immediate, ..MessageHead::default() };
    let mut record = RecordHead { head, bytes }.emit().to_vec();
    record.extend(std::iter::repeat_n(immediate as u8, bytes as usize));
    record
}

fn feed(lone: &mut Lone<'_>, count: u16, payload: &[u8]) -> Arrival {
    lone.feed(Body::Aggregate { count }, payload.len() as u32)
}

/// The messages that packets bring: how many each, RTS as 0.
fn counts(packets: &[Repr]) -> Vec<u16> {
    let count = |packet: &Repr| match packet.body {
        Body::Eager(_) => 1,
        Body::Aggregate { count } => count,
        Body::Rts(_) => 0,
        _ => panic!("{packet:?}"),
    };
    packets.iter().map(count).collect()
}

/// W-11, P-13: messages that accumulate while the rail is busy are aggregated, in order, whatever their tags
/// and levels, up to the first that is too large; each is reported at its level.
#[test]
fn messages_queued_while_the_rail_is_busy_are_aggregated() {
    let config = aggregating();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    let levels = [Level::Reusable, Level::Acknowledged, Level::Placed, Level::Reusable];
    for (n, level) in (0..).zip(levels) {
        let (tag, segments) = ((n % 2 == 0).then_some(n), seg(100 * n, 10 * n));
        let send = SendRequest { tag, level, cookie: Cookie(n), ..SendRequest::new(PeerId(1), &segments) };
        lone.endpoint.send(Time(0), &send).unwrap();
    }
    lone.send(4, 2000);
    lone.send(5, 8);
    lone.busy = true;
    let first = lone.sent_one();
    assert_eq!((first.body, first.common.payload_bytes), (Body::Aggregate { count: 4 }, 4 * 32 + 60));
    assert!(first.common.ack_now, "one of them requests it (A-3)");
    assert_eq!(lone.completed().into_keys().collect::<Vec<_>>(), [0, 3], "their buffers are free");
    let late = lone.endpoint.t.op_id(1);
    assert_eq!(lone.endpoint.cancel(late), Err(CancelError::TooLate));
    // The rail completes it: it is idle, and the next one waits alone.
    lone.busy = false;
    lone.endpoint.handle_completion(Time(0), PostId(lone.endpoint.t.packets.key_at(0).unwrap()), PostStatus::Done);
    assert_eq!(counts(&lone.sent()), [0, 1]);
    lone.acks[0] = 1;
    lone.feed(Body::Credit, 0);
    assert_eq!(lone.completed().into_keys().collect::<Vec<_>>(), [1, 5]);
    let placed = lone.endpoint.t.op_id(2).0.to_bits();
    lone.feed(Body::Fin(Fin { operation: placed, count: 1, placed_bytes: 20, ..Fin::default() }), 0);
    assert_eq!(lone.completed().into_keys().collect::<Vec<_>>(), [2]);
    assert_eq!(lone.endpoint.usage().retained.used, 1, "that of the last message");
}

/// C-1, C-2, X-1: credits, blocks and bytes limit an aggregate; one PSN stands for all.
#[test]
fn credits_count_messages() {
    let config = aggregating();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    let go = |lone: &mut Lone<'_>, limits, len| {
        lone.limits = limits;
        lone.feed(Body::Credit, 0);
        (0..12).for_each(|n| lone.send(n, len));
        let sent = lone.sent();
        lone.acks[0] += sent.len() as u32;
        lone.feed(Body::Credit, 0);
        counts(&sent)
    };
    // The peer's grants so far were 32 messages and 64 blocks of 64 bytes.
    assert_eq!(go(&mut lone, (32, 64), 8), [12]);
    assert_eq!(go(&mut lone, (32, 72), 300), [3, 3, 3, 3], "1,000 bytes hold three");
    let used = lone.endpoint.t.channels.at(lone.endpoint.t.channel_of(PeerId(1)).unwrap()).allowance;
    assert_eq!((used.messages_left(), used.blocks_left()), (8, 72 - 8 - 4 * 16));
    lone.limits = (40, 74);
    lone.feed(Body::Credit, 0);
    (0..12).for_each(|n| lone.send(n, 20));
    // 2 blocks of 64 bytes: two records of 52 bytes; then none, so by RTS, as far as messages are granted
    // (C-7).
    assert_eq!(counts(&lone.sent()), [&[2][..], &[0; 10]].concat());
}

/// W-11, M-1, M-5, X-6: each message of an aggregate meets its receive as if it had come alone, posted before
/// or after; the blocks are free with the last.
#[test]
fn each_is_a_message() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.recv(1, 100);
    lone.recv(2, 5);
    let payload = [record(10, 40), record(20, 30), record(30, 0), record(40, 50)].concat();
    let aggregate = feed(&mut lone, 4, &payload);
    assert_eq!(lone.completed(), BTreeMap::new(), "nothing is known before the payload is here");
    lone.place_bytes(aggregate, &payload);
    lone.sent();
    let done = lone.completed();
    assert_eq!(done[&1].unwrap().immediate, Some(10));
    assert!(matches!(done[&2], Err(OpError::Truncated { sent: 30, capacity: 5, .. })), "{done:?}");
    let usage = lone.endpoint.usage();
    assert_eq!((usage.unexpected.used, usage.blocks.used), (2, 4));
    lone.recv(3, 100);
    lone.recv(4, 100);
    lone.sent();
    let done = lone.completed();
    assert_eq!(
        [3, 4].map(|n| done[&n].unwrap()).map(|done| (done.immediate, done.bytes)),
        [(Some(30), 0), (Some(40), 50)]
    );
    assert_eq!(lone.endpoint.usage().leak().map(|(name, _)| name), Some("timers"), "an acknowledgment is due");
    // Nothing but heads: no blocks are kept.
    let payload = [record(1, 0), record(2, 0)].concat();
    let aggregate = feed(&mut lone, 2, &payload);
    lone.place_bytes(aggregate, &payload);
    let usage = lone.endpoint.usage();
    assert_eq!((usage.unexpected.used, usage.blocks.used), (2, 0));
}

/// P-9: by path estimates a packet of several messages takes the rail that delivers all of it earliest, if it
/// may be as long there; other policies leave it on the rail of its first message.
#[test]
fn an_aggregate_takes_the_rail_that_delivers_it_earliest() {
    let rails = [TCP, RailFacts { eager_bytes_max: 600, ..TCP }];
    for (policy, bytes, expected) in [
        (Policy::Balanced, 599, 1),
        (Policy::Balanced, 600, 1),
        (Policy::Balanced, 601, 0),
        (Policy::Aggregate, 599, 0),
    ] {
        let config = Config { multiplex: policy, ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &rails);
        for (rail, route) in [(0, 1_000_000), (1, 1)] {
            lone.endpoint.paths.path_mut(0, RailId(rail)).planning_latency = route;
        }
        lone.endpoint.paths.find_lowest_latency(0);
        let rail = lone.endpoint.earliest_aggregate(Time(0), 0, RailId(0), bytes);
        assert_eq!(rail, RailId(expected), "{bytes} bytes by {}", policy.name());
    }
}

/// S-8, M-7: an aggregate that comes early waits as a whole, one that is not here whole keeps those behind it
/// waiting.
#[test]
fn aggregates_are_delivered_in_order() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
    (1..=4).for_each(|n| lone.recv(n, 100));
    let payload = [record(20, 40), record(30, 40)].concat();
    let eager = |immediate| Body::Eager(MessageHead { immediate: Some(immediate), ..MessageHead::default() });
    let early = lone.feed_on(0, Body::Aggregate { count: 2 }, payload.len() as u32, |common| common.psn = 1);
    lone.feed_on(1, eager(40), 0, |common| common.psn = 2);
    lone.feed_on(1, eager(10), 0, |common| common.psn = 0);
    assert_eq!(lone.completed().len(), 1);
    assert_eq!(lone.endpoint.stats().out_of_order, 2);
    lone.place_bytes(early, &payload);
    lone.sent();
    let done = lone.completed();
    assert_eq!([2, 3, 4].map(|n| done[&n].unwrap().immediate), [Some(20), Some(30), Some(40)]);
    // The same again is dropped.
    let again = lone.feed_on(0, Body::Aggregate { count: 2 }, payload.len() as u32, |common| common.psn = 1);
    assert_eq!((again, lone.endpoint.stats().duplicates_dropped), (Arrival::Discard, 1));
}

/// a FIN for each message that requests one.
#[test]
fn each_is_answered() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    (1..=3).for_each(|n| lone.recv(n, 100));
    let wants = |n: u64| {
        let head = MessageHead { operation: 100 + n, want_placed: n != 2, ..MessageHead::default() };
        [&RecordHead { head, bytes: 4 }.emit()[..], &[0; 4]].concat()
    };
    let payload = [wants(1), wants(2), wants(3)].concat();
    let aggregate = feed(&mut lone, 3, &payload);
    lone.place_bytes(aggregate, &payload);
    let fins: Vec<_> = lone.sent().into_iter().map(|packet| packet.body).collect();
    let fin = |operation| Body::Fin(Fin { operation, count: 1, placed_bytes: 4, ..Fin::default() });
    assert_eq!(fins, [fin(101), fin(103)]);
}

/// W-11, C-3, X-1, G-8: a bad aggregate costs the peer its channel, and none of its messages takes effect.
#[test]
fn bad_aggregates_have_no_effect() {
    let config = small();
    let good = record(1, 40);
    let mut flagged = record(2, 40);
    flagged[0] |= 0x80;
    let mut endless = record(2, 40);
    endless[4..8].fill(0xFF);
    let bad: [(u16, Vec<u8>, &str); 5] = [
        (2, [&good[..], &flagged].concat(), "record.flags"),
        (2, [&good[..], &endless].concat(), "record.bytes"),
        (2, [&good[..], &record(2, 40)[..71]].concat(), "record.bytes"),
        (1, [&good[..], &[0]].concat(), "record.trailing"),
        (2, [&good[..], &[0; 31]].concat(), "record"),
    ];
    for (count, payload, field) in bad {
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        lone.recv(1, 100);
        let aggregate = feed(&mut lone, count, &payload);
        lone.place_bytes(aggregate, &payload);
        let ProtocolError::Wire(error) = lone.offence() else { panic!("{field}") };
        assert_eq!(error.field, field);
        lone.sent();
        assert_eq!(lone.completed(), BTreeMap::new());
        let usage = lone.endpoint.usage();
        assert_eq!((usage.messages.used, usage.blocks.used, usage.posted.used), (0, 0, 1), "{field}");
    }
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    // 30 empty messages fit the packet; 32 are granted, so not twice as many.
    let payload: Vec<u8> = (0..30).flat_map(|n| record(n, 0)).collect();
    let aggregate = feed(&mut lone, 30, &payload);
    lone.place_bytes(aggregate, &payload);
    assert_eq!((feed(&mut lone, 30, &payload), lone.offence()), (Arrival::Close, ProtocolError::Credit));
    assert_eq!(lone.endpoint.usage().unexpected.used, 30, "these were here whole (G-10)");
}

/// A peer that is lost while an aggregate is on its way, or here and early, leaves nothing behind.
#[test]
fn lost_peer_releases_aggregate_resources() {
    let config = small();
    for placed in [false, true] {
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        let payload = [record(1, 40), record(2, 40)].concat();
        let early = lone.feed_on(0, Body::Aggregate { count: 2 }, payload.len() as u32, |common| common.psn = 1);
        if placed {
            lone.place_bytes(early, &payload);
        }
        let fault = RailFault::Corrupt;
        lone.endpoint.handle_rail_event(Time(0), RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault });
        lone.sent();
        let usage = lone.endpoint.usage();
        assert_eq!((usage.messages.used, usage.blocks.used, usage.placements.used), (0, 0, 0));
        assert_eq!(lone.endpoint.t.blocks.free_len(), config.blocks_max());
    }
}

/// W-11, X-1, A-5: an aggregate takes as many messages as a batch of actions has room for, and as fit an
/// eager payload to the last byte; one place for a copy is enough for all, and no unneeded acknowledgment is
/// requested.
#[test]
fn aggregate_takes_as_many_messages_as_fit() {
    let config = Config { retained_max: 1, ..aggregating() };
    for (count, len) in [(15, 8), (2, 500 - 32)] {
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        let copied = lone.endpoint.stats().bytes_copied;
        for sent in 1..3 {
            (0..count).for_each(|n| lone.send(n, len));
            lone.busy = true;
            let packet = lone.sent_one();
            assert_eq!(packet.body, Body::Aggregate { count: count as u16 });
            let bytes = count * (32 + len);
            assert_eq!((u64::from(packet.common.payload_bytes), packet.common.ack_now), (bytes, true), "A-9");
            assert_eq!(lone.endpoint.stats().bytes_copied - copied, sent * bytes);
            assert!(lone.endpoint.operations().all(|operation| operation.is_sent));
            assert_eq!(lone.completed().len() as u64, count);
            lone.busy = false;
            let id = lone.held.remove(0);
            lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
            lone.acks[0] += 1;
            lone.limits = (32 * 3, 64 * 3);
            lone.feed(Body::Credit, 0);
            assert_eq!(lone.endpoint.usage().retained.used, 0);
        }
    }
    let config = aggregating();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    (0..3).for_each(|n| lone.send(n, 8));
    assert!(!lone.sent_one().common.ack_now);
}

/// C-4: the blocks of an aggregate that is nothing but heads are granted again at once.
#[test]
fn messages_without_payload_use_no_blocks() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    let limit = |lone: &mut Lone<'_>| {
        lone.send(1, 8);
        lone.sent_one().common.block_limit
    };
    let before = limit(&mut lone);
    let payload = [record(1, 0), record(2, 0), record(3, 0)].concat();
    let aggregate = feed(&mut lone, 3, &payload);
    lone.place_bytes(aggregate, &payload);
    assert_eq!(limit(&mut lone), before + 2, "96 bytes in blocks of 64");
}
