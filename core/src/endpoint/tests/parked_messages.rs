//! K-1, K-3: channels whose messages wait for receives are parked too.

use super::lone::Lone;
use super::parked::*;
use super::*;
use crate::wire::{Body, MessageHead, Rts};

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

/// A message whose payload is here takes a share of the pool: its channel stays.
#[test]
fn a_message_in_blocks_is_not_parked() {
    let mut region = Region::of(&few());
    let mut lone = full(&mut region, &few(), &[TCP]);
    let Arrival::Place { id, .. } = lone.feed(Body::Eager(MessageHead::default()), 8) else { panic!("no place") };
    lone.endpoint.handle_placed(Time(lone.now), id, &|_, _| ());
    lone.sent();
    assert!(!lone.endpoint.park(Time(lone.now), PeerId(1)));
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
