//! Situations in which wrong assumptions about several rails show: that packets come in order, that a FIN is
//! a formality, that a dead rail is silent. Each is a mutant as well
//! (`conformance/mutants/patches/assumptions.toml`).

use super::lone::Lone;
use super::*;
use crate::wire::{Body, Cts, Fin, MessageHead, RemoteKey, Repr};

/// A message of 40,000 bytes is cut in two; its receive lies behind it.
const LARGE: u64 = 40_000;

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

/// Two ranks with a large message under way from 0 to 1, cookie 1 on both sides.
fn pair<T>(rails: &[RailFacts], seed: u64, course: impl FnOnce(&mut World<'_>) -> T) -> T {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut world = World::new(&mut regions, &config, rails, &[2 * LARGE as usize], seed);
    // A fabric doesn't ask whether memory is still somebody's.
    world.faulty = true;
    fill(&mut world, 0, 0, LARGE, 1);
    let send = SendRequest { cookie: Cookie(1), segments: &seg(0, LARGE), ..SendRequest::new(PeerId(1), &[]) };
    world.nodes[0].endpoint.send(Time(0), &send).unwrap();
    let recv = RecvRequest {
        cookie: Cookie(1),
        segments: &seg(LARGE, LARGE),
        ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
    };
    world.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
    course(&mut world)
}

/// One random thing happens.
fn step(world: &mut World<'_>) {
    world.now += 100;
    let rank = world.rng.below(2) as usize;
    if world.nodes[rank].endpoint.next_timeout().is_some_and(|at| at.0 <= world.now) {
        world.nodes[rank].endpoint.handle_timeout(Time(world.now));
    }
    world.act(rank);
    let (from, rail) = (world.rng.below(2) as usize, world.rng.below(2) as usize);
    world.step_link(from, 1 - from, rail);
}

/// Steps until something is so; `false`: it never is.
fn until(world: &mut World<'_>, mut is_so: impl FnMut(&mut World<'_>) -> bool) -> bool {
    (0..100_000).any(|_| {
        step(world);
        is_so(world)
    })
}

fn has_completed(world: &World<'_>, rank: usize) -> bool {
    world.nodes[rank].events.iter().any(|event| matches!(event, Event::Completed(done) if done.result.is_ok()))
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

/// When a receive by put completes, the last byte is in place.
#[test]
fn a_fin_comes_behind_its_writes() {
    for seed in 0..20 {
        pair(&[PUT, PUT], seed, |world| {
            assert!(until(world, |world| has_completed(world, 1)), "seed {seed}");
            assert_filled(world, 1, LARGE, LARGE, 1);
        });
    }
}

/// A rail that is through with a post does not say that the peer has it.
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
        let cts = Cts { operation: rts.head.operation, target: 1, granted_bytes: 5000, keys, round: 0 };
        lone.feed(Body::Cts(cts), 0);
        lone.sent();
        assert_eq!(lone.transfers, 1);
        assert!(lone.completed().is_empty(), "nothing is acknowledged");
    });
}

/// A write that the dead rail was late with lands nowhere: the other end is ended before the message goes on
/// (F-3). Without the fence some of these seeds have one that lands in a buffer that is the application's
/// again.
#[test]
fn a_late_write_finds_no_connection() {
    // Registrations may fail, and then the message doesn't go by put over both.
    let writes = |world: &mut World<'_>| until(world, |world| (0..2).all(|rail| world.pending_writes(0, 1, rail) > 0));
    let mut broken = 0;
    for seed in 0..50 {
        pair(&[PUT, PUT], seed, |world| {
            // Small packets keep to the rail that lives.
            for node in &mut world.nodes {
                node.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
            }
            if !writes(world) {
                return;
            }
            broken += 1;
            (world.hold_ghosts, world.refuse_one_in) = (true, 1);
            world.break_end(0, 1, RailId(1), RailFault::TimedOut);
            assert!(until(world, |world| has_completed(world, 1)), "seed {seed}");
            assert_filled(world, 1, LARGE, LARGE, 1);
            assert_eq!(world.land_ghosts(), 0, "seed {seed}: a late write has landed");
        });
    }
    assert!(broken > 0, "no message was being written over both rails");
}

/// Every message is acknowledged though nothing goes back that could carry it, and so is a duplicate.
#[test]
fn every_message_is_acknowledged() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut world = World::new(&mut regions, &config, &[TCP], &[1000], 5);
    for n in 0..14 {
        let recv = RecvRequest {
            cookie: Cookie(n),
            segments: &seg(100, 100),
            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
        };
        world.nodes[1].endpoint.recv(Time(world.now), &recv).unwrap();
        let send = SendRequest {
            cookie: Cookie(n),
            level: Level::Acknowledged,
            segments: &seg(0, 100),
            ..SendRequest::new(PeerId(1), &[])
        };
        world.nodes[0].endpoint.send(Time(world.now), &send).unwrap();
        world.settle();
        assert_eq!((completions(&mut world, 1).len(), completions(&mut world, 0).len()), (1, 1), "message {n}");
    }
    lone(&[TCP], |lone| {
        lone.feed_on(0, eager(1), 0, |common| common.ack_now = true);
        assert_eq!(lone.sent().len(), 1);
        lone.feed_on(0, eager(1), 0, |common| common.psn = 0);
        assert_eq!(lone.sent().len(), 1);
    });
}

/// The last stripe of a message that is cut ends where the message does, by put and by data segments.
#[test]
fn shares_add_up() {
    for rails in [&[PUT, PUT], &[TCP, TCP]] {
        pair(rails, 8, |world| {
            world.settle();
            assert!(has_completed(world, 1));
            assert_filled(world, 1, LARGE, LARGE, 1);
        });
    }
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
            Body::Fin(Fin { operation, count: 1, refused: None, placed_bytes: 100, round: 0, want_placed: false })
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

/// One message has room at the peer, so one goes out.
#[test]
fn credits_bound_what_goes_out() {
    let config = Config { unexpected_per_peer: 1, ..small() };
    let mut regions = regions(&config, 2);
    let mut world = World::new(&mut regions, &config, &[TCP], &[1000], 5);
    for _ in 0..3 {
        world.nodes[0].endpoint.send(Time(0), &SendRequest::new(PeerId(1), &[])).unwrap();
    }
    world.settle();
    for node in &world.nodes {
        assert!(!node.events.iter().any(|event| matches!(event, Event::PeerLost { .. })), "{:?}", node.events);
    }
    assert_eq!(world.nodes[1].endpoint.stats().unexpected, 1);
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
