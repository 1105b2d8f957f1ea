//! Links, planes and switches that go down and come back.
//!
//! Going down takes what is on the wire with it: a frame remembers the life (epoch) of the link or plane it
//! went onto, and is lost if that life is over when it comes out.

use rerail_core::time::{Nanos, Time};

use super::agenda::{Event, Rate, ps};
use super::{Direction, LostAt, Net, Outcome, Place, PortId, SubnetId};

impl<B> Net<B> {
    /// Cuts a port's link, or mends it; one way or both. The port looks at it after `noticed_after` (see
    /// [`notice`](Self::notice)); `None`: it never does, frames just vanish.
    pub fn set_link(&mut self, now: Time, port: PortId, direction: Direction, up: bool, noticed_after: Option<Nanos>) {
        self.agenda.enter(now);
        let state = &mut self.ports[port.0 as usize];
        for (way, meant) in [(&mut state.uplink, Direction::Tx), (&mut state.downlink, Direction::Rx)] {
            if direction == Direction::Both || direction == meant {
                way.epoch += u32::from(way.up && !up);
                way.up = up;
            }
        }
        if let Some(delay) = noticed_after {
            self.notice(port, delay);
        }
        self.drain_dead_paths();
    }

    /// Makes a port look at its link after a while: [`Outcome::LinkState`] follows if the link then isn't
    /// what the port last reported. A flap that is over by then goes unnoticed.
    pub fn notice(&mut self, port: PortId, after: Nanos) {
        self.agenda.schedule(self.agenda.clock.saturating_add(ps(after.0)), Event::Detect(port.0));
    }

    /// Breaks a plane of a subnet, or mends it: the paths whose LIDs lead over it. No port notices; frames
    /// are lost.
    pub fn set_plane(&mut self, subnet: SubnetId, plane: usize, up: bool) {
        let index = self.plane_index(subnet, plane);
        let plane = &mut self.planes[index];
        plane.epoch += u32::from(plane.up && !up);
        plane.up = up;
        self.drain_dead_paths();
    }

    /// Switches a subnet's switches off, with all that is in them and on their links, or on again. Ports
    /// notice where they are set to look ([`notice`](Self::notice)).
    pub fn set_switch(&mut self, subnet: SubnetId, up: bool) {
        let state = &mut self.subnets[subnet.0 as usize];
        let dies = state.up && !up;
        state.up = up;
        if dies {
            let planes = state.plane as usize..(state.plane + state.planes) as usize;
            for plane in &mut self.planes[planes] {
                plane.epoch += 1;
            }
            for port in self.ports.iter_mut().filter(|port| port.subnet == subnet.0) {
                port.uplink.epoch += 1;
                port.downlink.epoch += 1;
            }
            for index in 0..self.gates.len() {
                if self.gates[index].subnet == subnet.0 {
                    self.drop_held(index as u32, LostAt::Switch);
                }
            }
        }
        self.drain_dead_paths();
    }

    /// Ends all faults of a port's own wires, jitter and damage included, and delivers what is held for it;
    /// what was lost stays lost.
    pub fn heal(&mut self, now: Time, port: PortId, noticed_after: Option<Nanos>) {
        self.agenda.enter(now);
        self.clear(Place::From(port));
        self.clear(Place::To(port));
        let state = &self.ports[port.0 as usize];
        if !(state.uplink.up && state.downlink.up) {
            self.set_link(now, port, Direction::Both, true, noticed_after);
        }
    }

    /// Gives a port's link another data rate from the next frame on, both ways: a 4x link that has come back
    /// as 1x.
    ///
    /// # Panics
    /// Where it is 0: a link needs a rate.
    pub fn set_link_rate(&mut self, now: Time, port: PortId, bytes_per_second: u64) {
        assert!(bytes_per_second > 0, "a link needs a rate");
        self.agenda.enter(now);
        let port = &mut self.ports[port.0 as usize];
        port.model.bytes_per_second = bytes_per_second;
        port.rate = Rate::new(bytes_per_second);
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
        if state.reported_up != up {
            state.reported_up = up;
            self.agenda.reported.push_back(Outcome::LinkState { port: PortId(port), up });
        }
    }

    /// Index in the fabric of a subnet's plane.
    pub(super) fn plane_index(&self, subnet: SubnetId, plane: usize) -> usize {
        let subnet = &self.subnets[subnet.0 as usize];
        assert!(plane < subnet.planes as usize, "the subnet has {} planes, not plane {plane}", subnet.planes);
        subnet.plane as usize + plane
    }

    /// Frames that wait for credit on a path that is dead now go on, and are lost on it; those behind them
    /// are looked at. All lines form anew, in their order.
    fn drain_dead_paths(&mut self) {
        for receiver in 0..self.ports.len() {
            let line = std::mem::take(&mut self.ports[receiver].credit_line);
            for port in line {
                self.launch_blocked(port);
            }
        }
    }
}
