//! Builds actions for the shim, in bounded batches. Each channel with pending work is visited in turn;
//! packets are built only when a rail has room, so that requests accumulate while rails are busy and the
//! scheduler sees them together (newmadeleine-2007, 2).

use super::packets::{Actions, STEP, Step};
use super::tables::{channel_active, op_queue};
use super::{Endpoint, Level, MessageClass, Registration};
use crate::api::action::{Action, AtomicAction, Span, SpanOf};
use crate::ids::RailId;
use crate::op::{Control, Message, OpKind, Phase, Queue};
use crate::paths::Choice;
use crate::peer::{ChannelState, Shortage};
use crate::rail::rails_of;
use crate::rail::sched::Candidates;
use crate::store::NONE;
use crate::store::list::By;
use crate::time::Time;
use crate::wire::{self, Body, Cts, Fin, Lane, MessageHead, Rts};

impl Endpoint<'_> {
    /// Fills `actions` (cleared first) and returns their number; 0: nothing to do. Carry the batch out, in
    /// order, before the next call that changes the endpoint.
    // Not inlined: callers that poll in each round ask `may_have_work` first.
    #[inline(never)]
    pub fn poll_actions(&mut self, now: Time, actions: &mut Actions) -> usize {
        actions.clear();
        self.latest = now;
        // The last batch has been carried out: its slots may be reused.
        self.feed_waiting(now);
        if core::mem::take(&mut self.lacks_channel) {
            self.make_room(now);
            // And again, where nothing else happens.
            self.expect_signs(now);
        }
        if !self.has_actions() {
            self.hot.may_have_work = self.finds_work();
            return 0;
        }
        self.next_actions(now, actions);
        actions.len()
    }

    /// Whether a channel has something to send.
    #[inline(always)]
    pub const fn is_active(&self) -> bool {
        !self.hot.active.is_empty()
    }

    /// Whether [`poll_actions`](Self::poll_actions) has something.
    #[inline]
    pub fn has_actions(&self) -> bool {
        self.is_active() || self.has_other_actions()
    }

    /// `false`: [`poll_actions`](Self::poll_actions) has nothing to do, nor has
    /// [`poll_event`](Self::poll_event) beside [completions of short messages](Self::poll_shorts). One
    /// comparison, for callers that ask in each round; poll both where it is `true`.
    #[inline(always)]
    pub fn may_have_work(&mut self, now: Time) -> bool {
        debug_assert!(self.hot.may_have_work || !self.finds_work(), "something was added to a list unnoticed");
        self.latest = now;
        self.hot.may_have_work
    }

    fn finds_work(&self) -> bool {
        self.has_actions() || self.parts_waiting || !self.op_events.is_empty() || !self.channel_events.is_empty()
    }

    /// Whether there are actions that belong to no channel's order.
    #[inline]
    fn has_other_actions(&self) -> bool {
        // Checked in each round: one comparison.
        let lists = self.copies.len() | self.atomics.len() | self.released_keys.len();
        lists != 0 || self.has_rare_actions
    }

    #[inline(never)]
    fn next_actions(&mut self, now: Time, actions: &mut Actions) {
        if self.has_other_actions() {
            while let Some(action) = self.next_other_action() {
                let _ = actions.push(action);
                if actions.len() + STEP > actions.capacity() {
                    return;
                }
            }
        }
        loop {
            let channel = self.hot.active.head();
            if channel == NONE || actions.len() + STEP > actions.capacity() {
                return;
            }
            // Off the list first: its work may put it back.
            self.hot.active.unlink(&mut By(&mut self.t.channels, channel_active), channel);
            self.pump(now, channel, actions);
        }
    }

    /// Actions that belong to no channel's order: copies out of blocks, peers' atomics, deregistrations.
    fn next_other_action(&mut self) -> Option<Action> {
        while let Some(op) = self.copies.pop_front(&mut By(&mut self.t.ops, op_queue)) {
            let slot = self.op(op);
            let &Message { blocks, offset, .. } = self.t.messages.at(slot.message);
            let len = slot.granted;
            let from = Span { of: SpanOf::Blocks(blocks), offset: offset.into(), len };
            let to = self.t.op_span(op, 0, len);
            // The receive is complete and its segments stay in the slot until after the batch: events come
            // later.
            self.copied(op);
            if len > 0 {
                return Some(Action::Copy { from, to });
            }
        }
        if let Some(op) = self.atomics.pop_front(&mut By(&mut self.t.ops, op_queue)) {
            let at = self.t.op_segments(op).first().copied().unwrap_or_default().at;
            let operation = self.t.op_id(op);
            let slot = self.op_mut(op);
            slot.queued = Queue::None;
            slot.enter(Phase::Waiting);
            return Some(Action::Atomic(AtomicAction {
                operation,
                at,
                kind: slot.atomic_kind,
                data_type: slot.atomic_type,
                operand: slot.operand,
                compare: slot.compare,
            }));
        }
        if let Some((rail, key)) = self.pop_registration() {
            return Some(Action::Deregister { rail, key });
        }
        // No late registration is left.
        let refused = self.refused.pop_front();
        self.has_rare_actions = !self.refused.is_empty();
        refused.map(|(peer, rail)| Action::Disconnect { peer, rail })
    }

    /// A peer's atomic has been performed: `old` is the value before. Late or repeated answers are dropped.
    pub fn handle_atomic(&mut self, operation: crate::ids::OpId, old: u64) {
        let waiting = self.t.ops.get_mut(operation.0).filter(|op| {
            op.kind() == OpKind::ServeAtomic
                && op.phase() == Phase::Waiting
                && op.control == Control::None
                && !op.all_sent
        });
        let Some(slot) = waiting else {
            self.stats.stale_dropped += 1;
            return;
        };
        slot.old = old;
        self.send_control(operation.0.index, Control::AtomicReply);
    }

    #[inline(always)]
    fn pump(&mut self, now: Time, channel: u32, out: &mut Actions) {
        debug_assert!(
            self.paths.rooms_are_right(channel, self.ready_subs(channel)),
            "a subchannel changed, and its room was not updated"
        );
        self.fold_line(channel);
        let mut has_slow_work = self.channel(channel).has_slow_work();
        if has_slow_work && !self.pump_connected(now, channel, out) {
            return;
        }
        // Nothing sequenced follows BYE (G-7) or PARK (K-2).
        let leaves =
            has_slow_work && matches!(self.channel(channel).state(), ChannelState::Leaving | ChannelState::Parking);
        let mut is_only_messages = true;
        if !leaves {
            let Some(only) = self.pump_packets(now, channel, out) else {
                self.activate(channel);
                return;
            };
            is_only_messages = only;
        }
        let slot = self.channel(channel);
        let is_ack_due = slot.ack.is_due();
        // Messages alone bring no slow-path work.
        has_slow_work |= !is_only_messages && slot.has_slow_work();
        if has_slow_work {
            self.pump_parking(now, channel, out);
            if self.channel(channel).state() != ChannelState::Leaving {
                self.pump_fences(now, channel, out);
                self.pump_stall_probes(now, channel, out);
            }
            self.pump_addresses(now, channel, out);
        }
        if !leaves {
            self.pump_samples(now, channel, out);
        }
        if has_slow_work || is_ack_due {
            self.pump_frames(now, channel, out);
        }
        // The next waiting channel may use the entries that this one leaves.
        self.wake(Shortage::Packets);
        self.wake(Shortage::Stripes);
        if has_slow_work {
            self.pump_bye(now, channel, out);
        } else {
            debug_assert!(!self.channel(channel).has_slow_work(), "messages alone have brought something else to do");
        }
    }

    /// Sends sequenced packets while there are some and room for them. Returns whether only messages were
    /// pending. `None`: the batch is full.
    #[inline(always)]
    fn pump_packets(&mut self, now: Time, channel: u32, out: &mut Actions) -> Option<bool> {
        let mut is_only_messages = true;
        loop {
            if out.len() + STEP > out.capacity() {
                return None;
            }
            let slot = self.channel(channel);
            let (has_lost, has_control, has_bulk) =
                (slot.replay.is_pending(), !slot.queues.control.is_empty(), !slot.queues.bulk.is_empty());
            let (has_message, has_request) =
                (!slot.queues.ordered.is_empty(), !slot.queues.requests.is_empty() || slot.requests.has_answers());
            is_only_messages &= !(has_lost || has_control || has_request || has_bulk);
            let sent = has_lost && self.pump_replay(now, channel, out) == Step::Sent
                || has_control && self.pump_control(now, channel, out) == Step::Sent
                || has_message && self.pump_message(now, channel, out) == Step::Sent
                || has_request && self.pump_request(now, channel, out) == Step::Sent
                || has_bulk && self.pump_bulk(now, channel, out) == Step::Sent;
            if !sent {
                return Some(is_only_messages);
            }
        }
    }

    /// Work that precedes everything else: connections; a closed channel has no other work. `false`: no
    /// packet can be sent.
    #[cold]
    fn pump_connected(&mut self, now: Time, channel: u32, out: &mut Actions) -> bool {
        if self.pump_connections(now, channel, out) == Step::Sent {
            self.activate(channel);
            return false;
        }
        let slot = self.channel(channel);
        if slot.is_over() {
            self.pump_late_connects(now, channel, out);
            self.free_channel_if_idle(channel);
            return false;
        }
        if slot.peer_parameters.is_none() {
            self.pump_bye(now, channel, out);
            return false;
        }
        if slot.state() == ChannelState::Parked {
            self.finish_parking(now, channel);
            return false;
        }
        true
    }

    #[inline(always)]
    pub(super) fn choose(&mut self, now: Time, channel: u32, class: MessageClass, bytes: u64) -> Option<RailId> {
        let rails = self.paths.candidates(channel);
        if self.paths.policies.class(class).choice.estimates {
            if rails.up.is_power_of_two() {
                // Another rail is better than none (P-6).
                return (rails.up & rails.room != 0).then(|| RailId(rails.up.trailing_zeros() as u8));
            }
            if let Some(rail) = self.paths.lowest_latency_idle(channel, class, bytes, rails) {
                return Some(rail);
            }
        }
        self.paths.multiplex(Choice { now, channel, class, bytes, rails })
    }

    /// The rail for a control packet (P-5). With `balanced`: the one that delivers it earliest. The sender of
    /// a message has better estimates than its receiver, which answers on the rail of the announcement.
    /// Otherwise the first rail with room.
    fn for_control(&self, now: Time, channel: u32, via: Option<RailId>) -> Option<RailId> {
        let room = self.paths.peer(channel).rooms.room;
        let announced = via.filter(|rail| room >> rail.0 & 1 == 1);
        if !self.paths.policies.of_small().estimates || announced.is_none() && room.is_power_of_two() {
            return rails_of(room).next();
        }
        announced.or_else(|| {
            let rails = Candidates { up: room, room };
            self.paths.earliest(&Choice { now, channel, class: MessageClass::Small, bytes: 0, rails })
        })
    }

    fn pump_control(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let op = self.channel(channel).queues.control.head();
        if op == NONE {
            return Step::Idle;
        }
        if self.op(op).control == Control::Register {
            self.register(op, out);
            if self.op(op).to_register == 0 {
                self.t.dequeue(op);
            }
            return Step::Sent;
        }
        if !self.may_send(channel, Lane::Unordered) || self.must_wait_to_serve(channel, self.op(op)) {
            return Step::Idle;
        }
        let slot = self.op(op);
        let Some(rail) = self.for_control(now, channel, slot.via) else { return Step::Idle };
        let body = match slot.control {
            Control::Cts => {
                let keys = self.keys_to_send(channel, slot.keys);
                let target = self.t.op_id(op).0.to_bits();
                Body::Cts(Cts { operation: slot.remote, target, granted_bytes: slot.granted, epoch: slot.epoch, keys })
            }
            Control::Resume => Body::Resume(wire::Resume { target: slot.remote, epoch: slot.epoch.wrapping_add(1) }), // F-7
            //
            Control::AtomicReply => Body::AtomicReply(wire::AtomicReply { operation: slot.remote, old: slot.old }),
            Control::Fin | Control::None | Control::Register => Body::Fin(Fin {
                operation: slot.remote,
                count: 1,
                refused: slot.refusal,
                want_placed: false,
                epoch: 0,
                placed_bytes: slot.granted,
            }),
        };
        self.t.dequeue(op);
        let slot = self.op_mut(op);
        slot.control = Control::None;
        slot.all_sent |= slot.serves();
        self.begin_serving(channel, op);
        let ack_now = self.op(op).serves();
        self.transmit(now, channel, rail, op, &body, Span::EMPTY, ack_now, out);
        Step::Sent
    }

    /// Requests the registrations of an operation, as far as the batch has room.
    fn register(&mut self, op: u32, out: &mut Actions) {
        let operation = self.t.op_id(op);
        let write = self.op(op).kind() != OpKind::Send;
        let memory = self.payload(op, 0, self.op(op).granted);
        let what = if write { Registration::Writable } else { Registration::Readable };
        while out.len() + STEP <= out.capacity() {
            let slot = self.op_mut(op);
            if slot.to_register == 0 {
                return;
            }
            let rail = RailId(slot.to_register.trailing_zeros() as u8);
            slot.to_register &= slot.to_register - 1;
            slot.registering |= 1 << rail.0;
            self.paths.note_registering(what, memory.len());
            let _ = out.push(Action::Register { operation, rail, memory, write });
        }
    }

    /// The next message in PSN order: eager where size, rail and credits allow, else RTS (X-2, C-7).
    fn pump_message(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let slot = self.channel(channel);
        let op = slot.queues.ordered.head();
        let Some(peer_parameters) = slot.peer_parameters.filter(|_| op != NONE) else { return Step::Idle };
        if !slot.allowance.message_allowed() || !self.may_send(channel, Lane::Ordered) {
            return Step::Idle; // C-1
        }
        let send = self.op(op);
        let len = send.len;
        if send.registering != 0 && send.to_register == 0 {
            return Step::Idle;
        }
        let turns = self.paths.peer(channel).turns;
        // A message too large for eager is only announced.
        let bytes = if len <= self.config.eager_bytes_max.into() { len } else { 0 };
        let chosen = match self.t.channels.at(channel).ring {
            Some(ring) => (self.paths.peer(channel).rooms.room >> ring.0 & 1 == 1).then_some(ring), // S-12
            None => self.choose(now, channel, MessageClass::Small, bytes),
        };
        let Some(rail) = chosen else { return Step::Idle };
        let more = self.t.ops.at(op).more;
        if self.paths.aggregates(channel, rail, more) && self.aggregate_next(now, channel, rail, out) == Step::Sent {
            return Step::Sent;
        }
        let eager_max = self.eager_bytes_max(channel, rail).min(peer_parameters.eager_bytes_max);
        let blocks = len.div_ceil(peer_parameters.block_bytes.into());
        let operation = self.t.op_id(op).0.to_bits();
        let send = self.op(op);
        let want_placed = send.level == Level::Placed;
        // Otherwise the batch filled up between its registrations: wait for all of them.
        let is_untouched = send.phase() == Phase::Queued;
        let head = MessageHead { tag: send.tag, immediate: send.immediate, want_placed, operation };
        let slot = self.channel_mut(channel);
        if is_untouched && len <= eager_max.into() && slot.allowance.blocks_allowed(blocks as u32) {
            slot.allowance.use_messages(1); // C-1
            slot.allowance.use_blocks(blocks as u32); // C-2
            self.t.dequeue(op);
            self.send_eager(now, channel, rail, op, head, out);
            return Step::Sent;
        }
        let send = self.op(op);
        let (keys, to_register) = (send.keys, send.to_register);
        // A key names one contiguous piece.
        let contiguous = send.segments == 1 || send.retained != NONE;
        let readable = if contiguous { self.paths.ready_with(channel, |caps| caps.read) } else { 0 };
        let readable = self.paths.eligible(MessageClass::Large, readable);
        if readable != 0
            && keys == NONE
            && to_register == 0
            && let Some(set) = self.t.key_sets.insert(super::tables::KeySet::default())
        {
            let to_register = self.paths.fastest(channel, readable, wire::KEYS_MAX as u32);
            let to_register = self.paths.rails_to_register(channel, (Registration::Readable, len), to_register);
            let slot = self.op_mut(op);
            slot.keys = set.index;
            slot.to_register = to_register;
            if to_register != 0 {
                slot.enter(Phase::Registering);
            }
        }
        if self.op(op).to_register != 0 {
            // The message keeps its place; the turn goes to the next sent one.
            self.paths.peer_mut(channel).turns = turns;
            self.register(op, out);
            return Step::Sent;
        }
        let keys = self.keys_to_send(channel, keys);
        self.t.dequeue(op);
        self.channel_mut(channel).allowance.use_messages(1); // C-1
        self.op_mut(op).enter(Phase::Waiting);
        let body = Body::Rts(Rts { head, message_bytes: len, keys });
        self.transmit(now, channel, rail, op, &body, Span::EMPTY, false, out);
        Step::Sent
    }

    fn send_eager(&mut self, now: Time, channel: u32, rail: RailId, op: u32, head: MessageHead, out: &mut Actions) {
        let lossless = self.paths.facts(rail).caps.lossless;
        let slot = self.op_mut(op);
        slot.enter(Phase::EagerSent);
        slot.all_sent = true;
        slot.lossless = lossless;
        let (len, level) = (slot.len, slot.level);
        let mut buffer_free = len == 0 || slot.retained != NONE;
        if level == Level::Reusable && !lossless && !buffer_free {
            // Without room for a copy, the buffer is free after the peer's acknowledgment.
            if let Some(place) = self.t.retention.take() {
                let from = self.t.op_span(op, 0, len);
                self.op_mut(op).retained = place;
                let _ = out.push(Action::Copy { from, to: self.payload(op, 0, len) });
                self.stats.bytes_copied += len;
                buffer_free = true;
            }
        }
        let ack_now = match level {
            Level::Reusable => !lossless && !buffer_free,
            Level::Acknowledged => true,
            Level::Placed => false,
        };
        let payload = self.payload(op, 0, len);
        self.note_moved(now, op, rail);
        self.transmit(now, channel, rail, op, &Body::Eager(head), payload, ack_now, out);
        if level == Level::Reusable && buffer_free {
            self.complete(op, None);
        }
    }

    /// The next get, atomic, or end of a put, within the number that the peer serves at once (C-5).
    #[inline(never)]
    fn pump_request(&mut self, now: Time, channel: u32, out: &mut Actions) -> Step {
        let slot = self.channel_mut(channel);
        // Answers count as open until the next request acknowledges them (C-5).
        if slot.answers_are_acknowledged() {
            slot.requests.close_answered();
        }
        let op = slot.queues.requests.head();
        let requests_max = slot.peer_parameters.map_or(0, |peer_parameters| peer_parameters.requests_max);
        if op == NONE || slot.requests.is_full(requests_max) || !self.may_send(channel, Lane::Unordered) {
            return Step::Idle;
        }
        let request = self.op(op);
        // Of a put with immediate data, whose other packets may hold it all.
        let len = if request.kind() == OpKind::Put { request.len - request.cursor } else { 0 };
        let Some(rail) = self.choose(now, channel, MessageClass::OneSided, len) else { return Step::Idle };
        let request = self.op(op);
        let operation = self.t.op_id(op).0.to_bits();
        let body = match request.kind() {
            OpKind::Get => Body::Get(wire::Get {
                window: request.remote,
                offset: request.remote_offset,
                bytes: request.len,
                operation,
            }),
            OpKind::Put => Body::PutImmediate(self.put_immediate_of(op)),
            _ => Body::Atomic(self.atomic_of(op)),
        };
        self.t.dequeue(op);
        let payload = self.payload(op, 0, len);
        let slot = self.op_mut(op);
        slot.enter(Phase::Waiting);
        slot.all_sent = true;
        self.channel_mut(channel).requests.sent();
        if len > 0 {
            self.note_moved(now, op, rail);
        }
        self.transmit(now, channel, rail, op, &body, payload, false, out);
        Step::Sent
    }
}
