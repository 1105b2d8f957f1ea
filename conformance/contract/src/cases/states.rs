//! The states of a queue pair: every step that is legal is taken, every other one is refused with the reason.

use rerail_verbs::contract::{
    Access, Attr, Attrs, ModifyError, QpChange, QpKind, QpState, Sge, Status, TransitionError, demanded, optional,
};

use super::{Case, case, case_if};
use crate::bed::Bed;
use crate::bed::queue::{QpParameters, Queue, Spec, only};
use crate::bed::request::{datagram, send};
use crate::failure::{Check, refuses, same, wrong};
use crate::testbed::{End, Need};

const STEPS: &str = "IBA 10.3.1 and 11.2.5.2 (modify queue pair); ibv_modify_qp(3)";
const XRC_STEPS: &str = "IBA 10.3.1 and 11.2.5.2, annex A14 (XRC); ibv_modify_qp(3)";
const XRC: &[Need] = &[Need::Xrc];

use QpKind::{Rc, Ud, XrcInitiator, XrcTarget};

pub(super) const CASES: &[Case] = &[
    case("states/made-in-reset", "IBA 10.3.1.1; ibv_create_qp(3)", made_in_reset),
    case("states/rc-from-reset", STEPS, |bed| every_step(bed, Rc, QpState::Reset)),
    case("states/rc-from-init", STEPS, |bed| every_step(bed, Rc, QpState::Init)),
    case("states/rc-from-rtr", STEPS, |bed| every_step(bed, Rc, QpState::Rtr)),
    case("states/rc-from-rts", STEPS, |bed| every_step(bed, Rc, QpState::Rts)),
    case("states/rc-from-sqd", STEPS, |bed| every_step(bed, Rc, QpState::Sqd)),
    case("states/rc-from-error", STEPS, |bed| every_step(bed, Rc, QpState::Error)),
    case("states/ud-from-reset", STEPS, |bed| every_step(bed, Ud, QpState::Reset)),
    case("states/ud-from-init", STEPS, |bed| every_step(bed, Ud, QpState::Init)),
    case("states/ud-from-rtr", STEPS, |bed| every_step(bed, Ud, QpState::Rtr)),
    case("states/ud-from-rts", STEPS, |bed| every_step(bed, Ud, QpState::Rts)),
    case("states/ud-from-sqd", STEPS, |bed| every_step(bed, Ud, QpState::Sqd)),
    case("states/ud-from-sqe", "IBA 10.3.1.6 and 11.2.5.2; ibv_modify_qp(3)", |bed| every_step(bed, Ud, QpState::Sqe)),
    case("states/ud-from-error", STEPS, |bed| every_step(bed, Ud, QpState::Error)),
    case_if(XRC, "states/xrc-initiator-from-reset", XRC_STEPS, |bed| every_step(bed, XrcInitiator, QpState::Reset)),
    case_if(XRC, "states/xrc-initiator-from-init", XRC_STEPS, |bed| every_step(bed, XrcInitiator, QpState::Init)),
    case_if(XRC, "states/xrc-initiator-from-rtr", XRC_STEPS, |bed| every_step(bed, XrcInitiator, QpState::Rtr)),
    case_if(XRC, "states/xrc-initiator-from-rts", XRC_STEPS, |bed| every_step(bed, XrcInitiator, QpState::Rts)),
    case_if(XRC, "states/xrc-initiator-from-sqd", XRC_STEPS, |bed| every_step(bed, XrcInitiator, QpState::Sqd)),
    case_if(XRC, "states/xrc-initiator-from-error", XRC_STEPS, |bed| every_step(bed, XrcInitiator, QpState::Error)),
    case_if(XRC, "states/xrc-target-from-reset", XRC_STEPS, |bed| every_step(bed, XrcTarget, QpState::Reset)),
    case_if(XRC, "states/xrc-target-from-init", XRC_STEPS, |bed| every_step(bed, XrcTarget, QpState::Init)),
    case_if(XRC, "states/xrc-target-from-rtr", XRC_STEPS, |bed| every_step(bed, XrcTarget, QpState::Rtr)),
    case_if(XRC, "states/xrc-target-from-rts", XRC_STEPS, |bed| every_step(bed, XrcTarget, QpState::Rts)),
    case_if(XRC, "states/xrc-target-from-sqd", XRC_STEPS, |bed| every_step(bed, XrcTarget, QpState::Sqd)),
    case_if(XRC, "states/xrc-target-from-error", XRC_STEPS, |bed| every_step(bed, XrcTarget, QpState::Error)),
    case("states/rc-attributes", STEPS, |bed| every_attribute(bed, Rc)),
    case("states/ud-attributes", STEPS, |bed| every_attribute(bed, Ud)),
    case_if(XRC, "states/xrc-initiator-attributes", XRC_STEPS, |bed| every_attribute(bed, XrcInitiator)),
    case_if(XRC, "states/xrc-target-attributes", XRC_STEPS, |bed| every_attribute(bed, XrcTarget)),
    case("states/current-state-is-checked", STEPS, current_state_is_checked),
    case("states/values-out-of-range", STEPS, values_out_of_range),
    case(
        "states/query-tells-what-was-set",
        "IBA 11.2.5.3 (query queue pair); ibv_query_qp(3)",
        query_reports_attributes,
    ),
    case("states/refused-change-changes-nothing", STEPS, refused_changes_nothing),
    case("states/access-changes-in-rts", STEPS, access_changes_in_rts),
    case("states/send-error-of-datagrams", "IBA 10.3.1.6 (SQE)", send_error_of_datagrams),
    case("states/error-to-reset-and-up-again", "IBA 10.3.1.1 and 10.3.1.7", up_again),
];

