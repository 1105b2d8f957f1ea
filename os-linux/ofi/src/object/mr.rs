//! Registration: memory that peers may read, write and change atomically.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::domain::Domain;
use super::{PANICKED, answer, front};
use crate::abi::data::MrAttr;
use crate::abi::object::{Fid, FidMr, Ops};
use crate::abi::*;
use crate::port::Piece;

/// Nothing has to be bound: events at targets are not offered.
static OPS: Ops = Ops { close, ..Ops::ABSENT };

/// Registered memory.
#[repr(C)]
struct Registration {
    front: FidMr,
    domain: &'static Domain,
    number: u32,
}

/// `fi_mr_reg`.
pub unsafe extern "C" fn register(
    domain: *mut Fid,
    start: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    _flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // Reserved by libfabric: it must be 0.
    if offset != 0 {
        return -FI_EINVAL;
    }
    // SAFETY: the contract of objects; a domain begins with its front.
    let domain = unsafe { Domain::of(domain.cast()) };
    let memory = Piece { address: start as u64, len: len as u64 };
    let number = match domain.with(Err(PANICKED), |port| port.register(memory, access, requested_key)) {
        Ok(number) => number,
        Err(errno) => return answer(Err(errno)),
    };
    let front = FidMr { fid: front(FI_CLASS_MR, context, &OPS), mem_desc: std::ptr::null_mut(), key: requested_key };
    // SAFETY: libfabric passes room for the object.
    unsafe { *mr = Box::into_raw(Box::new(Registration { front, domain: domain.enter(), number })).cast() };
    0
}

/// `fi_mr_regattr`.
pub unsafe extern "C" fn register_with(
    domain: *mut Fid,
    attr: *const MrAttr,
    flags: u64,
    mr: *mut *mut FidMr,
) -> c_int {
    // SAFETY: libfabric gives whole attributes.
    let attr = unsafe { &*attr };
    // `iface` 0 is the system's memory.
    if attr.iov_count != 1 || attr.iface != 0 {
        return -FI_EOPNOTSUPP;
    }
    // SAFETY: the attributes name one piece; `register` requires the rest.
    unsafe {
        let piece = *attr.mr_iov;
        let (access, offset, key) = (attr.access, attr.offset, attr.requested_key);
        register(domain, piece.iov_base, piece.iov_len, access, offset, key, flags, mr, attr.context)
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let registration = fid.cast::<Registration>();
    // SAFETY: the contract of objects.
    let (domain, number) = unsafe { ((*registration).domain, (*registration).number) };
    let ended = domain.with(Err(PANICKED), |port| port.deregister(number));
    if ended.is_ok() {
        // SAFETY: the contract of objects; `register` has boxed it.
        drop(unsafe { Box::from_raw(registration) });
        domain.leave();
    }
    answer(ended)
}
