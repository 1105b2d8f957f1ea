//! Counter of requests that are over.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use super::domain::Domain;
use super::{PANICKED, answer, front};
use crate::abi::data::CntrAttr;
use crate::abi::object::{CntrOps, Fid, FidCntr, FidDomain, Ops};
use crate::abi::*;
use crate::port::{Count, Errno};

static OPS: Ops = Ops { close, ..Ops::ABSENT };
static CNTR_OPS: CntrOps = CntrOps { read, readerr, add, set, wait, adderr, seterr, ..CntrOps::ABSENT };

/// The longest sleep of a wait: other threads may need the domain meanwhile.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// A counter.
#[repr(C)]
pub struct Counter {
    front: FidCntr,
    domain: &'static Domain,
    /// The port's number of it.
    pub number: u32,
}

impl Counter {
    /// # Safety
    /// The contract of objects.
    unsafe fn of<'a>(cntr: *mut FidCntr) -> &'a Counter {
        // SAFETY: the caller's promise; a counter begins with its front.
        unsafe { &*cntr.cast::<Counter>() }
    }

    fn change(&self, change: impl FnOnce(&mut Count)) -> c_int {
        answer(
            self.domain.with(Err(PANICKED), |port| {
                port.ledger().counts.get_mut(self.number).map(change).ok_or(Errno(FI_EINVAL))
            }),
        )
    }

    /// Both numbers, after a round of driving.
    fn read_counter(&self) -> Count {
        self.domain.with(Count::default(), |port| {
            port.progress();
            port.ledger().counts.get(self.number).copied().unwrap_or_default()
        })
    }
}

/// `fi_cntr_open`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CntrAttr,
    cntr: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the contract of objects; the attributes are null or whole.
    let (domain, attr) = unsafe { (Domain::of(domain), attr.as_ref()) };
    if attr.is_some_and(|attr| !matches!(attr.wait_obj, FI_WAIT_NONE | FI_WAIT_UNSPEC) || attr.events != 0) {
        return -FI_ENOSYS;
    }
    let number = domain.with(None, |port| Some(port.ledger().counts.insert(Count::default())));
    let Some(number) = number else { return answer(Err(PANICKED)) };
    let front = FidCntr { fid: front(FI_CLASS_CNTR, context, &OPS), ops: &CNTR_OPS };
    // SAFETY: libfabric passes room for the object.
    unsafe { *cntr = Box::into_raw(Box::new(Counter { front, domain: domain.enter(), number })).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the contract of objects; `open` has boxed it.
    let counter = unsafe { Box::from_raw(fid.cast::<Counter>()) };
    counter.domain.with((), |port| {
        port.ledger().counts.remove(counter.number);
    });
    counter.domain.leave();
    0
}

unsafe extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    // SAFETY: the contract of objects.
    unsafe { Counter::of(cntr) }.read_counter().done
}

unsafe extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    // SAFETY: the contract of objects.
    unsafe { Counter::of(cntr) }.read_counter().failed
}

unsafe extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the contract of objects.
    unsafe { Counter::of(cntr) }.change(|count| count.done = count.done.wrapping_add(value))
}

unsafe extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the contract of objects.
    unsafe { Counter::of(cntr) }.change(|count| count.done = value)
}

unsafe extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the contract of objects.
    unsafe { Counter::of(cntr) }.change(|count| count.failed = count.failed.wrapping_add(value))
}

unsafe extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the contract of objects.
    unsafe { Counter::of(cntr) }.change(|count| count.failed = value)
}

unsafe extern "C" fn wait(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: the contract of objects.
    let counter = unsafe { Counter::of(cntr) };
    // Below zero: as long as it takes.
    let until = u64::try_from(timeout).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
    let before = counter.read_counter().failed;
    loop {
        let count = counter.read_counter();
        if count.done >= threshold {
            return 0;
        }
        if count.failed != before {
            return -FI_EAVAIL;
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return -FI_ETIMEDOUT;
        }
        if !counter.domain.with(false, |port| {
            port.sleep(SLEEP_MAX);
            true
        }) {
            return answer(Err(PANICKED));
        }
    }
}
