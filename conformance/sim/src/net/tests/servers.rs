//! The order of service: trunks, lines for credit, half duplex links, windows of load, ties, and the clock's
//! grain.

use rerail_core::time::{Nanos, Time};

use super::*;
use crate::net::{Direction, LostAt, Place};

/// Frames of two ports share a plane's trunk. A slow one serves them one after the other; a fast one gets
/// each frame in one piece, so that its head waits for its tail, and adds the others' turns.
#[test]
fn a_trunk_is_shared_by_its_plane() {
    for (rate, came) in [(500_000_000, [2000, 4000, 6000, 8000]), (4_000_000_000, [1750, 2000, 2750, 3000])] {
        let mut net = Net::new(1);
        let plane = PlaneModel { latency_ns: 0, bytes_per_second: rate };
        let subnet = net.add_subnet(&SubnetModel { latency_ns: 0, planes: vec![plane] });
        for lid in 1..=4 {
            let host = net.add_host();
            let bus = net.add_bus(host, BusModel::default());
            let hca = net.add_hca(bus, FREE_HCA);
            net.add_port(hca, subnet, PLAIN_LINK, lid, 0);
        }
        for (from, dlid, body) in [(0, 3, 0), (1, 4, 1), (0, 3, 2), (1, 4, 3)] {
            net.send(Time(0), frame(from, dlid, body)).unwrap();
        }
        let reported = arrivals(&all(&mut net, 100_000));
        assert_eq!(reported, [0, 1, 2, 3].map(|body| (came[body], body as u32)));
    }
}

/// A port that waits for a buffer is not overtaken by one whose frame would fit.
#[test]
fn buffer_credit_is_granted_in_arrival_order() {
    let (mut net, _) = star(3);
    net.set_receive_buffer(PortId(2), 1500);
    net.send(Time(0), frame(0, 6, 1)).unwrap();
    net.send(Time(0), frame(0, 6, 2)).unwrap();
    net.send(Time(0), Frame { wire_bytes: 400, ..frame(1, 6, 3) }).unwrap();
    // 2 starts when 1 has arrived, and 3 with it, once there is room for both.
    assert_eq!(arrivals(&all(&mut net, 1100)), [(1100, 1)]);
    assert_eq!(net.credit_taken(PortId(2)), 1400);
    assert_eq!(arrivals(&all(&mut net, 10_000)), [(2200, 2), (2600, 3)]);
}

/// What waits for the buffer of a port that dies is lost then, not when the buffer would have been free.
#[test]
fn frames_waiting_for_a_dead_port_are_dropped_at_once() {
    let mut net = Net::new(1);
    let subnet = net.add_subnet(&SubnetModel::default());
    for lid in [1, 2] {
        let host = net.add_host();
        let bus = net.add_bus(host, BusModel { write_ns_per_frame: 1_000_000, ..BusModel::default() });
        let hca = net.add_hca(bus, FREE_HCA);
        let port = net.add_port(hca, subnet, PLAIN_LINK, lid, 0);
        net.set_receive_buffer(port, 1000);
    }
    for body in 0..3 {
        net.send(Time(0), frame(0, 2, body)).unwrap();
    }
    while let Some((at, outcome)) = net.step(Time(20_000)) {
        if let Outcome::Arrived { port, body, .. } = outcome {
            net.write_memory(at, port, 1, body);
        }
    }
    net.set_link(Time(20_000), PortId(1), Direction::Both, false, None);
    let outcomes = all(&mut net, 30_000);
    assert_eq!(losses(&outcomes), [(1, LostAt::Downlink), (2, LostAt::Downlink)]);
    assert_eq!(net.credit_taken(PortId(1)), 1000);
    assert!(matches!(all(&mut net, 2_000_000)[..], [(1_001_200, Outcome::Written { body: 0, .. })]));
}

/// A half duplex link carries one direction at a time.
#[test]
fn a_half_duplex_link_is_one_server() {
    for (half_duplex, last) in [(false, 1100), (true, 2000)] {
        let (mut net, _) = star(3);
        net.set_half_duplex(PortId(0), half_duplex);
        net.send(Time(0), frame(0, 4, 1)).unwrap();
        net.send(Time(0), frame(2, 2, 2)).unwrap();
        assert_eq!(arrivals(&all(&mut net, 10_000)).iter().map(|came| came.0).max(), Some(last));
    }
}

/// A load stops when its window closes, and starts again with the next.
#[test]
fn background_load_runs_only_in_its_windows() {
    let (mut net, _) = star(2);
    net.add_background(PortId(0), 4, 1000, &[(Time(300_000), Time(400_000)), (Time(100_000), Time(200_000))]);
    let mut background_frames = [99_999, 200_000, 299_999, 500_000].map(|until| {
        assert_eq!(all(&mut net, until), []);
        net.stats().background_frames
    });
    // A frame a microsecond, and what the stage holds beyond.
    assert!((100..=108).contains(&background_frames[1]), "{background_frames:?}");
    assert_eq!((background_frames[0], background_frames[2]), (0, background_frames[1]));
    background_frames[3] -= background_frames[1];
    assert!((100..=108).contains(&background_frames[3]), "{background_frames:?}");
    assert_eq!((net.inside(), net.stats().background_written), (0, background_frames[1] + background_frames[3]));
}

