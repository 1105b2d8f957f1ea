//! `rerail series`: bandwidth over time as `rerail perf --seconds` has measured it, judged against what the
//! rails together could carry at the time, and drawn (as in figure 20 of multirail-2004).

mod judge;

use std::path::Path;

use rerail_sim::figures::{Axis, Figure, Scale, Series, Stated};
use serde::Serialize;

use crate::cli::SeriesArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Align, Table, bad, good, json, json_fault, write_stdout};
use crate::perf::steady::Steady;
use crate::report::plot;

use judge::{Phase, Targets, judge};

/// Bytes per second of a Mbit/s.
const MBIT: f64 = 1e6 / 8.0;

/// One run, judged.
#[derive(Clone, Debug, Serialize)]
struct Judged {
    name: String,
    measure: String,
    policy: String,
    /// Over the whole run.
    mbit_per_second: f64,
    phases: Vec<Phase>,
    /// Whether its phases count.
    counts: bool,
}

/// Reads, judges, draws.
pub fn run(args: &SeriesArgs) -> Result<Exit, Failure> {
    if args.sums.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(Failure::usage("--sums stand in the order of time"));
    }
    let targets = Targets { steady: args.steady / 100.0, recovered: args.recovered / 100.0, within: args.within };
    let runs: Vec<(String, Steady)> = args.files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    if let Some(unknown) = args.judge.iter().find(|name| runs.iter().all(|(known, _)| known != *name)) {
        return Err(Failure::usage(format!("--judge {unknown}: there is no such curve")));
    }
    let judged: Vec<Judged> = runs
        .iter()
        .map(|(name, run)| Judged {
            name: name.clone(),
            measure: run.measure.clone(),
            policy: run.policy.clone(),
            mbit_per_second: run.bytes_per_second / MBIT,
            phases: judge(&points(run), &args.sums, &targets),
            counts: args.judge.is_empty() || args.judge.contains(name),
        })
        .collect();
    if let Some(file) = &args.svg {
        let svg = plot::svg(&figure(args, &runs)).map_err(Failure::usage)?;
        std::fs::write(file, svg).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    }
    if args.json {
        json(&judged)?;
    } else {
        write_stdout(&render(&judged, &targets))?;
    }
    let failed = judged.iter().filter(|one| one.counts).flat_map(|one| &one.phases).any(|phase| !phase.holds);
    Ok(if failed && !args.lenient { Exit::Verification } else { Exit::Ok })
}

/// A file, and the name of its curve.
fn read(file: &Path) -> Result<(String, Steady), Failure> {
    let failed = |why: String| Failure::usage(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let fault = |error| failed(format!("not what `rerail perf --seconds ... --json` prints: {}", json_fault(&error)));
    let run = serde_json::from_str(&text).map_err(fault)?;
    Ok((file.file_stem().unwrap_or_default().to_string_lossy().into_owned(), run))
}

/// Ends of intervals, and Mbit/s in them, both ways together.
fn points(run: &Steady) -> Vec<(f64, f64)> {
    run.samples.iter().map(|sample| (sample.at, (sample.sent + sample.received) / MBIT)).collect()
}

fn figure(args: &SeriesArgs, runs: &[(String, Steady)]) -> Figure {
    let axis = |label: &str, unit: &str| Axis { label: label.into(), unit: unit.into(), scale: Scale::Linear };
    let mut stated: Vec<Stated> = Vec::new();
    for &(_, sum) in &args.sums {
        let name = format!("sum of the rails: {sum:.0} Mbit/s");
        if stated.iter().all(|one| one.name != name) {
            stated.push(Stated { name, value: sum });
        }
    }
    Figure {
        source: "rerail perf".into(),
        title: args.title.clone(),
        paper: String::new(),
        ours: String::new(),
        timeline: None,
        x: axis("time", "s"),
        y: axis("payload", "Mbit/s"),
        series: runs.iter().map(|(name, run)| Series { name: name.clone(), points: points(run) }).collect(),
        stated,
        claims: Vec::new(),
    }
}

fn render(judged: &[Judged], targets: &Targets) -> String {
    let mut table = Table::new(&[
        ("run", Align::Left),
        ("from s", Align::Right),
        ("sum Mbit/s", Align::Right),
        ("carried", Align::Right),
        ("of sum", Align::Right),
        ("recovered after s", Align::Right),
        ("", Align::Left),
    ]);
    for one in judged {
        for phase in &one.phases {
            let verdict = match (phase.holds, one.counts) {
                (true, _) => good("ok"),
                (false, true) => bad("missed"),
                (false, false) => "missed (not demanded)".to_owned(),
            };
            table.row([
                one.name.clone(),
                format!("{:.1}", phase.from),
                format!("{:.0}", phase.sum),
                format!("{:.0}", phase.carried),
                format!("{:.1} %", 100.0 * phase.carried / phase.sum),
                phase.recovered_after.map_or("never".to_owned(), |after| format!("{after:.1}")),
                verdict,
            ]);
        }
    }
    format!(
        "{}\ndemanded: {:.0} % of the sum, {:.0} % within {} s of a change",
        table.render(),
        100.0 * targets.steady,
        100.0 * targets.recovered,
        targets.within
    )
}
