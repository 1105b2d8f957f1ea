//! multirail-2004, figure 20: bandwidth over time while, for a while, another program uses the second HCA.
//!
//! What can be had under load is searched for, as in `unlike`: fixed weights, each in a simulation whose load
//! never ends. The paper's text gives no bandwidth, no window and no size of messages for this figure; those
//! are ours.

use rerail_core::config::Policy;

use super::multirail::megabytes;
use super::{Axis, Claim, Effort, Figure, FigureError, Lab, Relation, Run, Scale, Series};
use crate::scenario::{Scenario, Span};
use crate::workload::{Measured, Sample};

const FILE: &str = "multirail-2004-background.toml";
const TEXT: &str = include_str!("../../../scenarios/multirail-2004-background.toml");

/// Messages after a change that may go before a policy has to be there.
const MESSAGES: usize = 10;

/// How many the next ones are that it is judged by: as many as a window has, so that there is one reply among
/// them.
const JUDGED: usize = 16;

/// By how much the optimum may be missed from then on.
const OPTIMUM: f64 = 0.05;

/// What the policies may differ by before the load.
const COMPARABLE: f64 = 0.02;

/// What even striping reaches of the optimum under load, at most: with half a rail gone it can use one rail's
/// worth of bandwidth out of one and a half.
const EVEN: f64 = 2.0 / 3.0;

/// Weights of both rails together where the best are searched for.
const PARTS: u16 = 96;

/// The curves, in their order.
const POLICIES: [(&str, Policy); 4] = [
    ("even", Policy::Even),
    ("weighted 1:1", Policy::Weighted),
    ("adaptive", Policy::Adaptive),
    ("balanced", Policy::Balanced),
];

/// The phases of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    During,
    After,
}

/// When the load comes and when it goes, in nanoseconds: as in the scenario.
struct Change {
    comes_ns: u64,
    goes_ns: u64,
}

impl Change {
    fn of(scenario: &Scenario) -> Change {
        let at = |step: usize| scenario.loads[0].steps[step].at.0;
        Change { comes_ns: at(0), goes_ns: at(1) }
    }

    /// The phase in which something ends.
    fn phase(&self, at_ns: u64) -> Phase {
        match at_ns {
            at if at <= self.comes_ns => Phase::Before,
            at if at <= self.goes_ns => Phase::During,
            _ => Phase::After,
        }
    }
}

/// Figure 20.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figure_20(lab: &mut Lab<'_>, effort: Effort) -> Result<Figure, FigureError> {
    let testbed = Scenario::parse(FILE, TEXT)?;
    let change = Change::of(&testbed);
    let mut runs = Vec::new();
    for (name, striping) in POLICIES {
        // The same simulation twice: over time, as the paper shows it, and message by message, as the claims
        // need it.
        for series in [None, Some("message")] {
            let mut scenario = cut(&testbed, striping, [1, 1]);
            if let Some(series) = series {
                scenario.workload.parameters.insert("series".into(), series.into());
            }
            runs.push(Run { what: format!("background load: {name}"), scenario });
        }
    }
    let results = lab.run(&runs)?;
    let best = Best { free: best(lab, &testbed, effort, false)?, under_load: best(lab, &testbed, effort, true)? };
    let (mut series, mut messages) = (Vec::new(), Vec::new());
    for ((name, _), pair) in POLICIES.iter().zip(results.chunks(2)) {
        let points = pair[0].iter().flat_map(|measured| &measured.series).map(over_time).collect();
        series.push(Series { name: (*name).into(), points });
        messages.push(pair[1].iter().flat_map(|measured| judged(&change, measured)).collect::<Vec<_>>());
    }
    let optimum = |&(ms, _): &(f64, f64)| (ms, best.at(change.phase((ms * 1e6) as u64)));
    series.push(Series { name: "best fixed weights".into(), points: series[0].points.iter().map(optimum).collect() });
    let of = |name: &str, phase: Phase| {
        let at = POLICIES.iter().position(|policy| policy.0 == name);
        let found = at.and_then(|at| messages[at].iter().find(|judged| judged.phase == phase));
        found.map_or(f64::NAN, |judged| judged.bandwidth)
    };
    let mut claims = Vec::new();
    for (name, _) in POLICIES.iter().skip(1) {
        claims.push(Claim {
            name: format!("before the load: {name} over even"),
            expected: 1.0,
            relation: Relation::About,
            tolerance: COMPARABLE,
            measured: of(name, Phase::Before) / of("even", Phase::Before),
            unit: "",
        });
    }
    for name in ["adaptive", "balanced"] {
        for (when, phase) in [("the load has come", Phase::During), ("it has gone", Phase::After)] {
            claims.push(Claim {
                name: format!("{name} over best fixed weights, from message {} on after {when}", MESSAGES + 1),
                expected: 1.0,
                relation: Relation::AtLeast,
                tolerance: OPTIMUM,
                measured: of(name, phase) / best.at(phase),
                unit: "",
            });
        }
    }
    for name in ["even", "weighted 1:1"] {
        claims.push(Claim {
            name: format!("under load: {name} over best fixed weights"),
            expected: EVEN,
            relation: Relation::AtMost,
            tolerance: OPTIMUM,
            measured: of(name, Phase::During) / best.at(Phase::During),
            unit: "",
        });
    }
    Ok(Figure {
        source: "multirail-2004, figure 20".into(),
        title: "Bandwidth while another program comes and goes".into(),
        paper: "Bandwidth over time, printed once a second, both HCAs at 4x: even and adaptive striping. For around 10 \
                seconds another program on both nodes transfers large messages over the second HCA. Both policies perform \
                comparably at the beginning; then one HCA is shared, and adaptive striping achieves better performance; \
                after the program has finished, it achieves peak performance again. No number is stated."
            .into(),
        ours: format!(
            "Windows of {JUDGED} messages of 1 MiB one way, {} after one that is not counted, and the bandwidth of each 4 ms; \
             the load lasts from {} to {} ms: the paper's times, 250 times shorter. Two simulated nodes (scenario \
             {FILE}): the other program's frames take turns with ours on the second HCA, so that half of it is left. \
             Weighted and balanced striping are ours to show. Claims are about the {JUDGED} messages that end from the \
             {}th on after a change; the best fixed weights are searched for in simulations without a load and with one \
             that never ends.",
            testbed.workload.parameters["windows"],
            change.comes_ns / 1_000_000,
            change.goes_ns / 1_000_000,
            MESSAGES + 1,
        ),
        timeline: None,
        x: Axis { label: "time".into(), unit: "ms".into(), scale: Scale::Linear },
        y: megabytes(),
        stated: Vec::new(),
        series,
        claims,
    })
}

