//! The express path of a message that arrives before its receive is posted (M-5): the driver copies it into a
//! block and, when the receive is posted, into the buffer, without a placement or an operation. Its entry in
//! the table of messages is the same as that of any other unexpected message.

use super::express::{ShortArrival, WAITED};
use super::op::{Message, MessageState};
use super::{Endpoint, RecvRequest};
use crate::fast::ShortCompletion;
use crate::ids::{Key, OpId, PeerId, RailId};
use crate::mem::{MemRef, RegionId, Seg};
use crate::store::NONE;
use crate::wire::Short;

/// A receive that is complete when it is posted, because its message had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortReceived {
    /// The request; its completion is reported already.
    pub operation: OpId,
    /// The whole payload: copy it before the next call into the endpoint.
    pub from: Seg,
}

/// An unexpected message that a receive takes; good until the next call into the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub(super) key: Key,
    pub(super) message: u32,
}

impl Endpoint<'_> {
    /// Stores the next short message of an open line, for which no receive is posted, in a block. `None`:
    /// nothing has happened, because there is no room.
    #[inline(always)]
    pub(super) fn keep_short(
        &mut self,
        channel: u32,
        rail: RailId,
        peer: PeerId,
        short: &Short,
    ) -> Option<ShortArrival> {
        let len = u32::from(short.len);
        let blocks = u32::from(len > 0);
        let index = self.t.messages.next_index()?;
        if len > self.config.block_bytes || self.t.blocks.free_len() < blocks {
            return None;
        }
        let slot = self.t.channels.at_mut(channel);
        // Beyond the grant: `arrive_message` reports the protocol error (C-3). Messages that the line counts
        // and the tables lack have passed, so they change nothing here.
        slot.grants.received(1, blocks).ok()?;
        slot.messages += 1;
        let is_crowded = slot.grants.is_crowded();
        let first = self.t.blocks.take_one(blocks)?;
        // As many entries as messages: there is room.
        let key = self.t.matcher.store(peer, short.tag(), index).ok()?;
        let message = Message {
            channel,
            state: MessageState::Stored,
            tag: short.tag(),
            immediate: short.immediate(),
            len: len.into(),
            via: rail,
            blocks: first,
            block_count: blocks as u16,
            keys: NONE,
            recv: NONE,
            together: NONE,
            unexpected: key,
            matchable: true,
            ..Message::default()
        };
        let inserted = self.t.messages.insert(message);
        debug_assert_eq!(inserted.ok().map(|key| key.index), Some(index), "another index than was said");
        self.stats.unexpected += 1;
        self.stats.bytes_copied += u64::from(len);
        let line = &mut self.t.lines[channel as usize];
        if line.keep() | is_crowded {
            self.kept_short(channel, is_crowded);
        }
        Some(if len == 0 { ShortArrival::Done } else { ShortArrival::At(self.block_at(first)) })
    }

    /// The tables are looked at after a message that was kept. Where many are, further ones come as packets:
    /// then the tables know when the peer has used up what it was granted (C-4).
    #[cold]
    fn kept_short(&mut self, channel: u32, is_crowded: bool) {
        self.short_received(channel);
        self.fold_line(channel);
        if is_crowded {
            self.t.lines[channel as usize].close_receiving();
            self.announce_room(channel);
        }
    }

    fn block_at(&self, block: u32) -> MemRef {
        MemRef { region: RegionId::POOL, offset: u64::from(block) * u64::from(self.config.block_bytes) }
    }

    /// Receives an unexpected message that is whole and fits, if the receive is plain: one segment, one
    /// completion event. `None`: nothing has happened, use [`recv`](Self::recv).
    pub fn recv_waiting(&mut self, recv: &RecvRequest<'_>) -> Option<ShortReceived> {
        if recv.segments.len() != 1 || !self.is_plain(recv) {
            return None;
        }
        let (key, message) = self.t.matcher.find_unexpected(&recv.from)?;
        self.take_waiting(recv, Waiting { key, message })
    }

    /// As [`recv_waiting`](Self::recv_waiting), of the message that [`post_short`](Self::post_short) has just
    /// found for this receive.
    #[inline]
    pub fn take_waiting(&mut self, recv: &RecvRequest<'_>, found: Waiting) -> Option<ShortReceived> {
        let Waiting { key, message: index } = found;
        debug_assert!(self.is_plain(recv), "post_short finds nothing for others");
        let &[to] = recv.segments else { return None };
        if !self.t.short_done.has_room() {
            return None;
        }
        let message = self.t.messages.at(index);
        let &Message { channel, tag, immediate, len, blocks, block_count, offset, .. } = message;
        let is_whole = message.state == MessageState::Stored && !message.rendezvous && !message.want_placed;
        if !is_whole || message.aborted.is_some() || block_count > 1 || offset != 0 || len > to.len {
            return None;
        }
        self.t.matcher.take_unexpected(key);
        self.stats.bytes_copied += len;
        self.waited = self.waited.wrapping_add(1);
        let operation = OpId(Key { index: WAITED, generation: self.waited });
        let (tag, is_tagged) = tag.map_or((0, 0), |tag| (tag, Short::TAGGED));
        let (immediate, has_immediate) = immediate.map_or((0, 0), |immediate| (immediate, Short::IMMEDIATE));
        let peer = self.free_whole(index, channel, blocks, block_count);
        self.t.short_done.push(ShortCompletion {
            cookie: recv.cookie,
            operation,
            tag,
            immediate,
            peer,
            bytes: len as u32,
            flags: is_tagged | has_immediate,
        });
        let from = if len == 0 { MemRef { region: RegionId::POOL, offset: 0 } } else { self.block_at(blocks) };
        Some(ShortReceived { operation, from: Seg { at: from, len } })
    }

    /// As [`free_message`](Self::free_message), for a message that is whole, no rendezvous, and in at most
    /// one block: it has no open placement and no keys. If the channel's line is open, this grants the room
    /// there and decides when the peer must receive the grant. Returns the peer.
    #[inline(always)]
    fn free_whole(&mut self, message: u32, channel: u32, first: u32, blocks: u16) -> PeerId {
        let peer = self.t.channels.at(channel).peer;
        let line = &mut self.t.lines[channel as usize];
        if line.receives_on().is_none() {
            self.free_message(message);
            return peer;
        }
        let blocks = if self.t.blocks.give_one(first) { blocks } else { 0 };
        let must_look = line.release(blocks);
        self.t.messages.remove_at(message);
        let slot = self.t.channels.at_mut(channel);
        slot.messages -= 1;
        slot.grants.released(1, blocks.into());
        if must_look {
            self.short_received(channel);
        }
        peer
    }
}
