//! `balanced` over random sets of rails beside every other policy: what `rerail lab` plays, as a figure. No
//! paper has it; the demands are issue 4's.

use super::{Axis, Claim, Effort, Figure, FigureError, Lab, Relation, Scale, Series, Stated};
use crate::lab::{Demand, Request, Size, run};

/// Classes of sizes, and their names as the axis has them.
const SIZES: [Size; 4] = [Size::Eager, Size::Whole, Size::Middle, Size::Large];
const NAMES: &[&str] = &[Size::Eager.name(), Size::Whole.name(), Size::Middle.name(), Size::Large.name()];

/// The figure.
///
/// # Errors
/// [`FigureError::Run`] where a message never came.
pub(super) fn figures(lab: &mut Lab<'_>, effort: Effort) -> Result<Vec<Figure>, FigureError> {
    let seeds = match effort {
        Effort::Quick => 10,
        Effort::Full => 200,
    };
    let request = Request { from: 1, seeds, threads: lab.threads() };
    let report = run(request, &mut |_| {})
        .map_err(|verdict| FigureError::Run { what: "random sets of rails".into(), verdict })?;
    let series = |demand: Demand| {
        let share = |(x, size): (usize, &Size)| {
            let shares = report.shares(demand, |outcome| Size::of(outcome.bytes) == *size);
            (x as f64, 100.0 * shares.share())
        };
        Series { name: demand.name().into(), points: SIZES.iter().enumerate().map(share).collect() }
    };
    let mean = |demand: Demand, expected: f64| Claim {
        name: format!("balanced over {}, geometric mean of all cases", demand.name()),
        expected,
        relation: Relation::AtLeast,
        tolerance: 0.0,
        measured: report.shares(demand, |_| true).mean,
        unit: "",
    };
    Ok(vec![Figure {
        source: "random sets of rails".into(),
        title: "Cases in which balanced is about as good as the best".into(),
        paper:
            "Of no paper. Demanded: no more than 3 % slower than the best single rail and 97 % of the best policy in \
                every case, 97 % of the best fixed split in 95 % of the cases."
                .into(),
        ours: format!(
            "{seeds} sets of 2 to 8 rails, drawn by a seed each: bandwidths up to 1:50 apart, shared bottlenecks, changing \
             load; eight sizes each. Two endpoints over lines in virtual time, by every policy; a search finds the best \
             split where nothing changes. The demands are not reached everywhere; where and why is in \
             conformance/BENCHMARKS.md. Claimed is the mean alone."
        ),
        timeline: None,
        x: Axis { label: "message".into(), unit: String::new(), scale: Scale::Names(NAMES) },
        y: Axis { label: "cases as good as".into(), unit: "%".into(), scale: Scale::Linear },
        series: Demand::ALL.into_iter().map(series).collect(),
        stated: vec![Stated { name: "demanded of the best split".into(), value: 95.0 }],
        claims: vec![mean(Demand::Single, 1.3), mean(Demand::Policy, 0.95), mean(Demand::Optimum, 0.95)],
    }])
}
