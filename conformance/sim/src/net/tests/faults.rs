//! What goes wrong, and what it does to frames. On the star of `tests`, a frame of 1000 bytes sent at 0 has
//! its head at the switch's output at 100 ns, and arrives at 1100 ns; over the second plane at 2100 ns.

use rerail_core::time::{Nanos, Time};

use super::*;
use crate::net::{Class, Damage, Direction, LostAt, Pick, Place};

/// A link that is cut takes what is on it, also if it is mended at once; what is in the switch arrives.
#[test]
fn link_cut_drops_frames_on_the_link() {
    let (mut net, _) = star(2);
    // Over the second plane the first frame's head is out of the uplink when that is cut at 150 ns.
    net.send(Time(0), frame(0, 5, 1)).unwrap();
    net.send(Time(0), frame(0, 5, 2)).unwrap();
    assert_eq!(all(&mut net, 150), []);
    net.set_link(Time(150), PortId(0), Direction::Tx, false, None);
    net.set_link(Time(150), PortId(0), Direction::Tx, true, None);
    let outcomes = all(&mut net, 10_000);
    assert_eq!(arrivals(&outcomes), [(2100, 1)]);
    assert_eq!(losses(&outcomes), [(2, LostAt::Uplink)]);

    net.send(Time(10_000), frame(0, 4, 3)).unwrap();
    assert_eq!(all(&mut net, 10_500), []);
    net.set_link(Time(10_500), PortId(1), Direction::Rx, false, None);
    net.set_link(Time(10_500), PortId(1), Direction::Rx, true, None);
    net.send(Time(10_500), frame(0, 4, 4)).unwrap();
    let outcomes = all(&mut net, 20_000);
    assert_eq!(losses(&outcomes), [(3, LostAt::Downlink)]);
    assert_eq!(arrivals(&outcomes).len(), 1);
    assert_eq!((net.credit_taken(PortId(1)), net.inside()), (0, 0));
}

/// A link that is down one way works the other way.
#[test]
fn one_way_link_fault_leaves_the_other_direction_up() {
    let (mut net, _) = star(2);
    net.set_link(Time(0), PortId(0), Direction::Tx, false, None);
    net.send(Time(0), frame(0, 4, 1)).unwrap();
    net.send(Time(0), frame(1, 2, 2)).unwrap();
    let outcomes = all(&mut net, 10_000);
    assert_eq!(losses(&outcomes), [(1, LostAt::Uplink)]);
    assert_eq!(arrivals(&outcomes), [(1100, 2)]);
    net.set_link(Time(10_000), PortId(0), Direction::Tx, true, None);
    net.set_link(Time(10_000), PortId(0), Direction::Rx, false, None);
    net.send(Time(10_000), frame(0, 4, 3)).unwrap();
    net.send(Time(10_000), frame(1, 2, 4)).unwrap();
    let outcomes = all(&mut net, 20_000);
    assert_eq!(losses(&outcomes), [(4, LostAt::Downlink)]);
    assert_eq!(arrivals(&outcomes), [(11_100, 3)]);
    // To itself a port talks without its link.
    net.send(Time(20_000), frame(0, 2, 5)).unwrap();
    assert_eq!(arrivals(&all(&mut net, 30_000)), [(20_000, 5)]);
}

/// A switch that goes down loses what is in it and on its links, and what it keeps; ports notice when they
/// look.
#[test]
fn a_switch_takes_all_with_it() {
    let (mut net, subnet) = star(3);
    net.hold(PortId(2), Time(5000));
    for (to, body) in [(4, 1), (5, 2), (6, 3)] {
        net.send(Time(0), frame(0, to, body)).unwrap();
    }
    // Now: 1 is on its downlink, 2 on the plane, 3 is kept.
    assert_eq!(
        all(&mut net, 1050 + 1100),
        [(1100, Outcome::Arrived { port: PortId(1), dlid: 4, corrupt: false, body: 1 })]
    );
    net.set_switch(subnet, false);
    net.notice(PortId(0), Nanos(50));
    net.send(Time(2150), frame(0, 4, 4)).unwrap();
    let outcomes = all(&mut net, 10_000);
    let mut lost = losses(&outcomes);
    lost.sort_unstable();
    // The head of 2 has crossed the plane (1000 + 1100 ns) and is on the downlink.
    assert_eq!(lost, [(2, LostAt::Downlink), (3, LostAt::Switch), (4, LostAt::Switch)]);
    assert!(outcomes.contains(&(2200, Outcome::LinkState { port: PortId(0), up: false })));
    net.set_switch(subnet, true);
    net.notice(PortId(0), Nanos(0));
    net.send(Time(10_000), frame(0, 6, 5)).unwrap();
    let outcomes = all(&mut net, 20_000);
    assert_eq!(arrivals(&outcomes), [(11_100, 5)]);
    assert!(outcomes.contains(&(10_000, Outcome::LinkState { port: PortId(0), up: true })));
}

