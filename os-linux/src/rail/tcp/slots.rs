//! A table whose keys carry a generation, so that a late system event for a closed connection can't name the
//! one that has its slot now.

use rerail_core::ids::Key;

/// Values under keys.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Self {
        Slots { slots: Vec::new(), free: Vec::new() }
    }

    /// Puts a value in.
    pub(super) fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let (generation, slot) = &mut self.slots[index as usize];
        // 31 bits: the highest one distinguishes the tables in the system's events.
        *generation = (*generation + 1) & 0x7FFF_FFFF;
        *slot = Some(value);
        Key { index, generation: *generation }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    fn slot(&mut self, key: Key) -> Option<&mut Option<T>> {
        let (generation, slot) = self.slots.get_mut(key.index as usize)?;
        (*generation == key.generation).then_some(slot)
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        let (generation, slot) = self.slots.get(key.index as usize)?;
        slot.as_ref().filter(|_| *generation == key.generation)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slot(key)?.as_mut()
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let value = self.slot(key)?.take()?;
        self.free.push(key.index);
        Some(value)
    }

    /// All values with their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, (generation, slot))| {
            slot.as_ref().map(|value| (Key { index: index as u32, generation: *generation }, value))
        })
    }

    /// See [`Self::iter`].
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, (generation, slot))| {
            slot.as_mut().map(|value| (Key { index: index as u32, generation: *generation }, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_dies_with_its_value() {
        let mut slots = Slots::new();
        let (a, b) = (slots.insert('a'), slots.insert('b'));
        assert_eq!((slots.remove(a), slots.remove(a)), (Some('a'), None));
        let c = slots.insert('c');
        assert_eq!((a.index, slots.get_mut(a)), (c.index, None));
        assert_eq!(slots.get_mut(c), Some(&mut 'c'));
        assert_eq!(slots.iter().map(|(key, value)| (key, *value)).collect::<Vec<_>>(), [(c, 'c'), (b, 'b')]);
    }
}
