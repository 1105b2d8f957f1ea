//! Connections come about whatever is lost on the way, and only between processes that hold the key.

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::{Nanos, Time};
use rerail_linux::auth::Secret;
use rerail_linux::rail::Rail;
use rerail_linux::rail::verbs::VerbsOptions;
use rerail_sim::hca::{Fault, HcaOptions};
use rerail_sim::net::Direction;

use crate::cluster::{Cluster, END, options};

/// V-4, L-1
#[test]
fn one_calls_and_both_are_up() {
    let cluster = Cluster::connected(&options(2));
    assert_eq!((cluster.hosts[0].sink.up.len(), cluster.hosts[1].sink.up.len()), (1, 1));
    // The queue pair for datagrams and the connection's, on each side.
    assert_eq!(cluster.qps(), 2 + 2 * END);
}

/// V-5
#[test]
fn simultaneous_dials_give_one_connection() {
    let mut cluster = Cluster::pair(&options(2));
    cluster.connect(0, 1);
    cluster.connect(1, 0);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
    cluster.run_until_idle();
    assert_eq!(cluster.qps(), 2 + 2 * END);
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// V-4: every single message of the set-up may be lost, and several of them.
#[test]
fn every_lost_setup_message_is_resent() {
    for lost in 1..64u32 {
        // Three bits for each side: how many of its first packets are lost.
        for crossing in [false, true] {
            let mut cluster = Cluster::pair(&options(2));
            let ports = [cluster.hosts[0].port, cluster.hosts[1].port];
            for (side, port) in ports.into_iter().enumerate() {
                let packets = lost >> (3 * side) & 7;
                if packets > 0 {
                    cluster.inject(Fault::Lose { port, packets });
                }
            }
            cluster.connect(0, 1);
            if crossing {
                cluster.connect(1, 0);
            }
            cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
            assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()), "{lost}, {crossing}");
            assert_eq!(cluster.qps(), 2 + 2 * END, "{lost}, {crossing}");
        }
    }
}

/// V-4: what comes on a connection before its READY is kept until that has come.
#[test]
fn messages_that_overtake_ready_wait_for_it() {
    let mut cluster = Cluster::pair(&options(2));
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1));
    // READY was handed to the device by the poll that reported up; only packets behind it get through.
    let port = cluster.hosts[0].port;
    cluster.inject(Fault::Lose { port, packets: 1 });
    for number in 0..5 {
        cluster.hosts[0].send(PeerId(1), number, 700, 700);
    }
    cluster.until(|cluster| cluster.hosts[1].sink.taken.len() == 5);
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), [0, 1, 2, 3, 4]);
}

/// V-3, V-1: without the key no request is answered, or even processed.
#[test]
fn the_wrong_key_gets_no_answer() {
    let key = |rank| Secret::new([0x42 + rank as u8; 32]);
    let mut cluster = Cluster::with([options(2), options(2)], key, HcaOptions::default());
    cluster.connect(0, 1);
    cluster.until(|cluster| !cluster.hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(1), RailFault::TimedOut)]);
    assert!(cluster.hosts[1].sink.up.is_empty());
    // Its queue key is another, too.
    assert_eq!(cluster.hosts[1].rail.counters().unauthenticated, 0);
    assert_eq!(cluster.qps(), 2);
}

/// V-7
#[test]
fn rails_with_messages_of_other_lengths_refuse() {
    let other = VerbsOptions { segment_bytes: 8192, ..options(2) };
    let mut cluster = Cluster::new([options(2), other]);
    cluster.connect(0, 1);
    cluster.until(|cluster| !cluster.hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(1), RailFault::Refused)]);
    assert!(cluster.now < Time(0) + options(2).handshake_timeout, "at once, not by a time-out");
    cluster.run_until_idle();
    assert_eq!(cluster.qps(), 2);
}

