//! What is kept of a message without an operation until it is acknowledged: enough to rebuild its packet
//! (F-5).
//!
//! Its record lies at the index of its retained copy, so both are taken and given back together. A sent
//! window holds a *handle* for it, which no packet's index equals; ids of its posts carry the handle, too,
//! and the record's generation, which each post changes.

use crate::ids::{Key, PostId};
use crate::time::Time;
#[cfg(doc)]
use crate::wire::Short;

/// Indices are below this bit, which handles have.
const HANDLE: u32 = 1 << 31;

/// The handle of the record at an index.
#[inline(always)]
pub(crate) const fn short_handle(index: u32) -> u32 {
    index | HANDLE
}

/// The index of the record, if the handle is one of a record and not of a packet.
#[inline(always)]
pub(crate) const fn record_of(handle: u32) -> Option<u32> {
    if handle & HANDLE == 0 { None } else { Some(handle & !HANDLE) }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShortRecord {
    /// The tag, and immediate data; 0 where there is none.
    pub tag: u64,
    pub immediate: u64,
    /// When it was handed over.
    pub at: Time,
    /// [`Short::TAGGED`], [`Short::IMMEDIATE`].
    pub flags: u8,
    /// [`POSTED`], [`UNACKED`] and [`LOST`]; 0, or without a number and without [`POSTED`]: it is free.
    state: u8,
    generation: u32,
    pub channel: u32,
    /// Bytes of payload.
    pub len: u32,
    pub rail: u8,
}

/// The rail has it.
const POSTED: u8 = 1;
/// The peer has not acknowledged it.
const UNACKED: u8 = 2;
/// The connection that carried it is dead, and its fate is unknown; it is unacknowledged.
const LOST: u8 = 4;

const _: () = assert!(size_of::<ShortRecord>() == 40);

impl ShortRecord {
    /// As [`number`](Self::number), of a message that the rail has.
    #[inline(always)]
    pub(crate) fn post(&mut self, index: u32, rail: u8, at: Time) -> PostId {
        let id = self.number(index, rail, at);
        self.with_rail();
        id
    }

    /// The rail has it.
    #[inline(always)]
    pub(crate) const fn with_rail(&mut self) {
        self.state |= POSTED;
    }

    /// A new message, or a lost one again, goes to a rail. Returns the post's id.
    #[inline(always)]
    pub(crate) const fn number(&mut self, index: u32, rail: u8, at: Time) -> PostId {
        (self.rail, self.at, self.state) = (rail, at, UNACKED);
        self.generation = self.generation.wrapping_add(1);
        PostId(Key { index: short_handle(index), generation: self.generation })
    }

    /// Whether a rail has this post of it.
    #[inline(always)]
    pub(crate) const fn has_post(&self, post: PostId) -> bool {
        self.state & POSTED != 0 && self.generation == post.0.generation
    }

    /// The rail has completed its post.
    #[inline(always)]
    pub(crate) const fn complete(&mut self) {
        self.state &= !POSTED;
    }

    /// The peer has it. Returns whether it is free now.
    #[inline(always)]
    pub(crate) const fn acknowledge(&mut self) -> bool {
        self.state &= POSTED;
        self.state == 0
    }

    /// Its connection is dead: its post is over, and where it is not acknowledged, its fate is unknown.
    pub(crate) const fn lose(&mut self) {
        self.state = if self.state & UNACKED != 0 { UNACKED | LOST } else { 0 };
    }

    /// The peer has received it, though something before it is missing.
    pub(crate) const fn find(&mut self) {
        self.state &= !LOST;
    }

    /// Its channel is over.
    pub(crate) const fn end(&mut self) {
        self.state = 0;
    }

    pub(crate) const fn is_posted(&self) -> bool {
        self.state & POSTED != 0
    }

    /// Whether the peer has it, and the rail has not completed it.
    pub(crate) const fn is_only_posted(&self) -> bool {
        self.state == POSTED
    }

    pub(crate) const fn is_lost(&self) -> bool {
        self.state & LOST != 0
    }

    /// Whether neither the rail nor recovery needs it.
    #[inline(always)]
    pub(crate) const fn is_free(&self) -> bool {
        self.state == 0
    }
}
