//! Gets out of windows that are not mapped (L-28): exact, with the owner's help and without, and never more
//! than the window; owners that stop, die or lie.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rerail_core::endpoint::Access;
use rerail_core::shm::{ListedWindow, OfferedRange, OwnerClaims, UNMAPPED_WINDOWS_MAX, WindowList};
use rustix::process::{Pid, Signal, kill_process};
use zerocopy::FromBytes;

use super::super::gate;
use super::super::joint::{CLAIM_TIMEOUT, JOINT_BYTES_MIN, Request};
use super::super::reach::{Reach, Seal};
use super::hostile::join_with;
use super::reads::{at, pattern, whole};
use super::*;

const BOTH: Access = Access { read: true, write: true, atomic: false };
const ADDRESS: &str = "RERAIL_TEST_SHM_GETS_ADDRESS";
const BYTES: usize = 3_000_000;
const LONG: usize = JOINT_BYTES_MIN;

impl Node {
    fn get_now(&mut self, of: u32, offset: usize, target: &mut [u8]) -> bool {
        self.get_pieces(of, offset, &[whole(target)])
    }

    fn get_pieces(&mut self, of: u32, offset: usize, pieces: &[Piece]) -> bool {
        let access = DirectAccess { peer: PeerId(of), is_put: false, window: 7, offset: offset as u64, pieces };
        // SAFETY: the tests below pass pieces of vectors that live longer than the call.
        unsafe { self.rail.access(&access) }
    }
}

fn exposed(source: &mut [u8]) -> (Node, Node) {
    let (mut a, b) = connected([0, 1]);
    a.rail.expose(7, whole(source), BOTH);
    (a, b)
}

