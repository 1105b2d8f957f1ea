//! Peers that die, and unauthenticated connects: the others continue.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use rerail_core::endpoint::{Event, LossReason, OpError, RailFault, RecvRequest, Selector, SendRequest, SubmitError};
use rerail_core::ids::PeerId;
use rerail_core::rail::RailKind;

use super::cluster::{Cluster, Fabric, on_fabrics, whole};
use super::process::{Process, two_and_a_process};
use crate::driver::RequestError;

on_fabrics! {
    a_killed_peer_is_lost_and_the_others_go_on: Shm Tcp TwoTcp;
}

const DOOMED: PeerId = Process::RANK;

/// The peer that will be killed: does nothing unless the tests below started it.
#[test]
fn doomed_peer() {
    let Some(mut transport) = Process::transport() else { return };
    transport.inject(&SendRequest::new(PeerId(0), &[]), b"alive").unwrap();
    while !Process::is_over() {
        transport.progress();
        while transport.poll_event().is_some() {}
    }
}

fn a_killed_peer_is_lost_and_the_others_go_on(fabric: Fabric) {
    let (mut cluster, mut doomed) = two_and_a_process("driver::tests::loss::doomed_peer", fabric);

    let from = Selector { source: Some(DOOMED), ..Selector::ANY_UNTAGGED };
    let target = cluster.empty(0, 1 << 20);
    let hello = cluster.at(0).recv(&RecvRequest::new(from, &whole(target, 5))).unwrap();
    assert_eq!(cluster.complete(0, hello).unwrap().bytes, 5);
    cluster.ping(0, 1, 100);

    // A receive and a rendezvous that will never end well.
    let recv = cluster.at(0).recv(&RecvRequest::new(from, &whole(target, 5))).unwrap();
    let send = SendRequest { segments: &whole(target, 1 << 20), ..SendRequest::new(DOOMED, &[]) };
    let send = cluster.at(0).send(&send).unwrap();
    doomed.kill();
    let why = cluster.expect(0, "the loss of the peer", |event| match event {
        Event::PeerLost { peer, why } => {
            assert_eq!(*peer, DOOMED);
            Some(*why)
        }
        _ => None,
    });
    let LossReason::RailFailed { rail, fault } = why.reason else { panic!("{why:?} names no rail") };
    assert!(matches!(fault, RailFault::Closed | RailFault::Gone | RailFault::Device { .. }), "{fault:?}");
    let kind = cluster.at(0).rails().find(|info| info.id == rail).unwrap().kind;
    assert_eq!(kind, if fabric == Fabric::Shm { RailKind::Shm } else { RailKind::Tcp });
    let lost = Err(OpError::PeerLost { peer: DOOMED, why });
    assert_eq!(cluster.complete(0, send), lost);
    assert_eq!(cluster.complete(0, recv), lost);
    let gone = cluster.at(0).send(&SendRequest::new(DOOMED, &[]));
    assert_eq!(gone, Err(RequestError::Submit(SubmitError::PeerGone(DOOMED))));
    cluster.at(0).free(target).unwrap();

    cluster.ping(0, 1, 100);
    cluster.ping(0, 1, 1 << 20);
    assert_eq!(cluster.take(1, |event| matches!(event, Event::PeerLost { .. }).then_some(())), None);
    // A peer lost long before is reported again at the end.
    let sent_bytes = cluster.at(0).describe_loss(why);
    assert!(sent_bytes.contains(cluster.at(0).rail_names(1 << rail.0)[0].as_str()), "{sent_bytes}");
    assert_eq!(cluster.transports.remove(0).finish(Some(Duration::ZERO)).unwrap().lost, [(DOOMED, why)]);
}

#[test]
fn unauthenticated_connections_do_not_disturb_peers() {
    let mut cluster = Cluster::of(2, Fabric::TwoTcp);
    let addresses: Vec<String> =
        cluster.at(0).rails().filter(|rail| rail.kind == RailKind::Tcp).map(|rail| rail.address.to_owned()).collect();
    let garbage = [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 512], &[0xff; 512], b""];
    let mut unknown_processes = Vec::new();
    for round in 0..3 {
        for address in &addresses {
            for bytes in garbage {
                let mut unknown_process = TcpStream::connect(address).unwrap();
                // The rail may have closed already.
                let _ = unknown_process.write_all(bytes);
                unknown_processes.push(unknown_process);
            }
        }
        cluster.ping(0, 1, if round == 1 { 1 << 20 } else { 1000 });
    }
    let refused =
        |cluster: &mut Cluster| -> u64 { cluster.at(0).rails().map(|rail| rail.counters.unauthenticated).sum() };
    // Those that wrote a whole wrong greeting are counted; the silent ones are still being waited for.
    cluster.until("strangers are refused", |cluster| refused(cluster) >= 2 * addresses.len() as u64);
    drop(unknown_processes);
    cluster.ping(0, 1, 1000);
    for rank in 0..2 {
        assert_eq!(cluster.take(rank, |event| matches!(event, Event::PeerLost { .. }).then_some(())), None);
    }
}
