//! The lab's own physics, and what holds of policies in it.

use super::*;

/// The same seed gives the same outcomes, however many threads there are.
#[test]
fn seeds_decide_everything() {
    let run = |threads| {
        let ask = Ask { from: 3, seeds: 4, threads: NonZero::new(threads).unwrap() };
        let report = run(ask, &mut |_| {}).unwrap();
        report.outcomes.into_iter().map(|outcome| (outcome.times, outcome.optimum_ns)).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(2));
}
