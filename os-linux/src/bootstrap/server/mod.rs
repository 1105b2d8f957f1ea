//! A PMI-1 server for jobs on one machine: starts the processes, serves them, and reports how each of them
//! ended.
//!
//! One thread, one `poll(2)`. Each child inherits one end of a socket pair as `PMI_FD`. Children die with the
//! launcher, even if it is killed (`PR_SET_PDEATHSIG`); a child that dies is reported by rank, and a policy
//! decides about the others ([`OnFailure`]). Processes that a rank starts itself (a shell script its
//! commands) are that rank's to end: only the processes started here are followed.
//!
//! ```no_run
//! use rerail_linux::bootstrap::server::{LaunchEvent, Launcher, Output};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let launch = Launcher::new("ring").args(["--rounds", "100"]).ranks(4).output(Output::Prefix).spawn()?;
//! let report = launch.wait_with(|event| match event {
//!     LaunchEvent::Exited(end) if end.failed() => eprintln!("{end}"),
//!     _ => {}
//! })?;
//! std::process::exit(report.exit_code());
//! # }
//! ```

mod board;
mod launch;
mod pipe;
mod process;
mod report;
mod signals;
mod spawn;

use std::ffi::{OsStr, OsString};
use std::io;
use std::time::Duration;

use rustix::io::Errno;

pub use launch::Launch;
pub use report::{Exit, LaunchEvent, Phase, RankEnd, Report, Stop, Stream, signal_name};
pub use signals::Signals;

/// Most ranks of one launch: descriptors are bounded, and one machine is no cluster.
pub const RANKS_MAX: u32 = 4096;

/// The treatment of the other ranks when one fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They are ended too: SIGTERM, and SIGKILL after the [grace period](Launcher::grace).
    #[default]
    KillAll,
    /// They continue. Fences no longer wait for the one that failed.
    LetOthersFinish,
}

/// Where the children's stdout and stderr go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Where the launcher's go.
    #[default]
    Inherit,
    /// Line by line to the launcher's, each with `[rank] ` before it.
    Prefix,
    /// Line by line to the caller, as [`LaunchEvent::Line`].
    Lines,
    /// Nowhere.
    Null,
}

/// A job to start.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: OsString,
    args: Vec<OsString>,
    ranks: u32,
    env: Vec<(OsString, OsString)>,
    rank_env: Vec<(u32, OsString, OsString)>,
    job_name: Option<String>,
    on_failure: OnFailure,
    output: Output,
    grace: Duration,
    catch_signals: bool,
}

impl Launcher {
    /// A job of one rank that runs `program` (looked up in `PATH`).
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Launcher {
            program: program.as_ref().into(),
            args: Vec::new(),
            ranks: 1,
            env: Vec::new(),
            rank_env: Vec::new(),
            job_name: None,
            on_failure: OnFailure::default(),
            output: Output::default(),
            grace: Duration::from_secs(1),
            catch_signals: false,
        }
    }

    /// More arguments for the program.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().into()));
        self
    }

    /// The number of processes: 1 to [`RANKS_MAX`].
    pub fn ranks(mut self, ranks: u32) -> Self {
        self.ranks = ranks;
        self
    }

    /// A variable for all ranks; overrides the launcher's own environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// A variable for one rank; overrides the one for all.
    pub fn rank_env(mut self, rank: u32, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.rank_env.push((rank, name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// The job's name: 1 to 64 of letters, digits, `_`, `-` and `.`. Otherwise one is made of the launcher's
    /// process id and a random number.
    pub fn job_name(mut self, name: impl Into<String>) -> Self {
        self.job_name = Some(name.into());
        self
    }

    /// The treatment of the others when a rank fails.
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = policy;
        self
    }

    /// Where output goes. Rank 0 also has the launcher's stdin, the others have none.
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// The time between a rank's SIGTERM and its SIGKILL. Default: one second.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Treats SIGINT, SIGTERM and SIGHUP to the launcher as a request to end the job, for as long as the
    /// [`Launch`] lives. They are blocked for the calling thread only, so call this before other threads
    /// are started.
    pub fn catch_signals(mut self, catch: bool) -> Self {
        self.catch_signals = catch;
        self
    }

    /// Starts all ranks. If one can't be started, those that were are killed.
    ///
    /// The kernel ties the children's lives to the *thread* that calls this: it has to live as long as they.
    pub fn spawn(self) -> Result<Launch, LaunchError> {
        if self.ranks == 0 || self.ranks > RANKS_MAX {
            return Err(LaunchError::Ranks { ranks: self.ranks, ranks_max: RANKS_MAX });
        }
        if let Some((rank, ..)) = self.rank_env.iter().find(|(rank, ..)| *rank >= self.ranks) {
            return Err(LaunchError::RankEnv { rank: *rank, ranks: self.ranks });
        }
        let name = match &self.job_name {
            Some(name) if good_name(name) => name.clone(),
            Some(name) => return Err(LaunchError::JobName { name: name.clone() }),
            None => {
                let bytes: [u8; 4] = super::random("drawing the job's name").map_err(|error| LaunchError::Io {
                    doing: "drawing the job's name",
                    source: io::Error::other(error),
                })?;
                format!("rerail-{}-{}", std::process::id(), hex::encode(bytes))
            }
        };
        Launch::start(self, name)
    }
}

fn good_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-' || b == b'.')
}

/// Why a job could not be started or served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The number of ranks is out of range.
    #[error("{ranks} ranks requested, 1 to {ranks_max} are possible")]
    Ranks {
        /// The requested ranks.
        ranks: u32,
        /// Most ranks allowed; the least is 1.
        ranks_max: u32,
    },
    /// A variable was given for a rank that isn't in the job.
    #[error("a variable is given for rank {rank}, but the job has {ranks} ranks")]
    RankEnv {
        /// The rank.
        rank: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The job's name can't be used.
    #[error("job name {name:?}: 1 to 64 letters, digits, '_', '-' and '.' are allowed")]
    JobName {
        /// The name.
        name: String,
    },
    /// The program can't be started.
    #[error("can't start {} as rank {rank}: {source}{}", .program.display(), remedy(.source))]
    Program {
        /// The program.
        program: OsString,
        /// The rank that was to be started.
        rank: u32,
        /// The system's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{doing}: {source}{}", remedy(.source))]
    Io {
        /// The failed step.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// The remedy where the launcher has no descriptor left, to be put behind the reason; else empty.
fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => ": raise the launcher's limit of open descriptors (ulimit -n)",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
