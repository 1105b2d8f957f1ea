//! Copies to and from registered memory.
#![allow(unsafe_code)]

/// The start of registered memory, as an address. The caller that registered it guarantees that it stays.
#[derive(Clone, Copy)]
pub struct Start(pub *mut u8);

impl Start {
    /// Bytes from `offset` on; the caller has checked the range against the registration.
    pub fn read(self, offset: u64, len: usize) -> Vec<u8> {
        // SAFETY: inside registered memory, which stays mapped until it is deregistered (`Device::register`).
        (0..len).map(|at| unsafe { self.0.add(offset as usize + at).read_volatile() }).collect()
    }

    /// Puts bytes at `offset`; the caller has checked range and right to write.
    pub fn write(self, offset: u64, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: inside registered memory, writable by the promise of `Device::register`.
            unsafe { self.0.add(offset as usize + at).write_volatile(*byte) };
        }
    }
}
