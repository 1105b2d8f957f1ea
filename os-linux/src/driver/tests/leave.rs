//! Leaving: everything arrives before BYE, and the launcher is notified.

use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rerail_core::endpoint::{Completion, Event, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::rail::{RailFacts, RailKind};
use rerail_core::time::Time;

use super::boot::{Board, Seat};
use super::cluster::{Cluster, Fabric, on_fabrics, pattern, rails, small, whole};
use crate::bootstrap::pmi1::Pmi1;
use crate::bootstrap::{BootError, Bootstrap};
use crate::driver::{FinishError, Opening, Transport};
use crate::rail::loopback::Loopback;
use crate::rail::{AddressError, Outgoing, Rail, RailCounters, RailUsage, Sink};

on_fabrics! {
    ranks_leave_in_good_order: Shm Tcp TwoTcp;
    peer_receives_bye: Shm Tcp TwoTcp;
}

const RANKS: u32 = 3;
const BYTES: usize = 100_000;

fn join(mut seat: Seat, fabric: Fabric) -> Transport {
    let rank = seat.rank;
    let mut all: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(PeerId(rank)))];
    all.extend(rails(rank, RANKS, fabric));
    let mut opening = Opening::with_rails(small(rank, RANKS), "here".to_owned(), all, 1).unwrap();
    seat.put("address", opening.address_record()).unwrap();
    seat.fence().unwrap();
    for peer in 0..RANKS {
        let address_record = seat.get(peer, "address").unwrap().unwrap();
        opening.learn(PeerId(peer), &address_record).unwrap();
    }
    let mut transport = opening.join().unwrap();
    transport.clock.boot = Some(Box::new(seat));
    transport
}

/// Drives until so many requests are over.
fn completions(transport: &mut Transport, mut count: usize) {
    while count > 0 {
        if transport.progress() == 0 {
            transport.wait(None).unwrap();
        }
        while let Some(event) = transport.poll_event() {
            if let Event::Completed(Completion { result, .. }) = event {
                result.unwrap();
                count -= 1;
            }
        }
    }
}

/// A ring: every rank sends to the next and to itself, then leaves.
fn ranks_leave_in_good_order(fabric: Fabric) {
    let board = Board::new(RANKS);
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let board = board.clone();
            scope.spawn(move || {
                let mut transport = join(Seat { board, rank }, fabric);
                let source = transport.alloc(BYTES).unwrap();
                let target = transport.alloc(2 * BYTES).unwrap();
                transport.bytes_mut(source).unwrap().copy_from_slice(&pattern(BYTES, rank as u8));
                let recv =
                    RecvRequest { segments: &whole(target, BYTES), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
                transport.recv(&recv).unwrap();
                let half = [rerail_core::mem::Seg::new(target, BYTES as u64, BYTES as u64)];
                transport.recv(&RecvRequest { segments: &half, ..recv }).unwrap();
                for peer in [(rank + 1) % RANKS, rank] {
                    let send = SendRequest { segments: &whole(source, BYTES), ..SendRequest::new(PeerId(peer), &[]) };
                    transport.send(&send).unwrap();
                }
                completions(&mut transport, 4);
                let arrived = transport.bytes(target).unwrap();
                let (first, second) = arrived.split_at(BYTES);
                let previous = pattern(BYTES, ((rank + RANKS - 1) % RANKS) as u8);
                let own = pattern(BYTES, rank as u8);
                assert!(first == previous && second == own || first == own && second == previous);
                let shutdown = transport.finish(None).unwrap();
                assert_eq!(shutdown.lost, []);
                assert_eq!(shutdown.abandoned, []);
            });
        }
    });
    assert_eq!(board.finalized(), RANKS);
}

fn peer_receives_bye(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let target = cluster.empty(ends.b, 10);
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 10))).unwrap();
    let send = cluster.at(ends.a).inject(&SendRequest::new(ends.peer_b(), &[]), &pattern(10, 1)).unwrap();
    cluster.complete(ends.b, recv).unwrap();
    cluster.complete(ends.a, send).unwrap();
    let expected_peer = ends.peer_b();
    cluster.at(ends.a).close_peer(expected_peer).unwrap();
    for (rank, other) in [(ends.a, ends.peer_b()), (ends.b, ends.peer_a())] {
        cluster.expect(rank, "BYE", |event| match event {
            Event::PeerClosed { peer } => {
                assert_eq!(*peer, other);
                Some(())
            }
            Event::PeerLost { why, .. } => panic!("lost instead: {why:?}"),
            _ => None,
        });
    }
    // A message behind BYE, on another rail, is no violation.
    for rank in [ends.a, ends.b] {
        assert_eq!(cluster.at(rank).rails().map(|rail| rail.counters.corrupt).sum::<u64>(), 0);
    }
}

/// A rail that takes so many polls to send its last posts.
struct Slow(Arc<AtomicU32>);

impl Rail for Slow {
    fn name(&self) -> &str {
        "slow"
    }
    fn facts(&self) -> RailFacts {
        RailFacts { kind: RailKind::Tcp, posts_max: 2, segment_bytes_max: 1, ..RailFacts::default() }
    }
    fn address(&self) -> String {
        "nowhere".into()
    }
    fn add_peer(&mut self, _peer: PeerId, _address: &str) -> Result<bool, AddressError> {
        Ok(false)
    }
    fn connect(&mut self, _now: Time, _peer: PeerId) {}
    fn disconnect(&mut self, _peer: PeerId) {}
    fn abort(&mut self, peer: PeerId) {
        self.disconnect(peer);
    }

