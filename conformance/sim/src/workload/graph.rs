//! The pairs of processes that communicate in the applications of xrc-2008's tables II and III, for 64
//! processes.
//!
//! The NAS kernels follow from how they are written: processes on a grid, and the butterfly (rank xor a power
//! of two) of reductions and barriers. That these graphs have the tables' averages to the digit, and as many
//! peers on other nodes of 8 processes as the tables count queue pairs of RC-SRQ, is the evidence that they
//! are right. NAMD's patterns follow from its input, which was not printed: there pairs are drawn by a fixed
//! seed, as many inside nodes and between them as in the tables, and rank 0 talks to all.

use std::collections::BTreeSet;

use crate::rng::Rng;

/// Processes of the tables.
pub(crate) const SIZE: u32 = 64;

/// Processes of a node, whose pairs use shared memory and no queue pair.
const NODE: u32 = 8;

/// An application of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Application {
    /// As in scenario files.
    pub(crate) name: &'static str,
    /// Bytes of a typical message (class C for NAS kernels), to the order of magnitude.
    pub(crate) bytes: u64,
    shape: Shape,
}

/// How the pairs come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Each with each.
    All,
    /// The butterfly alone.
    Butterfly,
    /// The butterfly, and the transpose of an 8 x 8 grid.
    Transpose,
    /// The butterfly, and neighbours in a 4 x 4 x 4 torus.
    Torus,
    /// The butterfly, and neighbours in an 8 x 8 mesh.
    Mesh,
    /// The butterfly, and the six neighbours of the multi-partition scheme on an 8 x 8 torus.
    MultiPartition,
    /// So many pairs inside of nodes and between them, drawn.
    Drawn { inside: usize, between: usize },
}

/// All applications.
pub(crate) const APPLICATIONS: [Application; 12] = [
    Application { name: "nas-is", bytes: 32 * 1024, shape: Shape::All },
    Application { name: "nas-cg", bytes: 150_000, shape: Shape::Transpose },
    Application { name: "nas-mg", bytes: 130_000, shape: Shape::Torus },
    Application { name: "nas-lu", bytes: 820, shape: Shape::Mesh },
    Application { name: "nas-ft", bytes: 512 * 1024, shape: Shape::All },
    Application { name: "nas-sp", bytes: 45_000, shape: Shape::MultiPartition },
    Application { name: "nas-bt", bytes: 78_000, shape: Shape::MultiPartition },
    Application { name: "nas-ep", bytes: 80, shape: Shape::Butterfly },
    Application { name: "namd-apoa1", bytes: 4096, shape: Shape::Drawn { inside: 218, between: 1523 } },
    Application { name: "namd-flatpase", bytes: 8192, shape: Shape::Drawn { inside: 222, between: 1768 } },
    Application { name: "namd-jac2000", bytes: 8192, shape: Shape::All },
    Application { name: "namd-er-gre", bytes: 1024, shape: Shape::Drawn { inside: 171, between: 641 } },
];

/// The application of a name.
pub(crate) fn application(name: &str) -> Option<&'static Application> {
    APPLICATIONS.iter().find(|application| application.name == name)
}

impl Application {
    /// The peers of each of the [`SIZE`] processes, ascending; the relation is symmetric.
    pub(crate) fn peers(&self) -> Vec<Vec<u32>> {
        let mut pairs = Pairs::default();
        match self.shape {
            Shape::All => (0..SIZE).for_each(|a| (a + 1..SIZE).for_each(|b| pairs.join(a, b))),
            Shape::Drawn { inside, between } => pairs.draw(self.name, inside, between),
            Shape::Butterfly | Shape::Transpose | Shape::Torus | Shape::Mesh | Shape::MultiPartition => {
                (0..SIZE).for_each(|rank| pairs.grid(self.shape, rank));
            }
        }
        (0..SIZE).map(|rank| pairs.of(rank)).collect()
    }
}

/// Pairs that talk, the smaller rank first.
#[derive(Default)]
struct Pairs(BTreeSet<(u32, u32)>);

impl Pairs {
    fn join(&mut self, a: u32, b: u32) {
        if a != b {
            self.0.insert((a.min(b), a.max(b)));
        }
    }

    fn of(&self, rank: u32) -> Vec<u32> {
        let others = (0..SIZE).filter(|other| self.0.contains(&(rank.min(*other), rank.max(*other))));
        others.collect()
    }

