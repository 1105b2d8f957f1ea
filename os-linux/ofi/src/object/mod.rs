//! libfabric's objects: C calls that check their arguments, turn pointers into the port's types, and return
//! numbers.
//!
//! Each object begins with libfabric's structure for it, so a pointer to that is a pointer to the object.
//! libfabric hands back only pointers that an `open` gave out, until the object is closed, and closes an
//! object after those that belong to it; that is the promise behind the `unsafe` blocks of these files,
//! called the contract of objects there.
//!
//! | file | object |
//! |---|---|
//! | `fabric` | fabric, and the event queue that has no events |
//! | `domain` | domain: the port and its lock |
//! | `av`, `cq`, `cntr`, `mr` | address vector, completion queue, counter, registration |
//! | `ep` | endpoint |
//! | `msg`, `tagged`, `rma`, `atomic` | what an endpoint does |
#![allow(unsafe_code)]

mod atomic;
mod av;
mod cntr;
mod cq;
mod domain;
mod ep;
pub mod fabric;
mod message;
mod mr;
mod msg;
mod rma;
mod tagged;

use std::ffi::{c_int, c_void};

use libc::iovec;

use crate::abi::object::{Fid, Ops};
use crate::abi::{FI_EINVAL, FI_EOTHER};
use crate::port::{Errno, PIECES_MAX, Piece, Pieces};

/// The front of a new object.
fn front(class: usize, context: *mut c_void, ops: &'static Ops) -> Fid {
    Fid { fclass: class, context, ops }
}

/// What a call that works or does not answers.
fn answer(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Errno(errno)) => -errno,
    }
}

/// The same, where a size could be answered.
#[inline]
fn answer_size(result: Result<(), Errno>) -> isize {
    match result {
        Ok(()) => 0,
        Err(Errno(errno)) => -(errno as isize),
    }
}

/// What a call answers that has panicked.
const PANICKED: Errno = Errno(FI_EOTHER);

/// One piece.
#[inline]
fn whole(start: *const c_void, len: usize) -> Result<Pieces, Errno> {
    Ok(Pieces::one(start as u64, len as u64))
}

/// The pieces of a list.
///
/// # Safety
/// `count` entries at `iov` must be readable.
unsafe fn pieces(iov: *const iovec, count: usize) -> Result<Pieces, Errno> {
    let mut pieces = Pieces::default();
    if count > PIECES_MAX {
        return Err(Errno(FI_EINVAL));
    }
    for index in 0..count {
        // SAFETY: the caller's promise.
        let entry = unsafe { *iov.add(index) };
        pieces.push(Piece { address: entry.iov_base as u64, len: entry.iov_len as u64 })?;
    }
    Ok(pieces)
}

/// All bytes of pieces, in order.
///
/// # Safety
/// The pieces must be readable.
unsafe fn gathered(pieces: &Pieces) -> Vec<u8> {
    let mut all = Vec::with_capacity(pieces.len() as usize);
    for piece in pieces.as_slice() {
        // SAFETY: the caller's promise.
        all.extend_from_slice(unsafe { crate::memory::bytes(piece.address as *const u8, piece.len as usize) });
    }
    all
}
