//! `rerail perf`: latency, bandwidth and message rate between two ranks, in the columns of the benchmarks of
//! this field.

mod baseline;
mod batch;
pub mod ends;
pub mod kernel;
mod many;
mod mixed;
pub mod pin;
pub mod rails;
mod report;
pub mod steady;

use std::time::Duration;

use rerail_core::endpoint::Window;
use rerail_core::mem::Seg;
use rerail_linux::bootstrap::server::OnFailure;

use crate::cli::{Measure, Operation, PathChoice, PerfArgs};
use crate::exchange::{describe, pattern};
use crate::exit::{Exit, Failure};
use crate::launch;
use crate::output::stats::Latency;
use crate::session::{Path, Session};

use batch::{Batches, Spread};
use ends::Plan;
use kernel::{Access, Buffers, Kernel, KernelError, Load, Pair, window_key};
use rails::Rails;
use report::{Line, Report};

/// Memory for messages, each way, unless one message is larger.
const BUFFER_BYTES: u64 = 64 << 20;
/// Sizes without `--sizes`: latency.
const SIZES_LATENCY: [u64; 9] = [0, 8, 64, 512, 4 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20];
/// Bandwidth.
const SIZES_BANDWIDTH: [u64; 7] = [64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20];
/// Message rate.
const SIZES_RATE: [u64; 4] = [0, 8, 64, 512];
/// Polls for so long before it sleeps: here latency counts, not the other processes.
const SPIN: Duration = Duration::from_millis(20);
/// The same for streams over verbs, of the side with the memory that is read or written: the devices move the
/// payload, so it has nothing to do for long. Where the device is software, as Soft-RoCE is, polling would
/// take the processor that the payload needs. perftest's other side sleeps, too, where it is written to or
/// read from.
const SPIN_STREAM: Duration = Duration::from_micros(200);
/// How long to wait at most for the peer's BYE.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);
/// The key of each rank's window, the rank added.
const WINDOW: u64 = 0x7065_7266_0000_0000;

/// Launches two ranks, or is one of them.
pub fn run(args: &PerfArgs) -> Result<Exit, Failure> {
    let is_mixed = args.measure == Measure::Mixed;
    if args.op != Operation::Send && matches!(args.measure, Measure::Bidirectional | Measure::Mixed) {
        return Err(Failure::usage("bidirectional and mixed have no --op"));
    }
    if is_mixed && (args.iterations.is_some() || args.warmup.is_some()) {
        return Err(Failure::usage("mixed goes on for --seconds, not for --iterations"));
    }
    let over_time = matches!(args.measure, Measure::Bandwidth | Measure::Bidirectional | Measure::Mixed);
    if args.seconds.is_some() && (args.op != Operation::Send || !over_time) {
        return Err(Failure::usage("--seconds is for mixed, and for bandwidth and bidirectional by --op send"));
    }
    if args.seconds.is_some() && args.sizes.len() > 1 && !is_mixed {
        return Err(Failure::usage("--seconds measures messages of one size"));
    }
    if args.batch.is_some() && matches!(args.measure, Measure::Bidirectional | Measure::Mixed) {
        return Err(Failure::usage("--batch measures latency, bandwidth or rate"));
    }
    if args.measure.is_of_many() && (args.op != Operation::Send || args.fresh || ends::is_pair(&args.run.ends)) {
        return Err(Failure::usage("meet and all launch their ranks, 2 for each of --pairs, and have no --op"));
    }
    let ranks = 2 * args.pairs as usize;
    if !args.pin.is_empty() && (args.pin.len() != ranks || ends::is_pair(&args.run.ends)) {
        let why = format!("--pin names {ranks} processors, one for each rank that perf launches: --pin 0,1");
        return Err(Failure::usage(why));
    }
    if args.pairs > 1 && args.batch.is_none() && !args.measure.is_of_many() {
        return Err(Failure::usage("--pairs needs --batch"));
    }
    if args.pairs > 1 && ends::is_pair(&args.run.ends) {
        return Err(Failure::usage("--pairs launches its ranks: it goes with neither --listen nor --connect"));
    }
    if args.baseline {
        let over_tcp = args.path == PathChoice::Tcp || ends::is_pair(&args.run.ends);
        if !over_tcp || matches!(args.measure, Measure::Bidirectional | Measure::Mixed) {
            return Err(Failure::usage("--baseline measures latency, bandwidth or rate with --path tcp"));
        }
        return baseline::run(args);
    }
    if !ends::is_pair(&args.run.ends) && !launch::is_launched() {
        ends::check(&args.run.ways)?;
        return supervise(args.path, args.pairs);
    }
    let mut args = args.clone();
    let (mut session, first) = ends::open(&args.run)?;
    if ends::is_pair(&args.run.ends) {
        let mut plan = Plan::of(&args);
        ends::agree(&mut session, &mut plan)?;
        plan.give(&mut args);
    }
    if session.size() != 2 * args.pairs {
        let (wanted, launched) = (2 * args.pairs, session.size());
        return Err(Failure::usage(format!("perf runs between {wanted} ranks, {launched} were launched")));
    }
    let pair = match args.pairs {
        1 => Pair { first, second: 1 - first },
        pairs => Pair { first: session.rank() % pairs, second: session.rank() % pairs + pairs },
    };
    let peer = pair.other(session.rank());
    let streams = matches!(args.measure, Measure::Bandwidth | Measure::Bidirectional);
    let over_verbs = session.path(peer) == Path::Verbs;
    session.set_spin(if streams && over_verbs { SPIN_STREAM } else { SPIN }, SPIN);
    // Processes of a pair may stand on hosts of their own.
    let pinned =
        match args.pin.get(session.rank() as usize) {
            Some(&processor) => Some(pin::Pinned::to_processor(processor).ok_or_else(|| {
                Failure::usage(format!("--pin: this process can't be pinned to processor {processor}"))
            })?),
            None => (!ends::is_pair(&args.run.ends) && !args.measure.is_of_many())
                .then(|| pin::Pinned::to(session.rank() as usize))
                .flatten(),
        };
    let mut verdict = Exit::Ok;
    if args.measure == Measure::Mixed {
        let mixed = mixed::run(&args, &mut session, pair)?;
        drop(pinned);
        verdict = mixed.verdict();
        if session.rank() == first {
            mixed.print(args.run.json)?;
        }
    } else if args.seconds.is_some() {
        let steady = steady::measure(&args, &mut session, pair)?;
        drop(pinned);
        if session.rank() == first {
            steady.print(args.run.json)?;
        }
    } else {
        let report = measure(&args, &mut session, pair)?;
        drop(pinned);
        if session.rank() == first {
            report.print(args.run.json)?;
        }
    }
    session.into_transport().finish(Some(SHUTDOWN_MAX)).map_err(Failure::usage)?;
    Ok(verdict)
}

