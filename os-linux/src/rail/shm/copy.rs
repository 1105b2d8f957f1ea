//! Reads of a peer's memory: one copy, made by the kernel (`process_vm_readv`), from the sender's buffer to
//! the receiver's.
//!
//! A read waits in its link's queue and is carried out in portions, so that packets of all peers are taken
//! between them. Its pieces are this process's and bound the writes, whatever the peer sent: a wrong key
//! costs its owner a wrong payload, or the read ends with
//! [`PostStatus::NoAccess`](rerail_core::endpoint::PostStatus::NoAccess) and the message comes through the
//! ring.
//!
//! There are no posts that write: a peer that is stopped between the decision to write and the system call
//! would write to memory that this side has given back long ago. A read changes nothing but its own pieces.
//! The peer may write a part of these itself, through a gate that this side closes before that (`joint`).
//!
//! Invariants: reads are carried out in post order; one counts as done only if the peer's seal was whole
//! after its last byte ([`Reach`]); once a seal was found broken nothing is read any more, and the pending
//! end of the link aborts waiting reads.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rerail_core::endpoint::{PostKind, PostStatus, RailFault, TwoMeasures};
use rerail_core::ids::PostId;
use rustix::io::Errno;

use super::joint::{CLAIM_TIMEOUT, JOINT_BYTES_MIN, Joints, Next};
use super::offers::Maps;
use super::reach::{Denied, Reach, SEAL_BYTES};
use super::segment::{Inbound, Outbound};
use super::socket;
use crate::rail::{Outgoing, Piece};

/// Bytes that one poll of a rail reads: small messages wait no longer than this takes (some 40 us). Less
/// costs throughput: a system call costs 1.4 us beside its bytes, its seal 0.4 us.
pub const BYTES_PER_POLL: usize = 512 * 1024;

/// Pieces of this process's memory that one system call fills, the seal's place aside.
const PIECES_MAX: usize = 16;

/// A read that is to end before its call does waits no longer for the peer, whose system calls take
/// microseconds.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Why memory could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The system refused, all or a part.
    System(Errno),
    /// It was read, but the seal is not the one agreed, or it is no longer there.
    Unsealed,
}

/// The process at the other end of a socket, when it connected or began to listen; 0: not visible from here.
pub fn pid_of_peer(socket: &OwnedFd) -> Result<i32, Errno> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let to = (&raw mut credentials).cast::<c_void>();
    // SAFETY: `to` is `len` bytes, of a type that permits any bytes; the descriptor is open.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len) };
    if got == 0 { Ok(credentials.pid) } else { Err(last_errno()) }
}

/// Fills the pieces, up to [`PIECES_MAX`] of them, with the bytes at `from`, and checks the seal afterwards.
///
/// Callers pass on pieces of a post that is a read: valid for writes until it is over (the contract of
/// `Rail::post`).
pub fn read(reach: &Reach, from: u64, pieces: &[Piece]) -> Result<(), Failure> {
    let mut seal = [0u8; SEAL_BYTES];
    let mut local: heapless::Vec<libc::iovec, { PIECES_MAX + 1 }> = heapless::Vec::new();
    let mut wanted = 0;
    for piece in pieces.iter().take(PIECES_MAX) {
        wanted += piece.len;
        let _ = local.push(libc::iovec { iov_base: piece.start.cast(), iov_len: piece.len });
    }
    let _ = local.push(libc::iovec { iov_base: seal.as_mut_ptr().cast(), iov_len: SEAL_BYTES });
    let at = |address: u64, len| libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0)),
        iov_len: len,
    };
    let remote = [at(from, wanted), at(reach.seal_address(), SEAL_BYTES)];
    // SAFETY: `local` names the pieces, which the post lets this rail write to, and `seal`. `remote` names
    // memory of another process; if it is this one's (both ends in one process), the kernel copies as
    // between two.
    let got = unsafe {
        libc::process_vm_readv(reach.pid(), local.as_ptr(), local.len() as _, remote.as_ptr(), remote.len() as _, 0)
    };
    match usize::try_from(got) {
        Err(_) => match last_errno() {
            Errno::SRCH => Err(Failure::Unsealed),
            errno => Err(Failure::System(errno)),
        },
        // A fault ends a read early.
        Ok(got) if got < wanted => Err(Failure::System(Errno::FAULT)),
        Ok(got) if got < wanted + SEAL_BYTES || seal != *reach.seal() => Err(Failure::Unsealed),
        Ok(_) => Ok(()),
    }
}

