//! Rules that only rare circumstances show: a batch of actions that is full in the middle, a request that
//! ends while it waits, a rail that is reported back without having been away. Each test fails if one line is
//! not as it is.

use super::aggregates::aggregating;
use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::{down, region};
use super::*;
use crate::wire::{Ack, Body, Connect, Get, MessageHead, RemoteKey, Repr, Rts};

fn eager() -> Body {
    Body::Eager(MessageHead { operation: 77, ..MessageHead::default() })
}

/// G-7: BYE goes over every rail, though a batch of actions has not room for all of them, and though no rail
/// has completed any.
#[test]
fn bye_is_sent_over_every_rail_beyond_one_batch() {
    const RAILS: u8 = 20;
    let config = Config { rails_max: RAILS, ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP; RAILS as usize]);
    lone.busy = true;
    lone.rails.clear();
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    let sent = lone.sent();
    assert!(sent.iter().all(|packet| packet.body == Body::Bye), "{sent:?}");
    let rails: Vec<u8> = lone.rails.iter().map(|rail| rail.0).collect();
    assert_eq!(rails, (0..RAILS).collect::<Vec<_>>());
}

/// M-9: a multi-receive with less room left than it must have takes no message more, though one that waits
/// would fit; and it can't be cancelled any more.
#[test]
fn a_closed_multi_receive_takes_nothing_and_can_not_be_cancelled() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    for bytes in [60, 10] {
        let arrival = lone.feed(eager(), bytes);
        lone.place(arrival);
    }
    let recv = RecvRequest {
        multi: Some(50),
        cookie: Cookie(1),
        segments: &seg(0, 100),
        ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
    };
    let id = lone.endpoint.recv(Time(0), &recv).unwrap();
    assert_eq!(lone.endpoint.cancel(id), Err(CancelError::TooLate));
    lone.sent();
    let done = lone.completed()[&1].unwrap();
    assert_eq!((done.bytes, done.released), (60, true));
    assert_eq!(lone.endpoint.usage().unexpected.used, 1, "the second one waits");
}

/// W-11: what stands behind a message that is being registered is not packed before it.
#[test]
fn nothing_is_packed_past_a_message_that_can_not_be() {
    let config = aggregating();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    (0..3).for_each(|n| lone.send(n, 10));
    let channel = lone.endpoint.t.channel_of(PeerId(1)).unwrap();
    let front = |lone: &mut Lone<'_>| lone.endpoint.front(channel, RailId(0), 1000, &heapless::Vec::new()).len();
    assert_eq!(front(&mut lone), 3);
    let first = lone.endpoint.t.channels.at(channel).queues.ordered.head();
    let second = lone.endpoint.t.ops.at(first).queue.next();
    lone.endpoint.t.ops.at_mut(second).enter(crate::op::Phase::Registering);
    assert_eq!(front(&mut lone), 1);
}

/// a message waits for all registrations that it has requested, though the batch was full between two
/// of them, and by the next one the peer has granted what it needs to go eagerly.
#[test]
fn a_message_that_is_half_registered_waits() {
    const RAILS: u8 = 6;
    let config = Config { rails_max: RAILS, ..small() };
    let mut divided = 0;
    for before in 0..16 {
        let mut region = Region::of(&config);
        let mut lone = Lone::up(&mut region, &config, &[GET; RAILS as usize]);
        lone.limits = (64, 0);
        for rail in 0..RAILS {
            let connect = Body::Connect(Connect { rail: PEER_RAIL + rail, ..PEER_PARAMETERS });
            assert_eq!(lone.feed_on(rail, connect, 0, |_| {}), Arrival::Done);
        }
        lone.sent();
        (0..before).for_each(|n| lone.send(n, 0));
        lone.send(100, 64);
        let mut actions = heapless::Vec::new();
        lone.endpoint.poll_actions(Time(0), &mut actions);
        let mut posts = Vec::new();
        for action in actions {
            match action {
                Action::Post(post) => posts.push(post.id),
                Action::Register { operation, rail, .. } => lone.requested.push((operation, rail)),
                _ => {}
            }
        }
        divided += u32::from((1..RAILS.into()).contains(&lone.requested.len()));
        posts.into_iter().for_each(|id| lone.endpoint.handle_completion(Time(0), id, PostStatus::Done));
        lone.limits = (64, 64);
        lone.feed(Body::Ack(Ack::default()), 0);
        lone.slow = true;
        let is_ours = |packet: &Repr| packet.common.payload_bytes > 0 || matches!(packet.body, Body::Rts(_));
        let early = lone.sent().iter().filter(|packet| is_ours(packet)).count();
        let requested = core::mem::take(&mut lone.requested);
        let key = RemoteKey { rail: 0, connection: 0, key: 1, address: 2 };
        for &(operation, rail) in &requested {
            lone.endpoint.handle_registered(operation, rail, Ok(key));
        }
        let late = lone.sent().iter().filter(|packet| is_ours(packet)).count();
        let waits = usize::from(!requested.is_empty());
        assert_eq!((early, late), (1 - waits, waits), "{before} messages before it");
    }
    assert!(divided > 0, "no batch was full between two registrations");
}

