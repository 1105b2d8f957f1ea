//! What came: received messages identified, compared with what was sent, and looked for in memory.

use std::collections::BTreeMap;

use rerail_core::endpoint::{Completion, OpError};
use rerail_core::mem::Seg;
use rerail_core::time::Time;

use super::identity::{BLANK, Content, Difference, Name, first_not};
use super::ledger::{Due, Ledger, Moment, Part, Request, Submission};
use super::order::takes;
use super::verdict::{Damage, Duplicated, Lost, Verdict};

/// Memory of any rank, to look at.
pub trait Peek {
    /// The bytes of a piece of a rank's memory; `None` where there is no such memory (any more).
    fn peek(&self, rank: u32, seg: Seg) -> Option<&[u8]>;

    /// A slot of a rank's window; `None` where there is no such window (any more).
    fn slot(&self, rank: u32, slot: u32) -> Option<&[u8]>;
}

impl Ledger {
    /// Messages submitted so far, over all ranks.
    pub fn sent(&self) -> u64 {
        self.messages.values().map(|pair| pair.len() as u64).sum()
    }

    /// Messages submitted so far to one rank.
    pub fn sent_to(&self, rank: u32) -> u64 {
        let to = self.messages.iter().filter(|((_, destination), _)| *destination == rank);
        to.map(|(_, pair)| pair.len() as u64).sum()
    }

    /// The message that a completion reports: by its immediate data, by the front of its payload, or, where
    /// both are missing, as the oldest of its pair with this tag and length that was not received (messages
    /// of one pair with one tag are matched in order, so no other is allowed), and that begins with the bytes
    /// that are there.
    pub(super) fn name_of(
        &self,
        rank: u32,
        peer: u32,
        immediate: Option<u64>,
        tag: Option<u64>,
        len: u64,
        front: &[u8],
    ) -> Option<Name> {
        let named = front.first_chunk().filter(|_| len >= 8).map(|front| u64::from_le_bytes(*front));
        if let Some(bits) = immediate.or(named) {
            return Some(Name::from_bits(bits));
        }
        let pair = self.messages.get(&(peer, rank))?;
        let fits = |message: &&super::ledger::Message| {
            message.receipt.is_none() && message.taken_back.is_none() && message.tag == tag && message.len == len
        };
        let begins = |message: &&super::ledger::Message| {
            fits(message) && Content::from(message.name).first_difference(0, front).is_none()
        };
        // Where nothing begins so, the bytes are wrong, and the report names the sender.
        pair.iter().find(begins).or_else(|| pair.iter().find(fits)).map(|message| message.name)
    }

