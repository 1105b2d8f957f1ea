//! Receives that are not there yet, peers that don't answer, packets that are lost.

use rerail_verbs::contract::{QpState, Status};

use super::{Case, case, case_if};
use crate::bed::queue::{QpParameters, Spec};
use crate::bed::request::{read, send, write, write_imm};
use crate::bed::{Bed, pattern};
use crate::failure::{Check, same, same_bytes};
use crate::testbed::{End, Fault, Need};

const RNR: &str = "IBA 9.7.5.2.8 (RNR NAK) and 11.6.2; ibv_modify_qp(3) (rnr_retry)";
const RETRY: &str = "IBA 9.7.6.1.3 (ACK timeout) and 11.6.2; ibv_modify_qp(3) (timeout, retry_cnt)";
const LOSE_ACK: &[Need] = &[Need::Fault(Fault::LoseAcks(1))];
const LOSE_PACKET: &[Need] = &[Need::Fault(Fault::LosePackets(1))];

pub(super) const CASES: &[Case] = &[
    case("retry/waits-for-the-receive", RNR, waits_for_the_receive),
    case("retry/waits-in-order", RNR, waits_in_order),
    case("retry/receive-never-posted", RNR, |bed| receive_never_posted(bed, 1)),
    case("retry/receive-never-posted-no-retry", RNR, |bed| receive_never_posted(bed, 0)),
    case("retry/receiver-is-not-to-blame", RNR, receiver_not_to_blame),
    case("retry/write-immediate-needs-a-receive", "IBA 9.4.3 and 9.7.5.2.8; ibv_post_send(3)", write_immediate),
    case("retry/write-and-read-need-none", "IBA 9.4.3 and 9.4.4", need_none),
    case("retry/peer-in-reset", RETRY, peer_in_reset),
    case("retry/peer-in-error", RETRY, peer_in_error),
    case("retry/peer-destroyed", RETRY, peer_destroyed),
    case("retry/no-such-peer", RETRY, no_such_peer),
    case("retry/then-flush", "IBA 10.8.5, 10.3.1.7 and 11.6.2; ibv_poll_cq(3)", then_flush),
    case("retry/timeout-zero-waits", "IBA 9.7.6.1.3 (0: infinite); ibv_modify_qp(3) (timeout)", timeout_zero),
    case_if(LOSE_ACK, "retry/lost-ack-delivers-once", "IBA 9.7.5 (duplicate requests)", lost_ack_delivers_once),
    case_if(LOSE_ACK, "retry/lost-ack-of-write-immediate", "IBA 9.7.5 (duplicate requests)", lost_ack_of_write),
    case_if(LOSE_PACKET, "retry/lost-packet-is-repeated", RETRY, lost_packet),
    case_if(LOSE_PACKET, "retry/lost-packet-of-a-read", RETRY, lost_packet_of_read),
    case_if(
        &[Need::Fault(Fault::CorruptPacket)],
        "retry/damaged-packet-is-repeated",
        "IBA 7.8 (CRC) and 9.7.6.1.3",
        damaged_packet,
    ),
];

fn waits_for_the_receive(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &pattern(1, 3000))?, bed.region(End::B, 3000)?);
    bed.post(a, send(1, &[from.all()]))?;
    bed.no_more_sent(a)?;
    bed.recv(b, 2, &[into.all()])?;
    bed.sent(a, 1)?;
    bed.received(b, 2, 3000)?;
    same_bytes("message", &bed.read(&into, 0, 3000), &pattern(1, 3000))
}

fn waits_in_order(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &pattern(2, 64))?, bed.region(End::B, 64)?);
    for id in 0..6 {
        bed.post(a, send(id, &[from.part(0, id as usize)]))?;
    }
    bed.run_until_idle();
    for id in 0..6 {
        bed.recv(b, id, &[into.all()])?;
        bed.received(b, id, id as usize)?;
        bed.sent(a, id)?;
    }
    Ok(())
}

