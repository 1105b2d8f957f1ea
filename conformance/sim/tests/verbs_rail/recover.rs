//! Ports that go down and move, and devices that break and come back: rules V-11 to V-13, F-2.

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::{Nanos, Time};
use rerail_linux::auth::Secret;
use rerail_linux::rail::verbs::VerbsOptions;
use rerail_linux::rail::{Piece, Rail};
use rerail_sim::hca::{Fault, HcaOptions};
use rerail_sim::net::Direction;

use crate::cluster::{Cluster, END, options};

/// From the end of a port's grace to the end of its connections: by XRC, what has come is waited for.
const DRAINING_TIME: Nanos = Nanos::from_micros(if crate::XRC { 300 } else { 100 });

const NET_DOWN: RailFault = RailFault::Device { code: 100 };
const NET_RESET: RailFault = RailFault::Device { code: 102 };
const BROKEN: RailFault = RailFault::Device { code: 5 };

fn link(cluster: &Cluster, host: usize, up: bool) {
    let port = cluster.hosts[host].port;
    cluster.inject(Fault::Link { port, direction: Direction::Both, up, noticed_after: Some(Nanos(0)) });
}

fn mesh(count: u32, options: &VerbsOptions) -> Cluster {
    let mut cluster = Cluster::new((0..count).map(|_| options.clone()));
    for from in 0..count {
        (0..from).for_each(|to| cluster.connect(from as usize, to));
    }
    cluster.until(|cluster| cluster.hosts.iter().all(|host| host.sink.standing.len() == count as usize - 1));
    cluster
}

fn pass(cluster: &mut Cluster, span: Nanos) {
    let until = cluster.now + span;
    while cluster.now < until {
        let timers = cluster.hosts.iter().filter_map(|host| host.rail.next_timeout());
        let next = cluster.fabric.borrow().next_event().into_iter().chain(timers).min();
        cluster.now = next.map_or(until, |next| next.max(cluster.now).min(until));
        cluster.fabric.borrow_mut().advance(cluster.now);
        for host in &mut cluster.hosts {
            while host.rail.poll(cluster.now, &mut host.sink) > 0 {}
        }
        if next == Some(cluster.now) && cluster.fabric.borrow().next_event() == next {
            cluster.now = until;
        }
    }
}

/// V-11: down at once, and no waiting for the device's own retries; nothing is dialled until the port is
/// back.
#[test]
fn a_port_that_is_down_takes_its_connections_along() {
    let mut cluster = mesh(4, &options(4));
    for life in 1..4 {
        link(&cluster, 0, false);
        let cut = cluster.now;
        cluster.until(|cluster| cluster.hosts[0].sink.standing.is_empty());
        assert!(cluster.now <= cut + options(4).port_grace + DRAINING_TIME, "{:?}", cluster.now - cut);
        assert_eq!(cluster.hosts[0].sink.down.len(), 3 * life);
        assert!(cluster.hosts[0].sink.down.iter().all(|(_, fault)| *fault == NET_DOWN));
        let called = cluster.now;
        cluster.connect(0, 1);
        cluster.step(|_| true);
        assert_eq!((cluster.hosts[0].sink.down.pop(), cluster.now), (Some((PeerId(1), NET_DOWN)), called));
        assert_eq!(cluster.hosts[0].sink.backs, life - 1);
        link(&cluster, 0, true);
        pass(&mut cluster, Nanos::from_micros(10));
        assert_eq!(cluster.hosts[0].sink.backs, life, "F-8");
        // For the others the old connections are still up.
        assert!((1..4).all(|peer| cluster.is_up(peer, 0)));
        (1..4).for_each(|peer| cluster.connect(0, peer));
        cluster.until(|cluster| {
            (1..4).all(|peer| cluster.is_up(0, peer as u32) && cluster.hosts[peer].sink.up.len() == 3 + life)
        });
        assert!((1..4).all(|peer| cluster.hosts[peer].sink.down.len() == life));
    }
    cluster.run_until_idle();
    assert_eq!(cluster.qps(), 4 + 12 * END);
}

