//! Which messages a receive takes: what callers and the matcher have in common.

use crate::ids::PeerId;

/// Which messages a receive or probe takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// From this peer only; `None`: from any.
    pub source: Option<PeerId>,
    /// Tagged or untagged.
    pub tag: TagMatch,
}

impl Selector {
    /// Untagged messages of any peer.
    pub const ANY_UNTAGGED: Selector = Selector { source: None, tag: TagMatch::Untagged };

    /// Messages with this tag, from any peer.
    pub const fn tagged(tag: u64) -> Selector {
        Selector { source: None, tag: TagMatch::Tagged { tag, ignore: 0 } }
    }

    /// The same messages, of one peer.
    pub const fn of(self, source: PeerId) -> Selector {
        Selector { source: Some(source), ..self }
    }
}

/// The tag part of a [`Selector`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagMatch {
    /// Untagged messages.
    Untagged,
    /// Tagged messages with a tag equal to `tag` in every bit that is 0 in `ignore`.
    Tagged {
        /// The tag to match.
        tag: u64,
        /// Bits that don't matter.
        ignore: u64,
    },
}
