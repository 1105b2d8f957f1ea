//! Memory that a peer offers to be mapped (L-18): used where it holds what is read, never behind its owner's
//! back, and harmless where the owner lies.
//!
//! The owner here offers a file that has other bytes than the memory which it stands for, so that a read
//! shows which of the two it came from.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rerail_core::shm::OFFERS_MAX;
use rustix::fs::{self, MemfdFlags, SealFlags};
use zerocopy::{FromBytes, IntoBytes};

use super::super::copy::BYTES_PER_POLL;
use super::super::offers::{Answer, LIST_REQUEST, ListRequest, Maps, Offers};
use super::super::socket::{BELL, Received};
use super::hostile::join;
use super::reads::{at, pattern, whole};
use super::*;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

fn file(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let file = fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    assert_eq!(rustix::io::write(&file, bytes), Ok(bytes.len()));
    fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

impl Node {
    fn mapped(&self, peer: u32) -> usize {
        let index = self.rail.link_index(PeerId(peer)).expect("a link");
        self.rail.links[index].memory.as_ref().expect("memory").1.maps.len()
    }

    /// Reads all of a peer's memory into a new buffer.
    fn fetch(&mut self, other: &mut Node, address: u64, len: usize) -> Vec<u8> {
        let mut target = vec![0xEE; len];
        let id = self.read(other.me().0, address, &[whole(&mut target)]);
        run(&mut [self, other], |nodes| nodes[0].sink.completed.last() == Some(&id));
        target
    }
}

/// Memory, other bytes for the same place, and their file.
fn two_faced(len: usize) -> (Vec<u8>, Vec<u8>, OwnedFd) {
    let (memory, shown) = (pattern(len, 1), pattern(len, 2));
    let file = file(&shown, SEALS);
    (memory, shown, file)
}

/// L-20: the first read finds nothing mapped and requests the list; those behind the answer come out of the
/// mapping, to the byte, at any place and length, and what is not inside it comes as before.
#[test]
fn offered_memory_is_mapped_and_read_exactly() {
    let (mut a, mut b) = connected([0, 1]);
    let len = 3 * BYTES_PER_POLL + 77;
    let (mut memory, shown, file) = two_faced(len);
    a.rail.offer(whole(&mut memory), file.as_fd(), false);
    assert!(b.fetch(&mut a, at(&memory), len) == memory, "nothing is mapped yet");
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!((a.mapped(1), b.mapped(0)), (0, 1));
    for (skip, size) in [(0, len), (0, 1), (len - 1, 1), (4095, 4098), (1, BYTES_PER_POLL), (7, 2 * BYTES_PER_POLL)] {
        let calls = b.rail.counters().system_calls;
        let mut target = vec![0xEE; size + 2];
        let id = b.read(0, at(&memory) + skip as u64, &[whole(&mut target[1..][..size])]);
        while b.sink.completed.last() != Some(&id) {
            b.poll();
        }
        assert!(target[1..=size] == shown[skip..][..size], "{size} bytes at {skip}");
        assert_eq!((target[0], target[size + 1]), (0xEE, 0xEE));
        assert!(b.rail.counters().system_calls <= calls + 8, "looks at the socket only");
    }
    let outside = pattern(100, 3);
    assert!(b.fetch(&mut a, at(&outside), 100) == outside);
    // One byte more than is mapped, at either end; the mapping must not be left.
    let inner = file_of(&memory[10..100]);
    a.rail.forget(whole(&mut memory));
    a.rail.offer(Piece { start: memory[10..].as_mut_ptr(), len: 90 }, inner.as_fd(), false);
    b.fetch(&mut a, at(&memory), 1);
    run_until_idle(&mut [&mut a, &mut b]);
    memory[10..100].fill(7);
    assert!(b.fetch(&mut a, at(&memory) + 9, 91) == memory[9..100]);
    assert!(b.fetch(&mut a, at(&memory) + 10, 91) == memory[10..101]);
    assert!(b.fetch(&mut a, at(&memory) + 10, 90) == pattern(len, 1)[10..100], "out of the mapping");
}

fn file_of(bytes: &[u8]) -> OwnedFd {
    file(bytes, SEALS)
}

/// A file of which only the first page is there.
fn holes(bytes: u64) -> OwnedFd {
    let file = fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    fs::ftruncate(&file, bytes).unwrap();
    rustix::io::write(&file, &[1]).unwrap();
    fs::fcntl_add_seals(&file, SEALS).unwrap();
    file
}

/// L-18, L-20, F-2: memory that was withdrawn is not read out of a mapping any more, from the moment that
/// `forget` returns.
#[test]
fn withdrawn_memory_is_read_from_its_owner() {
    let (mut a, mut b) = connected([0, 1]);
    let (mut memory, shown, file) = two_faced(5000);
    a.rail.offer(whole(&mut memory), file.as_fd(), false);
    b.fetch(&mut a, at(&memory), 1);
    run_until_idle(&mut [&mut a, &mut b]);
    assert!(b.fetch(&mut a, at(&memory), 5000) == shown);
    a.rail.forget(whole(&mut memory[4000..4001]));
    assert!(b.fetch(&mut a, at(&memory), 5000) == shown, "another range");
    a.rail.forget(whole(&mut memory));
    assert!(b.fetch(&mut a, at(&memory), 5000) == memory);
    run_until_idle(&mut [&mut a, &mut b]);
    // The same place again, by another file.
    let newer = file_of(&pattern(5000, 9));
    a.rail.offer(whole(&mut memory), newer.as_fd(), false);
    assert_eq!(b.mapped(0), 0, "given up");
    assert!(b.fetch(&mut a, at(&memory), 5000) == memory, "the list is another one now, and is requested");
    run_until_idle(&mut [&mut a, &mut b]);
    assert!(b.fetch(&mut a, at(&memory), 5000) == pattern(5000, 9));
}

/// L-18, F-2, L-15: a read out of a mapping does not complete once the owner has given the subchannel up.
#[test]
fn no_mapped_read_completes_once_the_peer_has_aborted() {
    for abort in [ShmRail::abort, ShmRail::disconnect] {
        let (mut a, mut b) = connected([0, 1]);
        let (mut memory, _, file) = two_faced(2 * BYTES_PER_POLL);
        a.rail.offer(whole(&mut memory), file.as_fd(), false);
        b.fetch(&mut a, at(&memory), 1);
        run_until_idle(&mut [&mut a, &mut b]);
        assert_eq!(b.mapped(0), 1);
        let completed = b.sink.completed.len();
        // A link with posts that wait lingers after `disconnect`.
        for number in 0..20 {
            a.send(1, number, 100);
        }
        let mut target = vec![0; memory.len()];
        b.read(0, at(&memory), &[whole(&mut target)]);
        b.poll();
        abort(&mut a.rail, PeerId(1));
        run(&mut [&mut a, &mut b], |nodes| !nodes[1].sink.down.is_empty());
        assert_eq!(b.sink.down, [(PeerId(0), RailFault::Closed)]);
        assert_eq!(b.sink.completed.len(), completed);
    }
}

/// A peer that connects later, or again, finds what was offered before; no more pieces and bytes are mapped
/// than are allowed.
#[test]
fn mappings_are_bounded() {
    let (mut a, mut b) = (Node::new(0), Node::with(1, ShmOptions { mapped_bytes_max: 3 * 4096, ..options() }));
    let mut memories: Vec<_> = (0..=OFFERS_MAX).map(|_| two_faced(100)).collect();
    for (memory, _, file) in &mut memories[..2] {
        a.rail.offer(whole(memory), file.as_fd(), false);
    }
    add_peers(&mut [&mut a, &mut b]);
    a.connect(1);
    run_until_idle(&mut [&mut a, &mut b]);
    let first = at(&memories[0].0);
    b.fetch(&mut a, first, 1);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.mapped(0), 2);
    for (memory, _, file) in &mut memories[2..] {
        a.rail.offer(whole(memory), file.as_fd(), false);
    }
    b.fetch(&mut a, first, 1);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.mapped(0), OFFERS_MAX);
    assert!(b.fetch(&mut a, first, 100) == memories[0].1);
    let (last, _, _) = &memories[OFFERS_MAX];
    assert!(b.fetch(&mut a, at(last), 100) == *last, "one too many is read as any other");
    let (mut large, _, file) = two_faced(4 * 4096);
    a.rail.forget(whole(&mut memories[3].0));
    a.rail.offer(whole(&mut large), file.as_fd(), false);
    b.fetch(&mut a, first, 1);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.mapped(0), OFFERS_MAX - 1);
    assert!(b.fetch(&mut a, at(&large), large.len()) == large);
}

