//! The caller's memory, where the provider touches it itself.
#![allow(unsafe_code)]

use rerail_core::mem::RegionId;
use rerail_linux::driver::{MemoryError, Transport};

/// Makes all of this process's memory one region, whose offsets are addresses.
pub fn adopt_all(transport: &mut Transport) -> Result<RegionId, MemoryError> {
    // SAFETY: what requests and windows name is what the caller of libfabric has named in a request or
    // registered, and by libfabric's contract it leaves that memory mapped and to the provider until the
    // completion, or until the registration is closed. What is unmapped later without a word concerns rails
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
    /// The bytes must be writable, and nobody else's, until [`store`](Self::store) or the target's end.
    pub unsafe fn new(address: *mut u8, bytes: usize) -> Target {
        Target { address, bytes: bytes.min(size_of::<u64>()) }
    }

    /// Writes the value, whose low bytes count.
    pub fn store(self, value: u64) {
        let value = value.to_le_bytes();
        // SAFETY: `new` was promised room for so many bytes, which are at most those of the value.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), self.address, self.bytes) }
    }
}

/// Bytes that the caller injects; none where there is nothing.
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
