//! TCP rails: one per local address, one connection per peer.
//!
//! A connection is a subchannel once both sides have proved that they belong to the job (`crate::auth`);
//! until then no byte behind the handshake is read. Payload is sent from its own memory and received straight
//! into its place, see `send` and `receive`. Everything is non-blocking; a connection's failure concerns its
//! peer only.
//!
//! Events: one epoll instance holds all sockets, edge-triggered but for the listener. An edge is remembered
//! in the connection until a call has found the socket empty (or full), so interest never has to be changed
//! by a system call of its own, and a connection that stops at its limit for one poll is simply served again
//! in the next. A connection on which data arrived lately is read without calling epoll first, because the
//! read itself is cheaper where few connections are active; epoll is then called at every few polls only. A
//! rail without events for a while calls it ever more seldom, in proportion to that while and up to
//! `EPOLL_PAUSE_MAX`: beside a busy rail it costs no system call per poll. A blocking driver waits on the
//! epoll descriptor.
//!
//! Bounds: connections in handshake ([`TcpOptions::pending_max`] accepted ones), bytes read from each of
//! them, posts per peer, calls and bytes per peer and poll.

mod accept;
mod conn;
mod dial;
mod handshake;
mod interfaces;
mod options;
mod receive;
mod send;
mod sys;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::BuildHasherDefault;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rerail_core::endpoint::{PostKind, PostStatus, RailFault};
use rerail_core::ids::PeerId;
use rerail_core::rail::{Caps, RailFacts, RailKind};
use rerail_core::time::{Nanos, Time};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt};
use slotmap::{DefaultKey as Key, Key as _, KeyData, SlotMap};

pub use interfaces::{Interface, interfaces};
pub use options::{TcpError, TcpOptions};

use self::conn::{Connection, PeerAcked, Served};
use self::handshake::{Pending, Role};
use self::receive::{Reading, Scratch};
use self::watch::{Turn, Watch};
use super::attempts::History;
use super::reports::{Report, deliver};
use super::{AddressError, Outgoing, Rail, RailCounters, RailUsage, Sink, Spread};
use crate::auth::{Credentials, Fingerprint, PeerKey, PublicKey};

/// Events taken from epoll at once.
const EVENTS_MAX: usize = 64;
/// Connections that are read without an event, because something arrived on them lately.
const HOT_MAX: usize = 4;
/// Polls after which epoll is called even if there are hot connections.
const POLLS_WITHOUT_EPOLL_MAX: u8 = 8;
/// The longest time between two polls that call epoll, after a long time without events.
const EPOLL_PAUSE_MAX: Nanos = Nanos(20_000);
/// Epoll is called again after this part of the time without events: the next event is then noticed later by
/// that part of its own delay at most.
const EPOLL_PART: u64 = 8;
/// How far ahead a connection is fed. The kernel cuts packets of about a millisecond's bytes and keeps two of
/// them below (`tcp_tso_autosize` and `tcp_small_queue_check` in its net/ipv4/tcp_output.c), so the unsent
/// bytes shrink in such steps.
const FEED_TIME: Nanos = Nanos(2_000_000);
/// The interval of checks on posts that the kernel has taken, while nothing else causes polls.
const WAIT_PAUSE: Nanos = Nanos(200_000);
/// Connections that the system holds until they are accepted.
const BACKLOG: i32 = 1024;
/// Looks at what the kernels owe in the time after which a silent one is given up.
const SILENCE_CHECKS: u64 = 4;
/// How long a disconnected peer may take to read the last bytes.
const DRAIN_TIME: Nanos = Nanos::from_millis(1_000);

/// The epoll events of a connection.
const INTEREST: epoll::EventFlags =
    epoll::EventFlags::IN.union(epoll::EventFlags::OUT).union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ET);
/// The event of the listener; no key has this number.
const LISTENER: u64 = u64::MAX;
/// The event of the watched interface; no key has this number either.
const WATCH: u64 = u64::MAX - 1;
/// Set in the events of connections that are not authenticated; indices are below it.
const PENDING: u64 = 1 << 31;

