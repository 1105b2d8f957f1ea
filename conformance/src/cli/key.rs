//! The key that the two ends of a pair share. It is never an argument: those can be read by everyone on the
//! host.

use std::io::{Read, stdin};

use clap::Args;
use rerail_linux::bootstrap::pair::PairKey;

use crate::exit::Failure;

/// The variable of a key.
const VARIABLE: &str = "RERAIL_KEY";
/// More than any key has.
const BYTES_MAX: u64 = 4096;

/// Where the key is.
#[derive(Clone, Debug, Default, Args)]
pub struct KeyArgs {
    /// A file with the key that both sides share (64 hexadecimal digits); -: standard input. Without it, the
    /// variable RERAIL_KEY has the key.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<String>,
}

impl KeyArgs {
    /// The key; `None`: there is none.
    pub fn read(&self) -> Result<Option<PairKey>, Failure> {
        let (name, text) = match self.key_file.as_deref() {
            None => match std::env::var(VARIABLE) {
                Ok(text) => (VARIABLE, Ok(text)),
                Err(_) => return Ok(None),
            },
            Some("-") => ("standard input", text_of(stdin())),
            Some(path) => (path, std::fs::File::open(path).and_then(text_of)),
        };
        let text = text.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        PairKey::from_hex(&text).map(Some).map_err(|error| Failure::usage(format!("{name}: {error}")))
    }
}

fn text_of(source: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    source.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
