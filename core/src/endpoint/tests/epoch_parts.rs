//! Retry epochs in which a rail can't go on with what it has begun (F-7, X-11): which rail has the rest, and
//! what is kept of it.

use super::lone::Lone;
use super::recovery::{connect, down, fence, fins, put_over_both, region, up};
use super::replay::{deny, drain};
use super::single_puts::{cts, is_resume, put_over_one};
use super::*;
use crate::wire::{Body, Cts, Fence, Fin};

const BYTES: u64 = 40_000;
/// Of messages over more than two rails.
const PART: u64 = 40_000;
const LONG: u64 = 3 * PART;

/// Rails that write one segment of 5,000 bytes at a time: one post is kept for frames.
const NARROW: RailFacts = RailFacts { posts_max: 2, transfer_bytes_max: 5000, ..PUT };

fn wide() -> Config {
    Config { rails_max: 5, ..small() }
}

/// Of these rails alone; bit per rail.
fn complete_of(lone: &mut Lone<'_>, rails: u64) {
    for id in core::mem::take(&mut lone.held) {
        let rail = lone.endpoint.t.packets.get(id.0).map(|packet| packet.rail);
        if rail.is_some_and(|rail| rails >> rail & 1 == 1) {
            lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::Done);
        } else {
            lone.held.push(id);
        }
    }
}

/// Writes since the last call: rail, from where to where.
fn writes(lone: &mut Lone<'_>) -> Vec<(u8, u64, u64)> {
    let write = |(rail, kind, memory): (RailId, PostKind, Vec<Seg>)| match kind {
        PostKind::Write { to } => {
            Some((rail.0, to.address, to.address + memory.iter().map(|seg| seg.len).sum::<u64>()))
        }
        _ => None,
    };
    core::mem::take(&mut lone.posts).into_iter().filter_map(write).collect()
}

/// Bytes of such writes over a rail.
fn bytes_of(writes: &[(u8, u64, u64)], rail: u8) -> u64 {
    writes.iter().filter(|write| write.0 == rail).map(|(_, from, to)| to - from).sum()
}

/// Where such writes, that leave nothing out from there on, end.
fn end_of(start: u64, writes: &[(u8, u64, u64)]) -> u64 {
    let mut writes = writes.to_vec();
    writes.sort_by_key(|write| write.1);
    writes.iter().fold(start, |end, &(_, from, to)| if from <= end { end.max(to) } else { end })
}

/// As [`put_over_both`], of so many bytes, over all rails that write.
fn put_over_all(lone: &mut Lone<'_>, bytes: u64) -> u64 {
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("even").unwrap());
    lone.send(1, bytes);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 1;
    rts.head.operation
}

fn cts_of(bytes: u64, operation: u64, epoch: u16, connections: &[(u8, u16)]) -> Body {
    match cts(operation, epoch, connections) {
        Body::Cts(cts) => Body::Cts(Cts { granted_bytes: bytes, ..cts }),
        other => other,
    }
}

fn planned(lone: &mut Lone<'_>) -> [u64; 2] {
    [0, 1].map(|rail| lone.endpoint.paths.path_mut(0, RailId(rail)).planned)
}

fn parts_used(lone: &Lone<'_>) -> u32 {
    lone.endpoint.usage().stripe_sets.used
}

fn stripe_bytes(lone: &Lone<'_>, rail: u8) -> u64 {
    lone.endpoint.rail_stats(RailId(rail)).unwrap().stripe_bytes
}

/// A message that rail 1 has begun to write: its id. A request came before it, and a transfer over both
/// rails, whose receiver soon ended it.
fn begun_by_second_rail(lone: &mut Lone<'_>) -> u64 {
    let from = Remote { peer: PeerId(1), window: 3, offset: 8 };
    let get = GetRequest { cookie: Cookie(9), segments: &seg(0, 100), ..GetRequest::new(from, &[]) };
    lone.endpoint.get(Time(0), &get).unwrap();
    lone.sent();
    let first = put_over_both(lone);
    lone.busy = true;
    lone.feed(cts(first, 0, &[(0, 1), (1, 1)]), 0);
    assert_eq!((lone.sent(), parts_used(lone)), (vec![], 1));
    lone.feed(Body::Fin(Fin { operation: first, count: 1, ..Fin::default() }), 0);
    drain(lone);
    lone.sent();
    assert_eq!((lone.completed().len(), parts_used(lone), planned(lone)), (1, 0, [0; 2]));
    let operation = put_over_one(lone);
    lone.acks[0] = 2;
    lone.busy = true;
    lone.posts.clear();
    lone.feed(cts(operation, 0, &[(1, 1)]), 0);
    assert!(lone.sent().is_empty());
    operation
}

