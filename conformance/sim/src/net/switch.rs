//! A frame's way through the switch: input, plane, output.
//!
//! Each stage has a gate in front; a gate that keeps a frame lets it go on later with the same step that
//! follows here.

use super::agenda::{Event, NONE};
use super::gate::{Passage, Stage};
use super::{LostAt, Net};

impl<B> Net<B> {
    /// A frame's head comes out of a port's uplink.
    pub(super) fn reach_switch(&mut self, port: u32) {
        let state = &mut self.ports[port as usize];
        let slot = self.agenda.unchain(&mut state.uplink.chain, Event::Ingress(port));
        let (epoch, gate) = (state.uplink.epoch, state.uplink.gate);
        self.leave_stage(slot);
        if self.agenda.slot(slot).epoch != epoch {
            self.lose(slot, LostAt::Uplink);
        } else if self.pass_gate(gate, slot) == Passage::Open {
            self.enter_plane(slot);
        }
    }

    /// Into the plane that the destination LID names.
    fn enter_plane(&mut self, slot: u32) {
        let frame = self.agenda.slot(slot);
        if !self.subnets[self.ports[frame.from as usize].subnet as usize].up {
            self.lose(slot, LostAt::Switch);
        } else if frame.to == NONE {
            self.lose(slot, LostAt::NoRoute);
        } else if self.pass_gate(self.planes[frame.plane as usize].gate, slot) == Passage::Open {
            self.ride_plane(slot);
        }
    }

    fn ride_plane(&mut self, slot: u32) {
        let frame = self.agenda.slot(slot);
        let (index, bytes) = (frame.plane, frame.wire_bytes);
        let header_bytes = self.ports[frame.from as usize].model.header_bytes;
        let plane = &self.planes[index as usize];
        if !plane.up {
            self.lose(slot, LostAt::Plane);
            return;
        }
        if !plane.stop {
            self.leave_switch(slot);
            return;
        }
        let jitter = self.jitter(plane.gate);
        let span_down = self.span_down(slot);
        let plane = &mut self.planes[index as usize];
        let span = plane.rate.span(bytes + header_bytes);
        let start = self.agenda.clock.max(plane.free);
        plane.free = start + span;
        // As on the uplink: the head waits until the last link can send the frame in one piece.
        let slack = span.saturating_sub(span_down);
        let due = start + slack + plane.latency_ps + jitter;
        self.agenda.slot_mut(slot).epoch = plane.epoch;
        self.agenda.chain(&mut plane.chain, Event::Plane(index), slot, due);
    }

    /// A frame's head comes out of a plane.
    pub(super) fn cross_plane(&mut self, plane: u32) {
        let state = &mut self.planes[plane as usize];
        let slot = self.agenda.unchain(&mut state.chain, Event::Plane(plane));
        if self.agenda.slot(slot).epoch != state.epoch {
            self.lose(slot, LostAt::Plane);
        } else {
            self.leave_switch(slot);
        }
    }

    /// To the switch's output.
    fn leave_switch(&mut self, slot: u32) {
        let to = self.agenda.slot(slot).to;
        if self.pass_gate(self.ports[to as usize].downlink.gate, slot) == Passage::Open {
            self.enter_downlink(slot);
        }
    }

    fn enter_downlink(&mut self, slot: u32) {
        let frame = self.agenda.slot(slot);
        let (to, bytes) = (frame.to, frame.wire_bytes);
        let port = &self.ports[to as usize];
        if !self.subnets[port.subnet as usize].up {
            self.lose(slot, LostAt::Switch);
            return;
        }
        if !port.downlink.up {
            self.lose(slot, LostAt::Downlink);
            return;
        }
        let jitter = self.jitter(port.downlink.gate);
        let port = &mut self.ports[to as usize];
        let down = port.down();
        let start = self.agenda.clock.max(port.free[down]);
        let end = start + port.rate.span(bytes + port.model.header_bytes);
        port.free[down] = end;
        self.agenda.slot_mut(slot).epoch = port.downlink.epoch;
        let due = end + port.latency_ps + jitter;
        self.agenda.chain(&mut port.downlink.chain, Event::Downlink(to), slot, due);
    }

    /// A gate lets a frame go on that it kept.
    pub(super) fn go_on(&mut self, stage: Stage, slot: u32) {
        match stage {
            Stage::Input => self.enter_plane(slot),
            Stage::Plane => self.ride_plane(slot),
            Stage::Output => self.enter_downlink(slot),
        }
    }
}
