//! Packets of all sizes between honest rails, however the system cuts them.

use super::*;

const SIZES: [usize; 15] =
    [0, 1, 7, 63, 1024, 8191, 8192, 16_383, 16_384, 65_487, 65_488, 65_489, 100_000, 262_144, 1_500_000];

/// Sends every size both ways, some in pieces, several in the system's hands at once.
fn exchange_all_sizes(cluster: &mut Cluster) {
    let pieces = [usize::MAX, 1000, 4096];
    for (n, &bytes) in SIZES.iter().chain(SIZES.iter().rev()).enumerate() {
        let number = n as u64;
        cluster.hosts[0].send(PeerId(1), number, bytes, pieces[n % 3]);
        cluster.hosts[1].send(PeerId(0), 1000 + number, bytes, pieces[(n + 1) % 3]);
        if n % 8 == 7 {
            cluster.round();
        }
    }
    let count = 2 * SIZES.len();
    cluster
        .until(|hosts| hosts.iter().all(|host| host.sink.taken.len() == count && host.sink.completed.len() == count));
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), (0..count as u64).collect::<Vec<_>>());
    assert_eq!(cluster.hosts[0].numbers_from(PeerId(1)), (1000..1000 + count as u64).collect::<Vec<_>>());
    for host in &cluster.hosts {
        let ids: Vec<u32> = host.sink.completed.iter().map(|(id, _)| id.0.index).collect();
        assert_eq!(ids, (1..=count as u32).collect::<Vec<_>>(), "completions come in order, each once");
        assert!(host.sink.completed.iter().all(|(_, status)| *status == PostStatus::Done));
        assert!(host.sink.down.is_empty());
    }
    let (a, b) = (cluster.hosts[0].rail.counters(), cluster.hosts[1].rail.counters());
    assert_eq!((a.packets_sent, a.bytes_sent), (b.packets_received, b.bytes_received));
    assert_eq!((b.packets_sent, b.bytes_sent), (a.packets_received, a.bytes_received));
}

/// L-2
#[test]
fn packets_of_all_sizes_are_sent_both_ways() {
    exchange_all_sizes(&mut Cluster::pair());
}

#[test]
fn all_sizes_through_tiny_buffers() {
    let tiny = TcpOptions { send_buffer_bytes: Some(1), receive_buffer_bytes: Some(1), ..options() };
    let mut cluster = Cluster::new([tiny.clone(), tiny]);
    cluster.join(1, 0);
    exchange_all_sizes(&mut cluster);
}

#[test]
fn memory_in_many_small_pieces() {
    // More pieces than one call takes, on both sides.
    let mut cluster = Cluster::pair();
    cluster.hosts[1].sink.plan = |_| Plan::Take { bytes: usize::MAX, piece_bytes: 13 };
    for number in 0..4 {
        cluster.hosts[0].send(PeerId(1), number, 40_000, 17);
    }
    cluster.until(|hosts| hosts[1].sink.taken.len() == 4);
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), [0, 1, 2, 3]);
}

#[test]
fn a_batch_is_sent_by_one_call() {
    let mut cluster = Cluster::pair();
    cluster.ping(0, 1, 1);
    while cluster.poll() > 0 {}
    let calls = |cluster: &Cluster| cluster.hosts[0].rail.counters().system_calls;
    let before = calls(&cluster);
    for number in 2..10 {
        cluster.hosts[0].post(PeerId(1), number, 4096, 4096);
    }
    assert_eq!(calls(&cluster), before, "the batch is not over");
    assert!(!cluster.hosts[0].rail.arm(), "before a sleep the batch must leave");
    let before = calls(&cluster);
    cluster.hosts[0].rail.push();
    assert_eq!(calls(&cluster), before + 2, "one that sends, one for the unsent bytes");
    // What is large together does not wait.
    cluster.hosts[0].post(PeerId(1), 10, 200_000, 200_000);
    let before = calls(&cluster);
    cluster.hosts[0].post(PeerId(1), 11, 70_000, 70_000);
    assert!(calls(&cluster) > before);
    // A poll ends a batch, too.
    cluster.hosts[0].post(PeerId(1), 12, 10, 10);
    cluster.until(|hosts| hosts[1].sink.taken.len() == 12);
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), (1..13).collect::<Vec<_>>());
}

