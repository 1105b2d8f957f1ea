//! A ring's cells on raw memory that another process maps too.
//!
//! Safety argument of the file: a [`Mapped`] is made only over memory that its maker guarantees (alignment,
//! length, lifetime, and that this process accesses it through rings only), with a configuration that was
//! checked against that length. Every access computes its address from that private configuration and from
//! arguments below its bounds, never from a value read out of the memory. Words are touched atomically.
//! Header and payload bytes are copied without atomics: an honest peer does not touch them meanwhile (the
//! turn number and the head hand them over), and a dishonest one, being another process, can do no more than
//! change which bytes the copy yields. Nothing branches on bytes in place; a header is parsed from the
//! private copy only.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

use super::cells::{Cells, Word};
use super::consumer::Consumer;
use super::copy::copy_short;
use super::layout::{
    CELL_BYTES, CELLS_AT, CLAIMS_AT, CONSTANTS_AT, Constants, HEAD_AT, LINE_BYTES, LIST_AT, OFFER_AT,
    PRODUCER_WAITS_AT, PUTTING_AT, RingConfig, RingConfigError, SLEEPING_AT, WINDOW_BYTES, WINDOWS_AT, ring_bytes,
};
use super::producer::Producer;
use super::windows::WINDOWS_MAX;

/// Why memory can't be used as a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The configuration is out of range.
    #[error("no ring can be like this: {0}")]
    Config(#[from] RingConfigError),
    /// The memory is too small.
    #[error("a ring of {needed} bytes does not fit into memory of {given} bytes")]
    TooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The memory does not start on a multiple of [`LINE_BYTES`].
    #[error("a ring must start on a multiple of {LINE_BYTES} bytes, not {off_by} bytes past one")]
    Misaligned {
        /// How many bytes past such a multiple it starts.
        off_by: usize,
    },
    /// The creator of the ring wrote something else than was agreed.
    #[error("{field} of the ring is {found}, agreed was {expected}: both sides must have the same settings")]
    Constant {
        /// The field.
        field: &'static str,
        /// The value found.
        found: u32,
        /// The agreed value.
        expected: u32,
    },
}

/// A fence for this thread and, at some moment of the call, for every running thread of the other process
/// too; `false`: it failed (L-13). On Linux: `membarrier`.
pub type HeavyFence = fn() -> bool;

/// Makes so many bytes from an address on usable: behind it, touching them can't fail any more. `false`: the
/// system has no memory for them now. On Linux: `madvise(MADV_POPULATE_WRITE)`.
///
/// # Safety
/// The bytes are mapped, and may be written.
pub type Populate = unsafe fn(NonNull<u8>, usize) -> bool;

/// Ring memory.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u8>,
    config: RingConfig,
    /// Where the annex starts.
    annex: NonNull<u8>,
    /// [`RingConfig::stride`].
    stride: usize,
    /// `None`: both sides use ordinary fences.
    heavy: Option<HeavyFence>,
    /// `None`: all of the memory is there.
    populate: Option<Populate>,
}

/// A place in ring memory: a cell, or the bytes of a message.
#[derive(Clone, Copy, Debug)]
pub struct At(NonNull<u8>);

// SAFETY: a Mapped and the places in it have no tie to the thread that made them: they are pointers to memory
// that the maker keeps alive, and everything shared in it is atomic. A Mapped is not Sync: one side of a ring
// has one user at a time.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Send for At {}

impl Mapped {
    /// # Safety
    /// `base` can be read and written for `len` bytes as long as the value lives, and this process reads and
    /// writes these bytes through rings or atomically only.
    unsafe fn new(base: NonNull<u8>, len: usize, config: RingConfig) -> Result<Self, AttachError> {
        config.check()?;
        let needed = ring_bytes(config).unwrap_or(usize::MAX);
        if needed > len || needed > isize::MAX as usize {
            return Err(AttachError::TooSmall { needed, given: len });
        }
        let off_by = base.addr().get() % LINE_BYTES;
        if off_by != 0 {
            return Err(AttachError::Misaligned { off_by });
        }
        // SAFETY: the annex lies inside the `ring_bytes(config)` that were just checked against the length.
        let annex = unsafe { base.add(config.annex_at()) };
        Ok(Mapped { base, config, annex, stride: config.stride(), heavy: None, populate: None })
    }

    /// The word of type `W` at byte `at` of the ring.
    #[inline(always)]
    fn at<W>(&self, at: usize) -> &W {
        // SAFETY: every caller passes the place of a word in the layout and its type, an atomic integer: a
        // multiple of its size that ends within the `ring_bytes(config)` that `new` checked against the
        // length; `base` is aligned to LINE_BYTES, and the memory is valid for the life of `self`. Any bits
        // are an integer, and all accesses to words are atomic.
        unsafe { &*self.base.as_ptr().add(at).cast::<W>() }
    }

