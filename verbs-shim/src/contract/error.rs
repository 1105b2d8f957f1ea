//! Why each verb may refuse.

use std::{error, fmt};

use super::qp::QpState;
use super::transition::TransitionError;

/// The sort of an object or of a value, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Protection domain.
    Pd,
    /// Registered memory.
    Mr,
    /// Completion queue.
    Cq,
    /// Queue pair.
    Qp,
    /// Shared receive queue.
    Srq,
    /// Address handle.
    Ah,
    /// XRC domain.
    Xrcd,
    /// Port.
    Port,
    /// Entry of a table of GIDs.
    Gid,
    /// Entry of a table of partition keys.
    Pkey,
    /// Depth of a queue.
    Depth,
    /// Number of pieces of memory.
    Sges,
    /// Bytes of inline data.
    InlineBytes,
    /// Limit of a shared receive queue.
    SrqLimit,
}

/// Why an object was not made, opened or queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// The device has no more of them.
    Exhausted {
        /// The object's kind.
        what: Kind,
        /// How many it has.
        limit: u32,
    },
    /// A value is over the device's limit, or none that makes sense.
    OutOfRange {
        /// The object's kind.
        what: Kind,
        /// The value.
        value: u64,
        /// The least allowed.
        min: u64,
        /// The greatest allowed.
        max: u64,
    },
    /// A name in the request names nothing.
    Unknown {
        /// The kind it should name.
        what: Kind,
        /// The name.
        name: u32,
    },
    /// Parts of the request don't go together.
    Mismatch {
        /// The reason.
        why: &'static str,
    },
    /// The device has no such capability.
    Unsupported {
        /// Which.
        what: &'static str,
    },
    /// The device had a fatal error: open it again.
    DeviceGone,
    /// The system's number.
    System {
        /// An errno.
        code: i32,
    },
}

/// Why memory was not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// The protection domain does not exist.
    UnknownPd {
        /// The name.
        name: u32,
    },
    /// The device has no more entries.
    Exhausted {
        /// How many it has.
        limit: u32,
    },
    /// No bytes, more than the device takes, or a range that wraps around.
    Length {
        /// The requested bytes.
        bytes: u64,
        /// The most that the device takes.
        max: u64,
    },
    /// Remote writes or atomics without local writes.
    Access,
    /// The device can't register under an address of the caller's choice.
    NoIova,
    /// The device can't register on demand.
    NoOnDemand,
    /// The device had a fatal error: open it again.
    DeviceGone,
    /// The system refused: `ENOMEM` is too small a limit of locked memory (`ulimit -l`).
    System {
        /// An errno.
        code: i32,
    },
}

/// Why an object was not destroyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestroyError {
    /// The name names nothing (any more).
    Unknown {
        /// The kind it should name.
        what: Kind,
        /// The name.
        name: u32,
    },
    /// Other objects use it.
    Busy {
        /// Its kind.
        what: Kind,
        /// How many do.
        users: u32,
    },
    /// The system's number.
    System {
        /// An errno.
        code: i32,
    },
}

/// Why an object was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// The name names nothing.
    Unknown {
        /// The kind it should name.
        what: Kind,
        /// The name.
        name: u32,
    },
    /// Not from this state to that one, or not with these attributes.
    Transition(TransitionError),
    /// An attribute's value is out of range.
    OutOfRange {
        /// Which attribute, by its field.
        field: &'static str,
        /// The value.
        value: u64,
        /// The least allowed.
        min: u64,
        /// The greatest allowed.
        max: u64,
    },
    /// The device had a fatal error: open it again.
    DeviceGone,
    /// The system's number.
    System {
        /// An errno.
        code: i32,
    },
}

/// Why a list of work requests was not taken as a whole: those before `index` were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostError {
    /// The request that was refused; none after it was checked.
    pub index: usize,
    /// Why.
    pub why: PostReason,
}

/// Why a work request was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostReason {
    /// The queue does not exist.
    Unknown {
        /// Queue pair or shared receive queue.
        what: Kind,
        /// The name.
        name: u32,
    },
    /// The queue pair's state takes no such request.
    State {
        /// Its state.
        state: QpState,
    },
    /// The queue is full.
    Full {
        /// Requests that it holds.
        depth: u32,
    },
    /// More pieces of memory than the queue takes.
    Sges {
        /// Pieces given.
        given: usize,
        /// The most.
        max: u32,
    },
    /// More inline bytes than the queue pair takes.
    Inline {
        /// Bytes given.
        bytes: usize,
        /// The most.
        max: u32,
    },
    /// The transport or queue can't do this.
    Operation {
        /// The reason.
        why: &'static str,
    },
    /// The address handle does not exist.
    UnknownHandle {
        /// The name.
        name: u32,
    },
    /// The device had a fatal error: open it again.
    DeviceGone,
    /// The system's number.
    System {
        /// An errno.
        code: i32,
    },
}

