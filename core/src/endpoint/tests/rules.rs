//! Rules of `conformance/PROTOCOL.md` one by one, packet by packet.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::*;
use crate::wire::{Ack, Body, Connect, Cts, Data, Fence, Fin, MessageHead, Probe, Refusal, RemoteKey, Rts};

fn region() -> Region {
    Region::of(&small())
}

fn eager(immediate: u64) -> Body {
    Body::Eager(MessageHead { immediate: Some(immediate), operation: 77, ..MessageHead::default() })
}

fn rts(message_bytes: u64) -> Body {
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    Body::Rts(Rts { head, message_bytes, ..Rts::default() })
}

/// A packet of the unordered lane for no known operation.
fn stray() -> Body {
    Body::Fin(Fin { count: 1, ..Fin::default() })
}

/// G-1, G-2, L-3: CONNECT is sent first, nothing else before the peer's has arrived, and only once.
#[test]
fn connect_is_sent_first_and_once() {
    let mut region = region();
    let mut lone = Lone::up(&mut region, &small(), &[TCP]);
    lone.send(1, 10);
    assert_eq!(lone.sent_one().body, Body::Connect(Connect { requests_max: 4, rail: 0, ..PEER_PARAMETERS }));
    assert_eq!(lone.feed(Body::Connect(PEER_PARAMETERS), 0), Arrival::Done);
    assert!(matches!(lone.sent_one().body, Body::Eager(_)));
    assert_eq!(lone.feed(Body::Connect(PEER_PARAMETERS), 0), Arrival::Done);
    assert_eq!(lone.sent(), []);
}

/// G-2: a CONNECT that answers is marked as an answer.
#[test]
fn connect_is_answered() {
    let mut region = region();
    let mut lone = Lone::up(&mut region, &small(), &[TCP]);
    assert_eq!(lone.feed(Body::Connect(PEER_PARAMETERS), 0), Arrival::Done);
    assert_eq!(
        lone.sent_one().body,
        Body::Connect(Connect { requests_max: 4, rail: 0, answer: true, ..PEER_PARAMETERS })
    );
}

