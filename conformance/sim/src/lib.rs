//! A whole cluster in one process and in virtual time.
//!
//! A [`Cluster`](cluster::Cluster) holds hosts with ranks, each of them the real `rerail-core` driven by the
//! real driver (`rerail_linux::driver::Transport`), over rails that are software HCAs ([`hca`]) behind the
//! device contract of `rerail_verbs`, rings of `rerail_core::shm`, or streams like TCP. The wires between
//! them ([`net`]) have latency, bandwidth, shared bottlenecks and faults. One seed decides everything: the
//! same seed gives the same trace to the byte.
//!
//! | module | holds |
//! |---|---|
//! | `rng` | numbers that a seed decides, in independent streams |
//! | `net` | time: links, buses, switches, paths, background load |
//! | `hca` | the software HCA: the InfiniBand verbs contract, and its faults |
//! | `rails` | rails of the driver over simulated wires and memory |
//! | `scenario` | what a simulation is made of, as data (TOML) |
//! | `cluster` | hosts, ranks, the event loop, faults at their moments |
//! | `workload` | what the ranks do |
//! | `check` | independent checkers: what must hold, whatever the implementation is |
//! | `trace` | what happened, as lines |
//! | `lab` | random sets of rails, and what every policy makes of them |
//! | `figures` | the papers' figures, run again: curves, and claims about them |
//!
//! Each uses earlier ones: `net` and `hca` do not depend on ranks, `cluster` not on what workloads mean, and
//! `check` not on the transport's insides.

pub mod bed;
pub mod check;
pub mod cover;
pub mod figures;
pub mod hca;
pub mod lab;
pub mod net;
pub mod rails;
pub mod rng;
pub mod scenario;

pub mod cluster;
pub mod soak;
pub mod trace;
pub mod workload;
