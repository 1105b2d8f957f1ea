//! Driving, sleeping, and events, by completion queue too.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rerail_linux::Transport;

use super::{CALLER, EINVAL, EPANIC, ESYSTEM, Event, Handle, answer, call, failure, with};

/// See the header.
///
/// # Safety
/// That of `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_progress(handle: *mut Handle) -> usize {
    // SAFETY: the caller's promise.
    unsafe { with(handle, 0, |handle| handle.transport().map_or(0, Transport::progress)) }
}

/// Writes events as long as there are any and room for them; returns how many.
///
/// # Safety
/// That of `with`; there is room for `max` events at `events`.
unsafe fn take(
    handle: *mut Handle,
    events: *mut Event,
    max: usize,
    next: impl Fn(&mut Handle) -> Option<Event>,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        with(handle, 0, |handle| {
            let mut count = 0;
            while count < max
                && let Some(event) = next(handle)
            {
                events.add(count).write(event);
                count += 1;
                // `rerail_caller` names the last one only.
                if event.kind == CALLER {
                    break;
                }
            }
            count
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `take`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_poll(handle: *mut Handle, events: *mut Event, max: usize) -> usize {
    let next = |handle: &mut Handle| match handle.transport().ok()?.poll_event() {
        Some(event) => Some(handle.event(event)),
        None => handle.next_caller(),
    };
    // SAFETY: the caller's promise.
    unsafe { take(handle, events, max, next) }
}

/// See the header.
///
/// # Safety
/// That of `with`; `key` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_random_key(handle: *const Handle, key: *mut u64) -> c_int {
    let draw = |handle: &mut Handle| handle.transport()?.random_key().map_err(|error| failure(ESYSTEM, error));
    // SAFETY: the caller's promise.
    unsafe { answer(handle, key, draw) }
}

/// See the header.
///
/// # Safety
/// That of `with`; `queue` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_queue_open(handle: *mut Handle, events_max: usize, queue: *mut u32) -> c_int {
    let open = |handle: &mut Handle| {
        let opened = handle.transport()?.open_queue(events_max).map_err(|error| failure(EINVAL, error))?;
        handle.queues.push(opened);
        Ok(handle.queues.len() as u32)
    };
    // SAFETY: the caller's promise.
    unsafe { answer(handle, queue, open) }
}

/// See the header.
///
/// # Safety
/// That of `with`; `cookie` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_queue_cookie(handle: *const Handle, queue: u32, value: u64, cookie: *mut u64) -> c_int {
    let make = |handle: &mut Handle| {
        let queue = handle.queue(queue).ok_or_else(|| failure(EINVAL, "there is no such queue"))?;
        Ok(queue.cookie(value).ok_or_else(|| failure(EINVAL, "a value has at most 56 bits"))?.0)
    };
    // SAFETY: the caller's promise.
    unsafe { answer(handle, cookie, make) }
}

/// See the header.
///
/// # Safety
/// That of `take`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_queue_poll(handle: *mut Handle, queue: u32, events: *mut Event, max: usize) -> usize {
    let next = |handle: &mut Handle| {
        let queue = handle.queue(queue)?;
        let event = handle.transport().ok()?.poll_queue(queue)?;
        Some(handle.event(event))
    };
    // SAFETY: the caller's promise.
    unsafe { take(handle, events, max, next) }
}

/// See the header.
///
/// # Safety
/// That of `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_wait(handle: *mut Handle, ms: c_int) -> c_int {
    let limit = u64::try_from(ms).ok().map(Duration::from_millis);
    let sleep = |handle: &mut Handle| match handle.transport()?.wait(limit) {
        Ok(_) => Ok(()),
        Err(error) => Err(failure(ESYSTEM, error)),
    };
    // SAFETY: the caller's promise.
    unsafe { call(handle, sleep) }
}

/// See the header.
///
/// # Safety
/// That of `with`; `fd` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_fd(handle: *const Handle, fd: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(handle, fd, |handle| Ok(handle.transport()?.fd().as_raw_fd())) }
}

/// See the header.
///
/// # Safety
/// That of `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_arm(handle: *mut Handle) -> c_int {
    let arm = |handle: &mut Handle| {
        let armed = handle.transport().and_then(|transport| transport.arm().map_err(|error| failure(ESYSTEM, error)));
        match armed {
            Ok(armed) => c_int::from(armed),
            Err(failure) => handle.fail(failure),
        }
    };
    // SAFETY: the caller's promise.
    unsafe { with(handle, EPANIC, arm) }
}

/// See the header.
///
/// # Safety
/// That of `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_disarm(handle: *mut Handle) -> c_int {
    let disarm = |handle: &mut Handle| {
        handle.transport()?.disarm();
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { call(handle, disarm) }
}
