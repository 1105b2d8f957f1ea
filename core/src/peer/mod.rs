//! A peer: the state of the channel to it and of its subchannels. Each part has its own file, takes its own
//! events and returns verdicts; `endpoint` combines them.

mod life;
mod park;
mod replay;
mod requests;
mod silence;
mod sub;
mod work;

pub(crate) use life::{ChannelState, Ending};
pub(crate) use park::{Held, Outcome, Park, Parked};
pub(crate) use replay::Replay;
pub(crate) use requests::Requests;
pub(crate) use silence::{Outage, Silence, StallProbe};
pub(crate) use sub::{History, Place, PlaceTo, Sub};
pub(crate) use work::{ConnectionStep, RailWork};

use crate::fast::ExpressBudget;
use crate::ids::{PeerId, RailId};
use crate::op::Queue;
use crate::rail::RailFacts;
use crate::rel::ack::AckState;
use crate::rel::credit::{Allowance, Grants};
use crate::seq::{RecvWindow, Reorder, SentWindow, Seq};
use crate::store::{Link, List};
use crate::time::Time;
use crate::wire::Connect;

/// Index of the ordered lane in pairs of windows.
pub(crate) const ORDERED: usize = 0;
/// Index of the unordered lane.
pub(crate) const UNORDERED: usize = 1;

/// The source of a peer whose number is not known before its first CONNECT (S-11).
pub(crate) const UNNUMBERED: u32 = u32::MAX;

/// Shared resources that a channel may wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shortage {
    /// Slots for unacknowledged packets.
    Packets = 0,
    /// Stripe sets.
    Stripes = 1,
}

/// The channel to a peer: all subchannels of the pair.
#[derive(Debug)]
pub(crate) struct Channel {
    pub peer: PeerId,
    /// What its packets name as their source, or [`UNNUMBERED`] (S-11).
    pub source: u32,
    state: ChannelState,
    /// What the peer announced.
    pub peer_parameters: Option<Connect>,
    pub sent: [SentWindow; 2],
    pub allowance: Allowance,
    pub received: [RecvWindow; 2],
    pub reorder: Reorder,
    pub grants: Grants,
    pub ack: AckState,
    pub queues: Queues,
    /// One-sided operations in submission order, flushes among them.
    pub one_sided: List,
    pub requests: Requests,
    pub work: RailWork,
    pub replay: Replay,
    pub silence: Silence,
    pub limits: Limits,
    /// Leaving: a subchannel that carried BYE is down, because the peer received BYE (G-7).
    pub bye_received: bool,
    /// BYE has arrived, but on a rail on which it may have overtaken messages (S-12).
    pub bye_early: bool,
    /// The rail that short messages have taken beside others: it has all of the ordered lane, and limits
    /// (S-12).
    pub ring: Option<RailId>,
    /// In the endpoint's list of channels with something to do.
    pub active: Link,
    /// In the endpoint's lists of channels that wait for a shared resource, by [`Shortage`].
    pub waits: [Link; 2],
    /// In the endpoint's list of channels with an event: connected, if `up_event_pending`, and then closed,
    /// if the channel is over.
    pub event: Link,
    pub up_event_pending: bool,
    /// Messages of this channel that still occupy slots.
    pub messages: u32,
    /// Operations of this channel.
    pub ops: u32,
    /// Packets of short messages, which have no operations.
    pub shorts: u32,
    /// The express path over rails that can lose.
    pub express_budget: ExpressBudget,
    pub park: Park,
}

/// Operations of a channel that wait to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queues {
    pub control: List,
    pub ordered: List,
    pub requests: List,
    pub bulk: List,
}

impl Queues {
    pub(crate) const EMPTY: Queues =
        Queues { control: List::EMPTY, ordered: List::EMPTY, requests: List::EMPTY, bulk: List::EMPTY };

    /// Whether nothing waits.
    #[inline(always)]
    pub(crate) const fn are_empty(&self) -> bool {
        // One comparison: this is looked up for each packet that completes.
        self.control.len() | self.ordered.len() | self.requests.len() | self.bulk.len() == 0
    }

    /// The queue of this name, if it is one of a channel.
    #[inline]
    pub(crate) fn named(&mut self, queued: Queue) -> Option<&mut List> {
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

/// Limits that fit every rail that may have to carry another rail's packets (F-5), in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub eager_bytes_max: u32,
    pub segment_bytes_max: u32,
    /// Of a remote write or read.
    pub transfer_bytes_max: u32,
}

impl Limits {
    /// Of no rail.
    const NONE: Limits =
        Limits { eager_bytes_max: u32::MAX, segment_bytes_max: u32::MAX, transfer_bytes_max: u32::MAX };

