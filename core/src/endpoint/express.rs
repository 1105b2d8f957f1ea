//! Messages of the express path (see [`fast`](crate::fast)): sent and received on a channel's line, and what
//! happens to one that can't use it.
//!
//! A message that arrives before its receive is posted (M-5): the driver copies it into a block and, when the
//! receive is posted, into the buffer, without a placement or an operation. Its entry in the table of
//! messages is the same as that of any other unexpected message.

use super::slots::{DIRECT, SENT, direct_id};
use super::tables::Tables;
use super::{Endpoint, Level, Notify, ProtocolError, RecvRequest, SendRequest};
use crate::api::action::Arrival;
use crate::fast::{LineId, ShortCompletion};
use crate::ids::{Key, OpId, PeerId, RailId};
use crate::mem::{MemRef, RegionId, Seg};
use crate::op::{Message, MessageState, MessageUse};
use crate::rel::link::State;
use crate::store::NONE;
use crate::tag::{Direct, Match, Plain};
use crate::time::Time;
use crate::wire::{Common, MessageHead, Short, ShortSource};

/// A receive that is complete when it is posted, because its message had arrived; its generation counts them.
pub(super) const WAITED: u32 = SENT | 1;
/// The id of all sends that are not reported: no event has it.
const SILENT: Key = Key { index: SENT, generation: 0 };

/// The id of the n-th send that is complete when it is submitted; 0: of all that are not reported.
pub(super) const fn sent_id(count: u32) -> OpId {
    OpId(Key { index: SENT, generation: count })
}

/// The destination of a short message's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortArrival {
    /// All of it into this memory; the completion is reported already, so copy before any other call.
    At(MemRef),
    /// The message is empty, and complete.
    Done,
    /// It can't use the express path: call [`Endpoint::handle_short`].
    Slow,
}

/// The destination of a message's payload, with little or no other work.
#[derive(Debug)]
pub struct NextPlace<'a> {
    /// The matching receive.
    pub receive: Plain<'a>,
    /// [`Endpoint::after_next`] is to be called.
    pub must_check: bool,
}

/// The outcome of a receive that may use the express path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortPost {
    /// It is posted.
    Posted(OpId),
    /// Its message waits here: call [`Endpoint::take_waiting`]. Nothing has happened.
    Waits(Waiting),
    /// More checks are needed: call [`Endpoint::recv`]. Nothing has happened.
    Slow,
}

