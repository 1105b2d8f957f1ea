//! Every table of an endpoint, carved once from the caller's region. `layout` and `carve` are adjacent: both
//! must take the same memory in the same order.

use core::mem::size_of;
use core::ops::Range;

use super::timer::{TIMERS, Timer};
use crate::api::action::{Span, SpanOf};
use crate::api::config::Config;
use crate::fast::{Completions, Line};
use crate::ids::{Key, OpId, PeerId, PlaceId, RailId};
use crate::mem::Seg;
use crate::op::{Message, Op, OpKind, Packet, Queue, ShortRecord, WindowSlot};
use crate::paths::Paths;
use crate::peer::{Channel, Held, Parked, Place, Sub};
use crate::rel::blocks::Blocks;
use crate::rel::credit::Grants;
use crate::rel::retain::Retention;
use crate::seq::{RecvWindow, Seq};
use crate::store::list::By;
use crate::store::slab::Slot;
use crate::store::{Arena, ArenaError, Link, NONE, Slab, Timers};
use crate::tag::{MatchConfig, Matcher};
use crate::time::Time;
use crate::wire::{AddressText, RemoteKeys};

/// A known peer, connected or not: 16 bytes. The numbers of a parked channel are in [`Tables::parked`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peer {
    /// Bit per rail that reaches it; 0: unknown.
    pub rails: u64,
    /// Its channel, or [`NONE`].
    pub channel: u32,
    pub gone: bool,
    /// It has a channel, and is not gone: a receive from it needs no more checks.
    pub is_met: bool,
    /// BYE may have been lost with its connection. If a rail moves then, this process connects to the peer
    /// (G-10).
    pub unnotified: bool,
    /// How often it was removed: see [`first_number`](super::Endpoint::first_number).
    pub lives: u8,
}

const _: () = assert!(size_of::<Peer>() == 16);

/// The most completions of the express path that may wait.
const SHORT_DONE_MAX: u32 = 512;

/// Sizes in bytes, for `ARCHITECTURE.md` and the test that pins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// A peer that is known and idle.
    pub idle_peer: usize,
    /// Additional bytes of a connected peer, in all tables: what one more of
    /// [`channels_max`](Config::channels_max) adds to [`Config::memory_bytes`]. Its share of the payload pool
    /// is not in it.
    pub connected_peer: usize,
    /// An operation slot with `config`'s segments.
    pub operation: usize,
    /// An unacknowledged packet.
    pub packet: usize,
}

/// The sizes that follow from a valid configuration.
pub fn sizes(config: &Config) -> Sizes {
    let state_bytes = |channels_max| bytes(&Config { channels_max, ..*config }).unwrap_or(usize::MAX);
    // The mean of many: gaps that align tables differ from one to the next.
    const MORE: u32 = 64;
    let more = state_bytes(config.channels_max.saturating_add(MORE)) - state_bytes(config.channels_max);
    Sizes {
        idle_peer: size_of::<Peer>() + size_of::<Parked>(),
        connected_peer: more / MORE as usize,
        operation: size_of::<Slot<Op>>() + config.segments_max as usize * size_of::<Seg>(),
        packet: size_of::<Slot<Packet>>(),
    }
}

/// Bytes of all tables; `None`: more than the address space.
pub(super) fn bytes(config: &Config) -> Option<usize> {
    Arena::bytes_of(|arena| {
        Tables::carve(arena, config, Time(0))?;
        Paths::carve(arena, config, &[])
    })
}

pub(crate) struct Tables<'m> {
    pub peers: &'m mut [Peer],
    /// By peer: its parked channel.
    pub parked: &'m mut [Parked],
    pub channels: Slab<'m, Channel>,
    pub subs: &'m mut [Sub],
    pub sent_slots: &'m mut [u32],
    pub recv_bits: &'m mut [u64],
    pub reorder_slots: &'m mut [u32],
    pub timers: Timers<'m>,
    pub ops: Slab<'m, Op>,
    pub segments: &'m mut [Seg],
    pub packets: Slab<'m, Packet>,
    pub messages: Slab<'m, Message>,
    /// Of these, the messages of parked channels; and the peers that they are of.
    pub held: Held,
    pub held_peers: u32,
    pub blocks: Blocks<'m>,
    /// Retained copies; with records where they are of short messages.
    pub retention: Retention<'m, ShortRecord>,
    /// By rail: its address, if it has moved since the start (F-12); else empty.
    pub addresses: &'m mut [AddressText],
    pub key_sets: Slab<'m, KeySet>,
    pub windows: Slab<'m, WindowSlot>,
    /// Window slots in order of their keys.
    pub windows_by_key: &'m mut [u32],
    pub windows_len: usize,
    pub counters: &'m mut [u64],
    pub matcher: Matcher<'m>,
    /// By channel: its express path.
    pub lines: &'m mut [Line],
    /// Completions of the express path.
    pub short_done: Completions<'m>,
    window: usize,
    segments_max: usize,
    rails_max: usize,
}

