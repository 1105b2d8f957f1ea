//! Subchannels come and go: dials, crossings, refusals, ends.

use super::*;
use rerail_core::wire::handshake::RefusedBecause;

#[test]
fn dial_without_a_listener_reports_rail_gone() {
    let mut cluster = Cluster::new([options()]);
    let (listener, address) = raw_listener();
    drop(listener);
    meet(&mut cluster.hosts[0].rail, 7, &address);
    cluster.hosts[0].rail.connect(Time(1), PeerId(7));
    cluster.until(|hosts| !hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(7), RailFault::Gone)]);
    assert_eq!(cluster.hosts[0].rail.pending.iter().count(), 0);
    // It may be tried again.
    cluster.hosts[0].rail.connect(Time(2), PeerId(7));
    cluster.until(|hosts| hosts[0].sink.down.len() == 2);
}

#[test]
fn an_unknown_peer_is_not_dialled() {
    let mut cluster = Cluster::new([options()]);
    cluster.hosts[0].rail.connect(Time(1), PeerId(7));
    cluster.poll();
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(7), RailFault::Refused)]);
}

#[test]
fn an_acceptor_that_computes_is_waited_for() {
    let mut cluster = Cluster::new([options()]);
    let (listener, address) = raw_listener();
    meet(&mut cluster.hosts[0].rail, 7, &address);
    cluster.hosts[0].rail.connect(cluster.now, PeerId(7));
    let mut raw = Raw::accept(&listener, &mut cluster);
    raw.read(&mut cluster, OPENING_BYTES);
    for _ in 0..1000 {
        assert_eq!(cluster.hosts[0].rail.next_timeout(), Some(cluster.now + options().handshake_timeout));
        cluster.now = cluster.now + options().handshake_timeout;
        cluster.poll();
    }
    assert_eq!(cluster.hosts[0].sink.down, []);
    assert_eq!(cluster.hosts[0].sink.queued, [PeerId(7); 1000]);
    // Its process ends.
    drop(raw);
    cluster.until(|hosts| !hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(7), RailFault::Refused)]);
}

#[test]
fn an_acceptor_without_the_key() {
    let mut cluster = Cluster::new([options()]);
    let (listener, address) = raw_listener();
    meet(&mut cluster.hosts[0].rail, 7, &address);
    cluster.hosts[0].rail.connect(cluster.now, PeerId(7));
    let mut raw = Raw::accept(&listener, &mut cluster);
    raw.read(&mut cluster, OPENING_BYTES);
    raw.write(&[0x11; ANSWER_BYTES]);
    cluster.until(|hosts| !hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(7), RailFault::Unauthenticated)]);
    assert_eq!(cluster.hosts[0].rail.counters().unauthenticated, 1);
}

/// H-8
#[test]
fn of_crossing_dials_the_lower_ranks_wins() {
    // Host 0 is dialling peer 7 when peer 7's dial comes in: 0 < 7, so the peer is ordered to use ours.
    let mut cluster = Cluster::new([options()]);
    let (listener, address) = raw_listener();
    meet(&mut cluster.hosts[0].rail, 7, &address);
    cluster.hosts[0].rail.connect(cluster.now, PeerId(7));
    let mut ours = Raw::accept(&listener, &mut cluster);
    let mut theirs = Raw::to(&cluster.hosts[0]);
    let (_, outcome) = theirs.call(&mut cluster, 7, 0);
    assert!(matches!(outcome, Ok(Step::Crossing)), "{outcome:?}");
    ours.answer(&mut cluster, 7, Verdict::Accepted);
    cluster.until(|hosts| hosts[0].sink.standing == [PeerId(7)]);
    assert!(cluster.hosts[0].sink.down.is_empty());
}

/// H-8
#[test]
fn of_crossing_dials_the_higher_ranks_yields() {
    // Host 1 is dialling peer 0 when peer 0's dial comes in: that one is kept, and ours closed.
    let mut cluster = Cluster::new([options(), options()]);
    let (listener, address) = raw_listener();
    meet(&mut cluster.hosts[1].rail, 0, &address);
    cluster.hosts[1].rail.connect(cluster.now, PeerId(0));
    let mut ours = Raw::accept(&listener, &mut cluster);
    ours.read(&mut cluster, OPENING_BYTES);
    let mut theirs = Raw::to(&cluster.hosts[1]);
    let (_, outcome) = theirs.call(&mut cluster, 0, 1);
    assert!(matches!(outcome, Ok(Step::Authenticated { .. })), "{outcome:?}");
    assert!(ours.is_closed(&mut cluster));
    assert_eq!((cluster.hosts[1].sink.up.as_slice(), cluster.hosts[1].sink.down.len()), (&[PeerId(0)][..], 0));
}

