//! Colour, on a terminal and without `NO_COLOR` only; ranks get the setting from their launcher, as their
//! output goes to its standard output.

use std::io::IsTerminal;
use std::sync::OnceLock;

/// Set by a launcher on a terminal for its ranks.
pub const COLOUR: &str = "RERAIL_LAUNCHER_COLOUR";

fn coloured() -> bool {
    static COLOURED: OnceLock<bool> = OnceLock::new();
    let is_set = |name| std::env::var_os(name).is_some();
    *COLOURED.get_or_init(|| (std::io::stdout().is_terminal() || is_set(COLOUR)) && !is_set("NO_COLOR"))
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
