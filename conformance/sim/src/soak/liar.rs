//! Liars, drawn.

use crate::rails::{LIES, Lie};
use crate::rng::Rng;
use crate::scenario::{LiarSpec, Scenario, Span};

/// Makes one rank of a drawn simulation a liar, in every third of those with three ranks or more (about every
/// sixth of all). With fewer, it would have no honest peers that it could come between.
pub fn add(scenario: &mut Scenario, seed: u64) {
    let rng = &mut Rng::new(seed, "a liar");
    if scenario.size() < 3 || !rng.one_in(3) {
        return;
    }
    scenario.liar = Some(draw(scenario, rng));
    // Peers part here while both live. A rail that closes a connection whose device keeps a completion back
    // waits for that, and then for what it gives back of the rest: twice as long as where a connection fails
    // (`VerbsOptions::drain_time`).
    scenario.limits.rest = scenario.limits.rest.max(Span::from_millis(2_500));
    if scenario.config.keepalive.is_none() {
        // Its process is killed, and a rank that waits for it alone must notice.
        let shortest = scenario.config.stall_min.unwrap_or_default();
        scenario.config.keepalive = Some(Span(shortest.0.max(200_000) << rng.within(2, 5)));
    }
}

fn draw(scenario: &Scenario, rng: &mut Rng) -> LiarSpec {
    let until = rng.within(scenario.limits.safety.0 / 2, scenario.limits.safety.0);
    let from = if rng.one_in(2) { 0 } else { rng.below(until / 4 + 1) };
    // Many lies end a channel at once: a liar that uses few sorts of them comes further.
    let lies = match rng.below(4) {
        0 => LIES.to_vec(),
        _ => {
            let mut few: Vec<Lie> = (0..rng.within(1, 3)).filter_map(|_| rng.pick(&LIES).copied()).collect();
            few.sort_unstable();
            few.dedup();
            few
        }
    };
    let (altered, forged) = ([0, 3, 30, 200], [10, 50, 200, 1000]);
    LiarSpec {
        rank: rng.below(scenario.size().into()) as u32,
        from: Span(from),
        until: Span(until),
        altered_per_thousand: *rng.pick(&altered).unwrap_or(&10),
        forged_per_thousand: *rng.pick(&forged).unwrap_or(&10),
        lies,
    }
}
