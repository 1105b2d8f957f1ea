//! Puts, gets, atomics and flushes on every fabric.

use rerail_core::endpoint::{
    Access, AtomicRequest, FlushRequest, GetRequest, Level, OpError, PutRequest, Remote, SubmitError, Window,
};
use rerail_core::ids::OpId;
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::wire::{AtomicKind, AtomicType, Refusal};

use super::cluster::{Cluster, Ends, Fabric, on_fabrics, pattern, whole};
use crate::driver::RequestError;

const MIB: usize = 1 << 20;
const KEY: u64 = 0x5eed;
const ALL: Access = Access { read: true, write: true, atomic: true };

on_fabrics! {
    a_put_lands_in_the_window: Loop Shm Tcp TwoTcp;
    a_get_brings_the_window: Loop Shm Tcp TwoTcp;
    atomics_bring_the_value_before: Loop Shm Tcp TwoTcp;
    a_flush_comes_after_all_puts: Loop Shm Tcp TwoTcp;
    the_window_decides: Loop Shm Tcp;
}

fn exposed(cluster: &mut Cluster, rank: usize, bytes: usize, access: Access) -> RegionId {
    let region = cluster.empty(rank, bytes);
    let at = MemRef { region, offset: 0 };
    cluster.at(rank).expose(&Window::new(at, bytes as u64, access, KEY)).unwrap();
    region
}

fn remote(ends: Ends, offset: u64) -> Remote {
    Remote { peer: ends.peer_b(), window: KEY, offset }
}

fn a_put_lands_in_the_window(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let window = exposed(&mut cluster, ends.b, 2 * MIB, ALL);
    for (bytes, offset, seed) in [(1, 0, 1), (5000, 7, 2), (MIB, MIB - 100, 3)] {
        for level in [Level::Reusable, Level::Acknowledged, Level::Placed] {
            let source = cluster.filled(ends.a, bytes, seed);
            cluster.at(ends.b).bytes_mut(window).unwrap().fill(0);
            let put = PutRequest {
                level,
                segments: &whole(source, bytes),
                ..PutRequest::new(remote(ends, offset as u64), &[])
            };
            let put = cluster.at(ends.a).put(&put).unwrap();
            assert_eq!(cluster.complete(ends.a, put).unwrap().bytes, bytes as u64);
            if level != Level::Placed {
                let flush = cluster.at(ends.a).flush(&FlushRequest::new(ends.peer_b())).unwrap();
                cluster.complete(ends.a, flush).unwrap();
            }
            let memory = cluster.bytes(ends.b, window);
            assert!(memory[offset..offset + bytes] == pattern(bytes, seed), "{bytes} bytes at {offset}, {level:?}");
            assert!(memory[..offset].iter().chain(&memory[offset + bytes..]).all(|byte| *byte == 0));
        }
    }
}

fn a_get_brings_the_window(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let window = exposed(&mut cluster, ends.b, 2 * MIB, ALL);
    cluster.at(ends.b).bytes_mut(window).unwrap().copy_from_slice(&pattern(2 * MIB, 5));
    for (bytes, offset) in [(1, 0), (5000, 7), (MIB, MIB - 100)] {
        let target = cluster.empty(ends.a, bytes);
        let half = bytes as u64 / 2;
        let segments = [Seg::new(target, half, bytes as u64 - half), Seg::new(target, 0, half)];
        let get = GetRequest::new(remote(ends, offset as u64), &segments);
        let get = cluster.at(ends.a).get(&get).unwrap();
        assert_eq!(cluster.complete(ends.a, get).unwrap().bytes, bytes as u64);
        let expected = pattern(2 * MIB, 5)[offset..offset + bytes].to_vec();
        let (second, first) = cluster.bytes(ends.a, target).split_at(half as usize);
        assert!([first, second].concat() == expected, "{bytes} bytes from {offset}");
    }
}

fn atomic(ends: Ends, offset: u64, kind: AtomicKind, operand: u64, compare: u64) -> AtomicRequest {
    AtomicRequest { compare, ..AtomicRequest::new(remote(ends, offset), kind, AtomicType::U64, operand) }
}

fn atomics_bring_the_value_before(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let window = exposed(&mut cluster, ends.b, 64, ALL);
    for (kind, operand, compare, before, after) in [
        (AtomicKind::Add, 5, 0, 0, 5),
        (AtomicKind::CompareSwap, 9, 5, 5, 9),
        (AtomicKind::CompareSwap, 1, 5, 9, 9),
        (AtomicKind::Mul, 3, 0, 9, 27),
        (AtomicKind::Swap, u64::MAX, 0, 27, u64::MAX),
        (AtomicKind::Add, 2, 0, u64::MAX, 1),
        (AtomicKind::Fetch, 77, 77, 1, 1),
    ] {
        let operation = cluster.at(ends.a).atomic(&atomic(ends, 16, kind, operand, compare)).unwrap();
        assert_eq!(cluster.complete(ends.a, operation).unwrap().old, before, "{kind:?}");
        let value = u64::from_ne_bytes(cluster.bytes(ends.b, window)[16..24].try_into().unwrap());
        assert_eq!(value, after, "{kind:?}");
    }
    // Each of many takes a number of its own, so that every value before is seen once.
    let mut operations: Vec<OpId> = Vec::new();
    while operations.len() < 100 {
        match cluster.at(ends.a).atomic(&atomic(ends, 0, AtomicKind::Add, 1, 0)) {
            Ok(operation) => operations.push(operation),
            Err(error) if error.is_full() => cluster.step(),
            Err(error) => panic!("{error}"),
        }
    }
    let mut seen: Vec<u64> =
        operations.into_iter().map(|operation| cluster.complete(ends.a, operation).unwrap().old).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<u64>>());
}

