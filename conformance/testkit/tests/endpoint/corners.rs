//! Corner cases that once lost, misreported or leaked something.

use super::*;

fn event_of(node: &mut Node<'_>, cookie: u64) -> Option<Completion> {
    node.events.iter().find_map(|event| match event {
        Event::Completed(completion) if completion.cookie.0 == cookie => Some(*completion),
        _ => None,
    })
}

fn packets_left(node: &Node<'_>) -> u32 {
    let packets = node.endpoint.usage().packets;
    packets.capacity - packets.used
}

/// An injected message is reported at once, also by rendezvous; it is delivered all the same.
#[test]
fn an_injected_message_outlives_its_completion() {
    let config = small();
    for caps in ALL_RAILS {
        let rails: Vec<_> = caps.iter().map(|rail| RailFacts { eager_bytes_max: 50, ..*rail }).collect();
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, &rails, &[4096], 1);
        let (id, span) = cluster.nodes[0].endpoint.inject(Time(0), &SendRequest::new(PeerId(1), &[]), 500).unwrap();
        let segs: Vec<_> = cluster.nodes[0].endpoint.segments(span).collect();
        cluster.nodes[0].write(&segs, &[7; 500]);
        cluster.run_until_idle();
        assert_eq!(event_of(&mut cluster.nodes[0], 0).map(|c| c.operation), Some(id));
        let recv =
            RecvRequest { cookie: Cookie(1), segments: &seg(0, 500), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
        cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
        cluster.run_until_idle();
        assert_eq!(completions(&mut cluster, 1)[&1].unwrap().bytes, 500);
        assert_eq!(cluster.nodes[1].memory[0][..500], [7; 500]);
        assert!(is_idle(&cluster.nodes[0].endpoint), "slots leak");
    }
}

/// M-8: a multi-receive gets a message though requests have all operations. Silent requests free theirs
/// without an event.
#[test]
fn a_multi_receive_needs_no_free_operation() {
    let config = Config { operations_max: 2, ..small() };
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[4096], 1);
    let multi = RecvRequest {
        multi: Some(100),
        cookie: Cookie(1),
        segments: &seg(0, 1000),
        ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
    };
    cluster.nodes[1].endpoint.recv(Time(0), &multi).unwrap();
    let silent = RecvRequest { notify: Notify::Silent, ..RecvRequest::new(tagged(None, 5), &[]) };
    cluster.nodes[1].endpoint.recv(Time(0), &silent).unwrap();
    let send = |tag| SendRequest { tag, ..SendRequest::new(PeerId(1), &[]) };
    assert_eq!(cluster.nodes[1].endpoint.recv(Time(0), &silent), Err(SubmitError::Full(Full::Operations)));
    cluster.nodes[0].endpoint.send(Time(0), &send(None)).unwrap();
    cluster.run_until_idle();
    assert!(event_of(&mut cluster.nodes[1], 1).is_some_and(|c| !c.last));
    assert_eq!(cluster.nodes[1].endpoint.usage().operations.used, 2);
    cluster.nodes[0].endpoint.send(Time(cluster.now), &send(Some(5))).unwrap();
    cluster.run_until_idle();
    assert_eq!(cluster.nodes[1].endpoint.usage().operations.used, 1);
}

