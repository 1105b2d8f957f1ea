//! multirail-2004, figures 17 to 19: a 4x rail beside one that is forced to 1x, under several ways of
//! cutting.
//!
//! What is the best that any fixed weights could do is not computed but searched for, simulation by
//! simulation ([`Bench::best`]). The paper's text gives no range of sizes, no window and no points of its
//! curves; those are ours.

use rerail_core::config::Policy;

use super::multirail::{WINDOW, megabytes, point, windows};
use super::{Axis, Claim, Effort, Figure, FigureError, Lab, Relation, Run, Scale, Series};
use crate::scenario::{CoreSettings, Scenario, Span, WorkloadSpec};

const FILE: &str = "multirail-2004-4x-1x.toml";
const TEXT: &str = include_str!("../../../scenarios/multirail-2004-4x-1x.toml");

/// Messages from equal weights after which adaptive striping has to be there: so many go before those that
/// are measured.
const MESSAGES: u32 = 10;

/// Weights that are searched are parts of this.
const PARTS: u16 = 256;

/// By how much adaptive striping may miss the best fixed weights, one way.
const ADAPTIVE: f64 = 0.02;

/// By how much balanced striping may, and both policies both ways, and what either may lose against the best
/// single rail.
const OTHERS: f64 = 0.03;

/// From here on balanced striping is held to the best: below, the slow rail's share of a message is less than
/// the 16 KiB that are the least it cuts.
const BALANCED_MIN: u64 = 128 << 10;

/// From here on one message at a time is enough for balanced striping to measure both rails: the halves of
/// smaller ones are below the 32 KiB of which it takes a rate.
const KNOWN_MIN: u64 = 64 << 10;

/// Both ways, adaptive striping is held to the best from here on: with smaller messages one window is not
/// enough for it.
const BOTH_MIN: u64 = 256 << 10;

/// How messages are cut.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Not at all: each takes the rail of 4x.
    Single,
    Even,
    /// By these weights of the two rails.
    Fixed(u16, u16),
    Adaptive,
    Balanced,
}

/// The curves, in their order; that of the best fixed weights follows them.
const CUTS: [(&str, Cut); 5] = [
    ("4x rail alone", Cut::Single),
    ("even", Cut::Even),
    ("fixed 4:1", Cut::Fixed(4, 1)),
    ("adaptive", Cut::Adaptive),
    ("balanced", Cut::Balanced),
];

impl Cut {
    fn apply(self, core_settings: &mut CoreSettings) {
        let (word, weights) = match self {
            Cut::Single => (Policy::Binding, [1, 1]),
            Cut::Even => (Policy::Even, [1, 1]),
            Cut::Fixed(fast, slow) => (Policy::Weighted, [fast, slow]),
            Cut::Adaptive => (Policy::Adaptive, [1, 1]),
            Cut::Balanced => (Policy::Balanced, [1, 1]),
        };
        core_settings.striping = Some(word);
        if !matches!(self, Cut::Balanced) {
            // As in the paper: rails are not sampled at start, and what is not cut goes over one of them.
            core_settings.multiplex = Some(Policy::Binding);
            core_settings.sampling_time_max = Some(Span::from_micros(0));
        }
        // Rail 0 is the host's own memory, which does not reach the other node.
        core_settings.weights = Some(vec![0, weights[0], weights[1]]);
    }
}

/// Sizes of messages, in powers of two, and how often they are sent.
struct Plan {
    latency: Vec<u64>,
    one_way: Vec<u64>,
    both_ways: Vec<u64>,
    /// Round trips of each size that are measured.
    rounds: u32,
    /// Windows of each size that are measured.
    windows: u32,
    /// Between the weights with which the search begins, and with which it ends.
    steps: [u16; 2],
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let powers = |from: u32, to: u32| (from..=to).map(|power| 1 << power).collect();
        match effort {
            Effort::Quick => Plan {
                latency: vec![1 << 15, 1 << 16, 1 << 18],
                one_way: vec![1 << 13, 1 << 15, 1 << 16],
                both_ways: vec![1 << 13, 1 << 15, 1 << 18],
                rounds: 4,
                windows: 1,
                steps: [PARTS / 8, 1],
            },
            Effort::Full => Plan {
                latency: powers(12, 22),
                one_way: powers(12, 20),
                both_ways: powers(12, 20),
                rounds: 10,
                windows: 2,
                steps: [PARTS / 32, 1],
            },
        }
    }
}

/// Figures 17 to 19.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figures(lab: &mut Lab<'_>, effort: Effort) -> Result<Vec<Figure>, FigureError> {
    let plan = Plan::new(effort);
    Ok(vec![figure_17(lab, &plan)?, figure_18(lab, &plan)?, figure_19(lab, &plan)?])
}

