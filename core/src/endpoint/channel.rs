//! State of one virtual channel and of its subchannels.

use super::event::{Loss, RailFault};
use super::op::Queue;
use crate::fast::Road;
use crate::ids::{PeerId, RailId};
use crate::mem::MemRef;
use crate::rel::ack::AckState;
use crate::rel::credit::{Allowance, Grants};
use crate::rel::link::{Link as Connection, Pair, State};
use crate::seq::{RecvWindow, Reorder, SentWindow, Seq};
use crate::store::{Link, List};
use crate::time::Time;
use crate::wire::{Common, Connect};

/// Index of the ordered lane in pairs of windows.
pub(crate) const ORDERED: usize = 0;
/// Index of the unordered lane.
pub(crate) const UNORDERED: usize = 1;

/// State of a channel. `channel.table` lists all transitions; only [`Channel::enter`] makes one. No input
/// causes an illegal transition, so one is our bug: debug builds panic, others refuse it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChannelState {
    /// No subchannel is up yet, or the negotiated parameters of the peer are unknown.
    #[default]
    Connecting,
    /// Packets flow.
    Open,
    /// The caller closes the channel: the core sends BYE when everything is acknowledged.
    Closing,
    /// BYE has been handed to every subchannel.
    Leaving,
    /// Closed; the slot is freed when nothing refers to it.
    Over(Ending),
}

impl ChannelState {
    /// Whether another state may follow.
    const fn may_enter(self, to: ChannelState) -> bool {
        use ChannelState::{Closing, Connecting, Leaving, Open, Over};
        match self {
            Connecting => matches!(to, Open | Closing | Over(_)),
            Open => matches!(to, Closing | Over(_)),
            Closing => matches!(to, Leaving | Over(_)),
            Leaving => matches!(to, Over(_)),
            Over(_) => false,
        }
    }
}

/// How a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By BYE of either side.
    Closed,
    /// By a failure.
    Lost(Loss),
}

/// Shared resources that a channel may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Slots for unacknowledged packets.
    Packets = 0,
    /// Stripe sets.
    Stripes = 1,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    pub peer: PeerId,
    state: ChannelState,
    /// What the peer announced.
    pub terms: Option<Connect>,
    pub sent: [SentWindow; 2],
    pub allowance: Allowance,
    pub received: [RecvWindow; 2],
    pub reorder: Reorder,
    pub grants: Grants,
    pub ack: AckState,
    pub control: List,
    pub ordered: List,
    pub requests: List,
    pub bulk: List,
    /// One-sided operations in submission order, flushes among them.
    pub one_sided: List,
    /// Requests of ours without an answer, and those whose answer is not certainly acknowledged.
    pub requests_out: u16,
    /// Those of them that are answered.
    pub answered: u16,
    /// An acknowledgment up to here covers all answers.
    pub answered_until: Seq,
    /// Behind the highest unordered PSN received.
    pub unordered_high: Seq,
    /// Requests of the peer whose answer it has not acknowledged.
    pub requests_in: u16,
    /// Refusals of the peer's puts, as long as they have slots.
    pub refusals: List,
    /// Those that the peer has not acknowledged: it may take such puts for complete.
    pub refusing: u16,
    /// The peer acknowledged puts while it was refusing: none of them counts as complete.
    pub in_doubt: bool,
    /// Leaving: a subchannel that carried BYE is down, because the peer received BYE (G-7).
    pub bye_received: bool,
    /// Answers that a rail holds or the peer has not acknowledged.
    pub serving: u16,
    /// Rails to connect: bit per rail.
    pub dial_pending: u64,
    /// Rails that are up and have not sent our CONNECT: bit per rail.
    pub connect_pending: u64,
    /// Rails to disconnect.
    pub close_pending: u64,
    /// Rails whose connection is to be aborted.
    pub abort_pending: u64,
    /// Rails with a redial time.
    pub redials: u64,
    /// Rails with a pending FENCE: the connection is dead at this end (F-3).
    pub fences: u64,
    /// Rails with a pending address update (F-12): bit per rail, 0 unless some have [`Sub::untold`].
    pub tellers: u64,
    /// Rails with a pending stall probe (F-11).
    pub questions: u64,
    /// Pending replays: bit per lane, and [`REPLAY_READS`].
    pub replaying: u8,
    /// Where the scan for lost packets continues in each lane.
    pub replay_at: [Seq; 2],
    /// Payloads that wait for their copy: their rail died during the placement (F-6).
    pub aborted_placements: u16,
    /// Since when no rail is ready.
    pub no_path: Option<NoPath>,
    /// The end of that time has been put off, since this process was suspended.
    pub put_off: bool,
    /// Limits that fit every rail that may have to carry another rail's packets: eager payloads, segments,
    /// and bytes of a remote write or read (F-5).
    pub eager_bytes_max: u32,
    pub segment_bytes_max: u32,
    pub transfer_bytes_max: u32,
    pub last_received: Time,
    /// When the last keepalive probe was sent to the peer (F-13).
    pub kept: Time,
    /// A probe is pending.
    pub probe_due: bool,
    /// Rails on which the peer's probe waits for an answer: bit per rail.
    pub probe_answers: u64,
    /// In the endpoint's list of channels with something to do.
    pub active: Link,
    /// In the endpoint's lists of channels that wait for a shared resource, by [`Shortage`].
    pub waits: [Link; 2],
    /// In the endpoint's list of channels with an event: connected, if `tell_up`, and then closed, if the
    /// channel is over.
    pub event: Link,
    pub tell_up: bool,
    /// For a closed channel: rails with a late connect of the peer, which BYE answers (G-10); bit per rail.
    pub callers: u64,
    /// Messages of this channel that still occupy slots.
    pub messages: u32,
    /// Operations of this channel.
    pub ops: u32,
    /// Packets of short messages, which have no operations.
    pub shorts: u32,
    /// The express path over rails that can lose.
    pub road: Road,
}

