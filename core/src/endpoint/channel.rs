//! State of one virtual channel and of its subchannels.

use crate::ids::{PeerId, RailId};
use crate::mem::MemRef;
use crate::rail::RailFacts;
use crate::rel::ack::AckState;
use crate::rel::credit::{Allowance, Grants};
use crate::seq::{RecvWindow, Reorder, SentWindow, Seq};
use crate::store::{Link, List};
use crate::time::Time;
use crate::wire::Connect;

use super::event::LossReason;
use super::path::Path;
use super::policy::Turn;
use super::room::Rooms;

/// Index of the ordered lane in pairs of windows.
pub(crate) const ORDERED: usize = 0;
/// Index of the unordered lane.
pub(crate) const UNORDERED: usize = 1;

/// Life of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChannelState {
    /// No subchannel stands yet, or the peer's terms are unknown.
    #[default]
    Connecting,
    /// Packets flow.
    Open,
    /// The caller wants to leave: when all is acknowledged, Bye goes out.
    Closing,
    /// Bye has been handed to every subchannel.
    Leaving,
    /// Over; the slot is freed when nothing refers to it.
    Over(Ending),
}

/// How a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By a goodbye of either side.
    Closed,
    /// Badly.
    Lost(LossReason),
}

/// The channel's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Timer {
    /// An acknowledgment is due at the latest.
    Ack = 0,
    /// The peer must be connected.
    Connect = 1,
    /// The peer has been silent.
    Silence = 2,
    /// A rail that is asked how fast it is must have answered.
    Sample = 3,
}

/// What all channels share and may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Slots for unacknowledged packets.
    Packets = 0,
    /// Stripe sets.
    Stripes = 1,
}

/// How many timers a channel has.
pub(crate) const TIMERS: u32 = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    pub peer: PeerId,
    pub state: ChannelState,
    pub epoch: u16,
    /// What the peer announced.
    pub terms: Option<Connect>,
    pub sent: [SentWindow; 2],
    pub allowance: Allowance,
    pub received: [RecvWindow; 2],
    pub reorder: Reorder,
    pub grants: Grants,
    pub ack: AckState,
    /// By [`MessageClass`](super::MessageClass).
    pub turns: [Turn; 3],
    /// Time saved up for trying rails that plans leave out, in nanoseconds (P-11).
    pub try_ns: u32,
    /// Packets that took the soonest rail since one tried another.
    pub untried: u16,
    /// The rail of the least latency, be it up or not.
    pub nearest: u8,
    pub rooms: Rooms,
    pub control: List,
    pub ordered: List,
    pub requests: List,
    pub bulk: List,
    /// One-sided operations in submission order, flushes among them.
    pub one_sided: List,
    /// Requests of ours that are unanswered, and answered ones whose answer is not acknowledged for sure.
    pub requests_out: u16,
    /// Those of them that are answered.
    pub answered: u16,
    /// An acknowledgment up to here covers all answers.
    pub answered_until: Seq,
    /// Behind the highest unordered PSN that came.
    pub unordered_high: Seq,
    /// Requests of the peer whose answer is not acknowledged.
    pub requests_in: u16,
    /// Refusals of the peer's puts, as long as they have slots.
    pub refusals: List,
    /// Those that the peer has not acknowledged: puts that it takes for done may be among them.
    pub refusing: u16,
    /// The peer has acknowledged puts while it was refusing: none of them counts as done.
    pub in_doubt: bool,
    /// Answers that are with a rail or not acknowledged.
    pub serving: u16,
    /// Rails to connect: bit per rail.
    pub wanted: u64,
    /// Rails that stand and on which our Connect did not go out: bit per rail.
    pub unsaid: u64,
    /// Rails to disconnect.
    pub unwanted: u64,
    pub heard: Time,
    /// A probe is to go out.
    pub probe_due: bool,
    /// A probe of the peer wants an answer: the rail on which it came, and its nonce.
    pub probe_answer: Option<(RailId, u64)>,
    /// In the endpoint's list of channels with something to do.
    pub active: Link,
    /// In the endpoint's lists of channels that wait for something that all share, by [`Shortage`].
    pub waits: [Link; 2],
    /// In the endpoint's list of channels with something to tell.
    pub event: Link,
    pub tell_up: bool,
    pub tell_over: bool,
    /// Messages of this channel that still occupy slots.
    pub messages: u32,
}

impl Channel {
    /// A new channel of which both lanes and both sides start at `first`.
    pub(crate) fn new(peer: PeerId, first: Seq, grants: Grants, now: Time) -> Channel {
        Channel {
            peer,
            state: ChannelState::Connecting,
            epoch: 0,
            terms: None,
            sent: [SentWindow::starting_at(first); 2],
            allowance: Allowance::new(first),
            received: [RecvWindow::starting_at(first); 2],
            reorder: Reorder::starting_at(first),
            grants,
            ack: AckState::default(),
            turns: [Turn::default(); 3],
            try_ns: 0,
            untried: 0,
            nearest: 0,
            rooms: Rooms::default(),
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
            serving: 0,
            wanted: 0,
            unsaid: 0,
            unwanted: 0,
            heard: now,
            probe_due: false,
            probe_answer: None,
            active: Link::UNLINKED,
            waits: [Link::UNLINKED; 2],
            event: Link::UNLINKED,
            tell_up: false,
            tell_over: false,
            messages: 0,
        }
    }

    /// Whether room that comes free, be it with a rail, in a window or in the peer's grants, is of use: something waits
    /// to be sent, or for everything to be acknowledged.
    pub(crate) const fn wants_room(&self) -> bool {
        let idle =
            self.control.is_empty() && self.ordered.is_empty() && self.requests.is_empty() && self.bulk.is_empty();
        !idle || !matches!(self.state, ChannelState::Open)
    }

    /// Whether the next packet acknowledges all answers to requests of ours, so that others may take their places.
    pub(crate) fn answers_are_acknowledged(&self) -> bool {
        self.answered > 0 && !self.received[UNORDERED].expected().is_before(self.answered_until)
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, ChannelState::Over(_))
    }
}

/// State of one subchannel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sub {
    pub state: SubState,
    /// Our Connect went out on it.
    pub connect_sent: bool,
    /// The peer's Connect came on it.
    pub connect_seen: bool,
    /// Bye went out on it.
    pub bye_sent: bool,
    /// An unsequenced frame is with the rail.
    pub frame_posted: bool,
    pub frame_generation: u32,
    /// The peer's number for this rail.
    pub peer_rail: u8,
    /// Posts with the rail.
    pub posts: u16,
    pub path: Path,
    pub place: Option<Place>,
    pub place_generation: u32,
}

impl Sub {
    /// Whether it takes one more post, one being kept for unsequenced frames.
    pub(crate) const fn has_room(&self, facts: &RailFacts) -> bool {
        self.posts + 1 < facts.posts_max
    }

    /// Down, with nothing under way. Generations go on, so that late answers find nothing.
    pub(crate) fn reset(&mut self) {
        *self = Sub {
            frame_generation: self.frame_generation.wrapping_add(1).max(1),
            place_generation: self.place_generation,
            ..Sub::default()
        };
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SubState {
    #[default]
    Down,
    Connecting,
    Up,
}

/// A payload on its way to its place.
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

#[derive(Clone, Copy, Debug)]
pub(crate) enum PlaceTo {
    Op(u32),
    Message(u32),
    Window { window: u32, at: MemRef },
}
