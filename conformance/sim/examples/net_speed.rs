//! How many events a second the fabric does: all ports of a subnet send streams of 2048-byte frames to a
//! neighbour, and then small frames to peers all over. `cargo run --release -p rerail-sim --example net_speed
//! [ports] [milliseconds]` (of virtual time).

use std::time::Instant;

use rerail_core::time::Time;
use rerail_sim::net::{BusModel, Frame, HcaModel, LinkModel, Net, Outcome, PortId, SubnetModel};
use rerail_sim::rng::Rng;

/// What a device's packet takes, about.
type Body = [u64; 8];

/// multirail-2004, 6.1: PCI-X.
const PCI_X: BusModel =
    BusModel { bytes_per_second: 1_064_000_000, read_ns_per_frame: 392, write_ns_per_frame: 101, half_duplex: true };

fn main() {
    let mut words = std::env::args().skip(1);
    let mut number = |or: u32| words.next().map_or(or, |word| word.parse().expect("a number"));
    let (ports, until) = (number(64).clamp(2, 40_000), Time(u64::from(number(50)) * 1_000_000));
    measure("streams to a neighbour, 2048 B", ports, until, 2048, |from, ports, _| (from + 1) % ports);
    measure("frames to any port, 64 B", ports, until, 64, |_, ports, rng| rng.below(u64::from(ports)) as u32);
}

fn measure(what: &str, ports: u32, until: Time, bytes: u32, mut peer: impl FnMut(u32, u32, &mut Rng) -> u32) {
    let mut net: Net<Body> = Net::new(1);
    let mut rng = Rng::new(1, "net_speed");
    let subnet = net.add_subnet(&SubnetModel::default());
    for index in 0..ports {
        let host = net.add_host();
        let bus = net.add_bus(host, PCI_X);
        let hca = net.add_hca(bus, HcaModel::default());
        net.add_port(hca, subnet, LinkModel::default(), index as u16 + 1, 0);
    }
    let mut fill = |net: &mut Net<Body>, now, from: PortId| {
        while net.has_room(from) {
            let dlid = peer(from.0, ports, &mut rng) as u16 + 1;
            let frame = Frame {
                from,
                dlid,
                wire_bytes: bytes,
                read_bytes: bytes,
                control: false,
                first: false,
                body: [u64::from(from.0); 8],
            };
            net.send(now, frame).expect("there is room");
        }
        net.request_room(from);
    };
    let begin = Instant::now();
    for port in 0..ports {
        fill(&mut net, Time(0), PortId(port));
    }
    while let Some((now, outcome)) = net.step(until) {
        match outcome {
            Outcome::Arrived { port, body, .. } => net.write_memory(now, port, bytes, body),
            Outcome::Room(port) => fill(&mut net, now, port),
            _ => {}
        }
    }
    let (stats, took) = (net.stats(), begin.elapsed());
    println!(
        "{what}: {ports} ports, {} events, {} frames in {:.2} s: {:.2} million events/s, {:.2} million frames/s; heap {}",
        stats.events,
        stats.frames,
        took.as_secs_f64(),
        stats.events as f64 / took.as_secs_f64() / 1e6,
        stats.frames as f64 / took.as_secs_f64() / 1e6,
        stats.waiting_max,
    );
}
