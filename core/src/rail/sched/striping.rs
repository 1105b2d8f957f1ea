//! Striping: how a large message is cut (multirail-2004, 4.4). Every way of cutting fills `stripes[rail]`,
//! which are empty before, for rails of a mask with at least one bit; stripes follow each other in the order
//! of their rails, cover the message, and begin at multiples of 64 bytes.

use super::{CUT_ALIGN, STRIPE_BYTES_MIN, Stripe};
use crate::rail::rails_of;

/// Least share: a rail with less in proportion to weights carries nothing.
const SHARE_BYTES_MIN: u64 = 4 * 1024;

/// Equal parts, none below [`STRIPE_BYTES_MIN`], on the first rails of the mask.
pub fn even(bytes: u64, up: u64, stripes: &mut [Stripe]) {
    let parts = u64::from(up.count_ones()).min(bytes / STRIPE_BYTES_MIN).max(1);
    let first = rails(up).take(parts as usize).fold(0, |mask, rail| mask | 1 << rail);
    cut(bytes, first, |_| 1, stripes);
}

/// Parts in proportion to `weights`, which are read for rails of the mask. Rails of weight 0 get nothing, and
/// those that would get less than 4 KiB neither; where all weights are 0, all count as one.
pub fn weighted(bytes: u64, up: u64, weights: &[u32], stripes: &mut [Stripe]) {
    let weight = |rail: usize| u64::from(weights.get(rail).copied().unwrap_or(0));
    let mut mask = rails(up).filter(|&rail| weight(rail) > 0).fold(0u64, |mask, rail| mask | 1 << rail);
    if mask == 0 {
        return even(bytes, up, stripes);
    }
    // The lightest first: what it would have had, the others share.
    loop {
        let sum: u64 = rails(mask).map(weight).sum();
        let Some(lightest) = rails(mask).min_by_key(|&rail| weight(rail)) else { return };
        let share = u128::from(bytes) * u128::from(weight(lightest)) / u128::from(sum.max(1));
        if share >= u128::from(SHARE_BYTES_MIN) || mask.count_ones() == 1 {
            return cut(bytes, mask, weight, stripes);
        }
        mask &= !(1 << lightest);
    }
}

/// Parts in proportion to `weight`, which is not 0 for any rail of the mask.
pub(super) fn cut(bytes: u64, mask: u64, weight: impl Fn(usize) -> u64, stripes: &mut [Stripe]) {
    let sum: u64 = rails(mask).map(&weight).sum();
    let (mut start, mut before) = (0, 0);
    for rail in rails(mask) {
        before += weight(rail);
        let end = if before == sum {
            bytes
        } else {
            // 128 bits: bytes may be as large as the address space.
            (u128::from(bytes) * u128::from(before) / u128::from(sum)) as u64 / CUT_ALIGN * CUT_ALIGN
        };
        stripes[rail] = Stripe { next: start, end };
        start = end;
    }
}

/// The places in `stripes` that a mask names.
fn rails(mask: u64) -> impl Iterator<Item = usize> {
    rails_of(mask).map(|rail| rail.index())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn used(stripes: &[Stripe]) -> Vec<(usize, u64, u64)> {
        let used = stripes.iter().enumerate().filter(|(_, stripe)| stripe.end > stripe.next);
        used.map(|(rail, stripe)| (rail, stripe.next, stripe.end)).collect()
    }

    fn covers(stripes: &[Stripe], bytes: u64, up: u64) -> Result<(), TestCaseError> {
        let mut at = 0;
        for (rail, start, end) in used(stripes) {
            prop_assert_eq!(up >> rail & 1, 1);
            prop_assert_eq!(start, at);
            prop_assert_eq!(start % CUT_ALIGN, 0);
            at = end;
        }
        prop_assert_eq!(at, bytes);
        Ok(())
    }

    proptest! {
        /// P-5: equal stripes cover the message once, on rails that are up, in parts that differ by less than
        /// a cut's alignment.
        #[test]
        fn even_stripes_partition_the_message(bytes in 0u64..1 << 40, up in 1u64..) {
            let mut stripes = vec![Stripe::default(); 64];
            even(bytes, up, &mut stripes);
            covers(&stripes, bytes, up)?;
            let lens: Vec<_> = used(&stripes).iter().map(|(_, start, end)| end - start).collect();
            if lens.len() > 1 {
                prop_assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 2 * CUT_ALIGN + 64);
                prop_assert!(*lens.iter().min().unwrap() + 2 * CUT_ALIGN >= STRIPE_BYTES_MIN);
            }
        }

        /// P-5: weighted stripes cover the message once, and are to each other as the weights.
        #[test]
        fn weighted_stripes_are_in_proportion(
            bytes in 0u64..1 << 40, up in 1u64.., weights in proptest::collection::vec(0u32..1 << 16, 64),
        ) {
            let mut stripes = vec![Stripe::default(); 64];
            weighted(bytes, up, &weights, &mut stripes);
            covers(&stripes, bytes, up)?;
            let used = used(&stripes);
            let sum: u64 = used.iter().map(|&(rail, ..)| u64::from(weights[rail])).sum();
            if sum > 0 {
                for &(rail, start, end) in &used {
                    let share = u128::from(bytes) * u128::from(weights[rail]) / u128::from(sum);
                    prop_assert!(u128::from(end - start).abs_diff(share) <= 2 * u128::from(CUT_ALIGN));
                }
            }
        }
    }
}