    /// The words of the constants, in the order of [`Constants::fields`].
    fn constant(&self, index: usize) -> &AtomicU32 {
        debug_assert!(index < size_of::<Constants>() / 4);
        self.at(CONSTANTS_AT + 4 * index)
    }

    /// Writes the constants of a ring that this side creates.
    fn stamp(&self) {
        let constants = Constants::of(self.config);
        for (index, value) in bytemuck::cast_slice::<Constants, u32>(&[constants]).iter().enumerate() {
            self.constant(index).store(*value, Ordering::Relaxed);
        }
    }

    /// Compares the constants of a ring that the other side created, once.
    fn verify(&self) -> Result<(), AttachError> {
        for (index, (field, expected)) in Constants::of(self.config).fields().into_iter().enumerate() {
            let found = self.constant(index).load(Ordering::Relaxed);
            if found != expected {
                return Err(AttachError::Constant { field, found, expected });
            }
        }
        Ok(())
    }
}

macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word<$value> for $atomic {
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                <$atomic>::load(self, order)
            }

            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                <$atomic>::store(self, value, order);
            }

            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                <$atomic>::swap(self, value, order)
            }

            #[inline]
            fn replace(&self, current: $value, value: $value, order: Ordering) -> bool {
                <$atomic>::compare_exchange(self, current, value, order, Ordering::Relaxed).is_ok()
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);

// Handles are made here only, of cells and slots below the private configuration's bounds; the machine keeps
// those of a ring inside that ring's ends.
impl Cells for Mapped {
    type Flag = AtomicU32;
    type Wide = AtomicU64;
    type Cell = At;
    type Place = At;

    #[inline(always)]
    fn config(&self) -> RingConfig {
        self.config
    }

    #[inline(always)]
    fn head(&self) -> &AtomicU64 {
        self.at(HEAD_AT)
    }

    #[inline(always)]
    fn sleeping(&self) -> &AtomicU32 {
        self.at(SLEEPING_AT)
    }

    #[inline(always)]
    fn producer_waits(&self) -> &AtomicU32 {
        self.at(PRODUCER_WAITS_AT)
    }

    fn offer(&self) -> &AtomicU64 {
        self.at(OFFER_AT)
    }

    #[inline(always)]
    fn windows(&self) -> &AtomicU64 {
        self.at(WINDOWS_AT)
    }

    fn window(&self, index: usize, word: usize) -> &AtomicU64 {
        debug_assert!(index < WINDOWS_MAX && word < 4);
        self.at(LIST_AT + index * WINDOW_BYTES + word * 8)
    }

    #[inline(always)]
    fn putting(&self) -> &AtomicU64 {
        self.at(PUTTING_AT)
    }

    fn claims(&self) -> &AtomicU64 {
        self.at(CLAIMS_AT)
    }

    #[inline(always)]
    fn cell(&self, index: u32) -> At {
        debug_assert!(index < self.config.cells, "cell {index} of {}", self.config.cells);
        // SAFETY: the cell lies before the annex, so in the checked memory.
        At(unsafe { self.base.add(CELLS_AT + index as usize * CELL_BYTES) })
    }

    #[inline(always)]
    fn next(&self, cell: At) -> At {
        // SAFETY: one more cell lies behind it, or the annex.
        At(unsafe { cell.0.add(CELL_BYTES) })
    }

    #[inline(always)]
    fn will_write<const AHEAD: usize>(&self, cell: At) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint: it changes neither memory nor registers, and no address makes it fault. Processors
        // that lack the instruction ignore it.
        unsafe {
            core::arch::asm!(
                "prefetchw [{cell} + {ahead}]",
                cell = in(reg) cell.0.as_ptr(),
                ahead = const AHEAD * CELL_BYTES,
                options(nostack, preserves_flags, readonly),
            );
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = cell;
    }

    #[inline(always)]
    fn word(&self, cell: At, index: u32) -> &AtomicU64 {
        debug_assert!(index < 4);
        // SAFETY: a cell starts on a multiple of 64 and has 24 words; it lies in memory that is valid for the
        // life of `self`. Any bits are an integer. Words 0 and 1 are only touched atomically; 2 and 3 are
        // bytes of a message where they are no words, and then the turn number hands them over, as all bytes.
        unsafe { &*cell.0.as_ptr().cast::<AtomicU64>().add(index as usize) }
    }

