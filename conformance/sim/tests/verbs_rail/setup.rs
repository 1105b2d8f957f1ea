//! Connections come about whatever is lost on the way, and only between processes that hold the key.

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::{Nanos, Time};
use rerail_linux::auth::Secret;
use rerail_linux::rail::Rail;
use rerail_linux::rail::verbs::VerbsOptions;
use rerail_sim::hca::{Fault, HcaOptions};
use rerail_sim::net::Direction;

use crate::world::{END, World, options};

/// V-4, L-1
#[test]
fn one_calls_and_both_are_up() {
    let world = World::connected(&options(2));
    assert_eq!((world.hosts[0].sink.up.len(), world.hosts[1].sink.up.len()), (1, 1));
    // The queue pair for datagrams and the connection's, on each side.
    assert_eq!(world.qps(), 2 + 2 * END);
}

/// V-5
#[test]
fn both_call_at_once_and_one_connection_stands() {
    let mut world = World::pair(&options(2));
    world.connect(0, 1);
    world.connect(1, 0);
    world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
    world.settle();
    assert_eq!(world.qps(), 2 + 2 * END);
    assert!(world.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// V-4: every single message of the set-up may be lost, and several of them.
#[test]
fn lost_messages_are_said_again() {
    for lost in 1..64u32 {
        // Three bits for each side: how many of its first packets are lost.
        for crossing in [false, true] {
            let mut world = World::pair(&options(2));
            let ports = [world.hosts[0].port, world.hosts[1].port];
            for (side, port) in ports.into_iter().enumerate() {
                let packets = lost >> (3 * side) & 7;
                if packets > 0 {
                    world.inject(Fault::Lose { port, packets });
                }
            }
            world.connect(0, 1);
            if crossing {
                world.connect(1, 0);
            }
            world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
            assert!(world.hosts.iter().all(|host| host.sink.down.is_empty()), "{lost}, {crossing}");
            assert_eq!(world.qps(), 2 + 2 * END, "{lost}, {crossing}");
        }
    }
}

/// V-4: what comes on a connection before its READY is kept until that has come.
#[test]
fn messages_that_overtake_ready_wait_for_it() {
    let mut world = World::pair(&options(2));
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1));
    // READY was handed to the device by the poll that reported up; only packets behind it get through.
    let port = world.hosts[0].port;
    world.inject(Fault::Lose { port, packets: 1 });
    for number in 0..5 {
        world.hosts[0].send(PeerId(1), number, 700, 700);
    }
    world.until(|world| world.hosts[1].sink.taken.len() == 5);
    assert_eq!(world.hosts[1].numbers_from(PeerId(0)), [0, 1, 2, 3, 4]);
}

/// V-3, V-1: without the key no request is answered, or even processed.
#[test]
fn the_wrong_key_gets_no_answer() {
    let key = |rank| Secret::new([0x42 + rank as u8; 32]);
    let mut world = World::with([options(2), options(2)], key, HcaOptions::default());
    world.connect(0, 1);
    world.until(|world| !world.hosts[0].sink.down.is_empty());
    assert_eq!(world.hosts[0].sink.down, [(PeerId(1), RailFault::TimedOut)]);
    assert!(world.hosts[1].sink.up.is_empty());
    // Its queue key is another, too.
    assert_eq!(world.hosts[1].rail.counters().unauthenticated, 0);
    assert_eq!(world.qps(), 2);
}

/// V-7
#[test]
fn rails_with_messages_of_other_lengths_refuse() {
    let other = VerbsOptions { segment_bytes: 8192, ..options(2) };
    let mut world = World::new([options(2), other]);
    world.connect(0, 1);
    world.until(|world| !world.hosts[0].sink.down.is_empty());
    assert_eq!(world.hosts[0].sink.down, [(PeerId(1), RailFault::Refused)]);
    assert!(world.now < Time(0) + options(2).handshake_timeout, "at once, not by a time-out");
    world.settle();
    assert_eq!(world.qps(), 2);
}

