//! resilient-2010, VI.D: how long recovery takes, from traces; and one recovery as a picture.
//!
//! Each case is run with the fault at several moments; the worst is reported. Round trips are those of
//! packets in the same trace, before the fault.

use super::history::{History, Recovery};
use super::{Claim, at_most, greatest, testbed};
use crate::check::Verdict;
use crate::cluster::fault::{Fault, FaultAt};
use crate::figures::lab::SEED;
use crate::figures::{Axis, Effort, Figure, FigureError, Lab, Run, Scale, Series, Stated};
use crate::scenario::{Scenario, Span, WorkloadSpec};
use crate::soak;
use crate::trace::Trace;

/// What is under way when it fails.
#[derive(Clone, Copy)]
enum Traffic {
    /// Messages of 1 KiB.
    Messages,
    /// Puts of 1 KiB into the peer's memory; so many that the device has some that it has not sent.
    Puts,
    /// Gets of 1 KiB.
    Gets,
    /// Messages of 1 MiB, one at a time, which are written.
    Writes,
}

impl Traffic {
    fn workload(self) -> WorkloadSpec {
        let one_sided = |operation: &str| {
            let mut parameters = toml::toml! {
                bytes = 1024
                window = 64
                count = 12800
            };
            parameters.insert("operation".into(), operation.into());
            WorkloadSpec { name: "one-sided".into(), parameters }
        };
        match self {
            Traffic::Messages => WorkloadSpec {
                name: "bandwidth".into(),
                parameters: toml::toml! {
                    bytes = [1024]
                    window = 16
                    windows = 800
                },
            },
            Traffic::Writes => WorkloadSpec {
                name: "bandwidth".into(),
                parameters: toml::toml! {
                    bytes = [1048576]
                    window = 1
                    windows = 20
                },
            },
            Traffic::Puts => one_sided("put"),
            Traffic::Gets => one_sided("get"),
        }
    }
}

impl Traffic {
    /// At how many of so many moments something must have been under way that went out again. Less of it is a
    /// case that measures something else than its description. A get is answered by the device, and what the
    /// fault takes along is rarely more than the answers.
    const fn found_min(self, moments: u64) -> u64 {
        match self {
            Traffic::Messages | Traffic::Puts | Traffic::Writes => moments.div_ceil(4),
            Traffic::Gets => 1,
        }
    }
}

/// A way to fail.
struct Case {
    traffic: Traffic,
    /// Ports in use at each node.
    ports: u32,
    /// Faults at the moment, in this order.
    faults: &'static [&'static str],
    /// How long they last.
    until: Option<Span>,
}

/// The cases' names.
const NAMES: &[&str] = &[
    "port event, sender",
    "port event, receiver",
    "QP error",
    "silent link",
    "only rail, QP error",
    "only rail, device",
    "puts, QP error",
    "gets, QP error",
    "writes, QP error",
];

/// Those with another rail up: replay waits for nothing but the fence.
const WITH_ANOTHER_RAIL: [usize; 7] = [0, 1, 2, 3, 6, 7, 8];

/// How long a device is gone before its driver has it again: ours, for no paper gives the time of a reload.
const RELOAD: Span = Span::from_millis(5);

const CASES: [Case; 9] = [
    Case {
        traffic: Traffic::Messages,
        ports: 2,
        faults: &["link-down host0.hca0.port0"],
        until: Some(Span::from_millis(400)),
    },
    Case {
        traffic: Traffic::Messages,
        ports: 2,
        faults: &["link-down host1.hca0.port0"],
        until: Some(Span::from_millis(400)),
    },
    Case { traffic: Traffic::Messages, ports: 2, faults: &["qp-error rank0.hca0"], until: None },
    Case {
        traffic: Traffic::Messages,
        ports: 2,
        faults: &["port-events host0.hca0.port0 0", "port-events host1.hca0.port0 0", "link-down host0.hca0.port0"],
        until: Some(Span::from_millis(400)),
    },
    Case { traffic: Traffic::Messages, ports: 1, faults: &["qp-error rank0.hca0"], until: None },
    Case { traffic: Traffic::Messages, ports: 1, faults: &["device-fatal host0.hca0"], until: Some(RELOAD) },
    Case { traffic: Traffic::Puts, ports: 2, faults: &["qp-error rank0.hca0"], until: None },
    Case { traffic: Traffic::Gets, ports: 2, faults: &["qp-error rank0.hca0"], until: None },
    Case { traffic: Traffic::Writes, ports: 2, faults: &["qp-error rank0.hca0"], until: None },
];

/// How long a rail waits before it opens its broken device again, in milliseconds:
/// `rerail_linux::rail::verbs::VerbsOptions::reopen_first`.
const REOPEN_MS: f64 = 10.0;

