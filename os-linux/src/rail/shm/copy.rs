//! Reads of a peer's memory: one copy, made by the kernel (`process_vm_readv`), from the sender's buffer to
//! the receiver's.
//!
//! A read waits in its link's queue and is carried out in portions, so that packets of all peers are taken
//! between them. Its pieces are this process's and bound the writes, whatever the peer sent: a wrong key
//! costs its owner a wrong payload, or the read ends with
//! [`PostStatus::NoAccess`](rerail_core::endpoint::PostStatus::NoAccess) and the message comes through the
//! ring.
//!
//! There are no writes: a peer that is stopped between the decision to write and the system call would write
//! to memory that this side has given back long ago, and no rule could keep F-2 then. A read changes nothing
//! but its own pieces.
//!
//! Invariants: reads are carried out in post order; one counts as done only if the peer's seal was whole
//! after its last byte ([`Reach`]); once a seal was found broken nothing is read any more, and the pending
//! end of the link makes waiting reads void.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};

use rerail_core::endpoint::PostKind;
use rerail_core::ids::PostId;
use rustix::io::Errno;

use super::offers::Maps;
use super::reach::{Denied, Reach, SEAL_BYTES};
use crate::rail::{Outgoing, Piece};

/// Bytes that one poll of a rail reads: small messages wait no longer than this takes (some 30 us). Less
/// costs throughput, as each portion is a system call, a look for the process and a seal of its own.
pub const BYTES_PER_POLL: usize = 256 * 1024;

/// Pieces of this process's memory that one system call fills, the seal's place aside.
const PIECES_MAX: usize = 16;

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

fn last_errno() -> Errno {
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
    /// Nothing is read any more: the subchannel's end is pending.
    Ended,
}

/// The reads of one link.
#[derive(Debug)]
pub struct Reads {
    reach: Reach,
    /// What of that memory is mapped here.
    pub maps: Maps,
    queue: VecDeque<Reading>,
    /// Lists for posts to come.
    spare: Vec<Vec<Piece>>,
    ended: bool,
}

impl Reads {
    /// Of the memory behind `reach`, of which so many bytes may be mapped.
    pub fn new(reach: Reach, mapped_bytes_max: u64) -> Self {
        Reads { reach, maps: Maps::new(mapped_bytes_max), queue: VecDeque::new(), spare: Vec::new(), ended: false }
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
        self.queue.push_back(Reading { id: outgoing.id, from: from.address, pieces, first: 0 });
        true
    }

    /// Whether there is something to read.
    pub fn is_pending(&self) -> bool {
        !self.queue.is_empty() && !self.ended
    }

    /// Reads the next portion, up to `bytes` bytes; also returns how many these were, and counts system
    /// calls. `offer` reads the number of the peer's offers.
    pub fn step(&mut self, bytes: usize, offer: impl Fn() -> u64, system_calls: &mut u64) -> (Step, usize) {
        let Self { reach, maps, queue, .. } = self;
        let Some(reading) = queue.front_mut().filter(|_| !self.ended) else { return (Step::Ended, 0) };
        let (mut portion, mut len) = (heapless::Vec::<Piece, PIECES_MAX>::new(), 0);
        for piece in &reading.pieces[reading.first..] {
            let part = Piece { start: piece.start, len: piece.len.min(bytes - len) };
            if part.len == 0 || portion.push(part).is_err() {
                break;
            }
            len += part.len;
        }
        // SAFETY: pieces of a post that is a read are valid for writes until it is over (the contract of
        // `Rail::post`).
        let is_mapped = unsafe { maps.read(offer, reading.from, &portion) };
        *system_calls += u64::from(!is_mapped);
        let got = match reach.denied {
            _ if is_mapped => Ok(()),
            None => read(reach, reading.from, &portion),
            Some(_) => Err(Failure::System(Errno::PERM)),
        };
        let step = match got {
            Ok(()) => {
                reading.from = reading.from.wrapping_add(len as u64);
                if reading.advance(len) {
                    return (Step::Some, len);
                }
                Step::Done(reading.id)
            }
            Err(Failure::System(errno)) => {
                if errno != Errno::FAULT {
                    reach.denied = Some(Denied::System(errno));
                }
                Step::NoAccess(reading.id)
            }
            Err(Failure::Unsealed) => {
                self.ended = true;
                return (Step::Ended, 0);
            }
        };
        if let Some(Reading { mut pieces, .. }) = queue.pop_front() {
            pieces.clear();
            self.spare.push(pieces);
        }
        (step, len)
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