pub fn last_errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// A pending read.
#[derive(Debug)]
struct Reading {
    id: PostId,
    /// The peer's address of the next bytes.
    from: u64,
    /// The target; filled pieces are removed from the front.
    pieces: Vec<Piece>,
    first: usize,
    /// It has failed, and ends when the peer writes nothing any more.
    is_failed: bool,
    /// Of one that is long enough for a joint copy, from its first step on.
    timing: Option<Timing>,
}

/// The measurement of a read.
#[derive(Clone, Copy, Debug)]
struct Timing {
    since: Instant,
    bytes: u64,
    /// It is copied by both sides, as far as these find to each other.
    is_joint: bool,
    /// Something was.
    has_joint: bool,
    /// The first piece that was not requested of the peer yet.
    next_piece: usize,
}

/// What of its link a read uses.
pub struct Ends<'l> {
    pub inbound: &'l Inbound,
    pub outbound: &'l mut Outbound,
    pub socket: &'l OwnedFd,
}

/// The result of a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more of the same read.
    Some,
    /// A read is complete.
    Done(PostId),
    /// A read can't be carried out.
    NoAccess(PostId),
    /// The peer copies the rest of what comes next.
    Wait,
    /// The peer is not honest.
    Corrupt,
    /// Nothing is read any more: the subchannel's end is pending.
    Ended,
}

/// The reads of one link.
#[derive(Debug)]
pub struct Reads {
    reach: Reach,
    /// What of that memory is mapped here.
    pub maps: Maps,
    joints: Joints,
    /// Whether joint copies pay: the first way.
    measures: TwoMeasures,
    /// Of the piece that both sides copy, what this one has copied.
    own_bytes: usize,
    /// What peers have copied of pieces that are complete, and not counted yet.
    peer_bytes: u64,
    queue: VecDeque<Reading>,
    /// Lists for posts to come.
    spare: Vec<Vec<Piece>>,
    ended: bool,
}

impl Reads {
    /// Of the memory behind `reach`, of which so many bytes may be mapped.
    pub fn new(reach: Reach, mapped_bytes_max: u64) -> Self {
        let (maps, joints) = (Maps::new(mapped_bytes_max), Joints::default());
        let (queue, spare) = (VecDeque::new(), Vec::new());
        Reads {
            reach,
            maps,
            joints,
            measures: TwoMeasures::default(),
            own_bytes: 0,
            peer_bytes: 0,
            queue,
            spare,
            ended: false,
        }
    }

    /// The peer's memory.
    pub const fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The subchannel is about to end: nothing is written to pieces any more.
    pub fn end(&mut self, outbound: &Outbound, socket: &OwnedFd) {
        self.joints.end(&self.reach, socket, outbound.claims());
        self.ended = true;
    }

    /// Why the peer's memory can't be read.
    pub const fn denied(&self) -> Option<Denied> {
        self.reach.denied
    }

    /// Takes a post; `false`: it is no read, and this is a bug of the caller's.
    pub fn post(&mut self, outgoing: &Outgoing<'_>) -> bool {
        let PostKind::Read { from } = outgoing.kind else { return false };
        let mut pieces = self.spare.pop().unwrap_or_default();
        pieces.extend(outgoing.payload.iter().filter(|piece| piece.len > 0));
        self.queue.push_back(Reading {
            id: outgoing.id,
            from: from.address,
            pieces,
            first: 0,
            is_failed: false,
            timing: None,
        });
        true
    }

