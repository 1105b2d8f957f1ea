//! Every operation of a reliable connection arrives, whole and in order.

use rerail_verbs::contract::{CompletionKind, Device, Payload, QpKind, SendOp, SendWr};

use super::fixture::{End, ends_of, ok, pair, pair_with};
use crate::hca::HcaOptions;
use crate::net::BusModel;
use crate::trace::Trace;

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed).wrapping_add((i >> 8) as u8)).collect()
}

#[test]
fn messages_of_all_lengths_arrive_in_order() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    let lengths = [0u32, 1, 1023, 1024, 1025, 2048, 65_000];
    let mut at = 0;
    for (id, &len) in lengths.iter().enumerate() {
        a.fill(at, &pattern(id as u8, len as usize));
        b.recv(id as u64, at as u64, 65_536);
        a.send(100 + id as u64, at as u64, len);
        at += len as usize;
        pair.run_until_idle();
        let (sent, received) = (a.sent(), b.received());
        assert_eq!(ends_of(&sent), [ok(100 + id as u64)]);
        assert_eq!(ends_of(&received), [ok(id as u64)]);
        assert_eq!((received[0].bytes, received[0].kind, received[0].qp), (len, CompletionKind::Recv, b.qp.number));
        assert_eq!(b.bytes(at - len as usize, len as usize), pattern(id as u8, len as usize));
    }
    assert_eq!((a.events(), b.events()), (vec![], vec![]));
}

/// Pieces of memory on both sides, cut differently.
#[test]
fn pieces_are_gathered_and_scattered() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    let data = pattern(3, 3000);
    a.fill(0, &data[..1]);
    a.fill(5000, &data[1..1500]);
    a.fill(9000, &data[1500..]);
    let into = [b.sge(100, 700), b.sge(2000, 0), b.sge(4000, 3000)];
    b.device.post_recv(b.qp.id, &[rerail_verbs::contract::RecvWr { id: 1, sges: &into }]).unwrap();
    let from = [a.sge(0, 1), a.sge(5000, 1499), a.sge(9000, 1500)];
    let send = SendWr::new(2, SendOp::Send { immediate: Some(7) }, Payload::Memory(&from));
    a.device.post_send(a.qp.id, &[send]).unwrap();
    pair.run_until_idle();
    let received = b.received();
    assert_eq!((received[0].bytes, received[0].immediate), (3000, Some(7)));
    assert_eq!([b.bytes(100, 700), b.bytes(4000, 2300)].concat(), data);
}

#[test]
fn writes_reads_and_atomics_touch_the_peer() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    let data = pattern(9, 5000);
    a.fill(0, &data);
    let to = b.remote(70_001);
    a.post(1, SendOp::Write { to, immediate: None }, 0, 5000);
    a.post(2, SendOp::Read { from: to }, 20_000, 5000);
    b.fill(8, &41u64.to_ne_bytes());
    let at = b.remote(8);
    a.post(3, SendOp::FetchAdd { at, add: 2 }, 64, 8);
    a.post(4, SendOp::CompareSwap { at, compare: 43, swap: 99 }, 72, 8);
    a.post(5, SendOp::CompareSwap { at, compare: 43, swap: 7 }, 80, 8);
    pair.run_until_idle();
    let sent = a.sent();
    assert_eq!(ends_of(&sent), [ok(1), ok(2), ok(3), ok(4), ok(5)]);
    assert_eq!(sent[1].bytes, 5000);
    assert_eq!(b.bytes(70_001, 5000), data);
    assert_eq!(a.bytes(20_000, 5000), data);
    assert_eq!((a.word(64), a.word(72), a.word(80), b.word(8)), (41, 43, 99, 99));
    assert_eq!(b.received(), []);
}

#[test]
fn a_write_with_immediate_takes_a_receive() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    b.recv(8, 0, 0);
    let to = b.remote(1000);
    a.fill(0, &pattern(1, 3000));
    a.post(1, SendOp::Write { to, immediate: Some(0xabcd) }, 0, 3000);
    pair.run_until_idle();
    let received = b.received();
    assert_eq!(ends_of(&received), [ok(8)]);
    assert_eq!((received[0].kind, received[0].bytes), (CompletionKind::RecvWrite, 3000));
    assert_eq!(received[0].immediate, Some(0xabcd));
    assert_eq!(b.bytes(1000, 3000), pattern(1, 3000));
    assert_eq!(ends_of(&a.sent()), [ok(1)]);
}

/// What is inline is copied while posting.
#[test]
fn inline_data_are_free_at_once() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    b.recv(1, 0, 100);
    let mut parts = [b"hello ".to_vec(), b"rails".to_vec()];
    {
        let list: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let request = SendWr::new(2, SendOp::Send { immediate: None }, Payload::Inline(&list));
        a.device.post_send(a.qp.id, &[request]).unwrap();
    }
    parts[0].fill(0);
    pair.run_until_idle();
    assert_eq!(ends_of(&b.received()), [ok(1)]);
    assert_eq!(b.bytes(0, 11), b"hello rails");
}

/// One port talks to itself.
#[test]
fn a_port_reaches_itself() {
    let pair = pair();
    let tuning = Default::default();
    let mut ends = [0, 0].map(|side| End::new(&pair, side, QpKind::Rc, &tuning));
    let numbers = [ends[1].qp.number, ends[0].qp.number];
    for (end, peer) in ends.iter_mut().zip(numbers) {
        end.connect(peer, 16, &tuning);
    }
    let [a, b] = &mut ends;
    a.fill(0, b"here");
    b.recv(1, 0, 10);
    a.send(2, 0, 4);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), ends_of(&b.received())), (vec![ok(2)], vec![ok(1)]));
    assert_eq!(b.bytes(0, 4), b"here");
}

/// The send's completion comes with the acknowledgment, the receive's when the data are in memory: where the
/// receiver's bus is slow, the sender's completes first (resilient-2010, III.B).
#[test]
fn a_completed_send_need_not_be_in_memory() {
    let bus = BusModel { write_ns_per_frame: 50_000, ..BusModel::default() };
    let pair = pair_with(Trace::off(), HcaOptions::default(), bus);
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    a.fill(0, b"late");
    b.recv(1, 0, 4);
    a.send(3, 0, 4);
    while a.sent().is_empty() {
        let next = pair.fabric.borrow().next_event().unwrap();
        pair.fabric.borrow_mut().advance(next);
        assert_eq!(b.received(), []);
    }
    assert_eq!(b.bytes(0, 4), [0; 4]);
    pair.run_until_idle();
    assert_eq!(ends_of(&b.received()), [ok(1)]);
    assert_eq!(b.bytes(0, 4), *b"late");
}
