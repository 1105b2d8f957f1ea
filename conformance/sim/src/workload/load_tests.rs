//! Loads and slow links as a bandwidth over time shows them.

use rerail_core::config::Policy;

use super::{Measured, Sample, run_checked};
use crate::check::Verdict;
use crate::scenario::Scenario;
use crate::trace::Trace;

fn run(scenario: &Scenario) -> Measured {
    let (verdict, _, mut measured) = run_checked(scenario, 1, Trace::off());
    assert_eq!(verdict, Verdict::Clean);
    measured.remove(0)
}

/// The mean of a series over intervals of equal length that lie within `from..=until` milliseconds.
fn mean(series: &[Sample], from: u64, until: u64, interval: u64) -> f64 {
    let within = |sample: &&Sample| (from + interval..=until).contains(&(sample.at_ns / 1_000_000));
    let values: Vec<f64> = series.iter().filter(within).map(|sample| sample.value).collect();
    assert!(values.len() > 2, "{from} to {until}: {series:?}");
    values.iter().sum::<f64>() / values.len() as f64
}

/// multirail-2004, figure 20, with even striping: full bandwidth, half of it under load (the second rail
/// carries half of every message and is half as fast), full bandwidth again.
#[test]
fn figure_20_background_load_halves_the_bandwidth() {
    let text = include_str!("../../../scenarios/multirail-2004-background.toml");
    let mut scenario = Scenario::parse("multirail-2004-background.toml", text).unwrap();
    scenario.config.striping = Some(Policy::Even);
    let Measured { series, value, .. } = run(&scenario);
    println!(
        "{value:.0}: {:?}",
        series.iter().map(|sample| (sample.at_ns / 1_000_000, sample.value as u64)).collect::<Vec<_>>()
    );
    let end = series.last().map_or(0, |sample| sample.at_ns / 1_000_000);
    assert!(end >= 120, "the run outlasts the load: {end} ms");
    let (before, during, after) = (mean(&series, 12, 40, 4), mean(&series, 44, 80, 4), mean(&series, 84, end, 4));
    println!("{before:.0} {during:.0} {after:.0}");
    assert!((1_600.0..1_768.0).contains(&before), "{before}");
    assert!((0.97..1.03).contains(&(after / before)), "{before} {after}");
    assert!((0.45..0.6).contains(&(during / before)), "{before} {during}");
    // Without the load nothing of it is seen.
    let without_faults = run(&Scenario { loads: Vec::new(), ..scenario });
    assert!(without_faults.value > 1_600.0, "{}", without_faults.value);
}

const ONE: &str = "[[hcas]]\ndevice = \"connectx\"\n";

fn series(cluster: &str, parameters: &str) -> Vec<Sample> {
    let text = format!("{cluster}\n[workload]\nname = \"bandwidth\"\nparameters = {{ {parameters} }}\n");
    run(&Scenario::parse("test", &text).unwrap_or_else(|error| panic!("{error}"))).series
}

/// A quarter of a link that other traffic uses is a quarter less; so is a quarter of the bus, which is as
/// fast.
#[test]
fn load_steps_reduce_the_available_bandwidth() {
    for (place, whole) in [("host0.hca0.port0", 2_000), ("host0.bus0", 2_000), ("host1.bus0", 2_000)] {
        let load = format!(
            "{ONE}[[loads]]\nwhere = \"{place}\"\nsteps = [{{ at = \"8ms\", share = 25 }}, \
             {{ at = \"16ms\", bytes_per_second = {} }}, {{ at = \"24ms\", share = 0 }}]\n",
            whole * 1_000_000 / 2
        );
        let series = series(&load, "bytes = [262144], window = 16, windows = 12, series = \"1ms\"");
        let [free, quarter, half, again] =
            [(2, 8), (8, 16), (16, 24), (24, 27)].map(|(from, to)| mean(&series, from, to, 1));
        println!("{place}: {free:.0} {quarter:.0} {half:.0} {again:.0}");
        assert!((0.70..0.80).contains(&(quarter / free)), "{place}: {free} {quarter}");
        assert!((0.45..0.56).contains(&(half / free)), "{place}: {free} {half}");
        assert!((0.97..1.03).contains(&(again / free)), "{place}: {free} {again}");
    }
}

