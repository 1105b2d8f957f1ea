//! Put rendezvous over one rail at a time, and failures in the middle of it (F-7, X-4, X-11).

use super::lone::{Lone, PEER_RAIL};
use super::recovery::{connect, down, fence, fins, put_over_both, up};
use super::*;
use crate::wire::{Body, Cts, RemoteKey, Repr, Resume};

const BYTES: u64 = 40_000;

/// A message that is put over rail 0 alone, as far as keys and connections allow: its id.
pub(super) fn put_over_one(lone: &mut Lone<'_>) -> u64 {
    for class in [MessageClass::Large, MessageClass::Small] {
        lone.endpoint.set_policy(class, Policy::named("binding").unwrap());
    }
    lone.send(1, BYTES);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 1;
    rts.head.operation
}

/// A CTS with keys for these rails, of these connections.
pub(super) fn cts(operation: u64, epoch: u16, connections: &[(u8, u16)]) -> Body {
    let key = |&(rail, connection): &(u8, u16)| RemoteKey { rail: PEER_RAIL + rail, connection, key: 7, address: 0 };
    let keys = connections.iter().map(key).collect();
    Body::Cts(Cts { operation, target: 88, granted_bytes: BYTES, epoch, keys })
}

/// Bytes written since the last call, by rail.
pub(super) fn written(lone: &mut Lone<'_>) -> [u64; 2] {
    let mut bytes = [0; 2];
    for (rail, kind, memory) in core::mem::take(&mut lone.posts) {
        if matches!(kind, PostKind::Write { .. }) {
            bytes[usize::from(rail.0)] += memory.iter().map(|seg| seg.len).sum::<u64>();
        }
    }
    bytes
}

pub(super) fn is_resume(epoch: u16) -> impl Fn(&Repr) -> bool {
    move |packet| packet.body == Body::Resume(Resume { target: 88, epoch })
}

/// F-7: what was written over a connection that died is written again over the next one, all of it, and the
/// FIN of the new round follows it.
#[test]
fn writes_over_the_only_rail_are_written_again() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[PUT]);
    let operation = put_over_one(&mut lone);
    lone.feed(cts(operation, 0, &[(0, 1)]), 0);
    assert_eq!(fins(&lone.sent()), [(0, 1)]);
    assert_eq!(written(&mut lone), [BYTES, 0]);
    down(&mut lone, 0, RailFault::TimedOut);
    up(&mut lone, 0);
    lone.sent();
    lone.feed(connect(0, 2), 0);
    lone.feed(Body::Fence(fence(0, true)), 0);
    assert!(lone.sent().iter().any(is_resume(1)));
    lone.feed(cts(operation, 1, &[(0, 2)]), 0);
    assert_eq!(fins(&lone.sent()), [(1, 1)]);
    assert_eq!(written(&mut lone), [BYTES, 0]);
}

/// a rail that can't write any more, in the middle of a message, leaves the rest to another one that
/// can: in one round, because what it has written waits for its FIN.
#[test]
fn rest_of_a_denied_put_is_written_over_another_rail() {
    let mut region = Region::of(&small());
    let rail = RailFacts { posts_max: 2, ..PUT };
    let mut lone = Lone::connected(&mut region, &small(), &[rail, rail]);
    let operation = put_over_one(&mut lone);
    lone.busy = true;
    lone.feed(cts(operation, 0, &[(0, 1), (1, 1)]), 0);
    assert!(lone.sent().is_empty());
    let [before, 0] = written(&mut lone) else { panic!("rail 0 writes") };
    assert!(before > 0 && before < BYTES);
    lone.endpoint.handle_rail_event(Time(0), RailEvent::NoRemoteAccess { peer: PeerId(1), rail: RailId(0) });
    lone.busy = false;
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    }
    let sent = lone.sent();
    assert!(sent.iter().any(is_resume(1)), "{sent:?}");
    lone.feed(cts(operation, 1, &[(0, 1), (1, 1)]), 0);
    let sent = lone.sent();
    assert!(!sent.iter().any(is_resume(2)), "one round is enough: {sent:?}");
    assert_eq!(written(&mut lone), [0, BYTES - before]);
    assert_eq!(fins(&sent), [(1, 2), (1, 2)], "each rail's is behind its own writes");
}

