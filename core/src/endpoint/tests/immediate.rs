//! Puts with immediate data: their last packet, their report at the target, and their end (R-10, C-5).

use super::lone::Lone;
use super::recovery::{connect, down, fence, region, up};
use super::*;
use crate::wire::{Body, Fin, PutImmediate, Refusal, Repr};

const TO: Remote = Remote { peer: PeerId(1), window: 9, offset: 24 };
const KEY: u64 = 5;

fn put(lone: &mut Lone<'_>, cookie: u64, bytes: u64) {
    let (segments, cookie) = (seg(0, bytes), Cookie(cookie));
    let put = PutRequest { immediate: Some(7), cookie, ..PutRequest::new(TO, &segments) };
    lone.endpoint.put(Time(lone.now), &put).unwrap();
}

pub(super) fn fin(operation: u64, refused: Option<Refusal>) -> Body {
    Body::Fin(Fin { operation, count: 1, refused, placed_bytes: 0, epoch: 0, want_placed: false })
}

/// The ends of puts among some packets, with their payload.
fn ends(packets: &[Repr]) -> Vec<(PutImmediate, u32)> {
    let end = |packet: &Repr| match packet.body {
        Body::PutImmediate(end) => Some((end, packet.common.payload_bytes)),
        _ => None,
    };
    packets.iter().filter_map(end).collect()
}

/// A window of 64 bytes that can be written.
fn expose(lone: &mut Lone<'_>, written: Notify) -> WindowId {
    let access = Access { write: true, ..Access::default() };
    let window = Window::new(MemRef { region: HEAP, offset: 0 }, 64, access, KEY);
    lone.endpoint.expose(&Window { written, cookie: Cookie(3), ..window }).unwrap()
}

fn end(offset: u64, bytes: u64) -> Body {
    Body::PutImmediate(PutImmediate { window: KEY, offset, operation: 40 + offset, bytes, immediate: 99 })
}

fn report(offset: u64, bytes: u64) -> Event {
    let (peer, cookie, window) = (PeerId(1), Cookie(3), KEY);
    Event::Written(Written { peer, cookie, window, offset, bytes, immediate: 99 })
}

fn answers(packets: &[Repr]) -> Vec<u64> {
    let answer = |packet: &Repr| match packet.body {
        Body::Fin(Fin { operation, refused: None, .. }) => Some(operation),
        _ => None,
    };
    packets.iter().filter_map(answer).collect()
}

/// a put that one packet can carry is one packet; only its answer completes it.
#[test]
fn a_short_put_is_one_packet() {
    for refused in [None, Some(Refusal::NoAccess)] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
        put(&mut lone, 1, 8);
        let sent = lone.sent();
        let [(last, 8)] = ends(&sent)[..] else { panic!("{sent:?}") };
        let PutImmediate { window, offset, bytes, immediate, operation } = last;
        assert_eq!((sent.len(), window, offset, bytes, immediate), (1, 9, 24, 8, 7));
        lone.acks[1] = 1;
        lone.feed(Body::Credit, 0);
        assert_eq!(lone.completed(), BTreeMap::new());
        lone.feed(fin(operation, refused), 0);
        let expected = match refused {
            None => Ok(Done { bytes: 8, immediate: Some(7), ..Done::of(PeerId(1)) }),
            Some(why) => Err(OpError::Refused { peer: PeerId(1), why }),
        };
        assert_eq!(lone.completed()[&1], expected);
        assert_eq!(lone.endpoint.usage().operations.used, 0);
    }
}

