//! Tests of the fabric.

mod basics;
mod faults;
mod histories;
mod oracle;
mod servers;

use rerail_core::time::Time;

use super::{BusModel, Frame, HcaModel, LinkModel, Net, Outcome, PlaneModel, PortId, SubnetId, SubnetModel};

/// An HCA that costs nothing.
const FREE_HCA: HcaModel =
    HcaModel { bytes_per_second: 0, ns_per_message_tx: 0, ns_per_message_rx: 0, latency_tx_ns: 0, latency_rx_ns: 0 };

/// A byte per nanosecond, and nothing else.
const PLAIN_LINK: LinkModel = LinkModel { bytes_per_second: 1_000_000_000, header_bytes: 0, latency_ns: 0 };

/// A star of hosts with one port each on plain links, LMC 1: port n has the LIDs 2n + 2 and 2n + 3, which
/// lead over the two planes, the second 1000 ns longer. Switch 100 ns.
fn star(ports: u16) -> (Net<u32>, SubnetId) {
    let mut net = Net::new(7);
    let near = PlaneModel { latency_ns: 0, bytes_per_second: 0 };
    let planes = vec![near, PlaneModel { latency_ns: 1000, ..near }];
    let subnet = net.add_subnet(&SubnetModel { latency_ns: 100, planes });
    for index in 0..ports {
        let host = net.add_host();
        let bus = net.add_bus(host, BusModel::default());
        let hca = net.add_hca(bus, FREE_HCA);
        net.add_port(hca, subnet, PLAIN_LINK, index * 2 + 2, 1);
    }
    (net, subnet)
}

/// A frame of 1000 bytes that needs no bus.
fn frame(from: u32, dlid: u16, body: u32) -> Frame<u32> {
    Frame { from: PortId(from), dlid, wire_bytes: 1000, read_bytes: 0, control: false, first: true, body }
}

/// The same, as control.
fn control(from: u32, dlid: u16, body: u32) -> Frame<u32> {
    Frame { control: true, ..frame(from, dlid, body) }
}

/// All outcomes until then, as `(nanoseconds, outcome)`.
fn all(net: &mut Net<u32>, until: u64) -> Vec<(u64, Outcome<u32>)> {
    std::iter::from_fn(|| net.step(Time(until))).map(|(at, outcome)| (at.0, outcome)).collect()
}

/// The moments and bodies of arrivals among outcomes.
fn arrivals(outcomes: &[(u64, Outcome<u32>)]) -> Vec<(u64, u32)> {
    let body = |(at, outcome): &(u64, Outcome<u32>)| match outcome {
        Outcome::Arrived { body, .. } => Some((*at, *body)),
        _ => None,
    };
    outcomes.iter().filter_map(body).collect()
}

/// The bodies of frames lost, and where.
fn losses(outcomes: &[(u64, Outcome<u32>)]) -> Vec<(u32, super::LostAt)> {
    let body = |(_, outcome): &(u64, Outcome<u32>)| match outcome {
        Outcome::Lost { body, why, .. } => Some((*body, *why)),
        _ => None,
    };
    outcomes.iter().filter_map(body).collect()
}
