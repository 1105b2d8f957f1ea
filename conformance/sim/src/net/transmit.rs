//! A frame's way out: transmit stage, bus, engine, credit, uplink.

use rerail_core::time::Time;

use super::agenda::{Event, NONE, Ps, Slot};
use super::bus::Side;
use super::{Frame, LostAt, Net, Outcome, PortId};

impl<B> Net<B> {
    /// Gives a frame to its port.
    ///
    /// # Errors
    /// The port's transmit stage is full: the frame comes back, and [`Outcome::Room`] follows when there is
    /// room.
    pub fn send(&mut self, now: Time, frame: Frame<B>) -> Result<(), Frame<B>> {
        self.agenda.enter(now);
        let from = frame.from.0;
        if !frame.control && self.room(frame.from) == 0 {
            self.ports[from as usize].room_requested = true;
            return Err(frame);
        }
        self.stats.frames += 1;
        let (to, plane) = self.find_route(from, frame.dlid);
        let slot = self.agenda.take_slot(Slot {
            from,
            to,
            plane,
            wire_bytes: frame.wire_bytes,
            read_bytes: frame.read_bytes,
            dlid: frame.dlid,
            control: frame.control,
            first: frame.first,
            ..Slot::plain(Some(frame.body))
        });
        if frame.control {
            self.enter_engine(slot);
            return Ok(());
        }
        let port = &mut self.ports[from as usize];
        port.stage_used += 1;
        self.agenda.append(&mut port.staged, slot);
        self.pass_unread(from);
        self.queue_for_bus(Side::Read, from);
        Ok(())
    }

    /// Whether a port would take a frame.
    pub fn has_room(&self, port: PortId) -> bool {
        self.room(port) > 0
    }

    /// Requests [`Outcome::Room`] as a refusal does: when a frame leaves the port's transmit stage next.
    pub fn request_room(&mut self, port: PortId) {
        self.ports[port.0 as usize].room_requested = true;
    }

    /// How many more frames a port's transmit stage takes.
    pub fn room(&self, port: PortId) -> usize {
        let port = &self.ports[port.0 as usize];
        self.hcas[port.hca as usize].stage_frames.saturating_sub(port.stage_used) as usize
    }

    /// Frames at the head of the stage that need no read go on without the bus, if none of theirs is being
    /// read.
    fn pass_unread(&mut self, port: u32) {
        loop {
            let state = &mut self.ports[port as usize];
            let head = state.staged.head();
            if head == NONE || state.reads_own || self.agenda.slot(head).read_bytes > 0 {
                return;
            }
            self.agenda.remove(&mut state.staged);
            self.enter_engine(head);
        }
    }

    /// What a port's reader fetches next: its own frames and the background loads take turns. `NONE`:
    /// nothing.
    pub(super) fn next_read(&mut self, port: u32) -> u32 {
        let sources = 1 + self.ports[port as usize].flows.len() as u32;
        for _ in 0..sources {
            let state = &mut self.ports[port as usize];
            let source = state.source_turn % sources;
            state.source_turn = (source + 1) % sources;
            let slot = match source {
                0 => self.agenda.remove(&mut state.staged).unwrap_or(NONE),
                _ => {
                    let flow = state.flows[source as usize - 1];
                    self.next_background_frame(flow)
                }
            };
            if slot != NONE {
                self.ports[port as usize].reads_own = source == 0;
                return slot;
            }
        }
        NONE
    }

    /// A frame's data is in the HCA.
    pub(super) fn read_done(&mut self, port: u32, slot: u32) {
        self.ports[port as usize].reads_own = false;
        self.enter_engine(slot);
        self.pass_unread(port);
    }

    fn enter_engine(&mut self, slot: u32) {
        let frame = self.agenda.slot(slot);
        let port = &mut self.ports[frame.from as usize];
        let hca = &mut self.hcas[port.hca as usize];
        let mut at = self.agenda.clock;
        if hca.rate.is_limited() {
            at = at.max(hca.shared_free) + hca.rate.span(frame.wire_bytes);
            hca.shared_free = at;
        }
        at = at.max(hca.tx_free) + hca.frame_ps + if frame.first { hca.message_tx_ps } else { 0 };
        hca.tx_free = at;
        let event = Event::Uplink(frame.from);
        self.agenda.chain(&mut port.engine, event, slot, at + hca.latency_tx_ps);
    }

    /// A frame has passed the engine: onto the link, if the receiver has a buffer for it.
    pub(super) fn reach_uplink(&mut self, port: u32) {
        let slot = self.agenda.unchain(&mut self.ports[port as usize].engine, Event::Uplink(port));
        if self.agenda.slot(slot).control {
            self.launch(slot);
            return;
        }
        let blocked = &mut self.ports[port as usize].blocked;
        let alone = blocked.is_empty();
        self.agenda.append(blocked, slot);
        if alone {
            self.launch_blocked(port);
        }
    }

    /// Launches what waits for credit at a port, until one has to wait: it stands in its receiver's line
    /// then.
    pub(super) fn launch_blocked(&mut self, port: u32) {
        loop {
            let slot = self.ports[port as usize].blocked.head();
            if slot == NONE {
                return;
            }
            let need = self.credit_needed(slot);
            if need > 0 {
                let to = self.agenda.slot(slot).to;
                let receiver = &mut self.ports[to as usize];
                let over = receiver.credit_taken + u64::from(need) > u64::from(receiver.buffer_bytes);
                if over || !receiver.credit_line.is_empty() {
                    receiver.credit_line.push_back(port);
                    return;
                }
            }
            self.launch_first(port, need);
        }
    }

