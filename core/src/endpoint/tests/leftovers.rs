//! State left by a dead connection: keys, registrations, retry epochs, half of a payload, acknowledgments.
//! Each belongs to one rail, one peer and one epoch only.

use super::aggregates::aggregating;
use super::lone::{Lone, PEER_PARAMETERS};
use super::recovery::{connect, cts, down, fence, put_over_both, region, up};
use super::*;
use crate::wire::{Body, Common, Connect, Cts, Fence, Fin, MessageHead, RemoteKey, Repr, Resume, Rts};

fn eager(immediate: u64) -> Body {
    Body::Eager(MessageHead { immediate: Some(immediate), ..MessageHead::default() })
}

fn rts(bytes: u64) -> Body {
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    Body::Rts(Rts { head, message_bytes: bytes, ..Rts::default() })
}

fn resumes(packets: &[Repr]) -> Vec<u16> {
    let epoch = |packet: &Repr| match packet.body {
        Body::Resume(Resume { epoch, .. }) => Some(epoch),
        _ => None,
    };
    packets.iter().filter_map(epoch).collect()
}

/// The CTS among some packets.
fn answers(packets: &[Repr]) -> Vec<Cts> {
    let cts = |packet: &Repr| match &packet.body {
        Body::Cts(cts) => Some(cts.clone()),
        _ => None,
    };
    packets.iter().filter_map(cts).collect()
}

/// F-5, W-11: an aggregate is replayed as the same aggregate, with all its messages.
#[test]
fn aggregate_is_retransmitted_whole() {
    let config = aggregating();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    (0..3).for_each(|n| lone.send(n, 10));
    let first = lone.sent_one();
    assert_eq!(first.body, Body::Aggregate { count: 3 });
    down(&mut lone, 0, RailFault::TimedOut);
    up(&mut lone, 0);
    lone.feed(connect(0, 2), 0);
    let again: Vec<Repr> = lone.sent().into_iter().filter(|packet| packet.body.lane().is_some()).collect();
    let [again] = &again[..] else { panic!("{again:?}") };
    assert_eq!((&again.body, again.common.psn), (&first.body, first.common.psn));
    assert_eq!(again.common.payload_bytes, first.common.payload_bytes);
}

/// F-7, X-10: a message without any write when its rail dies is not written with the old keys.
#[test]
fn a_part_that_was_not_begun_needs_new_keys() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[RailFacts { posts_max: 2, ..PUT }, TCP]);
    let operation = put_over_both(&mut lone);
    lone.stuck = 0b1;
    lone.send(2, 8);
    assert_eq!((lone.sent().len(), lone.rails.last()), (1, Some(&RailId(0))));
    lone.feed_on(1, cts(operation, 0, &[0]), 0, |_| {});
    lone.sent();
    assert_eq!(lone.transfers, 0, "there is no room");
    // A key names 16 bits of its connection's number: this one looks like it.
    down(&mut lone, 0, RailFault::TimedOut);
    up(&mut lone, 0);
    lone.feed(connect(0, 1 + (1 << 16)), 0);
    lone.stuck = 0;
    let sent = lone.sent();
    assert_eq!((lone.transfers, resumes(&sent)), (0, vec![1]), "new keys are requested: {sent:?}");
}

/// V-12: registrations of a device that was reset are not sent to peers any more, and not released on its
/// successor: those in use, and those that are reported late.
#[test]
fn a_device_that_was_reset_gets_no_registration_back() {
    let reset = |lone: &mut Lone<'_>, rail| {
        lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Reset { rail: RailId(rail) });
    };
    // Of a receive: the rail with the key is reset, or the other one.
    for of in 0..2 {
        let mut own = region();
        let mut lone = Lone::connected(&mut own, &small(), &[PUT, TCP]);
        lone.recv(1, 3000);
        lone.feed(rts(3000), 0);
        let first = answers(&lone.sent());
        assert_eq!((first.len(), first[0].keys.len()), (1, 1));
        reset(&mut lone, of);
        let fin = Fin { operation: first[0].target, count: 1, placed_bytes: 3000, want_placed: true, ..Fin::default() };
        lone.feed(Body::Fin(fin), 0);
        lone.sent();
        assert!(lone.completed()[&1].is_ok());
        assert_eq!(lone.given_back.len(), usize::from(of == 1), "{:?}", lone.given_back);
    }
    // The CTS that is sent again names the remaining keys.
    let mut own = region();
    let mut lone = Lone::connected(&mut own, &small(), &[PUT, TCP]);
    lone.recv(1, 3000);
    lone.feed_on(1, rts(3000), 0, |_| {});
    assert_eq!(answers(&lone.sent())[0].keys.len(), 1);
    reset(&mut lone, 0);
    for rail in [1, 0] {
        down(&mut lone, rail, RailFault::TimedOut);
    }
    up(&mut lone, 1);
    lone.feed_on(1, connect(1, 2), 0, |_| {});
    lone.feed_on(1, Body::Fence(fence(0, true)), 0, |_| {});
    let again = answers(&lone.sent());
    assert!(again.iter().all(|cts| cts.keys.is_empty()) && !again.is_empty(), "{again:?}");
    // Late: the request is over when the rail has the registration.
    for of in [None, Some(0), Some(1)] {
        let mut own = region();
        let mut lone = Lone::connected(&mut own, &small(), &[PUT, PUT]);
        lone.slow = true;
        lone.recv(1, 3000);
        lone.feed(rts(3000), 0);
        lone.sent();
        let requested = std::mem::take(&mut lone.requested);
        assert!(!requested.is_empty());
        let event = RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault: RailFault::Corrupt };
        lone.endpoint.handle_rail_event(Time(0), event);
        assert!(lone.completed()[&1].is_err(), "its peer is lost");
        for &(operation, rail) in &requested {
            let key = RemoteKey { rail: 0, connection: 0, key: 50 + u64::from(rail.0), address: 2 };
            lone.endpoint.handle_registered(operation, rail, Ok(key));
        }
        of.iter().for_each(|&rail| reset(&mut lone, rail));
        lone.sent();
        let kept = requested.iter().map(|&(_, rail)| rail).filter(|rail| Some(rail.0) != of);
        let mut given_back: Vec<RailId> = lone.given_back.iter().map(|&(rail, _)| rail).collect();
        given_back.sort_unstable();
        let mut kept: Vec<RailId> = kept.collect();
        kept.sort_unstable();
        assert_eq!(given_back, kept, "reset {of:?}");
    }
}

