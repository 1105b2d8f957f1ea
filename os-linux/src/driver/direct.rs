//! Puts and gets that are carried out at once, where a rail reaches the peer's window (L-26).
//!
//! Tried first, as the express path of messages is; none of them reads the clock.
#![allow(unsafe_code)]

use rerail_core::endpoint::{DirectRequest, GetRequest, PutRequest, Remote};
use rerail_core::ids::RailId;
use rerail_core::mem::Seg;

use super::engine::Engine;
use crate::rail::{DirectAccess, Piece};

/// The peer carries out longer ones: this process does nothing else meanwhile.
const BYTES_MAX: u64 = 1 << 30;
/// More pieces are left to the peer, too.
const PIECES_MAX: usize = 8;

impl Engine {
    /// Puts, if that can be done without the peer: its id is that of the core's
    /// [`direct_id`](rerail_core::endpoint::Endpoint::direct_id). `false`: nothing has happened.
    #[inline(always)]
    pub(super) fn put_directly(&mut self, put: &PutRequest<'_>) -> bool {
        direct_put(put).is_some_and(|request| self.access(request, &put.to, put.segments))
    }

    /// As [`put_directly`](Self::put_directly), of bytes of the caller.
    pub(super) fn inject_directly(&mut self, put: &PutRequest<'_>, payload: &[u8]) -> bool {
        let piece = Piece { start: payload.as_ptr().cast_mut(), len: payload.len() };
        // SAFETY: the slice can be read, and a put writes to no piece.
        direct_put(put).is_some_and(|request| unsafe { self.access_piece(request, &put.to, piece) })
    }

    /// As [`put_directly`](Self::put_directly), a get.
    #[inline(always)]
    pub(super) fn get_directly(&mut self, get: &GetRequest<'_>) -> bool {
        let &GetRequest { ref from, fence, ref notify, cookie, segments } = get;
        let Some(has_event) = DirectRequest::has_event(notify) else { return false };
        self.access(DirectRequest { peer: from.peer, is_put: false, fence, has_event, cookie }, from, segments)
    }

    #[inline(always)]
    fn access(&mut self, request: DirectRequest, at: &Remote, segments: &[Seg]) -> bool {
        let [seg] = segments else { return self.access_segments(request, at, segments) };
        let Some(start) = self.memory.start_of(seg) else { return false };
        let piece = Piece { start, len: seg.len as usize };
        // SAFETY: the piece was resolved within its region; no references to the bytes of a region exist
        // while the transport is borrowed mutably.
        unsafe { self.access_piece(request, at, piece) }
    }

    #[inline(never)]
    fn access_segments(&mut self, request: DirectRequest, at: &Remote, segments: &[Seg]) -> bool {
        if segments.len() > self.config.segments_max.into() {
            return false;
        }
        let mut pieces = heapless::Vec::<Piece, PIECES_MAX>::new();
        for seg in segments {
            let Some(start) = self.memory.start_of(seg) else { return false };
            if pieces.push(Piece { start, len: seg.len as usize }).is_err() {
                return false;
            }
        }
        // SAFETY: as above.
        unsafe { self.access_pieces(request, at, &pieces) }
    }

    /// # Safety
    /// The pieces can be read, those of a get written.
    unsafe fn access_pieces(&mut self, request: DirectRequest, at: &Remote, pieces: &[Piece]) -> bool {
        let bytes: u64 = pieces.iter().map(|piece| piece.len as u64).sum();
        if bytes > BYTES_MAX || (self.rails.shm.is_none() && self.quick_rails == 0) || !self.core.may_access(&request) {
            return false;
        }
        let &Remote { peer, window, offset } = at;
        let access = DirectAccess { peer, is_put: request.is_put, window, offset, pieces };
        let is_done = match &mut self.rails.shm {
            // SAFETY: the caller's promise is the same.
            Some(rail) => unsafe { rail.access_now(&access) },
            // Rails whose type is not known: simulated shared memory.
            None => {
                let quick = (0..u64::BITS as u8).filter(|rail| self.quick_rails >> rail & 1 != 0);
                quick.map(RailId).any(|rail| match self.rails.get_mut(rail) {
                    // SAFETY: as above.
                    Some((_, rail)) => unsafe { rail.access(&access) },
                    None => false,
                })
            }
        };
        if is_done {
            self.core.direct_done(&request, bytes as u32);
        }
        is_done
    }

    /// As [`access_pieces`](Self::access_pieces), of one piece. Inlined, and its parts are not copied: a copy
    /// of two words that were just written waits for them.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn access_piece(&mut self, request: DirectRequest, at: &Remote, piece: Piece) -> bool {
        let Some(rail) = &mut self.rails.shm else {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.access_pieces(request, at, &[piece]) };
        };
        let Some(link) = rail.window_link(at.peer) else { return false };
        if piece.len as u64 > BYTES_MAX || !self.core.may_access(&request) {
            return false;
        }
        // SAFETY: as above.
        if unsafe { link.access_piece(request.is_put, (at.window, at.offset), piece) } {
            self.core.direct_done(&request, piece.len as u32);
            return true;
        }
        rail.after_access(at.peer);
        false
    }
}

/// What matters of a put; `None`: its target has to notice it, or a counter does.
#[inline(always)]
fn direct_put(put: &PutRequest<'_>) -> Option<DirectRequest> {
    let &PutRequest { fence, ref notify, cookie, ref immediate, .. } = put;
    if immediate.is_some() {
        return None;
    }
    let has_event = DirectRequest::has_event(notify)?;
    Some(DirectRequest { peer: put.to.peer, is_put: true, fence, has_event, cookie })
}
