//! Reads and writes of the peer's memory.

use rerail_verbs::contract::{CompletionKind, Remote};

use super::{Case, case, case_if};
use crate::bed::queue::{QpParameters, Spec};
use crate::bed::request::{read, send, write, write_imm};
use crate::bed::{Bed, pattern};
use crate::failure::{Check, same, same_bytes};
use crate::testbed::{End, Need};

pub(super) const CASES: &[Case] = &[
    case("rdma/write", "IBA 9.4.3 (RDMA WRITE); ibv_post_send(3)", write_plain),
    case("rdma/write-is-silent", "IBA 9.4.3 and 10.8.3; ibv_post_send(3)", write_is_silent),
    case("rdma/write-many-packets", "IBA 9.4.3 (RDMA WRITE First, Middle, Last)", write_many),
    case("rdma/write-of-nothing", "IBA 9.4.3", write_nothing),
    case("rdma/nothing-needs-no-key", "IBA 9.4.3, 9.4.4: a zero-length request's R_Key is not checked", no_key),
    case_if(&[Need::Gather], "rdma/write-gathers", "IBA 11.4.1.1; ibv_post_send(3)", write_gathers),
    case("rdma/write-immediate", "IBA 9.4.3 (RDMA WRITE with immediate); ibv_poll_cq(3)", write_immediate),
    case("rdma/write-immediate-of-nothing", "IBA 9.4.3; ibv_poll_cq(3)", write_immediate_nothing),
    case("rdma/read", "IBA 9.4.4 (RDMA READ); ibv_poll_cq(3)", read_plain),
    case("rdma/read-many-packets", "IBA 9.4.4 (RDMA READ response First, Middle, Last)", read_many),
    case("rdma/read-of-nothing", "IBA 9.4.4", read_nothing),
    case_if(&[Need::Gather], "rdma/read-scatters", "IBA 11.4.1.1; ibv_post_send(3)", read_scatters),
    case("rdma/read-takes-no-receive", "IBA 9.4.4", read_takes_no_receive),
    case("rdma/more-reads-than-may-be-open", "IBA 9.7 and 11.2.5.2 (outstanding reads); ibv_modify_qp(3)", many_reads),
    case("rdma/one-read-at-a-time", "IBA 11.2.5.2; ibv_modify_qp(3) (max_rd_atomic)", one_read),
    case("rdma/read-after-write", "IBA 9.5 (transaction ordering)", read_after_write),
    case_if(&[Need::Iova], "rdma/own-addresses", "IBA 10.6 (virtual addresses); ibv_reg_mr(3) (iova)", own_addresses),
];

fn write_plain(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &pattern(1, 64))?, bed.region(End::B, 128)?);
    bed.post(a, write(1, &[from.all()], into.remote(16)))?;
    same("kind", bed.sent(a, 1)?.kind, CompletionKind::Write)?;
    same_bytes("before it", &bed.read(&into, 0, 16), &[0; 16])?;
    same_bytes("what was written", &bed.read(&into, 16, 64), &pattern(1, 64))?;
    same_bytes("behind it", &bed.read(&into, 80, 48), &[0; 48])
}

fn write_is_silent(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    bed.recv(b, 1, &[into.all()])?;
    bed.post(a, write(2, &[from.all()], into.remote(0)))?;
    bed.sent(a, 2)?;
    bed.no_more_received(b)?;
    // The receive is there still.
    bed.post(a, send(3, &[from.all()]))?;
    bed.received(b, 1, 8).map(drop)
}

fn write_many(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let len = 100_001;
    let (from, into) = (bed.filled(End::A, &pattern(2, len))?, bed.region(End::B, len)?);
    bed.post(a, write(1, &[from.all()], into.remote(0)))?;
    bed.sent(a, 1)?;
    same_bytes("what was written", &bed.read(&into, 0, len), &pattern(2, len))
}

fn write_nothing(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let into = bed.filled(End::B, &[9; 8])?;
    bed.post(a, write(1, &[], into.remote(0)))?;
    bed.sent(a, 1)?;
    same_bytes("memory", &bed.read(&into, 0, 8), &[9; 8])
}

fn no_key(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let nowhere = Remote { address: 0x10, rkey: 0xdead_beef };
    bed.post(a, write(1, &[], nowhere))?;
    bed.sent(a, 1)?;
    bed.post(a, read(2, &[], nowhere))?;
    bed.sent(a, 2).map(drop)
}

fn write_gathers(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc_with(Spec { sges: 2, ..Spec::RC }, QpParameters::USUAL)?;
    let bytes = pattern(3, 2500);
    let (one, two) = (bed.filled(End::A, &bytes[..1700])?, bed.filled(End::A, &bytes[1700..])?);
    let into = bed.region(End::B, 2500)?;
    bed.post(a, write(1, &[one.all(), two.all()], into.remote(0)))?;
    bed.sent(a, 1)?;
    same_bytes("what was written", &bed.read(&into, 0, 2500), &bytes)
}

fn write_immediate(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (from, into) = (bed.filled(End::A, &pattern(4, 3000))?, bed.region(End::B, 3000)?);
    let receive = bed.region(End::B, 16)?;
    bed.recv(b, 1, &[receive.all()])?;
    bed.post(a, write_imm(2, &[from.all()], into.remote(0), 77))?;
    same("kind at the writer", bed.sent(a, 2)?.kind, CompletionKind::Write)?;
    let came = bed.ended(End::B, b.recv_cq()?, 1, rerail_verbs::contract::Status::Success)?;
    same("kind at the peer", came.kind, CompletionKind::RecvWrite)?;
    same("immediate data", came.immediate, Some(77))?;
    same("bytes written", came.bytes, 3000)?;
    same_bytes("what was written", &bed.read(&into, 0, 3000), &pattern(4, 3000))?;
    same_bytes("memory of the receive", &bed.read(&receive, 0, 16), &[0; 16])
}

