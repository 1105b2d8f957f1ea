//! The matcher against its oracle: one body for the property test and for a fuzz target.
//!
//! Few sources, tags and masks, so that nearly everything matches something; more shapes than
//! [`SHAPES_MAX`](rerail_core::tag::SHAPES_MAX), so that some stand aside. After each step, every message
//! there can be is looked up on both sides.

mod oracle;

use std::collections::HashMap;
use std::mem::MaybeUninit;

use oracle::{Envelope, Oracle};
use rerail_core::endpoint::{Selector, TagMatch};
use rerail_core::ids::{Cookie, Key, PeerId};
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::store::arena::REGION_ALIGN;
use rerail_core::store::{Arena, NONE};
use rerail_core::tag::{Direct, Match, MatchConfig, MatchFull, Matcher, Taken};

const HIGH: u64 = 1 << 63;
const SOURCES: u32 = 3;
const TAGS: [u64; 6] = [0, 1, 2, 3, HIGH, HIGH | 1];
const IGNORES: [u64; 12] = [0, 1, 2, 3, HIGH, HIGH | 1, HIGH | 2, HIGH | 3, 4, 12, !3, u64::MAX];

/// Reads `data` as sizes and a sequence of steps, and carries them out on both sides. Panics where they
/// disagree.
pub fn run(data: &[u8]) {
    let mut input = data.iter().copied();
    let sizes = input.next().unwrap_or(0);
    let max = if sizes & 1 == 0 { 48 } else { 6 };
    let config = MatchConfig { posted_max: max, unexpected_max: max, buckets: 1 << (sizes >> 1 & 3) };
    with_matcher(&config, |matcher| {
        let mut pair = Pair {
            matcher,
            config,
            oracle: Oracle::default(),
            keys: vec![],
            values: 0,
            directs: HashMap::new(),
            promoted: vec![],
            is_stopped: false,
            alone: None,
        };
        while let Some(step) = input.next() {
            let mut byte = || input.next().unwrap_or(0);
            pair.step(step, byte(), byte());
            pair.check();
        }
        pair.empty();
    });
}

/// Carves a matcher of exactly the bytes that it needs, and passes it on.
fn with_matcher<R>(config: &MatchConfig, body: impl FnOnce(Matcher<'_>) -> R) -> R {
    let bytes = Arena::bytes_of(|arena| Matcher::carve(arena, config)).expect("a small configuration");
    let mut region = vec![MaybeUninit::uninit(); bytes + REGION_ALIGN];
    let skip = region.as_ptr().align_offset(REGION_ALIGN);
    let mut arena = Arena::new(&mut region[skip..skip + bytes]).expect("aligned");
    body(Matcher::carve(&mut arena, config).expect("the region has the size of the layout"))
}

struct Pair<'m> {
    matcher: Matcher<'m>,
    config: MatchConfig,
    oracle: Oracle,
    /// Every key that was ever given, dead ones too, with whether it is a receive's.
    keys: Vec<(bool, Key)>,
    values: u32,
    /// The direct receives that are posted.
    directs: HashMap<(u32, u32), Direct>,
    /// Those that live on as operations, and these.
    promoted: Vec<(Key, u32)>,
    /// Nothing is to be matched quickly.
    is_stopped: bool,
    /// A receive that must be matched quickly: by its address, tagged, and posted where no other tagged one
    /// was, behind which nothing has changed.
    alone: Option<Key>,
}