/// The case that is drawn.
const DRAWN: usize = 2;

/// Round trips from detection to the first replayed byte.
const ROUND_TRIPS: f64 = 3.0;

/// "A single reconnection due to an error takes on average 0.335 seconds", in milliseconds.
const PAPER_MS: f64 = 335.0;

/// Ours may take so long beside the path's time-outs, in milliseconds.
const RECONNECT_MS: f64 = 10.0;

/// When faults happen: the first, and how far apart the others; no divisor of anything that repeats.
const FIRST_US: u64 = 2_000;
const APART_US: u64 = 137;

/// Times of recoveries, and a picture.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean, or nothing was replayed in it.
pub(super) fn figures(lab: &mut Lab<'_>, effort: Effort) -> Result<Vec<Figure>, FigureError> {
    let moments = match effort {
        Effort::Quick => 2,
        Effort::Full => 20,
    };
    let mut runs = Vec::new();
    for (case, name) in CASES.iter().zip(NAMES) {
        for moment in 0..moments {
            let at = Span::from_micros(FIRST_US + moment * APART_US);
            runs.push(Run { what: format!("{name}, at {} us", at.0 / 1000), scenario: scenario(case, at)? });
        }
    }
    let found = lab.each(&runs, |run| at_moment(run).map(|(_, recovery)| recovery))?;
    // A fault may find nothing on its way that it could take along.
    let cases: Vec<Vec<Recovery>> =
        found.chunks(moments as usize).map(|moments| moments.iter().flatten().cloned().collect()).collect();
    for ((case, name), found) in CASES.iter().zip(NAMES).zip(&cases) {
        if (found.len() as u64) < case.traffic.found_min(moments) {
            return Err(FigureError::Nothing { what: format!("{name}, {} of {moments} moments", found.len()) });
        }
    }
    let drawn = &runs[DRAWN * moments as usize];
    let (history, recovery) = at_moment(drawn)?;
    let drawn = (history, recovery.ok_or_else(|| FigureError::Nothing { what: drawn.what.clone() })?);
    Ok(vec![times(&cases, moments), picture(&drawn)])
}

/// What a case has under way over its ports, with its faults at a moment.
fn scenario(case: &Case, at: Span) -> Result<Scenario, FigureError> {
    let mut scenario = testbed(2, 1, case.ports)?;
    // All of them go eagerly: a receiver grants room for a whole window.
    scenario.config.blocks_per_peer = Some(128);
    scenario.workload = case.traffic.workload();
    scenario.verbs.read = !matches!(case.traffic, Traffic::Writes);
    let until = case.until.map(|until| Span(at.0 + until.0));
    for words in case.faults {
        let fault: Fault = words.parse().expect("the cases' faults can be read: a test does");
        scenario.faults.push(FaultAt { at, fault, until: until.filter(|_| fault.kind.lasts()) });
    }
    Ok(scenario)
}

/// What happened; no recovery where nothing went out again.
fn at_moment(run: &Run) -> Result<(History, Option<Recovery>), FigureError> {
    let trace = Trace::on();
    let (verdict, _, _) = soak::run(&run.scenario, SEED, trace.clone());
    let what = run.what.clone();
    if verdict != Verdict::Clean {
        return Err(FigureError::Run { what, verdict: verdict.to_string() });
    }
    let history = History::read(&trace.take());
    let history = history.ok_or(FigureError::Nothing { what })?;
    let mut recovery = history.recovery();
    if !run.scenario.verbs.read {
        recovery = recovery.and_then(|recovery| Some(recovery.replayed_at(history.written_again_us()?)));
    }
    Ok((history, recovery))
}

/// A time of each case, at its worst moment.
fn worst(cases: &[Vec<Recovery>], name: &str, time: impl Fn(&Recovery) -> Option<f64>) -> Series {
    let of = |recoveries: &Vec<Recovery>| greatest(recoveries.iter().filter_map(&time));
    let points = (0u32..).zip(cases).map(|(case, recoveries)| (f64::from(case), of(recoveries)));
    Series { name: name.into(), points: points.filter(|point| point.1.is_finite()).collect() }
}

fn round_trips(recovery: &Recovery) -> f64 {
    (recovery.replayed_us - recovery.detected_us) / recovery.round_trip_us
}

