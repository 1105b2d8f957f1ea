//! How connections end: by faults, by peers that break the protocol, by BYE, and with the device.

use rerail_core::endpoint::{PostStatus, RailFault};
use rerail_core::ids::PeerId;
use rerail_core::time::Nanos;
use rerail_linux::rail::verbs::{VerbsOptions, status_of};
use rerail_linux::rail::{Piece, Rail};
use rerail_sim::hca::Fault;
use rerail_sim::net::Direction;
use rerail_verbs::contract::Status;

use crate::cluster::{Cluster, END, draws, options};

/// Numbers of queue pairs, in the order in which the software HCA gives them; by XRC, the connection's first
/// is the caller's initiator.
const DATAGRAMS: u32 = 0x1_0002;
const CONNECTION: u32 = 0x1_0003;

fn code(fault: RailFault) -> i32 {
    match fault {
        RailFault::Device { code } => code,
        other => panic!("{other:?}"),
    }
}

fn cut(cluster: &Cluster, host: usize) {
    let port = cluster.hosts[host].port;
    cluster.inject(Fault::Link { port, direction: Direction::Both, up: false, noticed_after: None });
}

/// L-5: down once, with the device's reason, and no completion of what was posted.
#[test]
fn a_peer_that_is_cut_off_is_down_once() {
    let mut cluster = Cluster::connected(&options(2));
    cut(&cluster, 1);
    for number in 0..8 {
        cluster.hosts[0].send(PeerId(1), number, 2000, 2000);
    }
    cluster.until(|cluster| !cluster.is_up(0, 1));
    cluster.hosts[0].send(PeerId(1), 99, 10, 10);
    cluster.run_until_idle();
    assert_eq!(cluster.hosts[0].sink.down.len(), 1);
    assert_eq!(status_of(code(cluster.hosts[0].sink.down[0].1)), Some(Status::RetryExceeded));
    assert!(cluster.hosts[0].sink.completed.is_empty());
    // The queue pair for datagrams is left; the other side has not noticed anything.
    assert_eq!(cluster.qps(), 2 + END);
    assert!(cluster.is_up(1, 0));
}

/// V-6: a process that dials again has lost what the other side still uses.
#[test]
fn newer_dial_ends_the_existing_connection() {
    let mut cluster = Cluster::connected(&options(2));
    cut(&cluster, 1);
    cluster.hosts[0].send(PeerId(1), 1, 2000, 2000);
    cluster.until(|cluster| !cluster.is_up(0, 1));
    let port = cluster.hosts[1].port;
    cluster.inject(Fault::Link { port, direction: Direction::Both, up: true, noticed_after: None });
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.hosts[1].sink.up.len() == 2);
    assert_eq!(cluster.hosts[1].sink.down, [(PeerId(0), RailFault::Closed)]);
    cluster.hosts[1].send(PeerId(0), 5, 100, 100);
    cluster.until(|cluster| cluster.hosts[0].numbers_from(PeerId(1)) == [5]);
    assert_eq!(cluster.qps(), 2 + 2 * END);
}

/// V-7: the other end is notified.
#[test]
fn one_end_in_error_takes_the_other_along() {
    let mut cluster = Cluster::connected(&options(2));
    let hca = cluster.hosts[0].hca;
    cluster.inject(Fault::BreakQp { hca, qp: CONNECTION });
    cluster.until(|cluster| !cluster.is_up(0, 1) && !cluster.is_up(1, 0));
    assert_eq!(cluster.hosts[1].sink.down, [(PeerId(0), RailFault::Closed)]);
    cluster.run_until_idle();
    assert_eq!((cluster.hosts[0].sink.down.len(), cluster.hosts[1].sink.down.len()), (1, 1));
}

/// The queue pair for datagrams fails: it has the same number afterwards, and connections stand through it.
#[test]
fn datagrams_are_mended() {
    let mut cluster = Cluster::new((0..3).map(|_| options(3)));
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
    let (hca, address) = (cluster.hosts[0].hca, cluster.hosts[0].rail.address());
    cluster.inject(Fault::BreakQp { hca, qp: DATAGRAMS });
    cluster.connect(2, 0);
    cluster.until(|cluster| cluster.is_up(0, 2) && cluster.is_up(2, 0));
    assert_eq!(cluster.hosts[0].rail.address(), address);
    assert!(cluster.is_up(0, 1) && cluster.is_up(1, 0));
    cluster.run_until_idle();
}

