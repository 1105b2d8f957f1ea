//! Opening a transport: rails, an address record to publish, the peers' records to read.
//!
//! [`Transport::start`] does it all through a [`Bootstrap`]. [`Opening`] is the same in steps, for hosts with
//! a launcher protocol of their own and for several transports in one thread: open, publish the record, take
//! every peer's record, join.
#![allow(unsafe_code)]

use core::fmt;

use rerail_core::config::Config;
use rerail_core::endpoint::{self, AtOnce, Event, MessageClass, PeerError, Policy};
use rerail_core::ids::PeerId;
use rerail_core::rail::{RailFacts, RailKind};
use rerail_core::time::Time;

use super::budget::{JobShape, MemoryNeed};
use super::clock::Spin;
use super::drive::Scratch;
use super::engine::{Engine, PeerSet};
use super::named::Named;
use super::queues::Queues;
use super::round_timer::RoundTimer;
use super::slots::{Rails, Slot};
use super::turns::Turns;
use super::wait::Waiter;
use super::{AddressRecord, Clock, MemoryError, StartError, System, Transport, rails};
use crate::auth::PeerKey;
use crate::bootstrap::{BootError, Bootstrap, JobKey, job_key};
use crate::memory::{Core, Mapping, Memory};
use crate::rail::Rail;
use crate::rail::shm::{ShmRail, host_id};
use crate::settings::Settings;

/// The key under which each rank publishes its address record.
const ADDRESS_RECORD_KEY: &str = "address";

/// The options of a start.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Sizes, rails and waiting.
    pub settings: Settings,
}

/// A transport whose rails are open and whose peers are not all known yet.
pub struct Opening<C: Clock = System> {
    transport: Transport<C>,
    address_record: String,
    learnt: PeerSet,
    /// Processes, this one included, that share memory.
    near: u32,
    /// With a `memory_budget`: what the need follows from.
    limited: Option<Box<Settings>>,
}

impl Transport {
    /// Opens the rails, agrees on the job's key, publishes this process's address record, reads all ranks'
    /// records. Collective: every rank of the job calls it. Makes no connection: the first request to a peer
    /// does. From then on the bootstrap is not used until [`finish`](Self::finish): a failure of its
    /// connection meanwhile has no effect (B-2).
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: Options, mut boot: Box<dyn Bootstrap>) -> Result<Transport, StartError> {
        let (rank, size) = (PeerId(boot.rank()), boot.size());
        let boot_limit = options.settings.boot_limit();
        boot.limit(boot_limit);
        let key = job_key(&mut *boot)?;
        let mut opening = Transport::open(&options, rank, size, &key)?;
        boot.put(ADDRESS_RECORD_KEY, opening.address_record())?;
        boot.fence()?;
        for rank in 0..size {
            let address_record = boot.get(rank, ADDRESS_RECORD_KEY)?;
            let absent = || StartError::Boot(BootError::Absent { rank, key: ADDRESS_RECORD_KEY.to_owned() });
            opening.learn(PeerId(rank), &address_record.ok_or_else(absent)?)?;
        }
        let mut transport = opening.join()?;
        transport.clock.boot = Some(boot);
        transport.clock.boot_limit = boot_limit;
        Ok(transport)
    }

    /// The first step of [`start`](Self::start) alone: opens the rails that the settings name, for rank
    /// `rank` of `size`. All ranks must hold the same `key`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open(options: &Options, rank: PeerId, size: u32, key: &JobKey) -> Result<Opening, StartError> {
        let settings = &options.settings;
        Opening::of_settings(settings, rank, size, None, rails::open(settings, rank, size, key)?)
    }
}

impl Opening {
    /// With rails that the settings name, already open.
    pub(super) fn of_settings(
        settings: &Settings,
        rank: PeerId,
        size: u32,
        number: Option<PeerId>,
        rails: Vec<Box<dyn Rail + Send>>,
    ) -> Result<Self, StartError> {
        let mut config = settings.to_core_config(rank, size);
        config.rails_max = u8::try_from(rails.len()).unwrap_or(u8::MAX);
        config.number = number.map(|number| number.0);
        // Another process of the same rank, before or after this one, has other numbers.
        config.first_number = crate::random::random().map_or(0, u32::from_le_bytes);
        // Without a host id from the kernel, this process's rank makes the id unique: no other process shares
        // memory with it.
        let host = settings.host_id.clone().or_else(|| host_id().ok()).unwrap_or_else(|| format!("rank{}", rank.0));
        let mut opening = Opening::with_rails(config, host, rails, settings.spin_polls)?;
        opening.transport.set_progress(settings.progress);
        opening.set_others_beside_shm(settings.tcp_beside_shm);
        opening.limited = (settings.memory_budget > 0).then(|| Box::new(settings.clone()));
        if let Some(policy) = settings.policy_small {
            opening.set_policy(MessageClass::Small, policy);
        }
        Ok(opening)
    }

