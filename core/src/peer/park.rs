//! Parking: an idle channel gives its slot and its connections back, and goes on where it was when either
//! side has something to send (K-1 to K-6).

use super::{Channel, ORDERED, UNORDERED};
use crate::ids::RailId;
use crate::rel::credit::Allowance;
use crate::seq::{RecvWindow, Reorder, SentWindow, Seq};
use crate::time::{Nanos, Time};
use crate::wire::{self, Connect, ParkStep};

/// How far the agreement to park a channel has come (K-2): this side's request and the peer's, each for
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Park {
    /// When this side began.
    pub since: Time,
    /// The connections of this channel slot are numbered from here on (F-1).
    pub first_connection: u32,
    /// Sum of the numbers sent and received at the last look: whether the channel was used since.
    mark: u32,
    /// How often the peer has declined since that has changed.
    declined: u8,
    /// Number of this side's newest request.
    request: u32,
    asked: Asked,
    /// The rail that has a request that is to be withdrawn; until then the channel is not open.
    withdraws: Option<RailId>,
    /// Number of the peer's newest request, and the rail that brought it.
    peer_request: u32,
    came_on: RailId,
    /// The answer to it, not yet posted.
    answer: Option<ParkStep>,
    /// This side has agreed to it, and waits for the end of that rail's connection.
    is_agreed: bool,
    /// As before, or that connection has ended meanwhile.
    has_agreed: bool,
    /// It is parked without the peer.
    pub is_alone: bool,
    /// It goes on from a parked channel, and no CONNECT has come since.
    pub is_resumed: bool,
    /// How often this side has parked the channel, as in CONNECT (W-22).
    pub times: u8,
    /// A CONNECT with this number was posted: the peer may have it.
    pub is_announced: bool,
    /// How often the peer has, by its last CONNECT.
    their_times: u8,
}

/// This side's request to park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
enum Asked {
    No,
    /// To be posted.
    Due,
    /// Posted on a rail, and not answered.
    On(RailId),
}

/// What follows for a channel that is being parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing yet.
    Waits,
    /// It is not parked, and goes on.
    Opens,
    /// Both sides have nothing more to send: it is parked.
    Parks,
}

impl Park {
    pub(crate) const fn none(first_connection: u32) -> Park {
        Park {
            since: Time(0),
            first_connection,
            mark: 0,
            declined: 0,
            request: 0,
            asked: Asked::No,
            withdraws: None,
            peer_request: 0,
            came_on: RailId(0),
            answer: None,
            is_agreed: false,
            has_agreed: false,
            is_alone: false,
            is_resumed: false,
            times: 0,
            is_announced: false,
            their_times: 0,
        }
    }

    /// A look at the channel, whose numbers come to the sum `mark`. Returns whether it was used since the
    /// last.
    pub(crate) const fn look(&mut self, mark: u32) -> bool {
        let is_used = self.mark != mark;
        if is_used {
            (self.mark, self.declined) = (mark, 0);
        }
        is_used
    }

    /// This side is to request.
    pub(crate) const fn ask(&mut self, now: Time) {
        self.since = now;
        self.request = self.request.wrapping_add(1);
        self.asked = Asked::Due;
    }

    /// Whether the peer has declined lately, and nothing has moved since: it would most likely do so again.
    /// `patience`: the least time and the most, which doubles with each time that it declines.
    pub(crate) fn is_declined(&self, mark: u32, now: Time, patience: [Nanos; 2]) -> bool {
        let [least, most] = patience.map(|time| time.0);
        let wait = least.saturating_mul(1 << u32::from(self.declined).min(32)).min(most);
        self.declined > 0 && self.mark == mark && (now - self.since).0 < wait
    }

    /// The channel begins to be parked, or goes on.
    pub(crate) const fn clear(&mut self) {
        (self.asked, self.is_agreed, self.has_agreed, self.is_alone) = (Asked::No, false, false, false);
    }

    /// Whether an answer is to be posted, which may be due where the channel is not being parked.
    pub(crate) const fn is_pending(&self) -> bool {
        self.answer.is_some()
    }

    /// The next step to post: with its rail, where only one will do.
    pub(crate) const fn next(&self) -> Option<(Option<RailId>, wire::Park)> {
        if let Some(step) = self.answer {
            return Some((Some(self.came_on), wire::Park { request: self.peer_request, step }));
        }
        if let Some(rail) = self.withdraws {
            return Some((Some(rail), wire::Park { request: self.request, step: ParkStep::Withdraw }));
        }
        match self.asked {
            Asked::Due => Some((None, wire::Park { request: self.request, step: ParkStep::Request })),
            _ => None,
        }
    }

