//! Several small messages in one packet (newmadeleine-2007, 3.3; rule W-11).
//!
//! The sender packs messages from the front of a channel's queue, in order and with any tags, into one
//! retained place. Their buffers are free at once; one packet, one acknowledgment and one place serve all.
//! [`Op::next_in_packet`](crate::op::Op) links the operations; each counts the packet as its own, so none is
//! freed before the packet is complete.
//!
//! The receiver puts the payload into blocks, whether receives wait or not, and checks the record heads once
//! all of it has arrived: so a bad aggregate has no effect at all. From then on each is an early or
//! unexpected message. They share the chain of blocks, which the last of them frees. Until its payload has
//! arrived an aggregate has not had its turn, and later packets wait.

use super::packets::{Actions, Step};
use super::{Endpoint, Level, MessageClass, ProtocolError};
use crate::api::action::{Action, Arrival, Peek, Span, SpanOf};
use crate::ids::RailId;
use crate::op::{Message, MessageState, Op, Phase};
use crate::paths::Choice;
use crate::peer::{ORDERED, Place, PlaceTo};
use crate::rail::sched::{Candidates, of};
use crate::seq::Seq;
use crate::store::NONE;
use crate::time::Time;
use crate::wire::aggregate::{RECORD_BYTES, RecordHead};
use crate::wire::{Body, Common, MessageHead, WireError};

/// Maximum messages per packet: a batch of actions holds as many, and the post.
pub(super) const AGGREGATE_MAX: usize = 15;

/// The lengths of messages, from the front of a queue.
pub(super) type Lens = heapless::Vec<u32, AGGREGATE_MAX>;

