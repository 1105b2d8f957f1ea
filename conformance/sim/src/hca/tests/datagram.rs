//! Unreliable datagrams (InfiniBand specification, 9.8.3).

use rerail_verbs::Gid;
use rerail_verbs::contract::{
    AddressVector, AhId, Datagram, Device, GlobalRoute, Payload, QpKind, QpState, SendOp, SendWr, Status,
};

use super::fixture::{End, QKEY, ends_of, invented, ok, pair};
use crate::hca::Fault;
use crate::net::PortId;

fn handle(end: &mut End, dlid: u16, global: Option<GlobalRoute>) -> AhId {
    let address = AddressVector { port: 1, dlid, global, ..AddressVector::default() };
    end.device.create_ah(end.pd, &address).unwrap()
}

fn datagram(end: &mut End, id: u64, handle: AhId, to: u32, qkey: u32, len: u32) {
    let sges = [end.sge(0, len)];
    let op = SendOp::Send { immediate: Some(5) };
    let datagram = Some(Datagram { handle, qp: to, qkey });
    let request = SendWr { datagram, ..SendWr::new(id, op, Payload::Memory(&sges)) };
    end.device.post_send(end.qp.id, &[request]).unwrap();
}

#[test]
fn received_datagram_reports_its_source() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Ud, |_| {});
    b.fill(0, &[9; 40]);
    b.recv(1, 0, 2088);
    a.fill(0, &[3; 2048]);
    let to = handle(&mut a, 33, None);
    datagram(&mut a, 2, to, b.qp.number, QKEY, 2048);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [ok(2)]);
    let received = b.received();
    assert_eq!(ends_of(&received), [ok(1)]);
    assert_eq!((received[0].bytes, received[0].source_qp, received[0].source_lid), (2088, a.qp.number, 16));
    assert_eq!((received[0].immediate, received[0].global), (Some(5), false));
    // Without a global route the first 40 bytes stay as they are.
    assert_eq!((b.bytes(0, 40), b.bytes(40, 2048)), (vec![9; 40], vec![3; 2048]));
}

#[test]
fn a_global_route_is_written_before_the_data() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Ud, |_| {});
    b.recv(1, 0, 100);
    a.fill(0, &[3; 10]);
    let (from, dgid) = (a.device.gid(1, 0).unwrap(), b.device.gid(1, 0).unwrap());
    assert_ne!((from, dgid), (Gid([0; 16]), from));
    let to = handle(&mut a, 32, Some(GlobalRoute { dgid, source_index: 0, hop_limit: 64, traffic_class: 0 }));
    datagram(&mut a, 2, to, b.qp.number, QKEY, 10);
    pair.run_until_idle();
    let received = b.received();
    assert_eq!((received[0].bytes, received[0].global), (50, true));
    let header = b.bytes(0, 40);
    assert_eq!((header[0], header[6], header[7]), (0x60, 0x1b, 64));
    assert_eq!((&header[8..24], &header[24..40]), (&from.0[..], &dgid.0[..]));
    assert_eq!(b.bytes(40, 10), [3; 10]);
}

/// No receive, another key, no such queue pair, wrong bytes on the way: nothing is reported, and the queue
/// pair goes on.
#[test]
fn undeliverable_datagram_is_dropped_silently() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Ud, |_| {});
    let (to, nowhere) = (handle(&mut a, 32, None), handle(&mut a, 99, None));
    let number = b.qp.number;
    datagram(&mut a, 1, to, number, QKEY, 10);
    pair.run_until_idle();
    b.recv(1, 0, 100);
    datagram(&mut a, 2, to, number, QKEY + 1, 10);
    datagram(&mut a, 3, to, number + 1, QKEY, 10);
    datagram(&mut a, 4, nowhere, number, QKEY, 10);
    pair.run_until_idle();
    pair.inject(Fault::Corrupt { port: PortId(0), packets: 1 });
    datagram(&mut a, 5, to, number, QKEY, 10);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), (1..=5).map(ok).collect::<Vec<_>>());
    assert_eq!(b.received(), []);
    // The top bit stands for the sender's own key.
    datagram(&mut a, 6, to, number, 1 << 31, 10);
    pair.run_until_idle();
    assert_eq!(ends_of(&b.received()), [ok(1)]);
    assert_eq!((b.state(), b.events()), (QpState::Rts, vec![]));
}

#[test]
fn one_packet_is_the_most() {
    let pair = pair();
    let [mut a, b] = pair.ends(QpKind::Ud, |_| {});
    let to = handle(&mut a, 32, None);
    datagram(&mut a, 1, to, b.qp.number, QKEY, 2049);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), a.state()), (vec![(1, Status::LocalLength)], QpState::Sqe));
}

/// A bad send stops the sends alone; RTS takes it up again.
#[test]
fn failed_datagram_send_leaves_receives_posted() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Ud, |_| {});
    let (to, back) = (handle(&mut a, 32, None), handle(&mut b, 16, None));
    let number = b.qp.number;
    a.recv(9, 1000, 100);
    let sges = [invented(0, 8, 1)];
    let op = SendOp::Send { immediate: None };
    let datagram_to = Some(Datagram { handle: to, qp: number, qkey: QKEY });
    let bad = SendWr { datagram: datagram_to, ..SendWr::new(1, op, Payload::Memory(&sges)) };
    a.device.post_send(a.qp.id, &[bad]).unwrap();
    datagram(&mut a, 2, to, number, QKEY, 10);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [(1, Status::LocalProtection), (2, Status::Flushed)]);
    assert_eq!(a.state(), QpState::Sqe);
    datagram(&mut a, 3, to, number, QKEY, 10);
    assert_eq!(ends_of(&a.sent()), [(3, Status::Flushed)]);
    let number = a.qp.number;
    datagram(&mut b, 4, back, number, QKEY, 10);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.received()), [ok(9)]);
    a.to(QpState::Rts);
    b.recv(8, 0, 100);
    let number = b.qp.number;
    datagram(&mut a, 5, to, number, QKEY, 10);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), ends_of(&b.received())), (vec![ok(5)], vec![ok(8)]));
}

/// The 40 bytes count: a receive that is too short by them fails, as on hardware.
#[test]
fn a_receive_without_room_for_the_header_fails() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Ud, |_| {});
    b.recv(1, 0, 49);
    let to = handle(&mut a, 32, None);
    datagram(&mut a, 2, to, b.qp.number, QKEY, 10);
    pair.run_until_idle();
    assert_eq!((ends_of(&b.received()), b.state()), (vec![(1, Status::LocalLength)], QpState::Error));
    assert_eq!(ends_of(&a.sent()), [ok(2)]);
}
