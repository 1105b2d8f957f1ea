//! The header of a short message: what the express path puts into a ring's cell instead of a whole header
//! (design: one line for a small message).
//!
//! A rail that carries these knows who the peer is, loses nothing and keeps the order; so the header names
//! neither source nor epoch, and acknowledges nothing. It stands for an `EAGER` packet of the ordered lane
//! with the same PSN (W-29): an endpoint that can't take the short way makes that header of it.

/// What a cell says of a short message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Short {
    /// Number in the ordered lane.
    pub psn: u32,
    /// Messages that the sender grants, as in a common header.
    pub message_limit: u16,
    /// Blocks that the sender grants, as in a common header.
    pub block_limit: u16,
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

    /// The tag, if it has one.
    pub const fn tag(&self) -> Option<u64> {
        if self.flags & Self::TAGGED != 0 { Some(self.tag) } else { None }
    }

    /// The immediate data, if it has some.
    pub const fn immediate(&self) -> Option<u64> {
        if self.flags & Self::IMMEDIATE != 0 { Some(self.immediate) } else { None }
    }
}