    /// A rank's pairs of a shape that has a butterfly.
    fn grid(&mut self, shape: Shape, rank: u32) {
        (0..SIZE.trailing_zeros()).for_each(|bit| self.join(rank, rank ^ 1 << bit));
        let (row, column) = (rank / 8, rank % 8);
        match shape {
            Shape::Transpose => self.join(rank, column * 8 + row),
            Shape::Torus => {
                let (x, y, z) = (rank % 4, rank / 4 % 4, rank / 16);
                self.join(rank, z * 16 + y * 4 + (x + 1) % 4);
                self.join(rank, z * 16 + (y + 1) % 4 * 4 + x);
                self.join(rank, (z + 1) % 4 * 16 + y * 4 + x);
            }
            Shape::Mesh => {
                self.join(rank, row * 8 + (column + 1).min(7));
                self.join(rank, (row + 1).min(7) * 8 + column);
            }
            Shape::MultiPartition => {
                self.join(rank, row * 8 + (column + 1) % 8);
                self.join(rank, (row + 1) % 8 * 8 + column);
                self.join(rank, (row + 1) % 8 * 8 + (column + 7) % 8);
            }
            Shape::All | Shape::Butterfly | Shape::Drawn { .. } => {}
        }
    }

    /// Rank 0 with all; then what is missing, from all other pairs with equal chances. The seed is the name:
    /// an application has one pattern.
    fn draw(&mut self, name: &str, inside: usize, between: usize) {
        (1..SIZE).for_each(|other| self.join(0, other));
        let mut rng = Rng::new(0, name);
        for (same_node, wanted) in [(true, inside), (false, between)] {
            let sort = |(a, b): &(u32, u32)| (a / NODE == b / NODE) == same_node;
            let all = (0..SIZE).flat_map(|a| (a + 1..SIZE).map(move |b| (a, b))).filter(sort);
            let mut free: Vec<_> = all.filter(|pair| !self.0.contains(pair)).collect();
            let present = self.0.iter().filter(|pair| sort(pair)).count();
            for _ in present..wanted {
                let drawn = rng.below(free.len() as u64) as usize;
                self.0.insert(free.swap_remove(drawn));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table II and table III: average and maximum of peers, and the average of RC-SRQ's queue pairs per
    /// process (of EXRC for er-gre, whose queue pairs per node contradict the other column), all in
    /// hundredths.
    const TABLES: [(&str, u64, u64, u64); 12] = [
        ("namd-apoa1", 5441, 63, 4759),
        ("namd-flatpase", 6219, 63, 5525),
        ("namd-jac2000", 6300, 63, 5600),
        ("namd-er-gre", 2538, 63, 2003),
        ("nas-is", 6300, 63, 5600),
        ("nas-cg", 688, 7, 388),
        ("nas-mg", 900, 9, 500),
        ("nas-lu", 750, 8, 375),
        ("nas-ft", 6300, 63, 5600),
        ("nas-sp", 1000, 10, 600),
        ("nas-bt", 1000, 10, 600),
        ("nas-ep", 600, 6, 300),
    ];

    /// In hundredths, half up, as printed.
    fn average(total: usize) -> u64 {
        (total as u64 * 200 / u64::from(SIZE)).div_ceil(2)
    }

    #[test]
    fn peers_are_those_of_the_tables() {
        for (name, average_peers, most, elsewhere) in TABLES {
            let peers = application(name).expect("an application of that name").peers();
            assert_eq!(average(peers.iter().map(Vec::len).sum()), average_peers, "{name}");
            assert_eq!(peers.iter().map(Vec::len).max(), Some(most as usize), "{name}");
            let other_nodes =
                |(rank, of): (u32, &Vec<u32>)| of.iter().filter(|peer| *peer / NODE != rank / NODE).count();
            assert_eq!(average((0..).zip(&peers).map(other_nodes).sum()), elsewhere, "{name}, to other nodes");
        }
    }

    #[test]
    fn peer_graphs_are_symmetric_and_exclude_self() {
        for application in &APPLICATIONS {
            let peers = application.peers();
            for (rank, of) in (0..).zip(&peers) {
                assert!(!of.contains(&rank), "{}: rank {rank}", application.name);
                assert!(
                    of.iter().all(|peer| peers[*peer as usize].contains(&rank)),
                    "{}: rank {rank}",
                    application.name
                );
            }
        }
    }
}
