//! Puts and gets that simulated ranks carry out themselves in each other's windows (L-25 to L-28), on the
//! words of `rerail_core::shm`.
//!
//! Copies are made in the call, as by the real rail. Some puts stay announced until their rank's next poll,
//! as by a rank that was stopped in the middle; then the window must still be its owner's.
//!
//! Safety argument of the file: pieces are those of the driver's seam, valid for the call.
#![allow(unsafe_code)]

use rerail_core::endpoint::Access;
use rerail_core::ids::PeerId;
use rerail_core::shm::{ListedWindow, OfferedRange, WindowList};
use rerail_linux::rail::{DirectAccess, Piece};

use super::hub::Hub;
use super::memory::{Inbound, copy_window};
use super::shm::{Link, ShmRail};

/// A get out of a window that is not mapped is made by the owner if it is shorter.
const GET_BYTES_MIN: usize = 64;

/// A rank's windows.
#[derive(Debug, Default)]
pub(super) struct Windows {
    pub(super) list: WindowList,
    /// Rings of ended links with a put that was announced, by peer.
    late: Vec<(u32, Inbound)>,
    is_unsettled: bool,
}

impl Link {
    /// Carries out an access.
    ///
    /// # Safety
    /// The pieces can be read, those of a get written.
    unsafe fn access(&mut self, hub: &mut Hub, rank: u32, access: &DirectAccess<'_>) -> Option<()> {
        self.end_put(hub);
        let (number, listed) = self.end.inbound.window(access.window)?;
        let offer = self.end.inbound.offer();
        self.reads.maps.meet(hub, offer);
        let bytes = access.pieces.iter().map(|piece| piece.len).sum();
        let from = listed.address_of(access.offset, bytes)?;
        let Some((memory, is_writable)) = self.reads.maps.direct(offer, from, bytes) else {
            if access.is_put || !listed.gets || bytes < GET_BYTES_MIN || !hub.may_get() {
                return None;
            }
            let standing = hub.windows.get(&(self.end.peer, access.window)).copied();
            let whole = standing.expect("a window that is listed stands");
            let memory = Piece { start: whole.start.wrapping_add(access.offset as usize), len: bytes };
            // SAFETY: the caller's promise is the same.
            unsafe { copy_window(memory, access.pieces, false) };
            hub.charge_read(rank, bytes);
            hub.mapped.gets += 1;
            return Some(());
        };
        let model = hub.maps?;
        if if access.is_put { !(listed.puts && is_writable) } else { !listed.gets } {
            return None;
        }
        if access.is_put {
            self.end.outbound.begin_put(number);
        }
        if self.end.inbound.windows() == number {
            // SAFETY: the caller's promise is the same.
            unsafe { copy_window(memory, access.pieces, access.is_put) };
            hub.charge_read(rank, bytes);
            hub.mapped.direct += 1;
        }
        if access.is_put {
            self.put = Some(access.window);
            if !hub.draws(model.busy_one_in.min(2)) {
                self.end_put(hub);
            }
        }
        Some(())
    }

    /// The put that is announced, if one is, is over.
    pub(super) fn end_put(&mut self, hub: &Hub) {
        if let Some(key) = self.put.take() {
            let peer = self.end.peer;
            let is_here = hub.ranks.get(peer as usize).is_some_and(|process| process.alive);
            assert!(!is_here || hub.windows.contains_key(&(peer, key)), "a put goes to a window that was released");
            self.end.outbound.end_put();
        }
    }
}

impl ShmRail {
    pub(super) fn list_window(&mut self, key: u64, memory: Piece, access: Access) {
        {
            let hub = &mut *self.hub.0.borrow_mut();
            hub.windows.insert((self.rank, key), memory);
            let found = hub.offers[self.rank as usize].find(memory);
            let ordinary = OfferedRange { start: memory.start.addr() as u64, bytes: memory.len as u64 };
            let (range, is_writable) = found.unwrap_or((ordinary, false));
            let gets = access.read && (found.is_some() || hub.reads.is_some());
            let window = ListedWindow { key, range, gets, puts: access.write && is_writable };
            if !self.windows.list.add(window, found.is_some()) {
                return;
            }
        }
        self.publish_windows();
    }

    pub(super) fn unlist_window(&mut self, key: u64) -> bool {
        if let Some(window) = self.windows.list.remove(key) {
            self.publish_windows();
            self.windows.is_unsettled |= window.puts;
        }
        let hub = &mut *self.hub.0.borrow_mut();
        self.windows.late.retain(|(peer, ring)| ring.putting() != 0 && hub.ranks[*peer as usize].alive);
        let list = &self.windows.list;
        let is_late = |link: &Link| {
            let is_alive = hub.ranks[link.end.peer as usize].alive;
            is_alive && list.is_late(link.end.inbound.putting())
        };
        self.windows.is_unsettled &= !self.windows.late.is_empty() || self.links.values().any(is_late);
        if self.windows.is_unsettled {
            hub.mapped.held += 1;
        } else {
            hub.windows.remove(&(self.rank, key));
        }
        !self.windows.is_unsettled
    }

    fn publish_windows(&mut self) {
        let Self { links, windows, .. } = self;
        let open = links.values_mut().filter(|link| !link.closing);
        open.for_each(|link| link.end.outbound.list_windows(&windows.list));
    }

    /// A link that has ended: a put of its peer may not have.
    pub(super) fn keep_put(&mut self, link: Link) {
        let peer = link.end.peer;
        if link.end.inbound.putting() != 0 {
            self.windows.late.push((peer, link.end.inbound));
            self.windows.is_unsettled = true;
        }
    }

    /// # Safety
    /// The pieces can be read, those of a get written.
    pub(super) unsafe fn access_now(&mut self, access: &DirectAccess<'_>) -> bool {
        let PeerId(peer) = access.peer;
        let Some(link) = self.links.get_mut(&peer).filter(|link| link.reported && !link.closing) else { return false };
        let hub = &mut *self.hub.0.borrow_mut();
        if !hub.ranks[peer as usize].alive || link.end.inbound.windows() == 0 {
            return false;
        }
        // SAFETY: the caller's promise is the same.
        let is_done = unsafe { link.access(hub, self.rank, access) }.is_some();
        if link.put.is_some() || !is_done {
            // There may be a list to request, or a put to end.
            self.active.extend((!std::mem::replace(&mut link.active, true)).then_some(peer));
            hub.wake(self.rank);
        }
        is_done
    }
}
