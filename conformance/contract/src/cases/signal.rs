//! Which completions are made, what inline means, and which side is notified.

use rerail_verbs::Moderation;
use rerail_verbs::contract::{PostReason, SendWr, Status};

use super::{Case, case, case_if};
use crate::bed::Bed;
use crate::bed::queue::{QpParameters, Spec};
use crate::bed::request::{send, send_inline, unsignaled, write};
use crate::failure::{Check, refuses, same_bytes};
use crate::testbed::{End, Need};

const NOTIFY: &str = "IBA 11.4.2.2 (request completion notification); ibv_req_notify_cq(3)";
const MODERATE: &str = "ibv_modify_cq(3) (IBV_CQ_ATTR_MODERATE)";
const INLINE: &str = "ibv_post_send(3) (IBV_SEND_INLINE)";

pub(super) const CASES: &[Case] = &[
    case("signal/unsignaled-makes-no-completion", "IBA 10.8.6; ibv_post_send(3)", unsignaled_makes_none),
    case("signal/all-makes-every-completion", "IBA 10.8.6; ibv_create_qp(3) (sq_sig_all)", signal_all),
    case("signal/failure-always-tells", "IBA 10.8.6; ibv_post_send(3)", failure_is_reported),
    case("signal/unsignaled-gives-room-back", "IBA 10.8.5 and 10.8.6; ibv_post_send(3)", gives_room_back),
    case("signal/receives-always-complete", "IBA 10.8.6; ibv_poll_cq(3)", receives_complete),
    case_if(&[Need::Inline], "signal/inline-copies-at-once", INLINE, inline_copies),
    case_if(&[Need::Inline, Need::Gather], "signal/inline-in-pieces", INLINE, inline_in_pieces),
    case_if(&[Need::Inline], "signal/inline-write", INLINE, inline_write),
    case_if(&[Need::Inline], "signal/inline-too-long", INLINE, inline_too_long),
    case("signal/notify-at-the-next", NOTIFY, notify_at_the_next),
    case("signal/notify-once", NOTIFY, notify_once),
    case("signal/no-notice-unasked", NOTIFY, no_unrequested_notice),
    case("signal/solicited-only", NOTIFY, solicited_only),
    case("signal/failure-is-solicited", NOTIFY, failure_is_solicited),
    case("signal/notify-next-includes-solicited", NOTIFY, next_includes_solicited),
    case_if(&[Need::Moderation], "signal/moderated-polls-at-once", MODERATE, moderated_polls),
    case_if(&[Need::Moderation], "signal/moderated-notice-comes", MODERATE, moderated_notice),
];

fn unsignaled_makes_none(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    for id in 1..4 {
        bed.recv(b, id, &[])?;
    }
    bed.post(a, unsignaled(send(1, &[])))?;
    bed.post(a, unsignaled(send(2, &[])))?;
    bed.post(a, send(3, &[]))?;
    bed.sent(a, 3)?;
    for id in 1..4 {
        bed.received(b, id, 0)?;
    }
    bed.no_more_sent(a)
}

fn signal_all(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec { signal_all: true, ..Spec::RC }, QpParameters::USUAL)?;
    for id in 1..4 {
        bed.recv(b, id, &[])?;
        bed.post(a, unsignaled(send(id, &[])))?;
    }
    (1..4).try_for_each(|id| bed.sent(a, id).map(drop))
}

fn failure_is_reported(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (from, into) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    let beyond = into.remote(into.len);
    bed.post(a, unsignaled(write(1, &[from.all()], beyond)))?;
    bed.send_ended(a, 1, Status::RemoteAccess).map(drop)
}

fn gives_room_back(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec { depth: 4, ..Spec::RC }, QpParameters::USUAL)?;
    for round in 0..10 {
        for id in 0..4 {
            bed.recv(b, id, &[])?;
        }
        for id in 0..3 {
            bed.post(a, unsignaled(send(round, &[])))?;
            bed.received(b, id, 0)?;
        }
        // With the completion of the fourth, the place of all four is free.
        bed.post(a, send(100 + round, &[]))?;
        bed.sent(a, 100 + round)?;
        bed.received(b, 3, 0)?;
    }
    Ok(())
}

fn receives_complete(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    bed.recv(b, 1, &[])?;
    bed.post(a, unsignaled(send(1, &[])))?;
    bed.received(b, 1, 0).map(drop)
}

fn inline_spec() -> Spec {
    Spec { inline_bytes: 16, ..Spec::RC }
}

fn inline_copies(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(inline_spec(), QpParameters::USUAL)?;
    let into = bed.region(End::B, 16)?;
    let mut bytes = *b"sixteen bytes!!!";
    // No receive is there yet, so the data must be kept although the caller's are gone.
    bed.post(a, send_inline(1, &[&bytes]))?;
    bytes.fill(0);
    bed.run_until_idle();
    bed.recv(b, 2, &[into.all()])?;
    bed.sent(a, 1)?;
    bed.received(b, 2, 16)?;
    same_bytes("message", &bed.read(&into, 0, 16), b"sixteen bytes!!!")
}

fn inline_in_pieces(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec { sges: 2, ..inline_spec() }, QpParameters::USUAL)?;
    let into = bed.region(End::B, 16)?;
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, send_inline(2, &[b"two ", b"pieces"]))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, 10)?;
    same_bytes("message", &bed.read(&into, 0, 10), b"two pieces")
}

