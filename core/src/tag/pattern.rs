//! The pattern of a receive, in one normal form: two selectors that take the same messages are equal (rules
//! M-2 to M-4). A message is a pattern that takes only messages equal to it.

use crate::api::request::{Selector, TagMatch};
use crate::ids::PeerId;

/// A selector in normal form: what does not matter is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The bits of the tag that matter.
    pub(super) tag: u64,
    /// The bits that don't.
    pub(super) ignore: u64,
    /// The source, where it is named.
    pub(super) source: u32,
    /// Whether the source is named.
    pub(super) exact: bool,
    /// Which of the two domains.
    pub(super) tagged: bool,
}

/// A pattern without its values: patterns of one shape are distinguished by a hash of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The bits of a tag that matter.
    keep: u64,
    /// All bits of a source, or none; and [`TAGGED`].
    kind: u64,
}

/// The bit of [`Shape::kind`] for the domain.
const TAGGED: u64 = 1 << 32;

impl Pattern {
    /// What `selector` takes.
    pub(super) const fn of_selector(selector: &Selector) -> Self {
        let (tag, source, shape) = Shape::split(selector);
        shape.pattern(tag, source)
    }

    /// What a message is.
    pub(super) const fn of_message(source: PeerId, tag: Option<u64>) -> Self {
        let (tag, tagged) = match tag {
            Some(tag) => (tag, true),
            None => (0, false),
        };
        Pattern { tag, ignore: 0, source: source.0, exact: true, tagged }
    }

    /// Whether only messages that look all the same can match.
    pub(super) const fn is_exact(&self) -> bool {
        self.exact && self.ignore == 0
    }

    /// Whether this takes the message that `message` describes.
    pub(super) const fn takes(&self, message: &Pattern) -> bool {
        self.tagged == message.tagged
            && self.tag == message.tag & !self.ignore
            && (!self.exact || self.source == message.source)
    }

    #[cfg(test)]
    pub(super) fn shape(&self) -> Shape {
        Shape::of(if self.tagged { Some(self.ignore) } else { None }, self.exact)
    }
}

/// Bits of a [`hash`].
pub(super) const HASH_BITS: u32 = u64::BITS;

/// A number with evenly spread high bits, for tags and ranks that are counted up, shifted or strided as
/// programs do: products by odd constants carry each input there.
#[inline(always)]
pub(super) const fn hash(tag: u64, source: u32) -> u64 {
    tag.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add((source as u64).wrapping_mul(0xd6e8_feb8_6659_fd93))
}

impl Shape {
    /// No shape in use; fills places of the table.
    pub(super) const BLANK: Shape = Shape { keep: 0, kind: 0 };
    /// What no receive has.
    pub(super) const NONE: Shape = Shape { keep: 0, kind: u64::MAX };

    /// Of receives that ignore these bits of a tag (`None`: untagged).
    #[inline(always)]
    pub(super) const fn of(ignore: Option<u64>, exact: bool) -> Shape {
        let sources = if exact { u32::MAX as u64 } else { 0 };
        match ignore {
            Some(ignore) => Shape { keep: !ignore, kind: sources | TAGGED },
            // Untagged messages have no tag to look at.
            None => Shape { keep: 0, kind: sources },
        }
    }

    /// What `selector` takes: the bits of a tag and the source that matter, else 0, and which those are.
    #[inline(always)]
    pub(super) const fn split(selector: &Selector) -> (u64, u32, Shape) {
        let (source, exact) = match selector.source {
            Some(PeerId(source)) => (source, true),
            None => (0, false),
        };
        match selector.tag {
            TagMatch::Untagged => (0, source, Shape::of(None, exact)),
            TagMatch::Tagged { tag, ignore } => (tag & !ignore, source, Shape::of(Some(ignore), exact)),
        }
    }

    /// The pattern of this shape for a source and the bits of a tag that matter.
    #[inline]
    pub(super) const fn pattern(&self, tag: u64, source: u32) -> Pattern {
        let tagged = self.tagged();
        Pattern { tag, ignore: if tagged { !self.keep } else { 0 }, source, exact: self.kind as u32 != 0, tagged }
    }

    /// Tag and source of the pattern of this shape that takes a message, if it is of the same domain.
    #[inline(always)]
    pub(super) const fn project(&self, source: PeerId, tag: u64) -> (u64, u32) {
        (tag & self.keep, source.0 & self.kind as u32)
    }

    /// The domain.
    #[inline(always)]
    pub(super) const fn tagged(&self) -> bool {
        self.kind & TAGGED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// The fullest of 1,024 buckets that 4,096 patterns fall into.
    fn fullest(pattern: impl Fn(u64) -> Pattern) -> u32 {
        let mut load = vec![0; 1024];
        for number in 0..4096 {
            let Pattern { tag, source, .. } = pattern(number);
            load[(hash(tag, source) >> (HASH_BITS - 10)) as usize] += 1;
        }
        load.into_iter().max().unwrap()
    }

    #[test]
    fn tags_and_ranks_as_programs_count_them_spread_evenly() {
        // Chance alone gives a fullest bucket of 11 to 16 at four a bucket.
        for shift in 0..52 {
            let load = fullest(|number| Pattern::of_message(PeerId(0), Some(number << shift)));
            assert!(load <= 18, "tags shifted by {shift}: {load} in one bucket");
        }
        for stride in [1, 2, 3, 16, 64, 1000, 4096, 65_536] {
            let load = fullest(|number| Pattern::of_message(PeerId(number as u32 * stride), Some(5)));
            assert!(load <= 18, "ranks {stride} apart: {load} in one bucket");
        }
        let load = fullest(|number| Pattern::of_message(PeerId(number as u32 / 64), Some(number % 64)));
        assert!(load <= 18, "ranks and tags: {load} in one bucket");
    }

    #[test]
    fn every_bit_of_a_tag_counts() {
        for bit in 0..u64::BITS {
            assert_ne!(hash(1 << bit, 7), hash(0, 7), "bit {bit}");
        }
    }

    /// M-2 to M-4
    #[test]
    fn pattern_projection_keeps_its_shape() {
        let message = Pattern::of_message(PeerId(9), Some(0xabcd));
        for source in [None, Some(PeerId(9))] {
            for ignore in [0, 0xff, u64::MAX] {
                let tag = TagMatch::Tagged { tag: 0xabcd, ignore };
                let pattern = Pattern::of_selector(&Selector { source, tag });
                assert!(pattern.takes(&message));
                let (tag, source) = pattern.shape().project(PeerId(9), 0xabcd);
                assert_eq!(pattern.shape().pattern(tag, source), pattern);
                assert!(pattern.shape().tagged());
                assert_eq!(pattern.is_exact(), pattern == message);
            }
            let untagged = Pattern::of_selector(&Selector { source, tag: TagMatch::Untagged });
            assert!(!untagged.takes(&message));
            assert!(!untagged.shape().tagged());
        }
    }
}
