//! What is repeated over other rails after a failure (F-5), and what can't be read or written any more
//!

use super::aggregates::aggregating;
use super::lone::{Lone, PEER_RAIL};
use super::recovery::{connect, down, fence, fins, put_over_both, region, up};
use super::single_puts::{cts, is_resume, put_over_one, written};
use super::*;
use crate::wire::{Body, Data, Fin, MessageHead, RemoteKey, Repr, Rts};

pub(super) fn deny(lone: &mut Lone<'_>, rail: u8) {
    let event = RailEvent::NoRemoteAccess { peer: PeerId(1), rail: RailId(rail) };
    lone.endpoint.handle_rail_event(Time(lone.now), event);
}

/// Rails complete what they hold, and all that follows.
pub(super) fn drain(lone: &mut Lone<'_>) {
    (lone.busy, lone.stuck) = (false, 0);
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::Done);
    }
}

fn sequenced(packets: &[Repr]) -> Vec<u32> {
    packets.iter().filter(|packet| packet.body.lane().is_some()).map(|packet| packet.common.psn).collect()
}

/// A message of so many bytes, with keys for these rails, meets the receive of this cookie.
fn announced(lone: &mut Lone<'_>, cookie: u64, bytes: u64, rails: &[u8]) {
    lone.recv(cookie, bytes);
    let key = |&rail: &u8| RemoteKey { rail: PEER_RAIL + rail, connection: 1, key: cookie, address: 0 };
    let head = MessageHead { operation: 70 + cookie, ..MessageHead::default() };
    let rts = Rts { head, message_bytes: bytes, keys: rails.iter().map(key).collect() };
    lone.feed(Body::Rts(rts), 0);
}

/// Reads since the last call: rail, key, bytes.
fn reads(lone: &mut Lone<'_>) -> Vec<(u8, u64, u64)> {
    let read = |(rail, kind, memory): (RailId, PostKind, Vec<Seg>)| match kind {
        PostKind::Read { from } => Some((rail.0, from.key, memory.iter().map(|seg| seg.len).sum::<u64>())),
        _ => None,
    };
    core::mem::take(&mut lone.posts).into_iter().filter_map(read).collect()
}

fn is_cts(packet: &Repr) -> bool {
    matches!(packet.body, Body::Cts(_))
}

/// F-5, W-11: the payload of an aggregate is that which it had.
#[test]
fn an_aggregate_has_its_payload_again() {
    let config = aggregating();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    (0..3).for_each(|n| lone.send(n, 10));
    let payload = |lone: &mut Lone<'_>| -> Vec<Vec<Seg>> {
        let memory = core::mem::take(&mut lone.posts).into_iter().map(|(.., memory)| memory);
        memory.filter(|memory| !memory.is_empty()).collect()
    };
    lone.posts.clear();
    assert_eq!(lone.sent_one().body, Body::Aggregate { count: 3 });
    let first = payload(&mut lone);
    assert_eq!(first.len(), 1);
    down(&mut lone, 0, RailFault::TimedOut);
    up(&mut lone, 0);
    lone.feed(connect(0, 2), 0);
    lone.sent();
    assert_eq!(payload(&mut lone), first);
}

/// F-5, X-10: an RTS that is repeated while its message is being written offers none of the peer's keys.
#[test]
fn a_repeated_rts_offers_no_key_of_the_peer() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT]);
    lone.rails.clear();
    let operation = put_over_both(&mut lone);
    lone.acks[0] = 0;
    let by = lone.rails[0].0;
    lone.busy = true;
    lone.feed_on(1 - by, cts(operation, 0, &[(0, 1), (1, 1)]), 0, |_| {});
    lone.sent();
    down(&mut lone, by, RailFault::TimedOut);
    drain(&mut lone);
    lone.feed_on(1 - by, Body::Fence(fence(by, true)), 0, |_| {});
    let sent = lone.sent();
    let rts = sent.iter().find_map(|packet| match &packet.body {
        Body::Rts(rts) => Some(rts),
        _ => None,
    });
    assert!(rts.is_some_and(|rts| rts.keys.is_empty()), "{sent:?}");
}

/// F-5: what the peer has answered with FIN is not announced again.
#[test]
fn an_rts_that_is_answered_is_not_repeated() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.send(1, 3000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.feed(Body::Fin(Fin { operation: rts.head.operation, count: 1, ..Fin::default() }), 0);
    assert!(lone.completed()[&1].is_ok());
    for connection in 2..4 {
        down(&mut lone, 0, RailFault::TimedOut);
        up(&mut lone, 0);
        lone.feed(connect(0, connection), 0);
        assert_eq!(sequenced(&lone.sent()), []);
    }
    lone.acks[0] = 1;
    lone.feed(Body::Credit, 0);
    lone.sent();
    let usage = lone.endpoint.usage();
    assert_eq!((usage.operations.used, usage.packets.used), (0, 0));
}

