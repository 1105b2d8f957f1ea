//! Rails that have moved, packet by packet: rule F-12.

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::*;
use crate::wire::{Address, AddressError, AddressText, Body, Connect, Repr};

fn region() -> Region {
    Region::of(&config())
}

pub(super) fn config() -> Config {
    Config { rails_max: 3, ..small() }
}

fn three(region: &mut Region) -> Lone<'_> {
    Lone::connected(region, &config(), &[TCP, TCP, TCP])
}

pub(super) fn text(text: &str) -> AddressText {
    AddressText::new(text.as_bytes()).unwrap()
}

pub(super) fn down(lone: &mut Lone<'_>, rail: u8) {
    let event = RailEvent::Down { peer: PeerId(1), rail: RailId(rail), fault: RailFault::TimedOut };
    lone.endpoint.handle_rail_event(Time(lone.now), event);
}

/// A new connection is up, and the peer has sent its CONNECT.
pub(super) fn up(lone: &mut Lone<'_>, rail: u8, connection: u32) {
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(rail) });
    let connect = Connect { rail: PEER_RAIL + rail, connection, answer: true, ..PEER_PARAMETERS };
    lone.feed_on(rail, Body::Connect(connect), 0, |_| {});
}

/// The addresses sent now: over which rail, of which rail, and the address.
pub(super) fn announced(lone: &mut Lone<'_>) -> Vec<(u8, u8, AddressText)> {
    lone.rails.clear();
    let sent: Vec<Repr> = lone.sent();
    let over = sent.into_iter().zip(&lone.rails);
    over.filter_map(|(packet, by)| match packet.body {
        Body::Address(Address { rail, text }) => Some((by.0, rail, text)),
        _ => None,
    })
    .collect()
}

/// Rails that the endpoint dials now.
pub(super) fn dialled(lone: &mut Lone<'_>) -> Vec<RailId> {
    lone.endpoint.handle_timeout(Time(lone.now));
    let (mut rails, mut actions) = (Vec::new(), heapless::Vec::new());
    while lone.endpoint.poll_actions(Time(lone.now), &mut actions) > 0 {
        for action in actions.drain(..) {
            match action {
                Action::Connect { rail, .. } => rails.push(rail),
                Action::Post(post) => lone.endpoint.handle_completion(Time(lone.now), post.id, PostStatus::Done),
                _ => {}
            }
        }
    }
    rails
}

/// F-12: sent over every other subchannel, and over one that comes up later.
#[test]
fn new_address_is_sent_over_every_other_rail() {
    let mut region = region();
    let mut lone = three(&mut region);
    assert_eq!(announced(&mut lone), []);
    lone.endpoint.set_address(RailId(1), b"there:1").unwrap();
    assert_eq!(announced(&mut lone), [(0, 1, text("there:1")), (2, 1, text("there:1"))]);
    // Nothing new.
    lone.endpoint.set_address(RailId(1), b"there:1").unwrap();
    assert_eq!(announced(&mut lone), []);
    down(&mut lone, 1);
    down(&mut lone, 2);
    lone.endpoint.set_address(RailId(2), b"there:2").unwrap();
    assert_eq!(announced(&mut lone), [(0, 2, text("there:2"))]);
    // A subchannel that comes up announces all others.
    up(&mut lone, 2, 2);
    assert_eq!(announced(&mut lone), [(2, 1, text("there:1"))]);
    down(&mut lone, 0);
    up(&mut lone, 0, 2);
    assert_eq!(announced(&mut lone), [(0, 1, text("there:1")), (0, 2, text("there:2"))]);
    lone.endpoint.set_address(RailId(1), b"back").unwrap();
    assert_eq!(announced(&mut lone), [(0, 1, text("back")), (2, 1, text("back"))]);
}

