//! Rates, sharing, order, conservation.

use proptest::prelude::*;
use rerail_core::time::{Nanos, Time};

use super::super::*;
use crate::rng::Rng;

/// Frames that a port's transmit stage takes, and bytes of its receive buffer, unless set otherwise.
const STAGE: u64 = 8;
const BUFFER: u64 = 64 << 10;

/// multirail-2004, 6.1: PCI-X, 64 bit, 133 MHz. What a read costs more is calibrated by the paper's 884 MB/s.
const PCI_X: BusModel =
    BusModel { bytes_per_second: 1_064_000_000, read_ns_per_frame: 392, write_ns_per_frame: 101, half_duplex: true };

/// Two hosts with so many HCAs each; `shared`: all on one bus. Ports alternate: 0 and 1 meet.
fn pairs(count: u32, shared: bool, bus: BusModel) -> Net<u64> {
    let mut net = Net::new(1);
    let subnet = net.add_subnet(&SubnetModel::default());
    let hosts = [net.add_host(), net.add_host()];
    let mut buses = Vec::new();
    for pair in 0..count {
        for (side, host) in hosts.into_iter().enumerate() {
            if pair == 0 || !shared {
                buses.push(net.add_bus(host, bus));
            }
            let bus = buses[if shared { side } else { (pair * 2) as usize + side }];
            let hca = net.add_hca(bus, HcaModel::default());
            net.add_port(hca, subnet, LinkModel::default(), (pair * 2) as u16 + side as u16 + 1, 0);
        }
    }
    net
}

/// Keeps the given ports sending 2048-byte frames to their partners for 10 ms; bytes that came to memory, per
/// port.
fn stream(net: &mut Net<u64>, senders: &[u32]) -> Vec<u64> {
    let end = Time(10_000_000);
    let mut received = vec![0; net.ports() as usize];
    let fill = |net: &mut Net<u64>, port: u32, now| {
        let dlid = (port ^ 1) as u16 + 1;
        let frame = |body| Frame {
            from: PortId(port),
            dlid,
            wire_bytes: 2048 + 14,
            read_bytes: 2048,
            control: false,
            first: false,
            body,
        };
        while net.send(now, frame(2048)).is_ok() {}
    };
    for &port in senders {
        fill(net, port, Time(0));
    }
    while let Some((now, outcome)) = net.step(end) {
        match outcome {
            Outcome::Arrived { port, body, .. } => net.write_memory(now, port, body as u32, body),
            Outcome::Written { port, body } => received[port.0 as usize] += body,
            Outcome::Room(port) => fill(net, port.0, now),
            other => panic!("{other:?}"),
        }
    }
    received
}

/// Bytes in 10 ms as MB/s.
fn mb_per_second(bytes: u64) -> f64 {
    bytes as f64 / 10_000.0
}

/// The bus is the bottleneck of multirail-2004's testbed (figures 7 and 8): 884 MB/s one way, 943 MB/s both
/// ways.
#[test]
fn a_pci_x_bus_gives_the_paper_its_single_rail() {
    let one_way = mb_per_second(stream(&mut pairs(1, true, PCI_X), &[0])[1]);
    assert!((one_way / 884.0 - 1.0).abs() < 0.02, "{one_way} MB/s");
    let both = stream(&mut pairs(1, true, PCI_X), &[0, 1]);
    let (there, back) = (mb_per_second(both[1]), mb_per_second(both[0]));
    assert!(((there + back) / 943.0 - 1.0).abs() < 0.02, "{there} + {back} MB/s");
    assert!((there / back - 1.0).abs() < 0.05, "{there} against {back} MB/s");
}

/// Two HCAs on buses of their own give twice the rate of one; on one bus, the same as one (multirail-2004,
/// 3.1, 3.2).
#[test]
fn two_buses_double_and_one_bus_does_not() {
    let one = stream(&mut pairs(1, true, PCI_X), &[0])[1];
    let apart = stream(&mut pairs(2, false, PCI_X), &[0, 2]);
    let shared = stream(&mut pairs(2, true, PCI_X), &[0, 2]);
    assert!((((apart[1] + apart[3]) as f64 / one as f64) - 2.0).abs() < 0.02, "{apart:?} {one}");
    assert!((((shared[1] + shared[3]) as f64 / one as f64) - 1.0).abs() < 0.03, "{shared:?} {one}");
    assert!((shared[1] as f64 / shared[3] as f64 - 1.0).abs() < 0.05, "unfair: {shared:?}");
}

