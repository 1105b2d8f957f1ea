//! Submit: requests are validated and queued, or refused with nothing changed.

use super::tables::Peer;
use super::{
    AtomicRequest, CancelError, DeregisterError, Endpoint, ExposeError, FlushRequest, Found, Full, GetRequest, Level,
    Notify, OpError, PeerError, PutRequest, RecvRequest, Remote, Selector, SendRequest, SubmitError, Window,
};
use crate::api::action::Span;
use crate::ids::{Cookie, MessageId, OpId, PeerId, WindowId};
use crate::mem::{RegionId, Seg};
use crate::op::{MessageUse, Op, OpKind, Packet, Phase, Queue, What, WindowSlot};
use crate::peer::{ChannelState, Parked};
use crate::store::NONE;
use crate::time::Time;

impl Endpoint<'_> {
    /// Adds a peer; bit i of `rails` means that rail i reaches it. Costs nothing until it is used.
    pub fn add_peer(&mut self, peer: PeerId, rails: u64) -> Result<(), PeerError> {
        let peers_max = self.config.peers_max;
        let known = u64::MAX >> (64 - self.paths.rails.len());
        let slot = self.t.peers.get_mut(peer.0 as usize).ok_or(PeerError::OutOfRange { peer, peers_max })?;
        if slot.rails != 0 {
            return Err(PeerError::Known(peer));
        }
        if rails == 0 || rails & !known != 0 {
            return Err(PeerError::NoSuchRail { rails });
        }
        slot.rails = rails;
        Ok(())
    }

    /// Closes the channel to a peer in good order: when all submitted requests are acknowledged, the core
    /// sends BYE and reports [`Event::PeerClosed`](super::Event::PeerClosed) (rule G-7). No further request
    /// to it is accepted. The core waits for a connection that is being made, as the peer may have it
    /// already. A peer without any traffic, or with a parked channel, gets neither packet nor event.
    pub fn close_peer(&mut self, peer: PeerId) -> Result<(), PeerError> {
        let peers_max = self.config.peers_max;
        let slot = self.t.peers.get_mut(peer.0 as usize).ok_or(PeerError::OutOfRange { peer, peers_max })?;
        if slot.rails == 0 {
            return Err(PeerError::Unknown(peer));
        }
        (slot.gone, slot.is_met) = (true, false);
        if let Some(channel) = self.t.channel_of(peer) {
            self.close_line(channel);
            let slot = self.channel_mut(channel);
            if matches!(slot.state(), ChannelState::Connecting | ChannelState::Open) {
                slot.enter(ChannelState::Closing);
            }
            self.activate(channel);
        } else {
            self.end_receives_of(peer, OpError::PeerClosed { peer });
            self.drop_parked(peer, false);
        }
        Ok(())
    }

    /// Forgets a peer that is closed or lost: it may be added again, as a new one. Messages of it
    /// without a receive are dropped.
    ///
    /// # Errors
    /// [`PeerError::InUse`] until it is closed ([`close_peer`](Self::close_peer)), its last events are taken
    /// and its connections are ended: try again later.
    pub fn remove_peer(&mut self, peer: PeerId) -> Result<(), PeerError> {
        let peers_max = self.config.peers_max;
        let slot = self.t.peers.get(peer.0 as usize).ok_or(PeerError::OutOfRange { peer, peers_max })?;
        if slot.rails == 0 {
            return Err(PeerError::Unknown(peer));
        }
        if let Some(channel) = self.t.channel_of(peer).filter(|&channel| self.channel(channel).is_over()) {
            self.drop_messages(channel);
            self.free_channel_if_idle(channel);
        }
        if self.t.peers[peer.0 as usize].gone {
            self.drop_parked(peer, true);
        }
        let slot = &mut self.t.peers[peer.0 as usize];
        if !slot.gone || slot.channel != NONE || self.t.parked[peer.0 as usize].held().messages > 0 {
            return Err(PeerError::InUse(peer));
        }
        *slot = Peer { channel: NONE, lives: slot.lives.wrapping_add(1), ..Peer::default() };
        self.t.parked[peer.0 as usize] = Parked::default();
        Ok(())
    }

    /// Sends a message. It is delivered exactly once and matched in the order of submission.
    pub fn send(&mut self, now: Time, send: &SendRequest<'_>) -> Result<OpId, SubmitError> {
        let len = self.check(send.segments, send.notify)?;
        let channel = self.channel_to(now, send.peer)?;
        let op = self.new_op(Self::send_op(send, channel, len));
        self.t.set_segments(op, send.segments);
        self.start(op);
        Ok(self.t.op_id(op))
    }

    /// Sends a message of at most `eager_bytes_max` bytes whose buffer is free at return: the caller copies
    /// `payload_bytes` bytes into the span before its next call. `send.segments` is ignored.
    pub fn inject(
        &mut self,
        now: Time,
        send: &SendRequest<'_>,
        payload_bytes: u64,
    ) -> Result<(OpId, Span), SubmitError> {
        let max = self.config.eager_bytes_max.into();
        if payload_bytes > max {
            return Err(SubmitError::TooLong { bytes: payload_bytes, max });
        }
        self.check(&[], send.notify)?;
        let channel = self.channel_to(now, send.peer)?;
        let retained = match payload_bytes {
            0 => NONE,
            _ => self.t.retention.take().ok_or(SubmitError::Full(Full::Retained))?,
        };
        let op = self.new_op(Op { retained, ..Self::send_op(send, channel, payload_bytes) });
        if send.level == Level::Reusable {
            self.complete(op, None);
        }
        self.start(op);
        Ok((self.t.op_id(op), self.payload(op, 0, payload_bytes)))
    }

    fn send_op(send: &SendRequest<'_>, channel: u32, len: u64) -> Op {
        Op {
            channel,
            peer: send.peer,
            tag: send.tag,
            immediate: send.immediate,
            len,
            message_len: len,
            granted: len,
            level: send.level,
            notify: send.notify,
            cookie: send.cookie,
            more: send.more,
            ..Op::new(OpKind::Send)
        }
    }

    /// Posts a buffer for a message (or, with `multi`, for many).
    ///
    /// From a peer that is gone a receive can take only messages sent before: one message per receive.
    pub fn recv(&mut self, now: Time, recv: &RecvRequest<'_>) -> Result<OpId, SubmitError> {
        // Messages that wait for a slot go to older receives first.
        self.feed_waiting(now);
        if let Some(operation) = self.recv_short(recv) {
            return Ok(operation);
        }
        let len = self.check(recv.segments, recv.notify)?;
        let mut is_gone = false;
        if let Some(source) = recv.from.source
            && let Err(error) = self.check_peer(source)
        {
            let left_over = recv.multi.is_none() && self.t.matcher.unexpected.find(&recv.from).is_some();
            if !left_over {
                return Err(error);
            }
            is_gone = true;
        }
        if let Some(min) = recv.multi {
            if recv.segments.len() != 1 || min == 0 || min > len {
                return Err(SubmitError::BadMulti);
            }
            let op = self.new_op(Op { multi_min: min, ..Self::recv_op(recv, len, OpKind::MultiRecv) });
            self.t.set_segments(op, recv.segments);
            self.post(now, op, &recv.from);
            self.feed_multi(now, op, &recv.from);
            return Ok(self.t.op_id(op));
        }
        let waiting = self.find_waiting(&recv.from);
        if waiting.is_none() && is_gone {
            // What is left of the peer may be for older receives.
            return Err(SubmitError::Full(Full::Operations));
        }
        if let Some((_, message)) = waiting {
            self.ensure_open(now, message)?;
        }
        let op = self.new_op(Self::recv_op(recv, len, OpKind::Recv));
        self.t.set_segments(op, recv.segments);
        match waiting {
            Some((key, message)) => {
                self.t.matcher.unexpected.take(key);
                self.bind(now, op, message);
            }
            None => self.post(now, op, &recv.from),
        }
        Ok(self.t.op_id(op))
    }

    /// A message that waits is to be received: its channel is open, or opens (K-5).
    fn ensure_open(&mut self, now: Time, message: u32) -> Result<(), SubmitError> {
        if self.has_channel(now, message) {
            return Ok(());
        }
        self.lacks_channel = false;
        self.make_room(now);
        Err(SubmitError::Full(Full::Channels))
    }

    fn recv_op(recv: &RecvRequest<'_>, len: u64, kind: OpKind) -> Op {
        Op {
            len,
            notify: recv.notify,
            cookie: recv.cookie,
            peer: recv.from.source.unwrap_or(PeerId::NONE),
            ..Op::new(kind)
        }
    }

    fn post(&mut self, now: Time, op: u32, from: &Selector) {
        if let Some(source) = from.source {
            self.expect_caller(now, source);
        }
        // As many entries as operations: there is room.
        if let Ok(key) = self.t.matcher.posted.post(from, op) {
            let slot = self.op_mut(op);
            slot.posted = key;
            slot.enter(Phase::Posted);
        }
    }

    /// The oldest message that matches `selector` and has no buffer yet (M-5).
    pub fn probe(&self, selector: &Selector) -> Option<Found> {
        let (_, message) = self.find_waiting(selector)?;
        Some(self.found(message))
    }

    /// As [`probe`](Self::probe), and removes the message from matching: receive it with
    /// [`recv_claimed`](Self::recv_claimed).
    pub fn claim(&mut self, selector: &Selector) -> Option<(MessageId, Found)> {
        self.feed_waiting(self.latest);
        let (key, message) = self.find_waiting(selector)?;
        self.t.matcher.unexpected.take(key);
        self.message_mut(message).used = MessageUse::Claimed; // M-6
        Some((MessageId(self.t.messages.key_at(message)?), self.found(message)))
    }

    /// Receives a claimed message; `recv.from` is ignored, `recv.multi` must be `None`.
    pub fn recv_claimed(&mut self, now: Time, message: MessageId, recv: &RecvRequest<'_>) -> Result<OpId, SubmitError> {
        let len = self.check(recv.segments, recv.notify)?;
        if recv.multi.is_some() {
            return Err(SubmitError::BadMulti);
        }
        if self.t.messages.get(message.0).is_none_or(|slot| slot.used != MessageUse::Claimed) {
            return Err(SubmitError::UnknownMessage);
        }
        self.ensure_open(now, message.0.index)?;
        let op = self.new_op(Self::recv_op(recv, len, OpKind::Recv));
        self.t.set_segments(op, recv.segments);
        self.bind(now, op, message.0.index);
        Ok(self.t.op_id(op))
    }

    fn found(&self, index: u32) -> Found {
        let message = self.message(index);
        Found { peer: self.t.sender_of(index), tag: message.tag, immediate: message.immediate, bytes: message.len }
    }

    /// Writes into a peer's window. Puts are not ordered among each other or against messages: use
    /// [`flush`](Self::flush) to order them.
    pub fn put(&mut self, now: Time, put: &PutRequest<'_>) -> Result<OpId, SubmitError> {
        let len = self.check(put.segments, put.notify)?;
        let channel = self.channel_to(now, put.to.peer)?;
        let op = Self::one_sided(OpKind::Put, &put.to, channel, len, (put.notify, put.cookie));
        Ok(self
            .submit_one_sided(Op { level: put.level, immediate: put.immediate, fence: put.fence, ..op }, put.segments))
    }

    /// Puts at most `eager_bytes_max` bytes whose buffer is free at return: the caller copies `payload_bytes`
    /// bytes into the span before its next call. `put.segments` is ignored. It is complete as any put.
    pub fn inject_put(
        &mut self,
        now: Time,
        put: &PutRequest<'_>,
        payload_bytes: u64,
    ) -> Result<(OpId, Span), SubmitError> {
        let max = self.config.eager_bytes_max.into();
        if payload_bytes > max {
            return Err(SubmitError::TooLong { bytes: payload_bytes, max });
        }
        self.check(&[], put.notify)?;
        let channel = self.channel_to(now, put.to.peer)?;
        let retained = match payload_bytes {
            0 => NONE,
            _ => self.t.retention.take().ok_or(SubmitError::Full(Full::Retained))?,
        };
        let op = Self::one_sided(OpKind::Put, &put.to, channel, payload_bytes, (put.notify, put.cookie));
        let op = Op { retained, level: put.level, immediate: put.immediate, fence: put.fence, ..op };
        let operation = self.submit_one_sided(op, &[]);
        Ok((operation, self.payload(operation.0.index, 0, payload_bytes)))
    }

    /// Reads from a peer's window.
    pub fn get(&mut self, now: Time, get: &GetRequest<'_>) -> Result<OpId, SubmitError> {
        let len = self.check(get.segments, get.notify)?;
        let channel = self.channel_to(now, get.from.peer)?;
        let op = Self::one_sided(OpKind::Get, &get.from, channel, len, (get.notify, get.cookie));
        Ok(self.submit_one_sided(Op { fence: get.fence, ..op }, get.segments))
    }

    /// Changes one value in a peer's window, exactly once, and returns the old one.
    pub fn atomic(&mut self, now: Time, atomic: &AtomicRequest) -> Result<OpId, SubmitError> {
        if !atomic.data_type.allows(atomic.kind) {
            return Err(SubmitError::BadAtomic);
        }
        self.check(&[], atomic.notify)?;
        let channel = self.channel_to(now, atomic.at.peer)?;
        let report = (atomic.notify, atomic.cookie);
        let op = Op {
            atomic_kind: atomic.kind,
            atomic_type: atomic.data_type,
            operand: atomic.operand,
            compare: atomic.compare,
            fence: atomic.fence,
            ..Self::one_sided(OpKind::Atomic, &atomic.at, channel, atomic.data_type.bytes(), report)
        };
        Ok(self.submit_one_sided(op, &[]))
    }

    /// Completes when every put, get and atomic that was submitted to the peer before is complete there (rule
    ///
    pub fn flush(&mut self, now: Time, flush: &FlushRequest) -> Result<OpId, SubmitError> {
        self.check(&[], flush.notify)?;
        let channel = self.channel_to(now, flush.peer)?;
        let remote = Remote { peer: flush.peer, window: 0, offset: 0 };
        let op = Self::one_sided(OpKind::Flush, &remote, channel, 0, (flush.notify, flush.cookie));
        let id = self.submit_one_sided(op, &[]);
        self.finish_flushes(channel);
        Ok(id)
    }

    fn submit_one_sided(&mut self, op: Op, segments: &[Seg]) -> OpId {
        let op = self.new_op(op);
        self.t.set_segments(op, segments);
        self.start_one_sided(op);
        self.t.op_id(op)
    }

    fn one_sided(kind: OpKind, at: &Remote, channel: u32, len: u64, (notify, cookie): (Notify, Cookie)) -> Op {
        Op {
            channel,
            peer: at.peer,
            remote: at.window,
            remote_offset: at.offset,
            len,
            granted: len,
            message_len: len,
            notify,
            cookie,
            ..Op::new(kind)
        }
    }

    /// Queues a message.
    fn start(&mut self, op: u32) {
        let channel = self.op(op).channel;
        self.close_sending(channel);
        self.t.enqueue(op, Queue::Ordered);
        self.activate(channel);
    }

    /// Cancels a request. It completes with [`OpError::Cancelled`], or it is too late.
    pub fn cancel(&mut self, operation: OpId) -> Result<(), CancelError> {
        if let Some((op, is_new)) = self.find_direct(operation) {
            if !is_new {
                let is_over = self.op(op).completed;
                return Err(if is_over { CancelError::Unknown } else { CancelError::TooLate });
            }
            self.complete(op, Some(OpError::Cancelled));
            self.release(op);
            return Ok(());
        }
        let slot = self.t.ops.get(operation.0).ok_or(CancelError::Unknown)?;
        if slot.completed {
            return Err(CancelError::Unknown);
        }
        let op = operation.0.index;
        match (slot.kind(), slot.phase()) {
            // a receive that has matched continues.
            (OpKind::Recv, Phase::Posted) => {
                self.t.matcher.posted.unpost(slot.posted);
                self.complete(op, Some(OpError::Cancelled));
            }
            // Its messages are still reported, and after them the cancellation.
            (OpKind::MultiRecv, Phase::Posted) => {
                self.op_mut(op).error = Some(OpError::Cancelled);
                self.close_multi(op);
            }
            (OpKind::Send | OpKind::Get | OpKind::Atomic, Phase::Queued) if slot.queued != Queue::None => {
                self.t.dequeue(op);
                self.complete(op, Some(OpError::Cancelled));
            }
            (OpKind::Put | OpKind::Get | OpKind::Atomic, _) if slot.is_held => {
                self.complete(op, Some(OpError::Cancelled));
            }
            // Nothing of it was sent.
            (OpKind::Put, Phase::Queued) if slot.queued == Queue::Requests && slot.cursor == 0 => {
                self.t.dequeue(op);
                self.complete(op, Some(OpError::Cancelled));
            }
            (OpKind::Put, Phase::Data) if slot.queued == Queue::Bulk && slot.cursor == 0 && slot.stripes == NONE => {
                self.t.dequeue(op);
                self.complete(op, Some(OpError::Cancelled));
            }
            _ => return Err(CancelError::TooLate),
        }
        self.release(op);
        Ok(())
    }

    /// Exposes memory to one-sided access by every peer that has the key.
    pub fn expose(&mut self, window: &Window) -> Result<WindowId, ExposeError> {
        if window.at.offset.checked_add(window.len).is_none() {
            return Err(ExposeError::TooLong { bytes: window.len });
        }
        if let Notify::Counter(counter) | Notify::Both(counter) = window.written
            && usize::from(counter.0) >= self.t.counters.len()
        {
            return Err(ExposeError::UnknownCounter(counter));
        }
        let Err(at) = self.t.window_by_key(window.key) else {
            return Err(ExposeError::KeyInUse(window.key));
        };
        let slot = WindowSlot {
            seg: Seg { at: window.at, len: window.len },
            access: window.access,
            key: window.key,
            written: window.written,
            cookie: window.cookie,
            users: 0,
        };
        let key = self.t.windows.insert(slot).ok_or(ExposeError::Full)?;
        let len = self.t.windows_len;
        self.t.windows_by_key.copy_within(at..len, at + 1);
        self.t.windows_by_key[at] = key.index;
        self.t.windows_len += 1;
        Ok(WindowId(key))
    }

    /// The key of a window that may be released: no request is served from it.
    pub fn releasable(&self, window: WindowId) -> Result<u64, DeregisterError> {
        let slot = self.t.windows.get(window.0).ok_or(DeregisterError::Unknown)?;
        if slot.users > 0 { Err(DeregisterError::Busy) } else { Ok(slot.key) }
    }

    /// Ends the exposure. Later access by peers is refused.
    pub fn deregister(&mut self, window: WindowId) -> Result<(), DeregisterError> {
        let key = self.releasable(window)?;
        if let Ok(at) = self.t.window_by_key(key) {
            let len = self.t.windows_len;
            self.t.windows_by_key.copy_within(at + 1..len, at);
            self.t.windows_len -= 1;
        }
        self.t.windows.remove(window.0);
        Ok(())
    }

    /// Whether memory of this region may still be read or written: it is in a window or in an incomplete
    /// operation, or a rail holds a post or placement of one. Scans every operation: for the release of
    /// memory, not for the message path.
    pub fn uses_region(&self, region: RegionId) -> bool {
        let is_of_it = |seg: &Seg| seg.at.region == region;
        self.t.windows.indices().any(|window| is_of_it(&self.t.windows.at(window).seg))
            || self.any_names(|_, _| true, is_of_it)
    }

    /// Whether the caller's requests, or posts that a rail has, may still read or write memory that
    /// `is_of_it` selects: as [`uses_region`](Self::uses_region), without windows as such, since no rail
    /// gives peers access to those: their requests are served only while the caller drives the endpoint
    /// but an answer to a get is read where it is by the rail that has it. Of a receive for many
    /// messages only the bytes count that no message has taken.
    pub fn is_used(&self, is_of_it: impl Fn(&Seg) -> bool) -> bool {
        self.any_names(|op, post| post.is_some() || !op.serves(), is_of_it)
    }

    /// As [`is_used`](Self::is_used), where they may write.
    pub fn is_written_to(&self, is_of_it: impl Fn(&Seg) -> bool) -> bool {
        let writes = |op: &Op| matches!(op.kind(), OpKind::Recv | OpKind::MultiRecv | OpKind::Part | OpKind::Get);
        self.any_names(|op, post| writes(op) && post.is_none_or(|what| what == What::Read), is_of_it)
    }

    /// Whether one of these operations is incomplete and names memory that `is_of_it` selects, or one of
    /// their posts that a rail has.
    fn any_names(&self, selects: impl Fn(&Op, Option<What>) -> bool, is_of_it: impl Fn(&Seg) -> bool) -> bool {
        let names = |op: u32| {
            let slot = self.op(op);
            let taken = if slot.kind() == OpKind::MultiRecv { slot.cursor } else { 0 };
            let rest = |seg: &Seg| Seg::new(seg.at.region, seg.at.offset + taken, seg.len - taken);
            self.t.op_segments(op).iter().any(|seg| seg.len > 0 && is_of_it(&rest(seg)))
        };
        self.direct_names(|seg| seg.len > 0 && is_of_it(seg))
            || self.t.ops.indices().any(|op| {
                let slot = self.op(op);
                let is_open = !slot.completed || slot.places > 0 || slot.children > 0;
                is_open && selects(slot, None) && names(op)
            })
            || self.t.packets.indices().any(|packet| {
                let &Packet { op, what, len, posted, .. } = self.packet(packet);
                let slot = self.op(op);
                posted && len > 0 && slot.retained == NONE && selects(slot, Some(what)) && names(op)
            })
    }

    // ---- checks

    /// The checks common to all requests; returns the payload's length.
    fn check(&self, segments: &[Seg], notify: Notify) -> Result<u64, SubmitError> {
        if self.open_requests() >= self.config.operations_max {
            return Err(SubmitError::Full(Full::Operations));
        }
        if segments.len() > usize::from(self.config.segments_max) {
            return Err(SubmitError::Segments { given: segments.len(), max: self.config.segments_max });
        }
        if let Notify::Counter(counter) | Notify::Both(counter) = notify
            && usize::from(counter.0) >= self.t.counters.len()
        {
            return Err(SubmitError::UnknownCounter(counter));
        }
        let mut bytes = 0u64;
        for seg in segments {
            let end = seg.at.offset.checked_add(seg.len);
            bytes = end
                .and_then(|_| bytes.checked_add(seg.len))
                .ok_or(SubmitError::TooLong { bytes: seg.len, max: u64::MAX - bytes.max(seg.at.offset) })?;
        }
        Ok(bytes)
    }

    fn check_peer(&self, peer: PeerId) -> Result<(), SubmitError> {
        match self.t.peers.get(peer.0 as usize) {
            Some(slot) if slot.rails != 0 && slot.gone => Err(SubmitError::PeerGone(peer)),
            Some(slot) if slot.rails != 0 => Ok(()),
            _ => Err(SubmitError::UnknownPeer(peer)),
        }
    }

    fn channel_to(&mut self, now: Time, peer: PeerId) -> Result<u32, SubmitError> {
        self.check_peer(peer)?;
        match self.t.channel_of(peer) {
            Some(channel) => Ok(channel),
            None => {
                let opened = if self.may_call() { self.open_channel(now, peer) } else { None };
                if opened.is_none() {
                    self.make_room(now);
                }
                opened.ok_or(SubmitError::Full(Full::Channels))
            }
        }
    }
}