/// With a limit of 0 nothing is requested.
#[test]
fn mapping_can_be_turned_off() {
    let (mut a, mut b) = (Node::new(0), Node::with(1, ShmOptions { mapped_bytes_max: 0, ..options() }));
    let (mut memory, _, file) = two_faced(100);
    a.rail.offer(whole(&mut memory), file.as_fd(), false);
    add_peers(&mut [&mut a, &mut b]);
    a.connect(1);
    run_until_idle(&mut [&mut a, &mut b]);
    for _ in 0..3 {
        assert!(b.fetch(&mut a, at(&memory), 100) == memory);
        run_until_idle(&mut [&mut a, &mut b]);
    }
    assert_eq!(b.mapped(0), 0);
}

/// L-20: memory that could shrink, or is no memory, or is shorter than announced, is not mapped: a read of
/// it would end this process.
#[test]
fn memory_that_is_not_safe_is_not_mapped() {
    let (mut a, mut b) = connected([0, 1]);
    let (mut memory, _, _) = two_faced(8192);
    let (read_end, _write_end) = rustix::pipe::pipe().unwrap();
    let disk = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let bad = [
        file(&memory, SealFlags::empty()),
        file(&memory, SealFlags::FUTURE_WRITE | SealFlags::SEAL),
        file(&memory, SealFlags::SHRINK | SealFlags::FUTURE_WRITE),
        holes(8192),
        file(&memory[..8191], SEALS),
        file(&[], SEALS),
        read_end,
        disk.into(),
    ];
    for file in bad {
        a.rail.offer(whole(&mut memory), file.as_fd(), false);
        b.fetch(&mut a, at(&memory), 1);
        run_until_idle(&mut [&mut a, &mut b]);
        assert_eq!(b.mapped(0), 0, "{file:?}");
        assert!(b.fetch(&mut a, at(&memory), 8192) == memory);
        a.rail.forget(whole(&mut memory));
    }
    assert!(b.sink.down.is_empty());
}