/// V-11: a moment without a link costs what the device's retries take, and no connection.
#[test]
fn a_blink_costs_nothing() {
    let long_timeouts =
        VerbsOptions { port_grace: Nanos::from_millis(2), ack_timeout: 10, retry_count: 7, ..options(2) };
    let mut cluster = Cluster::connected(&long_timeouts);
    for number in 0..20 {
        link(&cluster, 0, false);
        let id = cluster.hosts[0].send(PeerId(1), number, 500, 500);
        pass(&mut cluster, Nanos::from_micros(1900));
        link(&cluster, 0, true);
        cluster.until(|cluster| cluster.hosts[0].is_done(id));
        assert_eq!(cluster.hosts[0].sink.backs, 0, "nothing waits to be connected");
    }
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), (0..20).collect::<Vec<_>>());
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// V-11: where no event comes, the port is queried before a dial.
#[test]
fn port_without_events_is_queried_before_a_dial() {
    let mut cluster = Cluster::pair(&options(2));
    let port = cluster.hosts[0].port;
    cluster.inject(Fault::PortEvents { port, delay: None });
    link(&cluster, 0, false);
    cluster.step(|_| true);
    cluster.connect(0, 1);
    cluster.step(|_| true);
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(1), NET_DOWN)]);
    link(&cluster, 0, true);
    cluster.inject(Fault::Readdress { port, lid: Some(900), gid: None });
    cluster.until(|cluster| cluster.fabric.borrow().next_event().is_none());
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
    assert!(cluster.hosts[0].rail.address().starts_with("ib-0384-"));
}

/// V-11, V-13: a port that is back elsewhere is not reached by peers that have the old address, and sends
/// them the new one when it dials itself.
#[test]
fn moved_port_sends_its_new_address_when_it_dials() {
    let mut cluster = mesh(3, &options(3));
    for life in 0..4u16 {
        let port = cluster.hosts[0].port;
        // In one go, and with the link down meanwhile.
        if life % 2 == 1 {
            link(&cluster, 0, false);
            pass(&mut cluster, Nanos::from_millis(1));
        }
        cluster.inject(Fault::Readdress { port, lid: Some(100 + life), gid: None });
        link(&cluster, 0, true);
        cluster.until(|cluster| cluster.hosts[0].sink.standing.is_empty());
        assert!(cluster.hosts[0].sink.down.iter().all(|(_, fault)| *fault == NET_RESET));
        assert!(cluster.hosts[0].rail.address().starts_with(&format!("ib-{:04x}-", 100 + life)));
        cluster.connect(0, 1);
        cluster.until(|cluster| cluster.is_up(0, 1) && cluster.hosts[1].sink.up.len() == 3 + usize::from(life) * 2);
        // F-12: once for each place.
        assert_eq!(cluster.hosts[0].sink.moves, usize::from(life) + 1);
        // Now rank 1 has the new address, and may dial by itself.
        cluster.hosts[1].rail.abort(PeerId(0));
        cluster.hosts[1].sink.standing.retain(|peer| *peer != PeerId(0));
        cluster.connect(1, 0);
        cluster.until(|cluster| {
            cluster.is_up(1, 0) && cluster.is_up(0, 1) && cluster.hosts[0].sink.up.len() == 4 + 3 * usize::from(life)
        });
        cluster.connect(0, 2);
        cluster.until(|cluster| cluster.is_up(0, 2) && cluster.is_up(2, 0));
        cluster.hosts[0].send(PeerId(2), 1000 + u64::from(life), 3000, 3000);
        cluster.until(|cluster| cluster.hosts[2].numbers_from(PeerId(0)).contains(&(1000 + u64::from(life))));
        cluster.hosts[0].sink.down.clear();
    }
}

