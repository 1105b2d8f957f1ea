//! Bandwidth as a fixed-point number, and the two conversions that everything else is made of.
//!
//! The unit is fine enough for a rail of 1 Mbit/s (2,097 units) and reaches 2 Tbit/s in 32 bits. Both
//! conversions do without a 128-bit division for messages below 1 TiB, and saturate above what 64 bits hold.

/// Bytes per 2^24 ns (about 16.8 ms); one unit is 59.6 bytes per second, the largest about 256 GB/s. Zero:
/// not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u32);

/// Nanoseconds in the unit of [`Rate`], as a shift.
const SHIFT: u32 = 24;

impl Rate {
    /// Unknown, or no limit: the field that holds it defines which.
    pub const NONE: Rate = Rate(0);

    /// From bytes per second, rounded down; at least one unit for what isn't zero, and at most the largest.
    pub const fn from_bytes_per_second(bytes_per_second: u64) -> Rate {
        let units = ((bytes_per_second as u128) << SHIFT) / 1_000_000_000;
        match units {
            0 if bytes_per_second > 0 => Rate(1),
            _ if units > u32::MAX as u128 => Rate(u32::MAX),
            _ => Rate(units as u32),
        }
    }

    /// In bytes per second, rounded down.
    pub const fn bytes_per_second(self) -> u64 {
        (self.0 as u64 * 1_000_000_000) >> SHIFT
    }

    /// What `bytes` in `ns` amount to: at least one unit (so that nothing measured ever reads as "not
    /// known"), at most the largest.
    pub fn of(bytes: u64, ns: u64) -> Rate {
        Rate(divide(u128::from(bytes) << SHIFT, ns.max(1)).clamp(1, u32::MAX.into()) as u32)
    }

    /// The time that `bytes` take, in ns, rounded up; the end of time for no rate at all.
    pub fn time_ns(self, bytes: u64) -> u64 {
        time_ns(self.0.into(), bytes)
    }

    /// The bytes that pass within `ns`, rounded down.
    pub fn bytes_in(self, ns: u64) -> u64 {
        bytes_in(self.0.into(), ns)
    }
}

/// [`Rate::time_ns`] for sums of rates, which may be more than one [`Rate`] holds.
pub(crate) fn time_ns(rate: u64, bytes: u64) -> u64 {
    match rate {
        0 if bytes > 0 => u64::MAX,
        _ => divide((u128::from(bytes) << SHIFT) + u128::from(rate.saturating_sub(1)), rate.max(1)),
    }
}

/// [`Rate::bytes_in`] for sums of rates.
pub(crate) fn bytes_in(rate: u64, ns: u64) -> u64 {
    let scaled = (u128::from(rate) * u128::from(ns)) >> SHIFT;
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// `a * b / c`, rounded down, saturating; `c` of zero counts as one.
pub(crate) fn scale(a: u64, b: u64, c: u64) -> u64 {
    divide(u128::from(a) * u128::from(b), c.max(1))
}

/// The moment, in ns, at which rails that start at `start_i` with `rate_i` have moved `bytes` together:
/// `(bytes + sum rate_i start_i) / sum rate_i`, rounded up.
pub(crate) fn meeting_ns(bytes: u64, rates: u64, rate_starts: u128) -> u64 {
    let work = (u128::from(bytes) << SHIFT).saturating_add(rate_starts);
    divide(work.saturating_add(u128::from(rates.saturating_sub(1))), rates.max(1))
}

/// A 128-bit number divided by one of 64 bits, saturating. Nearly all fit 64 bits, where the division is one
/// instruction.
fn divide(a: u128, b: u64) -> u64 {
    match u64::try_from(a) {
        Ok(a) => a / b,
        Err(_) => u64::try_from(a / u128::from(b)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each conversion is the other's inverse to within one byte and the rounding of one unit.
        #[test]
        fn time_and_bytes_invert_each_other(rate in 1u32.., bytes in 0u64..1 << 50) {
            let ns = Rate(rate).time_ns(bytes);
            prop_assert!(Rate(rate).bytes_in(ns) >= bytes);
            prop_assert!(ns == 0 || Rate(rate).bytes_in(ns - 1) < bytes);
        }

        /// Bytes per second survive to within one unit.
        #[test]
        fn bytes_per_second_survive(bytes_per_second in 60u64..256_000_000_000) {
            let back = Rate::from_bytes_per_second(bytes_per_second).bytes_per_second();
            prop_assert!(back <= bytes_per_second && bytes_per_second - back <= 60);
        }
    }

    #[test]
    fn extremes_saturate() {
        assert_eq!(Rate::from_bytes_per_second(1), Rate(1));
        assert_eq!(Rate::from_bytes_per_second(u64::MAX), Rate(u32::MAX));
        assert_eq!(Rate::NONE.time_ns(1), u64::MAX);
        assert_eq!(Rate::NONE.time_ns(0), 0);
        assert_eq!(Rate::of(0, 0), Rate(1));
        assert_eq!(Rate::of(u64::MAX, 1), Rate(u32::MAX));
        assert_eq!(bytes_in(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(meeting_ns(u64::MAX, 1, u128::MAX), u64::MAX);
    }
}
