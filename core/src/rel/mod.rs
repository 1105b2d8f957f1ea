//! Reliability: acknowledgment, retention and credits of one virtual channel (resilient-2010, IV.A).
//!
//! Small machines that return verdicts; the endpoint composes them. Recovery will stand here too.

pub mod ack;
pub mod blocks;
pub mod credit;
pub mod link;
pub mod retain;
