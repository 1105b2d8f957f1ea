//! What the endpoint tells its caller.

use crate::ids::{Cookie, OpId, PeerId, RailId};
use crate::time::Nanos;
use crate::wire::{Refusal, WireError};

/// Something the caller wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request is over, well or not. Each request makes at most one (a multi-receive one per message).
    Completed(Completion),
    /// The channel to a peer is open: the first subchannel stands.
    PeerUp {
        /// The peer.
        peer: PeerId,
    },
    /// The peer said goodbye in good order. Requests to it end in [`OpError::PeerClosed`].
    PeerClosed {
        /// The peer.
        peer: PeerId,
    },
    /// The peer is lost. Requests to it end in [`OpError::PeerLost`]; everything else goes on.
    PeerLost {
        /// The peer.
        peer: PeerId,
        /// Why, and what was tried before.
        why: Loss,
    },
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub operation: OpId,
    /// What the caller gave with it.
    pub cookie: Cookie,
    /// What it came to.
    pub result: Result<Done, OpError>,
    /// Nothing more will be told of the request: its memory is the caller's again. `false` only for messages
    /// of a multi-receive that goes on.
    pub last: bool,
    /// Multi-receive: the message's number among those of its buffer, from 0 on, in the order of matching
    /// (M-9). Messages complete in any order; this number restores the order in which a peer sent them, where
    /// [`Done::offset`] does not, as messages of 0 bytes share it. No number is left out: messages that
    /// failed have one, and where a buffer is released without a message, that event has the count of its
    /// messages. It is counted modulo 2^32. All other requests: 0.
    pub index: u32,
}

/// What a request that ended well came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes moved.
    pub bytes: u64,
    /// The other side: the sender of a received message.
    pub peer: PeerId,
    /// Tag of a received message; `None`: untagged.
    pub tag: Option<u64>,
    /// Immediate data of a received message.
    pub immediate: Option<u64>,
    /// Value before an atomic, in the low bytes.
    pub old: u64,
    /// Multi-receive: where in the buffer the message starts. Their order: [`Completion::index`].
    pub offset: u64,
    /// Multi-receive: this was the last message, the buffer is the caller's again.
    pub released: bool,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum OpError {
    /// The message was longer than the buffer. The first `capacity` bytes are in the buffer; the channel is
    /// well.
    Truncated {
        /// Bytes of the message.
        sent: u64,
        /// Bytes of the buffer.
        capacity: u64,
        /// The sender.
        peer: PeerId,
        /// Its tag.
        tag: Option<u64>,
    },
    /// Cancelled by the caller.
    Cancelled,
    /// The peer is lost.
    PeerLost {
        /// The peer.
        peer: PeerId,
        /// Why, and what was tried before.
        why: Loss,
    },
    /// The peer closed before the request was done.
    PeerClosed {
        /// The peer.
        peer: PeerId,
    },
    /// The peer refused the access.
    Refused {
        /// The peer.
        peer: PeerId,
        /// Why.
        why: Refusal,
    },
    /// A rail could not register the memory of this request.
    Registration {
        /// The rail.
        rail: RailId,
    },
}

/// A peer that is lost: why, over which rails, and what was tried before it was given up (F-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Loss {
    /// Why.
    pub reason: LossReason,
    /// The rails that led to it: bit per rail.
    pub rails: u64,
    /// How long, before it was given up, no rail to it had been ready, or since it was called or heard first,
    /// where none ever was; `Nanos(0)`: one was until then.
    pub time: Nanos,
    /// Connections that failed, by the place of their rail among [`rails`](Self::rails), the first in the
    /// lowest bits. Each operation has room for a loss, so all counts share these bits.
    attempts: u64,
}

impl Loss {
    /// Of so many rails attempts are counted: of the last one and those behind it together. So a loss is no
    /// larger than what else a completion may say.
    const COUNTED: u32 = 8;

