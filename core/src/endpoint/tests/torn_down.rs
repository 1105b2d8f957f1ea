//! What a connection has when it dies, and what of it must not stay: placements, loads of rails, BYEs,
//! replay that waits for room, unconfirmed writes, registrations (F-2, F-5, F-7, G-7).

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::{connect, down, fence, fins, put_over_both, region, up};
use super::*;
use crate::wire::{Body, Connect, Cts, Data, Fence, Fin, Get, MessageHead, Probe, Put, RemoteKey, Repr, Resume, Rts};

fn psns(packets: &[Repr]) -> Vec<u32> {
    packets.iter().filter(|packet| packet.body.lane().is_some()).map(|packet| packet.common.psn).collect()
}

fn resumes(packets: &[Repr]) -> Vec<u16> {
    let epoch = |packet: &Repr| match packet.body {
        Body::Resume(Resume { epoch, .. }) => Some(epoch),
        _ => None,
    };
    packets.iter().filter_map(epoch).collect()
}

fn rts(operation: u64, bytes: u64) -> Body {
    let head = MessageHead { operation, ..MessageHead::default() };
    Body::Rts(Rts { head, message_bytes: bytes, ..Rts::default() })
}

/// The channel is left: the first rail's BYE is out, the last one's is not.
fn leave(lone: &mut Lone<'_>, stuck: u64) {
    lone.stuck = stuck;
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    assert!(lone.sent().iter().any(|packet| packet.body == Body::Bye));
}

fn window(lone: &mut Lone<'_>) -> WindowId {
    let access = Access { read: true, write: true, atomic: false };
    let window = Window::new(MemRef { region: HEAP, offset: 0 }, 4096, access, 99);
    lone.endpoint.expose(&window).unwrap()
}

/// R-9, G-7: a payload that was on its way into a window when its rail was closed by the peer, which was
/// faster in leaving, does not use the window any more.
#[test]
fn window_is_released_when_the_writing_peer_closes() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
    let window = window(&mut lone);
    let half = lone.feed(Body::Put(Put { window: 99, offset: 0, operation: 12 }), 100);
    assert!(matches!(half, Arrival::Place { .. }), "{half:?}");
    leave(&mut lone, 0b10);
    assert_eq!(lone.endpoint.deregister(window), Err(DeregisterError::Busy));
    for rail in 0..2 {
        down(&mut lone, rail, RailFault::Closed);
        lone.sent();
    }
    assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerClosed { peer: PeerId(1) }));
    assert_eq!(lone.endpoint.deregister(window), Ok(()));
}

/// P-1: what a rail had when its connection died is no load of the rail any more, for no peer: when the
/// channel is left, and otherwise.
#[test]
fn a_dead_connection_is_no_load() {
    for leaves in [true, false] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
        window(&mut lone);
        lone.stuck = 0b11;
        lone.feed(Body::Get(Get { window: 99, offset: 0, bytes: 1000, operation: 12 }), 0);
        lone.feed(Body::Get(Get { window: 99, offset: 0, bytes: 1000, operation: 13 }), 0);
        let answers = lone.sent();
        let load = |lone: &Lone<'_>, rail| lone.endpoint.rail_stats(RailId(rail)).unwrap().backlog;
        assert!(load(&lone, 0) + load(&lone, 1) >= 2000, "{answers:?}");
        if leaves {
            lone.acks[1] = psns(&answers).len() as u32;
            lone.feed(Body::Credit, 0);
            leave(&mut lone, 0b11);
        }
        for rail in 0..2 {
            down(&mut lone, rail, RailFault::Closed);
            assert_eq!(load(&lone, rail), 0, "leaves: {leaves}");
        }
    }
}

