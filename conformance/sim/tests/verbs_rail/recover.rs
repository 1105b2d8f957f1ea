//! Ports that go down and move, and devices that break and come back: rules V-11 to V-13, F-2.

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::{Nanos, Time};
use rerail_linux::auth::Secret;
use rerail_linux::rail::verbs::VerbsOptions;
use rerail_linux::rail::{Piece, Rail};
use rerail_sim::hca::{Fault, HcaOptions};
use rerail_sim::net::Direction;

use crate::world::{END, World, options};

/// From the end of a port's grace to the end of its connections: by XRC, what has come is waited for.
const SETTLING: Nanos = Nanos::from_micros(if crate::XRC { 300 } else { 100 });

const NET_DOWN: RailFault = RailFault::Device { code: 100 };
const NET_RESET: RailFault = RailFault::Device { code: 102 };
const BROKEN: RailFault = RailFault::Device { code: 5 };

fn link(world: &World, host: usize, up: bool) {
    let port = world.hosts[host].port;
    world.inject(Fault::Link { port, direction: Direction::Both, up, noticed_after: Some(Nanos(0)) });
}

fn mesh(count: u32, options: &VerbsOptions) -> World {
    let mut world = World::new((0..count).map(|_| options.clone()));
    for from in 0..count {
        (0..from).for_each(|to| world.connect(from as usize, to));
    }
    world.until(|world| world.hosts.iter().all(|host| host.sink.standing.len() == count as usize - 1));
    world
}

fn pass(world: &mut World, span: Nanos) {
    let until = world.now + span;
    while world.now < until {
        let timers = world.hosts.iter().filter_map(|host| host.rail.next_timeout());
        let next = world.fabric.borrow().next_event().into_iter().chain(timers).min();
        world.now = next.map_or(until, |next| next.max(world.now).min(until));
        world.fabric.borrow_mut().advance(world.now);
        for host in &mut world.hosts {
            while host.rail.poll(world.now, &mut host.sink) > 0 {}
        }
        if next == Some(world.now) && world.fabric.borrow().next_event() == next {
            world.now = until;
        }
    }
}

/// V-11: down at once, and no waiting for the device's own retries; nothing is dialled until the port is
/// back.
#[test]
fn a_port_that_is_down_takes_its_connections_along() {
    let mut world = mesh(4, &options(4));
    for life in 1..4 {
        link(&world, 0, false);
        let cut = world.now;
        world.until(|world| world.hosts[0].sink.standing.is_empty());
        assert!(world.now <= cut + options(4).port_grace + SETTLING, "{:?}", world.now - cut);
        assert_eq!(world.hosts[0].sink.down.len(), 3 * life);
        assert!(world.hosts[0].sink.down.iter().all(|(_, fault)| *fault == NET_DOWN));
        let called = world.now;
        world.connect(0, 1);
        world.step(|_| true);
        assert_eq!((world.hosts[0].sink.down.pop(), world.now), (Some((PeerId(1), NET_DOWN)), called));
        assert_eq!(world.hosts[0].sink.backs, life - 1);
        link(&world, 0, true);
        pass(&mut world, Nanos::from_micros(10));
        assert_eq!(world.hosts[0].sink.backs, life, "F-8");
        // For the others the old connections are still up.
        assert!((1..4).all(|peer| world.is_up(peer, 0)));
        (1..4).for_each(|peer| world.connect(0, peer));
        world.until(|world| {
            (1..4).all(|peer| world.is_up(0, peer as u32) && world.hosts[peer].sink.up.len() == 3 + life)
        });
        assert!((1..4).all(|peer| world.hosts[peer].sink.down.len() == life));
    }
    world.settle();
    assert_eq!(world.qps(), 4 + 12 * END);
}