/// Keys of one buffer, ours or the peer's. `heapless::Vec` is no `Copy`, tables are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeySet {
    keys: [crate::wire::RemoteKey; crate::wire::KEYS_MAX],
    len: u8,
    /// A key was removed, or never arrived.
    is_incomplete: bool,
    /// In the endpoint's list of sets to release.
    link: Link,
}

const _: () = assert!(size_of::<KeySet>() == 208);

impl KeySet {
    pub(crate) fn of(keys: &[crate::wire::RemoteKey]) -> KeySet {
        let mut set = KeySet::default();
        for key in keys {
            set.push(*key);
        }
        set
    }

    /// As [`of`](Self::of), for a transfer that is already cut: a rail with a part of it may have no key
    /// here.
    pub(crate) fn with_gaps(keys: &[crate::wire::RemoteKey]) -> KeySet {
        KeySet { is_incomplete: true, ..KeySet::of(keys) }
    }

    /// Adds a key, if there is room: a rail beyond `KEYS_MAX` is not used for this buffer.
    pub(crate) fn push(&mut self, key: crate::wire::RemoteKey) {
        if let Some(slot) = self.keys.get_mut(usize::from(self.len)) {
            *slot = key;
            self.len += 1;
        }
    }

    /// Removes the key of a rail.
    pub(crate) fn forget(&mut self, rail: u8) {
        let len = usize::from(self.len);
        if let Some(at) = self.keys[..len].iter().position(|key| key.rail == rail) {
            self.keys.copy_within(at + 1..len, at);
            self.len -= 1;
            self.is_incomplete = true;
        }
    }

    /// Whether there may be fewer keys than rails with work: users of the keys must check.
    pub(crate) const fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Removes and returns a key.
    pub(crate) fn pop(&mut self) -> Option<crate::wire::RemoteKey> {
        let last = *self.as_slice().last()?;
        self.len -= 1;
        Some(last)
    }

    pub(crate) fn as_slice(&self) -> &[crate::wire::RemoteKey] {
        &self.keys[..usize::from(self.len)]
    }

    pub(crate) fn to_vec(self) -> RemoteKeys {
        RemoteKeys::from_slice(self.as_slice()).unwrap_or_default()
    }
}

impl<'m> Tables<'m> {
    const fn match_config(config: &Config) -> MatchConfig {
        MatchConfig {
            posted_max: config.operations_max,
            unexpected_max: config.messages_max(),
            buckets: config.match_buckets,
        }
    }

    /// Completions of the express path that may wait to be taken: beyond that, messages use the normal path.
    const fn short_done_max(config: &Config) -> u32 {
        if config.operations_max < SHORT_DONE_MAX { config.operations_max } else { SHORT_DONE_MAX }
    }

    pub(crate) fn carve(a: &mut Arena<'m>, config: &Config, now: Time) -> Result<Self, ArenaError> {
        let c = config;
        let channels = c.channels_max as usize;
        let window = c.window as usize;
        let grants = Grants::new(Seq(0), c.unexpected_per_peer, c.blocks_per_peer);
        let blank = || Channel::new(PeerId(0), Seq(0), grants, now);
        Ok(Tables {
            peers: a.take(c.peers_max as usize, Peer { channel: NONE, ..Peer::default() })?,
            parked: a.take(c.peers_max as usize, Parked::default())?,
            channels: Slab::carve(a, c.channels_max, blank)?,
            subs: a.take_with(c.subchannels_max() as usize, |_| Sub { frame_generation: 1, ..Sub::default() })?,
            sent_slots: a.take(channels * 2 * window, NONE)?,
            recv_bits: a.take(channels * 2 * RecvWindow::words(c.window), 0)?,
            reorder_slots: a.take(channels * window, NONE)?,
            timers: Timers::carve(a, c.channels_max * TIMERS)?,
            ops: Slab::carve(a, c.operation_slots(), || Op::new(OpKind::None))?,
            segments: a.take(c.operation_slots() as usize * usize::from(c.segments_max), Seg::default())?,
            packets: Slab::carve(a, c.packets_max, Packet::default)?,
            messages: Slab::carve(a, c.messages_max(), Message::default)?,
            held: Held::default(),
            held_peers: 0,
            blocks: Blocks::carve(a, c.blocks_max())?,
            retention: Retention::carve(a, c.retained_max, c.retained_base(), c.retained_stride())?,
            addresses: a.take(usize::from(c.rails_max), AddressText::default())?,
            key_sets: Slab::carve(a, c.bulk_max, KeySet::default)?,
            windows: Slab::carve(a, c.windows_max, WindowSlot::default)?,
            windows_by_key: a.take(c.windows_max as usize, NONE)?,
            windows_len: 0,
            counters: a.take(usize::from(c.counters_max), 0)?,
            matcher: Matcher::carve(a, &Self::match_config(config))?,
            lines: a.take(channels, Line::CLOSED)?,
            short_done: Completions::carve(a, Self::short_done_max(config))?,
            window,
            segments_max: usize::from(c.segments_max),
            rails_max: usize::from(c.rails_max),
        })
    }

