//! An operation's state: one slot per request in progress, for the caller's and for those that serve peers;
//! beside it, what operations leave on their way: packets, messages without a buffer, exposed memory.

mod message;
mod packet;
mod short;
mod stage;

pub(crate) use message::{Message, MessageState, MessageUse};
pub(crate) use packet::{Packet, PartFin, What};
pub(crate) use short::{ShortRecord, record_of, short_handle};
use stage::Stage;
pub(crate) use stage::{OpKind, Phase};

use crate::api::event::OpError;
use crate::api::request::{Access, Level, Notify};
use crate::ids::{Cookie, Key, PeerId, RailId};
use crate::mem::Seg;
use crate::paths::{Measured, MessageClass};
use crate::seq::Seq;
use crate::store::{Link, NONE};
use crate::wire::{AtomicKind, AtomicType, Refusal};

/// The queue that holds the operation by its `queue` link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Queue {
    #[default]
    None,
    /// Of the channel: has a control packet to send.
    Control,
    /// Of the channel: a message that waits for its PSN.
    Ordered,
    /// Of the channel: a get or atomic that waits for the peer's grant.
    Requests,
    /// Of the channel: has payload to move.
    Bulk,
    /// Of the endpoint: blocks to copy into its buffer.
    Copies,
    /// Of the endpoint: an atomic to perform.
    Atomics,
}

/// The pending control packet of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Control {
    #[default]
    None,
    /// Register the memory first, then send CTS.
    Register,
    Cts,
    /// FIN to the peer's operation `remote`.
    Fin,
    AtomicReply,
    /// RESUME to the peer's operation `remote`.
    Resume,
}

#[derive(Debug)]
pub(crate) struct Op {
    pub stage: Stage,
    pub queued: Queue,
    pub control: Control,
    pub level: Level,
    pub notify: Notify,
    /// [`SendRequest::more`](crate::api::request::SendRequest::more)
    pub more: bool,
    /// One-sided: it waits until those before it are complete.
    pub fence: bool,
    /// One-sided: not queued yet, as it or one before it waits for a fence.
    pub is_held: bool,
    pub cookie: Cookie,
    /// [`NONE`] while no peer is bound.
    pub channel: u32,
    pub peer: PeerId,
    pub tag: Option<u64>,
    pub immediate: Option<u64>,
    /// Bytes of local memory: a receive's capacity.
    pub len: u64,
    /// Bytes that the sender sent.
    pub message_len: u64,
    /// Bytes to move.
    pub granted: u64,
    /// Bytes handed to rails. Multi-receive: bytes taken.
    pub cursor: u64,
    /// Bytes known to be placed.
    pub moved: u64,
    /// The peer's operation or window key.
    pub remote: u64,
    pub remote_offset: u64,
    pub operand: u64,
    pub compare: u64,
    pub atomic_kind: AtomicKind,
    pub atomic_type: AtomicType,
    pub queue: Link,
    pub rma: Link,
    pub event: Link,
    /// Retained copy, or [`NONE`].
    pub retained: u32,
    /// The send whose message follows this one's in the same packet, or [`NONE`].
    pub next_in_packet: u32,
    /// Stripe set, or [`NONE`].
    pub stripes: u32,
    /// Key set, or [`NONE`].
    pub keys: u32,
    /// Sent on a lossless rail: the buffer is free when the rail completes it.
    pub lossless: bool,
    /// Packets not acknowledged.
    pub unacked: u32,
    /// Posts not completed.
    pub posts: u32,
    /// Placements in progress.
    pub places: u32,
    /// Rails to register the memory with; bit per rail.
    pub to_register: u64,
    /// Rails whose registration is outstanding; bit per rail.
    pub registering: u64,
    /// Put rendezvous: rails with a pending FIN; bit per rail.
    pub fins_due: u64,
    /// The single rail of a transfer in one part.
    pub single: Option<RailId>,
    /// Put rendezvous: number of restarts (F-7).
    pub epoch: u16,
    /// Put rendezvous, sender: parts whose writes went over a connection that died before their FIN was
    /// acknowledged; bit per part.
    pub unconfirmed: u64,
    /// Put rendezvous, sender: RESUME is due after the fence (F-7).
    pub resume_due: bool,
    /// Put rendezvous, sender: the peer has acknowledged the number of an unconfirmed part's FIN, which also
    /// carried RESUME; which of the two it received is unknown (F-7).
    pub fin_or_resume: bool,
    /// Receive: the PSN of an eager payload that was being placed when its rail died (F-6).
    pub aborted: Option<Seq>,
    /// FINs received and expected (put rendezvous).
    pub fins: u16,
    pub fins_expected: u16,
    /// Receive: the rail that carried the message's announcement; its sender chose it.
    pub via: Option<RailId>,
    /// The sender needs a FIN when all is placed.
    pub needs_fin: bool,
    /// Receive of a rendezvous message that the peer writes or sends: our FIN, sent when all is placed, frees
    /// the sender's buffer.
    pub fin_pending: bool,
    /// The FIN that ends a send has arrived; the peer has acknowledged an answer to it.
    pub fin_seen: bool,
    /// Every byte has been handed to rails.
    pub all_sent: bool,
    /// The outcome is decided.
    pub completed: bool,
    /// Failed with this, if anything.
    pub error: Option<OpError>,
    /// Why a peer's request is refused.
    pub refusal: Option<Refusal>,
    /// Value before an atomic.
    pub old: u64,
    /// Counted in the channel's `serving`.
    pub counted_serving: bool,
    /// Window that a peer's request works on, or [`NONE`].
    pub window: u32,
    /// Matcher's key while posted.
    pub posted: Key,
    /// Message being copied, or [`NONE`].
    pub message: u32,
    /// Multi-receive: bytes that must be left to stay posted.
    pub multi_min: u64,
    /// Parts: the multi-receive.
    pub parent: u32,
    pub children: u32,
    /// Multi-receive: messages taken so far, modulo 2^32. Part: its number among them (M-9).
    pub index: u32,
    /// Its measured transfer time.
    pub measured: Measured,
    /// Receive posted without an operation: its key in the matcher, which is the caller's id.
    pub alias: Key,
    /// Pieces of local memory.
    pub segments: u8,
}

