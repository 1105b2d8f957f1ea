//! Peers that compute: no call is made for long, and nothing ends (F-9, F-11, F-13).

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::down;
use super::*;
use crate::wire::{Body, Connect, Probe};

/// F-9, F-11: a peer that only computes is not lost, neither over a lossless rail nor without recovery.
#[test]
fn computing_peer_is_not_reported_lost() {
    for (recovery, rail) in [(true, SHM), (false, TCP)] {
        let config = Config { stall_min: Nanos(4_000_000), stall_lone: Nanos(200_000_000), recovery, ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[rail]);
        lone.send(1, 10);
        lone.sent();
        while lone.now < 400_000_000 {
            lone.now += 1_000_000;
            lone.endpoint.handle_timeout(Time(lone.now));
            lone.sent();
        }
        while let Some(event) = lone.endpoint.poll_event() {
            assert!(!matches!(event, Event::PeerLost { .. }), "{event:?}");
        }
    }
}

/// F-9, F-11, F-13: with default deadlines, a peer that computes for ten hours is not lost, nor is any of its
/// connections, over one rail or two, with an acknowledgment pending or not; nothing is sent again.
#[test]
fn by_default_a_peer_may_compute_for_hours() {
    let hours = Time(0) + Nanos::from_millis(36_000_000);
    let config = Config { keepalive: Nanos::from_millis(10_000), stall_min: Nanos::from_millis(100), ..small() };
    for (rails, sends) in [(1, 0), (1, 5), (2, 0), (2, 5)] {
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP; 2][..rails]);
        // Some posts stay with the rail, as with a window that is closed.
        for number in 0..sends {
            lone.busy = number > 2;
            lone.send(number, 10);
            lone.sent();
        }
        lone.closed.clear();
        let mut sent = Vec::new();
        while let Some(next) = lone.endpoint.next_timeout().filter(|next| *next < hours) {
            lone.now = next.0;
            lone.endpoint.handle_timeout(next);
            sent.extend(lone.sent());
        }
        assert_eq!(lone.closed, []);
        assert!(sent.iter().all(|packet| matches!(packet.body, Body::Probe(_))), "{sent:?}");
        assert!(sent.len() < 40, "{} probes in ten hours", sent.len());
        assert!(std::iter::from_fn(|| lone.endpoint.poll_event()).all(|event| matches!(event, Event::Completed(_))));
        assert_eq!(lone.endpoint.stats().replayed, 0);
    }
}

/// F-11: a connection without the peer's CONNECT is ended if the peer makes calls, and only then.
#[test]
fn a_connect_that_does_not_come_is_waited_for_while_the_peer_computes() {
    let config = Config { stall_min: Nanos(4_000_000), ..small() };
    for makes_calls in [false, true] {
        let mut region = Region::of(&config);
        let mut lone = Lone::up(&mut region, &config, &[TCP, TCP]);
        lone.feed_on(0, Body::Connect(Connect { rail: PEER_RAIL, ..PEER_PARAMETERS }), 0, |_| {});
        lone.sent();
        while lone.now < 4_000_000_000 && lone.closed.is_empty() {
            lone.now += 1_000_000;
            lone.endpoint.handle_timeout(Time(lone.now));
            if makes_calls {
                lone.feed_on(0, Body::Credit, 0, |_| {});
            }
            lone.sent();
        }
        assert_eq!(lone.closed, if makes_calls { vec![RailId(1)] } else { vec![] });
    }
}

