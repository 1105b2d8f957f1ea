//! The rules can be broken: each bug that the protocol guards against is found, and breaks the rule that it
//! should.

use proof_recovery::state::broken::{EARLY, INCOMPLETE, LATE_WRITE, TWICE};
use proof_recovery::state::{Case, Mutant};
use proof_recovery::sweep::{Sweep, sweep};

/// Two deaths, in as few states as may be.
const PUT: Case = Case { deaths: 2, repairs: false, ..Case::PUT };
const MESSAGES: Case = Case { repairs: false, ..Case::MESSAGES };

fn run(mutant: Mutant, case: Case) -> Sweep {
    sweep(&Case { mutant: Some(mutant), ..case }, true)
}

/// The rules that `mutant` breaks in `case`, where it first breaks any.
fn rules(mutant: Mutant, case: Case) -> u8 {
    let (way, rules) = run(mutant, case).broken.unwrap_or_else(|| panic!("{mutant:?} breaks no rule"));
    println!("{mutant:?} breaks {rules:#x}: {way:?}");
    rules
}

#[test]
fn without_the_fence_things_go_out_again_too_early() {
    assert_eq!(rules(Mutant::NoFence, PUT), EARLY);
    assert_eq!(rules(Mutant::NoFence, MESSAGES), EARLY);
    assert_eq!(rules(Mutant::SeverLate, PUT), EARLY);
}

#[test]
fn put_restarted_before_the_fence_causes_a_late_write() {
    assert_eq!(rules(Mutant::ReleaseOnDown, PUT), LATE_WRITE);
    assert_eq!(rules(Mutant::RestartUnfenced, PUT), LATE_WRITE);
}

#[test]
fn fin_of_another_epoch_completes_a_partial_put() {
    assert_eq!(rules(Mutant::NoEpochs, PUT), INCOMPLETE);
    assert_eq!(rules(Mutant::OldFin, PUT), INCOMPLETE);
}

#[test]
fn resume_sent_beside_the_fin_completes_a_partial_put() {
    assert_eq!(rules(Mutant::ResumeBeside, PUT), INCOMPLETE);
}

#[test]
fn counting_a_redialled_rail_once_completes_a_partial_put() {
    assert_eq!(rules(Mutant::RailsCountedOnce, PUT), INCOMPLETE);
}

#[test]
fn without_the_window_an_atomic_is_applied_twice() {
    assert_eq!(rules(Mutant::NoWindow, MESSAGES), TWICE);
}

#[test]
fn claim_kept_after_a_rail_loss_blocks_the_retransmission() {
    let found = run(Mutant::ClaimKept, MESSAGES);
    assert_eq!(found.broken, None);
    println!("there is no way on from {:?}", found.apart.expect("the packet is taken for a duplicate for ever"));
}

/// Deadlines are needed: two ends may each stand on a connection that the other has left, of which neither is
/// notified.
#[test]
fn missing_loss_notification_causes_an_endless_wait() {
    let late = Case { rails: 1, cold: true, deaths: 1, races: 1, notices: false, ..MESSAGES };
    let found = sweep(&late, true);
    assert_eq!(found.broken, None);
    println!("there is no way on from {:?}", found.apart.expect("both are ready, each on its own"));
    assert_eq!(sweep(&Case { notices: true, ..late }, true).apart, None);
}
