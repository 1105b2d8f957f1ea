//! Posted receives: tuple-space search over entries of one cache line each.
//!
//! A message can match receives of several shapes (source named or not, these or those bits ignored), but of
//! each shape it matches receives of one pattern only. So a lookup projects the message onto each shape in
//! use, finds the receives of that pattern by hash, and among the oldest of each takes the one posted first,
//! by a number that counts posts. Shapes beyond [`SHAPES_MAX`](super::SHAPES_MAX) have their entries aside,
//! and each is looked at.
//!
//! Receives of one pattern form a queue (a *group*); its oldest entry is the group's head and is in the chain
//! of its bucket. So a lookup looks at one entry of each group on the chain, however many equal receives are
//! posted.
//!
//! Plain tagged receives of one pattern stand beside the table (`alone`) as long as no tagged one of another
//! kind or pattern is posted.
//!
//! An entry names an operation of the caller, or carries all that a plain receive needs ([`Direct`]): then no
//! operation exists until something unusual happens to it.
//!
//! Invariant: in a group, entries stand in the order of their numbers.

use super::MatchFull;
use super::alone::Alone;
use super::entry::{
    ADDRESS, ASIDE, BESIDE, Direct, Entry, OFFSET_END, PLACES, PLAIN, Plain, SHAPE_AT, State, Taken, is_aside,
};
use super::pattern::{Pattern, Shape, hash};
use super::shapes::Shapes;
use crate::api::request::{Selector, TagMatch};
use crate::ids::{Cookie, Key, PeerId};
use crate::mem::{MemRef, RegionId, Seg};
use crate::store::{Arena, ArenaError, NONE};

/// Of the shape of an entry aside: it is tagged.
const ASIDE_TAGGED: u8 = 1 << 7;

/// All posted receives. What most messages read comes first, in one line of the cache.
#[repr(C, align(64))]
pub struct Posted<'m> {
    entries: &'m mut [Entry],
    /// Those beside the table.
    alone: Alone,
    free: u32,
    /// Posted receives that have no operation, and those that name one.
    directs: u32,
    named: u32,
    /// Tagged receives that are posted; one more while messages are not to be matched quickly.
    tagged: u32,
    /// The first group of each bucket.
    buckets: &'m mut [u32],
    /// Posts so far.
    posts: u64,
    /// A hash shifted right by this is a bucket.
    shift: u32,
    shapes: Shapes,
    /// The bits that entries aside ignore.
    ignores: &'m mut [u64],
    /// Entries that live on for operations.
    promoted: u32,
    /// Entries aside, in the order of posting: first and last.
    aside: (u32, u32),
    /// Entries looked at.
    #[cfg(test)]
    steps: core::cell::Cell<u64>,
}