/// Without a bus in the way the link's rate is what comes through, headers taken off.
#[test]
fn a_link_gives_its_rate() {
    let rate = mb_per_second(stream(&mut pairs(1, true, BusModel::default()), &[0])[1]);
    let link = LinkModel::default();
    let expected = 1000.0 * 2048.0 / (2048.0 + 14.0 + f64::from(link.header_bytes));
    assert!((rate / expected - 1.0).abs() < 0.01, "{rate} of {expected} MB/s");
}

/// Load that comes and goes takes half while it is there.
#[test]
fn background_takes_its_half_while_it_is_there() {
    let quiet = stream(&mut pairs(1, true, BusModel::default()), &[0])[1];
    let mut loaded = pairs(1, true, BusModel::default());
    loaded.add_background(PortId(0), 2, 2062, &[(Time(5_000_000), Time(10_000_000))]);
    let loaded = stream(&mut loaded, &[0])[1];
    assert!((loaded as f64 / quiet as f64 - 0.75).abs() < 0.02, "{loaded} of {quiet}");
}

/// A receiver slower than its senders: what waits for it is bounded by its buffer, and nothing is lost.
#[test]
fn credit_bounds_the_bytes_in_flight() {
    let slow = BusModel { bytes_per_second: 100_000_000, ..BusModel::default() };
    let mut net: Net<u64> = Net::new(1);
    let subnet = net.add_subnet(&SubnetModel::default());
    for lid in 1..=9 {
        let host = net.add_host();
        let bus = net.add_bus(host, if lid == 9 { slow } else { BusModel::default() });
        let hca = net.add_hca(bus, HcaModel::default());
        net.add_port(hca, subnet, LinkModel::default(), lid, 0);
    }
    let frame = |port| Frame {
        from: PortId(port),
        dlid: 9,
        wire_bytes: 2048,
        read_bytes: 0,
        control: false,
        first: true,
        body: u64::from(port),
    };
    let (mut sent, mut came) = (0u64, [0u64; 8]);
    let mut now = Time(0);
    for port in 0..8 {
        while net.send(now, frame(port)).is_ok() {
            sent += 1;
        }
    }
    let mut in_flight = 0;
    while let Some((at, outcome)) = net.step(Time(20_000_000)) {
        now = at;
        match outcome {
            Outcome::Arrived { port, body, .. } => net.write_memory(now, port, 2048, body),
            Outcome::Written { body, .. } => came[body as usize] += 1,
            Outcome::Room(port) if now < Time(10_000_000) => {
                while net.send(now, frame(port.0)).is_ok() {
                    sent += 1;
                }
            }
            Outcome::Room(_) => {}
            other => panic!("{other:?}"),
        }
        let came = came.iter().sum::<u64>();
        in_flight = in_flight.max((sent - came) * 2048);
    }
    let staged = 8 * STAGE * 2048;
    assert!(in_flight <= staged + BUFFER, "{in_flight} bytes");
    assert_eq!(came.iter().sum::<u64>(), sent, "a lossless fabric lost something");
    let (least, most) = (came.iter().min().unwrap(), came.iter().max().unwrap());
    assert!(most - least <= most / 10 + 8, "unfair: {came:?}");
}

/// Low bits of the LID choose the plane; one that is down loses its frames, the other doesn't.
#[test]
fn planes_fail_one_by_one() {
    let mut net: Net<u32> = Net::new(1);
    let plane = PlaneModel { latency_ns: 0, bytes_per_second: 0 };
    let far = PlaneModel { latency_ns: 1000, ..plane };
    let subnet = net.add_subnet(&SubnetModel { latency_ns: 100, planes: vec![plane, far] });
    for lid in [2, 4] {
        let host = net.add_host();
        let bus = net.add_bus(host, BusModel::default());
        let hca = net.add_hca(bus, HcaModel::default());
        net.add_port(hca, subnet, LinkModel::default(), lid, 1);
    }
    let frame =
        |dlid, body| Frame { from: PortId(0), dlid, wire_bytes: 64, read_bytes: 0, control: false, first: true, body };
    let arrive = |net: &mut Net<u32>, dlid| {
        let start = net.now();
        net.send(start, frame(dlid, 7)).unwrap();
        let mut end = None;
        while let Some((at, outcome)) = net.step(Time(start.0 + 100_000)) {
            if let Outcome::Arrived { dlid: to, .. } = outcome {
                assert_eq!(to, dlid);
                end = Some(at - start);
            }
        }
        end
    };
    let (near, far) = (arrive(&mut net, 4).unwrap(), arrive(&mut net, 5).unwrap());
    assert_eq!(far.0 - near.0, 1000);
    net.set_plane(subnet, 0, false);
    assert_eq!(arrive(&mut net, 4), None);
    assert_eq!(arrive(&mut net, 5), Some(far));
    net.set_plane(subnet, 0, true);
    net.set_link(Time(0), PortId(1), Direction::Rx, false, None);
    assert_eq!(arrive(&mut net, 4), None);
    assert_eq!(arrive(&mut net, 6), None, "no port has this LID");
}

