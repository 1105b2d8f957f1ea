//! Protection: which process may touch which memory, and where the error shows.
//!
//! Errors of the peer's memory end the request with an error at the sender, both queue pairs go to ERR, and
//! at the peer, where no request of its own is to blame, an asynchronous event is raised (IBA 9.9.3, 10.6 and
//! 11.6.3).

use rerail_verbs::contract::{
    Access, AsyncEvent, DestroyError, Kind, PdId, QpState, RegisterError, Remote, SendWr, Status,
};

use super::{Case, case, case_if};
use crate::bed::queue::{QpParameters, Queue, Spec};
use crate::bed::request::{compare_swap, fetch_add, read, send, write};
use crate::bed::{Bed, Region, forged};
use crate::failure::{Check, one_of, refuses, same, same_bytes};
use crate::testbed::{End, Fault, Need};

const LOCAL: &str = "IBA 10.6 (memory management) and 11.6.2 (local protection error); ibv_poll_cq(3)";
const REMOTE: &str = "IBA 9.9.3 (responder errors) and 10.6; ibv_poll_cq(3), ibv_get_async_event(3)";
const RIGHTS: &str = "IBA 9.9.3 (responder errors) and 10.6.3.1; ibv_reg_mr(3)";
const ON_DEMAND: &str = "ibv_reg_mr(3) (IBV_ACCESS_ON_DEMAND); ibv_query_device_ex(3) (odp_caps)";
/// Bytes of two pages, and a little more.
const PAGES: usize = 8195;

pub(super) const CASES: &[Case] = &[
    case("protection/lkey-of-nothing", LOCAL, lkey_of_nothing),
    case("protection/lkey-beyond-its-range", LOCAL, lkey_beyond),
    case("protection/lkey-before-its-range", LOCAL, lkey_before),
    case("protection/lkey-of-another-domain", LOCAL, lkey_of_another_domain),
    case("protection/lkey-ended", LOCAL, lkey_ended),
    case("protection/receive-into-memory-that-is-not-there", LOCAL, receive_nowhere),
    case("protection/receive-into-read-only-memory", RIGHTS, receive_read_only),
    case("protection/read-into-read-only-memory", RIGHTS, read_into_read_only),
    case("protection/rkey-of-nothing", REMOTE, rkey_of_nothing),
    case("protection/rkey-beyond-its-range", REMOTE, rkey_beyond),
    case("protection/rkey-before-its-range", REMOTE, rkey_before),
    case("protection/rkey-of-a-part", REMOTE, rkey_of_a_part),
    case("protection/rkey-of-another-domain", REMOTE, rkey_of_another_domain),
    case("protection/rkey-ended", REMOTE, rkey_ended),
    case("protection/write-without-the-right", RIGHTS, |bed| without_right(bed, Right::Write)),
    case("protection/read-without-the-right", RIGHTS, |bed| without_right(bed, Right::Read)),
    case_if(&[Need::Atomics], "protection/add-without-the-right", RIGHTS, |bed| without_right(bed, Right::Add)),
    case_if(&[Need::Atomics], "protection/swap-without-the-right", RIGHTS, |bed| without_right(bed, Right::Swap)),
    case("protection/queue-pair-without-writes", "IBA 9.9.3 and 11.2.5.2; ibv_modify_qp(3) (qp_access_flags)", |bed| {
        without_queue_right(bed, Right::Write)
    }),
    case("protection/queue-pair-without-reads", "IBA 9.9.3 and 11.2.5.2; ibv_modify_qp(3) (qp_access_flags)", |bed| {
        without_queue_right(bed, Right::Read)
    }),
    case_if(
        &[Need::Atomics],
        "protection/queue-pair-without-atomics",
        "IBA 9.9.3 and 11.2.5.2; ibv_modify_qp(3) (qp_access_flags)",
        |bed| without_queue_right(bed, Right::Add),
    ),
    case("protection/error-event-at-the-peer", "IBA 11.6.3 (local access violation); ibv_get_async_event(3)", event),
    case("protection/both-ends-fail", "IBA 9.9.2 and 9.9.3", both_ends_fail),
    case_if(&[Need::OnDemand], "protection/on-demand", ON_DEMAND, on_demand),
    case("protection/on-demand-as-offered", ON_DEMAND, on_demand_as_offered),
    case("protection/remote-writes-need-local-ones", "IBA 10.6.3.1; ibv_reg_mr(3)", needs_local_write),
    case(
        "protection/registering-nothing",
        "IBA chapter 11 (register memory region); ibv_reg_mr(3)",
        registering_nothing,
    ),
    case(
        "protection/registering-in-no-domain",
        "IBA chapter 11 (register memory region); ibv_reg_mr(3)",
        registering_nowhere,
    ),
    case("protection/registering-twice", "IBA 10.6 (regions may overlap); ibv_reg_mr(3)", registering_twice),
    case_if(
        &[Need::Fault(Fault::FailRegistration)],
        "protection/registration-fails-and-then-works",
        "IBA chapter 11 (insufficient resources); ibv_reg_mr(3)",
        registration_fails,
    ),
];

