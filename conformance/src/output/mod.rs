//! What people and programs get to see: tables, units, progress, JSON, colour on terminals only.

mod progress;
pub mod stats;
mod style;
mod table;
mod units;

pub use progress::Progress;
pub use style::{COLOUR, bad, bold, dim, good};
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

/// Describes for people why a text is not JSON of a known kind.
pub fn json_fault(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        Category::Eof if (line, column) == (1, 0) => "it is empty".to_owned(),
        Category::Eof => format!("it is cut off (line {line}, column {column})"),
        Category::Syntax => format!("it is not JSON (line {line}, column {column})"),
        Category::Data | Category::Io => format!("it is JSON of another kind (line {line}, column {column})"),
    }
}

/// Prints a text and a newline on standard output. A reader that went away (`rerail info | head`) is no
/// failure.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_error_is_described_without_parser_text() {
        let printed = |text: &str| json_fault(&serde_json::from_str::<Vec<u32>>(text).unwrap_err());
        assert_eq!(printed(""), "it is empty");
        assert_eq!(printed("[1,"), "it is cut off (line 1, column 3)");
        assert_eq!(printed("path  messages"), "it is not JSON (line 1, column 1)");
        assert_eq!(printed("{}"), "it is JSON of another kind (line 1, column 0)");
    }
}