impl Endpoint<'_> {
    /// Sends a message of at most one piece by the express path, where that is open. Returns the rail, the
    /// bytes in front of the payload there, and the request's id, whose completion is reported already. If
    /// the rail refuses the message, call [`unsend_short`](Self::unsend_short). `None`: nothing has happened;
    /// call [`open_short`](Self::open_short), else use [`send`](Self::send).
    #[inline(always)]
    pub fn send_short(&mut self, send: &SendRequest<'_>, len: u64) -> Option<(RailId, Short, OpId)> {
        self.send_short_on(self.line_of(send.peer), send, len)
    }

    /// As [`send_short`](Self::send_short) on a line that the caller holds. `None` also where it is not the
    /// peer's.
    #[inline(always)]
    pub fn send_short_on(&mut self, line: LineId, send: &SendRequest<'_>, len: u64) -> Option<(RailId, Short, OpId)> {
        let (rail, short) = self.send_by::<false>(line, send, len)?;
        Some((rail, short, self.sent_next(send, len)))
    }

    /// As [`send_short_on`](Self::send_short_on) for a message of at most one block, else `None`; inlined.
    /// Its completion is not reported yet: once it is out, [`sent_next`](Self::sent_next) gives its id.
    #[inline(always)]
    pub fn send_next(&mut self, line: LineId, send: &SendRequest<'_>, len: u64) -> Option<(RailId, Short)> {
        self.send_by::<true>(line, send, len)
    }

    /// The message of [`send_next`](Self::send_next) is out: reports its completion.
    #[inline(always)]
    pub fn sent_next(&mut self, send: &SendRequest<'_>, len: u64) -> OpId {
        if send.notify == Notify::Silent { OpId(SILENT) } else { self.report_sent(send, len) }
    }

    #[inline(never)]
    fn report_sent(&mut self, send: &SendRequest<'_>, len: u64) -> OpId {
        // Odd, as all generations are but that of `SILENT`.
        self.sent = self.sent.wrapping_add(2);
        let operation = OpId(Key { index: SENT, generation: self.sent });
        let &SendRequest { peer, cookie, tag, immediate, .. } = send;
        let flags = Short::flags_of(tag, immediate);
        let (tag, immediate, bytes) = (tag.unwrap_or(0), immediate.unwrap_or(0), len as u32);
        self.t.short_done.push(ShortCompletion { cookie, operation, tag, immediate, peer, bytes, flags });
        operation
    }

    /// The line of a peer for [`send_next`](Self::send_next) and [`arrive_next`](Self::arrive_next), valid
    /// while its channel is open.
    #[inline(always)]
    pub fn line_of(&self, peer: PeerId) -> LineId {
        self.t.channel_of(peer).map_or(LineId::NONE, LineId)
    }

    #[inline(always)]
    fn send_by<const PLAIN: bool>(
        &mut self,
        line: LineId,
        send: &SendRequest<'_>,
        len: u64,
    ) -> Option<(RailId, Short)> {
        if send.level != Level::Reusable {
            return None;
        }
        match send.notify {
            Notify::Silent => {}
            Notify::Event if !self.t.short_done.is_full() => {}
            _ => return None,
        }
        let line = self.t.lines.get_mut(line.0 as usize).filter(|line| line.is_of(send.peer))?;
        let (tag, immediate, own) = (send.tag, send.immediate, &self.hot.own);
        let sent = if PLAIN { line.send_plain(tag, immediate, len, own) } else { line.send(tag, immediate, len, own) };
        Some((RailId(line.rail), sent?))
    }

    /// Opens the express path to a peer, if nothing prevents it. Returns whether a retry of
    /// [`send_short`](Self::send_short) is worthwhile.
    #[cold]
    pub fn open_short(&mut self, peer: PeerId) -> bool {
        self.t.short_done.has_room();
        self.has_short_rail && self.t.channel_of(peer).is_some_and(|channel| self.open_sending(channel))
    }

    /// The rail has no room for the result of [`send_short`](Self::send_short): withdraws the message and its
    /// completion.
    #[cold]
    pub fn unsend_short(&mut self, send: &SendRequest<'_>, short: Short) {
        let Some(channel) = self.t.channel_of(send.peer) else { return };
        self.t.lines[channel as usize].unsend(&short);
        if send.notify == Notify::Event {
            self.t.short_done.unpush();
        }
    }

    /// Posts a receive of one piece that completes with an event, without an operation. `None`: nothing has
    /// happened, use [`recv`](Self::recv).
    pub fn recv_short(&mut self, recv: &RecvRequest<'_>) -> Option<OpId> {
        let &[Seg { at, .. }] = recv.segments else { return None };
        match self.post_short(recv, at) {
            ShortPost::Posted(operation) => Some(operation),
            ShortPost::Waits(_) | ShortPost::Slow => None,
        }
    }

    /// As [`recv_short`](Self::recv_short), inlined; also returns whether its message waits here. `at` is
    /// another name of the same memory, by which the caller finds it faster.
    #[inline(always)]
    pub fn post_short(&mut self, recv: &RecvRequest<'_>, at: MemRef) -> ShortPost {
        let &[Seg { len, .. }] = recv.segments else { return ShortPost::Slow };
        if !self.is_plain(recv) {
            return ShortPost::Slow;
        }
        if self.has_waiting()
            && let Some((key, message)) = self.t.matcher.unexpected.find(&recv.from)
        {
            return ShortPost::Waits(Waiting { key, message });
        }
        if self.open_requests() >= self.hot.operations_max {
            return ShortPost::Slow;
        }
        if let Some(source) = recv.from.source {
            // A peer that is not connected, or gone, needs more checks.
            match self.t.peers.get(source.0 as usize) {
                Some(peer) if peer.is_met => {}
                _ => return ShortPost::Slow,
            }
        }
        match self.t.matcher.posted.post_direct(&recv.from, &Direct { to: Seg { at, len }, cookie: recv.cookie }) {
            Some(key) => ShortPost::Posted(direct_id(key)),
            None => ShortPost::Slow,
        }
    }

    /// Whether messages wait for receives.
    #[inline(always)]
    pub const fn has_waiting(&self) -> bool {
        self.t.matcher.unexpected.count() != 0
    }

    /// Whether a receive is plain (no multi-receive, completes with an event), and plain ones may use the
    /// express path.
    #[inline(always)]
    fn is_plain(&self, recv: &RecvRequest<'_>) -> bool {
        self.hot.may_post_short && recv.multi.is_none() && recv.notify == Notify::Event
    }

    /// Returns the destination of a short message from `peer` on `rail`. It is completed at once, so the
    /// caller copies before any other call.
    #[inline(always)]
    pub fn arrive_short(&mut self, peer: PeerId, rail: RailId, short: &Short) -> ShortArrival {
        if short.flags & !Short::FLAGS != 0 {
            return ShortArrival::Slow;
        }
        let Some(place) = self.arrive_next(self.line_of(peer), peer, short) else {
            return self.arrive_slowly(peer, rail, short);
        };
        let (at, must_check) = (place.receive.at(), place.must_check);
        if must_check {
            self.after_next(peer, short.len);
        }
        if short.len == 0 { ShortArrival::Done } else { ShortArrival::At(at) }
    }

    /// The path of nearly all of them, inlined: the next message of an open line, for the oldest receive of
    /// the only shape, posted by its address. The completion is reported already, so the caller copies before
    /// any other call. `None`: nothing has happened.
    #[inline(always)]
    pub fn arrive_next(&mut self, line: LineId, peer: PeerId, short: &impl ShortSource) -> Option<NextPlace<'_>> {
        match self.one_waits() {
            true => self.arrive_at::<true>(line, peer, short),
            false => self.arrive_at::<false>(line, peer, short),
        }
    }

    /// Whether a plain receive is posted that has no older one of its domain before it.
    #[inline(always)]
    pub const fn one_waits(&self) -> bool {
        self.t.matcher.posted.has_alone()
    }

    /// Whether any plain receive is posted.
    #[inline(always)]
    pub const fn has_plain_receives(&self) -> bool {
        self.t.matcher.posted.direct_count() > 0
    }

    /// As [`arrive_next`](Self::arrive_next), for a caller of [`one_waits`](Self::one_waits): `ONE` is its
    /// result. Each has its own function, as neither has registers to spare.
    #[inline(always)]
    pub fn arrive_at<const ONE: bool>(
        &mut self,
        line: LineId,
        peer: PeerId,
        short: &impl ShortSource,
    ) -> Option<NextPlace<'_>> {
        debug_assert!(short.flags() & !Short::FLAGS == 0, "the rail has checked (L-12)");
        let line = self.t.lines.get_mut(line.0 as usize)?;
        if !line.expects_from(peer, short.counts()) || (!ONE && self.t.matcher.posted.direct_count() == 0) {
            return None;
        }
        // It is invisible until it is committed.
        let done = self.t.short_done.next()?;
        let (len, flags, tag) = (short.bytes(), short.flags(), short.tag()?);
        let is_tagged = flags & Short::TAGGED != 0;
        (done.tag, done.peer, done.bytes, done.flags) = (tag, peer, len.into(), flags);
        done.immediate = short.immediate();
        let receive = match ONE {
            true => self.t.matcher.posted.take_alone(peer, tag, is_tagged, len.into())?,
            false => self.t.matcher.posted.take_next(peer, tag, is_tagged, len.into())?,
        };
        (done.cookie, done.operation) = (receive.cookie(), direct_id(receive.key()));
        self.t.short_done.commit();
        let must_check = line.receive(len, &self.hot.own);
        Some(NextPlace { receive, must_check })
    }

    /// Completes the remaining work for a message of `len` bytes that [`arrive_next`](Self::arrive_next) has
    /// taken and the caller has copied.
    #[cold]
    pub fn after_next(&mut self, peer: PeerId, len: u16) {
        if let Some(channel) = self.t.channel_of(peer)
            && self.t.lines[channel as usize].check(len, &self.hot.own)
        {
            self.short_received(channel);
        }
    }

    #[inline(never)]
    fn arrive_slowly(&mut self, peer: PeerId, rail: RailId, short: &Short) -> ShortArrival {
        let mut line = self.line_of(peer);
        self.arrive_otherwise(&mut line, peer, rail, short)
    }

    /// As [`arrive_short`](Self::arrive_short), for a message that [`arrive_next`](Self::arrive_next) did not
    /// take: the line is closed, the matcher has more to do, or the message can't use the short path. `line`
    /// is the peer's from then on.
    #[inline(always)]
    pub fn arrive_otherwise(&mut self, line: &mut LineId, peer: PeerId, rail: RailId, short: &Short) -> ShortArrival {
        let Some(slot) = self.t.peers.get(peer.0 as usize) else { return ShortArrival::Slow };
        let channel = slot.channel;
        *line = LineId(channel);
        let Some(line) = self.t.lines.get_mut(channel as usize) else { return ShortArrival::Slow };
        if !line.expects(rail, short.counts) && !self.open_receiving(channel, rail, short.counts) {
            return ShortArrival::Slow;
        }
        if self.parts_waiting || !self.t.short_done.has_room() || short.flags & !Short::FLAGS != 0 {
            return ShortArrival::Slow;
        }
        let &Short { tag, immediate, len, flags, .. } = short;
        let is_tagged = flags & Short::TAGGED != 0;
        let taken = match self.t.matcher.posted.take_direct(peer, tag, is_tagged, len.into()) {
            Match::Direct(taken) => taken,
            Match::Other => return ShortArrival::Slow,
            Match::NoReceive => return self.keep_short(channel, rail, peer, short).unwrap_or(ShortArrival::Slow),
        };
        let (operation, at, cookie) = (direct_id(taken.key()), taken.at(), taken.cookie());
        let bytes = len.into();
        self.t.short_done.push(ShortCompletion { cookie, operation, tag, immediate, peer, bytes, flags });
        let line = &mut self.t.lines[channel as usize];
        if line.receive(len, &self.hot.own) && line.check(len, &self.hot.own) {
            self.short_received(channel);
        }
        if len == 0 { ShortArrival::Done } else { ShortArrival::At(at) }
    }

    /// The peer needs our limits, or its grants let a waiting request continue.
    #[cold]
    #[inline(never)]
    pub(super) fn short_received(&mut self, channel: u32) {
        if self.t.lines[channel as usize].must_announce() {
            self.fold_line(channel);
            self.channel_mut(channel).ack.make_due();
            self.activate(channel);
            // That acknowledgment carries them.
            self.t.lines[channel as usize].announced(&self.hot.own);
        } else if self.channel(channel).wants_room() {
            self.fold_line(channel);
            self.activate(channel);
        }
    }

    /// Handles a short message that can't use the short path, as if its packet had arrived (W-29). The answer
    /// is that of [`handle_arrival`](Self::handle_arrival).
    pub fn handle_short(&mut self, now: Time, peer: PeerId, rail: RailId, short: &Short) -> Arrival {
        match self.enter(now, peer, rail, None) {
            Err(arrival) => arrival,
            Ok((channel, sub)) => match self.short_by_packet(now, channel, rail, sub, short) {
                Ok(arrival) => arrival,
                Err(error) => {
                    self.offend(now, channel, error); // G-8
                    Arrival::Close
                }
            },
        }
    }

    fn short_by_packet(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        sub: usize,
        short: &Short,
    ) -> Result<Arrival, ProtocolError> {
        let slot = self.channel(channel);
        let (message_limit, block_limit) = short.counts.limits();
        // It acknowledges nothing (W-29), so these fields of `Common` are not read.
        let common = Common {
            source: slot.source,
            psn: short.counts.psn(),
            message_limit,
            block_limit,
            payload_bytes: short.len.into(),
            ..Common::default()
        };
        let head = MessageHead { tag: short.tag(), immediate: short.immediate(), ..MessageHead::default() };
        match self.let_in(now, channel, sub, &common)? {
            Some(State::Ready) => {
                self.keep_to_ring(channel, rail);
                let has_grown = self.take_limits(channel, short.counts.limits());
                if has_grown && self.channel(channel).wants_room() {
                    self.activate(channel);
                }
                self.arrive_message(now, channel, rail, &common, &head, None)
            }
            Some(_) => Err(ProtocolError::NotConnected), // G-1
            None => Ok(Arrival::Discard),
        }
    }

    /// Whether several completions of the express path were made since all were taken, as by a stream of
    /// messages.
    #[inline(always)]
    pub const fn has_several_done(&self) -> bool {
        self.t.short_done.has_several()
    }

    /// The next completion of the express path.
    #[inline]
    pub fn poll_short(&mut self) -> Option<&ShortCompletion> {
        self.t.short_done.pop()
    }

    /// All completions of the express path, oldest first.
    #[inline]
    pub fn poll_shorts(&mut self) -> &[ShortCompletion] {
        self.t.short_done.pop_all()
    }

    /// The operation that a receive without one became, or becomes now.
    pub(super) fn find_direct(&mut self, id: OpId) -> Option<(u32, bool)> {
        let key = Key { index: id.0.index & !DIRECT, ..id.0 };
        if id.0.index & DIRECT == 0 {
            return None;
        }
        match self.t.matcher.posted.promoted(key) {
            Some(op) => Some((op, false)),
            None => self.promote(key).map(|op| (op, true)),
        }
    }

    /// Whether a request exists that is not complete. Also `false` for one whose completion is not yet taken.
    pub fn is_open(&self, OpId(id): OpId) -> bool {
        let key = Key { index: id.index & !DIRECT, ..id };
        let op = match id.index & DIRECT != 0 {
            true => match self.t.matcher.posted.promoted(key) {
                Some(op) => Some(self.op(op)),
                None => return self.t.matcher.posted.direct(key).is_some(),
            },
            false => self.t.ops.get(id),
        };
        op.is_some_and(|op| !op.completed)
    }

    /// Whether a receive without operation names memory of a region.
    pub(super) fn direct_names(&self, names: impl Fn(&Seg) -> bool) -> bool {
        self.t.matcher.posted.directs().any(|(_, direct)| names(&direct.to))
    }
}

