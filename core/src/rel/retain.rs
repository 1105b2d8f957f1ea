//! Copies of eager payloads, held until the peer acknowledges them (resilient-2010, IV.A; rule A-5): the
//! sender's buffer is free at once, and the message can still be sent again over another rail.

use crate::mem::{MemRef, RegionId};
use crate::store::{Arena, ArenaError, NONE};

/// Equal places in the payload pool, each with a record of what it holds.
pub struct Retention<'m, R> {
    places: &'m mut [Place<R>],
    free: u32,
    free_len: u32,
    base: u64,
    stride_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place<R> {
    record: R,
    next: u32,
}

/// Places being given back ([`Retention::give_each`]).
pub struct Giving<'g, R> {
    places: &'g mut [Place<R>],
    free: u32,
    count: u32,
}

impl<R> Giving<'_, R> {
    /// Gives a place back if `is_free` of its record. `false`: there is no such place.
    #[inline(always)]
    pub fn give_if(&mut self, index: u32, is_free: impl FnOnce(&mut R) -> bool) -> bool {
        let Some(place) = self.places.get_mut(index as usize) else { return false };
        if is_free(&mut place.record) {
            place.next = core::mem::replace(&mut self.free, index);
            self.count += 1;
        }
        true
    }
}

impl<'m, R: Copy + Default + 'm> Retention<'m, R> {
    /// `count` free places of `stride_bytes`, from `base` in the payload pool on.
    pub fn carve(arena: &mut Arena<'m>, count: u32, base: u64, stride_bytes: u64) -> Result<Self, ArenaError> {
        let next = |i| if i + 1 == count { NONE } else { i + 1 };
        let places = arena.take_with(count as usize, |i| Place { record: R::default(), next: next(i) })?;
        Ok(Retention { places, free: if count == 0 { NONE } else { 0 }, free_len: count, base, stride_bytes })
    }

    /// A free place; `None` where all are held.
    pub fn take(&mut self) -> Option<u32> {
        self.take_with_record().map(|(place, ..)| place)
    }

    /// As [`take`](Self::take), with its record and with the place that is taken next, if none is given back
    /// before: that follows it in a [run](Self::give_run).
    #[inline(always)]
    pub fn take_with_record(&mut self) -> Option<(u32, u32, &mut R)> {
        let index = self.free;
        // No place has the index `NONE`.
        let place = self.places.get_mut(index as usize)?;
        self.free = place.next;
        self.free_len -= 1;
        Some((index, place.next, &mut place.record))
    }

    /// The place that is taken next; [`NONE`] where all are held.
    #[inline(always)]
    pub const fn next(&self) -> u32 {
        self.free
    }

    /// A held place shall follow another one in a run.
    pub fn follow(&mut self, place: u32, follower: u32) {
        self.places[place as usize].next = follower;
    }

    /// Gives back a run of `count` held places at once, from `first` to `last`, each of which follows the one
    /// before it.
    pub fn give_run(&mut self, first: u32, last: u32, count: u32) {
        debug_assert_eq!(
            (1..count).fold(first, |place, _| self.places[place as usize].next),
            last,
            "a run of {count} places is broken"
        );
        self.places[last as usize].next = self.free;
        self.free = first;
        self.free_len += count;
    }

    /// Gives a place back.
    pub fn give(&mut self, place: u32) {
        self.places[place as usize].next = self.free;
        self.free = place;
        self.free_len += 1;
    }

    /// Gives back those places that `each` gives back, and returns how many.
    #[inline(always)]
    pub fn give_each(&mut self, each: impl FnOnce(&mut Giving<'_, R>)) -> u32 {
        let mut giving = Giving { places: self.places, free: self.free, count: 0 };
        each(&mut giving);
        let Giving { free, count, .. } = giving;
        self.free = free;
        self.free_len += count;
        count
    }

    /// How many are free.
    pub const fn free_len(&self) -> u32 {
        self.free_len
    }

    /// Where a place lies.
    pub const fn at(&self, place: u32) -> MemRef {
        MemRef { region: RegionId::POOL, offset: self.base + place as u64 * self.stride_bytes }
    }

    /// The record of a place.
    #[inline]
    pub fn record(&self, place: u32) -> &R {
        &self.places[place as usize].record
    }

    /// As [`record`](Self::record), to change it.
    #[inline]
    pub fn record_mut(&mut self, place: u32) -> &mut R {
        &mut self.places[place as usize].record
    }

    /// As [`record_mut`](Self::record_mut); `None`: there is no such place.
    #[inline(always)]
    pub fn get_mut(&mut self, place: u32) -> Option<&mut R> {
        self.places.get_mut(place as usize).map(|place| &mut place.record)
    }

    /// The records of all places, in the order of their indices.
    pub fn records(&self) -> impl Iterator<Item = &R> {
        self.places.iter().map(|place| &place.record)
    }
}