impl Op {
    /// The class of the payload that it moves.
    pub(crate) const fn class(&self) -> MessageClass {
        match self.kind() {
            OpKind::Send | OpKind::Recv | OpKind::Part => MessageClass::Large,
            _ => MessageClass::OneSided,
        }
    }

    pub(crate) fn new(kind: OpKind) -> Op {
        Op {
            stage: Stage::first(kind),
            queued: Queue::default(),
            control: Control::default(),
            level: Level::default(),
            notify: Notify::default(),
            more: false,
            fence: false,
            is_held: false,
            cookie: Cookie::default(),
            channel: NONE,
            peer: PeerId::NONE,
            tag: None,
            immediate: None,
            len: 0,
            message_len: 0,
            granted: 0,
            cursor: 0,
            moved: 0,
            remote: 0,
            remote_offset: 0,
            operand: 0,
            compare: 0,
            atomic_kind: AtomicKind::default(),
            atomic_type: AtomicType::default(),
            queue: Link::default(),
            rma: Link::default(),
            event: Link::default(),
            retained: NONE,
            next_in_packet: NONE,
            stripes: NONE,
            keys: NONE,
            lossless: false,
            unacked: 0,
            posts: 0,
            places: 0,
            to_register: 0,
            registering: 0,
            fins_due: 0,
            single: None,
            epoch: 0,
            unconfirmed: 0,
            resume_due: false,
            fin_or_resume: false,
            aborted: None,
            fins: 0,
            fins_expected: 0,
            via: None,
            needs_fin: false,
            fin_pending: false,
            fin_seen: false,
            all_sent: false,
            completed: false,
            error: None,
            refusal: None,
            old: 0,
            counted_serving: false,
            window: NONE,
            posted: Key::default(),
            message: NONE,
            multi_min: 0,
            parent: NONE,
            children: 0,
            index: 0,
            measured: Measured::default(),
            alias: Key::default(),
            segments: 0,
        }
    }

    pub(crate) const fn kind(&self) -> OpKind {
        self.stage.kind()
    }

    pub(crate) const fn phase(&self) -> Phase {
        self.stage.phase()
    }

    /// Enters another phase; see [`Stage::enter`].
    #[inline]
    pub(crate) fn enter(&mut self, to: Phase) {
        self.stage.enter(to);
    }

    /// Whether its keys, if any, name our memory (else: the peer's).
    pub(crate) const fn keys_are_ours(&self) -> bool {
        !matches!(self.phase(), Phase::Writing | Phase::Reading)
    }

    /// Whether it is complete and has no event left to poll.
    pub(crate) const fn is_reported(&self) -> bool {
        self.completed && !self.event.is_linked()
    }

    /// Whether it is a put that ends with a packet of its own.
    pub(crate) const fn notifies(&self) -> bool {
        matches!(self.kind(), OpKind::Put) && self.immediate.is_some()
    }

    /// Whether it takes part in the channel's order of one-sided operations (flush).
    pub(crate) const fn is_one_sided(&self) -> bool {
        matches!(self.kind(), OpKind::Put | OpKind::Get | OpKind::Atomic | OpKind::Flush)
    }

    /// Copies the facts of a message to its receive.
    pub(crate) fn receive(&mut self, peer: PeerId, message: &Message) {
        self.peer = peer;
        self.tag = message.tag;
        self.immediate = message.immediate;
        self.message_len = message.len;
        self.granted = message.len.min(self.len);
        self.remote = message.remote;
        self.via = Some(message.via);
        self.needs_fin = message.want_placed;
    }

    /// Whether no rail has any of its packets.
    pub(crate) const fn is_unsent(&self) -> bool {
        self.unacked == 0 && self.posts == 0
    }

    /// Whether nothing outside refers to its slot.
    pub(crate) const fn is_idle(&self) -> bool {
        self.unacked == 0 && self.posts == 0 && self.places == 0 && matches!(self.queued, Queue::None)
    }
}

/// Memory of peers or our own, exposed window or service.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowSlot {
    pub seg: Seg,
    pub access: Access,
    pub key: u64,
    /// How puts with immediate data are reported.
    pub written: Notify,
    pub cookie: Cookie,
    /// Gets and atomics being served, and puts being placed.
    pub users: u32,
}

// Memory per additional operation; every request writes one.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Op>() == 384);
