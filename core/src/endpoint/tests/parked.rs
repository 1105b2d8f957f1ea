//! K-1 to K-6, W-30: an idle channel is parked, packet by packet.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::*;
use crate::wire::{Body, Common, Connect, Fence, MessageHead, Park, Repr};

const PARK: Body = Body::Park(Park { declines: false });
const DECLINED: Body = Body::Park(Park { declines: true });

/// More peers than channels.
fn few() -> Config {
    Config { channels_max: 4, peers_max: 8, express: false, ..small() }
}

/// The channel of peer 1, over `rails`, and of as many others as there is room for.
fn full<'m>(region: &'m mut Region, config: &Config, rails: &[RailFacts]) -> Lone<'m> {
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
fn meet(lone: &mut Lone<'_>, peer: u32) {
    let from = PeerId(peer);
    lone.now += 1;
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: from, rail: RailId(0) });
    let common = Common { source: peer, message_limit: 32, block_limit: 64, ..Common::default() };
    let header = Repr { common, body: Body::Connect(PEER_PARAMETERS) }.emit_vec().unwrap();
    assert_eq!(lone.endpoint.handle_arrival(Time(lone.now), from, RailId(0), &header), Arrival::Done);
}

fn send_to(lone: &mut Lone<'_>, peer: u32) -> Result<OpId, SubmitError> {
    let segments = seg(0, 1);
    lone.endpoint.send(Time(lone.now), &SendRequest { segments: &segments, ..SendRequest::new(PeerId(peer), &[]) })
}

const FULL: Result<OpId, SubmitError> = Err(SubmitError::Full(Full::Channels));

/// The channel of peer 1, which was idle for longest, is being parked: its PARK is out.
fn parking<'m>(region: &'m mut Region, rails: &[RailFacts]) -> Lone<'m> {
    let mut lone = full(region, &few(), rails);
    assert_eq!(send_to(&mut lone, 5), FULL);
    assert_eq!(lone.sent_one().body, PARK);
    lone
}

/// The peer connects again, as one that has parked as often.
fn again(lone: &mut Lone<'_>, connection: u32, parked: u8) -> Vec<Repr> {
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(0) });
    assert_eq!(lone.feed(Body::Connect(Connect { connection, parked, ..PEER_PARAMETERS }), 0), Arrival::Done);
    lone.sent()
}

/// K-1, K-2, K-3: both send PARK, then the connections are closed and the slot is free.
#[test]
fn both_park() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP, TCP]);
    assert_eq!(send_to(&mut lone, 5), FULL, "the peer has not answered");
    assert!(lone.sent().is_empty(), "one channel at a time");
    lone.feed(PARK, 0);
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
    assert_eq!(lone.closed, [RailId(0), RailId(1)]);
    assert!(send_to(&mut lone, 5).is_ok());
    assert_eq!((lone.endpoint.stats().parked, lone.completed().len()), (1, 0), "no event");
}

/// K-2: a peer that is requested agrees by its own PARK, and closes when that is out.
#[test]
fn an_idle_peer_agrees() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    lone.busy = true;
    lone.feed(PARK, 0);
    assert_eq!(lone.sent_one().body, PARK);
    assert!(lone.closed.is_empty(), "the rail has it still");
    let post = lone.held.pop().unwrap();
    lone.endpoint.handle_completion(Time(0), post, PostStatus::Done);
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
    assert_eq!(lone.closed, [RailId(0)]);
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
        ("a message without a receive", |lone| {
            lone.feed(Body::Eager(MessageHead::default()), 0);
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
        lone.feed_on(1, PARK, 0, |_| {});
        assert_eq!(lone.sent_one().body, DECLINED, "{what}");
        assert_eq!(lone.rails.last(), Some(&RailId(1)), "lost only with the PARK's own connection: {what}");
        assert_eq!(send_to(&mut lone, 5), FULL);
        let sent = lone.sent();
        assert!(sent.iter().all(|packet| packet.body == PARK), "another channel is parked: {what}");
        assert!(lone.closed.is_empty(), "{what}");
    }
}

/// K-1: a rail that was dialled in vain keeps no channel from being parked; one that is dialled for the first
/// time does.
#[test]
fn a_rail_that_never_comes_up() {
    let mut region = Region::of(&few());
    let mut lone = Lone::connected(&mut region, &few(), &[TCP, TCP]);
    let down = RailEvent::Down { peer: PeerId(1), rail: RailId(1), fault: RailFault::TimedOut };
    lone.endpoint.handle_rail_event(Time(lone.now), down);
    lone.sent();
    lone.feed(Body::Fence(fence_of_rail_1()), 0);
    lone.sent();
    assert!(lone.endpoint.park(Time(lone.now), PeerId(1)));
    assert_eq!(lone.sent_one().body, PARK);
    lone.feed(PARK, 0);
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
    assert_eq!(lone.closed, [RailId(0), RailId(1)]);
    let mut lone = Lone::reached(&mut region, &few(), &[TCP, TCP], 2);
    lone.feed(Body::Connect(PEER_PARAMETERS), 0);
    lone.sent();
    lone.completed();
    assert!(!lone.endpoint.park(Time(lone.now), PeerId(1)), "the peer's CONNECT on rail 1 is on its way");
}

