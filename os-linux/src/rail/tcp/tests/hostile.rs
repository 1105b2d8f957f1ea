//! Outsiders and broken peers: their data affects no other connection.

use rerail_core::wire::handshake::{PROOF_BYTES, RefusedBecause, VERDICT_BYTES};

use super::*;
use crate::auth::{Acceptor, Credentials, Secret, Station};

/// A dial newer than the one that made the connection.
const NEWER: Attempts = Attempts { attempt: 9, answers: 9 };

/// Two honest hosts that communicate, and a third place for the outsider.
fn honest_pair() -> Cluster {
    let mut cluster = Cluster::pair();
    cluster.ping(0, 1, 1);
    cluster
}

/// H-1
#[test]
fn unauthenticated_tcp_data_is_refused() {
    let mut cluster = honest_pair();
    let mut raw = Raw::to(&cluster.hosts[0]);
    raw.write(b"GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: everything that you have, and much more\r\n\r\n");
    assert!(raw.is_closed(&mut cluster));
    assert_eq!(cluster.hosts[0].rail.counters().unauthenticated, 1);
    cluster.ping(0, 1, 2);
}

/// H-1
#[test]
fn nothing_behind_an_unfinished_handshake_is_read() {
    let mut cluster = honest_pair();
    let mut raw = Raw::to(&cluster.hosts[0]);
    let call = Call { transport: Transport::Tcp, job: JOB, from: PeerId(9), to: PeerId(0), rail: 0, attempts: FIRST };
    let (_, hello) = Dialler::new(&credentials(9), call, credentials(0).public().fingerprint(), [2; 32]);
    let before = cluster.hosts[0].rail.counters();
    raw.write(&[hello.bytes(), &[0; PROOF_BYTES], &header(PeerId(9), 1, 10), &payload(1, 10)].concat());
    raw.read(&mut cluster, ANSWER_BYTES + VERDICT_BYTES);
    assert!(raw.is_closed(&mut cluster));
    let after = cluster.hosts[0].rail.counters();
    assert_eq!((after.unauthenticated, after.packets_received), (1, before.packets_received));
    assert_eq!(after.bytes_received, before.bytes_received);
    cluster.ping(0, 1, 2);
}

/// H-4, H-6
#[test]
fn the_wrong_key() {
    let mut cluster = honest_pair();
    let (me, address) = (PeerId(2), cluster.hosts[0].rail.address());
    let other_job = Credentials::new([2; 32], Secret::new([0x43; 32]));
    let mut unknown_process = TcpRail::open(options(), other_job, JOB, me).unwrap();
    meet(&mut unknown_process, 0, &address);
    unknown_process.connect(cluster.now, PeerId(0));
    let mut sink = Recorder::new();
    cluster.until(|_| {
        unknown_process.poll(Time(1), &mut sink);
        !sink.down.is_empty()
    });
    assert_eq!(sink.down, [(PeerId(0), RailFault::Unauthenticated)]);
    assert!(sink.up.is_empty() && cluster.hosts[0].sink.up == [PeerId(1)]);
    cluster.ping(0, 1, 2);
}

/// H-5: a member of the job, with all its secrets but another's private key.
#[test]
fn a_member_that_calls_in_the_name_of_another() {
    let mut cluster = honest_pair();
    let call = Call { transport: Transport::Tcp, job: JOB, from: PeerId(1), to: PeerId(0), rail: 0, attempts: NEWER };
    let (mut impostor, opening) = Dialler::new(&credentials(2), call, credentials(0).public().fingerprint(), [2; 32]);
    let mut raw = Raw::to(&cluster.hosts[0]);
    raw.write(opening.bytes());
    let answer = raw.read(&mut cluster, ANSWER_BYTES);
    let Ok(Step::Send(proof)) = impostor.handle(&answer) else { panic!("the acceptor is rank 0 indeed") };
    raw.write(proof.bytes());
    let ruling = raw.read(&mut cluster, RULING_BYTES);
    assert_eq!(impostor.handle(&ruling).unwrap_err(), AuthError::Refused(RefusedBecause::Proof));
    assert!(raw.is_closed(&mut cluster));
    assert_eq!(cluster.hosts[0].rail.counters().unauthenticated, 1);
    // The connection of the true rank 1 has not ended.
    assert!(cluster.hosts[0].sink.down.is_empty() && cluster.hosts[1].sink.down.is_empty());
    cluster.ping(0, 1, 2);
}