/// G-7: a rail whose BYE does not get out is waited for as one that has something to do, once the peer has
/// had BYE on another one, whatever other rails fail afterwards.
#[test]
fn bye_received_over_one_rail_shortens_the_wait_for_others() {
    let config = Config {
        stall_min: Nanos(1_000),
        stall_max: Nanos(1_000),
        stall_lone: Nanos(1_000_000),
        keepalive: Nanos(0),
        ..small()
    };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP; 3]);
    // Rail 1 has a frame before BYE, and is not through with it.
    lone.stuck = 0b110;
    lone.feed_on(1, Body::Probe(Probe { nonce: 5, answer: false }), 0, |_| {});
    assert!(matches!(lone.sent_one().body, Body::Probe(Probe { answer: true, .. })));
    lone.rails.clear();
    leave(&mut lone, 0b110);
    assert_eq!(lone.rails, [RailId(0), RailId(2)]);
    down(&mut lone, 0, RailFault::Closed);
    down(&mut lone, 1, RailFault::Closed);
    lone.sent();
    lone.closed.clear();
    while let Some(due) = lone.endpoint.next_timeout().filter(|due| due.0 < 100_000) {
        lone.now = due.0;
        lone.endpoint.handle_timeout(due);
        lone.sent();
    }
    assert_eq!(lone.closed, [RailId(2)]);
    assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerClosed { peer: PeerId(1) }));
}

/// G-7: a peer that connects once more while this side leaves gets CONNECT and BYE on the new connection.
#[test]
fn peer_that_reconnects_during_the_shutdown_receives_a_bye() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
    leave(&mut lone, 0b10);
    down(&mut lone, 0, RailFault::Closed);
    lone.sent();
    up(&mut lone, 0);
    lone.rails.clear();
    let sent = lone.sent();
    assert!(matches!(sent[..], [Repr { body: Body::Connect(Connect { connection: 2, .. }), .. }]), "{sent:?}");
    lone.feed(connect(0, 2), 0);
    assert_eq!(lone.sent().last().map(|packet| packet.body.clone()), Some(Body::Bye));
    assert!(lone.rails.iter().all(|rail| *rail == RailId(0)), "{:?}", lone.rails);
}

/// G-10: where BYE was still with its rail when that was closed, the peer may not have had it: it is called
/// when a rail moves, also where the last connection to go is one that BYE was not for.
#[test]
fn peer_whose_bye_may_be_lost_is_redialled_from_a_new_address() {
    for is_polled in [false, true] {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
        down(&mut lone, 1, RailFault::TimedOut);
        lone.sent();
        // The peer's CONNECT does not come on this one.
        up(&mut lone, 1);
        lone.sent();
        leave(&mut lone, 0b1);
        down(&mut lone, 0, RailFault::TimedOut);
        if is_polled {
            lone.sent();
        }
        down(&mut lone, 1, RailFault::TimedOut);
        lone.sent();
        assert_eq!(lone.completed().len(), 0);
        lone.sent();
        assert_eq!(lone.endpoint.rail_health(PeerId(1), RailId(0)), None, "the channel is over");
        lone.endpoint.set_address(RailId(0), b"a:1").unwrap();
        lone.sent();
        let health = lone.endpoint.rail_health(PeerId(1), RailId(0));
        assert_eq!(health.map(|rail| rail.state), Some(RailState::Opening), "polled: {is_polled}");
    }
}

/// G-7: while BYE is on its way no more connections are opened.
#[test]
fn no_connection_is_opened_during_the_bye() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
    for _ in 0..2 {
        down(&mut lone, 1, RailFault::TimedOut);
        lone.sent();
    }
    let redial_at = Time(small().redial_min.0);
    let state = |lone: &Lone<'_>| lone.endpoint.rail_health(PeerId(1), RailId(1)).unwrap().state;
    assert_eq!(state(&lone), RailState::Down { redial_at });
    leave(&mut lone, 0b1);
    lone.now = redial_at.0;
    lone.endpoint.handle_timeout(redial_at);
    lone.sent();
    assert_eq!(state(&lone), RailState::Down { redial_at });
}