    /// Ends the opening of a transport that takes names; its own is inserted.
    pub(super) fn named(mut self, named: Named) -> Result<Transport, StartError> {
        // All that are ever inserted may be of this host.
        self.check_budget(self.transport.engine.config.peers_max)?;
        let engine = &mut self.transport.engine;
        let (own, rank) = (named.own, engine.config.rank);
        engine.scratch.reports.named = Some(Box::new(named));
        engine.insert(&own, Some(rank)).map_err(|error| StartError::Insert { name: Box::new(own), error })?;
        Ok(self.transport)
    }

    /// With rails that the caller has opened (for hosts with rails of their own): see
    /// [`with_clock`](Self::with_clock). After `idle_rounds_max` rounds without result in a row, each further
    /// one yields the processor.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn with_rails(
        config: Config,
        host: String,
        rails: Vec<Box<dyn Rail + Send>>,
        idle_rounds_max: u32,
    ) -> Result<Self, StartError> {
        let rails = Rails::number(rails.into_iter().map(|rail| rail as Box<dyn Rail>).collect());
        let waiter = Waiter::new(&rails)?;
        let system = System { waiter, boot: None, boot_limit: None };
        let mut opening = Opening::over(config, host, rails, system)?;
        opening.transport.spin = Spin::new(idle_rounds_max);
        Ok(opening)
    }
}

