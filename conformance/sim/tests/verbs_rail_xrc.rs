//! The tests of `verbs_rail.rs` with rails that connect by XRC, and what processes of one node share then.
//! Each process has one shared receive queue (xrc-2008's SXRC-SRQ); those of `verbs_rail_msrq.rs` have
//! several.

use rerail_linux::rail::verbs::SrqSizes;

/// Whether the rails of these tests connect by XRC; those of `verbs_rail.rs` do not.
const XRC: bool = true;
/// Whether they register payload on demand and moderate their completion queues; those of
/// `verbs_rail_on_demand.rs` do.
const ON_DEMAND: bool = false;
/// Sizes of their receive buffers.
const SIZES: Option<SrqSizes> = Some(SrqSizes::ONE);

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
#[path = "verbs_rail/traffic.rs"]
mod traffic;
