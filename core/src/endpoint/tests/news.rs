//! What a packet brings beside its body: acknowledgments and limits that are new, old, or wrong; and packets
//! that belong nowhere.

use super::super::timer::Timer;
use super::aggregates::{aggregating, record};
use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::{connect, down, region, up};
use super::*;
use crate::api::config::Policy;
use crate::wire::{AtomicReply, Body, Common, Connect, Counts, Data, Fin, MessageHead, Probe, Repr, Rts, Short};

fn eager() -> Body {
    Body::Eager(MessageHead { immediate: Some(5), ..MessageHead::default() })
}

fn left(lone: &Lone<'_>) -> u32 {
    lone.endpoint.t.channels.at(0).allowance.messages_left()
}

/// C-6: limits of a packet that acknowledges less than was acknowledged are old, except on the lone rail that
/// keeps the order.
#[test]
fn limits_of_an_older_packet_count_only_on_an_ordered_rail() {
    for (rail, grows) in [(TCP, false), (SHM, true)] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[rail]);
        (0..2).for_each(|n| lone.send(n, 8));
        assert_eq!(lone.sent().len(), 2);
        lone.acks[0] = 2;
        lone.feed(Body::Credit, 0);
        assert_eq!(left(&lone), 30);
        lone.acks[0] = 1;
        lone.limits.0 = 40;
        lone.feed(Body::Credit, 0);
        assert_eq!(left(&lone), if grows { 38 } else { 30 });
    }
}

/// C-1: a limit of messages is not one of blocks, though their numbers are those that were known, the other
/// way round.
#[test]
fn each_limit_is_its_own() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.limits = (64, 32);
    lone.feed(Body::Credit, 0);
    assert_eq!(left(&lone), 64);
}

/// A packet is followed by work only where it brings something that a request waits for.
#[test]
fn packet_wakes_only_work_that_waits_for_it() {
    let idle = |lone: &Lone<'_>| !lone.endpoint.is_active();
    let mut own = region();
    let mut lone = Lone::connected(&mut own, &small(), &[TCP]);
    lone.limits.0 = 33;
    lone.feed(Body::Credit, 0);
    assert!(idle(&lone), "nothing waits");
    (0..40).for_each(|n| lone.send(n, 8));
    lone.sent();
    assert!(idle(&lone));
    assert!(!lone.endpoint.t.channels.at(0).queues.ordered.is_empty());
    lone.limits.0 = 32;
    lone.feed(Body::Credit, 0);
    assert!(idle(&lone), "an old limit");
    lone.limits.0 = 34;
    lone.feed(Body::Credit, 0);
    assert!(!idle(&lone), "a new one");
}

/// a refusal flag makes only packets unconfirmed that its packet is the first to acknowledge.
#[test]
fn an_old_packet_puts_nothing_in_doubt() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    for n in 0..3 {
        let to = Remote { peer: PeerId(1), window: 3, offset: 8 * n };
        let put = PutRequest { cookie: Cookie(n), segments: &seg(0, 8), ..PutRequest::new(to, &[]) };
        lone.endpoint.put(Time(0), &put).unwrap();
    }
    assert_eq!(lone.sent().len(), 3);
    lone.acks[1] = 2;
    lone.feed(Body::Credit, 0);
    assert_eq!(lone.completed().len(), 2);
    lone.acks[1] = 1;
    lone.feed_on(0, Body::Credit, 0, |common| common.refusing = true);
    assert!(!lone.endpoint.t.channels.at(0).requests.is_unconfirmed);
    lone.acks[1] = 3;
    lone.feed_on(0, Body::Credit, 0, |common| common.refusing = true);
    assert!(lone.endpoint.t.channels.at(0).requests.is_unconfirmed);
}

/// G-6: the payload of a probe only takes its time.
#[test]
fn probe_payload_is_discarded() {
    let mut own = region();
    let mut lone = Lone::connected(&mut own, &small(), &[TCP]);
    let probe = Body::Probe(Probe { nonce: 5, answer: false });
    assert_eq!(lone.feed(probe.clone(), 0), Arrival::Done);
    assert_eq!(lone.feed(probe, 1), Arrival::Discard);
}

/// G-3, F-12: a CONNECT that is repeated begins nothing anew.
#[test]
fn repeated_connect_is_counted_once() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.endpoint.set_address(RailId(1), b"there:1").unwrap();
    assert_eq!(lone.sent().len(), 1);
    lone.feed(Body::Connect(Connect { rail: PEER_RAIL, ..PEER_PARAMETERS }), 0);
    let sent = lone.sent();
    assert!(!sent.iter().any(|packet| matches!(packet.body, Body::Address(_))), "{sent:?}");
}

