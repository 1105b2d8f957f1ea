//! Puts and gets that this process carries out itself in windows of a peer (L-25 to L-27): in those that are
//! mapped here without the owner; large gets out of others by the system, with the owner's help where that
//! comes. And the owner's side: its list of windows, and how it finds that no put goes to one that it has
//! removed.
//!
//! Safety argument of the file: a window's place lies in a mapping that its link holds, of a file that keeps
//! its bytes ([`MappedWindow`]); the pieces of an access are the caller's. Both may be accessed by other
//! processes meanwhile, which changes what bytes a copy yields and no more.
//!
//! Invariants: a window that is listed for puts lies in memory that is offered. Bytes of a window are written
//! only between an announcement and its end, and only by a list that the owner still had after the
//! announcement. No list with puts goes to a peer whose end this process could not find out.
#![allow(unsafe_code)]

use std::ops::RangeInclusive;
use std::sync::atomic::{Ordering, fence};

use rerail_core::endpoint::Access;
use rerail_core::ids::PeerId;
use rerail_core::shm::{ListedWindow, OfferedRange, WindowList};

use super::copy::Ends;
use super::gate;
use super::joint::JOINT_BYTES_MIN;
use super::link::Link;
use super::look::SLOW;
use super::offers::MappedWindow;
use super::segment::{Announcement, copy_short};
use super::{ShmRail, barrier};
use crate::rail::{DirectAccess, Piece};

impl Link {
    /// Carries out a put or get; `false`: it was not, though a get's pieces may have any bytes.
    ///
    /// # Safety
    /// The pieces can be read, those of a get written.
    pub unsafe fn access(&mut self, access: &DirectAccess<'_>) -> bool {
        let &DirectAccess { is_put, window, offset, pieces, .. } = access;
        let bytes = pieces.iter().map(|piece| piece.len).sum();
        let copy = |at: *mut u8| {
            let mut at = at;
            for piece in pieces {
                // SAFETY: as many bytes as the pieces have together lie there; see the file's top.
                unsafe { copy_piece(is_put, at, piece) };
                at = at.wrapping_add(piece.len);
            }
        };
        let is_done = self.copy_window(is_put, (window, offset), bytes, copy);
        // SAFETY: the caller's promise is the same.
        is_done.unwrap_or_else(|| unsafe { self.get_by_system((window, offset), pieces, bytes) })
    }

