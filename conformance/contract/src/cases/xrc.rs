//! Extended reliable connections: one connection to a process of another host reaches all shared receive
//! queues of that host's domain (xrc-2008, II and III).

use rerail_verbs::contract::{CqId, CreateError, DestroyError, Kind, QpKind, QpState, SrqId, Status, XrcdFile, XrcdId};

use super::{Case, case_if};
use crate::bed::queue::{QpParameters, Queue, Spec};
use crate::bed::request::{read, send, send_imm, to_srq, unsignaled, write, write_imm};
use crate::bed::{Bed, pattern};
use crate::failure::{Check, one_of, refuses, same, same_bytes};
use crate::testbed::{End, Need};

const RULE: &str = "IBA annex A14 (XRC); ibv_create_qp_ex(3), ibv_create_srq_ex(3)";
const DOMAIN: &str = "IBA annex A14 (XRC domain); ibv_open_xrcd(3), ibv_close_xrcd(3)";
const SHARE: &str = "IBA annex A14 (XRC domain); ibv_open_xrcd(3), ibv_open_qp(3)";
const XRC: &[Need] = &[Need::Xrc];
const SHARED: &[Need] = &[Need::Xrc, Need::Sibling];

pub(super) const CASES: &[Case] = &[
    case_if(XRC, "xrc/addressed-by-number", RULE, addressed_by_number),
    case_if(XRC, "xrc/several-queues-over-one-connection", RULE, several_queues),
    case_if(XRC, "xrc/several-connections-to-one-queue", RULE, several_connections),
    case_if(XRC, "xrc/long-messages", RULE, long_messages),
    case_if(XRC, "xrc/write-immediate", RULE, write_immediate),
    case_if(XRC, "xrc/write-and-read", RULE, write_and_read),
    case_if(XRC, "xrc/wrong-number", "IBA annex A14 (invalid XRC SRQ number)", wrong_number),
    case_if(XRC, "xrc/queue-of-another-domain", "IBA annex A14 (XRC domain check)", another_domain),
    case_if(XRC, "xrc/ordinary-queue-has-no-number", "ibv_create_srq(3), ibv_get_srq_num(3)", no_number),
    case_if(XRC, "xrc/empty-queue-makes-the-sender-wait", "IBA 9.7.5.2.8 and annex A14", empty_queue),
    case_if(XRC, "xrc/error-of-a-target-spares-the-queue", "IBA annex A14; ibv_create_srq_ex(3)", spares_the_queue),
    case_if(XRC, "xrc/domain-busy-while-used", DOMAIN, domain_busy),
    case_if(XRC, "xrc/target-needs-a-domain", RULE, needs_a_domain),
    case_if(SHARED, "xrc/domain-of-a-file", DOMAIN, domain_of_a_file),
    case_if(SHARED, "xrc/queue-of-another-process", SHARE, queue_of_another_process),
    case_if(SHARED, "xrc/target-opened-by-another-process", SHARE, target_opened),
    case_if(SHARED, "xrc/target-lives-until-the-last-has-closed", SHARE, target_lives),
];

fn addressed_by_number(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let [initiator, target] = bed.xrc(domain, QpParameters::USUAL)?;
    let (srq, number, cq) = bed.xrc_srq(End::B, domain)?;
    let (from, into) = (bed.filled(End::A, &pattern(1, 64))?, bed.region(End::B, 64)?);
    bed.srq_recv(End::B, srq.id, 1, &[into.all()])?;
    bed.post(initiator, to_srq(number, send_imm(2, &[from.all()], 9)))?;
    bed.sent(initiator, 2)?;
    let came = bed.ended(End::B, cq, 1, Status::Success)?;
    same("bytes", came.bytes, 64)?;
    same("immediate data", came.immediate, Some(9))?;
    same("queue pair number of the completion", came.qp, target.number)?;
    same_bytes("message", &bed.read(&into, 0, 64), &pattern(1, 64))
}

