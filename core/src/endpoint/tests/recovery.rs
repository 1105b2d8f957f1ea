//! The rules of section F one by one, packet by packet. `programs.rs` tests them together, under any faults
//! in any order.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::*;
use crate::paths::TakeOver;
use crate::wire::{Body, Connect, Cts, Data, Fence, Fin, MessageHead, Put as PutBody, RemoteKey, Repr, Resume, Rts};

/// Rails that may fail, and one that stays up.
fn two(region: &mut Region) -> Lone<'_> {
    Lone::connected(region, &small(), &[TCP, TCP])
}

pub(super) fn region() -> Region {
    Region::of(&small())
}

pub(super) fn down(lone: &mut Lone<'_>, rail: u8, fault: RailFault) {
    let event = RailEvent::Down { peer: PeerId(1), rail: RailId(rail), fault };
    lone.endpoint.handle_rail_event(Time(lone.now), event);
}

/// A new connection is up at this end.
pub(super) fn up(lone: &mut Lone<'_>, rail: u8) {
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(rail) });
}

pub(super) fn connect(rail: u8, connection: u32) -> Body {
    Body::Connect(Connect { rail: PEER_RAIL + rail, connection, answer: true, ..PEER_PARAMETERS })
}

/// The peer's FENCE for the first connection of a rail.
pub(super) fn fence(rail: u8, answer: bool) -> Fence {
    Fence { rail: PEER_RAIL + rail, peer_rail: rail, connection: 1, peer_connection: 1, answer, ..Fence::default() }
}

/// The FENCE that the peer receives about it.
fn requested(rail: u8) -> Fence {
    Fence { rail, peer_rail: PEER_RAIL + rail, connection: 1, peer_connection: 1, ..Fence::default() }
}

fn eager(immediate: u64) -> Body {
    Body::Eager(MessageHead { immediate: Some(immediate), operation: 77, ..MessageHead::default() })
}

/// The one FENCE among some packets, without its PSNs.
fn fence_of(packets: &[Repr]) -> Option<Fence> {
    let mut fences = packets.iter().filter_map(|packet| match packet.body {
        Body::Fence(fence) => Some(Fence { ordered_beyond: 0, unordered_beyond: 0, ..fence }),
        _ => None,
    });
    let first = fences.next();
    assert_eq!(fences.next(), None);
    first
}

fn psns(packets: &[Repr]) -> Vec<u32> {
    packets.iter().filter(|packet| packet.body.lane().is_some()).map(|packet| packet.common.psn).collect()
}

/// F-1: every connection has the next number, and CONNECT carries it.
#[test]
fn connections_are_numbered() {
    let mut region = region();
    let mut lone = two(&mut region);
    for number in 2..5 {
        down(&mut lone, 1, RailFault::TimedOut);
        up(&mut lone, 1);
        let sent_frames = lone.sent().into_iter().find_map(|packet| match packet.body {
            Body::Connect(connect) => Some((connect.rail, connect.connection)),
            _ => None,
        });
        assert_eq!(sent_frames, Some((1, number)));
        lone.feed_on(1, connect(1, number), 0, |_| {});
        lone.sent();
    }
    // One that the peer has replaced already.
    lone.closed.clear();
    down(&mut lone, 1, RailFault::TimedOut);
    up(&mut lone, 1);
    lone.sent();
    lone.feed_on(1, connect(1, 3), 0, |_| {});
    lone.sent();
    assert_eq!(lone.closed, [RailId(1)]);
}

