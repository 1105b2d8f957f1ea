//! Whether a mutant is found: by the tests that reach it, then by the simulations that do.
//!
//! A first run without a mutant notes which places each test and each seed reaches. All of these are
//! deterministic, so what does not reach a mutant's places can't find it, and is not run.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::compile::Built;
use crate::patches::Hunt;
use crate::process::{End, Run};
use crate::simulate::Finding;

/// Simulations that every mutant meets.
pub const SIMULATIONS: &str = "drawn all";

/// Tests that are run first, in one process: those that take so long together.
const FIRST: Duration = Duration::from_millis(500);

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "fate")]
pub enum Fate {
    /// This test of the core failed.
    Test { test: String },
    /// This simulation was not clean.
    Simulation { seed: u64, verdict: String },
    /// Tests or simulations did not end within ten times their processor time.
    Hung { by: String },
    /// Nothing found it. `reached`: tests and seeds that came by.
    Survived { tests: usize, seeds: usize },
    /// It is no program.
    NotCompiled,
}

impl Fate {
    /// Whether something found it.
    pub const fn is_killed(&self) -> bool {
        matches!(self, Fate::Test { .. } | Fate::Simulation { .. } | Fate::Hung { .. })
    }
}

/// A test or a seed, without a mutant.
struct Known<T> {
    name: T,
    takes: Duration,
    /// Mutants whose places it reaches.
    reaches: HashSet<u32>,
}

/// A test of the core.
#[derive(Clone, PartialEq, Eq)]
struct Test<'a> {
    /// The program that it is in.
    program: &'a Path,
    name: String,
}

/// Tests and simulations, and what they reach.
pub struct Bench<'a> {
    built: &'a Built,
    /// The quickest first.
    tests: Vec<Known<Test<'a>>>,
    seeds: Vec<Known<u64>>,
}

/// Does something for each item on all processors, and gives the answers in the items' order.
pub fn on_all_processors<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let failed = Mutex::new(None);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    match work(item) {
                        Ok(result) => *results[index].lock().expect("no worker panics") = Some(result),
                        Err(why) => {
                            *failed.lock().expect("no worker panics") = Some(why);
                            next.store(items.len(), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner().expect("no worker panics") {
        Some(why) => Err(why),
        None => Ok(results.into_iter().filter_map(|slot| slot.into_inner().expect("no worker panics")).collect()),
    }
}

/// Long enough for what takes `usual` on a busy machine with a switch at every place.
fn time_max(usual: Duration) -> Duration {
    Duration::from_secs(10) + usual * 10
}

fn test_arguments<'t>(tests: impl Iterator<Item = &'t Test<'t>>) -> Vec<String> {
    let mut arguments: Vec<String> = tests.map(|test| test.name.clone()).collect();
    arguments.extend(["--exact".to_owned(), "--test-threads=1".to_owned()]);
    arguments
}

fn simulate_arguments(simulations: &str, seeds: impl Iterator<Item = u64>) -> Vec<String> {
    let seeds: Vec<String> = seeds.map(|seed| seed.to_string()).collect();
    ["simulate", "--simulations", simulations, "--seeds", &seeds.join(",")].map(str::to_owned).to_vec()
}

/// The test of a line of libtest's that reports its failure.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_suffix(" ... FAILED").and_then(|line| line.split("test ").last())
}

fn read_reached(path: &Path) -> Result<HashSet<u32>, String> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let _ = std::fs::remove_file(path);
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

