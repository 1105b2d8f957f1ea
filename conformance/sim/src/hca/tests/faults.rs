//! Every entry of the menu of faults, at its moment.

use rerail_core::time::{Nanos, Time};
use rerail_verbs::contract::{
    AsyncEvent, CreateError, Device, PollError, PostReason, QpKind, QpState, RegisterError, SendOp, Status,
};
use rerail_verbs::{Gid, PortState};

use super::fixture::{End, Tuning, ends_of, ok, pair, pair_with};
use crate::hca::{Fault, HcaOptions, SimDevice};
use crate::net::{BusModel, Direction, PortId};
use crate::trace::Trace;

const A: PortId = PortId(0);
const B: PortId = PortId(1);

#[test]
fn a_request_may_vanish() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    b.recv(1, 0, 8);
    pair.inject(Fault::Swallow { hca: pair.hcas[0], qp: a.qp.number, id: Some(11), count: 1 });
    for id in 10..13 {
        b.recv(id, 0, 8);
        a.send(id, 0, 8);
    }
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), b.received().len()), (vec![ok(10), ok(12)], 2));
    // Nor does an error bring it back.
    pair.inject(Fault::Swallow { hca: pair.hcas[0], qp: a.qp.number, id: None, count: 1 });
    a.send(13, 0, 8);
    a.to(QpState::Error);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), []);
}

#[test]
fn a_completion_may_vanish() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    pair.inject(Fault::LoseCompletions { hca: pair.hcas[0], qp: a.qp.number, id: None, count: 1 });
    for id in 10..12 {
        b.recv(id, 0, 8);
        a.send(id, 0, 8);
    }
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), ends_of(&b.received())), (vec![ok(11)], vec![ok(10), ok(11)]));
}

#[test]
fn a_port_may_lose_its_acknowledgments() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.retry_count = 1);
    pair.inject(Fault::LosePortAcks { port: B, count: 2 });
    b.recv(1, 0, 8);
    a.send(10, 0, 8);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), ends_of(&b.received())), (vec![(10, Status::RetryExceeded)], vec![ok(1)]));
}

#[test]
fn retries_may_be_over_at_once() {
    for open in [true, false] {
        let pair = pair();
        let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
        b.recv(1, 0, 8);
        let fault = Fault::ExceedRetries { hca: pair.hcas[0], qp: a.qp.number };
        if !open {
            pair.inject(fault.clone());
        }
        a.send(10, 0, 8);
        a.send(11, 0, 8);
        if open {
            pair.inject(fault);
        }
        let now = pair.now();
        assert_eq!(ends_of(&a.sent()), [(10, Status::RetryExceeded), (11, Status::Flushed)]);
        pair.run_until_idle();
        // What was on its way arrives all the same.
        assert_eq!((b.received().len(), now), (usize::from(open), Time(0)));
    }
}

#[test]
fn queue_pair_failure_affects_one_end_only() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    b.recv(1, 0, 8);
    pair.inject(Fault::BreakQp { hca: pair.hcas[1], qp: b.qp.number });
    assert_eq!((b.events(), ends_of(&b.received())), (vec![AsyncEvent::QpFatal(b.qp.id)], vec![(1, Status::Flushed)]));
    assert_eq!((a.state(), a.events()), (QpState::Rts, vec![]));
    a.send(10, 0, 8);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [(10, Status::RetryExceeded)]);
}

#[test]
fn port_events_arrive_promptly_late_or_never() {
    for (delay, expected) in [(Some(Nanos(0)), [1, 1]), (Some(Nanos(5_000)), [0, 1]), (None, [0, 0])] {
        let pair = pair();
        let [mut a, _b] = pair.ends(QpKind::Rc, |_| {});
        let link = |up| Fault::Link { port: A, direction: Direction::Both, up, noticed_after: Some(Nanos(1_000)) };
        pair.inject(Fault::PortEvents { port: A, delay });
        for (up, event) in [(false, AsyncEvent::PortError(1)), (true, AsyncEvent::PortActive(1))] {
            pair.inject(link(up));
            assert_eq!(a.device.port(1).unwrap().state == PortState::Active, !up, "not noticed yet");
            pair.pass(Nanos(2_000));
            assert_eq!(a.device.port(1).unwrap().state == PortState::Active, up);
            assert_eq!(a.events(), vec![event; expected[0]]);
            pair.pass(Nanos(10_000));
            assert_eq!(a.events(), vec![event; expected[1] - expected[0]]);
        }
    }
}

