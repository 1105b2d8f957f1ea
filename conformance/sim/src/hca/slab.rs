//! Tables of objects whose names go stale: a name is a slot and a generation, and a slot that was emptied
//! gets another generation, so the name of a destroyed object names nothing. Slots are reused oldest first,
//! which makes the time until a generation comes again as long as it can be.

use std::collections::VecDeque;

const SLOT_BITS: u32 = 20;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const GENERATIONS: u16 = 1 << (32 - SLOT_BITS);

/// Slots that a slab can have.
const SLAB_MAX: u32 = SLOT_MASK;

/// Objects that may be in a slab: limits of devices are cut to this. A few less, so that numbers made of
/// slots have room for reserved ones.
pub(super) const NAMES_MAX: u32 = SLAB_MAX - 3;

/// A table. Names are never 0.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
    len: u32,
}

#[derive(Debug)]
struct Slot<T> {
    /// 1 to `GENERATIONS - 1`.
    generation: u16,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: VecDeque::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// Objects in it.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Adds an object, which may need its name; the caller keeps the number of objects within [`NAMES_MAX`].
    pub fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> u32 {
        let slot = self.free.pop_front().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 1, value: None });
            self.slots.len() as u32 - 1
        });
        assert!(slot < SLAB_MAX, "limits of devices are below what a slab holds");
        let name = u32::from(self.slots[slot as usize].generation) << SLOT_BITS | slot;
        self.slots[slot as usize].value = Some(make(name));
        self.len += 1;
        name
    }

    /// The object of that name.
    pub fn get(&self, name: u32) -> Option<&T> {
        let slot = self.slots.get((name & SLOT_MASK) as usize)?;
        slot.value.as_ref().filter(|_| u32::from(slot.generation) == name >> SLOT_BITS)
    }

    /// The object of that name.
    pub fn get_mut(&mut self, name: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut((name & SLOT_MASK) as usize)?;
        let current = u32::from(slot.generation) == name >> SLOT_BITS;
        slot.value.as_mut().filter(|_| current)
    }

    /// Takes an object out; its name is stale from now on.
    pub fn remove(&mut self, name: u32) -> Option<T> {
        self.get(name)?;
        let slot = &mut self.slots[(name & SLOT_MASK) as usize];
        slot.generation = if slot.generation + 1 == GENERATIONS { 1 } else { slot.generation + 1 };
        self.free.push_back(name & SLOT_MASK);
        self.len -= 1;
        slot.value.take()
    }

    /// The name of the object in that slot now.
    pub fn name_at(&self, slot: u32) -> Option<u32> {
        let found = self.slots.get(slot as usize)?;
        found.value.as_ref().map(|_| u32::from(found.generation) << SLOT_BITS | slot)
    }

    /// All, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let name = |slot: usize, generation: u16| u32::from(generation) << SLOT_BITS | slot as u32;
        self.slots
            .iter()
            .enumerate()
            .filter_map(move |(i, slot)| Some((name(i, slot.generation), slot.value.as_ref()?)))
    }

    /// The names of those for which `which` holds.
    pub fn names(&self, mut which: impl FnMut(&T) -> bool) -> Vec<u32> {
        self.iter().filter(|(_, value)| which(value)).map(|(name, _)| name).collect()
    }
}

/// The slot of a name.
pub(super) const fn slot_of(name: u32) -> u32 {
    name & SLOT_MASK
}

/// The generation of a name.
pub(super) const fn generation_of(name: u32) -> u32 {
    name >> SLOT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_name_names_nothing() {
        let mut slab = Slab::default();
        let first = slab.insert_with(|name| name);
        assert_eq!(slab.get(first), Some(&first));
        assert_eq!(slab.remove(first), Some(first));
        let second = slab.insert_with(|name| name);
        assert_eq!(slot_of(first), slot_of(second));
        assert_ne!(first, second);
        assert!(slab.get(first).is_none() && slab.get_mut(first).is_none() && slab.remove(first).is_none());
        assert_eq!(slab.name_at(slot_of(first)), Some(second));
        assert_eq!(slab.len(), 1);
    }

    /// Generations come again, 0 does not: no name is 0.
    #[test]
    fn generations_wrap_past_zero() {
        let mut slab = Slab::default();
        for _ in 0..10_000 {
            let name = slab.insert_with(|_| ());
            assert_ne!(name, 0);
            assert!(slab.remove(name).is_some());
        }
    }
}