fn made_in_reset(bed: &mut Bed<'_>) -> Check {
    for spec in [Spec::RC, Spec::UD] {
        let queue = bed.queue(End::A, spec)?;
        let info = bed.query(queue)?;
        same("state", info.state, QpState::Reset)?;
        same("transport", info.kind, spec.kind)?;
        if info.caps.send_depth < spec.depth || info.caps.recv_depth < spec.depth {
            return Err(wrong("depths given", format!("at least {}", spec.depth), format!("{:?}", info.caps)));
        }
        if queue.number >= 1 << 24 {
            return Err(wrong("queue pair number", "24 bits", queue.number));
        }
    }
    let (one, other) = (bed.queue(End::A, Spec::RC)?, bed.queue(End::A, Spec::RC)?);
    if one.number == other.number {
        return Err(wrong("numbers of two queue pairs of one device", "different ones", one.number));
    }
    Ok(())
}

/// A queue pair of any kind, alone, with all its attributes for a peer that is not there.
fn lone(bed: &mut Bed<'_>, kind: QpKind) -> Check<(Queue, QpChange)> {
    let domain = if kind == XrcTarget { Some(bed.domain(End::A)?) } else { None };
    let queue = bed.queue(End::A, Spec { domain, ..Spec::of(kind) })?;
    let address = bed.address(End::A, End::B, 0)?;
    let attributes = bed.attributes(queue, 0x123, address, QpParameters::USUAL);
    Ok((queue, attributes))
}

/// The same in a state.
fn lone_in(bed: &mut Bed<'_>, kind: QpKind, state: QpState) -> Check<(Queue, QpChange)> {
    let (queue, attributes) = lone(bed, kind)?;
    if state == QpState::Sqe {
        bed.raise(queue, QpState::Rts, &attributes)?;
        break_sends(bed, queue)?;
    } else {
        bed.raise(queue, state, &attributes)?;
    }
    if state == QpState::Sqd {
        bed.wait(|| "the drained send queue".into(), |bed| Ok((!bed.query(queue)?.draining).then_some(())))?;
    }
    bed.in_state(queue, state)?;
    Ok((queue, attributes))
}

