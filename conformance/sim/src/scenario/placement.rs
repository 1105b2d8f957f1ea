//! Which host a rank runs on.

use super::Scenario;

/// How ranks are spread over hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    pub(crate) hosts: u32,
    pub(crate) ranks_per_host: u32,
    /// One rank to each host in turn, and not host after host.
    pub(crate) scattered: bool,
}

impl Placement {
    pub(crate) fn host_of(self, rank: u32) -> u32 {
        match self.scattered {
            true => rank % self.hosts.max(1),
            false => rank / self.ranks_per_host.max(1),
        }
    }

    /// Counted among the ranks of its host.
    pub(crate) fn local_rank_of(self, rank: u32) -> u32 {
        match self.scattered {
            true => rank / self.hosts.max(1),
            false => rank % self.ranks_per_host.max(1),
        }
    }
}

impl Scenario {
    /// The host of a rank.
    pub fn host_of(&self, rank: u32) -> u32 {
        self.placement().host_of(rank)
    }

    pub(crate) fn placement(&self) -> Placement {
        Placement { hosts: self.hosts, ranks_per_host: self.ranks_per_host, scattered: self.scattered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_its_place() {
        for scattered in [false, true] {
            let placement = Placement { hosts: 3, ranks_per_host: 2, scattered };
            let mut places: Vec<_> = (0..6).map(|r| (placement.host_of(r), placement.local_rank_of(r))).collect();
            assert_eq!(places[1], if scattered { (1, 0) } else { (0, 1) });
            places.sort_unstable();
            assert_eq!(places, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
        }
    }
}
