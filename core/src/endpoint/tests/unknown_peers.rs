//! A second peer that names the operations of the first: it has no access to them.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::region;
use super::*;
use crate::wire::{AtomicReply, Body, Common, Connect, Cts, Data, Fin, MessageHead, RemoteKey, Repr, Resume, Rts};

/// A packet of rank 2, which has sent so many unordered ones before.
fn unknown_process(lone: &mut Lone<'_>, psn: u32, body: Body, payload_bytes: u32) -> Arrival {
    let common = Common { source: 2, psn, payload_bytes, message_limit: 32, block_limit: 64, ..Common::default() };
    let header = Repr { common, body }.emit_vec().unwrap();
    lone.endpoint.handle_arrival(Time(lone.now), PeerId(2), RailId(0), &header)
}

/// Ranks 1 and 2 are both connected.
fn with_stranger<'m>(region: &'m mut Region, rails: &[RailFacts]) -> Lone<'m> {
    let mut lone = Lone::connected(region, &small(), rails);
    lone.endpoint.add_peer(PeerId(2), 1).unwrap();
    lone.endpoint.handle_rail_event(Time(0), RailEvent::Up { peer: PeerId(2), rail: RailId(0) });
    unknown_process(&mut lone, 0, Body::Connect(Connect { rail: PEER_RAIL, ..PEER_PARAMETERS }), 0);
    lone.sent();
    while lone.endpoint.poll_event().is_some() {}
    lone
}

/// Feeds a packet of rank 2 and demands that it is dropped, and that nothing follows.
fn is_dropped(lone: &mut Lone<'_>, psn: u32, body: Body, payload_bytes: u32) {
    let before = lone.endpoint.stats().stale_dropped;
    let arrival = unknown_process(lone, psn, body.clone(), payload_bytes);
    assert!(matches!(arrival, Arrival::Done | Arrival::Discard), "{body:?}: {arrival:?}");
    assert_eq!(lone.endpoint.stats().stale_dropped, before + 1, "{body:?}");
    let sent = lone.sent();
    assert!(sent.iter().all(|packet| packet.body.lane().is_none()), "{body:?}: {sent:?}");
    assert_eq!(lone.completed().len(), 0, "{body:?}");
}

fn fin(operation: u64) -> Body {
    Body::Fin(Fin { operation, count: 1, placed_bytes: 3000, ..Fin::default() })
}

