//! Honest processes.

use super::*;

/// L-2
#[test]
fn packets_of_all_sizes_arrive_whole_and_in_order_both_ways() {
    for piece_bytes in [0, 1, 100] {
        let (mut a, mut b) = connected([0, 1]);
        a.sink.piece_bytes = piece_bytes;
        b.sink.piece_bytes = piece_bytes;
        let sizes: Vec<usize> = (0..40).chain([255, 256, 511, 1000, 1023, 1024]).collect();
        for (number, &size) in sizes.iter().enumerate() {
            a.send(1, number as u32, size);
            b.send(0, number as u32, sizes[sizes.len() - 1 - number]);
        }
        run_until_idle(&mut [&mut a, &mut b]);
        let expected: Vec<_> = sizes.iter().enumerate().map(|(n, &size)| packet(n as u32, size)).collect();
        assert_eq!(b.taken_from(0), expected);
        let expected: Vec<_> = sizes.iter().rev().enumerate().map(|(n, &size)| packet(n as u32, size)).collect();
        assert_eq!(a.taken_from(1), expected);
        // 46 packets through 4 cells: each completion once, in order.
        let ids: Vec<u32> = a.sink.completed.iter().map(|id| id.0.index).collect();
        assert_eq!(ids, (1..=46).collect::<Vec<_>>());
        assert_eq!(a.rail.counters().packets_sent, 46);
        assert_eq!(b.rail.counters().packets_received, 46);
        assert_eq!(a.rail.counters().bytes_sent, b.rail.counters().bytes_received);
    }
}

/// L-4
#[test]
fn peer_that_does_not_poll_delays_completions() {
    let (mut a, mut b) = connected([0, 1]);
    for number in 0..20 {
        a.send(1, number, 100);
    }
    for _ in 0..300 {
        a.poll();
    }
    assert_eq!(a.sink.completed.len(), 4, "as many as there are cells");
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!((a.sink.completed.len(), b.sink.taken.len()), (20, 20));
}

/// H-8, L-1
#[test]
fn crossing_dials_end_in_one_connection() {
    for polls_first in 0..12 {
        let (mut a, mut b) = (Node::new(2), Node::new(5));
        add_peers(&mut [&mut a, &mut b]);
        a.connect(5);
        // All the ways in which the two may be ahead of each other.
        for n in 0..polls_first {
            if n % 3 == 0 {
                a.poll()
            } else {
                b.poll()
            };
        }
        b.connect(2);
        a.connect(5);
        run_until_idle(&mut [&mut b, &mut a]);
        for node in [&a, &b] {
            assert_eq!((node.sink.up.len(), node.sink.down.len()), (1, 0));
            assert_eq!((node.rail.links.len(), node.rail.openings.len()), (1, 0));
            assert_eq!((node.rail.counters().unauthenticated, node.rail.counters().corrupt), (0, 0));
        }
        a.send(5, 1, 10);
        b.send(2, 2, 20);
        run_until_idle(&mut [&mut a, &mut b]);
        assert_eq!((a.taken_from(5), b.taken_from(2)), (vec![packet(2, 20)], vec![packet(1, 10)]));
    }
}

/// H-8
#[test]
fn crossing_dials_keep_the_dial_of_the_lower_rank() {
    for [first, second] in [[2, 5], [5, 2]] {
        let (mut a, mut b) = (Node::new(first), Node::new(second));
        add_peers(&mut [&mut a, &mut b]);
        a.connect(second);
        b.connect(first);
        run_until_idle(&mut [&mut a, &mut b]);
        // A rail's own dial has the first token that it assigns; accepted ones came later.
        let own = |node: &Node| node.rail.links[0].token == LISTENER + 1;
        assert_eq!((own(&a), own(&b)), (first < second, second < first));
    }
}

#[test]
fn four_processes_all_to_all() {
    let mut nodes: Vec<Node> = (0..4).map(Node::new).collect();
    let mut all: Vec<&mut Node> = nodes.iter_mut().collect();
    add_peers(&mut all);
    for a in 0..4u32 {
        (0..4).filter(|&b| b != a).for_each(|b| all[a as usize].connect(b));
    }
    run_until_idle(&mut all);
    for number in 0..50 {
        for a in 0..4u32 {
            for b in (0..4).filter(|&b| b != a) {
                all[a as usize].send(b, number * 10 + a, (number * 20) as usize);
            }
        }
    }
    run_until_idle(&mut all);
    for b in 0..4u32 {
        for a in (0..4).filter(|&a| a != b) {
            let expected: Vec<_> = (0..50).map(|number| packet(number * 10 + a, (number * 20) as usize)).collect();
            assert_eq!(all[b as usize].taken_from(a), expected);
        }
    }
}

