//! The express path of a small message over a lossless rail: state of a channel in one cache line, and the
//! completions that it makes.
//!
//! This module is a shortcut past tables that stay authoritative: it counts PSNs, windows, credits and grants
//! while nothing unusual happens, and [`Line::fold`] returns the counts to their owners before any other code
//! reads these. `endpoint/line.rs` decides when a line may be opened.

pub(crate) mod express_budget;
mod ring;
#[cfg(test)]
mod tests;

pub(crate) use express_budget::ExpressBudget;
pub(crate) use ring::Completions;

use crate::ids::{Cookie, Key, OpId, PeerId, RailId};
use crate::wire::{Counts, Short};

/// Messages for which a line is opened at once: then the tables are looked at again.
pub(crate) const TURN: u32 = 128;

/// A completion of the express path: a message that was sent, or received whole into its buffer; or a put or
/// get that was carried out at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
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

impl ShortCompletion {
    /// A place of none.
    const EMPTY: ShortCompletion = ShortCompletion {
        cookie: Cookie(0),
        operation: OpId(Key { index: 0, generation: 0 }),
        tag: 0,
        immediate: 0,
        peer: PeerId::NONE,
        bytes: 0,
        flags: 0,
    };
}

/// What the express path needs of a channel, both directions.
///
/// `credits` covers every reason not to send at once: code that causes one calls
/// [`stop_sending`](Self::stop_sending), and a check of the tables refills it. In the same way
/// `checks_due_in` covers every reason to check the tables when a message was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line {
    /// Messages that may go at once, of one block each.
    pub credits: u32,
    /// The longest of them in bytes; longer ones need blocks of `spare`, or don't go.
    plain_max: u16,
    /// The longest message in bytes.
    bytes_max: u16,
    /// The next PSN; the limits that messages carry follow it, as in their header.
    pub next: u32,
    message_limit: u16,
    block_limit: u16,
    /// Blocks used by what was sent since the last fold.
    blocks_sent: u32,
    /// The next PSN of the peer.
    pub expected: u32,
    /// Blocks that would have been used by what was received since the last fold, beyond one for each.
    blocks_beyond: i32,
    /// What may be received before the tables are checked, in units of which a message costs [`COST`] or
    /// more; below zero they must be. [`FORCED`] less while they must be checked after each message.
    checks_due_in: i32,
    /// What the peer grants, as last received.
    peer_limits: (u16, u16),
    /// Messages received since the last fold that wait for their receives.
    kept: u16,
    /// The rail to send on.
    pub rail: u8,
    /// The rail on which messages may be received, or [`CLOSED`].
    receives_on: u8,
    /// Blocks that the peer grants beyond one for each credit.
    spare: u32,
    /// Bytes of one block at the peer.
    block_bytes: u32,
    /// The line's peer: a caller's peer id is checked against it.
    peer: PeerId,
    /// The peer that messages may come from: the same, or [`NO_PEER`].
    receives_from: PeerId,
    /// The next PSNs at the last fold.
    next_folded: u32,
    expected_folded: u32,
}

const _: () = assert!(size_of::<Line>() == 64);

/// The line of each peer as last reported to the caller, which needs no table lookup. It may be out of date;
/// the core detects that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineId(pub(crate) u32);

impl LineId {
    /// No line.
    pub const NONE: LineId = LineId(u32::MAX);
}

/// No rail: rails are fewer than 64.
const CLOSED: u8 = u8::MAX;

/// A peer that no link leads to.
const NO_PEER: PeerId = PeerId(u32::MAX);

/// More than twice what a message costs at most.
const FORCED: i32 = 1 << 24;

/// What a message costs at least: so much is taken off until our limits must be announced.
const COST: i32 = 64;

/// What holds for the messages of all peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Bytes of one block.
    block_bytes: u32,
    /// What a block costs, where those of a message cost more than [`COST`].
    block_cost: u32,
    /// What may come until our limits must be announced, less 1.
    announce_after: u16,
}