/// A datagram from memory that isn't registered: its send queue pair goes to SQE.
fn break_sends(bed: &mut Bed<'_>, queue: Queue) -> Check {
    let region = bed.region(queue.end, 8)?;
    bed.deregister(&region)?;
    let handle = bed.handle(queue.end, End::B)?;
    bed.post(queue, datagram(90, &[region.all()], handle, queue))?;
    bed.send_ended(queue, 90, Status::LocalProtection)?;
    bed.comes_to(queue, QpState::Sqe)
}

/// From one state to every other.
fn every_step(bed: &mut Bed<'_>, kind: QpKind, from: QpState) -> Check {
    for to in QpState::ALL {
        let (queue, attributes) = lone_in(bed, kind, from)?;
        let step = format!("{kind:?} from {from} to {to}");
        match demanded(kind, from, to) {
            Some(demanded) => {
                let result = bed.device(End::A).modify_qp(queue.id, &only(to, demanded, &attributes));
                same(&step, result, Ok(()))?;
                bed.in_state(queue, to)?;
            }
            None => {
                let result = bed.device(End::A).modify_qp(queue.id, &QpChange::to(to));
                same(&step, result, Err(ModifyError::Transition(TransitionError::Step { kind, from, to })))?;
                bed.in_state(queue, from)?;
            }
        }
        bed.device(End::A).destroy_qp(queue.id)?;
    }
    Ok(())
}

/// For every step from a state that can be reached: without each attribute that it demands, and with each
/// that it does not allow.
fn every_attribute(bed: &mut Bed<'_>, kind: QpKind) -> Check {
    use QpState::*;
    for from in [Reset, Init, Rtr, Rts, Sqd, Error] {
        let (queue, attributes) = lone_in(bed, kind, from)?;
        for to in QpState::ALL {
            let (Some(demanded), Some(optional)) = (demanded(kind, from, to), optional(kind, from, to)) else {
                continue;
            };
            for attr in demanded.iter() {
                let attrs = Attrs::of(&[attr]);
                let change = only(to, demanded.without(attrs), &attributes);
                let error = TransitionError::Missing { from, to, attrs };
                let result = bed.device(End::A).modify_qp(queue.id, &change);
                same(format!("{kind:?} from {from} to {to} without {attr:?}"), result, Err(error.into_modify()))?;
            }
            for attr in Attr::ALL {
                // A wrong current state is another error; there is a case for it.
                if (demanded | optional).contains(attr) || attr == Attr::CurrentState {
                    continue;
                }
                let attrs = Attrs::of(&[attr]);
                let change = only(to, demanded | attrs, &attributes);
                let error = TransitionError::NotAllowed { from, to, attrs };
                let result = bed.device(End::A).modify_qp(queue.id, &change);
                same(format!("{kind:?} from {from} to {to} with {attr:?}"), result, Err(error.into_modify()))?;
            }
        }
        bed.in_state(queue, from)?;
        bed.device(End::A).destroy_qp(queue.id)?;
    }
    Ok(())
}

trait IntoModify {
    fn into_modify(self) -> ModifyError;
}

impl IntoModify for TransitionError {
    fn into_modify(self) -> ModifyError {
        ModifyError::Transition(self)
    }
}

fn current_state_is_checked(bed: &mut Bed<'_>) -> Check {
    let (queue, attributes) = lone_in(bed, Rc, QpState::Rtr)?;
    let demanded = demanded(Rc, QpState::Rtr, QpState::Rts).unwrap_or(Attrs::NONE);
    let mut change = only(QpState::Rts, demanded, &attributes);
    change.current = Some(QpState::Sqd);
    let error = TransitionError::Current { actual: QpState::Rtr, named: QpState::Sqd };
    let result = bed.device(End::A).modify_qp(queue.id, &change);
    same("a change for SQD in RTR", result, Err(error.into_modify()))?;
    change.current = Some(QpState::Rtr);
    bed.device(End::A).modify_qp(queue.id, &change)?;
    bed.in_state(queue, QpState::Rts)
}

