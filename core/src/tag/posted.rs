//! Posted receives: tuple-space search.
//!
//! A message can match receives of several shapes (source named or not, these or those bits ignored), but of each shape
//! it matches receives of one pattern only. So a lookup projects the message onto each shape in use, finds the group of
//! that pattern by hash, and among the oldest entries of these groups takes the one posted first, told by a number that
//! counts posts. Shapes beyond [`SHAPES_MAX`](super::SHAPES_MAX) have their groups aside, and each is looked at.
//!
//! Invariant: in a group, entries stand in the order of their numbers.

use super::MatchFull;
use super::fifos::{ASIDE, Fifos};
use super::pattern::Pattern;
use super::shapes::Shapes;
use crate::endpoint::request::Selector;
use crate::ids::{Key, PeerId};
use crate::store::list::By;
use crate::store::{Arena, ArenaError, Link, Sizer, Slab, Walk};

/// One posted receive.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// How many were posted before; 2^64 posts take longer than any machine stands.
    order: u64,
    /// Neighbours in the group.
    link: Link,
    group: u32,
    recv: u32,
}

impl Entry {
    const BLANK: Entry = Entry { order: 0, link: Link::UNLINKED, group: 0, recv: 0 };
}

/// All posted receives.
pub(super) struct Posted<'m> {
    entries: Slab<'m, Entry>,
    fifos: Fifos<'m>,
    shapes: Shapes,
    /// Posts so far.
    posts: u64,
}

impl<'m> Posted<'m> {
    pub(super) const fn layout(sizer: Sizer, posted_max: u32, buckets: u32) -> Sizer {
        Fifos::layout(Slab::<Entry>::layout(sizer, posted_max), posted_max, buckets)
    }

    pub(super) fn carve(arena: &mut Arena<'m>, posted_max: u32, buckets: u32) -> Result<Self, ArenaError> {
        Ok(Posted {
            entries: Slab::carve(arena, posted_max, Entry::BLANK)?,
            fifos: Fifos::carve(arena, posted_max, buckets)?,
            shapes: Shapes::new(),
            posts: 0,
        })
    }

    pub(super) fn post(&mut self, selector: &Selector, recv: u32) -> Result<Key, MatchFull> {
        let full = MatchFull::Posted { max: self.entries.capacity() };
        if self.entries.room() == 0 {
            return Err(full);
        }
        let group = self.group_of(&Pattern::of_selector(selector)).ok_or(full)?;
        let entry = Entry { order: self.posts, group, recv, ..Entry::BLANK };
        let key = self.entries.insert(entry).map_err(|_| full)?;
        self.posts += 1;
        self.fifos.append(group, &mut By(&mut self.entries, entry_link), key.index);
        Ok(key)
    }

    pub(super) fn unpost(&mut self, key: Key) -> Option<u32> {
        let group = self.entries.get(key)?.group;
        let gone = self.fifos.detach(group, &mut By(&mut self.entries, entry_link), key.index);
        if let Some(place) = gone.filter(|&home| home != ASIDE) {
            self.shapes.release(place);
        }
        self.entries.remove(key).map(|entry| entry.recv)
    }

    pub(super) fn find(&self, source: PeerId, tag: Option<u64>) -> Option<(Key, u32)> {
        if self.entries.is_empty() {
            return None;
        }
        let message = Pattern::of_message(source, tag);
        let (mut first, mut oldest) = (u64::MAX, None);
        let mut look = |group: u32| {
            let entry = self.fifos.group(group).oldest();
            let order = self.entries.at(entry).order;
            if order < first {
                (first, oldest) = (order, Some(entry));
            }
        };
        for shape in self.shapes.active() {
            if let Some(pattern) = shape.project(&message)
                && let Some(group) = self.fifos.find(self.fifos.bucket(&pattern), &pattern)
            {
                look(group);
            }
        }
        self.fifos.aside().filter(|&group| self.fifos.group(group).pattern().takes(&message)).for_each(look);
        let oldest = oldest?;
        Some((self.entries.key_at(oldest)?, self.entries.at(oldest).recv))
    }

    pub(super) const fn walk(&self) -> Walk {
        self.entries.walk()
    }

    pub(super) fn next_of(&self, source: PeerId, walk: &mut Walk) -> Option<(Key, u32)> {
        while let Some(index) = self.entries.step(walk) {
            let entry = self.entries.at(index);
            let pattern = self.fifos.group(entry.group).pattern();
            if pattern.exact && pattern.source == source.0 {
                return Some((self.entries.key_at(index)?, entry.recv));
            }
        }
        None
    }

    pub(super) fn next_source(&self, walk: &mut Walk) -> Option<PeerId> {
        while let Some(index) = self.entries.step(walk) {
            let pattern = self.fifos.group(self.entries.at(index).group).pattern();
            if pattern.exact {
                return Some(PeerId(pattern.source));
            }
        }
        None
    }

    pub(super) const fn count(&self) -> u32 {
        self.entries.len()
    }

    pub(super) const fn room(&self) -> u32 {
        self.entries.room()
    }

    /// Groups looked at so far.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.fifos.steps.get()
    }

    /// The group of a pattern, a new one where it has none: hashed where its shape has a place or can be given one, else
    /// aside. A pattern may have older entries aside that came while there was no place; their numbers keep the order.
    fn group_of(&mut self, pattern: &Pattern) -> Option<u32> {
        let Some(place) = self.shapes.place_for(pattern.shape()) else {
            return self.fifos.find_aside(pattern).or_else(|| self.fifos.open(0, pattern, ASIDE));
        };
        let bucket = self.fifos.bucket(pattern);
        if let Some(group) = self.fifos.find(bucket, pattern) {
            return Some(group);
        }
        let group = self.fifos.open(bucket, pattern, place)?;
        self.shapes.hold(place, pattern.shape());
        Some(group)
    }
}

fn entry_link<'e>(entries: &'e mut Slab<'_, Entry>, index: u32) -> &'e mut Link {
    &mut entries.at_mut(index).link
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Slot;
    use crate::tag::fifos::Group;

    #[test]
    fn a_posted_receive_costs_96_bytes() {
        assert_eq!((size_of::<Slot<Entry>>(), size_of::<Slot<Group>>()), (40, 56));
        let (one, two) = (Posted::layout(Sizer::new(), 1, 1), Posted::layout(Sizer::new(), 2, 1));
        // One place more; the list of the one bucket fills up to the alignment of the groups behind it.
        assert_eq!(two.bytes().unwrap() - one.bytes().unwrap(), 96);
    }
}
