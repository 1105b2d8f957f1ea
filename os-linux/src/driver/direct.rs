//! Puts and gets that are carried out at once, where a rail reaches the peer's window (L-26).
//!
//! Tried first, as the express path of messages is; none of them reads the clock.
#![allow(unsafe_code)]

use rerail_core::endpoint::{DirectRequest, GetRequest, PutRequest, Remote};
use rerail_core::ids::{OpId, RailId};
use rerail_core::mem::Seg;

use super::engine::Engine;
use crate::rail::{DirectAccess, Piece};

/// The peer carries out longer ones: this process does nothing else meanwhile.
const BYTES_MAX: u64 = 1 << 30;
/// More pieces are left to the peer, too.
const PIECES_MAX: usize = 8;

impl Engine {
    /// Puts, if that can be done without the peer. `None`: nothing has happened.
    #[inline]
    pub(super) fn put_directly(&mut self, put: &PutRequest<'_>) -> Option<OpId> {
        self.access(&direct_put(put)?, put.to, put.segments)
    }

    /// As [`put_directly`](Self::put_directly), of bytes of the caller.
    pub(super) fn inject_directly(&mut self, put: &PutRequest<'_>, payload: &[u8]) -> Option<OpId> {
        let piece = Piece { start: payload.as_ptr().cast_mut(), len: payload.len() };
        // SAFETY: the slice can be read, and a put writes to no piece.
        unsafe { self.access_pieces(&direct_put(put)?, put.to, &[piece]) }
    }

    /// As [`put_directly`](Self::put_directly), a get.
    #[inline]
    pub(super) fn get_directly(&mut self, get: &GetRequest<'_>) -> Option<OpId> {
        let &GetRequest { fence, notify, cookie, .. } = get;
        let request = DirectRequest { peer: get.from.peer, is_put: false, fence, notify, cookie };
        self.access(&request, get.from, get.segments)
    }

    #[inline]
    fn access(&mut self, request: &DirectRequest, at: Remote, segments: &[Seg]) -> Option<OpId> {
        if let [seg] = segments {
            let piece = Piece { start: self.memory.start_of(seg)?, len: seg.len as usize };
            // SAFETY: the piece was resolved within its region; no references to the bytes of a region exist
            // while the transport is borrowed mutably.
            return unsafe { self.access_pieces(request, at, &[piece]) };
        }
        if segments.len() > self.config.segments_max.into() {
            return None;
        }
        let mut pieces = heapless::Vec::<Piece, PIECES_MAX>::new();
        for seg in segments {
            pieces.push(Piece { start: self.memory.start_of(seg)?, len: seg.len as usize }).ok()?;
        }
        // SAFETY: as above.
        unsafe { self.access_pieces(request, at, &pieces) }
    }

    /// # Safety
    /// The pieces can be read, those of a get written.
    #[inline]
    unsafe fn access_pieces(&mut self, request: &DirectRequest, at: Remote, pieces: &[Piece]) -> Option<OpId> {
        let bytes: u64 = pieces.iter().map(|piece| piece.len as u64).sum();
        let access =
            DirectAccess { peer: at.peer, is_put: request.is_put, window: at.window, offset: at.offset, pieces };
        let is_done = match &mut self.rails.shm {
            Some(rail) => {
                rail.has_windows(at.peer)
                    && bytes <= BYTES_MAX
                    && self.core.may_access(request)
                    // SAFETY: the caller's promise is the same.
                    && unsafe { rail.access_now(&access) }
            }
            // Rails whose type is not known: simulated shared memory.
            None if self.quick_rails != 0 && bytes <= BYTES_MAX && self.core.may_access(request) => {
                let quick = (0..u64::BITS as u8).filter(|rail| self.quick_rails >> rail & 1 != 0);
                quick.map(RailId).any(|rail| match self.rails.get_mut(rail) {
                    // SAFETY: as above.
                    Some((_, rail)) => unsafe { rail.access(&access) },
                    None => false,
                })
            }
            None => false,
        };
        is_done.then(|| self.core.direct_done(request, bytes as u32))
    }
}

/// What matters of a put; `None`: its target has to notice it.
#[inline]
fn direct_put(put: &PutRequest<'_>) -> Option<DirectRequest> {
    let &PutRequest { fence, notify, cookie, immediate, .. } = put;
    let request = DirectRequest { peer: put.to.peer, is_put: true, fence, notify, cookie };
    immediate.is_none().then_some(request)
}
