//! One end: a [`Link`] for each rail and the two windows of its lane, all three the code of the core itself.

use std::hash::{Hash, Hasher};

use heapless::Vec;
use rerail_core::rel::link::{Link, State};
use rerail_core::seq::{Claim, RecvWindow, SentWindow, Seq};
use rerail_core::store::NONE;

use crate::net::Body;
use crate::state::RAILS;

/// Numbers of the windows under test. No case sends as many.
const WINDOW: u32 = 64;

/// Where a packet that is not acknowledged stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Waits for a rail.
    Due,
    /// Went out over this rail, on the connection that stands.
    Sent(u8),
    /// Went out over this rail, on the connection that is lost: not to be sent again before that is safe.
    Lost(u8),
}

/// A packet and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// Its content; a FIN may become a RESUME.
    pub body: Body,
    /// Where it stands.
    pub place: Place,
}

/// The sending side of the lane. A packet's handle in the window is its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    window: SentWindow,
    /// Those that are not acknowledged, the oldest first.
    held: Vec<Outgoing, 12, u8>,
}

/// The receiving side of the lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    window: RecvWindow,
    bits: [u64; RecvWindow::words(WINDOW)],
    /// Bit n: packet n has taken effect.
    pub effects: u32,
    /// Bit n: the payload of packet n is being placed, having come over this rail.
    pub placing: [u32; RAILS],
}

/// One end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct End {
    /// One for each rail.
    pub links: [Link; RAILS],
    /// What it sends.
    pub sent: Sent,
    /// What it receives.
    pub received: Received,
}

impl End {
    /// Whether packets may be sent over `rail`.
    pub fn is_ready(&self, rail: usize) -> bool {
        self.links[rail].state() == State::Ready
    }

    /// The rails over which packets may be sent.
    pub fn ready(&self) -> impl Iterator<Item = usize> + '_ {
        (0..RAILS).filter(|&rail| self.is_ready(rail))
    }
}

impl Sent {
    /// The first number that is not acknowledged.
    pub fn acked(&self) -> u8 {
        self.window.acked().0 as u8
    }

    /// The number that the next packet will have.
    pub fn next(&self) -> u8 {
        self.window.next().0 as u8
    }

    /// Whether all that was sent is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.window.is_empty()
    }

    /// Numbers a packet.
    pub fn push(&mut self, body: Body, place: Place) -> u8 {
        let mut slots = self.slots();
        let handle = self.window.next().0;
        let psn = self.window.push(&mut slots, handle).expect("the window is greater than any case");
        self.held.push(Outgoing { body, place }).expect("few packets are unacknowledged at a time");
        psn.0 as u8
    }

    /// The peer has all before `cumulative`.
    pub fn ack(&mut self, cumulative: u8) {
        let mut slots = self.slots();
        self.window.ack(Seq(cumulative.into())).expect("only what was sent is acknowledged");
        while let Some((psn, handle)) = self.window.pop_acked(&mut slots) {
            assert_eq!(psn.0, handle, "the window gives back what was stored");
            self.held.remove(0);
        }
    }

    /// A packet that is not acknowledged.
    pub fn get(&mut self, psn: u8) -> Option<&mut Outgoing> {
        self.window.get(&self.slots(), Seq(psn.into()))?;
        let at = usize::from(psn - self.acked());
        Some(&mut self.held[at])
    }

    /// All packets that are not acknowledged.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        self.held.iter_mut()
    }

    /// The numbers of the packets that wait for a rail.
    pub fn due(&self) -> impl Iterator<Item = u8> + '_ {
        let due = self.held.iter().enumerate().filter(|(_, packet)| packet.place == Place::Due);
        due.map(|(at, _)| self.acked() + at as u8)
    }

    /// The window's storage, as its packets define it: made anew for each call, since states are many.
    fn slots(&self) -> [u32; WINDOW as usize] {
        let mut slots = [NONE; WINDOW as usize];
        for psn in self.window.acked().0..self.window.next().0 {
            slots[(psn % WINDOW) as usize] = psn;
        }
        slots
    }
}

impl Received {
    /// What it acknowledges: the first number that is not received.
    pub fn expected(&self) -> u8 {
        self.window.expected().0 as u8
    }

    /// Whether this is the first copy of the packet. It is claimed from then on.
    pub fn claim(&mut self, psn: u8) -> bool {
        match self.window.claim(&mut self.bits, WINDOW, Seq(psn.into())) {
            Claim::New => true,
            Claim::Duplicate => false,
            Claim::Beyond => unreachable!("the window is greater than any case"),
        }
    }

    /// The packet has taken effect. Returns whether it had before.
    pub fn receive(&mut self, psn: u8) -> bool {
        self.window.received(&mut self.bits, WINDOW, Seq(psn.into()));
        let before = self.effects & 1 << psn != 0;
        self.effects |= 1 << psn;
        before
    }

    /// What is being placed from `rail` never will be: the claims are given back.
    pub fn abort_rail(&mut self, rail: usize) {
        for psn in 0..u32::BITS {
            if self.placing[rail] & 1 << psn != 0 {
                assert!(self.window.unclaim(&mut self.bits, WINDOW, Seq(psn)), "what is being placed is claimed");
            }
        }
        self.placing[rail] = 0;
    }
}

impl Hash for Sent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.window.oldest(), self.window.acked(), self.window.next(), &self.held[..]).hash(state);
    }
}

impl Hash for Received {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.window.expected(), self.bits, self.effects, self.placing).hash(state);
    }
}