/// The same simulation, with large messages cut so, small ones round robin.
fn cut(testbed: &Scenario, striping: Policy, weights: [u16; 2]) -> Scenario {
    let mut scenario = testbed.clone();
    scenario.config.multiplex = Some(Policy::RoundRobin);
    scenario.config.striping = Some(striping);
    // Rail 0 is the host's own memory, which does not reach the other node.
    scenario.config.weights = Some(vec![0, weights[0], weights[1]]);
    scenario
}

/// A point of the curve: milliseconds and MB/s.
fn over_time(sample: &Sample) -> (f64, f64) {
    (sample.at_ns as f64 / 1e6, sample.value)
}

/// The bandwidth of the messages that a phase is judged by.
struct Judged {
    phase: Phase,
    /// MB/s.
    bandwidth: f64,
}

/// In each phase the messages that end from the one after [`MESSAGES`] on, [`JUDGED`] of them; none where the
/// phase has not as many.
fn judged(change: &Change, measured: &Measured) -> Vec<Judged> {
    let judge = |phase: Phase| {
        let of_phase = measured.series.iter().filter(|sample| change.phase(sample.at_ns) == phase);
        let rates: Vec<f64> = of_phase.skip(MESSAGES).take(JUDGED).map(|sample| sample.value).collect();
        // All are equally long, so that their times are as the inverses of their rates.
        let time: f64 = rates.iter().map(|rate| rate.recip()).sum();
        (rates.len() == JUDGED).then_some(Judged { phase, bandwidth: JUDGED as f64 / time })
    };
    [Phase::Before, Phase::During, Phase::After].into_iter().filter_map(judge).collect()
}

/// What the best fixed weights reach, in MB/s.
struct Best {
    free: f64,
    under_load: f64,
}

impl Best {
    fn at(&self, phase: Phase) -> f64 {
        match phase {
            Phase::During => self.under_load,
            Phase::Before | Phase::After => self.free,
        }
    }
}

/// The best bandwidth of a whole run with fixed weights, with a load that never ends or with none: weights of
/// the first rail from one half on, as the load is on the second.
fn best(lab: &mut Lab<'_>, testbed: &Scenario, effort: Effort, loaded: bool) -> Result<f64, FigureError> {
    let step = match effort {
        Effort::Quick => 4,
        Effort::Full => 1,
    };
    let cluster = |first: u16| {
        let mut scenario = cut(testbed, Policy::Weighted, [first, PARTS - first]);
        scenario.workload.parameters.remove("series");
        scenario.workload.parameters.insert("windows".into(), 2.into());
        if loaded {
            scenario.loads[0].steps.truncate(1);
            scenario.loads[0].steps[0].at = Span(0);
        } else {
            scenario.loads.clear();
        }
        Run { what: format!("background load, weights {first}:{}", PARTS - first), scenario }
    };
    let runs: Vec<Run> = (PARTS / 2..PARTS * 3 / 4).step_by(step).map(cluster).collect();
    let values = lab.run(&runs)?;
    Ok(values.iter().flatten().map(|measured| measured.value).fold(f64::NAN, f64::max))
}