/// V-12, F-2: all is down, then all registrations are invalid; while the device is broken everything is
/// refused at once; then it works as before, and peers learn where it is.
#[test]
fn reloaded_device_works_again_and_updates_its_address() {
    let options = options(3);
    let mut cluster = mesh(3, &options).reviving();
    let hca = cluster.hosts[0].hca;
    let mut window = vec![0u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    for life in 1..5usize {
        cluster.hosts[0].register(piece, true).unwrap();
        cluster.hosts[0].send(PeerId(1), 1, 3000, 3000);
        cluster.hosts[1].send(PeerId(0), 1, 3000, 3000);
        cluster.inject(Fault::Kill { hca, reload_after: Some(Nanos::from_millis(25)) });
        let broke = cluster.now;
        cluster.until(|cluster| cluster.hosts[0].sink.resets == life);
        assert_eq!(cluster.now, broke);
        cluster.hosts[0].sink.down.sort_by_key(|(peer, _)| *peer);
        assert_eq!(cluster.hosts[0].sink.down, [(PeerId(1), BROKEN), (PeerId(2), BROKEN)]);
        let none = cluster.hosts[0].rail.usage();
        assert_eq!((none.connections, none.registrations, none.datagrams), (0, 0, 0));
        assert_eq!(cluster.fabric.borrow().objects(hca).mrs, 0);
        cluster.connect(0, 1);
        assert!(cluster.hosts[0].register(piece, false).is_err());
        cluster.hosts[0].rail.abort(PeerId(2));
        cluster.hosts[0].rail.disconnect(PeerId(2));
        cluster.hosts[0].rail.forget(piece);
        cluster.step(|_| true);
        assert_eq!(cluster.hosts[0].sink.down.last(), Some(&(PeerId(1), BROKEN)));
        assert!(cluster.hosts[0].rail.device().is_none());
        // Opened after 10 ms, in vain, and after 20 more.
        cluster.until(|cluster| cluster.hosts[0].rail.device().is_some());
        assert_eq!(cluster.now - broke, Nanos(options.reopen_first.0 * 3));
        assert_eq!(cluster.hosts[0].sink.backs, life, "F-8");
        let ups = cluster.hosts[1].sink.up.len();
        cluster.connect(0, 1);
        cluster.connect(0, 2);
        cluster
            .until(|cluster| cluster.is_up(0, 1) && cluster.is_up(0, 2) && cluster.hosts[1].sink.up.len() == ups + 1);
        // F-12: its queue pair for datagrams has another number.
        assert_eq!(cluster.hosts[0].sink.moves, life);
        // It has sent its new address: it can be dialled.
        cluster.hosts[2].rail.abort(PeerId(0));
        cluster.hosts[2].sink.standing.retain(|peer| *peer != PeerId(0));
        let ups = cluster.hosts[0].sink.up.len();
        cluster.connect(2, 0);
        cluster.until(|cluster| cluster.is_up(2, 0) && cluster.hosts[0].sink.up.len() == ups + 1);
        let key = cluster.hosts[0].register(piece, true).unwrap();
        let id = cluster.hosts[1].write(PeerId(0), key, life as u64, 4096, 4096);
        cluster.until(|cluster| cluster.hosts[1].is_done(id));
        cluster.run_until_idle();
        assert!(window == crate::cluster::payload(life as u64, 4096));
        let host = &mut cluster.hosts[0];
        (host.sink.down, host.sink.taken) = Default::default();
        assert!(cluster.hosts.iter().all(|host| host.sink.standing.len() == 2));
        assert_eq!(cluster.qps(), 3 + 6 * END);
    }
}

/// V-12: for so long, and no longer.
#[test]
fn a_device_that_stays_broken_is_given_up() {
    let bounded =
        VerbsOptions { reopen_max: Nanos::from_millis(20), reopen_for: Some(Nanos::from_millis(100)), ..options(2) };
    let mut cluster = Cluster::connected(&bounded).reviving();
    let hca = cluster.hosts[0].hca;
    let broke = cluster.now;
    cluster.inject(Fault::Kill { hca, reload_after: None });
    let mut tries = Vec::new();
    while let Some(due) = {
        let host = &mut cluster.hosts[0];
        host.rail.poll(cluster.now, &mut host.sink);
        host.rail.next_timeout()
    } {
        tries.push((due - broke).0 / 1_000_000);
        cluster.now = due;
    }
    assert_eq!(tries, [10, 30, 50, 70, 90]);
    assert_eq!(cluster.hosts[0].sink.resets, 1);
    cluster.connect(0, 1);
    cluster.step(|host| host == 0);
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(1), BROKEN), (PeerId(1), BROKEN)]);
}

/// V-12: a device that comes back with its port down, and faults while it comes back.
#[test]
fn faults_during_device_reload_are_recovered() {
    let mut cluster = Cluster::connected(&options(2)).reviving();
    let hca = cluster.hosts[0].hca;
    cluster.inject(Fault::Kill { hca, reload_after: Some(Nanos::from_millis(5)) });
    link(&cluster, 0, false);
    // Once it comes back and can't register, once it breaks again.
    cluster.inject(Fault::RefuseRegistrations { hca, count: 1 });
    cluster.until(|cluster| cluster.hosts[0].sink.resets == 1);
    cluster.until(|cluster| cluster.hosts[0].rail.device().is_some());
    cluster.inject(Fault::Kill { hca, reload_after: Some(Nanos::from_millis(5)) });
    cluster.until(|cluster| cluster.hosts[0].sink.resets == 2);
    cluster.until(|cluster| cluster.hosts[0].rail.device().is_some());
    cluster.connect(0, 1);
    cluster.step(|_| true);
    assert_eq!(cluster.hosts[0].sink.down.last(), Some(&(PeerId(1), NET_DOWN)));
    link(&cluster, 0, true);
    pass(&mut cluster, Nanos::from_micros(10));
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.hosts[1].sink.up.len() == 2);
}

