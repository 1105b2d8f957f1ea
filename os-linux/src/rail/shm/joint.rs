//! Joint copies (L-21 to L-24): a large piece of a read is copied by both processors, the reader's from the
//! front and the owner's from the back, so that it takes half the time.
//!
//! The reader requests help by a note in the ring, and both claim units by one word ([`ReaderClaims`]). The
//! owner writes what it has claimed through the reader's [`Gate`]. It does so in its polls only: while it
//! computes, the reader copies all, and waits for nothing.
//!
//! Invariants: a piece is complete when each of its units was read here, or claimed by the owner and
//! written to its end as the gate shows. A claim that is not finished in time is taken back by closing the
//! gate, and the reader copies its units itself; so a peer that is stopped delays its own message only, and
//! by little. No memory goes back to the caller while a write to it may be in progress (F-2). What the peer
//! writes only decides which side copies which bytes of this piece: a lie costs the liar's own transfer, or
//! is found and ends the subchannel.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rerail_core::endpoint::RailFault;
use rerail_core::shm::{CLAIM_GENERATIONS, Claimed, OwnerClaims, PushError, ReaderClaims, RingError, Word};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::copy;
use super::gate::{self, Gate, Over};
use super::reach::{PASS_BYTES, Reach};
use super::segment::Outbound;
use crate::rail::Piece;

/// Bytes of a unit of claims.
const UNIT_BYTES: usize = 4096;
/// The longest piece of a joint copy.
pub const JOINT_BYTES_MAX: usize = 1 << 30;
/// The shortest: of less, the second side saves less than it costs.
pub const JOINT_BYTES_MIN: usize = 128 * 1024;
/// Units of a claim: the least, but for the last one, since the system call of an owner costs as much as 8
/// units; and the most.
const UNITS_MIN: u32 = 16;
const UNITS_MAX: u32 = 128;
/// A claim that takes longer is taken back.
pub const CLAIM_TIMEOUT: Duration = Duration::from_micros(500);
/// So many pieces are copied alone after a claim that was taken back, or a peer that left: twice as many each
/// time, and one less for each piece that went well.
pub const REST: std::ops::RangeInclusive<u32> = 16..=4096;
/// The end of a subchannel waits no longer for a write that has passed the gate: in the kernel, which takes
/// microseconds.
const END_TIMEOUT: Duration = Duration::from_secs(10);

const _: () = assert!((JOINT_BYTES_MAX / UNIT_BYTES) as u32 <= rerail_core::shm::CLAIM_UNITS_MAX);

/// Units that bytes are, at least one.
fn whole_units(bytes: usize) -> u32 {
    u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX).max(1)
}

/// Units to claim of those that are left: half of them, so that both sides end at about the same time.
fn guided(left: u32, bytes: usize) -> u32 {
    (left / 2).max(UNITS_MIN).min(whole_units(bytes).min(UNITS_MAX))
}

/// Requests help of the owner of the memory (L-21): the only note there is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Request {
    /// Lies behind the owner's seal: its reader may read the owner's memory.
    pub pass: [u8; PASS_BYTES],
    /// Of the claims.
    pub generation: U32,
    pub zero: U32,
    /// Where the bytes lie in the owner's memory,
    pub from: U64,
    /// where they belong in the reader's,
    pub to: U64,
    /// and how many they are.
    pub bytes: U64,
    /// Where the reader's gate is.
    pub gate: U64,
}

/// What a reader has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Copy these bytes of the piece.
    Copy { at: usize, len: usize },
    /// Wait for the owner.
    Wait,
    /// All is there.
    Done,
}

/// A piece that both sides copy.
#[derive(Debug)]
struct Joint {
    claims: ReaderClaims,
    bytes: usize,
    /// The owner has no claim any more: the units still to be copied here.
    alone: Option<(u32, u32)>,
    /// This side copies nothing more.
    is_failed: bool,
    /// All is claimed, since then.
    waits_since: Option<Instant>,
}

/// The joint copies of one link whose reader this process is; one at a time.
#[derive(Debug, Default)]
pub struct Joints {
    gate: Option<Gate>,
    /// There is no gate, or so many pieces are to be copied alone first.
    is_off: bool,
    rest: u32,
    /// Of the last rest; 0: there was none.
    last_rest: u32,
    generation: u32,
    current: Option<Joint>,
    /// A claim was taken back, and the peer has not noticed yet.
    taken_back: Option<ReaderClaims>,
}

impl Joints {
    /// Whether a piece is in progress.
    pub const fn is_active(&self) -> bool {
        self.current.is_some()
    }

