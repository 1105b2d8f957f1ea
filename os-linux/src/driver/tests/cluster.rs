//! A small cluster: some transports of one job in one thread.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use rerail_core::config::Config;
use rerail_core::endpoint::{Completion, Done, Event, OpError, RecvRequest, Selector, SendRequest};
use rerail_core::ids::{OpId, PeerId};
use rerail_core::mem::{RegionId, Seg};

use crate::auth::testing::credentials;
use crate::driver::{Opening, Transport};
use crate::rail::Rail;
use crate::rail::loopback::Loopback;
use crate::rail::shm::{ShmOptions, ShmRail};
use crate::rail::tcp::{TcpOptions, TcpRail};

/// Rounds after which something that should happen counts as never happening. A round polls every rail of
/// every transport once, so this is far beyond what any exchange here takes; it bounds work, not time.
const ROUNDS_MAX: usize = 20_000_000;

/// The job that all clusters here are of.
pub(super) const JOB: u64 = 42;

/// Which rails connect the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fabric {
    /// One rank that sends to itself.
    Loop,
    /// Shared memory.
    Shm,
    /// One TCP rail.
    Tcp,
    /// Two TCP rails, on addresses of their own.
    TwoTcp,
}

/// Transports and their events.
pub(super) struct Cluster {
    pub(super) transports: Vec<Transport>,
    /// Events of each transport that no test has taken yet.
    pub(super) events: Vec<VecDeque<Event>>,
    /// Whether `step` leaves the transport alone.
    pub(super) frozen: Vec<bool>,
}

/// The two ends of a test; on [`Fabric::Loop`] both are the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) a: usize,
    pub(super) b: usize,
}

impl Ends {
    pub(super) fn peer_a(&self) -> PeerId {
        PeerId(self.a as u32)
    }

    pub(super) fn peer_b(&self) -> PeerId {
        PeerId(self.b as u32)
    }
}

/// A configuration that is small enough for many tests at once.
pub(super) fn small(rank: u32, size: u32) -> Config {
    Config {
        operations_max: 1024,
        packets_max: 512,
        window: 64,
        unexpected_per_peer: 64,
        blocks_per_peer: 64,
        retained_max: 64,
        windows_max: 8,
        counters_max: 8,
        match_buckets: 64,
        ..Config::new(PeerId(rank), size)
    }
}

impl Cluster {
    /// Two ends over a fabric.
    pub(super) fn new(fabric: Fabric) -> (Cluster, Ends) {
        match fabric {
            Fabric::Loop => (Cluster::of(1, fabric), Ends { a: 0, b: 0 }),
            _ => (Cluster::of(2, fabric), Ends { a: 0, b: 1 }),
        }
    }

    /// So many ranks, all connected by the same fabric.
    pub(super) fn of(size: u32, fabric: Fabric) -> Cluster {
        Cluster::with(size, |rank| rails(rank, size, fabric), small)
    }

    /// So many ranks, with rails (beside the loopback) and configuration of the caller's choice.
    pub(super) fn with(
        size: u32,
        mut rails: impl FnMut(u32) -> Vec<Box<dyn Rail + Send>>,
        config: impl Fn(u32, u32) -> Config,
    ) -> Cluster {
        let mut openings: Vec<Opening> = (0..size)
            .map(|rank| {
                let mut all: Vec<Box<dyn Rail + Send>> = vec![Box::new(Loopback::new(PeerId(rank)))];
                all.extend(rails(rank));
                Opening::with_rails(config(rank, size), "here".to_owned(), all, 1).unwrap()
            })
            .collect();
        let address_records: Vec<String> = openings.iter().map(|opening| opening.address_record().to_owned()).collect();
        for opening in &mut openings {
            for (rank, address_record) in address_records.iter().enumerate() {
                opening.learn(PeerId(rank as u32), address_record).unwrap();
            }
        }
        Cluster {
            transports: openings.into_iter().map(|opening| opening.join().unwrap()).collect(),
            events: (0..size).map(|_| VecDeque::new()).collect(),
            frozen: vec![false; size as usize],
        }
    }

    pub(super) fn at(&mut self, rank: usize) -> &mut Transport {
        &mut self.transports[rank]
    }

    /// Drives every transport one round and gathers events.
    pub(super) fn step(&mut self) {
        for (index, transport) in self.transports.iter_mut().enumerate() {
            if !self.frozen[index] {
                transport.progress();
                while let Some(event) = transport.poll_event() {
                    self.events[index].push_back(event);
                }
            }
        }
    }

