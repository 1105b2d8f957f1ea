//! SIGINT, SIGTERM and SIGHUP as something to poll for, so that a launcher can end its children before
//! itself, and a program can clean up.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// The signals are blocked for this thread and come through a descriptor, until this is dropped.
pub struct Signals {
    fd: OwnedFd,
    mask_before: libc::sigset_t,
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl Signals {
    /// Catches the signals of this thread. In a program with several threads a signal to the process goes to
    /// one that doesn't block it, so this must be called before the others start.
    ///
    /// # Errors
    /// The system's answer.
    pub fn catch() -> io::Result<Self> {
        let mut caught = MaybeUninit::uninit();
        let mut mask_before = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set that the calls after it use; `pthread_sigmask` writes the
        // old mask before it returns 0, and returns an error number else; the descriptor is fresh and owned
        // only here.
        unsafe {
            libc::sigemptyset(caught.as_mut_ptr());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(caught.as_mut_ptr(), signal);
            }
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, caught.as_ptr(), mask_before.as_mut_ptr());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let mask_before = mask_before.assume_init();
            let fd = libc::signalfd(-1, caught.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                let error = io::Error::last_os_error();
                restore(&mask_before);
                return Err(error);
            }
            Ok(Signals { fd: OwnedFd::from_raw_fd(fd), mask_before })
        }
    }

    /// The mask that children start with.
    pub(super) fn mask_before(&self) -> libc::sigset_t {
        self.mask_before
    }

    /// Sleeps until a signal comes. A [`Launch`](super::Launch) that catches signals takes them in place of
    /// this one.
    ///
    /// # Errors
    /// The system's answer.
    pub fn wait(&self) -> io::Result<i32> {
        loop {
            if let Some(signal) = self.take() {
                return Ok(signal);
            }
            let mut wanted = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut wanted, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The next signal that came; `None`: none.
    pub(super) fn take(&self) -> Option<i32> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut info) {
            // The signal's number is the first field.
            Ok(count) if count == info.len() => Some(i32::from_ne_bytes([info[0], info[1], info[2], info[3]])),
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        restore(&self.mask_before);
    }
}

/// Sets this thread's mask; safe to call between fork and exec.
pub(super) fn restore(mask: &libc::sigset_t) {
    // SAFETY: the mask came from `pthread_sigmask`, which is async-signal-safe and can't fail with
    // SIG_SETMASK.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}