/// F-8: a link-up report for a rail that is up does not use up the next report's effect.
#[test]
fn link_up_event_of_a_ready_rail_keeps_the_next_one_effective() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    let back = |lone: &mut Lone<'_>| {
        lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Back { rail: RailId(1) });
        lone.sent();
    };
    let state = |lone: &Lone<'_>| lone.endpoint.rail_health(PeerId(1), RailId(1)).unwrap().state;
    lone.now = 1;
    back(&mut lone);
    // The first is dialled at once (the failure may be short), and fails.
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    assert!(matches!(state(&lone), RailState::Down { .. }), "{:?}", state(&lone));
    back(&mut lone);
    assert_eq!(state(&lone), RailState::Opening);
}

/// keys of the sender's memory that no read is going to use are given up at once: the receive has
/// no room, or its bytes come as packets.
#[test]
fn keys_that_nothing_reads_by_are_given_up() {
    let key = RemoteKey { rail: super::lone::PEER_RAIL, connection: 1, key: 9, address: 64 };
    for (rails, len) in [(&[GET, TCP][..], 0), (&[TCP, TCP][..], 3000), (&[GET, TCP][..], 3000)] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), rails);
        lone.busy = true;
        lone.recv(1, len);
        let head = MessageHead { operation: 77, ..MessageHead::default() };
        let rts = Rts { head, message_bytes: 3000, keys: core::iter::once(key).collect() };
        lone.feed_on(1, Body::Rts(rts), 0, |_| {});
        lone.sent();
        let reads = u32::from(rails[0].caps.read && len > 0);
        assert_eq!((lone.transfers, lone.endpoint.usage().key_sets.used), (reads, reads), "{len}");
    }
}

/// A region is in use while a receive that stands for itself names it, and no longer.
#[test]
fn memory_of_a_direct_receive_is_in_use() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[SHM]);
    let recv = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(tagged(None, 7), &[]) };
    assert!(!lone.endpoint.uses_region(HEAP));
    let id = lone.endpoint.recv_short(&recv).expect("nothing is special about it");
    assert!(lone.endpoint.uses_region(HEAP) && !lone.endpoint.uses_region(RegionId(1)));
    let has_byte = |at: u64| move |seg: &Seg| (seg.at.offset..seg.at.offset + seg.len).contains(&at);
    for (at, is_named) in [(7, true), (8, false)] {
        assert_eq!(lone.endpoint.is_written_to(has_byte(at)), is_named);
        assert_eq!(lone.endpoint.is_used(has_byte(at)), is_named);
    }
    lone.endpoint.cancel(id).unwrap();
    assert!(!lone.endpoint.uses_region(HEAP) && !lone.endpoint.is_used(|_| true));
    lone.send(1, 64);
    assert!(lone.endpoint.is_used(has_byte(63)) && !lone.endpoint.is_written_to(|_| true), "a send is read");
}

/// A part of a window is in use while a rail has a post that answers a peer's get from there.
#[test]
fn memory_of_an_answer_is_in_use() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let at = MemRef { region: HEAP, offset: 0 };
    lone.endpoint.expose(&Window::new(at, 64, Access { read: true, ..Access::default() }, 9)).unwrap();
    lone.busy = true;
    lone.feed(Body::Get(Get { window: 9, offset: 0, bytes: 64, operation: 1 }), 0);
    assert!(lone.sent().iter().any(|packet| matches!(packet.body, Body::Data(_))));
    assert!(lone.endpoint.is_used(|seg| seg.at.region == HEAP) && !lone.endpoint.is_written_to(|_| true));
    for post in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(0), post, PostStatus::Done);
    }
    assert!(!lone.endpoint.is_used(|_| true));
}

/// F-2, F-9: the connections of a lost peer are aborted, so that nothing of it is written late; those of a
/// peer that has closed its channel are disconnected.
#[test]
fn connections_of_a_lost_peer_are_aborted() {
    for is_lost in [true, false] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
        lone.sent();
        let wrong = Body::Eager(MessageHead::default());
        lone.feed_on(0, if is_lost { wrong } else { Body::Bye }, 0, |common| common.source = 1 + u32::from(is_lost));
        let mut actions = heapless::Vec::new();
        lone.endpoint.poll_actions(Time(0), &mut actions);
        let aborts = actions.iter().filter(|action| matches!(action, Action::Abort { .. })).count();
        let disconnects = actions.iter().filter(|action| matches!(action, Action::Disconnect { .. })).count();
        assert_eq!((aborts, disconnects), if is_lost { (1, 0) } else { (0, 1) });
    }
}

