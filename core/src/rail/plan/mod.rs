//! The mathematics of the `balanced` policy only: how a message is cut so that all parts end together
//! ([`split`]); and which rails share what, by which the rails of a message are chosen ([`groups`]).
//!
//! Pure functions and small records: no clock, no table of channels, no floating point, no allocation. Every
//! loop is bounded by the number of rails (at most [`RAILS_MAX`]) or by a constant named beside it. The same
//! input gives the same answer on every machine.
//!
//! Source: multirail-2004 4.4 and 4.5 (weights by *path* bandwidth), newmadeleine-2007 3.4 (ratios from
//! sampling, chunks above the programmed-I/O range); extensions of both are marked where they are
//! implemented.

pub mod groups;
pub mod split;

/// Rails of one channel: as many as a mask of 64 bits names.
pub const RAILS_MAX: usize = 64;
