//! The command line, as types.

mod key;
mod measure;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use rerail_sim::figures::SETS;
use rerail_sim::soak::FaultMenu;

use crate::exit::help;
use crate::output::parse_bytes;

pub use key::KeyArgs;
pub use measure::{
    ClassChoice, EndsArgs, ExplainArgs, Measure, Operation, PathChoice, PerfArgs, RunArgs, SeriesArgs, WaysArgs,
};

/// A message transport over every path between processes at once: exchange, measure, copy, inspect.
#[derive(Debug, Parser)]
#[command(name = "rerail", version, after_help = help(""), args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; without it: `exchange`.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Of the `exchange` that runs without a subcommand.
    #[command(flatten)]
    pub exchange: ExchangeArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Exchange messages of all kinds and sizes between all pairs of ranks and verify every byte.
    ///
    /// Started by itself it launches the ranks; started by a launcher (PMI), it is one of them.
    #[command(after_help = help("exchange"))]
    Exchange(ExchangeArgs),
    /// Start a program as several ranks on this machine.
    #[command(after_help = help("launch"))]
    Launch(LaunchArgs),
    /// What this machine offers: rails, devices, limits; and what is in the way of the rest.
    #[command(after_help = help("info"))]
    Info(OutputArgs),
    /// Every setting: value, default, unit, range, and where the value comes from.
    #[command(after_help = help("config"))]
    Config(OutputArgs),
    /// Measure latency, bandwidth or message rate between two ranks, or prove that messages survive what
    /// happens to rails.
    ///
    /// Settings control the recovery of failed connections: `rerail info` shows these,
    /// RERAIL_RECOVERY_TIMEOUT and the like set them.
    ///
    /// Started by itself it launches both; with --listen and --connect they are two processes, on one host or
    /// on two.
    #[command(after_help = help("perf"))]
    Perf(PerfArgs),
    /// Which rails would carry a message of some size, and why: from the transport itself, once it has
    /// measured its rails.
    #[command(after_help = help("explain"))]
    Explain(ExplainArgs),
    /// Judge and plot bandwidth over time, as `rerail perf --seconds ... --json` has measured it.
    #[command(after_help = help("series"))]
    Series(SeriesArgs),
    /// Run one simulated cluster in virtual time: drawn from a seed, or described by a scenario file.
    ///
    /// Everything is decided by the seed: the same command gives the same simulation to the byte.
    #[command(after_help = help("sim"))]
    Sim(SimArgs),
    /// Run simulated clusters, seed after seed, on all processors; shrink those that fail.
    #[command(after_help = help("soak"))]
    Soak(SoakArgs),
    /// Play every policy over random sets of rails in virtual time, and compare `balanced` with the best of
    /// them.
    ///
    /// Each set is decided by its seed: 2 to 8 rails, what they share, how their load changes, eight sizes of
    /// messages.
    #[command(after_help = help("lab"))]
    Lab(LabArgs),
    /// Check a device against the verbs contract, case by case.
    #[command(after_help = help("check"))]
    Check(CheckArgs),
    /// Run the papers' figures again in simulated clusters; write a page of plots and tables, and judge each
    /// claim.
    #[command(after_help = help("report"))]
    Report(ReportArgs),
    /// Send a file to a waiting `rerail recv`.
    #[command(after_help = help("send"))]
    Send(SendArgs),
    /// Wait for files from `rerail send`.
    #[command(after_help = help("recv"))]
    Recv(RecvArgs),
}

/// Of commands that only print.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Of `exchange`.
#[derive(Clone, Debug, Args)]
pub struct ExchangeArgs {
    /// Processes to launch.
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub ranks: u32,
    /// Logical hosts to spread them over, at most one for each rank; without it 2, for one rank 1. Ranks of
    /// different hosts reach each other by TCP only, so RERAIL_RAILS=shm needs 1.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub hosts: Option<u32>,
    /// The largest message (bytes; K, M, G are binary); without it 64M, with --quick 1M.
    #[arg(long, value_parser = parse_bytes)]
    pub max_bytes: Option<u64>,
    /// Fewer repetitions, and messages of at most 1 MiB.
    #[arg(long)]
    pub quick: bool,
    /// Payloads and keys follow from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
    /// This rank kills itself (SIGKILL) in the middle: the others must report exactly that and go on.
    #[arg(long, value_name = "RANK", requires = "after_round")]
    pub kill_rank: Option<u32>,
    /// After how many rounds it does.
    #[arg(long, value_name = "ROUNDS", requires = "kill_rank")]
    pub after_round: Option<u32>,
    /// With --kill-rank: the others must report the loss within so long.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub detect_seconds: u64,
    /// Give up when no request has completed and no payload has moved for so long; half of it is enough where
    /// this process lacks descriptors or memory for a connection.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub stall_seconds: u64,
}

