//! Puts and gets that a rail carries out at once in a window that is within its reach (L-26): requests that
//! are complete when they are submitted, without an operation.

use super::slots::one_sided_id;
use super::{Endpoint, Notify};
use crate::fast::ShortCompletion;
use crate::ids::{Cookie, OpId, PeerId};
use crate::mem::Seg;
use crate::peer::ChannelState;
use crate::store::NONE;

/// A put or get to a peer, as far as it matters whether it can be carried out at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectRequest {
    /// The window's owner.
    pub peer: PeerId,
    /// A put; else a get.
    pub is_put: bool,
    /// [`PutRequest::fence`](super::PutRequest::fence).
    pub fence: bool,
    /// Completion is reported by an event; else it is not.
    pub has_event: bool,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

impl DirectRequest {
    /// Whether completion is reported by an event; `None`: by a counter, which takes an operation. Only as
    /// much of `notify` is read as is always written.
    #[inline(always)]
    pub const fn has_event(notify: &Notify) -> Option<bool> {
        match notify {
            Notify::Silent => Some(false),
            Notify::Event => Some(true),
            Notify::Counter(_) | Notify::Both(_) => None,
        }
    }
}

impl Endpoint<'_> {
    /// Whether a request without immediate data may be carried out now, before all others that wait: these
    /// are not ordered against it, and no fence is between. Then the caller has a rail carry it
    /// out, and calls [`direct_done`](Self::direct_done) if that has.
    #[inline(always)]
    pub fn may_access(&mut self, request: &DirectRequest) -> bool {
        if !self.config.express || (request.has_event && !self.t.short_done.has_room()) {
            return false;
        }
        let Some(channel) = self.t.channel_of(request.peer) else { return false };
        let slot = self.t.channels.at(channel);
        let last = slot.one_sided.tail();
        let is_free = match request.fence {
            // Events of requests with an operation are polled after those without.
            true => last == NONE && self.op_events.is_empty(),
            false => last == NONE || !self.t.ops.at(last).is_held,
        };
        is_free && matches!(slot.state(), ChannelState::Open)
    }

    /// A request for which [`may_access`](Self::may_access) has just answered was carried out, all of its
    /// `bytes`: it is complete, and its id is [`direct_id`](Self::direct_id).
    #[inline(always)]
    pub fn direct_done(&mut self, request: &DirectRequest, bytes: u32) {
        let &DirectRequest { peer, is_put, has_event, cookie, .. } = request;
        self.sent = self.sent.wrapping_add(2);
        if has_event {
            let (operation, tag, immediate, flags) = (self.direct_id(is_put), 0, 0, 0);
            self.t.short_done.push(ShortCompletion { cookie, operation, tag, immediate, peer, bytes, flags });
        }
    }

    /// The id of the request for which [`direct_done`](Self::direct_done) was just called.
    #[inline(always)]
    pub const fn direct_id(&self, is_put: bool) -> OpId {
        one_sided_id(is_put, self.sent)
    }

    /// Whether a peer may put into a window that has memory which `is_of_it` selects.
    pub fn is_exposed_to_puts(&self, is_of_it: impl Fn(&Seg) -> bool) -> bool {
        let is_it = |window: u32| {
            let slot = self.t.windows.at(window);
            slot.access.write && is_of_it(&slot.seg)
        };
        self.t.windows.indices().any(is_it)
    }
}
