//! Messages meet buffers: matching in the order of PSNs and of posting (rule M-1), multi-receive (M-8, M-9),
//! messages that wait in blocks (M-5).

use super::op::{Message, MessageState, Op, OpKind, Phase, Queue};
use super::tables::op_queue;
use super::{Endpoint, Selector};
use crate::ids::{Key, PeerId};
use crate::mem::Seg;
use crate::store::NONE;
use crate::store::list::By;
use crate::time::Time;

impl Endpoint<'_> {
    /// Takes the receive for a message of `len` bytes out of the matcher.
    pub(super) fn match_posted(&mut self, peer: PeerId, tag: Option<u64>, len: u64) -> Option<u32> {
        loop {
            let (key, op) = self.t.matcher.find_posted(peer, tag)?;
            if op == NONE {
                return self.promote(key);
            }
            if self.t.ops.at(op).kind() != OpKind::MultiRecv {
                self.t.matcher.unpost(key);
                return Some(op);
            }
            // While one message waits for a slot, none may overtake it (M-8).
            if self.parts_waiting {
                return None;
            }
            match self.part_of(op, len) {
                Part::Taken(part) => return Some(part),
                Part::NoSlot => {
                    self.set_parts_waiting(true);
                    return None;
                }
                Part::NoRoom => {}
            }
        }
    }

    /// Cuts `len` bytes off a multi-receive buffer.
    fn part_of(&mut self, op: u32, len: u64) -> Part {
        let parent = *self.t.ops.at(op);
        let free = parent.len - parent.cursor;
        if len > free && parent.cursor > 0 {
            self.close_multi(op);
            return Part::NoRoom;
        }
        if self.open_requests() >= self.config.operations_max {
            return Part::NoSlot;
        }
        let taken = len.min(free);
        let part = self.new_op(Op {
            parent: op,
            remote_offset: parent.cursor,
            len: taken,
            notify: parent.notify,
            cookie: parent.cookie,
            index: parent.index,
            ..Op::new(OpKind::Part)
        });
        let mut seg = self.t.op_segments(op).first().copied().unwrap_or_default();
        seg = Seg::new(seg.at.region, seg.at.offset + parent.cursor, taken);
        self.t.set_segments(part, &[seg]);
        let parent = self.t.ops.at_mut(op);
        parent.children += 1;
        parent.index = parent.index.wrapping_add(1);
        parent.cursor += taken;
        if parent.len - parent.cursor < parent.multi_min {
            self.close_multi(op);
        }
        Part::Taken(part)
    }

    /// A multi-receive takes no more messages; it is released with its last part.
    pub(super) fn close_multi(&mut self, op: u32) {
        let slot = self.t.ops.at_mut(op);
        let key = slot.posted;
        slot.enter(Phase::Closing);
        let idle = slot.children == 0;
        self.t.matcher.unpost(key);
        if idle {
            self.complete(op, None);
        }
    }

    /// Fills a new multi-receive with messages that wait.
    pub(super) fn feed_multi(&mut self, now: Time, op: u32, from: &Selector) {
        while self.t.ops.at(op).phase() == Phase::Posted {
            let Some((key, message)) = self.t.matcher.find_unexpected(from) else { return };
            match self.part_of(op, self.t.messages.at(message).len) {
                Part::Taken(part) => {
                    self.t.matcher.take_unexpected(key);
                    self.bind(now, part, message);
                }
                Part::NoSlot => {
                    self.set_parts_waiting(true);
                    return;
                }
                Part::NoRoom => return,
            }
        }
    }

    /// After a multi-receive lacked a slot for a part, and one has come free: matches the waiting messages
    /// with their receives, oldest first on both sides, as if they arrived now (M-1).
    #[inline]
    pub(super) fn feed_waiting(&mut self, now: Time) {
        if self.parts_waiting && self.open_requests() < self.config.operations_max {
            self.feed_waiting_parts(now);
        }
    }

    #[cold]
    fn feed_waiting_parts(&mut self, now: Time) {
        self.set_parts_waiting(false);
        loop {
            let wanted = |&(_, message): &(Key, u32)| self.is_wanted(message);
            let Some((key, message)) = self.t.matcher.waiting().find(wanted) else { return };
            let Message { channel, tag, len, .. } = *self.t.messages.at(message);
            match self.match_posted(self.t.channels.at(channel).peer, tag, len) {
                Some(op) => {
                    self.t.matcher.take_unexpected(key);
                    self.bind(now, op, message);
                }
                None if self.parts_waiting => return,
                // It did not fit into the rest of the buffer, which is closed now.
                None => {}
            }
        }
    }

    /// The oldest message that `selector` takes, except those that wait only for a slot of a multi-receive.
    pub(super) fn find_waiting(&self, selector: &Selector) -> Option<(Key, u32)> {
        let matcher = &self.t.matcher;
        if !self.parts_waiting {
            return matcher.find_unexpected(selector);
        }
        matcher.waiting_for(selector).find(|&(_, message)| !self.is_wanted(message))
    }

    /// Whether a posted receive takes a message.
    fn is_wanted(&self, message: u32) -> bool {
        let Message { channel, tag, .. } = *self.t.messages.at(message);
        self.t.matcher.find_posted(self.t.channels.at(channel).peer, tag).is_some()
    }

    /// A message that has its turn and is not matched yet: matches it with a posted receive, or stores it as
    /// unexpected.
    pub(super) fn deliver(&mut self, now: Time, message: u32) {
        let slot = *self.t.messages.at(message);
        let peer = self.t.channels.at(slot.channel).peer;
        match self.match_posted(peer, slot.tag, slot.len) {
            Some(op) => self.bind(now, op, message),
            None => {
                self.stats.unexpected += 1;
                // As many entries as messages: there is room.
                if let Ok(key) = self.t.matcher.store(peer, slot.tag, message) {
                    let slot = self.t.messages.at_mut(message);
                    slot.unexpected = key;
                    slot.matchable = true;
                }
            }
        }
    }

    /// Copies the facts of a message to its receive.
    pub(super) fn address(&mut self, op: u32, message: &Message) {
        let peer = self.t.channels.at(message.channel).peer;
        self.t.bind_op(op, message.channel);
        let slot = self.t.ops.at_mut(op);
        slot.peer = peer;
        slot.tag = message.tag;
        slot.immediate = message.immediate;
        slot.message_len = message.len;
        slot.granted = message.len.min(slot.len);
        slot.remote = message.remote;
        slot.via = Some(message.via);
        slot.fin_wanted = message.want_placed;
    }

    /// A receive gets a message that waits here (out of the matcher already).
    pub(super) fn bind(&mut self, now: Time, op: u32, message: u32) {
        let slot = *self.t.messages.at(message);
        self.address(op, &slot);
        let lost = self.t.channels.at(slot.channel).is_over();
        self.t.messages.at_mut(message).matchable = false;
        if slot.rendezvous {
            let keys = core::mem::replace(&mut self.t.messages.at_mut(message).keys, NONE);
            self.free_message(message);
            self.begin_rendezvous(now, op, keys);
            return;
        }
        self.t.messages.at_mut(message).recv = op;
        let recv = self.t.ops.at_mut(op);
        recv.enter(Phase::Copying);
        recv.message = message;
        recv.fin_wanted &= !lost;
        if slot.state == MessageState::Stored {
            self.queue_copy(op);
        }
    }

    pub(super) fn queue_copy(&mut self, op: u32) {
        self.t.ops.at_mut(op).queued = Queue::Copies;
        self.copies.push_back(&mut By(&mut self.t.ops, op_queue), op);
    }

    /// The copy of a waiting message into its buffer has been requested: the blocks are free, the receive is
    /// complete.
    pub(super) fn copied(&mut self, op: u32) {
        let slot = self.t.ops.at_mut(op);
        let message = core::mem::replace(&mut slot.message, NONE);
        slot.queued = Queue::None;
        slot.enter(Phase::Data);
        slot.moved = slot.granted;
        let channel = slot.channel;
        if self.t.channels.at(channel).is_over() {
            self.t.unbind_op(op);
        }
        self.stats.bytes_copied += self.t.ops.at(op).granted;
        self.free_message(message);
        self.settle(op);
    }

    /// Frees a message's slot, and its blocks if no other message uses them, and grants them to the peer
    /// again (C-4).
    pub(super) fn free_message(&mut self, message: u32) {
        let slot = *self.t.messages.at(message);
        let blocks = if self.t.blocks.give(slot.blocks) { slot.block_count.into() } else { 0 };
        self.drop_key_set(slot.keys, false);
        if let Some(key) = self.t.messages.key_at(message) {
            self.t.messages.remove(key);
        }
        let channel = self.t.channels.at_mut(slot.channel);
        channel.messages -= 1;
        self.grant(slot.channel, 1, blocks);
        self.free_channel_if_idle(slot.channel);
    }

    /// Messages of the peer, and their blocks, free their room here.
    pub(super) fn grant(&mut self, channel: u32, messages: u16, blocks: u32) {
        self.grant_on_line(channel, messages, blocks);
        let slot = self.t.channels.at_mut(channel);
        slot.grants.released(messages, blocks);
        self.announce_room(channel);
    }

    /// Sends the limits to the peer, if that is worth a packet of its own (C-4).
    pub(super) fn announce_room(&mut self, channel: u32) {
        let slot = self.t.channels.at_mut(channel);
        if slot.grants.worth_announcing() && !slot.is_over() {
            slot.ack.make_due();
            self.activate(channel);
        }
    }
}

enum Part {
    Taken(u32),
    /// No operation slot.
    NoSlot,
    /// The buffer is closed now.
    NoRoom,
}
