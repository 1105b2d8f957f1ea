//! Time and wires: hosts with buses, HCAs with ports, subnets with switches and planes, and frames on their way through
//! them, one event after the other in virtual time. What a frame carries is its sender's business.
//!
//! ```text
//!  memory -bus-> HCA engine -> [credit?] -> uplink -> switch, plane's trunk -> downlink -> HCA engine -> Arrived
//!  (the receiver may ask) ... -bus-> memory -> Written
//! ```
//!
//! Every stage is a server that takes frames in the order of their coming; what it is busy with is one number, the time
//! at which it is free again. Links and trunks cut through: a frame's head goes on while its tail is still coming.
//! A receiver's port grants credit for as many bytes as its buffer holds; a frame that finds none waits at its sender,
//! and all behind it (InfiniBand loses nothing for want of buffers). Control frames need no credit.
//!
//! Invariants: frames of one port to one destination on one plane stay in order; every frame ends as `Arrived` or `Lost`;
//! bytes between the uplinks and a receiver never exceed its buffer. Inside, time is in picoseconds.

mod faults;
mod flow;
mod model;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rerail_core::time::Time;

use crate::rng::Rng;

pub use faults::Direction;
pub use model::{BusModel, HcaModel, LinkModel, PlaneModel, SubnetModel};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
    };
}

name!(
    /// A host.
    HostId
);
name!(
    /// An I/O bus of a host.
    BusId
);
name!(
    /// An HCA on a bus.
    HcaId
);
name!(
    /// A port of an HCA.
    PortId
);
name!(
    /// A subnet.
    SubnetId
);

/// Frames that a port holds between its memory and its link: enough to keep both busy.
const TX_STAGE: u32 = 4;

/// Bytes that a port's receive buffer holds: credit for its senders.
const RX_BUFFER_BYTES: u64 = 64 * 1024;

/// Picoseconds per nanosecond.
const PS: u64 = 1000;

/// Something to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<B> {
    /// The port that sends it.
    pub from: PortId,
    /// Where to: a LID of the port's subnet; its low bits choose the plane.
    pub dlid: u16,
    /// Its bytes on the wire, but for what the link adds.
    pub wire_bytes: u32,
    /// Bytes that are fetched over the bus first; 0: none.
    pub read_bytes: u32,
    /// Needs no credit and is never refused: acknowledgments.
    pub control: bool,
    /// The first of its message: HCAs pay their price per message for it.
    pub first: bool,
    /// What it carries.
    pub body: B,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<B> {
    /// A frame is at the receiving HCA; its bytes are not in memory.
    Arrived {
        /// The receiving port.
        port: PortId,
        /// The LID that it was sent to.
        dlid: u16,
        /// Its bytes are not what was sent: the checksum tells.
        corrupt: bool,
        /// What it carries.
        body: B,
    },
    /// What [`Net::write_memory`] asked for is in memory.
    Written {
        /// The port.
        port: PortId,
        /// What was asked with.
        body: B,
    },
    /// A port that refused a frame takes frames again.
    Room(PortId),
    /// A frame is lost: nobody but the trace may know.
    Lost {
        /// The port that sent it.
        from: PortId,
        /// What it carried.
        body: B,
        /// Where it was lost.
        why: LostAt,
    },
    /// A port has noticed that its link is up or down.
    LinkState {
        /// The port.
        port: PortId,
        /// Up.
        up: bool,
    },
    /// The time of [`Net::at`] has come.
    Timer(B),
}

/// Where a frame was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostAt {
    /// The sender's link is down.
    Uplink,
    /// No port has this LID.
    NoRoute,
    /// The plane or switch is down.
    Switch,
    /// The receiver's link is down.
    Downlink,
    /// By decree.
    Decree,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetStats {
    /// Events processed.
    pub events: u64,
    /// Frames taken, background not counted.
    pub frames: u64,
    /// Of them lost.
    pub lost: u64,
    /// Most events waiting at once.
    pub waiting_max: usize,
}

struct Bus {
    model: BusModel,
    host: HostId,
    /// When it is free again: for reads, and for writes (half duplex uses the first for both).
    free: [u64; 2],
}

struct Hca {
    model: HcaModel,
    bus: BusId,
    free: u64,
}

struct Port<B> {
    model: LinkModel,
    hca: HcaId,
    subnet: SubnetId,
    base_lid: u16,
    lmc: u8,
    /// Frames between memory and link, without control frames and background.
    staged: u32,
    /// A frame was refused since the last room.
    refused: bool,
    up_free: u64,
    down_free: u64,
    /// When the last frame left the switch's input, so that jitter keeps the order.
    last_switched: u64,
    /// Frames that wait for credit, the first for that of its destination.
    blocked: VecDeque<Staged<B>>,
    /// Bytes of the receive buffer in use or promised.
    credit_used: u64,
    /// Ports whose first blocked frame waits for this one's credit.
    waiters: VecDeque<PortId>,
    faults: faults::PortFaults,
    background: Vec<Background>,
}

