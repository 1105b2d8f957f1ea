//! Windows, puts, gets, atomics.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use rerail_core::endpoint::AtomicRequest;
use rerail_core::ids::Key;
use rerail_core::wire::{AtomicKind, AtomicType};
use rerail_linux::{
    Access, Cookie, CounterId, DeregisterError, FlushRequest, GetRequest, Level, MemRef, Notify, OpId, PeerId,
    PutRequest, Remote, RequestError, Seg, Transport, Window, WindowId,
};

use super::{EAGAIN, EINVAL, Handle, answer, call, failure, submit};

/// `RERAIL_SUM` to `RERAIL_MSWAP`, from 1 on.
const KINDS: [AtomicKind; 19] = [
    AtomicKind::Add,
    AtomicKind::Mul,
    AtomicKind::Min,
    AtomicKind::Max,
    AtomicKind::And,
    AtomicKind::Or,
    AtomicKind::Xor,
    AtomicKind::LogicalAnd,
    AtomicKind::LogicalOr,
    AtomicKind::LogicalXor,
    AtomicKind::Fetch,
    AtomicKind::Swap,
    AtomicKind::CompareSwap,
    AtomicKind::CompareSwapNe,
    AtomicKind::CompareSwapLe,
    AtomicKind::CompareSwapLt,
    AtomicKind::CompareSwapGe,
    AtomicKind::CompareSwapGt,
    AtomicKind::MaskedSwap,
];

/// `RERAIL_INT8` to `RERAIL_DOUBLE`, from 1 on.
const TYPES: [AtomicType; 10] = [
    AtomicType::I8,
    AtomicType::U8,
    AtomicType::I16,
    AtomicType::U16,
    AtomicType::I32,
    AtomicType::U32,
    AtomicType::I64,
    AtomicType::U64,
    AtomicType::F32,
    AtomicType::F64,
];

fn named<T: Copy>(all: &[T], number: c_int) -> Option<T> {
    usize::try_from(number).ok()?.checked_sub(1).and_then(|at| all.get(at)).copied()
}

/// As `submit`, of requests that a fence to `peer` holds up.
///
/// # Safety
/// As there.
unsafe fn one_sided(
    handle: *mut Handle,
    peer: u32,
    request: *mut u64,
    memory: (*const c_void, usize),
    work: impl FnOnce(&mut Transport, &[Seg], bool) -> Result<OpId, RequestError>,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let fence = super::with(handle, false, |handle| handle.fenced.contains(&peer));
        let answer = submit(handle, request, memory, false, |transport, segments| work(transport, segments, fence));
        if fence && answer == 0 {
            super::with(handle, (), |handle| handle.fenced.retain(|fenced| *fenced != peer));
        }
        answer
    }
}

/// See the header.
///
/// # Safety
/// That of `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_fence(handle: *mut Handle, peer: u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        call(handle, |handle| {
            if peer >= handle.transport()?.size() {
                return Err(failure(EINVAL, format!("there is no rank {peer}")));
            }
            if !handle.fenced.contains(&peer) {
                handle.fenced.push(peer);
            }
            Ok(())
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `with`; `request` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_atomic(
    handle: *mut Handle,
    peer: u32,
    key: u64,
    offset: u64,
    kind: c_int,
    data_type: c_int,
    operand: u64,
    compare: u64,
    cookie: u64,
    request: *mut u64,
) -> c_int {
    let (Some(kind), Some(data_type)) = (named(&KINDS, kind), named(&TYPES, data_type)) else {
        // SAFETY: the caller's promise.
        return unsafe { call(handle, |_| Err(failure(EINVAL, "there is no such atomic or type"))) };
    };
    // SAFETY: the caller's promise.
    unsafe {
        one_sided(handle, peer, request, (std::ptr::null(), 0), |transport, _, fence| {
            let at = Remote { peer: PeerId(peer), window: key, offset };
            let cookie = Cookie(cookie);
            let atomic = AtomicRequest { compare, fence, cookie, ..AtomicRequest::new(at, kind, data_type, operand) };
            transport.atomic(&atomic)
        })
    }
}