fn lkey_of_nothing(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let region = bed.region(End::A, 8)?;
    let whole = region.all();
    let sge = forged(whole.address(), whole.len(), whole.lkey() ^ 0x5a5a_5a00);
    bed.post(a, send(1, &[sge]))?;
    bed.send_ended(a, 1, Status::LocalProtection)?;
    bed.comes_to(a, QpState::Error)
}

fn lkey_beyond(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (half, into) = (half_of(bed, End::A)?, bed.region(End::B, 64)?);
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, send(1, &[half.part(0, half.len + 1)]))?;
    bed.send_ended(a, 1, Status::LocalProtection)?;
    bed.no_more_received(b)
}

fn lkey_before(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let region = bed.region(End::A, 8)?;
    let whole = region.all();
    let sge = forged(whole.address() - 1, whole.len(), whole.lkey());
    bed.post(a, send(1, &[sge]))?;
    bed.send_ended(a, 1, Status::LocalProtection).map(drop)
}

/// 32 bytes that are registered, with 32 more behind them that are the case's too.
fn half_of(bed: &mut Bed<'_>, end: End) -> Check<Region> {
    let whole = bed.region(end, 64)?;
    bed.first_half(&whole)
}

fn elsewhere(bed: &mut Bed<'_>, end: End) -> Check<Region> {
    let (pd, access) = (bed.device(end).alloc_pd()?, bed.every_access(end));
    bed.region_with(end, pd, 64, access)
}

fn lkey_of_another_domain(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let region = elsewhere(bed, End::A)?;
    bed.post(a, send(1, &[region.all()]))?;
    bed.send_ended(a, 1, Status::LocalProtection).map(drop)
}

fn lkey_ended(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let region = bed.region(End::A, 8)?;
    bed.recv(b, 1, &[])?;
    bed.deregister(&region)?;
    bed.post(a, send(1, &[region.all()]))?;
    bed.send_ended(a, 1, Status::LocalProtection).map(drop)
}

/// A send into this receive ends with errors that fit at both ends.
fn bad_receive(bed: &mut Bed<'_>, [a, b]: [Queue; 2], into: Region) -> Check {
    let from = bed.filled(End::A, &[1; 8])?;
    bed.recv(b, 1, &[into.part(0, 8)])?;
    bed.post(a, send(2, &[from.all()]))?;
    bed.send_ended(a, 2, Status::RemoteOperation)?;
    bed.recv_ended(b, 1, Status::LocalProtection)?;
    bed.comes_to(a, QpState::Error)?;
    bed.comes_to(b, QpState::Error)
}

