//! Situations in which wrong assumptions about several rails show: that packets come in order, that a FIN is
//! a formality, that a dead rail is silent. Each is a mutant as well
//! (`conformance/mutants/patches/assumptions.toml`).

use super::lone::Lone;
use super::*;
use crate::wire::{Body, Cts, Fin, MessageHead, RemoteKey, Repr};

fn eager(operation: u64) -> Body {
    Body::Eager(MessageHead { operation, ..MessageHead::default() })
}

/// Rank 0 alone, with the test as its peer.
fn lone<T>(rails: &[RailFacts], course: impl FnOnce(&mut Lone<'_>) -> T) -> T {
    let config = small();
    let mut regions = regions(&config, 1);
    let mut region = regions.pop().unwrap();
    let mut lone = Lone::connected(&mut region, &config, rails);
    course(&mut lone)
}

/// Of two messages the older one arrives later, and is received all the same, first.
#[test]
fn rails_overtake_each_other() {
    lone(&[TCP, TCP], |lone| {
        lone.recv(1, 10);
        lone.recv(2, 10);
        lone.feed_on(1, eager(1), 0, |common| common.psn = 1);
        assert!(lone.completed().is_empty(), "matched before its turn");
        lone.feed_on(0, eager(0), 0, |common| common.psn = 0);
        lone.sent();
        assert_eq!(lone.completed().into_keys().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(lone.endpoint.stats().duplicates_dropped, 0);
    });
    // On the lane without order both are served: here, refused.
    lone(&[TCP, TCP], |lone| {
        let put = |len| crate::wire::Put { window: 0, offset: len, operation: len };
        lone.feed_on(1, Body::Put(put(1)), 0, |common| common.psn = 1);
        lone.feed_on(0, Body::Put(put(2)), 0, |common| common.psn = 0);
        assert_eq!(lone.endpoint.usage().refusals.used, 2);
    });
}

/// A rail's completion of a post is no proof that the peer has received it.
#[test]
fn a_completed_post_completes_no_request() {
    lone(&[PUT], |lone| {
        for (cookie, level) in [(1, Level::Acknowledged), (2, Level::Placed)] {
            let send = SendRequest {
                level,
                cookie: Cookie(cookie),
                segments: &seg(0, 100),
                ..SendRequest::new(PeerId(1), &[])
            };
            lone.endpoint.send(Time(0), &send).unwrap();
        }
        let to = Remote { peer: PeerId(1), window: 9, offset: 0 };
        let put = PutRequest { cookie: Cookie(3), segments: &seg(0, 100), ..PutRequest::new(to, &[]) };
        lone.endpoint.put(Time(0), &put).unwrap();
        lone.send(4, 5000);
        let mut sent = lone.sent();
        let rts = sent.iter().position(|packet| matches!(packet.body, Body::Rts(_))).expect("an RTS");
        let Body::Rts(rts) = sent.swap_remove(rts).body else { unreachable!() };
        let mut keys = crate::wire::RemoteKeys::new();
        keys.push(RemoteKey { rail: lone::PEER_RAIL, connection: 1, key: 1, address: 0 }).unwrap();
        let cts = Cts { operation: rts.head.operation, target: 1, granted_bytes: 5000, keys, epoch: 0 };
        lone.feed(Body::Cts(cts), 0);
        lone.sent();
        assert_eq!(lone.transfers, 1);
        assert!(lone.completed().is_empty(), "nothing is acknowledged");
    });
}

/// A duplicate is acknowledged, as the message is.
#[test]
fn duplicates_are_acknowledged() {
    lone(&[TCP], |lone| {
        lone.feed_on(0, eager(1), 0, |common| common.ack_now = true);
        assert_eq!(lone.sent().len(), 1);
        lone.feed_on(0, eager(1), 0, |common| common.psn = 0);
        assert_eq!(lone.sent().len(), 1);
    });
}

/// A report that comes twice ends no post that took the slot since; nor does a FIN.
#[test]
fn an_index_is_no_name() {
    let post = |lone: &mut Lone<'_>| {
        let mut actions = heapless::Vec::new();
        lone.endpoint.poll_actions(Time(0), &mut actions);
        let [Action::Post(post)] = &actions[..] else { panic!("no post: {actions:?}") };
        post.id
    };
    lone(&[SHM], |lone| {
        lone.send(1, 100);
        let first = post(lone);
        lone.endpoint.handle_completion(Time(0), first, PostStatus::Done);
        lone.acks = [1, 0];
        lone.feed(Body::Credit, 0);
        assert_eq!(lone.completed().len(), 1);
        lone.send(2, 100);
        let second = post(lone);
        assert!(first != second && first.0.index == second.0.index);
        lone.endpoint.handle_completion(Time(0), first, PostStatus::Done);
        assert_eq!(lone.completed().len(), 0);
    });
    lone(&[TCP], |lone| {
        let send = |lone: &mut Lone<'_>, cookie| {
            let segments = &seg(0, 100);
            let level = Level::Placed;
            let send = SendRequest { level, cookie: Cookie(cookie), ..SendRequest::new(PeerId(1), segments) };
            lone.endpoint.send(Time(0), &send).unwrap();
            let Repr { body: Body::Eager(head), .. } = lone.sent_one() else { panic!("not eager") };
            head.operation
        };
        let first = send(lone, 1);
        let fin = |operation| {
            Body::Fin(Fin { operation, count: 1, refused: None, placed_bytes: 100, epoch: 0, want_placed: false })
        };
        lone.acks = [1, 0];
        lone.feed(fin(first), 0);
        lone.sent();
        assert_eq!(lone.completed().len(), 1);
        let second = send(lone, 2);
        assert_ne!(first, second);
        lone.feed(fin(first), 0);
        assert_eq!(lone.completed().len(), 0);
    });
}

/// Of two messages that wait, the older one is received first.
#[test]
fn the_oldest_message_first() {
    lone(&[TCP], |lone| {
        for immediate in 1..=2 {
            lone.feed(Body::Eager(MessageHead { immediate: Some(immediate), ..MessageHead::default() }), 0);
        }
        lone.recv(1, 10);
        lone.sent();
        assert_eq!(lone.completed()[&1].unwrap().immediate, Some(1));
    });
}

/// When all is acknowledged, the places of retained copies are free.
#[test]
fn retained_copies_end() {
    lone(&[TCP], |lone| {
        lone.send(1, 100);
        lone.sent();
        lone.acks = [1, 0];
        lone.feed(Body::Credit, 0);
        assert_eq!(lone.completed().len(), 1);
        assert_eq!(lone.endpoint.usage().leak(), None);
    });
}
