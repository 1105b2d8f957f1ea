//! A frame's way in: downlink, engine, the receiver's answer, the write into memory.

use rerail_core::time::Time;

use super::agenda::{Event, NONE, Slot};
use super::bus::Side;
use super::{Handling, LostAt, Net, Outcome, PortId};

impl<B> Net<B> {
    /// Requests a write into the memory of a port's host: [`Outcome::Written`] with this body when it is
    /// there, in the order of the port's calls. `bytes` 0 takes no time of the bus, only its place in the
    /// order. Requested while an arrival at the port is dealt with, it holds that frame's receive buffer
    /// until it is done.
    pub fn write_memory(&mut self, now: Time, port: PortId, bytes: u32, body: B) {
        self.agenda.enter(now);
        let slot = Slot { from: port.0, wire_bytes: bytes, ..Slot::plain(Some(body)) };
        let slot = self.agenda.take_slot(slot);
        if let Some(arrival) = self.handling.as_mut().filter(|arrival| arrival.port == port.0) {
            // The last write of an arrival gives the buffer back.
            if arrival.write != NONE {
                self.agenda.slot_mut(arrival.write).credit = 0;
            }
            arrival.write = slot;
            self.agenda.slot_mut(slot).credit = arrival.credit;
        }
        self.queue_write(port.0, slot);
    }

    /// The last byte of a frame is at its port.
    pub(super) fn leave_downlink(&mut self, port: u32) {
        let way = &mut self.ports[port as usize].downlink;
        let slot = self.agenda.unchain(&mut way.chain, Event::Downlink(port));
        if self.agenda.slot(slot).epoch != way.epoch {
            self.lose(slot, LostAt::Downlink);
        } else {
            self.enter_receive(slot);
        }
    }

    /// Into the receive engine.
    pub(super) fn enter_receive(&mut self, slot: u32) {
        let frame = self.agenda.slot(slot);
        let to = frame.to;
        let port = &mut self.ports[to as usize];
        let hca = &mut self.hcas[port.hca as usize];
        let mut at = self.agenda.clock;
        if hca.rate.is_limited() {
            at = at.max(hca.shared_free) + hca.rate.span(frame.wire_bytes);
            hca.shared_free = at;
        }
        at = at.max(hca.rx_free) + hca.frame_ps + if frame.first { hca.message_rx_ps } else { 0 };
        hca.rx_free = at;
        self.agenda.chain(&mut port.receiving, Event::Arrived(to), slot, at + hca.latency_rx_ps);
    }

    /// A frame is in the HCA: its receiver is notified. A phantom is written at once.
    pub(super) fn arrive(&mut self, port: u32) {
        let slot = self.agenda.unchain(&mut self.ports[port as usize].receiving, Event::Arrived(port));
        let frame = self.agenda.slot_mut(slot);
        if frame.flow != NONE {
            frame.from = port;
            self.queue_write(port, slot);
            return;
        }
        let (dlid, corrupt) = (frame.dlid, frame.corrupt);
        self.handling = Some(Handling { port, credit: frame.credit, write: NONE });
        let body = self.agenda.free_slot(slot).expect("only phantoms have no body");
        self.stats.arrived += 1;
        self.agenda.reported.push_back(Outcome::Arrived { port: PortId(port), dlid, corrupt, body });
    }

    /// The arrival that was reported last has been dealt with: without a write its buffer is free.
    pub(super) fn free_delivered(&mut self) {
        if let Some(arrival) = self.handling.take_if(|arrival| arrival.write == NONE) {
            self.return_credit(arrival.port, arrival.credit);
        }
        self.handling = None;
    }

    /// What a port's writer does next; `NONE`: nothing.
    pub(super) fn next_write(&mut self, port: u32) -> u32 {
        self.agenda.remove(&mut self.ports[port as usize].writes).unwrap_or(NONE)
    }

    /// A write is in memory.
    pub(super) fn write_done(&mut self, port: u32, slot: u32) {
        let credit = self.agenda.slot(slot).credit;
        match self.agenda.free_slot(slot) {
            Some(body) => {
                self.stats.written += 1;
                self.agenda.reported.push_back(Outcome::Written { port: PortId(port), body });
            }
            None => self.stats.background_written += 1,
        }
        self.return_credit(port, credit);
    }

    fn queue_write(&mut self, port: u32, slot: u32) {
        self.agenda.append(&mut self.ports[port as usize].writes, slot);
        self.queue_for_bus(Side::Write, port);
    }
}
