//! What stands between this process and one peer, and what is under way: in numbers, for who reads a packet
//! trace beside it or looks for the reason of a hang, as `TCP_INFO` is. `{:?}` of an endpoint prints the same
//! and more.

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
    /// The PSN that is expected next of the peer.
    pub expected: Seq,
}

/// One channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelInfo {
    /// What takes part in matching.
    pub ordered: LaneInfo,
    /// Everything else that is numbered.
    pub unordered: LaneInfo,
    /// Up to which message and which block the peer may send (C-3).
    pub limits: (u16, u16),
    /// What the peer announced; `None`: it has not yet.
    pub terms: Option<Connect>,
    /// Requests of the peer whose answer is not acknowledged (C-5).
    pub requests_in: u16,
    /// Answers that are with a rail or not acknowledged.
    pub answering: u16,
    /// It waits for a slot of a packet, which all channels share.
    pub waits_for_packet: bool,
}

/// One subchannel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubchannelInfo {
    /// The peer's number of the rail.
    pub peer_rail: u8,
    /// The numbers that both ends gave the connection (F-1).
    pub connection: Pair,
    /// The dead connection whose fence is waited for (F-3).
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
    /// Everything that it has to send is with a rail, or was.
    pub is_sent: bool,
    /// Posts of it that a rail has.
    pub posts: u32,
}

impl Endpoint<'_> {
    /// The channel to `peer`, if there is one. What the express path has counted apart is added to the
    /// channel's tables first, as any packet would have it.
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

    /// All operations: requests of the caller but for plain receives that wait, and what serves peers.
    pub fn operations(&self) -> impl Iterator<Item = OperationInfo> {
        self.t.ops.indices().map(|index| {
            let op = self.t.ops.at(index);
            let (retry_epoch, bytes, is_sent, posts) = (op.round, op.len, op.all_sent, op.posts);
            OperationInfo { id: self.t.op_id(index), retry_epoch, bytes, is_sent, posts }
        })
    }
}
