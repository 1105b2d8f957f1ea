//! What runs came to, for people and for programs.

use rerail_sim::check::Verdict;
use rerail_sim::world::Report;
use serde::Serialize;

/// One run, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The seed.
    pub seed: u64,
    /// One word.
    pub verdict: &'static str,
    /// All that is known.
    pub facts: String,
    /// Ranks.
    pub ranks: u32,
    /// Virtual time that it took, in nanoseconds.
    pub virtual_ns: u64,
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
}

impl RunReport {
    /// From a run.
    pub fn new(seed: u64, verdict: &Verdict, report: &Report, seconds: f64) -> Self {
        RunReport {
            seed,
            verdict: verdict.word(),
            facts: verdict.to_string(),
            ranks: report.ranks,
            virtual_ns: report.virtual_ns,
            events: report.events,
            faults: report.faults,
            seconds,
            events_per_second: if seconds > 0.0 { report.events as f64 / seconds } else { 0.0 },
            rank_bytes: report.state_bytes + report.pool_bytes,
        }
    }
}

/// The command that replays a drawn world.
pub fn replay(seed: u64, faults: &str) -> String {
    format!("rerail sim --seed {seed} --faults {faults}")
}
