//! An authenticated peer that sends false data: each check on a packet, by itself. Data that violates a rule
//! which no honest peer can violate ends the channel, with the name of the rule; data that may be late is
//! dropped.

use super::aggregates::record;
use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::{connect, down, region, up};
use super::*;
use crate::wire::{
    Atomic as WireAtomic, AtomicReply, Body, Connect, Cts, Data, Fin, Get as WireGet, MessageHead, Probe,
    Put as WirePut, Resume, Rts,
};

fn lone<T>(rails: &[RailFacts], course: impl FnOnce(&mut Lone<'_>) -> T) -> T {
    let mut region = region();
    // Receives have operations, which packets may name.
    let config = crate::api::config::Config { express: false, ..small() };
    course(&mut Lone::connected(&mut region, &config, rails))
}

fn fin(operation: u64) -> Fin {
    Fin { operation, count: 1, ..Fin::default() }
}

/// A message is announced; its operation.
fn announce(lone: &mut Lone<'_>, cookie: u64, len: u64) -> u64 {
    lone.send(cookie, len);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] += 1;
    rts.head.operation
}

/// The peer announces a message of 3,000 bytes, which has a receive: returns its operation.
fn announced(lone: &mut Lone<'_>, cookie: u64) -> u64 {
    lone.recv(cookie, 3000);
    let head = MessageHead { operation: 77, ..MessageHead::default() };
    lone.feed(Body::Rts(Rts { head, message_bytes: 3000, ..Rts::default() }), 0);
    let Body::Cts(cts) = lone.sent_one().body else { panic!("no CTS") };
    lone.acks[1] += 1;
    cts.target
}

/// a FIN that reports more bytes than there are counts as all.
#[test]
fn a_fin_places_no_more_than_the_message() {
    for (placed_bytes, expected) in [(u64::MAX, 3000), (3001, 3000), (3000, 3000), (2000, 2000), (500, 1000)] {
        lone(&[TCP], |lone| {
            let operation = announce(lone, 1, 3000);
            lone.feed(Body::Cts(Cts { operation, target: 88, granted_bytes: 1000, ..Cts::default() }), 0);
            lone.acks[1] += lone.sent().len() as u32;
            lone.feed(Body::Fin(Fin { placed_bytes, ..fin(operation) }), 0);
            lone.sent();
            assert_eq!(lone.completed()[&1].unwrap().bytes, expected, "{placed_bytes}");
        });
    }
}

/// a CTS that grants more than the message has gets no byte beyond it.
#[test]
fn a_cts_grants_no_more_than_the_message() {
    for granted_bytes in [u64::MAX, 3001, 3000] {
        lone(&[TCP], |lone| {
            let operation = announce(lone, 1, 3000);
            lone.posts.clear();
            lone.feed(Body::Cts(Cts { operation, target: 88, granted_bytes, ..Cts::default() }), 0);
            let data: u32 = lone.sent().iter().map(|packet| packet.common.payload_bytes).sum();
            let ends = lone.posts.iter().flat_map(|(_, _, memory)| memory).map(|piece| piece.at.offset + piece.len);
            assert_eq!((data, ends.max()), (3000, Some(3000)), "{granted_bytes}");
        });
    }
}

/// W-7, G-6: a probe may have a payload if it is a request, and none if it is an answer.
#[test]
fn an_answer_to_a_probe_brings_no_payload() {
    for (answer, payload_bytes, offends) in [(true, 8, true), (true, 1, true), (true, 0, false), (false, 8, false)] {
        lone(&[TCP], |lone| {
            let arrival = lone.feed(Body::Probe(Probe { nonce: 5, answer }), payload_bytes);
            assert_eq!(arrival == Arrival::Close, offends, "{arrival:?}");
            if offends {
                assert_eq!(lone.offence(), ProtocolError::TooLong { bytes: payload_bytes.into() });
            }
        });
    }
}

