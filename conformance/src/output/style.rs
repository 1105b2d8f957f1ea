//! Colour, on a terminal and without `NO_COLOR` only.

use std::io::IsTerminal;
use std::sync::OnceLock;

fn coloured() -> bool {
    static COLOURED: OnceLock<bool> = OnceLock::new();
    *COLOURED.get_or_init(|| std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none())
}

fn paint(code: &str, text: &str) -> String {
    if coloured() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// A heading.
pub fn bold(text: &str) -> String {
    paint("1", text)
}

/// Something beside the point.
pub fn dim(text: &str) -> String {
    paint("2", text)
}

/// Something that is well.
pub fn good(text: &str) -> String {
    paint("32", text)
}

/// Something that is wrong.
pub fn bad(text: &str) -> String {
    paint("1;31", text)
}