/// L-28: at odd sizes and alignments, in several pieces, while the owner computes and while it helps.
#[test]
fn ordinary_windows_are_read_to_the_byte() {
    let source = &mut pattern(BYTES, 1);
    let (mut a, mut b) = exposed(source);
    let cases =
        [(0, LONG), (1, LONG + 1), (4095, 1_000_003), (0, BYTES), (BYTES - LONG, LONG), (77, 9 * BYTES / 10 - 4095)];
    for helps in [false, true] {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let owner = &mut a;
            let is_over = &is_over;
            scope.spawn(move || {
                while helps && !is_over.load(Ordering::Relaxed) {
                    owner.poll();
                    std::thread::yield_now();
                }
            });
            for (round, (from, len)) in (0..8).flat_map(|round| cases.map(|case| (round, case))) {
                let mut target = vec![0xEE; len + 8];
                let (first, rest) = target[round..][..len].split_at_mut(len / (1 + round));
                let (second, third) = rest.split_at_mut(rest.len() / 3);
                assert!(b.get_pieces(0, from, &[first, second, third].map(whole)), "{len} at {from}");
                assert!(target[round..][..len] == source[from..][..len], "{len} at {from}, helped: {helps}");
                assert!(target[..round].iter().chain(&target[round + len..]).all(|byte| *byte == 0xEE));
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
    run_until_idle(&mut [&mut a, &mut b]);
    assert!(a.sink.down.is_empty() && b.sink.down.is_empty() && b.sink.completed.is_empty());
    a.send(1, 5, 900);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.taken_from(0).len(), 1);
}

/// What the rail leaves to the owner: puts, short gets, windows beyond the list, and what lies outside.
#[test]
fn other_accesses_to_ordinary_windows_are_the_owners() {
    let source = &mut pattern(BYTES, 1);
    let (mut a, mut b) = exposed(source);
    let target = &mut vec![0; BYTES + 1];
    assert!(b.get_now(0, 0, &mut target[..LONG]));
    for (from, len) in [(0, LONG - 1), (0, 8), (BYTES, LONG), (BYTES - LONG + 1, LONG), (0, BYTES + 1)] {
        assert!(!b.get_now(0, from, &mut target[..len]), "{len} at {from}");
    }
    let put =
        DirectAccess { peer: PeerId(0), is_put: true, window: 7, offset: 0, pieces: &[whole(&mut target[..LONG])] };
    // SAFETY: the pieces live longer than the call.
    assert!(!unsafe { b.rail.access(&put) });
    // Withdrawn, and again there where the list has room.
    assert!(a.rail.withdraw(7) && !b.get_now(0, 0, &mut target[..LONG]));
    for key in 100..100 + UNMAPPED_WINDOWS_MAX as u64 {
        a.rail.expose(key, whole(source), BOTH);
    }
    a.rail.expose(7, whole(source), BOTH);
    assert!(!b.get_now(0, 0, &mut target[..LONG]));
    assert!(a.rail.withdraw(100) && a.rail.withdraw(7));
    a.rail.expose(7, whole(source), Access { read: false, ..BOTH });
    assert!(!b.get_now(0, 0, &mut target[..LONG]));
    assert!(a.rail.withdraw(7));
    a.rail.expose(7, whole(source), BOTH);
    assert!(b.get_now(0, 0, &mut target[..LONG]) && target[..LONG] == source[..LONG]);
    // Reads that wait go on.
    let read = &mut vec![0; BYTES];
    let id = b.read(0, at(source), &[whole(read)]);
    assert!(b.get_now(0, 1, &mut target[..LONG]) && target[..LONG] == source[1..=LONG]);
    run(&mut [&mut a, &mut b], |nodes| nodes[1].sink.completed == [id]);
    assert!(read == source);
}

/// A node, and a peer of rank 1 that lists a window by hand.
struct Liar {
    node: Node,
    _socket: std::os::fd::OwnedFd,
    inbound: super::super::segment::Inbound,
    _outbound: super::super::segment::Outbound,
    seal: Seal,
}

fn liar(start: u64) -> Liar {
    let mut node = Node::new(0);
    let seal = Seal::new().unwrap();
    let (socket, inbound, mut outbound) = join_with(&mut node, 1, Some(&seal));
    let mut list = WindowList::default();
    let range = OfferedRange { start, bytes: BYTES as u64 };
    assert!(list.add(ListedWindow { key: 7, range, gets: true, puts: true }, false));
    outbound.list_windows(&list, true);
    Liar { node, _socket: socket, inbound, _outbound: outbound, seal }
}

/// L-12: a window where there is no memory; the subchannel stands.
#[test]
fn windows_without_memory_fail_gets_only() {
    for start in [0, 4096, u64::MAX - 100, u64::MAX - 2 * BYTES as u64] {
        let mut liar = liar(start);
        let target = &mut vec![0xEE; LONG];
        assert!((0..3).all(|_| !liar.node.get_now(1, 0, target)), "{start:#x}");
        liar.node.poll();
        assert!(liar.node.sink.down.is_empty());
    }
}

/// L-22, L-23: an owner that claims units and never copies them is waited for no longer than this, one that
/// writes other claims is no honest peer; no byte comes behind the end of the get.
#[test]
fn a_get_ends_whatever_the_owner_claims() {
    for lies in [false, true] {
        let source = pattern(BYTES, 3);
        let Liar { mut node, mut inbound, seal, _socket, _outbound } = liar(at(&source));
        let mut target = vec![0; BYTES];
        let is_begun = AtomicBool::new(false);
        let (is_done, request, claims) = std::thread::scope(|scope| {
            let (is_begun, inbound) = (&is_begun, &mut inbound);
            let owner = scope.spawn(move || {
                let since = Instant::now();
                let request = loop {
                    assert!(since.elapsed() < Duration::from_secs(10), "no request comes");
                    if let Some(front) = inbound.front().unwrap() {
                        let request = Request::read_from_bytes(front.header()).unwrap();
                        front.release();
                        break request;
                    }
                };
                let units = BYTES.div_ceil(4096) as u32;
                let mut claims = OwnerClaims::new(request.generation.get(), units).unwrap();
                // The reader may have been faster.
                let claimed = claims.take(inbound.claims(), |_| 60);
                if lies {
                    inbound.claims().fetch_xor(1, Ordering::AcqRel);
                }
                is_begun.store(claimed.is_some(), Ordering::Release);
                (request, claims)
            });
            let since = Instant::now();
            let is_done = node.get_now(1, 0, &mut target);
            let (request, claims) = owner.join().unwrap();
            let is_claimed = is_begun.load(Ordering::Acquire);
            assert!(!is_claimed || lies || since.elapsed() >= CLAIM_TIMEOUT);
            (is_done, request, claims)
        });
        if is_done {
            assert!(target == source);
        } else {
            assert!(lies);
            run(&mut [&mut node], |nodes| !nodes[0].sink.down.is_empty());
            assert_eq!(node.sink.down, [(PeerId(1), RailFault::Corrupt)]);
        }
        target.fill(0xEE);
        if claims.back() > 0 {
            let ranges = (request.from.get(), request.to.get() + BYTES as u64 - 4096, 4096);
            let written = gate::write(&Reach::of_this_process(&seal), request.gate.get(), claims.token(), ranges);
            assert_eq!(written, Err(Errno::FAULT));
        }
        assert!(target.iter().all(|byte| *byte == 0xEE));
    }
}

/// The owner of the test below; nothing where it is run by itself.
#[test]
fn child() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let mut me = Node::new(1);
    let source = &mut pattern(BYTES, 4);
    me.rail.expose(7, whole(source), BOTH);
    meet(&mut me.rail, 0, &address);
    me.connect(0);
    loop {
        me.poll();
    }
}

/// An owner that is stopped delays no get for long; one that is killed ends it.
#[test]
fn gets_end_when_their_owner_stops_or_dies() {
    let mut me = Node::new(0);
    expect(&mut me, 1);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rail::shm::tests::gets::child"])
        .env(ADDRESS, me.rail.address())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    while me.sink.up.is_empty() {
        me.poll();
    }
    let (source, mut target) = (pattern(BYTES, 4), vec![0; BYTES]);
    for signal in [Signal::STOP, Signal::KILL] {
        let (gets, is_sent) = (&AtomicU32::new(0), &AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Most likely in the middle of one.
            scope.spawn(move || {
                while gets.load(Ordering::Relaxed) < 8 {
                    std::thread::yield_now();
                }
                kill_process(pid, signal).unwrap();
                is_sent.store(true, Ordering::Relaxed);
            });
            let mut after = 0;
            while after < 8 {
                after += u32::from(is_sent.load(Ordering::Relaxed));
                target.fill(0);
                if me.get_now(1, 0, &mut target) {
                    assert!(target == source);
                    gets.fetch_add(1, Ordering::Relaxed);
                } else {
                    assert_eq!(signal, Signal::KILL);
                }
            }
        });
    }
    child.wait().unwrap();
    assert!(!me.get_now(1, 0, &mut target));
    run(&mut [&mut me], |nodes| !nodes[0].sink.down.is_empty());
}
