//! A bounded table with a generation in each id: full is a value, a stale id finds nothing.

use super::arena::{Arena, ArenaError};
use super::list::NONE;
use crate::ids::Key;

const OCCUPIED: u32 = u32::MAX - 1;

/// One place of a [`Slab`].
#[derive(Clone, Copy, Debug)]
pub struct Slot<T> {
    generation: u32,
    /// The next free slot, [`NONE`] at the end, [`OCCUPIED`] in use.
    next: u32,
    value: T,
}

/// A way through the slots of a [`Slab`] that are in use, which ends with the last of them.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    at: u32,
    left: u32,
}

/// Up to `capacity` values of `T` in the caller's memory.
pub struct Slab<'m, T> {
    slots: &'m mut [Slot<T>],
    free: u32,
    len: u32,
}

impl<'m, T: 'm> Slab<'m, T> {
    /// A slab of `capacity` free slots; `blank` makes what fills slots that are not in use.
    pub fn carve(arena: &mut Arena<'m>, capacity: u32, blank: impl Fn() -> T) -> Result<Self, ArenaError> {
        let slots = arena.take_with(capacity as usize, |i| Slot {
            generation: 1,
            next: if i + 1 == capacity { NONE } else { i + 1 },
            value: blank(),
        })?;
        Ok(Slab { free: if capacity == 0 { NONE } else { 0 }, slots, len: 0 })
    }

    /// How many are in use.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether none is in use.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there can be.
    pub const fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// How many more fit.
    pub const fn room(&self) -> u32 {
        self.capacity() - self.len
    }

    /// Puts a value in; `None`: the table is full.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> Option<Key> {
        let index = self.free;
        if index == NONE {
            return None;
        }
        let slot = &mut self.slots[index as usize];
        self.free = slot.next;
        slot.next = OCCUPIED;
        slot.value = value;
        self.len += 1;
        Some(Key { index, generation: slot.generation })
    }

    /// Takes a value out, which stays to be looked at until the next call. Its key, and every copy of it, is
    /// dead from here on.
    pub fn remove(&mut self, key: Key) -> Option<&T> {
        self.get(key)?;
        let slot = &mut self.slots[key.index as usize];
        // Zero is never used, so an all-zero id from outside is never valid.
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.next = self.free;
        self.free = key.index;
        self.len -= 1;
        Some(&slot.value)
    }

    /// The index that the next value gets.
    #[inline(always)]
    pub const fn next_index(&self) -> Option<u32> {
        if self.free == NONE { None } else { Some(self.free) }
    }

    /// Frees the slot of an index that the core itself keeps, as [`remove`](Self::remove) does. That it is
    /// free already would be our bug: debug builds panic, others change nothing.
    #[inline(always)]
    pub fn remove_at(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        debug_assert_eq!(slot.next, OCCUPIED, "slot {index} is free");
        if slot.next != OCCUPIED {
            return;
        }
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.next = self.free;
        self.free = index;
        self.len -= 1;
    }

    /// The value under a key, if the key is alive.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        match self.slots.get(key.index as usize) {
            Some(slot) if slot.next == OCCUPIED && slot.generation == key.generation => Some(&slot.value),
            _ => None,
        }
    }

    /// The value under a key, if the key is alive.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slots.get_mut(key.index as usize) {
            Some(slot) if slot.next == OCCUPIED && slot.generation == key.generation => Some(&mut slot.value),
            _ => None,
        }
    }

    /// The value at an index that the core itself keeps. That the slot is free would be our bug: debug builds
    /// panic.
    pub fn at(&self, index: u32) -> &T {
        let slot = &self.slots[index as usize];
        debug_assert_eq!(slot.next, OCCUPIED, "slot {index} is free");
        &slot.value
    }

    /// The value at an index, or its last value if the slot was freed.
    pub fn last_at(&self, index: u32) -> &T {
        &self.slots[index as usize].value
    }

    /// As [`at`](Self::at), to change it.
    pub fn at_mut(&mut self, index: u32) -> &mut T {
        let slot = &mut self.slots[index as usize];
        debug_assert_eq!(slot.next, OCCUPIED, "slot {index} is free");
        &mut slot.value
    }

    /// As [`at_mut`](Self::at_mut); `None`: there is no such slot.
    #[inline(always)]
    pub fn slot_mut(&mut self, index: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        debug_assert_eq!(slot.next, OCCUPIED, "slot {index} is free");
        Some(&mut slot.value)
    }

    /// Begins to go through the slots in use, in the order of their indices; [`step`](Self::step) goes on. It
    /// ends with the last of them, not with the last slot: tables are large where jobs are, and mostly empty.
    /// Values may be taken out meanwhile, none put in.
    pub const fn walk(&self) -> Walk {
        Walk { at: 0, left: self.len }
    }

    /// The index of the next slot in use.
    pub fn step(&self, walk: &mut Walk) -> Option<u32> {
        if walk.left == 0 {
            return None;
        }
        let from = walk.at as usize;
        let ahead = self.slots.get(from..)?.iter().position(|slot| slot.next == OCCUPIED)?;
        let index = walk.at + ahead as u32;
        (walk.at, walk.left) = (index + 1, walk.left - 1);
        Some(index)
    }

    /// As [`step`](Self::step), to the next slot whose value is `wanted`.
    pub fn step_to(&self, walk: &mut Walk, wanted: impl Fn(&T) -> bool) -> Option<u32> {
        let (from, mut left) = (walk.at as usize, walk.left);
        for (slot, index) in self.slots.get(from..)?.iter().zip(walk.at..) {
            if left == 0 {
                break;
            }
            if slot.next == OCCUPIED {
                left -= 1;
                if wanted(&slot.value) {
                    (walk.at, walk.left) = (index + 1, left);
                    return Some(index);
                }
            }
        }
        walk.left = 0;
        None
    }

    /// The indices of the slots in use, for a caller that changes nothing meanwhile.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let mut walk = self.walk();
        core::iter::from_fn(move || self.step(&mut walk))
    }

    /// The living key of an index, if the slot is in use.
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        (slot.next == OCCUPIED).then_some(Key { index, generation: slot.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::MaybeUninit;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::vec::Vec;

    #[repr(align(64))]
    struct Aligned([MaybeUninit<u8>; 1024]);

    proptest! {
        /// A slab is a map from keys to values; a removed key never comes back to life.
        #[test]
        fn behaves_like_a_map(steps in proptest::collection::vec((any::<bool>(), 0usize..8), 0..200)) {
            let mut region = Aligned([MaybeUninit::uninit(); 1024]);
            let mut arena = Arena::new(&mut region.0).unwrap();
            let mut slab = Slab::carve(&mut arena, 5, || 0u32).unwrap();
            let mut oracle: HashMap<u64, u32> = HashMap::new();
            let mut all: Vec<Key> = Vec::new();
            for (n, (insert, pick)) in steps.into_iter().enumerate() {
                if insert {
                    match slab.insert(n as u32) {
                        Some(key) => {
                            prop_assert!(oracle.insert(key.to_bits(), n as u32).is_none());
                            all.push(key);
                        }
                        None => prop_assert_eq!(oracle.len(), 5),
                    }
                } else if !all.is_empty() {
                    let key = all[pick % all.len()];
                    prop_assert_eq!(slab.remove(key).copied(), oracle.remove(&key.to_bits()));
                }
                for key in &all {
                    prop_assert_eq!(slab.get(*key), oracle.get(&key.to_bits()));
                }
                prop_assert_eq!(slab.len() as usize, oracle.len());
                let mut used: Vec<u32> = oracle.keys().map(|&key| Key::from_bits(key).index).collect();
                used.sort_unstable();
                prop_assert_eq!(slab.indices().collect::<Vec<_>>(), used.clone());
                // A walk on which every other value found, and the one behind it, is taken out: none is
                // missed.
                let mut gone = used.clone();
                let mut walk = slab.walk();
                let mut taken = Slab { slots: &mut slab.slots.to_vec()[..], free: slab.free, len: slab.len };
                while let Some(index) = taken.step(&mut walk) {
                    prop_assert_eq!(index, gone.remove(0));
                    taken.remove_at(index);
                    if index % 2 == 0 && !gone.is_empty() {
                        taken.remove_at(gone.remove(0));
                    }
                }
                prop_assert!(gone.is_empty() && taken.is_empty());
                let (mut walk, mut values) = (slab.walk(), used.iter().map(|&index| *slab.at(index)));
                while let Some(index) = slab.step_to(&mut walk, |value| value % 3 == 0) {
                    prop_assert_eq!(values.find(|value| value % 3 == 0), Some(*slab.at(index)));
                }
                prop_assert!(values.all(|value| value % 3 != 0));
            }
        }
    }
}
