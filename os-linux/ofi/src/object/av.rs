//! Address vector: numbers for names.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::domain::Domain;
use super::{PANICKED, answer, front};
use crate::abi::data::AvAttr;
use crate::abi::object::{AvOps, Fid, FidAv, FidDomain, Ops};
use crate::abi::*;
use rerail_linux::driver::NAME_BYTES;

static OPS: Ops = Ops { close, ..Ops::ABSENT };
static AV_OPS: AvOps = AvOps { insert, remove, lookup, ..AvOps::ABSENT };

/// An address vector.
#[repr(C)]
pub struct Vector {
    front: FidAv,
    domain: &'static Domain,
    /// The port's number of it.
    pub number: u32,
}

/// `fi_av_open`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut AvAttr,
    av: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the contract of objects; the attributes are null or whole.
    let (domain, attr) = unsafe { (Domain::of(domain), attr.as_ref()) };
    // Shared between processes there is none, and completions of insertions neither.
    if attr.is_some_and(|attr| !attr.name.is_null() || attr.flags & !FI_MORE != 0 || attr.rx_ctx_bits != 0) {
        return -FI_ENOSYS;
    }
    let Some(number) = domain.with(None, |port| Some(port.open_vector())) else { return answer(Err(PANICKED)) };
    let opened = Vector {
        front: FidAv { fid: front(FI_CLASS_AV, context, &OPS), ops: &AV_OPS },
        domain: domain.enter(),
        number,
    };
    // SAFETY: libfabric passes room for the object.
    unsafe { *av = Box::into_raw(Box::new(opened)).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the contract of objects; `open` has boxed it.
    let vector = unsafe { Box::from_raw(fid.cast::<Vector>()) };
    vector.domain.with((), |port| port.close_vector(vector.number));
    vector.domain.leave();
    0
}

unsafe extern "C" fn insert(
    av: *mut FidAv,
    names: *const c_void,
    count: usize,
    numbers: *mut u64,
    _flags: u64,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: the contract of objects.
    let vector = unsafe { &*av.cast::<Vector>() };
    let mut inserted = 0;
    for index in 0..count {
        // SAFETY: the caller passes `count` names of the length that `fi_getname` returned, one behind the
        // other.
        let name = unsafe { names.cast::<[u8; NAME_BYTES]>().add(index).read_unaligned() };
        let number = vector.domain.with(Err(PANICKED), |port| port.insert(vector.number, &name));
        if !numbers.is_null() {
            // SAFETY: where it is not null the caller has room for `count` numbers.
            unsafe { *numbers.add(index) = number.unwrap_or(FI_ADDR_UNSPEC) };
        }
        inserted += c_int::from(number.is_ok());
    }
    inserted
}

unsafe extern "C" fn remove(av: *mut FidAv, numbers: *mut u64, count: usize, _flags: u64) -> c_int {
    // SAFETY: the contract of objects.
    let vector = unsafe { &*av.cast::<Vector>() };
    let each = (0..count).map(|index| {
        // SAFETY: the caller gives `count` numbers.
        let number = unsafe { *numbers.add(index) };
        vector.domain.with(Err(PANICKED), |port| port.remove(vector.number, number))
    });
    answer(each.fold(Ok(()), Result::and))
}

unsafe extern "C" fn lookup(av: *mut FidAv, number: u64, name: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the contract of objects.
    let vector = unsafe { &*av.cast::<Vector>() };
    let found = vector.domain.with(Err(PANICKED), |port| port.lookup(vector.number, number));
    match found {
        Ok(found) => {
            // SAFETY: the caller has room for `*len` bytes, and gets the length back there.
            unsafe {
                let room = std::mem::replace(&mut *len, NAME_BYTES);
                found.bytes().as_ptr().copy_to_nonoverlapping(name.cast(), room.min(NAME_BYTES));
            }
            0
        }
        Err(errno) => answer(Err(errno)),
    }
}