/// Exposes memory under a key; `written`: how puts with immediate data are reported.
///
/// # Safety
/// That of `with`; `count` bytes at `bytes` are the transport's until the window is deregistered; `window` is
/// writable.
unsafe fn expose(
    handle: *mut Handle,
    (bytes, count): (*mut c_void, usize),
    key: u64,
    written: Notify,
    window: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        answer(handle, window, |handle| {
            let at = MemRef { region: handle.region, offset: bytes.expose_provenance() as u64 };
            let access = Access { read: true, write: true, atomic: true };
            let exposed = Window { written, ..Window::new(at, count as u64, access, key) };
            let exposed = handle.transport()?.expose(&exposed);
            Ok(exposed.map_err(|error| failure(EINVAL, error))?.0.to_bits())
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `expose`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_expose(
    handle: *mut Handle,
    bytes: *mut c_void,
    count: usize,
    key: u64,
    window: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { expose(handle, (bytes, count), key, Notify::Event, window) }
}

/// See the header.
///
/// # Safety
/// That of `expose`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_expose_counted(
    handle: *mut Handle,
    bytes: *mut c_void,
    count: usize,
    key: u64,
    counter: u16,
    window: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { expose(handle, (bytes, count), key, Notify::Counter(CounterId(counter)), window) }
}

/// See the header.
///
/// # Safety
/// That of `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_deregister(handle: *mut Handle, window: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        call(handle, |handle| {
            handle.transport()?.deregister(WindowId(Key::from_bits(window))).map_err(|error| match error {
                DeregisterError::Busy => {
                    failure(EAGAIN, "a peer's request is served from the window: drive and try again")
                }
                _ => failure(EINVAL, "there is no such window"),
            })
        })
    }
}

/// See the header.
///
/// # Safety
/// As [`rerail_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_put(
    handle: *mut Handle,
    peer: u32,
    key: u64,
    offset: u64,
    bytes: *const c_void,
    count: usize,
    cookie: u64,
    request: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { put(handle, (peer, key, offset), None, (bytes, count), cookie, request) }
}

/// See the header.
///
/// # Safety
/// As [`rerail_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_put_immediate(
    handle: *mut Handle,
    peer: u32,
    key: u64,
    offset: u64,
    immediate: u64,
    bytes: *const c_void,
    count: usize,
    cookie: u64,
    request: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { put(handle, (peer, key, offset), Some(immediate), (bytes, count), cookie, request) }
}

/// See the header.
///
/// # Safety
/// As [`rerail_inject`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_inject_put(
    handle: *mut Handle,
    peer: u32,
    key: u64,
    offset: u64,
    bytes: *const c_void,
    count: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        one_sided(handle, peer, std::ptr::null_mut(), (bytes, 0), |transport, _, fence| {
            let payload = if count == 0 { &[] } else { std::slice::from_raw_parts(bytes.cast::<u8>(), count) };
            let to = Remote { peer: PeerId(peer), window: key, offset };
            transport.inject_put(&PutRequest { notify: Notify::Silent, fence, ..PutRequest::new(to, &[]) }, payload)
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `with`; `request` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_flush(handle: *mut Handle, peer: u32, cookie: u64, request: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        submit(handle, request, (std::ptr::null(), 0), false, |transport, _| {
            transport.flush(&FlushRequest { cookie: Cookie(cookie), ..FlushRequest::new(PeerId(peer)) })
        })
    }
}

/// Puts, with immediate data or without.
///
/// # Safety
/// As [`rerail_send`].
unsafe fn put(
    handle: *mut Handle,
    (peer, key, offset): (u32, u64, u64),
    immediate: Option<u64>,
    memory: (*const c_void, usize),
    cookie: u64,
    request: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        one_sided(handle, peer, request, memory, |transport, segments, fence| {
            let to = Remote { peer: PeerId(peer), window: key, offset };
            let (level, cookie) = (Level::Placed, Cookie(cookie));
            transport.put(&PutRequest { immediate, level, fence, cookie, ..PutRequest::new(to, segments) })
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `with`; `value` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_counter(handle: *const Handle, counter: u16, value: *mut u64) -> c_int {
    let read = |handle: &mut Handle| {
        let counted = handle.transport()?.counter(CounterId(counter));
        counted.ok_or_else(|| failure(EINVAL, "there is no such counter (RERAIL_COUNTERS)"))
    };
    // SAFETY: the caller's promise.
    unsafe { answer(handle, value, read) }
}

/// See the header.
///
/// # Safety
/// As [`rerail_recv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_get(
    handle: *mut Handle,
    peer: u32,
    key: u64,
    offset: u64,
    bytes: *mut c_void,
    count: usize,
    cookie: u64,
    request: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        one_sided(handle, peer, request, (bytes, count), |transport, segments, fence| {
            let from = Remote { peer: PeerId(peer), window: key, offset };
            transport.get(&GetRequest { fence, cookie: Cookie(cookie), ..GetRequest::new(from, segments) })
        })
    }
}