fn receive_never_posted(bed: &mut Bed<'_>, rnr_retry: u8) -> Check {
    let [a, _] = bed.rc_with(Spec::RC, QpParameters { rnr_retry, ..QpParameters::USUAL })?;
    bed.post(a, send(1, &[]))?;
    bed.post(a, send(2, &[]))?;
    bed.send_ended(a, 1, Status::RnrRetryExceeded)?;
    bed.send_ended(a, 2, Status::Flushed)?;
    bed.comes_to(a, QpState::Error)
}

fn receiver_not_to_blame(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters { rnr_retry: 0, ..QpParameters::USUAL })?;
    bed.post(a, send(1, &[]))?;
    bed.send_ended(a, 1, Status::RnrRetryExceeded)?;
    bed.run_until_idle();
    bed.in_state(b, QpState::Rts)
}

fn write_immediate(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc_with(Spec::RC, QpParameters { rnr_retry: 0, ..QpParameters::USUAL })?;
    let into = bed.region(End::B, 8)?;
    bed.post(a, write_imm(1, &[], into.remote(0), 1))?;
    bed.send_ended(a, 1, Status::RnrRetryExceeded).map(drop)
}

fn need_none(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc_with(Spec::RC, QpParameters { rnr_retry: 0, ..QpParameters::USUAL })?;
    let (near, far) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    bed.post(a, write(1, &[near.all()], far.remote(0)))?;
    bed.post(a, read(2, &[near.all()], far.remote(0)))?;
    bed.sent(a, 1)?;
    bed.sent(a, 2).map(drop)
}

fn peer_in_reset(bed: &mut Bed<'_>) -> Check {
    let (a, b) = (bed.queue(End::A, Spec::RC)?, bed.queue(End::B, Spec::RC)?);
    let attributes = bed.attributes_to(a, b, QpParameters::SHORT_TIMEOUT)?;
    bed.raise(a, QpState::Rts, &attributes)?;
    bed.post(a, send(1, &[]))?;
    bed.send_ended(a, 1, Status::RetryExceeded)?;
    bed.comes_to(a, QpState::Error)
}

fn peer_in_error(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters::SHORT_TIMEOUT)?;
    bed.fail(b)?;
    bed.post(a, send(1, &[]))?;
    bed.send_ended(a, 1, Status::RetryExceeded).map(drop)
}

fn peer_destroyed(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters::SHORT_TIMEOUT)?;
    bed.device(End::B).destroy_qp(b.id)?;
    let (near, far) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    bed.post(a, write(1, &[near.all()], far.remote(0)))?;
    bed.send_ended(a, 1, Status::RetryExceeded)?;
    bed.comes_to(a, QpState::Error)
}

fn no_such_peer(bed: &mut Bed<'_>) -> Check {
    let a = bed.queue(End::A, Spec::RC)?;
    let address = bed.address(End::A, End::B, 0)?;
    // Made and destroyed, so that no queue pair has the number.
    let gone = bed.queue(End::B, Spec::RC)?;
    bed.device(End::B).destroy_qp(gone.id)?;
    let attributes = bed.attributes(a, gone.number, address, QpParameters::SHORT_TIMEOUT);
    bed.raise(a, QpState::Rts, &attributes)?;
    bed.post(a, send(1, &[]))?;
    bed.send_ended(a, 1, Status::RetryExceeded).map(drop)
}

fn then_flush(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters::SHORT_TIMEOUT)?;
    bed.recv(a, 9, &[])?;
    bed.fail(b)?;
    for id in 0..5 {
        bed.post(a, crate::bed::request::unsignaled(send(id, &[])))?;
    }
    bed.send_ended(a, 0, Status::RetryExceeded)?;
    for id in 1..5 {
        bed.send_ended(a, id, Status::Flushed)?;
    }
    bed.recv_ended(a, 9, Status::Flushed)?;
    bed.no_more_sent(a)
}

