//! Statistics, and the fill level of every bounded table: for embedders to display, and for leak checks.
//! `{:?}` of an endpoint prints the state of each peer and request.
//!
//! Every table that can fill up while an endpoint runs is listed here once. Left out are the peers, which are
//! only added, and the counters, which are all in use from the start.

use super::timer::TIMERS;
use super::{Endpoint, Stats};

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
    /// Requests of the caller that are not complete, or not reported; parts of multi-receives among them, for
    /// which there is one more than requests.
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

impl Endpoint<'_> {
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
            operations: table(self.open_requests(), config.parts_max()),
            serving: table(
                t.ops.len() + shorts - self.hot.caller_ops - self.refusals,
                t.ops.capacity() - config.parts_max() - config.refusals_max(),
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