/// F-5: packets that wait for room to be replayed keep waiting when another connection dies, before that
/// one's fence.
#[test]
fn waiting_retransmissions_survive_another_rail_failure() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 3]);
    lone.endpoint.set_policy(MessageClass::OneSided, Policy::named("round-robin").unwrap());
    lone.busy = true;
    let room = usize::from(TCP.posts_max) - 1;
    lone.rails.clear();
    for n in 0..3 * room as u64 {
        let to = Remote { peer: PeerId(1), window: 3, offset: 8 * n };
        let put = PutRequest { cookie: Cookie(n), segments: &seg(0, 8), ..PutRequest::new(to, &[]) };
        lone.endpoint.put(Time(0), &put).unwrap();
    }
    let sent = psns(&lone.sent());
    let of_rail = |rail: u8| -> Vec<u32> {
        sent.iter().zip(&lone.rails).filter(|(_, on)| on.0 == rail).map(|(psn, _)| *psn).collect()
    };
    let [first, second] = [of_rail(1), of_rail(2)];
    assert_eq!((first.len(), second.len()), (room, room));
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed(Body::Fence(fence(1, true)), 0);
    assert_eq!(psns(&lone.sent()), [], "the others are full");
    down(&mut lone, 2, RailFault::TimedOut);
    lone.busy = false;
    for id in core::mem::take(&mut lone.held) {
        lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    }
    assert_eq!(psns(&lone.sent()), first);
    lone.feed(Body::Fence(fence(2, true)), 0);
    assert_eq!(psns(&lone.sent()), second);
}

/// F-7, F-5: of two rails that wrote a message and died, one's FIN has arrived, as FENCE reports, and the
/// other's was not sent: the new epoch writes again the bytes of the other one, and no more.
#[test]
fn a_fin_that_has_come_confirms_its_own_rail() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[PUT, PUT, TCP]);
    // A CTS of ours, which the peer has not had yet: the FIN comes beyond it.
    lone.recv(9, 3000);
    lone.feed_on(2, rts(77, 3000), 0, |_| {});
    lone.sent();
    let operation = put_over_both(&mut lone);
    let key = |rail, connection| RemoteKey { rail: PEER_RAIL + rail, connection, key: 7, address: 0 };
    let cts = |epoch, keys: &[RemoteKey]| {
        let keys = keys.iter().copied().collect();
        Body::Cts(Cts { operation, target: 88, granted_bytes: 40_000, epoch, keys })
    };
    let written = |lone: &mut Lone<'_>| -> [u64; 3] {
        let mut bytes = [0; 3];
        for (rail, kind, memory) in core::mem::take(&mut lone.posts) {
            if matches!(kind, PostKind::Write { .. }) {
                bytes[usize::from(rail.0)] += memory.iter().map(|seg| seg.len).sum::<u64>();
            }
        }
        bytes
    };
    lone.stuck = 0b1;
    lone.posts.clear();
    lone.feed_on(2, cts(0, &[key(0, 1), key(1, 1)]), 0, |_| {});
    let sent = lone.sent();
    assert_eq!(fins(&sent), [(0, 2)]);
    let fin = sent.iter().find(|packet| matches!(packet.body, Body::Fin(_))).unwrap().common.psn;
    assert_eq!(fin, 1, "behind the CTS");
    let [first, second, 0] = written(&mut lone) else { panic!("rail 2 does not write") };
    assert!(first > 0 && second > 0);
    lone.stuck = 0;
    for rail in [0, 1] {
        down(&mut lone, rail, RailFault::TimedOut);
    }
    lone.sent();
    lone.feed_on(2, Body::Fence(Fence { unordered_beyond: 0b1, ..fence(1, true) }), 0, |_| {});
    assert_eq!(resumes(&lone.sent()), [], "writes over rail 0 may still land");
    lone.feed_on(2, Body::Fence(Fence { unordered_beyond: 0b1, ..fence(0, true) }), 0, |_| {});
    assert_eq!(resumes(&lone.sent()), [1]);
    up(&mut lone, 0);
    lone.feed_on(0, connect(0, 2), 0, |_| {});
    lone.sent();
    lone.posts.clear();
    lone.feed_on(2, cts(1, &[key(0, 2)]), 0, |_| {});
    assert_eq!(fins(&lone.sent()), [(1, 1)]);
    assert_eq!(written(&mut lone), [40_000 - second, 0, 0]);
}

