//! The launcher's reports: events while the job runs, and a report at its end.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl Exit {
    /// From the kernel's status of a process that has ended.
    pub(super) fn from_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Code(-1),
        }
    }

    /// As in a shell: the code, or 128 and the signal's number.
    pub fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// How far a rank has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Started, has sent nothing to the launcher (a program without PMI never does).
    Started,
    /// Has joined the job.
    Joined,
    /// Has left the job in good order.
    Finalized,
}

/// The end of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankEnd {
    /// The rank.
    pub rank: u32,
    /// Its process id.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
    /// How far it had come.
    pub phase: Phase,
    /// Whether the launcher had ordered it to end.
    pub stopped: bool,
}

impl RankEnd {
    /// Whether that is a failure of this rank: a signal, a code other than 0, or an end between joining and
    /// leaving; not if the launcher had ordered it to end.
    pub fn failed(&self) -> bool {
        !self.stopped && (self.exit != Exit::Code(0) || self.phase == Phase::Joined)
    }
}

impl fmt::Display for RankEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} (pid {}) ", self.rank, self.pid)?;
        match self.exit {
            Exit::Code(code) => write!(f, "exited with code {code}")?,
            Exit::Signal(signal) => match signal_name(signal) {
                Some(name) => write!(f, "was killed by {name}")?,
                None => write!(f, "was killed by signal {signal}")?,
            },
        }
        match self.phase {
            Phase::Joined if self.failed() => write!(f, " before it had left the job")?,
            Phase::Started if self.failed() => write!(f, " before it had joined the job")?,
            _ => {}
        }
        if self.stopped { write!(f, " (stopped by the launcher)") } else { Ok(()) }
    }
}

/// A signal's name; `None`: a signal that processes are rarely ended by.
pub fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGSYS => "SIGSYS",
        libc::SIGXCPU => "SIGXCPU",
        _ => return None,
    })
}

/// Which output a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// stdout.
    Out,
    /// stderr.
    Err,
}

/// Why all ranks were ordered to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This rank failed and the policy is [`OnFailure::KillAll`](super::OnFailure::KillAll).
    RankFailed(u32),
    /// A rank requested it.
    Aborted {
        /// The rank.
        rank: u32,
        /// The exit code that it requested for the job.
        code: i32,
        /// Its words.
        message: String,
    },
    /// The launcher got this signal.
    Signal(i32),
    /// The caller requested it.
    EndRequested,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::RankFailed(rank) => write!(f, "rank {rank} failed"),
            Stop::Aborted { rank, code, message } => write!(f, "rank {rank} aborted with code {code}: {message}"),
            Stop::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "the launcher got {name}"),
                None => write!(f, "the launcher got signal {signal}"),
            },
            Stop::EndRequested => write!(f, "the caller of the launcher requested it"),
        }
    }
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchEvent {
    /// The rank has joined the job.
    Joined {
        /// The rank.
        rank: u32,
    },
    /// The rank has written a line (with [`Output::Lines`](super::Output::Lines)).
    Line {
        /// The rank.
        rank: u32,
        /// Where to.
        stream: Stream,
        /// The line without its end; bytes that aren't UTF-8 are replaced.
        text: String,
    },
    /// The rank violated the protocol.
    Malformed {
        /// The rank.
        rank: u32,
        /// The violation.
        why: String,
    },
    /// The rank has left the job in good order; its process still runs.
    Finalized {
        /// The rank.
        rank: u32,
    },
    /// All ranks are ordered to end.
    Stopping(Stop),
    /// The rank's process has ended.
    Exited(RankEnd),
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The ranks' ends, by rank.
    pub ends: Vec<RankEnd>,
    /// Why all were ordered to end, if they were.
    pub stop: Option<Stop>,
    /// The rank that failed first.
    pub failed_first: Option<u32>,
}

impl Report {
    /// Whether nothing failed and nothing was stopped.
    pub fn success(&self) -> bool {
        self.stop.is_none() && self.failed_first.is_none()
    }

    /// The ranks that failed of their own.
    pub fn failures(&self) -> impl Iterator<Item = &RankEnd> {
        self.ends.iter().filter(|end| end.failed())
    }

    /// The launcher's exit code: an aborting rank's code, 128 and the number of a signal to the launcher, or
    /// how the first rank that failed ended (1 if it exited with 0 too early); 0 without a failure.
    pub fn exit_code(&self) -> i32 {
        match (&self.stop, self.failed_first) {
            (Some(Stop::Aborted { code, .. }), _) => *code,
            (Some(Stop::Signal(signal)), _) => 128 + signal,
            (_, Some(rank)) => match self.ends[rank as usize].exit.code() {
                0 => 1,
                code => code,
            },
            (Some(_), None) => 1,
            (None, None) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(exit: Exit, phase: Phase, stopped: bool) -> RankEnd {
        RankEnd { rank: 0, pid: 77, exit, phase, stopped }
    }

    #[test]
    fn a_failure_is_an_end_out_of_order() {
        use Phase::*;
        let cases = [
            (end(Exit::Code(0), Started, false), false, "rank 0 (pid 77) exited with code 0"),
            (end(Exit::Code(0), Finalized, false), false, "rank 0 (pid 77) exited with code 0"),
            (end(Exit::Code(0), Joined, false), true, "rank 0 (pid 77) exited with code 0 before it had left the job"),
            (end(Exit::Code(3), Finalized, false), true, "rank 0 (pid 77) exited with code 3"),
            (
                end(Exit::Signal(9), Joined, false),
                true,
                "rank 0 (pid 77) was killed by SIGKILL before it had left the job",
            ),
            (
                end(Exit::Signal(11), Started, false),
                true,
                "rank 0 (pid 77) was killed by SIGSEGV before it had joined the job",
            ),
            (
                end(Exit::Signal(15), Joined, true),
                false,
                "rank 0 (pid 77) was killed by SIGTERM (stopped by the launcher)",
            ),
            (end(Exit::Signal(40), Finalized, false), true, "rank 0 (pid 77) was killed by signal 40"),
        ];
        for (end, failed, text) in cases {
            assert_eq!(end.failed(), failed, "{end:?}");
            assert_eq!(end.to_string(), text);
        }
    }

    #[test]
    fn the_exit_code_is_that_of_the_cause() {
        let report = |exit, stop, failed_first| {
            Report { ends: vec![end(exit, Phase::Joined, false)], stop, failed_first }.exit_code()
        };
        let abort = Stop::Aborted { rank: 0, code: 9, message: String::new() };
        assert_eq!(report(Exit::Code(0), None, None), 0);
        assert_eq!(report(Exit::Code(0), None, Some(0)), 1);
        assert_eq!(report(Exit::Code(5), Some(Stop::RankFailed(0)), Some(0)), 5);
        assert_eq!(report(Exit::Signal(9), None, Some(0)), 137);
        assert_eq!(report(Exit::Code(5), Some(abort), Some(0)), 9);
        assert_eq!(report(Exit::Code(0), Some(Stop::Signal(2)), None), 130);
        assert_eq!(report(Exit::Code(0), Some(Stop::EndRequested), None), 1);
    }
}