/// G-1, G-3, S-6, S-11, A-7, X-1, X-9, W-11, G-8: each of these ends the peer's channel, and the error has
/// the reason.
#[test]
fn each_protocol_violation_ends_the_channel() {
    use ProtocolError::*;
    type Break = fn(&mut Lone<'_>) -> Arrival;
    let connected: [(Break, ProtocolError); 9] = [
        (|lone| lone.feed(Body::Connect(Connect { window: 0, ..PEER_PARAMETERS }), 0), BadParameters),
        (|lone| lone.feed(Body::Connect(Connect { block_bytes: 0, ..PEER_PARAMETERS }), 0), BadParameters),
        (|lone| lone.feed_on(0, stray(), 0, |common| common.source = 2), WrongSource { named: 2 }),
        (|lone| lone.feed_on(0, stray(), 0, |common| common.source = u32::MAX), WrongSource { named: u32::MAX }),
        (|lone| lone.feed_on(0, stray(), 0, |common| common.psn = 64), Sequence { psn: 64 }),
        (|lone| lone.feed_on(0, eager(0), 0, |common| common.psn = 64), Sequence { psn: 64 }),
        (|lone| lone.feed_on(0, stray(), 0, |common| common.ack_ordered = 1), Sequence { psn: 1 }),
        (|lone| lone.feed(eager(0), 1001), TooLong { bytes: 1001 }),
        (
            |lone| {
                lone.recv(1, 100);
                assert_eq!(lone.feed(rts(200), 0), Arrival::Done);
                let Body::Cts(Cts { target, granted_bytes: 100, .. }) = lone.sent_one().body else { panic!("no CTS") };
                lone.feed(Body::Data(Data { operation: target, offset: 60 }), 41)
            },
            OutOfRange { offset: 60 },
        ),
    ];
    for (wrong, error) in connected {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
        assert_eq!(wrong(&mut lone), Arrival::Close, "{error:?}");
        assert_eq!(lone.offence(), error);
        assert_eq!(lone.sent(), []);
        assert_eq!(lone.closed, [RailId(0), RailId(1)]);
    }
    let mut region = region();
    let mut lone = Lone::up(&mut region, &small(), &[TCP]);
    assert_eq!(lone.feed(stray(), 0), Arrival::Close);
    assert_eq!(lone.offence(), NotConnected);
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let long = lone.feed(Body::Aggregate { count: 1 }, 1001);
    assert_eq!((long, lone.offence()), (Arrival::Close, TooLong { bytes: 1001 }));
}

/// G-3: a channel has the same parameters on all its subchannels, except the rail's number.
#[test]
fn later_connects_must_keep_the_negotiated_parameters() {
    let mut region = region();
    let mut lone = Lone::up(&mut region, &small(), &[TCP, TCP]);
    assert_eq!(lone.feed(Body::Connect(PEER_PARAMETERS), 0), Arrival::Done);
    let other_rail = Connect { rail: 5, ..PEER_PARAMETERS };
    assert_eq!(lone.feed_on(1, Body::Connect(other_rail), 0, |_| {}), Arrival::Done);
    lone.sent();
    lone.send(1, 500);
    lone.send(2, 500);
    assert!(lone.sent().iter().all(|packet| matches!(packet.body, Body::Eager(_))));
    let other_parameters = Connect { eager_bytes_max: 0, ..other_rail };
    assert_eq!(lone.feed_on(1, Body::Connect(other_parameters), 0, |_| {}), Arrival::Close);
    assert_eq!(lone.offence(), ProtocolError::BadParameters);
}

/// F-4, W-23: a FENCE about an unknown connection gets the answer that it is dead.
#[test]
fn fence_for_an_unknown_connection_is_answered_as_dead() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    assert_eq!(lone.feed(Body::Fence(Fence::default()), 0), Arrival::Done);
    assert_eq!(lone.endpoint.stats().stale_dropped, 0);
    let answer = Fence { peer_rail: PEER_RAIL, answer: true, ..Fence::default() };
    assert_eq!((lone.sent_one().body, lone.endpoint.poll_event()), (Body::Fence(answer), None));
}

/// G-6, S-10, A-8: a probe is answered, an answer is not, and neither is acknowledged.
#[test]
fn probes_are_answered_once() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    let probe = |nonce, answer| Body::Probe(Probe { nonce, answer });
    lone.feed(probe(7, false), 0);
    assert_eq!(lone.sent_one().body, probe(7, true));
    // On the rail of the request (G-6), whatever it carried (W-24).
    for rail in [1, 0] {
        assert_eq!(lone.feed_on(rail, probe(7, false), 100, |_| ()), Arrival::Discard);
        lone.rails.clear();
        assert_eq!(lone.sent_one().body, probe(7, true));
        assert_eq!(lone.rails, [RailId(rail)]);
    }
    lone.feed(probe(8, false), 0);
    lone.feed(probe(9, false), 0);
    assert_eq!(lone.sent_one().body, probe(9, true));
    lone.feed(probe(9, true), 0);
    lone.feed(Body::Credit, 0);
    assert_eq!((lone.sent(), lone.endpoint.next_obligation()), (vec![], None));
}

