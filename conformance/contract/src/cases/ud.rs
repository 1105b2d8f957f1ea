//! Datagrams: they may be lost, and nothing breaks when they are.

use rerail_verbs::contract::{Completion, Datagram, GlobalRoute, PostReason, QpState, SendWr, Status};

use super::{Case, case, case_if};
use crate::bed::queue::{QKEY, Queue, Spec};
use crate::bed::request::{datagram, send, send_imm};
use crate::bed::{Bed, Region, pattern};
use crate::failure::{Check, Failure, refuses, same, same_bytes, wrong};
use crate::testbed::{End, Fault, Need};

const RULE: &str = "IBA 9.8.3 (unreliable datagram) and 11.4.2.1; ibv_poll_cq(3)";
const LOSS: &str = "IBA 9.8.3 (unreliable datagram) and 9.9.3";

/// Bytes before a datagram in the receive: room for the global route header.
const HEADER: usize = 40;

pub(super) const CASES: &[Case] = &[
    case("ud/delivers-bytes", RULE, delivers_bytes),
    case("ud/tells-the-sender", RULE, reports_the_sender),
    case("ud/immediate", RULE, immediate),
    case("ud/of-nothing", RULE, of_nothing),
    case("ud/to-several", RULE, to_several),
    case("ud/answer-to-who-asked", RULE, answer),
    case("ud/as-long-as-the-mtu", "IBA 9.8.3 (single packet messages); ibv_post_send(3)", full_mtu),
    case("ud/longer-than-the-mtu", "IBA 9.8.3 (single packet messages) and 11.6.2", over_mtu),
    case("ud/wrong-key-is-dropped", "IBA 9.8.3 and chapter 10 (Q_Keys)", wrong_key),
    case("ud/key-of-the-queue-pair", "IBA 11.4.1.1 and chapter 10 (Q_Keys); ibv_post_send(3)", own_key),
    case("ud/no-receive-is-loss", LOSS, no_receive),
    case("ud/no-such-peer-is-loss", LOSS, no_such_peer),
    case("ud/too-long-for-the-receive", LOSS, too_long_for_the_receive),
    case("ud/loss-breaks-nothing", LOSS, loss_breaks_nothing),
    case("ud/error-flushes", "IBA 10.3.1.7; ibv_modify_qp(3)", error_flushes),
    case_if(&[Need::Gids], "ud/global-route-header", "IBA 8.3 and 11.4.2.1; ibv_poll_cq(3) (IBV_WC_GRH)", global_route),
    case_if(&[Need::Lids], "ud/source-lid", "IBA 11.4.2.1; ibv_poll_cq(3) (slid)", source_lid),
    case_if(&[Need::Fault(Fault::CorruptPacket)], "ud/damaged-is-dropped", "IBA 7.8 (CRC) and 9.8.3", damaged),
    case_if(&[Need::Fault(Fault::LosePackets(1))], "ud/lost-is-lost", LOSS, lost_is_lost),
];

/// Queue pairs of A and B, memory of A with `len` bytes, memory for such a datagram at B.
fn ends(bed: &mut Bed<'_>, len: usize) -> Check<(Queue, Queue, Region, Region)> {
    let (a, b) = (bed.ud(End::A, Spec::UD)?, bed.ud(End::B, Spec::UD)?);
    Ok((a, b, bed.filled(End::A, &pattern(1, len))?, bed.region(End::B, HEADER + len)?))
}

/// Sends all of `from` to B, and has it received by request `id`.
fn deliver(bed: &mut Bed<'_>, (a, b): (Queue, Queue), id: u64, from: &Region, into: &Region) -> Check<Completion> {
    let handle = bed.handle(a.end, b.end)?;
    bed.recv(b, id, &[into.all()])?;
    bed.post(a, datagram(id, &[from.all()], handle, b))?;
    bed.sent(a, id)?;
    bed.received(b, id, HEADER + from.len)
}

