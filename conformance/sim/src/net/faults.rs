//! What can go wrong on wires. Faults are states of ports, planes and switches; when they come and go is decided outside.

use rerail_core::time::{Nanos, Time};

use super::{Event, Net, PS, PortId, SubnetId};
use crate::rng::Rng;

/// The side of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the port sends.
    Tx,
    /// What the port receives.
    Rx,
    /// Both.
    Both,
}

/// The faults of one port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PortFaults {
    pub(super) tx_down: bool,
    pub(super) rx_down: bool,
    pub(super) jitter_ns: u64,
    /// In picoseconds.
    pub(super) held_until: u64,
    pub(super) lose_next: u32,
    pub(super) corrupt_next: u32,
    pub(super) loss_per_million: u32,
}

/// What becomes of a frame on its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Whole,
    Corrupt,
    Lost,
}

impl PortFaults {
    pub(super) fn fate(&mut self, rng: &mut Rng) -> Fate {
        if self.lose_next > 0 {
            self.lose_next -= 1;
            return Fate::Lost;
        }
        if self.corrupt_next > 0 {
            self.corrupt_next -= 1;
            return Fate::Corrupt;
        }
        match self.loss_per_million > 0 && rng.below(1_000_000) < u64::from(self.loss_per_million) {
            true => Fate::Lost,
            false => Fate::Whole,
        }
    }
}

impl<B> Net<B> {
    /// Takes a link down or up, one way or both. The port notices after `noticed_after`; `None`: never.
    pub fn set_link(&mut self, now: Time, port: PortId, direction: Direction, up: bool, noticed_after: Option<Nanos>) {
        self.advance_to(now);
        let faults = &mut self.ports[port.0 as usize].faults;
        if direction != Direction::Rx {
            faults.tx_down = !up;
        }
        if direction != Direction::Tx {
            faults.rx_down = !up;
        }
        if let Some(delay) = noticed_after {
            self.schedule((now + delay).0.saturating_mul(PS), Event::LinkState { port, up });
        }
    }

    /// Whether a port's link is up both ways.
    pub fn link_is_up(&self, port: PortId) -> bool {
        let faults = &self.ports[port.0 as usize].faults;
        !faults.tx_down && !faults.rx_down
    }

    /// Takes one plane of a subnet down or up: the paths whose LIDs lead over it.
    pub fn set_plane(&mut self, subnet: SubnetId, plane: usize, up: bool) {
        if let Some(plane) = self.subnets[subnet.0 as usize].planes.get_mut(plane) {
            plane.up = up;
        }
    }

    /// Planes of a subnet.
    pub fn planes(&self, subnet: SubnetId) -> usize {
        self.subnets[subnet.0 as usize].planes.len()
    }

    /// Takes all switches of a subnet down or up.
    pub fn set_switch(&mut self, subnet: SubnetId, up: bool) {
        self.subnets[subnet.0 as usize].up = up;
    }

    /// Frames of a port take up to so much longer, each as the seed says; their order stays.
    pub fn set_jitter(&mut self, port: PortId, max: Nanos) {
        self.ports[port.0 as usize].faults.jitter_ns = max.0;
    }

    /// Frames for a port stay in the switch until then, and come all the same: late.
    pub fn hold(&mut self, port: PortId, until: Time) {
        self.ports[port.0 as usize].faults.held_until = until.0.saturating_mul(PS);
    }

    /// So many frames of a port, the next ones, are lost. Control frames are spared.
    pub fn lose_next(&mut self, port: PortId, frames: u32) {
        self.ports[port.0 as usize].faults.lose_next = frames;
    }

    /// So many frames of a port, the next ones, arrive with wrong bytes. Control frames are spared.
    pub fn corrupt_next(&mut self, port: PortId, frames: u32) {
        self.ports[port.0 as usize].faults.corrupt_next = frames;
    }

    /// Frames of a port are lost at random, so many in a million. Control frames are spared.
    pub fn set_loss(&mut self, port: PortId, per_million: u32) {
        self.ports[port.0 as usize].faults.loss_per_million = per_million;
    }

    /// Ends all faults of a port, of its wires that is; what was lost stays lost.
    pub fn heal(&mut self, now: Time, port: PortId, noticed_after: Option<Nanos>) {
        let was_up = self.link_is_up(port);
        self.ports[port.0 as usize].faults = PortFaults::default();
        if !was_up {
            self.set_link(now, port, Direction::Both, true, noticed_after);
        }
    }
}
