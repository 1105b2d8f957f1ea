//! Endpoint: its bindings, its name, its options.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::av::Vector;
use super::cntr::Counter;
use super::cq::CompletionQueue;
use super::domain::Domain;
use super::{PANICKED, answer, answer_size, atomic, front, msg, rma, tagged};
use crate::abi::info::Info;
use crate::abi::object::{CmOps, CollectiveOps, EpOps, Fid, FidDomain, FidEp, Ops};
use crate::abi::*;
use crate::port::{self, Bound, Errno};
use rerail_linux::driver::NAME_BYTES;

static OPS: Ops = Ops { close, bind, control, ..Ops::ABSENT };
static EP_OPS: EpOps = EpOps { cancel, getopt, setopt, ..EpOps::ABSENT };
static CM_OPS: CmOps = CmOps { getname, ..CmOps::ABSENT };
static COLLECTIVE_OPS: CollectiveOps = CollectiveOps::ABSENT;

/// A multi-receive with less room is released, unless the caller sets another limit.
const MULTI_BYTES_MIN: u64 = 64;

/// An endpoint.
#[repr(C)]
pub struct Endpoint {
    front: FidEp,
    /// Its domain.
    pub domain: &'static Domain,
    /// The port's number of it.
    pub number: u32,
}

impl Endpoint {
    /// # Safety
    /// The contract of objects.
    #[inline]
    pub unsafe fn of<'a>(ep: *mut FidEp) -> &'a Endpoint {
        // SAFETY: the caller's promise; an endpoint begins with its front.
        unsafe { &*ep.cast::<Endpoint>() }
    }

    fn change(&self, change: impl FnOnce(&mut port::Endpoint) -> Result<(), Errno>) -> c_int {
        answer(self.domain.with(Err(PANICKED), |port| {
            port.ledger().endpoints.get_mut(self.number).ok_or(Errno(FI_EINVAL)).and_then(change)
        }))
    }
}

/// `fi_endpoint`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut Info,
    ep: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the contract of objects; libfabric gives what `fi_getinfo` gave, or a copy.
    let (domain, info) = unsafe { (Domain::of(domain), &*info) };
    // SAFETY: attributes are null or whole.
    let (tx, rx) = unsafe { (info.tx_attr.as_ref(), info.rx_attr.as_ref()) };
    let state = port::Endpoint {
        directed: info.caps & FI_DIRECTED_RECV != 0,
        tx_flags: tx.map_or(0, |tx| tx.op_flags),
        rx_flags: rx.map_or(0, |rx| rx.op_flags),
        multi_bytes_min: MULTI_BYTES_MIN,
        ..port::Endpoint::default()
    };
    let number = match domain.with(Err(PANICKED), |port| port.open_endpoint(state)) {
        Ok(number) => number,
        Err(errno) => return answer(Err(errno)),
    };
    let front = FidEp {
        fid: front(FI_CLASS_EP, context, &OPS),
        ops: &EP_OPS,
        cm: &CM_OPS,
        msg: &msg::OPS,
        rma: &rma::OPS,
        tagged: &tagged::OPS,
        atomic: &atomic::OPS,
        collective: &COLLECTIVE_OPS,
    };
    // SAFETY: libfabric passes room for the object.
    unsafe { *ep = Box::into_raw(Box::new(Endpoint { front, domain: domain.enter(), number })).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the contract of objects; `open` has boxed it.
    let endpoint = unsafe { Box::from_raw(fid.cast::<Endpoint>()) };
    endpoint.domain.with((), |port| port.close_endpoint(endpoint.number));
    endpoint.domain.leave();
    0
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: the contract of objects.
    let (endpoint, class) = unsafe { (&*fid.cast::<Endpoint>(), (*other).fclass) };
    match class {
        FI_CLASS_AV => {
            // SAFETY: the contract of objects; the class identifies its type.
            let vector = unsafe { (*other.cast::<Vector>()).number };
            endpoint.change(|endpoint| {
                endpoint.vector = Some(vector);
                Ok(())
            })
        }
        FI_CLASS_CQ => {
            // SAFETY: as above.
            let queue = unsafe { (*other.cast::<CompletionQueue>()).number };
            let bound = Bound { queue, selective: flags & FI_SELECTIVE_COMPLETION != 0 };
            endpoint.change(|endpoint| {
                if flags & FI_SEND != 0 {
                    endpoint.tx = Some(bound);
                }
                if flags & FI_RECV != 0 {
                    endpoint.rx = Some(bound);
                }
                Ok(())
            })
        }
        FI_CLASS_CNTR => {
            // SAFETY: as above.
            let counter = unsafe { (*other.cast::<Counter>()).number };
            // What peers do to this process's memory is not counted.
            if flags & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
                return -FI_ENOSYS;
            }
            endpoint.change(|endpoint| {
                let slots = [
                    (FI_SEND, &mut endpoint.sends),
                    (FI_RECV, &mut endpoint.receives),
                    (FI_READ, &mut endpoint.reads),
                    (FI_WRITE, &mut endpoint.writes),
                ];
                for (flag, slot) in slots {
                    if flags & flag != 0 {
                        *slot = Some(counter);
                    }
                }
                Ok(())
            })
        }
        // Nothing would ever come there.
        FI_CLASS_EQ => 0,
        _ => -FI_EINVAL,
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, _: *mut c_void) -> c_int {
    // SAFETY: the contract of objects.
    let endpoint = unsafe { &*fid.cast::<Endpoint>() };
    match command {
        FI_ENABLE => endpoint.change(|endpoint| match (endpoint.vector, endpoint.tx.or(endpoint.rx)) {
            (None, _) => Err(Errno(FI_ENOAV)),
            // Counters may do instead.
            (_, None) if endpoint.writes.or(endpoint.reads).or(endpoint.sends).is_none() => Err(Errno(FI_ENOCQ)),
            _ => Ok(()),
        }),
        _ => -FI_ENOSYS,
    }
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    // SAFETY: the contract of objects.
    let endpoint = unsafe { &*fid.cast::<Endpoint>() };
    answer_size(endpoint.domain.with(Err(PANICKED), |port| port.cancel(endpoint.number, context as u64)))
}

