//! Reads and writes.
#![allow(unsafe_code)]

use std::ffi::c_void;

use libc::iovec;

use super::ep::Endpoint;
use super::{PANICKED, answer_size, gathered, pieces};
use crate::abi::data::MsgRma;
use crate::abi::object::{FidEp, RmaOps};
use crate::abi::*;
use crate::port::{Errno, OneSided, Pieces};

/// Operations of an endpoint on a peer's memory. Writes with immediate data are absent: the transport has
/// none.
pub static OPS: RmaOps = RmaOps { read, readv, readmsg, write, writev, writemsg, inject, ..RmaOps::ABSENT };

fn request(ep: &Endpoint, (peer, offset, key): (u64, u64, u64), pieces: Pieces, context: *mut c_void) -> OneSided {
    let (endpoint, context) = (ep.number, context as u64);
    OneSided { endpoint, peer, key, offset, pieces, copy: None, context, flags: None, silent: false }
}

fn do_read(ep: &Endpoint, request: &OneSided) -> isize {
    answer_size(ep.domain.with(Err(PANICKED), |port| port.read(request)))
}

fn do_write(ep: &Endpoint, request: OneSided) -> isize {
    answer_size(ep.domain.with(Err(PANICKED), |port| port.write(request)))
}

/// Takes a message apart: one remote piece, as long as the local ones.
///
/// # Safety
/// The contract of objects; the message is whole.
unsafe fn of_msg<'a>(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> Result<(&'a Endpoint, OneSided), Errno> {
    // SAFETY: the caller's promise.
    let (ep, msg, local) = unsafe { (Endpoint::of(ep), &*msg, pieces((*msg).msg_iov, (*msg).iov_count)?) };
    if msg.rma_iov_count != 1 || flags & FI_REMOTE_CQ_DATA != 0 {
        return Err(Errno(FI_EOPNOTSUPP));
    }
    // SAFETY: there is one.
    let remote = unsafe { *msg.rma_iov };
    if remote.len as u64 != local.len() {
        return Err(Errno(FI_EINVAL));
    }
    let request = request(ep, (msg.addr, remote.addr, remote.key), local, msg.context);
    Ok((ep, OneSided { flags: Some(flags), ..request }))
}

unsafe extern "C" fn read(
    ep: *mut FidEp,
    start: *mut c_void,
    len: usize,
    _: *mut c_void,
    peer: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the contract of objects; by that of `fi_read` the buffer is the provider's until the
    // completion.
    let ep = unsafe { Endpoint::of(ep) };
    do_read(ep, &request(ep, (peer, offset, key), Pieces::one(start as u64, len as u64), context))
}

unsafe extern "C" fn readv(
    ep: *mut FidEp,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    peer: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`; the list has `count` entries.
    match unsafe { (Endpoint::of(ep), pieces(iov, count)) } {
        (ep, Ok(pieces)) => do_read(ep, &request(ep, (peer, offset, key), pieces, context)),
        (_, Err(errno)) => answer_size(Err(errno)),
    }
}

unsafe extern "C" fn readmsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: as in `readv`.
    match unsafe { of_msg(ep, msg, flags) } {
        Ok((ep, request)) => do_read(ep, &request),
        Err(errno) => answer_size(Err(errno)),
    }
}

unsafe extern "C" fn write(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    _: *mut c_void,
    peer: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the contract of objects; by that of `fi_write` the buffer does not change until the completion.
    let ep = unsafe { Endpoint::of(ep) };
    do_write(ep, request(ep, (peer, offset, key), Pieces::one(start as u64, len as u64), context))
}

unsafe extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    peer: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `write`; the list has `count` entries.
    match unsafe { (Endpoint::of(ep), pieces(iov, count)) } {
        (ep, Ok(pieces)) => do_write(ep, request(ep, (peer, offset, key), pieces, context)),
        (_, Err(errno)) => answer_size(Err(errno)),
    }
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: as in `writev`.
    match unsafe { of_msg(ep, msg, flags) } {
        Ok((ep, mut request)) => {
            if flags & FI_INJECT != 0 {
                // SAFETY: the pieces are readable during the call.
                request.copy = Some(unsafe { gathered(&request.pieces) }.into());
            }
            do_write(ep, request)
        }
        Err(errno) => answer_size(Err(errno)),
    }
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    peer: u64,
    offset: u64,
    key: u64,
) -> isize {
    // SAFETY: the contract of objects; by that of `fi_inject_write` the buffer is readable during the call.
    let (ep, payload) = unsafe { (Endpoint::of(ep), crate::memory::bytes(start.cast(), len)) };
    let request = request(ep, (peer, offset, key), Pieces::default(), std::ptr::null_mut());
    do_write(ep, OneSided { copy: Some(payload.into()), flags: Some(0), silent: true, ..request })
}
