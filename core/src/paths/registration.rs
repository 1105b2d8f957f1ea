//! What memory is registered for, and what a rail's registrations were measured to cost (P-15).

use crate::rail::rate::scale;
use crate::time::Nanos;

/// Bytes of a page, as registrations are counted.
const PAGE_BYTES: u64 = 4096;

/// Registrations of up to so many pages teach what a registration costs by itself, larger ones what a page
/// costs.
const SMALL_PAGES_MAX: u64 = 64;

/// A sample counts one part in 2^2.
const SHIFT: u32 = 2;

/// What memory is registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The peer reads it, by a key.
    Readable,
    /// The peer writes it, by a key.
    Writable,
    /// This side's own writes and reads.
    Own,
}

impl Registration {
    /// How many there are.
    pub(super) const COUNT: usize = 3;
}

/// Registrations of about one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Point {
    /// How long they were on average, in pages, and how long they took, in nanoseconds; 0: none was seen.
    pages: u32,
    nanos: u32,
}

impl Point {
    fn follow(&mut self, pages: u64, nanos: u64) {
        let of = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).max(1);
        let (pages, nanos) = (of(pages), of(nanos));
        if self.pages == 0 {
            *self = Point { pages, nanos };
        } else {
            self.pages = step(self.pages.into(), pages.into()) as u32;
            self.nanos = step(self.nanos.into(), nanos.into()) as u32;
        }
    }
}

/// A part of the way from an average to a sample, and the sample once there is no part left.
pub(super) fn step(average: u64, sample: u64) -> u64 {
    let far = average.abs_diff(sample);
    let by = (far >> SHIFT).max(far.min(1));
    if sample > average { average + by } else { average - by }
}

/// What a rail's registrations were measured to cost: a part for each and a part for each page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistrationCost {
    small: Point,
    large: Point,
}

impl RegistrationCost {
    /// A registration of so many bytes took so long.
    pub(super) fn learn(&mut self, bytes: u64, took: Nanos) {
        let pages = bytes.div_ceil(PAGE_BYTES);
        let point = if pages <= SMALL_PAGES_MAX { &mut self.small } else { &mut self.large };
        point.follow(pages, took.0);
    }

    /// Whether any registration was seen.
    pub const fn is_known(&self) -> bool {
        self.small.pages > 0 || self.large.pages > 0
    }

    /// Estimated cost of a registration of `bytes`; zero without measurements. Where all measured ones had
    /// about the same size, it is the least value that fits them: exploration detects an estimate that is too
    /// low, but not one that is too high.
    pub fn time(&self, bytes: u64) -> Nanos {
        let pages = bytes.div_ceil(PAGE_BYTES);
        let (small, large) = (self.small, self.large);
        if small.pages == 0 || large.pages < small.pages.saturating_mul(2) {
            let seen = if small.pages == 0 { large } else { small };
            return Nanos(scale(seen.nanos.into(), pages.min(seen.pages.into()), u64::from(seen.pages).max(1)));
        }
        let (rise, run) = (large.nanos.saturating_sub(small.nanos), large.pages - small.pages);
        let away = scale(pages.abs_diff(small.pages.into()), rise.into(), run.into());
        let at_small = u64::from(small.nanos);
        Nanos(if pages > small.pages.into() { at_small.saturating_add(away) } else { at_small.saturating_sub(away) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: u64 = 3_000;
    const PAGE: u64 = 250;

    fn nanos(bytes: u64) -> Nanos {
        Nanos(FIXED + bytes.div_ceil(PAGE_BYTES) * PAGE)
    }

    /// P-15: a part for each registration, a part for each page.
    #[test]
    fn registrations_cost_a_part_each_and_a_part_for_each_page() {
        let mut cost = RegistrationCost::default();
        assert_eq!(cost.time(1 << 20), Nanos(0));
        for bytes in [16 << 10, 4 << 20, 64 << 10, 1 << 20, 16 << 20, 64 << 10] {
            cost.learn(bytes, nanos(bytes));
        }
        for bytes in [8u64 << 10, 256 << 10, 2 << 20, 64 << 20] {
            let (is, predicted) = (nanos(bytes).0, cost.time(bytes).0);
            assert!(predicted.abs_diff(is) * 50 < is, "{bytes} bytes: {predicted} for {is}");
        }
    }

    /// Of one size, it is exact for that size, and for others no more than it can be.
    #[test]
    fn cost_of_one_size_bounds_the_estimates_of_others() {
        let mut cost = RegistrationCost::default();
        cost.learn(1 << 20, nanos(1 << 20));
        assert_eq!(cost.time(1 << 20), nanos(1 << 20));
        assert!(cost.time(64 << 10) <= nanos(64 << 10));
        assert!(cost.time(16 << 20) <= nanos(16 << 20));
    }
}