/// F-7, X-11: the rest of a message that one rail has begun goes over another one, from where the first has
/// stopped; plans and figures show it. The first rail stays responsible for what it has written: it is
/// written again from its first byte on when that rail dies.
#[test]
fn the_rest_of_a_message_is_a_part_of_another_rail() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[NARROW, NARROW]);
    let operation = begun_by_second_rail(&mut lone);
    assert_eq!(writes(&mut lone), [(1, 0, 5000)]);
    deny(&mut lone, 1);
    drain(&mut lone);
    assert!(lone.sent().iter().any(is_resume(1)));
    // Of other transfers.
    lone.endpoint.paths.path_mut(0, RailId(0)).planned = 1000;
    lone.endpoint.paths.path_mut(0, RailId(1)).planned = 500;
    lone.feed(cts(operation, 1, &[(0, 1), (1, 1)]), 0);
    assert_eq!(planned(&mut lone), [1000 + 35_000, 500]);
    assert_eq!(fins(&lone.sent()), [(1, 2), (1, 2)]);
    let written = writes(&mut lone);
    assert_eq!((bytes_of(&written, 0), bytes_of(&written, 1)), (35_000, 0));
    assert_eq!(end_of(5000, &written), BYTES);
    assert_eq!(planned(&mut lone), [1000, 500]);
    assert_eq!(stripe_bytes(&lone, 0), 35_000);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed(Body::Fence(fence(1, true)), 0);
    assert!(lone.sent().iter().any(is_resume(2)));
    lone.feed(cts(operation, 2, &[(0, 1)]), 0);
    lone.sent();
    let again = writes(&mut lone);
    assert_eq!(again.iter().map(|write| write.1).min(), Some(0), "{again:?}");
}

/// F-7: a rail that can go on does, in the new epoch too, without a table for parts; and so does one that has
/// nothing left to write but its FIN, whether it could write or not.
#[test]
fn a_message_of_one_rail_stays_one() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[NARROW, NARROW]);
    let operation = begun_by_second_rail(&mut lone);
    lone.feed(cts(operation, 1, &[(0, 1), (1, 1)]), 0);
    assert_eq!(parts_used(&lone), 0);
    drain(&mut lone);
    assert_eq!(fins(&lone.sent()), [(1, 1)]);
    let written = writes(&mut lone);
    assert_eq!((end_of(0, &written), bytes_of(&written, 1)), (BYTES, BYTES));

    let mut other = super::recovery::region();
    let rail = RailFacts { transfer_bytes_max: 40_000, ..NARROW };
    let mut lone = Lone::connected(&mut other, &small(), &[rail, rail]);
    let operation = begun_by_second_rail(&mut lone);
    assert_eq!(writes(&mut lone), [(1, 0, BYTES)]);
    deny(&mut lone, 1);
    lone.feed(cts(operation, 1, &[(0, 1)]), 0);
    assert_eq!(parts_used(&lone), 0);
    drain(&mut lone);
    lone.rails.clear();
    assert_eq!(fins(&lone.sent()), [(1, 1)]);
    assert_eq!((writes(&mut lone), lone.rails.last()), (vec![], Some(&RailId(1))));
}

/// F-7, X-11: a rail with a part of its own has the rest of another's besides, and both are planned and
/// counted once.
#[test]
fn the_rest_of_a_part_is_planned_once() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[NARROW, NARROW]);
    let operation = put_over_both(&mut lone);
    lone.busy = true;
    lone.feed(cts(operation, 0, &[(0, 1), (1, 1)]), 0);
    assert!(lone.sent().is_empty());
    deny(&mut lone, 0);
    drain(&mut lone);
    assert!(lone.sent().iter().any(is_resume(1)));
    assert_eq!(planned(&mut lone).map(|bytes| bytes < 20_000), [true; 2]);
    let [giver, taker] = planned(&mut lone);
    lone.feed(cts(operation, 1, &[(0, 1), (1, 1)]), 0);
    // From where the first part has stopped to the end; what lies between is written twice.
    assert_eq!((giver, planned(&mut lone)), (14_968, [0, 35_000]));
    assert!(taker < 35_000);
    assert_eq!(fins(&lone.sent()), [(1, 2), (1, 2)]);
    assert_eq!(stripe_bytes(&lone, 1), 20_032 + (35_000 - taker));
}

