//! The tests of `verbs_rail.rs` with rails that register payload memory on demand and put completion events
//! off, and what that saves.

/// Whether the rails of these tests connect by XRC; those of `verbs_rail_xrc.rs` do.
const XRC: bool = false;
/// Whether they register payload on demand and moderate their completion queues.
const ON_DEMAND: bool = true;
/// Sizes of their receive buffers, where they connect by XRC.
const SIZES: Option<rerail_linux::rail::verbs::SrqSizes> = None;

#[path = "verbs_rail/cluster.rs"]
mod cluster;

#[path = "verbs_rail/ends.rs"]
mod ends;
#[path = "verbs_rail/engines.rs"]
mod engines;
#[path = "verbs_rail/recover.rs"]
mod recover;
#[path = "verbs_rail/setup.rs"]
mod setup;
#[path = "verbs_rail/traffic.rs"]
mod traffic;
#[path = "verbs_rail/unpinned.rs"]
mod unpinned;
