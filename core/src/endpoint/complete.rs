//! Completion of operations, its notification, and the events of channels. The completion filter
//! (multirail-2004, 4.1): one completion per request, for any number of packets, stripes and rails.

use super::slots::direct_id;
use super::tables::{channel_event, op_event, op_rma};
use super::{Completion, Done, Endpoint, Event, Level, MessageClass, Notify, OpError, RequestKind, Written};
use crate::fast::ShortCompletion;
use crate::ids::Key;
use crate::op::{Control, Op, OpKind, Phase, Queue, WindowSlot};
use crate::peer::{ChannelState, Ending};
use crate::rail::rails_of;
use crate::store::NONE;
use crate::store::list::By;
use crate::wire::Short;

impl Endpoint<'_> {
    /// Decides an operation's outcome, once.
    pub(super) fn complete(&mut self, op: u32, error: Option<OpError>) {
        let slot = self.op_mut(op);
        if slot.completed {
            return;
        }
        slot.completed = true;
        // Compared by hand: avoids a copy of a rare value for every message.
        if error.is_some() && slot.error.is_none() {
            slot.error = error;
        }
        // Once the completion is reported, the caller owns the memory, and peers must not access it. So its
        // registrations are released before that, not when the slot is freed.
        if slot.keys_are_ours() && slot.registering == 0 && slot.to_register == 0 {
            self.drop_keys(op);
        }
        if self.op(op).fin_pending {
            self.set_fins_pending(op, false);
        }
        let slot = self.t.ops.at_mut(op);
        let well = slot.error.is_none();
        let mut needs_no_event = match slot.notify {
            Notify::Event | Notify::Both(_) => false,
            Notify::Counter(_) | Notify::Silent => well,
        };
        // The parts of a multi-receive and its release are always reported: only their events carry the
        // offsets.
        needs_no_event &= !matches!(slot.kind(), OpKind::MultiRecv | OpKind::Part);
        needs_no_event |= slot.serves();
        // Messages count, the release of their buffer does not.
        let counts = well && slot.kind() != OpKind::MultiRecv;
        if let (true, Notify::Counter(counter) | Notify::Both(counter)) = (counts, slot.notify)
            && let Some(counter) = self.t.counters.get_mut(usize::from(counter.0))
        {
            *counter = counter.wrapping_add(1);
        }
        let (channel, kind, phase) = (slot.channel, slot.kind(), slot.phase());
        let one_sided = slot.is_one_sided();
        if !needs_no_event {
            self.op_events.push_back(&mut By(&mut self.t.ops, op_event), op);
            self.hot.may_have_work = true;
        }
        if channel == NONE {
            return;
        }
        if matches!(self.channel(channel).state(), ChannelState::Closing) {
            self.activate(channel);
        }
        if one_sided {
            self.complete_one_sided(channel, op, kind, phase);
        }
    }

    fn complete_one_sided(&mut self, channel: u32, op: u32, kind: OpKind, phase: Phase) {
        if phase == Phase::Waiting {
            let slot = self.channel_mut(channel);
            slot.requests.answered();
            self.activate(channel);
        }
        let list = &mut self.t.channels.at_mut(channel).one_sided;
        list.unlink(&mut By(&mut self.t.ops, op_rma), op);
        // The loop there completes flushes; they do not complete each other.
        if kind != OpKind::Flush {
            self.finish_flushes(channel);
        }
    }

    /// Adds a request to the one-sided ones of its channel, and queues it unless a fence holds it.
    pub(super) fn start_one_sided(&mut self, op: u32) {
        let &Op { channel, fence, .. } = self.op(op);
        let list = &mut self.t.channels.at_mut(channel).one_sided;
        let last = list.tail();
        list.push_back(&mut By(&mut self.t.ops, op_rma), op);
        // All behind a fence that waits are held, so the last one shows whether there is one.
        if last != NONE && (fence || self.op(last).is_held) {
            self.op_mut(op).is_held = true;
        } else {
            self.queue_one_sided(op);
        }
    }

    fn queue_one_sided(&mut self, op: u32) {
        let &Op { channel, peer, len, .. } = self.op(op);
        match self.op(op).kind() {
            OpKind::Flush => return,
            OpKind::Put if !self.op(op).notifies() => self.t.enqueue(op, Queue::Bulk),
            OpKind::Put => {
                // One that every rail takes in a packet is that packet.
                let rails = rails_of(self.t.peers[peer.0 as usize].rails);
                let most = rails.map(|rail| self.paths.facts(rail).segment_bytes_max);
                if len <= most.fold(self.config.eager_bytes_max, u32::min).into() {
                    return self.queue_last(op);
                }
                self.t.enqueue(op, Queue::Bulk);
            }
            _ => self.t.enqueue(op, Queue::Requests),
        }
        self.activate(channel);
    }

    /// All requests before a fence are complete: queues those that it holds, up to the next fence.
    #[cold]
    fn pass_fence(&mut self, first: u32) {
        let mut op = first;
        while op != NONE && (op == first || !self.op(op).fence) {
            self.op_mut(op).is_held = false;
            self.queue_one_sided(op);
            op = self.op(op).rma.next();
        }
    }

    /// Completes the flushes that have nothing before them, and passes a fence that has nothing before
    /// it.
    pub(super) fn finish_flushes(&mut self, channel: u32) {
        loop {
            let head = self.channel(channel).one_sided.head();
            // Of a channel that is over, the flushes end with its other operations.
            let over = self.channel(channel).is_over();
            if over || head == NONE {
                return;
            }
            if self.op(head).is_held {
                self.pass_fence(head);
            }
            if self.op(head).kind() != OpKind::Flush {
                return;
            }
            let list = &mut self.t.channels.at_mut(channel).one_sided;
            list.unlink(&mut By(&mut self.t.ops, op_rma), head);
            self.complete(head, None);
            self.release(head);
        }
    }

    /// The pending FIN of an operation begins or ends (P-3).
    pub(super) fn set_fins_pending(&mut self, op: u32, is_pending: bool) {
        if is_pending && !self.paths.policies.cut(MessageClass::Large).estimates {
            return;
        }
        let slot = self.t.ops.at_mut(op);
        if core::mem::replace(&mut slot.fin_pending, is_pending) != is_pending {
            self.paths.set_fin_pending(slot.channel, is_pending);
        }
    }

    /// Checks whether an operation is complete, and whether its slot is free.
    #[inline(always)]
    pub(super) fn complete_if_done(&mut self, op: u32) {
        let slot = self.op(op);
        // Reported, or about to be, and not acknowledged: only the acknowledgment changes anything. Nearly
        // all completions of sends end here.
        if slot.completed && slot.unacked > 0 && self.config.recovery || slot.is_moving() {
            return;
        }
        self.complete_or_free(op);
    }

    #[inline(never)]
    fn complete_or_free(&mut self, op: u32) {
        let recovers = self.config.recovery;
        let slot = self.op_mut(op);
        let channel = slot.channel;
        if slot.serves() && slot.all_sent && slot.unacked == 0 && !slot.fin_seen {
            slot.fin_seen = true;
            if slot.kind() == OpKind::RefusePut {
                // The peer has the refusal: its puts may count as complete again, and it is notified at once
                // . A rail may keep it, but it now counts among the answers.
                self.refusals -= 1;
                let slot = self.channel_mut(channel);
                slot.requests.refusal_acknowledged();
                slot.ack.make_due();
                self.activate(channel);
            } else {
                self.channel_mut(channel).requests.answer_acknowledged();
            }
        }
        let slot = self.op_mut(op);
        if slot.kind() == OpKind::Send {
            let is_kept = if recovers { !slot.is_unsent() } else { slot.posts > 0 };
            if slot.phase() == Phase::EagerSent && !is_kept && slot.retained != NONE {
                let place = core::mem::replace(&mut slot.retained, NONE);
                self.t.retention.give(place);
                self.activate(channel);
            } else if !recovers && slot.phase() == Phase::Writing && slot.all_sent && slot.posts == 0 {
                slot.fin_seen = true;
            }
        }
        let slot = self.op(op);
        if !slot.completed {
            let is_unconfirmed =
                slot.kind() == OpKind::Put && channel != NONE && self.channel(channel).requests.is_unconfirmed;
            if !is_unconfirmed && slot.is_done() {
                self.finish(op);
            }
        }
        self.release(op);
    }

    fn finish(&mut self, op: u32) {
        let slot = self.op(op);
        let mut error = None;
        match slot.kind() {
            OpKind::Recv | OpKind::Part if slot.message_len > slot.len => {
                let &Op { message_len: sent, len: capacity, peer, tag, immediate, .. } = slot;
                error = Some(OpError::Truncated { sent, capacity, peer, tag, immediate });
            }
            OpKind::ServeGet | OpKind::ServeAtomic => self.unuse_window(op),
            OpKind::ServePut if slot.phase() == Phase::Data => return self.report_put(op),
            OpKind::Put if slot.notifies() && slot.phase() == Phase::Data && slot.error.is_none() => {
                return self.queue_last(op);
            }
            _ => {}
        }
        if self.op(op).needs_fin {
            self.send_control(op, Control::Fin);
        }
        self.complete(op, error);
    }

    /// All bytes of a put with immediate data are in place at the target, which is to be notified.
    pub(super) fn queue_last(&mut self, op: u32) {
        let slot = self.op_mut(op);
        slot.enter(Phase::Queued);
        let channel = slot.channel;
        self.t.enqueue(op, Queue::Requests);
        self.activate(channel);
    }

    /// A put with immediate data of a peer is in place: reports it as its window defines.
    pub(super) fn report_put(&mut self, op: u32) {
        let window = self.op(op).window;
        let WindowSlot { written, .. } = *self.t.windows.at(window);
        self.unuse_window(op);
        self.t.set_segments(op, &[]);
        self.op_mut(op).enter(Phase::Waiting);
        if let Notify::Counter(counter) | Notify::Both(counter) = written
            && let Some(counter) = self.t.counters.get_mut(usize::from(counter.0))
        {
            *counter = counter.wrapping_add(1);
        }
        match written {
            Notify::Event | Notify::Both(_) => {
                self.op_events.push_back(&mut By(&mut self.t.ops, op_event), op);
                self.hot.may_have_work = true;
            }
            Notify::Counter(_) | Notify::Silent => self.send_control(op, Control::Fin),
        }
    }

    /// The event of a peer's put with immediate data is taken: answers the put.
    #[cold]
    fn take_written(&mut self, op: u32) -> Event {
        let &Op { channel, peer, cookie, operand: window, remote_offset: offset, len: bytes, .. } = self.op(op);
        let immediate = self.op(op).immediate.unwrap_or(0);
        if self.channel(channel).is_over() {
            self.release(op);
        } else {
            self.send_control(op, Control::Fin);
        }
        Event::Written(Written { peer, cookie, window, offset, bytes, immediate })
    }

    /// The peer's acknowledgments are valid again: completes the puts that waited for this.
    pub(super) fn complete_puts(&mut self, channel: u32) {
        let mut op = self.channel(channel).one_sided.head();
        while op != NONE {
            let mut next = self.op(op).rma.next();
            // Completing one may complete the flushes behind it, nothing else.
            while next != NONE && self.op(next).kind() == OpKind::Flush {
                next = self.op(next).rma.next();
            }
            if self.op(op).kind() == OpKind::Put {
                self.complete_if_done(op);
            }
            op = next;
        }
    }

    /// Applies a change to an operation and those behind it in its packet.
    pub(super) fn each_in_packet(&mut self, first: u32, change: impl Fn(&mut Op)) {
        let mut op = first;
        while op != NONE {
            let slot = self.op_mut(op);
            change(slot);
            op = slot.next_in_packet;
        }
    }

    /// Applies a change to an operation and those behind it in its packet, and checks whether they are
    /// complete. Returns their number.
    pub(super) fn each_other(&mut self, first: u32, change: impl Fn(&mut Op)) -> u32 {
        let (mut op, mut count) = (first, 0);
        while op != NONE {
            let slot = self.op_mut(op);
            change(slot);
            // It may be freed now.
            let next = slot.next_in_packet;
            self.complete_if_done(op);
            (op, count) = (next, count + 1);
        }
        count
    }

    /// Queues a control packet of an operation.
    pub(super) fn send_control(&mut self, op: u32, control: Control) {
        let slot = self.op_mut(op);
        slot.control = control;
        let channel = slot.channel;
        self.t.enqueue(op, Queue::Control);
        self.activate(channel);
    }

    /// The next event for the caller; `None`: none at the moment.
    // Inlined, because each round polls it; the common answer is `None`.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.t.short_done.is_empty() && self.op_events.is_empty() && self.channel_events.is_empty() {
            return None;
        }
        self.next_event()
    }

    /// Converts a completion of the express path to its event.
    #[inline]
    fn short_event(&mut self) -> Option<Event> {
        let entry = self.t.short_done.pop()?;
        let done = Done {
            bytes: entry.bytes.into(),
            tag: (entry.flags & Short::TAGGED != 0).then_some(entry.tag),
            immediate: (entry.flags & Short::IMMEDIATE != 0).then_some(entry.immediate),
            ..Done::of(entry.peer)
        };
        let (ShortCompletion { operation, cookie, .. }, kind) = (*entry, entry.kind());
        Some(Event::Completed(Completion { operation, cookie, kind, result: Ok(done), last: true, index: 0 }))
    }

    #[inline(never)]
    fn next_event(&mut self) -> Option<Event> {
        if !self.channel_events.is_empty() {
            return Some(self.next_channel_event());
        }
        if let Some(event) = self.short_event() {
            return Some(event);
        }
        let op = self.op_events.pop_front(&mut By(&mut self.t.ops, op_event))?;
        let &Op { parent, alias, stage, .. } = self.op(op);
        let mut operation = if alias == Key::default() { self.t.op_id(op) } else { direct_id(alias) };
        let mut kind = REQUESTS[stage.kind() as usize];
        let (mut last, mut released, mut offset) = (true, stage.kind() == OpKind::MultiRecv, 0);
        if parent != NONE {
            if parent == op {
                return Some(self.take_written(op));
            }
            (operation, kind, offset) = (self.t.op_id(parent), RequestKind::MultiRecv, self.op(op).remote_offset);
            last = self.report_part(op, parent);
            released = last;
        }
        let key = self.t.ops.key_at(op);
        self.release(op);
        // The slot still holds its data for inspection, because nothing has reused it since.
        debug_assert!(
            self.t.ops.key_at(op).is_none_or(|now| Some(now) == key),
            "the slot of {op} is another's already"
        );
        let slot = self.t.ops.last_at(op);
        let result = match slot.error {
            Some(error) => Err(error),
            None => Ok(Done {
                bytes: slot.bytes_done(),
                peer: slot.peer,
                tag: slot.tag,
                immediate: slot.immediate,
                old: slot.old,
                offset,
                released,
            }),
        };
        let &Op { cookie, index, .. } = slot;
        Some(Event::Completed(Completion { operation, cookie, kind, result, last, index }))
    }

    /// Reports a message in a multi-receive. Returns whether its buffer is released with it.
    fn report_part(&mut self, op: u32, parent: u32) -> bool {
        let is_well = self.op(op).error.is_none();
        let slot = self.op_mut(parent);
        slot.children -= 1;
        let is_over = slot.phase() == Phase::Closing && slot.children == 0;
        let is_last = is_over && slot.error.is_none() && is_well;
        if is_last {
            slot.completed = true; // Its release is reported with the message.
        } else if is_over {
            // The event of an error has no room for it: the release has an event of its own, and so has the
            // end of a multi-receive that failed.
            let error = slot.error;
            self.complete(parent, error);
        }
        self.release(parent);
        is_last
    }

    /// The event of the first channel that has one.
    fn next_channel_event(&mut self) -> Event {
        let index = self.channel_events.head();
        let channel = self.channel_mut(index);
        let peer = channel.peer;
        let event = if core::mem::take(&mut channel.up_event_pending) {
            Event::PeerUp { peer }
        } else {
            match channel.state() {
                ChannelState::Over(Ending::Lost(why)) => Event::PeerLost { peer, why },
                _ => Event::PeerClosed { peer },
            }
        };
        // The connect event may come first, and the end event next.
        if !matches!(event, Event::PeerUp { .. }) || !self.channel(index).is_over() {
            self.channel_events.unlink(&mut By(&mut self.t.channels, channel_event), index);
            self.free_channel_if_idle(index);
        }
        event
    }
}

