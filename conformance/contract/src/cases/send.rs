//! Sends and receives over a reliable connection.

use rerail_verbs::contract::{CompletionKind, QpState, Status};

use super::{Case, case, case_if};
use crate::bed::queue::{QpParameters, Spec};
use crate::bed::request::{send, send_imm};
use crate::bed::{Bed, pattern};
use crate::failure::{Check, one_of, same, same_bytes};
use crate::testbed::{End, Need};

pub(super) const CASES: &[Case] = &[
    case("send/delivers-bytes", "IBA 9.7 (reliable service) and 11.4.2.1; ibv_poll_cq(3)", delivers_bytes),
    case("send/immediate", "IBA 9.4.1 (SEND) and 11.4.2.1; ibv_poll_cq(3)", immediate),
    case("send/of-nothing", "IBA 9.4.1 (SEND); ibv_post_send(3)", of_nothing),
    case_if(&[Need::Gather], "send/gathers-and-scatters", "IBA 11.4.1.1; ibv_post_send(3)", gathers),
    case("send/many-packets", "IBA 9.4.1 (SEND First, Middle, Last)", many_packets),
    case("send/every-mtu", "IBA 9.4.1; ibv_modify_qp(3) (path_mtu)", every_mtu),
    case("send/shorter-than-the-receive", "IBA 11.4.2.1; ibv_post_recv(3)", shorter),
    case("send/longer-than-the-receive", "IBA 9.9.3 (responder errors) and 11.6.2; ibv_poll_cq(3)", longer),
    case("send/receives-in-order-of-posting", "IBA 10.8.3; ibv_post_recv(3)", receives_in_order),
    case("send/ids-come-back", "IBA 11.4.2.1; ibv_poll_cq(3)", ids_come_back),
    case("send/queues-wrap-around", "IBA 10.8.5; ibv_post_send(3)", queues_wrap),
    case("send/both-ways", "IBA 9.7", both_ways),
    case("send/numbers-wrap-around", "IBA 9.7 (packet sequence numbers)", numbers_wrap),
    case("send/within-one-device", "IBA chapter 10 (loopback between queue pairs of one adapter)", within_one_device),
    case("send/one-queue-for-both", "IBA chapter 10 (completion queues); ibv_create_qp(3)", one_queue_for_both),
    case("send/pairs-do-not-mix", "IBA 9.7 (delivery to the connected queue pair alone)", pairs_do_not_mix),
    case("send/poll-takes-no-more-than-asked", "IBA 11.4.2.1; ibv_poll_cq(3)", poll_takes_no_more),
];

fn delivers_bytes(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let bytes = pattern(1, 256);
    let (from, into) = (bed.filled(End::A, &bytes)?, bed.region(End::B, 256)?);
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, send(2, &[from.all()]))?;
    same("kind of the sender's completion", bed.sent(a, 2)?.kind, CompletionKind::Send)?;
    same("immediate data", bed.received(b, 1, 256)?.immediate, None)?;
    same_bytes("message", &bed.read(&into, 0, 256), &bytes)?;
    same_bytes("sender's memory", &bed.read(&from, 0, 256), &bytes)
}

fn immediate(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &[1; 8])?, bed.region(End::B, 8)?);
    for (id, value) in [(1, 0), (2, 0x1234_5678), (3, u32::MAX)] {
        bed.recv(b, id, &[into.all()])?;
        bed.post(a, send_imm(id, &[from.all()], value))?;
        bed.sent(a, id)?;
        same("immediate data", bed.received(b, id, 8)?.immediate, Some(value))?;
    }
    Ok(())
}

fn of_nothing(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let into = bed.filled(End::B, &[9; 8])?;
    bed.recv(b, 1, &[into.all()])?;
    bed.recv(b, 2, &[])?;
    for id in 1..3 {
        bed.post(a, send_imm(id, &[], 5))?;
        bed.sent(a, id)?;
        same("immediate data", bed.received(b, id, 0)?.immediate, Some(5))?;
    }
    same_bytes("receiver's memory", &bed.read(&into, 0, 8), &[9; 8])
}

fn gathers(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec { sges: 2, ..Spec::RC }, QpParameters::USUAL)?;
    let bytes = pattern(2, 100);
    let (one, two) = (bed.filled(End::A, &bytes[..30])?, bed.filled(End::A, &bytes[30..])?);
    let (three, four) = (bed.region(End::B, 64)?, bed.region(End::B, 64)?);
    bed.recv(b, 1, &[three.part(0, 64), four.part(8, 56)])?;
    bed.post(a, send(2, &[one.all(), two.all()]))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, 100)?;
    same_bytes("first piece", &bed.read(&three, 0, 64), &bytes[..64])?;
    same_bytes("second piece", &bed.read(&four, 8, 36), &bytes[64..])?;
    same_bytes("before the second piece", &bed.read(&four, 0, 8), &[0; 8])?;
    same_bytes("behind the message", &bed.read(&four, 44, 20), &[0; 20])
}

