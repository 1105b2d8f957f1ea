//! The code of the wire and its field maps agree: every field that an error may name is in `WIRE.md` or
//! `PROTOCOL.md`, as the third column of a field map or quoted in the text. The rules themselves are checked
//! by `conformance/tests/protocol.rs`.

use std::fs;
use std::path::Path;

#[test]
fn every_field_of_an_error_is_in_the_field_map() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let protocol = ["WIRE.md", "PROTOCOL.md"].map(|name| fs::read_to_string(folder.join(name)).expect(name)).concat();
    let mapped = |field: &str| protocol.lines().any(|line| line.split_whitespace().nth(2) == Some(field));
    for field in rerail_testkit::wire::FIELDS {
        let found = mapped(field) || protocol.contains(&format!("`{field}`"));
        assert!(found, "{field} is in neither document");
    }
}