unsafe extern "C" fn getopt(fid: *mut Fid, level: c_int, option: c_int, value: *mut c_void, len: *mut usize) -> c_int {
    if (level, option) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -FI_ENOPROTOOPT;
    }
    // SAFETY: the contract of objects; the caller has `*len` bytes of room and gets the length used back
    // there.
    unsafe {
        if std::mem::replace(&mut *len, size_of::<usize>()) < size_of::<usize>() {
            return -FI_ETOOSMALL;
        }
        (*fid.cast::<Endpoint>()).change(|endpoint| {
            value.cast::<usize>().write_unaligned(endpoint.multi_bytes_min as usize);
            Ok(())
        })
    }
}

unsafe extern "C" fn setopt(fid: *mut Fid, level: c_int, option: c_int, value: *const c_void, len: usize) -> c_int {
    if (level, option) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -FI_ENOPROTOOPT;
    }
    if len != size_of::<usize>() {
        return -FI_EINVAL;
    }
    // SAFETY: the contract of objects; the option is a `size_t`.
    unsafe {
        let bytes = value.cast::<usize>().read_unaligned();
        (*fid.cast::<Endpoint>()).change(|endpoint| {
            endpoint.multi_bytes_min = bytes as u64;
            Ok(())
        })
    }
}

unsafe extern "C" fn getname(fid: *mut Fid, name: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the contract of objects.
    let endpoint = unsafe { &*fid.cast::<Endpoint>() };
    let own = endpoint.domain.with(None, |port| port.name().copied());
    let Some(own) = own else { return -FI_EOPBADSTATE };
    // SAFETY: the caller has `*len` bytes of room and gets the length back there.
    unsafe {
        let room = std::mem::replace(&mut *len, NAME_BYTES);
        if room < NAME_BYTES || name.is_null() {
            return -FI_ETOOSMALL;
        }
        own.bytes().as_ptr().copy_to_nonoverlapping(name.cast(), NAME_BYTES);
    }
    0
}
