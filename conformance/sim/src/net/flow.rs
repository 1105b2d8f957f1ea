//! A frame's way, stage by stage.

use std::cmp::Reverse;

use rerail_core::time::Time;

use super::faults::Fate;
use super::{Cargo, Event, Flying, Frame, LostAt, Net, Outcome, PS, PortId, RX_BUFFER_BYTES, Staged, TX_STAGE, ps_for};

impl<B> Net<B> {
    /// Takes a frame.
    ///
    /// # Errors
    /// Gives it back where the port's stage is full; [`Outcome::Room`] tells when it no longer is. Control frames are
    /// never refused.
    pub fn send(&mut self, now: Time, frame: Frame<B>) -> Result<(), Frame<B>> {
        self.advance_to(now);
        let port = &mut self.ports[frame.from.0 as usize];
        if !frame.control {
            if port.staged >= TX_STAGE {
                port.refused = true;
                return Err(frame);
            }
            port.staged += 1;
        }
        self.stats.frames += 1;
        let Frame { from, dlid, wire_bytes, read_bytes, control, first, body } = frame;
        self.fetch(read_bytes, Staged { from, dlid, wire_bytes, control, first, cargo: Cargo::Body(body) });
        Ok(())
    }

    /// Whether a port would take a frame.
    pub fn has_room(&self, port: PortId) -> bool {
        self.ports[port.0 as usize].staged < TX_STAGE
    }

    /// Writes the bytes of a frame that has just arrived into memory, over the port's bus: [`Outcome::Written`] brings
    /// `body` back. The frame's credit goes back only then.
    pub fn write_memory(&mut self, now: Time, port: PortId, bytes: u32, body: B) {
        self.advance_to(now);
        let held = self.arrived.take().filter(|(at, _)| *at == port).map_or(0, |(_, bytes)| bytes);
        let done = self.bus_done(port, bytes.into(), true);
        self.schedule(done, Event::Written { port, bytes: held, body });
    }

    /// [`Outcome::Timer`] brings `body` back at that time.
    pub fn at(&mut self, when: Time, body: B) {
        self.schedule(when.0.saturating_mul(PS), Event::Timer(body));
    }

    /// The next outcome at or before `until`; `None`: there is none, and it is `until` now.
    pub fn step(&mut self, until: Time) -> Option<(Time, Outcome<B>)> {
        // An arrival whose receiver asked for no write is through.
        if let Some((port, bytes)) = self.arrived.take() {
            self.give_credit(port, bytes);
        }
        loop {
            if let Some(outcome) = self.pending.pop_front() {
                return Some((self.now(), outcome));
            }
            let &Reverse((at, _, slot)) = self.heap.peek()?;
            if at > until.0.saturating_mul(PS) {
                self.advance_to(until);
                return None;
            }
            self.heap.pop();
            self.now = at;
            self.stats.events += 1;
            let event = self.events[slot as usize].take().expect("every key in the heap has its event");
            self.free_events.push(slot);
            self.process(event);
        }
    }

    fn process(&mut self, event: Event<B>) {
        match event {
            Event::Fetched(staged) => self.engine_tx(staged),
            Event::Ready(staged) => self.enter_link(staged),
            Event::Left(port, background) => self.left(port, background),
            Event::Switched(flying) => self.switched(flying),
            Event::Trunked(flying) => self.enter_downlink(flying),
            Event::Landed(flying) => self.engine_rx(flying),
            Event::Arrived(flying) => self.arrived(flying),
            Event::Written { port, bytes, body } => {
                self.give_credit(port, bytes);
                self.pending.push_back(Outcome::Written { port, body });
            }
            Event::LinkState { port, up } => self.pending.push_back(Outcome::LinkState { port, up }),
            Event::BackgroundStarts { port, index } => {
                for _ in 0..TX_STAGE {
                    self.offer_background(port, index);
                }
            }
            Event::Timer(body) => self.pending.push_back(Outcome::Timer(body)),
        }
    }

    /// When the port's bus has moved so many bytes that are asked for now.
    fn bus_done(&mut self, port: PortId, bytes: u64, write: bool) -> u64 {
        let hca = self.ports[port.0 as usize].hca;
        let bus = &mut self.buses[self.hcas[hca.0 as usize].bus.0 as usize];
        if bytes == 0 {
            return self.now;
        }
        let model = bus.model;
        let overhead = if write { model.write_ns_per_frame } else { model.read_ns_per_frame };
        let free = &mut bus.free[usize::from(write && !model.half_duplex)];
        *free = self.now.max(*free) + overhead * PS + ps_for(bytes, model.bytes_per_second);
        *free
    }

    fn fetch(&mut self, read_bytes: u32, staged: Staged<B>) {
        let done = self.bus_done(staged.from, read_bytes.into(), false);
        self.schedule(done, Event::Fetched(staged));
    }

