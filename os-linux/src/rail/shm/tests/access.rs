//! Puts and gets in windows that are mapped (L-25 to L-27): exact, without the owner, and never in memory
//! that it has released.

use std::os::fd::AsFd;
use std::process::Command;

use rerail_core::endpoint::Access;
use rerail_core::mem::{RegionId, Seg};
use rerail_core::shm::WINDOWS_MAX;
use rustix::process::{Pid, Signal, kill_process};

use super::reads::{pattern, whole};
use super::*;
use crate::memory::Memory;

const BOTH: Access = Access { read: true, write: true, atomic: false };
const ADDRESS: &str = "RERAIL_TEST_SHM_ACCESS_ADDRESS";
const BYTES: usize = 100_000;

/// The memory of an owner, which is offered.
struct Exposed {
    memory: Memory,
    region: RegionId,
    piece: Piece,
}

impl Exposed {
    fn by(owner: &mut Node, is_writable: bool) -> Self {
        let mut memory = Memory::new(0).unwrap();
        let (region, file) = memory.alloc_shared(BYTES, is_writable).unwrap();
        let piece = memory.whole(region).unwrap();
        memory.fill(&pattern(BYTES, 1), &[piece]);
        owner.rail.offer(piece, file.as_fd(), is_writable);
        Exposed { memory, region, piece }
    }

    fn part(&self, from: usize, len: usize) -> Piece {
        Piece { start: self.piece.start.wrapping_add(from), len }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        self.memory.read(Seg::new(self.region, 0, 0).at, &mut bytes).unwrap();
        bytes
    }
}

impl Node {
    fn access(&mut self, of: u32, is_put: bool, (window, offset): (u64, usize), pieces: &[Piece]) -> bool {
        let access = DirectAccess { peer: PeerId(of), is_put, window, offset: offset as u64, pieces };
        // SAFETY: the tests below pass pieces of vectors that live longer than the call.
        unsafe { self.rail.access(&access) }
    }

    fn get(&mut self, of: u32, window: u64, offset: usize, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0xEE; len];
        self.access(of, false, (window, offset), &[whole(&mut bytes)]).then_some(bytes)
    }

    fn put(&mut self, of: u32, window: u64, offset: usize, bytes: &[u8]) -> bool {
        self.access(of, true, (window, offset), &[whole(&mut bytes.to_vec())])
    }

    fn link_to(&mut self, peer: u32) -> &mut Link {
        let index = self.rail.link_index(PeerId(peer)).expect("a link");
        &mut self.rail.links[index]
    }
}

/// An owner of a window with key 7 in all of its memory, and a peer that has it mapped.
fn mapped(is_writable: bool, access: Access) -> (Node, Node, Exposed) {
    let (mut a, mut b) = connected([0, 1]);
    let exposed = Exposed::by(&mut a, is_writable);
    a.rail.expose(7, exposed.piece, access);
    assert_eq!(b.get(0, 7, 0, 1), None, "nothing is mapped yet");
    run_until_idle(&mut [&mut a, &mut b]);
    (a, b, exposed)
}

