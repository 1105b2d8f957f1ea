//! K-2 to K-5 where a channel ends, or its peer is another one than before.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::parked::*;
use super::*;
use crate::wire::{Body, Connect, Fence, MessageHead, Park, ParkStep};

fn events(lone: &mut Lone<'_>) -> Vec<Event> {
    core::iter::from_fn(|| lone.endpoint.poll_event()).collect()
}

/// S-12, K-5: a channel that outlives its ring does not keep to it.
#[test]
fn a_ring_that_is_left_holds_nothing_back() {
    let mut region = Region::of(&few());
    let config = Config { express: true, ..few() };
    let mut lone = Lone::connected(&mut region, &config, &[super::SHM, TCP]);
    without_rail_1(&mut lone);
    lone.recv(1, 8);
    let short = Short { counts: crate::wire::Counts::new(0, 32, 64), ..Short::default() };
    lone.endpoint.handle_short(Time(lone.now), PeerId(1), RailId(0), &short);
    lone.psn[0] = 1;
    assert_eq!(lone.completed().len(), 1);
    lone.sent();
    lone.feed(ASK, 0);
    let sent = lone.sent();
    assert!(sent.iter().any(|p| p.body == AGREE), "{sent:?}");
    up(&mut lone, 1);
    connect(&mut lone, 1, 2, 1);
    assert!(!lone.sent().is_empty());
    assert_eq!(lone.closed, [RailId(0)]);
    // The ring can't be made again.
    down(&mut lone, 0, RailFault::Closed);
    lone.sent();
    lone.send(2, 8);
    lone.recv(3, 8);
    lone.feed_on(1, Body::Eager(MessageHead::default()), 0, |common| common.ack_now = true);
    let sent = lone.sent();
    assert!(sent.iter().any(|p| p.common.ack_ordered == 2), "no acknowledgment: {sent:?}");
    assert!(sent.iter().any(|p| matches!(p.body, Body::Eager(_))), "no message: {sent:?}");
}

/// G-7: nothing follows BYE, no answer either.
#[test]
fn nothing_follows_bye() {
    let mut region = Region::of(&few());
    let mut lone = Lone::connected(&mut region, &few(), &[TCP, TCP]);
    lone.stuck = 1;
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    let sent = lone.sent();
    assert_eq!(sent.iter().filter(|p| p.body == Body::Bye).count(), 2);
    lone.feed_on(1, ASK, 0, |_| {});
    let sent = lone.sent();
    assert!(sent.is_empty(), "{sent:?}");
}

/// G-7, K-4: a side that closes withdraws its request.
#[test]
fn a_close_withdraws_the_request() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP]);
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    let sent = lone.sent();
    assert!(sent.iter().any(|p| p.body == Body::Bye), "{sent:?}");
}

/// G-3, K-5: another first number of a peer that was not parked is that of another process.
#[test]
fn a_restarted_peer_is_lost() {
    let mut region = Region::of(&few());
    let mut lone = Lone::connected(&mut region, &few(), &[TCP]);
    lone.send(1, 8);
    lone.sent();
    down(&mut lone, 0, RailFault::TimedOut);
    lone.sent();
    up(&mut lone, 0);
    lone.feed(Body::Connect(Connect { connection: 2, first_number: 77, ..PEER_PARAMETERS }), 0);
    let events = events(&mut lone);
    assert!(events.iter().any(|e| matches!(e, Event::PeerLost { .. })), "{events:?}");
}

/// F-4, K-3: a FENCE for the connection of a request ends it as the rail would.
#[test]
fn a_fence_of_the_requests_connection() {
    let mut region = Region::of(&few());
    let mut lone = Lone::connected(&mut region, &few(), &[TCP, TCP]);
    lone.feed(ASK, 0);
    assert_eq!(lone.sent_one().body, AGREE);
    let fence = Fence { rail: PEER_RAIL, peer_rail: 0, answer: false, ..fence_of_rail_1() };
    lone.feed_on(1, Body::Fence(fence), 0, |_| {});
    let sent = lone.sent();
    assert!(lone.endpoint.is_parked(PeerId(1)), "closed {:?}, sent {sent:?}", lone.closed);
}