#[test]
fn busy_peer_does_not_delay_another_peer() {
    let options = ShmOptions { cells: 64, slots: 64, burst: 2, ..options() };
    let [mut a, mut b, mut c] = [0, 1, 2].map(|rank| Node::with(rank, options.clone()));
    add_peers(&mut [&mut a, &mut b, &mut c]);
    b.connect(0);
    c.connect(0);
    run_until_idle(&mut [&mut a, &mut b, &mut c]);
    for number in 0..60 {
        b.send(0, number, 10);
    }
    c.send(0, 1, 10);
    a.poll();
    assert_eq!((a.taken_from(1).len(), a.taken_from(2).len()), (2, 1));
}

/// shiba-2005, 3: no policy leaves anything in a ring, though it takes one packet a poll, nor sleeps then.
#[test]
fn every_policy_of_ring_reads_takes_all_packets() {
    for ring_reads in RingReads::ALL {
        let options = ShmOptions { cells: 64, slots: 64, ring_reads, ..options() };
        let [mut a, mut b] = [0, 1].map(|rank| Node::with(rank, options.clone()));
        add_peers(&mut [&mut a, &mut b]);
        b.connect(0);
        run_until_idle(&mut [&mut a, &mut b]);
        for number in 0..30 {
            b.send(0, number, 100 + number as usize);
        }
        a.poll();
        let at_once = a.taken_from(1).len();
        assert_eq!(at_once, if ring_reads == RingReads::Burst { 30 } else { 1 }, "{ring_reads:?}");
        assert_eq!(a.rail.arm(), ring_reads == RingReads::Burst);
        a.rail.disarm();
        run_until_idle(&mut [&mut a, &mut b]);
        let expected: Vec<_> = (0..30).map(|number| packet(number, 100 + number as usize)).collect();
        assert_eq!(a.taken_from(1), expected, "{ring_reads:?}");
    }
}

/// L-14
#[test]
fn disconnect_sends_earlier_posts_first() {
    let (mut a, mut b) = connected([0, 1]);
    for number in 0..30 {
        a.send(1, number, 500);
    }
    a.rail.disconnect(PeerId(1));
    // The caller's memory is its own again.
    a.memory.iter_mut().for_each(|memory| memory.fill(0xEE));
    a.memory.clear();
    run_until_idle(&mut [&mut a, &mut b]);
    let expected: Vec<_> = (0..30).map(|number| packet(number, 500)).collect();
    assert_eq!(b.taken_from(0), expected);
    assert_eq!((a.sink.down.len(), &b.sink.down[..]), (0, &[(PeerId(0), RailFault::Closed)][..]));
    assert!(a.rail.links.is_empty() && a.rail.closing.is_empty());
    // And again, from either side.
    b.connect(0);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!((a.sink.up.len(), b.sink.up.len()), (2, 2));
}

/// L-14
#[test]
fn flushing_for_a_peer_that_does_not_poll_ends() {
    let (mut a, mut b) = connected([0, 1]);
    for number in 0..30 {
        a.send(1, number, 500);
    }
    a.rail.disconnect(PeerId(1));
    a.poll();
    let deadline = a.rail.next_timeout().expect("the flush has a deadline");
    a.now = Time(deadline.0 - 1);
    a.poll();
    assert_eq!(a.rail.closing.len(), 1);
    a.now = deadline;
    a.poll();
    assert_eq!((a.rail.closing.len(), a.rail.next_timeout()), (0, None));
    run_until_idle(&mut [&mut b]);
    assert_eq!(b.sink.taken.len(), 4);
    assert_eq!(b.sink.down, [(PeerId(0), RailFault::Closed)]);
}

#[test]
fn both_sides_disconnect_with_full_rings() {
    let (mut a, mut b) = connected([0, 1]);
    for number in 0..30 {
        a.send(1, number, 5);
        b.send(0, number, 5);
    }
    a.rail.disconnect(PeerId(1));
    b.rail.disconnect(PeerId(0));
    run(&mut [&mut a, &mut b], |nodes| nodes.iter().all(|node| node.rail.closing.is_empty()));
}

