//! A laboratory for policies: sets of rails that a seed draws, messages of all sizes over them, and every
//! policy's time beside that of the best rail alone, of the best policy, and of the best fixed split that a
//! search finds.
//!
//! Whole simulated clusters are too slow for a thousand sets: 64 MiB are 32 thousand frames there. Here two
//! real endpoints of the core stand in a loop of virtual time over rails that are lines with a rate, a
//! latency and a cost of each post, and that share bottlenecks. The seed decides everything, threads change
//! nothing but the time that it takes.
//!
//! Source: multirail-2004 5.4 (rails of unequal rate, changing load), widened to what issue 4 demands of
//! `balanced`.

mod case;
mod lines;
mod optimum;
mod pair;
mod report;
mod set;
#[cfg(test)]
mod tests;

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

pub use case::{Case, Contender, Pattern, Played, cases};
pub use optimum::{Optimum, optimum};
pub use pair::Posted;
pub use report::{CaseTrace, Demand, Outcome, Report, Shares, Size};
pub use set::{At, Bottleneck, Change, Declared, RAILS_MAX, Rail, RailSet, Sort};

use pair::{Region, config};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The first seed.
    pub from: u64,
    /// Sets of rails.
    pub seeds: u64,
    /// At a time; they change nothing but the time that it takes.
    pub threads: NonZero<usize>,
}

/// Plays all cases of all requested seeds; `on_done` receives how many seeds are done.
///
/// # Errors
/// The first thing that went wrong, in words: a request that failed, or a message that never came.
pub fn run(request: Request, on_done: &mut dyn FnMut(u64)) -> Result<Report, String> {
    let next = AtomicU64::new(0);
    let mut results: Vec<Option<Result<Vec<Outcome>, String>>> = (0..request.seeds).map(|_| None).collect();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..request.threads.get() {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= request.seeds {
                        return;
                    }
                    // No receiver takes results any more only where this thread's scope ends by a panic.
                    let _ = sender.send((index, seed(request.from.wrapping_add(index))));
                }
            });
        }
        drop(sender);
        for (done, (index, result)) in (1..).zip(receiver) {
            results[index as usize] = Some(result);
            on_done(done);
        }
    });
    let outcomes: Result<Vec<Vec<Outcome>>, String> =
        results.into_iter().map(|result| result.expect("every seed ends with a result, or the scope panics")).collect();
    Ok(Report::new(request.from, request.seeds, outcomes?.into_iter().flatten().collect()))
}

/// Plays all cases of one seed.
fn seed(seed: u64) -> Result<Vec<Outcome>, String> {
    cases(seed)
        .iter()
        .map(|case| outcome(case).map_err(|why| format!("seed {seed}, {} bytes: {why}", case.bytes)))
        .collect()
}

/// Plays one case with all contenders.
///
/// # Errors
/// What went wrong, in words.
pub fn outcome(case: &Case) -> Result<Outcome, String> {
    let config = config(case.set.rails.len());
    let mut regions = [Region::of(&config), Region::of(&config)];
    let play = |contender| Ok((contender, case.play(contender, &mut regions)?.ns));
    let times: Result<Vec<(Contender, f64)>, String> = case.contenders().into_iter().map(play).collect();
    Ok(Outcome::new(case, times?, optimum(case)))
}

/// Plays one case with one contender, and keeps all that can be reported of it.
///
/// # Errors
/// What went wrong, in words.
pub fn play(case: &Case, contender: Contender) -> Result<Played, String> {
    let config = config(case.set.rails.len());
    case.play(contender, &mut [Region::of(&config), Region::of(&config)])
}