/// L-3: one at a time, and the newest.
#[test]
fn busy_rail_sends_address_updates_one_at_a_time() {
    let mut region = region();
    let mut lone = three(&mut region);
    lone.busy = true;
    lone.endpoint.set_address(RailId(1), b"a").unwrap();
    lone.endpoint.set_address(RailId(2), b"b").unwrap();
    lone.rails.clear();
    let mut actions = heapless::Vec::new();
    lone.endpoint.poll_actions(Time(0), &mut actions);
    let posts: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Post(post) => (post.rail.0, Address::in_header(&post.header).unwrap().rail, post.id),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(posts.iter().map(|post| (post.0, post.1)).collect::<Vec<_>>(), [(0, 1), (1, 2), (2, 1)]);
    assert_eq!(announced(&mut lone), []);
    lone.endpoint.set_address(RailId(2), b"c").unwrap();
    lone.busy = false;
    for (_, _, id) in posts {
        lone.endpoint.handle_completion(Time(0), id, PostStatus::Done);
    }
    assert_eq!(announced(&mut lone), [(0, 2, text("c")), (1, 2, text("c"))]);
}

/// F-12: no address is sent to a peer that the rail does not reach, and an invalid address is not kept.
#[test]
fn only_valid_addresses_are_sent_and_only_to_reached_peers() {
    let mut region = region();
    let mut lone = three(&mut region);
    let none = |lone: &mut Lone<'_>, rail, bytes: &[u8]| lone.endpoint.set_address(RailId(rail), bytes).unwrap_err();
    assert_eq!(none(&mut lone, 3, b"a"), SetAddressError::NoSuchRail(RailId(3)));
    assert_eq!(none(&mut lone, 0, b""), SetAddressError::Address(AddressError::Empty));
    assert_eq!(none(&mut lone, 0, &[b'a'; 201]), SetAddressError::Address(AddressError::TooLong { bytes: 201 }));
    assert_eq!(none(&mut lone, 0, b"a b"), SetAddressError::Address(AddressError::Byte { at: 1, byte: b' ' }));
    assert_eq!(announced(&mut lone), []);

    let mut lone = Lone::reached(&mut region, &config(), &[TCP, TCP], 1);
    lone.endpoint.set_address(RailId(1), b"elsewhere").unwrap();
    lone.feed(Body::Connect(PEER_PARAMETERS), 0);
    assert_eq!(announced(&mut lone), []);
}

/// F-12: the peer names its own rail; the answer names ours, and the rail is dialled if its redial is
/// pending.
#[test]
fn an_address_names_our_rail_and_is_dialled() {
    let mut region = region();
    let mut lone = three(&mut region);
    let moved = |rail| Body::Address(Address { rail, text: text("there:1") });
    assert_eq!(lone.feed(moved(PEER_RAIL + 1), 0), Arrival::Address { rail: RailId(1) });
    assert_eq!(lone.feed(moved(PEER_RAIL + 1), 0), Arrival::Address { rail: RailId(1) });
    assert_eq!(dialled(&mut lone), []);
    // The first time at once, then with pauses.
    down(&mut lone, 1);
    lone.now = 1;
    dialled(&mut lone);
    down(&mut lone, 1);
    assert_eq!(dialled(&mut lone), []);
    assert_eq!(lone.feed(moved(PEER_RAIL + 2), 0), Arrival::Address { rail: RailId(2) });
    assert_eq!(dialled(&mut lone), []);
    assert_eq!(lone.feed(moved(PEER_RAIL + 1), 0), Arrival::Address { rail: RailId(1) });
    assert_eq!(dialled(&mut lone), [RailId(1)]);
    // The dial is in progress.
    assert_eq!(lone.feed(moved(PEER_RAIL + 1), 0), Arrival::Address { rail: RailId(1) });
    assert_eq!(dialled(&mut lone), []);
}

