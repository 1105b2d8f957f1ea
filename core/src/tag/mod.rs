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
//! | [`Posted::find`] | one hash chain for each shape of selector in use, see `posted` |
//! | [`Unexpected::find`], source named and no bit ignored | one hash chain |
//! | [`Unexpected::find`] with a wildcard | a walk over all unexpected messages, oldest first |
//! | [`Posted::post`], [`Unexpected::store`] | one hash chain |
//! | [`Posted::unpost`], [`Unexpected::take`] | constant, or one hash chain |
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

use crate::store::{Arena, ArenaError};

pub use self::entry::{Direct, Plain, Taken};
pub use self::posted::{Match, Posted, PostedWalk};
pub use self::shapes::SHAPES_MAX;
pub use self::unexpected::Unexpected;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatchFull {
    /// As many receives are posted as may be.
    #[error("{max} receives are posted, as many as may be")]
    Posted {
        /// The limit, [`MatchConfig::posted_max`].
        max: u32,
    },
    /// As many messages wait as may.
    #[error("{max} messages wait for their receives, as many as may")]
    Unexpected {
        /// The limit, [`MatchConfig::unexpected_max`].
        max: u32,
    },
}

/// Posted receives and unexpected messages.
///
/// The caller looks for a match first, and posts or stores only what has none.
///
/// ```
/// # use core::mem::MaybeUninit;
/// # use rerail_core::endpoint::{Selector, TagMatch};
/// # use rerail_core::ids::PeerId;
/// # use rerail_core::store::Arena;
/// # use rerail_core::tag::{MatchConfig, Matcher};
/// # #[repr(align(64))]
/// # struct Region([MaybeUninit<u8>; 4096]);
/// # let mut region = Region([MaybeUninit::uninit(); 4096]);
/// let config = MatchConfig { posted_max: 8, unexpected_max: 8, buckets: 8 };
/// assert!(Arena::bytes_of(|arena| Matcher::carve(arena, &config)).unwrap() <= 4096);
/// let mut matcher = Matcher::carve(&mut Arena::new(&mut region.0).unwrap(), &config).unwrap();
///
/// // A receive from anybody, then one from peer 3; both take this message, the older one gets it.
/// let any = Selector { source: None, tag: TagMatch::Tagged { tag: 7, ignore: 0 } };
/// matcher.posted.post(&any, 100).unwrap();
/// matcher.posted.post(&Selector { source: Some(PeerId(3)), ..any }, 101).unwrap();
/// let (key, recv) = matcher.posted.find(PeerId(3), Some(7)).unwrap();
/// assert_eq!((recv, matcher.posted.unpost(key)), (100, Some(100)));
///
/// // No receive is posted for this message: it waits.
/// assert_eq!(matcher.posted.find(PeerId(4), Some(7)), None);
/// matcher.unexpected.store(PeerId(4), Some(7), 200).unwrap();
/// let (key, message) = matcher.unexpected.find(&any).unwrap();
/// assert_eq!((message, matcher.unexpected.take(key)), (200, Some(200)));
/// ```
pub struct Matcher<'m> {
    /// The receives that wait for a message.
    pub posted: Posted<'m>,
    /// The messages that wait for a receive.
    pub unexpected: Unexpected<'m>,
}

impl<'m> Matcher<'m> {
    /// Nothing posted, nothing waiting.
    pub fn carve(arena: &mut Arena<'m>, config: &MatchConfig) -> Result<Self, ArenaError> {
        let posted = Posted::carve(arena, config.posted_max, config.buckets)?;
        let unexpected = Unexpected::carve(arena, config.unexpected_max, config.buckets)?;
        Ok(Matcher { posted, unexpected })
    }
}
