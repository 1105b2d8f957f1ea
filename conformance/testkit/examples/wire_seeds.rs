//! Writes the seeds of the fuzz target `wire_parse` into the folder named as argument, by default the
//! committed corpus.
//!
//! ```sh
//! cargo run -p rerail-testkit --example wire_seeds
//! ```

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/wire_parse");
    let folder = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| committed.into()));
    fs::create_dir_all(&folder)?;
    let seeds = rerail_testkit::wire::seeds();
    for (name, bytes) in &seeds {
        fs::write(folder.join(name), bytes)?;
    }
    println!("{} seeds in {}", seeds.len(), folder.display());
    Ok(())
}
