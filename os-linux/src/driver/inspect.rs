//! A transport, to look at: rank, rails, deadlines.

use std::fmt;

use rerail_core::config::Config;
use rerail_core::endpoint::{Endpoint, RailStats};
use rerail_core::ids::{PeerId, RailId};
use rerail_core::rail::RailKind;
use rerail_core::time::{Nanos, Time};
use rustix::io::Errno;

use super::{Clock, Transport};
use crate::rail::shortage::remedy;
use crate::rail::{RailCounters, RailUsage};

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

impl<C: Clock> Transport<C> {
    /// This process's rank.
    pub fn rank(&self) -> PeerId {
        self.engine.config.rank
    }

    /// Processes in the job, this one included.
    pub fn size(&self) -> u32 {
        self.engine.config.peers_max
    }

    /// The core's sizes and settings, as this transport runs with them.
    pub fn config(&self) -> &Config {
        &self.engine.config
    }

    /// The core's endpoint, to look at: policies, the health of rails, how full its tables are.
    pub fn endpoint(&self) -> &Endpoint<'_> {
        &self.engine.core
    }

    /// The rails, in the order of their numbers.
    pub fn rails(&self) -> impl Iterator<Item = RailInfo<'_>> {
        self.engine.rails.iter().map(|(slot, rail)| RailInfo {
            id: slot.id,
            name: rail.name(),
            kind: slot.kind,
            address: &slot.address,
            counters: rail.counters(),
            stats: self.engine.core.rail_stats(slot.id).unwrap_or_default(),
            usage: rail.usage(),
        })
    }

    /// When [`round`](Self::round) has something to do even if no rail brings anything.
    pub fn next_timeout(&self) -> Option<Time> {
        let rails = self.engine.rails.iter().filter_map(|(_, rail)| rail.next_timeout());
        self.engine.core.next_timeout().into_iter().chain(rails).min()
    }

    /// Changes how long a peer may be silent before it is probed; `Nanos(0)`: peers are no longer probed, so
    /// that a transport without work becomes idle.
    pub fn set_keepalive(&mut self, keepalive: Nanos) {
        self.engine.core.set_keepalive(self.clock.now(), keepalive);
    }

    /// Whether a rail may still lose data posted to a disconnected peer if the process ended now.
    pub fn is_closing(&self) -> bool {
        self.engine.rails.iter().any(|(_, rail)| rail.is_closing())
    }

    /// Registrations that rails hold for requests of this process: none where no request is open.
    pub fn registrations(&self) -> usize {
        self.engine.rails.iter().map(|(slot, _)| slot.registrations).sum()
    }
}

impl<C: Clock> fmt::Debug for Transport<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            // All pending work, for people who look for the reason of a hang.
            return write!(f, "{:?}", *self.engine.core);
        }
        f.debug_struct("Transport")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("rails", &self.rails().map(|rail| rail.name).collect::<Vec<_>>())
            .field("stats", &self.engine.core.stats())
            .finish_non_exhaustive()
    }
}

/// Connections that this process could neither open nor accept since it started, because it, or the system,
/// had no descriptor or no memory left. They are retried (F-8): a shortage that ends does no harm. One that
/// goes on keeps requests waiting until the peer is lost (`connect_timeout`, `recovery_timeout`), and its
/// peers receive no reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rail {rail} can't open or accept a connection: {errno}{}", remedy(*.errno))]
pub struct Shortage {
    /// How many over all rails. While it grows, the shortage continues.
    pub times: u64,
    /// Of the rail that failed most often: its name.
    pub rail: String,
    /// The system's last error.
    #[source]
    pub errno: Errno,
}

impl<C: Clock> Transport<C> {
    /// The shortage of this process's connections, past or present; `None`: none so far. Check it where
    /// requests take too long.
    pub fn shortage(&self) -> Option<Shortage> {
        let rails = || self.engine.rails.iter().map(|(_, rail)| (rail.name(), rail.counters()));
        let (rail, worst) = rails().max_by_key(|(_, counters)| counters.shortages)?;
        let times = rails().map(|(_, counters)| counters.shortages).sum();
        Some(Shortage { times, rail: rail.to_owned(), errno: worst.shortage? })
    }
}