impl Channel {
    /// A new channel whose packets are numbered from `first` on; the peer's CONNECT carries its first number.
    pub(crate) fn new(peer: PeerId, first: Seq, grants: Grants, now: Time) -> Channel {
        Channel {
            peer,
            state: ChannelState::Connecting,
            terms: None,
            sent: [SentWindow::starting_at(first); 2],
            allowance: Allowance::new(first),
            received: [RecvWindow::starting_at(first); 2],
            reorder: Reorder::starting_at(first),
            grants,
            ack: AckState::default(),
            control: List::EMPTY,
            ordered: List::EMPTY,
            requests: List::EMPTY,
            bulk: List::EMPTY,
            one_sided: List::EMPTY,
            requests_out: 0,
            answered: 0,
            answered_until: first,
            unordered_high: first,
            requests_in: 0,
            refusals: List::EMPTY,
            refusing: 0,
            in_doubt: false,
            bye_received: false,
            serving: 0,
            dial_pending: 0,
            connect_pending: 0,
            close_pending: 0,
            abort_pending: 0,
            redials: 0,
            fences: 0,
            tellers: 0,
            questions: 0,
            replaying: 0,
            replay_at: [first; 2],
            aborted_placements: 0,
            no_path: None,
            put_off: false,
            eager_bytes_max: u32::MAX,
            segment_bytes_max: u32::MAX,
            transfer_bytes_max: u32::MAX,
            last_received: now,
            kept: Time(0),
            probe_due: false,
            probe_answers: 0,
            active: Link::UNLINKED,
            waits: [Link::UNLINKED; 2],
            event: Link::UNLINKED,
            tell_up: false,
            callers: 0,
            messages: 0,
            ops: 0,
            shorts: 0,
            road: Road::default(),
        }
    }

    pub(crate) const fn state(&self) -> ChannelState {
        self.state
    }

    /// Enters another state. Debug builds panic where the table forbids it; others refuse it.
    pub(crate) fn enter(&mut self, to: ChannelState) {
        let is_legal = self.state.may_enter(to);
        debug_assert!(is_legal, "a channel goes from {:?} to {to:?}", self.state);
        self.road.close();
        if is_legal {
            self.state = to;
        }
    }

    /// The peer numbers its packets from `first` on, and its grants as well (S-1, C-1).
    pub(crate) const fn begin_receiving(&mut self, first: Seq) {
        self.received = [RecvWindow::starting_at(first); 2];
        self.reorder = Reorder::starting_at(first);
        self.allowance = Allowance::new(first);
        self.answered_until = first;
        self.unordered_high = first;
    }