/// M-1: a message that waited for a slot goes to the oldest receive that takes it, not to the one with the
/// first slot, and not to one that is posted later.
#[test]
fn multi_receives_waiting_for_a_slot_match_in_post_order() {
    let config = Config { operations_max: 4, ..small() };
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[8192], 1);
    let e = &mut cluster.nodes[1].endpoint;
    let gone =
        e.recv(Time(0), &RecvRequest { notify: Notify::Silent, ..RecvRequest::new(tagged(None, 9), &[]) }).unwrap();
    let multi = |from, at, cookie| {
        let recv = RecvRequest { multi: Some(10), cookie: Cookie(cookie), ..RecvRequest::new(from, &[]) };
        (recv, seg(at, 1000))
    };
    let wild = Selector { source: None, tag: TagMatch::Tagged { tag: 0, ignore: u64::MAX } };
    let (older, segments) = multi(wild, 0, 1);
    e.recv(Time(0), &RecvRequest { segments: &segments, ..older }).unwrap();
    // The younger one takes the lower slot.
    e.cancel(gone).unwrap();
    while e.poll_event().is_some() {}
    let (younger, segments) = multi(tagged(None, 2), 2000, 2);
    e.recv(Time(0), &RecvRequest { segments: &segments, ..younger }).unwrap();
    let fillers: Vec<_> =
        [7, 8].map(|tag| e.recv(Time(0), &RecvRequest::new(tagged(Some(1), tag), &[])).unwrap()).to_vec();
    for (n, tag) in [(0, 1), (1, 2), (2, 1)] {
        let send = SendRequest {
            tag: Some(tag),
            immediate: Some(n),
            segments: &seg(0, 8),
            ..SendRequest::new(PeerId(1), &[])
        };
        cluster.nodes[0].endpoint.send(Time(cluster.now), &send).unwrap();
    }
    cluster.run_until_idle();
    // A message that waits for a slot is reserved.
    assert_eq!(cluster.nodes[1].endpoint.probe(&wild), None);
    assert_eq!(cluster.nodes[1].endpoint.claim(&wild), None);
    for filler in fillers {
        cluster.nodes[1].endpoint.cancel(filler).unwrap();
    }
    while cluster.nodes[1].endpoint.poll_event().is_some() {}
    let late = RecvRequest { cookie: Cookie(3), segments: &seg(4000, 8), ..RecvRequest::new(wild, &[]) };
    let late = cluster.nodes[1].endpoint.recv(Time(cluster.now), &late);
    cluster.run_until_idle();
    let parts: Vec<_> = cluster.nodes[1]
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Completed(Completion { cookie, result: Ok(done), .. }) => Some((cookie.0, done.immediate?)),
            _ => None,
        })
        .collect();
    assert_eq!(parts, [(1, 0), (1, 1), (1, 2)], "{late:?}");
}

/// The release of a multi-receive buffer is reported also where its last message has an error to report.
#[test]
fn a_truncated_message_releases_its_buffer() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[4096], 1);
    let multi = RecvRequest {
        multi: Some(10),
        cookie: Cookie(1),
        segments: &seg(0, 100),
        ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
    };
    cluster.nodes[1].endpoint.recv(Time(0), &multi).unwrap();
    cluster.nodes[0].endpoint.send(Time(0), &SendRequest::new(PeerId(1), &seg(0, 300))).unwrap();
    cluster.run_until_idle();
    let reported: Vec<_> = cluster.nodes[1]
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Completed(c) => Some((c.last, c.result.map(|done| done.released).map_err(|_| ()))),
            _ => None,
        })
        .collect();
    assert_eq!(reported, [(false, Err(())), (true, Ok(true))]);
    assert_eq!(cluster.nodes[1].endpoint.usage().operations.used, 0);
}

/// Every message of a multi-receive counts, and nothing else does.
#[test]
fn a_multi_receive_counts_messages() {
    let config = small();
    for lens in [&[40u64, 60][..], &[95, 20], &[10]] {
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[4096], 1);
        let notify = Notify::Both(CounterId(1));
        let multi = RecvRequest {
            multi: Some(3),
            notify,
            segments: &seg(0, 100),
            ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
        };
        let id = cluster.nodes[1].endpoint.recv(Time(0), &multi).unwrap();
        for &len in lens {
            let send = SendRequest { segments: &seg(0, len), ..SendRequest::new(PeerId(1), &[]) };
            cluster.nodes[0].endpoint.send(Time(cluster.now), &send).unwrap();
            cluster.run_until_idle();
        }
        let _ = cluster.nodes[1].endpoint.cancel(id);
        cluster.run_until_idle();
        let fit = lens
            .iter()
            .scan(0, |sum, len| {
                *sum += len;
                Some(*sum)
            })
            .filter(|&sum| sum <= 100)
            .count();
        assert_eq!(cluster.nodes[1].endpoint.counter(CounterId(1)), Some(fit as u64), "{lens:?}");
        let last =
            cluster.nodes[1].events.iter().filter(|event| matches!(event, Event::Completed(c) if c.last)).count();
        assert_eq!(last, 1);
    }
}

