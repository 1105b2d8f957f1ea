//! The sequencing structures beside their oracles, and their size.

use super::*;
use core::mem::size_of;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::path::Path;
use std::vec::Vec;

/// Cases by `RERAIL_CASES`, a fixed seed unless `PROPTEST_RNG_SEED` names another.
fn config() -> ProptestConfig {
    let cases = std::env::var("RERAIL_CASES").map_or(2_000, |text| text.parse().expect("RERAIL_CASES is a number"));
    let mut config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(2004);
    }
    config
}

proptest! {
    #![proptest_config(config())]

    /// S-4 to S-8, A-6, A-7
    #[test]
    fn structures_do_what_their_oracles_do(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        harness::run(&data);
    }
}

#[test]
fn the_corpus_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/reorder");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 20, "{} corpus files", files.len());
    for file in files {
        harness::run(&std::fs::read(file).unwrap());
    }
}

#[test]
fn a_connected_peer_costs_what_it_is_said_to() {
    assert_eq!(size_of::<RecvWindow>(), 4);
    assert_eq!(size_of::<Reorder>(), 8);
    assert_eq!(size_of::<SentWindow>(), 12);
    assert_eq!(RecvWindow::words(256) * size_of::<u64>(), 64);
}

#[test]
fn windows_are_powers_of_two_within_bounds() {
    let valid: Vec<u32> = (0..=70_000).filter(|&window| window_is_valid(window)).collect();
    assert_eq!(valid, [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768]);
}