/// Launches this program again as pairs of ranks on the path `path`.
pub fn supervise(path: PathChoice, pairs: u32) -> Result<Exit, Failure> {
    let hosts = match path {
        PathChoice::Shm => 1,
        PathChoice::Tcp | PathChoice::Verbs => 2,
    };
    let mut launcher = launch::hosts(launch::self_again()?, 2 * pairs, hosts)?;
    if path == PathChoice::Verbs {
        launcher = launcher.env("RERAIL_RAILS", "verbs");
    }
    launch::supervise(launcher.on_failure(OnFailure::LetOthersFinish))
}

fn sizes(args: &PerfArgs) -> Vec<u64> {
    match args.measure {
        _ if !args.sizes.is_empty() => args.sizes.clone(),
        Measure::Latency | Measure::Meet | Measure::All => SIZES_LATENCY.to_vec(),
        Measure::Bandwidth | Measure::Bidirectional | Measure::Mixed => SIZES_BANDWIDTH.to_vec(),
        Measure::Rate => SIZES_RATE.to_vec(),
    }
}

/// Round trips per size, those before measuring first.
fn round_trips(args: &PerfArgs, bytes: u64) -> (u64, u64) {
    let iterations = args.iterations.unwrap_or(((256 << 20) / bytes.max(1)).clamp(20, 5_000));
    (args.warmup.unwrap_or(iterations.div_ceil(10)), iterations)
}

/// Rounds of all ranks in a batch.
fn rounds(bytes: u64) -> u64 {
    ((1 << 20) / bytes.max(1)).clamp(1, 200)
}

fn load(args: &PerfArgs, bytes: u64) -> Load {
    let windows = args.iterations.unwrap_or(((1 << 30) / (bytes.max(256) * args.window)).clamp(2, 200));
    Load { bytes, window: args.window, warmup: args.warmup.unwrap_or(windows.div_ceil(10)), windows }
}

fn measure(args: &PerfArgs, session: &mut Session, pair: Pair) -> Result<Report, Failure> {
    let sizes = sizes(args);
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let bytes = BUFFER_BYTES.max(largest.next_multiple_of(64)).min(largest.next_multiple_of(64).max(64) * args.window);
    let buffers = Buffers { verify: args.verify, ..Buffers::allocate(session, bytes, args.mapped)? };
    expose(session, args, &buffers)?;
    let all = Rails::since_now(session);
    let mut lines = Vec::new();
    for size in sizes {
        let rails = Rails::since_now(session);
        if args.pairs > 1 {
            session.barrier(0)?;
        }
        let line = measure_size(args, session, pair, buffers, size);
        let mut line = line.map_err(|error| failure(session, size, error))?;
        if args.pairs > 1 {
            line = all_pairs(session, line)?;
        }
        lines.push(Line { rails: rails.lines(session), ..line });
    }
    let path = session.path(pair.other(session.rank()));
    let verified = judge_window(args, session, pair, &buffers)?;
    Ok(Report::new(args, path, verified, lines, all.lines(session)))
}

