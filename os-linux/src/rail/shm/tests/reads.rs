//! Reads of a peer's memory: right to the byte, bounded by the pieces, aborted with the subchannel, and no
//! wait for packets.

use std::process::{Child, Command, Stdio};

use rerail_core::wire::RemoteKey;
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::super::copy::BYTES_PER_POLL;
use super::super::reach::Denied;
use super::*;

impl Node {
    /// Posts a read from `address` into the pieces.
    pub(super) fn read(&mut self, of: u32, address: u64, pieces: &[Piece]) -> PostId {
        self.posts += 1;
        let id = PostId(Key { index: self.posts, generation: 3 });
        let kind = PostKind::Read { from: RemoteKey { rail: 0, connection: 0, key: 0, address } };
        let outgoing = Outgoing { id, peer: PeerId(of), kind, header: &[], payload: pieces, extent: 0 };
        // SAFETY: the tests below keep the pieces' memory until the read is over or the rail is gone.
        unsafe { self.rail.post(outgoing) };
        id
    }

    fn denied(&mut self, peer: u32) -> Option<Denied> {
        let index = self.rail.link_index(PeerId(peer)).expect("a link");
        self.rail.links[index].memory.as_ref().expect("memory").1.denied()
    }
}

/// Bytes that are like no others of a test.
pub(super) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8 ^ i >> 16) as u8 ^ seed).collect()
}

pub(super) fn at(bytes: &[u8]) -> u64 {
    bytes.as_ptr().addr() as u64
}

pub(super) fn whole(bytes: &mut [u8]) -> Piece {
    Piece { start: bytes.as_mut_ptr(), len: bytes.len() }
}

///
#[test]
fn reads_are_right_to_the_byte_at_any_size_and_alignment() {
    let (mut a, mut b) = connected([0, 1]);
    assert_eq!((a.denied(1), b.denied(0)), (None, None));
    let sizes = [1, 2, 15, 4095, 4096, 4097, 8191, 65_537, BYTES_PER_POLL, BYTES_PER_POLL + 1, 3 * BYTES_PER_POLL + 77];
    for (n, size) in sizes.into_iter().enumerate() {
        for (skip_source, skip_target) in [(0, 0), (1, 0), (0, 3), (4095, 4093)] {
            let source = pattern(size + skip_source, n as u8);
            let mut target = vec![0xEE; size + skip_target + 5];
            let id = b.read(0, at(&source[skip_source..]), &[whole(&mut target[skip_target..][..size])]);
            run(&mut [&mut a, &mut b], |nodes| nodes[1].sink.completed.last() == Some(&id));
            assert_eq!(target[skip_target..][..size], source[skip_source..], "{size} bytes");
            assert!(target[..skip_target].iter().chain(&target[skip_target + size..]).all(|byte| *byte == 0xEE));
        }
    }
    assert!(b.sink.down.is_empty() && b.sink.unread.is_empty());
}

/// More pieces than one system call takes, some empty, some longer than a portion.
#[test]
fn a_read_fills_its_pieces_in_order() {
    let (mut a, mut b) = connected([0, 1]);
    let lens: Vec<usize> = (0..70).map(|i| [0, 1, 7, 4096, 10_001, BYTES_PER_POLL + 3][i % 6]).collect();
    let source = pattern(lens.iter().sum(), 9);
    let mut targets: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
    let pieces: Vec<Piece> = targets.iter_mut().map(|target| whole(target)).collect();
    let id = b.read(0, at(&source), &pieces);
    run(&mut [&mut a, &mut b], |nodes| nodes[1].sink.completed == [id]);
    assert!(targets.concat() == source);
}

/// A large read takes several polls, and packets that come meanwhile are taken between.
#[test]
fn packets_do_not_wait_for_a_large_read() {
    let (mut a, mut b) = connected([0, 1]);
    let source = pattern(64 * BYTES_PER_POLL, 1);
    let mut target = vec![0; source.len()];
    let id = b.read(0, at(&source), &[whole(&mut target)]);
    let mut polls = 0;
    while b.sink.completed.is_empty() {
        a.send(1, polls, 8);
        assert!(!b.rail.arm(), "there is something to read");
        b.rail.disarm();
        b.poll();
        polls += 1;
        assert_eq!(b.sink.taken.len(), polls as usize, "each poll takes what has come");
        a.poll();
    }
    // Both sides copy, half each.
    assert_eq!((&b.sink.completed[..], polls), (&[id][..], 33));
    assert!(target == source);
}

/// Several peers' reads share the bytes of a poll, in turn.
#[test]
fn one_peers_reads_do_not_starve_anothers() {
    let mut nodes: Vec<Node> = (0..3).map(Node::new).collect();
    let [reader, one, other] = &mut nodes[..] else { unreachable!() };
    add_peers(&mut [reader, one, other]);
    reader.connect(1);
    reader.connect(2);
    run_until_idle(&mut [reader, one, other]);
    let source = pattern(20 * BYTES_PER_POLL, 3);
    let (mut large, mut small) = (vec![0; source.len()], vec![0; 64]);
    reader.read(1, at(&source), &[whole(&mut large)]);
    let id = reader.read(2, at(&source), &[whole(&mut small)]);
    for _ in 0..4 {
        reader.poll();
    }
    assert_eq!(reader.sink.completed, [id], "the small one is complete long before the large one");
    assert!(small[..] == source[..64]);
}

