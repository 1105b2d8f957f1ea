//! The state in progress, for finding the reason of a hang: one line per channel, subchannel, packet, message
//! and operation.

use core::fmt;

use super::Endpoint;
use crate::ids::RailId;
use crate::op::{ShortRecord, record_of};
use crate::peer::ORDERED;

impl fmt::Debug for Endpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rank {}: {:?}", self.config.rank, self.stats)?;
        for index in self.t.channels.indices() {
            writeln!(f, "channel {index}: {:?}", self.channel(index))?;
            for rail in (0..self.paths.rails.len() as u8).map(RailId) {
                let posts = self.paths.path(index, rail).in_flight;
                writeln!(f, "  rail {rail}: {posts} posts, {:?}", self.sub(index, rail))?;
            }
            let unacked = self.t.packets.indices();
            for packet in unacked.filter(|&packet| self.packet(packet).channel == index) {
                writeln!(f, "  packet {packet}: {:?}", self.packet(packet))?;
            }
            let (sent, slots) =
                (&self.channel(index).sent[ORDERED], &self.t.sent_slots[self.t.sent_at(index, ORDERED)]);
            let mut from = sent.oldest();
            while let Some((psn, handle)) = sent.next_held(slots, from) {
                from = psn.next();
                if let Some(record) = record_of(handle) {
                    writeln!(f, "  {}: {:?}", psn.0, self.t.retention.record(record))?;
                }
            }
            let is_only_posted = |record: &&ShortRecord| record.is_only_posted() && record.channel == index;
            for record in self.t.retention.records().filter(is_only_posted) {
                writeln!(f, "  {record:?}")?;
            }
        }
        for index in self.t.messages.indices() {
            writeln!(f, "message {index}: {:?}", self.message(index))?;
        }
        self.t.ops.indices().try_for_each(|index| writeln!(f, "operation {index}: {:?}", self.op(index)))
    }
}