/// a segment of an operation that is over is counted and acknowledged; one whose end is beyond all
/// numbers is an offence.
#[test]
fn segments_that_belong_nowhere_are_acknowledged() {
    let mut own = region();
    let mut lone = Lone::connected(&mut own, &small(), &[TCP]);
    let data = |operation, offset| Body::Data(Data { operation, offset });
    let arrival = lone.feed_on(0, data(1 << 40, 0), 10, |common| common.ack_now = true);
    assert_eq!((arrival, lone.endpoint.stats().stale_dropped), (Arrival::Discard, 1));
    assert_eq!(lone.sent_one().common.ack_unordered, 1);
    lone.recv(1, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    let Body::Cts(cts) = lone.sent_one().body else { panic!("no CTS") };
    assert_eq!(lone.feed(data(cts.target, u64::MAX), 10), Arrival::Close);
    assert_eq!(lone.offence(), ProtocolError::OutOfRange { offset: u64::MAX });
}

/// X-11, P-3: bytes that come as packets, though keys were given, require a FIN of the receiver; without
/// recovery they require none.
#[test]
fn fin_is_pending_for_bytes_received_as_packets() {
    let config = Config { recovery: false, ..small() };
    let mut own = Region::of(&config);
    let mut lone = Lone::connected(&mut own, &config, &[PUT]);
    lone.recv(1, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    let Body::Cts(cts) = lone.sent_one().body else { panic!("no CTS") };
    let owing = |lone: &Lone<'_>| lone.endpoint.paths.peer(0).fins_pending;
    assert_eq!((cts.keys.len(), owing(&lone)), (1, 0));
    let arrival = lone.feed(Body::Data(Data { operation: cts.target, offset: 0 }), 1000);
    assert_eq!(owing(&lone), 1);
    lone.place(arrival);
    let arrival = lone.feed(Body::Data(Data { operation: cts.target, offset: 1000 }), 2000);
    lone.place(arrival);
    assert!(matches!(lone.sent_one().body, Body::Fin(Fin { operation: 77, .. })));
    assert_eq!(owing(&lone), 0);
}

/// P-3: pending FINs are counted only where large messages are cut by path estimates.
#[test]
fn pending_fins_count_for_path_estimates_only() {
    for (striping, expected) in [(Policy::Balanced, 1), (Policy::Even, 0)] {
        let config = Config { recovery: false, striping, ..small() };
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[TCP]);
        lone.recv(1, 3000);
        let head = MessageHead { operation: 77, ..MessageHead::default() };
        lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
        lone.sent_one();
        assert_eq!(lone.endpoint.paths.peer(0).fins_pending, expected, "{}", striping.name());
    }
}

/// F-6: the copy of a packet whose payload was on its way is as long as the packet was: for a message in
/// blocks in bytes, for an aggregate in blocks.
#[test]
fn a_copy_of_another_length_is_an_offence() {
    let payload = [record(1, 40), record(2, 40)].concat();
    let aggregate = payload.len() as u32;
    for (body, bytes, again, is_fine) in [
        (eager(), 100, 100, true),
        (eager(), 100, 99, false),
        (Body::Aggregate { count: 2 }, aggregate, aggregate, true),
        (Body::Aggregate { count: 2 }, aggregate, aggregate + 64, false),
    ] {
        let config = aggregating();
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[TCP]);
        let half = lone.feed_on(0, body.clone(), bytes, |common| common.psn = 0);
        assert!(matches!(half, Arrival::Place { .. }), "{half:?}");
        down(&mut lone, 0, RailFault::TimedOut);
        up(&mut lone, 0);
        lone.feed(connect(0, 2), 0);
        let copy = lone.feed_on(0, body.clone(), again, |common| common.psn = 0);
        match is_fine {
            true => assert!(matches!(copy, Arrival::Place { .. }), "{body:?}: {copy:?}"),
            false => {
                assert_eq!(copy, Arrival::Close, "{body:?}");
                assert_eq!(lone.offence(), ProtocolError::TooLong { bytes: again.into() });
            }
        }
    }
}

/// G-10: a packet of a peer without a channel is dropped while its subchannel is being closed, and closes any
/// other.
#[test]
fn packets_of_a_connection_that_is_refused_are_dropped() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.endpoint.handle_rail_event(Time(0), RailEvent::Up { peer: PeerId(2), rail: RailId(1) });
    let arrive = |lone: &mut Lone<'_>, peer, rail| {
        let common = Common { source: peer, ..Common::default() };
        let header = Repr { common, body: Body::Credit }.emit_vec().unwrap();
        lone.endpoint.handle_arrival(Time(0), PeerId(peer), RailId(rail), &header)
    };
    assert_eq!(arrive(&mut lone, 2, 1), Arrival::Discard);
    assert_eq!((arrive(&mut lone, 2, 0), arrive(&mut lone, 3, 1)), (Arrival::Close, Arrival::Close));
    lone.sent();
    assert_eq!((arrive(&mut lone, 2, 1), &lone.closed[..]), (Arrival::Close, &[RailId(1)][..]));
}

