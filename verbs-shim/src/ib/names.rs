//! Names of objects: a place and a generation, so that the name of something destroyed names nothing.
//!
//! Invariants: a name is never 0 and never all ones; a place is given out again only after all others that
//! are free, and with another generation.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// Bits of a name that are the place; the rest is the generation.
const PLACE_BITS: u32 = 20;
/// Places that there can be: one less than the bits allow, so that no name is all ones.
const PLACES_MAX: u32 = (1 << PLACE_BITS) - 1;
const GENERATIONS: u32 = 1 << (u32::BITS - PLACE_BITS);

/// Objects by name.
pub(super) struct Names<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
}

struct Slot<T> {
    generation: u32,
    item: Option<T>,
}

/// An object of the library, and what is known of it.
pub(super) struct Entry<R, K = ()> {
    pub raw: R,
    pub known: K,
}

impl<R, K> Deref for Entry<R, K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.known
    }
}

impl<R, K> DerefMut for Entry<R, K> {
    fn deref_mut(&mut self) -> &mut K {
        &mut self.known
    }
}

impl<T> Names<T> {
    pub fn new() -> Self {
        Names { slots: Vec::new(), free: VecDeque::new() }
    }

    /// A name for a new object; [`put`](Self::put) or [`release`](Self::release) follows. `None`: the table
    /// is full.
    pub fn reserve(&mut self) -> Option<u32> {
        let place = match self.free.pop_front() {
            Some(place) => place,
            None => {
                let place = u32::try_from(self.slots.len()).ok().filter(|place| *place < PLACES_MAX)?;
                self.slots.push(Slot { generation: 1, item: None });
                place
            }
        };
        Some(self.slots[place as usize].generation << PLACE_BITS | place)
    }

    /// Puts an object under a reserved name, or back after [`take`](Self::take).
    pub fn put(&mut self, name: u32, item: T) {
        self.slots[place(name)].item = Some(item);
    }

    /// Takes an object out; its name stays reserved.
    pub fn take(&mut self, name: u32) -> Option<T> {
        self.get(name)?;
        self.slots[place(name)].item.take()
    }

    /// The name of a missing object names nothing from now on.
    pub fn release(&mut self, name: u32) {
        let slot = &mut self.slots[place(name)];
        slot.generation = slot.generation % (GENERATIONS - 1) + 1;
        self.free.push_back(place(name) as u32);
    }

    pub fn get(&self, name: u32) -> Option<&T> {
        let slot = self.slots.get(place(name))?;
        if slot.generation == name >> PLACE_BITS { slot.item.as_ref() } else { None }
    }

    pub fn get_mut(&mut self, name: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(place(name))?;
        if slot.generation == name >> PLACE_BITS { slot.item.as_mut() } else { None }
    }

    /// All objects, taken out.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.slots.iter_mut().filter_map(|slot| slot.item.take())
    }

    /// How many objects fit.
    pub fn count(&self, wanted: impl Fn(&T) -> bool) -> u32 {
        self.slots.iter().filter(|slot| slot.item.as_ref().is_some_and(&wanted)).count() as u32
    }
}

const fn place(name: u32) -> usize {
    (name & PLACES_MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_with_its_object() {
        let mut names = Names::new();
        let mut make = |item| {
            let name = names.reserve().unwrap();
            names.put(name, item);
            name
        };
        let (a, b) = (make('a'), make('b'));
        assert_eq!(
            (names.get(a), names.get(b), names.get(0), names.get(u32::MAX)),
            (Some(&'a'), Some(&'b'), None, None)
        );
        assert_eq!(names.take(a), Some('a'));
        assert!(names.get(a).is_none() && names.take(a).is_none());
        names.put(a, 'a');
        assert_eq!(names.take(a), Some('a'));
        names.release(a);
        let c = names.reserve().unwrap();
        names.put(c, 'c');
        assert_eq!(place(a), place(c));
        assert_eq!((names.get(a), names.get(c)), (None, Some(&'c')));
        assert_eq!(names.drain().collect::<String>(), "cb");
    }

    #[test]
    fn generations_begin_anew_without_zero() {
        let mut names = Names::<()>::new();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 1..GENERATIONS {
            let name = names.reserve().unwrap();
            assert!(name != 0 && name != u32::MAX && seen.insert(name));
            names.release(name);
        }
        assert!(seen.contains(&names.reserve().unwrap()));
    }
}
