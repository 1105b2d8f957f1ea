//! Small messages over rails that can lose: posted in the call that sends them, and received in one call
//! where the rail has all of their payload.
#![allow(unsafe_code)]

use rerail_core::endpoint::{AtOnce, PostKind, SendRequest, ShortArrival};
use rerail_core::ids::{OpId, PeerId, RailId};
use rerail_core::mem::Seg;
use rerail_core::time::Time;
use rerail_core::wire;

use super::engine::Engine;
use super::express::sole_piece;
use crate::memory::{Core, Memory};
use crate::rail::shm::copy_short;
use crate::rail::{Outgoing, Piece, ShortPlace};

impl Engine {
    /// Sends a small message that nothing is special about, whose segments are checked. `None`: nothing has
    /// happened.
    #[inline(always)]
    pub(super) fn send_at_once(&mut self, now: Time, send: &SendRequest<'_>) -> Option<OpId> {
        let Engine { rails, core, memory, at_once, .. } = self;
        let (from, len) = sole_piece(memory, send.segments)?;
        if !core.send_at_once(now, send, len, at_once) {
            return None;
        }
        let &mut AtOnce { operation, id, rail, retained, ref header, .. } = at_once;
        // The pool is as large as the core's configuration requires, so the place lies in it.
        let start = memory.start_in_pool(&Seg { at: retained, len }).filter(|_| len > 0);
        let payload = Piece { start: start.unwrap_or(std::ptr::null_mut()), len: len as usize };
        if let Some(to) = start {
            // SAFETY: the source was resolved within its region, the place within the pool, which no piece of
            // a region overlaps; no references to the bytes of either exist while the engine is borrowed
            // mutably.
            unsafe { copy_short(from, to, payload.len) };
        }
        let payload: &[Piece] = if len > 0 { &[payload] } else { &[] };
        let outgoing = Outgoing { id, peer: send.peer, kind: PostKind::Send, header, payload, extent: 0 };
        let is_over = match rails.get_mut(rail) {
            // SAFETY: the piece lies in the pool, which lives as long as the rails; the core gives the place
            // to another message only after the post's completion or the subchannel's end.
            Some((_, rail)) => unsafe { rail.post_small(outgoing) },
            None => false,
        };
        core.posted_at_once(now, at_once, len, is_over);
        Some(operation)
    }
}

/// Where the payload of a packet goes that is here, all of it.
pub(super) fn place_whole(
    core: &mut Core,
    memory: &Memory,
    now: Time,
    (peer, rail): (PeerId, RailId),
    header: &[u8],
) -> ShortPlace {
    match core.arrive_at_once(now, peer, rail, header) {
        ShortArrival::At(at) => {
            let len = wire::payload_len(header).into();
            memory.start_of_named(&Seg { at, len }).map_or(ShortPlace::Done, ShortPlace::Copy)
        }
        ShortArrival::Done => ShortPlace::Done,
        ShortArrival::Slow => ShortPlace::Packet,
    }
}