/// H-4: the process at a peer's address is another member of the job.
#[test]
fn a_member_that_answers_in_the_name_of_another() {
    let mut cluster = honest_pair();
    let (listener, address) = raw_listener();
    meet(&mut cluster.hosts[0].rail, 7, &address);
    cluster.hosts[0].rail.connect(cluster.now, PeerId(7));
    let mut raw = Raw::accept(&listener, &mut cluster);
    let station = Station { transport: Transport::Tcp, job: JOB, me: PeerId(7), rail: 0 };
    let mut impostor = Acceptor::new(credentials(2), station, [3; 32]);
    let opening = raw.read(&mut cluster, OPENING_BYTES);
    let Ok(Step::Send(answer)) = impostor.handle(&opening) else { panic!("the job's secret is known to it") };
    raw.write(answer.bytes());
    cluster.until(|hosts| !hosts[0].sink.down.is_empty());
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(7), RailFault::Unauthenticated)]);
    assert!(raw.is_closed(&mut cluster), "no proof was sent to it");
    cluster.ping(0, 1, 2);
}

/// H-7
#[test]
fn a_recorded_handshake_replayed() {
    let mut cluster = honest_pair();
    meet(&mut cluster.hosts[0].rail, 9, "127.0.0.1:9");
    let mut honest = Raw::to(&cluster.hosts[0]);
    let (recording, outcome) = honest.call(&mut cluster, 9, 0);
    assert!(matches!(outcome, Ok(Step::Authenticated { .. })));
    drop(honest);
    cluster.until(|hosts| hosts[0].sink.down == [(PeerId(9), RailFault::Closed)]);
    let mut replay = Raw::to(&cluster.hosts[0]);
    replay.write(&recording);
    let reply = replay.read(&mut cluster, ANSWER_BYTES + VERDICT_BYTES);
    assert_eq!(Dialler::rejected(&reply[ANSWER_BYTES..]), Some(AuthError::Rejected(RefusedBecause::Proof)));
    assert!(replay.is_closed(&mut cluster));
    assert_eq!(cluster.hosts[0].rail.counters().unauthenticated, 1);
    assert_eq!(cluster.hosts[0].sink.up, [PeerId(1), PeerId(9)], "up once, by the honest one");
    cluster.ping(0, 1, 2);
}

/// H-7
#[test]
fn silence_ends_at_the_deadline() {
    // Without another deadline.
    let endless = || TcpOptions { user_timeout_ms: 0, ..options() };
    let mut cluster = Cluster::new([endless(), endless()]);
    cluster.join(0, 1);
    cluster.ping(0, 1, 1);
    let mut silent = Raw::to(&cluster.hosts[0]);
    let mut slow = Raw::to(&cluster.hosts[0]);
    slow.write(b"RER");
    cluster.until(|hosts| hosts[0].rail.accepted == 2);
    cluster.ping(0, 1, 2);
    assert_eq!(cluster.hosts[0].rail.next_timeout(), Some(cluster.now + options().handshake_timeout));
    cluster.now = cluster.now + options().handshake_timeout;
    cluster.poll();
    assert!(silent.is_closed(&mut cluster) && slow.is_closed(&mut cluster));
    assert_eq!((cluster.hosts[0].rail.counters().unauthenticated, cluster.hosts[0].rail.accepted), (2, 0));
    assert_eq!(cluster.hosts[0].rail.next_timeout(), None);
    cluster.ping(0, 1, 3);
}