fn receive_nowhere(bed: &mut Bed<'_>) -> Check {
    let pair = bed.rc()?;
    let into = bed.region(End::B, 8)?;
    bed.deregister(&into)?;
    bad_receive(bed, pair, into)?;
    same_bytes("memory", &bed.read(&into, 0, 8), &[0; 8])
}

fn receive_read_only(bed: &mut Bed<'_>) -> Check {
    let pair = bed.rc()?;
    let pd = bed.pd(End::B)?;
    let into = bed.region_with(End::B, pd, 8, Access::default())?;
    bad_receive(bed, pair, into)?;
    same_bytes("memory", &bed.read(&into, 0, 8), &[0; 8])
}

fn read_into_read_only(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (pd, far) = (bed.pd(End::A)?, bed.filled(End::B, &[1; 8])?);
    let into = bed.region_with(End::A, pd, 8, Access::default())?;
    bed.post(a, read(1, &[into.all()], far.remote(0)))?;
    // Found before the request is sent, or when the answer comes.
    let came = bed.next(End::A, a.send_cq()?)?;
    one_of("a read into read-only memory", came.status, &[Status::LocalProtection, Status::LocalAccess])?;
    same_bytes("memory", &bed.read(&into, 0, 8), &[0; 8])
}

/// A write there is refused by the peer.
fn bad_write(bed: &mut Bed<'_>, to: Remote, len: usize) -> Check<[Queue; 2]> {
    let [a, b] = bed.rc()?;
    let from = bed.filled(End::A, &vec![1; len])?;
    bed.post(a, write(1, &[from.all()], to))?;
    bed.send_ended(a, 1, Status::RemoteAccess)?;
    Ok([a, b])
}

fn rkey_of_nothing(bed: &mut Bed<'_>) -> Check {
    let into = bed.region(End::B, 8)?;
    let mut to = into.remote(0);
    to.rkey ^= 0x5a5a_5a00;
    bad_write(bed, to, 8)?;
    same_bytes("memory", &bed.read(&into, 0, 8), &[0; 8])
}

fn rkey_beyond(bed: &mut Bed<'_>) -> Check {
    let half = half_of(bed, End::B)?;
    bad_write(bed, half.remote(0), half.len + 1)?;
    bad_write(bed, half.remote(half.len), 1)?;
    let [a, _] = bed.rc()?;
    let near = bed.region(End::A, 64)?;
    bed.post(a, read(1, &[near.part(0, half.len + 1)], half.remote(0)))?;
    bed.send_ended(a, 1, Status::RemoteAccess)?;
    same_bytes("behind the registered memory", &bed.read(&half, half.len, 32), &[0; 32])
}

fn rkey_before(bed: &mut Bed<'_>) -> Check {
    let into = bed.region(End::B, 8)?;
    let mut to = into.remote(0);
    to.address -= 1;
    bad_write(bed, to, 2).map(drop)
}

fn rkey_of_a_part(bed: &mut Bed<'_>) -> Check {
    let whole = bed.region(End::B, 64)?;
    let half = bed.first_half(&whole)?;
    let [a, _] = bed.rc()?;
    let from = bed.filled(End::A, &[1; 32])?;
    bed.post(a, write(1, &[from.all()], half.remote(0)))?;
    bed.sent(a, 1)?;
    // The key of the whole opens the second half, that of the first half does not.
    bed.post(a, write(2, &[from.all()], whole.remote(32)))?;
    bed.sent(a, 2)?;
    bed.post(a, write(3, &[from.all()], half.remote(16)))?;
    bed.send_ended(a, 3, Status::RemoteAccess).map(drop)
}

fn rkey_of_another_domain(bed: &mut Bed<'_>) -> Check {
    let into = elsewhere(bed, End::B)?;
    bad_write(bed, into.remote(0), 8)?;
    same_bytes("memory", &bed.read(&into, 0, 8), &[0; 8])
}

fn rkey_ended(bed: &mut Bed<'_>) -> Check {
    let into = bed.region(End::B, 8)?;
    bed.deregister(&into)?;
    bad_write(bed, into.remote(0), 8)?;
    same_bytes("memory", &bed.read(&into, 0, 8), &[0; 8])
}

