//! Simulations that once failed, of the core or of the checkers, replayed:
//! `conformance/scenarios/regressions/`, one file each, with its story in front. Faults stand in them one by
//! one, because what seeds draw changes as the drawing does.

use std::collections::BTreeSet;

use rerail_sim::scenario::Scenario;
use rerail_sim::soak::run;
use rerail_sim::trace::Trace;

/// A file and the seed that it failed with. That it fails again without the fix is checked by a mutant where
/// there is one (`conformance/mutants`); where there is none, the file names what was taken out of the code
/// once to see it.
struct Regression {
    file: &'static str,
    seed: u64,
}

const REGRESSIONS: &[Regression] = &[
    Regression { file: "resume-after-fin.toml", seed: 24 },
    Regression { file: "two-claims-look-alike.toml", seed: 31042 },
    // F-11
    Regression { file: "a-frame-that-never-completes.toml", seed: 53429 },
    // V-13
    Regression { file: "both-behind-a-port-that-moves.toml", seed: 2902 },
    Regression { file: "registrations-of-a-device-before.toml", seed: 2 },
    Regression { file: "queue-pairs-of-a-connection-before.toml", seed: 3677 },
    Regression { file: "receives-of-a-lost-peer.toml", seed: 1322 },
];

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/regressions");

fn cluster(regression: &Regression) -> Scenario {
    let text = std::fs::read_to_string(format!("{FOLDER}/{}", regression.file)).expect("a file of this repository");
    Scenario::parse(regression.file, &text).expect("a scenario of this repository")
}

#[test]
fn regression_scenarios_are_clean() {
    for regression in REGRESSIONS {
        let (verdict, ..) = run(&cluster(regression), regression.seed, Trace::off());
        assert!(verdict.is_good(), "{}: {verdict}", regression.file);
    }
}

#[test]
fn every_file_is_replayed() {
    let files = std::fs::read_dir(FOLDER).expect("a folder of this repository");
    let names: BTreeSet<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, REGRESSIONS.iter().map(|regression| regression.file.to_owned()).collect());
}