    /// A receive reports something; returns the message's name.
    pub(super) fn came(
        &mut self,
        rank: u32,
        now: Moment,
        request: u32,
        entry: &Request,
        completion: &Completion,
        memory: &[u8],
    ) -> Option<Name> {
        let (is_multi, result) = (matches!(entry.submission, Submission::Multi { .. }), completion.result);
        let capacity = entry.len();
        let (peer, tag, immediate, sent, bytes, offset) = match result {
            // The end of a multi-receive without a message.
            Ok(done) if is_multi && done.released && done.bytes == 0 && done.immediate.is_none() => return None,
            Ok(done) => (done.peer.0, done.tag, done.immediate, done.bytes, done.bytes, done.offset),
            Err(OpError::Truncated { sent, capacity, peer, tag, immediate }) => {
                (peer.0, tag, immediate, sent, capacity, 0)
            }
            // Cancelled: beyond the messages reported before, only messages that failed with their peer may
            // have been written.
            Err(OpError::Cancelled) => {
                let reported: u64 = entry.parts.iter().map(|part| part.bytes).sum();
                let taken = reported.saturating_add(self.failed_bytes_max(rank, entry));
                if let Some(rest) = memory.get(taken.min(capacity) as usize..)
                    && let Some(difference) = first_not(BLANK, rest)
                {
                    let difference = Difference { at: taken + difference.at, ..difference };
                    self.corrupt(rank, now.at, Damage::Behind { receive: request, difference });
                }
                return None;
            }
            // A message of a multi-receive that stays posted: the message keeps its part of the buffer, and
            // no event reports that part.
            Err(OpError::PeerLost { peer, .. } | OpError::PeerClosed { peer }) if is_multi && entry.ended.is_none() => {
                let entry = &mut self.books[rank as usize].requests[request as usize];
                entry.failed_parts.push(peer.0);
                entry.failed_indexes.push(completion.index);
                return None;
            }
            Err(_) => return None,
        };
        let unknown_process = Damage::UnknownMessage { receive: request, name: None, peer, bytes };
        let Some(here) = offset.checked_add(bytes).and_then(|end| memory.get(offset as usize..end as usize)) else {
            self.corrupt(rank, now.at, unknown_process);
            return None;
        };
        let Some(name) = self.name_of(rank, peer, immediate, tag, sent, here) else {
            self.corrupt(rank, now.at, unknown_process);
            return None;
        };
        let Some(message) = self.message(name).copied().filter(|_| name.destination() == rank) else {
            self.corrupt(rank, now.at, Damage::UnknownMessage { receive: request, name: Some(name), peer, bytes });
            return None;
        };
        let claimed =
            matches!(entry.submission, Submission::Receive { claimed: Some(claim), .. } if !claim.fits(&message));
        let wrong = [
            ("source", peer != name.source()),
            ("tag", tag != message.tag),
            ("immediate", result.is_ok() && immediate != message.immediate.then(|| name.to_bits())),
            ("length", sent != message.len || (result.is_err() && (bytes != capacity || sent <= capacity))),
            ("message: another was claimed", claimed),
        ];
        if let Some((field, _)) = wrong.iter().find(|(_, wrong)| *wrong) {
            self.corrupt(rank, now.at, Damage::Envelope { name, receive: request, field });
        }
        if let Some(difference) = Content::from(name).first_difference(0, here) {
            self.corrupt(rank, now.at, Damage::Message { name, receive: request, difference });
        }
        // Of a multi-receive the rest is where the next messages are written.
        if !is_multi && let Some(difference) = first_not(BLANK, &memory[bytes as usize..]) {
            self.corrupt(rank, now.at, Damage::Behind { receive: request, difference });
        }
        if message.taken_back.is_some() {
            self.find(Verdict::Duplicated(Duplicated::Cancelled { name, at: now.at }));
        }
        if let Some(first) = message.receipt {
            self.find(Verdict::Duplicated(Duplicated::Message { name, first, second: request, at: now.at }));
        }
        if let Some(message) = self.message_mut(name) {
            message.receipt = Some(request);
        }
        self.count_received();
        if let Submission::Receive { claimed: Some(claim), .. } = &entry.submission {
            self.name_claim(rank, claim, name);
        }
        let entry = &mut self.books[rank as usize].requests[request as usize];
        entry.parts.push(Part { name, index: completion.index, offset, bytes, reported: now });
        Some(name)
    }

    /// A multi-receive is over: the messages that it reported are unchanged. Its buffer is not poisoned while
    /// it is posted, so this finds a late write into a message that was reported.
    pub(super) fn check_parts(&mut self, rank: u32, at: Time, request: u32, memory: &[u8]) {
        let parts = &self.books[rank as usize].requests[request as usize].parts;
        let earlier = parts.split_last().map_or(&[][..], |(_, earlier)| earlier);
        let damaged = earlier.iter().find_map(|part| {
            let here = memory.get(part.offset as usize..(part.offset + part.bytes) as usize)?;
            Some((part.name, Content::from(part.name).first_difference(0, here)?))
        });
        if let Some((name, difference)) = damaged {
            self.corrupt(rank, at, Damage::Message { name, receive: request, difference });
        }
    }

