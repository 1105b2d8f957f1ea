//! Reads of a rank's memory by another one of its host: what `rerail_linux::rail::shm` does by
//! `process_vm_readv`, with the faults that it meets.
//!
//! A key is a grant in the hub's table: unlike the kernel, the simulation does not let a rank read what was
//! not registered. A read moves a portion in each poll, so that ranks die and subchannels end in the middle
//! of it; its end comes with the link's (F-2). Some pairs are denied access when they connect, and some reads
//! find that their key opens nothing, as the seed draws it.

use std::collections::VecDeque;

use rerail_core::endpoint::PostKind;
use rerail_core::ids::PostId;
use rerail_core::time::Time;
use rerail_linux::rail::{MemoryKey, Outgoing, Piece};

use super::hub::Hub;
use super::joint::{Joint, Next};
use super::maps::Maps;
use super::memory::{Outbound, copy_granted};
use crate::rng::Rng;

/// How ranks read each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadModel {
    /// Bytes of a portion.
    pub portion: u32,
    /// How fast copies are made; 0: they take no time.
    pub bytes_per_second: u64,
    /// One pair in so many is denied access; 0: none.
    pub denied_one_in: u64,
    /// One read in so many finds that its key opens nothing; 0: none.
    pub refused_one_in: u64,
    /// Bytes of a unit of joint copies, of pieces of four and more; 0: the reader copies alone.
    pub joint_unit: u32,
}

/// Memory that others may read, under a key, and the address by which they name it.
#[derive(Clone, Copy, Debug)]
struct Grant {
    key: u64,
    address: u64,
    memory: Piece,
}

/// What the hub records of it.
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// By rank: what others may read, and under which number.
    granted: Vec<Vec<Grant>>,
    next: u64,
    /// Nanoseconds that ranks have spent on copies since they were last taken.
    pub(super) spent_ns: Vec<u64>,
}

impl Grants {
    pub(super) fn of(ranks: usize) -> Self {
        Grants { granted: vec![Vec::new(); ranks], next: 1, spent_ns: vec![0; ranks] }
    }

    pub(super) fn add(&mut self, rank: u32, memory: Piece, address: u64) -> MemoryKey {
        let key = self.next;
        self.next += 1;
        self.granted[rank as usize].push(Grant { key, address, memory });
        MemoryKey { key, address }
    }

    pub(super) fn remove(&mut self, rank: u32, key: u64) {
        self.granted[rank as usize].retain(|granted| granted.key != key);
    }

    pub(super) fn clear(&mut self, rank: u32) {
        self.granted[rank as usize].clear();
    }

    /// What lies at an address, if all of it was granted under the key.
    pub(super) fn find(&self, rank: u32, key: u64, address: u64, len: usize) -> Option<Piece> {
        let grant = self.granted[rank as usize].iter().find(|granted| granted.key == key)?;
        let skip = usize::try_from(address.checked_sub(grant.address)?).ok()?;
        let fits = skip.checked_add(len).is_some_and(|end| end <= grant.memory.len);
        fits.then(|| Piece { start: grant.memory.start.wrapping_add(skip), len })
    }
}

#[derive(Debug)]
struct Reading {
    id: PostId,
    key: u64,
    from: u64,
    pieces: VecDeque<Piece>,
    /// Its key will turn out to open nothing.
    is_refused: bool,
    /// Nothing of the first of its pieces has been read.
    is_at_piece: bool,
}

/// What a portion came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Some,
    /// Nothing before the owner has written, or a deadline.
    Wait,
    Done(PostId),
    NoAccess(PostId),
    Corrupt,
}

/// The reads of one link.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Of the first piece of the first one.
    joint: Option<Joint>,
    queue: VecDeque<Reading>,
    /// What is mapped of the peer's memory.
    pub(super) maps: Maps,
    /// Bytes of the first read that are about to be copied out of a mapping.
    paused: Option<usize>,
}

impl Reads {
    pub(super) fn is_pending(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn post(&mut self, outgoing: &Outgoing<'_>, model: &ReadModel, rng: &mut Rng) -> bool {
        let PostKind::Read { from } = outgoing.kind else { return false };
        let pieces = outgoing.payload.iter().copied().filter(|piece| piece.len > 0).collect();
        let is_refused = model.refused_one_in > 0 && rng.one_in(model.refused_one_in);
        let (id, key, from) = (outgoing.id, from.key, from.address);
        self.queue.push_back(Reading { id, key, from, pieces, is_refused, is_at_piece: true });
        true
    }

    /// When something is due without another cause.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.joint.as_ref()?.deadline()
    }

