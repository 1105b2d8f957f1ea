//! Which of several dials between two rails is the one to keep (H-8, H-10).
//!
//! Either side may dial at any time, while the other is idle, dials too, or still uses an earlier connection.
//! A side that dials has no other connection to that peer any more, and has at most one dial pending. Dials
//! carry two numbers: their own, and the newest dial of the other side's that the dialler had accepted when
//! it began. From these an acceptor decides, without communication and despite any delay, whether the dialler
//! still needs this connection:
//!
//! - *A dial whose number is not above all that were accepted of that side* is an old one.
//! - *A dial that answers less than a dial of ours that the dialler has accepted since* was given up when it
//!   accepted that one: a side that accepts has given its own dial up. It is old, too.
//! - *A dial that answers our pending dial, or our connection,* means that the dialler had accepted ours, and
//!   lost or gave up the connection: a dialler has no connection. So ours is over, whatever its state here.
//! - *A dial newer than the connection that the same side made before* means the same for that one.
//! - The remaining case are two dials, each begun before its side had seen the other's: they cross. Both keep
//!   the lower rank's; the lower rank reports this, the higher one gives its own up when it accepts.
//!
//! Why two sides can't both give up the one connection that the other keeps: a side gives up its own dial
//! only for a dial of the other side that is not old, hence one that the other had not given up when it was
//! sent; and the other gives it up only by its own decision, or by accepting a dial of ours that is newer
//! than the one given up. In a crossing only the higher rank gives up. So after the last decision of either
//! side one connection is established on both, or a dial is pending that will be. `tests::every_interleaving`
//! walks through all states of a small case.

use rerail_core::ids::PeerId;

use crate::auth::{Attempts, keep};

/// A rail's record of its dials with one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct History {
    /// The newest dial of the peer's that was accepted here.
    seen: u32,
    /// Our newest dial known to be accepted by the peer.
    up_attempt: u32,
}

/// The ruling on a dial of an authenticated peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// Accept it. An established or pending connection with that peer is over.
    Accept,
    /// Ours is the one to keep.
    Crossing,
    /// Refuse it: the peer has given it up.
    Old,
}

impl History {
    /// The numbers of a dial that begins now.
    pub fn dial(&self, attempt: u32) -> Attempts {
        Attempts { attempt, answers: self.seen }
    }

    /// Judges a peer's dial (H-8, H-10); `own` is the number of our dial if one is pending and was not
    /// ordered to give way.
    pub fn judge(&self, me: PeerId, peer: PeerId, theirs: Attempts, own: Option<u32>) -> Ruling {
        let Attempts { attempt, answers } = theirs;
        if attempt <= self.seen || answers < self.up_attempt {
            return Ruling::Old;
        }
        match own {
            Some(own) if answers < own && keep(true, me, peer) => Ruling::Crossing,
            _ => Ruling::Accept,
        }
    }

    /// A dial of the peer's is accepted.
    pub fn accepted(&mut self, theirs: Attempts) {
        self.seen = theirs.attempt;
    }

    /// The peer has accepted a dial of ours.
    pub fn was_up(&mut self, own: u32) {
        self.up_attempt = own;
    }
}

#[cfg(test)]
mod tests;
