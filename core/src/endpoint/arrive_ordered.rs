//! Arrival of ordered packets: messages meet their receives in the order of their numbers, in whatever order
//! they arrive. A message without a receive or before its turn waits in blocks.

use super::action::Arrival;
use super::channel::{ORDERED, Place, PlaceTo};
use super::op::{Message, MessageState, Phase};
use super::tables::KeySet;
use super::{Endpoint, ProtocolError};
use crate::ids::RailId;
use crate::seq::Seq;
use crate::store::NONE;
use crate::time::Time;
use crate::wire::{Common, MessageHead, Rts};

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
        if self.t.channels.at(channel).aborted_placements != 0
            && let Some(arrival) = self.arrive_again(channel, rail, common, psn)?
        {
            return Ok(arrival); // F-6
        }
        let blocks = bytes.div_ceil(self.config.block_bytes);
        let slot = self.t.channels.at_mut(channel);
        slot.grants.received(1, blocks).map_err(|_| ProtocolError::Credit)?; // C-3
        let peer = slot.peer;
        let in_turn = psn == slot.reorder.esn();
        self.announce_room(channel);
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
            recv: NONE,
            together: NONE,
            ..Message::default()
        };
        if let Some(rts) = rts {
            if !rts.keys.is_empty()
                && let Ok(set) = self.t.key_sets.insert(KeySet::of(&rts.keys))
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
            self.address(op, &message);
            self.grant(channel, 1, blocks);
            if message.rendezvous {
                self.received(now, channel, ORDERED, psn, bytes, common.ack_now);
                self.begin_rendezvous(now, op, message.keys);
                Arrival::Done
            } else {
                let slot = self.t.ops.at_mut(op);
                slot.enter(Phase::Data);
                let granted = slot.granted;
                if granted == 0 {
                    self.received(now, channel, ORDERED, psn, bytes, common.ack_now);
                    self.settle(op);
                    Arrival::Discard
                } else {
                    slot.places += 1;
                    self.open_place(channel, rail, Place::new(PlaceTo::Op(op), granted, ORDERED, common))
                }
            }
        } else {
            // Granted messages have room: the tables are sized for them.
            message.blocks = self.t.blocks.take(blocks).ok_or(ProtocolError::Credit)?;
            let index = self.t.messages.insert(message).map_err(|_| ProtocolError::Credit)?.index;
            self.t.channels.at_mut(channel).messages += 1;
            let arrival = if message.state == MessageState::Stored {
                self.received(now, channel, ORDERED, psn, bytes, common.ack_now);
                Arrival::Done
            } else {
                self.stats.bytes_copied += u64::from(bytes);
                self.open_place(channel, rail, Place::new(PlaceTo::Message(index), bytes.into(), ORDERED, common))
            };
            if in_turn {
                self.stats.unexpected += 1; // M-5
                if let Ok(key) = self.t.matcher.store(peer, message.tag, index) {
                    let slot = self.t.messages.at_mut(index);
                    slot.unexpected = key;
                    slot.matchable = true;
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
                let is_sealed = self.t.messages.at(message).state == MessageState::Sealed;
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
        while !self.t.channels.at(channel).reorder.is_empty() {
            let (slot, slots) = self.t.reorder(channel);
            let first = slot.reorder.search(slots, slot.reorder.esn());
            let sealed = |&message: &u32| self.t.messages.at(message).state == MessageState::Sealed;
            let Some(mut message) = first.filter(|message| !sealed(message)) else { return };
            let (slot, slots) = self.t.reorder(channel);
            slot.reorder.dequeue(slots);
            while message != NONE {
                let next = core::mem::replace(&mut self.t.messages.at_mut(message).together, NONE);
                self.deliver(now, message);
                message = next;
            }
        }
    }
}
