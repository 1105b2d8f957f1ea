//! Rings in shared memory: one-way, single producer, single consumer (shiba-2005, 2.2), with one cell a
//! message and an annex of slots for messages that are longer than a cell (rules L-11 to L-13).
//!
//! The logic is here; segments, descriptors and system calls belong to the shim. What goes past the paper:
//!
//! - A cell carries its own turn number, published by the one store that publishes all of its first word, so
//!   the consumer polls the one cache line that brings a small message, and there is no tail index to read or
//!   to trust. The consumer's head indices are read only when the producer runs out of room.
//! - A small message is one line: header and 40 payload bytes, then two more lines up to 168 bytes. All other
//!   packets ride with their header as it is, in the cell if they fit.
//! - Both sides can sleep: a flag shows it, and the other side then rings a doorbell. The shim provides the
//!   doorbell. Where the shim has a fence that reaches into the other process, the sleeper makes it, and a
//!   message costs none.
//! - A ring needs the memory that was used: where the shim can make pages usable one by one, each side does
//!   so in its first lap, before it accesses them, and treats missing pages as a full or an empty ring.
//! - The other side is not trusted. Every value in shared memory is read once, then checked, then used; what
//!   an honest peer can't have written kills the ring with a [`RingError`]. No value read there is ever an
//!   address, a loop count or an index without a check.
//!
//! Positions count messages from 0, modulo 2^32; message `p` lies in cell `p % cells` and is there once the
//! cell's turn number is `p + 1`. Each side keeps its position privately; a value in shared memory is only
//! ever compared with it. In the same way the k-th message that needs the annex has slot `k % slots`.
//!
//! Orders, each pair proved under loom in `model`:
//! - turn: `Release` after the message is written, `Acquire` before it is read;
//! - heads: `Release` after cells and slots were read, `Acquire` before they are written again;
//! - `sleeping` against turn and `producer_waits` against heads: each side stores its own word, passes a
//!   fence, then loads the other's. So one of the two sees the other: a sleeper sees the message, or the
//!   other side sees the sleeper and rings. Both sides write these two words, by exchanges only, so that each
//!   word has one history. The fences are sequentially consistent ones, or a heavy one of the sleeper and
//!   none of the other side.
//!
//! Bounds: a push writes one cell and at most one slot, a look at the front reads one cell; nothing here
//! loops on a shared value.
//!
//! `layout` defines the memory layout, `producer` and `consumer` are the algorithm over any `cells::Cells`,
//! `claims` is how both sides copy one message, `offers` which memory the other side may map,
//! `windows` which of it the other side may access,
//! `mapped` puts it on raw memory, `model` puts it under the loom model checker.

mod cells;
mod claims;
mod consumer;
mod copy;
mod layout;
mod mapped;
#[cfg(all(test, loom))]
mod model;
mod offers;
mod producer;
#[cfg(all(test, not(loom)))]
mod tests;
mod windows;

pub use cells::{PushError, RingError, Word};
pub use claims::{CLAIM_GENERATIONS, CLAIM_UNITS_MAX, Claimed, OwnerClaims, ReaderClaims};
pub use consumer::{Consumer, Front, Inline};
pub use copy::copy_short;
pub use layout::{
    CELLS_MAX, LINE_BYTES, PUTTING_AT, RingConfig, RingConfigError, SHORT_INLINE_BYTES, SLOTS_MAX, fits_inline,
    ring_bytes,
};
pub use mapped::{AttachError, HeavyFence, Mapped, Populate};
pub use offers::{FileFacts, ListAnswer, ListNumber, ListReader, OFFERS_MAX, OfferedRange, Taken};
pub use producer::Producer;
pub use windows::{ListedWindow, UNMAPPED_WINDOWS_MAX, WINDOWS_MAX, WindowList};
