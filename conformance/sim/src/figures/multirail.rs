//! multirail-2004, figures 5 to 8: one rail against two on the paper's testbed, one process a node. The
//! others are in `pairs` (9, 10), `collective` (11 to 14), `unlike` (17 to 19) and `background` (20).
//!
//! The paper's text gives no range of sizes, no window and no points of its curves; those are ours, and the
//! descriptions state that. What it does state (6.2) is in the claims.

use super::{
    Axis, Claim, Effort, Figure, FigureError, Lab, Relation, Run, Scale, Series, Stated, background, collective, pairs,
    unlike,
};
use crate::scenario::{Scenario, WorkloadSpec};

/// The testbed with one HCA in use, and with two.
pub(super) const TESTBEDS: [(&str, &str, &str); 2] = [
    ("one rail", "multirail-2004.toml", include_str!("../../../scenarios/multirail-2004.toml")),
    ("two rails", "multirail-2004-two-rails.toml", include_str!("../../../scenarios/multirail-2004-two-rails.toml")),
];

/// The largest of small messages: those that travel in packets, each over one rail.
pub(super) const SMALL_MAX: u64 = 8 << 10;

/// Messages that are under way at once where bandwidth is measured.
pub(super) const WINDOW: u32 = 64;

/// What one rail may differ from two where the paper sees no difference.
const COMPARABLE: f64 = 0.02;

/// By how much an absolute value of the paper's testbed may be missed: the simulator's constants are fitted
/// to it.
const ABSOLUTE: f64 = 0.05;

/// By how much a ratio of two values may be missed.
const RATIO: f64 = 0.02;

/// Sizes of messages, in powers of two, and how often they are sent.
pub(super) struct Plan {
    /// Figure 5.
    latency: Vec<u64>,
    /// Figure 6.
    small: Vec<u64>,
    /// Figures 7 to 10.
    pub(super) large: Vec<u64>,
    /// Round trips of each size that are measured.
    rounds: u32,
    /// Windows of each size that are measured.
    pub(super) windows: u32,
}

impl Plan {
    pub(super) fn new(effort: Effort) -> Plan {
        let powers = |from: u32, to: u32, step: usize| (from..=to).step_by(step).map(|power| 1 << power).collect();
        match effort {
            Effort::Quick => Plan {
                latency: vec![1 << 3, 1 << 9, 1 << 13, 1 << 16, 1 << 20],
                small: powers(3, 12, 3),
                large: vec![1 << 14, 1 << 16, 1 << 18],
                rounds: 4,
                windows: 1,
            },
            Effort::Full => Plan {
                latency: powers(2, 22, 1),
                small: powers(2, 13, 1),
                large: powers(12, 22, 1),
                rounds: 20,
                windows: 2,
            },
        }
    }
}

/// Figures 5 to 14, and 17 to 20.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figures(lab: &mut Lab<'_>, effort: Effort) -> Result<Vec<Figure>, FigureError> {
    let plan = Plan::new(effort);
    let mut figures = vec![figure_5(lab, &plan)?, figure_6(lab, &plan)?, figure_7(lab, &plan)?, figure_8(lab, &plan)?];
    figures.extend([pairs::figure_9(lab, &plan)?, pairs::figure_10(lab, &plan)?]);
    figures.extend(collective::figures(lab, effort)?);
    figures.extend(unlike::figures(lab, effort)?);
    figures.push(background::figure_20(lab, effort)?);
    Ok(figures)
}

/// Latency over size.
fn figure_5(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let [one, two] = curves(lab, "ping-pong", &plan.latency, &[("rounds", plan.rounds.into())])?;
    let least = |series: &Series| series.points.first().map_or(f64::NAN, |point| point.1);
    let small = two.over(&one).filter(|point| point.0 <= SMALL_MAX as f64).map(|point| point.1);
    let largest = two.over(&one).last().map_or(f64::NAN, |point| point.1);
    let claims = vec![
        about("smallest latency, one rail", 6.0, ABSOLUTE, least(&one), "us"),
        about("smallest latency, two rails", 6.0, ABSOLUTE, least(&two), "us"),
        Claim {
            name: "small messages (to 8K): two rails over one, the worst size".into(),
            expected: 1.0,
            relation: Relation::AtMost,
            tolerance: COMPARABLE,
            measured: small.fold(f64::NEG_INFINITY, f64::max),
            unit: "",
        },
        Claim {
            name: "largest message: two rails over one".into(),
            expected: 0.5,
            relation: Relation::AtMost,
            tolerance: 0.05,
            measured: largest,
            unit: "",
        },
    ];
    Ok(Figure {
        source: "multirail-2004, figure 5".into(),
        title: "Latency".into(),
        paper:
            "Latency over message size, one process a node: the original MPI (one rail) and the multirail MPI. Small \
                messages perform comparably, the smallest latency is around 6 us for both; for large messages the \
                multirail design achieves about half the latency."
                .into(),
        ours: format!(
            "Half a round trip, mean of {} after 5 that are not counted; memory is registered before. {}",
            plan.rounds,
            testbed()
        ),
        timeline: None,
        x: Axis::message_bytes(),
        y: Axis { label: "latency".into(), unit: "us".into(), scale: Scale::Log10 },
        stated: vec![Stated { name: "paper: smallest, both".into(), value: 6.0 }],
        series: vec![one, two],
        claims,
    })
}

