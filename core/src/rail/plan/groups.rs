//! Which bottlenecks rails share, as a forest: port within HCA within bus within "all rails to this peer".
//!
//! Two rails that look independent may not be: two ports of one HCA share its bus slot, two LMC paths share a port, and
//! everything shares what lies at the peer. The forest is built once from what the host declares of each rail; how much a
//! group can carry is not declared but measured, which is the caller's part.
//!
//! Invariants: groups are laminar (two either nest or are disjoint), because a rail's group at a level is named by the
//! numbers of all levels above it too; no two groups have the same rails; each has at least two; so there are fewer groups
//! than rails. A group stands after all groups within it, hence one pass in rising order goes from the leaves to the
//! roots, one in falling order back, without recursion.

use super::{RAILS_MAX, rails_of};
use heapless::Vec;

/// Where a rail sits on this host. Equal numbers mean "the same one"; 0 means "not known, or shared with nobody".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The port; rails with the same port are paths of it (LMC). Counted within the HCA.
    pub port: u16,
    /// The HCA or NIC. Counted within the bus.
    pub hca: u16,
    /// The bus segment or root port that the HCA's data cross.
    pub bus: u16,
}

/// How far in a bottleneck lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Paths of one port.
    Port,
    /// Ports of one HCA.
    Hca,
    /// HCAs of one bus.
    Bus,
    /// All rails to one peer: this host's memory, the peer's bus, a trunk between switches; whatever nobody declared.
    Peer,
}

/// The most groups of a forest: fewer than rails.
pub const GROUPS_MAX: usize = RAILS_MAX - 1;

/// Rails that share a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Bit per rail.
    pub rails: u64,
    /// The next larger group around it, by index; a root names none.
    pub parent: Option<u8>,
    /// What it stands for: the innermost level at which these are the rails.
    pub level: Level,
}

/// All groups of an endpoint's rails.
#[derive(Clone, Debug)]
pub struct Forest {
    groups: Vec<Group, GROUPS_MAX>,
    innermost: [Option<u8>; RAILS_MAX],
}

impl Default for Forest {
    /// No rail shares anything.
    fn default() -> Self {
        Forest { groups: Vec::new(), innermost: [None; RAILS_MAX] }
    }
}

impl Forest {
    /// The forest of rails at `places[rail]`. Places beyond [`RAILS_MAX`] are left out: no mask can name those rails.
    pub fn new(places: &[Place]) -> Forest {
        let places = &places[..places.len().min(RAILS_MAX)];
        let mut forest = Forest::default();
        // From the inside out, so that children stand before their parents.
        for level in [Level::Port, Level::Hca, Level::Bus, Level::Peer] {
            for (rail, place) in places.iter().enumerate() {
                let Some(name) = name(*place, level) else { continue };
                let same = |other: &Place| self::name(*other, level) == Some(name);
                let rails = mask(places.iter().map(same));
                // Each group once: at its lowest rail.
                if rails.trailing_zeros() as usize == rail {
                    forest.add(rails, level);
                }
            }
        }
        forest
    }

    /// The groups; each after those within it.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The groups around a rail, from the innermost outwards: at most four.
    pub fn around(&self, rail: usize) -> impl Iterator<Item = usize> + '_ {
        let innermost = self.innermost.get(rail).copied().flatten();
        core::iter::successors(innermost, |group| self.groups[usize::from(*group)].parent).map(usize::from)
    }

    /// The innermost group of a rail.
    pub fn innermost(&self, rail: usize) -> Option<usize> {
        self.innermost.get(rail).copied().flatten().map(usize::from)
    }

    fn add(&mut self, rails: u64, level: Level) {
        let known = self.groups.iter().any(|group| group.rails == rails);
        if rails.count_ones() < 2 || known {
            return;
        }
        let index = self.groups.len() as u8;
        // It can't be full: distinct laminar sets of two or more out of 64 are at most 63.
        if self.groups.push(Group { rails, parent: None, level }).is_err() {
            return;
        }
        let within = |group: &&mut Group| group.parent.is_none() && group.rails & rails == group.rails;
        let (inner, _) = self.groups.split_at_mut(index.into());
        inner.iter_mut().filter(within).for_each(|group| group.parent = Some(index));
        for rail in rails_of(rails) {
            self.innermost[rail].get_or_insert(index);
        }
    }
}

/// The name of the group of a rail at a level: numbers of the levels below left out, so that groups nest.
fn name(place: Place, level: Level) -> Option<Place> {
    let Place { port, hca, bus } = place;
    match level {
        Level::Port => (port != 0).then_some(place),
        Level::Hca => (hca != 0).then_some(Place { port: 0, hca, bus }),
        Level::Bus => (bus != 0).then_some(Place { port: 0, hca: 0, bus }),
        Level::Peer => Some(Place::default()),
    }
}