/// F-7: a part that is written and waits to send its FIN has no rest: its rail needs no key, and no other
/// rail anything of it.
#[test]
fn a_part_that_is_written_has_no_rest() {
    let mut region = region();
    let first = RailFacts { posts_max: 5, ..NARROW };
    let mut lone = Lone::connected(&mut region, &small(), &[first, NARROW]);
    let operation = put_over_both(&mut lone);
    lone.busy = true;
    lone.posts.clear();
    lone.feed(cts(operation, 0, &[(0, 1), (1, 1)]), 0);
    assert!(lone.sent().is_empty());
    let before = writes(&mut lone);
    assert_eq!((bytes_of(&before, 0), bytes_of(&before, 1)), (19_968, 5000));
    deny(&mut lone, 0);
    lone.feed(cts(operation, 1, &[(0, 1), (1, 1)]), 0);
    drain(&mut lone);
    assert_eq!(fins(&lone.sent()), [(1, 2), (1, 2)]);
    let after = writes(&mut lone);
    assert_eq!((bytes_of(&after, 0), bytes_of(&after, 1)), (0, 20_032 - 5000));
}

/// Rails `0..writing` write a part each of 40,000 bytes or so, and the next one can't. These of them die one
/// after the other, before they have begun with their own, which rail 1 carries from then on. Rails 0 and 1
/// have written and are full.
fn with_parts_moved<'m>(region: &'m mut Region, writing: u8, lost: &[u8]) -> (Lone<'m>, u64) {
    let mut rails = vec![NARROW; usize::from(writing)];
    rails.push(RailFacts { posts_max: 100, ..TCP });
    let mut lone = Lone::connected(region, &wide(), &rails);
    let bytes = u64::from(writing) * PART;
    let operation = put_over_all(&mut lone, bytes);
    lone.stuck = (1 << writing) - 1;
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("round-robin").unwrap());
    // A packet fills each that is to die.
    lone.rails.clear();
    (0..=writing).for_each(|n| lone.send(10 + u64::from(n), 8));
    lone.sent();
    assert!(lost.iter().all(|&rail| lone.rails.contains(&RailId(rail))));
    complete_of(&mut lone, 0b11);
    lone.acks[0] = lone.endpoint.t.channels.at(0).sent[0].next().0;
    lone.feed_on(writing, Body::Credit, 0, |_| {});
    lone.posts.clear();
    let keys: Vec<(u8, u16)> = (0..writing).map(|rail| (rail, 1)).collect();
    lone.feed_on(writing, cts_of(bytes, operation, 0, &keys), 0, |_| {});
    lone.sent();
    assert_eq!(writes(&mut lone).iter().map(|write| write.0).collect::<Vec<_>>(), [0, 1]);
    for &rail in lost {
        complete_of(&mut lone, 0b10);
        down(&mut lone, rail, RailFault::TimedOut);
        lone.feed_on(writing, Body::Fence(fence(rail, true)), 0, |_| {});
        lone.sent();
        assert_eq!(writes(&mut lone).iter().map(|write| write.0).collect::<Vec<_>>(), [1]);
    }
    (lone, operation)
}

/// F-7, P-10: of several parts that have moved, each goes on with the rail that carries it, though another
/// one of them is over, and its rail, back again, has a rest of a third.
#[test]
fn parts_that_have_moved_are_not_forgotten() {
    let mut region = Region::of(&wide());
    let (mut lone, operation) = with_parts_moved(&mut region, 4, &[3, 2]);
    // Rail 1 comes to the end of parts 1 and 2.
    let mut over = vec![];
    while over.len() < 2 {
        complete_of(&mut lone, 0b10);
        let sent = lone.sent();
        over.extend(sent.iter().filter(|packet| matches!(packet.body, Body::Fin(_))).map(|packet| packet.common.psn));
    }
    complete_of(&mut lone, 0b10);
    lone.sent();
    lone.acks[1] = over[1] + 1;
    lone.feed_on(4, Body::Credit, 0, |_| {});
    up(&mut lone, 2);
    lone.feed_on(2, connect(2, 2), 0, |_| {});
    lone.sent();
    deny(&mut lone, 0);
    lone.posts.clear();
    lone.feed_on(4, cts_of(4 * PART, operation, 1, &[(1, 1), (2, 2)]), 0, |_| {});
    drain(&mut lone);
    lone.sent();
    let after = writes(&mut lone);
    let [by_first, by_second] =
        [1, 2].map(|by| after.iter().copied().filter(|write| write.0 == by).collect::<Vec<_>>());
    assert!(end_of(5000, &by_second) > PART - 100, "{after:?}");
    assert_eq!(end_of(by_first[0].1, &by_first), 4 * PART, "{after:?}");
}

