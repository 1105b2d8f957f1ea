//! Peers that are given up: the time, and the errors of their requests (F-9, F-10).

use super::lone::Lone;
use super::recovery::{connect, down, region, up};
use super::*;

/// F-9: a ready connection ends the no-path time, even if another rail fails before our CONNECT is sent on
/// it. The next no-path time starts anew.
#[test]
fn a_peer_that_is_reached_again_is_not_given_up() {
    let config = Config { recovery_timeout: Nanos(50_000_000), keepalive: Nanos(0), ..small() };
    let mut own = Region::of(&config);
    let mut lone = Lone::connected(&mut own, &config, &[TCP, TCP]);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    down(&mut lone, 0, RailFault::TimedOut);
    lone.sent();
    lone.now = 1_000_000;
    up(&mut lone, 0);
    lone.feed(connect(0, 2), 0);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.sent();
    assert!(lone.endpoint.rail_health(PeerId(1), RailId(0)).is_some_and(|rail| rail.state == RailState::Up));
    for now in [49_000_000, 50_000_000, 51_000_000, 60_000_000] {
        lone.now = now;
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.sent();
        assert_eq!(lone.endpoint.poll_event(), None, "a rail is ready");
    }
    down(&mut lone, 0, RailFault::TimedOut);
    for (now, is_lost) in [(109_999_999, false), (110_000_000, true)] {
        while let Some(due) = lone.endpoint.next_timeout().filter(|due| due.0 <= now) {
            lone.now = due.0.max(lone.now);
            lone.endpoint.handle_timeout(due.max(Time(lone.now)));
            lone.sent();
        }
        lone.now = now;
        let is_over = matches!(lone.endpoint.poll_event(), Some(Event::PeerLost { .. }));
        assert_eq!(is_over, is_lost, "at {now} ns");
    }
}

/// F-9: a peer that no rail reaches for too long is lost, with the attempts in its error; at once if it is
/// known to be gone, or if a rail fails that fails only with the process. F-10: without recovery at the first
/// failure.
#[test]
fn peers_are_given_up() {
    let config = Config { recovery_timeout: Nanos(50_000_000), ..small() };
    let lost = |lone: &mut Lone<'_>| match lone.endpoint.poll_event() {
        Some(Event::PeerLost { peer: PeerId(1), why }) => Some(why),
        None => None,
        other => panic!("{other:?}"),
    };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
    for rail in 0..2 {
        down(&mut lone, rail, RailFault::TimedOut);
    }
    while lone.now < 49_999_999 {
        lone.sent();
        for rail in 0..2 {
            down(&mut lone, rail, RailFault::Device { code: 113 });
        }
        let next = lone.endpoint.next_timeout().expect("something is tried").0.clamp(lone.now + 1, 49_999_999);
        lone.now = next;
        lone.endpoint.handle_timeout(Time(lone.now));
    }
    assert_eq!(lost(&mut lone), None);
    lone.now = 50_000_000;
    lone.endpoint.handle_timeout(Time(lone.now));
    let why = lost(&mut lone).expect("given up");
    let fault = RailFault::Device { code: 113 };
    assert!(matches!(why.reason, LossReason::Unreachable { fault: last, .. } if last == fault), "{why:?}");
    let attempts_made: Vec<_> = why.attempts().collect();
    assert!(attempts_made[0].1 > 30 && attempts_made[1].1 > 30, "{why:?}");
    assert_eq!(
        (why.rails, why.time, attempts_made[0].0, attempts_made[1].0, attempts_made.len()),
        (3, Nanos(50_000_000), 1, 2, 2)
    );

    let shm = [TCP, SHM];
    let without = Config { recovery: false, ..config };
    // The other rail was up until then.
    for (config, rails, rail, fault, failed) in [
        (config, [TCP, TCP], 0, RailFault::Corrupt, [1, 0]),
        (config, shm, 1, RailFault::Closed, [0, 1]),
        (without, [TCP, TCP], 0, RailFault::TimedOut, [1, 0]),
    ] {
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &rails);
        down(&mut lone, rail, fault);
        let reason = LossReason::RailFailed { rail: RailId(rail), fault };
        assert_eq!(lost(&mut lone), Some(Loss::new(reason, 3, Nanos(0), failed)));
    }
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP, TCP]);
    down(&mut lone, 0, RailFault::Closed);
    lone.sent();
    down(&mut lone, 0, RailFault::Gone);
    assert_eq!(lost(&mut lone), None, "another one stands");
    // A killed process: its connections end, and no dial succeeds. All of it is reported.
    down(&mut lone, 1, RailFault::Closed);
    lone.sent();
    lone.now += 700;
    down(&mut lone, 1, RailFault::Gone);
    let reason = LossReason::RailFailed { rail: RailId(1), fault: RailFault::Gone };
    let why = Loss::new(reason, 3, Nanos(700), [2, 2]);
    assert_eq!(lost(&mut lone), Some(why));
}

