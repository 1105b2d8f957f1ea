//! The order of things: on a queue pair everything is in order, and so is what its end leaves behind.

use rerail_verbs::contract::{CompletionKind, QpChange, QpState, SendWr, Status};

use super::{Case, case};
use crate::bed::queue::{QpParameters, Spec};
use crate::bed::request::{read, send, unsignaled, write, write_imm};
use crate::bed::{Bed, pattern};
use crate::failure::{Check, same, same_bytes};
use crate::testbed::End;

const FLUSH: &str = "IBA 10.3.1.7 (error state) and 11.6.2 (flushed); ibv_modify_qp(3)";

pub(super) const CASES: &[Case] = &[
    case("ordering/completions-as-posted", "IBA 10.8.3.3 (send queue ordering rules)", completions_as_posted),
    case("ordering/messages-as-sent", "IBA 9.5 (transaction ordering)", messages_as_sent),
    case("ordering/write-before-send", "IBA 9.5 (transaction ordering) and 10.8.3.3", write_before_send),
    case("ordering/fence-waits-for-reads", "IBA 10.8.3.3; ibv_post_send(3) (IBV_SEND_FENCE)", fence),
    case("ordering/flush-of-receives", FLUSH, flush_of_receives),
    case("ordering/flush-of-sends", FLUSH, flush_of_sends),
    case("ordering/flush-tells-unsignaled", FLUSH, flush_reports_unsignaled),
    case("ordering/first-error-then-flush", "IBA 10.8.5 and 11.6.2; ibv_poll_cq(3)", first_error_then_flush),
    case("ordering/done-before-failed", "IBA 10.8.3.3; ibv_poll_cq(3)", done_before_failed),
    case("ordering/reset-forgets", "IBA 10.3.1.1 (reset)", reset_forgets),
    case("ordering/error-of-one-spares-others", "IBA 10.3.1.7", spares_others),
];

fn completions_as_posted(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let len = 20_000;
    let (near, far) = (bed.region(End::A, len)?, bed.region(End::B, len)?);
    bed.recvs(b, 0..4, &far)?;
    // Long and short, with and without an answer that carries data.
    let (long, short) = ([near.all()], [near.part(0, 1)]);
    let posted = [
        read(0, &long, far.remote(0)),
        send(1, &short),
        write(2, &long, far.remote(0)),
        read(3, &short, far.remote(0)),
        send(4, &long),
        write_imm(5, &short, far.remote(0), 1),
        read(6, &long, far.remote(0)),
        send(7, &short),
    ];
    bed.try_post(a, &posted)?;
    use CompletionKind::*;
    for (id, kind) in [Read, Send, Write, Read, Send, Write, Read, Send].into_iter().enumerate() {
        same(format!("kind of completion {id}"), bed.sent(a, id as u64)?.kind, kind)?;
    }
    Ok(())
}

fn messages_as_sent(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let lens = [9000, 0, 1, 5000, 1024, 1025, 3, 20_000];
    let into = bed.region(End::B, 20_000)?;
    bed.recvs(b, 0..8, &into)?;
    let from = bed.filled(End::A, &pattern(0, 20_000))?;
    for (id, len) in lens.into_iter().enumerate() {
        bed.post(a, send(id as u64, &[from.part(0, len)]))?;
    }
    for (id, len) in lens.into_iter().enumerate() {
        bed.received(b, id as u64, len)?;
    }
    Ok(())
}

fn write_before_send(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let len = 30_000;
    let (from, into) = (bed.filled(End::A, &pattern(7, len))?, bed.region(End::B, len)?);
    bed.recv(b, 1, &[])?;
    let (data, nothing) = ([from.all()], []);
    bed.try_post(a, &[unsignaled(write(1, &data, into.remote(0))), send(2, &nothing)])?;
    // A process that has received the send may look at what was written before it.
    bed.received(b, 1, 0)?;
    same_bytes("memory written", &bed.read(&into, 0, len), &pattern(7, len))
}

fn fence(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let len = 20_000;
    let (near, far) = (bed.region(End::A, len)?, bed.filled(End::B, &pattern(8, len))?);
    let into = bed.region(End::B, len)?;
    bed.recv(b, 1, &[into.all()])?;
    // What is sent is what the read before it has fetched.
    let all = [near.all()];
    let fenced = SendWr { fence: true, ..send(2, &all) };
    bed.try_post(a, &[read(1, &all, far.remote(0)), fenced])?;
    bed.sent(a, 1)?;
    bed.sent(a, 2)?;
    bed.received(b, 1, len)?;
    same_bytes("message", &bed.read(&into, 0, len), &pattern(8, len))
}

