//! Completion queue.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::{Duration, Instant};

use super::domain::Domain;
use super::{PANICKED, answer, front};
use crate::abi::data::{CqAttr, CqErrEntry, CqTaggedEntry};
use crate::abi::object::{CqOps, Fid, FidCq, FidDomain, Ops};
use crate::abi::*;
use crate::port::{Entry, Errno, Port, Queue};

static OPS: Ops = Ops { close, ..Ops::ABSENT };
static CQ_OPS: CqOps = CqOps { read, readfrom, readerr, sread, sreadfrom, strerror, ..CqOps::ABSENT };

/// The longest sleep of a wait: other threads may need the domain meanwhile.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Bytes of an error completion before `err_data`.
const ERROR_FRONT: usize = std::mem::offset_of!(CqErrEntry, err_data);

/// A completion queue.
#[repr(C)]
pub struct CompletionQueue {
    front: FidCq,
    domain: &'static Domain,
    /// The port's number of it.
    pub number: u32,
    /// Bytes of a completion in its format.
    entry_bytes: usize,
}

/// `fi_cq_open`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CqAttr,
    cq: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the contract of objects; the attributes are null or whole.
    let (domain, attr) = unsafe { (Domain::of(domain), attr.as_ref()) };
    let (format, wait) = attr.map_or((0, 0), |attr| (attr.format, attr.wait_obj));
    if !matches!(wait, FI_WAIT_NONE | FI_WAIT_UNSPEC) {
        return -FI_ENOSYS;
    }
    let entry_bytes = match format {
        FI_CQ_FORMAT_CONTEXT => std::mem::offset_of!(CqTaggedEntry, flags),
        FI_CQ_FORMAT_MSG => std::mem::offset_of!(CqTaggedEntry, buf),
        FI_CQ_FORMAT_DATA => std::mem::offset_of!(CqTaggedEntry, tag),
        0 | FI_CQ_FORMAT_TAGGED => size_of::<CqTaggedEntry>(),
        _ => return -FI_EINVAL,
    };
    let number = domain.with(None, |port| Some(port.ledger().queues.insert(Queue::default())));
    let Some(number) = number else { return answer(Err(PANICKED)) };
    let front = FidCq { fid: front(FI_CLASS_CQ, context, &OPS), ops: &CQ_OPS };
    let opened = CompletionQueue { front, domain: domain.enter(), number, entry_bytes };
    // SAFETY: libfabric passes room for the object.
    unsafe { *cq = Box::into_raw(Box::new(opened)).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the contract of objects; `open` has boxed it.
    let queue = unsafe { Box::from_raw(fid.cast::<CompletionQueue>()) };
    queue.domain.with((), |port| drop(port.ledger().queues.remove(queue.number)));
    queue.domain.leave();
    0
}

impl CompletionQueue {
    /// # Safety
    /// The contract of objects.
    unsafe fn of<'a>(cq: *mut FidCq) -> &'a CompletionQueue {
        // SAFETY: the caller's promise; a completion queue begins with its front.
        unsafe { &*cq.cast::<CompletionQueue>() }
    }

    /// Drives the domain for a round and takes completions.
    ///
    /// # Safety
    /// There is room for `count` completions of the queue's format at `buffer`, and for as many numbers at
    /// `sources` unless that is null.
    #[inline]
    unsafe fn take(&self, buffer: *mut c_void, count: usize, sources: *mut u64) -> isize {
        self.domain.with(-(FI_EOTHER as isize), |port| {
            port.progress();
            // SAFETY: the caller's promise.
            unsafe { self.take_ready(port, buffer, count, sources) }
        })
    }

    /// # Safety
    /// As [`take`](Self::take).
    unsafe fn take_ready(&self, port: &mut Port, buffer: *mut c_void, count: usize, sources: *mut u64) -> isize {
        let Some(queue) = port.ledger().queues.get_mut(self.number) else { return -(FI_EINVAL as isize) };
        let mut taken = 0;
        while taken < count
            && let Some(entry) = queue.entries.front().filter(|entry| entry.error == 0)
        {
            let reported = tagged_entry(entry);
            // SAFETY: the caller's promise; shorter formats are the front of the longest.
            unsafe {
                let place = buffer.cast::<u8>().add(taken * self.entry_bytes);
                (&raw const reported).cast::<u8>().copy_to_nonoverlapping(place, self.entry_bytes);
                if !sources.is_null() {
                    *sources.add(taken) = entry.source;
                }
            }
            queue.entries.pop_front();
            taken += 1;
        }
        match (taken, queue.entries.front()) {
            (0, Some(_)) if count > 0 => -(FI_EAVAIL as isize),
            (0, _) => -(FI_EAGAIN as isize),
            (taken, _) => taken as isize,
        }
    }