/// The largest message of a quick exchange.
pub const QUICK_BYTES_MAX: u64 = 1 << 20;

impl ExchangeArgs {
    /// The largest message.
    pub fn bytes_max(&self) -> u64 {
        self.max_bytes.unwrap_or(if self.quick { QUICK_BYTES_MAX } else { 64 << 20 })
    }

    /// Logical hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts.unwrap_or(self.ranks.min(2))
    }
}

/// Of `launch`.
#[derive(Clone, Debug, Args)]
pub struct LaunchArgs {
    /// Processes to start.
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub ranks: u32,
    /// Logical hosts to spread them over, at most one for each rank; 1: all on this one, with its own
    /// interfaces.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub hosts: u32,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub command: Vec<String>,
}

/// A sort of rail in a simulated cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RailArg {
    /// A software HCA.
    Hca,
    /// A stream like TCP.
    Stream,
    /// Shared memory within a host.
    Shm,
}

/// Of `sim`.
#[derive(Clone, Debug, Args)]
pub struct SimArgs {
    /// Decides everything that the scenario leaves open; without a scenario, the whole simulation.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The simulation, as a file (conformance/scenarios).
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Ranks.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub ranks: Option<u32>,
    /// Rails of each rank, in order, separated by commas; each hca and stream has a device of its own.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub rails: Vec<RailArg>,
    /// Faults that the seed draws: none, lossless, all, or kinds separated by commas. A scenario file keeps
    /// its own unless this is given; a drawn simulation has the lossless ones.
    #[arg(long, value_name = "MENU")]
    pub faults: Option<FaultMenu>,
    /// How long faults happen, in minutes of virtual time; the workload's messages are no more for it.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub minutes: Option<u64>,
    /// One value of the scenario, by its path in the file: workload.name=ping-pong, config.bulk_max=64. Again
    /// and again.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_assignment)]
    pub set: Vec<(String, String)>,
    /// Print everything that happened, line by line.
    #[arg(long)]
    pub trace: bool,
    /// Print the history of one message (its name as in the trace: `msg ID`).
    #[arg(long, value_name = "ID", value_parser = parse_hex)]
    pub message: Option<u64>,
    /// Print the simulation as a scenario file instead of running it.
    #[arg(long, conflicts_with_all = ["trace", "message"])]
    pub print: bool,
    /// Print the result as JSON.
    #[arg(long, conflicts_with_all = ["trace", "message", "print"])]
    pub json: bool,
}