/// F-7, P-10: a rail that takes a rest over leaves what others carry of parts that are not theirs with them.
#[test]
fn a_part_that_has_moved_is_not_forgotten() {
    let mut region = Region::of(&wide());
    let (mut lone, operation) = with_parts_moved(&mut region, 3, &[2]);
    deny(&mut lone, 0);
    drain(&mut lone);
    assert!(lone.sent().iter().any(is_resume(1)));
    writes(&mut lone);
    lone.feed_on(3, cts_of(LONG, operation, 1, &[(1, 1)]), 0, |_| {});
    let sent = lone.sent();
    let after = writes(&mut lone);
    assert_eq!(fins(&sent).len(), 3, "{sent:?} {after:?}");
    assert!(after.iter().all(|write| write.0 == 1) && end_of(5000, &after) == LONG, "{after:?}");
}

/// F-7, X-4: a rail whose part another one carries takes no rest as long as that has not come to its end:
/// another epoch is requested, where no other rail can take it. Then it does.
#[test]
fn a_rail_takes_no_rest_beside_its_part_that_has_moved() {
    for is_over in [false, true] {
        let mut region = Region::of(&wide());
        let (mut lone, operation) = with_parts_moved(&mut region, 3, &[2]);
        lone.posts.clear();
        if is_over {
            lone.stuck = 0b01;
            complete_of(&mut lone, 0b10);
            let sent = lone.sent();
            assert_eq!(fins(&sent), [(0, 3), (0, 3)]);
            lone.acks[1] = sent.iter().map(|packet| packet.common.psn + 1).max().unwrap();
            lone.feed_on(3, Body::Credit, 0, |_| {});
        }
        up(&mut lone, 2);
        lone.feed_on(2, connect(2, 2), 0, |_| {});
        deny(&mut lone, 0);
        drain(&mut lone);
        assert!(lone.sent().iter().any(is_resume(1)));
        lone.posts.clear();
        lone.feed_on(3, cts_of(LONG, operation, 1, &[(2, 2)]), 0, |_| {});
        let sent = lone.sent();
        let after = writes(&mut lone);
        if is_over {
            assert_eq!(fins(&sent), [(1, 2), (1, 2)]);
            assert!(after.iter().all(|write| write.0 == 2), "{after:?}");
            assert!(end_of(5000, &after) > 39_000);
        } else {
            assert!(sent.iter().any(is_resume(2)), "{sent:?} {after:?}");
            assert_eq!(fins(&sent), []);
            lone.feed_on(3, cts_of(LONG, operation, 2, &[(1, 1)]), 0, |_| {});
            lone.sent();
            assert_eq!(end_of(5000, &writes(&mut lone)), LONG, "none is left out");
        }
    }
}

/// F-7, P-10: what is written again, and what another rail takes over, goes in segments as large as its rail
/// takes: no part may move any more.
#[test]
fn rewritten_bytes_use_large_segments() {
    let rail = RailFacts { transfer_bytes_max: 20_000_000, ..PUT };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[rail, rail]);
    let operation = put_over_all(&mut lone, 2_000_000);
    let whole = |epoch, connections: &[(u8, u16)]| cts_of(2_000_000, operation, epoch, connections);
    lone.feed_on(1, whole(0, &[(0, 1), (1, 1)]), 0, |_| {});
    lone.sent();
    assert_eq!(writes(&mut lone).len(), 2);
    for is_back in [true, false] {
        let epoch = if is_back { 1 } else { 2 };
        down(&mut lone, 0, RailFault::TimedOut);
        let connection = if is_back { 1 } else { 2 };
        let about = Fence { connection, peer_connection: connection, ..fence(0, true) };
        lone.feed_on(1, Body::Fence(about), 0, |_| {});
        lone.sent();
        if is_back {
            up(&mut lone, 0);
            lone.feed(connect(0, 2), 0);
            lone.sent();
        }
        lone.feed_on(1, whole(epoch, if is_back { &[(0, 2), (1, 1)] } else { &[(1, 1)] }), 0, |_| {});
        lone.sent();
        let again = writes(&mut lone);
        assert_eq!(again.len(), 1, "{again:?}");
    }
}

/// P-10, F-5: what another rail takes over from one that has died does not move any more: it goes in segments
/// as large as the rail takes.
#[test]
fn bytes_taken_over_from_a_dead_rail_use_large_segments() {
    let rail = RailFacts { segment_bytes_max: 1_000_000, bytes_per_second: 1_000_000_000, ..TCP };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[rail, rail]);
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("balanced").unwrap());
    lone.send(1, 4_000_000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 1;
    lone.busy = true;
    lone.feed(cts_of(4_000_000, rts.head.operation, 0, &[]), 0);
    let longest = |lone: &mut Lone<'_>| lone.sent().iter().map(|packet| packet.common.payload_bytes).max();
    assert_eq!(longest(&mut lone), Some(32 << 10), "parts may move");
    down(&mut lone, 1, RailFault::TimedOut);
    drain(&mut lone);
    assert_eq!(longest(&mut lone), Some(1_000_000));
}
