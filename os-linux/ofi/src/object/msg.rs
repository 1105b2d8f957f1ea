//! Untagged messages.
#![allow(unsafe_code)]

use std::ffi::c_void;

use libc::iovec;

use super::message::{self, Label};
use super::{pieces, whole};
use crate::abi::FI_REMOTE_CQ_DATA;
use crate::abi::data::Msg;
use crate::abi::object::{FidEp, MsgOps};

/// What an endpoint does with them.
pub static OPS: MsgOps =
    MsgOps { recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata, ..MsgOps::ABSENT };

fn label(to: u64, data: Option<u64>) -> Label {
    Label { to, tag: None, data }
}

unsafe extern "C" fn recv(
    ep: *mut FidEp,
    start: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's contract of `fi_recv`: the buffer is the provider's until the completion.
    unsafe { message::recv(ep, from, None, whole(start, len), context, None) }
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`; the list has `count` entries.
    unsafe { message::recv(ep, from, None, pieces(iov, count), context, None) }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: as in `recvv`; the message is whole.
    unsafe {
        let msg = &*msg;
        message::recv(ep, msg.addr, None, pieces(msg.msg_iov, msg.iov_count), msg.context, Some(flags))
    }
}

unsafe extern "C" fn send(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    _: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's contract of `fi_send`: the buffer does not change until the completion.
    unsafe { message::send(ep, label(to, None), whole(start, len), context, None) }
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `send`; the list has `count` entries.
    unsafe { message::send(ep, label(to, None), pieces(iov, count), context, None) }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: as in `sendv`; the message is whole.
    unsafe {
        let msg = &*msg;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        message::send(ep, label(msg.addr, data), pieces(msg.msg_iov, msg.iov_count), msg.context, Some(flags))
    }
}

unsafe extern "C" fn inject(ep: *mut FidEp, start: *const c_void, len: usize, to: u64) -> isize {
    // SAFETY: libfabric's contract of `fi_inject`: the buffer is readable during the call.
    unsafe { message::inject(ep, label(to, None), start, len) }
}

unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `send`.
    unsafe { message::send(ep, label(to, Some(data)), whole(start, len), context, None) }
}

unsafe extern "C" fn injectdata(ep: *mut FidEp, start: *const c_void, len: usize, data: u64, to: u64) -> isize {
    // SAFETY: as in `inject`.
    unsafe { message::inject(ep, label(to, Some(data)), start, len) }
}