fn times(cases: &[Vec<Recovery>], moments: u64) -> Figure {
    let ms = |us: f64| us / 1000.0;
    let series = vec![
        worst(cases, "fault to detection", |one| Some(ms(one.detected_us - one.fault_us))),
        worst(cases, "detection to first replay", |one| Some(ms(one.replayed_us - one.detected_us))),
        worst(cases, "fault to first replay", |one| Some(ms(one.replayed_us - one.fault_us))),
        worst(cases, "detection to payload over the rail anew", |one| Some(ms(one.payload_us? - one.detected_us))),
    ];
    let trips = |case: usize| {
        let name = format!("{}: detection to first replay, the worst moment", NAMES[case]);
        at_most(name, ROUND_TRIPS, greatest(cases[case].iter().map(round_trips)), "round trips")
    };
    let all = |case: usize| greatest(cases[case].iter().map(|one| ms(one.replayed_us - one.fault_us)));
    let mut claims: Vec<Claim> = WITH_ANOTHER_RAIL.into_iter().map(trips).collect();
    claims.push(at_most(format!("{}: fault to first replay", NAMES[4]), RECONNECT_MS, all(4), "ms"));
    claims.push(at_most(
        format!("{}: from {REOPEN_MS} ms after the fault, when it is opened anew, to first replay", NAMES[5]),
        RECONNECT_MS,
        all(5) - REOPEN_MS,
        "ms",
    ));
    let counts: Vec<String> = NAMES.iter().zip(cases).map(|(name, found)| format!("{name} {}", found.len())).collect();
    let trip = greatest(cases.iter().flat_map(|recoveries| recoveries.iter().map(|one| one.round_trip_us)));
    Figure {
        source: "resilient-2010, VI.D".into(),
        title: "Recovery times".into(),
        paper: "Transitions of a queue pair to the error state within a microbenchmark between two nodes: a single \
                reconnection takes 0.335 seconds on average, by the hardware's time-outs."
            .into(),
        ours: format!(
            "Two nodes of the testbed, messages of 1 KiB, 16 under way, or 64 puts or gets of that size, or one of 1 MiB that is \
             written; the fault at \
             {moments} moments (those at which something was on its way that had to go out again: {}), the worst of each time. \
             Two ports in use, one of which fails: its link at the sender's or the receiver's end (the device's event \
             comes 3 ms later), a queue pair, a link without an event (the device gives up after 8 time-outs of 4.2 \
             ms); or one port alone: a queue pair, the device (gone for {} ms, opened anew {REOPEN_MS} ms after the fault). A \
             replay is a packet that goes out again under its number, after both ends are fenced, or the first write with \
             fresh keys; a round trip is packets \
             there and back in the same simulation before the fault, {trip:.1} us at most.",
            counts.join("; "),
            RELOAD.0 / 1_000_000
        ),
        timeline: None,
        x: Axis { label: "what fails".into(), unit: String::new(), scale: Scale::Names(NAMES) },
        y: Axis { label: "time".into(), unit: "ms".into(), scale: Scale::Log10 },
        stated: vec![Stated { name: "paper: reconnection".into(), value: PAPER_MS }],
        series,
        claims,
    }
}

fn picture((history, recovery): &(History, Recovery)) -> Figure {
    let Recovery { fault_us, detected_us, replayed_us, round_trip_us, .. } = recovery;
    Figure {
        source: "resilient-2010, figure 3".into(),
        title: "One recovery".into(),
        paper: "The recovery flow: upon failure a reconnect request goes out of band; once the peer replies the queue pair is \
                repaired and messages that have not arrived are sent again."
            .into(),
        ours: format!(
            "A queue pair of rank 0 breaks while messages of 1 KiB go to rank 1 over two ports. What was in flight goes out \
             again over the other rail as soon as both ends have detected that the connection is dead; the rail is dialled at \
             once and carries payload when it is up. Detection {:.2} us after the fault, first replay {:.2} us after that, a round trip \
             takes {round_trip_us:.2} us. Microseconds of virtual time; what lies between the parts is left out.",
            detected_us - fault_us,
            replayed_us - detected_us,
        ),
        timeline: Some(history.timeline(recovery)),
        x: Axis { label: "time".into(), unit: "us".into(), scale: Scale::Linear },
        y: Axis { label: "rail".into(), unit: String::new(), scale: Scale::Linear },
        stated: Vec::new(),
        series: Vec::new(),
        claims: vec![at_most("detection to first replay", ROUND_TRIPS, round_trips(recovery), "round trips")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recovery_case_is_a_valid_scenario() {
        assert_eq!(CASES.len(), NAMES.len());
        for case in &CASES {
            let scenario = scenario(case, Span::from_millis(2)).expect("a scenario");
            assert_eq!((scenario.check(), scenario.faults.len()), (Ok(()), case.faults.len()));
        }
        assert!(WITH_ANOTHER_RAIL.iter().all(|&case| CASES[case].ports == 2));
        assert_eq!(WITH_ANOTHER_RAIL.len(), CASES.iter().filter(|case| case.ports == 2).count());
    }
}