/// V-8
#[test]
fn malformed_packet_reports_rail_corrupt() {
    for bytes in [&[0u8; 3][..], &[1; 31], &[0xFF; 200], &[0; 32]] {
        let mut cluster = Cluster::connected(&options(2));
        cluster.hosts[0].send_raw(PeerId(1), bytes);
        cluster.until(|cluster| !cluster.is_up(1, 0) && !cluster.is_up(0, 1));
        assert_eq!(cluster.hosts[1].sink.down, [(PeerId(0), RailFault::Corrupt)]);
        assert_eq!(cluster.hosts[1].rail.counters().corrupt, 1);
        assert!(cluster.hosts[1].sink.taken.is_empty());
    }
}

/// G-8: the core's word; what comes behind is not looked at.
#[test]
fn a_packet_that_the_core_rejects() {
    let mut cluster = Cluster::connected(&options(2));
    cluster.hosts[1].sink.close_at = Some(3);
    for number in 0..8 {
        cluster.hosts[0].send(PeerId(1), number, 50, 50);
    }
    cluster.until(|cluster| !cluster.is_up(1, 0));
    cluster.run_until_idle();
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), [0, 1, 2]);
    assert_eq!(cluster.hosts[1].sink.down, [(PeerId(0), RailFault::Corrupt)]);
}

/// V-9: what was posted before is received, even by a peer that polls late, and nothing is reported.
#[test]
fn disconnect_lets_the_last_packets_through() {
    for (from, to) in [(0, 1), (1, 0)] {
        let mut cluster = Cluster::connected(&options(2));
        let peer = PeerId(to as u32);
        for number in 0..8 {
            // Without payload: they wait for buffers, some of them.
            cluster.hosts[from].send(peer, number, 0, 1);
        }
        cluster.hosts[from].rail.disconnect(peer);
        assert!(cluster.hosts[from].rail.is_closing());
        let quiet = cluster.now.0 + 500_000;
        cluster.until_polling(|host| host == from, |cluster| cluster.now.0 > quiet);
        cluster.until(|cluster| cluster.hosts[to].sink.taken.len() == 8);
        cluster.run_until_idle();
        assert!(!cluster.hosts[from].rail.is_closing());
        assert!(cluster.hosts[from].sink.completed.is_empty() && cluster.hosts[from].sink.down.is_empty());
        assert_eq!(cluster.hosts[to].sink.down, [(PeerId(from as u32), RailFault::Closed)]);
        assert_eq!(cluster.qps(), 2);
    }
}

/// V-9: a second at most, and no longer.
#[test]
fn drain_of_a_lost_peer_ends_in_time() {
    let mut cluster = Cluster::connected(&options(2));
    cut(&cluster, 1);
    cluster.hosts[0].send(PeerId(1), 0, 0, 1);
    cluster.hosts[0].rail.disconnect(PeerId(1));
    let left = cluster.now;
    cluster.until(|cluster| !cluster.hosts[0].rail.is_closing());
    assert!(cluster.now - left <= options(2).drain_time);
    cluster.run_until_idle();
    assert_eq!(cluster.hosts[0].sink.down, []);
    assert_eq!(cluster.qps(), 2 + END);
}

