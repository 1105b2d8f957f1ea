//! Carves typed tables out of one region that the caller hands in.
//!
//! The same calls count what they would take where there is no region ([`Arena::bytes_of`]), so a region of
//! that size always suffices. This is the one file of the core that is `unsafe` for memory's sake; the safety
//! argument is at the block.
#![allow(unsafe_code)]

use core::mem::{MaybeUninit, align_of, size_of};

/// The alignment that a region must have: one cache line.
pub const REGION_ALIGN: usize = 64;

/// Why a region can't be carved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// The region ends before the tables do: `needed` bytes up to the table at hand, `given` bytes in all.
    #[error("the region has {given} bytes, and the tables so far take {needed}")]
    TooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes in the region.
        given: usize,
    },
    /// The region does not start on a multiple of [`REGION_ALIGN`] bytes.
    #[error("the region must start on a multiple of {REGION_ALIGN} bytes, not {off_by} bytes past one")]
    Misaligned {
        /// How many bytes past such a multiple it starts.
        off_by: usize,
    },
}

/// The rest of the caller's region.
pub struct Arena<'m> {
    /// `None`: there is no region, what is taken is counted.
    rest: Option<&'m mut [MaybeUninit<u8>]>,
    used: usize,
    given: usize,
}

impl<'m> Arena<'m> {
    /// The bytes of the region that `carve` needs; `None`: more than an address space has. Its tables are
    /// empty meanwhile.
    pub fn bytes_of<T>(carve: impl FnOnce(&mut Self) -> Result<T, ArenaError>) -> Option<usize> {
        let mut arena = Arena { rest: None, used: 0, given: usize::MAX };
        carve(&mut arena).ok().map(|_| arena.used)
    }

    /// Starts carving at the region's begin.
    pub fn new(region: &'m mut [MaybeUninit<u8>]) -> Result<Self, ArenaError> {
        let off_by = region.as_ptr().addr() % REGION_ALIGN;
        if off_by != 0 {
            return Err(ArenaError::Misaligned { off_by });
        }
        let given = region.len();
        Ok(Arena { rest: Some(region), used: 0, given })
    }

    /// A table of `count` copies of `init`.
    pub fn take<T: Copy + 'm>(&mut self, count: usize, init: T) -> Result<&'m mut [T], ArenaError> {
        self.take_with(count, |_| init)
    }

    /// A table of `count` elements made by `make` from their index.
    pub fn take_with<T: 'm>(
        &mut self,
        count: usize,
        mut make: impl FnMut(u32) -> T,
    ) -> Result<&'m mut [T], ArenaError> {
        const { assert!(align_of::<T>() <= REGION_ALIGN && !core::mem::needs_drop::<T>()) };
        let too_small = |needed| ArenaError::TooSmall { needed, given: self.given };
        let pad = self.used.next_multiple_of(align_of::<T>()) - self.used;
        let len = size_of::<T>().checked_mul(count).ok_or(too_small(usize::MAX))?;
        let needed = self.used.checked_add(pad).and_then(|at| at.checked_add(len)).ok_or(too_small(usize::MAX))?;
        if needed > self.given {
            return Err(too_small(needed));
        }
        self.used = needed;
        let Some(rest) = self.rest.take() else { return Ok(&mut []) };
        let (taken, rest) = rest.split_at_mut(pad + len);
        self.rest = Some(rest);
        let start = taken[pad..].as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: `start` points to `len = count * size_of::<T>()` bytes that were split off for this call
        // alone and live for `'m`; the region starts on a multiple of REGION_ALIGN >= align_of::<T>() and
        // `used + pad` is a multiple of align_of::<T>(), so `start` is aligned; MaybeUninit<T> needs no
        // initialised bytes.
        let table = unsafe { core::slice::from_raw_parts_mut(start, count) };
        for (index, slot) in table.iter_mut().enumerate() {
            slot.write(make(index as u32));
        }
        // SAFETY: every element was written in the loop above, and T has no destructor that could be missed
        // (asserted above).
        Ok(unsafe { core::slice::from_raw_parts_mut(start.cast::<T>(), count) })
    }
}
