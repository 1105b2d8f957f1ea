//! multirail-2004, figures 9 and 10: two processes a node, each with a partner on the other node: one rail
//! that all share, two rails to which the processes of a node are bound in turn, and two rails with even
//! striping.
//!
//! The paper's text gives no bandwidth for these figures, no sizes and no window; the ratios that are claimed
//! follow from its words and its figures 7 and 8, and the descriptions state that.

use rerail_core::config::Policy;

use super::multirail::{Plan, TESTBEDS, WINDOW, megabytes, point, windows};
use super::{Axis, Claim, Figure, FigureError, Lab, Relation, Run, Series};
use crate::scenario::{CoreSettings, Scenario, WorkloadSpec};

/// Processes on each node.
const PROCESSES: u32 = 2;

/// Striping over binding where only striping has both directions of both buses: figures 8 and 7 make it 1877
/// to 2 x 884, which is 1.06.
const STRIPING: f64 = 1.04;

/// Binding over one rail that carries both directions: figures 7 and 8 make it 2 x 884 to 943, which is 1.87.
const BINDING: f64 = 1.8;

/// By how much striping and binding may differ where they are comparable.
const COMPARABLE: f64 = 0.03;

/// How the processes of a node use the rails.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// There is one.
    Original,
    Binding,
    Striping,
}

/// The curves, in their order.
const USES: [(&str, Use); 3] =
    [("original, one rail", Use::Original), ("binding", Use::Binding), ("even striping", Use::Striping)];

impl Use {
    /// The testbed, as an index of [`TESTBEDS`].
    fn testbed(self) -> usize {
        match self {
            Use::Original => 0,
            Use::Binding | Use::Striping => 1,
        }
    }

    fn apply(self, core_settings: &mut CoreSettings) {
        let (multiplex, striping) = match self {
            Use::Original | Use::Binding => (Policy::Binding, Policy::Binding),
            Use::Striping => (Policy::RoundRobin, Policy::Even),
        };
        (core_settings.multiplex, core_settings.striping) = (Some(multiplex), Some(striping));
        core_settings.bind_by_local_rank = Some(true);
    }
}

/// Bandwidth one way over size, the two senders on different nodes.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figure_9(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let series = curves(lab, plan, false)?;
    let [original, binding, striping] = [0, 1, 2].map(|index: usize| series[index].peak());
    let claims = vec![
        ratio("peak, even striping over binding", Relation::AtLeast, STRIPING, 0.0, striping / binding),
        ratio("peak, binding over original", Relation::AtLeast, BINDING, 0.0, binding / original),
    ];
    Ok(Figure {
        source: "multirail-2004, figure 9".into(),
        title: "Bandwidth one way, two processes a node".into(),
        paper: "Bandwidth over message size, two processes a node, the two senders on separate nodes: the original design, \
                binding and even striping. Striping and binding do significantly better than the original; striping does \
                better than binding, for it uses both HCAs in both directions, binding only one direction of each. No \
                number is stated."
            .into(),
        ours: format!(
            "Sum of both pairs. {} The claims' numbers follow from those of figures 7 and 8: striping has what two rails \
             carry both ways (1877), binding twice what a rail carries one way (2 x 884), the original what a rail carries \
             both ways (943).",
            windows(plan.windows, false, &testbed())
        ),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: Vec::new(),
        series,
        claims,
    })
}

/// Bandwidth both ways over size.
///
/// # Errors
/// [`FigureError`] where a simulation did not end clean.
pub(super) fn figure_10(lab: &mut Lab<'_>, plan: &Plan) -> Result<Figure, FigureError> {
    let series = curves(lab, plan, true)?;
    let claims = vec![ratio(
        "peak, even striping over binding",
        Relation::About,
        1.0,
        COMPARABLE,
        series[2].peak() / series[1].peak(),
    )];
    Ok(Figure {
        source: "multirail-2004, figure 10".into(),
        title: "Bandwidth both ways, two processes a node".into(),
        paper: "Bandwidth both ways at once, the sum, over message size, two processes a node, the rest as in figure 9. Both \
                HCAs are used in both directions either way, so that striping and binding perform comparably. No number is \
                stated."
            .into(),
        ours: format!("Sum of both pairs. {}", windows(plan.windows, true, &testbed())),
        timeline: None,
        x: Axis::message_bytes(),
        y: megabytes(),
        stated: Vec::new(),
        series,
        claims,
    })
}

fn ratio(name: &str, relation: Relation, expected: f64, tolerance: f64, measured: f64) -> Claim {
    Claim { name: name.into(), expected, relation, tolerance, measured, unit: "" }
}

/// One curve for each of [`USES`]; each point is a simulation of its own.
fn curves(lab: &mut Lab<'_>, plan: &Plan, both: bool) -> Result<Vec<Series>, FigureError> {
    let mut runs = Vec::new();
    for (name, rails) in USES {
        let (_, file, text) = TESTBEDS[rails.testbed()];
        for bytes in &plan.large {
            let mut scenario = Scenario::parse(file, text)?;
            scenario.ranks_per_host = PROCESSES;
            rails.apply(&mut scenario.config);
            let mut parameters = toml::Table::new();
            parameters.insert("bytes".into(), toml::Value::Array(vec![(*bytes as i64).into()]));
            parameters.insert("window".into(), WINDOW.into());
            parameters.insert("windows".into(), plan.windows.into());
            parameters.insert("both".into(), both.into());
            parameters.insert("apart".into(), true.into());
            scenario.workload = WorkloadSpec { name: "bandwidth".into(), parameters };
            runs.push(Run { what: format!("two processes a node, {name}: {bytes} bytes"), scenario });
        }
    }
    let results = lab.run(&runs)?;
    let series = USES.iter().zip(results.chunks(plan.large.len())).map(|((name, _), results)| Series {
        name: (*name).into(),
        points: results.iter().flatten().map(point).collect(),
    });
    Ok(series.collect())
}

fn testbed() -> String {
    "Two simulated nodes of two processes (scenarios multirail-2004.toml, multirail-2004-two-rails.toml): InfiniHost 4x \
     HCAs, each on a half-duplex PCI-X bus of its own; large messages by RDMA write, small ones as bound or round robin. The \
     first process of each node is the other's first one's partner, and bound to the first HCA. The paper states no sizes, \
     no window and no points of its curves: these are our choice."
        .to_owned()
}
