//! The software HCA: the device contract of `rerail_verbs`, in virtual time.
//!
//! ```text
//!  SimDevice (one per process) --verbs--> Hca: tables, queue pairs --packets--> Net --> Hca ...
//! ```
//!
//! A [`Fabric`] holds the net and all HCAs; [`SimDevice`]s are handles of processes into it. Verbs take
//! effect at the fabric's time, packets travel by [`Fabric::advance`], and [`Fabric::inject`] lets things go
//! wrong.
//!
//! | file | holds |
//! |---|---|
//! | `fabric` | the net with all HCAs, stepped by the time |
//! | `device` | a process's open device: the contract's trait |
//! | `core` | an HCA's tables, events, the end of every entry |
//! | `slab`, `object`, `qp`, `body` | names with generations; objects; queue pairs; packets |
//! | `memory`, `dma` | protection; the one place that touches registered memory |
//! | `process` | what a process has, and its end |
//! | `processor` | what posting and registering costs a process |
//! | `cq`, `srq`, `create`, `modify`, `post` | the verbs |
//! | `service` | turn taking of queue pairs at a port |
//! | `requester`, `responder`, `reply`, `datagram` | the transports |
//! | `flush` | how work requests end |
//! | `fault` | what can go wrong |
//!
//! Invariants: names carry generations, so a stale one is `Unknown`; completions of a queue are in its order;
//! nothing touches memory behind the end of its registration; equal seeds and equal calls give equal events
//! to the nanosecond.
//!
//! What differs from real hardware on purpose is listed in `conformance/SOFTWARE-HCA.md`.
//!
//! Source: InfiniBand specification, volume 1, chapters 9 to 11 and annex A14; resilient-2010, III; xrc-2008,
//! IV.

mod body;
mod core;
mod cq;
mod create;
mod datagram;
mod device;
mod dma;
mod fabric;
mod fault;
mod flush;
mod memory;
mod modify;
mod object;
mod post;
mod process;
mod processor;
mod qp;
mod reply;
mod requester;
mod responder;
mod service;
mod slab;
mod srq;
#[cfg(test)]
mod tests;

pub use self::core::HcaOptions;
pub use body::{Body, Landing, Packet, Timer};
pub use device::SimDevice;
pub use fabric::{Fabric, Objects, SharedFabric};
pub use fault::Fault;
pub use process::SharedQueueState;
pub use processor::HostCost;
