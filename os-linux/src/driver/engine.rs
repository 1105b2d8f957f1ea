//! The transport without a clock, without sleep and without a launcher: rails, core and memory.
//!
//! Every call that needs the time takes it, and none makes a system call but those of the rails and of
//! memory. The [`Transport`](super::Transport) is an engine, a clock and a waiter; the simulator drives
//! engines in virtual time.

use std::fmt;

use rerail_core::config::Config;
use rerail_core::endpoint::{Endpoint, Event, Loss, PeerError, RailStats, ShortCompletion};
use rerail_core::ids::{PeerId, RailId};
use rerail_core::rail::{RailFacts, RailKind};
use rerail_core::time::{Nanos, Time};

use super::card::{Card, CardError};
use super::drive::Scratch;
use super::slots::{Rails, Slot};
use super::{MemoryError, StartError};
use crate::memory::{Core, CoreError, Memory};
use crate::rail::{Rail, RailCounters, RailUsage};

/// A message transport driven by its owner, which also supplies the time.
///
/// ```
/// use rerail_core::endpoint::{Event, RecvRequest, Selector, SendRequest};
/// use rerail_core::{config::Config, ids::PeerId, mem::Seg, time::Time};
/// use rerail_linux::{driver::EngineOpening, rail::loopback::Loopback};
///
/// let config = Config { rails_max: 1, ..Config::new(PeerId(0), 1) };
/// let mut opening =
///     EngineOpening::with_rails(config, "here".into(), vec![Box::new(Loopback::new(PeerId(0)))], Time(0))?;
/// let card = opening.card().to_owned();
/// opening.learn(PeerId(0), &card)?;
/// let mut engine = opening.join()?;
///
/// let region = engine.alloc(4096)?;
/// engine.bytes_mut(region).unwrap()[..5].copy_from_slice(b"hello");
/// engine.recv(Time(0), &RecvRequest::new(Selector::ANY_UNTAGGED, &[Seg::new(region, 64, 5)]))?;
/// engine.send(Time(0), &SendRequest::new(PeerId(0), &[Seg::new(region, 0, 5)]))?;
/// let mut completed = 0;
/// for now in 1.. {
///     engine.round(Time(now));
///     while let Some(event) = engine.poll_event() {
///         completed += u32::from(matches!(event, Event::Completed(_)));
///     }
///     if completed == 2 {
///         break;
///     }
/// }
/// assert_eq!(&engine.bytes(region).unwrap()[64..69], b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine {
    // Order matters: rails, which hold addresses of pieces, go before the memory that these point to.
    pub(super) rails: Rails,
    /// Those that short messages go over: bit per rail.
    pub(super) quick_rails: u64,
    /// Another one had something in the last round.
    pub(super) others_moved: bool,
    pub(super) core: Core,
    pub(super) memory: Memory,
    pub(super) config: Config,
    pub(super) scratch: Scratch,
    /// An event taken from the core to check whether there is one.
    next_event: Option<Event>,
    /// Peers with a connection, existing or requested: `finish` closes these.
    pub(super) met: PeerSet,
    /// Peers that were lost, and why: reported again at the end.
    pub(super) lost: Vec<(PeerId, Loss)>,
}

/// An engine whose peers are not all known yet.
#[derive(Debug)]
pub struct EngineOpening {
    pub(super) engine: Engine,
    host: String,
    card: String,
    learnt: PeerSet,
    /// Whether peers with which memory is shared are reached over other rails too.
    pub(super) others_beside_shm: bool,
}

/// Description of a rail, for people and reports.
#[derive(Clone, Debug)]
pub struct RailInfo<'a> {
    /// Its number, as in events and errors.
    pub id: RailId,
    /// Short name: `loop`, `shm`, `tcp:eth0`.
    pub name: &'a str,
    /// The sort.
    pub kind: RailKind,
    /// This process's address on it, as published or as last announced to the peers (F-12).
    pub address: &'a str,
    /// The rail's counters since the start.
    pub counters: RailCounters,
    /// The core's counters and measurements: payload by rail, weight, rate, and why these last changed.
    pub stats: RailStats,
    /// The device resources that the rail holds.
    pub usage: RailUsage,
}

impl Engine {
    /// This process's rank.
    pub fn rank(&self) -> PeerId {
        self.config.rank
    }

    /// Processes in the job, this one included.
    pub fn size(&self) -> u32 {
        self.config.peers_max
    }

