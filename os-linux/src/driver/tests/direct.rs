//! Puts and gets that are carried out at once, in windows of a region that peers may write (L-26).

use rerail_core::endpoint::{
    Access, Event, FlushRequest, GetRequest, Notify, OpError, PutRequest, Remote, RequestKind, Window,
};
use rerail_core::ids::{Cookie, WindowId};
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::wire::Refusal;

use super::cluster::{Cluster, Ends, Fabric, on_fabrics, pattern, whole};
use crate::driver::MemoryError;

const BYTES: usize = 200_000;
const KEY: u64 = 0x5eed;
const BOTH: Access = Access { read: true, write: true, atomic: false };

on_fabrics! {
    windows_that_peers_may_write_are_windows: Loop Shm Tcp;
}

fn exposed(cluster: &mut Cluster, ends: Ends, access: Access) -> (RegionId, WindowId) {
    let region = cluster.at(ends.b).alloc_window(BYTES).unwrap();
    cluster.at(ends.b).bytes_mut(region).unwrap().copy_from_slice(&pattern(BYTES, 1));
    let at = MemRef { region, offset: 0 };
    let window = cluster.at(ends.b).expose(&Window::new(at, BYTES as u64, access, KEY)).unwrap();
    (region, window)
}

fn remote(ends: Ends, offset: usize) -> Remote {
    Remote { peer: ends.peer_b(), window: KEY, offset: offset as u64 }
}

fn put(cluster: &mut Cluster, ends: Ends, offset: usize, bytes: &[u8]) -> Result<u64, OpError> {
    let source = cluster.at(ends.a).alloc(bytes.len()).unwrap();
    cluster.at(ends.a).bytes_mut(source).unwrap().copy_from_slice(bytes);
    let segments = whole(source, bytes.len());
    let put = cluster.at(ends.a).put(&PutRequest::new(remote(ends, offset), &segments)).unwrap();
    let done = cluster.complete(ends.a, put).map(|done| done.bytes);
    cluster.at(ends.a).free(source).unwrap();
    done
}

fn window_bytes(cluster: &Cluster, ends: Ends, region: RegionId, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    cluster.transports[ends.b].read(MemRef { region, offset: offset as u64 }, &mut bytes).unwrap();
    bytes
}

/// Until a put needs the owner no more.
fn warm_up(cluster: &mut Cluster, ends: Ends, region: RegionId) {
    for round in 0_u32.. {
        assert!(round < 100_000, "the window is not mapped");
        cluster.frozen[ends.b] = true;
        let before = window_bytes(cluster, ends, region, 0, 4);
        let source = cluster.filled(ends.a, 4, round as u8 | 1);
        let put = cluster.at(ends.a).put(&PutRequest::new(remote(ends, 0), &whole(source, 4))).unwrap();
        let is_direct = window_bytes(cluster, ends, region, 0, 4) != before;
        cluster.frozen[ends.b] = false;
        cluster.complete(ends.a, put).unwrap();
        cluster.at(ends.a).free(source).unwrap();
        if is_direct {
            return;
        }
    }
}

fn windows_that_peers_may_write_are_windows(fabric: Fabric) {
    let (mut cluster, ends) = Cluster::new(fabric);
    let (region, window) = exposed(&mut cluster, ends, BOTH);
    for round in 0..40_usize {
        let (offset, len) = (round * 997, [1, 8, 5000, 70_001][round % 4]);
        assert_eq!(put(&mut cluster, ends, offset, &pattern(len, round as u8)), Ok(len as u64));
        assert!(window_bytes(&cluster, ends, region, offset, len) == pattern(len, round as u8), "round {round}");
        let target = cluster.empty(ends.a, len);
        let half = len as u64 / 2;
        let segments = [Seg::new(target, half, len as u64 - half), Seg::new(target, 0, half)];
        let get = cluster.at(ends.a).get(&GetRequest::new(remote(ends, offset), &segments)).unwrap();
        assert_eq!(cluster.complete(ends.a, get).unwrap().bytes, len as u64);
        let (second, first) = cluster.bytes(ends.a, target).split_at(half as usize);
        assert!([first, second].concat() == pattern(len, round as u8), "round {round}");
        cluster.at(ends.a).free(target).unwrap();
    }
    let why = Refusal::OutOfRange;
    let refused = Err(OpError::Refused { peer: ends.peer_b(), why });
    assert_eq!(put(&mut cluster, ends, BYTES - 3, &[9; 4]), refused);
    // While the window stands, its bytes are not lent.
    assert_eq!(cluster.at(ends.b).bytes(region), Err(MemoryError::InUse(region)));
    assert_eq!(cluster.at(ends.b).bytes_mut(region), Err(MemoryError::InUse(region)));
    assert_eq!(cluster.at(ends.b).free(region), Err(MemoryError::InUse(region)));
    cluster.until("the window is released", |cluster| cluster.at(ends.b).deregister(window).is_ok());
    assert!(cluster.at(ends.b).bytes(region).is_ok() && cluster.at(ends.b).bytes_mut(region).is_ok());
    assert_eq!(
        put(&mut cluster, ends, 0, &[9; 4]),
        Err(OpError::Refused { peer: ends.peer_b(), why: Refusal::NoWindow })
    );
    cluster.at(ends.b).free(region).unwrap();
}

