//! The short way: small messages about which nothing is special, sent and received without the core's tables.
//!
//! None of it reads the clock: [`Transport::send`](super::Transport::send), `recv` and `progress` try this
//! first.
#![allow(unsafe_code)]

use rerail_core::endpoint::{LineId, RecvRequest, SendRequest, ShortPost, ShortReceived, Waiting};
use rerail_core::ids::{OpId, PeerId, RailId};
use rerail_core::mem::Seg;
use rerail_core::shm::fits_inline;
use rerail_core::wire::{Short, ShortSource};

use super::drive::place;
use super::engine::Engine;
use crate::memory::{Core, Memory, at_address};
use crate::rail::ShortPlace;
use crate::rail::shm::{Front, copy_short};

/// Messages that are taken at once where many have come.
const SEVERAL: usize = 16;

/// Payloads of so many bytes are copied without a call.
const WORD: u64 = 8;

/// What a look at the rings finds.
pub(super) enum Look {
    /// This message.
    Ready(Front),
    /// No message, but the rail has other work.
    Slow,
    /// No message in the rings looked at; other rings are left.
    Others,
    /// Nothing.
    Empty,
}

impl Engine {
    /// Sends a message that nothing is special about, if its payload lies in its cell and takes one block at
    /// most: it is with the peer then, and complete. `None`: nothing has happened. Whatever is rare is a
    /// function of its own, whose result is this one's: so few registers are saved.
    #[inline(always)]
    pub(super) fn send_inline(&mut self, send: &SendRequest<'_>) -> Option<OpId> {
        let (from, len) = match send.segments {
            // A message that does not fit into a cell takes another path: so this is checked first.
            [seg] if !fits_inline(seg.len, send.immediate.is_some()) => return None,
            [seg] => (self.memory.start_of(seg)?.cast_const(), seg.len),
            [] => (std::ptr::null(), 0),
            _ => return None,
        };
        // The core opens its express path for this rail only, if there is one.
        let rail = self.rails.shm.as_mut()?;
        let link = rail.inline_link(send.peer)?;
        let (at, short) = self.core.send_next(link.line, send, len)?;
        debug_assert_eq!(at, self.rails.shm_id, "a peer that is reached over another ring only has no link here");
        link.begin_inline(&short);
        if len != WORD {
            return Some(self.finish_copied(send, from, len));
        }
        // SAFETY: as in `try_short`; and the payload fits into a cell, of which the link has just reported
        // one free.
        if unsafe { link.finish_inline(WORD as u16, short.flags, from) } {
            return Some(self.finish_woken(send, len));
        }
        link.expect_next(self.core.has_several_done());
        Some(self.core.sent_next(send, len))
    }

    /// The rest of [`send_inline`](Self::send_inline) where the copy is a call.
    #[inline(never)]
    fn finish_copied(&mut self, send: &SendRequest<'_>, from: *const u8, len: u64) -> OpId {
        let Some(link) = self.rails.shm.as_mut().and_then(|rail| rail.link_to(send.peer)) else {
            unreachable!("the message was begun on the link");
        };
        let flags = Short::flags_of(send.tag, send.immediate);
        // SAFETY: as there: nothing has changed since.
        if unsafe { link.finish_inline(len as u16, flags, from) } {
            link.wake();
        }
        link.expect_next(self.core.has_several_done());
        self.core.sent_next(send, len)
    }

    /// The same where the peer sleeps.
    #[cold]
    #[inline(never)]
    fn finish_woken(&mut self, send: &SendRequest<'_>, len: u64) -> OpId {
        if let Some(link) = self.rails.shm.as_mut().and_then(|rail| rail.link_to(send.peer)) {
            link.wake();
        }
        self.core.sent_next(send, len)
    }