    /// The core's sizes and knobs, as this transport runs with them.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The rails, in the order of their numbers.
    pub fn rails(&self) -> impl Iterator<Item = RailInfo<'_>> {
        self.rails.iter().map(|(slot, rail)| RailInfo {
            id: slot.id,
            name: rail.name(),
            kind: slot.kind,
            address: &slot.address,
            counters: rail.counters(),
            stats: self.core.rail_stats(slot.id).unwrap_or_default(),
            usage: rail.usage(),
        })
    }

    /// The next event for the caller. Take events after each round: completed requests keep their place in
    /// the core's tables until their event is taken.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = if self.next_event.is_none() { self.core.poll_event() } else { self.next_event.take() };
        if let Some(event) = &event
            && !matches!(event, Event::Completed(_))
        {
            self.note(event);
        }
        event
    }

    /// The next completion of the express path: a small message that was sent or received without special
    /// cases. Cheaper than an event; completions not taken here are returned by
    /// [`poll_event`](Self::poll_event).
    #[inline]
    pub fn poll_short(&mut self) -> Option<&ShortCompletion> {
        self.core.poll_short()
    }

    /// The peers to close, and the lost peers.
    #[cold]
    fn note(&mut self, event: &Event) {
        match *event {
            Event::PeerUp { peer } => self.met.insert(peer),
            Event::PeerClosed { peer } => self.met.remove(peer),
            Event::PeerLost { peer, why } => {
                self.met.remove(peer);
                self.lost.push((peer, why));
            }
            Event::Completed(_) => {}
        }
    }

    /// Whether [`poll_event`](Self::poll_event) has something.
    pub fn has_event(&mut self) -> bool {
        if self.next_event.is_none() {
            self.next_event = self.core.poll_event();
        }
        self.next_event.is_some()
    }

    /// When [`round`](Self::round) has something to do even if no rail brings anything.
    pub fn next_timeout(&self) -> Option<Time> {
        let rails = self.rails.iter().filter_map(|(_, rail)| rail.next_timeout());
        self.core.next_timeout().into_iter().chain(rails).min()
    }

    /// Changes how long a peer may be silent before it is probed; `Nanos(0)`: peers are no longer probed, so
    /// that an engine without work becomes idle.
    pub fn set_keepalive(&mut self, now: Time, keepalive: Nanos) {
        self.core.set_keepalive(now, keepalive);
    }

    /// Whether a rail may still lose data posted to a disconnected peer if the process ended now.
    pub fn is_closing(&self) -> bool {
        self.rails.iter().any(|(_, rail)| rail.is_closing())
    }

    /// Whether rails that [`news`](Self::news) does not look at had something in the last round.
    pub(super) fn others_moved(&self) -> bool {
        self.others_moved
    }

    /// Whether all requests submitted to `peer` (to any peer, for `None`) are acknowledged or answered.
    pub fn is_quiet(&self, peer: Option<PeerId>) -> bool {
        self.core.is_quiet(peer)
    }

    /// Registrations that rails hold for requests of this process: none where no request is open.
    pub fn registrations(&self) -> usize {
        self.rails.iter().map(|(slot, _)| slot.registrations).sum()
    }

    /// The core's endpoint, to look at.
    pub fn endpoint(&self) -> &Endpoint<'_> {
        &self.core
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe("Engine", f)
    }
}

impl Engine {
    /// `Debug` of the engine and of its wrappers.
    pub(super) fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            // All pending work, for people who look for the reason of a hang.
            return write!(f, "{:?}", *self.core);
        }
        f.debug_struct(name)
            .field("rank", &self.config.rank)
            .field("size", &self.config.peers_max)
            .field("rails", &self.rails.iter().map(|(_, rail)| rail.name()).collect::<Vec<_>>())
            .field("stats", &self.core.stats())
            .finish_non_exhaustive()
    }
}

