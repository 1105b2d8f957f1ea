//! A plain tagged receive that no older tagged one stands before: what it takes, beside the table, so that
//! most messages of programs that wait for one at a time are compared and not looked up.
//!
//! Its entry is in no group until another receive is posted ([`Posted`](super::posted::Posted) links it
//! then): nobody finds it but by what stands here.

use super::pattern::{Pattern, Shape};
use crate::ids::PeerId;
use crate::store::NONE;

/// What the one receive takes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Alone {
    /// The bits of the tag that matter, and which these are.
    pub(super) tag: u64,
    pub(super) keep: u64,
    /// The same of the source: all bits, or none.
    pub(super) source: u32,
    pub(super) sources: u32,
    /// Its entry; [`NONE`]: there is no such receive.
    pub(super) index: u32,
}

impl Alone {
    /// No receive.
    pub(super) const NOBODY: Alone = Alone { tag: 0, keep: 0, source: 0, sources: 0, index: NONE };

    /// Whether it takes a tagged message. Only of use where there is a receive.
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
