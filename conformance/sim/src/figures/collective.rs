//! multirail-2004, figures 11 to 14: broadcast and all-to-all over eight nodes, one process a node and two,
//! one rail against two.
//!
//! The paper ran the Pallas benchmarks, and its text gives no number for any of these figures, nor sizes.
//! What is claimed follows from its words ("very similar to what we have observed in previous tests") and
//! from figure 5: about half the time for large messages, none lost for small ones.

use rerail_core::config::Policy;

use super::multirail::{SMALL_MAX, TESTBEDS, point};
use super::{Axis, Claim, Effort, Figure, FigureError, Lab, Relation, Run, Scale, Series};
use crate::scenario::{Scenario, WorkloadSpec};

/// Nodes of the testbed (6.1).
const NODES: u32 = 8;

/// Two rails over one for large messages, one process a node: half, and what the stages of a collective cost
/// beside.
const LARGE: f64 = 0.6;

/// What two rails may lose with small messages.
const SMALL: f64 = 0.03;

/// A figure.
struct Collective {
    number: u32,
    title: &'static str,
    /// The workload.
    workload: &'static str,
    /// The MPI function.
    function: &'static str,
    /// Processes on each node.
    processes: u32,
    /// What two rails may take of one rail's time with the largest messages.
    large: f64,
}

const FIGURES: [Collective; 4] = [
    Collective {
        number: 11,
        title: "Broadcast, one process a node",
        workload: "broadcast",
        function: "MPI_Bcast",
        processes: 1,
        large: LARGE,
    },
    Collective {
        number: 12,
        title: "All to all, one process a node",
        workload: "all-to-all",
        function: "MPI_Alltoall",
        processes: 1,
        large: LARGE,
    },
    Collective {
        number: 13,
        title: "Broadcast, two processes a node",
        workload: "broadcast",
        function: "MPI_Bcast",
        processes: 2,
        large: LARGE,
    },
    Collective {
        number: 14,
        title: "All to all, two processes a node",
        workload: "all-to-all",
        function: "MPI_Alltoall",
        processes: 2,
        large: LARGE,
    },
];

/// Sizes of messages, in powers of two, and how often they are sent.
struct Plan {
    sizes: Vec<u64>,
    /// Rounds, the first of which is not measured.
    rounds: u32,
}

impl Plan {
    fn new(effort: Effort) -> Plan {
        match effort {
            Effort::Quick => Plan { sizes: vec![1 << 6, 1 << 13, 1 << 18], rounds: 2 },
            Effort::Full => Plan { sizes: (2..=20).map(|power| 1 << power).collect(), rounds: 4 },
        }
    }
}

/// Figures 11 to 14.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figures(lab: &mut Lab<'_>, effort: Effort) -> Result<Vec<Figure>, FigureError> {
    let plan = Plan::new(effort);
    FIGURES.iter().map(|figure| figure.run(lab, &plan)).collect()
}

impl Collective {
    fn run(&self, lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
        let series = self.curves(lab, plan)?;
        let ratios = || series[1].over(&series[0]);
        let small = ratios().filter(|point| point.0 <= SMALL_MAX as f64).map(|point| point.1).reduce(f64::max);
        let largest = ratios().last().map(|point| point.1);
        let claim = |name: &str, expected: f64, tolerance: f64, measured: Option<f64>| Claim {
            name: name.into(),
            expected,
            relation: Relation::AtMost,
            tolerance,
            // What was measured nowhere holds nowhere.
            measured: measured.unwrap_or(f64::NAN),
            unit: "",
        };
        let claims = vec![
            claim("small messages (to 8K): two rails over one, the worst size", 1.0, SMALL, small),
            claim("largest message: two rails over one", self.large, 0.0, largest),
        ];
        let (processes, all) = (self.processes, self.processes * NODES);
        Ok(Figure {
            source: format!("multirail-2004, figure {}", self.number),
            title: self.title.into(),
            paper: format!(
                "Latency of {} over message size by the Pallas benchmarks, {all} processes on {NODES} nodes: the original \
                 MPI (one rail) and the multirail MPI. The trend is very similar to the tests before, with significant \
                 improvement for large messages. No number is stated.",
                self.function
            ),
            ours: format!(
                "Time until the slowest of {all} processes has finished, what it sends included, all beginning at one moment of \
                 virtual time; mean of {} after one that is not counted. {} {NODES} simulated nodes (scenarios multirail-2004.toml, \
                 multirail-2004-two-rails.toml) of {processes} on one switch, ranks {}; large messages by RDMA write in \
                 even stripes, small ones round robin. Sizes are our choice, and the claims' numbers what follows from \
                 figure 5.",
                plan.rounds - 1,
                match self.workload {
                    "broadcast" => "Down a binomial tree from rank 0, the whole message at each stage.",
                    _ =>
                        "As many steps as there are processes, in each of which pairs exchange messages, four steps under way.",
                },
                match self.processes {
                    1 => "one a node".to_owned(),
                    _ => "in blocks, so that neighbours share a node; its memory carries what they send each other, and takes \
                          hardly any time here"
                        .to_owned(),
                },
            ),
            timeline: None,
            x: Axis::message_bytes(),
            y: Axis { label: "latency".into(), unit: "us".into(), scale: Scale::Log10 },
            stated: Vec::new(),
            series,
            claims,
        })
    }

    /// One curve for each testbed; each point is a simulation of its own.
    fn curves(&self, lab: &mut Lab<'_>, plan: &Plan) -> Result<Vec<Series>, FigureError> {
        let mut runs = Vec::new();
        for (rails, file, text) in TESTBEDS {
            for bytes in &plan.sizes {
                let mut scenario = Scenario::parse(file, text)?;
                (scenario.hosts, scenario.ranks_per_host) = (NODES, self.processes);
                scenario.config.multiplex = Some(Policy::RoundRobin);
                scenario.config.striping = Some(Policy::Even);
                let mut parameters = toml::Table::new();
                parameters.insert("bytes".into(), (*bytes as i64).into());
                parameters.insert("rounds".into(), plan.rounds.into());
                // Longer than any round takes; nothing happens in what is left of it.
                parameters.insert("every".into(), "100ms".into());
                scenario.workload = WorkloadSpec { name: self.workload.into(), parameters };
                runs.push(Run { what: format!("{}, {rails}: {bytes} bytes", self.title), scenario });
            }
        }
        let results = lab.run(&runs)?;
        let series = TESTBEDS.iter().zip(results.chunks(plan.sizes.len())).map(|((rails, _, _), results)| Series {
            name: (*rails).into(),
            points: results.iter().flatten().map(point).collect(),
        });
        Ok(series.collect())
    }
}
