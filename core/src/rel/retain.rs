//! Copies of eager payloads, held until the peer acknowledges them (resilient-2010, IV.A; rule A-5): the
//! sender's buffer is free at once, and the message can still be sent again over another rail.

use crate::mem::{MemRef, RegionId};
use crate::store::{Arena, ArenaError, NONE};

/// Equal places in the payload pool.
pub struct Retention<'m> {
    next: &'m mut [u32],
    free: u32,
    free_len: u32,
    base: u64,
    stride_bytes: u64,
}

impl<'m> Retention<'m> {
    /// `count` free places of `stride_bytes`, from `base` in the payload pool on.
    pub fn carve(arena: &mut Arena<'m>, count: u32, base: u64, stride_bytes: u64) -> Result<Self, ArenaError> {
        let next = arena.take_with(count as usize, |i| if i + 1 == count { NONE } else { i + 1 })?;
        Ok(Retention { next, free: if count == 0 { NONE } else { 0 }, free_len: count, base, stride_bytes })
    }

    /// A free place; `None` where all are held.
    pub fn take(&mut self) -> Option<u32> {
        let place = self.free;
        if place == NONE {
            return None;
        }
        self.free = self.next[place as usize];
        self.free_len -= 1;
        Some(place)
    }

    /// Gives a place back.
    pub fn give(&mut self, place: u32) {
        self.next[place as usize] = self.free;
        self.free = place;
        self.free_len += 1;
    }

    /// How many are free.
    pub const fn free_len(&self) -> u32 {
        self.free_len
    }

    /// Where a place lies.
    pub const fn at(&self, place: u32) -> MemRef {
        MemRef { region: RegionId::POOL, offset: self.base + place as u64 * self.stride_bytes }
    }
}
