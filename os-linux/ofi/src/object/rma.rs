//! Reads and writes.
#![allow(unsafe_code)]

use std::ffi::c_void;

use libc::iovec;

use super::ep::Endpoint;
use super::{PANICKED, answer_size, gathered, pieces, whole};
use crate::abi::data::MsgRma;
use crate::abi::object::{FidEp, RmaOps};
use crate::abi::*;
use crate::port::{Errno, OneSided, Pieces, Port};

/// Operations of an endpoint on a peer's memory.
pub static OPS: RmaOps =
    RmaOps { read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata, ..RmaOps::ABSENT };

/// A place in a peer's memory: the peer, the offset, the key.
type Place = (u64, u64, u64);

/// Reads or writes; the request is whole but for its endpoint.
///
/// # Safety
/// The contract of objects.
unsafe fn submit(
    ep: *mut FidEp,
    request: Result<OneSided, Errno>,
    work: impl FnOnce(&mut Port, OneSided) -> Result<(), Errno>,
) -> isize {
    // SAFETY: the caller's promise.
    let ep = unsafe { Endpoint::of(ep) };
    let run = |request| ep.domain.with(Err(PANICKED), |port| work(port, OneSided { endpoint: ep.number, ..request }));
    answer_size(request.and_then(run))
}

fn read_by(port: &mut Port, request: OneSided) -> Result<(), Errno> {
    port.read(&request)
}

fn request((peer, offset, key): Place, pieces: Result<Pieces, Errno>, context: *mut c_void) -> Result<OneSided, Errno> {
    let (pieces, context) = (pieces?, context as u64);
    Ok(OneSided { endpoint: 0, peer, key, offset, pieces, data: None, copy: None, context, flags: None, silent: false })
}

/// Takes a message apart: one remote piece, as long as the local ones.
///
/// # Safety
/// The message is whole.
unsafe fn of_msg(msg: *const MsgRma, flags: u64) -> Result<OneSided, Errno> {
    // SAFETY: the caller's promise.
    let (msg, local) = unsafe { (&*msg, pieces((*msg).msg_iov, (*msg).iov_count)?) };
    if msg.rma_iov_count != 1 {
        return Err(Errno(FI_EOPNOTSUPP));
    }
    // SAFETY: there is one.
    let remote = unsafe { *msg.rma_iov };
    if remote.len as u64 != local.len() {
        return Err(Errno(FI_EINVAL));
    }
    let request = request((msg.addr, remote.addr, remote.key), Ok(local), msg.context)?;
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
    Ok(OneSided { flags: Some(flags), data, ..request })
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
    unsafe { submit(ep, request((peer, offset, key), whole(start, len), context), read_by) }
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
    unsafe { submit(ep, request((peer, offset, key), pieces(iov, count), context), read_by) }
}

unsafe extern "C" fn readmsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: as in `readv`.
    unsafe { submit(ep, of_msg(msg, flags), read_by) }
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
    unsafe { submit(ep, request((peer, offset, key), whole(start, len), context), Port::write) }
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
    unsafe { submit(ep, request((peer, offset, key), pieces(iov, count), context), Port::write) }
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: as in `writev`; of an injected message the pieces are readable during the call.
    unsafe {
        let mut request = of_msg(msg, flags);
        if let (Ok(request), true) = (&mut request, flags & FI_INJECT != 0) {
            request.copy = Some(gathered(&request.pieces).into());
        }
        submit(ep, request, Port::write)
    }
}

unsafe extern "C" fn writedata(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    peer: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let request = request((peer, offset, key), whole(start, len), context);
    // SAFETY: as in `write`.
    unsafe { submit(ep, request.map(|request| OneSided { data: Some(data), ..request }), Port::write) }
}

/// Writes a copy of the caller's bytes, without a completion.
///
/// # Safety
/// The contract of objects; `len` bytes at `start` are readable.
unsafe fn write_copy(ep: *mut FidEp, (start, len): (*const c_void, usize), data: Option<u64>, to: Place) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        let copy = Some(crate::memory::bytes(start.cast(), len).into());
        let request = request(to, Ok(Pieces::default()), std::ptr::null_mut());
        let request = request.map(|request| OneSided { copy, data, flags: Some(0), silent: true, ..request });
        submit(ep, request, Port::write)
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
    unsafe { write_copy(ep, (start, len), None, (peer, offset, key)) }
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    data: u64,
    peer: u64,
    offset: u64,
    key: u64,
) -> isize {
    // SAFETY: as in `inject`.
    unsafe { write_copy(ep, (start, len), Some(data), (peer, offset, key)) }
}
