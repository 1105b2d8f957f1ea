//! Time as an argument: the core never reads a clock.

use core::ops::{Add, Sub};

/// A point in time, in nanoseconds since an origin that the caller chooses (it must not jump back).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Time(pub u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Nanos(pub u64);

impl Nanos {
    /// So many microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Nanos(us.saturating_mul(1_000))
    }

    /// So many milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Nanos(ms.saturating_mul(1_000_000))
    }
}

impl Add<Nanos> for Time {
    type Output = Time;
    /// Saturates at the end of time, so that "for ever" is a legal span.
    fn add(self, span: Nanos) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub for Time {
    type Output = Nanos;
    /// The span since `earlier`; zero where the caller's clock stood still or jumped back.
    fn sub(self, earlier: Time) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}
