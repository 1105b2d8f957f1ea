//! The short way of a small message over a rail that loses nothing: state of a channel in one cache line, and
//! the completions that it makes.
//!
//! What is here is a shortcut past tables that stay the truth: PSNs, windows, credits and grants are counted
//! here for as long as nothing unusual happens, and [`Line::fold`] gives the counts to their owners before
//! any other code reads these. `endpoint/express.rs` decides when a line may be opened.

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
/// `credits` stands for every reason not to send at once: code that causes one sets it to 0, and a look at
/// the tables refills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line {
    /// Messages that may go at once.
    pub credits: u32,
    /// Blocks that the peer still grants.
    pub blocks: u32,
    /// The longest message in bytes, and the bytes of one block at the peer.
    pub bytes_max: u32,
    pub block_bytes: u32,
    /// The next PSN, and what it was at the last fold.
    pub next: u32,
    next_folded: u32,
    /// Blocks used by what was sent since.
    blocks_sent: u32,
    /// The next PSN of the peer, and what it was at the last fold.
    pub expected: u32,
    expected_folded: u32,
    /// Blocks that would have been used by what was received since.
    blocks_received: u32,
    /// Bytes of one block here.
    own_block_bytes: u32,
    /// What the peer grants, as last received.
    peer_limits: [u16; 2],
    // Fields that change together are not neighbours from here on: the compiler would update neighbours as a
    // vector, which takes more instructions.
    /// Messages that we grant.
    message_limit: u16,
    announce_after: u16,
    /// Blocks that we grant.
    block_limit: u16,
    announce_blocks_after: i16,
    /// How many messages may be received before limits must go to the peer: `announce_after` when they went
    /// last.
    announce_in: u16,
    /// The rail to send on.
    pub rail: u8,
    /// The rail on which messages may be received, or [`CLOSED`].
    receives_on: u8,
    /// As `announce_in`, of blocks.
    announce_blocks_in: i16,
}

const _: () = assert!(size_of::<Line>() == 64);

/// No rail: rails are fewer than 64.
const CLOSED: u8 = u8::MAX;

