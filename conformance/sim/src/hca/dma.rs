//! The one place where the simulator touches memory that was registered: by pointer, inside the registered
//! range, while the registration exists. Everything else names memory by key and address.

use rerail_verbs::contract::Access;

/// A registration's memory. It lives in the table of registrations and nowhere else: when a registration
/// ends, this is dropped, and nothing can touch the memory any more.
#[derive(Debug)]
pub(super) struct Memory {
    start: *mut u8,
    bytes: u64,
    iova: u64,
    writable: bool,
}

impl Memory {
    /// Registered memory of `bytes` bytes at `start`, named from `iova` on.
    ///
    /// # Safety
    /// What [`Device::register`](rerail_verbs::contract::Device::register) requires of its caller, for as
    /// long as the value exists.
    pub unsafe fn new(start: *mut u8, bytes: u64, iova: u64, access: Access) -> Memory {
        let writable = access.local_write || access.remote_write || access.remote_atomic;
        Memory { start, bytes, iova, writable }
    }

    /// The offset of a range in the memory; `None` where it is not all inside.
    pub fn offset(&self, address: u64, len: u64) -> Option<u64> {
        let offset = address.checked_sub(self.iova)?;
        (offset.checked_add(len)? <= self.bytes).then_some(offset)
    }

    /// Appends a range to `out`; `false`, and nothing is appended, where it is not all inside.
    pub fn read(&self, address: u64, len: u32, out: &mut Vec<u8>) -> bool {
        let Some(offset) = self.offset(address, u64::from(len)) else { return false };
        let len = len as usize;
        out.reserve(len);
        // SAFETY: `offset + len` is at most `bytes`, all of which the registering caller promised to be
        // mapped while the value exists, with no Rust reference to it while the device runs. `out` has room
        // for `len` bytes more, which are initialised by the copy before the length includes them; it can't
        // overlap registered memory, to which there is no reference.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.add(offset as usize), out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
        true
    }

    /// Writes `data` at an address; `false`, and nothing is written, where it is not all inside or may not be
    /// written.
    pub fn write(&self, address: u64, data: &[u8]) -> bool {
        let Some(offset) = self.offset(address, data.len() as u64).filter(|_| self.writable) else { return false };
        // SAFETY: as in `read`; and the caller promised that the memory is writable where `access` allows a
        // write.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.start.add(offset as usize), data.len()) };
        true
    }

    /// Replaces the 8 bytes at an address by what `next` makes of them; the value before. `None`, and nothing
    /// is changed, where they are not all inside or may not be written.
    pub fn replace(&self, address: u64, next: impl FnOnce(u64) -> u64) -> Option<u64> {
        let mut before = Vec::with_capacity(8);
        if !self.writable || !self.read(address, 8, &mut before) {
            return None;
        }
        let before = u64::from_ne_bytes(before.try_into().ok()?);
        self.write(address, &next(before).to_ne_bytes());
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_beyond_the_registration_is_refused() {
        let mut bytes = vec![0u8; 64];
        // SAFETY: `bytes` outlives the value and is not looked at while it is used.
        let memory = unsafe { Memory::new(bytes.as_mut_ptr(), 64, 0x1000, Access::ALL) };
        assert_eq!(memory.offset(0x1000, 64), Some(0));
        assert_eq!(memory.offset(0x1000, 65), None);
        assert_eq!(memory.offset(0xfff, 1), None);
        assert_eq!(memory.offset(0x1040, 0), Some(64));
        assert_eq!(memory.offset(u64::MAX, 2), None);
        assert!(memory.write(0x1038, &7u64.to_ne_bytes()));
        assert!(!memory.write(0x1039, &7u64.to_ne_bytes()));
        assert_eq!(memory.replace(0x1038, |value| value + 1), Some(7));
        let mut out = vec![9];
        assert!(memory.read(0x1038, 8, &mut out) && !memory.read(0x1039, 8, &mut out));
        assert_eq!(out[1..], 8u64.to_ne_bytes());
        assert_eq!(bytes[56..], 8u64.to_ne_bytes());
    }

    #[test]
    fn read_only_memory_stays_as_it_is() {
        let mut bytes = vec![5u8; 8];
        // SAFETY: as above.
        let memory = unsafe { Memory::new(bytes.as_mut_ptr(), 8, 0, Access::default()) };
        assert!(!memory.write(0, &[1]));
        assert_eq!(memory.replace(0, |value| value + 1), None);
    }
}
