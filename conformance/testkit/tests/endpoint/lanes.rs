//! Order, acknowledgment and credits between endpoints.

use super::*;
use rerail_core::config::Policy;

/// M-1, S-8: messages of one sender are matched in the order of submission, whatever rails they take and
/// reorder.
#[test]
fn messages_over_many_rails_are_matched_in_order() {
    for rails in [&[TCP, TCP][..], &[SHM, PUT, GET, TCP]] {
        let config = Config { multiplex: Policy::RoundRobin, ..small() };
        let mut out_of_order = 0;
        for seed in 0..40 {
            let mut regions = regions(&config, 2);
            let mut cluster = Cluster::new(&mut regions, &config, rails, &[400_000], seed);
            let early = seed % 60;
            let post = |cluster: &mut Cluster<'_>, n: u64| {
                let into = seg(100_000 + 3000 * n, 3000);
                let recv = RecvRequest { cookie: Cookie(n), ..RecvRequest::new(Selector::ANY_UNTAGGED, &into) };
                cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
            };
            for n in 0..early.min(50) {
                post(&mut cluster, n);
            }
            for n in 0..50u64 {
                let len = [0, 10, 900, 2500][n as usize % 4];
                let send =
                    SendRequest { immediate: Some(n), segments: &seg(0, len), ..SendRequest::new(PeerId(1), &[]) };
                cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
            }
            cluster.run_until_idle();
            for n in early.min(50)..50 {
                post(&mut cluster, n);
            }
            cluster.run_until_idle();
            for (cookie, done) in completions(&mut cluster, 1) {
                assert_eq!(done.unwrap().immediate, Some(cookie), "seed {seed}");
            }
            out_of_order += cluster.nodes[1].endpoint.stats().out_of_order;
        }
        assert!(out_of_order > 100, "the rails did reorder: {out_of_order}");
    }
}

/// M-9: messages complete in any order; their numbers in a multi-receive give the order of sending, which the
/// places of messages of 0 bytes do not.
#[test]
fn multi_receives_number_their_messages_as_they_were_sent() {
    for rails in [&[TCP, TCP][..], &[SHM, PUT, GET, TCP]] {
        let config = Config { multiplex: Policy::RoundRobin, ..small() };
        let mut swapped = 0;
        for seed in 0..40 {
            let mut regions = regions(&config, 2);
            let mut cluster = Cluster::new(&mut regions, &config, rails, &[400_000], seed);
            let recv = RecvRequest {
                multi: Some(1),
                segments: &seg(100_000, 200_000),
                ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
            };
            let early = seed % 2 == 0;
            if early {
                cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
            }
            for n in 0..25u64 {
                let len = [0, 2500, 0, 0, 900][n as usize % 5];
                let send =
                    SendRequest { immediate: Some(n), segments: &seg(0, len), ..SendRequest::new(PeerId(1), &[]) };
                cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
            }
            cluster.run_until_idle();
            if !early {
                cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
                cluster.run_until_idle();
            }
            let mut seen: Vec<_> = cluster.nodes[1]
                .events
                .iter()
                .filter_map(|event| match event {
                    Event::Completed(Completion { result: Ok(done), index, .. }) => {
                        Some((*index, done.immediate, done.offset))
                    }
                    _ => None,
                })
                .collect();
            swapped += usize::from(!seen.is_sorted());
            // As by their places, which don't distinguish empty messages.
            seen.sort_unstable_by_key(|&(index, ..)| index);
            assert!(seen.is_sorted_by_key(|&(_, _, offset)| offset), "seed {seed}: {seen:?}");
            let sent: Vec<_> = (0..25).map(|n| (n, Some(u64::from(n)))).collect();
            assert_eq!(seen.iter().map(|&(index, immediate, _)| (index, immediate)).collect::<Vec<_>>(), sent);
        }
        assert!(swapped > 10, "messages did complete in another order: {swapped}");
    }
}

/// C-1, C-2: a flood without receives stops at the grant, continues as receives come, and no message is lost.
#[test]
fn a_flood_waits_for_credit() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP, TCP], &[400_000], 5);
    for n in 0..200u64 {
        let send = SendRequest { immediate: Some(n), segments: &seg(0, 500), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    }
    cluster.run_until_idle();
    let held = cluster.nodes[1].endpoint.stats().unexpected;
    assert_eq!(held, 32, "as many as were granted");
    for n in 0..200u64 {
        let recv = RecvRequest {
            cookie: Cookie(n),
            segments: &seg(1000 * n, 500),
            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
        };
        cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
        if n % 50 == 0 {
            cluster.run_until_idle();
        }
    }
    cluster.run_until_idle();
    let got = completions(&mut cluster, 1);
    assert_eq!(got.len(), 200);
    for (cookie, done) in got {
        assert_eq!(done.unwrap().immediate, Some(cookie));
    }
}

/// without any packet in the other direction, acknowledgments still come, but far fewer than packets.
#[test]
fn acknowledgments_are_few() {
    let config = Config { retained_max: 256, ..small() };
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[10_000], 5);
    for n in 0..200u64 {
        let endpoint = &mut cluster.nodes[1].endpoint;
        endpoint
            .recv(Time(0), &RecvRequest { cookie: Cookie(n), ..RecvRequest::new(Selector::ANY_UNTAGGED, &seg(0, 64)) })
            .unwrap();
    }
    for n in 0..200u64 {
        let send = SendRequest { cookie: Cookie(n), segments: &seg(0, 64), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    }
    cluster.run_until_idle();
    let acks = cluster.nodes[1].endpoint.stats().acks_explicit;
    assert!((10..=60).contains(&acks), "{acks} explicit acknowledgments for 200 packets");
    assert!(cluster.nodes[0].endpoint.usage().packets.used == 0);
    assert_eq!(completions(&mut cluster, 0).len(), 200);
}

/// a large message goes over all rails, in parts of equal size (multirail-2004, even striping).
#[test]
fn a_large_message_uses_all_rails() {
    let config = small();
    for (rails, sort) in [(&[TCP, TCP][..], 1), (&[PUT, PUT], 2), (&[GET, GET], 3)] {
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, rails, &[400_000], 5);
        let recv = RecvRequest { segments: &seg(200_000, 100_000), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
        cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
        let send = SendRequest { segments: &seg(0, 100_000), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
        cluster.run_until_idle();
        assert!(cluster.counts[sort] >= 20, "{:?}", cluster.counts);
    }
}
