//! Objects: what uses what, what is left when something goes.

use rerail_verbs::contract::{
    CqId, CqInit, CreateError, DestroyError, Kind, ModifyError, PdId, PollError, QpInit, Status, XrcdId,
};

use super::{Case, case, case_if};
use crate::bed::Bed;
use crate::bed::queue::{QpParameters, Spec};
use crate::bed::request::{send, write};
use crate::failure::{Check, refuses, same, same_bytes};
use crate::testbed::{End, Need};

pub(super) const CASES: &[Case] = &[
    case("lifetime/domain-busy", "IBA 11.2.1 (PD in use); ibv_dealloc_pd(3)", domain_busy),
    case("lifetime/completion-queue-busy", "IBA chapter 11 (CQ in use); ibv_destroy_cq(3)", cq_busy),
    case("lifetime/stale-names", "IBA chapter 11 (invalid handle); ibv_destroy_qp(3), ibv_destroy_cq(3)", stale_names),
    case("lifetime/parts-must-exist", "IBA 11.2.5.1 (create queue pair); ibv_create_qp(3)", parts_must_exist),
    case("lifetime/parts-must-be-there", "IBA 11.2.5.1 (create queue pair); ibv_create_qp(3)", parts_must_be_there),
    case("lifetime/destroy-with-open-requests", "IBA 11.2.5.4 (destroy queue pair); ibv_destroy_qp(3)", open_requests),
    case("lifetime/destroy-takes-completions", "IBA 11.2.5.4; ibv_destroy_qp(3)", takes_completions),
    case("lifetime/deregister-ends-access", "IBA chapter 11 (deregister memory region); ibv_dereg_mr(3)", ends_access),
    case("lifetime/made-and-destroyed-often", "IBA chapter 11", often),
    case_if(&[Need::Srq], "lifetime/srq-parts-must-exist", "ibv_create_srq(3)", srq_parts),
];

fn domain_busy(bed: &mut Bed<'_>) -> Check {
    let pd = bed.device(End::A).alloc_pd()?;
    let busy = |error: &DestroyError| *error == DestroyError::Busy { what: Kind::Pd, users: 1 };
    let access = bed.every_access(End::A);
    let region = bed.region_with(End::A, pd, 8, access)?;
    refuses("a domain with memory", bed.device(End::A).dealloc_pd(pd), "Busy", busy)?;
    bed.deregister(&region)?;
    let queue = bed.queue(End::A, Spec { pd: Some(pd), ..Spec::RC })?;
    refuses("a domain with a queue pair", bed.device(End::A).dealloc_pd(pd), "Busy", busy)?;
    bed.device(End::A).destroy_qp(queue.id)?;
    Ok(bed.device(End::A).dealloc_pd(pd)?)
}

fn cq_busy(bed: &mut Bed<'_>) -> Check {
    let queue = bed.queue(End::A, Spec::RC)?;
    for cq in [queue.send_cq()?, queue.recv_cq()?] {
        refuses("a completion queue in use", bed.device(End::A).destroy_cq(cq), "Busy", |error| {
            *error == DestroyError::Busy { what: Kind::Cq, users: 1 }
        })?;
    }
    bed.device(End::A).destroy_qp(queue.id)?;
    for cq in [queue.send_cq()?, queue.recv_cq()?] {
        bed.device(End::A).destroy_cq(cq)?;
    }
    Ok(())
}

fn stale_names(bed: &mut Bed<'_>) -> Check {
    let queue = bed.queue(End::A, Spec::RC)?;
    let attributes = bed.attributes_to(queue, queue, QpParameters::USUAL)?;
    let (cq, pd) = (queue.send_cq()?, bed.device(End::A).alloc_pd()?);
    bed.device(End::A).destroy_qp(queue.id)?;
    bed.device(End::A).destroy_cq(cq)?;
    bed.device(End::A).dealloc_pd(pd)?;
    let unknown = |what, name| move |error: &DestroyError| *error == DestroyError::Unknown { what, name };
    let device = bed.device(End::A);
    refuses("a queue pair twice", device.destroy_qp(queue.id), "Unknown", unknown(Kind::Qp, queue.id.0))?;
    refuses("a completion queue twice", device.destroy_cq(cq), "Unknown", unknown(Kind::Cq, cq.0))?;
    refuses("a protection domain twice", device.dealloc_pd(pd), "Unknown", unknown(Kind::Pd, pd.0))?;
    let gone = |error: &ModifyError| *error == ModifyError::Unknown { what: Kind::Qp, name: queue.id.0 };
    refuses("a query of nothing", device.query_qp(queue.id), "Unknown", gone)?;
    refuses("a change of nothing", device.modify_qp(queue.id, &attributes), "Unknown", gone)?;
    let unknown = |error: &PollError| *error == PollError::Unknown { name: cq.0 };
    refuses("a poll of nothing", device.poll_cq(cq, 1, &mut Vec::new()), "Unknown", unknown)?;
    refuses("a notice of nothing", device.request_notify(cq, false), "Unknown", unknown)
}

