//! Which subchannels of a channel may be posted on: bit masks over rails, kept up to date by whoever changes
//! a subchannel, so that nobody looks at all rails for each packet and one that is not used costs nothing.

use super::channel::Sub;
use super::{Endpoint, MessageClass};
use crate::ids::RailId;
use crate::rail::sched::Candidates;
use crate::rail::{Caps, RailFacts, rails_of};
use crate::time::Nanos;

/// Posts that a rail always gets, however slow it is: one that it works on, and one to go on with.
const FEED_POSTS_MIN: u16 = 2;

/// While the peer's senders wait for us to say that their messages are placed, rails have this part of
/// `feed_time` ahead: a FIN waits behind what its rail was given before.
const FEED_PART_PENDING: u64 = 5;

/// But for as long as this many times a rail's latency: what it has ahead must last until the word comes back
/// that some of it is through, there and back, and some of that is always under way.
const FEED_LATENCIES: u64 = 4;

/// Rails of a channel, bit per rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rooms {
    /// Packets may be posted: the subchannel stands and both have said Connect.
    pub ready: u64,
    /// Those of them that take one more post, one being kept for unsequenced frames (L-4).
    pub room: u64,
    /// Those of them that are to be fed payload of large transfers: what they have lasts for less than
    /// `feed_time` (P-3).
    pub feed: u64,
}

impl Rooms {
    fn set(&mut self, rail: RailId, sub: &Sub, facts: &RailFacts, feed_time: Nanos) {
        let ready = sub.is_ready();
        let room = ready && sub.has_room(facts);
        let feed = room && (sub.posts < FEED_POSTS_MIN || sub.path.lasts_less_than(feed_time));
        let bit = |value| u64::from(value) << rail.0;
        let others = !bit(true);
        self.ready = self.ready & others | bit(ready);
        self.room = self.room & others | bit(room);
        self.feed = self.feed & others | bit(feed);
    }
}

/// Whether a subchannel with these posts is in the same masks as it is with none: it has room, and fewer
/// posts than it always gets. So what most small messages do to their rail, a post and its completion, moves
/// nothing.
pub(super) const fn is_light(sub: &Sub, facts: &RailFacts) -> bool {
    sub.posts < FEED_POSTS_MIN && sub.has_room(facts)
}

impl Endpoint<'_> {
    /// A subchannel has changed: state, posts, or rate.
    pub(super) fn refresh(&mut self, channel: u32, rail: RailId) {
        let before = self.ready(channel);
        self.refresh_load(channel, rail);
        if self.ready(channel) != before {
            self.line_has_changed(channel);
            self.find_nearest(channel);
        }
    }

    /// A subchannel's posts or rate have changed, its state has not: what happens for each segment.
    pub(super) fn refresh_load(&mut self, channel: u32, rail: RailId) {
        let sub = &self.t.subs[self.t.sub_index(channel, rail)];
        let facts = &self.rails[usize::from(rail.0)];
        let feed_time = self.feed_time(channel, rail, facts);
        self.t.channels.at_mut(channel).rooms.set(rail, sub, facts, feed_time);
    }

    /// For how long a rail is given payload ahead (P-3).
    pub(super) fn feed_time(&self, channel: u32, rail: RailId, facts: &RailFacts) -> Nanos {
        let whole = self.config.feed_time;
        if self.t.channels.at(channel).fins_pending == 0 {
            return whole.max(facts.feed_time_min);
        }
        let way = u64::from(self.estimated_latency(channel, rail)) * FEED_LATENCIES;
        Nanos(whole.0 / FEED_PART_PENDING).max(Nanos(way).min(whole)).max(facts.feed_time_min)
    }

    /// An operation has begun, or ceased, to owe its peer a FIN: the first and the last of a channel change
    /// what its rails are fed by `balanced`. The policies of the papers feed as these do.
    pub(super) fn set_fins_pending(&mut self, op: u32, owes: bool) {
        if owes && !self.policies.cut(MessageClass::Large).estimates {
            return;
        }
        let slot = self.t.ops.at_mut(op);
        if core::mem::replace(&mut slot.fin_pending, owes) == owes {
            return;
        }
        let channel = slot.channel;
        let owing = &mut self.t.channels.at_mut(channel).fins_pending;
        let before = *owing;
        *owing = if owes { before + 1 } else { before - 1 };
        if before == 0 || *owing == 0 {
            for rail in rails_of(self.ready(channel)) {
                // What is light is fed either way.
                let sub = &self.t.subs[self.t.sub_index(channel, rail)];
                if !is_light(sub, &self.rails[usize::from(rail.0)]) {
                    self.refresh_load(channel, rail);
                }
            }
        }
    }

    /// All subchannels of a channel as they are: what `refresh` must have led to.
    pub(super) fn rooms_are_right(&self, channel: u32) -> bool {
        let mut rooms = Rooms::default();
        for (rail, facts) in (0..).zip(&self.rails) {
            let sub = &self.t.subs[self.t.sub_index(channel, RailId(rail))];
            rooms.set(RailId(rail), sub, facts, self.feed_time(channel, RailId(rail), facts));
        }
        self.t.channels.at(channel).rooms == rooms
    }

    /// Rails of a channel for the scheduler.
    pub(super) fn candidates(&self, channel: u32) -> Candidates {
        let Rooms { ready, room, .. } = self.t.channels.at(channel).rooms;
        Candidates { up: ready, room }
    }

    /// Rails of a channel on which packets may be posted: bit per rail.
    pub(super) fn ready(&self, channel: u32) -> u64 {
        self.t.channels.at(channel).rooms.ready
    }

    /// Rails of a channel that are ready and have what `wanted` asks for.
    pub(super) fn ready_with(&self, channel: u32, wanted: impl Fn(&Caps) -> bool) -> u64 {
        let ready = self.ready(channel);
        let able = rails_of(ready).filter(|rail| {
            wanted(&self.rails[usize::from(rail.0)].caps)
                && !self.t.subs[self.t.sub_index(channel, *rail)].path.no_remote_access
        });
        able.fold(0, |mask, rail| mask | 1 << rail.0)
    }

    /// Of some rails the one that will be through first with what it has (P-3). `mask` has at least one bit.
    pub(super) fn idlest(&self, channel: u32, mask: u64) -> RailId {
        let path = |rail| &self.t.subs[self.t.sub_index(channel, rail)].path;
        let mut rails = rails_of(mask);
        let first = rails.next().unwrap_or_default();
        rails.fold(first, |best, rail| if path(rail).is_through_before(path(best)) { rail } else { best })
    }
}