/// What completions of each kind of operation are about; those that serve peers have none.
const REQUESTS: [RequestKind; OpKind::RefusePut as usize + 1] = {
    let mut requests = [RequestKind::Recv; OpKind::RefusePut as usize + 1];
    requests[OpKind::Send as usize] = RequestKind::Send;
    requests[OpKind::MultiRecv as usize] = RequestKind::MultiRecv;
    requests[OpKind::Put as usize] = RequestKind::Put;
    requests[OpKind::Get as usize] = RequestKind::Get;
    requests[OpKind::Atomic as usize] = RequestKind::Atomic;
    requests[OpKind::Flush as usize] = RequestKind::Flush;
    requests
};

impl Op {
    /// Whether it serves a peer; such operations are not the caller's.
    pub(super) const fn serves(&self) -> bool {
        matches!(
            self.kind(),
            OpKind::ServeGet | OpKind::ServeAtomic | OpKind::ServePut | OpKind::ServeRefusal | OpKind::RefusePut
        )
    }

    /// Whether a rail has, or is yet to move, a part of this message: then nothing that happens to another
    /// part of it completes it, or frees its slot.
    #[inline(always)]
    const fn is_moving(&self) -> bool {
        let is_data = !self.completed && matches!(self.phase(), Phase::Data);
        match self.kind() {
            OpKind::Send => self.posts > 0 || is_data && !self.fin_seen,
            OpKind::Recv | OpKind::Part => is_data && (self.places > 0 || self.moved < self.granted),
            _ => false,
        }
    }