/// L-26: without a poll of the owner's, to the byte, at any place and length, in several pieces.
#[test]
fn windows_are_accessed_without_their_owner() {
    let (a, mut b, exposed) = mapped(true, BOTH);
    let mut expected = pattern(BYTES, 1);
    for (at, len) in [(0, BYTES), (0, 1), (BYTES - 1, 1), (4095, 4098), (3, 8), (BYTES, 0), (17, 0)] {
        assert!(b.get(0, 7, at, len).as_deref() == Some(&expected[at..][..len]), "{len} bytes at {at}");
    }
    for (round, (at, len)) in [(0, 8), (1, 1), (4095, 4098), (BYTES - 9, 9), (8, 0), (0, BYTES)].into_iter().enumerate()
    {
        let mut bytes = pattern(len, 2 + round as u8);
        expected[at..][..len].copy_from_slice(&bytes);
        let (first, second) = bytes.split_at_mut(len / 3);
        let pieces = [first, second].map(|part| Piece { start: part.as_mut_ptr(), len: part.len() });
        assert!(b.access(0, true, (7, at), &pieces));
        assert!(exposed.bytes() == expected, "{len} bytes at {at}");
    }
    for (at, len) in [(0, BYTES + 1), (BYTES, 1), (BYTES - 3, 4), (usize::MAX, 1), (usize::MAX, 2)] {
        assert_eq!(b.get(0, 7, at, len), None, "{len} bytes at {at}");
        assert!(!b.put(0, 7, at, &vec![0; len]));
    }
    assert!(b.get(0, 8, 0, 1).is_none() && !b.put(0, 8, 0, &[1]), "no such window");
    assert!(b.get(2, 7, 0, 1).is_none() && !b.put(2, 7, 0, &[1]), "no such peer");
    assert!(exposed.bytes() == expected);
    drop(a);
}

/// L-25: a window allows what it is listed for, and no put where its file may not be written.
#[test]
fn a_listed_window_allows_what_its_owner_allows() {
    let access = |read, write| Access { read, write, atomic: true };
    for (is_writable, allowed, gets, puts) in [
        (true, access(true, false), true, false),
        (true, access(false, true), false, true),
        (false, access(true, true), true, false),
        (false, access(false, true), false, false),
        (true, access(false, false), false, false),
    ] {
        let (_a, mut b, exposed) = mapped(is_writable, allowed);
        assert_eq!(
            (b.get(0, 7, 5, 3).is_some(), b.put(0, 7, 5, &[1, 2, 3])),
            (gets, puts),
            "{is_writable} {allowed:?}"
        );
        assert_eq!(exposed.bytes()[5..8] == [1, 2, 3], puts);
    }
}

/// L-25, L-27: from the moment that `withdraw` returns.
#[test]
fn a_withdrawn_window_is_out_of_reach() {
    let (mut a, mut b, exposed) = mapped(true, BOTH);
    a.rail.expose(9, exposed.part(100, 50), BOTH);
    assert!(b.put(0, 9, 49, &[5]) && b.put(0, 7, 200, &[6]));
    assert!(a.rail.withdraw(7) && a.rail.withdraw(8));
    assert!(b.get(0, 7, 0, 1).is_none() && !b.put(0, 7, 0, &[1]));
    assert_eq!((b.get(0, 9, 49, 1), b.get(0, 9, 50, 1)), (Some(vec![5]), None));
    // The key again, for another part.
    a.rail.expose(7, exposed.part(1000, 10), BOTH);
    assert_eq!((b.get(0, 7, 0, 10), b.get(0, 7, 0, 11)), (Some(pattern(BYTES, 1)[1000..1010].to_vec()), None));
    // Memory that is not offered any more is listed no more either, once its windows are gone.
    assert!(a.rail.withdraw(7) && a.rail.withdraw(9));
    a.rail.forget(exposed.piece);
    run_until_idle(&mut [&mut a, &mut b]);
    a.rail.expose(7, exposed.piece, BOTH);
    assert!(b.get(0, 7, 0, 1).is_none() && !b.put(0, 7, 0, &[1]));
}

/// Another list of what may be mapped takes the mapping away, and the window with it, until it is requested
/// again.
#[test]
fn a_window_of_an_old_mapping_is_not_used() {
    let (mut a, mut b, exposed) = mapped(true, BOTH);
    assert!(b.put(0, 7, 0, &[1]));
    let other = Exposed::by(&mut a, true);
    assert!(b.put(0, 7, 0, &[2]), "the mapping stands until the next look at the socket");
    run_until_idle(&mut [&mut a, &mut b]);
    assert!(!b.put(0, 7, 0, &[3]));
    run_until_idle(&mut [&mut a, &mut b]);
    assert!(b.put(0, 7, 0, &[4]));
    assert_eq!((exposed.bytes()[0], other.bytes()[0]), (4, pattern(1, 1)[0]));
}

