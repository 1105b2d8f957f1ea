//! Where things lie in a ring's memory (rule L-11).
//!
//! ```text
//!    0  head, annex head  u32 each, one u64: written by the consumer when it has freed cells
//!  128  sleeping          u32, set by the consumer, cleared by the side that wakes it
//!  256  producer_waits    u32, set by the producer, cleared by the side that wakes it
//!  264  offer             u64, written by the producer, seldom: see `Producer::offer`
//!  272  windows           u64, written by the producer, seldom: see `Producer::list_windows`
//!  320  putting           u64, written by the producer around each direct put
//!  384  constants         written once by the creator, see `Constants`
//!  512  claims            u64, see `claims`: the producer reads a message, the consumer owns it
//!  640  window 0, window 1, ...: WINDOW_BYTES each, written by the producer, seldom
//! 1024  cell 0, cell 1, ...: CELL_BYTES each
//!    .. annex slot 0, annex slot 1, ...
//! ```
//!
//! A cell, and where the bytes of a message are:
//!
//! ```text
//!        SHORT                                      PACKET
//!    0   turn u32, len u16, kind u8, flags u8       the same; len: bytes of the header
//!    8   psn u32, message, block limits u16 each    payload bytes u32, 0
//!   16   tag u64                                    header, from the next multiple of 8 on the payload
//!   24   immediate u64 where there is one
//!   24 or 32  payload
//! ```
//!
//! What doesn't fit there lies in the next annex slot: the payload of a SHORT, or header, padding to 16 and
//! payload of a PACKET. Whether it fits follows from the lengths, and which slot is next from counting, so
//! neither is written.
//!
//! Invariants: each word that one side writes and the other polls has [`LINE_BYTES`] for itself (two cache
//! lines: the adjacent-line prefetcher of x86 works in pairs, and some ARM cores have lines of 128 bytes).
//! `sleeping` is apart from `head`, because the producer reads it after every message and the consumer writes
//! `head` all the time. Cells start at a multiple of 64, so the words of a cell and the first 40 bytes of a
//! short payload are one line. The distance of two annex slots is an odd number of lines, so that their first
//! lines spread over all sets of a cache; a power of two would put them all into one.

use bytemuck::{Pod, Zeroable};

use super::windows::WINDOWS_MAX;
use crate::wire::{HEADER_BYTES_MAX, Short};

/// Bytes that keep words of different owners apart.
pub const LINE_BYTES: usize = 128;
/// The most annex slots of a ring.
pub const SLOTS_MAX: u32 = 1 << 16;
/// The most cells of a ring.
pub const CELLS_MAX: u32 = 1 << 16;
/// The most payload bytes of a short message that lie in its cell, where it has no immediate data.
pub const SHORT_INLINE_BYTES: u32 = CELL_BYTES as u32 - SHORT_AT;
/// The most bytes of a slot.
const SLOT_BYTES_MAX: u32 = 1 << 24;
/// The fewest bytes of a slot: a header.
const SLOT_BYTES_MIN: u32 = HEADER_BYTES_MAX as u32;

pub(super) const HEAD_AT: usize = 0;
pub(super) const SLEEPING_AT: usize = LINE_BYTES;
pub(super) const PRODUCER_WAITS_AT: usize = 2 * LINE_BYTES;
/// Beside `producer_waits`: both are the producer's, and this one hardly ever changes.
pub(super) const OFFER_AT: usize = PRODUCER_WAITS_AT + 8;
/// As [`OFFER_AT`]: the number of the list of windows.
pub(super) const WINDOWS_AT: usize = OFFER_AT + 8;
/// The producer's too, in a line of its own: written for each direct put.
pub const PUTTING_AT: usize = PRODUCER_WAITS_AT + 64;
pub(super) const CONSTANTS_AT: usize = 3 * LINE_BYTES;
pub(super) const CLAIMS_AT: usize = 4 * LINE_BYTES;
/// The list of windows.
pub(super) const LIST_AT: usize = 5 * LINE_BYTES;
/// Bytes of a window in the list: four words.
pub(super) const WINDOW_BYTES: usize = 32;
pub(super) const CELLS_AT: usize = LIST_AT + WINDOWS_MAX * WINDOW_BYTES;
/// Bytes of a cell: three lines.
pub(super) const CELL_BYTES: usize = 192;
/// So many cells ahead of a small message a producer has the line fetched that it will write: it is in the
/// consumer's cache, and takes several times as long as a message to come. Not further, so that the consumer,
/// which reads ahead, takes few away again.
pub(super) const AHEAD: usize = 5;
/// Bytes of a cell before what a short message has beside its three words.
pub(super) const SHORT_AT: u32 = 24;
/// Bytes of a cell before the packet in it.
pub(super) const PACKET_AT: u32 = 16;
/// Bytes of a cell that hold a packet.
const PACKET_INLINE_BYTES: u32 = CELL_BYTES as u32 - PACKET_AT;
/// The payload of a packet in a cell starts on a multiple of this.
const INLINE_ALIGN: u32 = 8;
/// The payload of a packet in a slot starts on a multiple of this, so that the copy is aligned.
pub(super) const PAYLOAD_ALIGN: u32 = 16;

