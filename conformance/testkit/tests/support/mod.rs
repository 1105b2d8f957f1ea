//! How properties are tested.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// Cases by `RERAIL_CASES`, a fixed seed unless `PROPTEST_RNG_SEED` names another.
pub fn proptest_config() -> ProptestConfig {
    let cases = std::env::var("RERAIL_CASES").map_or(2_000, |text| text.parse().expect("RERAIL_CASES is a number"));
    let mut config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(2004);
    }
    config
}
