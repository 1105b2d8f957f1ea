//! Replays the committed fuzz corpora through the bodies of the fuzz targets, so that what a fuzzer once
//! found is checked on every run, without a fuzzer.

use rerail_testkit::{corpus, seq, shm, tag};

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