/// L-26: complete at return, whatever its owner does; reported once, as requested.
#[test]
fn the_owner_of_a_mapped_window_takes_no_part() {
    let (mut cluster, ends) = Cluster::new(Fabric::Shm);
    let (region, _) = exposed(&mut cluster, ends, BOTH);
    warm_up(&mut cluster, ends, region);
    cluster.frozen[ends.b] = true;
    assert_eq!(put(&mut cluster, ends, 50, &pattern(100_000, 7)), Ok(100_000));
    assert!(window_bytes(&cluster, ends, region, 50, 100_000) == pattern(100_000, 7));
    let target = cluster.empty(ends.a, 100_000);
    let get = GetRequest { cookie: Cookie(5), ..GetRequest::new(remote(ends, 50), &[]) };
    let get = cluster.at(ends.a).get(&GetRequest { segments: &whole(target, 100_000), ..get }).unwrap();
    let Some(Event::Completed(done)) = cluster.at(ends.a).poll_event() else { panic!("complete at return") };
    assert_eq!((done.operation, done.cookie, done.kind), (get, Cookie(5), RequestKind::Get));
    assert!(done.last && done.result.is_ok_and(|done| done.bytes == 100_000 && done.peer == ends.peer_b()));
    assert!(cluster.bytes(ends.a, target) == pattern(100_000, 7));
    // Without an event, and of bytes of the caller.
    let silent = PutRequest { notify: Notify::Silent, ..PutRequest::new(remote(ends, 0), &[]) };
    cluster.at(ends.a).inject_put(&silent, b"injected").unwrap();
    assert_eq!(window_bytes(&cluster, ends, region, 0, 8), b"injected");
    // A flush with nothing before it.
    let flush = cluster.at(ends.a).flush(&FlushRequest::new(ends.peer_b())).unwrap();
    cluster.complete(ends.a, flush).unwrap();
    assert_eq!(cluster.at(ends.a).poll_event(), None);
}

/// behind a request that its owner has to carry out, a fence holds those that it need not.
#[test]
fn a_fence_holds_direct_puts() {
    let (mut cluster, ends) = Cluster::new(Fabric::Shm);
    let (region, _) = exposed(&mut cluster, ends, BOTH);
    warm_up(&mut cluster, ends, region);
    cluster.frozen[ends.b] = true;
    let source = cluster.filled(ends.a, 100, 9);
    let at = |offset, from| (remote(ends, offset), [Seg::new(source, from, 10)]);
    // A put with immediate data goes to its owner.
    let (to, segments) = at(0, 0);
    let first = PutRequest { immediate: Some(1), ..PutRequest::new(to, &segments) };
    let first = cluster.at(ends.a).put(&first).unwrap();
    // Without a fence it is not waited for.
    let (to, segments) = at(1000, 10);
    let free = cluster.at(ends.a).put(&PutRequest::new(to, &segments)).unwrap();
    cluster.complete(ends.a, free).unwrap();
    let (to, segments) = at(2000, 20);
    let fenced = cluster.at(ends.a).put(&PutRequest { fence: true, ..PutRequest::new(to, &segments) }).unwrap();
    let (to, segments) = at(3000, 30);
    let behind = cluster.at(ends.a).put(&PutRequest::new(to, &segments)).unwrap();
    (0..100).for_each(|_| cluster.step());
    let bytes = |cluster: &Cluster, offset| window_bytes(cluster, ends, region, offset, 10);
    let (old, new) = (pattern(BYTES, 1), pattern(100, 9));
    assert!(bytes(&cluster, 1000) == new[10..20]);
    assert!(bytes(&cluster, 2000) == old[2000..2010] && bytes(&cluster, 3000) == old[3000..3010]);
    cluster.frozen[ends.b] = false;
    for operation in [first, fenced, behind] {
        if operation == first {
            cluster.until("the put has its event", |cluster| {
                cluster.events[ends.b].iter().any(|event| matches!(event, Event::Written(_)))
            });
        }
        cluster.complete(ends.a, operation).unwrap();
    }
    assert!(bytes(&cluster, 2000) == new[20..30] && bytes(&cluster, 3000) == new[30..40]);
}