/// G-10: a peer that connects only to send BYE has dropped its state: its acknowledgments are neither news
/// nor a violation.
#[test]
fn acknowledgments_of_a_shutdown_connection_are_ignored() {
    for (connection, is_shutdown) in [(2, false), (1 << 30, true), ((1 << 30) + 5, true)] {
        lone(&[TCP], |lone| {
            let (segments, level) = (&seg(0, 10), Level::Acknowledged);
            let send = SendRequest { level, cookie: Cookie(1), ..SendRequest::new(PeerId(1), segments) };
            lone.endpoint.send(Time(0), &send).unwrap();
            lone.sent();
            down(lone, 0, RailFault::TimedOut);
            up(lone, 0);
            lone.feed(connect(0, connection), 0);
            lone.acks = [700, 900];
            let bye_arrival = lone.feed(Body::Bye, 0);
            if is_shutdown {
                assert_eq!(bye_arrival, Arrival::Done);
                assert_eq!(lone.completed()[&1], Err(OpError::PeerClosed { peer: PeerId(1) }), "{connection}");
            } else {
                assert_eq!(bye_arrival, Arrival::Close);
                assert!(matches!(lone.offence(), ProtocolError::Sequence { .. }));
            }
        });
    }
}

/// S-6: no honest peer sends a number beyond the window, on either lane; the last in the window is valid.
#[test]
fn numbers_lie_in_the_window() {
    let window = small().window;
    let bodies = [Body::Eager(MessageHead::default()), Body::Fin(fin(9))];
    for body in bodies {
        for (psn, is_in) in [(window - 1, true), (window, false), (window + 1, false), (u32::MAX / 2, false)] {
            lone(&[TCP], |lone| {
                let arrival = lone.feed_on(0, body.clone(), 0, |common| common.psn = psn);
                assert_eq!(arrival == Arrival::Close, !is_in, "{body:?} {psn}");
                if !is_in {
                    assert_eq!(lone.offence(), ProtocolError::Sequence { psn });
                }
            });
        }
    }
}

/// Begins an operation; its name.
type Begin<'a> = &'a dyn Fn(&mut Lone<'_>) -> u64;

/// F-7: RESUME is valid only for a receive of the same peer's message that is being written. For a send, a
/// get, an unmatched receive, and the receive of another peer's message it has no effect.
#[test]
fn a_round_is_of_a_receive_of_ones_own() {
    lone(&[PUT], |lone| {
        let target = announced(lone, 1);
        lone.feed(Body::Resume(Resume { target, epoch: 1 }), 0);
        assert!(matches!(lone.sent_one().body, Body::Cts(Cts { epoch: 1, .. })), "that is how it is done");
    });
    let send = |lone: &mut Lone<'_>| {
        let operation = announce(lone, 1, 3000);
        let key = crate::wire::RemoteKey { rail: PEER_RAIL, connection: 1, key: 7, address: 0 };
        let keys = [key].into_iter().collect();
        lone.busy = true;
        lone.feed(Body::Cts(Cts { operation, target: 88, granted_bytes: 3000, keys, ..Cts::default() }), 0);
        operation
    };
    let get = |lone: &mut Lone<'_>| {
        let from = Remote { peer: PeerId(1), window: 3, offset: 8 };
        let get = GetRequest { cookie: Cookie(1), segments: &seg(0, 100), ..GetRequest::new(from, &[]) };
        lone.endpoint.get(Time(0), &get).unwrap().0.to_bits()
    };
    let posted = |lone: &mut Lone<'_>| {
        let recv =
            RecvRequest { cookie: Cookie(1), segments: &seg(0, 3000), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
        lone.endpoint.recv(Time(0), &recv).unwrap().0.to_bits()
    };
    let by_data = |lone: &mut Lone<'_>| announced(lone, 1);
    // The keys of its memory are being registered.
    let registering = |lone: &mut Lone<'_>| {
        lone.slow = true;
        lone.send(1, 3000);
        lone.sent();
        lone.requested[0].0.0.to_bits()
    };
    let cases: [(&[RailFacts], Begin<'_>); 5] =
        [(&[PUT], &send), (&[TCP], &get), (&[PUT], &posted), (&[TCP], &by_data), (&[GET], &registering)];
    for (index, (rails, begin)) in cases.into_iter().enumerate() {
        lone(rails, |lone| {
            let target = begin(lone);
            lone.sent();
            let (stale, epoch) = (lone.endpoint.stats().stale_dropped, |lone: &Lone<'_>| {
                lone.endpoint.t.ops.get(crate::ids::Key::from_bits(target)).unwrap().epoch
            });
            let before = epoch(lone);
            lone.feed(Body::Resume(Resume { target, epoch: 1 }), 0);
            assert!(!lone.sent().iter().any(|packet| matches!(packet.body, Body::Cts(_))), "case {index}");
            assert_eq!(lone.endpoint.stats().stale_dropped, stale + 1, "case {index}");
            assert_eq!(epoch(lone), before, "case {index}");
        });
    }
}

