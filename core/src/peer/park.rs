//! Parking: an idle channel gives its slot and its connections back, and goes on where it was when either
//! side has something to send (K-1 to K-6).

use super::{Channel, ORDERED, UNORDERED};
use crate::ids::RailId;
use crate::rel::credit::Allowance;
use crate::seq::{RecvWindow, Reorder, SentWindow, Seq};
use crate::time::Time;
use crate::wire::Connect;

/// No rail has our PARK.
const NO_RAIL: u8 = u8::MAX;

/// How far the agreement of a channel has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Park {
    /// When this side began.
    pub since: Time,
    /// The connections of this channel slot are numbered from here on (F-1).
    pub first_connection: u32,
    /// Sum of the numbers sent and received at the last look: whether the channel was used since.
    pub mark: u32,
    /// The rail that has our PARK, or [`NO_RAIL`].
    rail: u8,
    /// The peer's PARK has arrived: it sends nothing more on these connections.
    pub is_agreed: bool,
    /// On a lossless rail, the peer's PARK came after ours was sent: ours is repeated (K-3).
    pub confirms: bool,
    /// On a lossless rail, the peer's second PARK came: it has read our first.
    pub is_read: bool,
    /// The peer's PARK is to be declined.
    pub declines: bool,
    /// The rail that brought the peer's PARK.
    came_on: u8,
    /// How often this side has parked the channel, as in CONNECT (W-22).
    pub times: u8,
}

impl Park {
    pub(crate) const fn none(first_connection: u32) -> Park {
        let since = Time(0);
        Park {
            since,
            first_connection,
            mark: 0,
            rail: NO_RAIL,
            is_agreed: false,
            confirms: false,
            is_read: false,
            declines: false,
            came_on: NO_RAIL,
            times: 0,
        }
    }

    /// This side is to send PARK.
    pub(crate) const fn begin(&mut self, now: Time) {
        (self.since, self.rail) = (now, NO_RAIL);
        (self.is_agreed, self.confirms, self.is_read) = (false, false, false);
    }

    /// The peer's PARK came on a rail; this side does not park.
    pub(crate) const fn decline(&mut self, rail: RailId) {
        (self.declines, self.came_on) = (true, rail.0);
    }

    /// The peer's PARK came on a rail; this side parks as well.
    pub(crate) const fn agree(&mut self, rail: RailId, is_lossless: bool) {
        if self.is_agreed {
            self.is_read = true;
            return;
        }
        (self.is_agreed, self.came_on) = (true, rail.0);
        self.confirms = is_lossless && self.rail != NO_RAIL;
    }

    /// The rail that brought the peer's PARK.
    pub(crate) const fn came_on(&self) -> RailId {
        RailId(self.came_on)
    }

    /// PARK was posted on a rail.
    pub(crate) const fn sent(&mut self, rail: RailId) {
        (self.rail, self.confirms) = (rail.0, false);
    }

    /// The rail that has our PARK.
    pub(crate) const fn sent_on(&self) -> Option<RailId> {
        if self.rail == NO_RAIL { None } else { Some(RailId(self.rail)) }
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
    requests_max: u16,
    /// See [`Park::times`]; 0: there is no parked channel.
    pub times: u8,
}

// Memory of each known peer.
const _: () = assert!(size_of::<Parked>() == 72);

impl Parked {
    /// Of a channel with nothing outstanding.
    pub(crate) fn of(channel: &Channel, connection: u32) -> Option<Parked> {
        let peer_parameters = channel.peer_parameters?;
        let (used, limits) = channel.allowance.counts();
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
            used,
            limits,
            requests_max: peer_parameters.requests_max,
            times: if channel.park.times == u8::MAX { 1 } else { channel.park.times + 1 },
        })
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
        channel.allowance = Allowance::at(self.used, self.limits);
        channel.park.times = self.times;
        channel.park.first_connection = self.connection;
        // Limits and acknowledgments may have been lost with the last connection (A-1, C-4).
        channel.ack.make_due();
        channel.resume();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PeerId;
    use crate::rel::credit::Grants;

    /// K-5: a channel goes on with the numbers that it had.
    #[test]
    fn a_parked_channel_keeps_its_numbers() {
        let first = Seq(u32::MAX - 1);
        let mut channel = Channel::new(PeerId(3), first, Grants::new(first, 8, 8), Time(0));
        channel.peer_parameters = Some(Connect { window: 64, first_number: 70, ..Connect::default() });
        channel.begin_receiving(Seq(70));
        channel.sent[ORDERED].skip(5);
        channel.sent[UNORDERED].skip(2);
        channel.received[ORDERED].skip(4);
        channel.reorder.skip(4);
        channel.grants.passed(4, 3);
        channel.allowance.update(78, 78);
        channel.allowance.use_messages(5);
        channel.allowance.acked(5);
        let parked = Parked::of(&channel, 9).unwrap();
        assert_eq!(parked.times, 1);
        let mut resumed = Channel::new(PeerId(3), first, Grants::new(first, 8, 8), Time(0));
        parked.resume(&mut resumed);
        assert_eq!(resumed.sent.map(|lane| lane.next()), channel.sent.map(|lane| lane.next()));
        assert_eq!(resumed.received, channel.received);
        assert_eq!(resumed.reorder, channel.reorder);
        assert_eq!(resumed.grants.limits(), channel.grants.limits());
        assert_eq!(resumed.allowance.messages_left(), channel.allowance.messages_left());
        assert_eq!(resumed.park.first_connection, 9);
        assert_eq!(Parked { times: 255, ..parked }.times, 255);
        resumed.park.times = 255;
        assert_eq!(Parked::of(&resumed, 9).unwrap().times, 1, "0 means never");
    }
}
