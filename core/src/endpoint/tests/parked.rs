//! K-1 to K-6, W-30: an idle channel is parked, packet by packet.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::*;
use crate::wire::{Body, Common, Connect, Fence, MessageHead, Park, ParkStep, Probe, Repr};

/// Steps about the first request of either side.
pub(super) const ASK: Body = Body::Park(Park { request: 1, step: ParkStep::Request });
pub(super) const AGREE: Body = Body::Park(Park { request: 1, step: ParkStep::Agree });
pub(super) const DECLINE: Body = Body::Park(Park { request: 1, step: ParkStep::Decline });
pub(super) const WITHDRAW: Body = Body::Park(Park { request: 1, step: ParkStep::Withdraw });

pub(super) const SHM: RailFacts = RailFacts { caps: Caps { lossless: true, ..TCP.caps }, ..TCP };

pub(super) fn down(lone: &mut Lone<'_>, rail: u8, fault: RailFault) {
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Down { peer: PeerId(1), rail: RailId(rail), fault });
}

pub(super) fn up(lone: &mut Lone<'_>, rail: u8) {
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(rail) });
}

/// The peer's CONNECT on a rail.
pub(super) fn connect(lone: &mut Lone<'_>, rail: u8, connection: u32, parked: u8) {
    let connect = Connect { rail: PEER_RAIL + rail, connection, parked, ..PEER_PARAMETERS };
    assert_eq!(lone.feed_on(rail, Body::Connect(connect), 0, |_| {}), Arrival::Done);
}

/// More peers than channels.
pub(super) fn few() -> Config {
    Config { channels_max: 4, peers_max: 8, express: false, ..small() }
}

/// The channel of peer 1, over `rails`, and of as many others as there is room for.
pub(super) fn full<'m>(region: &'m mut Region, config: &Config, rails: &[RailFacts]) -> Lone<'m> {
    let mut lone = Lone::connected(region, config, rails);
    for peer in 2..8 {
        lone.endpoint.add_peer(PeerId(peer), 1).unwrap();
    }
    for peer in 2..5 {
        meet(&mut lone, peer);
    }
    lone.sent();
    lone.completed();
    lone
}

/// Another peer connects.
pub(super) fn meet(lone: &mut Lone<'_>, peer: u32) {
    let from = PeerId(peer);
    lone.now += 1;
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: from, rail: RailId(0) });
    let common = Common { source: peer, message_limit: 32, block_limit: 64, ..Common::default() };
    let header = Repr { common, body: Body::Connect(PEER_PARAMETERS) }.emit_vec().unwrap();
    assert_eq!(lone.endpoint.handle_arrival(Time(lone.now), from, RailId(0), &header), Arrival::Done);
}

pub(super) fn send_to(lone: &mut Lone<'_>, peer: u32) -> Result<OpId, SubmitError> {
    let segments = seg(0, 1);
    lone.endpoint.send(Time(lone.now), &SendRequest { segments: &segments, ..SendRequest::new(PeerId(peer), &[]) })
}

pub(super) const FULL: Result<OpId, SubmitError> = Err(SubmitError::Full(Full::Channels));

/// The channel of peer 1, which was idle for longest, is being parked: its PARK is out.
pub(super) fn parking<'m>(region: &'m mut Region, rails: &[RailFacts]) -> Lone<'m> {
    let mut lone = full(region, &few(), rails);
    assert_eq!(send_to(&mut lone, 5), FULL);
    assert_eq!(lone.sent_one().body, ASK);
    lone
}

/// The channel of peer 1 is parked.
pub(super) fn parked<'m>(region: &'m mut Region) -> Lone<'m> {
    let mut lone = parking(region, &[TCP]);
    lone.feed(AGREE, 0);
    lone.sent();
    assert!(lone.endpoint.is_parked(PeerId(1)));
    lone
}

/// The peer connects again, as one that has parked as often.
pub(super) fn again(lone: &mut Lone<'_>, connection: u32, parked: u8) -> Vec<Repr> {
    up(lone, 0);
    connect(lone, 0, connection, parked);
    lone.sent()
}

