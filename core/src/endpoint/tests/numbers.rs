//! Processes that number each other themselves (S-11), and peers that are removed and added again.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::*;
use crate::wire::{Body, Connect, MessageHead};

const NUMBER: u32 = 0xA1B2_C3D4;
/// That of the peer, whose rank here is 1.
const PEERS: u32 = 0x0102_0304;

fn numbered() -> Config {
    Config { number: Some(NUMBER), ..small() }
}

fn eager() -> Body {
    Body::Eager(MessageHead { operation: 77, ..MessageHead::default() })
}

fn connected<'m>(region: &'m mut Region) -> Lone<'m> {
    let mut lone = Lone::up(region, &numbered(), &[TCP]);
    assert_eq!(lone.feed_on(0, Body::Connect(PEER_PARAMETERS), 0, |common| common.source = PEERS), Arrival::Done);
    let answer = lone.sent_one();
    assert_eq!(answer.common.source, NUMBER);
    assert!(matches!(answer.body, Body::Connect(_)));
    assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerUp { peer: PeerId(1) }));
    lone
}

/// S-11: the number of the first CONNECT is the peer's, in every packet after it.
#[test]
fn the_first_connect_brings_the_number() {
    let mut region = Region::of(&numbered());
    let mut lone = connected(&mut region);
    lone.recv(1, 10);
    let arrival = lone.feed_on(0, eager(), 10, |common| common.source = PEERS);
    lone.place(arrival);
    assert_eq!(lone.completed()[&1].map(|done| (done.peer, done.bytes)), Ok((PeerId(1), 10)));
    lone.send(2, 10);
    assert_eq!(lone.sent_one().common.source, NUMBER);
}

/// S-11: any other number ends the channel, the peer's rank here and another CONNECT's included.
#[test]
fn another_number_breaks_the_protocol() {
    for named in [1, NUMBER, PEERS + 1, u32::MAX] {
        let again = Body::Connect(Connect { rail: PEER_RAIL, ..PEER_PARAMETERS });
        for body in [eager(), again] {
            let mut region = Region::of(&numbered());
            let mut lone = connected(&mut region);
            assert_eq!(lone.feed_on(0, body, 0, |common| common.source = named), Arrival::Close);
            assert_eq!(lone.offence(), ProtocolError::WrongSource { named });
        }
    }
}

/// G-1: before the first CONNECT nothing is received, whatever number it names.
#[test]
fn packet_before_the_first_connect_is_rejected() {
    let mut region = Region::of(&numbered());
    let mut lone = Lone::up(&mut region, &numbered(), &[TCP]);
    assert_eq!(lone.feed_on(0, eager(), 0, |common| common.source = PEERS), Arrival::Close);
    assert_eq!(lone.offence(), ProtocolError::NotConnected);
}

/// A number that stands for none is refused.
#[test]
fn reserved_process_number_is_refused() {
    let config = Config { number: Some(u32::MAX), ..small() };
    assert_eq!(config.validate().map_err(|error| error.field), Err("number"));
}

/// A peer is removed when it is closed and its connection has ended; messages without a receive are dropped.
/// Then it can be added again, and a channel to it opens as the first one did.
#[test]
fn a_removed_peer_is_a_new_one() {
    let mut region = Region::of(&numbered());
    let mut lone = connected(&mut region);
    let arrival = lone.feed_on(0, eager(), 10, |common| common.source = PEERS);
    lone.place(arrival);
    assert_eq!(lone.endpoint.remove_peer(PeerId(1)), Err(PeerError::InUse(PeerId(1))));
    assert_eq!(lone.feed_on(0, Body::Bye, 0, |common| common.source = PEERS), Arrival::Done);
    let probe = |lone: &mut Lone<'_>| lone.endpoint.probe(&Selector::ANY_UNTAGGED).map(|found| found.peer);
    assert_eq!(probe(&mut lone), Some(PeerId(1)), "complete messages can still be received");
    assert_eq!(lone.endpoint.remove_peer(PeerId(1)), Err(PeerError::InUse(PeerId(1))), "not reported");
    assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerClosed { peer: PeerId(1) }));
    assert_eq!(lone.sent(), []);
    assert_eq!(lone.closed, [RailId(0)]);
    assert_eq!(lone.endpoint.remove_peer(PeerId(1)), Ok(()));
    assert_eq!(probe(&mut lone), None, "and go with the peer");
    assert_eq!(lone.endpoint.remove_peer(PeerId(1)), Err(PeerError::Unknown(PeerId(1))));
    assert_eq!(lone.endpoint.usage().channels.used, 0);

    assert_eq!(lone.endpoint.add_peer(PeerId(1), 1), Ok(()));
    lone.psn = [0; 2];
    lone.endpoint.handle_rail_event(Time(0), RailEvent::Up { peer: PeerId(1), rail: RailId(0) });
    let connect = Body::Connect(Connect { first_number: 5, connection: 6, ..PEER_PARAMETERS });
    assert_eq!(lone.feed_on(0, connect, 0, |common| common.source = PEERS + 9), Arrival::Done);
    assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerUp { peer: PeerId(1) }));
}

/// A peer without a channel is removed as soon as it is closed; a receive that names it ends.
#[test]
fn an_idle_peer_is_removed_at_once() {
    let mut region = Region::of(&numbered());
    let mut lone = connected(&mut region);
    let idle = PeerId(2);
    lone.endpoint.add_peer(idle, 1).unwrap();
    let from = Selector { source: Some(idle), ..Selector::ANY_UNTAGGED };
    let recv = RecvRequest { cookie: Cookie(3), ..RecvRequest::new(from, &[]) };
    lone.endpoint.recv(Time(0), &recv).unwrap();
    assert_eq!(lone.endpoint.remove_peer(idle), Err(PeerError::InUse(idle)));
    lone.endpoint.close_peer(idle).unwrap();
    assert_eq!(lone.completed()[&3], Err(OpError::PeerClosed { peer: idle }));
    assert_eq!(lone.endpoint.remove_peer(idle), Ok(()));
    assert_eq!(lone.endpoint.add_peer(idle, 1), Ok(()));
}
