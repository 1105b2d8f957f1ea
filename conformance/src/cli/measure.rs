//! Of what measures and explains: `perf`, `explain`, `series`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use rerail_core::endpoint::Policy;
use rerail_linux::settings::Preset;
use serde::{Deserialize, Serialize};

use super::{KeyArgs, parse_endpoint};
use crate::output::parse_bytes;

/// Most repetitions of a measurement: each has a sample in memory.
const COUNT_MAX: u64 = 100_000_000;

/// What `perf` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Half a round trip, one message at a time.
    Latency,
    /// Windows of messages one way.
    Bandwidth,
    /// Windows of messages both ways at once.
    Bidirectional,
    /// Windows of small messages one way: messages per second.
    Rate,
    /// Messages of mixed sizes both ways, puts and atomics beside them, for --seconds: each must come once,
    /// in order and as it was sent. For networks that fail meanwhile.
    Mixed,
    /// All ranks, of which there may be more than processors: in each round pairs are drawn anew, and the two
    /// exchange a message; the time of a round.
    Meet,
    /// The same, where in each round every rank sends a message to every other.
    All,
}

impl Measure {
    /// Whether all ranks measure, each with others.
    pub fn is_of_many(self) -> bool {
        matches!(self, Measure::Meet | Measure::All)
    }
}

/// By which operation `perf` moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Two-sided.
    Send,
    /// One-sided write.
    Put,
    /// One-sided read.
    Get,
}

/// Over which path `perf` goes when it launches itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathChoice {
    /// Both ranks on one host: shared memory.
    Shm,
    /// Two logical hosts: two TCP rails over loopback.
    Tcp,
    /// Two logical hosts: verbs rails alone, over every usable device or those of --devices.
    Verbs,
}

/// Of `perf`.
#[derive(Clone, Debug, Args)]
pub struct PerfArgs {
    /// What to measure.
    #[arg(value_enum, default_value_t = Measure::Latency)]
    pub measure: Measure,
    /// By which operation.
    #[arg(long, value_enum, default_value_t = Operation::Send)]
    pub op: Operation,
    /// Message sizes, separated by commas (bytes; K, M, G are binary).
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    pub sizes: Vec<u64>,
    /// Round trips or windows per size; without it: fewer for larger messages.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    pub iterations: Option<u64>,
    /// As many are done before measuring; without it: a tenth of the iterations.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=COUNT_MAX))]
    pub warmup: Option<u64>,
    /// Read the clock once for so many round trips (windows, for bandwidth and rate), and post every receive
    /// inside the time that is measured, as benchmarks of MPI do; --iterations and --warmup are batches then.
    #[arg(long, value_name = "ROUNDS", conflicts_with_all = ["verify", "baseline", "seconds"],
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub batch: Option<u64>,
    /// So many pairs of ranks at once, each as one would be alone; times are the median of the pairs', rates
    /// all pairs' together.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub pairs: u32,
    /// Pin the ranks to these processors, with several pairs first those of all senders; without it: to the
    /// first ones that this process may use.
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1)]
    pub pin: Vec<usize>,
    /// Messages under way at once (not for latency).
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub window: u64,
    /// The path, when not under a launcher.
    #[arg(long, value_enum, default_value_t = PathChoice::Shm)]
    pub path: PathChoice,
    /// Verify every byte (mixed does in any case). What that costs is a part of what is measured, except for
    /// puts and for latencies of gets.
    #[arg(long)]
    pub verify: bool,
    /// Use memory that the other rank may map (`Transport::alloc_shared`), and write where puts go
    /// (`alloc_window`).
    #[arg(long)]
    pub mapped: bool,
    /// Rewrite the data before each message, as applications do, and so send one at a time: the receiver's
    /// processor does not find it in memory yet. The time includes the writing (with --batch, send).
    #[arg(long, requires = "batch", conflicts_with_all = ["op", "verify", "seconds"])]
    pub fresh: bool,
    /// Measure bare TCP sockets instead of the transport: the limit of the network (latency, bandwidth and
    /// rate).
    #[arg(long, conflicts_with_all = ["op", "verify", "mapped"])]
    pub baseline: bool,
    /// Send messages of one size for so long, and report the bandwidth over time (bandwidth and
    /// bidirectional); of mixed: for how long, 10 without it.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["iterations", "warmup", "baseline"],
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    /// With --seconds: a value for each so many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub interval: u64,
    /// Where and how.
    #[command(flatten)]
    pub run: RunArgs,
}

/// How a measurement or explanation runs, and its output.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// How messages find their rails.
    #[command(flatten)]
    pub ways: WaysArgs,
    /// Between which processes.
    #[command(flatten)]
    pub ends: EndsArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Give up when no request has completed and no payload has moved for so long; half of it is enough where
    /// this process lacks descriptors or memory for a connection.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub stall_seconds: u64,
}

impl RunArgs {
    /// How long nothing may get through.
    pub fn stall(&self) -> Duration {
        Duration::from_secs(self.stall_seconds)
    }
}