    // ---- flat tables by channel

    pub(crate) fn sub_index(&self, channel: u32, rail: RailId) -> usize {
        channel as usize * self.rails_max + usize::from(rail.0)
    }

    pub(crate) fn sub(&mut self, channel: u32, rail: RailId) -> &mut Sub {
        &mut self.subs[channel as usize * self.rails_max + usize::from(rail.0)]
    }

    pub(crate) fn subs_of(&mut self, channel: u32) -> &mut [Sub] {
        &mut self.subs[channel as usize * self.rails_max..][..self.rails_max]
    }

    /// The channel and its slots of the sent window of `lane`.
    #[inline(always)]
    pub(crate) fn sent(&mut self, channel: u32, lane: usize) -> (&mut Channel, &mut [u32]) {
        let at = self.sent_at(channel, lane);
        (self.channels.at_mut(channel), &mut self.sent_slots[at])
    }

    /// Where these slots lie in their table.
    #[inline(always)]
    pub(crate) const fn sent_at(&self, channel: u32, lane: usize) -> Range<usize> {
        let at = (channel as usize * 2 + lane) * self.window;
        at..at + self.window
    }

    /// The channel and its bits of the receive window of `lane`.
    pub(crate) fn received(&mut self, channel: u32, lane: usize) -> (&mut Channel, &mut [u64]) {
        let words = RecvWindow::words(self.window as u32);
        let at = (channel as usize * 2 + lane) * words;
        (self.channels.at_mut(channel), &mut self.recv_bits[at..at + words])
    }

    /// The channel and its slots of the out-of-order queue.
    pub(crate) fn reorder(&mut self, channel: u32) -> (&mut Channel, &mut [u32]) {
        let at = channel as usize * self.window;
        (self.channels.at_mut(channel), &mut self.reorder_slots[at..at + self.window])
    }

    // ---- operations

    pub(crate) fn op_segments(&self, op: u32) -> &[Seg] {
        // A copy may still be requested when its operation is complete and reported: the segments stay until
        // the slot is reused.
        let len = usize::from(self.ops.last_at(op).segments);
        &self.segments[op as usize * self.segments_max..][..len]
    }

    pub(crate) fn set_segments(&mut self, op: u32, segments: &[Seg]) {
        self.segments[op as usize * self.segments_max..][..segments.len()].copy_from_slice(segments);
        self.ops.at_mut(op).segments = segments.len() as u8;
    }

    pub(crate) fn op_id(&self, op: u32) -> OpId {
        OpId(self.ops.key_at(op).unwrap_or_default())
    }

    /// The index of a live operation by its external id.
    pub(crate) fn find_op(&self, id: u64) -> Option<u32> {
        let key = Key::from_bits(id);
        self.ops.get(key).map(|_| key.index)
    }

    pub(crate) fn op_span(&self, op: u32, offset: u64, len: u64) -> Span {
        if len == 0 { Span::EMPTY } else { Span { of: SpanOf::Op(op), offset, len } }
    }

    /// The peer that has sent a message.
    pub(crate) fn sender_of(&self, message: u32) -> PeerId {
        let message = self.messages.at(message);
        message.parked_peer().unwrap_or_else(|| self.channels.at(message.channel).peer)
    }

    /// Puts an operation into the queue in its `queued` field.
    pub(crate) fn enqueue(&mut self, op: u32, queued: Queue) {
        let slot = self.ops.at_mut(op);
        debug_assert_eq!(slot.queued, Queue::None, "operation {op} is queued already");
        slot.queued = queued;
        let channel = slot.channel;
        let (channels, mut links) = (&mut self.channels, By(&mut self.ops, op_queue));
        let channel = channels.at_mut(channel);
        if matches!(queued, Queue::Ordered | Queue::Control) {
            channel.express_budget.stop_sending();
        }
        if let Some(queue) = channel.queues.named(queued) {
            queue.push_back(&mut links, op);
        }
    }

