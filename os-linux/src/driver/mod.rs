//! The driver: one endpoint of the core, bound to this machine's rails, memory and clock.
//!
//! [`Transport`] is the whole interface of an embedder: memory, requests, events, and three ways to drive it (polling,
//! waiting, or inside a host's own event loop). It starts no thread, installs no signal handler and keeps no global
//! state; several can live in one process.
//!
//! | file | holds |
//! |---|---|
//! | `open` | opening rails, exchanging cards, joining a job |
//! | `rails` | the rails that the settings ask for |
//! | `card` | the line of text by which a process tells its addresses |
//! | `submit` | memory and requests |
//! | `drive` | one round: poll rails, run timers, carry out actions |
//! | `wait` | sleeping without losing a wake-up |
//! | `finish` | leaving in good order |
//! | `error` | why each of these may refuse |

mod card;
mod drive;
mod error;
mod finish;
mod open;
mod rails;
mod submit;
mod wait;

use std::fmt;
use std::rc::Rc;

use rerail_core::config::Config;
use rerail_core::endpoint::Event;
use rerail_core::ids::{PeerId, RailId};
use rerail_core::rail::RailKind;
use rerail_core::time::Time;

use crate::bootstrap::Bootstrap;
use crate::memory::{Core, Memory};
use crate::rail::{Rail, RailCounters};

pub use crate::memory::MemoryError;
pub use card::CardError;
pub use error::{RequestError, StartError, WaitError, WindowError};
pub use finish::{Farewell, FinishError};
pub use open::{Opening, Options};
pub use wait::Woken;

use drive::Scratch;
use wait::Waiter;

/// A message transport over all rails between this process and its peers.
///
/// # Driving it
/// Submit requests whenever you like; they go out and complete only while the transport is driven. One round is
/// [`progress`](Self::progress); then take the events:
///
/// ```
/// use rerail_linux::driver::{StartError, Transport};
/// use rerail_core::endpoint::{Completion, Event};
///
/// /// Polls until one request is over.
/// fn until_completed(transport: &mut Transport) -> Completion {
///     loop {
///         transport.progress();
///         while let Some(event) = transport.poll_event() {
///             if let Event::Completed(completion) = event {
///                 return completion;
///             }
///         }
///     }
/// }
/// ```
///
/// A program that would rather sleep than poll calls [`wait`](Self::wait) when a round brought nothing. A program with
/// an event loop of its own registers [`fd`](Self::fd) for reading; before it sleeps it calls [`arm`](Self::arm) (and
/// does not sleep if that says there is work), afterwards [`disarm`](Self::disarm).
///
/// # Memory
/// Requests name memory by region: [`alloc`](Self::alloc) makes one, [`adopt`](Self::adopt) takes the caller's. What a
/// request names is checked when it is submitted. Until the request is over, its memory belongs to it: reading a
/// receive's buffer early shows some of the bytes, writing to a send's buffer sends some of the new ones; neither harms
/// anything else.
pub struct Transport {
    // Order matters: rails, which hold addresses of pieces, go before the memory that these point to.
    rails: Vec<Slot>,
    core: Core,
    memory: Memory,
    config: Config,
    scratch: Scratch,
    waiter: Waiter,
    /// An event that was taken from the core to see whether there is one.
    next_event: Option<Event>,
    /// Peers that a connection exists or was asked for with: what `finish` says goodbye to.
    met: PeerSet,
    spin: Spin,
    boot: Option<Box<dyn Bootstrap>>,
}

/// A rail and what the driver keeps beside it.
struct Slot {
    id: RailId,
    rail: Box<dyn Rail>,
    kind: RailKind,
    address: Rc<str>,
}

/// When polling gives the processor to others.
struct Spin {
    /// Rounds without result in a row.
    idle_rounds: u32,
    /// After so many, every further one yields.
    idle_rounds_max: u32,
}

/// What a rail is, for people and reports.
#[derive(Clone, Debug)]
pub struct RailInfo<'a> {
    /// Its number, as in events and errors.
    pub id: RailId,
    /// Short name: `loop`, `shm`, `tcp:eth0`.
    pub name: &'a str,
    /// The sort.
    pub kind: RailKind,
    /// This process's address on it, as published to the peers.
    pub address: &'a str,
    /// What it counted since the start.
    pub counters: RailCounters,
}

/// One bit per rank.
#[derive(Debug)]
struct PeerSet {
    words: Vec<u64>,
}

impl PeerSet {
    fn new(peers: u32) -> Self {
        PeerSet { words: vec![0; (peers as usize).div_ceil(64)] }
    }

    fn insert(&mut self, peer: PeerId) {
        if let Some(word) = self.words.get_mut(peer.0 as usize / 64) {
            *word |= 1 << (peer.0 % 64);
        }
    }

    fn remove(&mut self, peer: PeerId) {
        if let Some(word) = self.words.get_mut(peer.0 as usize / 64) {
            *word &= !(1 << (peer.0 % 64));
        }
    }

    fn contains(&self, peer: PeerId) -> bool {
        self.words.get(peer.0 as usize / 64).is_some_and(|word| word & (1 << (peer.0 % 64)) != 0)
    }

    fn iter(&self) -> impl Iterator<Item = PeerId> {
        self.words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(|(index, word)| {
            let word = *word;
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| PeerId(index as u32 * 64 + bit))
        })
    }
}

impl Transport {
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
        self.rails.iter().map(|slot| RailInfo {
            id: slot.id,
            name: slot.rail.name(),
            kind: slot.kind,
            address: &slot.address,
            counters: slot.rail.counters(),
        })
    }

    /// The next thing that the caller wants to know. Take events after each round: requests that are over keep their
    /// place in the core's tables until their event is taken.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.next_event.take().or_else(|| self.core.poll_event())?;
        match event {
            Event::PeerUp { peer } => self.met.insert(peer),
            Event::PeerClosed { peer } | Event::PeerLost { peer, .. } => self.met.remove(peer),
            Event::Completed(_) => {}
        }
        Some(event)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            // All that is under way, for people who look for the reason of a hang.
            return write!(f, "{:?}", *self.core);
        }
        f.debug_struct("Transport")
            .field("rank", &self.config.rank)
            .field("size", &self.config.peers_max)
            .field("rails", &self.rails.iter().map(|slot| slot.rail.name()).collect::<Vec<_>>())
            .field("stats", &self.core.stats())
            .finish_non_exhaustive()
    }
}

/// The system's monotonic clock.
fn now() -> Time {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is negative: the clock counts up from the machine's start.
    Time((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

#[cfg(test)]
mod tests;
