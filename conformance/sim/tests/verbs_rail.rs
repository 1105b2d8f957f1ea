//! The verbs rail over software HCAs, in virtual time: connections, messages, writes and reads, and how they
//! end.

/// Whether the rails of these tests connect by XRC; those of `verbs_rail_xrc.rs` do.
const XRC: bool = false;
/// Whether they register payload on demand and moderate their completion queues; those of
/// `verbs_rail_on_demand.rs` do.
const ON_DEMAND: bool = false;
/// Sizes of their receive buffers, where they do.
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
