//! What may be posted in which state, and what becomes of it.

use rerail_verbs::contract::{AsyncEvent, PostReason, QpChange, QpKind, QpState, Status};

use super::{Case, case, case_if};
use crate::bed::Bed;
use crate::bed::queue::{QpParameters, Queue, Spec};
use crate::bed::request::{datagram, read, send, write};
use crate::failure::{Check, refuses, same};
use crate::testbed::{End, Need};

pub(super) const CASES: &[Case] = &[
    case("posting/reset-takes-nothing", "IBA 10.3.1.1", |bed| refused_in(bed, QpState::Reset, true)),
    case("posting/init-takes-receives", "IBA 10.3.1.2", |bed| refused_in(bed, QpState::Init, false)),
    case("posting/rtr-takes-receives", "IBA 10.3.1.3", |bed| refused_in(bed, QpState::Rtr, false)),
    case("posting/receives-of-init-are-used", "IBA 10.3.1.2; ibv_post_recv(3)", receives_of_init),
    case("posting/rtr-receives", "IBA 10.3.1.3", rtr_receives),
    case("posting/sqd-holds-sends", "IBA 10.3.1.5", sqd_holds_sends),
    case("posting/sqd-goes-on-receiving", "IBA 10.3.1.5", sqd_receives),
    case("posting/sqd-tells-when-drained", "IBA 10.3.1.5 and 11.6.3; ibv_get_async_event(3)", sqd_is_reported),
    case("posting/error-flushes-what-comes", "IBA 10.3.1.7; ibv_modify_qp(3)", error_flushes),
    case("posting/list-up-to-the-bad-one", "IBA 11.4.1.1; ibv_post_send(3)", list_up_to_the_bad_one),
    case("posting/receive-list-up-to-the-bad-one", "IBA 11.4.1.2; ibv_post_recv(3)", receive_list),
    case("posting/unknown-queue", "IBA 11.4.1.1 (invalid QP handle); ibv_post_send(3)", unknown_queue),
    case("posting/ud-only-sends", "IBA 11.4.1.1, table of operations by transport; ibv_post_send(3)", ud_only_sends),
    case("posting/ud-needs-an-address", "IBA 11.4.1.1; ibv_post_send(3)", ud_needs_an_address),
    case_if(&[Need::Srq], "posting/no-own-receives-beside-srq", "IBA 11.4.1.2; ibv_post_recv(3)", beside_srq),
    case_if(&[Need::Xrc], "posting/xrc-initiator-receives-nothing", "IBA annex A14; ibv_create_qp_ex(3)", initiator),
    case_if(&[Need::Xrc], "posting/xrc-target-sends-nothing", "IBA annex A14; ibv_create_qp_ex(3)", target),
];

/// Which states refuse a send, and whether they refuse a receive.
fn refused_in(bed: &mut Bed<'_>, state: QpState, receives: bool) -> Check {
    let (queue, peer) = (bed.queue(End::A, Spec::RC)?, bed.queue(End::B, Spec::RC)?);
    let attributes = bed.attributes_to(queue, peer, QpParameters::USUAL)?;
    bed.raise(queue, state, &attributes)?;
    let region = bed.region(End::A, 8)?;
    let result = bed.try_post(queue, &[send(1, &[region.all()])]);
    refuses(format!("a send in {state}"), result, "index 0: State", |error| {
        error.index == 0 && error.why == PostReason::State { state }
    })?;
    let result = bed.try_recv(queue, 2, &[region.all()]);
    if receives {
        refuses(format!("a receive in {state}"), result, "index 0: State", |error| {
            error.index == 0 && error.why == PostReason::State { state }
        })?;
    } else {
        same(format!("a receive in {state}"), result, Ok(()))?;
    }
    bed.no_more_sent(queue)?;
    bed.no_more_received(queue)
}

fn receives_of_init(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.queue(End::A, Spec::RC)?, bed.queue(End::B, Spec::RC)?);
    let (at_a, at_b) = (bed.attributes_to(a, b, QpParameters::USUAL)?, bed.attributes_to(b, a, QpParameters::USUAL)?);
    let (from, into) = (bed.filled(End::A, b"early")?, bed.region(End::B, 5)?);
    bed.raise(b, QpState::Init, &at_b)?;
    bed.recv(b, 1, &[into.all()])?;
    bed.no_more_received(b)?;
    bed.step(b, QpState::Init, QpState::Rtr, &at_b)?;
    bed.raise(a, QpState::Rts, &at_a)?;
    bed.post(a, send(2, &[from.all()]))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, 5)?;
    same("bytes received", bed.read(&into, 0, 5), b"early".to_vec())
}

