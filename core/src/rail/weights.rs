//! Weights of rails: integers that always sum to the same, cut messages in proportion, and follow the times
//! of stripes (multirail-2004, 4.5).
//!
//! Invariants: [`follow`] keeps the sum of the weights that it is given, to the unit, and leaves none below
//! [`WEIGHT_MIN`] that was not; stripes that all took the same time change nothing (the paper's third case).

/// What the weights of all rails of a channel sum to.
pub const WEIGHT_TOTAL: u32 = 1 << 16;

/// No weight falls below this: a rail without a part is not measured any more and would never come back.
pub const WEIGHT_MIN: u32 = WEIGHT_TOTAL / 256;

/// A complete stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StripeTime {
    /// The rail's weight when the message was cut.
    pub cut: u32,
    /// The rail's weight now.
    pub weight: u32,
    /// The time of the stripe, in nanoseconds.
    pub nanos: u64,
}

/// Shares `total` in proportion to `parts`: floors, and the rest by largest remainder, of equals the first.
/// All are 0 where `parts` are.
pub fn apportion(total: u32, parts: &[u128], shares: &mut [u32]) {
    let sum: u128 = parts.iter().sum();
    if sum == 0 {
        shares.fill(0);
        return;
    }
    let mut left = total;
    for (share, &part) in shares.iter_mut().zip(parts) {
        *share = (u128::from(total) * part / sum) as u32;
        left -= *share;
    }
    // Fewer than there are parts.
    let mut given = 0u64;
    for _ in 0..left {
        let rest = |index: usize| u128::from(total) * parts[index] % sum;
        let most = (0..parts.len()).filter(|&index| given >> index & 1 == 0).fold(None, |most, index| match most {
            Some(most) if rest(most) >= rest(index) => Some(most),
            _ => Some(index),
        });
        let Some(most) = most else { return };
        shares[most] += 1;
        given |= 1 << most;
    }
}