/// A ten-fold slow-down over time.
#[test]
fn a_slow_link_shows_in_the_series() {
    let fault = "[[faults]]\nat = \"4ms\"\nuntil = \"12ms\"\nwhat = \"slow\"\nwhere = \"host1.hca0.port0\"\n";
    let series = series(&format!("{ONE}{fault}"), "bytes = [65536], window = 16, windows = 24, series = \"500us\"");
    let at = |from_us: u64, until_us: u64| {
        let within = |sample: &&Sample| (from_us..=until_us).contains(&(sample.at_ns / 1_000));
        let values: Vec<f64> = series.iter().filter(within).map(|sample| sample.value).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    let (before, during, after) = (at(1_500, 4_000), at(5_000, 12_000), at(13_000, 14_500));
    println!("{before:.0} {during:.0} {after:.0}");
    assert!((0.09..0.115).contains(&(during / before)), "{before} {during}");
    assert!((0.95..1.05).contains(&(after / before)), "{before} {after}");
}

/// A sample for each message, and their times add up to what the workload measured.
#[test]
fn messages_have_a_sample_each() {
    let text = format!(
        "{ONE}[workload]\nname = \"bandwidth\"\nparameters = {{ window = 4, windows = 3, series = \"message\" }}\n"
    );
    let Measured { series, value, bytes, .. } = run(&Scenario::parse("test", &text).unwrap());
    assert_eq!(series.len(), 12);
    let ns: f64 = series.iter().map(|sample| bytes as f64 * 1000.0 / sample.value).sum();
    let mean = 12.0 * bytes as f64 * 1000.0 / ns;
    assert!((0.97..1.03).contains(&(mean / value)), "{mean} {value}");
}

#[test]
fn programmes_that_make_no_sense_are_refused() {
    let load = |keys: &str| format!("[[loads]]\n{keys}\n");
    let step = "steps = [{ at = \"1ms\", share = 5 }]";
    for (keys, expected) in [
        (format!("where = \"rank0\"\n{step}"), "a port or a bus"),
        (format!("where = \"host7.hca0.port0\"\n{step}"), "no such place"),
        (format!("where = \"host0.bus1\"\n{step}"), "no such place"),
        (format!("where = \"host0.hca0.port0\"\nto = \"host0.hca0.port0\"\n{step}"), "another port"),
        (format!("where = \"host0.hca0.port0\"\nframe_bytes = 9\n{step}"), "64 to 4096"),
        ("where = \"host0.hca0.port0\"\nsteps = []".into(), "none"),
        ("where = \"host0.hca0.port0\"\nsteps = [{ at = \"1ms\" }]".into(), "either share"),
        ("where = \"host0.hca0.port0\"\nsteps = [{ at = \"1ms\", share = 101 }]".into(), "percent"),
        (
            "where = \"host0.hca0.port0\"\nsteps = [{ at = \"1ms\", share = 1 }, { at = \"1ms\", share = 2 }]".into(),
            "not after",
        ),
    ] {
        let error = Scenario::parse("here", &format!("{ONE}{}", load(&keys))).expect_err(&keys).to_string();
        assert!(error.contains("loads[0]") && error.contains(expected), "{keys}: {error}");
    }
    let twice = load(&format!("where = \"host0.bus0\"\n{step}")).repeat(2);
    let error = Scenario::parse("here", &format!("{ONE}{twice}")).expect_err("two at one place").to_string();
    assert!(error.contains("loads[1]"), "{error}");
    // The bus of an ideal device has no limit.
    let free = load(&format!("where = \"host0.bus0\"\n{step}"));
    assert!(Scenario::parse("here", &free).is_err());
}
