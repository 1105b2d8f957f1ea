//! Calls to a rail while it is busy, spans, and frames at the end of a channel.

use super::late_connects;
use super::lone::Lone;
use super::recovery::{connect, down, up};
use super::*;
use crate::wire::{Body, Data, Get, MessageHead, Probe, Repr, Rts};

/// The fast check for a one-piece span agrees with the iteration over the pieces.
#[test]
fn single_segment_check_agrees_with_the_iteration() {
    let config = Config { block_bytes: 64, ..small() };
    let mut region = Region::of(&config);
    let mut endpoint = Endpoint::new(config, &[TCP], region.take(&config), Time(0)).unwrap();
    let pieces = [Seg::new(HEAP, 8, 16), Seg::new(HEAP, 100, 8)];
    endpoint.recv(Time(0), &RecvRequest::new(Selector::ANY_UNTAGGED, &pieces)).unwrap();
    let op = (0..config.operations_max).find(|op| endpoint.t.ops.key_at(*op).is_some()).unwrap();
    let at = pieces[1].at;
    for (of, first) in [(SpanOf::Op(op), 16), (SpanOf::At(at), 64), (SpanOf::Blocks(1), 64), (SpanOf::Nothing, 0)] {
        for (offset, len) in [(0, 0), (0, 1), (0, 16), (3, 13), (3, 14), (16, 8), (0, 24), (60, 4)] {
            let whole = if of == SpanOf::Op(op) { 24 } else { 64 };
            if offset + len > whole {
                continue;
            }
            let span = Span { of, offset, len };
            let through: Vec<_> = endpoint.segments(span).collect();
            let at_once = endpoint.sole_segment(span);
            assert_eq!(at_once.is_some(), len > 0 && offset + len <= first, "{span:?}");
            assert!(at_once.is_none_or(|seg| through == [seg]), "{span:?}: {at_once:?}, {through:?}");
        }
    }
}

/// P-3, P-12: a rail whose rate becomes known during its work is fed by that rate from then on.
#[test]
fn late_rate_measurement_takes_effect_immediately() {
    let facts = RailFacts { posts_max: 8, ..TCP };
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[facts]);
    lone.busy = true;
    for n in 0..3 {
        let to = Remote { peer: PeerId(1), window: 3, offset: 512 * n };
        let put = PutRequest { cookie: Cookie(n), segments: &seg(0, 512), ..PutRequest::new(to, &[]) };
        lone.endpoint.put(Time(0), &put).unwrap();
    }
    lone.sent();
    let feed = |lone: &Lone<'_>| lone.endpoint.paths.peer(0).rooms.feed;
    assert_eq!(feed(&lone), 1, "of a rail of unknown rate that is little");
    let sampled = Sampled { latency: Nanos(1_000), bytes_per_second: 1_000 };
    lone.endpoint.paths.figures[0].sampled = Some(sampled);
    lone.endpoint.paths.begin_path(0, RailId(0));
    assert_eq!(feed(&lone), 0, "at 1 kB/s it is more than enough");
    assert!(lone.endpoint.paths.rooms_are_right(0, lone.endpoint.ready_subs(0)));
}

/// L-3, L-4: one post of a rail is reserved for unsequenced packets, and one of these is in flight at a time.
#[test]
fn a_busy_rail_still_takes_one_frame() {
    let config = small();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.busy = true;
    for n in 0..5 {
        lone.send(n, 0);
    }
    assert_eq!(lone.sent().len(), usize::from(TCP.posts_max) - 1);
    lone.feed(Body::Probe(Probe { nonce: 1, answer: false }), 0);
    assert_eq!(lone.sent_one().body, Body::Probe(Probe { nonce: 1, answer: true }));
    lone.feed(Body::Probe(Probe { nonce: 2, answer: false }), 0);
    assert_eq!(lone.sent(), []);
}

/// The peer of a process that closes may end one rail's connection before BYE is sent on all: that is no
/// loss.
#[test]
fn disconnect_during_the_bye_is_not_a_loss() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    // A frame is still with the second rail.
    lone.endpoint.t.sub(0, RailId(1)).frame_posted = true;
    let mut actions = heapless::Vec::new();
    lone.endpoint.poll_actions(Time(0), &mut actions);
    assert_eq!(actions.len(), 1);
    for rail in [1, 0] {
        let event = RailEvent::Down { peer: PeerId(1), rail: RailId(rail), fault: RailFault::Closed };
        lone.endpoint.handle_rail_event(Time(0), event);
    }
    let events: Vec<_> = core::iter::from_fn(|| lone.endpoint.poll_event()).collect();
    assert_eq!(events, [Event::PeerClosed { peer: PeerId(1) }]);
}

/// An open channel that has sent CONNECT on all its rails has no slow-path work.
#[test]
fn open_channel_has_no_slow_path_work() {
    let mut region = Region::of(&small());
    let lone = Lone::connected(&mut region, &small(), &[TCP; 3]);
    let channel = lone.endpoint.t.channels.at(0);
    assert!(channel.work.connections().is_empty() && !channel.has_slow_work());
}

fn answers(sent: &[Repr]) -> Vec<u64> {
    let answer = |packet: &Repr| match packet.body {
        Body::Probe(Probe { nonce, answer: true }) => Some(nonce),
        _ => None,
    };
    sent.iter().filter_map(answer).collect()
}

