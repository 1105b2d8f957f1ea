//! `rerail lab`: every policy over random sets of rails, and how `balanced` compares.

use std::num::NonZero;
use std::process::ExitCode;
use std::time::Instant;

use rerail_core::endpoint::Policy;
use rerail_sim::lab::{self, CaseTrace, Contender, Demand, Outcome, Pattern, Report, Request, Shares, Size};
use serde::Serialize;

use crate::cli::LabArgs;
use crate::exit::{Exit, Failure};
use crate::explain::table::{self, Explained, Known};
use crate::output::{Align, Progress, Table, bad, bold, dim, good, json, write_stdout};

/// All of a run, for programs.
#[derive(Clone, Debug, Serialize)]
struct LabReport<'a> {
    seconds: f64,
    shares: Vec<Shares>,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs sets, or reports one; the exit code is the verdict on the targets.
///
/// # Errors
/// [`Exit::Verification`] where a message never came or a request failed.
pub fn run(args: &LabArgs) -> Result<ExitCode, Failure> {
    if let Some(seed) = args.case {
        return print_case(seed, args);
    }
    if args.from.checked_add(args.seeds - 1).is_none() {
        let (from, seeds) = (args.from, args.seeds);
        return Err(Failure::usage(format!("--from {from} --seeds {seeds}: the last seed there is is {}", u64::MAX)));
    }
    let started = Instant::now();
    let progress = Progress::steps(!args.json, args.seeds, "sets of rails");
    let request = Request { from: args.from, seeds: args.seeds, threads: threads(args) };
    let report = lab::run(request, &mut |done| progress.set(done)).map_err(Failure::verification)?;
    progress.finish();
    let seconds = started.elapsed().as_secs_f64();
    match args.json {
        true => {
            let shares = Demand::ALL.iter().map(|&demand| report.shares(demand, |_| true)).collect();
            json(&LabReport { seconds, shares, report: &report })?;
        }
        false => write_stdout(&render(&report, args.worst, seconds))?,
    }
    Ok(if report.holds() { Exit::Ok } else { Exit::Verification }.into())
}

/// As many as requested, else one per processor.
fn threads(args: &LabArgs) -> NonZero<usize> {
    let requested = args.threads.and_then(|threads| NonZero::new(threads as usize));
    requested.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZero::<usize>::MIN)
}

/// Some cases, by name.
type Family = (String, Box<dyn Fn(&Outcome) -> bool>);

/// The families that a summary distinguishes.
fn families() -> Vec<Family> {
    let mut families: Vec<Family> = vec![("all".to_owned(), Box::new(|_| true))];
    for size in [Size::Eager, Size::Whole, Size::Middle, Size::Large] {
        for pattern in [Pattern::OneByOne, Pattern::Stream, Pattern::BothWays] {
            let is = move |case: &Outcome| Size::of(case.bytes) == size && case.pattern == pattern;
            families.push((format!("{}, {}", size.name(), pattern.name()), Box::new(is)));
        }
    }
    let steady = |case: &Outcome| !case.changes && !case.shares;
    families.push(("steady, nothing shared".to_owned(), Box::new(steady)));
    families.push((
        "steady, shared and declared".to_owned(),
        Box::new(|case| !case.changes && case.shares && case.is_placement_declared),
    ));
    families.push((
        "steady, shared and undeclared".to_owned(),
        Box::new(|case| !case.changes && case.shares && !case.is_placement_declared),
    ));
    families.push(("changing load".to_owned(), Box::new(|case| case.changes)));
    for (name, declared) in
        [("nothing", lab::Declared::Nothing), ("the truth", lab::Declared::Truth), ("wrong", lab::Declared::Wrong)]
    {
        families.push((format!("rates given: {name}"), Box::new(move |case| case.declared == declared)));
    }
    families
}