/// L-5, L-14
#[test]
fn ring_of_a_closed_peer_is_drained_before_the_report() {
    let (mut a, mut b) = connected([0, 1]);
    for number in 0..4 {
        a.send(1, number, 77);
    }
    drop(a);
    b.send(0, 1, 1);
    // The hang-up is seen before the ring is.
    b.rail.check_sockets = true;
    run_until_idle(&mut [&mut b]);
    assert_eq!(b.taken_from(0), (0..4).map(|number| packet(number, 77)).collect::<Vec<_>>());
    assert_eq!(b.sink.down, [(PeerId(0), RailFault::Closed)]);
    // A post that comes too late is dropped.
    b.send(0, 2, 2);
    run_until_idle(&mut [&mut b]);
}

#[test]
fn short_or_aborted_placement_affects_only_its_packet() {
    let (mut a, mut b) = connected([0, 1]);
    b.sink.capacity = Some(100);
    a.send(1, 1, 300);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.taken_from(0)[0].1, packet(1, 300).1[..100]);
    b.sink.capacity = None;
    (b.sink.piece_bytes, b.sink.aborted_after) = (10, Some(30));
    a.send(1, 2, 300);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.sink.taken.len(), 1);
    b.sink.aborted_after = None;
    a.send(1, 3, 300);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.taken_from(0)[1], packet(3, 300));
}

#[test]
fn close_ends_the_subchannel_and_counts() {
    let (mut a, mut b) = connected([0, 1]);
    b.sink.close_on = Some(6);
    a.send(1, 5, 1);
    a.send(1, 6, 1);
    a.send(1, 7, 1);
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.taken_from(0), [packet(5, 1)]);
    assert_eq!((b.rail.counters().corrupt, &b.sink.down[..]), (1, &[(PeerId(0), RailFault::Corrupt)][..]));
    assert_eq!(a.sink.down, [(PeerId(1), RailFault::Closed)]);
}

#[test]
fn missing_peer_is_reported_and_a_computing_peer_is_awaited() {
    let mut a = Node::new(0);
    let gone = Node::new(1).rail.address();
    meet(&mut a.rail, 1, &gone);
    a.connect(1);
    run_until_idle(&mut [&mut a]);
    assert_eq!(a.sink.down, [(PeerId(1), RailFault::Gone)]);
    // One that listens and never answers.
    let b = Node::new(2);
    meet(&mut a.rail, 2, &b.rail.address());
    a.connect(2);
    run_until_idle(&mut [&mut a]);
    for _ in 0..1000 {
        let deadline = a.rail.next_timeout().unwrap();
        assert_eq!(deadline, a.now + options().handshake_timeout);
        a.now = deadline;
        run_until_idle(&mut [&mut a]);
    }
    assert_eq!((a.sink.down.len(), a.sink.queued.as_slice()), (1, [PeerId(2); 1000].as_slice()));
    drop(b);
    run_until_idle(&mut [&mut a]);
    assert_eq!(a.sink.down[1..], [(PeerId(2), RailFault::Refused)]);
    assert!(a.rail.openings.is_empty() && a.rail.next_timeout().is_none());
    // One whose address is unknown.
    a.connect(3);
    run_until_idle(&mut [&mut a]);
    assert_eq!(a.sink.down[2..], [(PeerId(3), RailFault::Refused)]);
}

/// L-8
#[test]
fn a_full_backlog_is_tried_again_later_and_lets_the_caller_sleep() {
    let mut a = Node::new(0);
    let name = "rerail-test-full-backlog".to_owned() + &a.rail.socket_name;
    let listener = socket::listen(&name).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    for peer in 1..3 {
        let address = format!("{}/{name}", a.rail.host_id);
        meet(&mut a.rail, peer, &address);
        a.connect(peer);
        a.poll();
    }
    // The second finds the backlog full of the first.
    let retry = a.rail.next_timeout().unwrap();
    assert!(retry < a.now + options().handshake_timeout);
    assert!(a.rail.arm(), "there is nothing to do before {retry:?}");
    a.rail.disarm();
    let _first = socket::accept(&listener).unwrap();
    a.poll();
    assert_eq!(socket::accept(&listener).unwrap_err(), Errno::AGAIN);
    a.now = retry;
    a.poll();
    let _second = socket::accept(&listener).unwrap();
    assert_eq!(a.rail.next_timeout(), Some(Time(1) + options().handshake_timeout));
}

