//! The endpoint: submit work, feed what happened, poll what to do.
//!
//! Here everything is put together: the machines of the other modules return verdicts and never call each
//! other. Which rail carries what is the affair of `paths`; here one concern a file: `submit` (requests),
//! `feed` (reports of rails), `arrive` (packets; `arrive_ordered`: messages), `serve` (peers' one-sided
//! requests), `matching`, `rendezvous`, `pump` (actions; `bulk` for payload, `frames` for what belongs to no
//! request), `packets` (building and acknowledging), `aggregate` (several messages in one packet), `settle`
//! (completion), `lifecycle` (channels come and go; `late_connect`: peers that call too late), `op` and
//! `stage` (state of an operation), `recover` (subchannels fail and come back), `deadline` (rails that do
//! nothing), `timer`, `keepalive` (peers that are silent), `addresses` (rails that move), `rails` (what
//! callers set and ask about rails), `lost`, `replay`, `retry_epoch` (what was under way on them), `usage`
//! (how full tables are), `words` (what errors say).

pub mod action;
mod addresses;
mod aggregate;
mod arrive;
mod arrive_ordered;
mod bound;
mod bulk;
mod channel;
mod deadline;
mod debug;
pub mod error;
pub mod event;
mod express;
mod feed;
mod frames;
mod inspect;
mod keepalive;
mod late_connect;
mod lifecycle;
mod lost;
mod matching;
mod op;
mod packets;
mod pump;
mod rails;
mod recover;
mod rendezvous;
mod replay;
pub mod request;
mod retry_epoch;
mod serve;
mod settle;
mod stage;
mod submit;
mod tables;
#[cfg(test)]
mod tests;
mod timer;
mod unexpected;
mod usage;
mod words;

use core::mem::MaybeUninit;

pub use crate::fast::{LineId, ShortCompletion};
pub use action::{Action, Arrival, AtomicAction, Peek, Post, PostKind, Segments, Span};
pub use error::*;
pub use event::*;
pub use express::{NextPlace, ShortArrival, ShortPost};
pub use inspect::{ChannelInfo, LaneInfo, OperationInfo, SubchannelInfo};
pub use rails::{RailHealth, RailState};
pub use request::*;
pub use tables::{Sizes, sizes};
pub use unexpected::{ShortReceived, Waiting};
pub use usage::{InUse, Usage};

pub use crate::config::Policy;
pub use crate::paths::{
    Change, ClassPolicy, CopyBy, Explanation, MessageClass, RailStats, Registration, RegistrationCost, Sampled, Share,
    Verdict, Way, Why,
};

use crate::config::{Config, ConfigError};
use crate::fast::Own;
use crate::ids::{CounterId, PeerId, PlaceId, RailId};
use crate::paths::Paths;
use crate::rail::RailFacts;
use crate::rel::ack::AckPolicy;
use crate::rel::credit::half;
use crate::store::{Arena, List};
use crate::time::Time;

use crate::rail::rails_of;
use action::{Pieces, SpanOf};
use channel::{Place, PlaceTo};
use tables::Tables;

/// What a rail reports beside packets and completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailEvent {
    /// The subchannel stands and the peer is who it says: packets may be posted.
    Up {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
    },
    /// The subchannel is down, or could not be opened. Posts on it that are not completed never will be,
    /// placements are void.
    Down {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
        /// Why.
        fault: RailFault,
    },
    /// A subchannel that stands can neither read nor write remote memory, though its rail can: what this
    /// process may do with the peer's memory depends on the pair. Holds until the subchannel's end.
    NoRemoteAccess {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
    },
    /// The device behind a rail was lost or made anew: registrations that it had are aborted, and no peer can
    /// use their keys any more. The subchannels over it are reported down each for itself.
    Reset {
        /// The rail.
        rail: RailId,
    },
    /// The link or the device behind a rail works again: subchannels over it that wait to be opened again are
    /// opened at once (F-8).
    Back {
        /// The rail.
        rail: RailId,
    },
}

