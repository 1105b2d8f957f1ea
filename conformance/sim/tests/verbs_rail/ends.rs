//! How connections end: by faults, by peers that break the protocol, by BYE, and with the device.

use rerail_core::endpoint::{PostStatus, RailFault};
use rerail_core::ids::PeerId;
use rerail_core::time::Nanos;
use rerail_linux::rail::verbs::{VerbsOptions, status_of};
use rerail_linux::rail::{Piece, Rail};
use rerail_sim::hca::Fault;
use rerail_sim::net::Direction;
use rerail_verbs::contract::Status;

use crate::world::{END, World, draws, options};

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

fn cut(world: &World, host: usize) {
    let port = world.hosts[host].port;
    world.inject(Fault::Link { port, direction: Direction::Both, up: false, noticed_after: None });
}

/// L-5: down once, with the device's reason, and no completion of what was posted.
#[test]
fn a_peer_that_is_cut_off_is_down_once() {
    let mut world = World::connected(&options(2));
    cut(&world, 1);
    for number in 0..8 {
        world.hosts[0].send(PeerId(1), number, 2000, 2000);
    }
    world.until(|world| !world.is_up(0, 1));
    world.hosts[0].send(PeerId(1), 99, 10, 10);
    world.settle();
    assert_eq!(world.hosts[0].sink.down.len(), 1);
    assert_eq!(status_of(code(world.hosts[0].sink.down[0].1)), Some(Status::RetryExceeded));
    assert!(world.hosts[0].sink.completed.is_empty());
    // The queue pair for datagrams is left; the other side has not noticed anything.
    assert_eq!(world.qps(), 2 + END);
    assert!(world.is_up(1, 0));
}

/// V-6: a process that dials again has lost what the other side still uses.
#[test]
fn a_newer_call_ends_what_stood() {
    let mut world = World::connected(&options(2));
    cut(&world, 1);
    world.hosts[0].send(PeerId(1), 1, 2000, 2000);
    world.until(|world| !world.is_up(0, 1));
    let port = world.hosts[1].port;
    world.inject(Fault::Link { port, direction: Direction::Both, up: true, noticed_after: None });
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1) && world.hosts[1].sink.up.len() == 2);
    assert_eq!(world.hosts[1].sink.down, [(PeerId(0), RailFault::Closed)]);
    world.hosts[1].send(PeerId(0), 5, 100, 100);
    world.until(|world| world.hosts[0].numbers_from(PeerId(1)) == [5]);
    assert_eq!(world.qps(), 2 + 2 * END);
}

/// V-7: the other end is notified.
#[test]
fn one_end_in_error_takes_the_other_along() {
    let mut world = World::connected(&options(2));
    let hca = world.hosts[0].hca;
    world.inject(Fault::BreakQp { hca, qp: CONNECTION });
    world.until(|world| !world.is_up(0, 1) && !world.is_up(1, 0));
    assert_eq!(world.hosts[1].sink.down, [(PeerId(0), RailFault::Closed)]);
    world.settle();
    assert_eq!((world.hosts[0].sink.down.len(), world.hosts[1].sink.down.len()), (1, 1));
}

/// The queue pair for datagrams fails: it has the same number afterwards, and connections stand through it.
#[test]
fn datagrams_are_mended() {
    let mut world = World::new((0..3).map(|_| options(3)));
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
    let (hca, address) = (world.hosts[0].hca, world.hosts[0].rail.address());
    world.inject(Fault::BreakQp { hca, qp: DATAGRAMS });
    world.connect(2, 0);
    world.until(|world| world.is_up(0, 2) && world.is_up(2, 0));
    assert_eq!(world.hosts[0].rail.address(), address);
    assert!(world.is_up(0, 1) && world.is_up(1, 0));
    world.settle();
}

/// V-8
#[test]
fn what_is_no_packet_is_corrupt() {
    for bytes in [&[0u8; 3][..], &[1; 31], &[0xFF; 200], &[0; 32]] {
        let mut world = World::connected(&options(2));
        world.hosts[0].send_raw(PeerId(1), bytes);
        world.until(|world| !world.is_up(1, 0) && !world.is_up(0, 1));
        assert_eq!(world.hosts[1].sink.down, [(PeerId(0), RailFault::Corrupt)]);
        assert_eq!(world.hosts[1].rail.counters().corrupt, 1);
        assert!(world.hosts[1].sink.taken.is_empty());
    }
}