struct Plane {
    model: PlaneModel,
    free: u64,
    up: bool,
}

struct Subnet {
    latency_ns: u64,
    planes: Vec<Plane>,
    up: bool,
    /// By LID: the port.
    lids: Vec<Option<PortId>>,
}

/// Load that nobody receives.
#[derive(Clone, Copy, Debug)]
struct Background {
    dlid: u16,
    frame_bytes: u32,
    /// In picoseconds.
    until: u64,
}

/// What a frame on its way carries: somebody's body, or background load by its index.
enum Cargo<B> {
    Body(B),
    Background(usize),
}

/// A frame between its memory and the link.
struct Staged<B> {
    from: PortId,
    dlid: u16,
    wire_bytes: u32,
    control: bool,
    first: bool,
    cargo: Cargo<B>,
}

/// A frame behind its uplink.
struct Flying<B> {
    staged: Staged<B>,
    to: PortId,
    plane: usize,
    corrupt: bool,
}

enum Event<B> {
    /// Fetched from memory: to the HCA's engine.
    Fetched(Staged<B>),
    /// Through the engine: to the link.
    Ready(Staged<B>),
    /// The tail has left the uplink: the stage has room.
    Left(PortId, Option<usize>),
    /// The tail is at the switch.
    Switched(Flying<B>),
    /// The tail is through the trunk.
    Trunked(Flying<B>),
    /// The tail is through the downlink.
    Landed(Flying<B>),
    /// The receiving engine has it.
    Arrived(Flying<B>),
    Written {
        port: PortId,
        bytes: u64,
        body: B,
    },
    LinkState {
        port: PortId,
        up: bool,
    },
    BackgroundStarts {
        port: PortId,
        index: usize,
    },
    Timer(B),
}

/// All of it.
pub struct Net<B> {
    now: u64,
    sequence: u64,
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    events: Vec<Option<Event<B>>>,
    free_events: Vec<u32>,
    hosts: u32,
    buses: Vec<Bus>,
    hcas: Vec<Hca>,
    ports: Vec<Port<B>>,
    subnets: Vec<Subnet>,
    /// What is to be told before the next event.
    pending: VecDeque<Outcome<B>>,
    /// Bytes of an arrived frame whose credit goes back unless its receiver asks for the write.
    arrived: Option<(PortId, u64)>,
    rng: Rng,
    stats: NetStats,
}

impl<B> Net<B> {
    /// Nothing yet. The seed decides jitter and random loss.
    pub fn new(seed: u64) -> Self {
        Net {
            now: 0,
            sequence: 0,
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free_events: Vec::new(),
            hosts: 0,
            buses: Vec::new(),
            hcas: Vec::new(),
            ports: Vec::new(),
            subnets: Vec::new(),
            pending: VecDeque::new(),
            arrived: None,
            rng: Rng::new(seed, "net"),
            stats: NetStats::default(),
        }
    }

    /// One more host.
    pub fn add_host(&mut self) -> HostId {
        self.hosts += 1;
        HostId(self.hosts - 1)
    }

    /// One more bus of a host.
    pub fn add_bus(&mut self, host: HostId, model: BusModel) -> BusId {
        self.buses.push(Bus { model, host, free: [0; 2] });
        BusId(self.buses.len() as u32 - 1)
    }

    /// One more HCA on a bus.
    pub fn add_hca(&mut self, bus: BusId, model: HcaModel) -> HcaId {
        self.hcas.push(Hca { model, bus, free: 0 });
        HcaId(self.hcas.len() as u32 - 1)
    }

    /// One more subnet.
    ///
    /// # Panics
    /// Where the model has no plane.
    pub fn add_subnet(&mut self, model: &SubnetModel) -> SubnetId {
        assert!(!model.planes.is_empty(), "a subnet needs a plane");
        let planes = model.planes.iter().map(|&model| Plane { model, free: 0, up: true }).collect();
        self.subnets.push(Subnet { latency_ns: model.latency_ns, planes, up: true, lids: Vec::new() });
        SubnetId(self.subnets.len() as u32 - 1)
    }

