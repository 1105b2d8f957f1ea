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
    #[inline(always)]
    pub unsafe fn access(&mut self, access: &DirectAccess<'_>) -> bool {
        if !self.has_windows() || self.fault().is_some() || self.is_gone() {
            return false;
        }
        let Self { memory, inbound, outbound, counted, .. } = self;
        let Some((_, reads)) = memory else { return false };
        let Some(window) = reads.maps.window(inbound, access.window) else { return false };
        let bytes = access.pieces.iter().map(|piece| piece.len).sum();
        let Some(at) = window.place(access.offset, bytes) else { return false };
        if access.is_put {
            if !window.puts {
                return false;
            }
            outbound.begin_put(window.number);
            let is_listed = inbound.windows() == window.number;
            if is_listed {
                // SAFETY: see the file's top; the list has the window, so its owner waits for the end.
                unsafe { each_at(at, access.pieces, |at, piece| copy_short(piece.start, at, piece.len)) };
                counted.bytes_sent += bytes as u64;
            }
            outbound.end_put();
            return is_listed;
        }
        if !window.gets {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.get_by_system(access, &window, bytes) };
        }
        // SAFETY: see the file's top.
        unsafe { each_at(at, access.pieces, |at, piece| copy_short(at, piece.start, piece.len)) };
        counted.bytes_received += bytes as u64;
        // What was copied was there before the number is read.
        fence(Ordering::Acquire);
        inbound.windows() == window.number
    }

    /// L-28. A get out of memory that is not mapped.
    ///
    /// # Safety
    /// The pieces can be written.
    #[cold]
    #[inline(never)]
    unsafe fn get_by_system(&mut self, access: &DirectAccess<'_>, window: &MappedWindow, bytes: usize) -> bool {
        let Some(start) = window.reads_at else { return false };
        if !GET_BYTES.contains(&bytes) {
            return false;
        }
        let Self { memory, inbound, outbound, socket, counted, .. } = self;
        let Some((_, reads)) = memory else { return false };
        // Else it computes, and notes to it would fill its ring.
        let may_help = outbound.is_drained();
        let from = start.wrapping_add(access.offset);
        let mut ends = Ends { inbound, outbound, socket };
        // SAFETY: the caller's promise is the same.
        let is_read = unsafe { reads.read_now((from, access.pieces), may_help, &mut ends, &mut counted.system_calls) };
        counted.bytes_received += if is_read == Ok(true) { bytes as u64 } else { 0 };
        // What was copied was there before the number is read.
        fence(Ordering::Acquire);
        let is_listed = inbound.windows() == window.number;
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

/// Calls `copy` for each piece, with the place of its bytes in a window.
///
/// # Safety
/// As many bytes as the pieces have together lie at `at`.
#[inline(always)]
unsafe fn each_at(mut at: *mut u8, pieces: &[Piece], copy: impl Fn(*mut u8, &Piece)) {
    for piece in pieces {
        copy(at, piece);
        at = at.wrapping_add(piece.len);
    }
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
    /// Whether a peer lists windows.
    #[inline(always)]
    pub(crate) fn has_windows(&self, peer: PeerId) -> bool {
        self.link_index(peer).is_some_and(|index| self.links[index].has_windows())
    }

    /// As [`access`](crate::rail::Rail::access), without a call through a table.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn access_now(&mut self, access: &DirectAccess<'_>) -> bool {
        let Some(index) = self.link_index(access.peer) else { return false };
        // SAFETY: the caller's promise is the same.
        let is_done = unsafe { self.links[index].access(access) };
        if !is_done {
            self.after_access(index);
        }
        is_done
    }

    #[cold]
    fn after_access(&mut self, index: usize) {
        let must_ask = self.links[index].must_ask();
        self.check_sockets |= must_ask;
        if must_ask || self.links[index].fault().is_some() {
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
