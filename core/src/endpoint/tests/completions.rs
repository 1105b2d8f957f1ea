//! The end of operations, their results, and what they release then (A-5, C-5, F-10, R-5, X-2).

use super::lone::Lone;
use super::recovery::{connect, cts, down, fins, put_over_both};
use super::*;
use crate::wire::{AtomicReply, Body, Fin, MessageHead, Refusal, Repr};

const WINDOW: Remote = Remote { peer: PeerId(1), window: 3, offset: 100 };

fn refused(operation: u64) -> Body {
    let refused = Some(Refusal::NoWindow);
    Body::Fin(Fin { operation, count: 1, refused, want_placed: false, epoch: 0, placed_bytes: 0 })
}

/// a put that was refused has failed for that reason, though the peer is lost before it has acknowledged
/// the put.
#[test]
fn first_failure_reason_is_reported() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let put = PutRequest { cookie: Cookie(1), segments: &seg(0, 8), ..PutRequest::new(WINDOW, &[]) };
    lone.endpoint.put(Time(0), &put).unwrap();
    let Body::Put(put) = lone.sent_one().body else { panic!("no PUT") };
    lone.feed_on(0, refused(put.operation), 0, |common| common.refusing = true);
    assert_eq!(lone.completed(), BTreeMap::new());
    down(&mut lone, 0, RailFault::Corrupt);
    let error = OpError::Refused { peer: PeerId(1), why: Refusal::NoWindow };
    assert_eq!(lone.completed()[&1], Err(error));
}

/// Where in a peer's memory a request worked is no place in a buffer of this side.
#[test]
fn only_messages_of_a_multi_receive_have_a_place() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let put = PutRequest { cookie: Cookie(1), segments: &seg(0, 8), ..PutRequest::new(WINDOW, &[]) };
    lone.endpoint.put(Time(0), &put).unwrap();
    lone.sent_one();
    lone.acks[1] = 1;
    lone.feed(Body::Credit, 0);
    assert_eq!(lone.completed()[&1], Ok(Done { bytes: 8, ..Done::of(PeerId(1)) }));
}

/// Every completion is about its request; all but the flush, which waits for nothing, are cancelled.
#[test]
fn completions_name_what_was_requested() {
    let mut region = Region::of(&small());
    let mut endpoint = Endpoint::new(small(), &[TCP], region.take(&small()), Time(0)).unwrap();
    endpoint.add_peer(PeerId(1), 1).unwrap();
    let (at, segments) = (Remote { peer: PeerId(1), window: 3, offset: 8 }, seg(0, 8));
    let from = Selector::ANY_UNTAGGED;
    endpoint.flush(Time(0), &FlushRequest::new(PeerId(1))).unwrap();
    let multi = RecvRequest { multi: Some(4), ..RecvRequest::new(from, &segments) };
    let operations = [
        endpoint.send(Time(0), &SendRequest::new(PeerId(1), &segments)).unwrap(),
        endpoint.recv(Time(0), &RecvRequest::new(from, &segments)).unwrap(),
        endpoint.recv(Time(0), &multi).unwrap(),
        endpoint.put(Time(0), &PutRequest::new(at, &segments)).unwrap(),
        endpoint.get(Time(0), &GetRequest::new(at, &segments)).unwrap(),
        endpoint.atomic(Time(0), &AtomicRequest::new(at, AtomicKind::Add, AtomicType::U64, 1)).unwrap(),
    ];
    operations.into_iter().for_each(|operation| endpoint.cancel(operation).unwrap());
    let kinds: Vec<_> = std::iter::from_fn(|| endpoint.poll_event())
        .filter_map(|event| if let Event::Completed(completion) = event { Some(completion.kind) } else { None })
        .collect();
    use RequestKind::{Atomic, Flush, Get, MultiRecv, Put, Recv, Send};
    assert_eq!(kinds, [Flush, Send, Recv, MultiRecv, Put, Get, Atomic]);
}

