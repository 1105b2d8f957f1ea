//! Several connections to be ended, queried or answered for at the same time, and claims of
//! peers about connections that can't be true (F-2 to F-4).

use super::lone::{Lone, PEER_RAIL};
use super::recovery::{connect, down, fence, region, up};
use super::*;
use crate::wire::{Body, Fence, Repr};

/// FENCEs among some packets: our rail, our number of the connection, and whether it is an answer.
fn fences(packets: &[Repr]) -> Vec<(u8, u32, bool)> {
    let fence = |packet: &Repr| match packet.body {
        Body::Fence(Fence { rail, connection, answer, .. }) => Some((rail, connection, answer)),
        _ => None,
    };
    let mut fences: Vec<_> = packets.iter().filter_map(fence).collect();
    fences.sort_unstable();
    fences
}

fn closed(lone: &mut Lone<'_>) -> Vec<u8> {
    let mut closed: Vec<u8> = core::mem::take(&mut lone.closed).iter().map(|rail| rail.0).collect();
    closed.sort_unstable();
    closed
}

/// F-2, F-4: where several ends of the peer are dead, each of ours is ended and answered for.
#[test]
fn every_end_is_ended_and_answered_for() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 4]);
    for rail in 1..4 {
        lone.feed(Body::Fence(fence(rail, false)), 0);
    }
    let sent = lone.sent();
    assert_eq!(fences(&sent), [(1, 1, true), (2, 1, true), (3, 1, true)]);
    assert_eq!(closed(&mut lone), [1, 2, 3]);
}

/// F-3, F-4: a connection that dies before an answer is out takes nothing from it: one is answered for, the
/// other queried.
#[test]
fn an_answer_survives_the_next_failure() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 3]);
    lone.feed(Body::Fence(fence(1, false)), 0);
    down(&mut lone, 2, RailFault::TimedOut);
    let sent = lone.sent();
    assert_eq!(fences(&sent), [(1, 1, true), (2, 1, false)]);
}

/// F-3, F-4: of one subchannel the peer may query an old connection while this side queries the last one:
/// both FENCEs are sent.
#[test]
fn fence_reply_and_fence_request_of_one_rail_are_both_sent() {
    for is_requested_first in [true, false] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
        down(&mut lone, 1, RailFault::TimedOut);
        lone.sent();
        up(&mut lone, 1);
        lone.feed_on(1, connect(1, 2), 0, |_| {});
        lone.sent();
        if is_requested_first {
            lone.feed(Body::Fence(fence(1, false)), 0);
        }
        down(&mut lone, 1, RailFault::TimedOut);
        if !is_requested_first {
            lone.feed(Body::Fence(fence(1, false)), 0);
        }
        let sent = lone.sent();
        assert_eq!(fences(&sent), [(1, 1, true), (1, 2, false)], "peer's query first: {is_requested_first}");
    }
}

/// F-1, F-2: a connection that the peer has left is ended at its rail, and so is the one that was to be ended
/// before it.
#[test]
fn a_connection_of_old_is_ended_beside_another() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 3]);
    down(&mut lone, 2, RailFault::TimedOut);
    lone.sent();
    up(&mut lone, 2);
    lone.sent();
    lone.closed.clear();
    lone.feed(Body::Fence(fence(1, false)), 0);
    lone.feed_on(2, connect(2, 1), 0, |_| {});
    lone.sent();
    assert_eq!(closed(&mut lone), [1, 2]);
}

/// F-2, F-11: so are those on which the peer's CONNECT does not come.
#[test]
fn a_connection_without_connect_is_ended_beside_another() {
    let config = Config { stall_min: Nanos(1_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP; 3]);
    down(&mut lone, 2, RailFault::TimedOut);
    lone.sent();
    up(&mut lone, 2);
    lone.sent();
    lone.feed(Body::Fence(fence(2, true)), 0);
    lone.sent();
    up(&mut lone, 2);
    lone.sent();
    lone.closed.clear();
    lone.now = 11_000_000;
    lone.feed(Body::Fence(fence(1, false)), 0);
    lone.endpoint.handle_timeout(Time(lone.now));
    lone.sent();
    assert_eq!(closed(&mut lone), [1, 2]);
}

