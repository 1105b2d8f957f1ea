//! Stalled rails that report no failure, packet by packet (F-11), and silent peers (F-13).

use super::lone::{Lone, PEER_PARAMETERS, PEER_RAIL};
use super::recovery::down;
use super::*;
use crate::wire::{Body, Connect, Probe};

/// Waits for the probe of a silent rail (F-11); returns the nonce, at the time of the probe.
fn wait_for_probe(lone: &mut Lone<'_>, rail: u8) -> u64 {
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
    panic!("no probe is sent over rail {rail}")
}

/// One message is in flight over rail 0.
fn in_flight<'m>(region: &'m mut Region, config: &Config, rails: &[RailFacts]) -> Lone<'m> {
    let mut lone = Lone::connected(region, config, rails);
    lone.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
    lone.send(1, 10);
    lone.sent();
    lone.closed.clear();
    lone
}

/// The same, over the only rail, which stays silent; returns the nonce of its probe.
fn probed_for_a_packet<'m>(region: &'m mut Region, config: &Config) -> (Lone<'m>, u64) {
    let mut lone = in_flight(region, config, &[TCP]);
    let nonce = wait_for_probe(&mut lone, 0);
    (lone, nonce)
}

/// F-11: the order of a subchannel decides. A packet sent before an answered probe, and not received, is
/// lost; so is the connection.
#[test]
fn a_packet_that_vanishes_is_found_out() {
    let config = Config { stall_min: Nanos(4_000_000), ..small() };
    let mut region = Region::of(&config);
    let (mut lone, nonce) = probed_for_a_packet(&mut region, &config);
    lone.feed(Body::Probe(Probe { nonce: nonce ^ 1, answer: true }), 0);
    lone.sent();
    assert_eq!(lone.closed, []);
    lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
    lone.sent();
    assert_eq!(lone.closed, [RailId(0)]);
    // A received packet is no reason.
    let mut region = Region::of(&config);
    let (mut lone, nonce) = probed_for_a_packet(&mut region, &config);
    lone.acks[0] = 1;
    lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
    lone.sent();
    assert_eq!(lone.closed, []);
}

/// F-11: a post that is incomplete long after the answer to a probe behind it never completes.
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
    let nonce = wait_for_probe(&mut lone, 0);
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

