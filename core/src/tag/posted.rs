//! Posted receives: tuple-space search over entries of one cache line each.
//!
//! A message can match receives of several shapes (source named or not, these or those bits ignored), but of each shape
//! it matches receives of one pattern only. So a lookup projects the message onto each shape in use, finds the receives
//! of that pattern by hash, and among the oldest of each takes the one posted first, by a number that counts posts.
//! Shapes beyond [`SHAPES_MAX`](super::SHAPES_MAX) have their entries aside, and each is looked at.
//!
//! Receives of one pattern stand in a queue (a *group*); its oldest entry is the group's head and stands in the chain of
//! its bucket. So a lookup looks at one entry of each group on the chain, however many equal receives are posted.
//!
//! An entry names an operation of the caller, or carries all that a plain receive needs ([`Direct`]): then no operation
//! exists until something unusual happens to it.
//!
//! Invariant: in a group, entries stand in the order of their numbers.

use super::MatchFull;
use super::pattern::Pattern;
use super::shapes::{SHAPES_MAX, Shapes};
use crate::endpoint::request::{Selector, TagMatch};
use crate::ids::{Cookie, Key, PeerId};
use crate::mem::{MemRef, RegionId, Seg};
use crate::store::{Arena, ArenaError, NONE, Sizer};

/// The shape number of entries that stand aside.
const ASIDE: u8 = SHAPES_MAX as u8;
/// Offsets of a direct receive are below this: they share a word with shape and state.
const OFFSET_END: u64 = 1 << 48;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Free,
    /// Posted; `recv` is the caller's.
    Named,
    /// Posted; everything is in the entry.
    Direct,
    /// A direct receive that has matched and lives on as operation `recv`, by the id of this entry.
    Promoted,
}

/// A plain receive: one piece, completion by event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// Where the payload goes.
    pub to: Seg,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

/// One posted receive: one line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Entry {
    /// The bits of the tag that matter.
    tag: u64,
    /// How many were posted before; 2^64 posts take longer than any machine stands.
    order: u64,
    cookie: Cookie,
    /// 48 bits of offset, 8 of shape, 8 of [`State`].
    offset: [u16; 3],
    shape: u8,
    state: State,
    /// The source, where it is named.
    source: u32,
    /// Bytes of a direct receive; else the caller's number.
    len: u32,
    region: RegionId,
    generation: u32,
    /// The next in the group, or in the list of free entries.
    next: u32,
    /// Of a head: the group before it in its bucket's chain. Else the one before it in its group.
    prev: u32,
    /// Of a head: the next group in the chain.
    chain: u32,
    /// Of a head: the last of its group.
    tail: u32,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    const BLANK: Entry = Entry {
        tag: 0,
        order: 0,
        cookie: Cookie(0),
        offset: [0; 3],
        shape: 0,
        state: State::Free,
        source: 0,
        len: 0,
        region: RegionId(0),
        generation: 1,
        next: NONE,
        prev: NONE,
        chain: NONE,
        tail: NONE,
    };

    #[inline]
    fn offset(&self) -> u64 {
        let [low, mid, high] = self.offset;
        u64::from(low) | u64::from(mid) << 16 | u64::from(high) << 32
    }

    #[inline]
    fn is_posted(&self) -> bool {
        matches!(self.state, State::Named | State::Direct)
    }

    #[inline]
    fn direct(&self) -> Direct {
        let at = MemRef { region: self.region, offset: self.offset() };
        Direct { to: Seg { at, len: self.len.into() }, cookie: self.cookie }
    }

    /// What stands for a posted receive outside.
    #[inline]
    fn recv(&self) -> u32 {
        if self.state == State::Direct { NONE } else { self.len }
    }
}

/// All posted receives.
pub(super) struct Posted<'m> {
    entries: &'m mut [Entry],
    /// The bits that entries aside ignore.
    ignores: &'m mut [u64],
    /// The first group of each bucket.
    buckets: &'m mut [u32],
    free: u32,
    count: u32,
    /// Direct receives among them.
    directs: u32,
    /// Entries that are not free.
    used: u32,
    /// Entries aside, in the order of posting: first and last.
    aside: (u32, u32),
    shapes: Shapes,
    /// Posts so far.
    posts: u64,
    /// Entries looked at.
    #[cfg(test)]
    steps: core::cell::Cell<u64>,
}

/// A walk over the posted receives.
#[derive(Clone, Copy, Debug)]
pub struct PostedWalk {
    at: u32,
}

