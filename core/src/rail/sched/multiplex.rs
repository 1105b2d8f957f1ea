//! Multiplexing: which rail carries a message that isn't striped (multirail-2004, 4.4).
//!
//! Four small machines over bit masks of rails. The size of a message is ignored: for small messages "per
//! operation cost usually dominates".
//!
//! Invariants:
//! * A rail that is not up is never looked at: O(1) per message, weighted round robin O(rails that are up).
//! * The answer is a rail that is up and has room, or `None`: wait for room.
//! * `None` leaves the state as it was, and so does no answer at all: the states are `Copy`, and a caller
//!   that could not use its rail after all puts the old state back.

use super::Candidates;
use crate::ids::RailId;

/// Binding: one subchannel for all messages (multirail-2004, 4.4). Keeps messages in order, has the least
/// overhead, and uses several rails where a node has several processes, each bound to another.
///
/// While the bound rail has no room the messages wait for it. While it is not up, the next one that is takes
/// its place: the loss of one rail does not move the bindings to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// The rail bound to, below 64.
    rail: u8,
}

impl Binding {
    /// Bound to `rail`; numbers from 64 on count modulo 64.
    pub const fn to(rail: RailId) -> Self {
        Binding { rail: rail.0 % 64 }
    }

    /// Bound to one of the rails of the mask `eligible`, the processes of a node dealt out in turn: process
    /// `rank` of the node gets rail number `rank` modulo the number of rails (multirail-2004, figures 9 and
    /// 10). Without any rail as [`Binding::default`].
    pub fn by_local_rank(rank: u32, eligible: u64) -> Self {
        let mut rest = eligible;
        for _ in 0..rank.checked_rem(eligible.count_ones()).unwrap_or(0) {
            rest &= rest - 1;
        }
        Binding { rail: (rest.trailing_zeros() % 64) as u8 }
    }

    /// The rail bound to, whether it is up or not.
    pub const fn rail(&self) -> RailId {
        RailId(self.rail)
    }

    /// The rail for the next message; `None`: wait for room on it. O(1).
    pub fn pick(&self, rails: Candidates) -> Option<RailId> {
        next_from(rails.up, self.rail).filter(|rail| rails.room >> rail & 1 == 1).map(RailId)
    }
}

/// Round robin: every message takes the next rail that has room (multirail-2004, 4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundRobin {
    /// Where the search for the next rail starts, 0..=64.
    next: u8,
}

impl RoundRobin {
    /// The rail for the next message; `None`: no rail has room. O(1).
    pub fn pick(&mut self, rails: Candidates) -> Option<RailId> {
        let rail = next_from(rails.up & rails.room, self.next)?;
        self.next = rail + 1;
        Some(RailId(rail))
    }
}

/// Weighted round robin: as many messages per cycle as the rail's weight (multirail-2004, 4.4), counted in
/// messages, not bytes.
///
/// The turns of a cycle are interleaved: in its k-th round every rail with a weight above k sends one
/// message, so that 4:1 gives `a b a a a` and no rail waits longer than it must. As long as all rails have
/// room, each cycle carries exactly the weights; a rail without room loses the turns that come meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightedRoundRobin {
    /// Rounds of this cycle that are complete.
    round: u16,
    /// Where the search for the next rail starts, 0..=64.
    next: u8,
}

impl WeightedRoundRobin {
    /// The rail for the next message; `None`: wait for room. O(rails that are up).
    ///
    /// `weights[rail]`: messages per cycle. A rail of weight 0, or beyond the list's end, carries nothing as
    /// long as another one is up that has a weight; where none has, all count as one.
    pub fn pick(&mut self, rails: Candidates, weights: &[u16]) -> Option<RailId> {
        let weight = |rail: u8| weights.get(usize::from(rail)).copied().unwrap_or(0);
        let weighty = heavier(rails.up, 0, weight);
        let ready = if weighty != 0 { weighty } else { rails.up } & rails.room;
        if ready == 0 {
            return None;
        }
        let now = heavier(ready, self.round, weight) & from(self.next);
        let (round, rail) = if weighty == 0 {
            (0, next_from(ready, self.next)?)
        } else if now != 0 {
            (self.round, now.trailing_zeros() as u8)
        } else {
            // The round is over; and the cycle with it, where no weight reaches into the next round.
            let round = self.round.saturating_add(1);
            let next = heavier(ready, round, weight);
            let (round, turns) = if next != 0 { (round, next) } else { (0, ready) };
            (round, turns.trailing_zeros() as u8)
        };
        *self = WeightedRoundRobin { round, next: rail + 1 };
        Some(RailId(rail))
    }
}

/// Window-based round robin: "a subchannel is used to send W messages before the Communication Scheduler
/// switches to another" (multirail-2004, 4.4), which keeps most messages in order on rails of different
/// latency.
///
/// Within its window a rail is waited for; a new window opens on the next rail that has room. A rail that
/// goes down ends its window. With W = 1 this is [`RoundRobin`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowRoundRobin {
    /// Messages that the current rail still carries.
    left: u16,
    /// The rail after the current one, 0..=64.
    next: u8,
}

impl WindowRoundRobin {
    /// The rail for the next message; `None`: wait for room. O(1).
    ///
    /// `window`: W, messages per rail, at least 1 (0 counts as 1). A smaller one than before shortens the
    /// window in flight.
    pub fn pick(&mut self, rails: Candidates, window: u16) -> Option<RailId> {
        let window = window.max(1);
        let left = self.left.min(window - 1);
        let current = self.next.wrapping_sub(1);
        if left > 0 && current < 64 && rails.up >> current & 1 == 1 {
            if rails.room >> current & 1 == 0 {
                return None;
            }
            self.left = left - 1;
            return Some(RailId(current));
        }
        let rail = next_from(rails.up & rails.room, self.next)?;
        *self = WindowRoundRobin { left: window - 1, next: rail + 1 };
        Some(RailId(rail))
    }
}

/// The first rail of the mask from `start` on, or, where there is none, from 0 on.
fn next_from(mask: u64, start: u8) -> Option<u8> {
    let later = mask & from(start);
    let mask = if later != 0 { later } else { mask };
    (mask != 0).then(|| mask.trailing_zeros() as u8)
}

/// All rails from `start` on.
fn from(start: u8) -> u64 {
    u64::MAX.checked_shl(start.into()).unwrap_or(0)
}

/// The rails of the mask that weigh more than `least`.
fn heavier(mask: u64, least: u16, weight: impl Fn(u8) -> u16) -> u64 {
    let (mut rest, mut found) = (mask, 0);
    while rest != 0 {
        let rail = rest.trailing_zeros() as u8;
        rest &= rest - 1;
        found |= u64::from(weight(rail) > least) << rail;
    }
    found
}

#[cfg(test)]
mod tests;
