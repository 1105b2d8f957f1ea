//! What a call of `progress` looks at: other rails as soon as time has passed, and all rings in turn.

use std::time::Duration;

use rerail_core::endpoint::{Event, Level, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::rail::RailKind;

use super::cluster::{Cluster, Fabric, rails, small, whole};

/// An 8 B message to rank 0, which has a receive for it.
fn send(cluster: &mut Cluster, from: usize) {
    let source = cluster.filled(from, 8, 1);
    let sent = cluster.at(from).send(&SendRequest::new(PeerId(0), &whole(source, 8)));
    sent.unwrap();
}

fn receive(cluster: &mut Cluster) {
    let target = cluster.empty(0, 8);
    cluster.at(0).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 8))).unwrap();
}

/// One call of rank 0. Returns the senders of the messages that it brought.
fn call(cluster: &mut Cluster) -> Vec<PeerId> {
    let transport = cluster.at(0);
    transport.progress();
    let events = std::iter::from_fn(|| transport.poll_event());
    let received = |event| match event {
        Event::Completed(completion) => completion.result.ok().map(|done| done.peer),
        _ => None,
    };
    events.filter_map(received).collect()
}

/// A host that calls once a millisecond has all rails looked at in each call, though each brings a message
/// over shared memory.
#[test]
fn a_host_that_calls_seldom_looks_at_all_rails() {
    let both = |rank| [Fabric::Shm, Fabric::Tcp].into_iter().flat_map(|fabric| rails(rank, 2, fabric)).collect();
    let mut cluster = Cluster::with(2, both, small);
    (0..4).for_each(|_| cluster.ping(0, 1, 8));
    // A look at sockets is a system call.
    let looks = |cluster: &Cluster| {
        let mut rails = cluster.transports[0].rails();
        rails.find(|rail| rail.kind == RailKind::Tcp).map(|rail| rail.counters.system_calls)
    };
    for n in 0..20 {
        receive(&mut cluster);
        send(&mut cluster, 1);
        // Far more than the period of whole rounds.
        std::thread::sleep(Duration::from_millis(1));
        let before = looks(&cluster);
        assert_eq!(call(&mut cluster), [PeerId(1)], "call {n}");
        assert!(looks(&cluster) > before, "call {n}: {before:?}");
    }
}

/// A ring that is never empty does not keep others from their turn, though no whole round is due.
#[test]
fn a_full_ring_leaves_others_their_turn() {
    const MANY: usize = 60;
    let mut cluster = Cluster::of(3, Fabric::Shm);
    for other in [1, 2] {
        (0..4).for_each(|_| cluster.ping(0, other, 8));
    }
    cluster.at(0).set_round_period(Duration::MAX);
    for turn in 0..2 {
        // Until the last whole round, and none is due any more.
        while cluster.at(0).round_timer.is_forced() || cluster.at(0).round_timer.is_due() {
            assert!(call(&mut cluster).is_empty());
        }
        let (full, other) = if turn == 0 { (1, 2) } else { (2, 1) };
        (0..=MANY).for_each(|_| receive(&mut cluster));
        (0..MANY).for_each(|_| send(&mut cluster, full));
        send(&mut cluster, other);
        let (mut received, mut calls) = (Vec::new(), 0);
        while !received.contains(&PeerId(other as u32)) {
            received.extend(call(&mut cluster));
            calls += 1;
            assert!(received.len() < MANY && calls < MANY, "turn {turn}: {received:?}");
        }
        while received.len() <= MANY {
            cluster.at(full).progress();
            received.extend(call(&mut cluster));
        }
    }
}

/// Messages that do not go the short way leave a ring's sender when they are submitted, one behind the other.
#[test]
fn messages_leave_at_submission() {
    const MANY: usize = 5;
    let mut cluster = Cluster::of(2, Fabric::Shm);
    (0..4).for_each(|_| cluster.ping(0, 1, 8));
    let source = cluster.filled(1, 8, 1);
    for n in 0..MANY {
        receive(&mut cluster);
        let level = [Level::Acknowledged, Level::Placed][n % 2];
        let send = SendRequest { level, ..SendRequest::new(PeerId(0), &[]) };
        cluster.at(1).send(&SendRequest { segments: &whole(source, 8), ..send }).unwrap();
    }
    // Their sender computes.
    let mut received = 0;
    for _ in 0..1000 {
        received += call(&mut cluster).len();
    }
    assert_eq!(received, MANY);
}
