//! Unexpected messages: each is in the queue of all waiting messages, in order of arrival, and in the group
//! of those with its source and tag. A receive that names both finds its group by hash; one with a wildcard
//! walks the queue of all, oldest first, and stops at the first match.
//!
//! An entry is one cache line. Groups are as those of posted receives (`posted`): the oldest entry is the
//! group's head and is in the chain of its bucket, so that a thousand messages of one kind cost a look-up of
//! another kind one step.

use super::MatchFull;
use super::pattern::{HASH_BITS, Pattern, hash};
use super::posted::bucket_count;
use crate::api::request::{Selector, TagMatch};
use crate::ids::{Key, PeerId};
use crate::store::{Arena, ArenaError, NONE};

/// One waiting message.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Entry {
    /// The tag, or 0 where there is none.
    tag: u64,
    source: u32,
    tagged: bool,
    /// A message waits here; else the entry is free.
    waits: bool,
    message: u32,
    generation: u32,
    /// Neighbours in order of arrival.
    older: u32,
    newer: u32,
    /// The next in the group, or in the list of free entries.
    next: u32,
    /// Of a head: the group before it in its bucket's chain. Else the one before it in its group.
    prev: u32,
    /// Of a head: the next group in the chain.
    chain: u32,
    /// Of a head: the last of its group. Else [`NONE`].
    tail: u32,
    bucket: u32,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    const BLANK: Entry = Entry {
        tag: 0,
        source: 0,
        tagged: false,
        waits: false,
        message: 0,
        generation: 1,
        older: NONE,
        newer: NONE,
        next: NONE,
        prev: NONE,
        chain: NONE,
        tail: NONE,
        bucket: 0,
    };

    /// What the message is.
    #[inline(always)]
    fn pattern(&self) -> Pattern {
        let Entry { tag, source, tagged, .. } = *self;
        Pattern { tag, ignore: 0, source, exact: true, tagged }
    }

    /// Whether the message has exactly these.
    #[inline(always)]
    fn is(&self, pattern: &Pattern) -> bool {
        self.tag == pattern.tag && self.source == pattern.source && self.tagged == pattern.tagged
    }
}

/// All waiting messages.
pub struct Unexpected<'m> {
    entries: &'m mut [Entry],
    /// The first group of each bucket.
    buckets: &'m mut [u32],
    /// A hash shifted right by this is a bucket.
    shift: u32,
    free: u32,
    len: u32,
    /// First and last in order of arrival.
    oldest: u32,
    newest: u32,
    /// Groups looked at.
    #[cfg(test)]
    steps: core::cell::Cell<u64>,
}

impl<'m> Unexpected<'m> {
    pub(super) fn carve(arena: &mut Arena<'m>, unexpected_max: u32, buckets: u32) -> Result<Self, ArenaError> {
        let entries = arena.take_with(unexpected_max as usize, |i| Entry {
            next: if i + 1 == unexpected_max { NONE } else { i + 1 },
            ..Entry::BLANK
        })?;
        let buckets = arena.take(bucket_count(buckets), NONE)?;
        Ok(Unexpected {
            entries,
            shift: HASH_BITS - buckets.len().trailing_zeros(),
            buckets,
            free: if unexpected_max == 0 { NONE } else { 0 },
            len: 0,
            oldest: NONE,
            newest: NONE,
            #[cfg(test)]
            steps: core::cell::Cell::new(0),
        })
    }

    /// Lets `message` from `source` with `tag` (`None`: untagged) wait, behind all that wait.
    #[inline(always)]
    pub fn store(&mut self, source: PeerId, tag: Option<u64>, message: u32) -> Result<Key, MatchFull> {
        let (index, last) = (self.free, self.newest);
        let max = self.entries.len() as u32;
        let Some(entry) = self.entries.get_mut(index as usize) else { return Err(MatchFull::Unexpected { max }) };
        self.free = entry.next;
        (entry.tag, entry.source, entry.tagged) = (tag.unwrap_or(0), source.0, tag.is_some());
        (entry.waits, entry.message) = (true, message);
        (entry.older, entry.newer) = (last, NONE);
        (entry.next, entry.prev, entry.chain, entry.tail) = (NONE, NONE, NONE, index);
        let bucket = (hash(entry.tag, entry.source) >> self.shift) as usize;
        entry.bucket = bucket as u32;
        let key = Key { index, generation: entry.generation };
        self.len += 1;
        self.newest = index;
        match self.entries.get_mut(last as usize) {
            Some(last) => last.newer = index,
            None => self.oldest = index,
        }
        if self.buckets[bucket] == NONE {
            self.buckets[bucket] = index;
            return Ok(key);
        }
        self.join(key, bucket)
    }

    /// Appends an entry to the group of its pattern, or starts a new group at the beginning of a chain.
    #[inline(never)]
    fn join(&mut self, key: Key, bucket: usize) -> Result<Key, MatchFull> {
        let Key { index, .. } = key;
        let head = self.find_group(bucket, &self.entries[index as usize].pattern());
        if head == NONE {
            let first = core::mem::replace(&mut self.buckets[bucket], index);
            self.entries[first as usize].prev = index;
            self.entries[index as usize].chain = first;
        } else {
            let last = core::mem::replace(&mut self.entries[head as usize].tail, index);
            self.entries[last as usize].next = index;
            let entry = &mut self.entries[index as usize];
            (entry.prev, entry.tail) = (last, NONE);
        }
        Ok(key)
    }