/// F-12, G-8: a rail that the peer never used is unknown; an invalid address ends the channel.
#[test]
fn invalid_address_update_is_dropped_or_ends_the_channel() {
    let mut region = region();
    let mut lone = three(&mut region);
    for rail in [0, 1, 2, PEER_RAIL + 3, u8::MAX] {
        let before = lone.endpoint.stats().stale_dropped;
        let body = Body::Address(Address { rail, text: text("there:1") });
        assert_eq!(lone.feed(body, 0), Arrival::Done);
        assert_eq!(lone.endpoint.stats().stale_dropped, before + 1);
    }
    assert_eq!(dialled(&mut lone), []);
    let common = crate::wire::Common { source: 1, message_limit: 32, block_limit: 64, ..Default::default() };
    let body = Body::Address(Address { rail: PEER_RAIL, text: text("there:1") });
    let mut header = Repr { common, body }.emit_vec().unwrap();
    header[33] = 201;
    assert_eq!(Address::in_header(&header), None);
    assert_eq!(lone.endpoint.handle_arrival(Time(0), PeerId(1), RailId(0), &header), Arrival::Close);
    assert!(matches!(lone.offence(), ProtocolError::Wire(error) if error.field == "address.len"));
}

/// A BYE is lost with its connection, and the rail moves before or after that: no one dials the old address
/// in vain. The core dials the peer from the new address, repeatedly, until the peer has received CONNECT and
/// BYE; then it stops (G-10).
#[test]
fn moved_process_redials_until_its_bye_is_received() {
    for (moves_first, reported) in [(false, false), (true, false), (false, true)] {
        let (mut region, config) = (region(), config());
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        let moves = |lone: &mut Lone<'_>| lone.endpoint.set_address(RailId(0), b"there:1").unwrap();
        lone.busy = !reported;
        lone.endpoint.close_peer(PeerId(1)).unwrap();
        assert_eq!(lone.sent_one().body, Body::Bye);
        if moves_first {
            moves(&mut lone);
        }
        lone.sent();
        lone.busy = false;
        down(&mut lone, 0);
        let events: Vec<Event> = std::iter::from_fn(|| lone.endpoint.poll_event()).collect();
        assert_eq!(events, [Event::PeerClosed { peer: PeerId(1) }]);
        if !moves_first {
            assert_eq!(dialled(&mut lone), [], "the peer has our address and may dial it");
            moves(&mut lone);
        }
        if reported {
            assert_eq!(dialled(&mut lone), []);
            continue;
        }
        assert_eq!(dialled(&mut lone), [RailId(0)]);
        down(&mut lone, 0);
        assert_eq!(dialled(&mut lone), []);
        lone.now += config.redial_max.0;
        assert_eq!(dialled(&mut lone), [RailId(0)]);
        lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(0) });
        assert!(matches!(lone.sent_one().body, Body::Connect(Connect { rail: 0, .. })));
        lone.feed(Body::Connect(PEER_PARAMETERS), 0);
        assert_eq!(lone.sent_one().body, Body::Bye);
        lone.sent();
        assert_eq!(lone.closed, [RailId(0)]);
        lone.endpoint.set_address(RailId(0), b"there:2").unwrap();
        assert_eq!(dialled(&mut lone), []);
        assert!(lone.endpoint.t.channels.is_empty() && lone.endpoint.poll_event().is_none());
    }
}

/// G-10: an unreachable peer is dialled for the connect timeout, and then its channel is free.
#[test]
fn unreachable_closed_peer_is_dialled_only_until_the_timeout() {
    let (mut region, config) = (region(), config());
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.busy = true;
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    lone.sent();
    down(&mut lone, 0);
    lone.endpoint.set_address(RailId(0), b"there:1").unwrap();
    assert_eq!(dialled(&mut lone), [RailId(0)]);
    let mut calls = 1;
    while lone.now <= 2 * config.connect_timeout.0 {
        down(&mut lone, 0);
        lone.now += config.redial_max.0;
        calls += dialled(&mut lone).len() as u64;
    }
    let most = config.connect_timeout.0 / config.redial_max.0;
    assert!((most - 1..=most + 1).contains(&calls), "{calls} calls, {most} would do");
    while lone.endpoint.poll_event().is_some() {}
    lone.sent();
    assert!(lone.endpoint.t.channels.is_empty());
}
