use std::num::NonZero;

use super::*;
use crate::scenario::Scenario;

fn claim(relation: Relation, measured: f64) -> Claim {
    Claim { name: "peak".into(), expected: 100.0, relation, tolerance: 0.05, measured, unit: "MB/s" }
}

#[test]
fn claim_holds_within_its_tolerance() {
    for (relation, holds) in [
        (Relation::About, [false, true, true, true, false]),
        (Relation::AtLeast, [false, true, true, true, true]),
        (Relation::AtMost, [true, true, true, true, false]),
    ] {
        let measured = [94.9, 95.1, 100.0, 104.9, 105.1];
        assert_eq!(measured.map(|measured| claim(relation, measured).holds()), holds, "{relation}");
    }
}

#[test]
fn claim_with_nan_does_not_hold() {
    for relation in [Relation::About, Relation::AtLeast, Relation::AtMost] {
        assert!(!claim(relation, f64::NAN).holds(), "{relation}");
        assert!(!Claim { expected: f64::NAN, ..claim(relation, 1.0) }.holds(), "{relation}");
    }
    // What is folded from an empty series does not hold by accident.
    let empty = Series { name: String::new(), points: Vec::new() };
    assert!(!claim(Relation::About, empty.peak()).holds());
    assert!(!claim(Relation::AtLeast, empty.peak()).holds());
}

#[test]
fn curves_are_compared_at_common_points() {
    let series = |points: &[(f64, f64)]| Series { name: String::new(), points: points.to_vec() };
    let (one, two) = (series(&[(8.0, 2.0), (64.0, 4.0)]), series(&[(64.0, 6.0), (128.0, 9.0)]));
    assert_eq!(two.over(&one).collect::<Vec<_>>(), [(64.0, 1.5)]);
    assert_eq!((one.peak(), two.at(128.0), two.at(8.0)), (4.0, Some(9.0), None));
}

/// multirail-2004, figure 20. `cargo test -p rerail-sim --release -- --nocapture figure_20` prints the
/// numbers.
#[test]
fn figure_20_claims_hold() {
    hold(|lab| Ok(vec![background::figure_20(lab, Effort::Quick)?]));
}

/// multirail-2004, figures 9 and 10.
#[test]
fn figures_9_and_10_claims_hold() {
    let plan = multirail::Plan::new(Effort::Quick);
    hold(|lab| Ok(vec![pairs::figure_9(lab, &plan)?, pairs::figure_10(lab, &plan)?]));
}

/// multirail-2004, figures 11 to 14.
#[test]
fn figures_11_to_14_claims_hold() {
    hold(|lab| collective::figures(lab, Effort::Quick));
}

/// P-9: what newmadeleine-2007 states of its strategies. `cargo test -p rerail-sim --release -- --nocapture
/// newmadeleine` prints the numbers.
#[test]
fn newmadeleine_claims_hold() {
    hold(|lab| newmadeleine::figures(lab, Effort::Quick));
}

/// All claims of these figures hold; they and the curves are printed.
fn hold(figures: impl Fn(&mut Lab<'_>) -> Result<Vec<Figure>, FigureError>) {
    let mut on_step = |_: &Step| {};
    let threads = NonZero::new(2).expect("not zero");
    let figures = figures(&mut Lab::new(threads, &mut on_step)).expect("all end clean");
    for figure in &figures {
        for series in &figure.series {
            println!("{}: {}: {:.2?}", figure.source, series.name, series.points);
        }
    }
    let claims = figures.iter().flat_map(|figure| figure.claims.iter().map(move |claim| (&figure.source, claim)));
    let failed: Vec<_> = claims.inspect(|claim| println!("{claim:?}")).filter(|(_, claim)| !claim.holds()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

fn cluster(bytes: u32, more: &str) -> Run {
    let text = format!("[workload]\nname = \"ping-pong\"\nparameters = {{ bytes = [{bytes}], rounds = 2 }}\n{more}");
    Run { what: format!("{bytes} bytes"), scenario: Scenario::parse("test", &text).expect("a scenario") }
}

#[test]
fn lab_results_keep_the_run_order_for_any_thread_count() {
    let runs = [cluster(1 << 20, ""), cluster(8, ""), cluster(4096, ""), cluster(64, "")];
    let run = |threads: usize| {
        let mut steps = Vec::new();
        let mut on_step = |step: &Step| steps.push(step.clone());
        let mut lab = Lab::new(NonZero::new(threads).expect("not zero"), &mut on_step);
        let results = lab.run(&runs).expect("all end clean");
        (results, steps)
    };
    let (alone, steps) = run(1);
    let bytes: Vec<u64> = alone.iter().map(|measured| measured[0].bytes).collect();
    assert_eq!(bytes, [1 << 20, 8, 4096, 64]);
    assert_eq!(run(3).0, alone);
    let done: Vec<(u64, u64)> = steps.iter().map(|step| (step.done, step.total)).collect();
    assert_eq!(done, [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]);
}

#[test]
fn run_without_clean_verdict_gives_no_figure() {
    let short_limits = cluster(16, "[limits]\nsafety = \"0us\"\nconvergence = \"1us\"\n");
    let mut on_step = |_: &Step| {};
    let error = Lab::new(NonZero::<usize>::MIN, &mut on_step).run(&[cluster(8, ""), short_limits]);
    let Err(FigureError::Run { what, verdict }) = error else { panic!("{error:?}") };
    assert_eq!(what, "16 bytes");
    assert!(verdict.contains("stuck"), "{verdict}");
}

/// resilient-2010, IV and VI: what reliability costs and how long recovery takes.
/// `cargo test -p rerail-sim --release -- --nocapture resilient` prints the numbers.
#[test]
fn resilient_claims_hold() {
    hold(|lab| resilient::figures(lab, Effort::Quick));
}

/// shiba-2005, figures 3 to 7 and section 3. `cargo test -p rerail-sim --release -- --nocapture shiba` prints
/// the numbers.
#[test]
fn shiba_claims_hold() {
    hold(|lab| shiba::figures(lab, Effort::Quick));
}
