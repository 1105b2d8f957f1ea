//! Opening subchannels: from a peer's address to a pending handshake, and to one that failed.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::Time;
use rerail_core::wire::handshake::{RefusedBecause, Transport};
use rustix::event::epoll;
use rustix::io::Errno;

use super::conn::fault_of;
use super::handshake::{Failure, Pending, Role};
use super::{INTEREST, Key, Link, Peer, Report, TcpRail, pending_token, sys};
use crate::auth::{Attempts, AuthError, Call, Dialler, Fingerprint};
use crate::random::random;

/// The fault reported to the core for a dial that failed.
pub(super) fn fault_of_dial(failure: Failure) -> RailFault {
    match failure {
        // The listener closed without an answer: it is not our peer.
        Failure::Closed | Failure::System(Errno::CONNRESET | Errno::PIPE) => RailFault::Refused,
        Failure::System(errno) => fault_of_connect(errno),
        Failure::Auth(AuthError::Refused(why)) if why != RefusedBecause::Proof => RailFault::Refused,
        Failure::Auth(_) => RailFault::Unauthenticated,
    }
}

/// The fault reported to the core for a system's error before a connection was established.
fn fault_of_connect(errno: Errno) -> RailFault {
    match errno {
        // L-16: the host answers, and no process listens there.
        Errno::CONNREFUSED => RailFault::Gone,
        errno => fault_of(errno),
    }
}

impl TcpRail {
    /// Starts to open the subchannel to `peer`, unless it is open or opening (L-1).
    pub(super) fn dial(&mut self, now: Time, peer: PeerId) {
        let Some(&Peer { address, key: Some(key), link, history, .. }) = self.peers.get(&peer) else {
            self.reports.push_back(Report::Down(peer, RailFault::Refused));
            return;
        };
        if link != Link::Idle {
            return;
        }
        if self.watch.as_ref().is_some_and(|watch| !watch.is_up()) {
            return self.report_down(peer, RailFault::Device { code: Errno::NETDOWN.raw_os_error() });
        }
        // A number is used once, even if the dial fails (H-10).
        self.attempts += 1;
        let attempts = history.dial(self.attempts);
        match self.start(now, peer, (address, key), attempts) {
            Ok(key) => {
                if let Some(known) = self.peers.get_mut(&peer) {
                    (known.link, known.attempt) = (Link::Opening(key), attempts.attempt);
                }
            }
            Err(errno) => {
                self.counters.note_shortage(&self.options.name, errno);
                self.report_down(peer, fault_of_connect(errno));
            }
        }
    }

    fn start(
        &mut self,
        now: Time,
        peer: PeerId,
        (address, key): (SocketAddr, Fingerprint),
        attempts: Attempts,
    ) -> Result<Key, Errno> {
        let (job, rail) = (self.job, self.options.index);
        let (from, to) = self.credentials.numbers((self.me, peer), &key);
        let call = Call { transport: Transport::Tcp, job, from, to, rail, attempts };
        let (dialler, hello) = Dialler::new(&self.credentials, call, key, random()?);
        let fd = sys::socket(self.local, &self.options)?;
        sys::set_up(fd.as_fd(), &self.options)?;
        // The source address makes the connection leave by this rail's interface (L-6).
        sys::bind_address_only(fd.as_fd());
        rustix::net::bind(&fd, &SocketAddr::new(self.local.ip(), 0))?;
        match rustix::net::connect(&fd, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let deadline = now + self.options.handshake_timeout;
        self.add_pending(Pending::new(Some(fd), deadline, Role::Connecting { peer, dialler, hello }))
    }

    /// Puts a connection into the table and adds it to epoll, which reports existing events at once; one
    /// that drains is in epoll already.
    pub(super) fn add_pending(&mut self, pending: Pending) -> Result<Key, Errno> {
        let (deadline, accepted, is_known) =
            (pending.deadline, pending.role.is_accepting(), pending.role.is_draining());
        let key = self.pending.insert(pending);
        let noted = match self.pending_fd(key) {
            Some(fd) if is_known => epoll::modify(&self.epoll, fd, pending_token(key), INTEREST),
            Some(fd) => epoll::add(&self.epoll, fd, pending_token(key), INTEREST),
            None => Ok(()),
        };
        if let Err(errno) = noted {
            self.pending.remove(key);
            return Err(errno);
        }
        self.accepted += usize::from(accepted);
        self.busy_at = self.now;
        self.note_deadline(deadline);
        Ok(key)
    }

    /// The socket of a connection that is not authenticated.
    pub(super) fn pending_fd(&self, key: Key) -> Option<&OwnedFd> {
        self.pending.get(key)?.fd.as_ref()
    }

    /// Takes a connection out of the table of those not authenticated.
    pub(super) fn take_pending(&mut self, key: Key) -> Option<Pending> {
        let pending = self.pending.remove(key)?;
        self.accepted -= usize::from(pending.role.is_accepting());
        Some(pending)
    }

    pub(super) fn note_deadline(&mut self, deadline: Time) {
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
    }
}