/// H-8
#[test]
fn process_that_yields_a_crossing_dial_awaits_the_other() {
    for comes in [true, false] {
        let mut cluster = Cluster::new([options(), options()]);
        let (listener, address) = raw_listener();
        meet(&mut cluster.hosts[1].rail, 0, &address);
        cluster.hosts[1].rail.connect(cluster.now, PeerId(0));
        let mut ours = Raw::accept(&listener, &mut cluster);
        ours.answer(&mut cluster, 0, Verdict::Crossing);
        assert!(ours.is_closed(&mut cluster));
        assert_eq!((cluster.hosts[1].sink.up.len(), cluster.hosts[1].sink.down.len()), (0, 0));
        if comes {
            let mut theirs = Raw::to(&cluster.hosts[1]);
            let (_, outcome) = theirs.call(&mut cluster, 0, 1);
            assert!(matches!(outcome, Ok(Step::Authenticated { .. })), "{outcome:?}");
            assert_eq!(cluster.hosts[1].sink.up, [PeerId(0)]);
        } else {
            cluster.now = cluster.now + options().handshake_timeout;
            cluster.poll();
            assert_eq!(cluster.hosts[1].sink.down, [(PeerId(0), RailFault::TimedOut)]);
        }
    }
}

/// H-10
#[test]
fn a_dial_that_is_not_newer_is_refused() {
    let mut cluster = Cluster::new([options()]);
    let mut first = Raw::authenticated(&mut cluster, 9, 0);
    let (_, outcome) = Raw::to(&cluster.hosts[0]).call(&mut cluster, 9, 0);
    assert_eq!(outcome.unwrap_err(), AuthError::Refused(RefusedBecause::Old));
    first.write(&header(PeerId(9), 3, 0));
    cluster.until(|hosts| hosts[0].sink.taken.len() == 1);
    assert!(cluster.hosts[0].sink.down.is_empty());
}

/// H-10, L-5: data that had arrived on the connection given up by the peer is delivered first.
#[test]
fn newer_dial_ends_the_connection_after_delivering_its_data() {
    let mut cluster = Cluster::new([options()]);
    let mut first = Raw::authenticated(&mut cluster, 9, 0);
    for number in 0..40 {
        first.write(&header(PeerId(9), number, 3000));
        first.write(&payload(number, 3000));
    }
    first.write(&header(PeerId(9), 40, 3000));
    let newer = Attempts { attempt: 2, answers: 0 };
    let mut second = Raw::to(&cluster.hosts[0]);
    let (_, outcome) = second.call_as(&mut cluster, (9, 0), newer);
    assert!(matches!(outcome, Ok(Step::Authenticated { .. })), "{outcome:?}");
    cluster.until(|hosts| hosts[0].sink.up.len() == 2);
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(9), RailFault::Closed)]);
    assert_eq!(cluster.hosts[0].numbers_from(PeerId(9)), (0..40).collect::<Vec<_>>());
    assert!(first.is_closed(&mut cluster));
    second.write(&header(PeerId(9), 50, 0));
    cluster.until(|hosts| hosts[0].sink.taken.len() == 41);
    assert_eq!(cluster.hosts[0].rail.connections.iter().count(), 1);
}

/// H-10: a dialler without notice yet that its own dial was given up for it.
#[test]
fn a_dial_that_was_given_up_for_ours_is_refused() {
    let mut cluster = Cluster::new([options()]);
    let (listener, address) = raw_listener();
    meet(&mut cluster.hosts[0].rail, 7, &address);
    cluster.hosts[0].rail.connect(cluster.now, PeerId(7));
    let mut first = Raw::accept(&listener, &mut cluster);
    first.answer(&mut cluster, 7, Verdict::Accepted);
    cluster.until(|hosts| hosts[0].sink.standing == [PeerId(7)]);
    let (_, outcome) = Raw::to(&cluster.hosts[0]).call(&mut cluster, 7, 0);
    assert_eq!(outcome.unwrap_err(), AuthError::Refused(RefusedBecause::Old));
    // The same, but begun after it had accepted ours: it has lost it.
    let newer = Attempts { attempt: 2, answers: 1 };
    let (_, outcome) = Raw::to(&cluster.hosts[0]).call_as(&mut cluster, (7, 0), newer);
    assert!(matches!(outcome, Ok(Step::Authenticated { .. })), "{outcome:?}");
}

