//! Atomics.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::ep::Endpoint;
use super::{PANICKED, answer_size};
use crate::abi::data::{AtomicAttr, Ioc, MsgAtomic};
use crate::abi::object::{AtomicOps, FidDomain, FidEp};
use crate::abi::*;
use crate::memory::Target;
use crate::port::{ATOMIC_COUNT_MAX, AtomicCall, Errno, OneSided, Pieces, atomic_of};

/// What an endpoint does.
pub static OPS: AtomicOps = AtomicOps {
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
    ..AtomicOps::ABSENT
};

/// The sorts of atomics, each with its own operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Write,
    Fetch,
    Compare,
}

impl Sort {
    /// Whether the transport does this, and on values of how many bytes.
    fn bytes(self, op: c_int, datatype: c_int) -> Option<usize> {
        let (_, of) = atomic_of(op, datatype)?;
        let fits = match self {
            Sort::Write => !matches!(op, FI_CSWAP..=FI_MSWAP | FI_ATOMIC_READ),
            Sort::Fetch => !matches!(op, FI_CSWAP..=FI_MSWAP),
            Sort::Compare => matches!(op, FI_CSWAP..=FI_MSWAP),
        };
        fits.then_some(of.bytes() as usize)
    }
}

/// The caller's values of `bytes` bytes, each in low bytes.
///
/// # Safety
/// `count` values of `bytes` bytes, 1 to 8, are readable at `start`.
unsafe fn values_at(start: *const c_void, bytes: usize, count: usize) -> impl Iterator<Item = u64> {
    // SAFETY: the caller's promise.
    unsafe { crate::memory::bytes(start.cast(), bytes * count) }.chunks_exact(bytes).map(|read| {
        let mut value = [0; 8];
        value[..read.len()].copy_from_slice(read);
        u64::from_le_bytes(value)
    })
}

/// The common parameters of all calls.
struct Call {
    ep: *mut FidEp,
    peer: u64,
    offset: u64,
    key: u64,
    op: c_int,
    datatype: c_int,
    context: *mut c_void,
    flags: Option<u64>,
    silent: bool,
}

/// Where the values of a call are.
struct Values {
    count: usize,
    operand: *const c_void,
    compare: *const c_void,
    old: *mut c_void,
}

/// # Safety
/// The contract of objects; operand and comparand, where the sort has them, are readable values of the type,
/// and the place of the old value is writable until the completion.
unsafe fn submit(sort: Sort, parsed: Result<(Call, Values), Errno>) -> isize {
    let (call, values) = match parsed {
        Ok(parsed) => parsed,
        Err(errno) => return answer_size(Err(errno)),
    };
    let Some(bytes) = sort.bytes(call.op, call.datatype) else { return answer_size(Err(Errno(FI_EOPNOTSUPP))) };
    let count = values.count;
    if !(1..=ATOMIC_COUNT_MAX).contains(&count) {
        return answer_size(Err(Errno(FI_EINVAL)));
    }
    let mut pairs = vec![(0, 0); count];
    // SAFETY: the caller's contract; a call that only reads has no operands, and only comparisons have
    // comparands.
    let (ep, old) = unsafe {
        if call.op != FI_ATOMIC_READ {
            pairs.iter_mut().zip(values_at(values.operand, bytes, count)).for_each(|(pair, operand)| pair.0 = operand);
        }
        if sort == Sort::Compare {
            pairs.iter_mut().zip(values_at(values.compare, bytes, count)).for_each(|(pair, compare)| pair.1 = compare);
        }
        (Endpoint::of(call.ep), (sort != Sort::Write).then(|| Target::new(values.old.cast(), bytes)))
    };
    let at = OneSided {
        endpoint: ep.number,
        peer: call.peer,
        key: call.key,
        offset: call.offset,
        pieces: Pieces::default(),
        data: None,
        copy: None,
        context: call.context as u64,
        flags: call.flags,
        silent: call.silent,
    };
    let request = AtomicCall { at, op: call.op, datatype: call.datatype, values: pairs, old };
    answer_size(ep.domain.with(Err(PANICKED), |port| port.atomic(request)))
}

