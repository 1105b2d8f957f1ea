//! Messages that go together.

use super::*;
use rerail_core::config::Policy;

/// All sorts of messages, many at once, over rails of every sort: they arrive whole, in order, in fewer
/// packets.
#[test]
fn floods_need_fewer_packets() {
    for rails in ALL_RAILS {
        let sent = [Policy::Greedy, Policy::Aggregate].map(|strategy| {
            let config = Config { multiplex: strategy, ..small() };
            let mut regions = regions(&config, 2);
            let mut cluster = Cluster::new(&mut regions, &config, rails, &[100_000], 3);
            for n in 0..100u64 {
                fill(&mut cluster, 0, 100 * n, n, n as u8);
                let (from, into) = (seg(100 * n, n), seg(50_000 + 100 * n, 100));
                let send = SendRequest { cookie: Cookie(n), ..SendRequest::new(PeerId(1), &from) };
                cluster.nodes[0].endpoint.send(Time(0), &send).unwrap();
                let recv = RecvRequest { cookie: Cookie(n), ..RecvRequest::new(Selector::ANY_UNTAGGED, &into) };
                cluster.nodes[1].endpoint.recv(Time(0), &recv).unwrap();
            }
            cluster.run_until_idle();
            assert_eq!(completions(&mut cluster, 0).len(), 100);
            for (n, done) in completions(&mut cluster, 1) {
                assert_eq!(done.unwrap().bytes, n);
                assert_filled(&cluster, 1, 50_000 + 100 * n, n, n as u8);
            }
            assert_eq!(cluster.nodes[1].endpoint.usage().blocks.used, 0);
            cluster.nodes[0].endpoint.stats().packets_sent
        });
        assert!(sent[1] * 3 < sent[0], "{sent:?} packets, alone and together");
    }
}
