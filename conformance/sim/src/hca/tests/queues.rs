//! Completion queues, send queues, draining (InfiniBand specification, 10.8; `ibv_poll_cq(3)`).

use rerail_core::time::Nanos;
use rerail_verbs::contract::{
    AsyncEvent, DestroyError, Device, Kind, Payload, PollError, PostReason, QpChange, QpKind, QpState, SendOp, SendWr,
    Status,
};

use super::fixture::{End, ends_of, ok, pair};
use crate::hca::Fault;

fn unsignaled(end: &mut End, id: u64, solicited: bool) {
    let sges = [end.sge(0, 8)];
    let op = SendOp::Send { immediate: None };
    let request = SendWr { signaled: false, solicited, ..SendWr::new(id, op, Payload::Memory(&sges)) };
    end.device.post_send(end.qp.id, &[request]).unwrap();
}

#[test]
fn unsignaled_sends_complete_in_silence_and_fail_aloud() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    b.recv(1, 0, 8);
    b.recv(2, 0, 8);
    unsignaled(&mut a, 10, false);
    a.send(11, 0, 8);
    unsignaled(&mut a, 12, false);
    pair.run_until_idle();
    // The third waits for a receive until its retries are over.
    assert_eq!(ends_of(&a.sent()), [ok(11), (12, Status::RnrRetryExceeded)]);
    assert_eq!(ends_of(&b.received()), [ok(1), ok(2)]);
}

#[test]
fn signal_all_means_all() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.signal_all = true);
    b.recv(1, 0, 8);
    unsignaled(&mut a, 10, false);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [ok(10)]);
}

/// A place is free again when the completion of its request, or of one behind it, was polled.
#[test]
fn places_are_free_when_polled() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| (tuning.caps.send_depth, tuning.caps.recv_depth) = (2, 2));
    b.recv(1, 0, 8);
    b.recv(2, 0, 8);
    unsignaled(&mut a, 10, false);
    a.send(11, 0, 8);
    pair.run_until_idle();
    let sges = [a.sge(0, 8)];
    let third = [SendWr::new(12, SendOp::Send { immediate: None }, Payload::Memory(&sges))];
    let full = a.device.post_send(a.qp.id, &third).unwrap_err();
    assert_eq!((full.index, full.why), (0, PostReason::Full { depth: 2 }));
    let into = [b.sge(0, 8)];
    let receive = [rerail_verbs::contract::RecvWr { id: 3, sges: &into }];
    assert_eq!(b.device.post_recv(b.qp.id, &receive).unwrap_err().why, PostReason::Full { depth: 2 });
    assert_eq!((ends_of(&a.sent()), ends_of(&b.received())), (vec![ok(11)], vec![ok(1), ok(2)]));
    b.device.post_recv(b.qp.id, &receive).unwrap();
    a.device.post_send(a.qp.id, &third).unwrap();
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [ok(12)]);
}

#[test]
fn an_overflow_breaks_the_queue_and_its_queue_pairs() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.cq_depth = 2);
    for id in 0..4 {
        b.recv(id, 0, 8);
    }
    for id in 0..3 {
        unsignaled(&mut a, id, false);
    }
    pair.run_until_idle();
    let mut out = Vec::new();
    assert_eq!(b.device.poll_cq(b.recv_cq, 9, &mut out), Err(PollError::Overflow));
    assert_eq!(b.events(), [AsyncEvent::CqError(b.recv_cq), AsyncEvent::QpFatal(b.qp.id)]);
    assert_eq!(b.state(), QpState::Error);
    // A clamp does the same to a queue that was granted more.
    pair.inject(Fault::ClampCqs { hca: pair.hcas[0], depth: Some(1) });
    let mut end = End::new(&pair, 0, QpKind::Rc, &Default::default());
    end.to(QpState::Error);
    end.send(1, 0, 8);
    assert_eq!(end.events(), []);
    end.send(2, 0, 8);
    assert_eq!(end.events(), [AsyncEvent::CqError(end.send_cq)]);
}