/// a key of nothing costs the read, and not the peer.
#[test]
fn read_with_an_invalid_key_fails_and_the_channel_stays_up() {
    let (mut a, mut b) = connected([0, 1]);
    let mut target = vec![0xEE; 3 * BYTES_PER_POLL];
    let (len, page) = (2 * BYTES_PER_POLL, 4096);
    // SAFETY: a new mapping; a part of it is unmapped at once.
    let base = unsafe {
        let (flags, rights) = (rustix::mm::MapFlags::PRIVATE, rustix::mm::ProtFlags::READ);
        let base = rustix::mm::mmap_anonymous(std::ptr::null_mut(), len + page, rights, flags).unwrap();
        rustix::mm::munmap(base.byte_add(len), page).unwrap();
        base.addr() as u64
    };
    let nothing = b.read(0, 8, &[whole(&mut target[..100])]);
    // Longer than the mapping, in the first portion and in a later one.
    let beyond = b.read(0, base + len as u64 - 50, &[whole(&mut target[..100])]);
    let later = b.read(0, base, &[whole(&mut target)]);
    let top = b.read(0, u64::MAX - 10, &[whole(&mut target[..100])]);
    let honest = pattern(100, 1);
    let good = b.read(0, at(&honest), &[whole(&mut target[..100])]);
    run(&mut [&mut a, &mut b], |nodes| nodes[1].sink.completed == [good]);
    assert_eq!(b.sink.unread, [nothing, beyond, later, top]);
    assert!(target[..100] == honest && b.sink.closed.is_empty() && b.sink.down.is_empty());
    a.send(1, 1, 8);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.sink.taken.len(), 1);
}

/// F-2, L-15: bytes read after the peer has given the subchannel up do not count.
#[test]
fn no_read_completes_once_the_peer_has_aborted() {
    for abort in [ShmRail::abort, ShmRail::disconnect] {
        let (mut a, mut b) = connected([0, 1]);
        let mut source = pattern(2 * BYTES_PER_POLL, 1);
        let mut target = vec![0; source.len()];
        b.read(0, at(&source), &[whole(&mut target)]);
        b.poll();
        abort(&mut a.rail, PeerId(1));
        // The memory is the caller's again.
        source.fill(0);
        run(&mut [&mut a, &mut b], |nodes| !nodes[1].sink.down.is_empty());
        assert_eq!(b.sink.down, [(PeerId(0), RailFault::Closed)]);
        assert!(b.sink.completed.is_empty() && b.sink.unread.is_empty());
    }
}

/// F-2, L-15: when the rail has given up a subchannel, it writes to no piece of its reads any more.
#[test]
fn nothing_is_filled_once_this_side_has_aborted() {
    for abort in [ShmRail::abort, ShmRail::disconnect] {
        let (mut a, mut b) = connected([0, 1]);
        let source = pattern(2 * BYTES_PER_POLL, 1);
        let mut target = vec![0; source.len()];
        b.read(0, at(&source), &[whole(&mut target)]);
        b.poll();
        // Waiting posts in the ring's queue make the link linger.
        for number in 0..20 {
            b.send(0, number, 100);
        }
        abort(&mut b.rail, PeerId(0));
        assert!(target[..BYTES_PER_POLL] == source[..BYTES_PER_POLL]);
        target.fill(0xEE);
        run_until_idle(&mut [&mut a, &mut b]);
        assert!(target.iter().all(|byte| *byte == 0xEE));
        assert!(b.sink.completed.iter().all(|id| id.0.index != 1));
    }
}

/// If the settings turn it off, no peer is probed.
#[test]
fn without_single_copy_nothing_is_offered() {
    let mut a = Node::with(0, ShmOptions { single_copy: false, ..options() });
    let mut b = Node::new(1);
    add_peers(&mut [&mut a, &mut b]);
    a.connect(1);
    run_until_idle(&mut [&mut a, &mut b]);
    assert!(!a.rail.facts().caps.read && b.rail.facts().caps.read);
    assert_eq!((&a.sink.closed[..], &b.sink.closed[..]), (&[PeerId(1)][..], &[][..]));
    assert_eq!((a.denied(1), b.denied(0)), (Some(Denied::Off), None));
}

const ADDRESS: &str = "RERAIL_TEST_SHM_READS";
/// The size of the other process's memory to read.
const BYTES: usize = 64 * BYTES_PER_POLL;