fn write_immediate_nothing(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let into = bed.region(End::B, 8)?;
    bed.recv(b, 1, &[])?;
    bed.post(a, write_imm(2, &[], into.remote(0), 78))?;
    bed.sent(a, 2)?;
    let came = bed.ended(End::B, b.recv_cq()?, 1, rerail_verbs::contract::Status::Success)?;
    same("kind at the peer", came.kind, CompletionKind::RecvWrite)?;
    same("immediate data", came.immediate, Some(78))
}

fn read_plain(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (near, far) = (bed.region(End::A, 128)?, bed.filled(End::B, &pattern(5, 64))?);
    bed.post(a, read(1, &[near.part(8, 32)], far.remote(16)))?;
    let came = bed.sent(a, 1)?;
    same("kind", came.kind, CompletionKind::Read)?;
    same("bytes", came.bytes, 32)?;
    same_bytes("before it", &bed.read(&near, 0, 8), &[0; 8])?;
    same_bytes("what was read", &bed.read(&near, 8, 32), &pattern(5, 64)[16..48])?;
    same_bytes("behind it", &bed.read(&near, 40, 88), &[0; 88])
}

fn read_many(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let len = 100_001;
    let (near, far) = (bed.region(End::A, len)?, bed.filled(End::B, &pattern(6, len))?);
    bed.post(a, read(1, &[near.all()], far.remote(0)))?;
    bed.sent(a, 1)?;
    same_bytes("what was read", &bed.read(&near, 0, len), &pattern(6, len))
}

fn read_nothing(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let far = bed.region(End::B, 8)?;
    bed.post(a, read(1, &[], far.remote(0)))?;
    same("bytes", bed.sent(a, 1)?.bytes, 0)
}

fn read_scatters(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc_with(Spec { sges: 2, ..Spec::RC }, QpParameters::USUAL)?;
    let far = bed.filled(End::B, &pattern(7, 2500))?;
    let (one, two) = (bed.region(End::A, 1700)?, bed.region(End::A, 800)?);
    bed.post(a, read(1, &[one.all(), two.all()], far.remote(0)))?;
    bed.sent(a, 1)?;
    same_bytes("first piece", &bed.read(&one, 0, 1700), &pattern(7, 2500)[..1700])?;
    same_bytes("second piece", &bed.read(&two, 0, 800), &pattern(7, 2500)[1700..])
}

fn read_takes_no_receive(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    let (near, far) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    bed.recv(b, 1, &[])?;
    bed.post(a, read(2, &[near.all()], far.remote(0)))?;
    bed.sent(a, 2)?;
    bed.no_more_received(b)
}

fn many_reads(bed: &mut Bed<'_>) -> Check {
    bed.needs_reads(2)?;
    reads(bed, 2)
}

fn one_read(bed: &mut Bed<'_>) -> Check {
    bed.needs_reads(1)?;
    reads(bed, 1)
}

/// Sixteen reads, of which so many may be open: all are done, in order.
fn reads(bed: &mut Bed<'_>, open: u8) -> Check {
    let [a, _] = bed.rc_with(Spec::RC, QpParameters { reads: open, ..QpParameters::USUAL })?;
    let len = 4096;
    let (near, far) = (bed.region(End::A, 16 * len)?, bed.filled(End::B, &pattern(8, 16 * len))?);
    for id in 0..16 {
        bed.post(a, read(id as u64, &[near.part(id * len, len)], far.remote(id * len)))?;
    }
    for id in 0..16 {
        bed.sent(a, id)?;
    }
    same_bytes("what was read", &bed.read(&near, 0, 16 * len), &pattern(8, 16 * len))
}

fn read_after_write(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let len = 10_000;
    let (from, far) = (bed.filled(End::A, &pattern(9, len))?, bed.region(End::B, len)?);
    let back = bed.region(End::A, len)?;
    let (out, into) = ([from.all()], [back.all()]);
    bed.try_post(a, &[write(1, &out, far.remote(0)), read(2, &into, far.remote(0))])?;
    bed.sent(a, 1)?;
    bed.sent(a, 2)?;
    same_bytes("what was read", &bed.read(&back, 0, len), &pattern(9, len))
}

fn own_addresses(bed: &mut Bed<'_>) -> Check {
    let [a, b] = bed.rc()?;
    // From 0 on: offsets instead of addresses.
    let (near, far) = (bed.region_at(End::A, 0, 64)?, bed.region_at(End::B, 0x7000_0000_0000, 64)?);
    bed.write(&near, 0, &pattern(1, 64));
    bed.post(a, write(1, &[near.part(8, 16)], far.remote(32)))?;
    bed.sent(a, 1)?;
    same_bytes("what was written", &bed.read(&far, 32, 16), &pattern(1, 64)[8..24])?;
    bed.recv(b, 2, &[far.part(0, 8)])?;
    bed.post(a, send(3, &[near.part(0, 8)]))?;
    bed.sent(a, 3)?;
    bed.received(b, 2, 8)?;
    same_bytes("what was received", &bed.read(&far, 0, 8), &pattern(1, 64)[..8])
}
