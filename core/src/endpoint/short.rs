//! Short messages over rails that can lose: complete when they are submitted, so no operation exists. A
//! packet and its record, and a retained copy of the payload, are kept until the peer acknowledges the
//! packet and the rail has completed it. Recovery treats the packet as any other (F-5).
//!
//! Each counts as an operation of the caller meanwhile, as any message does that is not acknowledged.

use super::tables::Tables;
use super::{Endpoint, PostStatus};
use crate::api::action::{Span, SpanOf};
use crate::ids::RailId;
use crate::op::{Packet, ShortRecord, What};
use crate::peer::{ORDERED, Shortage};
use crate::store::NONE;
use crate::time::Time;
use crate::wire::{Body, MessageHead, Short};

impl Endpoint<'_> {
    /// Frees a packet's slot, and what else a short message holds.
    pub(super) fn free_packet(&mut self, index: u32) {
        match self.packet(index).what {
            What::Short => self.free_short(index),
            _ => self.t.packets.remove_at(index),
        }
    }

    /// Nothing refers to the packet of a short message any more.
    #[inline]
    pub(super) fn free_short(&mut self, index: u32) {
        let retained = self.t.records[index as usize].retained;
        if retained != NONE {
            self.t.retention.give(retained);
        }
        let channel = self.packet(index).channel;
        self.t.packets.remove_at(index);
        self.channel_mut(channel).shorts -= 1;
        self.shorts -= 1;
        self.hot.caller_ops -= 1;
    }

    /// The peer has the first packets of the ordered lane that are acknowledged, as far as they are short
    /// messages. Returns how many.
    pub(super) fn acknowledge_shorts(&mut self, channel: u32) -> u32 {
        let (mut count, mut freed) = (0, 0);
        let at = self.t.sent_at(channel, ORDERED);
        let Tables { channels, sent_slots, packets, records, retention, .. } = &mut self.t;
        let (slot, slots) = (channels.at_mut(channel), &mut sent_slots[at]);
        slot.sent[ORDERED].pop_while(slots, |index| {
            let packet = packets.at_mut(index);
            if packet.what != What::Short {
                return false;
            }
            count += 1;
            packet.unacked = false;
            if !packet.posted {
                packets.remove_at(index);
                freed += 1;
                let retained = records[index as usize].retained;
                if retained != NONE {
                    retention.give(retained);
                }
            }
            true
        });
        if freed > 0 {
            slot.shorts -= freed;
            self.shorts -= freed;
            self.hot.caller_ops -= freed;
            self.wake(Shortage::Packets);
        }
        count
    }

    /// A rail has completed the packet of a short message.
    #[inline(always)]
    pub(super) fn short_completed(&mut self, now: Time, index: u32, packet: &Packet, status: PostStatus) {
        if !packet.unacked {
            self.free_short(index);
            self.wake(Shortage::Packets);
        }
        let &Packet { channel, rail, len, stamp, .. } = packet;
        self.paths.note_short_completed(now, channel, RailId(rail), len.into(), stamp, status);
        if self.channel(channel).wants_room() {
            self.activate(channel);
        }
    }

    /// The packet of a short message, to be sent again.
    pub(super) fn rebuild_short(&self, index: u32) -> (Body, Span) {
        let &Packet { offset: tag, flags, len, .. } = self.packet(index);
        let ShortRecord { immediate, retained } = self.t.records[index as usize];
        let head = MessageHead {
            tag: (flags & Short::TAGGED != 0).then_some(tag),
            immediate: (flags & Short::IMMEDIATE != 0).then_some(immediate),
            ..MessageHead::default()
        };
        let payload = match retained {
            NONE => Span::EMPTY,
            place => Span { of: SpanOf::At(self.t.retention.at(place)), offset: 0, len: len.into() },
        };
        (Body::Eager(head), payload)
    }
}
