//! Joint copies (L-21 to L-24) between simulated ranks: the reader of a large piece copies from the front,
//! its owner from the back, claims by the word of `rerail_core::shm` in the ring.
//!
//! The owner's write is a claim in one poll and the copy in the next, so that it is paused, killed, aborted
//! or late in between; a copy itself is one step, as one system call is. The gate is a flag that the reader
//! closes: what the kernel makes of pages is tested with the real rail. That each unit is copied by the side
//! that claimed it, and once, is asserted here, for a second copy would write the same bytes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rerail_core::shm::{CLAIM_GENERATIONS, Claimed, OwnerClaims, ReaderClaims, RingError};
use rerail_core::time::{Nanos, Time};
use rerail_linux::rail::Piece;

use super::hub::Hub;
use super::memory::{Inbound, Outbound, copy_claimed};

/// An owner that has not finished a claim by then does not get to.
const CLAIM_TIMEOUT: Nanos = Nanos::from_micros(20);

/// What the reader shares of a piece with its owner, beside the word.
#[derive(Debug)]
pub(super) struct Request {
    generation: u32,
    key: u64,
    from: u64,
    to: Piece,
    unit: usize,
    /// The reader takes what is written.
    is_open: Cell<bool>,
    /// The last claim that was written to its end.
    finished: Cell<u64>,
    /// Units that were copied.
    copied: RefCell<Vec<bool>>,
}

impl Request {
    fn units(&self) -> u32 {
        self.to.len.div_ceil(self.unit) as u32
    }

    /// Copies units out of the owner's memory; `None`: it is not granted.
    fn copy(&self, hub: &mut Hub, (copier, owner): (u32, u32), claimed: Claimed) -> Option<()> {
        let at = claimed.first as usize * self.unit;
        let len = (claimed.count as usize * self.unit).min(self.to.len - at);
        let source = hub.grants.find(owner, self.key, self.from + at as u64, len)?;
        for unit in claimed.first..claimed.first + claimed.count {
            let before = std::mem::replace(&mut self.copied.borrow_mut()[unit as usize], true);
            assert!(!before, "unit {unit} of a joint copy was copied twice");
        }
        copy_claimed(source, Piece { start: self.to.start.wrapping_add(at), len });
        hub.charge_read(copier, len);
        Some(())
    }
}

/// What the reader comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It has copied, or tried to.
    Some,
    /// It waits for the owner.
    Wait,
    /// The piece is there.
    Done,
    /// The memory can't be read, and nothing is written any more.
    NoAccess,
}

/// A piece that both sides copy, at its reader. Nothing is written to it once this is dropped.
#[derive(Debug)]
pub(super) struct Joint {
    request: Rc<Request>,
    claims: ReaderClaims,
    /// The owner has no claim any more: units still to be copied here.
    alone: Option<(u32, u32)>,
    is_failed: bool,
    waits_since: Option<Time>,
}

impl Drop for Joint {
    fn drop(&mut self) {
        self.request.is_open.set(false);
    }
}

impl Joint {
    /// Requests help of the owner; `None`: the ring has no room for it.
    pub(super) fn begin(
        hub: &mut Hub,
        outbound: &mut Outbound,
        (key, from, to): (u64, u64, Piece),
        unit: usize,
    ) -> Option<Joint> {
        hub.joint_generation = hub.joint_generation % (CLAIM_GENERATIONS - 1) + 1;
        let generation = hub.joint_generation;
        let request = Request {
            generation,
            key,
            from,
            to,
            unit,
            is_open: Cell::new(true),
            finished: Cell::new(0),
            copied: RefCell::new(vec![false; to.len.div_ceil(unit)]),
        };
        let claims = ReaderClaims::offer(outbound.claims(), generation, request.units());
        let request = Rc::new(request);
        outbound.push_note(&generation.to_le_bytes()).ok()?;
        hub.requests.insert(generation, Rc::downgrade(&request));
        Some(Joint { request, claims, alone: None, is_failed: false, waits_since: None })
    }

