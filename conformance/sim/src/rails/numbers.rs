//! False numbers: near the true one, at an end of the range, or half of it away.

use crate::rng::Rng;

/// An offset that no window reaches to; some wrap with the length.
pub fn outside(rng: &mut Rng) -> u64 {
    match rng.below(3) {
        0 => (u64::MAX - rng.below(4096)) & !7,
        1 => 1 << rng.within(40, 63),
        _ => (1 << 40) + rng.below(1 << 20) * 8,
    }
}

/// A number that is near the true one, at an end of the range, or half of it away.
pub fn ugly(rng: &mut Rng, number: u64) -> u64 {
    match rng.below(10) {
        0 => 0,
        1 => number.wrapping_add(1),
        2 => number.wrapping_sub(1),
        3 => u64::MAX - rng.below(3),
        4 => number ^ 1 << rng.below(64),
        5 => number / 2,
        6 => number.wrapping_add(rng.below(64)),
        7 => rng.below(64),
        8 => number.wrapping_add(1 << rng.below(16)),
        _ => number.wrapping_sub(1 << rng.below(16)),
    }
}

/// As [`ugly`], also half of the range away.
pub fn ugly32(rng: &mut Rng, number: u32) -> u32 {
    match rng.below(8) {
        0 => number.wrapping_add(u32::MAX / 2 + rng.below(3) as u32),
        1 => u32::MAX - rng.below(3) as u32,
        2 => number ^ 1 << rng.below(32),
        3 => number.wrapping_add(rng.within(1, 70) as u32),
        4 => number.wrapping_sub(rng.within(1, 70) as u32),
        _ => ugly(rng, number.into()) as u32,
    }
}

/// As [`ugly`], also half of the range away.
pub fn ugly16(rng: &mut Rng, number: u16) -> u16 {
    match rng.below(6) {
        0 => number.wrapping_add(u16::MAX / 2 + rng.below(3) as u16),
        1 => u16::MAX - rng.below(3) as u16,
        2 => number ^ 1 << rng.below(16),
        _ => ugly(rng, number.into()) as u16,
    }
}
