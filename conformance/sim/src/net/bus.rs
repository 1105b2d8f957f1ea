//! A host's I/O bus: masters that need it stand in line once each and are served a frame at a time, so that
//! every master has its turn however long its own queue is (round robin, as PCI arbiters do).
//!
//! A port is two masters: its reader (frames to be fetched for sending) and its writer (`write_memory`).

use std::collections::VecDeque;

use super::Net;
use super::agenda::{Event, NONE, Ps};
use super::topology::Turn;

/// Which of a port's masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Read,
    Write,
}

/// A bus, or one direction of it.
#[derive(Debug, Default)]
pub(super) struct BusServer {
    /// The master that is served, with the slot.
    serving: Option<(Side, u32, u32)>,
    /// The masters that wait: each at most once.
    line: VecDeque<(Side, u32)>,
    /// Time spent serving.
    pub busy_ps: Ps,
}

impl<B> Net<B> {
    /// Puts a port's master into the line if it has something to do and isn't in it.
    pub(super) fn queue_for_bus(&mut self, side: Side, port: u32) {
        let state = &self.ports[port as usize];
        let turn = if side == Side::Read { state.reader } else { state.writer };
        if turn != Turn::Idle || !self.has_bus_work(side, port) {
            return;
        }
        let server = self.server_of(side, port);
        self.set_turn(side, port, Turn::Waiting);
        self.server(server).line.push_back((side, port));
        self.serve_bus(server);
    }

    /// What a bus served is done: it goes on, and the next one is served.
    pub(super) fn bus_done(&mut self, server: u32) {
        let (side, port, slot) = self.server(server).serving.take().expect("a bus that is done was busy");
        self.set_turn(side, port, Turn::Idle);
        match side {
            Side::Read => self.read_done(port, slot),
            Side::Write => self.write_done(port, slot),
        }
        self.queue_for_bus(side, port);
        self.serve_bus(server);
    }

    /// Serves the first in line, if the bus is idle.
    fn serve_bus(&mut self, server: u32) {
        while self.server(server).serving.is_none() {
            let Some((side, port)) = self.server(server).line.pop_front() else { return };
            let slot = match side {
                Side::Read => self.next_read(port),
                Side::Write => self.next_write(port),
            };
            if slot == NONE {
                // What it was to carry is gone (a background load's window has closed).
                self.set_turn(side, port, Turn::Idle);
                continue;
            }
            self.set_turn(side, port, Turn::Served);
            let bus = &self.buses[server as usize / 2];
            let memory = self.hcas[self.ports[port as usize].hca as usize].memory_rate;
            let frame = self.agenda.slot(slot);
            let rate = bus.rate_at(self.agenda.clock);
            let moved = |bytes| rate.span(bytes).max(memory.span(bytes));
            let span = match side {
                Side::Read => bus.read_ps + moved(frame.read_bytes),
                Side::Write if frame.wire_bytes == 0 => 0,
                Side::Write => bus.write_ps + moved(frame.wire_bytes),
            };
            let state = self.server(server);
            state.serving = Some((side, port, slot));
            state.busy_ps += span;
            self.agenda.schedule(self.agenda.clock + span, Event::Bus(server));
        }
    }

    fn has_bus_work(&self, side: Side, port: u32) -> bool {
        match side {
            Side::Read => !self.ports[port as usize].staged.is_empty() || self.has_open_flow(port),
            Side::Write => !self.ports[port as usize].writes.is_empty(),
        }
    }

    fn set_turn(&mut self, side: Side, port: u32, turn: Turn) {
        let port = &mut self.ports[port as usize];
        match side {
            Side::Read => port.reader = turn,
            Side::Write => port.writer = turn,
        }
    }

    /// Bus x 2 + server.
    fn server_of(&self, side: Side, port: u32) -> u32 {
        let bus = self.hcas[self.ports[port as usize].hca as usize].bus;
        let second = side == Side::Write && !self.buses[bus as usize].half_duplex;
        bus * 2 + u32::from(second)
    }

    fn server(&mut self, server: u32) -> &mut BusServer {
        &mut self.buses[server as usize / 2].servers[server as usize % 2]
    }
}
