//! The door: connections that come in, handshakes that go on, end or run out of time.
//!
//! Outsiders can do no more than hold [`TcpOptions::pending_max`](super::TcpOptions::pending_max) places for
//! the handshake's time. Where all are taken, the oldest one is given to the next connection, but not before
//! it has had its time: an honest peer needs its place for a round trip only, and others wait in the kernel.

use std::os::fd::{AsFd, OwnedFd};

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::handshake::{RefusedBecause, Transport, Verdict};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::conn::Connection;
use super::dial::fault_of_dial;
use super::handshake::{self, Caller, Failure, Pending, Progress, Role};
use super::receive::Reading;
use super::{INTEREST, Key, LISTENER, Link, Report, TcpRail, deliver, sys, token};
use crate::auth::{Acceptor, Attempts, AuthError, Fingerprint, Station};
use crate::rail::Sink;
use crate::rail::attempts::Ruling;
use crate::random::random;

/// Connections accepted per poll.
const ACCEPTS_MAX: usize = 16;
/// Handshakes carried on per poll (H-7): each may take some 100 us of computing.
const HANDSHAKES_MAX: usize = 8;
/// So long a connection keeps its place in a handshake before another one may have it (H-7).
const PLACE_TIME: Nanos = Nanos::from_millis(100);
/// How long the listener rests when the system has no descriptor for one more connection.
const REST_TIME: Nanos = Nanos::from_millis(100);

impl TcpRail {
    /// Carries on the handshakes on which something happened, then lets new ones in.
    pub(super) fn shake_hands(&mut self, now: Time, sink: &mut dyn Sink) {
        let mut left = HANDSHAKES_MAX;
        while left > 0
            && let Some(key) = self.dirty.pop_front()
        {
            // One that is gone costs nothing.
            let Some(pending) = self.pending.get_mut(key) else { continue };
            pending.is_listed = false;
            let writable = std::mem::take(&mut pending.is_writable);
            left -= 1;
            self.carry_on(key, writable, sink);
        }
        if self.accept_pending {
            self.accept_pending = self.accept(now);
        }
    }

