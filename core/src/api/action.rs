//! Actions that the endpoint requests from its shim, and the names of payload memory in them.

use crate::ids::{OpId, PeerId, PlaceId, PostId, RailId};
use crate::mem::{MemRef, Seg};
use crate::wire::aggregate::RECORD_BYTES;
use crate::wire::{AtomicKind, AtomicType, HEADER_BYTES_MAX, RemoteKey};

/// A range of payload memory: resolve it with
/// [`Endpoint::segments`](crate::endpoint::Endpoint::segments) before the next call that changes the
/// endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub(crate) of: SpanOf,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Span {
    /// No bytes.
    pub const EMPTY: Span = Span { of: SpanOf::Nothing, offset: 0, len: 0 };

    /// Total length in bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The rest after the first `bytes` bytes, for a rail that continues there.
    pub const fn behind(self, bytes: u64) -> Span {
        let bytes = if bytes < self.len { bytes } else { self.len };
        Span { of: self.of, offset: self.offset + bytes, len: self.len - bytes }
    }
}

/// What a [`Span`] is a range of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanOf {
    Nothing,
    /// The segments of an operation.
    Op(u32),
    /// A chain of unexpected-payload blocks.
    Blocks(u32),
    /// One piece of memory.
    At(MemRef),
}

/// An action for the shim. The shim carries out the actions of a batch in order, and before the next call
/// that feeds, submits or polls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly every action is a post, and a box would need an allocator")]
pub enum Action {
    /// Open the subchannel to `peer` over `rail`; answer with
    /// [`RailEvent::Up`](crate::endpoint::RailEvent::Up) or [`Down`](crate::endpoint::RailEvent::Down).
    Connect {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
    },
    /// Close the subchannel; the rail may first send what it was given before. No answer is expected.
    Disconnect {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
    },
    /// Abort the subchannel at once, with everything in progress on it. Afterwards the rail sends and places
    /// nothing of it, and no peer writes or reads memory here over it. No answer is expected, and nothing
    /// more is reported of it. The connection may be opened anew (rule F-2).
    Abort {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
    },
    /// Copy `from` to `to` (equal lengths), now.
    Copy {
        /// Source.
        from: Span,
        /// Destination.
        to: Span,
    },
    /// Write `head` to the start of `to` and copy `from` behind it (`to` has the length of both), now: one
    /// message of an aggregate.
    Pack {
        /// The record head in front of the message.
        head: [u8; RECORD_BYTES],
        /// The message; may be empty.
        from: Span,
        /// Destination.
        to: Span,
    },
    /// Hand a packet, write or read to a rail. The rail has room: the core counts.
    Post(Post),
    /// Perform an atomic on local memory, now, and answer with `handle_atomic` with the old value.
    Atomic(AtomicAction),
    /// Register the memory of an operation with a rail; answer with `handle_registered`.
    Register {
        /// For the answer.
        operation: OpId,
        /// The rail.
        rail: RailId,
        /// The memory.
        memory: Span,
        /// Peers will write to it (else: read from it).
        write: bool,
    },
    /// The registration is no longer needed (a cache may keep it).
    Deregister {
        /// The rail.
        rail: RailId,
        /// The key from `handle_registered`.
        key: RemoteKey,
    },
}

/// Something to hand to a rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// The id that `handle_completion` returns.
    pub id: PostId,
    /// The subchannel's peer.
    pub peer: PeerId,
    /// The subchannel's rail.
    pub rail: RailId,
    /// Send, write or read.
    pub kind: PostKind,
    /// The packet's header; empty for writes and reads.
    pub header: heapless::Vec<u8, HEADER_BYTES_MAX>,
    /// The payload: source of a send or write, destination of a read. The rail may use this memory until it
    /// reports completion.
    pub payload: Span,
    /// Bytes of [`extent`](Self::extent): at least the payload's.
    pub extent_bytes: u64,
}

impl Post {
    /// The payload and the bytes after it in the part of the message planned for this rail. Later posts name
    /// them, so a rail that registers memory may register all of it at once. The rail may access only the
    /// payload.
    pub const fn extent(&self) -> Span {
        Span { len: self.extent_bytes, ..self.payload }
    }
}

/// What to do with a [`Post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostKind {
    /// Send header and payload as one packet.
    Send,
    /// Write the payload into the peer's memory.
    Write {
        /// Where to.
        to: RemoteKey,
    },
    /// Read the payload from the peer's memory.
    Read {
        /// Where from.
        from: RemoteKey,
    },
}

/// An atomic on local memory, requested by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAction {
    /// For the answer.
    pub operation: OpId,
    /// The value; aligned for the type relative to its window, inside the window.
    pub at: MemRef,
    /// What to do.
    pub kind: AtomicKind,
    /// On what type.
    pub data_type: AtomicType,
    /// Operand, in the low bytes.
    pub operand: u64,
    /// Comparand, in the low bytes.
    pub compare: u64,
}

/// Reads payload memory: fills the bytes with its content.
pub type Peek<'a> = &'a dyn Fn(MemRef, &mut [u8]);

/// The destination of an arriving packet's payload: the answer of `handle_arrival`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Nothing more to do; the packet had no payload.
    Done,
    /// Skip the payload.
    Discard,
    /// Put the first `memory.len()` payload bytes into `memory`, skip the rest, then call `handle_placed`.
    /// One packet of a subchannel at a time. Resolve `memory` anew (with `place_memory`) after any other call
    /// into the endpoint.
    Place {
        /// For `handle_placed`.
        id: PlaceId,
        /// The destination.
        memory: Span,
    },
    /// The packet carried a new peer address for one of our rails: give the rail the address
    /// ([`wire::Address::in_header`](crate::wire::Address::in_header)) before carrying out the next action
    /// (F-12).
    Address {
        /// Our rail that connects to the moved one.
        rail: RailId,
    },
    /// The peer violated the protocol: close the subchannel. (The endpoint has given the peer up already.)
    Close,
}

/// Iterator over the pieces of a [`Span`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    pub(crate) pieces: Pieces<'a>,
    /// Bytes to skip at the start.
    pub(crate) skip: u64,
    /// Bytes still to yield.
    pub(crate) left: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Pieces<'a> {
    List(core::slice::Iter<'a, Seg>),
    Blocks { next_of: &'a [u32], at: u32, block_bytes: u64, base: u64 },
    One(Option<Seg>),
}

impl Iterator for Segments<'_> {
    type Item = Seg;

    fn next(&mut self) -> Option<Seg> {
        while self.left > 0 {
            let mut seg = match &mut self.pieces {
                Pieces::List(list) => *list.next()?,
                Pieces::One(one) => one.take()?,
                Pieces::Blocks { next_of, at, block_bytes, base } => {
                    let index = *at;
                    *at = *next_of.get(index as usize)?;
                    Seg::new(crate::mem::RegionId::POOL, *base + u64::from(index) * *block_bytes, *block_bytes)
                }
            };
            let skipped = self.skip.min(seg.len);
            self.skip -= skipped;
            seg.at.offset += skipped;
            seg.len = (seg.len - skipped).min(self.left);
            if seg.len > 0 {
                self.left -= seg.len;
                return Some(seg);
            }
        }
        None
    }
}