    /// As [`take`](Self::take), and sleeps until there is one; `timeout` in ms, below zero: as long as it
    /// takes.
    ///
    /// # Safety
    /// As there.
    unsafe fn wait(&self, buffer: *mut c_void, count: usize, sources: *mut u64, timeout: c_int) -> isize {
        let until = u64::try_from(timeout).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            // SAFETY: the caller's promise.
            let taken = unsafe { self.take(buffer, count, sources) };
            let now = Instant::now();
            if taken != -(FI_EAGAIN as isize) || until.is_some_and(|until| until <= now) {
                return taken;
            }
            let left = until.map_or(SLEEP_MAX, |until| until - now);
            self.domain.with((), |port| port.sleep(left.min(SLEEP_MAX)));
        }
    }
}

/// A completion as libfabric writes it.
#[inline]
fn tagged_entry(entry: &Entry) -> CqTaggedEntry {
    CqTaggedEntry {
        op_context: entry.context as *mut c_void,
        flags: entry.flags,
        len: entry.len as usize,
        buf: entry.address as *mut c_void,
        data: entry.data,
        tag: entry.tag,
    }
}

unsafe extern "C" fn read(cq: *mut FidCq, buffer: *mut c_void, count: usize) -> isize {
    // SAFETY: the contract of objects; the caller has room for `count` completions.
    unsafe { CompletionQueue::of(cq).take(buffer, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(cq: *mut FidCq, buffer: *mut c_void, count: usize, sources: *mut u64) -> isize {
    // SAFETY: the contract of objects; the caller has room for `count` completions and sources.
    unsafe { CompletionQueue::of(cq).take(buffer, count, sources) }
}

unsafe extern "C" fn sread(cq: *mut FidCq, buffer: *mut c_void, count: usize, _: *const c_void, ms: c_int) -> isize {
    // SAFETY: as in `read`.
    unsafe { CompletionQueue::of(cq).wait(buffer, count, std::ptr::null_mut(), ms) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut FidCq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut u64,
    _: *const c_void,
    ms: c_int,
) -> isize {
    // SAFETY: as in `readfrom`.
    unsafe { CompletionQueue::of(cq).wait(buffer, count, sources, ms) }
}

unsafe extern "C" fn readerr(cq: *mut FidCq, error: *mut CqErrEntry, _flags: u64) -> isize {
    // SAFETY: the contract of objects.
    let queue = unsafe { CompletionQueue::of(cq) };
    let taken = queue.domain.with(Err(PANICKED), |port| {
        let queue = port.ledger().queues.get_mut(queue.number).ok_or(Errno(FI_EINVAL))?;
        let failed = queue.entries.front().copied().filter(|entry| entry.error != 0).ok_or(Errno(FI_EAGAIN))?;
        queue.entries.pop_front();
        Ok(failed)
    });
    let entry = match taken {
        Ok(entry) => entry,
        Err(Errno(errno)) => return -(errno as isize),
    };
    let reported = tagged_entry(&entry);
    let whole = CqErrEntry {
        op_context: reported.op_context,
        flags: reported.flags,
        len: reported.len,
        buf: reported.buf,
        data: reported.data,
        tag: reported.tag,
        olen: entry.missing as usize,
        err: entry.error,
        prov_errno: entry.error,
        err_data: std::ptr::null_mut(),
        err_data_size: 0,
    };
    // SAFETY: the caller has room for a whole error completion. It has filled in the place and the size of
    // the error data itself (or not, before version 1.5): there is none, so only the length is set, for
    // callers that have the field.
    unsafe {
        (&raw const whole).cast::<u8>().copy_to_nonoverlapping(error.cast::<u8>(), ERROR_FRONT);
        (*error).err_data_size = 0;
    }
    1
}

unsafe extern "C" fn strerror(
    _: *mut FidCq,
    errno: c_int,
    _: *const c_void,
    buffer: *mut c_char,
    len: usize,
) -> *const c_char {
    let text: &'static CStr = match errno {
        FI_ETRUNC => c"the message was longer than its buffer",
        FI_ECANCELED => c"cancelled",
        FI_ENOMSG => c"no message fits",
        FI_ECONNRESET => c"the peer is lost",
        FI_ESHUTDOWN => c"the peer has closed",
        FI_EACCES => c"the peer refused the access",
        FI_EIO => c"a device could not register the memory",
        _ => c"the request failed",
    };
    if !buffer.is_null() && len > 0 {
        let bytes = text.to_bytes();
        let fits = bytes.len().min(len - 1);
        // SAFETY: the caller has room for `len` characters.
        unsafe {
            text.as_ptr().copy_to_nonoverlapping(buffer, fits);
            *buffer.add(fits) = 0;
        }
    }
    text.as_ptr()
}
