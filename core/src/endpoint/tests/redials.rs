//! When a connection is opened again, for how long a peer may be without one, and what a rail is estimated to
//! have that comes back (F-8, F-9).

use super::lone::Lone;
use super::recovery::{connect, down, fence, region, up};
use super::*;
use crate::rail::rate::Rate;
use crate::wire::Body;

fn health(lone: &Lone<'_>, rail: u8) -> RailHealth {
    lone.endpoint.rail_health(PeerId(1), RailId(rail)).unwrap()
}

fn state(lone: &Lone<'_>, rail: u8) -> RailState {
    health(lone, rail).state
}

/// It is `now`; what is due happens.
fn at(lone: &mut Lone<'_>, now: u64) {
    lone.now = now;
    lone.endpoint.handle_timeout(Time(now));
    lone.sent();
}

fn fail(lone: &mut Lone<'_>, rail: u8) {
    down(lone, rail, RailFault::TimedOut);
    lone.sent();
}

fn is_lost(lone: &mut Lone<'_>) -> bool {
    matches!(lone.endpoint.poll_event(), Some(Event::PeerLost { peer: PeerId(1), .. }))
}

/// F-8: a connection that is ended from here counts once, also where its rail reports afterwards that it is
/// down.
#[test]
fn an_end_from_here_counts_once() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
    lone.feed(Body::Fence(fence(1, false)), 0);
    fail(&mut lone, 1);
    assert_eq!((health(&lone, 1).failures, health(&lone, 1).refusals), (1, 0));
    assert_eq!(state(&lone, 1), RailState::Opening);
    fail(&mut lone, 1);
    assert_eq!(state(&lone, 1), RailState::Down { redial_at: Time(small().redial_min.0) });
}

/// F-8: every pause is twice as long as the one before, up to the longest, whatever the two bounds are.
#[test]
fn pauses_double_up_to_the_longest() {
    for (min, max) in [(1_000, 1_000_000_000), (1, 1 << 40), (1 << 33, 1 << 36), (5, 3)] {
        let config = Config { redial_min: Nanos(min), redial_max: Nanos(max), ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP; 2]);
        fail(&mut lone, 1);
        for n in 0..70 {
            assert_eq!(state(&lone, 1), RailState::Opening);
            fail(&mut lone, 1);
            let pause = min.checked_mul(1u64.checked_shl(n).unwrap_or(u64::MAX)).unwrap_or(max).min(max);
            let redial_at = lone.now + pause;
            assert_eq!(state(&lone, 1), RailState::Down { redial_at: Time(redial_at) }, "{min} to {max}: {n}");
            at(&mut lone, redial_at);
        }
    }
}

/// F-8: a connection that has stood for the longest pause is opened again at once, and pauses begin anew.
#[test]
fn stable_connection_is_redialled_immediately() {
    let Config { redial_min, redial_max, .. } = small();
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
    for (connection, ready_at, stands) in [(2, 1, redial_max.0), (3, 3_000_000, redial_max.0 - 1)] {
        // It has failed more than once before.
        fail(&mut lone, 1);
        fail(&mut lone, 1);
        lone.now = ready_at;
        up(&mut lone, 1);
        lone.feed_on(1, connect(1, connection), 0, |_| {});
        lone.sent();
        lone.now += stands;
        fail(&mut lone, 1);
        let is_at_once = state(&lone, 1) == RailState::Opening;
        assert_eq!(is_at_once, stands >= redial_max.0, "after {stands} ns");
        if is_at_once {
            fail(&mut lone, 1);
            assert_eq!(state(&lone, 1), RailState::Down { redial_at: Time(lone.now) + redial_min });
            let now = lone.now + redial_min.0;
            at(&mut lone, now);
        }
    }
}

/// F-8: each subchannel has a pause of its own.
#[test]
fn each_rail_waits_for_its_own_pause() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 3]);
    fail(&mut lone, 1);
    fail(&mut lone, 1);
    at(&mut lone, 100_000);
    fail(&mut lone, 1);
    fail(&mut lone, 2);
    fail(&mut lone, 2);
    let waits = |until| RailState::Down { redial_at: Time(until) };
    assert_eq!([state(&lone, 1), state(&lone, 2)], [waits(300_000), waits(200_000)]);
    at(&mut lone, 200_000);
    assert_eq!([state(&lone, 1), state(&lone, 2)], [waits(300_000), RailState::Opening]);
    at(&mut lone, 300_000);
    assert_eq!([state(&lone, 1), state(&lone, 2)], [RailState::Opening; 2]);
}

/// F-8, F-9: a rail to an address without a listener is redialled while another one is up.
#[test]
fn rail_without_a_listener_is_redialled() {
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[TCP; 2]);
    for now in [0, 100_000] {
        down(&mut lone, 1, RailFault::Gone);
        lone.sent();
        let pause = if now == 0 { RailState::Opening } else { RailState::Down { redial_at: Time(200_000) } };
        assert_eq!(state(&lone, 1), pause);
        at(&mut lone, 100_000);
    }
    at(&mut lone, 200_000);
    assert_eq!(state(&lone, 1), RailState::Opening);
}

