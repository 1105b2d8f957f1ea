//! Two TCP rails carry one message together.

use rerail_core::endpoint::{MessageClass, Policy, RailState, RecvRequest, Selector, SendRequest};
use rerail_core::rail::RailKind;

use super::cluster::{Cluster, Fabric, pattern, whole};

/// Bytes that each TCP rail of a rank has sent.
fn sent(cluster: &Cluster, rank: usize) -> Vec<u64> {
    let rails = cluster.transports[rank].rails();
    rails.filter(|rail| rail.kind == RailKind::Tcp).map(|rail| rail.counters.bytes_sent).collect()
}

fn exchange(cluster: &mut Cluster, bytes: usize) {
    let source = cluster.filled(0, bytes, 1);
    let target = cluster.empty(1, bytes);
    let peer = cluster.transports[1].rank();
    let recv = cluster.at(1).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, bytes))).unwrap();
    let send = cluster.at(0).send(&SendRequest::new(peer, &whole(source, bytes))).unwrap();
    cluster.complete(0, send).unwrap();
    assert_eq!(cluster.complete(1, recv).unwrap().bytes, bytes as u64);
    assert!(cluster.bytes(1, target) == pattern(bytes, 1));
}

/// The default policy depends on the measured speed of the rails: that is tested in virtual time.
#[test]
fn a_large_message_is_carried_by_both_rails() {
    const BYTES: usize = 4 << 20;
    let (mut cluster, _) = Cluster::new(Fabric::TwoTcp);
    let peers = [cluster.transports[1].rank(), cluster.transports[0].rank()];
    for transport in &mut cluster.transports {
        transport.set_policy(MessageClass::Large, Policy::Even);
    }
    // The first message may find only one of the rails standing.
    exchange(&mut cluster, BYTES);
    let all_up = |cluster: &Cluster| {
        cluster.transports.iter().zip(peers).all(|(transport, peer)| {
            let mut rails = transport.rails().filter(|rail| rail.kind == RailKind::Tcp);
            rails.all(|rail| {
                transport.endpoint().rail_health(peer, rail.id).is_some_and(|health| health.state == RailState::Up)
            })
        })
    };
    cluster.until("both rails stand at both ends", |cluster| all_up(cluster));
    let before = sent(&cluster, 0);
    exchange(&mut cluster, BYTES);
    let carried: Vec<u64> = sent(&cluster, 0).iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(carried.len(), 2);
    let half = BYTES as u64 / 2;
    assert!(carried.iter().all(|bytes| (half..half + half / 16).contains(bytes)), "{carried:?} of {BYTES} bytes");
}

#[test]
fn a_small_message_takes_one_rail() {
    let (mut cluster, _) = Cluster::new(Fabric::TwoTcp);
    // Connection and first message, then only the second one counts.
    exchange(&mut cluster, 100);
    let before = sent(&cluster, 0);
    exchange(&mut cluster, 1000);
    let carried = sent(&cluster, 0).iter().zip(before).filter(|(after, before)| **after - before >= 1000).count();
    assert_eq!(carried, 1);
}
