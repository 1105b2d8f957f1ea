//! Ports, LIDs and GIDs: several ways to the same port.

use rerail_verbs::contract::{AddressVector, CreateError, GlobalRoute, Kind, QpState, Status};

use super::{Case, case, case_if};
use crate::bed::Bed;
use crate::bed::queue::{QpParameters, Spec};
use crate::bed::request::{datagram, send};
use crate::failure::{Check, refuses, same, wrong};
use crate::testbed::{End, Fault, Need};

const LMC: &str = "IBA 4.1.3 (LIDs and LMC); ibv_query_port(3), ibv_modify_qp(3)";

pub(super) const CASES: &[Case] = &[
    case("paths/ports-count-from-one", "ibv_query_port(3)", ports_count_from_one),
    case("paths/gid-table", "IBA 4.1.1 (GIDs); ibv_query_gid(3)", gid_table),
    case_if(&[Need::Lids], "paths/lids-of-different-ports-differ", LMC, lids_differ),
    case_if(&[Need::Paths], "paths/every-lid-of-a-port", LMC, every_lid),
    case_if(&[Need::Paths], "paths/datagrams-over-every-lid", LMC, datagrams_over_every_lid),
    case_if(&[Need::Paths], "paths/source-path-bits", LMC, source_path_bits),
    case_if(&[Need::Gids], "paths/connection-by-gid", "IBA 8.3 and 11.2.2.1; ibv_modify_qp(3) (ah_attr)", by_gid),
    case_if(&[Need::Lids], "paths/lid-of-nobody", "IBA 9.7.6.1.3", lid_of_nobody),
    case_if(&[Need::Paths, Need::Fault(Fault::PathDown(1))], "paths/one-dead-the-other-not", LMC, one_dead),
];

fn ports_count_from_one(bed: &mut Bed<'_>) -> Check {
    let ports = bed.limits(End::A).ports;
    for port in 1..=ports {
        same("number of the port", bed.device(End::A).port(port)?.number, port)?;
    }
    for port in [0, ports + 1] {
        refuses(format!("port {port}"), bed.device(End::A).port(port), "OutOfRange of port", |error| {
            matches!(error, CreateError::OutOfRange { what: Kind::Port, .. })
        })?;
    }
    Ok(())
}

fn gid_table(bed: &mut Bed<'_>) -> Check {
    let number = bed.port(End::A);
    let len = bed.device(End::A).port(number)?.gid_table_len;
    for index in 0..len.min(8) {
        bed.device(End::A).gid(number, index as u8)?;
    }
    if let Ok(over) = u8::try_from(len) {
        refuses("an entry behind the table", bed.device(End::A).gid(number, over), "OutOfRange of GID", |error| {
            matches!(error, CreateError::OutOfRange { what: Kind::Gid, .. })
        })?;
    }
    refuses("a GID of port 0", bed.device(End::A).gid(0, 0), "OutOfRange of port", |error| {
        matches!(error, CreateError::OutOfRange { what: Kind::Port, .. })
    })
}

fn lids_differ(bed: &mut Bed<'_>) -> Check {
    let mut taken = std::collections::BTreeMap::new();
    for port in 1..=bed.limits(End::A).ports {
        let info = bed.device(End::A).port(port)?;
        // A port that is down may have none.
        for lid in (info.lid != 0).then(|| info.lid..info.lid + (1 << info.lmc)).into_iter().flatten() {
            if let Some(other) = taken.insert(lid, port) {
                return Err(wrong(
                    format!("owner of LID {lid}"),
                    format!("port {other} alone"),
                    format!("port {port} too"),
                ));
            }
        }
    }
    Ok(())
}

/// How many LIDs the port of an end answers to.
fn lids(bed: &mut Bed<'_>, end: End) -> Check<u16> {
    let port = bed.port(end);
    Ok(1 << bed.device(end).port(port)?.lmc)
}