/// V-7: a side that has no queue pair left reports it.
#[test]
fn a_full_device_refuses() {
    let mut cluster = Cluster::pair(&options(2));
    let hca = cluster.hosts[1].hca;
    cluster.inject(Fault::Limit { hca, qps: Some(1), mrs: None, cqs: None, registered_bytes: None });
    cluster.connect(0, 1);
    cluster.until(|cluster| !cluster.hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(1), RailFault::Refused)]);
    // And to itself it is an error of the device.
    cluster.connect(1, 0);
    cluster.until(|cluster| !cluster.hosts[1].sink.down.is_empty());
    assert!(matches!(cluster.hosts[1].sink.down[0], (PeerId(0), RailFault::Device { .. })));
}

/// V-4
#[test]
fn unanswered_dial_fails_after_the_handshake_timeout() {
    let mut cluster = Cluster::pair(&options(2));
    let port = cluster.hosts[1].port;
    cluster.inject(Fault::Link { port, direction: Direction::Both, up: false, noticed_after: None });
    cluster.connect(0, 1);
    let called = cluster.now;
    cluster.until(|cluster| !cluster.hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(1), RailFault::TimedOut)]);
    assert_eq!(cluster.now, called + options(2).handshake_timeout);
    // The next attempt is one of its own.
    cluster.inject(Fault::Link { port, direction: Direction::Both, up: true, noticed_after: None });
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
}

/// L-1: all at once.
#[test]
fn everyone_calls_everyone() {
    let count = 12;
    let mut cluster = Cluster::new((0..count).map(|_| options(count)));
    for from in 0..count {
        for to in (0..count).filter(|to| *to != from) {
            cluster.connect(from as usize, to);
        }
    }
    cluster.until(|cluster| cluster.hosts.iter().all(|host| host.sink.standing.len() == count as usize - 1));
    cluster.run_until_idle();
    assert_eq!(cluster.qps(), count + count * (count - 1) * END);
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
}

#[test]
fn dial_to_an_unannounced_peer_is_refused() {
    let mut cluster = Cluster::pair(&options(4));
    cluster.connect(0, 3);
    cluster.until(|cluster| !cluster.hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(3), RailFault::Refused)]);
    let wrong = cluster.hosts[0].rail.add_peer(PeerId(2), "nonsense").unwrap_err();
    assert_eq!((wrong.address.as_str(), wrong.why), ("nonsense", "the link is none of ib, ibg and eth"));
    let address = cluster.hosts[1].rail.address();
    assert!(cluster.hosts[0].rail.add_peer(PeerId(4), &address).is_err(), "of a rank that the job does not have");
}

/// A rail in set-up has to be polled when its timer is due, not before.
#[test]
fn pauses_double() {
    let mut cluster = Cluster::pair(&options(2));
    let port = cluster.hosts[1].port;
    cluster.inject(Fault::Link { port, direction: Direction::Both, up: false, noticed_after: None });
    cluster.connect(0, 1);
    let start = cluster.now;
    let mut due = Vec::new();
    while due.len() < 5 {
        due.push(cluster.hosts[0].rail.next_timeout().unwrap() - start);
        let now = start + *due.last().unwrap();
        let host = &mut cluster.hosts[0];
        host.rail.poll(now, &mut host.sink);
    }
    let us = |us: &u64| Nanos::from_micros(*us);
    assert_eq!(due, [100, 300, 700, 1500, 3100].iter().map(us).collect::<Vec<_>>());
}

const TIMED_OUT: RailFault = RailFault::Device { code: 110 };

