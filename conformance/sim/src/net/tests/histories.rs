//! Random fabrics with random traffic and faults: what holds whatever happens.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rerail_core::time::{Nanos, Time};

use super::super::*;
use crate::rng::Rng;

/// What a frame of a history carries: which path and class it belongs to, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    from: u32,
    dlid: u16,
    control: bool,
    number: u64,
    bytes: u32,
}

/// A history under way, and what it checks.
struct History {
    net: Net<Tag>,
    dice: Rng,
    subnet: SubnetId,
    now: Time,
    ports: u32,
    buses: u32,
    /// Buffer of every port.
    buffer: u32,
    /// Frames were or are held: those may exceed a buffer.
    held: bool,
    sent: BTreeMap<(u32, u16, bool), u64>,
    /// The next number that may arrive on a path.
    next: BTreeMap<(u32, u16, bool), u64>,
    over: u64,
    writes: u64,
    written: BTreeMap<u32, u64>,
    reported: Vec<(u64, Outcome<Tag>)>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut dice = Rng::new(seed, "history");
        let mut net = Net::new(seed);
        let mut planes = Vec::new();
        for _ in 0..dice.within(1, 3) {
            let bytes_per_second = dice.below(2) * dice.within(200_000_000, 2_000_000_000);
            planes.push(PlaneModel { latency_ns: dice.below(2) * dice.below(2000), bytes_per_second });
        }
        let subnet = net.add_subnet(&SubnetModel { latency_ns: dice.below(500), planes });
        let (hosts, buffer) = (dice.within(1, 4), dice.within(2048, 16_384) as u32);
        let (mut ports, mut buses) = (0, 0);
        for _ in 0..hosts {
            let host = net.add_host();
            for _ in 0..dice.within(1, 2) {
                let model = BusModel {
                    bytes_per_second: dice.below(3) * 500_000_000,
                    read_ns_per_frame: dice.below(400),
                    write_ns_per_frame: dice.below(200),
                    half_duplex: dice.one_in(2),
                };
                let bus = net.add_bus(host, model);
                buses += 1;
                for _ in 0..dice.within(1, 2) {
                    let model = HcaModel {
                        bytes_per_second: dice.below(2) * 1_500_000_000,
                        ns_per_message_tx: dice.below(300),
                        ns_per_message_rx: dice.below(300),
                        ..HcaModel::default()
                    };
                    let hca = net.add_hca(bus, model);
                    net.set_stage(hca, dice.within(1, 8) as u32);
                    net.set_frame_cost(hca, dice.below(50));
                    for _ in 0..dice.within(1, 2) {
                        let bytes_per_second = *dice.pick(&[250_000_000, 1_000_000_000, 4_000_000_000]).unwrap();
                        let link = LinkModel { bytes_per_second, ..LinkModel::default() };
                        let port = net.add_port(hca, subnet, link, (ports as u16 + 1) * 4, 2);
                        net.set_receive_buffer(port, buffer);
                        net.set_half_duplex(port, dice.one_in(8));
                        ports += 1;
                    }
                }
            }
        }
        History {
            net,
            dice,
            subnet,
            now: Time(0),
            ports,
            buses,
            buffer,
            held: false,
            sent: BTreeMap::new(),
            next: BTreeMap::new(),
            over: 0,
            writes: 0,
            written: BTreeMap::new(),
            reported: Vec::new(),
        }
    }

    fn port(&mut self) -> PortId {
        PortId(self.dice.below(u64::from(self.ports)) as u32)
    }

    fn send(&mut self) {
        let from = self.port();
        let to = self.dice.within(1, u64::from(self.ports) + u64::from(self.dice.clone().one_in(20))) as u16;
        let (dlid, control) = (to * 4 + self.dice.below(4) as u16, self.dice.one_in(6));
        let bytes = self.dice.within(16, 2048) as u32;
        let read_bytes = if control || self.dice.one_in(3) { 0 } else { bytes };
        let number = self.sent.get(&(from.0, dlid, control)).copied().unwrap_or(0);
        let body = Tag { from: from.0, dlid, control, number, bytes };
        let first = self.dice.one_in(3);
        let frame = Frame { from, dlid, wire_bytes: bytes, read_bytes, control, first, body };
        match self.net.send(self.now, frame) {
            Ok(()) => {
                self.sent.insert((from.0, dlid, control), number + 1);
            }
            Err(back) => assert!(!back.control && back.body == body, "{back:?}"),
        }
    }

    /// A fault of any sort.
    fn harm(&mut self) {
        let (port, now) = (self.port(), self.now);
        let plane = self.dice.below(self.net.planes(self.subnet) as u64) as usize;
        let place = *self.dice.pick(&[Place::From(port), Place::To(port), Place::Plane(self.subnet, plane)]).unwrap();
        let up = self.dice.one_in(2);
        let delay = Nanos(self.dice.below(5000));
        match self.dice.below(10) {
            0 => self.net.set_link(now, port, Direction::Tx, up, Some(delay)),
            1 => self.net.set_link(now, port, Direction::Rx, up, None),
            2 => self.net.set_link(now, port, Direction::Both, up, Some(delay)),
            3 => self.net.set_plane(self.subnet, plane, up),
            4 if self.dice.one_in(4) => self.net.set_switch(self.subnet, up),
            5 => self.net.jitter_at(place, delay),
            6 => {
                self.held = true;
                self.net.hold_at(place, now + delay + delay);
            }
            7 => self.net.damage_next(place, Pick::next(Damage::Lose, Class::Any, 2)),
            8 => self.net.damage_next(place, Pick::next(Damage::Corrupt, Class::Data, 2)),
            9 => self.net.clear(place),
            _ => self.net.damage_rate(place, Damage::Lose, Class::Any, self.dice.below(2) as u32 * 100_000),
        }
    }

    fn heal(&mut self) {
        self.net.set_switch(self.subnet, true);
        for plane in 0..self.net.planes(self.subnet) {
            self.net.set_plane(self.subnet, plane, true);
            self.net.clear(Place::Plane(self.subnet, plane));
        }
        for port in 0..self.ports {
            self.net.heal(self.now, PortId(port), Some(Nanos(0)));
        }
    }

    fn run(&mut self, until: Time) {
        while let Some((at, outcome)) = self.net.step(until) {
            assert!(
                at <= until && at >= self.reported.last().map_or(Time(0), |reported| Time(reported.0)),
                "time goes on"
            );
            match &outcome {
                Outcome::Arrived { port, dlid, body, .. } => {
                    assert_eq!(*dlid, body.dlid);
                    let next = self.next.entry((body.from, body.dlid, body.control)).or_default();
                    assert!(body.number >= *next, "{body:?} after {next}");
                    *next = body.number + 1;
                    self.over += 1;
                    for _ in 0..self.dice.below(3) {
                        let tag = Tag { number: self.writes, ..*body };
                        self.net.write_memory(at, *port, body.bytes * u32::from(!self.dice.one_in(4)), tag);
                        self.writes += 1;
                    }
                }
                Outcome::Written { port, body } => {
                    let last = self.written.insert(port.0, body.number);
                    assert!(last.is_none_or(|last| last < body.number), "writes of a port in order");
                }
                Outcome::Lost { .. } => self.over += 1,
                _ => {}
            }
            self.reported.push((at.0, outcome));
            for port in 0..self.ports {
                let taken = self.net.credit_taken(PortId(port));
                assert!(self.held || taken <= u64::from(self.buffer), "{taken} bytes in a buffer of {}", self.buffer);
            }
        }
        self.now = self.now.max(until);
    }

    /// Nothing is left, and everything that was sent has ended once.
    fn finish(mut self) -> Vec<(u64, Outcome<Tag>)> {
        self.heal();
        self.run(Time(self.now.0 + 1_000_000_000));
        assert_eq!(self.net.inside(), 0, "something is left");
        assert_eq!(self.over, self.sent.values().sum::<u64>(), "every frame ends once");
        let stats = self.net.stats();
        assert_eq!((stats.arrived + stats.lost, stats.written), (self.over, self.writes));
        assert_eq!(stats.background_frames, stats.background_written + stats.background_lost);
        for port in (0..self.ports).map(PortId) {
            assert_eq!(self.net.credit_taken(port), 0);
            assert_eq!(self.net.room(port), self.net.hcas[self.net.hca_of(port).0 as usize].stage_frames as usize);
        }
        for bus in 0..self.buses {
            // Half duplex one server, full duplex two: none is busy longer than time is.
            let servers = if self.net.buses[bus as usize].half_duplex { 1 } else { 2 };
            assert!(self.net.bus_busy(BusId(bus)).0 <= servers * self.now.0);
        }
        self.reported
    }
}

