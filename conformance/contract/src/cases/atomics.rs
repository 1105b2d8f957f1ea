//! Atomics on 8 bytes of the peer's memory.

use rerail_verbs::contract::{CompletionKind, Status};

use super::{Case, case_if};
use crate::bed::Bed;
use crate::bed::queue::{QpParameters, Spec};
use crate::bed::request::{compare_swap, fetch_add};
use crate::failure::{Check, one_of, same};
use crate::testbed::{End, Fault, Need};

const RULE: &str = "IBA 9.4.5 (ATOMIC operations); ibv_post_send(3)";
const ATOMICS: &[Need] = &[Need::Atomics];

pub(super) const CASES: &[Case] = &[
    case_if(ATOMICS, "atomics/fetch-and-add", RULE, add),
    case_if(ATOMICS, "atomics/add-wraps-around", RULE, add_wraps),
    case_if(ATOMICS, "atomics/compare-and-swap", RULE, swap),
    case_if(ATOMICS, "atomics/swap-of-another-value", RULE, no_swap),
    case_if(ATOMICS, "atomics/each-counts-once", RULE, each_counts_once),
    case_if(ATOMICS, "atomics/more-than-may-be-open", "IBA 9.4.5 and 11.2.5.2; ibv_modify_qp(3)", more_than_open),
    case_if(ATOMICS, "atomics/in-order", "IBA 9.5 (transaction ordering)", in_order),
    case_if(ATOMICS, "atomics/misaligned", "IBA 9.4.5: the address is a multiple of 8; ibv_poll_cq(3)", misaligned),
    case_if(
        &[Need::Atomics, Need::Fault(Fault::LoseAcks(1))],
        "atomics/repeated-request-is-not-done-twice",
        "IBA 9.4.5 and 9.7.5 (duplicate requests are answered from saved results)",
        not_done_twice,
    ),
];

fn add(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (old, far) = (bed.region(End::A, 8)?, bed.region(End::B, 24)?);
    bed.write(&far, 8, &40u64.to_ne_bytes());
    bed.post(a, fetch_add(1, &[old.all()], far.remote(8), 2))?;
    same("kind", bed.sent(a, 1)?.kind, CompletionKind::FetchAdd)?;
    same("old value", bed.word(&old, 0), 40)?;
    same("new value", bed.word(&far, 8), 42)?;
    same("word before it", bed.word(&far, 0), 0)?;
    same("word behind it", bed.word(&far, 16), 0)
}

fn add_wraps(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (old, far) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    bed.write(&far, 0, &(u64::MAX - 1).to_ne_bytes());
    bed.post(a, fetch_add(1, &[old.all()], far.remote(0), 5))?;
    bed.sent(a, 1)?;
    same("old value", bed.word(&old, 0), u64::MAX - 1)?;
    same("new value", bed.word(&far, 0), 3)
}

fn swap(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (old, far) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    bed.write(&far, 0, &0x0102_0304_0506_0708u64.to_ne_bytes());
    bed.post(a, compare_swap(1, &[old.all()], far.remote(0), 0x0102_0304_0506_0708, u64::MAX))?;
    same("kind", bed.sent(a, 1)?.kind, CompletionKind::CompareSwap)?;
    same("old value", bed.word(&old, 0), 0x0102_0304_0506_0708)?;
    same("new value", bed.word(&far, 0), u64::MAX)
}

fn no_swap(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (old, far) = (bed.region(End::A, 8)?, bed.region(End::B, 8)?);
    bed.write(&far, 0, &7u64.to_ne_bytes());
    bed.post(a, compare_swap(1, &[old.all()], far.remote(0), 8, 9))?;
    bed.sent(a, 1)?;
    same("old value", bed.word(&old, 0), 7)?;
    same("value after it", bed.word(&far, 0), 7)
}

fn each_counts_once(bed: &mut Bed<'_>) -> Check {
    let pairs = [bed.rc()?, bed.rc()?];
    let (old, far) = (bed.region(End::A, 160)?, bed.region(End::B, 8)?);
    for id in 0..10 {
        for (which, [a, _]) in pairs.into_iter().enumerate() {
            bed.post(a, fetch_add(id as u64, &[old.part(80 * which + 8 * id, 8)], far.remote(0), 1))?;
        }
    }
    for [a, _] in pairs {
        for id in 0..10 {
            bed.sent(a, id)?;
        }
    }
    same("sum", bed.word(&far, 0), 20)?;
    let mut olds: Vec<u64> = (0..20).map(|at| bed.word(&old, 8 * at)).collect();
    olds.sort_unstable();
    same("old values", olds, (0..20).collect())
}

fn more_than_open(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc_with(Spec::RC, QpParameters { reads: 1, ..QpParameters::USUAL })?;
    let (old, far) = (bed.region(End::A, 128)?, bed.region(End::B, 8)?);
    for id in 0..16 {
        bed.post(a, fetch_add(id as u64, &[old.part(8 * id, 8)], far.remote(0), 3))?;
    }
    for id in 0..16 {
        bed.sent(a, id)?;
        same(format!("old value {id}"), bed.word(&old, 8 * id as usize), 3 * id)?;
    }
    same("sum", bed.word(&far, 0), 48)
}

fn in_order(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (old, far) = (bed.region(End::A, 64)?, bed.region(End::B, 8)?);
    // Each finds what the one before it has left.
    for id in 0..8 {
        bed.post(a, compare_swap(id as u64, &[old.part(8 * id, 8)], far.remote(0), id as u64, id as u64 + 1))?;
    }
    for id in 0..8 {
        bed.sent(a, id)?;
    }
    same("value after eight swaps", bed.word(&far, 0), 8)
}

fn misaligned(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc()?;
    let (old, far) = (bed.region(End::A, 8)?, bed.region(End::B, 16)?);
    bed.post(a, fetch_add(1, &[old.all()], far.remote(4), 1))?;
    let came = bed.next(End::A, a.send_cq()?)?;
    one_of("a misaligned atomic", came.status, &[Status::RemoteInvalid, Status::RemoteAccess])?;
    same("memory", (bed.word(&far, 0), bed.word(&far, 8)), (0, 0))
}

fn not_done_twice(bed: &mut Bed<'_>) -> Check {
    let [a, _] = bed.rc_with(Spec::RC, QpParameters { retry_count: 7, ..QpParameters::SHORT_TIMEOUT })?;
    let (old, far) = (bed.region(End::A, 16)?, bed.region(End::B, 8)?);
    bed.inject(End::B, Fault::LoseAcks(1))?;
    bed.post(a, fetch_add(1, &[old.part(0, 8)], far.remote(0), 5))?;
    bed.sent(a, 1)?;
    same("old value", bed.word(&old, 0), 0)?;
    same("new value", bed.word(&far, 0), 5)
}