/// Rail 1 has failed, and nothing is under way on it for the peer either.
pub(super) fn without_rail_1(lone: &mut Lone<'_>) {
    down(lone, 1, RailFault::TimedOut);
    lone.sent();
    lone.feed(Body::Fence(fence_of_rail_1()), 0);
    lone.sent();
}

/// K-1, K-2, K-3: the peer agrees, then the connections are closed and the slot is free.
#[test]
fn both_park() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP, TCP]);
    assert_eq!(send_to(&mut lone, 5), FULL, "the peer has not answered");
    assert!(lone.sent().is_empty(), "one channel at a time");
    lone.feed(AGREE, 0);
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
    assert_eq!(lone.closed, [RailId(0), RailId(1)]);
    assert!(send_to(&mut lone, 5).is_ok());
    assert_eq!((lone.endpoint.stats().parked, lone.completed().len()), (1, 0), "no event");
}

/// K-2, K-3: a side that is requested agrees, sends nothing sequenced, and parks when the connection ends.
#[test]
fn an_idle_side_agrees() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.feed_on(1, ASK, 0, |_| {});
    assert_eq!((lone.sent_one().body, lone.rails.last()), (AGREE, Some(&RailId(1))));
    down(&mut lone, 0, RailFault::Closed);
    assert_eq!(lone.sent_one().body, Body::Credit, "another connection is no sign");
    assert!(!lone.endpoint.is_parked(PeerId(1)));
    down(&mut lone, 1, RailFault::Closed);
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
    assert!(lone.closed.is_empty(), "the peer has ended both");
}

/// K-4: what a side that has agreed is to send waits for the end of the connection, and goes over a new one.
#[test]
fn a_message_behind_the_agreement() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.feed(ASK, 0);
    lone.sent();
    lone.send(1, 8);
    assert!(lone.sent().is_empty());
    down(&mut lone, 0, RailFault::Closed);
    lone.sent();
    let sent = again(&mut lone, 2, 1);
    let bodies: Vec<_> = sent.iter().map(|packet| &packet.body).collect();
    assert!(matches!(bodies[..], [Body::Connect(Connect { parked: 0, .. }), Body::Eager(_)]), "{bodies:?}");
}

/// K-2: requests that cross are agreed to both, and one agreement suffices.
#[test]
fn requests_cross() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP, TCP]);
    lone.feed_on(1, ASK, 0, |_| {});
    assert_eq!((lone.sent_one().body, lone.rails.last()), (AGREE, Some(&RailId(1))));
    lone.feed(AGREE, 0);
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
    // Or the peer has ended the connections in either order.
    for first in [0, 1] {
        let mut lone = parking(&mut region, &[TCP, TCP]);
        lone.feed_on(1, ASK, 0, |_| {});
        lone.sent();
        down(&mut lone, first, RailFault::Closed);
        assert_eq!(lone.sent_one().body, Body::Credit, "rail {first} first");
        assert!(!lone.endpoint.is_parked(PeerId(1)), "rail {first} first");
        down(&mut lone, 1 - first, RailFault::Closed);
        assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)), "rail {first} first");
    }
}

/// K-2: of two requests of a peer the newer counts, also where it comes first.
#[test]
fn an_older_request_has_no_answer() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.feed(Body::Park(Park { request: 2, step: ParkStep::Request }), 0);
    assert_eq!(lone.sent_one().body, Body::Park(Park { request: 2, step: ParkStep::Agree }));
    lone.feed_on(1, ASK, 0, |_| {});
    lone.feed_on(1, WITHDRAW, 0, |_| {});
    assert!(lone.sent().is_empty());
    down(&mut lone, 0, RailFault::Closed);
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
}

