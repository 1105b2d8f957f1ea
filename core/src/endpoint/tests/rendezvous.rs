//! The messages of a rendezvous, and what FIN ends.

use super::lone::Lone;
use super::recovery::{fins, region};
use super::single_puts::{cts, put_over_one};
use super::*;
use crate::api::config::Policy;
use crate::store::NONE;
use crate::wire::{Body, Connect, Cts, Data, Fin, MessageHead, Refusal, Repr, Rts};

fn fin(operation: u64) -> Fin {
    Fin { operation, count: 1, ..Fin::default() }
}

/// A message of 3,000 bytes is announced, with a key where the rail reads.
fn announce(lone: &mut Lone<'_>) -> u64 {
    lone.send(1, 3000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    rts.head.operation
}

/// FINs are of the round that the CTS is of, of the first CTS too.
#[test]
fn fins_are_of_the_round_of_the_cts() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT]);
    let operation = put_over_one(&mut lone);
    lone.feed(cts(operation, 3, &[(0, 1)]), 0);
    assert_eq!(fins(&lone.sent()), [(3, 1)]);
}

/// a receive whose memory no rail could register is not being written: a FIN ends it as little as
/// before its data is here.
#[test]
fn a_receive_without_keys_is_not_ended_by_fin() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT]);
    lone.slow = true;
    lone.recv(1, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    lone.sent();
    let (operation, rail) = lone.requested[0];
    lone.endpoint.handle_registered(operation, rail, Err(RailFault::Refused));
    let Body::Cts(Cts { target, keys, .. }) = lone.sent_one().body else { panic!("no CTS") };
    assert!(keys.is_empty());
    let stale = lone.endpoint.stats().stale_dropped;
    lone.feed(Body::Fin(fin(target)), 0);
    assert_eq!((lone.endpoint.stats().stale_dropped, lone.completed()), (stale + 1, BTreeMap::new()));
    for offset in [0, 1000, 2000] {
        let arrival = lone.feed(Body::Data(Data { operation: target, offset }), 1000);
        lone.place(arrival);
    }
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(3000));
}

/// after FIN, be it the end or a refusal, no peer reads the message's memory any more: its
/// registrations are released at once, though the rail has not completed the RTS.
#[test]
fn fin_gives_registrations_back_at_once() {
    for refused in [None, Some(Refusal::NoAccess)] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[GET]);
        lone.busy = true;
        let operation = announce(&mut lone);
        lone.feed(Body::Fin(Fin { refused, placed_bytes: 3000, ..fin(operation) }), 0);
        assert_eq!((lone.sent(), lone.completed()), (vec![], BTreeMap::new()));
        assert_eq!(lone.given_back, [(RailId(0), 1)], "{refused:?}");
        let id = lone.held[0];
        lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
        assert_eq!(lone.completed()[&1].is_ok(), refused.is_none());
    }
}

/// a put that is refused before all of it is sent is complete with the sent part, if the peer has that
/// already.
#[test]
fn put_refused_before_it_is_fully_sent_is_completed() {
    let mut region = region();
    let mut lone = Lone::up(&mut region, &small(), &[TCP]);
    let window = 64;
    lone.feed(Body::Connect(Connect { window, ..super::lone::PEER_PARAMETERS }), 0);
    lone.sent();
    let to = Remote { peer: PeerId(1), window: 3, offset: 0 };
    let put = PutRequest { cookie: Cookie(1), segments: &seg(0, 1_000_000), ..PutRequest::new(to, &[]) };
    let operation = lone.endpoint.put(Time(0), &put).unwrap().0.to_bits();
    assert_eq!(lone.sent().len(), window as usize);
    lone.acks[1] = window;
    lone.feed(Body::Fin(Fin { refused: Some(Refusal::NoWindow), ..fin(operation) }), 0);
    let error = OpError::Refused { peer: PeerId(1), why: Refusal::NoWindow };
    assert_eq!(lone.completed().get(&1), Some(&Err(error)));
    assert_eq!(lone.sent(), []);
}

/// G-7: BYE may wait for the FIN of an injected message, which is complete for its caller long before.
#[test]
fn last_fin_releases_the_pending_bye() {
    let mut region = region();
    let mut lone = Lone::up(&mut region, &small(), &[TCP]);
    // No blocks are granted: it is announced (C-7).
    lone.limits.1 = 0;
    lone.feed(Body::Connect(super::lone::PEER_PARAMETERS), 0);
    lone.sent();
    let send = SendRequest { cookie: Cookie(1), ..SendRequest::new(PeerId(1), &[]) };
    lone.endpoint.inject(Time(0), &send, 8).unwrap();
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    let operation = rts.head.operation;
    lone.feed(Body::Cts(Cts { operation, target: 88, granted_bytes: 8, ..Cts::default() }), 0);
    assert!(matches!(lone.sent_one().body, Body::Data(_)));
    lone.acks = [1, 1];
    lone.feed(Body::Credit, 0);
    lone.sent();
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    let is_bye = |packet: &Repr| packet.body == Body::Bye;
    assert!(!lone.sent().iter().any(is_bye), "the receiver may request it again");
    lone.feed(Body::Fin(Fin { placed_bytes: 8, ..fin(operation) }), 0);
    assert!(lone.sent().iter().any(is_bye));
}

/// of a message that its receiver ends early nothing is left to be sent, as people see it too, while a
/// rail still has some of it.
#[test]
fn message_ended_early_by_a_fin_counts_as_sent() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.send(1, 40_000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    let operation = rts.head.operation;
    lone.busy = true;
    lone.feed(Body::Cts(Cts { operation, target: 88, granted_bytes: 40_000, ..Cts::default() }), 0);
    assert_eq!(lone.sent().len(), 3);
    let is_sent = |lone: &Lone<'_>| -> Vec<_> { lone.endpoint.operations().map(|op| (op.is_sent, op.posts)).collect() };
    assert_eq!(is_sent(&lone), [(false, 3)]);
    lone.feed(Body::Fin(Fin { placed_bytes: 5000, ..fin(operation) }), 0);
    assert_eq!(is_sent(&lone), [(true, 3)]);
}

/// P-2, P-7: a message's stripe times are evaluated when its last post completes, and not before.
#[test]
fn stripes_are_concluded_with_the_last_post() {
    let config = Config { striping: Policy::Even, recovery: false, ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
    lone.send(1, 40_000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    let op = rts.head.operation as u32;
    let cts = Cts { operation: rts.head.operation, target: 88, granted_bytes: 40_000, ..Cts::default() };
    lone.feed(Body::Cts(cts), 0);
    lone.busy = true;
    lone.sent();
    while !lone.held.is_empty() {
        let post = lone.held.remove(0);
        let set = lone.endpoint.t.ops.at(op).stripes;
        assert!(
            set != NONE && !lone.endpoint.paths.stripe_sets.at(set).is_finished,
            "{} posts are left",
            lone.held.len()
        );
        lone.endpoint.handle_completion(Time(100), post, PostStatus::Done);
        lone.sent();
    }
    assert_eq!(lone.endpoint.t.ops.at(op).stripes, NONE);
}