fn delivers_bytes(bed: &mut Bed<'_>) -> Check {
    let (a, b, from, into) = ends(bed, 100)?;
    deliver(bed, (a, b), 1, &from, &into)?;
    same_bytes("message", &bed.read(&into, HEADER, 100), &pattern(1, 100))
}

fn reports_the_sender(bed: &mut Bed<'_>) -> Check {
    let (a, b, from, into) = ends(bed, 8)?;
    let came = deliver(bed, (a, b), 1, &from, &into)?;
    same("number of the sender's queue pair", came.source_qp, a.number)?;
    same("immediate data", came.immediate, None)
}

fn immediate(bed: &mut Bed<'_>) -> Check {
    let (a, b, from, into) = ends(bed, 8)?;
    let handle = bed.handle(End::A, End::B)?;
    bed.recv(b, 1, &[into.all()])?;
    let to = datagram(0, &[], handle, b).datagram;
    bed.post(a, SendWr { datagram: to, ..send_imm(2, &[from.all()], 0xfeed_beef) })?;
    bed.sent(a, 2)?;
    same("immediate data", bed.received(b, 1, HEADER + 8)?.immediate, Some(0xfeed_beef))
}

fn of_nothing(bed: &mut Bed<'_>) -> Check {
    let (a, b, _, into) = ends(bed, 8)?;
    let handle = bed.handle(End::A, End::B)?;
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, datagram(2, &[], handle, b))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, HEADER).map(drop)
}

fn to_several(bed: &mut Bed<'_>) -> Check {
    let (a, first, from, into) = ends(bed, 8)?;
    let second = bed.ud(End::B, Spec::UD)?;
    for (id, to) in [(1, first), (2, second), (3, first)] {
        deliver(bed, (a, to), id, &from, &into)?;
    }
    bed.no_more_received(first)?;
    bed.no_more_received(second)
}

fn answer(bed: &mut Bed<'_>) -> Check {
    let (a, b, from, into) = ends(bed, 8)?;
    let requested = deliver(bed, (a, b), 1, &from, &into)?;
    let (back, handle) = (bed.region(End::A, HEADER + 8)?, bed.handle(End::B, End::A)?);
    bed.recv(a, 2, &[back.all()])?;
    let to = Some(Datagram { handle, qp: requested.source_qp, qkey: QKEY });
    bed.post(b, SendWr { datagram: to, ..send(3, &[into.part(HEADER, 8)]) })?;
    bed.sent(b, 3)?;
    bed.received(a, 2, HEADER + 8)?;
    same_bytes("answer", &bed.read(&back, HEADER, 8), &pattern(1, 8))
}

fn mtu(bed: &mut Bed<'_>) -> Check<usize> {
    let mut least = usize::MAX;
    for end in [End::A, End::B] {
        let port = bed.port(end);
        let mtu = bed.device(end).port(port)?.mtu_bytes;
        least = least.min(mtu.ok_or(Failure::Unsupported(Need::Other("a port that reports its MTU")))?.into());
    }
    Ok(least)
}

fn full_mtu(bed: &mut Bed<'_>) -> Check {
    let len = mtu(bed)?;
    let (a, b, from, into) = ends(bed, len)?;
    deliver(bed, (a, b), 1, &from, &into)?;
    same_bytes("message", &bed.read(&into, HEADER, len), &pattern(1, len))
}

fn over_mtu(bed: &mut Bed<'_>) -> Check {
    let len = mtu(bed)? + 1;
    let (a, b, from, into) = ends(bed, len)?;
    let handle = bed.handle(End::A, End::B)?;
    bed.recv(b, 1, &[into.all()])?;
    let list = [from.all()];
    // Refused at once, or a completion reports it; never sent in two packets.
    if bed.try_post(a, &[datagram(2, &list, handle, b)]).is_ok() {
        bed.send_ended(a, 2, Status::LocalLength)?;
    }
    bed.no_more_received(b)
}

