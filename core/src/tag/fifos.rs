//! Queues found by pattern: a hash table of *groups*, each the first-in first-out queue of all entries of one
//! pattern.
//!
//! Grouping keeps a chain as long as there are different patterns in its bucket: a thousand receives for one
//! tag cost a lookup of another tag one step. Invariants: a group is never empty; a pattern has at most one
//! group. There are as many groups as entries, so that a group can be had whenever an entry can.

use super::pattern::{HASH_BITS, Pattern, hash};
use crate::store::list::By;
use crate::store::{Arena, ArenaError, Link, Links, List, NONE, Sizer, Slab};

/// The queue of one pattern. The pattern's fields are spread out here, which saves the padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    tag: u64,
    ignore: u64,
    source: u32,
    /// The entries, oldest first, by a link that stands in the entry.
    members: List,
    /// Neighbours in the bucket.
    chain: Link,
    exact: bool,
    tagged: bool,
}

impl Group {
    const BLANK: Group = Group {
        tag: 0,
        ignore: 0,
        source: 0,
        members: List::EMPTY,
        chain: Link::UNLINKED,
        exact: false,
        tagged: false,
    };

    /// What its entries ask for or are.
    pub(super) const fn pattern(&self) -> Pattern {
        let Group { tag, ignore, source, exact, tagged, .. } = *self;
        Pattern { tag, ignore, source, exact, tagged }
    }

    /// Its oldest entry.
    pub(super) const fn oldest(&self) -> u32 {
        self.members.head()
    }
}

/// All groups of one table.
pub(super) struct Fifos<'m> {
    /// A power of two of chains.
    buckets: &'m mut [List],
    groups: Slab<'m, Group>,
    /// Groups looked at so far.
    #[cfg(test)]
    pub(super) steps: core::cell::Cell<u64>,
}

impl<'m> Fifos<'m> {
    /// What [`carve`](Self::carve) will take.
    pub(super) const fn layout(sizer: Sizer, groups_max: u32, buckets: u32) -> Sizer {
        Slab::<Group>::layout(sizer.take::<List>(bucket_count(buckets)), groups_max)
    }

    pub(super) fn carve(arena: &mut Arena<'m>, groups_max: u32, buckets: u32) -> Result<Self, ArenaError> {
        Ok(Fifos {
            buckets: arena.take(bucket_count(buckets), List::EMPTY)?,
            groups: Slab::carve(arena, groups_max, Group::BLANK)?,
            #[cfg(test)]
            steps: core::cell::Cell::new(0),
        })
    }

    /// The group at an index that [`find`](Self::find) or [`open`](Self::open) gave.
    pub(super) fn group(&self, index: u32) -> &Group {
        self.groups.at(index)
    }

    /// The group of `pattern` in its bucket ([`bucket`](Self::bucket)).
    #[inline]
    pub(super) fn find(&self, bucket: usize, pattern: &Pattern) -> Option<u32> {
        self.chain(&self.buckets[bucket]).find(|&group| self.groups.at(group).pattern() == *pattern)
    }

    /// A new group with its first entry to be appended at once, in the bucket of its pattern; `None` where
    /// there are no more groups.
    #[inline]
    pub(super) fn open(&mut self, bucket: usize, pattern: &Pattern) -> Option<u32> {
        let Pattern { tag, ignore, source, exact, tagged } = *pattern;
        let group = Group { tag, ignore, source, exact, tagged, ..Group::BLANK };
        let index = self.groups.insert(group).ok()?.index;
        self.buckets[bucket].push_back(&mut By(&mut self.groups, chain_link), index);
        Some(index)
    }

    /// Puts `entry` behind the others of its group.
    pub(super) fn append(&mut self, group: u32, links: &mut impl Links, entry: u32) {
        self.groups.at_mut(group).members.push_back(links, entry);
    }

    /// Takes `entry` out of its group; the group ends with its last entry.
    #[inline]
    pub(super) fn detach(&mut self, group: u32, links: &mut impl Links, entry: u32) {
        let slot = self.groups.at_mut(group);
        slot.members.unlink(links, entry);
        if !slot.members.is_empty() {
            return;
        }
        let pattern = slot.pattern();
        let bucket = self.bucket(&pattern);
        self.buckets[bucket].unlink(&mut By(&mut self.groups, chain_link), group);
        self.groups.remove_at(group);
    }

    /// Where groups of a pattern are.
    #[inline]
    pub(super) fn bucket(&self, pattern: &Pattern) -> usize {
        (hash(pattern.tag, pattern.source) >> (HASH_BITS - self.buckets.len().trailing_zeros())) as usize
    }

    /// The groups of one chain.
    fn chain(&self, list: &List) -> impl Iterator<Item = u32> {
        let mut at = list.head();
        core::iter::from_fn(move || {
            let group = at;
            if group == NONE {
                return None;
            }
            #[cfg(test)]
            self.steps.set(self.steps.get() + 1);
            at = self.groups.at(group).chain.next();
            Some(group)
        })
    }
}

fn chain_link<'g>(groups: &'g mut Slab<'_, Group>, index: u32) -> &'g mut Link {
    &mut groups.at_mut(index).chain
}

/// A power of two, so that a mask finds the bucket.
pub(super) const fn bucket_count(buckets: u32) -> usize {
    match buckets.checked_next_power_of_two() {
        // A number of no bits can't be cut out of a hash.
        Some(..2) => 2,
        Some(count) => count as usize,
        None => 1 << 31,
    }
}