fn a_flush_comes_after_all_puts(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let window = exposed(&mut cluster, ends.b, 64 * 1024, ALL);
    let source = cluster.filled(ends.a, 64 * 1024, 4);
    for piece in 0..64 {
        let segments = [Seg::new(source, piece * 1024, 1024)];
        let put = PutRequest::new(remote(ends, piece * 1024), &segments);
        cluster.at(ends.a).put(&put).unwrap();
    }
    let flush = cluster.at(ends.a).flush(&FlushRequest::new(ends.peer_b())).unwrap();
    cluster.complete(ends.a, flush).unwrap();
    assert!(cluster.bytes(ends.b, window) == pattern(64 * 1024, 4));
}

fn the_window_decides(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let nothing = Access::default();
    let window = cluster.empty(ends.b, 64);
    let at = MemRef { region: window, offset: 0 };
    let exposed = cluster.at(ends.b).expose(&Window::new(at, 64, nothing, KEY)).unwrap();
    let local = cluster.filled(ends.a, 64, 1);
    let refused = |why| Err(OpError::Refused { peer: ends.peer_b(), why });
    let segments = whole(local, 8);

    let (to, level) = (remote(ends, 0), Level::Placed);
    let put = cluster.at(ends.a).put(&PutRequest { level, ..PutRequest::new(to, &segments) }).unwrap();
    assert_eq!(cluster.complete(ends.a, put), refused(Refusal::NoAccess));
    let get = cluster.at(ends.a).get(&GetRequest::new(remote(ends, 0), &segments)).unwrap();
    assert_eq!(cluster.complete(ends.a, get), refused(Refusal::NoAccess));
    let add = cluster.at(ends.a).atomic(&atomic(ends, 0, AtomicKind::Add, 1, 0)).unwrap();
    assert_eq!(cluster.complete(ends.a, add), refused(Refusal::NoAccess));
    let get = cluster.at(ends.a).get(&GetRequest::new(remote(ends, 60), &segments)).unwrap();
    assert!(matches!(cluster.complete(ends.a, get), Err(OpError::Refused { .. })));
    let float = AtomicRequest { data_type: AtomicType::F64, ..atomic(ends, 0, AtomicKind::And, 1, 0) };
    assert_eq!(cluster.at(ends.a).atomic(&float), Err(RequestError::Submit(SubmitError::BadAtomic)));

    cluster.at(ends.b).deregister(exposed).unwrap();
    let get = cluster.at(ends.a).get(&GetRequest::new(remote(ends, 0), &segments)).unwrap();
    assert_eq!(cluster.complete(ends.a, get), refused(Refusal::NoWindow));
    assert_eq!(cluster.bytes(ends.b, window), [0; 64]);
    cluster.at(ends.b).free(window).unwrap();
}

/// each atomic must be aligned for its type, wherever its window starts.
#[test]
fn atomics_are_aligned_one_by_one() {
    let (mut cluster, ends) = Cluster::new(Fabric::Loop);
    let region = cluster.empty(ends.b, 64);
    let window = Window::new(MemRef { region, offset: 4 }, 32, ALL, KEY);
    cluster.at(ends.b).expose(&window).unwrap();
    for (offset, is_good) in [(0, false), (4, true), (8, false), (12, true)] {
        let add = cluster.at(ends.a).atomic(&atomic(ends, offset, AtomicKind::Add, 1, 0)).unwrap();
        assert_eq!(cluster.complete(ends.a, add).is_ok(), is_good, "{offset}");
    }
    assert!(cluster.at(ends.b).free(region).is_err(), "a window names the region");
}

/// The caller's bytes are copied at once; the put is complete as any other.
#[test]
fn an_injected_put_needs_its_buffer_no_longer() {
    let (mut cluster, ends) = Cluster::new(Fabric::Loop);
    let region = cluster.empty(ends.b, 64);
    cluster.at(ends.b).expose(&Window::new(MemRef { region, offset: 0 }, 64, ALL, KEY)).unwrap();
    let mut bytes = [7; 16];
    let put = cluster.at(ends.a).inject_put(&PutRequest::new(remote(ends, 8), &[]), &bytes).unwrap();
    bytes.fill(0);
    assert_eq!(cluster.complete(ends.a, put).map(|done| done.bytes), Ok(16));
    assert_eq!(cluster.bytes(ends.b, region)[7..26], [&[0][..], &[7; 16], &[0, 0]].concat());
    let max = cluster.at(ends.a).config().eager_bytes_max as usize;
    let long = cluster.at(ends.a).inject_put(&PutRequest::new(remote(ends, 8), &[]), &vec![0; max + 1]);
    assert!(matches!(long, Err(RequestError::Submit(SubmitError::TooLong { .. }))), "{long:?}");
}
