//! Errors of the driver: one type per verb, each message with its remedy.

use core::fmt;

use rerail_core::endpoint::{self, ExposeError, Full, PeerError, SubmitError};
use rerail_core::ids::PeerId;
use rustix::io::Errno;

use super::{AddressRecordError, MemoryError, Name};
use crate::bootstrap::BootError;
use crate::rail::shortage;
use crate::settings::setting_of;

/// Why a transport can't start.
#[derive(Debug)]
pub enum StartError {
    /// The launcher's side failed: no contact, or a key that is missing.
    Boot(BootError),
    /// The core refuses the configuration.
    Core(endpoint::StartError),
    /// There is no memory for the core's state or the payload pool.
    Memory(MemoryError),
    /// A rail could not be opened.
    Rail {
        /// Which.
        rail: String,
        /// Why.
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A peer's address record can't be used.
    AddressRecord {
        /// The peer.
        peer: PeerId,
        /// The reason.
        error: AddressRecordError,
    },
    /// No rail leads to a peer.
    Unreachable {
        /// The peer.
        peer: PeerId,
        /// Its address record.
        address_record: String,
    },
    /// The core refuses a peer.
    Peer(PeerError),
    /// A name can't be inserted.
    Insert {
        /// The name.
        name: Box<Name>,
        /// The reason.
        error: InsertError,
    },
    /// A peer's address record is missing.
    MissingAddressRecord(PeerId),
    /// The system refuses a descriptor to wait on.
    Wait(WaitError),
}

/// Why a name can't be inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// The transport was started with ranks.
    Ranks,
    /// There are as many peers as the transport was opened for.
    Full {
        /// How many: the setting `peers`.
        peers_max: u32,
    },
    /// The peer of this name is being removed: go on driving, take events, and try again.
    Leaving(PeerId),
    /// Another name with the same key is inserted, or the key is this process's.
    Key,
    /// No rail leads to it.
    Unreachable,
    /// A rail can't use an address of it.
    AddressRecord(AddressRecordError),
    /// The core refuses it.
    Peer(PeerError),
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InsertError::Ranks => write!(f, "the transport was started with ranks: it takes no names"),
            InsertError::Full { peers_max } => write!(
                f,
                "the transport was opened for {peers_max} processes, this one included: raise the setting peers, or                  remove a peer"
            ),
            InsertError::Leaving(peer) => {
                write!(f, "peer {} of this name is still being removed: try again after some rounds", peer.0)
            }
            InsertError::Key => write!(f, "another process has the key of this name: it is a false one"),
            InsertError::Unreachable => write!(f, "no rail of this process leads to an address in the name"),
            InsertError::AddressRecord(error) => error.fmt(f),
            InsertError::Peer(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InsertError {}

/// Why a peer can't be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveError {
    /// The transport was started with ranks.
    Ranks,
    /// No peer has this number.
    Unknown(PeerId),
    /// It is this process.
    Own,
}

impl fmt::Display for RemoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoveError::Ranks => write!(f, "the transport was started with ranks: they stay for its whole life"),
            RemoveError::Unknown(peer) => write!(f, "there is no peer {}: insert its name first", peer.0),
            RemoveError::Own => write!(f, "a process can't remove itself"),
        }
    }
}

impl std::error::Error for RemoveError {}