const _: () = assert!(CELLS_AT.is_multiple_of(64) && CELL_BYTES.is_multiple_of(64));
// A header alone always has a place: that of ordinary packets in the cell, the largest in the annex.
const _: () = assert!(SLOT_BYTES_MIN >= HEADER_BYTES_MAX as u32 && HEADER_BYTES_MAX <= u16::MAX as usize);

/// Cells with memory that is made usable at once. With these and the words before them a ring begins in one
/// page.
const POPULATED_CELLS: u32 = 16;
const _: () = assert!(CELLS_AT + POPULATED_CELLS as usize * CELL_BYTES <= 4096);

/// Kinds of message, in a cell's first word.
pub(super) const SHORT: u8 = 1;
/// See [`SHORT`].
pub(super) const PACKET: u8 = 2;
/// See [`SHORT`]: a packet without payload, for the rail of the other side (L-21).
pub(super) const NOTE: u8 = 3;

/// A cell's first word: what the one publishing store writes.
#[derive(Clone, Copy)]
pub(super) struct First {
    pub turn: u32,
    pub len: u16,
    pub kind: u8,
    pub flags: u8,
}

impl First {
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        // In this order it is the fewest instructions.
        ((self.flags as u64) << 24 | (self.kind as u64) << 16 | self.len as u64) << 32 | self.turn as u64
    }

    #[inline(always)]
    pub const fn of(bits: u64) -> Self {
        First { turn: bits as u32, len: (bits >> 32) as u16, kind: (bits >> 48) as u8, flags: (bits >> 56) as u8 }
    }
}

/// Bytes that a short message with these flags has in its cell before its payload, from [`SHORT_AT`] on.
#[inline(always)]
pub(super) const fn short_extra(flags: u8) -> u32 {
    const { assert!(Short::IMMEDIATE == 2) };
    (flags & Short::IMMEDIATE) as u32 * 4
}

/// Whether the payload of a short message of `len` bytes lies in its cell, with or without immediate data.
#[inline(always)]
pub const fn fits_inline(len: u64, immediate: bool) -> bool {
    // Nearly all are short enough either way: the exact test comes second.
    let least = (SHORT_INLINE_BYTES - short_extra(Short::IMMEDIATE)) as u64;
    len <= least || (!immediate && len <= SHORT_INLINE_BYTES as u64)
}

/// Where the payload of a packet starts behind its header: `Ok` in its cell, `Err` in the annex.
pub(super) const fn packet_at(header_bytes: u32, payload_bytes: u32) -> Result<u32, u32> {
    let at = header_bytes.next_multiple_of(INLINE_ALIGN);
    if at <= PACKET_INLINE_BYTES && payload_bytes <= PACKET_INLINE_BYTES - at {
        Ok(PACKET_AT + at)
    } else {
        Err(header_bytes.next_multiple_of(PAYLOAD_ALIGN))
    }
}

/// How a ring is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// How many cells, one a message: a power of two from 2 to [`CELLS_MAX`].
    pub cells: u32,
    /// How many annex slots, one for each message that doesn't fit into its cell: 2 to [`SLOTS_MAX`].
    pub slots: u32,
    /// Bytes of one slot: header, rounded up to a multiple of 16, and payload. 256 B to 16 MiB, a multiple of
    /// 16.
    pub slot_bytes: u32,
}

