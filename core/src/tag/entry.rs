//! A posted receive as the matcher has it: one cache line, with all that a plain one needs.

use super::shapes::SHAPES_MAX;
use crate::ids::{Cookie, Key};
use crate::mem::{MemRef, RegionId, Seg};
use crate::store::NONE;

/// The shape number of entries that stand aside.
pub(super) const ASIDE: u8 = SHAPES_MAX as u8;
/// Offsets of a direct receive are below this: they share a word with shape and state.
pub(super) const OFFSET_END: u64 = 1 << 48;
/// Position of the shape's place in [`Entry::what`], and of the state.
pub(super) const SHAPE_AT: u32 = 48;
pub(super) const STATE_AT: u32 = 56;
/// The shape of entries that stand beside the table: it is the same for all of them, and kept there.
pub(super) const BESIDE: u8 = 1 << 6;
/// Beside the shape: the offset is an address ([`MemRef::BY_ADDRESS`]).
pub(super) const ADDRESS: u64 = 1 << 5;
/// The places of shapes.
pub(super) const PLACES: u64 = SHAPES_MAX as u64 - 1;
/// The bits above the offset of a direct receive that was posted by its address, without the place.
pub(super) const PLAIN: u64 = Entry::what(0, 0, State::Direct) >> SHAPE_AT | ADDRESS;

/// What an entry is.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum State {
    Free,
    /// Posted; `recv` is the caller's.
    Named,
    /// Posted; everything is in the entry.
    Direct,
    /// A direct receive that has matched and is operation `recv` now; this entry's id names it.
    Promoted,
}

/// A plain receive: one piece, completion by event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// Where the payload goes.
    pub to: Seg,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

/// One posted receive: one line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    /// The bits of the tag that matter.
    pub(super) tag: u64,
    /// How many were posted before; 2^64 posts exceed the life of any machine.
    pub(super) order: u64,
    pub(super) cookie: Cookie,
    /// 48 bits of offset, 8 of the shape's place and [`ADDRESS`], 8 of the [`State`]: a word, as it is read
    /// and written at once for nearly every message.
    pub(super) what: u64,
    /// The source, where it is named.
    pub(super) source: u32,
    /// Bytes of a direct receive; else the caller's number.
    pub(super) len: u32,
    pub(super) region: RegionId,
    pub(super) generation: u32,
    /// The next in the group, or in the list of free entries.
    pub(super) next: u32,
    /// Of a head: the group before it in its bucket's chain. Else the one before it in its group.
    pub(super) prev: u32,
    /// Of a head: the next group in the chain.
    pub(super) chain: u32,
    /// Of a head: the last of its group.
    pub(super) tail: u32,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    pub(super) const BLANK: Entry = Entry {
        tag: 0,
        order: 0,
        cookie: Cookie(0),
        what: 0,
        source: 0,
        len: 0,
        region: RegionId(0),
        generation: 1,
        next: NONE,
        prev: NONE,
        chain: NONE,
        tail: NONE,
    };

    #[inline(always)]
    pub(super) const fn what(offset: u64, shape: u8, state: State) -> u64 {
        offset | (shape as u64) << SHAPE_AT | (state as u64) << STATE_AT
    }

    #[inline(always)]
    pub(super) const fn at(&self) -> MemRef {
        MemRef { region: self.region, offset: self.what & ((OFFSET_END - 1) | MemRef::BY_ADDRESS) }
    }

    #[inline(always)]
    pub(super) const fn shape(&self) -> u8 {
        (self.what >> SHAPE_AT & !ADDRESS) as u8
    }

    pub(super) fn set_shape(&mut self, shape: u8) {
        self.what = self.what & !((0xff & !ADDRESS) << SHAPE_AT) | u64::from(shape) << SHAPE_AT;
    }

    #[inline(always)]
    pub(super) fn is(&self, state: State) -> bool {
        self.what >> STATE_AT == state as u64
    }

    pub(super) fn set_state(&mut self, state: State) {
        self.what = self.what & !(0xff << STATE_AT) | (state as u64) << STATE_AT;
    }

    #[inline]
    pub(super) fn is_posted(&self) -> bool {
        self.is(State::Named) || self.is(State::Direct)
    }

    #[inline(always)]
    pub(super) fn direct(&self) -> Direct {
        Direct { to: Seg { at: self.at(), len: self.len.into() }, cookie: self.cookie }
    }

    /// Puts it at the beginning of the list of free entries. Its content stays until it is used again; it is
    /// the only one of its group, as a new entry is.
    #[inline(always)]
    pub(super) fn free(&mut self, first: &mut u32, index: u32) {
        self.set_state(State::Free);
        self.next = core::mem::replace(first, index);
    }

    /// As [`free`](Self::free), of a direct receive that was posted by its address, which stays.
    #[inline(always)]
    pub(super) fn free_plain(&mut self, first: &mut u32, index: u32, address: u64) {
        const { assert!(State::Free as u64 == 0) };
        self.what = address;
        self.next = core::mem::replace(first, index);
    }

    /// Gives it a new name: different from before, and never 0 as generations are odd, so that an all-zero id
    /// from outside is invalid.
    #[inline(always)]
    pub(super) fn name(&mut self, index: u32) -> Key {
        self.generation = self.generation.wrapping_add(2);
        Key { index, generation: self.generation }
    }

    /// The id of a posted receive for callers.
    #[inline]
    pub(super) fn recv(&self) -> u32 {
        if self.is(State::Direct) { NONE } else { self.len }
    }
}

/// A direct receive that was taken, and is posted no more.
#[derive(Debug)]
pub struct Taken<'a> {
    pub(super) entry: &'a Entry,
    pub(super) index: u32,
}

impl Taken<'_> {
    /// What named it.
    #[inline(always)]
    pub fn key(&self) -> Key {
        Key { index: self.index, generation: self.entry.generation }
    }

    /// Where the payload goes.
    #[inline(always)]
    pub fn at(&self) -> MemRef {
        self.entry.at()
    }

    /// What comes back in the completion.
    #[inline(always)]
    pub fn cookie(&self) -> Cookie {
        self.entry.cookie
    }
}

/// The same of one that was posted by its address.
#[derive(Debug)]
pub struct Plain<'a>(pub(super) Taken<'a>);

impl Plain<'_> {
    /// What named it.
    #[inline(always)]
    pub fn key(&self) -> Key {
        self.0.key()
    }

    /// Where the payload goes.
    #[inline(always)]
    pub fn address(&self) -> u64 {
        self.0.entry.what
    }

    /// The same as it was posted.
    #[inline(always)]
    pub fn at(&self) -> MemRef {
        MemRef::by_address(self.0.entry.region, self.address())
    }

    /// What comes back in the completion.
    #[inline(always)]
    pub fn cookie(&self) -> Cookie {
        self.0.cookie()
    }
}

#[inline]
pub(super) const fn is_aside(shape: u8) -> bool {
    shape & 0x3f == ASIDE
}