fn parts_must_exist(bed: &mut Bed<'_>) -> Check {
    let good = bed.init(End::A, Spec::RC)?;
    let nothing = u32::MAX;
    for (what, init) in [
        (Kind::Pd, QpInit { pd: Some(PdId(nothing)), ..good }),
        (Kind::Cq, QpInit { send_cq: Some(CqId(nothing)), ..good }),
        (Kind::Cq, QpInit { recv_cq: Some(CqId(nothing)), ..good }),
    ] {
        let result = bed.device(End::A).create_qp(&init);
        refuses(format!("a {what} that does not exist"), result, "Unknown", |error| {
            *error == CreateError::Unknown { what, name: nothing }
        })?;
    }
    bed.device(End::A).create_qp(&good)?;
    Ok(())
}

fn parts_must_be_there(bed: &mut Bed<'_>) -> Check {
    for spec in [Spec::RC, Spec::UD] {
        let good = bed.init(End::A, spec)?;
        for (what, init) in [
            ("without a protection domain", QpInit { pd: None, ..good }),
            ("without a queue for sends", QpInit { send_cq: None, ..good }),
            ("without a queue for receives", QpInit { recv_cq: None, ..good }),
            ("with a domain of XRC", QpInit { domain: Some(XrcdId(0)), ..good }),
        ] {
            let result = bed.device(End::A).create_qp(&init);
            // A device may look the name up before it finds that there should be none.
            refuses(format!("{:?} {what}", spec.kind), result, "Mismatch", |error| {
                matches!(error, CreateError::Mismatch { .. } | CreateError::Unknown { what: Kind::Xrcd, .. })
            })?;
        }
    }
    Ok(())
}

fn open_requests(bed: &mut Bed<'_>) -> Check {
    let cq = bed.cq(End::A, 64)?;
    let a = bed.queue(End::A, Spec { cq: Some(cq), ..Spec::RC })?;
    let b = bed.queue(End::B, Spec::RC)?;
    bed.connect(a, b, QpParameters::USUAL)?;
    for id in 0..4 {
        bed.recv(a, id, &[])?;
        bed.post(a, send(10 + id, &[]))?;
    }
    bed.device(End::A).destroy_qp(a.id)?;
    bed.nothing(End::A, cq)?;
    Ok(bed.device(End::A).destroy_cq(cq)?)
}

fn takes_completions(bed: &mut Bed<'_>) -> Check {
    let cq = bed.cq(End::A, 64)?;
    let spec = Spec { cq: Some(cq), ..Spec::RC };
    let (a1, a2) = (bed.queue(End::A, spec)?, bed.queue(End::A, spec)?);
    let (b1, b2) = (bed.queue(End::B, Spec::RC)?, bed.queue(End::B, Spec::RC)?);
    bed.connect(a1, b1, QpParameters::USUAL)?;
    bed.connect(a2, b2, QpParameters::USUAL)?;
    for (a, b, id) in [(a1, b1, 1), (a2, b2, 2), (a1, b1, 3)] {
        bed.recv(b, id, &[])?;
        bed.post(a, send(id, &[]))?;
        bed.received(b, id, 0)?;
    }
    bed.run_until_idle();
    bed.device(End::A).destroy_qp(a1.id)?;
    // Those of the other one stay.
    bed.sent(a2, 2)?;
    bed.nothing(End::A, cq)
}

fn ends_access(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &[1; 8])?, bed.region(End::B, 8)?);
    bed.post(a, write(1, &[from.all()], into.remote(0)))?;
    bed.sent(a, 1)?;
    bed.deregister(&into)?;
    bed.write(&into, 0, &[9; 8]);
    bed.post(a, write(2, &[from.all()], into.remote(0)))?;
    bed.send_ended(a, 2, Status::RemoteAccess)?;
    bed.run_until_idle();
    same_bytes("memory after its registration ended", &bed.read(&into, 0, 8), &[9; 8])
}

fn often(bed: &mut Bed<'_>) -> Check {
    for round in 0..50 {
        let [a, b] = bed.rc()?;
        let into = bed.region(End::B, 8)?;
        bed.recv(b, round, &[into.all()])?;
        bed.post(a, send(round, &[]))?;
        bed.sent(a, round)?;
        bed.received(b, round, 0)?;
        for queue in [a, b] {
            bed.device(queue.end).destroy_qp(queue.id)?;
            bed.device(queue.end).destroy_cq(queue.send_cq()?)?;
            bed.device(queue.end).destroy_cq(queue.recv_cq()?)?;
        }
        bed.deregister(&into)?;
    }
    let cq = bed.device(End::A).create_cq(&CqInit { depth: 1 })?;
    same("completions of a new queue", bed.take(End::A, cq)?, None)
}

fn srq_parts(bed: &mut Bed<'_>) -> Check {
    use rerail_verbs::contract::SrqInit;
    let result = bed.device(End::A).create_srq(PdId(u32::MAX), &SrqInit { depth: 4, sges: 1, xrc: None });
    refuses("a shared queue in no domain", result, "Unknown", |error| {
        *error == CreateError::Unknown { what: Kind::Pd, name: u32::MAX }
    })
}
