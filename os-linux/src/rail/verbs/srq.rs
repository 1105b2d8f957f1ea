//! Shared receive queues with buffers of several sizes (xrc-2008, V.A: SXRC-MSRQ). Rule V-17.
//!
//! By XRC a request names the queue of its message, so one initiator serves them all, and a small message
//! need not lie in a buffer for the longest. Their memory is decided at the start: as much as
//! [`VerbsOptions::receives`](super::VerbsOptions::receives) buffers for the longest message, or less. All
//! queues have equally many buffers. Message sizes are not known beforehand; so the measure is the number of
//! messages of the worst size that are taken before senders have to wait for a poll. No other split of the
//! same memory has more: with n buffers in each queue or more, n times the sum of the sizes is the least that
//! they can take.

/// Most queues with smaller buffers that a process may have beside the one for the longest messages.
pub(super) use super::wire::SMALLER_MAX;

/// Buffers start at multiples of this: a cache line.
const ALIGNMENT: u64 = 64;
/// Most queues.
pub(super) const QUEUES_MAX: usize = SMALLER_MAX + 1;

/// Sizes of receive buffers in bytes, those for the longest message left out: each holds packets up to so
/// many bytes, headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqSizes {
    bytes: [u32; SMALLER_MAX],
    count: u8,
}

impl SrqSizes {
    /// So many there may be.
    pub const MAX: usize = SMALLER_MAX;
    /// No smaller ones: one queue, whose buffers hold every message (SXRC-SRQ).
    pub const ONE: SrqSizes = SrqSizes { bytes: [0; SMALLER_MAX], count: 0 };
    /// 256 bytes to 8 KiB (xrc-2008, VI.B).
    pub const PAPER: SrqSizes = SrqSizes { bytes: [256, 512, 1024, 2048, 4096, 8192, 0], count: 6 };

    /// These, in bytes, ascending; `None`: more than [`MAX`](Self::MAX). Whether they fit a rail is looked at
    /// when it is opened.
    pub fn new(bytes: &[u32]) -> Option<Self> {
        let mut sizes = Self::ONE;
        sizes.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        sizes.count = bytes.len() as u8;
        Some(sizes)
    }

    /// Its sizes in bytes.
    pub fn as_slice(&self) -> &[u32] {
        &self.bytes[..usize::from(self.count)]
    }

    /// Those of these ascending sizes that are less than so many bytes.
    pub(super) fn below(mut self, bytes: u32) -> Self {
        self.count = self.as_slice().iter().filter(|size| **size < bytes).count() as u8;
        self
    }
}

/// Where a queue's buffers lie in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    /// Offset of the first.
    pub at: u64,
    /// From one to the next, in bytes.
    pub stride: u64,
    /// Bytes of one that a message may have.
    pub bytes: u32,
    /// How many there are.
    pub count: u32,
}

/// All of a rail's, the smallest buffers first; the last hold every message.
pub(super) type Queues = heapless::Vec<Queue, QUEUES_MAX>;

impl Queue {
    /// The first offset behind them.
    pub fn end(&self) -> u64 {
        self.at + self.stride * u64::from(self.count)
    }
}

/// Queues from offset 0 on that take the memory of so many buffers for the longest message, or less.
pub(super) fn lay_out(sizes: SrqSizes, message_bytes: u32, receives: u16) -> Queues {
    let budget = stride(message_bytes) * u64::from(receives);
    let count = (budget / row(sizes, message_bytes)) as u32;
    let mut at = 0;
    let queue = |bytes: u32| {
        let queue = Queue { at, stride: stride(bytes), bytes, count };
        at = queue.end();
        queue
    };
    sizes.as_slice().iter().copied().chain([message_bytes]).map(queue).collect()
}

/// The least and the greatest number of buffers for the longest message whose memory gives each queue a
/// buffer, and no more than `depth`.
pub(super) fn receives_for(sizes: SrqSizes, message_bytes: u32, depth: u32) -> (u64, u64) {
    let (row, whole) = (row(sizes, message_bytes), stride(message_bytes));
    (row.div_ceil(whole), (row * (u64::from(depth) + 1) - 1) / whole)
}

/// Bytes of one buffer of each size.
fn row(sizes: SrqSizes, message_bytes: u32) -> u64 {
    sizes.as_slice().iter().chain([&message_bytes]).map(|bytes| stride(*bytes)).sum()
}

fn stride(bytes: u32) -> u64 {
    u64::from(bytes).next_multiple_of(ALIGNMENT)
}
