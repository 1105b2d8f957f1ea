//! Rounds about the receiving side: many messages into one buffer, buffers that are too short, messages found
//! by probe, receives taken back.

use rerail_core::endpoint::{CancelError, Done, Found, OpError, RecvRequest, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::mem::Seg;

use super::pattern;
use super::plan::Transfer;
use super::rank::{Slot, Worker, beyond, describe_outcome, multi_bytes, slot_bytes};
use super::verify::describe;
use crate::session::{SessionError, Ticket};

impl Worker {
    fn send_filled(&mut self, outbound: &[Slot]) -> Result<Vec<(Transfer, Ticket)>, SessionError> {
        outbound
            .iter()
            .map(|slot| {
                self.fill(slot);
                Ok((slot.transfer, self.send(slot)?))
            })
            .collect()
    }

    /// One buffer per source takes message after message; a released one is posted again.
    pub(super) fn multi_receive(&mut self) -> Result<(), SessionError> {
        let outbound = self.outbound();
        let sources = self.round.sources(self.me(), self.session.size());
        let bytes = multi_bytes(&self.round);
        let mut streams = Vec::new();
        for (source, index) in sources.into_iter().zip(0..) {
            let seg = Seg::new(self.incoming, index * slot_bytes(bytes), bytes);
            streams.push((source, seg, self.post_multi(source, seg)?));
        }
        self.barrier()?;
        let sends = self.send_filled(&outbound)?;
        self.may_die();
        for (source, seg, ticket) in streams {
            self.take_stream(source, seg, ticket)?;
        }
        self.wait_all(sends)
    }

    fn post_multi(&mut self, source: u32, seg: Seg) -> Result<Ticket, SessionError> {
        self.guard(seg);
        let from = self.exactly(source);
        // Every message of the round fits where that much is free.
        let multi = Some(self.round.bytes.max(1));
        self.session.recv(RecvRequest { multi, ..RecvRequest::new(from, &[seg]) })
    }

    /// Takes a source's messages. Events may come in any order within a buffer, but the one that releases it
    /// is its last; by their numbers (M-9) the messages must stand in the buffer in their order, back to
    /// back.
    fn take_stream(&mut self, source: u32, seg: Seg, mut ticket: Ticket) -> Result<(), SessionError> {
        let transfers: Vec<Transfer> = self.round.clone().transfers(source, self.me()).collect();
        let mut rest = transfers.as_slice();
        let mut buffer: Vec<(u32, Done)> = Vec::new();
        loop {
            let (index, outcome) = self.session.wait_part(ticket)?;
            let done = match outcome {
                Ok(done) => done,
                Err(error) => {
                    self.judge_error(&transfers[0], &error);
                    return Ok(());
                }
            };
            buffer.push((index, done));
            let all = buffer.len() == rest.len();
            if !all && !done.released {
                continue;
            }
            let (here, later) = rest.split_at(buffer.len());
            self.judge_buffer(here, seg, &mut buffer);
            rest = later;
            if all && !done.released {
                self.take_stream_back(&transfers[0], ticket)?;
            }
            if all {
                return Ok(());
            }
            buffer.clear();
            ticket = self.post_multi(source, seg)?;
        }
    }

    fn judge_buffer(&mut self, transfers: &[Transfer], seg: Seg, buffer: &mut [(u32, Done)]) {
        buffer.sort_by_key(|&(index, _)| index);
        let mut at = 0;
        for ((transfer, (index, done)), wanted) in transfers.iter().zip(&*buffer).zip(0..) {
            if *index != wanted {
                return self.wrong(transfer, format!("a message has number {index} in its buffer, not {wanted}"));
            }
            if done.offset != at || done.offset.saturating_add(done.bytes) > seg.len {
                let what = format!("{} B are reported at offset {}, the next is {at}", done.bytes, done.offset);
                return self.wrong(transfer, what);
            }
            at += done.bytes;
            self.judge_part(transfer, Seg::new(seg.at.region, seg.at.offset + done.offset, done.bytes), done);
        }
        if let Some(transfer) = transfers.first()
            && !self.guard_is_whole(seg)
        {
            self.wrong(transfer, beyond());
        }
    }

    /// As the judge of whole messages, but the next message stands where the guard would be.
    fn judge_part(&mut self, transfer: &Transfer, seg: Seg, done: &Done) {
        let envelope = (done.bytes, done.peer.0, done.tag, done.immediate);
        let wanted = (transfer.bytes, transfer.source, Some(self.tag()), Some(Self::immediate(transfer)));
        let difference = pattern::compare(&self.key(transfer), 0, self.session.bytes(seg));
        match difference {
            _ if envelope != wanted => {
                self.wrong(transfer, format!("{} came, not {}", envelope_text(envelope), envelope_text(wanted)));
            }
            Some(difference) => self.wrong(transfer, describe(&difference)),
            None => self.verified(transfer),
        }
    }

    /// Cancels a multi-receive that has taken messages: its last event releases the buffer and is no message.
    fn take_stream_back(&mut self, transfer: &Transfer, ticket: Ticket) -> Result<(), SessionError> {
        let cancelled = self.session.cancel(&ticket);
        match (cancelled, self.session.wait(ticket)?) {
            (Ok(()), Ok(Done { bytes: 0, released: true, .. }) | Err(OpError::Cancelled)) => {}
            (_, Err(error @ (OpError::PeerLost { .. } | OpError::PeerClosed { .. }))) => {
                self.judge_error(transfer, &error);
            }
            (cancelled, outcome) => {
                let ended = describe_outcome(&outcome);
                self.wrong(transfer, format!("{}, the buffer ended {ended}", cancel_text(&cancelled)));
            }
        }
        Ok(())
    }

    /// Cancels a receive that nothing will match.
    fn take_back(&mut self, transfer: &Transfer, ticket: Ticket) -> Result<(), SessionError> {
        let cancelled = self.session.cancel(&ticket);
        match (cancelled, self.session.wait(ticket)?) {
            (Ok(()), Err(OpError::Cancelled)) => {}
            (_, Err(error @ (OpError::PeerLost { .. } | OpError::PeerClosed { .. }))) => {
                self.judge_error(transfer, &error);
            }
            (cancelled, outcome) => {
                let ended = describe_outcome(&outcome);
                self.wrong(transfer, format!("{}, the receive ended {ended}", cancel_text(&cancelled)));
            }
        }
        Ok(())
    }

    /// Every other buffer is half as long as its message.
    pub(super) fn truncation(&mut self) -> Result<(), SessionError> {
        let (outbound, inbound) = (self.outbound(), self.inbound());
        let short = |slot: &Slot| {
            let cut = slot.transfer.number.is_multiple_of(2);
            Seg { len: if cut { slot.seg.len / 2 } else { slot.seg.len }, ..slot.seg }
        };
        let mut receives = Vec::new();
        for slot in &inbound {
            receives.push(self.recv(&slot.transfer, short(slot))?);
        }
        self.barrier()?;
        let sends = self.send_filled(&outbound)?;
        self.may_die();
        for (slot, receive) in inbound.iter().zip(receives) {
            let (seg, outcome) = (short(slot), self.session.wait(receive)?);
            let transfer = &slot.transfer;
            if seg.len == slot.seg.len {
                self.judge(slot, Some(self.tag()), &outcome);
                continue;
            }
            let wanted = OpError::Truncated {
                sent: transfer.bytes,
                capacity: seg.len,
                peer: PeerId(transfer.source),
                tag: Some(self.tag()),
                immediate: Some(Self::immediate(transfer)),
            };
            match outcome {
                Err(error) if error == wanted => self.judge_bytes(&Slot { transfer: *transfer, seg }),
                Err(error @ (OpError::PeerLost { .. } | OpError::PeerClosed { .. })) => {
                    self.judge_error(transfer, &error);
                }
                outcome => {
                    let (ended, wanted) = (describe_outcome(&outcome), describe_outcome(&Err(wanted)));
                    self.wrong(transfer, format!("ended {ended}; expected {wanted}"));
                }
            }
        }
        self.wait_all(sends)
    }

    /// Probe, claim, receive.
    pub(super) fn claim(&mut self) -> Result<(), SessionError> {
        let (outbound, inbound) = (self.outbound(), self.inbound());
        let sends = self.send_filled(&outbound)?;
        self.may_die();
        self.barrier()?;
        for slot in &inbound {
            let transfer = &slot.transfer;
            let from = self.exactly(transfer.source);
            let seen = self.session.probe(&from);
            let Some((message, found)) = self.session.claim(&from) else {
                if self.session.is_here(transfer.source) {
                    self.wrong(transfer, "is not there to claim, though it was sent before a barrier".to_owned());
                } else {
                    self.tally.cut_short += 1;
                }
                continue;
            };
            let envelope = (found.peer.0, found.tag, found.immediate, found.bytes);
            let wanted = (transfer.source, Some(self.tag()), Some(Self::immediate(transfer)), transfer.bytes);
            self.guard(slot.seg);
            let receive = RecvRequest { segments: &[slot.seg], ..RecvRequest::new(from, &[]) };
            let ticket = self.session.recv_claimed(message, receive)?;
            let outcome = self.session.wait(ticket)?;
            if seen != Some(found) || envelope != wanted {
                let text = |of: &Found| envelope_text((of.bytes, of.peer.0, of.tag, of.immediate));
                let seen = seen.as_ref().map_or("nothing".to_owned(), text);
                let (source, tag, immediate, bytes) = wanted;
                let sent = envelope_text((bytes, source, tag, immediate));
                self.wrong(transfer, format!("probe saw {seen}, claim took {}, {sent} was sent", text(&found)));
            }
            self.judge(slot, Some(self.tag()), &outcome);
        }
        self.wait_all(sends)
    }

    /// Receives without a match are cancelled; later messages go to the next receives.
    pub(super) fn cancel(&mut self) -> Result<(), SessionError> {
        let (outbound, inbound) = (self.outbound(), self.inbound());
        let mut receives = Vec::new();
        for slot in &inbound {
            receives.push(self.recv(&slot.transfer, slot.seg)?);
        }
        self.barrier()?;
        for (slot, receive) in inbound.iter().zip(receives) {
            self.take_back(&slot.transfer, receive)?;
        }
        self.barrier()?;
        let mut sends = Vec::new();
        for slot in &outbound {
            let send = SendRequest {
                tag: Some(self.tag()),
                immediate: Some(Self::immediate(&slot.transfer)),
                ..SendRequest::new(PeerId(slot.transfer.target), &[])
            };
            sends.push((slot.transfer, self.session.inject(send, &[])?));
        }
        self.may_die();
        for slot in &inbound {
            let receive = self.recv(&slot.transfer, slot.seg)?;
            let outcome = self.session.wait(receive)?;
            self.judge(slot, Some(self.tag()), &outcome);
        }
        self.wait_all(sends)
    }
}

/// A message, for people: bytes, source, tag, immediate data.
fn envelope_text((bytes, source, tag, immediate): (u64, u32, Option<u64>, Option<u64>)) -> String {
    let number = |number: Option<u64>| number.map_or("none".to_owned(), |number| format!("{number:#x}"));
    format!("{bytes} B from rank {source} with tag {} and immediate {}", number(tag), number(immediate))
}

/// What became of a cancellation, for people.
fn cancel_text(cancelled: &Result<(), CancelError>) -> String {
    match cancelled {
        Ok(()) => "it was cancelled".to_owned(),
        Err(why) => format!("the cancellation was refused ({why})"),
    }
}