/// The only value of a list.
///
/// # Safety
/// The list has `count` entries.
unsafe fn sole(list: *const Ioc, count: usize) -> (*mut c_void, usize) {
    if count != 1 {
        return (std::ptr::null_mut(), 0);
    }
    // SAFETY: the caller's promise.
    unsafe { ((*list).addr, (*list).count) }
}

/// Takes a message apart.
///
/// # Safety
/// The message is whole.
unsafe fn of_msg(ep: *mut FidEp, msg: *const MsgAtomic, flags: u64) -> Result<(Call, Values), Errno> {
    // SAFETY: the caller's promise.
    let msg = unsafe { &*msg };
    if msg.rma_iov_count != 1 || flags & FI_REMOTE_CQ_DATA != 0 {
        return Err(Errno(FI_EOPNOTSUPP));
    }
    // SAFETY: there is one remote place. A pure read may come without operands.
    let (remote, (operand, count)) = unsafe { (*msg.rma_iov, sole(msg.msg_iov, msg.iov_count)) };
    let count = if msg.op == FI_ATOMIC_READ { remote.count } else { count };
    let call = Call {
        ep,
        peer: msg.addr,
        offset: remote.addr,
        key: remote.key,
        op: msg.op,
        datatype: msg.datatype,
        context: msg.context,
        flags: Some(flags),
        silent: false,
    };
    Ok((call, Values { count, operand, compare: std::ptr::null(), old: std::ptr::null_mut() }))
}

unsafe extern "C" fn write(
    ep: *mut FidEp,
    operand: *const c_void,
    count: usize,
    _: *mut c_void,
    peer: u64,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let call = Call { ep, peer, offset, key, op, datatype, context, flags: None, silent: false };
    let values = Values { count, operand, compare: std::ptr::null(), old: std::ptr::null_mut() };
    // SAFETY: libfabric's contract of `fi_atomic`.
    unsafe { submit(Sort::Write, Ok((call, values))) }
}

unsafe extern "C" fn writev(
    ep: *mut FidEp,
    operands: *const Ioc,
    desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's contract of `fi_atomicv`.
    unsafe {
        let (operand, count) = sole(operands, count);
        write(ep, operand, count, desc.cast(), peer, offset, key, datatype, op, context)
    }
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const MsgAtomic, flags: u64) -> isize {
    // SAFETY: libfabric's contract of `fi_atomicmsg`.
    unsafe { submit(Sort::Write, of_msg(ep, msg, flags)) }
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    operand: *const c_void,
    count: usize,
    peer: u64,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    let context = std::ptr::null_mut();
    let call = Call { ep, peer, offset, key, op, datatype, context, flags: Some(0), silent: true };
    let values = Values { count, operand, compare: std::ptr::null(), old: std::ptr::null_mut() };
    // SAFETY: libfabric's contract of `fi_inject_atomic`; the operand is copied in the call.
    unsafe { submit(Sort::Write, Ok((call, values))) }
}

unsafe extern "C" fn readwrite(
    ep: *mut FidEp,
    operand: *const c_void,
    count: usize,
    _: *mut c_void,
    old: *mut c_void,
    _: *mut c_void,
    peer: u64,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let call = Call { ep, peer, offset, key, op, datatype, context, flags: None, silent: false };
    // SAFETY: libfabric's contract of `fi_fetch_atomic`.
    unsafe { submit(Sort::Fetch, Ok((call, Values { count, operand, compare: std::ptr::null(), old }))) }
}

unsafe extern "C" fn readwritev(
    ep: *mut FidEp,
    operands: *const Ioc,
    desc: *mut *mut c_void,
    count: usize,
    olds: *mut Ioc,
    old_desc: *mut *mut c_void,
    old_count: usize,
    peer: u64,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's contract of `fi_fetch_atomicv`.
    unsafe {
        let (operand, operand_count) = sole(operands, count);
        let (old, old_count) = sole(olds, old_count);
        let count = if op == FI_ATOMIC_READ { old_count } else { operand_count.min(old_count) };
        let (desc, old_desc) = (desc.cast(), old_desc.cast());
        readwrite(ep, operand, count, desc, old, old_desc, peer, offset, key, datatype, op, context)
    }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut FidEp,
    msg: *const MsgAtomic,
    olds: *mut Ioc,
    _: *mut *mut c_void,
    old_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: libfabric's contract of `fi_fetch_atomicmsg`.
    unsafe {
        let (old, old_count) = sole(olds, old_count);
        let fetching = |(call, values): (Call, Values)| {
            let count = values.count.min(old_count);
            (call, Values { count, old, ..values })
        };
        submit(Sort::Fetch, of_msg(ep, msg, flags).map(fetching))
    }
}