/// Why a completion queue could not be polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollError {
    /// It does not exist.
    Unknown {
        /// The name.
        name: u32,
    },
    /// It was full when one more completion came: it is broken permanently.
    Overflow,
    /// The device had a fatal error: open it again.
    DeviceGone,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Pd => "protection domain",
            Kind::Mr => "memory registration",
            Kind::Cq => "completion queue",
            Kind::Qp => "queue pair",
            Kind::Srq => "shared receive queue",
            Kind::Ah => "address handle",
            Kind::Xrcd => "XRC domain",
            Kind::Port => "port",
            Kind::Gid => "GID index",
            Kind::Pkey => "partition key index",
            Kind::Depth => "queue depth",
            Kind::Sges => "number of memory pieces",
            Kind::InlineBytes => "number of inline bytes",
            Kind::SrqLimit => "limit of a shared receive queue",
        })
    }
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Exhausted { what, limit } => write!(f, "the device has no {what} left of its {limit}"),
            CreateError::OutOfRange { what, value, min, max } => {
                write!(f, "{what} {value} is out of range: {min} to {max}")
            }
            CreateError::Unknown { what, name } => write!(f, "{what} {name} does not exist"),
            CreateError::Mismatch { why } => f.write_str(why),
            CreateError::Unsupported { what } => write!(f, "the device does not offer {what}"),
            CreateError::DeviceGone => f.write_str("the device had a fatal error: open it again"),
            // The memory of queues is locked as registered memory is.
            CreateError::System { code: libc::ENOMEM } => f.write_str(
                "refused by the system with error 12 (the device is full, or no more memory may be locked: ulimit -l)",
            ),
            CreateError::System { code } => write!(f, "refused by the system with error {code}"),
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::UnknownPd { name } => write!(f, "protection domain {name} does not exist"),
            RegisterError::Exhausted { limit } => {
                write!(f, "all {limit} memory registrations of the device are in use")
            }
            RegisterError::Length { bytes, max } => write!(f, "{bytes} bytes can't be registered: 1 to {max} can"),
            RegisterError::Access => f.write_str("remote writes and atomics need local writes to be allowed"),
            RegisterError::NoIova => f.write_str("the device registers memory under its own addresses only"),
            RegisterError::NoOnDemand => f.write_str("the device registers no memory on demand"),
            RegisterError::DeviceGone => f.write_str("the device had a fatal error: open it again"),
            RegisterError::System { code } => {
                write!(f, "refused by the system with error {code} (12: raise the limit of locked memory, ulimit -l)")
            }
        }
    }
}

impl fmt::Display for DestroyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DestroyError::Unknown { what, name } => write!(f, "{what} {name} does not exist"),
            DestroyError::Busy { what, users } => write!(f, "{users} other objects still use the {what}"),
            DestroyError::System { code } => write!(f, "refused by the system with error {code}"),
        }
    }
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModifyError::Unknown { what, name } => write!(f, "{what} {name} does not exist"),
            ModifyError::Transition(error) => error.fmt(f),
            ModifyError::OutOfRange { field, value, min, max } => {
                write!(f, "{field} {value} is out of range: {min} to {max}")
            }
            ModifyError::DeviceGone => f.write_str("the device had a fatal error: open it again"),
            ModifyError::System { code } => write!(f, "refused by the system with error {code}"),
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "work request {}: ", self.index)?;
        match &self.why {
            PostReason::Unknown { what, name } => write!(f, "{what} {name} does not exist"),
            PostReason::State { state } => write!(f, "the queue pair is in state {state} and takes none"),
            PostReason::Full { depth } => write!(f, "all {depth} places of the queue are taken"),
            PostReason::Sges { given, max } => write!(f, "{given} pieces of memory, and the queue takes {max}"),
            PostReason::Inline { bytes, max } => write!(f, "{bytes} bytes inline, and the queue pair takes {max}"),
            PostReason::Operation { why } => f.write_str(why),
            PostReason::UnknownHandle { name } => write!(f, "address handle {name} does not exist"),
            PostReason::DeviceGone => f.write_str("the device had a fatal error: open it again"),
            PostReason::System { code } => write!(f, "refused by the system with error {code}"),
        }
    }
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PollError::Unknown { name } => write!(f, "completion queue {name} does not exist"),
            PollError::Overflow => f.write_str("the completion queue overflowed: make a deeper one"),
            PollError::DeviceGone => f.write_str("the device had a fatal error: open it again"),
        }
    }
}

impl error::Error for CreateError {}
impl error::Error for RegisterError {}
impl error::Error for DestroyError {}
impl error::Error for ModifyError {}
impl error::Error for PostError {}
impl error::Error for PollError {}
