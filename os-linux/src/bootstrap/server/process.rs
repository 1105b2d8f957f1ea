//! A rank's process in the launcher: detects its end through a descriptor to poll, and sends signals to it.
//!
//! Process descriptors do both. Where the system has none (before Linux 5.3, in some sandboxes, under
//! Valgrind), a timer wakes the launcher to check now and then, and signals use the process id: a process
//! that was not waited for keeps its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

/// The interval of checks of a process without descriptor.
const POLL_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// A child of this process that was not waited for.
#[derive(Debug)]
pub(super) enum Process {
    Descriptor(OwnedFd),
    Number { pid: Pid, timer: OwnedFd },
}

impl Process {
    pub(super) fn of(pid: Pid) -> io::Result<Process> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Process::Descriptor(descriptor)),
            Err(Errno::NOSYS | Errno::PERM) => Process::by_number(pid),
            Err(errno) => Err(errno.into()),
        }
    }

    fn by_number(pid: Pid) -> io::Result<Process> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let period = Itimerspec { it_interval: POLL_PAUSE, it_value: POLL_PAUSE };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &period)?;
        Ok(Process::Number { pid, timer })
    }

    /// Whether it has ended; to be called when the descriptor can be read: then it may have.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Process::Descriptor(_) => true,
            Process::Number { pid, timer } => {
                // It can be read again a period later. That there was nothing to read makes no difference.
                let _ = rustix::io::read(timer, &mut [0; 8]);
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                // An error means that it is no child any more.
                !matches!(waitid(WaitId::Pid(*pid), options), Ok(None) | Err(Errno::INTR))
            }
        }
    }

    /// Whether the signal went to a process that has not ended.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        match self {
            Process::Descriptor(descriptor) => pidfd_send_signal(descriptor, signal).is_ok(),
            Process::Number { pid, .. } => !self.has_ended() && kill_process(*pid, signal).is_ok(),
        }
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Process::Descriptor(descriptor) => descriptor.as_fd(),
            Process::Number { timer, .. } => timer.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    /// By descriptor and by number: it is there until a signal ends it, its end can be polled, and no signal
    /// goes after.
    #[test]
    fn an_end_shows_and_nothing_is_signalled_after_it() {
        for by in [Process::of, Process::by_number] {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let process = by(Pid::from_child(&child)).unwrap();
            let ended = |timeout: Option<&Timespec>| {
                let mut descriptors = [PollFd::new(&process, PollFlags::IN)];
                poll(&mut descriptors, timeout).unwrap() == 1 && process.has_ended()
            };
            assert!(!ended(Some(&Timespec { tv_sec: 0, tv_nsec: 0 })));
            assert!(process.signal(Signal::TERM));
            while !ended(None) {}
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(15));
            assert!(!process.signal(Signal::TERM), "waited for");
        }
    }
}
