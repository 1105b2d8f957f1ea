//! A running rank: drives the transport until requests complete, and keeps peers' names and losses.
//!
//! The transport itself never blocks. The tool's subcommands are straight-line programs, so this wrapper
//! waits for them: it polls for a short while, then sleeps on the transport's descriptor. Invariants: a
//! request always has exactly one outcome (a request to a peer that is gone already gets the outcome that it
//! would have had); without progress for the configured time, waiting ends in [`SessionError::Stalled`] and
//! never hangs.

mod collective;
mod join;
mod rank_infos;
mod watchdog;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use rerail_core::endpoint::{
    AtomicRequest, CancelError, Event, FlushRequest, Found, Full, GetRequest, Loss, OpError, PutRequest, RecvRequest,
    Selector, SendRequest, SubmitError, Window, Written,
};
use rerail_core::ids::{Cookie, MessageId, OpId, PeerId, WindowId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::rail::RailKind;
use rerail_linux::driver::{MemoryError, RequestError, Shortage, Transport, WaitError, WindowError};

use crate::exit::Failure;

use watchdog::{Stall, Through, Watchdog};

pub use collective::PendingText;
pub use join::{dial, start, with_retries};
pub use rank_infos::{Attempts, Path, RankInfo, attempts, host_name};

/// What a request came to.
pub type Outcome = Result<rerail_core::endpoint::Done, OpError>;

/// How long a sleep lasts at most: the watchdog looks that often.
const SLEEP: Duration = Duration::from_millis(200);

/// After so long without anything, each further look yields the processor: where there are fewer processors
/// than ranks, so that the one that this rank waits for may be waiting for this rank's processor.
const POLITE_CROWDED: Duration = Duration::from_micros(5);
/// The same where each rank has a processor: a yield would only cost the system call, which is as expensive
/// as a message.
const POLITE: Duration = Duration::from_micros(100);

/// Consecutive polls without an event, after which the watchdog checks too, though the process does not
/// sleep.
const CHECK_INTERVAL: u32 = 4096;

/// A request that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    cookie: u64,
    operation: Option<OpId>,
}

/// Cookies are this session's own running numbers: they need spreading, not a hash that withstands an
/// attacker, and the tool's work for each request is part of every latency that it measures.
#[derive(Default)]
struct CookieHasher(u64);

type ByCookie = BuildHasherDefault<CookieHasher>;

impl Hasher for CookieHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 ^ u64::from(byte)));
    }

    fn write_u64(&mut self, cookie: u64) {
        // Odd: neighbours differ in the high bits, too, which the tables use to distinguish entries.
        self.0 = cookie.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Outcomes of one request, in order. Nearly all have one, for which nothing is allocated.
#[derive(Default)]
struct Outcomes {
    /// Each with its number in a multi-receive.
    first: Option<(u32, Outcome)>,
    later: VecDeque<(u32, Outcome)>,
}

impl Outcomes {
    fn push(&mut self, index: u32, outcome: Outcome) {
        match self.first {
            None if self.later.is_empty() => self.first = Some((index, outcome)),
            _ => self.later.push_back((index, outcome)),
        }
    }

    fn pop(&mut self) -> Option<(u32, Outcome)> {
        self.first.take().or_else(|| self.later.pop_front())
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.later.is_empty()
    }
}

/// A transport and the tool's state of it.
pub struct Session {
    transport: Transport,
    rank_infos: Vec<RankInfo>,
    cookies: u64,
    outcomes: HashMap<u64, Outcomes, ByCookie>,
    lost: BTreeMap<u32, Loss>,
    /// Lost or closed.
    gone: BTreeSet<u32>,
    barriers: u64,
    spin: Duration,
    /// The same while rails have payload of ours to move.
    spin_moving: Duration,
    polite: Duration,
    watchdog: Watchdog,
    /// When a poll first found nothing, since an event or a request.
    idle_since: Option<Instant>,
    /// Looks that brought no event, since the watchdog has looked.
    polls: u32,
    /// Cookies of requests that are not over.
    open: HashSet<u64, ByCookie>,
    /// Those of them that make more than one event.
    streams: HashSet<u64, ByCookie>,
    /// Requests, or parts of them, that are over.
    completions: u64,
    /// Events for requests that were over.
    repeated: u64,
    /// Puts with immediate data into windows of this rank.
    written: Vec<Written>,
    on_loss: Option<fn(u32, &str)>,
}

/// Why waiting for an outcome is over without one.
#[derive(Debug)]
pub enum SessionError {
    /// No request was over and no payload has moved for so long, with so many requests open.
    Stalled {
        /// How long.
        silence: Duration,
        /// Requests that are not over.
        open: usize,
        /// A reason within this process, if there is one.
        shortage: Option<Shortage>,
    },
    /// A request was refused for a reason that waiting does not cure.
    Request(RequestError),
    /// Memory was refused.
    Memory(MemoryError),
    /// A window was refused.
    Window(WindowError),
    /// The system refused to sleep.
    Wait(WaitError),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Stalled { silence, open, shortage: Some(shortage) } => {
                write!(f, "nothing got through for {} s, with {open} requests open: {shortage}", silence.as_secs())
            }
            SessionError::Stalled { silence, open, shortage: None } => write!(
                f,
                "nothing got through for {} s, with {open} requests open: a peer hangs, or a message was lost without \
                 trace",
                silence.as_secs()
            ),
            SessionError::Request(error) => write!(f, "a request was refused: {error}"),
            SessionError::Memory(error) => write!(f, "{error}"),
            SessionError::Window(error) => write!(f, "memory can't be exposed: {error}"),
            SessionError::Wait(error) => write!(f, "waiting failed: {error}"),
        }
    }
}

