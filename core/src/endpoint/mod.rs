//! The endpoint: submit work, feed what happened, poll what to do.
//!
//! The machines of the other modules return verdicts and never call each other; this module combines them.
//! `paths` chooses rails.

// The files in order: each imports from files above it only, and its methods of `Endpoint` call those of this
// file, its own, and those of files above it. `conformance/tests/style/order.rs` checks both. A comment for
// each keeps rustfmt from sorting them. First data, then methods.

// Kinds of timers.
mod timer;
// All tables.
mod tables;
// Operations of a channel.
mod bound;

// Slots: taken, waited for, freed.
mod slots;
// Completion of operations, and its events.
mod complete;
// Unconfirmed writes of a put rendezvous.
mod retry_epoch;
// RTS, CTS and FIN.
mod rendezvous;
// When the express path of a channel is open.
mod line;
// Short messages without operations: kept until acknowledged.
mod short;
// Packets built, posted, acknowledged.
mod packets;
// Messages arrive and meet buffers.
mod matching;
// One-sided requests of peers.
mod serve;
// Ends of channels, connects after them.
mod lifecycle;
// Several messages in one packet.
mod aggregate;
// What a dead connection leaves, sent again.
mod replay;
// Payload transfers.
mod bulk;
// Idle channels parked.
mod park;
// Subchannels that fail, redial or move.
mod recover;
// CONNECT, acknowledgments, probes, BYE.
mod frames;
// Stalled rails and silent peers.
mod detection;
// Arrival of packets.
mod arrive;
// Policies, and rails as callers see them.
mod rails;
// Messages of the express path.
mod express;
// Requests validated and queued.
mod submit;
// Reports of rails, and expired timers.
mod feed;
// Actions polled.
mod pump;
// Small messages over rails that can lose: sent at submission, received in one call.
mod at_once;
// Puts and gets that a rail carries out at once.
mod direct;
// Statistics, state and fill levels.
mod inspect;
// `Debug`.
mod debug;
// What only tests look at.
#[cfg(any(test, feature = "testing"))]
mod testing;

#[cfg(test)]
mod tests;

use core::mem::MaybeUninit;

pub use crate::api::action::{Action, Arrival, AtomicAction, Peek, Post, PostKind, Segments, Span};
pub use crate::api::error::*;
pub use crate::api::event::*;
pub use crate::api::feed::{PostStatus, RailEvent};
pub use crate::api::request::*;
pub use crate::api::stats::Stats;
pub use crate::fast::{LineId, ShortCompletion};
pub use at_once::AtOnce;
pub use direct::DirectRequest;
pub use express::{NextPlace, ShortArrival, ShortPost, ShortReceived, Waiting};
pub use inspect::{InUse, Usage};
pub use rails::{RailHealth, RailState};
pub use tables::{Sizes, sizes};
#[cfg(any(test, feature = "testing"))]
pub use testing::{ChannelInfo, LaneInfo, OperationInfo, SubchannelInfo};

pub use crate::paths::{
    Change, ClassPolicy, CopyBy, Explanation, MessageClass, RailStats, Registration, RegistrationCost, Route, Sampled,
    Share, TwoMeasures, Verdict, Why,
};

pub use crate::api::config::Policy;
use crate::api::config::{Config, ConfigError};
use crate::fast::Own;
use crate::ids::{CounterId, PeerId, PlaceId, RailId};
use crate::paths::Paths;
use crate::rail::RailFacts;
use crate::rel::ack::AckPolicy;
use crate::rel::credit::half;
use crate::store::{Arena, List};
use crate::time::Time;

use crate::api::action::{Pieces, SpanOf};
use crate::op::{Message, Op, Packet};
use crate::peer::{Channel, Place, PlaceTo, Sub};
use crate::rail::rails_of;
use crate::rail::set::RailSet;
use tables::Tables;

