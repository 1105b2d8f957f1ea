//! The line of a channel, its express path (see [`fast`](crate::fast)): when it is open, and how the tables
//! are updated from it. Also which rails of a channel are ready, on which that depends.
//!
//! A line leads over a rail that is lossless and keeps the order. A message counts as acknowledged once it is
//! in the ring: a live peer can't miss it (F-9). So beside other rails nothing may overtake it: neither the
//! rest of the ordered lane, which keeps to that rail, nor limits, nor BYE (S-12). Anything unusual closes
//! the line: code that changes what [`Endpoint::open_sending`] and [`Endpoint::open_receiving`] check calls
//! [`Endpoint::close_line`]. The next message that needs the line opens it again.

use super::{Endpoint, MessageClass};
use crate::fast::{Line, Sending};
use crate::ids::RailId;
use crate::peer::{ChannelState, ORDERED};
use crate::rail::sched::Aggregates;
use crate::wire::Counts;

impl Endpoint<'_> {
    /// A subchannel's state may have changed: whether packets may be posted on it.
    pub(super) fn refresh(&mut self, channel: u32, rail: RailId) {
        let is_ready = self.sub(channel, rail).is_ready();
        if self.paths.set_ready(channel, rail, is_ready) {
            self.channel_mut(channel).express_budget.close();
            self.line_has_changed(channel);
        }
    }

    /// Ready rails of a channel by the state of their subchannels: the result that `refresh` must have.
    pub(super) fn ready_subs(&self, channel: u32) -> u64 {
        let rails = (0..self.paths.rails.len() as u8).map(RailId);
        let is_ready = |rail: &RailId| self.t.subs[self.t.sub_index(channel, *rail)].is_ready();
        rails.filter(is_ready).fold(0, |mask, rail| mask | 1 << rail.0)
    }

    // ---- lines

    /// The rail of a channel whose messages may use the express path: the only one that loses nothing, alone
    /// or beside others.
    pub(super) fn express_rail(&self, channel: u32) -> Option<RailId> {
        let slot = self.channel(channel);
        let rails = self.t.peers[slot.peer.0 as usize].rails;
        let lossless = rails & !self.paths.lossy;
        let rail = RailId(lossless.trailing_zeros() as u8);
        let facts = self.paths.rails.get(usize::from(rail.0))?;
        let is_able = lossless.is_power_of_two() && facts.short_bytes_max > 0;
        let is_chosen = rails == lossless || slot.ring.is_some() || self.prefers_uncut(rail);
        let is_ready = self.paths.ready(channel) & lossless != 0
            && slot.replay.aborted_placements == 0
            && !slot.replay.is_pending()
            && slot.work.fences.is_empty();
        (is_able && is_chosen && is_ready && self.has_short_rail).then_some(rail)
    }

    /// Whether the policy of small messages may choose this rail for all of them.
    fn prefers_uncut(&self, rail: RailId) -> bool {
        let class = MessageClass::Small;
        self.paths.policies.class(class).choice.estimates
            && self.paths.eligible(class, 1 << rail.0 | self.paths.lossy) >> rail.0 & 1 == 1
    }

    /// Short messages go, or came, on this rail. Beside others it has all of the ordered lane from now on,
    /// and limits (S-12).
    pub(super) fn keep_to_ring(&mut self, channel: u32, rail: RailId) {
        let slot = self.t.channels.at_mut(channel);
        let has_others = !self.t.peers[slot.peer.0 as usize].rails.is_power_of_two();
        if has_others && slot.ring.is_none() {
            slot.ring = Some(rail);
            slot.express_budget.stop_sending();
            // Limits that went on others may be ignored (C-6).
            slot.ack.make_due();
            self.activate(channel);
        }
    }

    /// The largest eager payload on a rail: a packet on a rail that may fail must fit every other rail for
    /// replay (F-5).
    pub(super) fn eager_bytes_max(&self, channel: u32, rail: RailId) -> u32 {
        let facts = self.paths.facts(rail);
        let others = if facts.caps.lossless { u32::MAX } else { self.channel(channel).limits.eager_bytes_max };
        self.config.eager_bytes_max.min(facts.eager_bytes_max).min(others)
    }

    /// Opens a channel's line for sending, if nothing prevents it. Returns whether it is open.
    #[cold]
    pub(super) fn open_sending(&mut self, channel: u32) -> bool {
        self.fold_line(channel);
        let Some(rail) = self.express_rail(channel) else { return false };
        let slot = self.channel(channel);
        let aggregates = self.paths.policies.of_small().aggregates == Aggregates::Always;
        let Some(peer_parameters) = slot.peer_parameters else { return false };
        if slot.state() != ChannelState::Open
            || !slot.queues.ordered.is_empty()
            || !slot.sent[ORDERED].is_empty()
            || aggregates
            || self.paths.peer(channel).rooms.room >> rail.0 & 1 == 0
            || slot.ring.is_none() && self.paths.peer(channel).lowest_latency != rail.0
        {
            return false;
        }
        let facts = self.paths.facts(rail);
        let bytes_max =
            self.eager_bytes_max(channel, rail).min(peer_parameters.eager_bytes_max).min(facts.short_bytes_max);
        let slot = self.channel(channel);
        let sending = Sending {
            next: slot.sent[ORDERED].next().0,
            limits: slot.grants.limits(),
            messages_left: slot.allowance.messages_left(),
            blocks_left: slot.allowance.blocks_left(),
            bytes_max,
            block_bytes: peer_parameters.block_bytes,
            rail,
        };
        let is_open = self.t.lines[channel as usize].open_sending(&sending);
        if is_open {
            self.keep_to_ring(channel, rail);
        }
        is_open
    }

    /// Opens a channel's line for receiving, if nothing prevents it. Returns whether it expects a message.
    #[cold]
    #[inline(never)]
    pub(super) fn open_receiving(&mut self, channel: u32, rail: RailId, counts: Counts) -> bool {
        if self.t.lines[channel as usize].receives_on().is_some() {
            // Open, and it expects another message.
            return false;
        }
        self.fold_line(channel);
        let slot = self.t.channels.at(channel);
        let is_open =
            matches!(slot.state(), ChannelState::Open | ChannelState::Closing) && slot.peer_parameters.is_some();
        let sub = self.sub(channel, rail);
        if !is_open
            || self.express_rail(channel) != Some(rail)
            || sub.place.is_some()
            || !slot.reorder.is_empty()
            || slot.received[ORDERED].expected() != slot.reorder.esn()
            || slot.grants.is_crowded()
        {
            return false;
        }
        self.keep_to_ring(channel, rail);
        let (slot, line) = (self.t.channels.at_mut(channel), &mut self.t.lines[channel as usize]);
        slot.express_budget.stop_receiving();
        let expected = slot.received[ORDERED].expected().0;
        line.open_receiving(rail, expected, slot.grants.limits());
        line.announced(&self.hot.own);
        line.expects(rail, counts)
    }

    /// A channel is about to leave the usual state: the express path stays closed until the tables have been
    /// checked again.
    #[inline]
    pub(super) fn close_line(&mut self, channel: u32) {
        if !self.has_short_rail {
            return;
        }
        self.fold_line(channel);
        let line = &mut self.t.lines[channel as usize];
        line.stop_sending();
        line.close_receiving();
    }

    /// The set of a channel's ready rails has changed.
    #[cold]
    fn line_has_changed(&mut self, channel: u32) {
        if !self.has_short_rail {
            return;
        }
        self.fold_counts(channel);
        let line = &mut self.t.lines[channel as usize];
        line.stop_sending();
        line.close_receiving();
    }

    /// Sending by the express path is closed for now: something is queued before it.
    #[inline]
    pub(super) fn close_sending(&mut self, channel: u32) {
        if !self.has_short_rail {
            return;
        }
        self.fold_line(channel);
        self.t.lines[channel as usize].stop_sending();
    }

    /// Adds the express path's traffic since the last call to the tables.
    #[inline]
    pub(super) fn fold_line(&mut self, channel: u32) {
        if !self.has_short_rail {
            return;
        }
        if self.t.lines[channel as usize].is_ahead() {
            self.fold_counts(channel);
        }
        debug_assert!(
            self.line_is_right(channel),
            "a line was changed behind its tables: {:?}",
            self.t.lines[channel as usize]
        );
    }

    /// Whether an open line agrees with the tables; checks everything again.
    fn line_is_right(&self, channel: u32) -> bool {
        let line = &self.t.lines[channel as usize];
        if self.t.channels.key_at(channel).is_none() {
            return line.credits == 0 && line.receives_on().is_none();
        }
        let slot = self.channel(channel);
        let sends = line.credits == 0
            || (line.next == slot.sent[ORDERED].next().0
                && slot.sent[ORDERED].is_empty()
                && slot.queues.ordered.is_empty()
                && slot.state() == ChannelState::Open
                && line.credits <= slot.allowance.messages_left()
                && line.blocks_left() <= slot.allowance.blocks_left()
                && self.express_rail(channel) == Some(RailId(line.rail)));
        let receives = line.receives_on().is_none()
            || (line.expected == slot.received[ORDERED].expected().0
                && line.expected == slot.reorder.esn().0
                && slot.reorder.is_empty()
                && !slot.is_over()
                && self.express_rail(channel) == line.receives_on());
        // Right after a fold.
        let is_closed = line.credits == 0 && line.receives_on().is_none();
        let grants = is_closed || line.limits() == slot.grants.limits();
        sends && receives && grants
    }

    /// Room for the peer's messages is about to come free in the tables: messages grant it from now on;
    /// earlier ones did not (C-4).
    pub(super) fn grant_on_line(&mut self, channel: u32, messages: u16, blocks: u32) {
        if !self.has_short_rail {
            return;
        }
        if self.t.lines[channel as usize].is_ahead() {
            self.fold_counts(channel);
        }
        self.t.lines[channel as usize].grant(messages, blocks as u16);
    }

    fn fold_counts(&mut self, channel: u32) {
        let fold = self.t.lines[channel as usize].fold(&self.hot.own);
        let latest = self.latest;
        self.stats.short_sent += u64::from(fold.sent);
        self.stats.short_received += u64::from(fold.received);
        let slot = self.channel_mut(channel);
        if fold.sent > 0 {
            slot.sent[ORDERED].skip(fold.sent);
            slot.allowance.use_messages(fold.sent);
            slot.allowance.use_blocks(fold.blocks_sent);
            slot.allowance.acked(fold.sent);
        }
        if fold.received > 0 {
            slot.received[ORDERED].skip(fold.received);
            slot.reorder.skip(fold.received);
            // Waiting messages are among the received ones already.
            slot.grants.passed(fold.received - fold.kept, fold.blocks_received);
        }
        if fold.is_announced {
            slot.grants.announced();
        }
        if fold.received > 0 {
            slot.silence.received_by(latest);
            let sub = self.t.sub(channel, fold.rail);
            sub.last_received = sub.last_received.max(latest);
            self.take_limits(channel, fold.peer_limits);
        }
    }

    /// Takes the peer's grants from a rail that keeps the order (C-6). Returns whether they grew.
    pub(super) fn take_limits(&mut self, channel: u32, (messages, blocks): (u16, u16)) -> bool {
        self.channel_mut(channel).allowance.update_in_order(messages, blocks)
    }

    /// Messages sent and received by the express path.
    pub(super) fn shorts(&self) -> (u64, u64) {
        let folded = (self.stats.short_sent, self.stats.short_received);
        let add = |sum: (u64, u64), more: (u64, u64)| (sum.0 + more.0, sum.1 + more.1);
        self.t.lines.iter().map(Line::unfolded).fold(folded, add)
    }

    // ---- receives without an operation

    /// A part of a multi-receive has no operation, so no receive may pass it; or it has one again.
    #[cold]
    pub(super) fn set_parts_waiting(&mut self, is_waiting: bool) {
        self.parts_waiting = is_waiting;
        self.hot.may_have_work |= is_waiting;
        self.t.matcher.posted.stop(is_waiting);
        self.hot.may_post_short = self.config.express && !is_waiting;
    }
}
