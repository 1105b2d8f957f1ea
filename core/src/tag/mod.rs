//! Matching of messages to receives, by MPI's rule: a message goes to the oldest posted receive that takes
//! it, a receive takes the oldest unexpected message that fits (MPI 4.1, 3.5; M-1). Tagged and untagged
//! messages are domains apart.
//!
//! Both sides are bounded tables in the caller's memory and hold an index of the caller's for each receive
//! and message. Receives with the same pattern, and messages with the same envelope, are in one queue (a
//! *group*, see `posted`), found by hash; so the cost of a match depends on how many *different* patterns are
//! posted, not on how many receives or messages there are:
//!
//! | call | cost |
//! |---|---|
//! | [`find_posted`](Matcher::find_posted) | one hash chain for each shape of selector in use, see `posted` |
//! | [`find_unexpected`](Matcher::find_unexpected), source named and no bit ignored | one hash chain |
//! | [`find_unexpected`](Matcher::find_unexpected) with a wildcard | a walk over all unexpected messages,
//! oldest first |
//! | [`post`](Matcher::post), [`store`](Matcher::store) | one hash chain |
//! | [`unpost`](Matcher::unpost), [`take_unexpected`](Matcher::take_unexpected) | constant, or one hash chain
//! |
//!
//! To find and to take are two calls, since a buffer that takes message after message stays posted, and a
//! probe leaves the message where it is. The hash has no secret: a peer that picks tags which collide makes
//! lookups scan the table, which is bounded, and changes no result.

mod alone;
mod entry;
mod pattern;
mod posted;
mod shapes;
#[cfg(test)]
mod tests;
mod unexpected;

use core::fmt;

use self::posted::Posted;
use self::unexpected::Unexpected;
use crate::api::selector::Selector;
use crate::ids::{Key, PeerId};
use crate::store::{Arena, ArenaError, Sizer};

pub use self::entry::{Direct, Plain, Taken};
pub use self::posted::{Match, PostedWalk};
pub use self::shapes::SHAPES_MAX;

/// Sizes of a [`Matcher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchConfig {
    /// Receives that may be posted at once.
    pub posted_max: u32,
    /// Messages that may wait unmatched at once.
    pub unexpected_max: u32,
    /// Hash buckets of each of the two tables; rounded up to a power of two. About as many as different
    /// selectors are posted at once.
    pub buckets: u32,
}

/// A table is full; nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchFull {
    /// As many receives are posted as may be.
    Posted {
        /// The limit, [`MatchConfig::posted_max`].
        max: u32,
    },
    /// As many messages wait as may.
    Unexpected {
        /// The limit, [`MatchConfig::unexpected_max`].
        max: u32,
    },
}

impl fmt::Display for MatchFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatchFull::Posted { max } => write!(f, "{max} receives are posted, as many as may be"),
            MatchFull::Unexpected { max } => write!(f, "{max} messages wait for their receives, as many as may"),
        }
    }
}

impl core::error::Error for MatchFull {}

/// Posted receives and unexpected messages.
///
/// The caller looks for a match first, and posts or stores only what has none.
///
/// ```
/// # use core::mem::MaybeUninit;
/// # use rerail_core::endpoint::{Selector, TagMatch};
/// # use rerail_core::ids::PeerId;
/// # use rerail_core::store::{Arena, Sizer};
/// # use rerail_core::tag::{MatchConfig, Matcher};
/// # #[repr(align(64))]
/// # struct Region([MaybeUninit<u8>; 4096]);
/// # let mut region = Region([MaybeUninit::uninit(); 4096]);
/// let config = MatchConfig { posted_max: 8, unexpected_max: 8, buckets: 8 };
/// assert!(Matcher::layout(Sizer::new(), &config).bytes().unwrap() <= 4096);
/// let mut matcher = Matcher::carve(&mut Arena::new(&mut region.0).unwrap(), &config).unwrap();
///
/// // A receive from anybody, then one from peer 3; both take this message, the older one gets it.
/// let any = Selector { source: None, tag: TagMatch::Tagged { tag: 7, ignore: 0 } };
/// matcher.post(&any, 100).unwrap();
/// matcher.post(&Selector { source: Some(PeerId(3)), ..any }, 101).unwrap();
/// let (key, recv) = matcher.find_posted(PeerId(3), Some(7)).unwrap();
/// assert_eq!((recv, matcher.unpost(key)), (100, Some(100)));
///
/// // No receive is posted for this message: it waits.
/// assert_eq!(matcher.find_posted(PeerId(4), Some(7)), None);
/// matcher.store(PeerId(4), Some(7), 200).unwrap();
/// let (key, message) = matcher.find_unexpected(&any).unwrap();
/// assert_eq!((message, matcher.take_unexpected(key)), (200, Some(200)));
/// ```
pub struct Matcher<'m> {
    posted: Posted<'m>,
    unexpected: Unexpected<'m>,
}

impl<'m> Matcher<'m> {
    /// What [`carve`](Self::carve) will take.
    #[must_use]
    pub const fn layout(sizer: Sizer, config: &MatchConfig) -> Sizer {
        let sizer = Posted::layout(sizer, config.posted_max, config.buckets);
        Unexpected::layout(sizer, config.unexpected_max, config.buckets)
    }

