//! Messages: eager and rendezvous, before and after their receive, truncated, injected, into multi-receive
//! buffers.

use super::*;

/// every length on every set of rails, posted before and after: the bytes arrive, and are
/// reported once.
#[test]
fn a_message_of_any_length_arrives() {
    let config = small();
    for (set, rails) in ALL_RAILS.iter().enumerate() {
        for len in [0u64, 1, 63, 64, 65, 999, 1000, 1001, 5000, 40_000, 200_000] {
            for (level, early) in
                [(Level::Reusable, true), (Level::Acknowledged, false), (Level::Placed, true), (Level::Placed, false)]
            {
                let mut regions = regions(&config, 2);
                let mut cluster = Cluster::new(&mut regions, &config, rails, &[500_000], len ^ set as u64);
                fill(&mut cluster, 0, 0, len, 7);
                let into = seg(250_000, len);
                let recv = RecvRequest { cookie: Cookie(2), ..RecvRequest::new(tagged(None, 5), &into) };
                let send = SendRequest {
                    tag: Some(5),
                    immediate: Some(99),
                    level,
                    cookie: Cookie(1),
                    segments: &seg(0, len),
                    ..SendRequest::new(PeerId(1), &[])
                };
                if early {
                    cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
                }
                cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
                cluster.run_until_idle();
                if !early {
                    cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
                    cluster.run_until_idle();
                }
                let sent = completions(&mut cluster, 0);
                assert_eq!(sent[&1].map(|d| d.bytes), Ok(len), "{rails:?} {level:?} {early}");
                let got = completions(&mut cluster, 1)[&2].expect("received");
                assert_eq!((got.bytes, got.peer, got.tag, got.immediate), (len, PeerId(0), Some(5), Some(99)));
                assert_filled(&cluster, 1, 250_000, len, 7);
                assert!(cluster.nodes.iter().all(|n| n.endpoint.is_quiet(None)));
                assert_eq!(
                    cluster.nodes[0].endpoint.usage().operations.used
                        + cluster.nodes[1].endpoint.usage().operations.used,
                    0,
                    "slots leak"
                );
            }
        }
    }
}

/// placed means matched: without a receive, a send of that level stays open whatever its length.
#[test]
fn placed_waits_for_the_receive_and_the_others_do_not() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[10_000], 3);
    for (cookie, level) in [(1, Level::Reusable), (2, Level::Acknowledged), (3, Level::Placed)] {
        let send =
            SendRequest { level, cookie: Cookie(cookie), segments: &seg(0, 100), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    }
    cluster.run_until_idle();
    assert_eq!(completions(&mut cluster, 0).into_keys().collect::<Vec<_>>(), [1, 2]);
}

/// pieces on both sides, cut differently, on rails that could write or read one piece.
#[test]
fn pieces_are_gathered_and_scattered() {
    let config = small();
    for rails in ALL_RAILS {
        for piece in [10u64, 3000] {
            let mut regions = regions(&config, 2);
            let mut cluster = Cluster::new(&mut regions, &config, rails, &[100_000], piece);
            fill(&mut cluster, 0, 0, 3 * piece, 1);
            let from = [Seg::new(HEAP, 0, piece), Seg::new(HEAP, piece, 0), Seg::new(HEAP, piece, 2 * piece)];
            let into = [Seg::new(HEAP, 50_000, 1), Seg::new(HEAP, 60_000, 3 * piece - 1)];
            let recv = RecvRequest::new(Selector::ANY_UNTAGGED, &into);
            cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
            cluster.nodes[0].endpoint.send(Time(0), &SendRequest::new(PeerId(1), &from)).unwrap();
            cluster.run_until_idle();
            let first = cluster.nodes[1].memory[0][50_000];
            cluster.nodes[1].memory[0][59_999] = first;
            assert_filled(&cluster, 1, 59_999, 3 * piece, 1);
        }
    }
}

/// the receiver gets a truncation error; the sender and the channel continue.
#[test]
fn truncation_is_reported_only_to_the_receiver() {
    let config = small();
    for rails in ALL_RAILS {
        for (len, early) in [(500, true), (500, false), (20_000, true), (20_000, false)] {
            for room in [0, 100] {
                let mut regions = regions(&config, 2);
                let mut cluster = Cluster::new(&mut regions, &config, rails, &[100_000], len);
                fill(&mut cluster, 0, 0, len, 9);
                let recv = RecvRequest {
                    cookie: Cookie(1),
                    segments: &seg(50_000, room),
                    ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
                };
                if early {
                    cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
                }
                let (segments, immediate) = (&seg(0, len), early.then_some(77));
                let send = SendRequest { cookie: Cookie(1), segments, immediate, ..SendRequest::new(PeerId(1), &[]) };
                cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
                cluster.run_until_idle();
                if !early {
                    cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
                    cluster.run_until_idle();
                }
                let expected = OpError::Truncated { sent: len, capacity: room, peer: PeerId(0), tag: None, immediate };
                assert_eq!(completions(&mut cluster, 1)[&1], Err(expected));
                assert!(completions(&mut cluster, 0)[&1].is_ok());
                assert_filled(&cluster, 1, 50_000, room, 9);
                assert_eq!(cluster.nodes[1].memory[0][50_000 + room as usize], 0, "nothing behind the buffer");
            }
        }
    }
}

