//! One path against a slow, obvious oracle: every server's work written down, and checked not to overlap.

use proptest::prelude::*;
use rerail_core::time::Time;

use super::{Frame, HcaModel, LinkModel, Net, Outcome, PortId, SubnetModel};
use crate::net::BusModel;

/// A server that keeps a record of what it did.
#[derive(Default)]
struct Server {
    /// From, until, in picoseconds.
    served: Vec<(u64, u64)>,
}

impl Server {
    /// Serves one that comes at `at` after all that came before; when it is done.
    fn serve(&mut self, at: u64, span: u64) -> u64 {
        let free = self.served.iter().map(|served| served.1).max().unwrap_or(0);
        let from = at.max(free);
        self.served.push((from, from + span));
        from + span
    }
}

/// What is sent: the pause before it in nanoseconds, its bytes, whether they are read over the bus, first of
/// a message.
type Sending = (u64, u32, bool, bool);

const BUS: BusModel =
    BusModel { bytes_per_second: 500_000_000, read_ns_per_frame: 300, write_ns_per_frame: 70, half_duplex: false };
const HCA: HcaModel = HcaModel {
    bytes_per_second: 2_000_000_000,
    ns_per_message_tx: 400,
    ns_per_message_rx: 150,
    latency_tx_ns: 800,
    latency_rx_ns: 600,
};
const LINK: LinkModel = LinkModel { bytes_per_second: 1_000_000_000, header_bytes: 20, latency_ns: 30 };

/// Arrivals and writes by the oracle, in nanoseconds rounded up, for frames that find room and credit.
fn by_oracle(sendings: &[Sending]) -> Vec<(u64, u64)> {
    let [mut read, mut shared_tx, mut tx, mut up, mut down] = [(); 5].map(|()| Server::default());
    let [mut shared_rx, mut rx, mut write] = [(); 3].map(|()| Server::default());
    let (mut now, mut staged) = (0, 0);
    let mut times = Vec::new();
    for &(pause, bytes, reads, first) in sendings {
        let bytes = u64::from(bytes);
        now += pause * 1000;
        // Frames without a read don't overtake those with one.
        let fetched = if reads { read.serve(now, 300_000 + bytes * 2000) } else { now.max(staged) };
        staged = fetched;
        let sent = tx.serve(shared_tx.serve(fetched, bytes * 500), if first { 400_000 } else { 0 }) + 800_000;
        let on_wire = up.serve(sent, (bytes + 20) * 1000) - (bytes + 20) * 1000;
        let landed = down.serve(on_wire + 30_000 + 250_000, (bytes + 20) * 1000) + 30_000;
        let came = rx.serve(shared_rx.serve(landed, bytes * 500), if first { 150_000 } else { 0 }) + 600_000;
        let written = write.serve(came, 70_000 + bytes * 2000);
        times.push((came.div_ceil(1000), written.div_ceil(1000)));
    }
    for server in [read, shared_tx, tx, up, down, shared_rx, rx, write] {
        assert!(server.served.windows(2).all(|pair| pair[0].1 <= pair[1].0), "the oracle is wrong");
    }
    times
}

fn by_net(sendings: &[Sending]) -> Vec<(u64, u64)> {
    let mut net: Net<usize> = Net::new(1);
    let subnet = net.add_subnet(&SubnetModel { latency_ns: 250, ..SubnetModel::default() });
    for lid in [1, 2] {
        let host = net.add_host();
        let bus = net.add_bus(host, BUS);
        let hca = net.add_hca(bus, HCA);
        net.set_stage(hca, u32::MAX);
        let port = net.add_port(hca, subnet, LINK, lid, 0);
        net.set_receive_buffer(port, u32::MAX);
    }
    let mut times = vec![(0, 0); sendings.len()];
    let mut run = |net: &mut Net<usize>, until: Time| {
        while let Some((at, outcome)) = net.step(until) {
            match outcome {
                Outcome::Arrived { port, body, .. } => {
                    times[body].0 = at.0;
                    net.write_memory(at, port, sendings[body].1, body);
                }
                Outcome::Written { body, .. } => times[body].1 = at.0,
                other => panic!("{other:?}"),
            }
        }
    };
    let mut now = 0;
    for (body, &(pause, bytes, reads, first)) in sendings.iter().enumerate() {
        now += pause;
        run(&mut net, Time(now));
        let read_bytes = if reads { bytes } else { 0 };
        let frame = Frame { from: PortId(0), dlid: 2, wire_bytes: bytes, read_bytes, control: false, first, body };
        net.send(Time(now), frame).unwrap();
    }
    run(&mut net, Time(u64::MAX));
    times
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// To the nanosecond.
    #[test]
    fn single_path_times_match_the_oracle(
        sendings in prop::collection::vec((0u64..6000, 1u32..4096, any::<bool>(), any::<bool>()), 1..60)
    ) {
        prop_assert_eq!(by_net(&sendings), by_oracle(&sendings));
    }
}