/// A TCP rail.
pub struct TcpRail {
    options: TcpOptions,
    credentials: Credentials,
    job: u64,
    me: PeerId,
    local: SocketAddr,
    listener: OwnedFd,
    epoll: OwnedFd,
    peers: HashMap<PeerId, Peer, BuildHasherDefault<Spread>>,
    /// The peers by their keys.
    callers: HashMap<Fingerprint, PeerId>,
    /// The newest dial to any peer.
    attempts: u32,
    pending: SlotMap<Key, Pending>,
    connections: SlotMap<Key, Connection>,
    /// How many of `pending` are accepted ones.
    accepted: usize,
    /// The earliest deadline of `pending`, or an earlier time.
    deadline: Option<Time>,
    /// The listener is not listened to until then: the system had no descriptor for one more.
    listener_paused_until: Option<Time>,
    /// The listener has connections for us.
    accept_pending: bool,
    watch: Option<Watch>,
    /// Something has changed about the machine's interfaces.
    interfaces_changed: bool,
    /// Connections in handshake on which something happened, each once.
    dirty: VecDeque<Key>,
    /// Connections to serve at the next poll.
    to_serve: VecDeque<Key>,
    /// Those with posts of a batch that is not over, some twice.
    to_push: Vec<Key>,
    /// Some of these have posts that the kernel has taken and the wire has not.
    waiting: bool,
    /// Reports for the sink at the next poll, in order.
    reports: VecDeque<Report>,
    /// Polls, modulo 2^32.
    polls: u32,
    polls_without_epoll: u8,
    /// The next poll calls epoll.
    ask_now: bool,
    /// A connection waits for room in its socket.
    is_full: bool,
    /// When the kernel was last queried for what it waits for.
    checked_at: Time,
    /// Something was sent since, or was not acknowledged then.
    is_ack_pending: bool,
    /// The time of the last epoll call.
    epoll_called_at: Time,
    /// When something happened last.
    busy_at: Time,
    scratch: Scratch,
    counters: RailCounters,
    /// The time of the last call that brought one.
    now: Time,
}

impl fmt::Debug for TcpRail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, job, me, local, counters, .. } = self;
        let mut shown = f.debug_struct("TcpRail");
        shown.field("name", &options.name).field("job", job).field("me", me).field("local", local);
        shown.field("counters", counters).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    address: SocketAddr,
    /// Its fingerprint, once known.
    key: Option<Fingerprint>,
    link: Link,
    /// Our newest dial.
    attempt: u32,
    history: History,
}

/// The subchannel to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Idle,
    /// In `pending`: dialled by us, or awaited.
    Opening(Key),
    /// In `connections`.
    Up(Key),
}

fn token(key: Key) -> epoll::EventData {
    epoll::EventData::new_u64(key.data().as_ffi())
}

fn pending_token(key: Key) -> epoll::EventData {
    epoll::EventData::new_u64(key.data().as_ffi() | PENDING)
}

impl TcpRail {
    /// Bytes of a peer whose address is known, in tables that are at least half full.
    pub const PEER_BYTES: u64 = 2 * (size_of::<(PeerId, Peer)>() + size_of::<(Fingerprint, PeerId)>() + 2) as u64;
    /// Bytes of the rail itself, beside peers and connections.
    pub const RAIL_BYTES: u64 = (size_of::<TcpRail>() + receive::STAGING_BYTES) as u64;

    /// The most bytes of a connection, apart from the kernel's.
    pub fn connection_bytes(options: &TcpOptions) -> u64 {
        2 * size_of::<Connection>() as u64 + u64::from(options.posts_max) * send::POST_BYTES
    }

