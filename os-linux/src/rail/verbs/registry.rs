//! Registrations of payload memory: those that peers have keys for, and those of own writes and reads. A
//! cache: pinning memory costs more than sending a page of it. Where it is registered on demand nothing is
//! pinned, and the same holds of the first use of its pages.
//!
//! Four sorts, by the permitted accesses: [`Sort`]. Each sort has a sorted list of intervals, none within
//! another, so that both starts and ends go up, and binary search finds the one interval that can cover a
//! piece. A request takes a registration that covers it, or makes one for its *extent*: this rail's part of
//! the message, so that a stripe is registered once and not once per segment. A new registration takes the
//! place of those inside it, and grows over idle ones that it overlaps as long as that at most doubles its
//! cost. It does not grow over neighbours that it merely touches: they may belong to different mappings,
//! which end at different times; which mappings touch is the kernel's arbitrary choice, and nothing here may
//! depend on it.
//!
//! Unused registrations are kept, least recently used out first, within two bounds on all registrations:
//! their number and their bytes. A registration in use is never given up for another: full is a value, and a
//! post without a registration goes through the rail's buffers, a message without one goes without this
//! rail's key.
//!
//! **Harm that a peer can do.** A key to read with is kept when it is given back: a peer that breaks the
//! rules may read memory that peers could read once, until the registration ends. Nothing that a peer could
//! *change* outlives [`Registry::deregister`], unless the setting `keep_writable` is set; then it outlives no
//! connection ([`Registry::fence`]).
//!
//! **Unmapped memory.** A kept registration must not outlive the memory: [`Registry::forget`] must be called
//! before the memory is unmapped. Registrations in use then are no longer found, and end with their last
//! user: the posts that have them name other parts of them.
//! Of memory that the application maps and unmaps ([`Registry::adopt`]) nothing is kept, unless it is
//! registered on demand or the setting `keep_adopted` promises that call: such a registration is found until
//! its first user leaves. Until then no request for which it was made or found is over, so all of it is
//! still mapped.
//!
//! Addresses sent over the wire are the memory's own. Only where the device allows others (the simulator's
//! does, no device of libibverbs) they come from a counter, so that they depend only on the order of
//! registrations (and on where in a page the memory starts). A device may give a new registration the rkey of
//! one that is over, and of the same memory the address too, so the upper half of a key identifies the
//! registration: only its owner reads that half (V-8).

mod interval;
mod sort;

use rerail_core::endpoint::Registration;
use rerail_core::time::Nanos;
use rerail_verbs::contract::{DestroyError, Device, Mr, PdId, RegisterError, Sge};

use self::interval::{Interval, find, overlapping};
use self::sort::Sort;
use super::slab;
use crate::rail::{MemoryKey, Piece, RailCounters};

const PAGE_BYTES: u64 = 4096;
/// The first address that is handed out; 0 would look like none.
const FIRST_ADDRESS: u64 = 1 << 32;
/// Registrations whose cost is kept until it is reported; more between two polls add no information.
const UNREPORTED_MAX: usize = 32;
/// No entry.
const NONE: u32 = u32::MAX;

/// All registrations but the slab's. Places in it stay, so posts name theirs by number.
#[derive(Debug)]
pub(super) struct Registry {
    pd: PdId,
    bounds: Bounds,
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// The registrations that can be found, by sort.
    intervals: [Vec<Interval>; Sort::COUNT],
    /// Places by rkey, of registrations for which peers may have keys.
    by_key: Vec<(u32, u32)>,
    idle: Idle,
    /// All together.
    count: u32,
    bytes: u64,
    /// Without pinning: pages are brought in when the device needs them.
    on_demand: bool,
    /// Where the device allows addresses of our choice: the next.
    next_address: Option<u64>,
    /// Number of the last registration, for its keys.
    serial: u32,
    /// Memory that the application maps and unmaps.
    adopted: Vec<Interval>,
    figures: Figures,
    /// The cost of new registrations, until it is taken; as many as fit.
    unreported: Vec<Made>,
}

/// A registration that had to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub what: Registration,
    pub bytes: u64,
    pub took: Nanos,
}

/// How much may be registered at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Registrations.
    pub count: u32,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Keep memory registered that peers could write to.
    pub keep_writable: bool,
    /// Keep adopted memory registered: [`Registry::forget`] is called before it is unmapped.
    pub keep_adopted: bool,
}

