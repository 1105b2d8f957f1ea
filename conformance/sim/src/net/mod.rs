//! Time and wires: how long frames take from one host's memory to another's, and what may go wrong on the
//! way. Uses nothing of InfiniBand beyond LIDs; what frames mean is the business of `hca` and `rails`.
//!
//! A frame's way, and the servers on it (each serves one at a time):
//!
//! ```text
//! send ─ transmit stage ─ bus read ─ HCA engine ─ credit? ─ uplink ─ switch ─ plane ─ downlink ─ HCA engine
//! ─ Arrived
//!                                                                          write_memory ─ bus write ─
//!                                                                          Written
//! ```
//!
//! * *Bus*: its masters are the ports' readers and writers; they take turns, a frame each, so that no depth
//!   of queue buys a share. Half duplex, both directions are one server (PCI-X: multirail-2004, 3.1).
//! * *Engine*: bytes of all ports and both directions aggregated, then a time per message and frame for each
//!   direction.
//! * *Links*: cut-through; a frame's head goes on as soon as its tail cannot be overtaken.
//! * *Credit*: the bytes of a receiving port's buffer, end to end. A frame takes its share before it goes
//!   onto the uplink and gives it back when the receiver has finished with it. So the fabric loses nothing by
//!   itself, and what is inside it is bounded; a port whose first frame waits for credit sends no data
//!   meanwhile (head-of-line blocking, as with one virtual lane). Ports wait for a buffer in the order they
//!   came.
//! * *Planes*: a destination LID's path bits choose one; each has latency, trunk and health of its own.
//!
//! Order: frames of one port to one LID arrive in order, control frames among themselves and the others among
//! themselves. Writes of a port are done in order. Nothing else is promised.
//!
//! Time is counted in picoseconds inside, and reported in nanoseconds, rounded up. Equal calls give equal
//! outcomes: there is no clock here, and chance comes from the seed.
//!
//! ```
//! use rerail_core::time::Time;
//! use rerail_sim::net::{BusModel, Frame, HcaModel, LinkModel, Net, Outcome, SubnetModel};
//!
//! let mut net = Net::new(1);
//! let subnet = net.add_subnet(&SubnetModel { latency_ns: 100, ..SubnetModel::default() });
//! let link = LinkModel { bytes_per_second: 1_000_000_000, header_bytes: 0, latency_ns: 50 };
//! let [a, _] = [4, 8].map(|lid| {
//!     let host = net.add_host();
//!     let bus = net.add_bus(host, BusModel::default());
//!     let hca = net.add_hca(bus, HcaModel::default());
//!     net.add_port(hca, subnet, link, lid, 2)
//! });
//! let frame = Frame { from: a, dlid: 8, wire_bytes: 1000, read_bytes: 0, control: false, first: true, body:
//! "x" }; net.send(Time(0), frame).unwrap();
//! let (at, outcome) = net.step(Time(10_000)).unwrap();
//! // Engine 500, link 50, switch 100, 1000 bytes, link 50, engine 500.
//! assert_eq!(at, Time(2_200));
//! assert!(matches!(outcome, Outcome::Arrived { body: "x", .. }));
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `model`, `ids` | the models, and the parts' names |
//! | `frame` | what goes in and comes out |
//! | `agenda` | clock, heap, slots, chains |
//! | `topology` | buses, HCAs, ports, subnets: their state, and building them |
//! | `bus` | turns of a bus's masters |
//! | `transmit`, `switch`, `receive` | a frame's way |
//! | `gate` | delays, holds and damage at a place |
//! | `fault` | links, planes and switches that go down and come back |
//! | `background` | phantom frames that come and go, buses under load |

mod agenda;
mod background;
mod bus;
mod fault;
mod frame;
mod gate;
mod ids;
mod model;
mod receive;
mod switch;
#[cfg(test)]
mod tests;
mod topology;
mod transmit;

use rerail_core::time::{Nanos, Time};

pub use self::frame::{Class, Damage, Direction, Frame, LostAt, NetStats, Outcome, Pick, Place};
pub use self::ids::{BusId, HcaId, HostId, LidError, PortId, SubnetId};
pub use self::model::{BusModel, HcaModel, LinkModel, PlaneModel, SubnetModel};

use self::agenda::{Agenda, Event, NONE, Ps, Slot, ps, time};
use self::background::Flow;
use self::gate::Gate;
use self::topology::{Bus, Hca, Plane, Port, Subnet};
use crate::rng::Rng;