/// G-7, G-10: BYE is not answered; messages that have arrived and had their turn can still be received; the
/// peer does not come back.
#[test]
fn a_bye_ends_the_channel_at_once() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.send(1, 10);
    assert_eq!(lone.sent().len(), 1);
    let whole = lone.feed(eager(5), 100);
    lone.place(whole);
    let early = lone.feed_on(0, eager(6), 10, |common| common.psn = 2);
    lone.place(early);
    lone.send(2, 10);
    assert_eq!(lone.feed(Body::Bye, 0), Arrival::Done);
    assert_eq!(lone.sent(), []);
    assert_eq!(lone.closed, [RailId(0), RailId(1)]);
    assert_eq!(lone.feed(Body::Bye, 0), Arrival::Discard);
    let done = lone.completed();
    assert!(done[&1].is_ok(), "its copy was made");
    assert_eq!(done[&2], Err(OpError::PeerClosed { peer: PeerId(1) }));
    lone.recv(3, 100);
    lone.sent();
    assert_eq!(lone.completed()[&3].unwrap().immediate, Some(5));
    assert!(lone.endpoint.t.messages.is_empty(), "the early one had not had its turn");
    lone.closed.clear();
    lone.endpoint.handle_rail_event(Time(0), RailEvent::Up { peer: PeerId(1), rail: RailId(1) });
    // A peer that connects again receives it again.
    assert!(matches!(lone.sent_one().body, Body::Connect(Connect { rail: 1, .. })));
    assert_eq!(lone.feed_on(1, eager(7), 0, |_| ()), Arrival::Discard);
    lone.feed_on(1, Body::Connect(Connect { rail: lone::PEER_RAIL + 1, ..PEER_PARAMETERS }), 0, |_| ());
    assert_eq!(lone.sent_one().body, Body::Bye);
    lone.sent();
    assert_eq!(lone.closed, [RailId(1)]);
    assert_eq!(lone.endpoint.poll_event(), None);
}

/// S-1, A-1, S-7: lanes count apart, and every packet acknowledges data in place, not data in flight.
#[test]
fn every_packet_acknowledges() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let header =
        |packet: &crate::wire::Repr| (packet.common.psn, packet.common.ack_ordered, packet.common.ack_unordered);
    let on_the_way = lone.feed(eager(0), 10);
    lone.send(1, 10);
    assert_eq!(header(&lone.sent_one()), (0, 0, 0));
    lone.place(on_the_way);
    lone.feed(stray(), 0);
    lone.send(2, 10);
    assert_eq!(header(&lone.sent_one()), (1, 1, 1));
    let put =
        PutRequest { segments: &seg(0, 8), ..PutRequest::new(Remote { peer: PeerId(1), window: 1, offset: 0 }, &[]) };
    lone.endpoint.put(Time(0), &put).unwrap();
    assert_eq!(header(&lone.sent_one()), (0, 1, 1));
    lone.feed(Body::Probe(Probe { nonce: 1, answer: false }), 0);
    assert_eq!(header(&lone.sent_one()), (0, 1, 1));
}

/// S-5: acknowledged by the delay of the first, at once on demand, and again where it comes
/// twice.
#[test]
fn acknowledgments_come_in_time() {
    let mut region = region();
    let config = small();
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    let due = Time(1000) + config.ack_delay;
    for at in [1000, 2000] {
        lone.now = at;
        lone.feed(stray(), 0);
        assert_eq!((lone.sent(), lone.endpoint.next_timeout()), (vec![], Some(due)));
    }
    lone.now = due.0;
    lone.endpoint.handle_timeout(due);
    let ack = lone.sent_one();
    assert_eq!((ack.common.ack_unordered, ack.body), (2, Body::Ack(Ack::default())));
    assert_eq!(lone.endpoint.next_obligation(), None);
    lone.feed_on(0, stray(), 0, |common| (common.psn, common.ack_now) = (4, true));
    let ack = lone.sent_one();
    assert_eq!((ack.common.ack_unordered, ack.body), (2, Body::Ack(Ack { unordered_beyond: 0b10, ordered_beyond: 0 })));
    lone.feed_on(0, stray(), 0, |common| common.psn = 0);
    assert!(matches!(lone.sent_one().body, Body::Ack(_)));
    assert_eq!(lone.endpoint.stats().duplicates_dropped, 1);
}

/// without room for a copy, the caller's buffer is kept until the acknowledgment; a lossless rail needs
/// neither.
#[test]
fn message_that_may_be_retransmitted_is_kept() {
    let config = Config { retained_max: 0, ..small() };
    for (rail, done_when_posted) in [(TCP, false), (SHM, true)] {
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[rail]);
        lone.send(1, 10);
        assert_eq!(lone.sent_one().common.ack_now, !done_when_posted);
        assert_eq!(lone.completed().contains_key(&1), done_when_posted);
        lone.acks[0] = 1;
        lone.feed(Body::Credit, 0);
        assert_eq!(lone.completed().contains_key(&1), !done_when_posted);
    }
}

