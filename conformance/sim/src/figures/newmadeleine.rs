//! newmadeleine-2007, figures 2 to 7: a ping-pong of one, two and four segments over Myri-10G, Quadrics and
//! both, under the strategies of the paper.
//!
//! The paper's text gives no range of sizes and no points of its curves, neither how fast programmed I/O is
//! nor how long a poll takes; those are ours (`newmadeleine-2007.toml` marks them). What it does state is in
//! the claims.

mod claims;

use rerail_core::config::Policy;

use super::multirail::megabytes;
use super::{Axis, Effort, Figure, FigureError, Lab, Run, Scale, Series, Stated};
use crate::scenario::{CoreSettings, RailSpec, Scenario, WorkloadSpec};

const FILE: &str = "newmadeleine-2007.toml";
const TEXT: &str = include_str!("../../../scenarios/newmadeleine-2007.toml");

/// The rails of the testbed, as HCAs of the scenario.
const MYRI: &[u32] = &[0];
const QUADRICS: &[u32] = &[1];
const BOTH: &[u32] = &[0, 1];

/// A size that goes before each that is measured: rails are sampled by what it brings (3.4: "samplings
/// performed on the different available NICs (this step is done at the NEWMADELEINE initialization time)").
const SAMPLING: i64 = 1 << 20;

/// Round trips of each size that are not counted.
const WARM_UP: i64 = 2;

/// Up to here messages are small: the paper's "lesser than 16 KB".
const SMALL_MAX: u64 = 16 << 10;

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// No aggregation: one packet for each segment, one after the other, on one rail.
    NoPolicy,
    Greedy,
    Aggregate,
    NewMadeleine,
}

impl By {
    fn apply(self, core_settings: &mut CoreSettings) {
        let (multiplex, striping) = match self {
            By::NoPolicy => (Policy::Binding, Policy::Binding),
            By::Greedy => (Policy::Greedy, Policy::Greedy),
            By::Aggregate => (Policy::Aggregate, Policy::Aggregate),
            By::NewMadeleine => (Policy::NewMadeleine, Policy::NewMadeleine),
        };
        (core_settings.multiplex, core_settings.striping) = (Some(multiplex), Some(striping));
    }
}

/// A curve: rails, what decides, segments.
#[derive(Clone, Copy, Debug)]
struct Curve(&'static str, &'static [u32], By, u32);

/// Sizes of messages, all their segments together, and how often they are sent.
struct Plan {
    small: Vec<u64>,
    large: Vec<u64>,
    rounds: u32,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let powers = |from: u32, to: u32, step: usize| (from..=to).step_by(step).map(|power| 1 << power).collect();
        match effort {
            Effort::Quick => Plan {
                small: vec![1 << 3, 1 << 10, 1 << 11, 1 << 13, 1 << 14],
                large: vec![1 << 15, 1 << 16, 1 << 18, 1 << 22],
                rounds: 2,
            },
            Effort::Full => Plan { small: powers(2, 16, 1), large: powers(12, 23, 1), rounds: 10 },
        }
    }
}

/// Figures 2 to 7.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figures(lab: &mut Lab<'_>, effort: Effort) -> Result<Vec<Figure>, FigureError> {
    let plan = Plan::new(effort);
    let (myri, mut quadrics) = (raw(lab, &plan, MYRI)?, raw(lab, &plan, QUADRICS)?);
    quadrics.claims.push(claims::bigger_gain(&quadrics.series, &myri.series));
    let mut figures = vec![myri, quadrics];
    for segments in [2, 4] {
        figures.extend(greedy(lab, &plan, segments)?);
    }
    figures.push(aggregation(lab, &plan)?);
    figures.push(splitting(lab, &plan)?);
    Ok(figures)
}