/// A cluster's fabric; `B` is what its frames carry.
///
/// A caller steps it to its own time before it acts at that time: `while let Some((at, outcome)) =
/// net.step(now)`. Ids are those that this fabric gave out; others make it panic.
#[derive(Debug)]
pub struct Net<B> {
    agenda: Agenda<B>,
    hosts: u32,
    buses: Vec<Bus>,
    hcas: Vec<Hca>,
    subnets: Vec<Subnet>,
    planes: Vec<Plane>,
    ports: Vec<Port>,
    flows: Vec<Flow>,
    gates: Vec<Gate<B>>,
    rng: Rng,
    stats: NetStats,
    /// The arrival that was reported last, while its receiver deals with it.
    handling: Option<Handling>,
}

/// An arrival that was reported.
#[derive(Clone, Copy, Debug)]
struct Handling {
    port: u32,
    /// Its bytes of the port's buffer.
    credit: u32,
    /// The last write that was requested for it, which gives them back; `NONE`: none.
    write: u32,
}

impl<B> Net<B> {
    /// An empty fabric; its jitter and random damage come from `seed`.
    pub fn new(seed: u64) -> Self {
        Net {
            agenda: Agenda::new(),
            hosts: 0,
            buses: Vec::new(),
            hcas: Vec::new(),
            subnets: Vec::new(),
            planes: Vec::new(),
            ports: Vec::new(),
            flows: Vec::new(),
            gates: Vec::new(),
            rng: Rng::new(seed, "net"),
            stats: NetStats::default(),
            handling: None,
        }
    }

    /// The next outcome at or before `until`, with its moment; `None`: nothing more until then, and it is
    /// `until` now (but for an `until` so late that it means "to the end": 2^64 picoseconds, 213 days). An
    /// `Arrived` is dealt with before the next call (see [`Outcome::Arrived`]).
    pub fn step(&mut self, until: Time) -> Option<(Time, Outcome<B>)> {
        self.free_delivered();
        loop {
            if let Some(outcome) = self.agenda.reported.pop_front() {
                return Some((self.now(), outcome));
            }
            let Some(event) = self.agenda.take(ps(until.0)) else {
                self.agenda.pass(until);
                return None;
            };
            self.stats.events += 1;
            match event {
                Event::Bus(server) => self.bus_done(server),
                Event::Uplink(port) => self.reach_uplink(port),
                Event::Ingress(port) => self.reach_switch(port),
                Event::Plane(plane) => self.cross_plane(plane),
                Event::Downlink(port) => self.leave_downlink(port),
                Event::Arrived(port) => self.arrive(port),
                Event::Timer(slot) => {
                    if let Some(body) = self.agenda.free_slot(slot) {
                        return Some((self.now(), Outcome::Timer(body)));
                    }
                }
                Event::Release(gate) => self.release(gate),
                Event::Detect(port) => self.detect(port),
                Event::Flow(flow) => self.open_window(flow),
            }
        }
    }

    /// When something is to happen next, outcome or not; `None`: nothing is under way. With outcomes not
    /// reported, or an arrival whose receiver may just have finished with it, that is now.
    pub fn next_event(&self) -> Option<Time> {
        if !self.agenda.reported.is_empty()
            || self.handling.is_some_and(|arrival| arrival.write == NONE && arrival.credit > 0)
        {
            return Some(self.now());
        }
        self.agenda.next_due().map(|due| time(due).max(self.now()))
    }

    /// The moment of the last outcome, or the latest one that a caller named.
    pub fn now(&self) -> Time {
        time(self.agenda.clock)
    }

    /// A timer: [`Outcome::Timer`] with this body at `when` (at once if that is past). It cannot be called
    /// off; a body that names its purpose lets its owner ignore it.
    pub fn at(&mut self, when: Time, body: B) {
        let slot = self.agenda.take_slot(Slot::plain(Some(body)));
        self.agenda.schedule(ps(when.0), Event::Timer(slot));
    }

    /// What happened so far.
    pub fn stats(&self) -> NetStats {
        NetStats { waiting_max: self.agenda.waiting_max(), ..self.stats }
    }

    /// Frames, writes and timers inside the fabric right now: what its memory grows with.
    pub fn inside(&self) -> usize {
        self.agenda.used() as usize
    }

    /// How long a bus has been busy so far; both directions together.
    pub fn bus_busy(&self, bus: BusId) -> Nanos {
        let busy: Ps = self.buses[bus.0 as usize].servers.iter().map(|server| server.busy_ps).sum();
        Nanos(time(busy).0)
    }

    /// Bytes of a port's receive buffer that are taken, by frames on their way to it and in it.
    pub fn credit_taken(&self, port: PortId) -> u64 {
        self.ports[port.0 as usize].credit_taken
    }
}
