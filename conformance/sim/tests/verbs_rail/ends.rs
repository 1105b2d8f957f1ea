//! How connections end: by faults, by peers that break the protocol, by goodbye, and with the device.

use rerail_core::endpoint::{PostStatus, RailFault};
use rerail_core::ids::PeerId;
use rerail_core::time::Nanos;
use rerail_linux::rail::verbs::VerbsOptions;
use rerail_linux::rail::{Piece, Rail};
use rerail_sim::hca::Fault;
use rerail_sim::net::Direction;

use crate::world::{World, options};

/// Numbers of queue pairs, in the order in which the software HCA gives them.
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
    // IBV_WC_RETRY_EXC_ERR
    assert_eq!(code(world.hosts[0].sink.down[0].1), 12);
    assert!(world.hosts[0].sink.completed.is_empty());
    // The queue pair for datagrams is left; the other side has not noticed anything.
    assert_eq!(world.qps(), 3);
    assert!(world.is_up(1, 0));
}

/// V-6: who calls again has lost what the other side still believes in.
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
    assert_eq!(world.qps(), 4);
}

/// V-7: the other end hears of it.
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
    assert_eq!(world.qps(), 3);
}

/// Disconnect ends all use of payload memory.
#[test]
fn disconnect_ends_transfers_at_once() {
    let mut world = World::connected(&options(2));
    let mut window = vec![1u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    let key = world.hosts[1].rail.register(piece, false).unwrap();
    let hca = world.hosts[0].hca;
    let before = world.fabric.borrow().objects(hca).mrs;
    let (_, memory) = world.hosts[0].read(PeerId(1), key, 4096, 4096);
    assert_eq!(world.fabric.borrow().objects(hca).mrs, before + 1);
    world.hosts[0].rail.disconnect(PeerId(1));
    // Nobody uses it now: it goes on demand.
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
    assert!(world.hosts[0].rail.register(piece, true).is_err());
    world.until(|world| world.hosts[0].sink.down.len() == 4);
    assert_eq!(world.hosts[0].rail.next_timeout(), None);
    assert!(!world.hosts[0].rail.is_closing() && world.hosts[0].rail.arm());
}

/// The completion queue is never too short.
#[test]
fn the_completion_queue_is_deep_enough_for_everything_at_once() {
    let options = VerbsOptions { posts_max: 32, sends: 32, receives: 32, ..options(2) };
    // As deep as asked for, and no deeper.
    let mut world = World::connected(&options);
    for round in 0..4 {
        for number in 0..32 {
            world.hosts[0].send(PeerId(1), round * 32 + number, 100, 100);
            world.hosts[1].send(PeerId(0), round * 32 + number, 100, 100);
        }
        // Nobody polls while everything arrives.
        let quiet = world.now + Nanos::from_millis(5);
        world.fabric.borrow_mut().advance(quiet);
        world.now = quiet;
        let all = (round as usize + 1) * 32;
        world.until(|world| world.hosts.iter().all(|host| host.sink.completed.len() == all));
    }
    assert!(world.hosts.iter().all(|host| host.sink.down.is_empty()));
}