/// The buffer of an injected message is free at once: what is written to it afterwards is not sent.
#[test]
fn inject_takes_the_bytes_at_once() {
    let config = small();
    for rails in ALL_RAILS {
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, rails, &[4096], 1);
        for len in [0u64, 8, 1000] {
            let recv = RecvRequest {
                cookie: Cookie(len),
                segments: &seg(0, len),
                ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
            };
            cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
            let send = SendRequest { cookie: Cookie(len), ..SendRequest::new(PeerId(1), &[]) };
            let node = &mut cluster.nodes[0];
            let (_, span) = node.endpoint.inject(Time(0), &send, len).unwrap();
            let segs: Vec<_> = node.endpoint.segments(span).collect();
            for seg in segs {
                assert_eq!((seg.at.region, seg.len), (RegionId::POOL, len));
                let pool = node.memory.last_mut().unwrap();
                pool[seg.at.offset as usize..][..len as usize].fill(0xA5);
            }
            cluster.run_until_idle();
            assert!(completions(&mut cluster, 0)[&len].is_ok());
            assert_eq!(completions(&mut cluster, 1)[&len].unwrap().bytes, len);
            assert!(cluster.nodes[1].memory[0][..len as usize].iter().all(|&b| b == 0xA5));
        }
        let send = SendRequest::new(PeerId(1), &[]);
        let too_long = cluster.nodes[0].endpoint.inject(Time(0), &send, 1001);
        assert_eq!(too_long, Err(SubmitError::TooLong { bytes: 1001, max: 1000 }));
    }
}

/// M-8, M-9: one buffer takes message after message and numbers them; the last event gives it back; what
/// doesn't fit goes to the next.
#[test]
fn a_multi_receive_buffer_takes_many_messages() {
    let config = small();
    for rails in ALL_RAILS {
        for early in [true, false] {
            let mut regions = regions(&config, 2);
            let mut cluster = Cluster::new(&mut regions, &config, rails, &[100_000], 4);
            let post = |cluster: &mut Cluster<'_>| {
                for (cookie, at) in [(1, 40_000), (2, 70_000)] {
                    let recv = RecvRequest {
                        multi: Some(500),
                        cookie: Cookie(cookie),
                        segments: &seg(at, 8000),
                        ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
                    };
                    cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
                }
            };
            if early {
                post(&mut cluster);
            }
            fill(&mut cluster, 0, 0, 3000, 5);
            let lens = [100u64, 3000, 900, 0, 3000, 2000, 3000, 2600];
            for (n, &len) in lens.iter().enumerate() {
                let send = SendRequest {
                    immediate: Some(n as u64),
                    segments: &seg(0, len),
                    ..SendRequest::new(PeerId(1), &[])
                };
                cluster.nodes[0].endpoint.send(Time(cluster.now), &send).unwrap();
            }
            cluster.run_until_idle();
            if !early {
                post(&mut cluster);
                cluster.run_until_idle();
            }
            let mut parts = Vec::new();
            let mut released = vec![];
            for event in cluster.nodes[1].events.drain(..) {
                if let Event::Completed(Completion { cookie, result: Ok(done), index, .. }) = event {
                    if let Some(n) = done.immediate {
                        parts.push((n, cookie.0, index, done.offset, done.bytes));
                    }
                    if done.released {
                        released.push(cookie.0);
                        // The release of the first buffer brings no message: it has their count.
                        assert!(done.immediate.is_some() || index == 5, "{index}");
                    }
                }
            }
            parts.sort_unstable();
            // 100 + 3000 + 900 + 0 + 3000 = 7000 in the first; 2000 don't fit there.
            assert_eq!(
                parts,
                [
                    (0, 1, 0, 0, 100),
                    (1, 1, 1, 100, 3000),
                    (2, 1, 2, 3100, 900),
                    (3, 1, 3, 4000, 0),
                    (4, 1, 4, 4000, 3000),
                    (5, 2, 0, 0, 2000),
                    (6, 2, 1, 2000, 3000),
                    (7, 2, 2, 5000, 2600),
                ],
                "{rails:?} {early}"
            );
            released.sort_unstable();
            assert_eq!(released, [1, 2]);
            assert_filled(&cluster, 1, 44_000, 3000, 5);
            assert_filled(&cluster, 1, 75_000, 2600, 5);
            assert_eq!(cluster.nodes[1].endpoint.usage().operations.used, 0);
        }
    }
}