impl<'a> Bench<'a> {
    /// Runs every test and every seed without a mutant. `Err`: one of them fails.
    pub fn new(
        built: &'a Built,
        seeds: u64,
        without: &[String],
        state: &Path,
        done: &(dyn Fn() + Sync),
    ) -> Result<Bench<'a>, String> {
        let mut tests: Vec<Test<'_>> = Vec::new();
        for program in &built.tests {
            tests.extend(list(program)?.into_iter().map(|name| Test { program, name }));
        }
        tests.retain(|test| !without.iter().any(|word| test.name.contains(word.as_str())));
        let folder = state.join("reached");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut tests = on_all_processors(&tests, |test| {
            // Tests of two programs may have one name.
            let of_program = test.program.file_name().unwrap_or_default().to_string_lossy();
            let path = folder.join(format!("{of_program}-{}", test.name.replace("::", "-")));
            let (begun, arguments) = (Instant::now(), test_arguments(std::iter::once(test)));
            let (mutant, reached, time_max) = (0, Some(path.as_path()), Duration::from_secs(600));
            let end = Run { program: test.program, arguments, mutant, reached, time_max }.watch(|_| false)?;
            if end != End::Code(0) {
                return Err(format!("test {} fails without a mutant: {end:?}", test.name));
            }
            done();
            Ok(Known { name: test.clone(), takes: begun.elapsed(), reaches: read_reached(&path)? })
        })?;
        tests.sort_by_key(|test| test.takes);
        let numbers: Vec<u64> = (1..=seeds).collect();
        let seeds = on_all_processors(&numbers, |&seed| {
            let path = folder.join(format!("seed-{seed}"));
            let begun = Instant::now();
            let found = simulate(built, 0, SIMULATIONS, &[seed], Some(&path), Duration::from_secs(600))?;
            if let Simulated::Found(found) = found {
                return Err(format!("seed {seed} is not clean without a mutant: {}", found.text));
            }
            done();
            Ok(Known { name: seed, takes: begun.elapsed(), reaches: read_reached(&path)? })
        })?;
        Ok(Bench { built, tests, seeds })
    }

    /// Tests, and the time that all of them take; the same of seeds.
    pub fn size(&self) -> [(usize, Duration); 2] {
        let tests = self.tests.iter().map(|test| test.takes).sum();
        let seeds = self.seeds.iter().map(|seed| seed.takes).sum();
        [(self.tests.len(), tests), (self.seeds.len(), seeds)]
    }

    /// Looks for a mutant.
    pub fn judge(&self, mutant: u32) -> Result<Fate, String> {
        if self.built.dropped.contains(&mutant) {
            return Ok(Fate::NotCompiled);
        }
        let tests: Vec<&Known<Test<'_>>> = self.tests.iter().filter(|test| test.reaches.contains(&mutant)).collect();
        let mut sum = Duration::ZERO;
        let first = tests.iter().take_while(|test| {
            sum += test.takes;
            sum <= FIRST
        });
        let (first, rest) = tests.split_at(first.count());
        for part in [first, rest] {
            if let Some(fate) = self.judge_by_tests(mutant, part)? {
                return Ok(fate);
            }
        }
        let seeds: Vec<&Known<u64>> = self.seeds.iter().filter(|seed| seed.reaches.contains(&mutant)).collect();
        let usual = seeds.iter().map(|seed| seed.takes).sum();
        let numbers: Vec<u64> = seeds.iter().map(|seed| seed.name).collect();
        Ok(match simulate(self.built, mutant, SIMULATIONS, &numbers, None, time_max(usual))? {
            Simulated::Clean => Fate::Survived { tests: tests.len(), seeds: seeds.len() },
            Simulated::Found(Finding { seed, verdict, .. }) => Fate::Simulation { seed, verdict },
            Simulated::Hung => Fate::Hung { by: "simulations".to_owned() },
        })
    }

    fn judge_by_tests(&self, mutant: u32, tests: &[&Known<Test<'_>>]) -> Result<Option<Fate>, String> {
        for program in &self.built.tests {
            let of_program = tests.iter().copied().filter(|test| test.name.program == program);
            if let Some(fate) = self.judge_by_program(mutant, program, &of_program.collect::<Vec<_>>())? {
                return Ok(Some(fate));
            }
        }
        Ok(None)
    }

    /// By tests of one program.
    fn judge_by_program(
        &self,
        mutant: u32,
        program: &Path,
        tests: &[&Known<Test<'_>>],
    ) -> Result<Option<Fate>, String> {
        if tests.is_empty() {
            return Ok(None);
        }
        let arguments = test_arguments(tests.iter().map(|test| &test.name));
        let usual = tests.iter().map(|test| test.takes).sum();
        let mut failed = None;
        let mut running = String::new();
        let run = Run { program, arguments, mutant, reached: None, time_max: time_max(usual) };
        let end = run.watch(|line| {
            if let Some(test) = line.strip_prefix("test ").and_then(|line| line.split(" ... ").next()) {
                test.clone_into(&mut running);
            }
            failed = failed_test(line).map(str::to_owned);
            failed.is_some()
        })?;
        Ok(match (end, failed) {
            (End::Code(0), _) => None,
            (End::Hung, _) => Some(Fate::Hung { by: "tests".to_owned() }),
            (_, Some(test)) => Some(Fate::Test { test }),
            // Aborted: by a panic while panicking, by its stack, by memory.
            _ => Some(Fate::Test { test: format!("(behind {running}) aborted") }),
        })
    }

    /// Whether simulations find a mutant as its patch demands. `Err`: in one sentence why not.
    pub fn hunt(&self, mutant: u32, hunt: &Hunt) -> Result<Finding, String> {
        for seed in hunt.from..hunt.from + hunt.within {
            let time_max = Duration::from_secs(300);
            match simulate(self.built, 0, &hunt.simulations, &[seed], None, time_max)? {
                Simulated::Clean => {}
                _ => return Err(format!("seed {seed} raises an alarm without the mutant")),
            }
            match simulate(self.built, mutant, &hunt.simulations, &[seed], None, time_max)? {
                Simulated::Clean => {}
                Simulated::Hung => return Err(format!("seed {seed} does not end")),
                Simulated::Found(found) => {
                    let full = format!("{}: {}", found.verdict, found.checker);
                    let is_demanded = hunt.verdicts.iter().any(|word| *word == found.verdict || *word == full);
                    return match is_demanded {
                        true => Ok(found),
                        false => Err(format!("seed {seed} finds what it does not do: {full}: {}", found.text)),
                    };
                }
            }
        }
        Err(format!("not found within {} seeds from {} of {}", hunt.within, hunt.from, hunt.simulations))
    }
}

/// What came of simulations.
enum Simulated {
    Clean,
    Found(Finding),
    Hung,
}

fn simulate(
    built: &Built,
    mutant: u32,
    simulations: &str,
    seeds: &[u64],
    reached: Option<&Path>,
    time_max: Duration,
) -> Result<Simulated, String> {
    if seeds.is_empty() {
        return Ok(Simulated::Clean);
    }
    let arguments = simulate_arguments(simulations, seeds.iter().copied());
    let mut found = None;
    let end = Run { program: &built.tool, arguments, mutant, reached, time_max }.watch(|line| {
        found = serde_json::from_str::<Finding>(line).ok();
        found.is_some()
    })?;
    Ok(match (found, end) {
        (Some(found), _) => Simulated::Found(found),
        (None, End::Code(0)) => Simulated::Clean,
        (None, End::Hung) => Simulated::Hung,
        (None, End::Code(2)) => return Err(format!("simulations of {simulations} can't be run")),
        (None, end) => {
            let text = format!("the process ended: {end:?}");
            let (verdict, checker) = ("crash".to_owned(), "the process lives".to_owned());
            Simulated::Found(Finding { seed: seeds[0], verdict, checker, text })
        }
    })
}

/// Names of all tests of a program.
fn list(program: &Path) -> Result<BTreeSet<String>, String> {
    let arguments = ["--list", "--format=terse"].map(str::to_owned).to_vec();
    let mut names = BTreeSet::new();
    Run { program, arguments, mutant: 0, reached: None, time_max: Duration::from_secs(60) }.watch(|line| {
        names.extend(line.strip_suffix(": test").map(str::to_owned));
        false
    })?;
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_test_is_read_from_the_output_line() {
        assert_eq!(failed_test("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
    }

    #[test]
    fn parallel_results_keep_the_input_order() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(on_all_processors(&items, |item| Ok(item * 2)).unwrap()[99], 198);
        assert_eq!(
            on_all_processors(&items, |item| if *item == 50 { Err("no".to_owned()) } else { Ok(()) }),
            Err("no".into())
        );
    }
}