impl Own {
    /// Of an endpoint with blocks of `block_bytes`: limits go to the peer after so many messages, or so many
    /// blocks, at the latest.
    pub(crate) fn new(block_bytes: u32, messages: u16, blocks: u16) -> Own {
        let least = u32::from(messages.min(blocks)).max(1) * COST as u32;
        let announce_after = u16::try_from(least - 1).unwrap_or(u16::MAX);
        Own { block_bytes, block_cost: least.div_ceil(blocks.max(1).into()), announce_after }
    }

    /// Whether a message of `len` bytes takes no block, or several.
    #[inline(always)]
    fn is_odd(&self, len: u16) -> bool {
        u32::from(len).wrapping_sub(1) >= self.block_bytes
    }
}

/// What is counted in a [`Line`] and not yet in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    /// Messages sent, and the blocks that they use.
    pub sent: u32,
    pub blocks_sent: u32,
    /// Messages received, and those among them that wait for their receives.
    pub received: u32,
    pub kept: u32,
    /// Blocks that the others would have used.
    pub blocks_received: u32,
    /// What the peer grants by the last of them.
    pub peer_limits: (u16, u16),
    /// The peer has received our limits.
    pub is_announced: bool,
    /// Where they were received.
    pub rail: RailId,
}

/// The tables' state of sending on a channel: a line is opened with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// The next PSN.
    pub next: u32,
    /// What we grant.
    pub limits: (u16, u16),
    /// Messages and blocks that the peer still grants.
    pub messages_left: u32,
    pub blocks_left: u32,
    /// The longest message in bytes, and the bytes of one block at the peer.
    pub bytes_max: u32,
    pub block_bytes: u32,
    /// The rail to send on.
    pub rail: RailId,
}

impl Line {
    /// Closed, with nothing counted.
    pub(crate) const CLOSED: Line = Line {
        credits: 0,
        plain_max: 0,
        bytes_max: 0,
        next: 0,
        message_limit: 0,
        block_limit: 0,
        blocks_sent: 0,
        expected: 0,
        blocks_beyond: 0,
        checks_due_in: -FORCED,
        peer_limits: (0, 0),
        kept: 0,
        rail: 0,
        receives_on: CLOSED,
        spare: 0,
        block_bytes: 1,
        peer: NO_PEER,
        receives_from: NO_PEER,
        next_folded: 0,
        expected_folded: 0,
    };

    /// Closed, of this peer.
    pub(crate) const fn of(peer: PeerId) -> Line {
        Line { peer, ..Line::CLOSED }
    }

    /// Whether it is this peer's.
    #[inline(always)]
    pub(crate) fn is_of(&self, peer: PeerId) -> bool {
        self.peer == peer
    }

    /// The line's peer.
    #[inline(always)]
    pub(crate) const fn peer(&self) -> PeerId {
        self.peer
    }

    // ---- sending

    /// Opens it for sending, where the peer grants anything; returns whether it did.
    pub(crate) fn open_sending(&mut self, sending: &Sending) -> bool {
        self.stop_sending();
        (self.next, self.next_folded) = (sending.next, sending.next);
        (self.message_limit, self.block_limit) = sending.limits;
        self.credits = sending.messages_left.min(sending.blocks_left).min(TURN);
        self.spare = sending.blocks_left - self.credits;
        self.bytes_max = sending.bytes_max.min(u16::MAX.into()) as u16;
        self.block_bytes = sending.block_bytes;
        self.plain_max = sending.block_bytes.min(self.bytes_max.into()) as u16;
        self.rail = sending.rail.0;
        if self.credits > 0 {
            self.checks_due_in += FORCED;
        }
        self.credits > 0
    }

    /// Sending is blocked until it is opened again, and each message that is received may unblock a pending
    /// request.
    pub(crate) const fn stop_sending(&mut self) {
        self.credits = 0;
        if !self.is_forced() {
            self.checks_due_in -= FORCED;
        }
    }

    const fn is_forced(&self) -> bool {
        self.checks_due_in < -(FORCED / 2)
    }

    /// Blocks that the peer still grants.
    pub(crate) const fn blocks_left(&self) -> u32 {
        self.credits + self.spare
    }