/// A message found by probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The sender.
    pub peer: PeerId,
    /// Its tag; `None`: untagged.
    pub tag: Option<u64>,
    /// Its immediate data.
    pub immediate: Option<u64>,
    /// Its length in bytes.
    pub bytes: u64,
}

/// How a post ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostStatus {
    /// The rail doesn't need the payload memory any more (send, write), or has filled it (read).
    Done,
    /// It failed; the rail also reports the subchannel down.
    Failed,
    /// A read whose key opens nothing (any more), or not to this process. The subchannel stands; what it was
    /// to bring is asked for in another way (X-11), and the key is not used again.
    NoAccess,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets handed to rails, unsequenced ones included.
    pub packets_sent: u64,
    /// Packets whose header came, whatever became of them.
    pub packets_received: u64,
    /// Those among them that have a sequence number and came for the first time: what brings requests nearer
    /// to their end, and no acknowledgment, probe, or word about a connection.
    pub sequenced_received: u64,
    /// Packets that had come before.
    pub duplicates_dropped: u64,
    /// Packets that did not parse or broke a rule.
    pub malformed_dropped: u64,
    /// Packets, completions and answers for something that is over.
    pub stale_dropped: u64,
    /// Ordered packets that came before their turn.
    pub out_of_order: u64,
    /// Messages that came before their receive.
    pub unexpected: u64,
    /// Explicit acknowledgments sent.
    pub acks_explicit: u64,
    /// Payload bytes copied on the way (retained copies and unexpected messages).
    pub bytes_copied: u64,
    /// Ends of parts of transfers that another rail took over (P-10).
    pub rebalances: u64,
    /// Messages that took the short way out; among [`packets_sent`](Self::packets_sent).
    pub short_sent: u64,
    /// Messages that took the short way into their buffers; among
    /// [`packets_received`](Self::packets_received).
    pub short_received: u64,
    /// Packets and reads that went out again after their connection had died (F-5).
    pub replayed: u64,
}

