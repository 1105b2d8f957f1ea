//! Reliability: acknowledgment, retention and credits of one virtual channel (resilient-2010, IV.A), and the
//! life of a subchannel's connections (IV.B).
//!
//! Small machines that return verdicts; the endpoint composes them.

pub mod ack;
pub mod blocks;
pub mod credit;
pub mod link;
pub mod retain;
