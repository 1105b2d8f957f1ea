//! `rerail soak`: simulations, seed after seed, on all processors.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rerail_sim::check::{Verdict, gravity};
use rerail_sim::cluster::Report;
use rerail_sim::cover::Coverage;
use rerail_sim::scenario::Scenario;
use rerail_sim::soak;
use rerail_sim::trace::Trace;
use serde::Serialize;

use super::one::{how_to_replay, read};
use crate::cli::SoakArgs;
use crate::exit::Failure;
use crate::output::{Progress, bad, dim, good, json, write_stdout};

/// Runs that a failing simulation may be shrunk by.
const SHRINK_TRIES: u32 = 300;

/// Failing simulations that are looked into; a broken transport fails in most of them.
const FINDINGS_MAX: usize = 10;

/// The exit code where time was over before all simulations were run, and those that were are clean.
const TIME_WAS_OVER: u8 = 27;

/// The exit code where all simulations are clean, and some path was never taken that all had to be.
const PATH_MISSING: u8 = 28;

/// What a soak came to, for programs.
#[derive(Clone, Debug, Default, Serialize)]
struct SoakReport {
    /// Simulations that were run.
    seeds: u64,
    /// Simulations that were to be run.
    requested: u64,
    /// The time was over before all were run.
    time_was_over: bool,
    first_seed: u64,
    faults: String,
    verdicts: BTreeMap<&'static str, u64>,
    /// Simulations that took each rare path.
    coverage: BTreeMap<&'static str, u64>,
    /// Paths that had to be taken, and were not.
    missing: Vec<&'static str>,
    events: u64,
    seconds: f64,
    events_per_second: f64,
    findings: Vec<Finding>,
    /// Seeds of simulations that failed too and were not looked into.
    more: Vec<u64>,
}

/// A simulation that failed.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    seed: u64,
    verdict: &'static str,
    facts: String,
    replay: String,
    /// The smallest simulation that fails so, as a scenario file.
    shrunk: Option<String>,
    exit_code: u8,
    #[serde(skip)]
    gravity: u8,
}

#[derive(Default)]
struct Tally {
    verdicts: BTreeMap<&'static str, u64>,
    failed: Vec<(u64, Verdict)>,
    coverage: Coverage,
}

/// Runs simulations; the exit code is 0 where all are well, else that of the gravest verdict.
pub fn run(args: &SoakArgs) -> Result<ExitCode, Failure> {
    if args.from.checked_add(args.seeds - 1).is_none() {
        let (from, seeds) = (args.from, args.seeds);
        return Err(Failure::usage(format!("--from {from} --seeds {seeds}: the last seed there is is {}", u64::MAX)));
    }
    let file = args.scenario.as_deref().map(read).transpose()?;
    // Panics in simulations are verdicts; the process's own stay loud.
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let budget = args.minutes.map(|minutes| Duration::from_secs(minutes * 60));
    let report = soak_all(args, file.as_ref(), budget);
    std::panic::set_hook(loud);
    if let Some(folder) = &args.keep {
        keep(folder, &report.findings)?;
    }
    match args.json {
        true => json(&report)?,
        false => write_stdout(&render(&report))?,
    }
    Ok(ExitCode::from(report.exit_code()))
}

impl SoakReport {
    /// That of the gravest verdict; without any, fewer simulations than requested are no success either.
    fn exit_code(&self) -> u8 {
        let gravest = self.findings.iter().min_by_key(|finding| finding.gravity);
        match gravest {
            Some(finding) => finding.exit_code,
            None if self.time_was_over => TIME_WAS_OVER,
            None if !self.missing.is_empty() => PATH_MISSING,
            None => 0,
        }
    }
}

fn soak_all(args: &SoakArgs, file: Option<&Scenario>, budget: Option<Duration>) -> SoakReport {
    let cluster = |seed| file.cloned().unwrap_or_else(|| soak::draw_scenario(seed, &args.faults));
    let (next, done, events) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let tally = Mutex::new(Tally::default());
    let over = AtomicBool::new(false);
    let started = Instant::now();
    let threads = args.threads.map_or_else(
        || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        |threads| threads as usize,
    );
    let progress = Progress::steps(!args.json, args.seeds, "simulations");
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let late = budget.is_some_and(|budget| started.elapsed() >= budget);
                    if index >= args.seeds || late || over.load(Ordering::Relaxed) {
                        return;
                    }
                    let seed = args.from + index;
                    let trace = Trace::watching();
                    let (verdict, report) = run_one(args, &cluster(seed), seed, trace.clone());
                    events.fetch_add(report.events, Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                    // A poisoned lock would mean a panic here, which the thread's scope reports.
                    let mut tally = tally.lock().expect("no thread panics with the tally");
                    tally.coverage.add_simulation(&trace.coverage());
                    *tally.verdicts.entry(verdict.word()).or_default() += 1;
                    if !verdict.is_good() {
                        tally.failed.push((seed, verdict));
                        over.store(tally.failed.len() >= FINDINGS_MAX && !args.keep_going, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut drawn = 0;
        while drawn < args.seeds && !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
            drawn = done.load(Ordering::Relaxed);
            progress.set(drawn);
            let rate = events.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64() / 1e6;
            progress.set_status(|| format!("simulations, {rate:.2} million events a second"));
            if budget.is_some_and(|budget| started.elapsed() >= budget) {
                break;
            }
        }
    });
    progress.finish();
    let seconds = started.elapsed().as_secs_f64();
    let Tally { verdicts, mut failed, coverage } = tally.into_inner().expect("no thread panics with the tally");
    failed.sort_by_key(|(seed, _)| *seed);
    let findings = failed
        .iter()
        .take(FINDINGS_MAX)
        .map(|(seed, verdict)| finding(args, &cluster(*seed), *seed, verdict))
        .collect();
    let more = failed.iter().skip(FINDINGS_MAX).map(|(seed, _)| *seed).collect();
    let (events, seeds) = (events.into_inner(), done.into_inner());
    SoakReport {
        seeds,
        requested: args.seeds,
        time_was_over: seeds < args.seeds && !over.into_inner(),
        first_seed: args.from,
        faults: args
            .scenario
            .as_ref()
            .map_or_else(|| args.faults.to_string(), |file| format!("those of {}", file.display())),
        verdicts,
        coverage: coverage.iter().map(|(path, count)| (path.words(), count)).collect(),
        missing: coverage.missing().filter(|_| args.demand_coverage).map(|path| path.words()).collect(),
        events,
        seconds,
        events_per_second: events as f64 / seconds,
        findings,
        more,
    }
}