impl std::error::Error for SessionError {}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        match error {
            SessionError::Stalled { shortage: None, .. } => Failure::verification(error),
            _ => Failure::usage(error),
        }
    }
}

impl From<MemoryError> for SessionError {
    fn from(error: MemoryError) -> Self {
        SessionError::Memory(error)
    }
}

impl Session {
    /// A session over a transport that has started. `rank_infos`: by rank.
    pub fn new(transport: Transport, rank_infos: Vec<RankInfo>, stall: Duration) -> Session {
        // Hosts may be logical ones that share these processors: so all ranks count.
        let crowded = std::thread::available_parallelism().is_ok_and(|processors| processors.get() < rank_infos.len());
        Session {
            transport,
            rank_infos,
            cookies: 0,
            outcomes: HashMap::default(),
            lost: BTreeMap::new(),
            gone: BTreeSet::new(),
            barriers: 0,
            spin: Duration::from_micros(50),
            spin_moving: Duration::from_micros(50),
            polite: if crowded { POLITE_CROWDED } else { POLITE },
            watchdog: Watchdog::new(stall),
            idle_since: None,
            polls: 0,
            open: HashSet::default(),
            streams: HashSet::default(),
            completions: 0,
            repeated: 0,
            written: Vec::new(),
            on_loss: None,
        }
    }

    /// Polls for so long before it sleeps; `moving`: while its rails have payload to write, read or send, so
    /// that what comes next is the end of that.
    pub fn set_spin(&mut self, spin: Duration, moving: Duration) {
        (self.spin, self.spin_moving) = (spin, moving);
    }

    /// Calls `callback` with the rank and a message for people as soon as a peer is lost.
    pub fn on_loss(&mut self, callback: fn(u32, &str)) {
        self.on_loss = Some(callback);
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.transport.rank().0
    }

    /// Processes in the job.
    pub fn size(&self) -> u32 {
        self.transport.size()
    }

    /// The transport, to look at.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The transport, for loops of the caller's own: no request of this session may be under way.
    pub fn transport_mut(&mut self) -> &mut Transport {
        debug_assert!(self.open.is_empty(), "a request of the session is under way");
        &mut self.transport
    }

    /// The transport back, to finish it.
    pub fn into_transport(self) -> Transport {
        self.transport
    }

    /// The information of a rank.
    pub fn rank_info(&self, rank: u32) -> &RankInfo {
        &self.rank_infos[rank as usize]
    }

    /// Every rank.
    pub fn rank_infos(&self) -> &[RankInfo] {
        &self.rank_infos
    }

    /// The way to a rank.
    pub fn path(&self, rank: u32) -> Path {
        self.path_between(self.rank(), rank)
    }

