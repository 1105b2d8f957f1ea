//! Peers that were never met: one that computes before its first call is waited for, one that is gone is not.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rerail_core::config::Config;
use rerail_core::endpoint::{Event, LossReason, OpError, RailFault, RecvRequest, Selector, SendRequest};
use rerail_core::ids::{PeerId, RailId};
use rerail_core::time::Nanos;

use super::cluster::{Cluster, Fabric, JOB, on_fabrics, small, whole};
use crate::auth::testing::credentials;
use crate::rail::Rail;
use crate::rail::shm::{ShmOptions, ShmRail};
use crate::rail::tcp::{TcpOptions, TcpRail};

on_fabrics! {
    who_computes_at_first_is_waited_for: Shm Tcp;
    who_was_never_met_and_is_gone_is_lost: Shm Tcp;
}

const RAIL: RailId = RailId(1);
const OTHER: PeerId = PeerId(1);

/// Two ranks whose rails give a call up after 200 ms without an answer: long enough for an answer on a busy
/// machine.
fn short_timeouts(fabric: Fabric) -> Cluster {
    let handshake_timeout = Nanos::from_millis(200);
    let rails = |rank| -> Vec<Box<dyn Rail + Send>> {
        if fabric == Fabric::Shm {
            let options = ShmOptions { handshake_timeout, ..ShmOptions::new(2) };
            return vec![Box::new(ShmRail::open(options, credentials(rank), JOB, PeerId(rank)).unwrap())];
        }
        let options = TcpOptions { handshake_timeout, ..TcpOptions::new(Ipv4Addr::LOCALHOST.into(), 0) };
        vec![Box::new(TcpRail::open(options, credentials(rank), JOB, PeerId(rank)).unwrap())]
    };
    Cluster::with(2, rails, |rank, size| Config { keepalive: Nanos::from_millis(5), ..small(rank, size) })
}

/// G-4, L-16: a call waits at the peer's kernel until there is an answer.
fn who_computes_at_first_is_waited_for(fabric: Fabric) {
    let mut cluster = short_timeouts(fabric);
    cluster.frozen[1] = true;
    let source = cluster.filled(0, 500, 3);
    let send = cluster.at(0).send(&SendRequest::new(OTHER, &whole(source, 500))).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        cluster.step();
    }
    assert_eq!(cluster.at(0).endpoint().rail_health(OTHER, RAIL).map(|health| health.refusals), Some(0));
    cluster.frozen[1] = false;
    let target = cluster.empty(1, 500);
    let recv = cluster.at(1).recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &whole(target, 500))).unwrap();
    assert_eq!(cluster.complete(1, recv).unwrap().bytes, 500);
    cluster.complete(0, send).unwrap();
    assert_eq!(cluster.bytes(1, target), cluster.bytes(0, source));
}

/// F-13: a receive ends with an error though nothing was ever sent to its peer, nor by it.
fn who_was_never_met_and_is_gone_is_lost(fabric: Fabric) {
    let mut cluster = short_timeouts(fabric);
    drop(cluster.transports.pop());
    let target = cluster.empty(0, 500);
    let from = Selector { source: Some(OTHER), ..Selector::ANY_UNTAGGED };
    let recv = cluster.at(0).recv(&RecvRequest::new(from, &whole(target, 500))).unwrap();
    let why = cluster.expect(0, "the loss of the peer", |event| match event {
        Event::PeerLost { why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(why.reason, LossReason::RailFailed { rail: RAIL, fault: RailFault::Gone });
    assert_eq!(cluster.complete(0, recv), Err(OpError::PeerLost { peer: OTHER, why }));
}