/// The requirements on a registration.
#[derive(Clone, Copy, Debug)]
struct Need {
    /// It has to cover this.
    piece: Piece,
    /// Preferably covers so many bytes from the piece's start, for later posts. Less than the piece
    /// counts as that.
    extent: usize,
    sort: Sort,
}

#[derive(Debug)]
struct Entry {
    memory: Piece,
    address: u64,
    mr: Mr,
    serial: u32,
    sort: Sort,
    /// Posts that name it.
    users: u32,
    /// Requests whose keys to it were given to peers.
    exposed: u32,
    /// It can be found: the last user leaves it behind for the next.
    listed: bool,
    /// Of adopted memory: the first user that leaves hides it.
    transient: bool,
    /// Neighbours among the idle.
    older: u32,
    newer: u32,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.users == 0 && self.exposed == 0
    }
}

/// Unused entries, in the order in which their use ended.
#[derive(Debug)]
struct Idle {
    oldest: u32,
    newest: u32,
    count: u32,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    hits: u64,
    misses: u64,
    evictions: u64,
    made: u64,
}

impl Registry {
    pub fn new(pd: PdId, iova: bool, bounds: Bounds) -> Self {
        Registry {
            pd,
            bounds,
            slots: Vec::new(),
            free: Vec::new(),
            intervals: Default::default(),
            by_key: Vec::new(),
            idle: Idle { oldest: NONE, newest: NONE, count: 0, bytes: 0 },
            count: 0,
            bytes: 0,
            on_demand: false,
            next_address: iova.then_some(FIRST_ADDRESS),
            serial: 0,
            adopted: Vec::new(),
            figures: Figures::default(),
            unreported: Vec::new(),
        }
    }

    /// For a device that was opened again: nothing is registered. Addresses and numbers continue, so that
    /// earlier keys name nothing.
    pub fn renewed(&self, pd: PdId, iova: bool) -> Self {
        let fresh = Registry::new(pd, iova, self.bounds);
        let next_address = fresh.next_address.map(|first| self.next_address.unwrap_or(first));
        let adopted = self.adopted.clone();
        Registry { next_address, serial: self.serial, figures: self.figures, adopted, ..fresh }
    }

    /// Sets whether memory is registered on demand from now on. The cost of registering is measured, so plans
    /// follow; the bounds stay: a device's tables are finite.
    pub fn set_on_demand(&mut self, on_demand: bool) {
        self.on_demand = on_demand;
    }

    /// An address for so much memory, from the counter; `None`: the device takes its own only.
    pub fn address(&mut self, in_page: u64, bytes: u64) -> Option<u64> {
        let next = self.next_address?;
        let address = next + in_page % PAGE_BYTES;
        // An unmapped page behind it: an access past the end hits nothing.
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
        let sort = if write { Sort::Writable } else { Sort::Readable };
        let place = self.obtain(device, Need { piece: memory, extent: memory.len, sort })?;
        let entry = self.enter(place);
        entry.exposed += 1;
        Ok(MemoryKey { key: entry.key(), address: entry.address_of(memory) })
    }

    /// Ends a registration from [`register`](Self::register): a key to write with ends (unless writable
    /// registrations are kept), one to read with may live on for the next registration of this memory.
    pub fn deregister(&mut self, device: &mut impl Device, key: MemoryKey) {
        let rkey = key.key as u32;
        let Ok(found) = self.by_key.binary_search_by_key(&rkey, |(rkey, _)| *rkey) else { return };
        let place = self.by_key[found].1;
        let entry = self.entry(place);
        // One that was forgotten meanwhile: the key may be another's by now.
        if entry.exposed > 0 && entry.key() == key.key {
            entry.exposed -= 1;
            self.leave(device, place);
        }
    }

    /// A registration for a post's piece of memory, which is written with `write`; `None`: there is none to
    /// be had. Posts to come name the memory up to `extent` bytes from the piece's start.
    pub fn acquire(
        &mut self,
        device: &mut impl Device,
        piece: Piece,
        extent: usize,
        write: bool,
    ) -> Option<(u32, Sge)> {
        let sort = if write { Sort::Target } else { Sort::Source };
        let place = self.obtain(device, Need { piece, extent, sort }).ok()?;
        let entry = self.enter(place);
        entry.users += 1;
        // SAFETY: the entry covers the piece, and exists as long as it has users.
        Some((place, unsafe { Sge::new(entry.address_of(piece), piece.len as u32, entry.mr.lkey) }))
    }