fn render(report: &Report, most: usize, seconds: f64) -> String {
    let mut text = format!(
        "{} sets of rails from seed {} on, {} cases, {seconds:.1} s\n\n",
        report.seeds,
        report.from,
        report.outcomes.len()
    );
    let mut columns = vec![("cases", Align::Left), ("", Align::Right)];
    for demand in Demand::ALL {
        columns.extend([(demand.name(), Align::Right), ("worst", Align::Right), ("mean", Align::Right)]);
    }
    let mut table = Table::new(&columns);
    for (name, is) in families() {
        let all = report.outcomes.iter().filter(|outcome| is(outcome)).count();
        let mut row = vec![name, all.to_string()];
        for demand in Demand::ALL {
            let shares = report.shares(demand, &is);
            if shares.cases == 0 {
                row.extend([String::new(), String::new(), String::new()]);
                continue;
            }
            let share = format!("{:.1} %", shares.share() * 100.0);
            row.extend([
                if shares.holds() { good(&share) } else { bad(&share) },
                format!("{:.3}", shares.worst),
                format!("{:.3}", shares.mean),
            ]);
        }
        table.row(row);
    }
    text += &table.render();
    text += &format!(
        "\n{}\n",
        dim(
            "the share of cases that reach 97 % of it (best rail: 1 / 1.03), the least that is reached, the geometric mean"
        )
    );
    for demand in Demand::ALL {
        let worst = report.worst(demand, most);
        if worst.is_empty() {
            continue;
        }
        text += &format!("\n{}\n", bold(&format!("furthest from the {}", demand.name())));
        let mut table = Table::new(&[
            ("seed", Align::Right),
            ("bytes", Align::Right),
            ("pattern", Align::Left),
            ("reached", Align::Right),
            ("of", Align::Left),
            ("rails", Align::Left),
        ]);
        for outcome in worst {
            let (best, _) = outcome.best(demand).unwrap_or_default();
            let mut rails = vec![if outcome.changes { "changing" } else { "steady" }];
            if outcome.shares {
                rails.push(if outcome.is_placement_declared { "shared, declared" } else { "shared, undeclared" });
            }
            table.row([
                outcome.seed.to_string(),
                outcome.bytes.to_string(),
                outcome.pattern.name().to_owned(),
                format!("{:.3}", outcome.reached(demand).unwrap_or(1.0)),
                best,
                rails.join(", "),
            ]);
        }
        text += &format!("{}\n", table.render());
    }
    text += &format!(
        "\none of them in full: rerail lab --case SEED\n{}",
        match report.holds() {
            true => good("every demand is met"),
            false => unmet(report).join("\n"),
        }
    );
    text
}

/// The demands that are not met, each with how far it is from that.
fn unmet(report: &Report) -> Vec<String> {
    let line = |demand: Demand| {
        let shares = report.shares(demand, |_| true);
        let Shares { cases, met, .. } = shares;
        let text = format!(
            "not met: {:.1} % of the {} in {:.0} % of the cases; it is reached in {met} of {cases} ({:.1} %)",
            demand.least() * 100.0,
            demand.name(),
            demand.share() * 100.0,
            shares.share() * 100.0
        );
        (!shares.holds()).then(|| bad(&text))
    };
    Demand::ALL.into_iter().filter_map(line).collect()
}

/// What of a case's demands is not met.
fn missed(outcome: &Outcome) -> Vec<String> {
    let line = |demand: Demand| {
        let reached = outcome.reached(demand).filter(|_| !outcome.meets(demand))?;
        let (best, _) = outcome.best(demand)?;
        let (bytes, pattern, name) = (outcome.bytes, outcome.pattern.name(), demand.name());
        let least = demand.least() * 100.0;
        let suffix = if best == name { String::new() } else { format!(" ({best})") };
        Some(bad(&format!(
            "not met: {bytes} B, {pattern}: {:.1} % of the {name}{suffix}, demanded are {least:.1} %",
            reached * 100.0
        )))
    };
    Demand::ALL.into_iter().filter_map(line).collect()
}

