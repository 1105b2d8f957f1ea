//! Simulations that seeds draw, with rails that connect by XRC: hosts of several ranks, with the faults of
//! menus and without, end as well as by RC.
//!
//! `RERAIL_TEST_SEEDS=100-400 cargo test -p rerail-sim --test xrc_simulations -- --nocapture` tries more.

use rerail_sim::check::Verdict;
use rerail_sim::cluster::fault::Kind;
use rerail_sim::rng::Rng;
use rerail_sim::scenario::{RailSpec, Scenario};
use rerail_sim::soak::{FaultMenu, draw_scenario, run};
use rerail_sim::trace::Trace;

/// Seeds that are tried, of each menu.
fn seeds() -> std::ops::RangeInclusive<u64> {
    let requested = std::env::var("RERAIL_TEST_SEEDS").ok();
    let ends = requested.as_deref().and_then(|text| text.split_once('-'));
    match ends.map(|(from, to)| (from.parse(), to.parse())) {
        Some((Ok(from), Ok(to))) => from..=to,
        _ => 1..=8,
    }
}

/// The simulation of a seed on hosts of two ranks, over an HCA at least.
fn shared(seed: u64, fault_menu: &FaultMenu) -> Option<Scenario> {
    let mut scenario = draw_scenario(seed, fault_menu);
    (scenario.hosts, scenario.ranks_per_host) = (2 + (seed % 2) as u32, 2);
    scenario.verbs.xrc = true;
    buffers(&mut scenario, seed);
    scenario.rails.iter().any(|rail| matches!(rail, RailSpec::Hca { .. })).then_some(scenario)
}

/// Receive buffers of one size, or of several (V-17), few and many.
fn buffers(scenario: &mut Scenario, seed: u64) {
    let rng = &mut Rng::new(seed, "receive buffers");
    let sizes: [Option<&[u32]>; 5] = [None, None, Some(&[]), Some(&[256, 1000, 9000]), Some(&[300])];
    scenario.verbs.srq_sizes = rng.pick(&sizes).copied().flatten().map(<[u32]>::to_vec);
    // Three give each size one. With so few, senders wait beyond the deadlines of these simulations, and
    // packets go twice: where nothing fails that would show as a fault.
    let few = if scenario.random.is_none() { 8 } else { 3 };
    scenario.verbs.receives = *rng.pick(&[few, 12, 64]).unwrap_or(&64);
}

fn all_end_well(fault_menu: &FaultMenu) {
    let mut ran = 0;
    for seed in seeds() {
        let Some(scenario) = shared(seed, fault_menu) else { continue };
        let (verdict, _, _) = run(&scenario, seed, Trace::off());
        if let Verdict::Impossible(why) = &verdict {
            println!("seed {seed}: {why}");
            continue;
        }
        let verbs = &scenario.verbs;
        let buffers = (verbs.receives, &verbs.srq_sizes);
        assert!(verdict == Verdict::Clean, "seed {seed}, faults {fault_menu}, buffers {buffers:?}: {verdict:?}");
        ran += 1;
    }
    println!("{ran} simulations, faults: {fault_menu}");
    assert!(ran > 0);
}

#[test]
fn without_faults() {
    all_end_well(&FaultMenu::Quiet);
}

#[test]
fn with_queue_pairs_that_break() {
    all_end_well(&FaultMenu::Only(vec![Kind::QpError, Kind::RetryExceeded]));
}

#[test]
fn with_all_faults() {
    all_end_well(&FaultMenu::All);
}