    /// Nothing posted, nothing waiting.
    pub fn carve(arena: &mut Arena<'m>, config: &MatchConfig) -> Result<Self, ArenaError> {
        let posted = Posted::carve(arena, config.posted_max, config.buckets)?;
        let unexpected = Unexpected::carve(arena, config.unexpected_max, config.buckets)?;
        Ok(Matcher { posted, unexpected })
    }

    /// Posts receive `recv` for the messages that `selector` takes, behind all that are posted.
    pub fn post(&mut self, selector: &Selector, recv: u32) -> Result<Key, MatchFull> {
        self.posted.post(selector, recv)
    }

    /// Posts a plain receive that has no operation, behind all that are posted. `None`: it must have one, or
    /// there is no room.
    #[inline(always)]
    pub fn post_direct(&mut self, selector: &Selector, recv: &Direct) -> Option<Key> {
        self.posted.post_direct(selector, recv)
    }

    /// Takes the oldest posted receive that takes a message of `len` bytes out, where that is a direct one
    /// with room for all of it; `tag` is 0 where it has none. Else nothing has happened.
    #[inline]
    pub fn take_direct(&mut self, source: PeerId, tag: u64, tagged: bool, len: u32) -> Match<'_> {
        self.posted.take_direct(source, tag, tagged, len)
    }

    /// While `stopped`, [`take_next`](Self::take_next) takes nothing.
    pub fn stop_quick(&mut self, stopped: bool) {
        self.posted.stop(stopped);
    }

    /// Takes a direct receive out of matching; its key refers to operation `op` from now on.
    pub fn promote(&mut self, key: Key, op: u32) -> Option<Direct> {
        self.posted.promote(key, op)
    }

    /// The operation that a key refers to since [`promote`](Self::promote).
    pub fn promoted(&self, key: Key) -> Option<u32> {
        self.posted.promoted(key)
    }

    /// The operation that a key refers to is complete.
    pub fn end_promoted(&mut self, key: Key) {
        self.posted.end_promoted(key);
    }

    /// The direct receive that a key names.
    pub fn direct(&self, key: Key) -> Option<Direct> {
        self.posted.direct(key)
    }

    /// What a direct receive takes.
    pub fn selector(&self, key: Key) -> Option<Selector> {
        self.posted.selector(key)
    }

    /// How many direct receives are posted.
    pub const fn direct_count(&self) -> u32 {
        self.posted.direct_count()
    }

    /// All posted direct receives.
    pub fn directs(&self) -> impl Iterator<Item = (Key, Direct)> {
        self.posted.directs()
    }

    /// Takes a posted receive back: it has matched, or is cancelled. `None` where the key is invalid.
    pub fn unpost(&mut self, key: Key) -> Option<u32> {
        self.posted.unpost(key)
    }

    /// The oldest posted receive that takes a message from `source` with `tag` (`None`: untagged). It stays
    /// posted. A direct one has the number [`NONE`](crate::store::NONE).
    pub fn find_posted(&self, source: PeerId, tag: Option<u64>) -> Option<(Key, u32)> {
        self.posted.find(source, tag)
    }

    /// Begins to go through the posted receives; [`next_posted_of`](Self::next_posted_of) goes on.
    pub const fn posted_walk(&self) -> PostedWalk {
        self.posted.walk()
    }

    /// The next posted receive that names exactly `source`, to end them when that peer is lost. Receives
    /// found may be unposted during the walk, and none posted. The order is unspecified; a whole walk visits
    /// each receive once.
    pub fn next_posted_of(&self, source: PeerId, walk: &mut PostedWalk) -> Option<(Key, u32)> {
        self.posted.next_of(source, walk)
    }

    /// The source that the next posted receive with a source names.
    pub fn next_source(&self, walk: &mut PostedWalk) -> Option<PeerId> {
        self.posted.next_source(walk)
    }

    /// Lets `message` from `source` with `tag` (`None`: untagged) wait, behind all that wait.
    #[inline]
    pub fn store(&mut self, source: PeerId, tag: Option<u64>, message: u32) -> Result<Key, MatchFull> {
        self.unexpected.store(source, tag, message)
    }

    /// The oldest waiting message that `selector` takes. It stays.
    #[inline(always)]
    pub fn find_unexpected(&self, selector: &Selector) -> Option<(Key, u32)> {
        self.unexpected.find(selector)
    }

    /// Takes a waiting message out. `None` where the key is invalid.
    #[inline]
    pub fn take_unexpected(&mut self, key: Key) -> Option<u32> {
        self.unexpected.take(key)
    }

    /// All waiting messages, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = (Key, u32)> {
        self.unexpected.waiting()
    }

    /// The waiting messages that `selector` takes, oldest first.
    pub fn waiting_for(&self, selector: &Selector) -> impl Iterator<Item = (Key, u32)> {
        self.unexpected.waiting_for(selector)
    }

    /// How many receives are posted.
    pub const fn posted_count(&self) -> u32 {
        self.posted.count()
    }

    /// How many messages wait.
    pub const fn unexpected_count(&self) -> u32 {
        self.unexpected.count()
    }

    /// How many more receives may be posted.
    pub const fn posted_room(&self) -> u32 {
        self.posted.room()
    }

    /// How many more messages may wait.
    pub const fn unexpected_room(&self) -> u32 {
        self.unexpected.room()
    }
}