    /// Whether the channel can use new room with a rail, in a window or in the peer's grants: something waits
    /// to be sent, or the channel waits until everything is acknowledged.
    pub(crate) const fn wants_room(&self) -> bool {
        // One comparison: this is asked for each packet that completes.
        let queued = self.control.len() | self.ordered.len() | self.requests.len() | self.bulk.len();
        queued | self.replaying as u32 != 0 || !matches!(self.state, ChannelState::Open)
    }

    /// Whether there may be slow-path work: connections, probes, addresses, BYE; anything but messages,
    /// requests, their payload, acknowledgments and limits. One check covers all of it: any other work for
    /// `pump` must be listed here.
    pub(crate) const fn has_slow_work(&self) -> bool {
        let masks = self.dial_pending
            | self.close_pending
            | self.connect_pending
            | self.abort_pending
            | self.fences
            | self.questions
            | self.tellers;
        masks | self.probe_answers != 0
            || self.probe_due
            || self.terms.is_none()
            || !matches!(self.state, ChannelState::Open)
    }

    /// Whether the next packet acknowledges all answers to our requests, so that new requests may take their
    /// places.
    pub(crate) fn answers_are_acknowledged(&self) -> bool {
        self.answered > 0 && !self.received[UNORDERED].expected().is_before(self.answered_until)
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, ChannelState::Over(_))
    }

    /// The channel's queue of this name, if it has one.
    #[inline]
    pub(crate) fn queue(&mut self, queued: Queue) -> Option<&mut List> {
        match queued {
            Queue::Control => Some(&mut self.control),
            Queue::Ordered => Some(&mut self.ordered),
            Queue::Requests => Some(&mut self.requests),
            Queue::Bulk => Some(&mut self.bulk),
            Queue::None | Queue::Copies | Queue::Atomics => {
                debug_assert!(false, "not a queue of a channel: {queued:?}");
                None
            }
        }
    }
}

/// What has happened since the last rail was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoPath {
    pub since: Time,
    /// The rail that failed last, and how.
    pub rail: RailId,
    pub fault: RailFault,
}

/// A stall probe on a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// When.
    pub at: Time,
    /// Time of the first one.
    pub since: Time,
    /// When the answer came.
    pub answered: Option<Time>,
    /// Number of repeats: the peer was active elsewhere and did not answer here.
    pub repeats: u8,
    /// It is a keepalive probe: sent whether or not the rail has work (F-13).
    pub keeps_alive: bool,
    /// The other rails were probed at the same time.
    pub is_common: bool,
}

/// In [`Channel::replaying`], beside the bits of the lanes: remote reads.
pub(crate) const REPLAY_READS: u8 = 1 << 2;

/// State of one subchannel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sub {
    pub link: Connection,
    /// Our CONNECT was sent on it.
    pub connect_sent: bool,
    /// BYE was sent on it.
    pub bye_sent: bool,
    /// A rail holds an unsequenced frame.
    pub frame_posted: bool,
    pub frame_generation: u32,
    /// The peer's number for this rail.
    pub peer_rail: u8,
    pub place: Option<Place>,
    pub place_generation: u32,
    /// Consecutive connections that failed, or were up only briefly.
    pub failures: u8,
    /// A redial pause was cut short because the rail reported a link-up event; since then the connection has
    /// not been up for `redial_max` (F-8).
    pub is_back_used: bool,
    /// When to redial; when it last became ready.
    pub redial_at: Time,
    pub ready_at: Time,
    /// The nonce of a probe received on it that waits for an answer.
    pub probe_nonce: u64,
    /// When the last packet arrived on it.
    pub last_received: Time,
    /// The unsequenced frame that the rail held at the last stall check, by its generation, and since when.
    pub frame_seen: (u32, Time),
    /// The pending stall probe (F-11).
    pub asked: Option<Asked>,
    /// The connection whose death here the peer waits to have confirmed.
    pub answer: Option<Pair>,
    /// Rails of ours that have moved and that this connection has not announced yet: bit per rail (F-12).
    pub unannounced: u64,
    /// History of its connections, for diagnostics.
    pub history: History,
}

