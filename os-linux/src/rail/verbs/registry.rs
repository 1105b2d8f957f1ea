//! Registrations of payload memory: those that peers have keys for, and those of own writes and reads.
//!
//! A write or read needs its local memory registered. It shares a registration that covers it, and gets a new one
//! otherwise; the last few that nobody uses are kept for the next post from the same place, least recently used out
//! first. A registration that peers have a key for is shared by own *writes* only, and only if peers can't write through
//! it: it has to stay until those writes are through, and nothing a peer could change may outlive
//! [`Registry::deregister`].
//!
//! A kept registration must not outlive the memory: the driver says [`Registry::forget`] before it unmaps any. What is
//! in use then belongs to a post that is not over, whose memory the core does not let go.
//!
//! Addresses that go over the wire come from a counter, where the device allows it, so that they depend on nothing but
//! the order of registrations (and on where in a page the memory starts, which hardware wants kept).

use rerail_verbs::contract::{Access, Device, Mr, PdId, RegisterError, Sge};

use super::slab;
use crate::rail::{MemoryKey, Piece};

const PAGE_BYTES: u64 = 4096;
/// The first address that is handed out; 0 would look like none.
const FIRST_ADDRESS: u64 = 1 << 32;

/// All registrations but the slab's. Places in it stay, so posts name theirs by number.
#[derive(Debug)]
pub(super) struct Registry {
    pd: PdId,
    entries: Vec<Option<Entry>>,
    /// Where the device allows addresses of our choice: the next.
    next_address: Option<u64>,
    kept_max: usize,
    /// Entries that nobody uses.
    idle: usize,
    /// Counts uses, for their order.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    memory: Piece,
    address: u64,
    mr: Mr,
    access: Access,
    /// Peers have its key: it goes when they give it back.
    exposed: bool,
    /// Posts that name it.
    users: u32,
    used_at: u64,
}

impl Entry {
    fn covers(&self, piece: Piece) -> bool {
        let (start, wanted) = (self.memory.start.addr(), piece.start.addr());
        wanted >= start && wanted - start <= self.memory.len && piece.len <= self.memory.len - (wanted - start)
    }

    fn overlaps(&self, piece: Piece) -> bool {
        let (start, other) = (self.memory.start.addr(), piece.start.addr());
        start < other.saturating_add(piece.len) && other < start.saturating_add(self.memory.len)
    }

    fn is_idle(&self) -> bool {
        self.users == 0 && !self.exposed
    }
}

impl Registry {
    pub fn new(pd: PdId, iova: bool, kept_max: u16) -> Self {
        Registry {
            pd,
            entries: Vec::new(),
            next_address: iova.then_some(FIRST_ADDRESS),
            kept_max: kept_max.into(),
            idle: 0,
            clock: 0,
        }
    }

    /// An address for so much memory, from the counter; `None`: the device takes its own only.
    pub fn address(&mut self, in_page: u64, bytes: u64) -> Option<u64> {
        let next = self.next_address?;
        let address = next + in_page % PAGE_BYTES;
        // A page without anything behind: what runs over the end hits nothing.
        self.next_address = Some((address + bytes).next_multiple_of(PAGE_BYTES) + PAGE_BYTES);
        Some(address)
    }

    /// Memory for peers to read, or with `write` to write.
    pub fn register(
        &mut self,
        device: &mut impl Device,
        memory: Piece,
        write: bool,
    ) -> Result<MemoryKey, RegisterError> {
        let access = Access { local_write: write, remote_write: write, remote_read: !write, remote_atomic: false };
        let place = self.make(device, memory, access, true)?;
        let Some(entry) = &self.entries[place] else { unreachable!("made above") };
        Ok(MemoryKey { key: entry.mr.rkey.into(), address: entry.address })
    }

    /// Ends what [`register`](Self::register) began. What own writes use still stays for them; peers can only read it.
    pub fn deregister(&mut self, device: &mut impl Device, key: MemoryKey) {
        let is_it =
            |entry: &Entry| entry.exposed && u64::from(entry.mr.rkey) == key.key && entry.address == key.address;
        let place = self.entries.iter().position(|entry| entry.as_ref().is_some_and(is_it));
        let Some(place) = place else { return };
        if let Some(entry) = &mut self.entries[place] {
            entry.exposed = false;
            if entry.users == 0 {
                self.idle += 1;
                self.end(device, place);
            }
        }
    }

