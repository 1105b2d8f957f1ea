//! What the end of a channel leaves behind: nothing that waits, and one answer for each request (G-7, F-9).

use super::lone::Lone;
use super::recovery::{down, fence};
use super::*;
use crate::peer::Shortage;
use crate::peer::{ConnectionStep, RailWork};
use crate::wire::{Body, MessageHead};

/// A message that the peer was not granted: it loses its channel.
fn offend(lone: &mut Lone<'_>) {
    let bytes = small().eager_bytes_max + 1;
    assert_eq!(lone.feed(Body::Eager(MessageHead::default()), bytes), Arrival::Close);
}

fn from_peer() -> Selector {
    Selector { source: Some(PeerId(1)), ..Selector::ANY_UNTAGGED }
}

/// Nothing runs for the channel, and its numbers are those of a new one.
fn waits_for_nothing(lone: &Lone<'_>) {
    let slot = lone.endpoint.t.channels.at(0);
    assert!(slot.is_over());
    // Connections that exist are to be ended.
    let mut work = slot.work;
    while let Some(rail) = work.connections().iter().next() {
        let is_end = work.take_abort(rail) || work.take_step(rail, true) == ConnectionStep::Disconnect;
        assert!(is_end, "{:?}", slot.work);
    }
    assert_eq!(work, RailWork::default());
    assert_eq!((slot.replay.is_pending(), slot.replay.aborted_placements), (false, 0));
    assert_eq!(lone.endpoint.next_obligation(), None, "no timer runs");
}

/// Whatever was under way: acknowledgments, a connection that is being opened or comes back later, an answer
/// to a FENCE, packets on their way and packets that wait for room.
#[test]
fn a_channel_that_is_over_waits_for_nothing() {
    let config = Config { packets_max: 8, ..small() };
    let mut has_run = false;
    for (fails, dialled, fenced, sends) in
        [(0, false, false, 0), (1, false, false, 1), (2, false, false, 3), (2, true, false, 20), (1, true, true, 20)]
    {
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[TCP, TCP, TCP]);
        lone.endpoint.stats.malformed_dropped = 5;
        let arrival = lone.feed(Body::Eager(MessageHead::default()), 8);
        lone.place(arrival);
        lone.busy = true;
        (0..sends).for_each(|n| lone.send(n, 8));
        lone.sent();
        if fenced {
            lone.feed(Body::Fence(fence(2, false)), 0);
        }
        for _ in 0..fails {
            down(&mut lone, 1, RailFault::TimedOut);
            if dialled {
                lone.sent();
            }
        }
        has_run |= lone.endpoint.next_obligation().is_some();
        offend(&mut lone);
        assert_eq!(lone.endpoint.stats().malformed_dropped, 6);
        waits_for_nothing(&lone);
        let waiting = [Shortage::Packets, Shortage::Stripes].map(|shortage| lone.endpoint.waiting[shortage as usize]);
        assert!(waiting.iter().all(|list| list.is_empty()), "{fails} {sends}");
        lone.sent();
        let mut done = lone.completed();
        done.retain(|_, result| matches!(result, Err(OpError::PeerLost { .. })));
        let usage = lone.endpoint.usage();
        assert_eq!((usage.operations.used, usage.packets.used, usage.messages.used), (0, 0, 1), "what had come stays");
        assert_eq!(lone.endpoint.next_obligation(), None);
    }
    assert!(has_run, "timers ran before");
}

/// A receive for many messages of a lost peer alone ends once, with the error, after those of its messages
/// that had begun.
#[test]
fn a_buffer_for_many_messages_ends_with_its_only_source() {
    for begun in 0..3 {
        let config = small();
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[TCP; 3]);
        let free = lone.endpoint.usage().operations.used;
        let recv = RecvRequest {
            multi: Some(50),
            cookie: Cookie(1),
            segments: &seg(0, 400),
            ..RecvRequest::new(from_peer(), &[])
        };
        lone.endpoint.recv(Time(0), &recv).unwrap();
        for rail in 1..=begun {
            let arrival = lone.feed_on(rail, Body::Eager(MessageHead::default()), 60, |_| {});
            assert!(matches!(arrival, Arrival::Place { .. }));
        }
        offend(&mut lone);
        lone.sent();
        let mut results = vec![];
        while let Some(event) = lone.endpoint.poll_event() {
            if let Event::Completed(Completion { cookie: Cookie(1), result, .. }) = event {
                results.push(result);
            }
        }
        assert_eq!(results.len(), usize::from(begun) + 1, "{results:?}");
        assert!(results.iter().all(|result| matches!(result, Err(OpError::PeerLost { .. }))), "{results:?}");
        assert_eq!(lone.endpoint.usage().operations.used, free);
    }
}

/// Messages that are here, in order and whole, can be received after the end; others are gone, and hold
/// nothing.
#[test]
fn whole_messages_in_order_stay() {
    let config = small();
    let mut own = Region::of(&config);
    let mut lone = Lone::connected(&mut own, &config, &[TCP; 2]);
    let head = |tag| Body::Eager(MessageHead { tag: Some(tag), ..MessageHead::default() });
    for tag in 0..2 {
        let arrival = lone.feed(head(tag), 8);
        lone.place(arrival);
    }
    // One that has begun, and one whole that is out of order.
    lone.feed_on(1, head(2), 8, |_| {});
    lone.psn[0] += 1;
    let arrival = lone.feed(head(3), 8);
    lone.place(arrival);
    offend(&mut lone);
    lone.sent();
    let usage = lone.endpoint.usage();
    assert_eq!(
        (usage.messages.used, usage.unexpected.used, usage.out_of_order.used, usage.placements.used),
        (2, 2, 0, 0)
    );
    for tag in [1, 0] {
        let recv =
            RecvRequest { cookie: Cookie(tag), segments: &seg(0, 8), ..RecvRequest::new(tagged(None, tag), &[]) };
        lone.endpoint.recv(Time(0), &recv).unwrap();
        lone.sent();
    }
    assert_eq!(lone.completed().into_values().filter(Result::is_ok).count(), 2);
    lone.sent();
    let usage = lone.endpoint.usage();
    assert_eq!((usage.messages.used, usage.channels.used), (0, 0));
}