/// What does not fit into the list is left to its owner.
#[test]
fn so_many_windows_are_listed() {
    let (mut a, mut b, exposed) = mapped(true, BOTH);
    for key in 100..100 + WINDOWS_MAX as u64 {
        a.rail.expose(key, exposed.part(key as usize, 10), BOTH);
    }
    let last = 99 + WINDOWS_MAX as u64;
    assert!((100..last).all(|key| b.put(0, key, 0, &[1])) && !b.put(0, last, 0, &[1]));
    assert!(a.rail.withdraw(100) && a.rail.withdraw(last));
    a.rail.expose(last, exposed.part(0, 10), BOTH);
    assert!(b.put(0, last, 0, &[1]) && !b.put(0, 100, 0, &[1]));
}

/// L-27: while a peer has announced a put, by a list that had the window, that is not released: not by the
/// end of the connection either.
#[test]
fn a_window_is_not_released_while_a_peer_puts() {
    for end in [None, Some(ShmRail::abort as fn(&mut ShmRail, PeerId)), Some(ShmRail::disconnect)] {
        let (mut a, mut b, exposed) = mapped(true, BOTH);
        a.rail.expose(8, exposed.part(0, 10), Access { write: false, ..BOTH });
        let number = b.link_to(0).inbound.windows();
        b.link_to(0).outbound.begin_put(number);
        if let Some(end) = end {
            end(&mut a.rail, PeerId(1));
            assert_eq!(b.link_to(0).inbound.windows(), 0);
        } else {
            assert!(a.rail.withdraw(8), "no put goes to it");
        }
        assert!((0..3).all(|_| !a.rail.withdraw(7)));
        // Out of the put, and no new one goes there.
        b.link_to(0).outbound.end_put();
        assert!(!b.put(0, 7, 0, &[1]));
        assert!(a.rail.withdraw(7), "{end:?}");
        assert!(exposed.bytes() == pattern(BYTES, 1));
    }
}

/// The other process of the test below; nothing where it is run by itself.
#[test]
fn child() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let mut me = Node::new(1);
    meet(&mut me.rail, 0, &address);
    me.connect(0);
    run(&mut [&mut me], |nodes| !nodes[0].sink.up.is_empty());
    while !me.put(0, 7, 0, &[1, 2, 3]) {
        me.poll();
    }
    let number = me.link_to(0).inbound.windows();
    me.link_to(0).outbound.begin_put(number);
    kill_process(rustix::process::getpid(), Signal::STOP).unwrap();
    unreachable!("killed");
}

/// L-27: a peer that is stopped in the middle of a put keeps the window, one that is killed does not.
#[test]
fn a_window_outlives_the_puts_of_a_stopped_peer() {
    for ends_first in [false, true] {
        let mut owner = Node::new(0);
        expect(&mut owner, 1);
        let exposed = Exposed::by(&mut owner, true);
        owner.rail.expose(7, exposed.piece, BOTH);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rail::shm::tests::access::child"])
            .env(ADDRESS, owner.rail.address())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let is_announced = |owner: &mut Node| owner.rail.links.first().is_some_and(|link| link.inbound.putting() != 0);
        while !(is_announced(&mut owner) && exposed.bytes()[..3] == [1, 2, 3]) {
            owner.poll();
            std::thread::yield_now();
        }
        if ends_first {
            owner.rail.disconnect(PeerId(1));
        }
        for _ in 0..100 {
            owner.poll();
            assert!(!owner.rail.withdraw(7), "it may continue to write");
        }
        kill_process(pid, Signal::KILL).unwrap();
        child.wait().unwrap();
        run(&mut [&mut owner], |nodes| nodes[0].rail.links.is_empty());
        assert!(owner.rail.withdraw(7));
    }
}