/// G-8: the core's word; what comes behind is not looked at.
#[test]
fn a_packet_that_the_core_rejects() {
    let mut world = World::connected(&options(2));
    world.hosts[1].sink.close_at = Some(3);
    for number in 0..8 {
        world.hosts[0].send(PeerId(1), number, 50, 50);
    }
    world.until(|world| !world.is_up(1, 0));
    world.settle();
    assert_eq!(world.hosts[1].numbers_from(PeerId(0)), [0, 1, 2]);
    assert_eq!(world.hosts[1].sink.down, [(PeerId(0), RailFault::Corrupt)]);
}

/// V-9: what was posted before is received, even by a peer that polls late, and nothing is reported.
#[test]
fn disconnect_lets_the_last_packets_through() {
    for (from, to) in [(0, 1), (1, 0)] {
        let mut world = World::connected(&options(2));
        let peer = PeerId(to as u32);
        for number in 0..8 {
            // Without payload: they wait for buffers, some of them.
            world.hosts[from].send(peer, number, 0, 1);
        }
        world.hosts[from].rail.disconnect(peer);
        assert!(world.hosts[from].rail.is_closing());
        let quiet = world.now.0 + 500_000;
        world.until_polling(|host| host == from, |world| world.now.0 > quiet);
        world.until(|world| world.hosts[to].sink.taken.len() == 8);
        world.settle();
        assert!(!world.hosts[from].rail.is_closing());
        assert!(world.hosts[from].sink.completed.is_empty() && world.hosts[from].sink.down.is_empty());
        assert_eq!(world.hosts[to].sink.down, [(PeerId(from as u32), RailFault::Closed)]);
        assert_eq!(world.qps(), 2);
    }
}

/// V-9: a second at most, and no longer.
#[test]
fn a_peer_that_is_gone_is_not_waited_for() {
    let mut world = World::connected(&options(2));
    cut(&world, 1);
    world.hosts[0].send(PeerId(1), 0, 0, 1);
    world.hosts[0].rail.disconnect(PeerId(1));
    let left = world.now;
    world.until(|world| !world.hosts[0].rail.is_closing());
    assert!(world.now - left <= options(2).drain_time);
    world.settle();
    assert_eq!(world.hosts[0].sink.down, []);
    assert_eq!(world.qps(), 2 + END);
}