/// Equation 4: new weights of the rails that carried a message, from the times of its stripes. `alpha` in
/// parts of 256. Up to 64 stripes.
///
/// The bracket of equation 4 has the weights with which the message was cut: with several messages under way
/// the present ones are not those that the times belong to. A time of 0 counts as 1.
pub fn follow(stripes: &[StripeTime], alpha: u16, weights: &mut [u32]) {
    const SHIFT: u32 = 32;
    let total: u32 = stripes.iter().map(|stripe| stripe.weight).sum();
    let fastest = stripes.iter().map(|stripe| stripe.nanos.max(1)).min().unwrap_or(1);
    // Weight by time, relative to the shortest time: exact where all times are equal.
    let score = |stripe: &StripeTime| {
        u128::from(stripe.cut) * ((u128::from(fastest) << SHIFT) / u128::from(stripe.nanos.max(1)))
    };
    let sum: u128 = stripes.iter().map(score).sum();
    let (alpha, one) = (u128::from(alpha.min(256)), 256);
    let mut parts = [0u128; 64];
    let parts = &mut parts[..stripes.len().min(64)];
    for (part, stripe) in parts.iter_mut().zip(stripes) {
        *part = if sum == 0 {
            u128::from(stripe.weight)
        } else {
            (one - alpha) * u128::from(stripe.weight) * sum + alpha * u128::from(total) * score(stripe)
        };
    }
    apportion(total, parts, weights);
    // A weight below the minimum is raised at the cost of the largest.
    for index in 0..parts.len() {
        let floor = WEIGHT_MIN.min(stripes[index].weight);
        let missing = floor.saturating_sub(weights[index]);
        if missing > 0
            && let Some(largest) = (0..parts.len()).max_by_key(|&index| weights[index])
        {
            weights[index] += missing;
            weights[largest] -= missing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn stripes(weights: &[u32], nanos: &[u64]) -> Vec<StripeTime> {
        weights.iter().zip(nanos).map(|(&weight, &nanos)| StripeTime { cut: weight, weight, nanos }).collect()
    }

    fn after(weights: &[u32], nanos: &[u64], alpha: u16) -> Vec<u32> {
        let mut new = vec![0; weights.len()];
        follow(&stripes(weights, nanos), alpha, &mut new);
        new
    }

    /// P-7: from equal weights to those of rails with 4:1, in the number of messages that alpha makes.
    #[test]
    fn equation_4_converges() {
        for (alpha, messages) in [(256, 1), (192, 4), (128, 7), (90, 11)] {
            let mut weights = vec![WEIGHT_TOTAL / 2; 2];
            let slowest = |weights: &[u32]| weights[0].max(weights[1] * 4);
            let mut count = 0;
            while slowest(&weights) * 50 > WEIGHT_TOTAL * 4 / 5 * 51 {
                weights = after(&weights, &[u64::from(weights[0]), u64::from(weights[1]) * 4], alpha);
                count += 1;
            }
            assert!(count <= messages, "alpha {alpha}: {count} messages");
        }
    }

    /// P-7: the second case of late polling: of stripes that end at 1 and 4, the first one is noticed at 1, 2
    /// or 3. The weights get better, if not the best.
    #[test]
    fn some_times_are_overestimated() {
        let half = WEIGHT_TOTAL / 2;
        let mut before = u32::MAX;
        for (poll, share) in [(1, 0.8), (2, 2.0 / 3.0), (3, 4.0 / 7.0)] {
            let new = after(&[half; 2], &[poll, 4], 256);
            assert!((f64::from(new[0]) / f64::from(WEIGHT_TOTAL) - share).abs() < 1e-4, "{new:?}");
            assert!(new[0] > half && new[0] < before);
            before = new[0];
        }
    }

    /// P-7: a limit of the method. Where one of two nearly equal rails is noticed much too late, the weights
    /// get worse: the paper's "in no case worse" holds where one poll lies between the ends.
    #[test]
    fn a_poll_long_after_the_end_misleads() {
        let half = WEIGHT_TOTAL / 2;
        let new = after(&[half; 2], &[100, 1000], 128);
        assert!(new[0] > half * 5 / 4);
    }

    proptest! {
        /// P-7: the sum is constant, no weight vanishes, and equal times change nothing: one to 64 rails, any
        /// alpha (the third case of late polling).
        #[test]
        fn weights_sum_to_the_total(
            drawn in proptest::collection::vec((1u128..1 << 20, 1u64..1 << 40), 1..=64), alpha in 0u16..=256, same in 1u64..1 << 40,
        ) {
            let parts: Vec<_> = drawn.iter().map(|(part, _)| *part).collect();
            let mut weights = vec![0; parts.len()];
            apportion(WEIGHT_TOTAL, &parts, &mut weights);
            prop_assert_eq!(weights.iter().sum::<u32>(), WEIGHT_TOTAL);
            let times: Vec<_> = drawn.iter().map(|(_, time)| *time).collect();
            let new = after(&weights, &times, alpha);
            prop_assert_eq!(new.iter().sum::<u32>(), WEIGHT_TOTAL);
            prop_assert!(new.iter().zip(&weights).all(|(new, old)| *new >= WEIGHT_MIN.min(*old)));
            prop_assert_eq!(&after(&weights, &vec![same; weights.len()], alpha), &weights);
            prop_assert_eq!(after(&weights, &times, 0), weights);
        }

        /// P-7: a rail that took longer than another for the same weight has no larger one afterwards.
        #[test]
        fn slower_is_lighter(times in proptest::collection::vec(1u64..1 << 30, 2..=16), alpha in 0u16..=256) {
            let equal = WEIGHT_TOTAL / times.len() as u32;
            let new = after(&vec![equal; times.len()], &times, alpha);
            for a in 0..times.len() {
                for b in 0..times.len() {
                    prop_assert!(times[a] <= times[b] || new[a] <= new[b] + 1 || new[a] <= WEIGHT_MIN);
                }
            }
        }
    }
}