/// A right that a peer may have.
#[derive(Clone, Copy)]
enum Right {
    Write,
    Read,
    Add,
    Swap,
}

impl Right {
    /// Everything but this.
    fn left_out(self, all: Access) -> Access {
        match self {
            Right::Write => Access { remote_write: false, ..all },
            Right::Read => Access { remote_read: false, ..all },
            Right::Add | Right::Swap => Access { remote_atomic: false, ..all },
        }
    }

    /// A request that needs it.
    fn request<'a>(self, sges: &'a [rerail_verbs::contract::Sge], at: Remote) -> SendWr<'a> {
        match self {
            Right::Write => write(1, sges, at),
            Right::Read => read(1, sges, at),
            Right::Add => fetch_add(1, sges, at, 1),
            Right::Swap => compare_swap(1, sges, at, 0, 1),
        }
    }
}

fn without_right(bed: &mut Bed<'_>, right: Right) -> Check {
    let [a, b] = bed.rc()?;
    let access = right.left_out(bed.every_access(End::B));
    let pd = bed.pd(End::B)?;
    let (near, far) = (bed.filled(End::A, &[1; 8])?, bed.region_with(End::B, pd, 8, access)?);
    bed.post(a, right.request(&[near.all()], far.remote(0)))?;
    bed.send_ended(a, 1, Status::RemoteAccess)?;
    bed.comes_to(b, QpState::Error)?;
    same_bytes("memory", &bed.read(&far, 0, 8), &[0; 8])?;
    same_bytes("own memory", &bed.read(&near, 0, 8), &[1; 8])
}

fn without_queue_right(bed: &mut Bed<'_>, right: Right) -> Check {
    let access = right.left_out(bed.every_access(End::B));
    let [a, b] = bed.rc_with(Spec::RC, QpParameters { access: Some(access), ..QpParameters::USUAL })?;
    let (near, far) = (bed.filled(End::A, &[1; 8])?, bed.region(End::B, 8)?);
    bed.post(a, right.request(&[near.all()], far.remote(0)))?;
    // The specification calls it an invalid request; devices that look at keys first call it an access error.
    let came = bed.next(End::A, a.send_cq()?)?;
    one_of("a request that the queue pair doesn't take", came.status, &[Status::RemoteInvalid, Status::RemoteAccess])?;
    bed.comes_to(b, QpState::Error)?;
    same_bytes("memory", &bed.read(&far, 0, 8), &[0; 8])
}

fn event(bed: &mut Bed<'_>) -> Check {
    let into = half_of(bed, End::B)?;
    let [_, b] = bad_write(bed, into.remote(0), 64)?;
    bed.event(End::B, AsyncEvent::QpAccessError(b.id))
}

fn both_ends_fail(bed: &mut Bed<'_>) -> Check {
    let into = half_of(bed, End::B)?;
    let [a, b] = bad_write(bed, into.remote(0), 64)?;
    bed.comes_to(a, QpState::Error)?;
    bed.comes_to(b, QpState::Error)?;
    bed.recv(b, 5, &[])?;
    bed.recv_ended(b, 5, Status::Flushed).map(drop)
}

fn needs_local_write(bed: &mut Bed<'_>) -> Check {
    let pd = bed.pd(End::A)?;
    let none = Access::default();
    for access in [Access { remote_write: true, ..none }, Access { remote_atomic: true, ..none }] {
        let result = bed.try_register(End::A, pd, 64, access);
        refuses(format!("{access:?}"), result, "Access", |error| *error == RegisterError::Access)?;
    }
    same("remote reads alone", bed.try_register(End::A, pd, 64, Access { remote_read: true, ..none }).map(drop), Ok(()))
}