impl<C: Clock> Opening<C> {
    /// With rails that the caller has opened (for hosts with rails of their own). Order matters: a
    /// [`Loopback`](crate::rail::loopback::Loopback) first, then shared memory, then the others; among rails
    /// of one kind, the k-th of one process meets the k-th of another. `host`: equal where processes may
    /// share memory.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn with_clock(config: Config, host: String, rails: Vec<Box<dyn Rail>>, clock: C) -> Result<Self, StartError> {
        Opening::over(config, host, Rails::number(rails), clock)
    }

    fn over(config: Config, host: String, rails: Rails, clock: C) -> Result<Self, StartError> {
        let entries = rails.iter().map(|(slot, _)| (slot.kind, &*slot.address)).collect();
        let key = rails.iter().find_map(|(_, rail)| rail.public_key());
        let address_record = AddressRecord { host: &host, key: key.map(PeerKey::Whole), rails: entries }
            .emit()
            .map_err(|error| StartError::AddressRecord { peer: config.rank, error })?;
        let facts: Vec<RailFacts> = rails.iter().map(|(_, rail)| rail.facts()).collect();
        let tables = Mapping::new(config.memory_bytes().map_err(endpoint::StartError::Config)?)?;
        let core = Core::new(config, &facts, tables, clock.now())?;
        let pool_bytes = config.pool_bytes().map_err(endpoint::StartError::Config)?;
        let pool_bytes = usize::try_from(pool_bytes)
            .map_err(|_| StartError::Memory(MemoryError::BadLength { bytes: usize::MAX }))?;
        let memory = Memory::new(pool_bytes)?;
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
            last: Time(0),
            at_once: AtOnce::default(),
            read_clock: C::READ,
            next_event: None,
            host,
            others_beside_shm: false,
            met: PeerSet::new(config.peers_max),
            lost: Vec::new(),
        };
        let learnt = PeerSet::new(config.peers_max);
        let transport = Transport {
            queues: None,
            spin: Spin::new(0),
            round_timer: RoundTimer::default(),
            turns: Turns::default(),
            engine,
            clock,
        };
        Ok(Opening { transport, address_record, learnt, near: 1, limited: None })
    }

    /// The line to publish to the peers: printable ASCII without spaces.
    pub fn address_record(&self) -> &str {
        &self.address_record
    }

    /// Takes a rank's address record (this process's own among them).
    ///
    /// # Errors
    /// [`StartError::AddressRecord`] where it can't be used, [`StartError::Unreachable`] where no rail leads
    /// there,
    /// [`StartError::Peer`] for a rank that is out of range or already known.
    pub fn learn(&mut self, peer: PeerId, address_record: &str) -> Result<(), StartError> {
        let parsed = AddressRecord::parse(address_record).map_err(|error| StartError::AddressRecord { peer, error })?;
        self.learn_parsed(peer, &parsed)
    }

    /// As [`learn`](Self::learn), with an address record that is parsed already: for many transports in one
    /// process, which keep of the record only what the rails keep. With thousands of them, pass one transport
    /// all records before the next: its tables then stay in the processor's cache.
    ///
    /// # Errors
    /// As [`learn`](Self::learn).
    pub fn learn_parsed(&mut self, peer: PeerId, parsed: &AddressRecord<'_>) -> Result<(), StartError> {
        // Before the rails receive it: they would take a second address as a correction of the first.
        let peers_max = self.transport.engine.config.peers_max;
        if peer.0 >= peers_max {
            return Err(StartError::Peer(PeerError::OutOfRange { peer, peers_max }));
        }
        if self.learnt.contains(peer) {
            return Err(StartError::Peer(PeerError::Known(peer)));
        }
        let mask =
            self.transport.engine.reach(peer, parsed).map_err(|error| StartError::AddressRecord { peer, error })?;
        if mask == 0 {
            let address_record = parsed.emit().unwrap_or_default();
            return Err(StartError::Unreachable { peer, address_record });
        }
        self.transport.engine.core.add_peer(peer, mask)?;
        self.learnt.insert(peer);
        let rails = &self.transport.engine.rails;
        self.near += u32::from(rails.shm.is_some() && mask >> rails.shm_id.0 & 1 == 1);
        Ok(())
    }

    /// Refuses more than the setting `memory_budget`, where `near` processes of the job share memory.
    fn check_budget(&self, near: u32) -> Result<(), StartError> {
        let Some(settings) = &self.limited else { return Ok(()) };
        let Engine { rails, config, .. } = &self.transport.engine;
        let count = |kind| rails.iter().filter(|(slot, _)| slot.kind == kind).count() as u32;
        let (tcp_rails, verbs_rails) = (count(RailKind::Tcp), count(RailKind::Verbs));
        let job = JobShape { size: config.peers_max, per_node: near, tcp_rails, verbs_rails };
        let need = MemoryNeed::of(settings, job).map_err(endpoint::StartError::Config)?;
        Ok(need.check(settings.memory_budget)?)
    }

    /// Whether processes of this host are reached over other rails beside shared memory: `tcp_beside_shm`.
    pub fn set_others_beside_shm(&mut self, is_enabled: bool) {
        self.transport.engine.others_beside_shm = is_enabled;
    }

    /// [`Transport::set_policy`], before the first request.
    pub fn set_policy(&mut self, class: MessageClass, policy: Policy) {
        self.transport.set_policy(class, policy);
    }

    /// Ends the opening: every rank's address record has been passed to [`learn`](Self::learn).
    ///
    /// # Errors
    /// [`StartError::MissingAddressRecord`] where one has not, [`StartError::Budget`].
    pub fn join(self) -> Result<Transport<C>, StartError> {
        let missing = (0..self.transport.size()).map(PeerId).find(|peer| !self.learnt.contains(*peer));
        match missing {
            Some(peer) => Err(StartError::MissingAddressRecord(peer)),
            None => {
                self.check_budget(self.near)?;
                Ok(self.transport)
            }
        }
    }
}

// SAFETY: the only parts that are not `Send` by themselves are boxed rails, and `Opening::with_rails`, which
// is the only place where a `System` is made, takes none but those that are.
unsafe impl Send for Opening {}
// SAFETY: as above; an opening becomes a transport.
unsafe impl Send for Transport {}

/// A transport may be made on one thread and driven on another (it is not `Sync`: one at a time).
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Opening>();
    is_send::<Transport>();
    // Their parts without the boxed rails.
    is_send::<(Core, Memory, Scratch, ShmRail, Slot, Option<Event>, PeerSet)>();
    is_send::<(Waiter, RoundTimer, Spin, Queues, Box<dyn Bootstrap>)>();
};

impl<C: Clock> fmt::Debug for Opening<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("transport", &self.transport)
            .field("address", &self.address_record)
            .finish_non_exhaustive()
    }
}