    /// The header of a message that may go now. `None`: nothing has happened.
    #[inline(always)]
    pub(crate) fn send(&mut self, tag: Option<u64>, immediate: Option<u64>, len: u64, own: &Own) -> Option<Short> {
        let spare = if len > self.plain_max.into() { self.blocks_beyond(len)? } else { 0 };
        self.spare -= spare;
        self.blocks_sent += spare;
        self.number(tag, immediate, len, own)
    }

    /// As [`send`](Self::send), where it takes one block at most; else `None`, too.
    #[inline(always)]
    pub(crate) fn send_plain(
        &mut self,
        tag: Option<u64>,
        immediate: Option<u64>,
        len: u64,
        own: &Own,
    ) -> Option<Short> {
        if len > self.plain_max.into() { None } else { self.number(tag, immediate, len, own) }
    }

    /// The next number for a message; counts its first block.
    #[inline(always)]
    fn number(&mut self, tag: Option<u64>, immediate: Option<u64>, len: u64, own: &Own) -> Option<Short> {
        self.credits = self.credits.checked_sub(1)?;
        self.blocks_sent += u32::from(len > 0);
        self.checks_due_in = own.announce_after.into();
        let counts = Counts::new(self.next, self.message_limit, self.block_limit);
        self.next = self.next.wrapping_add(1);
        let (tag, tagged) = match tag {
            Some(tag) => (tag, Short::TAGGED),
            None => (0, 0),
        };
        let (immediate, has_immediate) = match immediate {
            Some(immediate) => (immediate, Short::IMMEDIATE),
            None => (0, 0),
        };
        Some(Short { counts, tag, immediate, len: len as u16, flags: tagged | has_immediate })
    }

    /// Blocks that a message needs beyond one: `spare` has as many then, though they belong to other credits.
    /// `None`: it can't be sent.
    #[inline(never)]
    fn blocks_beyond(&mut self, len: u64) -> Option<u32> {
        if len > self.bytes_max.into() {
            return None;
        }
        // Not empty, as it is longer than `plain_max`.
        let beyond = (len as u32).div_ceil(self.block_bytes) - 1;
        let lack = beyond.saturating_sub(self.spare);
        if lack >= self.credits {
            return None;
        }
        self.credits -= lack;
        self.spare += lack;
        Some(beyond)
    }

    /// The rail did not take the message after all. The next opening sets what is not counted here.
    #[cold]
    pub(crate) fn unsend(&mut self, short: &Short) {
        self.next = self.next.wrapping_sub(1);
        self.blocks_sent -= u32::from(short.len).div_ceil(self.block_bytes);
        self.stop_sending();
    }

    // ---- receiving

    /// Opens it for messages from PSN `expected` on.
    pub(crate) fn open_receiving(&mut self, rail: RailId, expected: u32, limits: (u16, u16)) {
        (self.expected, self.expected_folded) = (expected, expected);
        (self.receives_on, self.receives_from) = (rail.0, self.peer);
        (self.message_limit, self.block_limit) = limits;
    }

    /// The rail on which messages may be received.
    pub(crate) const fn receives_on(&self) -> Option<RailId> {
        if self.receives_on == CLOSED { None } else { Some(RailId(self.receives_on)) }
    }

    pub(crate) const fn close_receiving(&mut self) {
        (self.receives_on, self.receives_from) = (CLOSED, NO_PEER);
    }

    /// Whether a message is the expected one, on an open line. Then its sender's limits count, whatever
    /// becomes of it.
    #[inline(always)]
    pub(crate) fn expects(&mut self, rail: RailId, counts: Counts) -> bool {
        let is_next = (self.receives_on == rail.0) & (self.expected == counts.psn());
        if is_next {
            self.peer_limits = counts.limits();
        }
        is_next
    }

    /// As [`expects`](Self::expects), of a message that `peer` has sent: it leads over one rail.
    #[inline(always)]
    pub(crate) fn expects_from(&mut self, peer: PeerId, counts: Counts) -> bool {
        if self.receives_from != peer || self.expected != counts.psn() {
            return false;
        }
        self.peer_limits = counts.limits();
        true
    }