/// F-9: a peer that has opened its only connection and then computes is not lost.
#[test]
fn a_standing_connection_without_connect_is_a_sign_of_life() {
    let config = Config { connect_timeout: Nanos(300_000_000), stall_min: Nanos(4_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::up(&mut region, &config, &[TCP]);
    lone.sent();
    while lone.now < 9_000_000_000 {
        lone.now += 1_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.sent();
    }
    assert_eq!((lone.closed.as_slice(), lone.endpoint.poll_event()), ([].as_slice(), None));
}

/// F-11: a frame that waits for a peer that computes is not stuck when the peer goes on, but one that stays
/// while others are delivered is.
#[test]
fn idle_time_of_a_computing_peer_is_not_a_stall() {
    let config = Config { stall_min: Nanos(4_000_000), keepalive: Nanos(100_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.busy = true;
    lone.send(1, 10);
    while lone.now < 3_600_000_000 {
        lone.now += 1_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.sent();
    }
    lone.closed.clear();
    let resumed = lone.now;
    while lone.closed.is_empty() {
        lone.now += 1_000_000;
        lone.feed(Body::Credit, 0);
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.sent();
        assert!(lone.now < resumed + 60_000_000, "never");
    }
    assert!(lone.now >= resumed + 8_000_000, "{} ns after it goes on", lone.now - resumed);
}

/// F-11: nor is a frame that a peer reads late, but one that stays while packets of the peer come again and
/// again.
#[test]
fn a_frame_that_outlasts_sixteen_turns_of_the_peer_is_stuck() {
    let config = Config { stall_min: Nanos(4_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.busy = true;
    lone.feed(Body::Probe(Probe { nonce: 7, answer: false }), 0);
    lone.sent();
    lone.closed.clear();
    for turn in 0..17 {
        assert!(lone.closed.is_empty(), "turn {turn}");
        lone.now += 500_000;
        lone.feed(Body::Credit, 0);
        for _ in 0..20 {
            lone.now += 1_000_000;
            lone.endpoint.handle_timeout(Time(lone.now));
            lone.sent();
        }
    }
    assert_eq!(lone.closed, [RailId(0)]);
}

/// F-9: while a dial waits at the kernel of a peer that computes, the peer is not lost; once no kernel
/// answers for it, it is.
#[test]
fn a_queued_dial_is_a_sign_of_life() {
    const TIMEOUT: u64 = 300_000_000;
    let config = Config { recovery_timeout: Nanos(TIMEOUT), connect_timeout: Nanos(TIMEOUT), ..small() };
    for is_met in [true, false] {
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        let peer = PeerId(if is_met { 1 } else { 2 });
        if is_met {
            down(&mut lone, 0, RailFault::Closed);
        } else {
            lone.endpoint.add_peer(peer, 1).unwrap();
            lone.endpoint.inject(Time(0), &SendRequest::new(peer, &[]), 0).unwrap();
        }
        lone.sent();
        let lost = |lone: &mut Lone<'_>| {
            let lost = |event| matches!(event, Event::PeerLost { .. });
            std::iter::from_fn(|| lone.endpoint.poll_event()).any(lost)
        };
        while lone.now < 10 * TIMEOUT {
            lone.now += TIMEOUT / 3;
            lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Queued { peer, rail: RailId(0) });
            lone.endpoint.handle_timeout(Time(lone.now));
            lone.sent();
            assert!(!lost(&mut lone), "{}", lone.now);
        }
        lone.now += TIMEOUT + 1;
        lone.endpoint.handle_timeout(Time(lone.now));
        assert!(lost(&mut lone));
    }
}

/// F-9, G-7: no request needs a peer that was never met and is being closed, so a dial that waits for it does
/// not keep its channel.
#[test]
fn closing_does_not_wait_for_a_queued_dial() {
    const TIMEOUT: u64 = 300_000_000;
    let config = Config { connect_timeout: Nanos(TIMEOUT), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    let peer = PeerId(2);
    lone.endpoint.add_peer(peer, 1).unwrap();
    lone.endpoint.open_channel(Time(0), peer).unwrap();
    lone.sent();
    lone.endpoint.close_peer(peer).unwrap();
    let mut is_closed = false;
    while lone.now < 2 * TIMEOUT {
        lone.now += TIMEOUT / 3;
        lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Queued { peer, rail: RailId(0) });
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.sent();
        is_closed |= std::iter::from_fn(|| lone.endpoint.poll_event()).any(|event| event == Event::PeerClosed { peer });
    }
    assert!(is_closed);
}
