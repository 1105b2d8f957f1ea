//! Loss, repetition, waiting (InfiniBand specification, 9.7.5 to 9.7.8).

use rerail_core::time::Nanos;
use rerail_verbs::contract::{Device, Payload, QpKind, QpState, SendOp, SendWr, Status, ack_timeout_ns, rnr_timer_ns};

use super::fixture::{End, Pair, ends_of, ok, pair};
use crate::hca::Fault;
use crate::net::{Direction, PortId};

const A: PortId = PortId(0);
const B: PortId = PortId(1);

fn link(pair: &Pair, port: PortId, direction: Direction, up: bool) {
    pair.inject(Fault::Link { port, direction, up, noticed_after: None });
}

/// Every single packet of a mixed load is lost once, or comes with wrong bytes, in one direction or the
/// other.
#[test]
fn loss_of_any_single_packet_is_recovered() {
    let load = |a: &mut End, b: &mut End| {
        for id in 0..4 {
            b.recv(id, 10_000 * id, 3000);
            a.send(100 + id, 10_000 * id, 3000);
        }
        a.post(104, SendOp::Write { to: b.remote(50_000), immediate: None }, 50_000, 5000);
        a.post(105, SendOp::Read { from: b.remote(60_000) }, 60_000, 5000);
        a.post(106, SendOp::FetchAdd { at: b.remote(90_000), add: 1 }, 64, 8);
        a.post(107, SendOp::Read { from: b.remote(70_000) }, 70_000, 5000);
        a.post(108, SendOp::FetchAdd { at: b.remote(90_000), add: 1 }, 72, 8);
    };
    for corrupt in [true, false] {
        for port in [A, B] {
            for skipped in 0..24 {
                let pair = pair();
                let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
                let data: Vec<u8> = (0..200_000u32).map(|i| (i / 7) as u8).collect();
                a.fill(0, &data[..60_000]);
                b.fill(60_000, &data[60_000..]);
                a.fill(64, &[0; 16]);
                b.fill(90_000, &[0; 8]);
                load(&mut a, &mut b);
                // Lets so many frames be launched before the next one is hit.
                for _ in 0..skipped {
                    let next = pair.fabric.borrow().next_event().unwrap();
                    pair.fabric.borrow_mut().advance(next);
                }
                pair.inject(match corrupt {
                    true => Fault::Corrupt { port, packets: 1 },
                    false => Fault::Lose { port, packets: 1 },
                });
                pair.run_until_idle();
                let expected: Vec<_> = (100..109).map(ok).collect();
                assert_eq!(ends_of(&a.sent()), expected, "{port:?} {skipped}");
                assert_eq!(ends_of(&b.received()), [ok(0), ok(1), ok(2), ok(3)]);
                assert_eq!(b.bytes(50_000, 5000), data[50_000..55_000]);
                assert_eq!(a.bytes(60_000, 5000), data[60_000..65_000]);
                assert_eq!(a.bytes(70_000, 5000), data[70_000..75_000]);
                assert_eq!((a.word(64), a.word(72), b.word(90_000)), (0, 1, 2), "atomics are done once");
            }
        }
    }
}

/// What was delivered and not acknowledged comes again and is not done again.
#[test]
fn lost_acknowledgment_causes_no_duplicate_delivery() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    for id in 0..3 {
        b.recv(id, 0, 64);
    }
    pair.inject(Fault::LoseAcks { hca: pair.hcas[1], qp: b.qp.number, count: 1 });
    a.send(10, 0, 64);
    pair.pass(Nanos(ack_timeout_ns(8).unwrap() / 2));
    assert_eq!((ends_of(&b.received()), a.sent()), (vec![ok(0)], vec![]));
    pair.run_until_idle();
    assert_eq!((b.received(), ends_of(&a.sent())), (vec![], vec![ok(10)]));
    a.send(11, 0, 64);
    pair.run_until_idle();
    assert_eq!((ends_of(&b.received()), ends_of(&a.sent())), (vec![ok(1)], vec![ok(11)]));
}

/// The acknowledgments never come: delivered here, failed there (resilient-2010, III.B).
#[test]
fn a_message_may_be_delivered_and_fail() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    b.recv(1, 0, 64);
    link(&pair, B, Direction::Tx, false);
    a.send(10, 0, 64);
    a.send(11, 0, 64);
    pair.run_until_idle();
    assert_eq!(ends_of(&b.received()), [ok(1)]);
    assert_eq!(ends_of(&a.sent()), [(10, Status::RetryExceeded), (11, Status::Flushed)]);
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Rts));
}

/// Retries are counted and timed: the first try and `retry_count` more, a timeout after each.
#[test]
fn retries_are_as_many_as_agreed() {
    for count in [0u8, 1, 7] {
        let pair = pair();
        let [mut a, _b] = pair.ends(QpKind::Rc, |tuning| tuning.retry_count = count);
        link(&pair, A, Direction::Tx, false);
        a.send(10, 0, 64);
        let timeout = ack_timeout_ns(8).unwrap();
        pair.pass(Nanos(timeout * (u64::from(count) + 1) - 1));
        assert_eq!(a.sent(), []);
        pair.pass(Nanos(1));
        assert_eq!(ends_of(&a.sent()), [(10, Status::RetryExceeded)]);
    }
}