/// Latency over size.
fn figure_17(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let parameters = vec![("warm_up", MESSAGES.into()), ("rounds", plan.rounds.into())];
    let bench = Bench { workload: "ping-pong", parameters, is_less_better: true, steps: plan.steps };
    let curves = Curves::run(lab, &bench, &plan.latency)?;
    let claims = vec![
        curves.claim("adaptive", "best fixed weights", 0, ADAPTIVE),
        curves.claim("balanced", "best fixed weights", BALANCED_MIN, OTHERS),
        curves.claim("adaptive", "4x rail alone", 0, OTHERS),
        curves.claim("balanced", "4x rail alone", KNOWN_MIN, OTHERS),
    ];
    Ok(Figure {
        source: "multirail-2004, figure 17".into(),
        title: "Latency, a 4x and a 1x rail".into(),
        paper: "Latency over message size, one process a node, the second HCA forced to 1x (250 MB/s): even striping, \
                weighted striping with 4:1, adaptive striping from equal weights. Adaptive striping significantly \
                outperforms even striping and is comparable with weighted; no number is stated."
            .into(),
        ours: format!(
            "Half a round trip, mean of {} after {MESSAGES} messages from each side that are not counted: that is all that \
             adaptive striping has seen. {} Messages below 32K are not cut. Balanced striping gives no rail less than 16K, \
             too much for the slow one in messages below {}; and where messages below {} are all there is, one at a time, \
             it never measures the rails and cuts evenly. Its claims leave these out.",
            plan.rounds,
            testbed(),
            kibibytes(BALANCED_MIN),
            kibibytes(KNOWN_MIN),
        ),
        timeline: None,
        x: Axis::message_bytes(),
        y: Axis { label: "latency".into(), unit: "us".into(), scale: Scale::Log10 },
        stated: Vec::new(),
        series: curves.series,
        claims,
    })
}

/// Bandwidth one way over size.
fn figure_18(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let curves = Curves::run(lab, &Bench::bandwidth(plan, WINDOW, false), &plan.one_way)?;
    // The first window is not counted: with one of 10 messages, adaptive striping has seen 10.
    let largest = &plan.one_way[plan.one_way.len() - 1..];
    let soon = Curves::run(lab, &Bench::bandwidth(plan, MESSAGES, false), largest)?;
    let mut claims = vec![
        curves.claim("adaptive", "best fixed weights", 0, ADAPTIVE),
        Claim {
            name: format!("adaptive over best fixed weights, after {MESSAGES} messages, largest size"),
            ..soon.claim("adaptive", "best fixed weights", 0, ADAPTIVE)
        },
    ];
    claims.push(curves.claim("balanced", "best fixed weights", 0, OTHERS));
    claims.extend(["adaptive", "balanced"].map(|name| curves.claim(name, "4x rail alone", 0, OTHERS)));
    Ok(Figure {
        source: "multirail-2004, figure 18".into(),
        title: "Bandwidth one way, a 4x and a 1x rail".into(),
        paper: "Bandwidth one way over message size, the rest as in figure 17. Adaptive striping significantly outperforms \
                even striping and is comparable with weighted; no number is stated."
            .into(),
        ours: windows(plan.windows, false, &testbed()),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: Vec::new(),
        series: curves.series,
        claims,
    })
}

/// Bandwidth both ways over size.
fn figure_19(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let curves = Curves::run(lab, &Bench::bandwidth(plan, WINDOW, true), &plan.both_ways)?;
    let mut claims = vec![
        Claim {
            // Better, not as good: whatever is not more than the weights of the links fails.
            expected: 1.0 + OTHERS,
            ..curves.claim("adaptive", "fixed 4:1", BOTH_MIN, 0.0)
        },
        curves.claim("adaptive", "best fixed weights", BOTH_MIN, OTHERS),
        curves.claim("balanced", "best fixed weights", BOTH_MIN, OTHERS),
    ];
    claims.extend(["adaptive", "balanced"].map(|name| curves.claim(name, "4x rail alone", 0, OTHERS)));
    Ok(Figure {
        source: "multirail-2004, figure 19".into(),
        title: "Bandwidth both ways, a 4x and a 1x rail".into(),
        paper: "Bandwidth both ways at once, the sum, over message size, the rest as in figure 17. Adaptive striping \
                significantly outperforms 4:1: both directions share the PCI-X bus of the 4x HCA, but not the link of 1x, so \
                that 2:1 would be right. No number is stated."
            .into(),
        ours: format!(
            "{} Claims about the best fixed weights begin at {}: with smaller messages the two directions disturb each \
             other's times for several windows.",
            windows(plan.windows, true, &testbed()),
            kibibytes(BOTH_MIN)
        ),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: Vec::new(),
        series: curves.series,
        claims,
    })
}

/// What is measured, but for the way of cutting and the size.
struct Bench {
    workload: &'static str,
    parameters: Vec<(&'static str, toml::Value)>,
    is_less_better: bool,
    /// Between the weights with which the search begins, and with which it ends.
    steps: [u16; 2],
}

impl Bench {
    fn bandwidth(plan: &Plan, window: u32, both: bool) -> Bench {
        let parameters = vec![("window", window.into()), ("windows", plan.windows.into()), ("both", both.into())];
        Bench { workload: "bandwidth", parameters, is_less_better: false, steps: plan.steps }
    }