fn values_out_of_range(bed: &mut Bed<'_>) -> Check {
    let limits = bed.limits(End::A);
    let (_, good) = lone(bed, Rc)?;
    let mut init = |what: &str, field: &'static str, attributes: QpChange| {
        try_value(bed, what, (QpState::Reset, QpState::Init), field, &good, &attributes)
    };
    init("port 0", "port", QpChange { port: Some(0), ..good })?;
    init("a port too many", "port", QpChange { port: Some(limits.ports + 1), ..good })?;
    let mut rtr = |what: &str, field: &'static str, attributes: QpChange| {
        try_value(bed, what, (QpState::Init, QpState::Rtr), field, &good, &attributes)
    };
    rtr("an MTU of 1000 bytes", "path_mtu", QpChange { path_mtu: Some(1000), ..good })?;
    rtr("an MTU of 8192 bytes", "path_mtu", QpChange { path_mtu: Some(8192), ..good })?;
    rtr("a destination of 25 bits", "destination", QpChange { destination: Some(1 << 24), ..good })?;
    rtr("a receive PSN of 25 bits", "recv_psn", QpChange { recv_psn: Some(1 << 24), ..good })?;
    rtr("RNR timer 32", "rnr_timer", QpChange { rnr_timer: Some(32), ..good })?;
    if let Some(over) = limits.reads_served.checked_add(1) {
        rtr("serving more reads than the device can", "reads_served", QpChange { reads_served: Some(over), ..good })?;
    }
    let mut rts = |what: &str, field: &'static str, attributes: QpChange| {
        try_value(bed, what, (QpState::Rtr, QpState::Rts), field, &good, &attributes)
    };
    rts("timeout 32", "timeout", QpChange { timeout: Some(32), ..good })?;
    rts("8 retries", "retry_count", QpChange { retry_count: Some(8), ..good })?;
    rts("8 RNR retries", "rnr_retry", QpChange { rnr_retry: Some(8), ..good })?;
    rts("a send PSN of 25 bits", "send_psn", QpChange { send_psn: Some(1 << 24), ..good })?;
    if let Some(over) = limits.reads_open.checked_add(1) {
        rts("more open reads than the device can", "reads_open", QpChange { reads_open: Some(over), ..good })?;
    }
    Ok(())
}

fn try_value(
    bed: &mut Bed<'_>,
    what: &str,
    (from, to): (QpState, QpState),
    field: &'static str,
    good: &QpChange,
    bad: &QpChange,
) -> Check {
    let queue = bed.queue(End::A, Spec::RC)?;
    bed.raise(queue, from, good)?;
    let demanded = demanded(Rc, from, to).unwrap_or(Attrs::NONE);
    let result = bed.device(End::A).modify_qp(queue.id, &only(to, demanded, bad));
    refuses(
        what,
        result,
        &format!("OutOfRange of {field}"),
        |error| matches!(error, ModifyError::OutOfRange { field: queried, .. } if *queried == field),
    )?;
    bed.in_state(queue, from)?;
    Ok(bed.device(End::A).destroy_qp(queue.id)?)
}

fn query_reports_attributes(bed: &mut Bed<'_>) -> Check {
    let (queue, set) = lone_in(bed, Rc, QpState::Rts)?;
    let queried = bed.query(queue)?.attributes;
    same("port", queried.port, set.port)?;
    same("address", queried.address.map(|address| address.dlid), set.address.map(|address| address.dlid))?;
    same("path MTU", queried.path_mtu, set.path_mtu)?;
    same("destination", queried.destination, set.destination)?;
    same("send PSN", queried.send_psn, set.send_psn)?;
    same("receive PSN", queried.recv_psn, set.recv_psn)?;
    same("timeout", queried.timeout, set.timeout)?;
    same("retries", queried.retry_count, set.retry_count)?;
    same("RNR retries", queried.rnr_retry, set.rnr_retry)?;
    same("RNR timer", queried.rnr_timer, set.rnr_timer)?;
    same("reads open", queried.reads_open, set.reads_open)?;
    same("reads served", queried.reads_served, set.reads_served)?;
    let rights = |access: Option<Access>| access.map(|it| (it.remote_write, it.remote_read, it.remote_atomic));
    same("remote rights", rights(queried.access), rights(set.access))
}