/// Disconnect ends all use of payload memory.
#[test]
fn disconnect_ends_transfers_at_once() {
    let mut cluster = Cluster::connected(&options(2));
    let mut window = vec![1u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    let key = cluster.hosts[1].register(piece, false).unwrap();
    let hca = cluster.hosts[0].hca;
    let before = cluster.fabric.borrow().objects(hca).mrs;
    let (_, memory) = cluster.hosts[0].read(PeerId(1), key, 4096, 4096);
    assert_eq!(cluster.fabric.borrow().objects(hca).mrs, before + 1);
    cluster.hosts[0].rail.disconnect(PeerId(1));
    // It is not used now: it goes on demand.
    cluster.hosts[0].rail.forget(Piece { start: std::ptr::null_mut(), len: usize::MAX });
    assert_eq!(cluster.fabric.borrow().objects(hca).mrs, before);
    cluster.run_until_idle();
    assert!(cluster.hosts[0].post_memory(memory).iter().all(|byte| *byte == 0));
}

/// Receives and buffers come back, however often connections end in the middle of messages.
#[test]
fn nothing_leaks_over_many_lives() {
    let mut cluster = Cluster::connected(&options(2));
    for life in 0..40u64 {
        for number in 0..8 {
            cluster.hosts[0].send(PeerId(1), number, 4000, 4000);
            cluster.hosts[1].send(PeerId(0), number, 4000, 4000);
        }
        let until = cluster.now.0 + life * 977;
        cluster.until(|cluster| cluster.now.0 > until);
        let ending = (life % 2) as usize;
        cluster.hosts[ending].rail.disconnect(PeerId(1 - ending as u32));
        cluster.hosts[ending].sink.standing.clear();
        cluster.until(|cluster| !cluster.is_up(0, 1) && !cluster.is_up(1, 0) && cluster.qps() == 2);
        for host in &mut cluster.hosts {
            host.sink.completed.clear();
            host.sink.taken.clear();
        }
        cluster.connect(ending, 1 - ending as u32);
        cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
    }
    // All places are there: as many messages as ever go through.
    for host in &mut cluster.hosts {
        host.sink.completed.clear();
    }
    for number in 0..8 {
        cluster.hosts[0].send(PeerId(1), 1000 + number, 4000, 4000);
        cluster.hosts[1].send(PeerId(0), 1000 + number, 4000, 4000);
    }
    cluster.until(|cluster| cluster.hosts.iter().all(|host| host.sink.completed.len() == 8));
    assert!(cluster.hosts.iter().all(|host| host.sink.completed.iter().all(|(_, status)| *status == PostStatus::Done)));
}

/// The device breaks: all peers are down, once, and the rail does nothing more.
#[test]
fn a_broken_device_takes_everything_along_and_is_safe_to_call() {
    let mut cluster = Cluster::new((0..4).map(|_| options(4)));
    for to in 1..4 {
        cluster.connect(0, to);
    }
    cluster.until(|cluster| (1..4).all(|peer| cluster.is_up(0, peer as u32) && cluster.is_up(peer, 0)));
    cluster.hosts[0].send(PeerId(1), 1, 3000, 3000);
    let hca = cluster.hosts[0].hca;
    cluster.inject(Fault::Kill { hca, reload_after: None });
    cluster.until(|cluster| cluster.hosts[0].sink.standing.is_empty());
    assert_eq!(cluster.hosts[0].sink.down.len(), 3);
    assert!(cluster.hosts[0].sink.down.iter().all(|(_, fault)| code(*fault) == 5), "EIO");
    assert!(cluster.hosts[0].sink.completed.is_empty());
    cluster.connect(0, 2);
    cluster.hosts[0].send(PeerId(2), 2, 100, 100);
    cluster.hosts[0].rail.disconnect(PeerId(3));
    let mut memory = [0u8; 64];
    let piece = Piece { start: memory.as_mut_ptr(), len: 64 };
    assert!(cluster.hosts[0].register(piece, true).is_err());
    cluster.until(|cluster| cluster.hosts[0].sink.down.len() == 4);
    assert_eq!(cluster.hosts[0].rail.next_timeout(), None);
    assert!(!cluster.hosts[0].rail.is_closing() && cluster.hosts[0].rail.arm());
}

/// The completion queue is never too short.
#[test]
fn the_completion_queue_is_deep_enough_for_everything_at_once() {
    let options = VerbsOptions { posts_max: 32, sends: 32, receives: 32, ..options(2) };
    // As deep as requested, and no deeper.
    let mut cluster = Cluster::connected(&options);
    for round in 0..4 {
        for number in 0..32 {
            cluster.hosts[0].send(PeerId(1), round * 32 + number, 100, 100);
            cluster.hosts[1].send(PeerId(0), round * 32 + number, 100, 100);
        }
        // No rank polls while everything arrives.
        let quiet = cluster.now + Nanos::from_millis(5);
        cluster.fabric.borrow_mut().advance(quiet);
        cluster.now = quiet;
        let all = (round as usize + 1) * 32;
        cluster.until(|cluster| cluster.hosts.iter().all(|host| host.sink.completed.len() == all));
    }
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// F-2, L-15: when abort returns, no request of it names payload memory, peers' writes and reads get nowhere,
/// nothing more is reported of it, and it may be connected at once, without waiting for the old queue pair.
#[test]
fn sever_ends_everything_at_once() {
    let mut cluster = Cluster::connected(&options(2));
    let mut window = vec![0u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    let key = cluster.hosts[0].register(piece, true).unwrap();
    let hca = cluster.hosts[0].hca;
    for number in 0..4 {
        cluster.hosts[0].send(PeerId(1), number, 4000, 4000);
        // A write of the peer's, which is on its way when we cut.
        cluster.hosts[1].write(PeerId(0), key, number, 4096, 4096);
    }
    let source = cluster.hosts[1].register(piece, false).unwrap();
    let before = cluster.fabric.borrow().objects(hca).mrs;
    let (_, target) = cluster.hosts[0].read(PeerId(1), source, 4096, 4096);
    assert_eq!(cluster.fabric.borrow().objects(hca).mrs, before + 1);
    let reported = |cluster: &Cluster| {
        let sink = &cluster.hosts[0].sink;
        (sink.completed.len(), sink.taken.len(), sink.up.len(), sink.down.len())
    };
    let reported_before = reported(&cluster);
    cluster.hosts[0].rail.abort(PeerId(1));
    cluster.hosts[0].sink.standing.clear();
    cluster.hosts[0].rail.forget(Piece { start: std::ptr::null_mut(), len: usize::MAX });
    assert!(cluster.fabric.borrow().objects(hca).mrs <= before, "nothing names the read's memory");
    let frozen = window.clone();
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.hosts[1].sink.up.len() == 2);
    assert_eq!(window, frozen, "no write of the old connection lands");
    assert!(cluster.hosts[0].post_memory(target).iter().all(|byte| *byte == 0));
    let after = reported(&cluster);
    assert_eq!(
        (after.0, after.1, after.2, after.3),
        (reported_before.0, reported_before.1, reported_before.2 + 1, reported_before.3)
    );
    assert_eq!(cluster.hosts[1].sink.down.len(), 1);
    cluster.hosts[1].send(PeerId(0), 50, 100, 100);
    cluster.until(|cluster| cluster.hosts[0].numbers_from(PeerId(1)).contains(&50));
    cluster.run_until_idle();
    assert_eq!(cluster.qps(), 2 + 2 * END);
}

/// F-2: also what opens and what closes.
#[test]
fn abort_at_any_stage() {
    for steps in 0..60 {
        for closes in [false, true] {
            let mut cluster = if closes { Cluster::connected(&options(2)) } else { Cluster::pair(&options(2)) };
            if closes {
                for number in 0..8 {
                    cluster.hosts[0].send(PeerId(1), number, 0, 1);
                }
                cluster.hosts[0].rail.disconnect(PeerId(1));
            } else {
                cluster.connect(0, 1);
            }
            for _ in 0..steps {
                cluster.step(|_| true);
            }
            let before = (cluster.hosts[0].sink.up.len(), cluster.hosts[0].sink.down.len());
            cluster.hosts[0].rail.abort(PeerId(1));
            cluster.hosts[0].sink.standing.clear();
            assert!(!cluster.hosts[0].rail.is_closing());
            cluster.run_until_idle();
            assert_eq!((cluster.hosts[0].sink.up.len(), cluster.hosts[0].sink.down.len()), before, "{steps}, {closes}");
            assert_eq!(cluster.qps(), 2, "{steps}, {closes}");
        }
    }
}

/// F-2: one that had failed and was not reported yet is reported no more.
#[test]
fn sever_of_a_failed_one() {
    let mut cluster = Cluster::connected(&options(2));
    let hca = cluster.hosts[0].hca;
    cluster.inject(Fault::BreakQp { hca, qp: CONNECTION });
    cluster.hosts[0].rail.abort(PeerId(1));
    cluster.hosts[0].sink.standing.clear();
    cluster.connect(0, 1);
    cluster.until(|cluster| cluster.is_up(0, 1) && cluster.hosts[1].sink.up.len() == 2);
    assert!(cluster.hosts[0].sink.down.is_empty());
}

/// V-5, V-6, L-16: whatever both sides do, and whenever, in the end one connection stands on both.
#[test]
fn any_order_of_calls_and_ends() {
    for seed in 0..200u64 {
        let mut draw = draws(seed);
        let mut cluster = Cluster::pair(&options(2));
        for _ in 0..60 {
            let at = draw(2) as usize;
            let peer = PeerId(1 - at as u32);
            match draw(12) {
                0 | 1 => {
                    cluster.hosts[at].rail.abort(peer);
                    cluster.hosts[at].sink.standing.clear();
                }
                2 => {
                    cluster.hosts[at].rail.disconnect(peer);
                    cluster.hosts[at].sink.standing.clear();
                }
                3..6 => cluster.connect(at, 1 - at as u32),
                6 => cluster.inject(Fault::Lose { port: cluster.hosts[at].port, packets: 1 }),
                _ => {
                    let polled = draw(3) as usize;
                    cluster.step(|host| host != polled);
                }
            }
        }
        // From here on both need it, and dial again whenever its failure is reported.
        for _ in 0..20_000 {
            cluster.connect(0, 1);
            cluster.connect(1, 0);
            cluster.step(|_| true);
            if cluster.is_up(0, 1) && cluster.is_up(1, 0) && cluster.qps() == 2 + 2 * END {
                break;
            }
        }
        assert_eq!(cluster.qps(), 2 + 2 * END, "seed {seed}");
        for host in &mut cluster.hosts {
            host.sink.taken.clear();
        }
        cluster.hosts[0].send(PeerId(1), 70, 100, 100);
        cluster.hosts[1].send(PeerId(0), 71, 100, 100);
        cluster.until(|cluster| cluster.hosts.iter().all(|host| host.sink.taken.len() == 1));
        assert!(cluster.is_up(0, 1) && cluster.is_up(1, 0), "seed {seed}");
    }
}

/// F-2: once it is reported that a connection is down, a write of the peer's that comes late lands nowhere.
#[test]
fn late_write_after_rail_down_changes_no_memory() {
    for abort_pending in [false, true] {
        let mut cluster = Cluster::connected(&options(2));
        let mut window = vec![0u8; 4096];
        let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
        let key = cluster.hosts[0].register(piece, true).unwrap();
        // By XRC, a peer's word is waited for (V-16).
        let until = cluster.now + Nanos::from_millis(if crate::XRC { 6 } else { 1 });
        cluster.inject(Fault::Hold { port: cluster.hosts[0].port, until });
        cluster.hosts[1].write(PeerId(0), key, 3, 4096, 4096);
        let hca = cluster.hosts[0].hca;
        if abort_pending {
            cluster.hosts[0].rail.abort(PeerId(1));
            cluster.hosts[0].sink.standing.clear();
        } else {
            cluster.inject(Fault::BreakQp { hca, qp: CONNECTION });
            cluster.until(|cluster| !cluster.is_up(0, 1));
        }
        assert!(cluster.now < until, "the write is still on its way");
        cluster.run_until_idle();
        assert!(cluster.now >= until && window.iter().all(|byte| *byte == 0));
        // The same memory and key, for a connection that stands.
        let back = if cluster.is_up(1, 0) { 1 } else { 0 };
        cluster.connect(back, 1 - back as u32);
        cluster.until(|cluster| cluster.is_up(0, 1) && cluster.is_up(1, 0));
        let id = cluster.hosts[1].write(PeerId(0), key, 4, 4096, 4096);
        cluster.until(|cluster| cluster.hosts[1].is_done(id));
        cluster.run_until_idle();
        assert!(window == crate::cluster::payload(4, 4096));
    }
}
