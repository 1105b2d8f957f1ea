//! The tests of `verbs_rail_xrc.rs` with processes that have several shared receive queues, of buffers of
//! different sizes, as is the default by XRC (xrc-2008's SXRC-MSRQ), and what packets lie in which. Rule
//! V-17.

use rerail_linux::rail::verbs::SrqSizes;

/// Whether the rails of these tests connect by XRC; those of `verbs_rail.rs` do not.
const XRC: bool = true;
/// Whether they register payload on demand and moderate their completion queues; those of
/// `verbs_rail_on_demand.rs` do.
const ON_DEMAND: bool = false;
/// Sizes of their receive buffers: the default.
const SIZES: Option<SrqSizes> = None;

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
#[path = "verbs_rail/shared.rs"]
mod shared;
#[path = "verbs_rail/sized.rs"]
mod sized;
#[path = "verbs_rail/traffic.rs"]
mod traffic;