/// F-7: an epoch is requested once every connection that carried unconfirmed writes is dead at both ends.
#[test]
fn epoch_is_requested_after_all_fences() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT, TCP]);
    let operation = put_over_both(&mut lone);
    // Both are writing, and no FIN was sent that could be lost.
    lone.busy = true;
    lone.feed_on(2, cts(operation, 0, &[0, 1]), 0, |_| {});
    let sent = lone.sent();
    assert!(lone.transfers >= 2 && sent.is_empty(), "{sent:?}");
    lone.busy = false;
    for rail in [0, 1] {
        down(&mut lone, rail, RailFault::TimedOut);
    }
    lone.sent();
    lone.feed_on(2, Body::Fence(fence(1, true)), 0, |_| {});
    assert_eq!(resumes(&lone.sent()), [], "writes over rail 0 may still land");
    lone.feed_on(2, Body::Fence(fence(0, true)), 0, |_| {});
    assert_eq!(resumes(&lone.sent()), [1]);
}

/// F-7: an epoch requested while the memory of the last one is still being registered counts: the following
/// CTS is of the newest.
#[test]
fn a_round_may_overtake_the_keys_of_the_one_before() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT, TCP]);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    lone.slow = true;
    lone.recv(1, 3000);
    lone.feed(rts(3000), 0);
    lone.sent();
    let register = |lone: &mut Lone<'_>| {
        for (operation, rail) in std::mem::take(&mut lone.requested) {
            let key = RemoteKey { rail: 0, connection: 0, key: 5, address: 2 };
            lone.endpoint.handle_registered(operation, rail, Ok(key));
        }
        answers(&lone.sent())
    };
    let first = register(&mut lone);
    let [Cts { target, epoch: 0, ref keys, .. }] = first[..] else { panic!("{first:?}") };
    assert_eq!(keys.len(), 1);
    // The rail with a key dies, and the one without is back: a registration is requested from it.
    up(&mut lone, 1);
    lone.feed_on(1, connect(1, 2), 0, |_| {});
    down(&mut lone, 0, RailFault::TimedOut);
    lone.sent();
    lone.feed_on(2, Body::Resume(Resume { target, epoch: 1 }), 0, |_| {});
    assert_eq!(answers(&lone.sent()), []);
    assert_eq!(lone.requested.iter().map(|&(_, rail)| rail.0).collect::<Vec<_>>(), [1]);
    lone.feed_on(2, Body::Resume(Resume { target, epoch: 2 }), 0, |_| {});
    let rounds: Vec<u16> = register(&mut lone).iter().map(|cts| cts.epoch).collect();
    assert_eq!(rounds, [2]);
}