/// S-11: the source that a packet names is the peer at the other end.
#[test]
fn a_packet_names_its_own_sender() {
    for source in [0, 2, u32::MAX] {
        for body in [Body::Eager(MessageHead::default()), Body::Credit, Body::Fin(fin(9)), Body::Bye] {
            lone(&[TCP], |lone| {
                assert_eq!(lone.feed_on(0, body.clone(), 0, |common| common.source = source), Arrival::Close);
                assert_eq!(lone.offence(), ProtocolError::WrongSource { named: source }, "{body:?}");
            });
        }
    }
}

/// an eager message, and an aggregate, carries no more than eager messages may have.
#[test]
fn an_eager_message_is_no_longer_than_agreed() {
    let max = small().eager_bytes_max;
    let bodies = [Body::Eager(MessageHead::default()), Body::Aggregate { count: 2 }];
    for (body, (bytes, fits)) in bodies.iter().flat_map(|body| [(body, (max, true)), (body, (max + 1, false))]) {
        lone(&[TCP], |lone| {
            lone.recv(1, 5000);
            let arrival = lone.feed(body.clone(), bytes);
            assert_eq!(arrival == Arrival::Close, !fits, "{arrival:?}");
            if !fits {
                assert_eq!(lone.offence(), ProtocolError::TooLong { bytes: bytes.into() });
            }
        });
    }
}

/// only a receive that waits for data and a get that was sent take data; an unsent get, a send, a put
/// and a receive that is being read take none.
#[test]
fn data_is_accepted_only_by_operations_waiting_for_data() {
    let taken = |lone: &mut Lone<'_>, operation, bytes| {
        let arrival = lone.feed(Body::Data(Data { operation, offset: 0 }), bytes);
        assert!(matches!(arrival, Arrival::Place { .. } | Arrival::Discard), "{arrival:?}");
        matches!(arrival, Arrival::Place { .. })
    };
    lone(&[TCP], |lone| {
        let operation = announced(lone, 1);
        assert!(taken(lone, operation, 100));
    });
    lone(&[TCP], |lone| {
        let operation = announce(lone, 1, 3000);
        assert!(!taken(lone, operation, 100), "a send");
    });
    lone(&[TCP], |lone| {
        let from = Remote { peer: PeerId(1), window: 3, offset: 8 };
        let get = |lone: &mut Lone<'_>, cookie| {
            let get = GetRequest { cookie: Cookie(cookie), segments: &seg(0, 100), ..GetRequest::new(from, &[]) };
            lone.endpoint.get(Time(0), &get).unwrap().0.to_bits()
        };
        // `TERMS` grants two requests.
        let gets = [get(lone, 1), get(lone, 2), get(lone, 3)];
        lone.sent();
        assert!(!taken(lone, gets[2], 100), "a get that is not out");
        let stale = lone.endpoint.stats().stale_dropped;
        let refused = Some(crate::wire::Refusal::NoWindow);
        lone.feed(Body::Fin(Fin { refused, ..fin(gets[2]) }), 0);
        assert_eq!((lone.endpoint.stats().stale_dropped, lone.completed().len()), (stale + 1, 0), "nor is it refused");
        assert!(taken(lone, gets[0], 100));
    });
    lone(&[GET], |lone| {
        lone.recv(1, 3000);
        let key = crate::wire::RemoteKey { rail: PEER_RAIL, connection: 1, key: 7, address: 0 };
        let head = MessageHead { operation: 77, ..MessageHead::default() };
        lone.busy = true;
        let rts = Rts { head, message_bytes: 3000, keys: [key].into_iter().collect() };
        lone.feed(Body::Rts(rts), 0);
        lone.sent();
        assert_eq!(lone.transfers, 1);
        let operation = lone.endpoint.t.op_id(0).0.to_bits();
        assert!(!taken(lone, operation, 100), "a receive that is being read");
    });
}

