//! Links, planes and switches that go down and come back.
//!
//! Going down takes what is on the wire with it: a frame remembers the life (epoch) of the link or plane it went onto,
//! and is lost if that life is over when it comes out.

use rerail_core::time::{Nanos, Time};

use super::agenda::{Event, Rate, ps};
use super::{Direction, Loss, Net, Outcome, PortId, SubnetId};

impl<B> Net<B> {
    /// Cuts a port's link, or mends it; one way or both. The port notices after its detection delay, if the link is then
    /// not what it thinks.
    pub fn set_link(&mut self, now: Time, port: PortId, direction: Direction, up: bool) {
        self.agenda.enter(now);
        let state = &mut self.ports[port.0 as usize];
        for (way, meant) in [(&mut state.uplink, Direction::Tx), (&mut state.downlink, Direction::Rx)] {
            if direction == Direction::Both || direction == meant {
                way.epoch += u32::from(way.up && !up);
                way.up = up;
            }
        }
        self.schedule_detection(port.0);
        self.drain_dead_paths();
    }

    /// How long a port takes to notice that its link changed ([`Outcome::LinkState`]); `None`: it never does, frames just
    /// vanish. Zero at first; another delay counts from the next change of the link on.
    pub fn set_detection(&mut self, port: PortId, delay: Option<Nanos>) {
        self.ports[port.0 as usize].detection_ps = delay.map(|delay| ps(delay.0));
    }

    /// Breaks a plane of a subnet, or mends it. No port notices: its frames are lost.
    pub fn set_plane(&mut self, now: Time, subnet: SubnetId, plane: u8, up: bool) {
        self.agenda.enter(now);
        let index = self.plane_index(subnet, plane);
        let plane = &mut self.planes[index];
        plane.epoch += u32::from(plane.up && !up);
        plane.up = up;
        self.drain_dead_paths();
    }

    /// Switches a subnet's switch off, with all that is in it and on its links, or on again. All its ports notice, each
    /// after its detection delay.
    pub fn set_switch(&mut self, now: Time, subnet: SubnetId, up: bool) {
        self.agenda.enter(now);
        let state = &mut self.subnets[subnet.0 as usize];
        let dies = state.up && !up;
        state.up = up;
        let planes = state.plane as usize..(state.plane + state.planes) as usize;
        for plane in &mut self.planes[planes] {
            plane.epoch += u32::from(dies);
        }
        for index in 0..self.ports.len() {
            let port = &mut self.ports[index];
            if port.subnet == subnet.0 {
                port.uplink.epoch += u32::from(dies);
                port.downlink.epoch += u32::from(dies);
                self.schedule_detection(index as u32);
            }
        }
        if dies {
            for index in 0..self.gates.len() {
                if self.gates[index].subnet == subnet.0 {
                    self.drop_held(index as u32, Loss::Switch);
                }
            }
        }
        self.drain_dead_paths();
    }

    /// Gives a port's link another data rate from the next frame on, both ways: a 4x link that has come back as 1x. 0: no
    /// limit.
    pub fn set_link_rate(&mut self, now: Time, port: PortId, bytes_per_second: u64) {
        self.agenda.enter(now);
        self.ports[port.0 as usize].rate = Rate::new(bytes_per_second);
    }

    /// Whether a port's link works, both ways, noticed or not.
    pub fn link_is_up(&self, port: PortId) -> bool {
        let port = &self.ports[port.0 as usize];
        port.uplink.up && port.downlink.up && self.subnets[port.subnet as usize].up
    }

    /// A port looks at its link.
    pub(super) fn detect(&mut self, port: u32) {
        let up = self.link_is_up(PortId(port));
        let state = &mut self.ports[port as usize];
        if state.told_up != up && state.detection_ps.is_some() {
            state.told_up = up;
            self.agenda.told.push_back(Outcome::LinkState { port: PortId(port), up });
        }
    }

    /// Index in the fabric of a subnet's plane.
    pub(super) fn plane_index(&self, subnet: SubnetId, plane: u8) -> usize {
        let subnet = &self.subnets[subnet.0 as usize];
        assert!(u32::from(plane) < subnet.planes, "the subnet has {} planes, not plane {plane}", subnet.planes);
        subnet.plane as usize + usize::from(plane)
    }

    fn schedule_detection(&mut self, port: u32) {
        if let Some(delay) = self.ports[port as usize].detection_ps {
            self.agenda.schedule(self.agenda.clock.saturating_add(delay), Event::Detect(port));
        }
    }

    /// Frames that wait for credit on a path that is dead now go on, and are lost on it; those behind them are looked at.
    /// All lines form anew, in their order.
    fn drain_dead_paths(&mut self) {
        for receiver in 0..self.ports.len() {
            let line = std::mem::take(&mut self.ports[receiver].credit_line);
            for port in line {
                self.launch_blocked(port);
            }
        }
    }
}
