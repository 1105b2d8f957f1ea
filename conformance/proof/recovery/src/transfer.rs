//! The put in two parts, as both sides store it, and the ordered messages and the atomic beside it.

use rerail_core::seq::{Reorder, Seq};
use rerail_core::store::NONE;

use crate::state::RAILS;

/// Parts of the put.
pub const PARTS: usize = 2;

/// Where a part of the put stands, in its sender's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Part {
    /// To be written in this round.
    #[default]
    Unwritten,
    /// Written over this rail, on the connection that stands.
    On(u8),
    /// Written over this rail, on the connection that is lost: it may have landed, or land still.
    Unconfirmed(u8),
    /// Unconfirmed, but never to land any more: to be written again in the next round.
    Fenced,
    /// It has landed: the FIN behind it is acknowledged.
    Landed,
}

/// The put's sender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sender {
    /// The round that the last CTS was for.
    pub epoch: u8,
    /// The parts.
    pub parts: [Part; PARTS],
    /// How many FINs the round has, once one has been received; 0: none was.
    pub count: u8,
    /// The number of the round's FIN for the connection, lost or not, of each rail.
    pub fins: [Option<u8>; RAILS],
    /// FIN-DONE has come.
    pub done: bool,
}

/// The put's receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Receiver {
    /// The round.
    pub epoch: u8,
    /// FINs of the round that have come.
    pub fins: u8,
    /// Bit n: part n has landed.
    pub landed: u8,
    /// The buffer is its owner's again.
    pub done: bool,
}

/// What the receiver has of messages and atomics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Delivered {
    /// Messages that the application has.
    pub messages: u8,
    /// Bit n: message n has come, and waits for its turn.
    pub waiting: u8,
    /// How often an atomic was applied.
    pub atomics: u8,
}

impl Sender {
    /// Rails with parts on connections that stand.
    pub fn rails(&self) -> impl Iterator<Item = usize> + '_ {
        (0..RAILS).filter(|&rail| self.parts.contains(&Part::On(rail as u8)))
    }

    /// FINs of this round: one for each living connection with parts on it, and one that never comes for each
    /// that is dead. The dead one and the living one of the same rail are two.
    pub fn fins_of_epoch(&self) -> u8 {
        let dead = (0..RAILS).filter(|&rail| self.parts.contains(&Part::Unconfirmed(rail as u8))).count();
        let fenced = self.parts.contains(&Part::Fenced);
        (self.rails().count() + dead + usize::from(fenced)) as u8
    }
}

impl Delivered {
    /// An ordered message has come, and is delivered when it is its turn, with those that waited for it.
    /// Returns whether order was kept.
    pub fn message(&mut self, number: u8) -> bool {
        let mut slots = [NONE; 64];
        let mut queue = Reorder::starting_at(Seq(self.messages.into()));
        for waits in (0..8).filter(|n| self.waiting & 1 << n != 0).chain([number]) {
            if queue.enqueue(&mut slots, Seq(waits.into()), waits.into()).is_err() {
                return false;
            }
        }
        self.waiting |= 1 << number;
        let mut ordered = true;
        while let Some(next) = queue.dequeue(&mut slots) {
            ordered &= next == u32::from(self.messages);
            self.waiting &= !(1 << next);
            self.messages += 1;
        }
        ordered
    }
}
