//! Three processes that exchange messages, one of which is stopped for a while and goes on, or is killed:
//! over shared memory and over two TCP rails. Every message comes once, in order and as it was sent. A
//! stopped process is not given up: no connection ends and no packet is repeated, though its kernel's buffers
//! are full (F-9, L-17). A killed one is named with rail and fault, and the others go on.

mod exchange;

use std::time::Instant;

use exchange::{Process, Rank, is_other, start};
use rerail_core::endpoint::{LossReason, RailFault};
use rerail_core::ids::{PeerId, RailId};
use rerail_core::rail::RailKind;
use rustix::process::Signal;

/// The process that is stopped or killed.
const DOOMED: u32 = 2;

/// Every rank has exchanged so many messages more with rank 0.
fn go_on(rank: &mut Rank, what: &str, peers: &[u32], messages: u64) {
    let before: Vec<u64> = peers.iter().map(|&peer| rank.received(peer)).collect();
    rank.until(what, |rank| peers.iter().zip(&before).all(|(&peer, before)| rank.received(peer) >= before + messages));
}

/// The exchange ends in good order between rank 0 and these processes.
fn end(rank: &mut Rank, others: &mut [Process]) {
    others.iter_mut().for_each(|other| other.write_line("end"));
    rank.end();
    rank.until("the end", |rank| rank.is_over());
    rank.until("the others' end", |_| others.iter_mut().all(|other| other.has_printed("over")));
    for other in others {
        other.write_line("leave");
        assert!(other.ended_well());
    }
}

fn failures(rank: &Rank, peer: u32) -> u32 {
    let of =
        |rail| rank.transport.endpoint().rail_health(PeerId(peer), RailId(rail)).map_or(0, |health| health.failures);
    (0..3).map(of).sum()
}

fn a_stopped_peer_goes_on(fabric: &str) {
    let (mut rank, mut others) = start(fabric);
    go_on(&mut rank, "the beginning", &[1, 2], 30);
    // All buffers towards the stopped process fill up: large messages to it are under way.
    for _ in 0..2 {
        others[1].signal(Signal::STOP);
        let stopped = Instant::now();
        go_on(&mut rank, "the third, while one is stopped", &[1], 100);
        rank.until("the stop", |_| stopped.elapsed() > 10 * exchange::USER_TIMEOUT);
        others[1].signal(Signal::CONT);
        go_on(&mut rank, "all of them, after a stop", &[1, 2], 60);
    }
    end(&mut rank, &mut others);
    let stats = rank.transport.stats();
    assert_eq!((failures(&rank, DOOMED), stats.replayed, stats.duplicates_dropped), (0, 0, 0), "{:#?}", rank.transport);
    assert_eq!((rank.lost, rank.failed), (vec![], vec![]));
    for other in &mut others {
        assert!(!other.has_printed("lost") && other.has_printed("again 0"), "{:?}", other.lines_received);
    }
}

fn a_killed_peer_is_named_and_the_others_go_on(fabric: &str) {
    let (mut rank, mut others) = start(fabric);
    go_on(&mut rank, "the beginning", &[1, 2], 30);
    others[1].signal(Signal::KILL);
    rank.until("the loss", |rank| !rank.lost.is_empty());
    let (peer, why) = rank.lost[0];
    assert_eq!(peer, PeerId(DOOMED));
    let LossReason::RailFailed { rail, fault } = why.reason else { panic!("{why:?} names no rail") };
    let faults = [RailFault::Closed, RailFault::Gone, RailFault::Device { code: 104 }];
    assert!(faults.contains(&fault), "{fault:?}");
    let kind = rank.transport.rails().find(|info| info.id == rail).unwrap().kind;
    assert_eq!(kind, if fabric == "shm" { RailKind::Shm } else { RailKind::Tcp });
    go_on(&mut rank, "the third, after a kill", &[1], 200);
    // Its receives at least were open.
    assert!(rank.failed.len() >= 5 && rank.failed.iter().all(|&it| it == (peer, why)), "{:?}", rank.failed);
    rank.until("the third's word", |_| others[0].has_printed("lost 2 RailFailed"));
    end(&mut rank, &mut others[..1]);
    assert_eq!(rank.lost, [(peer, why)]);
}

#[test]
fn peers_are_stopped_and_killed() {
    if is_other() {
        return;
    }
    for fabric in ["shm", "tcp"] {
        a_stopped_peer_goes_on(fabric);
        a_killed_peer_is_named_and_the_others_go_on(fabric);
    }
}
