//! Serial numbers of 32 bits: they wrap, so "before" is a matter of distance (RFC 1982; rule S-2).
//!
//! Invariant that the users keep: numbers that are compared lie less than 2^31 apart. The windows of this
//! module keep them within [`WINDOW_MAX`](super::WINDOW_MAX); a number from a peer may lie anywhere, and each
//! comparison here has a defined answer for it.

/// Numbers that differ by less than this have an order.
const HALF: u32 = 1 << 31;

/// A packet's sequence number (PSN), or the one expected next (ESN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// The number after this one; 0 follows `u32::MAX`.
    #[must_use]
    pub const fn next(self) -> Seq {
        self.add(1)
    }

    /// The number `count` after this one.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "const, and `+` would hide that it wraps")]
    pub const fn add(self, count: u32) -> Seq {
        Seq(self.0.wrapping_add(count))
    }

    /// The number `count` before this one.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "const, and `-` would hide that it wraps")]
    pub const fn sub(self, count: u32) -> Seq {
        Seq(self.0.wrapping_sub(count))
    }

    /// How many steps lead from `base` to this number, going up.
    pub const fn distance_from(self, base: Seq) -> u32 {
        self.0.wrapping_sub(base.0)
    }

    /// Whether this number comes before `other`: fewer than 2^31 steps lead up from it. At exactly 2^31 steps
    /// neither number is before the other.
    pub const fn is_before(self, other: Seq) -> bool {
        let ahead = other.distance_from(self);
        ahead > 0 && ahead < HALF
    }

    /// Whether this number comes after `other`.
    pub const fn is_after(self, other: Seq) -> bool {
        other.is_before(self)
    }

    /// The low 16 bits: how limits travel.
    pub const fn low16(self) -> u16 {
        self.0 as u16
    }

    /// The least number at or after `base` with `low` as its low 16 bits. This is the original number if that
    /// lies fewer than 2^16 steps after `base`.
    #[must_use]
    pub const fn extend16(base: Seq, low: u16) -> Seq {
        base.add(low.wrapping_sub(base.low16()) as u32)
    }

    /// As [`extend16`](Self::extend16) for a number that may also be out of date: `None` where `low` lies
    /// behind `base`, that is 2^15 steps or more ahead. Right where the original number lies within 2^15
    /// steps of `base` on either side.
    pub const fn advance16(base: Seq, low: u16) -> Option<Seq> {
        let ahead = low.wrapping_sub(base.low16());
        if ahead < 1 << 15 { Some(base.add(ahead as u32)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-2
    #[test]
    fn order_survives_the_wrap() {
        let last = Seq(u32::MAX);
        assert_eq!(last.next(), Seq(0));
        assert_eq!(Seq(0).sub(1), last);
        assert_eq!(Seq(4).distance_from(last), 5);
        assert!(last.is_before(Seq(0)) && Seq(0).is_after(last));
        assert!(!Seq(0).is_before(last) && !last.is_after(Seq(0)));
        assert!(!last.is_before(last));
    }

    #[test]
    fn serial_numbers_half_the_range_apart_are_unordered() {
        let (a, b) = (Seq(7), Seq(7 + HALF));
        assert!(!a.is_before(b) && !b.is_before(a));
        assert!(a.is_before(Seq(b.0 - 1)) && Seq(b.0 + 1).is_before(a));
    }

    /// C-6
    #[test]
    fn sixteen_bit_numbers_extend_correctly_near_the_base() {
        for base in [0, 1, 0x7fff, 0x8000, 0xffff, 0x1_0000, u32::MAX - 3, u32::MAX].map(Seq) {
            for ahead in [0, 1, 2, 16_384, 32_767] {
                let meant = base.add(ahead);
                assert_eq!(Seq::extend16(base, meant.low16()), meant);
                assert_eq!(Seq::advance16(base, meant.low16()), Some(meant));
            }
            for behind in [1, 2, 16_384, 32_768] {
                assert_eq!(Seq::advance16(base, base.sub(behind).low16()), None, "{behind} behind {base:?}");
            }
            assert_eq!(Seq::extend16(base, base.add(65_535).low16()), base.add(65_535));
        }
    }
}
