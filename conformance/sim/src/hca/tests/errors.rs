//! What is wrong ends in the right error on the right side (InfiniBand specification, 9.9.2 and 9.9.3).

use rerail_verbs::contract::{
    Access, AsyncEvent, Device, Payload, QpChange, QpKind, QpState, Remote, SendOp, SendWr, Status,
};

use super::fixture::{BYTES, End, Pair, ends_of, invented, ok, pair, register};

/// Posts `op`, then a send behind it; the first ends with `status`, the second flushed, and both ends are in
/// error.
fn fails(pair: &Pair, a: &mut End, b: &mut End, op: SendOp, status: Status, event: impl Fn(&End) -> AsyncEvent) {
    b.recv(70, 0, 64);
    a.post(1, op, 0, 8);
    a.send(2, 0, 8);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [(1, status), (2, Status::Flushed)], "{op:?}");
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error), "{op:?}");
    assert_eq!(ends_of(&b.received()), [(70, Status::Flushed)], "{op:?}");
    assert_eq!((a.events(), b.events()), (vec![], vec![event(b)]), "{op:?}");
}

fn access_error(end: &End) -> AsyncEvent {
    AsyncEvent::QpAccessError(end.qp.id)
}

#[test]
fn keys_and_ranges_are_checked_by_the_responder() {
    let bad: [fn(&End) -> Remote; 5] = [
        |b| Remote { address: 0, rkey: b.mr.rkey + 1 },
        |b| Remote { address: 0, rkey: b.mr.lkey },
        |b| Remote { address: BYTES as u64 - 7, rkey: b.mr.rkey },
        |b| Remote { address: u64::MAX - 3, rkey: b.mr.rkey },
        |_| Remote { address: 0, rkey: 0 },
    ];
    for remote in bad {
        for write in [true, false] {
            let pair = pair();
            let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
            let at = remote(&b);
            let op = if write { SendOp::Write { to: at, immediate: None } } else { SendOp::Read { from: at } };
            fails(&pair, &mut a, &mut b, op, Status::RemoteAccess, access_error);
        }
    }
}

/// What the registration doesn't grant, and what the queue pair doesn't.
#[test]
fn access_flags_are_checked_on_both_levels() {
    let ops: [fn(Remote) -> SendOp; 3] = [
        |to| SendOp::Write { to, immediate: None },
        |from| SendOp::Read { from },
        |at| SendOp::FetchAdd { at, add: 1 },
    ];
    let without = [
        Access { remote_write: false, ..Access::ALL },
        Access { remote_read: false, ..Access::ALL },
        Access { remote_atomic: false, ..Access::ALL },
    ];
    for (op, access) in ops.into_iter().zip(without) {
        for by_qp in [true, false] {
            let pair = pair();
            let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| match by_qp {
                true => tuning.access = access,
                false => tuning.memory_access = access,
            });
            let at = b.remote(16);
            fails(&pair, &mut a, &mut b, op(at), Status::RemoteAccess, access_error);
        }
    }
}

#[test]
fn another_domains_key_is_no_key() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    let other = b.device.alloc_pd().unwrap();
    let mut memory = vec![0; 64].into_boxed_slice();
    let mr = register(&mut b.device, other, &mut memory, 0, Access::ALL);
    let op = SendOp::Write { to: Remote { address: 0, rkey: mr.rkey }, immediate: None };
    fails(&pair, &mut a, &mut b, op, Status::RemoteAccess, access_error);
    b.device.deregister(mr.id).unwrap();
}

#[test]
fn a_crooked_atomic_is_invalid() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    let at = b.remote(12);
    let event = |end: &End| AsyncEvent::QpRequestError(end.qp.id);
    fails(&pair, &mut a, &mut b, SendOp::FetchAdd { at, add: 1 }, Status::RemoteInvalid, event);
}

/// No bytes touch no memory: the key is not looked at.
#[test]
fn an_empty_write_needs_no_key() {
    let pair = pair();
    let [mut a, b] = pair.ends(QpKind::Rc, |_| {});
    a.post(1, SendOp::Write { to: Remote { address: 0, rkey: 12 }, immediate: None }, 0, 0);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), b.state()), (vec![ok(1)], QpState::Rts));
}

#[test]
fn a_message_longer_than_its_receive_fails_on_both_sides() {
    for len in [65u32, 5000] {
        let pair = pair();
        let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
        b.recv(1, 0, 64);
        b.recv(2, 0, 64);
        a.send(3, 0, len);
        pair.run_until_idle();
        assert_eq!(ends_of(&a.sent()), [(3, Status::RemoteInvalid)]);
        assert_eq!(ends_of(&b.received()), [(1, Status::LocalLength), (2, Status::Flushed)]);
        assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
    }
}

#[test]
fn a_receive_into_foreign_memory_fails_on_both_sides() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    let sges = [invented(0, 64, b.mr.lkey + 256)];
    b.device.post_recv(b.qp.id, &[rerail_verbs::contract::RecvWr { id: 1, sges: &sges }]).unwrap();
    a.send(3, 0, 8);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [(3, Status::RemoteOperation)]);
    assert_eq!(ends_of(&b.received()), [(1, Status::LocalProtection)]);
}