/// A receive that is complete when it is posted, because its message had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortReceived {
    /// The request; its completion is reported already.
    pub operation: OpId,
    /// The whole payload: copy it before the next call into the endpoint.
    pub from: Seg,
}

/// An unexpected message that a receive takes; good until the next call into the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub(super) key: Key,
    pub(super) message: u32,
}

impl Endpoint<'_> {
    /// Stores the next short message of an open line, for which no receive is posted, in a block. `None`:
    /// nothing has happened, because there is no room.
    #[inline(always)]
    fn keep_short(&mut self, channel: u32, rail: RailId, peer: PeerId, short: &Short) -> Option<ShortArrival> {
        let len = u32::from(short.len);
        let blocks = u32::from(len > 0);
        let index = self.t.messages.next_index()?;
        if len > self.config.block_bytes || self.t.blocks.free_len() < blocks {
            return None;
        }
        let slot = self.channel_mut(channel);
        // Beyond the grant: `arrive_message` reports the protocol error (C-3). Messages that the line counts
        // and the tables lack have passed, so they change nothing here.
        slot.grants.received(1, blocks).ok()?;
        slot.messages += 1;
        let is_crowded = slot.grants.is_crowded();
        let first = self.t.blocks.take_one(blocks)?;
        // As many entries as messages: there is room.
        let key = self.t.matcher.unexpected.store(peer, short.tag(), index).ok()?;
        let message = Message {
            channel,
            state: MessageState::Stored,
            tag: short.tag(),
            immediate: short.immediate(),
            len: len.into(),
            via: rail,
            blocks: first,
            block_count: blocks as u16,
            keys: NONE,
            next_in_packet: NONE,
            unexpected: key,
            used: MessageUse::Unexpected,
            ..Message::default()
        };
        let inserted = self.t.messages.insert(message);
        debug_assert_eq!(inserted.map(|key| key.index), Some(index), "another index than the one predicted");
        self.stats.unexpected += 1;
        self.stats.bytes_copied += u64::from(len);
        let line = &mut self.t.lines[channel as usize];
        if line.keep() | is_crowded {
            self.kept_short(channel, is_crowded);
        }
        Some(if len == 0 { ShortArrival::Done } else { ShortArrival::At(self.block_at(first)) })
    }

    /// The tables are looked at after a message that was kept. Where many are, further ones come as packets:
    /// then the tables count what the peer has used of its grant (C-4).
    #[cold]
    fn kept_short(&mut self, channel: u32, is_crowded: bool) {
        self.short_received(channel);
        self.fold_line(channel);
        if is_crowded {
            self.t.lines[channel as usize].close_receiving();
            self.announce_room(channel);
        }
    }

    fn block_at(&self, block: u32) -> MemRef {
        MemRef { region: RegionId::POOL, offset: u64::from(block) * u64::from(self.config.block_bytes) }
    }

    /// Receives an unexpected message that is whole and fits, if the receive is plain: one segment, one
    /// completion event. `None`: nothing has happened, use [`recv`](Self::recv).
    pub fn recv_waiting(&mut self, recv: &RecvRequest<'_>) -> Option<ShortReceived> {
        if recv.segments.len() != 1 || !self.is_plain(recv) {
            return None;
        }
        let (key, message) = self.t.matcher.unexpected.find(&recv.from)?;
        self.take_waiting(recv, Waiting { key, message })
    }

    /// As [`recv_waiting`](Self::recv_waiting), of the message that [`post_short`](Self::post_short) has just
    /// found for this receive.
    #[inline]
    pub fn take_waiting(&mut self, recv: &RecvRequest<'_>, found: Waiting) -> Option<ShortReceived> {
        let Waiting { key, message: index } = found;
        debug_assert!(self.is_plain(recv), "post_short finds nothing for others");
        let &[to] = recv.segments else { return None };
        if !self.t.short_done.has_room() {
            return None;
        }
        let Tables { messages, lines, short_done, matcher, .. } = &mut self.t;
        let message = messages.at(index);
        let &Message { channel, len, blocks, block_count, offset, .. } = message;
        let is_whole = message.state == MessageState::Stored && !message.rendezvous && !message.want_placed;
        if !is_whole || message.aborted.is_some() || block_count > 1 || offset != 0 || len > to.len {
            return None;
        }
        // It is invisible until it is committed. Filled at once, so nothing of it is kept across the rest.
        let done = short_done.next()?;
        let flags = |is_set: bool, flag| if is_set { flag } else { 0 };
        (done.cookie, done.bytes, done.peer) = (recv.cookie, len as u32, lines.get(channel as usize)?.peer());
        (done.tag, done.immediate) = (message.tag.unwrap_or(0), message.immediate.unwrap_or(0));
        done.flags = flags(message.tag.is_some(), Short::TAGGED) | flags(message.immediate.is_some(), Short::IMMEDIATE);
        self.waited = self.waited.wrapping_add(1);
        let operation = OpId(Key { index: WAITED, generation: self.waited });
        done.operation = operation;
        short_done.commit();
        matcher.unexpected.take(key);
        self.stats.bytes_copied += len;
        self.free_whole(index, channel, blocks, block_count);
        let from = if len == 0 { MemRef { region: RegionId::POOL, offset: 0 } } else { self.block_at(blocks) };
        Some(ShortReceived { operation, from: Seg { at: from, len } })
    }

    /// As [`free_message`](Self::free_message), for a message that is whole, no rendezvous, and in at most
    /// one block: it has no open placement and no keys. If the channel's line is open, this grants the room
    /// there and decides when the peer must receive the grant.
    #[inline(always)]
    fn free_whole(&mut self, message: u32, channel: u32, first: u32, blocks: u16) {
        let line = &mut self.t.lines[channel as usize];
        if line.receives_on().is_none() {
            return self.free_message(message);
        }
        let blocks = if self.t.blocks.give_one(first) { blocks } else { 0 };
        let must_check = line.release(blocks);
        self.t.messages.remove_at(message);
        let slot = self.channel_mut(channel);
        slot.messages -= 1;
        slot.grants.released(1, blocks.into());
        if must_check {
            self.short_received(channel);
        }
    }
}
