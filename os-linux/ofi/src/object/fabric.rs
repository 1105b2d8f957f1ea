//! Fabric, and the event queue that has no events: nothing here is connected, and names are inserted at once.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::{domain, front};
use crate::abi::info::FabricAttr;
use crate::abi::object::{EqOps, FabricOps, Fid, FidEq, FidFabric, Ops};
use crate::abi::*;

static OPS: Ops = Ops { close, ..Ops::ABSENT };
static FABRIC_OPS: FabricOps = FabricOps { domain: domain::open, eq_open, trywait, ..FabricOps::ABSENT };
static EQ_FRONT: Ops = Ops { close: close_eq, ..Ops::ABSENT };
static EQ_OPS: EqOps = EqOps { read: eq_read, readerr: eq_readerr, sread: eq_sread, ..EqOps::ABSENT };

/// `fi_fabric`.
pub unsafe extern "C" fn open(attr: *mut FabricAttr, fabric: *mut *mut FidFabric, context: *mut c_void) -> c_int {
    // SAFETY: libfabric gives whole attributes.
    let api_version = unsafe { (*attr).api_version };
    let opened = FidFabric { fid: front(FI_CLASS_FABRIC, context, &OPS), ops: &FABRIC_OPS, api_version };
    // SAFETY: libfabric passes room for the object.
    unsafe { *fabric = Box::into_raw(Box::new(opened)) };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the contract of objects; `open` has boxed it.
    drop(unsafe { Box::from_raw(fid.cast::<FidFabric>()) });
    0
}

unsafe extern "C" fn trywait(_: *mut FidFabric, _: *mut *mut Fid, _: c_int) -> c_int {
    // No queue has a descriptor to wait on.
    -FI_ENOSYS
}

unsafe extern "C" fn eq_open(
    _: *mut FidFabric,
    _: *mut data::EqAttr,
    eq: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    let opened = FidEq { fid: front(FI_CLASS_EQ, context, &EQ_FRONT), ops: &EQ_OPS };
    // SAFETY: libfabric passes room for the object.
    unsafe { *eq = Box::into_raw(Box::new(opened)) };
    0
}

unsafe extern "C" fn close_eq(fid: *mut Fid) -> c_int {
    // SAFETY: the contract of objects; `eq_open` has boxed it.
    drop(unsafe { Box::from_raw(fid.cast::<FidEq>()) });
    0
}

unsafe extern "C" fn eq_read(_: *mut FidEq, _: *mut u32, _: *mut c_void, _: usize, _: u64) -> isize {
    -(FI_EAGAIN as isize)
}

unsafe extern "C" fn eq_readerr(_: *mut FidEq, _: *mut c_void, _: u64) -> isize {
    -(FI_EAGAIN as isize)
}

unsafe extern "C" fn eq_sread(_: *mut FidEq, _: *mut u32, _: *mut c_void, _: usize, timeout: c_int, _: u64) -> isize {
    // The provider has no events, so a caller that waits gets none when its time is over.
    std::thread::sleep(Duration::from_millis(u64::try_from(timeout).unwrap_or(0)));
    -(FI_EAGAIN as isize)
}
