//! Opening a transport: rails, a card to publish, the peers' cards to read.
//!
//! [`Transport::start`] does it all through a [`Bootstrap`]. [`Opening`] is the same in steps, for hosts with
//! a launcher protocol of their own and for several transports in one thread: open, publish the card, take
//! every peer's card, join.
#![allow(unsafe_code)]

use core::fmt;

use rerail_core::config::Config;
use rerail_core::ids::PeerId;

use super::drive::Scratch;
use super::engine::PeerSet;
use super::pace::Pace;
use super::queues::Queues;
use super::slots::Slot;
use super::wait::Waiter;
use super::{EngineOpening, Event, Spin, StartError, Transport, now, rails};
use crate::bootstrap::{BootError, Bootstrap, JobKey, job_key};
use crate::memory::{Core, Memory};
use crate::rail::Rail;
use crate::rail::shm::{ShmRail, host_id};
use crate::settings::Settings;

/// The key under which each rank publishes its card.
const CARD_KEY: &str = "card";

/// The options of a start.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Sizes, rails and waiting.
    pub settings: Settings,
}

/// A transport whose rails are open and whose peers are not all known yet.
pub struct Opening {
    engine: EngineOpening,
    waiter: Waiter,
    spin: Spin,
}

impl Transport {
    /// Opens the rails, agrees on the job's key, publishes this process's card, reads all ranks' cards.
    /// Collective: every rank of the job calls it. Makes no connection: the first request to a peer does.
    /// From then on the bootstrap is not used until [`finish`](Self::finish): a failure of its
    /// connection meanwhile has no effect (B-2).
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: Options, mut boot: Box<dyn Bootstrap>) -> Result<Transport, StartError> {
        let (rank, size) = (PeerId(boot.rank()), boot.size());
        let boot_limit = options.settings.boot_limit();
        boot.limit(boot_limit);
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
        transport.boot_limit = boot_limit;
        Ok(transport)
    }

    /// The first step of [`start`](Self::start) alone: opens the rails that the settings name, for rank
    /// `rank` of `size`. All ranks must hold the same `key`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open(options: &Options, rank: PeerId, size: u32, key: &JobKey) -> Result<Opening, StartError> {
        let settings = &options.settings;
        Opening::of_settings(settings, rank, size, rails::open(settings, rank, size, key)?)
    }
}

impl EngineOpening {
    /// Whether processes of this host are reached over other rails beside shared memory: `tcp_beside_shm`.
    pub fn set_others_beside_shm(&mut self, is_wanted: bool) {
        self.others_beside_shm = is_wanted;
    }
}

impl Opening {
    /// With rails that the settings name, already open.
    pub(super) fn of_settings(
        settings: &Settings,
        rank: PeerId,
        size: u32,
        rails: Vec<Box<dyn Rail + Send>>,
    ) -> Result<Self, StartError> {
        let mut config = settings.to_core_config(rank, size);
        config.rails_max = u8::try_from(rails.len()).unwrap_or(u8::MAX);
        // Another process of the same rank, before or after this one, has other numbers.
        config.first_number = crate::random::random().map_or(0, u32::from_le_bytes);
        // Without a host id from the kernel, this process's rank makes the id unique: no other process shares
        // memory with it.
        let host = settings.host_id.clone().or_else(|| host_id().ok()).unwrap_or_else(|| format!("rank{}", rank.0));
        let mut opening = Opening::with_rails(config, host, rails, settings.spin_polls)?;
        opening.engine.set_others_beside_shm(settings.tcp_beside_shm);
        settings.class_policies().for_each(|(class, policy)| opening.engine.set_policy(class, policy));
        Ok(opening)
    }

    /// With rails that the caller has opened (for hosts with rails of their own): see
    /// [`EngineOpening::with_rails`]. After `idle_rounds_max` rounds without result in a row, each further
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
        let rails = rails.into_iter().map(|rail| rail as Box<dyn Rail>).collect();
        let engine = EngineOpening::with_rails(config, host, rails, now())?;
        let waiter = Waiter::new(engine.rails()).map_err(StartError::Wait)?;
        Ok(Opening { engine, waiter, spin: Spin { idle_rounds: 0, idle_rounds_max } })
    }

    /// The line to publish to the peers: printable ASCII without spaces.
    pub fn card(&self) -> &str {
        self.engine.card()
    }

    /// Takes a rank's card (this process's own among them).
    ///
    /// # Errors
    /// See [`EngineOpening::learn`].
    pub fn learn(&mut self, peer: PeerId, card: &str) -> Result<(), StartError> {
        self.engine.learn(peer, card)
    }

    /// Ends the opening: every rank's card has been passed to [`learn`](Self::learn).
    ///
    /// # Errors
    /// [`StartError::MissingCard`] where one has not.
    pub fn join(self) -> Result<Transport, StartError> {
        let Opening { engine, waiter, spin } = self;
        Ok(Transport {
            engine: engine.join()?,
            waiter,
            spin,
            pace: Pace::default(),
            boot: None,
            queues: None,
            boot_limit: None,
        })
    }
}

// SAFETY: the only parts that are not `Send` by themselves are boxed rails, and `Opening::with_rails`, which
// is the only place where either gets them, takes none but those that are.
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
    is_send::<(Waiter, Pace, Spin, Queues, Box<dyn Bootstrap>)>();
};

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("engine", &self.engine).finish_non_exhaustive()
    }
}
