//! Simulation after simulation, each drawn from its seed whole: hosts, devices, rails, tables, traffic and
//! faults. What fails is made smaller and reported with the command that replays it.
//!
//! The habit is that of single-seed simulation (TigerBeetle's VOPR): break, heal, then demand that everything
//! ends well.

mod draw;
mod liar;
mod shrink;

use std::fmt;
use std::str::FromStr;

use rerail_core::time::Time;

use crate::check::{Crash, Deliveries, Verdict};
use crate::cluster::Report;
use crate::cluster::fault::{KINDS, Kind};
use crate::cover::Path;
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::workload::{Measured, run_checked, run_delivered};

pub use draw::draw_scenario;
pub use shrink::shrink;

/// Which faults simulations are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultMenu {
    /// None.
    Quiet,
    /// Those that lose nothing that retries don't bring back.
    Lossless,
    /// All that menus have ([`Kind::is_in_menus`]).
    All,
    /// These.
    Only(Vec<Kind>),
}

impl FaultMenu {
    /// The kinds of it.
    pub fn kinds(&self) -> Vec<Kind> {
        match self {
            FaultMenu::Quiet => Vec::new(),
            FaultMenu::Lossless => {
                KINDS.into_iter().filter(|kind| kind.is_in_menus() && !kind.needs_recovery()).collect()
            }
            FaultMenu::All => KINDS.into_iter().filter(|kind| kind.is_in_menus()).collect(),
            FaultMenu::Only(kinds) => kinds.clone(),
        }
    }
}

/// A word that names no fault and no set of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultMenuError {
    /// The word.
    pub word: String,
}

impl fmt::Display for FaultMenuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is no kind of fault: none, lossless, all, or of these, separated by commas:", self.word)?;
        KINDS.iter().try_for_each(|kind| write!(f, " {}", kind.word()))
    }
}

impl std::error::Error for FaultMenuError {}

impl FromStr for FaultMenu {
    type Err = FaultMenuError;

    fn from_str(text: &str) -> Result<Self, FaultMenuError> {
        let kind = |word: &str| {
            KINDS.into_iter().find(|kind| kind.word() == word).ok_or_else(|| FaultMenuError { word: word.to_owned() })
        };
        match text {
            "none" => Ok(FaultMenu::Quiet),
            "lossless" => Ok(FaultMenu::Lossless),
            "all" => Ok(FaultMenu::All),
            list => list.split(',').map(|word| kind(word.trim())).collect::<Result<_, _>>().map(FaultMenu::Only),
        }
    }
}

impl fmt::Display for FaultMenu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultMenu::Quiet => f.write_str("none"),
            FaultMenu::Lossless => f.write_str("lossless"),
            FaultMenu::All => f.write_str("all"),
            FaultMenu::Only(kinds) => {
                let words: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
                f.write_str(&words.join(","))
            }
        }
    }
}

/// Runs one simulation; a panic in it is a [`Verdict::Crash`].
pub fn run(scenario: &Scenario, seed: u64, trace: Trace) -> (Verdict, Report, Vec<Measured>) {
    caught(|| run_checked(scenario, seed, trace))
}

/// Runs one simulation twice, with the short way and without, on all ranks alike: the verdict is that of the
/// first run that is not clean; where both are, receives must have got the same ([`Deliveries`]), and the
/// second run must have taken the short way nowhere. The trace and the report are those of the first run, the
/// latter with the events of both.
pub fn run_both(scenario: &Scenario, seed: u64, trace: Trace) -> (Verdict, Report, Deliveries) {
    let run = |express: bool, trace: Trace| {
        let mut scenario = scenario.clone();
        scenario.config.express = Some(express);
        caught(|| run_delivered(&scenario, seed, trace))
    };
    let (verdict, mut report, with) = run(true, trace);
    if !verdict.is_good() {
        return (verdict, report, with);
    }
    let watched = Trace::watching();
    let (verdict, other, without) = run(false, watched.clone());
    report.events += other.events;
    let coverage = watched.coverage();
    let shorts = coverage.of(Path::ShortWay) + coverage.of(Path::ShortLeavesTheWay);
    if verdict.is_good() && shorts > 0 {
        let message = format!("{shorts} short messages came, though no rank sends any");
        return (Verdict::Crash(Crash { rank: None, at: Time(0), message }), report, with);
    }
    let verdict = if verdict.is_good() { with.difference(&without).unwrap_or(verdict) } else { verdict };
    (verdict, report, with)
}

