//! One narrow error per verb, with the facts to act on.

use super::config::ConfigError;
use crate::ids::{CounterId, PeerId, RailId};
use crate::store::ArenaError;
use crate::wire::AddressError;

/// Why an endpoint can't start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A value of the configuration is out of its range.
    #[error("the configuration can't be used: {0}")]
    Config(#[from] ConfigError),
    /// The region doesn't fit.
    #[error("the memory for the endpoint does not fit: {0} (Config::memory_bytes returns how much it takes)")]
    Region(#[from] ArenaError),
    /// A rail that takes fewer than two posts at once, or carries no payload.
    #[error("rail {rail} takes fewer than two posts at once, or carries no payload")]
    RailFacts {
        /// The rail.
        rail: RailId,
    },
    /// More rails than `rails_max`, or none.
    #[error("{given} rails were given, allowed are 1 to {max}: raise Config::rails_max, or give fewer")]
    Rails {
        /// Rails given.
        given: usize,
        /// Rails allowed.
        max: u8,
    },
}

/// Why a peer can't be added, closed or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The rank is not below `peers_max`.
    #[error("there is no rank {peer} in a job of {peers_max} (Config::peers_max): ranks count from 0")]
    OutOfRange {
        /// The rank.
        peer: PeerId,
        /// The limit.
        peers_max: u32,
    },
    /// It is known already.
    #[error("rank {0} was added before: each is added once")]
    Known(PeerId),
    /// It is not known.
    #[error("rank {0} was never added: add it first")]
    Unknown(PeerId),
    /// It is not closed yet, or a message of it is being received.
    #[error("rank {0} is not closed yet, or a message of it is being received")]
    InUse(PeerId),
    /// The mask names no rail, or one that does not exist.
    #[error("the rails {rails:#b} that are to lead to the peer are none, or name one that does not exist")]
    NoSuchRail {
        /// The mask.
        rails: u64,
    },
}

/// Why an address can't be announced to the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetAddressError {
    /// There is no such rail.
    #[error("there is no rail {0} whose address could change")]
    NoSuchRail(RailId),
    /// It is no address.
    #[error("the peers can't be notified: {0}")]
    Address(#[from] AddressError),
}

/// The table that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// `operations_max` reached: poll events and try again.
    #[error(
        "as many requests are in progress as Config::operations_max allows: drive the endpoint, take events, try again"
    )]
    Operations,
    /// `channels_max` peers are connected.
    #[error("as many peers are connected as Config::channels_max allows: close one, or raise it")]
    Channels,
    /// All `retained_max` copies wait for acknowledgment: try again after polling.
    #[error(
        "as many copies of messages wait for acknowledgment as Config::retained_max allows: drive the endpoint and try \
         again, or raise it where it is 0"
    )]
    Retained,
}

/// Why a request is refused. Nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A table is full.
    #[error("no room for the request: {0}")]
    Full(#[source] Full),
    /// The peer was never added.
    #[error("no rank {0} was added that a request could go to")]
    UnknownPeer(PeerId),
    /// The peer is lost or closed.
    #[error("rank {0} is lost or closed: no request can be submitted to it")]
    PeerGone(PeerId),
    /// More pieces than `segments_max`.
    #[error("{given} segments, allowed are {max}: merge them, or raise Config::segments_max")]
    Segments {
        /// Pieces given.
        given: usize,
        /// Pieces allowed.
        max: u8,
    },
    /// The length can't be represented, or an injected message is over `eager_bytes_max`.
    #[error("{bytes} bytes, allowed are {max} for this kind of request (injected: Config::eager_bytes_max)")]
    TooLong {
        /// Bytes given.
        bytes: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// No such counter.
    #[error("there is no counter {0}: they count from 0 to below Config::counters_max")]
    UnknownCounter(CounterId),
    /// The claimed message is gone (received already, or its peer is lost).
    #[error("the claimed message is gone: it was received already, or its sender is lost")]
    UnknownMessage,
    /// A multi-receive needs exactly one segment, and a minimum from 1 to its length.
    #[error("a multi-receive needs exactly one segment, and a minimum above 0 that is no more than its length")]
    BadMulti,
    /// Operation and type of an atomic don't go together.
    #[error("this atomic does not exist for this type: bitwise operations and masked swaps are for integers")]
    BadAtomic,
}

/// Why a request can't be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CancelError {
    /// No such request; it is over already.
    #[error("there is no such request: it is over, and its event was taken, or waits to be taken")]
    Unknown,
    /// It has matched or has been sent: it will complete by itself.
    #[error("it is too late to cancel: the request has matched or was sent, and will complete")]
    TooLate,
}

/// Why memory can't be exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExposeError {
    /// `windows_max` reached.
    #[error("as many windows are exposed as Config::windows_max allows: deregister one, or raise it")]
    Full,
    /// Another window has this key.
    #[error("key {0:#x} belongs to another window: choose one at random")]
    KeyInUse(u64),
    /// No such counter.
    #[error("there is no counter {0}: they count from 0 to below Config::counters_max")]
    UnknownCounter(CounterId),
    /// Offset and length overflow.
    #[error("a window of {bytes} bytes wraps around the end of its region")]
    TooLong {
        /// Bytes given.
        bytes: u64,
    },
}

/// Why a window can't be deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeregisterError {
    /// No such window.
    #[error("there is no such window: it was deregistered already")]
    Unknown,
    /// A peer's get is being answered from it: try again after polling.
    #[error("a peer is being served from this window: drive the endpoint and try again")]
    Busy,
}
