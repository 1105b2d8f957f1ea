//! What `perf` prints: a line per size.

use serde::Serialize;

use crate::cli::{Measure, Operation, PerfArgs};
use crate::exit::Failure;
use crate::output::stats::Latency;
use crate::output::{Align, Table, bold, json, microseconds, rate, write_stdout};
use crate::session::Path;

use super::batch::{Spread, of_pairs};
use super::rails::{RailLine, render};

/// The result for one size.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Bytes of a message.
    pub bytes: u64,
    /// Latency, where that was measured.
    pub latency: Option<Latency>,
    /// Messages that were measured.
    pub messages: u64,
    /// Bytes per second (from the mean, for latency).
    pub bytes_per_second: f64,
    /// Messages per second.
    pub messages_per_second: f64,
    /// With --batch: what the batches came to.
    pub batches: Option<Spread>,
    /// What each rail carried of it.
    pub rails: Vec<RailLine>,
}

impl Line {
    /// From latencies; empty on the rank that does not measure.
    pub fn of_latency(bytes: u64, latency: Option<Latency>) -> Line {
        let per_second = latency.map_or(0.0, |latency| 1e9 / latency.average_ns.max(1) as f64);
        let messages = latency.map_or(0, |latency| latency.samples);
        Line {
            bytes,
            latency,
            messages,
            bytes_per_second: bytes as f64 * per_second,
            messages_per_second: per_second,
            batches: None,
            rails: Vec::new(),
        }
    }

    /// From batches; empty on the rank that does not measure. The rates are those of the median batch.
    pub fn of_batches(bytes: u64, batches: Option<Spread>) -> Line {
        let per_second = batches.map_or(0.0, |spread| 1e9 / spread.median_ns.max(1e-3));
        let messages = batches.map_or(0, |spread| spread.batches * spread.messages);
        Line {
            bytes,
            latency: None,
            messages,
            bytes_per_second: bytes as f64 * per_second,
            messages_per_second: per_second,
            batches,
            rails: Vec::new(),
        }
    }

    /// From batches of several pairs at once; empty where there are none. The rates are those of all median
    /// batches together.
    pub fn of_pairs(bytes: u64, spreads: &[Spread]) -> Line {
        let line = Line::of_batches(bytes, of_pairs(spreads));
        let per_second = spreads.iter().map(|spread| 1e9 / spread.median_ns.max(1e-3)).sum::<f64>();
        Line { messages_per_second: per_second, bytes_per_second: bytes as f64 * per_second, ..line }
    }

    /// From messages in so many seconds.
    pub fn of_stream(bytes: u64, messages: u64, seconds: f64) -> Line {
        let per_second = messages as f64 / seconds.max(1e-9);
        Line {
            bytes,
            latency: None,
            messages,
            bytes_per_second: bytes as f64 * per_second,
            messages_per_second: per_second,
            batches: None,
            rails: Vec::new(),
        }
    }
}

/// All sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    measure: &'static str,
    operation: &'static str,
    path: Path,
    window: Option<u64>,
    pairs: u32,
    verified: bool,
    sizes: Vec<Line>,
    rails: Vec<RailLine>,
}

impl Report {
    /// Of a measurement that went well.
    pub fn new(args: &PerfArgs, path: Path, verified: bool, sizes: Vec<Line>, rails: Vec<RailLine>) -> Report {
        let measure = match args.measure {
            Measure::Latency => "latency",
            Measure::Bandwidth => "bandwidth",
            Measure::Bidirectional => "bidirectional",
            Measure::Rate => "rate",
            Measure::Mixed => "mixed",
            Measure::Meet => "meet",
            Measure::All => "all",
        };
        let operation = match args.op {
            _ if args.baseline => "bare sockets",
            Operation::Send => "send",
            Operation::Put => "put",
            Operation::Get => "get",
        };
        let window = (args.measure != Measure::Latency && !args.measure.is_of_many()).then_some(args.window);
        Report { measure, operation, path, window, pairs: args.pairs, verified, sizes, rails }
    }

    /// As JSON, or as a table.
    pub fn print(&self, as_json: bool) -> Result<(), Failure> {
        if as_json { json(self) } else { write_stdout(&self.render()) }
    }

    fn is_batched(&self) -> bool {
        self.sizes.iter().any(|line| line.batches.is_some())
    }

    fn render(&self) -> String {
        let mut table = Table::new(&[
            ("size B", Align::Right),
            (if self.is_batched() { "min us" } else { "avg us" }, Align::Right),
            ("median us", Align::Right),
            (if self.is_batched() { "max us" } else { "p99 us" }, Align::Right),
            ("p99.9 us", Align::Right),
            ("MB/s", Align::Right),
            ("messages/s", Align::Right),
            ("by rail", Align::Left),
        ]);
        for line in &self.sizes {
            let time = |pick: fn(&Latency) -> u64| {
                line.latency.as_ref().map_or("-".to_owned(), |latency| microseconds(pick(latency)))
            };
            let batch = |pick: fn(&Spread) -> f64| line.batches.as_ref().map(|spread| fine(pick(spread)));
            table.row([
                line.bytes.to_string(),
                batch(|spread| spread.min_ns).unwrap_or_else(|| time(|latency| latency.average_ns)),
                batch(|spread| spread.median_ns).unwrap_or_else(|| time(|latency| latency.median_ns)),
                batch(|spread| spread.max_ns).unwrap_or_else(|| time(|latency| latency.p99_ns)),
                time(|latency| latency.p999_ns),
                rate(line.bytes_per_second),
                format!("{:.0}", line.messages_per_second),
                shares(&line.rails),
            ]);
        }
        let window = self.window.map_or(String::new(), |window| format!(", window of {window}"));
        let pairs = if self.pairs > 1 { format!(", {} pairs at once", self.pairs) } else { String::new() };
        let verified = if self.verified { ", every byte verified" } else { "" };
        let title = format!("{} of {} over {}{window}{pairs}{verified}", self.measure, self.operation, self.path);
        let rails = render(&self.rails);
        let gap = if rails.is_empty() { "" } else { "\n\n" };
        format!("{}\n{}{gap}{rails}", bold(&title), table.render())
    }
}

/// Nanoseconds as microseconds: batches are measured finer than single messages.
fn fine(ns: f64) -> String {
    format!("{:.3}", ns / 1e3)
}

/// Which parts of the bytes rails carried, where there is more than one rail.
fn shares(rails: &[RailLine]) -> String {
    let total = rails.iter().map(|rail| rail.bytes).sum::<u64>();
    if rails.len() < 2 || total == 0 {
        return String::new();
    }
    let share = |rail: &RailLine| format!("{:.0}", 100.0 * rail.bytes as f64 / total as f64);
    format!("{} %", rails.iter().map(share).collect::<Vec<_>>().join(" + "))
}
