//! Closed peers that may not have received BYE, over more than one rail: which side dials, with which
//! numbers, and for how long (G-7, G-10, F-12).

use super::super::lifecycle::is_shutdown;
use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::*;
use crate::wire::{Body, Connect, Repr};

pub(super) fn config() -> Config {
    Config { rails_max: 20, ..small() }
}

pub(super) fn down(lone: &mut Lone<'_>, rail: u8) {
    let event = RailEvent::Down { peer: PeerId(1), rail: RailId(rail), fault: RailFault::TimedOut };
    lone.endpoint.handle_rail_event(Time(lone.now), event);
}

pub(super) fn up(lone: &mut Lone<'_>, rail: u8) {
    lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(rail) });
}

pub(super) fn moves(lone: &mut Lone<'_>, rail: u8, to: &str) {
    lone.endpoint.set_address(RailId(rail), to.as_bytes()).unwrap();
}

/// Peers and rails that are dialled now.
fn dialled(lone: &mut Lone<'_>) -> Vec<(u32, u8)> {
    lone.endpoint.handle_timeout(Time(lone.now));
    let (mut dialled, mut actions) = (Vec::new(), heapless::Vec::new());
    while lone.endpoint.poll_actions(Time(lone.now), &mut actions) > 0 {
        for action in actions.drain(..) {
            match action {
                Action::Connect { peer, rail } => dialled.push((peer.0, rail.0)),
                Action::Post(post) => lone.endpoint.handle_completion(Time(lone.now), post.id, PostStatus::Done),
                _ => {}
            }
        }
    }
    dialled
}

/// The peer was closed, and no BYE was sent before the connections failed.
pub(super) fn left_without_bye<'m>(region: &'m mut Region, rails: u8) -> Lone<'m> {
    let mut lone = Lone::connected(region, &config(), &[TCP; 20][..usize::from(rails)]);
    lone.busy = true;
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    lone.sent();
    lone.busy = false;
    (0..rails).for_each(|rail| down(&mut lone, rail));
    while lone.endpoint.poll_event().is_some() {}
    assert_eq!(dialled(&mut lone), []);
    lone
}

/// Packets sent now: the numbers of connections by rail, and the rails with BYE.
pub(super) fn connects_and_byes(lone: &mut Lone<'_>) -> (Vec<(u8, u32)>, Vec<u8>) {
    lone.rails.clear();
    let sent: Vec<Repr> = lone.sent();
    let (mut numbers, mut byes) = (Vec::new(), Vec::new());
    for (packet, rail) in sent.iter().zip(&lone.rails) {
        match packet.body {
            Body::Connect(connect) => numbers.push((rail.0, connect.connection)),
            Body::Bye => byes.push(rail.0),
            ref other => panic!("{other:?}"),
        }
    }
    (numbers, byes)
}

pub(super) fn connect(rail: u8) -> Body {
    Body::Connect(Connect { rail: PEER_RAIL + rail, ..PEER_PARAMETERS })
}

/// Only the rail that has moved is dialled, the one that moves later as well, and none that does not reach
/// the peer.
#[test]
fn a_rail_that_moves_calls_and_no_other() {
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 3);
    moves(&mut lone, 1, "b:1");
    assert_eq!(dialled(&mut lone), [(1, 1)]);
    moves(&mut lone, 0, "a:1");
    moves(&mut lone, 2, "c:1");
    assert_eq!(dialled(&mut lone), [(1, 0), (1, 2)]);
    // A refused one is dialled again after the longest pause.
    down(&mut lone, 1);
    down(&mut lone, 2);
    assert_eq!(dialled(&mut lone), []);
    lone.now += config().redial_max.0;
    assert_eq!(dialled(&mut lone), [(1, 1), (1, 2)]);

    let mut own = Region::of(&config());
    let mut lone = Lone::over(&mut own, &config(), &[TCP, TCP], 1);
    lone.feed(connect(0), 0);
    lone.sent();
    lone.busy = true;
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    lone.sent();
    down(&mut lone, 0);
    while lone.endpoint.poll_event().is_some() {}
    moves(&mut lone, 1, "b:1");
    assert_eq!(dialled(&mut lone), [], "it does not lead there");
    // Peer 0 is no exception.
    lone.endpoint.t.peers[1].unnotified = false;
    lone.endpoint.add_peer(PeerId(0), 0b11).unwrap();
    (lone.endpoint.t.peers[0].gone, lone.endpoint.t.peers[0].unnotified) = (true, true);
    moves(&mut lone, 1, "b:2");
    assert_eq!(dialled(&mut lone), [(0, 1)]);
}