/// A receive without events is complete before its copy is carried out; the copy still has its place.
#[test]
fn a_silent_receive_of_a_waiting_message() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[4096], 1);
    fill(&mut cluster, 0, 0, 300, 3);
    cluster.nodes[0].endpoint.send(Time(0), &SendRequest::new(PeerId(1), &seg(0, 300))).unwrap();
    cluster.run_until_idle();
    let silent = RecvRequest {
        notify: Notify::Silent,
        segments: &seg(1000, 300),
        ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
    };
    cluster.nodes[1].endpoint.recv(Time(cluster.now), &silent).unwrap();
    cluster.run_until_idle();
    assert_filled(&cluster, 1, 1000, 300, 3);
}

/// Thousands of flushes behind one get, thousands of empty messages: no depth of the stack goes with them.
#[test]
fn long_queues_need_no_stack() {
    let config = Config { operations_max: 32_768, unexpected_per_peer: 16_384, ..small() };
    let mut regions = regions(&config, 1);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[4096], 1);
    let e = &mut cluster.nodes[0].endpoint;
    let remote = Remote { peer: PeerId(0), window: 1, offset: 0 };
    e.get(Time(0), &GetRequest::new(remote, &[])).unwrap();
    for _ in 0..32_000 {
        e.flush(Time(0), &FlushRequest { notify: Notify::Silent, ..FlushRequest::new(PeerId(0)) }).unwrap();
    }
    cluster.run_until_idle();
    assert_eq!(cluster.nodes[0].endpoint.usage().operations.used, 0);
    for _ in 0..16_000 {
        let send = SendRequest { notify: Notify::Silent, ..SendRequest::new(PeerId(0), &[]) };
        cluster.nodes[0].endpoint.send(Time(cluster.now), &send).unwrap();
    }
    cluster.run_until_idle();
    for _ in 0..16_000 {
        let recv = RecvRequest { notify: Notify::Silent, ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
        cluster.nodes[0].endpoint.recv(Time(cluster.now), &recv).unwrap();
    }
    cluster.run_until_idle();
    assert_eq!(cluster.nodes[0].endpoint.usage().operations.used, 0);
}

/// A flush with nothing before it is done when it is submitted; its id is its own all the same.
#[test]
fn a_flush_of_nothing_has_an_id() {
    let config = small();
    let mut regions = regions(&config, 1);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[64], 1);
    let flush = FlushRequest { notify: Notify::Silent, ..FlushRequest::new(PeerId(0)) };
    let id = cluster.nodes[0].endpoint.flush(Time(0), &flush).unwrap();
    assert_ne!(id, OpId::default());
    assert_eq!(cluster.nodes[0].endpoint.cancel(id), Err(CancelError::Unknown));
}

/// What a peer had sent before it left is received afterwards too, also by name.
#[test]
fn the_last_messages_of_a_peer_are_received_by_name() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[4096], 1);
    for n in 0..2u64 {
        let send = SendRequest { tag: Some(5), immediate: Some(n), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    }
    cluster.nodes[0].endpoint.close_peer(PeerId(1)).unwrap();
    cluster.run_until_idle();
    for n in 0..3u64 {
        let recv = RecvRequest { cookie: Cookie(n), ..RecvRequest::new(tagged(Some(0), 5), &[]) };
        let posted = cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).map(|_| ());
        assert_eq!(posted, if n < 2 { Ok(()) } else { Err(SubmitError::PeerGone(PeerId(0))) });
    }
    cluster.run_until_idle();
    assert_eq!(
        completions(&mut cluster, 1).values().map(|r| r.unwrap().immediate).collect::<Vec<_>>(),
        [Some(0), Some(1)]
    );
    assert!(has_no_channel(&cluster.nodes[1].endpoint));
}