    /// Steps until something holds.
    pub(super) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Cluster) -> bool) {
        for _ in 0..ROUNDS_MAX {
            if holds(self) {
                return;
            }
            self.step();
        }
        let stats: Vec<_> = self.transports.iter().map(Transport::stats).collect();
        panic!("{what}: not after {ROUNDS_MAX} rounds; events not taken: {:?}; {stats:#?}", self.events);
    }

    /// Takes the first gathered event of a rank that `pick` accepts.
    pub(super) fn take<T>(&mut self, rank: usize, pick: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let (index, found) =
            self.events[rank].iter().enumerate().find_map(|(index, event)| Some((index, pick(event)?)))?;
        self.events[rank].remove(index);
        Some(found)
    }

    /// Steps until an event of that sort comes, and takes it.
    pub(super) fn expect<T>(&mut self, rank: usize, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        let mut found = None;
        self.until(what, |cluster| {
            found = cluster.take(rank, &pick);
            found.is_some()
        });
        found.unwrap()
    }

    /// Steps until a request is over.
    pub(super) fn complete(&mut self, rank: usize, operation: OpId) -> Result<Done, OpError> {
        self.expect(rank, &format!("completion of {operation:?} at rank {rank}"), |event| match event {
            Event::Completed(Completion { operation: over, result, .. }) if *over == operation => Some(*result),
            _ => None,
        })
    }

    /// A message each way between two ranks.
    pub(super) fn ping(&mut self, one: usize, other: usize, bytes: usize) {
        for (a, b) in [(one, other), (other, one)] {
            let source = self.filled(a, bytes, 1);
            let target = self.empty(b, bytes);
            let from = Selector { source: Some(PeerId(a as u32)), ..Selector::ANY_UNTAGGED };
            let recv = self.at(b).recv(&RecvRequest::new(from, &whole(target, bytes))).unwrap();
            let send = SendRequest { segments: &whole(source, bytes), ..SendRequest::new(PeerId(b as u32), &[]) };
            let send = self.at(a).send(&send).unwrap();
            self.complete(a, send).unwrap();
            self.complete(b, recv).unwrap();
            assert!(self.bytes(b, target) == pattern(bytes, 1));
            self.at(a).free(source).unwrap();
            self.at(b).free(target).unwrap();
        }
    }

    /// A region at a rank, filled with a pattern.
    pub(super) fn filled(&mut self, rank: usize, bytes: usize, seed: u8) -> RegionId {
        let region = self.at(rank).alloc(bytes).unwrap();
        self.at(rank).bytes_mut(region).unwrap().copy_from_slice(&pattern(bytes, seed));
        region
    }

    /// An empty region at a rank.
    pub(super) fn empty(&mut self, rank: usize, bytes: usize) -> RegionId {
        self.at(rank).alloc(bytes).unwrap()
    }

    pub(super) fn bytes(&self, rank: usize, region: RegionId) -> &[u8] {
        self.transports[rank].bytes(region).unwrap()
    }
}

/// Bytes that differ from seed to seed and from place to place.
pub(super) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ (at >> 16) as u8 ^ seed).collect()
}

/// The whole of a region.
pub(super) fn whole(region: RegionId, bytes: usize) -> [Seg; 1] {
    [Seg::new(region, 0, bytes as u64)]
}

/// Makes a module per fabric of each scenario.
macro_rules! on_fabrics {
    ($($scenario:ident: $($fabric:ident)+;)*) => {
        $(mod $scenario {
            $(#[test]
            #[allow(non_snake_case)]
            fn $fabric() {
                super::$scenario($crate::driver::tests::cluster::Fabric::$fabric);
            })+
        })*
    };
}
pub(super) use on_fabrics;

/// The rails of a rank, beside its loopback.
pub(super) fn rails(rank: u32, size: u32, fabric: Fabric) -> Vec<Box<dyn Rail + Send>> {
    let tcp = |last: u8, index| -> Box<dyn Rail + Send> {
        let options = TcpOptions::new(Ipv4Addr::new(127, 0, 0, last).into(), index);
        Box::new(TcpRail::open(options, credentials(rank), JOB, PeerId(rank)).unwrap())
    };
    match fabric {
        Fabric::Loop => vec![],
        Fabric::Shm => {
            let shm = ShmRail::open(ShmOptions::new(size), credentials(rank), JOB, PeerId(rank));
            vec![Box::new(shm.unwrap())]
        }
        Fabric::Tcp => vec![tcp(1, 0)],
        Fabric::TwoTcp => vec![tcp(1, 0), tcp(2, 1)],
    }
}