fn several_queues(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let [initiator, _] = bed.xrc(domain, QpParameters::USUAL)?;
    let queues = [bed.xrc_srq(End::B, domain)?, bed.xrc_srq(End::B, domain)?, bed.xrc_srq(End::B, domain)?];
    for id in 0..9 {
        let (srq, number, _) = queues[id as usize % 3];
        bed.srq_recv(End::B, srq.id, id, &[])?;
        bed.post(initiator, to_srq(number, send(id, &[])))?;
    }
    for id in 0..9 {
        bed.sent(initiator, id)?;
        bed.ended(End::B, queues[id as usize % 3].2, id, Status::Success)?;
    }
    for (_, _, cq) in queues {
        bed.nothing(End::B, cq)?;
    }
    Ok(())
}

fn several_connections(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let pairs = [bed.xrc(domain, QpParameters::USUAL)?, bed.xrc(domain, QpParameters::USUAL)?];
    let (srq, number, cq) = bed.xrc_srq(End::B, domain)?;
    for (id, [initiator, target]) in pairs.into_iter().enumerate() {
        bed.srq_recv(End::B, srq.id, id as u64, &[])?;
        bed.post(initiator, to_srq(number, send(5, &[])))?;
        bed.sent(initiator, 5)?;
        let came = bed.ended(End::B, cq, id as u64, Status::Success)?;
        same("queue pair number of the completion", came.qp, target.number)?;
    }
    Ok(())
}

fn long_messages(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let [initiator, _] = bed.xrc(domain, QpParameters::USUAL)?;
    let queues = [bed.xrc_srq(End::B, domain)?, bed.xrc_srq(End::B, domain)?];
    let len = 20_001;
    for (i, (srq, number, cq)) in queues.into_iter().enumerate() {
        let bytes = pattern(i as u8, len);
        let (from, into) = (bed.filled(End::A, &bytes)?, bed.region(End::B, len)?);
        bed.srq_recv(End::B, srq.id, 1, &[into.all()])?;
        bed.post(initiator, to_srq(number, send(2, &[from.all()])))?;
        bed.sent(initiator, 2)?;
        bed.ended(End::B, cq, 1, Status::Success)?;
        same_bytes("message", &bed.read(&into, 0, len), &bytes)?;
    }
    Ok(())
}

fn write_immediate(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let [initiator, _] = bed.xrc(domain, QpParameters::USUAL)?;
    let (srq, number, cq) = bed.xrc_srq(End::B, domain)?;
    let (from, into) = (bed.filled(End::A, &[3; 8])?, bed.region(End::B, 8)?);
    bed.srq_recv(End::B, srq.id, 1, &[])?;
    bed.post(initiator, to_srq(number, write_imm(2, &[from.all()], into.remote(0), 4)))?;
    bed.sent(initiator, 2)?;
    same("immediate data", bed.ended(End::B, cq, 1, Status::Success)?.immediate, Some(4))?;
    same_bytes("memory", &bed.read(&into, 0, 8), &[3; 8])
}

fn write_and_read(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let [initiator, _] = bed.xrc(domain, QpParameters::USUAL)?;
    let (_, number, cq) = bed.xrc_srq(End::B, domain)?;
    let (from, far) = (bed.filled(End::A, &pattern(5, 3000))?, bed.region(End::B, 3000)?);
    let back = bed.region(End::A, 3000)?;
    bed.post(initiator, to_srq(number, write(1, &[from.all()], far.remote(0))))?;
    bed.post(initiator, to_srq(number, read(2, &[back.all()], far.remote(0))))?;
    bed.sent(initiator, 1)?;
    bed.sent(initiator, 2)?;
    same_bytes("what was written and read", &bed.read(&back, 0, 3000), &pattern(5, 3000))?;
    bed.nothing(End::B, cq)
}

/// A send to this number is refused by the peer, and ends the connection.
fn refused(bed: &mut Bed<'_>, [initiator, target]: [Queue; 2], number: u32) -> Check {
    bed.post(initiator, to_srq(number, send(1, &[])))?;
    let came = bed.next(End::A, initiator.send_cq()?)?;
    // The annex has the target answer with a NAK; which one differs between devices.
    let allowed = [Status::RemoteInvalid, Status::RemoteAccess, Status::RemoteOperation];
    one_of("a send to a wrong number", came.status, &allowed)?;
    bed.comes_to(initiator, QpState::Error)?;
    bed.comes_to(target, QpState::Error)
}