    /// The simulation in which messages of one size are cut so.
    fn cluster(&self, cut: Cut, bytes: u64) -> Result<Run, FigureError> {
        let mut scenario = Scenario::parse(FILE, TEXT)?;
        cut.apply(&mut scenario.config);
        let mut parameters = toml::Table::new();
        parameters.insert("bytes".into(), toml::Value::Array(vec![(bytes as i64).into()]));
        parameters.extend(self.parameters.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        scenario.workload = WorkloadSpec { name: self.workload.into(), parameters };
        Ok(Run { what: format!("4x and 1x, {cut:?}: {} of {bytes} bytes", self.workload), scenario })
    }

    /// Runs all of these at once; the values in their order.
    fn values(&self, lab: &mut Lab<'_>, clusters: &[(Cut, u64)]) -> Result<Vec<f64>, FigureError> {
        let runs: Vec<Run> = clusters.iter().map(|&(cut, bytes)| self.cluster(cut, bytes)).collect::<Result<_, _>>()?;
        Ok(lab.run(&runs)?.iter().flatten().map(|measured| point(measured).1).collect())
    }

    /// The best that fixed weights reach, each size with its own: weights of the fast rail from one half to
    /// all but one step, then around the best, in steps of half the size, again and again.
    fn best(&self, lab: &mut Lab<'_>, sizes: &[u64]) -> Result<Series, FigureError> {
        let mut found: Vec<(u16, f64)> = sizes.iter().map(|_| (PARTS / 2, f64::NAN)).collect();
        let [mut step, last] = self.steps;
        let first: Vec<u16> = (PARTS / 2..PARTS).step_by(step.into()).collect();
        let mut requested: Vec<(usize, u16)> =
            (0..sizes.len()).flat_map(|size| first.iter().map(move |&fast| (size, fast))).collect();
        loop {
            let clusters: Vec<(Cut, u64)> =
                requested.iter().map(|&(size, fast)| (Cut::Fixed(fast, PARTS - fast), sizes[size])).collect();
            for (&(size, fast), value) in requested.iter().zip(self.values(lab, &clusters)?) {
                let best = &mut found[size];
                // Nothing is better than what is no number, so the first value is taken.
                if best.1.is_nan() || if self.is_less_better { value < best.1 } else { value > best.1 } {
                    *best = (fast, value);
                }
            }
            if step <= last {
                break;
            }
            step /= 2;
            let around = |(size, &(fast, _)): (usize, &(u16, f64))| [(size, fast - step), (size, fast + step)];
            requested = found.iter().enumerate().flat_map(around).collect();
            requested.retain(|&(_, fast)| fast < PARTS);
        }
        let points = sizes.iter().zip(&found).map(|(&bytes, &(_, value))| (bytes as f64, value)).collect();
        Ok(Series { name: "best fixed weights".into(), points })
    }
}

/// What was measured: [`CUTS`], and the best fixed weights.
struct Curves {
    series: Vec<Series>,
    is_less_better: bool,
}

impl Curves {
    fn run(lab: &mut Lab<'_>, bench: &Bench, sizes: &[u64]) -> Result<Curves, FigureError> {
        let mut series = Vec::new();
        let clusters: Vec<(Cut, u64)> =
            CUTS.iter().flat_map(|&(_, cut)| sizes.iter().map(move |&bytes| (cut, bytes))).collect();
        let values = bench.values(lab, &clusters)?;
        for ((name, _), values) in CUTS.iter().zip(values.chunks(sizes.len())) {
            let points = sizes.iter().zip(values).map(|(&bytes, &value)| (bytes as f64, value)).collect();
            series.push(Series { name: (*name).into(), points });
        }
        series.push(bench.best(lab, sizes)?);
        Ok(Curves { series, is_less_better: bench.is_less_better })
    }

    fn of(&self, name: &str) -> &Series {
        self.series.iter().find(|series| series.name == name).expect("claims are about curves that were run")
    }

    /// One is as good as another, within the tolerance, at every size from `least` bytes on.
    fn claim(&self, name: &str, other: &str, least: u64, tolerance: f64) -> Claim {
        let ratios = self.of(name).over(self.of(other)).filter(|point| point.0 >= least as f64).map(|point| point.1);
        let (relation, measured) = match self.is_less_better {
            true => (Relation::AtMost, ratios.reduce(f64::max)),
            false => (Relation::AtLeast, ratios.reduce(f64::min)),
        };
        let from = if least == 0 { String::new() } else { format!(" from {} on", kibibytes(least)) };
        let name = format!("{name} over {other}, the worst size{from}");
        // What was measured nowhere holds nowhere.
        Claim { name, expected: 1.0, relation, tolerance, measured: measured.unwrap_or(f64::NAN), unit: "" }
    }
}

fn kibibytes(bytes: u64) -> String {
    format!("{}K", bytes >> 10)
}

fn testbed() -> String {
    "Two simulated nodes (scenario multirail-2004-4x-1x.toml): InfiniHost HCAs, each on a half-duplex PCI-X bus of its own, \
     the second one's link of 250 MB/s; large messages by RDMA write. Each point is a simulation of its own, in which \
     weights begin equal. The best fixed weights are found for each size by a search over weights, each tried in a \
     simulation of its own."
        .to_owned()
}