    /// As [`access`](Self::access), of one piece.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn access_piece(&mut self, is_put: bool, (window, offset): (u64, u64), piece: Piece) -> bool {
        // SAFETY: the piece's bytes lie there; see the file's top.
        let copy = |at: *mut u8| unsafe { copy_piece(is_put, at, &piece) };
        let is_done = self.copy_window(is_put, (window, offset), piece.len, copy);
        // SAFETY: the caller's promise is the same.
        is_done.unwrap_or_else(|| unsafe { self.get_by_system((window, offset), &[piece], piece.len) })
    }

    /// Calls `copy` with where a part of a window is mapped; whether that counts. `None`: it is a get, and
    /// the window is not mapped.
    #[inline(always)]
    fn copy_window(
        &mut self,
        is_put: bool,
        (key, offset): (u64, u64),
        bytes: usize,
        copy: impl FnOnce(*mut u8),
    ) -> Option<bool> {
        let Self { memory, inbound, outbound, counted, fault, gone, .. } = self;
        let Some((_, reads)) = memory else { return Some(false) };
        if fault.is_some() || gone.is_some() {
            return Some(false);
        }
        let Some(window) = reads.maps.window(inbound, key) else { return Some(false) };
        let Some(at) = window.place(offset, bytes) else { return Some(false) };
        if is_put {
            if !window.puts {
                return Some(false);
            }
            outbound.begin_put(window.number);
            // If the list has the window, its owner waits for the end.
            let is_listed = inbound.windows() == window.number;
            if is_listed {
                copy(at);
                counted.bytes_sent += bytes as u64;
            }
            outbound.end_put();
            return Some(is_listed);
        }
        if !window.gets {
            return None;
        }
        copy(at);
        counted.bytes_received += bytes as u64;
        // What was copied was there before the number is read.
        fence(Ordering::Acquire);
        Some(inbound.windows() == window.number)
    }

    /// L-28. A get out of memory that is not mapped.
    ///
    /// # Safety
    /// The pieces can be written.
    #[cold]
    #[inline(never)]
    unsafe fn get_by_system(&mut self, (key, offset): (u64, u64), pieces: &[Piece], bytes: usize) -> bool {
        if !GET_BYTES.contains(&bytes) {
            return false;
        }
        let Self { memory, inbound, outbound, socket, counted, .. } = self;
        let Some((_, reads)) = memory else { return false };
        let Some(&MappedWindow { number, reads_at: Some(start), .. }) = reads.maps.window(inbound, key) else {
            return false;
        };
        // Else it computes, and notes to it would fill its ring.
        let may_help = outbound.is_drained();
        let from = start.wrapping_add(offset);
        let mut ends = Ends { inbound, outbound, socket };
        // SAFETY: the caller's promise is the same.
        let is_read = unsafe { reads.read_now((from, pieces), may_help, &mut ends, &mut counted.system_calls) };
        counted.bytes_received += if is_read == Ok(true) { bytes as u64 } else { 0 };
        // What was copied was there before the number is read.
        fence(Ordering::Acquire);
        let is_listed = inbound.windows() == number;
        is_read.unwrap_or_else(|fault| {
            self.fail(fault);
            false
        }) && is_listed
    }

    /// Whether the peer lists windows.
    #[inline(always)]
    pub fn has_windows(&self) -> bool {
        self.inbound.windows() != 0
    }

    /// Whether the list of what may be mapped is to be requested.
    pub fn must_ask(&self) -> bool {
        self.memory.as_ref().is_some_and(|(_, reads)| reads.maps.must_ask())
    }

    /// The peer gets our list of windows: with those for puts where its end could be found out.
    fn list_windows(&mut self, list: &WindowList) {
        if self.memory.is_some() {
            self.outbound.list_windows(list, self.putter() != 0);
        }
    }

    /// The peer's process, if it may put; else 0.
    fn putter(&self) -> i32 {
        self.memory.as_ref().map_or(0, |(_, reads)| reads.reach().pid())
    }
}

/// Gets out of memory that is not mapped which this process reads itself: of fewer bytes, the owner's packets
/// are as fast; of more, this process would do nothing else for milliseconds.
const GET_BYTES: RangeInclusive<usize> = JOINT_BYTES_MIN..=16 << 20;

/// Copies a piece to or from a part of a window.
///
/// # Safety
/// Both have as many bytes; the piece's can be read, or written by a get.
#[inline(always)]
unsafe fn copy_piece(is_put: bool, at: *mut u8, piece: &Piece) {
    let (from, to) = if is_put { (piece.start, at) } else { (at, piece.start) };
    // SAFETY: the caller's promise is the same.
    unsafe { copy_short(from, to, piece.len) }
}

/// The owner's side.
#[derive(Debug, Default)]
pub struct Windows {
    list: WindowList,
    /// Puts that were announced when their link ended.
    late: Vec<LatePut>,
    /// A window was removed, and puts to it may be under way.
    is_unsettled: bool,
}

/// A put that was announced when its link ended.
#[derive(Debug)]
struct LatePut {
    announcement: Announcement,
    pid: i32,
    /// See [`Link::barrier`].
    barrier: bool,
}

impl LatePut {
    fn is_over(&self) -> bool {
        self.announcement.number() == 0 || gate::has_ended(self.pid)
    }
}

