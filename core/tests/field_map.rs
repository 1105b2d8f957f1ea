//! The code of the wire and its field map agree: every field that an error may name stands in `PROTOCOL.md`. The rules
//! themselves are checked by `conformance/tests/protocol.rs`.

use std::fs;
use std::path::Path;

#[test]
fn every_field_of_an_error_is_in_the_field_map() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/PROTOCOL.md");
    let protocol = fs::read_to_string(path).expect("PROTOCOL.md");
    for field in rerail_core::wire::harness::FIELDS {
        assert!(protocol.contains(&format!("`{field}`")), "{field} is not in PROTOCOL.md");
    }
}
