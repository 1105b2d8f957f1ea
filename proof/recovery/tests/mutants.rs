//! The rules can be broken: each bug that the protocol guards against is found.

use proof_recovery::net::Body;
use proof_recovery::sweep::{Sweep, sweep};
use proof_recovery::world::broken::{EARLY, INCOMPLETE, LATE_WRITE, TWICE};
use proof_recovery::world::{Case, Mutant};

/// The rules that `mutant` breaks first in `case`.
fn rules(mutant: Mutant, case: Case) -> u8 {
    let found = run(mutant, case);
    let (way, rules) = found.broken.unwrap_or_else(|| panic!("{mutant:?} breaks no rule"));
    println!("{mutant:?} breaks {rules:#x}: {way:?}");
    rules
}

fn run(mutant: Mutant, case: Case) -> Sweep {
    sweep(&Case { mutant: Some(mutant), ..case }, true)
}

/// Two deaths, as few states as may be.
const PUT: Case = Case { deaths: 2, mends: false, ..Case::PUT };
const MESSAGES: Case = Case { mends: false, ..Case::MESSAGES };

#[test]
fn show() {
    for (m, c) in [
        (Mutant::NoFence, PUT), (Mutant::NoFence, MESSAGES), (Mutant::ReleaseOnDown, PUT), (Mutant::SeverLate, PUT), (Mutant::NoRounds, PUT), (Mutant::OldFin, PUT), (Mutant::ResumeBeside, PUT),
        (Mutant::ClaimKept, MESSAGES), (Mutant::NoWindow, MESSAGES), (Mutant::RailsCountedOnce, PUT), (Mutant::RestartUnfenced, PUT),
    ] {
        let f = run(m, c);
        println!("{m:?} states {} broken {:?} apart {:?}", f.states, f.broken, f.apart);
    }
    let _ = (Body::Atomic, EARLY, INCOMPLETE, LATE_WRITE, TWICE, rules as fn(Mutant, Case) -> u8);
}
