//! Mutation runs: many mutants of the core in one build, switched at run time, and whether tests and
//! simulations find them. `conformance/TESTING.md` describes the purpose and the results.
//!
//! | module | holds |
//! |---|---|
//! | `mutant` | what a mutant is |
//! | `generate`, `operators` | mutants of every line of a file |
//! | `patches` | mutants written by hand |
//! | `weave` | all of them in one text, with switches |
//! | `tree`, `compile` | a copy of the project, built once |
//! | `process`, `judge` | tests and simulations with one mutant on |
//! | `simulate` | what the built program does: simulations |
//! | `equivalent`, `report` | what a run came to |

mod compile;
mod equivalent;
mod generate;
mod judge;
mod mutant;
mod operators;
mod patches;
mod process;
mod report;
mod run;
mod simulate;
mod tree;
mod weave;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Mutation runs over the core.
///
/// Without options all mutants: those generated from the files of `FILES`, and those written by hand.
#[derive(Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

const EXIT_CODES: &str = "\
Exit codes:
   0  the rate is reached, every simulation that a patch demands finds its mutant, no equivalent mutant was killed
   1  not so
   2  wrong use, a patch whose text is not there, or the copy can't be built";

/// Which mutants, and what is printed.
#[derive(Args)]
pub struct Options {
    /// Mutants of files whose path contains this (may be repeated)
    #[arg(long)]
    file: Vec<String>,
    /// Mutants whose name contains this (may be repeated)
    #[arg(long)]
    name: Vec<String>,
    /// All hand-written mutants, and so many of the generated ones
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Which the sample has
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Build all mutants and judge the sample: the next run needs no new build
    #[arg(long)]
    whole: bool,
    /// Those that survived the last run
    #[arg(long)]
    again: bool,
    /// Hand-written mutants alone
    #[arg(long)]
    written: bool,
    /// Print the mutants and run nothing
    #[arg(long)]
    list: bool,
    /// Print every outcome as JSON
    #[arg(long)]
    json: bool,
    /// Write the table to conformance/mutants/results.txt
    #[arg(long)]
    write: bool,
    /// Write the survivors into this file, from time to time as well
    #[arg(long, value_name = "FILE")]
    survivors: Option<std::path::PathBuf>,
    /// Simulations of each mutant
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// Leave out tests whose name contains this: what do they add? (may be repeated)
    #[arg(long, value_name = "TEST")]
    without: Vec<String>,
    /// Per cent of the mutants that must be killed
    #[arg(long, default_value_t = 95.0)]
    bar: f64,
}

#[derive(Subcommand)]
enum Command {
    /// Run simulations until the first that is not clean (what the woven program is called for)
    #[command(hide = true)]
    Simulate {
        #[arg(long)]
        simulations: String,
        #[arg(long)]
        seeds: String,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Command::Simulate { simulations, seeds }) => simulate(&simulations, &seeds),
        None => run::run(&cli.options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("rerail-mutants: {why}");
            ExitCode::from(2)
        }
    }
}

fn simulate(simulations: &str, seeds: &str) -> Result<bool, String> {
    let simulations = simulate::Simulations::parse(simulations)?;
    let found = simulate::first_finding(&simulations, simulate::parse_seeds(seeds)?.into_iter());
    if let Some(found) = &found {
        println!("{}", serde_json::to_string(found).map_err(|error| error.to_string())?);
    }
    Ok(found.is_none())
}
