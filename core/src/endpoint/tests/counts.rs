//! The counters (`Stats`): each event counts once, and nothing else counts. Watchdogs and people use these
//! numbers.

use super::aggregates::{aggregating, record};
use super::lone::{Lone, PEER_RAIL};
use super::recovery::{connect, cts, down, fence, put_over_both, region, up};
use super::*;
use crate::op::{Op, OpKind};
use crate::wire::{
    Atomic as WireAtomic, AtomicReply, Body, Common, Cts, Data, Fence, Fin, Get as WireGet, MessageHead,
    Put as WirePut, RemoteKey, Repr, Resume, Rts,
};

/// The increments since `before`, field by field: packets sent and received are only checked where a test is
/// about them.
fn grown(lone: &Lone<'_>, before: &Stats) -> Stats {
    let now = lone.endpoint.stats();
    Stats {
        packets_sent: now.packets_sent - before.packets_sent,
        packets_received: now.packets_received - before.packets_received,
        sequenced_received: now.sequenced_received - before.sequenced_received,
        duplicates_dropped: now.duplicates_dropped - before.duplicates_dropped,
        malformed_dropped: now.malformed_dropped - before.malformed_dropped,
        stale_dropped: now.stale_dropped - before.stale_dropped,
        out_of_order: now.out_of_order - before.out_of_order,
        unexpected: now.unexpected - before.unexpected,
        acks_explicit: now.acks_explicit - before.acks_explicit,
        bytes_copied: now.bytes_copied - before.bytes_copied,
        rebalances: now.rebalances - before.rebalances,
        replayed: now.replayed - before.replayed,
        parked: now.parked - before.parked,
        resumed: now.resumed - before.resumed,
        short_sent: now.short_sent - before.short_sent,
        short_received: now.short_received - before.short_received,
    }
}

fn lone(rails: &[RailFacts], course: impl FnOnce(&mut Lone<'_>)) {
    let mut region = region();
    // Receives have operations, which packets may name.
    let config = crate::api::config::Config { express: false, ..small() };
    let mut lone = Lone::connected(&mut region, &config, rails);
    // No counter that a packet can change is zero: setting it would differ from adding.
    lone.feed(Body::Fin(fin(99 << 32 | 3)), 0);
    lone.feed_on(0, Body::Fin(fin(99 << 32 | 3)), 0, |common| common.psn = 0);
    lone.psn[1] = 1;
    for psn in [1, 0] {
        lone.feed_on(0, eager(), 0, |common| common.psn = psn);
    }
    lone.psn[0] = 2;
    for cookie in [90, 91] {
        lone.recv(cookie, 0);
    }
    lone.sent();
    lone.completed();
    course(&mut lone);
}

fn eager() -> Body {
    Body::Eager(MessageHead::default())
}

fn fin(operation: u64) -> Fin {
    Fin { operation, count: 1, ..Fin::default() }
}

/// A packet arrives, and exactly these counters grow.
fn brings(lone: &mut Lone<'_>, what: &str, feed: impl FnOnce(&mut Lone<'_>) -> Arrival, expected: Stats) {
    let before = lone.endpoint.stats();
    feed(lone);
    assert_eq!(grown(lone, &before), Stats { packets_received: 1, ..expected }, "{what}");
}

const SEQUENCED: Stats = Stats { sequenced_received: 1, ..ZERO };
const ZERO: Stats = Stats {
    packets_sent: 0,
    packets_received: 0,
    sequenced_received: 0,
    duplicates_dropped: 0,
    malformed_dropped: 0,
    stale_dropped: 0,
    out_of_order: 0,
    unexpected: 0,
    acks_explicit: 0,
    bytes_copied: 0,
    rebalances: 0,
    replayed: 0,
    parked: 0,
    resumed: 0,
    short_sent: 0,
    short_received: 0,
};