    /// A registration for a post's piece of memory, which is written with `write`; `None`: there is none to be had.
    pub fn acquire(&mut self, device: &mut impl Device, piece: Piece, write: bool) -> Option<(u32, Sge)> {
        let serves = |entry: &Entry| {
            entry.covers(piece)
                && (!write || entry.access.local_write)
                && !(entry.access.remote_write || write && entry.exposed)
        };
        let found = self.entries.iter().position(|entry| entry.as_ref().is_some_and(serves));
        let place = match found {
            Some(place) => place,
            None => self.make(device, piece, Access { local_write: write, ..Access::default() }, false).ok()?,
        };
        self.clock += 1;
        let entry = self.entries[place].as_mut()?;
        self.idle -= usize::from(entry.is_idle());
        entry.users += 1;
        entry.used_at = self.clock;
        let address = entry.address + (piece.start.addr() - entry.memory.start.addr()) as u64;
        Some((place as u32, Sge { address, len: piece.len as u32, lkey: entry.mr.lkey }))
    }

    /// A post is through with what it acquired.
    pub fn release(&mut self, device: &mut impl Device, place: u32) {
        let Some(Some(entry)) = self.entries.get_mut(place as usize) else { return };
        entry.users -= 1;
        if !entry.is_idle() {
            return;
        }
        self.idle += 1;
        if entry.access.remote_read {
            // Given back by the peers while it was in use.
            self.end(device, place as usize);
        } else if self.idle > self.kept_max {
            self.evict(device);
        }
    }

    /// Ends all registrations that touch this memory: it is about to be unmapped. Requests that name it are over, so
    /// a key that was not given back yet is of no use to anybody.
    pub fn forget(&mut self, device: &mut impl Device, memory: Piece) {
        for place in 0..self.entries.len() {
            let entry = self.entries[place].as_mut();
            let Some(entry) = entry.filter(|entry| entry.users == 0 && entry.overlaps(memory)) else { continue };
            self.idle += usize::from(std::mem::take(&mut entry.exposed));
            self.end(device, place);
        }
    }

    /// Registrations that are with the device.
    pub fn len(&self) -> u32 {
        self.entries.iter().flatten().count() as u32
    }

    /// Ends everything: the device is broken, or nobody uses it any more.
    pub fn clear(&mut self, device: &mut impl Device) {
        for entry in self.entries.drain(..).flatten() {
            // A device that is gone has forgotten them.
            let _ = device.deregister(entry.mr.id);
        }
        self.idle = 0;
    }

    fn make(
        &mut self,
        device: &mut impl Device,
        memory: Piece,
        access: Access,
        exposed: bool,
    ) -> Result<usize, RegisterError> {
        let start = memory.start.addr() as u64;
        let address = self.address(start, memory.len as u64).unwrap_or(start);
        let mr = loop {
            match slab::register(device, self.pd, memory, address, access) {
                Err(RegisterError::Exhausted { .. } | RegisterError::System { .. }) if self.evict(device) => {}
                result => break result?,
            }
        };
        let entry = Entry { memory, address, mr, access, exposed, users: 0, used_at: self.clock };
        self.idle += usize::from(!exposed);
        let free = self.entries.iter().position(Option::is_none);
        Ok(match free {
            Some(place) => {
                self.entries[place] = Some(entry);
                place
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() - 1
            }
        })
    }

    /// Ends the registration that has been idle longest; `false`: none is.
    fn evict(&mut self, device: &mut impl Device) -> bool {
        let idle = self.entries.iter().enumerate().filter_map(|(place, entry)| {
            entry.as_ref().filter(|entry| entry.is_idle()).map(|entry| (entry.used_at, place))
        });
        let Some((_, place)) = idle.min() else { return false };
        self.end(device, place);
        true
    }

    /// Ends one that is idle.
    fn end(&mut self, device: &mut impl Device, place: usize) {
        if let Some(entry) = self.entries[place].take() {
            self.idle -= 1;
            let ended = device.deregister(entry.mr.id);
            debug_assert!(
                !matches!(ended, Err(rerail_verbs::contract::DestroyError::Busy { .. })),
                "memory is never busy: {ended:?}"
            );
        }
    }
}