/// F-7, X-11: so is the rest of a part; where the other rail still has a part of its own, what lies between
/// the two is written twice.
#[test]
fn rest_of_a_denied_stripe_is_written_over_another_rail() {
    for denied in [0, 1] {
        let mut region = Region::of(&small());
        let rail = RailFacts { posts_max: 2, ..PUT };
        let mut lone = Lone::connected(&mut region, &small(), &[rail, rail]);
        let operation = put_over_both(&mut lone);
        lone.busy = true;
        lone.feed(cts(operation, 0, &[(0, 1), (1, 1)]), 0);
        assert!(lone.sent().is_empty());
        let event = RailEvent::NoRemoteAccess { peer: PeerId(1), rail: RailId(denied) };
        lone.endpoint.handle_rail_event(Time(0), event);
        lone.busy = false;
        for id in core::mem::take(&mut lone.held) {
            lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
        }
        let sent = lone.sent();
        assert!(sent.iter().any(is_resume(1)), "{sent:?}");
        lone.rails.clear();
        lone.feed(cts(operation, 1, &[(0, 1), (1, 1)]), 0);
        let sent = lone.sent();
        assert!(!sent.iter().any(is_resume(2)), "one round is enough: {sent:?}");
        assert_eq!(fins(&sent), [(1, 2), (1, 2)]);
        let mut is_written = std::vec![false; BYTES as usize];
        for (_, kind, memory) in core::mem::take(&mut lone.posts) {
            if let PostKind::Write { to } = kind {
                let len: u64 = memory.iter().map(|seg| seg.len).sum();
                is_written[to.address as usize..(to.address + len) as usize].fill(true);
            }
        }
        assert_eq!(is_written.iter().position(|is_written| !is_written), None);
        let usage = lone.endpoint.usage();
        assert_eq!(usage.stripe_sets.used, 1);
    }
}

/// F-4, X-4: a rail that dies before anything was written over it leaves all of the message, and its FIN, to
/// another one.
#[test]
fn unstarted_put_is_written_over_another_rail() {
    let mut region = Region::of(&small());
    let rail = RailFacts { posts_max: 2, ..PUT };
    let mut lone = Lone::connected(&mut region, &small(), &[rail, rail]);
    let operation = put_over_one(&mut lone);
    // Rail 0 has no room: a packet is with it.
    lone.stuck = 1;
    lone.send(2, 8);
    assert_eq!(lone.sent().len(), 1);
    lone.feed(cts(operation, 0, &[(0, 1), (1, 1)]), 0);
    assert!(lone.sent().is_empty());
    assert_eq!(written(&mut lone), [0, 0]);
    lone.stuck = 0;
    lone.held.clear();
    down(&mut lone, 0, RailFault::TimedOut);
    assert_eq!(fins(&lone.sent()), [(0, 1)]);
    assert_eq!(written(&mut lone), [0, BYTES]);
}

/// F-7: where there is no table for parts, the rest waits for one: nothing is written where it must not be.
#[test]
fn without_a_table_for_parts_the_rest_waits() {
    let mut region = Region::of(&small());
    let rail = RailFacts { posts_max: 2, ..PUT };
    let config = Config { bulk_max: 1, ..small() };
    let mut lone = Lone::connected(&mut region, &config, &[rail, rail]);
    let operation = put_over_one(&mut lone);
    lone.busy = true;
    lone.feed(cts(operation, 0, &[(0, 1), (1, 1)]), 0);
    assert!(lone.sent().is_empty());
    let taken = lone.endpoint.paths.stripe_sets.insert(Default::default()).unwrap();
    lone.endpoint.handle_rail_event(Time(0), RailEvent::NoRemoteAccess { peer: PeerId(1), rail: RailId(0) });
    lone.busy = false;
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    }
    for epoch in 1..3 {
        assert!(lone.sent().iter().any(is_resume(epoch)));
        written(&mut lone);
        if epoch == 2 {
            lone.endpoint.paths.stripe_sets.remove(taken);
        }
        lone.feed(cts(operation, epoch, &[(0, 1), (1, 1)]), 0);
    }
    assert_eq!(fins(&lone.sent()), [(2, 2), (2, 2)]);
    let [0, after] = written(&mut lone) else { panic!("rail 0 can't write") };
    assert!(after > 0);
}
