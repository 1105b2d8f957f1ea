//! False or repeated data from a peer or a rail: duplicated packets, early FINs, reads that fail.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::{cts, region};
use super::*;
use crate::wire::{Atomic as AtomicBody, Body, Connect, Cts, Fin, MessageHead, RemoteKey, Rts};

/// S-4, R-7: an atomic that comes again is not performed again.
#[test]
fn an_atomic_is_performed_once() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let at = MemRef { region: HEAP, offset: 4096 };
    let access = Access { read: true, write: true, atomic: true };
    lone.endpoint.expose(&Window::new(at, 64, access, 3)).unwrap();
    let atomic = AtomicBody { window: 3, offset: 8, operation: 9, operand: 1, ..AtomicBody::default() };
    let mut performed = 0;
    for _ in 0..3 {
        lone.feed_on(0, Body::Atomic(atomic), 0, |common| common.psn = 0);
        let mut actions = heapless::Vec::new();
        while lone.endpoint.poll_actions(Time(0), &mut actions) > 0 {
            for action in actions.drain(..) {
                match action {
                    Action::Atomic(atomic) => {
                        performed += 1;
                        lone.endpoint.handle_atomic(atomic.operation, 0);
                    }
                    Action::Post(post) => lone.endpoint.handle_completion(Time(0), post.id, PostStatus::Done),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert_eq!((performed, lone.endpoint.stats().duplicates_dropped), (1, 2));
}

/// G-3: a window is a power of two within bounds, and a block has bytes.
#[test]
fn impossible_terms_are_refused() {
    let impossible = [
        Connect { window: 48, ..PEER_PARAMETERS },
        Connect { window: 0, ..PEER_PARAMETERS },
        Connect { window: 32, ..PEER_PARAMETERS },
        Connect { window: 1 << 16, ..PEER_PARAMETERS },
        Connect { block_bytes: 0, ..PEER_PARAMETERS },
    ];
    for peer_parameters in impossible {
        let mut region = region();
        let mut lone = Lone::up(&mut region, &small(), &[TCP]);
        assert_eq!(lone.feed(Body::Connect(peer_parameters), 0), Arrival::Close, "{peer_parameters:?}");
        assert_eq!(lone.offence(), ProtocolError::BadParameters, "{peer_parameters:?}");
    }
}

/// a receiver that needs no more sends FIN; unsent data stays here.
#[test]
fn fin_cancels_the_unsent_bytes() {
    for rails in [[TCP], [PUT]] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &rails);
        lone.send(1, 40_000);
        let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
        lone.acks[0] = 1;
        let operation = rts.head.operation;
        lone.busy = true;
        lone.feed(cts(operation, 0, if rails[0].caps.write { &[0] } else { &[] }), 0);
        lone.sent();
        let posts = lone.posts.len();
        lone.feed(Body::Fin(Fin { operation, count: 1, placed_bytes: 5000, ..Fin::default() }), 0);
        lone.busy = false;
        for index in 0..lone.endpoint.t.packets.capacity() {
            if let Some(key) = lone.endpoint.t.packets.key_at(index)
                && lone.endpoint.t.packets.at(index).posted
            {
                lone.endpoint.handle_completion(Time(0), PostId(key), PostStatus::Done);
            }
        }
        let before = lone.posts.len();
        lone.sent();
        let payloads = lone.posts[before..].iter().filter(|(.., memory)| !memory.is_empty());
        assert_eq!((payloads.count(), posts), (0, before));
    }
}

/// a FIN for a receive whose CTS was not sent yet is a guess.
#[test]
fn a_fin_before_its_cts_is_dropped() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT]);
    lone.recv(1, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    // The registration is there, and the CTS that it makes waits for the next batch.
    let mut actions = heapless::Vec::new();
    lone.endpoint.poll_actions(Time(0), &mut actions);
    let operation = actions.iter().find_map(|action| match action {
        Action::Register { operation, .. } => Some(*operation),
        _ => None,
    });
    let operation = operation.expect("memory to register");
    let key = RemoteKey { rail: 0, connection: 0, key: 1, address: 2 };
    lone.endpoint.handle_registered(operation, RailId(0), Ok(key));
    let fin = |operation| Body::Fin(Fin { operation, count: 1, ..Fin::default() });
    let before = lone.endpoint.stats().stale_dropped;
    lone.feed(fin(operation.0.to_bits()), 0);
    assert_eq!((lone.completed().len(), lone.endpoint.stats().stale_dropped), (0, before + 1));
    let Body::Cts(Cts { target, .. }) = lone.sent_one().body else { panic!("no CTS") };
    lone.feed(fin(target), 0);
    assert!(lone.completed()[&1].is_ok());
}

/// a read that failed has brought nothing.
#[test]
fn a_failed_read_brings_nothing() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[GET, GET]);
    lone.recv(1, 3000);
    let key = |rail| RemoteKey { rail: PEER_RAIL + rail, connection: 1, key: 7, address: 0 };
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    let keys = [key(0), key(1)].into_iter().collect();
    lone.busy = true;
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, keys }), 0);
    lone.sent();
    lone.busy = false;
    let mut rails = Vec::new();
    for index in 0..lone.endpoint.t.packets.capacity() {
        if let Some(key) = lone.endpoint.t.packets.key_at(index) {
            rails.push(lone.endpoint.t.packets.at(index).rail);
            lone.endpoint.handle_completion(Time(0), PostId(key), PostStatus::Failed);
        }
    }
    assert!(!rails.is_empty());
    assert_eq!(lone.completed().len(), 0, "nothing was read");
    super::recovery::down(&mut lone, rails[0], RailFault::TimedOut);
    lone.sent();
    assert_eq!(lone.completed()[&1].unwrap().bytes, 3000);
}
