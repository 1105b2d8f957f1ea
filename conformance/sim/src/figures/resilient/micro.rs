//! resilient-2010, figure 4: latency and bandwidth with reliability on and off. Bandwidth both ways is only
//! described in text there (VI.B): no overhead.

use super::{CONFIGURATIONS, configure, greatest, testbed};
use crate::figures::multirail::{megabytes, point};
use crate::figures::{Axis, Claim, Effort, Figure, FigureError, Lab, Relation, Run, Scale, Series};
use crate::scenario::WorkloadSpec;
use crate::workload::Measured;

/// What reliability may cost at the worst size: the paper sees no difference, and its plots have lines on top
/// of each other.
const OVERHEAD: f64 = 0.01;

/// Messages that are under way at once where bandwidth is measured.
const WINDOW: u32 = 64;

/// Both ways, what two sides do to each other depends on which comes a moment earlier: among windows that
/// differ by one message bandwidth of reads of 16 KiB differs by a sixth, whatever is on or off. So each size
/// is the mean of windows around [`WINDOW`]: this many of eager messages, and of larger ones as many as
/// [`BYTES_BOTH`] has room for messages, up to so many windows.
const WINDOWS_BOTH: [u32; 2] = [8, 64];

const BYTES_BOTH: u64 = 4 << 20;

/// The largest message that goes eagerly.
const EAGER_MAX: u64 = 8 << 10;

/// Messages, and blocks for them, that a receiver grants: room for both sides' windows of the largest eager
/// ones. With less some of them go by rendezvous after all, which is another comparison.
const GRANTED: [u16; 2] = [256, 512];

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Latency,
    OneWay,
    BothWays,
}

/// Sizes of messages, and how often they are sent.
struct Plan {
    latency: Vec<u64>,
    bandwidth: Vec<u64>,
    rounds: u32,
    windows: u32,
    /// Whether both ways are a mean over windows of several sizes.
    means: bool,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        let powers = |from: u32, to: u32, step: usize| (from..=to).step_by(step).map(|power| 1 << power).collect();
        match effort {
            Effort::Quick => Plan {
                latency: vec![8, 1 << 13, 1 << 16],
                bandwidth: vec![8, 1 << 13, 1 << 16],
                rounds: 20,
                windows: 4,
                means: false,
            },
            Effort::Full => {
                Plan { latency: powers(0, 22, 1), bandwidth: powers(0, 22, 1), rounds: 100, windows: 10, means: true }
            }
        }
    }
}

impl Plan {
    /// Sizes of windows for a size of messages.
    fn windows_of(&self, what: What, bytes: u64) -> Vec<u32> {
        let [eager, most] = WINDOWS_BOTH;
        let count = match what {
            What::BothWays if self.means && bytes <= EAGER_MAX => eager,
            What::BothWays if self.means => (BYTES_BOTH / bytes).clamp(1, most.into()) as u32,
            _ => 1,
        };
        (0..count).map(|more| WINDOW - count / 2 + more).collect()
    }
}

/// Latency, bandwidth one way and both ways.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figures(lab: &mut Lab<'_>, effort: Effort) -> Result<Vec<Figure>, FigureError> {
    let plan = Plan::new(effort);
    [What::Latency, What::OneWay, What::BothWays].into_iter().map(|what| figure(lab, &plan, what)).collect()
}

fn figure(lab: &mut Lab<'_>, plan: &Plan, what: What) -> Result<Figure, FigureError> {
    let series = curves(lab, plan, what)?;
    let (source, title, paper) = match what {
        What::Latency => ("resilient-2010, figure 4, latency", "Latency with reliability on and off", FOUR),
        What::OneWay => ("resilient-2010, figure 4, bandwidth", "Bandwidth with reliability on and off", FOUR),
        What::BothWays => ("resilient-2010, VI.B, both ways", "Bandwidth both ways with reliability on and off", BOTH),
    };
    let how = match what {
        What::Latency => format!("Half a round trip, mean of {} after 5 that are not counted.", plan.rounds),
        What::OneWay => format!(
            "{} windows of {WINDOW} messages, each ended by a reply, after one that is not counted.",
            plan.windows
        ),
        What::BothWays => {
            let mean = if plan.means { ", mean over up to 64 sizes of windows around that" } else { "" };
            format!("{} windows of {WINDOW} messages from each side at once, the sum of both{mean}.", plan.windows)
        }
    };
    Ok(Figure {
        source: source.into(),
        title: title.into(),
        paper: paper.into(),
        ours: format!(
            "{how} Two simulated nodes of the testbed (resilient-2010.toml), one port of each HCA; up to 8 KiB eagerly, \
             above by remote write (RPut) or remote read (RGet). Sizes, windows and repeats are our choice. What is \
             compared is each size by itself."
        ),
        timeline: None,
        x: Axis::message_bytes(),
        y: match what {
            What::Latency => Axis { label: "latency".into(), unit: "us".into(), scale: Scale::Log10 },
            What::OneWay | What::BothWays => megabytes(),
        },
        stated: Vec::new(),
        claims: claims(&series, what),
        series,
    })
}

