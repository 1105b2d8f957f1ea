//! From an address to a link: names, dials, incoming connections, and which of two that cross is kept.
//!
//! Everything that waits here has a deadline. Unauthenticated connections are bounded by `pending_max`, the
//! others by the number of peers, for a newer one of the same peer takes the place of the older one.

use rerail_core::endpoint::RailFault;
use rerail_core::ids::PeerId;
use rerail_core::time::{Nanos, Time};
use rerail_core::wire::handshake::{RefusedBecause, Transport, Verdict};
use rustix::event::epoll;
use rustix::io::Errno;

use super::connect::{Caller, Failure, Offer, Opened, Opening, Progress};
use super::link::Link;
use super::options::is_host_id;
use super::{EVENTS_MAX, LISTENER, ShmRail, socket};
use crate::auth::{Acceptor, Attempts, Call, Dialler, Fingerprint, Station};
use crate::rail::attempts::{History, Ruling};
use crate::rail::{AddressError, Sink};
use crate::random::random;

/// How long the listener rests when the system has no descriptor for one more connection.
const REST_TIME: Nanos = Nanos::from_millis(100);
/// A peer whose backlog is full is dialled again after this time.
const RETRY_TIME: Nanos = Nanos::from_millis(2);

/// State of a peer, connected or not.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Its listening socket, once known.
    pub socket_name: Option<String>,
    /// Its fingerprint, once known.
    pub key: Option<Fingerprint>,
    /// The core's pending connect: deadline and progress. Reported up or down once.
    pub dial: Option<(Time, Dial)>,
    /// Our newest dial.
    pub attempt: u32,
    pub history: History,
}

/// Progress of a pending connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dial {
    /// The peer's backlog is full, or an earlier connection still flushes: dial again then.
    Retry(Time),
    /// Pending under this name, dialled or accepted.
    Under(u64),
    /// Ours gave way to the peer's, which is coming.
    Crossing,
}

/// The kernel's boot id, which no two running kernels share, and the network namespace, to which abstract
/// names belong (L-8).
pub fn host_id() -> Result<String, Errno> {
    let errno = |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(errno)?;
    let namespace = rustix::fs::stat("/proc/self/ns/net")?.st_ino;
    let id = format!("{}.{namespace:x}", boot_id.trim());
    if is_host_id(&id) { Ok(id) } else { Err(Errno::ILSEQ) }
}

pub(super) fn socket_name(job: u64, me: PeerId, index: u8, suffix: u128) -> String {
    format!("rerail-{job:x}-{}-{index}-{suffix:032x}", me.0)
}

/// Host id and socket name of an address.
pub(super) fn split_address(address: &str) -> Result<(&str, &str), AddressError> {
    let wrong = |why| AddressError { address: address.into(), why };
    let (host, name) = address.split_once('/').ok_or(wrong("no `/` between host id and socket name"))?;
    if !is_host_id(host) {
        return Err(wrong("the host id is empty, too long or has forbidden characters"));
    }
    if !is_host_id(name) {
        return Err(wrong("the socket name is empty, too long or has forbidden characters"));
    }
    Ok((host, name))
}

