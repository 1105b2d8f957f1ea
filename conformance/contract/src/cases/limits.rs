//! Limits: what a device promises it keeps, and what goes beyond is refused.

use rerail_verbs::Moderation;
use rerail_verbs::contract::{
    AsyncEvent, CqInit, CreateError, Kind, ModifyError, PollError, PostReason, QpCaps, QpInit, QpState, SrqInit, Status,
};

use super::{Case, case, case_if};
use crate::bed::Bed;
use crate::bed::queue::{QpParameters, Spec};
use crate::bed::request::send;
use crate::failure::{Check, Failure, refuses, same, wrong};
use crate::testbed::{End, Need};

pub(super) const CASES: &[Case] = &[
    case("limits/make-sense", "IBA 11.2.1.2 (query HCA); ibv_query_device(3)", make_sense),
    case("limits/send-queue-full", "IBA 11.4.1.1 (too many requests posted); ibv_post_send(3)", send_queue_full),
    case("limits/receive-queue-full", "IBA 11.4.1.2 (too many requests posted); ibv_post_recv(3)", receive_queue_full),
    case("limits/send-pieces", "IBA 11.4.1.1 (invalid scatter/gather list length); ibv_post_send(3)", send_pieces),
    case("limits/receive-pieces", "IBA 11.4.1.2 (invalid scatter/gather list length); ibv_post_recv(3)", recv_pieces),
    case("limits/cq-holds-what-it-promised", "IBA chapter 10 (completion queues); ibv_create_cq(3)", cq_holds),
    case("limits/cq-overflow", "IBA 11.6.3 and chapter 10 (CQ error); ibv_get_async_event(3)", cq_overflow),
    case("limits/cq-depth", "IBA chapter 11 (create completion queue); ibv_create_cq(3)", cq_depth),
    case("limits/queue-pair-sizes", "IBA 11.2.5.1 (create queue pair); ibv_create_qp(3)", queue_pair_sizes),
    case_if(
        &[Need::Srq],
        "limits/srq-sizes",
        "IBA chapter 11 (create shared receive queue); ibv_create_srq(3)",
        srq_sizes,
    ),
    case("limits/largest-queue", "IBA 11.2.5.1; ibv_query_device(3) (max_qp_wr)", largest_queue),
    case("limits/moderation", "ibv_modify_cq(3); ibv_query_device_ex(3) (cq_mod_caps)", moderation),
    case("limits/message-of-a-megabyte", "IBA 9.7 and 11.4.1.1 (message length); ibv_query_port(3)", a_megabyte),
];

fn make_sense(bed: &mut Bed<'_>) -> Check {
    for end in [End::A, End::B] {
        let limits = bed.limits(end);
        for (what, value) in [
            ("ports", u64::from(limits.ports)),
            ("queue pairs", limits.qps.into()),
            ("queue depth", limits.queue_depth.into()),
            ("pieces of memory", limits.sges.into()),
            ("completion queues", limits.cqs.into()),
            ("completion queue depth", limits.cq_depth.into()),
            ("memory registrations", limits.mrs.into()),
            ("bytes of a registration", limits.mr_bytes),
            ("protection domains", limits.pds.into()),
        ] {
            if value == 0 {
                return Err(wrong(format!("number of {what} at {end:?}"), "at least 1", 0));
            }
        }
        if limits.srqs > 0 && limits.srq_depth == 0 {
            return Err(wrong("depth of shared receive queues", "at least 1", 0));
        }
        let port = bed.port(end);
        same("port number", bed.device(end).port(port)?.number, port)?;
    }
    Ok(())
}

fn send_queue_full(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec { depth: 8, ..Spec::RC }, QpParameters::USUAL)?;
    let depth = bed.query(a)?.caps.send_depth;
    // No receive is posted, so no send gets through.
    for id in 0..8 {
        bed.post(a, send(id, &[]))?;
    }
    let mut id = 8;
    let error = loop {
        match bed.try_post(a, &[send(id, &[])]) {
            Ok(()) if id < u64::from(depth) => id += 1,
            Ok(()) => return Err(wrong("posted sends", format!("{depth} at most"), id + 1)),
            Err(error) => break error,
        }
    };
    same("reason", error.why, PostReason::Full { depth })?;
    same("sends taken", id, u64::from(depth))?;
    for got in 0..id {
        bed.recv(b, got, &[])?;
        bed.sent(a, got)?;
        // Taken, so that the receiver's queue has room too.
        bed.received(b, got, 0)?;
    }
    bed.recv(b, 99, &[])?;
    bed.post(a, send(99, &[]))?;
    bed.sent(a, 99).map(drop)
}

