//! Many simulations, run on several threads.
//!
//! Each simulation is decided by its scenario and [`SEED`] alone, and results come back in the order of the
//! runs: the number of threads changes nothing but the time that it takes.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::FigureError;
use crate::check::Verdict;
use crate::cluster::Report;
use crate::scenario::Scenario;
use crate::soak;
use crate::trace::Trace;
use crate::workload::Measured;

/// The seed of all simulations: the papers' testbeds have nothing that is drawn.
pub(super) const SEED: u64 = 1;

/// A simulation to be run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which, for people.
    pub what: String,
    /// The scenario.
    pub scenario: Scenario,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Simulations that have ended.
    pub done: u64,
    /// Simulations submitted so far; more may follow.
    pub total: u64,
    /// The last that ended; empty: none has.
    pub what: String,
}

/// Runs simulations, and reports its progress.
pub struct Lab<'a> {
    threads: NonZero<usize>,
    on_step: &'a mut dyn FnMut(&Step),
    step: Step,
}

impl<'a> Lab<'a> {
    /// A lab that runs so many simulations at a time; `on_step` is called when some begin and when one has
    /// ended.
    pub fn new(threads: NonZero<usize>, on_step: &'a mut dyn FnMut(&Step)) -> Lab<'a> {
        Lab { threads, on_step, step: Step { done: 0, total: 0, what: String::new() } }
    }

    /// At a time.
    pub(super) fn threads(&self) -> NonZero<usize> {
        self.threads
    }

    /// Runs all; what each measured, in the order of `runs`.
    ///
    /// # Errors
    /// [`FigureError::Run`] for the first of `runs` that did not end clean, [`FigureError::Nothing`] for the
    /// first that measured nothing.
    pub fn run(&mut self, runs: &[Run]) -> Result<Vec<Vec<Measured>>, FigureError> {
        self.each(runs, run_one)
    }

    /// What `measure` makes of each, in the order of `runs`; for what a workload does not measure itself.
    ///
    /// # Errors
    /// That of the first of `runs` that has one.
    pub(super) fn each<T: Send>(
        &mut self,
        runs: &[Run],
        measure: impl Fn(&Run) -> Result<T, FigureError> + Sync,
    ) -> Result<Vec<T>, FigureError> {
        self.step.total += runs.len() as u64;
        (self.on_step)(&self.step);
        let mut results: Vec<_> = runs.iter().map(|_| None).collect();
        let (next, (sender, receiver)) = (AtomicUsize::new(0), mpsc::channel());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.get().min(runs.len()) {
                let (next, measure, sender) = (&next, &measure, sender.clone());
                scope.spawn(move || {
                    while let Some((index, run)) = take(next, runs) {
                        // No receiver takes results any more only where this thread's scope ends by a panic.
                        let _ = sender.send((index, measure(run)));
                    }
                });
            }
            drop(sender);
            for (index, result) in receiver {
                results[index] = Some(result);
                self.step.done += 1;
                self.step.what.clone_from(&runs[index].what);
                (self.on_step)(&self.step);
            }
        });
        results.into_iter().map(|result| result.expect("every run ends with a result, or the scope panics")).collect()
    }
}

/// The next run that was not taken.
fn take<'r>(next: &AtomicUsize, runs: &'r [Run]) -> Option<(usize, &'r Run)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    Some((index, runs.get(index)?))
}

/// When the last rank was done, in nanoseconds of virtual time.
pub(super) fn done_ns(run: &Run) -> Result<u64, FigureError> {
    clean(run).map(|(report, _)| report.done_ns)
}

fn run_one(run: &Run) -> Result<Vec<Measured>, FigureError> {
    let (_, measured) = clean(run)?;
    if measured.is_empty() { Err(FigureError::Nothing { what: run.what.clone() }) } else { Ok(measured) }
}

/// Runs a simulation that must end clean.
fn clean(run: &Run) -> Result<(Report, Vec<Measured>), FigureError> {
    let (verdict, report, measured) = soak::run(&run.scenario, SEED, Trace::off());
    match verdict {
        Verdict::Clean => Ok((report, measured)),
        other => Err(FigureError::Run { what: run.what.clone(), verdict: other.to_string() }),
    }
}
