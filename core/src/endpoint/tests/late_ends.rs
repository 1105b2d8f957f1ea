//! Concurrent late connections: each has its own time, its own end and its own number (F-1, F-11, G-10), and
//! a finished one leaves no timer behind (G-7).

use super::super::lifecycle::is_shutdown;
use super::late_connects::{config, connect, connects_and_byes, dialled_and_ended, down, left_without_bye, moves, up};
use super::lone::Lone;
use super::*;

const PAUSE: u64 = 1_000_000;

/// The timeout of a late connection.
const TIMEOUT: u64 = 10 * PAUSE;

/// F-11, G-10: a silent late connection is closed this long after it came up, whatever connects meanwhile;
/// the end of one is detected though others end first.
#[test]
fn each_silent_caller_has_its_own_time() {
    assert_eq!(config().redial_max.0, PAUSE);
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 4);
    let begun = 1_000_000_000;
    let calls = [0, 3_000_000, 6_000_000, 6_000_001];
    for (rail, after) in (0..).zip(calls) {
        lone.now = begun + after;
        up(&mut lone, rail);
        assert_eq!(connects_and_byes(&mut lone).0.len(), 1);
    }
    for (rail, after) in (0..).zip(calls) {
        assert_eq!(lone.endpoint.next_obligation(), Some(Time(begun + after + TIMEOUT)));
        lone.now = begun + after + TIMEOUT;
        assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![rail]));
    }
    assert!(lone.endpoint.t.channels.is_empty());
    assert_eq!(lone.endpoint.next_obligation(), None);
}

/// F-11, G-10: of connections that end at the same moment each is ended, and each is made again.
#[test]
fn simultaneously_expired_connections_are_all_aborted() {
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 3);
    (0..3).for_each(|rail| moves(&mut lone, rail, "a:1"));
    assert_eq!(dialled_and_ended(&mut lone), (vec![0, 1, 2], vec![]));
    (0..3).for_each(|rail| up(&mut lone, rail));
    assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]));
    lone.now = TIMEOUT;
    assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![0, 1, 2]));
    lone.now += PAUSE;
    assert_eq!(dialled_and_ended(&mut lone), (vec![0, 1, 2], vec![]));
}

/// G-10: a connection that arrives before the last one was ended is not ended in its place, and the others
/// are.
#[test]
fn new_late_connection_is_not_aborted_with_the_old_one() {
    for moved in [false, true] {
        let mut own = Region::of(&config());
        let mut lone = left_without_bye(&mut own, 3);
        if moved {
            (0..3).for_each(|rail| moves(&mut lone, rail, "a:1"));
            assert_eq!(dialled_and_ended(&mut lone).0, [0, 1, 2]);
        }
        (0..3).for_each(|rail| up(&mut lone, rail));
        assert_eq!(connects_and_byes(&mut lone).0.len(), 3);
        lone.now += TIMEOUT;
        lone.endpoint.handle_timeout(Time(lone.now));
        // It connects again before the actions are carried out.
        up(&mut lone, 1);
        lone.closed.clear();
        let (numbers, byes) = connects_and_byes(&mut lone);
        assert_eq!((numbers.iter().map(|(rail, _)| *rail).collect::<Vec<_>>(), byes), (vec![1], vec![]));
        assert_eq!(lone.closed, [RailId(0), RailId(2)], "moved: {moved}");
        lone.feed_on(1, connect(1), 0, |_| {});
        assert_eq!(connects_and_byes(&mut lone).1, [1]);
    }
}

/// G-10: a rail with a pending dial that gets a connection meanwhile sends CONNECT at once.
#[test]
fn rail_connected_while_its_dial_is_pending_sends_connect() {
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 2);
    moves(&mut lone, 1, "b:1");
    up(&mut lone, 1);
    assert_eq!(connects_and_byes(&mut lone).0.len(), 1);
    lone.feed_on(1, connect(1), 0, |_| {});
    assert_eq!(connects_and_byes(&mut lone), (vec![], vec![1]));
    assert_eq!(lone.closed, [RailId(1)]);
    assert!(lone.endpoint.t.channels.is_empty());
}

/// G-10: a peer that has received BYE is not dialled any more, over whichever rail it connected: neither over
/// that one nor over another one with a pending redial or dial.
#[test]
fn peer_that_received_the_bye_is_not_dialled_again() {
    for (by, waits) in [(0, true), (1, true), (0, false), (1, false)] {
        let mut own = Region::of(&config());
        let mut lone = left_without_bye(&mut own, 2);
        moves(&mut lone, 0, "a:1");
        if waits {
            assert_eq!(dialled_and_ended(&mut lone), (vec![0], vec![]));
            down(&mut lone, 0);
            assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]));
        }
        up(&mut lone, by);
        assert_eq!(connects_and_byes(&mut lone).0.len(), 1);
        lone.feed_on(by, connect(by), 0, |_| {});
        assert_eq!(connects_and_byes(&mut lone), (vec![], vec![by]));
        if !waits && by == 1 {
            // This one was made before BYE was sent.
            down(&mut lone, 0);
        }
        for _ in 0..2 {
            assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]), "by {by}, {waits}");
            lone.now += PAUSE;
        }
        assert!(lone.endpoint.t.channels.is_empty());
        assert_eq!(lone.endpoint.next_obligation(), None);
    }
}

/// G-10: a late connection that fails before the peer has received BYE changes nothing for the other rails:
/// they are dialled when their pauses are over.
#[test]
fn failed_late_connection_does_not_delay_other_rails() {
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 2);
    (0..2).for_each(|rail| moves(&mut lone, rail, "a:1"));
    assert_eq!(dialled_and_ended(&mut lone), (vec![0, 1], vec![]));
    (0..2).for_each(|rail| down(&mut lone, rail));
    up(&mut lone, 0);
    assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]));
    down(&mut lone, 0);
    lone.now += PAUSE;
    assert_eq!(dialled_and_ended(&mut lone), (vec![0, 1], vec![]));
}