fn receive_queue_full(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec { depth: 8, ..Spec::RC }, QpParameters::USUAL)?;
    let depth = bed.query(b)?.caps.recv_depth;
    for id in 0..u64::from(depth) {
        bed.recv(b, id, &[])?;
    }
    refuses("one receive too many", bed.try_recv(b, 999, &[]), "Full", |error| {
        error.index == 0 && error.why == PostReason::Full { depth }
    })?;
    // A receive that is used makes room.
    bed.post(a, send(1, &[]))?;
    bed.received(b, 0, 0)?;
    bed.recv(b, 1000, &[])
}

fn send_pieces(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let max = bed.query(a)?.caps.send_sges;
    let (from, into) = (bed.region(End::A, 8)?, bed.region(End::B, 4096)?);
    let list = vec![from.part(0, 1); max as usize + 1];
    refuses("a piece too many", bed.try_post(a, &[send(1, &list)]), "Sges", |error| {
        error.why == PostReason::Sges { given: max as usize + 1, max }
    })?;
    bed.recv(b, 2, &[into.all()])?;
    bed.post(a, send(2, &list[1..]))?;
    bed.sent(a, 2)?;
    bed.received(b, 2, max as usize).map(drop)
}

fn recv_pieces(bed: &mut Bed<'_>) -> Check {
    let [_, b] = bed.rc()?;
    let max = bed.query(b)?.caps.recv_sges;
    let into = bed.region(End::B, 8)?;
    let list = vec![into.part(0, 1); max as usize + 1];
    refuses("a piece too many", bed.try_recv(b, 1, &list), "Sges", |error| {
        error.why == PostReason::Sges { given: max as usize + 1, max }
    })?;
    bed.recv(b, 2, &list[1..])
}

fn cq_holds(bed: &mut Bed<'_>) -> Check {
    let cq = bed.cq(End::A, 16)?;
    let a = bed.queue(End::A, Spec { cq: Some(cq), ..Spec::RC })?;
    let b = bed.queue(End::B, Spec::RC)?;
    bed.connect(a, b, QpParameters::USUAL)?;
    for id in 0..16 {
        bed.recv(b, id, &[])?;
        bed.post(a, send(id, &[]))?;
    }
    bed.run_until_idle();
    (0..16).try_for_each(|id| bed.sent(a, id).map(drop))?;
    bed.no_event(End::A, AsyncEvent::CqError(cq))
}

fn cq_overflow(bed: &mut Bed<'_>) -> Check {
    let cq = bed.cq(End::A, 1)?;
    // Devices round the depth up; so it is overrun by far.
    let depth = 512.min(bed.limits(End::A).queue_depth).min(bed.limits(End::B).queue_depth);
    let a = bed.queue(End::A, Spec { cq: Some(cq), depth, ..Spec::RC })?;
    let deep = bed.limits(End::B).cq_depth.min(1024);
    let far = bed.cq(End::B, deep)?;
    let b = bed.queue(End::B, Spec { cq: Some(far), depth, ..Spec::RC })?;
    bed.connect(a, b, QpParameters::USUAL)?;
    for id in 0..u64::from(depth) {
        bed.recv(b, id, &[])?;
        bed.post(a, send(id, &[]))?;
    }
    // The queue is broken: it reports that itself, or by an event.
    bed.event(End::A, AsyncEvent::CqError(cq))?;
    let mut out = Vec::new();
    match bed.device(End::A).poll_cq(cq, 1024, &mut out) {
        Err(PollError::Overflow) => Ok(()),
        Ok(_) if out.len() < depth as usize => Ok(()),
        came => Err(wrong("an overrun completion queue", "Overflow or lost completions", format!("{came:?}"))),
    }
}

fn cq_depth(bed: &mut Bed<'_>) -> Check {
    let most = bed.limits(End::A).cq_depth;
    let out_of_range = |error: &CreateError| matches!(error, CreateError::OutOfRange { what: Kind::Depth, .. });
    let result = bed.device(End::A).create_cq(&CqInit { depth: 0 });
    refuses("a completion queue of depth 0", result, "OutOfRange", out_of_range)?;
    if let Some(depth) = most.checked_add(1) {
        let result = bed.device(End::A).create_cq(&CqInit { depth });
        refuses("a completion queue over the limit", result, "OutOfRange", out_of_range)?;
    }
    Ok(())
}