fn probes_sent(sent: &[Repr]) -> usize {
    sent.iter().filter(|packet| matches!(packet.body, Body::Probe(Probe { answer: false, .. }))).count()
}

/// G-6, F-13: more rails than a batch has room for answer, and are probed, each once.
#[test]
fn every_rail_has_its_turn_with_a_probe() {
    let config = Config { keepalive: Nanos(1_000_000), ..late_connects::config() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP; 20]);
    for rail in 0..20 {
        lone.feed_on(rail, Body::Probe(Probe { nonce: rail.into(), answer: false }), 0, |_| {});
    }
    // Only the remaining work keeps the channel active.
    lone.busy = true;
    lone.rails.clear();
    let all: Vec<u8> = (0..20).collect();
    assert_eq!(answers(&lone.sent()), all.iter().map(|&rail| u64::from(rail)).collect::<Vec<_>>());
    assert_eq!(lone.rails.iter().map(|rail| rail.0).collect::<Vec<_>>(), all);
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    }
    lone.rails.clear();
    lone.now += 1_000_000;
    lone.endpoint.handle_timeout(Time(lone.now));
    assert_eq!(probes_sent(&lone.sent()), 20);
    assert_eq!(lone.rails.iter().map(|rail| rail.0).collect::<Vec<_>>(), all);
}

/// L-3: a probe waits behind the current unsequenced packet of its rail.
#[test]
fn a_question_waits_for_the_frame_before_it() {
    let config = Config { keepalive: Nanos(1_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.busy = true;
    lone.feed(Body::Probe(Probe { nonce: 1, answer: false }), 0);
    assert_eq!(answers(&[lone.sent_one()]), [1]);
    lone.now += 1_000_000;
    lone.endpoint.handle_timeout(Time(lone.now));
    assert_eq!(lone.sent(), []);
    let id = lone.held.remove(0);
    lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::Done);
    assert_eq!(probes_sent(&lone.sent()), 1);
}

/// G-6: a probe whose subchannel is gone is answered neither on another rail nor when the rail is back.
#[test]
fn a_probe_is_not_answered_on_another_connection() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.feed_on(1, Body::Probe(Probe { nonce: 7, answer: false }), 0, |_| {});
    down(&mut lone, 1, RailFault::TimedOut);
    assert_eq!(answers(&lone.sent()), [0; 0]);
    up(&mut lone, 1);
    lone.feed_on(1, connect(1, 2), 0, |_| {});
    assert_eq!(answers(&lone.sent()), [0; 0]);
    // Nothing was sent in between.
    lone.feed_on(1, Body::Probe(Probe { nonce: 8, answer: false }), 0, |_| {});
    down(&mut lone, 1, RailFault::TimedOut);
    up(&mut lone, 1);
    lone.feed_on(1, connect(2, 3), 0, |_| {});
    assert_eq!(answers(&lone.sent()), [0; 0]);
}

fn sends_bye(lone: &mut Lone<'_>) -> bool {
    lone.sent().iter().any(|packet| packet.body == Body::Bye)
}

/// G-7: a request that is acknowledged and not answered delays BYE.
#[test]
fn bye_waits_for_pending_replies() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let at = Remote { peer: PeerId(1), window: 3, offset: 0 };
    lone.endpoint.get(Time(0), &GetRequest { segments: &seg(0, 8), ..GetRequest::new(at, &[]) }).unwrap();
    let Body::Get(Get { operation, .. }) = lone.sent_one().body else { panic!("no GET") };
    lone.acks[1] = 1;
    lone.feed(Body::Credit, 0);
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    assert!(!sends_bye(&mut lone));
    let arrival = lone.feed(Body::Data(Data { operation, offset: 0 }), 8);
    lone.place(arrival);
    assert!(sends_bye(&mut lone));
}

/// G-7: so does a message of the peer that has met its receive and has not arrived completely.
#[test]
fn bye_waits_for_an_incoming_message() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.recv(1, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    let Body::Cts(cts) = lone.sent_one().body else { panic!("no CTS") };
    lone.acks[1] = 1;
    lone.feed(Body::Credit, 0);
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    assert!(!sends_bye(&mut lone));
    let arrival = lone.feed(Body::Data(Data { operation: cts.target, offset: 0 }), 3000);
    lone.place(arrival);
    assert!(!sends_bye(&mut lone), "the FIN is not acknowledged");
    lone.acks[1] = 2;
    lone.feed(Body::Credit, 0);
    assert!(sends_bye(&mut lone));
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(3000));
}

/// G-7: while the only rail waits for its redial, BYE waits, too.
#[test]
fn bye_waits_for_the_redial_of_the_only_rail() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    // It is redialled at once, and then after a pause.
    down(&mut lone, 0, RailFault::TimedOut);
    lone.sent();
    down(&mut lone, 0, RailFault::TimedOut);
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    assert_eq!(lone.sent(), []);
    assert_eq!(lone.endpoint.poll_event(), None);
    lone.now += small().redial_min.0;
    lone.endpoint.handle_timeout(Time(lone.now));
    lone.sent();
    up(&mut lone, 0);
    lone.feed(connect(0, 2), 0);
    assert!(sends_bye(&mut lone));
    lone.sent();
    assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerClosed { peer: PeerId(1) }));
}