    /// A post has finished with the registration it acquired.
    pub fn release(&mut self, device: &mut impl Device, place: u32) {
        // All is over where a device broke.
        if let Some(Some(entry)) = self.slots.get_mut(place as usize) {
            entry.users -= 1;
            self.leave(device, place);
        }
    }

    /// From now on the application may unmap this memory whenever no request names it. What is kept of it is
    /// to be forgotten.
    pub fn adopt(&mut self, memory: Piece) {
        self.adopted.push(Interval::of(memory));
    }

    /// Takes one [`adopt`](Self::adopt) of just this memory back.
    pub fn disown(&mut self, memory: Piece) {
        let gone = Interval::of(memory);
        let same = |adopted: &Interval| (adopted.start, adopted.end) == (gone.start, gone.end);
        if let Some(at) = self.adopted.iter().position(same) {
            self.adopted.swap_remove(at);
        }
    }

    /// Makes this memory unfindable: it is about to be unmapped, or was. Unused registrations end now, and so
    /// do those that lie in it whole and that no post names: requests that name it are over, and a key that
    /// was not given back yet is useless. The others end with their last user.
    pub fn forget(&mut self, device: &mut impl Device, memory: Piece) {
        let gone = Interval::of(memory);
        for place in 0..self.slots.len() as u32 {
            let Some(entry) = &mut self.slots[place as usize] else { continue };
            let interval = Interval::of(entry.memory);
            if !interval.overlaps(gone) {
                continue;
            }
            if entry.is_idle() {
                self.end(device, place);
            } else if entry.users == 0 && gone.covers(interval) {
                entry.exposed = 0;
                self.unlist(place);
                self.leave(device, place);
            } else {
                self.unlist(place);
            }
        }
    }

    /// A connection has ended: its peer may have keys that were given back. Ends kept registrations that it
    /// could write to.
    pub fn fence(&mut self, device: &mut impl Device) {
        while let Some(interval) = self.intervals[Sort::Writable as usize].last() {
            let place = interval.place;
            if self.entry(place).is_idle() {
                self.end(device, place);
            } else {
                self.unlist(place);
            }
        }
    }

    /// Whether [`take_unreported`](Self::take_unreported) has something.
    pub fn has_unreported(&self) -> bool {
        !self.unreported.is_empty()
    }

    /// The cost of registrations since the last call.
    pub fn take_unreported(&mut self) -> impl Iterator<Item = Made> {
        self.unreported.drain(..)
    }

    /// Registrations that are with the device.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Adds the counters.
    pub fn count(&self, counters: &mut RailCounters) {
        let Figures { hits, misses, evictions, made } = self.figures;
        counters.registration_hits = hits;
        counters.registration_misses = misses;
        counters.registration_evictions = evictions;
        counters.registrations = made;
        counters.registered_bytes = self.bytes;
    }

    /// Ends everything: the device is broken, or no longer used.
    pub fn clear(&mut self, device: &mut impl Device) {
        for entry in self.slots.drain(..).flatten() {
            // A device that is gone has forgotten them.
            let _ = device.deregister(entry.mr.id);
        }
        *self = self.renewed(self.pd, self.next_address.is_some());
    }

    fn entry(&mut self, place: u32) -> &mut Entry {
        let entry = self.slots.get_mut(place as usize).and_then(Option::as_mut);
        entry.unwrap_or_else(|| unreachable!("places are given back once"))
    }

    /// The place of a registration that covers `need`, found or made.
    fn obtain(&mut self, device: &mut impl Device, need: Need) -> Result<u32, RegisterError> {
        let wanted = Interval::of(need.piece);
        let found =
            need.sort.served_by(&self.bounds).iter().find_map(|sort| find(&self.intervals[*sort as usize], wanted));
        if let Some(place) = found {
            self.figures.hits += 1;
            return Ok(place);
        }
        self.figures.misses += 1;
        self.make(device, need)
    }

    /// Adds a user.
    fn enter(&mut self, place: u32) -> &mut Entry {
        if self.entry(place).is_idle() {
            self.wake(place);
        }
        self.entry(place)
    }