    /// The path between two ranks, as far as this rank can determine it.
    pub fn path_between(&self, one: u32, other: u32) -> Path {
        let shm = self.transport.rails().any(|rail| rail.kind == RailKind::Shm);
        let verbs = self.transport.rails().any(|rail| rail.kind == RailKind::Verbs);
        rank_infos::path(&self.rank_infos, one, other, shm, if verbs { Path::Verbs } else { Path::Tcp })
    }

    /// Describes a lost peer, and why it counts as lost.
    pub fn describe_lost(&self, rank: u32, why: Loss) -> String {
        let RankInfo { host, pid } = self.rank_info(rank);
        let why = self.transport.describe_loss(why);
        format!("rank {rank} ({host}, pid {pid}, over {}) is lost: {why}", self.path(rank))
    }

    /// Peers that are lost, and why.
    pub fn lost(&self) -> &BTreeMap<u32, Loss> {
        &self.lost
    }

    /// Whether a rank can still be talked to.
    pub fn is_here(&self, rank: u32) -> bool {
        !self.gone.contains(&rank)
    }

    /// Completions that have come, well or not.
    pub fn completions(&self) -> u64 {
        self.completions
    }

    /// Events that came for requests which were over already: each is a fault of the transport.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Ranks that can still be talked to, this one included.
    pub fn living(&self) -> Vec<u32> {
        (0..self.size()).filter(|&rank| self.is_here(rank)).collect()
    }

    // ---- memory

