//! All of a domain behind its C objects, without a raw pointer: one transport, its names, its pending
//! requests and the queues of their completions.
//!
//! | file | holds |
//! |---|---|
//! | `ledger` | requests under way, queues, counters: from an event to a completion |
//! | `names` | address vectors: from `fi_addr_t` to a peer of the transport and back |
//! | `two_sided` | sends, receives, probes, cancellation |
//! | `one_sided` | windows, reads, writes, atomics |
//!
//! The transport begins with the first endpoint (or inserted name), for its name holds the rails' addresses.
//! Names are inserted and removed at any time; a process that calls before it is inserted is accepted, as
//! libfabric's other providers do, unless `RERAIL_CALLERS` is set otherwise.

mod ledger;
mod names;
mod one_sided;
#[cfg(test)]
mod tests;
mod two_sided;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::c_int;
use std::time::{Duration, Instant};

use rerail_core::ids::{MessageId, PeerId};
use rerail_core::mem::{RegionId, Seg};
use rerail_core::time::Nanos;
use rerail_linux::Event;
use rerail_linux::driver::{Contacts, InsertError, NAME_BYTES, Name, RequestError, Transport};
use rerail_linux::settings::{Callers, Settings, Source};

pub use self::ledger::{Bound, Count, Endpoint, Entry, Queue};
pub use self::one_sided::{ATOMIC_COUNT_MAX, AtomicCall, Exposed, OneSided, WINDOWS_MAX, atomic_of};
pub use self::two_sided::{Incoming, Outgoing, Probe};

use self::ledger::{Ledger, Slab};
use self::names::Names;
use self::two_sided::{Deferred, Sending};
use crate::abi::*;
use crate::launcher::Launcher;

/// Pieces that a request may have.
pub const PIECES_MAX: usize = 4;

/// How long the last endpoint waits for its peers' acknowledgments.
const FINISH_TIME_MAX: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(5) };

/// How long a name waits for the place of a process that is removed for it.
const ROOM_TIME_MAX: Duration = FINISH_TIME_MAX;

/// A positive error number of libfabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// A piece of the caller's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Where it starts.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// Pieces of a request, none of them empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pieces {
    list: [Piece; PIECES_MAX],
    count: usize,
}

impl Pieces {
    /// One piece, or none where it is empty.
    pub fn one(address: u64, len: u64) -> Self {
        let mut pieces = Pieces::default();
        pieces.list[0] = Piece { address, len };
        pieces.count = usize::from(len > 0);
        pieces
    }

    /// Adds a piece; empty ones are left out.
    ///
    /// # Errors
    /// `FI_EINVAL` where there are too many.
    pub fn push(&mut self, piece: Piece) -> Result<(), Errno> {
        if piece.len > 0 {
            *self.list.get_mut(self.count).ok_or(Errno(FI_EINVAL))? = piece;
            self.count += 1;
        }
        Ok(())
    }

    /// The pieces.
    pub fn as_slice(&self) -> &[Piece] {
        &self.list[..self.count]
    }

    /// Bytes of all pieces.
    pub fn len(&self) -> u64 {
        self.as_slice().iter().map(|piece| piece.len).sum()
    }

    /// The same as the transport names it.
    fn segments(&self, region: RegionId) -> [Seg; PIECES_MAX] {
        self.list.map(|piece| Seg::new(region, piece.address, piece.len))
    }
}

/// How far a domain is.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each domain, and its largest is looked at in every call"
)]
enum Stage {
    /// No endpoint was opened.
    Closed,
    /// Peers can be reached.
    Joined(Transport),
    /// Closed for good, or never begun.
    Over,
}

/// The state of a domain.
pub struct Port {
    stage: Stage,
    launcher: Launcher,
    own: Option<Name>,
    names: Names,
    /// Peers that have closed or are lost.
    gone: Vec<PeerId>,
    ledger: Ledger,
    /// All of this process's memory, as a region of the transport.
    region: RegionId,
    /// Receives that the transport has not taken yet, in order.
    deferred: VecDeque<Deferred>,
    /// Messages that the transport has not taken yet, in order for each peer.
    waiting: BTreeMap<PeerId, VecDeque<Sending>>,
    /// Messages that were taken out of matching, by the context that they were taken with.
    claimed: Vec<(u64, MessageId)>,
    windows: Slab<Exposed>,
    /// Keys of those that peers may access.
    keys: HashSet<u64>,
    /// Most receives that the transport is given, and most other requests: all share one table there, and
    /// neither sort may keep the other out, or two processes that only send to each other would never
    /// receive.
    receives_max: u32,
    others_max: u32,
}

