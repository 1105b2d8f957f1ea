//! Packets: built, numbered and handed to rails; completed and acknowledged. A packet that arrives claims its
//! number in the window once, and its acknowledgment is due; if its payload is lost with a connection,
//! the number is open again (F-6).

use super::timer::Timer;
use super::{Endpoint, PostStatus, ProtocolError};
use crate::api::action::{Action, Post, PostKind, Span, SpanOf};
use crate::ids::{Key, PostId, RailId};
use crate::op::{MessageState, OpKind, Packet, PartFin, What, record_of};
use crate::paths::{Completed, Stamp};
use crate::peer::{ORDERED, PlaceTo, Shortage, UNORDERED};
use crate::rel::ack::AckVerdict;
use crate::seq::{Claim, Seq};
use crate::store::NONE;
use crate::time::{Nanos, Time};
use crate::wire::{self, Body, Common, Fin, Lane, emit_into};

/// The batch that `poll_actions` fills.
pub(super) type Actions = heapless::Vec<Action, 16>;

/// Actions that one step may add: a copy and a post.
pub(super) const STEP: usize = 2;

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Something was sent: try again.
    Sent,
    /// Nothing to send, or no room for it.
    Idle,
}

impl Endpoint<'_> {
    /// The common header of the next packet of a channel (A-1, C-4).
    pub(super) fn common(&mut self, channel: u32, rail: RailId, psn: u32, payload_bytes: u32, ack_now: bool) -> Common {
        self.common_inlined(channel, rail, psn, payload_bytes, ack_now)
    }

    /// The same, inlined.
    #[inline(always)]
    pub(super) fn common_inlined(
        &mut self,
        channel: u32,
        rail: RailId,
        psn: u32,
        payload_bytes: u32,
        ack_now: bool,
    ) -> Common {
        let source = self.source;
        let slot = self.channel_mut(channel);
        // S-12: on other rails the peer may ignore them.
        if slot.ring.is_none_or(|ring| ring == rail) {
            slot.grants.announced();
            if !slot.ack.is_clear() {
                self.ack_goes(self.latest, channel);
            }
        }
        let slot = self.channel_mut(channel);
        let (message_limit, block_limit) = slot.grants.limits();
        Common {
            source,
            psn,
            ack_ordered: slot.received[ORDERED].expected().0,
            ack_unordered: slot.received[UNORDERED].expected().0,
            message_limit,
            block_limit,
            payload_bytes,
            ack_now,
            refusing: slot.requests.is_refusing(),
        }
    }

    /// A packet carries what is to be acknowledged. The timer runs on, and what waits is looked at when it
    /// expires: a timer for each acknowledgment would cost more.
    #[inline(never)]
    pub(super) fn ack_goes(&mut self, now: Time, channel: u32) {
        let slot = self.channel_mut(channel);
        slot.ack.sent(now);
        if slot.express_budget.is_counted() {
            self.count_anew(channel);
        }
    }

    /// How many messages may come until one makes something due.
    #[inline(never)]
    pub(super) fn count_anew(&mut self, channel: u32) {
        let is_timed = self.t.has_timer(channel, Timer::Ack);
        let (policy, block_bytes) = (self.ack_policy, self.config.block_bytes);
        let slot = self.channel_mut(channel);
        let is_open = is_timed && !slot.ack.is_due() && slot.grants.has_room(1, 1);
        let quiet = slot.ack.quiet(&policy, block_bytes).min(slot.grants.quiet());
        slot.express_budget.count_anew(if is_open { 1 + quiet } else { 0 });
    }

    /// The same for CONNECT, which acknowledges nothing: the peer's first number may be unknown.
    /// Pending acknowledgments and limits stay pending.
    fn connect_common(&self, channel: u32) -> Common {
        let slot = self.channel(channel);
        let (message_limit, block_limit) = slot.grants.limits();
        Common { source: self.source, message_limit, block_limit, ..Common::default() }
    }

    /// Whether one more sequenced packet of `lane` may be under way (S-3).
    pub(super) fn may_send(&mut self, channel: u32, lane: Lane) -> bool {
        if self.t.packets.room() == 0 {
            self.wait_for(channel, Shortage::Packets);
            return false;
        }
        self.has_window(channel, lane)
    }

    /// The same of the window alone.
    #[inline]
    pub(super) fn has_window(&self, channel: u32, lane: Lane) -> bool {
        let slot = self.channel(channel);
        let window = slot.peer_parameters.map_or(0, |peer_parameters| peer_parameters.window).min(self.config.window);
        let lane = if lane == Lane::Ordered { ORDERED } else { UNORDERED };
        slot.sent[lane].has_room(window)
    }

    /// Numbers a sequenced packet (S-1) and hands it to a rail. The caller has checked `may_send` and
    /// `has_room`, and `out` has room.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn transmit(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        op: u32,
        body: &Body,
        payload: Span,
        ack_now: bool,
        out: &mut Actions,
    ) {
        let lane = match body.lane() {
            Some(Lane::Ordered) => ORDERED,
            _ => UNORDERED,
        };
        let (what, offset) = self.packet_record(op, body);
        let len = payload.len() as u32;
        let Some(key) = self.keep_packet(now, channel, rail, op, (what, len, offset), true) else { return };
        let (slot, slots) = self.t.sent(channel, lane);
        // It may take what the express budget has counted of window and grants.
        slot.express_budget.stop_sending();
        let Ok(psn) = slot.sent[lane].push(slots, key.index) else {
            debug_assert!(false, "the caller has checked for room");
            self.t.packets.remove(key);
            return;
        };
        let ack_now = ack_now || self.is_short(op);
        let common = self.common(channel, rail, psn.0, len, ack_now);
        let slot = self.op_mut(op);
        slot.unacked += 1;
        slot.posts += 1;
        self.paths.note_posted(now, channel, rail, payload.len());
        self.stats.packets_sent += 1;
        self.watch_silence(now, channel);
        self.watch_rails(now, channel);
        self.push_packet(channel, rail, PostId(key), &common, body, payload, out);
    }

    /// The record that rebuilds a packet (F-5).
    fn packet_record(&self, op: u32, body: &Body) -> (What, u64) {
        match body {
            Body::Eager(_) => (What::Eager, 0),
            Body::Aggregate { .. } => (What::Aggregate, 0),
            Body::Rts(_) => (What::Rts, 0),
            Body::Cts(_) => (What::Cts, 0),
            Body::Resume(resume) => (What::Resume, resume.epoch.into()),
            Body::Data(data) => (What::Data, data.offset),
            Body::Put(put) => (What::Put, put.offset.wrapping_sub(self.op(op).remote_offset)),
            Body::PutImmediate(_) => (What::PutImmediate, 0),
            Body::Get(_) => (What::Get, 0),
            Body::Atomic(_) => (What::Atomic, 0),
            Body::AtomicReply(_) => (What::AtomicReply, 0),
            _ => (What::Fin, 0),
        }
    }

    /// Hands the FIN of a put rendezvous part to a rail, behind its writes.
    pub(super) fn transmit_part_fin(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        op: u32,
        part: RailId,
        out: &mut Actions,
    ) {
        let slot = self.op(op);
        let (count, epoch) = (slot.fins_expected, slot.epoch);
        let want_placed = self.config.recovery;
        let fin = Fin { operation: slot.remote, count, refused: None, want_placed, epoch, placed_bytes: slot.granted };
        let next = self.channel(channel).sent[UNORDERED].next();
        self.transmit(now, channel, rail, op, &Body::Fin(fin), Span::EMPTY, false, out);
        let (slot, slots) = self.t.sent(channel, UNORDERED);
        if let Some(index) = slot.sent[UNORDERED].get(slots, next) {
            let packet = self.packet_mut(index);
            (packet.what, packet.offset) = (What::PartFin, PartFin { part, epoch }.pack());
        }
    }

    /// Whether a packet sent now requests an immediate acknowledgment, because the tables that only
    /// acknowledgments empty are short of room.
    fn is_short(&self, op: u32) -> bool {
        self.is_short_of_room(self.op(op).retained != NONE)
    }

    /// The same of a packet with a retained copy, or without.
    fn is_short_of_room(&self, retains: bool) -> bool {
        is_mark(self.t.packets.room(), self.t.packets.capacity())
            || self.open_requests() >= self.config.operations_max
            || retains && is_mark(self.t.retention.free_len(), self.config.retained_max)
    }

    /// Hands a remote write or read to a rail, with the following bytes of its part.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn transfer(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        op: u32,
        kind: PostKind,
        (payload, extent_bytes): (Span, u64),
        out: &mut Actions,
    ) {
        let what = if matches!(kind, PostKind::Read { .. }) { What::Read } else { What::Write };
        let moved = (what, payload.len() as u32, payload.offset);
        self.channel_mut(channel).express_budget.stop_sending();
        let Some(key) = self.keep_packet(now, channel, rail, op, moved, false) else { return };
        self.op_mut(op).posts += 1;
        self.paths.note_posted(now, channel, rail, payload.len());
        self.watch_rails(now, channel);
        self.push_post(channel, rail, PostId(key), kind, (payload, extent_bytes), out);
    }

    /// Keeps the record of a post. The caller has checked that there is room.
    #[inline]
    fn keep_packet(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        op: u32,
        (what, len, offset): (What, u32, u64),
        unacked: bool,
    ) -> Option<Key> {
        let (stamp, rail) = (Stamp::of(now), rail.0);
        let (posted, lost) = (true, false);
        let record = Packet { op, channel, stamp, rail, what, len, offset, posted, unacked, lost };
        let key = self.t.packets.insert(record);
        debug_assert!(key.is_some(), "the caller has checked for room");
        key
    }

    /// Adds a post without a header to the batch, and returns it where the batch keeps it.
    #[inline]
    fn push_post<'o>(
        &self,
        channel: u32,
        rail: RailId,
        id: PostId,
        kind: PostKind,
        (payload, extent_bytes): (Span, u64),
        out: &'o mut Actions,
    ) -> Option<&'o mut Post> {
        let peer = self.channel(channel).peer;
        let header = heapless::Vec::new();
        let post = Post { id, peer, rail, kind, header, payload, extent_bytes };
        let pushed = out.push(Action::Post(post));
        debug_assert!(pushed.is_ok(), "the batch has room");
        match out.last_mut() {
            Some(Action::Post(post)) if pushed.is_ok() => Some(post),
            _ => None,
        }
    }

    /// Hands an unsequenced frame to a rail; one at a time per subchannel (L-3). `false`: the rail has one
    /// already.
    pub(super) fn send_frame(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        body: Body,
        payload: Span,
        out: &mut Actions,
    ) -> bool {
        let index = self.t.sub_index(channel, rail);
        let sub = &mut self.t.subs[index];
        if sub.frame_posted || !sub.is_up() {
            return false;
        }
        sub.frame_posted = true;
        // Ids of frames lie behind those of packets.
        let key = Key { index: self.config.packets_max + index as u32, generation: sub.frame_generation };
        let common = match body {
            Body::Connect(_) => self.connect_common(channel),
            _ => self.common(channel, rail, 0, payload.len() as u32, false),
        };
        self.stats.packets_sent += 1;
        self.paths.figures[usize::from(rail.0)].packets += 1;
        self.watch_rails(now, channel);
        self.push_packet(channel, rail, PostId(key), &common, &body, payload, out);
        true
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn push_packet(
        &mut self,
        channel: u32,
        rail: RailId,
        id: PostId,
        common: &Common,
        body: &Body,
        payload: Span,
        out: &mut Actions,
    ) {
        // Write the header in place: it is longer than the rest of an action.
        if let Some(post) = self.push_post(channel, rail, id, PostKind::Send, (payload, payload.len()), out)
            && let Err(why) = emit_into(common, body, &mut post.header)
        {
            debug_assert!(false, "our own headers are well formed: {why:?}, {common:?} {body:?}");
            post.header.clear();
        }
    }

    /// A rail has completed a post. A late or repeated report is counted and dropped.
    pub fn handle_completion(&mut self, now: Time, id: PostId, status: PostStatus) {
        match record_of(id.0.index) {
            Some(index) => self.short_completed(now, index, id, status),
            None => self.post_completed(now, id, status),
        }
    }

    #[inline(never)]
    fn post_completed(&mut self, now: Time, id: PostId, status: PostStatus) {
        if id.0.index >= self.config.packets_max {
            let index = (id.0.index - self.config.packets_max) as usize;
            match self.t.subs.get_mut(index) {
                Some(sub) if sub.frame_generation == id.0.generation && sub.frame_posted => {
                    sub.frame_posted = false;
                    sub.frame_generation = sub.frame_generation.wrapping_add(1).max(1);
                    self.frame_is_over(index as u32 / u32::from(self.config.rails_max));
                }
                _ => self.stats.stale_dropped += 1,
            }
            return;
        }
        let Some(packet) = self.t.packets.get_mut(id.0).filter(|packet| packet.posted) else {
            self.stats.stale_dropped += 1;
            return;
        };
        packet.posted = false;
        // The bytes of the read are still needed; the rail is about to be reported down, or has no key for
        // them.
        let is_failed_read = packet.what == What::Read && status != PostStatus::Done;
        packet.lost |= is_failed_read;
        let packet = *packet;
        if !packet.unacked && !is_failed_read {
            self.t.packets.remove(id.0);
            self.wake(Shortage::Packets);
        }
        let Packet { channel, rail, stamp: posted, .. } = packet;
        let slot = self.t.ops.at_mut(packet.op);
        let completed = Completed { channel, rail: RailId(rail), len: packet.len.into(), posted, set: slot.stripes };
        self.paths.note_completed(now, &completed, status == PostStatus::Done);
        slot.posts -= 1;
        match packet.what {
            What::Read if status == PostStatus::Done => slot.moved += u64::from(packet.len),
            What::Fin => self.paths.note_received(now, channel, slot.granted, &mut slot.measured),
            _ => {}
        }
        let (others, is_carried) = (slot.next_in_packet, slot.stripes != NONE && slot.all_sent && slot.posts == 0);
        if self.t.channels.at(channel).wants_room() {
            self.activate(channel);
        }
        if is_failed_read && status == PostStatus::NoAccess {
            self.key_is_invalid(&packet);
        }
        if is_carried {
            self.finish_stripes(packet.op);
        }
        // The subchannel of a failed post is reported down; that report decides what follows.
        self.complete_if_done(packet.op);
        if others != NONE {
            self.each_other(others, |slot| slot.posts -= 1);
        }
    }

    /// A rail takes another unsequenced frame of a channel: activates it, if something may wait for that.
    fn frame_is_over(&mut self, channel: u32) {
        let slot = self.t.channels.at(channel);
        if slot.ack.is_due() || slot.has_slow_work() || !self.paths.is_sampled() {
            self.activate(channel);
        }
    }

    /// The peer has a packet. Returns how many messages it carried, if it was one of the ordered lane.
    pub(super) fn acknowledged(&mut self, handle: u32) -> u32 {
        if let Some(index) = record_of(handle) {
            self.acknowledge_short(index);
            return 1;
        }
        let index = handle;
        let packet = self.packet_mut(index);
        packet.unacked = false;
        let packet = *packet;
        self.confirm(&packet);
        if !packet.posted {
            self.t.packets.remove_at(index);
            self.wake(Shortage::Packets);
        }
        let slot = self.t.ops.at_mut(packet.op);
        slot.unacked -= 1;
        let others = slot.next_in_packet;
        self.complete_if_done(packet.op);
        if others == NONE { 1 } else { 1 + self.each_other(others, |slot| slot.unacked -= 1) }
    }

    /// A segment of an operation's payload has been handed to a rail.
    pub(super) fn note_moved(&mut self, now: Time, op: u32, rail: RailId) {
        let slot = self.op(op);
        self.paths.note_moved(now, slot.stripes, slot.cursor == 0, rail);
    }

    /// Starts the silence timer for a peer with a pending acknowledgment (G-9).
    #[inline(always)]
    pub(super) fn watch_silence(&mut self, now: Time, channel: u32) {
        let (probe, max) = (self.config.probe_after, self.config.silence_max);
        if !self.t.has_timer(channel, Timer::Silence) && probe.0 | max.0 != 0 {
            self.begin_silence(now, channel, probe, max);
        }
    }

    #[inline(never)]
    fn begin_silence(&mut self, now: Time, channel: u32, probe: Nanos, max: Nanos) {
        self.channel_mut(channel).silence.last_received = now;
        let first = if probe.0 == 0 { max } else { probe };
        self.t.set_timer(channel, Timer::Silence, now + first);
    }

    /// A rail has got a post: makes sure that a stall check is scheduled.
    #[inline(always)]
    pub(super) fn watch_rails(&mut self, now: Time, channel: u32) {
        if !self.t.has_timer(channel, Timer::Watch) {
            self.begin_watch(now, channel);
        }
    }

    #[inline(never)]
    fn begin_watch(&mut self, now: Time, channel: u32) {
        if self.config.stall_min.0 > 0 && !self.channel(channel).is_over() {
            self.t.set_timer(channel, Timer::Watch, now + self.config.stall_min);
        }
    }

    /// The memory that holds bytes `offset..offset + len` of an operation's payload.
    pub(super) fn payload(&self, op: u32, offset: u64, len: u64) -> Span {
        match self.op(op).retained {
            _ if len == 0 => Span::EMPTY,
            crate::store::NONE => self.t.op_span(op, offset, len),
            retained => Span { of: SpanOf::At(self.t.retention.at(retained)), offset, len },
        }
    }

    /// The last packet of a put with immediate data.
    pub(super) fn put_immediate_of(&self, op: u32) -> wire::PutImmediate {
        let put = self.op(op);
        wire::PutImmediate {
            window: put.remote,
            offset: put.remote_offset,
            operation: self.t.op_id(op).0.to_bits(),
            bytes: put.len,
            immediate: put.immediate.unwrap_or(0),
        }
    }

    /// The packet of an atomic.
    pub(super) fn atomic_of(&self, op: u32) -> wire::Atomic {
        let request = self.op(op);
        wire::Atomic {
            window: request.remote,
            offset: request.remote_offset,
            operation: self.t.op_id(op).0.to_bits(),
            operand: request.operand,
            compare: request.compare,
            kind: request.atomic_kind,
            data_type: request.atomic_type,
        }
    }

    /// A read has failed on an invalid key: the rail counts as a rail without a key for this message.
    fn key_is_invalid(&mut self, packet: &Packet) {
        let rail = self.t.sub(packet.channel, RailId(packet.rail)).peer_rail;
        let keys = self.t.ops.at(packet.op).keys;
        if keys != NONE {
            self.t.key_sets.at_mut(keys).forget(rail);
        }
        self.close_line(packet.channel);
        let slot = self.t.channels.at_mut(packet.channel);
        slot.replay.begin_reads();
        slot.express_budget.stop_sending();
        self.activate(packet.channel);
    }

    /// Claims a PSN; `false`: the packet is a duplicate and is dropped (S-4, S-5).
    pub(super) fn claim_psn(&mut self, now: Time, channel: u32, lane: usize, psn: Seq) -> Result<bool, ProtocolError> {
        let window = self.config.window;
        if lane == ORDERED {
            self.t.lines[channel as usize].close_receiving();
        }
        let (slot, bits) = self.t.received(channel, lane);
        slot.express_budget.stop_receiving();
        match slot.received[lane].claim(bits, window, psn) {
            Claim::New => {
                if lane == UNORDERED {
                    slot.requests.received(psn);
                }
                self.stats.sequenced_received += 1;
                Ok(true)
            }
            Claim::Duplicate => {
                self.stats.duplicates_dropped += 1;
                let policy = self.ack_policy;
                self.schedule_ack(now, channel, 0, true, &policy);
                Ok(false)
            }
            Claim::Beyond => Err(ProtocolError::Sequence { psn: psn.0 }), // S-6
        }
    }

    /// A sequenced packet has arrived completely: count it for acknowledgment (S-7, A-3).
    pub(super) fn received(&mut self, now: Time, channel: u32, lane: usize, psn: Seq, bytes: u32, ack_now: bool) {
        let window = self.config.window;
        let policy = self.ack_policy;
        let (slot, bits) = self.t.received(channel, lane);
        slot.received[lane].received(bits, window, psn);
        if slot.answers_are_acknowledged() && !slot.queues.requests.is_empty() {
            self.activate(channel);
        }
        self.schedule_ack(now, channel, bytes, ack_now, &policy);
    }

    #[inline(always)]
    pub(super) fn schedule_ack(
        &mut self,
        now: Time,
        channel: u32,
        bytes: u32,
        ack_now: bool,
        policy: &crate::rel::ack::AckPolicy,
    ) {
        let slot = self.channel_mut(channel);
        slot.express_budget.stop_receiving();
        match slot.ack.received(policy, now, bytes, ack_now) {
            AckVerdict::Now => self.activate(channel),
            // The first packet's delay counts; later ones don't postpone it.
            AckVerdict::By(at) if !self.t.has_timer(channel, Timer::Ack) => self.t.set_timer(channel, Timer::Ack, at),
            AckVerdict::By(_) => {}
        }
    }

    /// The payload that was being placed is not there: its number is open again. A message whose header
    /// already took effect (it has met its receive or has its blocks) waits for the copy (F-6).
    pub(super) fn abort_placement(&mut self, channel: u32, rail: RailId) {
        let Some(place) = self.sub_mut(channel, rail).place.take() else { return };
        let window = self.config.window;
        let (slot, bits) = self.t.received(channel, place.lane);
        slot.received[place.lane].unclaim(bits, window, place.psn);
        let is_aborted = place.lane == ORDERED;
        match place.to {
            PlaceTo::Op(op) => {
                let slot = self.op_mut(op);
                slot.places -= 1;
                slot.aborted = is_aborted.then_some(place.psn);
                if slot.kind() == OpKind::ServePut {
                    // The copy begins anew.
                    slot.completed = true;
                    self.unuse_window(op);
                    self.channel_mut(channel).requests.answer_acknowledged();
                    self.release(op);
                }
            }
            PlaceTo::Message(message) => self.message_mut(message).aborted = Some(place.psn),
            PlaceTo::Window { window, .. } => self.t.windows.at_mut(window).users -= 1,
        }
        self.channel_mut(channel).replay.aborted_placements += u16::from(is_aborted);
    }

    /// Returns what waits for the copy of ordered packet `psn`, if anything does, and its bytes.
    pub(super) fn take_aborted(&mut self, channel: u32, psn: Seq) -> Option<(PlaceTo, u64)> {
        if self.channel(channel).replay.aborted_placements == 0 {
            return None;
        }
        let waits = |at: u32, aborted: Option<Seq>| at == channel && aborted == Some(psn);
        let message = self.t.messages.indices().find(|&index| {
            let message = self.message(index);
            waits(message.channel, message.aborted)
        });
        let found = if let Some(message) = message {
            let slot = self.message_mut(message);
            slot.aborted = None;
            let bytes = (slot.state != MessageState::Sealed).then_some(slot.len);
            Some((PlaceTo::Message(message), bytes.unwrap_or(u64::from(slot.block_count))))
        } else {
            let op = self.t.ops.indices().find(|&op| {
                let slot = self.op(op);
                waits(slot.channel, slot.aborted)
            })?;
            let slot = self.op_mut(op);
            slot.aborted = None;
            slot.places += 1;
            Some((PlaceTo::Op(op), slot.granted))
        };
        self.channel_mut(channel).replay.aborted_placements -= 1;
        found
    }
}

/// Whether a table with this much room has just reached a mark at which the sender requests acknowledgments:
/// every eighth once half is in use, and full. So a table that fills up requests a few on the way, and
/// a full one with every packet that takes its last place.
pub(super) const fn is_mark(room: u32, capacity: u32) -> bool {
    room == 0 || room <= capacity / 2 && (capacity < 8 || room.is_multiple_of(capacity / 8))
}