/// Of a size, what all pairs came to, for rank 0.
fn all_pairs(session: &mut Session, own: Line) -> Result<Line, Failure> {
    // Plain data of this crate's own: serialisation can't fail.
    let text = serde_json::to_vec(&own.batches).unwrap_or_default();
    let texts = session.collect(0, &text)?;
    let spreads = texts.iter().flatten().filter_map(|text| serde_json::from_slice::<Option<Spread>>(text).ok()?);
    Ok(Line::of_pairs(own.bytes, &spreads.collect::<Vec<_>>()))
}

/// Opens a window as large as the buffers where the operation needs one.
fn expose(session: &mut Session, args: &PerfArgs, buffers: &Buffers) -> Result<(), Failure> {
    let region = match args.op {
        Operation::Send => return Ok(()),
        Operation::Put => buffers.incoming,
        Operation::Get => buffers.outgoing,
    };
    let whole = Seg::new(region, 0, buffers.bytes);
    let access = rerail_core::endpoint::Access {
        read: args.op == Operation::Get,
        write: args.op == Operation::Put,
        atomic: false,
    };
    let key = WINDOW + u64::from(session.rank());
    session.expose(&Window::new(whole.at, whole.len, access, key))?;
    session.barrier(0)?;
    Ok(())
}

/// After all puts: the target checks the written bytes (from the start of its window, as far as the largest
/// message). Returns whether bytes were verified.
fn judge_window(args: &PerfArgs, session: &mut Session, pair: Pair, buffers: &Buffers) -> Result<bool, Failure> {
    session.barrier(0)?;
    if args.verify && args.op == Operation::Put && session.rank() == pair.second {
        let largest = args.sizes.iter().copied().max().unwrap_or(8).min(buffers.bytes);
        let written = session.copied(Seg::new(buffers.incoming, 0, largest));
        if let Some(difference) = pattern::compare(&window_key(pair.first), 0, &written) {
            return Err(Failure::verification(format!("rank {}, after puts: {}", pair.second, describe(&difference))));
        }
    }
    Ok(args.verify)
}

fn measure_size(
    args: &PerfArgs,
    session: &mut Session,
    pair: Pair,
    buffers: Buffers,
    bytes: u64,
) -> Result<Line, KernelError> {
    let access = match args.op {
        Operation::Send => None,
        op => {
            let window = WINDOW + u64::from(pair.other(session.rank()));
            Some(Access { put: op == Operation::Put, window })
        }
    };
    // Puts and gets move bytes that were written before the start.
    let verify = buffers.verify && args.op != Operation::Put;
    let batch = args.batch.or_else(|| args.measure.is_of_many().then(|| rounds(bytes)));
    if let Some(batch) = batch {
        let batches = Batches { batch, count: args.iterations.unwrap_or(21), warmup: args.warmup.unwrap_or(2) };
        let spread = match (args.measure, access) {
            (Measure::Meet | Measure::All, _) => {
                many::rounds(session, args.measure == Measure::Meet, buffers, bytes, batches)?
            }
            (Measure::Latency, Some(access)) => batch::accesses(session, pair, buffers, (access, bytes, 1), batches)?,
            (_, Some(access)) => batch::accesses(session, pair, buffers, (access, bytes, args.window), batches)?,
            (Measure::Latency, None) => batch::ping_pong(session, pair, buffers, (bytes, args.fresh), batches)?,
            (_, None) => batch::windows(session, pair, buffers, (bytes, args.window, args.fresh), batches)?,
        };
        return Ok(Line::of_batches(bytes, spread));
    }
    let mut kernel = Kernel::new(session, pair, Buffers { verify, ..buffers });
    if args.measure == Measure::Latency {
        let (warmup, iterations) = round_trips(args, bytes);
        let mut samples = match access {
            None => kernel.ping_pong(bytes, warmup, iterations)?,
            Some(access) => kernel.access(access, bytes, (warmup, iterations))?,
        };
        let latency = Latency::of(&mut samples);
        return Ok(Line::of_latency(bytes, latency));
    }
    let load = load(args, bytes);
    let both_ways = args.measure == Measure::Bidirectional;
    let seconds = match access {
        None => kernel.stream(&load, both_ways)?,
        Some(access) => kernel.access_stream(access, &load)?,
    };
    let messages = load.messages() * if both_ways { 2 } else { 1 };
    Ok(Line::of_stream(bytes, messages, seconds))
}

/// What a measurement with messages of `size` bytes failed by.
pub fn failure(session: &Session, size: u64, error: KernelError) -> Failure {
    match error {
        KernelError::Session(error) => error.into(),
        KernelError::Different(difference) => {
            Failure::verification(format!("rank {}, messages of {size} B: {}", session.rank(), describe(&difference)))
        }
        KernelError::PeerGone => Failure::peer_lost(match session.lost().iter().next() {
            Some((&peer, &why)) => session.describe_lost(peer, why),
            None => format!("the peer of rank {} left before the end", session.rank()),
        }),
    }
}