/// H-9
#[test]
fn a_rank_that_was_not_announced_is_refused() {
    let mut cluster = Cluster::new([options()]);
    let (_, outcome) = Raw::to(&cluster.hosts[0]).call(&mut cluster, 77, 0);
    assert_eq!(outcome.unwrap_err(), AuthError::Refused(RefusedBecause::Rank));
    assert!(cluster.hosts[0].sink.up.is_empty());
}

#[test]
fn a_refusal_reaches_the_core() {
    let mut cluster = Cluster::new([options()]);
    let (listener, address) = raw_listener();
    meet(&mut cluster.hosts[0].rail, 7, &address);
    cluster.hosts[0].rail.connect(cluster.now, PeerId(7));
    Raw::accept(&listener, &mut cluster).answer(&mut cluster, 7, Verdict::Refused(RefusedBecause::Full));
    cluster.until(|hosts| !hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(7), RailFault::Refused)]);
    assert_eq!(cluster.hosts[0].rail.counters().unauthenticated, 0);
}

/// L-5
#[test]
fn a_peer_that_ends_within_a_packet() {
    let mut cluster = Cluster::new([options(), options()]);
    cluster.join(0, 1);
    let mut raw = Raw::authenticated(&mut cluster, 9, 0);
    raw.write(&header(PeerId(9), 1, 50_000));
    raw.write(&payload(1, 50_000));
    raw.write(&header(PeerId(9), 2, 50_000));
    raw.write(&payload(2, 20_000));
    drop(raw);
    cluster.until(|hosts| !hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(9), RailFault::Closed)]);
    assert_eq!(cluster.hosts[0].numbers_from(PeerId(9)), [1]);
    assert_eq!(cluster.hosts[0].sink.seen.len(), 2);
    cluster.ping(0, 1, 44);
}

/// L-5
#[test]
fn data_received_before_a_reset_is_delivered() {
    let mut cluster = Cluster::new([options()]);
    let mut raw = Raw::authenticated(&mut cluster, 9, 0);
    raw.write(&header(PeerId(9), 1, 30_000));
    raw.write(&payload(1, 30_000));
    // Bytes that the peer leaves unread make its close a reset; our next post then finds the connection
    // broken.
    cluster.hosts[0].send(PeerId(9), 5, 10, 10);
    cluster.until(|_| raw.stream.peek(&mut [0]).is_ok());
    drop(raw);
    for _ in 0..3 {
        cluster.hosts[0].send(PeerId(9), 6, 10, 10);
    }
    cluster.until(|hosts| !hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(9), RailFault::Closed)]);
    assert_eq!(cluster.hosts[0].numbers_from(PeerId(9)), [1]);
    // It is gone completely, and posts without a link do no harm.
    assert_eq!(cluster.hosts[0].rail.connections.iter().count(), 0);
    cluster.hosts[0].send(PeerId(9), 7, 10, 10);
    cluster.poll();
}

/// L-7
#[test]
fn disconnect_lets_the_last_packets_through() {
    let mut cluster = Cluster::pair();
    // Bytes in flight to the side that closes: they must not turn its close into a reset.
    cluster.hosts[1].send(PeerId(0), 50, 1000, 1000);
    for number in 0..8 {
        cluster.hosts[0].send(PeerId(1), number, 1000, 1000);
    }
    cluster.hosts[0].rail.disconnect(PeerId(1));
    cluster.hosts[1].send(PeerId(0), 51, 1000, 1000);
    cluster.until(|hosts| !hosts[1].sink.down.is_empty());
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), (0..8).collect::<Vec<_>>());
    assert_eq!(cluster.hosts[1].sink.down, [(PeerId(0), RailFault::Closed)]);
    let quiet = &cluster.hosts[0].sink;
    assert_eq!((quiet.completed.len(), quiet.down.len(), quiet.taken.len()), (0, 0, 0), "nothing more is reported");
    cluster.until(|hosts| hosts[0].rail.pending.iter().count() == 0);
    // And they may meet again.
    cluster.hosts[0].sink.standing.clear();
    cluster.join(0, 1);
    cluster.ping(0, 1, 99);
}

