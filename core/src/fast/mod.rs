//! The short way of a small message over a rail that loses nothing: state of a channel in one cache line, and the
//! completions that it makes.
//!
//! What is here is a shortcut past tables that stay the truth: PSNs, windows, credits and grants are counted here for as
//! long as nothing unusual happens, and [`Line::fold_sent`] and [`Line::fold_received`] give the counts to their owners
//! before anybody else looks at these. `endpoint/express.rs` is the only user: it says when a line may be opened.

mod ring;
#[cfg(test)]
mod tests;

pub(crate) use ring::Completions;

use crate::ids::{Cookie, OpId, PeerId, RailId};
use crate::wire::Short;

/// Messages for which a line is opened at once: then the tables are looked at again.
pub(crate) const TURN: u32 = 64;

/// A completion of the short way: a message that was sent, or received whole into its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortCompletion {
    /// What the caller gave with the request.
    pub cookie: Cookie,
    /// The request.
    pub operation: OpId,
    /// The tag; 0 where there is none.
    pub tag: u64,
    /// Immediate data; 0 where there is none.
    pub immediate: u64,
    /// The other side.
    pub peer: PeerId,
    /// Bytes of the message.
    pub bytes: u32,
    /// [`Short::TAGGED`], [`Short::IMMEDIATE`].
    pub flags: u8,
}

/// What the short way needs of a channel, both directions.
///
/// `credits` stands for every reason not to send at once: code that causes one sets it to 0, and a look at the tables
/// refills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line {
    /// Messages that may go at once.
    pub credits: u32,
    /// Blocks that the peer still grants.
    pub blocks: u32,
    /// The next PSN.
    pub next: u32,
    /// Messages sent since the last fold, and blocks that they use.
    pub sent: u32,
    pub blocks_sent: u32,
    /// The longest message in bytes, and the bytes of one block at the peer.
    pub bytes_max: u32,
    pub block_bytes: u32,
    /// The next PSN of the peer.
    pub expected: u32,
    /// Messages received since the last fold, and blocks that they would have used.
    pub received: u32,
    pub blocks_received: u32,
    /// What we grant: limits of messages and blocks.
    pub message_limit: u16,
    pub block_limit: u16,
    /// What the peer grants, as last received.
    pub peer_limits: (u16, u16),
    /// Messages received since a limit went to the peer, and after how many one must.
    pub unannounced: u16,
    pub announce_after: u16,
    /// The limit of blocks that went to the peer last, and after how many more one must.
    pub block_limit_announced: u16,
    pub announce_blocks: u16,
    /// Bytes of one block here.
    pub own_block_bytes: u32,
    pub rail: u8,
    /// Whether messages may be received.
    pub receives: bool,
    /// `peer_limits` is new to the tables.
    pub has_limits: bool,
}

const _: () = assert!(size_of::<Line>() == 64);

/// Blocks that a message of `len` bytes takes where a block has `block_bytes`.
#[inline(always)]
const fn blocks_of(len: u32, block_bytes: u32) -> u32 {
    if len == 0 {
        0
    } else if len <= block_bytes {
        1
    } else {
        len.div_ceil(block_bytes)
    }
}

impl Line {
    /// Closed, with nothing counted.
    pub(crate) const CLOSED: Line = Line {
        credits: 0,
        blocks: 0,
        next: 0,
        sent: 0,
        blocks_sent: 0,
        bytes_max: 0,
        block_bytes: 1,
        expected: 0,
        received: 0,
        blocks_received: 0,
        message_limit: 0,
        block_limit: 0,
        peer_limits: (0, 0),
        unannounced: 0,
        announce_after: 1,
        block_limit_announced: 0,
        announce_blocks: 1,
        own_block_bytes: 1,
        rail: 0,
        receives: false,
        has_limits: false,
    };

    /// The header of a message that may go now. `None`: nothing has happened.
    #[inline(always)]
    pub(crate) fn send(&mut self, tag: Option<u64>, immediate: Option<u64>, len: u64) -> Option<Short> {
        if self.credits == 0 || len > self.bytes_max.into() {
            return None;
        }
        let blocks = blocks_of(len as u32, self.block_bytes);
        if blocks > self.blocks {
            return None;
        }
        self.credits -= 1;
        self.blocks -= blocks;
        self.blocks_sent += blocks;
        self.sent += 1;
        self.unannounced = 0;
        self.block_limit_announced = self.block_limit;
        let psn = self.next;
        self.next = psn.wrapping_add(1);
        let (tag, tagged) = match tag {
            Some(tag) => (tag, Short::TAGGED),
            None => (0, 0),
        };
        let (immediate, has_immediate) = match immediate {
            Some(immediate) => (immediate, Short::IMMEDIATE),
            None => (0, 0),
        };
        let flags = tagged | has_immediate;
        let Line { message_limit, block_limit, .. } = *self;
        Some(Short { psn, message_limit, block_limit, tag, immediate, len: len as u16, flags })
    }

    /// The rail did not take the message after all. What is not counted here, the next opening sets anew.
    #[cold]
    pub(crate) fn unsend(&mut self, short: &Short) {
        let blocks = blocks_of(short.len.into(), self.block_bytes);
        self.sent -= 1;
        self.blocks_sent -= blocks;
        self.credits = 0;
    }

    /// Whether a message is the one that is expected, by a line that is open.
    #[inline(always)]
    pub(crate) fn expects(&self, rail: RailId, short: &Short) -> bool {
        self.receives & (self.expected == short.psn) & (self.rail == rail.0)
    }

    /// A message has its buffer. Says whether our limits must be announced to the peer.
    #[inline(always)]
    pub(crate) fn receive(&mut self, short: &Short) -> bool {
        let blocks = blocks_of(short.len.into(), self.own_block_bytes);
        self.expected = short.psn.wrapping_add(1);
        self.received += 1;
        self.blocks_received += blocks;
        self.message_limit = self.message_limit.wrapping_add(1);
        self.block_limit = self.block_limit.wrapping_add(blocks as u16);
        self.peer_limits = (short.message_limit, short.block_limit);
        self.has_limits = true;
        self.unannounced += 1;
        (self.unannounced >= self.announce_after)
            | (self.block_limit.wrapping_sub(self.block_limit_announced) >= self.announce_blocks)
    }

    /// Messages and blocks sent since the last time.
    pub(crate) fn fold_sent(&mut self) -> (u32, u32) {
        (core::mem::take(&mut self.sent), core::mem::take(&mut self.blocks_sent))
    }

    /// Messages and blocks received since the last time.
    pub(crate) fn fold_received(&mut self) -> (u32, u32) {
        (core::mem::take(&mut self.received), core::mem::take(&mut self.blocks_received))
    }
}
