//! Registered memory: delayed answers, keys that are valid from registration to deregistration, and remote
//! access to registered memory only.

use super::Cluster;
use rerail_core::endpoint::{self, RailFault};
use rerail_core::ids::{OpId, RailId};
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::time::Nanos;
use rerail_core::wire::RemoteKey;

/// Memory of one process that is registered with one rail, or requested to be.
struct Registration {
    rank: usize,
    rail: RailId,
    seg: Seg,
    /// Requested by this operation and not answered yet.
    operation: Option<OpId>,
    key: u64,
    write: bool,
}

/// All of them.
#[derive(Default)]
pub(super) struct Registrations {
    all: Vec<Registration>,
    keys: u64,
}

impl Registrations {
    pub(super) fn request(&mut self, rank: usize, operation: OpId, rail: RailId, (seg, write): (Seg, bool)) {
        self.keys += 1;
        self.all.push(Registration { rank, rail, seg, operation: Some(operation), key: self.keys, write });
    }

    /// Ends a registration; `false`: there is no such.
    pub(super) fn forget(&mut self, rank: usize, rail: RailId, key: RemoteKey) -> bool {
        let found = self.all.iter().position(|r| {
            (r.rank, r.rail, r.key) == (rank, rail, key.key) && r.operation.is_none() && r.seg.at.offset == key.address
        });
        found.map(|at| self.all.swap_remove(at)).is_some()
    }

    pub(super) fn are_answered(&self) -> bool {
        self.all.iter().all(|r| r.operation.is_none())
    }
}

impl Cluster<'_> {
    /// Registrations that are live.
    pub fn registered(&self) -> usize {
        self.registrations.all.len()
    }

    /// Answers some of a process's pending registrations, in any order, one in eight with a failure.
    pub(super) fn answer_registrations(&mut self, rank: usize) {
        let mut at = 0;
        while at < self.registrations.all.len() {
            let requested = &mut self.registrations.all[at];
            at += 1;
            if requested.rank != rank || requested.operation.is_none() || self.rng.one_in(2) {
                continue;
            }
            let (operation, rail, bytes) =
                (requested.operation.take().unwrap_or_default(), requested.rail, requested.seg.len);
            let what =
                if requested.write { endpoint::Registration::Writable } else { endpoint::Registration::Readable };
            // Cheap and expensive rails, memory that was registered before and memory that was not: so that
            // the rails worth registering vary (P-15).
            if self.rng.one_in(2) {
                let took = Nanos(self.rng.below(1 << (4 + 8 * u64::from(rail.0 % 3))));
                self.nodes[rank].endpoint.handle_registration_cost(rail, what, bytes, took);
            }
            let requested = &mut self.registrations.all[at - 1];
            let key = if self.rng.one_in(8) {
                at -= 1;
                self.registrations.all.swap_remove(at);
                Err(RailFault::Device { code: 12 })
            } else {
                Ok(RemoteKey { rail: 0, connection: 0, key: requested.key, address: requested.seg.at.offset })
            };
            self.actions += 1;
            self.nodes[rank].endpoint.handle_registered(operation, rail, key);
        }
    }

    /// The memory that a remote write or read names. `None`: it is gone, as may happen after a fault.
    pub(super) fn remote_seg(&self, rank: usize, rail: usize, key: RemoteKey, len: u64) -> Option<Seg> {
        let live = self.registrations.all.iter().find(|r| {
            let start = r.seg.at.offset;
            let inside =
                key.address >= start && key.address - start <= r.seg.len && len <= r.seg.len - (key.address - start);
            r.rank == rank && usize::from(r.rail.0) == rail && r.key == key.key && r.operation.is_none() && inside
        });
        assert!(
            live.is_some() || self.faulty || !self.honest,
            "a remote access to memory that is not registered: {key:?}"
        );
        let RegionId(region) = live?.seg.at.region;
        Some(Seg { at: MemRef { region: RegionId(region), offset: key.address }, len })
    }
}
