//! A peer and a rail that break every rule: the consequences end their channel and nothing else.

use super::*;
use rerail_core::seq::Seq;
use rerail_core::wire::{Body, Common, Connect, Cts, Data, Fin, Put as WirePut, Refusal, Repr};

/// A simulation with rank 0 and rank 1 connected.
fn met<'m>(regions: &'m mut [Region], config: &Config, rails: &[RailFacts]) -> Cluster<'m> {
    let mut cluster = Cluster::new(regions, config, rails, &[100_000], 1);
    cluster.honest = false;
    cluster.faulty = true;
    cluster.nodes[0]
        .endpoint
        .send(Time(0), &SendRequest { tag: Some(1000), ..SendRequest::new(PeerId(1), &[]) })
        .unwrap();
    cluster.run_until_idle();
    cluster
}

/// Rank 1 gets a packet as if from rank 0.
fn feed(cluster: &mut Cluster<'_>, rail: u8, psn: u32, payload_bytes: u32, body: Body) -> Arrival {
    let channel = cluster.nodes[1].endpoint.channel_info(PeerId(0)).expect("open");
    let acked = [channel.ordered.acked, channel.unordered.acked];
    feed_with(cluster, rail, Common { psn, payload_bytes, ..Common::default() }, acked, body)
}

/// As [`feed`], with acknowledgments of the peer's.
fn feed_with(cluster: &mut Cluster<'_>, rail: u8, common: Common, acked: [Seq; 2], body: Body) -> Arrival {
    let common = Common { source: 0, ack_ordered: acked[0].0, ack_unordered: acked[1].0, ..common };
    let header = Repr { common, body }.emit_vec().expect("emits");
    cluster.nodes[1].endpoint.handle_arrival(Time(cluster.now), PeerId(0), RailId(rail), &header)
}

fn lost_by(cluster: &mut Cluster<'_>) -> Option<LossReason> {
    cluster.act(1);
    cluster.nodes[1].events.iter().find_map(|event| match event {
        Event::PeerLost { why, .. } => Some(why.reason),
        _ => None,
    })
}

/// Refusals of puts have slots of their own: a peer that causes many is given up, and the caller's slots stay
/// free.
#[test]
fn refused_puts_take_no_slots_of_the_caller() {
    let config = Config { operations_max: 8, ..small() };
    let mut regions = regions(&config, 2);
    let mut cluster = met(&mut regions, &config, &[TCP]);
    for n in 0..60 {
        let body = Body::Put(WirePut { window: 9, offset: 0, operation: 1 << 32 | u64::from(n) });
        if feed(&mut cluster, 0, n, 0, body) == Arrival::Close {
            break;
        }
    }
    assert_eq!(lost_by(&mut cluster), Some(LossReason::Protocol(ProtocolError::Credit)));
    for _ in 0..8 {
        cluster.nodes[1].endpoint.recv(Time(cluster.now), &RecvRequest::new(tagged(None, 5), &[])).unwrap();
    }
    assert_eq!(cluster.nodes[1].endpoint.usage().refusals.used, 0);
}

/// However many segments of one put come, one refusal is sent for them.
#[test]
fn one_refusal_for_a_put() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = met(&mut regions, &config, &[TCP]);
    for psn in 0..30 {
        feed(&mut cluster, 0, psn, 100, Body::Put(WirePut { window: 9, offset: 0, operation: 1 << 32 }));
    }
    assert_eq!(cluster.nodes[1].endpoint.usage().refusals.used, 1);
    assert_eq!(lost_by(&mut cluster), None);
}

/// DATA and FIN for a receive before its CTS is sent can only be guessed: they change nothing.
#[test]
fn data_and_fin_before_the_cts_are_dropped() {
    for rails in [&[TCP][..], &[PUT]] {
        // The test needs the id of the receive's operation.
        let config = rerail_core::config::Config { express: false, ..small() };
        let mut regions = regions(&config, 2);
        let mut cluster = met(&mut regions, &config, rails);
        let recv = RecvRequest { cookie: Cookie(7), segments: &seg(0, 5000), ..RecvRequest::new(tagged(None, 7), &[]) };
        let id = cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
        let send = SendRequest { tag: Some(7), segments: &seg(0, 5000), ..SendRequest::new(PeerId(1), &[]) };
        cluster.nodes[0].endpoint.send(Time(cluster.now), &send).unwrap();
        cluster.act(0);
        // Until the RTS has found it.
        while cluster.nodes[1].endpoint.usage().posted.used == 1 {
            cluster.step_link(0, 1, 0);
        }
        let operation = id.0.to_bits();
        let fin = Fin { operation, count: 1, refused: None, placed_bytes: 5000, epoch: 0, want_placed: false };
        for psn in 10..20 {
            let body = if psn % 2 == 0 { Body::Data(Data { operation, offset: 0 }) } else { Body::Fin(fin) };
            let arrival = feed(&mut cluster, 0, psn, if psn % 2 == 0 { 5000 } else { 0 }, body);
            assert!(!matches!(arrival, Arrival::Place { .. } | Arrival::Close), "{arrival:?}");
        }
        cluster.act(1);
        assert!(!completions(&mut cluster, 1).contains_key(&7));
    }
}

