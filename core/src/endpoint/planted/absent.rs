//! Nothing is planted: every hook is what the endpoint does anyway.

use super::super::packets::Actions;
use super::super::pump::Step;
use super::super::{Endpoint, Post};
use super::Planted;
use crate::ids::{PostId, RailId};
use crate::seq::Seq;
use crate::time::Time;

#[allow(clippy::unused_self, reason = "the live hooks look at the endpoint")]
impl Endpoint<'_> {
    #[inline(always)]
    pub(in super::super) const fn planted(&self, _: Planted) -> bool {
        false
    }

    #[inline(always)]
    pub(in super::super) const fn is_overtaken(&mut self, _: u32, _: usize, _: Seq) -> bool {
        false
    }

    #[inline(always)]
    pub(in super::super) const fn forgets_ack(&mut self, _: u32) -> bool {
        false
    }

    #[inline(always)]
    pub(in super::super) const fn post_named(&self, id: PostId) -> PostId {
        id
    }

    #[inline(always)]
    pub(in super::super) const fn op_named(&self, id: u64) -> u64 {
        id
    }

    #[inline(always)]
    pub(in super::super) const fn note_post(&mut self, _: &Post) {}

    #[inline(always)]
    pub(in super::super) const fn carrier(&mut self, _: u32, part: RailId) -> RailId {
        part
    }

    #[inline(always)]
    pub(in super::super) fn parts_to_feed(&self, channel: u32, pending: u64) -> u64 {
        self.t.channels.at(channel).rooms.feed & pending
    }

    #[inline(always)]
    pub(in super::super) const fn replay_unfenced(&mut self, _: u32, _: RailId) -> bool {
        false
    }

    #[inline(always)]
    pub(in super::super) const fn has_replays(&self, _: u32) -> bool {
        false
    }

    #[inline(always)]
    pub(in super::super) const fn pump_replay(&mut self, _: Time, _: u32, _: &mut Actions) -> Step {
        Step::Idle
    }
}