/// F-5: as many packets as a rail has room for are repeated at once, without waiting for one to complete.
#[test]
fn replay_fills_the_rail() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("round-robin").unwrap());
    (0..6).for_each(|n| lone.send(n, 10));
    assert_eq!(lone.sent().len(), 6);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    lone.feed(Body::Fence(fence(1, true)), 0);
    lone.busy = true;
    assert_eq!(sequenced(&lone.sent()).len(), 3);
}

/// F-5: reads are repeated, however many there are, each once.
#[test]
fn every_lost_read_is_repeated_once() {
    let rail = RailFacts { posts_max: 64, transfer_bytes_max: 4096, ..GET };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[rail; 4]);
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("even").unwrap());
    lone.busy = true;
    announced(&mut lone, 1, 400_000, &[0, 1, 2, 3]);
    lone.sent();
    let first = reads(&mut lone);
    let lost: Vec<u64> = first.iter().filter(|(rail, ..)| *rail != 0).map(|&(.., bytes)| bytes).collect();
    assert!(lost.len() > 20, "more than a batch has room for: {}", lost.len());
    (1..4).for_each(|rail| down(&mut lone, rail, RailFault::TimedOut));
    drain(&mut lone);
    let sent = lone.sent();
    assert!(sent.iter().any(|packet| matches!(&packet.body, Body::Fin(fin) if fin.placed_bytes == 400_000)));
    let bytes: u64 = first.iter().chain(&reads(&mut lone)).map(|(.., bytes)| bytes).sum();
    assert_eq!(bytes, 400_000 + lost.iter().sum::<u64>());
    assert_eq!(lone.endpoint.stats().replayed, lost.len() as u64);
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(400_000));
}

/// F-5, X-11: a message that is requested anew takes nothing of another one whose reads wait for room.
#[test]
fn a_message_that_is_requested_anew_takes_only_its_own_reads() {
    let rail = RailFacts { posts_max: 2, transfer_bytes_max: 40_000, ..GET };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[rail, RailFacts { posts_max: 8, ..rail }, TCP]);
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("binding").unwrap());
    lone.stuck = 0b11;
    // The reads of both are over rail 1, as rail 0 is full.
    announced(&mut lone, 1, 3000, &[0]);
    lone.sent();
    announced(&mut lone, 2, 3000, &[1]);
    lone.sent();
    announced(&mut lone, 3, 3000, &[0, 1]);
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("round-robin").unwrap());
    lone.sent();
    let first = reads(&mut lone);
    assert_eq!(first, [(0, 1, 3000), (1, 2, 3000), (1, 3, 3000)]);
    let on_first = lone.held[0];
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed_on(2, Body::Fence(fence(1, true)), 0, |_| {});
    let sent = lone.sent();
    assert_eq!(sent.iter().filter(|packet| is_cts(packet)).count(), 1, "{sent:?}");
    assert_eq!(reads(&mut lone), [], "rail 0 is full");
    lone.stuck = 0;
    lone.endpoint.handle_completion(Time(0), on_first, PostStatus::Done);
    lone.sent();
    assert_eq!(reads(&mut lone), [(0, 3, 3000)]);
    let done = lone.completed();
    assert_eq!(done.keys().copied().collect::<Vec<_>>(), [1, 3]);
}

/// F-5, X-11: a read whose key opens nothing keeps no packet from being repeated that waits for room.
#[test]
fn a_key_that_opens_nothing_does_not_stop_the_replay() {
    let rail = RailFacts { posts_max: 2, transfer_bytes_max: 40_000, ..GET };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[rail, TCP]);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("round-robin").unwrap());
    lone.rails.clear();
    (2..6).for_each(|n| lone.send(n, 10));
    assert_eq!(lone.sent().len(), 4);
    let on_second = lone.rails.iter().filter(|rail| rail.0 == 1).count();
    assert!(on_second > 0);
    lone.busy = true;
    announced(&mut lone, 1, 3000, &[0]);
    lone.sent();
    assert_eq!(reads(&mut lone), [(0, 1, 3000)]);
    let read = *lone.held.last().unwrap();
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed(Body::Fence(fence(1, true)), 0);
    assert_eq!(sequenced(&lone.sent()), [], "rail 0 is full");
    lone.endpoint.handle_completion(Time(0), read, PostStatus::NoAccess);
    drain(&mut lone);
    let sent = lone.sent();
    let eager = sent.iter().filter(|packet| matches!(packet.body, Body::Eager(_))).count();
    assert_eq!(eager, on_second, "{sent:?}");
    assert!(sent.iter().any(is_cts));
}

/// what a rail has not read yet another one with a key reads as soon as it is known that the first
/// can't, without waiting for what is posted.
#[test]
fn denied_read_is_completed_over_another_rail() {
    let rail = RailFacts { posts_max: 2, transfer_bytes_max: 4096, ..GET };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[rail, rail]);
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("binding").unwrap());
    lone.busy = true;
    announced(&mut lone, 1, 40_000, &[0, 1]);
    lone.sent();
    let first = reads(&mut lone);
    let [(by, _, bytes)] = first[..] else { panic!("{first:?}") };
    deny(&mut lone, by);
    let sent = lone.sent();
    let second = reads(&mut lone);
    assert!(matches!(second[..], [(rail, ..)] if rail != by), "{second:?} {sent:?}");
    drain(&mut lone);
    let sent = lone.sent();
    assert!(!sent.iter().any(is_cts), "{sent:?}");
    let rest: u64 = reads(&mut lone).iter().chain(&second).map(|(.., bytes)| bytes).sum();
    assert_eq!(bytes + rest, 40_000);
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(40_000));
}

