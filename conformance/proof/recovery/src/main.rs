//! Goes through all states of all cases; see `README.md`. Exit codes: 0 every rule holds, 1 one does not.

use std::process::ExitCode;
use std::time::Instant;

use proof_recovery::model::Action;
use proof_recovery::state::{Case, broken};
use proof_recovery::sweep::sweep;
use stateright::{Checker, Model};

/// Cases of up to so many states are gone through by stateright too.
const TWICE_STATES_MAX: usize = 100_000;

fn main() -> ExitCode {
    println!("{:<54} {:>9} {:>10} {:>9} {:>6}", "case", "states", "steps", "complete", "s");
    let mut holds = true;
    for case in &Case::ALL {
        let start = Instant::now();
        let found = sweep(case, false);
        let seconds = start.elapsed().as_secs_f32();
        println!("{:<54} {:>9} {:>10} {:>9} {seconds:>6.1}", case.name, found.states, found.steps, found.complete);
        if let Some((way, rules)) = &found.broken {
            holds = false;
            for (_, rule) in broken::ALL.iter().filter(|(bit, _)| rules & bit != 0) {
                println!("BROKEN: {rule}");
            }
            print(way);
        }
        if let Some(way) = &found.apart {
            holds = false;
            println!("APART: there is no way on from");
            print(way);
        }
        if holds && found.states <= TWICE_STATES_MAX {
            let checker = case.checker().threads(2).spawn_bfs().join();
            let (states, discoveries) = (checker.unique_state_count(), checker.discoveries().len());
            println!("  stateright: {states} states, {discoveries} rules broken");
            holds &= states == found.states && discoveries == 0;
        }
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(way: &[Action]) {
    for action in way {
        println!("  {action:?}");
    }
}
