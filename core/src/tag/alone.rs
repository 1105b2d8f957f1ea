//! Plain tagged receives of one pattern, as long as no other tagged one is posted: their pattern, beside the
//! table, so that most messages of programs that wait for one kind at a time are compared and not looked up.
//!
//! Their entries are a list in the order of posting, and in no group until another receive is posted
//! ([`Posted`](super::posted::Posted) links them then): they are found only through this list.

use super::pattern::{Pattern, Shape};
use crate::ids::PeerId;
use crate::store::NONE;

/// What the receives take, and which they are.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Alone {
    /// The bits of the tag that matter, and which these are.
    pub(super) tag: u64,
    pub(super) keep: u64,
    /// The same of the source: all bits, or none.
    pub(super) source: u32,
    pub(super) sources: u32,
    /// The entry of the oldest; [`NONE`]: there is no such receive.
    pub(super) first: u32,
    /// That of the newest, where there are several.
    pub(super) last: u32,
}

impl Alone {
    /// No receive.
    pub(super) const NO_RECEIVE: Alone = Alone { tag: 0, keep: 0, source: 0, sources: 0, first: NONE, last: NONE };

    /// The first one, with entry `index`.
    #[inline(always)]
    pub(super) fn of(source: Option<PeerId>, tag: u64, ignore: u64, index: u32) -> Alone {
        let (source, sources) = source.map_or((0, 0), |PeerId(source)| (source, u32::MAX));
        Alone { tag: tag & !ignore, keep: !ignore, source, sources, first: index, last: NONE }
    }

    /// Whether there are receives, and they take what another one would.
    #[inline(always)]
    pub(super) fn takes_like(&self, source: Option<PeerId>, tag: u64, ignore: u64) -> bool {
        let other = Alone::of(source, tag, ignore, NONE);
        let is_like = self.tag == other.tag && self.keep == other.keep;
        self.first != NONE && is_like && self.source == other.source && self.sources == other.sources
    }

    /// Whether they take a tagged message. Only of use where there is a receive.
    #[inline(always)]
    pub(super) const fn takes(&self, source: PeerId, tag: u64) -> bool {
        (tag ^ self.tag) & self.keep == 0 && (source.0 ^ self.source) & self.sources == 0
    }

    pub(super) const fn shape(&self) -> Shape {
        Shape::of(Some(!self.keep), self.sources != 0)
    }

    /// The same as a pattern.
    pub(super) const fn pattern(&self) -> Pattern {
        self.shape().pattern(self.tag, self.source)
    }
}