/// a sender short of table entries that only acknowledgments free requests them, at marks on the way and
/// when it is full.
#[test]
fn sender_short_of_table_entries_requests_acknowledgments() {
    let requested = |config: &Config| -> Vec<bool> {
        let mut region = Region::of(config);
        let mut lone = Lone::connected(&mut region, config, &[TCP]);
        let mut requested = Vec::new();
        for n in 0..8 {
            lone.send(n, 10);
            requested.extend(lone.sent().iter().map(|packet| packet.common.ack_now));
        }
        requested
    };
    let plenty = Config { packets_max: 64, retained_max: 64, operations_max: 64, ..small() };
    assert_eq!(requested(&plenty), [false; 8]);
    let few_packets = Config { packets_max: 8, ..plenty };
    assert_eq!(requested(&few_packets), [false, false, false, true, true, true, true, true]);
    // The ninth copy finds no place: it requests as ever, because its buffer is not free.
    let few_copies = Config { retained_max: 16, ..plenty };
    assert_eq!(requested(&few_copies), [false, false, false, false, false, false, false, true]);
    let few_operations = Config { operations_max: 8, ..plenty };
    assert_eq!(requested(&few_operations), [false, false, false, false, false, false, false, true]);
}

/// S-3: no more packets are in flight than the lesser window holds.
#[test]
fn the_lesser_window_limits() {
    let config = Config { window: 128, packets_max: 256, ..Config { multiplex: Policy::Binding, ..small() } };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.limits.0 = 1000;
    lone.feed(Body::Credit, 0);
    for n in 0..100 {
        lone.send(n, 0);
    }
    assert_eq!(lone.sent().len(), 64);
    lone.acks[0] = 10;
    lone.feed(Body::Credit, 0);
    assert_eq!(lone.sent().len(), 10);
}

/// S-8, S-9: an early message waits, a request does not wait for it.
#[test]
fn only_the_ordered_lane_waits() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.recv(1, 10);
    lone.feed_on(0, eager(1), 0, |common| common.psn = 1);
    assert_eq!(lone.completed(), BTreeMap::new());
    lone.feed(Body::Get(crate::wire::Get { operation: 9, ..crate::wire::Get::default() }), 0);
    assert!(matches!(lone.sent_one().body, Body::Fin(Fin { operation: 9, refused: Some(Refusal::NoWindow), .. })));
    lone.feed_on(0, eager(0), 0, |common| common.psn = 0);
    assert_eq!(lone.completed()[&1].unwrap().immediate, Some(0));
    lone.recv(2, 10);
    lone.sent();
    assert_eq!(lone.completed()[&2].unwrap().immediate, Some(1));
}

/// M-7: a message whose payload is still in flight has its receive already; the next one gets the next.
#[test]
fn matching_does_not_wait_for_payload() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.recv(1, 10);
    lone.recv(2, 10);
    let first = lone.feed(eager(10), 10);
    let second = lone.feed_on(1, eager(20), 10, |_| {});
    lone.place(second);
    assert_eq!(lone.completed().into_values().map(|done| done.unwrap().immediate).collect::<Vec<_>>(), [Some(20)]);
    lone.place(first);
    assert_eq!(lone.completed()[&1].unwrap().immediate, Some(10));
}

/// C-3, C-4: one message more than granted violates the protocol; once a quarter is free again, it is granted
/// without a request.
#[test]
fn messages_beyond_the_grant_are_rejected() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    for n in 0..8 {
        lone.feed(eager(n), 0);
    }
    let ack = lone.sent_one();
    assert!(matches!(ack.body, Body::Ack(_)));
    assert_eq!(ack.common.message_limit, 32);
    for n in 0..8 {
        lone.recv(n, 0);
        if n < 7 {
            assert_eq!(lone.sent(), []);
        }
    }
    let reported = lone.sent_one();
    assert_eq!((reported.common.message_limit, reported.body), (40, Body::Credit));
    // If a receive is posted, the grant is back before the payload has arrived.
    lone.recv(50, 100);
    let on_the_way = lone.feed(eager(0), 100);
    lone.feed_on(1, Body::Probe(Probe { nonce: 1, answer: false }), 0, |_| {});
    let reported = lone.sent_one().common;
    assert_eq!((reported.message_limit, reported.block_limit, reported.ack_ordered), (41, 66, 8));
    lone.place(on_the_way);
    for n in 0..32 {
        assert_eq!(lone.feed(eager(n), 0), Arrival::Done);
    }
    assert_eq!(lone.feed(eager(32), 0), Arrival::Close);
    lone.completed();
}