/// L-10
#[test]
fn different_slot_sizes_prevent_connection_and_are_reported() {
    let mut a = Node::new(0);
    let mut b = Node::with(1, ShmOptions { segment_bytes: 2048, ..options() });
    add_peers(&mut [&mut a, &mut b]);
    a.connect(1);
    b.connect(0);
    run_until_idle(&mut [&mut a, &mut b]);
    let why = RailFault::Device { code: Errno::MSGSIZE.raw_os_error() };
    assert_eq!((&a.sink.down[..], &b.sink.down[..]), (&[(PeerId(1), why)][..], &[(PeerId(0), why)][..]));
    assert_eq!((a.rail.counters().corrupt, b.rail.counters().corrupt), (0, 0));
    // How many cells and slots there are is each one's own affair.
    let mut c = Node::with(2, ShmOptions { cells: 8, slots: 16, ..options() });
    add_peers(&mut [&mut a, &mut c]);
    c.connect(0);
    run_until_idle(&mut [&mut a, &mut c]);
    assert_eq!((&a.sink.up[..], &c.sink.up[..]), (&[PeerId(2)][..], &[PeerId(0)][..]));
}

#[test]
fn addresses() {
    let mut a = Node::with(0, ShmOptions { host_id: Some("left".into()), ..options() });
    let b = Node::with(1, ShmOptions { host_id: Some("right".into()), ..options() });
    let address = b.rail.address();
    assert!(address.len() <= 200 && address.starts_with("right/rerail-5417ba-1-0-"));
    assert!(address.bytes().all(|byte| byte.is_ascii_graphic() && !b";,=".contains(&byte)));
    assert_eq!(a.rail.add_peer(PeerId(1), &address), Ok(false), "another logical host");
    let own = a.rail.address();
    assert_eq!(a.rail.add_peer(PeerId(0), &own), Ok(false), "itself");
    assert_eq!(a.rail.add_peer(PeerId(1), "left/x"), Ok(true));
    for wrong in ["", "left", "/x", "left/", "left/x/y", "le ft/x", "left/x;y", &format!("left/{}", "x".repeat(81))] {
        assert!(a.rail.add_peer(PeerId(1), wrong).is_err(), "{wrong:?}");
    }
    assert!(a.rail.add_peer(PeerId(8), "left/x").is_err(), "rank over peers_max");
    // By default the host is the kernel and the network namespace.
    let (c, mut d) = (Node::new(2), Node::new(3));
    assert_eq!(d.rail.add_peer(PeerId(2), &c.rail.address()), Ok(true));
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |options: ShmOptions| ShmRail::open(options, credentials(0), JOB, PeerId(0)).unwrap_err();
    assert!(matches!(refused(ShmOptions { slots: 1, ..options() }), ShmError::Ring(error) if error.field == "slots"));
    assert!(matches!(refused(ShmOptions { cells: 3, ..options() }), ShmError::Ring(error) if error.field == "cells"));
    let eager = ShmOptions { eager_bytes_max: 1025, ..options() };
    assert_eq!(refused(eager), ShmError::Option { name: "eager_bytes_max", value: 1025 });
    assert!(matches!(refused(ShmOptions { segment_bytes: 8 << 20, ..options() }), ShmError::Option { .. }));
    assert!(matches!(refused(ShmOptions { burst: 0, ..options() }), ShmError::Option { name: "burst", .. }));
    let huge = ShmOptions { slots: 65_536, segment_bytes: 64 * 1024, ..options() };
    assert_eq!(refused(huge), ShmError::Option { name: "slots", value: 65_536 });
    assert_eq!(refused(ShmOptions { host_id: Some("a/b".into()), ..options() }), ShmError::HostId("a/b".into()));
}

/// Whether the rail's descriptor is readable now.
pub(super) fn readable(node: &Node) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let fd = node.rail.wait_fd().unwrap();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