impl StartError {
    /// Whether the settings require a rail that this machine does not have: there is no such device,
    /// interface or library.
    pub fn is_absent(&self) -> bool {
        match self {
            StartError::Rail { why, .. } => super::verbs::is_absent(&**why) || super::rails::is_absent(&**why),
            _ => false,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Boot(error) => write!(f, "the job could not be joined: {error}"),
            StartError::Core(endpoint::StartError::Region(error)) => {
                write!(f, "the core's memory does not fit ({error}): this is an error of the driver, please report it")
            }
            StartError::Core(endpoint::StartError::Rails { given, max }) => {
                write!(
                    f,
                    "{given} rails are configured, allowed are 1 to {max}: name fewer interfaces (tcp_interfaces) or devices (verbs_devices)"
                )
            }
            StartError::Core(endpoint::StartError::Config(error)) => {
                write!(f, "the settings can't be used together with the size of the job: {error}")?;
                let fields = error.parts().map(|(field, _)| field).chain([error.field]);
                for field in fields.filter(|&field| setting_of(field) != field) {
                    write!(f, "; {field} is the setting {}", setting_of(field))?;
                }
                Ok(())
            }
            StartError::Core(error @ endpoint::StartError::RailFacts { .. }) => error.fmt(f),
            StartError::Memory(error) => write!(f, "no memory for the transport: {error}"),
            StartError::Rail { rail, why } => write!(f, "rail {rail} could not be opened: {why}{}", remedy(&**why)),
            StartError::AddressRecord { peer, error } => write!(
                f,
                "the address record of rank {} can't be used: {error}. All processes of a job must run the \
                 same version",
                peer.0
            ),
            StartError::Unreachable { peer, address_record } => write!(
                f,
                "no rail leads to rank {}, whose address record is \"{address_record}\": give both sides a TCP interface, \
                 or run both on one host with shared memory on",
                peer.0
            ),
            StartError::Peer(error) => write!(f, "the core refused a peer: {error}"),
            StartError::MissingAddressRecord(peer) => {
                write!(f, "the address record of rank {} is missing: pass every rank's before joining", peer.0)
            }
            StartError::Insert { name, error } => write!(f, "{name:?} can't be inserted: {error}"),
            StartError::Wait(error) => error.fmt(f),
        }
    }
}

/// The remedy where the system has refused a descriptor, to be put behind the reason; else empty.
fn remedy(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    match causes.filter_map(|cause| cause.downcast_ref::<Errno>()).next() {
        Some(&errno @ (Errno::MFILE | Errno::NFILE)) => shortage::remedy(errno),
        _ => String::new(),
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Boot(error) => Some(error),
            StartError::Memory(error) => Some(error),
            StartError::Rail { why, .. } => Some(&**why),
            StartError::AddressRecord { error, .. } => Some(error),
            StartError::Wait(error) => Some(error),
            StartError::Core(error) => Some(error),
            StartError::Peer(error) => Some(error),
            StartError::Insert { error, .. } => Some(error),
            StartError::Unreachable { .. } | StartError::MissingAddressRecord(_) => None,
        }
    }
}

/// Why a request is refused. Nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The core refuses it.
    Submit(SubmitError),
    /// It names memory that does not exist.
    Memory(MemoryError),
    /// An injected message was given segments beside its payload.
    InjectSegments {
        /// How many.
        given: usize,
    },
}

impl RequestError {
    /// Whether a table is full: drive the transport, take events and try again.
    pub fn is_full(&self) -> bool {
        matches!(self, RequestError::Submit(SubmitError::Full(_)))
    }
}

impl From<SubmitError> for RequestError {
    fn from(error: SubmitError) -> Self {
        RequestError::Submit(error)
    }
}

impl From<MemoryError> for RequestError {
    fn from(error: MemoryError) -> Self {
        RequestError::Memory(error)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Memory(error) => error.fmt(f),
            RequestError::InjectSegments { given } => {
                write!(
                    f,
                    "an injected message takes its payload from the argument, but {given} segments were given too"
                )
            }
            RequestError::Submit(error) => submit_sentence(error, f),
        }
    }
}