/// F-9: the failed connections in the errors of a lost peer's requests count from when their rail last
/// carried packets.
#[test]
fn attempts_count_from_the_last_connection_that_stood() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP, TCP]);
    let send = SendRequest { cookie: Cookie(5), ..SendRequest::new(PeerId(1), &[]) };
    for _ in 0..3 {
        down(&mut lone, 0, RailFault::TimedOut);
        lone.now += 10_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
        lone.sent();
    }
    assert_eq!(lone.endpoint.rail_health(PeerId(1), RailId(0)).unwrap().refusals, 2);
    up(&mut lone, 0);
    down(&mut lone, 1, RailFault::TimedOut);
    lone.feed(connect(0, 2), 0);
    lone.endpoint.send(Time(lone.now), &send).unwrap();
    down(&mut lone, 0, RailFault::Corrupt);
    let reason = LossReason::RailFailed { rail: RailId(0), fault: RailFault::Corrupt };
    let why = Loss::new(reason, 3, Nanos(0), [1, 1]);
    assert_eq!(lone.completed()[&5], Err(OpError::PeerLost { peer: PeerId(1), why }));
}

/// With eight rails and more the last count covers all rails after the seventh; no count overflows into
/// another.
#[test]
fn a_loss_counts_by_rail() {
    let reason = LossReason::Silent;
    let of = |rails: u64, failed: &[u32]| {
        let loss = Loss::new(reason, rails, Nanos(0), failed.iter().copied());
        loss.attempts().collect::<Vec<_>>()
    };
    assert_eq!(of(0, &[]), []);
    assert_eq!(of(1 << 63, &[3]), [(1 << 63, 3)]);
    assert_eq!(of(0b1010, &[7, 256]), [(0b10, 7), (0b1000, 256)]);
    assert_eq!(of(0xff, &[1, 2, 3, 4, 5, 6, 7, 8])[7], (0x80, 8));
    for (count, most) in
        [(1, u32::MAX), (2, u32::MAX), (3, 0x1f_ffff), (4, 0xffff), (5, 4095), (6, 1023), (7, 511), (8, 255)]
    {
        let rails = u64::MAX >> (64 - count);
        assert_eq!(Loss::new(reason, rails, Nanos(0), []).attempts_max(), most, "{count} rails");
        // At the end and beyond it, beside a rail that has none.
        for beyond in [most, most.saturating_add(1), u32::MAX] {
            for full in 0..count {
                let failed: Vec<u32> = (0..count).map(|rail| if rail == full { beyond } else { 0 }).collect();
                let expected: Vec<_> = (0..count).map(|rail| (1 << rail, failed[rail].min(most))).collect();
                assert_eq!(of(rails, &failed), expected, "{count} rails");
            }
        }
    }
    // Dialled for `recovery_timeout`, at last every `redial_max`, both as by default: the error has the count
    // of each of up to six rails.
    let config = Config::new(PeerId(0), 2);
    let attempts_made = (config.recovery_timeout.0 / config.redial_max.0) as u32 + 10;
    assert_eq!(of(0x3f, &[attempts_made; 6]), [0, 1, 2, 3, 4, 5].map(|rail| (1 << rail, attempts_made)));
    let all = of(u64::MAX, &[4; 64]);
    assert_eq!((all[6], all[7], all.len()), ((1 << 6, 4), (!0x7f, 57 * 4), 8));
    // It is no larger than the result of a successful request.
    assert!(size_of::<OpError>() <= size_of::<Done>());
}

