//! Payloads whose rails die while they are being placed, several at a time (F-6).

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::{down, up};
use super::*;
use crate::wire::{Body, Connect, MessageHead};

fn eager(immediate: u64) -> Body {
    Body::Eager(MessageHead { immediate: Some(immediate), operation: 77, ..MessageHead::default() })
}

/// Two messages are half placed, over a rail each; both rails die, and come back.
fn half_placed<'m>(region: &'m mut Region, receive: impl FnOnce(&mut Lone<'m>)) -> Lone<'m> {
    let mut lone = Lone::connected(region, &small(), &[TCP, TCP]);
    receive(&mut lone);
    for rail in 0..2 {
        let half = lone.feed_on(rail, eager(10 + u64::from(rail)), 100, |_| {});
        assert!(matches!(half, Arrival::Place { .. }), "{half:?}");
    }
    for rail in 0..2 {
        down(&mut lone, rail, RailFault::TimedOut);
    }
    for rail in 0..2 {
        up(&mut lone, rail);
        let connect = Connect { rail: PEER_RAIL + rail, connection: 2, ..PEER_PARAMETERS };
        assert_eq!(lone.feed_on(rail, Body::Connect(connect), 0, |_| {}), Arrival::Done);
    }
    lone.sent();
    lone
}

/// Their copies, in this order; where each went.
fn copies(lone: &mut Lone<'_>, order: [u32; 2]) -> [Vec<Seg>; 2] {
    let mut places = [vec![], vec![]];
    for psn in order {
        let again = lone.feed_on(0, eager(10 + u64::from(psn)), 100, |common| common.psn = psn);
        let Arrival::Place { memory, .. } = again else { panic!("no place: {again:?}") };
        places[psn as usize] = lone.endpoint.segments(memory).collect();
        lone.place(again);
    }
    assert_eq!(lone.endpoint.t.channels.at(0).replay.aborted_placements, 0, "the short way may open again");
    places
}

/// F-6: each copy goes where the first one was to go.
#[test]
fn each_copy_has_its_own_place() {
    for order in [[0, 1], [1, 0]] {
        let mut region = Region::of(&small());
        let mut lone = half_placed(&mut region, |lone| (1..=2).for_each(|cookie| lone.recv(cookie, 100)));
        let places = copies(&mut lone, order);
        assert_eq!(places, [seg(5000, 100).to_vec(), seg(10_000, 100).to_vec()]);
        let done = lone.completed();
        let immediate = |cookie| done[&cookie].map(|done| done.immediate);
        assert_eq!([immediate(1), immediate(2)], [Ok(Some(10)), Ok(Some(11))]);
        let usage = lone.endpoint.usage();
        assert_eq!((usage.messages.used, usage.blocks.used, usage.operations.used), (0, 0, 0));
    }
}

/// F-6: without a receive, too: in the blocks that they had.
#[test]
fn each_copy_has_its_own_blocks() {
    for order in [[0, 1], [1, 0]] {
        let mut region = Region::of(&small());
        let mut lone = half_placed(&mut region, |_| {});
        copies(&mut lone, order);
        (1..=2).for_each(|cookie| lone.recv(cookie, 100));
        lone.sent();
        let done = lone.completed();
        let immediate = |cookie| done[&cookie].map(|done| done.immediate);
        assert_eq!([immediate(1), immediate(2)], [Ok(Some(10)), Ok(Some(11))]);
        let usage = lone.endpoint.usage();
        assert_eq!((usage.messages.used, usage.blocks.used, usage.operations.used), (0, 0, 0));
    }
}

/// F-6: in a multi-receive, where both are in the same buffer.
#[test]
fn each_copy_has_its_own_place_in_a_multi_receive() {
    for order in [[0, 1], [1, 0]] {
        let mut region = Region::of(&small());
        let receive = |lone: &mut Lone<'_>| {
            let into = seg(0, 1000);
            let recv = RecvRequest { multi: Some(100), ..RecvRequest::new(Selector::ANY_UNTAGGED, &into) };
            lone.endpoint.recv(Time(0), &recv).unwrap();
        };
        let mut lone = half_placed(&mut region, receive);
        let places = copies(&mut lone, order);
        assert_eq!(places, [seg(0, 100).to_vec(), seg(100, 100).to_vec()]);
        let mut got = vec![];
        while let Some(event) = lone.endpoint.poll_event() {
            if let Event::Completed(Completion { result: Ok(done), index, .. }) = event {
                got.push((index, done.offset, done.immediate));
            }
        }
        got.sort_unstable();
        assert_eq!(got, [(0, 0, Some(10)), (1, 100, Some(11))]);
    }
}

/// F-6: a message completed by its copy is received as any other, by the express path too.
#[test]
fn placement_completed_by_a_copy_is_received_by_express() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, SHM]);
    let half = lone.feed(eager(10), 50);
    assert!(matches!(half, Arrival::Place { .. }), "{half:?}");
    down(&mut lone, 0, RailFault::TimedOut);
    let into = seg(0, 100);
    let recv = RecvRequest::new(Selector::ANY_UNTAGGED, &into);
    assert_eq!(lone.endpoint.recv_waiting(&recv), None, "it is not here");
    up(&mut lone, 0);
    let connect = Connect { rail: PEER_RAIL, connection: 2, ..PEER_PARAMETERS };
    assert_eq!(lone.feed(Body::Connect(connect), 0), Arrival::Done);
    let again = lone.feed_on(1, eager(10), 50, |common| common.psn = 0);
    lone.place(again);
    assert_eq!(lone.endpoint.recv_waiting(&recv).map(|received| received.from.len), Some(50));
}
