//! Requests that a caller submits.

use crate::ids::{Cookie, CounterId, PeerId};
use crate::mem::{MemRef, Seg};
use crate::wire::{AtomicKind, AtomicType};

/// When a send or put counts as complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// The buffer may be reused. The message still survives failures of rails.
    #[default]
    Reusable,
    /// The peer's endpoint has acknowledged it: it will be delivered even if this process ends now.
    Acknowledged,
    /// The payload is in its destination buffer at the peer: a receive matched it, or the window holds it.
    Placed,
}

/// How a completion is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notify {
    /// By an [`Event`](crate::endpoint::Event).
    #[default]
    Event,
    /// By adding one to a counter; an error still makes an event.
    Counter(CounterId),
    /// By both.
    Both(CounterId),
    /// Not at all; an error still makes an event.
    Silent,
}

/// A message to a peer.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// The destination.
    pub peer: PeerId,
    /// The tag; `None` for an untagged message, which only untagged receives match.
    pub tag: Option<u64>,
    /// 8 bytes that travel with the message.
    pub immediate: Option<u64>,
    /// The payload, in pieces: at most `segments_max`.
    pub segments: &'a [Seg],
    /// When it counts as complete.
    pub level: Level,
    /// How completion is reported.
    pub notify: Notify,
    /// Comes back in the completion.
    pub cookie: Cookie,
    /// More messages to this peer follow at once: this one may be held to leave with them (P-16), until the
    /// next request to this peer without it, a call that pushes, or the next round, whichever comes first.
    pub more: bool,
}

impl<'a> SendRequest<'a> {
    /// An untagged message to `peer`, reported by an event when its buffer may be used again.
    pub const fn new(peer: PeerId, segments: &'a [Seg]) -> Self {
        SendRequest {
            peer,
            tag: None,
            immediate: None,
            segments,
            level: Level::Reusable,
            notify: Notify::Event,
            cookie: Cookie(0),
            more: false,
        }
    }
}

/// A buffer for a message.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// Which messages it takes.
    pub from: Selector,
    /// Where the payload goes, in pieces: at most `segments_max`.
    pub segments: &'a [Seg],
    /// `Some(n)`: the buffer (one segment) takes message after message, back to back, until fewer than `n`
    /// bytes are free; each message has an event of its own, and the last event reports the release of the
    /// buffer. Events arrive as messages complete;
    /// [`Completion::index`](crate::endpoint::Completion::index) gives the order in which they were matched.
    pub multi: Option<u64>,
    /// How completion is reported.
    pub notify: Notify,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

impl<'a> RecvRequest<'a> {
    /// A buffer for one message that `from` takes, reported by an event.
    pub const fn new(from: Selector, segments: &'a [Seg]) -> Self {
        RecvRequest { from, segments, multi: None, notify: Notify::Event, cookie: Cookie(0) }
    }
}

/// Memory of a peer, by the values that the peer gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer.
    pub peer: PeerId,
    /// The key that the peer passed to its `expose`.
    pub window: u64,
    /// Bytes into the window.
    pub offset: u64,
}

/// One-sided put: local segments into a peer's window.
#[derive(Clone, Copy, Debug)]
pub struct PutRequest<'a> {
    /// The destination.
    pub to: Remote,
    /// The source: at most `segments_max` pieces.
    pub segments: &'a [Seg],
    /// `Some`: once all bytes are in place, the target is notified, with these 8 bytes, as its window defines
    /// ([`Window::written`], R-10). The put is then complete when the target's caller has the event, or its
    /// counter counts it; until then it counts among the open requests of this side to that peer (C-5).
    pub immediate: Option<u64>,
    /// When it counts as complete.
    pub level: Level,
    /// It and all later one-sided requests to the peer wait until all earlier ones are complete there.
    pub fence: bool,
    /// How completion is reported.
    pub notify: Notify,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

impl<'a> PutRequest<'a> {
    /// `segments` into a window, reported by an event when they may be used again.
    pub const fn new(to: Remote, segments: &'a [Seg]) -> Self {
        PutRequest {
            to,
            segments,
            immediate: None,
            level: Level::Reusable,
            fence: false,
            notify: Notify::Event,
            cookie: Cookie(0),
        }
    }
}

/// One-sided get: a peer's window into local segments. Complete when all bytes are here.
#[derive(Clone, Copy, Debug)]
pub struct GetRequest<'a> {
    /// The source.
    pub from: Remote,
    /// The destination: at most `segments_max` pieces.
    pub segments: &'a [Seg],
    /// It and all later one-sided requests to the peer wait until all earlier ones are complete there.
    pub fence: bool,
    /// How completion is reported.
    pub notify: Notify,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