/// K-2: whatever is outstanding is a reason to decline.
#[test]
fn a_channel_in_use_is_not_parked() {
    let mut region = Region::of(&few());
    type Use = fn(&mut Lone<'_>);
    let uses: [(&str, Use); 5] = [
        ("an unacknowledged message", |lone| {
            lone.send(1, 8);
            lone.sent();
        }),
        ("a message that a probe has claimed", |lone| {
            lone.feed(Body::Eager(MessageHead::default()), 0);
            lone.endpoint.claim(&Selector::ANY_UNTAGGED).unwrap();
        }),
        ("a payload on its way", |lone| {
            lone.feed(Body::Eager(MessageHead::default()), 8);
        }),
        ("a gap", |lone| {
            lone.recv(1, 8);
            lone.feed_on(0, Body::Eager(MessageHead::default()), 0, |common| common.psn = 3);
        }),
        ("a completion that is not reported", |lone| {
            lone.endpoint
                .flush(Time(0), &FlushRequest { peer: PeerId(1), notify: Notify::Event, cookie: Cookie(4) })
                .unwrap();
        }),
    ];
    for (what, begin) in uses {
        let mut lone = full(&mut region, &few(), &[TCP, TCP]);
        begin(&mut lone);
        lone.sent();
        lone.feed_on(1, ASK, 0, |_| {});
        assert_eq!(lone.sent_one().body, DECLINE, "{what}");
        assert_eq!(lone.rails.last(), Some(&RailId(1)), "lost only with the PARK's own connection: {what}");
        assert_eq!(send_to(&mut lone, 5), FULL);
        let sent = lone.sent();
        assert!(sent.iter().all(|packet| packet.body == ASK), "another channel is parked: {what}");
        assert!(lone.closed.is_empty(), "{what}");
    }
}

/// K-1: a rail that was dialled in vain keeps no channel from being parked; one that is dialled for the first
/// time does.
#[test]
fn a_rail_that_never_comes_up() {
    let mut region = Region::of(&few());
    let mut lone = Lone::connected(&mut region, &few(), &[TCP, TCP]);
    without_rail_1(&mut lone);
    assert!(lone.endpoint.park(Time(lone.now), PeerId(1)));
    assert_eq!(lone.sent_one().body, ASK);
    lone.feed(AGREE, 0);
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
    assert_eq!(lone.closed, [RailId(0), RailId(1)]);
    let mut lone = Lone::reached(&mut region, &few(), &[TCP, TCP], 2);
    lone.feed(Body::Connect(PEER_PARAMETERS), 0);
    lone.sent();
    lone.completed();
    assert!(!lone.endpoint.park(Time(lone.now), PeerId(1)), "rail 1 is dialled");
    let mut lone = Lone::connected(&mut region, &few(), &[TCP, TCP]);
    without_rail_1(&mut lone);
    up(&mut lone, 1);
    assert!(!lone.endpoint.park(Time(lone.now), PeerId(1)), "the peer's CONNECT on rail 1 is on its way");
}

pub(super) fn fence_of_rail_1() -> Fence {
    Fence {
        rail: PEER_RAIL + 1,
        peer_rail: 1,
        connection: 1,
        peer_connection: 1,
        ordered_beyond: 0,
        unordered_beyond: 0,
        answer: true,
    }
}

/// K-3: an idle channel without a connection gives its slot to another: the peer, which may have
/// parked, cannot be queried.
#[test]
fn a_channel_without_a_connection_is_parked_alone() {
    let mut region = Region::of(&few());
    for is_idle in [true, false] {
        let mut lone = full(&mut region, &few(), &[TCP]);
        if !is_idle {
            lone.send(1, 8);
        }
        down(&mut lone, 0, RailFault::Closed);
        lone.sent();
        assert_eq!(send_to(&mut lone, 5), FULL);
        let requested = lone.sent().iter().filter(|packet| packet.body == ASK).count();
        assert_eq!((requested, lone.endpoint.is_parked(PeerId(1))), if is_idle { (0, true) } else { (1, false) });
        assert_eq!(send_to(&mut lone, 5).is_ok(), is_idle);
    }
}

/// K-3, F-9: where channels are short, an idle channel whose peer is full is not lost when its time is over,
/// unless a receive waits for the peer.
#[test]
fn an_idle_channel_of_a_full_peer_is_no_loss() {
    let mut region = Region::of(&few());
    for is_awaited in [false, true] {
        let mut lone = full(&mut region, &few(), &[TCP]);
        if is_awaited {
            let from = Selector { source: Some(PeerId(1)), ..Selector::ANY_UNTAGGED };
            let recv = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(from, &[]) };
            lone.endpoint.recv(Time(lone.now), &recv).unwrap();
        }
        down(&mut lone, 0, RailFault::Closed);
        lone.sent();
        lone.endpoint.handle_timeout(Time(lone.now) + few().recovery_timeout);
        lone.sent();
        let mut events = core::iter::from_fn(|| lone.endpoint.poll_event());
        assert_eq!(events.any(|event| matches!(event, Event::PeerLost { peer: PeerId(1), .. })), is_awaited);
        assert_eq!(lone.endpoint.is_parked(PeerId(1)), !is_awaited);
    }
}

