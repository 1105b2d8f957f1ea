//! What the kernel is to real processes that share memory: it makes the rings of a pair, rings doorbells, and
//! records which are dead.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use rerail_core::shm::RingConfig;
use rerail_core::time::Time;
use rerail_linux::rail::Piece;
use rerail_linux::rail::shm::RingReads;

use super::joint::Request;
use super::maps::{Mail, MapCounts, MapModel, Offers};
use super::memory::{Inbound, Outbound, pair};
use super::reads::{Grants, ReadModel};
use crate::rng::Rng;
use crate::scenario::CopySpec;

/// What the ranks of all hosts share of their shared memory.
#[derive(Clone, Debug)]
pub struct ShmHub(pub(super) Rc<RefCell<Hub>>);

#[derive(Debug)]
pub(super) struct Hub {
    pub(super) ring: RingConfig,
    pub(super) posts_max: u16,
    pub(super) latency_ns: u64,
    /// The simulation's clock.
    pub(super) now: Time,
    pub(super) ranks: Vec<Process>,
    /// Ranks that something becomes visible to, and when, until the simulation takes them.
    pub(super) woken: Vec<(u32, Time)>,
    pub(super) ring_bytes: u64,
    /// How ranks read each other's memory; `None`: they don't.
    pub(super) reads: Option<ReadModel>,
    pub(super) grants: Grants,
    /// Joint copies that owners have not been notified of, by generation; the last generation.
    pub(super) requests: BTreeMap<u32, Weak<Request>>,
    pub(super) joint_generation: u32,
    pub(super) joint: JointCounts,
    /// How ranks map each other's memory; `None`: they don't.
    pub(super) maps: Option<MapModel>,
    /// By rank.
    pub(super) offers: Vec<Offers>,
    pub(super) mapped: MapCounts,
    /// Windows that stand, by rank and key.
    pub(super) windows: BTreeMap<(u32, u64), Piece>,
    /// What becomes of files and mappings.
    pub(super) map_rng: Rng,
    copies: CopySpec,
    /// When the memory bus of each process, or of each host, is free.
    buses: Vec<Time>,
    /// Which packets of large messages a poll takes.
    pub(super) ring_reads: RingReads,
    /// What becomes of pairs and reads.
    pub(super) rng: Rng,
}

/// What became of joint copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JointCounts {
    /// Pieces with which an owner helped.
    pub helped: u64,
    /// Pieces of which the reader took claims back.
    pub taken_back: u64,
    /// Writes that found the gate closed.
    pub refused: u64,
}

/// A rank, as its host's kernel records it.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) host: u32,
    pub(super) alive: bool,
    /// The latest entry of `woken` for it.
    pub(super) woken: Option<Time>,
    /// Ends that others made for it.
    pub(super) calls: VecDeque<End>,
    /// Peers whose doorbell rang.
    pub(super) bells: Vec<u32>,
}

/// One end of a pair of rings.
#[derive(Debug)]
pub(super) struct End {
    pub(super) peer: u32,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    pub(super) near: Rc<Cell<Side>>,
    pub(super) far: Rc<Cell<Side>>,
    /// What sockets hold for this side, and for the other one.
    pub(super) mail: Rc<Mail>,
    pub(super) far_mail: Rc<Mail>,
    /// When each packet of the ring becomes visible here, and there: memory needs its time to the other
    /// processor.
    pub(super) visible: Rc<RefCell<VecDeque<Time>>>,
    pub(super) far_visible: Rc<RefCell<VecDeque<Time>>>,
}

/// What one side of a pair has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Not taken its end yet.
    Called,
    /// Taken it.
    Open,
    /// Closed it, after its last packet.
    Closed,
}