fn mask(members: impl Iterator<Item = bool>) -> u64 {
    members.enumerate().fold(0, |mask, (rail, member)| mask | u64::from(member) << rail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec as List;

    fn place(port: u16, hca: u16, bus: u16) -> Place {
        Place { port, hca, bus }
    }

    /// Two ports of HCA 1, one port of HCA 2 on the same bus, one rail elsewhere.
    #[test]
    fn ports_nest_in_hcas_in_buses_in_the_peer() {
        let forest = Forest::new(&[place(1, 1, 1), place(2, 1, 1), place(1, 2, 1), place(0, 0, 0)]);
        let expected = [
            Group { rails: 0b0011, parent: Some(1), level: Level::Hca },
            Group { rails: 0b0111, parent: Some(2), level: Level::Bus },
            Group { rails: 0b1111, parent: None, level: Level::Peer },
        ];
        assert_eq!(forest.groups(), expected);
        assert_eq!(forest.around(0).collect::<List<_>>(), [0, 1, 2]);
        assert_eq!(forest.around(2).collect::<List<_>>(), [1, 2]);
        assert_eq!(forest.around(3).collect::<List<_>>(), [2]);
        assert_eq!(forest.around(64).count(), 0);
    }

    /// The same rails at several levels are one group, named by the innermost.
    #[test]
    fn groups_of_equal_rails_are_one() {
        let forest = Forest::new(&[place(1, 1, 1), place(1, 1, 1)]);
        assert_eq!(forest.groups(), [Group { rails: 0b11, parent: None, level: Level::Port }]);
        assert!(Forest::new(&[place(1, 1, 1)]).groups().is_empty());
        assert!(Forest::new(&[]).groups().is_empty());
    }

    /// An HCA number that appears on two buses names two HCAs: else the groups would overlap.
    #[test]
    fn an_hca_lies_on_one_bus() {
        let forest = Forest::new(&[place(0, 1, 1), place(0, 1, 2), place(0, 1, 1), place(0, 1, 2)]);
        assert_eq!(forest.groups().iter().map(|group| group.rails).collect::<List<_>>(), [0b0101, 0b1010, 0b1111]);
    }

    proptest! {
        /// Groups are laminar, distinct, inside out, fewer than rails; parents are the smallest group around; and two
        /// rails share the group of a level exactly where the oracle, which compares places pair by pair, says so.
        #[test]
        fn forests_are_laminar(places in proptest::collection::vec((0u16..4, 0u16..4, 0u16..3), 0..80)) {
            let places: List<_> = places.into_iter().map(|(port, hca, bus)| place(port, hca, bus)).collect();
            let forest = Forest::new(&places);
            let groups = forest.groups();
            let rails = places.len().min(RAILS_MAX);
            prop_assert!(groups.len() < rails.max(1));
            for (index, group) in groups.iter().enumerate() {
                prop_assert!(group.rails.count_ones() >= 2);
                for later in &groups[index + 1..] {
                    let both = group.rails & later.rails;
                    prop_assert!(both == 0 || (both == group.rails && both != later.rails));
                }
                let around = |other: &&Group| other.rails & group.rails == group.rails && other.rails != group.rails;
                let smallest = groups.iter().filter(around).min_by_key(|other| other.rails.count_ones());
                prop_assert_eq!(group.parent.map(|parent| groups[usize::from(parent)]), smallest.copied());
            }
            for a in 0..rails {
                for b in a + 1..rails {
                    let (x, y) = (places[a], places[b]);
                    let bus = x.bus == y.bus;
                    let hca = bus && x.hca == y.hca;
                    let port = hca && x.port == y.port && x.port != 0;
                    let level = match () {
                        () if port => Level::Port,
                        () if hca && x.hca != 0 => Level::Hca,
                        () if bus && x.bus != 0 => Level::Bus,
                        () => Level::Peer,
                    };
                    let common = forest.around(a).find(|group| groups[*group].rails >> b & 1 == 1);
                    let common = common.map(|group| groups[group].level);
                    // One group may stand for several levels with the same rails; its name is the innermost.
                    prop_assert!(common.is_some_and(|common| common <= level), "{x:?} {y:?}: {common:?}, not {level:?}");
                    let rails_at = |level| mask(places[..rails].iter().map(|p| name(*p, level) == name(x, level)));
                    let group = groups.iter().find(|group| group.rails >> a & group.rails >> b & 1 == 1).unwrap();
                    prop_assert_eq!(group.rails, rails_at(level));
                }
            }
        }
    }
}
