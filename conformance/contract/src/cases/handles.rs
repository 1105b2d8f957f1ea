//! Address handles.

use rerail_verbs::contract::{AddressVector, AhId, CreateError, DestroyError, Kind, PdId, PostReason};

use super::{Case, case};
use crate::bed::Bed;
use crate::bed::queue::Spec;
use crate::bed::request::datagram;
use crate::failure::{Check, refuses};
use crate::testbed::End;

const RULE: &str = "IBA 11.2.2 (address handles); ibv_create_ah(3), ibv_destroy_ah(3)";

pub(super) const CASES: &[Case] = &[
    case("handles/many", RULE, many),
    case("handles/wrong-port", RULE, wrong_port),
    case("handles/wrong-domain", RULE, wrong_domain),
    case("handles/stale", RULE, stale),
    case("handles/domain-is-busy", "IBA 11.2.1 (PD in use); ibv_dealloc_pd(3)", domain_is_busy),
];

fn many(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.ud(End::A, Spec::UD)?, bed.ud(End::B, Spec::UD)?);
    let into = bed.region(End::B, 40)?;
    let handles = (0..32).map(|_| bed.handle(End::A, End::B)).collect::<Check<Vec<AhId>>>()?;
    // Ending some leaves the others.
    for handle in handles.iter().step_by(2) {
        bed.device(End::A).destroy_ah(*handle)?;
    }
    for (id, handle) in handles.iter().skip(1).step_by(2).enumerate() {
        bed.recv(b, id as u64, &[into.all()])?;
        bed.post(a, datagram(id as u64, &[], *handle, b))?;
        bed.sent(a, id as u64)?;
        bed.received(b, id as u64, 40)?;
    }
    Ok(())
}

fn wrong_port(bed: &mut Bed<'_>) -> Check {
    let (pd, good) = (bed.pd(End::A)?, bed.address(End::A, End::B, 0)?);
    for port in [0, bed.limits(End::A).ports + 1] {
        let result = bed.device(End::A).create_ah(pd, &AddressVector { port, ..good });
        refuses(format!("port {port}"), result, "OutOfRange of port", |error| {
            matches!(error, CreateError::OutOfRange { what: Kind::Port, .. })
        })?;
    }
    Ok(())
}

fn wrong_domain(bed: &mut Bed<'_>) -> Check {
    let good = bed.address(End::A, End::B, 0)?;
    let result = bed.device(End::A).create_ah(PdId(u32::MAX), &good);
    refuses("no protection domain", result, "Unknown", |error| {
        matches!(error, CreateError::Unknown { what: Kind::Pd, .. })
    })
}

fn stale(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.ud(End::A, Spec::UD)?, bed.ud(End::B, Spec::UD)?);
    let handle = bed.handle(End::A, End::B)?;
    bed.device(End::A).destroy_ah(handle)?;
    refuses(
        "a datagram by a handle that is gone",
        bed.try_post(a, &[datagram(1, &[], handle, b)]),
        "UnknownHandle",
        |error| error.index == 0 && error.why == PostReason::UnknownHandle { name: handle.0 },
    )?;
    refuses("a handle destroyed twice", bed.device(End::A).destroy_ah(handle), "Unknown", |error| {
        *error == DestroyError::Unknown { what: Kind::Ah, name: handle.0 }
    })
}

fn domain_is_busy(bed: &mut Bed<'_>) -> Check {
    let (pd, address) = (bed.device(End::A).alloc_pd()?, bed.address(End::A, End::B, 0)?);
    let handle = bed.device(End::A).create_ah(pd, &address)?;
    refuses("a domain with a handle", bed.device(End::A).dealloc_pd(pd), "Busy", |error| {
        *error == DestroyError::Busy { what: Kind::Pd, users: 1 }
    })?;
    bed.device(End::A).destroy_ah(handle)?;
    Ok(bed.device(End::A).dealloc_pd(pd)?)
}