/// F-1, G-10: no two of these connections in a row have the same number, and none has one of another kind,
/// whatever was counted before.
#[test]
fn late_connections_have_distinct_numbers() {
    let mut own = Region::of(&config());
    let mut lone = left_without_bye(&mut own, 1);
    for dropped in [0, (1 << 29) - 3, (1 << 30) - 3, (1 << 31) - 3, (1u64 << 32) - 3] {
        lone.endpoint.stats.stale_dropped = dropped;
        let mut seen = BTreeSet::new();
        for _ in 0..5 {
            up(&mut lone, 0);
            let (numbers, _) = connects_and_byes(&mut lone);
            let [(0, number)] = numbers[..] else { panic!("{numbers:?}") };
            assert!(is_shutdown(config().first_number, number), "{number:x}");
            assert!(seen.insert(number), "{number:x} again");
            down(&mut lone, 0);
        }
    }
}

/// G-10: a peer may connect for any length of time: a rail that moves later still has its own time to dial
/// it.
#[test]
fn callers_do_not_use_up_the_time_for_calls() {
    let config = Config { connect_timeout: Nanos(3 * TIMEOUT), ..config() };
    let mut own = Region::of(&config);
    let mut lone = Lone::connected(&mut own, &config, &[TCP; 3]);
    lone.busy = true;
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    lone.sent();
    lone.busy = false;
    (0..3).for_each(|rail| down(&mut lone, rail));
    while lone.endpoint.poll_event().is_some() {}
    assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]));
    for call in 0..8 {
        up(&mut lone, call % 2);
        lone.now += TIMEOUT / 2 + 1;
        dialled_and_ended(&mut lone);
        assert!(!lone.endpoint.t.channels.is_empty(), "one of them is there all the time");
    }
    assert!(lone.now > config.connect_timeout.0);
    moves(&mut lone, 2, "c:1");
    assert_eq!(dialled_and_ended(&mut lone).0, [2]);
}

/// G-10: after the connect timeout no connection is made any more, neither one that was due nor one after a
/// connection that ends later; and the rest of the channel is free at once.
#[test]
fn after_the_time_for_calls_there_are_none() {
    let config = Config { connect_timeout: Nanos(TIMEOUT + PAUSE / 2), ..config() };
    for connects in [false, true] {
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[TCP; 2]);
        lone.busy = true;
        lone.endpoint.close_peer(PeerId(1)).unwrap();
        lone.sent();
        lone.busy = false;
        (0..2).for_each(|rail| down(&mut lone, rail));
        while lone.endpoint.poll_event().is_some() {}
        assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]));
        moves(&mut lone, 0, "a:1");
        assert_eq!(dialled_and_ended(&mut lone), (vec![0], vec![]));
        lone.now = TIMEOUT;
        if connects {
            up(&mut lone, 0);
            assert_eq!(connects_and_byes(&mut lone).0.len(), 1);
        } else {
            down(&mut lone, 0);
        }
        assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]));
        lone.now = config.connect_timeout.0;
        assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]));
        assert_eq!(lone.endpoint.t.channels.is_empty(), !connects, "a connection has its own time");
        if connects {
            lone.now = 2 * TIMEOUT;
            assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![0]));
            assert!(lone.endpoint.t.channels.is_empty());
        }
        for _ in 0..3 {
            lone.now += PAUSE;
            assert_eq!(dialled_and_ended(&mut lone), (vec![], vec![]), "nothing is dialled");
        }
        assert_eq!(lone.endpoint.next_obligation(), None);
    }
}

/// G-7: the core waits for a stuck BYE until its timeout and no longer; then no timer is left, though the end
/// is not read yet.
#[test]
fn abandoned_bye_leaves_no_timer() {
    for rails in [1, 2] {
        let (stall_min, stall_lone) = (4_000_000, 200_000_000);
        let config = Config { stall_min: Nanos(stall_min), stall_lone: Nanos(stall_lone), ..config() };
        let mut own = Region::of(&config);
        let mut lone = Lone::connected(&mut own, &config, &[TCP; 2][..rails]);
        lone.stuck = u64::MAX;
        lone.endpoint.close_peer(PeerId(1)).unwrap();
        lone.sent();
        let mut checks = Vec::new();
        while let Some(Time(at)) = lone.endpoint.next_obligation() {
            assert!(at > lone.now && at <= stall_lone + 3 * stall_min, "{at}");
            lone.now = at;
            lone.endpoint.handle_timeout(Time(at));
            checks.push(at);
        }
        // The first check finds the stuck BYE, the last one follows after the maximum time.
        assert_eq!(checks.last().unwrap() - checks[0], stall_lone);
        assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerClosed { peer: PeerId(1) }));
    }
}

/// G-10: a channel that ends before its peer has received BYE has no running timer before a rail moves.
#[test]
fn without_a_rail_that_moves_no_call_is_timed() {
    let mut own = Region::of(&config());
    let mut lone = Lone::connected(&mut own, &config(), &[TCP; 2]);
    lone.busy = true;
    lone.endpoint.close_peer(PeerId(1)).unwrap();
    lone.sent();
    (0..2).for_each(|rail| down(&mut lone, rail));
    assert_eq!(lone.endpoint.next_obligation(), None);
    assert_eq!(lone.endpoint.poll_event(), Some(Event::PeerClosed { peer: PeerId(1) }));
}
