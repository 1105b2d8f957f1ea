//! `Display` of errors and losses: the problem, with the rank, the rail and the value, and the remedy.
//!
//! Rails are numbers here; a driver that has their names can write a better message.

use core::error::Error;
use core::fmt::{self, Display, Formatter};

use super::error::{
    CancelError, DeregisterError, ExposeError, Full, PeerError, SetAddressError, StartError, SubmitError,
};
use super::event::{Loss, LossReason, OpError, ProtocolError, RailFault};
use crate::time::Nanos;

impl Display for StartError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Config(error) => write!(f, "the configuration can't be used: {error}"),
            StartError::Region(error) => {
                write!(
                    f,
                    "the memory for the endpoint does not fit: {error} (Config::memory_bytes returns how much it takes)"
                )
            }
            StartError::RailFacts { rail } => {
                write!(f, "rail {} takes fewer than two posts at once, or carries no payload", rail.0)
            }
            StartError::Rails { given, max } => {
                write!(f, "{given} rails were given, allowed are 1 to {max}: raise Config::rails_max, or give fewer")
            }
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StartError::Config(error) => Some(error),
            StartError::Region(error) => Some(error),
            StartError::RailFacts { .. } | StartError::Rails { .. } => None,
        }
    }
}

impl Display for PeerError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::OutOfRange { peer, peers_max } => {
                write!(f, "there is no rank {} in a job of {peers_max} (Config::peers_max): ranks count from 0", peer.0)
            }
            PeerError::Known(peer) => write!(f, "rank {} was added before: each is added once", peer.0),
            PeerError::Unknown(peer) => write!(f, "rank {} was never added: add it first", peer.0),
            PeerError::InUse(peer) => {
                write!(f, "rank {} is not closed yet, or a message of it is being received", peer.0)
            }
            PeerError::NoSuchRail { rails } => {
                write!(f, "the rails {rails:#b} that are to lead to the peer are none, or name one that does not exist")
            }
        }
    }
}

impl Error for PeerError {}

impl Display for SetAddressError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SetAddressError::NoSuchRail(rail) => write!(f, "there is no rail {} whose address could change", rail.0),
            SetAddressError::Address(error) => write!(f, "the peers can't be notified: {error}"),
        }
    }
}

impl Error for SetAddressError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SetAddressError::Address(error) => Some(error),
            SetAddressError::NoSuchRail(_) => None,
        }
    }
}

impl Display for Full {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Full::Operations => {
                "as many requests are in progress as Config::operations_max allows: drive the endpoint, take events, \
                 try again"
            }
            Full::Channels => "as many peers are connected as Config::channels_max allows: close one, or raise it",
            Full::Retained => {
                "as many copies of messages wait for acknowledgment as Config::retained_max allows: drive the endpoint \
                 and try again, or raise it where it is 0"
            }
        })
    }
}

impl Error for Full {}

impl Display for SubmitError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::Full(full) => write!(f, "no room for the request: {full}"),
            SubmitError::UnknownPeer(peer) => write!(f, "no rank {} was added that a request could go to", peer.0),
            SubmitError::PeerGone(peer) => {
                write!(f, "rank {} is lost or closed: no request can be submitted to it", peer.0)
            }
            SubmitError::Segments { given, max } => {
                write!(f, "{given} segments, allowed are {max}: merge them, or raise Config::segments_max")
            }
            SubmitError::TooLong { bytes, max } => {
                write!(
                    f,
                    "{bytes} bytes, allowed are {max} for this kind of request (injected: Config::eager_bytes_max)"
                )
            }
            SubmitError::UnknownCounter(counter) => {
                write!(f, "there is no counter {}: they count from 0 to below Config::counters_max", counter.0)
            }
            SubmitError::UnknownMessage => {
                f.write_str("the claimed message is gone: it was received already, or its sender is lost")
            }
            SubmitError::BadMulti => f.write_str(
                "a multi-receive needs exactly one segment, and a minimum above 0 that is no more than its length",
            ),
            SubmitError::BadAtomic => {
                f.write_str("this atomic does not exist for this type, or its offset is no multiple of the type's size")
            }
        }
    }
}

impl Error for SubmitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SubmitError::Full(full) => Some(full),
            _ => None,
        }
    }
}

impl Display for CancelError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CancelError::Unknown => {
                "there is no such request: it is over, and its event was taken, or waits to be taken"
            }
            CancelError::TooLate => "it is too late to cancel: the request has matched or was sent, and will complete",
        })
    }
}

impl Error for CancelError {}

impl Display for ExposeError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ExposeError::Full => {
                f.write_str("as many windows are exposed as Config::windows_max allows: deregister one, or raise it")
            }
            ExposeError::KeyInUse(key) => write!(f, "key {key:#x} belongs to another window: choose one at random"),
            ExposeError::TooLong { bytes } => write!(f, "a window of {bytes} bytes wraps around the end of its region"),
        }
    }
}

