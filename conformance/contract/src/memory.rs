//! The buffers of a case: memory that devices read and write behind the compiler's back.
//!
//! Invariants: no reference to a buffer's bytes ever exists, only pointers, so that a device may touch them
//! at any time; a buffer is freed only after every registration of it was ended ([`Memory::close`]), and
//! otherwise never.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use rerail_verbs::contract::{Access, DestroyError, Device, Mr, MrId, PdId, RegisterError};

use crate::testbed::{End, Testbed};

/// Bytes of a case's own memory behind the end of every buffer, so that a device that checks ranges wrongly
/// damages nothing else.
pub const SLACK_BYTES: usize = 4096;

/// Alignment of buffers: a page.
const ALIGN: usize = 4096;

/// All buffers of one case.
#[derive(Default)]
pub(crate) struct Memory {
    buffers: Vec<Buffer>,
    registered: Vec<(End, MrId)>,
}

struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
    /// Without the slack.
    len: usize,
}

impl Memory {
    /// A new buffer of zeros; its name.
    pub fn allocate(&mut self, len: usize) -> usize {
        let layout = Layout::from_size_align(len + SLACK_BYTES, ALIGN).expect("a case's buffers are small");
        // SAFETY: the layout's size is at least SLACK_BYTES, so not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        self.buffers.push(Buffer { start, layout, len });
        self.buffers.len() - 1
    }

    /// The address of a buffer's first byte.
    pub fn address(&self, buffer: usize) -> u64 {
        self.buffers[buffer].start.as_ptr() as u64
    }

    /// Registers the first `len` bytes of a buffer.
    pub fn register(
        &mut self,
        (end, device): (End, &mut dyn Device),
        pd: PdId,
        (buffer, len): (usize, usize),
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegisterError> {
        let Buffer { start, len: whole, .. } = self.buffers[buffer];
        assert!(len <= whole, "a case registers inside its buffers");
        // SAFETY: the buffer stays allocated and writable until `close` has seen its registration ended, and
        // for ever where that fails; references to its bytes are never made.
        let mr = unsafe { device.register(pd, start.as_ptr(), len as u64, iova, access)? };
        self.registered.push((end, mr.id));
        Ok(mr)
    }

    /// Ends a registration.
    pub fn deregister(&mut self, end: End, device: &mut dyn Device, mr: MrId) -> Result<(), DestroyError> {
        device.deregister(mr)?;
        self.registered.retain(|known| *known != (end, mr));
        Ok(())
    }

    /// Copies bytes into a buffer.
    pub fn write(&mut self, buffer: usize, offset: usize, bytes: &[u8]) {
        let Buffer { start, len, .. } = self.buffers[buffer];
        assert!(offset <= len && bytes.len() <= len - offset, "a case writes inside its buffers");
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the allocation, by the check above; volatile, because a device may look at any
            // time.
            unsafe { start.as_ptr().add(offset + i).write_volatile(*byte) };
        }
    }

    /// Copies bytes out of a buffer.
    pub fn read(&self, buffer: usize, offset: usize, count: usize) -> Vec<u8> {
        let Buffer { start, len, .. } = self.buffers[buffer];
        assert!(offset <= len && count <= len - offset, "a case reads inside its buffers");
        // SAFETY: inside the allocation, by the check above; volatile, because a device may write at any
        // time.
        (offset..offset + count).map(|at| unsafe { start.as_ptr().add(at).read_volatile() }).collect()
    }

    /// Ends all registrations and frees the buffers. Where a device doesn't end one, none is freed: it may
    /// still write.
    pub fn close(&mut self, testbed: &mut dyn Testbed) {
        let ended = self.registered.drain(..).all(|(end, mr)| testbed.device(end).deregister(mr).is_ok());
        for buffer in self.buffers.drain(..).filter(|_| ended) {
            // SAFETY: allocated with this layout; no device has it registered, and no other code has its
            // address.
            unsafe { dealloc(buffer.start.as_ptr(), buffer.layout) };
        }
    }
}