/// A process's end of all its channels.
///
/// # The drive loop
///
/// The endpoint does nothing by itself: a driver feeds it events and carries out its actions. In full:
///
/// 1. *Feed*: for every packet header a rail has, [`handle_arrival`](Self::handle_arrival); it returns
///    where the payload goes; when it is there, [`handle_placed`](Self::handle_placed), with a way to read
///    the record heads of an aggregate ([`Peek`]). For every post that a rail has completed,
///    [`handle_completion`](Self::handle_completion). For every subchannel that comes up or goes down,
///    [`handle_rail_event`](Self::handle_rail_event).
/// 2. *Time*: [`handle_timeout`](Self::handle_timeout) when [`next_timeout`](Self::next_timeout) has come.
/// 3. *Act*: [`poll_actions`](Self::poll_actions) until it fills nothing; carry out each batch, in order,
///    before anything else.
/// 4. *Report*: [`poll_event`](Self::poll_event) until `None`.
/// 5. Sleep until a rail has something or `next_timeout`.
///
/// A minimal driver: one endpoint that sends itself a message over a rail that is a queue in this loop.
///
/// ```
/// use core::mem::MaybeUninit;
/// use rerail_core::{config::Config, endpoint::*, ids::*, mem::*, rail::*, time::Time};
///
/// let config = Config { operations_max: 64, packets_max: 64, ..Config::new(PeerId(0), 1) };
/// # #[repr(align(64))] #[derive(Clone, Copy)] struct Line([MaybeUninit<u8>; 64]);
/// # let mut lines = vec![Line([MaybeUninit::uninit(); 64]); config.memory_bytes().unwrap().div_ceil(64)];
/// # let region = unsafe { core::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * 64) };
/// // Two regions of memory: the payload pool, and 16 bytes of the caller's.
/// let mut pool = vec![0u8; config.pool_bytes().unwrap() as usize];
/// let mut buffer = *b"hello...........";
/// let rail = RailFacts { segment_bytes_max: 4096, eager_bytes_max: 4096, posts_max: 8,
/// ..RailFacts::default() };
///
/// // `region`: `config.memory_bytes()` bytes, aligned to 64.
/// let mut endpoint = Endpoint::new(config, &[rail], region, Time(0)).unwrap();
/// endpoint.add_peer(PeerId(0), 0b1).unwrap();
/// let tag = |tag| Selector { source: None, tag: TagMatch::Tagged { tag, ignore: 0 } };
/// let into = [Seg::new(RegionId(0), 8, 8)];
/// endpoint.recv(Time(0), &RecvRequest::new(tag(7), &into)).unwrap();
/// let from = [Seg::new(RegionId(0), 0, 5)];
/// endpoint.send(Time(0), &SendRequest { tag: Some(7), ..SendRequest::new(PeerId(0), &from) }).unwrap();
///
/// let read = |endpoint: &Endpoint, span, pool: &[u8], buffer: &[u8]| -> Vec<u8> {
///     endpoint.segments(span).flat_map(|seg| {
///         let memory = if seg.at.region == RegionId::POOL { pool } else { buffer };
///         memory[seg.at.offset as usize..][..seg.len as usize].to_vec()
///     }).collect()
/// };
/// let mut now = 0;
/// let mut received = None;
/// while received.is_none() {
///     now += 1;
///     let mut actions = heapless::Vec::new();
///     while endpoint.poll_actions(Time(now), &mut actions) > 0 {
///         for action in actions.drain(..) {
///             match action {
///                 Action::Connect { peer, rail } => endpoint.handle_rail_event(Time(now), RailEvent::Up {
///                 peer, rail }), Action::Post(post) => {
///                     let payload = read(&endpoint, post.payload, &pool, &buffer);
///                     endpoint.handle_completion(Time(now), post.id, PostStatus::Done);
///                     if let Arrival::Place { id, memory } = endpoint.handle_arrival(Time(now), post.peer,
///                     post.rail, &post.header) {
///                         let mut at = 0;
///                         for seg in endpoint.segments(memory).collect::<Vec<_>>() {
///                             let memory = if seg.at.region == RegionId::POOL { &mut pool[..] } else { &mut
///                             buffer[..] }; memory[seg.at.offset as usize..][..seg.len as
///                             usize].copy_from_slice(&payload[at..][..seg.len as usize]); at += seg.len as
///                             usize;
///                         }
///                         endpoint.handle_placed(Time(now), id, &|at, bytes| {
///                             bytes.copy_from_slice(&pool[at.offset as usize..][..bytes.len()]);
///                         });
///                     }
///                 }
///                 Action::Copy { from, to } => {
///                     let bytes = read(&endpoint, from, &pool, &buffer);
///                     let seg = endpoint.segments(to).next().unwrap();
///                     pool[seg.at.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
///                 }
///                 other => unreachable!("this program never causes {other:?}"),
///             }
///         }
///     }
///     while let Some(event) = endpoint.poll_event() {
///         if let Event::Completed(Completion { result: Ok(done), .. }) = event && done.tag == Some(7) {
///             received = Some(done.bytes);
///         }
///     }
/// }
/// assert_eq!(received, Some(5));
/// assert_eq!(&buffer, b"hello...hello...");
/// ```
///
/// # Contract
///
/// * Time is an argument, in nanoseconds; it must not go back.
/// * The driver carries out a batch of actions in order and before the next call that changes the endpoint: a
///   completed send means that its copy, an action of the batch before, is made.
/// * Nothing here blocks, allocates, reads a clock or makes a system call. Input from peers and rails never
///   panics: it is counted, dropped, or ends the peer's channel with an event that carries the reason.
/// * A full table refuses requests at submission; the error names the table ([`SubmitError::Full`]).
pub struct Endpoint<'m> {
    config: Config,
    ack_policy: AckPolicy,
    t: Tables<'m>,
    /// The state for choosing rails.
    paths: Paths<'m>,
    hot: Hot,
    /// Channels that wait for a shared resource, by `Shortage`.
    waiting: [List; 2],
    /// Channels with a pending event.
    channel_events: List,
    /// Operations with a pending event.
    op_events: List,
    /// Receives whose message waits in blocks.
    copies: List,
    /// Peers' atomics to perform.
    atomics: List,
    /// Key sets whose registrations are to be released.
    released_keys: List,
    /// Registrations that finished after their operation.
    late_keys: heapless::Deque<(RailId, crate::wire::RemoteKey), 64>,
    /// Subchannels to close: their peer is gone, or there is no free channel.
    refused: heapless::Deque<(crate::ids::PeerId, RailId), 64>,
    /// `late_keys` or `refused` may have an entry.
    has_rare_actions: bool,
    /// A multi-receive had no slot for a part: retry when one comes free.
    parts_waiting: bool,
    /// A receive waits for the channel of its message.
    lacks_channel: bool,
    /// Receives that were complete at once because their message had arrived; this count names them.
    waited: u32,
    /// Sends that were complete when they were submitted and are reported; wraps.
    sent: u32,
    /// Refusals of puts that have slots.
    refusals: u32,
    stats: Stats,
    /// When silent channels are checked (F-13). They have no timer of their own: work of rails is never
    /// sorted among these.
    keepalive_at: Time,
    /// The earliest time of the next check: the probes of the last one are paced (F-13).
    keepalive_from: Time,
    /// Rails that have moved since the start (F-12).
    moved: RailSet,
    /// What packets of this endpoint name as their source (S-11).
    source: u32,
    /// A rail carries short messages, and the configuration allows them: otherwise no line ever opens.
    has_short_rail: bool,
    /// The latest time passed with anything but a short message.
    latest: Time,
}

