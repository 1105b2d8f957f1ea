//! Rounds of plain messages: posted first or unexpected, tagged or not, from one source or any, whole or in
//! pieces, injected; they differ only in how requests are made.

use rerail_core::endpoint::{RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::PeerId;
use rerail_core::mem::Seg;

use super::pattern;
use super::plan::{Kind, Transfer};
use super::rank::{GUARD, GUARD_BYTES, Slot, Worker};
use super::verify::describe;
use crate::session::{Outcome, SessionError, Ticket};

impl Worker {
    /// Runs such a round.
    pub(super) fn two_sided(&mut self) -> Result<(), SessionError> {
        let (outbound, inbound) = (self.outbound(), self.inbound());
        let (sends, receives);
        if self.round.kind == Kind::Unexpected {
            sends = self.send_all(&outbound)?;
            self.may_die();
            // The tokens of the barrier travel behind the messages.
            self.barrier()?;
            receives = self.post_all(&inbound)?;
        } else {
            receives = self.post_all(&inbound)?;
            self.barrier()?;
            sends = self.send_all(&outbound)?;
            self.may_die();
        }
        if self.round.kind == Kind::Wildcard {
            self.wait_any(&inbound, receives)?;
        } else {
            for (slot, receive) in inbound.iter().zip(receives) {
                let outcome = self.session.wait(receive)?;
                self.judge_received(slot, &outcome);
            }
        }
        self.wait_all(sends)
    }

    fn send_all(&mut self, outbound: &[Slot]) -> Result<Vec<(Transfer, Ticket)>, SessionError> {
        outbound
            .iter()
            .map(|slot| {
                let ticket = match self.round.kind {
                    Kind::Inject => self.inject(slot)?,
                    Kind::Segments => self.send_in_pieces(slot)?,
                    Kind::Scattered => self.send_scattered(slot)?,
                    _ => {
                        self.fill(slot);
                        self.send_plainly(slot)?
                    }
                };
                Ok((slot.transfer, ticket))
            })
            .collect()
    }

    /// The tag with which a message of this round travels.
    fn tag_of(&self, transfer: &Transfer) -> Option<u64> {
        match self.round.kind {
            Kind::Untagged => None,
            Kind::Wildcard => Some(self.tag() | transfer.number),
            _ => Some(self.tag()),
        }
    }

    /// A send without its payload.
    fn envelope(&self, transfer: &Transfer) -> SendRequest<'static> {
        SendRequest {
            tag: self.tag_of(transfer),
            immediate: Some(Self::immediate(transfer)),
            level: Self::level(transfer),
            ..SendRequest::new(PeerId(transfer.target), &[])
        }
    }

    fn send_plainly(&mut self, slot: &Slot) -> Result<Ticket, SessionError> {
        let segments = [slot.seg];
        let send = SendRequest { segments: &segments, ..self.envelope(&slot.transfer) };
        self.session.send(send)
    }

    fn inject(&mut self, slot: &Slot) -> Result<Ticket, SessionError> {
        let mut payload = vec![0; slot.seg.len as usize];
        pattern::fill(&self.key(&slot.transfer), 0, &mut payload);
        let send = self.envelope(&slot.transfer);
        let ticket = self.session.inject(send, &payload)?;
        payload.fill(0xff);
        Ok(ticket)
    }

    /// The payload's thirds, in memory in the opposite order.
    fn send_in_pieces(&mut self, slot: &Slot) -> Result<Ticket, SessionError> {
        let pieces = pieces(slot.seg, 3);
        let key = self.key(&slot.transfer);
        for &(offset, seg) in &pieces {
            pattern::fill(&key, offset, self.session.bytes_mut(seg));
        }
        let segments: Vec<Seg> = pieces.iter().map(|&(_, seg)| seg).collect();
        let send = SendRequest { segments: &segments, ..self.envelope(&slot.transfer) };
        self.session.send(send)
    }

    /// Pieces beside each other, filled from the whole payload.
    fn send_scattered(&mut self, slot: &Slot) -> Result<Ticket, SessionError> {
        let mut payload = vec![0; slot.seg.len as usize];
        pattern::fill(&self.key(&slot.transfer), 0, &mut payload);
        let pieces = scattered(slot.seg, 2 * slot.transfer.number);
        for (offset, seg) in &pieces {
            let part = &payload[*offset as usize..][..seg.len as usize];
            self.session.bytes_mut(*seg).copy_from_slice(part);
        }
        let segments = pieces.map(|(_, seg)| seg);
        let send = SendRequest { segments: &segments, ..self.envelope(&slot.transfer) };
        self.session.send(send)
    }

    /// What is wrong with a message received in pieces beside each other, or with what lies between them.
    fn scattered_problem(&mut self, slot: &Slot) -> Option<String> {
        let pieces = scattered(slot.seg, 2 * slot.transfer.number + 1);
        let mut payload = vec![0; slot.seg.len as usize];
        for (offset, seg) in &pieces {
            payload[*offset as usize..][..seg.len as usize].copy_from_slice(self.session.bytes(*seg));
            self.session.bytes_mut(*seg).fill(GUARD);
        }
        let is_whole = self.session.bytes(area(slot.seg)).iter().all(|&byte| byte == GUARD);
        let difference = pattern::compare(&self.key(&slot.transfer), 0, &payload).map(|found| describe(&found));
        difference.or_else(|| (!is_whole).then(|| "bytes were written between the pieces".to_owned()))
    }

    fn post_all(&mut self, inbound: &[Slot]) -> Result<Vec<Ticket>, SessionError> {
        inbound.iter().map(|slot| self.post(slot)).collect()
    }

    fn post(&mut self, slot: &Slot) -> Result<Ticket, SessionError> {
        self.guard(slot.seg);
        let source = Some(PeerId(slot.transfer.source));
        let tag = TagMatch::Tagged { tag: self.tag(), ignore: 0 };
        let from = match self.round.kind {
            Kind::Wildcard => Selector { source: None, tag: TagMatch::Tagged { tag: self.tag(), ignore: 0xffff } },
            Kind::Untagged => Selector { source, tag: TagMatch::Untagged },
            _ => Selector { source, tag },
        };
        let segments: Vec<Seg> = match self.round.kind {
            Kind::Segments => pieces(slot.seg, 2).into_iter().map(|(_, seg)| seg).collect(),
            Kind::Scattered => {
                self.session.bytes_mut(area(slot.seg)).fill(GUARD);
                scattered(slot.seg, 2 * slot.transfer.number + 1).map(|(_, seg)| seg).to_vec()
            }
            _ => vec![slot.seg],
        };
        self.session.recv(RecvRequest::new(from, &segments))
    }

    fn judge_received(&mut self, slot: &Slot, outcome: &Outcome) {
        let tag = self.tag_of(&slot.transfer);
        let Ok(_) = outcome else { return self.judge(slot, tag, outcome) };
        if self.round.kind == Kind::Segments {
            let key = self.key(&slot.transfer);
            for (offset, seg) in pieces(slot.seg, 2) {
                if let Some(difference) = pattern::compare(&key, offset, self.session.bytes(seg)) {
                    return self.wrong(&slot.transfer, describe(&difference));
                }
            }
            // Every piece is right: put into order, without memory for a second copy, they are the whole that
            // the judge looks for.
            pattern::fill(&key, 0, self.session.bytes_mut(slot.seg));
        }
        if self.round.kind == Kind::Scattered {
            if let Some(problem) = self.scattered_problem(slot) {
                return self.wrong(&slot.transfer, problem);
            }
            // As above.
            pattern::fill(&self.key(&slot.transfer), 0, self.session.bytes_mut(slot.seg));
        }
        self.judge(slot, tag, outcome);
    }

    /// Waits until every message of every living rank has been received, wherever it went.
    fn wait_any(&mut self, inbound: &[Slot], receives: Vec<Ticket>) -> Result<(), SessionError> {
        let ranks = self.session.size();
        let mut outcomes: Vec<Option<Outcome>> = vec![None; receives.len()];
        let mut received = vec![0; ranks as usize];
        loop {
            for (ticket, outcome) in receives.iter().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none()) {
                *outcome = self.session.take(ticket);
                if let Some(Ok(done)) = outcome
                    && let Some(count) = received.get_mut(done.peer.0 as usize)
                {
                    *count += 1;
                }
            }
            let whole = |rank: u32| received[rank as usize] >= self.round.count || !self.session.is_here(rank);
            if (0..ranks).all(whole) || outcomes.iter().all(Option::is_some) {
                break;
            }
            self.session.step()?;
        }
        // Receives are left over only where a rank was lost: nothing will match them any more.
        for (ticket, outcome) in receives.iter().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none()) {
            let _ = self.session.cancel(ticket);
            *outcome = Some(self.session.wait(*ticket)?);
        }
        self.judge_any(inbound, &outcomes);
        Ok(())
    }

    /// Receives match in the order in which they were posted, so each rank's messages must appear in its
    /// order; for a lost rank, the numbers of messages that lost their receives with it are left out.
    fn judge_any(&mut self, inbound: &[Slot], outcomes: &[Option<Outcome>]) {
        let mut next = vec![0; self.session.size() as usize];
        for (slot, outcome) in inbound.iter().zip(outcomes) {
            match outcome {
                Some(Ok(done)) => {
                    let Some(number) = next.get_mut(done.peer.0 as usize) else {
                        self.wrong(&slot.transfer, format!("a message came from rank {}", done.peer.0));
                        continue;
                    };
                    let transfer = Transfer { source: done.peer.0, number: *number, ..slot.transfer };
                    *number += 1;
                    let tag = self.tag_of(&transfer);
                    self.judge(&Slot { transfer, ..*slot }, tag, &Ok(*done));
                }
                Some(Err(rerail_core::endpoint::OpError::Cancelled)) if !self.session.lost().is_empty() => {
                    self.tally.cut_short += 1;
                }
                Some(Err(error)) => {
                    // It had matched a message of the lost rank with an incomplete payload. Later ones may
                    // have been complete: announced messages match their receives in order, their payloads
                    // come in any.
                    if let rerail_core::endpoint::OpError::PeerLost { peer, .. } = error
                        && let Some(number) = next.get_mut(peer.0 as usize)
                    {
                        *number += 1;
                    }
                    self.judge_error(&slot.transfer, error);
                }
                None => self.wrong(&slot.transfer, "has no outcome".to_owned()),
            }
        }
    }
}

