//! Events that the endpoint reports to its caller. Rails are numbers in the texts of losses; a driver that
//! has their names can write a better one.

use core::error::Error;
use core::fmt::{self, Display, Formatter};

use crate::ids::{Cookie, OpId, PeerId, RailId};
use crate::time::Nanos;
use crate::wire::{Refusal, WireError};

/// An event for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request is complete, with or without success. Each request has at most one (a multi-receive one per
    /// message).
    Completed(Completion),
    /// A peer has put data with immediate data into a window, all bytes of which are in place. Reported once
    /// for each such put.
    Written(Written),
    /// The channel to a peer is open: the first subchannel is up.
    PeerUp {
        /// The peer.
        peer: PeerId,
    },
    /// The peer shut down in good order. Requests to it end in [`OpError::PeerClosed`].
    PeerClosed {
        /// The peer.
        peer: PeerId,
    },
    /// The peer is lost. Requests to it end in [`OpError::PeerLost`]; all others continue.
    PeerLost {
        /// The peer.
        peer: PeerId,
        /// The reason, and the connection attempts before.
        why: Loss,
    },
}

/// A put with immediate data into a window of this endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The origin.
    pub peer: PeerId,
    /// [`Window::cookie`](crate::endpoint::Window::cookie).
    pub cookie: Cookie,
    /// The window's key.
    pub window: u64,
    /// Where the bytes start in the window.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
    /// Immediate data.
    pub immediate: u64,
}

/// A request that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub operation: OpId,
    /// The caller's cookie of the request.
    pub cookie: Cookie,
    /// What was requested.
    pub kind: RequestKind,
    /// Its outcome.
    pub result: Result<Done, OpError>,
    /// The request has no further event: the caller owns its memory again. `false` only for messages of a
    /// multi-receive that continues.
    pub last: bool,
    /// Multi-receive: the message's number among those of its buffer, from 0 on, in the order of matching
    /// (M-9). Messages complete in any order; this number restores the order in which a peer sent them, where
    /// [`Done::offset`] does not, as messages of 0 bytes share it. No number is left out: failed messages
    /// have one, and an event that releases a buffer without a message has the count of its messages. It is
    /// counted modulo 2^32. All other requests: 0.
    pub index: u32,
}

// Written for every request: the kind takes a byte that was free.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Completion>() == 96);

/// What a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A message to a peer, injected or not.
    Send,
    /// A buffer for one message.
    Recv,
    /// A buffer for several messages: one of them, or its release.
    MultiRecv,
    /// A one-sided put.
    Put,
    /// A one-sided get.
    Get,
    /// An atomic.
    Atomic,
    /// A flush.
    Flush,
}

/// The result of a successful request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Multi-receive: this was the last message, the caller owns the buffer again.
    pub released: bool,
}

impl Done {
    /// A request with `peer` that moved nothing.
    pub const fn of(peer: PeerId) -> Done {
        Done { bytes: 0, peer, tag: None, immediate: None, old: 0, offset: 0, released: false }
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum OpError {
    /// The message was longer than the buffer. The first `capacity` bytes are in the buffer; the channel
    /// stays usable.
    #[error("a message of {sent} bytes from rank {peer} {} came to a buffer of {capacity} bytes, which holds its beginning", Tagged(*.tag))]
    Truncated {
        /// Bytes of the message.
        sent: u64,
        /// Bytes of the buffer.
        capacity: u64,
        /// The sender.
        peer: PeerId,
        /// Its tag.
        tag: Option<u64>,
        /// Its immediate data.
        immediate: Option<u64>,
    },
    /// Cancelled by the caller.
    #[error("the request was cancelled")]
    Cancelled,
    /// The peer is lost.
    #[error("rank {peer} is lost: {why}")]
    PeerLost {
        /// The peer.
        peer: PeerId,
        /// The reason, and the connection attempts before.
        #[source]
        why: Loss,
    },
    /// The peer closed before the request was complete.
    #[error("rank {peer} shut down before the request was complete")]
    PeerClosed {
        /// The peer.
        peer: PeerId,
    },
    /// The peer refused the access.
    #[error("rank {peer} refused the access: {why}")]
    Refused {
        /// The peer.
        peer: PeerId,
        /// Why.
        #[source]
        why: Refusal,
    },
    /// A rail could not register the memory of this request.
    #[error(
        "rail {rail} could not register the memory of the request, and no other way leads there: raise the limit of \
         locked memory if it is that"
    )]
    Registration {
        /// The rail.
        rail: RailId,
    },
}