unsafe extern "C" fn compwrite(
    ep: *mut FidEp,
    operand: *const c_void,
    count: usize,
    _: *mut c_void,
    compare: *const c_void,
    _: *mut c_void,
    old: *mut c_void,
    _: *mut c_void,
    peer: u64,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let call = Call { ep, peer, offset, key, op, datatype, context, flags: None, silent: false };
    // SAFETY: libfabric's contract of `fi_compare_atomic`.
    unsafe { submit(Sort::Compare, Ok((call, Values { count, operand, compare, old }))) }
}

unsafe extern "C" fn compwritev(
    ep: *mut FidEp,
    operands: *const Ioc,
    _: *mut *mut c_void,
    count: usize,
    compares: *const Ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    olds: *mut Ioc,
    _: *mut *mut c_void,
    old_count: usize,
    peer: u64,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let call = Call { ep, peer, offset, key, op, datatype, context, flags: None, silent: false };
    // SAFETY: libfabric's contract of `fi_compare_atomicv`.
    unsafe {
        let (operand, operand_count) = sole(operands, count);
        let (compare, compare_count) = sole(compares, compare_count);
        let (old, old_count) = sole(olds, old_count);
        let count = operand_count.min(compare_count).min(old_count);
        submit(Sort::Compare, Ok((call, Values { count, operand, compare, old })))
    }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut FidEp,
    msg: *const MsgAtomic,
    compares: *const Ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    olds: *mut Ioc,
    _: *mut *mut c_void,
    old_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: libfabric's contract of `fi_compare_atomicmsg`.
    unsafe {
        let (compare, compare_count) = sole(compares, compare_count);
        let (old, old_count) = sole(olds, old_count);
        let comparing = |(call, values): (Call, Values)| {
            let count = values.count.min(compare_count).min(old_count);
            (call, Values { count, compare, old, ..values })
        };
        submit(Sort::Compare, of_msg(ep, msg, flags).map(comparing))
    }
}

/// Answers how many values a call may have, or that it is not offered.
///
/// # Safety
/// `count` is null or writable.
unsafe fn valid(sort: Sort, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    if sort.bytes(op, datatype).is_none() {
        return -FI_EOPNOTSUPP;
    }
    // SAFETY: the caller's promise.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = ATOMIC_COUNT_MAX;
    }
    0
}

unsafe extern "C" fn writevalid(_: *mut FidEp, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric's contract of `fi_atomicvalid`.
    unsafe { valid(Sort::Write, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(_: *mut FidEp, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric's contract of `fi_fetch_atomicvalid`.
    unsafe { valid(Sort::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(_: *mut FidEp, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric's contract of `fi_compare_atomicvalid`.
    unsafe { valid(Sort::Compare, datatype, op, count) }
}

/// `fi_query_atomic`.
pub unsafe extern "C" fn query(
    _: *mut FidDomain,
    datatype: c_int,
    op: c_int,
    attr: *mut AtomicAttr,
    flags: u64,
) -> c_int {
    let sort = match (flags & FI_FETCH_ATOMIC != 0, flags & FI_COMPARE_ATOMIC != 0) {
        (false, false) => Sort::Write,
        (true, false) => Sort::Fetch,
        (false, true) => Sort::Compare,
        (true, true) => return -FI_EINVAL,
    };
    match sort.bytes(op, datatype) {
        Some(size) => {
            // SAFETY: libfabric's contract of `fi_query_atomic`.
            unsafe { *attr = AtomicAttr { count: ATOMIC_COUNT_MAX, size } };
            0
        }
        None => -FI_EOPNOTSUPP,
    }
}
