//! What a call of `progress` looks at: other rails as soon as time has passed, and all rings in turn.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rerail_core::endpoint::{Event, Level, RailFault, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::rail::RailFacts;
use rerail_core::time::Time;

use super::cluster::{Cluster, Fabric, rails, small, whole};
use crate::rail::{AddressError, MemoryKey, Outgoing, Piece, Rail, RailCounters, RailUsage, Sink};

/// A rail that counts how often it is polled.
struct Counted {
    inner: Box<dyn Rail + Send>,
    polls: Arc<AtomicU32>,
}

impl Rail for Counted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn facts(&self) -> RailFacts {
        self.inner.facts()
    }

    fn address(&self) -> String {
        self.inner.address()
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        self.inner.add_peer(peer, address)
    }

    fn connect(&mut self, now: Time, peer: PeerId) {
        self.inner.connect(now, peer);
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.inner.disconnect(peer);
    }

    fn abort(&mut self, peer: PeerId) {
        self.inner.abort(peer);
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.inner.post(outgoing) }
    }

    unsafe fn register(&mut self, memory: Piece, write: bool) -> Result<MemoryKey, RailFault> {
        // SAFETY: the caller's promise is the one demanded.
        unsafe { self.inner.register(memory, write) }
    }

    fn deregister(&mut self, key: MemoryKey) {
        self.inner.deregister(key);
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.inner.poll(now, sink)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.inner.next_timeout()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn is_closing(&self) -> bool {
        self.inner.is_closing()
    }

    fn counters(&self) -> RailCounters {
        self.inner.counters()
    }

    fn usage(&self) -> RailUsage {
        self.inner.usage()
    }
}

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
    let polls = Arc::new(AtomicU32::new(0));
    let mut cluster = Cluster::with(
        2,
        |rank| {
            let mut all = rails(rank, 2, Fabric::Shm);
            let inner = rails(rank, 2, Fabric::Tcp).remove(0);
            let polls = if rank == 0 { Arc::clone(&polls) } else { Arc::default() };
            all.push(Box::new(Counted { inner, polls }));
            all
        },
        small,
    );
    (0..4).for_each(|_| cluster.ping(0, 1, 8));
    for n in 0..20 {
        receive(&mut cluster);
        send(&mut cluster, 1);
        std::thread::sleep(Duration::from_millis(1));
        let before = polls.load(Ordering::Relaxed);
        assert_eq!(call(&mut cluster), [PeerId(1)], "call {n}");
        assert!(polls.load(Ordering::Relaxed) > before, "call {n}");
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
