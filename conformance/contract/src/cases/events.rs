//! Asynchronous events, most of them after faults.

use rerail_verbs::PortState;
use rerail_verbs::contract::{AsyncEvent, CreateError, Status};

use super::{Case, case, case_if};
use crate::bed::Bed;
use crate::bed::queue::{QpParameters, Spec};
use crate::bed::request::send;
use crate::failure::{Check, refuses, same, wrong};
use crate::testbed::{End, Fault, Need};

const RULE: &str = "IBA 11.6.3 (asynchronous events); ibv_get_async_event(3)";
const LINK: &[Need] = &[Need::Fault(Fault::LinkDown)];

pub(super) const CASES: &[Case] = &[
    case("events/none-when-all-is-well", RULE, none),
    case_if(LINK, "events/port-error-and-active", RULE, port_error_and_active),
    case_if(LINK, "events/link-down-ends-retries", "IBA 9.7.6.1.3 and 11.6.2; ibv_poll_cq(3)", link_down),
    case_if(LINK, "events/short-link-down-is-survived", "IBA 9.7.6.1.3; ibv_modify_qp(3)", short_link_down),
    case_if(&[Need::Lids, Need::Fault(Fault::ChangeLid)], "events/lid-change", RULE, lid_change),
    case_if(&[Need::Fault(Fault::ChangeGid)], "events/gid-change", RULE, gid_change),
    case_if(&[Need::Fault(Fault::DeviceFatal)], "events/device-fatal", RULE, device_fatal),
    case_if(&[Need::Fault(Fault::DeviceFatal)], "events/peer-of-a-dead-device", "IBA 9.7.6.1.3 and 11.6.2", dead_peer),
];

fn none(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    bed.recv(b, 1, &[])?;
    bed.post(a, send(2, &[]))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, 0)?;
    bed.device(End::A).destroy_qp(a.id)?;
    bed.device(End::B).destroy_qp(b.id)?;
    bed.run_until_idle();
    for (end, queue) in [(End::A, a), (End::B, b)] {
        for event in [
            AsyncEvent::QpFatal(queue.id),
            AsyncEvent::QpRequestError(queue.id),
            AsyncEvent::QpAccessError(queue.id),
            AsyncEvent::QpLastWqe(queue.id),
            AsyncEvent::DeviceFatal,
        ] {
            bed.no_event(end, event)?;
        }
    }
    Ok(())
}

fn state(bed: &mut Bed<'_>, end: End) -> Check<PortState> {
    let port = bed.port(end);
    Ok(bed.device(end).port(port)?.state)
}

fn port_error_and_active(bed: &mut Bed<'_>) -> Check {
    let port = bed.port(End::A);
    same("port before", state(bed, End::A)?, PortState::Active)?;
    bed.inject(End::A, Fault::LinkDown)?;
    bed.event(End::A, AsyncEvent::PortError(port))?;
    let down = state(bed, End::A)?;
    if down == PortState::Active {
        return Err(wrong("port with its link down", "not active", down));
    }
    bed.inject(End::A, Fault::LinkUp)?;
    bed.event(End::A, AsyncEvent::PortActive(port))?;
    same("port after", state(bed, End::A)?, PortState::Active)
}

fn link_down(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters::SHORT_TIMEOUT)?;
    bed.recv(b, 1, &[])?;
    bed.inject(End::A, Fault::LinkDown)?;
    bed.post(a, send(2, &[]))?;
    bed.send_ended(a, 2, Status::RetryExceeded)?;
    bed.no_more_received(b)
}

fn short_link_down(bed: &mut Bed<'_>) -> Check {
    // Eight waits of a second at least: `run_until_idle` takes less.
    let [a, b] = bed.rc_with(Spec::RC, QpParameters { timeout: 18, ..QpParameters::USUAL })?;
    bed.recv(b, 1, &[])?;
    bed.inject(End::A, Fault::LinkDown)?;
    bed.post(a, send(2, &[]))?;
    bed.run_until_idle();
    bed.inject(End::A, Fault::LinkUp)?;
    bed.sent(a, 2)?;
    bed.received(b, 1, 0)?;
    bed.no_more_received(b)
}

fn lid_change(bed: &mut Bed<'_>) -> Check {
    let port = bed.port(End::A);
    let before = bed.device(End::A).port(port)?.lid;
    bed.inject(End::A, Fault::ChangeLid)?;
    bed.event(End::A, AsyncEvent::LidChange(port))?;
    let after = bed.device(End::A).port(port)?.lid;
    if after == before {
        return Err(wrong("LID after the change", "another one", after));
    }
    // New connections by the new LID work.
    let [a, b] = bed.rc()?;
    bed.recv(a, 1, &[])?;
    bed.post(b, send(2, &[]))?;
    bed.sent(b, 2)?;
    bed.received(a, 1, 0).map(drop)
}

fn gid_change(bed: &mut Bed<'_>) -> Check {
    let port = bed.port(End::A);
    let len = bed.device(End::A).port(port)?.gid_table_len.min(255) as u8;
    let table = |bed: &mut Bed<'_>| (0..len).map(|at| Ok(bed.device(End::A).gid(port, at)?)).collect::<Check<Vec<_>>>();
    let before = table(bed)?;
    bed.inject(End::A, Fault::ChangeGid)?;
    bed.event(End::A, AsyncEvent::GidChange(port))?;
    if table(bed)? == before {
        return Err(wrong("GID table after the change", "another one", "the same"));
    }
    Ok(())
}

fn device_fatal(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    bed.inject(End::A, Fault::DeviceFatal)?;
    bed.event(End::A, AsyncEvent::DeviceFatal)?;
    let result = bed.device(End::A).alloc_pd();
    refuses("a protection domain of a dead device", result, "DeviceGone", |error| *error == CreateError::DeviceGone)?;
    refuses("a send of a dead device", bed.try_post(a, &[send(1, &[])]), "DeviceGone", |error| {
        error.why == rerail_verbs::contract::PostReason::DeviceGone
    })
}

fn dead_peer(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc_with(Spec::RC, QpParameters::SHORT_TIMEOUT)?;
    bed.inject(End::B, Fault::DeviceFatal)?;
    bed.post(a, send(1, &[]))?;
    bed.send_ended(a, 1, Status::RetryExceeded).map(drop)
}