fn rtr_receives(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.queue(End::A, Spec::RC)?, bed.queue(End::B, Spec::RC)?);
    let (at_a, at_b) = (bed.attributes_to(a, b, QpParameters::USUAL)?, bed.attributes_to(b, a, QpParameters::USUAL)?);
    bed.raise(b, QpState::Rtr, &at_b)?;
    bed.raise(a, QpState::Rts, &at_a)?;
    let (near, far) = (bed.filled(End::A, &[5; 8])?, bed.region(End::B, 8)?);
    let back = bed.region(End::A, 8)?;
    // Sends and writes arrive, reads are answered.
    bed.recv(b, 1, &[far.all()])?;
    bed.post(a, send(1, &[near.all()]))?;
    bed.sent(a, 1)?;
    bed.received(b, 1, 8)?;
    bed.post(a, write(2, &[near.all()], far.remote(0)))?;
    bed.sent(a, 2)?;
    bed.post(a, read(3, &[back.all()], far.remote(0)))?;
    bed.sent(a, 3)?;
    same("bytes read", bed.read(&back, 0, 8), vec![5; 8])?;
    bed.in_state(b, QpState::Rtr)
}

fn to_sqd(bed: &mut Bed<'_>, queue: Queue, drain_notify: Option<bool>) -> Check {
    let change = QpChange { drain_notify, ..QpChange::to(QpState::Sqd) };
    bed.device(queue.end).modify_qp(queue.id, &change)?;
    bed.wait(|| "the drained send queue".into(), |bed| Ok((!bed.query(queue)?.draining).then_some(())))
}

fn sqd_holds_sends(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &[6; 8])?, bed.region(End::B, 8)?);
    bed.recvs(b, 1..3, &into)?;
    to_sqd(bed, a, None)?;
    bed.post(a, send(1, &[from.all()]))?;
    bed.post(a, send(2, &[from.all()]))?;
    bed.no_more_sent(a)?;
    bed.no_more_received(b)?;
    bed.device(End::A).modify_qp(a.id, &QpChange::to(QpState::Rts))?;
    for id in 1..3 {
        bed.sent(a, id)?;
        bed.received(b, id, 8)?;
    }
    Ok(())
}

fn sqd_receives(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &[6; 8])?, bed.region(End::B, 8)?);
    to_sqd(bed, b, None)?;
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, send(2, &[from.all()]))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, 8).map(drop)
}

fn sqd_is_reported(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &[6; 8])?, bed.region(End::B, 8)?);
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, send(1, &[from.all()]))?;
    to_sqd(bed, a, Some(true))?;
    bed.event(End::A, AsyncEvent::SqDrained(a.id))?;
    // What was posted before is complete.
    bed.sent(a, 1).map(drop)
}

fn error_flushes(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let region = bed.region(End::A, 8)?;
    bed.fail(a)?;
    bed.post(a, send(1, &[region.all()]))?;
    bed.recv(a, 2, &[region.all()])?;
    bed.post(a, send(3, &[region.all()]))?;
    bed.send_ended(a, 1, Status::Flushed)?;
    bed.send_ended(a, 3, Status::Flushed)?;
    bed.recv_ended(a, 2, Status::Flushed)?;
    bed.in_state(a, QpState::Error)
}

fn list_up_to_the_bad_one(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let max = bed.query(a)?.caps.send_sges;
    let (from, into) = (bed.filled(End::A, &[8; 4])?, bed.region(End::B, 4)?);
    bed.recvs(b, 1..5, &into)?;
    let (good, bad) = ([from.all()], vec![from.part(0, 1); max as usize + 1]);
    let result = bed.try_post(a, &[send(1, &good), send(2, &good), send(3, &bad), send(4, &good)]);
    refuses("a list with a bad third request", result, "index 2: Sges", |error| {
        error.index == 2 && error.why == PostReason::Sges { given: max as usize + 1, max }
    })?;
    for id in 1..3 {
        bed.sent(a, id)?;
        bed.received(b, id, 4)?;
    }
    bed.no_more_sent(a)?;
    bed.in_state(a, QpState::Rts)
}