    /// Fills the pieces with the bytes at `from` before it returns, by both sides if `may_join` and no other
    /// read waits. `false`: they have any bytes. In any case nothing writes to them any more.
    ///
    /// # Errors
    /// The peer is not honest, or has not finished its part in ten seconds.
    ///
    /// # Safety
    /// The pieces can be written; they are at most [`PIECES_MAX`].
    pub unsafe fn read_now(
        &mut self,
        (from, pieces): (u64, &[Piece]),
        may_join: bool,
        ends: &mut Ends<'_>,
        system_calls: &mut u64,
    ) -> Result<bool, RailFault> {
        if self.ended || self.reach.denied.is_some() {
            return Ok(false);
        }
        if !may_join || !self.queue.is_empty() {
            let is_read = self.copy(from, pieces, ends, system_calls).is_ok();
            // A read that is posted finds it out, and reports it.
            self.reach.denied = None;
            return Ok(is_read);
        }
        let mut own = self.spare.pop().unwrap_or_default();
        own.extend(pieces.iter().filter(|piece| piece.len > 0));
        let id = PostId::default();
        self.queue.push_back(Reading { id, from, pieces: own, first: 0, is_failed: false, timing: None });
        let mut waits_since = None;
        let fault = loop {
            match self.step(BYTES_PER_POLL, ends, system_calls).0 {
                Step::Some => waits_since = None,
                Step::Done(_) => break None,
                Step::NoAccess(_) => {
                    self.reach.denied = None;
                    return Ok(false);
                }
                Step::Ended => break Some(None),
                Step::Corrupt => break Some(Some(RailFault::Corrupt)),
                Step::Wait => {
                    let since: Instant = *waits_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > WAIT_MAX {
                        break Some(Some(RailFault::TimedOut));
                    }
                    // Both may share a processor.
                    if since.elapsed() > CLAIM_TIMEOUT / 8 {
                        rustix::thread::sched_yield();
                    }
                }
            }
        };
        self.take_peer_bytes();
        let Some(fault) = fault else { return Ok(true) };
        // The peer may still be writing.
        self.end(ends.outbound, ends.socket);
        self.queue.clear();
        fault.map_or(Ok(false), Err)
    }

    /// Whether there is something to read.
    pub fn is_pending(&self) -> bool {
        !self.queue.is_empty() && !self.ended
    }

    /// Reads the next portion, up to `bytes` bytes or one unit of a joint copy; also returns how many these
    /// were, and counts system calls.
    pub fn step(&mut self, bytes: usize, ends: &mut Ends<'_>, system_calls: &mut u64) -> (Step, usize) {
        let Self { reach, joints, queue, measures, maps, .. } = self;
        let Some(reading) = queue.front_mut().filter(|_| !self.ended) else { return (Step::Ended, 0) };
        let first = reading.pieces.get(reading.first).copied();
        if let Some(piece) = first
            && piece.len >= JOINT_BYTES_MIN
            && !joints.is_active()
            && reach.denied.is_none()
            // By one processor without the kernel is faster than by two with it.
            && !maps.has(reading.from, piece.len)
        {
            let timing = reading.timing.get_or_insert_with(|| Timing::begin(&reading.pieces, measures));
            // Once for each piece, at its start.
            let is_due = timing.is_joint && reading.first >= timing.next_piece;
            timing.next_piece = reading.first + 1;
            let begun = match is_due {
                true => joints.begin(reach, ends.outbound, (reading.from, piece)),
                false => Ok(false),
            };
            match begun {
                Ok(true) => {
                    timing.has_joint = true;
                    self.own_bytes = 0;
                    if ends.outbound.must_ring() {
                        *system_calls += 1;
                        socket::ring(ends.socket);
                    }
                }
                Ok(false) => {}
                Err(_) => return (Step::Corrupt, 0),
            }
        }
        if !joints.is_active() {
            return self.step_alone(bytes, ends, system_calls);
        }
        let from = reading.from;
        let Some(piece) = first else { return (Step::Ended, 0) };
        let (at, len) = match joints.next(reach, ends.socket, ends.outbound.claims(), bytes) {
            Ok(Next::Copy { at, len }) => (at, len),
            Ok(Next::Wait) => return (Step::Wait, 0),
            Ok(Next::Done) if reading.is_failed => return (self.finish(PostStatus::NoAccess), 0),
            Ok(Next::Done) => return (self.pass_joint(piece.len), 0),
            Err(_) => return (Step::Corrupt, 0),
        };
        let part = Piece { start: piece.start.wrapping_add(at), len };
        match self.copy(from.wrapping_add(at as u64), &[part], ends, system_calls) {
            Ok(()) => {
                self.own_bytes += len;
                match self.joints.is_done(ends.outbound.claims()) {
                    Ok(true) => (self.pass_joint(piece.len), len),
                    Ok(false) => (Step::Some, len),
                    Err(_) => (Step::Corrupt, len),
                }
            }
            Err(Failure::Unsealed) => self.end_now(),
            Err(Failure::System(_)) => {
                self.queue.iter_mut().take(1).for_each(|reading| reading.is_failed = true);
                match self.joints.fail(ends.outbound.claims()) {
                    Ok(()) => (Step::Some, 0),
                    Err(_) => (Step::Corrupt, 0),
                }
            }
        }
    }