/// C-1, C-2, C-6, C-7: nothing is sent without a credit, without blocks a message is announced, and outdated
/// limits are ignored.
#[test]
fn nothing_is_sent_without_credits() {
    let mut region = region();
    let mut lone = Lone::up(&mut region, &small(), &[TCP]);
    lone.limits = (0, 0);
    lone.feed(Body::Connect(PEER_PARAMETERS), 0);
    lone.sent();
    lone.send(1, 100);
    lone.send(2, 0);
    assert_eq!(lone.sent(), []);
    lone.limits = (2, 1);
    lone.feed(Body::Credit, 0);
    let sent = lone.sent();
    assert!(matches!((&sent[0].body, &sent[1].body), (Body::Rts(_), Body::Eager(_))), "100 bytes take two blocks");
    lone.acks[0] = 2;
    lone.limits = (3, 3);
    lone.feed(Body::Credit, 0);
    // If it were used, it would grant 60,000 messages.
    lone.feed_on(0, Body::Credit, 0, |common| (common.ack_ordered, common.message_limit) = (0, 60_000));
    lone.send(3, 100);
    lone.send(4, 0);
    assert!(matches!(lone.sent_one().body, Body::Eager(_)));
}

/// C-5: the target counts requests without an acknowledged answer, the origin sends no more than that.
#[test]
fn requests_are_counted() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let get = |operation| Body::Get(crate::wire::Get { operation, ..crate::wire::Get::default() });
    for n in 0..4 {
        assert_eq!(lone.feed(get(n), 0), Arrival::Done);
    }
    assert_eq!(lone.sent().len(), 4, "all are answered");
    lone.acks[1] = 1;
    assert_eq!(lone.feed(get(4), 0), Arrival::Done);
    assert_eq!(lone.feed(get(5), 0), Arrival::Close);
    assert_eq!(lone.offence(), ProtocolError::Credit);

    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    for n in 0..4 {
        let from = Remote { peer: PeerId(1), window: 1, offset: 0 };
        let get = GetRequest { cookie: Cookie(n), segments: &seg(100 * n, 8), ..GetRequest::new(from, &[]) };
        lone.endpoint.get(Time(0), &get).unwrap();
    }
    let requested = lone.sent();
    let [Body::Get(first), Body::Get(_)] = [&requested[0].body, &requested[1].body] else { panic!("{requested:?}") };
    assert_eq!(requested.len(), 2);
    let access = Access { write: true, ..Access::default() };
    let window = Window::new(MemRef { region: HEAP, offset: 0 }, 10, access, 5);
    lone.endpoint.expose(&window).unwrap();
    let put = crate::wire::Put { window: 5, ..crate::wire::Put::default() };
    let on_the_way = lone.feed_on(1, Body::Put(put), 8, |_| {});
    let answer = lone.feed(Body::Data(Data { operation: first.operation, offset: 0 }), 8);
    lone.place(answer);
    assert!(lone.completed()[&0].is_ok());
    // The put before the answer is not placed, so no acknowledgment can cover the answer.
    assert_eq!(lone.sent(), []);
    lone.place(on_the_way);
    // At the latest when the acknowledgment is due: the request carries it.
    lone.now = lone.endpoint.next_timeout().unwrap().0;
    lone.endpoint.handle_timeout(Time(lone.now));
    let third = lone.sent_one();
    assert!(matches!(third.body, Body::Get(_)));
    assert_eq!(third.common.ack_unordered, 2);
}

