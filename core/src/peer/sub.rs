//! One end of a subchannel: a rail between this process and a peer, with the history of its connections.

use super::silence::StallProbe;
use crate::api::event::RailFault;
use crate::mem::MemRef;
use crate::rail::set::RailSet;
use crate::rel::link::{Link as Connection, Pair, State};
use crate::seq::Seq;
use crate::time::Time;
use crate::wire::Common;

/// State of one subchannel.
#[derive(Debug, Default)]
pub(crate) struct Sub {
    pub link: Connection,
    /// Our CONNECT was sent on it.
    pub connect_sent: bool,
    /// BYE was sent on it.
    pub bye_sent: bool,
    /// It came up since the channel began to be parked (K-5).
    pub is_after_park: bool,
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
    /// How often packets of the peer came, and then none, since then.
    pub frame_turns: u8,
    /// The pending stall probe (F-11).
    pub stall_probe: Option<StallProbe>,
    /// The connection whose death here the peer waits to have confirmed.
    pub answer: Option<Pair>,
    /// Rails of ours that have moved and that this connection has not announced yet (F-12).
    pub unannounced: RailSet,
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

    /// Whether a keepalive probe on it is pending without any arrival since.
    pub(crate) fn is_keepalive_pending(&self) -> bool {
        self.stall_probe.is_some_and(|stall_probe| {
            stall_probe.keeps_alive && stall_probe.answered.is_none() && self.last_received <= stall_probe.at
        })
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

const _: () = assert!(size_of::<Place>() == 64);

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
    pub(crate) since: Time,
    pub(crate) ups: u32,
    pub(crate) failures: u32,
    pub(crate) refusals: u32,
    /// Connections that failed, with or without traffic, since one last carried packets.
    in_a_row: u32,
    pub(crate) fault: Option<RailFault>,
}

impl History {
    /// It carries packets from now on.
    pub(crate) fn up(&mut self, now: Time) {
        self.ups = self.ups.saturating_add(1);
        self.in_a_row = 0;
        self.since = now;
    }

    /// A connection has failed; `was_up`: it had carried packets.
    pub(crate) fn down(&mut self, now: Time, fault: RailFault, was_up: bool) {
        let count = if was_up { &mut self.failures } else { &mut self.refusals };
        *count = count.saturating_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.fault = Some(fault);
        if was_up {
            self.since = now;
        }
    }

    /// Connections that failed since one became ready last, that one included.
    pub(crate) const fn failed_in_a_row(&self) -> u32 {
        self.in_a_row
    }
}
