//! Slots of the shared tables: channels and operations take them, wait for them where a table is full, and
//! give them back; the stripe set and the keys of an operation go with it. Also the list of channels with
//! something to send, which the end of a wait adds to.

use super::tables::{channel_active, channel_event, channel_waits, key_set_link, op_rma};
use super::timer::Timer;
use super::{Endpoint, RailFault, RequestKind};
use crate::fast::{Line, ShortCompletion};
use crate::ids::{Key, OpId, PeerId, RailId};
use crate::log;
use crate::op::{Message, Op, OpKind, Phase};
use crate::peer::{Channel, Held, ORDERED, Shortage, UNNUMBERED, UNORDERED};
use crate::rail::rails_of;
use crate::rail::set::RailSet;
use crate::rel::credit::Grants;
use crate::rel::link::Link;
use crate::seq::Seq;
use crate::store::NONE;
use crate::store::list::By;
use crate::tag::Direct;
use crate::time::Time;
use crate::wire::{RemoteKey, RemoteKeys};

/// Indices in ids of requests without an operation, above those of all operations: a receive that is an entry
/// of the matcher has this bit and its index there.
pub(super) const DIRECT: u32 = 1 << 31;
/// A send that is complete when it is submitted; its generation counts them.
pub(super) const SENT: u32 = 1 << 30;
/// Index of the ids of puts and gets without one; 1 more than [`SENT`] is that of `express::WAITED`.
const PUT: u32 = SENT | 2;
/// See [`PUT`].
const GOT: u32 = SENT | 3;