/// until the origin has received a put's refusal, packets carry the flag, and then one is sent without.
#[test]
fn refusal_flag_is_sent_until_the_refusal_is_acknowledged() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let put = crate::wire::Put { window: 5, operation: 9, ..crate::wire::Put::default() };
    assert_eq!(lone.feed(Body::Put(put), 8), Arrival::Discard);
    let fin = lone.sent_one();
    assert_eq!((fin.common.ack_unordered, fin.common.refusing), (1, true));
    assert!(matches!(fin.body, Body::Fin(Fin { operation: 9, refused: Some(Refusal::NoWindow), .. })));
    lone.send(1, 0);
    assert!(lone.sent_one().common.refusing);
    lone.acks[1] = 1;
    lone.feed(Body::Credit, 0);
    let reported = lone.sent_one();
    assert_eq!((reported.common.ack_unordered, reported.common.refusing), (1, false));
}

/// a put that a refusing target acknowledges is unconfirmed, until the newest acknowledgment arrives
/// without the flag.
#[test]
fn an_origin_waits_for_a_refusal() {
    for refused in [false, true] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
        let to = Remote { peer: PeerId(1), window: 1, offset: 0 };
        let put = PutRequest { cookie: Cookie(1), segments: &seg(0, 8), ..PutRequest::new(to, &[]) };
        lone.endpoint.put(Time(0), &put).unwrap();
        let Body::Put(sent) = lone.sent_one().body else { panic!("no PUT") };
        lone.feed_on(0, Body::Credit, 0, |common| (common.ack_unordered, common.refusing) = (1, true));
        // An old packet that arrives late.
        lone.feed(Body::Credit, 0);
        assert_eq!(lone.completed(), BTreeMap::new());
        let why = Refusal::OutOfRange;
        lone.acks[1] = 1;
        if refused {
            let fin = Fin {
                operation: sent.operation,
                count: 1,
                refused: Some(why),
                placed_bytes: 0,
                epoch: 0,
                want_placed: false,
            };
            lone.feed_on(0, Body::Fin(fin), 0, |common| common.refusing = true);
            assert_eq!(lone.completed(), BTreeMap::new());
        }
        lone.feed(Body::Credit, 0);
        let result = lone.completed()[&1].map(|done| done.bytes);
        assert_eq!(result, if refused { Err(OpError::Refused { peer: PeerId(1), why }) } else { Ok(8) });
    }
}

/// a get of no bytes is answered by one empty DATA.
#[test]
fn a_get_of_nothing_is_answered() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let access = Access { read: true, ..Access::default() };
    let window = Window::new(MemRef { region: HEAP, offset: 0 }, 10, access, 5);
    lone.endpoint.expose(&window).unwrap();
    lone.feed(Body::Get(crate::wire::Get { window: 5, offset: 10, bytes: 0, operation: 8 }), 0);
    let answer = lone.sent_one();
    assert_eq!((answer.body, answer.common.payload_bytes), (Body::Data(Data { operation: 8, offset: 0 }), 0));
}

/// if nothing fits, FIN is sent at once. X-5: otherwise CTS, and FIN once all has arrived. X-9:
/// further data is dropped.
#[test]
fn a_receiver_answers_an_rts() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.recv(1, 0);
    lone.feed(rts(2000), 0);
    let fin = |placed_bytes| {
        Body::Fin(Fin { operation: 77, placed_bytes, count: 1, refused: None, epoch: 0, want_placed: false })
    };
    assert_eq!(lone.sent_one().body, fin(0));
    lone.recv(2, 20);
    lone.feed(rts(20), 0);
    let Body::Cts(cts) = lone.sent_one().body else { panic!("no CTS") };
    assert_eq!((cts.operation, cts.granted_bytes, cts.keys.len()), (77, 20, 0));
    for offset in [10, 0] {
        assert_eq!(lone.sent(), []);
        let half = lone.feed(Body::Data(Data { operation: cts.target, offset }), 10);
        lone.place(half);
    }
    assert_eq!(lone.sent_one().body, fin(20));
    assert_eq!(lone.completed()[&2].map(|done| done.bytes), Ok(20));
    assert_eq!(lone.feed(Body::Data(Data { operation: cts.target, offset: 0 }), 10), Arrival::Discard);
}