impl Sub {
    /// Nothing is in progress. Generations and the history of its connections continue, so late answers match
    /// nothing.
    pub(crate) fn clear(&mut self) {
        *self = Sub {
            link: self.link,
            peer_rail: self.peer_rail,
            frame_generation: self.frame_generation.wrapping_add(1).max(1),
            place_generation: self.place_generation,
            failures: self.failures,
            is_back_used: self.is_back_used,
            redial_at: self.redial_at,
            ready_at: self.ready_at,
            answer: self.answer,
            history: self.history,
            ..Sub::default()
        };
    }

    /// As [`clear`](Self::clear), for another peer or the end.
    pub(crate) fn reset(&mut self) {
        self.clear();
        *self =
            Sub { frame_generation: self.frame_generation, place_generation: self.place_generation, ..Sub::default() };
    }

    /// Whether a connection is up.
    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.link.state(), State::Up | State::Ready)
    }

    /// Whether packets may be posted: a connection is up, and both sides have sent CONNECT on it.
    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.link.state(), State::Ready) && self.connect_sent
    }
}

/// A payload on its way to its destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub to: PlaceTo,
    pub offset: u64,
    pub len: u64,
    pub lane: usize,
    pub psn: Seq,
    pub payload_bytes: u32,
    pub ack_now: bool,
}

impl Place {
    /// Of the payload of a packet, to the start of `to`.
    #[inline]
    pub(crate) fn new(to: PlaceTo, len: u64, lane: usize, packet: &Common) -> Place {
        let &Common { psn, payload_bytes, ack_now, .. } = packet;
        Place { to, offset: 0, len, lane, psn: Seq(psn), payload_bytes, ack_now }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum PlaceTo {
    Op(u32),
    Message(u32),
    Window { window: u32, at: MemRef },
}

/// The record of a subchannel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    pub(super) since: Time,
    pub(super) ups: u32,
    pub(super) failures: u32,
    pub(super) refusals: u32,
    /// Connections that failed, with or without traffic, since one last carried packets.
    in_a_row: u32,
    pub(super) fault: Option<RailFault>,
}

impl History {
    /// It carries packets from now on.
    pub(super) fn up(&mut self, now: Time) {
        self.ups = self.ups.saturating_add(1);
        self.in_a_row = 0;
        self.since = now;
    }

    /// A connection has failed; `was_up`: it had carried packets.
    pub(super) fn down(&mut self, now: Time, fault: RailFault, was_up: bool) {
        let count = if was_up { &mut self.failures } else { &mut self.refusals };
        *count = count.saturating_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.fault = Some(fault);
        if was_up {
            self.since = now;
        }
    }

    /// Connections that failed since one became ready last, that one included.
    pub(super) const fn failed_in_a_row(&self) -> u32 {
        self.in_a_row
    }
}

// Memory per peer: each channel, each rail of it.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Channel>() == 496 && size_of::<Sub>() == 248);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::format;
    use std::string::String;

    const EVERY_STATE: [ChannelState; 5] = [
        ChannelState::Connecting,
        ChannelState::Open,
        ChannelState::Closing,
        ChannelState::Leaving,
        ChannelState::Over(Ending::Closed),
    ];

    fn fresh() -> Channel {
        Channel::new(PeerId(0), Seq(0), Grants::new(Seq(0), 1, 1), Time(0))
    }

    /// G-4 to G-10: `enter` obeys the whole table.
    #[test]
    fn the_table() {
        let mut table = String::new();
        for state in EVERY_STATE {
            let after: String =
                EVERY_STATE.into_iter().filter(|&to| state.may_enter(to)).map(|to| format!(" {to:?}")).collect();
            let line = format!("{:<13}{after}", format!("{state:?}"));
            let _ = writeln!(table, "{}", line.trim_end());
        }
        assert_eq!(table, include_str!("channel.table"), "\n{table}");
    }

    /// Transitions missing from the table are refused, with a panic where assertions are on.
    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "a channel goes from Over(Closed) to Open"))]
    fn an_illegal_change_is_refused() {
        let mut channel = fresh();
        let over = ChannelState::Over(Ending::Closed);
        channel.enter(over);
        assert_eq!(channel.state(), over);
        channel.enter(ChannelState::Open);
        assert_eq!(channel.state(), over);
    }
}