/// A buffer in pieces of about equal length, cut at multiples of 8 bytes: each with its offset in the
/// message, the last part of the message first in memory.
fn pieces(seg: Seg, count: u64) -> Vec<(u64, Seg)> {
    let each = seg.len / count / 8 * 8;
    (0..count)
        .map(|index| {
            let offset = index * each;
            let len = if index + 1 == count { seg.len - offset } else { each };
            (offset, Seg::new(seg.at.region, seg.at.offset + seg.len - offset - len, len))
        })
        .collect()
}

/// The memory of a message and the guard behind it.
fn area(seg: Seg) -> Seg {
    Seg::new(seg.at.region, seg.at.offset, seg.len + GUARD_BYTES)
}

/// A message in three pieces of odd lengths at odd places of its [`area`], at most a few bytes from each
/// other: each with its offset in the message, the last part first in memory. Another `salt`, another cut.
fn scattered(seg: Seg, salt: u64) -> [(u64, Seg); 3] {
    let cut =
        |part: u64| (seg.len * part / 3 / 2 * 2 + salt % 5 * part).min(seg.len) | u64::from(seg.len > 8 && part == 1);
    let bounds = [0, cut(1), cut(2).max(cut(1)), seg.len];
    let mut place = seg.at.offset + 1 + salt * 6 % 32;
    let mut pieces = [2, 1, 0].map(|part| {
        let (offset, len) = (bounds[part], bounds[part + 1] - bounds[part]);
        let piece = (offset, Seg::new(seg.at.region, place, len));
        place += len + 1 + (salt + part as u64) % 4;
        piece
    });
    pieces.reverse();
    pieces
}