impl ShmRail {
    /// The link to a peer that lists windows.
    #[inline(always)]
    pub(crate) fn window_link(&mut self, peer: PeerId) -> Option<&mut Link> {
        let link = self.links.get_mut(*self.link_of.get(peer.0 as usize)? as usize)?;
        if link.has_windows() { Some(link) } else { None }
    }

    /// As [`access`](crate::rail::Rail::access), without a call through a table.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn access_now(&mut self, access: &DirectAccess<'_>) -> bool {
        let Some(link) = self.window_link(access.peer) else { return false };
        // SAFETY: the caller's promise is the same.
        let is_done = unsafe { link.access(access) };
        if !is_done {
            self.after_access(access.peer);
        }
        is_done
    }

    /// An access was not carried out.
    #[cold]
    pub(crate) fn after_access(&mut self, peer: PeerId) {
        let Some(link) = self.window_link(peer) else { return };
        let (must_ask, has_fault) = (link.must_ask(), link.fault().is_some());
        self.check_sockets |= must_ask;
        if must_ask || has_fault {
            self.beside |= SLOW;
        }
    }

    /// A window: lists it, if there is room; for puts, if it lies in memory that is offered for writing.
    pub(super) fn list_window(&mut self, key: u64, memory: Piece, access: Access) {
        let found = self.offers.find(memory);
        let range = OfferedRange { start: memory.start.addr() as u64, bytes: memory.len as u64 };
        let gets = access.read && (found.is_some() || self.options.single_copy);
        let window = ListedWindow { key, range, gets, puts: access.write && found == Some(true) };
        if self.windows.list.add(window, found.is_some()) {
            self.publish_windows();
        }
    }

    /// Removes a window from the list; `false`: a peer may still be writing to it (L-27).
    pub(super) fn unlist_window(&mut self, key: u64) -> bool {
        if let Some(window) = self.windows.list.remove(key) {
            self.publish_windows();
            self.windows.is_unsettled |= window.puts;
        }
        self.windows.is_unsettled = self.windows.is_unsettled && !self.has_no_late_put();
        !self.windows.is_unsettled
    }

    fn publish_windows(&mut self) {
        let Self { links, windows, .. } = self;
        links.iter_mut().for_each(|link| link.list_windows(&windows.list));
    }

    fn has_no_late_put(&mut self) -> bool {
        let Self { links, windows, .. } = self;
        let Windows { list, late, .. } = &mut **windows;
        let barrier = links.iter().any(|link| link.barrier) || late.iter().any(|late| late.barrier);
        let is_passed = fence_against(barrier);
        late.retain(|late| !late.is_over());
        // What a peer announces that was given no window for puts does not count; nor one whose socket its
        // children keep open.
        let is_putting = |link: &Link| {
            let pid = link.putter();
            pid != 0 && list.is_late(link.inbound.putting()) && !gate::has_ended(pid)
        };
        is_passed && late.is_empty() && !links.iter().any(is_putting)
    }

    /// A link begins.
    pub(super) fn begin_windows(&self, link: &mut Link) {
        link.list_windows(&self.windows.list);
    }

    /// A link is about to end; a put that its peer is carrying out is not.
    pub(super) fn end_windows(&mut self, link: &mut Link) {
        if self.windows.list.number() == 0 && !self.windows.is_unsettled {
            return;
        }
        link.list_windows(&WindowList::default());
        let pid = link.putter();
        if pid != 0 && (!fence_against(link.barrier) || link.inbound.putting() != 0) {
            let late = LatePut { announcement: link.inbound.announcement(), pid, barrier: link.barrier };
            // Each keeps a ring.
            self.windows.late.retain(|late| !late.is_over());
            self.windows.late.push(late);
            self.windows.is_unsettled = true;
        }
    }
}

/// The fence of an owner between its list and a look at announcements; `false`: the system refused.
fn fence_against(barrier: bool) -> bool {
    if barrier { barrier::heavy_fence() } else { barrier::full_fence() }
}
