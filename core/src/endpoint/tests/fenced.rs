//! Fences among one-sided requests, and injected puts.

use super::lone::Lone;
use super::recovery::region;
use super::*;
use crate::wire::{AtomicReply, Body, Data, Repr};

const AT: Remote = Remote { peer: PeerId(1), window: 9, offset: 24 };

/// PUT, GET and ATOMIC among some packets, by the first letter.
fn kinds(packets: &[Repr]) -> Vec<char> {
    let kind = |packet: &Repr| match packet.body {
        Body::Put(_) => Some('p'),
        Body::PutImmediate(_) => Some('i'),
        Body::Get(_) => Some('g'),
        Body::Atomic(_) => Some('a'),
        _ => None,
    };
    packets.iter().filter_map(kind).collect()
}

fn put(lone: &mut Lone<'_>, cookie: u64, fence: bool, immediate: Option<u64>) -> OpId {
    let (segments, cookie) = (seg(0, 8), Cookie(cookie));
    let put = PutRequest { fence, immediate, cookie, ..PutRequest::new(AT, &segments) };
    lone.endpoint.put(Time(0), &put).unwrap()
}

fn get(lone: &mut Lone<'_>, cookie: u64, fence: bool) -> OpId {
    let (segments, cookie) = (seg(0, 8), Cookie(cookie));
    lone.endpoint.get(Time(0), &GetRequest { fence, cookie, ..GetRequest::new(AT, &segments) }).unwrap()
}

fn atomic(lone: &mut Lone<'_>, cookie: u64, fence: bool) {
    let add = AtomicRequest::new(AT, AtomicKind::Add, AtomicType::U64, 1);
    lone.endpoint.atomic(Time(0), &AtomicRequest { fence, cookie: Cookie(cookie), ..add }).unwrap();
}

fn acknowledge(lone: &mut Lone<'_>, until: u32) {
    lone.acks[1] = until;
    lone.feed(Body::Credit, 0);
}

/// what is behind a fence waits for all that is before it, and a further fence for that.
#[test]
fn a_fence_holds_what_is_behind_it() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    put(&mut lone, 1, true, None);
    put(&mut lone, 2, false, None);
    put(&mut lone, 3, true, None);
    put(&mut lone, 4, false, Some(7));
    lone.endpoint.flush(Time(0), &FlushRequest { cookie: Cookie(5), ..FlushRequest::new(PeerId(1)) }).unwrap();
    atomic(&mut lone, 6, true);
    assert_eq!(kinds(&lone.sent()), ['p', 'p'], "the first fence waits for nothing");
    acknowledge(&mut lone, 1);
    assert_eq!(kinds(&lone.sent()), []);
    acknowledge(&mut lone, 2);
    let sent = lone.sent();
    assert_eq!(kinds(&sent), ['i', 'p']);
    let Some(Body::PutImmediate(last)) =
        sent.iter().map(|packet| &packet.body).find(|body| matches!(body, Body::PutImmediate(_)))
    else {
        panic!("{sent:?}")
    };
    acknowledge(&mut lone, 4);
    assert_eq!((kinds(&lone.sent()), lone.completed().len()), (vec![], 3));
    lone.feed(super::immediate::fin(last.operation, None), 0);
    let sent = lone.sent();
    assert_eq!((kinds(&sent), lone.completed().into_keys().collect::<Vec<_>>()), (vec!['a'], vec![4, 5]));
    let Some(Body::Atomic(request)) =
        sent.iter().map(|packet| &packet.body).find(|body| matches!(body, Body::Atomic(_)))
    else {
        panic!("{sent:?}")
    };
    lone.acks[1] = 5;
    lone.feed(Body::AtomicReply(AtomicReply { operation: request.operation, old: 3 }), 0);
    assert_eq!(lone.completed()[&6].map(|done| done.old), Ok(3));
    assert_eq!(lone.endpoint.usage().operations.used, 0);
}

/// a get is complete when its bytes are here.
#[test]
fn a_fence_waits_for_answers() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    get(&mut lone, 1, false);
    put(&mut lone, 2, true, None);
    let sent = lone.sent();
    let Body::Get(request) = sent[0].body else { panic!("{sent:?}") };
    acknowledge(&mut lone, 1);
    assert_eq!(lone.sent(), []);
    let answer = lone.feed(Body::Data(Data { operation: request.operation, offset: 0 }), 8);
    assert_eq!(kinds(&lone.sent()), []);
    lone.place(answer);
    assert_eq!(kinds(&lone.sent()), ['p']);
}

/// requests that a fence holds can be cancelled; those behind them wait as before.
#[test]
fn held_requests_can_be_cancelled() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    put(&mut lone, 1, false, None);
    let held = [put(&mut lone, 2, true, None), get(&mut lone, 3, false)];
    put(&mut lone, 4, false, None);
    assert_eq!(kinds(&lone.sent()), ['p']);
    held.into_iter().for_each(|operation| lone.endpoint.cancel(operation).unwrap());
    assert!(lone.completed().into_values().eq([Err(OpError::Cancelled); 2]));
    assert_eq!(kinds(&lone.sent()), []);
    acknowledge(&mut lone, 1);
    assert_eq!(kinds(&lone.sent()), ['p']);
    // The rest ends with its peer.
    put(&mut lone, 5, true, None);
    super::recovery::down(&mut lone, 0, RailFault::Corrupt);
    let ended = lone.completed();
    assert!(ended[&1].is_ok() && ended[&4].is_err() && ended[&5].is_err(), "{ended:?}");
    assert_eq!(lone.endpoint.usage().operations.used, 0);
}

