//! Opening a transport: rails, a card to publish, the peers' cards to read.
//!
//! [`Transport::start`] does it all through a [`Bootstrap`]. [`Opening`] is the same in steps, for hosts with a
//! launcher protocol of their own and for several transports in one thread: open, publish the card, learn every
//! peer's card, join.

use rerail_core::config::Config;
use rerail_core::ids::{PeerId, RailId};
use rerail_core::rail::{RailFacts, RailKind};

use super::card::{Card, CardError};
use super::drive::Scratch;
use super::wait::Waiter;
use super::{PeerSet, Slot, Spin, StartError, Transport, now, rails};
use crate::bootstrap::{BootError, Bootstrap, JobKey, job_key};
use crate::memory::{Core, CoreError, Memory, MemoryError};
use crate::rail::Rail;
use crate::rail::shm::host_id;
use crate::settings::Settings;

/// The key under which each rank publishes its card.
const CARD_KEY: &str = "card";

/// What a transport is started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Sizes, rails and waiting.
    pub settings: Settings,
}

/// A transport whose rails are open and whose peers are not all known yet.
#[derive(Debug)]
pub struct Opening {
    transport: Transport,
    host: String,
    card: String,
    learnt: PeerSet,
    /// Whether peers with which memory is shared are reached over TCP too.
    tcp_beside_shm: bool,
}

impl Transport {
    /// Opens the rails, agrees on the job's key, publishes this process's card, reads everybody's. Collective: every
    /// rank of the job calls it. Returns with no connection made: these come with the first request to a peer.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: Options, mut boot: Box<dyn Bootstrap>) -> Result<Transport, StartError> {
        let (rank, size) = (PeerId(boot.rank()), boot.size());
        let key = job_key(&mut *boot).map_err(StartError::Boot)?;
        let mut opening = Transport::open(&options, rank, size, &key)?;
        boot.put(CARD_KEY, opening.card()).map_err(StartError::Boot)?;
        boot.fence().map_err(StartError::Boot)?;
        for rank in 0..size {
            let card = boot.get(rank, CARD_KEY).map_err(StartError::Boot)?;
            let absent = || StartError::Boot(BootError::Absent { rank, key: CARD_KEY.to_owned() });
            opening.learn(PeerId(rank), &card.ok_or_else(absent)?)?;
        }
        let mut transport = opening.join()?;
        transport.boot = Some(boot);
        Ok(transport)
    }

    /// The first step of [`start`](Self::start) alone: opens the rails that the settings name, for rank `rank` of `size`.
    /// All ranks must hold the same `key`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open(options: &Options, rank: PeerId, size: u32, key: &JobKey) -> Result<Opening, StartError> {
        let settings = &options.settings;
        let rails = rails::open(settings, rank, size, key)?;
        let mut config = settings.to_core_config(rank, size);
        config.rails_max = u8::try_from(rails.len()).unwrap_or(u8::MAX);
        // Without a name from the kernel nobody shares memory with this process, which its rank makes sure of.
        let host = settings.host_id.clone().or_else(|| host_id().ok()).unwrap_or_else(|| format!("rank{}", rank.0));
        let mut opening = Opening::with_rails(config, host, rails, settings.spin_polls)?;
        opening.tcp_beside_shm = settings.tcp_beside_shm;
        Ok(opening)
    }
}