impl Pair<'_> {
    fn step(&mut self, step: u8, a: u8, b: u8) {
        if !(16..=21).contains(&(step % 24)) {
            self.alone = None;
        }
        match step % 24 {
            // A receive comes: takes a message that waits, else is posted.
            0..=2 => match self.find_unexpected(&selector(a, b)) {
                Some(key) => self.take(key),
                None => self.post(&selector(a, b)),
            },
            // A message comes: goes to a receive, which stays if it takes many; else waits.
            3..=5 => match self.matcher.posted.find(envelope(a).0, envelope(a).1) {
                Some((key, _)) if b < 200 => self.unpost(key),
                Some(_) => {}
                None => self.store(envelope(a)),
            },
            // The same without a look-up first: the result does not depend on the caller's care.
            6..=8 => self.post(&selector(a, b)),
            9 | 10 => self.store(envelope(a)),
            // Cancelled, or taken twice.
            11..=13 => {
                if let Some(&(is_recv, key)) = self.keys.get(usize::from(a) % self.keys.len().max(1)) {
                    if is_recv { self.unpost(key) } else { self.take(key) }
                }
            }
            14 => {
                self.find_unexpected(&selector(a, b));
            }
            16..=18 => self.post_direct(&selector(a, b), b),
            19..=21 => self.arrive(envelope(a), u32::from(b % 4)),
            22 => match b {
                0..16 => {
                    self.is_stopped = !self.is_stopped;
                    self.matcher.posted.stop(self.is_stopped);
                }
                16..64 => self.end_promoted(),
                _ => self.promote(usize::from(a)),
            },
            _ => {
                if b < 64 {
                    self.lose(PeerId(u32::from(a) % SOURCES));
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.oracle.posted.len() + self.promoted.len() == self.config.posted_max as usize
    }

    /// A plain receive of up to 3 bytes, posted by its address or not.
    fn post_direct(&mut self, selector: &Selector, b: u8) {
        self.values += 1;
        let by = if b & 4 == 0 { MemRef::BY_ADDRESS } else { 0 };
        let at = MemRef { region: RegionId(3), offset: u64::from(self.values) << 12 | by };
        let direct = Direct { to: Seg { at, len: (b % 4).into() }, cookie: Cookie(self.values.into()) };
        let is_tagged = |selector: &Selector| selector.tag != TagMatch::Untagged;
        let is_first = is_tagged(selector) && !self.oracle.posted.iter().any(|(_, posted, _)| is_tagged(posted));
        self.alone = None;
        match self.matcher.posted.post_direct(selector, &direct) {
            Some(key) => {
                assert!(!self.is_full() && !self.keys.contains(&(true, key)));
                self.keys.push((true, key));
                self.oracle.posted.push((key, *selector, NONE));
                self.directs.insert((key.index, key.generation), direct);
                self.alone = (is_first && by != 0 && !self.is_stopped).then_some(key);
            }
            None => assert!(self.is_full()),
        }
    }

    /// A message comes as a short one does: the quick way, or else the other one.
    fn arrive(&mut self, (source, tag): Envelope, len: u32) {
        let parts = |taken: Taken<'_>| (taken.key(), taken.at(), taken.cookie());
        let expected = self.oracle.find_posted((source, tag));
        let direct = expected.and_then(|(key, _)| self.directs.get(&(key.index, key.generation)).copied());
        let (bits, is_tagged) = (tag.unwrap_or(0), tag.is_some());
        let quickly = match self.matcher.posted.has_alone() {
            true => self.matcher.posted.take_alone(source, bits, is_tagged, len),
            false => self.matcher.posted.take_next(source, bits, is_tagged, len),
        };
        let quickly = quickly.map(|taken| (taken.key(), taken.at(), taken.cookie()));
        assert!(quickly.is_none_or(|(_, at, _)| at.offset & MemRef::BY_ADDRESS != 0 && !self.is_stopped));
        let fits = direct.is_some_and(|direct| direct.to.len >= len.into());
        if fits && self.alone.is_some() && self.alone == expected.map(|(key, _)| key) {
            assert!(quickly.is_some(), "the quick way takes nothing");
            self.alone = None;
        }
        let found = match quickly {
            Some(found) => found,
            None => match self.matcher.posted.take_direct(source, bits, is_tagged, len) {
                Match::Direct(taken) => parts(taken),
                Match::Other => {
                    assert!(expected.is_some() && direct.is_none_or(|direct| direct.to.len < len.into()));
                    return;
                }
                Match::NoReceive => return assert_eq!(expected, None),
            },
        };
        let direct = direct.expect("the oldest is a direct one");
        assert_eq!((Some((found.0, NONE)), found.1, found.2), (expected, direct.to.at, direct.cookie));
        assert!(direct.to.len >= len.into());
        self.directs.remove(&(found.0.index, found.0.generation));
        self.oracle.unpost(found.0);
    }

    fn promote(&mut self, at: usize) {
        let Some(&(_, key)) = self.keys.get(at % self.keys.len().max(1)) else { return };
        self.values += 1;
        let is_recv = self.keys[at % self.keys.len()].0;
        let direct = if is_recv { self.directs.remove(&(key.index, key.generation)) } else { None };
        if is_recv {
            assert_eq!(self.matcher.posted.promote(key, self.values), direct);
        }
        if direct.is_some() {
            self.oracle.unpost(key);
            self.promoted.push((key, self.values));
        }
    }

    fn end_promoted(&mut self) {
        if let Some((key, op)) = self.promoted.pop() {
            assert_eq!(self.matcher.posted.promoted(key), Some(op));
            self.matcher.posted.end_promoted(key);
            assert_eq!(self.matcher.posted.promoted(key), None);
        }
    }

    fn post(&mut self, selector: &Selector) {
        self.values += 1;
        let full = self.is_full();
        match self.matcher.posted.post(selector, self.values) {
            Ok(key) => {
                assert!(!full && !self.keys.contains(&(true, key)));
                self.keys.push((true, key));
                self.oracle.posted.push((key, *selector, self.values));
            }
            Err(error) => assert!(full && error == MatchFull::Posted { max: self.config.posted_max }),
        }
    }

    fn store(&mut self, envelope: Envelope) {
        self.values += 1;
        let full = self.oracle.unexpected.len() == self.config.unexpected_max as usize;
        match self.matcher.unexpected.store(envelope.0, envelope.1, self.values) {
            Ok(key) => {
                assert!(!full && !self.keys.contains(&(false, key)));
                self.keys.push((false, key));
                self.oracle.unexpected.push((key, envelope, self.values));
            }
            Err(error) => assert!(full && error == MatchFull::Unexpected { max: self.config.unexpected_max }),
        }
    }

    fn unpost(&mut self, key: Key) {
        self.directs.remove(&(key.index, key.generation));
        assert_eq!(self.matcher.posted.unpost(key), self.oracle.unpost(key));
    }

    fn take(&mut self, key: Key) {
        assert_eq!(self.matcher.unexpected.take(key), self.oracle.take_unexpected(key));
    }

    fn find_unexpected(&self, selector: &Selector) -> Option<Key> {
        let found = self.matcher.unexpected.find(selector);
        assert_eq!(found, self.oracle.find_unexpected(selector), "{selector:?}");
        found.map(|(key, _)| key)
    }

    /// Takes out the receives that only one peer could have served.
    fn lose(&mut self, peer: PeerId) {
        let mut walk = self.matcher.posted.walk();
        let mut count = self.oracle.posted.iter().filter(|(_, selector, _)| selector.source == Some(peer)).count();
        while let Some((key, recv)) = self.matcher.posted.next_of(peer, &mut walk) {
            let whose = self.oracle.posted.iter().find(|&&(of, ..)| of == key).expect("a living key");
            assert_eq!((whose.1.source, whose.2), (Some(peer), recv));
            self.unpost(key);
            count -= 1;
        }
        assert_eq!(count, 0);
    }

    fn check(&self) {
        let (posted, unexpected) = (self.oracle.posted.len() as u32, self.oracle.unexpected.len() as u32);
        assert_eq!((self.matcher.posted.count(), self.matcher.unexpected.count()), (posted, unexpected));
        assert_eq!(self.matcher.posted.room(), self.config.posted_max - posted - self.promoted.len() as u32);
        let directs = self.matcher.posted.directs().map(|(key, direct)| ((key.index, key.generation), direct));
        assert_eq!(
            (directs.collect::<HashMap<_, _>>(), self.matcher.posted.direct_count()),
            (self.directs.clone(), self.directs.len() as u32)
        );
        for (key, selector, recv) in &self.oracle.posted {
            if *recv == NONE {
                let takes = |selector: Option<Selector>| selector.map(|selector| normal(&selector));
                assert_eq!(takes(self.matcher.posted.selector(*key)), takes(Some(*selector)));
            }
        }
        assert_eq!(self.matcher.unexpected.room(), self.config.unexpected_max - unexpected);
        for tag in TAGS.map(Some).into_iter().chain([None]) {
            let wanted = tag.map_or(TagMatch::Untagged, |tag| TagMatch::Tagged { tag, ignore: 0 });
            for source in (0..SOURCES).map(PeerId) {
                let (found, expected) = (self.matcher.posted.find(source, tag), self.oracle.find_posted((source, tag)));
                assert_eq!(found, expected, "{source:?} {tag:?}");
                self.find_unexpected(&Selector { source: Some(source), tag: wanted });
            }
            self.find_unexpected(&Selector { source: None, tag: wanted });
        }
    }

    /// All out again: nothing is left behind that a full load would stumble over.
    fn empty(&mut self) {
        self.matcher.posted.stop(false);
        while !self.promoted.is_empty() {
            self.end_promoted();
        }
        for (is_recv, key) in std::mem::take(&mut self.keys) {
            if is_recv { self.unpost(key) } else { self.take(key) }
        }
        self.check();
        for number in 0..self.config.posted_max {
            self.post(&Selector { source: Some(PeerId(number)), tag: TagMatch::Untagged });
            self.store((PeerId(number), None));
        }
        self.check();
        assert_eq!((self.matcher.posted.room(), self.matcher.unexpected.room()), (0, 0));
    }
}

/// A selector without the bits of its tag that don't matter.
fn normal(selector: &Selector) -> Selector {
    let tag = match selector.tag {
        TagMatch::Tagged { tag, ignore } => TagMatch::Tagged { tag: tag & !ignore, ignore },
        TagMatch::Untagged => TagMatch::Untagged,
    };
    Selector { tag, ..*selector }
}

/// The selector that two bytes name.
fn selector(a: u8, b: u8) -> Selector {
    let source = Some(u32::from(a) % (SOURCES + 1)).filter(|&source| source < SOURCES).map(PeerId);
    let tag = match usize::from(b) % (IGNORES.len() + 1) {
        untagged if untagged == IGNORES.len() => TagMatch::Untagged,
        mask => TagMatch::Tagged { tag: TAGS[usize::from(a / 4) % TAGS.len()], ignore: IGNORES[mask] },
    };
    Selector { source, tag }
}

/// The message that a byte names.
fn envelope(a: u8) -> Envelope {
    (PeerId(u32::from(a) % SOURCES), TAGS.get(usize::from(a / 3) % (TAGS.len() + 1)).copied())
}