/// F-9, G-4: a timeout that expired while this process was suspended is extended once by that delay: it was
/// unreachable. If it was running, there is no extension.
#[test]
fn timeout_is_extended_once_after_a_suspension() {
    let times = Config {
        connect_timeout: Nanos(5_000_000_000),
        recovery_timeout: Nanos(7_000_000_000),
        redial_max: Nanos(1_000_000_000),
        ..small()
    };
    let is_lost = |endpoint: &mut Endpoint<'_>| matches!(endpoint.poll_event(), Some(Event::PeerLost { .. }));
    for (late, is_put_off) in [(1_000_000_000, false), (1_000_000_001, true), (3_600_000_000_000, true)] {
        let mut region = Region::of(&times);
        let mut endpoint = Endpoint::new(times, &[TCP], region.take(&times), Time(0)).unwrap();
        endpoint.add_peer(PeerId(1), 1).unwrap();
        endpoint.send(Time(0), &SendRequest::new(PeerId(1), &[])).unwrap();
        let now = 5_000_000_000 + late;
        endpoint.handle_timeout(Time(now));
        assert_eq!(is_lost(&mut endpoint), !is_put_off, "{late}");
        if is_put_off {
            let until = now + late.min(5_000_000_000);
            endpoint.handle_timeout(Time(until - 1));
            assert!(!is_lost(&mut endpoint), "{late}");
            // At once if it was running, or suspended for as long again.
            endpoint.handle_timeout(Time(until + if late > 5_000_000_000 { 0 } else { late }));
            assert!(is_lost(&mut endpoint), "once");
        }
    }
    let usual = Config::new(PeerId(0), 2);
    assert_eq!(usual.connect_timeout, usual.recovery_timeout);
    // After a connection; and when it has been up again, the next time is independent.
    let mut region = Region::of(&times);
    let mut lone = Lone::connected(&mut region, &times, &[TCP]);
    for connection in [2, 3] {
        down(&mut lone, 0, RailFault::TimedOut);
        lone.sent();
        lone.now += 9_000_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
        assert!(!is_lost(&mut lone.endpoint), "connection {connection}");
        up(&mut lone, 0);
        lone.feed_on(0, connect(0, connection), 0, |_| {});
        lone.sent();
    }
    down(&mut lone, 0, RailFault::TimedOut);
    for second in 0..7 {
        assert!(!is_lost(&mut lone.endpoint), "{second} s");
        lone.now += 1_000_000_000;
        lone.endpoint.handle_timeout(Time(lone.now));
    }
    assert!(is_lost(&mut lone.endpoint));
}

