//! Replays the committed fuzz corpora through the bodies of the fuzz targets, so that each run checks a
//! fuzzer's findings without a fuzzer.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use rerail_testkit::{corpus, endpoint, handshake, names, seq, shm, tag, wire};

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

/// H-1 to H-6
#[test]
fn handshakes() {
    replay("handshake", 40, handshake::run);
}

/// V-2, V-3
#[test]
fn address_name_and_setup_message_corpus_is_accepted() {
    replay("names", 12, names::parse_any);
}

/// The committed seeds are what the generator writes today (after a change of the format: run the example
/// `wire_seeds`).
#[test]
fn the_seeds_are_up_to_date() {
    for (target, seeds) in corpus::generated() {
        let committed = corpus::inputs(target);
        for (name, bytes) in seeds {
            let found = committed.iter().find(|(file, _)| *file == name);
            let (_, found) = found.unwrap_or_else(|| panic!("{target}: seed {name} is not committed"));
            assert_eq!(*found, bytes, "{target}: {name}");
        }
    }
}

proptest! {
    #[test]
    fn any_handshake_ends_as_it_should(data in vec(any::<u8>(), 0..200)) {
        handshake::run(&data);
    }

    #[test]
    fn any_bytes_are_refused_or_mean_themselves(data in vec(any::<u8>(), 0..240)) {
        names::parse_any(&data);
    }

    /// Good ones with one byte changed.
    #[test]
    fn nearly_good_bytes_are_refused_or_mean_themselves(seed in any::<Index>(), at in any::<Index>(), to: u8) {
        let mut seeds = names::seeds();
        let (_, bytes) = &mut seeds[seed.index(names::seeds().len())];
        let at = at.index(bytes.len());
        bytes[at] = to;
        names::parse_any(bytes);
    }
}
