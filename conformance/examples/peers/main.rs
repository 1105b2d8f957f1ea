//! rerail beside the transports that runtimes use today: UCX, libfabric, Open MPI and MPICH, over shared
//! memory on this machine, and with small messages over TCP; in alternating rounds, pinned to the same two
//! processors, with the round trip of a cache line before and after each small message's time over shared
//! memory.
//!
//! `conformance/scripts/peers.sh` installs the peers, builds `mpi_bench`, and runs this. A peer that is
//! absent is reported as absent. Rounds that begin while the machine does something else are waited for, and
//! marked where that took too long.

mod cases;
mod steady;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plotters::prelude::*;
use serde_json::{Map, Value, json};

use cases::{Case, Measure, bar, cases};
use steady::{Lines, Steady, all_of, cache_line_round_trip, is_same_place};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Times and rates of rerail and its peers over shared memory.
#[derive(Parser)]
struct Args {
    /// Rounds; in each, every program measures every case once.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// So many pairs of processes at once (rerail and MPI).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pairs: u32,
    /// The processors, those of all senders first; without it: 0, 1, and so on.
    #[arg(long, value_delimiter = ',', num_args = 1)]
    pin: Vec<usize>,
    /// Only cases whose names contain one of these.
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    cases: Vec<String>,
    /// Wait at most so long for an idle machine before each round.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    idle_seconds: u64,
    /// Fail (exit code 1) where a bar is missed, and with 69 where the machine was not idle.
    #[arg(long)]
    judge: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the times over the size.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The tool.
    #[arg(long, value_name = "FILE")]
    rerail: PathBuf,
    /// Where `mpi_bench.openmpi` and `mpi_bench.mpich` are, if they could be built.
    #[arg(long, value_name = "FOLDER")]
    mpi: PathBuf,
}

/// Batches of a run, and those before.
const BATCHES: u64 = 21;
const WARMUP: u64 = 3;
/// Longest time of one run.
const RUN: Duration = Duration::from_secs(60);
/// The machine is idle if other processes take no more of its processors than this.
const IDLE_BUSY_MAX: f64 = 0.05;
/// Looks for that long whether it is.
const IDLE_SAMPLE: Duration = Duration::from_millis(300);

/// A program that measures a case: nanoseconds of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    Rerail,
    /// TCP sockets: no peer, but the limit of the system.
    Bare,
    Ucx,
    Libfabric,
    OpenMpi,
    Mpich,
}

impl Peer {
    const ALL: [Peer; 6] = [Peer::Rerail, Peer::Bare, Peer::Ucx, Peer::Libfabric, Peer::OpenMpi, Peer::Mpich];