/// K-5: a parking by agreement counts, also after one without the peer.
#[test]
fn alone_is_of_that_parking_only() {
    let mut region = Region::of(&few());
    let mut lone = full(&mut region, &few(), &[TCP]);
    down(&mut lone, 0, RailFault::Closed);
    lone.sent();
    assert_eq!(send_to(&mut lone, 5), FULL);
    // Reopened before the slot is free.
    up(&mut lone, 0);
    connect(&mut lone, 0, 2, 0);
    lone.sent();
    assert!(!lone.endpoint.is_parked(PeerId(1)));
    lone.feed(ASK, 0);
    assert_eq!(lone.sent_one().body, AGREE);
    down(&mut lone, 0, RailFault::Closed);
    lone.sent();
    assert!(lone.endpoint.is_parked(PeerId(1)));
    let sent = again(&mut lone, 3, 1);
    assert!(matches!(sent[0].body, Body::Connect(Connect { parked: 1, .. })), "{sent:?}");
}

/// K-2: what is sent after a request does not overtake its withdrawal, whose rail has a frame under way.
#[test]
fn a_message_does_not_overtake_withdraw() {
    for rails in [&[TCP][..], &[super::SHM][..]] {
        let mut region = Region::of(&few());
        let mut lone = full(&mut region, &few(), rails);
        lone.stuck = 1;
        assert!(lone.endpoint.park(Time(lone.now), PeerId(1)));
        assert_eq!(lone.sent_one().body, ASK);
        lone.send(1, 8);
        let sent = lone.sent();
        assert!(sent.is_empty(), "{sent:?}");
        lone.stuck = 0;
        for id in core::mem::take(&mut lone.held) {
            lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::Done);
        }
        let sent = lone.sent();
        assert_eq!(sent[0].body, WITHDRAW, "{sent:?}");
        assert!(sent[1..].iter().any(|p| matches!(p.body, Body::Eager(_))), "{sent:?}");
    }
}

/// K-6: also a side with channels enough does not lose a peer that has none left.
#[test]
fn a_full_peer_of_a_side_with_room_is_not_lost() {
    let config = Config { channels_max: 8, ..few() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    down(&mut lone, 0, RailFault::Closed);
    for _ in 0..4 {
        refuse_after(&mut lone, config.recovery_timeout.0 / 3 * 2);
    }
    let events = events(&mut lone);
    assert!(!events.iter().any(|e| matches!(e, Event::PeerLost { .. })), "{events:?}");
}

/// The peer accepts a connection after a while, and closes it for want of a channel.
fn refuse_after(lone: &mut Lone<'_>, time: u64) {
    lone.sent();
    lone.now += time;
    lone.endpoint.handle_timeout(Time(lone.now));
    up(lone, 0);
    down(lone, 0, RailFault::Closed);
}

/// K-6, G-7: where nothing is left to send, a close does not wait for such a peer.
#[test]
fn a_full_peer_does_not_hold_up_a_close() {
    let mut region = Region::of(&few());
    let mut lone = full(&mut region, &few(), &[TCP]);
    down(&mut lone, 0, RailFault::Closed);
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    for _ in 0..3 {
        refuse_after(&mut lone, few().recovery_timeout.0 / 3 * 2);
    }
    let events = events(&mut lone);
    assert!(events.iter().any(|e| matches!(e, Event::PeerClosed { peer: PeerId(1) })), "{events:?}");
}

/// K-1, F-13: a peer that declines gets no request again at once, but when something has moved or time is
/// over.
#[test]
fn a_declined_request_is_not_repeated_at_once() {
    let mut region = Region::of(&few());
    let mut lone = full(&mut region, &few(), &[TCP]);
    let park_at = |lone: &mut Lone<'_>, request| {
        assert!(lone.endpoint.park(Time(lone.now), PeerId(1)), "request {request}");
        assert_eq!(lone.sent_one().body, Body::Park(Park { request, step: ParkStep::Request }));
        lone.feed(Body::Park(Park { request, step: ParkStep::Decline }), 0);
        assert!(!lone.endpoint.park(Time(lone.now), PeerId(1)), "at once after request {request}");
    };
    park_at(&mut lone, 1);
    lone.now += 2_000_000;
    park_at(&mut lone, 2);
    lone.now += 2_000_000;
    assert!(!lone.endpoint.park(Time(lone.now), PeerId(1)), "the time is twice that");
    lone.recv(7, 8);
    lone.feed(Body::Eager(MessageHead::default()), 0);
    lone.completed();
    lone.sent();
    park_at(&mut lone, 3);
}