/// Which value of a [`RingConfig`] is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{field} of a ring is {value}, allowed are {min} to {max} (cells: powers of two; slot_bytes: multiples of {PAYLOAD_ALIGN})"
)]
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

impl RingConfig {
    /// Checks that the values are in their ranges.
    pub const fn check(&self) -> Result<(), RingConfigError> {
        if self.cells < 2 || self.cells > CELLS_MAX || !self.cells.is_power_of_two() {
            return Err(RingConfigError { field: "cells", value: self.cells, min: 2, max: CELLS_MAX });
        }
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

    /// The distance of two annex slots in bytes.
    pub(super) const fn stride(&self) -> usize {
        ((self.slot_bytes as usize).div_ceil(64) | 1) * 64
    }

    /// Where the annex starts. A multiple of [`LINE_BYTES`], for there is an even number of cells.
    pub(super) const fn annex_at(&self) -> usize {
        CELLS_AT + self.cells as usize * CELL_BYTES
    }

    /// The most payload bytes that fit beside a packet's header of `header_bytes`.
    pub const fn payload_bytes_max(&self, header_bytes: u32) -> u32 {
        self.slot_bytes.saturating_sub(header_bytes.saturating_add(PAYLOAD_ALIGN - 1) / PAYLOAD_ALIGN * PAYLOAD_ALIGN)
    }

    /// The most payload bytes of a short message.
    pub const fn short_bytes_max(&self) -> u16 {
        if self.slot_bytes < u16::MAX as u32 { self.slot_bytes as u16 } else { u16::MAX }
    }

    /// How many cells are made usable at once. A power of two.
    pub(super) const fn populated_cells(&self) -> u32 {
        if self.cells < POPULATED_CELLS { self.cells } else { POPULATED_CELLS }
    }

    /// Bytes from the start that both sides touch from the start.
    pub const fn first_bytes(&self) -> usize {
        CELLS_AT + self.populated_cells() as usize * CELL_BYTES
    }

    /// How many freed cells the consumer publishes at once: often enough that a producer waits for no more
    /// than a quarter of the ring, and seldom enough that the line stays out of the way of a stream. A power
    /// of two.
    pub(super) const fn publish_period(&self) -> u32 {
        match self.cells / 4 {
            0 => 1,
            quarter if quarter < 64 => quarter,
            _ => 64,
        }
    }
}

/// Bytes of memory that a ring takes; `None` where they exceed the address space.
pub const fn ring_bytes(config: RingConfig) -> Option<usize> {
    let Some(cells) = CELL_BYTES.checked_mul(config.cells as usize) else { return None };
    let Some(slots) = config.stride().checked_mul(config.slots as usize) else { return None };
    let Some(both) = cells.checked_add(slots) else { return None };
    both.checked_add(CELLS_AT)
}

/// The ring's description by its creator. The other side compares it once and then uses its own copies.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Constants {
    /// [`Constants::MAGIC`].
    pub magic: u32,
    /// [`Constants::VERSION`].
    pub version: u32,
    /// [`RingConfig::cells`].
    pub cells: u32,
    /// [`RingConfig::slots`].
    pub slots: u32,
    /// [`RingConfig::slot_bytes`].
    pub slot_bytes: u32,
}

impl Constants {
    pub const MAGIC: u32 = u32::from_le_bytes(*b"rrng");
    pub const VERSION: u32 = 4;

    pub const fn of(config: RingConfig) -> Self {
        let RingConfig { cells, slots, slot_bytes } = config;
        Constants { magic: Self::MAGIC, version: Self::VERSION, cells, slots, slot_bytes }
    }

    /// The fields with their names, to report which one differs.
    pub const fn fields(&self) -> [(&'static str, u32); 5] {
        [
            ("magic", self.magic),
            ("version", self.version),
            ("cells", self.cells),
            ("slots", self.slots),
            ("slot_bytes", self.slot_bytes),
        ]
    }
}

const _: () = assert!(size_of::<Constants>() <= LINE_BYTES);