/// a FIN for a complete operation is dropped, successful or not; one for an incomplete operation ends it
/// once.
#[test]
fn fin_for_a_completed_operation_is_dropped() {
    let is_refused = [None, Some(crate::wire::Refusal::NoAccess)];
    for refused in is_refused {
        lone(&[TCP], |lone| {
            let to = Remote { peer: PeerId(1), window: 3, offset: 8 };
            let put = PutRequest {
                level: Level::Placed,
                cookie: Cookie(1),
                segments: &seg(0, 10),
                ..PutRequest::new(to, &[])
            };
            let operation = lone.endpoint.put(Time(0), &put).unwrap().0.to_bits();
            lone.sent();
            lone.acks[1] = 1;
            // Its event is not taken: the operation is still there, completed.
            lone.feed(Body::Credit, 0);
            let stale = lone.endpoint.stats().stale_dropped;
            lone.feed(Body::Fin(Fin { refused, ..fin(operation) }), 0);
            assert_eq!(lone.endpoint.stats().stale_dropped, stale + 1);
            assert!(lone.completed()[&1].is_ok());
        });
        lone(&[TCP], |lone| {
            let operation = announced(lone, 1);
            let data = lone.feed(Body::Data(Data { operation, offset: 0 }), 3000);
            lone.place(data);
            let stale = lone.endpoint.stats().stale_dropped;
            lone.feed(Body::Fin(Fin { refused, ..fin(operation) }), 0);
            assert_eq!(lone.endpoint.stats().stale_dropped, stale + 1);
            lone.sent();
            assert_eq!(lone.completed()[&1].unwrap().bytes, 3000);
        });
    }
}

/// as many requests as were granted, gets and atomics together; one more violates the protocol.
#[test]
fn requests_are_bounded_by_the_grant() {
    let get = |operation| Body::Get(WireGet { window: 9, offset: 0, bytes: 8, operation });
    let atomic = |operation| {
        Body::Atomic(WireAtomic {
            window: 9,
            offset: 0,
            operation,
            operand: 1,
            compare: 0,
            kind: AtomicKind::Add,
            data_type: AtomicType::U64,
        })
    };
    let most = u64::from(small().requests_per_peer);
    for mixed in 0..2 {
        lone(&[TCP], |lone| {
            lone.busy = true;
            for n in 0..most {
                let body = if n % 2 == mixed { get(n) } else { atomic(n) };
                assert_eq!(lone.feed(body, 0), Arrival::Done, "{n}");
            }
            assert_eq!(lone.feed(if mixed == 0 { atomic(most) } else { get(most) }, 0), Arrival::Close);
            assert_eq!(lone.offence(), ProtocolError::Credit);
        });
    }
}

