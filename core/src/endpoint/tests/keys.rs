//! Keys of a peer's memory, and the connections for which they are valid, packet by packet (F-7).

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::{cts, down, fence, fins, put_over_both};
use super::*;
use crate::wire::{Body, Connect, Data, MessageHead, RemoteKey, Repr, Resume, Rts};

/// F-7: keys that arrive late over another rail, for a connection that their rail has replaced since, are
/// invalid: the peer's device may have given them to other memory. So are those of an RTS.
#[test]
fn keys_of_a_replaced_connection_are_invalid() {
    for (renewed, writes) in [(false, true), (true, false)] {
        let mut region = Region::of(&small());
        let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT]);
        let operation = put_over_both(&mut lone);
        if renewed {
            down(&mut lone, 1, RailFault::Device { code: 1 });
            lone.sent();
            lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(1) });
            let peer_parameters = Connect { rail: PEER_RAIL + 1, connection: 2, ..PEER_PARAMETERS };
            lone.feed_on(1, Body::Connect(peer_parameters), 0, |_| {});
            lone.sent();
        }
        let before = lone.transfers;
        lone.feed(cts(operation, 0, &[1]), 0);
        let sent = lone.sent();
        assert_eq!(lone.transfers > before, writes);
        let is_data = |packet: &Repr| matches!(packet.body, Body::Data(_));
        assert_eq!(sent.iter().any(is_data), !writes, "{sent:?}");
    }
    // The keys of an RTS: read, or requested by CTS.
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

/// F-7: if the CTS of a new epoch has no valid key for a rail that is to continue its part, another rail
/// takes the part.
#[test]
fn a_part_whose_key_is_old_finds_another_rail() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT]);
    let operation = put_over_both(&mut lone);
    lone.feed(cts(operation, 0, &[0, 1]), 0);
    lone.sent();
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed_on(0, Body::Fence(fence(1, true)), 0, |_| {});
    assert!(lone.sent().iter().any(|packet| packet.body == Body::Resume(Resume { target: 88, epoch: 1 })));
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(1) });
    lone.feed_on(1, Body::Connect(Connect { rail: PEER_RAIL + 1, connection: 2, ..PEER_PARAMETERS }), 0, |_| {});
    lone.sent();
    let writes = lone.transfers;
    lone.rails.clear();
    lone.feed(cts(operation, 1, &[0, 1]), 0);
    let sent = lone.sent();
    assert_eq!(fins(&sent), [(1, 2), (1, 2)]);
    assert!(lone.transfers > writes && lone.rails.iter().all(|rail| rail.0 == 0), "{:?}", lone.rails);
}

/// The peer announces a message of 3000 bytes with keys for this many of its rails; the reads are posted and
/// incomplete.
fn reading<'m>(region: &'m mut Region, rails: &[RailFacts], keys: u8) -> Lone<'m> {
    let mut lone = Lone::connected(region, &small(), rails);
    lone.recv(1, 3000);
    let key = |rail| RemoteKey { rail: PEER_RAIL + rail, connection: 1, key: 7, address: 0 };
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.busy = true;
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, keys: (0..keys).map(key).collect() }), 0);
    assert!(lone.sent().is_empty() && !lone.held.is_empty());
    lone
}

/// The endpoint's answer after its reads have failed on an invalid key.
fn after_no_access(lone: &mut Lone<'_>) -> Vec<Repr> {
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::NoAccess);
    }
    lone.busy = false;
    lone.sent()
}

/// a message with an invalid key is sent in another way, and the key is not tried again.
#[test]
fn message_with_an_invalid_key_is_sent_by_put_or_data() {
    let mut region = Region::of(&small());
    let mut lone = reading(&mut region, &[GET], 1);
    let reads = lone.transfers;
    let sent = after_no_access(&mut lone);
    let ctses = |sent: &[Repr]| -> Vec<u64> {
        let cts = |packet: &Repr| if let Body::Cts(cts) = &packet.body { Some(cts.target) } else { None };
        sent.iter().filter_map(cts).collect()
    };
    let [target] = ctses(&sent)[..] else { panic!("one CTS: {sent:?}") };
    assert_eq!((sent.len(), lone.transfers), (1, reads), "nothing is read again");
    for offset in [0, 1000, 2000] {
        let arrival = lone.feed(Body::Data(Data { operation: target, offset }), 1000);
        lone.place(arrival);
    }
    assert!(lone.sent().iter().any(|packet| matches!(&packet.body, Body::Fin(fin) if fin.placed_bytes == 3000)));
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(3000));
    assert_eq!(lone.endpoint.usage().key_sets.used, 0);
}

