//! Completions of the express path, in the order in which they happened: a list in the caller's memory that
//! is filled from its start, and begins there again whenever all were taken. So the lines in use are few.

use super::ShortCompletion;
use crate::store::{Arena, ArenaError};

/// A bounded queue; full is a value. Aligned so that it lies in one line of the cache.
#[repr(align(32))]
pub(crate) struct Completions<'m> {
    places: &'m mut [ShortCompletion],
    /// The first that was not taken, and the first free place: both 0 where there is none.
    head: u32,
    tail: u32,
}

impl<'m> Completions<'m> {
    /// Places for `wanted` completions, or a little more.
    const fn places(wanted: u32) -> usize {
        let wanted = if wanted < 1 << 20 { wanted } else { 1 << 20 };
        wanted.next_power_of_two() as usize
    }

    pub(crate) fn carve(arena: &mut Arena<'m>, wanted: u32) -> Result<Self, ArenaError> {
        Ok(Completions { places: arena.take(Self::places(wanted), ShortCompletion::EMPTY)?, head: 0, tail: 0 })
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.tail == 0
    }

    /// Whether several were made since all were taken.
    #[inline(always)]
    pub(crate) const fn has_several(&self) -> bool {
        self.tail > 1
    }

    /// Whether there is no place at the end; [`has_room`](Self::has_room) may find some.
    #[inline(always)]
    pub(crate) const fn is_full(&self) -> bool {
        self.tail as usize >= self.places.len()
    }

    /// Whether there is a place, now or after moving the entries to the start.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        !self.is_full() || self.make_room()
    }

    /// Moves the entries to the start, where that frees many places at once.
    #[cold]
    fn make_room(&mut self) -> bool {
        if self.head as usize >= self.places.len().div_ceil(4) {
            self.places.copy_within(self.head as usize.., 0);
            (self.head, self.tail) = (0, self.tail - self.head);
        }
        !self.is_full()
    }

    /// The place of the next completion, not visible until [`commit`](Self::commit). `None`: there is none at
    /// the end.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<&mut ShortCompletion> {
        self.places.get_mut(self.tail as usize)
    }

    /// The place at the end is filled.
    #[inline(always)]
    pub(crate) fn commit(&mut self) {
        debug_assert!(!self.is_full(), "a place was given");
        self.tail += 1;
    }

    /// Appends one. The caller has checked that there is a place.
    #[inline(always)]
    pub(crate) fn push(&mut self, done: ShortCompletion) {
        let place = self.next();
        debug_assert!(place.is_some(), "the caller has checked for room");
        if let Some(place) = place {
            *place = done;
            self.tail += 1;
        }
    }

    /// Removes the last one, which was never visible.
    pub(crate) fn unpush(&mut self) {
        self.tail -= u32::from(self.tail > self.head);
        self.rest();
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<&ShortCompletion> {
        if self.is_empty() {
            return None;
        }
        let at = self.head as usize;
        self.head += 1;
        self.rest();
        self.places.get(at)
    }

    /// Takes all, oldest first.
    #[inline(always)]
    pub(crate) fn pop_all(&mut self) -> &[ShortCompletion] {
        if self.is_empty() {
            return &[];
        }
        let (head, tail) = (self.head as usize, self.tail as usize);
        (self.head, self.tail) = (0, 0);
        self.places.get(head..tail).unwrap_or_default()
    }

    #[inline(always)]
    fn rest(&mut self) {
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Cookie;
    use core::mem::MaybeUninit;

    fn done(n: u64) -> ShortCompletion {
        ShortCompletion { cookie: Cookie(n), ..ShortCompletion::EMPTY }
    }

    #[test]
    fn first_in_first_out_and_full_is_a_value() {
        #[repr(align(64))]
        struct Region([MaybeUninit<u8>; 1024]);
        let mut region = Region([MaybeUninit::uninit(); 1024]);
        let mut ring = Completions::carve(&mut Arena::new(&mut region.0).unwrap(), 3).unwrap();
        for round in 0..3 {
            for n in 0..4 {
                assert!(!ring.is_full() && ring.has_room());
                ring.push(done(round * 10 + n));
            }
            assert!(ring.is_full() && ring.next().is_none() && !ring.has_room());
            for n in 0..4 {
                assert_eq!(ring.pop().unwrap().cookie, Cookie(round * 10 + n));
            }
            assert!(ring.pop().is_none() && ring.is_empty());
        }
        // One is always left: room is found by moving it.
        ring.push(done(0));
        for n in 1..20 {
            assert!(ring.has_room());
            ring.push(done(n));
            assert_eq!(ring.pop().unwrap().cookie, Cookie(n - 1));
        }
        ring.unpush();
        assert!(ring.is_empty() && ring.pop().is_none());
        ring.unpush();
        assert!(ring.is_empty());
        (0..3).for_each(|n| ring.push(done(n)));
        assert_eq!(ring.pop().map(|first| first.cookie), Some(Cookie(0)));
        assert_eq!(ring.pop_all().iter().map(|done| done.cookie.0).collect::<std::vec::Vec<_>>(), [1, 2]);
        assert!(ring.is_empty() && ring.pop_all().is_empty() && ring.has_room());
    }

    /// The entries are moved to the start only where that frees a quarter of the places.
    #[test]
    fn room_is_made_for_many_at_once() {
        #[repr(align(64))]
        struct Region([MaybeUninit<u8>; 4096]);
        let mut region = Region([MaybeUninit::uninit(); 4096]);
        let mut ring = Completions::carve(&mut Arena::new(&mut region.0).unwrap(), 32).unwrap();
        (0..32).for_each(|n| ring.push(done(n)));
        for n in 0..8 {
            assert!(!ring.has_room(), "{n}");
            assert_eq!(ring.pop().unwrap().cookie, Cookie(n));
        }
        assert!(ring.has_room());
        (32..40).for_each(|n| ring.push(done(n)));
        assert!(!ring.has_room());
        assert!((8..40).all(|n| ring.pop().unwrap().cookie == Cookie(n)) && ring.is_empty());
    }
}