/// Figures 2 and 3: one rail, segments each in a packet of its own and together.
fn raw(lab: &mut Lab<'_>, plan: &Plan, rails: &'static [u32]) -> Result<Figure, FigureError> {
    let curves = [
        Curve("1 segment", rails, By::NoPolicy, 1),
        Curve("2 segments, apart", rails, By::NoPolicy, 2),
        Curve("2 segments, aggregated", rails, By::Aggregate, 2),
        Curve("4 segments, apart", rails, By::NoPolicy, 4),
        Curve("4 segments, aggregated", rails, By::Aggregate, 4),
    ];
    let series = run(lab, plan, &plan.small, &curves)?;
    let [peak] = &run(lab, plan, &plan.large, &curves[..1])?[..] else { unreachable!("one curve, one series") };
    let (number, name, latency, bandwidth) =
        if rails == MYRI { (2, "Myri-10G", 2.8, 1200.0) } else { (3, "Quadrics", 1.7, 850.0) };
    Ok(Figure {
        source: format!("newmadeleine-2007, figure {number}"),
        title: format!("{name} alone, segments apart and aggregated"),
        paper: format!(
            "Latency and bandwidth over {name} for messages of one, two and four segments of equal size, over the \
             accumulated size. The latency is {latency} us, the maximal bandwidth approximately {bandwidth} MB/s. Below \
             16 KB \"the best solution is to copy the segments into a contiguous memory area and to send them as a single \
             chunk\"; the overhead of the copies is very low{}.",
            if rails == MYRI { "" } else { ", and the gain is even bigger than on Myri-10G" }
        ),
        ours: ours(
            plan,
            "Apart: one packet after the other. Aggregated: the strategy `aggregate`, which leaves segments apart where \
                 copies cost more than packets: by our costs from 8 KiB on with two segments, from 16 KiB on with \
                 four, sooner than in the paper. At 1 KiB two segments lose a few percent by going together: what \
                 programmed I/O moves is sent frame by frame (1 KiB) once a frame is there, so halves of one overlap.",
        ),
        timeline: None,
        x: Axis::message_bytes(),
        y: Axis { label: "latency".into(), unit: "us".into(), scale: Scale::Log10 },
        stated: vec![Stated { name: "paper: smallest".into(), value: latency }],
        claims: claims::raw(&series, &bandwidth_of(peak), latency, bandwidth),
        series,
    })
}

/// Figures 4 and 5: the greedy strategy over both rails, in latency and in bandwidth.
fn greedy(lab: &mut Lab<'_>, plan: &Plan, segments: u32) -> Result<[Figure; 2], FigureError> {
    let curves = [
        Curve("Myri-10G alone", MYRI, By::NoPolicy, segments),
        Curve("Quadrics alone", QUADRICS, By::NoPolicy, segments),
        Curve("greedy over both", BOTH, By::Greedy, segments),
    ];
    let small = run(lab, plan, &plan.small, &curves)?;
    let large: Vec<_> = run(lab, plan, &plan.large, &curves)?.iter().map(bandwidth_of).collect();
    let number = if segments == 2 { 4 } else { 5 };
    let words = "Each NIC that is idle takes the first segment that waits, whole. Only \"valuable when the amount of data \
                 is greater than 16KB\", because the processor moves small messages to the NICs one after the other \
                 (programmed I/O).";
    let figure = |part, y, paper: String, series: Vec<Series>, stated, claims| Figure {
        source: format!("newmadeleine-2007, figure {number}({part})"),
        title: format!("Greedy, {segments} segments"),
        paper,
        ours: ours(plan, "On one rail all segments go one after the other."),
        timeline: None,
        x: Axis::message_bytes(),
        y,
        stated,
        claims,
        series,
    };
    let latency = Axis { label: "latency".into(), unit: "us".into(), scale: Scale::Log10 };
    let claims_small = claims::greedy_small(&small);
    let peak = if segments == 2 {
        "The maximum bandwidth is 1675 MB/s; the I/O bus is theoretically able to do approximately 2 GB/s."
    } else {
        "\"The same overall behavior\"; for large transfers the bandwidth is \"still interestingly rather high in spite of \
         the additional processing\"; no number is stated."
    };
    let stated = vec![Stated { name: "paper: greedy, 2 segments, peak".into(), value: 1675.0 }];
    let claims_large = claims::greedy_large(&large, segments);
    Ok([
        figure("a", latency, words.into(), small, Vec::new(), claims_small),
        figure("b", megabytes(), format!("{words} {peak}"), large, stated, claims_large),
    ])
}

