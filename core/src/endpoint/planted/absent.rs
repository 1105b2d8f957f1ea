//! Nothing is planted: every hook is what the endpoint does anyway.

use super::super::Endpoint;
use super::Planted;
use crate::ids::PostId;
use crate::seq::Seq;

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
}