/// F-11: a rail without an answer is given up when the peer was active on another one and does not answer a
/// second time. A peer that is silent on all is left alone, for `stall_lone`.
#[test]
fn silent_rail_is_abandoned_only_if_another_rail_is_active() {
    let config = Config { stall_min: Nanos(4_000_000), stall_lone: Nanos(200_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = in_flight(&mut region, &config, &[TCP, TCP]);
    let first = wait_for_probe(&mut lone, 0);
    lone.now += 1;
    lone.feed_on(1, Body::Credit, 0, |_| {});
    let second = wait_for_probe(&mut lone, 0);
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
    let mut lone = in_flight(&mut region, &config, &[TCP, TCP]);
    while lone.closed.is_empty() {
        lone.now += 1_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.sent();
        assert!(lone.now < 230_000_000, "never");
    }
    assert!(lone.now > 200_000_000, "{}", lone.now);
}

/// F-11: when everything waits for one rail, the others are silent unless probed, and are probed as often as
/// needed; a peer that answers on none is not probed forever.
#[test]
fn idle_rails_are_probed_when_all_work_waits_for_one_rail() {
    let config = Config { stall_min: Nanos(4_000_000), stall_lone: Nanos(400_000_000), ..small() };
    for answers in [true, false] {
        let mut region = Region::of(&config);
        let mut lone = in_flight(&mut region, &config, &[TCP, TCP]);
        // The other rail received after this one, and has been idle since.
        lone.now = 3_000_000;
        lone.feed_on(1, Body::Credit, 0, |_| {});
        let mut stall_probe = [0, 0];
        while lone.closed.is_empty() && lone.now < 300_000_000 {
            lone.now += 1_000_000;
            for (rail, nonce) in probes_sent(&mut lone) {
                stall_probe[usize::from(rail)] += 1;
                if rail == 1 && answers {
                    lone.now += 1;
                    lone.feed_on(1, Body::Probe(Probe { nonce, answer: true }), 0, |_| {});
                }
            }
        }
        if answers {
            assert_eq!((lone.closed.as_slice(), stall_probe), ([RailId(0)].as_slice(), [2, 2]));
            assert!(lone.now <= 30_000_000, "{}", lone.now);
        } else {
            assert_eq!((lone.closed.as_slice(), stall_probe), ([].as_slice(), [1, 1]));
        }
    }
}

/// F-11, F-9: a peer with a pending acknowledgment, reachable only over a rail that may have lost it, has
/// `stall_lone` and `recovery_timeout` to compute; one connection that comes up in between is enough.
#[test]
fn computing_peer_with_pending_acks_has_both_timeouts() {
    const STALL_LONE: u64 = 200_000_000;
    const RECOVERY_TIMEOUT: u64 = 300_000_000;
    let config = Config {
        stall_min: Nanos(4_000_000),
        stall_lone: Nanos(STALL_LONE),
        recovery_timeout: Nanos(RECOVERY_TIMEOUT),
        ..small()
    };
    for returns in [false, true] {
        let mut region = Region::of(&config);
        let mut lone = in_flight(&mut region, &config, &[TCP]);
        let (mut ended_at, mut lost_at) = (None, None);
        while lone.now < 2 * (STALL_LONE + RECOVERY_TIMEOUT) && lost_at.is_none() {
            lone.now += 1_000_000;
            lone.endpoint.handle_timeout(Time(lone.now));
            lone.sent();
            if lone.closed.pop().is_some() && ended_at.is_none() {
                ended_at = Some(lone.now);
                down(&mut lone, 0, RailFault::TimedOut);
            }
            if returns && lone.now == STALL_LONE + RECOVERY_TIMEOUT {
                lone.endpoint.handle_rail_event(Time(lone.now), RailEvent::Up { peer: PeerId(1), rail: RailId(0) });
                let connect = Connect { connection: 2, answer: true, ..PEER_PARAMETERS };
                lone.feed(Body::Connect(connect), 0);
                let again = lone.sent();
                assert!(again.iter().any(|packet| matches!(packet.body, Body::Eager(_))), "{again:?}");
                lone.acks[0] = 1;
                lone.feed(Body::Credit, 0);
            }
            while let Some(event) = lone.endpoint.poll_event() {
                if let Event::PeerLost { why: Loss { reason: LossReason::Unreachable { .. }, .. }, .. } = event {
                    lost_at = Some(lone.now);
                }
            }
        }
        let ended_at = ended_at.expect("the rail is probed, and no answer comes");
        assert!((STALL_LONE..STALL_LONE + 30_000_000).contains(&ended_at), "{ended_at}");
        assert_eq!(lost_at, (!returns).then_some(ended_at + RECOVERY_TIMEOUT));
    }
}

/// G-6, F-11: a probe on each rail is answered on each, also if they arrive together.
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

/// The probes sent at a time, by rail.
fn probes_sent(lone: &mut Lone<'_>) -> Vec<(u8, u64)> {
    lone.endpoint.handle_timeout(Time(lone.now));
    lone.rails.clear();
    let sent = lone.sent();
    let on = |rail: &RailId, packet: &crate::wire::Repr| match packet.body {
        Body::Probe(Probe { nonce, answer: false }) => Some((rail.0, nonce)),
        _ => None,
    };
    sent.iter().zip(&lone.rails).filter_map(|(packet, rail)| on(rail, packet)).collect()
}

/// F-13: a silent peer with nothing in flight is probed on every rail, and so is one that only a wildcard
/// receive waits for. A packet on any rail postpones it.
#[test]
fn silent_peer_is_probed_on_every_rail() {
    let config = Config { stall_min: Nanos(4_000_000), keepalive: Nanos(100_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
    lone.recv(1, 10);
    lone.now = 50_000_000;
    assert_eq!(probes_sent(&mut lone), []);
    lone.feed_on(1, Body::Credit, 0, |_| {});
    lone.now = 120_000_000;
    assert_eq!(probes_sent(&mut lone), []);
    assert_eq!(lone.endpoint.next_obligation(), None, "nothing is under way");
    let due = lone.endpoint.next_timeout().expect("a host has to wake for it");
    assert_eq!(due.0, 150_000_000);
    lone.now = due.0;
    let stall_probe = probes_sent(&mut lone);
    assert_eq!(stall_probe.iter().map(|(rail, _)| *rail).collect::<Vec<_>>(), [0, 1]);
    // Both answer: nothing is in flight any more, and 100 ms later they are probed again.
    for (rail, nonce) in stall_probe {
        lone.feed_on(rail, Body::Probe(Probe { nonce, answer: true }), 0, |_| {});
    }
    lone.now += 10_000_000;
    assert_eq!(probes_sent(&mut lone), []);
    assert_eq!(lone.endpoint.next_obligation(), None);
    lone.now += 120_000_000;
    assert_eq!(probes_sent(&mut lone).len(), 2);
    assert_eq!(lone.closed, []);
    // It can be turned off and on.
    lone.endpoint.set_keepalive(Time(lone.now), Nanos(0));
    for later in [10_000_000, 10_000_000, 1_000_000_000] {
        lone.now += later;
        assert_eq!(probes_sent(&mut lone), []);
    }
    assert_eq!(lone.endpoint.next_timeout(), None);
    lone.endpoint.set_keepalive(Time(lone.now), Nanos(50_000_000));
    lone.now += 50_000_000;
    assert_eq!(probes_sent(&mut lone).len(), 2);
}

/// F-11, F-13: a post that never completes is detected, however often the peer is probed for keep-alive
/// meanwhile, on its rail and on another, and answers: no probe replaces one whose answer is still needed.
#[test]
fn signs_of_life_hide_no_post_that_never_ends() {
    for (keepalive, rails) in [(1_000_000, 1), (4_000_000, 1), (4_000_000, 2), (20_000_000, 2)] {
        let config = Config { stall_min: Nanos(4_000_000), keepalive: Nanos(keepalive), ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP; 2][..rails]);
        lone.endpoint.set_policy(MessageClass::Small, Policy::named("binding").unwrap());
        lone.busy = true;
        lone.send(1, 10);
        lone.sent();
        lone.busy = false;
        lone.acks[0] = 1;
        while lone.now < 60_000_000 && lone.closed.is_empty() {
            lone.now += 500_000;
            for (rail, nonce) in probes_sent(&mut lone) {
                lone.feed_on(rail, Body::Probe(Probe { nonce, answer: true }), 0, |_| {});
            }
        }
        assert_eq!(lone.closed, [RailId(0)], "probed every {keepalive} ns over {rails} rails");
        lone.closed.clear();
        while lone.now < 120_000_000 {
            lone.now += 500_000;
            for (rail, nonce) in probes_sent(&mut lone) {
                lone.feed_on(rail, Body::Probe(Probe { nonce, answer: true }), 0, |_| {});
            }
        }
        assert_eq!(lone.closed, []);
    }
}

/// F-13: with a `keepalive` far too short a peer that answers at once is probed on its two rails 10,000 times
/// a second in total, not 20,000 times 1,000; neither a returning connection nor setting the time anew
/// advances the next probe.
#[test]
fn questions_are_paced_however_short_keepalive_is() {
    let config = Config { stall_min: Nanos(4_000_000), keepalive: Nanos(1_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
    let (mut stall_probe, mut again) = (0, false);
    let mut not_before = 0;
    while lone.now < 10_000_000 {
        lone.now += 1_000;
        if lone.now == 5_000_000 {
            lone.endpoint.set_keepalive(Time(lone.now), config.keepalive);
        }
        let probes_sent = probes_sent(&mut lone);
        assert!(probes_sent.is_empty() || lone.now >= not_before, "at {} ns, not before {not_before} ns", lone.now);
        if !probes_sent.is_empty() {
            not_before = lone.now + 100_000 * probes_sent.len() as u64;
        }
        for (rail, nonce) in probes_sent {
            stall_probe += 1;
            lone.feed_on(rail, Body::Probe(Probe { nonce, answer: true }), 0, |_| {});
            if rail == 1 && stall_probe >= 50 && !core::mem::replace(&mut again, true) {
                let up = RailEvent::Up { peer: PeerId(1), rail: RailId(1) };
                lone.endpoint.handle_rail_event(Time(lone.now), up);
                let connect = Body::Connect(Connect { rail: PEER_RAIL + 1, connection: 2, ..PEER_PARAMETERS });
                lone.feed_on(1, connect, 0, |_| {});
            }
        }
    }
    assert!(again && (90..=100).contains(&stall_probe), "{stall_probe} questions in 10 ms");
}

/// F-13: a peer on a rail that reports its end is not probed, and with a time of 0 no peer is.
#[test]
fn peer_on_a_rail_that_reports_its_end_is_not_probed() {
    let cases: [(u64, &[RailFacts]); 2] = [(100_000_000, &[SHM, TCP]), (0, &[TCP])];
    for (keepalive, rails) in cases {
        let config = Config { keepalive: Nanos(keepalive), ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, rails);
        for _ in 0..20 {
            lone.now += 50_000_000;
            assert_eq!(probes_sent(&mut lone), []);
        }
    }
}

/// F-13, F-9: a probed peer that is unreachable is lost in the end, though nothing was in flight. Rails fail
/// by themselves, or never complete the probe (F-11).
#[test]
fn silently_dead_peer_is_reported_lost() {
    for fails in [true, false] {
        let config = Config {
            stall_min: Nanos(4_000_000),
            stall_lone: Nanos(200_000_000),
            keepalive: Nanos(100_000_000),
            recovery_timeout: Nanos(300_000_000),
            ..small()
        };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
        lone.recv(1, 10);
        lone.busy = true;
        let (mut stall_probe, mut why) = (0, None);
        while lone.now < 2_000_000_000 && why.is_none() {
            lone.now += 1_000_000;
            for (rail, _) in probes_sent(&mut lone) {
                stall_probe += 1;
                if fails {
                    let fault = RailFault::Device { code: 12 };
                    let down = RailEvent::Down { peer: PeerId(1), rail: RailId(rail), fault };
                    lone.endpoint.handle_rail_event(Time(lone.now), down);
                }
            }
            while let Some(event) = lone.endpoint.poll_event() {
                if let Event::PeerLost { why: lost, .. } = event {
                    why = Some(lost.reason);
                }
            }
        }
        assert_eq!(stall_probe, 2, "one question on each rail is enough");
        assert!(matches!(why, Some(LossReason::Unreachable { .. })), "{why:?}");
        assert!(lone.now > 300_000_000 && lone.now < 900_000_000, "{}", lone.now);
    }
}

/// F-13: silence alone ends nothing. A peer that does not answer is probed less and less, because probes wait
/// in its receive buffers; once it is back nothing has happened.
#[test]
fn long_computing_peer_is_probed_less_often_and_not_lost() {
    let config = Config {
        stall_min: Nanos(4_000_000),
        stall_lone: Nanos(200_000_000),
        keepalive: Nanos(100_000_000),
        recovery_timeout: Nanos(300_000_000),
        ..small()
    };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    let mut stall_probe = Vec::new();
    while lone.now < 3_600_000_000 {
        lone.now += 1_000_000;
        stall_probe.extend(probes_sent(&mut lone).iter().map(|_| lone.now / 1_000_000));
    }
    assert_eq!(lone.closed, []);
    assert!((5..=7).contains(&stall_probe.len()), "{stall_probe:?}");
    lone.feed(Body::Credit, 0);
    lone.now += 126_000_000;
    assert_eq!(probes_sent(&mut lone).len(), 1, "as often as before");
}

/// F-13, F-11: an idle rail without an answer to two probes, while another answers, is reconnected before it
/// is needed.
#[test]
fn an_idle_rail_that_is_dead_is_found_by_the_answer_on_another() {
    let config = Config { stall_min: Nanos(4_000_000), keepalive: Nanos(100_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
    while lone.now < 400_000_000 {
        lone.now += 1_000_000;
        for (rail, nonce) in probes_sent(&mut lone) {
            if rail == 0 {
                lone.feed_on(0, Body::Probe(Probe { nonce, answer: true }), 0, |_| {});
            }
        }
        if lone.closed.is_empty() {
            // The peer continues to send.
            lone.feed_on(0, Body::Credit, 0, |_| {});
        }
    }
    assert_eq!(lone.closed, [], "a peer that sends is not probed");
    while lone.now < 800_000_000 && lone.closed.is_empty() {
        lone.now += 1_000_000;
        for (rail, nonce) in probes_sent(&mut lone) {
            if rail == 0 {
                lone.now += 1_000;
                lone.feed_on(0, Body::Probe(Probe { nonce, answer: true }), 0, |_| {});
            }
        }
    }
    assert_eq!(lone.closed, [RailId(1)]);
}

/// F-11: a lost packet is also detected on a rail that stays active: by the answer, or because the peer sends
/// everything but the answer.
#[test]
fn a_rail_that_talks_answers_for_its_packets_too() {
    for answers in [true, false] {
        let config = Config { stall_min: Nanos(4_000_000), ..small() };
        let mut region = Region::of(&config);
        let mut lone = in_flight(&mut region, &config, &[TCP]);
        let mut stall_probe = Vec::new();
        while lone.now < 100_000_000 && lone.closed.is_empty() {
            lone.now += 500_000;
            lone.feed(Body::Credit, 0);
            for (_, nonce) in probes_sent(&mut lone) {
                stall_probe.push(lone.now);
                if answers {
                    lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
                    lone.sent();
                }
            }
        }
        assert_eq!(lone.closed, [RailId(0)]);
        assert!(stall_probe[0] <= 10_000_000, "{stall_probe:?}");
        assert_eq!(stall_probe.len(), if answers { 1 } else { 4 }, "{stall_probe:?}");
    }
    // A packet that is late and was received is no reason.
    let config = Config { stall_min: Nanos(4_000_000), ..small() };
    let mut region = Region::of(&config);
    let mut lone = in_flight(&mut region, &config, &[TCP]);
    while lone.now < 100_000_000 {
        lone.now += 500_000;
        lone.feed(Body::Credit, 0);
        for (_, nonce) in probes_sent(&mut lone) {
            lone.acks[0] = 1;
            lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
        }
    }
    assert_eq!(lone.closed, []);
}

/// F-11: packets sent before a probe are distinguished from those after it, however long ago that was.
#[test]
fn a_packet_is_old_after_a_minute_too() {
    let config = Config { stall_min: Nanos(4_000_000), stall_max: Nanos(4_000_000), stall_lone: Nanos(0), ..small() };
    for minutes_later in [40_000_000_000u64, 100_000_000_000] {
        let mut region = Region::of(&config);
        let mut lone = in_flight(&mut region, &config, &[TCP]);
        let nonce = wait_for_probe(&mut lone, 0);
        lone.now += minutes_later;
        // The probe is old as well, and its answer is late: it judges posts of that age.
        lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
        lone.sent();
        assert_eq!(lone.closed, [RailId(0)]);
        let mut region = Region::of(&config);
        let mut lone = in_flight(&mut region, &config, &[TCP]);
        let nonce = wait_for_probe(&mut lone, 0);
        lone.now += minutes_later;
        lone.send(2, 10);
        lone.sent();
        lone.acks[0] = 1;
        lone.feed(Body::Probe(Probe { nonce, answer: true }), 0);
        lone.sent();
        assert_eq!(lone.closed, [], "it went out behind the question");
    }
}

/// G-7, F-11: a BYE that a rail never completes does not block forever: it gets the timeout of a sole rail,
/// or, if another rail has sent BYE, that of any rail with work.
#[test]
fn stalled_bye_is_abandoned_after_its_timeout() {
    let (late, soon) = (200_000_000..=260_000_000, 4_000_000..=20_000_000);
    // A peer that receives BYE may close the connection before the other rail is given up.
    for (rails, leaves, lone_max, within) in [
        (&[TCP][..], false, 200_000_000, late),
        (&[TCP, TCP], false, 200_000_000, soon.clone()),
        (&[TCP, TCP], true, 200_000_000, soon.clone()),
        (&[TCP, TCP], true, 0, soon),
    ] {
        let config = Config { stall_min: Nanos(4_000_000), stall_lone: Nanos(lone_max), ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, rails);
        lone.stuck = 1;
        lone.endpoint.close_peer(PeerId(1)).unwrap();
        let mut closed = false;
        while lone.now < 1_000_000_000 && !closed {
            lone.sent();
            while let Some(event) = lone.endpoint.poll_event() {
                closed |= matches!(event, Event::PeerClosed { .. });
                assert!(!matches!(event, Event::PeerLost { .. }), "{event:?}");
            }
            lone.now += 1_000_000;
            if leaves && lone.now == 2_000_000 {
                let event = RailEvent::Down { peer: PeerId(1), rail: RailId(1), fault: RailFault::Closed };
                lone.endpoint.handle_rail_event(Time(lone.now), event);
            }
            lone.endpoint.handle_timeout(Time(lone.now));
        }
        assert!(closed && within.contains(&lone.now), "{rails:?}: {}", lone.now);
    }
}

/// G-7: BYE waits for the CONNECT of a lossless rail, whose end without BYE would be a loss to the peer, but
/// not forever: as long as for a sole rail.
#[test]
fn bye_waits_a_limited_time_for_a_lossless_rail_connect() {
    for comes in [true, false] {
        let config = Config { stall_min: Nanos(4_000_000), stall_lone: Nanos(200_000_000), ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::up(&mut region, &config, &[SHM, TCP]);
        lone.feed_on(1, Body::Connect(Connect { rail: PEER_RAIL + 1, ..PEER_PARAMETERS }), 0, |_| {});
        lone.endpoint.close_peer(PeerId(1)).unwrap();
        let mut byes_at = Vec::new();
        while lone.now < 300_000_000 {
            let byes = lone.sent().into_iter().filter(|packet| packet.body == Body::Bye).count();
            byes_at.extend((0..byes).map(|_| lone.now));
            if comes && lone.now == 100_000_000 {
                lone.feed_on(0, Body::Connect(PEER_PARAMETERS), 0, |_| {});
            }
            lone.now += 1_000_000;
            lone.endpoint.handle_timeout(Time(lone.now));
        }
        let events: Vec<Event> = std::iter::from_fn(|| lone.endpoint.poll_event()).collect();
        let peer = PeerId(1);
        assert_eq!(events, [Event::PeerUp { peer }, Event::PeerClosed { peer }]);
        if comes {
            assert_eq!(byes_at, [101_000_000; 2]);
        } else {
            assert!(byes_at.len() == 1 && (200_000_000..=210_000_000).contains(&byes_at[0]), "{byes_at:?}");
        }
    }
}