/// the end of a put of several packets follows when all others are acknowledged, and none of them
/// can have been refused.
#[test]
fn the_end_follows_the_acknowledged_payload() {
    for refused in [false, true] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
        put(&mut lone, 1, 12_000);
        let sent = lone.sent();
        let Body::Put(first) = sent[0].body else { panic!("{sent:?}") };
        assert_eq!((sent.len(), ends(&sent)), (3, Vec::new()));
        lone.acks[1] = 2;
        lone.feed(Body::Credit, 0);
        assert_eq!(lone.sent(), []);
        lone.acks[1] = 3;
        lone.feed_on(0, Body::Credit, 0, |common| common.refusing = true);
        assert_eq!(lone.sent(), []);
        if refused {
            lone.feed_on(0, fin(first.operation, Some(Refusal::OutOfRange)), 0, |common| common.refusing = true);
        }
        lone.feed(Body::Credit, 0);
        let last = ends(&lone.sent());
        if refused {
            let why = Refusal::OutOfRange;
            assert_eq!((last, lone.completed()[&1]), (Vec::new(), Err(OpError::Refused { peer: PeerId(1), why })));
        } else {
            assert!(
                matches!(last[..], [(PutImmediate { offset: 24, bytes: 12_000, immediate: 7, .. }, 0)]),
                "{last:?}"
            );
            assert_eq!(lone.completed(), BTreeMap::new());
            lone.feed(fin(last[0].0.operation, None), 0);
            assert_eq!(lone.completed().len(), 0, "the rail may send it again");
            lone.acks[1] = 4;
            lone.feed(Body::Credit, 0);
            assert!(lone.completed()[&1].is_ok());
        }
    }
}

/// reported when all bytes are in place, once; answered when the caller has the report.
#[test]
fn a_target_reports_a_put_once() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let window = expose(&mut lone, Notify::Event);
    let arrival = lone.feed(end(8, 16), 16);
    assert_eq!(lone.endpoint.poll_event(), None);
    assert_eq!(lone.endpoint.deregister(window), Err(DeregisterError::Busy));
    lone.place(arrival);
    assert_eq!(lone.feed_on(0, end(8, 16), 16, |common| common.psn = 0), Arrival::Discard);
    assert_eq!(lone.feed(end(0, 64), 0), Arrival::Done);
    assert_eq!(answers(&lone.sent()), []);
    assert_eq!(lone.endpoint.deregister(window), Ok(()), "its memory is not used any more");
    assert_eq!((lone.endpoint.poll_event(), answers(&lone.sent())), (Some(report(8, 16)), vec![48]));
    assert_eq!((lone.endpoint.poll_event(), answers(&lone.sent())), (Some(report(0, 64)), vec![40]));
    assert_eq!(lone.endpoint.poll_event(), None);
    lone.acks[1] = 2;
    lone.feed(Body::Credit, 0);
    assert!(lone.endpoint.is_quiet(None));
}

/// a window's counter counts puts with immediate data, and they are answered at once.
#[test]
fn a_counter_needs_no_caller() {
    for (written, events, count) in
        [(Notify::Counter(CounterId(2)), 0, 1), (Notify::Both(CounterId(2)), 1, 1), (Notify::Silent, 0, 0)]
    {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
        expose(&mut lone, written);
        lone.feed(end(8, 16), 0);
        assert_eq!(answers(&lone.sent()).len(), 1 - events);
        assert_eq!(lone.endpoint.counter(CounterId(2)), Some(count));
        assert_eq!(lone.endpoint.poll_event(), (events == 1).then(|| report(8, 16)));
        assert_eq!(answers(&lone.sent()).len(), events);
    }
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let (at, written) = (MemRef { region: HEAP, offset: 0 }, Notify::Counter(CounterId(4)));
    let window = Window { written, ..Window::new(at, 8, Access::default(), 1) };
    assert_eq!(lone.endpoint.expose(&window), Err(ExposeError::UnknownCounter(CounterId(4))));
}

/// R-10, F-6: a placement that its connection's end interrupts reports nothing; the copy of the packet does.
#[test]
fn an_interrupted_put_begins_anew() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    expose(&mut lone, Notify::Event);
    let arrival = lone.feed_on(1, end(8, 16), 16, |common| common.psn = 0);
    assert!(matches!(arrival, Arrival::Place { .. }), "{arrival:?}");
    down(&mut lone, 1, RailFault::TimedOut);
    assert_eq!(lone.endpoint.poll_event(), None);
    assert_eq!(lone.endpoint.usage().serving.used, 0);
    let again = lone.feed_on(0, end(8, 16), 16, |common| common.psn = 0);
    lone.place(again);
    assert_eq!(lone.endpoint.poll_event(), Some(report(8, 16)));
    assert_eq!(lone.endpoint.poll_event(), None);
}