/// F-3, F-5: nothing of a dead connection is replayed before the peer's end is dead; then all unacknowledged
/// packets are, under their own numbers and over the rail that is up, except those that the peer reports as
/// received.
#[test]
fn replay_waits_for_the_fence() {
    let mut region = region();
    let mut lone = two(&mut region);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("round-robin").unwrap());
    for n in 0..6 {
        lone.send(n, 10);
    }
    lone.rails.clear();
    assert_eq!(psns(&lone.sent()), [0, 1, 2, 3, 4, 5]);
    let on_second: Vec<u32> = (0..6).filter(|n| lone.rails[*n as usize] == RailId(1)).collect();
    assert_eq!(on_second.len(), 3);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.rails.clear();
    let sent = lone.sent();
    assert_eq!((psns(&sent), fence_of(&sent)), (vec![], Some(requested(1))));
    assert!(lone.rails.iter().all(|rail| *rail == RailId(0)));
    // About another connection: no.
    lone.feed(Body::Fence(Fence { peer_connection: 2, ..fence(1, true) }), 0);
    lone.feed(Body::Fence(Fence { connection: 2, ..fence(1, true) }), 0);
    lone.feed(Body::Fence(fence(0, true)), 0);
    assert_eq!(psns(&lone.sent()), []);
    let mut region = Region::of(&small());
    let mut lone = two(&mut region);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("round-robin").unwrap());
    for n in 0..6 {
        lone.send(n, 10);
    }
    lone.sent();
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    // The last one on that rail has arrived, and all of the other's; the first two are missing.
    let first = on_second[0];
    lone.acks[0] = first;
    let beyond = (first + 1..6).filter(|n| !on_second[..2].contains(n)).fold(0, |bits, n| bits | 1 << (n - first - 1));
    lone.feed(Body::Fence(Fence { ordered_beyond: beyond, ..fence(1, true) }), 0);
    lone.rails.clear();
    let sent = lone.sent();
    assert_eq!(psns(&sent), on_second[..2]);
    assert!(sent.iter().all(|packet| packet.common.ack_now) && lone.rails.iter().all(|rail| *rail == RailId(0)));
    assert_eq!(lone.endpoint.stats().replayed, 2);
    lone.acks[0] = 6;
    lone.feed(Body::Credit, 0);
    assert_eq!(lone.completed().len(), 6);
    assert_eq!(lone.endpoint.usage().packets.used, 0);
}

/// F-3: the CONNECT of a new connection also reports the end; if no other rail is up, only that does.
#[test]
fn a_new_connection_is_a_fence() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.send(1, 10);
    lone.sent();
    down(&mut lone, 0, RailFault::Device { code: 5 });
    assert_eq!(lone.sent(), []);
    up(&mut lone, 0);
    assert!(matches!(lone.sent_one().body, Body::Connect(Connect { connection: 2, .. })));
    lone.feed(connect(0, 2), 0);
    assert_eq!(psns(&lone.sent()), [0]);
    lone.acks[0] = 1;
    lone.feed(Body::Credit, 0);
    assert!(lone.completed()[&1].is_ok());
}

/// F-4: an endpoint notified that the other end is dead aborts its own at once, confirms that on request, and
/// needs no answer itself.
#[test]
fn an_end_follows_the_other() {
    for requests_epoch in [true, false] {
        let mut region = region();
        let mut lone = two(&mut region);
        lone.closed.clear();
        lone.feed(Body::Fence(fence(1, !requests_epoch)), 0);
        let sent = lone.sent();
        assert_eq!(lone.closed, [RailId(1)]);
        assert_eq!(fence_of(&sent), requests_epoch.then_some(Fence { answer: true, ..requested(1) }));
        // Late packets on it are dropped.
        assert_eq!(lone.feed_on(1, eager(9), 0, |_| {}), Arrival::Discard);
        assert_eq!(lone.endpoint.poll_event(), None);
        // A repeated request, because the answer was lost, gets a repeated answer.
        lone.feed(Body::Fence(fence(1, false)), 0);
        assert_eq!(fence_of(&lone.sent()), Some(Fence { answer: true, ..requested(1) }));
    }
}