/// F-3: a batch of actions that is full in the middle of the questions holds none of them up, and none gets
/// lost.
#[test]
fn questions_that_a_batch_has_no_room_for_go_out_in_the_next() {
    let config = Config { rails_max: 6, ..small() };
    let rail = RailFacts { posts_max: 100, ..TCP };
    for messages in 0..20 {
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[rail; 6]);
        for rail in 3..6 {
            down(&mut lone, rail, RailFault::TimedOut);
        }
        (0..messages).for_each(|n| lone.send(n, 8));
        let sent = lone.sent();
        assert_eq!(fences(&sent), [(3, 1, false), (4, 1, false), (5, 1, false)], "behind {messages} messages");
    }
}

/// F-3: a connection that is answered for before it was queried is not queried, and leaves nothing behind
/// that is looked at with every message.
#[test]
fn a_question_that_is_answered_is_forgotten() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed(Body::Fence(fence(1, true)), 0);
    let sent = lone.sent();
    assert_eq!(fences(&sent), []);
    assert!(!lone.endpoint.t.channels.at(0).has_slow_work());
}

/// L-3: a connection that dies before our CONNECT is out on it needs none any more, whether the peer's has
/// come on it or not.
#[test]
fn dead_connection_needs_no_connect() {
    for is_ready in [false, true] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
        down(&mut lone, 1, RailFault::TimedOut);
        lone.sent();
        up(&mut lone, 1);
        if is_ready {
            lone.feed_on(1, connect(1, 2), 0, |_| {});
        }
        down(&mut lone, 1, RailFault::TimedOut);
        lone.rails.clear();
        lone.sent();
        assert!(lone.rails.iter().all(|rail| rail.0 == 0), "{:?}", lone.rails);
        assert!(!lone.endpoint.t.channels.at(0).has_slow_work(), "ready: {is_ready}");
    }
}

/// F-4: a FENCE of a rail that does not exist here has no effect, also where the next channel's begin behind
/// the last one.
#[test]
fn a_fence_of_no_rail_has_no_effect() {
    let config = Config { rails_max: 2, channels_max: 2, ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP; 2]);
    for (n, rail) in (1..).zip([2, 3, 255]) {
        let fence = Fence { rail: PEER_RAIL, peer_rail: rail, ..Fence::default() };
        assert_eq!(lone.feed(Body::Fence(fence), 0), Arrival::Done);
        assert_eq!(lone.endpoint.stats().stale_dropped, n);
        let sent = lone.sent();
        assert_eq!((fences(&sent), closed(&mut lone)), (vec![], vec![]));
    }
    assert_eq!(lone.endpoint.poll_event(), None);
}

/// F-9: a FENCE of a rail that fails with the peer's process alone ends the channel; its other content is
/// about packets that no longer exist.
#[test]
fn fence_that_ends_the_channel_has_no_other_effect() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, SHM]);
    lone.busy = true;
    (0..3).for_each(|n| lone.send(n, 10));
    assert_eq!(lone.sent().len(), 3);
    lone.feed(Body::Fence(Fence { ordered_beyond: 0b11, ..fence(1, false) }), 0);
    assert_eq!(lone.sent(), []);
    let mut lost = 0;
    while let Some(event) = lone.endpoint.poll_event() {
        lost += u32::from(matches!(event, Event::PeerLost { peer: PeerId(1), .. }));
    }
    assert_eq!(lost, 1);
    let usage = lone.endpoint.usage();
    assert_eq!((usage.packets.used, usage.operations.used, usage.channels.used), (0, 0, 0));
}
