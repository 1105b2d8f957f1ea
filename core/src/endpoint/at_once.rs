//! Small messages over rails that can lose, as long as nothing unusual happens: sent at submission, received
//! in one call.
//!
//! Nothing is counted beside the tables here, unlike on a [line](crate::fast): packets, windows, credits and
//! acknowledgments are the same as for other messages. What is saved is the operation, the queue and the
//! batch. Each condition that fails sends the message the general way.

use super::arrive::has_message;
use super::express::sent_id;
use super::packets::is_mark;
use super::slots::direct_id;
use super::tables::Tables;
use super::timer::Timer;
use super::{Endpoint, Level, MessageClass, Notify, SendRequest, ShortArrival};
use crate::fast::ShortCompletion;
use crate::fast::express_budget::{By, TURN};
use crate::ids::{OpId, PeerId, PostId, RailId};
use crate::mem::MemRef;
use crate::op::{ShortRecord, record_of, short_handle};
use crate::paths::Choice;
use crate::peer::{Channel, ChannelState, ORDERED, UNORDERED};
use crate::rail::sched::{Aggregates, Candidates};
use crate::rel::link::State;
use crate::rel::retain::Retention;
use crate::seq::Seq;
use crate::tag::Match;
use crate::time::Time;
use crate::wire::{self, Common, EAGER_BYTES, PlainEager, Short};

/// A message that is complete for its sender; the caller copies its payload, posts it, and calls
/// [`Endpoint::posted_at_once`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtOnce {
    /// The request; its completion is reported already.
    pub operation: OpId,
    /// The post, to be completed as any other, unless it is over already.
    pub id: PostId,
    /// The rail.
    pub rail: RailId,
    /// Where the payload is to be copied before the post, and posted from; not used where it is empty.
    pub retained: MemRef,
    /// The packet's header.
    pub header: [u8; EAGER_BYTES],
    channel: u32,
}

impl Default for AtOnce {
    fn default() -> AtOnce {
        let (operation, id, rail, retained) = Default::default();
        AtOnce { operation, id, rail, retained, header: [0; EAGER_BYTES], channel: 0 }
    }
}