fn many_packets(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let len = 100_003;
    let bytes = pattern(3, len);
    let (from, into) = (bed.filled(End::A, &bytes)?, bed.region(End::B, len)?);
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, send(2, &[from.all()]))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, len)?;
    same_bytes("message", &bed.read(&into, 0, len), &bytes)
}

fn every_mtu(bed: &mut Bed<'_>) -> Check {
    let most = [End::A, End::B].map(|end| {
        let port = bed.port(end);
        bed.device(end).port(port).ok().and_then(|port| port.mtu_bytes).unwrap_or(256)
    });
    for path_mtu in [256, 512, 1024, 2048, 4096].into_iter().filter(|mtu| *mtu <= most[0].min(most[1])) {
        let [a, b] = bed.rc_with(Spec::RC, QpParameters { path_mtu, ..QpParameters::USUAL })?;
        // Just under, at and just over whole packets.
        for (id, len) in
            [(1, 2 * usize::from(path_mtu) - 1), (2, usize::from(path_mtu)), (3, usize::from(path_mtu) + 1)]
        {
            let bytes = pattern(id as u8, len);
            let (from, into) = (bed.filled(End::A, &bytes)?, bed.region(End::B, len)?);
            bed.recv(b, id, &[into.all()])?;
            bed.post(a, send(id, &[from.all()]))?;
            bed.sent(a, id)?;
            bed.received(b, id, len)?;
            same_bytes(format!("{len} bytes with an MTU of {path_mtu}"), &bed.read(&into, 0, len), &bytes)?;
        }
    }
    Ok(())
}

fn shorter(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &[1; 10])?, bed.filled(End::B, &[9; 64])?);
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, send(2, &[from.all()]))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, 10)?;
    same_bytes("message", &bed.read(&into, 0, 10), &[1; 10])?;
    same_bytes("behind it", &bed.read(&into, 10, 54), &[9; 54])
}

fn longer(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &[1; 64])?, bed.region(End::B, 64)?);
    bed.recv(b, 1, &[into.part(0, 32)])?;
    bed.post(a, send(2, &[from.all()]))?;
    bed.send_ended(a, 2, Status::RemoteInvalid)?;
    bed.recv_ended(b, 1, Status::LocalLength)?;
    bed.comes_to(a, QpState::Error)?;
    bed.comes_to(b, QpState::Error)?;
    same_bytes("behind the receive", &bed.read(&into, 32, 32), &[0; 32])
}

fn receives_in_order(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let into = bed.region(End::B, 64)?;
    for slot in 0..8 {
        bed.recv(b, 10 + slot as u64, &[into.part(8 * slot, 8)])?;
    }
    for slot in 0..8u64 {
        let from = bed.filled(End::A, &[slot as u8 + 1; 8])?;
        bed.post(a, send(slot, &[from.all()]))?;
        bed.sent(a, slot)?;
    }
    for slot in 0..8 {
        bed.received(b, 10 + slot as u64, 8)?;
        same_bytes(format!("message {slot}"), &bed.read(&into, 8 * slot, 8), &[slot as u8 + 1; 8])?;
    }
    Ok(())
}

fn ids_come_back(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let ids = [0, 1, u64::MAX, 0x8000_0000_0000_0000, 0x0123_4567_89ab_cdef, 1];
    for id in ids {
        bed.recv(b, !id, &[])?;
        bed.post(a, send(id, &[]))?;
    }
    for id in ids {
        bed.sent(a, id)?;
        bed.received(b, !id, 0)?;
    }
    Ok(())
}

fn queues_wrap(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec { depth: 4, ..Spec::RC }, QpParameters::USUAL)?;
    let (from, into) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    for id in 0..50u64 {
        bed.write(&from, 0, &id.to_ne_bytes());
        bed.recv(b, id, &[into.all()])?;
        bed.post(a, send(id, &[from.all()]))?;
        bed.sent(a, id)?;
        bed.received(b, id, 8)?;
        same("message", bed.word(&into, 0), id)?;
    }
    Ok(())
}

fn both_ways(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let len = 10_000;
    let (from_a, from_b) = (bed.filled(End::A, &pattern(1, len))?, bed.filled(End::B, &pattern(2, len))?);
    let (at_a, at_b) = (bed.region(End::A, len)?, bed.region(End::B, len)?);
    bed.recv(a, 1, &[at_a.all()])?;
    bed.recv(b, 2, &[at_b.all()])?;
    bed.post(a, send(3, &[from_a.all()]))?;
    bed.post(b, send(4, &[from_b.all()]))?;
    bed.sent(a, 3)?;
    bed.sent(b, 4)?;
    bed.received(a, 1, len)?;
    bed.received(b, 2, len)?;
    same_bytes("at A", &bed.read(&at_a, 0, len), &pattern(2, len))?;
    same_bytes("at B", &bed.read(&at_b, 0, len), &pattern(1, len))
}

