//! Rails of the driver over simulated memory and wires.
//!
//! | file | holds |
//! |---|---|
//! | `gate` | around any rail: for a while it takes nothing in |
//! | `shm` | rings of `rerail_core::shm` between the ranks of a host |
//! | `memory` | raw memory: that of the rings, and copies between packets and places |

mod gate;
mod memory;
mod shm;

pub use gate::{Gate, GateHandle};
pub use shm::{ShmHub, ShmRail};
