//! The state between this process and one peer in numbers, as `TCP_INFO` is: for use beside a packet trace,
//! or to find the reason of a hang. `{:?}` of an endpoint prints the same and more.

use super::Endpoint;
use super::channel::{ORDERED, UNORDERED};
use crate::ids::{OpId, PeerId, RailId};
use crate::rel::link::Pair;
use crate::seq::Seq;
use crate::wire::Connect;

/// Numbers of one lane of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneInfo {
    /// The oldest PSN that the peer has not acknowledged.
    pub acked: Seq,
    /// The PSN that the next packet will have.
    pub next: Seq,
    /// The PSN expected next from the peer.
    pub expected: Seq,
}

/// One channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelInfo {
    /// What takes part in matching.
    pub ordered: LaneInfo,
    /// All other numbered packets.
    pub unordered: LaneInfo,
    /// The limits on messages and blocks that the peer may send (C-3).
    pub limits: (u16, u16),
    /// The negotiated parameters of the peer; `None`: not received yet.
    pub terms: Option<Connect>,
    /// Requests of the peer whose answer is not acknowledged (C-5).
    pub requests_in: u16,
    /// Answers that a rail holds or the peer has not acknowledged.
    pub answering: u16,
    /// It waits for a packet slot, which all channels share.
    pub waits_for_packet: bool,
}

/// One subchannel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubchannelInfo {
    /// The peer's number of the rail.
    pub peer_rail: u8,
    /// The numbers that both ends gave the connection (F-1).
    pub connection: Pair,
    /// The dead connection whose fence is pending (F-3).
    pub waits_for: Option<Pair>,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationInfo {
    /// Its name.
    pub id: OpId,
    /// Its retry epoch (F-7).
    pub retry_epoch: u16,
    /// Bytes of its message.
    pub bytes: u64,
    /// All its packets are with a rail, or were.
    pub is_sent: bool,
    /// Its posts with a rail.
    pub posts: u32,
}

impl Endpoint<'_> {
    /// The channel to `peer`, if there is one. The counts of the express path are added to the channel's
    /// tables first, as any packet would do.
    pub fn channel_info(&mut self, peer: PeerId) -> Option<ChannelInfo> {
        let channel = self.t.channel_of(peer)?;
        self.fold_line(channel);
        let c = self.t.channels.at(channel);
        let lane = |lane: usize| LaneInfo {
            acked: c.sent[lane].acked(),
            next: c.sent[lane].next(),
            expected: c.received[lane].expected(),
        };
        Some(ChannelInfo {
            ordered: lane(ORDERED),
            unordered: lane(UNORDERED),
            limits: c.grants.limits(),
            terms: c.terms,
            requests_in: c.requests_in,
            answering: c.serving,
            waits_for_packet: c.waits[0].is_linked(),
        })
    }

    /// The subchannel to `peer` over `rail`, if there is a channel and such a rail.
    pub fn subchannel_info(&self, peer: PeerId, rail: RailId) -> Option<SubchannelInfo> {
        let channel = self.t.channel_of(peer)?;
        self.paths.rails.get(usize::from(rail.0))?;
        let sub = &self.t.subs[self.t.sub_index(channel, rail)];
        Some(SubchannelInfo { peer_rail: sub.peer_rail, connection: sub.link.pair(), waits_for: sub.link.waits_for() })
    }

    /// All operations: requests of the caller except plain receives that wait, and those that serve peers.
    pub fn operations(&self) -> impl Iterator<Item = OperationInfo> {
        self.t.ops.indices().map(|index| {
            let op = self.t.ops.at(index);
            let (retry_epoch, bytes, is_sent, posts) = (op.round, op.len, op.all_sent, op.posts);
            OperationInfo { id: self.t.op_id(index), retry_epoch, bytes, is_sent, posts }
        })
    }
}