    #[inline(always)]
    fn bucket(&self, tag: u64, source: u32) -> usize {
        (hash(tag, source) >> self.shift) as usize
    }

    /// The head of the group of a pattern, or [`NONE`].
    #[inline(always)]
    fn find_group(&self, bucket: usize, pattern: &Pattern) -> u32 {
        let mut at = self.buckets[bucket];
        while let Some(head) = self.entries.get(at as usize) {
            #[cfg(test)]
            self.steps.set(self.steps.get() + 1);
            if head.is(pattern) {
                break;
            }
            at = head.chain;
        }
        at
    }

    /// The oldest waiting message that `selector` takes. It stays.
    #[inline(always)]
    pub fn find(&self, selector: &Selector) -> Option<(Key, u32)> {
        if self.len == 0 {
            return None;
        }
        match (selector.source, selector.tag) {
            // Only messages that look all the same can match.
            (Some(source), TagMatch::Tagged { tag, ignore: 0 }) => {
                let pattern = Pattern::of_message(source, Some(tag));
                self.found(self.find_group(self.bucket(tag, source.0), &pattern))
            }
            _ => self.find_oldest(selector),
        }
    }

    /// The oldest one that `selector` takes.
    #[inline(never)]
    fn find_oldest(&self, selector: &Selector) -> Option<(Key, u32)> {
        let pattern = Pattern::of_selector(selector);
        if pattern.is_exact() {
            return self.found(self.find_group(self.bucket(pattern.tag, pattern.source), &pattern));
        }
        let mut index = self.oldest;
        while let Some(entry) = self.entries.get(index as usize)
            && !pattern.takes(&entry.pattern())
        {
            index = entry.newer;
        }
        self.found(index)
    }

    #[inline(always)]
    fn found(&self, index: u32) -> Option<(Key, u32)> {
        let entry = self.entries.get(index as usize)?;
        Some((Key { index, generation: entry.generation }, entry.message))
    }

    /// Takes a waiting message out. `None` where the key is invalid.
    #[inline]
    pub fn take(&mut self, key: Key) -> Option<u32> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if !entry.waits || entry.generation != key.generation {
            return None;
        }
        let Entry { older, newer, message, .. } = *entry;
        match self.entries.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        let entry = &mut self.entries[key.index as usize];
        entry.waits = false;
        // Never 0, as generations are odd: an all-zero key is invalid.
        entry.generation = entry.generation.wrapping_add(2);
        self.len -= 1;
        if entry.next == NONE && entry.prev == NONE && entry.chain == NONE {
            // Nothing else is in the bucket.
            self.buckets[entry.bucket as usize] = NONE;
        } else {
            self.detach(key.index);
        }
        self.entries[key.index as usize].next = core::mem::replace(&mut self.free, key.index);
        Some(message)
    }

    /// Takes an entry out of its group.
    #[inline(never)]
    fn detach(&mut self, index: u32) {
        let entry = self.entries[index as usize];
        let Entry { next, prev, chain, tail, .. } = entry;
        let bucket = entry.bucket as usize;
        if tail == NONE {
            // Not the oldest of its group.
            self.entries[prev as usize].next = next;
            if next == NONE {
                let head = self.find_group(bucket, &entry.pattern());
                self.entries[head as usize].tail = prev;
            } else {
                self.entries[next as usize].prev = prev;
            }
            return;
        }
        // The next one takes its place in the chain.
        let mut follower = chain;
        if next != NONE {
            let head = &mut self.entries[next as usize];
            (head.prev, head.chain, head.tail) = (prev, chain, tail);
            follower = next;
        }
        match prev {
            NONE => self.buckets[bucket] = follower,
            prev => self.entries[prev as usize].chain = follower,
        }
        if chain != NONE {
            self.entries[chain as usize].prev = if next == NONE { prev } else { next };
        }
    }

    /// All waiting messages, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = (Key, u32)> {
        self.by_arrival().map(|(key, entry)| (key, entry.message))
    }

    /// The waiting messages that `selector` takes, oldest first.
    pub fn waiting_for(&self, selector: &Selector) -> impl Iterator<Item = (Key, u32)> {
        let pattern = Pattern::of_selector(selector);
        let taken = self.by_arrival().filter(move |(_, entry)| pattern.takes(&entry.pattern()));
        taken.map(|(key, entry)| (key, entry.message))
    }

    /// How many messages wait.
    pub const fn count(&self) -> u32 {
        self.len
    }

    /// How many more messages may wait.
    pub const fn room(&self) -> u32 {
        self.entries.len() as u32 - self.len
    }

    /// Groups looked at so far.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// All that wait, oldest first.
    fn by_arrival(&self) -> impl Iterator<Item = (Key, &Entry)> {
        let mut index = self.oldest;
        core::iter::from_fn(move || {
            let entry = self.entries.get(index as usize)?;
            let key = Key { index, generation: entry.generation };
            index = entry.newer;
            Some((key, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_message_costs_64_bytes() {
        let bytes = |unexpected_max| Arena::bytes_of(|arena| Unexpected::carve(arena, unexpected_max, 1)).unwrap();
        assert_eq!(bytes(16) - bytes(8), 8 * 64);
    }
}
