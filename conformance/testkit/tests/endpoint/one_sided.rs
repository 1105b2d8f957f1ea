//! Put, get, atomics, flush, and their refusal.

use super::*;

const ALL: Access = Access { read: true, write: true, atomic: true };

fn expose(cluster: &mut Cluster<'_>, rank: usize, at: u64, len: u64, access: Access, key: u64) -> WindowId {
    let window = Window::new(MemRef { region: HEAP, offset: at }, len, access, key);
    cluster.nodes[rank].endpoint.expose(&window).unwrap()
}

fn remote(offset: u64) -> Remote {
    Remote { peer: PeerId(1), window: 77, offset }
}

/// put and get of every length; the flush comes after both.
#[test]
fn put_then_flush_then_get() {
    let config = small();
    for rails in ALL_RAILS {
        for len in [0u64, 1, 1000, 5001, 100_000] {
            let mut regions = regions(&config, 2);
            let mut cluster = Cluster::new(&mut regions, &config, rails, &[400_000], len);
            expose(&mut cluster, 1, 200_000, 150_000, ALL, 77);
            fill(&mut cluster, 0, 0, len, 3);
            let endpoint = &mut cluster.nodes[0].endpoint;
            let put = PutRequest { cookie: Cookie(1), segments: &seg(0, len), ..PutRequest::new(remote(100), &[]) };
            endpoint.put(Time(0), &put).unwrap();
            endpoint.flush(Time(0), &FlushRequest { cookie: Cookie(2), ..FlushRequest::new(PeerId(1)) }).unwrap();
            cluster.run_until_idle();
            let order: Vec<_> = cluster.nodes[0]
                .events
                .iter()
                .filter_map(|e| match e {
                    Event::Completed(c) => Some(c.cookie.0),
                    _ => None,
                })
                .collect();
            assert_eq!(order, [1, 2]);
            assert_filled(&cluster, 1, 200_100, len, 3);
            let get =
                GetRequest { cookie: Cookie(3), segments: &seg(150_000, len), ..GetRequest::new(remote(100), &[]) };
            cluster.nodes[0].endpoint.get(Time(cluster.now), &get).unwrap();
            cluster.run_until_idle();
            assert_eq!(completions(&mut cluster, 0)[&3].unwrap().bytes, len);
            assert_filled(&cluster, 0, 150_000, len, 3);
            assert!(cluster.nodes.iter().all(|n| is_idle(&n.endpoint)), "slots leak");
        }
    }
}

/// a window is free again when the peer that was writing to it is lost in the middle of a packet.
#[test]
fn window_is_released_when_its_writing_peer_is_lost() {
    let config = small();
    for seed in 0..20 {
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[100_000], seed);
        let window = expose(&mut cluster, 1, 0, 50_000, ALL, 77);
        let put = PutRequest { segments: &seg(0, 40_000), ..PutRequest::new(remote(0), &[]) };
        cluster.nodes[0].endpoint.put(Time(0), &put).unwrap();
        while cluster.nodes[1].endpoint.usage().windows_busy.used == 0 {
            cluster.act(0);
            cluster.act(1);
            let from = cluster.rng.below(2) as usize;
            cluster.step_link(from, 1 - from, 0);
            cluster.now += 100;
        }
        assert_eq!(cluster.nodes[1].endpoint.deregister(window), Err(DeregisterError::Busy));
        // The rest of the packet never comes.
        let down = RailEvent::Down { peer: PeerId(0), rail: RailId(0), fault: RailFault::Closed };
        cluster.nodes[1].endpoint.handle_rail_event(Time(cluster.now), down);
        assert_eq!(cluster.nodes[1].endpoint.deregister(window), Ok(()), "seed {seed}");
        assert!(!cluster.nodes[1].endpoint.uses_region(HEAP));
    }
}

/// R-6, C-5: many more atomics than the peer serves at once: each is applied once, the old values are a
/// permutation.
#[test]
fn fetch_and_add_is_exactly_once() {
    let config = small();
    for rails in ALL_RAILS {
        let mut regions = regions(&config, 3);
        let mut cluster = Cluster::new(&mut regions, &config, rails, &[4096], 11);
        expose(&mut cluster, 1, 0, 64, ALL, 77);
        for rank in 0..3 {
            for n in 0..60 {
                let atomic = AtomicRequest {
                    cookie: Cookie(n),
                    ..AtomicRequest::new(remote(8), AtomicKind::Add, AtomicType::U64, 1)
                };
                cluster.nodes[rank].endpoint.atomic(Time(0), &atomic).unwrap();
            }
        }
        cluster.run_until_idle();
        let mut olds: Vec<u64> = Vec::new();
        for rank in 0..3 {
            olds.extend(completions(&mut cluster, rank).into_values().map(|done| done.unwrap().old));
        }
        olds.sort_unstable();
        assert_eq!(olds, (0..180).collect::<Vec<_>>());
        assert_eq!(cluster.counts[4], 180);
        assert!(cluster.nodes.iter().all(|n| is_idle(&n.endpoint)), "slots leak");
    }
}

