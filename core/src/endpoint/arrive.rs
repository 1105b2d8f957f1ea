//! Arrival of packets: checked, acknowledged, delivered. Whatever a peer sends, the worst effect is the end
//! of its channel.

use super::lifecycle::is_shutdown;
use super::timer::Timer;
use super::{Endpoint, LossReason, Peek, ProtocolError, RailFault};
use crate::api::action::Arrival;
use crate::ids::{PeerId, PlaceId, RailId};
use crate::op::{Control, MessageState, MessageUse, OpKind, Phase};
use crate::peer::{Channel, ChannelState, Ending, ORDERED, Place, PlaceTo, UNNUMBERED, UNORDERED};
use crate::rel::link::State;
use crate::seq::{Seq, window_is_valid};
use crate::time::Time;
use crate::wire::{self, Body, Common, Connect, Data, Kind, MessageHead, Packet, Probe};

impl Endpoint<'_> {
    /// A packet's header has arrived from `peer` on `rail`: `header` is exactly the header
    /// ([`header_len`](crate::wire::header_len) returns its length). The answer is the destination of the
    /// payload.
    pub fn handle_arrival(&mut self, now: Time, peer: PeerId, rail: RailId, header: &[u8]) -> Arrival {
        let (channel, sub) = match self.enter(now, peer, rail, Some(header)) {
            Ok(place) => place,
            Err(arrival) => return arrival,
        };
        let arrived = match wire::segment(header) {
            Some((common, data)) => self.arrive_segment(now, channel, sub, &common, &data),
            None => self.arrive(now, channel, rail, sub, header),
        };
        match arrived {
            Ok(arrival) => arrival,
            Err(error) => {
                self.offend(now, channel, error); // G-8
                Arrival::Close
            }
        }
    }

    /// Finds the channel of an arrived packet or short message, and the place of its subchannel; without
    /// these returns the verdict on it. `header` is a packet's.
    #[inline]
    pub(super) fn enter(
        &mut self,
        now: Time,
        peer: PeerId,
        rail: RailId,
        header: Option<&[u8]>,
    ) -> Result<(u32, usize), Arrival> {
        self.stats.packets_received += 1;
        if usize::from(rail.0) >= self.paths.rails.len() {
            self.stats.stale_dropped += 1;
            return Err(Arrival::Close);
        }
        let Some(channel) = self.t.channel_of(peer) else {
            self.stats.stale_dropped += 1;
            // An honest peer sent it before it received the end; the subchannel is about to be closed (G-10).
            let closing = self.refused.iter().any(|sub| *sub == (peer, rail));
            return Err(if closing { Arrival::Discard } else { Arrival::Close });
        };
        if self.channel(channel).is_over() {
            // Its subchannels are being closed already; BYE on the second rail is no violation (G-7, G-10).
            if let Some(header) = header {
                self.arrive_late(now, channel, rail, header);
            }
            self.stats.stale_dropped += 1;
            return Err(Arrival::Discard);
        }
        self.fold_line(channel);
        let sub = self.t.sub_index(channel, rail);
        if self.t.subs[sub].place.is_some() {
            // A rail delivers one packet of a subchannel at a time: this one is at fault, and the current
            // placement is lost.
            let fault = RailFault::Corrupt;
            self.sub_mut(channel, rail).history.down(now, fault, true);
            self.give_up(now, channel, LossReason::RailFailed { rail, fault });
            return Err(Arrival::Close);
        }
        Ok((channel, sub))
    }

    // Inlined, as its result is large.
    #[inline]
    fn arrive(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        sub: usize,
        header: &[u8],
    ) -> Result<Arrival, ProtocolError> {
        let packet = Packet::new_checked(header)?;
        if packet.kind() == Kind::Eager {
            // Handle the most frequent packet without the space of other kinds.
            let head = MessageHead::parse(&packet)?;
            let common = packet.common();
            return match self.let_in(now, channel, sub, &common)? {
                Some(State::Ready) => {
                    self.arrive_acks_of(channel, sub, &common)?;
                    self.arrive_message(now, channel, rail, &common, &head, None)
                }
                Some(_) => Err(ProtocolError::NotConnected), // G-1
                None => Ok(Arrival::Discard),
            };
        }
        let body = packet.body()?;
        let common = packet.common();
        let Some(state) = self.let_in(now, channel, sub, &common)? else { return Ok(Arrival::Discard) };
        if let Body::Connect(connect) = &body {
            self.arrive_connect(now, channel, rail, &common, connect)?;
        } else if state != State::Ready {
            return Err(ProtocolError::NotConnected); // G-1
        }
        if !matches!(body, Body::Connect(_)) {
            self.arrive_acks_of(channel, sub, &common)?;
        }
        let carries = matches!(
            body,
            Body::Aggregate { .. }
                | Body::Data(_)
                | Body::Put(_)
                | Body::PutImmediate(_)
                | Body::Probe(Probe { answer: false, .. })
        );
        if common.payload_bytes > 0 && !carries {
            return Err(ProtocolError::TooLong { bytes: common.payload_bytes.into() });
        }
        let arrival = match body {
            Body::Eager(_) => unreachable!("taken above"),
            Body::Data(data) => return self.arrive_data(now, channel, sub, &common, &data),
            Body::Rts(rts) => return self.arrive_message(now, channel, rail, &common, &rts.head, Some(&rts)),
            Body::Aggregate { count } => return self.arrive_aggregate(now, channel, rail, &common, count),
            Body::Connect(_) | Body::Credit | Body::Ack(_) => Arrival::Done, // A-8, S-10
            Body::Fence(fence) => {
                self.arrive_fence(now, channel, &common, &fence);
                Arrival::Done
            }
            Body::Probe(probe) => {
                if probe.answer {
                    self.probe_answered(now, channel, probe.nonce);
                    self.rail_answered(now, channel, rail, probe.nonce);
                } else {
                    self.sub_mut(channel, rail).probe_nonce = probe.nonce;
                    self.channel_mut(channel).work.answers.insert(rail); // G-6
                    self.defer_samples(now, channel, probe.nonce);
                    self.activate(channel);
                }
                // A payload only takes its time.
                if common.payload_bytes > 0 { Arrival::Discard } else { Arrival::Done }
            }
            Body::Address(address) => self.arrive_address(now, channel, &address),
            Body::Park(park) => {
                self.arrive_park(now, channel, rail, park);
                Arrival::Done
            }
            Body::Bye => {
                if self.has_overtaken(channel, rail) {
                    self.channel_mut(channel).bye_early = true;
                } else {
                    self.end_channel(channel, Ending::Closed); // G-7
                }
                Arrival::Done
            }
            Body::Cts(_)
            | Body::Fin(_)
            | Body::Put(_)
            | Body::PutImmediate(_)
            | Body::Get(_)
            | Body::Atomic(_)
            | Body::AtomicReply(_)
            | Body::Resume(_) => return self.arrive_unordered(now, channel, rail, &common, &body),
        };
        Ok(arrival)
    }

    /// As [`arrive`](Self::arrive), of a segment: without the space of other kinds.
    #[inline]
    fn arrive_segment(
        &mut self,
        now: Time,
        channel: u32,
        sub: usize,
        common: &Common,
        data: &Data,
    ) -> Result<Arrival, ProtocolError> {
        match self.let_in(now, channel, sub, common)? {
            Some(State::Ready) => {
                self.arrive_acks_of(channel, sub, common)?;
                self.arrive_data(now, channel, sub, common, data)
            }
            Some(_) => Err(ProtocolError::NotConnected), // G-1
            None => Ok(Arrival::Discard),
        }
    }

    /// Whether what arrives on a rail may have overtaken messages in a ring (S-12): that brings BYE, too.
    fn has_overtaken(&mut self, channel: u32, rail: RailId) -> bool {
        let subs = self.paths.rails.iter().zip(self.t.subs_of(channel));
        self.paths.lossy >> rail.0 & 1 == 1 && subs.into_iter().any(|(facts, sub)| facts.caps.lossless && sub.is_up())
    }

    /// Checks that a packet comes from its peer over a connection that is up; returns the state of this end.
    /// `None`: this end has ended the connection.
    #[inline]
    pub(super) fn let_in(
        &mut self,
        now: Time,
        channel: u32,
        sub: usize,
        common: &Common,
    ) -> Result<Option<State>, ProtocolError> {
        let slot = self.channel_mut(channel);
        if common.source != slot.source && slot.source != UNNUMBERED {
            return Err(ProtocolError::WrongSource { named: common.source }); // S-11
        }
        slot.silence.last_received = now;
        let sub = &mut self.t.subs[sub];
        sub.last_received = now;
        let state = sub.link.state();
        // G-5
        if matches!(state, State::Down | State::Connecting) {
            self.stats.stale_dropped += 1;
            return Ok(None);
        }
        Ok(Some(state))
    }

    fn arrive_connect(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        common: &Common,
        connect: &Connect,
    ) -> Result<(), ProtocolError> {
        if common.source == UNNUMBERED {
            return Err(ProtocolError::WrongSource { named: common.source }); // S-11
        }
        let (known, is_resumed) = (self.channel(channel).peer_parameters, self.channel(channel).park.is_resumed);
        let sub = self.sub_mut(channel, rail);
        let is_first = sub.link.state() == State::Up;
        let is_other = is_resumed && known.is_some_and(|known| known.first_number != connect.first_number);
        if is_other || known.is_none() && connect.parked > 0 {
            // K-5: one side goes on with a channel that the other has closed and forgotten.
            self.end_channel(channel, Ending::Closed);
            return Ok(());
        }
        let sub = self.sub_mut(channel, rail);
        let changed = known.is_some_and(|peer_parameters| {
            let &Connect { rail, connection, answer, parked, .. } = connect;
            Connect { rail, connection, answer, parked, ..peer_parameters } != *connect
        }) || sub.link.state() == State::Ready
            && (sub.peer_rail, sub.link.pair().yours) != (connect.rail, connect.connection);
        if changed || !window_is_valid(connect.window) || connect.block_bytes == 0 {
            return Err(ProtocolError::BadParameters); // G-3
        }
        let verdict = sub.link.connect(connect.connection);
        if verdict.abort {
            self.leave_old(now, channel, rail, verdict);
            return Ok(());
        }
        sub.peer_rail = connect.rail;
        self.refresh(channel, rail);
        if is_first {
            if self.connect_parked(now, channel, rail, connect.parked) {
                self.request_fences(channel);
            }
            self.subchannel_ready(now, channel, rail, verdict);
        }
        let slot = self.channel_mut(channel);
        if slot.peer_parameters.is_none() {
            slot.peer_parameters = Some(*connect); // G-3, G-4
            slot.source = common.source; // S-11
            slot.begin_receiving(Seq(connect.first_number));
            slot.allowance.update(common.message_limit, common.block_limit);
            if slot.state() == ChannelState::Connecting {
                slot.enter(ChannelState::Open);
            }
            slot.up_event_pending = true;
            self.t.cancel_timer(channel, Timer::Connect);
            self.queue_channel_event(channel);
        }
        self.activate(channel);
        Ok(())
    }

    /// Acknowledgments and limits that every packet carries (A-1, C-1).
    #[inline(always)]
    pub(super) fn arrive_acks_of(&mut self, channel: u32, sub: usize, common: &Common) -> Result<(), ProtocolError> {
        // No news: the usual case in one-way streams.
        if has_message(self.channel(channel), common) {
            self.arrive_acks_and_limits(channel, sub, common)
        } else {
            Ok(())
        }
    }

    #[inline(never)]
    pub(super) fn arrive_acks_and_limits(
        &mut self,
        channel: u32,
        sub: usize,
        common: &Common,
    ) -> Result<(), ProtocolError> {
        // A peer that connects only to send BYE has dropped its earlier state (G-10).
        let connection = self.t.subs[sub].link.pair().yours;
        if self
            .channel(channel)
            .peer_parameters
            .is_some_and(|peer_parameters| is_shutdown(peer_parameters.first_number, connection))
        {
            return Ok(());
        }
        let mut newly_acked = 0;
        if Seq(common.ack_ordered) != self.channel(channel).sent[ORDERED].acked() {
            newly_acked += self.arrive_ack::<ORDERED>(channel, common.ack_ordered, false)?;
        }
        if Seq(common.ack_unordered) != self.channel(channel).sent[UNORDERED].acked() {
            newly_acked += self.arrive_ack::<UNORDERED>(channel, common.ack_unordered, common.refusing)?;
        }
        let slot = self.channel_mut(channel);
        if slot.requests.is_unconfirmed && !common.refusing && Seq(common.ack_unordered) == slot.sent[UNORDERED].acked()
        {
            slot.requests.is_unconfirmed = false;
            self.complete_puts(channel);
        }
        let slot = self.channel_mut(channel);
        let fresh = Seq(common.ack_ordered) == slot.sent[ORDERED].acked(); // C-6
        let mut grown = fresh && slot.allowance.update(common.message_limit, common.block_limit);
        if !fresh && self.express_rail(channel).is_some_and(|rail| self.t.sub_index(channel, rail) == sub) {
            let slot = self.channel_mut(channel);
            grown = slot.allowance.update_in_order(common.message_limit, common.block_limit);
        }
        if (newly_acked > 0 || grown) && self.channel(channel).wants_room() {
            self.activate(channel);
        }
        Ok(())
    }

    /// The peer has everything of a lane before `cumulative`. Returns how many packets are newly
    /// acknowledged.
    fn arrive_ack<const LANE: usize>(
        &mut self,
        channel: u32,
        cumulative: u32,
        refusing: bool,
    ) -> Result<u32, ProtocolError> {
        let slot = self.channel_mut(channel);
        let acked = slot.sent[LANE].ack(Seq(cumulative));
        let fresh = acked.map_err(|_| ProtocolError::Sequence { psn: cumulative })?;
        // Only packets that this one is the first to acknowledge are unconfirmed; an older packet that
        // arrives late proves nothing.
        if refusing && fresh > 0 {
            slot.requests.is_unconfirmed = true;
            slot.express_budget.stop_receiving();
        }
        let may_be_short = LANE == ORDERED && slot.shorts > 0;
        let mut messages = if may_be_short { self.acknowledge_shorts(channel) } else { 0 };
        loop {
            let (slot, slots) = self.t.sent(channel, LANE);
            let Some((_, packet)) = slot.sent[LANE].pop_acked(slots) else { break };
            messages += self.acknowledged(packet);
        }
        if LANE == ORDERED && fresh > 0 {
            self.channel_mut(channel).allowance.acked(messages); // C-6
        }
        Ok(fresh)
    }

    /// Packets of the unordered lane: processed on arrival (S-9).
    fn arrive_unordered(
        &mut self,
        now: Time,
        channel: u32,
        rail: RailId,
        common: &Common,
        body: &Body,
    ) -> Result<Arrival, ProtocolError> {
        let psn = Seq(common.psn);
        if !self.claim_psn(now, channel, UNORDERED, psn)? {
            return Ok(Arrival::Discard);
        }
        match body {
            Body::Put(put) => return self.arrive_put(now, channel, rail, common, put),
            Body::PutImmediate(put) => return self.arrive_put_immediate(now, channel, rail, common, put),
            _ => {}
        }
        self.received(now, channel, UNORDERED, psn, 0, common.ack_now);
        match body {
            Body::Cts(cts) => self.arrive_cts(channel, cts),
            Body::Resume(resume) => self.arrive_resume(channel, resume),
            Body::Fin(fin) => self.arrive_fin(channel, fin),
            Body::Get(get) => self.arrive_get(channel, get)?,
            Body::Atomic(atomic) => self.arrive_atomic(channel, atomic)?,
            Body::AtomicReply(reply) => {
                if let Some(op) = self.find_own(channel, reply.operation, OpKind::Atomic, Phase::Waiting) {
                    let slot = self.op_mut(op);
                    slot.old = reply.old;
                    slot.fin_seen = true;
                    self.complete_if_done(op);
                }
            }
            _ => {}
        }
        Ok(Arrival::Done)
    }

    fn arrive_data(
        &mut self,
        now: Time,
        channel: u32,
        sub: usize,
        common: &Common,
        data: &Data,
    ) -> Result<Arrival, ProtocolError> {
        let (psn, len) = (Seq(common.psn), u64::from(common.payload_bytes));
        if !self.claim_psn(now, channel, UNORDERED, psn)? {
            return Ok(Arrival::Discard);
        }
        let op = self.t.find_op(data.operation).filter(|&op| {
            let slot = self.op(op);
            let into = match slot.kind() {
                // The CTS carries the operation's number. A peer that uses it before the CTS is sent has
                // guessed it.
                OpKind::Recv | OpKind::Part => {
                    matches!(slot.phase(), Phase::Data | Phase::Written) && slot.control == Control::None
                }
                OpKind::Get => slot.phase() == Phase::Waiting,
                _ => false,
            };
            into && slot.channel == channel && !slot.completed && slot.error.is_none()
        });
        let Some(op) = op else {
            self.stats.stale_dropped += 1;
            self.received(now, channel, UNORDERED, psn, 0, common.ack_now);
            return Ok(Arrival::Discard);
        };
        let slot = self.op_mut(op);
        if data.offset.checked_add(len).is_none_or(|end| end > slot.granted) {
            return Err(ProtocolError::OutOfRange { offset: data.offset });
        }
        match slot.kind() {
            OpKind::Get => slot.fin_seen = true,
            _ if slot.phase() == Phase::Written => {
                // The sender could not use our keys.
                slot.enter(Phase::Data);
                slot.needs_fin = true;
                self.set_fins_pending(op, true);
            }
            _ => {}
        }
        let slot = self.op_mut(op);
        if len == 0 {
            self.received(now, channel, UNORDERED, psn, 0, common.ack_now);
            self.complete_if_done(op);
            return Ok(Arrival::Done);
        }
        slot.places += 1;
        // What frees the sender's buffer is our FIN, so no bytes are to be acknowledged.
        let place =
            Place { offset: data.offset, payload_bytes: 0, ..Place::new(PlaceTo::Op(op), len, UNORDERED, common) };
        Ok(Arrival::Place { id: self.t.open_place(sub, place), memory: self.t.op_span(op, data.offset, len) })
    }

    /// The payload of a placement is in place. A stale id is counted and dropped.
    ///
    /// `peek` reads payload memory: it fills the bytes from the given place. The core calls it only for the
    /// record heads of an aggregate (W-11), in the payload pool.
    pub fn handle_placed(&mut self, now: Time, id: PlaceId, peek: Peek<'_>) {
        let Some(place) = self.t.place(id).copied() else {
            self.stats.stale_dropped += 1;
            return;
        };
        let sub = id.0.index;
        self.t.subs[sub as usize].place = None;
        let channel = sub / u32::from(self.config.rails_max);
        if let PlaceTo::Message(message) = place.to
            && self.message(message).state == MessageState::Sealed
        {
            self.aggregate_placed(now, channel, message, &place, peek);
            return;
        }
        self.received(now, channel, place.lane, place.psn, place.payload_bytes, place.ack_now);
        match place.to {
            PlaceTo::Op(op) => {
                let slot = self.op_mut(op);
                slot.places -= 1;
                slot.moved += place.len;
                self.complete_if_done(op);
            }
            PlaceTo::Message(message) => {
                let slot = self.message_mut(message);
                slot.state = MessageState::Stored;
                if slot.used == MessageUse::Received {
                    let recv = slot.recv;
                    self.queue_copy(recv);
                }
            }
            PlaceTo::Window { window, .. } => {
                let slot = self.t.windows.at_mut(window);
                slot.users -= 1;
            }
        }
    }
}

/// Whether a packet carries an acknowledgment or a limit that is new.
#[inline(always)]
pub(super) fn has_message(slot: &Channel, common: &Common) -> bool {
    slot.sent[ORDERED].acked() != Seq(common.ack_ordered)
        || slot.sent[UNORDERED].acked() != Seq(common.ack_unordered)
        || slot.requests.is_unconfirmed
        || !slot.allowance.is_known(common.message_limit, common.block_limit)
}