impl Endpoint<'_> {
    /// Puts a channel on the list of those with something to send.
    pub(super) fn activate(&mut self, channel: u32) {
        let mut links = By(&mut self.t.channels, channel_active);
        if !crate::store::Links::link(&mut links, channel).is_linked() {
            self.hot.active.push_back(&mut links, channel);
            self.hot.may_have_work = true;
        }
    }

    /// A channel has found a shared table full: it waits until an entry comes free.
    pub(super) fn wait_for(&mut self, channel: u32, shortage: Shortage) {
        if !self.channel(channel).waits[shortage as usize].is_linked() {
            let mut links = By(&mut self.t.channels, channel_waits(shortage));
            self.waiting[shortage as usize].push_back(&mut links, channel);
        }
    }

    /// An entry of a shared table may have come free: the channel that has waited longest gets its turn. It
    /// wakes the next one if it leaves entries unused.
    #[inline]
    pub(super) fn wake(&mut self, shortage: Shortage) {
        if !self.waiting[shortage as usize].is_empty() {
            self.wake_next(shortage);
        }
    }

    #[cold]
    fn wake_next(&mut self, shortage: Shortage) {
        let free = match shortage {
            Shortage::Packets => self.t.packets.room(),
            Shortage::Stripes => self.paths.stripe_sets.room(),
        };
        if free == 0 {
            return;
        }
        let mut links = By(&mut self.t.channels, channel_waits(shortage));
        if let Some(channel) = self.waiting[shortage as usize].pop_front(&mut links) {
            self.activate(channel);
        }
    }

    /// Where this side's numbers for a peer begin: elsewhere in each life of a peer that is added again, so
    /// that it can't take one channel for the next (F-1, K-5).
    pub(super) fn first_number(&self, peer: PeerId) -> Seq {
        let lives = self.t.peers[peer.0 as usize].lives;
        Seq(self.config.first_number.wrapping_add(u32::from(lives) << 16))
    }

    /// Opens a channel to an idle peer, whichever side dials first: a peer that connects on one rail is
    /// dialled on the others (L-1).
    pub(super) fn open_channel(&mut self, now: Time, peer: PeerId) -> Option<u32> {
        if self.room_for_channels(peer) == 0 {
            return None;
        }
        let first = self.first_number(peer);
        let grants = Grants::new(first, self.config.unexpected_per_peer, self.config.blocks_per_peer);
        let rails = self.t.peers[peer.0 as usize].rails;
        let mut channel = Channel::new(peer, first, grants, now);
        channel.work.dial_all(RailSet(rails));
        if self.config.number.is_some() {
            channel.source = UNNUMBERED;
        }
        for rail in rails_of(rails) {
            channel.limits.add(self.paths.facts(rail));
        }
        let parked = self.t.parked.get_mut(peer.0 as usize)?;
        if parked.is_some() {
            parked.resume(&mut channel);
        }
        let index = self.t.channels.insert(channel)?.index;
        let parked = core::mem::take(parked);
        self.t.channels.at_mut(index).express_budget.sent_from = self.t.sent_at(index, ORDERED).start as u32;
        let slot = &mut self.t.peers[peer.0 as usize];
        (slot.channel, slot.is_met) = (index, !slot.gone);
        for lane in [ORDERED, UNORDERED] {
            self.t.sent(index, lane).1.fill(NONE);
            self.t.received(index, lane).1.fill(0);
        }
        self.t.reorder(index).1.fill(NONE);
        self.t.lines[index as usize] = Line::of(peer);
        self.paths.begin_peer(index);
        for sub in self.t.subs_of(index) {
            sub.reset();
            sub.link = Link::numbered_from(if parked.is_some() { parked.connection } else { first.0 });
        }
        log::debug!("peer {}: channel opened, rails {:x}", peer.0, rails);
        let mut timeout = self.config.connect_timeout;
        if parked.is_some() {
            // As after a failure of all connections (K-5).
            self.stats.resumed += 1;
            self.t.held = self.t.held.without(parked.held());
            self.resume_messages(index, parked.held().messages);
            let slot = self.t.channels.at_mut(index);
            slot.silence.outage_begins(now, RailId(0), RailFault::Closed);
            timeout = self.config.recovery_timeout;
        }
        if !parked.is_some() || timeout.0 > 0 {
            self.t.set_timer(index, Timer::Connect, now + timeout);
        }
        self.activate(index);
        Some(index)
    }

    /// Channels that may be opened, one of them to `peer`. Each has its share of the messages and blocks;
    /// those of other peers' parked channels take shares away.
    pub(super) fn room_for_channels(&self, peer: PeerId) -> u32 {
        let room = self.t.channels.room();
        if self.t.held_peers == 0 {
            return room;
        }
        let (messages, blocks) = (self.config.unexpected_per_peer, self.config.blocks_per_peer);
        let own = self.t.parked[peer.0 as usize].held();
        if own.messages > 0 {
            return room.saturating_sub(self.t.held.without(own).shares(messages, blocks));
        }
        // One channel is left for those with messages, which opens with one message at least.
        let rest = self.t.held.without(Held { messages: 1, blocks: 0 });
        room.saturating_sub((1 + rest.shares(messages, blocks)).min(self.t.held_peers))
    }

    /// Whether a message can be received. If it is to be answered, its channel opens where it is parked, if
    /// there is room.
    pub(super) fn has_channel(&mut self, now: Time, message: u32) -> bool {
        let slot = self.message(message);
        let Some(peer) = slot.parked_peer() else { return true };
        let is_answered = slot.rendezvous || slot.want_placed && !self.t.peers[peer.0 as usize].gone;
        let is_there = !is_answered || self.open_channel(now, peer).is_some();
        self.lacks_channel |= !is_there;
        is_there
    }

    /// The messages of a channel that is parked belong to its peer until it goes on.
    pub(super) fn park_messages(&mut self, channel: u32) {
        let slot = self.channel(channel);
        let (peer, mut left) = (slot.peer, slot.messages);
        self.t.held_peers += u32::from(left > 0);
        let mut walk = self.t.messages.walk();
        while left > 0
            && let Some(index) = self.t.messages.step(&mut walk)
        {
            let message = self.message_mut(index);
            if message.channel == channel {
                message.channel = Message::parked_of(peer);
                // They end with its connections.
                let keys = core::mem::replace(&mut message.keys, NONE);
                self.drop_key_set(keys, false);
                left -= 1;
            }
        }
    }

    /// The channel goes on, and holds so many of them.
    fn resume_messages(&mut self, channel: u32, mut left: u32) {
        let of = Message::parked_of(self.channel(channel).peer);
        self.t.held_peers -= u32::from(left > 0);
        let mut walk = self.t.messages.walk();
        while left > 0
            && let Some(index) = self.t.messages.step(&mut walk)
        {
            let message = self.message_mut(index);
            if message.channel == of {
                message.channel = channel;
                left -= 1;
            }
        }
    }

    pub(super) fn queue_channel_event(&mut self, channel: u32) {
        let mut links = By(&mut self.t.channels, channel_event);
        if !crate::store::Links::link(&mut links, channel).is_linked() {
            self.channel_events.push_back(&mut links, channel);
            self.hot.may_have_work = true;
        }
    }

    /// Frees a channel's slot once it is over, reported, disconnected and nothing refers to it.
    #[inline]
    pub(super) fn free_channel_if_idle(&mut self, channel: u32) {
        // A slot that is free already belonged to a channel that was over.
        if self.t.channels.last_at(channel).is_over() {
            self.free_over_channel_if_idle(channel);
        }
    }

    fn free_over_channel_if_idle(&mut self, channel: u32) {
        let Some(key) = self.t.channels.key_at(channel) else { return };
        let slot = self.channel(channel);
        if slot.event.is_linked() || slot.work.has_connections() || slot.messages > 0 || slot.ops > 0 {
            return;
        }
        let peer = slot.peer;
        for timer in [Timer::Connect, Timer::Redial, Timer::Watch] {
            self.t.cancel_timer(channel, timer);
        }
        let mut links = By(&mut self.t.channels, channel_active);
        self.hot.active.unlink(&mut links, channel);
        self.t.channels.remove(key);
        let slot = &mut self.t.peers[peer.0 as usize];
        (slot.channel, slot.is_met) = (NONE, false);
    }

    /// A slot for an operation; the caller has checked that there is one.
    pub(super) fn new_op(&mut self, op: Op) -> u32 {
        let caller = !op.serves();
        if op.channel != NONE {
            self.t.channels.at_mut(op.channel).ops += 1;
        }
        match self.t.ops.insert(op) {
            Some(key) => {
                self.hot.caller_ops += u32::from(caller);
                key.index
            }
            // Capacity is the sum of both limits, and both are checked before: our bug.
            None => unreachable!("operation slots were counted wrong"),
        }
    }

    /// Gives a receive without an operation one, out of the matcher: its message is unusual.
    #[cold]
    pub(super) fn promote(&mut self, key: Key) -> Option<u32> {
        let Direct { to, cookie } = self.t.matcher.posted.direct(key)?;
        let source = self.t.matcher.posted.selector(key)?.source;
        let op = self.new_op(Op {
            len: to.len,
            cookie,
            peer: source.unwrap_or(PeerId::NONE),
            alias: key,
            ..Op::new(OpKind::Recv)
        });
        self.t.set_segments(op, &[to]);
        self.t.matcher.posted.promote(key, op);
        Some(op)
    }

    /// Requests of the caller that are not complete, or not reported.
    #[inline(always)]
    pub(super) fn open_requests(&self) -> u32 {
        self.hot.caller_ops + self.t.matcher.posted.direct_count()
    }

    /// Frees an operation's slot if nothing refers to it any more.
    #[inline]
    pub(super) fn release(&mut self, op: u32) {
        let slot = self.op(op);
        if slot.is_reported() && slot.is_idle() && slot.is_through() && slot.children == 0 {
            self.free_op(op);
        }
    }

    fn free_op(&mut self, op: u32) {
        let slot = self.op(op);
        let kind = slot.kind();
        let &Op { channel, retained, stripes, keys, counted_serving, alias, fin_seen, .. } = slot;
        let serves = slot.serves();
        if retained != NONE {
            self.t.retention.give(retained);
        }
        if stripes != NONE {
            self.drop_stripes(op);
        }
        if keys != NONE {
            self.drop_keys(op);
        }
        if kind == OpKind::RefusePut {
            self.refusals -= u32::from(!fin_seen);
            if channel != NONE {
                let list = &mut self.t.channels.at_mut(channel).requests.refusals;
                list.unlink(&mut By(&mut self.t.ops, op_rma), op);
            }
        }
        if alias != Key::default() {
            self.t.matcher.posted.end_promoted(alias);
        }
        self.t.ops.remove_at(op);
        self.hot.caller_ops -= u32::from(!serves);
        if channel != NONE {
            self.channel_mut(channel).ops -= 1;
            if counted_serving {
                self.channel_mut(channel).requests.serving -= 1;
                self.activate(channel);
            }
            self.free_channel_if_idle(channel);
        }
    }

    /// When all stripes of an operation are complete, uses their times for the path estimates and frees the
    /// set.
    pub(super) fn finish_stripes(&mut self, op: u32) {
        let slot = self.op(op);
        let set = slot.stripes;
        if set == NONE || !slot.all_sent || slot.posts > 0 || self.paths.stripe_sets.at(set).is_finished {
            return;
        }
        // The carriers of the writes are needed until the peer has all data (F-7).
        let keeps = slot.phase() == Phase::Writing;
        self.paths.finish_stripes(slot.channel, set);
        if !keeps {
            self.drop_stripes(op);
        }
    }

    pub(super) fn drop_stripes(&mut self, op: u32) {
        let slot = self.op_mut(op);
        let (set, channel) = (core::mem::replace(&mut slot.stripes, NONE), slot.channel);
        if set != NONE {
            self.paths.drop_set(channel, set);
            self.wake(Shortage::Stripes);
        }
    }

    /// A serving operation no longer uses its window.
    pub(super) fn unuse_window(&mut self, op: u32) {
        let window = core::mem::replace(&mut self.op_mut(op).window, NONE);
        if window != NONE {
            self.t.windows.at_mut(window).users -= 1;
        }
    }

    /// Answers in progress pin their slots, and a rail may keep them after their acknowledgment; when they
    /// reach the number of requests that the peer may have open, the next one waits (C-5, R-5).
    pub(super) fn must_wait_to_serve(&self, channel: u32, slot: &Op) -> bool {
        let serving = self.channel(channel).requests.serving;
        slot.serves() && !slot.counted_serving && serving >= self.config.requests_per_peer
    }

    pub(super) fn begin_serving(&mut self, channel: u32, op: u32) {
        let slot = self.op_mut(op);
        if slot.serves() && !slot.counted_serving {
            slot.counted_serving = true;
            self.channel_mut(channel).requests.serving += 1;
        }
    }

    /// The key of a set for our rail `rail` and its current connection: a key may arrive late over
    /// another rail, when the peer's device has given the same key to other memory (F-7).
    pub(super) fn key_for(&mut self, channel: u32, set: u32, rail: RailId) -> Option<RemoteKey> {
        let sub = self.sub_mut(channel, rail);
        let (rail, connection) = (sub.peer_rail, sub.link.pair().yours as u16);
        let keys = self.t.key_sets.at(set).as_slice().iter();
        keys.copied().find(|key| key.rail == rail && key.connection == connection)
    }

    /// The keys of our memory to send to the peer: each with the current connection of its rail.
    pub(super) fn keys_to_send(&self, channel: u32, set: u32) -> RemoteKeys {
        if set == NONE {
            return RemoteKeys::new();
        }
        let mut keys = self.t.key_sets.at(set).to_vec();
        for key in &mut keys {
            let sub = &self.t.subs[self.t.sub_index(channel, RailId(key.rail))];
            key.connection = sub.link.pair().mine as u16;
        }
        keys
    }

    /// Rails of `mask` for which the set has a key.
    pub(super) fn with_keys(&mut self, channel: u32, set: u32, mask: u64) -> u64 {
        let mut found = 0;
        for rail in 0..self.paths.rails.len() as u8 {
            if mask >> rail & 1 == 1 && self.key_for(channel, set, RailId(rail)).is_some() {
                found |= 1 << rail;
            }
        }
        found
    }

    /// Keys that the peer gave for a rail are invalid once its connection is dead: the next ones may differ
    /// (F-7).
    pub(super) fn forget_keys(&mut self, channel: u32, rail: RailId) {
        let peer_rail = self.sub_mut(channel, rail).peer_rail;
        let mut ops = self.t.ops_of(channel);
        while let Some(op) = self.t.next_of(&mut ops) {
            let slot = self.op(op);
            if slot.keys != NONE && !slot.keys_are_ours() {
                self.t.key_sets.at_mut(slot.keys).forget(peer_rail);
            }
        }
        if self.channel(channel).messages == 0 {
            return;
        }
        let mut walk = self.t.messages.walk();
        while let Some(index) = self.t.messages.step(&mut walk) {
            let message = self.message(index);
            if message.channel == channel && message.keys != NONE {
                self.t.key_sets.at_mut(message.keys).forget(peer_rail);
            }
        }
    }

    pub(super) fn drop_keys(&mut self, op: u32) {
        let slot = self.op_mut(op);
        let ours = slot.keys_are_ours();
        let set = core::mem::replace(&mut slot.keys, NONE);
        self.drop_key_set(set, ours);
    }

    pub(super) fn drop_key_set(&mut self, set: u32, ours: bool) {
        if set == NONE {
            return;
        }
        if let Some(key) = self.t.key_sets.key_at(set) {
            if ours {
                // Its slot is free once its registrations have been given back.
                self.released_keys.push_back(&mut By(&mut self.t.key_sets, key_set_link), set);
                self.hot.may_have_work = true;
            } else {
                self.t.key_sets.remove(key);
            }
        }
    }

    /// The device behind a rail has lost its registrations: their keys are not sent any more, and none is
    /// deregistered.
    pub(super) fn rail_reset(&mut self, rail: RailId) {
        let mut walk = self.t.ops.walk();
        while let Some(op) = self.t.ops.step(&mut walk) {
            let slot = self.op(op);
            if slot.keys != NONE && slot.keys_are_ours() {
                self.t.key_sets.at_mut(slot.keys).forget(rail.0);
            }
        }
        // Registrations about to be deregistered: the reset device may have given the same key to others.
        let mut walk = self.t.key_sets.walk();
        while let Some(set) = self.t.key_sets.step(&mut walk) {
            if key_set_link(&mut self.t.key_sets, set).is_linked() {
                self.t.key_sets.at_mut(set).forget(rail.0);
            }
        }
        for _ in 0..self.late_keys.len() {
            if let Some(late) = self.late_keys.pop_front().filter(|(of, _)| *of != rail) {
                let _ = self.late_keys.push_back(late);
            }
        }
    }

    /// The next registration to release.
    pub(super) fn pop_registration(&mut self) -> Option<(RailId, RemoteKey)> {
        loop {
            let set = self.released_keys.head();
            if set == NONE {
                return self.late_keys.pop_front();
            }
            if let Some(key) = self.t.key_sets.at_mut(set).pop() {
                return Some((RailId(key.rail), key));
            }
            self.released_keys.unlink(&mut By(&mut self.t.key_sets, key_set_link), set);
            if let Some(key) = self.t.key_sets.key_at(set) {
                self.t.key_sets.remove(key);
            }
        }
    }
}

impl ShortCompletion {
    /// What it is about: a message, or a put or get that was carried out at once.
    #[inline]
    pub const fn kind(&self) -> RequestKind {
        match self.operation.0.index {
            SENT => RequestKind::Send,
            PUT => RequestKind::Put,
            GOT => RequestKind::Get,
            _ => RequestKind::Recv,
        }
    }
}

/// The id of the n-th put or get that is complete when it is submitted.
pub(super) const fn one_sided_id(is_put: bool, count: u32) -> OpId {
    OpId(Key { index: if is_put { PUT } else { GOT }, generation: count })
}

/// The id of a receive without an operation.
#[inline(always)]
pub(super) const fn direct_id(key: Key) -> OpId {
    OpId(Key { index: key.index | DIRECT, generation: key.generation })
}