    /// That step was posted; `None`: it can't be, as the connection that it belongs to has ended.
    pub(crate) fn posted(&mut self, on: Option<RailId>) -> Outcome {
        if self.answer.take().is_some() {
            return Outcome::Waits;
        }
        if self.withdraws.take().is_none() {
            self.asked = on.map_or(Asked::No, Asked::On);
        }
        self.without()
    }

    /// Whether a request of the peer is newer than all before (they may overtake each other on two rails).
    pub(crate) const fn is_new(&self, request: u32) -> bool {
        matches!(request.wrapping_sub(self.peer_request), 1..=0x7FFF_FFFF)
    }

    /// The peer's request, newer than all before: an agreement to an older one is void.
    pub(crate) fn requested(&mut self, rail: RailId, request: u32, agrees: bool) -> Outcome {
        (self.peer_request, self.came_on) = (request, rail);
        (self.is_agreed, self.has_agreed) = (agrees, agrees);
        self.answer = Some(if agrees { ParkStep::Agree } else { ParkStep::Decline });
        self.without()
    }

    /// The peer's answer, or the end of its request.
    pub(crate) fn concluded(&mut self, rail: RailId, park: wire::Park) -> Outcome {
        let is_ours = self.asked == Asked::On(rail) && park.request == self.request;
        let is_theirs = self.is_agreed && self.came_on == rail && park.request == self.peer_request;
        match park.step {
            ParkStep::Agree if is_ours => Outcome::Parks,
            ParkStep::Decline if is_ours => {
                (self.asked, self.declined) = (Asked::No, self.declined.saturating_add(1));
                self.without()
            }
            ParkStep::Withdraw if is_theirs => {
                (self.is_agreed, self.has_agreed, self.answer) = (false, false, None);
                self.without()
            }
            _ => Outcome::Waits,
        }
    }

    /// This side has something to send: its request is withdrawn. What it has to send must not overtake that.
    pub(crate) fn withdraw(&mut self) -> Outcome {
        if let Asked::On(rail) = self.asked {
            self.withdraws = Some(rail);
        }
        self.asked = Asked::No;
        self.without()
    }

    /// A connection has ended. The peer ends that of its request when it parks, or it has failed: then a ring
    /// that is up may be in use.
    pub(crate) fn ended(&mut self, rail: RailId, has_ring: bool) -> Outcome {
        // What was not requested yet is not requested of a channel that changes.
        if self.asked == Asked::On(rail) || self.asked == Asked::Due {
            self.asked = Asked::No;
        }
        if self.withdraws == Some(rail) {
            self.withdraws = None;
        }
        self.is_agreed &= self.came_on != rail;
        match self.without() {
            Outcome::Opens if self.has_agreed && !has_ring => Outcome::Parks,
            outcome => outcome,
        }
    }

    /// A CONNECT of the peer has come. Returns whether the peer has parked since the last one: then it has
    /// ended all its earlier connections (K-5).
    pub(crate) fn has_parked(&mut self, times: u8) -> bool {
        // Serial numbers from 1 to 255; both differ where 0 means never.
        let since = (i16::from(times) - i16::from(self.their_times)).rem_euclid(255);
        let has = times != self.their_times && since < 128;
        if has {
            self.their_times = times;
        }
        has
    }

    /// One of the two requests is gone.
    fn without(&self) -> Outcome {
        let has_request = self.asked != Asked::No || self.withdraws.is_some() || self.is_agreed;
        if has_request { Outcome::Waits } else { Outcome::Opens }
    }

    /// Whether the peer's answer, or the end of the connection, is to come on a rail.
    pub(crate) fn waits_on(&self, rail: RailId) -> bool {
        self.asked == Asked::On(rail) || self.is_agreed && self.came_on == rail && self.answer.is_none()
    }

    /// Whether this side has a request that is not answered, or not posted.
    pub(crate) fn is_asking(&self) -> bool {
        self.asked != Asked::No
    }
}

/// What a parked channel goes on with. Nothing of it is outstanding, so each counter is one number.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(8))]
pub(crate) struct Parked {
    window: u32,
    eager_bytes_max: u32,
    block_bytes: u32,
    first_number: u32,
    source: u32,
    /// The greatest number of a connection on this side (F-1).
    pub connection: u32,
    sent: [Seq; 2],
    received: [Seq; 2],
    /// Messages and blocks received and released, as [`Grants`](crate::rel::credit::Grants) counts them.
    granted: [u32; 2],
    /// Messages and blocks used and their limits, as [`Allowance`] counts them.
    used: [Seq; 2],
    limits: [Seq; 2],
    /// Numbers of the newest requests to park, this side's and the peer's.
    requests: [u32; 2],
    requests_max: u16,
    /// Of those received, what waits for receives.
    messages: u16,
    blocks: u16,
    /// See [`Park::times`], and the peer's.
    times: u8,
    their_times: u8,
}

