//! Blocking mode: a transport that sleeps is woken by everything that concerns it.

use std::time::Duration;

use rerail_core::config::Config;
use rerail_core::endpoint::{Event, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::time::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::world::{Fabric, World, on_fabrics, pattern, rails, small, whole};
use crate::driver::Woken;

on_fabrics! {
    sleepers_exchange_messages: Shm Tcp TwoTcp;
    a_timer_wakes_the_sleeper: Shm Tcp;
    a_vanished_peer_wakes_the_sleeper: Shm Tcp TwoTcp;
    what_is_there_already_lets_nobody_sleep: Loop Shm Tcp;
}

/// Far beyond any wake-up here: reaching it means that one was lost.
const LOST: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Steps until a condition holds; whenever no transport has work, sleeps on their descriptors.
fn until_asleep(world: &mut World, what: &str, mut holds: impl FnMut(&mut World) -> bool) -> usize {
    let mut sleeps = 0;
    while !holds(world) {
        world.step();
        let mut idle = true;
        for transport in &mut world.transports {
            idle &= transport.arm().unwrap();
        }
        if idle && !holds(world) {
            sleeps += 1;
            let fds: Vec<_> = world.transports.iter().map(|transport| transport.fd()).collect();
            let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            assert_ne!(poll(&mut fds, Some(&LOST)).unwrap(), 0, "{what}: a wake-up was lost");
        }
        world.transports.iter_mut().for_each(|transport| transport.disarm());
    }
    sleeps
}

fn sleepers_exchange_messages(fabric: Fabric) {
    let (mut world, ends) = World::new(fabric);
    for (round, bytes) in [0, 1, 5000, 1 << 20, 10, 1 << 20].into_iter().cycle().take(60).enumerate() {
        let (a, b) = if round % 2 == 0 { (ends.a, ends.b) } else { (ends.b, ends.a) };
        let source = world.filled(a, bytes.max(1), round as u8);
        let target = world.empty(b, bytes.max(1));
        let recv = world.at(b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, bytes))).unwrap();
        let send = SendRequest { segments: &whole(source, bytes), ..SendRequest::new(PeerId(b as u32), &[]) };
        let send = world.at(a).send(&send).unwrap();
        let over = |world: &World, rank: usize, operation| {
            world.events[rank]
                .iter()
                .any(|event| matches!(event, Event::Completed(done) if done.operation == operation))
        };
        until_asleep(&mut world, "a message", |world| over(world, a, send) && over(world, b, recv));
        world.complete(a, send).unwrap();
        world.complete(b, recv).unwrap();
        assert!(world.bytes(b, target)[..bytes] == pattern(bytes, round as u8));
        world.at(a).free(source).unwrap();
        world.at(b).free(target).unwrap();
    }
}

fn a_timer_wakes_the_sleeper(fabric: Fabric) {
    // The receiver has one acknowledgment pending and no other message, so that only its timer sends it.
    let config = |rank, size| Config { ack_delay: Nanos::from_millis(30), ..small(rank, size) };
    let mut world = World::with(2, |rank| rails(rank, 2, fabric), config);
    let target = world.empty(1, 10);
    let recv = world.at(1).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 10))).unwrap();
    world.at(0).inject(&SendRequest::new(PeerId(1), &[]), &pattern(10, 1)).unwrap();
    world.complete(1, recv).unwrap();
    let before = world.at(1).stats().acks_explicit;
    let sleeps = until_asleep(&mut world, "the acknowledgment", |world| world.at(1).stats().acks_explicit > before);
    assert!(sleeps > 0, "no transport slept, so that the timer was not needed");
}

fn a_vanished_peer_wakes_the_sleeper(fabric: Fabric) {
    let (mut world, ends) = World::new(fabric);
    let target = world.empty(ends.b, 1);
    let recv = world.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 1))).unwrap();
    world.at(ends.a).inject(&SendRequest::new(ends.peer_b(), &[]), b"x").unwrap();
    world.complete(ends.b, recv).unwrap();
    // Until nothing is left to do, so that only the end of the peer can wake.
    while !world.transports.iter_mut().map(|transport| transport.arm().unwrap()).fold(true, |all, idle| all & idle) {
        world.step();
    }
    drop(world.transports.remove(ends.b));
    until_asleep(&mut world, "the loss", |world| {
        world.events[0].iter().any(|event| matches!(event, Event::PeerLost { peer, .. } if *peer == PeerId(1)))
    });
}

fn what_is_there_already_lets_nobody_sleep(fabric: Fabric) {
    let (mut world, ends) = World::new(fabric);
    let idle = world.at(ends.a);
    assert_eq!(idle.wait(Some(Duration::ZERO)), Ok(Woken::TimedOut));
    // A request that was not sent yet.
    let send = idle.inject(&SendRequest::new(ends.peer_b(), &[]), b"x").unwrap();
    assert_eq!(idle.wait(None), Ok(Woken::Work));
    // An event that was not taken.
    let target = world.empty(ends.b, 1);
    let recv = world.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 1))).unwrap();
    world.complete(ends.b, recv).unwrap();
    world.complete(ends.a, send).unwrap();
    let selector = Selector::ANY_UNTAGGED.of(ends.peer_a());
    let recv = world.at(ends.b).recv(&RecvRequest::new(selector, &[])).unwrap();
    world.at(ends.b).cancel(recv).unwrap();
    assert_eq!(world.at(ends.b).arm(), Ok(false));
    world.complete(ends.b, recv).unwrap_err();
}