    fn engine_tx(&mut self, staged: Staged<B>) {
        let port = &self.ports[staged.from.0 as usize];
        let hca = &mut self.hcas[port.hca.0 as usize];
        let message = if staged.first && !staged.control { hca.model.ns_per_message_tx * PS } else { 0 };
        let service = message + ps_for(staged.wire_bytes.into(), hca.model.bytes_per_second);
        if service > 0 {
            hca.free = self.now.max(hca.free) + service;
        }
        let done = if service > 0 { hca.free } else { self.now };
        let latency = hca.model.latency_tx_ns * PS;
        self.schedule(done + latency, Event::Ready(staged));
    }

    /// At the head of the uplink: waits for credit, or goes.
    fn enter_link(&mut self, staged: Staged<B>) {
        let port = &mut self.ports[staged.from.0 as usize];
        if !staged.control && !port.blocked.is_empty() {
            port.blocked.push_back(staged);
            return;
        }
        self.launch(staged);
    }

    /// Onto the link; `false`: the destination has no credit, and the frame waits at the head of the blocked ones.
    fn launch(&mut self, staged: Staged<B>) -> bool {
        let from = staged.from;
        let port = &self.ports[from.0 as usize];
        let subnet = &self.subnets[port.subnet.0 as usize];
        let Some(to) = subnet.lids.get(usize::from(staged.dlid)).copied().flatten() else {
            self.lose(staged, LostAt::NoRoute);
            return true;
        };
        if port.faults.tx_down && to != from {
            self.lose(staged, LostAt::Uplink);
            return true;
        }
        let bits = staged.dlid & ((1 << self.ports[to.0 as usize].lmc) - 1);
        let plane = usize::from(bits) % subnet.planes.len();
        let latency = subnet.latency_ns + subnet.planes[plane].model.latency_ns;
        if !staged.control {
            let target = &mut self.ports[to.0 as usize];
            let bytes = u64::from(staged.wire_bytes);
            if target.credit_used > 0 && target.credit_used + bytes > RX_BUFFER_BYTES {
                target.waiters.push_back(from);
                self.ports[from.0 as usize].blocked.push_front(staged);
                return false;
            }
            target.credit_used += bytes;
        }
        let fate = match staged.control {
            true => Fate::Whole,
            false => self.ports[from.0 as usize].faults.fate(&mut self.rng),
        };
        if fate == Fate::Lost {
            self.give_back(to, &staged);
            self.lose(staged, LostAt::Decree);
            return true;
        }
        let port = &mut self.ports[from.0 as usize];
        let background = match staged.cargo {
            Cargo::Background(index) => Some(index),
            Cargo::Body(_) => None,
        };
        let (counted, bytes) = (!staged.control, u64::from(staged.wire_bytes) + u64::from(port.model.header_bytes));
        let flying = Flying { staged, to, plane, corrupt: fate == Fate::Corrupt };
        if to == from {
            // To itself a port sends within the HCA.
            self.schedule(self.now, Event::Landed(flying));
            if counted {
                self.schedule(self.now, Event::Left(from, background));
            }
            return true;
        }
        port.up_free = self.now.max(port.up_free) + ps_for(bytes, port.model.bytes_per_second);
        let left = port.up_free;
        let jitter = match port.faults.jitter_ns {
            0 => 0,
            max => self.rng.below(max + 1) * PS,
        };
        let switched = (left + (port.model.latency_ns + latency) * PS + jitter).max(port.last_switched);
        port.last_switched = switched;
        if counted {
            self.schedule(left, Event::Left(from, background));
        }
        self.schedule(switched, Event::Switched(flying));
        true
    }

    /// A frame has left its port: room for the next.
    fn left(&mut self, from: PortId, background: Option<usize>) {
        match background {
            Some(index) => self.offer_background(from, index),
            None => self.make_room(from),
        }
    }

    fn make_room(&mut self, from: PortId) {
        let port = &mut self.ports[from.0 as usize];
        port.staged -= 1;
        if std::mem::take(&mut port.refused) {
            self.pending.push_back(Outcome::Room(from));
        }
    }

    fn switched(&mut self, flying: Flying<B>) {
        let subnet = self.ports[flying.staged.from.0 as usize].subnet;
        let subnet = &mut self.subnets[subnet.0 as usize];
        let plane = &mut subnet.planes[flying.plane];
        if !subnet.up || !plane.up {
            self.lose_flying(flying, LostAt::Switch);
            return;
        }
        if plane.model.bytes_per_second == 0 {
            self.enter_downlink(flying);
            return;
        }
        // Cut through: the tail is out when it has come, but not before the trunk was free for the whole frame.
        let service = ps_for(flying.staged.wire_bytes.into(), plane.model.bytes_per_second);
        plane.free = (plane.free + service).max(self.now);
        let done = plane.free;
        self.schedule(done, Event::Trunked(flying));
    }

