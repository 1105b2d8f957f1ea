//! Rails that neither fail nor do their work, told packet by packet (F-11).

use super::lone::Lone;
use super::*;
use crate::wire::{Body, Probe};

/// A rail that says nothing is asked (F-11); gives the nonce, at the time of asking.
fn wait_for_question(lone: &mut Lone<'_>, rail: u8) -> u64 {
    for _ in 0..20 {
        lone.now += 1_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.rails.clear();
        let sent = lone.sent();
        let probe = sent.iter().zip(&lone.rails).find_map(|(packet, on)| match packet.body {
            Body::Probe(Probe { nonce, answer: false }) if on.0 == rail => Some(nonce),
            _ => None,
        });
        if let Some(nonce) = probe {
            return nonce;
        }
    }
    panic!("rail {rail} is not asked")
}

/// F-11: the order of a subchannel judges it. A packet that went before a probe that is answered, and is not there, is lost;
/// so is the connection.
#[test]
fn a_packet_that_vanishes_is_found_out() {
    let config = Config { stall_min: Nanos(4_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.send(1, 10);
    lone.sent();
    lone.closed.clear();
    let nonce = wait_for_question(&mut lone, 0);
    lone.feed(Body::Probe(Probe { nonce: nonce ^ 1, answer: true }), 0);
    lone.sent();
    assert_eq!(lone.closed, []);
    lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
    lone.sent();
    assert_eq!(lone.closed, [RailId(0)]);
    // One that is there, is no reason.
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.send(1, 10);
    lone.sent();
    lone.closed.clear();
    let nonce = wait_for_question(&mut lone, 0);
    lone.acks[0] = 1;
    lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
    lone.sent();
    assert_eq!(lone.closed, []);
}

/// F-11: a post that is not through long after a probe behind it is answered never will be.
#[test]
fn a_post_that_never_ends_is_found_out() {
    let config = Config { stall_min: Nanos(4_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.busy = true;
    lone.send(1, 10);
    lone.sent();
    lone.busy = false;
    lone.closed.clear();
    let nonce = wait_for_question(&mut lone, 0);
    lone.acks[0] = 1;
    lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
    lone.now += 3_000_000;
    lone.endpoint.handle_timeout(Time(lone.now));
    lone.sent();
    assert_eq!(lone.closed, []);
    lone.now += 5_000_000;
    lone.endpoint.handle_timeout(Time(lone.now));
    lone.sent();
    assert_eq!(lone.closed, [RailId(0)]);
}

/// F-11: a rail on which no answer comes is given up when the peer was heard on another one and does not answer a second
/// time. A peer that says nothing at all is let be, for `stall_lone`.
#[test]
fn silence_counts_only_where_others_speak() {
    let config = Config { stall_min: Nanos(4_000_000), stall_lone: Nanos(200_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
    lone.send(1, 10);
    lone.sent();
    lone.closed.clear();
    let first = wait_for_question(&mut lone, 0);
    lone.now += 1;
    lone.feed_on(1, Body::Credit, 0, |_| {});
    let second = wait_for_question(&mut lone, 0);
    assert_ne!(first, second);
    assert_eq!(lone.closed, []);
    for _ in 0..5 {
        lone.now += 1_000_000;
        lone.feed_on(1, Body::Credit, 0, |_| {});
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.sent();
    }
    assert_eq!(lone.closed, [RailId(0)]);

    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
    lone.send(1, 10);
    lone.sent();
    lone.closed.clear();
    while lone.closed.is_empty() {
        lone.now += 1_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.sent();
        assert!(lone.now < 230_000_000, "never");
    }
    assert!(lone.now > 200_000_000, "{}", lone.now);
}

/// F-9, F-11: a peer that only computes is not lost, neither over a rail that loses nothing nor without recovery.
#[test]
fn a_peer_that_computes_is_not_lost() {
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

/// G-6, F-11: a probe on each rail is answered on each, also where they come at once.
#[test]
fn every_rail_answers_for_itself() {
    let mut region = Region::of(&small());
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    lone.feed_on(0, Body::Probe(Probe { nonce: 1, answer: false }), 0, |_| {});
    lone.feed_on(1, Body::Probe(Probe { nonce: 2, answer: false }), 0, |_| {});
    lone.rails.clear();
    let sent = lone.sent();
    let mut answers: Vec<_> =
        sent.iter().zip(&lone.rails).map(|(packet, rail)| (rail.0, packet.body.clone())).collect();
    answers.sort_by_key(|answer| answer.0);
    let answer = |nonce| Body::Probe(Probe { nonce, answer: true });
    assert_eq!(answers, [(0, answer(1)), (1, answer(2))]);
}