    const fn name(self) -> &'static str {
        match self {
            Peer::Rerail => "rerail",
            Peer::Bare => "sockets",
            Peer::Ucx => "ucx",
            Peer::Libfabric => "libfabric",
            Peer::OpenMpi => "openmpi",
            Peer::Mpich => "mpich",
        }
    }

    /// Whether it is here.
    fn is_here(self, args: &Args) -> bool {
        match self {
            Peer::Rerail | Peer::Bare => args.rerail.exists(),
            Peer::Ucx => found("ucx_perftest"),
            Peer::Libfabric => found("fi_pingpong"),
            Peer::OpenMpi => found("mpirun.openmpi") && args.mpi.join("mpi_bench.openmpi").exists(),
            Peer::Mpich => found("mpiexec.hydra") && args.mpi.join("mpi_bench.mpich").exists(),
        }
    }

    /// Runs the case; `None`: the program can't measure it.
    fn measure(self, args: &Args, case: &Case) -> Outcome<Option<f64>> {
        let rounds = (case.batch * BATCHES, case.batch * WARMUP);
        let pins = (args.pin[0].to_string(), args.pin[1].to_string());
        let pairs = case.pairs(args.pairs);
        let ranks = (2 * pairs).to_string();
        let pair = args.pin.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let bench = |command: &mut Command, program: PathBuf| {
            let kind = match case.measure {
                Measure::Latency => "latency",
                Measure::Window(_) => "rate",
                Measure::Access(true, _) => "put",
                Measure::Access(false, _) => "get",
                Measure::Meet => "meet",
                Measure::All => "all",
            };
            command.arg(program).args([kind, &case.bytes.to_string(), &case.batch.to_string()]);
            command.args([BATCHES.to_string(), WARMUP.to_string(), case.window().to_string()]);
            if !case.is_of_many() {
                command.env("MPI_BENCH_PIN", &pair);
            }
            if case.allocated {
                command.arg("alloc");
            }
            if case.fresh {
                command.arg("fresh");
            }
        };
        match self {
            Peer::Bare if !case.tcp => Ok(None),
            Peer::Rerail | Peer::Bare => {
                let mut command = Command::new(&args.rerail);
                let kind = match case.measure {
                    Measure::Latency => "latency",
                    Measure::Window(_) | Measure::Access(..) => "rate",
                    Measure::Meet => "meet",
                    Measure::All => "all",
                };
                command.args(["perf", kind, "--json", "--pairs", &pairs.to_string()]);
                command.args(["--sizes", &case.bytes.to_string()]);
                if case.tcp {
                    command.args(["--path", "tcp", "--interfaces", "127.0.0.1"]);
                }
                if self == Peer::Bare {
                    // It pins its sides to the first two processors.
                    command.arg("--baseline");
                } else {
                    command.args(["--batch", &case.batch.to_string()]);
                    if !case.is_of_many() {
                        command.args(["--pin", &pair]);
                    }
                }
                if let Measure::Access(is_put, _) = case.measure {
                    command.args(["--op", if is_put { "put" } else { "get" }]);
                }
                let (iterations, warmup) = if self == Peer::Bare { rounds } else { (BATCHES, WARMUP) };
                command.args(["--iterations", &iterations.to_string(), "--warmup", &warmup.to_string()]);
                if matches!(case.measure, Measure::Window(_) | Measure::Access(..)) {
                    command.args(["--window", &case.window().to_string()]);
                }
                if case.allocated {
                    command.arg("--mapped");
                }
                if case.fresh {
                    command.arg("--fresh");
                }
                let printed: Value = serde_json::from_str(&output(command)?)?;
                let line = &printed["sizes"][0];
                let ns = match case.measure {
                    Measure::Window(_) => line["messages_per_second"].as_f64().map(|rate| 1e9 / rate),
                    _ if self == Peer::Bare => line["latency"]["average_ns"].as_f64(),
                    _ => line["batches"]["median_ns"].as_f64(),
                };
                ns.map(Some).ok_or_else(|| format!("rerail printed no time: {printed}").into())
            }
            // Their programs measure one pair, and never write the data.
            Peer::Ucx | Peer::Libfabric if pairs > 1 || case.fresh => Ok(None),
            // Its memory for accesses is of its own making.
            Peer::Ucx if matches!(case.measure, Measure::Access(..)) && !case.allocated => Ok(None),
            Peer::Ucx => {
                let kind = match case.measure {
                    Measure::Latency => "tag_lat",
                    // Until the peer sees it, which no other test of puts shows.
                    Measure::Access(true, 1) => "ucp_put_lat",
                    Measure::Access(true, _) => "ucp_put_bw",
                    Measure::Access(false, _) => "ucp_get",
                    _ => "tag_bw",
                };
                let port = free_port()?;
                let test = |pin: &str| {
                    let mut command = Command::new("taskset");
                    command.args(["-c", pin, "ucx_perftest"]);
                    match case.tcp {
                        true => command.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", "lo"),
                        false => command.env("UCX_TLS", "shm,self"),
                    };
                    command.env("UCX_WARN_UNUSED_ENV_VARS", "n");
                    command
                };
                let mut server = test(&pins.1);
                server.args(["-p", &port]);
                let mut client = test(&pins.0);
                client.args(["localhost", "-p", &port, "-f", "-t", kind, "-s", &case.bytes.to_string()]);
                client.args([
                    "-n",
                    &rounds.0.to_string(),
                    "-w",
                    &rounds.1.to_string(),
                    "-O",
                    &case.window().to_string(),
                ]);
                let line = pair_output(server, client)?;
                let line = line.lines().last().unwrap_or_default();
                // iterations, median, average, overall average in us, and then rates.
                let column = line.split_whitespace().nth(3).and_then(|text| text.parse::<f64>().ok());
                column.map(|us| Some(us * 1e3)).ok_or_else(|| format!("ucx_perftest printed \"{line}\"").into())
            }
            Peer::Libfabric => {
                if case.measure != Measure::Latency {
                    return Ok(None);
                }
                let port = free_port()?;
                let test = |pin: &str| {
                    let mut command = Command::new("taskset");
                    let provider = if case.tcp { "tcp;ofi_rxm" } else { "shm" };
                    command.args(["-c", pin, "fi_pingpong", "-p", provider, "-e", "rdm"]);
                    command.args(["-S", &case.bytes.to_string(), "-I", &rounds.0.to_string()]);
                    command
                };
                let mut client = test(&pins.0);
                client.args(["-P", &port, "localhost"]);
                let mut server = test(&pins.1);
                server.args(["-B", &port]);
                let printed = pair_output(server, client)?;
                let line = printed.lines().last().unwrap_or_default();
                let column = line.split_whitespace().nth(6).and_then(|text| text.parse::<f64>().ok());
                column.map(|us| Some(us * 1e3)).ok_or_else(|| format!("fi_pingpong printed \"{line}\"").into())
            }
            Peer::OpenMpi => {
                let mut command = Command::new("mpirun.openmpi");
                command.args(["-n", &ranks, "--bind-to", "none", "--oversubscribe"]);
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                // Debian's yields the processor at each empty poll where it finds itself short of them.
                match case.tcp {
                    true => command.args(["--mca", "pml", "cm", "--mca", "mtl", "ofi"]).args([
                        "--mca",
                        "mtl_ofi_provider_include",
                        "tcp;ofi_rxm",
                    ]),
                    false => command.args(["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]),
                };
                if !case.is_of_many() {
                    command.args(["--mca", "mpi_yield_when_idle", "0"]);
                }
                bench(&mut command, args.mpi.join("mpi_bench.openmpi"));
                median(&output(command)?).map(Some)
            }
            // Debian's is over UCX, which is measured itself.
            Peer::Mpich if case.tcp => Ok(None),
            Peer::Mpich => {
                let mut command = Command::new("mpiexec.hydra");
                command.args(["-n", &ranks]);
                bench(&mut command, args.mpi.join("mpi_bench.mpich"));
                median(&output(command)?).map(Some)
            }
        }
    }
}

fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn free_port() -> Outcome<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string())
}

