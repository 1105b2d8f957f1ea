//! Looks for messages between polls: at the ring that had the last one, and at some of the others in turn, so
//! that many idle rings cost no more than a few.

use std::ptr::NonNull;

use rerail_core::endpoint::LineId;
use rerail_core::ids::PeerId;

use super::ShmRail;
use super::link::Link;
use crate::rail::Sink;

/// The next poll has more to do than to look at the rings.
pub(super) const SLOW: u8 = 1;
/// There are more links.
pub(super) const OTHERS: u8 = 2;
/// Links looked at in turn by a call that finds nothing: twice the instructions of an idle call would go to
/// nine of them.
const LOOKS: u32 = 2;

/// A message that a look has found: the first word of its cell, and its link.
pub(crate) struct Front {
    pub link: NonNull<Link>,
    pub word: u64,
}

impl Front {
    #[inline(always)]
    fn of(link: &mut Link) -> Option<Front> {
        let word = link.front_word()?;
        Some(Front { link: NonNull::from(link), word })
    }
}

impl ShmRail {
    /// The link that had the last message.
    #[inline(always)]
    pub(crate) fn recent_link(&mut self) -> Option<&mut Link> {
        self.links.get_mut(self.recent as usize)
    }

    /// The message that its ring has now.
    #[inline(always)]
    pub(crate) fn recent_front(&mut self) -> Option<Front> {
        self.recent_link().and_then(Front::of)
    }

    /// Whether there is anything beside it to look at.
    #[inline(always)]
    pub(crate) fn has_anything_beside(&self) -> bool {
        self.beside != 0
    }

    /// The next links, [`LOOKS`] of them: the message of one that has one. So many idle links cost no more
    /// than a few.
    #[inline(always)]
    pub(crate) fn look_in_turn(&mut self) -> Option<Front> {
        for _ in 0..LOOKS {
            let next = self.next as usize + 1;
            let next = if next < self.links.len() { next } else { 0 };
            self.next = next as u32;
            let front = Front::of(self.links.get_mut(next)?);
            if front.is_some() {
                self.recent = self.next;
                return front;
            }
        }
        None
    }

    /// Whether the last [`look_in_turn`](Self::look_in_turn), which found none, has come to the end of all.
    #[inline(always)]
    pub(crate) fn has_seen_all(&self) -> bool {
        self.next < LOOKS
    }

    /// Sets the core's line of a peer.
    pub(crate) fn set_line(&mut self, peer: PeerId, line: LineId) {
        if let Some(index) = self.link_index(peer) {
            self.links[index].line = line;
        }
    }

    /// The link to a peer.
    pub(crate) fn link_to(&mut self, peer: PeerId) -> Option<&mut Link> {
        self.links.get_mut(*self.link_of.get(peer.0 as usize)? as usize)
    }

    /// Reports the posts that are over: most are when they are made.
    #[inline(always)]
    pub(crate) fn report_posts(&mut self, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        while let Some((_, id, status)) = self.done.pop_front() {
            sink.completed(id, status);
            count += 1;
        }
        count
    }
}