    /// Listens on `options.local` for processes of job `job`, with these `credentials`; `me` is this
    /// process's rank.
    ///
    /// Errors: the address is unspecified (`EADDRNOTAVAIL`), or the system's.
    pub fn open(options: TcpOptions, credentials: Credentials, job: u64, me: PeerId) -> Result<Self, TcpError> {
        let wanted = SocketAddr::new(options.local, options.port);
        let failed = |what| move |errno| TcpError { what, local: wanted, errno };
        if options.local.is_unspecified() {
            // It would be published, and names no host.
            return Err(failed("address")(Errno::ADDRNOTAVAIL));
        }
        let listener = sys::socket(wanted, &options).map_err(failed("socket"))?;
        if options.port != 0 {
            sockopt::set_socket_reuseaddr(&listener, true).map_err(failed("SO_REUSEADDR"))?;
        }
        rustix::net::bind(&listener, &wanted).map_err(failed("bind"))?;
        rustix::net::listen(&listener, BACKLOG).map_err(failed("listen"))?;
        let local =
            rustix::net::getsockname(&listener).and_then(SocketAddr::try_from).map_err(failed("getsockname"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)
            .map_err(failed("epoll_ctl"))?;
        let watch = if options.watch { Watch::open(local.ip()) } else { None };
        let watch = watch
            .filter(|watch| epoll::add(&epoll, watch, epoll::EventData::new_u64(WATCH), epoll::EventFlags::IN).is_ok());
        Ok(TcpRail {
            options,
            credentials,
            job,
            me,
            local,
            listener,
            epoll,
            peers: HashMap::default(),
            callers: HashMap::new(),
            attempts: 0,
            pending: SlotMap::default(),
            connections: SlotMap::default(),
            accepted: 0,
            deadline: None,
            listener_paused_until: None,
            accept_pending: false,
            watch,
            interfaces_changed: false,
            dirty: VecDeque::new(),
            to_serve: VecDeque::new(),
            to_push: Vec::new(),
            waiting: false,
            reports: VecDeque::new(),
            polls: 0,
            polls_without_epoll: 0,
            ask_now: false,
            is_full: false,
            checked_at: Time(0),
            is_ack_pending: false,
            epoll_called_at: Time(0),
            busy_at: Time(0),
            scratch: Scratch::new(),
            counters: RailCounters::default(),
            now: Time(0),
        })
    }

    /// Sets this process's rank and job, where they were not known when the rail was opened; to be called
    /// before the first dial and the first poll. Peers that dialled meanwhile wait in the kernel's queue.
    pub fn identify(&mut self, credentials: Credentials, job: u64, me: PeerId) {
        debug_assert!(self.peers.is_empty() && self.pending.is_empty(), "a rail that has met peers has an identity");
        (self.credentials, self.job, self.me) = (credentials, job, me);
    }

    /// Takes epoll's events, and notes each with its connection.
    fn harvest(&mut self) {
        self.counters.system_calls += 1;
        (self.polls_without_epoll, self.ask_now) = (0, false);
        self.epoll_called_at = self.now;
        let mut events = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&Timespec::default())) else {
            // Interrupted by a signal: the events are still there at the next poll.
            return;
        };
        if events.len() == EVENTS_MAX {
            self.call_epoll_next();
        }
        for event in events {
            let (data, flags) = (event.data.u64(), event.flags);
            let end = flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            if data == LISTENER {
                self.accept_pending = true;
            } else if data == WATCH {
                self.interfaces_changed = true;
            } else if data & PENDING != 0 {
                let writable = end || flags.contains(epoll::EventFlags::OUT);
                self.list(KeyData::from_ffi(data & !PENDING).into(), writable);
            } else if let Some(connection) = self.connections.get_mut(KeyData::from_ffi(data).into()) {
                connection.ready.read |= end || flags.contains(epoll::EventFlags::IN);
                connection.ready.write |= flags.contains(epoll::EventFlags::OUT) && !connection.is_broken();
                connection.ready.end |= end;
                if connection.has_work() && !connection.listed {
                    connection.listed = true;
                    self.to_serve.push_back(KeyData::from_ffi(data).into());
                }
            }
        }
    }

    /// Something happened on a handshake, or its socket is writable: it is carried on in its turn.
    fn list(&mut self, key: Key, writable: bool) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        pending.is_writable |= writable;
        if !std::mem::replace(&mut pending.is_listed, true) {
            self.dirty.push_back(key);
        }
    }

    /// Whether this poll calls epoll.
    fn is_epoll_due(&self, now: Time) -> bool {
        let quiet = now.0.saturating_sub(self.busy_at.0);
        let pause = match self.to_serve.len() {
            0 => Nanos((quiet / EPOLL_PART).min(EPOLL_PAUSE_MAX.0)),
            // All are read without an event, and none waits for room: only new ones need it.
            all if all == self.connections.len() && !self.is_full => EPOLL_PAUSE_MAX,
            _ => return self.polls_without_epoll > POLLS_WITHOUT_EPOLL_MAX,
        };
        let has_events = self.interfaces_changed | self.accept_pending | !self.dirty.is_empty();
        has_events | self.ask_now || self.epoll_called_at + pause <= now
    }

    /// Calls epoll, and does all but serving connections.
    #[inline(never)]
    fn attend(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.harvest();
        if std::mem::take(&mut self.interfaces_changed) {
            match self.watch.as_mut().and_then(Watch::poll_link_state) {
                Some(Turn::Down) => self.end_all(RailFault::Device { code: Errno::NETDOWN.raw_os_error() }, sink),
                Some(Turn::Up) => sink.back(),
                None => {}
            }
        }
        if self.accept_pending || !self.dirty.is_empty() {
            self.shake_hands(now, sink);
            self.call_epoll_next();
        }
        self.expire(now);
        self.check_silence(now);
        // Before what the connections bring.
        deliver(&mut self.reports, sink)
    }

    /// The next poll calls epoll, however few connections are active.
    fn call_epoll_next(&mut self) {
        (self.polls_without_epoll, self.ask_now) = (POLLS_WITHOUT_EPOLL_MAX, true);
        self.busy_at = self.now;
    }

    /// Serves every listed connection once.
    fn serve(&mut self, sink: &mut dyn Sink) -> usize {
        let (mut happened, mut hot) = (0, 0);
        (self.waiting, self.is_full) = (false, false);
        for _ in 0..self.to_serve.len() {
            let Some(key) = self.to_serve.pop_front() else { break };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let peer = connection.peer;
            let Self { scratch, counters, reports, .. } = self;
            let mut reading = Reading { peer, scratch, sink: &mut *sink, counters, happened: 0 };
            let done = |id| reports.push_back(Report::Completed(peer, id, PostStatus::Done));
            let served = connection.serve(&mut reading, done);
            happened += reading.happened;
            self.is_full |= connection.is_full();
            if let Served::Over(fault) = served {
                self.connections.remove(key);
                self.report_down(peer, fault);
            } else if connection.has_work() {
                // The other connections must not wait until this one is drained.
                self.to_serve.push_back(key);
                self.call_epoll_next();
            } else if connection.is_waiting() {
                self.waiting = true;
                self.to_serve.push_back(key);
            } else if connection.hot_polls > 0 && hot < HOT_MAX {
                hot += 1;
                self.to_serve.push_back(key);
            } else {
                connection.listed = false;
                if std::mem::take(&mut connection.hot_polls) > 0 {
                    // Too many are active: epoll is the cheaper question.
                    self.call_epoll_next();
                }
            }
        }
        happened
    }

    /// Ends connections whose other side's kernel is silent (L-17).
    fn check_silence(&mut self, now: Time) {
        let longest = Nanos::from_millis(self.options.user_timeout_ms.into());
        let before = self.checked_at;
        if longest.0 == 0 || now - before < Nanos(longest.0 / SILENCE_CHECKS) {
            return;
        }
        self.checked_at = now;
        let mut silent = Vec::new();
        self.is_ack_pending = false;
        for (key, connection) in self.connections.iter_mut() {
            let acked = connection.listen(now, before, longest);
            self.is_ack_pending |= acked != PeerAcked::All;
            if acked == PeerAcked::Nothing {
                silent.push((key, connection.peer));
            }
        }
        for (key, peer) in silent {
            if let Some(connection) = self.connections.remove(key) {
                sys::abort(connection.fd);
            }
            self.report_down(peer, RailFault::TimedOut);
        }
    }

    /// L-5
    fn report_down(&mut self, peer: PeerId, fault: RailFault) {
        tracing::debug!(rail = %self.options.name, peer = peer.0, ?fault, "subchannel down");
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.link = Link::Idle;
        }
        self.reports.push_back(Report::Down(peer, fault));
    }

    /// Writes as much as possible now, and lets the peer read it undisturbed (L-7).
    fn close(&mut self, mut connection: Connection) {
        connection.flush(&mut self.scratch, &mut self.counters, |_| {});
        let shut = rustix::net::shutdown(&connection.fd, Shutdown::Write);
        // One for every peer, and a bound on repeated ones.
        let draining_max = self.peers.len().max(self.options.pending_max.into());
        let draining = self.pending.iter().filter(|(_, pending)| pending.role.is_draining()).count();
        if shut.is_err() || !connection.is_flushed() || draining >= draining_max {
            return;
        }
        let (deadline, peer) = (self.now + DRAIN_TIME, connection.peer);
        // Where it can't be waited for, it is closed now.
        let _ = self.add_pending(Pending::new(Some(connection.fd), deadline, Role::Draining { peer }));
    }

    /// Takes a post. `SMALL`: a short message; returns whether that is over.
    #[inline(always)]
    fn take_post<const SMALL: bool>(&mut self, outgoing: &Outgoing<'_>) -> bool {
        let peer = outgoing.peer;
        if outgoing.kind != PostKind::Send {
            debug_assert!(false, "this rail has no remote writes or reads");
            self.reports.push_back(Report::Completed(peer, outgoing.id, PostStatus::Failed));
            return false;
        }
        // Not up: down is reported, or about to be, and the post with it.
        let Some(Peer { link: Link::Up(key), .. }) = self.peers.get(&peer).copied() else { return false };
        let Self { connections, scratch, counters, reports, .. } = self;
        let Some(connection) = connections.get_mut(key) else { return false };
        self.busy_at = self.now;
        self.is_ack_pending = true;
        let is_quiet = SMALL && connection.is_next_quiet(self.polls);
        let mut is_taken = false;
        let done = |id| match is_quiet && id == outgoing.id {
            true => is_taken = true,
            false => reports.push_back(Report::Completed(peer, id, PostStatus::Done)),
        };
        connection.post::<SMALL>(outgoing, scratch, counters, done);
        if connection.holds_back() {
            self.to_push.push(key);
        } else {
            self.note_posted(key);
        }
        is_taken
    }

    /// Posts were handed to the system, or wait until it has room.
    #[inline(always)]
    fn note_posted(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let waits = connection.is_waiting();
        self.waiting |= waits;
        self.is_full |= connection.is_full();
        if (waits || connection.has_work()) && !connection.listed {
            connection.listed = true;
            self.to_serve.push_back(key);
        }
    }

    /// The core has finished with a peer: nothing of it is reported any more. Its connection, if there is
    /// one.
    fn unlink(&mut self, peer: PeerId) -> Option<Connection> {
        self.reports.retain(|report| report.peer() != peer);
        match std::mem::replace(&mut self.peers.get_mut(&peer)?.link, Link::Idle) {
            Link::Idle => None,
            Link::Opening(key) => {
                self.take_pending(key);
                None
            }
            Link::Up(key) => self.connections.remove(key),
        }
    }
}

