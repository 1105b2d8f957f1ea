//! Messages, writes and reads arrive whole, once and in order.

use rerail_core::endpoint::PostStatus;
use rerail_core::ids::PeerId;
use rerail_linux::rail::verbs::VerbsOptions;
use rerail_linux::rail::{Piece, Rail};
use rerail_sim::hca::Fault;

use crate::cluster::{Cluster, options, payload};

/// L-2, V-8: inline ones, copied ones, empty ones, those as long as they may be, in one piece and in many.
#[test]
fn packets_of_all_sizes_are_sent_both_ways() {
    let mut cluster = Cluster::connected(&options(2));
    let sizes = [0, 1, 200, 201, 224, 225, 1000, 4095, 4096];
    let mut number = 0;
    for piece_bytes in [7, 500, 5000] {
        for bytes in sizes {
            for side in 0..2 {
                cluster.hosts[side].send(PeerId(1 - side as u32), number, bytes, piece_bytes);
            }
            number += 1;
            let count = number as usize;
            cluster.until(|cluster| cluster.hosts.iter().all(|host| host.sink.completed.len() == count));
        }
    }
    cluster.run_until_idle();
    for side in 0..2 {
        assert_eq!(cluster.hosts[side].numbers_from(PeerId(1 - side as u32)), (0..number).collect::<Vec<_>>());
        let counters = cluster.hosts[side].rail.counters();
        assert_eq!((counters.packets_sent, counters.packets_received), (number, number));
        assert_eq!(counters.bytes_sent, counters.bytes_received);
    }
}

/// L-4: more posts than buffers, and than the peer has receives: they wait, and nothing is lost or out of
/// order.
#[test]
fn posts_wait_for_buffers_and_for_receives() {
    let options = VerbsOptions { posts_max: 64, sends: 3, receives: 4, ..options(2) };
    let mut cluster = Cluster::connected(&options);
    for number in 0..64 {
        cluster.hosts[0].send(PeerId(1), number, 1500, 400);
    }
    // The receiver does not poll for a while.
    let quiet = cluster.now.0 + 3_000_000;
    cluster.until_polling(|host| host == 0, |cluster| cluster.now.0 > quiet);
    assert!(cluster.hosts[0].sink.completed.len() < 16, "no more than there are receives");
    cluster.until(|cluster| cluster.hosts[0].sink.completed.len() == 64);
    cluster.run_until_idle();
    assert_eq!(cluster.hosts[1].numbers_from(PeerId(0)), (0..64).collect::<Vec<_>>());
    assert!(cluster.hosts.iter().all(|host| host.sink.down.is_empty()));
}

/// Links take turns for buffers.
#[test]
fn peer_that_does_not_poll_blocks_others_only_temporarily() {
    let options = VerbsOptions { posts_max: 16, sends: 24, ..options(3) };
    let mut cluster = Cluster::new([options.clone(), options.clone(), options]);
    cluster.connect(0, 1);
    cluster.connect(0, 2);
    cluster.until(|cluster| (1..3).all(|peer| cluster.is_up(0, peer as u32) && cluster.is_up(peer, 0)));
    for number in 0..16 {
        cluster.hosts[0].send(PeerId(1), number, 3000, 3000);
        cluster.hosts[0].send(PeerId(2), number, 3000, 3000);
    }
    cluster.until_polling(|host| host != 1, |cluster| cluster.hosts[2].sink.taken.len() == 16);
    assert!(cluster.hosts[1].sink.taken.is_empty());
    cluster.until(|cluster| cluster.hosts[1].sink.taken.len() == 16);
}