fn numbers_wrap(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters { psn: 0xff_fffd, path_mtu: 256, ..QpParameters::USUAL })?;
    let len = 256 * 5;
    let (from, into) = (bed.filled(End::A, &pattern(4, len))?, bed.region(End::B, len)?);
    let back = bed.region(End::A, len)?;
    for id in 0..3 {
        bed.recv(b, id, &[into.all()])?;
        bed.post(a, send(id, &[from.all()]))?;
        bed.sent(a, id)?;
        bed.received(b, id, len)?;
    }
    same_bytes("message", &bed.read(&into, 0, len), &pattern(4, len))?;
    // Reads count in the other direction too.
    bed.post(b, crate::bed::request::write(9, &[into.all()], back.remote(0)))?;
    bed.sent(b, 9)?;
    same_bytes("written back", &bed.read(&back, 0, len), &pattern(4, len))
}

fn within_one_device(bed: &mut Bed<'_>) -> Check {
    let (one, other) = (bed.queue(End::A, Spec::RC)?, bed.queue(End::A, Spec::RC)?);
    bed.connect(one, other, QpParameters::USUAL)?;
    let (from, into) = (bed.filled(End::A, &[1; 8])?, bed.region(End::A, 8)?);
    bed.recv(other, 1, &[into.all()])?;
    bed.post(one, send(2, &[from.all()]))?;
    bed.sent(one, 2)?;
    bed.received(other, 1, 8)?;
    same_bytes("message", &bed.read(&into, 0, 8), &[1; 8])
}

fn one_queue_for_both(bed: &mut Bed<'_>) -> Check {
    let cq = bed.cq(End::A, 64)?;
    let a = bed.queue(End::A, Spec { cq: Some(cq), ..Spec::RC })?;
    let b = bed.queue(End::B, Spec::RC)?;
    bed.connect(a, b, QpParameters::USUAL)?;
    bed.recv(a, 1, &[])?;
    bed.recv(b, 2, &[])?;
    bed.post(a, send(3, &[]))?;
    bed.post(b, send(4, &[]))?;
    bed.sent(b, 4)?;
    let both = [bed.next(End::A, cq)?, bed.next(End::A, cq)?];
    // The order between the two is free.
    for id in [1, 3] {
        same(format!("completions of request {id}"), both.iter().filter(|it| it.id == id).count(), 1)?;
    }
    for came in both {
        let kind = if came.id == 1 { CompletionKind::Recv } else { CompletionKind::Send };
        same(format!("kind of request {}", came.id), came.kind, kind)?;
    }
    bed.nothing(End::A, cq)
}

fn pairs_do_not_mix(bed: &mut Bed<'_>) -> Check {
    let ([a1, b1], [a2, b2]) = (bed.rc()?, bed.rc()?);
    let (one, two) = (bed.filled(End::A, &[1; 8])?, bed.filled(End::A, &[2; 8])?);
    let (into1, into2) = (bed.region(End::B, 8)?, bed.region(End::B, 8)?);
    bed.recv(b1, 1, &[into1.all()])?;
    bed.recv(b2, 2, &[into2.all()])?;
    bed.post(a2, send(2, &[two.all()]))?;
    bed.post(a1, send(1, &[one.all()]))?;
    bed.sent(a1, 1)?;
    bed.sent(a2, 2)?;
    bed.received(b1, 1, 8)?;
    bed.received(b2, 2, 8)?;
    same_bytes("first connection", &bed.read(&into1, 0, 8), &[1; 8])?;
    same_bytes("second connection", &bed.read(&into2, 0, 8), &[2; 8])
}

fn poll_takes_no_more(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    for id in 0..4 {
        bed.recv(b, id, &[])?;
        bed.post(a, send(id, &[]))?;
    }
    for id in 0..4 {
        bed.received(b, id, 0)?;
    }
    bed.run_until_idle();
    let cq = a.send_cq()?;
    let mut out = Vec::new();
    same("completions with most 0", bed.device(End::A).poll_cq(cq, 0, &mut out)?, 0)?;
    let first = bed.device(End::A).poll_cq(cq, 3, &mut out)?;
    one_of("completions with most 3", first, &[1, 2, 3])?;
    while out.len() < 4 {
        let more = bed.wait(
            || "the rest of the completions".into(),
            |bed| {
                let mut more = Vec::new();
                let count = bed.device(End::A).poll_cq(cq, 8, &mut more)?;
                Ok((count > 0).then_some(more))
            },
        )?;
        out.extend(more);
    }
    same("ids in order", out.iter().map(|it| it.id).collect::<Vec<_>>(), vec![0, 1, 2, 3])
}