/// L-13
#[test]
fn sleepers_are_woken_for_messages_and_for_room() {
    let (mut a, mut b) = connected([0, 1]);
    assert!(b.rail.arm());
    assert!(!readable(&b));
    a.send(1, 1, 10);
    assert!(readable(&b), "a message wakes");
    b.rail.disarm();
    b.poll();
    assert_eq!(b.sink.taken.len(), 1);
    let calls = a.rail.counters().system_calls;
    a.send(1, 2, 10);
    assert_eq!(a.rail.counters().system_calls, calls, "no doorbell where no process sleeps");
    assert!(!b.rail.arm(), "a message is there");
    b.poll();
    // The other way: a sender that has used up the ring.
    for number in 3..13 {
        a.send(1, number, 10);
    }
    while a.poll() > 0 {}
    assert!(a.rail.arm());
    assert!(!readable(&a));
    b.poll();
    assert!(readable(&a), "room wakes");
    a.rail.disarm();
    run_until_idle(&mut [&mut a, &mut b]);
    assert_eq!(b.sink.taken.len(), 12);
    // An arriving connection wakes too.
    let mut c = Node::new(2);
    add_peers(&mut [&mut a, &mut c]);
    assert!(a.rail.arm());
    c.connect(0);
    assert!(readable(&a));
}

/// L-9, L-13
#[test]
fn both_sides_use_the_barrier_of_the_system_or_neither() {
    let (mut a, b) = connected([0, 1]);
    assert_eq!([&a, &b].map(|node| node.rail.links[0].barrier), [barrier::is_registered(); 2]);
    let (_socket, _inbound, mut outbound) = super::hostile::join(&mut a, 2);
    assert!(!a.rail.links[1].barrier, "this one announces that it has none");
    // One call for all rings.
    let calls = a.rail.counters().system_calls;
    assert!(a.rail.arm());
    assert_eq!(a.rail.counters().system_calls - calls, u64::from(barrier::is_registered()));
    outbound.push(&[1; 8], &[]).unwrap();
    assert!(outbound.must_ring() && !outbound.must_ring(), "it sees the sleeper by a fence of its own");
}

#[test]
fn descriptors_do_not_survive_an_exec() {
    let (a, _b) = connected([0, 1]);
    let all = [a.rail.listener.as_fd(), a.rail.epoll.as_fd(), a.rail.links[0].socket.as_fd()];
    for fd in all {
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}

#[test]
fn shm_memory_per_peer_matches_options_and_architecture() {
    let (a, _b) = connected([0, 1]);
    assert_eq!(a.rail.ring_bytes(), 1024 + 4 * 192 + 4 * 1344);
    let (_, default) = ShmOptions::new(1).ring_bytes();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md");
    let architecture = std::fs::read_to_string(path).unwrap();
    let sentence = format!("4096 bytes at first, growing with use to {default}.");
    assert!(architecture.contains(&sentence), "ARCHITECTURE.md lacks: {sentence}");
}

/// A ring has the pages that were used, and those are there before they are touched.
#[test]
fn idle_shm_peer_uses_one_page_each_way() {
    let ring = ShmOptions::new(2).ring();
    let (mut inbound, memory) = segment::Inbound::create(ring).unwrap();
    // Blocks of such memory are pages.
    let page_bytes = rustix::fs::fstat(&memory).unwrap().st_blksize as u64;
    let pages = |memory: &OwnedFd| rustix::fs::fstat(memory).unwrap().st_blocks as u64 * 512 / page_bytes;
    let whole = (rerail_core::shm::ring_bytes(ring).unwrap() as u64).div_ceil(page_bytes);
    let mut outbound = segment::Outbound::open(memory.try_clone().unwrap(), ring).unwrap();
    if pages(&memory) == whole {
        return; // A kernel that can't find pages one by one: all are there from the start.
    }
    assert_eq!(pages(&memory), 1);
    let mut bytes = vec![7; ring.slot_bytes as usize];
    let long = [Piece { start: bytes.as_mut_ptr(), len: 8 * 1024 }];
    let mut before = 1;
    for round in 1..=2 * ring.cells {
        // One of five is long, so that the annex has come round when the cells have.
        let payload = if round % 5 == 0 { &long[..] } else { &[] };
        outbound.push(&[1; 56], payload).unwrap();
        let front = inbound.front().unwrap().expect("a packet");
        let mut read = vec![0; front.payload_bytes() as usize];
        assert_eq!(front.read(0, &mut read), payload.len() * 8 * 1024);
        assert!(read.iter().all(|&byte| byte == 7));
        front.release();
        assert!(pages(&memory) >= before && pages(&memory) - before <= 5, "round {round}");
        before = pages(&memory);
        if round == 16 {
            assert!(before < 16, "{before} pages for three long packets");
        }
    }
    // The places behind the last packets are the only ones that may never have been used.
    assert!(whole - before <= 1, "{before} of {whole}");
}
