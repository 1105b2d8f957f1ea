//! Rules that only rare circumstances show: a batch of actions that is full in the middle, a request that ends while it
//! waits, a rail that is reported back without having been away. Each test fails if one line is not as it is.

use super::lone::Lone;
use super::parcels::gathering;
use super::recovery::{down, region};
use super::*;
use crate::wire::{Body, MessageHead, RemoteKey, Rts};

fn eager() -> Body {
    Body::Eager(MessageHead { operation: 77, ..MessageHead::default() })
}

/// G-7: BYE goes over every rail, though a batch of actions has not room for all of them, and though no rail is through
/// with any.
#[test]
fn more_goodbyes_than_a_batch_holds_all_go_out() {
    const RAILS: u8 = 20;
    let config = Config { rails_max: RAILS, ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP; RAILS as usize]);
    lone.busy = true;
    lone.rails.clear();
    lone.endpoint.close_peer(Time(0), PeerId(1)).unwrap();
    let sent = lone.sent();
    assert!(sent.iter().all(|packet| packet.body == Body::Bye), "{sent:?}");
    let rails: Vec<u8> = lone.rails.iter().map(|rail| rail.0).collect();
    assert_eq!(rails, (0..RAILS).collect::<Vec<_>>());
}

/// M-9: a multi-receive with less room left than it must have takes no message more, though one that waits would fit; and
/// it can't be cancelled any more.
#[test]
fn a_closed_multi_receive_takes_nothing_and_can_not_be_cancelled() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
    for bytes in [60, 10] {
        let arrival = lone.feed(eager(), bytes);
        lone.place(arrival);
    }
    let recv = Recv { segments: &seg(0, 100), multi: Some(50), cookie: Cookie(1), ..Recv::default() };
    let id = lone.endpoint.recv(Time(0), &recv).unwrap();
    assert_eq!(lone.endpoint.cancel(Time(0), id), Err(CancelError::TooLate));
    lone.sent();
    let done = lone.completed()[&1].unwrap();
    assert_eq!((done.bytes, done.released), (60, true));
    assert_eq!(lone.endpoint.usage().unexpected.used, 1, "the second one waits");
}

/// W-11: what stands behind a message that is being registered is not packed before it.
#[test]
fn nothing_is_packed_past_a_message_that_can_not_be() {
    let config = gathering();
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    (0..3).for_each(|n| lone.send(n, 10));
    let channel = lone.endpoint.t.channel_of(PeerId(1)).unwrap();
    let front = |lone: &mut Lone<'_>| lone.endpoint.front(channel, RailId(0), 1000, &heapless::Vec::new()).len();
    assert_eq!(front(&mut lone), 3);
    let first = lone.endpoint.t.channels.at(channel).ordered.head();
    let second = lone.endpoint.t.ops.at(first).queue.next();
    lone.endpoint.t.ops.at_mut(second).phase = super::super::op::Phase::Registering;
    assert_eq!(front(&mut lone), 1);
}

/// F-8: a rail that is reported back while it stands has not used up that a report is believed.
#[test]
fn a_rail_that_was_not_away_keeps_its_word() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    let back = |lone: &mut Lone<'_>| {
        lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Back { rail: RailId(1) });
        lone.sent();
    };
    let state = |lone: &Lone<'_>| lone.endpoint.rail_health(PeerId(1), RailId(1)).unwrap().state;
    lone.now = 1;
    back(&mut lone);
    // The first is dialled at once (it may have been a blink), and fails.
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    assert!(matches!(state(&lone), RailState::Down { .. }), "{:?}", state(&lone));
    back(&mut lone);
    assert_eq!(state(&lone), RailState::Opening);
}

/// keys of the sender's memory that no read is going to use are given up at once: the receive has no room, or
/// its bytes come as packets.
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
    let recv = Recv { from: tagged(None, 7), segments: &seg(0, 8), ..Recv::default() };
    assert!(!lone.endpoint.uses_region(HEAP));
    let id = lone.endpoint.recv_short(&recv).expect("nothing is special about it");
    assert!(lone.endpoint.uses_region(HEAP) && !lone.endpoint.uses_region(RegionId(1)));
    lone.endpoint.cancel(Time(0), id).unwrap();
    assert!(!lone.endpoint.uses_region(HEAP));
}