/// G-4: before the first packet, a process with the wrong identity counts as absent; later it is a failure
/// like others.
#[test]
fn authentication_failure_ends_a_channel_that_was_never_up() {
    for is_known in [false, true] {
        let mut region = region();
        let mut lone = Lone::up(&mut region, &small(), &[TCP]);
        if is_known {
            lone.feed(connect(0, 1), 0);
            assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerUp { peer: PeerId(1) }));
        }
        lone.sent();
        down(&mut lone, 0, RailFault::Unauthenticated);
        assert_eq!(is_lost(&mut lone), !is_known);
    }
}

/// F-9: without `recovery_timeout` a peer is waited for without end; with the shortest it is lost when that
/// is over.
#[test]
fn a_recovery_timeout_of_nothing_is_none() {
    for timeout in [0, 1] {
        let config = Config { recovery_timeout: Nanos(timeout), keepalive: Nanos(0), ..small() };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        down(&mut lone, 0, RailFault::TimedOut);
        at(&mut lone, 0);
        assert!(!is_lost(&mut lone));
        at(&mut lone, 1);
        assert_eq!(is_lost(&mut lone), timeout == 1);
        if timeout == 0 {
            at(&mut lone, 1 << 60);
            assert!(!is_lost(&mut lone));
        }
    }
}

/// F-9: where this process was away when the time ended, it is put off by as much, by no more than the whole
/// of it, and once.
#[test]
fn a_deadline_that_was_slept_through_is_put_off_once() {
    let (timeout, longest) = (2_000_000, small().redial_max.0);
    for (late, more) in [(longest, 0), (longest + 1, longest + 1), (5_000_000, timeout)] {
        let config = Config {
            recovery_timeout: Nanos(timeout),
            connect_timeout: Nanos(100_000_000),
            keepalive: Nanos(0),
            ..small()
        };
        let mut region = Region::of(&config);
        let mut lone = Lone::connected(&mut region, &config, &[TCP]);
        fail(&mut lone, 0);
        let now = timeout + late;
        if more > 0 {
            at(&mut lone, now);
            at(&mut lone, now + more - 1);
            assert!(!is_lost(&mut lone), "{late} ns late");
        }
        at(&mut lone, now + more);
        assert!(is_lost(&mut lone), "{late} ns late");
    }
}

/// F-8: a rail of which nothing is known is not taken for the slowest when it comes back; and one that hardly
/// moves anything is not taken for one of which nothing is known.
#[test]
fn returning_rail_starts_at_an_eighth_of_its_known_rate() {
    // A unit of rates is 59.6 bytes a second.
    for (declared, before, after) in [(0, Rate::NONE, Rate::NONE), (240, Rate(4), Rate(1)), (4_800, Rate(80), Rate(10))]
    {
        let facts = RailFacts { bytes_per_second: declared, ..TCP };
        let mut region = region();
        let mut lone = Lone::connected(&mut region, &small(), &[facts, facts]);
        assert_eq!(lone.endpoint.paths.estimated_rate(0, RailId(1)), before);
        down(&mut lone, 1, RailFault::TimedOut);
        up(&mut lone, 1);
        assert_eq!(lone.endpoint.paths.estimated_rate(0, RailId(1)), after);
    }
    // So are small packets (P-9).
    let facts = RailFacts { bytes_per_second: 800_000_000, ..TCP };
    let mut region = region();
    let mut lone = Lone::connected(&mut region, &small(), &[facts, facts]);
    down(&mut lone, 1, RailFault::TimedOut);
    up(&mut lone, 1);
    let transfer_time = |rail| lone.endpoint.paths.path(0, RailId(rail)).transfer_ns(1 << 16);
    let (whole, part) = (transfer_time(0), transfer_time(1));
    assert!(part.abs_diff(8 * whole) < whole / 10, "{part} of {whole}");
}

/// F-8: that a rail is back which does not exist here changes nothing, also where the tables end behind the
/// last one.
#[test]
fn no_rail_is_back() {
    let config = Config { rails_max: 1, channels_max: 2, ..small() };
    let mut region = Region::of(&config);
    let mut lone = Lone::connected(&mut region, &config, &[TCP]);
    lone.endpoint.add_peer(PeerId(2), 1).unwrap();
    lone.endpoint.handle_rail_event(Time(0), RailEvent::Up { peer: PeerId(2), rail: RailId(0) });
    lone.sent();
    assert_eq!(lone.endpoint.usage().channels.used, 2);
    for rail in [1, 2, 64, 255] {
        lone.endpoint.handle_rail_event(Time(0), RailEvent::Back { rail: RailId(rail) });
        assert_eq!(lone.sent(), []);
    }
    assert_eq!(state(&lone, 0), RailState::Up);
}