    /// Requests help with a piece, the bytes of which lie at `from`; `false`: there is none.
    pub fn begin(
        &mut self,
        reach: &Reach,
        outbound: &mut Outbound,
        (from, piece): (u64, Piece),
    ) -> Result<bool, RingError> {
        debug_assert!(self.current.is_none(), "one piece at a time");
        if self.is_off || !(JOINT_BYTES_MIN..=JOINT_BYTES_MAX).contains(&piece.len) {
            return Ok(false);
        }
        if self.rest > 0 {
            self.rest -= 1;
            return Ok(false);
        }
        if let Some(claims) = &mut self.taken_back {
            claims.read_state(outbound.claims())?;
            if !claims.has_left() {
                return Ok(false);
            }
            self.taken_back = None;
        }
        if self.gate.is_none() {
            self.gate = Gate::new();
        }
        let Some(gate) = &mut self.gate else {
            self.is_off = true;
            return Ok(false);
        };
        gate.open();
        if !gate.is_open() {
            return Ok(false);
        }
        self.generation = if self.generation + 1 < CLAIM_GENERATIONS { self.generation + 1 } else { 1 };
        let request = Request {
            pass: *reach.pass(),
            generation: self.generation.into(),
            zero: 0.into(),
            from: from.into(),
            to: (piece.start.addr() as u64).into(),
            bytes: (piece.len as u64).into(),
            gate: gate.address().into(),
        };
        let units = piece.len.div_ceil(UNIT_BYTES) as u32;
        let claims = ReaderClaims::offer(outbound.claims(), self.generation, units);
        match outbound.push_note(request.as_bytes()) {
            Ok(()) => {}
            Err(PushError::Corrupt(error)) => return Err(error),
            // The owner has not received it.
            Err(_) => return Ok(false),
        }
        self.current = Some(Joint { claims, bytes: piece.len, alone: None, is_failed: false, waits_since: None });
        Ok(true)
    }

    /// What this side has to do for the piece in progress; of up to `bytes` bytes, or one unit.
    pub fn next(
        &mut self,
        reach: &Reach,
        socket: &OwnedFd,
        word: &impl Word<u64>,
        bytes: usize,
    ) -> Result<Next, RingError> {
        let Self { gate: Some(gate), current: Some(joint), rest, last_rest, taken_back, .. } = self else {
            return Ok(Next::Done);
        };
        loop {
            if let Some((at, end)) = joint.alone {
                if at == end || joint.is_failed {
                    self.current = None;
                    return Ok(Next::Done);
                }
                let count = whole_units(bytes).min(end - at);
                joint.alone = Some((at + count, end));
                return Ok(joint.bytes_of(Claimed { first: at, count }));
            }
            if !joint.is_failed {
                // An owner that has not come by now computes.
                let is_late = joint.claims.front() > 0 && joint.claims.back() == 0;
                let most = |left| if is_late { whole_units(bytes) } else { guided(left, bytes) };
                if let Some(claimed) = joint.claims.take(word, most)? {
                    return Ok(joint.bytes_of(claimed));
                }
            }
            joint.claims.read_state(word)?;
            if joint.has_all(gate) {
                *last_rest = last_rest.saturating_sub(1);
                self.current = None;
                return Ok(Next::Done);
            }
            let is_taken_back = !joint.claims.has_left();
            if is_taken_back {
                let since = *joint.waits_since.get_or_insert_with(Instant::now);
                if since.elapsed() < CLAIM_TIMEOUT {
                    return Ok(Next::Wait);
                }
                // Both failures keep the message waiting, and no other: the gate can't be closed, or the
                // owner is writing.
                joint.claims.withdraw(word)?;
                gate.close();
                if gate.is_open() || (gate.is_passed() && gate::is_over(reach, socket).is_none()) {
                    joint.waits_since = Some(Instant::now());
                    return Ok(Next::Wait);
                }
            }
            // What was written between the looks counts, too.
            joint.alone = Some((joint.claims.front(), joint.claims.finished_from(gate.finished())));
            if is_taken_back {
                gate.keep();
                *taken_back = Some(joint.claims.clone());
            }
            *last_rest = (*last_rest * 2).clamp(*REST.start(), *REST.end());
            *rest = *last_rest;
        }
    }

    /// Whether the piece in progress is complete, which has begun to be copied.
    pub fn is_done(&mut self, word: &impl Word<u64>) -> Result<bool, RingError> {
        let (Some(gate), Some(joint)) = (&self.gate, &mut self.current) else { return Ok(false) };
        let is_done = match joint.alone {
            Some((at, end)) => at == end,
            None => {
                joint.claims.read_state(word)?;
                joint.claims.is_all_claimed() && joint.has_all(gate)
            }
        };
        if is_done {
            self.last_rest = self.last_rest.saturating_sub(u32::from(joint.alone.is_none()));
            self.current = None;
        }
        Ok(is_done)
    }