/// Timeout 0 waits for ever; the message is lost without a report.
#[test]
fn without_a_timeout_nothing_is_repeated() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.timeout = 0);
    b.recv(1, 0, 64);
    pair.inject(Fault::Lose { port: A, packets: 1 });
    a.send(10, 0, 64);
    pair.run_until_idle();
    assert_eq!((a.sent(), a.state(), b.received()), (vec![], QpState::Rts, vec![]));
    // The next message shows that something is missing.
    a.send(11, 0, 64);
    b.recv(2, 0, 64);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), ends_of(&b.received())), (vec![ok(10), ok(11)], vec![ok(1), ok(2)]));
}

/// Progress gives all retries back.
#[test]
fn a_flapping_link_is_survived() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.retry_count = 2);
    for id in 0..10 {
        b.recv(id, 0, 64);
        link(&pair, A, Direction::Both, false);
        a.send(100 + id, 0, 64);
        pair.pass(Nanos(ack_timeout_ns(8).unwrap() * 3 / 2));
        link(&pair, A, Direction::Both, true);
        pair.run_until_idle();
        assert_eq!(ends_of(&a.sent()), [ok(100 + id)]);
    }
}

#[test]
fn a_sender_waits_for_a_receive() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.rnr_retry = 2);
    a.send(10, 0, 64);
    a.send(11, 0, 64);
    let wait = rnr_timer_ns(7).unwrap();
    pair.pass(Nanos(wait * 3 / 2));
    b.recv(1, 0, 64);
    b.recv(2, 0, 64);
    pair.pass(Nanos(wait / 4));
    assert_eq!((b.received(), a.sent()), (vec![], vec![]), "the timer has not gone off");
    pair.run_until_idle();
    assert_eq!((ends_of(&b.received()), ends_of(&a.sent())), (vec![ok(1), ok(2)], vec![ok(10), ok(11)]));
}

#[test]
fn waiting_for_a_receive_ends() {
    for retries in [0u8, 1, 6] {
        let pair = pair();
        let [mut a, b] = pair.ends(QpKind::Rc, |tuning| tuning.rnr_retry = retries);
        a.send(10, 0, 64);
        a.send(11, 0, 64);
        let wait = rnr_timer_ns(7).unwrap();
        pair.pass(Nanos(wait * u64::from(retries)));
        assert_eq!(a.sent(), []);
        pair.run_until_idle();
        assert_eq!(ends_of(&a.sent()), [(10, Status::RnrRetryExceeded), (11, Status::Flushed)]);
        assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Rts));
    }
}

/// 7 is without end.
#[test]
fn waiting_for_a_receive_may_have_no_end() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.rnr_retry = 7);
    a.post(10, SendOp::Write { to: b.remote(0), immediate: Some(1) }, 0, 3000);
    pair.pass(Nanos(rnr_timer_ns(7).unwrap() * 100));
    assert_eq!(a.sent(), []);
    b.recv(1, 0, 0);
    pair.run_until_idle();
    assert_eq!((ends_of(&b.received()), ends_of(&a.sent())), (vec![ok(1)], vec![ok(10)]));
}

/// A fenced request starts when the read before it is done; without a fence it may pass it.
#[test]
fn a_fence_waits_for_reads() {
    let overtaken = |fence: bool| {
        let pair = pair();
        let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
        b.fill(0, &[1; 8]);
        // The answer is lost: the read has to be requested again.
        pair.inject(Fault::Lose { port: B, packets: 1 });
        a.post(1, SendOp::Read { from: b.remote(0) }, 0, 8);
        a.fill(100, &[2; 8]);
        let sges = [a.sge(100, 8)];
        let write = SendOp::Write { to: b.remote(0), immediate: None };
        let write = SendWr { fence, ..SendWr::new(2, write, Payload::Memory(&sges)) };
        a.device.post_send(a.qp.id, &[write]).unwrap();
        pair.run_until_idle();
        assert_eq!(ends_of(&a.sent()), [ok(1), ok(2)]);
        assert_eq!(b.bytes(0, 8), [2; 8]);
        a.bytes(0, 8) == [2; 8]
    };
    assert!(overtaken(false));
    assert!(!overtaken(true));
}

/// No more reads are open than agreed, though more are posted, and all are served in order.
#[test]
fn open_reads_are_limited() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| (tuning.reads_open, tuning.reads_served) = (1, 1));
    for id in 0..20u64 {
        b.fill(id as usize * 8, &id.to_ne_bytes());
        a.post(id, SendOp::Read { from: b.remote(id * 8) }, 1000 + id * 8, 8);
    }
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), (0..20).map(ok).collect::<Vec<_>>());
    assert!((0..20).all(|id| a.word(1000 + id * 8) == id as u64));
}
