//! Which subchannels of a channel may be posted on: bit masks over rails, updated on each change of a
//! subchannel, so that no packet needs a scan of all rails and an unused rail costs nothing.

use super::{Path, Paths};
use crate::ids::RailId;
use crate::rail::sched::{Aggregates, Candidates};
use crate::rail::{Caps, RailFacts, rails_of};
use crate::time::Nanos;

/// Posts that a rail always gets, however slow it is: one that it works on, and one to go on with.
const FEED_POSTS_MIN: u16 = 2;

/// While the peer's senders wait for our FINs, rails have this part of `feed_time` ahead: a FIN waits behind
/// what its rail was given before.
const FEED_PART_PENDING: u64 = 5;

/// But at least this many times a rail's latency: the work ahead must last until a completion comes back, and
/// some of it is always in flight.
const FEED_LATENCIES: u64 = 4;

/// Rails of a channel, bit per rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rooms {
    /// Packets may be posted: the subchannel is up and both sides have sent Connect.
    pub ready: u64,
    /// Those of them that take one more post, one being kept for unsequenced frames (L-4).
    pub room: u64,
    /// Those of them that are to be fed payload of large transfers: what they have lasts for less than
    /// `feed_time` (P-3).
    pub feed: u64,
}

impl Rooms {
    fn set(&mut self, rail: RailId, ready: bool, path: &Path, facts: &RailFacts, feed_time: Nanos) {
        let room = ready && has_room(path, facts);
        let feed = room && (path.in_flight < FEED_POSTS_MIN || path.lasts_less_than(feed_time));
        let bit = |value| u64::from(value) << rail.0;
        let others = !bit(true);
        self.ready = self.ready & others | bit(ready);
        self.room = self.room & others | bit(room);
        self.feed = self.feed & others | bit(feed);
    }
}

/// Whether a subchannel with these posts is in the same masks as it is with none: it has room, and fewer
/// posts than it always gets. So the post and the completion of most small messages change no mask.
pub(super) const fn is_light(path: &Path, facts: &RailFacts) -> bool {
    path.in_flight < light_below(facts)
}

/// Below how many posts that holds.
pub(super) const fn light_below(facts: &RailFacts) -> u16 {
    let room = facts.posts_max - 1;
    if room < FEED_POSTS_MIN { room } else { FEED_POSTS_MIN }
}

/// Whether it takes one more post, one being kept for unsequenced frames.
const fn has_room(path: &Path, facts: &RailFacts) -> bool {
    path.in_flight + 1 < facts.posts_max
}

impl Paths<'_> {
    /// Below how many posts a small message goes alone on a rail that is the only one: it has room, and is
    /// not so busy that messages gather. `None`: they gather anyway.
    pub(crate) fn alone_below(&self, rail: RailId) -> Option<u16> {
        let room = self.facts(rail).posts_max - 1;
        match self.policies.of_small().aggregates {
            Aggregates::Never => Some(room),
            Aggregates::WhileBusy => Some(room.min(self.settings.nic_depth)),
            Aggregates::Always => None,
        }
    }

    /// Sets whether packets may be posted on a rail. Returns whether that is a change.
    pub(crate) fn set_ready(&mut self, channel: u32, rail: RailId, is_ready: bool) -> bool {
        let before = self.ready(channel);
        self.refresh_as(channel, rail, is_ready);
        let has_changed = self.ready(channel) != before;
        if has_changed {
            self.find_lowest_latency(channel);
        }
        has_changed
    }

    /// A channel is over: no rail is ready.
    pub(crate) fn close_rooms(&mut self, channel: u32) {
        self.peer_mut(channel).rooms = Rooms::default();
    }

    /// A rail's posts or rate have changed, and not whether it is ready: what happens for each segment.
    pub(crate) fn refresh_load(&mut self, channel: u32, rail: RailId) {
        self.refresh_as(channel, rail, self.ready(channel) >> rail.0 & 1 == 1);
    }

    fn refresh_as(&mut self, channel: u32, rail: RailId, is_ready: bool) {
        let feed_time = self.feed_time(channel, rail, self.facts(rail));
        let at = self.index(channel, rail);
        let Paths { rails, paths, peers, .. } = self;
        peers[channel as usize].rooms.set(rail, is_ready, &paths[at], &rails[rail.index()], feed_time);
    }

    /// For how long a rail is given payload ahead (P-3).
    pub(crate) fn feed_time(&self, channel: u32, rail: RailId, facts: &RailFacts) -> Nanos {
        let whole = self.settings.feed_time;
        if self.peer(channel).fins_pending == 0 {
            return whole.max(facts.feed_time_min);
        }
        let pipe_ns = u64::from(self.estimated_latency(channel, rail)) * FEED_LATENCIES;
        Nanos(whole.0 / FEED_PART_PENDING).max(Nanos(pipe_ns).min(whole)).max(facts.feed_time_min)
    }

    /// An operation's FIN becomes pending, or is no longer: the first and the last of a channel change how
    /// far ahead `balanced` feeds its rails. The policies of the papers feed alike.
    pub(crate) fn set_fin_pending(&mut self, channel: u32, is_pending: bool) {
        let owing = &mut self.peer_mut(channel).fins_pending;
        let before = *owing;
        *owing = if is_pending { before + 1 } else { before - 1 };
        if before == 0 || *owing == 0 {
            for rail in rails_of(self.ready(channel)) {
                // What is light is fed either way.
                if !is_light(self.path(channel, rail), self.facts(rail)) {
                    self.refresh_load(channel, rail);
                }
            }
        }
    }

    /// Whether the masks of a channel are what they must be, where these rails are ready.
    pub(crate) fn rooms_are_right(&self, channel: u32, ready: u64) -> bool {
        let mut rooms = Rooms::default();
        for (rail, facts) in (0..).map(RailId).zip(&self.rails) {
            let is_ready = ready >> rail.0 & 1 == 1;
            rooms.set(rail, is_ready, self.path(channel, rail), facts, self.feed_time(channel, rail, facts));
        }
        self.peer(channel).rooms == rooms
    }

    /// Rails of a channel for the scheduler.
    pub(crate) fn candidates(&self, channel: u32) -> Candidates {
        let Rooms { ready, room, .. } = self.peer(channel).rooms;
        Candidates { up: ready, room }
    }

    /// Rails of a channel on which packets may be posted: bit per rail.
    pub(crate) fn ready(&self, channel: u32) -> u64 {
        self.peer(channel).rooms.ready
    }

    /// Rails of a channel that are ready and have the capabilities of `wanted`.
    pub(crate) fn ready_with(&self, channel: u32, wanted: impl Fn(&Caps) -> bool) -> u64 {
        let ready = self.ready(channel);
        let able = rails_of(ready)
            .filter(|rail| wanted(&self.rails[rail.index()].caps) && !self.path(channel, *rail).no_remote_access);
        able.fold(0, |mask, rail| mask | 1 << rail.0)
    }

    /// Of some rails the one that will complete its work first (P-3). `mask` has at least one bit.
    pub(crate) fn idlest(&self, channel: u32, mask: u64) -> RailId {
        let path = |rail| self.path(channel, rail);
        let mut rails = rails_of(mask);
        let first = rails.next().unwrap_or_default();
        rails.fold(first, |best, rail| if path(rail).is_through_before(path(best)) { rail } else { best })
    }
}
