//! World after world, each drawn from its seed whole: hosts, devices, rails, tables, traffic and faults. What fails is made
//! smaller and told with the command that replays it.
//!
//! The habit is that of single-seed simulation (TigerBeetle's VOPR): break, heal, then demand that everything ends well.

mod draw;
mod liar;
mod shrink;

use std::fmt;
use std::str::FromStr;

use rerail_core::time::Time;

use crate::check::{Crash, Verdict};
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::workload::{Measured, run_checked};
use crate::world::Report;
use crate::world::fault::{KINDS, Kind};

pub use draw::world_of;
pub use shrink::shrink;

/// Which faults worlds are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Menu {
    /// None.
    Calm,
    /// Those that lose nothing that retries don't bring back.
    Lossless,
    /// All that menus have ([`Kind::is_in_menus`]).
    All,
    /// These.
    Only(Vec<Kind>),
}

impl Menu {
    /// The kinds of it.
    pub fn kinds(&self) -> Vec<Kind> {
        match self {
            Menu::Calm => Vec::new(),
            Menu::Lossless => KINDS.into_iter().filter(|kind| kind.is_in_menus() && !kind.needs_recovery()).collect(),
            Menu::All => KINDS.into_iter().filter(|kind| kind.is_in_menus()).collect(),
            Menu::Only(kinds) => kinds.clone(),
        }
    }
}

/// A word that names no fault and no set of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MenuError {
    /// The word.
    pub word: String,
}

impl fmt::Display for MenuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is no kind of fault: none, lossless, all, or of these, separated by commas:", self.word)?;
        KINDS.iter().try_for_each(|kind| write!(f, " {}", kind.word()))
    }
}

impl std::error::Error for MenuError {}

impl FromStr for Menu {
    type Err = MenuError;

    fn from_str(text: &str) -> Result<Self, MenuError> {
        let kind = |word: &str| {
            KINDS.into_iter().find(|kind| kind.word() == word).ok_or_else(|| MenuError { word: word.to_owned() })
        };
        match text {
            "none" => Ok(Menu::Calm),
            "lossless" => Ok(Menu::Lossless),
            "all" => Ok(Menu::All),
            list => list.split(',').map(|word| kind(word.trim())).collect::<Result<_, _>>().map(Menu::Only),
        }
    }
}

impl fmt::Display for Menu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Menu::Calm => f.write_str("none"),
            Menu::Lossless => f.write_str("lossless"),
            Menu::All => f.write_str("all"),
            Menu::Only(kinds) => {
                let words: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
                f.write_str(&words.join(","))
            }
        }
    }
}

/// Runs one world; a panic in it is a [`Verdict::Crash`].
pub fn run(scenario: &Scenario, seed: u64, trace: Trace) -> (Verdict, Report, Vec<Measured>) {
    caught(|| run_checked(scenario, seed, trace))
}

fn caught(run: impl FnOnce() -> (Verdict, Report, Vec<Measured>)) -> (Verdict, Report, Vec<Measured>) {
    let run = std::panic::AssertUnwindSafe(run);
    match std::panic::catch_unwind(run) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let message = panic_message(&*panic);
            (Verdict::Crash(Crash { rank: None, at: Time(0), message }), Report::default(), Vec::new())
        }
    }
}

/// What a panic said.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}