/// A rail that brings a second packet before the first is placed has failed, and is counted so.
#[test]
fn two_payloads_at_once_are_a_failure_of_the_rail() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    assert!(matches!(lone.feed(eager(), 100), Arrival::Place { .. }));
    assert_eq!(lone.feed(eager(), 100), Arrival::Close);
    let lost = core::iter::from_fn(|| lone.endpoint.poll_event()).find_map(|event| match event {
        Event::PeerLost { why, .. } => Some(why),
        _ => None,
    });
    let fault = RailFault::Corrupt;
    let lost = lost.expect("the peer is given up");
    assert_eq!(lost.reason, LossReason::RailFailed { rail: RailId(0), fault });
    assert_eq!(lost.attempts().map(|(_, count)| count).collect::<Vec<_>>(), [1]);
}

/// C-4: packets of the other lane leave the short way in open, and its count of what is to be announced as it
/// is.
#[test]
fn unordered_packets_leave_the_express_path_open() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[SHM]);
    let send = SendRequest { segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
    send_short(&mut lone.endpoint, &send, 8).expect("the way is open");
    lone.sent();
    for psn in 0..16 {
        let recv = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(tagged(None, 7), &[]) };
        lone.endpoint.recv_short(&recv).expect("nothing is special about it");
        let (counts, flags) = (Counts::new(psn, 32, 64), Short::TAGGED);
        let short = Short { counts, tag: 7, len: 8, flags, ..Short::default() };
        assert!(matches!(lone.endpoint.arrive_short(PeerId(1), RailId(0), &short), ShortArrival::At(_)));
        if psn == 7 {
            lone.feed_on(0, Body::Fin(Fin { operation: 99, count: 1, ..Fin::default() }), 0, |common| {
                common.ack_ordered = 1;
            });
            lone.sent();
        }
    }
    assert_eq!(lone.sent_one().common.message_limit, 48);
}

/// what has no payload brings no bytes nearer to an acknowledgment, nor do segments: FIN frees their
/// buffers. As packets, they count.
#[test]
fn empty_packets_and_segments_count_no_bytes() {
    let config = Config { ack_bytes: 1, ..small() };
    let mut own = Region::of(&config);
    let mut lone = Lone::connected(&mut own, &config, &[TCP]);
    lone.feed(Body::Fin(Fin { operation: 99, count: 1, ..Fin::default() }), 0);
    assert_eq!(lone.sent(), []);
    lone.recv(1, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    let Body::Cts(cts) = lone.sent_one().body else { panic!("no CTS") };
    assert_eq!(lone.feed(Body::Data(Data { operation: cts.target, offset: 0 }), 0), Arrival::Done);
    assert_eq!(lone.sent(), []);
    for n in 1..config.ack_packets.into() {
        assert_eq!(lone.sent(), [], "before segment {n}");
        let arrival = lone.feed(Body::Data(Data { operation: cts.target, offset: n }), 1);
        lone.place(arrival);
    }
    // FIN and the empty segment, too.
    assert_eq!(lone.sent_one().common.ack_unordered, 1 + u32::from(config.ack_packets));
}

/// G-9: a peer that has packets to acknowledge is watched where one of both times is set, whichever.
#[test]
fn silence_is_watched_by_either_time() {
    for (probe_after, silence_max, is_watched) in [(0, 0, false), (5_000, 0, true), (0, 5_000, true)] {
        let (probe_after, silence_max) = (Nanos(probe_after), Nanos(silence_max));
        let config = Config { probe_after, silence_max, stall_max: Nanos(0), stall_lone: Nanos(0), ..small() };
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[TCP]);
        lone.send(1, 8);
        lone.sent();
        let has_timer = lone.endpoint.t.has_timer(0, crate::endpoint::timer::Timer::Silence);
        assert_eq!(has_timer, is_watched, "{config:?}");
    }
}

/// what a packet acknowledges of one lane counts, though what it acknowledges of the other is old.
#[test]
fn each_lane_is_acknowledged_by_itself() {
    let config = Config { retained_max: 128, ..small() };
    let mut own = Region::of(&config);
    let mut lone = Lone::connected(&mut own, &config, &[SHM]);
    let to = Remote { peer: PeerId(1), window: 3, offset: 0 };
    lone.endpoint.put(Time(0), &PutRequest { segments: &seg(0, 8), ..PutRequest::new(to, &[]) }).unwrap();
    lone.sent_one();
    (lone.acks, lone.limits) = ([0, 1], (200, 2000));
    lone.feed(Body::Credit, 0);
    // The window is full.
    (0..70).for_each(|n| lone.send(n, 600));
    assert_eq!(lone.sent().len(), 64);
    lone.acks = [64, 0];
    lone.feed(Body::Credit, 0);
    assert_eq!(lone.sent().len(), 6);
}