fn wrong_number(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let pair = bed.xrc(domain, QpParameters::SHORT_TIMEOUT)?;
    // Made and destroyed, so that no queue has the number.
    let (srq, number, _) = bed.xrc_srq(End::B, domain)?;
    bed.device(End::B).destroy_srq(srq.id)?;
    refused(bed, pair, number)
}

fn another_domain(bed: &mut Bed<'_>) -> Check {
    let (here, there) = (bed.domain(End::B)?, bed.domain(End::B)?);
    let pair = bed.xrc(here, QpParameters::SHORT_TIMEOUT)?;
    let (srq, number, cq) = bed.xrc_srq(End::B, there)?;
    bed.srq_recv(End::B, srq.id, 1, &[])?;
    refused(bed, pair, number)?;
    bed.nothing(End::B, cq)
}

fn no_number(bed: &mut Bed<'_>) -> Check {
    use rerail_verbs::contract::SrqInit;
    let pd = bed.pd(End::B)?;
    let srq = bed.device(End::B).create_srq(pd, &SrqInit { depth: 4, sges: 1, xrc: None })?;
    same("number of an ordinary shared receive queue", srq.number, None)
}

fn empty_queue(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let [initiator, _] = bed.xrc(domain, QpParameters::USUAL)?;
    let (srq, number, cq) = bed.xrc_srq(End::B, domain)?;
    bed.post(initiator, to_srq(number, send(1, &[])))?;
    bed.no_more_sent(initiator)?;
    bed.srq_recv(End::B, srq.id, 2, &[])?;
    bed.sent(initiator, 1)?;
    bed.ended(End::B, cq, 2, Status::Success)?;
    let [initiator, _] = bed.xrc(domain, QpParameters { rnr_retry: 0, ..QpParameters::USUAL })?;
    bed.post(initiator, to_srq(number, unsignaled(send(3, &[]))))?;
    bed.send_ended(initiator, 3, Status::RnrRetryExceeded).map(drop)
}

fn spares_the_queue(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let ([_, dead], [initiator, _]) = (bed.xrc(domain, QpParameters::USUAL)?, bed.xrc(domain, QpParameters::USUAL)?);
    let (srq, number, cq) = bed.xrc_srq(End::B, domain)?;
    bed.srq_recv(End::B, srq.id, 1, &[])?;
    bed.fail(dead)?;
    bed.nothing(End::B, cq)?;
    bed.post(initiator, to_srq(number, send(2, &[])))?;
    bed.sent(initiator, 2)?;
    bed.ended(End::B, cq, 1, Status::Success).map(drop)
}

fn domain_busy(bed: &mut Bed<'_>) -> Check {
    let domain = bed.domain(End::B)?;
    let busy = |error: &DestroyError| matches!(error, DestroyError::Busy { what: Kind::Xrcd, users: 1 });
    let (srq, _, _) = bed.xrc_srq(End::B, domain)?;
    refuses("a domain with a queue", bed.device(End::B).close_xrcd(domain), "Busy", busy)?;
    bed.device(End::B).destroy_srq(srq.id)?;
    let target = bed.queue(End::B, Spec { domain: Some(domain), ..Spec::of(QpKind::XrcTarget) })?;
    refuses("a domain with a target", bed.device(End::B).close_xrcd(domain), "Busy", busy)?;
    bed.device(End::B).destroy_qp(target.id)?;
    bed.device(End::B).close_xrcd(domain)?;
    refuses("a domain that is closed", bed.device(End::B).close_xrcd(domain), "Unknown", |error| {
        *error == DestroyError::Unknown { what: Kind::Xrcd, name: domain.0 }
    })
}

fn needs_a_domain(bed: &mut Bed<'_>) -> Check {
    let init = bed.init(End::B, Spec::of(QpKind::XrcTarget))?;
    let result = bed.device(End::B).create_qp(&init);
    refuses("a target without a domain", result, "Mismatch", |error| matches!(error, CreateError::Mismatch { .. }))
}