fn receive_list(bed: &mut Bed<'_>) -> Check {
    use rerail_verbs::contract::RecvWr;
    let [a, b] = bed.rc()?;
    let max = bed.query(b)?.caps.recv_sges;
    let (from, into) = (bed.filled(End::A, &[8; 4])?, bed.region(End::B, 64)?);
    let (good, bad) = ([into.all()], vec![into.part(0, 1); max as usize + 1]);
    let list = [RecvWr { id: 1, sges: &good }, RecvWr { id: 2, sges: &bad }, RecvWr { id: 3, sges: &good }];
    let result = bed.device(End::B).post_recv(b.id, &list);
    refuses("a list with a bad second request", result, "index 1: Sges", |error| {
        error.index == 1 && error.why == PostReason::Sges { given: max as usize + 1, max }
    })?;
    bed.recv(b, 4, &good)?;
    for id in [1, 4] {
        bed.post(a, send(id, &[from.all()]))?;
        bed.sent(a, id)?;
        bed.received(b, id, 4)?;
    }
    Ok(())
}

fn unknown_queue(bed: &mut Bed<'_>) -> Check {
    use rerail_verbs::contract::Kind;
    let [a, _] = bed.rc()?;
    bed.device(End::A).destroy_qp(a.id)?;
    let what =
        |error: &rerail_verbs::contract::PostError| error.why == PostReason::Unknown { what: Kind::Qp, name: a.id.0 };
    refuses("a send to no queue pair", bed.try_post(a, &[send(1, &[])]), "Unknown queue pair", what)?;
    refuses("a receive of no queue pair", bed.try_recv(a, 2, &[]), "Unknown queue pair", what)
}

fn ud_only_sends(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.ud(End::A, Spec::UD)?, bed.ud(End::B, Spec::UD)?);
    let (near, far) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    let handle = bed.handle(End::A, End::B)?;
    let to = datagram(0, &[], handle, b).datagram;
    let sges = [near.all()];
    for request in [write(1, &sges, far.remote(0)), read(2, &sges, far.remote(0))] {
        let request = rerail_verbs::contract::SendWr { datagram: to, ..request };
        refuses(format!("{:?} over UD", request.op), bed.try_post(a, &[request]), "Operation", |error| {
            matches!(error.why, PostReason::Operation { .. })
        })?;
    }
    bed.in_state(a, QpState::Rts)
}

fn ud_needs_an_address(bed: &mut Bed<'_>) -> Check {
    let a = bed.ud(End::A, Spec::UD)?;
    let near = bed.region(End::A, 8)?;
    refuses("a datagram to nowhere", bed.try_post(a, &[send(1, &[near.all()])]), "Operation", |error| {
        matches!(error.why, PostReason::Operation { .. })
    })
}

fn beside_srq(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::A, 8)?;
    let queue = bed.queue(End::A, Spec { srq: Some(srq), ..Spec::RC })?;
    let peer = bed.queue(End::B, Spec::RC)?;
    bed.connect(queue, peer, QpParameters::USUAL)?;
    refuses("a receive beside a shared queue", bed.try_recv(queue, 1, &[]), "Operation", |error| {
        matches!(error.why, PostReason::Operation { .. })
    })
}

fn initiator(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let [initiator, _] = bed.xrc(domain, QpParameters::USUAL)?;
    refuses("a receive of an XRC initiator", bed.try_recv(initiator, 1, &[]), "Operation", |error| {
        matches!(error.why, PostReason::Operation { .. })
    })
}

fn target(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let [_, target] = bed.xrc(domain, QpParameters::USUAL)?;
    same("transport", target.kind, QpKind::XrcTarget)?;
    refuses("a send of an XRC target", bed.try_post(target, &[send(1, &[])]), "Operation", |error| {
        matches!(error.why, PostReason::Operation { .. })
    })?;
    refuses("a receive of an XRC target", bed.try_recv(target, 1, &[]), "Operation", |error| {
        matches!(error.why, PostReason::Operation { .. })
    })
}