    /// Whether its completion condition is met.
    fn is_done(&self) -> bool {
        let out = self.all_sent && self.is_unsent();
        match self.kind() {
            OpKind::Send => match (self.phase(), self.level) {
                //
                (Phase::EagerSent, Level::Reusable) => self.posts == 0 && (self.lossless || self.unacked == 0),
                (Phase::EagerSent, Level::Acknowledged) => self.is_unsent(),
                (Phase::EagerSent, Level::Placed) => self.fin_seen && self.posts == 0,
                (Phase::Waiting | Phase::Data | Phase::Writing, _) => self.fin_seen && self.posts == 0,
                _ => false,
            },
            OpKind::Recv | OpKind::Part => match self.phase() {
                Phase::Data => self.moved >= self.granted && self.places == 0,
                Phase::Reading => self.all_sent && self.moved >= self.granted && self.posts == 0,
                Phase::Written => self.fins_expected > 0 && self.fins >= self.fins_expected,
                _ => false,
            },
            OpKind::Get => self.fin_seen && self.moved >= self.granted && self.places == 0,
            OpKind::Atomic => self.fin_seen,
            OpKind::Put => match self.phase() {
                Phase::Data => out,
                phase => phase == Phase::Waiting && self.fin_seen && out,
            },
            OpKind::ServePut if self.phase() == Phase::Data => self.places == 0,
            OpKind::ServeGet | OpKind::ServeAtomic | OpKind::ServePut | OpKind::ServeRefusal | OpKind::RefusePut => out,
            OpKind::None | OpKind::MultiRecv | OpKind::Flush => false,
        }
    }

    /// Whether the peer needs nothing more of it: an injected message is complete for the caller long before.
    pub(super) fn is_through(&self) -> bool {
        self.kind() != OpKind::Send || self.channel == NONE || self.error.is_some() || self.is_done()
    }

    fn bytes_done(&self) -> u64 {
        match self.kind() {
            OpKind::Recv | OpKind::Part | OpKind::Get => self.granted,
            OpKind::Send => self.moved.max(self.granted).min(self.len),
            OpKind::Put | OpKind::Atomic => self.len,
            _ => 0,
        }
    }
}
