//! Regions that peers may map (L-18): requests by them, given back and allocated again at the same address.

use rerail_core::endpoint::{Access, GetRequest, RecvRequest, Remote, Selector, SendRequest, Window};
use rerail_core::mem::{MemRef, RegionId, Seg};

use super::cluster::{Cluster, Ends, Fabric, on_fabrics, pattern, whole};
use crate::driver::MemoryError;

const MIB: usize = 1 << 20;

on_fabrics! {
    messages_come_out_of_shared_regions: Loop Shm Tcp;
}

fn shared(cluster: &mut Cluster, rank: usize, bytes: usize, seed: u8) -> RegionId {
    let region = cluster.at(rank).alloc_shared(bytes).unwrap();
    assert!(cluster.bytes(rank, region).iter().all(|byte| *byte == 0));
    cluster.at(rank).bytes_mut(region).unwrap().copy_from_slice(&pattern(bytes, seed));
    region
}

fn send(cluster: &mut Cluster, ends: Ends, (source, offset): (RegionId, usize), bytes: usize) -> Vec<u8> {
    let target = cluster.empty(ends.b, bytes);
    let from = Selector { source: Some(ends.peer_a()), ..Selector::ANY_UNTAGGED };
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(from, &whole(target, bytes))).unwrap();
    let segments = [Seg::new(source, offset as u64, bytes as u64)];
    let send = cluster.at(ends.a).send(&SendRequest::new(ends.peer_b(), &segments)).unwrap();
    assert_eq!(cluster.complete(ends.b, recv).unwrap().bytes, bytes as u64);
    cluster.complete(ends.a, send).unwrap();
    let got = cluster.bytes(ends.b, target).to_vec();
    cluster.at(ends.b).free(target).unwrap();
    got
}

fn messages_come_out_of_shared_regions(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    for seed in 0..6 {
        // The system likes to give the address of the last one again.
        let source = shared(&mut cluster, ends.a, MIB, seed);
        for round in 0..8u8 {
            let (offset, bytes) = [(0, MIB), (4097, 100_000), (MIB - 20_000, 20_000), (3, 9)][usize::from(round % 4)];
            let got = send(&mut cluster, ends, (source, offset), bytes);
            assert!(got == pattern(MIB, seed ^ round)[offset..][..bytes], "region {seed}, message {round}");
            // Another message from the same place.
            let next = pattern(MIB, seed ^ (round + 1));
            cluster.at(ends.a).bytes_mut(source).unwrap().copy_from_slice(&next);
        }
        let mut freed = false;
        cluster.until("the region is free", |cluster| {
            let free = cluster.at(ends.a).free(source);
            assert!(matches!(free, Ok(()) | Err(MemoryError::InUse(_))));
            freed |= free.is_ok();
            freed
        });
    }
}

/// Gets come out of a window in such a region.
#[test]
fn a_window_may_lie_in_a_shared_region() {
    let (mut cluster, ends) = Cluster::new(Fabric::Shm);
    let window = shared(&mut cluster, ends.b, MIB, 9);
    let access = Access { read: true, write: false, atomic: false };
    let at = MemRef { region: window, offset: 0 };
    cluster.at(ends.b).expose(&Window::new(at, MIB as u64, access, 5)).unwrap();
    for round in 0..200 {
        let (offset, bytes) = (round * 64, 300_000 + round);
        let target = cluster.empty(ends.a, bytes);
        let remote = Remote { peer: ends.peer_b(), window: 5, offset: offset as u64 };
        let get = cluster.at(ends.a).get(&GetRequest::new(remote, &whole(target, bytes))).unwrap();
        assert_eq!(cluster.complete(ends.a, get).unwrap().bytes, bytes as u64);
        assert!(cluster.bytes(ends.a, target) == &pattern(MIB, 9)[offset..][..bytes]);
        cluster.at(ends.a).free(target).unwrap();
    }
}

