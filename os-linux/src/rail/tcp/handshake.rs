//! Connections that are not authenticated yet: dialled, accepted, or awaited. And those that are only waiting
//! for the other side to read the last bytes.
//!
//! Invariants: never more bytes are read than the handshake expects next (H-1), so nothing behind it is
//! touched before the other side is authenticated; each has a deadline.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rerail_core::ids::PeerId;
use rerail_core::time::Time;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use crate::auth::{Acceptor, Attempts, AuthError, Dialler, Fingerprint, MESSAGE_BYTES_MAX, Message, Step};

/// A connection under construction or in dissolution.
#[derive(Debug)]
pub(super) struct Pending {
    /// `None`: only its coming is awaited.
    pub(super) fd: Option<OwnedFd>,
    /// When it is given up.
    pub(super) deadline: Time,
    pub(super) role: Role,
    /// It is among the handshakes on which something happened; and what was reported of its socket.
    pub(super) is_listed: bool,
    pub(super) is_writable: bool,
    incoming: heapless::Vec<u8, MESSAGE_BYTES_MAX>,
}

/// The expected event.
#[derive(Debug)]
pub(super) enum Role {
    /// The system connects; then the first message is sent.
    Connecting { peer: PeerId, dialler: Dialler, hello: Message },
    /// We dialled, and the handshake runs.
    Dialling { peer: PeerId, dialler: Dialler },
    /// The peer dialled too, and its connection is the one to keep.
    Crossed { peer: PeerId },
    /// A peer dialled us, and the handshake runs.
    Accepting { acceptor: Acceptor },
    /// A process that is no peer dialled us, and has proved its key: it waits for an answer (H-11).
    Held { acceptor: Acceptor, caller: Caller },
    /// Disconnected by us: the last bytes are with the system. Closing while bytes of the peer are unread
    /// would reset the connection and throw ours away, so the peer's are read, and forgotten, until it closes
    /// as well.
    Draining { peer: PeerId },
}

/// A dialler that has proved its key: its number, the key, and which dial it is.
pub(super) type Caller = (PeerId, Fingerprint, Attempts);

impl Role {
    pub(super) fn is_accepting(&self) -> bool {
        matches!(self, Role::Accepting { .. } | Role::Held { .. })
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self, Role::Draining { .. })
    }

    pub(super) fn is_crossed(&self) -> bool {
        matches!(self, Role::Crossed { .. })
    }
}

/// Its outcome.
#[derive(Debug)]
pub(super) enum Progress {
    /// Wait for the next event.
    Waits,
    /// There is more to do without an event, but the others come first.
    Again,
    /// The other side has proved which key is its own; a dialler has the acceptor's word, too.
    Authenticated(PeerId, Fingerprint, Attempts),
    /// Dialler: see [`Role::Crossed`].
    Crossing,
    /// It is over.
    Failed(Failure),
}

/// Why a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The other side closed.
    Closed,
    /// The system's error.
    System(Errno),
    /// The other side did not prove itself, or refused.
    Auth(AuthError),
}

impl Pending {
    pub(super) fn new(fd: Option<OwnedFd>, deadline: Time, role: Role) -> Self {
        Pending { fd, deadline, role, is_listed: false, is_writable: false, incoming: heapless::Vec::new() }
    }

    /// Goes as far as it can without waiting. `writable`: the socket was reported writable, so a connect is
    /// over.
    pub(super) fn advance(&mut self, writable: bool, scratch: &mut [u8]) -> Progress {
        match self.step(writable, scratch) {
            Ok(progress) => progress,
            Err(failure) => Progress::Failed(failure),
        }
    }

    fn step(&mut self, writable: bool, scratch: &mut [u8]) -> Result<Progress, Failure> {
        let Some(fd) = self.fd.as_ref().map(AsFd::as_fd) else { return Ok(Progress::Waits) };
        if let Role::Connecting { peer, .. } = self.role {
            if !writable {
                return Ok(Progress::Waits);
            }
            sockopt::socket_error(fd).and_then(|error| error).map_err(Failure::System)?;
            // A placeholder for the time between two lines.
            let Role::Connecting { peer, dialler, hello } = std::mem::replace(&mut self.role, Role::Draining { peer })
            else {
                unreachable!("looked at above")
            };
            self.role = Role::Dialling { peer, dialler };
            send(fd, &hello)?;
        }
        loop {
            let expected = match &self.role {
                Role::Dialling { dialler, .. } => dialler.expects(),
                Role::Accepting { acceptor } => acceptor.expects(),
                Role::Draining { .. } => return drain(fd, scratch),
                Role::Held { .. } => {
                    return match receive(fd, &mut self.incoming, 1)? {
                        true => Err(Failure::Auth(AuthError::Over)),
                        false => Ok(Progress::Waits),
                    };
                }
                Role::Connecting { .. } | Role::Crossed { .. } => return Ok(Progress::Waits),
            };
            let wanted = expected - self.incoming.len();
            match receive(fd, &mut self.incoming, wanted) {
                Ok(true) => {}
                Ok(false) => return Ok(Progress::Waits),
                Err(failure) => return Err(self.last_word().map_or(failure, Failure::Auth)),
            }
            if self.incoming.len() < expected {
                continue;
            }
            let step = match &mut self.role {
                Role::Dialling { dialler, .. } => dialler.handle(&self.incoming),
                Role::Accepting { acceptor } => acceptor.handle(&self.incoming),
                _ => unreachable!("looked at above"),
            };
            self.incoming.clear();
            match step.map_err(Failure::Auth)? {
                Step::Send(message) => send(fd, &message)?,
                Step::Authenticated { peer, key, attempts, .. } => {
                    return Ok(Progress::Authenticated(peer, key, attempts));
                }
                Step::Crossing => return Ok(Progress::Crossing),
            }
        }
    }
}

impl Pending {
    /// The verdict that a dialler received before the acceptor closed (H-6).
    fn last_word(&self) -> Option<AuthError> {
        if matches!(self.role, Role::Dialling { .. }) { Dialler::rejected(&self.incoming) } else { None }
    }
}

/// Sends a message whole. There is always room: neither side sends more than two short messages before the
/// answer to the first is here, and the least send buffer is larger.
pub(super) fn send(fd: BorrowedFd<'_>, message: &Message) -> Result<(), Failure> {
    match rustix::net::send(fd, message.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(sent) if sent == message.bytes().len() => Ok(()),
        Ok(_) => Err(Failure::System(Errno::NOBUFS)),
        Err(errno) => Err(Failure::System(errno)),
    }
}

/// Appends up to `wanted` bytes; `false`: there is nothing now.
fn receive(
    fd: BorrowedFd<'_>,
    into: &mut heapless::Vec<u8, MESSAGE_BYTES_MAX>,
    wanted: usize,
) -> Result<bool, Failure> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    match rustix::net::recv(fd, &mut bytes[..wanted], RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Err(Failure::Closed),
        Ok((_, received)) => {
            let fits = into.extend_from_slice(&bytes[..received]);
            debug_assert!(fits.is_ok(), "no message is longer than the buffer");
            Ok(true)
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(errno) => Err(Failure::System(errno)),
    }
}

/// Reads and forgets, a bounded amount at a time.
fn drain(fd: BorrowedFd<'_>, scratch: &mut [u8]) -> Result<Progress, Failure> {
    for _ in 0..4 {
        match rustix::net::recv(fd, &mut *scratch, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(Failure::Closed),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Progress::Waits),
            Err(errno) => return Err(Failure::System(errno)),
        }
    }
    Ok(Progress::Again)
}