/// One end of all virtual channels of a process.
///
/// # The drive loop
///
/// The endpoint does nothing by itself: a driver feeds it what happened and carries out what it asks for. In
/// full:
///
/// 1. *Feed*: for every packet header a rail has, [`handle_arrival`](Self::handle_arrival); its answer says
///    where the payload goes; when it is there, [`handle_placed`](Self::handle_placed), with a way to read
///    what stands in front of messages that came together ([`Peek`]). For every post that a rail is through
///    with, [`handle_completion`](Self::handle_completion). For every subchannel that comes or goes,
///    [`handle_rail_event`](Self::handle_rail_event).
/// 2. *Time*: [`handle_timeout`](Self::handle_timeout) when [`next_timeout`](Self::next_timeout) has come.
/// 3. *Act*: [`poll_actions`](Self::poll_actions) until it fills nothing; carry out each batch, in order,
///    before anything else.
/// 4. *Tell*: [`poll_event`](Self::poll_event) until `None`.
/// 5. Sleep until a rail has something or `next_timeout`.
///
/// A driver in miniature: one endpoint that sends itself a message over a rail that is a queue in this very
/// loop.
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
/// let rail = RailFacts { segment_bytes_max: 4096, eager_bytes_max: 4096, posts_max: 8, ..RailFacts::default() };
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
///                 Action::Connect { peer, rail } => endpoint.handle_rail_event(Time(now), RailEvent::Up { peer, rail }),
///                 Action::Post(post) => {
///                     let payload = read(&endpoint, post.payload, &pool, &buffer);
///                     endpoint.handle_completion(Time(now), post.id, PostStatus::Done);
///                     if let Arrival::Place { id, memory } = endpoint.handle_arrival(Time(now), post.peer, post.rail, &post.header) {
///                         let mut at = 0;
///                         for seg in endpoint.segments(memory).collect::<Vec<_>>() {
///                             let memory = if seg.at.region == RegionId::POOL { &mut pool[..] } else { &mut buffer[..] };
///                             memory[seg.at.offset as usize..][..seg.len as usize].copy_from_slice(&payload[at..][..seg.len as usize]);
///                             at += seg.len as usize;
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
///                 other => unreachable!("no such thing was asked for: {other:?}"),
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
/// * Actions of a batch are carried out in order and before the next call that changes the endpoint: a
///   completed send means that its copy, which the batch before asked for, is made.
/// * Nothing here blocks, allocates, reads a clock or makes a system call. Input from peers and rails never
///   panics: it is counted, dropped, or ends the peer's channel with an event that says why.
/// * What does not fit is refused at submission with the table that is full ([`SubmitError::Full`]).
pub struct Endpoint<'m> {
    config: Config,
    ack_policy: AckPolicy,
    t: Tables<'m>,
    /// The rails, as far as it is to be decided which of them carry what.
    paths: Paths<'m>,
    hot: Hot,
    /// Channels that wait for something shared, by `Shortage`.
    waiting: [List; 2],
    /// Channels with something to tell.
    channel_events: List,
    /// Operations with something to tell.
    op_events: List,
    /// Receives whose message waits in blocks.
    copies: List,
    /// Peers' atomics to perform.
    atomics: List,
    /// Key sets whose registrations are to be given back.
    dying_keys: List,
    /// Registrations that were made for operations that are over.
    late_keys: heapless::Deque<(RailId, crate::wire::RemoteKey), 64>,
    /// Subchannels that came up with a peer that is gone or finds no channel: to be closed.
    refused: heapless::Deque<(crate::ids::PeerId, RailId), 64>,
    /// A multi-receive had no slot for a part: look again when one comes free.
    parts_waiting: bool,
    /// Receives that found their message here and were over at once: it names them.
    waited: u32,
    /// Sends that were complete when they were submitted and are reported; wraps.
    sent: u32,
    /// Refusals of puts that have slots.
    refusals: u32,
    stats: Stats,
    /// When channels are looked at of which nothing was heard (F-13). No timer of theirs: what is with rails
    /// is never sorted among these.
    keepalive_at: Time,
    /// Not before then, whatever happens meanwhile: the questions of the last look are paced (F-13).
    keepalive_from: Time,
    /// Rails that have moved since the start: bit per rail (F-12).
    moved: u64,
    /// A rail carries short messages, and the configuration lets them: else no line is ever open.
    has_short_rail: bool,
    /// The latest time that was given with anything but a short message.
    latest: Time,
}

/// What nearly every message reads, in one line of the cache.
#[repr(C, align(64))]
struct Hot {
    /// Channels with something to send.
    active: List,
    /// Of the short way.
    own: Own,
    /// Operations of the caller; the others serve peers.
    caller_ops: u32,
    /// [`Config::operations_max`].
    operations_max: u32,
    /// A rail takes short messages, and no part of a multi-receive waits: plain receives need no operation.
    may_post_short: bool,
}

const _: () = assert!(size_of::<Hot>() == 64);

impl Config {
    /// Bytes of state that [`Endpoint::new`] needs; exact.
    pub fn memory_bytes(&self) -> Result<usize, ConfigError> {
        self.validate()?;
        let also = "all tables together must fit the address space";
        let (operations, max) = (self.operations_max.into(), usize::MAX as u64);
        Paths::layout(Tables::layout(self), self).bytes().ok_or(ConfigError::of(
            "operations_max",
            operations,
            1,
            max,
            also,
        ))
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
        config.validate().map_err(StartError::Config)?;
        if rails.is_empty() || rails.len() > usize::from(config.rails_max) {
            return Err(StartError::Rails { given: rails.len(), max: config.rails_max });
        }
        for (index, facts) in rails.iter().enumerate() {
            // One post is kept for unsequenced frames, and a segment must carry something.
            if facts.posts_max < 2 || facts.segment_bytes_max == 0 {
                return Err(StartError::RailFacts { rail: RailId(index as u8) });
            }
        }
        let mut arena = Arena::new(region).map_err(StartError::Region)?;
        let t = Tables::carve(&mut arena, &config, now).map_err(StartError::Region)?;
        let paths = Paths::carve(&mut arena, &config, rails).map_err(StartError::Region)?;
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
                may_post_short: has_short_rail,
            },
            waiting: [List::EMPTY; 2],
            channel_events: List::EMPTY,
            op_events: List::EMPTY,
            copies: List::EMPTY,
            atomics: List::EMPTY,
            dying_keys: List::EMPTY,
            late_keys: heapless::Deque::new(),
            refused: heapless::Deque::new(),
            parts_waiting: false,
            waited: 0,
            sent: 1,
            refusals: 0,
            stats: Stats::default(),
            keepalive_at: keepalive::NEVER,
            keepalive_from: Time(0),
            moved: 0,
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