impl ShmRail {
    fn watch(&mut self, opening: Opening) -> Result<u64, Failure> {
        let token = self.next_token;
        self.next_token += 1;
        epoll::add(&self.epoll, &opening.socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
            .map_err(|errno| Failure::System(errno.raw_os_error()))?;
        self.openings.insert(token, opening);
        Ok(token)
    }

    /// Dials a peer whose connect is pending.
    pub(super) fn dial(&mut self, now: Time, peer: PeerId) {
        let later = Dial::Retry(now + RETRY_TIME);
        // The peer would end an earlier connection that still flushes.
        if self.closing.iter().any(|(link, _)| link.peer == peer) {
            return self.set_dial(peer, later);
        }
        let Some(known) = self.peers.get_mut(&peer) else { return };
        let (Some((deadline, _)), Some(name), Some(key)) = (known.dial, known.socket_name.as_deref(), known.key) else {
            return;
        };
        // A number is used once, even if the dial fails (H-10).
        self.attempts += 1;
        known.attempt = self.attempts;
        let (job, rail, attempts) = (self.job, self.options.index, known.history.dial(known.attempt));
        let (from, to) = self.credentials.numbers((self.me, peer), &key);
        let call = Call { transport: Transport::Shm, job, from, to, rail, attempts };
        let dialled = match (socket::dial(name), random()) {
            (Err(Errno::AGAIN), _) => return self.set_dial(peer, later),
            (Err(Errno::CONNREFUSED), _) => Err(Failure::Gone),
            (Err(errno), _) | (_, Err(errno)) => Err(Failure::System(errno.raw_os_error())),
            (Ok(socket), Ok(fresh)) => {
                let dialler = Dialler::new(&self.credentials, call, key, fresh);
                Opening::dialling(socket, peer, dialler, deadline).and_then(|opening| self.watch(opening))
            }
        };
        match dialled {
            Ok(token) => self.set_dial(peer, Dial::Under(token)),
            Err(failure) => {
                self.note_shortage(failure);
                self.give_up(peer, failure.fault());
            }
        }
    }

    fn set_dial(&mut self, peer: PeerId, to: Dial) {
        if let Some((_, dial)) = self.peers.get_mut(&peer).and_then(|known| known.dial.as_mut()) {
            *dial = to;
        }
    }

    /// A pending connect has failed.
    fn give_up(&mut self, peer: PeerId, fault: RailFault) {
        if self.peers.get_mut(&peer).is_some_and(|known| known.dial.take().is_some()) {
            self.failed.push_back((peer, fault));
        }
    }

    fn dial_of(&self, peer: PeerId) -> Option<Dial> {
        self.peers.get(&peer)?.dial.map(|(_, dial)| dial)
    }

    pub(super) fn retry_dials(&mut self, now: Time) -> usize {
        let again: Vec<PeerId> = self
            .peers
            .iter()
            .filter(|(_, known)| matches!(known.dial, Some((_, Dial::Retry(at))) if at <= now))
            .map(|(&peer, _)| peer)
            .collect();
        again.iter().for_each(|&peer| self.dial(now, peer));
        again.len()
    }

    /// A dial that the system has taken waits for the peer's process, which may compute for hours; the socket
    /// reports its end.
    fn put_off(&mut self, now: Time, sink: &mut dyn Sink) {
        let more = now + self.options.handshake_timeout;
        for (&peer, known) in &mut self.peers {
            let Some((deadline, dial)) = known.dial.as_mut().filter(|(deadline, _)| *deadline <= now) else { continue };
            match *dial {
                Dial::Retry(_) => {}
                Dial::Under(token) => match self.openings.get_mut(&token).filter(|opening| opening.dialled) {
                    Some(opening) => opening.deadline = more,
                    None => continue,
                },
                Dial::Crossing => continue,
            }
            *deadline = more;
            sink.queued(peer);
        }
    }

    /// Gives up connections past their deadline.
    pub(super) fn expire(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.put_off(now, sink);
        if self.listener_paused_until.is_some_and(|until| until <= now) {
            self.listener_paused_until = None;
            self.listen(now, epoll::EventFlags::IN);
        }
        let late: Vec<u64> =
            self.openings.iter().filter(|(_, opening)| opening.deadline <= now).map(|(&token, _)| token).collect();
        for &token in &late {
            // An incoming connection that never proved anything is a stranger; one that we dialled is below.
            if let Some(opening) = self.openings.remove(&token)
                && opening.peer.is_none()
            {
                self.counters.unauthenticated += 1;
            }
        }
        let missed: Vec<PeerId> = self
            .peers
            .iter()
            .filter(|(_, known)| known.dial.is_some_and(|(deadline, _)| deadline <= now))
            .map(|(&peer, _)| peer)
            .collect();
        missed.iter().for_each(|&peer| self.give_up(peer, RailFault::TimedOut));
        late.len() + missed.len()
    }

    /// Takes incoming connections, a bounded number.
    pub(super) fn accept(&mut self, now: Time) -> usize {
        let mut count = 0;
        while count < EVENTS_MAX {
            let socket = match socket::accept(&self.listener) {
                Ok(socket) => socket,
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    self.counters.note_shortage(&self.name, errno);
                    // It would be reported again and again; a stranger may have held the descriptor.
                    if self.evict_oldest() {
                        continue;
                    }
                    self.listen(now, epoll::EventFlags::empty());
                    break;
                }
                Err(_) => break,
            };
            count += 1;
            let Ok(fresh) = random() else { continue };
            if self.unknown_callers().count() >= self.options.pending_max {
                self.evict_oldest();
            }
            let me = self.credentials.number(self.me);
            let station = Station { transport: Transport::Shm, job: self.job, me, rail: self.options.index };
            let acceptor = Acceptor::new(self.credentials.clone(), station, fresh);
            let opening = Opening::accepting(socket, acceptor, now + self.options.handshake_timeout);
            // Where it can't be watched it is closed; no other answer is possible.
            if let Err(failure) = self.watch(opening) {
                self.note_shortage(failure);
            }
        }
        count
    }