/// while there is a valid key, its rail reads what others could not.
#[test]
fn second_key_is_used_when_the_first_is_invalid() {
    let mut region = Region::of(&small());
    let mut lone = reading(&mut region, &[GET, GET], 2);
    let first = *lone.rails.last().unwrap();
    lone.rails.clear();
    let sent = after_no_access(&mut lone);
    assert_eq!(lone.rails.first(), Some(&RailId(1 - first.0)), "the other rail reads");
    assert!(sent.iter().any(|packet| matches!(&packet.body, Body::Fin(fin) if fin.placed_bytes == 3000)), "{sent:?}");
    assert!(!sent.iter().any(|packet| matches!(packet.body, Body::Cts(_))));
    assert_eq!(lone.completed()[&1].map(|done| done.bytes), Ok(3000));
}

/// A pair without remote access neither reads nor offers keys; the next connection may have access.
#[test]
fn without_remote_access_a_rail_carries_packets_only() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[GET]);
    let denied = RailEvent::NoRemoteAccess { peer: PeerId(1), rail: RailId(0) };
    lone.endpoint.handle_rail_event(Time(0), denied);
    for event in [(2, 0), (1, 9)] {
        let (peer, rail) = (PeerId(event.0), RailId(event.1));
        lone.endpoint.handle_rail_event(Time(0), RailEvent::NoRemoteAccess { peer, rail });
    }
    lone.recv(1, 3000);
    let key = RemoteKey { rail: PEER_RAIL, connection: 1, key: 7, address: 0 };
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, keys: [key].into_iter().collect() }), 0);
    let sent = lone.sent();
    assert!(matches!(&sent[..], [Repr { body: Body::Cts(cts), .. }] if cts.keys.is_empty()), "{sent:?}");
    lone.send(2, 3000);
    let sent = lone.sent();
    assert!(matches!(&sent[..], [Repr { body: Body::Rts(rts), .. }] if rts.keys.is_empty()), "{sent:?}");
    assert_eq!(lone.transfers, 0);
}

/// Access is denied while messages are being read: posted reads end as the rail reports, and the rest arrives
/// as data.
#[test]
fn access_denied_in_mid_message_is_made_good_by_data() {
    let mut region = Region::of(&small());
    let mut lone = reading(&mut region, &[GET], 1);
    let denied = RailEvent::NoRemoteAccess { peer: PeerId(1), rail: RailId(0) };
    lone.endpoint.handle_rail_event(Time(0), denied);
    let reads = lone.transfers;
    let sent = after_no_access(&mut lone);
    assert!(sent.iter().any(|packet| matches!(packet.body, Body::Cts(_))), "{sent:?}");
    assert_eq!(lone.transfers, reads);
}

/// A message of 40,000 bytes is being read over two rails: the reads by rail.
fn reading_over_both<'m>(region: &'m mut Region, rail: RailFacts) -> (Lone<'m>, [Vec<PostId>; 2]) {
    let mut lone = Lone::connected(region, &small(), &[rail, rail]);
    lone.endpoint.set_policy(MessageClass::Large, Policy::named("even").unwrap());
    lone.recv(1, 40_000);
    let key = |rail| RemoteKey { rail: PEER_RAIL + rail, connection: 1, key: 7, address: 0 };
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.busy = true;
    (lone.rails, lone.posts) = (vec![], vec![]);
    lone.feed(Body::Rts(Rts { head, message_bytes: 40_000, keys: (0..2).map(key).collect() }), 0);
    assert!(lone.sent().is_empty());
    let mut reads = [vec![], vec![]];
    for (rail, id) in lone.rails.iter().zip(core::mem::take(&mut lone.held)) {
        reads[usize::from(rail.0)].push(id);
    }
    assert!(reads.iter().all(|reads| !reads.is_empty()), "both rails read");
    (lone, reads)
}