fn registering_nothing(bed: &mut Bed<'_>) -> Check {
    let pd = bed.pd(End::A)?;
    let result = bed.try_register(End::A, pd, 0, Access::LOCAL);
    refuses("0 bytes", result, "Length", |error| matches!(error, RegisterError::Length { bytes: 0, .. }))
}

fn registering_nowhere(bed: &mut Bed<'_>) -> Check {
    let pd = bed.device(End::A).alloc_pd()?;
    bed.device(End::A).dealloc_pd(pd)?;
    let result = bed.try_register(End::A, pd, 64, Access::LOCAL);
    refuses("a domain that is gone", result, "UnknownPd", |error| *error == RegisterError::UnknownPd { name: pd.0 })?;
    let never = PdId(u32::MAX);
    refuses("no domain", bed.try_register(End::A, never, 64, Access::LOCAL), "UnknownPd", |error| {
        matches!(error, RegisterError::UnknownPd { .. })
    })
}

fn registering_twice(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let whole = bed.filled(End::A, &[1; 64])?;
    let half = bed.first_half(&whole)?;
    let into = bed.region(End::B, 64)?;
    // Ending one leaves the other.
    bed.deregister(&whole)?;
    let result = bed.deregister(&whole);
    refuses("ending a registration twice", result, "Unknown", |error| {
        matches!(error, DestroyError::Unknown { what: Kind::Mr, .. })
    })?;
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, send(1, &[half.all()]))?;
    bed.sent(a, 1)?;
    bed.received(b, 1, 32)?;
    same("first byte", bed.read(&into, 0, 1), vec![1])
}

fn registration_fails(bed: &mut Bed<'_>) -> Check {
    let pd = bed.pd(End::A)?;
    bed.inject(End::A, Fault::FailRegistration)?;
    let result = bed.try_register(End::A, pd, 64, Access::LOCAL);
    refuses("a registration without memory", result, "System or Exhausted", |error| {
        matches!(error, RegisterError::System { .. } | RegisterError::Exhausted { .. })
    })?;
    same("the next one", bed.try_register(End::A, pd, 64, Access::LOCAL).map(drop), Ok(()))
}

/// Memory that is not pinned does all that pinned memory does.
fn on_demand(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let unpinned = |bed: &mut Bed<'_>, end| {
        let (pd, access) = (bed.pd(end)?, Access { on_demand: true, ..bed.every_access(end) });
        bed.region_with(end, pd, 3 * PAGES, access)
    };
    let (from, into) = (unpinned(bed, End::A)?, unpinned(bed, End::B)?);
    let bytes: Vec<u8> = (0..PAGES).map(|at| (at % 251) as u8).collect();
    bed.write(&from, 0, &bytes);
    bed.recv(b, 1, &[into.part(0, PAGES)])?;
    bed.post(a, send(1, &[from.part(0, PAGES)]))?;
    bed.sent(a, 1)?;
    bed.received(b, 1, PAGES)?;
    bed.post(a, write(2, &[from.part(0, PAGES)], into.remote(PAGES)))?;
    bed.sent(a, 2)?;
    bed.post(a, read(3, &[from.part(2 * PAGES, PAGES)], into.remote(PAGES)))?;
    bed.sent(a, 3)?;
    for (what, region, at) in [("received", &into, 0), ("written", &into, PAGES), ("read", &from, 2 * PAGES)] {
        same(what, bed.read(region, at, PAGES), bytes.clone())?;
    }
    Ok(())
}

/// Where nothing is offered, it is refused by name and nothing is pinned in its stead.
fn on_demand_as_offered(bed: &mut Bed<'_>) -> Check {
    let pd = bed.pd(End::A)?;
    let result = bed.try_register(End::A, pd, 64, Access { on_demand: true, ..Access::LOCAL });
    if bed.device(End::A).offers().has_on_demand() {
        return same("registration on demand", result.map(drop), Ok(()));
    }
    refuses("registration on demand", result, "NoOnDemand", |error| *error == RegisterError::NoOnDemand)
}