    /// Removes a user.
    fn leave(&mut self, device: &mut impl Device, place: u32) {
        if self.entry(place).transient {
            self.unlist(place);
        }
        let entry = self.entry(place);
        if entry.is_idle() {
            let listed = entry.listed;
            self.rest(place);
            if !listed {
                self.end(device, place);
            }
        }
    }

    /// Registers a piece: grown over its overlaps, or its extent, or only the piece, whichever succeeds
    /// first. It has no user yet.
    fn make(&mut self, device: &mut impl Device, need: Need) -> Result<u32, RegisterError> {
        let Need { piece, extent, sort } = need;
        let extent = Piece { len: extent.max(piece.len), ..piece };
        let mut refused = None;
        for memory in [self.grown(extent, sort), extent, piece] {
            if refused.as_ref().is_some_and(|(len, _)| *len == memory.len) {
                continue;
            }
            match self.make_room(device, memory, sort).and_then(|()| self.register_with(device, memory, sort)) {
                Ok((mr, address)) => {
                    let (bytes, took) = (memory.len as u64, Nanos(device.registration_ns()));
                    // When full, the recorded ones stand for the rest.
                    if self.unreported.len() < UNREPORTED_MAX {
                        self.unreported.push(Made { what: sort.what(), bytes, took });
                    }
                    return Ok(self.insert(memory, sort, mr, address));
                }
                Err(why) => refused = Some((memory.len, why)),
            }
        }
        match refused {
            Some((_, why)) => Err(why),
            None => unreachable!("three were tried"),
        }
    }

    /// An extent, grown over idle registrations of its sort that it overlaps, to twice its length at most.
    fn grown(&mut self, extent: Piece, sort: Sort) -> Piece {
        let wanted = Interval::of(extent);
        let (mut start, mut end) = (wanted.start, wanted.end);
        let list = &self.intervals[sort as usize];
        for interval in &list[overlapping(list, wanted)] {
            let idle = self.slots[interval.place as usize].as_ref().is_some_and(Entry::is_idle);
            let (low, high) = (start.min(interval.start), end.max(interval.end));
            if idle && high - low <= 2 * wanted.len() {
                (start, end) = (low, high);
            }
        }
        Piece { start: extent.start.wrapping_sub(wanted.start - start), len: end - start }
    }

    /// Ends the registrations that a new one makes superfluous, then the least recently used ones until it
    /// keeps to the bounds.
    fn make_room(&mut self, device: &mut impl Device, memory: Piece, sort: Sort) -> Result<(), RegisterError> {
        let bytes = memory.len as u64;
        if self.count - self.idle.count >= self.bounds.count {
            return Err(RegisterError::Exhausted { limit: self.bounds.count });
        }
        let max = self.bounds.bytes - (self.bytes - self.idle.bytes).min(self.bounds.bytes);
        if bytes > max {
            return Err(RegisterError::Length { bytes, max });
        }
        let wanted = Interval::of(memory);
        let list = &self.intervals[sort as usize];
        let mut at = list.partition_point(|interval| interval.start < wanted.start);
        while let Some(inside) = self.intervals[sort as usize].get(at).filter(|inside| wanted.covers(**inside)) {
            let place = inside.place;
            if self.entry(place).is_idle() {
                self.end(device, place);
            } else {
                at += 1;
            }
        }
        while self.count >= self.bounds.count || self.bytes + bytes > self.bounds.bytes {
            if !self.evict(device) {
                unreachable!("what is in use leaves room");
            }
        }
        Ok(())
    }

    /// Registers with the device; where that is full, the least recently used registration ends first. Any
    /// other refusal would be the same with less registered.
    fn register_with(
        &mut self,
        device: &mut impl Device,
        memory: Piece,
        sort: Sort,
    ) -> Result<(Mr, u64), RegisterError> {
        let start = memory.start.addr() as u64;
        let address = self.address(start, memory.len as u64).unwrap_or(start);
        loop {
            match slab::register(device, self.pd, memory, address, sort.access(self.on_demand)) {
                Err(why) if is_full(&why) && self.evict(device) => {}
                result => return Ok((result?, address)),
            }
        }
    }