/// The receiver has the region mapped after a few messages, for reading, and no longer once it was given
/// back.
#[test]
fn a_shared_region_is_mapped_by_its_reader() {
    // A size that no other test has, for all of them run in one process.
    const BYTES: usize = MIB + 123 * 4096;
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_it = |line: &&str| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let address = |text| usize::from_str_radix(text, 16).unwrap();
            address(to) - address(from) == BYTES && rest.starts_with("r--s") && rest.contains("rerail-memory")
        };
        maps.lines().filter(is_it).count()
    };
    let (mut cluster, ends) = Cluster::new(Fabric::Shm);
    let source = shared(&mut cluster, ends.a, BYTES, 1);
    assert_eq!(mapped(), 0);
    send(&mut cluster, ends, (source, 0), BYTES);
    cluster.until("question and answer", |_| mapped() == 1);
    send(&mut cluster, ends, (source, 0), BYTES);
    cluster.until("the region is free", |cluster| cluster.at(ends.a).free(source).is_ok());
    cluster.until("its mapping is given up", |_| mapped() == 0);
}

/// L-23: while a message is copied by both sides, the sender writes to the receiver's memory from its own
/// process; no reference to that is lent meanwhile.
#[test]
fn memory_of_a_joint_copy_is_not_lent() {
    const BYTES: usize = 64 * MIB;
    let (mut cluster, ends) = Cluster::new(Fabric::Shm);
    let (source, target) = (cluster.filled(ends.a, BYTES, 3), cluster.empty(ends.b, BYTES));
    let from = Selector { source: Some(ends.peer_a()), ..Selector::ANY_UNTAGGED };
    let recv = cluster.at(ends.b).recv(&RecvRequest::new(from, &whole(target, BYTES))).unwrap();
    let send = cluster.at(ends.a).send(&SendRequest::new(ends.peer_b(), &whole(source, BYTES))).unwrap();
    let arrived = |cluster: &Cluster| {
        let mut bytes = [0; BYTES / 4096];
        let places = bytes.iter_mut().enumerate();
        let read = |(at, byte): (usize, &mut u8)| {
            let at = Seg::new(target, at as u64 * 4096 + 1, 1).at;
            cluster.transports[ends.b].read(at, std::slice::from_mut(byte)).unwrap();
        };
        places.for_each(read);
        bytes.iter().filter(|byte| **byte != 0).count()
    };
    cluster.until("the copy has begun", |cluster| arrived(cluster) > 0);
    let before = arrived(&cluster);
    for _ in 0..1000 {
        cluster.at(ends.a).round();
    }
    assert!(arrived(&cluster) > before, "the sender alone has written");
    assert_eq!(cluster.at(ends.b).bytes(target), Err(MemoryError::InUse(target)));
    assert_eq!(cluster.at(ends.b).bytes_mut(target), Err(MemoryError::InUse(target)));
    assert_eq!(cluster.at(ends.a).bytes_mut(source), Err(MemoryError::InUse(source)));
    assert_eq!(cluster.complete(ends.b, recv).unwrap().bytes, BYTES as u64);
    cluster.complete(ends.a, send).unwrap();
    assert!(cluster.bytes(ends.b, target) == pattern(BYTES, 3));
}

/// M-9: messages that a receive for many has brought are lent while it waits for more.
#[test]
fn messages_are_lent_while_their_buffer_is_posted() {
    let (mut cluster, ends) = Cluster::new(Fabric::Loop);
    let (source, target) = (cluster.filled(ends.a, 20, 5), cluster.empty(ends.b, 100));
    let multi = RecvRequest { multi: Some(10), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
    let multi = RecvRequest { segments: &whole(target, 100), ..multi };
    let recv = cluster.at(ends.b).recv(&multi).unwrap();
    let send = cluster.at(ends.a).send(&SendRequest::new(ends.peer_b(), &whole(source, 20))).unwrap();
    cluster.complete(ends.a, send).unwrap();
    cluster.complete(ends.b, recv).unwrap();
    let transport = cluster.at(ends.b);
    assert!(transport.part(&Seg::new(target, 0, 20)).unwrap() == pattern(20, 5));
    assert!(transport.part_mut(&Seg::new(target, 0, 20)).is_ok());
    for rest in [Seg::new(target, 19, 2), Seg::new(target, 99, 1)] {
        assert_eq!(transport.part(&rest), Err(MemoryError::InUse(target)));
    }
    assert_eq!(transport.free(target), Err(MemoryError::InUse(target)));
    transport.cancel(recv).unwrap();
    assert_eq!(transport.bytes(target).map(<[u8]>::len), Ok(100));
}