    fn enter_downlink(&mut self, flying: Flying<B>) {
        let port = &mut self.ports[flying.to.0 as usize];
        if port.faults.rx_down {
            self.lose_flying(flying, LostAt::Downlink);
            return;
        }
        let bytes = u64::from(flying.staged.wire_bytes) + u64::from(port.model.header_bytes);
        port.down_free = (port.down_free + ps_for(bytes, port.model.bytes_per_second)).max(self.now);
        let done = port.down_free.max(port.faults.held_until) + port.model.latency_ns * PS;
        self.schedule(done, Event::Landed(flying));
    }

    fn engine_rx(&mut self, flying: Flying<B>) {
        let hca = &mut self.hcas[self.ports[flying.to.0 as usize].hca.0 as usize];
        let message = if flying.staged.first && !flying.staged.control { hca.model.ns_per_message_rx * PS } else { 0 };
        let service = message + ps_for(flying.staged.wire_bytes.into(), hca.model.bytes_per_second);
        if service > 0 {
            hca.free = self.now.max(hca.free) + service;
        }
        let done = if service > 0 { hca.free } else { self.now };
        let latency = hca.model.latency_rx_ns * PS;
        self.schedule(done + latency, Event::Arrived(flying));
    }

    fn arrived(&mut self, flying: Flying<B>) {
        let Flying { staged, to, corrupt, .. } = flying;
        let bytes = if staged.control { 0 } else { u64::from(staged.wire_bytes) };
        match staged.cargo {
            Cargo::Background(_) => {
                // It takes the bus of its receiver too; nobody waits for it there.
                self.bus_done(to, bytes, true);
                self.give_credit(to, bytes);
            }
            Cargo::Body(body) => {
                self.arrived = Some((to, bytes));
                self.pending.push_back(Outcome::Arrived { port: to, dlid: staged.dlid, corrupt, body });
            }
        }
    }

    /// Bytes of a receive buffer are free again: the sender that has waited longest goes on.
    fn give_credit(&mut self, port: PortId, bytes: u64) {
        let target = &mut self.ports[port.0 as usize];
        target.credit_used -= bytes;
        while let Some(waiter) = self.ports[port.0 as usize].waiters.pop_front() {
            if !self.unblock(waiter) {
                break;
            }
        }
    }

    /// Launches the blocked frames of a port, as far as credit goes; `false`: it waits again.
    fn unblock(&mut self, from: PortId) -> bool {
        while let Some(staged) = self.ports[from.0 as usize].blocked.pop_front() {
            if !self.launch(staged) {
                return false;
            }
        }
        true
    }

    fn offer_background(&mut self, from: PortId, index: usize) {
        let load = self.ports[from.0 as usize].background[index];
        if self.now >= load.until {
            return;
        }
        let cargo = Cargo::Background(index);
        let (dlid, wire_bytes) = (load.dlid, load.frame_bytes);
        self.fetch(wire_bytes, Staged { from, dlid, wire_bytes, control: false, first: true, cargo });
    }

    /// Credit taken for a frame that doesn't use it. Nobody waits for it: the frame's own port was first in turn.
    fn give_back(&mut self, to: PortId, staged: &Staged<B>) {
        self.ports[to.0 as usize].credit_used -= u64::from(staged.wire_bytes);
    }

    /// Lost before it took the link.
    fn lose(&mut self, staged: Staged<B>, why: LostAt) {
        let from = staged.from;
        match staged.cargo {
            Cargo::Background(index) => {
                // The next try is a while away, so that a dead link does not spin.
                let again = self.now + BACKGROUND_PAUSE_PS;
                if again < self.ports[from.0 as usize].background[index].until {
                    self.schedule(again, Event::Left(from, Some(index)));
                }
            }
            Cargo::Body(body) => {
                self.stats.lost += 1;
                if !staged.control {
                    self.make_room(from);
                }
                self.pending.push_back(Outcome::Lost { from, body, why });
            }
        }
    }

    /// Lost behind its link.
    fn lose_flying(&mut self, flying: Flying<B>, why: LostAt) {
        let Flying { staged, to, .. } = flying;
        if !staged.control {
            self.give_credit(to, staged.wire_bytes.into());
        }
        if let Cargo::Body(body) = staged.cargo {
            self.stats.lost += 1;
            self.pending.push_back(Outcome::Lost { from: staged.from, body, why });
        }
    }
}

/// How long background load waits where its link is down.
const BACKGROUND_PAUSE_PS: u64 = 1_000_000 * PS;