/// Figure 6: small messages together over the fastest rail.
fn aggregation(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let curves = [
        Curve("Quadrics alone, aggregated", QUADRICS, By::Aggregate, 2),
        Curve("aggregate over both", BOTH, By::Aggregate, 2),
        Curve("greedy over both", BOTH, By::Greedy, 2),
    ];
    let series = run(lab, plan, &plan.small, &curves)?;
    let poll_us = Scenario::parse(FILE, TEXT)?.hcas()[0].cost.poll_ns as f64 / 1000.0;
    Ok(Figure {
        source: "newmadeleine-2007, figure 6".into(),
        title: "Aggregation on the fastest rail".into(),
        paper:
            "Small messages are aggregated and sent over Quadrics, large ones go greedily over both. The gap between \
                this strategy and Quadrics only is \"mainly due to a polling operation on the Myri-10G NIC\"."
                .into(),
        ours: ours(plan, &format!("Two segments. A poll of the Myri-10G NIC takes {poll_us} us.")),
        timeline: None,
        x: Axis::message_bytes(),
        y: Axis { label: "latency".into(), unit: "us".into(), scale: Scale::Log10 },
        stated: Vec::new(),
        claims: claims::aggregation(&series, poll_us),
        series,
    })
}

/// Figure 7: large messages cut by the rails' bandwidths.
fn splitting(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let curves = [
        Curve("Myri-10G alone", MYRI, By::NoPolicy, 1),
        Curve("Quadrics alone", QUADRICS, By::NoPolicy, 1),
        Curve("greedy, 2 segments", BOTH, By::Greedy, 2),
        Curve("split", BOTH, By::NewMadeleine, 1),
    ];
    let series: Vec<_> = run(lab, plan, &plan.large, &curves)?.iter().map(bandwidth_of).collect();
    Ok(Figure {
        source: "newmadeleine-2007, figure 7".into(),
        title: "Packet stripping with adaptive threshold".into(),
        paper: "Large messages are cut by ratios that sampling gives, so that the parts take equally long, each large \
                enough not to go by programmed I/O. \"The bandwidth is indeed improved\"; no number is stated. Benefits of \
                several networks are seen \"starting from 32KB-length messages\" (4)."
            .into(),
        ours: ours(plan, "Split: the strategy `newmadeleine`, one segment. Held to 95 % of what the bus carries, 1900 MB/s."),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: vec![Stated { name: "bus".into(), value: 2000.0 }],
        claims: claims::splitting(&series),
        series,
    })
}

fn ours(plan: &Plan, more: &str) -> String {
    format!(
        "{more} Half a round trip, mean of {} after {WARM_UP} that are not counted, on {FILE}; before, messages of {} MiB show what \
         the rails are. Rates of programmed I/O, polls and copies are ours, sizes too.",
        plan.rounds,
        SAMPLING >> 20
    )
}

/// Latencies over size, a series for each curve; each point is a simulation of its own.
fn run(lab: &mut Lab<'_>, plan: &Plan, sizes: &[u64], curves: &[Curve]) -> Result<Vec<Series>, FigureError> {
    let testbed = Scenario::parse(FILE, TEXT)?;
    let mut runs = Vec::new();
    for &Curve(name, rails, by, segments) in curves {
        for &bytes in sizes {
            let mut scenario = testbed.clone();
            scenario.rails = rails.iter().map(|&hca| RailSpec::Hca { hca, port: 0, path: 0 }).collect();
            by.apply(&mut scenario.config);
            let mut table = toml::Table::new();
            table.insert("bytes".into(), toml::Value::Array(vec![SAMPLING.into(), (bytes as i64).into()]));
            table.insert("rounds".into(), plan.rounds.into());
            table.insert("warm_up".into(), WARM_UP.into());
            table.insert("segments".into(), segments.into());
            scenario.workload = WorkloadSpec { name: "ping-pong".into(), parameters: table };
            runs.push(Run { what: format!("{name}: {bytes} bytes"), scenario });
        }
    }
    let results = lab.run(&runs)?;
    let series = |(curve, results): (&Curve, &[Vec<crate::workload::Measured>])| Series {
        name: curve.0.to_owned(),
        points: results.iter().filter_map(|sizes| sizes.get(1)).map(super::multirail::point).collect(),
    };
    Ok(curves.iter().zip(results.chunks(sizes.len())).map(series).collect())
}

/// MB/s of a series of latencies.
fn bandwidth_of(latency: &Series) -> Series {
    Series {
        name: latency.name.clone(),
        points: latency.points.iter().map(|&(bytes, us)| (bytes, bytes / us)).collect(),
    }
}