impl Port {
    /// A domain without an endpoint.
    pub fn new(launcher: Launcher) -> Port {
        Port {
            stage: Stage::Closed,
            launcher,
            own: None,
            names: Names::default(),
            gone: Vec::new(),
            ledger: Ledger::default(),
            region: RegionId(0),
            deferred: VecDeque::new(),
            waiting: BTreeMap::new(),
            claimed: Vec::new(),
            windows: Slab::default(),
            keys: HashSet::new(),
            receives_max: 0,
            others_max: 0,
        }
    }

    /// Opens an endpoint; the first one opens the rails.
    ///
    /// # Errors
    /// `FI_EIO` where no rail can be opened; the reason is on standard error.
    pub fn open_endpoint(&mut self, endpoint: Endpoint) -> Result<u32, Errno> {
        self.listen()?;
        Ok(self.ledger.endpoints.insert(endpoint))
    }

    /// Begins, if it has not.
    fn listen(&mut self) -> Result<(), Errno> {
        if !matches!(self.stage, Stage::Closed) {
            return Ok(());
        }
        let started = self.start().map_err(|why| {
            eprintln!("rerail: {why}");
            Errno(FI_EIO)
        })?;
        self.stage = Stage::Joined(started);
        self.expose_all()
    }

    fn start(&mut self) -> Result<Transport, Box<dyn std::error::Error>> {
        let contacts = Contacts::open(&settings(self.launcher.size)?)?;
        let own = Name::new(&contacts, self.launcher.rank);
        let mut transport = contacts.join(&own, &[])?;
        self.own = Some(own);
        self.region = crate::memory::adopt_all(&mut transport)?;
        let config = transport.config();
        self.receives_max = config.operations_max / 2;
        // Silent requests are not counted; each holds a retained copy.
        self.others_max = self.receives_max.saturating_sub(config.retained_max).max(1);
        Ok(transport)
    }

    /// Closes an endpoint. The last one also shuts down the peers, and waits a limited time for their
    /// acknowledgments.
    pub fn close_endpoint(&mut self, number: u32) {
        self.ledger.endpoints.remove(number);
        if self.ledger.endpoints.is_empty() {
            let until = Instant::now() + FINISH_TIME_MAX;
            while !self.waiting.is_empty() && Instant::now() < until {
                self.progress();
            }
            self.waiting.clear();
            self.deferred.clear();
            self.claimed.clear();
            if let Stage::Joined(transport) = std::mem::replace(&mut self.stage, Stage::Over) {
                // Peers that did not acknowledge in time can't be reported any more.
                let _ = transport.finish(Some(FINISH_TIME_MAX));
            }
            self.ledger.records.clear();
        }
    }

    /// This process's name, once an endpoint is open.
    pub fn name(&self) -> Option<&Name> {
        self.own.as_ref()
    }

    /// Queues, counters and endpoints.
    pub fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Opens an address vector.
    pub fn open_vector(&mut self) -> u32 {
        self.names.open()
    }

    /// Closes it.
    pub fn close_vector(&mut self, vector: u32) {
        self.names.close(vector);
    }

    /// Puts a name into a vector and gives its number there.
    ///
    /// # Errors
    /// `FI_EINVAL` for bytes that are no name, or a false one; `FI_ENOMEM` where there is no room for one
    /// more (`RERAIL_PEERS`), `FI_EAGAIN` where the process is being removed.
    pub fn insert(&mut self, vector: u32, bytes: &[u8; NAME_BYTES]) -> Result<u64, Errno> {
        let name = Name::parse(*bytes).map_err(|_| Errno(FI_EINVAL))?;
        self.listen()?;
        let is_new = self.transport()?.peer_of(&name).is_none();
        let mut inserted = self.transport()?.insert(&name);
        if matches!(inserted, Err(InsertError::Full { .. } | InsertError::Leaving(_))) {
            self.make_room(&name);
            inserted = self.transport()?.insert(&name);
        }
        let peer = inserted.map_err(|error| {
            eprintln!("rerail: {error}");
            Errno(match error {
                InsertError::Full { .. } => FI_ENOMEM,
                InsertError::Leaving(_) => FI_EAGAIN,
                _ => FI_EINVAL,
            })
        })?;
        if is_new {
            // The number was another process's.
            self.gone.retain(|gone| *gone != peer);
        }
        self.names.insert(vector, peer)
    }

    /// Closes peers that are in no vector, until one is gone or `name` can be inserted again.
    fn make_room(&mut self, name: &Name) {
        let unnamed = self.names.take_unnamed(|_| false);
        let Ok(transport) = self.transport() else { return };
        for peer in &unnamed {
            let _ = transport.remove(*peer);
        }
        let until = Instant::now() + ROOM_TIME_MAX;
        let is_full = |port: &mut Port| {
            let Stage::Joined(transport) = &port.stage else { return false };
            let leaves = transport.peer_of(name).is_some();
            leaves || !unnamed.is_empty() && unnamed.iter().all(|peer| transport.name_of(*peer).is_some())
        };
        while is_full(self) && Instant::now() < until {
            self.progress();
        }
    }