/// C-5: unanswered ones count among the requests of the peer, so reports that wait to be taken are bounded.
#[test]
fn reports_are_bounded() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    expose(&mut lone, Notify::Event);
    for n in 0..small().requests_per_peer {
        assert_eq!(lone.feed(end(n.into(), 8), 0), Arrival::Done);
    }
    assert_eq!(lone.feed(end(9, 8), 0), Arrival::Close);
    // What is in place is reported, though the peer is lost; then its channel is free.
    let mut reports = 0;
    let mut losses = 0;
    while let Some(event) = lone.endpoint.poll_event() {
        match event {
            Event::Written(written) => reports += u16::from(written.bytes == 8),
            Event::PeerLost { why, .. } => {
                losses += i32::from(why.reason == LossReason::Protocol(ProtocolError::Credit))
            }
            event => panic!("{event:?}"),
        }
    }
    assert_eq!((reports, losses), (small().requests_per_peer, 1));
    lone.sent();
    lone.endpoint.remove_peer(PeerId(1)).unwrap();
    assert_eq!(lone.endpoint.usage().serving.used, 0);
}

/// W-31: a payload is the whole put.
#[test]
fn part_of_a_payload_is_refused() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    expose(&mut lone, Notify::Event);
    assert_eq!(lone.feed(end(0, 16), 8), Arrival::Close);
    assert_eq!(lone.offence(), ProtocolError::TooLong { bytes: 8 });
}

/// F-5: the end of a put is repeated like any packet, with its payload.
#[test]
fn the_end_is_repeated_over_another_rail() {
    for bytes in [8, 12_000] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
        put(&mut lone, 1, bytes);
        let mut last = ends(&lone.sent());
        if bytes > 1000 {
            lone.acks[1] = 3;
            lone.feed(Body::Credit, 0);
            last = ends(&lone.sent());
        }
        let [(first, payload)] = last[..] else { panic!("{last:?}") };
        let rail = lone.rails.last().unwrap().0;
        down(&mut lone, rail, RailFault::TimedOut);
        lone.sent();
        lone.feed_on(1 - rail, Body::Fence(fence(rail, true)), 0, |_| {});
        assert_eq!(ends(&lone.sent()), [(first, payload)]);
        up(&mut lone, rail);
        lone.feed_on(rail, connect(rail, 2), 0, |_| {});
        lone.acks[1] = if bytes > 1000 { 4 } else { 1 };
        lone.feed_on(1 - rail, fin(first.operation, None), 0, |_| {});
        assert!(lone.completed()[&1].is_ok());
    }
}

/// A put can be cancelled before its first packet is posted, and not after that.
#[test]
fn only_an_unsent_put_is_cancelled() {
    let mut region = region();
    let mut lone = Lone::up(&mut region, &small(), &[TCP]);
    for (cookie, bytes) in [(1, 8), (2, 12_000)] {
        let (segments, cookie) = (seg(0, bytes), Cookie(cookie));
        let put = PutRequest { immediate: Some(7), cookie, ..PutRequest::new(TO, &segments) };
        let operation = lone.endpoint.put(Time(0), &put).unwrap();
        lone.endpoint.cancel(operation).unwrap();
    }
    assert!(lone.completed().into_values().eq([Err(OpError::Cancelled); 2]));
    let mut region = super::recovery::region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let segments = seg(0, 12_000);
    let put = PutRequest { immediate: Some(7), ..PutRequest::new(TO, &segments) };
    let operation = lone.endpoint.put(Time(0), &put).unwrap();
    lone.sent();
    assert_eq!(lone.endpoint.cancel(operation), Err(CancelError::TooLate));
    lone.acks[1] = 3;
    lone.feed(Body::Credit, 0);
    assert_eq!(lone.endpoint.cancel(operation), Err(CancelError::TooLate));
}