/// The domain that B and C share.
fn shared(bed: &mut Bed<'_>) -> Check<[XrcdId; 2]> {
    let [at_b, at_c] = bed.shared_file()?;
    let file = |file| XrcdFile::Shared { file, create: true, exclusive: false };
    Ok([bed.device(End::B).open_xrcd(file(at_b))?, bed.device(End::C).open_xrcd(file(at_c))?])
}

fn domain_of_a_file(bed: &mut Bed<'_>) -> Check {
    let [at_b, at_c] = bed.shared_file()?;
    let open = |file, create, exclusive| XrcdFile::Shared { file, create, exclusive };
    let result = bed.device(End::B).open_xrcd(open(at_b, false, false));
    refuses("a domain that no process has made", result, "a refusal", |_| true)?;
    let made = bed.device(End::B).open_xrcd(open(at_b, true, true))?;
    let result = bed.device(End::C).open_xrcd(open(at_c, true, true));
    refuses("a domain that is there, made exclusively", result, "a refusal", |_| true)?;
    let opened = bed.device(End::C).open_xrcd(open(at_c, false, false))?;
    // It exists as long as a process has it open.
    bed.device(End::B).close_xrcd(made)?;
    let again = bed.device(End::B).open_xrcd(open(at_b, false, false))?;
    bed.device(End::B).close_xrcd(again)?;
    bed.device(End::C).close_xrcd(opened)?;
    let result = bed.device(End::B).open_xrcd(open(at_b, false, false));
    refuses("a domain that all have closed", result, "a refusal", |_| true)
}

/// A queue of C, with room for one message.
fn queue_of_c(bed: &mut Bed<'_>, domain: XrcdId) -> Check<(SrqId, u32, CqId)> {
    let (srq, number, cq) = bed.xrc_srq(End::C, domain)?;
    bed.srq_recv(End::C, srq.id, 1, &[])?;
    Ok((srq.id, number, cq))
}

fn queue_of_another_process(bed: &mut Bed<'_>) -> Check {
    let [at_b, at_c] = shared(bed)?;
    let [initiator, target] = bed.xrc(at_b, QpParameters::USUAL)?;
    let (srq, number, cq) = bed.xrc_srq(End::C, at_c)?;
    let (from, into) = (bed.filled(End::A, &pattern(6, 3000))?, bed.region(End::C, 3000)?);
    bed.srq_recv(End::C, srq.id, 1, &[into.all()])?;
    bed.post(initiator, to_srq(number, send(2, &[from.all()])))?;
    bed.sent(initiator, 2)?;
    let came = bed.ended(End::C, cq, 1, Status::Success)?;
    same("queue pair number of the completion", came.qp, target.number)?;
    same_bytes("message", &bed.read(&into, 0, 3000), &pattern(6, 3000))
}

fn target_opened(bed: &mut Bed<'_>) -> Check {
    let [at_b, at_c] = shared(bed)?;
    let [_, target] = bed.xrc(at_b, QpParameters::USUAL)?;
    let opened = bed.device(End::C).open_qp(at_c, target.number)?;
    same("number", opened.number, target.number)?;
    same("state as the other process sees it", bed.device(End::C).query_qp(opened.id)?.state, QpState::Rts)?;
    let result = bed.device(End::C).open_qp(at_c, target.number ^ 0x80_0000);
    refuses("a target that does not exist", result, "Unknown", |error| {
        matches!(error, CreateError::Unknown { what: Kind::Qp, .. })
    })
}

fn target_lives(bed: &mut Bed<'_>) -> Check {
    let [at_b, at_c] = shared(bed)?;
    let [initiator, target] = bed.xrc(at_b, QpParameters::SHORT_TIMEOUT)?;
    let opened = bed.device(End::C).open_qp(at_c, target.number)?;
    bed.device(End::B).destroy_qp(target.id)?;
    let (_, number, cq) = queue_of_c(bed, at_c)?;
    bed.post(initiator, to_srq(number, send(2, &[])))?;
    bed.sent(initiator, 2)?;
    bed.ended(End::C, cq, 1, Status::Success)?;
    bed.device(End::C).destroy_qp(opened.id)?;
    bed.post(initiator, to_srq(number, send(3, &[])))?;
    bed.send_ended(initiator, 3, Status::RetryExceeded).map(drop)
}