    /// Accepts waiting connections; true: there may be more.
    fn accept(&mut self, now: Time) -> bool {
        for _ in 0..ACCEPTS_MAX {
            if self.is_full_of_young(now) {
                // They wait in the kernel's queue meanwhile.
                return true;
            }
            match rustix::net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => {
                    if let Err(errno) = self.admit(now, fd) {
                        self.counters.note_shortage(&self.options.name, errno);
                        tracing::warn!(rail = %self.options.name, %errno, "incoming connection dropped");
                    }
                }
                Err(Errno::AGAIN) => return false,
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    self.counters.note_shortage(&self.options.name, errno);
                    // It would be reported again and again; an unauthenticated one may have held the
                    // descriptor.
                    if !self.evict_oldest() {
                        self.rest_listener(now);
                        return false;
                    }
                }
                // Errors of the connection to accept, which is gone.
                Err(_) => {}
            }
        }
        true
    }

    /// Whether all places of incoming connections are taken, and none has had [`PLACE_TIME`].
    fn is_full_of_young(&self, now: Time) -> bool {
        if self.accepted < usize::from(self.options.pending_max).max(1) {
            return false;
        }
        let accepted = self.pending.iter().filter(|(_, pending)| pending.role.is_accepting());
        let oldest = accepted.map(|(_, pending)| pending.deadline).min();
        oldest.is_some_and(|deadline| deadline + PLACE_TIME > now + self.options.handshake_timeout)
    }

    fn admit(&mut self, now: Time, fd: OwnedFd) -> Result<(), Errno> {
        sys::set_up(fd.as_fd(), &self.options)?;
        if self.accepted >= usize::from(self.options.pending_max).max(1) {
            self.evict_oldest();
        }
        let me = self.credentials.number(self.me);
        let station = Station { transport: Transport::Tcp, job: self.job, me, rail: self.options.index };
        let acceptor = Acceptor::new(self.credentials.clone(), station, random()?);
        let deadline = now + self.options.handshake_timeout;
        self.add_pending(Pending::new(Some(fd), deadline, Role::Accepting { acceptor }))?;
        Ok(())
    }

    /// Closes the accepted connection that has been unauthenticated for longest (H-7); false: there is none.
    fn evict_oldest(&mut self) -> bool {
        let accepted = self.pending.iter().filter(|(_, pending)| pending.role.is_accepting());
        let Some(oldest) = accepted.min_by_key(|(_, pending)| pending.deadline).map(|(key, _)| key) else {
            return false;
        };
        self.take_pending(oldest);
        self.counters.unauthenticated += 1;
        true
    }

    fn rest_listener(&mut self, now: Time) {
        let nothing = epoll::EventFlags::empty();
        if epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), nothing).is_ok() {
            self.listener_paused_until = Some(now + REST_TIME);
        }
    }

    /// Continues one handshake.
    fn carry_on(&mut self, key: Key, writable: bool, sink: &mut dyn Sink) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        if let Role::Held { caller: (from, its, theirs), .. } = pending.role
            && self.callers.contains_key(&its)
        {
            return self.decide(key, (from, its), theirs, sink);
        }
        match pending.advance(writable, self.scratch.staging()) {
            Progress::Waits => {}
            Progress::Again => self.list(key, false),
            Progress::Authenticated(from, theirs, attempts) => match pending.role {
                Role::Dialling { peer, .. } => {
                    if let Some(known) = self.peers.get_mut(&peer) {
                        known.history.was_up(attempts.attempt);
                    }
                    self.establish(key, peer);
                }
                _ => self.decide(key, (from, theirs), attempts, sink),
            },
            Progress::Crossing => {
                // The peer's own connection is pending, or in our backlog; the deadline stays.
                if let Role::Dialling { peer, .. } = pending.role {
                    pending.role = Role::Crossed { peer };
                    pending.fd = None;
                }
            }
            Progress::Failed(failure) => self.give_up(key, failure),
        }
    }

    /// An acceptor's decision on a dialler that has proved which key is its own (H-5, H-8 to H-10).
    fn decide(&mut self, key: Key, (from, its): (PeerId, Fingerprint), theirs: Attempts, sink: &mut dyn Sink) {
        let peer = match self.credentials.is_named() {
            false => from,
            true => match self.callers.get(&its) {
                Some(&peer) if from == its.number() => peer,
                Some(_) => return self.turn_away(key, RefusedBecause::Proof, AuthError::Impostor { found: its }),
                None => return self.hold(key, (from, its, theirs), sink),
            },
        };
        let known = self.peers.get(&peer).copied();
        if known.is_some_and(|known| known.key != Some(its)) {
            return self.turn_away(key, RefusedBecause::Proof, AuthError::Impostor { found: its });
        }
        let ruling = known.map(|known| {
            let own = match known.link {
                Link::Opening(own) => self.pending.get_mut(own).filter(|own| !own.role.is_crossed()),
                Link::Idle | Link::Up(_) => None,
            };
            let (me, it) = (self.credentials.number(self.me), from);
            known.history.judge(me, it, theirs, own.map(|_| known.attempt))
        });
        let verdict = match ruling {
            None => Verdict::Refused(RefusedBecause::Rank), // H-9
            Some(Ruling::Old) => Verdict::Refused(RefusedBecause::Old),
            Some(Ruling::Crossing) => Verdict::Crossing,
            Some(Ruling::Accept) => Verdict::Accepted,
        };
        if verdict == Verdict::Accepted {
            self.supersede(peer, theirs, sink);
        }
        if self.rule(key, verdict) && verdict == Verdict::Accepted {
            if let Some(Link::Opening(own)) = self.peers.get(&peer).map(|known| known.link) {
                self.take_pending(own);
            }
            self.establish(key, peer);
        } else {
            tracing::debug!(rail = %self.options.name, peer = peer.0, ?verdict, "connection declined");
            self.take_pending(key);
        }
    }

    /// A process that is no peer has proved its key: it waits for an answer, or gets one (H-11).
    fn hold(&mut self, key: Key, caller: Caller, sink: &mut dyn Sink) {
        let (_, found, _) = caller;
        let Some(pending) = self.pending.get_mut(key) else { return };
        let Role::Accepting { acceptor } = &pending.role else { return };
        if !sink.unknown_caller(acceptor.name(), found) {
            return self.turn_away(key, RefusedBecause::Unknown, AuthError::Unknown { found });
        }
        // A placeholder for the time between two lines.
        let role = std::mem::replace(&mut pending.role, Role::Draining { peer: self.me });
        if let Role::Accepting { acceptor } = role {
            pending.role = Role::Held { acceptor, caller };
        }
    }

    /// Refuses a dialler that has proved its key.
    fn turn_away(&mut self, key: Key, because: RefusedBecause, why: AuthError) {
        self.rule(key, Verdict::Refused(because));
        self.give_up(key, Failure::Auth(why));
    }

    /// The callers with this key that wait for an answer.
    fn held(&self, key: &Fingerprint) -> Vec<Key> {
        let is_its = |role: &Role| matches!(role, Role::Held { caller: (_, its, _), .. } if its == key);
        self.pending.iter().filter(|(_, pending)| is_its(&pending.role)).map(|(held, _)| held).collect()
    }

    /// The caller has become a peer: its calls are decided at the next poll.
    pub(super) fn call_in(&mut self, key: &Fingerprint) {
        for held in self.held(key) {
            self.list(held, false);
        }
    }

    /// Refuses a caller's calls.
    pub(super) fn refuse_held(&mut self, key: &Fingerprint) {
        for held in self.held(key) {
            self.turn_away(held, RefusedBecause::Unknown, AuthError::Unknown { found: *key });
        }
    }

    /// Sends an acceptor's verdict; returns whether it could.
    fn rule(&mut self, key: Key, verdict: Verdict) -> bool {
        let Some(Pending { fd: Some(fd), role, .. }) = self.pending.get_mut(key) else { return false };
        let (Role::Accepting { acceptor } | Role::Held { acceptor, .. }) = role else { return false };
        acceptor.ruling(verdict).is_ok_and(|message| handshake::send(fd.as_fd(), &message).is_ok())
    }

    /// A peer's dial is accepted: it has lost or given up the existing connection, if there is one (H-10).
    fn supersede(&mut self, peer: PeerId, theirs: Attempts, sink: &mut dyn Sink) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        known.history.accepted(theirs);
        if let Link::Up(old) = known.link {
            let fault = self.finish(old, sink);
            self.report_down(peer, fault);
        }
    }

    /// Takes the packets that have arrived whole on a connection (L-5), and ends it.
    fn finish(&mut self, key: Key, sink: &mut dyn Sink) -> RailFault {
        let Some(mut connection) = self.connections.remove(key) else { return RailFault::Closed };
        // Earlier reports come first.
        deliver(&mut self.reports, sink);
        let Self { scratch, counters, .. } = self;
        let mut reading = Reading { peer: connection.peer, scratch, sink, counters, happened: 0 };
        let fault = connection.finish(&mut reading);
        sys::abort(connection.fd);
        fault
    }

    /// The rail has no interface any more (L-17): ends everything on it, by rank.
    pub(super) fn end_all(&mut self, fault: RailFault, sink: &mut dyn Sink) {
        tracing::warn!(rail = %self.options.name, local = %self.local, "the interface is down");
        let linked = self.peers.iter().filter(|(_, known)| known.link != Link::Idle);
        let mut linked: Vec<(PeerId, Link)> = linked.map(|(&peer, known)| (peer, known.link)).collect();
        linked.sort_unstable_by_key(|(peer, _)| *peer);
        for (peer, link) in linked {
            match link {
                Link::Up(key) => drop(self.finish(key, sink)),
                Link::Opening(key) => drop(self.take_pending(key)),
                Link::Idle => {}
            }
            self.report_down(peer, fault);
        }
        let left: Vec<Key> = self.pending.iter().map(|(key, _)| key).collect();
        left.into_iter().for_each(|key| drop(self.take_pending(key)));
    }

    /// The connection is a subchannel from here on (L-6).
    fn establish(&mut self, key: Key, peer: PeerId) {
        let Some(fd) = self.take_pending(key).and_then(|pending| pending.fd) else { return };
        let Some(known) = self.peers.get_mut(&peer) else { return };
        let key = self.connections.insert(Connection::new(fd, peer, &self.options));
        let Some(connection) = self.connections.get_mut(key) else { return };
        known.link = Link::Up(key);
        match epoll::modify(&self.epoll, &connection.fd, token(key), INTEREST) {
            Ok(()) => {
                connection.listed = true;
                self.to_serve.push_back(key);
                self.reports.push_back(Report::Up(peer));
            }
            Err(errno) => {
                self.connections.remove(key);
                self.report_down(peer, RailFault::Device { code: errno.raw_os_error() });
            }
        }
    }

    /// A connection that will not be one.
    fn give_up(&mut self, key: Key, failure: Failure) {
        let Some(pending) = self.take_pending(key) else { return };
        if let Failure::Auth(why) = failure {
            if let (Role::Accepting { .. }, Some(fd), Some(refusal)) = (&pending.role, &pending.fd, why.refusal()) {
                // Where it can't be sent, the hang-up has the same meaning.
                let _ = handshake::send(fd.as_fd(), &refusal);
            }
            if !why.is_refusal() {
                self.counters.unauthenticated += 1;
            }
            tracing::warn!(rail = %self.options.name, %why, "handshake failed");
        }
        match pending.role {
            Role::Connecting { peer, .. } | Role::Dialling { peer, .. } | Role::Crossed { peer } => {
                self.report_down(peer, fault_of_dial(failure));
            }
            Role::Accepting { .. } | Role::Held { .. } | Role::Draining { .. } => {}
        }
    }

    /// A dial that the peer's kernel has accepted waits for its process, which may compute for hours; the
    /// kernel reports its end.
    fn queued(&mut self, key: Key) -> Option<PeerId> {
        if self.options.user_timeout_ms == 0 {
            // Nothing would report the end of the peer's host.
            return None;
        }
        let (now, more) = (self.now, self.options.handshake_timeout.max(Nanos(1)));
        let pending = self.pending.get_mut(key)?;
        let Role::Dialling { peer, .. } = pending.role else { return None };
        let silence = pending.fd.as_ref().and_then(|fd| sys::silence(fd.as_fd()).ok());
        silence.is_some_and(|silence| !silence.waits).then(|| {
            pending.deadline = now + more;
            peer
        })
    }

    /// Ends connections past their deadline.
    pub(super) fn expire(&mut self, now: Time) {
        if self.listener_paused_until.is_some_and(|until| until <= now) {
            self.listener_paused_until = None;
            let data = epoll::EventData::new_u64(LISTENER);
            if epoll::modify(&self.epoll, &self.listener, data, epoll::EventFlags::IN).is_err() {
                self.listener_paused_until = Some(now + REST_TIME);
            }
        }
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        loop {
            let due = self.pending.iter().find(|(_, pending)| pending.deadline <= now);
            let Some((key, accepting)) = due.map(|(key, pending)| (key, pending.role.is_accepting())) else { break };
            if let Some(peer) = self.queued(key) {
                self.reports.push_back(Report::Queued(peer));
                continue;
            }
            self.counters.unauthenticated += u64::from(accepting);
            self.give_up(key, Failure::System(Errno::TIMEDOUT));
        }
        self.deadline = self.pending.iter().map(|(_, pending)| pending.deadline).min();
    }
}
