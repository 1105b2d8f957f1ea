//! Connections that are made and break at one end, while the other end is notified later: what rails may do
//! to a subchannel (L-2, F-2).

use super::{Cluster, Flying};
use rerail_core::endpoint::{PostKind, RailEvent, RailFault};
use rerail_core::ids::{PeerId, RailId};
use rerail_core::time::Time;

impl Cluster<'_> {
    /// Opens a connection, or reports that it failed; the end of an old one at the other side ends with it.
    pub(super) fn connect(&mut self, near: usize, far: usize, rail: RailId) {
        let now = Time(self.now);
        let (peer, index) = (PeerId(far as u32), usize::from(rail.0));
        if self.link(near, far, index).up {
            // It is up: the other side was faster.
            return;
        }
        if self.refuse_one_in > 0 && self.rng.one_in(self.refuse_one_in) {
            let fault = RailFault::TimedOut;
            return self.nodes[near].endpoint.handle_rail_event(now, RailEvent::Down { peer, rail, fault });
        }
        self.notice(far, near, rail);
        self.connections += 1;
        let connection = self.connections;
        for (from, to) in [(near, far), (far, near)] {
            let link = self.link(from, to, index);
            (link.up, link.connection) = (true, connection);
            link.flying.clear();
            let event = RailEvent::Up { peer: PeerId(to as u32), rail };
            self.nodes[from].endpoint.handle_rail_event(now, event);
            if near == far {
                break;
            }
        }
    }

    /// An end is dead: its posts are complete, nothing arrives at it any more. Packets and writes that it has
    /// sent may still arrive at the other end while that lives.
    pub(super) fn kill(&mut self, near: usize, far: usize, rail: RailId) {
        let index = rail.0.into();
        let link = self.link(near, far, index);
        link.up = false;
        link.finished.clear();
        let mut posted = std::mem::take(&mut link.posted);
        let out = self.rng.below(posted.len() as u64 + 1) as usize;
        for posted in posted.drain(..out) {
            let payload = self.nodes[near].read(&posted.payload);
            let write = match posted.kind {
                PostKind::Send => None,
                // Whether or not it is still registered when it lands: a cache may have kept it.
                PostKind::Write { to } => match self.remote_seg(far, index, to, payload.len() as u64) {
                    Some(seg) => Some(seg),
                    None => continue,
                },
                PostKind::Read { .. } => continue,
            };
            let flying = Flying { header: posted.header, payload, placing: None, skip: false, write, short: None };
            self.link(near, far, index).flying.push_back(flying);
        }
        self.link(far, near, index).flying.clear();
    }

    /// One end of a connection breaks, and is notified; the other one is notified later, or by its peer.
    pub fn break_end(&mut self, near: usize, far: usize, rail: RailId, fault: RailFault) {
        if !self.link(near, far, rail.0.into()).up {
            return;
        }
        self.kill(near, far, rail);
        let event = RailEvent::Down { peer: PeerId(far as u32), rail, fault };
        self.nodes[near].endpoint.handle_rail_event(Time(self.now), event);
    }

    /// An end is notified that its other end is dead.
    pub fn notice(&mut self, near: usize, far: usize, rail: RailId) {
        let index = rail.0.into();
        let (up, connection) = (self.link(near, far, index).up, self.link(near, far, index).connection);
        let other = self.link(far, near, index);
        let stands = other.up && other.connection == connection;
        if up && !stands {
            self.break_end(near, far, rail, RailFault::Closed);
        }
        if !stands {
            self.link(far, near, index).flying.clear();
        }
    }

    /// Whether the other end of a connection lives.
    pub(super) fn is_whole(&mut self, from: usize, to: usize, rail: usize) -> bool {
        let connection = self.link(from, to, rail).connection;
        let other = self.link(to, from, rail);
        other.up && other.connection == connection
    }

    /// Writes of dead ends land, where the other end still lives. Returns how many there were.
    pub fn release_late_writes(&mut self) -> usize {
        self.hold_late_writes = false;
        let (count, rails, mut landed) = (self.nodes.len(), self.rails, 0);
        for (from, to, rail) in
            (0..count).flat_map(|from| (0..count).flat_map(move |to| (0..rails).map(move |rail| (from, to, rail))))
        {
            while let Some(flying) = self.link(from, to, rail).flying.pop_front() {
                landed += usize::from(flying.write.is_some());
                self.deliver(from, to, rail, flying, true);
            }
        }
        landed
    }
}