fn every_lid(bed: &mut Bed<'_>) -> Check {
    let count = lids(bed, End::A)?.min(lids(bed, End::B)?);
    for path in 0..count {
        let [a, b] = bed.rc_with(Spec::RC, QpParameters { path, ..QpParameters::USUAL })?;
        bed.recv(b, 1, &[])?;
        bed.post(a, send(2, &[]))?;
        bed.sent(a, 2)?;
        bed.received(b, 1, 0)?;
    }
    Ok(())
}

fn datagrams_over_every_lid(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.ud(End::A, Spec::UD)?, bed.ud(End::B, Spec::UD)?);
    let (pd, into) = (bed.pd(End::A)?, bed.region(End::B, 40)?);
    for path in 0..lids(bed, End::B)? {
        let address = bed.address(End::A, End::B, path)?;
        let handle = bed.device(End::A).create_ah(pd, &address)?;
        bed.recv(b, path.into(), &[into.all()])?;
        bed.post(a, datagram(9, &[], handle, b))?;
        bed.sent(a, 9)?;
        bed.received(b, path.into(), 40)?;
    }
    Ok(())
}

fn source_path_bits(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.ud(End::A, Spec::UD)?, bed.ud(End::B, Spec::UD)?);
    let (pd, into, port) = (bed.pd(End::A)?, bed.region(End::B, 40)?, bed.port(End::A));
    let base = bed.device(End::A).port(port)?.lid;
    let good = bed.address(End::A, End::B, 0)?;
    for bits in 0..lids(bed, End::A)? {
        let address = AddressVector { source_path_bits: bits as u8, ..good };
        let handle = bed.device(End::A).create_ah(pd, &address)?;
        bed.recv(b, 1, &[into.all()])?;
        bed.post(a, datagram(2, &[], handle, b))?;
        bed.sent(a, 2)?;
        same("source LID", bed.received(b, 1, 40)?.source_lid, base + bits)?;
    }
    Ok(())
}

fn by_gid(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.queue(End::A, Spec::RC)?, bed.queue(End::B, Spec::RC)?);
    for (queue, peer) in [(a, b), (b, a)] {
        let port = bed.port(peer.end);
        let dgid = bed.device(peer.end).gid(port, 0)?;
        let mut attributes = bed.attributes_to(queue, peer, QpParameters::USUAL)?;
        if let Some(address) = attributes.address.as_mut().filter(|address| address.global.is_none()) {
            address.global = Some(GlobalRoute { dgid, source_index: 0, hop_limit: 4, traffic_class: 0 });
        }
        bed.raise(queue, QpState::Rts, &attributes)?;
    }
    bed.recv(b, 1, &[])?;
    bed.post(a, send(2, &[]))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, 0).map(drop)
}

fn lid_of_nobody(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.queue(End::A, Spec::RC)?, bed.queue(End::B, Spec::RC)?);
    let mut attributes = bed.attributes_to(a, b, QpParameters::SHORT_TIMEOUT)?;
    // The last unicast LID.
    let good = bed.address(End::A, End::B, 0)?;
    attributes.address = Some(AddressVector { dlid: 0xbfff, ..good });
    bed.raise(a, QpState::Rts, &attributes)?;
    bed.post(a, send(1, &[]))?;
    bed.send_ended(a, 1, Status::RetryExceeded).map(drop)
}

fn one_dead(bed: &mut Bed<'_>) -> Check {
    let [a0, b0] = bed.rc_with(Spec::RC, QpParameters { path: 0, ..QpParameters::SHORT_TIMEOUT })?;
    let [a1, b1] = bed.rc_with(Spec::RC, QpParameters { path: 1, ..QpParameters::SHORT_TIMEOUT })?;
    bed.recv(b0, 1, &[])?;
    bed.recv(b1, 1, &[])?;
    bed.inject(End::A, Fault::PathDown(1))?;
    bed.post(a1, send(2, &[]))?;
    bed.post(a0, send(2, &[]))?;
    bed.sent(a0, 2)?;
    bed.received(b0, 1, 0)?;
    bed.send_ended(a1, 2, Status::RetryExceeded).map(drop)
}
