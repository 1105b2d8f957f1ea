//! Short messages over rails that can lose: complete when they are submitted, so no operation exists. A
//! record and a retained copy of the payload are kept until the peer acknowledges the packet and the rail
//! has completed it. Recovery rebuilds the packet from the record (F-5).
//!
//! Each counts as an operation of the caller meanwhile, as any message does that is not acknowledged.

use super::tables::Tables;
use super::{Endpoint, PostStatus};
use crate::api::action::{Span, SpanOf};
use crate::ids::{PostId, RailId};
use crate::op::{ShortRecord, record_of};
use crate::peer::ORDERED;
use crate::time::Time;
use crate::wire::{Body, MessageHead, Short};

impl Endpoint<'_> {
    /// Nothing needs the record of a short message any more.
    #[inline]
    fn free_short(&mut self, index: u32) {
        debug_assert!(self.t.records[index as usize].is_free());
        let channel = self.t.records[index as usize].channel;
        self.t.retention.give(index);
        self.channel_mut(channel).shorts -= 1;
        self.hot.caller_ops -= 1;
    }

    /// The peer has the first packets of the ordered lane that are acknowledged, as far as they are short
    /// messages. Returns how many.
    pub(super) fn acknowledge_shorts(&mut self, channel: u32) -> u32 {
        let (mut count, mut freed) = (0, 0);
        let at = self.t.sent_at(channel, ORDERED);
        let Tables { channels, sent_slots, records, retention, .. } = &mut self.t;
        let (slot, slots) = (channels.at_mut(channel), &mut sent_slots[at]);
        slot.sent[ORDERED].pop_while(slots, |handle| {
            let Some(index) = record_of(handle) else { return false };
            let record = &mut records[index as usize];
            count += 1;
            record.acknowledge();
            if record.is_free() {
                freed += 1;
                retention.give(index);
            }
            true
        });
        slot.shorts -= freed;
        self.hot.caller_ops -= freed;
        count
    }

    /// The peer has the packet of a short message.
    pub(super) fn acknowledge_short(&mut self, index: u32) {
        let record = &mut self.t.records[index as usize];
        record.acknowledge();
        if record.is_free() {
            self.free_short(index);
        }
    }

    /// A rail has completed the packet of a short message.
    #[inline(always)]
    pub(super) fn short_completed(&mut self, now: Time, index: u32, id: PostId, status: PostStatus) {
        let Some(record) = self.t.records.get_mut(index as usize).filter(|record| record.has_post(id)) else {
            self.stats.stale_dropped += 1;
            return;
        };
        record.complete();
        let (channel, rail, len, stamp) = (record.channel, RailId(record.rail), record.len, record.stamp);
        if record.is_free() {
            self.free_short(index);
        }
        self.paths.note_short_completed(now, channel, rail, len, stamp, status);
        if self.channel(channel).wants_room() {
            self.activate(channel);
        }
    }

    /// Short messages of a channel, on one rail or on all, that the rail has or the peer has not
    /// acknowledged; scans the table until the last of them.
    pub(super) fn each_short(&mut self, channel: u32, rail: Option<RailId>, change: impl Fn(&mut ShortRecord)) {
        let mut left = self.channel(channel).shorts;
        let mut index = 0;
        while left > 0 && index < self.t.records.len() {
            let record = &mut self.t.records[index];
            if !record.is_free() && record.channel == channel {
                left -= 1;
                if rail.is_none_or(|rail| record.rail == rail.0) {
                    change(record);
                    if record.is_free() {
                        self.free_short(index as u32);
                    }
                }
            }
            index += 1;
        }
        debug_assert_eq!(left, 0, "short messages of channel {channel} were counted wrong");
    }

    /// The packet of a short message, to be sent again.
    pub(super) fn rebuild_short(&self, index: u32) -> (Body, Span) {
        let &ShortRecord { tag, immediate, flags, len, .. } = &self.t.records[index as usize];
        let head = MessageHead {
            tag: (flags & Short::TAGGED != 0).then_some(tag),
            immediate: (flags & Short::IMMEDIATE != 0).then_some(immediate),
            ..MessageHead::default()
        };
        let payload = match len {
            0 => Span::EMPTY,
            _ => Span { of: SpanOf::At(self.t.retention.at(index)), offset: 0, len: len.into() },
        };
        (Body::Eager(head), payload)
    }
}
