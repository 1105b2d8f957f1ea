//! Small messages over rails that can lose, as long as nothing unusual happens: sent at submission, received
//! in one call.
//!
//! Nothing is counted beside the tables here, unlike on a [line](crate::fast): packets, windows, credits and
//! acknowledgments are the same as for other messages. What is saved is the operation, the queue and the
//! batch. Each condition that fails sends the message the general way.

use super::channel::{ChannelState, ORDERED, Shortage};
use super::express::sent_id;
use super::op::{Packet, ShortRecord, What};
use super::slots::direct_id;
use super::{Endpoint, Level, MessageClass, Notify, SendRequest, ShortArrival};
use crate::fast::ShortCompletion;
use crate::ids::{OpId, PeerId, PostId, RailId};
use crate::mem::MemRef;
use crate::paths::Stamp;
use crate::rail::sched::{Candidates, Gathers};
use crate::rel::link::State;
use crate::seq::Seq;
use crate::store::NONE;
use crate::tag::Match;
use crate::time::Time;
use crate::wire::{self, EAGER_BYTES, MessageHead, Short, emit_eager};

/// Of the table of packets this part is left to messages that wait in queues.
const PACKETS_LEFT: u32 = 8;

/// A message that is complete for its sender; the caller copies its payload and posts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtOnce {
    /// The request; its completion is reported already.
    pub operation: OpId,
    /// The post, to be completed as any other.
    pub id: PostId,
    /// The rail.
    pub rail: RailId,
    /// Where the payload is to be copied before the post, and posted from; not used where it is empty.
    pub retained: MemRef,
    /// The packet's header.
    pub header: [u8; EAGER_BYTES],
}

