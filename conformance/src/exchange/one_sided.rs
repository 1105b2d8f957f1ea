//! Rounds of one-sided access: put and flush, get, what must be refused, atomics.
//!
//! Each round exposes a window of its own and deregisters it after a barrier, so that no late access of one
//! round can reach the memory of the next unseen: it would be refused and reported.

use std::collections::BTreeSet;

use rerail_core::endpoint::{Access, AtomicRequest, GetRequest, Level, OpError, PutRequest, Remote, Window, Written};
use rerail_core::ids::{Cookie, PeerId, WindowId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::wire::{AtomicKind, AtomicType, Refusal};

use super::plan::Transfer;
use super::rank::{Slot, Worker, describe_outcome};
use crate::session::{Outcome, SessionError};

/// Bytes of the window that hold a number.
const CELL_BYTES: u64 = 64;

impl Worker {
    /// Exposes the start of a region for this round.
    fn open_window(&mut self, region: RegionId, len: u64, access: Access) -> Result<WindowId, SessionError> {
        let key = self.window_key(self.me());
        self.session.expose(&Window::new(Seg::new(region, 0, len).at, len, access, key))
    }

    /// A place in a peer's window of this round.
    fn remote(&self, peer: u32, offset: u64) -> Remote {
        Remote { peer: PeerId(peer), window: self.window_key(peer), offset }
    }

    /// Bytes of a region up to the end of the last slot and its guard.
    fn extent(slots: &[Slot]) -> u64 {
        slots.last().map_or(0, |slot| slot.seg.at.offset + super::rank::slot_bytes(slot.seg.len))
    }

    /// Where `source`'s transfers to `target` are in memory that `target` has laid out for receiving.
    fn offset_at_target(&self, transfer: &Transfer) -> u64 {
        let sources = self.round.sources(transfer.target, self.session.size());
        let position = sources.iter().position(|&source| source == transfer.source).unwrap_or(0) as u64;
        (position * self.round.count + transfer.number) * super::rank::slot_bytes(transfer.bytes)
    }

    /// As [`offset_at_target`](Self::offset_at_target), in memory that `source` has laid out for sending.
    fn offset_at_source(&self, transfer: &Transfer) -> u64 {
        let targets = self.round.targets(transfer.source, self.session.size());
        let position = targets.iter().position(|&target| target == transfer.target).unwrap_or(0) as u64;
        (position * self.round.count + transfer.number) * super::rank::slot_bytes(transfer.bytes)
    }

    /// Puts to every target, every second with immediate data, a flush per target, a barrier; then every byte
    /// is in place, and every put with immediate data was reported once.
    pub(super) fn put(&mut self) -> Result<(), SessionError> {
        let (outbound, inbound) = (self.outbound(), self.inbound());
        inbound.iter().for_each(|slot| self.guard(slot.seg));
        let access = Access { write: true, ..Access::default() };
        let window = self.open_window(self.incoming, Self::extent(&inbound), access)?;
        self.barrier()?;
        let mut puts = Vec::new();
        for slot in &outbound {
            self.fill(slot);
            let to = self.remote(slot.transfer.target, self.offset_at_target(&slot.transfer));
            let level = Self::level(&slot.transfer);
            let immediate = Self::notifies(&slot.transfer).then(|| Self::immediate(&slot.transfer));
            let put = PutRequest { level, immediate, segments: &[slot.seg], ..PutRequest::new(to, &[]) };
            puts.push((slot.transfer, self.session.put(put)?));
        }
        self.may_die();
        let targets: BTreeSet<u32> = outbound.iter().map(|slot| slot.transfer.target).collect();
        for target in targets {
            let flush = self.session.flush(PeerId(target))?;
            let transfer = Transfer { source: self.me(), target, number: 0, bytes: self.round.bytes };
            self.wait_all(vec![(transfer, flush)])?;
        }
        // Each source reports by its barrier whether its puts are done; without it, its bytes mean nothing.
        self.barrier()?;
        let written = self.session.take_written();
        for slot in &inbound {
            if self.session.is_here(slot.transfer.source) {
                self.judge_bytes(slot);
                self.judge_written(slot, &written);
            } else {
                self.tally.cut_short += 1;
            }
        }
        self.wait_all(puts)?;
        self.session.deregister(window)
    }

    /// Whether a put has immediate data.
    const fn notifies(transfer: &Transfer) -> bool {
        transfer.number % 2 == 1
    }

    /// A put with immediate data was reported once, any other never.
    fn judge_written(&mut self, slot: &Slot, written: &[Written]) {
        let transfer = &slot.transfer;
        let (peer, window) = (PeerId(transfer.source), self.window_key(self.me()));
        let (offset, immediate) = (slot.seg.at.offset, Self::immediate(transfer));
        let report = Written { peer, cookie: Cookie(0), window, offset, bytes: transfer.bytes, immediate };
        let count = written.iter().filter(|event| **event == report).count();
        let same = written.iter().filter(|event| (event.peer, event.immediate) == (peer, immediate)).count();
        if (count, same) != (usize::from(Self::notifies(transfer)), count) {
            self.wrong(transfer, format!("reported {count} times, and {} times wrongly", same - count));
        }
    }

    /// Gets from every source's window.
    pub(super) fn get(&mut self) -> Result<(), SessionError> {
        // The memory that others read from this rank, and the target of its own reads.
        let (exposed, wanted) = (self.outbound(), self.inbound());
        exposed.iter().for_each(|slot| self.fill(slot));
        let access = Access { read: true, ..Access::default() };
        let window = self.open_window(self.outgoing, Self::extent(&exposed), access)?;
        self.barrier()?;
        let mut gets = Vec::new();
        for slot in &wanted {
            self.guard(slot.seg);
            let from = self.remote(slot.transfer.source, self.offset_at_source(&slot.transfer));
            gets.push(self.session.get(GetRequest::new(from, &[slot.seg]))?);
        }
        self.may_die();
        for (slot, get) in wanted.iter().zip(gets) {
            match self.session.wait(get)? {
                Ok(done) if done.bytes == slot.transfer.bytes => self.judge_bytes(slot),
                Ok(done) => self.wrong(&slot.transfer, format!("brought {} bytes", done.bytes)),
                Err(error) => self.judge_error(&slot.transfer, &error),
            }
        }
        self.barrier()?;
        self.session.deregister(window)
    }

    /// Accesses that must be refused, then one that must not.
    pub(super) fn refusal(&mut self) -> Result<(), SessionError> {
        let access = Access { read: true, ..Access::default() };
        let cell = Seg::new(self.incoming, 0, CELL_BYTES);
        let mark = self.me() as u8;
        self.session.bytes_mut(cell).fill(mark);
        let window = self.open_window(self.incoming, CELL_BYTES, access)?;
        self.barrier()?;
        let into = Seg::new(self.outgoing, 0, CELL_BYTES);
        for target in self.round.targets(self.me(), self.session.size()) {
            let right = self.remote(target, 0);
            let wrong_key = Remote { window: !right.window, ..right };
            let beyond = Remote { offset: CELL_BYTES - 8, ..right };
            let transfer = |number| Transfer { source: self.me(), target, number, bytes: CELL_BYTES };
            let transfers = [transfer(0), transfer(1), transfer(2), transfer(3)];
            let get = |from| GetRequest { segments: std::slice::from_ref(&into), ..GetRequest::new(from, &[]) };
            let ticket = self.session.get(get(wrong_key))?;
            let outcome = self.session.wait(ticket)?;
            self.must_refuse(&transfers[0], &outcome, Refusal::NoWindow);
            let ticket = self.session.get(get(beyond))?;
            let outcome = self.session.wait(ticket)?;
            self.must_refuse(&transfers[1], &outcome, Refusal::OutOfRange);
            // Placed: a refusal of a put is reported only while its request is pending.
            let put = PutRequest { level: Level::Placed, segments: &[into], ..PutRequest::new(right, &[]) };
            let ticket = self.session.put(put)?;
            let outcome = self.session.wait(ticket)?;
            self.must_refuse(&transfers[2], &outcome, Refusal::NoAccess);
            self.session.bytes_mut(into).fill(!(target as u8));
            let ticket = self.session.get(get(right))?;
            match self.session.wait(ticket)? {
                Ok(_) if self.session.bytes(into).iter().all(|&byte| byte == target as u8) => {
                    self.verified(&transfers[3]);
                }
                Ok(_) => self.wrong(&transfers[3], "a get after refusals brought wrong bytes".to_owned()),
                Err(error) => self.judge_error(&transfers[3], &error),
            }
        }
        self.may_die();
        self.barrier()?;
        if self.session.bytes(cell).iter().any(|&byte| byte != mark) {
            let me = self.me();
            let own = Transfer { source: me, target: me, number: 2, bytes: CELL_BYTES };
            self.wrong(&own, "a put that was to be refused has changed the window".to_owned());
        }
        self.session.deregister(window)
    }

    fn must_refuse(&mut self, transfer: &Transfer, outcome: &Outcome, wanted: Refusal) {
        match outcome {
            Err(OpError::Refused { peer, why }) if (peer.0, *why) == (transfer.target, wanted) => {}
            Err(error @ (OpError::PeerLost { .. } | OpError::PeerClosed { .. })) => self.judge_error(transfer, error),
            outcome => {
                let ended = describe_outcome(outcome);
                self.wrong(transfer, format!("ended {ended}; expected a refusal ({wanted})"));
            }
        }
    }

    /// Every rank adds 1 to the number at every rank, so often, all at once.
    pub(super) fn fetch_add(&mut self) -> Result<(), SessionError> {
        let window = self.open_cell()?;
        let mut adds = Vec::new();
        for slot in self.outbound() {
            let atomic = self.on_number(slot.transfer.target, AtomicKind::Add, 1, 0);
            adds.push((slot.transfer, self.session.atomic(atomic)?));
        }
        self.may_die();
        let mut seen = BTreeSet::new();
        for (transfer, add) in adds {
            match self.session.wait(add)? {
                Ok(done) if done.old >= self.most_adds() => {
                    self.wrong(&transfer, format!("brought {}, more than was ever added", done.old));
                }
                Ok(done) if !seen.insert((transfer.target, done.old)) => {
                    self.wrong(&transfer, format!("brought the old value {} a second time", done.old));
                }
                Ok(_) => self.verified(&transfer),
                Err(error) => self.judge_error(&transfer, &error),
            }
        }
        self.close_cell(window)
    }

    /// Every rank increments the number at every rank, so often, by compare-and-swap until it succeeds.
    pub(super) fn compare_swap(&mut self) -> Result<(), SessionError> {
        let window = self.open_cell()?;
        for slot in self.outbound() {
            let mut expected = 0;
            loop {
                let atomic = self.on_number(slot.transfer.target, AtomicKind::CompareSwap, expected + 1, expected);
                let ticket = self.session.atomic(atomic)?;
                match self.session.wait(ticket)? {
                    Ok(done) if done.old == expected => {
                        self.verified(&slot.transfer);
                        break;
                    }
                    Ok(done) if done.old < expected || done.old >= self.most_adds() => {
                        self.wrong(&slot.transfer, format!("found {} where {expected} was before", done.old));
                        break;
                    }
                    Ok(done) => expected = done.old,
                    Err(error) => {
                        self.judge_error(&slot.transfer, &error);
                        break;
                    }
                }
            }
            self.may_die();
        }
        self.close_cell(window)
    }

    /// A window with a zero in it, once every rank has one.
    fn open_cell(&mut self) -> Result<WindowId, SessionError> {
        self.session.bytes_mut(Seg::new(self.incoming, 0, CELL_BYTES)).fill(0);
        let window = self.open_window(self.incoming, CELL_BYTES, Access { atomic: true, ..Access::default() })?;
        self.barrier()?;
        Ok(window)
    }

    fn on_number(&self, target: u32, kind: AtomicKind, operand: u64, compare: u64) -> AtomicRequest {
        let at = self.remote(target, 0);
        AtomicRequest { compare, ..AtomicRequest::new(at, kind, AtomicType::U64, operand) }
    }

    /// The number if every rank completed all its adds.
    fn most_adds(&self) -> u64 {
        u64::from(self.session.size()) * self.round.count
    }

    /// Judges this rank's number: exact, or between what the living added and what all would have, if some
    /// were lost.
    fn close_cell(&mut self, window: WindowId) -> Result<(), SessionError> {
        self.barrier()?;
        let bytes: [u8; 8] = self.session.bytes(Seg::new(self.incoming, 0, 8)).try_into().unwrap_or_default();
        let sum = u64::from_le_bytes(bytes);
        let least = self.session.living().len() as u64 * self.round.count;
        if !(least..=self.most_adds()).contains(&sum) {
            let me = self.me();
            let own = Transfer { source: me, target: me, number: 0, bytes: 8 };
            self.wrong(&own, format!("the number is {sum}, {least} to {} were added", self.most_adds()));
        }
        self.session.deregister(window)
    }
}
