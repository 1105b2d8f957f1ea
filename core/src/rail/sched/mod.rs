//! The communication scheduler (multirail-2004, 4.1 and 4.4): which rail carries a small packet
//! (multiplexing), and how a large message is cut (striping).
//!
//! A policy sees the rails of one channel as bit masks, and answers; it sends nothing. Which one is asked for
//! what, the endpoint decides (`endpoint/policy.rs`). A new policy is a file here, a name in `config`, and a
//! line there. The strategies of newmadeleine-2007, which decide about both and see what waits, have a folder
//! of their own.

pub mod multiplex;
pub mod strategy;
pub mod striping;

/// No part of a message is cut smaller than this; below it a packet's own cost outweighs the second rail.
pub const STRIPE_BYTES_MIN: u64 = 16 * 1024;

/// The cut positions are multiples of this, so that no cache line is written from two rails.
pub(crate) const CUT_ALIGN: u64 = 64;

/// The rails of one channel at the moment.
#[derive(Clone, Copy, Debug)]
pub struct Candidates {
    /// Bit per rail: the subchannel stands.
    pub up: u64,
    /// Bit per rail: and takes a post now.
    pub room: u64,
}

/// One part of a message on one rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stripe {
    /// The next byte to send.
    pub next: u64,
    /// The first byte that belongs to another stripe.
    pub end: u64,
}
