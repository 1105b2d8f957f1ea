//! Errors of the start of a job; each message names the side at fault.

use std::io;

/// Why a step of the bootstrap failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// A variable that the launcher should have set is missing or senseless.
    #[error("{variable}{} in the environment: {expected} expected", match .value {
        Some(value) => format!("={value:?}"),
        None => " is not".to_owned(),
    })]
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
    #[error(
        "{variable} is set for a job of {size} processes, but the launcher offers neither PMI (PMI_FD, PMI_PORT) \
         nor PMIx (PMIX_NAMESPACE): use srun --mpi=pmi2 or --mpi=pmix, mpirun, mpiexec.hydra or rerail launch"
    )]
    UnsupportedLauncher {
        /// The variable that reveals the launcher.
        variable: &'static str,
        /// The number of processes in it.
        size: u32,
    },
    /// The launcher offers PMIx, and there is no library for it.
    #[error("the launcher offers PMIx, and {library} can't be used ({why}): install it (Debian: libpmix2)")]
    Library {
        /// The library.
        library: &'static str,
        /// The loader's reason.
        why: String,
    },
    /// A key can't be used.
    #[error("key {key:?}: {why}")]
    Key {
        /// The key.
        key: String,
        /// The reason.
        why: &'static str,
    },
    /// A key was put twice by this rank; the value that others would see is undefined in PMI-1, so it is
    /// refused here.
    #[error("key {key:?} was put before")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A value is too long.
    #[error("value of {key:?} has {bytes} bytes, {bytes_max} are allowed")]
    ValueTooLong {
        /// The key.
        key: String,
        /// Bytes of the value.
        bytes: usize,
        /// Bytes allowed.
        bytes_max: usize,
    },
    /// The requested rank is not in the job.
    #[error("rank {rank} is not in a job of {size}")]
    Rank {
        /// The rank.
        rank: u32,
        /// Processes in the job.
        size: u32,
    },
    /// The launcher's limits leave no room for our keys and values.
    #[error("the launcher's {limit} is {value}, at least {needed} is needed")]
    Limit {
        /// The limit by its name on the wire.
        limit: &'static str,
        /// Its value.
        value: usize,
        /// The minimum.
        needed: usize,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// The failed step.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The other side closed the channel.
    #[error("{doing}: the other side closed the channel")]
    Closed {
        /// The failed step.
        doing: &'static str,
    },
    /// The other side violated the protocol.
    #[error("{doing}: {why} in answer {peer_text:?}")]
    Protocol {
        /// The failed step.
        doing: &'static str,
        /// The violation.
        why: String,
        /// Its message, shortened and made printable.
        peer_text: String,
    },
    /// The other side refused.
    #[error("{doing}: refused with {code} ({message})")]
    Refused {
        /// The failed step.
        doing: &'static str,
        /// Its code.
        code: i64,
        /// Its words.
        message: String,
    },
    /// A value that a rank published can't be read back.
    #[error("value of {key:?} of rank {rank}: {why}")]
    Value {
        /// The rank.
        rank: u32,
        /// The key.
        key: String,
        /// The reason.
        why: &'static str,
    },
    /// A rank has not published a mandatory key.
    #[error("rank {rank} published no {key:?}")]
    Absent {
        /// The rank.
        rank: u32,
        /// The key.
        key: String,
    },
    /// The other side did not answer in time.
    #[error("{doing}: no answer within {waited_ms} ms")]
    Timeout {
        /// The failed step.
        doing: &'static str,
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
    },
    /// The transport was started without a [`Bootstrap`](super::Bootstrap).
    #[error("this transport was started without a launcher or another board of a job")]
    NoJob,
    /// The other side doesn't hold the same key.
    #[error("authentication: {why}")]
    Authentication {
        /// The reason.
        why: &'static str,
    },
    /// The job was left or aborted already, or an earlier step's error was the end of the channel.
    #[error("the job was left, aborted or lost before")]
    Over,
}

/// The start of a message from outside, printable.
pub(super) fn excerpt(peer_text: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 160;
    let mut text = String::new();
    for &byte in peer_text.iter().take(SHOWN_BYTES_MAX) {
        text.push(if byte == b' ' || byte.is_ascii_graphic() { byte as char } else { '?' });
    }
    if peer_text.len() > SHOWN_BYTES_MAX {
        text.push_str("...");
    }
    text
}