fn timeout_zero(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters { timeout: 0, ..QpParameters::SHORT_TIMEOUT })?;
    bed.fail(b)?;
    bed.post(a, send(1, &[]))?;
    bed.no_more_sent(a)?;
    bed.in_state(a, QpState::Rts)
}

fn lost_ack_delivers_once(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters { retry_count: 7, ..QpParameters::SHORT_TIMEOUT })?;
    let (from, into) = (bed.filled(End::A, &[3; 8])?, bed.region(End::B, 8)?);
    bed.recvs(b, 0..3, &into)?;
    bed.inject(End::B, Fault::LoseAcks(1))?;
    bed.post(a, send(1, &[from.all()]))?;
    bed.sent(a, 1)?;
    bed.received(b, 0, 8)?;
    bed.no_more_received(b)?;
    bed.post(a, send(2, &[from.part(0, 4)]))?;
    bed.sent(a, 2)?;
    bed.received(b, 1, 4).map(drop)
}

fn lost_ack_of_write(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters { retry_count: 7, ..QpParameters::SHORT_TIMEOUT })?;
    let (from, into) = (bed.filled(End::A, &pattern(5, 2500))?, bed.region(End::B, 2500)?);
    bed.recv(b, 0, &[])?;
    bed.recv(b, 1, &[])?;
    bed.inject(End::B, Fault::LoseAcks(1))?;
    bed.post(a, write_imm(1, &[from.all()], into.remote(0), 6))?;
    bed.sent(a, 1)?;
    let came = bed.ended(End::B, b.recv_cq()?, 0, Status::Success)?;
    same("immediate data", came.immediate, Some(6))?;
    bed.no_more_received(b)?;
    same_bytes("memory", &bed.read(&into, 0, 2500), &pattern(5, 2500))
}

fn lost_packet(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters { retry_count: 7, ..QpParameters::SHORT_TIMEOUT })?;
    let len = 9000;
    let (from, into) = (bed.filled(End::A, &pattern(6, len))?, bed.region(End::B, len)?);
    for id in 0..4 {
        bed.recv(b, id, &[into.all()])?;
        bed.inject(End::A, Fault::LosePackets(1))?;
        bed.post(a, send(id, &[from.all()]))?;
        bed.sent(a, id)?;
        bed.received(b, id, len)?;
    }
    bed.no_more_received(b)?;
    same_bytes("message", &bed.read(&into, 0, len), &pattern(6, len))
}

fn lost_packet_of_read(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc_with(Spec::RC, QpParameters { retry_count: 7, ..QpParameters::SHORT_TIMEOUT })?;
    let len = 9000;
    let (near, far) = (bed.region(End::A, len)?, bed.filled(End::B, &pattern(7, len))?);
    // Request or answer.
    for (id, end) in [(1, End::A), (2, End::B)] {
        bed.write(&near, 0, &vec![0; len]);
        bed.inject(end, Fault::LosePackets(1))?;
        bed.post(a, read(id, &[near.all()], far.remote(0)))?;
        bed.sent(a, id)?;
        same_bytes("what was read", &bed.read(&near, 0, len), &pattern(7, len))?;
    }
    Ok(())
}

fn damaged_packet(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc_with(Spec::RC, QpParameters { retry_count: 7, ..QpParameters::SHORT_TIMEOUT })?;
    let len = 3000;
    let (from, into) = (bed.filled(End::A, &pattern(8, len))?, bed.region(End::B, len)?);
    bed.recv(b, 1, &[into.all()])?;
    bed.inject(End::A, Fault::CorruptPacket)?;
    bed.post(a, send(1, &[from.all()]))?;
    bed.sent(a, 1)?;
    bed.received(b, 1, len)?;
    same_bytes("message", &bed.read(&into, 0, len), &pattern(8, len))
}
