//! Replays the committed fuzz corpora through the bodies of the fuzz targets, so that each run checks a
//! fuzzer's findings without a fuzzer.

use rerail_testkit::{corpus, endpoint, seq, shm, tag, wire};

/// At least `inputs_min` inputs, and `body` for each.
fn replay(target: &str, inputs_min: usize, body: fn(&[u8])) {
    let inputs = corpus::inputs(target);
    assert!(inputs.len() >= inputs_min, "{target}: {} inputs", inputs.len());
    for (name, bytes) in &inputs {
        println!("{target}/{name}: {} bytes", bytes.len());
        body(bytes);
    }
}

#[test]
fn wire_parse() {
    replay("wire_parse", 40, wire::parse_any);
}

#[test]
fn reorder() {
    replay("reorder", 20, seq::run);
}

#[test]
fn tag_matching() {
    replay("tag", 8, tag::run);
}

#[test]
fn ring_consumer() {
    replay("ring_consumer", 20, shm::run);
}

#[test]
fn endpoint_feed() {
    replay("endpoint_feed", 60, endpoint::run);
}

#[test]
fn short_arrival() {
    replay("short_arrival", 40, endpoint::run_shorts);
}

/// The committed seeds are what the generator writes today (after a change of the format: run the example
/// `wire_seeds`).
#[test]
fn the_wire_seeds_are_up_to_date() {
    let committed = corpus::inputs("wire_parse");
    for (name, bytes) in wire::seeds() {
        let found = committed.iter().find(|(file, _)| *file == name);
        let (_, found) = found.unwrap_or_else(|| panic!("seed {name} is not committed"));
        assert_eq!(*found, bytes, "{name}");
    }
}
