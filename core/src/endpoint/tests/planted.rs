//! Planted bugs are live: each changes what the endpoint does in the way that its description says, and without it the
//! same course of things goes well.

use std::panic::AssertUnwindSafe;

use super::lone::Lone;
use super::*;
use crate::wire::{Body, Cts, Fin, MessageHead, RemoteKey, Repr};

/// A message of 40,000 bytes is cut in two; its receive lies behind it.
const LARGE: u64 = 40_000;

fn eager(operation: u64) -> Body {
    Body::Eager(MessageHead { operation, ..MessageHead::default() })
}

fn plant(endpoint: &mut Endpoint<'_>, bug: Option<Planted>) {
    if let Some(bug) = bug {
        endpoint.plant(bug);
    }
}

/// What `course` comes to without `bug` and with it.
fn compare<T>(bug: Planted, course: impl Fn(Option<Planted>) -> T) -> (T, T) {
    (course(None), course(Some(bug)))
}

/// Rank 0 alone, with the test as its peer.
fn lone<T>(bug: Option<Planted>, rails: &[RailFacts], course: impl FnOnce(&mut Lone<'_>) -> T) -> T {
    let config = small();
    let mut regions = regions(&config, 1);
    let mut region = regions.pop().unwrap();
    let mut lone = Lone::connected(&mut region, &config, rails);
    plant(&mut lone.endpoint, bug);
    course(&mut lone)
}

/// Two ranks with a large message under way from 0 to 1, cookie 1 on both sides.
fn pair<T>(bug: Option<Planted>, rails: &[RailFacts], seed: u64, course: impl FnOnce(&mut World<'_>) -> T) -> T {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut world = World::new(&mut regions, &config, rails, &[2 * LARGE as usize], seed);
    // A fabric doesn't ask whether memory is still somebody's.
    world.faulty = true;
    for node in &mut world.nodes {
        plant(&mut node.endpoint, bug);
    }
    fill(&mut world, 0, 0, LARGE, 1);
    let send = Send { peer: PeerId(1), segments: &seg(0, LARGE), cookie: Cookie(1), ..Send::default() };
    world.nodes[0].endpoint.send(Time(0), &send).unwrap();
    let recv = Recv { segments: &seg(LARGE, LARGE), cookie: Cookie(1), ..Recv::default() };
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

fn is_whole(world: &World<'_>) -> bool {
    std::panic::catch_unwind(AssertUnwindSafe(|| assert_filled(world, 1, LARGE, LARGE, 1))).is_ok()
}

#[test]
fn every_bug_has_a_name_and_a_bit() {
    let names: std::collections::BTreeSet<_> = Planted::ALL.iter().map(|bug| bug.name()).collect();
    assert_eq!(names.len(), Planted::ALL.len());
    let mut bits = 0u32;
    for bug in Planted::ALL {
        assert_eq!(bits >> bug as u32 & 1, 0);
        bits |= 1 << bug as u32;
    }
    assert_eq!(bits.trailing_ones() as usize, Planted::ALL.len(), "ALL leaves none out");
}

/// The older of two messages comes later, and is dropped.
#[test]
fn high_water() {
    let course = |bug| {
        lone(bug, &[TCP, TCP], |lone| {
            lone.recv(1, 10);
            lone.recv(2, 10);
            lone.feed_on(1, eager(1), 0, |common| common.psn = 1);
            lone.feed_on(0, eager(0), 0, |common| common.psn = 0);
            lone.sent();
            (lone.completed().len(), lone.endpoint.stats().duplicates_dropped)
        })
    };
    assert_eq!(compare(Planted::HighWater, course), ((2, 0), (0, 0)));
    // On the lane without order what has overtaken is served, and what was overtaken is lost.
    let course = |bug| {
        lone(bug, &[TCP, TCP], |lone| {
            let put = |len| crate::wire::Put { window: 0, offset: len, operation: len };
            lone.feed_on(1, Body::Put(put(1)), 0, |common| common.psn = 1);
            lone.feed_on(0, Body::Put(put(2)), 0, |common| common.psn = 0);
            lone.endpoint.usage().refusals.used
        })
    };
    assert_eq!(compare(Planted::HighWater, course), (2, 1));
}

/// The receiver is told before the data is there.
#[test]
fn fin_before_data() {
    let course = |bug| {
        let whole = |seed| {
            pair(bug, &[PUT, PUT], seed, |world| {
                assert!(until(world, |world| has_completed(world, 1)), "seed {seed}");
                is_whole(world)
            })
        };
        (0..20).filter(|&seed| !whole(seed)).count()
    };
    let (well, badly) = compare(Planted::FinBeforeData, course);
    assert_eq!(well, 0);
    assert!(badly > 0, "in no world of 20");
}

/// Nothing is acknowledged, and all that rails are through with is complete.
#[test]
fn completion_on_cqe() {
    let course = |bug| {
        lone(bug, &[PUT], |lone| {
            for (cookie, level) in [(1, Level::Acknowledged), (2, Level::Placed)] {
                let send =
                    Send { peer: PeerId(1), segments: &seg(0, 100), level, cookie: Cookie(cookie), ..Send::default() };
                lone.endpoint.send(Time(0), &send).unwrap();
            }
            let to = Remote { peer: PeerId(1), window: 9, offset: 0 };
            let put = Put { to, segments: &seg(0, 100), cookie: Cookie(3), ..Put::default() };
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
            lone.completed().into_keys().collect::<Vec<_>>()
        })
    };
    assert_eq!(compare(Planted::CompletionOnCqe, course), (vec![], vec![1, 2, 3, 4]));
}

/// A write that the dead rail was late with finds nobody: its other end was ended before the message went on. With the bug
/// it lands in a buffer that is the application's again (F-3).
#[test]
fn replay_unfenced() {
    // Registrations may fail, and then the message doesn't go by put over both.
    let writes = |world: &mut World<'_>| until(world, |world| (0..2).all(|rail| world.pending_writes(0, 1, rail) > 0));
    let mut landed = [0, 0];
    for seed in 0..50 {
        for (bug, landed) in [None, Some(Planted::ReplayUnfenced)].into_iter().zip(&mut landed) {
            pair(bug, &[PUT, PUT], seed, |world| {
                // Small packets keep to the rail that lives.
                for node in &mut world.nodes {
                    node.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
                }
                if !writes(world) {
                    return;
                }
                (world.hold_ghosts, world.refuse_one_in) = (true, 1);
                world.break_end(0, 1, RailId(1), RailFault::TimedOut);
                let done = until(world, |world| has_completed(world, 1));
                // With the bug the other end is left to believe in its connection, and may wait for it.
                assert!(done || bug.is_some(), "seed {seed}");
                if !done {
                    return;
                }
                assert!(is_whole(world), "seed {seed}");
                *landed += world.land_ghosts();
            });
        }
    }
    assert_eq!(landed[0], 0, "a ghost has written");
    assert!(landed[1] > 0, "no ghost has written: the test proves nothing");
}

/// The seventh acknowledgment never comes.
#[test]
fn ack_forgotten() {
    let course = |bug| {
        let config = small();
        let mut regions = regions(&config, 2);
        let mut world = World::new(&mut regions, &config, &[TCP], &[1000], 5);
        for node in &mut world.nodes {
            plant(&mut node.endpoint, bug);
        }
        for n in 0..7 {
            let recv = Recv { segments: &seg(100, 100), cookie: Cookie(n), ..Recv::default() };
            world.nodes[1].endpoint.recv(Time(world.now), &recv).unwrap();
            let send = Send {
                peer: PeerId(1),
                segments: &seg(0, 100),
                cookie: Cookie(n),
                level: Level::Acknowledged,
                ..Send::default()
            };
            world.nodes[0].endpoint.send(Time(world.now), &send).unwrap();
            world.settle();
        }
        (completions(&mut world, 1).len(), completions(&mut world, 0).len())
    };
    assert_eq!(compare(Planted::AckForgotten, course), ((7, 7), (7, 6)));
    // Nor is a duplicate acknowledged.
    let course = |bug| {
        lone(bug, &[TCP], |lone| {
            lone.feed_on(0, eager(1), 0, |common| common.ack_now = true);
            let first = lone.sent().len();
            lone.feed_on(0, eager(1), 0, |common| common.psn = 0);
            (first, lone.sent().len())
        })
    };
    assert_eq!(compare(Planted::AckForgotten, course), ((1, 1), (1, 0)));
}

/// By put the receiver believes in bytes that never came; by data segments it waits for them.
#[test]
fn weights_dont_sum() {
    let course = |rails: &'static [RailFacts]| {
        move |bug| {
            pair(bug, rails, 8, |world| {
                world.settle();
                let last = world.nodes[1].memory[0][2 * LARGE as usize - 64..].iter().all(|&byte| byte == 0);
                (has_completed(world, 1), is_whole(world), last)
            })
        }
    };
    let well = (true, true, false);
    assert_eq!(compare(Planted::WeightsDontSum, course(&[PUT, PUT])), (well, (true, false, true)));
    assert_eq!(compare(Planted::WeightsDontSum, course(&[TCP, TCP])), (well, (false, false, true)));
}

/// A report that comes twice ends the post that took the slot since; so does a FIN.
#[test]
fn no_generation() {
    let post = |lone: &mut Lone<'_>| {
        let mut actions = heapless::Vec::new();
        lone.endpoint.poll_actions(Time(0), &mut actions);
        let [Action::Post(post)] = &actions[..] else { panic!("no post: {actions:?}") };
        post.id
    };
    let course = |bug| {
        lone(bug, &[SHM], |lone| {
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
            lone.completed().len()
        })
    };
    assert_eq!(compare(Planted::NoGeneration, course), (0, 1));
    let course = |bug| {
        lone(bug, &[TCP], |lone| {
            let send = |lone: &mut Lone<'_>, cookie| {
                let segments = &seg(0, 100);
                let level = Level::Placed;
                let send = Send { peer: PeerId(1), segments, level, cookie: Cookie(cookie), ..Send::default() };
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
            lone.completed().len()
        })
    };
    assert_eq!(compare(Planted::NoGeneration, course), (0, 1));
}

/// The younger of two messages comes first, and gets the older receive.
#[test]
fn arrival_order() {
    let course = |bug| {
        lone(bug, &[TCP, TCP], |lone| {
            lone.recv(1, 10);
            lone.recv(2, 10);
            lone.feed_on(1, eager(1), 0, |common| common.psn = 1);
            let early: Vec<_> = lone.completed().into_keys().collect();
            lone.feed_on(0, eager(0), 0, |common| common.psn = 0);
            lone.sent();
            let late: Vec<_> = lone.completed().into_keys().collect();
            (early, late)
        })
    };
    assert_eq!(compare(Planted::ArrivalOrder, course), ((vec![], vec![1, 2]), (vec![1], vec![2])));
}

/// Of two messages that wait, the younger one is received first.
#[test]
fn newest_first() {
    let course = |bug| {
        lone(bug, &[TCP], |lone| {
            for immediate in 1..=2 {
                lone.feed(Body::Eager(MessageHead { immediate: Some(immediate), ..MessageHead::default() }), 0);
            }
            lone.recv(1, 10);
            lone.sent();
            lone.completed()[&1].unwrap().immediate
        })
    };
    assert_eq!(compare(Planted::NewestFirst, course), (Some(1), Some(2)));
}

/// One message has room at the peer, three go out, and the peer gives up whoever sent them.
#[test]
fn credit_ignored() {
    let course = |bug| {
        let config = Config { unexpected_per_peer: 1, ..small() };
        let mut regions = regions(&config, 2);
        let mut world = World::new(&mut regions, &config, &[TCP], &[1000], 5);
        plant(&mut world.nodes[0].endpoint, bug);
        for _ in 0..3 {
            world.nodes[0].endpoint.send(Time(0), &Send { peer: PeerId(1), ..Send::default() }).unwrap();
        }
        world.settle();
        let reason = LossReason::Protocol(ProtocolError::Credit);
        let why = Loss::new(reason, 1, Nanos(0), []);
        world.nodes[1].events.contains(&Event::PeerLost { peer: PeerId(0), why })
    };
    assert_eq!(compare(Planted::CreditIgnored, course), (false, true));
}

/// All is over, and a copy's place is not free.
#[test]
fn retained_kept() {
    let course = |bug| {
        lone(bug, &[TCP], |lone| {
            lone.send(1, 100);
            lone.sent();
            lone.acks = [1, 0];
            lone.feed(Body::Credit, 0);
            assert_eq!(lone.completed().len(), 1);
            lone.endpoint.usage().leak().map(|(name, _)| name)
        })
    };
    assert_eq!(compare(Planted::RetainedKept, course), (None, Some("retained")));
}
