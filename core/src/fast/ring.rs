//! Completions of the short way, in the order in which they happened: a ring in the caller's memory.

use super::ShortCompletion;
use crate::store::{Arena, ArenaError, Sizer};

/// A bounded queue; full is a value.
pub(crate) struct Completions<'m> {
    /// A power of two of places.
    places: &'m mut [ShortCompletion],
    /// Taken so far, and put in so far, modulo 2^32.
    head: u32,
    tail: u32,
}

impl<'m> Completions<'m> {
    /// Places for `wanted` completions, or a little more.
    const fn places(wanted: u32) -> usize {
        let wanted = if wanted < 1 << 20 { wanted } else { 1 << 20 };
        wanted.next_power_of_two() as usize
    }

    pub(crate) const fn layout(sizer: Sizer, wanted: u32) -> Sizer {
        sizer.take::<ShortCompletion>(Self::places(wanted))
    }

    pub(crate) fn carve(arena: &mut Arena<'m>, wanted: u32) -> Result<Self, ArenaError> {
        Ok(Completions { places: arena.take(Self::places(wanted), ShortCompletion::default())?, head: 0, tail: 0 })
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline(always)]
    pub(crate) const fn is_full(&self) -> bool {
        self.tail.wrapping_sub(self.head) as usize >= self.places.len()
    }

    /// The place that the next completion gets, which nobody sees until [`commit`](Self::commit). `None`:
    /// full.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<&mut ShortCompletion> {
        let at = self.tail as usize & (self.places.len() - 1);
        if self.is_full() { None } else { self.places.get_mut(at) }
    }

    /// The place at the end is filled.
    #[inline(always)]
    pub(crate) fn commit(&mut self) {
        debug_assert!(!self.is_full(), "a place was given");
        self.tail = self.tail.wrapping_add(1);
    }

    /// A new place at the end. The caller has asked whether there is one.
    #[inline(always)]
    pub(crate) fn push(&mut self) -> &mut ShortCompletion {
        debug_assert!(!self.is_full(), "asked before");
        let at = self.tail as usize & (self.places.len() - 1);
        self.tail = self.tail.wrapping_add(1);
        &mut self.places[at]
    }

    /// Takes the last one back, which nobody has seen.
    pub(crate) fn unpush(&mut self) {
        if !self.is_empty() {
            self.tail = self.tail.wrapping_sub(1);
        }
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<&ShortCompletion> {
        if self.is_empty() {
            return None;
        }
        let at = self.head as usize & (self.places.len() - 1);
        self.head = self.head.wrapping_add(1);
        self.places.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Cookie;
    use core::mem::MaybeUninit;

    #[test]
    fn first_in_first_out_across_the_wrap_and_full_is_a_value() {
        #[repr(align(64))]
        struct Region([MaybeUninit<u8>; 1024]);
        let mut region = Region([MaybeUninit::uninit(); 1024]);
        let mut ring = Completions::carve(&mut Arena::new(&mut region.0).unwrap(), 3).unwrap();
        (ring.head, ring.tail) = (u32::MAX - 1, u32::MAX - 1);
        for round in 0..3 {
            for n in 0..4 {
                assert!(!ring.is_full());
                ring.push().cookie = Cookie(round * 10 + n);
            }
            assert!(ring.is_full());
            for n in 0..4 {
                assert_eq!(ring.pop().unwrap().cookie, Cookie(round * 10 + n));
            }
            assert!(ring.pop().is_none() && ring.is_empty());
        }
    }
}