/// A load keeps its rate from step to step, and ends when it is set to.
#[test]
fn background_load_keeps_its_rate() {
    let (mut net, _) = star(2);
    // A frame of 1000 bytes every 10 us, every 2 us, none, as many as the link takes (one each us), none.
    let steps = [(100_000, 100_000_000), (200_000, 500_000_000), (300_000, 0), (400_000, 9_000_000_000), (500_000, 0)];
    net.add_load(PortId(0), 4, 1000, &steps.map(|(at, rate)| (Time(at), rate)), Time(900_000));
    let mut before = 0;
    let counts = [99_999, 199_999, 299_999, 399_999, 499_999, 900_000].map(|until| {
        assert_eq!(all(&mut net, until), []);
        net.stats().background_frames - std::mem::replace(&mut before, net.stats().background_frames)
    });
    assert_eq!((counts[0], counts[3], counts[5]), (0, 0, 0), "{counts:?}");
    assert!((10..=11).contains(&counts[1]) && (50..=51).contains(&counts[2]), "{counts:?}");
    assert!((100..=110).contains(&counts[4]), "{counts:?}");
    net.add_load(PortId(0), 4, 1000, &[(Time(900_000), 1_000_000_000)], Time(2_000_000));
    all(&mut net, 1_000_000);
    net.end_loads();
    let sent = net.stats().background_frames;
    all(&mut net, 2_000_000);
    assert!(sent > before && net.stats().background_frames == sent && net.inside() == 0, "{:?}", net.stats());
}

/// What others take of a bus is missing; a bus never stands still, and one without a limit has none.
#[test]
fn a_loaded_bus_is_slower() {
    let spans = |bytes_per_second| {
        let mut net: Net<u32> = Net::new(1);
        let subnet = net.add_subnet(&SubnetModel::default());
        let host = net.add_host();
        let bus = net.add_bus(host, BusModel { bytes_per_second, ..BusModel::default() });
        let hca = net.add_hca(bus, FREE_HCA);
        let port = net.add_port(hca, subnet, PLAIN_LINK, 1, 0);
        let steps = [(10_000, 750_000_000), (20_000, 5_000_000_000), (500_000, 0)];
        net.load_bus(bus, &steps.map(|(at, load)| (Time(at), load)));
        [(0, 9_999), (10_000, 19_999), (20_000, 499_999), (500_000, 600_000)].map(|(at, until)| {
            net.write_memory(Time(at), port, 1000, 1);
            all(&mut net, until)[0].0 - at
        })
    };
    assert_eq!(spans(1_000_000_000), [1_000, 4_000, 100_000, 1_000]);
    assert_eq!(spans(0), [0; 4]);
}

/// A load whose receiver is gone is lost on the way, and is no endless loop.
#[test]
fn background_load_on_a_dead_path_is_dropped() {
    let (mut net, subnet) = star(2);
    net.set_plane(subnet, 0, false);
    net.add_background(PortId(0), 4, 1000, &[(Time(0), Time(100_000))]);
    net.set_link(Time(50_000), PortId(0), Direction::Both, false, None);
    assert_eq!(all(&mut net, 200_000), []);
    let stats = net.stats();
    assert!(stats.background_frames > 0 && stats.background_frames == stats.background_lost, "{stats:?}");
    assert!(stats.events < 10_000, "{stats:?}");
}

/// What is due at the same moment happens in the order in which it was decided.
#[test]
fn ties_go_by_order() {
    let (mut net, _) = star(2);
    for body in 0..5 {
        net.at(Time(100), body);
    }
    net.at(Time(50), 9);
    let reported = all(&mut net, 1000);
    let expected = [(50, 9), (100, 0), (100, 1), (100, 2), (100, 3), (100, 4)];
    assert_eq!(reported, expected.map(|(at, body)| (at, Outcome::Timer(body))));
    net.at(Time(10), 7);
    assert_eq!(all(&mut net, 1000), [(1000, Outcome::Timer(7))], "what is past is reported at once");
}

/// A caller that answers an outcome at once loses no part of a nanosecond.
#[test]
fn answers_at_once_are_exact() {
    let (mut net, _) = star(1);
    let hca = net.hca_of(PortId(0));
    net.hcas[hca.0 as usize].rate = super::super::agenda::Rate::new(3_000_000_000);
    // Within the HCA: 333.3 ns each way.
    net.send(Time(0), frame(0, 2, 1)).unwrap();
    let mut last = Time(0);
    while let Some((at, outcome)) = net.step(Time(u64::MAX)) {
        if let Outcome::Arrived { body, .. } = outcome {
            last = at;
            if body < 3 {
                net.send(at, frame(0, 2, body + 1)).unwrap();
            }
        }
    }
    assert_eq!(last, Time(2000));
}

/// A plane's jitter and holds work where the plane costs nothing else, and frames stay in order.
#[test]
fn a_free_plane_can_have_jitter() {
    let (mut net, subnet) = star(2);
    net.jitter_at(Place::Plane(subnet, 0), Nanos(100_000));
    for body in 0..8 {
        net.send(Time(0), frame(0, 4, body)).unwrap();
    }
    let reported = arrivals(&all(&mut net, 1_000_000));
    assert!(reported[7].0 > 20_000, "{reported:?}");
    assert!(reported.iter().map(|reported| reported.1).eq(0..8), "{reported:?}");
}

/// A frame that comes to a place at the very moment when a hold ends stays behind those that are kept.
#[test]
fn frame_at_the_end_of_a_hold_keeps_the_order() {
    let (mut net, _) = star(2);
    net.hold(PortId(1), Time(1_000_000));
    net.send(Time(0), frame(0, 4, 1)).unwrap();
    assert_eq!(all(&mut net, 10_000), []);
    // Its head is at the output at 10100, and its event is older than the hold's new end.
    net.send(Time(10_000), frame(0, 4, 2)).unwrap();
    assert_eq!(all(&mut net, 10_050), []);
    net.hold(PortId(1), Time(10_100));
    assert_eq!(arrivals(&all(&mut net, 100_000)), [(11_100, 1), (12_100, 2)]);
}