/// A buffer for many messages reports each by an event, whatever its notification: only events carry their
/// offsets. A counter counts them as well, but not the release.
#[test]
fn multi_receive_reports_every_message_by_event() {
    for notify in [Notify::Event, Notify::Silent, Notify::Counter(CounterId(1)), Notify::Both(CounterId(1))] {
        let mut region = Region::of(&small());
        let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
        let buffer = seg(0, 100);
        let recv = RecvRequest { multi: Some(60), notify, ..RecvRequest::new(Selector::ANY_UNTAGGED, &buffer) };
        let id = lone.endpoint.recv(Time(0), &recv).unwrap();
        for len in [30, 50] {
            let arrival = lone.feed(Body::Eager(MessageHead { operation: 7, ..MessageHead::default() }), len);
            lone.place(arrival);
        }
        let reported = std::iter::from_fn(|| lone.endpoint.poll_event());
        let reported: Vec<_> = reported
            .map(|event| {
                let Event::Completed(done) = event else { panic!("{event:?}") };
                assert_eq!(done.operation, id);
                done.result.map(|done| (done.offset, done.bytes, done.released))
            })
            .collect();
        assert_eq!(reported, [Ok((0, 30, false)), Ok((30, 50, true))], "{notify:?}");
        let counted = matches!(notify, Notify::Counter(_) | Notify::Both(_));
        assert_eq!(lone.endpoint.counter(CounterId(1)), Some(if counted { 2 } else { 0 }), "{notify:?}");
        assert_eq!(lone.endpoint.usage().operations.used, 0);
    }
}

/// C-5: an answer makes room for the next request by itself. That it acknowledges nothing new - a packet
/// before its request was lost - changes nothing.
#[test]
fn an_answer_lets_the_next_request_go() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    for cookie in 1..=3 {
        let at = Remote { offset: 0, ..WINDOW };
        let atomic =
            AtomicRequest { cookie: Cookie(cookie), ..AtomicRequest::new(at, AtomicKind::Add, AtomicType::U64, 1) };
        lone.endpoint.atomic(Time(0), &atomic).unwrap();
    }
    let requested = |packets: &[Repr]| -> Vec<u64> {
        let atomic =
            |packet: &Repr| if let Body::Atomic(atomic) = &packet.body { Some(atomic.operation) } else { None };
        packets.iter().filter_map(atomic).collect()
    };
    let sent = lone.sent();
    let [_, second] = requested(&sent)[..] else { panic!("two at once: {sent:?}") };
    lone.feed(Body::AtomicReply(AtomicReply { operation: second, old: 5 }), 0);
    let sent = lone.sent();
    assert_eq!(requested(&sent).len(), 1, "{sent:?}");
    assert_eq!(lone.completed()[&2].map(|done| done.old), Ok(5));
}

fn retained(lone: &Lone<'_>) -> u32 {
    lone.endpoint.usage().retained.used
}

/// the copy of a payload is given back once the peer has acknowledged it, and not before; it does not
/// matter when the completion is read.
#[test]
fn copy_is_kept_until_acknowledged() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.send(1, 100);
    lone.sent_one();
    assert_eq!(retained(&lone), 1);
    lone.acks[0] = 1;
    lone.feed(Body::Credit, 0);
    assert_eq!(retained(&lone), 0);
    assert!(lone.completed()[&1].is_ok());

    // The rail may have it still, to send it once more.
    lone.busy = true;
    lone.send(2, 100);
    lone.sent_one();
    lone.acks[0] = 2;
    lone.feed(Body::Credit, 0);
    assert_eq!(retained(&lone), 1);
    let id = lone.held[0];
    lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    assert_eq!(retained(&lone), 0);
}