/// what is not exposed, not allowed or out of range is refused by name, and the channel goes on.
#[test]
fn refusals() {
    use rerail_core::wire::Refusal::*;
    let config = small();
    let mut regions = regions(&config, 2);
    for rails in [&[TCP][..], &[TCP, TCP]] {
        let mut cluster = Cluster::new(&mut regions, &config, rails, &[400_000], 1);
        expose(&mut cluster, 1, 0, 100_000, Access { read: true, ..Access::default() }, 77);
        expose(&mut cluster, 1, 200_000, 1000, Access { write: true, ..Access::default() }, 78);
        let e = &mut cluster.nodes[0].endpoint;
        let to = |window, offset| Remote { peer: PeerId(1), window, offset };
        let one = seg(0, 100);
        let big = seg(0, 90_000);
        let put = |to, segments, n| PutRequest { cookie: Cookie(n), ..PutRequest::new(to, segments) };
        let get = |from, segments, n| GetRequest { cookie: Cookie(n), ..GetRequest::new(from, segments) };
        let atomic =
            |at, n| AtomicRequest { cookie: Cookie(n), ..AtomicRequest::new(at, AtomicKind::Add, AtomicType::U64, 0) };
        e.put(Time(0), &put(to(77, 0), &one, 1)).unwrap();
        e.put(Time(0), &put(to(78, 950), &one, 2)).unwrap();
        e.put(Time(0), &put(to(99, 0), &big, 3)).unwrap();
        e.put(Time(0), &put(to(78, u64::MAX - 10), &one, 4)).unwrap();
        e.get(Time(0), &get(to(78, 0), &one, 5)).unwrap();
        e.get(Time(0), &get(to(77, 99_999), &one, 6)).unwrap();
        e.get(Time(0), &get(to(1, 0), &big, 7)).unwrap();
        e.atomic(Time(0), &atomic(to(77, 0), 8)).unwrap();
        e.put(Time(0), &put(to(78, 900), &one, 9)).unwrap();
        cluster.run_until_idle();
        let got = completions(&mut cluster, 0);
        let why: Vec<_> = got
            .values()
            .map(|r| {
                r.map(|d| d.bytes).map_err(|e| match e {
                    OpError::Refused { peer: PeerId(1), why } => why,
                    other => panic!("{other:?}"),
                })
            })
            .collect();
        assert_eq!(
            why,
            [
                Err(NoAccess),
                Err(OutOfRange),
                Err(NoWindow),
                Err(OutOfRange),
                Err(NoAccess),
                Err(OutOfRange),
                Err(NoWindow),
                Err(NoAccess),
                Ok(100),
            ]
        );
        assert!(cluster.nodes.iter().all(|n| is_idle(&n.endpoint)), "slots leak");
    }
}

/// a window can't be taken away while a get is answered from it; afterwards access is refused.
#[test]
fn a_window_in_use_stays() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[400_000], 1);
    let window = expose(&mut cluster, 1, 0, 100_000, ALL, 77);
    let get = GetRequest { cookie: Cookie(1), segments: &seg(0, 100_000), ..GetRequest::new(remote(0), &[]) };
    cluster.nodes[0].endpoint.get(Time(0), &get).unwrap();
    while cluster.nodes[1].endpoint.usage().windows_busy.used == 0 {
        for (near, far) in [(0, 1), (1, 0)] {
            cluster.act(near);
            cluster.step_link(near, far, 0);
        }
    }
    assert_eq!(cluster.nodes[1].endpoint.deregister(window), Err(DeregisterError::Busy));
    cluster.run_until_idle();
    cluster.nodes[1].endpoint.deregister(window).unwrap();
    assert_eq!(cluster.nodes[1].endpoint.deregister(window), Err(DeregisterError::Unknown));
    assert!(completions(&mut cluster, 0)[&1].is_ok());
    cluster.nodes[0].endpoint.get(Time(cluster.now), &get).unwrap();
    cluster.run_until_idle();
    assert!(matches!(completions(&mut cluster, 0)[&1], Err(OpError::Refused { .. })));
}

/// ranks that refuse each other's puts, and their own, at the same time don't wait for each other; no
/// refusal is overtaken by its acknowledgment, whatever the rails do.
#[test]
fn mutual_refusals_all_end() {
    let config = small();
    for seed in 0..300 {
        let rails = ALL_RAILS[seed as usize % 6];
        let mut regions = regions(&config, 3);
        let mut cluster = Cluster::new(&mut regions, &config, rails, &[400_000], seed);
        for rank in 0..3 {
            expose(&mut cluster, rank, 0, 1000, Access { write: true, ..Access::default() }, 77);
        }
        for n in 0..24u64 {
            let rank = (n % 3) as usize;
            let (peer, good) = (PeerId((n / 3 % 3) as u32), n % 2 == 0);
            let to = Remote { peer, window: if good { 77 } else { 78 }, offset: 0 };
            let put = PutRequest { cookie: Cookie(n), segments: &seg(2000, 100), ..PutRequest::new(to, &[]) };
            cluster.nodes[rank].endpoint.put(Time(0), &put).unwrap();
            if n >= 20 {
                let flush = FlushRequest { cookie: Cookie(100 + n), ..FlushRequest::new(peer) };
                cluster.nodes[rank].endpoint.flush(Time(0), &flush).unwrap();
            }
        }
        cluster.run_until_idle();
        let mut reported = 0;
        for rank in 0..3 {
            for (n, result) in completions(&mut cluster, rank) {
                reported += 1;
                assert_eq!(result.is_ok(), n >= 100 || n % 2 == 0, "seed {seed}, put {n}: {result:?}");
            }
            assert!(
                is_idle(&cluster.nodes[rank].endpoint),
                "seed {seed}: slots leak: {:?}",
                cluster.nodes[rank].endpoint
            );
        }
        assert_eq!(reported, 28, "seed {seed}");
    }
}
