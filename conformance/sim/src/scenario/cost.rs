//! What an HCA costs the processes of its host, beside the time of its own. All of it is nothing unless a
//! scenario sets it.

use serde::{Deserialize, Serialize};

use crate::hca::HostCost;

/// What using an HCA costs the processor of a process: see [`HostCost`] for what the costs mean. A process
/// has one processor for all its HCAs: what one HCA takes of it, the others wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostSpec {
    /// Nanoseconds of each round of the engine for each rail over this HCA, whether or not anything has come:
    /// with a second rail every poll is dearer (newmadeleine-2007, 3.3). A rank sleeps while nothing comes,
    /// so polling in vain is not simulated: the round that finds something pays for a whole turn over all
    /// rails, which is what a message waits for at the most.
    pub poll_ns: u64,
    /// Nanoseconds of every post.
    pub post_ns: u64,
    /// Messages up to so many bytes, headers included, go by programmed I/O; 0: none does.
    pub pio_bytes_max: u32,
    /// Bytes per second of programmed I/O; 0: without limit.
    pub pio_bytes_per_second: u64,
    /// Nanoseconds of every registration of memory.
    pub register_ns: u64,
    /// Nanoseconds of every page of 4096 bytes that is registered.
    pub register_page_ns: u64,
}

impl CostSpec {
    /// Whether it is nothing at all.
    pub fn is_none(&self) -> bool {
        *self == CostSpec::default()
    }

    /// What the HCA itself charges: all but polling.
    pub fn host_cost(&self) -> HostCost {
        let CostSpec { poll_ns: _, post_ns, pio_bytes_max, pio_bytes_per_second, register_ns, register_page_ns } =
            *self;
        HostCost { post_ns, pio_bytes_max, pio_bytes_per_second, register_ns, register_page_ns }
    }
}

/// An HCA on another NUMA node than the processes of its host: every access to their memory crosses between
/// the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NumaSpec {
    /// Nanoseconds that a message takes longer, at each end that is so.
    pub latency_ns: u64,
    /// Bytes per second between the nodes, each way; 0: no less than the bus. The bus is taken for as long as
    /// a transfer over the slower of the two lasts.
    pub bytes_per_second: u64,
}

impl NumaSpec {
    /// Whether the HCA is near.
    pub fn is_near(&self) -> bool {
        *self == NumaSpec::default()
    }
}