/// V-12: registrations that were about to be given back when their device was reset are not: it may have
/// given their keys to others. Those of other rails are.
#[test]
fn registrations_of_a_reset_device_are_not_deregistered() {
    for of in 0..3 {
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[PUT; 2]);
        lone.recv(1, 3000);
        lone.feed(rts(77, 3000), 0);
        let cts = lone.sent_one();
        let Body::Cts(Cts { target, ref keys, .. }) = cts.body else { panic!("{cts:?}") };
        assert_eq!(keys.len(), 2);
        let fin = Fin { operation: target, count: 1, placed_bytes: 3000, want_placed: true, ..Fin::default() };
        lone.feed(Body::Fin(fin), 0);
        lone.endpoint.handle_rail_event(Time(0), RailEvent::Reset { rail: RailId(of) });
        lone.sent();
        assert!(lone.completed()[&1].is_ok());
        let mut given_back: Vec<u8> = lone.given_back.iter().map(|(rail, _)| rail.0).collect();
        given_back.sort_unstable();
        let others: Vec<u8> = (0..2).filter(|rail| *rail != of).collect();
        assert_eq!(given_back, others, "reset {of}");
    }
}

/// V-12: a peer's keys are those of its own devices, whatever number its rail has: a message is put though a
/// device here was reset.
#[test]
fn keys_of_the_peer_survive_a_reset_here() {
    let mut region = region();
    let mut lone = Lone::up(&mut region, &small(), &[PUT]);
    lone.feed(Body::Connect(Connect { rail: 0, ..PEER_PARAMETERS }), 0);
    lone.sent();
    lone.send(1, 40_000);
    let Body::Rts(rts) = lone.sent_one().body else { panic!("no RTS") };
    lone.acks[0] = 1;
    let keys = [RemoteKey { rail: 0, connection: 1, key: 7, address: 0 }].into_iter().collect();
    let operation = rts.head.operation;
    lone.feed(Body::Cts(Cts { operation, target: 88, granted_bytes: 40_000, epoch: 0, keys }), 0);
    lone.endpoint.handle_rail_event(Time(0), RailEvent::Reset { rail: RailId(0) });
    let sent = lone.sent();
    assert!(lone.transfers > 0 && !sent.iter().any(|packet| matches!(packet.body, Body::Data(_))), "{sent:?}");
}

/// a get that was refused in the middle, while a payload is on its way into its buffer, ends when that
/// ends with its connection, also where nothing else is under way.
#[test]
fn a_refused_get_ends_when_nothing_writes_into_its_buffer() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
    let from = Remote { peer: PeerId(1), window: 3, offset: 8 };
    let get = GetRequest { cookie: Cookie(1), segments: &seg(0, 100), ..GetRequest::new(from, &[]) };
    lone.endpoint.get(Time(0), &get).unwrap();
    let Body::Get(Get { operation, .. }) = lone.sent_one().body else { panic!("no GET") };
    lone.acks[1] = 1;
    let half = lone.feed_on(1, Body::Data(Data { operation, offset: 0 }), 50, |_| {});
    assert!(matches!(half, Arrival::Place { .. }), "{half:?}");
    let refused = Some(crate::wire::Refusal::OutOfRange);
    lone.feed(Body::Fin(Fin { operation, count: 1, refused, ..Fin::default() }), 0);
    lone.sent();
    assert_eq!(lone.completed().len(), 0, "a rail writes into its memory");
    down(&mut lone, 1, RailFault::TimedOut);
    assert!(lone.completed()[&1].is_err());
    assert_eq!(lone.endpoint.usage().operations.used, 0);
}