/// the slots for refusals of different puts are limited, and a peer with more of them in progress is
/// given up; acknowledged refusals no longer count.
#[test]
fn refusals_are_bounded() {
    let most = small().refusals_max();
    let put = |operation| Body::Put(WirePut { window: 9, offset: 0, operation });
    lone(&[TCP], |lone| {
        for n in 0..most {
            assert_eq!(lone.feed(put(n.into()), 0), Arrival::Discard, "{n} of {most}");
        }
        assert_eq!(lone.feed(put(most.into()), 0), Arrival::Close);
        assert_eq!(lone.offence(), ProtocolError::Credit);
    });
    lone(&[TCP], |lone| {
        for n in 0..3 * most {
            assert_eq!(lone.feed(put(n.into()), 0), Arrival::Discard, "{n}");
            lone.acks[1] += lone.sent().iter().filter(|packet| packet.body.lane().is_some()).count() as u32;
            lone.feed(Body::Credit, 0);
        }
    });
}

/// when a peer acknowledges a refusal, it is notified at once that its puts count as done again, even if
/// the rail still holds the refusal's post.
#[test]
fn the_end_of_a_refusal_is_reported_at_once() {
    lone(&[TCP], |lone| {
        lone.busy = true;
        assert_eq!(lone.feed(Body::Put(WirePut { window: 9, offset: 0, operation: 1 }), 0), Arrival::Discard);
        let sent = lone.sent();
        assert!(sent.iter().all(|packet| packet.common.refusing));
        for (packet, id) in sent.iter().zip(core::mem::take(&mut lone.held)) {
            if !matches!(packet.body, Body::Fin(_)) {
                lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::Done);
            }
        }
        assert_eq!(lone.sent(), []);
        lone.acks[1] = 1;
        lone.feed(Body::Credit, 0);
        assert!(!lone.sent_one().common.refusing);
    });
}

/// acknowledged refusals no longer count, even if their rail, whose posts don't complete, keeps them; as
/// many as the peer may have requests open are sent, and the next ones wait.
#[test]
fn acknowledged_refusals_held_by_a_rail_are_not_counted() {
    let (most, open) = (small().refusals_max(), u32::from(small().requests_per_peer));
    let put = |operation| Body::Put(WirePut { window: 9, offset: 0, operation });
    let fins =
        |lone: &mut Lone<'_>| lone.sent().iter().filter(|packet| matches!(packet.body, Body::Fin(_))).count() as u32;
    lone(&[RailFacts { posts_max: 64, ..TCP }], |lone| {
        lone.busy = true;
        for n in 0..open {
            assert_eq!(lone.feed(put(n.into()), 0), Arrival::Discard, "{n}");
            assert_eq!(fins(lone), 1, "{n}");
            lone.acks[1] += 1;
            lone.feed(Body::Credit, 0);
        }
        for n in 0..most {
            assert_eq!(
                lone.feed(put((open + n).into()), 0),
                Arrival::Discard,
                "{n} of {most}, beside those acknowledged"
            );
            assert_eq!(fins(lone), 0, "{n}");
        }
        assert_eq!(lone.endpoint.usage().refusals.used, most);
        lone.busy = false;
        for id in core::mem::take(&mut lone.held) {
            lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::Done);
        }
        assert_eq!(fins(lone), open);
        lone.acks[1] += open;
        lone.feed(Body::Credit, 0);
        assert_eq!(lone.endpoint.usage().refusals.used, most - open);
    });
}

/// W-11: records lie in the payload, one behind the other, and fill it; none is longer than an eager message
/// may be.
#[test]
fn records_fill_their_aggregate() {
    let max = small().eager_bytes_max;
    let (good, long) = ([record(1, 10), record(2, 20)].concat(), [record(1, 10), record(2, 900)].concat());
    let mut beyond = good.clone();
    beyond.truncate(good.len() - 1);
    let mut more = good.clone();
    more.push(0);
    assert!(long.len() as u32 <= max);
    // The length that a record claims: its head has 20 bytes, and 19 or 21 follow.
    for (payload, fits) in [(good, true), (long, true), (beyond, false), (more, false)] {
        lone(&[TCP], |lone| {
            let arrival = lone.feed(Body::Aggregate { count: 2 }, payload.len() as u32);
            lone.place_bytes(arrival, &payload);
            lone.recv(1, 2000);
            lone.sent();
            if fits {
                assert_eq!(lone.completed()[&1].unwrap().immediate, Some(1));
            } else {
                lone.offence();
            }
        });
    }
}

