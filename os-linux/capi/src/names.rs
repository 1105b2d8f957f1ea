//! Names: of this process, of a job, and of processes that come and go.
#![allow(unsafe_code)]

use std::ffi::c_int;

use rerail_core::ids::PeerId;
use rerail_linux::driver::{InsertError, NAME_BYTES, Name, RemoveError};

use super::{CALLER, EAGAIN, EINVAL, ESTATE, Event, Failure, Handle, Stage, answer, call, failure};

impl From<InsertError> for Failure {
    fn from(error: InsertError) -> Self {
        let number = match error {
            InsertError::Full { .. } | InsertError::Leaving(_) => EAGAIN,
            _ => EINVAL,
        };
        failure(number, error)
    }
}

impl From<RemoveError> for Failure {
    fn from(error: RemoveError) -> Self {
        failure(EINVAL, error)
    }
}

impl Handle {
    /// An event for a process that has called and is not inserted.
    pub(super) fn next_caller(&mut self) -> Option<Event> {
        let Stage::Joined(transport) = &mut self.stage else { return None };
        self.caller = Some(transport.poll_caller()?);
        Some(Event { kind: CALLER, ..Event::default() })
    }
}

/// Reads a name.
///
/// # Safety
/// 64 bytes at `name` are readable.
unsafe fn name_at(name: *const u8) -> Result<Name, Failure> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { name.cast::<[u8; NAME_BYTES]>().read_unaligned() };
    Name::parse(bytes).map_err(|_| failure(EINVAL, "these bytes are no name of this version"))
}

/// See the header.
///
/// # Safety
/// That of `with`; 64 bytes at `name` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_name(handle: *const Handle, name: *mut [u8; NAME_BYTES]) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(handle, name, |handle| Ok(*handle.own.bytes())) }
}

/// See the header.
///
/// # Safety
/// That of `with`; `count` names at `names` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_join(handle: *mut Handle, names: *const u8, count: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        call(handle, |handle| {
            let each = (0..count).map(|index| name_at(names.add(index * NAME_BYTES)));
            handle.join(&each.collect::<Result<Vec<_>, _>>()?)
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `with`; `size` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_size(handle: *const Handle, size: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(handle, size, |handle| Ok(handle.transport()?.size())) }
}

/// See the header.
///
/// # Safety
/// That of `with`; `rank` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_rank(handle: *const Handle, rank: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(handle, rank, |handle| Ok(handle.transport()?.rank().0)) }
}

/// See the header.
///
/// # Safety
/// That of `with`; `name` is readable, `rank` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_rank_of(handle: *const Handle, name: *const u8, rank: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        answer(handle, rank, |handle| {
            let found = handle.transport()?.peer_of(&name_at(name)?);
            Ok(found.ok_or_else(|| failure(EINVAL, "no process of this name has joined"))?.0)
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `with`; `name` is readable; `peer` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_insert(handle: *mut Handle, name: *const u8, peer: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(handle, peer, |handle| Ok(handle.transport()?.insert(&name_at(name)?)?.0)) }
}

/// See the header.
///
/// # Safety
/// That of `with`; 64 bytes at `name` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_name_of(handle: *const Handle, peer: u32, name: *mut [u8; NAME_BYTES]) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        answer(handle, name, |handle| {
            let found = handle.transport()?.name_of(PeerId(peer));
            Ok(*found.ok_or_else(|| failure(EINVAL, "there is no such peer"))?.bytes())
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_remove(handle: *mut Handle, peer: u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call(handle, |handle| Ok(handle.transport()?.remove(PeerId(peer))?)) }
}

/// See the header.
///
/// # Safety
/// That of `with`; 64 bytes at `name` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_caller(handle: *const Handle, name: *mut [u8; NAME_BYTES]) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        answer(handle, name, |handle| {
            Ok(*handle.caller.ok_or_else(|| failure(ESTATE, "there was no RERAIL_CALLER event"))?.bytes())
        })
    }
}

/// See the header.
///
/// # Safety
/// That of `with`; `name` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rerail_refuse(handle: *mut Handle, name: *const u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        call(handle, |handle| {
            handle.transport()?.refuse(&name_at(name)?);
            Ok(())
        })
    }
}