fn refused_changes_nothing(bed: &mut Bed<'_>) -> Check {
    let (queue, attributes) = lone_in(bed, Rc, QpState::Init)?;
    let before = bed.query(queue)?;
    let change = QpChange { qkey: Some(5), access: Some(Access::LOCAL), ..QpChange::to(QpState::Init) };
    let result = bed.device(End::A).modify_qp(queue.id, &change);
    refuses("a Q_Key for RC", result, "a refusal", |error| matches!(error, ModifyError::Transition(_)))?;
    same("the queue pair after a refused change", bed.query(queue)?, before)?;
    bed.step(queue, QpState::Init, QpState::Rtr, &attributes)
}

fn access_changes_in_rts(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, to) = (bed.filled(End::A, &[7; 16])?, bed.region(End::B, 16)?);
    bed.post(a, crate::bed::request::write(1, &[from.all()], to.remote(0)))?;
    bed.sent(a, 1)?;
    let change = QpChange { access: Some(Access::LOCAL), ..QpChange::to(QpState::Rts) };
    bed.device(End::B).modify_qp(b.id, &change)?;
    bed.post(a, crate::bed::request::write(2, &[from.all()], to.remote(0)))?;
    let ended = bed.next(End::A, a.send_cq()?)?;
    crate::failure::one_of(
        "a write that is not allowed any more",
        ended.status,
        &[Status::RemoteAccess, Status::RemoteInvalid],
    )
}

fn send_error_of_datagrams(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.ud(End::A, Spec::UD)?, bed.ud(End::B, Spec::UD)?);
    let (to_a, to_b) = (bed.handle(End::B, End::A)?, bed.handle(End::A, End::B)?);
    let (from, into) = (bed.filled(End::B, &[3; 8])?, bed.region(End::A, 64)?);
    let own = bed.filled(End::A, &[4; 8])?;
    bed.recvs(a, 1..3, &into)?;
    break_sends(bed, a)?;
    // Sends are flushed; receives go on.
    bed.post(a, datagram(2, &[own.all()], to_b, b))?;
    bed.send_ended(a, 2, Status::Flushed)?;
    bed.post(b, datagram(3, &[from.all()], to_a, a))?;
    bed.sent(b, 3)?;
    bed.received(a, 1, 48)?;
    // And back.
    bed.device(End::A).modify_qp(a.id, &QpChange::to(QpState::Rts))?;
    let far = bed.region(End::B, 64)?;
    bed.recv(b, 4, &[far.all()])?;
    bed.post(a, datagram(5, &[own.all()], to_b, b))?;
    bed.sent(a, 5)?;
    bed.received(b, 4, 48)?;
    Ok(())
}

fn up_again(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &[1, 2, 3, 4])?, bed.region(End::B, 4)?);
    for round in 0..2 {
        bed.recv(b, round, &[into.all()])?;
        bed.post(a, send(round, &[from.all()]))?;
        bed.sent(a, round)?;
        bed.received(b, round, 4)?;
        for queue in [a, b] {
            bed.fail(queue)?;
            bed.device(queue.end).modify_qp(queue.id, &QpChange::to(QpState::Reset))?;
        }
        bed.connect(a, b, QpParameters { psn: 5000, ..QpParameters::USUAL })?;
    }
    // Nothing of the past is left in the queues.
    bed.no_more_sent(a)?;
    bed.no_more_received(b)?;
    // A receive of nothing keeps no memory: the queue starts empty after RESET.
    bed.recv(b, 9, &[] as &[Sge])?;
    bed.post(a, send(9, &[]))?;
    bed.sent(a, 9)?;
    bed.received(b, 9, 0).map(drop)
}