    /// A rail leads to the peer.
    pub(crate) fn add(&mut self, facts: &RailFacts) {
        self.eager_bytes_max = self.eager_bytes_max.min(facts.eager_bytes_max);
        self.segment_bytes_max = self.segment_bytes_max.min(facts.segment_bytes_max);
        if facts.caps.write || facts.caps.read {
            self.transfer_bytes_max = self.transfer_bytes_max.min(facts.transfer_bytes_max());
        }
    }
}

impl Channel {
    /// A new channel whose packets are numbered from `first` on; the peer's CONNECT carries its first number.
    pub(crate) fn new(peer: PeerId, first: Seq, grants: Grants, now: Time) -> Channel {
        Channel {
            peer,
            source: peer.0,
            state: ChannelState::Connecting,
            peer_parameters: None,
            sent: [SentWindow::starting_at(first); 2],
            allowance: Allowance::new(first),
            received: [RecvWindow::starting_at(first); 2],
            reorder: Reorder::starting_at(first),
            grants,
            ack: AckState::default(),
            queues: Queues::EMPTY,
            one_sided: List::EMPTY,
            requests: Requests::starting_at(first),
            work: RailWork::default(),
            replay: Replay::none(first),
            silence: Silence::since(now),
            limits: Limits::NONE,
            bye_received: false,
            bye_early: false,
            ring: None,
            active: Link::UNLINKED,
            waits: [Link::UNLINKED; 2],
            event: Link::UNLINKED,
            up_event_pending: false,
            messages: 0,
            ops: 0,
            shorts: 0,
            express_budget: ExpressBudget::default(),
            park: Park::none(first.0),
        }
    }

    pub(crate) const fn state(&self) -> ChannelState {
        self.state
    }

    /// Enters another state. Debug builds panic where the table forbids it; others refuse it.
    pub(crate) fn enter(&mut self, to: ChannelState) {
        let is_legal = self.state.may_enter(to);
        debug_assert!(is_legal, "a channel goes from {:?} to {to:?}", self.state);
        self.express_budget.close();
        if is_legal {
            self.state = to;
        }
    }

    /// A channel that was parked begins: its peer's parameters are known.
    const fn resume(&mut self) {
        self.state = ChannelState::Open;
    }

    /// The peer numbers its packets from `first` on, and its grants as well (S-1, C-1).
    pub(crate) const fn begin_receiving(&mut self, first: Seq) {
        self.received = [RecvWindow::starting_at(first); 2];
        self.reorder = Reorder::starting_at(first);
        self.allowance = Allowance::new(first);
        self.requests.begin_receiving(first);
    }

    /// Whether the channel can use new room with a rail, in a window or in the peer's grants: something waits
    /// to be sent, or the channel waits until everything is acknowledged.
    pub(crate) const fn wants_room(&self) -> bool {
        !self.queues.are_empty() || self.replay.is_pending() || !matches!(self.state, ChannelState::Open)
    }

    /// Whether there may be slow-path work: connections, probes, addresses, BYE; anything but messages,
    /// requests, their payload, acknowledgments and limits. One check covers all of it: any other work for
    /// `pump` must be listed here.
    pub(crate) const fn has_slow_work(&self) -> bool {
        self.work.is_pending()
            || self.silence.probe_due
            || self.park.is_pending()
            || self.peer_parameters.is_none()
            || !matches!(self.state, ChannelState::Open)
    }

    /// Whether the next packet acknowledges all answers to our requests, so that new requests may take their
    /// places.
    pub(crate) fn answers_are_acknowledged(&self) -> bool {
        self.requests.answers_are_acknowledged(self.received[UNORDERED].expected())
    }

    /// Whether everything submitted is acknowledged or answered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.sent.iter().all(|lane| lane.is_empty()) && self.queues.are_empty() && self.one_sided.is_empty()
    }

    /// Sum of the numbers sent, received and granted: whether something has moved since a look before.
    pub(crate) fn mark(&self) -> u32 {
        let sent = self.sent.iter().map(|lane| lane.next());
        let numbers = sent.chain(self.received.iter().map(|lane| lane.expected()));
        numbers.chain(self.allowance.counts().1).fold(0, |sum, number| sum.wrapping_add(number.0))
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, ChannelState::Over(_))
    }
}

// Memory per peer: each channel, each rail of it.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Channel>() == 600 && size_of::<Sub>() == 248);
