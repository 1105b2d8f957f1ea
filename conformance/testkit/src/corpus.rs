//! The committed inputs of the fuzz targets.

use std::fs;
use std::path::Path;

use crate::{handshake, names, wire};

/// Inputs with their file names.
pub type Seeds = Vec<(String, Vec<u8>)>;

/// The seeds that are generated, by their target.
pub fn generated() -> [(&'static str, Seeds); 3] {
    [("wire_parse", wire::seeds()), ("handshake", handshake::seeds()), ("names", names::seeds())]
}

/// The inputs of `target`, with their file names, in the order of these. Panics where there are none.
pub fn inputs(target: &str) -> Seeds {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("no corpus at {}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    let name = |file: &Path| file.file_name().expect("a file in a folder").to_string_lossy().into_owned();
    let inputs: Vec<_> = files.iter().map(|file| (name(file), fs::read(file).expect("a readable file"))).collect();
    assert!(!inputs.is_empty(), "empty corpus at {}", folder.display());
    inputs
}