    /// The cases that [`send_inline`](Self::send_inline) leaves out: the payload lies in the annex, the short
    /// path is closed, its credits are used up, or the type of its rail is not known. `None`: nothing has
    /// happened, and there may be an error to find.
    #[inline(always)]
    pub(super) fn send_short(&mut self, send: &SendRequest<'_>) -> Option<OpId> {
        match self.try_short(send) {
            None => self.send_short_anew(send),
            sent => sent,
        }
    }

    #[inline(always)]
    fn try_short(&mut self, send: &SendRequest<'_>) -> Option<OpId> {
        let rail = self.rails.shm.as_mut()?;
        let (from, len) = sole_piece(&self.memory, send.segments)?;
        let link = rail.short_link(send.peer, len, send.immediate.is_some())?;
        let (at, short, operation) = self.core.send_short_on(link.line, send, len)?;
        debug_assert_eq!(at, self.rails.shm_id, "a peer that is reached over another ring only has no link here");
        // SAFETY: the link has just reported that there is room, the core's message is as long as the piece,
        // and that was resolved within its region, or is empty; no references to the bytes of a region exist
        // while the transport is borrowed mutably.
        unsafe { link.post_short(&short, from) };
        Some(operation)
    }

    /// Opens the short path if possible. Also serves rails whose type is not known: simulated shared memory.
    #[cold]
    #[inline(never)]
    fn send_short_anew(&mut self, send: &SendRequest<'_>) -> Option<OpId> {
        if self.rails.shm.is_some() {
            if !self.core.open_short(send.peer) {
                return None;
            }
            let line = self.core.line_of(send.peer);
            self.rails.shm.as_mut()?.set_line(send.peer, line);
            return self.try_short(send);
        }
        let (from, len) = sole_piece(&self.memory, send.segments)?;
        // SAFETY: as in `try_short`.
        unsafe { self.send_from(send, from, len) }
    }

    /// Sends bytes of the caller that need not stay where they are.
    #[inline(never)]
    pub(super) fn inject_short(&mut self, send: &SendRequest<'_>, payload: &[u8]) -> Option<OpId> {
        if self.quick_rails == 0 {
            return None;
        }
        // SAFETY: the slice can be read.
        unsafe { self.send_from(send, payload.as_ptr(), payload.len() as u64) }
    }

    /// Sends `len` bytes from `from` on by whatever rail has a short path.
    ///
    /// # Safety
    /// They can be read.
    #[inline(never)]
    unsafe fn send_from(&mut self, send: &SendRequest<'_>, from: *const u8, len: u64) -> Option<OpId> {
        let (rail, short, operation) = match self.core.send_short(send, len) {
            Some(sent) => sent,
            None if self.core.open_short(send.peer) => self.core.send_short(send, len)?,
            None => return None,
        };
        let is_out = match self.rails.get_mut(rail) {
            // SAFETY: the caller's promise.
            Some((_, rail)) => unsafe { rail.post_short(send.peer, &short, from) },
            None => false,
        };
        if is_out {
            return Some(operation);
        }
        self.core.unsend_short(send, short);
        None
    }

    /// Posts a receive that nothing is special about, while no message waits for one. `None`: nothing has
    /// happened, and there may be an error to find.
    #[inline(always)]
    pub(super) fn recv_short(&mut self, recv: &RecvRequest<'_>) -> Option<OpId> {
        if self.core.has_waiting() {
            return None;
        }
        let [seg] = recv.segments else { return None };
        let to = self.memory.start_of(seg)?;
        match self.core.post_short(recv, Memory::by_address(seg.at.region, to)) {
            ShortPost::Posted(operation) => Some(operation),
            ShortPost::Waits(_) | ShortPost::Slow => None,
        }
    }

    /// As [`recv_short`](Self::recv_short), where messages wait: it may be for one of them.
    #[inline(always)]
    pub(super) fn recv_beside_waiting(&mut self, recv: &RecvRequest<'_>) -> Option<OpId> {
        let [seg] = recv.segments else { return None };
        let to = self.memory.start_of(seg)?;
        match self.core.post_short(recv, Memory::by_address(seg.at.region, to)) {
            ShortPost::Posted(operation) => Some(operation),
            ShortPost::Waits(found) => self.take_waiting(recv, to, found),
            ShortPost::Slow => None,
        }
    }