fn history(seed: u64, faults: bool, background: bool) -> Vec<(u64, Outcome<Tag>)> {
    let mut history = History::new(seed);
    if background {
        for _ in 0..2 {
            let (from, to) = (history.port(), history.port());
            let windows = [(Time(50_000), Time(100_000)), (Time(80_000), Time(200_000))];
            history.net.add_background(from, to.0 as u16 * 4 + 4, 2048, &windows);
        }
    }
    for _ in 0..400 {
        for _ in 0..history.dice.below(4) {
            history.send();
        }
        if faults && history.dice.one_in(8) {
            history.harm();
        }
        let until = Time(history.now.0 + history.dice.below(3000));
        history.run(until);
    }
    history.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Conservation, order per path, order of writes, buffers never over their size, nothing left, nothing
    /// doubly busy.
    #[test]
    fn frames_end_once_and_in_order_under_random_faults(seed: u64, faults: bool, background: bool) {
        history(seed, faults, background);
    }

    /// Equal seeds, equal outcomes.
    #[test]
    fn histories_repeat(seed: u64, background: bool) {
        prop_assert_eq!(history(seed, true, background), history(seed, true, background));
    }

    /// Without faults nothing is lost but frames without a receiver.
    #[test]
    fn a_healthy_fabric_loses_nothing(seed: u64) {
        let nowhere = |reported: &(u64, Outcome<Tag>)| match reported.1 {
            Outcome::Lost { why, .. } => why == LostAt::NoRoute,
            _ => true,
        };
        prop_assert!(history(seed, false, true).iter().all(nowhere));
    }
}