/// Disconnect ends all use of payload memory.
#[test]
fn disconnect_ends_transfers_at_once() {
    let mut world = World::connected(&options(2));
    let mut window = vec![1u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    let key = world.hosts[1].register(piece, false).unwrap();
    let hca = world.hosts[0].hca;
    let before = world.fabric.borrow().objects(hca).mrs;
    let (_, memory) = world.hosts[0].read(PeerId(1), key, 4096, 4096);
    assert_eq!(world.fabric.borrow().objects(hca).mrs, before + 1);
    world.hosts[0].rail.disconnect(PeerId(1));
    // It is not used now: it goes on demand.
    world.hosts[0].rail.forget(Piece { start: std::ptr::null_mut(), len: usize::MAX });
    assert_eq!(world.fabric.borrow().objects(hca).mrs, before);
    world.settle();
    assert!(world.hosts[0].post_memory(memory).iter().all(|byte| *byte == 0));
}

/// Receives and buffers come back, however often connections end in the middle of messages.
#[test]
fn nothing_leaks_over_many_lives() {
    let mut world = World::connected(&options(2));
    for life in 0..40u64 {
        for number in 0..8 {
            world.hosts[0].send(PeerId(1), number, 4000, 4000);
            world.hosts[1].send(PeerId(0), number, 4000, 4000);
        }
        let until = world.now.0 + life * 977;
        world.until(|world| world.now.0 > until);
        let ending = (life % 2) as usize;
        world.hosts[ending].rail.disconnect(PeerId(1 - ending as u32));
        world.hosts[ending].sink.standing.clear();
        world.until(|world| !world.is_up(0, 1) && !world.is_up(1, 0) && world.qps() == 2);
        for host in &mut world.hosts {
            host.sink.completed.clear();
            host.sink.taken.clear();
        }
        world.connect(ending, 1 - ending as u32);
        world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
    }
    // All places are there: as many messages as ever go through.
    for host in &mut world.hosts {
        host.sink.completed.clear();
    }
    for number in 0..8 {
        world.hosts[0].send(PeerId(1), 1000 + number, 4000, 4000);
        world.hosts[1].send(PeerId(0), 1000 + number, 4000, 4000);
    }
    world.until(|world| world.hosts.iter().all(|host| host.sink.completed.len() == 8));
    assert!(world.hosts.iter().all(|host| host.sink.completed.iter().all(|(_, status)| *status == PostStatus::Done)));
}

/// The device breaks: all peers are down, once, and the rail does nothing more.
#[test]
fn a_broken_device_takes_everything_along_and_is_safe_to_call() {
    let mut world = World::new((0..4).map(|_| options(4)));
    for to in 1..4 {
        world.connect(0, to);
    }
    world.until(|world| (1..4).all(|peer| world.is_up(0, peer as u32) && world.is_up(peer, 0)));
    world.hosts[0].send(PeerId(1), 1, 3000, 3000);
    let hca = world.hosts[0].hca;
    world.inject(Fault::Kill { hca, reload_after: None });
    world.until(|world| world.hosts[0].sink.standing.is_empty());
    assert_eq!(world.hosts[0].sink.down.len(), 3);
    assert!(world.hosts[0].sink.down.iter().all(|(_, fault)| code(*fault) == 5), "EIO");
    assert!(world.hosts[0].sink.completed.is_empty());
    world.connect(0, 2);
    world.hosts[0].send(PeerId(2), 2, 100, 100);
    world.hosts[0].rail.disconnect(PeerId(3));
    let mut memory = [0u8; 64];
    let piece = Piece { start: memory.as_mut_ptr(), len: 64 };
    assert!(world.hosts[0].register(piece, true).is_err());
    world.until(|world| world.hosts[0].sink.down.len() == 4);
    assert_eq!(world.hosts[0].rail.next_timeout(), None);
    assert!(!world.hosts[0].rail.is_closing() && world.hosts[0].rail.arm());
}

/// The completion queue is never too short.
#[test]
fn the_completion_queue_is_deep_enough_for_everything_at_once() {
    let options = VerbsOptions { posts_max: 32, sends: 32, receives: 32, ..options(2) };
    // As deep as requested, and no deeper.
    let mut world = World::connected(&options);
    for round in 0..4 {
        for number in 0..32 {
            world.hosts[0].send(PeerId(1), round * 32 + number, 100, 100);
            world.hosts[1].send(PeerId(0), round * 32 + number, 100, 100);
        }
        // No rank polls while everything arrives.
        let quiet = world.now + Nanos::from_millis(5);
        world.fabric.borrow_mut().advance(quiet);
        world.now = quiet;
        let all = (round as usize + 1) * 32;
        world.until(|world| world.hosts.iter().all(|host| host.sink.completed.len() == all));
    }
    assert!(world.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// F-2, L-15: when abort returns, no request of it names payload memory, peers' writes and reads get nowhere,
/// nothing more is reported of it, and it may be connected at once, without waiting for the old queue pair.
#[test]
fn sever_ends_everything_at_once() {
    let mut world = World::connected(&options(2));
    let mut window = vec![0u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    let key = world.hosts[0].register(piece, true).unwrap();
    let hca = world.hosts[0].hca;
    for number in 0..4 {
        world.hosts[0].send(PeerId(1), number, 4000, 4000);
        // A write of the peer's, which is on its way when we cut.
        world.hosts[1].write(PeerId(0), key, number, 4096, 4096);
    }
    let source = world.hosts[1].register(piece, false).unwrap();
    let before = world.fabric.borrow().objects(hca).mrs;
    let (_, target) = world.hosts[0].read(PeerId(1), source, 4096, 4096);
    assert_eq!(world.fabric.borrow().objects(hca).mrs, before + 1);
    let told = |world: &World| {
        let sink = &world.hosts[0].sink;
        (sink.completed.len(), sink.taken.len(), sink.up.len(), sink.down.len())
    };
    let before_told = told(&world);
    world.hosts[0].rail.abort(PeerId(1));
    world.hosts[0].sink.standing.clear();
    world.hosts[0].rail.forget(Piece { start: std::ptr::null_mut(), len: usize::MAX });
    assert!(world.fabric.borrow().objects(hca).mrs <= before, "nothing names the read's memory");
    let frozen = window.clone();
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1) && world.hosts[1].sink.up.len() == 2);
    assert_eq!(window, frozen, "no write of the old connection lands");
    assert!(world.hosts[0].post_memory(target).iter().all(|byte| *byte == 0));
    let after = told(&world);
    assert_eq!((after.0, after.1, after.2, after.3), (before_told.0, before_told.1, before_told.2 + 1, before_told.3));
    assert_eq!(world.hosts[1].sink.down.len(), 1);
    world.hosts[1].send(PeerId(0), 50, 100, 100);
    world.until(|world| world.hosts[0].numbers_from(PeerId(1)).contains(&50));
    world.settle();
    assert_eq!(world.qps(), 2 + 2 * END);
}

/// F-2: also what opens and what closes.
#[test]
fn abort_at_any_stage() {
    for steps in 0..60 {
        for closes in [false, true] {
            let mut world = if closes { World::connected(&options(2)) } else { World::pair(&options(2)) };
            if closes {
                for number in 0..8 {
                    world.hosts[0].send(PeerId(1), number, 0, 1);
                }
                world.hosts[0].rail.disconnect(PeerId(1));
            } else {
                world.connect(0, 1);
            }
            for _ in 0..steps {
                world.step(|_| true);
            }
            let before = (world.hosts[0].sink.up.len(), world.hosts[0].sink.down.len());
            world.hosts[0].rail.abort(PeerId(1));
            world.hosts[0].sink.standing.clear();
            assert!(!world.hosts[0].rail.is_closing());
            world.settle();
            assert_eq!((world.hosts[0].sink.up.len(), world.hosts[0].sink.down.len()), before, "{steps}, {closes}");
            assert_eq!(world.qps(), 2, "{steps}, {closes}");
        }
    }
}

/// F-2: one that had failed and was not reported yet is reported no more.
#[test]
fn sever_of_a_failed_one() {
    let mut world = World::connected(&options(2));
    let hca = world.hosts[0].hca;
    world.inject(Fault::BreakQp { hca, qp: CONNECTION });
    world.hosts[0].rail.abort(PeerId(1));
    world.hosts[0].sink.standing.clear();
    world.connect(0, 1);
    world.until(|world| world.is_up(0, 1) && world.hosts[1].sink.up.len() == 2);
    assert!(world.hosts[0].sink.down.is_empty());
}

/// V-5, V-6, L-16: whatever both sides do, and whenever, in the end one connection stands on both.
#[test]
fn any_order_of_calls_and_ends() {
    for seed in 0..200u64 {
        let mut draw = draws(seed);
        let mut world = World::pair(&options(2));
        for _ in 0..60 {
            let at = draw(2) as usize;
            let peer = PeerId(1 - at as u32);
            match draw(12) {
                0 | 1 => {
                    world.hosts[at].rail.abort(peer);
                    world.hosts[at].sink.standing.clear();
                }
                2 => {
                    world.hosts[at].rail.disconnect(peer);
                    world.hosts[at].sink.standing.clear();
                }
                3..6 => world.connect(at, 1 - at as u32),
                6 => world.inject(Fault::Lose { port: world.hosts[at].port, packets: 1 }),
                _ => {
                    let polled = draw(3) as usize;
                    world.step(|host| host != polled);
                }
            }
        }
        // From here on both need it, and dial again whenever its failure is reported.
        for _ in 0..20_000 {
            world.connect(0, 1);
            world.connect(1, 0);
            world.step(|_| true);
            if world.is_up(0, 1) && world.is_up(1, 0) && world.qps() == 2 + 2 * END {
                break;
            }
        }
        assert_eq!(world.qps(), 2 + 2 * END, "seed {seed}");
        for host in &mut world.hosts {
            host.sink.taken.clear();
        }
        world.hosts[0].send(PeerId(1), 70, 100, 100);
        world.hosts[1].send(PeerId(0), 71, 100, 100);
        world.until(|world| world.hosts.iter().all(|host| host.sink.taken.len() == 1));
        assert!(world.is_up(0, 1) && world.is_up(1, 0), "seed {seed}");
    }
}

/// F-2: once it is reported that a connection is down, a write of the peer's that comes late lands nowhere.
#[test]
fn a_late_write_lands_nowhere() {
    for abort_pending in [false, true] {
        let mut world = World::connected(&options(2));
        let mut window = vec![0u8; 4096];
        let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
        let key = world.hosts[0].register(piece, true).unwrap();
        // By XRC, a peer's word is waited for (V-16).
        let until = world.now + Nanos::from_millis(if crate::XRC { 6 } else { 1 });
        world.inject(Fault::Hold { port: world.hosts[0].port, until });
        world.hosts[1].write(PeerId(0), key, 3, 4096, 4096);
        let hca = world.hosts[0].hca;
        if abort_pending {
            world.hosts[0].rail.abort(PeerId(1));
            world.hosts[0].sink.standing.clear();
        } else {
            world.inject(Fault::BreakQp { hca, qp: CONNECTION });
            world.until(|world| !world.is_up(0, 1));
        }
        assert!(world.now < until, "the write is still on its way");
        world.settle();
        assert!(world.now >= until && window.iter().all(|byte| *byte == 0));
        // The same memory and key, for a connection that stands.
        let back = if world.is_up(1, 0) { 1 } else { 0 };
        world.connect(back, 1 - back as u32);
        world.until(|world| world.is_up(0, 1) && world.is_up(1, 0));
        let id = world.hosts[1].write(PeerId(0), key, 4, 4096, 4096);
        world.until(|world| world.hosts[1].is_done(id));
        world.settle();
        assert!(window == crate::world::payload(4, 4096));
    }
}
