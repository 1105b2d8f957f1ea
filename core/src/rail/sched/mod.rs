//! The communication scheduler (multirail-2004, 4.1 and 4.4): which rail carries a small packet (multiplexing), and how a
//! large message is cut (striping).
//!
//! A policy sees the rails of one channel as bit masks and facts, and answers; it sends nothing. A new policy is a new
//! `impl Scheduler` and a variant of [`Multiplex`] or [`Striping`].

pub mod multiplex;
pub mod service;
pub mod weights;

use crate::config::{Multiplex, Striping};
use crate::ids::RailId;

/// No part of a message is cut smaller than this; below it a packet's own cost outweighs the second rail.
pub const STRIPE_BYTES_MIN: u64 = 16 * 1024;

/// The cut positions are multiples of this, so that no cache line is written from two rails.
const CUT_ALIGN: u64 = 64;

/// What a packet is, as far as the choice of a rail goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// CTS, FIN, answers: no order to keep, first rail with room.
    Control,
    /// Messages and requests: multiplexed by policy.
    Message,
}

/// The rails of one channel at the moment.
#[derive(Clone, Copy, Debug)]
pub struct Candidates {
    /// Bit per rail: the subchannel stands.
    pub up: u64,
    /// Bit per rail: and takes a post now.
    pub room: u64,
}

/// What the scheduler remembers of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelTurn {
    /// The rail after the one used last.
    next: u8,
}

/// One part of a message on one rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stripe {
    /// The next byte to send.
    pub next: u64,
    /// The first byte that belongs to another stripe.
    pub end: u64,
}

/// A scheduling policy.
pub trait Scheduler {
    /// The rail for one packet; `None`: wait for room.
    fn multiplex(&self, turn: &mut ChannelTurn, class: Class, rails: Candidates) -> Option<RailId>;
    /// Cuts `bytes` over the rails of `up`: fills `stripes[rail]`, which are empty before. `up` has at least one bit.
    fn stripe(&self, bytes: u64, up: u64, stripes: &mut [Stripe]);
}

/// The policies that a configuration names.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// For small packets.
    pub multiplex: Multiplex,
    /// For large messages.
    pub striping: Striping,
}

impl Scheduler for Policy {
    fn multiplex(&self, turn: &mut ChannelTurn, class: Class, rails: Candidates) -> Option<RailId> {
        let pick = match (class, self.multiplex) {
            (Class::Control, _) => lowest(rails.up & rails.room),
            // Binding keeps to one rail even while it is busy: that is what keeps messages in order.
            (Class::Message, Multiplex::Binding) => lowest(rails.up).filter(|rail| rails.room >> rail & 1 == 1),
            (Class::Message, Multiplex::RoundRobin) => {
                let ready = rails.up & rails.room;
                let from_next = ready & u64::MAX.checked_shl(turn.next.into()).unwrap_or(0);
                lowest(from_next).or(lowest(ready)).inspect(|rail| turn.next = rail + 1)
            }
        };
        pick.map(RailId)
    }

    fn stripe(&self, bytes: u64, up: u64, stripes: &mut [Stripe]) {
        let parts = match self.striping {
            Striping::Binding => 1,
            Striping::Even => u64::from(up.count_ones()).min(bytes / STRIPE_BYTES_MIN).max(1),
        };
        let mut start = 0;
        let rails = (0..64u8).filter(|rail| up >> rail & 1 == 1);
        for (part, rail) in (1..=parts).zip(rails) {
            let end = if part == parts {
                bytes
            } else {
                // 128 bits: bytes may be as large as the address space.
                (u128::from(bytes) * u128::from(part) / u128::from(parts)) as u64 / CUT_ALIGN * CUT_ALIGN
            };
            stripes[rail as usize] = Stripe { next: start, end };
            start = end;
        }
    }
}

fn lowest(mask: u64) -> Option<u8> {
    (mask != 0).then(|| mask.trailing_zeros() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const EVEN: Policy = Policy { multiplex: Multiplex::RoundRobin, striping: Striping::Even };

    proptest! {
        /// Stripes cover the message once, on rails that are up, in parts that differ by less than a cut's alignment.
        #[test]
        fn even_stripes_partition_the_message(bytes in 0u64..1 << 40, up in 1u64..) {
            let mut stripes = vec![Stripe::default(); 64];
            EVEN.stripe(bytes, up, &mut stripes);
            let used: Vec<_> = stripes.iter().enumerate().filter(|(_, s)| s.end > s.next).collect();
            let mut at = 0;
            for (rail, stripe) in &used {
                prop_assert_eq!(up >> rail & 1, 1);
                prop_assert_eq!(stripe.next, at);
                at = stripe.end;
            }
            prop_assert_eq!(at, bytes);
            if used.len() > 1 {
                let lens: Vec<_> = used.iter().map(|(_, s)| s.end - s.next).collect();
                prop_assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 2 * CUT_ALIGN + 64);
                prop_assert!(*lens.iter().min().unwrap() + 2 * CUT_ALIGN >= STRIPE_BYTES_MIN);
            }
        }

        /// Round robin visits every rail with room equally often; binding never leaves its rail.
        #[test]
        fn multiplexing_is_fair_or_bound(up in 1u64..) {
            let (mut turn, mut count) = (ChannelTurn::default(), [0u32; 64]);
            let rails = Candidates { up, room: u64::MAX };
            for _ in 0..up.count_ones() * 3 {
                count[EVEN.multiplex(&mut turn, Class::Message, rails).unwrap().0 as usize] += 1;
            }
            for (rail, count) in count.iter().enumerate() {
                prop_assert_eq!(*count, if up >> rail & 1 == 1 { 3 } else { 0 });
            }
            let bound = Policy { multiplex: Multiplex::Binding, ..EVEN };
            let first = up.trailing_zeros() as u8;
            prop_assert_eq!(bound.multiplex(&mut turn, Class::Message, rails), Some(RailId(first)));
            let busy = Candidates { up, room: !(1 << first) };
            prop_assert_eq!(bound.multiplex(&mut turn, Class::Message, busy), None);
        }
    }
}
