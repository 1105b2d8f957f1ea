//! The copy of a small message: a few overlapping words instead of a call.
#![allow(unsafe_code)]

use core::ptr::copy_nonoverlapping;

/// Copies `len` bytes. Up to 32 bytes are copied without a call; what is longer, by the system's `memcpy`.
///
/// # Safety
/// `from` can be read and `to` written for `len` bytes, and the two don't overlap. Where `len` is 0, neither
/// condition applies.
#[inline(always)]
pub unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: each arm copies bytes below `len` only; where two words overlap, the second writes the same
    // bytes again. An array of bytes has no alignment.
    unsafe {
        if len == 8 {
            to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read());
        } else if len <= 16 {
            if len >= 8 {
                ends::<8>(from, to, len);
            } else if len >= 4 {
                ends::<4>(from, to, len);
            } else if len > 0 {
                *to = *from;
                *to.add(len / 2) = *from.add(len / 2);
                *to.add(len - 1) = *from.add(len - 1);
            }
        } else if len <= 32 {
            ends::<16>(from, to, len);
        } else {
            copy_nonoverlapping(from, to, len);
        }
    }
}

/// Copies the first and the last `N` bytes of `len`, which is at least `N`.
///
/// # Safety
/// As [`copy_short`].
#[inline(always)]
unsafe fn ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; `N <= len`. Both are read before either is written, so the two loads
    // don't wait for a store.
    unsafe {
        let first = from.cast::<[u8; N]>().read();
        let last = from.add(len - N).cast::<[u8; N]>().read();
        to.cast::<[u8; N]>().write(first);
        to.add(len - N).cast::<[u8; N]>().write(last);
    }
}
