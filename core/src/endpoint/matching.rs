//! Messages arrive and meet buffers: matching in the order of PSNs and of posting (rule M-1), in whatever
//! order they arrive; multi-receive (M-8, M-9). A message without a receive or before its turn waits in
//! blocks (M-5).

use super::tables::{KeySet, op_queue};
use super::{Endpoint, ProtocolError, Selector};
use crate::api::action::Arrival;
use crate::ids::{Key, PeerId, RailId};
use crate::mem::Seg;
use crate::op::{Message, MessageState, MessageUse, Op, OpKind, Phase, Queue};
use crate::peer::{Held, ORDERED, Place, PlaceTo};
use crate::seq::Seq;
use crate::store::NONE;
use crate::store::list::By;
use crate::time::Time;
use crate::wire::{Common, MessageHead, Rts};

impl Endpoint<'_> {
    /// Takes the receive for a message of `len` bytes out of the matcher.
    fn match_posted(&mut self, peer: PeerId, tag: Option<u64>, len: u64) -> Option<u32> {
        loop {
            let (key, op) = self.t.matcher.posted.find(peer, tag)?;
            let multi = op != NONE && self.op(op).kind() == OpKind::MultiRecv;
            // While one message waits for a slot, none may overtake it (M-8), nor one that waits behind it.
            if self.parts_waiting && (multi || self.waits_before(peer, key)) {
                return None;
            }
            if op == NONE {
                return self.promote(key);
            }
            if !multi {
                self.t.matcher.posted.unpost(key);
                return Some(op);
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

    /// Whether a posted receive may get a message of this peer that waits for an older receive.
    #[cold]
    fn waits_before(&self, peer: PeerId, receive: Key) -> bool {
        let matcher = &self.t.matcher;
        let Some(selector) = matcher.posted.selector(receive) else { return false };
        matcher.unexpected.waiting_for(&selector).any(|(_, message)| self.t.sender_of(message) == peer)
    }

    /// Cuts `len` bytes off a multi-receive buffer.
    fn part_of(&mut self, op: u32, len: u64) -> Part {
        let &Op { len: room, cursor, notify, cookie, index, .. } = self.op(op);
        let free = room - cursor;
        if len > free && cursor > 0 {
            self.close_multi(op);
            return Part::NoRoom;
        }
        if self.open_requests() >= self.config.parts_max() {
            return Part::NoSlot;
        }
        let taken = len.min(free);
        let part = self.new_op(Op {
            parent: op,
            remote_offset: cursor,
            len: taken,
            notify,
            cookie,
            index,
            ..Op::new(OpKind::Part)
        });
        let mut seg = self.t.op_segments(op).first().copied().unwrap_or_default();
        seg = Seg::new(seg.at.region, seg.at.offset + cursor, taken);
        self.t.set_segments(part, &[seg]);
        let parent = self.op_mut(op);
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
        let slot = self.op_mut(op);
        let key = slot.posted;
        slot.enter(Phase::Closing);
        let idle = slot.children == 0;
        self.t.matcher.posted.unpost(key);
        if idle {
            self.complete(op, None);
        }
    }

    /// Fills a new multi-receive with messages that wait.
    pub(super) fn feed_multi(&mut self, now: Time, op: u32, from: &Selector) {
        // An older one may be waiting for the same messages.
        while !self.parts_waiting && self.op(op).phase() == Phase::Posted {
            let Some((key, message)) = self.t.matcher.unexpected.find(from) else { return };
            if !self.has_channel(now, message) {
                return self.set_parts_waiting(true);
            }
            match self.part_of(op, self.message(message).len) {
                Part::Taken(part) => {
                    self.t.matcher.unexpected.take(key);
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
        if self.parts_waiting && self.open_requests() < self.config.parts_max() {
            self.feed_waiting_parts(now);
        }
    }

    #[cold]
    fn feed_waiting_parts(&mut self, now: Time) {
        self.set_parts_waiting(false);
        loop {
            let has_receive_for = |&(_, message): &(Key, u32)| self.has_receive(message);
            let Some((key, message)) = self.t.matcher.unexpected.waiting().find(has_receive_for) else { return };
            if !self.has_channel(now, message) {
                return self.set_parts_waiting(true);
            }
            let Message { tag, len, .. } = *self.message(message);
            match self.match_posted(self.t.sender_of(message), tag, len) {
                Some(op) => {
                    self.t.matcher.unexpected.take(key);
                    self.bind(now, op, message);
                }
                None if self.parts_waiting => return,
                // It did not fit into the rest of the buffer, which is closed now.
                None => {}
            }
        }
    }

    /// The oldest message that `selector` takes. While parts of multi-receives wait for slots: none that an
    /// older receive may get, and none that its sender sent after such a one.
    pub(super) fn find_waiting(&self, selector: &Selector) -> Option<(Key, u32)> {
        let unexpected = &self.t.matcher.unexpected;
        if !self.parts_waiting {
            return unexpected.find(selector);
        }
        let is_first = |&(key, message): &(Key, u32)| {
            let mut before = unexpected.waiting_for(selector).take_while(|(other, _)| *other != key);
            !before.any(|(_, other)| self.t.sender_of(other) == self.t.sender_of(message))
        };
        unexpected.waiting_for(selector).find(|found| !self.has_receive(found.1) && is_first(found))
    }

    /// Whether a posted receive takes a message.
    fn has_receive(&self, message: u32) -> bool {
        self.t.matcher.posted.find(self.t.sender_of(message), self.message(message).tag).is_some()
    }

    /// A message that has its turn and is not matched yet: matches it with a posted receive, or stores it as
    /// unexpected.
    fn deliver(&mut self, now: Time, message: u32) {
        let &Message { channel, tag, len, .. } = self.message(message);
        let peer = self.t.channels.at(channel).peer;
        match self.match_posted(peer, tag, len) {
            Some(op) => self.bind(now, op, message),
            None => {
                self.stats.unexpected += 1;
                // As many entries as messages: there is room.
                if let Ok(key) = self.t.matcher.unexpected.store(peer, tag, message) {
                    let slot = self.message_mut(message);
                    slot.unexpected = key;
                    slot.used = MessageUse::Unexpected;
                }
            }
        }
    }

    /// A receive gets a message that waits here (out of the matcher already).
    pub(super) fn bind(&mut self, now: Time, op: u32, message: u32) {
        let &Message { channel, state, rendezvous, .. } = self.message(message);
        let peer = self.t.sender_of(message);
        let mut lost = true;
        if self.message(message).parked_peer().is_none() {
            self.t.bind_op(op, channel);
            lost = self.channel(channel).is_over();
        }
        self.t.ops.at_mut(op).receive(peer, self.t.messages.at(message));
        if rendezvous {
            let keys = core::mem::replace(&mut self.message_mut(message).keys, NONE);
            self.free_message(message);
            self.begin_rendezvous(now, op, keys);
            return;
        }
        let slot = self.message_mut(message);
        (slot.used, slot.recv) = (MessageUse::Received, op);
        let recv = self.op_mut(op);
        recv.enter(Phase::Copying);
        recv.message = message;
        recv.needs_fin &= !lost;
        if state == MessageState::Stored {
            self.queue_copy(op);
        }
    }

    pub(super) fn queue_copy(&mut self, op: u32) {
        self.op_mut(op).queued = Queue::Copies;
        self.copies.push_back(&mut By(&mut self.t.ops, op_queue), op);
        self.hot.may_have_work = true;
    }

    /// The copy of a waiting message into its buffer has been requested: the blocks are free, the receive is
    /// complete.
    pub(super) fn copied(&mut self, op: u32) {
        let slot = self.op_mut(op);
        let message = core::mem::replace(&mut slot.message, NONE);
        slot.queued = Queue::None;
        slot.enter(Phase::Data);
        slot.moved = slot.granted;
        let channel = slot.channel;
        // NONE: of a message of a parked channel.
        if channel != NONE && self.channel(channel).is_over() {
            self.t.unbind_op(op);
        }
        self.stats.bytes_copied += self.op(op).granted;
        self.free_message(message);
        self.complete_if_done(op);
    }

    /// Frees a message's slot, and its blocks if no other message uses them, and grants them to the peer
    /// again (C-4).
    pub(super) fn free_message(&mut self, message: u32) {
        let &Message { channel, blocks, block_count, keys, .. } = self.message(message);
        let blocks = if self.t.blocks.give(blocks) { block_count.into() } else { 0 };
        self.drop_key_set(keys, false);
        let parked_peer = self.message(message).parked_peer();
        if let Some(key) = self.t.messages.key_at(message) {
            self.t.messages.remove(key);
        }
        if let Some(peer) = parked_peer {
            let held = Held { messages: 1, blocks };
            self.t.held = self.t.held.without(held);
            let parked = &mut self.t.parked[peer.0 as usize];
            parked.release(held);
            self.t.held_peers -= u32::from(parked.held().messages == 0);
            return;
        }
        self.t.channels.at_mut(channel).messages -= 1;
        self.grant(channel, 1, blocks);
        self.free_channel_if_idle(channel);
    }

    /// Messages of the peer, and their blocks, free their room here.
    pub(super) fn grant(&mut self, channel: u32, messages: u16, blocks: u32) {
        self.grant_on_line(channel, messages, blocks);
        let slot = self.channel_mut(channel);
        slot.grants.released(messages, blocks);
        slot.express_budget.stop_receiving();
        self.announce_room(channel);
    }

    /// Sends the limits to the peer, if that is worth a packet of its own (C-4).
    #[inline(always)]
    pub(super) fn announce_room(&mut self, channel: u32) {
        let slot = self.channel_mut(channel);
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

impl Endpoint<'_> {
    /// An eager message or an RTS: in order it meets its receive at once (M-7); otherwise it waits in blocks
    /// for its turn (S-8).
    pub(super) fn arrive_message(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        common: &Common,
        head: &MessageHead,
        rts: Option<&Rts>,
    ) -> Result<Arrival, ProtocolError> {
        let psn = Seq(common.psn);
        let bytes = common.payload_bytes;
        if bytes > self.config.eager_bytes_max {
            return Err(ProtocolError::TooLong { bytes: bytes.into() });
        }
        if !self.claim_psn(now, channel, ORDERED, psn)? {
            return Ok(Arrival::Discard);
        }
        if self.channel(channel).replay.aborted_placements != 0
            && let Some(arrival) = self.arrive_again(channel, rail, common, psn)?
        {
            return Ok(arrival); // F-6
        }
        let blocks = bytes.div_ceil(self.config.block_bytes);
        let slot = self.channel_mut(channel);
        slot.grants.received(1, blocks).map_err(|_| ProtocolError::Credit)?; // C-3
        let peer = slot.peer;
        let in_turn = psn == slot.reorder.esn();
        if slot.grants.is_used_up() {
            self.announce_room(channel);
        }
        let mut message = Message {
            channel,
            state: MessageState::Placing,
            rendezvous: rts.is_some(),
            want_placed: head.want_placed,
            tag: head.tag,
            immediate: head.immediate,
            len: rts.map_or(bytes.into(), |rts| rts.message_bytes),
            remote: head.operation,
            via: rail,
            blocks: NONE,
            block_count: blocks as u16,
            keys: NONE,
            next_in_packet: NONE,
            ..Message::default()
        };
        if let Some(rts) = rts {
            if !rts.keys.is_empty()
                && let Some(set) = self.t.key_sets.insert(KeySet::of(&rts.keys))
            {
                // Without room for its keys the message uses put or data segments.
                message.keys = set.index;
            }
            message.state = MessageState::Stored;
        } else if bytes == 0 {
            message.state = MessageState::Stored;
        }
        let mut matched = None;
        if in_turn {
            let (slot, slots) = self.t.reorder(channel);
            slot.reorder.advance(slots);
            matched = self.match_posted(peer, message.tag, message.len);
        } else {
            self.stats.out_of_order += 1;
        }
        let arrival = if let Some(op) = matched {
            // Directly into the buffer: nothing is held here (C-4).
            self.t.bind_op(op, channel);
            self.op_mut(op).receive(peer, &message);
            self.grant(channel, 1, blocks);
            if message.rendezvous {
                self.received(now, channel, ORDERED, psn, bytes, common.ack_now);
                self.begin_rendezvous(now, op, message.keys);
                Arrival::Done
            } else {
                let slot = self.op_mut(op);
                slot.enter(Phase::Data);
                let granted = slot.granted;
                if granted == 0 {
                    self.received(now, channel, ORDERED, psn, bytes, common.ack_now);
                    self.complete_if_done(op);
                    Arrival::Discard
                } else {
                    slot.places += 1;
                    self.open_place(channel, rail, Place::new(PlaceTo::Op(op), granted, ORDERED, common))
                }
            }
        } else {
            // Granted messages have room: the tables are sized for them.
            message.blocks = self.t.blocks.take(blocks).ok_or(ProtocolError::Credit)?;
            let (tag, is_stored) = (message.tag, message.state == MessageState::Stored);
            let index = self.t.messages.insert(message).ok_or(ProtocolError::Credit)?.index;
            self.channel_mut(channel).messages += 1;
            let arrival = if is_stored {
                self.received(now, channel, ORDERED, psn, bytes, common.ack_now);
                Arrival::Done
            } else {
                self.stats.bytes_copied += u64::from(bytes);
                self.open_place(channel, rail, Place::new(PlaceTo::Message(index), bytes.into(), ORDERED, common))
            };
            if in_turn {
                self.stats.unexpected += 1; // M-5
                if let Ok(key) = self.t.matcher.unexpected.store(peer, tag, index) {
                    let slot = self.message_mut(index);
                    slot.unexpected = key;
                    slot.used = MessageUse::Unexpected;
                }
            } else {
                let (slot, slots) = self.t.reorder(channel);
                slot.reorder.enqueue(slots, psn, index).map_err(|_| ProtocolError::Sequence { psn: psn.0 })?;
            }
            arrival
        };
        if in_turn {
            self.deliver_due(now, channel);
        }
        Ok(arrival)
    }

    /// The copy of an ordered packet whose rail died during its placement: its header has taken effect, and
    /// the payload goes to the original destination (F-6).
    #[cold]
    pub(super) fn arrive_again(
        &mut self,
        channel: u32,
        rail: RailId,
        common: &Common,
        psn: Seq,
    ) -> Result<Option<Arrival>, ProtocolError> {
        let payload_bytes = common.payload_bytes;
        let Some((to, takes)) = self.take_aborted(channel, psn) else { return Ok(None) };
        let (len, fits) = match to {
            PlaceTo::Message(message) => {
                let is_sealed = self.message(message).state == MessageState::Sealed;
                let blocks = payload_bytes.div_ceil(self.config.block_bytes);
                (payload_bytes.into(), takes == u64::from(if is_sealed { blocks } else { payload_bytes }))
            }
            _ => (takes, takes <= payload_bytes.into()),
        };
        if !fits {
            // A copy is as long as the packet was.
            return Err(ProtocolError::TooLong { bytes: payload_bytes.into() });
        }
        Ok(Some(self.open_place(channel, rail, Place::new(to, len, ORDERED, common))))
    }

    /// Delivers messages whose turn has come (S-8). An unopened aggregate delays those behind it.
    pub(super) fn deliver_due(&mut self, now: Time, channel: u32) {
        while !self.channel(channel).reorder.is_empty() {
            let (slot, slots) = self.t.reorder(channel);
            let first = slot.reorder.search(slots, slot.reorder.esn());
            let sealed = |&message: &u32| self.message(message).state == MessageState::Sealed;
            let Some(mut message) = first.filter(|message| !sealed(message)) else { return };
            let (slot, slots) = self.t.reorder(channel);
            slot.reorder.dequeue(slots);
            while message != NONE {
                let next = core::mem::replace(&mut self.message_mut(message).next_in_packet, NONE);
                self.deliver(now, message);
                message = next;
            }
        }
    }
}