/// CTS twice, FIN twice, a refusal: the first one counts.
#[test]
fn answers_count_once() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = met(&mut regions, &config, &[TCP]);
    let send = |n| SendRequest {
        tag: Some(n),
        cookie: Cookie(n),
        segments: &[Seg { at: MemRef { region: HEAP, offset: 0 }, len: 5000 }],
        ..SendRequest::new(PeerId(0), &[])
    };
    let ids: Vec<_> = (0..2).map(|n| cluster.nodes[1].endpoint.send(Time(cluster.now), &send(n)).unwrap()).collect();
    cluster.run_until_idle();
    let stale = cluster.nodes[1].endpoint.stats().stale_dropped;
    let cts = Cts { operation: ids[0].0.to_bits(), target: 5, granted_bytes: 5000, ..Cts::default() };
    feed(&mut cluster, 0, 0, 0, Body::Cts(cts.clone()));
    feed(&mut cluster, 0, 1, 0, Body::Cts(cts));
    assert_eq!(cluster.nodes[1].endpoint.stats().stale_dropped, stale + 1);
    // the receiver can't go on.
    let refused = Fin {
        operation: ids[1].0.to_bits(),
        count: 1,
        refused: Some(Refusal::BadAtomic),
        placed_bytes: 0,
        epoch: 0,
        want_placed: false,
    };
    feed(&mut cluster, 0, 2, 0, Body::Fin(refused));
    feed(&mut cluster, 0, 3, 0, Body::Fin(refused));
    cluster.act(1);
    let got = completions(&mut cluster, 1);
    assert_eq!(got[&1], Err(OpError::Refused { peer: PeerId(0), why: Refusal::BadAtomic }));
    assert!(!got.contains_key(&0));
}

/// Segments that overlap add up to more than the message: the receive still waits for the last of them.
#[test]
fn receive_with_overlapping_segments_waits_for_all_data() {
    // The test needs the id of the receive's operation.
    let config = rerail_core::config::Config { express: false, ..small() };
    let mut regions = regions(&config, 2);
    let mut cluster = met(&mut regions, &config, &[TCP, TCP]);
    let recv = RecvRequest { cookie: Cookie(7), segments: &seg(0, 5000), ..RecvRequest::new(tagged(None, 7), &[]) };
    let id = cluster.nodes[1].endpoint.recv(Time(cluster.now), &recv).unwrap();
    let rts = rerail_core::wire::Rts {
        head: rerail_core::wire::MessageHead { tag: Some(7), ..Default::default() },
        message_bytes: 5000,
        ..Default::default()
    };
    feed(&mut cluster, 0, 1, 0, Body::Rts(rts));
    cluster.act(1);
    let data = Body::Data(Data { operation: id.0.to_bits(), offset: 0 });
    let Arrival::Place { id: slow, .. } = feed(&mut cluster, 0, 0, 5000, data.clone()) else { panic!("no place") };
    let Arrival::Place { id: fast, .. } = feed(&mut cluster, 1, 1, 5000, data) else { panic!("no place") };
    let now = Time(cluster.now);
    cluster.nodes[1].placed(now, fast);
    cluster.act(1);
    assert!(cluster.nodes[1].endpoint.place_memory(slow).is_some() && !completions(&mut cluster, 1).contains_key(&7));
    let now = Time(cluster.now);
    cluster.nodes[1].placed(now, slow);
    cluster.act(1);
    assert!(completions(&mut cluster, 1)[&7].is_ok());
}

/// A send that FIN has ended is not begun again by a CTS, though its RTS is still with the rail: the buffer
/// is the caller's.
#[test]
fn no_answer_follows_the_end() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = met(&mut regions, &config, &[TCP]);
    let send =
        SendRequest { tag: Some(7), cookie: Cookie(7), segments: &seg(0, 5000), ..SendRequest::new(PeerId(0), &[]) };
    let id = cluster.nodes[1].endpoint.send(Time(cluster.now), &send).unwrap();
    cluster.act(1);
    let operation = id.0.to_bits();
    feed(
        &mut cluster,
        0,
        0,
        0,
        Body::Fin(Fin { operation, count: 1, refused: None, placed_bytes: 0, epoch: 0, want_placed: false }),
    );
    feed(&mut cluster, 0, 1, 0, Body::Cts(Cts { operation, target: 5, granted_bytes: 5000, ..Cts::default() }));
    assert!(!completions(&mut cluster, 1).contains_key(&7), "the rail has it still");
    let next =
        |cluster: &mut Cluster<'_>| cluster.nodes[1].endpoint.channel_info(PeerId(0)).expect("open").unordered.next;
    let before = next(&mut cluster);
    cluster.act(1);
    assert_eq!(next(&mut cluster), before, "nothing is to be sent");
    cluster.run_until_idle();
    assert!(completions(&mut cluster, 1).contains_key(&7));
    assert!(is_idle(&cluster.nodes[1].endpoint));
}