/// a send is granted, and ended, by the peer that it is for.
#[test]
fn a_send_is_for_one_peer() {
    let mut region = region();
    let mut lone = with_stranger(&mut region, &[PUT]);
    lone.send(1, 3000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 1;
    let operation = rts.head.operation;
    let key = RemoteKey { rail: PEER_RAIL, connection: 1, key: 7, address: 0 };
    let cts = |epoch, keys: &[RemoteKey]| {
        let keys = keys.iter().copied().collect();
        Body::Cts(Cts { operation, target: 88, granted_bytes: 3000, epoch, keys })
    };
    is_dropped(&mut lone, 0, cts(0, &[]), 0);
    is_dropped(&mut lone, 1, fin(operation), 0);
    lone.feed(cts(0, &[key]), 0);
    lone.sent();
    let writes = lone.transfers;
    assert!(writes > 0);
    // Being written now.
    is_dropped(&mut lone, 2, cts(1, &[key]), 0);
    is_dropped(&mut lone, 3, fin(operation), 0);
    assert_eq!(lone.transfers, writes);
    lone.acks[1] = 1;
    lone.feed(fin(operation), 0);
    assert!(lone.completed()[&1].is_ok());
}

/// X-9, F-7: a receive gets its bytes, its FIN and its rounds from the peer whose message it has.
#[test]
fn a_receive_is_of_one_peer() {
    for (rails, is_written) in [([PUT], true), ([TCP], false)] {
        let mut region = region();
        let mut lone = with_stranger(&mut region, &rails);
        lone.recv(1, 3000);
        let head = MessageHead { operation: 77, ..MessageHead::default() };
        lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
        let sent = lone.sent_one();
        let Body::Cts(Cts { target, .. }) = sent.body else { panic!("{sent:?}") };
        lone.acks[1] = 1;
        is_dropped(&mut lone, 0, Body::Data(Data { operation: target, offset: 0 }), 100);
        is_dropped(&mut lone, 1, fin(target), 0);
        is_dropped(&mut lone, 2, Body::Resume(Resume { target, epoch: 1 }), 0);
        if is_written {
            lone.feed(fin(target), 0);
        } else {
            let arrival = lone.feed(Body::Data(Data { operation: target, offset: 0 }), 3000);
            lone.place(arrival);
        }
        lone.sent();
        assert!(lone.completed()[&1].is_ok());
    }
}

/// only the target peer answers gets and atomics.
#[test]
fn an_answer_is_of_one_peer() {
    let mut region = region();
    let mut lone = with_stranger(&mut region, &[TCP]);
    let at = Remote { peer: PeerId(1), window: 3, offset: 8 };
    lone.endpoint
        .atomic(
            Time(0),
            &AtomicRequest { cookie: Cookie(1), ..AtomicRequest::new(at, AtomicKind::Add, AtomicType::U64, 5) },
        )
        .unwrap();
    let Body::Atomic(atomic) = lone.sent_one().body else { panic!("no atomic") };
    let reply = Body::AtomicReply(AtomicReply { operation: atomic.operation, old: 3 });
    is_dropped(&mut lone, 0, reply.clone(), 0);
    is_dropped(&mut lone, 1, fin(atomic.operation), 0);
    lone.acks[1] = 1;
    lone.feed(reply, 0);
    assert!(lone.completed()[&1].is_ok());
    lone.endpoint.get(Time(0), &GetRequest { cookie: Cookie(2), ..GetRequest::new(at, &seg(0, 100)) }).unwrap();
    let get = lone.sent().into_iter().find_map(|packet| match packet.body {
        Body::Get(get) => Some(get.operation),
        _ => None,
    });
    let operation = get.expect("a get");
    is_dropped(&mut lone, 2, Body::Data(Data { operation, offset: 0 }), 100);
    lone.acks[1] = 2;
    let arrival = lone.feed(Body::Data(Data { operation, offset: 0 }), 100);
    lone.place(arrival);
    assert!(lone.completed()[&2].is_ok());
}

/// a peer that grants more than there is gets what there is, and one that reports more placed bytes
/// than that changes nothing either.
#[test]
fn no_peer_makes_a_message_longer() {
    for bytes in [100, 3000] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP]);
        let segments = seg(0, bytes);
        let send = SendRequest { level: Level::Placed, cookie: Cookie(1), ..SendRequest::new(PeerId(1), &segments) };
        lone.endpoint.send(Time(0), &send).unwrap();
        let operation = match lone.sent_one().body {
            Body::Rts(rts) => {
                let operation = rts.head.operation;
                lone.posts.clear();
                lone.feed(Body::Cts(Cts { operation, target: 88, granted_bytes: 1 << 40, ..Cts::default() }), 0);
                let data = lone.sent();
                let sent: u64 = data.iter().map(|packet| u64::from(packet.common.payload_bytes)).sum();
                assert_eq!(sent, bytes);
                assert_eq!(
                    lone.posts.iter().flat_map(|(.., memory)| memory).map(|piece| piece.len).sum::<u64>(),
                    bytes
                );
                lone.acks = [1, data.len() as u32];
                operation
            }
            Body::Eager(head) => {
                lone.acks = [1, 0];
                head.operation
            }
            other => panic!("{other:?}"),
        };
        lone.feed(Body::Fin(Fin { operation, count: 1, placed_bytes: 1 << 40, ..Fin::default() }), 0);
        assert_eq!(lone.completed()[&1].unwrap().bytes, bytes);
    }
}