/// F-6: packets of two peers have the same number, and both are half placed when their rails die: the copy of
/// each goes to its own destination.
#[test]
fn a_copy_is_that_of_its_own_peer() {
    let (bytes_of, immediate_of) = ([0, 100, 50], [0, 11, 22]);
    for posted in [false, true] {
        let mut own = region();
        let mut lone = Lone::connected(&mut own, &small(), &[TCP]);
        lone.endpoint.add_peer(PeerId(2), 1).unwrap();
        let feed = |lone: &mut Lone<'_>, peer: u32, body: Body, payload_bytes: u32| {
            let common =
                Common { source: peer, message_limit: 32, block_limit: 64, payload_bytes, ..Common::default() };
            let header = Repr { common, body }.emit_vec().unwrap();
            lone.endpoint.handle_arrival(Time(0), PeerId(peer), RailId(0), &header)
        };
        let event = |lone: &mut Lone<'_>, event| lone.endpoint.handle_rail_event(Time(0), event);
        event(&mut lone, RailEvent::Up { peer: PeerId(2), rail: RailId(0) });
        assert_eq!(feed(&mut lone, 2, Body::Connect(PEER_PARAMETERS), 0), Arrival::Done);
        lone.sent();
        let recv = |lone: &mut Lone<'_>, peer: u32| {
            let from = Selector { source: Some(PeerId(peer)), tag: TagMatch::Untagged };
            let into = seg(1000 * u64::from(peer), 100);
            let recv = RecvRequest { cookie: Cookie(peer.into()), ..RecvRequest::new(from, &into) };
            lone.endpoint.recv(Time(0), &recv).unwrap();
        };
        if posted {
            (1..=2).for_each(|peer| recv(&mut lone, peer));
        }
        for peer in 1..=2 {
            let body = eager(immediate_of[peer as usize]);
            let half = feed(&mut lone, peer, body, bytes_of[peer as usize]);
            assert!(matches!(half, Arrival::Place { .. }), "{half:?}");
        }
        for peer in [PeerId(1), PeerId(2)] {
            event(&mut lone, RailEvent::Down { peer, rail: RailId(0), fault: RailFault::TimedOut });
            event(&mut lone, RailEvent::Up { peer, rail: RailId(0) });
            feed(&mut lone, peer.0, Body::Connect(Connect { connection: 2, ..PEER_PARAMETERS }), 0);
        }
        lone.sent();
        // The later one's copy arrives first.
        for peer in [2, 1] {
            let again = feed(&mut lone, peer, eager(immediate_of[peer as usize]), bytes_of[peer as usize]);
            lone.place(again);
        }
        if !posted {
            (1..=2).for_each(|peer| recv(&mut lone, peer));
        }
        lone.sent();
        let done = lone.completed();
        for peer in 1..=2u64 {
            let of = done[&peer].unwrap();
            let expected = (bytes_of[peer as usize].into(), Some(immediate_of[peer as usize]));
            assert_eq!((of.bytes, of.immediate), expected, "posted: {posted}, peer {peer}");
        }
    }
}

/// C-4, A-1: an acknowledgment on a connection that the peer ended is sent again over another one, though
/// this side has no probe and no answer pending.
#[test]
fn acknowledgments_on_an_ended_connection_are_sent_again() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.feed_on(1, eager(1), 0, |common| common.ack_now = true);
    lone.rails.clear();
    let acked = lone.sent_one();
    assert_eq!(acked.common.ack_ordered, 1);
    let [by] = lone.rails[..] else { panic!("{:?}", lone.rails) };
    let other = 1 - by.0;
    lone.feed_on(other, Body::Fence(fence(by.0, true)), 0, |_| {});
    lone.rails.clear();
    let again = lone.sent();
    assert!(again.iter().any(|packet| packet.common.ack_ordered == 1), "{again:?}");
    assert!(lone.rails.iter().all(|rail| rail.0 == other));
}

/// G-1: an aborted connection, whose redial is not due yet, carries no CONNECT.
#[test]
fn nothing_is_sent_on_an_aborted_connection() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    for connection in 1..4 {
        let ended = Fence { connection, peer_connection: connection, ..fence(1, false) };
        lone.feed(Body::Fence(ended), 0);
        lone.rails.clear();
        let sent = lone.sent();
        assert!(sent.iter().all(|packet| matches!(packet.body, Body::Fence(_))), "{sent:?}");
        assert!(lone.rails.iter().all(|rail| rail.0 == 0), "{connection}: {:?}", lone.rails);
        up(&mut lone, 1);
        lone.feed_on(1, connect(1, connection + 1), 0, |_| {});
        lone.sent();
    }
}

/// packets beyond the cumulative number are reported by lane, counted from the number behind the first
/// missing one.
#[test]
fn out_of_order_packets_are_reported_by_lane() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    let beyond = |lone: &mut Lone<'_>| {
        let sent = lone.sent();
        let acks: Vec<(u64, u64)> = sent
            .iter()
            .filter_map(|packet| match packet.body {
                Body::Ack(ack) => Some((ack.ordered_beyond, ack.unordered_beyond)),
                _ => None,
            })
            .collect();
        assert_eq!(acks.len(), 1, "{sent:?}");
        acks[0]
    };
    for (psn, expected) in [(1, 0b1), (4, 0b1001), (2, 0b1011)] {
        lone.feed_on(0, eager(9), 0, |common| (common.psn, common.ack_now) = (psn, true));
        assert_eq!(beyond(&mut lone), (expected, 0));
    }
    let fin = |lone: &mut Lone<'_>, psn| {
        let fin = Fin { operation: 99, count: 1, ..Fin::default() };
        lone.feed_on(0, Body::Fin(fin), 0, |common| (common.psn, common.ack_now) = (psn, true));
    };
    for (psn, expected) in [(3, 0b100), (1, 0b101)] {
        fin(&mut lone, psn);
        assert_eq!(beyond(&mut lone), (0b1011, expected));
    }
    lone.feed_on(0, eager(9), 0, |common| (common.psn, common.ack_now) = (0, true));
    assert_eq!(beyond(&mut lone), (0b1, 0b101), "3 is missing");
}