fn inline_write(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc_with(inline_spec(), QpParameters::USUAL)?;
    let into = bed.region(End::B, 16)?;
    let request = send_inline(1, &[b"written"]);
    let op = write(0, &[], into.remote(3)).op;
    bed.post(a, SendWr { op, ..request })?;
    bed.sent(a, 1)?;
    same_bytes("memory", &bed.read(&into, 3, 7), b"written")
}

fn inline_too_long(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(inline_spec(), QpParameters::USUAL)?;
    let max = bed.query(a)?.caps.inline_bytes;
    let bytes = vec![1; max as usize + 1];
    let result = bed.try_post(a, &[send_inline(1, &[&bytes])]);
    refuses("one inline byte too many", result, "index 0: Inline", |error| {
        error.index == 0 && error.why == PostReason::Inline { bytes: bytes.len(), max }
    })?;
    // The queue pair takes all that it reports as its maximum.
    let into = bed.region(End::B, max as usize)?;
    bed.recv(b, 2, &[into.all()])?;
    bed.post(a, send_inline(2, &[&bytes[1..]]))?;
    bed.sent(a, 2)?;
    bed.received(b, 2, max as usize).map(drop)
}

fn notify_at_the_next(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let cq = b.recv_cq()?;
    bed.recv(b, 1, &[])?;
    bed.device(End::B).request_notify(cq, false)?;
    bed.not_notified(End::B)?;
    bed.post(a, send(1, &[]))?;
    bed.notified(End::B, cq)?;
    bed.received(b, 1, 0).map(drop)
}

fn notify_once(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let cq = b.recv_cq()?;
    for id in 1..4 {
        bed.recv(b, id, &[])?;
    }
    bed.device(End::B).request_notify(cq, false)?;
    bed.post(a, send(1, &[]))?;
    bed.notified(End::B, cq)?;
    bed.received(b, 1, 0)?;
    bed.post(a, send(2, &[]))?;
    bed.received(b, 2, 0)?;
    bed.not_notified(End::B)?;
    // Armed again, it notifies again.
    bed.device(End::B).request_notify(cq, false)?;
    bed.post(a, send(3, &[]))?;
    bed.notified(End::B, cq)
}

fn no_unrequested_notice(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    bed.recv(b, 1, &[])?;
    bed.post(a, send(1, &[]))?;
    bed.sent(a, 1)?;
    bed.received(b, 1, 0)?;
    bed.not_notified(End::A)?;
    bed.not_notified(End::B)
}

fn solicited_only(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let cq = b.recv_cq()?;
    bed.recv(b, 1, &[])?;
    bed.recv(b, 2, &[])?;
    bed.device(End::B).request_notify(cq, true)?;
    bed.post(a, send(1, &[]))?;
    bed.received(b, 1, 0)?;
    bed.not_notified(End::B)?;
    bed.post(a, SendWr { solicited: true, ..send(2, &[]) })?;
    bed.notified(End::B, cq)?;
    bed.received(b, 2, 0).map(drop)
}

fn failure_is_solicited(bed: &mut Bed<'_>) -> Check {
    let [_, b] = bed.rc()?;
    let cq = b.recv_cq()?;
    bed.recv(b, 1, &[])?;
    bed.device(End::B).request_notify(cq, true)?;
    bed.fail(b)?;
    bed.notified(End::B, cq)?;
    bed.recv_ended(b, 1, Status::Flushed).map(drop)
}

fn next_includes_solicited(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let cq = b.recv_cq()?;
    bed.recv(b, 1, &[])?;
    // A later request for solicited ones alone takes nothing back.
    bed.device(End::B).request_notify(cq, false)?;
    bed.device(End::B).request_notify(cq, true)?;
    bed.post(a, send(1, &[]))?;
    bed.notified(End::B, cq)
}

/// Events are put off, completions are not.
fn moderated_polls(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let cq = b.recv_cq()?;
    let most = bed.device(End::B).offers().moderation.unwrap_or_default();
    bed.device(End::B).moderate_cq(cq, most)?;
    for id in 1..4 {
        bed.recv(b, id, &[])?;
        bed.post(a, send(id, &[]))?;
        bed.received(b, id, 0)?;
    }
    bed.not_notified(End::B)
}

/// Fewer completions than are waited for: the event comes after the period. As many: it comes. Then it is as
/// at first.
fn moderated_notice(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let cq = b.recv_cq()?;
    let mut next = 0;
    for (moderation, sends) in
        [(Moderation { count: 2, period_us: 1 }, 1), (Moderation { count: 2, period_us: 1 }, 2), (Moderation::NONE, 1)]
    {
        bed.device(End::B).moderate_cq(cq, moderation)?;
        bed.device(End::B).request_notify(cq, false)?;
        bed.not_notified(End::B)?;
        for id in next..next + sends {
            bed.recv(b, id, &[])?;
            bed.post(a, send(id, &[]))?;
        }
        bed.notified(End::B, cq)?;
        for id in next..next + sends {
            bed.received(b, id, 0)?;
        }
        next += sends;
        bed.not_notified(End::B)?;
    }
    Ok(())
}
