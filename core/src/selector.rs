//! Which messages a receive takes: what callers and the matcher have in common.

use crate::ids::PeerId;

/// Which messages a receive or probe takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// From this peer only; `None`: from any.
    pub source: Option<PeerId>,
    /// Tagged or untagged.
    pub tag: TagMatch,
}

/// The tag part of a [`Selector`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagMatch {
    /// Untagged messages.
    #[default]
    Untagged,
    /// Tagged messages whose tag equals `tag` in every bit that is 0 in `ignore`.
    Tagged {
        /// The tag wanted.
        tag: u64,
        /// Bits that don't matter.
        ignore: u64,
    },
}