#[test]
fn messages_that_come_are_counted_once() {
    lone(&[TCP], |lone| {
        brings(lone, "a sign of life", |lone| lone.feed(Body::Credit, 0), ZERO);
        lone.recv(1, 100);
        brings(lone, "to its receive", |lone| lone.feed(eager(), 0), SEQUENCED);
        brings(
            lone,
            "again",
            |lone| lone.feed_on(0, eager(), 0, |common| common.psn = 2),
            Stats { duplicates_dropped: 1, ..ZERO },
        );
        brings(
            lone,
            "without a receive",
            |lone| lone.feed_on(0, eager(), 0, |common| common.psn = 3),
            Stats { unexpected: 1, ..SEQUENCED },
        );
        let early = |lone: &mut Lone<'_>| lone.feed_on(0, eager(), 100, |common| common.psn = 5);
        brings(lone, "early", early, Stats { out_of_order: 1, bytes_copied: 100, ..SEQUENCED });
        lone.endpoint.poll_event();
    });
    // An early one has its turn when the one before it has arrived, and is unexpected then.
    lone(&[TCP], |lone| {
        lone.feed_on(0, eager(), 0, |common| common.psn = 3);
        brings(
            lone,
            "both",
            |lone| lone.feed_on(0, eager(), 0, |common| common.psn = 2),
            Stats { unexpected: 2, ..SEQUENCED },
        );
    });
    let payload = [record(1, 10), record(2, 20)].concat();
    for psn in 0..2 {
        lone(&[TCP], |lone| {
            let bytes = payload.len() as u32;
            let body = Body::Aggregate { count: 2 };
            let expected = Stats { out_of_order: psn.into(), ..SEQUENCED };
            brings(lone, "an aggregate", |lone| lone.feed_on(0, body, bytes, |common| common.psn = 2 + psn), expected);
        });
    }
}