fn caught<T: Default>(run: impl FnOnce() -> (Verdict, Report, T)) -> (Verdict, Report, T) {
    let run = std::panic::AssertUnwindSafe(run);
    match std::panic::catch_unwind(run) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let message = panic_message(&*panic);
            (Verdict::Crash(Crash { rank: None, at: Time(0), message }), Report::default(), T::default())
        }
    }
}

/// The message of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every third of these has messages for the express path.
    const SEEDS: u64 = 200;

    /// The short way against the tables: the same programmes, with and without, end well, and no receive gets
    /// another message, or another order of a sender's messages; messages take it, leave it, and find no room
    /// on it.
    #[test]
    fn deliveries_are_equal_with_and_without_express_path() {
        let (mut took, mut left, mut full, mut messages) = (0, 0, 0, 0);
        for seed in 1..=SEEDS {
            let fault_menu = if seed % 2 == 0 { FaultMenu::Quiet } else { FaultMenu::Lossless };
            let cluster = draw_scenario(seed, &fault_menu);
            if !cluster.workload.parameters.contains_key("plain_percent") {
                continue;
            }
            let trace = Trace::watching();
            let (verdict, _, deliveries) = run_both(&cluster, seed, trace.clone());
            assert_eq!(
                verdict,
                Verdict::Clean,
                "rerail soak --differential --from {seed} --seeds 1 --faults {fault_menu}"
            );
            let coverage = trace.coverage();
            took += coverage.of(Path::ShortWay);
            left += coverage.of(Path::ShortLeavesTheWay);
            full += coverage.of(Path::ShortFindsNoRoom);
            messages += deliveries.len();
        }
        let counts = [took, left, full, messages as u64];
        assert!(took > 200 && left > 20 && full > 10 && messages > 4_000, "took it, left it, no room, all: {counts:?}");
    }

    /// The same where other rails lead to the same peers, whose connections break and come back in mid-stream
    /// (S-12).
    #[test]
    fn the_short_way_beside_rails_that_come_and_go_delivers_the_same() {
        let fault_menu = FaultMenu::Only(vec![Kind::QpError, Kind::StreamReset]);
        let (mut beside, mut after) = (0, 0);
        for seed in 1..=600 {
            let cluster = draw_scenario(seed, &fault_menu);
            if !cluster.shm.others_beside {
                continue;
            }
            let trace = Trace::watching();
            let (verdict, ..) = run_both(&cluster, seed, trace.clone());
            assert_eq!(
                verdict,
                Verdict::Clean,
                "rerail soak --differential --from {seed} --seeds 1 --faults {fault_menu}"
            );
            beside += trace.coverage().of(Path::ShortBesideAnother);
            after += trace.coverage().of(Path::ShortAfterAnother);
        }
        assert!(beside > 100 && after > 10, "beside another rail: {beside}, after one has failed: {after}");
    }

    /// Of the simulations that soaks draw, every tenth and more takes the express path.
    #[test]
    fn many_drawn_simulations_use_the_express_path() {
        let takes = |seed: &u64| {
            let trace = Trace::watching();
            let _ = run(&draw_scenario(*seed, &FaultMenu::Quiet), *seed, trace.clone());
            trace.coverage().of(Path::ShortWay) > 0
        };
        let took = (1..=60).filter(takes).count();
        assert!(took >= 6, "{took} of 60");
    }

    /// L-26: ranks access each other's windows by themselves.
    #[test]
    fn drawn_simulations_access_mapped_windows_directly() {
        let mut took = 0;
        for seed in 1..=330 {
            let cluster = draw_scenario(seed, &FaultMenu::Quiet);
            if cluster.shm.maps().is_none() {
                continue;
            }
            let (verdict, report, _) = run(&cluster, seed, Trace::off());
            assert_eq!(verdict, Verdict::Clean, "seed {seed}");
            took += u32::from(report.mapped.direct > 0);
        }
        assert!(took > 10, "{took} with direct accesses");
    }
}
