//! Hostile neighbours of a running job: they are refused and counted, and the others' traffic continues.
#![allow(unsafe_code)]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use rerail_core::endpoint::{Event, LossReason, RailFault, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::rail::RailKind;
use rerail_core::wire::handshake::{
    ANSWER_BYTES, OPENING_BYTES, RULING_BYTES, RefusedBecause, Transport as Sort, VERDICT_BYTES,
};

use super::cluster::{Cluster, Fabric, JOB, rails, small};
use super::process::{Process, two_and_a_process};
use crate::auth::testing::credentials;
use crate::auth::{Attempts, AuthError, Call, Credentials, Dialler, Secret, Step};
use crate::driver::Opening;
use crate::rail::Rail;
use crate::rail::loopback::Loopback;
use crate::random::random;

/// A member of the job that writes random bytes into its rings for ever: does nothing unless the test below
/// started it.
#[test]
fn scribbler() {
    let Some(mut transport) = Process::transport() else { return };
    for peer in 0..2 {
        transport.inject(&SendRequest::new(PeerId(peer), &[]), b"honest so far").unwrap();
    }
    let mut up = 0;
    while up < 2 {
        transport.progress();
        while let Some(event) = transport.poll_event() {
            up += u32::from(matches!(event, Event::PeerUp { .. }));
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let rings: Vec<(usize, usize)> = maps
        .lines()
        .filter(|line| line.contains("/memfd:rerail-ring"))
        .map(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let end = rest.split(' ').next().unwrap();
            let at = |text| usize::from_str_radix(text, 16).unwrap();
            (at(start), at(end))
        })
        .collect();
    assert_eq!(rings.len(), 4, "one each way for each peer: {maps}");
    let mut state = 88_172_645_463_325_252_u64;
    while !Process::is_over() {
        for _ in 0..1000 {
            for (start, end) in &rings {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let word = start + (state >> 32) as usize % ((end - start) / 4) * 4;
                // SAFETY: inside a mapping that stays as long as `transport`, which is not driven any more.
                unsafe { (word as *mut u32).write_volatile(state as u32) };
            }
        }
    }
}

fn sum(cluster: &mut Cluster, rank: usize, of: impl Fn(&crate::rail::RailCounters) -> u64) -> u64 {
    cluster.at(rank).rails().map(|rail| of(&rail.counters)).sum()
}

/// L-12, G-8
#[test]
fn process_that_corrupts_its_rings_is_refused_and_counted() {
    let (mut cluster, mut scribbler) = two_and_a_process("driver::tests::hostile::scribbler", Fabric::Shm);
    let mut lost = [false; 2];
    while lost != [true; 2] {
        cluster.ping(0, 1, 20_000);
        for (rank, lost) in lost.iter_mut().enumerate() {
            let why = cluster.take(rank, |event| match event {
                Event::PeerLost { peer, why } => Some((*peer, *why)),
                _ => None,
            });
            if let Some((peer, why)) = why {
                assert_eq!(peer, Process::RANK);
                let refused = match why.reason {
                    LossReason::Protocol(_) => true,
                    LossReason::RailFailed { fault, .. } => fault == RailFault::Corrupt,
                    _ => false,
                };
                assert!(refused, "{why:?}");
                assert_eq!(sum(&mut cluster, rank, |counters| counters.corrupt), 1);
                *lost = true;
            }
        }
    }
    // It continues to scribble; the others continue to communicate.
    for bytes in [1, 5000, 1 << 20] {
        cluster.ping(0, 1, bytes);
    }
    scribbler.kill();
    cluster.ping(0, 1, 100);
    for rank in 0..2 {
        assert_eq!(sum(&mut cluster, rank, |counters| counters.corrupt), 1);
        assert_eq!(cluster.take(rank, |event| matches!(event, Event::PeerLost { .. }).then_some(())), None);
    }
}

/// A relay between a dialler and its acceptor that records the dialler's bytes.
struct Relay {
    listener: TcpListener,
    target: String,
    /// Dialler and acceptor, with the bytes of each that the other has not taken yet.
    pairs: Vec<[(TcpStream, Vec<u8>); 2]>,
    recorded: Vec<u8>,
}

impl Relay {
    fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Relay { listener, target: target.to_owned(), pairs: Vec::new(), recorded: Vec::new() }
    }

    fn pump(&mut self) {
        if let Ok((dialler, _)) = self.listener.accept() {
            let acceptor = TcpStream::connect(&self.target).unwrap();
            for stream in [&dialler, &acceptor] {
                stream.set_nonblocking(true).unwrap();
                stream.set_nodelay(true).unwrap();
            }
            self.pairs.push([(dialler, Vec::new()), (acceptor, Vec::new())]);
        }
        let mut bytes = [0; 4096];
        for [dialler, acceptor] in &mut self.pairs {
            for forth in [true, false] {
                let ((from, sent_bytes), (to, _)) = match forth {
                    true => (&mut *dialler, &mut *acceptor),
                    false => (&mut *acceptor, &mut *dialler),
                };
                if sent_bytes.is_empty()
                    && let Ok(count) = from.read(&mut bytes)
                {
                    sent_bytes.extend_from_slice(&bytes[..count]);
                    if forth {
                        self.recorded.extend_from_slice(&bytes[..count]);
                    }
                }
                let taken = to.write(sent_bytes).unwrap_or(0);
                sent_bytes.drain(..taken);
            }
        }
    }
}

/// A stranger's connection, driven while the job runs.
struct UnknownCaller(TcpStream);

impl UnknownCaller {
    fn at(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        UnknownCaller(stream)
    }