/// F-1, G-10: shutdown-only connections have numbers of their own, another one each time, whatever the
/// counter was.
#[test]
fn numbers_of_goodbyes_are_apart() {
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 2);
    let first = config().first_number;
    let mut seen = BTreeSet::new();
    for dropped in [0, 0, 1 << 28, u64::from(u32::MAX) - 9] {
        if dropped > 0 {
            lone.endpoint.stats.stale_dropped = dropped;
        }
        let before = lone.endpoint.stats().stale_dropped;
        up(&mut lone, 1);
        assert_eq!(lone.endpoint.stats().stale_dropped, before + 1);
        let (numbers, byes) = connects_and_byes(&mut lone);
        let [(1, number)] = numbers[..] else { panic!("{numbers:?}") };
        assert!(is_shutdown(first, number), "{number:x}");
        assert!(seen.insert(number), "{number:x} again");
        assert_eq!(byes, []);
        down(&mut lone, 1);
    }
}

/// G-10: a peer that connects over several rails receives BYE on each, and each is closed, though a batch has
/// not room for all.
#[test]
fn every_late_connection_receives_a_bye() {
    for rails in [2, 20] {
        let mut own = Region::of(&config());
        let mut lone = left_without_bye(&mut own, rails);
        let all: Vec<u8> = (0..rails).collect();
        all.iter().for_each(|&rail| up(&mut lone, rail));
        assert_eq!(connects_and_byes(&mut lone).0.iter().map(|(rail, _)| *rail).collect::<Vec<_>>(), all);
        lone.busy = true;
        all.iter().for_each(|&rail| assert_eq!(lone.feed_on(rail, connect(rail), 0, |_| {}), Arrival::Discard));
        assert_eq!(connects_and_byes(&mut lone), (vec![], all.clone()));
        assert_eq!(lone.closed, []);
        lone.busy = false;
        for id in core::mem::take(&mut lone.held) {
            lone.endpoint.handle_completion(Time(lone.now), id, PostStatus::Done);
        }
        lone.sent();
        assert_eq!(lone.closed.iter().map(|rail| rail.0).collect::<Vec<_>>(), all);
        assert!(lone.endpoint.t.channels.is_empty());
    }
}

/// G-10: a late connection without any packet lasts for ten of the longest pauses between dials, on each
/// rail.
#[test]
fn a_silent_caller_is_hung_up() {
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 2);
    lone.now = 1_000_000_000;
    (0..2).for_each(|rail| up(&mut lone, rail));
    assert_eq!(connects_and_byes(&mut lone).0.len(), 2);
    let timeout = config().redial_max.0 * 10;
    assert!(timeout < config().connect_timeout.0);
    lone.now += timeout - 1;
    lone.endpoint.handle_timeout(Time(lone.now));
    lone.sent();
    assert_eq!(lone.closed, []);
    lone.now += 1;
    lone.endpoint.handle_timeout(Time(lone.now));
    lone.sent();
    assert_eq!(lone.closed, [RailId(0), RailId(1)]);
    assert!(lone.endpoint.t.channels.is_empty());
}