impl<'m> Posted<'m> {
    pub(super) const fn layout(sizer: Sizer, posted_max: u32, buckets: u32) -> Sizer {
        let sizer = sizer.take::<Entry>(posted_max as usize).take::<u64>(posted_max as usize);
        sizer.take::<u32>(super::fifos::bucket_count(buckets))
    }

    pub(super) fn carve(arena: &mut Arena<'m>, posted_max: u32, buckets: u32) -> Result<Self, ArenaError> {
        let entries = arena.take_with(posted_max as usize, |i| Entry {
            next: if i + 1 == posted_max { NONE } else { i + 1 },
            ..Entry::BLANK
        })?;
        Ok(Posted {
            entries,
            ignores: arena.take(posted_max as usize, 0)?,
            buckets: arena.take(super::fifos::bucket_count(buckets), NONE)?,
            free: if posted_max == 0 { NONE } else { 0 },
            count: 0,
            directs: 0,
            used: 0,
            aside: (NONE, NONE),
            shapes: Shapes::new(),
            posts: 0,
            #[cfg(test)]
            steps: core::cell::Cell::new(0),
        })
    }

    /// Posts receive `recv` of the caller.
    pub(super) fn post(&mut self, selector: &Selector, recv: u32) -> Result<Key, MatchFull> {
        let mut entry = Entry { len: recv, state: State::Named, ..Entry::BLANK };
        self.insert(selector, &mut entry)
    }

    /// Posts a plain receive. `None`: there is no room, or its memory can't be named in an entry.
    #[inline]
    pub(super) fn post_direct(&mut self, selector: &Selector, recv: &Direct) -> Option<Key> {
        let Seg { at: MemRef { region, offset }, len } = recv.to;
        if offset >= OFFSET_END || len > u32::MAX.into() {
            return None;
        }
        let offset = [offset as u16, (offset >> 16) as u16, (offset >> 32) as u16];
        let mut entry =
            Entry { len: len as u32, region, offset, cookie: recv.cookie, state: State::Direct, ..Entry::BLANK };
        let key = self.insert(selector, &mut entry).ok()?;
        self.directs += 1;
        Some(key)
    }

    #[inline]
    fn insert(&mut self, selector: &Selector, entry: &mut Entry) -> Result<Key, MatchFull> {
        let index = self.free;
        let Some(slot) = self.entries.get(index as usize) else {
            return Err(MatchFull::Posted { max: self.entries.len() as u32 });
        };
        let pattern = Pattern::of_selector(selector);
        entry.generation = slot.generation;
        (entry.tag, entry.source, entry.order) = (pattern.tag, pattern.source, self.posts);
        self.free = slot.next;
        self.posts += 1;
        self.count += 1;
        self.used += 1;
        let Some(shape) = self.shapes.place_for(pattern.shape()) else {
            self.insert_aside(index, entry, &pattern);
            return Ok(Key { index, generation: entry.generation });
        };
        entry.shape = shape;
        let bucket = self.bucket(&pattern);
        let head = self.find_group(bucket, &pattern, shape);
        if head == NONE {
            self.shapes.hold(shape, pattern.shape());
            entry.tail = index;
            let first = core::mem::replace(&mut self.buckets[bucket], index);
            entry.chain = first;
            if first != NONE {
                self.entries[first as usize].prev = index;
            }
        } else {
            let last = core::mem::replace(&mut self.entries[head as usize].tail, index);
            self.entries[last as usize].next = index;
            entry.prev = last;
        }
        self.entries[index as usize] = *entry;
        Ok(Key { index, generation: entry.generation })
    }

    #[cold]
    fn insert_aside(&mut self, index: u32, entry: &mut Entry, pattern: &Pattern) {
        // The shape's other facts: whether the source is named, and the domain.
        entry.shape = ASIDE | u8::from(pattern.exact) << 6 | u8::from(pattern.tagged) << 7;
        entry.prev = self.aside.1;
        self.ignores[index as usize] = pattern.ignore;
        match self.aside.1 {
            NONE => self.aside.0 = index,
            last => self.entries[last as usize].next = index,
        }
        self.aside.1 = index;
        self.entries[index as usize] = *entry;
    }