const _: () = assert!(core::mem::offset_of!(Posted<'static>, buckets) == 64);

/// What a message finds among the posted receives.
#[derive(Debug)]
pub enum Match<'a> {
    /// A direct receive with room for all of it, which is taken.
    Direct(Taken<'a>),
    /// A receive of another kind, or one that is too short; it stays posted.
    Other,
    /// No receive takes it.
    NoReceive,
}

/// A walk over the posted receives.
#[derive(Clone, Copy, Debug)]
pub struct PostedWalk {
    at: u32,
    /// Receives not looked at: it ends behind the last one.
    left: u32,
}

impl<'m> Posted<'m> {
    pub(super) fn carve(arena: &mut Arena<'m>, posted_max: u32, buckets: u32) -> Result<Self, ArenaError> {
        let entries = arena.take_with(posted_max as usize, |i| Entry {
            next: if i + 1 == posted_max { NONE } else { i + 1 },
            tail: i,
            ..Entry::BLANK
        })?;
        let ignores = arena.take(posted_max as usize, 0)?;
        let buckets = arena.take(bucket_count(buckets), NONE)?;
        Ok(Posted {
            entries,
            ignores,
            shift: super::pattern::HASH_BITS - buckets.len().trailing_zeros(),
            buckets,
            free: if posted_max == 0 { NONE } else { 0 },
            named: 0,
            directs: 0,
            promoted: 0,
            aside: (NONE, NONE),
            shapes: Shapes::new(),
            alone: Alone::NO_RECEIVE,
            tagged: 0,
            posts: 0,
            #[cfg(test)]
            steps: core::cell::Cell::new(0),
        })
    }

    /// Posts receive `recv` of the caller for the messages that `selector` takes, behind all that are posted.
    pub fn post(&mut self, selector: &Selector, recv: u32) -> Result<Key, MatchFull> {
        let max = self.entries.len() as u32;
        let named = Entry { len: recv, what: Entry::what(0, 0, State::Named), ..Entry::BLANK };
        let key = self.insert(selector, &named).ok_or(MatchFull::Posted { max })?;
        self.named += 1;
        Ok(key)
    }

    /// Posts a plain receive that has no operation, behind all that are posted. `None`: there is no room, or
    /// its memory can't be named in an entry.
    #[inline(always)]
    pub fn post_direct(&mut self, selector: &Selector, recv: &Direct) -> Option<Key> {
        let Seg { at: MemRef { region, offset }, len } = recv.to;
        // The bit stands where it is, beside the shape.
        const { assert!(MemRef::BY_ADDRESS == ADDRESS << SHAPE_AT) };
        if offset & !((OFFSET_END - 1) | MemRef::BY_ADDRESS) != 0 || len > u32::MAX.into() {
            return None;
        }
        let key = match selector.tag {
            TagMatch::Tagged { tag, ignore } if self.tagged == 0 => {
                self.alone = Alone { last: self.alone.last, ..Alone::of(selector.source, tag, ignore, self.free) };
                let key = self.post_first(&Self::direct_entry(region, offset, len as u32, recv.cookie))?;
                self.tagged = 1;
                key
            }
            TagMatch::Tagged { tag, ignore } if self.alone.takes_like(selector.source, tag, ignore) => {
                self.stand_behind(&Self::direct_entry(region, offset, len as u32, recv.cookie))?
            }
            _ => return self.insert_direct(selector, region, offset, len as u32, recv.cookie),
        };
        self.directs += 1;
        Some(key)
    }

    #[inline(always)]
    fn direct_entry(region: RegionId, offset: u64, len: u32, cookie: Cookie) -> Entry {
        Entry { what: Entry::what(offset, 0, State::Direct), region, len, cookie, ..Entry::BLANK }
    }

    /// The rest of [`post_direct`](Self::post_direct): a function of its own, with what fits into registers,
    /// so that all before it saves few.
    #[inline(never)]
    fn insert_direct(
        &mut self,
        selector: &Selector,
        region: RegionId,
        offset: u64,
        len: u32,
        cookie: Cookie,
    ) -> Option<Key> {
        let key = self.insert(selector, &Self::direct_entry(region, offset, len, cookie))?;
        self.directs += 1;
        Some(key)
    }

    /// A new entry beside the table, as [`insert`](Self::insert).
    #[inline(always)]
    fn post_first(&mut self, new: &Entry) -> Option<Key> {
        let index = self.free;
        let entry = self.entries.get_mut(index as usize)?;
        self.free = entry.next;
        (entry.region, entry.len, entry.cookie) = (new.region, new.len, new.cookie);
        (entry.what, entry.next) = (new.what | u64::from(BESIDE) << SHAPE_AT, NONE);
        Some(entry.name(index))
    }

    /// The same behind those that are there.
    #[inline(always)]
    fn stand_behind(&mut self, new: &Entry) -> Option<Key> {
        let key = self.post_first(new)?;
        let index = key.index;
        let last = if self.tagged == 1 { self.alone.first } else { self.alone.last };
        self.entries.get_mut(last as usize)?.next = index;
        self.alone.last = index;
        self.tagged += 1;
        Some(key)
    }

    /// Those beside the table go into it.
    #[cold]
    fn link_alone(&mut self) {
        let Alone { tag, source, first, .. } = self.alone;
        let shape = self.alone.shape();
        self.alone = Alone::NO_RECEIVE;
        let mut index = first;
        while let Some(entry) = self.entries.get_mut(index as usize) {
            let next = core::mem::replace(&mut entry.next, NONE);
            (entry.tag, entry.source, entry.order) = (tag, source, self.posts);
            self.posts += 1;
            self.join(index, shape);
            index = next;
        }
    }

    /// Appends a new entry with the contents of `new` to the group of its pattern. `None`: all are taken.
    #[inline(always)]
    fn insert(&mut self, selector: &Selector, new: &Entry) -> Option<Key> {
        if self.alone.first != NONE {
            self.link_alone();
        }
        let index = self.free;
        let entry = self.entries.get_mut(index as usize)?;
        let (tag, source, shape) = Shape::split(selector);
        let sole = self.shapes.sole(shape.tagged());
        self.free = core::mem::replace(&mut entry.next, NONE);
        (entry.region, entry.len, entry.cookie) = (new.region, new.len, new.cookie);
        (entry.tag, entry.source, entry.order) = (tag, source, self.posts);
        // Where there is no such shape, `join` sets the place.
        entry.what = new.what | (sole.at() & PLACES) << SHAPE_AT;
        self.posts += 1;
        self.tagged += u32::from(shape.tagged());
        let key = entry.name(index);
        let bucket = self.buckets.get_mut((hash(tag, source) >> self.shift) as usize);
        match bucket {
            Some(first) if *first == NONE && sole.shape == shape => {
                *first = index;
                self.shapes.hold(sole.at() as u8);
            }
            _ => self.join(index, shape),
        }
        Some(key)
    }

    /// Appends an entry to the group of its pattern, or starts a new group at the beginning of a chain; or
    /// puts it aside, if there are too many shapes.
    #[inline(never)]
    fn join(&mut self, index: u32, shape: Shape) {
        let Some(place) = self.shapes.place_for(shape) else { return self.put_aside(index, shape) };
        let Entry { tag, source, .. } = self.entries[index as usize];
        let bucket = self.bucket(tag, source);
        self.entries[index as usize].set_shape(place);
        let head = self.find_group(bucket, tag, source, place);
        if head == NONE {
            self.shapes.hold(place);
            let first = core::mem::replace(&mut self.buckets[bucket], index);
            if first != NONE {
                self.entries[first as usize].prev = index;
            }
            self.entries[index as usize].chain = first;
        } else {
            let last = core::mem::replace(&mut self.entries[head as usize].tail, index);
            self.entries[last as usize].next = index;
            let entry = &mut self.entries[index as usize];
            (entry.prev, entry.tail) = (last, NONE);
        }
    }

    #[cold]
    fn put_aside(&mut self, index: u32, shape: Shape) {
        let pattern = shape.pattern(0, 0);
        let slot = &mut self.entries[index as usize];
        // The shape's other facts: whether the source is named, and the domain.
        let tagged = if pattern.tagged { ASIDE_TAGGED } else { 0 };
        slot.set_shape(ASIDE | u8::from(pattern.exact) << 6 | tagged);
        (slot.prev, slot.tail, slot.chain) = (self.aside.1, NONE, NONE);
        self.ignores[index as usize] = pattern.ignore;
        match self.aside.1 {
            NONE => {
                self.aside.0 = index;
                self.shapes.set_others(true);
            }
            last => self.entries[last as usize].next = index,
        }
        self.aside.1 = index;
    }

    /// The pattern of an entry.
    fn pattern(&self, index: u32) -> Pattern {
        let entry = self.entries[index as usize];
        let (Entry { tag, source, .. }, shape) = (entry, entry.shape());
        if shape == BESIDE {
            return self.alone.pattern();
        }
        if is_aside(shape) {
            let ignore = self.ignores[index as usize];
            return Pattern { tag, ignore, source, exact: shape & 1 << 6 != 0, tagged: shape & ASIDE_TAGGED != 0 };
        }
        self.shapes.at(shape).pattern(tag, source)
    }

    #[inline(always)]
    fn bucket(&self, tag: u64, source: u32) -> usize {
        (hash(tag, source) >> self.shift) as usize
    }

    /// The head of the group of a pattern, or [`NONE`].
    #[inline(always)]
    fn find_group(&self, bucket: usize, tag: u64, source: u32, shape: u8) -> u32 {
        let mut at = self.buckets[bucket];
        while let Some(head) = self.entries.get(at as usize) {
            #[cfg(test)]
            self.steps.set(self.steps.get() + 1);
            if head.tag == tag && head.source == source && head.shape() == shape {
                break;
            }
            at = head.chain;
        }
        at
    }

    fn get(&self, key: Key) -> Option<u32> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.is_posted() && entry.generation == key.generation).then(|| entry.recv())
    }

    /// Takes a posted receive back: it has matched, or is cancelled. `None` where the key is invalid.
    pub fn unpost(&mut self, key: Key) -> Option<u32> {
        let recv = self.get(key)?;
        self.take_out(key.index);
        self.free_entry(key.index);
        Some(recv)
    }

    /// Takes a direct receive out of matching and lets it live on as operation `op`, by the same key.
    pub fn promote(&mut self, key: Key, op: u32) -> Option<Direct> {
        let entry = *self.entries.get(key.index as usize)?;
        if !entry.is(State::Direct) || entry.generation != key.generation {
            return None;
        }
        self.take_out(key.index);
        let slot = &mut self.entries[key.index as usize];
        slot.set_state(State::Promoted);
        slot.len = op;
        self.promoted += 1;
        Some(entry.direct())
    }

    /// The operation that a key's direct receive has become; `None`: it is none.
    pub fn promoted(&self, key: Key) -> Option<u32> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.is(State::Promoted) && entry.generation == key.generation).then_some(entry.len)
    }

    /// The operation that a direct receive became is complete: its key is invalid from now on.
    pub fn end_promoted(&mut self, key: Key) {
        if self.promoted(key).is_some() {
            self.promoted -= 1;
            self.free_entry(key.index);
        }
    }

    #[inline(always)]
    fn free_entry(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        (entry.prev, entry.chain, entry.tail) = (NONE, NONE, index);
        entry.free(&mut self.free, index);
    }

    /// Takes an entry out of its group.
    fn take_out(&mut self, index: u32) {
        let entry = self.entries[index as usize];
        let (Entry { next, prev, chain, tail, tag, source, .. }, shape) = (entry, entry.shape());
        if shape == BESIDE {
            self.take_out_beside(index, next);
            return;
        }
        match entry.is(State::Direct) {
            true => self.directs -= 1,
            false => self.named -= 1,
        }
        if is_aside(shape) {
            self.tagged -= u32::from(shape & ASIDE_TAGGED != 0);
            self.take_out_aside(prev, next);
            return;
        }
        self.tagged -= u32::from(self.shapes.at(shape).tagged());
        let bucket = self.bucket(tag, source);
        if tail == NONE {
            // Not the oldest of its group.
            self.entries[prev as usize].next = next;
            if next == NONE {
                let head = self.find_group(bucket, tag, source, shape);
                self.entries[head as usize].tail = prev;
            } else {
                self.entries[next as usize].prev = prev;
            }
            return;
        }
        // The next one takes its place in the chain.
        let mut follower = chain;
        if next == NONE {
            self.shapes.release(shape);
        } else {
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

    fn take_out_beside(&mut self, index: u32, next: u32) {
        if index == self.alone.first {
            (self.directs, self.tagged) = (self.directs - 1, self.tagged - 1);
            self.alone.first = next;
        } else {
            // There its predecessor is unknown.
            self.link_alone();
            self.take_out(index);
        }
    }

    #[cold]
    fn take_out_aside(&mut self, prev: u32, next: u32) {
        match prev {
            NONE => self.aside.0 = next,
            prev => self.entries[prev as usize].next = next,
        }
        if self.aside.0 == NONE {
            self.shapes.set_others(false);
        }
        match next {
            NONE => self.aside.1 = prev,
            next => self.entries[next as usize].prev = prev,
        }
    }

    /// The oldest receive that takes a message, or [`NONE`].
    #[inline(always)]
    fn find_index(&self, source: PeerId, tag: u64, tagged: bool) -> u32 {
        if self.alone.first != NONE && tagged && self.alone.takes(source, tag) {
            // Nothing that takes the message is older.
            return self.alone.first;
        }
        match self.shapes.sole(tagged).place() {
            // As programs are: one shape of receive at a time.
            Some(place) => self.find_in(place, source, tag),
            None => self.find_in_all(source, tag, tagged),
        }
    }

    /// The oldest receive of one shape that takes a message.
    #[inline(always)]
    fn find_in(&self, place: u8, source: PeerId, tag: u64) -> u32 {
        let (tag, source) = self.shapes.at(place).project(source, tag);
        self.find_group(self.bucket(tag, source), tag, source, place)
    }

    #[inline(never)]
    fn find_in_all(&self, source: PeerId, tag: u64, tagged: bool) -> u32 {
        let (mut first, mut oldest) = (u64::MAX, NONE);
        let mut used = self.shapes.used(tagged);
        while used != 0 {
            let place = used.trailing_zeros() as u8;
            used &= used - 1;
            if self.shapes.is_idle(place) {
                continue;
            }
            let found = self.find_in(place, source, tag);
            if let Some(entry) = self.entries.get(found as usize)
                && entry.order < first
            {
                (first, oldest) = (entry.order, found);
            }
        }
        if self.aside.0 == NONE {
            return oldest;
        }
        let message = Pattern::of_message(source, tagged.then_some(tag));
        self.find_aside(&message, first, oldest)
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

    /// The oldest posted receive that takes a message from `source` with `tag` (`None`: untagged). It stays
    /// posted. A direct one has the number [`NONE`].
    pub fn find(&self, source: PeerId, tag: Option<u64>) -> Option<(Key, u32)> {
        if self.count() == 0 {
            return None;
        }
        let index = self.find_index(source, tag.unwrap_or(0), tag.is_some());
        let entry = self.entries.get(index as usize)?;
        Some((Key { index, generation: entry.generation }, entry.recv()))
    }

    /// Takes the receive of a whole message of `len` bytes out, where it is a direct one with room for all of
    /// them. The tag is 0 where there is none.
    #[inline]
    pub fn take_direct(&mut self, source: PeerId, tag: u64, tagged: bool, len: u32) -> Match<'_> {
        if self.count() == 0 { Match::NoReceive } else { self.find_direct(source, tag, tagged, len) }
    }

    fn find_direct(&mut self, source: PeerId, tag: u64, tagged: bool, len: u32) -> Match<'_> {
        let index = self.find_index(source, tag, tagged);
        let Some(entry) = self.entries.get(index as usize) else { return Match::NoReceive };
        if !entry.is(State::Direct) || entry.len < len {
            return Match::Other;
        }
        self.take_out(index);
        self.free_entry(index);
        Match::Direct(Taken { entry: &self.entries[index as usize], index })
    }

    /// As [`take_next`](Self::take_next), where [`has_alone`](Self::has_alone).
    #[inline(always)]
    pub fn take_alone(&mut self, source: PeerId, tag: u64, tagged: bool, len: u32) -> Option<Plain<'_>> {
        if !tagged || !self.alone.takes(source, tag) {
            return None;
        }
        let index = self.alone.first;
        let entry = self.entries.get_mut(index as usize)?;
        let address = entry.what ^ (PLAIN | BESIDE as u64) << SHAPE_AT;
        if address >= OFFSET_END || entry.len < len {
            return None;
        }
        (self.directs, self.tagged) = (self.directs - 1, self.tagged - 1);
        self.alone.first = entry.next;
        entry.free_plain(&mut self.free, index, address);
        Some(Plain(Taken { entry, index }))
    }

    /// As [`take_direct`](Self::take_direct), but in few instructions: also `None` where that would check
    /// more than one shape and one bucket, or where the receive was not posted by its address.
    #[inline(always)]
    pub fn take_next(&mut self, source: PeerId, tag: u64, tagged: bool, len: u32) -> Option<Plain<'_>> {
        let sole = self.shapes.sole(tagged);
        let (tag, source) = sole.shape.project(source, tag);
        let first = self.buckets.get_mut((hash(tag, source) >> self.shift) as usize)?;
        let index = *first;
        let entry = self.entries.get(index as usize)?;
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
        let address = entry.what ^ (sole.at() | PLAIN) << SHAPE_AT;
        let is_it = entry.tag == tag && entry.source == source && address < OFFSET_END;
        if !is_it || entry.len < len {
            return None;
        }
        if entry.chain != NONE {
            return None;
        }
        let next = entry.next;
        if next == NONE {
            self.shapes.release(sole.at() as u8);
        } else {
            // The next one of its group takes its place.
            let tail = entry.tail;
            let head = self.entries.get_mut(next as usize)?;
            (head.prev, head.tail) = (NONE, tail);
        }
        *first = next;
        self.directs -= 1;
        self.tagged -= u32::from(tagged);
        let entry = self.entries.get_mut(index as usize)?;
        entry.tail = index;
        entry.free_plain(&mut self.free, index, address);
        Some(Plain(Taken { entry, index }))
    }

    /// The direct receive that a key names, if it is posted.
    pub fn direct(&self, key: Key) -> Option<Direct> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.is(State::Direct) && entry.generation == key.generation).then(|| entry.direct())
    }

    /// All direct receives that are posted.
    pub fn directs(&self) -> impl Iterator<Item = (Key, Direct)> {
        let used = if self.directs == 0 { 0 } else { self.entries.len() };
        self.entries[..used]
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.is(State::Direct))
            .map(|(index, entry)| (Key { index: index as u32, generation: entry.generation }, entry.direct()))
    }

    /// While `stopped`, [`take_next`](Self::take_next) takes nothing.
    pub fn stop(&mut self, stopped: bool) {
        if self.shapes.is_stopped() == stopped {
            return;
        }
        self.link_alone();
        self.tagged = if stopped { self.tagged + 1 } else { self.tagged - 1 };
        self.shapes.stop(stopped);
    }

    /// Begins to go through the posted receives; [`next_of`](Self::next_of) goes on.
    pub const fn walk(&self) -> PostedWalk {
        PostedWalk { at: 0, left: self.count() }
    }

    fn step(&self, walk: &mut PostedWalk) -> Option<(u32, Pattern)> {
        if walk.left == 0 {
            return None;
        }
        let ahead = self.entries.get(walk.at as usize..)?.iter().position(Entry::is_posted)?;
        let index = walk.at + ahead as u32;
        (walk.at, walk.left) = (index + 1, walk.left - 1);
        Some((index, self.pattern(index)))
    }

    /// The next posted receive that names exactly `source`, to end them when that peer is lost. Receives
    /// found may be unposted during the walk, and none posted. The order is unspecified; a whole walk visits
    /// each receive once.
    pub fn next_of(&self, source: PeerId, walk: &mut PostedWalk) -> Option<(Key, u32)> {
        while let Some((index, pattern)) = self.step(walk) {
            if pattern.exact && pattern.source == source.0 {
                let entry = &self.entries[index as usize];
                return Some((Key { index, generation: entry.generation }, entry.recv()));
            }
        }
        None
    }

    /// The source that the next posted receive with a source names.
    pub fn next_source(&self, walk: &mut PostedWalk) -> Option<PeerId> {
        while let Some((_, pattern)) = self.step(walk) {
            if pattern.exact {
                return Some(PeerId(pattern.source));
            }
        }
        None
    }

    /// What a posted receive takes.
    pub fn selector(&self, key: Key) -> Option<Selector> {
        self.get(key)?;
        let Pattern { tag, ignore, source, exact, tagged } = self.pattern(key.index);
        let tag = if tagged { TagMatch::Tagged { tag, ignore } } else { TagMatch::Untagged };
        Some(Selector { source: exact.then_some(PeerId(source)), tag })
    }

    /// How many receives are posted.
    pub const fn count(&self) -> u32 {
        self.named + self.directs
    }

    /// How many direct receives are posted.
    pub const fn direct_count(&self) -> u32 {
        self.directs
    }

    /// Whether a plain receive is posted that has no older one of its domain before it, and the last one
    /// that was posted.
    #[inline(always)]
    pub const fn has_alone(&self) -> bool {
        self.alone.first != NONE
    }

    /// How many more receives may be posted.
    pub const fn room(&self) -> u32 {
        self.entries.len() as u32 - self.count() - self.promoted
    }

    /// Entries looked at so far.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }
}

/// A power of two, so that bits of a hash find the bucket.
pub(super) const fn bucket_count(buckets: u32) -> usize {
    match buckets.checked_next_power_of_two() {
        // A number of no bits can't be cut out of a hash.
        Some(..2) => 2,
        Some(count) => count as usize,
        None => 1 << 31,
    }
}