/// Fields that nearly every message reads, in one cache line.
#[repr(C, align(64))]
struct Hot {
    /// Channels with something to send.
    active: List,
    /// State of the express path.
    own: Own,
    /// Operations of the caller; the others serve peers.
    caller_ops: u32,
    /// [`Config::operations_max`].
    operations_max: u32,
    /// With more retained copies free, and fewer operations open, no acknowledgment is requested (A-9).
    retained_roomy: u32,
    operations_roomy: u32,
    /// The express path is on, and no part of a multi-receive waits: plain receives need no operation.
    may_post_short: bool,
    /// An action or an event may wait: set by what adds one to a list, cleared where none was found.
    may_have_work: bool,
}

const _: () = assert!(size_of::<Hot>() == 64);

impl Config {
    /// Bytes of state that [`Endpoint::new`] needs; exact. Rings and buffers are the rails' own, and come on
    /// top.
    pub fn memory_bytes(&self) -> Result<usize, ConfigError> {
        self.validate()?;
        let also = "all tables together must fit the address space";
        let (operations, max) = (self.operations_max.into(), usize::MAX as u64);
        tables::bytes(self).ok_or(ConfigError::of("operations_max", operations, 1, max, also))
    }
}

impl<'m> Endpoint<'m> {
    /// An endpoint over `rails` in `region`, which needs [`Config::memory_bytes`] bytes and alignment to
    /// [`REGION_ALIGN`](crate::store::arena::REGION_ALIGN).
    pub fn new(
        config: Config,
        rails: &[RailFacts],
        region: &'m mut [MaybeUninit<u8>],
        now: Time,
    ) -> Result<Self, StartError> {
        config.validate()?;
        if rails.is_empty() || rails.len() > usize::from(config.rails_max) {
            return Err(StartError::Rails { given: rails.len(), max: config.rails_max });
        }
        for (index, facts) in rails.iter().enumerate() {
            // One post is reserved for unsequenced frames, and a segment must carry something.
            if facts.posts_max < 2 || facts.segment_bytes_max == 0 {
                return Err(StartError::RailFacts { rail: RailId(index as u8) });
            }
        }
        let mut arena = Arena::new(region)?;
        let t = Tables::carve(&mut arena, &config, now)?;
        let paths = Paths::carve(&mut arena, &config, rails)?;
        let has_short_rail = config.express && rails.iter().any(|facts| facts.short_bytes_max > 0);
        Ok(Endpoint {
            ack_policy: AckPolicy { packets: config.ack_packets, bytes: config.ack_bytes, delay: config.ack_delay },
            config,
            t,
            paths,
            hot: Hot {
                active: List::EMPTY,
                own: Own::new(config.block_bytes, half(config.unexpected_per_peer), half(config.blocks_per_peer)),
                caller_ops: 0,
                operations_max: config.operations_max,
                retained_roomy: config.retained_max / 2 + 1,
                operations_roomy: config.operations_max.saturating_sub(1),
                may_post_short: config.express,
                may_have_work: false,
            },
            waiting: [List::EMPTY; 2],
            channel_events: List::EMPTY,
            op_events: List::EMPTY,
            copies: List::EMPTY,
            atomics: List::EMPTY,
            released_keys: List::EMPTY,
            late_keys: heapless::Deque::new(),
            refused: heapless::Deque::new(),
            has_rare_actions: false,
            parts_waiting: false,
            lacks_channel: false,
            waited: 0,
            sent: 1,
            refusals: 0,
            stats: Stats::default(),
            keepalive_at: detection::NEVER,
            keepalive_from: Time(0),
            moved: RailSet::EMPTY,
            source: config.number.unwrap_or(config.rank.0),
            has_short_rail,
            latest: now,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A counter's value; `None` where there is no such counter.
    pub fn counter(&self, counter: CounterId) -> Option<u64> {
        self.t.counters.get(usize::from(counter.0)).copied()
    }

    /// Whether everything that was submitted to `peer` (and to any peer, for `None`) is acknowledged or
    /// answered.
    pub fn is_quiet(&self, peer: Option<PeerId>) -> bool {
        self.t.is_quiet(peer)
    }

    /// Whether no rail to `peer` holds anything of this endpoint for it: a new request need not wait.
    pub fn is_unused(&self, peer: PeerId) -> bool {
        let Some(channel) = self.t.channel_of(peer) else { return true };
        let rails = rails_of(self.paths.peer(channel).rooms.ready);
        rails.map(|rail| self.paths.path(channel, rail)).all(|path| path.in_flight == 0)
    }

    /// The earliest time at which [`handle_timeout`](Self::handle_timeout) has something to do.
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        match self.t.timers.next() {
            Some(at) => Some(at.min(self.keepalive_at)),
            None => Some(self.keepalive_at).filter(|&at| at != detection::NEVER),
        }
    }

    /// Whether [`handle_timeout`](Self::handle_timeout) has something to do.
    #[inline]
    pub fn is_timeout_due(&self, now: Time) -> bool {
        self.t.timers.is_due(now) || self.keepalive_at <= now
    }

    /// As [`next_timeout`](Self::next_timeout), without keep-alive ([`Config::keepalive`]), which continues
    /// while peers are connected: `None` when nothing is in progress or pending. For tests, which end when
    /// every endpoint is idle; a host that sleeps until this time does not detect peers that are gone.
    pub fn next_obligation(&self) -> Option<Time> {
        self.t.timers.next()
    }

    /// The pieces of a span, in order. An old span yields pieces of the current content of its slot: resolve
    /// at once.
    pub fn segments(&self, span: Span) -> Segments<'_> {
        let pieces = match span.of {
            SpanOf::Nothing => Pieces::One(None),
            SpanOf::At(at) => Pieces::One(Some(crate::mem::Seg { at, len: span.offset + span.len })),
            SpanOf::Op(op) => Pieces::List(self.t.op_segments(op).iter()),
            SpanOf::Blocks(first) => Pieces::Blocks {
                next_of: self.t.blocks.chains(),
                at: first,
                block_bytes: self.config.block_bytes.into(),
                base: 0,
            },
        };
        Segments { pieces, skip: span.offset, left: span.len }
    }

    /// The single piece of memory of a span that lies in the first piece of its object, as most do: the
    /// result of [`segments`](Self::segments), but faster. `None`: it reaches further, or has no bytes.
    #[inline]
    pub fn sole_segment(&self, span: Span) -> Option<crate::mem::Seg> {
        let Span { of, offset, len } = span;
        let mut whole = match of {
            SpanOf::Nothing => return None,
            SpanOf::At(at) => crate::mem::Seg { at, len: offset + len },
            SpanOf::Op(op) => *self.t.op_segments(op).first()?,
            SpanOf::Blocks(first) => {
                let bytes = u64::from(self.config.block_bytes);
                crate::mem::Seg::new(crate::mem::RegionId::POOL, u64::from(first) * bytes, bytes)
            }
        };
        if len == 0 || offset + len > whole.len {
            return None;
        }
        whole.at.offset += offset;
        whole.len = len;
        Some(whole)
    }

    /// The memory of an unfinished placement; `None` if it is aborted: then skip the payload.
    pub fn place_memory(&self, id: PlaceId) -> Option<Span> {
        let place = self.t.place(id)?;
        let (of, offset) = match place.to {
            PlaceTo::Op(op) => (SpanOf::Op(op), place.offset),
            PlaceTo::Message(message) => (SpanOf::Blocks(self.message(message).blocks), place.offset),
            PlaceTo::Window { at, .. } => (SpanOf::At(at), 0),
        };
        Some(Span { of, offset, len: place.len })
    }

    /// Opens a placement: the payload that arrives on a rail goes to `place`.
    #[inline]
    pub(super) fn open_place(&mut self, channel: u32, rail: RailId, place: Place) -> Arrival {
        let id = self.t.open_place(self.t.sub_index(channel, rail), place);
        match self.place_memory(id) {
            Some(memory) if !memory.is_empty() => Arrival::Place { id, memory },
            _ => Arrival::Discard,
        }
    }
}

/// The entries of tables that nearly every call looks at.
impl Endpoint<'_> {
    #[inline(always)]
    fn op(&self, index: u32) -> &Op {
        self.t.ops.at(index)
    }

    #[inline(always)]
    fn op_mut(&mut self, index: u32) -> &mut Op {
        self.t.ops.at_mut(index)
    }

    #[inline(always)]
    fn channel(&self, index: u32) -> &Channel {
        self.t.channels.at(index)
    }

    #[inline(always)]
    fn channel_mut(&mut self, index: u32) -> &mut Channel {
        self.t.channels.at_mut(index)
    }

    #[inline(always)]
    fn packet(&self, index: u32) -> &Packet {
        self.t.packets.at(index)
    }

    #[inline(always)]
    fn packet_mut(&mut self, index: u32) -> &mut Packet {
        self.t.packets.at_mut(index)
    }

    #[inline(always)]
    fn message(&self, index: u32) -> &Message {
        self.t.messages.at(index)
    }

    #[inline(always)]
    fn message_mut(&mut self, index: u32) -> &mut Message {
        self.t.messages.at_mut(index)
    }

    #[inline(always)]
    fn sub(&self, channel: u32, rail: RailId) -> &Sub {
        &self.t.subs[self.t.sub_index(channel, rail)]
    }

    #[inline(always)]
    fn sub_mut(&mut self, channel: u32, rail: RailId) -> &mut Sub {
        self.t.sub(channel, rail)
    }
}