    unsafe fn post(&mut self, _outgoing: Outgoing<'_>) {}
    fn poll(&mut self, _now: Time, _sink: &mut dyn Sink) -> usize {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(1), Ordering::Relaxed);
        0
    }
    fn next_timeout(&self) -> Option<Time> {
        self.is_closing().then_some(Time(0))
    }
    fn is_closing(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn arm(&mut self) -> bool {
        true
    }
    fn disarm(&mut self) {}
    fn counters(&self) -> RailCounters {
        RailCounters::default()
    }

    fn usage(&self) -> RailUsage {
        RailUsage::default()
    }
}

#[test]
fn shutdown_waits_a_limited_time_for_pending_rails() {
    for (deadline, polled) in [(None, true), (Some(Duration::ZERO), false)] {
        let left = Arc::new(AtomicU32::new(100));
        let mut cluster = Cluster::with(1, |_| vec![Box::new(Slow(left.clone()))], small);
        let shutdown = cluster.transports.remove(0).finish(deadline).unwrap();
        assert_eq!(shutdown, crate::driver::Shutdown::default());
        let left = left.load(Ordering::Relaxed);
        assert_eq!(left == 0, polled, "{left}");
    }
}

#[test]
fn a_peer_that_is_deaf_is_abandoned_at_the_deadline() {
    let (mut cluster, ends) = Cluster::new(Fabric::Tcp);
    let source = cluster.filled(ends.a, 1 << 20, 1);
    let send = SendRequest { segments: &whole(source, 1 << 20), ..SendRequest::new(ends.peer_b(), &[]) };
    cluster.at(ends.a).send(&send).unwrap();
    // Rank b is never driven.
    let a = cluster.transports.remove(ends.a);
    let shutdown = a.finish(Some(Duration::from_millis(20))).unwrap();
    assert_eq!((shutdown.closed, shutdown.abandoned), (0, vec![ends.peer_b()]));
}

#[test]
fn shutdown_without_connections_needs_no_peer() {
    let mut cluster = Cluster::of(2, Fabric::Tcp);
    let shutdown = cluster.transports.remove(0).finish(None).unwrap();
    assert_eq!(shutdown, crate::driver::Shutdown::default());
}

/// A launcher that does not receive BYE.
struct Gone;

impl Bootstrap for Gone {
    fn rank(&self) -> u32 {
        0
    }
    fn size(&self) -> u32 {
        2
    }
    fn job_name(&self) -> &str {
        "gone"
    }
    fn put(&mut self, _key: &str, _value: &str) -> Result<(), BootError> {
        panic!("no request is sent while messages flow")
    }
    fn fence(&mut self) -> Result<(), BootError> {
        panic!("no request is sent while messages flow")
    }
    fn barrier(&mut self, _: Option<Duration>, _: &mut dyn FnMut()) -> Result<(), BootError> {
        panic!("no request is sent while messages flow")
    }
    fn get(&mut self, _rank: u32, _key: &str) -> Result<Option<String>, BootError> {
        panic!("no request is sent while messages flow")
    }
    fn finalize(&mut self) -> Result<(), BootError> {
        Err(BootError::Timeout { doing: "leaving", waited_ms: 7 })
    }
    fn abort(&mut self, _why: &str) {}
}

/// B-2, B-3: messages need no launcher; a process that can't reach it at shutdown has left its peers all the
/// same, and reports how.
#[test]
fn missing_launcher_at_shutdown_is_reported_with_the_result() {
    let (mut cluster, ends) = Cluster::new(Fabric::Tcp);
    let target = cluster.empty(ends.b, BYTES);
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, BYTES))).unwrap();
    let source = cluster.filled(ends.a, BYTES, 1);
    let send = SendRequest { segments: &whole(source, BYTES), ..SendRequest::new(ends.peer_b(), &[]) };
    cluster.at(ends.a).clock.boot = Some(Box::new(Gone));
    let send = cluster.at(ends.a).send(&send).unwrap();
    cluster.complete(ends.b, recv).unwrap();
    cluster.complete(ends.a, send).unwrap();
    let a = cluster.transports.remove(ends.a);
    match a.finish(None) {
        Err(FinishError::Boot { error: BootError::Timeout { waited_ms: 7, .. }, shutdown }) => {
            assert_eq!((shutdown.closed, shutdown.lost, shutdown.abandoned), (1, vec![], vec![]));
        }
        other => panic!("{other:?}"),
    }
}

/// B-3: a launcher that stalls at the end takes no longer than the rest of the deadline, whatever
/// `boot_timeout` is.
#[test]
fn a_launcher_that_stalls_at_the_end_is_waited_for_until_the_deadline() {
    let (mut cluster, ends) = Cluster::new(Fabric::Tcp);
    let (client, mut launcher) = UnixStream::pair().unwrap();
    let answers = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
                   cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\ncmd=my_kvsname kvsname=stalls\n";
    launcher.write_all(answers.as_bytes()).unwrap();
    let boot = Pmi1::join(client.into(), 0, 2).unwrap();
    cluster.at(ends.a).clock.boot = Some(Box::new(boot));
    let a = cluster.transports.remove(ends.a);
    match a.finish(Some(Duration::from_millis(10))) {
        Err(FinishError::Boot { error: BootError::Timeout { waited_ms, .. }, .. }) => assert_eq!(waited_ms, 1000),
        other => panic!("{other:?}"),
    }
}
