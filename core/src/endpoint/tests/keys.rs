//! Keys of a peer's memory, and the connections that they are good for, told packet by packet (F-7).

use super::lone::{Lone, PEER_RAIL, TERMS};
use super::recovery::{cts, down, fence, fins, put_over_both};
use super::*;
use crate::wire::{Body, Connect, MessageHead, RemoteKey, Repr, Resume, Rts};

/// F-7: keys that come late over another rail, of a connection that their rail has left for another since, are no keys: the
/// peer's device may have given them to other memory. Nor are those of an RTS.
#[test]
fn late_keys_open_nothing() {
    for (renewed, writes) in [(false, true), (true, false)] {
        let mut region = Region::of(&small());
        let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT]);
        let operation = put_over_both(&mut lone);
        if renewed {
            down(&mut lone, 1, RailFault::Device { code: 1 });
            lone.sent();
            lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(1) });
            let terms = Connect { rail: PEER_RAIL + 1, connection: 2, ..TERMS };
            lone.feed_on(1, Body::Connect(terms), 0, |_| {});
            lone.sent();
        }
        let before = lone.transfers;
        lone.feed(cts(operation, 0, &[1]), 0);
        let sent = lone.sent();
        assert_eq!(lone.transfers > before, writes);
        let is_data = |packet: &Repr| matches!(packet.body, Body::Data(_));
        assert_eq!(sent.iter().any(is_data), !writes, "{sent:?}");
    }
    // The keys of an RTS: read, or asked for by CTS.
    for (connection, reads) in [(1, true), (0, false), (2, false)] {
        let mut region = Region::of(&small());
        let mut lone = Lone::connected(&mut region, &small(), &[GET]);
        lone.recv(1, 3000);
        let key = RemoteKey { rail: PEER_RAIL, connection, key: 7, address: 0 };
        let head = MessageHead { operation: 77, ..MessageHead::default() };
        let keys = [key].into_iter().collect();
        lone.feed(Body::Rts(Rts { head, message_bytes: 3000, keys }), 0);
        let sent = lone.sent();
        assert_eq!(lone.transfers > 0, reads, "{sent:?}");
        assert_eq!(sent.iter().any(|packet| matches!(packet.body, Body::Cts(_))), !reads, "{sent:?}");
    }
}

/// F-7: where the CTS of a new round has no key that is good for a rail that is to go on with its part, another rail takes
/// the part.
#[test]
fn a_part_whose_key_is_old_finds_another_rail() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT]);
    let operation = put_over_both(&mut lone);
    lone.feed(cts(operation, 0, &[0, 1]), 0);
    lone.sent();
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed_on(0, Body::Fence(fence(1, true)), 0, |_| {});
    assert!(lone.sent().iter().any(|packet| packet.body == Body::Resume(Resume { target: 88, round: 1 })));
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(1) });
    lone.feed_on(1, Body::Connect(Connect { rail: PEER_RAIL + 1, connection: 2, ..TERMS }), 0, |_| {});
    lone.sent();
    let writes = lone.transfers;
    lone.rails.clear();
    lone.feed(cts(operation, 1, &[0, 1]), 0);
    let sent = lone.sent();
    assert_eq!(fins(&sent), [(1, 2), (1, 2)]);
    assert!(lone.transfers > writes && lone.rails.iter().all(|rail| rail.0 == 0), "{:?}", lone.rails);
}
