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
    /// Room for values of so many bytes each, at most 8.
    ///
    /// # Safety
    /// The bytes of all values that are [stored](Self::store) must be writable, and not in other use, until
    /// the target's end.
    pub unsafe fn new(address: *mut u8, bytes: usize) -> Target {
        Target { address, bytes: bytes.min(size_of::<u64>()) }
    }

    /// Writes the low bytes of value number `index`.
    pub fn store(&self, index: usize, value: u64) {
        let value = value.to_le_bytes();
        // SAFETY: `new` was promised room for each value that is stored, of so many bytes, which are at most
        // those of `value`.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), self.address.add(index * self.bytes), self.bytes) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_side_by_side_in_their_low_bytes() {
        let mut room = [0xff_u8; 8];
        // SAFETY: three values of two bytes fit into the room, which nothing else uses meanwhile.
        let target = unsafe { Target::new(room.as_mut_ptr(), 2) };
        [(2, 0x9_0605), (0, 0x0201), (1, 0x0403)].into_iter().for_each(|(index, value)| target.store(index, value));
        assert_eq!(room, [1, 2, 3, 4, 5, 6, 0xff, 0xff]);
    }
}