impl Endpoint<'_> {
    /// Sends a message of at most one piece, `len` bytes long, over a rail that can lose, if nothing is
    /// before it. Before its next call the caller copies the payload to [`AtOnce::retained`] and posts the
    /// packet from there. `None`: nothing has happened, use [`send`](Self::send).
    #[inline(never)]
    pub fn send_at_once(&mut self, now: Time, send: &SendRequest<'_>, len: u64) -> Option<AtOnce> {
        let is_told = match send.notify {
            Notify::Silent => false,
            Notify::Event if self.t.short_done.has_room() => true,
            _ => return None,
        };
        if send.level != Level::Reusable || len > self.config.eager_bytes_max.into() {
            return None;
        }
        let channel = self.t.channel_of(send.peer)?;
        let blocks = self.blocks_at_once(channel, len)?;
        let rail = self.rail_at_once(now, channel, len)?;
        self.transmit_at_once(now, channel, rail, send, (len as u32, blocks, is_told))
    }

    /// Whether a message may be numbered now: returns the blocks that it needs at the peer.
    #[inline(always)]
    fn blocks_at_once(&self, channel: u32, len: u64) -> Option<u32> {
        let slot = self.t.channels.at(channel);
        let terms = slot.terms.as_ref()?;
        let blocks = match terms.block_bytes.into() {
            block_bytes if len <= block_bytes => u32::from(len > 0),
            block_bytes => len.div_ceil(block_bytes) as u32,
        };
        // Nothing is before it.
        let has_turn = slot.ordered.is_empty() & slot.control.is_empty() & (slot.replaying == 0);
        let window = terms.window.min(self.config.window);
        let is_short = len <= slot.eager_bytes_max.min(terms.eager_bytes_max).into(); // F-5
        let is_open = slot.state() == ChannelState::Open && self.config.express;
        let is_granted = slot.allowance.message_allowed() && slot.allowance.blocks_allowed(blocks);
        let has_slots = self.t.packets.room() > self.t.packets.capacity() / PACKETS_LEFT
            && self.open_requests() < self.config.operations_max
            && self.t.retention.free_len() > 0
            && self.waiting[Shortage::Packets as usize].is_empty();
        let may_go = is_open && has_turn && is_short && is_granted && has_slots && slot.sent[ORDERED].has_room(window);
        may_go.then_some(blocks)
    }

    /// The rail on which a message goes at once. `None`: it waits, or it goes with others.
    #[inline(always)]
    fn rail_at_once(&mut self, now: Time, channel: u32, len: u64) -> Option<RailId> {
        let Candidates { up, room } = self.paths.candidates(channel);
        if up & !self.paths.lossy != 0 {
            return None;
        }
        if !self.paths.policies.class(MessageClass::Small).choice.estimates {
            return self.choose_at_once(now, channel, len);
        }
        if up.is_power_of_two() {
            // Another rail is better than none (P-6).
            let rail = RailId(up.trailing_zeros() as u8);
            return (up & room != 0 && !self.paths.gathers(channel, rail)).then_some(rail);
        }
        let rails = Candidates { up, room };
        if self.paths.policies.of_small().gathers != Gathers::Always
            && let Some(idle) = self.paths.lowest_latency_idle(channel, MessageClass::Small, len, rails)
        {
            return Some(idle);
        }
        self.choose_at_once(now, channel, len)
    }

    #[inline(never)]
    fn choose_at_once(&mut self, now: Time, channel: u32, len: u64) -> Option<RailId> {
        let turns = self.paths.peer(channel).turns;
        let rail = self.choose(now, channel, MessageClass::Small, len)?;
        if self.paths.gathers(channel, rail) {
            // The turn goes to the same message in its queue.
            self.paths.peer_mut(channel).turns = turns;
            return None;
        }
        Some(rail)
    }

    /// Numbers the message and keeps what recovery needs.
    #[inline(always)]
    fn transmit_at_once(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        send: &SendRequest<'_>,
        (len, blocks, is_told): (u32, u32, bool),
    ) -> Option<AtOnce> {
        debug_assert!(len <= self.eager_bytes_max(channel, rail), "a rail that can lose takes what all take");
        let tagged = if send.tag.is_some() { Short::TAGGED } else { 0 };
        let flags = if send.immediate.is_some() { tagged | Short::IMMEDIATE } else { tagged };
        let (tag, immediate) = (send.tag.unwrap_or(0), send.immediate.unwrap_or(0));
        let packet = Packet {
            op: NONE,
            channel,
            stamp: Stamp::of(now),
            rail: rail.0,
            what: What::Short,
            len,
            offset: tag,
            flags,
            posted: true,
            unacked: true,
            lost: false,
        };
        let key = self.t.packets.insert(packet).ok();
        debug_assert!(key.is_some(), "there is room");
        let key = key?;
        let retained = if len > 0 { self.t.retention.take() } else { None };
        debug_assert_eq!(retained.is_some(), len > 0, "there is room");
        self.t.records[key.index as usize] = ShortRecord { immediate, retained: retained.unwrap_or(NONE) };
        let retained = self.t.retention.at(retained.unwrap_or(0));
        self.shorts += 1;
        self.hot.caller_ops += 1;
        let ack_now = self.is_short_of_room(len > 0);
        let (slot, slots) = self.t.sent(channel, ORDERED);
        let psn = slot.sent[ORDERED].push(slots, key.index);
        debug_assert!(psn.is_ok(), "the window has room");
        let psn = psn.unwrap_or_default();
        slot.allowance.use_messages(1); // C-1
        slot.allowance.use_blocks(blocks); // C-2
        slot.shorts += 1;
        let common = self.common_inlined(channel, psn.0, len, ack_now);
        let head = MessageHead { tag: send.tag, immediate: send.immediate, ..MessageHead::default() };
        let header = emit_eager(&common, &head);
        debug_assert!(header.is_ok(), "our own headers are well formed: {common:?}");
        self.paths.note_short_posted(now, channel, rail, len.into());
        self.stats.short_sent += 1;
        self.stats.bytes_copied += u64::from(len);
        self.watch_silence(now, channel);
        self.watch_rails(now, channel);
        let mut operation = sent_id(0);
        if is_told {
            self.sent = self.sent.wrapping_add(2);
            operation = sent_id(self.sent);
            let SendRequest { peer, cookie, .. } = *send;
            let bytes = len;
            self.t.short_done.push(ShortCompletion { cookie, operation, tag, immediate, peer, bytes, flags });
        }
        Some(AtOnce { operation, id: PostId(key), rail, retained, header: header.ok()? })
    }

    /// Returns the destination of an eager message whose payload the rail has here, all of it, if it is the
    /// next one of its peer and its receive is plain. It is completed at once, so the caller copies before
    /// any other call. [`ShortArrival::Slow`]: nothing has happened but that acknowledgments were taken; use
    /// [`handle_arrival`](Self::handle_arrival).
    #[inline(never)]
    pub fn arrive_at_once(&mut self, now: Time, peer: PeerId, rail: RailId, header: &[u8]) -> ShortArrival {
        self.arrive_whole(now, peer, rail, header).unwrap_or(ShortArrival::Slow)
    }

    #[inline(always)]
    fn arrive_whole(&mut self, now: Time, peer: PeerId, rail: RailId, header: &[u8]) -> Option<ShortArrival> {
        let (common, tag, immediate, flags) = wire::eager(header)?;
        let channel = self.t.channel_of(peer)?;
        if usize::from(rail.0) >= self.paths.rails.len()
            || self.has_short_rail && self.paths.lossy >> (rail.0 & 63) & 1 == 0
        {
            // No such rail, or one whose messages a line may count.
            return None;
        }
        let sub = self.t.sub_index(channel, rail);
        let at = self.t.subs.get(sub)?;
        let slot = self.t.channels.at(channel);
        let psn = Seq(common.psn);
        let is_open = matches!(slot.state(), ChannelState::Open | ChannelState::Closing)
            && at.link.state() == State::Ready
            && at.place.is_none()
            && common.source == slot.source;
        // The peer's next one, and no header of an older or a newer one is here.
        let is_next = psn == slot.received[ORDERED].expected()
            && psn == slot.reorder.esn()
            && slot.reorder.is_empty()
            && slot.aborted_placements == 0;
        let len = common.payload_bytes;
        let block_bytes = self.config.block_bytes;
        let blocks = if len <= block_bytes { u32::from(len > 0) } else { len.div_ceil(block_bytes) };
        let is_plain = !self.parts_waiting && len <= self.config.eager_bytes_max;
        if !is_open || !is_next || !is_plain || !slot.grants.has_room(1, blocks) || !self.t.short_done.has_room() {
            return None;
        }
        self.arrive_acks_of(channel, sub, &common).ok()?;
        let is_tagged = flags & Short::TAGGED != 0;
        let taken = match self.t.matcher.has_alone() {
            true => self.t.matcher.take_alone(peer, tag, is_tagged, len),
            false => None,
        };
        let (key, to, cookie) = match taken {
            Some(taken) => (taken.key(), taken.at(), taken.cookie()),
            None => match self.t.matcher.take_direct(peer, tag, is_tagged, len) {
                Match::Direct(taken) => (taken.key(), taken.at(), taken.cookie()),
                Match::Other | Match::Nobody => return None,
            },
        };
        let operation = direct_id(key);
        self.t.short_done.push(ShortCompletion { cookie, operation, tag, immediate, peer, bytes: len, flags });
        let slot = self.t.channels.at_mut(channel);
        slot.last_received = now;
        slot.received[ORDERED].skip(1);
        slot.reorder.skip(1);
        slot.grants.passed(1, blocks);
        self.t.subs[sub].last_received = now;
        self.stats.short_received += 1;
        self.announce_room(channel);
        let slot = self.t.channels.at(channel);
        if slot.answers_are_acknowledged() && !slot.requests.is_empty() {
            self.activate(channel);
        }
        let policy = self.ack_policy;
        self.owe_ack(now, channel, len, common.ack_now, &policy);
        Some(if len == 0 { ShortArrival::Done } else { ShortArrival::At(to) })
    }
}
