//! Writes the seeds of the fuzz targets that have generated ones into the folder named as argument, by
//! default the committed corpora.
//!
//! ```sh
//! cargo run -p rerail-testkit --example wire_seeds
//! ```

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
    let corpora = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| committed.into()));
    for (target, seeds) in rerail_testkit::corpus::generated() {
        let folder = corpora.join(target);
        fs::create_dir_all(&folder)?;
        for (name, bytes) in &seeds {
            fs::write(folder.join(name), bytes)?;
        }
        println!("{} seeds in {}", seeds.len(), folder.display());
    }
    Ok(())
}