fn fence_of_rail_1() -> Fence {
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
        let down = RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault: RailFault::Closed };
        lone.endpoint.handle_rail_event(Time(lone.now), down);
        lone.sent();
        assert_eq!(send_to(&mut lone, 5), FULL);
        let requested = lone.sent().iter().filter(|packet| packet.body == PARK).count();
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
        let down = RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault: RailFault::Closed };
        lone.endpoint.handle_rail_event(Time(lone.now), down);
        lone.sent();
        lone.endpoint.handle_timeout(Time(lone.now) + few().recovery_timeout);
        lone.sent();
        let mut events = core::iter::from_fn(|| lone.endpoint.poll_event());
        assert_eq!(events.any(|event| matches!(event, Event::PeerLost { peer: PeerId(1), .. })), is_awaited);
        assert_eq!(lone.endpoint.is_parked(PeerId(1)), !is_awaited);
    }
}

/// K-4: a peer that declines, or a connection that fails before it agrees, leaves the channel as it was; what
/// was submitted meanwhile goes.
#[test]
fn a_channel_that_is_not_parked_goes_on() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP, TCP]);
    lone.send(1, 8);
    assert!(lone.sent().is_empty(), "nothing sequenced follows PARK");
    lone.feed(DECLINED, 0);
    assert!(matches!(lone.sent_one().body, Body::Eager(_)));
    let mut lone = parking(&mut region, &[TCP, TCP]);
    lone.send(1, 8);
    let down = RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault: RailFault::Closed };
    lone.endpoint.handle_rail_event(Time(lone.now), down);
    assert!(matches!(lone.sent()[..], [Repr { body: Body::Eager(_), .. }, Repr { body: Body::Fence(_), .. }]));
}

/// K-4: what is submitted after both have agreed goes over a new connection.
#[test]
fn a_message_behind_the_agreement() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP]);
    lone.send(1, 8);
    lone.feed(PARK, 0);
    assert!(lone.sent().is_empty() && !lone.endpoint.is_parked(PeerId(1)));
    assert_eq!(lone.closed, [RailId(0)]);
    let sent = again(&mut lone, 2, 1);
    let bodies: Vec<_> = sent.iter().map(|packet| &packet.body).collect();
    assert!(matches!(bodies[..], [Body::Connect(Connect { parked: 0, .. }), Body::Eager(_)]), "{bodies:?}");
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
    lone.feed(PARK, 0);
    assert_eq!(lone.sent_one().body, DECLINED, "completions are not reported");
    assert_eq!(lone.completed().len(), 2);
    lone.feed(PARK, 0);
    assert_eq!(lone.sent_one().body, PARK);
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

/// K-5: a peer that has not parked, because PARK was lost, replays what it had in flight.
#[test]
fn a_peer_that_has_not_parked_connects_again() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP]);
    lone.feed(PARK, 0);
    lone.sent();
    lone.recv(1, 8);
    again(&mut lone, 2, 0);
    lone.feed(Body::Eager(MessageHead::default()), 0);
    assert_eq!(lone.completed().len(), 1);
}

/// K-5: a parked peer whose process is gone is lost as soon as it is called.
#[test]
fn a_parked_peer_dies() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP]);
    lone.feed(PARK, 0);
    lone.sent();
    assert!(send_to(&mut lone, 1).is_ok());
    lone.sent();
    let gone = RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault: RailFault::Gone };
    lone.endpoint.handle_rail_event(Time(lone.now), gone);
    let events: Vec<_> = core::iter::from_fn(|| lone.endpoint.poll_event()).collect();
    assert!(events.iter().any(|event| matches!(event, Event::PeerLost { peer: PeerId(1), .. })), "{events:?}");
}

/// K-5: a peer that goes on with a channel that this side has closed and forgotten is closed.
#[test]
fn a_peer_of_a_forgotten_channel_is_closed() {
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[TCP]);
    lone.feed(PARK, 0);
    lone.sent();
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    lone.endpoint.remove_peer(PeerId(1)).unwrap();
    lone.endpoint.add_peer(PeerId(1), 1).unwrap();
    assert!(!lone.endpoint.is_parked(PeerId(1)));
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(0) });
    lone.feed(Body::Connect(Connect { connection: 2, parked: 1, ..PEER_PARAMETERS }), 0);
    assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerClosed { peer: PeerId(1) }));
    assert_eq!(send_to(&mut lone, 1), Err(SubmitError::PeerGone(PeerId(1))));
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
    assert_eq!(lone.sent_one().body, PARK, "of peer 4, the only one that is idle");
    assert_eq!(lone.closed, [RailId(0)], "peer 5 is refused");
}