/// V-8: writes and reads, in pieces, more pieces than a request names, and short ones.
#[test]
fn writes_and_reads_hit_their_place() {
    let mut cluster = Cluster::connected(&options(2));
    let mut window = vec![0u8; 16 * 1024];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    let writable = cluster.hosts[1].register(piece, true).unwrap();
    let readable = cluster.hosts[1].register(piece, false).unwrap();
    assert_ne!((writable.key, writable.address), (readable.key, readable.address));
    let mut at = 0;
    for (number, bytes, piece_bytes) in [(1, 4096, 4096), (2, 3000, 1000), (3, 2000, 100), (4, 20, 20), (5, 4000, 3)] {
        let mut to = writable;
        to.address += at as u64;
        let id = cluster.hosts[0].write(PeerId(1), to, number, bytes, piece_bytes);
        let mut from = readable;
        from.address += at as u64;
        let (read, memory) = cluster.hosts[0].read(PeerId(1), from, bytes, piece_bytes);
        cluster.until(|cluster| cluster.hosts[0].is_done(id) && cluster.hosts[0].is_done(read));
        assert_eq!(cluster.hosts[0].post_memory(memory), payload(number, bytes), "{bytes} in pieces of {piece_bytes}");
        at += bytes;
    }
    cluster.hosts[1].rail.deregister(writable);
    cluster.hosts[1].rail.deregister(readable);
    let mut expected = Vec::new();
    for (number, bytes) in [(1, 4096), (2, 3000), (3, 2000), (4, 20), (5, 4000)] {
        expected.extend(payload(number, bytes));
    }
    assert_eq!(&window[..at], expected);
    assert!(window[at..].iter().all(|byte| *byte == 0));
}

/// Where no registration is to be had, the rail's own buffers do.
#[test]
fn without_registrations_transfers_go_through_buffers() {
    let mut cluster = Cluster::connected(&options(2));
    let mut window = vec![0u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    let key = cluster.hosts[1].register(piece, true).unwrap();
    let hca = cluster.hosts[0].hca;
    let before = cluster.fabric.borrow().objects(hca).mrs;
    cluster.inject(Fault::RefuseRegistrations { hca, count: 2 });
    let write = cluster.hosts[0].write(PeerId(1), key, 9, 4096, 4096);
    assert_eq!(cluster.fabric.borrow().objects(hca).mrs, before);
    cluster.until(|cluster| cluster.hosts[0].is_done(write));
    let readable = cluster.hosts[1].register(piece, false).unwrap();
    let (read, memory) = cluster.hosts[0].read(PeerId(1), readable, 4096, 4096);
    assert_eq!(cluster.fabric.borrow().objects(hca).mrs, before);
    cluster.until(|cluster| cluster.hosts[0].is_done(read));
    assert_eq!(cluster.hosts[0].post_memory(memory), payload(9, 4096));
    cluster.hosts[1].rail.deregister(key);
    assert_eq!(window, payload(9, 4096));
}

/// Registrations of posts are kept up to the bound, shared, and forgotten on demand.
#[test]
fn cached_registrations_stay_within_their_limit() {
    let mut cluster = Cluster::connected(&VerbsOptions { registrations_max: 2, ..options(2) });
    let mut window = vec![0u8; 4096];
    let piece = Piece { start: window.as_mut_ptr(), len: window.len() };
    let key = cluster.hosts[1].register(piece, true).unwrap();
    let hca = cluster.hosts[0].hca;
    let mrs = |cluster: &Cluster| cluster.fabric.borrow().objects(hca).mrs;
    let before = mrs(&cluster);
    for number in 0..5 {
        let id = cluster.hosts[0].write(PeerId(1), key, number, 2000, 2000);
        assert_eq!(mrs(&cluster), before + (number as u32 + 1).min(2));
        cluster.until(|cluster| cluster.hosts[0].is_done(id));
        assert_eq!(mrs(&cluster), before + (number as u32 + 1).min(2));
    }
    let everything = Piece { start: std::ptr::null_mut(), len: usize::MAX };
    cluster.hosts[0].rail.forget(everything);
    // The slab's stays.
    assert_eq!((mrs(&cluster), before), (1, 1));
}

/// A post that can't be done ends the subchannel, and reports it.
#[test]
fn a_post_longer_than_any_message_fails() {
    let mut cluster = Cluster::connected(&options(2));
    let id = cluster.hosts[0].send(PeerId(1), 1, 5000, 5000);
    cluster.until(|cluster| !cluster.is_up(0, 1) && !cluster.is_up(1, 0));
    assert_eq!(cluster.hosts[0].sink.completed, [(id, PostStatus::Failed)]);
}