/// What is counted in a [`Line`] and not yet in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    /// Messages sent, and the blocks that they use.
    pub sent: u32,
    pub blocks_sent: u32,
    /// Messages received, and the blocks that they would have used.
    pub received: u32,
    pub blocks_received: u32,
    /// What the peer grants by the last of them.
    pub peer_limits: (u16, u16),
    /// The peer knows our limits.
    pub is_announced: bool,
    /// Where they were received.
    pub rail: RailId,
}

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
        bytes_max: 0,
        block_bytes: 1,
        next: 0,
        next_folded: 0,
        blocks_sent: 0,
        expected: 0,
        expected_folded: 0,
        blocks_received: 0,
        own_block_bytes: 1,
        message_limit: 0,
        announce_in: 1,
        block_limit: 0,
        announce_blocks_in: 1,
        peer_limits: [0; 2],
        announce_after: 1,
        announce_blocks_after: 1,
        rail: 0,
        receives_on: CLOSED,
    };

    // ---- sending

    /// Opens it for messages from PSN `next` on; the caller sets the rest.
    pub(crate) fn open_sending(&mut self, next: u32, limits: (u16, u16)) {
        (self.next, self.next_folded) = (next, next);
        (self.message_limit, self.block_limit) = limits;
    }

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
        self.announced();
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
        let Line { message_limit, block_limit, .. } = *self;
        let flags = tagged | has_immediate;
        Some(Short { psn, message_limit, block_limit, tag, immediate, len: len as u16, flags })
    }

    /// The rail did not take the message after all. What is not counted here, the next opening sets anew.
    #[cold]
    pub(crate) fn unsend(&mut self, short: &Short) {
        self.next = self.next.wrapping_sub(1);
        self.blocks_sent -= blocks_of(short.len.into(), self.block_bytes);
        self.credits = 0;
    }

    // ---- receiving

    /// Opens it for messages from PSN `expected` on.
    pub(crate) fn open_receiving(&mut self, rail: RailId, expected: u32, limits: (u16, u16), own_block_bytes: u32) {
        (self.expected, self.expected_folded) = (expected, expected);
        (self.own_block_bytes, self.receives_on) = (own_block_bytes, rail.0);
        (self.message_limit, self.block_limit) = limits;
    }

    /// Limits go to the peer after so many messages or blocks at the latest.
    pub(crate) fn announce_after(&mut self, messages: u16, blocks: u16) {
        self.announce_after = messages;
        self.announce_blocks_after = i16::try_from(blocks).unwrap_or(i16::MAX);
        self.announced();
    }

    /// The rail on which messages may be received.
    pub(crate) const fn receives_on(&self) -> Option<RailId> {
        if self.receives_on == CLOSED { None } else { Some(RailId(self.receives_on)) }
    }

    pub(crate) const fn close_receiving(&mut self) {
        self.receives_on = CLOSED;
    }

    /// Whether a message is the one that is expected, by a line that is open.
    #[inline(always)]
    pub(crate) fn expects(&self, rail: RailId, psn: u32) -> bool {
        (self.receives_on == rail.0) & (self.expected == psn)
    }

    /// A message has its buffer. Says whether something is to be done: our limits must be announced to the
    /// peer, or its may let a waiting request go on.
    #[inline(always)]
    pub(crate) fn receive(&mut self, short: &Short) -> bool {
        let blocks = blocks_of(short.len.into(), self.own_block_bytes);
        self.expected = self.expected.wrapping_add(1);
        self.blocks_received += blocks;
        self.message_limit = self.message_limit.wrapping_add(1);
        self.block_limit = self.block_limit.wrapping_add(blocks as u16);
        self.peer_limits = [short.message_limit, short.block_limit];
        self.announce_in = self.announce_in.wrapping_sub(1);
        // Wraps for a message of more than 32,767 blocks, which no honest peer sends: the announcement is
        // late.
        self.announce_blocks_in = self.announce_blocks_in.wrapping_sub(blocks as i16);
        self.announce_in == 0 || self.announce_blocks_in <= 0 || self.credits == 0
    }

    /// The message that is expected is counted in the tables.
    pub(crate) const fn skip(&mut self) {
        self.expected = self.expected.wrapping_add(1);
        self.expected_folded = self.expected_folded.wrapping_add(1);
    }

    /// What was received before needs no room any more.
    pub(crate) const fn grant(&mut self, messages: u16, blocks: u16) {
        self.message_limit = self.message_limit.wrapping_add(messages);
        self.block_limit = self.block_limit.wrapping_add(blocks);
    }

    /// What messages grant.
    pub(crate) const fn limits(&self) -> (u16, u16) {
        (self.message_limit, self.block_limit)
    }

    /// Whether our limits must be announced to the peer.
    pub(crate) const fn must_announce(&self) -> bool {
        self.announce_in == 0 || self.announce_blocks_in <= 0
    }

    /// They go to the peer.
    #[inline(always)]
    pub(crate) const fn announced(&mut self) {
        self.announce_in = self.announce_after;
        self.announce_blocks_in = self.announce_blocks_after;
    }

    // ---- both

    /// Whether messages are counted here and not yet in the tables.
    #[inline(always)]
    pub(crate) const fn is_ahead(&self) -> bool {
        (self.next != self.next_folded) | (self.expected != self.expected_folded)
    }

    /// What was counted since the last time.
    pub(crate) fn fold(&mut self) -> Fold {
        let fold = Fold {
            sent: self.next.wrapping_sub(self.next_folded),
            blocks_sent: core::mem::take(&mut self.blocks_sent),
            received: self.expected.wrapping_sub(self.expected_folded),
            blocks_received: core::mem::take(&mut self.blocks_received),
            peer_limits: self.peer_limits.into(),
            // The last event was a message sent, whose header carried the limits.
            is_announced: self.next != self.next_folded && self.announce_in == self.announce_after,
            rail: RailId(self.receives_on),
        };
        (self.next_folded, self.expected_folded) = (self.next, self.expected);
        fold
    }
}
