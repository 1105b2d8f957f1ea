//! A rank's process as the launcher sees it: whether it has ended, by a descriptor to poll, and signals to
//! it.
//!
//! Process descriptors do both. Where the system has none (before Linux 5.3, in some sandboxes, under
//! Valgrind), a thread waits for the process without reaping it and closes a pipe; signals go by number, and
//! only before that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
};

/// A child of this process.
#[derive(Debug)]
pub(super) enum Process {
    Descriptor(OwnedFd),
    Number { pid: Pid, has_ended: Arc<AtomicBool>, end: OwnedFd },
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
        let (end, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        let wait = move || {
            // Whatever else is said: it is no child any more.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR)) {}
            ended.store(true, Ordering::Release);
            drop(writer);
        };
        std::thread::Builder::new().name("rank's end".into()).spawn(wait)?;
        Ok(Process::Number { pid, has_ended, end })
    }

    /// Whether the signal went to a process that has not ended.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        match self {
            Process::Descriptor(descriptor) => pidfd_send_signal(descriptor, signal).is_ok(),
            Process::Number { pid, has_ended, .. } => {
                !has_ended.load(Ordering::Acquire) && kill_process(*pid, signal).is_ok()
            }
        }
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Process::Descriptor(descriptor) => descriptor.as_fd(),
            Process::Number { end, .. } => end.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

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
                poll(&mut descriptors, timeout).unwrap() == 1
            };
            assert!(!ended(Some(&Timespec { tv_sec: 0, tv_nsec: 0 })));
            assert!(process.signal(Signal::TERM));
            assert!(ended(None));
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(15));
            assert!(!process.signal(Signal::TERM));
        }
    }
}
