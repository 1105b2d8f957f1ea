//! The state between this process and one peer in numbers, as `TCP_INFO` is: for use beside a packet trace,
//! or to find the reason of a hang. `{:?}` of an endpoint prints the same and more. Also statistics, and the
//! fill level of every bounded table: for embedders to display, and for leak checks.
//!
//! Every table that can fill up while an endpoint runs is listed here once. Left out are the peers, which are
//! only added, and the counters, which are all in use from the start.

use super::timer::TIMERS;
use super::{Endpoint, Stats};
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

impl Endpoint<'_> {
    /// The counters.
    pub fn stats(&self) -> Stats {
        let (short_sent, short_received) = self.shorts();
        Stats {
            short_sent,
            short_received,
            packets_sent: self.stats.packets_sent + short_sent,
            packets_received: self.stats.packets_received + short_received,
            sequenced_received: self.stats.sequenced_received + short_received,
            ..self.stats
        }
    }

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
}

/// Entries of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// In use now.
    pub used: u32,
    /// The maximum.
    pub capacity: u32,
}

/// Declares [`Usage`], a table a field, and the list of them.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Entries in use and capacity of every bounded table.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Usage {
            $($(#[$doc])* pub $name: InUse,)*
        }

        impl Usage {
            /// All tables by name, in the order of the fields.
            pub fn tables(&self) -> [(&'static str, InUse); [$(stringify!($name)),*].len()] {
                [$((stringify!($name), self.$name)),*]
            }
        }
    };
}

tables! {
    /// Channels: peers that are connected, are connecting, or are gone with events or messages left.
    channels;
    /// Requests of the caller that are not complete, or not reported.
    operations;
    /// Operations that serve gets and atomics of peers.
    serving;
    /// Refusals of peers' puts in progress.
    refusals;
    /// Packets, writes and reads that a rail has, or that the peer has not acknowledged; short messages not
    /// among them.
    packets;
    /// Numbers of packets in the sent windows of all channels, both lanes.
    unacknowledged;
    /// Messages without a buffer: before their turn, unexpected, claimed, or being copied.
    messages;
    /// Those of them that wait for their turn: an older message of the same peer is missing.
    out_of_order;
    /// Those of them that may be matched by a receive or a probe.
    unexpected;
    /// Blocks of the payload pool that hold payload of messages.
    blocks;
    /// Retained copies; short messages are among them.
    retained;
    /// Sets of stripes: large transfers cut over several rails.
    stripe_sets;
    /// Sets of keys of registered memory, ours and peers', including sets whose registrations are still to be
    /// released.
    key_sets;
    /// Registrations that finished after their operation and are to be released.
    late_registrations;
    /// Windows exposed.
    windows;
    /// Those of them that a peer's request or a placement works on.
    windows_busy;
    /// Receives that wait for a message.
    posted;
    /// Running timers. A silence timer may run on for a while after all is acknowledged.
    timers;
    /// Subchannels with a placement in progress.
    placements;
    /// Subchannels with an unsequenced frame (acknowledgment, probe, ...) at the rail.
    frames;
    /// Subchannels that came up unexpectedly and are to be closed.
    refused;
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

    /// The fill level of every table. Scans every channel, subchannel and window: for diagnostics and tests,
    /// not for the message path.
    pub fn usage(&self) -> Usage {
        let (t, config) = (&self.t, &self.config);
        let table = |used: u32, capacity: u32| InUse { used, capacity };
        let (mut unacknowledged, mut out_of_order, mut shorts) = (0, 0, 0);
        for index in t.channels.indices() {
            let channel = t.channels.at(index);
            // An ended channel's windows are freed with it.
            if !channel.is_over() {
                unacknowledged += channel.sent.iter().map(|lane| lane.len()).sum::<u32>();
            }
            out_of_order += channel.reorder.len();
            shorts += channel.shorts;
        }
        let busy = |&index: &u32| t.windows.key_at(index).is_some() && t.windows.at(index).users > 0;
        let subs = t.subs.len() as u32;
        let windows = 2 * config.channels_max * config.window;
        Usage {
            channels: table(t.channels.len(), t.channels.capacity()),
            operations: table(self.open_requests(), config.operations_max),
            serving: table(
                t.ops.len() + shorts - self.hot.caller_ops - self.refusals,
                t.ops.capacity() - config.operations_max - config.refusals_max(),
            ),
            refusals: table(self.refusals, config.refusals_max()),
            packets: table(t.packets.len(), t.packets.capacity()),
            unacknowledged: table(unacknowledged, windows),
            messages: table(t.messages.len(), t.messages.capacity()),
            out_of_order: table(out_of_order, windows / 2),
            unexpected: table(t.matcher.unexpected.count(), config.messages_max()),
            blocks: table(config.blocks_max() - t.blocks.free_len(), config.blocks_max()),
            retained: table(config.retained_max - t.retention.free_len(), config.retained_max),
            stripe_sets: table(self.paths.stripe_sets.len(), self.paths.stripe_sets.capacity()),
            key_sets: table(t.key_sets.len(), t.key_sets.capacity()),
            late_registrations: table(self.late_keys.len() as u32, self.late_keys.capacity() as u32),
            windows: table(t.windows.len(), t.windows.capacity()),
            windows_busy: table((0..t.windows.capacity()).filter(busy).count() as u32, t.windows.capacity()),
            posted: table(t.matcher.posted.count(), config.operations_max),
            timers: table(t.timers.len(), config.channels_max * TIMERS),
            placements: table(t.subs.iter().filter(|sub| sub.place.is_some()).count() as u32, subs),
            frames: table(t.subs.iter().filter(|sub| sub.frame_posted).count() as u32, subs),
            refused: table(self.refused.len() as u32, self.refused.capacity() as u32),
        }
    }
}