impl Opening {
    /// With rails that the caller has opened (for hosts with rails of their own). Order matters: a
    /// [`Loopback`](crate::rail::loopback::Loopback) first, then shared memory, then the others; among rails of one kind,
    /// the k-th of one process meets the k-th of another. `host`: equal where processes may share memory. After
    /// `idle_rounds_max` rounds without result in a row, each further one yields the processor.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn with_rails(
        config: Config,
        host: String,
        rails: Vec<Box<dyn Rail>>,
        idle_rounds_max: u32,
    ) -> Result<Self, StartError> {
        let rails: Vec<Slot> = rails
            .into_iter()
            .zip(0..=u8::MAX)
            .map(|(rail, index)| Slot {
                id: RailId(index),
                kind: rail.facts().kind,
                address: rail.address().into(),
                rail,
            })
            .collect();
        let entries = rails.iter().map(|slot| (slot.kind, &*slot.address)).collect();
        let card = Card { host: &host, rails: entries }
            .emit()
            .map_err(|error| StartError::Card { peer: config.rank, error })?;
        let facts: Vec<RailFacts> = rails.iter().map(|slot| slot.rail.facts()).collect();
        let core = Core::new(config, &facts, now()).map_err(|error| match error {
            CoreError::Start(error) => StartError::Core(error),
            CoreError::Memory(error) => StartError::Memory(error),
        })?;
        let pool_bytes =
            config.pool_bytes().map_err(|error| StartError::Core(rerail_core::endpoint::StartError::Config(error)))?;
        let pool_bytes = usize::try_from(pool_bytes)
            .map_err(|_| StartError::Memory(MemoryError::BadLength { bytes: usize::MAX }))?;
        let memory = Memory::new(pool_bytes).map_err(StartError::Memory)?;
        let waiter = Waiter::new(&rails).map_err(StartError::Wait)?;
        let transport = Transport {
            rails,
            core,
            memory,
            config,
            scratch: Scratch::default(),
            waiter,
            next_event: None,
            met: PeerSet::new(config.peers_max),
            spin: Spin { idle_rounds: 0, idle_rounds_max },
            boot: None,
        };
        Ok(Opening { transport, host, card, learnt: PeerSet::new(config.peers_max), tcp_beside_shm: false })
    }

    /// What to publish to the peers: one line of printable ASCII without spaces.
    pub fn card(&self) -> &str {
        &self.card
    }

    /// Takes a rank's card (this process's own among them).
    ///
    /// # Errors
    /// [`StartError::Card`] where it can't be used, [`StartError::Unreachable`] where no rail leads there,
    /// [`StartError::Peer`] for a rank that is out of range or was learnt before.
    pub fn learn(&mut self, peer: PeerId, card: &str) -> Result<(), StartError> {
        let parsed = Card::parse(card).map_err(|error| StartError::Card { peer, error })?;
        let own = peer == self.transport.config.rank;
        let near = parsed.host == self.host;
        // To itself a process goes the shortest way only.
        let within = |kind| if own { kind == RailKind::Loop } else { near && kind == RailKind::Shm };
        let mut mask = self.introduce(peer, &parsed, within)?;
        if !own && (mask == 0 || self.tcp_beside_shm) {
            mask |= self.introduce(peer, &parsed, |kind| !matches!(kind, RailKind::Loop | RailKind::Shm))?;
        }
        if mask == 0 {
            return Err(StartError::Unreachable { peer, card: card.to_owned() });
        }
        self.transport.core.add_peer(peer, mask).map_err(StartError::Peer)?;
        self.learnt.insert(peer);
        Ok(())
    }

    /// Tells the rails of some kinds where the peer is; gives those that reach it, bit i for rail i.
    fn introduce(
        &mut self,
        peer: PeerId,
        card: &Card<'_>,
        wanted: impl Fn(RailKind) -> bool,
    ) -> Result<u64, StartError> {
        let rails = &mut self.transport.rails;
        let mut mask = 0;
        for index in 0..rails.len() {
            let kind = rails[index].kind;
            // The k-th of a kind here meets the k-th there.
            let nth = rails[..index].iter().filter(|slot| slot.kind == kind).count();
            let Some(address) = card.nth(kind, nth).filter(|_| wanted(kind)) else { continue };
            let Slot { id, rail, .. } = &mut rails[index];
            let reached = rail.add_peer(peer, address).map_err(|error| {
                let rail = rail.name().to_owned();
                StartError::Card { peer, error: CardError::Address { rail, address: error.address, why: error.why } }
            })?;
            mask |= u64::from(reached) << id.0;
        }
        Ok(mask)
    }

    /// Ends the opening: every rank's card has been learnt.
    ///
    /// # Errors
    /// [`StartError::MissingCard`] where one has not.
    pub fn join(self) -> Result<Transport, StartError> {
        let missing = (0..self.transport.size()).map(PeerId).find(|peer| !self.learnt.contains(*peer));
        match missing {
            Some(peer) => Err(StartError::MissingCard(peer)),
            None => Ok(self.transport),
        }
    }
}