impl ShmHub {
    /// For ranks on these hosts.
    pub fn new(hosts: Vec<u32>, ring: RingConfig, posts_max: u16, latency_ns: u64) -> Self {
        let process = |host| Process { host, alive: true, woken: None, calls: VecDeque::new(), bells: Vec::new() };
        let ranks: Vec<Process> = hosts.into_iter().map(process).collect();
        let grants = Grants::of(ranks.len());
        let buses = vec![Time(0); ranks.len()];
        let offers = ranks.iter().map(|_| Offers::default()).collect();
        ShmHub(Rc::new(RefCell::new(Hub {
            ring,
            posts_max,
            latency_ns,
            now: Time(0),
            ranks,
            woken: Vec::new(),
            ring_bytes: 0,
            reads: None,
            grants,
            requests: BTreeMap::new(),
            joint_generation: 0,
            joint: JointCounts::default(),
            maps: None,
            offers,
            mapped: MapCounts::default(),
            windows: BTreeMap::new(),
            map_rng: Rng::new(0, "mapped memory"),
            copies: CopySpec::default(),
            buses,
            ring_reads: RingReads::Burst,
            rng: Rng::new(0, "reads of memory"),
        })))
    }

    /// The ranks read each other's memory from now on.
    pub fn set_reads(&self, model: ReadModel, seed: u64) {
        let hub = &mut *self.0.borrow_mut();
        hub.reads = Some(model);
        hub.rng = Rng::new(seed, "reads of memory");
    }

    /// The ranks map each other's memory from now on.
    pub fn set_maps(&self, model: MapModel, seed: u64) {
        let hub = &mut *self.0.borrow_mut();
        hub.maps = Some(model);
        hub.map_rng = Rng::new(seed, "mapped memory");
    }

    /// What copies through rings take from now on, and how packets of large messages are taken.
    pub fn set_copies(&self, copies: CopySpec, ring_reads: RingReads) {
        let hub = &mut *self.0.borrow_mut();
        (hub.copies, hub.ring_reads) = (copies, ring_reads);
    }

    /// Nanoseconds of its processor that a rank has spent on copies since the last call.
    pub fn take_spent_ns(&self, rank: u32) -> u64 {
        std::mem::take(&mut self.0.borrow_mut().grants.spent_ns[rank as usize])
    }

    /// Sets the time: what is posted from now on is seen `latency_ns` later.
    pub fn set_now(&self, now: Time) {
        self.0.borrow_mut().now = now;
    }

    /// Bytes of ring memory made so far.
    pub fn ring_bytes(&self) -> u64 {
        self.0.borrow().ring_bytes
    }

    /// What became of joint copies so far.
    pub fn joint_counts(&self) -> JointCounts {
        self.0.borrow().joint
    }

    /// Whether the ranks map each other's memory.
    pub fn is_mapped(&self) -> bool {
        self.0.borrow().maps.is_some()
    }

    /// What became of mapped memory so far.
    pub fn map_counts(&self) -> MapCounts {
        self.0.borrow().mapped
    }

    /// Moves the ranks that something becomes visible to, and when.
    pub fn take_woken(&self, woken: &mut Vec<(u32, Time)>) {
        let hub = &mut *self.0.borrow_mut();
        hub.woken.iter().for_each(|(rank, _)| hub.ranks[*rank as usize].woken = None);
        woken.append(&mut hub.woken);
    }

    /// A process is gone; those on its host learn of it as of a socket that hangs up.
    pub fn kill(&self, rank: u32) {
        let hub = &mut *self.0.borrow_mut();
        let Some(dead) = hub.ranks.get_mut(rank as usize) else { return };
        dead.alive = false;
        dead.calls.clear();
        hub.grants.clear(rank);
        let host = dead.host;
        for peer in 0..hub.ranks.len() as u32 {
            if peer != rank && hub.ranks[peer as usize].host == host && hub.ranks[peer as usize].alive {
                hub.ring(rank, peer);
            }
        }
    }
}

impl Hub {
    /// When others see what is done now.
    pub(super) fn visible(&self) -> Time {
        Time(self.now.0.saturating_add(self.latency_ns))
    }

    /// A rank copies so many bytes into a ring, after all that it has done in this round; when others see
    /// them.
    pub(super) fn copy_in(&mut self, rank: u32, bytes: usize) -> Time {
        let CopySpec { in_bytes_per_second, .. } = self.copies;
        let spent_ns = self.copy(rank, bytes, in_bytes_per_second);
        Time(self.visible().0.saturating_add(spent_ns))
    }

