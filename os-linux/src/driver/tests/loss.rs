//! Peers that die, and strangers that knock: the others go on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use rerail_core::endpoint::{Event, LossReason, OpError, RailFault, Recv, Selector, Send, SubmitError};
use rerail_core::ids::PeerId;
use rerail_core::rail::RailKind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::world::{Fabric, World, on_fabrics, pattern, rails, small, whole};
use crate::driver::{Opening, RequestError};
use crate::rail::Rail;
use crate::rail::loopback::Loopback;

on_fabrics! {
    a_killed_peer_is_lost_and_the_others_go_on: Shm Tcp TwoTcp;
}

/// Tells this test program, started again, which fabric to be a peer on.
const CHILD: &str = "RERAIL_TEST_PEER";
const RANKS: u32 = 3;
const DOOMED: PeerId = PeerId(2);

fn opening(rank: u32, fabric: Fabric) -> Opening {
    let mut all: Vec<Box<dyn Rail>> = vec![Box::new(Loopback::new(PeerId(rank)))];
    all.extend(rails(rank, RANKS, fabric));
    Opening::with_rails(small(rank, RANKS), "here".to_owned(), all, 1).unwrap()
}

/// The peer that will be killed: does nothing unless the tests below started it.
#[test]
fn doomed_peer() {
    let Ok(fabric) = std::env::var(CHILD) else { return };
    let fabric = [Fabric::Shm, Fabric::Tcp, Fabric::TwoTcp].into_iter().find(|it| format!("{it:?}") == fabric).unwrap();
    let mut opening = opening(DOOMED.0, fabric);
    println!("\ncard {}", opening.card());
    for (rank, card) in std::io::stdin().lines().take(RANKS as usize).enumerate() {
        opening.learn(PeerId(rank as u32), &card.unwrap()).unwrap();
    }
    let mut transport = opening.join().unwrap();
    transport.inject(&Send { peer: PeerId(0), ..Send::default() }, b"alive").unwrap();
    // Works until it is killed; standard input ends where the parent is gone.
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let stdin = std::io::stdin();
    while poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&now)).unwrap() == 0 {
        transport.progress();
        while transport.poll_event().is_some() {}
    }
}

/// A process that is killed at the latest when the test ends.
struct Doomed {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Doomed {
    fn start(fabric: Fabric) -> Doomed {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "driver::tests::loss::doomed_peer", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{fabric:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Doomed { child, stdout }
    }

    fn card(&mut self) -> String {
        let mut lines = self.stdout.by_ref().lines().map(Result::unwrap);
        lines.find_map(|line| line.strip_prefix("card ").map(str::to_owned)).unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        // Killed and waited for already, or on the way out of a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A message from rank 0 to rank 1 and back.
fn ping(world: &mut World, bytes: usize) {
    for (a, b) in [(0, 1), (1, 0)] {
        let source = world.filled(a, bytes, 1);
        let target = world.empty(b, bytes);
        let from = Selector { source: Some(PeerId(a as u32)), ..Selector::default() };
        let recv = world.at(b).recv(&Recv { from, segments: &whole(target, bytes), ..Recv::default() }).unwrap();
        let send = Send { peer: PeerId(b as u32), segments: &whole(source, bytes), ..Send::default() };
        let send = world.at(a).send(&send).unwrap();
        world.complete(a, send).unwrap();
        world.complete(b, recv).unwrap();
        assert!(world.bytes(b, target) == pattern(bytes, 1));
        world.at(a).free(source).unwrap();
        world.at(b).free(target).unwrap();
    }
}

fn a_killed_peer_is_lost_and_the_others_go_on(fabric: Fabric) {
    let mut doomed = Doomed::start(fabric);
    let mut openings = [opening(0, fabric), opening(1, fabric)];
    let cards = [openings[0].card().to_owned(), openings[1].card().to_owned(), doomed.card()];
    let mut stdin = doomed.child.stdin.take().unwrap();
    writeln!(stdin, "{}", cards.join("\n")).unwrap();
    for opening in &mut openings {
        for (rank, card) in cards.iter().enumerate() {
            opening.learn(PeerId(rank as u32), card).unwrap();
        }
    }
    let mut world = World {
        transports: openings.into_iter().map(|opening| opening.join().unwrap()).collect(),
        events: vec![Default::default(); 2],
        frozen: vec![false; 2],
    };

    let from = Selector { source: Some(DOOMED), ..Selector::default() };
    let target = world.empty(0, 1 << 20);
    let hello = world.at(0).recv(&Recv { from, segments: &whole(target, 5), ..Recv::default() }).unwrap();
    assert_eq!(world.complete(0, hello).unwrap().bytes, 5);
    ping(&mut world, 100);

    // A receive and a rendezvous that will never end well.
    let recv = world.at(0).recv(&Recv { from, segments: &whole(target, 5), ..Recv::default() }).unwrap();
    let send = Send { peer: DOOMED, segments: &whole(target, 1 << 20), ..Send::default() };
    let send = world.at(0).send(&send).unwrap();
    doomed.kill();
    let why = world.expect(0, "the loss of the peer", |event| match event {
        Event::PeerLost { peer, why } => {
            assert_eq!(*peer, DOOMED);
            Some(*why)
        }
        _ => None,
    });
    let LossReason::RailFailed { rail, fault } = why else { panic!("{why:?} names no rail") };
    assert!(matches!(fault, RailFault::Closed | RailFault::Device { .. }), "{fault:?}");
    let kind = world.at(0).rails().find(|info| info.id == rail).unwrap().kind;
    assert_eq!(kind, if fabric == Fabric::Shm { RailKind::Shm } else { RailKind::Tcp });
    let lost = Err(OpError::PeerLost { peer: DOOMED, why });
    assert_eq!(world.complete(0, send), lost);
    assert_eq!(world.complete(0, recv), lost);
    let gone = world.at(0).send(&Send { peer: DOOMED, ..Send::default() });
    assert_eq!(gone, Err(RequestError::Submit(SubmitError::PeerGone(DOOMED))));
    world.at(0).free(target).unwrap();

    ping(&mut world, 100);
    ping(&mut world, 1 << 20);
    assert_eq!(world.take(1, |event| matches!(event, Event::PeerLost { .. }).then_some(())), None);
}

#[test]
fn strangers_at_the_port_disturb_nobody() {
    let mut world = World::of(2, Fabric::TwoTcp);
    let addresses: Vec<String> =
        world.at(0).rails().filter(|rail| rail.kind == RailKind::Tcp).map(|rail| rail.address.to_owned()).collect();
    let garbage = [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 512], &[0xff; 512], b""];
    let mut strangers = Vec::new();
    for round in 0..3 {
        for address in &addresses {
            for bytes in garbage {
                let mut stranger = TcpStream::connect(address).unwrap();
                // The rail may have closed already.
                let _ = stranger.write_all(bytes);
                strangers.push(stranger);
            }
        }
        ping(&mut world, if round == 1 { 1 << 20 } else { 1000 });
    }
    let refused = |world: &mut World| -> u64 { world.at(0).rails().map(|rail| rail.counters.unauthenticated).sum() };
    // Those that wrote a whole wrong greeting are counted; the silent ones are still being waited for.
    world.until("strangers are refused", |world| refused(world) >= 2 * addresses.len() as u64);
    drop(strangers);
    ping(&mut world, 1000);
    for rank in 0..2 {
        assert_eq!(world.take(rank, |event| matches!(event, Event::PeerLost { .. }).then_some(())), None);
    }
}
