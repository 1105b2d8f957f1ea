//! Starts one child with its end of the PMI channel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Pid;

use super::pipe::LinePipe;
use super::process::Process;
use super::signals;
use super::{LaunchError, Launcher, Output};

/// The parent's handles to a child that was just started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    /// Becomes readable when the child has ended.
    pub(super) process: Process,
    /// Our end of the channel, non-blocking.
    pub(super) pmi: OwnedFd,
    pub(super) stdout: Option<LinePipe>,
    pub(super) stderr: Option<LinePipe>,
}

/// Starts a rank. `mask`: the signal mask that it starts with, if not the launcher's.
pub(super) fn spawn(launcher: &Launcher, rank: u32, mask: Option<libc::sigset_t>) -> Result<Started, LaunchError> {
    let io = |doing| move |errno: rustix::io::Errno| LaunchError::Io { doing, source: errno.into() };
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(io("opening a rank's channel"))?;
    rustix::io::ioctl_fionbio(&ours, true).map_err(io("opening a rank's channel"))?;

    let mut command = Command::new(&launcher.program);
    command.args(&launcher.args);
    command.envs(launcher.env.iter().map(|(name, value)| (name, value)));
    let of_rank = launcher.rank_env.iter().filter(|(of, ..)| *of == rank);
    command.envs(of_rank.map(|(_, name, value)| (name, value)));
    // Variables of an outer launcher must not reach our ranks.
    for name in ["PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMI_JOBID"] {
        command.env_remove(name);
    }
    command.env("PMI_FD", theirs.as_raw_fd().to_string());
    command.env("PMI_RANK", rank.to_string());
    command.env("PMI_SIZE", launcher.ranks.to_string());
    // MPICH's programs read their local rank here.
    command.env("MPI_LOCALRANKID", rank.to_string());
    command.env("MPI_LOCALNRANKS", launcher.ranks.to_string());

    let stream = || match launcher.output {
        Output::Inherit => Stdio::inherit(),
        Output::Prefix | Output::Lines => Stdio::piped(),
        Output::Null => Stdio::null(),
    };
    command.stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() });
    command.stdout(stream()).stderr(stream());

    let launcher_pid = std::process::id() as libc::pid_t;
    let channel = theirs.as_raw_fd();
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe system calls on values
    // that were copied before; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The launcher may have died before the call above: then the signal would never come.
            if libc::getppid() != launcher_pid {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            // The child's copy of the channel alone survives exec.
            if libc::fcntl(channel, libc::F_SETFD, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            if let Some(mask) = &mask {
                signals::restore(mask);
            }
            Ok(())
        });
    }
    let mut child =
        command.spawn().map_err(|source| LaunchError::Program { program: launcher.program.clone(), rank, source })?;

    let rest = (|| {
        let process = Process::of(Pid::from_child(&child))
            .map_err(|source| LaunchError::Io { doing: "watching a rank", source })?;
        let stdout = child.stdout.take().map(|pipe| LinePipe::new(pipe.into())).transpose();
        let stderr = child.stderr.take().map(|pipe| LinePipe::new(pipe.into())).transpose();
        Ok((process, stdout.map_err(io("reading a rank's output"))?, stderr.map_err(io("reading a rank's output"))?))
    })();
    match rest {
        Ok((process, stdout, stderr)) => Ok(Started { child, process, pmi: ours, stdout, stderr }),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}
