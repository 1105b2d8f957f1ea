//! Liars, drawn.

use crate::rails::{LIES, Lie};
use crate::rng::Rng;
use crate::scenario::{LiarSpec, Scenario, Span};

/// Makes one rank of a drawn simulation a liar, in every third of those with three ranks or more (about every sixth of
/// all). With fewer, it would have no honest peers that it could come between.
pub fn add(scenario: &mut Scenario, seed: u64) {
    let rng = &mut Rng::new(seed, "a liar");
    if scenario.size() < 3 || !rng.one_in(3) {
        return;
    }
    scenario.liar = Some(draw(scenario, rng));
    if scenario.config.keepalive.is_none() {
        // Its process is killed, and who waits for it alone must notice.
        let shortest = scenario.config.stall_min.unwrap_or_default();
        scenario.config.keepalive = Some(Span(shortest.0.max(200_000) << rng.within(2, 5)));
    }
}

fn draw(scenario: &Scenario, rng: &mut Rng) -> LiarSpec {
    let until = rng.within(scenario.limits.safety.0 / 2, scenario.limits.safety.0);
    let from = if rng.one_in(2) { 0 } else { rng.below(until / 4 + 1) };
    // Many lies end a channel at once: a liar that tells few sorts of them, seldom, comes further.
    let one_in = *rng.pick(&[1, 2, 4, 8]).unwrap_or(&2);
    let mut lies: Vec<Lie> = LIES.into_iter().filter(|_| rng.one_in(one_in)).collect();
    if lies.is_empty() {
        lies.extend(rng.pick(&LIES).copied());
    }
    let rates = [3, 10, 30, 100, 300];
    LiarSpec {
        rank: rng.below(scenario.size().into()) as u32,
        from: Span(from),
        until: Span(until),
        altered_per_thousand: *rng.pick(&rates).unwrap_or(&10),
        forged_per_thousand: *rng.pick(&rates).unwrap_or(&10),
        lies,
    }
}
