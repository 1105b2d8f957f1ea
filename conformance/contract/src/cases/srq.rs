//! Shared receive queues.

use rerail_verbs::contract::{AsyncEvent, DestroyError, Kind, ModifyError, PostReason, QpState, RecvWr, SrqId, Status};

use super::{Case, case_if};
use crate::bed::queue::{QpParameters, Queue, Spec};
use crate::bed::request::{datagram, send, write_imm};
use crate::bed::{Bed, pattern};
use crate::failure::{Check, refuses, same, same_bytes};
use crate::testbed::{End, Need};

const RULE: &str = "IBA chapter 10 (shared receive queue); ibv_create_srq(3), ibv_post_srq_recv(3)";
const LIMIT: &str = "IBA chapter 10 (SRQ limit) and 11.6.3; ibv_modify_srq(3), ibv_get_async_event(3)";
const SRQ: &[Need] = &[Need::Srq];

pub(super) const CASES: &[Case] = &[
    case_if(SRQ, "srq/feeds-several-queue-pairs", RULE, feeds_several),
    case_if(SRQ, "srq/taken-in-order-of-posting", RULE, in_order),
    case_if(SRQ, "srq/feeds-datagrams", RULE, feeds_datagrams),
    case_if(SRQ, "srq/write-immediate-takes-one", RULE, write_immediate),
    case_if(SRQ, "srq/empty-makes-the-sender-wait", "IBA 9.7.5.2.8 (RNR NAK); ibv_post_srq_recv(3)", empty),
    case_if(SRQ, "srq/full", "IBA chapter 11 (post to SRQ); ibv_post_srq_recv(3)", full),
    case_if(SRQ, "srq/pieces", "IBA chapter 11 (post to SRQ); ibv_post_srq_recv(3)", pieces),
    case_if(SRQ, "srq/limit-event", LIMIT, limit_event),
    case_if(SRQ, "srq/limit-event-once", LIMIT, limit_once),
    case_if(SRQ, "srq/limit-disarmed", LIMIT, limit_disarmed),
    case_if(SRQ, "srq/limit-over-depth", "ibv_modify_srq(3)", limit_over_depth),
    case_if(SRQ, "srq/error-flushes-nothing-of-it", "IBA 10.3.1.7; ibv_create_srq(3)", not_flushed),
    case_if(SRQ, "srq/last-request-event", "IBA 11.6.3 (last WQE reached); ibv_get_async_event(3)", last_request),
    case_if(SRQ, "srq/busy-while-used", "ibv_destroy_srq(3)", busy),
];

/// A queue pair of A, connected with one of B that receives from `srq`.
fn pair_on(bed: &mut Bed<'_>, srq: SrqId, qp_parameters: QpParameters) -> Check<[Queue; 2]> {
    let a = bed.queue(End::A, Spec::RC)?;
    let b = bed.queue(End::B, Spec { srq: Some(srq), ..Spec::RC })?;
    bed.connect(a, b, qp_parameters)?;
    Ok([a, b])
}

fn feeds_several(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 16)?;
    let pairs = [
        pair_on(bed, srq, QpParameters::USUAL)?,
        pair_on(bed, srq, QpParameters::USUAL)?,
        pair_on(bed, srq, QpParameters::USUAL)?,
    ];
    let into = bed.region(End::B, 64)?;
    for id in 0..6 {
        bed.srq_recv(End::B, srq, id, &[into.part(8 * id as usize, 8)])?;
    }
    // One at a time, so that the queue pair of each receive is known.
    for id in 0..6u64 {
        let [a, b] = pairs[id as usize % 3];
        let from = bed.filled(End::A, &[id as u8 + 1; 8])?;
        bed.post(a, send(id, &[from.all()]))?;
        bed.sent(a, id)?;
        bed.received(b, id, 8)?;
        same_bytes("message", &bed.read(&into, 8 * id as usize, 8), &[id as u8 + 1; 8])?;
    }
    Ok(())
}

fn in_order(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 16)?;
    let [a, b] = pair_on(bed, srq, QpParameters::USUAL)?;
    for id in [7, 3, 9, 1] {
        bed.srq_recv(End::B, srq, id, &[])?;
    }
    for id in 0..4 {
        bed.post(a, send(id, &[]))?;
    }
    [7, 3, 9, 1].into_iter().try_for_each(|id| bed.received(b, id, 0).map(drop))
}

fn feeds_datagrams(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 4)?;
    let (a, b) = (bed.ud(End::A, Spec::UD)?, bed.ud(End::B, Spec { srq: Some(srq), ..Spec::UD })?);
    let (from, into) = (bed.filled(End::A, &pattern(1, 32))?, bed.region(End::B, 72)?);
    let handle = bed.handle(End::A, End::B)?;
    bed.srq_recv(End::B, srq, 1, &[into.all()])?;
    bed.post(a, datagram(2, &[from.all()], handle, b))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, 72)?;
    same_bytes("message", &bed.read(&into, 40, 32), &pattern(1, 32))
}

fn write_immediate(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 4)?;
    let [a, b] = pair_on(bed, srq, QpParameters::USUAL)?;
    let (from, into) = (bed.filled(End::A, &[2; 8])?, bed.region(End::B, 8)?);
    bed.srq_recv(End::B, srq, 1, &[])?;
    bed.post(a, write_imm(2, &[from.all()], into.remote(0), 3))?;
    bed.sent(a, 2)?;
    same("immediate data", bed.recv_ended(b, 1, Status::Success)?.immediate, Some(3))
}