    /// The deadline of an owner that is waited for.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.waits_since.map(|since| since + CLAIM_TIMEOUT)
    }

    /// The owner has written all that it had claimed at the last look.
    fn has_all(&self) -> bool {
        self.claims.back() == 0 || self.request.finished.get() == self.claims.token()
    }

    /// Copies the next units, up to a portion's.
    pub(super) fn step(
        &mut self,
        hub: &mut Hub,
        outbound: &Outbound,
        (rank, owner): (u32, u32),
        portion: usize,
    ) -> Result<Next, RingError> {
        let word = outbound.claims();
        let most = (portion / self.request.unit).max(1) as u32;
        if let Some((at, end)) = self.alone {
            if self.is_failed {
                return Ok(Next::NoAccess);
            }
            if at == end {
                return Ok(Next::Done);
            }
            let claimed = Claimed { first: at, count: most.min(end - at) };
            self.alone = Some((at + claimed.count, end));
            self.is_failed = self.request.copy(hub, (rank, owner), claimed).is_none();
            return Ok(Next::Some);
        }
        if !self.is_failed
            && let Some(claimed) = self.claims.take(word, |left| (left / 2).clamp(1, most))?
        {
            if self.request.copy(hub, (rank, owner), claimed).is_none() {
                self.is_failed = true;
                self.claims.withdraw(word)?;
            }
            return Ok(Next::Some);
        }
        self.claims.read_state(word)?;
        if self.has_all() {
            return Ok(self.end());
        }
        let since = *self.waits_since.get_or_insert(hub.now);
        if !self.claims.has_left() {
            if hub.now < since + CLAIM_TIMEOUT {
                return Ok(Next::Wait);
            }
            self.claims.withdraw(word)?;
        }
        hub.joint.taken_back += 1;
        self.request.is_open.set(false);
        self.waits_since = None;
        self.alone = Some((self.claims.front(), self.claims.finished_from(self.request.finished.get())));
        Ok(Next::Some)
    }

    fn end(&self) -> Next {
        if self.is_failed {
            return Next::NoAccess;
        }
        let copied = self.request.copied.borrow();
        assert!(copied.iter().all(|copied| *copied), "a joint copy ended without all its units");
        Next::Done
    }
}

/// A copy that a rank makes for a peer that reads its memory.
#[derive(Debug)]
pub(super) struct Assist {
    request: Rc<Request>,
    claims: OwnerClaims,
    /// Claimed, and to be written in the next poll.
    pending: Option<Claimed>,
}

impl Assist {
    /// Of a note; `None`: its reader has given up.
    pub(super) fn new(hub: &mut Hub, note: &[u8]) -> Option<Assist> {
        let generation = u32::from_le_bytes(note.try_into().ok()?);
        let request = hub.requests.remove(&generation)?.upgrade()?;
        let claims = OwnerClaims::new(request.generation, request.units())?;
        Some(Assist { request, claims, pending: None })
    }

    /// Writes what was claimed, and claims more, up to a portion's; `false`: it is over.
    pub(super) fn step(&mut self, hub: &mut Hub, inbound: &Inbound, (rank, peer): (u32, u32), portion: usize) -> bool {
        let word = inbound.claims();
        if let Some(claimed) = self.pending.take() {
            let is_written = self.request.is_open.get() && self.request.copy(hub, (rank, rank), claimed).is_some();
            if !is_written {
                hub.joint.refused += u64::from(!self.request.is_open.get());
                self.claims.leave(word);
                hub.ring(rank, peer);
                return false;
            }
            self.request.finished.set(self.claims.token());
            hub.ring(rank, peer);
        }
        let most = (portion / self.request.unit).max(1) as u32;
        let is_first = self.claims.back() == 0;
        self.pending = self.claims.take(word, |left| (left / 2).clamp(1, most));
        hub.joint.helped += u64::from(is_first && self.pending.is_some());
        self.pending.is_some()
    }
}
