//! One narrow error per verb, with the facts to act on.

use super::config::ConfigError;
use crate::ids::{CounterId, PeerId, RailId};
use crate::store::ArenaError;
use crate::wire::AddressError;

/// Why an endpoint can't start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// A value of the configuration is out of its range.
    Config(ConfigError),
    /// The region doesn't fit.
    Region(ArenaError),
    /// A rail that takes fewer than two posts at once, or carries no payload.
    RailFacts {
        /// The rail.
        rail: RailId,
    },
    /// More rails than `rails_max`, or none.
    Rails {
        /// Rails given.
        given: usize,
        /// Rails allowed.
        max: u8,
    },
}

/// Why a peer can't be added, closed or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// The rank is not below `peers_max`.
    OutOfRange {
        /// The rank.
        peer: PeerId,
        /// The limit.
        peers_max: u32,
    },
    /// It is known already.
    Known(PeerId),
    /// It is not known.
    Unknown(PeerId),
    /// It is not closed yet, or a message of it is being received.
    InUse(PeerId),
    /// The mask names no rail, or one that does not exist.
    NoSuchRail {
        /// The mask.
        rails: u64,
    },
}

/// Why an address can't be announced to the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAddressError {
    /// There is no such rail.
    NoSuchRail(RailId),
    /// It is no address.
    Address(AddressError),
}

/// The table that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// `operations_max` reached: poll events and try again.
    Operations,
    /// `channels_max` peers are connected.
    Channels,
    /// All `retained_max` copies wait for acknowledgment: try again after polling.
    Retained,
}

/// Why a request is refused. Nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// A table is full.
    Full(Full),
    /// The peer was never added.
    UnknownPeer(PeerId),
    /// The peer is lost or closed.
    PeerGone(PeerId),
    /// More pieces than `segments_max`.
    Segments {
        /// Pieces given.
        given: usize,
        /// Pieces allowed.
        max: u8,
    },
    /// The length can't be represented, or an injected message is over `eager_bytes_max`.
    TooLong {
        /// Bytes given.
        bytes: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// No such counter.
    UnknownCounter(CounterId),
    /// The claimed message is gone (received already, or its peer is lost).
    UnknownMessage,
    /// A multi-receive needs exactly one segment, and a minimum from 1 to its length.
    BadMulti,
    /// Operation and type of an atomic don't go together, or the offset is not aligned for the type.
    BadAtomic,
}

/// Why a request can't be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelError {
    /// No such request; it is over already.
    Unknown,
    /// It has matched or has been sent: it will complete by itself.
    TooLate,
}

/// Why memory can't be exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExposeError {
    /// `windows_max` reached.
    Full,
    /// Another window has this key.
    KeyInUse(u64),
    /// Offset and length overflow.
    TooLong {
        /// Bytes given.
        bytes: u64,
    },
}

/// Why a window can't be deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeregisterError {
    /// No such window.
    Unknown,
    /// A peer's get is being answered from it: try again after polling.
    Busy,
}