impl Endpoint<'_> {
    /// Sends the messages at the front of a channel's queue in one packet over `rail`, if the policy decides
    /// to aggregate. The caller has checked `may_send`.
    pub(super) fn aggregate_next(&mut self, now: Time, channel: u32, rail: RailId, out: &mut Actions) -> Step {
        let lens = self.front(channel, rail, self.config.aggregate_bytes_max, out);
        let count = of(self.paths.policies.small()).aggregate_len(&self.paths.costs(rail), &lens);
        if count < 2 {
            return Step::Idle;
        }
        let bytes = lens[..count].iter().map(|len| u64::from(*len) + RECORD_BYTES as u64).sum();
        let rail = self.earliest_aggregate(now, channel, rail, bytes);
        self.send_aggregate(now, channel, rail, count, out);
        Step::Sent
    }

    /// The rail for an aggregate: by path estimates the one that delivers all of it earliest. It may differ
    /// from `rail`, the choice for the first message (P-9).
    pub(super) fn earliest_aggregate(&self, now: Time, channel: u32, rail: RailId, bytes: u64) -> RailId {
        if !self.paths.policies.of_small().estimates || self.t.channels.at(channel).ring.is_some() {
            return rail;
        }
        let Candidates { up, room } = self.paths.candidates(channel);
        let class = MessageClass::Small;
        let rails = Candidates { up: self.paths.usable(channel, class, up), room };
        let earliest = self.paths.earliest(&Choice { now, channel, class, bytes, rails });
        earliest.filter(|other| bytes <= self.eager_bytes_max(channel, *other).into()).unwrap_or(rail)
    }

    /// The lengths of the messages at the front of a channel's queue that may share one packet over `rail`
    /// now: limited by credits, blocks and the actions left in the batch, with at most `bytes_max` of payload
    /// including heads. Fewer than two: nothing to aggregate.
    pub(super) fn front(&mut self, channel: u32, rail: RailId, bytes_max: u32, out: &Actions) -> Lens {
        let mut lens = Lens::new();
        let slot = self.channel(channel);
        let Some(peer_parameters) = slot.peer_parameters.filter(|_| self.t.retention.free_len() > 0) else {
            return lens;
        };
        let eager_max = self.eager_bytes_max(channel, rail).min(peer_parameters.eager_bytes_max);
        let blocks_max = u64::from(slot.allowance.blocks_left()) * u64::from(peer_parameters.block_bytes);
        let bytes_max = u64::from(eager_max.min(bytes_max)).min(blocks_max);
        let count_max = (out.capacity() - out.len()).saturating_sub(1).min(slot.allowance.messages_left() as usize);
        let (mut op, mut bytes) = (slot.queues.ordered.head(), 0);
        while op != NONE && lens.len() < count_max {
            let send = self.op(op);
            bytes += RECORD_BYTES as u64 + send.len;
            // A message whose memory is being registered uses rendezvous.
            if bytes > bytes_max || send.phase() != Phase::Queued || lens.push(send.len as u32).is_err() {
                break;
            }
            op = send.queue.next();
        }
        lens
    }

    /// Sends the first `count` messages of a channel's queue, at least one, in one packet. The caller has
    /// checked `may_send` and [`front`](Self::front), and `out` has room.
    fn send_aggregate(&mut self, now: Time, channel: u32, rail: RailId, count: usize, out: &mut Actions) {
        let Some(place) = self.t.retention.take() else {
            debug_assert!(false, "the caller has checked for room");
            return;
        };
        let at = self.t.retention.at(place);
        let leader = self.channel(channel).queues.ordered.head();
        let (mut bytes, mut last, mut ack_now) = (0, NONE, false);
        for _ in 0..count {
            let op = self.channel(channel).queues.ordered.head();
            self.t.dequeue(op);
            let &Op { tag, immediate, level, len, retained, .. } = self.op(op);
            let operation = self.t.op_id(op).0.to_bits();
            let head = MessageHead { tag, immediate, want_placed: level == Level::Placed, operation };
            let head = RecordHead { head, bytes: len as u32 }.emit();
            let whole = RECORD_BYTES as u64 + len;
            let (from, to) = (self.payload(op, 0, len), Span { of: SpanOf::At(at), offset: bytes, len: whole });
            let pushed = out.push(Action::Pack { head, from, to });
            debug_assert!(pushed.is_ok(), "the batch has room");
            if retained != NONE {
                // An injected message: its copy is not needed after this batch.
                self.t.retention.give(retained);
            }
            let slot = self.op_mut(op);
            slot.enter(Phase::EagerSent);
            (slot.all_sent, slot.retained) = (true, NONE);
            if last != NONE {
                (slot.posts, slot.unacked) = (1, 1);
                self.op_mut(last).next_in_packet = op;
            }
            (last, bytes) = (op, bytes + whole);
            ack_now |= level == Level::Acknowledged;
            self.note_moved(now, op, rail);
        }
        self.op_mut(leader).retained = place;
        self.stats.bytes_copied += bytes;
        let slot = self.channel_mut(channel);
        let block_bytes = slot.peer_parameters.map_or(1, |peer_parameters| peer_parameters.block_bytes);
        slot.allowance.use_messages(count as u32); // C-1
        slot.allowance.use_blocks((bytes as u32).div_ceil(block_bytes)); // C-2
        let payload = Span { of: SpanOf::At(at), offset: 0, len: bytes };
        self.transmit(now, channel, rail, leader, &Body::Aggregate { count: count as u16 }, payload, ack_now, out);
        let mut op = leader;
        while op != NONE {
            let &Op { next_in_packet, level, .. } = self.op(op);
            if level == Level::Reusable {
                self.complete(op, None);
            }
            op = next_in_packet;
        }
    }

    /// The header of an aggregate has arrived: allocates blocks for its payload, counts its messages (C-3),
    /// and makes later packets wait.
    pub(super) fn arrive_aggregate(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        common: &Common,
        count: u16,
    ) -> Result<Arrival, ProtocolError> {
        let (psn, bytes) = (Seq(common.psn), common.payload_bytes);
        if bytes > self.config.eager_bytes_max {
            return Err(ProtocolError::TooLong { bytes: bytes.into() });
        }
        if !self.claim_psn(now, channel, ORDERED, psn)? {
            return Ok(Arrival::Discard);
        }
        if let Some(arrival) = self.arrive_again(channel, rail, common, psn)? {
            return Ok(arrival); // F-6
        }
        let block_count = bytes.div_ceil(self.config.block_bytes);
        let slot = self.channel_mut(channel);
        slot.grants.received(count, block_count).map_err(|_| ProtocolError::Credit)?; // C-3
        let is_early = psn != slot.reorder.esn();
        if slot.grants.is_used_up() {
            self.announce_room(channel);
        }
        // What was granted has room: the tables are sized for it.
        let blocks = self.t.blocks.take(block_count).ok_or(ProtocolError::Credit)?;
        let aggregate = Message {
            channel,
            state: MessageState::Sealed,
            len: count.into(),
            blocks,
            block_count: block_count as u16,
            keys: NONE,
            next_in_packet: NONE,
            ..Message::default()
        };
        let index = self.t.messages.insert(aggregate).ok_or(ProtocolError::Credit)?.index;
        self.channel_mut(channel).messages += 1;
        let (slot, slots) = self.t.reorder(channel);
        slot.reorder.enqueue(slots, psn, index).map_err(|_| ProtocolError::Sequence { psn: psn.0 })?; // S-8
        self.stats.out_of_order += u64::from(is_early);
        let place = Place::new(PlaceTo::Message(index), bytes.into(), ORDERED, common);
        Ok(self.open_place(channel, rail, place))
    }

    /// The payload of an aggregate has arrived: opens it, and delivers what is due.
    pub(super) fn aggregate_placed(&mut self, now: Time, channel: u32, aggregate: u32, place: &Place, peek: Peek<'_>) {
        if let Err(error) = self.inspect(aggregate, place.payload_bytes, peek) {
            self.offend(now, channel, ProtocolError::Wire(error)); // W-11, G-8
            return;
        }
        self.open_aggregate(channel, aggregate, peek);
        self.received(now, channel, place.lane, place.psn, place.payload_bytes, place.ack_now);
        self.deliver_due(now, channel);
    }

    /// The record head at `offset` of a chain.
    fn record(&self, blocks: u32, offset: u32, peek: Peek<'_>) -> Result<RecordHead, WireError> {
        let (mut head, mut at) = ([0; RECORD_BYTES], 0);
        let span = Span { of: SpanOf::Blocks(blocks), offset: offset.into(), len: RECORD_BYTES as u64 };
        for seg in self.segments(span) {
            let end = at + seg.len as usize;
            peek(seg.at, &mut head[at..end]);
            at = end;
        }
        RecordHead::parse(&head)
    }

    /// Checks a whole aggregate before any of it takes effect (W-11). Errors: those of
    /// [`Records`](crate::wire::aggregate::Records).
    fn inspect(&self, aggregate: u32, payload_bytes: u32, peek: Peek<'_>) -> Result<(), WireError> {
        let &Message { len: count, blocks, .. } = self.message(aggregate);
        let mut left = payload_bytes;
        for _ in 0..count {
            let short = WireError { field: "record", value: left.into() };
            let behind = left.checked_sub(RECORD_BYTES as u32).ok_or(short)?;
            let bytes = self.record(blocks, payload_bytes - left, peek)?.bytes;
            let over = WireError { field: "record.bytes", value: bytes.into() };
            left = behind.checked_sub(bytes).ok_or(over)?;
        }
        match left {
            0 => Ok(()),
            _ => Err(WireError { field: "record.trailing", value: left.into() }),
        }
    }

    /// Splits an aggregate into its messages; the first takes its place in the out-of-order queue. They fit,
    /// because they were granted.
    fn open_aggregate(&mut self, channel: u32, aggregate: u32, peek: Peek<'_>) {
        let &Message { blocks, block_count, len: count, next_in_packet, .. } = self.message(aggregate);
        let (mut offset, mut last, mut users) = (0, aggregate, 0);
        for n in 0..count {
            let Ok(RecordHead { head, bytes }) = self.record(blocks, offset, peek) else { break };
            offset += RECORD_BYTES as u32;
            let is_empty = bytes == 0;
            let message = Message {
                state: MessageState::Stored,
                want_placed: head.want_placed,
                tag: head.tag,
                immediate: head.immediate,
                len: bytes.into(),
                remote: head.operation,
                blocks: if is_empty { NONE } else { blocks },
                block_count: if is_empty { 0 } else { block_count },
                offset,
                next_in_packet,
                ..*self.message(aggregate)
            };
            (offset, users) = (offset + bytes, users + u16::from(!is_empty));
            if n == 0 {
                *self.message_mut(aggregate) = message;
                continue;
            }
            let Some(key) = self.t.messages.insert(message) else {
                debug_assert!(false, "what was granted has room");
                break;
            };
            self.channel_mut(channel).messages += 1;
            self.message_mut(last).next_in_packet = key.index;
            last = key.index;
        }
        if users == 0 {
            // Nothing but heads.
            self.t.blocks.give(blocks);
            self.grant(channel, 0, block_count.into());
        } else {
            self.t.blocks.share(blocks, users - 1);
        }
    }
}