/// S-5, A-3: what has come before is dropped, and acknowledged at once, since the acknowledgment may have
/// been lost.
#[test]
fn duplicates_are_dropped_and_acknowledged_at_once() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = met(&mut regions, &config, &[TCP]);
    let stats = cluster.nodes[1].endpoint.stats();
    let head = rerail_core::wire::MessageHead { tag: Some(1000), ..Default::default() };
    assert_eq!(feed(&mut cluster, 0, 0, 0, Body::Eager(head)), Arrival::Discard);
    cluster.act(1);
    let now = cluster.nodes[1].endpoint.stats();
    assert_eq!(now.duplicates_dropped, stats.duplicates_dropped + 1);
    assert_eq!((now.acks_explicit, now.unexpected), (stats.acks_explicit + 1, stats.unexpected));
}

/// Answers that the peer has acknowledged and the rail has not completed hold slots: no more are begun than
/// there are slots.
#[test]
fn replies_held_by_a_rail_are_limited() {
    let config = small();
    let mut regions = regions(&config, 2);
    let rail = RailFacts { posts_max: 64, ..TCP };
    let mut cluster = met(&mut regions, &config, &[rail]);
    let mut psn = 0;
    while lost_by(&mut cluster).is_none() {
        let get = rerail_core::wire::Get { window: 9, offset: 0, bytes: 8, operation: u64::from(psn) };
        // The peer acknowledges all answers that are with the rail.
        let channel = cluster.nodes[1].endpoint.channel_info(PeerId(0)).expect("open");
        let next = [channel.ordered.next, channel.unordered.next];
        feed_with(&mut cluster, 0, Common { psn, ..Common::default() }, next, Body::Get(get));
        psn += 1;
        let channel = cluster.nodes[1].endpoint.channel_info(PeerId(0));
        assert!(channel.is_none_or(|channel| channel.answering <= 4));
        assert!(psn < 20);
    }
    assert_eq!(psn, 9, "four with the rail, four that wait, one too many");
}

/// C-5: a peer with more open requests than granted breaks the protocol; as many as granted are served, one
/// after the other.
#[test]
fn requests_beyond_the_grant_break_the_protocol() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = met(&mut regions, &config, &[TCP]);
    for psn in 0..4 {
        let get = rerail_core::wire::Get { window: 9, offset: 0, bytes: 8, operation: u64::from(psn) };
        assert_eq!(feed(&mut cluster, 0, psn, 0, Body::Get(get)), Arrival::Done);
    }
    cluster.act(1);
    let channel = cluster.nodes[1].endpoint.channel_info(PeerId(0)).expect("open");
    assert!(channel.answering <= 4 && channel.requests_in == 4);
    let get = rerail_core::wire::Get { window: 9, offset: 0, bytes: 8, operation: 5 };
    assert_eq!(feed(&mut cluster, 0, 4, 0, Body::Get(get)), Arrival::Close);
    assert_eq!(lost_by(&mut cluster), Some(LossReason::Protocol(ProtocolError::Credit)));
}

/// G-3: parameters that can't be met, or that change.
#[test]
fn invalid_or_changed_negotiated_parameters_are_rejected() {
    let config = small();
    let good = Connect {
        window: 64,
        eager_bytes_max: 1000,
        block_bytes: 64,
        requests_max: 4,
        rail: 0,
        connection: 1,
        first_number: 0,
        parked: 0,
        answer: true,
    };
    let cases = [
        (Connect { window: 100, ..good }, 0, true),
        (Connect { window: 32, ..good }, 0, true),
        (Connect { window: 1 << 16, ..good }, 0, true),
        (Connect { block_bytes: 0, ..good }, 0, true),
        (Connect { eager_bytes_max: 999, ..good }, 0, true),
        (Connect { rail: 1, ..good }, 0, true),
        (good, 0, false),
        (Connect { rail: 1, ..good }, 1, false),
    ];
    for (connect, rail, offends) in cases {
        let mut regions = regions(&config, 2);
        let mut cluster = met(&mut regions, &config, &[TCP, TCP]);
        feed(&mut cluster, rail, 0, 0, Body::Connect(connect));
        let why = LossReason::Protocol(ProtocolError::BadParameters);
        assert_eq!(lost_by(&mut cluster), offends.then_some(why), "{connect:?}");
    }
}

/// A rail that brings a packet while it still places another has lost that one: its peer is given up, nothing
/// hangs.
#[test]
fn a_rail_places_one_packet_at_a_time() {
    let config = small();
    let mut regions = regions(&config, 2);
    let mut cluster = met(&mut regions, &config, &[TCP]);
    let head = rerail_core::wire::MessageHead { tag: Some(7), ..Default::default() };
    assert!(matches!(feed(&mut cluster, 0, 1, 100, Body::Eager(head)), Arrival::Place { .. }));
    assert_eq!(feed(&mut cluster, 0, 2, 100, Body::Eager(head)), Arrival::Close);
    let why = LossReason::RailFailed { rail: RailId(0), fault: RailFault::Corrupt };
    assert_eq!(lost_by(&mut cluster), Some(why));
}