    /// Receives a message that arrived before this receive was posted, whose memory starts at `to`.
    #[inline(never)]
    fn take_waiting(&mut self, recv: &RecvRequest<'_>, to: *mut u8, found: Waiting) -> Option<OpId> {
        let ShortReceived { operation, from } = self.core.take_waiting(recv, found)?;
        if let Some(start) = self.memory.start_in_pool(&from) {
            // SAFETY: the message was resolved within the pool, and is at most as long as the receive's
            // piece, which the caller resolved within its region; a piece of a region does not overlap the
            // pool. No references to the bytes of either exist while the transport is borrowed mutably.
            unsafe { copy_short(start, to, from.len as usize) };
        }
        Some(operation)
    }

    /// Looks for messages that came over shared memory (a few instructions). A [`round`](Self::round) in
    /// between looks at all the rest: other rails, connections, timers.
    #[inline(always)]
    pub(super) fn look(&mut self) -> Look {
        match &mut self.rails.shm {
            Some(rail) => match rail.recent_front() {
                Some(front) => Look::Ready(front),
                None if !rail.has_anything_beside() => Look::Empty,
                None if rail.has_slow_work() => Look::Slow,
                None => Look::Others,
            },
            None => Look::Empty,
        }
    }

    /// As [`look`](Self::look), at some of the other rings; `Others`: some are left.
    #[inline(always)]
    pub(super) fn look_in_turn(&mut self) -> Look {
        let Some(rail) = &mut self.rails.shm else { return Look::Empty };
        match rail.look_in_turn() {
            Some(front) => Look::Ready(front),
            None if rail.has_seen_all() => Look::Empty,
            None => Look::Others,
        }
    }

    /// Takes several messages of the ring that had the last one.
    #[inline]
    pub(super) fn more(&mut self) -> usize {
        match self.look() {
            Look::Ready(_) if self.core.one_waits() => self.take_several::<true>(),
            Look::Ready(_) => self.take_several::<false>(),
            _ => 0,
        }
    }

    /// Takes the message that a look has just found. This function handles a channel whose line is open, a
    /// plain receive, and a payload in its cell. Other functions handle the rare cases. The copy comes last,
    /// so no values are kept across it. `ONE`: see [`one_waits`](Core::one_waits).
    #[inline(always)]
    pub(super) fn take_message<const ONE: bool>(&mut self, front: Front) -> usize {
        let Front { mut link, word } = front;
        // SAFETY: the link is the rail's, which nothing has used since the look: links are neither added nor
        // removed, and no other reference to one exists.
        let link = unsafe { link.as_mut() };
        let core = &mut self.core;
        let (line, peer) = (link.line, link.peer);
        let Some(short) = link.front_inline(word) else { return self.take_annex() };
        let (len, payload) = (short.bytes(), short.payload());
        let Some(place) = core.arrive_at::<ONE>(line, peer, &short) else { return self.take_others() };
        let (to, must_check) = (at_address(place.receive.address()), place.must_check);
        if must_check || core.is_active() || !link.pass_short(len) {
            // SAFETY: as below.
            unsafe { copy_short(payload, to, len.into()) };
            return self.after_message(len, must_check);
        }
        // SAFETY: the ring guarantees the payload: it is not overwritten before more is released. The place
        // is that of a posted receive, which was resolved within its region when it was posted by its
        // address, and has room for all of it. No references to the bytes of a region exist while the
        // transport is borrowed mutably.
        unsafe { copy_short(payload, to, len.into()) };
        1
    }