/// A receive that only an idle peer could serve ends with that peer.
#[test]
fn leaving_an_idle_peer_ends_its_receives() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[64], 1);
    let e = &mut cluster.nodes[0].endpoint;
    e.recv(Time(0), &RecvRequest { cookie: Cookie(1), ..RecvRequest::new(tagged(Some(1), 5), &[]) }).unwrap();
    e.recv(Time(0), &RecvRequest { cookie: Cookie(2), ..RecvRequest::new(tagged(None, 5), &[]) }).unwrap();
    e.close_peer(PeerId(1)).unwrap();
    cluster.run_until_idle();
    let got = completions(&mut cluster, 0);
    assert_eq!(got.into_iter().collect::<Vec<_>>(), [(1, Err(OpError::PeerClosed { peer: PeerId(1) }))]);
}

/// G-7: the BYE waits for messages that are on their way, however long a registration takes.
#[test]
fn bye_waits_for_pending_transfers() {
    let config = Config { ack_packets: 1, ..small() };
    for rails in ALL_RAILS {
        for seed in 0..40 {
            let mut regions = regions(&config, 2);
            let mut cluster = Cluster::new(&mut regions, &config, rails, &[100_000], seed);
            for n in 0..4 {
                let into = seg(50_000 + 10_000 * n, 10_000);
                let recv = RecvRequest { cookie: Cookie(n), ..RecvRequest::new(Selector::ANY_UNTAGGED, &into) };
                cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
                let from = seg(10_000 * n, 10_000 - 9_500 * (n % 2));
                let level = Level::Placed;
                let send = SendRequest { level, cookie: Cookie(n), ..SendRequest::new(PeerId(1), &from) };
                cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
            }
            let late = seed % 2;
            for _ in 0..seed * 10 {
                cluster.now += 500;
                cluster.act(late as usize);
                cluster.act(1 - late as usize);
                let rail = cluster.rng.below(rails.len() as u64) as usize;
                let (from, to) = if cluster.rng.one_in(2) { (0, 1) } else { (1, 0) };
                cluster.step_link(from, to, rail);
            }
            cluster.nodes[0].endpoint.close_peer(PeerId(1)).unwrap();
            cluster.run_until_idle();
            for rank in 0..2 {
                assert!(cluster.nodes[rank].events.contains(&Event::PeerClosed { peer: PeerId(1 - rank as u32) }));
                let got = completions(&mut cluster, rank);
                assert!(got.len() == 4 && got.values().all(|result| result.is_ok()), "seed {seed}: {got:?}");
            }
        }
    }
}

/// An operation that gets a packet slot and does not need it any more passes it on to the next.
#[test]
fn unused_packet_slot_is_passed_to_the_next_operation() {
    let config = Config { packets_max: 2, ack_packets: 1, ..small() };
    let mut regions = regions(&config, 3);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[4096], 1);
    let send = |peer| SendRequest::new(PeerId(peer), &[]);
    for peer in [1, 2] {
        cluster.nodes[0].endpoint.send(Time(0), &send(peer)).unwrap();
    }
    cluster.run_until_idle();
    // Two to peer 1 take the slots; one more to each waits.
    let ids = [1, 1, 1, 2].map(|peer| cluster.nodes[0].endpoint.send(Time(cluster.now), &send(peer)).unwrap());
    cluster.act(0);
    for peer in [1, 2] {
        assert!(cluster.nodes[0].endpoint.channel_info(PeerId(peer)).unwrap().waits_for_packet);
    }
    cluster.nodes[0].endpoint.cancel(ids[2]).unwrap();
    cluster.act(0);
    // One acknowledgment frees one slot.
    let sent = cluster.nodes[2].endpoint.stats().packets_received;
    while cluster.nodes[1].endpoint.stats().packets_received < 4 && packets_left(&cluster.nodes[0]) == 0 {
        cluster.act(1);
        cluster.step_link(0, 1, 0);
        cluster.act(1);
        while cluster.step_link(1, 0, 0) {}
    }
    assert_eq!(packets_left(&cluster.nodes[0]), 1);
    cluster.act(0);
    for _ in 0..20 {
        cluster.step_link(0, 2, 0);
    }
    assert!(cluster.nodes[2].endpoint.stats().packets_received > sent);
}