fn run_one(args: &SoakArgs, cluster: &Scenario, seed: u64, trace: Trace) -> (Verdict, Report) {
    if args.differential {
        let (verdict, report, _) = soak::run_both(cluster, seed, trace);
        return (verdict, report);
    }
    let (verdict, report, _) = soak::run(cluster, seed, trace);
    (verdict, report)
}

/// Looks into a simulation that failed.
fn finding(args: &SoakArgs, cluster: &Scenario, seed: u64, verdict: &Verdict) -> Finding {
    let shrunk = (!args.no_shrink).then(|| {
        let (mut least, tries) = soak::shrink(cluster, seed, SHRINK_TRIES, |candidate: &Scenario| {
            run_one(args, candidate, seed, Trace::off()).0.word() == verdict.word()
        });
        least.about =
            format!("{}: {} (shrunk in {tries} runs); replay with --seed {seed}", cluster.about, verdict.word());
        least.to_toml().unwrap_or_default()
    });
    Finding {
        seed,
        verdict: verdict.word(),
        facts: verdict.to_string(),
        replay: match &args.scenario {
            Some(file) if args.differential => {
                format!("rerail soak --differential --from {seed} --seeds 1 --scenario {}", file.display())
            }
            None if args.differential => {
                format!("rerail soak --differential --from {seed} --seeds 1 --faults {}", args.faults)
            }
            Some(file) => format!("rerail sim --seed {seed} --scenario {}", file.display()),
            None => how_to_replay(seed, &args.faults),
        },
        shrunk,
        exit_code: verdict.exit_code(),
        gravity: gravity(verdict),
    }
}

/// Writes the shrunk simulations into a folder.
fn keep(folder: &Path, findings: &[Finding]) -> Result<(), Failure> {
    let failed = |error| Failure::usage(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    for finding in findings {
        if let Some(text) = &finding.shrunk {
            std::fs::write(folder.join(format!("seed-{}.toml", finding.seed)), text).map_err(failed)?;
        }
    }
    Ok(())
}

fn render(report: &SoakReport) -> String {
    let mut text = format!(
        "{} simulations from seed {} on, faults: {}; {} events in {:.1} s, {:.2} million a second\n",
        report.seeds,
        report.first_seed,
        report.faults,
        report.events,
        report.seconds,
        report.events_per_second / 1e6
    );
    for (word, count) in &report.verdicts {
        text += &format!("{count:>9}  {word}\n");
    }
    for finding in &report.findings {
        text += &format!("\n{} {}\n", bad(&format!("seed {}", finding.seed)), finding.facts);
        if let Some(shrunk) = &finding.shrunk {
            text += &format!("{}\n{}\n", dim("the smallest simulation that fails so:"), shrunk.trim_end());
        }
        text += &format!("replay: {}\n", finding.replay);
    }
    if !report.more.is_empty() {
        let seeds: Vec<String> = report.more.iter().map(u64::to_string).collect();
        text += &format!("\nfailed as well: seeds {}\n", seeds.join(", "));
    }
    text += &coverage(report);
    match (report.findings.is_empty(), report.time_was_over) {
        (true, false) if report.missing.is_empty() => text += &good("all clean"),
        (true, false) => text += &bad(&format!("all clean, and never: {}", report.missing.join("; "))),
        (_, true) => text += &bad(&format!("{} of {}: time was over", report.seeds, report.requested)),
        (false, false) => {}
    }
    text.trim_end().to_owned()
}

/// How many simulations took each rare path, most of them first.
fn coverage(report: &SoakReport) -> String {
    let mut rows: Vec<(&str, u64)> = report.coverage.iter().map(|(path, count)| (*path, *count)).collect();
    rows.sort_by_key(|(path, count)| (std::cmp::Reverse(*count), *path));
    let rows: String = rows.iter().map(|(path, count)| format!("{count:>9}  {path}\n")).collect();
    format!("\n{}\n{rows}\n", dim("simulations that took rare paths:"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(line: &[&str]) -> SoakArgs {
        let words = ["rerail", "soak"].into_iter().chain(line.iter().copied());
        match Cli::try_parse_from(words).expect("arguments").command {
            Some(Command::Soak(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    /// Fewer simulations than requested are reported, and are no success.
    #[test]
    fn soak_that_runs_out_of_time_has_its_own_exit_code() {
        let args = args(&["--seeds", "7", "--json"]);
        let report = soak_all(&args, None, Some(Duration::ZERO));
        assert_eq!((report.seeds, report.exit_code()), (0, TIME_WAS_OVER));
        assert!(render(&report).ends_with("0 of 7: time was over"), "{}", render(&report));
        let report = soak_all(&args, None, None);
        assert_eq!((report.seeds, report.exit_code()), (7, 0));
        assert!(render(&report).ends_with("all clean"), "{}", render(&report));
    }
}