impl Rail for TcpRail {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn facts(&self) -> RailFacts {
        RailFacts {
            kind: RailKind::Tcp,
            caps: Caps::default(),
            eager_bytes_max: self.options.eager_bytes_max,
            segment_bytes_max: self.options.segment_bytes,
            posts_max: self.options.posts_max,
            bytes_per_second: self.options.bytes_per_second,
            place: self.options.place,
            numa_distance: self.options.numa_distance,
            feed_time_min: if self.options.unsent_bytes > 0 { FEED_TIME } else { Nanos(0) },
            ..RailFacts::UNKNOWN
        }
    }

    fn address(&self) -> String {
        self.local.to_string()
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        let wrong = |why| AddressError { address: address.to_owned(), why };
        let there: SocketAddr = address.parse().map_err(|_| wrong("not an IP address and port"))?;
        if there.port() == 0 {
            return Err(wrong("port 0"));
        }
        if there.ip().is_unspecified() || there.ip().is_multicast() {
            return Err(wrong("no host's address"));
        }
        // There is no path between families, nor out of this machine from a loopback address.
        let same = there.is_ipv4() == self.local.is_ipv4() && there.ip().is_loopback() == self.local.ip().is_loopback();
        if peer == self.me || !same {
            return Ok(false);
        }
        let new = Peer { address: there, key: None, link: Link::Idle, attempt: 0, history: History::default() };
        self.peers.entry(peer).or_insert(new).address = there;
        Ok(true)
    }

