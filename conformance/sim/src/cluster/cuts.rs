//! The ranks between which the simulation has left no way, and those that can't be found.

use rerail_core::time::{Nanos, Time};

use super::Cluster;
use super::build::addresses_of;
use super::fault::Kind;
use super::place::Place;
use crate::check::{Cut, Hidden};
use crate::scenario::RailSpec;

impl Cluster {
    /// Ranks between which every rail went over a device that is gone and never comes back. All else that
    /// happens to a living peer is over some day, and then it must be reached again.
    pub fn cuts(&self) -> Vec<Cut> {
        let size = self.ranks.len() as u32;
        let pairs = (0..size).flat_map(|one| (one + 1..size).map(move |other| [one, other]));
        pairs.filter_map(|ranks| Some(Cut { ranks, since: self.cut_since(ranks)? })).collect()
    }

    fn cut_since(&self, ranks: [u32; 2]) -> Option<Time> {
        let hosts = ranks.map(|rank| self.wires.host_of(rank));
        let ends = self.ways.iter().filter_map(|way| match *way {
            RailSpec::Shm {} if hosts[0] != hosts[1] => None,
            RailSpec::Shm {} | RailSpec::Stream { .. } => Some(None),
            RailSpec::Hca { hca, .. } => Some(self.gone_for_good(hosts, hca)),
        });
        // The last of them; none, where one of them stands.
        ends.reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Ranks that are on no rail where they were at the start, and the ranks from which nothing but such
    /// rails leads to them: these find them only by a message from them since.
    pub fn hidden(&self) -> Vec<Hidden> {
        let size = self.ranks.len() as u32;
        let pairs =
            (0..size).flat_map(|rank| (0..size).filter(move |from| *from != rank).map(move |from| [rank, from]));
        let hidden = pairs.filter_map(|[rank, from]| {
            let calls_sources = self.ranks[rank as usize].engine.endpoint().config().keepalive > Nanos(0);
            Some(Hidden { rank, from, since: self.hidden_since(rank, from)?, calls_sources })
        });
        hidden.collect()
    }

    fn hidden_since(&self, rank: u32, from: u32) -> Option<Time> {
        let host = self.wires.host_of(rank);
        let now = addresses_of(&self.ranks[rank as usize].engine);
        let was = &self.first_addresses[rank as usize];
        let moves = self.ways.iter().zip(now.iter().zip(was)).filter_map(|(way, (now, was))| match *way {
            RailSpec::Shm {} if host != self.wires.host_of(from) => None,
            RailSpec::Shm {} | RailSpec::Stream { .. } => Some(None),
            RailSpec::Hca { .. } if now == was => Some(None),
            RailSpec::Hca { hca, .. } => Some(self.moves_since(host, hca)),
        });
        // The last of them; none, where one has not moved.
        moves.reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// When a device of a host, or a port of it, first had a fault after which it is elsewhere.
    fn moves_since(&self, host: u32, hca: u32) -> Option<Time> {
        let begun = self.faults.iter().zip(&self.begun).filter(|(_, begun)| **begun).map(|(at, _)| at);
        let moving = begun.filter(|at| {
            let there = match at.fault.place {
                Place::Hca { host, hca } | Place::Port { host, hca, .. } => (host, hca),
                Place::RankHca { rank, hca } => (self.wires.host_of(rank), hca),
                _ => return false,
            };
            at.fault.kind.moves() && there == (host, hca)
        });
        moving.map(|at| at.at.time()).min()
    }

    /// When the first of two hosts lost a device for good.
    fn gone_for_good(&self, hosts: [u32; 2], hca: u32) -> Option<Time> {
        let begun = self.faults.iter().zip(&self.begun).filter(|(_, begun)| **begun).map(|(at, _)| at);
        let there = |place: Place| hosts.into_iter().any(|host| place == Place::Hca { host, hca });
        let fatal = begun.filter(|at| at.fault.kind == Kind::DeviceFatal && at.until.is_none());
        fatal.filter(|at| there(at.fault.place)).map(|at| at.at.time()).min()
    }
}