/// G-10: a late connection whose CONNECT numbers it 0, an invalid number, is ended at once.
#[test]
fn a_caller_whose_connection_has_no_number_is_hung_up() {
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 2);
    lone.now = 1_000_000_000;
    (0..2).for_each(|rail| up(&mut lone, rail));
    lone.sent();
    lone.feed_on(1, Body::Connect(Connect { rail: PEER_RAIL + 1, connection: 0, ..PEER_PARAMETERS }), 0, |_| {});
    lone.sent();
    assert_eq!(lone.closed, [RailId(1)]);
    lone.feed_on(0, connect(0), 0, |_| {});
    lone.sent();
    assert_eq!(lone.closed, [RailId(1), RailId(0)], "the other receives BYE");
    assert!(lone.endpoint.t.channels.is_empty());
}

/// Rails dialled and rails ended now.
pub(super) fn dialled_and_ended(lone: &mut Lone<'_>) -> (Vec<u8>, Vec<u8>) {
    lone.endpoint.handle_timeout(Time(lone.now));
    let (mut dialled, mut ended, mut actions) = (Vec::new(), Vec::new(), heapless::Vec::new());
    while lone.endpoint.poll_actions(Time(lone.now), &mut actions) > 0 {
        for action in actions.drain(..) {
            match action {
                Action::Connect { rail, .. } => dialled.push(rail.0),
                Action::Abort { rail, .. } | Action::Disconnect { rail, .. } => ended.push(rail.0),
                Action::Post(post) => lone.endpoint.handle_completion(Time(lone.now), post.id, PostStatus::Done),
                other => panic!("{other:?}"),
            }
        }
    }
    (dialled, ended)
}

/// F-11, G-10: two rails have moved. One comes up, and the peer sends nothing on it: that connection is ended
/// after ten of the longest pauses, whatever the other rail does, and made again. The other is dialled for
/// `connect_timeout` from its move on.
#[test]
fn a_silent_connection_ends_by_itself_while_others_are_dialled() {
    let (redial_max, connect_timeout) = (config().redial_max.0, config().connect_timeout.0);
    let timeout = redial_max * 10;
    assert!(connect_timeout > 3 * timeout);
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 2);
    moves(&mut lone, 0, "a:1");
    assert_eq!(dialled_and_ended(&mut lone), (vec![0], vec![]));
    up(&mut lone, 0);
    assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]));
    lone.now = timeout / 2;
    lone.endpoint.handle_timeout(Time(lone.now));
    moves(&mut lone, 1, "b:1");
    let moved = lone.now;
    assert_eq!(dialled_and_ended(&mut lone), (vec![1], vec![]));
    down(&mut lone, 1);
    lone.now = timeout - 1;
    assert_eq!(dialled_and_ended(&mut lone), (vec![1], vec![]));
    lone.now = timeout;
    assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![0]));
    lone.now += redial_max;
    assert_eq!(dialled_and_ended(&mut lone), (vec![0], vec![]));
    up(&mut lone, 0);
    down(&mut lone, 1);
    assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]));
    // The second silent connection ends, too; the other rail is still dialled.
    lone.now += timeout;
    assert_eq!(dialled_and_ended(&mut lone), (vec![1], vec![0]));
    lone.now += redial_max;
    assert_eq!(dialled_and_ended(&mut lone), (vec![0], vec![]));
    down(&mut lone, 0);
    down(&mut lone, 1);
    lone.now = moved + connect_timeout - 1;
    assert_eq!(dialled_and_ended(&mut lone), (vec![0, 1], vec![]));
    // A connection that is made in time sends BYE after that.
    up(&mut lone, 1);
    lone.now = moved + connect_timeout;
    assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![0]));
    lone.feed_on(1, connect(1), 0, |_| {});
    assert_eq!(connects_and_byes(&mut lone), (vec![], vec![1]));
    assert_eq!(lone.closed, [RailId(1)]);
    assert!(lone.endpoint.t.channels.is_empty());
}