/// a packet that names nothing known is dropped, and counted as such.
#[test]
fn packet_with_an_unknown_operation_is_counted_as_stale() {
    const STALE: Stats = Stats { stale_dropped: 1, ..SEQUENCED };
    let nothing = 99 << 32 | 3;
    let bodies = [
        (Body::Data(Data { operation: nothing, offset: 0 }), 10),
        (Body::Cts(Cts { operation: nothing, ..Cts::default() }), 0),
        (Body::Fin(fin(nothing)), 0),
        (Body::Fin(Fin { refused: Some(crate::wire::Refusal::NoAccess), ..fin(nothing) }), 0),
        (Body::Resume(Resume { target: nothing, epoch: 1 }), 0),
        (Body::AtomicReply(AtomicReply { operation: nothing, old: 1 }), 0),
    ];
    for (body, bytes) in bodies {
        lone(&[TCP], |lone| brings(lone, "by no name", |lone| lone.feed(body.clone(), bytes), STALE));
    }
    lone(&[TCP], |lone| {
        let of = Fence { peer_rail: 60, ..fence(0, false) };
        brings(
            lone,
            "a rail that there is not",
            |lone| lone.feed(Body::Fence(of), 0),
            Stats { stale_dropped: 1, ..ZERO },
        );
    });
    // FIN, successful or not, for operations that take none.
    lone(&[TCP], |lone| {
        let recv =
            RecvRequest { cookie: Cookie(1), segments: &seg(0, 100), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
        let operation = lone.endpoint.recv(Time(0), &recv).unwrap().0.to_bits();
        for refused in [None, Some(crate::wire::Refusal::NoAccess)] {
            let body = Body::Fin(Fin { refused, ..fin(operation) });
            brings(lone, "a receive that nothing was matched to", |lone| lone.feed(body, 0), STALE);
        }
    });
    // FIN for operations that only their data ends, and for one that has ended and is not yet reported.
    lone(&[TCP], |lone| {
        let at = Remote { peer: PeerId(1), window: 3, offset: 8 };
        let get = GetRequest { cookie: Cookie(1), segments: &seg(0, 100), ..GetRequest::new(at, &[]) };
        let get = lone.endpoint.get(Time(0), &get).unwrap().0.to_bits();
        let put = PutRequest { cookie: Cookie(2), segments: &seg(0, 10), ..PutRequest::new(at, &[]) };
        let put = lone.endpoint.put(Time(0), &put).unwrap().0.to_bits();
        lone.acks[1] = lone.sent().len() as u32;
        lone.feed(Body::Credit, 0);
        for operation in [get, put] {
            brings(lone, "a FIN that ends nothing", |lone| lone.feed(Body::Fin(fin(operation)), 0), STALE);
        }
    });
    // A CTS of an epoch that no operation waits for.
    lone(&[PUT, PUT], |lone| {
        let operation = put_over_both(lone);
        lone.feed(cts(operation, 0, &[0, 1]), 0);
        lone.sent();
        for epoch in [0, 2, u16::MAX] {
            brings(lone, "another round", |lone| lone.feed(cts(operation, epoch, &[0]), 0), STALE);
        }
    });
    // A rail's reports about objects that it does not have (any more).
    lone(&[TCP], |lone| {
        lone.send(1, 10);
        lone.sent();
        let before = lone.endpoint.stats();
        for id in [PostId(Key { index: 3, generation: 7 }), PostId(Key { index: 129, generation: 9 })] {
            lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
        }
        lone.endpoint.handle_placed(Time(0), PlaceId(Key { index: 0, generation: 9 }), &|_, _| {});
        let operation = OpId(Key { index: 5, generation: 9 });
        lone.endpoint.handle_registered(operation, RailId(0), Err(RailFault::Refused));
        assert_eq!(grown(lone, &before), Stats { stale_dropped: 4, ..ZERO });
    });
}

/// Packets of an unknown peer or rail are a separate case: dropped and counted.
#[test]
fn packets_of_an_unknown_peer_or_rail_are_counted() {
    lone(&[TCP, TCP], |lone| {
        let header = Repr { common: Common { source: 2, ..Common::default() }, body: Body::Credit }.emit_vec().unwrap();
        let before = lone.endpoint.stats();
        for (peer, rail) in [(1, 2), (1, 200), (2, 0)] {
            assert_eq!(lone.endpoint.handle_arrival(Time(0), PeerId(peer), RailId(rail), &header), Arrival::Close);
        }
        assert_eq!(grown(lone, &before), Stats { packets_received: 3, stale_dropped: 3, ..ZERO });
        // G-5
        down(lone, 1, RailFault::TimedOut);
        lone.sent();
        let old = Stats { stale_dropped: 1, ..ZERO };
        brings(lone, "an ended connection", |lone| lone.feed_on(1, Body::Credit, 0, |_| {}), old);
        brings(lone, "a message on an ended connection", |lone| lone.feed_on(1, eager(), 0, |_| {}), old);
        // Of a channel that is over.
        lone.feed(Body::Bye, 0);
        brings(lone, "behind BYE", |lone| lone.feed(Body::Credit, 0), old);
    });
    lone(&[TCP], |lone| {
        brings(
            lone,
            "nonsense",
            |lone| lone.feed_on(0, eager(), 0, |common| common.source = 7),
            Stats { malformed_dropped: 1, ..ZERO },
        );
    });
}

/// Sent packets: each counts once; those that carry only acknowledgments, and replayed ones, count separately
/// too.
#[test]
fn sent_packet_is_counted_once() {
    lone(&[TCP, TCP], |lone| {
        lone.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
        let before = lone.endpoint.stats();
        lone.send(1, 10);
        assert_eq!(lone.sent().len(), 1);
        let after = grown(lone, &before);
        assert_eq!((after.packets_sent, after.acks_explicit, after.replayed), (1, 0, 0));
        let before = lone.endpoint.stats();
        lone.feed_on(0, eager(), 0, |common| common.ack_now = true);
        assert_eq!(lone.sent().len(), 1);
        let after = grown(lone, &before);
        assert_eq!((after.packets_sent, after.acks_explicit), (1, 1));
        let before = lone.endpoint.stats();
        down(lone, 0, RailFault::TimedOut);
        lone.feed_on(1, Body::Fence(fence(0, true)), 0, |_| {});
        let sent = lone.sent().len() as u64;
        let after = grown(lone, &before);
        assert_eq!((after.packets_sent, after.replayed), (sent, 1));
        // All lost packets were replayed: no scan is left.
        assert!(!lone.endpoint.t.channels.at(0).replay.is_pending());
    });
    // Copies: of an aggregate's messages, and of a message that waited for its receive.
    let config = aggregating();
    let mut own = Region::of(&config);
    let mut lone = Lone::connected(&mut own, &config, &[TCP]);
    let before = lone.endpoint.stats();
    (0..3).for_each(|n| lone.send(n, 10));
    assert_eq!(lone.sent_one().body, Body::Aggregate { count: 3 });
    assert_eq!(grown(&lone, &before).bytes_copied, 3 * (32 + 10));
    let before = lone.endpoint.stats();
    let arrival = lone.feed(eager(), 40);
    lone.place(arrival);
    assert_eq!(grown(&lone, &before).bytes_copied, 40);
    lone.recv(9, 30);
    lone.sent();
    assert_eq!(grown(&lone, &before).bytes_copied, 40 + 30, "as much as the receive takes");
}

/// F-5: replayed reads are counted as well.
#[test]
fn reads_that_go_out_again_are_counted() {
    lone(&[GET, GET], |lone| {
        lone.recv(1, 3000);
        let key = |rail: u8| RemoteKey { rail: PEER_RAIL + rail, connection: 1, key: 7, address: 0 };
        let head = MessageHead { operation: 77, ..MessageHead::default() };
        lone.busy = true;
        lone.feed(Body::Rts(Rts { head, message_bytes: 3000, keys: [key(0), key(1)].into_iter().collect() }), 0);
        lone.sent();
        let reads = |lone: &mut Lone<'_>| -> Vec<u8> {
            let posts = std::mem::take(&mut lone.posts);
            posts.iter().filter(|(_, kind, _)| matches!(kind, PostKind::Read { .. })).map(|post| post.0.0).collect()
        };
        let first = reads(lone);
        let lost = first[0];
        let before = lone.endpoint.stats();
        down(lone, lost, RailFault::TimedOut);
        lone.busy = false;
        lone.sent();
        let again = reads(lone);
        assert!(!again.is_empty() && again.iter().all(|rail| *rail != lost));
        assert_eq!(grown(lone, &before).replayed, first.iter().filter(|rail| **rail == lost).count() as u64);
    });
}

