//! The bugs' own code, where one line at the site does not do.

use super::super::Endpoint;
use super::Planted;
use crate::ids::{Key, PostId};
use crate::seq::Seq;

/// An acknowledgment in so many is forgotten.
const ACKS_PER_LOSS: u64 = 7;

/// What is planted, and what the bugs remember.
#[derive(Default)]
pub(in super::super) struct Plants {
    /// Bit per [`Planted`].
    bugs: u32,
    /// Explicit acknowledgments that were due.
    acks: u64,
}

impl Endpoint<'_> {
    /// Makes the endpoint believe something wrong from now on; several bugs may be planted. Plant before anything is
    /// submitted: what is under way already is not looked at.
    pub fn plant(&mut self, bug: Planted) {
        self.plants.bugs |= 1 << bug as u32;
    }

    /// Whether a bug is planted.
    pub(in super::super) const fn planted(&self, bug: Planted) -> bool {
        self.plants.bugs >> bug as u32 & 1 == 1
    }

    /// [`Planted::HighWater`]: whether a packet of a higher number than `psn` has come.
    pub(in super::super) fn is_overtaken(&mut self, channel: u32, lane: usize, psn: Seq) -> bool {
        let (bug, window) = (self.planted(Planted::HighWater), self.config.window);
        let (slot, bits) = self.t.received(channel, lane);
        bug && slot.received[lane].has_claim_beyond(bits, window, psn)
    }

    /// [`Planted::AckForgotten`]: whether the acknowledgment that is due has been "sent".
    pub(in super::super) fn forgets_ack(&mut self, channel: u32) -> bool {
        if !self.planted(Planted::AckForgotten) {
            return false;
        }
        self.plants.acks += 1;
        let forgotten = self.plants.acks.is_multiple_of(ACKS_PER_LOSS);
        if forgotten {
            // All that goes with a packet that carries it.
            let _ = self.common(channel, 0, 0, false);
            self.stats.acks_explicit += 1;
        }
        forgotten
    }

    /// [`Planted::NoGeneration`]: the post that stands at the index now.
    pub(in super::super) fn post_named(&self, id: PostId) -> PostId {
        if !self.planted(Planted::NoGeneration) {
            return id;
        }
        let Key { index, generation } = id.0;
        if let Some(sub) = self.t.subs.get(index.wrapping_sub(self.config.packets_max) as usize) {
            return PostId(Key { index, generation: sub.frame_generation });
        }
        PostId(self.t.packets.key_at(index).unwrap_or(Key { index, generation }))
    }

    /// [`Planted::NoGeneration`]: the operation that stands at the index now.
    pub(in super::super) fn op_named(&self, id: u64) -> u64 {
        if !self.planted(Planted::NoGeneration) {
            return id;
        }
        self.t.ops.key_at(Key::from_bits(id).index).map_or(id, Key::to_bits)
    }
}