/// Registrations that a full batch has cut in two are all requested, without waiting for the first answers.
#[test]
fn registrations_go_on_after_a_full_batch() {
    let config = small();
    let rails = [RailFacts { posts_max: 64, ..GET }; 4];
    for before in 8..16 {
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, &rails, &[100_000], before);
        cluster.nodes[0].endpoint.send(Time(0), &SendRequest::new(PeerId(1), &[])).unwrap();
        cluster.run_until_idle();
        for _ in 0..before {
            cluster.nodes[0].endpoint.send(Time(cluster.now), &SendRequest::new(PeerId(1), &[])).unwrap();
        }
        let send = SendRequest { segments: &seg(0, 5000), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(cluster.now), &send).unwrap();
        let (mut actions, mut requested) = (heapless::Vec::new(), 0);
        while cluster.nodes[0].endpoint.poll_actions(Time(cluster.now), &mut actions) > 0 {
            requested += actions.iter().filter(|action| matches!(action, Action::Register { .. })).count();
        }
        assert_eq!(requested, 4, "{before} messages before it");
    }
}

/// A message that is all here is received, though its peer is lost before the copy.
#[test]
fn a_message_that_is_here_survives_its_peer() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[4096], 1);
    fill(&mut cluster, 0, 0, 300, 3);
    let send = SendRequest { level: Level::Placed, segments: &seg(0, 300), ..SendRequest::new(PeerId(1), &[]) };
    cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    cluster.run_until_idle();
    let recv =
        RecvRequest { cookie: Cookie(1), segments: &seg(1000, 300), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
    cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
    cluster.faulty = true;
    cluster.cut(0, 1, RailId(0), RailFault::Corrupt, true);
    cluster.run_until_idle();
    assert_eq!(completions(&mut cluster, 1)[&1].unwrap().bytes, 300);
    assert_filled(&cluster, 1, 1000, 300, 3);
    assert!(has_no_channel(&cluster.nodes[1].endpoint));
}

/// A stripe set is free for the next transfer when the rails have completed all of it, so that the times of
/// its stripes are measured (P-2), not when it is acknowledged.
#[test]
fn stripe_set_is_held_until_the_rails_complete() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP, TCP], &[400_000], 5);
    let recv = RecvRequest { segments: &seg(200_000, 100_000), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
    cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
    let send = SendRequest { segments: &seg(0, 100_000), ..SendRequest::new(PeerId(1), &[]) };
    let id = cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    let mut held = false;
    // No acknowledgment is sent before the last segment is with the receiver.
    while !cluster.nodes[0].endpoint.operations().any(|op| op.id == id && op.is_sent && op.posts == 0) {
        for (near, far, rail) in [(0, 1, 0), (1, 0, 0), (0, 1, 1), (1, 0, 1)] {
            cluster.act(near);
            cluster.step_link(near, far, rail);
        }
        held |= cluster.nodes[0].endpoint.usage().stripe_sets.used == 1;
    }
    assert!(held && cluster.nodes[0].endpoint.usage().stripe_sets.used == 0);
}

/// G-7: an operation matched after the BYE was sent sends nothing more, and ends with the channel.
#[test]
fn nothing_is_sent_after_the_bye() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[100_000], 1);
    let send = SendRequest { cookie: Cookie(1), segments: &seg(0, 5000), ..SendRequest::new(PeerId(1), &[]) };
    cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    cluster.run_until_idle();
    let now = Time(cluster.now);
    cluster.nodes[1].endpoint.close_peer(PeerId(0)).unwrap();
    cluster.act(1);
    cluster.nodes[1]
        .endpoint
        .recv(now, &RecvRequest { cookie: Cookie(2), ..RecvRequest::new(Selector::ANY_UNTAGGED, &seg(0, 5000)) })
        .unwrap();
    let sent = cluster.nodes[1].endpoint.stats().packets_sent;
    cluster.act(1);
    assert_eq!(cluster.nodes[1].endpoint.stats().packets_sent, sent);
    cluster.run_until_idle();
    for (rank, cookie) in [(0, 1), (1, 2)] {
        let error = OpError::PeerClosed { peer: PeerId(1 - rank as u32) };
        assert_eq!(completions(&mut cluster, rank)[&cookie], Err(error));
        assert!(has_no_channel(&cluster.nodes[rank].endpoint));
    }
}

