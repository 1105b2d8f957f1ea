//! Latency samples and their summary.

use serde::{Deserialize, Serialize};

/// A summary of samples in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How many samples.
    pub samples: u64,
    /// The mean.
    pub average_ns: u64,
    /// Half of the samples are at most this.
    pub median_ns: u64,
    /// 99 in 100 samples are at most this.
    pub p99_ns: u64,
    /// 999 in 1,000 samples are at most this.
    pub p999_ns: u64,
}

impl Latency {
    /// Summarises `samples_ns` and changes their order; `None` where there are none.
    pub fn of(samples_ns: &mut [u64]) -> Option<Latency> {
        samples_ns.sort_unstable();
        let count = samples_ns.len() as u64;
        if count == 0 {
            return None;
        }
        let total: u128 = samples_ns.iter().map(|&ns| u128::from(ns)).sum();
        let average_ns = (total / u128::from(count)) as u64;
        Some(Latency {
            samples: count,
            average_ns,
            median_ns: quantile(samples_ns, 500),
            p99_ns: quantile(samples_ns, 990),
            p999_ns: quantile(samples_ns, 999),
        })
    }
}

/// The least sample that `per_mille` in 1,000 samples don't exceed (the nearest-rank method); `sorted` is not
/// empty.
fn quantile(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted[rank - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_percentiles_use_the_nearest_rank() {
        let mut samples: Vec<u64> = (1..=100).rev().collect();
        let latency = Latency::of(&mut samples).unwrap();
        assert_eq!(latency, Latency { samples: 100, average_ns: 50, median_ns: 50, p99_ns: 99, p999_ns: 100 });
    }

    #[test]
    fn one_sample_is_every_quantile_and_none_is_nothing() {
        assert_eq!(
            Latency::of(&mut [7]),
            Some(Latency { samples: 1, average_ns: 7, median_ns: 7, p99_ns: 7, p999_ns: 7 })
        );
        assert_eq!(Latency::of(&mut []), None);
    }
}
