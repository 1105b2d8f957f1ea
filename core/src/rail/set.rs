//! A set of rails.

use super::rails_of;
use crate::ids::RailId;

/// A set of rails of an endpoint, which has at most 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RailSet(pub u64);

impl RailSet {
    /// No rail.
    pub(crate) const EMPTY: RailSet = RailSet(0);

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn contains(self, rail: RailId) -> bool {
        self.0 >> rail.0 & 1 == 1
    }

    pub(crate) const fn insert(&mut self, rail: RailId) {
        self.0 |= 1 << rail.0;
    }

    pub(crate) const fn remove(&mut self, rail: RailId) {
        self.0 &= !(1 << rail.0);
    }

    /// Removes a rail; returns whether it was in the set.
    pub(crate) const fn take(&mut self, rail: RailId) -> bool {
        let was_in = self.contains(rail);
        self.remove(rail);
        was_in
    }

    /// One rail.
    pub(crate) const fn of(rail: RailId) -> RailSet {
        RailSet(1 << rail.0)
    }

    /// The rails that are in both.
    pub(crate) const fn both(self, other: RailSet) -> RailSet {
        RailSet(self.0 & other.0)
    }

    /// The rails of either.
    pub(crate) const fn with(self, other: RailSet) -> RailSet {
        RailSet(self.0 | other.0)
    }

    /// The rails that the other has not.
    pub(crate) const fn without(self, other: RailSet) -> RailSet {
        RailSet(self.0 & !other.0)
    }

    /// In rising order.
    pub(crate) fn iter(self) -> impl Iterator<Item = RailId> {
        rails_of(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Beside the obvious: a set of numbers.
    #[test]
    fn it_is_a_set() {
        let (mut set, mut oracle) = (RailSet::EMPTY, BTreeSet::new());
        let mut draw = 1u64;
        for _ in 0..10_000 {
            draw = draw.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let rail = RailId((draw >> 32) as u8 % 64);
            match draw >> 60 & 3 {
                0 | 1 => {
                    set.insert(rail);
                    oracle.insert(rail.0);
                }
                2 => {
                    set.remove(rail);
                    oracle.remove(&rail.0);
                }
                _ => assert_eq!(set.take(rail), oracle.remove(&rail.0)),
            }
            assert_eq!((set.contains(rail), set.is_empty()), (oracle.contains(&rail.0), oracle.is_empty()));
        }
        assert!(set.iter().map(|rail| rail.0).eq(oracle));
        let (low, high) = (RailSet(0x0f), RailSet(0x3c));
        assert_eq!((low.with(high), low.without(high)), (RailSet(0x3f), RailSet(0x03)));
        assert_eq!((low.both(high), RailSet::of(RailId(2)).both(high)), (RailSet(0x0c), RailSet(0x04)));
    }
}
