//! The caller's memory, where the provider touches it itself.
#![allow(unsafe_code)]

use rerail_core::mem::RegionId;
use rerail_linux::driver::{MemoryError, Transport};

/// Makes all of this process's memory one region; its offsets are addresses.
pub fn adopt_all(transport: &mut Transport) -> Result<RegionId, MemoryError> {
    // SAFETY: requests and windows name memory that the caller of libfabric has named in a request or
    // registered. By libfabric's contract the caller leaves it mapped and to the provider until the
    // completion, or until the registration is closed. Memory unmapped later without notice concerns rails
    // that keep memory registered; the provider opens none.
    unsafe { transport.adopt_address_space() }
}

/// Where the value before an atomic goes.
#[derive(Debug)]
pub struct Target {
    address: *mut u8,
    bytes: usize,
}

impl Target {
    /// Room for a value of so many bytes, at most 8.
    ///
    /// # Safety
    /// The bytes must be writable, and not in other use, until [`store`](Self::store) or the target's end.
    pub unsafe fn new(address: *mut u8, bytes: usize) -> Target {
        Target { address, bytes: bytes.min(size_of::<u64>()) }
    }

    /// Writes the low bytes of the value.
    pub fn store(self, value: u64) {
        let value = value.to_le_bytes();
        // SAFETY: `new` was promised room for so many bytes, which are at most those of the value.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), self.address, self.bytes) }
    }
}

/// Bytes that the caller injects; empty where there are none.
///
/// # Safety
/// `len` bytes at `start` must be readable, and not change, as long as the slice lives.
pub unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, len) }
}