    /// This side can't copy: the piece ends as soon as nothing is written to it any more.
    pub fn fail(&mut self, word: &impl Word<u64>) -> Result<(), RingError> {
        let Some(joint) = &mut self.current else { return Ok(()) };
        joint.is_failed = true;
        if joint.alone.is_none() { joint.claims.withdraw(word) } else { Ok(()) }
    }

    /// The subchannel is about to end here: from now on nothing is written to the piece any more (F-2).
    pub fn end(&mut self, reach: &Reach, socket: &OwnedFd, word: &impl Word<u64>) {
        let Self { gate: Some(gate), current, taken_back, .. } = self else { return };
        if let Some(mut joint) = current.take()
            && joint.alone.is_none()
        {
            let is_honest = joint.claims.withdraw(word).is_ok();
            let is_over = |joint: &Joint, gate: &Gate| is_honest && (joint.claims.has_left() || joint.has_all(gate));
            if !is_over(&joint, gate) {
                gate.close();
                gate.keep();
                let since = Instant::now();
                let mut known = gate::is_over(reach, socket);
                // An owner that is refused in the middle of its call leaves, and the gate does not show it.
                let has_left = |joint: &mut Joint| joint.claims.read_state(word).is_ok() && joint.claims.has_left();
                while known.is_none() && gate.is_passed() && !has_left(&mut joint) && since.elapsed() < END_TIMEOUT {
                    // Both may share a processor.
                    rustix::thread::sched_yield();
                    known = gate::is_over(reach, socket);
                }
                if known == Some(Over::Gone) || is_over(&joint, gate) {
                    gate.release();
                }
            }
        }
        // It has come back meanwhile, or it never can.
        if let Some(mut claims) = taken_back.take() {
            let has_left = claims.read_state(word).is_ok() && claims.has_left();
            if has_left || gate::is_over(reach, socket) == Some(Over::Gone) {
                gate.release();
            }
        }
    }
}

impl Joint {
    /// Whether the owner has written, up to its last byte, all that it had claimed at the last look (L-23).
    fn has_all(&self, gate: &Gate) -> bool {
        self.claims.back() == 0 || gate.finished() == self.claims.token()
    }

    fn bytes_of(&self, Claimed { first, count }: Claimed) -> Next {
        let at = first as usize * UNIT_BYTES;
        Next::Copy { at, len: (count as usize * UNIT_BYTES).min(self.bytes - at) }
    }
}

/// A copy that this process makes for a peer that reads its memory.
#[derive(Debug)]
pub struct Assist {
    claims: OwnerClaims,
    request: Request,
}

impl Assist {
    /// Of a note; `Err`: no honest peer sends this one.
    pub fn new(note: &[u8], pass: &[u8; PASS_BYTES]) -> Result<Self, RailFault> {
        let corrupt = RailFault::Corrupt;
        let request = Request::read_from_bytes(note).map_err(|_| corrupt)?;
        let bytes = request.bytes.get();
        let is_range = |start: u64| start.checked_add(bytes).is_some();
        let is_honest = request.pass == *pass
            && request.zero.get() == 0
            && bytes <= JOINT_BYTES_MAX as u64
            && is_range(request.from.get())
            && is_range(request.to.get());
        let units = (bytes as usize).div_ceil(UNIT_BYTES) as u32;
        let claims = OwnerClaims::new(request.generation.get(), units).filter(|_| is_honest).ok_or(corrupt)?;
        Ok(Assist { claims, request })
    }

    /// Copies the next units, up to `bytes` bytes or one unit; `None`: it is over, else how many bytes.
    pub fn step(&mut self, reach: &Reach, word: &impl Word<u64>, bytes: usize) -> Option<usize> {
        if self.claims.back() == 0 && (reach.denied.is_some() || copy::read(reach, 0, &[]).is_err()) {
            self.claims.leave(word);
            return None;
        }
        let Claimed { first, count } = self.claims.take(word, |left| guided(left, bytes))?;
        let Request { from, to, bytes, gate, .. } = self.request;
        let at = u64::from(first) * UNIT_BYTES as u64;
        let len = (u64::from(count) * UNIT_BYTES as u64).min(bytes.get() - at);
        let ranges = (from.get() + at, to.get() + at, len as usize);
        if gate::write(reach, gate.get(), self.claims.token(), ranges).is_err() {
            self.claims.leave(word);
            return None;
        }
        Some(len as usize)
    }
}