/// One plane of two: LIDs with the low bit set lead over the second (LMC 1).
#[test]
fn failed_path_leaves_the_other_path_usable() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    let tuning = Tuning::default();
    let [mut c, mut d] = [0, 1].map(|side| End::new(&pair, side, QpKind::Rc, &tuning));
    c.connect(d.qp.number, 33, &tuning);
    d.connect(c.qp.number, 17, &tuning);
    pair.inject(Fault::Path { subnet: pair.subnet, plane: 1, up: false });
    b.recv(1, 0, 8);
    d.recv(2, 0, 8);
    a.send(10, 0, 8);
    c.send(11, 0, 8);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), ends_of(&c.sent())), (vec![ok(10)], vec![(11, Status::RetryExceeded)]));
    pair.inject(Fault::Switch { subnet: pair.subnet, up: false });
    a.send(12, 0, 8);
    pair.pass(Nanos(3_000_000));
    pair.inject(Fault::Switch { subnet: pair.subnet, up: true });
    b.recv(3, 0, 8);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [ok(12)]);
}

#[test]
fn a_flap_may_bring_new_addresses() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    let link = |up| Fault::Link { port: B, direction: Direction::Both, up, noticed_after: Some(Nanos(0)) };
    pair.inject(link(false));
    pair.pass(Nanos(10));
    pair.inject(Fault::Readdress { port: B, lid: Some(48), gid: Some(Gid([7; 16])) });
    assert_eq!(b.device.port(1).unwrap().lid, 32);
    pair.inject(link(true));
    pair.pass(Nanos(10));
    let expected =
        [AsyncEvent::PortError(1), AsyncEvent::LidChange(1), AsyncEvent::GidChange(1), AsyncEvent::PortActive(1)];
    assert_eq!(b.events(), expected);
    assert_eq!((b.device.port(1).unwrap().lid, b.device.gid(1, 0).unwrap()), (48, Gid([7; 16])));
    // The old LID leads nowhere, the new one to the port.
    b.recv(1, 0, 8);
    a.send(10, 0, 8);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [(10, Status::RetryExceeded)]);
    let tuning = Tuning::default();
    let [mut c, mut d] = [0, 1].map(|side| End::new(&pair, side, QpKind::Rc, &tuning));
    c.connect(d.qp.number, 48, &tuning);
    d.connect(c.qp.number, 16, &tuning);
    d.recv(2, 0, 8);
    c.send(11, 0, 8);
    pair.run_until_idle();
    assert_eq!(ends_of(&c.sent()), [ok(11)]);
}

/// Everything is gone at once, every verb reports it, and a reload brings an empty device.
#[test]
fn killed_device_reports_errors_until_it_is_reloaded() {
    for reload_after in [Some(Nanos(1_000_000)), None] {
        let pair = pair();
        let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
        let hca = pair.hcas[1];
        b.recv(1, 0, 8);
        pair.inject(Fault::Kill { hca, reload_after });
        assert_eq!(b.events(), [AsyncEvent::DeviceFatal]);
        let gone = CreateError::DeviceGone;
        assert_eq!(b.device.alloc_pd(), Err(gone.clone()));
        assert_eq!(b.device.port(1), Err(gone.clone()));
        assert_eq!(b.device.poll_cq(b.recv_cq, 1, &mut Vec::new()), Err(PollError::DeviceGone));
        assert_eq!(b.device.post_recv(b.qp.id, &[]).unwrap_err().why, PostReason::DeviceGone);
        assert!(SimDevice::open(&pair.fabric, hca, 9).is_err_and(|error| error == gone));
        let objects = pair.fabric.borrow().objects(hca);
        assert_eq!((objects.qps, objects.mrs, objects.pds, objects.registered_bytes), (0, 0, 0, 0));
        a.send(10, 0, 8);
        pair.run_until_idle();
        assert_eq!(ends_of(&a.sent()), [(10, Status::RetryExceeded)], "the peer receives nothing");
        let again = SimDevice::open(&pair.fabric, hca, 9);
        assert_eq!(again.is_ok(), reload_after.is_some());
        assert_eq!(b.device.alloc_pd(), Err(gone), "a process that had it open has to open it again");
        if let Ok(mut device) = again {
            assert!(device.alloc_pd().is_ok());
        }
    }
}

#[test]
fn registrations_and_objects_may_run_out() {
    let pair = pair();
    let [mut a, _b] = pair.ends(QpKind::Rc, |_| {});
    let hca = pair.hcas[0];
    let mut memory = vec![0u8; 64].into_boxed_slice();
    pair.inject(Fault::RefuseRegistrations { hca, count: 1 });
    assert_eq!(a.try_register(&mut memory), Err(RegisterError::System { code: 12 }));
    let mr = a.try_register(&mut memory).unwrap();
    a.device.deregister(mr.id).unwrap();
    pair.inject(Fault::Limit { hca, qps: Some(1), mrs: Some(1), cqs: Some(2), registered_bytes: None });
    assert_eq!(a.try_register(&mut memory), Err(RegisterError::Exhausted { limit: 1 }));
    let cq = a.device.create_cq(&rerail_verbs::contract::CqInit { depth: 1 });
    assert!(matches!(cq, Err(CreateError::Exhausted { limit: 2, .. })));
    assert_eq!(a.device.limits().qps, 1);
    let full = Some(u32::MAX);
    pair.inject(Fault::Limit { hca, qps: full, mrs: full, cqs: full, registered_bytes: Some(0) });
    assert_eq!(a.device.limits(), pair_with(Trace::off(), HcaOptions::default(), BusModel::default()).limits());
    assert_eq!(a.try_register(&mut memory), Err(RegisterError::System { code: 12 }));
}