#[cfg(test)]
mod tests {
    use rerail_core::mem::RegionId;

    use super::*;

    #[test]
    fn pieces_cover_the_buffer_backwards() {
        let seg = Seg::new(RegionId(7), 128, 100);
        let at = |offset, len| Seg::new(RegionId(7), offset, len);
        assert_eq!(pieces(seg, 3), [(0, at(196, 32)), (32, at(164, 32)), (64, at(128, 36))]);
        assert_eq!(pieces(Seg::new(RegionId(7), 0, 0), 2), [(0, at(0, 0)), (0, at(0, 0))]);
    }

    #[test]
    fn scattered_pieces_are_apart_and_cover_the_message() {
        for bytes in [0, 1, 2, 3, 8, 9, 13, 100, 8193, (1 << 20) + 4097] {
            for salt in 0..20 {
                let seg = Seg::new(RegionId(7), 128, bytes);
                let pieces = scattered(seg, salt);
                let mut next = 0;
                for (offset, piece) in pieces {
                    assert_eq!(offset, next, "{bytes} {salt}");
                    next += piece.len;
                }
                assert_eq!(next, bytes);
                // In memory the other way round, a byte or more apart, inside the area.
                let ends: Vec<(u64, u64)> =
                    pieces.iter().rev().map(|(_, seg)| (seg.at.offset, seg.at.offset + seg.len)).collect();
                assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0 && pair[1].0 - pair[0].1 <= 4), "{ends:?}");
                assert!(ends[0].0 > 128 && ends[2].1 < 128 + bytes + GUARD_BYTES, "{ends:?}");
                assert_eq!(ends[0].0 % 2, 1, "an odd address");
            }
        }
        assert_ne!(scattered(Seg::new(RegionId(7), 0, 100), 0), scattered(Seg::new(RegionId(7), 0, 100), 1));
    }
}