// Memory of each known peer.
const _: () = assert!(size_of::<Parked>() == 80);

/// Messages of parked channels that wait for receives, and their blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub messages: u32,
    pub blocks: u32,
}

impl Held {
    /// Shares of channels that these take, with so many messages and blocks to a channel.
    pub(crate) fn shares(self, messages: u16, blocks: u16) -> u32 {
        self.messages.div_ceil(messages.into()).max(self.blocks.div_ceil(blocks.into()))
    }

    pub(crate) const fn add(&mut self, other: Held) {
        self.messages += other.messages;
        self.blocks += other.blocks;
    }

    /// Without what `other` stands for.
    pub(crate) const fn without(self, other: Held) -> Held {
        Held { messages: self.messages - other.messages, blocks: self.blocks - other.blocks }
    }
}

impl Parked {
    /// Whether there is a parked channel.
    pub(crate) const fn is_some(&self) -> bool {
        self.window > 0
    }

    /// Of a channel with nothing outstanding, whose packets are numbered from `first` on.
    pub(crate) fn of(channel: &Channel, first: Seq, connection: u32) -> Option<Parked> {
        let peer_parameters = channel.peer_parameters?;
        let (used, limits) = channel.allowance.counts();
        let is_new = channel.sent.iter().all(|lane| lane.next() == first)
            && channel.received.iter().all(|lane| lane.expected() == Seq(peer_parameters.first_number));
        let Park { times, is_alone, is_announced, .. } = channel.park;
        Some(Parked {
            window: peer_parameters.window,
            eager_bytes_max: peer_parameters.eager_bytes_max,
            block_bytes: peer_parameters.block_bytes,
            first_number: peer_parameters.first_number,
            source: channel.source,
            connection,
            sent: [channel.sent[ORDERED].next(), channel.sent[UNORDERED].next()],
            received: [channel.received[ORDERED].expected(), channel.received[UNORDERED].expected()],
            granted: channel.grants.counts(),
            messages: channel.grants.messages_held() as u16,
            blocks: channel.grants.blocks_held() as u16,
            used,
            limits,
            requests: [channel.park.request, channel.park.peer_request],
            requests_max: peer_parameters.requests_max,
            // A channel without numbers is as good as a new one: the peer may not have it, if our CONNECT was
            // lost (K-5). A number that the peer can't have serves once more, so that it does not come around
            // while the peer is out of reach.
            times: match times {
                _ if is_new && is_alone || times > 0 && !is_announced => times,
                u8::MAX => 1,
                times => times + 1,
            },
            their_times: channel.park.their_times,
        })
    }

    /// Messages and blocks that wait for receives: no more than the grants, which are 16 bits wide.
    pub(crate) const fn held(&self) -> Held {
        Held { messages: self.messages as u32, blocks: self.blocks as u32 }
    }

    /// A message is received without the channel: its room is granted to the peer when the channel goes on.
    pub(crate) const fn release(&mut self, held: Held) {
        let left = self.held().without(held);
        (self.messages, self.blocks) = (left.messages as u16, left.blocks as u16);
        self.granted = [self.granted[0].wrapping_add(held.messages), self.granted[1].wrapping_add(held.blocks)];
    }

    /// The channel goes on.
    pub(crate) fn resume(&self, channel: &mut Channel) {
        channel.peer_parameters = Some(Connect {
            window: self.window,
            eager_bytes_max: self.eager_bytes_max,
            block_bytes: self.block_bytes,
            requests_max: self.requests_max,
            first_number: self.first_number,
            ..Connect::default()
        });
        channel.source = self.source;
        channel.begin_receiving(self.received[ORDERED]);
        channel.sent = self.sent.map(SentWindow::starting_at);
        channel.received = self.received.map(RecvWindow::starting_at);
        channel.reorder = Reorder::starting_at(self.received[ORDERED]);
        channel.requests.begin_receiving(self.received[UNORDERED]);
        channel.replay = super::Replay::none(self.sent[ORDERED]);
        channel.grants = channel.grants.at(self.granted);
        let is_granted = channel.grants.received(self.messages, self.blocks.into());
        debug_assert!(is_granted.is_ok(), "it was held before");
        channel.messages = self.messages.into();
        channel.allowance = Allowance::at(self.used, self.limits);
        (channel.park.times, channel.park.their_times) = (self.times, self.their_times);
        [channel.park.request, channel.park.peer_request] = self.requests;
        channel.park.is_resumed = true;
        channel.park.first_connection = self.connection;
        // Limits and acknowledgments may have been lost with the last connection (A-1, C-4).
        channel.ack.make_due();
        channel.resume();
    }
}

#[cfg(test)]
mod tests;