/// V-18: the device looks for the peer once for the messages of a call and once for the queue pair, however
/// often they are sent; no handle is kept for longer.
#[test]
fn dial_resolves_the_peer_path_once_despite_resends() {
    let mut cluster = Cluster::pair(&options(2));
    let (hca, port) = (cluster.hosts[0].hca, cluster.hosts[0].port);
    cluster.inject(Fault::Lose { port, packets: 5 });
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
    let searches = |cluster: &Cluster| cluster.fabric.borrow().searches(hca);
    // By XRC the target is connected too.
    let connected = 1 + u64::from(END);
    assert_eq!(searches(&cluster), connected);
    // What stands needs none; devices have fewer than a job has peers.
    cluster.run_until_idle();
    assert!(cluster.hosts.iter().all(|host| cluster.fabric.borrow().objects(host.hca).ahs == 0));
    // One without an answer.
    cluster.hosts[0].rail.abort(PeerId(1));
    cluster.hosts[0].sink.standing.clear();
    cluster.until(|cluster| !cluster.is_up(1, 0));
    cluster.run_until_idle();
    assert_eq!(cluster.fabric.borrow().objects(hca).ahs, 0);
    let before = searches(&cluster);
    cluster.inject(Fault::Lose { port, packets: u32::MAX });
    cluster.connect(0, 1);
    cluster.until(|cluster| !cluster.hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(1), RailFault::TimedOut)]);
    assert_eq!(searches(&cluster), before + 1);
    cluster.run_until_idle();
    assert!(cluster.hosts.iter().all(|host| cluster.fabric.borrow().objects(host.hca).ahs == 0));
}

/// V-18: a search without an answer fails the dial with the device's error at once, and keeps the process
/// for a small part of its time, whatever the core dials: twice as long as it took nothing is tried, then
/// four times, up to sixteen times. A peer from which something is received is dialled at once again.
#[test]
fn unresolvable_peer_is_redialled_with_growing_pauses() {
    let mut cluster = Cluster::new([options(3), options(3), options(3)]);
    let (hca, lid) = (cluster.hosts[0].hca, 17);
    let took = Nanos::from_millis(1_000);
    cluster.inject(Fault::Unanswered { hca, lid, took: Some(took) });
    let searches = |cluster: &Cluster| cluster.fabric.borrow().searches(hca);
    let mut tried = Vec::new();
    // As the core does, once a second at most (F-8).
    for second in 0..70u64 {
        cluster.now = Time(1_000) + Nanos::from_millis(second * 1_000);
        cluster.fabric.borrow_mut().advance(cluster.now);
        let before = searches(&cluster);
        cluster.connect(0, 1);
        cluster.step(|host| host == 0);
        assert_eq!(cluster.hosts[0].sink.down.pop(), Some((PeerId(1), TIMED_OUT)), "at once");
        if searches(&cluster) > before {
            tried.push(second);
        }
    }
    assert_eq!(tried, [0, 3, 8, 17, 34, 51, 68]);
    assert_eq!(cluster.fabric.borrow_mut().take_spent_ns(0), took.0 * tried.len() as u64);
    // Others are called meanwhile.
    cluster.connect(0, 2);
    cluster.until(|cluster| cluster.is_up(0, 2) && cluster.is_up(2, 0));
    // It is there again, and announces it.
    cluster.inject(Fault::Unanswered { hca, lid, took: None });
    cluster.connect(1, 0);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
    cluster.hosts[0].rail.abort(PeerId(1));
    cluster.hosts[0].sink.standing.retain(|peer| *peer != PeerId(1));
    cluster.until(|cluster| !cluster.is_up(1, 0));
    let ups = cluster.hosts[0].sink.up.len();
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.hosts[0].sink.up.len() > ups && cluster.is_up(1, 0));
    assert!(cluster.hosts[0].sink.down.is_empty());
}

/// V-18: a process that is dialled, and finds no way back, has no connection; nor is it kept for each
/// repetition.
#[test]
fn unresolvable_path_of_a_reply_is_not_searched_repeatedly() {
    let mut cluster = Cluster::pair(&options(2));
    let hca = cluster.hosts[1].hca;
    cluster.inject(Fault::Unanswered { hca, lid: 16, took: Some(Nanos::from_millis(1_000)) });
    cluster.connect(0, 1);
    cluster.until(|cluster| !cluster.hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(1), RailFault::TimedOut)]);
    // By RC a call that comes again is answered again, by XRC another target is made for it: its word is
    // taken once.
    assert_eq!(cluster.fabric.borrow().searches(hca), u64::from(END));
    cluster.run_until_idle();
    assert_eq!(cluster.qps(), 2);
}