#[test]
fn completion_event_is_raised_once_per_request() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    for id in 0..5 {
        b.recv(id, 0, 8);
    }
    let arrive = |a: &mut End, solicited| {
        unsignaled(a, 1, solicited);
        pair.run_until_idle();
    };
    arrive(&mut a, true);
    assert_eq!(b.device.cq_event(), None);
    b.device.request_notify(b.recv_cq, true).unwrap();
    assert_eq!(b.device.cq_event(), None, "what is there already makes no event");
    arrive(&mut a, false);
    assert_eq!(b.device.cq_event(), None);
    arrive(&mut a, true);
    assert_eq!(b.device.cq_event(), Some(b.recv_cq));
    arrive(&mut a, true);
    assert_eq!(b.device.cq_event(), None);
    b.device.request_notify(b.recv_cq, false).unwrap();
    arrive(&mut a, false);
    assert_eq!(b.device.cq_event(), Some(b.recv_cq));
    // A failure counts as solicited.
    b.recv(9, 0, 8);
    b.device.request_notify(b.recv_cq, true).unwrap();
    b.to(QpState::Error);
    assert_eq!((b.device.cq_event(), b.device.cq_event()), (Some(b.recv_cq), None));
}

#[test]
fn destroyed_queue_pair_leaves_no_completions() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    b.recv(1, 0, 8);
    b.recv(2, 0, 8);
    a.send(10, 0, 8);
    pair.run_until_idle();
    a.send(11, 0, 8);
    assert_eq!(a.device.destroy_cq(a.send_cq), Err(DestroyError::Busy { what: Kind::Cq, users: 1 }));
    a.device.destroy_qp(a.qp.id).unwrap();
    b.device.destroy_qp(b.qp.id).unwrap();
    pair.run_until_idle();
    assert_eq!((a.sent(), b.received()), (vec![], vec![]));
    assert!(a.device.destroy_qp(a.qp.id).is_err() && a.device.query_qp(a.qp.id).is_err());
    a.device.destroy_cq(a.send_cq).unwrap();
}

/// SQD ends what was begun and begins nothing; then an event, if it was requested.
#[test]
fn a_send_queue_drains() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    b.recv(1, 0, 60_000);
    b.recv(2, 0, 60_000);
    a.send(10, 0, 60_000);
    let drain = QpChange { drain_notify: Some(true), ..QpChange::to(QpState::Sqd) };
    a.device.modify_qp(a.qp.id, &drain).unwrap();
    a.send(11, 0, 8);
    assert!(a.device.query_qp(a.qp.id).unwrap().draining);
    pair.pass(Nanos(10_000));
    assert_eq!((a.sent(), a.events()), (vec![], vec![]));
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), a.events()), (vec![ok(10)], vec![AsyncEvent::SqDrained(a.qp.id)]));
    assert!(!a.device.query_qp(a.qp.id).unwrap().draining);
    a.to(QpState::Rts);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), a.events()), (vec![ok(11)], vec![]));
    assert_eq!(ends_of(&b.received()), [ok(1), ok(2)]);
}

/// ERR flushes sends in order and receives in order; what is posted later is flushed too.
#[test]
fn an_error_flushes_everything_in_order() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    for id in 0..3 {
        a.recv(id, 0, 8);
        unsignaled(&mut a, 10 + id, false);
    }
    a.to(QpState::Error);
    let flushed = |ids: std::ops::Range<u64>| ids.map(|id| (id, Status::Flushed)).collect::<Vec<_>>();
    assert_eq!((ends_of(&a.sent()), ends_of(&a.received())), (flushed(10..13), flushed(0..3)));
    a.recv(3, 0, 8);
    a.send(13, 0, 8);
    assert_eq!((ends_of(&a.sent()), ends_of(&a.received())), (flushed(13..14), flushed(3..4)));
    // The peer finds no queue pair.
    b.send(20, 0, 8);
    pair.run_until_idle();
    assert_eq!(ends_of(&b.sent()), [(20, Status::RetryExceeded)]);
}

/// Queue pairs of a port share it packet by packet: a small message does not wait for a large one of another.
#[test]
fn a_port_serves_its_queue_pairs_in_turn() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    let [mut c, mut d] = pair.ends(QpKind::Rc, |_| {});
    b.recv(1, 0, 200_000);
    d.recv(2, 0, 200_000);
    a.send(1, 0, 200_000);
    c.send(2, 0, 2000);
    while d.received().is_empty() {
        assert_eq!(b.received(), []);
        let next = pair.fabric.borrow().next_event().unwrap();
        pair.fabric.borrow_mut().advance(next);
    }
    // Of the 200 packets of the large one, a few have arrived.
    assert!(pair.now().0 < 30_000, "{:?}", pair.now());
}