/// A lost peer: the reason, the rails, and the connection attempts before it was given up (F-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Loss {
    /// Why.
    pub reason: LossReason,
    /// The rails that led to it: bit per rail.
    pub rails: u64,
    /// How long no rail to it had been ready before it was given up; if none ever was, the time since the
    /// first dial or the first packet. `Nanos(0)`: one was ready until then.
    pub time: Nanos,
    /// Failed connections per rail, in the order of [`rails`](Self::rails), the first in the lowest bits.
    /// Each operation has room for a loss, so all counts share these bits.
    attempts: u64,
}

impl Loss {
    /// Number of counts: the last one covers its rail and all later ones. So a loss is no larger than the
    /// other results of a completion.
    const COUNTED: u32 = 8;

    /// A loss of a peer with the rails `rails`. `failed`: connections over each of them, in ascending order,
    /// that failed or were refused.
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

    /// The largest count of [`attempts`](Self::attempts), which stands for this many or more. It is 255 with
    /// eight rails and more, 511 with seven, 1023 with six, and at least 4095 with fewer.
    pub const fn attempts_max(&self) -> u32 {
        u32::MAX >> (u32::BITS - self.bits())
    }

    /// The attempts: rails (bit per rail), and connections over them that failed or were refused since they
    /// last carried packets, including the one that carried them; [`attempts_max`](Self::attempts_max): this
    /// many or more. One rail per item; the eighth and later ones share one.
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

/// The reason of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum LossReason {
    /// Rail `rail` failed, and recovery was not possible: no process listens at its address any more, or it
    /// is lossless while the peer lives, or recovery is off.
    #[error("rail {rail} failed: {fault}")]
    RailFailed {
        /// The rail.
        rail: RailId,
        /// What the rail reported.
        #[source]
        fault: RailFault,
    },
    /// No connection on any rail within `connect_timeout`, and no rail reported a reason.
    #[error("no connection on any rail within the configured time (connect_timeout)")]
    ConnectTimeout,
    /// All rails to it have failed, and none could be redialled within `recovery_timeout`; or none could be
    /// connected at all within `connect_timeout`.
    #[error(
        "no rail leads to it (recovery_timeout; connect_timeout where none ever did), at last rail {rail}: {fault}"
    )]
    Unreachable {
        /// The rail that failed last.
        rail: RailId,
        /// How.
        #[source]
        fault: RailFault,
    },
    /// Nothing received for the configured time.
    #[error("nothing received from it for the configured time (silence_max)")]
    Silent,
    /// It violated a rule of the protocol.
    #[error("it broke the protocol: {0}")]
    Protocol(#[source] ProtocolError),
}

/// The fault that a rail reports for a subchannel that went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum RailFault {
    /// The peer's process is gone, or closed without BYE.
    #[error("its process is gone, or closed without BYE")]
    Closed,
    /// The peer refused the connection.
    #[error("it refused the connection")]
    Refused,
    /// No process listens at the peer's address: the peer is gone, while its host lives.
    #[error("no process listens there any more: the peer's process is gone")]
    Gone,
    /// The peer did not prove that it belongs to the job.
    #[error("it did not prove that it belongs to the job")]
    Unauthenticated,
    /// No answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// The device or link failed; `code` is the system's number (an errno, a work completion status).
    #[error("the link failed: the device or the system reports {code}")]
    Device {
        /// The system's number.
        code: i32,
    },
    /// The peer wrote invalid data (a corrupt ring, a packet over the limit).
    #[error("it wrote what no honest peer writes")]
    Corrupt,
}