    /// A rank copies so many bytes out of a ring.
    pub(super) fn copy_out(&mut self, rank: u32, bytes: usize) {
        let CopySpec { out_bytes_per_second, .. } = self.copies;
        self.copy(rank, bytes, out_bytes_per_second);
    }

    /// From this round's beginning until the copy is made, in nanoseconds; 0 where copies take no time.
    fn copy(&mut self, rank: u32, bytes: usize, bytes_per_second: u64) -> u64 {
        if bytes_per_second == 0 {
            return 0;
        }
        let took = bytes as u128 * 1_000_000_000 / u128::from(bytes_per_second);
        let bus = if self.copies.shared { self.ranks[rank as usize].host } else { rank };
        let (bus, spent_ns) = (&mut self.buses[bus as usize], &mut self.grants.spent_ns[rank as usize]);
        let begun = (*bus).max(Time(self.now.0.saturating_add(*spent_ns)));
        *bus = Time(begun.0.saturating_add(took as u64));
        *spent_ns = bus.0 - self.now.0;
        *spent_ns
    }

    pub(super) fn wake(&mut self, rank: u32) {
        let visible = self.visible();
        let Some(process) = self.ranks.get_mut(rank as usize) else { return };
        // The clock does not go back, so an entry that is there is not later.
        if process.woken.is_none() {
            process.woken = Some(visible);
            self.woken.push((rank, visible));
        }
    }

    /// Whether a rank may read the memory of a peer that it connects with.
    pub(super) fn may_read(&mut self) -> bool {
        self.reads.is_some_and(|model| model.denied_one_in == 0 || !self.rng.one_in(model.denied_one_in))
    }

    /// Whether a rank that may read others' memory carries out this get by itself: half of them, so that
    /// owners serve gets too.
    pub(super) fn may_get(&mut self) -> bool {
        self.reads.is_some() && self.rng.one_in(2)
    }

    /// Whether one case of mapped memory in so many is this one; 0: none is.
    pub(super) fn draws(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.map_rng.one_in(one_in)
    }

    /// A rank has read so many bytes of memory.
    pub(super) fn charge_read(&mut self, rank: u32, bytes: usize) {
        let Some(ReadModel { bytes_per_second: 1.., .. }) = self.reads else { return };
        let rate = self.reads.map_or(1, |model| model.bytes_per_second);
        self.grants.spent_ns[rank as usize] += (bytes as u128 * 1_000_000_000 / u128::from(rate)) as u64;
    }

    /// Rings the doorbell of `from` at `to`.
    pub(super) fn ring(&mut self, from: u32, to: u32) {
        self.ranks[to as usize].bells.push(from);
        self.wake(to);
    }

    /// Makes both rings, leaves the peer's ends with it and gives ours.
    pub(super) fn call(&mut self, rank: u32, peer: u32) -> Option<End> {
        if !self.ranks.get(peer as usize)?.alive {
            return None;
        }
        // The configuration was checked with the scenario.
        let (inbound, far_outbound) = pair(self.ring).ok()?;
        let (far_inbound, outbound) = pair(self.ring).ok()?;
        self.ring_bytes += (inbound.len() + far_inbound.len()) as u64;
        let (near, far) = (Rc::new(Cell::new(Side::Open)), Rc::new(Cell::new(Side::Called)));
        let (visible, far_visible) =
            (Rc::<RefCell<VecDeque<Time>>>::default(), Rc::<RefCell<VecDeque<Time>>>::default());
        let (mail, far_mail) = (Rc::<Mail>::default(), Rc::<Mail>::default());
        let theirs = End {
            peer: rank,
            inbound: far_inbound,
            outbound: far_outbound,
            near: far.clone(),
            far: near.clone(),
            visible: far_visible.clone(),
            far_visible: visible.clone(),
            mail: far_mail.clone(),
            far_mail: mail.clone(),
        };
        self.ranks[peer as usize].calls.push_back(theirs);
        self.wake(peer);
        Some(End { peer, inbound, outbound, near, far, visible, far_visible, mail, far_mail })
    }
}