/// F-12: the address of the first rail is announced as that of any other: now, and over one that comes up
/// later; over any number of rails; and not behind BYE (G-7).
#[test]
fn address_of_every_rail_is_sent_over_the_other_rails() {
    let reported = |lone: &mut Lone<'_>| {
        lone.rails.clear();
        let sent = lone.sent();
        let over = sent.iter().zip(&lone.rails);
        over.filter(|(packet, _)| matches!(packet.body, Body::Address(_))).map(|(_, by)| by.0).collect::<Vec<_>>()
    };
    let mut own = Region::of(&config());
    let mut lone = Lone::connected(&mut own, &config(), &[TCP; 3]);
    moves(&mut lone, 0, "a:1");
    assert_eq!(reported(&mut lone), [1, 2]);
    down(&mut lone, 1);
    up(&mut lone, 1);
    lone.feed_on(1, Body::Connect(Connect { rail: PEER_RAIL + 1, connection: 2, ..PEER_PARAMETERS }), 0, |_| {});
    assert_eq!(reported(&mut lone), [1]);

    let mut own = Region::of(&config());
    let mut lone = Lone::connected(&mut own, &config(), &[TCP; 20]);
    lone.busy = true;
    moves(&mut lone, 0, "a:1");
    assert_eq!(reported(&mut lone), (1..20).collect::<Vec<_>>());

    let mut own = Region::of(&config());
    let mut lone = Lone::connected(&mut own, &config(), &[TCP; 3]);
    lone.busy = true;
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    assert_eq!(lone.sent().len(), 3);
    moves(&mut lone, 1, "b:1");
    let first = lone.held[0];
    lone.endpoint.handle_completion(Time(0), first, PostStatus::Done);
    assert_eq!(reported(&mut lone), []);
}

/// G-7, F-11: BYEs that no rail completes are all given up, after the timeout of a sole rail; without that
/// limit the core waits for them. The timeout counts from the first check, not from time 0.
#[test]
fn goodbyes_that_are_stuck_are_given_up_on_every_rail() {
    let late = 200_000_000..=260_000_000;
    for (rails, lone_max, within) in
        [(1, 200_000_000, Some(late.clone())), (2, 200_000_000, Some(late)), (1, 0, None), (2, 0, None)]
    {
        let config = Config { stall_min: Nanos(4_000_000), stall_lone: Nanos(lone_max), ..config() };
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[TCP; 20][..rails]);
        let begun = 30_000_000_000;
        lone.now = begun;
        lone.endpoint.handle_timeout(Time(begun));
        lone.sent();
        lone.stuck = u64::MAX;
        lone.endpoint.close_peer(PeerId(1)).unwrap();
        let mut closed = None;
        while lone.now < begun + 1_000_000_000 && closed.is_none() {
            lone.sent();
            while let Some(event) = lone.endpoint.poll_event() {
                if matches!(event, Event::PeerClosed { .. }) {
                    closed = Some(lone.now - begun);
                }
            }
            lone.now += 1_000_000;
            lone.endpoint.handle_timeout(Time(lone.now));
        }
        assert_eq!(closed.is_some(), within.is_some(), "{rails} rails, {lone_max}: {closed:?}");
        assert!(closed.zip(within).is_none_or(|(at, within)| within.contains(&at)), "{rails} rails: {closed:?}");
    }
}

/// G-1, G-10: a peer whose next connection is reported before the end of the last one receives CONNECT and
/// BYE on that, too.
#[test]
fn peer_that_reconnects_receives_connect_and_bye_again() {
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 1);
    lone.busy = true;
    for _ in 0..2 {
        up(&mut lone, 0);
        lone.busy = false;
        assert_eq!(connects_and_byes(&mut lone).0.len(), 1);
        lone.busy = true;
        lone.feed(connect(0), 0);
        assert_eq!(connects_and_byes(&mut lone).1, [0]);
    }
}