/// M-9: a message that failed has its number too, and the numbers of each buffer start at 0.
#[test]
fn a_message_that_is_too_long_for_a_multi_receive_is_numbered() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[100_000], 4);
    for cookie in [1, 2] {
        let recv = RecvRequest {
            multi: Some(1),
            cookie: Cookie(cookie),
            segments: &seg(40_000, 50),
            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
        };
        cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
    }
    for len in [80, 0, 1, 0] {
        let send = SendRequest { segments: &seg(0, len), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    }
    cluster.run_until_idle();
    let mut seen: Vec<_> = cluster.nodes[1]
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Completed(Completion { cookie, result, index, .. }) => {
                let bytes = match result {
                    Ok(done) => done.bytes,
                    Err(OpError::Truncated { sent, .. }) => *sent,
                    Err(other) => panic!("{other:?}"),
                };
                Some((cookie.0, *index, bytes))
            }
            _ => None,
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [(1, 0, 80), (1, 1, 0), (2, 0, 0), (2, 1, 1), (2, 2, 0)]);
}

/// M-2, M-5, M-6: probe sees, claim takes out of matching, and only then may the message be received.
#[test]
fn probe_and_claim() {
    let config = small();
    for len in [100u64, 20_000] {
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[100_000], 1);
        fill(&mut cluster, 0, 0, len, 2);
        for (tag, immediate) in [(Some(7), 1), (Some(7), 2), (None, 3)] {
            let send = SendRequest {
                tag,
                immediate: Some(immediate),
                segments: &seg(0, len),
                ..SendRequest::new(PeerId(1), &[])
            };
            cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
        }
        cluster.run_until_idle();
        let endpoint = &mut cluster.nodes[1].endpoint;
        assert_eq!(endpoint.probe(&tagged(None, 8)), None);
        let found = endpoint.probe(&tagged(Some(0), 7)).unwrap();
        assert_eq!((found.bytes, found.immediate, found.peer), (len, Some(1), PeerId(0)));
        let (message, found) = endpoint.claim(&tagged(None, 7)).unwrap();
        assert_eq!(found.immediate, Some(1));
        assert_eq!(endpoint.probe(&tagged(None, 7)).unwrap().immediate, Some(2));
        let wild = Selector { source: None, tag: TagMatch::Tagged { tag: 0, ignore: u64::MAX } };
        let now = Time(cluster.now);
        endpoint.recv(now, &RecvRequest { cookie: Cookie(2), ..RecvRequest::new(wild, &seg(30_000, len)) }).unwrap();
        let recv = RecvRequest {
            cookie: Cookie(1),
            segments: &seg(60_000, len),
            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
        };
        endpoint.recv_claimed(now, message, &recv).unwrap();
        assert_eq!(endpoint.recv_claimed(now, message, &recv), Err(SubmitError::UnknownMessage));
        endpoint
            .recv(now, &RecvRequest { cookie: Cookie(3), ..RecvRequest::new(Selector::ANY_UNTAGGED, &seg(0, len)) })
            .unwrap();
        cluster.run_until_idle();
        let got = completions(&mut cluster, 1);
        for (cookie, immediate) in [(1, 1), (2, 2), (3, 3)] {
            assert_eq!(got[&cookie].unwrap().immediate, Some(immediate));
        }
        assert_filled(&cluster, 1, 60_000, len, 2);
    }
}

/// what has not been sent or matched can be cancelled, nothing else can.
#[test]
fn cancel() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[100_000], 1);
    let endpoint = &mut cluster.nodes[0].endpoint;
    let recv = endpoint
        .recv(Time(0), &RecvRequest { cookie: Cookie(1), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) })
        .unwrap();
    let send = SendRequest { cookie: Cookie(2), segments: &seg(0, 100), ..SendRequest::new(PeerId(1), &[]) };
    let unsent = endpoint.send(Time(0), &send).unwrap();
    let kept = endpoint.send(Time(0), &SendRequest { cookie: Cookie(3), ..send }).unwrap();
    endpoint.cancel(recv).unwrap();
    endpoint.cancel(unsent).unwrap();
    assert_eq!(endpoint.cancel(recv), Err(CancelError::Unknown));
    cluster.run_until_idle();
    assert_eq!(cluster.nodes[0].endpoint.cancel(kept), Err(CancelError::Unknown));
    let got = completions(&mut cluster, 0);
    assert_eq!((got[&1], got[&2]), (Err(OpError::Cancelled), Err(OpError::Cancelled)));
    assert!(got[&3].is_ok());
    assert_eq!(cluster.nodes[1].endpoint.stats().unexpected, 1, "the cancelled message was not sent");
}
