//! The header of a short message: what the express path puts into a ring's cell instead of a whole header
//! (design: one line for a small message).
//!
//! A rail that carries these identifies the peer, is lossless and keeps the order; so the header doesn't name
//! the source, and acknowledges nothing. It is equivalent to an `EAGER` packet of the ordered lane with the
//! same PSN (W-29): an endpoint that can't take the express path converts it into that header.

use core::fmt;

/// The number of a message in the ordered lane, and what its sender grants: as in a common header, in one
/// word.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts(u64);

impl Counts {
    /// Number `psn`; the sender grants messages and blocks up to these limits.
    #[inline(always)]
    pub const fn new(psn: u32, message_limit: u16, block_limit: u16) -> Counts {
        Counts(psn as u64 | (message_limit as u64) << 32 | (block_limit as u64) << 48)
    }

    /// As they stand in a cell.
    #[inline(always)]
    pub const fn of_bits(bits: u64) -> Counts {
        Counts(bits)
    }

    /// The first word of a cell.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Number in the ordered lane.
    #[inline(always)]
    pub const fn psn(self) -> u32 {
        self.0 as u32
    }

    /// Messages and blocks that the sender grants.
    #[inline(always)]
    pub const fn limits(self) -> (u16, u16) {
        ((self.0 >> 32) as u16, (self.0 >> 48) as u16)
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message_limit, block_limit) = self.limits();
        write!(f, "Counts {{ psn: {}, message_limit: {message_limit}, block_limit: {block_limit} }}", self.psn())
    }
}

/// The content of a cell with a short message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Short {
    /// Its number, and the sender's limits.
    pub counts: Counts,
    /// The tag; 0 where there is none.
    pub tag: u64,
    /// Immediate data; 0 where there is none.
    pub immediate: u64,
    /// Payload bytes.
    pub len: u16,
    /// [`TAGGED`](Self::TAGGED) and [`IMMEDIATE`](Self::IMMEDIATE), no other bits.
    pub flags: u8,
}

impl Short {
    /// It has a tag.
    pub const TAGGED: u8 = 1;
    /// It has immediate data.
    pub const IMMEDIATE: u8 = 2;
    /// Bits that may be set.
    pub const FLAGS: u8 = Self::TAGGED | Self::IMMEDIATE;

    /// Flags of a message with such a tag and such immediate data.
    #[inline(always)]
    pub const fn flags_of(tag: Option<u64>, immediate: Option<u64>) -> u8 {
        (if tag.is_some() { Self::TAGGED } else { 0 }) | if immediate.is_some() { Self::IMMEDIATE } else { 0 }
    }

    /// The tag, if it has one.
    pub const fn tag(&self) -> Option<u64> {
        if self.flags & Self::TAGGED != 0 { Some(self.tag) } else { None }
    }

    /// The immediate data, if it has some.
    pub const fn immediate(&self) -> Option<u64> {
        if self.flags & Self::IMMEDIATE != 0 { Some(self.immediate) } else { None }
    }
}
/// A short message that its sender may still write: so each word is read once, and as late as possible, which
/// leaves registers for others.
pub trait ShortSource {
    /// Payload bytes.
    fn bytes(&self) -> u16;
    /// [`Short::TAGGED`] and [`Short::IMMEDIATE`], no other bits.
    fn flags(&self) -> u8;
    /// Its number, and the sender's limits.
    fn counts(&self) -> Counts;
    /// The tag; 0 where there is none. `None`: there is one where there must be none.
    fn tag(&self) -> Option<u64>;
    /// Immediate data; 0 where there is none.
    fn immediate(&self) -> u64;
}

impl ShortSource for Short {
    fn bytes(&self) -> u16 {
        self.len
    }

    fn flags(&self) -> u8 {
        self.flags
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn tag(&self) -> Option<u64> {
        Some(self.tag)
    }

    fn immediate(&self) -> u64 {
        self.immediate
    }
}