/// One seed's cases, in full.
fn print_case(seed: u64, args: &LabArgs) -> Result<ExitCode, Failure> {
    let mut wrong = Vec::new();
    let mut outcomes = Vec::new();
    for case in lab::cases(seed).iter().filter(|case| args.bytes.is_none_or(|bytes| bytes == case.bytes)) {
        let outcome = lab::outcome(case).map_err(Failure::verification)?;
        wrong.extend(missed(&outcome));
        if !args.json {
            let played = lab::play(case, Contender::Policy(Policy::Balanced)).map_err(Failure::verification)?;
            let optimum = lab::optimum(case);
            let case_trace = CaseTrace { case, outcome: &outcome, carried: &played.carried, optimum: optimum.as_ref() };
            write_stdout(&format!("{case_trace}\n{}\n", measured(case.bytes, &played)))?;
            if args.posts {
                write_stdout(&posts(&played))?;
            }
        }
        outcomes.push(outcome);
    }
    if args.bytes.is_some() && outcomes.is_empty() {
        let sizes: Vec<String> = lab::cases(seed).iter().map(|case| case.bytes.to_string()).collect();
        return Err(Failure::usage(format!("--bytes: seed {seed} has messages of {} bytes only", sizes.join(", "))));
    }
    match args.json {
        true => json(&outcomes)?,
        false if wrong.is_empty() => write_stdout(&good("every demand is met"))?,
        false => write_stdout(&wrong.join("\n"))?,
    }
    Ok(if wrong.is_empty() { Exit::Ok } else { Exit::Verification }.into())
}

/// What rails got of the last message, and when.
fn posts(played: &lab::Played) -> String {
    let start = played.posts.first().map_or(0, |post| post.at);
    let us = |at: u64| at.saturating_sub(start) as f64 / 1e3;
    let line = |post: &lab::Posted| {
        let lab::Posted { at, through, rank, rail, bytes, .. } = *post;
        let declared =
            if through == 0 { "not reported complete".to_owned() } else { format!("through {:.1}", us(through)) };
        format!("  {:>10.1} us  rank {rank}, rail {rail}: {bytes} bytes, {declared}\n", us(at))
    };
    played.posts.iter().map(line).collect()
}

/// The core's measurements of the rails, and how the messages came.
fn measured(bytes: u64, played: &lab::Played) -> String {
    let mut table = Table::new(&[
        ("  seen of rail", Align::Right),
        ("by rank", Align::Right),
        ("packets", Align::Right),
        ("bytes", Align::Right),
        ("MB/s", Align::Right),
        ("latency, us", Align::Right),
        ("sampled", Align::Right),
        ("weight", Align::Right),
        ("last change", Align::Left),
    ]);
    for rail in 0..played.carried.len() {
        for (rank, stats) in played.stats.iter().enumerate() {
            let seen = &stats[rail];
            let changed = seen.changed.map(|change| format!("{:?} at {:.1} us", change.why, change.at.0 as f64 / 1e3));
            table.row([
                rail.to_string(),
                rank.to_string(),
                seen.packets.to_string(),
                seen.bytes.to_string(),
                format!("{:.0}", seen.bytes_per_second as f64 / 1e6),
                format!("{:.1}", seen.latency.0 as f64 / 1e3),
                seen.sampled.map_or_else(String::new, |seen| {
                    format!("{:.0} MB/s, {:.1} us", seen.bytes_per_second as f64 / 1e6, seen.latency.0 as f64 / 1e3)
                }),
                seen.weight.to_string(),
                changed.unwrap_or_default(),
            ]);
        }
    }
    let came = played.messages.iter().map(|ns| format!("{:.1}", *ns as f64 / 1e3)).collect::<Vec<_>>().join(" ");
    let names: Vec<_> = (0..played.carried.len()).map(|rail| Known::named(format!("rail {rail}"))).collect();
    let declared = played.explained.as_ref().map(|explanation| Explained::new(bytes, &names, explanation, |_| None));
    let explained = table::render(declared.as_slice());
    let rebalances = played.rebalances;
    format!("{}\n{explained}\n  rebalance: {rebalances}; messages by balanced, us: {came}", table.render())
}