    /// Incoming connections not authenticated yet, the oldest first.
    fn unknown_callers(&self) -> impl Iterator<Item = u64> {
        self.openings.iter().filter(|(_, opening)| opening.peer.is_none()).map(|(&token, _)| token)
    }

    /// Closes the oldest stranger; `false`: there is none.
    fn evict_oldest(&mut self) -> bool {
        let Some(oldest) = self.unknown_callers().next() else { return false };
        self.openings.remove(&oldest);
        self.counters.unauthenticated += 1;
        true
    }

    /// Has the listener's connections reported, or lets it rest for a while: with no flags, or where the
    /// system refuses.
    fn listen(&mut self, now: Time, flags: epoll::EventFlags) {
        let set = epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), flags);
        if flags.is_empty() || set.is_err() {
            self.listener_paused_until = Some(now + REST_TIME);
        }
    }

    /// Moves an opening on.
    pub(super) fn advance(&mut self, token: u64, sink: &mut dyn Sink) -> usize {
        let ring = self.options.ring();
        let Some(mut opening) = self.openings.remove(&token) else { return 0 };
        self.counters.system_calls += 1;
        let progress = opening.step(Offer { ring, single_copy: self.options.single_copy });
        if opening.dialled
            && (opening.is_proved() || matches!(progress, Progress::Open(_)))
            && let Some(known) = opening.peer.and_then(|peer| self.peers.get_mut(&peer))
        {
            known.history.was_up(known.attempt);
        }
        match progress {
            Progress::Waiting => {
                self.openings.insert(token, opening);
                return 0;
            }
            Progress::Proved(from, key, attempts) => self.rule(token, opening, (from, key, attempts), sink),
            Progress::Crossing => {
                if let Some(peer) = opening.peer
                    && self.dial_of(peer) == Some(Dial::Under(token))
                {
                    self.set_dial(peer, Dial::Crossing);
                }
            }
            Progress::Open(opened) => {
                let Some(peer) = opening.peer else { return 0 };
                let Opened { rings, seal, reach } = *opened;
                if let Some(known) = self.peers.get_mut(&peer) {
                    known.dial = None;
                }
                tracing::debug!(rail = %self.name, peer = peer.0, dialled = opening.dialled, "subchannel up");
                let mut link = Link::new(peer, token, opening.socket, rings, &self.options);
                link.join_memory(seal, reach, self.options.mapped_bytes_max);
                self.insert_link(link);
                sink.up(peer);
                if let Some(denied) = reach.denied {
                    tracing::debug!(rail = %self.name, peer = peer.0, %denied, remedy = denied.remedy(), "no single copy");
                    sink.no_remote_access(peer);
                }
            }
            Progress::Failed(failure) => self.fail(token, opening, failure),
        }
        1
    }

    /// Answers a process that has proved its key.
    fn rule(&mut self, token: u64, mut opening: Opening, caller: Caller, sink: &mut dyn Sink) {
        let (from, key, attempts) = caller;
        let peer = match self.credentials.is_named() {
            false => from,
            true => match self.callers.get(&key) {
                Some(&peer) if from == key.number() => peer,
                // H-11
                None if opening.held.is_some() || sink.unknown_caller(opening.caller_name(), key) => {
                    opening.held = Some(caller);
                    self.openings.insert(token, opening);
                    return;
                }
                known => {
                    self.counters.unauthenticated += 1;
                    let because = if known.is_some() { RefusedBecause::Proof } else { RefusedBecause::Unknown };
                    return opening.refuse(Verdict::Refused(because));
                }
            },
        };
        match self.decide(peer, from, key, attempts, sink) {
            Verdict::Accepted => match opening.accept(peer, self.options.ring()) {
                Ok(()) => {
                    self.openings.insert(token, opening);
                    self.set_dial(peer, Dial::Under(token));
                }
                Err(failure) => {
                    self.set_dial(peer, Dial::Under(token));
                    self.fail(token, opening, failure);
                }
            },
            verdict => opening.refuse(verdict),
        }
    }

    /// Whether a caller that waits for an answer is a peer now.
    fn is_held_peer(&self, opening: &Opening) -> bool {
        opening.held.is_some_and(|(_, key, _)| self.callers.contains_key(&key))
    }

    /// Whether one of them is.
    pub(super) fn has_held_peer(&self) -> bool {
        self.openings.values().any(|opening| self.is_held_peer(opening))
    }

    /// Answers the callers that have waited and are peers now (H-11).
    pub(super) fn answer_held(&mut self, sink: &mut dyn Sink) -> usize {
        let due = self.openings.iter().filter(|(_, opening)| self.is_held_peer(opening));
        let due: Vec<u64> = due.map(|(&token, _)| token).collect();
        for token in &due {
            if let Some(mut opening) = self.openings.remove(token)
                && let Some(caller) = opening.held.take()
            {
                self.rule(*token, opening, caller, sink);
            }
        }
        due.len()
    }

    /// Refuses the calls of a process that is no peer (H-11).
    pub(super) fn refuse_held(&mut self, key: &Fingerprint) {
        let counters = &mut self.counters;
        self.openings.retain(|_, opening| {
            let is_its = opening.held.is_some_and(|(_, its, _)| its == *key);
            if is_its {
                counters.unauthenticated += 1;
                opening.refuse(Verdict::Refused(RefusedBecause::Unknown));
            }
            !is_its
        });
    }

    fn note_shortage(&mut self, failure: Failure) {
        if let Failure::System(code) = failure {
            self.counters.note_shortage(&self.name, Errno::from_raw_os_error(code));
        }
    }

    fn fail(&mut self, token: u64, opening: Opening, failure: Failure) {
        self.note_shortage(failure);
        match failure {
            Failure::Unauthenticated => self.counters.unauthenticated += 1,
            Failure::Corrupt => self.counters.corrupt += 1,
            Failure::SlotBytes { ours, theirs } => tracing::warn!(
                rail = %self.name, peer = ?opening.peer, ours, theirs,
                "all processes of a host must have slots of one size in their rings"
            ),
            Failure::Refused | Failure::Gone | Failure::Closed | Failure::System(_) => {}
        }
        tracing::debug!(rail = %self.name, peer = ?opening.peer, ?failure, "connection failed");
        if let Some(peer) = opening.peer
            && self.dial_of(peer) == Some(Dial::Under(token))
        {
            self.give_up(peer, failure.fault());
        }
    }

    /// Whether to keep a connection that a process has dialled as `peer` (H-5, H-8, H-10).
    fn decide(
        &mut self,
        peer: PeerId,
        from: PeerId,
        key: Fingerprint,
        theirs: Attempts,
        sink: &mut dyn Sink,
    ) -> Verdict {
        if peer.0 >= self.options.peers_max {
            return Verdict::Refused(RefusedBecause::Rank); // H-9
        }
        if self.peers.get(&peer).and_then(|known| known.key) != Some(key) {
            tracing::warn!(rail = %self.name, peer = peer.0, "another process has called in the peer's name");
            self.counters.unauthenticated += 1;
            return Verdict::Refused(RefusedBecause::Proof);
        }
        let mut of_peer = self.openings.values().filter(|opening| opening.peer == Some(peer));
        let in_flight = of_peer.any(|opening| opening.dialled && !opening.is_proved());
        let known = self.peers.entry(peer).or_default();
        match known.history.judge(self.credentials.number(self.me), from, theirs, in_flight.then_some(known.attempt)) {
            Ruling::Old => return Verdict::Refused(RefusedBecause::Old),
            Ruling::Crossing => return Verdict::Crossing,
            Ruling::Accept => known.history.accepted(theirs),
        }
        if let Some(index) = self.link_index(peer) {
            // The peer has lost or given up its end: messages left in the ring come first.
            self.finish(index, sink);
        }
        self.openings.retain(|_, opening| opening.peer != Some(peer));
        Verdict::Accepted
    }

    /// Takes the messages left by a peer whose end is gone, then ends the link (L-14).
    fn finish(&mut self, index: usize, sink: &mut dyn Sink) {
        let cells = self.options.cells;
        let link = &mut self.links[index];
        link.end(cells);
        let drained = link.receive(cells + 1, sink, &mut self.pieces, &mut self.counters);
        let fault = drained.err().unwrap_or(RailFault::Closed);
        self.down(index, fault, sink);
    }
}