    /// Gives buffer back, and launches those that wait for it.
    pub(super) fn return_credit(&mut self, port: u32, credit: u32) {
        if credit == 0 {
            return;
        }
        self.ports[port as usize].credit_taken -= u64::from(credit);
        while let Some(&first) = self.ports[port as usize].credit_line.front() {
            let slot = self.ports[first as usize].blocked.head();
            let need = self.credit_needed(slot);
            let receiver = &mut self.ports[port as usize];
            if receiver.credit_taken + u64::from(need) > u64::from(receiver.buffer_bytes) {
                return;
            }
            receiver.credit_line.pop_front();
            self.launch_first(first, need);
            self.launch_blocked(first);
        }
    }

    fn launch_first(&mut self, port: u32, credit: u32) {
        let slot = self.agenda.remove(&mut self.ports[port as usize].blocked).expect("the port has a blocked frame");
        self.take_credit(slot, credit);
        self.launch(slot);
    }

    pub(super) fn take_credit(&mut self, slot: u32, credit: u32) {
        let frame = self.agenda.slot_mut(slot);
        frame.credit = credit;
        if credit > 0 {
            self.ports[frame.to as usize].credit_taken += u64::from(credit);
        }
    }

    /// Buffer that a frame needs at its receiver; 0 where it will not get there: a dead path is drained, not
    /// waited for.
    pub(super) fn credit_needed(&self, slot: u32) -> u32 {
        let frame = self.agenda.slot(slot);
        if frame.control || frame.to == NONE {
            return 0;
        }
        let receiver = &self.ports[frame.to as usize];
        let alive = frame.to == frame.from
            || (self.ports[frame.from as usize].uplink.up
                && self.subnets[receiver.subnet as usize].up
                && self.planes[frame.plane as usize].up
                && receiver.downlink.up);
        if alive { frame.wire_bytes.min(receiver.buffer_bytes) } else { 0 }
    }

    /// Onto the uplink.
    fn launch(&mut self, slot: u32) {
        let frame = self.agenda.slot(slot);
        let (from, bytes) = (frame.from, frame.wire_bytes);
        if frame.to == from {
            // A port talks to itself inside the HCA (IB spec vol. 1, 17.2.2: loopback); the link has no part
            // in it.
            self.leave_stage(slot);
            self.enter_receive(slot);
            return;
        }
        let jitter = self.jitter(self.ports[from as usize].uplink.gate);
        let port = &self.ports[from as usize];
        let span = port.rate.span(bytes + port.model.header_bytes);
        let start = self.agenda.clock.max(port.free[0]);
        let slack = span.saturating_sub(self.span_ahead(slot));
        let due = start + slack + port.latency_ps + self.subnets[port.subnet as usize].latency_ps + jitter;
        let port = &mut self.ports[from as usize];
        port.free[0] = start + span;
        // A dead link takes frames at its rate, and gives none of them: they are of a life that is over.
        let dead = u32::from(!port.uplink.up);
        self.agenda.slot_mut(slot).epoch = port.uplink.epoch.wrapping_sub(dead);
        self.agenda.chain(&mut port.uplink.chain, Event::Ingress(from), slot, due);
    }

    /// How long the link after the uplink takes for a frame: its head waits in the switch until that link can
    /// send it in one piece, so that a slow link does not hold a fast one.
    fn span_ahead(&self, slot: u32) -> Ps {
        let frame = self.agenda.slot(slot);
        let plane = &self.planes[frame.plane as usize];
        if plane.rate.is_limited() {
            // The trunk carries what the uplink's link layer carries.
            return plane.rate.span(frame.wire_bytes + self.ports[frame.from as usize].model.header_bytes);
        }
        self.span_down(slot)
    }

    /// How long a frame takes on its last link.
    pub(super) fn span_down(&self, slot: u32) -> Ps {
        let frame = self.agenda.slot(slot);
        self.ports
            .get(frame.to as usize)
            .map_or(Ps::MAX, |port| port.rate.span(frame.wire_bytes + port.model.header_bytes))
    }

    /// A frame is no longer in its port's transmit stage.
    pub(super) fn leave_stage(&mut self, slot: u32) {
        let frame = self.agenda.slot(slot);
        let (from, flow) = (frame.from, frame.flow);
        if frame.control {
            return;
        }
        if flow != NONE {
            self.flows[flow as usize].inside -= 1;
            self.queue_for_bus(Side::Read, from);
            return;
        }
        let port = &mut self.ports[from as usize];
        port.stage_used -= 1;
        if std::mem::take(&mut port.room_requested) {
            self.agenda.reported.push_back(Outcome::Room(PortId(from)));
        }
    }

    /// A frame is gone.
    pub(super) fn lose(&mut self, slot: u32, why: LostAt) {
        let frame = self.agenda.slot_mut(slot);
        let (from, to, credit) = (frame.from, frame.to, std::mem::take(&mut frame.credit));
        match self.agenda.free_slot(slot) {
            Some(body) => {
                self.stats.lost += 1;
                self.agenda.reported.push_back(Outcome::Lost { from: PortId(from), body, why });
            }
            None => self.stats.background_lost += 1,
        }
        if credit > 0 {
            self.return_credit(to, credit);
        }
    }
}