const FOUR: &str = "Latency and bandwidth over message size for RPut, RPut-Rel, RGet and RGet-Rel: \"no added overhead for \
    reliability\".";

const BOTH: &str = "\"For all standard microbenchmarks including latency, bandwidth and bi-directional bandwidth there is no \
    overhead.\" There is no plot of it.";

/// One curve for each configuration; each point is a simulation of its own.
fn curves(lab: &mut Lab<'_>, plan: &Plan, what: What) -> Result<Vec<Series>, FigureError> {
    let sizes = if what == What::Latency { &plan.latency } else { &plan.bandwidth };
    let windows: Vec<Vec<u32>> = sizes.iter().map(|bytes| plan.windows_of(what, *bytes)).collect();
    let (mut runs, mut names) = (Vec::new(), Vec::new());
    for configuration in CONFIGURATIONS {
        let mut bed = testbed(2, 1, 1)?;
        (bed.config.unexpected_per_peer, bed.config.blocks_per_peer) = (Some(GRANTED[0]), Some(GRANTED[1]));
        let name = configure(&mut bed, configuration);
        names.push(name);
        let points =
            sizes.iter().zip(&windows).flat_map(|(bytes, windows)| windows.iter().map(move |window| (bytes, window)));
        for (bytes, window) in points {
            let mut parameters = toml::Table::new();
            parameters.insert("bytes".into(), toml::Value::Array(vec![(*bytes as i64).into()]));
            let workload = match what {
                What::Latency => {
                    parameters.insert("rounds".into(), plan.rounds.into());
                    "ping-pong"
                }
                What::OneWay | What::BothWays => {
                    parameters.insert("window".into(), (*window).into());
                    parameters.insert("windows".into(), plan.windows.into());
                    parameters.insert("both".into(), (what == What::BothWays).into());
                    "bandwidth"
                }
            };
            let mut scenario = bed.clone();
            scenario.workload = WorkloadSpec { name: workload.into(), parameters };
            runs.push(Run { what: format!("{name}: {workload} of {bytes} bytes"), scenario });
        }
    }
    let results = lab.run(&runs)?;
    let mut results = results.iter();
    let mut series = |name: &str| Series {
        name: name.into(),
        points: windows.iter().filter_map(|windows| mean(results.by_ref().take(windows.len()))).collect(),
    };
    Ok(names.into_iter().map(&mut series).collect())
}

/// One size with every window: their mean.
fn mean<'r>(results: impl Iterator<Item = &'r Vec<Measured>>) -> Option<(f64, f64)> {
    let points: Vec<(f64, f64)> = results.flatten().map(point).collect();
    let (bytes, _) = points.first()?;
    Some((*bytes, points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64))
}

/// On against off, the worst size; more is worse of latency, better of bandwidth.
fn claims(series: &[Series], what: What) -> Vec<Claim> {
    let claim = |pair: &[Series]| {
        let [off, on] = pair else { return None };
        let times = on.over(off).map(|(_, ratio)| if what == What::Latency { ratio } else { 1.0 / ratio });
        Some(Claim {
            name: format!("{} over {}, time at the worst size", on.name, off.name),
            expected: 1.0,
            relation: Relation::AtMost,
            tolerance: OVERHEAD,
            measured: greatest(times),
            unit: "",
        })
    };
    series.chunks(2).filter_map(claim).collect()
}
