//! Replays the committed fuzz corpora through the bodies of the fuzz targets, so that what a fuzzer once
//! found is checked on every run, without a fuzzer.

use std::fs;
use std::path::PathBuf;

/// A fuzz target: its name, which is its corpus's folder too, and its body.
type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("wire_parse", rerail_core::wire::harness::parse_any),
    ("endpoint_feed", rerail_core::endpoint::harness::run),
    ("short_arrival", rerail_core::endpoint::harness::run_shorts),
];

/// The committed inputs of `target`, with their file names, in the order of these.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus")).join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("no corpus at {}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "empty corpus at {}", folder.display());
    let name = |file: &PathBuf| file.file_name().expect("a file in a folder").to_string_lossy().into_owned();
    files.iter().map(|file| (name(file), fs::read(file).expect("a readable file"))).collect()
}

#[test]
fn every_corpus_replays() {
    for (target, body) in TARGETS {
        let inputs = corpus(target);
        for (name, bytes) in &inputs {
            println!("{target}/{name}: {} bytes", bytes.len());
            body(bytes);
        }
        println!("{target}: {} inputs", inputs.len());
    }
}

/// The committed seeds are what the generator writes today (after a change of the format: run the example
/// `wire_seeds`).
#[test]
fn the_wire_seeds_are_up_to_date() {
    let committed = corpus("wire_parse");
    for (name, bytes) in rerail_core::wire::harness::seeds() {
        let found = committed.iter().find(|(file, _)| *file == name);
        let (_, found) = found.unwrap_or_else(|| panic!("seed {name} is not committed"));
        assert_eq!(*found, bytes, "{name}");
    }
}
