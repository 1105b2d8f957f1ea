//! Where things lie in a ring's memory (rule L-11).
//!
//! ```text
//!    0  head      u32, written by the consumer when it has freed slots
//!  128  sleeping  u32, set by the consumer, cleared by whoever wakes it
//!  256  starved   u32, set by the producer, cleared by whoever wakes it
//!  384  constants written once by the creator, see `Constants`
//!  512  slot 0, slot 1, ...: { turn u32, header bytes u32, payload bytes u32, 0 } header, padding to 16, payload
//! ```
//!
//! Invariants: each word that one side writes and the other polls has [`LINE_BYTES`] for itself (two cache lines: the
//! adjacent-line prefetcher of x86 works in pairs, and some ARM cores have lines of 128 bytes). `sleeping` is apart from
//! `head`, for the producer looks at it after every message and the consumer writes `head` all the time. The distance of
//! two slots is an odd number of 64-byte lines, so that the first lines of the slots spread over all sets of a cache;
//! a power of two would put them all into one.

use core::fmt;

use bytemuck::{Pod, Zeroable};

use crate::wire::HEADER_BYTES_MAX;

/// Bytes that keep words of different owners apart.
pub const LINE_BYTES: usize = 128;
/// The most slots of a ring.
pub const SLOTS_MAX: u32 = 1 << 16;
/// The most bytes of a slot.
const SLOT_BYTES_MAX: u32 = 1 << 24;
/// The fewest bytes of a slot: a header.
const SLOT_BYTES_MIN: u32 = HEADER_BYTES_MAX as u32;

pub(super) const HEAD_AT: usize = 0;
pub(super) const SLEEPING_AT: usize = LINE_BYTES;
pub(super) const STARVED_AT: usize = 2 * LINE_BYTES;
pub(super) const CONSTANTS_AT: usize = 3 * LINE_BYTES;
pub(super) const SLOTS_AT: usize = 4 * LINE_BYTES;
/// Bytes of a slot before its header.
pub(super) const SLOT_PREFIX_BYTES: usize = 16;
pub(super) const TURN_AT: usize = 0;
pub(super) const HEADER_BYTES_AT: usize = 4;
pub(super) const PAYLOAD_BYTES_AT: usize = 8;

/// The payload starts on a multiple of this, so that the copy is aligned.
pub(super) const PAYLOAD_ALIGN: u32 = 16;

/// How a ring is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// How many slots: 2 to [`SLOTS_MAX`].
    pub slots: u32,
    /// Bytes of one slot: header, rounded up to a multiple of 16, and payload. 256 B to 16 MiB, a multiple of 16.
    pub slot_bytes: u32,
}

/// Which value of a [`RingConfig`] is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfigError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u32,
    /// The least value allowed.
    pub min: u32,
    /// The greatest value allowed.
    pub max: u32,
}

impl fmt::Display for RingConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RingConfigError { field, value, min, max } = self;
        write!(f, "{field} of a ring is {value}, allowed are {min} to {max} (slot_bytes: multiples of {PAYLOAD_ALIGN})")
    }
}

impl core::error::Error for RingConfigError {}

impl RingConfig {
    /// Says whether the values are in their ranges.
    pub const fn check(&self) -> Result<(), RingConfigError> {
        if self.slots < 2 || self.slots > SLOTS_MAX {
            return Err(RingConfigError { field: "slots", value: self.slots, min: 2, max: SLOTS_MAX });
        }
        let bytes = self.slot_bytes;
        if bytes < SLOT_BYTES_MIN || bytes > SLOT_BYTES_MAX || !bytes.is_multiple_of(PAYLOAD_ALIGN) {
            let (min, max) = (SLOT_BYTES_MIN, SLOT_BYTES_MAX);
            return Err(RingConfigError { field: "slot_bytes", value: bytes, min, max });
        }
        Ok(())
    }

    /// The distance of two slots in bytes.
    pub(super) const fn stride(&self) -> usize {
        let lines = (SLOT_PREFIX_BYTES + self.slot_bytes as usize).div_ceil(64);
        (lines | 1) * 64
    }

    /// The most payload bytes that fit beside a header of `header_bytes`.
    pub const fn payload_bytes_max(&self, header_bytes: u32) -> u32 {
        self.slot_bytes.saturating_sub(header_bytes.saturating_add(PAYLOAD_ALIGN - 1) / PAYLOAD_ALIGN * PAYLOAD_ALIGN)
    }
}

/// Bytes of memory that a ring takes; `None` where they exceed the address space.
pub const fn ring_bytes(config: RingConfig) -> Option<usize> {
    match config.stride().checked_mul(config.slots as usize) {
        Some(slots) => slots.checked_add(SLOTS_AT),
        None => None,
    }
}

/// What the creator of a ring says about it. The other side compares it once and then uses its own copies.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Constants {
    /// [`Constants::MAGIC`].
    pub magic: u32,
    /// [`Constants::VERSION`].
    pub version: u32,
    /// [`RingConfig::slots`].
    pub slots: u32,
    /// [`RingConfig::slot_bytes`].
    pub slot_bytes: u32,
}

impl Constants {
    pub const MAGIC: u32 = u32::from_le_bytes(*b"rrng");
    pub const VERSION: u32 = 1;

    pub const fn of(config: RingConfig) -> Self {
        let RingConfig { slots, slot_bytes } = config;
        Constants { magic: Self::MAGIC, version: Self::VERSION, slots, slot_bytes }
    }

    /// The fields with their names, to say which one differs.
    pub const fn fields(&self) -> [(&'static str, u32); 4] {
        [("magic", self.magic), ("version", self.version), ("slots", self.slots), ("slot_bytes", self.slot_bytes)]
    }
}

const _: () = assert!(size_of::<Constants>() <= LINE_BYTES);
