//! Blocking mode: a transport that sleeps is woken by everything that concerns it.

use std::time::Duration;

use rerail_core::config::Config;
use rerail_core::endpoint::{Event, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::time::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::cluster::{Cluster, Fabric, on_fabrics, pattern, rails, small, whole};
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
fn until_asleep(cluster: &mut Cluster, what: &str, mut holds: impl FnMut(&mut Cluster) -> bool) -> usize {
    let mut sleeps = 0;
    while !holds(cluster) {
        cluster.step();
        let mut idle = true;
        for transport in &mut cluster.transports {
            idle &= transport.arm().unwrap();
        }
        if idle && !holds(cluster) {
            sleeps += 1;
            let fds: Vec<_> = cluster.transports.iter().map(|transport| transport.fd()).collect();
            let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            assert_ne!(poll(&mut fds, Some(&LOST)).unwrap(), 0, "{what}: a wake-up was lost");
        }
        cluster.transports.iter_mut().for_each(|transport| transport.disarm());
    }
    sleeps
}

fn sleepers_exchange_messages(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    for (round, bytes) in [0, 1, 5000, 1 << 20, 10, 1 << 20].into_iter().cycle().take(60).enumerate() {
        let (a, b) = if round % 2 == 0 { (ends.a, ends.b) } else { (ends.b, ends.a) };
        let source = cluster.filled(a, bytes.max(1), round as u8);
        let target = cluster.empty(b, bytes.max(1));
        let recv = cluster.at(b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, bytes))).unwrap();
        let send = SendRequest { segments: &whole(source, bytes), ..SendRequest::new(PeerId(b as u32), &[]) };
        let send = cluster.at(a).send(&send).unwrap();
        let over = |cluster: &Cluster, rank: usize, operation| {
            cluster.events[rank]
                .iter()
                .any(|event| matches!(event, Event::Completed(done) if done.operation == operation))
        };
        until_asleep(&mut cluster, "a message", |cluster| over(cluster, a, send) && over(cluster, b, recv));
        cluster.complete(a, send).unwrap();
        cluster.complete(b, recv).unwrap();
        assert!(cluster.bytes(b, target)[..bytes] == pattern(bytes, round as u8));
        cluster.at(a).free(source).unwrap();
        cluster.at(b).free(target).unwrap();
    }
}

fn a_timer_wakes_the_sleeper(fabric: Fabric) {
    // The receiver has one acknowledgment pending and no other message, so that only its timer sends it.
    let config = |rank, size| Config { ack_delay: Nanos::from_millis(30), ..small(rank, size) };
    let mut cluster = Cluster::with(2, |rank| rails(rank, 2, fabric), config);
    let target = cluster.empty(1, 10);
    let recv = cluster.at(1).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 10))).unwrap();
    cluster.at(0).inject(&SendRequest::new(PeerId(1), &[]), &pattern(10, 1)).unwrap();
    cluster.complete(1, recv).unwrap();
    let before = cluster.at(1).stats().acks_explicit;
    let sleeps =
        until_asleep(&mut cluster, "the acknowledgment", |cluster| cluster.at(1).stats().acks_explicit > before);
    assert!(sleeps > 0, "no transport slept, so that the timer was not needed");
}

fn a_vanished_peer_wakes_the_sleeper(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let target = cluster.empty(ends.b, 1);
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 1))).unwrap();
    cluster.at(ends.a).inject(&SendRequest::new(ends.peer_b(), &[]), b"x").unwrap();
    cluster.complete(ends.b, recv).unwrap();
    // Until nothing is left to do, so that only the end of the peer can wake.
    while !cluster.transports.iter_mut().map(|transport| transport.arm().unwrap()).fold(true, |all, idle| all & idle) {
        cluster.step();
    }
    drop(cluster.transports.remove(ends.b));
    until_asleep(&mut cluster, "the loss", |cluster| {
        cluster.events[0].iter().any(|event| matches!(event, Event::PeerLost { peer, .. } if *peer == PeerId(1)))
    });
}

fn what_is_there_already_lets_nobody_sleep(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let idle = cluster.at(ends.a);
    assert_eq!(idle.wait(Some(Duration::ZERO)), Ok(Woken::TimedOut));
    // A request that was not sent yet.
    let send = idle.inject(&SendRequest::new(ends.peer_b(), &[]), b"x").unwrap();
    assert_eq!(idle.wait(None), Ok(Woken::Work));
    // An event that was not taken.
    let target = cluster.empty(ends.b, 1);
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 1))).unwrap();
    cluster.complete(ends.b, recv).unwrap();
    cluster.complete(ends.a, send).unwrap();
    let selector = Selector::ANY_UNTAGGED.of(ends.peer_a());
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(selector, &[])).unwrap();
    cluster.at(ends.b).cancel(recv).unwrap();
    assert_eq!(cluster.at(ends.b).arm(), Ok(false));
    cluster.complete(ends.b, recv).unwrap_err();
}