/// V-7: a side that has no queue pair left reports it.
#[test]
fn a_full_device_refuses() {
    let mut world = World::pair(&options(2));
    let hca = world.hosts[1].hca;
    world.inject(Fault::Limit { hca, qps: Some(1), mrs: None, cqs: None, registered_bytes: None });
    world.connect(0, 1);
    world.until(|world| !world.hosts[0].sink.down.is_empty());
    assert_eq!(world.hosts[0].sink.down, [(PeerId(1), RailFault::Refused)]);
    // And to itself it is an error of the device.
    world.connect(1, 0);
    world.until(|world| !world.hosts[1].sink.down.is_empty());
    assert!(matches!(world.hosts[1].sink.down[0], (PeerId(0), RailFault::Device { .. })));
}

/// V-4
#[test]
fn nobody_answers_and_the_caller_hears_so_in_time() {
    let mut world = World::pair(&options(2));
    let port = world.hosts[1].port;
    world.inject(Fault::Link { port, direction: Direction::Both, up: false, noticed_after: None });
    world.connect(0, 1);
    let called = world.now;
    world.until(|world| !world.hosts[0].sink.down.is_empty());
    assert_eq!(world.hosts[0].sink.down, [(PeerId(1), RailFault::TimedOut)]);
    assert_eq!(world.now, called + options(2).handshake_timeout);
    // The next attempt is one of its own.
    world.inject(Fault::Link { port, direction: Direction::Both, up: true, noticed_after: None });
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
}

/// L-1: all at once.
#[test]
fn everyone_calls_everyone() {
    let count = 12;
    let mut world = World::new((0..count).map(|_| options(count)));
    for from in 0..count {
        for to in (0..count).filter(|to| *to != from) {
            world.connect(from as usize, to);
        }
    }
    world.until(|world| world.hosts.iter().all(|host| host.sink.standing.len() == count as usize - 1));
    world.settle();
    assert_eq!(world.qps(), count + count * (count - 1) * END);
    assert!(world.hosts.iter().all(|host| host.sink.down.is_empty()));
}

#[test]
fn who_was_not_announced_can_not_be_called() {
    let mut world = World::pair(&options(4));
    world.connect(0, 3);
    world.until(|world| !world.hosts[0].sink.down.is_empty());
    assert_eq!(world.hosts[0].sink.down, [(PeerId(3), RailFault::Refused)]);
    let wrong = world.hosts[0].rail.add_peer(PeerId(2), "nonsense").unwrap_err();
    assert_eq!((wrong.address.as_str(), wrong.why), ("nonsense", "the link is none of ib, ibg and eth"));
    let address = world.hosts[1].rail.address();
    assert!(world.hosts[0].rail.add_peer(PeerId(4), &address).is_err(), "of a rank that the job does not have");
}

/// A rail in set-up has to be polled when its timer is due, not before.
#[test]
fn pauses_double() {
    let mut world = World::pair(&options(2));
    let port = world.hosts[1].port;
    world.inject(Fault::Link { port, direction: Direction::Both, up: false, noticed_after: None });
    world.connect(0, 1);
    let start = world.now;
    let mut due = Vec::new();
    while due.len() < 5 {
        due.push(world.hosts[0].rail.next_timeout().unwrap() - start);
        let now = start + *due.last().unwrap();
        let host = &mut world.hosts[0];
        host.rail.poll(now, &mut host.sink);
    }
    let us = |us: &u64| Nanos::from_micros(*us);
    assert_eq!(due, [100, 300, 700, 1500, 3100].iter().map(us).collect::<Vec<_>>());
}

const TIMED_OUT: RailFault = RailFault::Device { code: 110 };