impl Error for ExposeError {}

impl Display for DeregisterError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeregisterError::Unknown => "there is no such window: it was deregistered already",
            DeregisterError::Busy => "a peer is being served from this window: drive the endpoint and try again",
        })
    }
}

impl Error for DeregisterError {}

impl Display for OpError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            OpError::Truncated { sent, capacity, peer, tag, .. } => {
                write!(f, "a message of {sent} bytes from rank {}", peer.0)?;
                match tag {
                    Some(tag) => write!(f, " with tag {tag:#x}")?,
                    None => f.write_str(" without a tag")?,
                }
                write!(f, " came to a buffer of {capacity} bytes, which holds its beginning")
            }
            OpError::Cancelled => f.write_str("the request was cancelled"),
            OpError::PeerLost { peer, why } => write!(f, "rank {} is lost: {why}", peer.0),
            OpError::PeerClosed { peer } => write!(f, "rank {} shut down before the request was complete", peer.0),
            OpError::Refused { peer, why } => write!(f, "rank {} refused the access: {why}", peer.0),
            OpError::Registration { rail } => write!(
                f,
                "rail {} could not register the memory of the request, and no other way leads there: raise the limit of \
                 locked memory if it is that",
                rail.0
            ),
        }
    }
}

impl Error for OpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OpError::PeerLost { why, .. } => Some(why),
            OpError::Refused { why, .. } => Some(why),
            _ => None,
        }
    }
}

/// "no rail was ready for 12.3 ms".
struct Unready(Nanos);

impl Display for Unready {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Nanos(time) = self.0;
        let (unit, name) = if time < 1_000_000_000 { (1_000_000, "ms") } else { (1_000_000_000, "s") };
        // To the lowest-latency rail tenth.
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
        name: impl Fn(crate::ids::RailId, &mut Formatter<'_>) -> fmt::Result,
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
                name(crate::ids::RailId(bit), f)?;
            }
        }
        Ok(())
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.describe(f, |rail, f| write!(f, "{}", rail.0), |fault, f| fault.fmt(f))
    }
}

impl Error for Loss {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.reason)
    }
}

impl Display for LossReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            LossReason::RailFailed { rail, fault } => write!(f, "rail {} failed: {fault}", rail.0),
            LossReason::ConnectTimeout => {
                f.write_str("no connection on any rail within the configured time (connect_timeout)")
            }
            LossReason::Unreachable { rail, fault } => {
                write!(
                    f,
                    "no rail leads to it (recovery_timeout; connect_timeout where none ever did), at last rail {}: {fault}",
                    rail.0
                )
            }
            LossReason::Silent => f.write_str("nothing received from it for the configured time (silence_max)"),
            LossReason::Protocol(error) => write!(f, "it broke the protocol: {error}"),
        }
    }
}

impl Error for LossReason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            LossReason::RailFailed { fault, .. } | LossReason::Unreachable { fault, .. } => Some(fault),
            LossReason::Protocol(error) => Some(error),
            LossReason::ConnectTimeout | LossReason::Silent => None,
        }
    }
}

impl Display for RailFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            RailFault::Closed => f.write_str("its process is gone, or closed without BYE"),
            RailFault::Refused => f.write_str("it refused the connection"),
            RailFault::Gone => f.write_str("no process listens there any more: the peer's process is gone"),
            RailFault::Unauthenticated => f.write_str("it did not prove that it belongs to the job"),
            RailFault::TimedOut => f.write_str("no answer in time"),
            RailFault::Device { code } => write!(f, "the link failed: the device or the system reports {code}"),
            RailFault::Corrupt => f.write_str("it wrote what no honest peer writes"),
        }
    }
}

impl Error for RailFault {}

impl Display for ProtocolError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::Wire(wire) => write!(f, "field {} of a packet holds {}", wire.field, wire.value),
            ProtocolError::WrongSource { named } => write!(f, "a packet names rank {named} as its source"),
            ProtocolError::Sequence { psn } => write!(f, "sequence number {psn} is out of the window"),
            ProtocolError::Credit => f.write_str("it sent more than was granted"),
            ProtocolError::TooLong { bytes } => write!(f, "a payload of {bytes} bytes is over the limit"),
            ProtocolError::NotConnected => f.write_str("a packet came before the connect"),
            ProtocolError::OutOfRange { offset } => {
                write!(f, "a segment at offset {offset} is outside of its transfer")
            }
            ProtocolError::BadParameters => {
                f.write_str("its parameters don't fit: both sides must run the same version with a window and blocks")
            }
        }
    }
}

impl Error for ProtocolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ProtocolError::Wire(error) => Some(error),
            _ => None,
        }
    }
}