/// Of `soak`.
#[derive(Clone, Debug, Args)]
pub struct SoakArgs {
    /// Simulations.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    pub from: u64,
    /// Faults: none, lossless, all, or kinds separated by commas.
    #[arg(long, value_name = "MENU", default_value = "lossless")]
    pub faults: FaultMenu,
    /// A simulation from a file, instead of one drawn by each seed.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Stop after so many minutes of real time; exit code 27 where simulations are left by then.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub minutes: Option<u64>,
    /// Threads; without it one per processor.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Go on after ten failures.
    #[arg(long)]
    pub keep_going: bool,
    /// Fail with exit code 28 where no simulation took one of the rare paths.
    #[arg(long)]
    pub demand_coverage: bool,
    /// Run each simulation twice, with the express path of small messages and without: receives must get the
    /// same messages, those of a sender in the same order.
    #[arg(long)]
    pub differential: bool,
    /// Do not make failing simulations smaller.
    #[arg(long)]
    pub no_shrink: bool,
    /// Write failing simulations, made smaller, as scenario files into this folder.
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_shrink")]
    pub keep: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Of `lab`.
#[derive(Clone, Debug, Args)]
pub struct LabArgs {
    /// Sets of rails.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    pub from: u64,
    /// Print the cases of one seed, in full.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    pub case: Option<u64>,
    /// Of them only the one of this size, in bytes.
    #[arg(long, requires = "case")]
    pub bytes: Option<u64>,
    /// Print each post of the last message by `balanced`, where they are posted one by one.
    #[arg(long, requires = "case")]
    pub posts: bool,
    /// Cases to list that are furthest from what is demanded.
    #[arg(long, default_value_t = 12)]
    pub worst: usize,
    /// Threads; without it one per processor. They change nothing but the time that it takes.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Print the results as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Of `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// The device: `sim` is the software HCA, others are those of `rerail info`.
    #[arg(long, default_value = "sim", value_name = "NAME")]
    pub device: String,
    /// Every verbs device of this machine, one after the other.
    #[arg(long, conflicts_with = "device")]
    pub all_devices: bool,
    /// Its port; without it: the first active one.
    #[arg(long, value_name = "NUMBER")]
    pub port: Option<u8>,
    /// Index of the GID that both ends are addressed by; without it: the one that reaches furthest.
    #[arg(long, value_name = "INDEX")]
    pub gid_index: Option<u8>,
    /// On a verbs device: how long to wait for what must come.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub timeout_seconds: u32,
    /// On a verbs device: after how many milliseconds nothing is under way any more.
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub idle_ms: u32,
    /// Failures of the cases in this file are known, with their reasons (conformance/devices). That one of
    /// them passes is a failure of the file: exit code 1.
    #[arg(long, value_name = "FILE")]
    pub known: Option<PathBuf>,
    /// Run nothing: print reports of `--json` side by side.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["device", "all_devices", "known", "cases"])]
    pub compare: Vec<PathBuf>,
    /// Only cases with a name that contains one of these.
    pub cases: Vec<String>,
    /// Report every case, not only those that did not pass.
    #[arg(long)]
    pub list: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Of `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Which papers' figures; without it: all there are.
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(SETS.iter().map(|set| set.name)))]
    pub names: Vec<String>,
    /// The folder of the page (index.html), made where it is absent.
    #[arg(long, value_name = "FOLDER", default_value = "target/report")]
    pub out: PathBuf,
    /// Few and smaller messages; the same claims.
    #[arg(long)]
    pub quick: bool,
    /// Threads; without it one per processor. They change nothing but the time that it takes.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Print the figures as JSON; the page is written all the same.
    #[arg(long)]
    pub json: bool,
}

impl ReportArgs {
    /// Whether a set of figures was requested.
    pub fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// A number in hexadecimal, with or without 0x.
fn parse_hex(text: &str) -> Result<u64, String> {
    let number = u64::from_str_radix(text.trim_start_matches("0x"), 16);
    number.map_err(|_| format!("\"{text}\" is no number in hexadecimal of at most 16 digits"))
}

/// Of `send`.
#[derive(Clone, Debug, Args)]
pub struct SendArgs {
    /// The file.
    pub file: PathBuf,
    /// Where `rerail recv` listens.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_endpoint)]
    pub to: String,
    /// What `rerail recv` was given or printed.
    #[command(flatten)]
    pub key: KeyArgs,
    /// How the transfer is run.
    #[command(flatten)]
    pub transfer: TransferArgs,
}

/// Of `recv`.
#[derive(Clone, Debug, Args)]
pub struct RecvArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7470", value_parser = parse_endpoint)]
    pub listen: String,
    /// What the sender must prove; without a key, one is made and printed.
    #[command(flatten)]
    pub key: KeyArgs,
    /// The file to write, or the folder for the sender's file name.
    #[arg(long, value_name = "PATH", default_value = ".")]
    pub out: PathBuf,
    /// End after one file.
    #[arg(long)]
    pub once: bool,
    /// Replace a file that exists.
    #[arg(long)]
    pub force: bool,
    /// How the transfer is run.
    #[command(flatten)]
    pub transfer: TransferArgs,
}

/// Of `send` and `recv`.
#[derive(Clone, Debug, Args)]
pub struct TransferArgs {
    /// Rails: interfaces or local addresses, separated by commas; without it: every usable one.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub interfaces: Vec<String>,
    /// Print the result as one line of JSON.
    #[arg(long)]
    pub json: bool,
    /// Give up when no request has completed and no payload has moved for so long; half of it is enough where
    /// this process lacks descriptors or memory for a connection.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub stall_seconds: u64,
}

/// `HOST:PORT`; the system resolves the host later.
fn parse_endpoint(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err(format!("\"{text}\" is not HOST:PORT, with a port from 0 to 65535")),
    }
}

/// `KEY=VALUE`.
fn parse_assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("\"{text}\" is not KEY=VALUE"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_without_a_subcommand_are_those_of_exchange() {
        let cli = Cli::try_parse_from(["rerail", "--quick", "-n", "3"]).unwrap();
        assert!(cli.command.is_none());
        assert!(cli.exchange.quick);
        assert_eq!(cli.exchange.ranks, 3);
        assert_eq!((cli.exchange.bytes_max(), cli.exchange.hosts()), (1 << 20, 2));
        let cli = Cli::try_parse_from(["rerail", "-n", "1"]).unwrap();
        assert_eq!((cli.exchange.bytes_max(), cli.exchange.hosts()), (64 << 20, 1));
    }

    #[test]
    fn a_kill_needs_both_its_options() {
        assert!(Cli::try_parse_from(["rerail", "exchange", "--kill-rank", "1"]).is_err());
        assert!(Cli::try_parse_from(["rerail", "exchange", "--kill-rank", "1", "--after-round", "3"]).is_ok());
    }
}