    /// As [`take_message`](Self::take_message), for the messages of the same link that are here, as long as
    /// each is like the one before, but a few at most: their completions are to be taken while they are in
    /// the cache.
    #[inline(never)]
    fn take_several<const ONE: bool>(&mut self) -> usize {
        let Engine { rails, core, .. } = self;
        let Some(link) = rails.recent_link() else { return 0 };
        let (line, peer) = (link.line, link.peer);
        for done in 0..SEVERAL {
            let Some(short) = link.front_word().and_then(|word| link.front_inline(word)) else { return done };
            let (len, payload) = (short.bytes(), short.payload());
            let Some(place) = core.arrive_at::<ONE>(line, peer, &short) else { return done };
            let (to, must_check) = (at_address(place.receive.address()), place.must_check);
            // SAFETY: as in `take_message`.
            unsafe { copy_short(payload, to, len.into()) };
            if must_check || core.is_active() || !link.pass_short(len) {
                return done + self.after_message(len, must_check);
            }
        }
        SEVERAL
    }

    /// Rare work for a message that was taken and copied.
    #[cold]
    #[inline(never)]
    fn after_message(&mut self, len: u16, must_check: bool) -> usize {
        let Engine { rails, core, .. } = self;
        if let Some(link) = rails.recent_link() {
            link.release_short(len);
            if must_check {
                core.after_next(link.peer, len);
            }
        }
        if core.is_active() { 1 + self.carry_out(self.last) } else { 1 }
    }

    /// As [`take_message`](Self::take_message), for a payload in the annex.
    #[inline(never)]
    fn take_annex(&mut self) -> usize {
        let Engine { rails, core, .. } = self;
        let Some(link) = rails.recent_link() else { return 0 };
        let (line, mut len, mut must_check) = (link.line, 0, false);
        let is_taken = link.take_front(|peer, short, payload| {
            let Some(place) = core.arrive_next(line, peer, &short) else { return false };
            (len, must_check) = (short.len, place.must_check);
            // SAFETY: as in `take_message`.
            unsafe { copy_short(payload, at_address(place.receive.address()), len.into()) };
            true
        });
        if !is_taken {
            return self.take_others();
        }
        if must_check {
            core.after_next(link.peer, len);
        }
        if core.is_active() { 1 + self.take_rest() } else { 1 }
    }

    /// Takes the message that is due on the same link, if it is a short one, and all further events.
    #[inline(never)]
    pub(super) fn take_others(&mut self) -> usize {
        let Engine { rails, core, memory, .. } = self;
        let id = rails.shm_id;
        let Some(link) = rails.recent_link() else { return 0 };
        let mut line = link.line;
        let is_taken = link.take_front(|peer, short, payload| {
            // SAFETY: the ring vouches for the payload.
            unsafe { take_otherwise(core, memory, &mut line, peer, id, &short, payload) }
        });
        link.line = line;
        if is_taken & !core.is_active() { 1 } else { usize::from(is_taken) + self.take_rest() }
    }
}

/// Takes a short message outside the usual case; `false`: it needs a packet's path.
///
/// # Safety
/// `payload` can be read for the message's length.
#[inline(always)]
unsafe fn take_otherwise(
    core: &mut Core,
    memory: &Memory,
    line: &mut LineId,
    peer: PeerId,
    rail: RailId,
    short: &Short,
    payload: *const u8,
) -> bool {
    match place(memory, short, core.arrive_otherwise(line, peer, rail, short)) {
        // SAFETY: the caller guarantees the payload. The place has room for all of it: that of a posted
        // receive, or a block of the pool, resolved within its region. No references to the bytes of a region
        // exist while the transport is borrowed mutably.
        ShortPlace::Copy(to) => unsafe { copy_short(payload, to, short.len.into()) },
        ShortPlace::Done => {}
        ShortPlace::Packet => return false,
    }
    true
}

/// Where a payload of one piece is, or of none.
#[inline(always)]
pub(super) fn sole_piece(memory: &Memory, segments: &[Seg]) -> Option<(*const u8, u64)> {
    match segments {
        [seg] => Some((memory.start_of(seg)?.cast_const(), seg.len)),
        [] => Some((std::ptr::null(), 0)),
        _ => None,
    }
}
