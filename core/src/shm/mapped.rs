//! A ring's cells on raw memory that another process maps too.
//!
//! Safety argument of the file: a [`Mapped`] is made only over memory that its maker vouches for (alignment, length,
//! lifetime, and that this process touches it through rings only), with a configuration whose size was checked against
//! that length. Every access computes its address from that private configuration and from arguments below its bounds,
//! never from a value read out of the memory. Words are only touched atomically. Header and payload bytes are copied
//! without atomics: an honest peer does not touch them meanwhile (the turn number and the head hand them over), and
//! a dishonest one, being another process, can do no more than change which bytes the copy yields. Nothing branches on
//! bytes in place; a header is parsed from the private copy only.
#![allow(unsafe_code)]

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use super::layout::{
    CONSTANTS_AT, Constants, HEAD_AT, HEADER_BYTES_AT, LINE_BYTES, PAYLOAD_BYTES_AT, RingConfig, RingConfigError,
    SLEEPING_AT, SLOT_PREFIX_BYTES, SLOTS_AT, STARVED_AT, TURN_AT, ring_bytes,
};
use super::machine::{Cells, Consumer, Producer, Word};

/// Why memory can't be used as a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The configuration is out of range.
    Config(RingConfigError),
    /// The memory is too small.
    TooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The memory does not start on a multiple of [`LINE_BYTES`].
    Misaligned {
        /// How many bytes past such a multiple it starts.
        off_by: usize,
    },
    /// The creator of the ring wrote something else than was agreed.
    Constant {
        /// The field.
        field: &'static str,
        /// What stands there.
        found: u32,
        /// What was agreed.
        expected: u32,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Config(error) => write!(f, "no ring can be like this: {error}"),
            AttachError::TooSmall { needed, given } => {
                write!(f, "a ring of {needed} bytes does not fit into memory of {given} bytes")
            }
            AttachError::Misaligned { off_by } => {
                write!(f, "a ring must start on a multiple of {LINE_BYTES} bytes, not {off_by} bytes past one")
            }
            AttachError::Constant { field, found, expected } => {
                write!(
                    f,
                    "{field} of the ring is {found}, agreed was {expected}: both sides must have the same settings"
                )
            }
        }
    }
}

impl core::error::Error for AttachError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            AttachError::Config(error) => Some(error),
            _ => None,
        }
    }
}

/// Ring memory.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u8>,
    config: RingConfig,
    stride: usize,
}

// SAFETY: a Mapped has no tie to the thread that made it: it is a pointer to memory that its maker keeps alive, and
// everything shared in it is atomic. It is not Sync: one side of a ring has one user at a time.
unsafe impl Send for Mapped {}

impl Mapped {
    /// # Safety
    /// `base` can be read and written for `len` bytes as long as the value lives, and this process reads and writes
    /// these bytes through rings or atomically only.
    unsafe fn new(base: NonNull<u8>, len: usize, config: RingConfig) -> Result<Self, AttachError> {
        config.check().map_err(AttachError::Config)?;
        let needed = ring_bytes(config).unwrap_or(usize::MAX);
        if needed > len || needed > isize::MAX as usize {
            return Err(AttachError::TooSmall { needed, given: len });
        }
        let off_by = base.addr().get() % LINE_BYTES;
        if off_by != 0 {
            return Err(AttachError::Misaligned { off_by });
        }
        Ok(Mapped { base, config, stride: config.stride() })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: every caller passes the place of a word in the layout: a multiple of 4 that ends within the
        // `ring_bytes(config)` that `new` checked against the length; `base` is aligned to LINE_BYTES, and the memory is
        // valid for the life of `self`. Any bits are a u32, and all accesses to words are atomic.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU32>() }
    }

    /// Where slot `slot` starts; below `ring_bytes(config)`.
    fn slot_at(&self, slot: u32) -> usize {
        debug_assert!(slot < self.config.slots, "slot {slot} of {}", self.config.slots);
        SLOTS_AT + slot as usize * self.stride
    }

    /// The words of the constants, in the order of [`Constants::fields`].
    fn constant(&self, index: usize) -> &AtomicU32 {
        debug_assert!(index < size_of::<Constants>() / 4);
        self.word(CONSTANTS_AT + 4 * index)
    }

