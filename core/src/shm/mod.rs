//! Rings in shared memory: one-way, single producer, single consumer, slots of a fixed size (shiba-2005, 2.2).
//!
//! The logic is here; segments, descriptors and system calls belong to the shim. What goes past the paper:
//!
//! - A slot carries its own turn number, so the consumer polls the one cache line that brings the message, and there is
//!   no tail index to read or to trust. The consumer's head index is read only when the producer runs out of room.
//! - Both sides can sleep: a flag says so, and the other side learns from it that it owes a doorbell. Which doorbell is
//!   the shim's affair.
//! - The other side is not trusted. Every value in shared memory is read once, then checked, then used; what an honest
//!   peer can't have written kills the ring with a [`RingError`]. No value read there is ever an address, a loop count
//!   or an index without a check.
//!
//! `layout` says where things lie, `machine` is the algorithm over any [`Cells`], `mapped` puts it on raw memory,
//! `model` puts it under the loom model checker.

#[cfg(all(any(test, feature = "harness"), not(loom)))]
pub mod harness;
mod layout;
mod machine;
mod mapped;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

pub use layout::{LINE_BYTES, RingConfig, RingConfigError, SLOTS_MAX, ring_bytes};
pub use machine::{Cells, Consumer, Front, Producer, PushError, RingError, Word};
pub use mapped::{AttachError, Mapped};