/// V-12, V-13: both ends at once. Neither has the other's address then, unless the numbers happen to be
/// those of before; a rank that receives the new address by another way can dial.
#[test]
fn both_devices_break_at_once() {
    let mut cluster = Cluster::connected(&options(2)).reviving();
    for host in 0..2 {
        let hca = cluster.hosts[host].hca;
        cluster.inject(Fault::Kill { hca, reload_after: Some(Nanos::from_millis(3)) });
    }
    cluster.until(|cluster| cluster.hosts.iter().all(|host| host.sink.resets == 1 && host.rail.device().is_some()));
    assert!(cluster.hosts.iter().all(|host| host.sink.moves == 1));
    let address = cluster.hosts[1].rail.address();
    assert_eq!(cluster.hosts[0].rail.add_peer(PeerId(1), &address), Ok(true));
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
    cluster.hosts[1].send(PeerId(0), 9, 3000, 100);
    cluster.until(|cluster| cluster.hosts[0].numbers_from(PeerId(1)) == [9]);
}

/// V-4: a lost message of the set-up is sent again after four round trips.
#[test]
fn lost_setup_message_is_resent_after_four_round_trips() {
    let slow = VerbsOptions { resend_first: Nanos::from_millis(4), ..options(2) };
    let mut cluster = Cluster::connected(&slow);
    let took = |cluster: &mut Cluster, packets: u32| {
        cluster.hosts[0].rail.abort(PeerId(1));
        cluster.hosts[0].sink.standing.clear();
        let ups = cluster.hosts[1].sink.up.len();
        cluster.run_until_idle();
        if packets > 0 {
            cluster.inject(Fault::Lose { port: cluster.hosts[0].port, packets });
        }
        let from: Time = cluster.now;
        cluster.connect(0, 1);
        cluster.until(|cluster| cluster.is_up(0, 1) && cluster.hosts[1].sink.up.len() == ups + 1);
        cluster.run_until_idle();
        cluster.now - from
    };
    let whole = took(&mut cluster, 0);
    assert!(whole < Nanos::from_micros(100), "{whole:?}");
    let lossy = took(&mut cluster, 1);
    assert!(lossy < Nanos::from_micros(200), "{lossy:?}");
    let very_lossy = took(&mut cluster, 3);
    assert!(very_lossy < Nanos::from_micros(1000), "{very_lossy:?}");
}

/// V-20: rails meet in the partition that both are full members of, whatever stands first in their tables;
/// where the table changes they follow.
#[test]
fn rails_follow_their_partition() {
    let pkeys = HcaOptions { pkeys: vec![0x7fff, 0, 0x8001], ..HcaOptions::default() };
    let mut cluster = Cluster::with([options(2), options(2)], |_| Secret::new([0x42; 32]), pkeys);
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
    let tables = [
        // It stays where it is.
        (vec![0xffff, 0x8003, 0x8001], &[][..]),
        (vec![0x7fff, 0x8001, 0x7fff], &[NET_RESET]),
    ];
    let change = |cluster: &mut Cluster, table: &[u16]| {
        for host in 0..2 {
            cluster.hosts[host].sink.down.clear();
            let port = cluster.hosts[host].port;
            cluster.inject(Fault::Pkeys { port, table: table.to_vec() });
        }
    };
    let exchange = |cluster: &mut Cluster, number: u64| {
        cluster.connect(0, 1);
        cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
        cluster.hosts[0].send(PeerId(1), number, 700, 700);
        cluster.until(|cluster| cluster.hosts[1].numbers_from(PeerId(0)).contains(&number));
        cluster.run_until_idle();
    };
    for (number, (table, ends)) in tables.into_iter().enumerate() {
        change(&mut cluster, &table);
        cluster.run_until_idle();
        for host in &cluster.hosts {
            assert!(host.sink.down.iter().map(|(_, why)| why).eq(ends), "{table:x?}: {:?}", host.sink.down);
        }
        exchange(&mut cluster, number as u64);
    }
    // For a moment there is none: what is posted now gets nowhere.
    change(&mut cluster, &[0x7fff]);
    cluster.run_until_idle();
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
    cluster.hosts[0].send(PeerId(1), 9, 700, 700);
    pass(&mut cluster, options(2).port_grace);
    assert!(!cluster.hosts[1].numbers_from(PeerId(0)).contains(&9));
    change(&mut cluster, &[0x8002]);
    cluster.run_until_idle();
    assert!(cluster.hosts.iter().all(|host| host.sink.standing.is_empty()));
    exchange(&mut cluster, 10);
    assert!(cluster.hosts.iter().all(|host| (host.sink.moves, host.sink.resets) == (0, 0)));
}
