//! The short way of a message that arrives before its receive is posted (M-5): the driver copies it into a
//! block and, when the receive is posted, into the buffer, without a placement or an operation. The entry in
//! the table of messages is the same as of any other unexpected message.

use super::channel::ORDERED;
use super::express::{ShortArrival, WAITED};
use super::op::{Message, MessageState};
use super::{Endpoint, Notify, RecvRequest};
use crate::fast::ShortCompletion;
use crate::ids::{Key, OpId, PeerId, RailId};
use crate::mem::{MemRef, RegionId, Seg};
use crate::store::NONE;
use crate::wire::Short;

/// A receive that is complete when it is posted, as its message had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortReceived {
    /// The request; its completion is reported already.
    pub operation: OpId,
    /// The whole payload: copy it before the next call into the endpoint.
    pub from: Seg,
}

impl Endpoint<'_> {
    /// Stores the next short message of an open line for which no direct receive is posted, in a block.
    /// `None`: nothing has happened, as there is no room or a receive of another kind matches.
    pub(super) fn keep_short(
        &mut self,
        channel: u32,
        rail: RailId,
        peer: PeerId,
        short: &Short,
    ) -> Option<ShortArrival> {
        let len = u32::from(short.len);
        let blocks = u32::from(len > 0);
        let is_room = self.t.messages.room() > 0 && self.t.blocks.free_len() >= blocks;
        if len > self.config.block_bytes || !is_room || self.t.matcher.find_posted(peer, short.tag()).is_some() {
            return None;
        }
        self.fold_line(channel);
        let latest = self.latest;
        let slot = self.t.channels.at_mut(channel);
        // Beyond the grant: `arrive_message` reports the protocol error (C-3).
        slot.grants.received(1, blocks).ok()?;
        slot.received[ORDERED].skip(1);
        slot.reorder.skip(1);
        slot.messages += 1;
        slot.heard = slot.heard.max(latest);
        let (messages, blocks_granted) = short.counts.limits();
        slot.allowance.update_in_order(messages, blocks_granted);
        let wants_room = slot.wants_room();
        let sub = self.t.sub(channel, rail);
        sub.heard = sub.heard.max(latest);
        self.t.lines[channel as usize].skip();
        let first = self.t.blocks.take(blocks)?;
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
            ..Message::default()
        };
        let index = self.t.messages.insert(message).ok()?.index;
        // As many entries as messages: there is room.
        if let Ok(key) = self.t.matcher.store(peer, short.tag(), index) {
            let slot = self.t.messages.at_mut(index);
            (slot.unexpected, slot.matchable) = (key, true);
        }
        self.stats.unexpected += 1;
        self.stats.short_received += 1;
        self.stats.bytes_copied += u64::from(len);
        if wants_room {
            self.activate(channel);
        }
        let at = self.block_at(first);
        Some(if len == 0 { ShortArrival::Done } else { ShortArrival::At(at) })
    }

    fn block_at(&self, block: u32) -> MemRef {
        MemRef { region: RegionId::POOL, offset: u64::from(block) * u64::from(self.config.block_bytes) }
    }

    /// Receives an unexpected message that is whole and fits, if the receive is plain: one segment, one
    /// completion event. `None`: nothing has happened, use [`recv`](Self::recv).
    pub fn recv_waiting(&mut self, recv: &RecvRequest<'_>) -> Option<ShortReceived> {
        let &[to] = recv.segments else { return None };
        let is_plain = recv.multi.is_none() && recv.notify == Notify::Event && self.has_short_rail;
        if !is_plain || self.parts_waiting || !self.t.short_done.has_room() {
            return None;
        }
        let (key, index) = self.t.matcher.find_unexpected(&recv.from)?;
        let &Message { channel, tag, immediate, len, blocks, block_count, offset, .. } = self.t.messages.at(index);
        let message = self.t.messages.at(index);
        let is_whole = message.state == MessageState::Stored && !message.rendezvous && !message.want_placed;
        if !is_whole || message.aborted.is_some() || block_count > 1 || offset != 0 || len > to.len {
            return None;
        }
        self.t.matcher.take_unexpected(key);
        self.stats.bytes_copied += len;
        self.waited = self.waited.wrapping_add(1);
        let operation = OpId(Key { index: WAITED, generation: self.waited });
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        self.t.short_done.push(ShortCompletion {
            cookie: recv.cookie,
            operation,
            tag: tag.unwrap_or(0),
            immediate: immediate.unwrap_or(0),
            peer: self.t.channels.at(channel).peer,
            bytes: len as u32,
            flags: flag(tag.is_some(), Short::TAGGED) | flag(immediate.is_some(), Short::IMMEDIATE),
        });
        let from = if len == 0 { MemRef { region: RegionId::POOL, offset: 0 } } else { self.block_at(blocks) };
        self.free_message(index);
        Some(ShortReceived { operation, from: Seg { at: from, len } })
    }
}