/// K-5: a channel without numbers that is parked alone begins anew: the peer may not have had CONNECT.
#[test]
fn a_channel_that_the_peer_may_not_have() {
    let mut region = Region::of(&few());
    let mut lone = full(&mut region, &few(), &[TCP]);
    down(&mut lone, 0, RailFault::Closed);
    lone.sent();
    assert_eq!(send_to(&mut lone, 5), FULL);
    lone.sent();
    assert!(lone.endpoint.is_parked(PeerId(1)));
    let sent = again(&mut lone, 1, 0);
    assert!(matches!(sent[0].body, Body::Connect(Connect { connection: 2, parked: 0, .. })), "{sent:?}");
}

/// K-4: a peer that declines leaves the channel as it was.
#[test]
fn a_channel_that_is_not_parked_goes_on() {
    let mut region = Region::of(&few());
    for answer in [DECLINE, AGREE] {
        let mut lone = parking(&mut region, &[TCP, TCP]);
        lone.feed_on(1, answer.clone(), 0, |_| {});
        lone.sent();
        assert!(!lone.endpoint.park(Time(lone.now), PeerId(1)), "the answer comes where the request went");
        lone.feed(Body::Park(Park { request: 0, ..park_of(&answer) }), 0);
        lone.sent();
        assert!(!lone.endpoint.park(Time(lone.now), PeerId(1)), "the answer to another request");
    }
    let mut lone = parking(&mut region, &[TCP, TCP]);
    lone.feed(DECLINE, 0);
    assert!(lone.sent().is_empty());
    lone.send(1, 8);
    assert!(matches!(lone.sent_one().body, Body::Eager(_)));
}

pub(super) fn park_of(body: &Body) -> Park {
    let &Body::Park(park) = body else { panic!("{body:?}") };
    park
}

/// K-4: with the connection of the request its answer is lost, and the channel goes on. A failure of another
/// one is none, where the request is answered with a decline afterwards it is dialled again.
#[test]
fn connections_fail_before_the_answer() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP, TCP]);
    down(&mut lone, 0, RailFault::Closed);
    lone.send(1, 8);
    let sent = lone.sent();
    assert!(sent.iter().any(|packet| matches!(packet.body, Body::Eager(_))), "{sent:?}");
    let mut lone = parking(&mut region, &[TCP, TCP]);
    down(&mut lone, 1, RailFault::Closed);
    assert_eq!(lone.sent_one().body, Body::Credit);
    lone.feed(DECLINE, 0);
    lone.send(1, 8);
    assert!(lone.sent().iter().any(|packet| matches!(packet.body, Body::Eager(_))));
}

/// K-4: a side that has something to send withdraws its request, and sends.
#[test]
fn a_request_is_withdrawn() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP, TCP]);
    lone.send(1, 8);
    let sent = lone.sent();
    let bodies: Vec<_> = sent.iter().map(|packet| &packet.body).collect();
    assert!(matches!(bodies[..], [first, Body::Eager(_)] if *first == WITHDRAW), "{bodies:?}");
    lone.feed(AGREE, 0);
    assert!(lone.sent().is_empty() && lone.closed.is_empty(), "it comes too late");
    // The other side's view of it.
    let mut lone = Lone::connected(&mut region, &few(), &[TCP, TCP]);
    lone.feed(ASK, 0);
    assert_eq!(lone.sent_one().body, AGREE);
    lone.feed_on(1, WITHDRAW, 0, |_| {});
    lone.send(1, 8);
    assert!(lone.sent().is_empty(), "it comes where the request came");
    lone.feed(WITHDRAW, 0);
    assert!(matches!(lone.sent_one().body, Body::Eager(_)));
}

