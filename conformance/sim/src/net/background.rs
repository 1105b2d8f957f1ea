//! Background load: phantom frames without an owner that take bus, engines, links, credit and memory
//! bandwidth as others do, in windows of time (the second program of multirail-2004, 6.3), at a rate or as
//! hard as they can. And buses of which others take a part.

use rerail_core::time::Time;

use super::agenda::{Event, NONE, Ps, Rate, Slot, ps};
use super::bus::Side;
use super::topology::Bus;
use super::{BusId, Net, PortId};

/// Frames by which a load that was held up may be ahead of its rate afterwards.
const CATCH_UP_FRAMES: u64 = 4;

/// A bus under load keeps one in so many parts of its rate.
const BUS_PARTS_LEFT: u64 = 100;

/// One load.
#[derive(Debug)]
pub(super) struct Flow {
    port: u32,
    dlid: u16,
    frame_bytes: u32,
    /// By their beginnings.
    windows: Vec<Window>,
    /// Its next frame comes no earlier.
    next: Ps,
    /// It ends with [`Net::end_loads`].
    ends: bool,
    /// Phantoms in the port's transmit stage.
    pub inside: u32,
}

/// When a load is, and how hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Window {
    from: Ps,
    until: Ps,
    /// From one frame to the next; 0: whenever there is room.
    gap: Ps,
}

impl<B> Net<B> {
    /// A load from a port to a LID: frames of `frame_bytes` (at least 1) whenever there is room, taking turns
    /// with the HCA's own, in the windows `(from, until)`. As many of them may be in the transmit stage as of
    /// the HCA's own. A load to the port itself is none.
    pub fn add_background(&mut self, from: PortId, dlid: u16, frame_bytes: u32, windows: &[(Time, Time)]) {
        let window = |&(from, until): &(Time, Time)| Window { from: ps(from.0), until: ps(until.0), gap: 0 };
        self.add_flow(from, dlid, frame_bytes, windows.iter().map(window).collect(), false);
    }

    /// As [`add_background`](Self::add_background), at so many bytes per second from each moment on (0:
    /// none), until the last moment given or [`end_loads`](Self::end_loads). What the wires don't take is not
    /// made up for, but for a few frames.
    pub fn add_load(&mut self, from: PortId, dlid: u16, frame_bytes: u32, steps: &[(Time, u64)], until: Time) {
        let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([until]);
        let window = |(&(from, rate), until): (&(Time, u64), Time)| {
            // Faster than a byte per picosecond is as fast as can be.
            let gap = Rate::new(rate).span(frame_bytes.max(1)).max(1);
            (rate > 0 && from < until).then_some(Window { from: ps(from.0), until: ps(until.0), gap })
        };
        self.add_flow(from, dlid, frame_bytes, steps.iter().zip(ends).filter_map(window).collect(), true);
    }

    fn add_flow(&mut self, from: PortId, dlid: u16, frame_bytes: u32, mut windows: Vec<Window>, ends: bool) {
        let index = u32::try_from(self.flows.len()).expect("fewer than 2^32 loads");
        windows.sort_unstable();
        for window in &windows {
            self.agenda.schedule(window.from, Event::Flow(index));
        }
        let frame_bytes = frame_bytes.max(1);
        self.flows.push(Flow { port: from.0, dlid, frame_bytes, windows, next: 0, ends, inside: 0 });
        self.ports[from.0 as usize].flows.push(index);
    }

    /// Others take so many bytes per second of a bus from each moment on (0: none), of each of its ways where
    /// it has two; a hundredth of its rate is left in any case. A bus without a limit has none with a load
    /// either. What was set for the bus before counts no more.
    pub fn load_bus(&mut self, bus: BusId, steps: &[(Time, u64)]) {
        let bus = &mut self.buses[bus.0 as usize];
        let whole = bus.bytes_per_second;
        let left = |load: u64| Rate::new(whole.saturating_sub(load).max((whole / BUS_PARTS_LEFT).max(1)));
        let limited = steps.iter().filter(|_| whole > 0);
        bus.loaded = limited.map(|&(at, load)| (ps(at.0), left(load))).collect();
        bus.loaded.sort_by_key(|(at, _)| *at);
    }

    /// All loads that [`add_load`](Self::add_load) and [`load_bus`](Self::load_bus) made are over.
    pub fn end_loads(&mut self) {
        self.flows.iter_mut().filter(|flow| flow.ends).for_each(|flow| flow.windows.clear());
        self.buses.iter_mut().for_each(|bus| bus.loaded.clear());
    }

    /// A window opens, or a load's next frame is due.
    pub(super) fn open_window(&mut self, flow: u32) {
        let now = self.agenda.clock;
        let load = &mut self.flows[flow as usize];
        if load.windows.iter().any(|window| window.from == now && window.gap > 0) {
            // A new rate does not wait for the old one.
            load.next = now;
        }
        let port = load.port;
        self.queue_for_bus(Side::Read, port);
    }

    /// Whether one of a port's loads has a frame to send.
    pub(super) fn has_open_flow(&self, port: u32) -> bool {
        self.ports[port as usize].flows.iter().any(|&flow| self.open(flow).is_some())
    }

    /// The next frame of a load; `NONE`: not now.
    pub(super) fn next_background_frame(&mut self, flow: u32) -> u32 {
        let Some(window) = self.open(flow) else { return NONE };
        let load = &mut self.flows[flow as usize];
        let (from, dlid, bytes) = (load.port, load.dlid, load.frame_bytes);
        let (to, plane) = self.find_route(from, dlid);
        if to == from {
            // What a port sends to itself may take no time at all: such a load would never let time pass.
            return NONE;
        }
        let now = self.agenda.clock;
        let load = &mut self.flows[flow as usize];
        load.inside += 1;
        if window.gap > 0 {
            load.next = load.next.max(now.saturating_sub(CATCH_UP_FRAMES * window.gap)).saturating_add(window.gap);
            if load.next > now {
                self.agenda.schedule(load.next, Event::Flow(flow));
            }
        }
        self.stats.background_frames += 1;
        let frame = Slot { from, to, plane, flow, wire_bytes: bytes, read_bytes: bytes, dlid, ..Slot::plain(None) };
        self.agenda.take_slot(frame)
    }

    /// The window in which a load has a frame to send now.
    fn open(&self, flow: u32) -> Option<Window> {
        let load = &self.flows[flow as usize];
        let now = self.agenda.clock;
        let hca = &self.hcas[self.ports[load.port as usize].hca as usize];
        let mut windows = load.windows.iter().filter(|window| window.from <= now && now < window.until);
        let window = windows.next().copied().filter(|_| load.inside < hca.stage_frames)?;
        (window.gap == 0 || load.next <= now).then_some(window)
    }
}

impl Bus {
    /// What is left of its rate at a moment.
    pub(super) fn rate_at(&self, now: Ps) -> Rate {
        self.loaded.iter().rev().find(|(from, _)| *from <= now).map_or(self.rate, |(_, rate)| *rate)
    }
}