/// V-11: a moment without a link costs what the device's retries take, and no connection.
#[test]
fn a_blink_costs_nothing() {
    let patient = VerbsOptions { port_grace: Nanos::from_millis(2), ack_timeout: 10, retry_count: 7, ..options(2) };
    let mut world = World::connected(&patient);
    for number in 0..20 {
        link(&world, 0, false);
        let id = world.hosts[0].send(PeerId(1), number, 500, 500);
        pass(&mut world, Nanos::from_micros(1900));
        link(&world, 0, true);
        world.until(|world| world.hosts[0].is_done(id));
        assert_eq!(world.hosts[0].sink.backs, 0, "nothing waits to be connected");
    }
    assert_eq!(world.hosts[1].numbers_from(PeerId(0)), (0..20).collect::<Vec<_>>());
    assert!(world.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// V-11: where no event comes, the port is queried before a dial.
#[test]
fn a_port_without_events_is_asked() {
    let mut world = World::pair(&options(2));
    let port = world.hosts[0].port;
    world.inject(Fault::PortEvents { port, delay: None });
    link(&world, 0, false);
    world.step(|_| true);
    world.connect(0, 1);
    world.step(|_| true);
    assert_eq!(world.hosts[0].sink.down, [(PeerId(1), NET_DOWN)]);
    link(&world, 0, true);
    world.inject(Fault::Readdress { port, lid: Some(900), gid: None });
    world.until(|world| world.fabric.borrow().next_event().is_none());
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
    assert!(world.hosts[0].rail.address().starts_with("ib-0384-"));
}

/// V-11, V-13: a port that is back elsewhere is not reached by peers that have the old address, and sends
/// them the new one when it dials itself.
#[test]
fn a_port_that_moves_says_where_it_is() {
    let mut world = mesh(3, &options(3));
    for life in 0..4u16 {
        let port = world.hosts[0].port;
        // In one go, and with the link down meanwhile.
        if life % 2 == 1 {
            link(&world, 0, false);
            pass(&mut world, Nanos::from_millis(1));
        }
        world.inject(Fault::Readdress { port, lid: Some(100 + life), gid: None });
        link(&world, 0, true);
        world.until(|world| world.hosts[0].sink.standing.is_empty());
        assert!(world.hosts[0].sink.down.iter().all(|(_, fault)| *fault == NET_RESET));
        assert!(world.hosts[0].rail.address().starts_with(&format!("ib-{:04x}-", 100 + life)));
        world.connect(0, 1);
        world.until(|world| world.is_up(0, 1) && world.hosts[1].sink.up.len() == 3 + usize::from(life) * 2);
        // F-12: once for each place.
        assert_eq!(world.hosts[0].sink.moves, usize::from(life) + 1);
        // Now rank 1 has the new address, and may dial by itself.
        world.hosts[1].rail.abort(PeerId(0));
        world.hosts[1].sink.standing.retain(|peer| *peer != PeerId(0));
        world.connect(1, 0);
        world.until(|world| {
            world.is_up(1, 0) && world.is_up(0, 1) && world.hosts[0].sink.up.len() == 4 + 3 * usize::from(life)
        });
        world.connect(0, 2);
        world.until(|world| world.is_up(0, 2) && world.is_up(2, 0));
        world.hosts[0].send(PeerId(2), 1000 + u64::from(life), 3000, 3000);
        world.until(|world| world.hosts[2].numbers_from(PeerId(0)).contains(&(1000 + u64::from(life))));
        world.hosts[0].sink.down.clear();
    }
}

/// V-12, F-2: all is down, then all registrations are invalid; while the device is broken everything is
/// refused at once; then it works as before, and peers learn where it is.
#[test]
fn a_broken_device_comes_back() {
    let options = options(3);
    let mut world = mesh(3, &options).reviving();
    let hca = world.hosts[0].hca;
    let mut window = vec![0u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    for life in 1..5usize {
        world.hosts[0].register(piece, true).unwrap();
        world.hosts[0].send(PeerId(1), 1, 3000, 3000);
        world.hosts[1].send(PeerId(0), 1, 3000, 3000);
        world.inject(Fault::Kill { hca, reload_after: Some(Nanos::from_millis(25)) });
        let broke = world.now;
        world.until(|world| world.hosts[0].sink.resets == life);
        assert_eq!(world.now, broke);
        world.hosts[0].sink.down.sort_by_key(|(peer, _)| *peer);
        assert_eq!(world.hosts[0].sink.down, [(PeerId(1), BROKEN), (PeerId(2), BROKEN)]);
        let none = world.hosts[0].rail.usage();
        assert_eq!((none.connections, none.registrations, none.datagrams), (0, 0, 0));
        assert_eq!(world.fabric.borrow().objects(hca).mrs, 0);
        world.connect(0, 1);
        assert!(world.hosts[0].register(piece, false).is_err());
        world.hosts[0].rail.abort(PeerId(2));
        world.hosts[0].rail.disconnect(PeerId(2));
        world.hosts[0].rail.forget(piece);
        world.step(|_| true);
        assert_eq!(world.hosts[0].sink.down.last(), Some(&(PeerId(1), BROKEN)));
        assert!(world.hosts[0].rail.device().is_none());
        // Opened after 10 ms, in vain, and after 20 more.
        world.until(|world| world.hosts[0].rail.device().is_some());
        assert_eq!(world.now - broke, Nanos(options.reopen_first.0 * 3));
        assert_eq!(world.hosts[0].sink.backs, life, "F-8");
        let ups = world.hosts[1].sink.up.len();
        world.connect(0, 1);
        world.connect(0, 2);
        world.until(|world| world.is_up(0, 1) && world.is_up(0, 2) && world.hosts[1].sink.up.len() == ups + 1);
        // F-12: its queue pair for datagrams has another number.
        assert_eq!(world.hosts[0].sink.moves, life);
        // It has sent its new address: it can be dialled.
        world.hosts[2].rail.abort(PeerId(0));
        world.hosts[2].sink.standing.retain(|peer| *peer != PeerId(0));
        let ups = world.hosts[0].sink.up.len();
        world.connect(2, 0);
        world.until(|world| world.is_up(2, 0) && world.hosts[0].sink.up.len() == ups + 1);
        let key = world.hosts[0].register(piece, true).unwrap();
        let id = world.hosts[1].write(PeerId(0), key, life as u64, 4096, 4096);
        world.until(|world| world.hosts[1].is_done(id));
        world.settle();
        assert!(window == crate::world::payload(life as u64, 4096));
        let host = &mut world.hosts[0];
        (host.sink.down, host.sink.taken) = Default::default();
        assert!(world.hosts.iter().all(|host| host.sink.standing.len() == 2));
        assert_eq!(world.qps(), 3 + 6 * END);
    }
}

/// V-12: for so long, and no longer.
#[test]
fn a_device_that_stays_broken_is_given_up() {
    let bounded =
        VerbsOptions { reopen_max: Nanos::from_millis(20), reopen_for: Some(Nanos::from_millis(100)), ..options(2) };
    let mut world = World::connected(&bounded).reviving();
    let hca = world.hosts[0].hca;
    let broke = world.now;
    world.inject(Fault::Kill { hca, reload_after: None });
    let mut tries = Vec::new();
    while let Some(due) = {
        let host = &mut world.hosts[0];
        host.rail.poll(world.now, &mut host.sink);
        host.rail.next_timeout()
    } {
        tries.push((due - broke).0 / 1_000_000);
        world.now = due;
    }
    assert_eq!(tries, [10, 30, 50, 70, 90]);
    assert_eq!(world.hosts[0].sink.resets, 1);
    world.connect(0, 1);
    world.step(|host| host == 0);
    assert_eq!(world.hosts[0].sink.down, [(PeerId(1), BROKEN), (PeerId(1), BROKEN)]);
}

/// V-12: a device that comes back with its port down, and faults while it comes back.
#[test]
fn faults_while_it_comes_back() {
    let mut world = World::connected(&options(2)).reviving();
    let hca = world.hosts[0].hca;
    world.inject(Fault::Kill { hca, reload_after: Some(Nanos::from_millis(5)) });
    link(&world, 0, false);
    // Once it comes back and can't register, once it breaks again.
    world.inject(Fault::RefuseRegistrations { hca, count: 1 });
    world.until(|world| world.hosts[0].sink.resets == 1);
    world.until(|world| world.hosts[0].rail.device().is_some());
    world.inject(Fault::Kill { hca, reload_after: Some(Nanos::from_millis(5)) });
    world.until(|world| world.hosts[0].sink.resets == 2);
    world.until(|world| world.hosts[0].rail.device().is_some());
    world.connect(0, 1);
    world.step(|_| true);
    assert_eq!(world.hosts[0].sink.down.last(), Some(&(PeerId(1), NET_DOWN)));
    link(&world, 0, true);
    pass(&mut world, Nanos::from_micros(10));
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1) && world.hosts[1].sink.up.len() == 2);
}

/// V-12, V-13: both ends at once. Neither has the other's address then, unless the numbers happen to be
/// those of before; a rank that receives the new address by another way can dial.
#[test]
fn both_devices_break_at_once() {
    let mut world = World::connected(&options(2)).reviving();
    for host in 0..2 {
        let hca = world.hosts[host].hca;
        world.inject(Fault::Kill { hca, reload_after: Some(Nanos::from_millis(3)) });
    }
    world.until(|world| world.hosts.iter().all(|host| host.sink.resets == 1 && host.rail.device().is_some()));
    assert!(world.hosts.iter().all(|host| host.sink.moves == 1));
    let address = world.hosts[1].rail.address();
    assert_eq!(world.hosts[0].rail.add_peer(PeerId(1), &address), Ok(true));
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
    world.hosts[1].send(PeerId(0), 9, 3000, 100);
    world.until(|world| world.hosts[0].numbers_from(PeerId(1)) == [9]);
}

/// V-4: a lost message of the set-up is sent again after four round trips.
#[test]
fn lost_messages_are_said_again_soon() {
    let slow = VerbsOptions { resend_first: Nanos::from_millis(4), ..options(2) };
    let mut world = World::connected(&slow);
    let took = |world: &mut World, packets: u32| {
        world.hosts[0].rail.abort(PeerId(1));
        world.hosts[0].sink.standing.clear();
        let ups = world.hosts[1].sink.up.len();
        world.settle();
        if packets > 0 {
            world.inject(Fault::Lose { port: world.hosts[0].port, packets });
        }
        let from: Time = world.now;
        world.connect(0, 1);
        world.until(|world| world.is_up(0, 1) && world.hosts[1].sink.up.len() == ups + 1);
        world.settle();
        world.now - from
    };
    let whole = took(&mut world, 0);
    assert!(whole < Nanos::from_micros(100), "{whole:?}");
    let lossy = took(&mut world, 1);
    assert!(lossy < Nanos::from_micros(200), "{lossy:?}");
    let very_lossy = took(&mut world, 3);
    assert!(very_lossy < Nanos::from_micros(1000), "{very_lossy:?}");
}

/// V-20: rails meet in the partition that both are full members of, whatever stands first in their tables;
/// where the table changes they follow.
#[test]
fn rails_follow_their_partition() {
    let pkeys = HcaOptions { pkeys: vec![0x7fff, 0, 0x8001], ..HcaOptions::default() };
    let mut world = World::with([options(2), options(2)], |_| Secret::new([0x42; 32]), pkeys);
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
    let tables = [
        // It stays where it is.
        (vec![0xffff, 0x8003, 0x8001], &[][..]),
        (vec![0x7fff, 0x8001, 0x7fff], &[NET_RESET]),
    ];
    let change = |world: &mut World, table: &[u16]| {
        for host in 0..2 {
            world.hosts[host].sink.down.clear();
            let port = world.hosts[host].port;
            world.inject(Fault::Pkeys { port, table: table.to_vec() });
        }
    };
    let talk = |world: &mut World, number: u64| {
        world.connect(0, 1);
        world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
        world.hosts[0].send(PeerId(1), number, 700, 700);
        world.until(|world| world.hosts[1].numbers_from(PeerId(0)).contains(&number));
        world.settle();
    };
    for (number, (table, ends)) in tables.into_iter().enumerate() {
        change(&mut world, &table);
        world.settle();
        for host in &world.hosts {
            assert!(host.sink.down.iter().map(|(_, why)| why).eq(ends), "{table:x?}: {:?}", host.sink.down);
        }
        talk(&mut world, number as u64);
    }
    // For a moment there is none: what is posted now gets nowhere.
    change(&mut world, &[0x7fff]);
    world.settle();
    assert!(world.hosts.iter().all(|host| host.sink.down.is_empty()));
    world.hosts[0].send(PeerId(1), 9, 700, 700);
    pass(&mut world, options(2).port_grace);
    assert!(!world.hosts[1].numbers_from(PeerId(0)).contains(&9));
    change(&mut world, &[0x8002]);
    world.settle();
    assert!(world.hosts.iter().all(|host| host.sink.standing.is_empty()));
    talk(&mut world, 10);
    assert!(world.hosts.iter().all(|host| (host.sink.moves, host.sink.resets) == (0, 0)));
}