/// L-10, L-13, L-19: what a peer may not send on the socket ends its subchannel, and its descriptors are
/// gone.
#[test]
fn answers_that_are_not_due_end_the_subchannel() {
    let memory = pattern(4096, 1);
    let file = file(&memory, SEALS);
    let answer = Answer { number: 1.into(), start: 4096.into(), bytes: 4096.into(), left: 0.into(), zero: 0.into() };
    let good = answer.as_bytes();
    // Not requested; and of no known kind.
    for (bytes, with_file) in
        [(good, true), (good, false), (&good[..31], false), (&b"!!"[..], false), (&b"x"[..], true)]
    {
        let mut node = Node::new(0);
        let (socket, _inbound, _outbound) = join(&mut node, 1);
        socket::send(&socket, bytes, with_file.then_some(file.as_fd())).unwrap();
        run_until_idle(&mut [&mut node]);
        assert_eq!(node.sink.down, [(PeerId(1), RailFault::Corrupt)], "{bytes:?}");
    }
    // Requested: a descriptor that is missing or too many, bytes that are none or not zero, a list without
    // end.
    let none = Answer { bytes: 0.into(), ..answer };
    let wrong = [
        (answer, false),
        (none, true),
        (Answer { left: 1.into(), ..none }, false),
        (Answer { zero: 1.into(), ..answer }, true),
        (Answer { left: (OFFERS_MAX as u32).into(), ..answer }, true),
    ];
    let (ours, _theirs) = sockets();
    let list_state = || {
        let mut maps = Maps::new(1 << 20);
        maps.request_list(1);
        assert!(maps.request(&ours) && maps.is_due());
        maps
    };
    for (answer, with_file) in wrong {
        assert!(!list_state().take(&answer, with_file.then(|| file.try_clone().unwrap()), false), "{answer:?}");
    }
    let mut maps = list_state();
    let more = Answer { left: 1.into(), ..answer };
    assert!(maps.take(&more, Some(file.try_clone().unwrap()), false) && !maps.is_due());
    assert!(!maps.take(&answer, None, false), "nothing is due");
    assert!(maps.request(&ours) && !maps.take(&more, Some(file.try_clone().unwrap()), false), "as many left as before");
}

fn sockets() -> (OwnedFd, OwnedFd) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

/// The descriptors of this process; tests in other threads open some too.
fn is_open(file: &OwnedFd) -> usize {
    let of = |path: std::path::PathBuf| std::fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
    let wanted = fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino)).unwrap();
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|entry| entry.as_ref().is_ok_and(|entry| of(entry.path()) == Some(wanted))).count()
}

/// L-10, L-19: of what answers bring nothing stays open, mapped or not, due or not; a lost descriptor costs
/// its piece alone.
#[test]
fn descriptors_are_closed() {
    let (mut a, mut b) = connected([0, 1]);
    let (mut memory, shown, file) = two_faced(5000);
    let (mut other, _, bad) = (pattern(5000, 4), (), holes(8192));
    a.rail.offer(whole(&mut other), bad.as_fd(), false);
    a.rail.offer(whole(&mut memory), file.as_fd(), false);
    b.fetch(&mut a, at(&memory), 1);
    run_until_idle(&mut [&mut a, &mut b]);
    assert!(b.fetch(&mut a, at(&memory), 5000) == shown);
    assert_eq!((is_open(&file), is_open(&bad)), (2, 2), "ours and the offer's");
    let mut node = Node::new(0);
    let (socket, _inbound, _outbound) = join(&mut node, 1);
    socket::send(&socket, &[0; 32], Some(file.as_fd())).unwrap();
    run_until_idle(&mut [&mut node]);
    assert_eq!((node.sink.down.len(), is_open(&file)), (1, 2));
    let (ours, theirs) = sockets();
    let mut maps = Maps::new(1 << 20);
    maps.request_list(1);
    assert!(maps.request(&ours) && socket::receive(&theirs, &mut [0; 8], false).is_datagram());
    let answer = Answer { number: 1.into(), start: 4096.into(), bytes: 5000.into(), left: 1.into(), zero: 0.into() };
    assert!(maps.take(&answer, None, true) && maps.request(&ours));
    assert!(maps.take(&Answer { left: 0.into(), ..answer }, Some(file.try_clone().unwrap()), false));
    assert_eq!((maps.len(), is_open(&file)), (1, 2));
}