/// Taking back the last request lets a BYE out that waited for it.
#[test]
fn cancelled_send_releases_the_pending_bye() {
    let config = Config { unexpected_per_peer: 1, ..small() };
    let mut regions = regions(&config, 2);
    let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[4096], 1);
    let send = SendRequest { segments: &seg(0, 10), ..SendRequest::new(PeerId(1), &[]) };
    cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    let second = cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
    cluster.nodes[0].endpoint.close_peer(PeerId(1)).unwrap();
    cluster.run_until_idle();
    assert!(!cluster.nodes[0].events.contains(&Event::PeerClosed { peer: PeerId(1) }), "the second waits for credit");
    cluster.nodes[0].endpoint.cancel(second).unwrap();
    cluster.run_until_idle();
    assert!(cluster.nodes[0].events.contains(&Event::PeerClosed { peer: PeerId(1) }));
}

/// two peers that refuse each other's puts, and one that refuses its own, don't deadlock.
#[test]
fn refusals_across_do_not_wait_for_each_other() {
    for packets_max in [2, 128] {
        let config = Config { packets_max, ..small() };
        for rails in ALL_RAILS {
            let mut regions = regions(&config, 2);
            let mut cluster = Cluster::new(&mut regions, &config, rails, &[100_000], 3);
            for rank in 0..2 {
                for peer in 0..2u64 {
                    let to = Remote { peer: PeerId(peer as u32), window: 9, offset: 0 };
                    let put =
                        PutRequest { cookie: Cookie(peer), segments: &seg(0, 30_000), ..PutRequest::new(to, &[]) };
                    cluster.nodes[rank].endpoint.put(Time(0), &put).unwrap();
                    let flush = FlushRequest { cookie: Cookie(10 + peer), ..FlushRequest::new(PeerId(peer as u32)) };
                    cluster.nodes[rank].endpoint.flush(Time(0), &flush).unwrap();
                }
            }
            cluster.run_until_idle();
            for rank in 0..2 {
                let got = completions(&mut cluster, rank);
                for peer in 0..2 {
                    let why = rerail_core::wire::Refusal::NoWindow;
                    assert_eq!(got[&peer], Err(OpError::Refused { peer: PeerId(peer as u32), why }));
                    assert!(got[&(10 + peer)].is_ok());
                }
                assert!(
                    is_idle(&cluster.nodes[rank].endpoint) && cluster.nodes[rank].endpoint.usage().refusals.used == 0
                );
            }
        }
    }
}

/// A window is free after its put was cut off in the middle.
#[test]
fn window_is_released_after_an_interrupted_put() {
    let config = small();
    for seed in 0..20 {
        let mut regions = regions(&config, 2);
        let mut cluster = Cluster::new(&mut regions, &config, &[TCP], &[100_000], seed);
        let access = Access { write: true, ..Access::default() };
        let at = MemRef { region: HEAP, offset: 0 };
        let window = cluster.nodes[1].endpoint.expose(&Window::new(at, 90_000, access, 7)).unwrap();
        let to = Remote { peer: PeerId(1), window: 7, offset: 0 };
        let put = PutRequest { segments: &seg(0, 90_000), ..PutRequest::new(to, &[]) };
        cluster.nodes[0].endpoint.put(Time(0), &put).unwrap();
        while cluster.nodes[1].endpoint.usage().windows_busy.used == 0 {
            cluster.act(0);
            cluster.act(1);
            cluster.step_link(0, 1, 0);
            cluster.step_link(1, 0, 0);
        }
        cluster.faulty = true;
        cluster.cut(1, 0, RailId(0), RailFault::TimedOut, true);
        assert_eq!(cluster.nodes[1].endpoint.deregister(window), Ok(()));
    }
}