    /// Makes a copy out of a mapping that was begun, as a thread does that was stopped before it, whatever
    /// became of the owner meanwhile. `number` reads the ring.
    pub(super) fn resume(&mut self, hub: &mut Hub, rank: u32, number: impl FnOnce() -> u64) -> Option<Step> {
        let len = self.paused.take()?;
        let reading = self.queue.front_mut()?;
        let pieces = reading.pieces.len();
        hub.charge_read(rank, len);
        if self.maps.copy(hub, number, (reading.from, len), &mut reading.pieces) {
            reading.from += len as u64;
            reading.is_at_piece = reading.pieces.len() < pieces;
            if reading.pieces.is_empty() {
                return self.queue.pop_front().map(|reading| Step::Done(reading.id));
            }
        }
        Some(Step::Some)
    }

    /// Moves the next portion: out of a mapping, or together with the owner where pieces are long enough.
    pub(super) fn step(
        &mut self,
        hub: &mut Hub,
        (outbound, number): (&mut Outbound, u64),
        (rank, peer): (u32, u32),
        model: &ReadModel,
    ) -> Option<Step> {
        let (portion, unit) = (model.portion as usize, model.joint_unit as usize);
        let reading = self.queue.front_mut()?;
        self.maps.meet(hub, number);
        let len = reading.pieces.iter().map(|piece| piece.len).sum::<usize>().min(portion);
        if self.joint.is_none() && self.maps.may_copy(number, reading.from, len) {
            self.paused = Some(len);
            return Some(Step::Some);
        }
        if self.joint.is_none()
            && unit > 0
            && reading.is_at_piece
            && !reading.is_refused
            && let Some(piece) = reading.pieces.front().filter(|piece| piece.len >= 4 * unit)
            && !self.maps.has(reading.from, piece.len)
        {
            self.joint = Joint::begin(hub, outbound, (reading.key, reading.from, *piece), unit);
            reading.is_at_piece = false;
            if self.joint.is_some() {
                return Some(Step::Some);
            }
        }
        let Some(joint) = &mut self.joint else { return self.step_alone(hub, (rank, peer), model) };
        match joint.step(hub, outbound, (rank, peer), portion) {
            Err(_) => Some(Step::Corrupt),
            Ok(Next::Some) => Some(Step::Some),
            Ok(Next::Wait) => Some(Step::Wait),
            Ok(Next::Done) => {
                self.joint = None;
                let done = reading.pieces.pop_front().map_or(0, |piece| piece.len);
                reading.from += done as u64;
                reading.is_at_piece = true;
                if !reading.pieces.is_empty() {
                    return Some(Step::Some);
                }
                self.queue.pop_front().map(|reading| Step::Done(reading.id))
            }
            Ok(Next::NoAccess) => {
                self.joint = None;
                self.queue.pop_front().map(|reading| Step::NoAccess(reading.id))
            }
        }
    }

    /// Moves the next portion, out of the memory of `peer`, which lives and has not given the subchannel up.
    fn step_alone(&mut self, hub: &mut Hub, (rank, peer): (u32, u32), model: &ReadModel) -> Option<Step> {
        let reading = self.queue.front_mut()?;
        let left: usize = reading.pieces.iter().map(|piece| piece.len).sum();
        let len = left.min(model.portion as usize);
        let granted = hub.grants.find(peer, reading.key, reading.from, len);
        // The second half is as good a place to fail as the first.
        let fails = reading.is_refused && (left <= model.portion as usize || left.is_multiple_of(2));
        let Some(source) = granted.filter(|_| !fails) else {
            let id = reading.id;
            self.queue.pop_front();
            return Some(Step::NoAccess(id));
        };
        let pieces = reading.pieces.len();
        copy_granted(source, &mut reading.pieces);
        reading.from += len as u64;
        reading.is_at_piece = reading.pieces.len() < pieces && left > len;
        hub.charge_read(rank, len);
        if left > len {
            return Some(Step::Some);
        }
        self.queue.pop_front().map(|reading| Step::Done(reading.id))
    }
}