impl Received {
    fn is_datagram(&self) -> bool {
        matches!(self, Received::Datagram(..))
    }
}

/// L-19: each question has one answer, by number; a peer that requests and does not read gets none, and
/// delays only itself.
#[test]
fn questions_are_answered_as_the_socket_takes_it() {
    let mut node = Node::new(0);
    let mut memories: Vec<_> = (0..5).map(|_| two_faced(100)).collect();
    for (memory, _, file) in &mut memories {
        node.rail.offer(whole(memory), file.as_fd(), false);
    }
    let (socket, inbound, _outbound) = join(&mut node, 1);
    assert_eq!(inbound.offer(), 5);
    let mut bytes = [0; size_of::<Answer>()];
    for piece in [0, 4, 2, 5, u32::MAX] {
        let list_request = ListRequest { kind: LIST_REQUEST, piece: piece.into() };
        socket::send(&socket, list_request.as_bytes(), None).unwrap();
        run_until_idle(&mut [&mut node]);
        let Received::Datagram(_, file) = socket::receive(&socket, &mut bytes, true) else { panic!("no answer") };
        let answer = Answer::read_from_bytes(&bytes).unwrap();
        let (start, left) = match memories.get(piece as usize) {
            Some((memory, ..)) => (at(memory), 4 - piece),
            None => (0, 0),
        };
        assert_eq!((answer.number.get(), answer.start.get(), answer.left.get()), (5, start, left));
        assert_eq!((answer.bytes.get(), file.is_some()), if start == 0 { (0, false) } else { (100, true) });
    }
    let list_request = ListRequest { kind: LIST_REQUEST, piece: 1.into() };
    for _ in 0..2000 {
        let _ = socket::send(&socket, list_request.as_bytes(), None);
        node.poll();
    }
    let mut other = Node::new(2);
    add_peers(&mut [&mut node, &mut other]);
    other.connect(0);
    run_until_idle(&mut [&mut node, &mut other]);
    assert_eq!((node.sink.down.len(), node.sink.up.last()), (0, Some(&PeerId(2))));
}

/// L-19: a socket that takes no more, and a list that changes meanwhile: it comes whole, from its beginning.
#[test]
fn memory_list_is_received_whole() {
    let (ours, theirs) = sockets();
    let mut offers = Offers::default();
    let mut memory = [0u8; 300];
    let file = file(&memory, SEALS);
    for part in memory.chunks_mut(100) {
        assert!(offers.add(whole(part), file.try_clone().unwrap(), false));
    }
    let mut maps = Maps::new(1 << 20);
    maps.request_list(offers.number());
    let (mut rounds, mut waits) = (0, 0);
    let mut bytes = [0; size_of::<Answer>()];
    while maps.request(&theirs) {
        rounds += 1;
        if rounds == 2 {
            assert!(offers.withdraw(whole(&mut memory[100..200])));
            while socket::send(&ours, &[BELL], None).is_ok() {}
        }
        let Received::Datagram(..) = socket::receive(&ours, &mut bytes, false) else { panic!("no question") };
        let piece = ListRequest::read_from_prefix(&bytes).unwrap().0.piece.get();
        while !offers.answer(&ours, piece) {
            waits += 1;
            socket::receive(&theirs, &mut bytes, false);
        }
        let file = loop {
            match socket::receive(&theirs, &mut bytes, true) {
                Received::Datagram(1, None) => {}
                Received::Datagram(_, file) => break file,
                other => panic!("{other:?}"),
            }
        };
        assert!(maps.take(&Answer::read_from_bytes(&bytes).unwrap(), file, false));
    }
    assert_eq!((rounds, maps.len(), maps.is_due()), (4, 2, false));
    assert!(waits > 0);
    assert!(!offers.withdraw(whole(&mut memory)));
    assert!(offers.withdraw(whole(&mut memory[..100])) && offers.withdraw(whole(&mut memory[200..])));
    assert_eq!(offers.number(), 0);
    maps.follow(0);
    assert_eq!(maps.len(), 0);
}
