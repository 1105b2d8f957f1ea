//! Which ranks the world has left no way to each other.

use rerail_core::time::Time;

use super::World;
use super::fault::Kind;
use super::place::Place;
use crate::check::Cut;
use crate::scenario::RailSpec;

impl World {
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

    /// When the first of two hosts lost a device for good.
    fn gone_for_good(&self, hosts: [u32; 2], hca: u32) -> Option<Time> {
        let begun = self.faults.iter().zip(&self.begun).filter(|(_, begun)| **begun).map(|(at, _)| at);
        let there = |place: Place| hosts.into_iter().any(|host| place == Place::Hca { host, hca });
        let fatal = begun.filter(|at| at.fault.kind == Kind::DeviceFatal && at.until.is_none());
        fatal.filter(|at| there(at.fault.place)).map(|at| at.at.time()).min()
    }
}