    /// What was counted.
    pub fn stats(&self) -> Stats {
        let (short_sent, short_received) = self.shorts();
        Stats {
            short_sent,
            short_received,
            packets_sent: self.stats.packets_sent + short_sent,
            packets_received: self.stats.packets_received + short_received,
            sequenced_received: self.stats.sequenced_received + short_received,
            ..self.stats
        }
    }

    /// Whether everything that was submitted to `peer` (and to any peer, for `None`) is acknowledged or
    /// answered.
    pub fn is_quiet(&self, peer: Option<PeerId>) -> bool {
        self.t.is_quiet(peer)
    }

    /// Whether no rail that leads to `peer` has anything of this endpoint's for it: what is submitted now
    /// need not wait.
    pub fn is_unused(&self, peer: PeerId) -> bool {
        let Some(channel) = self.t.channel_of(peer) else { return true };
        let rails = rails_of(self.paths.peer(channel).rooms.ready);
        rails.map(|rail| self.paths.path(channel, rail)).all(|path| path.under_way == 0)
    }

    /// The earliest time at which [`handle_timeout`](Self::handle_timeout) has something to do.
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        match self.t.timers.next() {
            Some(at) => Some(at.min(self.keepalive_at)),
            None => Some(self.keepalive_at).filter(|&at| at != keepalive::NEVER),
        }
    }

    /// As [`next_timeout`](Self::next_timeout), but for keep-alive ([`Config::keepalive`]), which goes on for
    /// as long as peers are connected: `None` where nothing is under way or owed. For tests, which are over
    /// when every endpoint rests; a host that sleeps until this time is not told of peers that are gone.
    pub fn next_obligation(&self) -> Option<Time> {
        self.t.timers.next()
    }

    /// The pieces of a span, in order. An old span yields pieces of whatever its slot holds now: resolve at
    /// once.
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

    /// The piece of memory that a span is, where it lies in the first piece of what it is a range of, as most
    /// do: what [`segments`](Self::segments) yields then, and quicker. `None`: it reaches further, or has no
    /// bytes.
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

    /// The memory of a placement that is not finished; `None` where it is aborted: then skip the payload.
    pub fn place_memory(&self, id: PlaceId) -> Option<Span> {
        let place = self.t.place(id)?;
        let (of, offset) = match place.to {
            PlaceTo::Op(op) => (SpanOf::Op(op), place.offset),
            PlaceTo::Message(message) => (SpanOf::Blocks(self.t.messages.at(message).blocks), place.offset),
            PlaceTo::Window { at, .. } => (SpanOf::At(at), 0),
        };
        Some(Span { of, offset, len: place.len })
    }

    /// The payload that arrives on a rail goes to `place`.
    #[inline]
    fn open_place(&mut self, channel: u32, rail: RailId, place: Place) -> Arrival {
        let id = self.t.open_place(self.t.sub_index(channel, rail), place);
        match self.place_memory(id) {
            Some(memory) if !memory.is_empty() => Arrival::Place { id, memory },
            _ => Arrival::Discard,
        }
    }
}