    /// A message of `len` bytes has its buffer. Returns whether [`check`](Self::check) must be called.
    #[inline(always)]
    pub(crate) fn receive(&mut self, len: u16, own: &Own) -> bool {
        self.expected = self.expected.wrapping_add(1);
        self.message_limit = self.message_limit.wrapping_add(1);
        self.checks_due_in -= COST;
        if self.checks_due_in < 0 || own.is_odd(len) {
            return true;
        }
        // Not beside the other limit: the compiler would update both as a vector, which takes more
        // instructions.
        self.block_limit = self.block_limit.wrapping_add(1);
        false
    }

    /// Ends [`receive`](Self::receive). Returns whether the tables must be checked: to announce our limits to
    /// the peer, or because the peer's limits may unblock a request.
    pub(crate) fn check(&mut self, len: u16, own: &Own) -> bool {
        let blocks = u32::from(len).div_ceil(own.block_bytes);
        self.blocks_beyond += blocks as i32 - 1;
        self.block_limit = self.block_limit.wrapping_add(blocks as u16);
        // Lengths have 16 bits, and a block costs at most `COST`.
        self.checks_due_in -= ((blocks * own.block_cost) as i32 - COST).max(0);
        self.checks_due_in < 0
    }

    /// The message that is expected waits for its receive: what it needs is counted in the tables. Returns
    /// whether these must be looked at, as [`receive`](Self::receive), or the line folded, which can't count
    /// more.
    #[inline(always)]
    pub(crate) const fn keep(&mut self) -> bool {
        self.expected = self.expected.wrapping_add(1);
        self.kept += 1;
        self.checks_due_in < 0 || self.kept == u16::MAX
    }

    /// A message that waited has its buffer: the tables have released its slot and blocks. Returns whether
    /// they must be checked, as [`receive`](Self::receive).
    #[inline(always)]
    pub(crate) const fn release(&mut self, blocks: u16) -> bool {
        self.grant(1, blocks);
        self.checks_due_in -= COST;
        self.checks_due_in < 0
    }

    /// Memory of received messages is free again.
    pub(crate) const fn grant(&mut self, messages: u16, blocks: u16) {
        self.message_limit = self.message_limit.wrapping_add(messages);
        self.block_limit = self.block_limit.wrapping_add(blocks);
    }

    /// What messages grant.
    pub(crate) const fn limits(&self) -> (u16, u16) {
        (self.message_limit, self.block_limit)
    }

    /// What may come before our limits must be announced to the peer.
    const fn announce_in(&self) -> i32 {
        self.checks_due_in + if self.is_forced() { FORCED } else { 0 }
    }

    /// Whether our limits must be announced to the peer.
    pub(crate) const fn must_announce(&self) -> bool {
        self.announce_in() < 0
    }

    /// They go to the peer.
    pub(crate) const fn announced(&mut self, own: &Own) {
        self.checks_due_in = own.announce_after as i32 - if self.is_forced() { FORCED } else { 0 };
    }

    // ---- both

    /// Whether messages are counted here and not yet in the tables.
    #[inline(always)]
    pub(crate) const fn is_ahead(&self) -> bool {
        (self.next != self.next_folded) | (self.expected != self.expected_folded)
    }

    /// Messages sent and received since the last fold.
    pub(crate) fn unfolded(&self) -> (u64, u64) {
        let since = |next: u32, folded| u64::from(next.wrapping_sub(folded));
        (since(self.next, self.next_folded), since(self.expected, self.expected_folded))
    }

    /// What was counted since the last time.
    pub(crate) fn fold(&mut self, own: &Own) -> Fold {
        let received = self.expected.wrapping_sub(self.expected_folded);
        let kept = u32::from(core::mem::take(&mut self.kept));
        let fold = Fold {
            sent: self.next.wrapping_sub(self.next_folded),
            blocks_sent: core::mem::take(&mut self.blocks_sent),
            received,
            kept,
            blocks_received: (received - kept).wrapping_add_signed(core::mem::take(&mut self.blocks_beyond)),
            peer_limits: self.peer_limits,
            // The last event was a message sent; its header carried the limits.
            is_announced: self.next != self.next_folded && self.announce_in() == own.announce_after.into(),
            rail: RailId(self.receives_on),
        };
        (self.next_folded, self.expected_folded) = (self.next, self.expected);
        fold
    }
}