    /// Sends bytes; the job may have hung up already.
    fn write_bytes(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// Receives so many bytes, or fewer where the job hangs up; polls the job meanwhile.
    fn read_reply(&mut self, cluster: &mut Cluster, count: usize) -> Vec<u8> {
        let mut reply = vec![0; count];
        let mut at = 0;
        while at < count {
            cluster.ping(0, 1, 3000);
            cluster.ping(1, 2, 3000);
            cluster.ping(2, 0, 3000);
            match self.0.read(&mut reply[at..]) {
                Ok(0) => break,
                Ok(more) => at += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        reply.truncate(at);
        reply
    }
}

/// H-4, H-5, H-7
#[test]
fn keyless_and_replayed_handshakes_are_refused_under_traffic() {
    let opening = |rank: u32| {
        let mut all: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(PeerId(rank)))];
        all.extend(rails(rank, 3, Fabric::Tcp));
        Opening::with_rails(small(rank, 3), "here".to_owned(), all, 1).unwrap()
    };
    let mut openings = [0, 1, 2].map(opening);
    let address_records = openings.each_ref().map(|opening| opening.address_record().to_owned());
    let address = address_records[0].split("tcp@").nth(1).unwrap().to_owned();
    // Rank 1 finds rank 0 only through an eavesdropper.
    let mut relay = Relay::to(&address);
    let detour = address_records[0].replace(&address, &relay.listener.local_addr().unwrap().to_string());
    for (rank, opening) in openings.iter_mut().enumerate() {
        for (peer, address_record) in address_records.iter().enumerate() {
            let address_record = if (rank, peer) == (1, 0) { &detour } else { address_record };
            opening.learn(PeerId(peer as u32), address_record).unwrap();
        }
    }
    let mut cluster = Cluster {
        transports: openings.into_iter().map(|opening| opening.join().unwrap()).collect(),
        events: vec![Default::default(); 3],
        frozen: vec![false; 3],
    };
    let recv = cluster.at(0).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &[])).unwrap();
    cluster.at(1).inject(&SendRequest::new(PeerId(0), &[]), b"").unwrap();
    cluster.until("a recorded handshake", |cluster| {
        relay.pump();
        cluster.events[0].iter().any(|event| matches!(event, Event::Completed(over) if over.operation == recv))
    });
    let recorded = std::mem::take(&mut relay.recorded);
    // The messages between 0 and 1 need the relay; a thread keeps it going.
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = Stop(&over);
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                relay.pump();
                std::thread::yield_now();
            }
        });
        attack(&mut cluster, &address, &recorded);
        drop(stop);
    });
}

/// Ends the thread even where a test fails.
struct Stop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn attack(cluster: &mut Cluster, address: &str, recorded: &[u8]) {
    assert_eq!(cluster.at(0).rails().find(|rail| rail.kind == RailKind::Tcp).unwrap().address, address);
    let refused = |cluster: &mut Cluster| sum(cluster, 0, |counters| counters.unauthenticated);
    assert_eq!(refused(cluster), 0);

    // Without the job's secret: refused at once.
    let attempts = Attempts { attempt: 1, answers: 0 };
    let call = Call { transport: Sort::Tcp, job: JOB, from: PeerId(2), to: PeerId(0), rail: 0, attempts };
    let outsider = Credentials::new([8; 32], Secret::new([8; 32]));
    let rank_0 = credentials(0).public().fingerprint();
    let (_, opening) = Dialler::new(&outsider, call, rank_0, random().unwrap());
    let mut keyless = UnknownCaller::at(address);
    keyless.write_bytes(opening.bytes());
    assert_eq!(keyless.read_reply(cluster, ANSWER_BYTES).len(), VERDICT_BYTES, "a refusal, then hung up");
    assert_eq!(refused(cluster), 1);

    // A member of the job in the name of another one.
    let newer = Attempts { attempt: 99, answers: 99 };
    let call = Call { from: PeerId(1), attempts: newer, ..call };
    let (mut impostor, opening) = Dialler::new(&credentials(2), call, rank_0, random().unwrap());
    let mut member = UnknownCaller::at(address);
    member.write_bytes(opening.bytes());
    let Ok(Step::Send(proof)) = impostor.handle(&member.read_reply(cluster, ANSWER_BYTES)) else {
        panic!("rank 0 answers")
    };
    member.write_bytes(proof.bytes());
    let ruling = member.read_reply(cluster, RULING_BYTES);
    assert_eq!(impostor.handle(&ruling).unwrap_err(), AuthError::Refused(RefusedBecause::Proof));
    assert_eq!(refused(cluster), 2);

    // The recorded handshake once more, step by step, and then all recorded bytes at once.
    let mut waiting = UnknownCaller::at(address);
    waiting.write_bytes(&recorded[..OPENING_BYTES]);
    assert_eq!(waiting.read_reply(cluster, ANSWER_BYTES).len(), ANSWER_BYTES);
    waiting.write_bytes(&recorded[OPENING_BYTES..]);
    assert!(waiting.read_reply(cluster, RULING_BYTES).len() < RULING_BYTES, "hung up");
    assert_eq!(refused(cluster), 3);
    let mut hasty = UnknownCaller::at(address);
    hasty.write_bytes(recorded);
    assert!(hasty.read_reply(cluster, ANSWER_BYTES + RULING_BYTES).len() < ANSWER_BYTES + RULING_BYTES, "hung up");
    assert_eq!(refused(cluster), 4);

    for (a, b) in [(0, 1), (1, 2), (2, 0)] {
        cluster.ping(a, b, 1 << 20);
    }
    for rank in 0..3 {
        assert_eq!(cluster.take(rank, |event| matches!(event, Event::PeerLost { .. }).then_some(())), None);
        assert_eq!(sum(cluster, rank, |counters| counters.corrupt), 0);
    }
}