    /// Writes the constants of a ring that this side creates.
    fn stamp(&self) {
        let constants = Constants::of(self.config);
        for (index, value) in bytemuck::cast_slice::<Constants, u32>(&[constants]).iter().enumerate() {
            self.constant(index).store(*value, Ordering::Relaxed);
        }
    }

    /// Compares the constants of a ring that the other side created, once.
    fn verify(&self) -> Result<(), AttachError> {
        for (index, (field, expected)) in Constants::of(self.config).fields().into_iter().enumerate() {
            let found = self.constant(index).load(Ordering::Relaxed);
            if found != expected {
                return Err(AttachError::Constant { field, found, expected });
            }
        }
        Ok(())
    }
}

impl Word for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }

    fn store(&self, value: u32, order: Ordering) {
        AtomicU32::store(self, value, order);
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        AtomicU32::swap(self, value, order)
    }
}

impl Cells for Mapped {
    type Word = AtomicU32;

    fn config(&self) -> RingConfig {
        self.config
    }

    fn head(&self) -> &AtomicU32 {
        self.word(HEAD_AT)
    }

    fn sleeping(&self) -> &AtomicU32 {
        self.word(SLEEPING_AT)
    }

    fn starved(&self) -> &AtomicU32 {
        self.word(STARVED_AT)
    }

    fn turn(&self, slot: u32) -> &AtomicU32 {
        self.word(self.slot_at(slot) + TURN_AT)
    }

    fn header_bytes(&self, slot: u32) -> &AtomicU32 {
        self.word(self.slot_at(slot) + HEADER_BYTES_AT)
    }

    fn payload_bytes(&self, slot: u32) -> &AtomicU32 {
        self.word(self.slot_at(slot) + PAYLOAD_BYTES_AT)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    unsafe fn copy_in(&self, slot: u32, at: u32, from: *const u8, len: usize) {
        debug_assert!(at as usize + len <= self.config.slot_bytes as usize);
        let to = self.slot_at(slot) + SLOT_PREFIX_BYTES + at as usize;
        // SAFETY: the caller vouches for `from` and for `at + len <= slot_bytes`, so the bytes lie in the slot, and the
        // slot in the checked memory; `from` is not ring memory (this process touches that through rings only).
        unsafe { core::ptr::copy_nonoverlapping(from, self.base.as_ptr().add(to), len) };
    }

    unsafe fn copy_out(&self, slot: u32, at: u32, to: *mut u8, len: usize) {
        debug_assert!(at as usize + len <= self.config.slot_bytes as usize);
        let from = self.slot_at(slot) + SLOT_PREFIX_BYTES + at as usize;
        // SAFETY: as in `copy_in`, the other way round.
        unsafe { core::ptr::copy_nonoverlapping(self.base.as_ptr().add(from), to, len) };
    }
}

impl Consumer<Mapped> {
    /// Creates a ring in zeroed memory and becomes its consumer.
    ///
    /// # Safety
    /// `base` can be read and written for `len` bytes as long as the value lives; this process reads and writes these
    /// bytes through this consumer, one producer, or atomically only; they are zero.
    pub unsafe fn create(base: NonNull<u8>, len: usize, config: RingConfig) -> Result<Self, AttachError> {
        // SAFETY: the caller's promise is the same.
        let mapped = unsafe { Mapped::new(base, len, config) }?;
        mapped.stamp();
        Ok(Consumer::over(mapped))
    }
}

impl Producer<Mapped> {
    /// Becomes the producer of a ring that its consumer created; `config` is what was agreed.
    ///
    /// # Safety
    /// `base` can be read and written for `len` bytes as long as the value lives; this process reads and writes these
    /// bytes through this producer, one consumer, or atomically only.
    pub unsafe fn attach(base: NonNull<u8>, len: usize, config: RingConfig) -> Result<Self, AttachError> {
        // SAFETY: the caller's promise is the same.
        let mapped = unsafe { Mapped::new(base, len, config) }?;
        mapped.verify()?;
        Ok(Producer::over(mapped))
    }
}
