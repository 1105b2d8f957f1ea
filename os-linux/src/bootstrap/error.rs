//! Errors of the start of a job; each message names the side at fault.

use std::fmt;
use std::io;

/// Why a step of the bootstrap failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum BootError {
    /// A variable that the launcher should have set is missing or senseless.
    Environment {
        /// The variable.
        variable: &'static str,
        /// Its value; `None`: not set.
        value: Option<String>,
        /// The expected value.
        expected: &'static str,
    },
    /// A launcher started several processes but offers no channel with a supported protocol: without this
    /// error each of them would run as a job of one.
    Unspoken {
        /// The variable that reveals the launcher.
        variable: &'static str,
        /// The number of processes in it.
        size: u32,
    },
    /// A key can't be used.
    Key {
        /// The key.
        key: String,
        /// The reason.
        why: &'static str,
    },
    /// A key was put twice by this rank; the value that others would see is undefined in PMI-1, so it is
    /// refused here.
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A value is too long.
    ValueTooLong {
        /// The key.
        key: String,
        /// Bytes of the value.
        bytes: usize,
        /// Bytes allowed.
        bytes_max: usize,
    },
    /// The requested rank is not in the job.
    Rank {
        /// The rank.
        rank: u32,
        /// Processes in the job.
        size: u32,
    },
    /// The launcher's limits leave no room for our keys and values.
    Limit {
        /// The limit by its name on the wire.
        limit: &'static str,
        /// Its value.
        value: usize,
        /// The minimum.
        needed: usize,
    },
    /// A system call failed.
    Io {
        /// The failed step.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The other side closed the channel.
    Closed {
        /// The failed step.
        doing: &'static str,
    },
    /// The other side violated the protocol.
    Protocol {
        /// The failed step.
        doing: &'static str,
        /// The violation.
        why: String,
        /// Its message, shortened and made printable.
        said: String,
    },
    /// The other side refused.
    Refused {
        /// The failed step.
        doing: &'static str,
        /// Its code.
        code: i64,
        /// Its words.
        message: String,
    },
    /// A value that a rank published can't be read back.
    Value {
        /// The rank.
        rank: u32,
        /// The key.
        key: String,
        /// The reason.
        why: &'static str,
    },
    /// A rank has not published a mandatory key.
    Absent {
        /// The rank.
        rank: u32,
        /// The key.
        key: String,
    },
    /// The other side did not answer in time.
    Timeout {
        /// The failed step.
        doing: &'static str,
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
    },
    /// The other side doesn't hold the same key.
    Authentication {
        /// The reason.
        why: &'static str,
    },
    /// The job was left or aborted already, or an earlier step's error was the end of the channel.
    Over,
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment { variable, value: Some(value), expected } => {
                write!(f, "{variable}={value:?} in the environment: {expected} expected")
            }
            Self::Environment { variable, value: None, expected } => {
                write!(f, "{variable} is not in the environment: {expected} expected")
            }
            Self::Unspoken { variable, size } => write!(
                f,
                "{variable} tells of a job of {size} processes, but there is neither PMI_FD nor PMI_PORT: \
                 the launcher doesn't offer PMI-1 (Slurm: srun --mpi=pmi2; else: rerail launch or mpiexec.hydra)"
            ),
            Self::Key { key, why } => write!(f, "key {key:?}: {why}"),
            Self::DuplicateKey { key } => write!(f, "key {key:?} was put before"),
            Self::ValueTooLong { key, bytes, bytes_max } => {
                write!(f, "value of {key:?} has {bytes} bytes, {bytes_max} are allowed")
            }
            Self::Rank { rank, size } => write!(f, "rank {rank} is not in a job of {size}"),
            Self::Limit { limit, value, needed } => {
                write!(f, "the launcher's {limit} is {value}, at least {needed} is needed")
            }
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
            Self::Closed { doing } => write!(f, "{doing}: the other side closed the channel"),
            Self::Protocol { doing, why, said } => write!(f, "{doing}: {why} in answer {said:?}"),
            Self::Refused { doing, code, message } => write!(f, "{doing}: refused with {code} ({message})"),
            Self::Value { rank, key, why } => write!(f, "value of {key:?} of rank {rank}: {why}"),
            Self::Absent { rank, key } => write!(f, "rank {rank} published no {key:?}"),
            Self::Timeout { doing, waited_ms } => write!(f, "{doing}: no answer within {waited_ms} ms"),
            Self::Authentication { why } => write!(f, "authentication: {why}"),
            Self::Over => write!(f, "the job was left, aborted or lost before"),
        }
    }
}

impl std::error::Error for BootError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The start of a message from outside, printable.
pub(super) fn excerpt(said: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 160;
    let mut text = String::new();
    for &byte in said.iter().take(SHOWN_BYTES_MAX) {
        text.push(if byte == b' ' || byte.is_ascii_graphic() { byte as char } else { '?' });
    }
    if said.len() > SHOWN_BYTES_MAX {
        text.push_str("...");
    }
    text
}