/// A datagram that must get lost, and one behind it that must not: the receiver and its queue are as before.
fn one_lost(bed: &mut Bed<'_>, lost: impl FnOnce(&mut Bed<'_>, Queue, Queue, &Region) -> Check) -> Check {
    let (a, b, from, into) = ends(bed, 8)?;
    bed.recv(b, 1, &[into.all()])?;
    lost(bed, a, b, &from)?;
    bed.no_more_received(b)?;
    bed.in_state(a, QpState::Rts)?;
    bed.in_state(b, QpState::Rts)?;
    let handle = bed.handle(End::A, End::B)?;
    bed.post(a, datagram(9, &[from.all()], handle, b))?;
    bed.sent(a, 9)?;
    bed.received(b, 1, HEADER + 8).map(drop)
}

fn wrong_key(bed: &mut Bed<'_>) -> Check {
    one_lost(bed, |bed, a, b, from| {
        let handle = bed.handle(End::A, End::B)?;
        let to = Some(Datagram { handle, qp: b.number, qkey: QKEY + 1 });
        bed.post(a, SendWr { datagram: to, ..send(2, &[from.all()]) })?;
        bed.sent(a, 2).map(drop)
    })
}

fn own_key(bed: &mut Bed<'_>) -> Check {
    let (a, b, from, into) = ends(bed, 8)?;
    let handle = bed.handle(End::A, End::B)?;
    bed.recv(b, 1, &[into.all()])?;
    let to = Some(Datagram { handle, qp: b.number, qkey: 0x8000_0000 });
    bed.post(a, SendWr { datagram: to, ..send(2, &[from.all()]) })?;
    bed.sent(a, 2)?;
    bed.received(b, 1, HEADER + 8).map(drop)
}

fn no_receive(bed: &mut Bed<'_>) -> Check {
    let (a, b, from, into) = ends(bed, 8)?;
    let handle = bed.handle(End::A, End::B)?;
    for id in 1..4 {
        bed.post(a, datagram(id, &[from.all()], handle, b))?;
        bed.sent(a, id)?;
    }
    bed.run_until_idle();
    // They don't wait for a receive.
    bed.recv(b, 5, &[into.all()])?;
    bed.no_more_received(b)?;
    bed.post(a, datagram(6, &[from.all()], handle, b))?;
    bed.received(b, 5, HEADER + 8).map(drop)
}

fn no_such_peer(bed: &mut Bed<'_>) -> Check {
    one_lost(bed, |bed, a, _, from| {
        let gone = bed.ud(End::B, Spec::UD)?;
        bed.device(End::B).destroy_qp(gone.id)?;
        let handle = bed.handle(End::A, End::B)?;
        bed.post(a, datagram(2, &[from.all()], handle, gone))?;
        bed.sent(a, 2).map(drop)
    })
}

fn too_long_for_the_receive(bed: &mut Bed<'_>) -> Check {
    let (a, b, from, into) = ends(bed, 64)?;
    let handle = bed.handle(End::A, End::B)?;
    bed.recv(b, 1, &[into.part(0, HEADER + 32)])?;
    bed.post(a, datagram(2, &[from.all()], handle, b))?;
    bed.sent(a, 2)?;
    bed.run_until_idle();
    // Dropped, or the receive ends with a length error; never a part of it as a whole.
    match bed.take(End::B, b.recv_cq()?)? {
        None => {}
        Some(came) if came.status == Status::LocalLength => {}
        Some(came) => return Err(wrong("a datagram too long", "nothing or a length error", came.status)),
    }
    same_bytes("behind the receive", &bed.read(&into, HEADER + 32, 32), &[0; 32])
}