/// A protocol rule that a peer violated. Numbers: `conformance/PROTOCOL.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ProtocolError {
    /// The packet does not parse.
    #[error("field {} of a packet holds {}", .0.field, .0.value)]
    Wire(#[from] WireError),
    /// The packet names another source than the subchannel's peer.
    #[error("a packet names rank {named} as its source")]
    WrongSource {
        /// The rank named.
        named: u32,
    },
    /// A PSN beyond the receive window, or an acknowledgment of a packet that was never sent.
    #[error("sequence number {psn} is out of the window")]
    Sequence {
        /// The number.
        psn: u32,
    },
    /// More messages or blocks than were granted.
    #[error("it sent more than was granted")]
    Credit,
    /// An eager or segment payload over the announced limit.
    #[error("a payload of {bytes} bytes is over the limit")]
    TooLong {
        /// Bytes.
        bytes: u64,
    },
    /// A packet before the Connect of its subchannel.
    #[error("a packet came before the connect")]
    NotConnected,
    /// A segment outside the transfer that it names.
    #[error("a segment at offset {offset} is outside of its transfer")]
    OutOfRange {
        /// Offset named.
        offset: u64,
    },
    /// Parameters in a CONNECT that can't be met (window, block size zero, ...).
    #[error("its parameters don't fit: both sides must run the same version with a window and blocks")]
    BadParameters,
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

/// "with tag 0x7".
struct Tagged(Option<u64>);

impl Display for Tagged {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(tag) => write!(f, "with tag {tag:#x}"),
            None => f.write_str("without a tag"),
        }
    }
}

/// "no rail was ready for 12.3 ms".
struct Unready(Nanos);

impl Display for Unready {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Nanos(time) = self.0;
        let (unit, name) = if time < 1_000_000_000 { (1_000_000, "ms") } else { (1_000_000_000, "s") };
        // Rounded to a tenth.
        let tenths = time.saturating_add(unit / 20) / (unit / 10);
        write!(f, "no rail was ready for {}.{} {name}", tenths / 10, tenths % 10)
    }
}

impl Loss {
    /// Writes why the peer is lost, over which rails, and which attempts were made, as its `Display` does,
    /// but with a driver's names of its rails: `name` writes a rail's name, `fault` the rail's report.
    pub fn describe(
        &self,
        f: &mut Formatter<'_>,
        name: impl Fn(RailId, &mut Formatter<'_>) -> fmt::Result,
        fault: impl Fn(RailFault, &mut Formatter<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let rail = |f: &mut Formatter<'_>, rail, what| {
            f.write_str("rail ")?;
            name(rail, f)?;
            f.write_str(": ")?;
            fault(what, f)
        };
        match self.reason {
            LossReason::RailFailed { rail: failed, fault } => rail(f, failed, fault)?,
            LossReason::Unreachable { rail: last, fault } => {
                f.write_str("no rail leads to it, at last ")?;
                rail(f, last, fault)?;
            }
            reason @ (LossReason::ConnectTimeout | LossReason::Silent | LossReason::Protocol(_)) => reason.fmt(f)?,
        }
        if self.time.0 > 0 {
            write!(f, "; {}", Unready(self.time))?;
        }
        f.write_str("; connections that failed: ")?;
        let most = self.attempts_max();
        for (at, (rails, failed)) in self.attempts().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            match failed {
                0 => f.write_str("none")?,
                failed if failed >= most => write!(f, "{failed} or more")?,
                _ => write!(f, "{failed}")?,
            }
            let named = (0..64).filter(|bit| rails >> bit & 1 == 1);
            for (at, bit) in named.enumerate() {
                f.write_str(if at > 0 { " and " } else { " over " })?;
                name(RailId(bit), f)?;
            }
        }
        Ok(())
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.describe(f, |rail, f| rail.fmt(f), |fault, f| fault.fmt(f))
    }
}

impl Error for Loss {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.reason)
    }
}