    fn trust(&mut self, peer: PeerId, key: &PeerKey) {
        if let Some(known) = self.peers.get_mut(&peer) {
            let key = key.fingerprint();
            known.key = Some(key);
            self.callers.insert(key, peer);
            self.call_in(&key);
        }
    }

    fn refuse(&mut self, key: &Fingerprint) {
        self.refuse_held(key);
    }

    fn forget_peer(&mut self, peer: PeerId) {
        // What drains holds no memory of the caller, and ends by itself: BYE may be in it (L-7).
        if let Some(connection) = self.unlink(peer) {
            sys::abort(connection.fd);
        }
        if let Some(key) = self.peers.remove(&peer).and_then(|known| known.key) {
            self.callers.remove(&key);
        }
    }

    fn public_key(&self) -> Option<PublicKey> {
        Some(self.credentials.public())
    }

    fn connect(&mut self, now: Time, peer: PeerId) {
        self.now = now;
        self.dial(now, peer);
    }

    fn disconnect(&mut self, peer: PeerId) {
        if let Some(connection) = self.unlink(peer) {
            self.close(connection);
        }
    }

    // L-15
    fn abort(&mut self, peer: PeerId) {
        if let Some(connection) = self.unlink(peer) {
            sys::abort(connection.fd);
        }
        // The rest of an earlier disconnect.
        let left = |role: &Role| matches!(role, Role::Draining { peer: of } if *of == peer);
        let left: Vec<Key> =
            self.pending.iter().filter(|(_, pending)| left(&pending.role)).map(|(key, _)| key).collect();
        for key in left {
            if let Some(fd) = self.take_pending(key).and_then(|pending| pending.fd) {
                sys::abort(fd);
            }
        }
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        self.take_post::<false>(&outgoing);
    }

