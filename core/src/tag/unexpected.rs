//! Unexpected messages: each stands in the queue of all that wait, in order of arrival, and in the group of
//! those that have its source and tag. A receive that names both finds its group by hash; one with a wildcard
//! walks the queue of all, oldest first, and stops at the first that fits.

use super::MatchFull;
use super::fifos::Fifos;
use super::pattern::Pattern;
use crate::ids::{Key, PeerId};
use crate::selector::Selector;
use crate::store::list::By;
use crate::store::{Arena, ArenaError, Link, List, NONE, Sizer, Slab};

/// One waiting message.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Neighbours in order of arrival.
    arrival: Link,
    /// Neighbours in the group.
    link: Link,
    group: u32,
    message: u32,
}

impl Entry {
    const BLANK: Entry = Entry { arrival: Link::UNLINKED, link: Link::UNLINKED, group: 0, message: 0 };
}

/// All waiting messages.
pub(super) struct Unexpected<'m> {
    entries: Slab<'m, Entry>,
    fifos: Fifos<'m>,
    arrivals: List,
}

impl<'m> Unexpected<'m> {
    pub(super) const fn layout(sizer: Sizer, unexpected_max: u32, buckets: u32) -> Sizer {
        Fifos::layout(Slab::<Entry>::layout(sizer, unexpected_max), unexpected_max, buckets)
    }

    pub(super) fn carve(arena: &mut Arena<'m>, unexpected_max: u32, buckets: u32) -> Result<Self, ArenaError> {
        Ok(Unexpected {
            entries: Slab::carve(arena, unexpected_max, Entry::BLANK)?,
            fifos: Fifos::carve(arena, unexpected_max, buckets)?,
            arrivals: List::EMPTY,
        })
    }

    pub(super) fn store(&mut self, source: PeerId, tag: Option<u64>, message: u32) -> Result<Key, MatchFull> {
        let full = MatchFull::Unexpected { max: self.entries.capacity() };
        if self.entries.room() == 0 {
            return Err(full);
        }
        let pattern = Pattern::of_message(source, tag);
        let bucket = self.fifos.bucket(&pattern);
        let group = match self.fifos.find(bucket, &pattern) {
            Some(group) => group,
            None => self.fifos.open(bucket, &pattern).ok_or(full)?,
        };
        let key = self.entries.insert(Entry { group, message, ..Entry::BLANK }).map_err(|_| full)?;
        self.fifos.append(group, &mut By(&mut self.entries, entry_link), key.index);
        self.arrivals.push_back(&mut By(&mut self.entries, arrival_link), key.index);
        Ok(key)
    }

    pub(super) fn find(&self, selector: &Selector) -> Option<(Key, u32)> {
        if self.entries.is_empty() {
            return None;
        }
        let pattern = Pattern::of_selector(selector);
        let oldest = if pattern.is_exact() {
            self.fifos.group(self.fifos.find(self.fifos.bucket(&pattern), &pattern)?).oldest()
        } else {
            self.by_arrival().find(|&entry| pattern.takes(&self.pattern(entry)))?
        };
        Some((self.entries.key_at(oldest)?, self.entries.at(oldest).message))
    }

    pub(super) fn take(&mut self, key: Key) -> Option<u32> {
        let group = self.entries.get(key)?.group;
        self.fifos.detach(group, &mut By(&mut self.entries, entry_link), key.index);
        self.arrivals.unlink(&mut By(&mut self.entries, arrival_link), key.index);
        self.entries.remove(key).map(|entry| entry.message)
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = (Key, u32)> {
        self.by_arrival().filter_map(|entry| Some((self.entries.key_at(entry)?, self.entries.at(entry).message)))
    }

    pub(super) fn waiting_for(&self, selector: &Selector) -> impl Iterator<Item = (Key, u32)> {
        let pattern = Pattern::of_selector(selector);
        self.waiting().filter(move |(key, _)| pattern.takes(&self.pattern(key.index)))
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

    /// What the message of an entry is.
    fn pattern(&self, entry: u32) -> Pattern {
        self.fifos.group(self.entries.at(entry).group).pattern()
    }

    /// All that wait, oldest first.
    fn by_arrival(&self) -> impl Iterator<Item = u32> {
        let at = self.arrivals.head();
        let next = |&entry: &u32| Some(self.entries.at(entry).arrival.next()).filter(|&entry| entry != NONE);
        core::iter::successors(Some(at).filter(|&entry| entry != NONE), next)
    }
}

fn entry_link<'e>(entries: &'e mut Slab<'_, Entry>, index: u32) -> &'e mut Link {
    &mut entries.at_mut(index).link
}

fn arrival_link<'e>(entries: &'e mut Slab<'_, Entry>, index: u32) -> &'e mut Link {
    &mut entries.at_mut(index).arrival
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Slot;

    #[test]
    fn a_waiting_message_costs_96_bytes() {
        assert_eq!(size_of::<Slot<Entry>>(), 40);
        let (one, two) = (Unexpected::layout(Sizer::new(), 1, 1), Unexpected::layout(Sizer::new(), 2, 1));
        assert_eq!(two.bytes().unwrap() - one.bytes().unwrap(), 96);
    }
}