/// F-10: without recovery a copy is kept until the rail has completed it, and no longer.
#[test]
fn without_recovery_copy_is_kept_until_the_rail_completes() {
    let config = Config { recovery: false, ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.busy = true;
    lone.send(1, 100);
    lone.sent_one();
    assert_eq!(retained(&lone), 1);
    let id = lone.held[0];
    lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    assert_eq!(retained(&lone), 0, "the peer need not have acknowledged it");

    lone.send(2, 100);
    lone.sent_one();
    lone.acks[0] = 2;
    lone.feed(Body::Credit, 0);
    assert_eq!(retained(&lone), 1, "the rail has it");
    let id = lone.held[1];
    lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    assert_eq!(retained(&lone), 0);
    assert!(lone.completed().values().all(Result::is_ok));
}

/// F-10, X-4: without recovery a message that is written is over with its last post, no sooner, and without
/// a word of the receiver.
#[test]
fn without_recovery_the_last_post_ends_a_message_that_is_written() {
    let config = Config { recovery: false, ..small() };
    let mut region = Region::of(&config);
    let rail = RailFacts { posts_max: 20, ..PUT };
    let mut lone = Lone::connected(&mut region, &config, &[rail]);
    let operation = put_over_both(&mut lone);
    lone.busy = true;
    lone.feed(cts(operation, 0, &[0]), 0);
    assert_eq!(fins(&lone.sent()), [(0, 1)]);
    let posts = core::mem::take(&mut lone.held);
    assert!(posts.len() > 2);
    for id in posts {
        assert_eq!(lone.completed(), BTreeMap::new());
        lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    }
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(40_000));
}

/// A transfer that waits for a stripe set gets it as soon as another one is complete and reported: no other
/// event may follow that would start it.
#[test]
fn free_stripe_set_is_given_to_the_waiting_transfer() {
    let config = Config { bulk_max: 1, ..small() };
    let mut region = Region::of(&config);
    let rail = RailFacts { posts_max: 20, ..PUT };
    let mut lone = Lone::connected(&mut region, &config, &[rail, rail]);
    let first = put_over_both(&mut lone);
    assert_eq!(lone.endpoint.usage().stripe_sets.capacity, 1);
    lone.send(2, 40_000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 2;
    lone.feed(cts(first, 0, &[0, 1]), 0);
    assert_eq!(fins(&lone.sent()), [(0, 2), (0, 2)]);
    lone.acks[1] = 2;
    lone.feed(cts(rts.head.operation, 0, &[0, 1]), 0);
    assert!(lone.sent().is_empty());
    let fin = Fin { operation: first, count: 1, refused: None, want_placed: false, epoch: 0, placed_bytes: 40_000 };
    lone.feed(Body::Fin(fin), 0);
    assert!(lone.sent().is_empty(), "the first one keeps its parts until its completion is reported");
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(40_000));
    // There is no room for its keys either.
    let bytes: u32 = lone.sent().iter().map(|packet| packet.common.payload_bytes).sum();
    assert_eq!(bytes, 40_000);
}

/// of a transfer that its receiver ends early, only what was left of it is taken off the plans of its
/// rails: those of others stand.
#[test]
fn early_fin_leaves_the_plans_of_other_transfers_unchanged() {
    let mut region = Region::of(&small());
    let rail = RailFacts { posts_max: 3, ..PUT };
    let mut lone = Lone::connected(&mut region, &small(), &[rail, rail]);
    let first = put_over_both(&mut lone);
    lone.send(2, 40_000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 2;
    // Rail 1 takes two writes and is not through with them; rail 0 has time for the next message.
    lone.stuck = 0b10;
    lone.feed(cts(first, 0, &[0, 1]), 0);
    lone.sent();
    let planned = |lone: &mut Lone<'_>| {
        let channel = lone.endpoint.t.channel_of(PeerId(1)).unwrap();
        [0, 1].map(|rail| lone.endpoint.paths.path(channel, RailId(rail)).planned)
    };
    let [0, left] = planned(&mut lone) else { panic!("rail 0 has finished") };
    assert!(left > 0 && left < 19_000);
    lone.feed(cts(rts.head.operation, 0, &[0, 1]), 0);
    lone.sent();
    let [0, both] = planned(&mut lone) else { panic!("rail 0 has finished") };
    assert!(both > left + 19_000);
    let fin = Fin { operation: first, count: 1, refused: None, want_placed: false, epoch: 0, placed_bytes: 40_000 };
    lone.feed(Body::Fin(fin), 0);
    assert_eq!(planned(&mut lone), [0, both - left]);
    // A new connection of the rail begins with none.
    down(&mut lone, 1, RailFault::TimedOut);
    super::recovery::up(&mut lone, 1);
    lone.feed_on(1, connect(1, 2), 0, |_| {});
    assert_eq!(planned(&mut lone), [0, 0]);
}
