//! Errors of the driver: one type per verb, each message with its remedy.

use core::fmt;

use rerail_core::endpoint::{self, ExposeError, Full, PeerError, SubmitError};
use rerail_core::ids::PeerId;
use rustix::io::Errno;

use super::{AddressRecordError, MemoryError, Name, OverBudget};
use crate::bootstrap::BootError;
use crate::rail::shortage;
use crate::settings::setting_of;

/// Why a transport can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The launcher's side failed: no contact, or a key that is missing.
    #[error("the job could not be joined: {0}")]
    Boot(#[from] BootError),
    /// The core refuses the configuration.
    #[error(fmt = of_core)]
    Core(#[from] endpoint::StartError),
    /// There is no memory for the core's state or the payload pool.
    #[error("no memory for the transport: {0}")]
    Memory(#[from] MemoryError),
    /// It would take more than the setting `memory_budget`.
    #[error("{0}")]
    Budget(#[from] OverBudget),
    /// A rail could not be opened.
    #[error("rail {rail} could not be opened: {why}{}", remedy(&**.why))]
    Rail {
        /// Which.
        rail: String,
        /// Why.
        #[source]
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A peer's address record can't be used.
    #[error(
        "the address record of rank {peer} can't be used: {error}. All processes of a job must run the same version"
    )]
    AddressRecord {
        /// The peer.
        peer: PeerId,
        /// The reason.
        #[source]
        error: AddressRecordError,
    },
    /// No rail leads to a peer.
    #[error(
        "no rail leads to rank {peer}, whose address record is \"{address_record}\": give both sides a TCP interface, or run both on \
         one host with shared memory on"
    )]
    Unreachable {
        /// The peer.
        peer: PeerId,
        /// Its address record.
        address_record: String,
    },
    /// The core refuses a peer.
    #[error("the core refused a peer: {0}")]
    Peer(#[from] PeerError),
    /// A name can't be inserted.
    #[error("{name:?} can't be inserted: {error}")]
    Insert {
        /// The name.
        name: Box<Name>,
        /// The reason.
        #[source]
        error: InsertError,
    },
    /// A peer's address record is missing.
    #[error("the address record of rank {0} is missing: pass every rank's before joining")]
    MissingAddressRecord(PeerId),
    /// The system refuses a descriptor to wait on.
    #[error("{0}")]
    Wait(#[from] WaitError),
}

/// Why a name can't be inserted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// The transport was started with ranks.
    #[error("the transport was started with ranks: it takes no names")]
    Ranks,
    /// There are as many peers as the transport was opened for.
    #[error(
        "the transport was opened for {peers_max} processes, this one included: raise the setting peers, or remove a peer"
    )]
    Full {
        /// How many: the setting `peers`.
        peers_max: u32,
    },
    /// The peer of this name is being removed: go on driving, take events, and try again.
    #[error("peer {0} of this name is still being removed: try again after some rounds")]
    Leaving(PeerId),
    /// Another name with the same key is inserted, or the key is this process's.
    #[error("another process has the key of this name: it is a false one")]
    Key,
    /// No rail leads to it.
    #[error("no rail of this process leads to an address in the name")]
    Unreachable,
    /// A rail can't use an address of it.
    #[error("{0}")]
    AddressRecord(#[from] AddressRecordError),
    /// The core refuses it.
    #[error("{0}")]
    Peer(#[from] PeerError),
}

/// Why a peer can't be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    /// The transport was started with ranks.
    #[error("the transport was started with ranks: they stay for its whole life")]
    Ranks,
    /// No peer has this number.
    #[error("there is no peer {0}: insert its name first")]
    Unknown(PeerId),
    /// It is this process.
    #[error("a process can't remove itself")]
    Own,
}

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

/// The core's refusal to start, in the words of who has settings.
fn of_core(error: &endpoint::StartError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        endpoint::StartError::Region(error) => {
            write!(f, "the core's memory does not fit ({error}): this is an error of the driver, please report it")
        }
        endpoint::StartError::Rails { given, max } => write!(
            f,
            "{given} rails are configured, allowed are 1 to {max}: name fewer interfaces (tcp_interfaces) or devices \
             (verbs_devices)"
        ),
        endpoint::StartError::Config(error) => {
            write!(f, "the settings can't be used together with the size of the job: {error}")?;
            let fields = error.parts().map(|(field, _)| field).chain([error.field]);
            for field in fields.filter(|&field| setting_of(field) != field) {
                write!(f, "; {field} is the setting {}", setting_of(field))?;
            }
            Ok(())
        }
        endpoint::StartError::RailFacts { .. } => write!(f, "{error}"),
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

/// Why a request is refused. Nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The core refuses it.
    #[error("{}{}", .0, setting(.0))]
    Submit(#[from] SubmitError),
    /// It names memory that does not exist.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// An injected message was given segments beside its payload.
    #[error("an injected message takes its payload from the argument, but {given} segments were given too")]
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

/// The setting that raises the limit which a request met.
fn setting(error: &SubmitError) -> Setting {
    Setting(match error {
        SubmitError::Full(Full::Operations) => "operations",
        SubmitError::Full(Full::Channels) => "channels",
        SubmitError::Full(Full::Retained) => "retained",
        SubmitError::Segments { .. } => "segments",
        SubmitError::UnknownCounter(_) => "counters",
        _ => "",
    })
}

/// " (setting operations, RERAIL_OPERATIONS)", or nothing.
struct Setting(&'static str);

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            name => write!(f, " (setting {name}, RERAIL_{})", name.to_ascii_uppercase()),
        }
    }
}

/// Why memory can't be exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// The core refuses it.
    #[error("{}{}", .0, Setting(if *.0 == ExposeError::Full { "windows" } else { "" }))]
    Expose(#[from] ExposeError),
    /// It is not in a region.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// It allows atomics, and its region is not aligned for them.
    #[error("the region of a window for atomics must start on a multiple of {align} bytes (the window: {address:#x})")]
    Misaligned {
        /// Where it starts.
        address: usize,
        /// The multiple that it must start on, in bytes.
        align: usize,
    },
}

/// The system refused a call that waiting needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed ({errno}){}", remedy(.errno))]
pub struct WaitError {
    /// The call.
    pub call: &'static str,
    /// The system's reason.
    pub errno: Errno,
}

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