/// V-18: the device looks for the peer once for the messages of a call and once for the queue pair, however
/// often they are sent; no handle is kept for longer.
#[test]
fn a_call_looks_for_its_peer_once_however_often_it_is_said() {
    let mut world = World::pair(&options(2));
    let (hca, port) = (world.hosts[0].hca, world.hosts[0].port);
    world.inject(Fault::Lose { port, packets: 5 });
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
    let searches = |world: &World| world.fabric.borrow().searches(hca);
    // By XRC the target is connected too.
    let connected = 1 + u64::from(END);
    assert_eq!(searches(&world), connected);
    // What stands needs none; devices have fewer than a job has peers.
    world.settle();
    assert!(world.hosts.iter().all(|host| world.fabric.borrow().objects(host.hca).ahs == 0));
    // One without an answer.
    world.hosts[0].rail.abort(PeerId(1));
    world.hosts[0].sink.standing.clear();
    world.until(|world| !world.is_up(1, 0));
    world.settle();
    assert_eq!(world.fabric.borrow().objects(hca).ahs, 0);
    let before = searches(&world);
    world.inject(Fault::Lose { port, packets: u32::MAX });
    world.connect(0, 1);
    world.until(|world| !world.hosts[0].sink.down.is_empty());
    assert_eq!(world.hosts[0].sink.down, [(PeerId(1), RailFault::TimedOut)]);
    assert_eq!(searches(&world), before + 1);
    world.settle();
    assert!(world.hosts.iter().all(|host| world.fabric.borrow().objects(host.hca).ahs == 0));
}

/// V-18: a search without an answer fails the dial with the device's error at once, and keeps the process
/// for a small part of its time, whatever the core dials: twice as long as it took nothing is tried, then
/// four times, up to sixteen times. A peer from which something is received is dialled at once again.
#[test]
fn a_peer_that_no_way_leads_to_is_left_alone_for_a_while() {
    let mut world = World::new([options(3), options(3), options(3)]);
    let (hca, lid) = (world.hosts[0].hca, 17);
    let took = Nanos::from_millis(1_000);
    world.inject(Fault::Unanswered { hca, lid, took: Some(took) });
    let searches = |world: &World| world.fabric.borrow().searches(hca);
    let mut tried = Vec::new();
    // As the core does, once a second at most (F-8).
    for second in 0..70u64 {
        world.now = Time(1_000) + Nanos::from_millis(second * 1_000);
        world.fabric.borrow_mut().advance(world.now);
        let before = searches(&world);
        world.connect(0, 1);
        world.step(|host| host == 0);
        assert_eq!(world.hosts[0].sink.down.pop(), Some((PeerId(1), TIMED_OUT)), "at once");
        if searches(&world) > before {
            tried.push(second);
        }
    }
    assert_eq!(tried, [0, 3, 8, 17, 34, 51, 68]);
    assert_eq!(world.fabric.borrow_mut().take_spent_ns(0), took.0 * tried.len() as u64);
    // Others are called meanwhile.
    world.connect(0, 2);
    world.until(|world| world.is_up(0, 2) && world.is_up(2, 0));
    // It is there again, and announces it.
    world.inject(Fault::Unanswered { hca, lid, took: None });
    world.connect(1, 0);
    world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
    world.hosts[0].rail.abort(PeerId(1));
    world.hosts[0].sink.standing.retain(|peer| *peer != PeerId(1));
    world.until(|world| !world.is_up(1, 0));
    let ups = world.hosts[0].sink.up.len();
    world.connect(0, 1);
    world.until(|world| world.hosts[0].sink.up.len() > ups && world.is_up(1, 0));
    assert!(world.hosts[0].sink.down.is_empty());
}

/// V-18: a process that is dialled, and finds no way back, has no connection; nor is it kept for each
/// repetition.
#[test]
fn an_answer_that_no_way_leads_to_is_not_tried_again_and_again() {
    let mut world = World::pair(&options(2));
    let hca = world.hosts[1].hca;
    world.inject(Fault::Unanswered { hca, lid: 16, took: Some(Nanos::from_millis(1_000)) });
    world.connect(0, 1);
    world.until(|world| !world.hosts[0].sink.down.is_empty());
    assert_eq!(world.hosts[0].sink.down, [(PeerId(1), RailFault::TimedOut)]);
    // By RC a call that comes again is answered again, by XRC another target is made for it: its word is
    // taken once.
    assert_eq!(world.fabric.borrow().searches(hca), u64::from(END));
    world.settle();
    assert_eq!(world.qps(), 2);
}
