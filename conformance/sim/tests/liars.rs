//! A member of the job that lies harms no rank but itself: every drawn simulation with a liar is clean.
//!
//! `RERAIL_TEST_SEEDS=100-4000 cargo test --release -p rerail-sim --test liars -- --nocapture` tries more
//! seeds.

use rerail_sim::rails::LIES;
use rerail_sim::scenario::Scenario;
use rerail_sim::soak::{FaultMenu, draw_scenario, run};
use rerail_sim::trace::Trace;

fn seeds() -> std::ops::RangeInclusive<u64> {
    let requested = std::env::var("RERAIL_TEST_SEEDS").ok();
    let ends = requested.as_deref().and_then(|text| text.split_once('-'));
    match ends.map(|(from, to)| (from.parse(), to.parse())) {
        Some((Ok(from), Ok(to))) => from..=to,
        _ => 1..=60,
    }
}

#[test]
fn liar_affects_only_itself() {
    let (mut ran, mut lies) = (0, Vec::new());
    for seed in seeds() {
        let scenario = draw_scenario(seed, &FaultMenu::All);
        let Some(liar) = &scenario.liar else { continue };
        let (verdict, _, _) = run(&scenario, seed, Trace::off());
        assert!(verdict.is_good(), "seed {seed}: {verdict}");
        ran += 1;
        lies.extend(liar.lies.iter().copied());
    }
    lies.sort_unstable();
    lies.dedup();
    println!("{ran} simulations with a liar, {} sorts of lies", lies.len());
    assert!(ran >= 5 && lies.len() == LIES.len(), "{ran} simulations, {lies:?}");
}

/// The liar is a part of the scenario: the file has it, and the same file and seed give the same simulation.
#[test]
fn liar_scenario_is_replayed_from_its_file() {
    let drawn = (1..).map(|seed| (seed, draw_scenario(seed, &FaultMenu::All)));
    let (seed, scenario) =
        drawn.into_iter().find(|(_, scenario)| scenario.liar.is_some()).expect("one in six has a liar");
    let text = scenario.to_toml().expect("it can be written");
    assert!(text.contains("[liar]"), "{text}");
    let read = Scenario::parse("drawn.toml", &text).expect("it can be read");
    assert_eq!(read, scenario);
    let lines = |scenario: &Scenario| {
        let (verdict, report, _) = run(scenario, seed, Trace::off());
        assert!(verdict.is_good(), "{verdict}");
        (report.events, report.packets)
    };
    assert_eq!(lines(&read), lines(&scenario));
    let honest = Scenario { liar: None, ..scenario.clone() };
    assert_ne!(lines(&honest), lines(&scenario), "the liar makes a difference");
    let too_late = text.replace(&format!("rank = {}", scenario.liar.as_ref().map_or(0, |liar| liar.rank)), "rank = 99");
    let error = Scenario::parse("drawn.toml", &too_late).expect_err("there is no such rank");
    assert!(error.to_string().contains("liar.rank = 99"), "{error}");
}