fn loss_breaks_nothing(bed: &mut Bed<'_>) -> Check {
    let (a, b, from, into) = ends(bed, 8)?;
    let handle = bed.handle(End::A, End::B)?;
    // Three receives for ten datagrams: three come, the rest is lost.
    bed.recvs(b, 0..3, &into)?;
    for id in 0..10 {
        bed.post(a, datagram(id, &[from.all()], handle, b))?;
    }
    for id in 0..10 {
        bed.sent(a, id)?;
    }
    for id in 0..3 {
        bed.received(b, id, HEADER + 8)?;
    }
    bed.no_more_received(b)?;
    bed.in_state(b, QpState::Rts)?;
    deliver(bed, (a, b), 20, &from, &into).map(drop)
}

fn error_flushes(bed: &mut Bed<'_>) -> Check {
    let (a, _, from, _) = ends(bed, 8)?;
    let handle = bed.handle(End::A, End::B)?;
    bed.recv(a, 1, &[from.all()])?;
    bed.recv(a, 2, &[from.all()])?;
    bed.fail(a)?;
    bed.post(a, datagram(3, &[from.all()], handle, a))?;
    bed.recv_ended(a, 1, Status::Flushed)?;
    bed.recv_ended(a, 2, Status::Flushed)?;
    bed.send_ended(a, 3, Status::Flushed)?;
    // What its handle names is looked at all the same.
    bed.device(End::A).destroy_ah(handle)?;
    refuses("a handle that is gone", bed.try_post(a, &[datagram(4, &[], handle, a)]), "UnknownHandle", |error| {
        error.why == PostReason::UnknownHandle { name: handle.0 }
    })
}

fn global_route(bed: &mut Bed<'_>) -> Check {
    let (a, b, from, into) = ends(bed, 8)?;
    let (port_a, port_b) = (bed.port(End::A), bed.port(End::B));
    let (sgid, dgid) = (bed.device(End::A).gid(port_a, 0)?, bed.device(End::B).gid(port_b, 0)?);
    let mut address = bed.address(End::A, End::B, 0)?;
    if address.global.is_some() {
        // On Ethernet the header may be one of IPv4, which lies elsewhere in the 40 bytes.
        return Err(Failure::Unsupported(Need::Lids));
    }
    address.global = Some(GlobalRoute { dgid, source_index: 0, hop_limit: 4, traffic_class: 0 });
    let pd = bed.pd(End::A)?;
    let handle = bed.device(End::A).create_ah(pd, &address)?;
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, datagram(2, &[from.all()], handle, b))?;
    bed.sent(a, 2)?;
    same("header reported", bed.received(b, 1, HEADER + 8)?.global, true)?;
    same_bytes("source GID", &bed.read(&into, 8, 16), &sgid.0)?;
    same_bytes("destination GID", &bed.read(&into, 24, 16), &dgid.0)?;
    same_bytes("message", &bed.read(&into, HEADER, 8), &pattern(1, 8))?;
    // Without one, none is reported.
    same("header reported", deliver(bed, (a, b), 3, &from, &into)?.global, false)
}

fn source_lid(bed: &mut Bed<'_>) -> Check {
    let (a, b, from, into) = ends(bed, 8)?;
    let port = bed.port(End::A);
    let lid = bed.device(End::A).port(port)?.lid;
    same("source LID", deliver(bed, (a, b), 1, &from, &into)?.source_lid, lid)
}

fn damaged(bed: &mut Bed<'_>) -> Check {
    one_lost(bed, |bed, a, b, from| {
        let handle = bed.handle(End::A, End::B)?;
        bed.inject(End::A, Fault::CorruptPacket)?;
        bed.post(a, datagram(2, &[from.all()], handle, b))?;
        bed.sent(a, 2).map(drop)
    })
}

fn lost_is_lost(bed: &mut Bed<'_>) -> Check {
    one_lost(bed, |bed, a, b, from| {
        let handle = bed.handle(End::A, End::B)?;
        bed.inject(End::A, Fault::LosePackets(1))?;
        bed.post(a, datagram(2, &[from.all()], handle, b))?;
        bed.sent(a, 2).map(drop)
    })
}
