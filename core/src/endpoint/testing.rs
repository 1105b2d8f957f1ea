//! What only tests look at: the state between this process and one peer in numbers, and whether an endpoint
//! that is idle holds anything.

use super::{Endpoint, InUse, Usage};
use crate::ids::{OpId, PeerId, RailId};
use crate::peer::{ORDERED, UNORDERED};
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
    pub peer_parameters: Option<Connect>,
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

impl Usage {
    /// The first table, by name, that is in use although nothing is in progress: `None` where only channels
    /// are open and windows are exposed. This must hold when everything is received, reported and
    /// acknowledged and no timer is due.
    pub fn leak(&self) -> Option<(&'static str, InUse)> {
        let stays = |name| name == "channels" || name == "windows";
        self.tables().into_iter().find(|&(name, table)| table.used > 0 && !stays(name))
    }
}

impl Endpoint<'_> {
    /// The channel to `peer`, if there is one. The counts of the express path are added to the channel's
    /// tables first, as any packet would do.
    pub fn channel_info(&mut self, peer: PeerId) -> Option<ChannelInfo> {
        let channel = self.t.channel_of(peer)?;
        self.fold_line(channel);
        let c = self.channel(channel);
        let lane = |lane: usize| LaneInfo {
            acked: c.sent[lane].acked(),
            next: c.sent[lane].next(),
            expected: c.received[lane].expected(),
        };
        Some(ChannelInfo {
            ordered: lane(ORDERED),
            unordered: lane(UNORDERED),
            limits: c.grants.limits(),
            peer_parameters: c.peer_parameters,
            requests_in: c.requests.admitted(),
            answering: c.requests.serving,
            waits_for_packet: c.waits[0].is_linked(),
        })
    }

    /// The subchannel to `peer` over `rail`, if there is a channel and such a rail.
    pub fn subchannel_info(&self, peer: PeerId, rail: RailId) -> Option<SubchannelInfo> {
        let channel = self.t.channel_of(peer)?;
        self.paths.rails.get(usize::from(rail.0))?;
        let sub = self.sub(channel, rail);
        Some(SubchannelInfo { peer_rail: sub.peer_rail, connection: sub.link.pair(), waits_for: sub.link.waits_for() })
    }

    /// All operations: requests of the caller except plain receives that wait, and those that serve peers.
    pub fn operations(&self) -> impl Iterator<Item = OperationInfo> {
        self.t.ops.indices().map(|index| {
            let op = self.op(index);
            let (retry_epoch, bytes, is_sent, posts) = (op.epoch, op.len, op.all_sent, op.posts);
            OperationInfo { id: self.t.op_id(index), retry_epoch, bytes, is_sent, posts }
        })
    }

    /// A short description of the first inconsistency in an idle endpoint; `None`: there is none. When
    /// everything is received, reported and acknowledged and no timer is due, no table is in use
    /// ([`Usage::leak`]), and no channel counts anything open, holds any credit, or waits for anything. For
    /// leak checks; scans every channel and subchannel.
    pub fn inconsistency(&self) -> Option<&'static str> {
        let t = &self.t;
        let of_channel = |index| {
            let c = t.channels.at(index);
            [
                (c.requests.is_waiting(), "requests are unanswered"),
                (c.requests.admitted() > 0 || c.requests.serving > 0, "requests of a peer are served"),
                (c.messages > 0, "a channel holds messages"),
                (c.grants.messages_held() > 0 || c.grants.blocks_held() > 0, "a message that is gone holds credits"),
                (!c.reorder.is_empty(), "a message waits for an older one"),
                (c.is_over(), "a channel that is over has its slot"),
            ]
        };
        let of_all = [
            (!t.ops.is_empty() || self.hot.caller_ops > 0, "operations are open"),
            (!self.hot.active.is_empty(), "a channel has something to do"),
            (self.waiting.iter().any(|list| !list.is_empty()), "a channel waits for a slot"),
            (self.parts_waiting, "a multi-receive waits for a slot"),
            (self.paths.has_posts(), "a rail has posts"),
            (t.matcher.posted.count() + t.matcher.unexpected.count() > 0, "receives or messages wait for a match"),
        ];
        let mut all = of_all.into_iter().chain(t.channels.indices().flat_map(of_channel));
        all.find(|&(is_so, _)| is_so).map(|(_, what)| what)
    }
}