fn submit_sentence(error: &SubmitError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        SubmitError::Full(Full::Operations) => {
            write!(
                f,
                "as many requests are under way as may be: drive the transport, take events, try again, or raise operations (RERAIL_OPERATIONS; Config::operations_max)"
            )
        }
        SubmitError::Full(Full::Channels) => {
            write!(
                f,
                "as many peers are connected as may be: close one, or raise channels (RERAIL_CHANNELS; Config::channels_max)"
            )
        }
        SubmitError::Full(Full::Retained) => {
            write!(
                f,
                "as many copies of messages wait for acknowledgment as may: drive the transport and try again, or raise retained (RERAIL_RETAINED; Config::retained_max)"
            )
        }
        SubmitError::UnknownPeer(peer) => write!(f, "there is no rank {} in this job", peer.0),
        SubmitError::PeerGone(peer) => write!(f, "rank {} is lost or closed", peer.0),
        SubmitError::Segments { given, max } => {
            write!(
                f,
                "{given} segments, allowed are {max}: merge them, or raise segments (RERAIL_SEGMENTS; Config::segments_max)"
            )
        }
        SubmitError::TooLong { bytes, max } => write!(f, "{bytes} bytes, allowed are {max} for this kind of request"),
        SubmitError::UnknownCounter(counter) => {
            write!(f, "there is no counter {}: raise counters (RERAIL_COUNTERS; Config::counters_max)", counter.0)
        }
        SubmitError::UnknownMessage => {
            write!(f, "the claimed message is gone: it was received already, or its sender is lost")
        }
        SubmitError::BadMulti => write!(
            f,
            "a multi-receive needs exactly one segment, and a minimum from 1 to the segment's length in bytes"
        ),
        SubmitError::BadAtomic => {
            write!(f, "this operation does not exist for this type, or the offset is no multiple of the type's size")
        }
    }
}

impl std::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RequestError::Memory(error) => Some(error),
            RequestError::Submit(error) => Some(error),
            RequestError::InjectSegments { .. } => None,
        }
    }
}

/// Why memory can't be exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowError {
    /// The core refuses it.
    Expose(ExposeError),
    /// It is not in a region.
    Memory(MemoryError),
    /// It allows atomics and starts at the wrong place.
    Misaligned {
        /// Where it starts.
        address: usize,
        /// The multiple that it must start on, in bytes.
        align: usize,
    },
}

impl From<ExposeError> for WindowError {
    fn from(error: ExposeError) -> Self {
        WindowError::Expose(error)
    }
}

impl From<MemoryError> for WindowError {
    fn from(error: MemoryError) -> Self {
        WindowError::Memory(error)
    }
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WindowError::Memory(error) => error.fmt(f),
            WindowError::Misaligned { address, align } => {
                write!(f, "a window for atomics must start on a multiple of {align} bytes, not at {address:#x}")
            }
            WindowError::Expose(ExposeError::Full) => {
                write!(
                    f,
                    "as many windows are exposed as may be: deregister one, or raise windows (RERAIL_WINDOWS; Config::windows_max)"
                )
            }
            WindowError::Expose(ExposeError::KeyInUse(key)) => {
                write!(f, "key {key:#x} belongs to another window: choose one at random")
            }
            WindowError::Expose(ExposeError::TooLong { bytes }) => {
                write!(f, "a window of {bytes} bytes wraps around the end of its region")
            }
        }
    }
}

impl std::error::Error for WindowError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WindowError::Memory(error) => Some(error),
            WindowError::Expose(error) => Some(error),
            WindowError::Misaligned { .. } => None,
        }
    }
}

/// The system refused a call that waiting needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitError {
    /// The call.
    pub call: &'static str,
    /// The system's reason.
    pub errno: Errno,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed ({}){}", self.call, self.errno, remedy(&self.errno))
    }
}

impl std::error::Error for WaitError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rail::tcp::TcpError;

    /// The message names the limit to raise if and only if a rail can't be opened for lack of a descriptor.
    #[test]
    fn descriptor_shortage_error_names_the_limit_to_raise() {
        let refused = |errno| {
            let why = TcpError { what: "epoll_create", local: "127.0.0.1:0".parse().unwrap(), errno };
            StartError::Rail { rail: "tcp".into(), why: Box::new(why) }.to_string()
        };
        assert!(
            refused(Errno::MFILE).contains("(os error 24): raise this process's limit of open descriptors (ulimit -n)")
        );
        assert!(refused(Errno::NFILE).ends_with(": raise the system's limit of open descriptors (fs.file-max)"));
        assert!(refused(Errno::ADDRINUSE).ends_with("(os error 98)"));
        let wait = |errno| WaitError { call: "timerfd_create", errno }.to_string();
        assert!(wait(Errno::MFILE).contains("ulimit -n") && !wait(Errno::INVAL).contains("limit"));
    }
}