/// G-3: parameters that no endpoint can work with, or that change, violate the protocol; the rail's number
/// and the connection's may differ on each connection.
#[test]
fn parameters_are_possible_and_stay() {
    let first = |connect: Connect| {
        let mut region = region();
        let mut lone = Lone::up(&mut region, &small(), &[TCP, TCP]);
        let arrival = lone.feed(Body::Connect(connect), 0);
        (arrival == Arrival::Close).then(|| lone.offence())
    };
    for window in [0, 1, 32, 63, 65, 96, 1 << 16, u32::MAX] {
        assert_eq!(first(Connect { window, ..PEER_PARAMETERS }), Some(ProtocolError::BadParameters), "{window}");
    }
    for window in [64, 128, 1 << 15] {
        assert_eq!(first(Connect { window, ..PEER_PARAMETERS }), None, "{window}");
    }
    assert_eq!(first(Connect { block_bytes: 0, ..PEER_PARAMETERS }), Some(ProtocolError::BadParameters));
    let changed = [
        Connect { window: 128, ..PEER_PARAMETERS },
        Connect { eager_bytes_max: 999, ..PEER_PARAMETERS },
        Connect { block_bytes: 65, ..PEER_PARAMETERS },
        Connect { requests_max: 3, ..PEER_PARAMETERS },
    ];
    // Another first number: the peer has forgotten this channel, which ends (K-5).
    let same =
        [Connect { rail: 99, connection: 55, ..PEER_PARAMETERS }, Connect { first_number: 1, ..PEER_PARAMETERS }];
    for connect in changed.into_iter().chain(same) {
        let mut region = region();
        let mut lone = Lone::up(&mut region, &small(), &[TCP, TCP]);
        lone.feed(Body::Connect(PEER_PARAMETERS), 0);
        let arrival = lone.feed_on(1, Body::Connect(connect), 0, |_| {});
        let is_same = connect.rail == 99;
        assert_eq!(arrival, if is_same { Arrival::Done } else { Arrival::Close }, "{connect:?}");
        if !is_same {
            assert_eq!(lone.offence(), ProtocolError::BadParameters);
        }
    }
}

/// G-3, F-1: a repeated CONNECT on a connection has the same content; no honest peer sends another
/// connection's number.
#[test]
fn repeated_connect_must_have_the_same_content() {
    let again = Connect { rail: PEER_RAIL, ..PEER_PARAMETERS };
    for (connect, is_same) in [
        (again, true),
        (Connect { answer: true, ..again }, true),
        (Connect { connection: 2, ..again }, false),
        (Connect { rail: PEER_RAIL + 1, ..again }, false),
    ] {
        lone(&[TCP, TCP], |lone| {
            let arrival = lone.feed(Body::Connect(connect), 0);
            assert_eq!(arrival, if is_same { Arrival::Done } else { Arrival::Close }, "{connect:?}");
        });
    }
}

/// the reply to an atomic is for an atomic, and a CTS for a send: a get that waits takes neither.
#[test]
fn a_reply_is_for_its_own_kind() {
    lone(&[TCP], |lone| {
        let from = Remote { peer: PeerId(1), window: 3, offset: 8 };
        let get = GetRequest { cookie: Cookie(1), segments: &seg(0, 0), ..GetRequest::new(from, &[]) };
        let operation = lone.endpoint.get(Time(0), &get).unwrap().0.to_bits();
        lone.sent();
        lone.acks[1] = 1;
        lone.feed(Body::AtomicReply(AtomicReply { operation, old: 5 }), 0);
        lone.sent();
        assert_eq!(lone.completed().len(), 0);
        lone.feed(Body::Data(Data { operation, offset: 0 }), 0);
        lone.sent();
        assert!(lone.completed()[&1].is_ok());
    });
}