    #[inline(always)]
    fn inline(&self, cell: At, at: u32) -> At {
        debug_assert!(at.is_multiple_of(8) && (16..CELL_BYTES as u32).contains(&at));
        // SAFETY: inside the cell.
        At(unsafe { cell.0.add(at as usize) })
    }

    #[inline(always)]
    fn annex(&self, slot: u32) -> At {
        debug_assert!(slot < self.config.slots, "slot {slot} of {}", self.config.slots);
        // SAFETY: there are `slots` slots at this distance in the checked memory.
        At(unsafe { self.annex.add(slot as usize * self.stride) })
    }

    fn is_whole(&self) -> bool {
        self.populate.is_none()
    }

    fn populate_cells(&self, from: u32, count: u32) -> bool {
        debug_assert!(count <= self.config.cells - from);
        // SAFETY: these cells lie in the checked memory.
        self.populate.is_none_or(|populate| unsafe { populate(self.cell(from).0, count as usize * CELL_BYTES) })
    }

    fn populate_slot(&self, slot: u32) -> bool {
        // SAFETY: as above.
        self.populate.is_none_or(|populate| unsafe { populate(self.annex(slot).0, self.stride) })
    }

    #[inline(always)]
    fn light_fence(&self) {
        match self.heavy {
            // The fence that the processor needs is the other side's.
            Some(_) => compiler_fence(Ordering::SeqCst),
            None => fence(Ordering::SeqCst),
        }
    }

    fn heavy_fence(&self) -> bool {
        match self.heavy {
            Some(heavy) => heavy(),
            None => {
                fence(Ordering::SeqCst);
                true
            }
        }
    }

    #[inline(always)]
    unsafe fn copy_in(&self, place: At, at: u32, from: *const u8, len: usize) {
        // SAFETY: the caller vouches for `from` and for the place; `from` is not ring memory (this process
        // touches that through rings only).
        unsafe { copy_short(from, place.0.as_ptr().add(at as usize), len) };
    }

    #[inline(always)]
    unsafe fn copy_out(&self, place: At, at: u32, to: *mut u8, len: usize) {
        // SAFETY: as in `copy_in`, the other way round.
        unsafe { copy_short(place.0.as_ptr().add(at as usize), to, len) };
    }

    #[inline(always)]
    fn bytes(&self, place: At) -> *const u8 {
        place.0.as_ptr()
    }
}

impl Consumer<Mapped> {
    /// Creates a ring in zeroed memory and becomes its consumer.
    ///
    /// # Safety
    /// `base` can be read and written for `len` bytes as long as the value lives; this process reads and
    /// writes these bytes through this consumer, one producer, or atomically only; they are zero.
    pub unsafe fn create(base: NonNull<u8>, len: usize, config: RingConfig) -> Result<Self, AttachError> {
        // SAFETY: the caller's promise is the same.
        let mapped = unsafe { Mapped::new(base, len, config) }?;
        mapped.stamp();
        Ok(Consumer::over(mapped))
    }

    /// Both sides of the ring have agreed that a side that goes to sleep makes this fence, and the other one
    /// none (L-13). To be called before the first message is looked for.
    pub fn use_heavy_fence(&mut self, fence: HeavyFence) {
        self.cells_mut().heavy = Some(fence);
    }

    /// Only the first [`RingConfig::first_bytes`] of the memory are known to be there: all others are made
    /// usable by this before they are touched for the first time. To be called before the first message.
    pub fn populate_by(&mut self, populate: Populate) {
        self.cells_mut().populate = Some(populate);
        self.begin();
    }
}

impl Producer<Mapped> {
    /// Becomes the producer of a ring that its consumer created; `config` is the agreed one.
    ///
    /// # Safety
    /// `base` can be read and written for `len` bytes as long as the value lives; this process reads and
    /// writes these bytes through this producer, one consumer, or atomically only.
    pub unsafe fn attach(base: NonNull<u8>, len: usize, config: RingConfig) -> Result<Self, AttachError> {
        // SAFETY: the caller's promise is the same.
        let mapped = unsafe { Mapped::new(base, len, config) }?;
        mapped.verify()?;
        Ok(Producer::over(mapped))
    }

    /// Both sides of the ring have agreed that a side that goes to sleep makes this fence, and the other one
    /// none (L-13). To be called before the first message is pushed.
    pub fn use_heavy_fence(&mut self, fence: HeavyFence) {
        self.cells_mut().heavy = Some(fence);
    }

    /// Only the first [`RingConfig::first_bytes`] of the memory are known to be there: all others are made
    /// usable by this before they are touched for the first time. To be called before the first message.
    pub fn populate_by(&mut self, populate: Populate) {
        self.cells_mut().populate = Some(populate);
        self.begin();
    }
}