/// A late write: the requester is long in error, its write lands all the same (design, section 3).
#[test]
fn write_of_a_dead_queue_pair_may_arrive_late() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.retry_count = 0);
    a.fill(0, &[6; 8]);
    pair.inject(Fault::Hold { port: B, until: Time(50_000_000) });
    a.post(10, SendOp::Write { to: b.remote(0), immediate: None }, 0, 8);
    pair.pass(Nanos(10_000_000));
    assert_eq!((ends_of(&a.sent()), b.bytes(0, 8)), (vec![(10, Status::RetryExceeded)], vec![0; 8]));
    a.device.destroy_qp(a.qp.id).unwrap();
    b.fill(0, &[1; 8]);
    pair.run_until_idle();
    assert_eq!(b.bytes(0, 8), [6; 8]);
    // Not through a queue pair that was reset in time.
    let pair = super::fixture::pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.retry_count = 0);
    pair.inject(Fault::Hold { port: B, until: Time(50_000_000) });
    a.fill(0, &[6; 8]);
    a.post(10, SendOp::Write { to: b.remote(0), immediate: None }, 0, 8);
    pair.pass(Nanos(10_000_000));
    b.to(QpState::Reset);
    pair.run_until_idle();
    assert_eq!(b.bytes(0, 8), [0; 8]);
}

/// A packet for a LID that the port had when it was sent is not for the port any more.
#[test]
fn packet_for_a_former_lid_is_dropped() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.retry_count = 0);
    pair.inject(Fault::Hold { port: B, until: Time(50_000_000) });
    b.recv(1, 0, 8);
    a.send(10, 0, 8);
    pair.pass(Nanos(1_000_000));
    pair.inject(Fault::Readdress { port: B, lid: Some(48), gid: None });
    assert_eq!(b.events(), [AsyncEvent::LidChange(1)]);
    pair.run_until_idle();
    assert_eq!((b.received(), b.events()), (vec![], vec![]));
}

/// Data on their way over the bus when the queue pair is reset touch nothing, and complete nothing.
#[test]
fn queue_pair_reset_discards_data_on_the_bus() {
    let bus = BusModel { write_ns_per_frame: 50_000, ..BusModel::default() };
    let pair = pair_with(Trace::off(), HcaOptions::default(), bus);
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    a.fill(0, &[6; 8]);
    b.recv(1, 0, 8);
    a.send(10, 0, 8);
    a.post(11, SendOp::Write { to: b.remote(64), immediate: None }, 0, 8);
    pair.pass(Nanos(20_000));
    assert_eq!(ends_of(&a.sent()), [ok(10), ok(11)]);
    b.to(QpState::Reset);
    b.connect(a.qp.number, 16, &Tuning::default());
    b.recv(2, 128, 8);
    pair.run_until_idle();
    assert_eq!((b.received(), b.bytes(0, 72)), (vec![], vec![0; 72]));
}

/// A process is gone: its peers receive nothing, its objects are no more.
#[test]
fn a_dead_process_is_silent() {
    let pair = pair();
    let [mut a, b] = pair.ends(QpKind::Rc, |_| {});
    a.send(10, 0, 8);
    drop(b);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [(10, Status::RetryExceeded)]);
    assert_eq!(pair.fabric.borrow().objects(pair.hcas[1]), Default::default());
}

/// Slow is not lost: order and contents stay.
#[test]
fn a_slow_port_changes_nothing_but_time() {
    let run = |extra: u64| {
        let trace = Trace::on();
        let pair = pair_with(trace.clone(), HcaOptions::default(), BusModel::default());
        let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.timeout = 14);
        pair.inject(Fault::Slow { port: A, extra: Nanos(extra) });
        for id in 0..20 {
            b.recv(id, 0, 3000);
            a.send(100 + id, 0, 3000);
        }
        pair.run_until_idle();
        assert_eq!(ends_of(&a.sent()), (100..120).map(ok).collect::<Vec<_>>());
        assert_eq!(ends_of(&b.received()), (0..20).map(ok).collect::<Vec<_>>());
        trace.take()
    };
    let (fast, slow) = (run(0), run(100_000));
    assert!(slow.last().unwrap().at > fast.last().unwrap().at);
    // The same simulation gives the same lines.
    assert_eq!(slow, run(100_000));
}