/// A plane that dies takes what is on it; the other goes on.
#[test]
fn plane_failure_drops_frames_on_the_plane() {
    let (mut net, subnet) = star(2);
    net.send(Time(0), frame(0, 5, 1)).unwrap();
    net.send(Time(0), frame(0, 4, 2)).unwrap();
    assert_eq!(all(&mut net, 500), []);
    net.set_plane(subnet, 1, false);
    net.set_plane(subnet, 1, true);
    let outcomes = all(&mut net, 10_000);
    assert_eq!(losses(&outcomes), [(1, LostAt::Plane)]);
    assert_eq!(arrivals(&outcomes), [(2100, 2)]);
}

/// A flap that is over before a port looks goes unnoticed; one that isn't is reported both ways.
#[test]
fn port_reports_the_link_state_at_its_check_time() {
    let (mut net, _) = star(2);
    let port = PortId(0);
    net.set_link(Time(0), port, Direction::Both, false, Some(Nanos(100)));
    net.set_link(Time(50), port, Direction::Both, true, Some(Nanos(100)));
    assert_eq!(all(&mut net, 1000), []);
    net.set_link(Time(1000), port, Direction::Rx, false, Some(Nanos(100)));
    assert_eq!(all(&mut net, 1100), [(1100, Outcome::LinkState { port, up: false })]);
    net.set_link(Time(1200), port, Direction::Rx, true, Some(Nanos(0)));
    assert_eq!(all(&mut net, 2000), [(1200, Outcome::LinkState { port, up: true })]);
}

/// Frames that are kept come late, in order, and meanwhile others pass on the other plane with all of the
/// credit.
#[test]
fn held_frames_arrive_late_and_do_not_block_others() {
    let (mut net, subnet) = star(2);
    net.set_receive_buffer(PortId(1), 1000);
    let held = Place::Plane(subnet, 0);
    net.hold_at(held, Time(100_000));
    for body in 0..8 {
        net.send(Time(0), frame(0, 4 + (body % 2) as u16, body)).unwrap();
    }
    let outcomes = all(&mut net, 99_999);
    assert_eq!(arrivals(&outcomes).iter().map(|came| came.1).collect::<Vec<_>>(), [1, 3, 5, 7]);
    // A cut of the sender's link does not reach them.
    net.set_link(Time(99_999), PortId(0), Direction::Both, false, None);
    let outcomes = all(&mut net, 200_000);
    assert_eq!(arrivals(&outcomes), [(101_000, 0), (102_000, 2), (103_000, 4), (104_000, 6)]);
    assert_eq!((net.credit_taken(PortId(1)), net.inside()), (0, 0));
}

/// A hold may be ended early, and a frame that comes at its very end stays behind those that are kept.
#[test]
fn hold_ends_at_the_last_set_time() {
    let (mut net, _) = star(2);
    net.hold(PortId(1), Time(100));
    // Its head is at the output just when the hold ends.
    net.send(Time(0), control(0, 4, 1)).unwrap();
    assert_eq!(arrivals(&all(&mut net, 10_000)), [(1100, 1)]);
    net.hold(PortId(1), Time(1_000_000));
    net.send(Time(10_000), frame(0, 4, 2)).unwrap();
    assert_eq!(all(&mut net, 20_000), []);
    net.hold(PortId(1), Time(30_000));
    assert_eq!(arrivals(&all(&mut net, 50_000)), [(31_000, 2)]);
    net.hold(PortId(1), Time(1_000_000));
    net.send(Time(50_000), frame(0, 4, 3)).unwrap();
    assert_eq!(all(&mut net, 60_000), []);
    net.heal(Time(60_000), PortId(1), None);
    assert_eq!(arrivals(&all(&mut net, 70_000)), [(61_000, 3)]);
}

/// Choices of frames: by class, by body, after so many, in turn.
#[test]
fn damage_falls_on_the_chosen() {
    let (mut net, _) = star(2);
    net.lose_next(PortId(0), 1);
    net.corrupt_next(PortId(0), 1);
    let odd = |body: &u32| body % 2 == 1;
    let acks = Pick { matches: Some(odd), skip: 1, ..Pick::next(Damage::Lose, Class::Control, 2) };
    net.damage_next(Place::To(PortId(1)), acks);
    for body in 0..9 {
        net.send(Time(0), control(0, 4, body)).unwrap();
    }
    for body in 10..13 {
        net.send(Time(0), frame(0, 4, body)).unwrap();
    }
    let outcomes = all(&mut net, 100_000);
    let lost: Vec<_> = losses(&outcomes).into_iter().map(|(body, why)| (body, why == LostAt::Decree)).collect();
    assert_eq!(lost, [(3, true), (5, true), (10, true)]);
    let corrupt = outcomes.iter().filter_map(|(_, outcome)| match outcome {
        Outcome::Arrived { body, corrupt: true, .. } => Some(*body),
        _ => None,
    });
    assert_eq!(corrupt.collect::<Vec<_>>(), [11]);
    assert_eq!((net.stats().lost, net.stats().arrived), (3, 9));
}