/// L-7
#[test]
fn disconnect_of_many_peers_lets_all_read_to_the_end() {
    let mut cluster = Cluster::new((0..5).map(|_| TcpOptions { pending_max: 1, ..options() }));
    for peer in 1..5 {
        cluster.join(0, peer);
    }
    for peer in 1..5 {
        cluster.hosts[0].rail.disconnect(PeerId(peer as u32));
    }
    assert!(cluster.hosts[0].rail.is_closing());
    assert_eq!(cluster.hosts[0].rail.pending.iter().count(), 4);
    cluster.until(|hosts| hosts[1..].iter().all(|host| !host.sink.down.is_empty()) && !hosts[0].rail.is_closing());
}

#[test]
fn disconnect_does_not_wait_for_a_peer_that_does_not_read() {
    let mut cluster = Cluster::new([small(), small()]);
    cluster.join(0, 1);
    cluster.hosts[0].send(PeerId(1), 0, 4 << 20, 4 << 20);
    cluster.hosts[0].rail.disconnect(PeerId(1));
    assert_eq!(cluster.hosts[0].rail.connections.iter().count() + cluster.hosts[0].rail.pending.iter().count(), 0);
    cluster.until(|hosts| !hosts[1].sink.down.is_empty());
    assert!(cluster.hosts[1].sink.taken.is_empty());
}

/// L-7
#[test]
fn peer_that_never_closes_is_dropped_after_the_drain_time() {
    let mut cluster = Cluster::new([options()]);
    let mut raw = Raw::authenticated(&mut cluster, 9, 0);
    cluster.hosts[0].rail.disconnect(PeerId(9));
    assert!(raw.is_closed(&mut cluster), "our side closes its direction");
    raw.write(&[0; 100_000]);
    cluster.poll();
    assert_eq!(cluster.hosts[0].rail.pending.iter().count(), 1);
    cluster.now = cluster.now + DRAIN_TIME;
    cluster.poll();
    assert_eq!(cluster.hosts[0].rail.pending.iter().count(), 0);
}

#[test]
fn disconnect_ends_a_dial() {
    let mut cluster = Cluster::new([options()]);
    let (listener, address) = raw_listener();
    meet(&mut cluster.hosts[0].rail, 7, &address);
    cluster.hosts[0].rail.connect(cluster.now, PeerId(7));
    cluster.hosts[0].rail.disconnect(PeerId(7));
    let mut raw = Raw::accept(&listener, &mut cluster);
    assert!(raw.is_closed(&mut cluster));
    assert_eq!((cluster.hosts[0].sink.up.len(), cluster.hosts[0].sink.down.len()), (0, 0));
}

#[test]
fn addresses() {
    let mut rail = Host::new(3, options()).rail;
    assert!(rail.address().starts_with("127.0.0.1:"));
    assert_eq!(rail.add_peer(PeerId(1), "127.0.0.9:4000"), Ok(true));
    assert_eq!(rail.add_peer(PeerId(3), "127.0.0.9:4000"), Ok(false), "oneself");
    assert_eq!(rail.add_peer(PeerId(1), "[::1]:4000"), Ok(false), "the other family");
    assert_eq!(rail.add_peer(PeerId(1), "10.0.0.1:4000"), Ok(false), "no way out of loopback");
    for wrong in ["", "host:4000", "127.0.0.1", "127.0.0.1:0", "0.0.0.0:4000", "224.0.0.1:4000", "127.0.0.1:70000"] {
        assert_eq!(rail.add_peer(PeerId(1), wrong).unwrap_err().address, wrong);
    }
}

#[test]
fn an_address_that_names_no_host_is_not_listened_on() {
    let error =
        TcpRail::open(TcpOptions::new(Ipv4Addr::UNSPECIFIED.into(), 0), credentials(0), JOB, PeerId(0)).unwrap_err();
    assert_eq!((error.what, error.errno), ("address", Errno::ADDRNOTAVAIL));
    // TEST-NET-1: no machine has it.
    let error =
        TcpRail::open(TcpOptions::new("192.0.2.1".parse().unwrap(), 0), credentials(0), JOB, PeerId(0)).unwrap_err();
    assert_eq!((error.what, error.errno), ("bind", Errno::ADDRNOTAVAIL));
}
