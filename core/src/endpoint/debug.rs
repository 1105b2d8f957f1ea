//! The state in progress, for finding the reason of a hang: one line per channel, subchannel and operation.

use core::fmt;

use super::Endpoint;
use crate::ids::RailId;

impl fmt::Debug for Endpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rank {}: {:?}", self.config.rank.0, self.stats)?;
        for index in self.t.channels.indices() {
            let c = self.t.channels.at(index);
            writeln!(
                f,
                "channel {index} to peer {}: {:?}, sent {:?}, received {:?}, esn {:?}, held {}, {:?}, {:?}, ack {:?}",
                c.peer.0,
                c.state(),
                c.sent,
                c.received,
                c.reorder,
                c.messages,
                c.allowance,
                c.grants,
                c.ack
            )?;
            writeln!(
                f,
                "  queues: control {}, ordered {}, requests {}, bulk {}, one-sided {}; {}, active {}",
                c.queues.control.len(),
                c.queues.ordered.len(),
                c.queues.requests.len(),
                c.queues.bulk.len(),
                c.one_sided.len(),
                c.requests,
                c.active.is_linked()
            )?;
            for rail in 0..self.paths.rails.len() as u8 {
                let sub = &self.t.subs[self.t.sub_index(index, RailId(rail))];
                let posts = self.paths.path(index, RailId(rail)).in_flight;
                writeln!(
                    f,
                    "  rail {rail}: {:?}, connect sent {}, {} posts, frame posted {}, place {:?}, probe {:?}, {:?}",
                    sub.link, sub.connect_sent, posts, sub.frame_posted, sub.place, sub.stall_probe, sub.history
                )?;
            }
            writeln!(f, "  {}, {:?}", c.replay, c.work)?;
            let unacked = self.t.packets.indices();
            for packet in unacked.filter(|&packet| self.t.packets.at(packet).channel == index) {
                writeln!(f, "  packet {packet}: {:?}", self.t.packets.at(packet))?;
            }
        }
        for index in self.t.messages.indices() {
            writeln!(f, "message {index}: {:?}", self.t.messages.at(index))?;
        }
        for index in self.t.ops.indices() {
            let op = self.t.ops.at(index);
            writeln!(
                f,
                "operation {index}: {:?} {:?} in {:?}, channel {}, tag {:?}, level {:?}, {} of {} bytes out, {} in, \
                 unacked {}, posts {}, places {}, fin seen {} wanted {}, completed {}, reported {}, round {} \
                 unconfirmed {:x} due {} fins due {:x}, {} of {}, {:?}, control {:?}",
                op.kind(),
                op.phase(),
                op.queued,
                op.channel as i32,
                op.tag,
                op.level,
                op.cursor,
                op.granted,
                op.moved,
                op.unacked,
                op.posts,
                op.places,
                op.fin_seen,
                op.needs_fin,
                op.completed,
                op.is_reported(),
                op.epoch,
                op.unconfirmed,
                op.resume_due,
                op.fins_due,
                op.fins,
                op.fins_expected,
                op.single,
                op.control
            )?;
        }
        Ok(())
    }
}