    /// A loss of a peer to which `rails` led. `failed`: connections over each of them, in ascending order,
    /// that failed or could not be had.
    pub fn new(reason: LossReason, rails: u64, time: Nanos, failed: impl IntoIterator<Item = u32>) -> Loss {
        let mut loss = Loss { reason, rails, time, attempts: 0 };
        let mut counts = [0u32; Self::COUNTED as usize];
        for (at, failed) in failed.into_iter().take(rails.count_ones() as usize).enumerate() {
            let count = &mut counts[at.min(counts.len() - 1)];
            *count = count.saturating_add(failed).min(loss.attempts_max());
        }
        for count in counts.into_iter().rev() {
            loss.attempts = loss.attempts << loss.bits() | u64::from(count);
        }
        loss
    }

    /// Bits of each count.
    const fn bits(&self) -> u32 {
        match self.rails.count_ones() {
            0 | 1 => u32::BITS,
            rails @ 2..Self::COUNTED => u64::BITS / rails,
            _ => u64::BITS / Self::COUNTED,
        }
    }

    /// [`attempts`](Self::attempts) end here: so many, or more. It is 255 with eight rails and more, 511 with
    /// seven, 1023 with six, and 4095 at least with fewer.
    pub const fn attempts_max(&self) -> u32 {
        u32::MAX >> (u32::BITS - self.bits())
    }

    /// What was tried: rails (bit per rail), and connections over them that failed or could not be had since
    /// they carried packets last, the one that carried them included; [`attempts_max`](Self::attempts_max):
    /// so many or more. One rail each time; the eighth and those behind it together.
    pub fn attempts(&self) -> impl Iterator<Item = (u64, u32)> {
        let (bits, most) = (self.bits(), self.attempts_max());
        let (mut left, mut counts) = (self.rails, self.attempts);
        (1..=Self::COUNTED).map_while(move |nth| {
            let rails = if nth < Self::COUNTED { left & left.wrapping_neg() } else { left };
            let failed = counts as u32 & most;
            left &= !rails;
            counts >>= bits;
            (rails != 0).then_some((rails, failed))
        })
    }
}

/// Why a peer counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum LossReason {
    /// Rail `rail` failed, and recovery was not possible: nobody listens at its address any more, or it loses
    /// nothing while the peer lives, or recovery is off.
    RailFailed {
        /// The rail.
        rail: RailId,
        /// What the rail reported.
        fault: RailFault,
    },
    /// No connection on any rail within `connect_timeout`, and no rail said why.
    ConnectTimeout,
    /// All rails to it have failed, and none could be had again within `recovery_timeout`; or none could be
    /// had at all within `connect_timeout`.
    Unreachable {
        /// The rail that failed last.
        rail: RailId,
        /// How.
        fault: RailFault,
    },
    /// Nothing heard for the configured time.
    Silent,
    /// It broke a rule of the protocol.
    Protocol(ProtocolError),
}

/// What a rail reports of a subchannel that went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum RailFault {
    /// The peer's process is gone, or closed without a goodbye.
    Closed,
    /// The peer refused the connection.
    Refused,
    /// Nobody listens where the peer's process listened: it is gone, while its host lives.
    Gone,
    /// The peer did not prove that it belongs to the job.
    Unauthenticated,
    /// No answer in time.
    TimedOut,
    /// The device or link failed; `code` is the system's number (an errno, a work completion status).
    Device {
        /// The system's number.
        code: i32,
    },
    /// The peer wrote what no honest peer writes (a corrupt ring, a packet over the limit).
    Corrupt,
}

/// A rule of the protocol that a peer broke. Numbers: `conformance/PROTOCOL.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ProtocolError {
    /// The packet does not parse.
    Wire(WireError),
    /// The packet names another source than the subchannel's peer.
    WrongSource {
        /// The rank named.
        named: u32,
    },
    /// A PSN beyond the receive window, or an acknowledgment of what was never sent.
    Sequence {
        /// The number.
        psn: u32,
    },
    /// More messages or blocks than were granted.
    Credit,
    /// An eager or segment payload over the announced limit.
    TooLong {
        /// Bytes.
        bytes: u64,
    },
    /// A packet before the Connect of its subchannel.
    NotConnected,
    /// A segment outside the transfer that it names.
    OutOfRange {
        /// Offset named.
        offset: u64,
    },
    /// Terms in a Connect that can't be met (window, block size zero, ...).
    Terms,
}
