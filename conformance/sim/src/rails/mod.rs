//! Rails of the driver over simulated memory and wires.
//!
//! | file | holds |
//! |---|---|
//! | `gate` | around any rail: for a while it takes nothing in |
//! | `quirks` | around any rail: what the contract allows and well-behaved rails don't do |
//! | `liar`, `lies`, `insert`, `numbers` | around any rail: a member of the job that lies |
//! | `shm` | rings of `rerail_core::shm` between the ranks of a host |
//! | `reads` | reads of another rank's memory |
//! | `joint` | reads that both ranks copy |
//! | `maps` | memory that ranks map of each other |
//! | `hub` | which ranks share memory, and the making of rings |
//! | `stream` | a byte pipe per peer, with TCP's framing |
//! | `pipes` | the pipes: what kernels make of wires |
//! | `memory` | raw memory: that of the rings, and copies between packets and places |

mod access;
pub(crate) mod forward;
mod gate;
mod hub;
mod insert;
mod joint;
mod liar;
mod lies;
mod maps;
mod memory;
mod numbers;
mod pipes;
mod quirks;
mod reads;
mod shm;
mod stream;
#[cfg(test)]
mod tests;

pub use gate::{Gate, GateHandle};
pub use hub::{JointCounts, ShmHub};
pub use liar::Liar;
pub use lies::{LIES, Lie};
pub use maps::{MapCounts, MapModel};
pub(crate) use memory::{region, region_mut};
pub use pipes::{PipeEnd, PipeNet, Segment, State};
pub use quirks::Quirky;
pub use reads::ReadModel;
pub use shm::ShmRail;
pub use stream::{SharedPipes, StreamRail};