/// C-5: a waiting request is sent when the answers before it are acknowledged, by whatever packet.
#[test]
fn a_gap_that_closes_lets_the_next_request_go() {
    let mut own = region();
    let mut lone = Lone::connected(&mut own, &small(), &[TCP]);
    let at = Remote { peer: PeerId(1), window: 3, offset: 0 };
    for cookie in 1..=3 {
        let request = AtomicRequest::new(at, AtomicKind::Add, AtomicType::U64, 1);
        lone.endpoint.atomic(Time(0), &AtomicRequest { cookie: Cookie(cookie), ..request }).unwrap();
    }
    let requested = |sent: &[Repr]| -> Vec<u64> {
        let atomic = |packet: &Repr| match &packet.body {
            Body::Atomic(atomic) => Some(atomic.operation),
            _ => None,
        };
        sent.iter().filter_map(atomic).collect()
    };
    let [first, _] = requested(&lone.sent())[..] else { panic!("two at once") };
    lone.psn[1] = 1;
    lone.feed(Body::AtomicReply(AtomicReply { operation: first, old: 5 }), 0);
    assert_eq!(requested(&lone.sent()), [0; 0], "an unordered packet before the answer is missing");
    lone.psn[1] = 0;
    lone.feed(Body::Fin(Fin { operation: 99, count: 1, ..Fin::default() }), 0);
    assert_eq!(requested(&lone.sent()).len(), 1);
}

/// Of two processes that sample each other at once the higher rank stops, drops its open probes,
/// and begins anew a while later.
#[test]
fn the_higher_rank_samples_later() {
    let config = Config { rank: PeerId(2), sampling_time_max: Nanos(10_000_000), ..small() };
    let mut own = Region::of(&config);
    let mut lone = Lone::up(&mut own, &config, &[TCP, TCP]);
    (0..2).for_each(|rail| assert_eq!(lone.feed_on(rail, connect(rail, 1), 0, |_| {}), Arrival::Done));
    let requested = |lone: &mut Lone<'_>| -> Vec<u64> {
        let is_probe = |packet: &Repr| match packet.body {
            Body::Probe(Probe { nonce, answer: false }) => Some(nonce),
            _ => None,
        };
        lone.sent().iter().filter_map(is_probe).collect()
    };
    let [first] = requested(&mut lone)[..] else { panic!("one rail at a time") };
    let sample = Body::Probe(Probe { nonce: 1 << 63 | 77, answer: false });
    assert_eq!(lone.feed(sample, 0), Arrival::Done);
    assert_eq!(requested(&mut lone), [0; 0]);
    lone.feed(Body::Probe(Probe { nonce: first, answer: true }), 0);
    assert_eq!(requested(&mut lone), [0; 0], "the answer is not waited for any more");
    lone.now += 500_000;
    lone.endpoint.handle_timeout(Time(lone.now));
    let [again] = requested(&mut lone)[..] else { panic!("it begins anew") };
    assert_ne!(again, first);
}

/// P-12: there is one time for all questions to a rail, which ends with the last answer.
#[test]
fn a_rail_has_one_time_for_all_questions() {
    let config = Config { sampling_time_max: Nanos(10_000_000), ..small() };
    for answered in [1, 4] {
        let mut own = Region::of(&config);
        let mut lone = Lone::up(&mut own, &config, &[TCP, TCP]);
        (0..2).for_each(|rail| assert_eq!(lone.feed_on(rail, connect(rail, 1), 0, |_| {}), Arrival::Done));
        let is_timed = |lone: &Lone<'_>| lone.endpoint.t.has_timer(0, Timer::Sample);
        let is_probe = |lone: &mut Lone<'_>| {
            let nonce = |packet: &Repr| match packet.body {
                Body::Probe(Probe { nonce, answer: false }) => Some(nonce),
                _ => None,
            };
            lone.sent().iter().find_map(nonce)
        };
        let mut nonce = is_probe(&mut lone).expect("the first rail is probed");
        assert!(is_timed(&lone));
        lone.now += 6_000_000;
        for _ in 1..answered {
            lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
            nonce = is_probe(&mut lone).expect("it is probed again");
            assert!(is_timed(&lone));
        }
        lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
        if answered == 4 {
            assert!(!is_timed(&lone), "all was answered");
            continue;
        }
        is_probe(&mut lone).expect("it is probed again");
        lone.now += 4_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
        assert!(!is_timed(&lone), "its time is over, however often it was probed");
    }
}