/// a read over both rails that is requested anew frees what it was cut into.
#[test]
fn a_read_that_is_requested_anew_has_no_parts() {
    // Not all of it is being read when it turns out that it can't be.
    let rail = RailFacts { posts_max: 2, transfer_bytes_max: 4096, ..GET };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[rail, rail]);
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("even").unwrap());
    lone.busy = true;
    announced(&mut lone, 1, 40_000, &[0, 1]);
    lone.sent();
    assert_eq!(lone.endpoint.usage().stripe_sets.used, 1);
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(0), id, PostStatus::NoAccess);
    }
    lone.busy = false;
    assert_eq!(lone.sent().iter().filter(|packet| is_cts(packet)).count(), 1);
    let usage = lone.endpoint.usage();
    assert_eq!((usage.stripe_sets.used, usage.key_sets.used), (0, 0));
}

/// a rail that there is not can't lose its access.
#[test]
fn access_of_a_rail_that_there_is_not() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[GET]);
    for rail in 1..4 {
        deny(&mut lone, rail);
    }
    assert!((0..2).all(|rail| !lone.endpoint.paths.path(0, RailId(rail)).no_remote_access));
}

/// a FIN needs no key: where all is written, it follows over its rail, and no epoch is requested.
#[test]
fn a_fin_needs_no_key() {
    for (rails, expected) in [(&[(0, 1)][..], &[(0, 1)][..]), (&[(0, 1), (1, 1)], &[(0, 2), (0, 2)])] {
        let rail = RailFacts { posts_max: 2, transfer_bytes_max: 40_000, ..PUT };
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[rail, rail]);
        let operation = if rails.len() == 1 { put_over_one(&mut lone) } else { put_over_both(&mut lone) };
        lone.busy = true;
        lone.feed(cts(operation, 0, rails), 0);
        assert!(lone.sent().is_empty());
        assert_eq!(written(&mut lone).iter().sum::<u64>(), 40_000);
        deny(&mut lone, 0);
        drain(&mut lone);
        let sent = lone.sent();
        assert_eq!(fins(&sent), expected, "{sent:?}");
        assert!(!sent.iter().any(is_resume(1)));
    }
}

/// keys are requested for the message that lacks them, whatever else goes on.
#[test]
fn keys_are_requested_for_the_message_that_lacks_them() {
    for (both, denied) in [(false, &[0][..]), (false, &[0, 1]), (true, &[0, 1])] {
        let rail = RailFacts { posts_max: 2, transfer_bytes_max: 4096, ..PUT };
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[rail, rail]);
        let to = Remote { peer: PeerId(1), window: 3, offset: 8 };
        let put = PutRequest { cookie: Cookie(2), segments: &seg(0, 100), ..PutRequest::new(to, &[]) };
        lone.endpoint.put(Time(0), &put).unwrap();
        lone.sent();
        let operation = if both { put_over_both(&mut lone) } else { put_over_one(&mut lone) };
        lone.busy = true;
        lone.feed(cts(operation, 0, &[(0, 1), (1, 1)]), 0);
        lone.sent();
        denied.iter().for_each(|&rail| deny(&mut lone, rail));
        drain(&mut lone);
        let sent = lone.sent();
        assert!(sent.iter().any(is_resume(1)), "{sent:?}");
    }
}

/// what was read before a refusal does not count when the message comes by packets.
#[test]
fn a_read_that_is_requested_anew_begins_at_0() {
    let rail = RailFacts { posts_max: 2, transfer_bytes_max: 4096, ..GET };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[rail]);
    lone.busy = true;
    announced(&mut lone, 1, 8000, &[0]);
    lone.sent();
    for status in [PostStatus::Done, PostStatus::NoAccess] {
        let [id] = core::mem::take(&mut lone.held)[..] else { panic!("one read at a time: {:?}", lone.posts) };
        lone.endpoint.handle_completion(Time(0), id, status);
        lone.busy = status == PostStatus::Done;
        if lone.busy {
            lone.sent();
        }
    }
    let sent = lone.sent();
    let target = sent.iter().find_map(|packet| if let Body::Cts(cts) = &packet.body { Some(cts.target) } else { None });
    let target = target.unwrap_or_else(|| panic!("{sent:?}"));
    for n in 0..8 {
        assert!(lone.completed().is_empty(), "{n} of 8 parts are here");
        let arrival = lone.feed(Body::Data(Data { operation: target, offset: n * 1000 }), 1000);
        lone.place(arrival);
    }
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(8000));
}