/// F-5: every kind of packet is replayed unchanged.
#[test]
fn every_packet_kind_is_retransmitted_unchanged() {
    let kinds: [fn(&mut Lone<'_>); 7] = [
        |lone| lone.send(1, 10),
        |lone| lone.send(1, 5000),
        |lone| {
            let to = Remote { peer: PeerId(1), window: 3, offset: 8 };
            let put = PutRequest { cookie: Cookie(1), segments: &seg(0, 100), ..PutRequest::new(to, &[]) };
            lone.endpoint.put(Time(0), &put).unwrap();
        },
        |lone| {
            let from = Remote { peer: PeerId(1), window: 3, offset: 8 };
            let get = GetRequest { cookie: Cookie(1), segments: &seg(0, 100), ..GetRequest::new(from, &[]) };
            lone.endpoint.get(Time(0), &get).unwrap();
        },
        |lone| {
            let at = Remote { peer: PeerId(1), window: 3, offset: 8 };
            let atomic =
                AtomicRequest { cookie: Cookie(1), ..AtomicRequest::new(at, AtomicKind::Add, AtomicType::U64, 5) };
            lone.endpoint.atomic(Time(0), &atomic).unwrap();
        },
        |lone| {
            lone.recv(1, 100);
            let head = MessageHead { operation: 77, ..MessageHead::default() };
            lone.feed(Body::Rts(Rts { head, message_bytes: 100, ..Rts::default() }), 0);
        },
        |lone| {
            let put = PutBody { window: 99, offset: 0, operation: 12 };
            lone.feed(Body::Put(put), 0);
        },
    ];
    for (index, kind) in kinds.into_iter().enumerate() {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
        kind(&mut lone);
        let sequenced = |packets: Vec<Repr>| -> Vec<_> {
            let mine = packets.into_iter().filter(|packet| packet.body.lane().is_some());
            mine.map(|packet| (packet.common.psn, packet.common.payload_bytes, packet.body)).collect()
        };
        let first = sequenced(lone.sent());
        assert_eq!(first.len(), 1, "kind {index}: {first:?}");
        for connection in 2..4 {
            down(&mut lone, 0, RailFault::TimedOut);
            up(&mut lone, 0);
            lone.feed(connect(0, connection), 0);
            assert_eq!(sequenced(lone.sent()), first, "kind {index}");
        }
    }
}

/// F-5: packets of one rail may be replayed over the other one: none is longer than both take.
#[test]
fn every_rail_can_carry_every_packet() {
    let wide = RailFacts { eager_bytes_max: 900, segment_bytes_max: 8000, ..TCP };
    let narrow = RailFacts { eager_bytes_max: 100, segment_bytes_max: 700, ..TCP };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[wide, narrow]);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("binding").unwrap());
    lone.send(1, 101);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("too long for the narrow one") };
    lone.feed(Body::Cts(Cts { operation: rts.head.operation, target: 4, granted_bytes: 101, ..Cts::default() }), 0);
    lone.sent();
    lone.send(2, 3000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.feed(Body::Cts(Cts { operation: rts.head.operation, target: 5, granted_bytes: 3000, ..Cts::default() }), 0);
    assert!(lone.sent().iter().all(|packet| packet.common.payload_bytes <= 700));
}

/// F-6: a payload whose rail dies half way is placed by its copy, at the original destination: in the receive
/// that it has met, or in its blocks; nothing is matched, granted or counted twice.
#[test]
fn copy_is_placed_at_the_original_destination() {
    for posted in [true, false] {
        let mut region = region();
        let mut lone = two(&mut region);
        if posted {
            lone.recv(1, 100);
        }
        let Arrival::Place { id, .. } = lone.feed_on(1, eager(5), 100, |_| {}) else { panic!("no place") };
        down(&mut lone, 1, RailFault::TimedOut);
        assert_eq!(lone.endpoint.place_memory(id), None, "the placement is aborted");
        let sent = lone.sent();
        assert!(sent.iter().all(|packet| packet.common.ack_ordered == 0), "it is not here: {sent:?}");
        lone.feed(Body::Fence(fence(1, true)), 0);
        // Another copy may come, and one behind it before.
        let late = lone.feed_on(0, eager(6), 0, |common| common.psn = 1);
        assert_eq!(late, Arrival::Done);
        let again = lone.feed_on(0, eager(5), 100, |common| common.psn = 0);
        lone.place(again);
        assert_eq!(lone.feed_on(0, eager(5), 100, |common| common.psn = 0), Arrival::Discard);
        if !posted {
            lone.recv(1, 100);
        }
        lone.recv(2, 100);
        lone.sent();
        let done = lone.completed();
        assert_eq!((done[&1].unwrap().immediate, done[&2].unwrap().immediate), (Some(5), Some(6)), "posted: {posted}");
        let usage = lone.endpoint.usage();
        assert_eq!(
            (usage.messages.used, usage.blocks.used, usage.placements.used, usage.operations.used),
            (0, 0, 0, 0)
        );
    }
}

/// The message that is put over both rails: its id, and the packets sent for it.
pub(super) fn put_over_both(lone: &mut Lone<'_>) -> u64 {
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("even").unwrap());
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
    lone.send(1, 40_000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 1;
    rts.head.operation
}

pub(super) fn cts(operation: u64, epoch: u16, rails: &[u8]) -> Body {
    let key = |rail: &u8| RemoteKey { rail: PEER_RAIL + rail, connection: 1, key: 7, address: 0 };
    let keys = rails.iter().map(key).collect();
    Body::Cts(Cts { operation, target: 88, granted_bytes: 40_000, epoch, keys })
}

