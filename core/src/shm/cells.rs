//! The memory under a ring as its two ends see it, and what can be wrong with it.
#![allow(unsafe_code)]

use core::fmt;
use core::sync::atomic::Ordering;

use super::layout::RingConfig;

/// A word in shared memory.
pub trait Word<V> {
    /// Atomic load.
    fn load(&self, order: Ordering) -> V;
    /// Atomic store.
    fn store(&self, value: V, order: Ordering);
    /// Atomic exchange.
    fn swap(&self, value: V, order: Ordering) -> V;
    /// Atomic exchange, where the value is `current`, then in this order; whether it was.
    fn replace(&self, current: V, value: V, order: Ordering) -> bool;
}

/// The memory of a ring: words that both sides see, and the bytes of cells and annex slots.
///
/// Handles of cells and places are good for the ring that gave them; nothing outside this module gets any.
pub trait Cells {
    /// A word of 32 bits.
    type Flag: Word<u32>;
    /// A word of 64 bits.
    type Wide: Word<u64>;
    /// One cell.
    type Cell: Copy + fmt::Debug;
    /// Where the bytes of a message start: in a cell or in an annex slot.
    type Place: Copy + fmt::Debug;

    /// How the ring is cut: this side's own knowledge, not shared.
    fn config(&self) -> RingConfig;
    /// Messages and annex slots freed by the consumer, in the low and the high half.
    fn head(&self) -> &Self::Wide;
    /// Not 0: the consumer sleeps and needs a doorbell.
    fn sleeping(&self) -> &Self::Flag;
    /// Not 0: the producer waits for room and needs a doorbell.
    fn producer_waits(&self) -> &Self::Flag;
    /// Which memory the producer offers to be mapped (L-18); 0: none.
    fn offer(&self) -> &Self::Wide;
    /// The number of the producer's list of windows (L-25); 0: there is none now.
    fn windows(&self) -> &Self::Wide;
    /// Word `word`, 0 to 3, of place `index` in that list, which is below `WINDOWS_MAX`.
    fn window(&self, index: usize, word: usize) -> &Self::Wide;
    /// The list by which the producer writes to the consumer's memory at the moment (L-26); 0: it does not.
    fn putting(&self) -> &Self::Wide;
    /// The side that copies each part of a message (L-22).
    fn claims(&self) -> &Self::Wide;
    /// Cell `index`, which is below `config().cells`.
    fn cell(&self, index: u32) -> Self::Cell;
    /// The cell behind `cell`; behind the last, a handle that is not used.
    fn next(&self, cell: Self::Cell) -> Self::Cell;
    /// A hint: the cell that lies `AHEAD` behind `cell`, if there is one, is written soon.
    #[inline(always)]
    fn will_write<const AHEAD: usize>(&self, _cell: Self::Cell) {}
    /// Word `index` of a cell, 0 to 3.
    fn word(&self, cell: Self::Cell, index: u32) -> &Self::Wide;
    /// The bytes of a cell from byte `at` on, a multiple of 8 from 16 on and below `CELL_BYTES`.
    fn inline(&self, cell: Self::Cell, at: u32) -> Self::Place;
    /// The bytes of annex slot `slot`, which is below `config().slots`.
    fn annex(&self, slot: u32) -> Self::Place;

    /// Whether all the memory is there from the start.
    fn is_whole(&self) -> bool;
    /// Makes the memory of `count` cells from cell `from` on usable, before this side accesses them for the
    /// first time; `false`: there is none, try again later.
    fn populate_cells(&self, from: u32, count: u32) -> bool;
    /// The same for annex slot `slot`.
    fn populate_slot(&self, slot: u32) -> bool;

    /// What the side that wakes passes between writing its word and reading the other side's flag, once for
    /// each message: together with a heavy fence of the sleeper, both are as good as sequentially consistent
    /// fences.
    fn light_fence(&self);
    /// What the side that goes to sleep passes between setting its flag and reading the other side's word;
    /// `false`: the fence failed, so the other side may miss the flag.
    fn heavy_fence(&self) -> bool;

    /// Copies `len` bytes from `from` to byte `at` of `place`.
    ///
    /// # Safety
    /// `from` can be read for `len` bytes; `place` has `at + len` bytes before the end of its cell or slot.
    unsafe fn copy_in(&self, place: Self::Place, at: u32, from: *const u8, len: usize);
    /// Copies `len` bytes from byte `at` of `place` to `to`.
    ///
    /// # Safety
    /// `to` can be written for `len` bytes; `place` has `at + len` bytes before the end of its cell or slot.
    unsafe fn copy_out(&self, place: Self::Place, at: u32, to: *mut u8, len: usize);
    /// The bytes of `place`, to be read before the message is released.
    fn bytes(&self, place: Self::Place) -> *const u8;
}

/// The content of shared memory can't come from an honest peer. The ring is dead from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} in shared memory is {value}, which no honest peer writes")]
pub struct RingError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u32,
}

/// Why a message was not pushed. Nothing of it is visible to the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// All cells are taken, or it needs an annex slot and all of these are.
    #[error("the ring is full: try again when the peer has taken a message")]
    Full,
    /// It does not fit into a slot.
    #[error("{bytes} bytes do not fit into a slot of {max}")]
    TooLong {
        /// Bytes of header and payload, as far as they were counted.
        bytes: u64,
        /// Bytes of a slot.
        max: u32,
    },
    /// The peer corrupted the ring.
    #[error("the ring is dead: {0}")]
    Corrupt(#[from] RingError),
}

/// Clears a sleeper's flag; whether it was set. The exchange is made only where the plain load shows it set,
/// because the word's line is then shared by both sides' caches while neither side sleeps.
#[inline(always)]
pub(super) fn wake(flag: &impl Word<u32>) -> bool {
    flag.load(Ordering::Relaxed) != 0 && cleared(flag)
}

#[cold]
#[inline(never)]
fn cleared(flag: &impl Word<u32>) -> bool {
    flag.swap(0, Ordering::Relaxed) != 0
}