/// Random damage strikes about as often as it should, the class that it should, until it is taken away.
#[test]
fn random_frame_damage_keeps_its_rate() {
    let (mut net, _) = star(2);
    net.damage_rate(Place::To(PortId(1)), Damage::Lose, Class::Control, 250_000);
    for body in 0..4000 {
        net.send(Time(0), control(0, 4, body)).unwrap();
    }
    let lost = losses(&all(&mut net, 100_000_000)).len();
    assert!((850..1150).contains(&lost), "{lost} of 4000");
    net.send(Time(100_000_000), frame(0, 4, 0)).unwrap();
    net.clear(Place::To(PortId(1)));
    for body in 0..400 {
        net.send(Time(100_000_000), control(0, 4, body)).unwrap();
    }
    assert_eq!(arrivals(&all(&mut net, u64::MAX)).len(), 401);
}

/// Frames that wait for the credit of a port that dies are lost, and those behind them go their way.
#[test]
fn dead_receiver_port_does_not_block_other_frames() {
    let (mut net, _) = star(3);
    net.set_receive_buffer(PortId(1), 1000);
    for body in 0..4 {
        net.send(Time(0), frame(0, 4, body)).unwrap();
    }
    net.send(Time(0), frame(0, 6, 9)).unwrap();
    let (at, outcome) =
        std::iter::from_fn(|| net.step(Time(5000))).find(|reported| reported.1 != Outcome::Room(PortId(0))).unwrap();
    assert!(matches!((at, outcome), (Time(1100), Outcome::Arrived { body: 0, .. })));
    // It isn't dealt with yet, so the others wait for its buffer.
    net.set_link(Time(1100), PortId(1), Direction::Rx, false, None);
    let outcomes = all(&mut net, 100_000);
    assert_eq!(losses(&outcomes).iter().map(|lost| lost.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(arrivals(&outcomes).iter().map(|came| came.1).collect::<Vec<_>>(), [9]);
    assert_eq!((net.credit_taken(PortId(1)), net.inside()), (0, 0));
}

/// A port whose LIDs change gets what is under way to the old ones, and nothing more.
#[test]
fn old_lids_lead_nowhere() {
    let (mut net, _) = star(2);
    net.send(Time(0), frame(0, 4, 1)).unwrap();
    net.set_lid(PortId(1), 16);
    assert_eq!(net.lid(PortId(1)), (16, 1));
    net.send(Time(0), frame(0, 4, 2)).unwrap();
    net.send(Time(0), frame(0, 17, 3)).unwrap();
    assert_eq!(net.route(PortId(0), 17), Some((PortId(1), 1)));
    assert_eq!(net.route(PortId(0), 5), None);
    let outcomes = all(&mut net, 10_000);
    assert_eq!(losses(&outcomes), [(2, LostAt::NoRoute)]);
    assert_eq!(arrivals(&outcomes), [(1100, 1), (4100, 3)]);
}

/// A link that has come back slow neither goes faster than it is nor holds a fast one meanwhile.
#[test]
fn a_slow_link_slows_itself_only() {
    let (mut net, _) = star(3);
    net.set_link_rate(Time(0), PortId(0), 100_000_000);
    net.send(Time(0), frame(0, 6, 1)).unwrap();
    for body in 2..8 {
        net.send(Time(0), frame(1, 6, body)).unwrap();
    }
    // 10 us for the slow frame; the others take a microsecond each, one after the other, as if it were not
    // there.
    let mut came = arrivals(&all(&mut net, 100_000));
    assert_eq!(came.pop(), Some((10_100, 1)));
    assert_eq!(came, [2, 3, 4, 5, 6, 7].map(|body| (100 + 1000 * u64::from(body - 1), body)));
}

/// Jitter delays, and differs from frame to frame and seed to seed.
#[test]
fn jitter_depends_on_the_seed() {
    let histories = [1, 1, 2].map(|seed| {
        let (mut net, _) = star(2);
        net.rng = crate::rng::Rng::new(seed, "net");
        net.set_jitter(PortId(0), Nanos(50_000));
        for body in 0..8 {
            net.send(Time(u64::from(body) * 1000), frame(0, 4, body)).unwrap();
        }
        arrivals(&all(&mut net, 1_000_000))
    });
    assert_eq!(histories[0], histories[1]);
    assert_ne!(histories[0], histories[2]);
    assert!(histories[0].last().unwrap().0 > 20_000, "{:?}", histories[0]);
}