/// F-13: a receive dials no peer at first; a peer that has not dialled `keepalive` later is dialled, and a
/// dead one ends the receive. Half of the channels are left for others, where channels are scarce.
#[test]
fn peer_awaited_by_a_receive_is_dialled_after_keepalive() {
    let keepalive = Nanos(1_000_000);
    let config = Config { keepalive, ..small() };
    let mut region = Region::of(&config);
    let mut endpoint = Endpoint::new(config, &[TCP], region.take(&config), Time(0)).unwrap();
    for peer in 1..3 {
        endpoint.add_peer(PeerId(peer), 1).unwrap();
    }
    let dialled = |endpoint: &mut Endpoint<'_>, now| {
        let mut actions = heapless::Vec::new();
        endpoint.handle_timeout(Time(now));
        endpoint.poll_actions(Time(now), &mut actions);
        actions[..].to_vec()
    };
    let anybody = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(Selector::ANY_UNTAGGED, &[]) };
    endpoint.recv(Time(0), &anybody).unwrap();
    assert_eq!(endpoint.next_timeout(), None, "from any source: there is no peer to dial");
    let recv = RecvRequest { cookie: Cookie(7), segments: &seg(0, 8), ..RecvRequest::new(tagged(Some(1), 3), &[]) };
    endpoint.recv(Time(500), &recv).unwrap();
    assert_eq!(endpoint.next_timeout(), Some(Time(500 + keepalive.0)));
    assert_eq!(dialled(&mut endpoint, 499 + keepalive.0), []);
    let called = [Action::Connect { peer: PeerId(1), rail: RailId(0) }];
    let now = 500 + keepalive.0;
    assert_eq!(dialled(&mut endpoint, now), called, "the one that is waited for alone");
    let fault = RailFault::Gone;
    endpoint.handle_rail_event(Time(now), RailEvent::Down { peer: PeerId(1), rail: RailId(0), fault });
    let why = Loss::new(LossReason::RailFailed { rail: RailId(0), fault }, 1, Nanos(0), [1]);
    assert_eq!(endpoint.poll_event(), Some(Event::PeerLost { peer: PeerId(1), why }));
    let Some(Event::Completed(completion)) = endpoint.poll_event() else { panic!("the receive waits still") };
    assert_eq!((completion.cookie, completion.result), (Cookie(7), Err(OpError::PeerLost { peer: PeerId(1), why })));
    // If each peer can have a channel, all are dialled, however many channels there are already.
    let to = |peer| Action::Connect { peer: PeerId(peer), rail: RailId(0) };
    let waits_for = |endpoint: &mut Endpoint<'_>, peers: core::ops::Range<u32>| {
        for peer in peers {
            endpoint.add_peer(PeerId(peer), 1).unwrap();
            let recv = RecvRequest { segments: &seg(0, 8), ..RecvRequest::new(tagged(Some(peer), 3), &[]) };
            endpoint.recv(Time(0), &recv).unwrap();
        }
    };
    let mut region = Region::of(&config);
    let mut endpoint = Endpoint::new(config, &[TCP], region.take(&config), Time(0)).unwrap();
    waits_for(&mut endpoint, 1..4);
    assert_eq!(dialled(&mut endpoint, keepalive.0), [to(1), to(2), to(3)]);
    // If not, at most half of the channels are taken; the others are dialled later.
    let config = Config { channels_max: 4, peers_max: 6, ..config };
    let mut region = Region::of(&config);
    let mut endpoint = Endpoint::new(config, &[TCP], region.take(&config), Time(0)).unwrap();
    waits_for(&mut endpoint, 1..5);
    assert_eq!(dialled(&mut endpoint, keepalive.0), [to(1), to(2)]);
    assert_eq!(dialled(&mut endpoint, 2 * keepalive.0), []);
    endpoint.add_peer(PeerId(5), 1).unwrap();
    endpoint.send(Time(2 * keepalive.0), &SendRequest::new(PeerId(5), &[])).unwrap();
    assert_eq!(dialled(&mut endpoint, 2 * keepalive.0), [to(5)]);
    for peer in [1, 2] {
        let down = RailEvent::Down { peer: PeerId(peer), rail: RailId(0), fault };
        endpoint.handle_rail_event(Time(2 * keepalive.0), down);
    }
    while endpoint.poll_event().is_some() {}
    dialled(&mut endpoint, 2 * keepalive.0);
    assert_eq!(dialled(&mut endpoint, 3 * keepalive.0), [to(3)]);
}
