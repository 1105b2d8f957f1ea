//! Tagged messages.
#![allow(unsafe_code)]

use std::ffi::c_void;

use libc::iovec;

use super::message::{self, Label};
use super::{pieces, whole};
use crate::abi::FI_REMOTE_CQ_DATA;
use crate::abi::data::MsgTagged;
use crate::abi::object::{FidEp, TaggedOps};

/// What an endpoint does with them.
pub static OPS: TaggedOps =
    TaggedOps { recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata, ..TaggedOps::ABSENT };

fn label(to: u64, tag: u64, data: Option<u64>) -> Label {
    Label { to, tag: Some(tag), data }
}

unsafe extern "C" fn recv(
    ep: *mut FidEp,
    start: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's contract of `fi_trecv`: the buffer is the provider's until the completion.
    unsafe { message::recv(ep, from, Some((tag, ignore)), whole(start, len), context, None) }
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`; the list has `count` entries.
    unsafe { message::recv(ep, from, Some((tag, ignore)), pieces(iov, count), context, None) }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: as in `recvv`; the message is whole.
    unsafe {
        let msg = &*msg;
        let tag = Some((msg.tag, msg.ignore));
        message::recv(ep, msg.addr, tag, pieces(msg.msg_iov, msg.iov_count), msg.context, Some(flags))
    }
}

unsafe extern "C" fn send(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    _: *mut c_void,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's contract of `fi_tsend`: the buffer does not change until the completion.
    unsafe { message::send(ep, label(to, tag, None), whole(start, len), context, None) }
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `send`; the list has `count` entries.
    unsafe { message::send(ep, label(to, tag, None), pieces(iov, count), context, None) }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: as in `sendv`; the message is whole.
    unsafe {
        let msg = &*msg;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let label = label(msg.addr, msg.tag, data);
        message::send(ep, label, pieces(msg.msg_iov, msg.iov_count), msg.context, Some(flags))
    }
}

unsafe extern "C" fn inject(ep: *mut FidEp, start: *const c_void, len: usize, to: u64, tag: u64) -> isize {
    // SAFETY: libfabric's contract of `fi_tinject`: the buffer is readable during the call.
    unsafe { message::inject(ep, label(to, tag, None), start, len) }
}

unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `send`.
    unsafe { message::send(ep, label(to, tag, Some(data)), whole(start, len), context, None) }
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    // SAFETY: as in `inject`.
    unsafe { message::inject(ep, label(to, tag, Some(data)), start, len) }
}