/// The peer receives nothing of a local error; what was before it is carried out.
#[test]
fn bad_local_key_fails_only_at_the_sender() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    b.recv(1, 0, 5000);
    b.recv(2, 0, 5000);
    a.send(10, 0, 5000);
    let sges = [invented(0, 8, a.mr.rkey)];
    let bad = SendWr::new(11, SendOp::Send { immediate: None }, Payload::Memory(&sges));
    a.device.post_send(a.qp.id, &[bad]).unwrap();
    a.send(12, 0, 8);
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [ok(10), (11, Status::LocalProtection), (12, Status::Flushed)]);
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Rts));
    assert_eq!(ends_of(&b.received()), [ok(1)]);
}

/// A read into memory that may not be written is the reader's error.
#[test]
fn a_read_needs_local_write() {
    let pair = pair();
    let [mut a, b] = pair.ends(QpKind::Rc, |_| {});
    let mut memory = vec![0; 64].into_boxed_slice();
    let mr = register(&mut a.device, a.pd, &mut memory, 0x10_0000, Access::default());
    let sges = [invented(0x10_0000, 8, mr.lkey)];
    let read = SendWr::new(1, SendOp::Read { from: b.remote(0) }, Payload::Memory(&sges));
    a.device.post_send(a.qp.id, &[read]).unwrap();
    pair.run_until_idle();
    assert_eq!(ends_of(&a.sent()), [(1, Status::LocalProtection)]);
    a.device.deregister(mr.id).unwrap();
}

/// What arrived before a bad request is delivered, what was requested before it is answered.
#[test]
fn requests_before_a_bad_one_succeed() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    b.recv(1, 0, 8000);
    b.recv(2, 0, 8000);
    a.send(10, 0, 8000);
    a.post(11, SendOp::Read { from: b.remote(0) }, 9000, 8000);
    a.post(12, SendOp::Write { to: Remote { address: 0, rkey: 1 }, immediate: None }, 0, 1);
    a.post(13, SendOp::Read { from: b.remote(0) }, 9000, 8000);
    pair.run_until_idle();
    let expected = [ok(10), ok(11), (12, Status::RemoteAccess), (13, Status::Flushed)];
    assert_eq!(ends_of(&a.sent()), expected);
    assert_eq!(ends_of(&b.received()), [ok(1), (2, Status::Flushed)]);
}

/// More reads at once than the peer serves is the asker's fault; here there is room for none.
#[test]
fn a_peer_that_serves_no_reads_refuses_them() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |tuning| tuning.reads_served = 0);
    let from = b.remote(0);
    let event = |end: &End| AsyncEvent::QpRequestError(end.qp.id);
    fails(&pair, &mut a, &mut b, SendOp::Read { from }, Status::RemoteInvalid, event);
}

/// After RESET and the whole way again, a broken connection works.
#[test]
fn a_broken_connection_can_be_made_anew() {
    let pair = pair();
    let tuning = Default::default();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    a.post(1, SendOp::Write { to: Remote { address: 0, rkey: 1 }, immediate: None }, 0, 1);
    pair.run_until_idle();
    let (na, nb) = (a.qp.number, b.qp.number);
    a.device.modify_qp(a.qp.id, &QpChange::to(QpState::Reset)).unwrap();
    b.device.modify_qp(b.qp.id, &QpChange::to(QpState::Reset)).unwrap();
    // Completions of the life before are gone.
    assert_eq!(a.sent(), []);
    a.connect(nb, 32, &tuning);
    b.connect(na, 16, &tuning);
    b.recv(1, 0, 64);
    a.send(2, 0, 64);
    pair.run_until_idle();
    assert_eq!((ends_of(&a.sent()), ends_of(&b.received())), (vec![ok(2)], vec![ok(1)]));
}

/// A registration that ends under an open request: nothing touches the memory any more.
#[test]
fn memory_is_not_touched_after_its_registration() {
    let pair = pair();
    let [mut a, mut b] = pair.ends(QpKind::Rc, |_| {});
    let mut memory = vec![0; 64].into_boxed_slice();
    let mr = register(&mut b.device, b.pd, &mut memory, 0x10_0000, Access::ALL);
    let sges = [invented(0x10_0000, 64, mr.lkey)];
    b.device.post_recv(b.qp.id, &[rerail_verbs::contract::RecvWr { id: 1, sges: &sges }]).unwrap();
    b.device.deregister(mr.id).unwrap();
    a.fill(0, &[7; 64]);
    a.send(3, 0, 64);
    pair.run_until_idle();
    assert_eq!(ends_of(&b.received()), [(1, Status::LocalProtection)]);
    assert_eq!(memory[..], [0; 64]);
    // An rkey of before is stale.
    assert!(b.device.deregister(mr.id).is_err());
}