    /// One more port of an HCA, in a subnet, answering to `2^lmc` LIDs from `base_lid` on.
    ///
    /// # Panics
    /// Where `base_lid` is no multiple of `2^lmc`, is 0, one of the LIDs is taken, or the link has no rate.
    pub fn add_port(&mut self, hca: HcaId, subnet: SubnetId, model: LinkModel, base_lid: u16, lmc: u8) -> PortId {
        assert!(model.bytes_per_second > 0, "a link needs a rate");
        let port = PortId(self.ports.len() as u32);
        self.ports.push(Port {
            model,
            hca,
            subnet,
            base_lid: 0,
            lmc,
            staged: 0,
            refused: false,
            up_free: 0,
            down_free: 0,
            last_switched: 0,
            blocked: VecDeque::new(),
            credit_used: 0,
            waiters: VecDeque::new(),
            faults: faults::PortFaults::default(),
            background: Vec::new(),
        });
        self.set_lid(port, base_lid);
        port
    }

    /// Gives a port another base LID (a subnet manager after a flap); the old ones lead nowhere.
    ///
    /// # Panics
    /// As [`add_port`](Self::add_port).
    pub fn set_lid(&mut self, port: PortId, base_lid: u16) {
        let Port { subnet, lmc, .. } = self.ports[port.0 as usize];
        let span = 1usize << lmc;
        assert!(base_lid != 0 && usize::from(base_lid) % span == 0, "LID {base_lid} with LMC {lmc}");
        let lids = &mut self.subnets[subnet.0 as usize].lids;
        lids.iter_mut().filter(|entry| **entry == Some(port)).for_each(|entry| *entry = None);
        let range = usize::from(base_lid)..usize::from(base_lid) + span;
        if lids.len() < range.end {
            lids.resize(range.end, None);
        }
        for entry in &mut lids[range] {
            assert!(entry.is_none(), "LID {base_lid} with LMC {lmc} is taken");
            *entry = Some(port);
        }
        self.ports[port.0 as usize].base_lid = base_lid;
    }

    /// A port's base LID and LMC.
    pub fn lid(&self, port: PortId) -> (u16, u8) {
        let port = &self.ports[port.0 as usize];
        (port.base_lid, port.lmc)
    }

    /// A port's link.
    pub fn link(&self, port: PortId) -> LinkModel {
        self.ports[port.0 as usize].model
    }

    /// A port's HCA.
    pub fn hca_of(&self, port: PortId) -> HcaId {
        self.ports[port.0 as usize].hca
    }

    /// A port's subnet.
    pub fn subnet_of(&self, port: PortId) -> SubnetId {
        self.ports[port.0 as usize].subnet
    }

    /// An HCA's host.
    pub fn host_of(&self, hca: HcaId) -> HostId {
        self.buses[self.hcas[hca.0 as usize].bus.0 as usize].host
    }

    /// Ports in all.
    pub fn ports(&self) -> u32 {
        self.ports.len() as u32
    }

    /// What was counted.
    pub fn stats(&self) -> NetStats {
        self.stats
    }

    /// Load on a port that comes and goes: between each pair of times, frames to `dlid` are offered whenever the link has
    /// room, and share it with the others frame by frame. Nobody receives them.
    pub fn add_background(&mut self, from: PortId, dlid: u16, frame_bytes: u32, windows: &[(Time, Time)]) {
        for (start, end) in windows {
            let index = self.ports[from.0 as usize].background.len();
            let load = Background { dlid, frame_bytes, until: end.0.saturating_mul(PS) };
            self.ports[from.0 as usize].background.push(load);
            self.schedule(start.0.saturating_mul(PS), Event::BackgroundStarts { port: from, index });
        }
    }

    /// The time now, rounded up.
    pub fn now(&self) -> Time {
        Time(self.now.div_ceil(PS))
    }

    /// When the next thing happens.
    pub fn next_event(&self) -> Option<Time> {
        if !self.pending.is_empty() {
            return Some(self.now());
        }
        self.heap.peek().map(|Reverse((at, ..))| Time(at.div_ceil(PS)))
    }

    fn schedule(&mut self, at: u64, event: Event<B>) {
        let slot = match self.free_events.pop() {
            Some(slot) => {
                self.events[slot as usize] = Some(event);
                slot
            }
            None => {
                self.events.push(Some(event));
                self.events.len() as u32 - 1
            }
        };
        self.heap.push(Reverse((at.max(self.now), self.sequence, slot)));
        self.sequence += 1;
        self.stats.waiting_max = self.stats.waiting_max.max(self.heap.len());
    }

    fn advance_to(&mut self, now: Time) {
        self.now = self.now.max(now.0.saturating_mul(PS));
    }
}

/// Picoseconds that `bytes` take at `bytes_per_second`; none where there is no limit.
fn ps_for(bytes: u64, bytes_per_second: u64) -> u64 {
    match bytes_per_second {
        0 => 0,
        rate => (u128::from(bytes) * 1_000_000_000_000).div_ceil(u128::from(rate)) as u64,
    }
}