    /// Takes an operation out of its channel's queue.
    pub(crate) fn dequeue(&mut self, op: u32) {
        let slot = self.ops.at_mut(op);
        let queued = core::mem::take(&mut slot.queued);
        let channel = slot.channel;
        let (channels, mut links) = (&mut self.channels, By(&mut self.ops, op_queue));
        let channel = channels.at_mut(channel);
        if let Some(queue) = channel.queues.named(queued) {
            queue.unlink(&mut links, op);
        }
    }

    // ---- placements

    pub(crate) fn place(&self, id: PlaceId) -> Option<&Place> {
        let sub = self.subs.get(id.0.index as usize)?;
        if sub.place_generation == id.0.generation { sub.place.as_ref() } else { None }
    }

    /// Opens a placement on a subchannel, which has none.
    pub(crate) fn open_place(&mut self, sub: usize, place: Place) -> PlaceId {
        let slot = &mut self.subs[sub];
        slot.place_generation = slot.place_generation.wrapping_add(1).max(1);
        slot.place = Some(place);
        PlaceId(Key { index: sub as u32, generation: slot.place_generation })
    }

    // ---- windows

    pub(crate) fn window_by_key(&self, key: u64) -> Result<usize, usize> {
        self.windows_by_key[..self.windows_len].binary_search_by_key(&key, |&w| self.windows.at(w).key)
    }

    // ---- peers

    pub(crate) fn channel_of(&self, peer: PeerId) -> Option<u32> {
        let channel = self.peers.get(peer.0 as usize)?.channel;
        (channel != NONE).then_some(channel)
    }

    /// A peer's channel: its index, which is no channel's where there is none.
    #[inline(always)]
    pub(crate) fn channel_index_of(&self, peer: PeerId) -> u32 {
        self.peers.get(peer.0 as usize).map_or(NONE, |peer| peer.channel)
    }

    pub(crate) fn is_quiet(&self, peer: Option<PeerId>) -> bool {
        self.channels.indices().all(|index| {
            let channel = self.channels.at(index);
            peer.is_some_and(|peer| peer != channel.peer) || channel.is_over() || channel.is_quiet()
        })
    }

    /// Sets a channel's timer, whether it ran or not.
    #[inline]
    pub(crate) fn set_timer(&mut self, channel: u32, timer: Timer, at: Time) {
        self.timers.set(timer.of(channel), at);
    }

    /// Stops a channel's timer, if it runs.
    #[inline(always)]
    pub(crate) fn cancel_timer(&mut self, channel: u32, timer: Timer) {
        self.timers.cancel(timer.of(channel));
    }

    /// Whether a channel's timer runs.
    #[inline(always)]
    pub(crate) fn has_timer(&self, channel: u32, timer: Timer) -> bool {
        self.timers.is_set(timer.of(channel))
    }
}

/// Links of the `queue` of operations.
pub(crate) fn op_queue<'t>(ops: &'t mut Slab<'_, Op>, index: u32) -> &'t mut Link {
    &mut ops.at_mut(index).queue
}

/// Links of the `rma` list of operations.
pub(crate) fn op_rma<'t>(ops: &'t mut Slab<'_, Op>, index: u32) -> &'t mut Link {
    &mut ops.at_mut(index).rma
}

/// Links of the `event` list of operations.
pub(crate) fn op_event<'t>(ops: &'t mut Slab<'_, Op>, index: u32) -> &'t mut Link {
    &mut ops.at_mut(index).event
}

/// Links of the list of key sets to release.
pub(crate) fn key_set_link<'t>(sets: &'t mut Slab<'_, KeySet>, index: u32) -> &'t mut Link {
    &mut sets.at_mut(index).link
}

/// Links of the list of active channels.
pub(crate) fn channel_active<'t>(channels: &'t mut Slab<'_, Channel>, index: u32) -> &'t mut Link {
    &mut channels.at_mut(index).active
}

/// Links of the lists of channels that wait for a shared resource.
pub(crate) fn channel_waits(
    shortage: crate::peer::Shortage,
) -> impl for<'t> FnMut(&'t mut Slab<'_, Channel>, u32) -> &'t mut Link {
    move |channels, index| &mut channels.at_mut(index).waits[shortage as usize]
}

/// Links of the list of channels with events.
pub(crate) fn channel_event<'t>(channels: &'t mut Slab<'_, Channel>, index: u32) -> &'t mut Link {
    &mut channels.at_mut(index).event
}
