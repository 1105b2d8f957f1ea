//! The wire: every packet twice, as a checked view over bytes and as a meaning ([`Repr`]).
//!
//! Numbered rules: `conformance/PROTOCOL.md`, section W.

pub mod handshake;
pub mod repr;

pub use repr::*;
