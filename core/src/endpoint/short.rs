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
use crate::seq::Seq;
use crate::store::NONE;
use crate::time::Time;
use crate::wire::{Body, MessageHead, Short};

impl Endpoint<'_> {
    /// The record of a short message changes; where nothing needs it any more, it is free.
    #[inline]
    fn change_short(&mut self, index: u32, change: impl FnOnce(&mut ShortRecord)) {
        let mut channel = NONE;
        let freed = self.t.retention.give_each(|places| {
            places.give_if(index, |record| {
                change(record);
                channel = record.channel;
                record.is_free()
            });
        });
        if freed > 0 {
            self.channel_mut(channel).shorts -= freed;
            self.hot.caller_ops -= freed;
        }
    }

    /// The peer has the first packets of the ordered lane that are acknowledged, as far as they are short
    /// messages. Returns how many.
    pub(super) fn acknowledge_shorts(&mut self, channel: u32) -> u32 {
        let at = self.t.sent_at(channel, ORDERED);
        let Tables { channels, sent_slots, retention, .. } = &mut self.t;
        let (slot, slots) = (channels.at_mut(channel), &sent_slots[at]);
        let (sent, run) = (&mut slot.sent[ORDERED], &mut slot.express_budget.run);
        let oldest = sent.oldest();
        let begin = run.begin().map_or(sent.acked(), Seq);
        let begin = if begin.is_before(oldest) { oldest } else { begin };
        let mut freed = 0;
        if begin != oldest {
            freed = retention.give_each(|places| {
                sent.pop_while(slots, begin, |handle| {
                    // `NONE` is no place.
                    record_of(handle).is_some_and(|index| places.give_if(index, ShortRecord::acknowledge))
                });
            });
        }
        if begin == sent.oldest()
            && let Some((first, last, count)) = sent.pop_run(slots)
            && let (Some(first), Some(last)) = (record_of(first), record_of(last))
        {
            // Their records are as they were: none of them is read before it is written.
            retention.give_run(first, last, count);
            freed += count;
            run.from = sent.oldest().0;
        }
        slot.shorts -= freed;
        self.hot.caller_ops -= freed;
        slot.sent[ORDERED].oldest().distance_from(oldest)
    }

    /// The peer has the packet of a short message.
    pub(super) fn acknowledge_short(&mut self, index: u32) {
        self.change_short(index, |record| {
            record.acknowledge();
        });
    }

    /// A rail has completed the packet of a short message.
    #[inline(always)]
    pub(super) fn short_completed(&mut self, now: Time, index: u32, id: PostId, status: PostStatus) {
        let Some(record) = self.t.retention.get_mut(index).filter(|record| record.has_post(id)) else {
            self.stats.stale_dropped += 1;
            return;
        };
        let (channel, rail, len, at) = (record.channel, RailId(record.rail), record.len, record.at);
        self.change_short(index, ShortRecord::complete);
        self.paths.note_short_completed(now, (channel, rail), len, at, status);
        let slot = self.channel_mut(channel);
        slot.express_budget.resume();
        if slot.wants_room() {
            self.activate(channel);
        }
    }

    fn change_if_on(&mut self, rail: Option<RailId>, index: u32, change: impl FnOnce(&mut ShortRecord)) {
        if rail.is_none_or(|rail| self.t.retention.record(index).rail == rail.0) {
            self.change_short(index, change);
        }
    }

    /// Short messages of a channel, on one rail or on all, that the peer has not acknowledged, and then those
    /// that only the rail has: scans the table until the last of these.
    pub(super) fn each_short(&mut self, channel: u32, rail: Option<RailId>, change: impl Fn(&mut ShortRecord)) {
        let mut left = self.channel(channel).shorts;
        if left == 0 {
            return;
        }
        let mut from = self.channel(channel).sent[ORDERED].oldest();
        loop {
            let (slot, slots) = self.t.sent(channel, ORDERED);
            let Some((psn, handle)) = slot.sent[ORDERED].next_held(slots, from) else { break };
            from = psn.next();
            if let Some(index) = record_of(handle) {
                left -= 1;
                self.change_if_on(rail, index, &change);
            }
        }
        for index in 0..self.config.retained_max {
            if left == 0 {
                break;
            }
            let record = self.t.retention.record(index);
            if record.is_only_posted() && record.channel == channel {
                left -= 1;
                self.change_if_on(rail, index, &change);
            }
        }
        debug_assert_eq!(left, 0, "short messages of channel {channel} were counted wrong");
    }

    /// The packet of a short message, to be sent again.
    pub(super) fn rebuild_short(&self, index: u32) -> (Body, Span) {
        let &ShortRecord { tag, immediate, flags, len, .. } = self.t.retention.record(index);
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