/// What a program prints within [`RUN`].
fn output(mut command: Command) -> Outcome<String> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    finished(child, &format!("{command:?}"))
}

fn finished(mut child: Child, what: &str) -> Outcome<String> {
    let end = Instant::now() + RUN;
    // Little is printed, so that no pipe fills up meanwhile.
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Err(format!("not done after {} s: {what}", RUN.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("{}: {what}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// What the client of a pair prints. It is started again until the server listens.
fn pair_output(mut server: Command, mut client: Command) -> Outcome<String> {
    let mut server = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let end = Instant::now() + Duration::from_secs(5);
    let printed = loop {
        std::thread::sleep(Duration::from_millis(100));
        let child = client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        match finished(child, &format!("{client:?}")) {
            Err(_) if Instant::now() < end && server.try_wait()?.is_none() => continue,
            printed => break printed,
        }
    };
    // It ends with its client; where the client has failed, not by itself.
    server.kill()?;
    server.wait()?;
    printed
}

/// The median of the numbers that `mpi_bench` prints.
fn median(text: &str) -> Outcome<f64> {
    let mut times = text.lines().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().ok_or_else(|| "mpi_bench printed nothing".into())
}

/// Which part of this machine's processors other processes take, over [`IDLE_SAMPLE`].
fn busy() -> Outcome<f64> {
    let read = || -> Outcome<(u64, u64)> {
        let text = fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let idle = ticks.iter().skip(3).take(2).sum();
        Ok((ticks.iter().take(8).sum(), idle))
    };
    let before = read()?;
    std::thread::sleep(IDLE_SAMPLE);
    let after = read()?;
    let all = after.0.saturating_sub(before.0).max(1);
    Ok(1.0 - after.1.saturating_sub(before.1) as f64 / all as f64)
}

/// Waits for an idle machine; whether it is.
fn idle(limit: Duration) -> Outcome<bool> {
    let end = Instant::now() + limit;
    loop {
        if busy()? <= IDLE_BUSY_MAX {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
    }
}

/// Median, least and greatest of some times.
fn spread(times: &[f64]) -> Option<(f64, f64, f64)> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some((*sorted.get(sorted.len() / 2)?, *sorted.first()?, *sorted.last()?))
}

/// All times of a run, by case and peer, in nanoseconds a message.
type Times = BTreeMap<(usize, Peer), Vec<f64>>;

/// The medians of a case: ours and the best peer's.
fn best(times: &Times, case: usize) -> Option<(f64, f64, Peer)> {
    let median = |peer| spread(times.get(&(case, peer))?).map(|(median, ..)| median);
    let peers = Peer::ALL.into_iter().filter(|&peer| !matches!(peer, Peer::Rerail | Peer::Bare));
    let (time, peer) = peers.filter_map(|peer| Some((median(peer)?, peer))).min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((median(Peer::Rerail)?, time, peer))
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(mut args: Args) -> Outcome<ExitCode> {
    let ranks = 2 * args.pairs as usize;
    if args.pin.is_empty() {
        args.pin = (0..ranks).collect();
    }
    if args.pin.len() != ranks {
        return Err(format!("--pin names {ranks} processors: --pin 0,1").into());
    }
    let args = &args;
    let wanted = |case: &Case| args.cases.is_empty() || args.cases.iter().any(|part| case.name.contains(part));
    let cases: Vec<Case> = cases().into_iter().filter(wanted).collect();
    if cases.is_empty() {
        return Err(format!("no case matches {:?}", args.cases).into());
    }
    let (here, absent): (Vec<Peer>, Vec<Peer>) = Peer::ALL.into_iter().partition(|peer| peer.is_here(args));
    if !here.contains(&Peer::Rerail) {
        return Err(format!("{} is not there: cargo build --release", args.rerail.display()).into());
    }
    absent.iter().for_each(|peer| eprintln!("peers: {} is absent", peer.name()));
    let bar = ProgressBar::new(u64::from(args.rounds) * (cases.len() * here.len()) as u64);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")?);
    let (mut times, mut lines, mut disturbed) = (Times::new(), Lines::new(), 0);
    let pair = [args.pin[0], args.pin[args.pairs as usize]];
    for round in 0..args.rounds as usize {
        disturbed += u32::from(!idle(Duration::from_secs(args.idle_seconds))?);
        for (index, case) in cases.iter().enumerate() {
            for turn in 0..here.len() {
                // Another one begins in each round.
                let peer = here[(turn + round) % here.len()];
                bar.set_message(format!("{} {}", peer.name(), case.name));
                let before = if case.is_small() { Some(cache_line_round_trip(pair)?) } else { None };
                if let Some(ns) = peer.measure(args, case)? {
                    times.entry((index, peer)).or_default().push(ns);
                    if let Some(before) = before {
                        let after = cache_line_round_trip(pair)?;
                        let line = is_same_place(before, after).then_some((before + after) / 2.0);
                        lines.entry((index, peer)).or_default().push(line);
                    }
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    if args.json {
        print_json(args, &cases, &times, &lines, disturbed, &absent)?;
    } else {
        print_table(&cases, &times, &here, &lines, disturbed)?;
    }
    let missed = missed(&cases, &times, &lines);
    if let Some(file) = &args.svg {
        draw(file, &cases, &times, &here)?;
    }
    Ok(match args.judge {
        true if disturbed > 0 => {
            eprintln!("peers: {disturbed} of {} rounds began on a busy machine: nothing is judged", args.rounds);
            ExitCode::from(69)
        }
        true if !missed.is_empty() => {
            missed.iter().for_each(|line| eprintln!("peers: missed: {line}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    })
}

fn missed(cases: &[Case], times: &Times, lines: &Lines) -> Vec<String> {
    let judged = cases.iter().enumerate().filter_map(|(index, case)| {
        let (ours, best, peer) = best(times, index)?;
        let (what, holds) = bar(case, ours, best, Steady::of(times, lines, index).as_ref())?;
        (!holds).then(|| format!("{}: {ours:.0} ns, {} {best:.0} ns: {what}", case.name, peer.name()))
    });
    judged.collect()
}

fn print_json(
    args: &Args,
    cases: &[Case],
    times: &Times,
    lines: &Lines,
    disturbed: u32,
    absent: &[Peer],
) -> Outcome<()> {
    let mut rows = Map::new();
    for (index, case) in cases.iter().enumerate() {
        let mut row = Map::new();
        row.insert("bytes".into(), case.bytes.into());
        for peer in Peer::ALL {
            if let Some((median, min, max)) = times.get(&(index, peer)).and_then(|times| spread(times)) {
                let spread = json!({ "median_ns": median, "min_ns": min, "max_ns": max });
                row.insert(peer.name().into(), spread);
            }
        }
        if let Some((ours, best, peer)) = best(times, index) {
            row.insert("best_peer".into(), peer.name().into());
            row.insert("ratio_to_best".into(), (ours / best).into());
            row.insert("rate_ratio_to_best".into(), (best / ours).into());
            if let Some(Steady { rounds, ratio, beyond }) = Steady::of(times, lines, index) {
                row.insert("steady_rounds".into(), rounds.into());
                row.insert("steady_ratio_to_best".into(), ratio.into());
                row.insert("ratio_beyond_cache_line".into(), beyond.into());
            }
        }
        rows.insert(case.name.clone(), row.into());
    }
    let absent: Vec<&str> = absent.iter().map(|peer| peer.name()).collect();
    let line = spread(&all_of(lines)).map(|(median, min, max)| json!({ "median": median, "min": min, "max": max }));
    let all = json!({
        "rounds": args.rounds, "pairs": args.pairs, "disturbed_rounds": disturbed, "absent": absent,
        "cache_line_round_trip_ns": line, "cases": rows,
    });
    writeln!(std::io::stdout(), "{all:#}")?;
    Ok(())
}

fn print_table(cases: &[Case], times: &Times, here: &[Peer], lines: &Lines, disturbed: u32) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{:<34}", "ns a message, medians")?;
    here.iter().try_for_each(|peer| write!(out, " {:>12}", peer.name()))?;
    writeln!(out, " {:>8} {:>22}", "ratio", "spread of rerail")?;
    for (index, case) in cases.iter().enumerate() {
        write!(out, "{:<34}", case.name)?;
        for &peer in here {
            let time = times.get(&(index, peer)).and_then(|times| spread(times));
            match time {
                Some((median, ..)) => write!(out, " {median:>12.1}")?,
                None => write!(out, " {:>12}", "-")?,
            }
        }
        let own = times.get(&(index, Peer::Rerail)).and_then(|times| spread(times));
        if let (Some((ours, best, _)), Some((_, min, max))) = (best(times, index), own) {
            write!(out, " {:>8.2} {min:>10.1} to {max:.1}", ours / best)?;
            if let Some((what, holds)) = bar(case, ours, best, Steady::of(times, lines, index).as_ref()) {
                write!(out, "  {} ({what})", if holds { "holds" } else { "MISSED" })?;
            }
        }
        writeln!(out)?;
    }
    if let Some((median, min, max)) = spread(&all_of(lines)) {
        writeln!(out, "a cache line, there and back: {median:.0} ns ({min:.0} to {max:.0})")?;
    }
    if disturbed > 0 {
        writeln!(out, "{disturbed} rounds began on a busy machine")?;
    }
    Ok(())
}

/// Latencies over the size, both axes logarithmic.
fn draw(file: &PathBuf, cases: &[Case], times: &Times, here: &[Peer]) -> Outcome<()> {
    let series = |peer: Peer| -> Vec<(f64, f64)> {
        let is_plain = |case: &Case| case.measure == Measure::Latency && !case.allocated && !case.fresh && !case.tcp;
        let points = cases.iter().enumerate().filter(|(_, case)| is_plain(case));
        let point = |(index, case): (usize, &Case)| {
            let (median, ..) = spread(times.get(&(index, peer))?)?;
            Some((case.bytes as f64, median / 1e3))
        };
        points.filter_map(point).collect()
    };
    let all: Vec<(f64, f64)> = here.iter().flat_map(|&peer| series(peer)).collect();
    let top = all.iter().map(|point| point.1).fold(1.0, f64::max);
    let low = all.iter().map(|point| point.1).fold(1.0, f64::min);
    let root = SVGBackend::new(file, (900, 500)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("half a round trip over shared memory", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d((8.0..(32 << 20) as f64).log_scale(), (low * 0.8..top * 1.2).log_scale())?;
    chart.configure_mesh().x_desc("bytes").y_desc("us").draw()?;
    for (index, &peer) in here.iter().enumerate() {
        let style = Palette99::pick(index).stroke_width(if peer == Peer::Rerail { 3 } else { 1 });
        chart
            .draw_series(LineSeries::new(series(peer), style))?
            .label(peer.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart.configure_series_labels().border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
