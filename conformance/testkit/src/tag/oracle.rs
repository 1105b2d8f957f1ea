//! The rule of matching at its plainest: two vectors in order of time, searched from the front.

use rerail_core::endpoint::{Selector, TagMatch};
use rerail_core::ids::{Key, PeerId};

/// A message's source and tag.
pub(super) type Envelope = (PeerId, Option<u64>);

/// Posted receives and waiting messages, oldest first.
#[derive(Default)]
pub(super) struct Oracle {
    pub(super) posted: Vec<(Key, Selector, u32)>,
    pub(super) unexpected: Vec<(Key, Envelope, u32)>,
}

impl Oracle {
    pub(super) fn find_posted(&self, envelope: Envelope) -> Option<(Key, u32)> {
        self.posted.iter().find(|(_, selector, _)| takes(selector, envelope)).map(|&(key, _, recv)| (key, recv))
    }

    pub(super) fn find_unexpected(&self, selector: &Selector) -> Option<(Key, u32)> {
        let found = self.unexpected.iter().find(|&&(_, envelope, _)| takes(selector, envelope));
        found.map(|&(key, _, message)| (key, message))
    }

    pub(super) fn unpost(&mut self, key: Key) -> Option<u32> {
        let at = self.posted.iter().position(|&(of, ..)| of == key)?;
        Some(self.posted.remove(at).2)
    }

    pub(super) fn take_unexpected(&mut self, key: Key) -> Option<u32> {
        let at = self.unexpected.iter().position(|&(of, ..)| of == key)?;
        Some(self.unexpected.remove(at).2)
    }
}

fn takes(selector: &Selector, (source, tag): Envelope) -> bool {
    if selector.source.is_some_and(|wanted| wanted != source) {
        return false;
    }
    match (selector.tag, tag) {
        (TagMatch::Untagged, None) => true,
        (TagMatch::Tagged { tag: wanted, ignore }, Some(tag)) => wanted | ignore == tag | ignore,
        _ => false,
    }
}