impl EngineOpening {
    /// With rails that the caller has opened (for hosts with rails of their own). Order matters: a
    /// [`Loopback`](crate::rail::loopback::Loopback) first, then shared memory, then the others; among rails
    /// of one kind, the k-th of one process meets the k-th of another. `host`: equal where processes may
    /// share memory.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn with_rails(config: Config, host: String, rails: Vec<Box<dyn Rail>>, now: Time) -> Result<Self, StartError> {
        let rails = Rails::number(rails);
        let entries = rails.iter().map(|(slot, _)| (slot.kind, &*slot.address)).collect();
        let card = Card { host: &host, rails: entries }
            .emit()
            .map_err(|error| StartError::Card { peer: config.rank, error })?;
        let facts: Vec<RailFacts> = rails.iter().map(|(_, rail)| rail.facts()).collect();
        let core = Core::new(config, &facts, now).map_err(|error| match error {
            CoreError::Start(error) => StartError::Core(error),
            CoreError::Memory(error) => StartError::Memory(error),
        })?;
        let pool_bytes =
            config.pool_bytes().map_err(|error| StartError::Core(rerail_core::endpoint::StartError::Config(error)))?;
        let pool_bytes = usize::try_from(pool_bytes)
            .map_err(|_| StartError::Memory(MemoryError::BadLength { bytes: usize::MAX }))?;
        let memory = Memory::new(pool_bytes).map_err(StartError::Memory)?;
        let is_quick = |facts: &RailFacts| facts.short_bytes_max > 0;
        let quick_rails = facts.iter().rev().fold(0, |mask, facts| mask << 1 | u64::from(is_quick(facts)));
        let engine = Engine {
            rails,
            quick_rails,
            others_moved: false,
            core,
            memory,
            config,
            scratch: Scratch::default(),
            next_event: None,
            met: PeerSet::new(config.peers_max),
            lost: Vec::new(),
        };
        let learnt = PeerSet::new(config.peers_max);
        Ok(EngineOpening { engine, host, card, learnt, others_beside_shm: false })
    }

    pub(super) fn rails(&self) -> &Rails {
        &self.engine.rails
    }

    /// The line to publish to the peers: printable ASCII without spaces.
    pub fn card(&self) -> &str {
        &self.card
    }

    /// Takes a rank's card (this process's own among them).
    ///
    /// # Errors
    /// [`StartError::Card`] where it can't be used, [`StartError::Unreachable`] where no rail leads there,
    /// [`StartError::Peer`] for a rank that is out of range or already known.
    pub fn learn(&mut self, peer: PeerId, card: &str) -> Result<(), StartError> {
        let parsed = Card::parse(card).map_err(|error| StartError::Card { peer, error })?;
        self.learn_parsed(peer, &parsed)
    }

    /// As [`learn`](Self::learn), with a card that is parsed already: for many engines in one process. The
    /// engine keeps of the card only what the rails keep. With thousands of engines, pass one engine all
    /// cards before the next engine: its tables then stay in the processor's cache.
    ///
    /// # Errors
    /// As [`learn`](Self::learn).
    pub fn learn_parsed(&mut self, peer: PeerId, parsed: &Card<'_>) -> Result<(), StartError> {
        // Before the rails receive it: they would take a second address as a correction of the first.
        let peers_max = self.engine.config.peers_max;
        if peer.0 >= peers_max {
            return Err(StartError::Peer(PeerError::OutOfRange { peer, peers_max }));
        }
        if self.learnt.contains(peer) {
            return Err(StartError::Peer(PeerError::Known(peer)));
        }
        let own = peer == self.engine.config.rank;
        let near = parsed.host == self.host;
        // A process reaches itself by the shortest path only.
        let within = |kind| if own { kind == RailKind::Loop } else { near && kind == RailKind::Shm };
        let mut mask = self.introduce(peer, parsed, within)?;
        if !own && (mask == 0 || self.others_beside_shm) {
            mask |= self.introduce(peer, parsed, |kind| !matches!(kind, RailKind::Loop | RailKind::Shm))?;
        }
        if mask == 0 {
            let card = parsed.emit().unwrap_or_default();
            return Err(StartError::Unreachable { peer, card });
        }
        self.engine.core.add_peer(peer, mask).map_err(StartError::Peer)?;
        self.learnt.insert(peer);
        Ok(())
    }

    /// Passes the peer's addresses to the rails of some kinds; returns those that reach it, bit i for rail i.
    fn introduce(
        &mut self,
        peer: PeerId,
        card: &Card<'_>,
        wanted: impl Fn(RailKind) -> bool,
    ) -> Result<u64, StartError> {
        let mut mask = 0;
        for (Slot { id, kind, nth, .. }, rail) in self.engine.rails.iter_mut().filter(|(slot, _)| wanted(slot.kind)) {
            let Some(address) = card.nth(*kind, *nth) else { continue };
            let reached = rail.add_peer(peer, address).map_err(|error| {
                let rail = rail.name().to_owned();
                StartError::Card { peer, error: CardError::Address { rail, address: error.address, why: error.why } }
            })?;
            mask |= u64::from(reached) << id.0;
        }
        Ok(mask)
    }

    /// Ends the opening: every rank's card has been passed to [`learn`](Self::learn).
    ///
    /// # Errors
    /// [`StartError::MissingCard`] where one has not.
    pub fn join(self) -> Result<Engine, StartError> {
        let missing = (0..self.engine.size()).map(PeerId).find(|peer| !self.learnt.contains(*peer));
        match missing {
            Some(peer) => Err(StartError::MissingCard(peer)),
            None => Ok(self.engine),
        }
    }
}

/// One bit per rank.
#[derive(Debug)]
pub(super) struct PeerSet {
    words: Vec<u64>,
}

impl PeerSet {
    pub(super) fn new(peers: u32) -> Self {
        PeerSet { words: vec![0; (peers as usize).div_ceil(64)] }
    }

    pub(super) fn insert(&mut self, peer: PeerId) {
        if let Some(word) = self.words.get_mut(peer.0 as usize / 64) {
            *word |= 1 << (peer.0 % 64);
        }
    }

    pub(super) fn remove(&mut self, peer: PeerId) {
        if let Some(word) = self.words.get_mut(peer.0 as usize / 64) {
            *word &= !(1 << (peer.0 % 64));
        }
    }

    pub(super) fn contains(&self, peer: PeerId) -> bool {
        self.words.get(peer.0 as usize / 64).is_some_and(|word| word & (1 << (peer.0 % 64)) != 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = PeerId> {
        self.words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(|(index, word)| {
            let word = *word;
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| PeerId(index as u32 * 64 + bit))
        })
    }
}