const KEY: u64 = 77;

/// 64 bytes from the offset on, with all access rights for peers.
fn expose(lone: &mut Lone<'_>, offset: u64) -> WindowId {
    let access = Access { read: true, write: true, atomic: true };
    let window = Window::new(MemRef { region: HEAP, offset }, 64, access, KEY);
    lone.endpoint.expose(&window).unwrap()
}

/// atomics of a peer are executed in the order of arrival.
#[test]
fn atomics_are_executed_in_arrival_order() {
    lone(&[TCP], |lone| {
        expose(lone, 0);
        for n in 0..3 {
            let atomic = WireAtomic {
                window: KEY,
                offset: 0,
                operation: n,
                operand: 100 + n,
                compare: 0,
                kind: AtomicKind::Swap,
                data_type: AtomicType::U64,
            };
            assert_eq!(lone.feed(Body::Atomic(atomic), 0), Arrival::Done);
        }
        let mut actions = heapless::Vec::new();
        lone.endpoint.poll_actions(Time(0), &mut actions);
        let executed: Vec<u64> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Atomic(atomic) => Some(atomic.operand),
                _ => None,
            })
            .collect();
        assert_eq!(executed, [100, 101, 102]);
    });
}

/// an atomic that its type does not support, or whose address is not aligned for it, is refused.
#[test]
fn bad_atomics_are_refused() {
    let good = (AtomicType::U64, AtomicKind::And, 4);
    for (data_type, kind, offset) in
        [good, (AtomicType::F64, AtomicKind::And, 4), (AtomicType::U64, AtomicKind::And, 8)]
    {
        lone(&[TCP], |lone| {
            // The address counts, not the place in the window.
            expose(lone, 4);
            let is_good = (data_type, kind, offset) == good;
            let atomic = WireAtomic { window: KEY, offset, operation: 5, operand: 1, compare: 0, kind, data_type };
            assert_eq!(lone.feed(Body::Atomic(atomic), 0), Arrival::Done);
            let refused = Some(crate::wire::Refusal::BadAtomic);
            let answer = lone.sent_one().body;
            match is_good {
                true => assert_eq!(answer, Body::AtomicReply(AtomicReply { operation: 5, old: 0 })),
                false => assert_eq!(answer, Body::Fin(Fin { refused, ..fin(5) })),
            }
        });
    }
}

