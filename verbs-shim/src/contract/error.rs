//! Why each verb may refuse.

use super::qp::QpState;
use super::transition::TransitionError;

named! {
    /// The sort of an object or of a value, for errors.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Kind {
        /// Protection domain.
        Pd = "protection domain";
        /// Registered memory.
        Mr = "memory registration";
        /// Completion queue.
        Cq = "completion queue";
        /// Queue pair.
        Qp = "queue pair";
        /// Shared receive queue.
        Srq = "shared receive queue";
        /// Address handle.
        Ah = "address handle";
        /// XRC domain.
        Xrcd = "XRC domain";
        /// Port.
        Port = "port";
        /// Entry of a table of GIDs.
        Gid = "GID index";
        /// Entry of a table of partition keys.
        Pkey = "partition key index";
        /// Depth of a queue.
        Depth = "queue depth";
        /// Number of pieces of memory.
        Sges = "number of memory pieces";
        /// Bytes of inline data.
        InlineBytes = "number of inline bytes";
        /// Limit of a shared receive queue.
        SrqLimit = "limit of a shared receive queue";
    }
}

/// Why an object was not made, opened or queried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// The device has no more of them.
    #[error("the device has no {what} left of its {limit}")]
    Exhausted {
        /// The object's kind.
        what: Kind,
        /// How many it has.
        limit: u32,
    },
    /// A value is over the device's limit, or none that makes sense.
    #[error("{what} {value} is out of range: {min} to {max}")]
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
    #[error("{what} {name} does not exist")]
    Unknown {
        /// The kind it should name.
        what: Kind,
        /// The name.
        name: u32,
    },
    /// Parts of the request don't go together.
    #[error("{why}")]
    Mismatch {
        /// The reason.
        why: &'static str,
    },
    /// The device has no such capability.
    #[error("the device does not offer {what}")]
    Unsupported {
        /// Which.
        what: &'static str,
    },
    /// The device had a fatal error: open it again.
    #[error("the device had a fatal error: open it again")]
    DeviceGone,
    /// The system's number.
    #[error("refused by the system with error {code}{}", enough_memory(*.code))]
    System {
        /// An errno.
        code: i32,
    },
}

/// Why memory was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The protection domain does not exist.
    #[error("protection domain {name} does not exist")]
    UnknownPd {
        /// The name.
        name: u32,
    },
    /// The device has no more entries.
    #[error("all {limit} memory registrations of the device are in use")]
    Exhausted {
        /// How many it has.
        limit: u32,
    },
    /// No bytes, more than the device takes, or a range that wraps around.
    #[error("{bytes} bytes can't be registered: 1 to {max} can")]
    Length {
        /// The requested bytes.
        bytes: u64,
        /// The most that the device takes.
        max: u64,
    },
    /// Remote writes or atomics without local writes.
    #[error("remote writes and atomics need local writes to be allowed")]
    Access,
    /// The device can't register under an address of the caller's choice.
    #[error("the device registers memory under its own addresses only")]
    NoIova,
    /// The device can't register on demand.
    #[error("the device registers no memory on demand")]
    NoOnDemand,
    /// The device had a fatal error: open it again.
    #[error("the device had a fatal error: open it again")]
    DeviceGone,
    /// The system refused: `ENOMEM` is too small a limit of locked memory (`ulimit -l`).
    #[error("refused by the system with error {code} (12: raise the limit of locked memory, ulimit -l)")]
    System {
        /// An errno.
        code: i32,
    },
}

/// Why an object was not destroyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestroyError {
    /// The name names nothing (any more).
    #[error("{what} {name} does not exist")]
    Unknown {
        /// The kind it should name.
        what: Kind,
        /// The name.
        name: u32,
    },
    /// Other objects use it.
    #[error("{users} other objects still use the {what}")]
    Busy {
        /// Its kind.
        what: Kind,
        /// How many do.
        users: u32,
    },
    /// The system's number.
    #[error("refused by the system with error {code}")]
    System {
        /// An errno.
        code: i32,
    },
}

/// Why an object was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModifyError {
    /// The name names nothing.
    #[error("{what} {name} does not exist")]
    Unknown {
        /// The kind it should name.
        what: Kind,
        /// The name.
        name: u32,
    },
    /// Not from this state to that one, or not with these attributes.
    #[error("{0}")]
    Transition(#[from] TransitionError),
    /// An attribute's value is out of range.
    #[error("{field} {value} is out of range: {min} to {max}")]
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
    #[error("the device had a fatal error: open it again")]
    DeviceGone,
    /// The system's number.
    #[error("refused by the system with error {code}")]
    System {
        /// An errno.
        code: i32,
    },
}

/// Why a list of work requests was not taken as a whole: those before `index` were.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work request {index}: {why}")]
pub struct PostError {
    /// The request that was refused; none after it was checked.
    pub index: usize,
    /// Why.
    pub why: PostReason,
}

/// Why a work request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostReason {
    /// The queue does not exist.
    #[error("{what} {name} does not exist")]
    Unknown {
        /// Queue pair or shared receive queue.
        what: Kind,
        /// The name.
        name: u32,
    },
    /// The queue pair's state takes no such request.
    #[error("the queue pair is in state {state} and takes none")]
    State {
        /// Its state.
        state: QpState,
    },
    /// The queue is full.
    #[error("all {depth} places of the queue are taken")]
    Full {
        /// Requests that it holds.
        depth: u32,
    },
    /// More pieces of memory than the queue takes.
    #[error("{given} pieces of memory, and the queue takes {max}")]
    Sges {
        /// Pieces given.
        given: usize,
        /// The most.
        max: u32,
    },
    /// More inline bytes than the queue pair takes.
    #[error("{bytes} bytes inline, and the queue pair takes {max}")]
    Inline {
        /// Bytes given.
        bytes: usize,
        /// The most.
        max: u32,
    },
    /// The transport or queue can't do this.
    #[error("{why}")]
    Operation {
        /// The reason.
        why: &'static str,
    },
    /// The address handle does not exist.
    #[error("address handle {name} does not exist")]
    UnknownHandle {
        /// The name.
        name: u32,
    },
    /// The device had a fatal error: open it again.
    #[error("the device had a fatal error: open it again")]
    DeviceGone,
    /// The system's number.
    #[error("refused by the system with error {code}")]
    System {
        /// An errno.
        code: i32,
    },
}

/// Why a completion queue could not be polled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PollError {
    /// It does not exist.
    #[error("completion queue {name} does not exist")]
    Unknown {
        /// The name.
        name: u32,
    },
    /// It was full when one more completion came: it is broken permanently.
    #[error("the completion queue overflowed: make a deeper one")]
    Overflow,
    /// The device had a fatal error: open it again.
    #[error("the device had a fatal error: open it again")]
    DeviceGone,
}

/// The remedy where the system has no memory, behind the reason: the memory of queues is locked as registered
/// memory is.
fn enough_memory(code: i32) -> &'static str {
    let full = " (the device is full, or no more memory may be locked: ulimit -l)";
    if code == libc::ENOMEM { full } else { "" }
}