fn queue_pair_sizes(bed: &mut Bed<'_>) -> Check {
    let limits = bed.limits(End::A);
    let good = bed.init(End::A, Spec::RC)?;
    let sizes = |caps: QpCaps| QpInit { caps, ..good };
    for (what, kind, init) in [
        ("send queue", Kind::Depth, sizes(QpCaps { send_depth: over(limits.queue_depth), ..good.caps })),
        ("receive queue", Kind::Depth, sizes(QpCaps { recv_depth: over(limits.queue_depth), ..good.caps })),
        ("pieces of a send", Kind::Sges, sizes(QpCaps { send_sges: over(limits.sges), ..good.caps })),
        ("pieces of a receive", Kind::Sges, sizes(QpCaps { recv_sges: over(limits.sges), ..good.caps })),
        ("inline bytes", Kind::InlineBytes, sizes(QpCaps { inline_bytes: over(limits.inline_bytes), ..good.caps })),
    ] {
        let result = bed.device(End::A).create_qp(&init);
        refuses(
            format!("{what} over the limit"),
            result,
            &format!("OutOfRange of {kind}"),
            |error| matches!(error, CreateError::OutOfRange { what: reported, .. } if *reported == kind),
        )?;
    }
    bed.device(End::A).create_qp(&good)?;
    Ok(())
}

fn over(limit: u32) -> u32 {
    limit.saturating_add(1)
}

fn srq_sizes(bed: &mut Bed<'_>) -> Check {
    let (limits, pd) = (bed.limits(End::A), bed.pd(End::A)?);
    let good = SrqInit { depth: 8, sges: 1, xrc: None };
    for (what, kind, init) in [
        ("depth", Kind::Depth, SrqInit { depth: over(limits.srq_depth), ..good }),
        ("depth 0", Kind::Depth, SrqInit { depth: 0, ..good }),
        ("pieces", Kind::Sges, SrqInit { sges: over(limits.sges), ..good }),
    ] {
        let result = bed.device(End::A).create_srq(pd, &init);
        refuses(
            format!("{what} out of range"),
            result,
            &format!("OutOfRange of {kind}"),
            |error| matches!(error, CreateError::OutOfRange { what: reported, .. } if *reported == kind),
        )?;
    }
    Ok(())
}

fn largest_queue(bed: &mut Bed<'_>) -> Check {
    // The promise is for queues of one piece; memory of the host may still be short for very deep ones.
    let limits = bed.limits(End::A);
    let depth = limits.queue_depth.min(limits.cq_depth).min(4096);
    let cq = bed.cq(End::A, depth)?;
    let spec = Spec { depth, cq: Some(cq), ..Spec::RC };
    let queue = bed.queue(End::A, spec)?;
    let attributes = bed.attributes_to(queue, queue, QpParameters::USUAL)?;
    bed.raise(queue, QpState::Init, &attributes)?;
    for id in 0..u64::from(spec.depth) {
        bed.recv(queue, id, &[])?;
    }
    bed.fail(queue)?;
    for id in 0..u64::from(spec.depth) {
        bed.ended(End::A, cq, id, Status::Flushed)?;
    }
    Ok(())
}

fn a_megabyte(bed: &mut Bed<'_>) -> Check {
    let len = 1 << 20;
    for end in [End::A, End::B] {
        let port = bed.port(end);
        if bed.device(end).port(port)?.message_bytes_max < len as u32 {
            return Err(Failure::Unsupported(Need::Other("messages of a megabyte")));
        }
    }
    let [a, b] = bed.rc()?;
    let bytes = crate::bed::pattern(1, len);
    let (from, into) = (bed.filled(End::A, &bytes)?, bed.region(End::B, len)?);
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, send(2, &[from.all()]))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, len)?;
    crate::failure::same_bytes("message", &bed.read(&into, 0, len), &bytes)
}

/// What is offered is taken, what is more is refused by name; to put nothing off is always taken.
fn moderation(bed: &mut Bed<'_>) -> Check {
    let cq = bed.cq(End::A, 8)?;
    let most = bed.device(End::A).offers().moderation.unwrap_or_default();
    for moderation in [most, Moderation::NONE] {
        bed.device(End::A).moderate_cq(cq, moderation)?;
    }
    let more = |value: u16| value.checked_add(1);
    for (named, beyond) in [
        ("count", more(most.count).map(|count| Moderation { count, ..most })),
        ("period_us", more(most.period_us).map(|period_us| Moderation { period_us, ..most })),
    ] {
        let Some(beyond) = beyond else { continue };
        let result = bed.device(End::A).moderate_cq(cq, beyond);
        refuses(
            format!("{beyond:?}"),
            result,
            "OutOfRange",
            |error| matches!(error, ModifyError::OutOfRange { field, min: 0, .. } if *field == named),
        )?;
    }
    bed.device(End::A).destroy_cq(cq)?;
    let result = bed.device(End::A).moderate_cq(cq, Moderation::NONE);
    refuses("a queue that is gone", result, "Unknown", |error| {
        matches!(error, ModifyError::Unknown { what: Kind::Cq, .. })
    })
}