/// a receiver that announced keys takes DATA all the same; a sender that can use no key sends it. X-10:
/// keys use the rail's number at the side that made them.
#[test]
fn keys_that_are_of_no_use() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT]);
    lone.recv(1, 20);
    lone.feed(rts(20), 0);
    let Body::Cts(cts) = lone.sent_one().body else { panic!("no CTS") };
    assert_eq!(cts.keys[..], [RemoteKey { rail: 0, connection: 1, key: 1, address: 2 }]);
    let data = lone.feed(Body::Data(Data { operation: cts.target, offset: 0 }), 20);
    lone.place(data);
    assert!(matches!(lone.sent_one().body, Body::Fin(Fin { operation: 77, placed_bytes: 20, .. })));
    assert!(lone.completed()[&1].is_ok());

    for (rail, writes) in [(PEER_RAIL, 1), (0, 0)] {
        lone.send(2, 3000);
        let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
        let keys = [RemoteKey { rail, connection: 1, key: 3, address: 4 }].into_iter().collect();
        let cts = Cts { operation: rts.head.operation, target: 88, granted_bytes: 3000, keys, epoch: 0 };
        let before = lone.transfers;
        lone.feed(Body::Cts(cts), 0);
        let sent = lone.sent_one();
        assert_eq!(lone.transfers - before, writes);
        match writes {
            0 => assert_eq!(sent.body, Body::Data(Data { operation: 88, offset: 0 })),
            _ => assert!(matches!(sent.body, Body::Fin(Fin { operation: 88, count: 1, .. }))),
        }
    }
}

/// a refusal ends only an announced message: one that the peer already has, or that is in flight as
/// data or by writes, is not refused any more.
#[test]
fn only_an_announced_message_can_be_refused() {
    let refused =
        |operation| Body::Fin(Fin { operation, count: 1, refused: Some(Refusal::NoAccess), ..Fin::default() });
    for (bytes, facts, keys) in [(10, TCP, false), (3000, TCP, false), (3000, PUT, true)] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[facts]);
        let send = SendRequest {
            level: Level::Placed,
            cookie: Cookie(1),
            segments: &seg(0, bytes),
            ..SendRequest::new(PeerId(1), &[])
        };
        lone.endpoint.send(Time(0), &send).unwrap();
        let operation = match lone.sent_one().body {
            Body::Eager(head) => head.operation,
            Body::Rts(rts) => {
                let operation = rts.head.operation;
                let key = RemoteKey { rail: PEER_RAIL, connection: 1, key: 7, address: 0 };
                let keys = keys.then_some(key).into_iter().collect();
                lone.feed(Body::Cts(Cts { operation, target: 88, granted_bytes: bytes, keys, epoch: 0 }), 0);
                lone.busy = true;
                lone.sent();
                operation
            }
            other => panic!("{other:?}"),
        };
        let before = lone.endpoint.stats().stale_dropped;
        lone.feed(refused(operation), 0);
        for id in core::mem::take(&mut lone.held) {
            lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
        }
        lone.busy = false;
        lone.sent();
        assert_eq!(lone.endpoint.stats().stale_dropped, before + 1, "{bytes} bytes");
        assert_eq!(lone.completed(), BTreeMap::new());
        lone.feed(Body::Fin(Fin { operation, count: 1, placed_bytes: bytes, ..Fin::default() }), 0);
        lone.sent();
        assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(bytes));
    }
}

/// a refusal that names a message ends it; later packets for it, or for no message, change nothing.
#[test]
fn a_refused_message_is_over() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.send(1, 3000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    let operation = rts.head.operation;
    let refused = Some(Refusal::NoAccess);
    lone.feed(Body::Fin(Fin { operation, count: 1, refused, placed_bytes: 0, epoch: 0, want_placed: false }), 0);
    let cts = |operation| Body::Cts(Cts { operation, target: 88, granted_bytes: 3000, ..Cts::default() });
    lone.feed(cts(operation + 1), 0);
    lone.feed(cts(operation), 0);
    assert_eq!((lone.sent(), lone.endpoint.stats().stale_dropped), (vec![], 2));
    let why = Refusal::NoAccess;
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Err(OpError::Refused { peer: PeerId(1), why }));
}