    /// Allocates a region of at least one byte.
    pub fn alloc(&mut self, bytes: u64) -> Result<RegionId, SessionError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(self.transport.alloc(bytes.max(1))?)
    }

    /// As [`alloc`](Self::alloc), of memory that ranks on the same host may map.
    pub fn alloc_shared(&mut self, bytes: u64) -> Result<RegionId, SessionError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(self.transport.alloc_shared(bytes.max(1))?)
    }

    /// As [`alloc_shared`](Self::alloc_shared), of memory in whose windows these ranks put by themselves.
    pub fn alloc_window(&mut self, bytes: u64) -> Result<RegionId, SessionError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(self.transport.alloc_window(bytes.max(1))?)
    }

    /// Gives a region back.
    pub fn free(&mut self, region: RegionId) -> Result<(), SessionError> {
        Ok(self.transport.free(region)?)
    }

    /// Bytes of an allocated region. They must lie in it, and no receive in progress may name them.
    pub fn bytes(&self, seg: Seg) -> &[u8] {
        self.transport.part(&seg).expect("the tool's own memory, not in use")
    }

    /// As [`bytes`](Self::bytes), for writing: no request in progress may name them.
    pub fn bytes_mut(&mut self, seg: Seg) -> &mut [u8] {
        self.transport.part_mut(&seg).expect("the tool's own memory, not in use")
    }

    /// A copy of bytes of an allocated region, which peers may be writing.
    pub fn copied(&self, seg: Seg) -> Vec<u8> {
        let mut bytes = vec![0; seg.len as usize];
        self.transport.read(seg.at, &mut bytes).expect("the tool's own memory");
        bytes
    }

    // ---- requests

    /// Sends a message; the cookie given is replaced.
    pub fn send(&mut self, send: SendRequest<'_>) -> Result<Ticket, SessionError> {
        self.submit(Some(send.peer), |transport, cookie| transport.send(&SendRequest { cookie, ..send }))
    }

    /// Sends a message and copies its payload at once.
    pub fn inject(&mut self, send: SendRequest<'_>, payload: &[u8]) -> Result<Ticket, SessionError> {
        self.submit(Some(send.peer), |transport, cookie| transport.inject(&SendRequest { cookie, ..send }, payload))
    }

    /// Posts a receive.
    pub fn recv(&mut self, recv: RecvRequest<'_>) -> Result<Ticket, SessionError> {
        let ticket =
            self.submit(recv.from.source, |transport, cookie| transport.recv(&RecvRequest { cookie, ..recv }))?;
        if recv.multi.is_some() && ticket.operation.is_some() {
            self.streams.insert(ticket.cookie);
        }
        Ok(ticket)
    }

    /// The oldest unexpected message that matches.
    pub fn probe(&self, selector: &Selector) -> Option<Found> {
        self.transport.probe(selector)
    }

    /// Takes the oldest unexpected message that matches out of matching.
    pub fn claim(&mut self, selector: &Selector) -> Option<(MessageId, Found)> {
        self.transport.claim(selector)
    }

    /// Receives a claimed message.
    pub fn recv_claimed(&mut self, message: MessageId, recv: RecvRequest<'_>) -> Result<Ticket, SessionError> {
        self.submit(recv.from.source, |transport, cookie| {
            transport.recv_claimed(message, &RecvRequest { cookie, ..recv })
        })
    }

    /// Writes to a peer's window.
    pub fn put(&mut self, put: PutRequest<'_>) -> Result<Ticket, SessionError> {
        self.submit(Some(put.to.peer), |transport, cookie| transport.put(&PutRequest { cookie, ..put }))
    }

    /// The puts with immediate data that peers have made into windows of this rank since the last call.
    pub fn take_written(&mut self) -> Vec<Written> {
        std::mem::take(&mut self.written)
    }

    /// Reads a peer's window.
    pub fn get(&mut self, get: GetRequest<'_>) -> Result<Ticket, SessionError> {
        self.submit(Some(get.from.peer), |transport, cookie| transport.get(&GetRequest { cookie, ..get }))
    }

    /// Changes a value in a peer's window.
    pub fn atomic(&mut self, atomic: AtomicRequest) -> Result<Ticket, SessionError> {
        self.submit(Some(atomic.at.peer), |transport, cookie| transport.atomic(&AtomicRequest { cookie, ..atomic }))
    }

    /// Waits for one-sided requests to a peer to be done there.
    pub fn flush(&mut self, peer: PeerId) -> Result<Ticket, SessionError> {
        self.submit(Some(peer), |transport, cookie| {
            transport.flush(&FlushRequest { cookie, ..FlushRequest::new(peer) })
        })
    }

    /// Takes a request back; its outcome follows in any case.
    pub fn cancel(&mut self, ticket: &Ticket) -> Result<(), CancelError> {
        match ticket.operation {
            Some(operation) => self.transport.cancel(operation),
            None => Err(CancelError::Unknown),
        }
    }

    /// Exposes memory.
    pub fn expose(&mut self, window: &Window) -> Result<WindowId, SessionError> {
        self.transport.expose(window).map_err(SessionError::Window)
    }

    /// Ends an exposure, once no request is served from it.
    pub fn deregister(&mut self, window: WindowId) -> Result<(), SessionError> {
        self.touch();
        // Unknown: deregistered already. Busy: a peer's get is being answered.
        while let Err(rerail_core::endpoint::DeregisterError::Busy) = self.transport.deregister(window) {
            self.step()?;
        }
        Ok(())
    }

    /// Submits a request, again and again while tables are full.
    fn submit(
        &mut self,
        peer: Option<PeerId>,
        mut request: impl FnMut(&mut Transport, Cookie) -> Result<OpId, RequestError>,
    ) -> Result<Ticket, SessionError> {
        let cookie = self.cookies;
        self.cookies += 1;
        self.touch();
        loop {
            match request(&mut self.transport, Cookie(cookie)) {
                Ok(operation) => {
                    self.open.insert(cookie);
                    return Ok(Ticket { cookie, operation: Some(operation) });
                }
                Err(RequestError::Submit(SubmitError::Full(Full::Operations | Full::Retained))) => self.step()?,
                Err(RequestError::Submit(SubmitError::PeerGone(peer))) => {
                    self.drain();
                    let outcome = match self.lost.get(&peer.0) {
                        Some(&why) => OpError::PeerLost { peer, why },
                        None => OpError::PeerClosed { peer },
                    };
                    self.outcomes.entry(cookie).or_default().push(0, Err(outcome));
                    return Ok(Ticket { cookie, operation: None });
                }
                Err(error @ RequestError::Submit(SubmitError::UnknownMessage)) => {
                    // A claimed message goes with its peer.
                    let Some(peer) = peer else { return Err(SessionError::Request(error)) };
                    self.drain();
                    self.outcomes.entry(cookie).or_default().push(0, Err(OpError::PeerClosed { peer }));
                    return Ok(Ticket { cookie, operation: None });
                }
                Err(error) => return Err(SessionError::Request(error)),
            }
        }
    }

    // ---- waiting

    /// The outcome of a request, waited for.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Outcome, SessionError> {
        Ok(self.wait_part(ticket)?.1)
    }

    /// The next outcome of a multi-receive, waited for, with the message's number in its buffer.
    pub fn wait_part(&mut self, ticket: Ticket) -> Result<(u32, Outcome), SessionError> {
        self.touch();
        loop {
            if let Some(part) = self.take_part(&ticket) {
                return Ok(part);
            }
            self.step()?;
        }
    }

    /// The next outcome of a request, if it is there. A multi-receive has one per message.
    pub fn take(&mut self, ticket: &Ticket) -> Option<Outcome> {
        Some(self.take_part(ticket)?.1)
    }

    fn take_part(&mut self, ticket: &Ticket) -> Option<(u32, Outcome)> {
        let outcomes = self.outcomes.get_mut(&ticket.cookie)?;
        let outcome = outcomes.pop();
        if outcomes.is_empty() {
            self.outcomes.remove(&ticket.cookie);
        }
        outcome
    }

    /// Whether a request has an outcome that was not taken.
    pub fn is_over(&self, ticket: &Ticket) -> bool {
        self.outcomes.contains_key(&ticket.cookie)
    }

    /// The watchdog starts anew: for loops around [`step`](Self::step) of a caller's own.
    pub fn touch(&mut self) {
        self.idle_since = None;
        self.watchdog.start_anew();
    }

    /// Drives the transport once and takes events, without ever sleeping: between pieces of other work.
    pub fn poll(&mut self) {
        self.transport.progress();
        self.drain();
    }

    /// Drives the transport once, sleeps if there has been nothing to do for a while, and takes events.
    pub fn step(&mut self) -> Result<(), SessionError> {
        let done = self.transport.progress();
        if self.drain() > 0 {
            self.touch();
            return Ok(());
        }
        self.polls += 1;
        if self.polls >= CHECK_INTERVAL {
            self.watch()?;
        }
        if done > 0 {
            // Rails have work: no reason to sleep, but no evidence of progress either.
            self.idle_since = None;
            return Ok(());
        }
        let now = Instant::now();
        let silence = now - *self.idle_since.get_or_insert(now);
        let moves = || self.transport.rails().any(|rail| rail.stats.backlog > 0);
        if silence > self.spin && (silence > self.spin_moving || !moves()) {
            self.watch()?;
            self.transport.wait(Some(SLEEP)).map_err(SessionError::Wait)?;
        } else if silence > self.polite {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Lets the watchdog look.
    fn watch(&mut self) -> Result<(), SessionError> {
        self.polls = 0;
        let through = Through::of(&self.transport);
        let shortages = self.transport.shortage().map_or(0, |shortage| shortage.times);
        match self.watchdog.check(Instant::now(), through, shortages) {
            Some(Stall { silence, is_short }) => Err(self.stalled(silence, is_short)),
            None => Ok(()),
        }
    }

    /// Describes pending work of a job in which nothing has completed for `silence`; `is_short`: this process
    /// had a shortage meanwhile.
    pub fn stalled(&self, silence: Duration, is_short: bool) -> SessionError {
        tracing::error!("what was under way:\n{:#?}", self.transport);
        let shortage = self.transport.shortage().filter(|_| is_short);
        SessionError::Stalled { silence, open: self.open.len(), shortage }
    }

    /// Takes all events; returns how many there were.
    fn drain(&mut self) -> usize {
        let mut events = 0;
        while let Some(event) = self.transport.poll_event() {
            events += 1;
            match event {
                Event::Completed(completion) => {
                    self.completions += 1;
                    let Cookie(cookie) = completion.cookie;
                    let more =
                        self.streams.contains(&cookie) && matches!(completion.result, Ok(done) if !done.released);
                    let known = if more { self.open.contains(&cookie) } else { self.open.remove(&cookie) };
                    if !more {
                        self.streams.remove(&cookie);
                    }
                    if known {
                        self.outcomes.entry(cookie).or_default().push(completion.index, completion.result);
                    } else {
                        self.repeated += 1;
                    }
                }
                Event::PeerUp { .. } => {}
                Event::Written(written) => self.written.push(written),
                Event::PeerClosed { peer } => {
                    self.gone.insert(peer.0);
                }
                Event::PeerLost { peer, why } => {
                    self.lost.insert(peer.0, why);
                    self.gone.insert(peer.0);
                    if let Some(callback) = self.on_loss {
                        callback(peer.0, &self.describe_lost(peer.0, why));
                    }
                }
            }
        }
        events
    }
}
