//! Which bottlenecks rails share: a port within an HCA within a bus within "all rails to this peer".
//!
//! Two rails that look independent may not be: two ports of one HCA share its bus slot, two LMC paths share a
//! port, and everything shares what lies at the peer. The host's declarations identify the shared parts, not
//! their capacity: the endpoint measures that (rule P-14).
//!
//! Invariants: groups are laminar (two either nest or are disjoint), because a rail's group at a level is
//! named by the numbers of all levels above it too; each has at least two rails, itself among them.

use super::RAILS_MAX;

/// Where a rail sits on this host. Equal numbers mean "the same one"; 0 means "unknown, or not shared".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The port; rails with the same port are paths of it (LMC). Counted within the HCA.
    pub port: u16,
    /// The HCA or NIC. Counted within the bus.
    pub hca: u16,
    /// The bus segment or root port that the HCA's data cross.
    pub bus: u16,
}

/// Of each rail those with which it shares most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    innermost: [u64; RAILS_MAX],
}

impl Default for Groups {
    /// No rail shares anything.
    fn default() -> Self {
        Groups { innermost: [0; RAILS_MAX] }
    }
}

impl Groups {
    /// The groups of rails at `places[rail]`. Places beyond [`RAILS_MAX`] are left out: no mask can name
    /// those rails.
    pub fn new(places: &[Place]) -> Groups {
        let places = &places[..places.len().min(RAILS_MAX)];
        let mut groups = Groups::default();
        for (rail, innermost) in groups.innermost.iter_mut().enumerate().take(places.len()) {
            let at = |level: Level| {
                let name = name(places[rail], level)?;
                let rails = mask(places.iter().map(|other| self::name(*other, level) == Some(name)));
                (rails.count_ones() > 1).then_some(rails)
            };
            *innermost = [Level::Port, Level::Hca, Level::Bus, Level::Peer].into_iter().find_map(at).unwrap_or(0);
        }
        groups
    }

    /// The rails of the innermost bottleneck that a rail shares with others, itself among them; bit per rail.
    /// Empty where it shares nothing, or does not exist.
    pub fn innermost(&self, rail: usize) -> u64 {
        self.innermost.get(rail).copied().unwrap_or(0)
    }
}

/// How far in a bottleneck lies.
#[derive(Clone, Copy, Debug)]
enum Level {
    /// Paths of one port.
    Port,
    /// Ports of one HCA.
    Hca,
    /// HCAs of one bus.
    Bus,
    /// All rails to one peer: this host's memory, the peer's bus, a trunk between switches; every undeclared
    /// bottleneck.
    Peer,
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

    fn innermost<const N: usize>(places: [Place; N]) -> [u64; N] {
        let groups = Groups::new(&places);
        core::array::from_fn(|rail| groups.innermost(rail))
    }

    /// Two ports of HCA 1, one port of HCA 2 on the same bus, one rail elsewhere.
    #[test]
    fn ports_nest_in_hcas_in_buses_in_the_peer() {
        let places = [place(1, 1, 1), place(2, 1, 1), place(1, 2, 1), place(0, 0, 0)];
        assert_eq!(innermost(places), [0b0011, 0b0011, 0b0111, 0b1111]);
        assert_eq!(Groups::new(&places).innermost(4), 0);
        assert_eq!(Groups::new(&places).innermost(64), 0);
    }

    /// A rail shares a port with its other paths; alone it shares nothing.
    #[test]
    fn a_group_has_at_least_two_rails() {
        assert_eq!(innermost([place(1, 1, 1), place(1, 1, 1), place(2, 1, 1)]), [0b011, 0b011, 0b111]);
        assert_eq!(innermost([place(1, 1, 1)]), [0]);
        assert_eq!(Groups::new(&[]), Groups::default());
    }

    /// An HCA number that appears on two buses names two HCAs: else the groups would overlap.
    #[test]
    fn equal_hca_numbers_on_two_buses_are_two_hcas() {
        let places = [place(0, 1, 1), place(0, 1, 2), place(0, 1, 1), place(0, 1, 2)];
        assert_eq!(innermost(places), [0b0101, 0b1010, 0b0101, 0b1010]);
    }

    proptest! {
        /// Groups are laminar, hold their rail and another, and equal those of an oracle that compares places
        /// pair by pair: the rails with which a rail has most in common.
        #[test]
        fn groups_are_laminar(places in proptest::collection::vec((0u16..4, 0u16..4, 0u16..3), 0..80)) {
            let places: List<_> = places.into_iter().map(|(port, hca, bus)| place(port, hca, bus)).collect();
            let groups = Groups::new(&places);
            let rails = places.len().min(RAILS_MAX);
            // How much two rails have in common: 0, for what lies at the peer, to 3.
            let common = |a: usize, b: usize| {
                let (x, y) = (places[a], places[b]);
                match (x.bus == y.bus, x.hca == y.hca, x.port == y.port) {
                    (true, true, true) if x.port != 0 => 3,
                    (true, true, _) if x.hca != 0 => 2,
                    (true, ..) if x.bus != 0 => 1,
                    _ => 0,
                }
            };
            for a in 0..rails {
                let mine = groups.innermost(a);
                let most = (0..rails).filter(|b| *b != a).map(|b| common(a, b)).max();
                let expected = most.map_or(0, |most| {
                    (0..rails).filter(|b| *b == a || common(a, *b) >= most).fold(0u64, |mask, b| mask | 1 << b)
                });
                prop_assert_eq!(mine, expected, "rail {}", a);
                for b in 0..rails {
                    let (theirs, both) = (groups.innermost(b), mine & groups.innermost(b));
                    prop_assert!(both == 0 || both == mine || both == theirs);
                }
            }
            prop_assert!((rails..80).all(|rail| groups.innermost(rail) == 0));
        }
    }
}