/// H-8, L-1
#[test]
fn everyone_dials_everyone_at_once() {
    let mut cluster = Cluster::new(vec![options(); 5]);
    for a in 0..5 {
        for b in (0..5).filter(|&b| b != a) {
            let now = cluster.now;
            cluster.hosts[a].rail.connect(now, PeerId(b as u32));
        }
    }
    cluster.until(|hosts| hosts.iter().all(|host| host.sink.standing.len() == 4));
    for number in 0..20 {
        for a in 0..5 {
            for b in (0..5).filter(|&b| b != a) {
                cluster.hosts[a].send(PeerId(b as u32), number, 3000 * number as usize, 1 << 20);
            }
        }
        cluster.round();
    }
    cluster.until(|hosts| hosts.iter().all(|host| host.sink.taken.len() == 80));
    for host in &cluster.hosts {
        assert_eq!((host.sink.up.len(), host.sink.down.len()), (4, 0), "one subchannel per peer, none lost");
        assert_eq!(host.rail.counters().unauthenticated, 0);
        for peer in (0..5).map(PeerId).filter(|&peer| peer != host.me) {
            assert_eq!(host.numbers_from(peer), (0..20).collect::<Vec<_>>());
        }
    }
}

/// L-6
#[test]
fn every_rail_uses_its_own_address() {
    for last in 1..=3 {
        let local = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        let mut cluster = Cluster::new([TcpOptions::new(local, last), TcpOptions::new(local, last)]);
        cluster.join(0, 1);
        cluster.ping(0, 1, 1);
        for host in &cluster.hosts {
            let (_, connection) = host.rail.connections.iter().next().unwrap();
            let here = SocketAddr::try_from(rustix::net::getsockname(&connection.fd).unwrap()).unwrap();
            let there = rustix::net::getpeername(&connection.fd).unwrap().unwrap();
            assert_eq!((here.ip(), SocketAddr::try_from(there).unwrap().ip()), (local, local));
            // Dialled or accepted: no delay, and a vanished host is noticed even without polls, but a closed
            // window is not taken for one.
            assert_eq!(sockopt::tcp_nodelay(&connection.fd), Ok(true));
            assert_eq!(sockopt::tcp_user_timeout(&connection.fd), Ok(0));
            let [idle, pause] = [sockopt::tcp_keepidle, sockopt::tcp_keepintvl].map(|of| of(&connection.fd).unwrap());
            let probes = sockopt::tcp_keepcnt(&connection.fd).unwrap();
            assert_eq!((idle + pause * probes).as_millis(), host.rail.options.user_timeout_ms.into());
            assert_eq!(sockopt::socket_keepalive(&connection.fd), Ok(true));
        }
    }
}

/// The kernel's unsent bytes.
fn unsent(host: &Host) -> u64 {
    let (_, connection) = host.rail.connections.iter().next().unwrap();
    sys::unsent(connection.fd.as_fd()).unwrap()
}

/// Posts to a peer that does not read are not over before the wire has room, however large the send buffer
/// is; and once it reads everything arrives.
#[test]
fn the_kernel_takes_no_more_than_the_wire_will() {
    let [bytes, posts] = [64 * 1024usize, 24];
    let held = |unsent_bytes| {
        let options = TcpOptions {
            unsent_bytes,
            posts_max: posts as u16 + 1,
            send_buffer_bytes: Some(1 << 20),
            receive_buffer_bytes: Some(16 * 1024),
            ..options()
        };
        let mut cluster = Cluster::new([options.clone(), options]);
        cluster.join(0, 1);
        for number in 0..posts as u64 {
            cluster.hosts[0].send(PeerId(1), number, bytes, usize::MAX);
        }
        // The kernel goes on sending until the peer's buffers are full; a socket with less than half of the
        // limit unsent takes more, and is given more by the next poll.
        let host = &mut cluster.hosts[0];
        let full = (0..ROUNDS_MAX).find(|_| {
            host.rail.poll(cluster.now, &mut host.sink);
            unsent(host) >= u64::from(unsent_bytes / 2)
        });
        assert!(full.is_some(), "it was never filled: {} bytes", unsent(host));
        let held = unsent(host);
        let over = host.sink.completed.len();
        cluster.until(|hosts| hosts[1].sink.taken.len() == posts && hosts[0].sink.completed.len() == posts);
        (held, over)
    };
    let limit = 32 * 1024;
    // A segment that was begun below the limit is taken whole.
    let (few, some) = held(limit);
    let (many, more) = held(0);
    assert!(few < u64::from(limit) + 64 * 1024 + 4096, "{few}");
    assert!(many > 4 * few && more > some, "{few} {many}, {some} {more}");
}

#[test]
fn over_ipv6_too() {
    let local = "::1".parse().unwrap();
    // A machine may have no IPv6: then there is nothing to test, and opening must fail with that error.
    match TcpRail::open(TcpOptions::new(local, 0), credentials(0), JOB, PeerId(0)) {
        Ok(_) => {
            let mut cluster = Cluster::new([TcpOptions::new(local, 0), TcpOptions::new(local, 0)]);
            cluster.join(0, 1);
            cluster.ping(0, 1, 1);
            assert!(cluster.hosts[0].rail.address().starts_with("[::1]:"));
        }
        Err(error) => assert!(matches!(error.errno, Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL), "{error}"),
    }
}

