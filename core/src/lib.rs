//! The core of rerail: all protocol state of a message transport over several rails, and nothing else.
//!
//! # Invariant
//!
//! The core does nothing by itself. It has no clock, no thread, no allocator, no I/O and no global: the same
//! calls with the same arguments give the same answers, on a cluster, in a test, in a simulator. All its
//! memory is one region that the caller hands in, and [`config::Config`] computes its size beforehand. The
//! core refers to payload memory and never accesses it.
//!
//! # The loop
//!
//! 1. Make a [`config::Config`], hand [`endpoint::Endpoint::new`] the rails' facts and a region, add peers.
//! 2. Submit: `send`, `recv`, `put`, `get`, `atomic`, `flush`, ...
//! 3. Feed what rails report: `handle_arrival`, `handle_placed`, `handle_completion`, `handle_rail_event`.
//! 4. When `next_timeout` has come: `handle_timeout`.
//! 5. `poll_actions` until there are none, carrying each batch out in order.
//! 6. `poll_event` until there is none; sleep; go on with 2 or 3.
//!
//! In full, as a program that runs: [`endpoint::Endpoint`].
//!
//! # Panics
//!
//! No input causes a panic: neither a peer's bytes, a rail's reports nor a caller's arguments. Invalid input
//! is refused, counted, or ends the peer's channel with an event that gives the reason. A panic is a bug of
//! this crate.
//!
//! # Features
//!
//! * `defmt`: decisions and faults are logged through defmt.
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(test)]
extern crate std;

mod api;
pub mod endpoint;
mod fast;
pub mod ids;
mod log;
pub mod mem;
mod op;
mod paths;
mod peer;
pub mod rail;
pub mod rel;
pub mod seq;
pub mod shared;
#[cfg(target_has_atomic = "64")]
pub mod shm;
pub mod store;
pub mod tag;
pub mod time;
pub mod wire;

pub use api::config;