    /// Takes a name out of a vector. A process that was lost or has closed is forgotten, any other one stays
    /// connected until its place is needed: the name may be inserted again.
    ///
    /// # Errors
    /// `FI_EINVAL` where the number names none.
    pub fn remove(&mut self, vector: u32, number: u64) -> Result<(), Errno> {
        self.names.remove(vector, number)?;
        let gone = &mut self.gone;
        let over = self.names.take_unnamed(|peer| !gone.contains(&peer));
        gone.retain(|peer| !over.contains(peer));
        let transport = self.transport()?;
        // Each was inserted, and none is this process.
        over.into_iter().for_each(|peer| _ = transport.remove(peer));
        Ok(())
    }

    /// The name behind a number.
    ///
    /// # Errors
    /// `FI_EINVAL` where the number names none.
    pub fn lookup(&self, vector: u32, number: u64) -> Result<Name, Errno> {
        let peer = self.names.peer(Some(vector), number)?;
        let Stage::Joined(transport) = &self.stage else { return Err(Errno(FI_EINVAL)) };
        transport.name_of(peer).ok_or(Errno(FI_EINVAL))
    }

    fn transport(&mut self) -> Result<&mut Transport, Errno> {
        match &mut self.stage {
            Stage::Joined(transport) => Ok(transport),
            _ => Err(Errno(FI_EOPBADSTATE)),
        }
    }

    /// One round: what has arrived is completed, and what waited for room is posted.
    #[inline]
    pub fn progress(&mut self) {
        let Stage::Joined(transport) = &mut self.stage else { return };
        transport.progress();
        while let Some(event) = transport.poll_event() {
            if let Event::PeerClosed { peer } | Event::PeerLost { peer, .. } = event {
                self.gone.push(peer);
            }
            if let Some((peer, why)) = self.ledger.deliver(event, &self.names) {
                let what = transport.describe_loss(why);
                eprintln!("rerail: peer {} ({:?}) is lost: {what}", peer.0, transport.name_of(peer));
            }
        }
        if !self.deferred.is_empty() {
            self.post_deferred();
        }
        if !self.waiting.is_empty() {
            self.send_waiting();
        }
    }

    /// Sleeps until something happens, at most so long.
    pub fn sleep(&mut self, time: Duration) {
        match &mut self.stage {
            // Where the system refuses to wait, the caller polls.
            Stage::Joined(transport) => drop(transport.wait(Some(time))),
            _ => rustix::thread::sched_yield(),
        }
    }
}

/// What a refused request answers.
fn refusal(error: RequestError) -> Errno {
    use rerail_core::endpoint::SubmitError;
    Errno(match error {
        RequestError::Submit(SubmitError::Full(_)) => FI_EAGAIN,
        RequestError::Submit(SubmitError::PeerGone(_)) => FI_ECONNRESET,
        RequestError::Submit(SubmitError::TooLong { .. }) => FI_EMSGSIZE,
        RequestError::Submit(SubmitError::BadAtomic) => FI_EOPNOTSUPP,
        _ => FI_EINVAL,
    })
}

/// The settings of the environment, with defaults that suit a runtime: it computes for hours without a call,
/// reaches every peer, and posts receives without end.
fn settings(size: Option<u32>) -> Result<Settings, rerail_linux::settings::SettingsError> {
    const DAY: Nanos = Nanos(24 * 3600 * 1_000_000_000);
    let mut settings = Settings::from_env()?;
    let is_default = |name: &str| settings.source(name) == Source::Default;
    let unset = ["channels", "operations", "windows", "connect_timeout", "recovery_timeout", "peers", "callers"];
    let [channels, operations, windows, connect_timeout, recovery_timeout, peers, callers] = unset.map(is_default);
    if channels {
        // Those of a job, and some that it meets later.
        settings.core.channels_max = size.unwrap_or(0).clamp(64, 1024);
    }
    if peers {
        settings.peers = settings.peers.saturating_add(size.unwrap_or(0));
    }
    if callers {
        settings.callers = Callers::Accept;
    }
    if operations {
        settings.core.operations_max = 16_384;
    }
    if windows {
        settings.core.windows_max = WINDOWS_MAX;
    }
    if connect_timeout {
        settings.core.connect_timeout = DAY;
    }
    if recovery_timeout {
        settings.core.recovery_timeout = DAY;
    }
    settings.core.segments_max = settings.core.segments_max.max(PIECES_MAX as u8);
    Ok(settings)
}