    /// As [`step`](Self::step), of what only this side copies.
    fn step_alone(&mut self, bytes: usize, ends: &Ends<'_>, system_calls: &mut u64) -> (Step, usize) {
        let Some(reading) = self.queue.front() else { return (Step::Ended, 0) };
        let (mut portion, mut len) = (heapless::Vec::<Piece, PIECES_MAX>::new(), 0);
        for piece in &reading.pieces[reading.first..] {
            let part = Piece { start: piece.start, len: piece.len.min(bytes - len) };
            if part.len == 0 || portion.push(part).is_err() {
                break;
            }
            len += part.len;
        }
        match self.copy(reading.from, &portion, ends, system_calls) {
            Ok(()) => (self.pass(len), len),
            Err(Failure::System(_)) => (self.finish(PostStatus::NoAccess), len),
            Err(Failure::Unsealed) => self.end_now(),
        }
    }

    /// Fills pieces with the bytes at `from`.
    fn copy(&mut self, from: u64, pieces: &[Piece], ends: &Ends<'_>, system_calls: &mut u64) -> Result<(), Failure> {
        // SAFETY: pieces of a post that is a read are valid for writes until it is over (the contract of
        // `Rail::post`).
        let is_mapped = unsafe { self.maps.read(|| ends.inbound.offer(), from, pieces) };
        *system_calls += u64::from(!is_mapped);
        let got = match self.reach.denied {
            _ if is_mapped => Ok(()),
            None => read(&self.reach, from, pieces),
            Some(_) => Err(Failure::System(Errno::PERM)),
        };
        if let Err(Failure::System(errno)) = got
            && errno != Errno::FAULT
        {
            self.reach.denied = Some(Denied::System(errno));
        }
        got
    }

    /// A piece of the first read is there, by both sides' copies.
    fn pass_joint(&mut self, bytes: usize) -> Step {
        self.peer_bytes += bytes.saturating_sub(self.own_bytes) as u64;
        self.pass(bytes)
    }

    /// What peers have copied since the last call, of complete pieces.
    pub fn take_peer_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.peer_bytes)
    }

    /// So many bytes of the first read are there.
    fn pass(&mut self, bytes: usize) -> Step {
        let Some(reading) = self.queue.front_mut() else { return Step::Ended };
        reading.from = reading.from.wrapping_add(bytes as u64);
        if reading.advance(bytes) { Step::Some } else { self.finish(PostStatus::Done) }
    }

    /// The first read is over.
    fn finish(&mut self, status: PostStatus) -> Step {
        let Some(Reading { id, mut pieces, timing, .. }) = self.queue.pop_front() else { return Step::Ended };
        if let Some(Timing { since, bytes, is_joint, has_joint, .. }) = timing
            && status == PostStatus::Done
            && is_joint == has_joint
        {
            let took_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.measures.note(is_joint, took_ns, bytes);
        }
        pieces.clear();
        self.spare.push(pieces);
        if status == PostStatus::Done { Step::Done(id) } else { Step::NoAccess(id) }
    }

    fn end_now(&mut self) -> (Step, usize) {
        self.ended = true;
        (Step::Ended, 0)
    }
}

impl Timing {
    /// Chooses the way of a read of these pieces.
    fn begin(pieces: &[Piece], measures: &mut TwoMeasures) -> Self {
        let bytes = pieces.iter().map(|piece| piece.len as u64).sum();
        Timing { since: Instant::now(), bytes, is_joint: measures.is_first(bytes), has_joint: false, next_piece: 0 }
    }
}

impl Reading {
    /// So many bytes are there; whether more are to come.
    fn advance(&mut self, mut bytes: usize) -> bool {
        for piece in &mut self.pieces[self.first..] {
            let taken = bytes.min(piece.len);
            *piece = Piece { start: piece.start.wrapping_add(taken), len: piece.len - taken };
            bytes -= taken;
            if piece.len > 0 {
                return true;
            }
            self.first += 1;
        }
        false
    }
}