    /// The pattern of an entry.
    fn pattern(&self, index: u32) -> Pattern {
        let Entry { tag, source, shape, .. } = self.entries[index as usize];
        if is_aside(shape) {
            let ignore = self.ignores[index as usize];
            return Pattern { tag, ignore, source, exact: shape & 1 << 6 != 0, tagged: shape & 1 << 7 != 0 };
        }
        self.shapes.at(shape).pattern(tag, source)
    }

    #[inline]
    fn bucket(&self, pattern: &Pattern) -> usize {
        pattern.hash() as usize & (self.buckets.len() - 1)
    }

    /// The head of the group of a pattern, or [`NONE`].
    #[inline]
    fn find_group(&self, bucket: usize, pattern: &Pattern, shape: u8) -> u32 {
        let mut at = self.buckets[bucket];
        while at != NONE {
            #[cfg(test)]
            self.steps.set(self.steps.get() + 1);
            let head = &self.entries[at as usize];
            if head.tag == pattern.tag && head.source == pattern.source && head.shape == shape {
                break;
            }
            at = head.chain;
        }
        at
    }

    pub(super) fn get(&self, key: Key) -> Option<u32> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.is_posted() && entry.generation == key.generation).then(|| entry.recv())
    }

    pub(super) fn unpost(&mut self, key: Key) -> Option<u32> {
        let recv = self.get(key)?;
        self.take_out(key.index);
        self.free_entry(key.index);
        Some(recv)
    }

    /// Takes a direct receive out of matching and lets it live on as operation `op`, by the same key.
    pub(super) fn promote(&mut self, key: Key, op: u32) -> Option<Direct> {
        let entry = *self.entries.get(key.index as usize)?;
        if entry.state != State::Direct || entry.generation != key.generation {
            return None;
        }
        self.take_out(key.index);
        let slot = &mut self.entries[key.index as usize];
        (slot.state, slot.len) = (State::Promoted, op);
        Some(entry.direct())
    }

    /// Whether a key names a direct receive that lives on as an operation.
    pub(super) fn promoted(&self, key: Key) -> Option<u32> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.state == State::Promoted && entry.generation == key.generation).then_some(entry.len)
    }

    /// The operation that a direct receive became is over: its key names nothing from now on.
    pub(super) fn end_promoted(&mut self, key: Key) {
        if self.promoted(key).is_some() {
            self.free_entry(key.index);
        }
    }

    #[inline]
    fn free_entry(&mut self, index: u32) {
        let slot = &mut self.entries[index as usize];
        slot.state = State::Free;
        // Zero is never used, so an all-zero id from outside names nothing.
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.next = self.free;
        self.free = index;
        self.used -= 1;
    }

    /// Takes an entry out of its group.
    #[inline]
    fn take_out(&mut self, index: u32) {
        self.count -= 1;
        let Entry { next, prev, chain, tail, shape, tag, source, state, .. } = self.entries[index as usize];
        self.directs -= u32::from(state == State::Direct);
        if is_aside(shape) {
            self.take_out_aside(prev, next);
            return;
        }
        if tail == NONE {
            // Not the head.
            self.entries[prev as usize].next = next;
            if next == NONE {
                let pattern = self.shapes.at(shape).pattern(tag, source);
                let head = self.find_group(self.bucket(&pattern), &pattern, shape);
                self.entries[head as usize].tail = prev;
            } else {
                self.entries[next as usize].prev = prev;
            }
            return;
        }
        // The next one takes its place in the chain.
        let stands = if next == NONE {
            self.shapes.release(shape);
            chain
        } else {
            let head = &mut self.entries[next as usize];
            (head.prev, head.chain, head.tail) = (prev, chain, tail);
            next
        };
        if prev != NONE {
            self.entries[prev as usize].chain = stands;
        } else {
            let bucket = self.bucket(&self.shapes.at(shape).pattern(tag, source));
            self.buckets[bucket] = stands;
        }
        if chain != NONE {
            self.entries[chain as usize].prev = if next == NONE { prev } else { next };
        }
    }

    #[cold]
    fn take_out_aside(&mut self, prev: u32, next: u32) {
        match prev {
            NONE => self.aside.0 = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NONE => self.aside.1 = prev,
            next => self.entries[next as usize].prev = prev,
        }
    }

    /// The oldest receive that takes a message.
    #[inline]
    fn find_index(&self, source: PeerId, tag: Option<u64>) -> u32 {
        let message = Pattern::of_message(source, tag);
        let (mut first, mut oldest) = (u64::MAX, NONE);
        for (place, shape) in self.shapes.active() {
            if let Some(pattern) = shape.project(&message) {
                let head = self.find_group(self.bucket(&pattern), &pattern, place);
                if head != NONE && self.entries[head as usize].order < first {
                    (first, oldest) = (self.entries[head as usize].order, head);
                }
            }
        }
        if self.aside.0 == NONE { oldest } else { self.find_aside(&message, first, oldest) }
    }

    #[cold]
    fn find_aside(&self, message: &Pattern, first: u64, oldest: u32) -> u32 {
        let mut at = self.aside.0;
        while at != NONE && self.entries[at as usize].order < first {
            #[cfg(test)]
            self.steps.set(self.steps.get() + 1);
            if self.pattern(at).takes(message) {
                return at;
            }
            at = self.entries[at as usize].next;
        }
        oldest
    }

    pub(super) fn find(&self, source: PeerId, tag: Option<u64>) -> Option<(Key, u32)> {
        if self.count == 0 {
            return None;
        }
        let index = self.find_index(source, tag);
        let entry = self.entries.get(index as usize)?;
        Some((Key { index, generation: entry.generation }, entry.recv()))
    }

    /// Takes the receive of a whole message of `len` bytes out, where it is a direct one with room for all of them.
    #[inline]
    pub(super) fn take_direct(&mut self, source: PeerId, tag: Option<u64>, len: u32) -> Option<(Key, Direct)> {
        let index = self.find_index(source, tag);
        let entry = self.entries.get(index as usize)?;
        if entry.state != State::Direct || entry.len < len {
            return None;
        }
        let found = (Key { index, generation: entry.generation }, entry.direct());
        self.take_out(index);
        self.free_entry(index);
        Some(found)
    }

    /// The direct receive that a key names, if it is posted.
    pub(super) fn direct(&self, key: Key) -> Option<Direct> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.state == State::Direct && entry.generation == key.generation).then(|| entry.direct())
    }

    /// All direct receives that are posted.
    pub(super) fn directs(&self) -> impl Iterator<Item = (Key, Direct)> {
        let used = if self.count == 0 { 0 } else { self.entries.len() };
        self.entries[..used]
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.state == State::Direct)
            .map(|(index, entry)| (Key { index: index as u32, generation: entry.generation }, entry.direct()))
    }

    pub(super) const fn walk(&self) -> PostedWalk {
        PostedWalk { at: if self.count == 0 { u32::MAX } else { 0 } }
    }

    fn step(&self, walk: &mut PostedWalk) -> Option<(u32, Pattern)> {
        let ahead = self.entries.get(walk.at as usize..)?.iter().position(Entry::is_posted)?;
        let index = walk.at + ahead as u32;
        walk.at = index + 1;
        Some((index, self.pattern(index)))
    }

    pub(super) fn next_of(&self, source: PeerId, walk: &mut PostedWalk) -> Option<(Key, u32)> {
        while let Some((index, pattern)) = self.step(walk) {
            if pattern.exact && pattern.source == source.0 {
                let entry = &self.entries[index as usize];
                return Some((Key { index, generation: entry.generation }, entry.recv()));
            }
        }
        None
    }

    pub(super) fn next_source(&self, walk: &mut PostedWalk) -> Option<PeerId> {
        while let Some((_, pattern)) = self.step(walk) {
            if pattern.exact {
                return Some(PeerId(pattern.source));
            }
        }
        None
    }

    /// What a posted direct receive takes.
    pub(super) fn selector(&self, key: Key) -> Option<Selector> {
        self.direct(key)?;
        let Pattern { tag, ignore, source, exact, tagged } = self.pattern(key.index);
        let tag = if tagged { TagMatch::Tagged { tag, ignore } } else { TagMatch::Untagged };
        Some(Selector { source: exact.then_some(PeerId(source)), tag })
    }

    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    pub(super) const fn direct_count(&self) -> u32 {
        self.directs
    }

    pub(super) const fn room(&self) -> u32 {
        self.entries.len() as u32 - self.used
    }

    /// Entries looked at so far.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }
}

#[inline]
const fn is_aside(shape: u8) -> bool {
    shape & 0x3f == ASIDE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_posted_receive_costs_72_bytes() {
        let (one, two) = (Posted::layout(Sizer::new(), 8, 1), Posted::layout(Sizer::new(), 16, 1));
        assert_eq!(two.bytes().unwrap() - one.bytes().unwrap(), 8 * 72);
    }
}
