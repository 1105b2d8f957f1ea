//! What people and programs get to see: tables, units, progress, JSON, colour on terminals only.

mod progress;
pub mod stats;
mod style;
mod table;
mod units;

pub use progress::Progress;
pub use style::{bad, bold, dim, good};
pub use table::{Align, Table};
pub use units::{bytes, microseconds, parse_bytes, rate};

use crate::exit::Failure;

/// Prints `value` as one JSON document on standard output.
pub fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::usage(format!("JSON output: {error}")))?;
    write_stdout(&text)
}

/// Prints `value` as one line of JSON on standard output.
pub fn json_line(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::usage(format!("JSON output: {error}")))?;
    write_stdout(&text)
}

/// Prints a text and a newline on standard output. A reader that went away (`rerail info | head`) is no failure.
pub fn write_stdout(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::usage(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