/// A port notices the state of its link when it was set to.
#[test]
fn link_state_change_is_noticed_after_its_delay() {
    let mut net = pairs(1, true, BusModel::default());
    net.set_link(Time(5), PortId(0), Direction::Both, false, Some(Nanos(100)));
    assert_eq!(net.step(Time(1000)), Some((Time(105), Outcome::LinkState { port: PortId(0), up: false })));
    net.heal(Time(1000), PortId(0), Some(Nanos(7)));
    assert_eq!(net.step(Time(2000)), Some((Time(1007), Outcome::LinkState { port: PortId(0), up: true })));
}

/// Nothing is under way, and all credit is back.
fn is_empty(net: &Net<u64>) -> bool {
    let ports = (0..net.ports()).map(PortId);
    net.inside() == 0 && ports.into_iter().all(|port| net.credit_taken(port) == 0 && net.room(port) as u64 == STAGE)
}

/// What a random history brought: outcomes with their times.
fn history(seed: u64, jitter: u64, loss: u32) -> Vec<(u64, String)> {
    let mut net = pairs(2, true, PCI_X);
    let mut dice = Rng::new(seed, "history");
    for port in 0..4 {
        net.set_jitter(PortId(port), Nanos(jitter));
        net.set_loss(PortId(port), loss);
    }
    let (mut now, mut sent) = (Time(0), [0u64; 4]);
    let mut reported = Vec::new();
    let run = |net: &mut Net<u64>, until, reported: &mut Vec<(u64, String)>| {
        while let Some((at, outcome)) = net.step(until) {
            if let Outcome::Arrived { port, body, .. } = outcome
                && body % 3 > 0
            {
                net.write_memory(at, port, 500, body);
            }
            reported.push((at.0, format!("{outcome:?}")));
        }
    };
    for _ in 0..300 {
        let from = dice.below(4) as usize;
        let bytes = 64 + dice.below(2000) as u32;
        let frame = Frame {
            from: PortId(from as u32),
            dlid: dice.within(1, 4) as u16,
            wire_bytes: bytes,
            read_bytes: if dice.one_in(2) { bytes } else { 0 },
            control: dice.one_in(8),
            first: dice.one_in(2),
            body: (from as u64) << 32 | sent[from],
        };
        if net.send(now, frame).is_ok() {
            sent[from] += 1;
        }
        now = now + Nanos(dice.below(3000));
        run(&mut net, now, &mut reported);
    }
    run(&mut net, Time(u64::MAX), &mut reported);
    let over =
        reported.iter().filter(|(_, what)| what.starts_with("Arrived") || what.starts_with("Lost")).count() as u64;
    assert_eq!(over, sent.iter().sum::<u64>(), "every frame ends once");
    assert!(is_empty(&net), "something is left");
    reported
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every frame arrives or is lost, credit comes back whole, and the seed decides everything.
    #[test]
    fn frames_are_conserved_and_histories_repeat(seed: u64, jitter in 0u64..5000, loss in 0u32..200_000) {
        prop_assert_eq!(history(seed, jitter, loss), history(seed, jitter, loss));
    }

    /// What one port sends another, all of one sort, arrives in order, whatever the jitter.
    #[test]
    fn frames_on_one_path_arrive_in_order(jitter in 0u64..10_000, sizes in prop::collection::vec(64u32..2048, 1..60)) {
        let mut net = pairs(1, true, PCI_X);
        net.set_jitter(PortId(0), Nanos(jitter));
        let (mut next, mut came, mut now) = (0usize, Vec::new(), Time(0));
        loop {
            while let Some(&bytes) = sizes.get(next) {
                let body = next as u64;
                let frame =
                    Frame { from: PortId(0), dlid: 2, wire_bytes: bytes, read_bytes: bytes, control: false, first: true, body };
                if net.send(now, frame).is_err() {
                    break;
                }
                next += 1;
            }
            match net.step(Time(u64::MAX)) {
                Some((at, Outcome::Arrived { body, .. })) => {
                    now = at;
                    came.push(body);
                }
                Some((at, _)) => now = at,
                None => break,
            }
        }
        prop_assert_eq!(came, (0..sizes.len() as u64).collect::<Vec<_>>());
    }
}