impl<'a> GetRequest<'a> {
    /// A window into `segments`, reported by an event.
    pub const fn new(from: Remote, segments: &'a [Seg]) -> Self {
        GetRequest { from, segments, fence: false, notify: Notify::Event, cookie: Cookie(0) }
    }
}

/// Atomic on one value in a peer's window. Complete when the answer has arrived; the completion carries the
/// old value.
#[derive(Clone, Copy, Debug)]
pub struct AtomicRequest {
    /// Which value; its address there must be a multiple of the type's size.
    pub at: Remote,
    /// What to do.
    pub kind: AtomicKind,
    /// On what type.
    pub data_type: AtomicType,
    /// Operand, in the low bytes.
    pub operand: u64,
    /// Comparand of the comparing swaps, mask of the masked one, in the low bytes.
    pub compare: u64,
    /// It and all later one-sided requests to the peer wait until all earlier ones are complete there.
    pub fence: bool,
    /// How completion is reported.
    pub notify: Notify,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

impl AtomicRequest {
    /// An atomic with one operand, reported by an event; comparing and masked swaps need `compare` as well.
    pub const fn new(at: Remote, kind: AtomicKind, data_type: AtomicType, operand: u64) -> Self {
        let (compare, fence, notify, cookie) = (0, false, Notify::Event, Cookie(0));
        AtomicRequest { at, kind, data_type, operand, compare, fence, notify, cookie }
    }
}

/// Completes when every put, get and atomic submitted to the peer before it is complete at the peer.
#[derive(Clone, Copy, Debug)]
pub struct FlushRequest {
    /// The peer.
    pub peer: PeerId,
    /// How completion is reported.
    pub notify: Notify,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

impl FlushRequest {
    /// A flush of all requests to `peer` so far, reported by an event.
    pub const fn new(peer: PeerId) -> Self {
        FlushRequest { peer, notify: Notify::Event, cookie: Cookie(0) }
    }
}

/// What peers may do to a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Get.
    pub read: bool,
    /// Put.
    pub write: bool,
    /// Atomics.
    pub atomic: bool,
}

/// Memory exposed to peers.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Where it starts.
    pub at: MemRef,
    /// Its length in bytes.
    pub len: u64,
    /// What is allowed.
    pub access: Access,
    /// The key that peers must name: unique among this endpoint's windows, best unguessable.
    pub key: u64,
    /// How puts with immediate data are reported: by [`Event::Written`](crate::endpoint::Event::Written), a
    /// counter, both, or not at all.
    pub written: Notify,
    /// Comes back in these events.
    pub cookie: Cookie,
}

impl Window {
    /// `len` bytes at `at` under `key`; puts with immediate data are reported by events.
    pub const fn new(at: MemRef, len: u64, access: Access, key: u64) -> Window {
        Window { at, len, access, key, written: Notify::Event, cookie: Cookie(0) }
    }
}

impl AtomicType {
    /// Bytes of a value; also its alignment.
    pub const fn bytes(self) -> u64 {
        match self {
            AtomicType::I8 | AtomicType::U8 => 1,
            AtomicType::I16 | AtomicType::U16 => 2,
            AtomicType::I32 | AtomicType::U32 | AtomicType::F32 => 4,
            AtomicType::I64 | AtomicType::U64 | AtomicType::F64 => 8,
        }
    }

    /// Whether `kind` is defined on this type: bitwise operations are not defined on floating point.
    pub const fn allows(self, kind: AtomicKind) -> bool {
        let float = matches!(self, AtomicType::F32 | AtomicType::F64);
        !(float && matches!(kind, AtomicKind::And | AtomicKind::Or | AtomicKind::Xor | AtomicKind::MaskedSwap))
    }
}

/// Which messages a receive or probe takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// From this peer only; `None`: from any.
    pub source: Option<PeerId>,
    /// Tagged or untagged.
    pub tag: TagMatch,
}

impl Selector {
    /// Untagged messages of any peer.
    pub const ANY_UNTAGGED: Selector = Selector { source: None, tag: TagMatch::Untagged };

    /// Messages with this tag, from any peer.
    pub const fn tagged(tag: u64) -> Selector {
        Selector { source: None, tag: TagMatch::Tagged { tag, ignore: 0 } }
    }

    /// The same messages, of one peer.
    pub const fn of(self, source: PeerId) -> Selector {
        Selector { source: Some(source), ..self }
    }
}

/// The tag part of a [`Selector`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagMatch {
    /// Untagged messages.
    Untagged,
    /// Tagged messages with a tag equal to `tag` in every bit that is 0 in `ignore`.
    Tagged {
        /// The tag to match.
        tag: u64,
        /// Bits that don't matter.
        ignore: u64,
    },
}
