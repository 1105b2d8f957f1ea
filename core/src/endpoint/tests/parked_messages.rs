//! K-1, K-3: channels whose messages wait for receives are parked too.

use super::lone::Lone;
use super::parked::*;
use super::*;
use crate::wire::{Body, Common, MessageHead, Probe, Repr, Rts};

/// An announcement by peer 1.
fn rts(operation: u64) -> Body {
    let head = MessageHead { operation, ..MessageHead::default() };
    Body::Rts(Rts { head, message_bytes: 30_000, keys: Default::default() })
}

/// The channel of peer 1 is parked, and `count` messages of it wait for receives.
fn waiting<'m>(region: &'m mut Region, count: u64) -> Lone<'m> {
    let mut lone = full(region, &few(), &[TCP]);
    (0..count).for_each(|number| assert_eq!(lone.feed(rts(70 + number), 0), Arrival::Done));
    lone.sent();
    assert!(lone.endpoint.park(Time(lone.now), PeerId(1)));
    assert_eq!(lone.sent_one().body, ASK);
    lone.feed(AGREE, 0);
    lone.sent();
    lone
}

/// A large message to peer 1 is announced, and that is acknowledged. Returns its operation.
fn announce(lone: &mut Lone<'_>) -> u64 {
    lone.send(7, 30_000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 1;
    lone.feed(Body::Credit, 0);
    rts.head.operation
}

fn receive(lone: &mut Lone<'_>, cookie: u64) -> Result<OpId, SubmitError> {
    let segments = seg(0, 30_000);
    let recv = RecvRequest {
        cookie: Cookie(cookie),
        segments: &segments,
        ..RecvRequest::new(Selector::ANY_UNTAGGED.of(PeerId(1)), &[])
    };
    lone.endpoint.recv(Time(lone.now), &recv)
}

/// K-5: a receive connects again, and its answer goes out; other messages of the peer go on waiting.
#[test]
fn a_receive_opens_the_channel_of_its_message() {
    let mut region = Region::of(&few());
    let mut lone = waiting(&mut region, 2);
    assert!(lone.endpoint.is_parked(PeerId(1)));
    let found = lone.endpoint.probe(&Selector::ANY_UNTAGGED).expect("it waits");
    assert_eq!((found.peer, found.bytes), (PeerId(1), 30_000));
    assert!(receive(&mut lone, 7).is_ok());
    lone.sent();
    let sent = again(&mut lone, 2, 1);
    let ctses: Vec<_> =
        sent.iter().filter_map(|p| if let Body::Cts(cts) = &p.body { Some(cts.operation) } else { None }).collect();
    assert_eq!(ctses, [70], "{sent:?}");
    assert!(lone.endpoint.probe(&Selector::ANY_UNTAGGED).is_some(), "the second one");
    assert!(receive(&mut lone, 8).is_ok());
    let sent = lone.sent();
    assert!(sent.iter().any(|p| matches!(&p.body, Body::Cts(cts) if cts.operation == 71)), "{sent:?}");
}

/// C-1: a message that waits takes the share of a channel, which its own channel finds again.
#[test]
fn waiting_messages_take_a_share() {
    let mut region = Region::of(&few());
    let mut lone = waiting(&mut region, 1);
    assert_eq!(lone.endpoint.usage().channels.used, 3);
    assert_eq!(send_to(&mut lone, 5), FULL, "the fourth channel's share");
    assert!(lone.sent().iter().any(|p| p.body == ASK), "of an idle peer");
    let (message, found) = lone.endpoint.claim(&Selector::ANY_UNTAGGED).expect("it waits");
    assert_eq!(found.peer, PeerId(1));
    let segments = seg(0, 30_000);
    let recv = RecvRequest { segments: &segments, ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
    assert!(lone.endpoint.recv_claimed(Time(lone.now), message, &recv).is_ok());
    let sent = again(&mut lone, 2, 1);
    assert!(sent.iter().any(|p| matches!(&p.body, Body::Cts(cts) if cts.operation == 70)), "{sent:?}");
}

/// G-7: messages of a peer that is closed while it is parked are dropped.
#[test]
fn a_closed_peer_leaves_no_message() {
    let mut region = Region::of(&few());
    let mut lone = waiting(&mut region, 2);
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    assert_eq!(lone.endpoint.probe(&Selector::ANY_UNTAGGED), None);
    assert_eq!(lone.endpoint.usage().messages.used, 0);
}

/// The channel of peer 1 is parked, and two messages of it, of 8 bytes, lie in blocks.
fn stored<'m>(region: &'m mut Region) -> (Lone<'m>, Common) {
    let mut lone = full(region, &few(), &[TCP]);
    for _ in 0..2 {
        let arrival = lone.feed(Body::Eager(MessageHead::default()), 8);
        lone.place(arrival);
    }
    lone.sent();
    assert!(lone.endpoint.park(Time(lone.now), PeerId(1)));
    let before = lone.sent_one().common;
    lone.feed(AGREE, 0);
    lone.sent();
    assert!(lone.endpoint.is_parked(PeerId(1)));
    (lone, before)
}

/// K-1, C-4: a message in blocks is received without a connection; its room is granted with the next one.
#[test]
fn a_message_in_blocks_needs_no_connection() {
    let mut region = Region::of(&few());
    let (mut lone, before) = stored(&mut region);
    let used = |lone: &Lone<'_>| (lone.endpoint.usage().messages.used, lone.endpoint.usage().blocks.used);
    assert_eq!(used(&lone), (2, 2));
    assert!(receive(&mut lone, 7).is_ok());
    assert!(lone.sent().is_empty() && lone.endpoint.is_parked(PeerId(1)));
    assert_eq!(lone.completed()[&7].map(|done| (done.bytes, done.peer)), Ok((8, PeerId(1))));
    assert_eq!(used(&lone), (1, 1));
    let limits = |common: &Common| (common.message_limit, common.block_limit);
    let sent = again(&mut lone, 2, 1);
    let (messages, blocks) = limits(&before);
    assert_eq!(limits(&sent[0].common), (messages + 1, blocks + 1));
    assert!(receive(&mut lone, 8).is_ok());
    lone.sent();
    lone.feed(Body::Probe(Probe::default()), 0);
    let sent = lone.sent();
    assert_eq!((used(&lone), limits(&sent[0].common)), ((0, 0), (messages + 2, blocks + 2)));
}

/// G-10: of a peer that is closed while it is parked, complete messages can still be received.
#[test]
fn a_closed_peer_leaves_complete_messages() {
    for receives in [0, 1, 2] {
        let mut region = Region::of(&few());
        let (mut lone, _) = stored(&mut region);
        lone.endpoint.close_peer(PeerId(1)).unwrap();
        for cookie in 0..receives {
            assert!(receive(&mut lone, cookie).is_ok());
        }
        if receives > 0 {
            let error = lone.endpoint.remove_peer(PeerId(1));
            assert_eq!(error, Err(PeerError::InUse(PeerId(1))), "they are not copied yet");
        }
        lone.sent();
        assert_eq!(lone.completed().values().filter(|result| result.is_ok()).count() as u64, receives);
        lone.endpoint.remove_peer(PeerId(1)).unwrap();
        let usage = lone.endpoint.usage();
        assert_eq!((usage.messages.used, usage.blocks.used), (0, 0));
    }
}

/// C-1: with a channel for each, a message that waits keeps no other peer out.
#[test]
fn waiting_messages_leave_room_for_others() {
    let mut region = Region::of(&few());
    let mut lone = Lone::connected(&mut region, &few(), &[TCP]);
    for peer in 2..6 {
        lone.endpoint.add_peer(PeerId(peer), 1).unwrap();
    }
    (2..4).for_each(|peer| meet(&mut lone, peer));
    lone.sent();
    assert_eq!(lone.feed(rts(70), 0), Arrival::Done);
    lone.sent();
    assert!(lone.endpoint.park(Time(lone.now), PeerId(1)));
    lone.sent();
    lone.feed(AGREE, 0);
    lone.sent();
    assert_eq!(lone.endpoint.usage().channels.used, 2, "of 4, and one is for peer 1");
    assert!(send_to(&mut lone, 4).is_ok());
    assert_eq!(send_to(&mut lone, 5), FULL);
    assert!(receive(&mut lone, 7).is_ok());
}

/// Another peer's packet.
fn feed_from(lone: &mut Lone<'_>, peer: u32, body: Body, psn: u32) {
    let common = Common { source: peer, psn, message_limit: 32, block_limit: 64, ..Common::default() };
    let header = Repr { common, body }.emit_vec().unwrap();
    let arrival = lone.endpoint.handle_arrival(Time(lone.now), PeerId(peer), RailId(0), &header);
    assert_eq!(arrival, Arrival::Done);
}

/// A peer's channel is parked.
fn park(lone: &mut Lone<'_>, peer: u32) {
    lone.sent();
    assert!(lone.endpoint.park(Time(lone.now), PeerId(peer)));
    lone.sent();
    feed_from(lone, peer, AGREE, 0);
    lone.sent();
    assert!(lone.endpoint.is_parked(PeerId(peer)), "{peer}");
}

/// M-1: a multi-receive takes no message before an older one that waits for a channel.
#[test]
fn an_older_multi_receive_comes_first() {
    let mut region = Region::of(&few());
    let mut lone = full(&mut region, &few(), &[TCP]);
    for peer in 1..4 {
        feed_from(&mut lone, peer, rts(70), 0);
        park(&mut lone, peer);
    }
    meet(&mut lone, 5);
    feed_from(&mut lone, 5, rts(75), 0);
    let mut post = |source, cookie| {
        let segments = seg(100_000 * cookie, 70_000);
        let from = Selector { source, ..Selector::ANY_UNTAGGED };
        let recv =
            RecvRequest { multi: Some(1), cookie: Cookie(cookie), segments: &segments, ..RecvRequest::new(from, &[]) };
        assert!(lone.endpoint.recv(Time(lone.now), &recv).is_ok());
        lone.endpoint.usage().messages.used
    };
    // Two of the parked channels can't be open beside those of peers 4 and 5.
    assert_eq!(post(None, 1), 3);
    assert_eq!(post(Some(PeerId(5)), 2), 3, "the older one takes it, or its buffer is full");
}

/// F-13: a peer that a receive waits for is dialled, though messages of parked channels take half of the
/// channels.
#[test]
fn waiting_messages_keep_no_awaited_peer_from_being_dialled() {
    let config = Config { keepalive: Nanos(1_000_000), ..few() };
    let mut region = Region::of(&config);
    let mut lone = full(&mut region, &config, &[TCP]);
    for peer in 1..5 {
        if peer < 4 {
            feed_from(&mut lone, peer, rts(70), 0);
        }
        park(&mut lone, peer);
    }
    let segments = seg(0, 100);
    let recv = RecvRequest { segments: &segments, ..RecvRequest::new(Selector::ANY_UNTAGGED.of(PeerId(5)), &[]) };
    assert!(lone.endpoint.recv(Time(lone.now), &recv).is_ok());
    let dials = |action: &Action| matches!(action, Action::Connect { peer: PeerId(5), .. });
    let mut is_dialled = false;
    for _ in 0..3 {
        lone.now += config.keepalive.0;
        lone.endpoint.handle_timeout(Time(lone.now));
        let mut actions = heapless::Vec::new();
        lone.endpoint.poll_actions(Time(lone.now), &mut actions);
        is_dialled |= actions.iter().any(dials);
    }
    assert!(is_dialled);
}

/// K-3: the sender keeps its request, and waits for the peer to connect.
#[test]
fn a_sender_waits_without_a_connection() {
    let mut region = Region::of(&few());
    let mut lone = full(&mut region, &few(), &[TCP]);
    let operation = announce(&mut lone);
    lone.feed(ASK, 0);
    let sent = lone.sent();
    assert!(sent.iter().any(|p| p.body == AGREE), "{sent:?}");
    down(&mut lone, 0, RailFault::Closed);
    let mut actions = heapless::Vec::new();
    lone.endpoint.poll_actions(Time(lone.now), &mut actions);
    assert!(actions.is_empty(), "the peer connects when it has a receive: {actions:?}");
    assert!(lone.endpoint.next_timeout().is_some(), "if it does not, it is looked for");
    let sent = again(&mut lone, 2, 1);
    assert!(sent.iter().all(|p| !matches!(p.body, Body::Rts(_))), "{sent:?}");
    lone.feed(super::recovery::cts(operation, 0, &[]), 0);
    let bytes: u32 = lone.sent().iter().map(|packet| packet.common.payload_bytes).sum();
    assert_eq!(bytes, 30_000);
}

/// K-3: if the peer does not connect, the sender does, after `recovery_timeout`.
#[test]
fn a_waiting_sender_connects_again() {
    let mut region = Region::of(&few());
    let mut lone = full(&mut region, &few(), &[TCP]);
    announce(&mut lone);
    lone.feed(ASK, 0);
    lone.sent();
    down(&mut lone, 0, RailFault::Closed);
    lone.sent();
    lone.now += few().recovery_timeout.0;
    lone.endpoint.handle_timeout(Time(lone.now));
    let mut actions = heapless::Vec::new();
    lone.endpoint.poll_actions(Time(lone.now), &mut actions);
    let dials = |action: &Action| matches!(action, Action::Connect { peer: PeerId(1), .. });
    assert!(actions.iter().any(dials), "{actions:?}");
}

/// F-9: a sender whose peer can't be reached any more loses it, more peers than channels or not.
#[test]
fn a_waiting_sender_loses_a_peer_that_is_gone() {
    let mut region = Region::of(&few());
    let mut lone = full(&mut region, &few(), &[TCP]);
    announce(&mut lone);
    down(&mut lone, 0, RailFault::TimedOut);
    for _ in 0..4 {
        lone.sent();
        assert_eq!(send_to(&mut lone, 5), FULL);
        lone.now += few().recovery_timeout.0;
        lone.endpoint.handle_timeout(Time(lone.now));
        down(&mut lone, 0, RailFault::TimedOut);
    }
    let events: Vec<_> = core::iter::from_fn(|| lone.endpoint.poll_event()).collect();
    assert!(events.iter().any(|e| matches!(e, Event::PeerLost { peer: PeerId(1), .. })), "{events:?}");
}