fn empty(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 4)?;
    let [a, b] = pair_on(bed, srq, QpParameters::USUAL)?;
    bed.post(a, send(1, &[]))?;
    bed.no_more_sent(a)?;
    bed.srq_recv(End::B, srq, 2, &[])?;
    bed.sent(a, 1)?;
    bed.received(b, 2, 0)?;
    let [a, _] = pair_on(bed, srq, QpParameters { rnr_retry: 0, ..QpParameters::USUAL })?;
    bed.post(a, send(3, &[]))?;
    bed.send_ended(a, 3, Status::RnrRetryExceeded).map(drop)
}

fn full(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 4)?;
    let most = u64::from(bed.limits(End::B).srq_depth);
    let mut taken = 0;
    let error = loop {
        match bed.device(End::B).post_srq_recv(srq, &[RecvWr { id: taken, sges: &[] }]) {
            Ok(()) if taken <= most => taken += 1,
            Ok(()) => {
                return Err(crate::failure::wrong("receives in a shared queue", format!("{most} at most"), taken));
            }
            Err(error) => break error,
        }
    };
    if taken < 4 {
        return Err(crate::failure::wrong("receives in a queue of 4", "4 at least", taken));
    }
    same("reason", error.why, PostReason::Full { depth: taken as u32 })?;
    let [a, b] = pair_on(bed, srq, QpParameters::USUAL)?;
    bed.post(a, send(1, &[]))?;
    bed.received(b, 0, 0)?;
    bed.srq_recv(End::B, srq, taken, &[])
}

fn pieces(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 4)?;
    let over = bed.limits(End::B).sges as usize + 1;
    let into = bed.region(End::B, 8)?;
    let list = vec![into.part(0, 1); over];
    let result = bed.device(End::B).post_srq_recv(srq, &[RecvWr { id: 1, sges: &list }]);
    refuses(
        "too many pieces",
        result,
        "Sges",
        |error| matches!(error.why, PostReason::Sges { given, .. } if given == over),
    )
}

fn limit_event(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 8)?;
    let [a, b] = pair_on(bed, srq, QpParameters::USUAL)?;
    for id in 0..4 {
        bed.srq_recv(End::B, srq, id, &[])?;
    }
    bed.device(End::B).arm_srq(srq, 3)?;
    bed.post(a, send(0, &[]))?;
    bed.received(b, 0, 0)?;
    // Three are left, which is not fewer than three.
    bed.no_event(End::B, AsyncEvent::SrqLimit(srq))?;
    bed.post(a, send(1, &[]))?;
    bed.received(b, 1, 0)?;
    bed.event(End::B, AsyncEvent::SrqLimit(srq))
}

fn limit_once(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 8)?;
    let [a, b] = pair_on(bed, srq, QpParameters::USUAL)?;
    for id in 0..6 {
        bed.srq_recv(End::B, srq, id, &[])?;
    }
    bed.device(End::B).arm_srq(srq, 6)?;
    bed.post(a, send(0, &[]))?;
    bed.event(End::B, AsyncEvent::SrqLimit(srq))?;
    bed.received(b, 0, 0)?;
    bed.post(a, send(1, &[]))?;
    bed.received(b, 1, 0)?;
    bed.no_event(End::B, AsyncEvent::SrqLimit(srq))?;
    // Armed again, it notifies again.
    bed.device(End::B).arm_srq(srq, 4)?;
    bed.post(a, send(2, &[]))?;
    bed.received(b, 2, 0)?;
    bed.event(End::B, AsyncEvent::SrqLimit(srq))
}

fn limit_disarmed(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 8)?;
    let [a, b] = pair_on(bed, srq, QpParameters::USUAL)?;
    for id in 0..2 {
        bed.srq_recv(End::B, srq, id, &[])?;
    }
    bed.device(End::B).arm_srq(srq, 2)?;
    bed.device(End::B).arm_srq(srq, 0)?;
    for id in 0..2 {
        bed.post(a, send(id, &[]))?;
        bed.received(b, id, 0)?;
    }
    bed.no_event(End::B, AsyncEvent::SrqLimit(srq))
}

fn limit_over_depth(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 8)?;
    let Some(over) = bed.limits(End::B).srq_depth.checked_add(1) else { return Ok(()) };
    let result = bed.device(End::B).arm_srq(srq, over);
    refuses("a limit over the depth", result, "OutOfRange", |error| matches!(error, ModifyError::OutOfRange { .. }))
}

fn not_flushed(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 8)?;
    let ([_, dead], [a, b]) = (pair_on(bed, srq, QpParameters::USUAL)?, pair_on(bed, srq, QpParameters::USUAL)?);
    bed.srq_recv(End::B, srq, 1, &[])?;
    bed.srq_recv(End::B, srq, 2, &[])?;
    bed.fail(dead)?;
    bed.no_more_received(dead)?;
    // The other one has them.
    for id in 1..3 {
        bed.post(a, send(id, &[]))?;
        bed.sent(a, id)?;
        bed.received(b, id, 0)?;
    }
    bed.in_state(b, QpState::Rts)
}

fn last_request(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 8)?;
    let [_, b] = pair_on(bed, srq, QpParameters::USUAL)?;
    bed.srq_recv(End::B, srq, 1, &[])?;
    bed.fail(b)?;
    bed.event(End::B, AsyncEvent::QpLastWqe(b.id))?;
    bed.no_event(End::B, AsyncEvent::QpLastWqe(b.id))
}

fn busy(bed: &mut Bed<'_>) -> Check {
    let srq = bed.srq(End::B, 8)?;
    let [_, b] = pair_on(bed, srq, QpParameters::USUAL)?;
    refuses("a shared queue in use", bed.device(End::B).destroy_srq(srq), "Busy", |error| {
        matches!(error, DestroyError::Busy { what: Kind::Srq, users: 1 })
    })?;
    bed.device(End::B).destroy_qp(b.id)?;
    Ok(bed.device(End::B).destroy_srq(srq)?)
}