/// W-26, L-6
#[test]
fn garbage_after_authentication() {
    let mut cluster = honest_pair();
    let mut good = header(PeerId(9), 7, 0);
    let mut garbage = good.clone();
    garbage[0] ^= 0xFF;
    for (at, bytes) in [(9, garbage), (10, vec![0xFF; 4096]), (11, vec![0; 31 + 1])] {
        let mut raw = Raw::authenticated(&mut cluster, at, 0);
        good[4..8].copy_from_slice(&at.to_le_bytes());
        raw.write(&good);
        raw.write(&bytes);
        assert!(raw.is_closed(&mut cluster));
        cluster.until(|hosts| hosts[0].sink.down.last() == Some(&(PeerId(at), RailFault::Corrupt)));
        assert!(cluster.hosts[0].sink.seen.contains(&(PeerId(at), 7)), "what was good is delivered");
    }
    assert_eq!(cluster.hosts[0].rail.counters().corrupt, 3);
    cluster.ping(0, 1, 2);
}

/// G-8, H-9
#[test]
fn a_packet_that_the_core_rejects() {
    let mut cluster = honest_pair();
    cluster.hosts[0].sink.plan = |number| if number == 666 { Plan::Close } else { TAKE_ALL };
    let mut raw = Raw::authenticated(&mut cluster, 9, 0);
    raw.write(&[header(PeerId(9), 666, 10), payload(666, 10), header(PeerId(9), 2, 0)].concat());
    assert!(raw.is_closed(&mut cluster));
    assert_eq!(cluster.hosts[0].sink.down, [(PeerId(9), RailFault::Corrupt)]);
    assert_eq!(cluster.hosts[0].rail.counters().corrupt, 1);
    assert!(!cluster.hosts[0].sink.seen.contains(&(PeerId(9), 2)), "nothing behind it is looked at");
    cluster.ping(0, 1, 2);
}

/// H-7: more dials than places at once all succeed, and none is closed for another one.
#[test]
fn many_peers_at_once() {
    let few = TcpOptions { pending_max: 2, ..options() };
    let mut cluster = Cluster::new([few, options(), options(), options(), options(), options(), options()]);
    let peer = cluster.hosts[0].me;
    for caller in 1..7 {
        cluster.hosts[caller].rail.connect(cluster.now, peer);
    }
    cluster.until(|hosts| hosts[0].sink.standing.len() == 6);
    assert_eq!((cluster.hosts[0].rail.counters().unauthenticated, cluster.hosts[0].sink.down.len()), (0, 0));
    assert!(cluster.hosts[1..].iter().all(|host| host.sink.down.is_empty()));
}

/// H-7
#[test]
fn a_flood_of_outsiders() {
    let few = TcpOptions { pending_max: 4, ..options() };
    let mut cluster = Cluster::new([few, options(), options()]);
    cluster.join(0, 1);
    let mut flood = Vec::new();
    for n in 0..100 {
        flood.push(Raw::to(&cluster.hosts[0]));
        if n % 10 == 9 {
            cluster.ping(0, 1, n);
            assert!(cluster.hosts[0].rail.accepted <= 4);
        }
    }
    // And an honest peer still gets in, when those in front of it have had their time.
    let (it, peer) = (cluster.hosts[2].me, cluster.hosts[0].me);
    cluster.hosts[2].rail.connect(cluster.now, peer);
    for _ in 0..ROUNDS_MAX {
        if cluster.hosts[2].sink.standing.contains(&peer) && cluster.hosts[0].sink.standing.contains(&it) {
            break;
        }
        cluster.now = cluster.now + Nanos::from_millis(10);
        cluster.round();
        assert!(cluster.hosts[0].rail.accepted <= 4);
    }
    cluster.ping(2, 0, 500);
    assert!(cluster.hosts[0].rail.counters().unauthenticated >= 96);
    assert_eq!(cluster.hosts[0].sink.down, []);
}

/// L-4
#[test]
fn a_peer_that_floods_does_not_starve_the_others() {
    let mut cluster = honest_pair();
    let mut raw = Raw::authenticated(&mut cluster, 9, 0);
    // More than one poll may take.
    let packet = [header(PeerId(9), 3, 1 << 20), payload(3, 1 << 20)].concat();
    let mut at = 0;
    cluster.hosts[0].sink.plan = |number| if number == 3 { Plan::Discard } else { TAKE_ALL };
    for number in 100..120 {
        while let Ok(n) = raw.stream.write(&packet[at..]) {
            at = (at + n) % packet.len();
        }
        cluster.ping(0, 1, number);
    }
    assert!(cluster.hosts[0].sink.down.is_empty());
}