/// F-9, G-4: a rail with the wrong peer identity is not redialled, and the others are.
#[test]
fn rail_without_a_listener_does_not_stop_other_redials() {
    let config = small();
    let mut own = Region::of(&config);
    let mut endpoint = Endpoint::new(config, &[TCP, TCP], own.take(&config), Time(0)).unwrap();
    endpoint.add_peer(PeerId(1), 3).unwrap();
    endpoint.send(Time(0), &SendRequest::new(PeerId(1), &[])).unwrap();
    let dialled = |endpoint: &mut Endpoint<'_>, now| {
        let mut actions = heapless::Vec::new();
        endpoint.handle_timeout(Time(now));
        endpoint.poll_actions(Time(now), &mut actions);
        let rail = |action: &Action| if let Action::Connect { rail, .. } = action { rail.0 } else { u8::MAX };
        actions.iter().map(rail).collect::<Vec<_>>()
    };
    let down = |endpoint: &mut Endpoint<'_>, rail, fault| {
        endpoint.handle_rail_event(Time(0), RailEvent::Down { peer: PeerId(1), rail: RailId(rail), fault });
    };
    assert_eq!(dialled(&mut endpoint, 0), [0, 1]);
    down(&mut endpoint, 1, RailFault::TimedOut);
    assert_eq!(dialled(&mut endpoint, 0), [1]);
    down(&mut endpoint, 1, RailFault::TimedOut);
    down(&mut endpoint, 0, RailFault::Gone);
    assert_eq!((dialled(&mut endpoint, 0), endpoint.poll_event()), (vec![], None));
    assert_eq!(dialled(&mut endpoint, config.redial_min.0), [1]);
    down(&mut endpoint, 1, RailFault::Gone);
    assert!(matches!(endpoint.poll_event(), Some(Event::PeerLost { .. } | Event::Completed(_))));
}

/// A late answer names no rail that there is: dropped, whatever its number.
#[test]
fn registrations_of_rails_that_do_not_exist_are_dropped() {
    let mut own = region();
    let mut lone = Lone::connected(&mut own, &small(), &[PUT]);
    lone.slow = true;
    lone.recv(1, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    lone.sent();
    let (operation, rail) = lone.requested[0];
    for rail in [1, 63, 64, u8::MAX] {
        let before = lone.endpoint.stats().stale_dropped;
        lone.endpoint.handle_registered(operation, RailId(rail), Err(RailFault::TimedOut));
        assert_eq!(lone.endpoint.stats().stale_dropped, before + 1, "{rail}");
    }
    lone.endpoint.handle_registered(operation, rail, Err(RailFault::TimedOut));
    assert!(matches!(lone.sent_one().body, Body::Cts(_)));
}

/// X-3, P-2: a receiver that ends a transfer over several rails early frees what it holds, before the
/// application polls events.
#[test]
fn transfer_ended_early_releases_its_stripe_set() {
    let mut own = region();
    let mut lone = Lone::connected(&mut own, &small(), &[TCP, TCP]);
    lone.send(1, 100_000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 1;
    lone.busy = true;
    let operation = rts.head.operation;
    lone.feed(Body::Cts(crate::wire::Cts { operation, target: 88, granted_bytes: 100_000, ..Default::default() }), 0);
    assert!(!lone.sent().is_empty());
    assert_eq!(lone.endpoint.usage().stripe_sets.used, 1);
    lone.feed(Body::Fin(crate::wire::Fin { operation, count: 1, placed_bytes: 0, ..Default::default() }), 0);
    assert_eq!(lone.endpoint.usage().stripe_sets.used, 0);
}

/// a read that fails with its rail does not invalidate its key: the core waits for the rail's end, and
/// requests nothing anew.
#[test]
fn failed_read_keeps_its_key() {
    let mut own = region();
    let mut lone = Lone::connected(&mut own, &small(), &[GET]);
    lone.recv(1, 3000);
    let key = RemoteKey { rail: super::lone::PEER_RAIL, connection: 1, key: 7, address: 0 };
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.busy = true;
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, keys: [key].into_iter().collect() }), 0);
    lone.sent();
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(0), id, PostStatus::Failed);
    }
    lone.busy = false;
    assert_eq!(lone.sent(), []);
    assert_eq!(lone.endpoint.usage().key_sets.used, 1);
}

/// F-3: a FENCE for a connection that is not made yet is ignored, however far ahead its number is.
#[test]
fn connections_of_the_future_are_no_news() {
    use crate::rel::link::{Link, Pair, Verdict};
    let mut link = Link::default();
    link.up();
    link.connect(3);
    for mine in [2, 0x5000_0000, 0x6000_0000, 1 << 31] {
        assert_eq!(link.fence(Pair { mine, yours: 3 }), Verdict::default(), "{mine:x}");
    }
    assert_eq!(link.fence(Pair { mine: (1 << 31) + 2, yours: 3 }), Verdict { answer: true, ..Verdict::default() });
}
