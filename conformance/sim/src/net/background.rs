//! Background load: phantom frames of nobody's that take bus, engines, links, credit and memory bandwidth as others do,
//! in windows of time (the second program of multirail-2004, 6.3).

use rerail_core::time::Time;

use super::agenda::{Event, NONE, Ps, Slot, ps};
use super::bus::Side;
use super::{Net, PortId};

/// One load.
#[derive(Debug)]
pub(super) struct Flow {
    port: u32,
    dlid: u16,
    frame_bytes: u32,
    /// From, until; by their beginnings.
    windows: Vec<(Ps, Ps)>,
    /// Phantoms in the port's transmit stage.
    pub inside: u32,
}

impl<B> Net<B> {
    /// A load from a port to a LID: frames of `frame_bytes` (at least 1) whenever there is room, taking turns with the
    /// HCA's own, in the windows `(from, until)`. As many of them may be in the transmit stage as of the HCA's own. A load to the port itself is none.
    pub fn add_background(&mut self, from: PortId, dlid: u16, frame_bytes: u32, windows: &[(Time, Time)]) {
        let index = u32::try_from(self.flows.len()).expect("fewer than 2^32 loads");
        let mut windows: Vec<_> = windows.iter().map(|&(from, until)| (ps(from.0), ps(until.0))).collect();
        windows.sort_unstable();
        for &(from, _) in &windows {
            self.agenda.schedule(from, Event::Flow(index));
        }
        self.flows.push(Flow { port: from.0, dlid, frame_bytes: frame_bytes.max(1), windows, inside: 0 });
        self.ports[from.0 as usize].flows.push(index);
    }

    /// A window opens.
    pub(super) fn open_window(&mut self, flow: u32) {
        self.want_bus(Side::Read, self.flows[flow as usize].port);
    }

    /// Whether one of a port's loads has a frame to send.
    pub(super) fn has_open_flow(&self, port: u32) -> bool {
        self.ports[port as usize].flows.iter().any(|&flow| self.is_open(flow))
    }

    /// The next frame of a load; `NONE`: not now.
    pub(super) fn next_phantom(&mut self, flow: u32) -> u32 {
        if !self.is_open(flow) {
            return NONE;
        }
        let load = &mut self.flows[flow as usize];
        let (from, dlid, bytes) = (load.port, load.dlid, load.frame_bytes);
        let (to, plane) = self.find_route(from, dlid);
        if to == from {
            // What a port tells itself may take no time at all: such a load would never let time pass.
            return NONE;
        }
        self.flows[flow as usize].inside += 1;
        self.stats.phantoms += 1;
        let frame = Slot { from, to, plane, flow, wire_bytes: bytes, read_bytes: bytes, dlid, ..Slot::plain(None) };
        self.agenda.take_slot(frame)
    }

    fn is_open(&self, flow: u32) -> bool {
        let load = &self.flows[flow as usize];
        let now = self.agenda.clock;
        let hca = &self.hcas[self.ports[load.port as usize].hca as usize];
        load.inside < hca.stage_frames && load.windows.iter().any(|&(from, until)| from <= now && now < until)
    }
}