/// a put of no bytes counts as a packet, and no byte of it.
#[test]
fn a_put_of_no_bytes_counts_none() {
    let config = Config { ack_bytes: 1, ..small() };
    let mut own = Region::of(&config);
    let mut lone = Lone::connected(&mut own, &config, &[TCP]);
    expose(&mut lone, 0);
    let put = |operation| Body::Put(WirePut { window: KEY, offset: 0, operation });
    assert_eq!(lone.feed(put(1), 0), Arrival::Done);
    assert_eq!(lone.sent(), []);
    let arrival = lone.feed(put(2), 1);
    lone.place(arrival);
    assert_eq!(lone.sent_one().common.ack_unordered, 2);
}

/// a granted request finds the last slot.
#[test]
fn the_last_slot_is_for_a_request() {
    let config = Config { operations_max: 1, channels_max: 2, requests_per_peer: 1, ..small() };
    let mut own = Region::of(&config);
    let mut lone = Lone::connected(&mut own, &config, &[TCP]);
    expose(&mut lone, 0);
    lone.busy = true;
    // Operations that serve the other peer.
    for kind in [OpKind::ServeGet, OpKind::ServeGet, OpKind::RefusePut, OpKind::ServeGet] {
        lone.endpoint.t.ops.insert(Op::new(kind)).unwrap();
    }
    let from = Remote { peer: PeerId(1), window: 3, offset: 8 };
    let get = GetRequest { segments: &seg(0, 100), ..GetRequest::new(from, &[]) };
    lone.endpoint.get(Time(0), &get).unwrap();
    let get = |operation| Body::Get(WireGet { window: KEY, offset: 0, bytes: 8, operation });
    assert_eq!(lone.feed(get(2), 0), Arrival::Done);
    assert_eq!(lone.sent().len(), 2);
    // The peer has the answer, and its rail has not completed it: so a refusal waits.
    lone.acks[1] = 2;
    lone.feed(Body::Credit, 0);
    assert_eq!(lone.feed(Body::Put(WirePut { window: 9, offset: 0, operation: 1 }), 8), Arrival::Discard);
    assert_eq!(lone.sent(), []);
    assert_eq!(lone.endpoint.t.ops.room(), 1);
    assert_eq!(lone.feed(get(3), 0), Arrival::Done);
    assert_eq!(lone.endpoint.t.ops.room(), 0);
}

/// A get and a put find the window's memory, and release it afterwards.
#[test]
fn completed_get_or_put_releases_the_window() {
    lone(&[TCP], |lone| {
        let window = expose(lone, 640);
        let get = WireGet { window: KEY, offset: 8, bytes: 16, operation: 5 };
        lone.posts.clear();
        lone.feed(Body::Get(get), 0);
        assert_eq!(lone.endpoint.deregister(window), Err(DeregisterError::Busy));
        let sent = lone.sent_one();
        assert_eq!((sent.body, sent.common.payload_bytes), (Body::Data(Data { operation: 5, offset: 0 }), 16));
        assert_eq!(lone.posts[0].2, seg(648, 16));
        lone.acks[1] = 1;
        lone.feed(Body::Credit, 0);
        let put = WirePut { window: KEY, offset: 56, operation: 6 };
        let arrival = lone.feed(Body::Put(put), 8);
        let Arrival::Place { memory, .. } = arrival else { panic!("{arrival:?}") };
        assert_eq!(lone.endpoint.segments(memory).collect::<Vec<_>>(), seg(640 + 56, 8));
        assert_eq!(lone.endpoint.deregister(window), Err(DeregisterError::Busy));
        lone.place(arrival);
        assert_eq!(lone.endpoint.deregister(window), Ok(()));
    });
}