pub(super) fn fins(packets: &[Repr]) -> Vec<(u16, u16)> {
    let fin = |packet: &Repr| match packet.body {
        Body::Fin(Fin { operation: 88, epoch, count, .. }) => Some((epoch, count)),
        _ => None,
    };
    packets.iter().filter_map(fin).collect()
}

/// F-7: writes over a connection that died are unconfirmed: RESUME has the number of the lost FIN; with the
/// CTS of that epoch they are written again, and every rail with writes to confirm sends a FIN of it.
#[test]
fn doubtful_writes_are_written_again() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT]);
    let operation = put_over_both(&mut lone);
    lone.feed(cts(operation, 0, &[0, 1]), 0);
    let sent = lone.sent();
    assert_eq!(fins(&sent), [(0, 2), (0, 2)]);
    let writes = lone.transfers;
    let numbers = psns(&sent);
    let lost = lone.rails.len() - 1;
    let lost_rail = lone.rails[lost].0;
    let lost_psn = *numbers.last().unwrap();
    // The other one's FIN is acknowledged, so nothing of it is unconfirmed.
    lone.acks[1] = lost_psn;
    let other = 1 - lost_rail;
    lone.feed_on(other, Body::Credit, 0, |_| {});
    down(&mut lone, lost_rail, RailFault::TimedOut);
    assert_eq!(psns(&lone.sent()), [], "not before the fence");
    lone.feed_on(other, Body::Fence(fence(lost_rail, true)), 0, |_| {});
    let resume = lone.sent_one();
    assert_eq!((resume.common.psn, resume.body), (lost_psn, Body::Resume(Resume { target: 88, epoch: 1 })));
    // A CTS of another epoch changes nothing.
    lone.feed_on(other, cts(operation, 0, &[other]), 0, |_| {});
    lone.feed_on(other, cts(operation, 2, &[other]), 0, |_| {});
    assert_eq!((psns(&lone.sent()), lone.transfers), (vec![], writes));
    lone.feed_on(other, cts(operation, 1, &[other]), 0, |_| {});
    lone.rails.clear();
    assert_eq!(fins(&lone.sent()), [(1, 1)]);
    assert!(lone.transfers > writes && lone.transfers < 2 * writes, "what was unconfirmed, and no more");
    assert!(lone.rails.iter().all(|rail| rail.0 == other));
    lone.acks[1] = lost_psn + 2;
    lone.feed_on(other, Body::Credit, 0, |_| {});
    assert_eq!(lone.completed().len(), 0, "acknowledged is not counted");
    let done = Fin { operation, count: 1, placed_bytes: 40_000, ..Fin::default() };
    lone.feed_on(other, Body::Fin(done), 0, |_| {});
    lone.sent();
    assert!(lone.completed()[&1].is_ok());
    assert_eq!(lone.endpoint.usage().operations.used, 0);
}

/// F-7, P-10: bytes that a rail had taken over and not begun to write lie before its unconfirmed ones. The
/// new epoch writes both.
#[test]
fn rebalanced_bytes_are_written_in_the_new_epoch() {
    // One post of a rail is kept for frames.
    let put = |posts: u16| RailFacts { posts_max: posts + 1, transfer_bytes_max: 10_240, ..PUT };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[put(1), put(2)]);
    let operation = put_over_both(&mut lone);
    lone.stuck = 0b11;
    lone.posts.clear();
    lone.feed(cts(operation, 0, &[0, 1]), 0);
    lone.sent();
    let range = |(_, kind, memory): &(RailId, PostKind, Vec<Seg>)| {
        let PostKind::Write { to } = kind else { return None };
        Some((to.address, to.address + memory.iter().map(|seg| seg.len).sum::<u64>()))
    };
    let written: Vec<_> = lone.posts.iter().filter_map(range).collect();
    assert_eq!(written, [(0, 10_240), (19_968, 30_208), (30_208, 40_000)], "rail 1 has all of its part, rail 0 not");
    let op = lone.endpoint.t.ops.indices().next().unwrap();
    lone.endpoint.take_over(0, op, &TakeOver { giver: RailId(0), taker: RailId(1), bytes: 4_096 });
    down(&mut lone, 1, RailFault::TimedOut);
    lone.stuck = 0;
    lone.feed_on(0, Body::Fence(fence(1, true)), 0, |_| {});
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::Done);
    }
    lone.sent();
    lone.posts.clear();
    lone.feed(cts(operation, 1, &[0]), 0);
    lone.sent();
    let mut again: Vec<_> = lone.posts.iter().filter_map(range).collect();
    again.sort_unstable();
    let mut covered = 10_240;
    for (from, to) in again {
        assert!(from <= covered, "no rail writes bytes {covered} to {from}");
        covered = to;
    }
    assert_eq!(covered, 40_000);
}