/// F-5: a read whose rail has died, without a key for another rail, waits for the reads still in progress
/// into the same buffer; then the whole message is requested.
#[test]
fn lost_read_without_a_key_waits_for_reads_in_progress() {
    let mut region = Region::of(&small());
    let (mut lone, [in_flight, _]) = reading_over_both(&mut region, RailFacts { posts_max: 8, ..GET });
    assert_eq!(lone.posts.iter().map(bytes).sum::<u64>(), 40_000, "all of it is being read");
    let denied = RailEvent::NoRemoteAccess { peer: PeerId(1), rail: RailId(0) };
    lone.endpoint.handle_rail_event(Time(0), denied);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.busy = false;
    lone.feed_on(0, Body::Fence(fence(1, true)), 0, |_| {});
    let is_cts = |packet: &Repr| matches!(packet.body, Body::Cts(_));
    for id in in_flight {
        assert!(!lone.sent().iter().any(is_cts), "rail 0 may still write into the buffer");
        lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    }
    assert!(lone.sent().iter().any(is_cts));
}

/// F-5: a read whose rail has died waits for room on the rail that can repeat it.
#[test]
fn lost_read_waits_for_room_on_another_rail() {
    let mut region = Region::of(&small());
    // One post of a rail is kept for frames.
    let (mut lone, [in_flight, lost]) = reading_over_both(&mut region, RailFacts { posts_max: 2, ..GET });
    assert_eq!((in_flight.len(), lost.len()), (1, 1));
    let reads = lone.transfers;
    down(&mut lone, 1, RailFault::TimedOut);
    lone.busy = false;
    lone.feed_on(0, Body::Fence(fence(1, true)), 0, |_| {});
    lone.sent();
    assert_eq!(lone.transfers, reads, "rail 0 is full");
    lone.endpoint.handle_completion(Time(0), in_flight[0], PostStatus::Done);
    let sent = lone.sent();
    let is_through = |packet: &Repr| matches!(&packet.body, Body::Fin(fin) if fin.placed_bytes == 40_000);
    assert!(sent.iter().any(is_through), "{sent:?}");
    // The lost bytes are read again, and all others once.
    let read: u64 = lone.posts.iter().filter(|(_, kind, _)| matches!(kind, PostKind::Read { .. })).map(bytes).sum();
    assert_eq!(read, 40_000 + 5_000);
}

fn bytes((_, _, memory): &(RailId, PostKind, Vec<Seg>)) -> u64 {
    memory.iter().map(|seg| seg.len).sum()
}

/// Access is denied while a message is being written: writing stops, and all of it is sent as data.
#[test]
fn access_denied_in_mid_write_is_made_good_by_data() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[RailFacts { posts_max: 2, ..PUT }]);
    let operation = put_over_both(&mut lone);
    lone.busy = true;
    lone.feed(cts(operation, 0, &[0]), 0);
    assert!(lone.sent().is_empty());
    let writes = lone.transfers;
    assert!(writes > 0);
    let denied = RailEvent::NoRemoteAccess { peer: PeerId(1), rail: RailId(0) };
    lone.endpoint.handle_rail_event(Time(0), denied);
    lone.busy = false;
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    }
    assert!(matches!(lone.sent_one().body, Body::Resume(Resume { target: 88, epoch: 1 })));
    lone.feed(cts(operation, 1, &[]), 0);
    let bytes: u32 = lone.sent().iter().map(|packet| packet.common.payload_bytes).sum();
    assert_eq!((lone.transfers, bytes), (writes, 40_000));
}

/// A read does not close the express path; one that fails on an invalid key does, until its message is
/// requested in another way.
#[test]
fn read_with_an_invalid_key_closes_the_express_path() {
    let mut region = Region::of(&small());
    let mut lone = reading(&mut region, &[COPY], 1);
    let send = SendRequest { segments: &seg(0, 8), ..SendRequest::new(PeerId(1), &[]) };
    assert!(send_short(&mut lone.endpoint, &send, 8).is_some());
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::NoAccess);
    }
    assert!(send_short(&mut lone.endpoint, &send, 8).is_none());
    // A message that can't use the express path is submitted: the tables must agree with the line.
    lone.send(2, 8);
    lone.busy = false;
    let sent = lone.sent();
    assert!(
        matches!(sent[..], [Repr { body: Body::Cts(_), .. }, _] | [_, Repr { body: Body::Cts(_), .. }]),
        "{sent:?}"
    );
    for packet in &sent {
        let lane = usize::from(packet.body.lane() == Some(crate::wire::Lane::Unordered));
        lone.acks[lane] = packet.common.psn + 1;
    }
    assert_eq!(lone.feed(Body::Credit, 0), Arrival::Done);
    assert!(send_short(&mut lone.endpoint, &send, 8).is_some(), "it is open again");
}