/// F-3: a late FENCE does not change the peer's number of a rail whose newer connection is up.
#[test]
fn late_fence_does_not_change_the_peer_rail_number() {
    lone(&[TCP, TCP], |lone| {
        down(lone, 1, RailFault::TimedOut);
        up(lone, 1);
        lone.feed_on(1, connect(1, 2), 0, |_| {});
        lone.sent();
        lone.feed(Body::Fence(Fence { rail: 99, ..fence(1, false) }), 0);
        let sent = lone.sent();
        let [Repr { body: Body::Fence(answer), .. }] = &sent[..] else { panic!("{sent:?}") };
        assert!(answer.answer && answer.peer_rail == PEER_RAIL + 1, "{answer:?}");
        // If no connection is up, the peer's FENCE is the only source.
        down(lone, 1, RailFault::TimedOut);
        lone.sent();
        let theirs = Fence { rail: PEER_RAIL + 1, connection: 2, peer_connection: 2, ..fence(1, false) };
        lone.feed(Body::Fence(theirs), 0);
        let sent = lone.sent();
        let has_answer = sent.iter().any(|packet| matches!(packet.body, Body::Fence(fence) if fence.answer));
        assert!(has_answer, "{sent:?}");
    });
}

/// acknowledgments are requested at every eighth of a table once half of it is in use, and when it is
/// full; a table of fewer than eight places has no eighths.
#[test]
fn filling_table_requests_acknowledgments_at_its_marks() {
    let marks = |capacity| -> Vec<u32> {
        (0..=capacity).filter(|&room| crate::endpoint::packets::is_mark(room, capacity)).collect()
    };
    assert_eq!(marks(16), [0, 2, 4, 6, 8]);
    assert_eq!(marks(64), [0, 8, 16, 24, 32]);
    assert_eq!(marks(8), [0, 1, 2, 3, 4]);
    assert_eq!(marks(7), [0, 1, 2, 3]);
    assert_eq!(marks(1), [0]);
    assert_eq!(marks(0), [0]);
}

/// C-6: each message under an acknowledgment counts, however many packets it covers, and however many
/// messages an aggregate carried.
#[test]
fn an_acknowledgment_counts_all_that_it_covers() {
    const MOST: u16 = 0x7FFF;
    let left = |lone: &Lone<'_>| lone.endpoint.t.channels.at(0).allowance.messages_left();
    for is_aggregated in [false, true] {
        let config = if is_aggregated { aggregating() } else { small() };
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[TCP]);
        lone.limits.0 = MOST;
        lone.feed(Body::Credit, 0);
        assert_eq!(left(&lone), MOST.into());
        (0..3).for_each(|n| lone.send(n, 10));
        let packets = lone.sent().len() as u32;
        assert_eq!(packets, if is_aggregated { 1 } else { 3 });
        assert_eq!(left(&lone), u32::from(MOST) - 3);
        lone.acks[0] = packets;
        // The maximum: one more would be sent if one of the three were too high.
        lone.limits.0 = MOST + 4;
        lone.feed(Body::Credit, 0);
        assert_eq!(left(&lone), u32::from(MOST) + 1, "none is out");
    }
}

/// C-6: the number of unacknowledged messages never exceeds what serial numbers can distinguish, whatever is
/// granted.
#[test]
fn unacknowledged_messages_stay_within_the_serial_range() {
    let mut allowance = crate::rel::credit::Allowance::new(crate::seq::Seq(0));
    for (limit, used) in [(0x7000u16, 0x7000), (0x9000, 0x1000 - 1)] {
        assert!(allowance.update(limit, 0));
        assert!(allowance.message_allowed());
        allowance.use_messages(used);
    }
    assert_eq!((allowance.message_allowed(), allowance.messages_left()), (true, 1));
    allowance.use_messages(1);
    assert_eq!((allowance.message_allowed(), allowance.messages_left()), (false, 0));
    allowance.acked(2);
    assert_eq!((allowance.message_allowed(), allowance.messages_left()), (true, 2));
}
