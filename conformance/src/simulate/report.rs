//! What runs came to, for people and for programs.

use rerail_sim::check::Verdict;
use rerail_sim::cluster::Report;
use rerail_sim::workload::Measured;
use serde::Serialize;

/// What a run took of the real machine: the only facts about it that differ from time to time.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Real time, in seconds.
    pub seconds: f64,
    /// Most bytes of the process that were in memory at once.
    pub peak_bytes: Option<u64>,
}

impl Took {
    /// Events per real second.
    pub fn events_per_second(self, report: &Report) -> f64 {
        if self.seconds > 0.0 { report.events as f64 / self.seconds } else { 0.0 }
    }

    /// Bytes in memory per rank, all that ranks share and the tool itself among them.
    pub fn peak_bytes_per_rank(self, report: &Report) -> Option<u64> {
        self.peak_bytes?.checked_div(report.ranks.into())
    }
}

/// One run, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The seed.
    pub seed: u64,
    /// One word.
    pub verdict: &'static str,
    /// All facts.
    pub facts: String,
    /// Ranks.
    pub ranks: u32,
    /// Virtual time that it took, in nanoseconds, until the last timer of engines that rest.
    pub virtual_ns: u64,
    /// Virtual time at which the workload was done on every rank, in nanoseconds; 0: it never was.
    pub done_ns: u64,
    /// Events processed.
    pub events: u64,
    /// Faults that happened.
    pub faults: u64,
    /// Real time that it took, in seconds.
    pub seconds: f64,
    /// Events per real second.
    pub events_per_second: f64,
    /// Bytes of state and payload pool of one rank.
    pub rank_bytes: u64,
    /// Bytes of ring memory per rank.
    pub ring_bytes_per_rank: u64,
    /// Most bytes of this process that were in memory at once.
    pub peak_bytes: Option<u64>,
    /// The same per rank.
    pub peak_bytes_per_rank: Option<u64>,
    /// What the workload measured, in virtual time.
    pub measured: Vec<MeasuredLine>,
}

/// Something measured, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredLine {
    /// What.
    pub what: &'static str,
    /// Bytes of a message.
    pub bytes: u64,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
}

impl RunReport {
    /// From a run.
    pub fn new(seed: u64, verdict: &Verdict, report: &Report, measured: &[Measured], took: Took) -> Self {
        let line = |&Measured { what, bytes, value, unit, .. }: &Measured| MeasuredLine { what, bytes, value, unit };
        RunReport {
            seed,
            verdict: verdict.word(),
            facts: verdict.to_string(),
            ranks: report.ranks,
            virtual_ns: report.virtual_ns,
            done_ns: report.done_ns,
            events: report.events,
            faults: report.faults,
            seconds: took.seconds,
            events_per_second: took.events_per_second(report),
            rank_bytes: report.state_bytes + report.pool_bytes,
            ring_bytes_per_rank: report.ring_bytes_per_rank(),
            peak_bytes: took.peak_bytes,
            peak_bytes_per_rank: took.peak_bytes_per_rank(report),
            measured: measured.iter().map(line).collect(),
        }
    }
}

/// The command that replays a drawn simulation.
pub fn replay(seed: u64, faults: &str) -> String {
    format!("rerail sim --seed {seed} --faults {faults}")
}