/// The other process of the tests below; nothing where it is run by itself.
#[test]
fn child() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let mut me = Node::new(1);
    meet(&mut me.rail, 0, &address);
    me.connect(0);
    run(&mut [&mut me], |nodes| !nodes[0].sink.up.is_empty());
    let source = pattern(BYTES, 5);
    // The header has only the address of its memory.
    let mut header = vec![0u8; 8];
    header.extend(at(&source).to_le_bytes());
    let outgoing = Outgoing {
        id: PostId(Key { index: 1, generation: 1 }),
        peer: PeerId(0),
        kind: PostKind::Send,
        header: &header,
        payload: &[],
        extent: 0,
    };
    // SAFETY: there is no payload.
    unsafe { me.rail.post(outgoing) };
    kill_process(getpid(), Signal::STOP).unwrap();
    // The kernel may deliver the signal to another thread, and this one then runs for milliseconds more. It
    // must not unwind: that would free the memory that the other process reads.
    loop {
        std::thread::park();
    }
}

/// A process that is stopped, and where its memory lies.
fn stopped(me: &mut Node) -> (Child, u64) {
    expect(me, 1);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rail::shm::tests::reads::child"])
        .env(ADDRESS, me.rail.address())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while me.sink.taken.is_empty() {
        if me.poll() == 0 && me.rail.arm() {
            let fd = me.rail.wait_fd().unwrap();
            rustix::event::poll(&mut [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)], None).unwrap();
        }
        me.rail.disarm();
    }
    let address = u64::from_le_bytes(me.sink.taken[0].1[8..16].try_into().unwrap());
    let pid = Pid::from_child(&child);
    let options = rustix::process::WaitIdOptions::STOPPED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).unwrap();
    (child, address)
}

/// A peer that is stopped is read all the same: its message does not wait for it.
#[test]
fn a_stopped_peer_is_read() {
    let mut me = Node::new(0);
    let (mut child, address) = stopped(&mut me);
    assert_eq!(me.denied(1), None, "a test runs where processes may read their children's memory");
    let mut target = vec![0; BYTES];
    let id = me.read(1, address, &[whole(&mut target)]);
    run(&mut [&mut me], |nodes| nodes[0].sink.completed == [id]);
    assert!(target == pattern(BYTES, 5));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// F-9: a peer that is killed in the middle of a read takes the rail with it, and the read is aborted.
#[test]
fn peer_killed_during_a_read_is_reported_and_read_aborted() {
    let mut me = Node::new(0);
    let (mut child, address) = stopped(&mut me);
    let mut target = vec![0; BYTES];
    me.read(1, address, &[whole(&mut target)]);
    me.poll();
    assert!(target[..BYTES_PER_POLL] == pattern(BYTES, 5)[..BYTES_PER_POLL]);
    child.kill().unwrap();
    child.wait().unwrap();
    run(&mut [&mut me], |nodes| !nodes[0].sink.down.is_empty());
    assert_eq!(me.sink.down, [(PeerId(1), RailFault::Closed)]);
    assert!(me.sink.completed.is_empty() && me.sink.unread.is_empty());
    assert!(target[BYTES_PER_POLL..].iter().all(|byte| *byte == 0), "nothing came after its end");
}

/// A rail whose only calls are for news moves its reads, a portion each time, and then has none.
#[test]
fn reads_are_news_until_they_are_over() {
    let (mut a, mut b) = connected([0, 1]);
    let source = pattern(5 * BYTES_PER_POLL, 7);
    let mut target = vec![0xEE; source.len()];
    let polled = |node: &mut Node| {
        let Node { rail, sink, now, .. } = node;
        if has_message(rail) { rail.poll(*now, sink) } else { 0 }
    };
    let id = b.read(0, at(&source), &[whole(&mut target)]);
    for portion in 1..=5 {
        assert!(has_message(&b.rail) && b.sink.completed.is_empty());
        a.send(1, portion, 8);
        polled(&mut b);
        assert_eq!(b.sink.taken.len(), portion as usize, "packets are taken between");
        let read = portion as usize * BYTES_PER_POLL;
        assert!(target[..read] == source[..read] && target[read..].iter().all(|byte| *byte == 0xEE));
    }
    assert_eq!(b.sink.completed, [id]);
    polled(&mut b);
    assert!(!has_message(&b.rail));
}

/// Whether a peer can be read is reported by calls for news, too.
#[test]
fn no_access_is_news() {
    let mut a = Node::with(0, ShmOptions { single_copy: false, ..options() });
    let mut b = Node::new(1);
    add_peers(&mut [&mut a, &mut b]);
    a.connect(1);
    run(&mut [&mut b], |nodes| {
        if has_message(&a.rail) {
            a.rail.poll(a.now, &mut a.sink);
        }
        !nodes[0].sink.up.is_empty() && !a.sink.up.is_empty()
    });
    assert_eq!((&a.sink.closed[..], &b.sink.closed[..]), (&[PeerId(1)][..], &[][..]));
}

/// Whether a ring has a message, or the next poll has more to do.
fn has_message(rail: &ShmRail) -> bool {
    rail.has_slow_work() || rail.links.iter().any(Link::has_message)
}