/// F-7, X-11: if no key of the new epoch is usable, the whole message is sent as data.
#[test]
fn without_keys_the_round_is_data() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT, TCP]);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
    let operation = put_over_both(&mut lone);
    lone.feed(cts(operation, 0, &[0]), 0);
    lone.sent();
    down(&mut lone, 0, RailFault::TimedOut);
    lone.feed_on(1, Body::Fence(fence(0, true)), 0, |_| {});
    assert!(matches!(lone.sent_one().body, Body::Resume(Resume { target: 88, epoch: 1 })));
    lone.feed_on(1, cts(operation, 1, &[]), 0, |_| {});
    let mut covered = 0;
    for packet in lone.sent() {
        let Body::Data(Data { operation: 88, offset }) = packet.body else { continue };
        assert_eq!(offset, covered);
        covered += u64::from(packet.common.payload_bytes);
    }
    assert_eq!(covered, 40_000);
}

/// F-7: a receiver begins an epoch on request if it is newer, counts FINs of it alone, and answers nothing
/// once it is complete.
#[test]
fn a_receiver_counts_one_round() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT]);
    lone.recv(1, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    let target = |packet: &Repr| match packet.body {
        Body::Cts(Cts { target, epoch, .. }) => (target, epoch),
        ref other => panic!("{other:?}"),
    };
    let (operation, epoch) = target(&lone.sent_one());
    assert_eq!(epoch, 0);
    let fin = |epoch, count| Body::Fin(Fin { operation, epoch, count, want_placed: true, ..Fin::default() });
    let resume = |epoch| Body::Resume(Resume { target: operation, epoch });
    lone.feed(fin(0, 2), 0);
    lone.feed(resume(1), 0);
    assert_eq!(target(&lone.sent_one()), (operation, 1));
    lone.feed(resume(1), 0);
    lone.feed(resume(0), 0);
    lone.feed(fin(0, 2), 0);
    lone.feed(fin(0, 2), 0);
    lone.feed(fin(1, 2), 0);
    assert_eq!((psns(&lone.sent()), lone.completed().len()), (vec![], 0));
    lone.feed(fin(1, 2), 0);
    let answer = lone.sent().into_iter().find(|packet| matches!(packet.body, Body::Fin(_))).expect("an answer");
    assert!(matches!(answer.body, Body::Fin(Fin { operation: 77, refused: None, .. })));
    assert!(lone.completed()[&1].is_ok());
    lone.feed(resume(2), 0);
    assert_eq!(psns(&lone.sent()), []);
}

/// F-8: a returning rail is estimated at an eighth of its former rate, until measurements show more.
#[test]
fn a_rail_that_returns_begins_small() {
    let facts = RailFacts { bytes_per_second: 800_000_000, ..TCP };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[facts, facts]);
    down(&mut lone, 1, RailFault::TimedOut);
    up(&mut lone, 1);
    let rate = |lone: &Lone<'_>, rail| lone.endpoint.paths.estimated_rate(0, RailId(rail)).bytes_per_second();
    let (whole, part) = (rate(&lone, 0), rate(&lone, 1));
    assert!(part.abs_diff(whole / 8) < whole / 100, "{part} of {whole}");
    assert_eq!(lone.endpoint.paths.path(0, RailId(1)).weight, 1);
}