impl Endpoint<'_> {
    /// Sends a message of at most one piece, `len` bytes long, over a rail that can lose, if nothing is
    /// before it. Before its next call the caller copies the payload to [`AtOnce::retained`] and posts the
    /// packet from there. `false`: nothing has happened, use [`send`](Self::send).
    #[inline(never)]
    pub fn send_at_once(&mut self, now: Time, send: &SendRequest<'_>, len: u64, out: &mut AtOnce) -> bool {
        let is_reported = match send.notify {
            Notify::Silent => false,
            Notify::Event => true,
            Notify::Counter(_) | Notify::Both(_) => return false,
        };
        // P-16: what may be held waits in the queue.
        if send.more {
            return false;
        }
        let Some(channel) = self.t.channel_of(send.peer) else { return false };
        let budget = &self.channel(channel).express_budget;
        if budget.go == 0 || len > budget.go_bytes.into() || send.level != Level::Reusable || !self.is_roomy() {
            return self.send_checked(now, channel, send, (len, is_reported), out);
        }
        debug_assert!(self.is_budget_right(channel), "something else is to be sent, and the budget is open");
        let rail = match budget.by {
            By::Only(rail, _) => {
                return self.transmit_at_once::<true>(now, channel, rail, send, (len, is_reported), out);
            }
            // What is idle has room, and a rail that is not ready has not the lowest latency.
            By::Latency => match self.paths.lowest_latency_if_idle(now, channel, len) {
                None => self.choose_at_once(now, channel, len),
                idle => idle,
            },
            By::Choice => self.rail_at_once(now, channel, len),
        };
        let Some(rail) = rail else { return false };
        self.transmit_at_once::<true>(now, channel, rail, send, (len, is_reported), out)
    }

    /// The rail has the packet of [`send_at_once`](Self::send_at_once), `len` bytes of payload; `is_over`: it
    /// has copied it, and no completion follows. To be called before any other call.
    #[inline(always)]
    pub fn posted_at_once(&mut self, now: Time, sent: &AtOnce, len: u64, is_over: bool) {
        if is_over {
            return self.paths.note_short_taken(now, sent.channel, sent.rail, len as u32);
        }
        self.post_is_open(now, sent, len as u32);
    }

    #[inline(never)]
    fn post_is_open(&mut self, now: Time, sent: &AtOnce, len: u32) {
        let record = record_of(sent.id.0.index).and_then(|index| self.t.retention.get_mut(index));
        debug_assert!(record.is_some(), "a record was given to it");
        let Some(record) = record else { return };
        record.with_rail();
        self.paths.note_short_posted(now, sent.channel, sent.rail, len);
        let express_budget = &mut self.t.channels.at_mut(sent.channel).express_budget;
        express_budget.run.end();
        if let By::Only(rail, depth) = express_budget.by
            && !self.paths.has_fewer_posts(sent.channel, rail, depth)
        {
            express_budget.hold();
        }
    }

    /// As [`send_at_once`](Self::send_at_once), where the tables have to be looked at.
    #[inline(never)]
    fn send_checked(
        &mut self,
        now: Time,
        channel: u32,
        send: &SendRequest<'_>,
        (len, is_reported): (u64, bool),
        out: &mut AtOnce,
    ) -> bool {
        // S-12: once messages have taken the ring, the ordered lane stays there.
        if send.level != Level::Reusable
            || len > self.config.eager_bytes_max.into()
            || self.channel(channel).ring.is_some()
            || !self.has_slots()
        {
            return false;
        }
        if self.blocks_at_once(channel, len).is_none() {
            return false;
        }
        let Some(rail) = self.rail_at_once(now, channel, len) else { return false };
        let sent = self.transmit_at_once::<false>(now, channel, rail, send, (len, is_reported), out);
        self.watch_silence(now, channel);
        self.watch_rails(now, channel);
        self.open_express_budget(channel);
        sent
    }

    /// Whether the tables that all channels share have room for one more message.
    #[inline(always)]
    fn has_slots(&self) -> bool {
        self.open_requests() < self.hot.operations_max && self.t.retention.free_len() > 0
    }

    /// Whether one more message uses no shared table so far that acknowledgments are requested.
    #[inline(always)]
    fn is_roomy(&self) -> bool {
        self.t.retention.free_len() > self.hot.retained_roomy && self.open_requests() < self.hot.operations_roomy
    }

    /// Whether the message that goes next requests an acknowledgment.
    #[inline(never)]
    fn is_last_of_records(&self) -> bool {
        is_mark(self.t.retention.free_len() - 1, self.config.retained_max)
            || self.open_requests() + 1 >= self.hot.operations_max
    }

    /// Messages of one block that may go before anything has to be checked.
    fn open_express_budget(&mut self, channel: u32) {
        let runs = |timer, wanted: bool| !wanted || self.t.has_timer(channel, timer);
        let is_watched = runs(Timer::Silence, self.config.probe_after.0 | self.config.silence_max.0 != 0)
            && runs(Timer::Watch, self.config.stall_min.0 > 0);
        let slot = self.channel(channel);
        let Some(peer_parameters) =
            slot.peer_parameters.filter(|_| is_watched && self.blocks_at_once(channel, 0).is_some())
        else {
            return;
        };
        let window = peer_parameters.window.min(self.config.window) - slot.sent[ORDERED].len();
        let granted = slot.allowance.messages_left().min(slot.allowance.blocks_left());
        let go = window.min(granted).min(TURN.into()) as u16;
        let eager = self.config.eager_bytes_max.min(slot.limits.eager_bytes_max).min(peer_parameters.eager_bytes_max);
        let by = self.budget_rail(channel);
        if !slot.requests.is_refusing() {
            let go_bytes = eager.min(peer_parameters.block_bytes);
            self.channel_mut(channel).express_budget.open_sending(go, go_bytes, by);
        }
    }

    /// How rails are found for the messages of an open budget.
    fn budget_rail(&self, channel: u32) -> By {
        let Candidates { up, .. } = self.paths.candidates(channel);
        let class = self.paths.policies.class(MessageClass::Small);
        if up & !self.paths.lossy != 0 || !class.choice.estimates {
            return By::Choice;
        }
        let rail = RailId(up.trailing_zeros() as u8);
        match self.paths.alone_below(rail) {
            // One of several has to be idle.
            Some(depth) if up.is_power_of_two() => By::Only(rail, depth),
            Some(_) if class.is_open_to_all(up) => By::Latency,
            _ => By::Choice,
        }
    }

    /// Whether an open budget agrees with the tables; checks everything again.
    fn is_budget_right(&self, channel: u32) -> bool {
        let slot = self.channel(channel);
        let express_budget = &slot.express_budget;
        let Some(peer_parameters) = slot.peer_parameters else { return false };
        let window = peer_parameters.window.min(self.config.window);
        slot.ring.is_none()
            && self.blocks_at_once(channel, express_budget.go_bytes.into()).is_some_and(|blocks| blocks <= 1)
            && u32::from(express_budget.go) <= window - slot.sent[ORDERED].len()
            && u32::from(express_budget.go) <= slot.allowance.messages_left().min(slot.allowance.blocks_left())
            && (self.config.probe_after.0 | self.config.silence_max.0 == 0 || self.t.has_timer(channel, Timer::Silence))
            && (self.config.stall_min.0 == 0 || self.t.has_timer(channel, Timer::Watch))
            && express_budget.by == self.budget_rail(channel)
            && match express_budget.by {
                By::Only(rail, depth) => self.paths.has_fewer_posts(channel, rail, depth),
                By::Latency | By::Choice => true,
            }
            && !slot.requests.is_refusing()
            && self.paths.candidates(channel).up >> self.paths.peer(channel).lowest_latency & 1 == 1
    }

    /// Whether a message may be numbered now: returns the blocks that it needs at the peer.
    fn blocks_at_once(&self, channel: u32, len: u64) -> Option<u32> {
        let slot = self.channel(channel);
        let peer_parameters = slot.peer_parameters.as_ref()?;
        let blocks = match peer_parameters.block_bytes.into() {
            block_bytes if len <= block_bytes => u32::from(len > 0),
            block_bytes => len.div_ceil(block_bytes) as u32,
        };
        // Nothing is before it.
        let has_turn = slot.queues.ordered.is_empty() & slot.queues.control.is_empty() & !slot.replay.is_pending();
        let window = peer_parameters.window.min(self.config.window);
        let is_short = len <= slot.limits.eager_bytes_max.min(peer_parameters.eager_bytes_max).into(); // F-5
        let is_open = slot.state() == ChannelState::Open && self.config.express;
        let is_granted = slot.allowance.message_allowed() && slot.allowance.blocks_allowed(blocks);
        let may_go = is_open && has_turn && is_short && is_granted && slot.sent[ORDERED].has_room(window);
        may_go.then_some(blocks)
    }

    /// The rail on which a message goes at once. `None`: it waits, or it goes with others.
    #[inline(never)]
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
            return (up & room != 0 && !self.paths.aggregates(channel, rail, false)).then_some(rail);
        }
        let rails = Candidates { up, room };
        if self.paths.policies.of_small().aggregates != Aggregates::Always
            && let Some(idle) = self.paths.lowest_latency_idle(channel, MessageClass::Small, len, rails)
        {
            return Some(idle);
        }
        self.choose_at_once(now, channel, len)
    }

    #[inline(never)]
    fn choose_at_once(&mut self, now: Time, channel: u32, len: u64) -> Option<RailId> {
        let turns = self.paths.peer(channel).turns;
        let rails = self.paths.candidates(channel);
        let rail = self.paths.multiplex(Choice { now, channel, class: MessageClass::Small, bytes: len, rails })?;
        if self.paths.aggregates(channel, rail, false) {
            // The turn goes to the same message in its queue.
            self.paths.peer_mut(channel).turns = turns;
            return None;
        }
        Some(rail)
    }

    /// Numbers the message and keeps what recovery needs. The caller has checked that there is room for it.
    /// `BUDGET`: an open budget counts it.
    #[inline(always)]
    fn transmit_at_once<const BUDGET: bool>(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        send: &SendRequest<'_>,
        (len, is_reported): (u64, bool),
        out: &mut AtOnce,
    ) -> bool {
        debug_assert!(len <= self.eager_bytes_max(channel, rail).into(), "a rail that can lose takes what all take");
        let ack_now = !BUDGET && !self.is_roomy() && self.is_last_of_records();
        let Tables { channels, retention, sent_slots, short_done, .. } = &mut self.t;
        let (tag, tagged) = send.tag.map_or((0, 0), |tag| (tag, Short::TAGGED));
        let (immediate, has_immediate) = send.immediate.map_or((0, 0), |immediate| (immediate, Short::IMMEDIATE));
        let (flags, bytes) = (tagged | has_immediate, len as u32);
        out.operation = sent_id(0);
        if is_reported {
            let Some(done) = short_done.next() else {
                // The next one finds room, if some are taken.
                short_done.has_room();
                return false;
            };
            self.sent = self.sent.wrapping_add(2);
            out.operation = sent_id(self.sent);
            let (operation, &SendRequest { peer, cookie, .. }) = (out.operation, send);
            *done = ShortCompletion { cookie, operation, tag, immediate, peer, bytes, flags };
            short_done.commit();
        }
        let slot = channels.at_mut(channel);
        debug_assert!(slot.sent[ORDERED].has_room(self.config.window), "the window has room");
        debug_assert!(slot.ring.is_none(), "the ordered lane keeps to the ring (S-12)");
        if slot.express_budget.run.follower != retention.next() {
            join_run(slot, retention, sent_slots, self.config.window);
        }
        let psn = slot.sent[ORDERED].next();
        let at = (slot.express_budget.sent_from + (psn.0 & (self.config.window - 1))) as usize;
        let (Some((index, next, record)), Some(place)) = (retention.take_with_record(), sent_slots.get_mut(at)) else {
            debug_assert!(false, "there is room");
            return false;
        };
        slot.express_budget.run.follower = next;
        out.id = record.number(index, rail.0, now);
        (record.tag, record.immediate, record.flags) = (tag, immediate, flags);
        (record.channel, record.len) = (channel, bytes);
        *place = short_handle(index);
        (out.channel, out.rail, out.retained) = (channel, rail, retention.at(index));
        let blocks = match (BUDGET, slot.peer_parameters) {
            (false, Some(peer_parameters)) => bytes.div_ceil(peer_parameters.block_bytes),
            _ => u32::from(len > 0),
        };
        slot.sent[ORDERED].number();
        slot.express_budget.passes::<BUDGET>();
        slot.allowance.use_messages(1); // C-1
        slot.allowance.use_blocks(blocks); // C-2
        slot.shorts += 1;
        slot.grants.announced();
        let (message_limit, block_limit) = slot.grants.limits();
        let common = Common {
            source: self.source,
            psn: psn.0,
            ack_ordered: slot.received[ORDERED].expected().0,
            ack_unordered: slot.received[UNORDERED].expected().0,
            message_limit,
            block_limit,
            payload_bytes: bytes,
            ack_now,
            refusing: !BUDGET && slot.requests.is_refusing(),
        };
        out.header = wire::short_header(&common, tag, immediate, flags);
        self.hot.caller_ops += 1;
        self.stats.short_sent += 1;
        self.stats.bytes_copied += len;
        if !slot.ack.is_clear() {
            self.ack_goes(now, channel);
        }
        true
    }

    /// Returns the destination of an eager message whose payload the rail has here, all of it, if it is the
    /// next one of its peer and its receive is plain. It is completed at once, so the caller copies before
    /// any other call. [`ShortArrival::Slow`]: nothing has happened but that acknowledgments were taken; use
    /// [`handle_arrival`](Self::handle_arrival).
    #[inline(never)]
    pub fn arrive_at_once(&mut self, now: Time, peer: PeerId, rail: RailId, header: &[u8]) -> ShortArrival {
        match self.arrive_quietly(now, peer, rail, header) {
            Some(arrival) => arrival,
            None => self.arrive_checked(now, peer, rail, header).unwrap_or(ShortArrival::Slow),
        }
    }

    /// The way of nearly all in a stream of one pattern: nothing is due and nothing is acknowledged. `None`:
    /// nothing has happened.
    #[inline(always)]
    fn arrive_quietly(&mut self, now: Time, peer: PeerId, rail: RailId, header: &[u8]) -> Option<ShortArrival> {
        let eager = PlainEager::of(header)?;
        let channel = self.t.channel_index_of(peer);
        let sub = self.t.sub_index(channel, rail);
        let Tables { channels, subs, short_done, matcher, .. } = &mut self.t;
        let slot = channels.slot_mut(channel)?;
        let len = eager.payload_bytes();
        if !eager.is_numbered(slot.source, slot.received[ORDERED].expected().0)
            || !slot.express_budget.passes_quietly(rail, eager.news())
            || len > self.config.block_bytes
        {
            return None;
        }
        // A sign of life, whatever becomes of it.
        slot.silence.last_received = now;
        if let Some(sub) = subs.get_mut(sub) {
            debug_assert!(sub.is_ready() && sub.place.is_none(), "a rail was added that is not ready");
            sub.last_received = now;
        }
        let (tag, immediate, flags) = eager.head();
        // It is invisible until it is committed.
        let done = short_done.next()?;
        (done.tag, done.immediate, done.peer, done.bytes, done.flags) = (tag, immediate, peer, len, flags);
        let taken = matcher.posted.take_alone(peer, tag, flags & Short::TAGGED != 0, len)?;
        let to = taken.at();
        (done.cookie, done.operation) = (taken.cookie(), direct_id(taken.key()));
        short_done.commit();
        slot.received[ORDERED].skip(1);
        slot.reorder.skip(1);
        slot.express_budget.quiet -= 1;
        slot.grants.passed(1, u32::from(len > 0));
        slot.ack.count(len);
        let is_last = slot.express_budget.quiet == 0;
        self.stats.short_received += 1;
        // Where this side sends on a ring, that announces the room (C-4).
        if self.has_short_rail {
            self.t.lines[channel as usize].grant(1, u16::from(len > 0));
        }
        if is_last {
            self.last_of_quiet(channel);
        }
        debug_assert!(is_last || self.is_budget_quiet(channel), "something is due that was not looked at");
        Some(if len == 0 { ShortArrival::Done } else { ShortArrival::At(to) })
    }

    #[inline(never)]
    fn arrive_checked(&mut self, now: Time, peer: PeerId, rail: RailId, header: &[u8]) -> Option<ShortArrival> {
        let (common, tag, immediate, flags) = wire::eager(header)?;
        let channel = self.t.channel_of(peer)?;
        let is_lossy = self.paths.lossy.checked_shr(rail.0.into()).is_some_and(|lossy| lossy & 1 == 1);
        let may_be_counted = self.has_short_rail
            && (!is_lossy || self.t.lines.get(channel as usize).is_none_or(|line| line.receives_on().is_some()));
        if may_be_counted || !is_lossy && usize::from(rail.0) >= self.paths.rails.len() {
            // No such rail, or a line may count messages.
            return None;
        }
        let len = common.payload_bytes;
        let is_tagged = flags & Short::TAGGED != 0;
        let at = self.t.sub_index(channel, rail);
        let Tables { channels, subs, short_done, .. } = &mut self.t;
        let (slot, sub) = (channels.at(channel), subs.get(at)?);
        // A late connect of a channel that is over is ready as well, and its numbers are those of the past
        // (G-10).
        let is_there = sub.link.state() == State::Ready
            && !slot.is_over()
            && sub.place.is_none()
            && common.source == slot.source
            && Seq(common.psn) == slot.received[ORDERED].expected();
        let may_be_added = is_lossy && sub.is_ready();
        if !is_there || self.parts_waiting || !short_done.has_room() {
            return None;
        }
        if has_message(slot, &common) {
            self.arrive_acks_and_limits(channel, at, &common).ok()?;
        }
        let slot = self.t.channels.at(channel);
        let is_plain = slot.express_budget.quiet > 0 && len <= self.config.block_bytes && !common.ack_now;
        if !is_plain && !self.may_arrive(channel, len) {
            return None;
        }
        debug_assert!(self.may_arrive(channel, len), "a message may not come, and the budget is open");
        let (key, to, cookie) = match self.t.matcher.posted.take_direct(peer, tag, is_tagged, len) {
            Match::Direct(taken) => (taken.key(), taken.at(), taken.cookie()),
            Match::Other | Match::NoReceive => return None,
        };
        let operation = direct_id(key);
        let Tables { channels, subs, short_done, .. } = &mut self.t;
        short_done.push(ShortCompletion { cookie, operation, tag, immediate, peer, bytes: len, flags });
        let slot = channels.at_mut(channel);
        slot.silence.last_received = now;
        slot.received[ORDERED].skip(1);
        slot.reorder.skip(1);
        if let Some(sub) = subs.get_mut(at) {
            sub.last_received = now;
        }
        self.stats.short_received += 1;
        if is_plain {
            slot.express_budget.quiet -= 1;
            slot.grants.passed(1, u32::from(len > 0));
            slot.ack.count(len);
            let is_last = slot.express_budget.quiet == 0;
            // Where this side sends on a ring, that announces the room (C-4).
            if self.has_short_rail {
                self.t.lines[channel as usize].grant(1, u16::from(len > 0));
            }
            if is_last {
                self.last_of_quiet(channel);
            }
            debug_assert!(is_last || self.is_budget_quiet(channel), "something is due that was not looked at");
        } else {
            self.message_passed(now, channel, len, common.ack_now);
        }
        let slot = self.t.channels.at_mut(channel);
        // A late confirmation is no news by its numbers.
        if may_be_added && !slot.requests.is_unconfirmed {
            slot.express_budget.add_rail(rail, wire::news(header));
        }
        Some(if len == 0 { ShortArrival::Done } else { ShortArrival::At(to) })
    }

    /// Whether the next message of a peer, `len` bytes long, may be received without a header of an older or
    /// a newer one being here, and within what was granted.
    fn may_arrive(&self, channel: u32, len: u32) -> bool {
        let slot = self.channel(channel);
        matches!(slot.state(), ChannelState::Open | ChannelState::Closing)
            && slot.received[ORDERED].expected() == slot.reorder.esn()
            && slot.reorder.is_empty()
            && slot.replay.aborted_placements == 0
            && len <= self.config.eager_bytes_max
            && slot.grants.has_room(1, len.div_ceil(self.config.block_bytes))
    }

    /// A message has met its receive: what is due now, and how many may follow until anything is.
    #[inline(never)]
    fn message_passed(&mut self, now: Time, channel: u32, len: u32, ack_now: bool) {
        let blocks = len.div_ceil(self.config.block_bytes);
        self.t.channels.at_mut(channel).grants.passed(1, blocks);
        self.grant_on_line(channel, 1, blocks);
        self.announce_room(channel);
        let slot = self.channel(channel);
        if slot.answers_are_acknowledged() && !slot.queues.requests.is_empty() {
            self.activate(channel);
        }
        let policy = self.ack_policy;
        self.schedule_ack(now, channel, len, ack_now, &policy);
        if self.may_arrive(channel, 1) {
            self.t.channels.at_mut(channel).express_budget.open_receiving();
            self.count_anew(channel);
        }
    }

    /// The last message of an open budget has come: an acknowledgment is due, or our limits are, or more may
    /// come.
    #[inline(never)]
    fn last_of_quiet(&mut self, channel: u32) {
        self.announce_room(channel);
        let policy = self.ack_policy;
        let slot = self.t.channels.at_mut(channel);
        let is_due = slot.ack.is_due_by(&policy);
        if is_due || slot.answers_are_acknowledged() && !slot.queues.requests.is_empty() {
            self.activate(channel);
        }
        if !is_due {
            self.count_anew(channel);
        }
    }

    /// Whether nothing is due to the peer but an acknowledgment, when its timer expires.
    fn is_budget_quiet(&self, channel: u32) -> bool {
        let slot = self.channel(channel);
        !slot.ack.is_due() && !slot.grants.worth_announcing() && self.t.has_timer(channel, Timer::Ack)
    }
}

/// The place of a channel's next message is not the one that follows its last one by itself: it is made to,
/// or a run begins with this message.
#[inline(never)]
fn join_run(slot: &mut Channel, retention: &mut Retention<'_, ShortRecord>, sent_slots: &[u32], window: u32) {
    let (run, sent) = (&mut slot.express_budget.run, &slot.sent[ORDERED]);
    let last = sent.next().0.wrapping_sub(1) & (window - 1);
    let last = sent_slots.get((slot.express_budget.sent_from + last) as usize).and_then(|&handle| record_of(handle));
    match (run.begin(), last) {
        (Some(_), Some(last)) if !sent.is_empty() => retention.follow(last, retention.next()),
        _ => run.from = sent.next().0,
    }
}