/// Bandwidth of small messages over size.
fn figure_6(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let [one, two] = bandwidth(lab, plan, &plan.small, false)?;
    let least = two.over(&one).map(|point| point.1).fold(f64::INFINITY, f64::min);
    let claims = vec![Claim {
        name: "two rails over one, the worst size".into(),
        expected: 1.0,
        relation: Relation::AtLeast,
        tolerance: 0.0,
        measured: least,
        unit: "",
    }];
    Ok(Figure {
        source: "multirail-2004, figure 6".into(),
        title: "Bandwidth of small messages".into(),
        paper: "Bandwidth one way over the size of small messages, one process a node. The round robin scheme can slightly \
                improve bandwidth; no number is stated."
            .into(),
        ours: format!(
            "{} Ours gain more than slightly: a small message occupies a rail (adapter and bus) for longer than the \
             processor that is simulated, so that messages which alternate find the second rail idle.",
            windows(plan.windows, false, &testbed())
        ),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: Vec::new(),
        series: vec![one, two],
        claims,
    })
}

/// Bandwidth one way over size.
fn figure_7(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let [one, two] = bandwidth(lab, plan, &plan.large, false)?;
    Ok(Figure {
        source: "multirail-2004, figure 7".into(),
        title: "Bandwidth one way".into(),
        paper: "Bandwidth one way over message size, one process a node, even striping. The peak is around 884 MB/s for the \
                original design and around 1723 MB/s (1.95 times as much) for the multirail design."
            .into(),
        ours: windows(plan.windows, false, &testbed()),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: peaks_stated(884.0, 1723.0),
        claims: peaks(&one, &two, 884.0, 1723.0),
        series: vec![one, two],
    })
}

/// Bandwidth both ways over size.
fn figure_8(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let [one, two] = bandwidth(lab, plan, &plan.large, true)?;
    Ok(Figure {
        source: "multirail-2004, figure 8".into(),
        title: "Bandwidth both ways".into(),
        paper:
            "Bandwidth both ways at once, the sum, over message size, one process a node, even striping. The peak is \
                around 943 MB/s for the original design, for both directions share the PCI-X bus, and around 1877 MB/s \
                (1.99 times as much) for the multirail design."
                .into(),
        ours: windows(plan.windows, true, &testbed()),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: peaks_stated(943.0, 1877.0),
        claims: peaks(&one, &two, 943.0, 1877.0),
        series: vec![one, two],
    })
}

fn bandwidth(lab: &mut Lab<'_>, plan: &Plan, sizes: &[u64], both: bool) -> Result<[Series; 2], FigureError> {
    let parameters = [("window", WINDOW.into()), ("windows", plan.windows.into()), ("both", both.into())];
    curves(lab, "bandwidth", sizes, &parameters)
}

/// One curve for each testbed; each point is a simulation of its own.
fn curves(
    lab: &mut Lab<'_>,
    workload: &str,
    sizes: &[u64],
    parameters: &[(&str, toml::Value)],
) -> Result<[Series; 2], FigureError> {
    let mut runs = Vec::new();
    for (rails, file, text) in TESTBEDS {
        let testbed = Scenario::parse(file, text)?;
        for bytes in sizes {
            let mut scenario = testbed.clone();
            let mut table = toml::Table::new();
            table.insert("bytes".into(), toml::Value::Array(vec![(*bytes as i64).into()]));
            table.extend(parameters.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
            scenario.workload = WorkloadSpec { name: workload.into(), parameters: table };
            runs.push(Run { what: format!("{rails}: {workload} of {bytes} bytes"), scenario });
        }
    }
    let results = lab.run(&runs)?;
    let (one, two) = results.split_at(sizes.len());
    let series = |(rails, _, _): (&str, &str, &str), results: &[Vec<_>]| Series {
        name: rails.to_owned(),
        points: results.iter().flatten().map(point).collect(),
    };
    Ok([series(TESTBEDS[0], one), series(TESTBEDS[1], two)])
}

pub(super) fn point(measured: &crate::workload::Measured) -> (f64, f64) {
    (measured.bytes as f64, measured.value)
}

/// The peaks of both curves and their ratio against those of the paper, in MB/s.
fn peaks(one: &Series, two: &Series, paper_one: f64, paper_two: f64) -> Vec<Claim> {
    vec![
        about("peak, one rail", paper_one, ABSOLUTE, one.peak(), "MB/s"),
        about("peak, two rails", paper_two, ABSOLUTE, two.peak(), "MB/s"),
        Claim {
            name: "peak, two rails over one".into(),
            expected: paper_two / paper_one,
            relation: Relation::AtLeast,
            tolerance: RATIO,
            measured: two.peak() / one.peak(),
            unit: "",
        },
    ]
}

fn peaks_stated(one: f64, two: f64) -> Vec<Stated> {
    vec![
        Stated { name: "paper: peak, one rail".into(), value: one },
        Stated { name: "paper: peak, two rails".into(), value: two },
    ]
}

fn about(name: &str, expected: f64, tolerance: f64, measured: f64, unit: &'static str) -> Claim {
    Claim { name: name.into(), expected, relation: Relation::About, tolerance, measured, unit }
}

pub(super) fn megabytes() -> Axis {
    Axis { label: "bandwidth".into(), unit: "MB/s".into(), scale: Scale::Linear }
}

/// What bandwidth is measured by: so many windows, on a testbed that is described.
pub(super) fn windows(count: u32, both: bool, testbed: &str) -> String {
    let ways = if both { "from each side at once, the sum of both" } else { "one way" };
    format!(
        "{count} windows of {WINDOW} messages {ways}, each window ended by a reply, after one that is not counted. {testbed}"
    )
}

fn testbed() -> String {
    "Two simulated nodes (scenarios multirail-2004.toml, multirail-2004-two-rails.toml): InfiniHost 4x HCAs, each on a \
     half-duplex PCI-X bus of its own, fitted to the paper's values of one rail; large messages by RDMA write in even \
     stripes, small ones round robin. The paper states no sizes, no window and no points of its curves: these are our \
     choice."
        .to_owned()
}