/// K-5: the numbers of a parked channel go on, so a copy of an old message is a duplicate.
#[test]
fn numbers_go_on() {
    let mut region = Region::of(&few());
    let mut lone = Lone::connected(&mut region, &few(), &[TCP]);
    for cookie in [1, 2] {
        lone.recv(cookie, 8);
    }
    lone.send(3, 8);
    lone.feed(Body::Eager(MessageHead::default()), 0);
    lone.sent();
    (lone.acks, lone.limits) = ([1, 0], (33, 64));
    lone.feed(ASK, 0);
    assert_eq!(lone.sent_one().body, DECLINE, "completions are not reported");
    assert_eq!(lone.completed().len(), 2);
    let agreed = |step| Body::Park(Park { request: 2, step });
    lone.feed(agreed(ParkStep::Request), 0);
    assert_eq!(lone.sent_one().body, agreed(ParkStep::Agree));
    down(&mut lone, 0, RailFault::Closed);
    lone.sent();
    assert!(lone.endpoint.is_parked(PeerId(1)));
    let sent = again(&mut lone, 2, 1);
    let Body::Connect(connect) = &sent[0].body else { panic!("{sent:?}") };
    assert_eq!((connect.connection, connect.parked, connect.rail), (2, 1, 0));
    assert!(!lone.endpoint.is_parked(PeerId(1)));
    assert_eq!(lone.endpoint.stats().resumed, 1);
    lone.feed_on(0, Body::Eager(MessageHead::default()), 0, |common| common.psn = 0);
    assert_eq!(lone.endpoint.stats().duplicates_dropped, 1);
    lone.feed_on(0, Body::Eager(MessageHead::default()), 0, |common| common.psn = 1);
    assert_eq!(lone.completed().len(), 1);
    lone.send(4, 8);
    let sent = lone.sent();
    assert!(sent.iter().any(|packet| matches!(packet.body, Body::Eager(_)) && packet.common.psn == 1), "{sent:?}");
}

/// K-5: a peer that has not parked, because the end of the connection was a failure to it, goes on.
#[test]
fn a_peer_that_has_not_parked_connects_again() {
    let mut region = Region::of(&few());
    let mut lone = parked(&mut region);
    lone.recv(1, 8);
    again(&mut lone, 2, 0);
    lone.feed(Body::Eager(MessageHead::default()), 0);
    assert_eq!(lone.completed().len(), 1);
}

/// K-5: a parked peer whose process is gone is lost as soon as it is called.
#[test]
fn a_parked_peer_dies() {
    let mut region = Region::of(&few());
    let mut lone = parked(&mut region);
    assert!(send_to(&mut lone, 1).is_ok());
    lone.sent();
    down(&mut lone, 0, RailFault::Gone);
    let events: Vec<_> = core::iter::from_fn(|| lone.endpoint.poll_event()).collect();
    assert!(events.iter().any(|event| matches!(event, Event::PeerLost { peer: PeerId(1), .. })), "{events:?}");
}

/// K-5: a channel that one side has closed and forgotten while it was parked ends for the other: here by the
/// peer's count, there by where this side's numbers begin. So no message is taken for an old one.
#[test]
fn a_forgotten_channel_is_closed() {
    let mut region = Region::of(&few());
    let numbered = [false, true];
    for knows_the_peer in numbered {
        let mut lone = parked(&mut region);
        if !knows_the_peer {
            lone.endpoint.close_peer(PeerId(1)).unwrap();
            lone.endpoint.remove_peer(PeerId(1)).unwrap();
            lone.endpoint.add_peer(PeerId(1), 1).unwrap();
            assert!(!lone.endpoint.is_parked(PeerId(1)));
        }
        up(&mut lone, 0);
        let sent = lone.sent();
        let Body::Connect(Connect { first_number, .. }) = sent[0].body else { panic!("{sent:?}") };
        assert_eq!(first_number != few().first_number, !knows_the_peer);
        let first_number = PEER_PARAMETERS.first_number + u32::from(knows_the_peer);
        let parked = u8::from(!knows_the_peer);
        lone.feed(Body::Connect(Connect { connection: 2, parked, first_number, ..PEER_PARAMETERS }), 0);
        assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerClosed { peer: PeerId(1) }));
        assert_eq!(send_to(&mut lone, 1), Err(SubmitError::PeerGone(PeerId(1))));
    }
}

