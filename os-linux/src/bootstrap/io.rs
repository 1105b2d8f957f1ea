//! Reading, writing and dialling, each within a limit and with an error that names the step (B-1).

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::BootError;

/// What is done over and over while a step waits; `None`: the thread sleeps.
pub(super) type Meanwhile<'a> = Option<&'a mut dyn FnMut()>;

/// Until when a step may go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    since: Instant,
    answer_max: Option<Duration>,
}

impl Limit {
    /// From now on.
    pub(super) fn new(answer_max: Option<Duration>) -> Self {
        Limit { since: Instant::now(), answer_max }
    }

    /// The remaining time; `None`: it is no limit.
    pub(super) fn left(self, doing: &'static str) -> Result<Option<Duration>, BootError> {
        let Some(answer_max) = self.answer_max else { return Ok(None) };
        match answer_max.saturating_sub(self.since.elapsed()) {
            Duration::ZERO => Err(BootError::Timeout { doing, waited_ms: answer_max.as_millis() as u64 }),
            left => Ok(Some(left)),
        }
    }

    /// Waits until a descriptor is ready (its mode may be shared with all processes that inherited it, so it
    /// is not changed).
    pub(super) fn wait(
        self,
        fd: &impl AsFd,
        flags: PollFlags,
        doing: &'static str,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<(), BootError> {
        loop {
            // The descriptor is polled even after the deadline: a process that was delayed may find the
            // answer there.
            let left = self.left(doing);
            let sleep = left.as_ref().map_or(Some(Duration::ZERO), |left| *left);
            let span = if meanwhile.is_some() { Some(Duration::ZERO) } else { sleep }.and_then(timespec);
            match poll(&mut [PollFd::new(fd, flags)], span.as_ref()) {
                Ok(0) => {
                    left?;
                    if let Some(meanwhile) = meanwhile {
                        meanwhile();
                    }
                }
                Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(BootError::Io { doing, source: errno.into() }),
            }
        }
    }

    /// Sends all of `bytes`.
    pub(super) fn write(
        self,
        fd: BorrowedFd<'_>,
        mut bytes: &[u8],
        doing: &'static str,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<(), BootError> {
        while !bytes.is_empty() {
            self.wait(&fd, PollFlags::OUT, doing, meanwhile)?;
            // Another side that has gone must be an error here, not a SIGPIPE for a host program.
            let sent = match rustix::net::send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Err(Errno::NOTSOCK) => rustix::io::write(fd, bytes),
                sent => sent,
            };
            bytes = &bytes[taken(sent, doing)?..];
        }
        Ok(())
    }

    /// Reads at least one byte; returns how many.
    pub(super) fn read(
        self,
        fd: BorrowedFd<'_>,
        bytes: &mut [u8],
        doing: &'static str,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<usize, BootError> {
        loop {
            self.wait(&fd, PollFlags::IN, doing, meanwhile)?;
            let got = match rustix::net::recv(fd, &mut *bytes, RecvFlags::DONTWAIT) {
                Err(Errno::NOTSOCK) => rustix::io::read(fd, &mut *bytes),
                got => got.map(|(count, _)| count),
            };
            match got {
                Ok(0) => return Err(BootError::Closed { doing }),
                got => match taken(got, doing)? {
                    0 => {}
                    count => return Ok(count),
                },
            }
        }
    }

    /// Dials the addresses of a host in turn.
    pub(super) fn connect(self, to: impl ToSocketAddrs, doing: &'static str) -> Result<TcpStream, BootError> {
        let io = |source| BootError::Io { doing, source };
        let mut last = io(io::ErrorKind::AddrNotAvailable.into());
        for address in to.to_socket_addrs().map_err(io)? {
            let dialled = match self.left(doing)? {
                Some(left) => TcpStream::connect_timeout(&address, left),
                None => TcpStream::connect(address),
            };
            match dialled {
                Ok(stream) => return Ok(stream),
                Err(error) => last = io(error),
            }
        }
        // After the deadline the error is a timeout, whatever the last address's error.
        self.left(doing)?;
        Err(last)
    }
}

/// The bytes that a call has taken: none where it was interrupted or had to wait.
fn taken(result: Result<usize, Errno>, doing: &'static str) -> Result<usize, BootError> {
    match result {
        Ok(count) => Ok(count),
        Err(Errno::INTR | Errno::AGAIN) => Ok(0),
        Err(Errno::PIPE | Errno::CONNRESET | Errno::CONNABORTED) => Err(BootError::Closed { doing }),
        Err(errno) => Err(BootError::Io { doing, source: errno.into() }),
    }
}

/// A time for the system; `None`: so long that it is no limit.
pub(super) fn timespec(span: Duration) -> Option<Timespec> {
    span.try_into().ok()
}