    /// Notes a new registration without a user.
    fn insert(&mut self, memory: Piece, sort: Sort, mr: Mr, address: u64) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        // Memory that peers may write to is not shared, unless it is kept.
        let listed = sort != Sort::Writable || self.bounds.keep_writable;
        let interval = Interval::of(memory);
        let may_end = !self.on_demand && !self.bounds.keep_adopted;
        let transient = may_end && self.adopted.iter().any(|adopted| adopted.overlaps(interval));
        if listed {
            let new = Interval { place, ..interval };
            let list = &mut self.intervals[sort as usize];
            let at = list.partition_point(|interval| interval.start < new.start);
            // Those inside are in use: this one is found in their place.
            let inside = list[at..].iter().take_while(|interval| new.covers(**interval));
            let until = at + inside.count();
            for interval in list.drain(at..until) {
                if let Some(entry) = &mut self.slots[interval.place as usize] {
                    entry.listed = false;
                }
            }
            list.insert(at, new);
        }
        if sort.has_key() {
            let at = self.by_key.partition_point(|(rkey, _)| *rkey < mr.rkey);
            self.by_key.insert(at, (mr.rkey, place));
        }
        self.figures.made += 1;
        self.count += 1;
        self.bytes += memory.len as u64;
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        self.slots[place as usize] = Some(Entry {
            memory,
            address,
            mr,
            serial,
            sort,
            users: 0,
            exposed: 0,
            listed,
            transient,
            older: NONE,
            newer: NONE,
        });
        self.rest(place);
        place
    }

    /// Removes it from the lists.
    fn unlist(&mut self, place: u32) {
        let entry = self.entry(place);
        if std::mem::take(&mut entry.listed) {
            let (sort, start) = (entry.sort, entry.memory.start.addr());
            let list = &mut self.intervals[sort as usize];
            let at = list.partition_point(|interval| interval.start < start);
            debug_assert_eq!(list.get(at).map(|interval| interval.place), Some(place));
            list.remove(at);
        }
    }

    /// Ends the registration that has been idle longest; `false`: none is.
    fn evict(&mut self, device: &mut impl Device) -> bool {
        let place = self.idle.oldest;
        if place == NONE {
            return false;
        }
        self.figures.evictions += 1;
        self.end(device, place);
        true
    }

    /// Ends one that is idle.
    fn end(&mut self, device: &mut impl Device, place: u32) {
        self.unlist(place);
        self.wake(place);
        let Some(entry) = self.slots[place as usize].take() else { unreachable!("it is idle") };
        self.free.push(place);
        self.count -= 1;
        self.bytes -= entry.memory.len as u64;
        if entry.sort.has_key()
            && let Ok(at) = self.by_key.binary_search_by_key(&entry.mr.rkey, |(rkey, _)| *rkey)
        {
            self.by_key.remove(at);
        }
        let ended = device.deregister(entry.mr.id);
        debug_assert!(!matches!(ended, Err(DestroyError::Busy { .. })), "memory is never busy: {ended:?}");
    }

    /// Appends an entry to the idle ones.
    fn rest(&mut self, place: u32) {
        let older = std::mem::replace(&mut self.idle.newest, place);
        match older {
            NONE => self.idle.oldest = place,
            _ => self.entry(older).newer = place,
        }
        let entry = self.entry(place);
        (entry.older, entry.newer) = (older, NONE);
        let bytes = entry.memory.len as u64;
        self.idle.count += 1;
        self.idle.bytes += bytes;
    }

    /// Takes an entry out of the idle ones.
    fn wake(&mut self, place: u32) {
        let entry = self.entry(place);
        let (older, newer, bytes) = (entry.older, entry.newer, entry.memory.len as u64);
        match older {
            NONE => self.idle.oldest = newer,
            _ => self.entry(older).newer = newer,
        }
        match newer {
            NONE => self.idle.newest = older,
            _ => self.entry(newer).older = older,
        }
        self.idle.count -= 1;
        self.idle.bytes -= bytes;
    }
}

/// Whether something may be had after something else was given back: the device's tables, locked memory, the
/// system's.
fn is_full(why: &RegisterError) -> bool {
    match why {
        RegisterError::Exhausted { .. } => true,
        RegisterError::System { code } => matches!(*code, libc::ENOMEM | libc::ENOSPC | libc::EAGAIN),
        _ => false,
    }
}

impl Entry {
    /// The key for peers: the rkey, and above it the registration's number.
    fn key(&self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.mr.rkey)
    }

    /// The device's address of a piece of it.
    fn address_of(&self, piece: Piece) -> u64 {
        self.address + (piece.start.addr() - self.memory.start.addr()) as u64
    }
}