/// K-6: a peer that accepts each connection and closes it, as it has no room, is not lost.
#[test]
fn a_full_peer_is_not_lost() {
    let mut region = Region::of(&few());
    let timeout = few().recovery_timeout.0;
    for is_full in [true, false] {
        let mut lone = parked(&mut region);
        assert!(send_to(&mut lone, 1).is_ok());
        for _ in 0..4 {
            lone.sent();
            lone.now += timeout / 3 * 2;
            lone.endpoint.handle_timeout(Time(lone.now));
            if is_full {
                up(&mut lone, 0);
            }
            down(&mut lone, 0, RailFault::Closed);
        }
        let mut events = core::iter::from_fn(|| lone.endpoint.poll_event());
        assert_eq!(events.any(|event| matches!(event, Event::PeerLost { .. })), !is_full);
    }
}

/// K-6: some channels are left for callers, and a caller without one finds one when it calls again.
#[test]
fn callers_find_a_channel() {
    let mut region = Region::of(&few());
    let mut lone = Lone::up(&mut region, &few(), &[TCP]);
    for peer in 2..8 {
        lone.endpoint.add_peer(PeerId(peer), 1).unwrap();
    }
    assert!(send_to(&mut lone, 2).is_ok() && send_to(&mut lone, 3).is_ok());
    assert_eq!(send_to(&mut lone, 4), FULL, "three wait for peers");
    lone.sent();
    meet(&mut lone, 4);
    lone.sent();
    assert!(lone.completed().is_empty());
    meet_refused(&mut lone, 5);
    assert_eq!(lone.sent_one().body, ASK, "of peer 4, the only one that is idle");
    assert_eq!(lone.closed, [RailId(0)], "peer 5 is refused");
}

pub(super) fn meet_refused(lone: &mut Lone<'_>, peer: u32) {
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(peer), rail: RailId(0) });
}

/// K-2, K-3: a request takes the lossless rail, and its answer is the last packet there.
#[test]
fn a_request_takes_the_lossless_rail() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP, SHM]);
    assert_eq!(lone.rails.last(), Some(&RailId(1)));
    lone.feed_on(1, AGREE, 0, |_| {});
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
    let mut lone = Lone::connected(&mut region, &small(), &[SHM]);
    lone.feed(ASK, 0);
    assert_eq!((lone.sent_one().body, lone.closed.len()), (AGREE, 0), "it may be unread");
    down(&mut lone, 0, RailFault::Closed);
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)), "no failure");
}

/// K-5: a peer that has parked and connects again before this side has seen its connection end finds the
/// channel, and keeps the new connection.
#[test]
fn the_peer_is_faster() {
    let mut region = Region::of(&few());
    let mut lone = Lone::connected(&mut region, &few(), &[SHM]);
    lone.feed(ASK, 0);
    lone.sent();
    let sent = again(&mut lone, 2, 1);
    assert!(matches!(sent[0].body, Body::Connect(Connect { connection: 2, .. })), "{sent:?}");
    assert!(lone.closed.is_empty() && lone.completed().is_empty());
    lone.recv(1, 8);
    lone.feed(Body::Eager(MessageHead::default()), 0);
    assert_eq!(lone.completed().len(), 1);
}

/// K-5: a connection that came up since the agreement began may have brought messages of a peer that goes on:
/// it is not closed with the others.
#[test]
fn a_connection_after_the_agreement_remains() {
    let mut region = Region::of(&few());
    for asks in [true, false] {
        let mut lone = Lone::connected(&mut region, &few(), &[TCP, TCP]);
        without_rail_1(&mut lone);
        lone.recv(1, 8);
        if asks {
            assert!(lone.endpoint.park(Time(lone.now), PeerId(1)));
        } else {
            lone.feed(ASK, 0);
        }
        assert_eq!(lone.sent_one().body, if asks { ASK } else { AGREE });
        up(&mut lone, 1);
        connect(&mut lone, 1, 2, 0);
        let sent = lone.sent();
        assert_eq!(sent.iter().any(|packet| packet.body == WITHDRAW), asks, "{sent:?}");
        lone.feed_on(1, Body::Eager(MessageHead::default()), 0, |common| common.ack_now = true);
        down(&mut lone, 0, RailFault::Closed);
        let sent = lone.sent();
        assert!(sent.iter().any(|packet| packet.common.ack_ordered == 1), "{sent:?}");
        assert!(lone.closed.is_empty() && !lone.endpoint.is_parked(PeerId(1)));
        assert_eq!(lone.completed().len(), 1);
    }
}