/// L-4
#[test]
fn a_reader_that_does_not_poll_stops_the_writer() {
    let mut cluster = Cluster::new([small(), small()]);
    cluster.join(0, 1);
    for number in 0..32 {
        cluster.hosts[0].send(PeerId(1), number, 65_536, 65_536);
    }
    let Host { rail, sink, .. } = &mut cluster.hosts[0];
    let before = rail.counters().system_calls;
    for _ in 0..1000 {
        cluster.now = cluster.now + Nanos(1_000);
        rail.poll(cluster.now, sink);
    }
    assert!(sink.completed.len() < 32, "the system can't hold it all");
    assert!(rail.counters().system_calls - before < 1000, "a full socket is left alone until it has room");
    cluster.until(|hosts| hosts[1].sink.taken.len() == 32 && hosts[0].sink.completed.len() == 32);
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), (0..32).collect::<Vec<_>>());
}

#[test]
fn backlog_is_sent_in_few_system_calls() {
    let mut cluster = Cluster::new([small(), small()]);
    cluster.join(0, 1);
    // The first packet fills the socket; the others pile up behind it.
    cluster.hosts[0].send(PeerId(1), 0, 4 << 20, 4 << 20);
    let before = cluster.hosts[0].rail.counters();
    for number in 1..=300 {
        cluster.hosts[0].send(PeerId(1), number, 64, 64);
    }
    assert_eq!(
        cluster.hosts[0].rail.counters().system_calls,
        before.system_calls,
        "what stands in a queue costs no call"
    );
    cluster.until(|hosts| !hosts[1].sink.taken.is_empty());
    let before = cluster.hosts[0].rail.counters();
    cluster.until(|hosts| hosts[0].sink.completed.len() == 301 && hosts[1].sink.taken.len() == 301);
    let calls = cluster.hosts[0].rail.counters().system_calls - before.system_calls;
    assert!(calls < 100, "{calls} calls for 300 packets");
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), (0..=300).collect::<Vec<_>>());
}

#[test]
fn post_is_sent_without_a_poll() {
    let mut cluster = Cluster::pair();
    cluster.hosts[0].send(PeerId(1), 5, 10, 10);
    assert_eq!(cluster.hosts[0].rail.counters().packets_sent, 1);
    assert!(cluster.hosts[0].sink.completed.is_empty(), "reported at the next poll");
    assert!(!cluster.hosts[0].rail.arm(), "there is something to report: the process must not sleep");
    let Host { rail, sink, .. } = &mut cluster.hosts[0];
    assert!(rail.poll(Time(1), sink) > 0);
    assert_eq!(sink.completed.len(), 1);
}

#[test]
fn the_descriptor_wakes_a_sleeper() {
    let mut cluster = Cluster::pair();
    cluster.ping(0, 1, 1);
    while cluster.poll() > 0 {}
    // Edges that are old news must not end the sleep; a packet must.
    assert!(cluster.hosts[1].rail.arm());
    let readable = |host: &Host, wait: Option<&Timespec>| {
        let mut fds = [PollFd::from_borrowed_fd(host.rail.wait_fd().unwrap(), PollFlags::IN)];
        rustix::event::poll(&mut fds, wait).unwrap()
    };
    assert_eq!(readable(&cluster.hosts[1], Some(&Timespec::default())), 0);
    cluster.hosts[0].send(PeerId(1), 2, 10, 10);
    assert_eq!(readable(&cluster.hosts[1], None), 1);
    assert!(!cluster.hosts[1].rail.arm());
    cluster.until(|hosts| hosts[1].sink.taken.len() == 2);
}

#[test]
fn idle_rail_reads_its_socket_rarely_and_misses_no_data() {
    let mut cluster = Cluster::pair();
    cluster.ping(0, 1, 1);
    while cluster.poll() > 0 {}
    // It cools down: no more reads without an event.
    for _ in 0..1000 {
        cluster.now = cluster.now + Nanos(1_000);
        cluster.poll();
    }
    let before = cluster.hosts[1].rail.counters().system_calls;
    for _ in 0..10_000 {
        cluster.now = cluster.now + Nanos(100);
        cluster.poll();
    }
    let calls = cluster.hosts[1].rail.counters().system_calls - before;
    let most = 10_000 * 100 / EPOLL_PAUSE_MAX.0 + 1;
    assert!((1..=most).contains(&calls), "{calls} calls of {most} in a millisecond without anything");

    // The first poll after the pause finds the waiting data.
    cluster.hosts[0].send(PeerId(1), 2, 10, 10);
    let mut fds = [PollFd::from_borrowed_fd(cluster.hosts[1].rail.wait_fd().unwrap(), PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut fds, None).unwrap(), 1);
    cluster.now = cluster.now + EPOLL_PAUSE_MAX;
    cluster.poll();
    assert_eq!(cluster.hosts[1].sink.taken.len(), 2);
}