/// The payload of an injected put lies in a retained copy, until the put is complete.
#[test]
fn an_injected_put_has_a_copy() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let free = lone.endpoint.usage().retained.used;
    for immediate in [None, Some(7)] {
        let put = PutRequest { immediate, notify: Notify::Silent, ..PutRequest::new(AT, &[]) };
        let (_, span) = lone.endpoint.inject_put(Time(0), &put, 24).unwrap();
        let [Seg { at, len: 24 }] = lone.endpoint.segments(span).collect::<Vec<_>>()[..] else { panic!("{span:?}") };
        assert_eq!(at.region, RegionId::POOL);
        let sent = lone.sent();
        assert_eq!(lone.posts.last().unwrap().2, [Seg { at, len: 24 }]);
        assert_eq!(lone.endpoint.usage().retained.used, free + 1);
        if let Body::PutImmediate(last) = sent[0].body {
            lone.acks[1] += 1;
            lone.feed(super::immediate::fin(last.operation, None), 0);
        } else {
            acknowledge(&mut lone, 1);
        }
        assert_eq!((lone.endpoint.usage().retained.used, lone.endpoint.usage().operations.used), (free, 0));
    }
    let long = lone.endpoint.inject_put(Time(0), &PutRequest::new(AT, &[]), 1001);
    assert_eq!(long.map(|_| ()), Err(SubmitError::TooLong { bytes: 1001, max: 1000 }));
}

/// L-26, R-11: what a rail can carry out at once passes requests that wait, but no fence, and not while its
/// completion would be reported before an earlier one.
#[test]
fn a_direct_request_passes_no_fence() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let request =
        |fence, has_event| DirectRequest { peer: PeerId(1), is_put: true, fence, has_event, cookie: Cookie(9) };
    let (free, fenced) = (request(false, true), request(true, true));
    let may = |lone: &mut Lone<'_>| [free, fenced].map(|request| lone.endpoint.may_access(&request));
    assert_eq!(may(&mut lone), [true, true]);
    assert!(lone.endpoint.may_access(&request(false, false)));
    let counter = CounterId(0);
    let kinds = [Notify::Silent, Notify::Event, Notify::Counter(counter), Notify::Both(counter)];
    assert_eq!(kinds.map(|kind| DirectRequest::has_event(&kind)), [Some(false), Some(true), None, None]);
    assert!(!lone.endpoint.may_access(&DirectRequest { peer: PeerId(7), ..free }));
    put(&mut lone, 1, false, None);
    assert_eq!(may(&mut lone), [true, false]);
    put(&mut lone, 2, true, None);
    assert_eq!(may(&mut lone), [false, false], "one that waits for a fence is before it");
    lone.sent();
    acknowledge(&mut lone, 1);
    lone.sent();
    assert_eq!(may(&mut lone), [true, false]);
    acknowledge(&mut lone, 2);
    assert_eq!(may(&mut lone), [true, false], "the events of the others are polled after its own");
    assert_eq!(lone.completed().len(), 2);
    assert_eq!(may(&mut lone), [true, true]);
    for is_put in [true, false] {
        lone.endpoint.direct_done(&DirectRequest { is_put, ..fenced }, 77);
        let operation = lone.endpoint.direct_id(is_put);
        let Some(Event::Completed(done)) = lone.endpoint.poll_event() else { panic!("an event") };
        let kind = if is_put { RequestKind::Put } else { RequestKind::Get };
        assert_eq!((done.operation, done.cookie, done.kind, done.last), (operation, Cookie(9), kind, true));
        assert_eq!(done.result, Ok(Done { bytes: 77, ..Done::of(PeerId(1)) }));
        assert!(!lone.endpoint.is_open(operation) && lone.endpoint.cancel(operation) == Err(CancelError::Unknown));
    }
    lone.endpoint.direct_done(&request(false, false), 8);
    assert_eq!(lone.endpoint.poll_event(), None);
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    assert_eq!(may(&mut lone), [false, false]);
}

/// L-26: a window of which peers may be writing.
#[test]
fn windows_for_puts_are_exposed_to_puts() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let at = |offset| MemRef { region: RegionId(3), offset };
    let (reads, writes) = (Access { read: true, ..Access::default() }, Access { write: true, ..Access::default() });
    let window = lone.endpoint.expose(&Window::new(at(0), 8, reads, 1)).unwrap();
    lone.endpoint.expose(&Window::new(at(8), 8, writes, 2)).unwrap();
    assert!(!lone.endpoint.is_exposed_to_puts(|seg| seg.at == at(0)));
    assert!(lone.endpoint.is_exposed_to_puts(|seg| seg.at == at(8)));
    assert_eq!(lone.endpoint.releasable(window), Ok(1));
    lone.endpoint.deregister(window).unwrap();
    assert_eq!(lone.endpoint.releasable(window), Err(DeregisterError::Unknown));
}
