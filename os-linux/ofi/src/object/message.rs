//! Messages with and without a tag: the common part of both calls.
#![allow(unsafe_code)]

use std::ffi::c_void;

use super::ep::Endpoint;
use super::{PANICKED, answer_size, gathered};
use crate::abi::object::FidEp;
use crate::abi::*;
use crate::port::{Errno, Incoming, Outgoing, Pieces, Probe};

/// The other side and the tag of an outgoing message.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// The destination.
    pub to: u64,
    /// Its tag.
    pub tag: Option<u64>,
    /// Immediate data.
    pub data: Option<u64>,
}

/// Sends; `flags`: the call's own.
///
/// # Safety
/// The contract of objects; the pieces may be read until the completion, or until this returns where they are
/// injected.
#[inline]
pub unsafe fn send(
    ep: *mut FidEp,
    label: Label,
    pieces: Result<Pieces, Errno>,
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    let pieces = match pieces {
        Ok(pieces) => pieces,
        Err(errno) => return answer_size(Err(errno)),
    };
    // SAFETY: the caller's promise.
    let endpoint = unsafe { Endpoint::of(ep) };
    let Label { to, tag, data } = label;
    let out = Outgoing { endpoint: endpoint.number, to, tag, data, pieces, context: context as u64, flags };
    // SAFETY: the caller's promise.
    let payload = flags.is_some_and(|flags| flags & FI_INJECT != 0).then(|| unsafe { gathered(&pieces) });
    answer_size(endpoint.domain.with(Err(PANICKED), |port| port.send(&out, payload.as_deref())))
}

/// Sends a message and copies it at once, without a completion.
///
/// # Safety
/// The contract of objects; `len` bytes at `start` are readable.
#[inline]
pub unsafe fn inject(ep: *mut FidEp, label: Label, start: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    let (endpoint, payload) = unsafe { (Endpoint::of(ep), crate::memory::bytes(start.cast(), len)) };
    let (number, pieces) = (endpoint.number, Pieces::default());
    let Label { to, tag, data } = label;
    let out = Outgoing { endpoint: number, to, tag, data, pieces, context: 0, flags: Some(0) };
    answer_size(endpoint.domain.with(Err(PANICKED), |port| port.inject(&out, payload)))
}

/// Receives, looks for a message, or receives one that was taken; `flags`: the call's own.
///
/// # Safety
/// The contract of objects; the pieces may be written until the completion.
#[inline]
pub unsafe fn recv(
    ep: *mut FidEp,
    from: u64,
    tag: Option<(u64, u64)>,
    pieces: Result<Pieces, Errno>,
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    let pieces = match pieces {
        Ok(pieces) => pieces,
        Err(errno) => return answer_size(Err(errno)),
    };
    // SAFETY: the caller's promise.
    let endpoint = unsafe { Endpoint::of(ep) };
    let incoming = Incoming { endpoint: endpoint.number, from, tag, pieces, context: context as u64, flags };
    let has = |flag: u64| flags.is_some_and(|flags| flags & flag != 0);
    answer_size(endpoint.domain.with(Err(PANICKED), |port| {
        if has(FI_PEEK) {
            let probe = match (has(FI_CLAIM), has(FI_DISCARD)) {
                (_, true) => Probe::Discard,
                (true, false) => Probe::Claim,
                (false, false) => Probe::Peek,
            };
            port.probe(&incoming, probe)
        } else if has(FI_CLAIM) {
            port.recv_claimed(&incoming, has(FI_DISCARD))
        } else {
            port.recv(&incoming)
        }
    }))
}