/// F-8: a rail's link-up event triggers a redial once; then again when it has been up for a while, or when it
/// is needed.
#[test]
fn repeated_link_up_events_of_a_flapping_rail_are_ignored() {
    let config = small();
    let mut region = region();
    let mut lone = two(&mut region);
    let back = |lone: &mut Lone<'_>| {
        let state = |lone: &Lone<'_>| lone.endpoint.rail_health(PeerId(1), RailId(1)).unwrap().state;
        assert!(matches!(state(lone), RailState::Down { .. }), "{:?}", state(lone));
        lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Back { rail: RailId(1) });
        lone.sent();
        state(lone) == RailState::Opening
    };
    let mut stands = 1;
    let mut stand = |lone: &mut Lone<'_>, span| {
        stands += 1;
        up(lone, 1);
        lone.feed_on(1, connect(1, stands), 0, |_| {});
        lone.sent();
        lone.now += span;
        down(lone, 1, RailFault::TimedOut);
    };
    lone.now = 1;
    // The first is dialled at once (the failure may be short), and fails.
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    down(&mut lone, 1, RailFault::TimedOut);
    assert!(back(&mut lone));
    stand(&mut lone, config.redial_max.0 / 100);
    assert!(!back(&mut lone), "it has failed again at once");
    down(&mut lone, 0, RailFault::TimedOut);
    lone.sent();
    assert!(back(&mut lone), "there is nothing else");
    stand(&mut lone, config.redial_max.0 / 100);
    assert!(back(&mut lone), "as before");
    // After long enough up, it counts as new: a short failure, and the link-up event.
    stand(&mut lone, config.redial_max.0);
    up(&mut lone, 0);
    lone.feed_on(0, connect(0, 2), 0, |_| {});
    lone.sent();
    down(&mut lone, 1, RailFault::TimedOut);
    assert!(back(&mut lone));
}

/// F-5: if more was lost than the usable rails take at once, replay continues as they have room.
#[test]
fn retransmission_continues_when_the_rail_has_room() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.endpoint.set_policy(MessageClass::OneSided, Policy::named("round-robin").unwrap());
    lone.busy = true;
    let room = usize::from(TCP.posts_max) - 1;
    for n in 0..2 * room as u64 {
        let to = Remote { peer: PeerId(1), window: 3, offset: 8 * n };
        let put = PutRequest { cookie: Cookie(n), segments: &seg(0, 8), ..PutRequest::new(to, &[]) };
        lone.endpoint.put(Time(0), &put).unwrap();
    }
    assert_eq!(psns(&lone.sent()).len(), 2 * room);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed(Body::Fence(fence(1, true)), 0);
    assert_eq!(psns(&lone.sent()), [], "the other one is full");
    lone.busy = false;
    let on_first = |lone: &Lone<'_>| {
        let held = (0..lone.endpoint.t.packets.capacity()).filter_map(|index| lone.endpoint.t.packets.key_at(index));
        held.filter(|key| lone.endpoint.t.packets.at(key.index).posted).collect::<Vec<_>>()
    };
    for key in on_first(&lone) {
        lone.endpoint.handle_completion(Time(0), PostId(key), PostStatus::Done);
    }
    assert_eq!(psns(&lone.sent()).len(), room);
}

/// F-5: for data that the peer's FIN confirms, the numbers are replayed, without which its window would
/// stall, but not the bytes: the caller owns their memory.
#[test]
fn bytes_confirmed_by_a_fin_are_not_retransmitted() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.send(1, 3000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    let operation = rts.head.operation;
    lone.feed(Body::Cts(Cts { operation, target: 88, granted_bytes: 3000, ..Cts::default() }), 0);
    let data = lone.sent();
    assert!(!data.is_empty() && data.iter().all(|packet| packet.common.payload_bytes > 0));
    // Its acknowledgments are behind.
    lone.feed(Body::Fin(Fin { operation, count: 1, placed_bytes: 3000, ..Fin::default() }), 0);
    assert!(lone.completed()[&1].is_ok());
    lone.sent();
    down(&mut lone, 0, RailFault::TimedOut);
    up(&mut lone, 0);
    lone.feed(connect(0, 2), 0);
    let again: Vec<_> = lone.sent().into_iter().filter(|packet| matches!(packet.body, Body::Data(_))).collect();
    assert_eq!(psns(&again), psns(&data));
    assert!(again.iter().all(|packet| packet.common.payload_bytes == 0));
}

/// F-3: each dead connection has a fence of its own; one that is passed releases nothing of another.
#[test]
fn every_connection_has_its_own_fence() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP, TCP]);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("round-robin").unwrap());
    for n in 0..3 {
        lone.send(n, 10);
    }
    lone.rails.clear();
    assert_eq!(psns(&lone.sent()), [0, 1, 2]);
    let psn_of = |rail| lone.rails.iter().position(|on| *on == RailId(rail)).unwrap() as u32;
    let (first, second) = (psn_of(1), psn_of(2));
    down(&mut lone, 1, RailFault::TimedOut);
    down(&mut lone, 2, RailFault::TimedOut);
    lone.sent();
    lone.feed(Body::Fence(fence(1, true)), 0);
    assert_eq!(psns(&lone.sent()), [first]);
    lone.feed(Body::Fence(fence(2, true)), 0);
    assert_eq!(psns(&lone.sent()), [second]);
}