/// How messages find their rails: settings of these names, for one run. Each side chooses for what it sends.
#[derive(Clone, Debug, Default, Args)]
pub struct WaysArgs {
    /// The policy.
    #[arg(long, value_name = "NAME", value_parser = policies())]
    pub policy: Option<String>,
    /// That of small messages.
    #[arg(long, value_name = "NAME", value_parser = policies())]
    pub policy_small: Option<String>,
    /// Weights of the rails from number 1 on (number 0 is the process itself), separated by commas.
    #[arg(long, value_name = "NUMBERS")]
    pub weights: Option<String>,
    /// TCP rails: interfaces or local addresses, separated by commas; without it: every usable one.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub interfaces: Vec<String>,
    /// Verbs rails: devices as DEVICE, DEVICE/PORT or DEVICE/PORT/GID-INDEX, separated by commas; without it:
    /// every active port.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub devices: Vec<String>,
}

/// The two ends of a measurement, where `perf` does not launch both.
#[derive(Clone, Debug, Default, Args)]
pub struct EndsArgs {
    /// Wait for the other process here; it chooses what is measured.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "connect", value_parser = parse_endpoint)]
    pub listen: Option<String>,
    /// Measure with the process that listens there; this side sends, where data goes one way, and prints.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_endpoint)]
    pub connect: Option<String>,
    /// What both share.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// Names of policies.
fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(Policy::ALL.map(Policy::name))
}

/// For which messages policies are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClassChoice {
    /// Messages; whether one is small or large follows from its size.
    Message,
    /// Puts and gets.
    OneSided,
}

/// Of `explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// Message sizes, separated by commas (bytes; K, M, G are binary).
    #[arg(long, required_unless_present = "memory", value_delimiter = ',', value_parser = parse_bytes)]
    pub size: Vec<u64>,
    /// The most memory that a process takes instead, by what takes it, with the settings of the environment;
    /// nothing is started. One rail for each kind of RERAIL_RAILS, more where interfaces or devices are
    /// named.
    #[arg(long, requires = "ranks", conflicts_with_all = ["size", "scenario", "listen", "connect"])]
    pub memory: bool,
    /// With --memory: processes of the job.
    #[arg(long, requires = "memory", value_parser = clap::value_parser!(u32).range(1..=1 << 28))]
    pub ranks: Option<u32>,
    /// With --memory: processes of each host.
    #[arg(long, requires = "memory", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub per_node: u32,
    /// With --memory: the setting of this name.
    #[arg(long, requires = "memory", value_parser = PossibleValuesParser::new(Preset::ALL.map(Preset::name)))]
    pub preset: Option<String>,
    /// With --memory: exit with 1 where a process takes more (bytes; K, M, G are binary). Where no preset is
    /// set, the first one that fits counts.
    #[arg(long, requires = "memory", value_parser = parse_bytes)]
    pub budget: Option<u64>,
    /// Messages or one-sided operations.
    #[arg(long, value_enum, default_value_t = ClassChoice::Message)]
    pub class: ClassChoice,
    /// So many messages of each size are sent before, to measure the rails.
    #[arg(long, value_name = "MESSAGES", default_value_t = 32, value_parser = clap::value_parser!(u64).range(..=COUNT_MAX))]
    pub after: u64,
    /// The path, when not under a launcher.
    #[arg(long, value_enum, default_value_t = PathChoice::Tcp)]
    pub path: PathChoice,
    /// A simulation instead, from a file: explains the path from rank 0 to rank 1 when the workload is
    /// complete.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "connect", "path", "after", "interfaces"])]
    pub scenario: Option<PathBuf>,
    /// With --scenario: the seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where and how.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Of `series`.
#[derive(Clone, Debug, Args)]
pub struct SeriesArgs {
    /// What `rerail perf --seconds ... --json` has printed, a file for each run; its name without ending
    /// names the curve.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// What all rails together could carry, in Mbit/s of payload, from a moment on: SECONDS=MBIT, separated
    /// by commas.
    #[arg(long, required = true, value_delimiter = ',', value_name = "SECONDS=MBIT", value_parser = parse_step)]
    pub sums: Vec<(f64, f64)>,
    /// Each phase must come to so much of its sum, once it is there.
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0)]
    pub steady: f64,
    /// After a change, so much of the new sum must be reached ...
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0)]
    pub recovered: f64,
    /// ... within so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub within: f64,
    /// Only these files, by the curve's name, must keep to that; without it: all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub judge: Vec<String>,
    /// Report, and never fail.
    #[arg(long)]
    pub lenient: bool,
    /// Draw all curves into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// The plot's title.
    #[arg(long, value_name = "TEXT", default_value = "bandwidth over time")]
    pub title: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `SECONDS=MBIT`.
fn parse_step(text: &str) -> Result<(f64, f64), String> {
    let why = || format!("\"{text}\" is not SECONDS=MBIT");
    let (at, sum) = text.split_once('=').ok_or_else(why)?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(why);
    Ok((number(at)?, number(sum)?))
}