/// K-5: a CONNECT that counts another parking of the peer ends its other connections.
#[test]
fn connections_before_the_peer_parked_end() {
    let mut region = Region::of(&few());
    for parked in [0, 1] {
        let mut lone = Lone::connected(&mut region, &few(), &[SHM, TCP]);
        without_rail_1(&mut lone);
        lone.feed(ASK, 0);
        assert_eq!(lone.sent_one().body, AGREE);
        up(&mut lone, 1);
        connect(&mut lone, 1, 2, parked);
        lone.send(1, 8);
        let sent = lone.sent();
        let is_ended = parked == 1;
        assert_eq!(lone.closed, if is_ended { &[RailId(0)][..] } else { &[] });
        assert_eq!(sent.iter().any(|packet| matches!(packet.body, Body::Eager(_))), is_ended, "{sent:?}");
        let mut events = core::iter::from_fn(|| lone.endpoint.poll_event());
        assert!(!events.any(|event| matches!(event, Event::PeerLost { .. })));
    }
}

/// K-3: the connection of a request that was agreed to may have failed, so a ring that is up stays in use.
#[test]
fn a_ring_outlives_the_connection_of_a_request() {
    let mut region = Region::of(&few());
    let mut lone = Lone::connected(&mut region, &few(), &[SHM, TCP]);
    lone.feed_on(1, ASK, 0, |_| {});
    assert_eq!(lone.sent_one().body, AGREE);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.send(1, 8);
    let sent = lone.sent();
    assert!(sent.iter().any(|packet| matches!(packet.body, Body::Eager(_))), "{sent:?}");
    assert!(lone.closed.is_empty());
}

/// F-11, K-2: an answer that was lost on a rail that seems well is missed, on either side: what the peer had
/// to do came before its answer to a probe.
#[test]
fn a_step_that_is_lost_is_missed() {
    let config = Config { stall_min: Nanos::from_millis(1), ..few() };
    let mut region = Region::of(&config);
    for asks in [true, false] {
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        if asks {
            assert!(lone.endpoint.park(Time(lone.now), PeerId(1)));
        } else {
            lone.feed(ASK, 0);
        }
        assert_eq!(lone.sent_one().body, if asks { ASK } else { AGREE });
        let mut probes = 0;
        for _ in 0..100 {
            if !lone.closed.is_empty() {
                break;
            }
            lone.now = lone.endpoint.next_timeout().expect("the rail is watched").0.max(lone.now + 1);
            lone.endpoint.handle_timeout(Time(lone.now));
            for packet in lone.sent() {
                if let Body::Probe(Probe { nonce, answer: false }) = packet.body {
                    probes += 1;
                    lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
                }
            }
        }
        assert_eq!(lone.closed, [RailId(0)], "it is never missed");
        assert_eq!((lone.endpoint.is_parked(PeerId(1)), probes > 0), (!asks, true));
    }
}

/// K-2, K-4: a newer request voids the agreement to an older one: where it is declined, the channel goes on.
#[test]
fn a_newer_request_voids_an_agreement() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.feed_on(1, ASK, 0, |_| {});
    assert_eq!(lone.sent_one().body, AGREE);
    lone.send(4, 8);
    assert!(lone.sent().is_empty(), "nothing sequenced follows an agreement");
    lone.feed(Body::Park(Park { request: 2, step: ParkStep::Request }), 0);
    let sent = lone.sent();
    let decline = Body::Park(Park { request: 2, step: ParkStep::Decline });
    assert!(sent.iter().any(|packet| packet.body == decline), "{sent:?}");
    assert!(sent.iter().any(|packet| matches!(packet.body, Body::Eager(_))), "{sent:?}");
}