    fn push(&mut self) {
        while let Some(key) = self.to_push.pop() {
            let Self { connections, scratch, counters, reports, .. } = self;
            let Some(connection) = connections.get_mut(key).filter(|connection| connection.holds_back()) else {
                continue;
            };
            let peer = connection.peer;
            let done = |id| reports.push_back(Report::Completed(peer, id, PostStatus::Done));
            connection.flush(scratch, counters, done);
            self.note_posted(key);
        }
    }

    unsafe fn post_small(&mut self, outgoing: Outgoing<'_>) -> bool {
        self.take_post::<true>(&outgoing)
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.now = now;
        self.polls = self.polls.wrapping_add(1);
        self.push();
        let mut count = if self.is_epoll_due(now) { self.attend(now, sink) } else { 0 };
        if !self.to_serve.is_empty() {
            self.polls_without_epoll = self.polls_without_epoll.saturating_add(1);
            count += self.serve(sink);
        }
        count += deliver(&mut self.reports, sink);
        if count > 0 {
            self.busy_at = now;
        }
        count
    }

    fn next_timeout(&self) -> Option<Time> {
        let waiting = self.waiting.then(|| self.now + WAIT_PAUSE);
        // While an acknowledgment is due, the end of its time is looked for by this rail alone (L-17).
        let longest = Nanos::from_millis(self.options.user_timeout_ms.into());
        let poll_link_state =
            (self.is_ack_pending && longest.0 > 0).then(|| self.checked_at + Nanos(longest.0 / SILENCE_CHECKS));
        [self.deadline, self.listener_paused_until, waiting, poll_link_state].into_iter().flatten().min()
    }

    fn is_closing(&self) -> bool {
        self.pending.iter().any(|(_, pending)| pending.role.is_draining())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn arm(&mut self) -> bool {
        // Also takes edges that reads without an event have made stale: they would end the sleep at once.
        self.harvest();
        let connections = &mut self.connections;
        let busy = self.to_serve.iter().any(|&key| connections.get_mut(key).is_some_and(|c| c.has_work()));
        let busy = busy || !self.to_push.is_empty();
        !busy && !self.accept_pending && !self.interfaces_changed && self.dirty.is_empty() && self.reports.is_empty()
    }

    fn disarm(&mut self) {
        self.call_epoll_next();
    }

    fn counters(&self) -> RailCounters {
        self.counters
    }

    fn usage(&self) -> RailUsage {
        RailUsage::default()
    }
}