    /// Bytes that a multi-receive's failed parts take, at most: as many as the longest messages of their
    /// peers that they may have been.
    fn failed_bytes_max(&self, rank: u32, entry: &Request) -> u64 {
        let Submission::Multi { from, .. } = entry.submission else { return 0 };
        let mut failed: BTreeMap<u32, usize> = BTreeMap::new();
        for peer in &entry.failed_parts {
            *failed.entry(*peer).or_default() += 1;
        }
        let of_peer = |(peer, count): (&u32, &usize)| -> u64 {
            let pair = self.messages.get(&(*peer, rank)).map_or(&[][..], Vec::as_slice);
            let unreceived = pair.iter().filter(|message| message.receipt.is_none() && takes(&from, message));
            let mut lens: Vec<u64> = unreceived.map(|message| message.len).collect();
            lens.sort_unstable_by(|one, other| other.cmp(one));
            lens.iter().take(*count).sum()
        };
        failed.iter().map(of_peer).sum()
    }

    /// Checks what is due now, with the memory of all ranks at hand: to be called after each turn of a rank,
    /// before time goes on.
    pub fn judge_due(&mut self, now: Time, memory: &dyn Peek) {
        for due in self.take_due() {
            match due {
                Due::Placed(name) => self.check_placed(now, name, memory),
                Due::Put { rank, request } => self.check_put(now, rank, request, memory),
                Due::Slot { target, slot } => self.check_slot(now, target, slot, memory),
            }
        }
    }

    fn check_placed(&mut self, now: Time, name: Name, memory: &dyn Peek) {
        let rank = name.destination();
        let Some(message) = self.message(name).copied() else { return };
        if message.receipt.is_some() || self.books[rank as usize].killed.is_some() {
            return;
        }
        let holds = |entry: &Request| {
            let (from, multi) = match entry.submission {
                Submission::Receive { claimed: Some(claim), .. } if !claim.fits(&message) => return false,
                Submission::Receive { from, .. } => (from, false),
                Submission::Multi { from, .. } => (from, true),
                _ => return false,
            };
            if entry.ended.is_some() || !takes(&from, &message) {
                return false;
            }
            let pieces = entry.memory.iter().map(|seg| memory.peek(rank, *seg).unwrap_or_default());
            let buffer = pieces.collect::<Vec<_>>().concat();
            let bytes = message.len.min(entry.len()) as usize;
            let is_at = |at: usize| Content::from(name).first_difference(0, &buffer[at..at + bytes]).is_none();
            match multi {
                true => (0..=buffer.len().saturating_sub(bytes)).any(is_at),
                false => buffer.len() >= bytes && is_at(0),
            }
        };
        if !self.books[rank as usize].requests.iter().any(holds) {
            self.corrupt(rank, now, Damage::NotPlaced { name });
        }
    }

    fn check_slot(&mut self, now: Time, target: u32, slot: u32, memory: &dyn Peek) {
        if self.books[target as usize].killed.is_some() {
            return;
        }
        let Some(bytes) = memory.slot(target, slot) else { return };
        let stamp = self.moment(now).stamp;
        if let Some((at, found)) = self.slots.first_impossible(target, slot, 0, bytes, stamp..stamp + 1) {
            self.corrupt(target, now, Damage::Window { slot, at, found });
        }
    }

    fn check_put(&mut self, now: Time, rank: u32, request: u32, memory: &dyn Peek) {
        let Submission::Put { target, slot, .. } = self.books[rank as usize].requests[request as usize].submission
        else {
            return;
        };
        if self.books[target as usize].killed.is_some() {
            return;
        }
        let Some(bytes) = memory.slot(target, slot) else { return };
        let stamp = self.moment(now).stamp;
        if let Some(difference) = self.slots.first_missing(target, slot, (rank, request), bytes, stamp) {
            let put = self.facts(rank, request);
            self.find(Verdict::Lost(Lost::Put { put, target, difference }));
        }
    }
}