fn meet_refused(lone: &mut Lone<'_>, peer: u32) {
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(peer), rail: RailId(0) });
}

/// K-2: on a lossless rail PARK goes there, and cannot be lost.
#[test]
fn park_takes_the_lossless_rail() {
    let shm = RailFacts { caps: Caps { lossless: true, ..TCP.caps }, ..TCP };
    let mut region = Region::of(&few());
    let lone = parking(&mut region, &[TCP, shm]);
    assert_eq!(lone.rails.last(), Some(&RailId(1)));
}

/// K-3: what is unread in a ring is lost when a new connection replaces it, so a lossless rail is closed by a
/// side that has proof that its PARK was read: by the peer's second one. The other sees the end of the rail.
#[test]
fn a_lossless_rail_is_closed_when_park_is_read() {
    let shm = RailFacts { caps: Caps { lossless: true, ..TCP.caps }, ..TCP };
    let mut region = Region::of(&few());
    for ends in [false, true] {
        let mut lone = parking(&mut region, &[shm]);
        lone.feed(PARK, 0);
        assert_eq!((lone.sent_one().body, lone.closed.len()), (PARK, 0), "ours may be unread");
        if ends {
            let down = RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault: RailFault::Closed };
            lone.endpoint.handle_rail_event(Time(lone.now), down);
        } else {
            lone.feed(PARK, 0);
        }
        assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
        assert_eq!(lone.closed.len(), usize::from(!ends));
    }
    let mut lone = Lone::connected(&mut region, &small(), &[shm]);
    lone.feed(PARK, 0);
    assert_eq!((lone.sent_one().body, lone.closed.len()), (PARK, 0), "the answer may be unread");
    lone.feed(PARK, 0);
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
}

/// K-4, K-5: on a lossless rail, a peer that has parked and connects again before this side has closed its
/// end finds the channel, and keeps the new connection; a rail without the PARK may fail meanwhile.
#[test]
fn the_peer_is_faster() {
    let shm = RailFacts { caps: Caps { lossless: true, ..TCP.caps }, ..TCP };
    let mut region = Region::of(&few());
    let mut lone = parking(&mut region, &[shm, TCP]);
    let down = |rail, fault| RailEvent::Down { peer: PeerId(1), rail: RailId(rail), fault };
    lone.endpoint.handle_rail_event(Time(lone.now), down(1, RailFault::TimedOut));
    assert!(lone.sent().iter().all(|packet| packet.body == Body::Credit), "the lossless rail decides");
    lone.feed(PARK, 0);
    lone.endpoint.handle_rail_event(Time(lone.now), down(0, RailFault::Closed));
    let sent = again(&mut lone, 2, 1);
    assert!(matches!(sent[0].body, Body::Connect(Connect { connection: 2, .. })), "{sent:?}");
    assert!(lone.closed.is_empty() && lone.completed().is_empty());
    lone.recv(1, 8);
    lone.feed(Body::Eager(MessageHead::default()), 0);
    assert_eq!(lone.completed().len(), 1);
}

/// K-5: a connection that came up after PARK was sent may have brought messages of a peer that goes on: it is
/// not closed with the others. If it has brought PARK, that is declined.
#[test]
fn a_connection_after_the_agreement_remains() {
    let mut region = Region::of(&few());
    for came_on in [0, 1] {
        let mut lone = Lone::connected(&mut region, &few(), &[TCP, TCP]);
        let down = RailEvent::Down { peer: PeerId(1), rail: RailId(1), fault: RailFault::TimedOut };
        lone.endpoint.handle_rail_event(Time(lone.now), down);
        lone.sent();
        lone.feed(Body::Fence(fence_of_rail_1()), 0);
        lone.sent();
        lone.recv(1, 8);
        lone.busy = true;
        assert!(lone.endpoint.park(Time(lone.now), PeerId(1)));
        assert_eq!(lone.sent_one().body, PARK);
        let park = lone.held.pop().unwrap();
        lone.busy = false;
        lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(1) });
        let connect = Connect { rail: PEER_RAIL + 1, connection: 2, ..PEER_PARAMETERS };
        lone.feed_on(1, Body::Connect(connect), 0, |_| {});
        lone.sent();
        lone.feed_on(came_on, PARK, 0, |_| {});
        lone.feed_on(1, Body::Eager(MessageHead::default()), 0, |common| common.ack_now = true);
        lone.endpoint.handle_completion(Time(lone.now), park, PostStatus::Done);
        let sent = lone.sent();
        assert!(sent.iter().any(|packet| packet.common.ack_ordered == 1), "{sent:?}");
        assert_eq!(sent.iter().any(|packet| packet.body == DECLINED), came_on == 1, "{sent:?}");
        assert_eq!((&lone.closed[..], lone.endpoint.is_parked(PeerId(1))), (&[RailId(0)][..], false));
        assert_eq!(lone.completed().len(), 1);
    }
}