fn flush_of_receives(bed: &mut Bed<'_>) -> Check {
    let [_, b] = bed.rc()?;
    let into = bed.region(End::B, 8)?;
    bed.recvs(b, 0..10, &into)?;
    bed.fail(b)?;
    for id in 0..10 {
        bed.recv_ended(b, id, Status::Flushed)?;
    }
    bed.no_more_received(b)
}

fn flush_of_sends(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    bed.recv(b, 1, &[])?;
    bed.device(End::A).modify_qp(a.id, &QpChange::to(QpState::Sqd))?;
    for id in 0..10 {
        bed.post(a, send(id, &[]))?;
    }
    bed.fail(a)?;
    for id in 0..10 {
        bed.send_ended(a, id, Status::Flushed)?;
    }
    bed.no_more_sent(a)?;
    // Nothing of them has reached the peer.
    bed.no_more_received(b)
}

fn flush_reports_unsignaled(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    bed.device(End::A).modify_qp(a.id, &QpChange::to(QpState::Sqd))?;
    for id in 0..6 {
        bed.post(a, SendWr { signaled: id % 2 == 0, ..send(id, &[]) })?;
    }
    bed.fail(a)?;
    for id in 0..6 {
        bed.send_ended(a, id, Status::Flushed)?;
    }
    Ok(())
}

fn first_error_then_flush(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    bed.recvs(b, 0..4, &into)?;
    let all = [from.all()];
    let bad = write(1, &all, into.remote(into.len));
    bed.try_post(a, &[bad, send(2, &all), unsignaled(send(3, &all)), send(4, &all)])?;
    bed.send_ended(a, 1, Status::RemoteAccess)?;
    for id in 2..5 {
        bed.send_ended(a, id, Status::Flushed)?;
    }
    bed.comes_to(a, QpState::Error)?;
    // The peer's end fails with it: its receives are flushed, none is filled.
    for id in 0..4 {
        bed.recv_ended(b, id, Status::Flushed)?;
    }
    Ok(())
}

fn done_before_failed(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    bed.recvs(b, 0..2, &into)?;
    let all = [from.all()];
    let bad = write(3, &all, into.remote(into.len));
    bed.try_post(a, &[send(1, &all), unsignaled(send(2, &all)), bad])?;
    bed.sent(a, 1)?;
    bed.send_ended(a, 3, Status::RemoteAccess)?;
    bed.received(b, 0, 8)?;
    bed.received(b, 1, 8).map(drop)
}

fn reset_forgets(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let into = bed.region(End::B, 8)?;
    bed.recvs(b, 0..4, &into)?;
    bed.device(End::A).modify_qp(a.id, &QpChange::to(QpState::Sqd))?;
    bed.post(a, send(1, &[]))?;
    for queue in [a, b] {
        bed.device(queue.end).modify_qp(queue.id, &QpChange::to(QpState::Reset))?;
    }
    bed.no_more_sent(a)?;
    bed.no_more_received(b)?;
    // Connected anew, the old requests are not there.
    bed.connect(a, b, QpParameters::USUAL)?;
    bed.recv(b, 7, &[])?;
    bed.post(a, send(8, &[]))?;
    bed.sent(a, 8)?;
    bed.received(b, 7, 0)?;
    bed.no_more_sent(a)
}

fn spares_others(bed: &mut Bed<'_>) -> Check {
    let cq = bed.cq(End::A, 64)?;
    let spec = Spec { cq: Some(cq), ..Spec::RC };
    let (a1, a2) = (bed.queue(End::A, spec)?, bed.queue(End::A, spec)?);
    let (b1, b2) = (bed.queue(End::B, Spec::RC)?, bed.queue(End::B, Spec::RC)?);
    bed.connect(a1, b1, QpParameters::USUAL)?;
    bed.connect(a2, b2, QpParameters::USUAL)?;
    bed.fail(a1)?;
    bed.recv(b2, 1, &[])?;
    bed.post(a1, send(1, &[]))?;
    bed.ended(End::A, cq, 1, Status::Flushed)?;
    bed.post(a2, send(2, &[]))?;
    bed.ended(End::A, cq, 2, Status::Success)?;
    bed.received(b2, 1, 0)?;
    bed.in_state(a2, QpState::Rts)
}
